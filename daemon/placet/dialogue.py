"""Talking to a model on the record: every reply and every call is written down before it counts.

The record is what makes a conversation resumable. Each thing that is done has a key (`reply:3`, `call:3:0`); an
intent is recorded before it is done and an outcome after. A conversation that is begun again finds the outcomes of
its earlier life and does not ask or do those things twice. Reading needs no intent: it may be done twice. So the outcomes
of reads wait for whatever is recorded next, at the latest the end of the turn, and go into the journal together.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn, Protocol

from pydantic import TypeAdapter

from placet.clock import Clock
from placet.core.activity import Action, Activity, Actor, Entity
from placet.core.budget import Amount, Room
from placet.core.case import Case
from placet.core.errors import End, PlacetError, Stop, UserError
from placet.core.guards import Compaction, compacted, make_room
from placet.core.mission import Spent
from placet.core.price import Price, cost_usd
from placet.core.retry import Blocked, GiveUp, Retry, RetryPolicy, Sleep, next_attempt
from placet.core.secrets import redact
from placet.core.talk import (
    Ask,
    Model,
    ModelError,
    ModelErrorKind,
    Purpose,
    Reply,
    StopReason,
    ToolUse,
    Turn,
    Usage,
    text_block,
    user_turn,
)
from placet.core.waiting import Why
from placet.journal import AddActivity, AddRecord, Guard, Journal, LeaseLost, Write
from placet.tools import BY_NAME, Toolbox
from placet.tools.base import Effect, Outcome, Tool, Workplace
from placet.tools.present import Results, redacted


class Interrupted(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """The daemon is stopping: the work stays as it is recorded and goes on at the next start."""


class Postponed(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """The model cannot be asked for now, or the disk is full; the work goes on after `after_s` seconds."""

    def __init__(self, reason: str, after_s: float, why: Why = Why.UNREACHABLE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s
        self.why = why


MACHINE_RETRY_S = 3.0
"""How often work that met a full disk, or the like, tries again."""
MACHINE_FAULTS = frozenset({"disk_full", "io_error"})
"""What a tool answers when the machine is at fault. A model could do nothing about it, so it is not told."""
BLOCKED_RETRY_S = 60.0
"""How often work that waits for a person to mend the model tries whether it was mended."""


_REPLY = "reply:"
"""Keys of the record for what the model answered."""

ATTEMPT = "attempt:"
"""Keys of the record for each call of the model: the intent says what it may come to, the outcome what one without a reply did."""

OUTCOME_JSON = TypeAdapter(Outcome)
"""How the record keeps what a call came to."""

_LIFE = "life:"
"""Keys of the record that say when a daemon took the conversation up, and that it left it on purpose."""

MAX_CRASHES = 3
"""The third crash in the same place ends a mission: a fourth attempt would crash as well."""


@dataclass(slots=True)
class Record:
    """The record of one conversation: outcomes of its earlier life, and where new ones are written.

    `attempt` tells the case's conversations apart. With a `token` each write is guarded by the case's lease: a holder
    that lost it writes nothing more. Raises Stop(lease_lost) then. `halt` is raised instead of doing anything that is not
    recorded yet.
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

    @classmethod
    def load(cls, journal: Journal, case: Case, attempt: int, clock: Clock, token: int | None = None) -> Record:
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
        return sum(not key.startswith((_LIFE, ATTEMPT)) for known in (self.intents, self.outcomes) for key in known)

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

        With `hold` that is together with what is written down next: only for what may be done twice, and has to be
        followed by a `flush`.
        """
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

    def close(self) -> None:
        """Write what is still waiting; nothing where the lease was lost."""
        if self.held:
            with suppress(Stop):
                self.flush()

    def begin_life(self) -> int:
        """Write down that a daemon takes the conversation up now; return how often in a row it crashed just here.

        A life that was left on purpose (`leave_life`) is no crash.
        """
        begun = [(n, int(self.intents[key])) for n in range(1, len(self.intents) + 1) if (key := f"{_LIFE}{n}") in self.intents]
        here, crashes = self.progress, 0
        for n, at in reversed(begun):
            if f"{_LIFE}{n}" in self.outcomes:
                break
            crashes += 1
            if at != here:
                break
        key = f"{_LIFE}{len(begun) + 1}"
        self._write(key, "intent", str(here).encode(), ())
        self.intents[key] = str(here).encode()
        return crashes

    def leave_life(self) -> None:
        """Write down that the conversation is left as it is on purpose: the daemon stops, or the model cannot be reached."""
        self.settle(f"{_LIFE}{sum(key.startswith(_LIFE) for key in self.intents)}", b"")

    def row(self, action: Action, actor: Actor, entity: Entity = Entity.MISSION, **metadata: Any) -> Activity:
        """Return a journal row about this record's case."""
        return Activity(self.clock.now(), self.case.trace_id, actor, action, entity, self.case.request_id,
                        self.case.agent, metadata)

    def _write(self, key: str, kind: str, body: bytes, rows: Sequence[Activity], *, hold: bool = False) -> None:
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


