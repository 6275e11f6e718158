"""Check the guards and budgets of one conversation before each round and each call.

The rules are in `chat.guards` and `chat.budget`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal

from placet.agent.day_budget import NAME as TODAY
from placet.agent.day_budget import day_of
from placet.agent.model_call import BLOCKED_RETRY_S
from placet.agent.ports import Ports
from placet.agent.record import BEGAN, NOTICED, OPENING, REPLY, WAITED, Key, Postponed, Record
from placet.agent.tool_calls import effect_of, target
from placet.case.mission_result import Spent
from placet.case.waiting import WaitReason
from placet.chat.budget import (
    LEAST_OUTPUT_TOKENS,
    Amount,
    Exceeded,
    Ledger,
    Limit,
    Limits,
    ModelCall,
    Room,
    reserve,
    tell,
    unkept,
    worst_case,
)
from placet.chat.budget import prompt_at_most as at_most
from placet.chat.cancel import Cancel
from placet.chat.guards import (
    REPEATED,
    RULES,
    CallRecord,
    CallSeen,
    Effect,
    GuardSettings,
    Halt,
    History,
    Nudge,
    Pattern,
    check,
    check_call,
    trend,
)
from placet.chat.messages import Ask, ToolUse
from placet.chat.prices import Pricer, is_free, pricer
from placet.chat.text_calls import looks_like_call
from placet.codec import sha256
from placet.errors import CALLS_AS_TEXT, End, Interrupted, Stop, ToolError
from placet.tools.base import Outcome
from placet.tools.control import SUBMIT_PLAN

WATCH = "The model was told. Stop the mission if this continues."
READ_THE_REPORT = "Read why the work ended. Then ask for something smaller, or try it again."


def waited_s(record: Record) -> float:
    """Return the seconds that the work waited for people's answers."""
    keys = (key for key in record.outcomes if key.startswith(f"{WAITED.key}:"))
    return sum(record.get(Key(key, float)) or 0.0 for key in keys)


