"""Guards: what ends a mission that does not end by itself, judged from its history and nothing else.

The history is folded call by call and turn by turn, and is the same when it is rebuilt from the record, so a resumed
mission is judged as if it had never been interrupted. `check` is asked before each model turn and `check_call` before
each tool call; nobody asks anything else.

A pattern that is not a hard limit is told to the model once (a nudge); seen again, it ends the mission.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, assert_never

from placet.core.errors import End, Stop, ToolError
from placet.core.shorten import WORDS_KEPT, cut_middle
from placet.core.turn.budget import (
    IMAGE_TOKENS,
    Complexity,
    Ledger,
    exceeded,
    no_tool_call_left,
    prompt_likely,
)
from placet.core.turn.talk import Ask, Block, StopReason, ToolUse, Turn, Usage

ITERATIONS = {Complexity.TRIVIAL: 5, Complexity.STANDARD: 10, Complexity.COMPLEX: 20}
"""Model turns that a mission may take, by the plan's complexity.

The scope's `max_iterations` may say otherwise.
"""

REPEATED = "repeated_call"
"""The error type of the answer to a call that was not carried out because it repeats earlier ones."""


# --- the history
# ----------------------------------------------------------------------------------------------


class Deed(StrEnum):
    """What a tool does; the values are those of the tools' effects."""

    READ = "read"
    WRITE = "write"
    RUN = "execute"
    CONTROL = "control"