@dataclass(frozen=True, slots=True)
class Line:
    """How a model is reached and what it costs. `open_model` raises ModelError; `draw` gives the jitter, from 0 to 1."""

    open_model: Callable[[], Model]
    prices: Sequence[Price]
    policy: RetryPolicy
    draw: Callable[[], float] = random.random


def ask_model(line: Line, ask: Ask, key: str, record: Record, spent: Spent, *, cancelled: Callable[[], bool],
              room: Callable[[Ask], AbstractContextManager[Room]]) -> Reply:
    """Return the model's reply to `ask`: the recorded one if it was answered before, else a new one.

    `room` holds what an attempt may come to, or raises Stop or Postponed where there is no room for it. Retries what
    can be retried; a failed attempt that the server may have worked on counts with all that was held for it. Raises
    Postponed where waiting longer would hold a worker for nothing, Interrupted when `cancelled`, and Stop(model_error)
    where no attempt can help. `spent` is added to; `model.called` is journalled in the transaction that records the reply.
    """
    attempts, failed = _earlier_attempts(ask, key, record, spent)
    if (known := record.outcome(key)) is not None:
        reply, cost = decode_reply(known)
        spent.add(reply.usage, cost, _took_s(known))
        return reply
    record.intend(key)
    clock = record.clock
    while True:
        attempts += 1
        mark = f"{ATTEMPT}{key}:{attempts}"
        with room(ask) as held:
            record.intend(mark, _encode_amount(held.worst, ""))
            called = clock.monotonic()
            try:
                model = line.open_model()
                reply = model.reply(replace(ask, max_tokens=held.max_tokens), cancelled)
            except (ModelError, UserError) as caught:
                # A setting that no model can be opened with: a person mends it, and no request fails of it.
                error = caught if isinstance(caught, ModelError) else ModelError(
                    ModelErrorKind.PERMANENT, f"{caught.what}. {caught.hint}")
                lost = replace(held.worst if error.served else Amount(), working_time_s=clock.monotonic() - called)
                spent.lose(lost)
                record.settle(mark, _encode_amount(lost, error.kind), _failed_row(record, ask.purpose, attempts, error, lost))
            else:
                took_s = clock.monotonic() - called
                cost = cost_usd(reply.usage, reply.model or model.name, line.prices, free=model.provider == "scripted")
                spent.add(reply.usage, cost, took_s)
                record.settle(key, encode_reply(reply, cost, took_s), record.row(
                    Action.MODEL_CALLED, Actor.AGENT, provider=model.provider, model=reply.model or model.name,
                    purpose=ask.purpose.value, stop_reason=reply.stop_reason.value,
                    input_tokens=reply.usage.input_tokens, output_tokens=reply.usage.output_tokens,
                    cache_read_tokens=reply.usage.cache_read_tokens, cache_write_tokens=reply.usage.cache_write_tokens,
                    cost_usd=None if cost is None else float(cost), duration_ms=round(took_s * 1000, 1),
                    iteration=spent.replies))
                return reply
        if error.kind is ModelErrorKind.CANCELLED or cancelled():
            raise Interrupted(str(error)) from error
        failed += error.kind is ModelErrorKind.TRANSIENT
        match next_attempt(error, max(failed, 1), line.policy, line.draw()):
            case Retry(after_s):
                if not clock.wait(after_s, cancelled):
                    raise Interrupted("stopped while waiting for the model") from error
            case Sleep(after_s, asked):
                raise Postponed(str(error), after_s, Why.ASKED_TO_WAIT if asked else Why.UNREACHABLE) from error
            case Blocked(reason):
                raise Postponed(reason, BLOCKED_RETRY_S, Why.BLOCKED) from error
            case GiveUp(reason):
                raise Stop(End.MODEL_ERROR, reason, error_type="ModelError") from error


