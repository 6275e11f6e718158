"""The wall around files: every path of a model goes through a handle of one folder, its `Root`.

**Against whom.** A model may be talked into anything by the text that it reads, so any string can
arrive here as a path. The commands that it may run can plant links and odd files in the worktree,
and can go on swapping them while a tool works. And people sync, build and edit in the same tree.

**A path is three things, and each is looked at once.** First a text: `canonical` makes it
relative, with no `..`, no `.` and no doubled `/`, or refuses it; nothing is decoded or expanded.
That text is what the plan's scope is matched on. Then a list of names: `Denied` knows those that no
scope can open (`.git`, and in a vault the daemon's own folders) in every disguise that some file
system takes for them: case, Unicode form, code points that cannot be seen, 8.3 aliases, streams,
trailing dots. Last, something on a disk: `Root` opens it from the root's handle, one name at a
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

`tests/disk/test_confine.py` attacks all of this: thousands of traversals with every operation, and
another process that swaps folders with links. `tests/contract/test_dispatcher.py` does so with the
tools.
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

# Default_Ignorable_Code_Point of the Unicode Character Database (DerivedCoreProperties.txt); HFS+
# ignores some of them in names, which made `.g<U+200C>it` another name of `.git` (CVE-2014-9390).
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

    Besides the name itself: its 8.3 alias on FAT and NTFS (`git~1`), trailing dots and spaces,
    which Windows drops, an NTFS stream (`.git:x`), and a backslash as the separator, as git's own
    `is_ntfs_dotgit` has it. A `*` at the end of a name stands for any more characters.
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

    `::$INDEX_ALLOCATION` behind a folder's name is that folder on NTFS.
    """
    below = r"(?::[^/\\]*)?[/\\]+"
    each = (below.join(_disguises((name,)) for name in path.split("/")) for path in paths)
    return re.compile("|".join(each) or r"(?!)")


@dataclass(frozen=True, slots=True)
class Denied:
    """Names that no scope can open.

    `anywhere`: neither read nor written, as any component of a path. `at_root`: paths below the
    folder `root` that are not written. It is the top where it is empty, and may itself not be
    replaced where it is not. Names are compared without regard to case, Unicode form and code
    points that cannot be seen. Raises ValueError for a name that is empty or has a separator in it.
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
        # Obsidian's settings may be in a folder of another name ("Override config folder"), which
        # people call `.obsidian-phone` and the like.
        ".obsidian*",
        "Inbox",
        "System",
        "SYSTEM_PROMPT.md",
        "Knowledge/Reports",
    ),
)


# Open, read and write below a folder by handles: one name at a time, and never through a link.
#
# A path that is checked first and opened afterwards can be swapped in between; a name that is
# opened in the handle of its folder with `O_NOFOLLOW` cannot. `confine` and `vault` do everything
# on disk by these functions. All of them raise OSError.

# O_NONBLOCK: opening a FIFO must not wait for its other end. O_NOCTTY: no terminal becomes ours.
FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
LISTING = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A folder to go through: O_PATH asks for search permission only, as resolving a path does.
PASSAGE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC

Name = str | bytes

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# CIFS, some FUSE; EBADF: a handle to go through
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

    Raises OSError: ELOOP for a link, EXDEV for what is not a single name (`..`, `a/b`).
    """
    if (name == ".." or "/" in name) if isinstance(name, str) else (name == b".." or b"/" in name):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        # With O_DIRECTORY a link is "not a directory"; say what it is.
        if target(folder, name) is not None:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