def canonical(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the text by which two calls are the same call: the tool and its arguments as canonical JSON."""
    return f"{tool}|{json.dumps(dict(arguments), sort_keys=True, separators=(',', ':'), ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call that the model asks for.

    `path` is the file that it reads or writes, the folder that it lists or searches; empty is
    everything. `about` is how it is named in what people read (no contents).
    """

    tool: str
    arguments: Mapping[str, Any]
    deed: Deed
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
    """A call and what it came to.

    `ok` says that the tool worked; a command that ran and ended with an error code worked.
    `refused` that policy said no, `repeated` that a guard did (`check_call` said Instead).
    `result_digest` is a digest of the result, empty for an empty one.
    """

    call: CallRecord
    ok: bool = True
    refused: bool = False
    repeated: bool = False
    result_digest: str = ""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One model turn: the calls that it asked for, in order, and why it stopped.

    `iteration` counts from 1.
    """

    iteration: int
    calls: tuple[CallSeen, ...]
    stop_reason: StopReason


class Pattern(StrEnum):
    """What is told once and then ends the mission."""

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


@dataclass(frozen=True, slots=True)
class History:
    """A mission so far: its turns, the calls of the turn under way, and after how many turns it was nudged for what."""

    steps: tuple[StepRecord, ...] = ()
    under_way: tuple[CallSeen, ...] = ()
    nudged: Mapping[Pattern, int] = field(default_factory=dict)

    def with_call(self, call: CallSeen) -> History:
        """Add a call of the turn under way."""
        return replace(self, under_way=(*self.under_way, call))

    def with_step(self, stop_reason: StopReason) -> History:
        """Close the turn under way, with the calls added since the last one."""
        step = StepRecord(len(self.steps) + 1, self.under_way, stop_reason)
        return replace(self, steps=(*self.steps, step), under_way=())

    def with_nudge(self, nudge: Nudge) -> History:
        """Note that the model was told; the same turn counts for it no more."""
        return replace(
            self, nudged={**{pattern: len(self.steps) for pattern in nudge.patterns}, **self.nudged}
        )

    def backwards(self) -> Iterator[CallSeen]:
        """Yield every call, the newest first."""
        yield from reversed(self.under_way)
        for step in reversed(self.steps):
            yield from reversed(step.calls)


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
class Nudge:
    """Go on, and put `text` before the model; add it to the history (`with_nudge`)."""

    patterns: tuple[Pattern, ...]
    text: str


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

WORTH_STUBBING = 500
"""Characters of a result from which on it is replaced.

Longer than any stub, so that no stub is replaced again.
"""

LEAST_GAIN = 4
"""A compaction that frees less than this part of the budget is left for later: each one costs the cached prefix."""


KEEP_TURNS = (6, 2)
"""How many turns at the end keep their results: the last three rounds, or where that frees too little the last one alone."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """One compaction as the record keeps it: done again with these numbers, it comes to the same, byte for byte."""

    keep_last: int
    budget_chars: int


def make_room(
    ask: Ask, last: Usage | None, context_tokens: int, name: Callable[[str], str], *, full: bool
) -> Compaction | None:
    """Return how to shorten the conversation of `ask` before it is sent.

    None where it fits, or nothing worth it could go.

    It has to fit `context_tokens` together with its answer. `last` is what its last reply used;
    `full` says that the model had no room left then: all that can go goes. `name` as in
    `stub_old_results`.
    """
    # a small model's answers are short, whatever is allowed
    room = max(context_tokens - ask.max_tokens, context_tokens // 2)
    needed = prompt_likely(ask, last)
    if needed <= room and not full:
        return None
    budget = 0 if full else _chars(ask.turns) * room // needed
    made = (Compaction(keep, budget) for keep in KEEP_TURNS)
    return next((one for one in made if compacted(ask.turns, one, name) != ask.turns), None)


def compacted(
    turns: Sequence[Turn], how: Compaction, name: Callable[[str], str]
) -> tuple[Turn, ...]:
    """Return a conversation as one compaction leaves it."""
    return stub_old_results(turns, how.keep_last, how.budget_chars, name)


def stub_old_results(
    turns: Sequence[Turn], keep_last: int, budget_chars: int, name: Callable[[str], str]
) -> tuple[Turn, ...]:
    """Replace old tool results by one line each if the conversation is longer than `budget_chars`.

    `name` keeps a text whole, for reading on, and returns the path to read. The first turn, the
    last `keep_last` turns and everything that the model said stay as they are. Feed the result back
    with the next turns added: what was replaced stays so, byte for byte, and between two
    compactions no turn changes, so the cached prefix holds. Nothing happens where it would free
    less than a LEAST_GAIN-th of the budget. Raises ValueError for a `keep_last` below 1.
    """
    if keep_last < 1:
        raise ValueError("the newest turn cannot be replaced before it was read")
    size = _chars(turns)
    if size <= budget_chars:
        return tuple(turns)
    calls = {use.id: use for turn in turns for use in turn.tool_uses}
    old = range(1, len(turns) - keep_last)
    stubbed = tuple(
        _stubbed(turn, calls, name) if i in old and turn.role == "user" else turn
        for i, turn in enumerate(turns)
    )
    return stubbed if (size - _chars(stubbed)) * LEAST_GAIN >= budget_chars else tuple(turns)


def _stubbed(turn: Turn, calls: Mapping[str, ToolUse], name: Callable[[str], str]) -> Turn:
    return Turn(turn.role, tuple(_stub(block, calls, name) for block in turn.blocks))


def _stub(block: Block, calls: Mapping[str, ToolUse], keep: Callable[[str], str]) -> Block:
    if block.get("type") != "tool_result":
        return block
    content = block.get("content", "")
    size = len(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
    if size < WORTH_STUBBING:
        return block
    use = calls.get(str(block.get("tool_use_id")))
    name = (
        "a call" if use is None else f"{use.name} {json.dumps(dict(use.input), ensure_ascii=False)}"
    )
    name = name if len(name) <= 150 else name[:149] + "…"
    whole = f'read_file, path "{keep(content)}", or ' if isinstance(content, str) else ""
    return {
        **block,
        "content": f"[{size:,} characters left out to make room: the result of {name}. What the call did"
        f" stands; to see the result again: {whole}read, search or run again.]",
    }


def _chars(turns: Sequence[Turn]) -> int:
    return sum(_size(block) for turn in turns for block in turn.blocks)


def _size(block: Block) -> int:
    content = block.get("content")
    if block.get("type") == "image":
        return IMAGE_TOKENS * 4  # what its base64 has of characters says nothing of its tokens
    if isinstance(content, list):
        return sum(_size(part) for part in content) + _size({**block, "content": ""})
    return len(json.dumps(block, ensure_ascii=False))
