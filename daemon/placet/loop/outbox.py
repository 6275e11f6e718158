"""Perform the commands of decisions on the vault.

Each command is idempotent, so that it can be repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import assert_never

from placet.case.callout import box_written
from placet.case.case import Case
from placet.case.commands import (
    COMMAND_JSON,
    Command,
    Edit,
    Move,
    Publish,
    Rewrite,
    Stamp,
    WriteBox,
)
from placet.case.intents import with_ticks
from placet.case.life_cycle import State
from placet.case.notes import (
    REQUEST_KEYS,
    keeps_status,
    note_identity,
    trace_of,
)
from placet.codec import sha256
from placet.disk.errors import AlreadyThere, Changed, Gone, NotAFile, Stale, TooLarge, VaultTrouble
from placet.disk.vault import Vault
from placet.errors import BUGS, describe_bug
from placet.host.clock import Clock
from placet.journal.writer import JournalAccess
from placet.journal.writes import BodyDamaged, MarkDone, MarkFailed, PendingCommand, Write
from placet.note.frontmatter import Frontmatter, UnsafeEdit, read_note, stamp
from placet.note.meaning import meaning_of
from placet.note.paths import QUEUES, Folder, is_note, numbered, show, with_suffix
from placet.plan.comments import with_comments
from placet.plan.digest import REQUEST_STAMPS, digest

_NOT_NOW = (VaultTrouble, Stale, AlreadyThere, NotAFile, TooLarge, BodyDamaged)
MAX_BACKOFF_S = 60.0
DONE_AT_ONCE_S = 0.05  # how long finished commands may wait to be marked as done together


@dataclass(frozen=True, slots=True)
class OutboxPorts:
    """What commands need: the vault, stored texts by name, and the frontmatter for new notes."""

    vault: Vault
    text: Callable[[str], bytes]
    frontmatter: Frontmatter


@dataclass(slots=True)
class Outbox:
    """The recorded commands that were not performed yet, in order."""

    journal: JournalAccess
    clock: Clock
    say: Callable[[str], None]
    """Writes to the daemon's log."""
    reported: Callable[[Case, str, str, int], Sequence[Write]]
    """Returns the writes for a published report.

    It takes the case, the path that was meant, the path it has, and its size in bytes.
    """
    edited: Callable[[Case, Edit, bytes, str], Sequence[Write]]
    """Returns the writes for a person's edit that was tried.

    It takes the case, the edit, the note's text afterwards, and why it was not made.
    """
    pending: list[PendingCommand] = field(default_factory=list)
    _retry_at: dict[int, float] = field(default_factory=dict)
    _tried: set[int] = field(default_factory=set)
    """Commands that may have been performed before a crash."""

    def load(self, commands: Iterable[PendingCommand]) -> None:
        """Load the commands that an earlier daemon left."""
        self.pending = list(commands)
        self._tried = {command.id for command in self.pending}

    def forget(self) -> None:
        """Drop all commands: they were decided for an older state of the notes."""
        self.journal.commit([MarkDone(command.id) for command in self.pending])
        self.load([])

    @property
    def busy(self) -> set[str]:
        """The trace ids of cases with commands to perform; their notes are not up to date yet."""
        return {command.trace_id for command in self.pending}

    def perform(self, cases: Mapping[str, Case], desk: OutboxPorts) -> bool:
        """Perform the due commands, in order; return whether any was performed.

        One that fails delays the later ones of its case.
        """
        now = self.clock.monotonic()
        held: set[str] = set()
        left: list[PendingCommand] = []
        done: list[Write] = []
        marked_at = now
        # Decisions of people go before the stamps of a thousand new requests.
        in_order = sorted(
            self.pending, key=lambda pending: cases[pending.trace_id].acting is State.PLANNING
        )
        for pending in in_order:
            if pending.trace_id in held or self._retry_at.get(pending.id, now) > now:
                held.add(pending.trace_id)
                left.append(pending)
                continue
            command, case = COMMAND_JSON.validate_json(pending.command), cases[pending.trace_id]
            again = pending.id in self._tried
            self._tried.add(pending.id)
            try:
                follows = self._follows(command, case, desk, again=again)
            except (*_NOT_NOW, *BUGS) as error:
                held.add(pending.trace_id)
                known = isinstance(error, _NOT_NOW)
                why = str(error) if known else f"{case.request_id}: {describe_bug(error)}"
                left.append(self._put_off(pending, why))
                continue
            done.append(MarkDone(pending.id))
            self._retry_at.pop(pending.id, None)
            if follows:
                self.journal.commit([*done, *follows])
                done, marked_at = [], self.clock.monotonic()
            elif self.clock.monotonic() > marked_at + DONE_AT_ONCE_S:
                self.journal.commit(done)
                done, marked_at = [], self.clock.monotonic()
        if done:
            self.journal.commit(done)
        performed = len(left) < len(self.pending)
        self.pending = left
        self._tried &= {command.id for command in left}
        return performed

    def _follows(
        self, command: Command, case: Case, desk: OutboxPorts, *, again: bool
    ) -> Sequence[Write]:
        """Perform a command; return what is recorded with it, besides that it is done."""
        if isinstance(command, Edit) and command.intent:
            return self.edited(case, command, *_edit(command, case, desk))
        place = perform(command, case, desk, again=again)
        if (
            isinstance(command, Publish)
            and command.path.startswith(f"{Folder.REPORTS}/")
            and is_note(command.path)
        ):
            return self.reported(case, command.path, place, len(desk.text(command.text)))
        return ()

    def waits_s(self) -> list[float]:
        """Return for each case the seconds until its first command is due."""
        now = self.clock.monotonic()
        firsts = {command.trace_id: command.id for command in reversed(self.pending)}
        return [self._retry_at.get(first, now) - now for first in firsts.values()]

    def _put_off(self, pending: PendingCommand, error: str) -> PendingCommand:
        wait_s = min(MAX_BACKOFF_S, 0.5 * 2 ** min(pending.attempts, 10))
        self._retry_at[pending.id] = self.clock.monotonic() + wait_s
        if error != pending.error:
            self.say(error)
        self.journal.commit([MarkFailed(pending.id, error)])
        return replace(pending, attempts=pending.attempts + 1, error=error)


