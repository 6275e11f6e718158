"""The survival of a mission: its conversation's record, written before anything counts.

A daemon can be killed at any moment: in a model call, in a command, between a commit and the line
that says so. Nothing is lost and nothing is done twice, because each thing that is done has a key
(`reply:3`, `call:3:0`) under which two lines may stand. An **intent** is written before it is done,
an **outcome** after, in the transaction that journals it.

A conversation that is taken up again runs through the same code from its first turn. What has an
outcome is not done again: the outcome is taken instead, so the model is not asked twice, and what
it is sent next is the same byte for byte (the opening and each turn's remarks are on the record
too). What has neither is done now. Where there is only an intent, the daemon was killed in between:

- a model call counts with all that was held for it (`Attempted`), and is made again;
- reads, whole files and the calls that steer are done again, which does no harm;
- a command or an edit may have done half of its work, so the worktree is first made what it was
  (`CHECKPOINT`); where that cannot be done, the model is told that it was interrupted;
- a commit that is on the branch is found there, not made again.

Reading needs no intent: it may be done twice. So the outcomes of reads wait for whatever is
recorded next, at the latest the intent of the next model call, and go into the journal together.

A daemon that crashes at one place again and again would do so for good: each `LIFE` says how far
the record was when it began, and the third crash in a row at one place ends the work.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any, Generic, Protocol, TypeVar, cast

from placet.activity import Action, Activity, Actor, Entity
from placet.case.case import Case, row_of
from placet.case.waiting import Why
from placet.chat.budget import Amount
from placet.chat.compaction import Compaction
from placet.chat.messages import Reply, Turn, text_block, user_turn
from placet.chat.result import Ended
from placet.codec import Stored
from placet.errors import End, Interrupted, PlacetError, Stop
from placet.git.run import Author
from placet.host.clock import Clock
from placet.journal.writer import JournalAccess
from placet.journal.writes import ATTEMPT as ATTEMPT_PREFIX
from placet.journal.writes import REPLY as REPLY_PREFIX
from placet.journal.writes import (
    AddActivity,
    AddRecord,
    BodyDamaged,
    Guard,
    LeaseLost,
    RecordEntry,
    Write,
)
from placet.secrets import redacted
from placet.tools.base import Outcome

# The entries of a record: each a key, and the type of what is kept there.
#
# They are all that survives a kill; `agent/record` says how they are written and taken up again.

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """A key of the record, and the type of what stands there.

    `operation` names the work of the git processes up to this outcome, empty where there are none.
    """

    key: str
    kind: type[T]
    operation: str = ""

    def at(self, *where: int | str) -> Key[T]:
        """Return the entry of one turn, call, step or commit."""
        return Key(":".join((self.key, *map(str, where))), self.kind, self.operation)


@dataclass(frozen=True, slots=True)
class Opening:
    """The start of a conversation: system prompt, texts of the first turn, and remarks for people.

    `remarks` say which instructions were cut or left out, and why.
    """

    system: tuple[str, ...]
    texts: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def turn(self) -> Turn:
        """The first turn."""
        return user_turn([text_block(text) for text in self.texts])


@dataclass(frozen=True, slots=True)
class Prepared:
    """The changes to the turns before one call: remarks at the end, old results made shorter."""

    remarks: tuple[str, ...]
    compaction: Compaction | None


@dataclass(frozen=True, slots=True)
class Attempted:
    """A model call: what it may use at most (intent), or used without a reply (outcome).

    `kind` is the error's, empty in an intent.
    """

    amount: Amount
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Replied:
    """A model's reply, its blocks unchanged. `cost_usd` is None where the price is unknown."""

    reply: Reply
    cost_usd: Decimal | None
    took_s: float


