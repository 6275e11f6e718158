"""The wall around files: every path that a model names goes through a handle of one folder, its `Root`.

Nothing here checks a name and then opens it by that name. On Linux the kernel resolves the whole path below
the root's handle (openat2(2)); elsewhere, and where a container's seccomp refuses that call, the path is
walked one component at a time from handle to handle with `O_NOFOLLOW`. Both ways give the same answers.

What a path may lead through:

- Reads (`read`, `stat`, `exists`, `list`, `walk`) follow a symbolic link whose target is relative and stays
  below the root at every step; links are resolved by hand, handle by handle, so that every name on the way is
  looked at.
- Writes (`write`, `mkdir`, `rename`, `delete`) go through no link at all, in no component. So the path that
  `relative` gives is the path that changes, and matching a scope on it means something.
- `.git`, in every disguise that some file system takes for it, can be neither read nor written.

A folder that somebody moves out of the root while it is held open stays held: no handle can prevent it, and
whoever can do that needs no help from here.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from pathlib import Path
from types import TracebackType
from typing import Self

from placet.core.errors import ToolError, UserError

MAX_READ_BYTES = 2 * 1024 * 1024
"""Largest file that `read` gives where the caller sets no other cap.

More would not fit a conversation.
"""

MAX_WRITE_BYTES = 2 * 1024 * 1024
"""Largest file that `write` makes where the caller sets no other cap."""

MAX_LISTED = 10_000
"""Most entries that `list` gives of one folder."""

MAX_DEPTH = 64
"""Most components of a path, links resolved. Real trees stay below 20; a walk must end."""

MAX_LINKS = 40
"""Most links followed on one path: the kernel's own limit (path_resolution(7))."""

MAX_PATH_BYTES = 4095
"""Longest path: PATH_MAX without its NUL, so that both methods refuse the same paths."""

TEMPORARY = ".placet-*.tmp"
"""Glob of the names that `write` uses until the content is complete.

Kill -9 can leave one behind.
"""

# somebody who keeps renaming, or taking our temporary names, must not keep us for ever
_MAX_TRIES = 100


class Fault(StrEnum):
    """Why a file operation was not done: the `error_type` of every ToolError raised here."""

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
    ALREADY_EXISTS = "already_exists"
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
        "is not a folder, or lies below something that is not one",
    ),
    errno.EISDIR: (Fault.IS_A_DIRECTORY, "is a folder"),
    errno.ENOTEMPTY: (
        Fault.IS_A_DIRECTORY,
        "is a folder that is not empty; delete what is in it first",
    ),
    errno.EEXIST: (Fault.ALREADY_EXISTS, "exists already"),
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


class Method(StrEnum):
    """How a path is resolved below the root."""

    OPENAT2 = "openat2"  # by the kernel, in one call; Linux 5.6 and later
    WALK = "walk"  # from handle to handle with O_NOFOLLOW; everywhere