def perform(
    command: Command,
    case: Case,
    desk: OutboxPorts,
    *,
    again: bool = False,
) -> str:
    """Perform one command of a case; `again` if it may have been performed before a crash.

    Return the path of a newly published note, "" for anything else. Raises what the vault raises if
    it cannot be done now and has to be retried.
    """
    match command:
        case Stamp():
            _stamp(command, case, desk)
        case Publish():
            return _publish(command.path, desk.text(command.text), case, desk.vault, again=again)
        case Rewrite():
            _rewrite(command, desk)
        case Edit():
            _edit(command, case, desk)
        case Move():
            _move(command, case, desk.vault)
        case WriteBox():
            text = desk.text(command.text) if command.text else b""
            with suppress(Gone):  # taken away meanwhile: the next look sees it
                desk.vault.edit(command.path, lambda raw: box_written(raw, command, case, text))
        case _:
            assert_never(command)
    return ""


def _stamp(command: Stamp, case: Case, desk: OutboxPorts) -> None:
    def stamped(raw: bytes) -> bytes:
        whose = trace_of(raw)
        if whose not in ("", case.trace_id) or (
            not whose and command.digest and digest(raw, REQUEST_STAMPS) != command.digest
        ):
            return raw
        changes = dict(command.changes)
        if command.path.startswith(f"{Folder.REQUESTS}/") and keeps_status(raw, changes):
            # you wrote that yourself; the next look decides on it
            changes.pop("status", None)
        meta = read_note(raw).meta
        for key, seen in command.seen.items():
            if str(meta.get(key) or "") not in ("", seen):
                changes.pop(key, None)  # it was edited; the next look decides on it
        return stamp(raw, changes, kind_if_none=desk.frontmatter)

    # The next look sees that it was removed, or explains that it cannot be read.
    with suppress(Gone, UnsafeEdit):
        desk.vault.edit(command.path, stamped)


