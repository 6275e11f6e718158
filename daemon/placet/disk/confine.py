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
import re
import secrets
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from pathlib import Path

from placet.errors import ToolError, UserError

# Default_Ignorable_Code_Point of the Unicode Character Database (DerivedCoreProperties.txt). HFS+
# ignores some of them in names, so `.g<U+200C>it` was another name of `.git` (CVE-2014-9390).
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def _fold(path: str) -> str:
    """Return `path` as the most forgiving file system would compare it."""
    if path.isascii():
        return path.lower()
    folded = _IGNORABLE.sub("", unicodedata.normalize("NFKC", path).casefold())
    return unicodedata.normalize("NFKC", folded)


@lru_cache
def _disguises(names: tuple[str, ...]) -> str:
    """Return a pattern for any of `names` as one component of a folded path.

    It also matches the 8.3 alias on FAT and NTFS (`git~1`), trailing dots and spaces, which Windows
    drops, and an NTFS stream (`.git:x`). A backslash counts as a separator, as in git's own
    `is_ntfs_dotgit`. A `*` at the end of a name stands for any more characters.
    """
    spellings: list[str] = []
    for name in names:
        folded = _fold(name)
        if folded.endswith("*"):
            spellings.append(rf"{re.escape(folded[:-1])}[^/\\:]*")
        base, dot, extension = folded.lstrip(".").rpartition(".")
        if not dot:
            base, extension = extension, ""
        alias = rf"{re.escape(base[:6])}~[0-9]+" + (
            rf"\.{re.escape(extension[:3])}" if extension else ""
        )
        spellings += [re.escape(folded), alias]
    return rf"(?:{'|'.join(spellings)})[ .]*(?=[:/\\]|\Z)" if spellings else r"(?!)"


