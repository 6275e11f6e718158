"""End a mission that would not end by itself, judged only from its history.

The history is folded call by call and turn by turn, and is the same when it is rebuilt from the
record, so a resumed mission is judged as if it had never been interrupted. `check` is asked before
each model turn, `check_call` before each tool call.

A pattern that is not a hard limit is told to the model once (a nudge); seen again, it ends the
mission.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice, takewhile
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from placet.chat.budget import Complexity, Ledger, exceeded, no_tool_call_left
from placet.chat.messages import StopReason
from placet.errors import End, Stop, ToolError


class Effect(StrEnum):
    """The effect of a tool's calls. `control` steers the conversation itself."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    CONTROL = "control"


def canonical(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the text by which two calls are the same: tool and arguments as canonical JSON."""
    given = json.dumps(dict(arguments), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"{tool}|{given}"


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call that the model asks for.

    `path` is the file that it reads or writes, the folder that it lists or searches; empty is
    everything. `about` is how it is named in what people read (no contents).
    """

    tool: str
    arguments: Mapping[str, Any]
    effect: Effect
    path: str = ""
    about: str = ""
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", canonical(self.tool, self.arguments))
        path = str(PurePosixPath(self.path))
        object.__setattr__(self, "path", "" if path == "." else path)

    def __str__(self) -> str:
        return f"`{self.tool} {self.about}`" if self.about else f"`{self.tool}`"


@dataclass(frozen=True, slots=True)
class CallSeen:
    """A call and its outcome.

    `ok` says that the tool worked; a command that ran and ended with an error code worked.
    `refused` that policy said no, `repeated` that a guard did (`check_call` gave an error).
    `result_digest` is a digest of the result, empty for an empty one.
    """

    call: CallRecord
    ok: bool = True
    refused: bool = False
    repeated: bool = False
    result_digest: str = ""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One model turn: the calls that it asked for, in order, and the reason why it stopped."""

    calls: tuple[CallSeen, ...]
    stop_reason: StopReason

    def did(self, *effects: Effect) -> bool:
        """Return whether a call of one of these kinds succeeded."""
        return any(seen.ok and seen.call.effect in effects for seen in self.calls)


class Pattern(StrEnum):
    """Patterns that the model is told about. `RULES` says which end a mission if they continue."""

    REFUSAL = "refusal"
    CONTEXT_FULL = "context_full"
    CUT_OFF = "cut_off"
    LOOP = "loop"
    REPETITION = "repetition"
    ALTERNATION = "alternation"
    FAILING = "failing"
    REFUSED = "refused"
    TALK = "talk"
    STALL = "stall"
    REPEATED_TOOL_ERROR = "repeated-tool-error"
    TOOL_REJECTION_LOOP = "tool-rejection-loop"
    NO_PROGRESS = "no-progress"
    MAX_STEPS_APPROACHING = "max-steps-approaching"


@dataclass(frozen=True, slots=True)
class Nudge:
    """Continue, and show `text` to the model; `with_nudge` adds it to the history.

    `told` has a sentence for people about each of the patterns.
    """

    patterns: tuple[Pattern, ...]
    text: str
    told: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class History:
    """A mission's turns and calls.

    `under_way` are the calls of the open turn; `nudged` has the number of turns after which the
    model was told of a pattern.
    """

    steps: tuple[StepRecord, ...] = ()
    under_way: tuple[CallSeen, ...] = ()
    nudged: Mapping[Pattern, int] = field(default_factory=dict)

    def with_call(self, call: CallSeen) -> History:
        """Add a call of the turn under way."""
        return replace(self, under_way=(*self.under_way, call))

    def with_step(self, stop_reason: StopReason) -> History:
        """Close the turn under way, with the calls added since the last one."""
        return replace(
            self, steps=(*self.steps, StepRecord(self.under_way, stop_reason)), under_way=()
        )

    def with_nudge(self, nudge: Nudge) -> History:
        """Note that the model was told; the same turn counts for it no more."""
        nudged = {pattern: len(self.steps) for pattern in nudge.patterns}
        return replace(self, nudged={**nudged, **self.nudged})

    def backwards(self) -> Iterator[CallSeen]:
        """Yield every call, the newest first."""
        yield from reversed(self.under_way)
        for step in reversed(self.steps):
            yield from reversed(step.calls)


# --- how often something stands at the end


def count_at_end(steps: Sequence[StepRecord], counts: Callable[[StepRecord], bool]) -> int:
    """Return how many steps at the end are of one kind."""
    return sum(1 for _ in takewhile(counts, reversed(steps)))


def turns_of_talk(steps: Sequence[StepRecord]) -> int:
    """Return the number of turns at the end that called no tool.

    A turn that was paused or cut short does not count, and does not end the count.
    """
    silent = steps[len(steps) - count_at_end(steps, lambda step: not step.calls) :]
    return sum(step.stop_reason in _TALKED for step in silent)


_TALKED = frozenset(
    {StopReason.END_TURN, StopReason.STOP_SEQUENCE, StopReason.TOOL_USE, StopReason.UNKNOWN}
)


def idle_turns(steps: Sequence[StepRecord]) -> int:
    """Return the number of turns since the last one that wrote a file or completed a step.

    0 before the first write.
    """
    if not any(step.did(Effect.WRITE) for step in steps):
        return 0
    return count_at_end(steps, lambda step: not step.did(Effect.WRITE, Effect.CONTROL))


def identical_rounds(steps: Sequence[StepRecord]) -> int:
    """Return how many of the last turns with calls made the very same ones, in the same order."""
    rounds = [[seen.call.key for seen in step.calls] for step in steps if step.calls]
    return sum(1 for _ in takewhile(rounds[-1].__eq__, reversed(rounds)))


def alternating_calls(history: History) -> int:
    """Return the number of calls at the end of the form … A B A B; 0 for two equal last calls."""
    pair = [seen.call.key for seen in islice(history.backwards(), 2)]
    if len(set(pair)) < 2:
        return 0
    calls = enumerate(history.backwards())
    return sum(1 for _ in takewhile(lambda one: one[1].call.key == pair[one[0] % 2], calls))


def failures_of(history: History, failed: CallSeen) -> int:
    """Return how often this very call failed since it last worked.

    Calls that were not tried do not count.
    """
    same = (seen for seen in history.backwards() if seen.call.key == failed.call.key)
    return sum(not seen.repeated for seen in takewhile(lambda seen: not seen.ok, same))


# Model turns of a mission; the scope's `max_iterations` may say otherwise.
ITERATIONS = {Complexity.TRIVIAL: 5, Complexity.STANDARD: 10, Complexity.COMPLEX: 20}

# The error type of the answer to a call that repeats earlier ones.
REPEATED = "repeated_call"


@dataclass(frozen=True, slots=True)
class Halt:
    """The mission ends here: raise `stop`. `pattern` is the cause, as the journal names it."""

    stop: Stop
    pattern: str


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """Thresholds of the guards, as in `[guards]`."""

    max_iterations: int
    """Model turns."""
    repeats: int = 3
    """This many identical calls within `window` calls are a repetition."""
    window: int = 10
    identical_rounds: int = 3
    """This many turns in a row with the same calls end the mission.

    The model is warned one turn before.
    """
    stall_turns: int = 5
    """Turns in a row without a change, after the first change."""
    same_call_failing: int = 3
    """Failures of one call since it last worked."""
    alternating_calls: int = 6
    """Calls of the form A B A B …."""
    talk_turns: int = 3
    """Turns in a row without a call."""
    way_out: str = (
        "call `complete_step` if the step is done, or `give_up` and say what is in the way"
    )
    """How the model ends its work if it cannot continue."""
    writes: bool = True
    """Whether the plan's scope allows writing."""


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
    history: History, settings: GuardSettings, ledgers: Sequence[Ledger]
) -> Nudge | Halt | None:
    """Judge a mission before its next model turn; None means continue. It is idempotent.

    It checks the cap on turns, the budgets, then the patterns in the order of `Pattern`. A limit
    that is reached, or a pattern that the model was warned about, ends the mission. One nudge
    reports all new patterns.
    """
    cap = settings.max_iterations
    if len(history.steps) >= cap:
        stop = Stop(End.ITERATION_CAP, f"all {cap} iterations were used without finishing")
        return Halt(stop, stop.end.value)
    for ledger in ledgers:
        if (excess := exceeded(ledger)) is not None:
            return Halt(stop := excess.stop(), stop.end.value)
    new: list[Sign] = []
    for sign in _signs(history, settings):
        nudged_at = history.nudged.get(sign.pattern)
        if nudged_at is None:
            new.append(sign)
        elif nudged_at < len(history.steps) and sign.count >= sign.halt_at:
            seen = "the model only talked" if sign.pattern is Pattern.TALK else sign.seen
            return _ended(sign.pattern, f"{seen}, despite a warning")
    if not new:
        return None
    text = " ".join(
        f"Noticed: {sign.seen}. {RULES[sign.pattern].advice.format(out=settings.way_out)}"
        for sign in new
    )
    return Nudge(
        tuple(sign.pattern for sign in new),
        f"{text} If it continues, the work ends here.",
        tuple(sign.told for sign in new),
    )