class EntryKind(StrEnum):
    """What an entry is. `other` is a FIFO, a socket, a device, or a folder that may not be read."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something below the root.

    `path` is relative, `/`-separated, bytes that are not UTF-8 as surrogates.

    `size` is in bytes, 0 for anything that is not a file.
    """

    path: str
    kind: EntryKind
    size: int


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
    `is_ntfs_dotgit` has it.
    """
    spellings: list[str] = []
    for name in names:
        folded = _fold(name)
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


@dataclass(frozen=True, slots=True)
class Denied:
    """Names that no scope can open.

    `anywhere`: neither read nor written, as any component of a path. `at_root`: not written, as the
    first component below the folder `root`, which is the top where it is empty and may itself not
    be replaced where it is not. Names are compared without regard to case, Unicode form and code
    points that cannot be seen. Raises ValueError for a name that is empty or has a separator in it.
    """

    anywhere: tuple[str, ...]
    at_root: tuple[str, ...] = ()
    root: str = ""

    def __post_init__(self) -> None:
        for name in (*self.anywhere, *self.at_root):
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
        return self.hides(path) or bool(re.match(_disguises(self.at_root), folded))


ALWAYS = Denied(anywhere=(".git",))
"""What no mission may touch in any repository."""

VAULT = Denied(anywhere=(".git",), at_root=(".obsidian", "Inbox", "System", "SYSTEM_PROMPT.md"))
"""What no mission may touch where the repository is the vault."""


# The types of openat2(2), from the kernel's include/uapi/linux/openat2.h; the number is the same on
# every architecture that Python runs placet on (asm-generic/unistd.h; Alpha alone differs).
_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


# O_NONBLOCK: opening a FIFO must not wait for its other end. O_NOCTTY: nor a terminal become ours.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LISTING = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A handle to go through: O_PATH asks for search permission only, as resolving the whole path would.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_numbers = itertools.count()


@lru_cache
def _how(flags: int) -> _OpenHow:
    return _OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS)


@lru_cache
def _syscall() -> Callable[[int, int, bytes, _OpenHow, int], int]:
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.POINTER(_OpenHow),
        ctypes.c_size_t,
    )
    syscall.restype = ctypes.c_long
    return syscall


def _openat2(base: int, path: bytes, flags: int) -> int:
    """Open `path` below the handle `base`, through no link.

    Raises OSError, ELOOP where there is one.
    """
    call, how, size = _syscall(), _how(flags), ctypes.sizeof(_OpenHow)
    code = 0
    for _ in range(_MAX_TRIES):
        handle = call(_SYS_OPENAT2, base, path, how, size)
        if handle >= 0:
            return handle
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code))


def best_method() -> Method:
    """Return openat2 where this process can call it, else the walk.

    It is tried: a kernel's version would not tell, as seccomp profiles of containers refuse the
    call with ENOSYS or EPERM on kernels that have it.
    """
    if sys.platform != "linux":
        return Method.WALK
    base = os.open("/", _FOLDER)
    try:
        os.close(_openat2(base, b".", _FOLDER))
    except OSError:
        return Method.WALK
    finally:
        os.close(base)
    return Method.OPENAT2


def _enter(base: int, name: bytes, flags: int) -> int:
    """Open one name in the folder `base`, not through a link. Raises OSError, ELOOP for a link."""
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=base)
    except NotADirectoryError:
        # With O_DIRECTORY a link is "not a directory"; say what it is.
        if _target(base, name) is not None:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


def _target(base: int, name: bytes) -> bytes | None:
    """Return where the link `name` in the folder `base` points, None for what is no link.

    Raises OSError.
    """
    try:
        return os.readlink(name, dir_fd=base)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def _walk_open(base: int, parts: Sequence[bytes], flags: int) -> int:
    """Open `parts` below the handle `base`, through no link.

    Raises OSError, ELOOP where there is one.
    """
    here = base
    try:
        for name in parts[:-1]:
            below = _enter(here, name, _FOLDER)
            if here != base:
                os.close(here)
            here = below
        return _enter(here, parts[-1] if parts else b".", flags)
    finally:
        if here != base:
            os.close(here)


def _shown(path: str) -> str:
    """Return `path` as a message shows it: escaped, so that it is one printable line, and not endless."""
    return repr(path if len(path) <= 200 else f"{path[:120]}…{path[-60:]}")


def _fault(fault: Fault, path: str, sentence: str) -> ToolError:
    return ToolError(fault.value, f"{_shown(path)} {sentence}", refused=fault in _REFUSALS)


def _translated(error: OSError, path: str) -> ToolError:
    code = error.errno or 0
    fault, sentence = _FAULT_OF_ERRNO.get(code, (Fault.IO_ERROR, f"failed: {os.strerror(code)}"))
    return _fault(fault, path, sentence)


def _kind(mode: int) -> EntryKind:
    if stat.S_ISREG(mode):
        return EntryKind.FILE
    if stat.S_ISDIR(mode):
        return EntryKind.DIRECTORY
    return EntryKind.SYMLINK if stat.S_ISLNK(mode) else EntryKind.OTHER


def _entry(path: str, info: os.stat_result) -> Entry:
    kind = _kind(info.st_mode)
    return Entry(path, kind, info.st_size if kind is EntryKind.FILE else 0)


def _canonical(spellings: Sequence[tuple[str, ...]], denied: Denied, path: str) -> str:
    """Return what `Root.relative` does, for a root that is spelt so.

    Nothing but the text of `path` counts.
    """
    if not path:
        raise _fault(Fault.BAD_PATH, path, "is empty; '.' is the root folder")
    if "\0" in path:
        raise _fault(Fault.BAD_PATH, path, "has a NUL character in it")
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        raise _fault(Fault.BAD_PATH, path, "has characters that a file name cannot hold") from None
    if len(raw) > MAX_PATH_BYTES:
        raise _fault(Fault.BAD_PATH, path, f"is longer than {MAX_PATH_BYTES} bytes")
    # Escaped bytes that are UTF-8 after all become what they spell, or would slip past the denied
    # names.
    parts = tuple(p for p in os.fsdecode(raw).split("/") if p not in ("", "."))
    if ".." in parts:
        raise _climbing(path, parts)
    if path.startswith("/"):
        below = [parts[len(s) :] for s in spellings if parts[: len(s)] == s]
        if not below:
            raise _fault(
                Fault.PATH_OUTSIDE, path, "is outside of the root folder; use a relative path"
            )
        parts = below[0]
    if parts and parts[0] == "~":
        raise _fault(Fault.PATH_OUTSIDE, path, "is in a home folder; use a relative path")
    if len(parts) > MAX_DEPTH:
        raise _fault(Fault.TOO_DEEP, path, f"has more than {MAX_DEPTH} parts")
    canonical = "/".join(parts) or "."
    if denied.hides(canonical):
        raise _fault(Fault.PATH_DENIED, path, "is protected and can be neither read nor written")
    return canonical


def _climbing(path: str, parts: tuple[str, ...]) -> ToolError:
    """Return the error for a path with `..` in it."""
    clean: list[str] = []
    for part in parts:
        if part != "..":
            clean.append(part)
        elif clean and not path.startswith("/"):
            clean.pop()
        else:
            return _fault(Fault.PATH_OUTSIDE, path, "leads out of the root folder")
    # Refused, not mistaken: whoever audits what an agent tried finds every `..` among the refusals.
    return ToolError(
        Fault.BAD_PATH.value,
        f"{_shown(path)} has '..' in it; write {_shown('/'.join(clean) or '.')}",
        refused=True,
    )


def is_there(find: Callable[[str], Entry], path: str) -> bool:
    """Return whether `find` finds `path`.

    What it raises is raised, unless it says that nothing is there.
    """
    try:
        find(path)
    except ToolError as error:
        if error.error_type in (Fault.NOT_FOUND, Fault.NOT_A_DIRECTORY):
            return False
        raise
    return True


class Root:
    """One folder and the file operations below it.

    A context manager: it holds a handle of the folder.

    Every path is a str as a model writes it (see `relative`). Every operation raises ToolError, its
    `error_type` one of `Fault`, and nothing else; the message names the path as it was given and
    nothing outside of the root. Safe to use from several threads.
    """

    def __init__(
        self,
        path: Path,
        *,
        writable: bool,
        denied: Denied = ALWAYS,
        method: Method | None = None,
        max_read_bytes: int = MAX_READ_BYTES,
        max_write_bytes: int = MAX_WRITE_BYTES,
    ) -> None:
        """Open the folder `path`; links on the way to it are the caller's word and are followed.

        `method` None takes `best_method()`. Raises UserError where the folder cannot be opened.
        """
        try:
            self._handle = os.open(path, _FOLDER)
        except OSError as error:
            raise UserError(
                f"The folder {path} cannot be opened: {error.strerror}.",
                "Put it back or correct its path, then try again.",
            ) from error
        self.path = path.absolute()
        self.writable = writable
        self.denied = denied
        self.method = best_method() if method is None else method
        self.max_read_bytes = max_read_bytes
        self.max_write_bytes = max_write_bytes
        spellings = tuple({self.path.parts[1:], self.path.resolve().parts[1:]})
        # Most paths come twice, to be matched on a scope and to be opened; what a text means never
        # changes.
        self._canonical = lru_cache(maxsize=64)(partial(_canonical, spellings, denied))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder.

        Closing twice is fine; any operation after it is a bug (RuntimeError).
        """
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def relative(self, path: str) -> str:
        r"""Return `path` as the canonical relative one that scopes are matched on.

        `.` is the root itself.

        Purely lexical: `./`, `//` and a trailing `/` are dropped; an absolute path below the root
        is made relative. Nothing is decoded or expanded: `%2e`, `\` and `$HOME` are ordinary
        characters of names. `..` is refused, even where it would stay inside: what `a/../b` names
        depends on whether `a` is a link. Raises ToolError: bad_path, too_deep, path_outside,
        path_denied.
        """
        return self._canonical(path)

    def protects(self, path: str) -> bool:
        """Return whether `path` (as `relative` gives it) can never be written here, whatever a scope says."""
        return self.denied.protects(path)

    def read(self, path: str, *, limit_bytes: int | None = None) -> bytes:
        """Return the whole content of a regular file.

        `limit_bytes` lowers the cap `max_read_bytes` for this call; a larger file is too_large,
        never cut. A file with a second hard link is refused: nothing tells whether that one is
        outside.
        """
        cap = self.max_read_bytes if limit_bytes is None else min(limit_bytes, self.max_read_bytes)
        parts = self._parts(path)
        try:
            handle = self._open(path, parts, _FILE)
            try:
                return _content(handle, path, cap)
            finally:
                os.close(handle)
        except OSError as error:
            raise _translated(error, path) from error

    def stat(self, path: str) -> Entry:
        """Return what `path` is, links followed: never a symlink.

        `Entry.path` is the canonical path.
        """
        parts = self._parts(path)
        try:
            base, name = self._follow(path, parts)
            try:
                info = os.stat(name, dir_fd=base, follow_symlinks=False)
            finally:
                os.close(base)
        except OSError as error:
            raise _translated(error, path) from error
        return _entry(os.fsdecode(b"/".join(parts) or b"."), info)

    def exists(self, path: str) -> bool:
        """Return whether `path` is there, links followed (so not for a dangling one).

        Raises as `stat`.
        """
        return is_there(self.stat, path)

    def list(self, path: str = ".") -> list[Entry]:
        """Return what is in a folder, sorted by name, without what may not be read (`.git`).

        Links are entries of their own and are not followed. More than MAX_LISTED entries are
        too_large.
        """
        parts = self._parts(path)
        try:
            handle = self._open(path, parts, _LISTING)
            try:
                too_large = _fault(Fault.TOO_LARGE, path, f"holds more than {MAX_LISTED} entries")
                return list(
                    self._entries(handle, os.fsdecode(b"/".join(parts)), MAX_LISTED, too_large)
                )
            finally:
                os.close(handle)
        except OSError as error:
            raise _translated(error, path) from error

    def walk(self, path: str = ".", *, max_entries: int) -> Iterator[Entry]:
        """Give the files, links and other things below a folder, depth first, each folder sorted by name.

        Folders are gone through, not given; links are given, not followed; `.git` is left out. A folder
        that may not be read, or is deeper than MAX_DEPTH, is given as `other`; what vanishes meanwhile is
        left out. Raises too_large at the folder that would make it more than `max_entries` (folders count):
        never silently cut. Errors, those of `path` too, are raised where the next entry is asked for.
        """
        parts = self._parts(path)
        try:
            top = self._open(path, parts, _LISTING)
        except OSError as error:
            raise _translated(error, path) from error
        try:
            too_large = _fault(
                Fault.TOO_LARGE,
                path,
                f"has more than {max_entries} entries below it; name a smaller folder",
            )
            yield from self._below(top, os.fsdecode(b"/".join(parts)), max_entries, too_large)
        except OSError as error:
            raise _translated(error, path) from error
        finally:
            os.close(top)

    def write(self, path: str, data: bytes) -> int:
        """Make or replace a regular file, its folders too; return the number of bytes written.

        The content is complete and flushed under a temporary name (`TEMPORARY`) before it takes the
        file's place in one step. A replaced file's permissions are kept, but not its owner and
        set-id bits. A link is refused, as is anything but a regular file. A file with another hard
        link is replaced, which leaves the other alone.
        """
        parts = self._changeable(path)
        if path.endswith("/"):
            raise _fault(Fault.IS_A_DIRECTORY, path, "ends in '/': that names a folder, not a file")
        if len(data) > self.max_write_bytes:
            raise _fault(
                Fault.TOO_LARGE,
                path,
                f"was not written: {len(data)} bytes are more than {self.max_write_bytes}",
            )
        try:
            folder = self._make(parts[:-1])
            try:
                old = _looked_at(folder, parts[-1])
                if old is not None:
                    _must_be_file(old, path)
                _replace(folder, parts[-1], data, None if old is None else old.st_mode & 0o777)
            finally:
                os.close(folder)
        except OSError as error:
            raise _translated(error, path) from error
        return len(data)

    def mkdir(self, path: str) -> None:
        """Make a folder and those above it; one that is there already is fine."""
        parts = self._changeable(path)
        try:
            os.close(self._make(parts))
        except OSError as error:
            raise _translated(error, path) from error

    def rename(self, src: str, dst: str) -> None:
        """Move a regular file, making the folders that `dst` needs.

        Nothing is replaced: already_exists.

        Folders are refused: a scope that allows two names says nothing about all that lies below
        them.
        """
        source, target = self._changeable(src), self._changeable(dst)
        try:
            from_folder = self._plain(source[:-1], _FOLDER)
        except OSError as error:
            raise _translated(error, src) from error
        try:
            found = _looked_at(from_folder, source[-1])
            if found is None:
                raise _fault(Fault.NOT_FOUND, src, "does not exist")
            _must_be_file(found, src)
            to_folder = self._make(target[:-1])
            try:
                if _looked_at(to_folder, target[-1]) is not None:
                    raise _fault(Fault.ALREADY_EXISTS, dst, "exists already")
                os.rename(source[-1], target[-1], src_dir_fd=from_folder, dst_dir_fd=to_folder)
            finally:
                os.close(to_folder)
        except OSError as error:
            raise _translated(error, dst) from error
        finally:
            os.close(from_folder)

    def delete(self, path: str) -> None:
        """Remove a regular file, a link (not what it points to) or an empty folder."""
        parts = self._changeable(path)
        try:
            folder = self._plain(parts[:-1], _FOLDER)
            try:
                found = _looked_at(folder, parts[-1])
                if found is None:
                    raise _fault(Fault.NOT_FOUND, path, "does not exist")
                if stat.S_ISDIR(found.st_mode):
                    os.rmdir(parts[-1], dir_fd=folder)
                else:
                    if not stat.S_ISLNK(found.st_mode):
                        _must_be_file(found, path)
                    os.unlink(parts[-1], dir_fd=folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise _translated(error, path) from error

    def _parts(self, path: str) -> tuple[bytes, ...]:
        """Return the components of `path` for reading; none for the root. Raises as `relative`."""
        canonical = self.relative(path)
        if self._handle < 0:
            raise RuntimeError("this Root is closed")
        return () if canonical == "." else tuple(os.fsencode(canonical).split(b"/"))

    def _changeable(self, path: str) -> tuple[bytes, ...]:
        """Return the components of `path`, at least one, for writing.

        Raises ToolError if denied.
        """
        parts = self._parts(path)
        if not self.writable:
            raise _fault(
                Fault.READ_ONLY, path, "cannot be changed: this folder is for reading only"
            )
        if not parts:
            raise _fault(Fault.IS_A_DIRECTORY, path, "is the root folder")
        if self.denied.protects(os.fsdecode(b"/".join(parts))):
            raise _fault(
                Fault.PATH_DENIED, path, "is protected and can never be written, whatever the scope"
            )
        return parts

    def _plain(self, parts: Sequence[bytes], flags: int, base: int | None = None) -> int:
        """Open `parts` below the root (or `base`), through no link.

        Raises OSError, ELOOP at a link.
        """
        start = self._handle if base is None else base
        if self.method is Method.OPENAT2:
            return _openat2(start, b"/".join(parts) or b".", flags)
        return _walk_open(start, parts, flags)

    def _open(self, path: str, parts: Sequence[bytes], flags: int) -> int:
        """Open `parts` for reading, through links that stay inside. Raises OSError, ToolError."""
        try:
            return self._plain(parts, flags)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        base, name = self._follow(path, parts)
        try:
            return os.open(name, flags | os.O_NOFOLLOW, dir_fd=base)
        finally:
            os.close(base)

    def _follow(self, path: str, parts: Sequence[bytes]) -> tuple[int, bytes]:
        """Return a handle of the folder that holds what `parts` leads to, links followed, and its name there.

        The name was no link when it was looked at; the caller must use it without following. An absolute
        target is outside even where it names the root, as for the kernel (RESOLVE_BENEATH). Raises OSError,
        ToolError.
        """
        folders: list[int] = []
        ahead = list(reversed(parts))
        links = 0
        try:
            while ahead:
                here = folders[-1] if folders else self._handle
                name = ahead.pop()
                if name == b"..":
                    if not folders:
                        raise _fault(
                            Fault.PATH_OUTSIDE, path, "leads out of the root folder by a link"
                        )
                    os.close(folders.pop())
                    continue
                target = _target(here, name)
                if target is None and ahead:
                    folders.append(_enter(here, name, _FOLDER))
                    continue
                if target is None:
                    return (folders.pop() if folders else os.dup(here)), name
                links += 1
                if links > MAX_LINKS:
                    raise _fault(
                        Fault.BAD_PATH, path, f"leads through more than {MAX_LINKS} symbolic links"
                    )
                if target.startswith(b"/"):
                    raise _fault(
                        Fault.PATH_OUTSIDE,
                        path,
                        "leads to an absolute path by a link; only relative links work",
                    )
                if self.denied.hides(os.fsdecode(target)):
                    raise _fault(Fault.PATH_DENIED, path, "leads to something protected by a link")
                ahead += [p for p in reversed(target.split(b"/")) if p not in (b"", b".")]
                if len(folders) + len(ahead) > MAX_DEPTH:
                    raise _fault(
                        Fault.TOO_DEEP, path, f"has more than {MAX_DEPTH} parts, links resolved"
                    )
            return (folders.pop() if folders else os.dup(self._handle)), b"."
        finally:
            for handle in folders:
                os.close(handle)

    def _make(self, parts: Sequence[bytes]) -> int:
        """Return a handle of the folder `parts`, made where missing; through no link.

        Raises OSError.
        """
        with contextlib.suppress(FileNotFoundError):
            return self._plain(parts, _FOLDER)
        here = os.dup(self._handle)
        try:
            for name in parts:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=here)
                below = _enter(here, name, _FOLDER)
                os.close(here)
                here = below
        except OSError:
            os.close(here)
            raise
        return here

    def _entries(
        self, handle: int, inside: str, most: int, too_large: ToolError
    ) -> tuple[Entry, ...]:
        """Return the entries of the open folder `handle`, sorted.

        `inside` is its own path, '' for the root.

        Raises OSError, and `too_large` for more than `most` entries.
        """
        found: list[Entry] = []
        with os.scandir(handle) as entries:
            for entry in entries:
                if self.denied.hides(entry.name):
                    continue
                if len(found) == most:
                    raise too_large
                # it went while the folder was being read
                with contextlib.suppress(FileNotFoundError):
                    found.append(
                        _entry(
                            f"{inside}/{entry.name}" if inside else entry.name,
                            entry.stat(follow_symlinks=False),
                        )
                    )
        return tuple(sorted(found, key=lambda entry: entry.path))

    def _below(self, top: int, inside: str, most: int, too_large: ToolError) -> Iterator[Entry]:
        """Give what lies below the open folder `top`, whose own path is `inside`.

        Raises as `_entries`.
        """
        left = most
        start = len(inside) + 1 if inside else 0
        ahead = [*reversed(self._entries(top, inside, left, too_large))]
        left -= len(ahead)
        while ahead:
            entry = ahead.pop()
            if entry.kind is not EntryKind.DIRECTORY:
                yield entry
                continue
            parts = os.fsencode(entry.path[start:]).split(b"/")
            if entry.path.count("/") >= MAX_DEPTH - 1:
                yield Entry(entry.path, EntryKind.OTHER, 0)
                continue
            try:
                handle = self._plain(parts, _LISTING, top)
            except PermissionError:
                yield Entry(entry.path, EntryKind.OTHER, 0)
                continue
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    continue  # it was a folder a moment ago, and is gone or something else now
                raise
            try:
                found = self._entries(handle, entry.path, left, too_large)
            finally:
                os.close(handle)
            left -= len(found)
            ahead += reversed(found)