def count_unseen(record: Record, purpose: Purpose) -> None:
    """Count the calls that a kill cut off, each with all that was held for it, before anybody else asks what a day has used."""
    for mark, begun in list(record.intents.items()):
        if mark.startswith(ATTEMPT) and mark not in record.outcomes:
            key, _, attempt = mark[len(ATTEMPT):].rpartition(":")
            if key not in record.outcomes:
                _settle_unseen(record, mark, int(attempt), begun, purpose)


def _settle_unseen(record: Record, mark: str, attempt: int, begun: bytes, purpose: Purpose) -> None:
    unseen = ModelError(ModelErrorKind.CANCELLED, "the daemon was stopped during this call", served=True)
    record.settle(mark, begun, _failed_row(record, purpose, attempt, unseen, _decode_amount(begun)[0]))


def _earlier_attempts(ask: Ask, key: str, record: Record, spent: Spent) -> tuple[int, int]:
    """Count the attempts of earlier lives in that brought no reply; return how many began, and how many failed in passing.

    One whose end nobody saw (the daemon was killed) counts with all that was held for it.
    """
    attempts = failed = 0
    while (begun := record.intents.get(f"{ATTEMPT}{key}:{attempts + 1}")) is not None:
        attempts += 1
        mark = f"{ATTEMPT}{key}:{attempts}"
        body = record.outcome(mark)
        if body is None and record.outcome(key) is not None:
            break  # the one that was answered
        if body is None:
            _settle_unseen(record, mark, attempts, begun, ask.purpose)
            body = begun
        lost, kind = _decode_amount(body)
        failed += kind == ModelErrorKind.TRANSIENT
        spent.lose(lost)
    return attempts, failed


def spent_in(record: Record) -> Spent:
    """Return what a conversation has used, as its record knows it."""
    spent = Spent()
    for key, body in record.outcomes.items():
        if key.startswith(_REPLY):
            reply, cost = decode_reply(body)
            spent.add(reply.usage, cost, _took_s(body))
    for mark, begun in record.intents.items():
        answered = mark[len(ATTEMPT):].rpartition(":")[0] in record.outcomes
        if mark.startswith(ATTEMPT) and (mark in record.outcomes or not answered):
            spent.lose(_decode_amount(record.outcomes.get(mark, begun))[0])
    return spent


def _failed_row(record: Record, purpose: Purpose, attempt: int, error: ModelError, lost: Amount) -> Activity:
    return record.row(Action.MODEL_FAILED, Actor.SYSTEM, purpose=purpose.value, attempt=attempt, kind=error.kind.value,
                      status=error.status, reason=str(error), tokens=lost.tokens,
                      cost_usd=None if lost.usd is None else float(lost.usd))


def _encode_amount(amount: Amount, kind: str) -> bytes:
    return json.dumps([amount.tokens, None if amount.usd is None else str(amount.usd), amount.working_time_s, kind]).encode()


def _decode_amount(body: bytes) -> tuple[Amount, str]:
    tokens, usd, working_s, kind = json.loads(body)
    return Amount(tokens, None if usd is None else Decimal(usd), working_s), kind