@dataclass(frozen=True, slots=True)
class Begun:
    """A call that is about to be carried out."""

    tool: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MissionPlace:
    """The place of a mission, chosen once: base commit, branch, name of worktree and references.

    Raises ValueError for a name that is no plain word: worktrees are deleted by it, and others may
    be able to write the record.
    """

    base: str
    branch: str
    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-z-]+", self.name):
            raise ValueError(f"not the name of a worktree: {self.name!r:.200}")


# Of every conversation. `N` is a turn of the model, from 1; `I` a call in it, from 0.
OPENING = Key("opening", Opening)
TURN = Key("turn", Prepared)  # :N, before it is sent
ATTEMPT = Key(f"{ATTEMPT_PREFIX}reply", Attempted)  # :N:M, the M-th attempt at a reply
REPLY = Key(REPLY_PREFIX.rstrip(":"), Replied)  # :N
CALL = Key("call", Outcome)  # :N:I; its intent is a Begun
NOTICED = Key("guard", str)  # a pattern that the model was told of, or was ended by
BEGAN = Key("began", float)  # when the work began, in seconds since 1970
WAITED = Key("waited", float)  # :CALL, how long a person was asked, in seconds
LIFE = Key("life", int)  # a daemon took it up (intent) and left it on purpose (outcome)

# Of a planning.
BASE = Key("base", str, "open the repository")  # the commit that the plan is written from
EARLIER = Key("earlier", Amount)  # what earlier plannings of the request used

# Of a mission. `S` is a step, from 1; `J` an action of a literal step, from 0.
PLACE = Key("place", MissionPlace)
AUTHOR = Key("author", Author)  # of its commits, where workers of a team make them
BRANCH = Key("branch", str, "make the worktree")  # git's own folder of the worktree
LITERAL = Key("literal", Outcome)  # :S:J; its intent is a Begun
# :N after a turn, :literal:S:J before, :call:N:I where it asks a person, :after:call:N:I or
# :after:literal:S:J where the record is carried; a commit, or empty
CHECKPOINT = Key("checkpoint", str)
STEP = Key("step", str, "commit")  # :S; its commit, empty where nothing had changed
LAST_COMMIT = Key("last commit", str, "commit")
DRIFT = Key("drift", str)  # :COMMIT, the verdict on what changed up to it
ENDED = Key("ended", cast("type[Ended]", Ended), "look at the branch")  # before git is tidied up
NOT_KEPT = Key("not kept", str)  # files that no reference may have, each with a NUL after it
ROLLED_BACK = Key("rolled back", str)  # the ref that keeps a failed mission's work