@lru_cache
def _anywhere(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(r"(?:\A|[/\\])" + _disguises(names))


@lru_cache
def _at_root(paths: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for a folded path that is one of `paths`, or below one.

    On NTFS, `::$INDEX_ALLOCATION` after a folder's name means that folder.
    """
    below = r"(?::[^/\\]*)?[/\\]+"
    each = (below.join(_disguises((name,)) for name in path.split("/")) for path in paths)
    return re.compile("|".join(each) or r"(?!)")


@dataclass(frozen=True, slots=True)
class Denied:
    """Names that no scope can open.

    `anywhere` are names that may be neither read nor written, as any component of a path. `at_root`
    are paths below the folder `root` that may not be written. An empty `root` is the top. Otherwise
    `root` and its parents may not be replaced either. Comparison ignores case, Unicode form and
    invisible code points. Raises ValueError for a name that is empty or contains a separator.
    """

    anywhere: tuple[str, ...]
    at_root: tuple[str, ...] = ()
    root: str = ""

    def __post_init__(self) -> None:
        for name in (*self.anywhere, *(n for path in self.at_root for n in path.split("/"))):
            if not name or "/" in name:
                raise ValueError(f"not a single name: {name!r}")

    def hides(self, path: str) -> bool:
        """Return whether `path` (relative, canonical) may be neither read nor written."""
        return _anywhere(self.anywhere).search(_fold(path)) is not None

    def protects(self, path: str) -> bool:
        """Return whether `path` (relative, canonical) may not be written."""
        folded = _fold(path)
        if self.root:
            root = _fold(self.root)
            if root == folded or root.startswith(f"{folded}/"):
                return True
            if not folded.startswith(f"{root}/"):
                return self.hides(path)
            folded = folded.removeprefix(f"{root}/")
        return self.hides(path) or bool(_at_root(self.at_root).match(folded))


# Paths that no mission may touch in any repository.
ALWAYS = Denied(anywhere=(".git",))

# Paths that no mission may touch in the vault.
VAULT = Denied(
    anywhere=(".git",),
    at_root=(
        # "Override config folder" lets people rename this folder, often to `.obsidian-phone` and
        # the like.
        ".obsidian*",
        "Inbox",
        "System",
        "SYSTEM_PROMPT.md",
        "Knowledge/Reports",
    ),
)


# Open, read and write below a folder by handles: one name at a time, never through a link.
#
# A path that is checked first and opened later can be swapped in between. A name that is opened
# from its folder's handle with `O_NOFOLLOW` cannot. `Root` and `Vault` use only these functions
# on disk. All of them raise OSError.

# O_NONBLOCK: opening a FIFO must not wait for its other end. O_NOCTTY: a terminal must not become
# this process's controlling terminal.
FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
LISTING = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# For a folder on the way to a path. O_PATH needs only search permission, as resolving a path does.
PASSAGE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC

Name = str | bytes

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# CIFS and some FUSE file systems; EBADF for an O_PATH handle.
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF})


class EntryKind(StrEnum):
    """The type of an entry. `other` is a FIFO, a socket, a device, or an unreadable folder."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


def kind_of(info: os.stat_result) -> EntryKind:
    """Return the type of the entry with this state."""
    if stat.S_ISREG(info.st_mode):
        return EntryKind.FILE
    if stat.S_ISDIR(info.st_mode):
        return EntryKind.DIRECTORY
    return EntryKind.SYMLINK if stat.S_ISLNK(info.st_mode) else EntryKind.OTHER


def enter(folder: int, name: Name, flags: int) -> int:
    """Open one name in a folder; return its handle.

    Raises OSError: ELOOP for a link, EXDEV for anything but a single name (`..`, `a/b`).
    """
    if (name == ".." or "/" in name) if isinstance(name, str) else (name == b".." or b"/" in name):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        # With O_DIRECTORY the system calls a link "not a directory". Report the link instead.
        if target(folder, name) is not None:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


def target(folder: int, name: Name) -> bytes | None:
    """Return the path in the link `name`, or None for anything but a link."""
    try:
        return os.readlink(os.fsencode(name), dir_fd=folder)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def descend(base: int, names: Sequence[Name], flags: int, *, create: bool = False) -> int:
    """Return a new handle of the folder `names` below `base`; without names, of `base` itself.

    With `create`, missing folders are created, and flushed if `flags` allow it.
    """
    here = base
    try:
        for name in names:
            try:
                below = enter(here, name, flags)
            except FileNotFoundError:
                if not create:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=here)
                    sync(here)
                below = enter(here, name, flags)
            if here != base:
                os.close(here)
            here = below
    except BaseException:
        if here != base:
            os.close(here)
        raise
    return os.dup(base) if here == base else here


class Held:
    """Close an open handle at the end of a `with` block."""

    __slots__ = ("handle",)

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __enter__(self) -> int:
        return self.handle

    def __exit__(self, *error: object) -> None:
        os.close(self.handle)


def open_below(base: int, names: Sequence[Name], flags: int) -> int:
    """Return a handle of `names` below `base`, or of `base` for no names, opened with `flags`."""
    if len(names) < 2:
        return enter(base, names[0] if names else ".", flags)
    with Held(descend(base, names[:-1], PASSAGE)) as folder:
        return enter(folder, names[-1], flags)


def read_at_most(handle: int, limit_bytes: int, size: int) -> bytes:
    """Return the content of an open file; of a longer one, its first `limit_bytes + 1` bytes.

    `size` is a guess: the file may grow meanwhile, and files in /proc report 0.
    """
    data = os.read(handle, min(limit_bytes, max(size, 4096)) + 1)
    if len(data) == size:
        return data  # the read asked for one byte more, so this is the end
    while len(data) <= limit_bytes and (piece := os.read(handle, limit_bytes + 1 - len(data))):
        data += piece
    return data


@dataclass(slots=True)
class Temporary:
    """A new file under a temporary name. Set `is_kept` after the name was taken over or renamed."""

    name: str
    handle: int
    is_kept: bool = False


@contextlib.contextmanager
def temporary(
    folder: int, name: str, data: bytes, mode: int, prepare: Callable[[int], object]
) -> Iterator[Temporary]:
    """Make a file `name` with these bytes, flushed; delete it at the end unless it is kept.

    Calls `prepare` with its handle while the file is empty. Raises FileExistsError for a taken
    name.
    """
    temp = Temporary(name, os.open(name, _NEW, mode, dir_fd=folder))
    try:
        prepare(temp.handle)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(temp.handle, rest) :]
        os.fsync(temp.handle)
        yield temp
    finally:
        try:
            if not temp.is_kept:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
        finally:
            os.close(temp.handle)