def check_call(
    history: History, settings: GuardSettings, call: CallRecord, ledgers: Sequence[Ledger]
) -> ToolError | Halt | None:
    """Judge a call before it runs: the budgets' cap on tool calls, then repetition.

    None means run it. The first repetition gets an error instead and counts as `repeated`; the
    model is told after the turn. One in a later turn ends the mission.
    """
    if call.effect is not Effect.CONTROL:
        for ledger in ledgers:
            if (excess := no_tool_call_left(ledger)) is not None:
                return Halt(stop := excess.stop(), stop.end.value)
    if not (detail := _repetition(history, settings, call)):
        return None
    if Pattern.REPETITION in history.nudged:
        return _ended(Pattern.REPETITION, detail)
    why = f"Not run: {detail}. The result would be the same as before."
    return ToolError(REPEATED, why, refused=True)


def _repetition(history: History, settings: GuardSettings, call: CallRecord) -> str:
    """Return how often a call repeats earlier ones, as a clause; empty if it does not.

    Reading, or running a command, does not repeat if a file that it may look at was changed in
    between: a test run after each edit is work, not a loop. A command may have changed every file.
    """
    times = 1
    looks = call.effect in (Effect.READ, Effect.EXECUTE)
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
    if seen.call.effect is Effect.WRITE:
        below = seen.call.path == path or seen.call.path.startswith(f"{path}/")
        return seen.ok and (not path or below)
    return seen.call.effect is Effect.EXECUTE and not seen.refused


