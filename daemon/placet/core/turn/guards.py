"""Guards: what ends a mission that does not end by itself, judged from its history and nothing else.

The history is folded call by call and turn by turn, and is the same when it is rebuilt from the record, so a resumed
mission is judged as if it had never been interrupted. `check` is asked before each model turn and `check_call` before
each tool call; nobody asks anything else.

A pattern that is not a hard limit is told to the model once (a nudge); seen again, it ends the mission.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import assert_never

from placet.core.errors import End, Stop, ToolError
from placet.core.shorten import WORDS_KEPT, cut_middle
from placet.core.turn.budget import (
    Complexity,
    Ledger,
    exceeded,
    no_tool_call_left,
)
from placet.core.turn.history import CallRecord, CallSeen, Deed, History, Nudge, Pattern, StepRecord
from placet.core.turn.talk import StopReason

ITERATIONS = {Complexity.TRIVIAL: 5, Complexity.STANDARD: 10, Complexity.COMPLEX: 20}
"""Model turns that a mission may take, by the plan's complexity.

The scope's `max_iterations` may say otherwise.
"""

REPEATED = "repeated_call"
"""The error type of the answer to a call that was not carried out because it repeats earlier ones."""


# --- the history
# ----------------------------------------------------------------------------------------------


# --- verdicts
# -------------------------------------------------------------------------------------------------


class IterationCapError(Stop):
    """All model turns are taken."""

    def __init__(self, cap: int) -> None:
        super().__init__(End.ITERATION_CAP, f"all {cap} model turns were taken without finishing")


class RepetitionError(Stop):
    """The mission does the same again and again; `detail` says what."""

    def __init__(self, detail: str) -> None:
        super().__init__(End.REPETITION, detail)


@dataclass(frozen=True, slots=True)
class Fine:
    """Go on."""


@dataclass(frozen=True, slots=True)
class Instead:
    """Do not carry the call out; answer it with this error, and count it as `repeated`."""

    error: ToolError


@dataclass(frozen=True, slots=True)
class Halt:
    """The mission ends here: raise `stop`.

    `pattern` is what it is ended by, as the journal names it.
    """

    stop: Stop
    pattern: str


# --- settings
# -------------------------------------------------------------------------------------------------


def iteration_cap(complexity: Complexity, asked: int | None, ceiling: int) -> int:
    """Return how many model turns a mission may take.

    `asked` is the scope's word, `ceiling` the configuration's.
    """
    return min(ITERATIONS[complexity] if asked is None else asked, ceiling)


@dataclass(frozen=True, slots=True)
class IterationGuard:
    """The three basic guards of one mission: its cap, repetition, truncation.

    The `repeats`-th identical call within `window` calls is a repetition; results are cut to
    `words` words.
    """

    max_iterations: int
    repeats: int = 3
    window: int = 10
    words: int = WORDS_KEPT

    def __post_init__(self) -> None:
        if self.max_iterations < 1 or not 2 <= self.repeats <= self.window or self.words < 2:
            raise ValueError(
                "a guard needs max_iterations >= 1, 2 <= repeats <= window and words >= 2"
            )

    def check_iteration(self, history: History) -> None:
        """Raise IterationCapError if the next model turn is one too many."""
        if len(history.steps) >= self.max_iterations:
            raise IterationCapError(self.max_iterations)

    def check_call(self, history: History, call: CallRecord) -> None:
        """Raise RepetitionError if `call` repeats earlier ones.

        Reading, or running a command, is none if a file that it may look at was changed in between:
        a test run after each edit is work, not a loop. A command may have changed every file.
        """
        times = 1
        looks = call.deed in (Deed.READ, Deed.RUN)
        for seen in islice(history.backwards(), self.window - 1):
            if seen.call.key == call.key:
                times += 1
            elif looks and _may_change(seen, call.path):
                break
        if times >= self.repeats:
            raise RepetitionError(
                f"{call} was called {times} times within {self.window} calls, with nothing that it"
                " looks at changed in between"
                if looks
                else f"{call} was called {times} times within {self.window} calls"
            )

    def cut(self, text: str, hint: str = "") -> tuple[str, int]:
        """Return a result as the model is given it, and how many words were cut from its middle."""
        return cut_middle(text, words=self.words, hint=hint)


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """When each guard speaks.

    `identical_rounds`: so many turns in a row with the same calls end the mission (it is told one
    before). `stall_turns`: so many turns in a row that changed nothing, once one has.
    `same_call_failing`: failures of one call since it last worked. `alternating_calls`: calls of
    the form A B A B …. `talk_turns`: turns in a row without a call. `way_out` is what the model is
    told to do where it cannot go on.
    """

    basic: IterationGuard
    identical_rounds: int = 3
    stall_turns: int = 5
    same_call_failing: int = 3
    alternating_calls: int = 6
    talk_turns: int = 3
    way_out: str = "call `give_up` and say what is in the way"

    def __post_init__(self) -> None:
        if self.identical_rounds < 3 or self.alternating_calls < 4:
            raise ValueError("identical_rounds must be at least 3 and alternating_calls at least 4")
        if min(self.stall_turns, self.same_call_failing, self.talk_turns) < 1:
            raise ValueError("stall_turns, same_call_failing and talk_turns must be at least 1")


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What a guard has to know of the plan. `writes` says that its scope allows writing at all."""

    writes: bool


