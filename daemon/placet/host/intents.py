"""Keep the intents of commands: one file each, written by the command and read by the daemon.

The files are numbered in the order in which they were left.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from placet.case.intents import CLAIMS, EDITS, INTENT_JSON, Intent
from placet.disk.files import owner_of, put
from placet.errors import UserError, cannot_write
from placet.host.state import make_private
from placet.wording import counted

MAX_BYTES = 2_000_000
"""Largest file that is read: a comment has at most 256 Ki characters."""
AT_ONCE = 500
"""Files that one look reads; the next look reads the others."""
CLAIM_S = 7 * 86_400
"""Seconds after which an intent that only says who merged is of no use."""
_NAME = re.compile(r"([0-9]{20})\.json")
_ID = re.compile(r"[0-9a-f]{32}")


def new_id() -> str:
    """Return the id of a new intent, which no other has."""
    return secrets.token_hex(16)


def leave(folder: Path, intent: Intent) -> None:
    """Write an intent's file, whole or not at all, with the next number. Raises UserError."""
    staged = folder / f"{intent.id}.{os.getpid()}.tmp"
    try:
        make_private(folder)
        put(staged, INTENT_JSON.dump_json(intent), aside=staged)
        taken = [int(named[1]) for name in _names(folder) if (named := _NAME.fullmatch(name))]
        for number in count(1 + max(taken, default=0)):  # pragma: no branch
            with suppress(FileExistsError):  # another command was quicker
                os.link(staged, folder / f"{number:020d}.json")
                break
    except OSError as error:
        raise cannot_write(folder, error) from error
    finally:
        with suppress(OSError):  # a folder that cannot be written
            staged.unlink()


def waiting_in(folder: Path) -> list[Intent]:
    """Return the intents in a folder that are to be performed, oldest first. Raises UserError."""
    try:
        names = _names(folder)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be read: {error.strerror}.", "See what is wrong: placet doctor"
        ) from error
    found = (read(folder / name) for name in sorted(names)[:AT_ONCE])
    return [one for one in found if isinstance(one, Intent) and one.what not in CLAIMS]


@dataclass(frozen=True, slots=True)
class UnknownIntent:
    """An intent that only a newer placet can perform."""

    id: str
    what: str


def read(path: Path) -> Intent | UnknownIntent | None:
    """Return the intent in a file, `who` being the file's owner.

    None for anything else: a link, a folder, a pipe, a file of another user, half a file.
    """
    if not _NAME.fullmatch(path.name):
        return None
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as file:
            info = os.fstat(file.fileno())
            is_ours = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()
            if not is_ours or info.st_size > MAX_BYTES:
                return None
            raw = file.read(MAX_BYTES)
    except OSError:
        return None
    try:
        found = INTENT_JSON.validate_json(raw)
        needs_words = found.what in ("reject", "answer")
        if not _ID.fullmatch(found.id) or (needs_words and len(found.texts) != 1):
            return None
        "".join((*found.texts, found.path, found.trace_id, found.name, found.signature)).encode()
        return replace(found, who=owner_of(info))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return _unknown(raw)


def _unknown(raw: bytes) -> UnknownIntent | None:
    """Return an intent that this placet does not know, if its id is readable."""
    with suppress(ValueError, RecursionError):
        found = json.loads(raw)
        if isinstance(found, dict) and _ID.fullmatch(str(found.get("id"))):
            return UnknownIntent(found["id"], str(found.get("what")))
    return None


def _names(folder: Path) -> list[str]:
    """Return the names of all that is in the folder, but for what is being written.

    Raises OSError, but for a folder that is not there yet.
    """
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.name.endswith(".tmp")]
    except FileNotFoundError:
        return []


@dataclass(slots=True)
class NewIntents:
    """What a look at the folder found besides intents to perform, each to be answered.

    `replaced` are decisions that a later one of the same case replaces.
    """

    replaced: list[Intent] = field(default_factory=list)
    unknown: list[UnknownIntent] = field(default_factory=list)


Claim = tuple[str, str, str]
"""What was done, in which case, and the commit."""


@dataclass(slots=True)
class Mailbox:
    """The intents that a daemon has read and not answered yet."""

    folder: Path
    say: Callable[[str], None]
    """Writes to the daemon's log."""
    waiting: dict[str, tuple[Intent, ...]] = field(default_factory=dict)
    """The intents of each case in order: edits, and one decision."""
    claims: dict[Claim, Intent] = field(default_factory=dict)
    """Who merged, undid or dropped."""
    more: bool = False
    """Whether files are left to be read."""
    _files: dict[str, str] = field(default_factory=dict)
    """Names of files, by intent."""
    _known: set[str] = field(default_factory=set)
    _problem: str = ""

    def look(self, answered: Callable[[Collection[str]], Collection[str]]) -> NewIntents:
        """Read new files; return what is to be answered at once.

        `answered` returns which of some ids the journal has an answer for: a file that could not be
        deleted, or was not before a crash.
        """
        try:
            names = _names(self.folder)
        except OSError as error:  # what waits is not gone
            self._say_once(f"{self.folder} cannot be read: {error.strerror}. placet tries again.")
            return NewIntents()
        self._problem = ""
        self._known.intersection_update(names)
        new = sorted(name for name in names if name not in self._known)
        self.more = len(new) > AT_ONCE
        found: list[Intent | UnknownIntent] = []
        unusable = 0
        for name in new[:AT_ONCE]:
            self._known.add(name)
            intent = read(self.folder / name)
            if intent is None or intent.id in self._files:
                unusable += 1
                self._delete(name)
            else:
                self._files[intent.id] = name
                found.append(intent)
        done = answered([intent.id for intent in found]) if found else ()
        self.forget(intent.id for intent in found if intent.id in done)
        if unusable:
            files = counted(unusable, "file")
            self.say(f"Ignored {files} in {self.folder}: no command of yours wrote them.")
        return self._sort(intent for intent in found if intent.id not in done)

    def _say_once(self, problem: str) -> None:
        if problem != self._problem:
            self.say(problem)
        self._problem = problem

    def _sort(self, found: Iterable[Intent | UnknownIntent]) -> NewIntents:
        new = NewIntents()
        for intent in found:
            if isinstance(intent, UnknownIntent):
                new.unknown.append(intent)
            elif intent.what in CLAIMS:
                self.claims[intent.what, intent.trace_id, intent.digest] = intent
            else:
                stay = self.waiting.get(intent.trace_id, ())
                if intent.what not in EDITS:
                    new.replaced += [one for one in stay if one.what not in EDITS]
                    stay = tuple(one for one in stay if one.what in EDITS)
                self.waiting[intent.trace_id] = (*stay, intent)
        self.forget([claim.id for claim in self.claims.values() if self._is_old(claim)])
        return new

    def _is_old(self, claim: Intent) -> bool:
        with suppress(OSError):
            made_s = (self.folder / self._files[claim.id]).stat().st_mtime
            return made_s < time.time() - CLAIM_S
        return False

    def forget(self, ids: Iterable[str]) -> None:
        """Delete intents that were answered."""
        gone = set(ids)
        for trace, kept in list(self.waiting.items()):
            if left := tuple(one for one in kept if one.id not in gone):
                self.waiting[trace] = left
            else:
                del self.waiting[trace]
        self.claims = {key: one for key, one in self.claims.items() if one.id not in gone}
        for one in gone:
            if (name := self._files.pop(one, "")) != "":
                self._delete(name)

    def _delete(self, name: str) -> None:
        with suppress(OSError):
            (self.folder / name).unlink(missing_ok=True)
            self._known.discard(name)  # a later file may get the number again
