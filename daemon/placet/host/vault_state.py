"""The state folder of a vault, found by the vault's id: a vault that is moved keeps it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from placet.errors import cannot_write
from placet.host.state import StateFolder, state_home, write_private
from placet.note.paths import MARKER, MAX_MARKER_BYTES

_SLUG_LENGTH = 48


def vault_state(vault: Path, env: Mapping[str, str]) -> StateFolder:
    """Return the state of a vault: the same by any path, and after a move. Creates nothing.

    The vault's id decides (`MARKER`), or without one its path. A copy of a vault that is still at
    its place has a folder of its own.
    """
    return _find(vault, env)[0]


def original_of(vault: Path, env: Mapping[str, str]) -> Path | None:
    """Return the vault that this one is a copy of (same id, still at its place), or None."""
    return _find(vault, env)[1]


def known_id(vault: Path, env: Mapping[str, str]) -> str | None:
    """Return the last known id of the vault at this path, or None."""
    whose = _Whose.read(vault_state(vault, env).whose)
    return whose.id if whose is not None and whose.path == str(vault.resolve()) else None


def known_vaults(env: Mapping[str, str]) -> list[Path]:
    """Return the last paths of all vaults with state in this environment."""
    found = (_Whose.read(path) for path in sorted(state_home(env).glob("*/vault.json")))
    return [Path(whose.path) for whose in found if whose is not None]


def remember(state: StateFolder) -> None:
    """Write down which vault the state belongs to, and its path. Raises UserError if it cannot."""
    vault_id = _id_at(state.vault)
    if vault_id is None:
        return
    whose = _Whose(vault_id, str(state.vault), *_identity(state.vault))
    if whose == _Whose.read(state.whose):
        return
    text = json.dumps(whose._asdict())
    try:
        write_private(state.whose, text.encode())
    except OSError as error:
        raise cannot_write(state.whose, error) from error


class _Whose(NamedTuple):
    """The vault that a state folder belongs to. Bytes in `path` without UTF-8 are surrogates."""

    id: str
    path: str
    dev: int
    ino: int

    @classmethod
    def read(cls, path: Path) -> _Whose | None:
        try:
            found = json.loads(path.read_bytes())
            return cls(str(found["id"]), str(found["path"]), int(found["dev"]), int(found["ino"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _find(vault: Path, env: Mapping[str, str]) -> tuple[StateFolder, Path | None]:
    """Return the vault's state, and the vault that it is a copy of."""
    real = vault.resolve()
    home = state_home(env)
    slug = _slug(real.name)
    by_path = home / f"{slug}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:8]}"
    vault_id = _id_at(real)
    first = _Whose.read(by_path / "vault.json")
    if first is not None and first.path == str(real) and vault_id in (None, first.id):
        return StateFolder(real, by_path), None
    # named by its path: free, or of a version that kept no ids
    both = hashlib.sha256(os.fsencode(real) + (vault_id or "").encode()).hexdigest()[:8]
    own = by_path if first is None else home / f"{slug}-{both}"
    for path in sorted(home.glob("*/vault.json")):
        whose = _Whose.read(path)
        if whose is None or (
            whose.id != vault_id if vault_id is not None else whose.path != str(real)
        ):
            continue
        there = Path(whose.path)
        if there == real or _identity(real) == (whose.dev, whose.ino) or _id_at(there) != whose.id:
            return StateFolder(real, path.parent), None
        return StateFolder(real, own), there
    return StateFolder(real, own), None


def _id_at(vault: Path) -> str | None:
    """Return the id in a vault's marker; None if it is missing, a link, a pipe, or too long."""
    try:
        with os.fdopen(
            os.open(vault / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC),
            "rb",
        ) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_MARKER_BYTES:
                return None
            return file.read(MAX_MARKER_BYTES).decode("ascii").strip() or None
    except (OSError, ValueError):
        return None


def _identity(folder: Path) -> tuple[int, int]:
    try:
        info = folder.stat()
    except OSError:
        return 0, 0
    return info.st_dev, info.st_ino


def _slug(name: str) -> str:
    ascii_name = (
        unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii").lower()
    )
    return re.sub(r"[^a-z0-9]+", "-", ascii_name)[:_SLUG_LENGTH].strip("-") or "vault"
