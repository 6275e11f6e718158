"""Git's formats for what a commit is made of: objects, and the index of a worktree of ours.

Written here, since a commit by git's own commands takes four processes that each read the index anew: what they do
for plain files is a few lines. After gitformat-index(5), gitformat-loose(5) and git's object format. Whatever is out
of the ordinary raises `Peculiar`, and the caller leaves it to git: then git refuses it, converts it or knows better.

Both of git's digests are known, by their length: SHA-1 and SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import struct
import zlib
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from placet.repo.runner import Author, GitError

MAX_PLAIN_BYTES = 16 * 1024 * 1024
"""Larger files, or more of them together, are left to git, which need not hold them in memory."""

MAX_PLAIN_FILES = 50
"""More files are left to git, which flushes them to the disk all at once: from there on it is faster."""

_LINK, _EXECUTABLE, _PLAIN, _MODULE = 0o120000, 0o100755, 0o100644, 0o160000
_HEADER = struct.Struct(">4sLL")
_STAT = struct.Struct(">10L")  # ctime, mtime (s, ns), device, inode, mode, uid, gid, size
_EXTENDED, _STAGE, _LENGTH = 0x4000, 0x3000, 0x0FFF
_SKIP_WORKTREE, _INTENT_TO_ADD = 0x4000, 0x2000  # of the extended flags
# A name that some system takes for `.git` or one of git's files: git refuses most of them, and knows which.
_DISGUISED = re.compile(rb"(?i)(?:^|/)(?:\.git(?![a-z])|\.gitmodules|\.{0,2}(?:/|$))|~[1-9]|\\|\xe2[\x80\x81]|\xef\xbb")


SETTINGS = (("index.version", "2"), ("core.splitIndex", "false"), ("core.untrackedCache", "false"), ("index.sparse", "false"),
            ("core.safecrlf", "false"))
"""What git is told in worktrees of ours, whatever the person has set, so that their index can be read here.