# --- the two questions
# ----------------------------------------------------------------------------------------


def check(
    history: History, settings: GuardSettings, facts: PlanFacts, ledgers: Sequence[Ledger] = ()
) -> Fine | Nudge | Halt:
    """Judge a mission before its next model turn. Asked once a turn; asking again changes nothing.

    In this order: the cap on turns, the budgets, then the patterns in the order of `Pattern`. The
    first limit that is reached or pattern that was told before ends the mission; new patterns are
    told together.
    """
    try:
        settings.basic.check_iteration(history)
    except IterationCapError as stop:
        return _reached(stop)
    for ledger in ledgers:
        if (gone := exceeded(ledger)) is not None:
            return _reached(gone.stop())
    new: list[_PatternSeen] = []
    for sight in _sights(history, settings, facts):
        told = history.nudged.get(sight.pattern)
        if told is None:
            new.append(sight)
        elif told < len(history.steps) and sight.count >= sight.halt_at:
            return Halt(
                _stop(sight.pattern, f"{sight.what}, after the model had been told of it"),
                sight.pattern.value,
            )
    if not new:
        return Fine()
    text = " ".join(
        f"Noticed: {sight.what}. {_ADVICE[sight.pattern].format(out=settings.way_out)}"
        for sight in new
    )
    return Nudge(tuple(s.pattern for s in new), f"{text} If it goes on, the work is ended here.")


def check_call(
    history: History, settings: GuardSettings, call: CallRecord, ledgers: Sequence[Ledger] = ()
) -> Fine | Instead | Halt:
    """Judge a call before it is carried out: the budgets' cap on tool calls, then repetition.

    The first repetition is answered instead of carried out, and the model told after the turn; one
    in a later turn ends the mission.
    """
    if call.deed is not Deed.CONTROL:
        for ledger in ledgers:
            if (gone := no_tool_call_left(ledger)) is not None:
                return _reached(gone.stop())
    try:
        settings.basic.check_call(history, call)
    except RepetitionError as stop:
        if Pattern.REPETITION in history.nudged:
            return Halt(stop, Pattern.REPETITION.value)
        return Instead(
            ToolError(
                REPEATED,
                f"Not carried out: {stop.detail}. The result would be the same as before.",
                refused=True,
            )
        )
    return Fine()


def _reached(stop: Stop) -> Halt:
    """Return how a limit ends a mission: the limit is the pattern."""
    return Halt(stop, stop.end.value)


# --- patterns
# -------------------------------------------------------------------------------------------------

_ADVICE = {
    Pattern.REFUSAL: "Do what you can of it, or {out}.",
    Pattern.CONTEXT_FULL: "Older results were replaced by one line each. Ask for less at a time.",
    Pattern.CUT_OFF: "No call in it was carried out. Answer in smaller parts: fewer calls, smaller files and edits.",
    Pattern.LOOP: "Do something else, or {out}.",
    Pattern.REPETITION: "Use what you were given, do something else, or {out}.",
    Pattern.ALTERNATION: "Do something else, or {out}.",
    Pattern.FAILING: "Read what the error says, and do it another way, or {out}.",
    Pattern.REFUSED: "Keep to what the approved scope allows, or {out}.",
    Pattern.TALK: "Text reaches nobody. Call a tool and go on, or {out}.",
    Pattern.STALL: "Go on with the plan in your next turn, or call `finish` if it is done, or `give_up` if it cannot be done.",
}


@dataclass(frozen=True, slots=True)
class _PatternSeen:
    """A pattern that the newest turn shows.

    It is told at once; `halt_at` is the count that ends the mission after that.
    """

    pattern: Pattern
    count: int
    halt_at: int
    what: str


def _sights(history: History, settings: GuardSettings, facts: PlanFacts) -> Iterator[_PatternSeen]:
    if not history.steps:
        return
    newest = history.steps[-1]
    if newest.stop_reason is StopReason.REFUSAL:
        yield _PatternSeen(Pattern.REFUSAL, 1, 1, "the model refused to go on")
    if newest.stop_reason is StopReason.CONTEXT_FULL:
        yield _PatternSeen(
            Pattern.CONTEXT_FULL, 1, 1, "the conversation no longer fits into the model's context"
        )
    if cut := _in_a_row(history.steps, StopReason.MAX_TOKENS):
        # Two cut answers far apart are no reason to end a mission.
        yield _PatternSeen(Pattern.CUT_OFF, cut, 2, "the answer was cut off at its limit of tokens")
    if newest.calls:
        yield from _call_sights(history, newest, settings)
    if (talk := _talk(history.steps)) >= settings.talk_turns:
        yield _PatternSeen(
            Pattern.TALK, talk, settings.talk_turns, f"{talk} turns in a row called no tool"
        )
    if facts.writes and (idle := _idle(history.steps)) >= settings.stall_turns:
        yield _PatternSeen(
            Pattern.STALL, idle, settings.stall_turns, f"{idle} turns in a row changed nothing"
        )


