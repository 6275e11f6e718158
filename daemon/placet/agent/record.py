"""Record every action before it counts, so that a killed mission can resume.

A daemon can be killed at any moment: in a model call, in a command, between a commit and the row
about it. So each action has a key (`reply:3`, `call:3:0`) under which the record has up to two
entries. An **intent** is written before the action, an **outcome** after it, in the transaction
that journals it.

A resumed conversation runs through the same code from its first turn. An action with an outcome is
not repeated: the outcome is used. So the model is not asked twice, and what it is sent next is the
same byte for byte (the opening and each turn's remarks are recorded too). An action without an
intent is done now. If there is only an intent, the daemon was killed in between:

- a model call counts with its whole reservation (`Attempted`), and is made again;
- reads, writes of whole files and control calls are repeated, which does no harm;
- a command or an edit may be half done, so the worktree is first restored (`CHECKPOINT`); if that
  is impossible, the model is told that the call was interrupted;
- a commit that is on the branch is found and reused.

A read needs no intent, as it may be repeated. Outcomes of reads are written with the next entry, at
the latest with the intent of the next model call.

In a team, a call that changed files is recorded once the work remote has its commit. The model's
next call may begin meanwhile. Its reply is recorded after that, so no reply rests on lost work.

A daemon that always crashes at the same place would never stop. So each `LIFE` records how long the
record was at its start, and the third crash in a row at one place ends the work.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from placet.activity import Action, Activity, Actor, Entity
from placet.case.case import Case, row_of
from placet.case.mission_result import MissionResult
from placet.case.waiting import WaitReason
from placet.chat.budget import Amount
from placet.chat.compaction import Compaction
from placet.chat.messages import Reply, Turn, text_block, user_turn
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

if TYPE_CHECKING:
    from concurrent.futures import Future

# The entries of a record: each a key, and the type of its value. Only they survive a kill.

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """A key of the record, and the type of its value.

    `operation` names the git work that leads to this outcome, or is "".
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

    `remarks` say which instructions were cut or left out, and why. `instructions` are digests of
    the vault's notes that it has, by path. `tools` is how tools are called, as in `[model]`.
    """

    system: tuple[str, ...]
    texts: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    instructions: tuple[tuple[str, str], ...] = ()
    tools: str = "auto"

    @property
    def turn(self) -> Turn:
        """The first turn."""
        return user_turn([text_block(text) for text in self.texts])


@dataclass(frozen=True, slots=True)
class Prepared:
    """Changes to the turns before one call: remarks at the end, old results shortened."""

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
    """A model's reply with unchanged blocks. `cost_usd` is None if the price is unknown.

    `unreported` is the most that a reply used whose server reported no tokens.
    """

    reply: Reply
    cost_usd: Decimal | None
    took_s: float
    unreported: Amount = field(default_factory=Amount)


@dataclass(frozen=True, slots=True)
class Begun:
    """A call that is about to run."""

    tool: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MissionGit:
    """The place of a mission, chosen once: base commit, branch, name of worktree and refs.

    Raises ValueError for a name that is not a plain word: worktrees are deleted by it, and others
    may be able to write the record.
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
NO_IMAGES = Key("no images", str)  # why images are sent as text from then on
NOTICED = Key("guard", str)  # a pattern that the model heard about, or that ended its work
BEGAN = Key("began", float)  # when the work began, in seconds since 1970
WAITED = Key("waited", float)  # :CALL, how long it waited for an answer, in seconds
LIFE = Key("life", int)  # a daemon started it (intent) and stopped in order (outcome)

# Of a planning.
BASE = Key("base", str, "open the repository")  # the commit that the plan is written from
EARLIER = Key("earlier", Amount)  # what earlier plannings of the request used

# Of a mission. `S` is a step, from 1; `J` an action of a literal step, from 0.
PLACE = Key("place", MissionGit)
AUTHOR = Key("author", Author)  # of its commits, where workers of a team make them
BRANCH = Key("branch", str, "make the worktree")  # git's own folder of the worktree
LITERAL = Key("literal", Outcome)  # :S:J; its intent is a Begun
# :N after a turn, :literal:S:J before, :call:N:I where it asks a person, :after:call:N:I or
# :after:literal:S:J where the record is carried; a commit, or empty
CHECKPOINT = Key("checkpoint", str)
STEP = Key("step", str, "commit")  # :S; its commit, empty where nothing had changed
LAST_COMMIT = Key("last commit", str, "commit")
DRIFT = Key("drift", str)  # :COMMIT, the verdict on what changed up to it
ENDED = Key("ended", MissionResult, "look at the branch")  # before git is tidied up
NOT_KEPT = Key("not kept", str)  # files that no reference may have, each with a NUL after it
ROLLED_BACK = Key("rolled back", str)  # the ref that keeps a failed mission's work