class Watcher(Protocol):
    """Who conducts a conversation: checks its limits and sees what its calls came to."""

    def before(self, iteration: int) -> Sequence[str]:
        """Return remarks for the model before it is asked for the `iteration`-th time; raise Stop at a limit."""
        ...

    def saw(self, use: ToolUse, outcome: Outcome) -> None:
        """See what a call came to, now or in an earlier life of the conversation; may raise Stop."""
        ...

    def room(self, ask: Ask) -> AbstractContextManager[Room]:
        """Hold what a call may come to while it is made; raise Stop, or Postponed, where a budget has no room for it."""
        ...

    def instead(self, use: ToolUse) -> Outcome | None:
        """Return what to answer a call with instead of carrying it out, None to carry it out; may raise Stop."""
        ...

    def turn_over(self, stop_reason: StopReason) -> None:
        """See that a turn of the model, with its calls, is over."""
        ...

    def round_over(self, iteration: int, uses: Sequence[ToolUse]) -> None:
        """See that every call of a turn has its outcome."""
        ...

    def bring_back(self, iteration: int, uses: Sequence[ToolUse]) -> bool:
        """Make the place what it was when `uses`, the turn's calls so far, were done; False where that cannot be."""
        ...


@dataclass(frozen=True, slots=True)
class Conversation:
    """Everything a conversation needs that stays the same from turn to turn.

    `tools` are those that the model is offered, `nudge` is what it is told when a turn called none. `context_tokens` are
    what the model can take in: before that is full, old results make room.
    """

    purpose: Purpose
    system: tuple[str, ...]
    tools: Mapping[str, Tool[Any]]
    opening: Turn
    nudge: str
    max_tokens: int
    context_tokens: int


def converse(talk: Conversation, place: Workplace, record: Record, watcher: Watcher, spent: Spent, line: Line) -> NoReturn:
    """Let the model work until something ends it: reply, calls, results fed back, and again.

    It is left by an exception only: a control tool's, the watcher's Stop, or what `ask_model` raises.
    """
    case = record.case
    specs = tuple(tool.spec() for tool in talk.tools.values())
    system = tuple(redact(text, place.secrets)[0] for text in talk.system)
    turns = [Turn(talk.opening.role, tuple(redacted(dict(block), place.secrets) for block in talk.opening.blocks))]
    stopped: StopReason | None = None
    iteration = 0
    while True:
        iteration += 1
        remarks = watcher.before(iteration)
        ask = Ask(talk.purpose, case.request_id, case.trace_id, system, specs, tuple(turns), talk.max_tokens)
        turns = _prepared(ask, iteration, remarks, talk.context_tokens, record, spent, place.results, stopped)
        reply = ask_model(line, replace(ask, turns=tuple(turns)), f"reply:{iteration}", record, spent,
                          cancelled=place.cancelled, room=watcher.room)
        turns.append(reply.turn)
        stopped = reply.stop_reason
        uses = reply.turn.tool_uses
        if uses:
            outcomes = _calls(iteration, uses, talk.tools, place, record, watcher, cut=stopped in _BROKEN_OFF)
            watcher.round_over(iteration, uses)
            turns.append(user_turn([_result(use, outcome) for use, outcome in zip(uses, outcomes, strict=True)]))
        elif stopped is not StopReason.PAUSE_TURN:
            turns.append(user_turn([text_block(talk.nudge)]))
        watcher.turn_over(stopped)


_BROKEN_OFF = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL, StopReason.REFUSAL})
"""The answer ended in the middle: a call in it may be half of one."""


def _prepared(ask: Ask, iteration: int, remarks: Sequence[str], context_tokens: int, record: Record, spent: Spent,
              results: Results, stopped: StopReason | None) -> list[Turn]:
    """Return the turns as they are sent for the `iteration`-th time: with remarks, and old results replaced if it gets tight.

    What is decided is recorded before it is sent, so that a resumed conversation says the same again, byte for byte.
    """
    key = f"turn:{iteration}"
    known = record.outcome(key)
    if known is None:
        full = stopped is StopReason.CONTEXT_FULL
        made = make_room(ask, spent.last_usage, context_tokens, results.keep, full=full)
        known = json.dumps({"remarks": list(remarks), "compaction": None if made is None else asdict(made)}).encode()
        row = record.row(Action.CONVERSATION_COMPACTED, Actor.SYSTEM, iteration=iteration, **(asdict(made) if made else {}))
        record.settle(key, known, *([row] if made else []))
    decided = json.loads(known)
    turns = list(ask.turns)
    if decided["compaction"] is not None:
        turns = list(compacted(turns, Compaction(**decided["compaction"]), results.keep))
    said = [text_block(remark) for remark in decided["remarks"]]
    if said and turns[-1].role == "user":
        turns[-1] = user_turn([*turns[-1].blocks, *said])
    elif said:
        turns.append(user_turn(said))
    return turns


