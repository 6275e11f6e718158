"""The wall around files: every path of a model goes through a handle of one folder, its `Root`.

**Against whom.** A model may be talked into anything by the text that it reads, so any string can
arrive here as a path. The commands that it may run can plant links and odd files in the worktree,
and can go on swapping them while a tool works. And people sync, build and edit in the same tree.

**A path is three things, and each is looked at once.** First a text: `paths.canonical` makes it
relative, with no `..`, no `.` and no doubled `/`, or refuses it; nothing is decoded or expanded.
That text is what the plan's scope is matched on. Then a list of names: `Denied` knows those that no
scope can open (`.git`, and in a vault the daemon's own folders) in every disguise that some file
system takes for them: case, Unicode form, code points that cannot be seen, 8.3 aliases, streams,
trailing dots. Last, something on a disk: `handles` opens it from the root's handle, one name at a
time with `O_NOFOLLOW`. Nothing is checked by name and then opened by that name: check-then-open
lost 22 to 25 % of the races against a program that swaps links, this way none of 300,000.

**What a path may lead through.**

- Reads (`read`, `stat`, `exists`, `list`, `walk`) follow a symbolic link whose target is relative
  and stays below the root at every step. Links are resolved by hand, handle by handle, so that
  every name on the way is looked at, `.git` too. An absolute target is outside even if it names the
  root.
- Writes (`write`, `delete`) go through no link at all, in no component. So the path that `relative`
  gives is the path that changes, and matching a scope on it means something.
- A file with a second hard link is not read: the other name may be outside. Writing one is safe, as
  a write replaces the file and leaves the other name its content.
- FIFOs, sockets and devices are refused without waiting for their other end.
- Nothing is cut in silence: a file, folder or tree over its limit is an error that says so.

**What an error tells.** Every operation raises ToolError and nothing else, its `error_type` one of
`Fault`; the message names the path as it was given and nothing outside of the root.

**What this wall does not hold.** A folder that somebody moves out of the root while it is held open
stays held; whoever can do that needs no help from here. Commands do not come through here at all:
their wall is the box (`sandbox`). What they changed is matched on the scope once more before it is
committed.

`tests/test_confine.py` attacks all of this: thousands of traversals with every operation, and
another process that swaps folders with links. `tests/test_tool_contract.py` does so by the tools.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

from placet.errors import ToolError, UserError
from placet.files.denied import ALWAYS, Denied
from placet.files.entries import Entry, below, entries_of, entry_of, must_be_file
from placet.files.handles import (
    FILE,
    LISTING,
    PASSAGE,
    Held,
    descend,
    enter,
    open_below,
    read_at_most,
    temporary,
)
from placet.files.links import follow
from placet.files.paths import Explained, Fault, canonical, fault_at

# Default limit of `read` and of `write`; more would not fit a conversation.
MAX_BYTES = 2 * 1024 * 1024

# Maximum of entries that `list` gives of one folder.
MAX_LISTED = 10_000

# Glob of the names that `write` uses until the content is complete; kill -9 can leave one.
TEMPORARY = ".placet-*.tmp"


class Root(contextlib.AbstractContextManager["Root"]):
    """One folder and the file operations below it.

    A context manager: it holds a handle of the folder. Every path is a str as a model writes it
    (see `relative`). Safe to use from several threads.
    """

    def __init__(
        self,
        path: Path,
        *,
        writable: bool,
        denied: Denied = ALWAYS,
        max_read_bytes: int = MAX_BYTES,
        max_write_bytes: int = MAX_BYTES,
    ) -> None:
        """Open the folder `path`; links on the way to it are the caller's word and are followed.

        Raises UserError if the folder cannot be opened.
        """
        try:
            self._handle = os.open(path, PASSAGE)
        except OSError as error:
            raise UserError(
                f"The folder {path} cannot be opened: {error.strerror}.",
                "Put it back or correct its path, then try again.",
            ) from error
        self.path = path.absolute()
        self.writable = writable
        self.denied = denied
        self.max_read_bytes = max_read_bytes
        self.max_write_bytes = max_write_bytes
        spellings = tuple({self.path.parts[1:], self.path.resolve().parts[1:]})
        # Most paths come twice, to be matched on a scope and to be opened; what a text means never
        # changes.
        self._canonical = lru_cache(maxsize=64)(partial(canonical, spellings, denied))

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the folder's handle.

        Closing twice is fine; any operation after it is a bug (RuntimeError).
        """
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def relative(self, path: str) -> str:
        """Return the canonical relative path, as `paths.canonical` does.

        `.` is the root itself. Raises ToolError: bad_path, too_deep, path_outside, path_denied.
        """
        return self._canonical(path)

    def read(self, path: str) -> bytes:
        """Return the whole content of a regular file, at most `max_read_bytes`.

        A larger file is too_large, never cut. A file with a second hard link is refused: the other
        one may be outside.
        """
        parts = self._parts(path)
        limit = self.max_read_bytes
        with Explained(path), Held(self._open(path, parts, FILE)) as handle:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
                must_be_file(info, path)
                raise fault_at(
                    Fault.HARD_LINK,
                    path,
                    "has another hard link, which may be outside of the root folder",
                )
            data = b"" if info.st_size > limit else read_at_most(handle, limit, info.st_size)
        if max(info.st_size, len(data)) > limit:
            raise fault_at(Fault.TOO_LARGE, path, f"has more than {limit} bytes")
        return data

    def stat(self, path: str) -> Entry:
        """Return the entry at `path`, links followed: never a symlink.

        `Entry.path` is the canonical path.
        """
        parts = self._parts(path)
        with Explained(path):
            base, name = follow(self._handle, self.denied, path, parts)
            with Held(base):
                info = os.stat(name, dir_fd=base, follow_symlinks=False)
        return entry_of(_joined(parts) or ".", info)

    def exists(self, path: str) -> bool:
        """Return whether `path` is there, links followed (so not for a dangling one).

        Raises as `stat`.
        """
        try:
            self.stat(path)
        except ToolError as error:
            if error.error_type in (Fault.NOT_FOUND, Fault.NOT_A_DIRECTORY):
                return False
            raise
        return True

    def list(self, path: str = ".") -> list[Entry]:
        """Return the entries of a folder, sorted by name, without those that may not be read.

        Links are entries of their own and are not followed. More than MAX_LISTED entries are
        too_large.
        """
        parts = self._parts(path)
        too_large = fault_at(Fault.TOO_LARGE, path, f"holds more than {MAX_LISTED} entries")
        with Explained(path), Held(self._open(path, parts, LISTING)) as handle:
            return entries_of(self.denied, handle, _joined(parts), MAX_LISTED, too_large)

    def walk(
        self, path: str = ".", *, max_entries: int, skip: Collection[str] = ()
    ) -> Iterator[Entry]:
        """Give files, links and other things below a folder, depth first, each folder sorted.

        Folders are gone through, not given, but for those whose path is in `skip`; links are given,
        not followed; `.git` is left out. A
        folder that may not be read, or is deeper than MAX_DEPTH, is given as `other`; what vanishes
        meanwhile is left out. Raises too_large at the folder that would make it more than
        `max_entries` (folders count): never silently cut. Errors, those of `path` too, are raised
        where the next entry is asked for.
        """
        parts = self._parts(path)
        too_large = fault_at(
            Fault.TOO_LARGE,
            path,
            f"has more than {max_entries} entries below it; name a smaller folder",
        )
        with Explained(path), Held(self._open(path, parts, LISTING)) as top:
            yield from below(self.denied, top, _joined(parts), max_entries, too_large, skip)

    def write(self, path: str, data: bytes) -> int:
        """Make or replace a regular file, its folders too; return the number of bytes written.

        The content is complete and flushed under a temporary name (`TEMPORARY`) before it takes the
        file's place in one step; the folder is not flushed: losing power may bring the old file
        back, but never gives half of one. A replaced file's permissions are kept, but not its owner
        and set-id bits. A link is refused, as is anything but a regular file. A file with another
        hard link is replaced, which leaves the other alone.
        """
        *folders, name = self._changeable(path)
        if path.endswith("/"):
            raise fault_at(
                Fault.IS_A_DIRECTORY, path, "ends in '/': that names a folder, not a file"
            )
        if len(data) > self.max_write_bytes:
            raise fault_at(
                Fault.TOO_LARGE,
                path,
                f"was not written: {len(data)} bytes are more than {self.max_write_bytes}",
            )
        with Explained(path), Held(descend(self._handle, folders, PASSAGE, create=True)) as folder:
            _replace(folder, name, path, data)
        return len(data)

    def delete(self, path: str) -> None:
        """Remove a regular file, a link (not its target) or an empty folder."""
        *folders, name = self._changeable(path)
        with Explained(path), Held(descend(self._handle, folders, PASSAGE)) as folder:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                os.rmdir(name, dir_fd=folder)
                return
            if not stat.S_ISLNK(info.st_mode):
                must_be_file(info, path)
            os.unlink(name, dir_fd=folder)

    def _parts(self, path: str) -> tuple[bytes, ...]:
        """Return the components of `path` for reading; none for the root. Raises as `relative`."""
        found = self.relative(path)
        if self._handle < 0:
            raise RuntimeError("this Root is closed")
        return () if found == "." else tuple(os.fsencode(found).split(b"/"))

    def _changeable(self, path: str) -> tuple[bytes, ...]:
        """Return the components of `path`, at least one, for writing; raise ToolError if denied."""
        parts = self._parts(path)
        if not self.writable:
            raise fault_at(
                Fault.READ_ONLY, path, "cannot be changed: this folder is for reading only"
            )
        if not parts:
            raise fault_at(Fault.IS_A_DIRECTORY, path, "is the root folder")
        if self.denied.protects(_joined(parts)):
            raise fault_at(
                Fault.PATH_DENIED, path, "is protected and can never be written, whatever the scope"
            )
        return parts

    def _open(self, path: str, parts: Sequence[bytes], flags: int) -> int:
        """Open `parts` for reading, through links that stay inside. Raises OSError, ToolError."""
        try:
            return open_below(self._handle, parts, flags)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        base, name = follow(self._handle, self.denied, path, parts)
        with Held(base):
            return enter(base, name, flags)


def _joined(parts: Sequence[bytes]) -> str:
    return os.fsdecode(b"/".join(parts))


def _replace(folder: int, name: bytes, path: str, data: bytes) -> None:
    mode = None
    with contextlib.suppress(FileNotFoundError):
        old = os.stat(name, dir_fd=folder, follow_symlinks=False)
        must_be_file(old, path)
        mode = old.st_mode & 0o777

    def dress(handle: int) -> None:
        if mode is not None:
            os.fchmod(handle, mode)

    with temporary(folder, f".placet-{secrets.token_hex(8)}.tmp", data, 0o666, dress) as temp:
        os.rename(temp.name, name, src_dir_fd=folder, dst_dir_fd=folder)
        temp.is_kept = True
