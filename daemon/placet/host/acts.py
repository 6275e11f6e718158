"""The word that a person's own command leaves outside of the vault: who decides what.

Nobody can tell who moved a file, and whoever can write the vault can write any name into a note. So
the command line writes here who decides what about which text, does it, and writes that it is done.
The daemon takes the word for a gesture of that kind with that text, now or at its next start. The
word of a command that was cut off does not count: somebody else may change the note later.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from placet.core.errors import cannot_write
from placet.disk import lock

_MAX_BYTES = 4096
PATIENCE_S = 10.0
"""Seconds for which a command waits for another one."""


@dataclass(frozen=True, slots=True)
class Word:
    """A decision about the text with this `digest`: by `who`, `via` which command.

    Of a merge, and of one that is taken back, `digest` is the branch's name.
    """

    what: Literal["approve", "reject", "revise", "retry", "answer", "stop", "merge", "undo"]
    digest: str
    who: str
    via: str


@contextmanager
def leave_word(folder: Path, trace_id: str, word: Word) -> Iterator[None]:
    """Leave word of the block's action on this case's plan; take it back if the block fails.

    It counts while this process locks it, and for good once it ends in `done`. One command at a
    time: of two for one note the later one fails, and what the earlier one said is put back. Raises
    UserError if no word can be left; then the block does not run.
    """
    path, temp = _path(folder, trace_id), folder / f".{secrets.token_hex(8)}"
    before = temp.with_suffix(".before")
    said = (
        json.dumps({"what": word.what, "digest": word.digest, "who": word.who, "via": word.via})
        + "\n"
    )
    with ExitStack() as stack:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            stack.enter_context(_alone(folder))
            handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            file = stack.enter_context(os.fdopen(handle, "wb", buffering=0))
            lock(handle)
            file.write(said.encode())
            os.fsync(handle)
            with suppress(FileNotFoundError):
                path.rename(before)
            stack.callback(before.unlink, missing_ok=True)
            temp.replace(path)
        except OSError as error:
            with suppress(OSError):
                temp.unlink(missing_ok=True)
            raise cannot_write(path, error) from error
        try:
            yield
        except BaseException:
            with suppress(OSError):
                if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                    path.unlink()
                    before.rename(path)
            raise
        file.write(b"done\n")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one command at a time leave word. Raises OSError where another takes over PATIENCE_S."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + PATIENCE_S
        while not lock(handle):
            if time.monotonic() > end:
                raise OSError(errno.EBUSY, "another command of placet is at work there")
            time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def word_of(folder: Path, trace_id: str) -> Word | None:
    """Return the word that counts for a case; None for none."""
    try:
        with os.fdopen(
            os.open(
                _path(folder, trace_id), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            ),
            "rb",
        ) as file:
            at_it = not lock(
                file.fileno(), shared=True
            )  # before it is read: the command may end in between
            said, _, rest = file.read(_MAX_BYTES).partition(b"\n")
            if rest != b"done\n" and not at_it:
                return None
        return Word(**json.loads(said))
    except (OSError, ValueError, TypeError, RecursionError):  # none, or of another version
        return None


def forget(folder: Path, trace_id: str) -> None:
    """Delete a word that was used, or that is outdated."""
    with suppress(OSError):
        _path(folder, trace_id).unlink(missing_ok=True)


def _path(folder: Path, trace_id: str) -> Path:
    return folder / f"{trace_id}.json"