# --- patterns


class Rule(NamedTuple):
    """The advice about a pattern, and how a mission ends that continues it.

    `end` is None for a trend: a pattern of the last LOOK_BACK turns. The model is told each time
    that it begins. It ends nothing. `seen` describes it.
    """

    advice: str
    end: End | None = None
    error_type: str = ""
    seen: str = ""


RULES: Mapping[Pattern, Rule] = {
    Pattern.REFUSAL: Rule("Do what you can of it, or {out}.", End.REFUSAL),
    Pattern.CONTEXT_FULL: Rule(
        "Older results were replaced by one line each. Ask for less at a time.", End.CONTEXT_FULL
    ),
    Pattern.CUT_OFF: Rule(
        "No call in it was run. Answer in smaller parts: fewer calls, smaller files and edits.",
        End.MODEL_ERROR,
        "cut_off",
    ),
    Pattern.LOOP: Rule("Do something else, or {out}.", End.REPETITION),
    Pattern.REPETITION: Rule(
        "Use what you were given, do something else, or {out}.", End.REPETITION
    ),
    Pattern.ALTERNATION: Rule("Do something else, or {out}.", End.REPETITION),
    Pattern.FAILING: Rule(
        "Read what the error says, and do it another way, or {out}.", End.TOOL_ERROR
    ),
    Pattern.REFUSED: Rule("Keep to what the approved scope allows, or {out}.", End.SCOPE),
    Pattern.TALK: Rule("Text reaches nobody. Call a tool and go on, or {out}.", End.TALK),
    Pattern.STALL: Rule(
        "Go on with the plan in your next turn, or call `finish` if it is done, or `give_up` if it"
        " cannot be done.",
        End.STALL,
    ),
    Pattern.REPEATED_TOOL_ERROR: Rule(
        "Read what the last error says before the next call; use other arguments or another tool.",
        seen="Every call of `{tool}` in the last {turns} iterations failed.",
    ),
    Pattern.TOOL_REJECTION_LOOP: Rule(
        "Stay within the plan's scope. If the plan cannot be done there, call `give_up` and say"
        " what is missing.",
        seen="placet refused every call of the last {turns} iterations.",
    ),
    Pattern.NO_PROGRESS: Rule(
        "The same calls bring nothing new. Look elsewhere, or continue with the plan's next step.",
        seen="The last {turns} iterations brought nothing new.",
    ),
    Pattern.MAX_STEPS_APPROACHING: Rule(
        "Use it to call `finish` if the plan is done, or `give_up` with what is missing.",
        seen="Iteration {taken} of {most} is done; one is left.",
    ),
}


def _ended(pattern: Pattern, detail: str) -> Halt:
    rule = RULES[pattern]
    assert rule.end is not None, "a trend ends nothing"
    return Halt(Stop(rule.end, detail, error_type=rule.error_type), pattern.value)


@dataclass(frozen=True, slots=True)
class Sign:
    """A pattern that the newest turn shows, and the one tool that it is about (empty for several).

    It is told at once; `halt_at` is the count that ends the mission after that.
    """

    pattern: Pattern
    count: int
    halt_at: int
    seen: str
    tool: str = ""

    @property
    def told(self) -> str:
        """What people are told: the text for the model is of no use to them."""
        if self.pattern is Pattern.TALK:
            return "The model only talks. placet reminded it to use its tools."
        return f"{self.seen[0].upper()}{self.seen[1:]}. placet told the model."


