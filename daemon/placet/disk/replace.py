"""Replace one note in an open folder without losing what somebody saves meanwhile.

A new note appears whole or not at all, and never overwrites a taken name. To replace a note, placet
exchanges two names in one step (renameat2, Linux). Then it checks the note that came out. If that
is not the expected text, placet puts it back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from placet.case.settle import Fingerprint, Writers
from placet.codec import sha256
from placet.disk.errors import (
    AlreadyThere,
    Changed,
    NotAFile,
    NotSettled,
    OpenForWriting,
    TooLarge,
)
from placet.disk.files import lock
from placet.disk.handles import FILE, Held, Temporary, enter, read_at_most, sync, temporary
from placet.disk.scan import NOTE_LIMIT, fingerprint
from placet.disk.writers import lease
from placet.note.paths import TEMP_PREFIX, with_suffix

_NOREPLACE, _EXCHANGE = 1, 2  # linux/fs.h: RENAME_NOREPLACE, RENAME_EXCHANGE
# this kernel or file system does not support the flags
_NO_FLAGS = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})  # FAT, some FUSE
_ACCESS_LIST = "system.posix_acl_access"  # acl(5)


def identity(info: os.stat_result) -> tuple[int, int]:
    """Return the numbers that identify a file on this machine."""
    return info.st_dev, info.st_ino


def read(
    folder: int, name: str, path: str, limit_bytes: int = NOTE_LIMIT
) -> tuple[bytes, os.stat_result]:
    """Return an ordinary file's bytes and state. Neither changed during the read.

    Raises NotAFile, TooLarge and NotSettled about `path`, OSError.
    """
    try:
        handle = enter(folder, name, FILE)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # a link or a socket
            raise NotAFile(path) from None
        raise
    with Held(handle):
        before = os.fstat(handle)
        if not stat.S_ISREG(before.st_mode):
            raise NotAFile(path)
        if before.st_size > limit_bytes:
            raise TooLarge(path)
        data = read_at_most(handle, limit_bytes, before.st_size)
        if fingerprint(os.fstat(handle)) != fingerprint(before) or len(data) != before.st_size:
            raise NotSettled(path)
        return data, before


def holds(folder: int, name: str, expected: str) -> bool:
    """Return whether the name is a file whose bytes have the SHA-256 `expected`."""
    try:
        return sha256(read(folder, name, name)[0]) == expected
    except (FileNotFoundError, NotAFile, TooLarge, NotSettled):
        return False


@contextlib.contextmanager
def new_file(folder: int, data: bytes, like: os.stat_result | None = None) -> Iterator[Temporary]:
    """Create a file with these bytes under a temporary name; delete it unless it is kept.

    It is locked while its writer lives, so that a sweep can tell a leftover from work in progress.
    Owner and mode are those of `like`, as far as this user may set them.
    """

    def prepare(handle: int) -> None:
        _lock(handle)
        if like is not None:
            _keep_owner(handle, like)
            os.fchmod(handle, stat.S_IMODE(like.st_mode))

    name = f"{TEMP_PREFIX}{secrets.token_hex(8)}"
    with temporary(folder, name, data, 0o666 if like is None else 0o600, prepare) as temp:
        yield temp


def put_new(folder: int, temp: Temporary, name: str, path: str, data: bytes) -> bool:
    """Rename a new file to `name`; return False if that name already has these bytes.

    Raises AlreadyThere about `path` if something else has it.
    """
    try:
        rename_new(folder, temp.name, folder, name)
    except FileExistsError:
        try:
            existing, _ = read(folder, name, path, len(data))
        except (NotAFile, TooLarge, NotSettled):
            existing = None
        if existing != data:
            raise AlreadyThere(path) from None
        return False
    temp.is_kept = True
    sync(folder)
    return True


def replace(
    folder: int, name: str, path: str, expected: str, data: bytes, *, ask_kernel: bool = True
) -> Fingerprint:
    """Replace a file's bytes, whose SHA-256 is `expected`, with `data`; see `Vault.replace`.

    Raises Changed, NotAFile, TooLarge, NotSettled and OpenForWriting about `path`, OSError.
    """
    old, info = read(folder, name, path)
    if old == data:
        return fingerprint(info)
    if sha256(old) != expected:
        raise Changed(path)
    if writers(folder, name, ask_kernel=ask_kernel) is Writers.SOME:
        raise OpenForWriting(path)  # nothing needs to be written to find that out
    with new_file(folder, data, like=info) as temp:
        _keep_attributes(folder, name, temp.handle)
        _name_for_exchange(folder, temp, expected, data)
        with Held(enter(folder, name, FILE)) as handle, lease(handle, ask=ask_kernel) as held:
            if held.writers is Writers.SOME:
                raise OpenForWriting(path)
            if not holds(folder, name, expected):
                raise Changed(path)
            if _renameat2(folder, temp.name, folder, name, _EXCHANGE):
                # a program that waits for the lease has the old file: it gets its name back
                if held.is_broken or not holds(folder, temp.name, expected):
                    _restore_note(folder, temp, name)
                    ours = identity(os.fstat(temp.handle))
                    texts = {identity(info): expected, ours: sha256(data)}
                    _keep_written(folder, temp, name, texts)
                    raise Changed(path)
            else:
                now = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if held.is_broken or fingerprint(now) != fingerprint(info):
                    raise Changed(path)
                os.rename(temp.name, name, src_dir_fd=folder, dst_dir_fd=folder)
                temp.is_kept = True
        sync(folder)
        return fingerprint(os.fstat(temp.handle))


def writers(folder: int, name: str, *, ask_kernel: bool = True) -> Writers:
    """Return whether a program has a file open for writing, as far as the kernel knows.

    Raises OSError.
    """
    with Held(enter(folder, name, FILE)) as handle, lease(handle, ask=ask_kernel) as held:
        return held.writers


def rename_new(source: int, old: str, target: int, new: str) -> None:
    """Rename without ever overwriting. Raises FileExistsError for a taken name."""
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
    # Without exclusive renames and links, create an empty file under the name and rename over it. A
    # crash between the two leaves the empty file, which a retry reuses. It holds nothing to lose.
    taking = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.close(os.open(new, taking, 0o600, dir_fd=target))
    except FileExistsError:
        there = os.stat(new, dir_fd=target, follow_symlinks=False)
        if not stat.S_ISREG(there.st_mode) or there.st_size:
            raise
    os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)


def _lock(handle: int) -> None:
    # without locks a sweep deletes nothing either
    with contextlib.suppress(OSError):
        lock(handle)


def _keep_owner(handle: int, like: os.stat_result) -> None:
    """Give the file the owner and group of the replaced one, as far as this user may."""
    mine = os.fstat(handle)
    for uid, gid in ((like.st_uid, like.st_gid), (-1, like.st_gid)):
        if (mine.st_uid, mine.st_gid) == (like.st_uid, like.st_gid):
            return
        try:
            os.fchown(handle, uid, gid)
        except PermissionError:
            continue
        return


def _keep_attributes(folder: int, name: str, handle: int) -> None:
    """Give the file the extended attributes (tags, access lists) of the replaced one."""
    if sys.platform != "linux":
        return  # Python cannot read them elsewhere
    with contextlib.suppress(OSError), Held(enter(folder, name, FILE)) as old:
        for attribute in os.listxattr(old):
            if attribute.startswith("user.") or attribute == _ACCESS_LIST:
                with contextlib.suppress(OSError):
                    os.setxattr(handle, attribute, os.getxattr(old, attribute))


class Exchanged(NamedTuple):
    """What the name of a temporary file says: the pid of its writer, and which texts it knows."""

    pid: int
    texts: tuple[str, str]

    def knows(self, digest: str) -> bool:
        """Return whether this is the digest of the old text or of the new one."""
        return digest[:_NAMED_DIGITS] in self.texts


_NAMED_DIGITS = 32
_EXCHANGED = re.compile(r".*-(\d+)-([0-9a-f]{32})-([0-9a-f]{32})")


def _name_for_exchange(folder: int, temp: Temporary, expected: str, data: bytes) -> None:
    """Give a complete temporary file a name that tells a sweep which texts are not saves.

    A kill during the exchange leaves under that name whatever the exchange brought out.
    """
    texts = f"{expected[:_NAMED_DIGITS]}-{sha256(data)[:_NAMED_DIGITS]}"
    name = f"{temp.name}-{os.getpid()}-{texts}"
    os.rename(temp.name, name, src_dir_fd=folder, dst_dir_fd=folder)
    temp.name = name


def exchanged_by(name: str) -> Exchanged | None:
    """Return what the name of a temporary file says, None if nothing was exchanged with it."""
    found = _EXCHANGED.fullmatch(name)
    return None if found is None else Exchanged(int(found[1]), (found[2], found[3]))


def _restore_note(folder: int, temp: Temporary, name: str) -> None:
    """Undo an exchange that brought out a newer save: put the newest text back under its name.

    Each exchange puts the newest known text under the name, and brings out what was there. If that
    is the file placet put there, nobody saved in between. Otherwise it is a still newer save.
    """
    placed = _same_file(os.fstat(temp.handle))
    while True:
        newest = _same_file(os.stat(temp.name, dir_fd=folder, follow_symlinks=False))
        _renameat2(folder, temp.name, folder, name, _EXCHANGE)
        if _same_file(os.stat(temp.name, dir_fd=folder, follow_symlinks=False)) == placed:
            return
        placed = newest


def _same_file(info: os.stat_result) -> tuple[int, int, int, int]:
    """Return attributes that a rename keeps. An inode alone may be reused for the next file."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def _keep_written(
    folder: int, temp: Temporary, name: str, texts: Mapping[tuple[int, int], str]
) -> None:
    """Keep the file left over from `_restore_note` as a conflict copy, if a program wrote into it.

    `texts` are the digests of the old file and of the new one. A complete save that a later save
    replaced is not kept.
    """
    left = texts.get(identity(os.stat(temp.name, dir_fd=folder, follow_symlinks=False)))
    if left is None or holds(folder, temp.name, left):
        return
    copy = with_suffix(name, f" (conflicted copy {secrets.token_hex(4)})")
    rename_new(folder, temp.name, folder, copy)
    temp.is_kept = True


def _renameat2(source: int, old: str, target: int, new: str, flags: int) -> bool:
    """Rename with flags, in one step; return False if this system cannot. Raises OSError."""
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
    """Return the C library's renameat2, or None if it lacks one (macOS, old musl)."""
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        path, number = ctypes.c_char_p, ctypes.c_int
        call.argtypes = (number, path, number, path, ctypes.c_uint)
        call.restype = number
    return call