class Postponed(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """The model cannot be asked for now, or the disk is full.

    The work goes on after `after_s` seconds.
    """

    def __init__(self, reason: str, after_s: float, why: Why = Why.UNREACHABLE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s
        self.why = why


class Carrier(Protocol):
    """Takes a mission's commits to other machines before they are recorded."""

    def writes(self) -> Sequence[Write]:
        """Bring what changed since `sent`; return the writes that record it.

        Raises Postponed or Interrupted where that cannot be done.
        """

    def sent(self) -> None:
        """Take note that they were committed."""


REPORT_IT = "Report this crash with the daemon's log, then approve the plan or the request again."
MAX_CRASHES = 3
"""The third crash in the same place ends a mission or a planning."""


_stored: Callable[[Any], Stored[Any]] = cache(Stored)


@dataclass(slots=True)
class Recorded:
    """The content of a record: intents and outcomes, as they are in the journal, by key."""

    outcomes: dict[str, bytes] = field(default_factory=dict, kw_only=True)
    intents: dict[str, bytes] = field(default_factory=dict, kw_only=True)

    def take(self, rows: Iterable[RecordEntry]) -> None:
        """Take in the rows of the journal."""
        for row in rows:
            known = self.intents if row.kind == "intent" else self.outcomes
            known[row.key] = row.body

    def get(self, entry: Key[T]) -> T | None:
        """Return the outcome of an entry, None where there is none yet; raises BodyDamaged."""
        return _read(entry, self.outcomes.get(entry.key))

    def begun(self, entry: Key[T]) -> T | None:
        """Return the value of an entry's intent, None where not begun; raises BodyDamaged."""
        return _read(entry, self.intents.get(entry.key))

    def has(self, entry: Key[Any]) -> bool:
        """Return whether an entry has an outcome."""
        return entry.key in self.outcomes

    def cut_off(self, entry: Key[Any]) -> bool:
        """Return whether an entry was begun and its outcome never recorded."""
        return entry.key in self.intents and entry.key not in self.outcomes

    def pictures(self) -> Sequence[bytes]:
        """Return the PNGs that calls of tools brought, in order."""
        calls = (
            self.get(Key(key, Outcome))
            for key in self.outcomes
            if key.startswith((f"{CALL.key}:", f"{LITERAL.key}:"))
        )
        return [b64decode(outcome.image) for outcome in calls if outcome and outcome.image]

    def replies(self) -> Sequence[Replied]:
        """Return the model's replies so far, in order."""
        found: list[Replied] = []
        while (reply := self.get(REPLY.at(len(found) + 1))) is not None:
            found.append(reply)
        return found


def _read(entry: Key[T], body: bytes | None) -> T | None:
    if body is None:
        return None
    try:
        value: T = _stored(entry.kind).validate_json(body)
    except ValueError as error:
        raise BodyDamaged(f"the record's entry `{entry.key}` cannot be read: {error}") from error
    return value


@dataclass(slots=True)
class Record(Recorded):
    """The record of one conversation: its earlier lives, and the writing of what is done now.

    `attempt` tells the case's conversations apart. With a `token` each write is guarded by the
    case's lease: a holder that lost it writes nothing more and gets Stop(lease_lost). `halt` is
    raised instead of doing anything that is not recorded yet. `secrets` are known values that no
    row shows. With a `carrier` what is recorded is also where another machine finds it.
    """

    journal: JournalAccess
    case: Case
    attempt: int
    clock: Clock
    token: int | None = None
    seq: int = 0
    halt: Stop | None = None
    held: list[Write] = field(default_factory=list)
    # how long each git process took since the last row about them, in ms
    ran: list[float] = field(default_factory=list)
    secrets: tuple[str, ...] = ()
    carrier: Carrier | None = None
    # no other machine has the last commits, so what would name them is not recorded
    failed: Postponed | Interrupted | None = None

    @classmethod
    def load(
        cls,
        journal: JournalAccess,
        case: Case,
        attempt: int,
        clock: Clock,
        token: int | None = None,
    ) -> Record:
        """Return the record of a conversation as far as it got."""
        record = cls(journal, case, attempt, clock, token)
        with journal.read() as reader:
            rows = reader.records(case.trace_id, attempt)
        record.take(rows)
        record.seq = max((row.seq for row in rows), default=0)
        return record

    @property
    def progress(self) -> int:
        """The number of lines on the record, without lives and attempts."""
        aside = (f"{LIFE.key}:", ATTEMPT_PREFIX)
        return sum(
            not key.startswith(aside) for known in (self.intents, self.outcomes) for key in known
        )

    def fresh(self) -> None:
        """Raise `halt`, if there is one: what comes next was not done in an earlier life."""
        if self.halt is not None:
            raise self.halt

    def intend(self, entry: Key[T], value: T | None = None) -> None:
        """Write down that an entry is about to be done."""
        self.fresh()
        if entry.key not in self.intents:
            body = b"" if value is None else _stored(entry.kind).dump_json(value)
            self._write(entry.key, "intent", body, ())
            self.intents[entry.key] = body

    def settle(self, entry: Key[T], value: T, *rows: Activity, hold: bool = False) -> None:
        """Write down the outcome of an entry, with the journal's rows about it, in one transaction.

        With `hold` that is together with what is written down next: only for what may be done
        twice.
        """
        if entry.operation:
            self._tell_of_git(entry.operation)
        body = _stored(entry.kind).dump_json(value)
        self._write(entry.key, "outcome", body, rows, hold=hold)
        self.outcomes[entry.key] = body

    def flush(self) -> None:
        """Write down what was held back."""
        if self.held:
            self._commit()

    def note(self, *rows: Activity) -> None:
        """Write journal rows alone."""
        self.held += [AddActivity(row) for row in rows]
        self._commit()

    def aside(self, row: Activity) -> None:
        """Have a journal row written with whatever is written next."""
        self.held.append(AddActivity(row))

    def _tell_of_git(self, operation: str) -> None:
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
        with suppress(Stop):
            self.flush()

    def start_run(self) -> int:
        """Write down that a daemon takes the conversation up; return its crashes in a row here.

        A life that was left on purpose (`end_run`) is no crash.
        """
        lives = self._lives()
        here, crashes = self.progress, 0
        for life in range(lives, 0, -1):
            if self.has(LIFE.at(life)):
                break
            crashes += 1
            if self.begun(LIFE.at(life)) != here:
                break
        entry, body = LIFE.at(lives + 1), _stored(int).dump_json(here)
        self._write(entry.key, "intent", body, ())
        self.intents[entry.key] = body
        return crashes

    def check_crash_loop(self) -> None:
        """Begin a life; after MAX_CRASHES crashes just here, `halt` lets it do nothing but end."""
        if self.start_run() >= MAX_CRASHES:
            why = f"the daemon crashed {MAX_CRASHES} times in a row at the same place"
            self.note(self.failure(End.CRASH_LOOP.value, why, REPORT_IT))
            self.halt = Stop(End.CRASH_LOOP, why)

    def end_run(self) -> None:
        """Write down, once, that the conversation is left as it is on purpose."""
        if self.failed is not None:
            self.failed, self.carrier, self.held = None, None, []
        entry = LIFE.at(self._lives())
        if self.cut_off(entry):
            self.settle(entry, self.progress)

    def _lives(self) -> int:
        return sum(key.startswith(f"{LIFE.key}:") for key in self.intents)

    def row(
        self, action: Action, actor: Actor, entity: Entity = Entity.MISSION, **metadata: Any
    ) -> Activity:
        """Return a journal row about this record's case."""
        facts = redacted(metadata, self.secrets) if self.secrets else metadata
        return row_of(self.case, self.clock.now(), action, facts, actor=actor, entity=entity)

    def failure(
        self, pattern: str, description: str, action: str, *, tool: str = "", **more: Any
    ) -> Activity:
        """Return the row of a failure pattern.

        `action` is what somebody can do about it, `tool` the one tool that it is about, if any.
        """
        return self.row(
            Action.FAILURE_DETECTED,
            Actor.SYSTEM,
            pattern=pattern,
            description=description,
            suggested_action=action,
            affected_tool=tool,
            **more,
        )

    def _write(
        self, key: str, kind: str, body: bytes, rows: Sequence[Activity], *, hold: bool = False
    ) -> None:
        self.seq += 1
        self.held.append(AddRecord(self.case.trace_id, self.attempt, self.seq, kind, key, body))
        self.held += [AddActivity(row) for row in rows]
        if not hold:
            self._commit()

    def _commit(self) -> None:
        guard = [Guard(self.case.trace_id, self.token)] if self.token is not None else []
        if self.failed is not None:
            raise self.failed
        try:
            carried = () if self.carrier is None else self.carrier.writes()
        except (Postponed, Interrupted) as error:
            self.failed, self.held = error, []
            raise
        batch, self.held = [*guard, *self.held, *carried], []
        try:
            self.journal.commit(batch)
            if self.carrier is not None:
                self.carrier.sent()
        except LeaseLost as error:
            raise Stop(End.LEASE_LOST, "another daemon has taken this mission over") from error
