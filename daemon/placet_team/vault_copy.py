"""Copy the notes that workers need through the database: instructions, agents, Knowledge.

A copy is a list of paths with the digests of their texts. Its name is the digest of the list.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path, PurePosixPath

from placet.agent.ports import Ports
from placet.journal.writer import JournalAccess
from placet_team.tables import PutBody, TouchBodies, bodies_of, known_bodies

MAX_NOTE_BYTES = 1_000_000
"""Maximum size of a file that is copied: a larger one is not a note."""
_TREES = ("System/Agents", "Knowledge")
_AT_ONCE = 100
_DIGESTS: dict[Path, tuple[tuple[int, int, int], str]] = {}
"""The digests of files by path, with inode, size and time of the text that was read."""


def keep_for_workers(ports: Ports) -> str:
    """Copy what workers need of the vault into the database; return the copy's name."""
    found = dict(_digests(ports.vault, _names(ports.vault, ports.config.model.script)))
    wanted = [*dict.fromkeys(found.values())]
    with ports.journal.ask() as reader:
        known = known_bodies(reader.connection, wanted)
    puts = []
    for path in [path for path, digest in found.items() if digest not in known]:
        try:
            raw = (ports.vault / path).read_bytes()
        except FileNotFoundError:
            del found[path]
            continue
        found[path] = sha256(raw).hexdigest()  # it may be another text by now
        puts.append(PutBody(found[path], raw))
    listed = json.dumps(found, sort_keys=True).encode()
    name = sha256(listed).hexdigest()
    ports.journal.commit([TouchBodies([*wanted, name]), *puts, PutBody(name, listed)])
    return name


def _digests(vault: Path, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Give the plain files among some names, without links, with the digests of their texts."""
    for name in names:
        path = vault / name
        if not path.is_file() or path.is_symlink():
            continue
        info = path.stat()
        stamp = (info.st_ino, info.st_size, info.st_mtime_ns)
        if info.st_size > MAX_NOTE_BYTES:
            continue
        known = _DIGESTS.get(path)
        if known is None or known[0] != stamp:
            known = stamp, sha256(path.read_bytes()).hexdigest()
            _DIGESTS[path] = known
        yield name, known[1]


def _names(vault: Path, script: str) -> Iterator[str]:
    yield from ("SYSTEM_PROMPT.md", *([script] if script else []))
    for tree in _TREES:
        for folder, folders, files in os.walk(vault / tree):
            folders[:] = [one for one in folders if not one.startswith(".")]
            yield from (str((Path(folder) / one).relative_to(vault)) for one in files)


def unpacked(journal: JournalAccess, folder: Path, name: str) -> Path:
    """Return the folder with what `name` keeps of the vault, below `folder`; one call at a time.

    Raises LookupError where the database has it no more, ValueError for one that was not made by
    `keep_for_workers`.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", name):
        raise ValueError(f"not the name of a vault's copy: {name!r:.200}")
    target = folder / name
    if target.is_dir():
        return target
    (listed,) = _bodies(journal, [name])
    making = target.with_name(f"{name}.{os.getpid()}.tmp")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    found = json.loads(listed)
    for path, body in zip(found, _bodies(journal, [*found.values()]), strict=True):
        _write(making, path, body)
    making.rename(target)
    return target


def _bodies(journal: JournalAccess, digests: list[str]) -> Iterator[bytes]:
    """Give the bodies with these digests, in order."""
    for at in range(0, len(digests), _AT_ONCE):
        some = digests[at : at + _AT_ONCE]
        with journal.ask() as reader:
            found = bodies_of(reader.connection, some)
        for digest in some:
            if sha256(body := found.get(digest, b"")).hexdigest() != digest:
                raise LookupError(f"{digest} is no longer in the database")
            yield body


def _write(folder: Path, name: str, body: bytes) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"the vault's copy has no plain file at {name!r:.200}")
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(body)