@dataclass(slots=True)
class MissionLimits:
    """Track one conversation's use of its limits.

    `name` names the budget in messages. All input comes from the record, so a conversation
    that resumes after a crash gets the same judgement as one without a crash.
    """

    name: str
    ports: Ports
    record: Record
    limits: Limits
    guards: GuardSettings
    cancel: Cancel
    # earlier plannings of the request share the budget
    earlier: Amount = field(default_factory=Amount)
    trends: bool = False  # whether the model hears about them
    spent: Spent = field(default_factory=Spent)
    history: History = field(default_factory=History)
    tool_calls: int = 0
    nudged: bool = False
    """Whether the model was just told that it goes in a circle."""

    def ledger(self) -> Ledger:
        """Return the budget and how much of it is used."""
        spent, now_s = self.spent, self.ports.clock.wall().timestamp()
        wall_s = (
            now_s - self.record.once(BEGAN, lambda: now_s) - waited_s(self.record)
            if self.limits.wall_time_s is not None
            else 0.0
        )
        used = Amount(spent.tokens, spent.cost_usd, spent.working_s, self.tool_calls)
        return Ledger(self.name, self.limits, used + self.earlier, max(wall_s, 0.0))

    def before(self, iteration: int) -> list[str]:
        """Return remarks for the model before its next turn.

        Raises Stop at a limit, and where a person stopped the mission; Interrupted where the daemon
        stops. A turn that an earlier life took is not judged again: time has passed and settings
        may have changed since.
        """
        remarks = []
        self.nudged = False
        answered = self.record.has(REPLY.at(iteration))
        if not answered:
            self.raise_if_stopping()
        ledger = self.ledger()
        match check(self.history, self.guards, (ledger,)):
            case Halt(stop, pattern) if not answered:
                self._notice((iteration,), pattern, stop.detail, READ_THE_REPORT)
                last = self.record.replies()[-1:]
                opening = self.record.get(OPENING)
                # where text is read already, what helps names a setting that changes nothing
                reads_text = opening is not None and opening.tools not in ("auto", "native")
                is_talk = stop.end is End.TALK and not reads_text
                if is_talk and looks_like_call(last[0].reply.turn.text):
                    raise Stop(stop.end, stop.detail, error_type=CALLS_AS_TEXT)
                raise stop
            case Nudge() as nudge:
                self.history = self.history.with_nudge(nudge)
                self.nudged = True
                remarks.append(nudge.text)
                for pattern, told in zip(nudge.patterns, nudge.told, strict=True):
                    # A repetition was journalled with the call that it was.
                    if pattern is not Pattern.REPETITION and not answered:
                        self._notice((iteration, pattern.value), pattern.value, told, WATCH)
        turns = self.guards.max_iterations
        if short := tell(ledger, turns - iteration + 1, turns):
            remarks.append(short)
        if self.trends and (sign := trend(self.history.steps, turns)) is not None:
            kind, advice = sign.pattern.value, RULES[sign.pattern].advice
            self._notice(("pattern", iteration), kind, sign.seen, advice, sign.tool)
            remarks.append(f"Noticed ({kind}): {sign.seen} {advice}")
        return remarks

    def raise_if_stopping(self) -> None:
        """Raise Stop or Interrupted where the work is to end before anything else is begun."""
        self.cancel.check()
        self.ports.leaving.check()

    def _notice(
        self,
        where: Sequence[int | str],
        pattern: str,
        description: str,
        action: str,
        tool: str = "",
    ) -> None:
        """Journal once that the model heard about a pattern, or that it ended the work."""
        entry = NOTICED.at(*where)
        if not self.record.has(entry):
            iteration = len(self.history.steps) + 1
            row = self.record.failure(pattern, description, action, tool=tool, iteration=iteration)
            self.record.settle(entry, pattern, row)

    @contextmanager
    def room(self, ask: Ask) -> Iterator[Room]:
        """Hold the worst case of a call, here and in the day's budget, while it is made.

        Raises Stop where this budget has no room for it, Postponed where the day's has none.
        """
        ports = self.ports
        model, limits = ports.config.model, ports.config.limits
        call = worst_case(
            at_most(ask, self.spent.last_usage),
            ask.max_tokens,
            model.name,
            ports.prices,
            free=is_free(model.provider),
        )
        day = Limits(limits.day_tokens or None, limits.day_usd or None)
        # with the token: a frozen worker that wakes up drops its own room, not its successor's
        record = self.record
        key = f"{record.case.trace_id}:{record.attempt}:{record.token or ''}"
        with ports.day_budget.room(
            ports.journal, ports.clock, self.ledger(), day, key, call, self._price, self.cancel
        ) as found:
            if isinstance(found, Exceeded) and found.ledger != TODAY:
                raise found.stop()
            if isinstance(found, Exceeded) and self.cancel.is_set():
                raise Interrupted("stopped while waiting for room in the day's budget")
            if isinstance(found, Exceeded) and found.limit is Limit.USD and call.prompt_usd is None:
                why = " ".join(unkept(model.name, limits.day_usd))
                raise Postponed(why, BLOCKED_RETRY_S, WaitReason.BLOCKED)
            if isinstance(found, Exceeded):
                raise self._no_room_today(found, day, call)
            yield replace(found, time_s=self.ledger().time_left_s())

    @property
    def _price(self) -> Pricer:
        return pricer(self.ports.prices, self.ports.config.model.name)

    def _no_room_today(self, found: Exceeded, day: Limits, call: ModelCall) -> Postponed:
        """Return the wait for more of the day's budget: of all work, or of this case alone.

        All work waits if not even the shortest call has room.
        """
        ports = self.ports
        key = "day_tokens" if found.limit is Limit.TOKENS else "day_usd"
        limit, now = getattr(ports.config.limits, key), ports.clock.wall()
        left_s = max((day_of(now)[1] - now).total_seconds(), 1.0)
        used, more = found.detail.removeprefix(f"{TODAY}: "), 2 * limit
        if isinstance(reserve((Ledger(TODAY, day),), "", call), Exceeded):
            least = call.worst(min(LEAST_OUTPUT_TOKENS, call.max_tokens))
            needed = least.tokens if found.limit is Limit.TOKENS else least.usd or limit
            return Postponed(
                f"The next call may take more than a whole day's limit (limits.{key} = {limit}). "
                "This request waits until you raise it.\n"
                f"Type: placet config set limits.{key} {math.ceil(2 * needed)}",
                left_s,
                WaitReason.ROOM,
            )
        today = ports.day_budget.ledger(ports.journal, now, day, self._price)
        if today.used.usd is None and found.limit is Limit.USD:
            return Postponed(
                f"Some of today's calls have no known price, so placet cannot keep to ${limit} a "
                "day. To go on without a limit today: placet config set limits.day_usd 0",
                left_s,
                WaitReason.DAY,
            )
        shortest = replace(call, prompt_tokens=0, prompt_usd=Decimal(0))
        if isinstance(reserve((today,), "", shortest), Exceeded):
            what, why = (
                f"Today's budget is used up ({used}). Work resumes tomorrow.",
                WaitReason.DAY,
            )
        else:
            what = f"Today's budget has no room for this call ({used}). placet makes it tomorrow."
            why = WaitReason.ROOM
        raise_it = f"To raise it: placet config set limits.{key} {more}"
        return Postponed(f"{what}\n{raise_it}", left_s, why)

    def refuse_call(self, use: ToolUse) -> Outcome | None:
        """Return the answer to a call that must not run, or None to run it.

        May raise Stop. A plan submitted again unchanged has the same problems; the planner counts
        it.
        """
        if use.name == SUBMIT_PLAN.name:
            return None
        match check_call(self.history, self.guards, self._call(use), (self.ledger(),)):
            case Halt(stop, pattern):
                self._notice(self._at_call(), pattern, stop.detail, READ_THE_REPORT, use.name)
                raise stop
            case ToolError() as error:
                what = Pattern.REPETITION.value, error.message, WATCH, use.name
                self._notice(self._at_call(), *what)
                return Outcome(
                    json.dumps(error.as_result()),
                    ok=False,
                    error_type=error.error_type,
                    refused=True,
                )
        return None

    def _at_call(self) -> tuple[int, int]:
        return len(self.history.steps) + 1, len(self.history.under_way)

    def record_call(self, use: ToolUse, outcome: Outcome) -> None:
        """Count a call and its outcome."""
        self.tool_calls += effect_of(use.name) is not Effect.CONTROL
        self.spent.working_s += outcome.took_s
        self.history = self.history.with_call(
            CallSeen(
                self._call(use),
                outcome.ok,
                outcome.refused,
                outcome.error_type == REPEATED,
                sha256(outcome.content.encode()) if outcome.content else "",
            )
        )

    def _call(self, use: ToolUse) -> CallRecord:
        path = use.input.get("path")
        return CallRecord(
            use.name,
            use.input,
            effect_of(use.name) or Effect.READ,
            path if isinstance(path, str) else "",
            target(use, self.record.secrets),
        )
