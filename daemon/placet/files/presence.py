"""The vault's folder, held by a handle, and which vault it is: its marker says so."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from placet.disk.replace import identity, read
from placet.errors import PlacetError, UserError
from placet.files.handles import LISTING, Held, descend
from placet.note.paths import MARKER, MAX_MARKER_BYTES, show

_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class VaultFolder:
    """The folder `root`, held by a handle that follows a vault which is put back at its path."""

    def __init__(self, root: Path) -> None:
        """Open the vault. Raises UserError if the folder cannot be opened."""
        self.root = root.absolute()
        self._lock = threading.Lock()
        try:
            self._handle = os.open(self.root, _ROOT)
        except OSError as error:
            raise UserError(
                f"The vault {show(str(self.root))} cannot be opened: {error.strerror}.",
                "Create one there with `placet init`, or name another with --vault.",
                exit_code=2,
            ) from error
        self._identity = identity(os.fstat(self._handle))
        self._id = _marker(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the handle; the vault can be unmounted then."""
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    def marker(self) -> str | None:
        """Return the id in the vault's marker as it is now; None without a readable one.

        A file that is missing from a vault with its marker was deleted.
        """
        with self._folder([]) as handle:
            return _marker(handle)

    def is_present(self) -> bool:
        """Return whether this vault is still at its path; follow it if it was restored there."""
        if self._id is None:
            return False
        try:
            if identity(self.root.stat()) == self._identity:
                return self.marker() == self._id
            fresh = os.open(self.root, _ROOT)
        except OSError:
            return False  # not there, not a folder, or a mount that died: the vault is away
        if _marker(fresh) != self._id:
            os.close(fresh)
            return False
        with self._lock:
            os.close(self._handle)
            self._handle, self._identity = fresh, identity(os.fstat(fresh))
        return True

    @contextlib.contextmanager
    def _folder(self, parts: list[str], *, create: bool = False) -> Iterator[int]:
        with self._lock:
            root = os.dup(self._handle)
        with Held(root), Held(descend(root, parts, LISTING, create=create)) as folder:
            yield folder

    @contextlib.contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        parts = path.split("/")
        if any(part in {"", ".", ".."} or "\0" in part for part in parts):
            raise ValueError(f"not a path in the vault: {show(path)}")
        with self._folder(parts[:-1], create=create) as handle:
            yield handle, parts[-1]


def _marker(root: int) -> str | None:
    """Return the id in the marker of the vault with this handle, None without a readable one."""
    *folders, name = MARKER.split("/")
    try:
        with Held(descend(root, folders, LISTING)) as folder:
            data, _ = read(folder, name, MARKER, MAX_MARKER_BYTES)
        return data.decode("ascii").strip() or None
    except (OSError, PlacetError, UnicodeDecodeError):
        return None
