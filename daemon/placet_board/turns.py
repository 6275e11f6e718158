"""The work on a request as it happens: the model's turns, calls, what is left of the budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from placet.agent.entries import ATTEMPT, CALL, LITERAL, PLACE, Begun, Key, Replied
from placet.agent.record import Recorded
from placet.core.activity import Action, CommittedRow
from placet.core.life.case import OPEN, Case, State
from placet.core.text.note import read_note
from placet.core.text.plan import agent_steps
from placet.core.text.plan_reader import PlanProblems, parse_plan
from placet.core.turn.budget import Complexity
from placet.core.turn.guards import iteration_cap
from placet.core.turn.talk import Purpose
from placet.core.wording import at_most, counted, dollars
from placet.journal.reader import Reader
from placet.journal.writes import BodyDamaged
from placet_board.charts import Drawing, falling

MAX_TURNS = 100
"""Turns that a page shows, the last ones."""
MAX_CALLS = 50
"""Calls of one turn that a page shows, and literal actions."""
MAX_WORDS = 600
"""Characters that are shown of the model's words in a turn."""
MAX_OUTPUT = 4_000
"""Characters that are shown of one call's result."""


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A call of a tool; `ok` is None while it is at work, `cut` says that its result is longer."""

    tool: str
    what: str
    ok: bool | None
    took_s: float
    output: str
    cut: bool


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """One turn of the model: its words, its cost, its calls. `at` is empty where it is unknown."""

    number: int
    at: str
    took_s: float
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    cost: str
    words: str
    calls: tuple[ShownCall, ...]
    calls_left_out: int


@dataclass(frozen=True, slots=True)
class Work:
    """The work on a request, or on its plan (`is_mission` is false).

    `is_asking`: the model is asked now; `is_going`: calls without a result are at work.
    `literal` are the actions that placet carried out as the plan says, by step. `burning` is what
    was left of the budget after each turn, and `burned` a sentence about it.
    """

    is_mission: bool
    is_going: bool = False
    is_asking: bool = False
    turns: tuple[ShownTurn, ...] = ()
    turns_left_out: int = 0
    literal: tuple[tuple[str, ShownCall], ...] = ()
    burning: Drawing | None = None
    burned: str = ""


def work_of(reader: Reader, case: Case, rows: tuple[CommittedRow, ...], ceiling: int) -> Work:
    """Return the last work on a case, from its record and its journal rows.

    `ceiling` is the most turns that the configuration allows a mission.
    """
    record = Recorded()
    try:
        record.take(reader.records(case.trace_id, case.generation))
        plan = reader.text(case.approval.digest or case.outcome.carried_out or case.plan.digest)
    except BodyDamaged:
        return Work(is_mission=False)
    is_mission = record.has(PLACE)
    replies = record.replies()
    moments = _moments(rows, is_mission=is_mission)
    turns = tuple(
        _turn(record, number, replied, moments.get(number, ""))
        for number, replied in enumerate(replies, 1)
        if number > len(replies) - MAX_TURNS
    )
    burning, burned = None, ""
    if is_mission and plan is not None and replies:
        burning, burned = _burning(record, replies, plan, ceiling)
    is_going = case.state in OPEN and case.state is not State.REVIEW
    return Work(
        is_mission,
        is_going,
        is_going and record.begun(ATTEMPT.at(len(replies) + 1, 1)) is not None,
        turns,
        len(replies) - len(turns),
        tuple(_literal(record)),
        burning,
        burned,
    )


def _moments(rows: tuple[CommittedRow, ...], *, is_mission: bool) -> dict[int, str]:
    """Return the moment of each turn's reply."""
    found = {}
    for row in rows:
        if row.action_type == Action.MODEL_CALLED:
            data = row.details
            if (data.get("purpose") == Purpose.EXECUTE) == is_mission:
                found[int(data.get("iteration") or 0)] = row.timestamp
    return found