def _call_sights(
    history: History, newest: StepRecord, settings: GuardSettings
) -> Iterator[_PatternSeen]:
    names = ", ".join(str(seen.call) for seen in newest.calls)
    rounds = _identical_rounds(history.steps)
    if rounds >= settings.identical_rounds - 1:
        yield _PatternSeen(
            Pattern.LOOP,
            rounds,
            settings.identical_rounds,
            f"{rounds} turns in a row made the same calls: {names}",
        )
    if repeated := [seen for seen in newest.calls if seen.repeated]:
        yield _PatternSeen(
            Pattern.REPETITION,
            1,
            1,
            f"{repeated[0].call} was called again and again, with the same arguments",
        )
    alternating = _alternating(history)
    if alternating >= settings.alternating_calls:
        last, before = islice(history.backwards(), 2)
        yield _PatternSeen(
            Pattern.ALTERNATION,
            alternating,
            settings.alternating_calls,
            f"two calls alternated for {alternating} calls: {before.call}, {last.call}",
        )
    count, worst = max(
        ((_failures(history, seen), seen) for seen in newest.calls), key=lambda pair: pair[0]
    )
    if count >= settings.same_call_failing:
        pattern, what = (
            (Pattern.REFUSED, "was refused") if worst.refused else (Pattern.FAILING, "failed")
        )
        yield _PatternSeen(
            pattern, count, settings.same_call_failing, f"{worst.call} {what} {count} times"
        )


def _in_a_row(steps: Sequence[StepRecord], reason: StopReason) -> int:
    count = 0
    for step in reversed(steps):
        if step.stop_reason is not reason:
            break
        count += 1
    return count


def _talk(steps: Sequence[StepRecord]) -> int:
    """Count the turns at the end that called no tool.

    One that was paused or cut short is neither talk nor its end.
    """
    count = 0
    for step in reversed(steps):
        if step.calls:
            break
        count += step.stop_reason in (
            StopReason.END_TURN,
            StopReason.STOP_SEQUENCE,
            StopReason.TOOL_USE,
            StopReason.UNKNOWN,
        )
    return count


def _idle(steps: Sequence[StepRecord]) -> int:
    """Count the turns since the last one that wrote a file or completed a step.

    0 before the first write.
    """
    if not any(seen.ok and seen.call.deed is Deed.WRITE for step in steps for seen in step.calls):
        return 0
    for idle, step in enumerate(reversed(steps)):
        if any(seen.ok and seen.call.deed in (Deed.WRITE, Deed.CONTROL) for seen in step.calls):
            return idle
    raise AssertionError("a write is among them")


def _identical_rounds(steps: Sequence[StepRecord]) -> int:
    """Count how many of the last turns with calls made the very same ones, in the same order."""
    count = 0
    newest: list[str] = []
    for step in reversed(steps):
        keys = [seen.call.key for seen in step.calls]
        if not keys:
            continue
        newest = newest or keys
        if keys != newest:
            break
        count += 1
    return count


def _alternating(history: History) -> int:
    """Count the calls at the end of the form … A B A B; 0 where the last two are the same."""
    count = 0
    pair: list[str] = []
    for seen in history.backwards():
        if count < 2:
            pair.append(seen.call.key)
        elif seen.call.key != pair[count % 2]:
            break
        count += 1
    return count if len(set(pair)) == 2 else 0


def _failures(history: History, failed: CallSeen) -> int:
    """Count how often this very call failed since it last worked.

    Calls that were not tried do not count.
    """
    count = 0
    for seen in history.backwards():
        if seen.call.key == failed.call.key:
            if seen.ok:
                break
            count += not seen.repeated
    return count


def _may_change(seen: CallSeen, path: str) -> bool:
    """Say whether a call may have changed the file or folder `path` (empty: any)."""
    match seen.call.deed:
        case Deed.WRITE:
            return seen.ok and (
                not path or seen.call.path == path or seen.call.path.startswith(f"{path}/")
            )
        case Deed.RUN:
            return not seen.refused
        case Deed.READ | Deed.CONTROL:
            return False
        case _:
            assert_never(seen.call.deed)


def _stop(pattern: Pattern, detail: str) -> Stop:
    match pattern:
        case Pattern.LOOP | Pattern.REPETITION | Pattern.ALTERNATION:
            return RepetitionError(detail)
        case Pattern.FAILING:
            return Stop(End.TOOL_ERROR, detail)
        case Pattern.REFUSED:
            return Stop(End.SCOPE, detail)
        case Pattern.STALL:
            return Stop(End.STALL, detail)
        case Pattern.TALK:
            return Stop(End.TALK, detail)
        case Pattern.CUT_OFF:
            return Stop(End.MODEL_ERROR, detail, error_type="cut_off")
        case Pattern.REFUSAL:
            return Stop(End.REFUSAL, detail)
        case Pattern.CONTEXT_FULL:
            return Stop(End.CONTEXT_FULL, detail)
        case _:
            assert_never(pattern)


# --- long conversations
# ---------------------------------------------------------------------------------------
