"""The text of a path as a model writes it: checked, made canonical, or refused with a reason.

Nothing here looks at a disk: `confine` opens what this gives.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from enum import StrEnum

from placet.errors import ToolError
from placet.files.denied import Denied

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
