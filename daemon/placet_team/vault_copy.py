"""The part of the vault that workers need, as one body: instructions, agents, Knowledge."""

from __future__ import annotations

import io
import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path, PurePosixPath

from placet.agent.workplace import Ports
from placet.journal.writer import JournalAccess
from placet_team.team_journal import PutBody
from placet_team.team_rows import body_of

MAX_NOTE_BYTES = 1_000_000
"""Maximum of a file that travels: what is larger is no note."""
_TREES = ("System/Agents", "Knowledge")
_LAST: dict[Path, tuple[tuple[object, ...], str]] = {}


def keep_for_workers(ports: Ports) -> str:
    """Keep what workers need of the vault as it is now; return its name."""
    found = sorted(_files(ports.vault, ports.config.model.script))
    stamps = tuple((name, i.st_ino, i.st_size, i.st_mtime_ns) for name, i in found)
    before = _LAST.get(ports.vault)
    if before is not None and before[0] == stamps:
        with ports.journal.read() as reader:
            if body_of(reader.connection, before[1]) is not None:
                return before[1]
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        for name, _ in found:
            try:
                raw = (ports.vault / name).read_bytes()
            except OSError:
                continue  # it went meanwhile
            entry = tarfile.TarInfo(os.fsencode(name).decode("utf-8", "surrogateescape"))
            entry.size = len(raw)
            tar.addfile(entry, io.BytesIO(raw))
    name = f"vault/{sha256(body.getvalue()).hexdigest()}"
    ports.journal.commit([PutBody(name, body.getvalue())])
    _LAST[ports.vault] = stamps, name
    return name


def _files(vault: Path, script: str) -> Iterator[tuple[str, os.stat_result]]:
    """Give the plain files that workers need, no link among them."""
    names = ["SYSTEM_PROMPT.md", *([script] if script else [])]
    for tree in _TREES:
        for folder, folders, files in os.walk(vault / tree):
            folders[:] = [one for one in folders if not one.startswith(".")]
            names += [str((Path(folder) / one).relative_to(vault)) for one in files]
    for name in names:
        path = vault / name
        if path.is_file() and not path.is_symlink():
            info = path.stat()
            if info.st_size <= MAX_NOTE_BYTES:
                yield name, info


def unpacked(journal: JournalAccess, folder: Path, name: str) -> Path:
    """Return the folder with what `name` keeps of the vault, below `folder`; one call at a time.

    Raises LookupError where the database has it no more, ValueError for one that was not made by
    `keep_for_workers`.
    """
    if not re.fullmatch(r"vault/[0-9a-f]{64}", name):
        raise ValueError(f"not the name of a vault's copy: {name!r:.200}")
    there = folder / name.replace("/", "-")
    if there.is_dir():
        return there
    with journal.read() as reader:
        body = body_of(reader.connection, name)
    if body is None:
        raise LookupError(f"{name} is not in the database any more")
    making = there.with_name(f"{there.name}.{os.getpid()}.tmp")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        for entry in tar:
            _write(making, entry, tar)
    making.rename(there)
    return there


def _write(folder: Path, entry: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
    """Write a file of an archive below a folder; raises ValueError for anything else.

    Not `extractall(filter=…)`, which Python has from 3.11.4 on.
    """
    name = PurePosixPath(entry.name)
    held = tar.extractfile(entry) if entry.isreg() else None
    if held is None or name.is_absolute() or ".." in name.parts:
        raise ValueError(f"the vault's copy has no plain file at {entry.name!r:.200}")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(held.read())
