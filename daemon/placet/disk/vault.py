"""Read and change notes in the vault without losing what people and sync tools do meanwhile.

Everything below the root goes through handles (`confine`). So a folder swapped for a link cannot
redirect a read or a write. None of 271,000 attempts got through; checking the path before the open
let 25 % through. Each change names the bytes that it expects, so it is safe to repeat after a crash
at any point. A new note appears whole or not at all. placet overwrites only the text that it
decided on (`replace`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

from placet.case.settle import Content, Fingerprint, Writers
from placet.codec import sha256
from placet.disk.errors import (
    AlreadyThere,
    Changed,
    Gone,
    NotSettled,
    OpenForWriting,
    Unreadable,
    VaultTrouble,
    explained,
)
from placet.disk.files import owner_of
from placet.disk.handles import LISTING, Held, descend, sync
from placet.disk.leftovers import sweep
from placet.disk.replace import (
    holds,
    identity,
    new_file,
    put_new,
    read,
    rename_new,
    replace,
    writers,
)
from placet.disk.scan import MAX_DEPTH, Found, Scan, fingerprint
from placet.errors import PlacetError, UserError
from placet.note.paths import MARKER, MAX_MARKER_BYTES, TWIN, Folder, is_side_note, show

_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def _marker(root: int) -> str | None:
    """Return the id in the marker of the vault with this handle, or None if unreadable."""
    *folders, name = MARKER.split("/")
    try:
        with Held(descend(root, folders, LISTING)) as folder:
            data, _ = read(folder, name, MARKER, MAX_MARKER_BYTES)
        return data.decode("ascii").strip() or None
    except (OSError, PlacetError, UnicodeDecodeError):
        return None


# Attempts of an edit while somebody else keeps saving the file.
EDIT_TRIES = 5

# How much older a file's content is dated than its name. That is some ticks of any kernel's clock,
# whose longest tick is 10 ms.
BEFORE_ITS_NAME_NS = 50_000_000

# Free space that a disk must have for notes.
PROBE_BYTES = 64 * 1024


class Vault:
    """The folder `root` and everything below it, held by a handle.

    If the vault is restored at its path, the handle follows it. A context manager; thread-safe.
    Paths are relative to the vault, with `/`. An absolute one, or one with `.`, `..` or NUL, is a
    bug: ValueError. Besides the errors in its description, every method raises VaultTrouble if the
    file system refuses. Digests are SHA-256 in hexadecimal.
    """

    _side_notes: Mapping[str, Found] = {}

    def __init__(self, root: Path, *, ask_kernel: bool = True) -> None:
        """Open the vault. Raises UserError if the folder cannot be opened.

        `ask_kernel=False` is for tests. It works as on macOS, where the kernel names no writers.
        """
        self.root = root.absolute()
        self._asks_kernel = ask_kernel
        self._own: set[Content] = set()
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
        """Close the handle, so that the vault can be unmounted."""
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    def marker(self) -> str | None:
        """Return the current id in the vault's marker, or None if unreadable.

        If the marker is there and a file is not, then the file was deleted.
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
            return False  # missing, not a folder, or a dead mount: the vault is absent
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

        Never raises because of their content. Lists names that end in `.md` and are not temporary.
        In Requests it also lists links to folders, so that placet can explain why it ignores the
        notes behind them. Dot folders are left out.
        """
        if not self.is_present():
            return Scan(present=False)
        scan, root = Scan(), self._identity
        for folder in folders:
            try:
                with self._folder(folder.split("/")) as handle:
                    depth = MAX_DEPTH if folder is Folder.REQUESTS else None
                    scan.add(handle, folder, depth, self._side_notes)
            except OSError as error:
                scan.failed(folder.value, error)
        self._side_notes = {**self._side_notes, **scan.side_notes}
        # disappeared or was replaced meanwhile
        if not self.is_present() or self._identity != root:
            return Scan(present=False)
        return scan

    def read(self, path: str) -> tuple[bytes, Fingerprint]:
        """Return the file's bytes, at most NOTE_LIMIT, and their fingerprint.

        Raises Gone, NotAFile, TooLarge, and NotSettled if the file changed during the read. Each of
        them and VaultTrouble is an Unreadable.
        """
        with explained(path), self._parent(path) as (folder, name):
            data, info = read(folder, name, path)
            return data, fingerprint(info)

    def writers(self, path: str) -> Writers:
        """Return whether a program has the file open for writing, as far as the kernel knows."""
        with contextlib.suppress(OSError), self._parent(path) as (folder, name):
            return writers(folder, name, ask_kernel=self._asks_kernel)
        return Writers.UNKNOWN

    def take_own(self) -> set[Content]:
        """Return the notes that were written here since the last call, by what a rename keeps."""
        with self._lock:
            own, self._own = self._own, set()
        return own

    def _wrote(self, written: Fingerprint) -> Fingerprint:
        with self._lock:
            self._own.add(written.content)
        return written

    def owner(self, path: str) -> str:
        """Return the file's owner: a user name, or `uid:1000`. Raises Gone."""
        with explained(path), self._parent(path) as (folder, name):
            return owner_of(os.stat(name, dir_fd=folder, follow_symlinks=False))

    def publish(self, path: str, data: bytes, *, in_whole: bool = False) -> bool:
        """Create a new file with these bytes, whole or not at all, and missing folders.

        With `in_whole` its content is dated a little before its name, like a file that was moved in
        (`case/settle`). Returns True if it was created, False if it already had these bytes, so it
        is safe to repeat after a crash. Raises AlreadyThere if other bytes are there; they are
        never overwritten.
        """
        with (
            explained(path),
            self._parent(path, create=True) as (folder, name),
            new_file(folder, data) as temp,
        ):
            if in_whole:
                written_ns = os.fstat(temp.handle).st_mtime_ns - BEFORE_ITS_NAME_NS
                os.utime(temp.handle, ns=(written_ns, written_ns))
            is_new = put_new(folder, temp, name, path, data)
            self._wrote(fingerprint(os.fstat(temp.handle)))
            return is_new

    def edit(self, path: str, change: Callable[[bytes], bytes]) -> tuple[bytes, bytes]:
        """Replace the file's bytes with `change` of them; retry if somebody else saved meanwhile.

        Returns the bytes before and after. Raises Changed after EDIT_TRIES attempts, OpenForWriting
        at once, the errors of `change`, and otherwise as `read` and `replace`.
        """
        for _ in range(EDIT_TRIES):
            try:
                old, _ = self.read(path)
                new = change(old)
                if new != old:
                    self.replace(path, sha256(old), new)
            except OpenForWriting:
                raise
            except (Changed, NotSettled):
                continue
            return old, new
        raise Changed(path)

    def replace(self, path: str, expected: str, data: bytes) -> Fingerprint:
        """Replace the file's bytes, which have the digest `expected`, with `data`.

        Returns the new fingerprint. Success if `data` is already there, so it is safe to repeat
        after a crash. Raises Changed if other bytes are there. If the kernel can exchange two names
        (Linux), that includes bytes saved in the very instant of the replacement. If somebody wrote
        into both the old and the new file in that instant, both are kept, one as a conflict copy.
        Raises OpenForWriting while a program has the file open for writing, where the kernel knows.
        Elsewhere, writes some microseconds later by such a program are not covered. Raises Gone,
        NotAFile, TooLarge, NotSettled. Mode is kept, and owner and group as far as this user may
        set them.
        """
        with explained(path), self._parent(path) as (folder, name):
            asks = self._asks_kernel
            return self._wrote(replace(folder, name, path, expected, data, ask_kernel=asks))

    def move(self, src: str, dst: str, expected: str) -> None:
        """Move the file whose bytes have the digest `expected` to `dst`; create missing folders.

        It is a success if the source is gone and the target has those bytes, so it is safe to
        repeat after a crash. Raises Gone, Changed, AlreadyThere (never overwrites), and
        VaultTrouble with EXDEV between two file systems.
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
                    os.unlink(old, dir_fd=source)  # a crash happened between link and unlink
                else:
                    # both names are one file: they differ in case
                    os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
            sync(target)
            sync(source)

    def remove(self, path: str, expected: str) -> bool:
        """Delete a side note or the journal's mark, if its bytes still have the digest `expected`.

        Returns whether there was one. Raises Changed if a person wrote into it, ValueError for any
        other file.
        """
        if path != TWIN and not is_side_note(path):
            raise ValueError(
                f"{show(path)} is not a side note; placet deletes nothing else of yours"
            )
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
        """Create the vault's missing folders. Raises UserError if one's name is taken."""
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
        """Write PROBE_BYTES into each existing folder and delete them; return the errors.

        Each kind of error appears once.
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
                pass  # a scan reports that
        return list(found.values())

    def create_marker(self, vault_id: str) -> str:
        """Give the vault the id `vault_id` unless it has one; return its id.

        Raises UserError if the marker holds no id, Gone if it is deleted at this moment.
        """
        if self.marker() is None:
            try:
                self.publish(MARKER, f"{vault_id}\n".encode())
            except AlreadyThere:
                if self.marker() is None:  # another process may have just written one
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
        """Give the vault a new id, because it is a copy. Raises Gone, Changed.

        The mark of the original's journal goes first: the copy has a new journal.
        """
        with contextlib.suppress(Unreadable):
            mark, _ = self.read(TWIN)
            self.remove(TWIN, sha256(mark))
        old, _ = self.read(MARKER)
        self.replace(MARKER, sha256(old), f"{vault_id}\n".encode())
        self._id = self.marker()

    def sweep_temporaries(self) -> int:
        """Delete half-written files that a crash left in the vault's folders; return their number.

        A save that a crash left under such a name becomes a conflict copy. A file that another
        process is writing stays. Files that cannot be listed or deleted stay too. No scan lists
        them, and the scan reports folders that cannot be listed.
        """
        swept = 0
        for folder in (*Folder, "System"):
            with contextlib.suppress(OSError), self._folder(folder.split("/")) as handle:
                swept += sweep(handle, 0 if folder in {Folder.KNOWLEDGE, "System"} else MAX_DEPTH)
        return swept
