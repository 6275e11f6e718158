"""Confine every path that a model names to one folder, its `Root`.

**Threats.** Text that the model reads may persuade it of anything, so any string can arrive here as
a path. The commands that it may run can create links and odd files in the worktree. They can keep
swapping them while a tool works. People also sync, build and edit in the same tree.

**Each path is checked three times.**

1. As text: `canonical` makes it relative, without `..`, `.` or a doubled `/`, or refuses it. It
   decodes and expands nothing. The plan's scope is matched on this text.
2. As a list of names: `Denied` refuses those that no scope can open. These are `.git`, and in a
   vault the daemon's own folders. It knows every disguise that some file system accepts: case,
   Unicode form, invisible code points, 8.3 aliases, streams, trailing dots.
3. On disk: `Root` opens it from the root's handle, one name at a time with `O_NOFOLLOW`. It never
   checks a name and then opens it by that name. Check-then-open lost 22 to 25 % of the races
   against a program that swaps links. This way lost none of 300,000.

**Links and special files.**

- Reads (`read`, `stat`, `exists`, `list`, `walk`) follow a symbolic link if its target is relative
  and stays below the root at every step. `follow` resolves links itself, handle by handle, so it
  checks every name on the way, `.git` too. An absolute target counts as outside even if it names
  the root.
- Writes (`write`, `delete`) follow no link in any component. So the path that `relative` returns is
  the path that changes, and a scope can be matched on it.
- A file with a second hard link is not read, because the other name may be outside. Writing one is
  safe: a write replaces the file, and the other name keeps its content.
- FIFOs, sockets and devices are refused without waiting for their other end.
- Nothing is truncated silently. A file, folder or tree over its limit is an error.

**Errors.** Every operation raises only ToolError, with an `error_type` from `Fault`. The message
names the path as given, and nothing outside the root.

**Limits.** If somebody moves an open folder out of the root, its handle still works. Whoever can do
that needs no help from here. Commands do not use this module: the sandbox (`sandbox`) confines
them. Their changes are matched on the scope again before the commit.

`tests/disk/test_confine.py` attacks all of this: thousands of traversals with every operation, and
another process that swaps folders with links. `tests/contract/test_dispatcher.py` does the same
with the tools.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from placet.disk.handles import (
    FILE,
    LISTING,
    PASSAGE,
    EntryKind,
    Held,
    descend,
    enter,
    kind_of,
    open_below,
    read_at_most,
    target,
    temporary,
)
from placet.disk.path_text import ALWAYS, MAX_DEPTH, Denied, Explained, Fault, canonical, fault_at
from placet.disk.real_path import real_path
from placet.errors import ToolError, UserError


@dataclass(frozen=True, slots=True)
class Entry:
    """Something below the root.

    `path` is relative and `/`-separated, with surrogates for bytes that are not UTF-8. `size` is in
    bytes, 0 for anything but a file.
    """

    path: str
    kind: EntryKind
    size: int


def entry_of(path: str, info: os.stat_result) -> Entry:
    """Return the entry with this path and state."""
    kind = kind_of(info)
    return Entry(path, kind, info.st_size if kind is EntryKind.FILE else 0)


def must_be_file(info: os.stat_result, path: str) -> None:
    """Raise ToolError for anything but a regular file."""
    match kind_of(info):
        case EntryKind.FILE:
            return
        case EntryKind.DIRECTORY:
            raise fault_at(Fault.IS_A_DIRECTORY, path, "is a folder")
        case EntryKind.SYMLINK:
            raise fault_at(
                Fault.PATH_DENIED, path, "is a symbolic link; name the file that it points to"
            )
        case EntryKind.OTHER:
            raise fault_at(
                Fault.NOT_A_REGULAR_FILE, path, "is a FIFO, a socket or a device, not a file"
            )


def entries_of(
    denied: Denied, handle: int, inside: str, most: int, too_large: ToolError
) -> list[Entry]:
    """Return the entries of the open folder `inside` ('' for the root), sorted.

    Raises OSError, or `too_large` for more than `most` entries.
    """
    found: list[Entry] = []
    with os.scandir(handle) as entries:
        for entry in entries:
            if denied.hides(entry.name):
                continue
            if len(found) == most:
                raise too_large
            path = f"{inside}/{entry.name}" if inside else entry.name
            with contextlib.suppress(FileNotFoundError):  # deleted since the listing began
                found.append(entry_of(path, entry.stat(follow_symlinks=False)))
    return sorted(found, key=lambda entry: entry.path)


def below(
    denied: Denied,
    top: int,
    inside: str,
    most: int,
    too_large: ToolError,
    skip: Collection[str] = (),
) -> Iterator[Entry]:
    """Yield the entries below the open folder `top`, whose path is `inside`, except folders.

    Leaves out everything below the folders `skip`. Raises as `entries_of`.
    """
    start = len(inside) + 1 if inside else 0
    ahead = [*reversed(entries_of(denied, top, inside, most, too_large))]
    left = most - len(ahead)
    while ahead:
        entry = ahead.pop()
        if entry.kind is not EntryKind.DIRECTORY:
            yield entry
            continue
        if entry.path in skip:
            continue
        shut = Entry(entry.path, EntryKind.OTHER, 0)
        if entry.path.count("/") >= MAX_DEPTH - 1:
            yield shut
            continue
        parts = os.fsencode(entry.path[start:]).split(b"/")
        try:
            with Held(open_below(top, parts, LISTING)) as handle:
                found = entries_of(denied, handle, entry.path, left, too_large)
        except PermissionError:
            yield shut
            continue
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                continue  # deleted or replaced since the listing
            raise
        left -= len(found)
        ahead += reversed(found)


# The kernel's own limit of links on one path (path_resolution(7)).
MAX_LINKS = 40


def follow(
    root: int, denied: Denied, path: str, parts: Sequence[bytes]
) -> tuple[int, bytes, Sequence[bytes]]:
    """Follow links below the folder `root`; return a folder, a name in it, and its whole path.

    That is where `parts` lead. The name was not a link when checked. The caller must open it
    without following links. Raises OSError, ToolError.
    """
    folders: list[int] = []
    names: list[bytes] = []
    ahead = list(reversed(parts))
    links = 0
    try:
        while ahead:
            here = folders[-1] if folders else root
            name = ahead.pop()
            if name == b"..":
                if not folders:
                    raise fault_at(
                        Fault.PATH_OUTSIDE, path, "leads out of the root folder by a link"
                    )
                os.close(folders.pop())
                names.pop()
            elif (link := target(here, name)) is not None:
                links += 1
                ahead += _link_parts(denied, path, link, links)
                if len(folders) + len(ahead) > MAX_DEPTH:
                    raise fault_at(
                        Fault.TOO_DEEP, path, f"has more than {MAX_DEPTH} parts, links resolved"
                    )
            elif ahead:
                folders.append(enter(here, name, PASSAGE))
                names.append(name)
            else:
                return (folders.pop() if folders else os.dup(here)), name, [*names, name]
        return (folders.pop() if folders else os.dup(root)), b".", names
    finally:
        for handle in folders:
            os.close(handle)


def _link_parts(denied: Denied, path: str, link: bytes, links: int) -> Sequence[bytes]:
    """Return the components of a link's target, the last one first. Raises ToolError."""
    if links > MAX_LINKS:
        raise fault_at(Fault.BAD_PATH, path, f"leads through more than {MAX_LINKS} symbolic links")
    if link.startswith(b"/"):
        raise fault_at(
            Fault.PATH_OUTSIDE,
            path,
            "leads to an absolute path by a link; only relative links work",
        )
    if denied.hides(os.fsdecode(link)):
        raise fault_at(Fault.PATH_DENIED, path, "leads to something protected by a link")
    return [part for part in reversed(link.split(b"/")) if part not in (b"", b".")]