class Postponed(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """The work has to wait, for the model or for space on the disk.

    It resumes after `after_s` seconds.
    """

    def __init__(
        self, reason: str, after_s: float, why: WaitReason = WaitReason.UNREACHABLE
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s
        self.why = why


class Carrier(Protocol):
    """Takes a mission's commits to other machines before they are recorded."""

    def writes(self) -> Sequence[Write]:
        """Carry what changed since `sent`; return the writes that record it.

        Raises Postponed or Interrupted if that is impossible now.
        """

    def sent(self) -> None:
        """Remember that the writes were committed."""


REPORT_IT = "Report this crash with the daemon's log, then approve the plan or the request again."
MAX_CRASHES = 3
"""The third crash in the same place ends a mission or a planning."""


_stored: Callable[[Any], Stored[Any]] = cache(Stored)


@dataclass(slots=True)
class Recorded:
    """The content of a record: intents and outcomes by key."""

    outcomes: dict[str, bytes] = field(default_factory=dict, kw_only=True)
    intents: dict[str, bytes] = field(default_factory=dict, kw_only=True)

    def take(self, rows: Iterable[RecordEntry]) -> None:
        """Add rows of the journal."""
        for row in rows:
            known = self.intents if row.kind == "intent" else self.outcomes
            known[row.key] = row.body

    def get(self, entry: Key[T]) -> T | None:
        """Return the outcome of an entry, or None before it has one; raises BodyDamaged."""
        return _read(entry, self.outcomes.get(entry.key))

    def begun(self, entry: Key[T]) -> T | None:
        """Return the value of an entry's intent, None if it has none; raises BodyDamaged."""
        return _read(entry, self.intents.get(entry.key))

    def has(self, entry: Key[Any]) -> bool:
        """Return whether an entry has an outcome."""
        return entry.key in self.outcomes

    def cut_off(self, entry: Key[Any]) -> bool:
        """Return whether an entry has an intent and no outcome."""
        return entry.key in self.intents and entry.key not in self.outcomes

    def pictures(self) -> Sequence[bytes]:
        """Return the PNGs that tool calls returned, in order."""
        calls = (
            self.get(Key(key, Outcome))
            for key in self.outcomes
            if key.startswith((f"{CALL.key}:", f"{LITERAL.key}:"))
        )
        return [b64decode(outcome.image) for outcome in calls if outcome and outcome.image]

    def replies(self) -> Sequence[Replied]:
        """Return the model's recorded replies, in order."""
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
    """The record of one conversation, loaded from earlier lives and written in this one."""

    journal: JournalAccess
    case: Case
    attempt: int
    """Tells the case's conversations apart."""
    clock: Clock
    token: int | None = None
    """Guards each write by the case's lease.

    A holder that lost it writes nothing and gets Stop(lease_lost).
    """
    seq: int = 0
    """Number of the last entry."""
    halt: Stop | None = None
    """Raised instead of any action that is not recorded yet."""
    held: list[Write] = field(default_factory=list)
    """Writes that the next entry commits."""
    ran: list[float] = field(default_factory=list)
    """How long each git process took since the last row about them, in ms."""
    secrets: tuple[str, ...] = ()
    """Known values that no row shows."""
    carrier: Carrier | None = None
    """Carries the record to other machines."""
    failed: Postponed | Interrupted | None = None
    """Why no other machine has the last commits. Nothing that names them is recorded then."""
    carrying: Future[None] | None = None
    """Writes under way to other machines, in a separate thread. Every write but one waits."""
    writing: Lock = field(default_factory=Lock)
    """Held while entries get their numbers and are committed."""

    @classmethod
    def load(
        cls,
        journal: JournalAccess,
        case: Case,
        attempt: int,
        clock: Clock,
        token: int | None = None,
    ) -> Record:
        """Load the record of a conversation."""
        record = cls(journal, case, attempt, clock, token)
        with journal.ask() as reader:
            rows = reader.records(case.trace_id, attempt)
        record.take(rows)
        record.seq = max((row.seq for row in rows), default=0)
        return record

    @property
    def progress(self) -> int:
        """The number of entries, without lives and attempts."""
        aside = (f"{LIFE.key}:", ATTEMPT_PREFIX)
        return sum(
            not key.startswith(aside) for known in (self.intents, self.outcomes) for key in known
        )

    def check_halted(self) -> None:
        """Raise `halt`, if set: what comes next is not on the record."""
        if self.halt is not None:
            raise self.halt

    def intend(self, entry: Key[T], value: T | None = None, *, ahead: bool = False) -> None:
        """Record that an action is about to start.

        `ahead`: do not wait for what is carried to other machines. Only for an action that may be
        repeated, and whose outcome is recorded after that.
        """
        self.check_halted()
        if entry.key not in self.intents:
            body = b"" if value is None else _stored(entry.kind).dump_json(value)
            if ahead and self.carrying is not None and not self.carrying.done():
                self._send([self._entry(entry.key, "intent", body)])
            else:
                self._write(entry.key, "intent", body, ())
            self.intents[entry.key] = body

    def settle(self, entry: Key[T], value: T, *rows: Activity, hold: bool = False) -> None:
        """Record the outcome of an action, with the journal's rows about it, in one transaction.

        `hold` delays that to the next write: only for actions that may be repeated. So are calls
        whose work is on its way to other machines.
        """
        if entry.operation:
            self._tell_of_git(entry.operation)
        body = _stored(entry.kind).dump_json(value)
        hold = hold or (self.carrying is not None and entry.key.startswith(f"{CALL.key}:"))
        self._write(entry.key, "outcome", body, rows, hold=hold)
        self.outcomes[entry.key] = body

    def flush(self) -> None:
        """Write what was delayed."""
        if self.held or self.carrying is not None:
            self._commit()

    def writes(self) -> list[Write]:
        """Return what was delayed, for a transaction of the caller's."""
        return [*map(self._numbered, self.held)]

    def carry(self) -> None:
        """Write what was delayed in a separate thread, as it may take long to carry the commits.

        The model can think meanwhile. Any other write waits, and raises what this raised.
        """
        if self.carrier is None:
            self.flush()
            return
        from concurrent.futures import Future  # an idle daemon does not need it

        self.wait()
        batch, self.held = self.held, []
        self.carrying = found = Future[None]()

        def run() -> None:
            try:
                self._send(batch, carries=True)
            except BaseException as error:
                found.set_exception(error)
            else:
                found.set_result(None)

        try:
            Thread(target=run, name="carry", daemon=True).start()
        except RuntimeError:  # the machine has no thread left
            run()

    def wait(self) -> None:
        """Wait until other machines have what was carried; raises what that raised."""
        carrying, self.carrying = self.carrying, None
        if carrying is not None:
            carrying.result()

    def once(self, entry: Key[T], make: Callable[[], T]) -> T:
        """Return the outcome of an entry; the first time, make and record it."""
        known = self.get(entry)
        if known is None:
            known = make()
            self.settle(entry, known)
        return known

    def log(self, row: Activity, *, hold: bool = False) -> None:
        """Write a journal row alone; `hold` delays it to the next write."""
        self.held.append(AddActivity(row))
        if not hold:
            self._commit()

    def _tell_of_git(self, operation: str) -> None:
        if self.ran:
            facts = {
                "operation": operation,
                "processes": len(self.ran),
                "duration_ms": round(sum(self.ran), 1),
            }
            row = self.row(Action.GIT_RAN, Actor.SYSTEM, Entity.REPOSITORY, **facts)
            self.log(row, hold=True)
            self.ran = []

    def close(self) -> None:
        """Write what is still delayed, unless the lease was lost."""
        self._tell_of_git("tidy up")
        with suppress(Stop):
            self.flush()

    def start_run(self) -> int:
        """Record the start of a life; return the number of crashes in a row at this place.

        A life that stopped in order (`end_run`) is not a crash.
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
        """Start a life. After MAX_CRASHES crashes in a row at this place, `halt` ends the work."""
        if self.start_run() >= MAX_CRASHES:
            why = f"the daemon crashed {MAX_CRASHES} times in a row at the same place"
            self.log(self.failure(End.CRASH_LOOP.value, why, REPORT_IT))
            self.halt = Stop(End.CRASH_LOOP, why)

    def end_run(self) -> None:
        """Record, once, that this life stops in order."""
        with suppress(Postponed, Interrupted):
            self.wait()
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

        `action` is the suggested action, `tool` the affected tool or "".
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
        self.held.append(self._entry(key, kind, body))
        self.held += [AddActivity(row) for row in rows]
        if not hold:
            self._commit()

    def _entry(self, key: str, kind: str, body: bytes) -> AddRecord:
        return AddRecord(self.case.trace_id, self.attempt, 0, kind, key, body)

    def _commit(self) -> None:
        self.wait()
        batch, self.held = self.held, []
        self._send(batch, carries=True)

    def _send(self, writes: Sequence[Write], *, carries: bool = False) -> None:
        """Commit writes, with what the carrier adds; entries get their numbers now."""
        guard = [Guard(self.case.trace_id, self.token)] if self.token is not None else []
        if self.failed is not None:
            raise self.failed
        carrier = self.carrier if carries else None
        try:
            carried = () if carrier is None else carrier.writes()
        except (Postponed, Interrupted) as error:
            self.failed, self.held = error, []
            raise
        try:
            with self.writing:
                self.journal.commit([*guard, *map(self._numbered, writes), *carried])
            if carrier is not None:
                carrier.sent()
        except LeaseLost as error:
            raise Stop(End.LEASE_LOST, "another daemon has taken this mission over") from error

    def _numbered(self, write: Write) -> Write:
        if not isinstance(write, AddRecord):
            return write
        self.seq += 1
        return replace(write, seq=self.seq)