def target(folder: int, name: Name) -> bytes | None:
    """Return the path in the link `name`, None for anything but a link."""
    try:
        return os.readlink(os.fsencode(name), dir_fd=folder)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def descend(base: int, names: Sequence[Name], flags: int, *, create: bool = False) -> int:
    """Return a new handle of the folder `names` below `base`, of `base` itself for no names.

    With `create` missing folders are made, and flushed if `flags` allow it.
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
    """An open handle that is closed on the way out of a `with` block."""

    __slots__ = ("handle",)

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __enter__(self) -> int:
        return self.handle

    def __exit__(self, *error: object) -> None:
        os.close(self.handle)


def open_below(base: int, names: Sequence[Name], flags: int) -> int:
    """Return a handle of `names` below `base`, opened with `flags`; of `base` for no names."""
    if len(names) < 2:
        return enter(base, names[0] if names else ".", flags)
    with Held(descend(base, names[:-1], PASSAGE)) as folder:
        return enter(folder, names[-1], flags)


def read_at_most(handle: int, limit_bytes: int, size: int) -> bytes:
    """Return the content of an open file, of a longer one its first `limit_bytes + 1` bytes.

    `size` is a guess: the file may grow meanwhile, and those of /proc say 0.
    """
    data = os.read(handle, min(limit_bytes, max(size, 4096)) + 1)
    if len(data) == size:
        return data  # one byte more was asked for: the end was seen
    while len(data) <= limit_bytes and (piece := os.read(handle, limit_bytes + 1 - len(data))):
        data += piece
    return data


@dataclass(slots=True)
class Temporary:
    """A new file on disk under a temporary name. `is_kept`: the name is not ours any longer."""

    name: str
    handle: int
    is_kept: bool = False


@contextlib.contextmanager
def temporary(
    folder: int, name: str, data: bytes, mode: int, prepare: Callable[[int], object]
) -> Iterator[Temporary]:
    """Make a file `name` with these bytes, flushed; delete it on the way out unless it is kept.

    `prepare` is called with its handle while it is empty. Raises FileExistsError for a taken name.
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


# The text of a path as a model writes it: checked, made canonical, or refused with a reason.
#
# Nothing here looks at a disk: `confine` opens what this gives.

# Maximum of a path's components, links resolved. Real trees stay below 20; a walk must end.
MAX_DEPTH = 64

# Longest path: PATH_MAX without its NUL.
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
    """Return the system's error as one of `Fault` about `path`."""
    code = error.errno or 0
    fault, sentence = _FAULT_OF_ERRNO.get(code, (Fault.IO_ERROR, f"failed: {os.strerror(code)}"))
    return fault_at(fault, path, sentence)


class Explained:
    """Turns the system's errors into ToolError about `path`, on the way out of a `with` block."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise _translated(error, self.path) from error


def canonical(spellings: Sequence[tuple[str, ...]], denied: Denied, path: str) -> str:
    r"""Return `path` as the canonical relative one that scopes are matched on; `.` is the root.

    `spellings` are the components of the root's absolute paths. Purely lexical: `./`, `//` and a
    trailing `/` are dropped; an absolute path below the root is made relative. Nothing is decoded
    or expanded: `%2e`, `\\` and `$HOME` are ordinary characters of names. `..` is refused, even
    where it would stay inside: what `a/../b` names depends on whether `a` is a link. Raises
    ToolError: bad_path, too_deep, path_outside, path_denied.
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
    # Escaped bytes that are UTF-8 after all become what they spell, or would slip past the denied
    # names.
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
    # Refused, not mistaken: whoever audits what an agent tried finds every `..` among the refusals.
    return ToolError(
        Fault.BAD_PATH.value,
        f"{_shown(path)} has '..' in it; write {_shown('/'.join(clean) or '.')}",
        refused=True,
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """Something below the root.

    `path` is relative, `/`-separated, bytes that are not UTF-8 as surrogates. `size` is in bytes, 0
    for anything that is not a file.
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

    Raises OSError, and `too_large` for more than `most` entries.
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
    """Give the entries below the open folder `top`, whose path is `inside`, but the folders.

    Nothing below the folders `skip`. Raises as `entries_of`.
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
                continue  # it was a folder a moment ago, and is gone or something else now
            raise
        left -= len(found)
        ahead += reversed(found)


# Maximum of links followed on one path: the kernel's own limit (path_resolution(7)).
MAX_LINKS = 40


def follow(root: int, denied: Denied, path: str, parts: Sequence[bytes]) -> tuple[int, bytes]:
    """Follow links below the folder `root`; return where `parts` leads: a folder, and a name in it.

    The name was no link when it was looked at; the caller must use it without following. Raises
    OSError, ToolError.
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
        """Return the canonical relative path, as `canonical` does.

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