# Default limit of `read` and `write`. More would not fit into a conversation.
MAX_BYTES = 2 * 1024 * 1024

MAX_LISTED = 10_000

# Glob of the temporary names that `write` uses. A `kill -9` can leave such a file.
TEMPORARY = ".placet-*.tmp"


class Root(contextlib.AbstractContextManager["Root"]):
    """One folder and the file operations below it.

    A context manager, because it holds a handle of the folder. Every path is a str as a model
    writes it (see `relative`). It is thread-safe.
    """

    def __init__(
        self,
        path: Path,
        *,
        writable: bool,
        denied: Denied = ALWAYS,
        shown_at: Path | None = None,
        max_read_bytes: int = MAX_BYTES,
        max_write_bytes: int = MAX_BYTES,
    ) -> None:
        """Open the folder `path`. Links on the way to it are followed: the caller is trusted.

        `shown_at` is another absolute path that models may write for it: commands see it there.
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
        names = {self.path, real_path(self.path), shown_at or self.path}
        spellings = tuple(name.parts[1:] for name in names)
        # Cached, because most paths come twice: to match the scope and to open the file.
        self._canonical = lru_cache(maxsize=64)(partial(canonical, spellings, denied))

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the folder's handle.

        Closing twice is fine. Any later operation is a bug (RuntimeError).
        """
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def relative(self, path: str) -> str:
        """Return the canonical relative path, as `canonical` does.

        `.` is the root itself. Raises ToolError: bad_path, too_deep, path_outside, path_denied.
        """
        return self._canonical(path)

    def read(self, path: str) -> bytes:
        """Return the whole content of a regular file, at most `max_read_bytes`.

        A larger file raises too_large and is never truncated. A file with a second hard link is
        refused, because the other one may be outside.
        """
        return self.read_through(path)[0]

    def read_through(self, path: str) -> tuple[bytes, str]:
        """Return the content as `read` does, and the file's path after all links.

        The name at the end of that path may be one of a file with secrets. Raises as `read` does.
        """
        parts = self._parts(path)
        limit = self.max_read_bytes
        with Explained(path):
            opened, found = self._open(path, parts, FILE)
        with Explained(path), Held(opened) as handle:
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
        return data, _joined(found)

    def stat(self, path: str) -> Entry:
        """Return the entry at `path` with links followed, so never a symlink.

        `Entry.path` is the canonical path.
        """
        parts = self._parts(path)
        with Explained(path):
            base, name, _ = follow(self._handle, self.denied, path, parts)
            with Held(base):
                info = os.stat(name, dir_fd=base, follow_symlinks=False)
        return entry_of(_joined(parts) or ".", info)

    def exists(self, path: str) -> bool:
        """Return whether `path` exists with links followed, so False for a dangling link.

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

        Links are entries of their own and are not followed. More than MAX_LISTED entries raise
        too_large.
        """
        parts = self._parts(path)
        too_large = fault_at(Fault.TOO_LARGE, path, f"holds more than {MAX_LISTED} entries")
        with Explained(path), Held(self._open(path, parts, LISTING)[0]) as handle:
            return entries_of(self.denied, handle, _joined(parts), MAX_LISTED, too_large)

    def walk(
        self, path: str = ".", *, max_entries: int, skip: Collection[str] = ()
    ) -> Iterator[Entry]:
        """Yield files, links and other things below a folder, depth first, each folder sorted.

        Folders are entered, not yielded, except those whose path is in `skip`. Links are yielded,
        not followed. `.git` is left out. A folder that may not be read, or is deeper than
        MAX_DEPTH, is yielded as `other`. Anything deleted meanwhile is left out. Raises too_large
        at the folder that would exceed `max_entries` (folders count). All errors, also those about
        `path`, are raised when the next entry is requested.
        """
        parts = self._parts(path)
        too_large = fault_at(
            Fault.TOO_LARGE,
            path,
            f"has more than {max_entries} entries below it; name a smaller folder",
        )
        with Explained(path), Held(self._open(path, parts, LISTING)[0]) as top:
            yield from below(self.denied, top, _joined(parts), max_entries, too_large, skip)

    def write(self, path: str, data: bytes) -> int:
        """Create or replace a regular file and missing folders; return the number of bytes written.

        The content is complete and flushed under a temporary name (`TEMPORARY`) before it replaces
        the file in one step. The folder is not flushed: a power cut may bring the old file back,
        but never half a file. A replaced file keeps its permissions, but not its owner and set-id
        bits. Anything but a regular file is refused, a link too. Replacing a file with another hard
        link leaves the other alone.
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

    def delete(self, path: str, *, folders: bool = True) -> None:
        """Remove a regular file or a link (not its target); with `folders` also an empty folder."""
        *above, name = self._changeable(path)
        with Explained(path), Held(descend(self._handle, above, PASSAGE)) as folder:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if folders and stat.S_ISDIR(info.st_mode):
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

    def _open(self, path: str, parts: Sequence[bytes], flags: int) -> tuple[int, Sequence[bytes]]:
        """Open `parts` for reading, through links that stay inside. Raises OSError, ToolError.

        Return also the path that they lead to.
        """
        try:
            return open_below(self._handle, parts, flags), parts
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        base, name, found = follow(self._handle, self.denied, path, parts)
        with Held(base):
            return enter(base, name, flags), found


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
