"""The record of a conversation: every reply and every call is written down before it counts.

Each thing that is done has a key (`reply:3`, `call:3:0`); an intent is recorded before it is done
and an outcome after. A conversation that is begun again finds the outcomes of its earlier life and
does not ask or do those things twice. Reading needs no intent: it may be done twice. So the
outcomes of reads wait for whatever is recorded next, at the latest the end of the turn, and go into
the journal together.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from placet.core.activity import Action, Activity, Actor, Entity
from placet.core.errors import End, PlacetError, Stop
from placet.core.life.case import Case
from placet.core.life.waiting import Why
from placet.core.secrets import redacted
from placet.host.clock import Clock
from placet.journal.writer import Journal
from placet.journal.writes import ATTEMPT, AddActivity, AddRecord, Guard, LeaseLost, Write


class Postponed(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """The model cannot be asked for now, or the disk is full.

    The work goes on after `after_s` seconds.
    """

    def __init__(self, reason: str, after_s: float, why: Why = Why.UNREACHABLE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s
        self.why = why


LIFE = "life:"
"""Keys of the record that say when a daemon took the conversation up, and that it left it on purpose."""

_BY_GIT = {
    "base": "open the repository",
    "branch": "make the worktree",
    "step": "commit",
    "last commit": "commit",
    "ended": "look at the branch",
}
"""Outcomes of the record up to which git's processes count as one operation, and what a person would call that."""

MAX_CRASHES = 3
"""The third crash in the same place ends a mission or a planning: a fourth attempt would crash as well."""


