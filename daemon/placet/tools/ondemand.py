"""The files of a sparse worktree, as tools see them: all of them. What is not checked out is when it is first looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from placet.confine import Entry
from placet.core.errors import ToolError
from placet.core.secrets import secret_file
from placet.repo import Worktree, files_in, fill
from placet.tools.base import Files


@dataclass(frozen=True, slots=True)
class OnDemand:
    """The `Files` of a sparse worktree: `files` are those that are there, and each call brings what it needs first.

    Beside what the methods of `files` raise, each may raise GitError or OSError, where git cannot check something out.
    """

    files: Files
    tree: Worktree

    def bring_secrets(self) -> None:
        """Check out every file that may hold secrets: their values are to be known before anything is shown."""
        secret = [path for path in files_in(self.tree) if secret_file(path) is not None]
        fill(self.tree, sorted(set(map(_folder, secret))), deep=False)
        if any(_is_link(self.tree.path / path) for path in secret):
            self._bring_everything()

    def relative(self, path: str) -> str:
        """See `Files`."""
        return self.files.relative(path)

    def protects(self, path: str) -> bool:
        """See `Files`."""
        return self.files.protects(path)

    def read(self, path: str, *, limit_bytes: int | None = None) -> bytes:
        """See `Files`."""
        self._bring_file(path)
        return self.files.read(path, limit_bytes=limit_bytes)

    def exists(self, path: str) -> bool:
        """See `Files`."""
        self._bring_file(path)
        return self.files.exists(path)

    def list(self, path: str = ".") -> list[Entry]:
        """See `Files`."""
        self._bring_folder(path, deep=False)
        return self.files.list(path)

    def walk(self, path: str = ".", *, max_entries: int) -> Iterator[Entry]:
        """See `Files`."""
        self._bring_folder(path, deep=True)
        return self.files.walk(path, max_entries=max_entries)

    def write(self, path: str, data: bytes) -> int:
        """See `Files`."""
        self._bring_file(path)
        return self.files.write(path, data)

    def _bring_file(self, path: str) -> None:
        canonical = self._canonical(path)
        if canonical is not None:
            self._bring(_folder(canonical), canonical, deep=False)

    def _bring_folder(self, path: str, *, deep: bool) -> None:
        canonical = self._canonical(path)
        if canonical is not None:
            self._bring(canonical, canonical, deep=deep)

    def _canonical(self, path: str) -> str | None:
        """Return the path of something in the worktree, "" for the top; None for one that is refused anyway."""
        try:
            canonical = self.files.relative(path)
        except ToolError:
            return None
        return "" if canonical == "." else canonical

    def _bring(self, folder: str, path: str, *, deep: bool) -> None:
        fill(self.tree, [folder], deep=deep)
        names = path.split("/")
        if any(_is_link(self.tree.path / "/".join(names[:n])) for n in range(1, len(names) + 1)):
            self._bring_everything()

    def _bring_everything(self) -> None:
        """Check everything out: a link may lead anywhere in the worktree."""
        fill(self.tree, [""], deep=True)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _is_link(path: Path) -> bool:
    with suppress(OSError):  # no file can have a name that is too long; the tool itself says so
        return path.is_symlink()
    return False
