"""Find the state folder: one per vault, outside the vault, because vaults are synced."""

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

from placet.disk.files import identity_of, put, sweep
from placet.disk.real_path import real_path
from placet.errors import UserError, cannot_write
from placet.note.paths import CONFIG_PATH, MARKER, MAX_MARKER_BYTES


def state_home(env: Mapping[str, str]) -> Path:
    """Return the folder of all state: $PLACET_STATE_HOME, $XDG_STATE_HOME/placet, or ~/.local/….

    A relative $XDG_STATE_HOME is ignored, as the XDG Base Directory Specification asks. Raises
    UserError for a relative $PLACET_STATE_HOME, and without $HOME if it is needed.
    """
    own = env.get("PLACET_STATE_HOME", "")
    if own:
        if not Path(own).is_absolute():
            raise UserError(
                f"PLACET_STATE_HOME is not an absolute path: {own}",
                "set it to one, or unset it",
                exit_code=2,
            )
        return Path(own)
    xdg = env.get("XDG_STATE_HOME", "")
    if xdg and Path(xdg).is_absolute():
        return Path(xdg) / "placet"
    home = env.get("HOME", "")
    if not home or not Path(home).is_absolute():
        raise UserError(
            "there is no place for state: HOME is not set",
            "set HOME or PLACET_STATE_HOME",
            exit_code=2,
        )
    return Path(home) / ".local" / "state" / "placet"


def expand_home(given: str) -> Path:
    """Return a path with `~` expanded, or as a plain name if there is no home folder."""
    return Path(os.path.expanduser(given))  # noqa: PTH111 - Path.expanduser raises for an unknown user


def find_vault(given: str | None, env: Mapping[str, str], here: Path) -> Path:
    """Return the vault given, else `$PLACET_VAULT`, else the nearest with a System/placet.toml.

    The search goes upwards from `here`. Raises UserError (exit code 2) if none is found.
    """
    named = given or env.get("PLACET_VAULT")
    if named:
        path = expand_home(named).absolute()
        if not os.path.isdir(path):
            exists = os.path.lexists(path)
            raise UserError(
                f"{path} is not a folder." if exists else f"There is no folder {path}.",
                "Name a folder." if exists else f"Make one there: placet init {path}",
                exit_code=2,
            )
        return path
    for folder in (here, *here.parents):
        if os.path.isfile(folder / CONFIG_PATH):
            return folder
    raise UserError(
        f"There is no vault in {here} or above it.",
        "Name one with --vault DIR or PLACET_VAULT, or make one: placet init DIR",
        exit_code=2,
    )


MARK = "journal.mark"
SIGNERS = "allowed_signers"


class StateFolder(NamedTuple):
    """The paths of one vault's state; all are absolute.

    `journal` is the SQLite database, `mark` its last event: a journal that does not know it was
    lost or put back. `accepted` are the settings that are code or reach out, and `signers`
    those who may sign an approval, as last accepted on this machine. `whose` is the id and the last
    path of the vault. `worktrees` are the missions' git
    worktrees, `intents` what people's commands ask the daemon to do. `log` is what the daemon said,
    a JSON object a line; the older half is in `log.old`. The flock of `lock` makes the daemon the
    only one.
    """

    vault: Path
    folder: Path
    journal: Path
    mark: Path
    accepted: Path
    signers: Path
    whose: Path
    worktrees: Path
    intents: Path
    log: Path
    lock: Path

    def sweep(self) -> None:
        """Delete the temporary files of killed processes. Raises OSError."""
        sweep(self.folder)

    def ensure(self) -> None:
        """Make the folders, readable by their owner alone.

        Raises UserError for a folder in the vault, is another user's, or cannot be made.
        """
        if _within(self.folder, self.vault):
            raise UserError(
                f"the state folder {self.folder} is in the vault {self.vault}, which may be synced",
                "set PLACET_STATE_HOME to a folder outside the vault",
                exit_code=2,
            )
        try:
            make_private(self.folder)
            make_private(self.worktrees)
            make_private(self.intents)
        except OSError as error:
            raise UserError(
                f"cannot make the state folder {error.filename or self.folder}: {error.strerror}",
                "set PLACET_STATE_HOME to a folder that you may write to",
                exit_code=2,
            ) from error


_SYNCED = re.compile(
    r"(dropbox|onedrive|nextcloud|owncloud|google ?drive|my drive|icloud ?drive)\b.*"
    r"|com~apple~clouddocs|mobile documents|cloudstorage",
    re.IGNORECASE,
)


def synced(folder: Path) -> UserError | None:
    """Return a warning if a state folder seems to be in a folder that a sync tool keeps.

    Such a folder has its usual name, or Syncthing's `.stfolder` in it.
    """
    real = Path(os.path.realpath(folder))
    for place in (real, *real.parents):
        if _SYNCED.fullmatch(place.name) or os.path.lexists(place / ".stfolder"):
            return UserError(
                f"The state folder {folder} seems to be synced ({place}). That can damage the "
                "journal.",
                "Set PLACET_STATE_HOME to a folder that no tool syncs. To keep the journal, first "
                "type: placet journal backup FILE",
            )
    return None


