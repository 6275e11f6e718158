"""Define the errors that the vault or its file system raises about a file."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from placet.errors import PlacetError, UserError
from placet.note.paths import show

RETRIED = "the daemon retries by itself."
"""The end of a hint. A command replaces it, because it does not retry by itself."""
_RIGHTS = "Give the user that runs placet the right to read and write there."
_HINTS = {
    errno.ENOSPC: f"The disk is full. Free some space; {RETRIED}",
    errno.EDQUOT: f"The disk quota is used up. Free some space; {RETRIED}",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: f"Mount that file system writable; {RETRIED}",
    errno.EXDEV: "The two folders are on different file systems. Keep the whole vault on one.",
    errno.ENOTDIR: "A file stands where a folder must be. Move it away, then run `placet init`.",
    errno.ELOOP: "A link stands where a file or a folder must be. placet does not follow links "
    "in the vault: put the file or folder itself there.",
    errno.ENAMETOOLONG: "Give it a shorter name.",
}


class Unreadable(PlacetError):  # noqa: N818 - a result, not a failure
    """A file of the vault cannot be read now; the subclass says why."""


class VaultTrouble(UserError, Unreadable):  # noqa: N818 - the system failed, not placet
    """The file system refused: `path` is vault-relative, `errno` says why. Nothing is half done."""

    errno: int

    def __init__(self, path: str, error: OSError) -> None:
        self.path = path
        self.errno = error.errno or errno.EIO
        super().__init__(f"{show(path)}: {os.strerror(self.errno)}.", _HINTS.get(self.errno, ""))


class _AboutPath(PlacetError):  # noqa: N818 - a result, not a failure
    """A result about one file, which `path` names relative to the vault."""

    sentence = ""

    def __init__(self, path: str) -> None:
        super().__init__(f"{show(path)} {self.sentence}")
        self.path = path


class Stale(_AboutPath, Unreadable):
    """The file is not the one that the decision was about. Read it and decide again."""


class Changed(Stale):
    """The file has other bytes than those that the decision was about."""

    sentence = "holds other text than the one that was decided on"


class Gone(Stale):
    """The file, or a folder on the way to it, is missing."""

    sentence = "is no longer there"


class NotSettled(Stale):
    """The file changed during the read."""

    sentence = "is still being written"


class OpenForWriting(NotSettled):
    """A program has the file open for writing."""

    sentence = "is open in a program that may still write it"


class NotAFile(_AboutPath, Unreadable):
    """A link, a folder or a special file has the name of a note."""

    sentence = "is not an ordinary file"


class TooLarge(_AboutPath, Unreadable):
    """The file is larger than the limit of the read."""

    sentence = "is too large for a note"


class AlreadyThere(_AboutPath):
    """The wanted name is taken: by other bytes, by a folder or by a link."""

    sentence = "is there already, with other content"


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn the system's errors into VaultTrouble, and "no such file" into Gone."""
    try:
        yield
    except FileNotFoundError:
        raise Gone(path) from None
    except OSError as error:
        raise VaultTrouble(path, error) from error
