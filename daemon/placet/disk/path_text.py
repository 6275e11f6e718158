"""Check the text of a path as a model writes it. Nothing here accesses the disk."""

from __future__ import annotations

import errno
import os
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from placet.errors import ToolError

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
