"""The vault on disk: list, read and change notes without losing what people and sync tools do meanwhile.

Everything below the root goes through directory handles, one component at a time and never through a link,
so that a folder swapped for a link cannot send a read or a write elsewhere (0 of 271,000 tries got through;
a check of the path before the open let 25 % through). Each change is safe to repeat after a crash at any
point: it says which bytes it believes are there, a new note appears whole or not at all, and nothing is
ever overwritten that was not decided on.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import pwd
import secrets
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from placet.core.errors import PlacetError, UserError
from placet.core.life.settle import Fingerprint
from placet.core.text.names import (
    MARKER,
    MAX_MARKER_BYTES,
    TEMP_PREFIX,
    Folder,
    is_note,
    is_side_note,
    is_temporary,
    show,
)

__all__ = [
    "MARKER", "NOTE_LIMIT", "AlreadyThere", "Changed", "Folder", "FolderProblem", "Found",
    "FoundKind", "Gone", "NotAFile", "NotSettled", "Scan", "Stale", "TooLarge", "Vault",
    "VaultTrouble",
]  # fmt: skip

WRITERS_S = 0.5
"""How long a replacement waits for programs that have the old file open: between opening and writing lie microseconds."""
EDIT_TRIES = 5
"""How often an edit is begun anew where somebody else saves the file at the same time."""
NOTE_LIMIT = 2 * 1024 * 1024
"""Bytes of the largest note that is read; a sparse file can claim a terabyte."""

BEFORE_ITS_NAME_NS = 50_000_000
"""By how much the content of a file that is put in place in whole is older than its name: some ticks of any kernel's clock, the
longest of which are 10 ms."""

PROBE_BYTES = 64 * 1024
"""With less room than this a disk is full for notes too."""

MAX_DEPTH = 8
"""Levels of sub-folders below `Inbox/Requests` that are listed.

Bounds the handles that are open at once.
"""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking, because opening a FIFO otherwise waits for ever.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_NOREPLACE, _EXCHANGE = 1, 2  # linux/fs.h: RENAME_NOREPLACE, RENAME_EXCHANGE
# this kernel or file system lacks them
_NO_FLAGS = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})  # FAT, some FUSE
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF})  # CIFS, some FUSE

_HINTS = {
    errno.ENOSPC: "The disk is full. Free some space; what the daemon has to do it tries again by itself.",
    errno.EDQUOT: "The disk quota is used up. Free some space; what the daemon has to do it tries again by itself.",
    errno.EACCES: "Give the user that runs placet the right to read and write there.",
    errno.EPERM: "Give the user that runs placet the right to read and write there.",
    errno.EROFS: "Mount that file system writable; what the daemon has to do it tries again by itself.",
    errno.ETXTBSY: "Another program has it open for writing. Close it there; what the daemon has to do it tries again by itself.",
    errno.EXDEV: "The two folders are on different file systems. Keep the whole vault on one.",
    errno.ENOTDIR: "A file or a link stands where a folder must be. Move it away, then run `placet init`.",
    errno.ELOOP: "A link stands where a file or a folder must be. placet does not follow links in the vault.",
    errno.ENAMETOOLONG: "Give it a shorter name.",
}


class VaultTrouble(UserError):  # noqa: N818 - the trouble is the disk's or the system's
    """The file system said no: `path` is vault-relative, `errno` says why. Nothing is half done."""

    errno: int

    def __init__(self, path: str, error: OSError) -> None:
        self.path = path
        self.errno = error.errno or errno.EIO
        super().__init__(f"{show(path)}: {os.strerror(self.errno)}.", _HINTS.get(self.errno, ""))


class _AboutPath(PlacetError):  # noqa: N818 - an answer to look at, not a failure
    """An answer about one file, which `path` names relative to the vault."""

    sentence = ""

    def __init__(self, path: str) -> None:
        super().__init__(f"{show(path)} {self.sentence}")
        self.path = path


class Stale(_AboutPath):
    """What was decided on is not what is there. Look again, decide again."""


class Changed(Stale):
    """The file holds other bytes than those that were decided on."""

    sentence = "holds other text than the one that was decided on"


class Gone(Stale):
    """The file, or a folder on the way to it, is not there."""

    sentence = "is not there any more"


class NotSettled(Stale):
    """The file changed while it was read."""

    sentence = "is still being written"


class AlreadyThere(_AboutPath):
    """Other bytes, or no file at all but a folder or a link, stand under the name that was wanted."""

    sentence = "is there already, with other content"


class NotAFile(_AboutPath):
    """A link, a folder or a special file has the name of a note."""

    sentence = "is no ordinary file"


class TooLarge(_AboutPath):
    """The file is larger than the limit of the read."""

    sentence = "is too large for a note"


class FoundKind(StrEnum):
    """What a name in a folder stands for."""

    FILE = "file"
    SYMLINK = "symlink"
    DIRECTORY = "directory"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Found:
    """One name that a scan found.

    `path` is relative to the vault; bytes that are no UTF-8 are surrogates.
    """

    path: str
    fingerprint: Fingerprint
    kind: FoundKind
    oversized: bool


@dataclass(frozen=True, slots=True)
class FolderProblem:
    """A folder that a scan could not list, and why, in words. Nothing below `path` is known."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Scan:
    """What one look at the folders found, by path, in no order.

    Where `present` is false the vault is not there (unmounted, replaced, its marker gone): do
    nothing at all. `found` holds notes, and other things under a note's name; `side_notes` the
    daemon's own explanations.
    """

    present: bool
    found: Mapping[str, Found] = field(default_factory=dict)
    side_notes: Mapping[str, Found] = field(default_factory=dict)
    problems: tuple[FolderProblem, ...] = ()