def _calls(iteration: int, uses: Sequence[ToolUse], tools: Mapping[str, Tool[Any]], place: Workplace, record: Record,
           watcher: Watcher, *, cut: bool) -> list[Outcome]:
    """Carry the calls of one turn out, in order; reads that follow one another are done at the same time.

    What they came to is recorded and shown to the watcher in order all the same.
    """
    prefix = f"call:{iteration}"
    outcomes: list[Outcome] = []
    ahead: dict[int, _Done] = {}
    try:
        for i, use in enumerate(uses):
            if i not in ahead and not cut:
                ahead = _reads_at_once(prefix, uses, i, tools, place, record)
            known = record.outcome(f"{prefix}:{i}")
            if known is not None:
                outcome = OUTCOME_JSON.validate_json(known)
            elif cut:
                outcome = CUT_OFF
            elif (answer := watcher.instead(use)) is not None:
                outcome = answer
                record.settle(f"{prefix}:{i}", OUTCOME_JSON.dump_json(outcome), record.row(
                    Action.TOOL_REFUSED, Actor.AGENT, tool=use.name, target=target(use, place.secrets),
                    error_type=outcome.error_type, ok=False, duration_ms=0.0))
            else:
                outcome = call_on_record(f"{prefix}:{i}", use, tools, place, record, ahead.get(i),
                                         again=partial(watcher.bring_back, iteration, uses[:i]), hold=_reads(tools, use))
            watcher.saw(use, outcome)
            outcomes.append(outcome)
    finally:
        record.flush()
    return outcomes


_Done = tuple[Outcome, float]
"""What a call came to, and the milliseconds that it took."""

READERS = 8
"""Reads that are done at the same time: they wait for the disk, not for a processor."""


def _reads_at_once(prefix: str, uses: Sequence[ToolUse], start: int, tools: Mapping[str, Tool[Any]], place: Workplace,
                   record: Record) -> dict[int, _Done]:
    """Do the reads from `start` up to the next call that is none at the same time; nothing for fewer than two."""
    end = start
    if record.halt is not None:
        return {}
    while end < len(uses) and record.outcome(f"{prefix}:{end}") is None and _reads(tools, uses[end]):
        end += 1
    if end - start < 2:
        return {}
    from concurrent.futures import ThreadPoolExecutor  # here: an idle daemon does without it

    with ThreadPoolExecutor(max_workers=min(READERS, end - start), thread_name_prefix="read") as pool:
        done = list(pool.map(lambda use: _timed(use, tools, place, record.clock), uses[start:end]))
    return dict(enumerate(done, start))


def _reads(tools: Mapping[str, Tool[Any]], use: ToolUse) -> bool:
    tool = tools.get(use.name)
    return tool is not None and tool.effect is Effect.READ


def _timed(use: ToolUse, tools: Mapping[str, Tool[Any]], place: Workplace, clock: Clock) -> _Done:
    began = clock.monotonic()
    outcome = Toolbox(tools, place).dispatch(use.name, use.input)
    return outcome, (clock.monotonic() - began) * 1000


def may_be_half_done(name: str) -> bool:
    """Say whether a call of this tool that was cut off may have done part of its work, or work that cannot be done twice."""
    tool = BY_NAME.get(name)
    return tool is not None and (tool.effect is Effect.EXECUTE or tool.name == "edit_file")