@dataclass(slots=True)
class Record:
    """The record of one conversation: outcomes of its earlier life, and where new ones are written.

    `attempt` tells the case's conversations apart. With a `token` each write is guarded by the
    case's lease: a holder that lost it writes nothing more. Raises Stop(lease_lost) then. `halt` is
    raised instead of doing anything that is not recorded yet. `secrets` are known values that no
    row shows.
    """

    journal: Journal
    case: Case
    attempt: int
    clock: Clock
    token: int | None = None
    outcomes: dict[str, bytes] = field(default_factory=dict)
    intents: dict[str, bytes] = field(default_factory=dict)
    seq: int = 0
    halt: Stop | None = None
    held: list[Write] = field(default_factory=list)
    # how long each git process took since the last row about them, in ms
    ran: list[float] = field(default_factory=list)
    secrets: tuple[str, ...] = ()

    @classmethod
    def load(
        cls, journal: Journal, case: Case, attempt: int, clock: Clock, token: int | None = None
    ) -> Record:
        """Return the record of a conversation as far as it got."""
        record = cls(journal, case, attempt, clock, token)
        with journal.read() as reader:
            for row in reader.records(case.trace_id, attempt):
                record.seq = max(record.seq, row.seq)
                if row.kind == "intent":
                    record.intents[row.key] = row.body
                else:
                    record.outcomes[row.key] = row.body
        return record

    def outcome(self, key: str) -> bytes | None:
        """Return what came of `key`, or None where that is not known."""
        return self.outcomes.get(key)

    def cut_off(self, key: str) -> bool:
        """Say whether `key` was begun and its outcome never recorded."""
        return key in self.intents and key not in self.outcomes

    @property
    def progress(self) -> int:
        """How far the conversation is: grows with everything that is recorded, but for lives and attempts."""
        return sum(
            not key.startswith((LIFE, ATTEMPT))
            for known in (self.intents, self.outcomes)
            for key in known
        )

    def fresh(self) -> None:
        """Raise `halt`, if there is one: what comes next was not done in an earlier life."""
        if self.halt is not None:
            raise self.halt

    def intend(self, key: str, body: bytes = b"", *rows: Activity) -> None:
        """Write down that `key` is about to be done."""
        self.fresh()
        if key not in self.intents:
            self._write(key, "intent", body, rows)
            self.intents[key] = body

    def settle(self, key: str, body: bytes, *rows: Activity, hold: bool = False) -> None:
        """Write down what came of `key`, with the journal's rows about it, in one transaction.

        With `hold` that is together with what is written down next: only for what may be done
        twice, and has to be followed by a `flush`.
        """
        if (operation := _BY_GIT.get(key.partition(":")[0])) is not None:
            self._tell_of_git(operation)
        self._write(key, "outcome", body, rows, hold=hold)
        self.outcomes[key] = body

    def flush(self) -> None:
        """Write down what was held back."""
        if self.held:
            self._commit([])

    def note(self, *rows: Activity) -> None:
        """Write journal rows alone."""
        self._commit([AddActivity(row) for row in rows])

    def aside(self, row: Activity) -> None:
        """Have a journal row written with whatever is written next: one that is not worth a transaction of its own."""
        self.held.append(AddActivity(row))

    def _tell_of_git(self, operation: str) -> None:
        """Have a row written about the git processes since the last one, with whatever is written next."""
        if self.ran:
            facts = {
                "operation": operation,
                "processes": len(self.ran),
                "duration_ms": round(sum(self.ran), 1),
            }
            self.aside(self.row(Action.GIT_RAN, Actor.SYSTEM, Entity.REPOSITORY, **facts))
            self.ran = []

    def close(self) -> None:
        """Write what is still waiting; nothing where the lease was lost."""
        self._tell_of_git("tidy up")
        if self.held:
            with suppress(Stop):
                self.flush()

    def begin_life(self) -> int:
        """Write down that a daemon takes the conversation up now.

        Return how often in a row it crashed just here.

        A life that was left on purpose (`leave_life`) is no crash.
        """
        begun = [
            (n, int(self.intents[key]))
            for n in range(1, len(self.intents) + 1)
            if (key := f"{LIFE}{n}") in self.intents
        ]
        here, crashes = self.progress, 0
        for n, at in reversed(begun):
            if f"{LIFE}{n}" in self.outcomes:
                break
            crashes += 1
            if at != here:
                break
        key = f"{LIFE}{len(begun) + 1}"
        self._write(key, "intent", str(here).encode(), ())
        self.intents[key] = str(here).encode()
        return crashes

    def mind_crashes(self) -> None:
        """Begin a life.

        Where the earlier ones crashed just here MAX_CRASHES times, nothing is done any more but to
        end it.
        """
        if self.begin_life() >= MAX_CRASHES:
            why = f"the daemon crashed {MAX_CRASHES} times in a row at the same place"
            self.note(
                self.row(
                    Action.FAILURE_DETECTED,
                    Actor.SYSTEM,
                    pattern=End.CRASH_LOOP.value,
                    description=why,
                )
            )
            self.halt = Stop(End.CRASH_LOOP, why)

    def leave_life(self) -> None:
        """Write down that the conversation is left as it is on purpose: the daemon stops, or the model cannot be reached.

        Nothing where that stands there already, or no daemon took the conversation up yet.
        """
        key = f"{LIFE}{sum(key.startswith(LIFE) for key in self.intents)}"
        if self.cut_off(key):
            self.settle(key, b"")

    def row(
        self, action: Action, actor: Actor, entity: Entity = Entity.MISSION, **metadata: Any
    ) -> Activity:
        """Return a journal row about this record's case."""
        return Activity(
            self.clock.now(),
            self.case.trace_id,
            actor,
            action,
            entity,
            self.case.request_id,
            self.case.agent,
            redacted(metadata, self.secrets) if self.secrets else metadata,
        )

    def _write(
        self, key: str, kind: str, body: bytes, rows: Sequence[Activity], *, hold: bool = False
    ) -> None:
        self.seq += 1
        self.held.append(AddRecord(self.case.trace_id, self.attempt, self.seq, kind, key, body))
        self.held += [AddActivity(row) for row in rows]
        if not hold:
            self._commit([])

    def _commit(self, writes: list[Write]) -> None:
        guard = [Guard(self.case.trace_id, self.token)] if self.token is not None else []
        batch, self.held = [*guard, *self.held, *writes], []
        try:
            self.journal.commit(batch)
        except LeaseLost as error:
            raise Stop(End.LEASE_LOST, "another daemon has taken this mission over") from error