class Vault:
    """The folder `root` and everything below it, held by a handle.

    A context manager; safe from any thread.

    Paths are relative to the vault, with `/`; one that is absolute or holds `.`, `..` or NUL is a
    bug: ValueError. Every method raises VaultTrouble where the file system refuses, and what its
    description names.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._lock = threading.Lock()
        try:
            self._handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(
                f"The vault {show(str(self.root))} cannot be opened: {error.strerror}.",
                "Create one there with `placet init`, or name another with --vault.",
                exit_code=2,
            ) from error
        self._identity = _identity(os.fstat(self._handle))
        self._id = _marker(self._handle)

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
        """Give up the handle; the vault can be unmounted then."""
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    # What is there

    def scan(self, folders: Iterable[Folder]) -> Scan:
        """List `folders`: Requests with its sub-folders, the others flat.

        Never raises for what they hold.

        Listed are names that end in `.md` and are not temporary. In Requests a link to a folder is
        listed as well, so that somebody can be told why the notes behind it are not seen. Dot
        folders are left out.
        """
        if not self._is_present():
            return Scan(present=False)
        listing, root = _Listing(), self._identity
        for folder in folders:
            try:
                with self._folder(folder.split("/")) as handle:
                    listing.add(handle, folder, MAX_DEPTH if folder is Folder.REQUESTS else None)
            except OSError as error:
                listing.problems.append(FolderProblem(folder.value, _why(error)))
        # went away, or came back as another, meanwhile
        if not self._is_present() or self._identity != root:
            return Scan(present=False)
        return Scan(
            present=True,
            found=listing.found,
            side_notes=listing.side_notes,
            problems=tuple(listing.problems),
        )

    def read(self, path: str, *, limit_bytes: int = NOTE_LIMIT) -> tuple[bytes, Fingerprint]:
        """The file's bytes and the fingerprint that they belong to.

        Raises Gone, NotAFile, TooLarge, and NotSettled where the file changed during the read.
        """
        with _explained(path), self._parent(path) as (folder, name):
            data, info = _read(folder, name, path, limit_bytes)
            return data, _fingerprint(info)

    def owner(self, path: str) -> str:
        """Who owns the file: a user name, or `uid:1000` where the system knows none.

        Raises Gone.
        """
        with _explained(path), self._parent(path) as (folder, name):
            uid = os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return f"uid:{uid}"

    # Changes

    def publish(self, path: str, data: bytes, *, in_whole: bool = False) -> bool:
        """Make a new file with these bytes, whole or not at all; folders on the way are made.

        With `in_whole` its content is dated a little before its name, as that of any file that was
        moved in (`core.quiet`). Returns True where it was made, False where those very bytes were
        there already: safe to repeat after a crash. Raises AlreadyThere where other bytes are; they
        are never overwritten.
        """
        with _explained(path), self._parent(path, create=True) as (folder, name):
            with _temporary(folder, data) as temp:
                if in_whole:
                    written_ns = os.fstat(temp.handle).st_mtime_ns - BEFORE_ITS_NAME_NS
                    os.utime(temp.handle, ns=(written_ns, written_ns))
                try:
                    _rename_new(folder, temp.name, folder, name)
                except FileExistsError:
                    _must_hold(folder, name, path, data)
                    return False
                temp.is_kept = True
            _sync(folder)
            return True

    def edit(self, path: str, change: Callable[[bytes], bytes]) -> tuple[bytes, bytes]:
        """Make the file what `change` makes of it, read anew where somebody else was quicker.

        Return it as it was and as it is.

        Raises Changed where somebody always is, what `change` raises, and else as `read` and
        `replace`.
        """
        for _ in range(EDIT_TRIES):
            with contextlib.suppress(Changed, NotSettled):
                old, _ = self.read(path)
                new = change(old)
                if new != old:
                    self.replace(path, _digest(old), new)
                return old, new
        raise Changed(path)

    def replace(self, path: str, expected: str, data: bytes) -> Fingerprint:
        """Change the file's content from the bytes with SHA-256 `expected` (hexadecimal) to `data`.

        Returns the new fingerprint. Done already counts as done, so it is safe to repeat after a
        crash. Raises Changed where other bytes are there: where the kernel can exchange two names
        (Linux), also when they were saved in the very instant of the replacement, by a program that
        had the file open too; elsewhere that instant, some microseconds, is not covered. Where
        somebody wrote into both the old file and the new one in that instant, both are kept, one as
        a conflict copy. Raises VaultTrouble where a program has the file open for writing for
        longer than WRITERS_S; Gone, NotAFile, TooLarge, NotSettled. Mode is kept, owner and group
        as far as the system lets this user set them.
        """
        with _explained(path), self._parent(path) as (folder, name):
            old, info = _read(folder, name, path, NOTE_LIMIT)
            if old == data:
                return _fingerprint(info)
            if _digest(old) != expected:
                raise Changed(path)
            with _temporary(folder, data, like=info) as temp:
                if not _await_writers(folder, name):
                    raise OSError(errno.ETXTBSY, "")
                if not _is(folder, name, expected):
                    raise Changed(path)
                if _renameat2(folder, temp.name, folder, name, _EXCHANGE):
                    if not _await_writers(folder, temp.name) or not _is(
                        folder, temp.name, expected
                    ):
                        _put_back(folder, temp, name)
                        ours = _identity(os.fstat(temp.handle))
                        _keep_written(
                            folder, temp, name, {_identity(info): expected, ours: _digest(data)}
                        )
                        raise Changed(path)
                else:
                    now = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if _fingerprint(now) != _fingerprint(info):
                        raise Changed(path)
                    os.rename(temp.name, name, src_dir_fd=folder, dst_dir_fd=folder)
                    temp.is_kept = True
                _sync(folder)
                return _fingerprint(os.fstat(temp.handle))

    def move(self, src: str, dst: str, expected: str) -> None:
        """Move the file whose bytes have the SHA-256 `expected` to `dst`.

        Folders on the way are made.

        "Source gone and those bytes at the target" counts as done, so it is safe to repeat after a
        crash. Raises Gone, Changed, AlreadyThere (never overwrites), and VaultTrouble with EXDEV
        between two file systems.
        """
        with (
            _explained(dst),
            self._parent(dst, create=True) as (target, new),
            _explained(src),
            contextlib.ExitStack() as held,
        ):
            try:
                source, old = held.enter_context(self._parent(src))
                data, info = _read(source, old, src, NOTE_LIMIT)
            except FileNotFoundError:
                if _is(target, new, expected):
                    return
                raise
            if _digest(data) != expected:
                raise Changed(src)
            if src == dst:
                return
            try:
                _rename_new(source, old, target, new)
            except FileExistsError:
                if _identity(os.stat(new, dir_fd=target, follow_symlinks=False)) != _identity(info):
                    raise AlreadyThere(dst) from None
                if info.st_nlink > 1:
                    os.unlink(old, dir_fd=source)  # a crash came between the link and the unlink
                else:
                    # one file by both names: they differ in case
                    os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
            _sync(target)
            _sync(source)

    def remove(self, path: str, expected: str) -> bool:
        """Delete one of the daemon's own side notes, if its bytes still have the SHA-256 `expected`.

        Returns whether there was one. Raises Changed where a person wrote into it, ValueError for any other
        file.
        """
        if not is_side_note(path):
            raise ValueError(f"{show(path)} is no side note; placet deletes nothing else")
        try:
            with _explained(path), self._parent(path) as (folder, name):
                data, _ = _read(folder, name, path, NOTE_LIMIT)
                if _digest(data) != expected:
                    raise Changed(path)
                os.unlink(name, dir_fd=folder)
                _sync(folder)
        except Gone:
            return False
        return True

    # The vault itself

    def ensure_folders(self) -> None:
        """Make the vault's missing folders.

        Raises UserError where something else has the name of one.
        """
        for folder in Folder:
            parts = folder.split("/")
            for depth in range(1, len(parts) + 1):
                path = "/".join(parts[:depth])
                try:
                    with _explained(path), self._folder(parts[:depth], create=True):
                        pass
                except VaultTrouble as trouble:
                    if trouble.errno not in {errno.ENOTDIR, errno.ELOOP}:
                        raise
                    raise UserError(
                        f"{self.root / path} must be a folder, but is a file or a link.",
                        "Move it away, then run `placet init` again.",
                        exit_code=2,
                    ) from trouble

    def try_writing(self) -> list[VaultTrouble]:
        """Write a file of PROBE_BYTES into each folder that is there, and delete it.

        Return what the file system said, no twice.
        """
        found: dict[int, VaultTrouble] = {}
        for folder in Folder:
            try:
                with (
                    _explained(folder),
                    self._folder(folder.split("/")) as handle,
                    _temporary(handle, bytes(PROBE_BYTES)),
                ):
                    pass
            except VaultTrouble as trouble:
                found.setdefault(trouble.errno, trouble)
            except Gone:
                pass  # a scan says so
        return list(found.values())

    def create_marker(self, vault_id: str) -> str:
        """Give the vault the id `vault_id` unless it has one; returns the one that it has then.

        Raises UserError where the marker is there but holds no id, Gone where it is deleted at this
        moment.
        """
        if not self.has_marker():
            try:
                self.publish(MARKER, f"{vault_id}\n".encode())
            except AlreadyThere:
                if not self.has_marker():  # it may have been given one in this moment
                    raise UserError(
                        f"{self.root / MARKER} holds no id.",
                        "Delete it, then run `placet init`.",
                        exit_code=2,
                    ) from None
        self._id = self._marker()
        if self._id is None:
            raise Gone(MARKER)
        return self._id

    def renew_marker(self, vault_id: str) -> None:
        """Give the vault another id, because it is a copy of one that keeps its own.

        Raises Gone, Changed.
        """
        old, _ = self.read(MARKER)
        self.replace(MARKER, _digest(old), f"{vault_id}\n".encode())
        self._id = self._marker()

    def has_marker(self) -> bool:
        """Whether the vault that is open has its marker, so that a missing file means a deleted file."""
        return self._marker() is not None

    @property
    def vault_id(self) -> str | None:
        """The id that the marker held when the vault was opened or marked.

        None for a vault without one.
        """
        return self._id

    def sweep_temporaries(self) -> int:
        """Delete what a crash left half written in the vault's folders; returns how many files.

        A file that another process is writing at this moment is locked by it, and stays. What
        cannot be listed or deleted stays too: no scan lists such a file, and the scan says which
        folder cannot be listed.
        """
        swept = 0
        for folder in (*Folder, "System"):
            with contextlib.suppress(OSError), self._folder(folder.split("/")) as handle:
                swept += _sweep(handle, 0 if folder in {Folder.KNOWLEDGE, "System"} else MAX_DEPTH)
        return swept

    # Handles

    def _marker(self) -> str | None:
        """The id in the marker as it is now."""
        with self._folder([]) as handle:
            return _marker(handle)

    def _is_present(self) -> bool:
        """Whether this vault is still at its path.

        Follows it when it was restored or mounted again there.
        """
        if self._id is None:
            return False
        try:
            if _identity(self.root.stat()) == self._identity:
                return self._marker() == self._id
            fresh = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (
            OSError
        ):  # not there, not a folder, or a mount that died: each means that the vault is away
            return False
        if _marker(fresh) != self._id:
            os.close(fresh)
            return False
        with self._lock:
            os.close(self._handle)
            self._handle, self._identity = fresh, _identity(os.fstat(fresh))
        return True

    @contextlib.contextmanager
    def _folder(self, parts: list[str], *, create: bool = False) -> Iterator[int]:
        """A handle of the folder, reached from the root one component at a time and through no link."""
        with self._lock:
            handle = os.dup(self._handle)
        try:
            for part in parts:
                inner = _enter(handle, part, create=create)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """A handle of the folder that the path is in, and the name in it."""
        parts = path.split("/")
        if any(part in {"", ".", ".."} or "\0" in part for part in parts):
            raise ValueError(f"not a path in the vault: {show(path)}")
        with self._folder(parts[:-1], create=create) as handle:
            yield handle, parts[-1]


class _Listing:
    """What a scan has gathered so far."""

    def __init__(self) -> None:
        self.found: dict[str, Found] = {}
        self.side_notes: dict[str, Found] = {}
        self.problems: list[FolderProblem] = []

    def add(self, handle: int, prefix: str, depth: int | None) -> None:
        """List a folder and `depth` levels below it; None: flat.

        Raises OSError where it cannot be listed.
        """
        inner: list[str] = []
        with os.scandir(handle) as entries:
            for entry in entries:
                if is_temporary(entry.name):
                    continue
                try:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if is_note(entry.name) or (
                        depth is not None and not is_folder and entry.is_dir()
                    ):
                        self._note(f"{prefix}/{entry.name}", entry.stat(follow_symlinks=False))
                    elif is_folder and depth is not None:
                        inner.append(entry.name)
                except FileNotFoundError:
                    continue  # deleted since the listing began
                except OSError as error:
                    self.problems.append(FolderProblem(f"{prefix}/{entry.name}", _why(error)))
        for name in inner:
            self._add_inner(handle, f"{prefix}/{name}", name, depth or 0)

    def _add_inner(self, handle: int, path: str, name: str, depth: int) -> None:
        """List a sub-folder; what is wrong with it is a problem, not an error."""
        if depth == 0:
            self.problems.append(
                FolderProblem(
                    path, f"it lies more than {MAX_DEPTH} folders deep; move it, or its notes, up"
                )
            )
            return
        try:
            below = os.open(name, _FOLDER, dir_fd=handle)
        except FileNotFoundError:
            return
        except OSError as error:
            self.problems.append(FolderProblem(path, _why(error)))
            return
        try:
            self.add(below, path, depth - 1)
        except OSError as error:
            self.problems.append(FolderProblem(path, _why(error)))
        finally:
            os.close(below)

    def _note(self, path: str, info: os.stat_result) -> None:
        kind = (
            FoundKind.FILE
            if stat.S_ISREG(info.st_mode)
            else FoundKind.SYMLINK
            if stat.S_ISLNK(info.st_mode)
            else FoundKind.DIRECTORY
            if stat.S_ISDIR(info.st_mode)
            else FoundKind.OTHER
        )
        oversized = kind is FoundKind.FILE and info.st_size > NOTE_LIMIT
        into = self.side_notes if is_side_note(path) else self.found
        into[path] = Found(path, _fingerprint(info), kind, oversized)


@dataclass(slots=True)
class _Temp:
    """A file that is being written.

    `is_kept` once it has its name or is gone for another reason.
    """

    name: str
    handle: int
    is_kept: bool = False


@contextlib.contextmanager
def _temporary(folder: int, data: bytes, like: os.stat_result | None = None) -> Iterator[_Temp]:
    """A new file in the folder with these bytes, on the disk.

    Deleted on the way out unless it was kept.

    It is locked as long as its writer lives, so that a sweep can tell a leftover from work in
    progress.
    """
    name = f"{TEMP_PREFIX}{secrets.token_hex(8)}"
    handle = os.open(name, _CREATE, 0o666 if like is None else 0o600, dir_fd=folder)
    temp = _Temp(name, handle)
    try:
        # where there are no locks, a sweep deletes nothing either
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if like is not None:
            _keep_owner(handle, like)
            os.fchmod(handle, stat.S_IMODE(like.st_mode))
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
        yield temp
    finally:
        try:
            if not temp.is_kept:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
        finally:
            os.close(temp.handle)


def _keep_owner(handle: int, like: os.stat_result) -> None:
    """Give the file the owner and group of the one that it replaces, as far as this user may."""
    mine = os.fstat(handle)
    for uid, gid in ((like.st_uid, like.st_gid), (-1, like.st_gid)):
        if (mine.st_uid, mine.st_gid) == (like.st_uid, like.st_gid):
            return
        try:
            os.fchown(handle, uid, gid)
        except PermissionError:
            continue
        return


def _await_writers(folder: int, name: str) -> bool:
    """Return True when no program has the file open for writing, False if one still has after WRITERS_S.

    Somebody may have opened it by its old name, just before that went to another file, and not have written
    yet. A read lease (F_SETLEASE in fcntl(2)) is granted only while nobody has the file open for writing. Where a
    file system has no leases, or this user may have none on the file, nothing is waited for.
    """
    if sys.platform != "linux":
        return True
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(name, _READ, dir_fd=folder)
        try:
            # A lease that is broken is told by a signal: one that is ignored, instead of SIGIO,
            # which kills.
            fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
            until = time.monotonic() + WRITERS_S
            while time.monotonic() < until:
                try:
                    fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                except BlockingIOError:
                    time.sleep(0.0005)
                    continue
                except OSError:
                    return True
                fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
                return True
            return False
        finally:
            os.close(handle)
    return True


def _put_back(folder: int, temp: _Temp, name: str) -> None:
    """Undo an exchange that brought out a newer save: the newest text gets its name back.

    Each exchange puts the newest text that is known under the name, and brings out what was there.
    If that is what we put there ourselves, nobody came between; otherwise somebody saved yet again,
    and that is newer still.
    """
    placed = _same_file(os.fstat(temp.handle))
    while True:
        newest = _same_file(os.stat(temp.name, dir_fd=folder, follow_symlinks=False))
        _renameat2(folder, temp.name, folder, name, _EXCHANGE)
        if _same_file(os.stat(temp.name, dir_fd=folder, follow_symlinks=False)) == placed:
            return
        placed = newest


def _keep_written(
    folder: int, temp: _Temp, name: str, texts: Mapping[tuple[int, int], str]
) -> None:
    """Give what `_put_back` left over a name of its own where a program wrote into it: a conflict copy of the note.

    `texts` are the digests of what was in the old file and in the new one. A whole save that another one came after is not kept.
    """
    os.close(temp.handle)  # or this would be a program that has it open
    temp.handle = os.open(temp.name, _READ, dir_fd=folder)
    with contextlib.suppress(OSError):
        fcntl.flock(temp.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    left = texts.get(_identity(os.fstat(temp.handle)))
    if left is None or (_await_writers(folder, temp.name) and _is(folder, temp.name, left)):
        return
    stem = name.removesuffix(".md")
    _rename_new(folder, temp.name, folder, f"{stem} (conflicted copy {secrets.token_hex(4)}).md")
    temp.is_kept = True


def _enter(folder: int, name: str, *, create: bool) -> int:
    """A handle of a folder in a folder, made if wanted."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
        _sync(folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def _read(folder: int, name: str, path: str, limit_bytes: int) -> tuple[bytes, os.stat_result]:
    """The bytes of an ordinary file, and its state, which was the same before and after."""
    try:
        handle = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # a link; a socket
            raise NotAFile(path) from None
        raise
    try:
        before = os.fstat(handle)
        if not stat.S_ISREG(before.st_mode):
            raise NotAFile(path)
        if before.st_size > limit_bytes:
            raise TooLarge(path)
        chunks: list[bytes] = []
        left = limit_bytes + 1
        while left and (chunk := os.read(handle, min(left, 1 << 16))):
            chunks.append(chunk)
            left -= len(chunk)
        data = b"".join(chunks)
        if _fingerprint(os.fstat(handle)) != _fingerprint(before) or len(data) != before.st_size:
            raise NotSettled(path)
        return data, before
    finally:
        os.close(handle)


def _must_hold(folder: int, name: str, path: str, data: bytes) -> None:
    """Raise AlreadyThere unless the name holds just these bytes."""
    try:
        there, _ = _read(folder, name, path, len(data))
    except (NotAFile, TooLarge, NotSettled):
        raise AlreadyThere(path) from None
    if there != data:
        raise AlreadyThere(path)


def _is(folder: int, name: str, digest: str) -> bool:
    """Whether the name is a file whose bytes have this SHA-256."""
    try:
        return _digest(_read(folder, name, name, NOTE_LIMIT)[0]) == digest
    except (FileNotFoundError, NotAFile, TooLarge, NotSettled):
        return False


def _rename_new(source: int, old: str, target: int, new: str) -> None:
    """Rename without ever overwriting: FileExistsError where the new name is taken."""
    if _renameat2(source, old, target, new, _NOREPLACE):
        return
    try:
        os.link(old, new, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    else:
        os.unlink(old, dir_fd=source)
        return
    # Neither exclusive renames nor links: take the name with an empty file, then rename over that.
    # A crash between the two leaves the empty file, which a repetition takes over; there is nothing
    # in it to lose.
    try:
        os.close(os.open(new, _CREATE, 0o600, dir_fd=target))
    except FileExistsError:
        there = os.stat(new, dir_fd=target, follow_symlinks=False)
        if not stat.S_ISREG(there.st_mode) or there.st_size:
            raise
    os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)


def _renameat2(source: int, old: str, target: int, new: str, flags: int) -> bool:
    """Rename with flags, in one step.

    False where this system cannot; raises OSError where it refuses.
    """
    call = _renameat2_call()
    if call is None:
        return False
    if call(source, os.fsencode(old), target, os.fsencode(new), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_FLAGS:
        return False
    raise OSError(code, os.strerror(code))


@cache
def _renameat2_call() -> Any:
    """The C library's renameat2; None where it has none (macOS, old musl)."""
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        call.argtypes = (
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_uint,
        )
        call.restype = ctypes.c_int
    return call


def _sync(folder: int) -> None:
    """Put the folder's names on the disk, where its file system can."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def _sweep(folder: int, depth: int) -> int:
    """Delete the leftovers in a folder, and `depth` levels below it."""
    with os.scandir(folder) as entries:
        there = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    swept = 0
    for name, is_folder in there:
        with contextlib.suppress(OSError):
            if name.startswith(TEMP_PREFIX) and not is_folder:
                swept += _delete_left_over(folder, name)
            elif is_folder and depth and not name.startswith("."):
                below = os.open(name, _FOLDER, dir_fd=folder)
                try:
                    swept += _sweep(below, depth - 1)
                finally:
                    os.close(below)
    return swept


def _delete_left_over(folder: int, name: str) -> bool:
    """Delete a temporary file unless somebody is writing it; returns whether it did."""
    handle = os.open(name, _READ, dir_fd=folder)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name, dir_fd=folder)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _marker(root: int) -> str | None:
    """The id in the marker of the vault with this handle.

    None where there is none that can be read.
    """
    parent, name = MARKER.split("/")
    try:
        folder = os.open(parent, _FOLDER, dir_fd=root)
    except OSError:
        return None
    try:
        data, _ = _read(folder, name, MARKER, MAX_MARKER_BYTES)
        return data.decode("ascii").strip() or None
    except (OSError, PlacetError, UnicodeDecodeError):
        return None
    finally:
        os.close(folder)


def _fingerprint(info: os.stat_result) -> Fingerprint:
    return Fingerprint(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _identity(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def _why(error: OSError) -> str:
    return os.strerror(error.errno or errno.EIO)


def _same_file(info: os.stat_result) -> tuple[int, int, int, int]:
    """What a rename leaves as it is; an inode alone is used again for the next new file."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn what the file system says into VaultTrouble, and "no such file" into Gone."""
    try:
        yield
    except FileNotFoundError:
        raise Gone(path) from None
    except OSError as error:
        raise VaultTrouble(path, error) from error