def _content(handle: int, path: str, cap: int) -> bytes:
    """Return all of the open file `handle`, at most `cap` bytes. Raises OSError, ToolError."""
    info = os.fstat(handle)
    _must_be_file(info, path)
    if info.st_nlink > 1:
        raise _fault(
            Fault.HARD_LINK, path, "has another hard link, which may be outside of the root folder"
        )
    pieces: list[bytes] = []
    size = 0
    larger = info.st_size > cap
    # That size is a guess: the file may grow meanwhile. One byte more than allowed tells.
    while not larger and (
        piece := os.read(handle, wanted := min(max(info.st_size, 4096), cap - size) + 1)
    ):
        pieces.append(piece)
        size += len(piece)
        larger = size > cap
        if size == info.st_size and len(piece) < wanted:
            break  # all of it, and the end was seen
    if larger:
        raise _fault(Fault.TOO_LARGE, path, f"has more than {cap} bytes")
    return b"".join(pieces)


def _looked_at(folder: int, name: bytes) -> os.stat_result | None:
    """Return what `name` in the folder is, a link being a link; None for nothing.

    Raises OSError.
    """
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _must_be_file(info: os.stat_result, path: str) -> None:
    """Raise ToolError for anything but a regular file."""
    match _kind(info.st_mode):
        case EntryKind.FILE:
            return
        case EntryKind.DIRECTORY:
            raise _fault(Fault.IS_A_DIRECTORY, path, "is a folder")
        case EntryKind.SYMLINK:
            raise _fault(
                Fault.PATH_DENIED, path, "is a symbolic link; name the file that it points to"
            )
        case EntryKind.OTHER:
            raise _fault(
                Fault.NOT_A_REGULAR_FILE, path, "is a FIFO, a socket or a device, not a file"
            )


def _replace(folder: int, name: bytes, data: bytes, mode: int | None) -> None:
    """Put a file with `data` in the place of `name`; `mode` None leaves it to the umask.

    Raises OSError.

    The folder itself is not flushed: losing power may bring the old file back, but never gives half
    of one.
    """
    for tries_left in reversed(range(_MAX_TRIES)):
        temporary = f".placet-{os.getpid()}-{next(_numbers)}.tmp".encode()
        try:
            handle = os.open(temporary, _NEW, 0o666, dir_fd=folder)
            break
        except FileExistsError:
            if not tries_left:
                raise
    try:
        try:
            if mode is not None:
                os.fchmod(handle, mode)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):  # what went wrong above is what must be told
            os.unlink(temporary, dir_fd=folder)
        raise