def _within(folder: Path, vault: Path) -> bool:
    """Return whether `folder`, which need not exist, is inside `vault`, compared by inode."""
    real = Path(os.path.realpath(folder))
    try:
        top = vault.stat()
    except FileNotFoundError:
        return real.is_relative_to(vault)
    for place in (real, *real.parents):
        try:
            if os.path.samestat(place.stat(), top):
                return True
        except (FileNotFoundError, NotADirectoryError):
            continue
    return False


def make_private(folder: Path) -> None:
    """Make `folder` and its missing parents, mode 0700; UserError if it is another user's."""
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)
    uid = os.geteuid()
    for found in (folder.lstat(), folder.stat()):
        if found.st_uid != uid:
            raise UserError(
                f"the state folder {folder} belongs to another user (uid {found.st_uid})",
                "set PLACET_STATE_HOME to a folder of your own",
                exit_code=2,
            )
    if not stat.S_ISDIR(folder.stat().st_mode):
        raise UserError(
            f"the state folder {folder} is not a folder", "move that file away", exit_code=2
        )
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        folder.chmod(0o700)


_SLUG_LENGTH = 48


def vault_state(vault: Path, env: Mapping[str, str]) -> StateFolder:
    """Return the state of a vault: the same by any path, and after a move. Creates nothing.

    The vault's id decides (`MARKER`), or without one its path. A copy of a vault that is still at
    its place has its own folder.
    """
    return _find(vault, env)[0]


def original_of(vault: Path, env: Mapping[str, str]) -> Path | None:
    """Return the vault that this one is a copy of (same id, still at its place), or None."""
    return _find(vault, env)[1]


def is_replaced(vault: Path, env: Mapping[str, str]) -> bool:
    """Return whether another vault was at this path last.

    A vault is known by the id in it, which whoever can write the vault can change: to a new one, or
    to that of a vault whose settings were accepted elsewhere, or here before.
    """
    real = real_path(vault)
    known = map(_Whose.read, state_home(env).glob("*/vault.json"))
    ids = {one.id for one in known if one is not None and one.path == str(real)}
    return bool(ids) and _id_at(real) not in ids


def known_id(vault: Path, env: Mapping[str, str]) -> str | None:
    """Return the last known id of the vault at this path, or None."""
    whose = _Whose.read(vault_state(vault, env).whose)
    return whose.id if whose is not None and whose.path == str(real_path(vault)) else None


def known_vaults(env: Mapping[str, str]) -> list[Path]:
    """Return the last paths of all vaults with state in this environment."""
    found = (_Whose.read(path) for path in sorted(state_home(env).glob("*/vault.json")))
    return [Path(whose.path) for whose in found if whose is not None and whose.path]


def remember(state: StateFolder) -> None:
    """Write down which vault the state belongs to, and its path, which no other vault then has.

    Raises UserError if it cannot.
    """
    vault_id = _id_at(state.vault)
    if vault_id is None:
        return
    whose = _Whose(vault_id, str(state.vault), *(identity_of(state.vault) or (0, 0)))
    if whose == _Whose.read(state.whose):
        return
    for path in state.folder.parent.glob("*/vault.json"):
        other = _Whose.read(path)
        if other is not None and other.id != vault_id and other.path == whose.path:
            _write(path, other._replace(path=""))
    _write(state.whose, whose)


def _write(path: Path, whose: _Whose) -> None:
    try:
        put(path, json.dumps(whose._asdict()).encode())
    except OSError as error:
        raise cannot_write(path, error) from error


class _Whose(NamedTuple):
    """The vault that a state folder belongs to. Bytes in `path` without UTF-8 are surrogates.

    `path` is empty once another vault is there.
    """

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
    real = real_path(vault)
    home = state_home(env)
    ascii_name = unicodedata.normalize("NFKD", real.name).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", ascii_name.lower())[:_SLUG_LENGTH].strip("-") or "vault"
    by_path = home / f"{slug}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:8]}"
    vault_id = _id_at(real)
    first = _Whose.read(by_path / "vault.json")
    if first is not None and first.path == str(real) and vault_id in (None, first.id):
        return _state(real, by_path), None
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
        if (
            not whose.path
            or there == real
            or identity_of(real) == (whose.dev, whose.ino)
            or _id_at(there) != whose.id
        ):
            return _state(real, path.parent), None
        return _state(real, own), there
    return _state(real, own), None


def _state(vault: Path, folder: Path) -> StateFolder:
    names = ("journal.db", MARK, "accepted.json", SIGNERS, "vault.json", "worktrees", "intents")
    return StateFolder(vault, folder, *(folder / name for name in (*names, "log", "lock")))


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