def sync(folder: int) -> None:
    """Flush a folder's names to disk, if its handle and its file system allow it."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


# Check the text of a path as a model writes it. Nothing here accesses the disk.

# Maximum number of a path's components, after resolving links. Real trees stay below 20. The limit
# makes every walk end.
MAX_DEPTH = 64

# PATH_MAX without its NUL.
MAX_PATH_BYTES = 4095


class Fault(StrEnum):
    """The `error_type` of every ToolError that `Root` raises."""

    PATH_OUTSIDE = "path_outside"
    PATH_DENIED = "path_denied"
    NOT_FOUND = "not_found"
    IS_A_DIRECTORY = "is_a_directory"
    NOT_A_DIRECTORY = "not_a_directory"
    NOT_A_REGULAR_FILE = "not_a_regular_file"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    HARD_LINK = "hard_link"
    PERMISSION_DENIED = "permission_denied"
    READ_ONLY = "read_only"
    DISK_FULL = "disk_full"
    BAD_PATH = "bad_path"
    IO_ERROR = "io_error"


_REFUSALS = frozenset(
    {
        Fault.PATH_OUTSIDE,
        Fault.PATH_DENIED,
        Fault.NOT_A_REGULAR_FILE,
        Fault.HARD_LINK,
        Fault.READ_ONLY,
    }
)

_FAULT_OF_ERRNO: dict[int, tuple[Fault, str]] = {
    errno.ENOENT: (Fault.NOT_FOUND, "does not exist"),
    errno.ENOTDIR: (
        Fault.NOT_A_DIRECTORY,
        "is not a folder, or is below something that is not one",
    ),
    errno.EISDIR: (Fault.IS_A_DIRECTORY, "is a folder"),
    errno.ENOTEMPTY: (
        Fault.IS_A_DIRECTORY,
        "is a folder that is not empty; delete what is in it first",
    ),
    errno.ELOOP: (
        Fault.PATH_DENIED,
        "leads through a symbolic link; name the place that the link points to",
    ),
    errno.EXDEV: (Fault.PATH_OUTSIDE, "leads out of the root folder"),
    errno.ENXIO: (Fault.NOT_A_REGULAR_FILE, "is not a regular file"),
    errno.ENODEV: (Fault.NOT_A_REGULAR_FILE, "is not a regular file"),
    errno.EACCES: (Fault.PERMISSION_DENIED, "may not be accessed: the system denies permission"),
    errno.EPERM: (Fault.PERMISSION_DENIED, "may not be accessed: the system denies permission"),
    errno.EROFS: (Fault.READ_ONLY, "is on a read-only file system"),
    errno.ENOSPC: (Fault.DISK_FULL, "was not written: the disk is full"),
    errno.EDQUOT: (Fault.DISK_FULL, "was not written: the disk quota is used up"),
    errno.EFBIG: (Fault.TOO_LARGE, "was not written: the system allows no file of that size"),
    errno.ENAMETOOLONG: (Fault.BAD_PATH, "has a name that is too long"),
    errno.EILSEQ: (Fault.BAD_PATH, "has a name that this file system cannot hold"),
    errno.EINVAL: (Fault.BAD_PATH, "has a name that this file system cannot hold"),
}


def _shown(path: str) -> str:
    return repr(path if len(path) <= 200 else f"{path[:120]}…{path[-60:]}")


def fault_at(fault: Fault, path: str, sentence: str) -> ToolError:
    """Return the error whose message is `path` and the sentence about it."""
    return ToolError(fault.value, f"{_shown(path)} {sentence}", refused=fault in _REFUSALS)


def _translated(error: OSError, path: str) -> ToolError:
    code = error.errno or 0
    fault, sentence = _FAULT_OF_ERRNO.get(code, (Fault.IO_ERROR, f"failed: {os.strerror(code)}"))
    return fault_at(fault, path, sentence)


class Explained:
    """Turn the system's errors into ToolError about `path` at the end of a `with` block."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise _translated(error, self.path) from error


