"""Keep the intents of commands: one file each, written by the command and read by the daemon."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from placet.case.intents import CLAIMS, INTENT_JSON, Intent
from placet.disk.files import owner_of, put
from placet.errors import cannot_write, counted
from placet.host.state import make_private

MAX_BYTES = 2_000_000
"""Largest file that is read: a comment has at most 256 Ki characters."""
AT_ONCE = 500
"""Files that one look reads; the next look reads the others."""
CLAIM_DAYS = 7
"""Days after which an intent that only says who merged is of no use."""
_NAME = re.compile(r"([0-9]{20}-[0-9a-f]{16})\.json")
_NS_PER_DAY = 86_400 * 10**9


def new_id() -> str:
    """Return the id of a new intent; ids are in the order of time."""
    return f"{time.time_ns():020d}-{secrets.token_hex(8)}"


def leave(folder: Path, intent: Intent) -> None:
    """Write an intent's file, whole or not at all. Raises UserError."""
    path = folder / f"{intent.id}.json"
    try:
        make_private(folder)
        put(path, INTENT_JSON.dump_json(intent))
    except OSError as error:
        raise cannot_write(path, error) from error


def waiting_in(folder: Path) -> list[Intent]:
    """Return the intents in a folder that are to be performed, oldest first."""
    found = (read(folder / name) for name in sorted(_names(folder))[:AT_ONCE])
    return [one for one in found if one is not None and one.what not in CLAIMS]


def read(path: Path) -> Intent | None:
    """Return the intent in a file, `who` being the file's owner.

    None for anything else: a link, a folder, a pipe, a file of another user, half a file.
    """
    named = _NAME.fullmatch(path.name)
    if named is None:
        return None
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as file:
            info = os.fstat(file.fileno())
            is_ours = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()
            if not is_ours or info.st_size > MAX_BYTES:
                return None
            found = INTENT_JSON.validate_json(file.read(MAX_BYTES))
        needs_words = found.what in ("reject", "answer")
        if found.id != named[1] or (needs_words and len(found.texts) != 1):
            return None
        "".join((*found.texts, found.path, found.trace_id, found.name)).encode()
        return replace(found, who=owner_of(info))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _names(folder: Path) -> list[str]:
    """Return the names of all that is in the folder, but for what is being written."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.name.endswith(".tmp")]
    except OSError:
        return []


@dataclass(slots=True)
class Mailbox:
    """The intents that a daemon has read and not answered yet.

    `waiting` has the last one of each case, `claims` who merged, undid or dropped, by commit.
    `say` writes to the daemon's own log. `more` says that files are left to be read.
    """

    folder: Path
    say: Callable[[str], None]
    waiting: dict[str, Intent] = field(default_factory=dict)
    claims: dict[str, Intent] = field(default_factory=dict)
    more: bool = False
    _known: set[str] = field(default_factory=set)

    def look(self, answered: Callable[[Collection[str]], Collection[str]]) -> list[Intent]:
        """Read new files; return the intents that a later one of the same case replaces.

        `answered` returns which of some ids the journal has an answer for: a file that could not be
        deleted, or was not before a crash.
        """
        names = _names(self.folder)
        self._known.intersection_update(names)
        new = sorted(name for name in names if name not in self._known)
        self.more = len(new) > AT_ONCE
        found: list[Intent] = []
        unusable = 0
        for name in new[:AT_ONCE]:
            self._known.add(name)
            intent = read(self.folder / name)
            if intent is None:
                unusable += 1
                self._delete(name)
            else:
                found.append(intent)
        done = answered([intent.id for intent in found]) if found else ()
        self.forget(intent for intent in found if intent.id in done)
        if unusable:
            files = counted(unusable, "file")
            self.say(f"Ignored {files} in {self.folder}: no command of yours wrote them.")
        return self._sort(intent for intent in found if intent.id not in done)

    def _sort(self, found: Iterable[Intent]) -> list[Intent]:
        replaced: list[Intent] = []
        for intent in found:
            if intent.what in CLAIMS:
                self.claims[intent.digest] = intent
            else:
                if (before := self.waiting.get(intent.trace_id)) is not None:
                    replaced.append(before)
                self.waiting[intent.trace_id] = intent
        oldest = f"{time.time_ns() - CLAIM_DAYS * _NS_PER_DAY:020d}"
        self.forget([claim for claim in self.claims.values() if claim.id < oldest])
        return replaced

    def forget(self, intents: Iterable[Intent]) -> None:
        """Delete intents that were answered."""
        for intent in intents:
            for kept, key in ((self.waiting, intent.trace_id), (self.claims, intent.digest)):
                if key in kept and kept[key].id == intent.id:
                    del kept[key]
            self._delete(f"{intent.id}.json")

    def _delete(self, name: str) -> None:
        with suppress(OSError):
            (self.folder / name).unlink(missing_ok=True)