def _signs(history: History, settings: GuardSettings) -> Iterator[Sign]:
    if not history.steps:
        return
    newest = history.steps[-1]
    if newest.stop_reason is StopReason.REFUSAL:
        yield Sign(Pattern.REFUSAL, 1, 1, "the model refused to continue")
    if newest.stop_reason is StopReason.CONTEXT_FULL:
        seen = "the conversation no longer fits into the model's context"
        yield Sign(Pattern.CONTEXT_FULL, 1, 1, seen)
    if cut := count_at_end(history.steps, lambda step: step.stop_reason is StopReason.MAX_TOKENS):
        # Two cut answers far apart do not end a mission.
        yield Sign(Pattern.CUT_OFF, cut, 2, "the answer was cut off at its limit of tokens")
    if newest.calls:
        yield from _signs_of_calls(history, newest, settings)
    limit = settings.talk_turns
    if (talk := turns_of_talk(history.steps)) >= limit:
        yield Sign(Pattern.TALK, talk, limit, f"{talk} iterations in a row called no tool")
    limit = settings.stall_turns
    if settings.writes and (idle := idle_turns(history.steps)) >= limit:
        yield Sign(Pattern.STALL, idle, limit, f"{idle} iterations in a row changed nothing")


def _signs_of_calls(
    history: History, newest: StepRecord, settings: GuardSettings
) -> Iterator[Sign]:
    rounds, limit = identical_rounds(history.steps), settings.identical_rounds
    if rounds >= limit - 1:
        names = ", ".join(str(seen.call) for seen in newest.calls)
        seen = f"{rounds} iterations in a row made the same calls: {names}"
        yield Sign(Pattern.LOOP, rounds, limit, seen)
    if repeated := [seen for seen in newest.calls if seen.repeated]:
        seen = f"{repeated[0].call} was called again and again, with the same arguments"
        yield Sign(Pattern.REPETITION, 1, 1, seen)
    alternating, limit = alternating_calls(history), settings.alternating_calls
    if alternating >= limit:
        last, before = islice(history.backwards(), 2)
        seen = f"two calls alternated for {alternating} calls: {before.call}, {last.call}"
        yield Sign(Pattern.ALTERNATION, alternating, limit, seen)
    failures = [(failures_of(history, seen), seen) for seen in newest.calls]
    count, worst = max(failures, key=lambda pair: pair[0])
    if count >= settings.same_call_failing:
        pattern = Pattern.REFUSED if worst.refused else Pattern.FAILING
        what = "was refused" if worst.refused else "failed"
        seen = f"{worst.call} {what} {count} times"
        yield Sign(pattern, count, settings.same_call_failing, seen)


# Trends.

# Steps that have to show a trend.
LOOK_BACK = 3


def trend(steps: Sequence[StepRecord], max_steps: int) -> Sign | None:
    """Return the trend that began with the last step, or None if it began earlier.

    `max_steps` is the mission's cap on model turns.
    """
    kind, tool = trend_of(steps, max_steps)
    if kind is None or (steps and kind is trend_of(steps[:-1], max_steps)[0]):
        return None
    seen = RULES[kind].seen.format(tool=tool, turns=LOOK_BACK, taken=len(steps), most=max_steps)
    return Sign(kind, 1, 0, seen, tool)


def trend_of(steps: Sequence[StepRecord], max_steps: int) -> tuple[Pattern | None, str]:
    """Return the first trend that the last steps show, and the one tool that it is about.

    A step in which a write succeeded is progress, whatever its result says.
    """
    last = steps[-LOOK_BACK:]
    if len(last) == LOOK_BACK and all(step.calls for step in last):
        calls = [seen for step in last for seen in step.calls]
        tools = {seen.call.tool for seen in calls}
        tool = tools.pop() if len(tools) == 1 else ""
        if tool and not any(seen.ok or seen.refused for seen in calls):
            return Pattern.REPEATED_TOOL_ERROR, tool
        if all(seen.refused for seen in calls):
            return Pattern.TOOL_REJECTION_LOOP, tool
        if _nothing_new(last):
            return Pattern.NO_PROGRESS, tool
    return (Pattern.MAX_STEPS_APPROACHING if len(steps) == max_steps - 1 else None), ""


def _nothing_new(last: Sequence[StepRecord]) -> bool:
    if any(
        step.stop_reason is not StopReason.TOOL_USE or step.did(Effect.WRITE, Effect.CONTROL)
        for step in last
    ):
        return False
    results = {tuple(d for seen in step.calls if (d := seen.result_digest)) for step in last}
    return len(results - {()}) <= 1