And so that it takes files as the hand-made way does: where `core.safecrlf` is true, it refuses every file that a check-out
would give other line ends.
"""


class Peculiar(Exception):  # noqa: N818 - no error: it says that git must do it
    """What is asked for is not plain enough to be done here."""


# --- objects --------------------------------------------------------------------------------------------------


def digest_of(kind: bytes, content: bytes, size: int) -> bytes:
    """Return the digest, of `size` bytes, of an object: "blob", "tree" or "commit"."""
    return _hash(size, b"%s %d\0" % (kind, len(content)), content)


def _hash(size: int, *pieces: bytes) -> bytes:
    digest = hashlib.sha1(usedforsecurity=False) if size == 20 else hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def write_object(objects: Path, kind: bytes, content: bytes, size: int) -> bytes:
    """Put an object into the folder `objects`, flushed to the disk, and return its digest.

    One that is there as a file is kept and made young again, so that a `git gc` at this moment keeps it too. Raises
    GitError where it cannot be written.
    """
    digest = digest_of(kind, content, size)
    name = digest.hex()
    path = objects / name[:2] / name[2:]
    with suppress(OSError):
        if path.stat().st_size:  # a power cut leaves empty ones of a git that did not flush them
            os.utime(path)
            return digest
    raw = zlib.compress(b"%s %d\0" % (kind, len(content)) + content, 1)
    for last in (False, False, True):
        try:
            _write_file(path, raw)
            break
        except FileNotFoundError as error:  # `git gc` removes folders that are empty
            if last:
                raise _refused("hash-object", path, error) from error
        except OSError as error:
            raise _refused("hash-object", path, error) from error
    return digest


def _write_file(path: Path, raw: bytes) -> None:
    folder = path.parent
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)
        folder.chmod(stat.S_IMODE(folder.parent.stat().st_mode))  # a shared repository's folders are the group's
    new = folder / f"tmp_obj_{secrets.token_hex(6)}"  # the name by which `git gc` knows what a kill left
    try:
        with new.open("xb") as file:
            file.write(raw)
            file.flush()
            os.fchmod(file.fileno(), 0o444)
            os.fsync(file.fileno())
        new.rename(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _refused(command: str, path: Path, error: OSError) -> GitError:
    """Return the error that git would have ended with, which says what is wrong in the repository."""
    return GitError((command,), 128, f"unable to write {path}: {error.strerror}")


def read_commit(objects: Path, sha: str) -> dict[str, str] | None:
    """Return the first of each header of a commit that is a file of its own ("tree", "parent", …); None for any other."""
    try:
        raw = zlib.decompress((objects / sha[:2] / sha[2:]).read_bytes())
    except (OSError, zlib.error):
        return None
    head, _, content = raw.partition(b"\0")
    if not head.startswith(b"commit "):
        return None
    lines = content.partition(b"\n\n")[0].decode("utf-8", "replace").splitlines()
    return {name: value for name, _, value in (line.partition(" ") for line in reversed(lines))}


def write_commit(
    objects: Path, tree: str, parent: str | None, message: str, who: Author, when: datetime,
) -> str:
    """Make a commit of `tree`, on no reference, by exactly this author, who is its committer too, at this time; return it."""
    lines = [f"tree {tree}"]
    if parent is not None:
        lines.append(f"parent {parent}")
    lines += [f"{role} {who.name.strip()} <{who.email.strip()}> {int(when.timestamp())} +0000" for role in ("author", "committer")]
    text = "\n".join(lines) + "\n\n" + message
    content = text.encode("utf-8", "replace")
    return write_object(objects, b"commit", content.replace(b"\0", b""), len(tree) // 2).hex()


# --- what is in a worktree ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """A file as it is in the worktree: what the index remembers of it, and its content (of a link: where it points)."""

    info: os.stat_result
    content: bytes

    @property
    def mode(self) -> int:
        """Its mode, of the three that git knows."""
        if stat.S_ISLNK(self.info.st_mode):
            return _LINK
        return _EXECUTABLE if self.info.st_mode & 0o100 else _PLAIN


def look(top: int, path: bytes) -> Found:
    """Read a file below the folder that is open as `top`, through no link. Raises Peculiar where that is not simple."""
    if _DISGUISED.search(path):
        raise Peculiar(path)
    *folders, name = path.split(b"/")
    at = os.dup(top)
    try:
        for folder in folders:
            below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = below
        info = os.stat(name, dir_fd=at, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            return Found(info, os.readlink(name, dir_fd=at))
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_PLAIN_BYTES:
            raise Peculiar(path)
        with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=at), "rb") as file:
            info = os.fstat(file.fileno())
            content = file.read(MAX_PLAIN_BYTES + 1)
            if not stat.S_ISREG(info.st_mode) or len(content) != info.st_size:
                raise Peculiar(path)
            return Found(info, content)
    except OSError as error:  # it went away or became something else just now, or is not ours to read
        raise Peculiar(path) from error
    finally:
        os.close(at)


# --- the index ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Folder:
    """What the index knows of a folder: the digest of its tree (empty: to be made), how many files are in it, its folders."""

    digest: bytes = b""
    count: int = 0
    folders: dict[bytes, _Folder] = field(default_factory=dict)


class Index:
    """The index of a worktree of ours, read whole and changed in memory; `write` puts it in place.

    Raises Peculiar for what placet's worktrees do not have: an index that is split or sparse, compressed names,
    files in conflict.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size = path, size
        self._entries: dict[bytes, bytes] = {}
        self._paths: list[bytes] = []  # of the entries, sorted
        self._top = _Folder()
        self._version = 2
        self.changed: set[bytes] = set()  # the paths that were put in or dropped: no other one differs in a tree made from here
        self._odd = False  # it has files that are to be in no tree
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            self._times = info.st_atime_ns, info.st_mtime_ns
            raw = file.read()
        try:
            self._parse(raw)
        except (struct.error, ValueError, IndexError) as error:
            raise Peculiar(path) from error

    def _parse(self, raw: bytes) -> None:
        magic, self._version, count = _HEADER.unpack_from(raw)
        body, seal = raw[:-self._size], raw[-self._size:]
        if magic != b"DIRC" or self._version not in (2, 3) or (any(seal) and seal != _hash(self._size, body)):
            raise Peculiar(self._path)
        at, fixed = _HEADER.size, _STAT.size + self._size
        for _ in range(count):
            flags = raw[at + fixed] << 8 | raw[at + fixed + 1]
            if flags & _STAGE:
                raise Peculiar(self._path)
            start = at + fixed + (4 if flags & _EXTENDED else 2)
            self._odd = self._odd or bool(flags & _EXTENDED and raw[start - 2] & _INTENT_TO_ADD >> 8)
            end = raw.index(b"\0", start)
            after = at + ((end - at + 8) & ~7)
            self._entries[raw[start:end]] = raw[at:after]
            at = after
        self._paths = list(self._entries)
        while at < len(raw) - self._size:
            name, length = struct.unpack_from(">4sL", raw, at)
            data = raw[at + 8:at + 8 + length]
            at += 8 + length
            if name == b"TREE":
                self._top = self._folders(data)
            elif not name[:1].isupper():  # git, too, gives up at one that it must know and does not
                raise Peculiar(self._path)

    def _folders(self, data: bytes) -> _Folder:
        top = made = _Folder()
        around: list[tuple[_Folder, int]] = []  # the folders around the one that is read, and how many more each has
        at = 0
        while True:
            end = data.index(b"\0", at)
            name, at = data[at:end], data.index(b"\n", end) + 1
            count, below = map(int, data[end + 1:at].split(b" "))
            if count >= 0:
                made.digest, made.count, at = data[at:at + self._size], count, at + self._size
            if around:
                around[-1][0].folders[name] = made
            around.append((made, below))
            while around and not around[-1][1]:
                around.pop()
            if not around:
                break
            around[-1] = around[-1][0], around[-1][1] - 1
            made = _Folder()
        if at != len(data):
            raise Peculiar(self._path)
        return top

    def __contains__(self, path: bytes) -> bool:
        return path in self._entries

    def named(self, name: bytes = b"") -> list[bytes]:
        """Return the paths of all files, or of those that are called `name` in whatever folder."""
        return [path for path in self._paths if not name or path == name or path.endswith(b"/" + name)]

    def modules(self) -> list[bytes]:
        """Return the paths of the submodules."""
        return [path for path, entry in self._entries.items() if int.from_bytes(entry[24:28], "big") == _MODULE]

    def absent(self) -> list[bytes]:
        """Return the paths of the files that are not checked out, as git has been told."""
        flags = _STAT.size + self._size
        return [path for path, entry in self._entries.items()
                if entry[flags] & _EXTENDED >> 8 and entry[flags + 2] & _SKIP_WORKTREE >> 8]

    def folders_in(self, folder: bytes) -> list[bytes]:
        """Return the paths of the folders that are right in a folder; b"" is the top one."""
        start = folder + b"/" if folder else b""
        at, end = self._after(start), self._after(folder + b"0") if folder else len(self._paths)
        found = []
        while at < end:
            path = self._paths[at]
            slash = path.find(b"/", len(start))
            if slash < 0:
                at += 1
            else:
                found.append(path[:slash])
                at = self._after(path[:slash] + b"0")
        return found

    def put(self, objects: Path, path: bytes, found: Found, *, keep_mode: bool) -> None:
        """Put a file into the index, in the place of whatever is at its path, above it or below it, and its content into `objects`.

        Where `keep_mode`, its executable bit is as it was (`core.fileMode` is false).
        """
        info, mode = found.info, found.mode
        old = self._entries.get(path)
        if keep_mode and mode != _LINK:
            was = int.from_bytes(old[24:28], "big") if old is not None else 0
            mode = was if was in (_PLAIN, _EXECUTABLE) else _PLAIN
        parts = path.split(b"/")
        for n in range(1, len(parts)):
            if (above := b"/".join(parts[:n])) in self._entries:
                self.drop(above)
        if old is None:
            for below in self._paths[self._after(path + b"/"):self._after(path + b"0")]:  # "0" comes right after "/"
                self.drop(below)
            self._paths.insert(self._after(path), path)
        digest = write_object(objects, b"blob", found.content, self._size)
        times = [part for ns in (info.st_ctime_ns, info.st_mtime_ns) for part in divmod(ns, 1_000_000_000)]
        numbers = [*times, info.st_dev, info.st_ino, mode, info.st_uid, info.st_gid, info.st_size]
        entry = _STAT.pack(*(number & 0xFFFFFFFF for number in numbers)) + digest
        entry += struct.pack(">H", min(len(path), _LENGTH)) + path
        self._entries[path] = entry + b"\0" * (8 - len(entry) % 8)
        self._forget(path)

    def drop(self, path: bytes) -> None:
        """Take a file out of the index."""
        del self._entries[path]
        del self._paths[self._after(path)]
        self._forget(path)

    def _after(self, path: bytes) -> int:
        """Return how many of the paths come before this one."""
        return bisect_left(self._paths, path)

    def _forget(self, path: bytes) -> None:
        """The trees of the folders above `path` are others now."""
        self.changed.add(path)
        folder, parts = self._top, path.split(b"/")
        folder.digest = b""
        for part in parts[:-1]:
            folder = folder.folders.setdefault(part, _Folder())
            folder.digest = b""
        folder.folders.pop(parts[-1], None)

    def tree(self, objects: Path) -> str:
        """Return the tree of everything in the index; trees that are new are put into `objects`."""
        if self._odd:
            raise Peculiar(self._path)
        try:
            self._build(objects, self._top, 0, len(self._paths), 0)
        except RecursionError as error:  # hundreds of folders within each other
            raise Peculiar(self._path) from error
        return self._top.digest.hex()

    def _build(self, objects: Path, folder: _Folder, low: int, high: int, skip: int) -> None:
        """Make the tree of the files from `low` to `high`, whose paths have the folder's own in their first `skip` bytes."""
        if folder.digest:
            return
        rows: list[tuple[bytes, bytes]] = []
        below: dict[bytes, _Folder] = {}
        at = low
        while at < high:
            path = self._paths[at]
            slash = path.find(b"/", skip)
            if slash < 0:
                entry, name = self._entries[path], path[skip:]
                mode = b"%o" % int.from_bytes(entry[24:28], "big")
                rows.append((name, mode + b" " + name + b"\0" + entry[_STAT.size:_STAT.size + self._size]))
                at += 1
                continue
            name = path[skip:slash]
            after = self._after(path[:slash] + b"0")
            inner = below[name] = folder.folders.get(name) or _Folder()
            self._build(objects, inner, at, after, slash + 1)
            rows.append((name + b"/", b"40000 " + name + b"\0" + inner.digest))
            at = after
        content = b"".join(row for _, row in sorted(rows))  # git sorts a folder as if its name ended in a slash
        folder.digest = write_object(objects, b"tree", content, self._size)
        folder.count, folder.folders = high - low, below

    def write(self) -> None:
        """Put the index in place, after `tree`. Raises GitError where another git is writing it, or it cannot be written.

        It keeps the old one's time: git looks into each file that is not older than the index, and so into those
        that changed since, whose times may not tell.
        """
        lock = self._path.with_name(f"{self._path.name}.lock")
        known = self._tree_rows()
        body = b"".join((_HEADER.pack(b"DIRC", self._version, len(self._paths)), *(self._entries[path] for path in self._paths),
                         struct.pack(">4sL", b"TREE", len(known)), known))
        try:
            file = lock.open("xb")
        except FileExistsError:
            raise GitError(("update-index",), 128, f"Unable to create '{lock}': File exists.") from None
        try:
            with file:
                file.write(body + _hash(self._size, body))
            os.utime(lock, ns=self._times)
            lock.rename(self._path)
        except OSError as error:
            lock.unlink(missing_ok=True)
            raise _refused("update-index", self._path, error) from error

    def _tree_rows(self) -> bytes:
        rows, ahead = [], [(b"", self._top)]
        while ahead:
            name, folder = ahead.pop()
            rows.append(b"%s\0%d %d\n%s" % (name, folder.count, len(folder.folders), folder.digest))
            ahead += reversed(folder.folders.items())
        return b"".join(rows)
