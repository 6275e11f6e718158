"""Guards: they end a mission that does not end by itself, judged from its history and nothing else.

The history is folded call by call and turn by turn, and is the same when it is rebuilt from the
record, so a resumed mission is judged as if it had never been interrupted. `check` is asked before
each model turn, `check_call` before each tool call.

A pattern that is not a hard limit is told to the model once (a nudge); seen again, it ends the
mission.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from placet.chat.budget import Complexity, Ledger, exceeded, no_tool_call_left
from placet.chat.messages import StopReason
from placet.core.turn.history import (
    CallRecord,
    CallSeen,
    Deed,
    History,
    Nudge,
    Pattern,
    StepRecord,
    alternating_calls,
    count_at_end,
    failures_of,
    identical_rounds,
    idle_turns,
    turns_of_talk,
)
from placet.errors import End, Stop, ToolError

# Model turns of a mission; the scope's `max_iterations` may say otherwise.
ITERATIONS = {Complexity.TRIVIAL: 5, Complexity.STANDARD: 10, Complexity.COMPLEX: 20}

# The error type of the answer to a call that repeats earlier ones.
REPEATED = "repeated_call"


@dataclass(frozen=True, slots=True)
class Fine:
    """Go on."""


@dataclass(frozen=True, slots=True)
class Instead:
    """Do not carry the call out; answer it with this error, and count it as `repeated`."""

    error: ToolError


@dataclass(frozen=True, slots=True)
class Halt:
    """The mission ends here: raise `stop`. `pattern` is the cause, as the journal names it."""

    stop: Stop
    pattern: str


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """Thresholds of the guards. Raises ValueError for settings that make no sense.

    `max_iterations`: model turns. `repeats`: the so-many-th identical call within `window` calls is
    a repetition. `identical_rounds`: so many turns in a row with the same calls end the mission (it
    is told one before). `stall_turns`: turns in a row that changed nothing, once one has.
    `same_call_failing`: failures of one call since it last worked. `alternating_calls`: calls of
    the form A B A B …. `talk_turns`: turns in a row without a call. `way_out`: the model's way to
    end its work if it cannot go on.
    """

    max_iterations: int
    repeats: int = 3
    window: int = 10
    identical_rounds: int = 3
    stall_turns: int = 5
    same_call_failing: int = 3
    alternating_calls: int = 6
    talk_turns: int = 3
    way_out: str = "call `give_up` and say what is in the way"

    def __post_init__(self) -> None:
        if self.max_iterations < 1 or not 2 <= self.repeats <= self.window:
            raise ValueError("a guard needs max_iterations >= 1 and 2 <= repeats <= window")
        if self.identical_rounds < 3 or self.alternating_calls < 4:
            raise ValueError("identical_rounds must be at least 3 and alternating_calls at least 4")
        if min(self.stall_turns, self.same_call_failing, self.talk_turns) < 1:
            raise ValueError("stall_turns, same_call_failing and talk_turns must be at least 1")


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """The facts of a plan that guards need. `writes`: its scope allows writing."""

    writes: bool


SPARE_TURNS = 5
"""Turns that a mission has besides one for each step."""


def iteration_cap(
    complexity: Complexity, asked: int | None, steps: int, ceiling: int | None = None
) -> int:
    """Return how many model turns a mission may take.

    `asked` is the scope's number, `steps` those of the agent, `ceiling` the configuration's.
    """
    most = max(ITERATIONS[complexity], steps + SPARE_TURNS) if asked is None else asked
    return most if ceiling is None else min(most, ceiling)


def check(
    history: History, settings: GuardSettings, facts: PlanFacts, ledgers: Sequence[Ledger]
) -> Fine | Nudge | Halt:
    """Judge a mission before its next model turn. Asking again changes nothing.

    In this order: the cap on turns, the budgets, then the patterns in the order of `Pattern`. The
    first limit that is reached or pattern that was told before ends the mission; new patterns are
    told together.
    """
    cap = settings.max_iterations
    if len(history.steps) >= cap:
        return _reached(
            Stop(End.ITERATION_CAP, f"all {cap} model turns were taken without finishing")
        )
    for ledger in ledgers:
        if (gone := exceeded(ledger)) is not None:
            return _reached(gone.stop())
    new: list[_Sign] = []
    for sign in _signs(history, settings, facts):
        told = history.nudged.get(sign.pattern)
        if told is None:
            new.append(sign)
        elif told < len(history.steps) and sign.count >= sign.halt_at:
            return _ended(sign.pattern, f"{sign.seen}, after the model had been told of it")
    if not new:
        return Fine()
    text = " ".join(
        f"Noticed: {sign.seen}. {_RULES[sign.pattern].advice.format(out=settings.way_out)}"
        for sign in new
    )
    return Nudge(
        tuple(sign.pattern for sign in new), f"{text} If it goes on, the work is ended here."
    )


def check_call(
    history: History, settings: GuardSettings, call: CallRecord, ledgers: Sequence[Ledger]
) -> Fine | Instead | Halt:
    """Judge a call before it is carried out: the budgets' cap on tool calls, then repetition.

    The first repetition is answered instead of carried out, and the model told after the turn; one
    in a later turn ends the mission.
    """
    if call.deed is not Deed.CONTROL:
        for ledger in ledgers:
            if (gone := no_tool_call_left(ledger)) is not None:
                return _reached(gone.stop())
    if not (detail := _repetition(history, settings, call)):
        return Fine()
    if Pattern.REPETITION in history.nudged:
        return _ended(Pattern.REPETITION, detail)
    why = f"Not carried out: {detail}. The result would be the same as before."
    return Instead(ToolError(REPEATED, why, refused=True))


def _repetition(history: History, settings: GuardSettings, call: CallRecord) -> str:
    """Return how often a call repeats earlier ones, as a clause; empty if it does not.

    Reading, or running a command, does not repeat if a file that it may look at was changed in
    between: a test run after each edit is work, not a loop. A command may have changed every file.
    """
    times = 1
    looks = call.deed in (Deed.READ, Deed.RUN)
    for seen in islice(history.backwards(), settings.window - 1):
        if seen.call.key == call.key:
            times += 1
        elif looks and _may_change(seen, call.path):
            break
    if times < settings.repeats:
        return ""
    unchanged = ", with nothing that it looks at changed in between" if looks else ""
    return f"{call} was called {times} times within {settings.window} calls{unchanged}"


def _may_change(seen: CallSeen, path: str) -> bool:
    """Return whether a call may have changed the file or folder `path` (empty: any)."""
    if seen.call.deed is Deed.WRITE:
        below = seen.call.path == path or seen.call.path.startswith(f"{path}/")
        return seen.ok and (not path or below)
    return seen.call.deed is Deed.RUN and not seen.refused


def _reached(stop: Stop) -> Halt:
    return Halt(stop, stop.end.value)


# --- patterns


class _Rule(NamedTuple):
    """The advice for a pattern, and the end of a mission that goes on with it."""

    advice: str
    end: End
    error_type: str = ""


_RULES: Mapping[Pattern, _Rule] = {
    Pattern.REFUSAL: _Rule("Do what you can of it, or {out}.", End.REFUSAL),
    Pattern.CONTEXT_FULL: _Rule(
        "Older results were replaced by one line each. Ask for less at a time.", End.CONTEXT_FULL
    ),
    Pattern.CUT_OFF: _Rule(
        "No call in it was carried out. Answer in smaller parts: fewer calls, smaller files and"
        " edits.",
        End.MODEL_ERROR,
        "cut_off",
    ),
    Pattern.LOOP: _Rule("Do something else, or {out}.", End.REPETITION),
    Pattern.REPETITION: _Rule(
        "Use what you were given, do something else, or {out}.", End.REPETITION
    ),
    Pattern.ALTERNATION: _Rule("Do something else, or {out}.", End.REPETITION),
    Pattern.FAILING: _Rule(
        "Read what the error says, and do it another way, or {out}.", End.TOOL_ERROR
    ),
    Pattern.REFUSED: _Rule("Keep to what the approved scope allows, or {out}.", End.SCOPE),
    Pattern.TALK: _Rule("Text reaches nobody. Call a tool and go on, or {out}.", End.TALK),
    Pattern.STALL: _Rule(
        "Go on with the plan in your next turn, or call `finish` if it is done, or `give_up` if it"
        " cannot be done.",
        End.STALL,
    ),
}


def _ended(pattern: Pattern, detail: str) -> Halt:
    rule = _RULES[pattern]
    return Halt(Stop(rule.end, detail, error_type=rule.error_type), pattern.value)


@dataclass(frozen=True, slots=True)
class _Sign:
    """A pattern that the newest turn shows.

    It is told at once; `halt_at` is the count that ends the mission after that.
    """

    pattern: Pattern
    count: int
    halt_at: int
    seen: str


def _signs(history: History, settings: GuardSettings, facts: PlanFacts) -> Iterator[_Sign]:
    if not history.steps:
        return
    newest = history.steps[-1]
    if newest.stop_reason is StopReason.REFUSAL:
        yield _Sign(Pattern.REFUSAL, 1, 1, "the model refused to go on")
    if newest.stop_reason is StopReason.CONTEXT_FULL:
        seen = "the conversation no longer fits into the model's context"
        yield _Sign(Pattern.CONTEXT_FULL, 1, 1, seen)
    if cut := count_at_end(history.steps, lambda step: step.stop_reason is StopReason.MAX_TOKENS):
        # Two cut answers far apart are no reason to end a mission.
        yield _Sign(Pattern.CUT_OFF, cut, 2, "the answer was cut off at its limit of tokens")
    if newest.calls:
        yield from _signs_of_calls(history, newest, settings)
    limit = settings.talk_turns
    if (talk := turns_of_talk(history.steps)) >= limit:
        yield _Sign(Pattern.TALK, talk, limit, f"{talk} turns in a row called no tool")
    limit = settings.stall_turns
    if facts.writes and (idle := idle_turns(history.steps)) >= limit:
        yield _Sign(Pattern.STALL, idle, limit, f"{idle} turns in a row changed nothing")


def _signs_of_calls(
    history: History, newest: StepRecord, settings: GuardSettings
) -> Iterator[_Sign]:
    rounds, limit = identical_rounds(history.steps), settings.identical_rounds
    if rounds >= limit - 1:
        names = ", ".join(str(seen.call) for seen in newest.calls)
        seen = f"{rounds} turns in a row made the same calls: {names}"
        yield _Sign(Pattern.LOOP, rounds, limit, seen)
    if repeated := [seen for seen in newest.calls if seen.repeated]:
        seen = f"{repeated[0].call} was called again and again, with the same arguments"
        yield _Sign(Pattern.REPETITION, 1, 1, seen)
    alternating, limit = alternating_calls(history), settings.alternating_calls
    if alternating >= limit:
        last, before = islice(history.backwards(), 2)
        seen = f"two calls alternated for {alternating} calls: {before.call}, {last.call}"
        yield _Sign(Pattern.ALTERNATION, alternating, limit, seen)
    failures = [(failures_of(history, seen), seen) for seen in newest.calls]
    count, worst = max(failures, key=lambda pair: pair[0])
    if count >= settings.same_call_failing:
        pattern = Pattern.REFUSED if worst.refused else Pattern.FAILING
        what = "was refused" if worst.refused else "failed"
        seen = f"{worst.call} {what} {count} times"
        yield _Sign(pattern, count, settings.same_call_failing, seen)
