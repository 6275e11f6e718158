"""The state folder: one per vault, outside the vault, because vaults are synced."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from placet.disk.files import delete_tree, put, sweep
from placet.errors import UserError
from placet.note.paths import CONFIG_PATH


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


def from_home(given: str) -> Path:
    """Return a path with `~` as the person's home, or as a plain name if there is none."""
    return Path(os.path.expanduser(given))  # noqa: PTH111 - Path.expanduser raises for who is not known


def find_vault(given: str | None, env: Mapping[str, str], here: Path) -> Path:
    """Return the vault given, else `$PLACET_VAULT`, else the nearest with a System/placet.toml.

    The search goes upwards from `here`. Raises UserError (exit code 2) if there is none.
    """
    named = given or env.get("PLACET_VAULT")
    if named:
        path = from_home(named).absolute()
        if not path.is_dir():
            there = path.exists() or path.is_symlink()
            raise UserError(
                f"The vault {path} is {'not a folder' if there else 'not there'}.",
                "Name a folder." if there else f"Make one there: placet init {path}",
                exit_code=2,
            )
        return path
    for folder in (here, *here.parents):
        if (folder / CONFIG_PATH).is_file():
            return folder
    raise UserError(
        f"There is no vault in {here} or above it.",
        "Name one with --vault DIR or PLACET_VAULT, or make one: placet init DIR",
        exit_code=2,
    )


MARK = "journal.mark"


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The paths of one vault's state. `vault` and `folder` are absolute."""

    vault: Path
    folder: Path

    def __post_init__(self) -> None:
        if not self.vault.is_absolute() or not self.folder.is_absolute():
            raise ValueError(f"not absolute: {self}")

    @property
    def journal(self) -> Path:
        """The SQLite database."""
        return self.folder / "journal.db"

    @property
    def mark(self) -> Path:
        """The journal's last event; a journal that does not know it was lost or put back."""
        return self.folder / MARK

    @property
    def accepted(self) -> Path:
        """The settings that are code or reach out, as last accepted on this machine."""
        return self.folder / "accepted.json"

    @property
    def whose(self) -> Path:
        """The id and the last path of the vault that this state belongs to."""
        return self.folder / "vault.json"

    @property
    def worktrees(self) -> Path:
        """The missions' git worktrees."""
        return self.folder / "worktrees"

    @property
    def intents(self) -> Path:
        """What people's commands ask the daemon to do (`intents`)."""
        return self.folder / "intents"

    @property
    def log(self) -> Path:
        """What the daemon said, a JSON object a line; the older half is in `log.old`."""
        return self.folder / "log"

    @property
    def lock(self) -> Path:
        """The file whose flock makes the daemon the only one."""
        return self.folder / "lock"

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


def write_private(path: Path, data: bytes) -> None:
    """Write a file of the state folder whole, readable by its owner alone. Raises OSError."""
    put(path, data)


def _within(folder: Path, vault: Path) -> bool:
    """Return whether `folder`, which need not exist, would lie in `vault`, compared by inode."""
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


def make_ready(folder: Path) -> None:
    """Make a folder for state of its own, and delete what killed processes left in it.

    Raises UserError for one of another user's, OSError where it cannot be made.
    """
    make_private(folder)
    sweep(folder)


def make_empty(folder: Path) -> None:
    """Make a folder for state anew, whatever is in it. Raises as `make_ready` does."""
    delete_tree(folder)
    make_private(folder)


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
