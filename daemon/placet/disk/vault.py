"""The vault on disk: read and change notes without losing what people and sync tools do meanwhile.

Everything below the root goes through handles (`confine`), so that a folder swapped for a
link cannot send a read or a write elsewhere (0 of 271,000 tries got through; a check of the path
before the open let 25 % through). Each change is safe to repeat after a crash at any point: it says
which bytes it believes are there, a new note appears whole or not at all, and nothing is ever
overwritten that was not decided on (`replace`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

from placet.case.settle import Fingerprint
from placet.codec import sha256
from placet.disk.confine import LISTING, Held, descend, sync
from placet.disk.errors import (
    AlreadyThere,
    Changed,
    Gone,
    NotSettled,
    VaultTrouble,
    explained,
)
from placet.disk.files import owner_of
from placet.disk.replace import (
    holds,
    identity,
    new_file,
    put_new,
    read,
    rename_new,
    replace,
)
from placet.disk.scan import MAX_DEPTH, Found, Listing, Scan, fingerprint, sweep
from placet.errors import PlacetError, UserError
from placet.note.paths import MARKER, MAX_MARKER_BYTES, Folder, is_side_note, show

_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def _marker(root: int) -> str | None:
    """Return the id in the marker of the vault with this handle, None without a readable one."""
    *folders, name = MARKER.split("/")
    try:
        with Held(descend(root, folders, LISTING)) as folder:
            data, _ = read(folder, name, MARKER, MAX_MARKER_BYTES)
        return data.decode("ascii").strip() or None
    except (OSError, PlacetError, UnicodeDecodeError):
        return None


# Tries of an edit when somebody else saves the file at the same time.
EDIT_TRIES = 5

# Age that the content of a file gets that is put in place whole: some ticks of any kernel's clock,
# the longest of which are 10 ms.
BEFORE_ITS_NAME_NS = 50_000_000

# Room that a disk must have for notes.
PROBE_BYTES = 64 * 1024


class Vault:
    """The folder `root` and everything below it, held by a handle.

    The handle follows a vault which is put back at its path.
    A context manager; safe from any thread. Paths are relative to the vault, with `/`; one that is
    absolute or holds `.`, `..` or NUL is a bug: ValueError. Every method raises VaultTrouble if the
    file system refuses, and what its description names. Digests are SHA-256 in hexadecimal.
    """

    _side_notes: Mapping[str, Found] = {}

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

    def scan(self, folders: Iterable[Folder]) -> Scan:
        """List `folders`: Requests with its sub-folders, the others flat.

        Never raises for their content. Listed are names that end in `.md` and are not temporary. In
        Requests a link to a folder is listed as well, so that somebody can be told why the notes
        behind it are not seen. Dot folders are left out.
        """
        if not self.is_present():
            return Scan(present=False)
        listing, root = Listing(self._side_notes), self._identity
        for folder in folders:
            try:
                with self._folder(folder.split("/")) as handle:
                    listing.add(handle, folder, MAX_DEPTH if folder is Folder.REQUESTS else None)
            except OSError as error:
                listing.failed(folder.value, error)
        self._side_notes = listing.side_notes
        # went away, or came back as another, meanwhile
        if not self.is_present() or self._identity != root:
            return Scan(present=False)
        return Scan(
            present=True,
            found=listing.found,
            side_notes=listing.side_notes,
            problems=tuple(listing.problems),
        )

    def read(self, path: str) -> tuple[bytes, Fingerprint]:
        """Return the file's bytes, at most NOTE_LIMIT, and the fingerprint that they belong to.

        Raises Gone, NotAFile, TooLarge, and NotSettled if the file changed during the read: each of
        them and VaultTrouble is an Unreadable.
        """
        with explained(path), self._parent(path) as (folder, name):
            data, info = read(folder, name, path)
            return data, fingerprint(info)

    def owner(self, path: str) -> str:
        """Return the file's owner: a user name, or `uid:1000`. Raises Gone."""
        with explained(path), self._parent(path) as (folder, name):
            return owner_of(os.stat(name, dir_fd=folder, follow_symlinks=False))

    def publish(self, path: str, data: bytes, *, in_whole: bool = False) -> bool:
        """Make a new file with these bytes, whole or not at all; folders on the way are made.

        With `in_whole` its content is dated a little before its name, as that of any file that was
        moved in (`case/settle`). Returns True if it was made, False if it was there already
        with these bytes: safe to repeat after a crash. Raises AlreadyThere if other bytes are
        there; they are never overwritten.
        """
        with (
            explained(path),
            self._parent(path, create=True) as (folder, name),
            new_file(folder, data) as temp,
        ):
            if in_whole:
                written_ns = os.fstat(temp.handle).st_mtime_ns - BEFORE_ITS_NAME_NS
                os.utime(temp.handle, ns=(written_ns, written_ns))
            return put_new(folder, temp, name, path, data)

    def edit(self, path: str, change: Callable[[bytes], bytes]) -> tuple[bytes, bytes]:
        """Replace the file's bytes with `change` of them; read again if somebody else was quicker.

        Returns the bytes before and after. Raises Changed if somebody always is, the errors of
        `change`, and else as `read` and `replace`.
        """
        for _ in range(EDIT_TRIES):
            with contextlib.suppress(Changed, NotSettled):
                old, _ = self.read(path)
                new = change(old)
                if new != old:
                    self.replace(path, sha256(old), new)
                return old, new
        raise Changed(path)

    def replace(self, path: str, expected: str, data: bytes) -> Fingerprint:
        """Change the file's content from the bytes with the digest `expected` to `data`.

        Returns the new fingerprint. Done already counts as done, so it is safe to repeat after a
        crash. Raises Changed if other bytes are there: where the kernel can exchange two names
        (Linux), also if they were saved in the very instant of the replacement. If somebody wrote
        into both the old file and the new one in that instant, both are kept, one as a conflict
        copy. What a program that had the file open writes some microseconds later is not covered.
        Raises Gone, NotAFile, TooLarge, NotSettled. Mode is kept, owner and group as far as the
        system lets this user set them.
        """
        with explained(path), self._parent(path) as (folder, name):
            return replace(folder, name, path, expected, data)

    def move(self, src: str, dst: str, expected: str) -> None:
        """Move the file whose bytes have the digest `expected` to `dst`; folders are made.

        "Source gone and those bytes at the target" counts as done, so it is safe to repeat after a
        crash. Raises Gone, Changed, AlreadyThere (never overwrites), and VaultTrouble with EXDEV
        between two file systems.
        """
        with (
            explained(dst),
            self._parent(dst, create=True) as (target, new),
            explained(src),
            contextlib.ExitStack() as held,
        ):
            try:
                source, old = held.enter_context(self._parent(src))
                data, info = read(source, old, src)
            except FileNotFoundError:
                if holds(target, new, expected):
                    return
                raise
            if sha256(data) != expected:
                raise Changed(src)
            if src == dst:
                return
            try:
                rename_new(source, old, target, new)
            except FileExistsError:
                if identity(os.stat(new, dir_fd=target, follow_symlinks=False)) != identity(info):
                    raise AlreadyThere(dst) from None
                if info.st_nlink > 1:
                    os.unlink(old, dir_fd=source)  # a crash came between the link and the unlink
                else:
                    # one file by both names: they differ in case
                    os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
            sync(target)
            sync(source)

    def remove(self, path: str, expected: str) -> bool:
        """Delete one of the daemon's own side notes, if its bytes still have that digest.

        Returns whether there was one. Raises Changed if a person wrote into it, ValueError for any
        other file.
        """
        if not is_side_note(path):
            raise ValueError(f"{show(path)} is no side note; placet deletes nothing else")
        try:
            with explained(path), self._parent(path) as (folder, name):
                data, _ = read(folder, name, path)
                if sha256(data) != expected:
                    raise Changed(path)
                os.unlink(name, dir_fd=folder)
                sync(folder)
        except Gone:
            return False
        return True

    def ensure_folders(self) -> None:
        """Make the vault's missing folders. Raises UserError if one's name is taken."""
        for folder in Folder:
            parts = folder.split("/")
            for depth in range(1, len(parts) + 1):
                path = "/".join(parts[:depth])
                try:
                    with explained(path), self._folder(parts[:depth], create=True):
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
        """Write PROBE_BYTES into each folder that is there, and delete them; return the troubles.

        Each kind of trouble comes once.
        """
        found: dict[int, VaultTrouble] = {}
        for folder in Folder:
            try:
                with (
                    explained(folder),
                    self._folder(folder.split("/")) as handle,
                    new_file(handle, bytes(PROBE_BYTES)),
                ):
                    pass
            except VaultTrouble as trouble:
                found.setdefault(trouble.errno, trouble)
            except Gone:
                pass  # a scan says so
        return list(found.values())

    def create_marker(self, vault_id: str) -> str:
        """Give the vault the id `vault_id` unless it has one; return the id that it has then.

        Raises UserError if the marker is there but holds no id, Gone if it is deleted at this
        moment.
        """
        if self.marker() is None:
            try:
                self.publish(MARKER, f"{vault_id}\n".encode())
            except AlreadyThere:
                if self.marker() is None:  # it may have been given one in this moment
                    raise UserError(
                        f"{self.root / MARKER} holds no id.",
                        "Delete it, then run `placet init`.",
                        exit_code=2,
                    ) from None
        self._id = self.marker()
        if self._id is None:
            raise Gone(MARKER)
        return self._id

    def renew_marker(self, vault_id: str) -> None:
        """Give the vault a new id: it is a copy of one that keeps its own. Raises Gone, Changed."""
        old, _ = self.read(MARKER)
        self.replace(MARKER, sha256(old), f"{vault_id}\n".encode())
        self._id = self.marker()

    def sweep_temporaries(self) -> int:
        """Delete the files that a crash left half written in the vault's folders; return how many.

        A file that another process is writing is locked by it, and stays. What cannot be listed or
        deleted stays too: no scan lists such a file, and the scan says which folder cannot be
        listed.
        """
        swept = 0
        for folder in (*Folder, "System"):
            with contextlib.suppress(OSError), self._folder(folder.split("/")) as handle:
                swept += sweep(handle, 0 if folder in {Folder.KNOWLEDGE, "System"} else MAX_DEPTH)
        return swept