def canonical(spellings: Sequence[tuple[str, ...]], denied: Denied, path: str) -> str:
    r"""Return the canonical relative path that scopes are matched on; `.` is the root.

    `spellings` are the components of the root's absolute paths. The check is purely lexical. It
    drops `./`, `//` and a trailing `/`, and makes an absolute path below the root relative. It
    decodes and expands nothing: `%2e`, `\\` and `$HOME` are ordinary characters of names. It
    refuses `..` even where that would stay inside, because the meaning of `a/../b` depends on
    whether `a` is a link. Raises ToolError: bad_path, too_deep, path_outside, path_denied.
    """
    if not path:
        raise fault_at(Fault.BAD_PATH, path, "is empty; '.' is the root folder")
    if "\0" in path:
        raise fault_at(Fault.BAD_PATH, path, "has a NUL character in it")
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        raise fault_at(
            Fault.BAD_PATH, path, "has characters that a file name cannot hold"
        ) from None
    if len(raw) > MAX_PATH_BYTES:
        raise fault_at(Fault.BAD_PATH, path, f"is longer than {MAX_PATH_BYTES} bytes")
    # Decode escaped bytes that are valid UTF-8, or they would bypass the denied names.
    parts = tuple(p for p in os.fsdecode(raw).split("/") if p not in ("", "."))
    if ".." in parts:
        raise _climbing(path, parts)
    if path.startswith("/"):
        below = [parts[len(s) :] for s in spellings if parts[: len(s)] == s]
        if not below:
            raise fault_at(
                Fault.PATH_OUTSIDE, path, "is outside of the root folder; use a relative path"
            )
        parts = below[0]
    if parts and parts[0] == "~":
        raise fault_at(Fault.PATH_OUTSIDE, path, "is in a home folder; use a relative path")
    if len(parts) > MAX_DEPTH:
        raise fault_at(Fault.TOO_DEEP, path, f"has more than {MAX_DEPTH} parts")
    found = "/".join(parts) or "."
    if denied.hides(found):
        raise fault_at(Fault.PATH_DENIED, path, "is protected and can be neither read nor written")
    return found


def _climbing(path: str, parts: tuple[str, ...]) -> ToolError:
    clean: list[str] = []
    for part in parts:
        if part != "..":
            clean.append(part)
        elif clean and not path.startswith("/"):
            clean.pop()
        else:
            return fault_at(Fault.PATH_OUTSIDE, path, "leads out of the root folder")
    # `refused`, so that an audit of what an agent tried finds every `..` among the refusals.
    return ToolError(
        Fault.BAD_PATH.value,
        f"{_shown(path)} has '..' in it; write {_shown('/'.join(clean) or '.')}",
        refused=True,
    )


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


def follow(root: int, denied: Denied, path: str, parts: Sequence[bytes]) -> tuple[int, bytes]:
    """Follow links below the folder `root`; return a folder and a name in it.

    That is where `parts` lead. The name was no link when checked. The caller must open it without
    following links. Raises OSError, ToolError.
    """
    folders: list[int] = []
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
            elif (link := target(here, name)) is not None:
                links += 1
                ahead += _link_parts(denied, path, link, links)
                if len(folders) + len(ahead) > MAX_DEPTH:
                    raise fault_at(
                        Fault.TOO_DEEP, path, f"has more than {MAX_DEPTH} parts, links resolved"
                    )
            elif ahead:
                folders.append(enter(here, name, PASSAGE))
            else:
                return (folders.pop() if folders else os.dup(here)), name
        return (folders.pop() if folders else os.dup(root)), b"."
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
        names = {self.path, self.path.resolve(), shown_at or self.path}
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
        """Return the entry at `path` with links followed, so never a symlink.

        `Entry.path` is the canonical path.
        """
        parts = self._parts(path)
        with Explained(path):
            base, name = follow(self._handle, self.denied, path, parts)
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
        with Explained(path), Held(self._open(path, parts, LISTING)) as handle:
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
        with Explained(path), Held(self._open(path, parts, LISTING)) as top:
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