def call_on_record(key: str, use: ToolUse, tools: Mapping[str, Tool[Any]], place: Workplace, record: Record,
                   done: _Done | None = None, *, again: Callable[[], bool], hold: bool = False) -> Outcome:
    """Carry a call out between its intent and its outcome, and journal it. `done` is a read that was carried out already.

    `hold` is as for `Record.settle`.

    A call that an earlier life began and did not see the end of is repeated: at once where that does no harm (reading,
    writing a whole file, the mission's own controls), and where half of it may be done after `again`, which makes the place
    what it was before it. Where that cannot be done the call is answered as interrupted.
    """
    record.fresh()
    tool = tools.get(use.name)
    if record.cut_off(key) and tool is not None and may_be_half_done(use.name) and not again():
        outcome, took_ms = INTERRUPTED, 0.0
    elif done is not None:
        outcome, took_ms = done
        outcome = replace(outcome, took_s=took_ms / 1000)
    else:
        if not _reads(tools, use):
            record.intend(key, json.dumps({"tool": use.name, "input": dict(use.input)}).encode())
        outcome, took_ms = _timed(use, tools, place, record.clock)
        outcome = replace(outcome, took_s=took_ms / 1000)
        if place.cancelled() and tool is not None and tool.effect is Effect.EXECUTE:
            raise Interrupted(f"stopped during {use.name}")
    if outcome.error_type in MACHINE_FAULTS:
        raise Postponed(json.loads(outcome.content)["error"], MACHINE_RETRY_S, Why.MACHINE)
    about = target(use, place.secrets)
    if outcome.refused:
        row = record.row(Action.TOOL_REFUSED, Actor.AGENT, tool=use.name, target=about, error_type=outcome.error_type,
                         ok=False, duration_ms=round(took_ms, 1))
    else:
        row = record.row(Action.TOOL_CALLED, Actor.AGENT, tool=use.name, target=about, ok=outcome.ok,
                         error_type=outcome.error_type, exit_code=outcome.exit_code, size=len(outcome.content),
                         duration_ms=round(took_ms, 1))
    record.settle(key, OUTCOME_JSON.dump_json(outcome), row, hold=hold)
    return outcome


CUT_OFF = Outcome(json.dumps({"error": "Your answer was cut off at the token limit, so this call was not carried out. Make "
                              "smaller calls.", "error_type": "cut_off"}), ok=False, error_type="cut_off")
INTERRUPTED = Outcome(json.dumps({"error": "The daemon was stopped during this call; part of it may have taken effect. Look "
                                  "before you repeat it.", "error_type": "interrupted"}), ok=False,
                      error_type="interrupted")


def target(use: ToolUse, secrets: Sequence[str] = ()) -> str:
    """Return what a call was about, for a journal row or a report: a path, a command, a pattern; never a content."""
    tool = BY_NAME.get(use.name)
    return "" if tool is None else tool.target(use.input, secrets)


def _result(use: ToolUse, outcome: Outcome) -> dict[str, Any]:
    content: str | list[dict[str, Any]] = outcome.content
    if outcome.image:
        content = [{"type": "text", "text": outcome.content},
                   {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": outcome.image}}]
    return {"type": "tool_result", "tool_use_id": use.id, "content": content, "is_error": not outcome.ok}


def encode_reply(reply: Reply, cost: Decimal | None, took_s: float) -> bytes:
    """Return a reply as the record keeps it: the assistant's blocks unchanged. It took `took_s` seconds."""
    usage = reply.usage
    return json.dumps({
        "blocks": list(reply.turn.blocks), "stop_reason": reply.stop_reason.value, "model": reply.model,
        "usage": [usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens],
        "cost_usd": None if cost is None else str(cost), "took_s": took_s,
    }).encode()


def _took_s(body: bytes) -> float:
    return float(json.loads(body).get("took_s", 0.0))


def decode_reply(body: bytes) -> tuple[Reply, Decimal | None]:
    """Return a recorded reply and what it cost."""
    data: Mapping[str, Any] = json.loads(body)
    cost = data["cost_usd"]
    return (Reply(Turn("assistant", tuple(data["blocks"])), StopReason(data["stop_reason"]), Usage(*data["usage"]),
                  data["model"]), None if cost is None else Decimal(cost))