def _publish(path: str, text: bytes, case: Case, vault: Vault, *, again: bool) -> str:
    if again and _is_elsewhere(path, text, vault):
        return ""  # published before a crash, and you have decided on it since
    for place in places(path, case):
        try:
            vault.publish(place, text)
        except AlreadyThere:
            if _is_same_note(vault, place, text):  # and you have edited it since
                return place
            continue
        return place
    raise Changed(path)


def _is_elsewhere(path: str, text: bytes, vault: Vault) -> bool:
    if not path.startswith((f"{Folder.PLANS}/", f"{Folder.QUESTIONS}/")):
        return False
    decided = [queue for queue in QUEUES if queue is not Folder.REQUESTS]  # there may be thousands
    return any(_is_same_note(vault, place, text) for place in sorted(vault.scan(decided).found))


def _is_same_note(vault: Vault, place: str, text: bytes) -> bool:
    """Return whether the note at `place` is the one that is published, edited or not."""
    try:
        return note_identity(vault.read(place)[0]) == note_identity(text) is not None
    except (Stale, NotAFile, TooLarge):
        return False


def _rewrite(command: Rewrite, desk: OutboxPorts) -> None:
    text = desk.text(command.text)
    try:
        raw, _ = desk.vault.read(command.path)
    except Gone:
        desk.vault.publish(command.path, text)
        return
    if sha256(raw) == command.seen:
        desk.vault.replace(command.path, command.seen, text)


def _edit(command: Edit, case: Case, desk: OutboxPorts) -> tuple[bytes, str]:
    """Edit a note; return its text afterwards, and why it was not edited, or an empty string."""
    text = desk.text(command.text)
    why = ""

    def edited(raw: bytes) -> bytes:
        nonlocal why
        why = ""
        if sha256(raw) == command.expected:
            return text
        if raw == text:
            return raw
        if trace_of(raw) not in ("", case.trace_id):
            why = f"{show(command.path)} was moved meanwhile. Nothing was changed."
            return raw
        try:
            ticked = with_ticks(raw, command.steps)
        except ValueError as error:
            why = f"{show(command.path)} was changed since you read it: {error}."
            return raw
        return with_comments(ticked, command.comments, command.who, command.at)

    try:
        return desk.vault.edit(command.path, edited)[1], why
    except Gone:  # taken away meanwhile: the next look sees it
        return b"", f"{show(command.path)} was moved meanwhile. Nothing was changed."


def _move(command: Move, case: Case, vault: Vault) -> None:
    try:
        raw, _ = vault.read(command.src)
    except Gone:
        return
    same = command.digest in ("", digest(raw, REQUEST_STAMPS))
    same = same or meaning_of(raw, REQUEST_KEYS) == command.meaning
    if not same or (command.digest and keeps_status(raw, {"status": "completed"})):
        return  # edited, or set to pending: it stays, and the next look sees that
    if trace_of(raw) not in ("", case.trace_id):
        return  # the case's note was renamed, and another case's note has its name
    for place in places(command.dst, case):
        try:
            vault.move(command.src, place, sha256(raw))
        except AlreadyThere:
            continue
        except Gone:
            return
        return
    raise Changed(command.dst)


def places(path: str, case: Case) -> Iterable[str]:
    """Give the path for a note, then alternatives for when that is in use."""
    if path.startswith(f"{Folder.REPORTS}/"):
        yield from (numbered(path, number) for number in range(1, 1000))
        return
    yield path
    yield with_suffix(path, f"-{case.trace8}")
    for number in range(2, 1000):
        yield with_suffix(path, f"-{case.trace8}-{number}")