def _turn(record: Recorded, number: int, replied: Replied, at: str) -> ShownTurn:
    reply, usage = replied.reply, replied.reply.usage
    uses = reply.turn.tool_uses
    calls = tuple(
        _call(use.name, use.input, record, CALL.at(number, place))
        for place, use in enumerate(uses[:MAX_CALLS])
    )
    return ShownTurn(
        number,
        at,
        replied.took_s,
        usage.input_tokens + usage.cache_write_tokens,
        usage.cache_read_tokens,
        usage.output_tokens,
        dollars(replied.cost_usd),
        at_most(reply.turn.text.strip(), MAX_WORDS),
        calls,
        len(uses) - len(calls),
    )


def _literal(record: Recorded) -> Iterator[tuple[str, ShownCall]]:
    """Give the actions of literal steps, with the step of each."""
    places = []
    for key in {*record.intents, *record.outcomes}:
        head, _, rest = key.partition(":")
        step, _, number = rest.partition(":")
        if head == LITERAL.key and step.isdecimal() and number.isdecimal():
            places.append((int(step), int(number)))
    for of_step, place in sorted(places)[:MAX_CALLS]:
        entry = LITERAL.at(of_step, place)
        begun = record.begun(Key(entry.key, Begun))
        name, given = (begun.tool, begun.input) if begun is not None else ("action", {})
        yield f"step {of_step}", _call(name, given, record, entry)


def _call(tool: str, given: Mapping[str, Any], record: Recorded, entry: Key[Any]) -> ShownCall:
    outcome = record.get(entry)
    content = "" if outcome is None else outcome.content
    return ShownCall(
        tool,
        ", ".join(f"{key}={str(value)[:120]}" for key, value in given.items())[:400],
        None if outcome is None else outcome.ok,
        0.0 if outcome is None else outcome.took_s,
        content[:MAX_OUTPUT],
        len(content) > MAX_OUTPUT,
    )


def _burning(
    record: Recorded, replies: Sequence[Replied], plan: bytes, ceiling: int
) -> tuple[Drawing | None, str]:
    """Return what was left after each turn: of the plan's dollars, else of its turns."""
    try:
        read = parse_plan(read_note(plan).body, None)
    except PlanProblems:
        return None, ""
    scope = read.scope
    costs = [_cost(record, number, replied) for number, replied in enumerate(replies, 1)]
    known = [cost for cost in costs if cost is not None]
    # a model without a price uses turns only
    if scope.budget_usd and len(known) == len(costs) and any(known):
        full = float(scope.budget_usd)
        left = [full - float(sum(known[: number + 1])) for number in range(len(known))]
        used = f"{dollars(sum(known, Decimal(0)))} of {dollars(full)}"
        return falling(left, full, dollars), f"{used} used after {counted(len(costs), 'turn')}."
    complexity, steps = _complexity_of(plan) or Complexity.STANDARD, agent_steps(read.steps)
    most = iteration_cap(complexity, scope.max_iterations, steps, ceiling)
    if most < 1:
        return None, ""
    turns = [float(most - number) for number in range(1, len(costs) + 1)]
    return (
        falling(turns, float(most), lambda number: counted(round(number), "turn")),
        f"{len(costs)} of {counted(most, 'turn')} used.",
    )


def _cost(record: Recorded, number: int, replied: Replied) -> Decimal | None:
    """Return the dollars of a turn with its attempts that failed; None where a price is unknown."""
    total, attempt = replied.cost_usd, 1
    while (held := record.begun(ATTEMPT.at(number, attempt))) is not None:
        lost = record.get(ATTEMPT.at(number, attempt))
        attempt += 1
        if lost is None and ATTEMPT.at(number, attempt).key in record.intents:
            lost = held  # it was cut off, and counts with all that was held for it
        if lost is not None and total is not None:
            total = None if lost.amount.usd is None else total + lost.amount.usd
    return total


def _complexity_of(plan: bytes) -> Complexity | None:
    """Return the size that a plan's note says, None where it says none that there is."""
    try:
        return Complexity(str(read_note(plan).meta.get("complexity") or Complexity.STANDARD))
    except ValueError:
        return None
