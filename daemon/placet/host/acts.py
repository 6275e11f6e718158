"""Who did it: the word that a person's own command leaves, outside of the vault, of what it is about to do in it.

Who moved a file is nowhere to be read, and what a note says of itself anybody can write who can write the vault. So the command
line says here who decides what of which text, does it, and says that it is done. The daemon, now or at its next start, takes the
word for a gesture of that kind with that text. A command that was cut off before it was done leaves a word that counts for
nothing: what happens to the note later may be anybody's.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from placet.core.errors import cannot_write
from placet.disk import lock

_MAX_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Word:
    """What somebody decides: of the note's text with this `digest`, `who` by name, `via` how, as the journal says it."""

    what: Literal["approve", "reject", "revise", "retry"]
    digest: str
    who: str
    via: str


@contextmanager
def leave_word(folder: Path, trace_id: str, word: Word) -> Iterator[None]:
    """Leave word of what is done inside, to this case's plan; take it back if that fails.

    Raises UserError where no word can be left; then nothing was done.

    It counts while it is locked, as long as this process is at it, and for good once it ends in
    `done`.
    """
    path, temp = _path(folder, trace_id), folder / f".{secrets.token_hex(8)}"
    said = (
        json.dumps({"what": word.what, "digest": word.digest, "who": word.who, "via": word.via})
        + "\n"
    )
    with ExitStack() as stack:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            file = stack.enter_context(os.fdopen(handle, "wb", buffering=0))
            lock(handle)
            file.write(said.encode())
            os.fsync(handle)
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
            raise
        file.write(b"done\n")


def word_of(folder: Path, trace_id: str) -> Word | None:
    """Return the word that counts for a case, None where there is none."""
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
    except (OSError, ValueError, TypeError, RecursionError):  # none, or none that this version left
        return None


def forget(folder: Path, trace_id: str) -> None:
    """Take a word away that was taken for a gesture, or that something else came before."""
    with suppress(OSError):
        _path(folder, trace_id).unlink(missing_ok=True)


def _path(folder: Path, trace_id: str) -> Path:
    return folder / f"{trace_id}.json"
