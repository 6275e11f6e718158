"""Why a mission ended as it did, read off its journal: the class of failure, the rows that prove it, what was tried and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, assert_never

from placet.core.activity import Action, CommittedRow
from placet.core.errors import End
from placet.core.life.case import Case
from placet.core.text.names import show
from placet.core.text.note import new_note
from placet.core.text.plan import Plan
from placet.core.text.plan_text import escaped
from placet.core.wording import at_most, dollars

PROOF = 3
"""How many journal rows show that a mission ended as its report says."""
MAX_TRIED = 25
"""How many different calls a report lists, the last ones; the journal has all."""
MAX_CHARS = 160
"""A longer value of a row is cut here."""

Rows = Sequence[CommittedRow]


class FailureClass(StrEnum):
    """Who or what brought a mission to its end."""

    NONE = "no failure"
    LIMIT = "a limit was reached"
    CIRCLES = "the agent went in circles"
    AGENT = "the agent came to nothing"
    TOOL = "a tool call failed"
    MODEL = "the model could not go on"
    REPOSITORY = "the repository stood in the way"
    PERSON = "a person stopped it"
    DAEMON = "the daemon could not go on"


@dataclass(frozen=True, slots=True)
class EndVerdict:
    """What an end means: its class, a sentence, and what a person may do next."""

    kind: FailureClass
    meaning: str
    advice: str


def verdict(end: End) -> EndVerdict:
    """Return what an end of a mission means."""
    of = FailureClass
    match end:
        case End.FINISHED:
            return EndVerdict(
                of.NONE, "The plan was carried out.", "Look at the branch; merge it or drop it."
            )
        case End.GAVE_UP:
            return EndVerdict(
                of.AGENT,
                "The agent said that the plan cannot be carried out.",
                "Read the agent's reason above and adjust the request to it.",
            )
        case End.NOTHING_CHANGED:
            return EndVerdict(
                of.AGENT,
                "The plan was to change files, and none was changed.",
                "Say in the request which files are to change, or ask a question instead of a change.",
            )
        case End.UNRESOLVED_ERROR:
            return EndVerdict(
                of.TOOL,
                "The agent called it done right after a call that had failed.",
                "Review the error and adjust the request.",
            )
        case End.TOOL_ERROR:
            return EndVerdict(
                of.TOOL,
                "A step that is carried out as written could not be.",
                "Review the error and adjust the request.",
            )
        case End.SCOPE:
            return EndVerdict(
                of.TOOL,
                "What the plan needs lies outside the scope that was approved.",
                "Ask for a plan with a wider scope, or for less.",
            )
        case End.ITERATION_CAP:
            return EndVerdict(
                of.LIMIT,
                "The agent had as many turns as the plan allows.",
                "Ask for less at once, or give the plan a higher `max_iterations`.",
            )
        case End.TOOL_CALL_CAP:
            return EndVerdict(
                of.LIMIT,
                "The agent made as many tool calls as are allowed.",
                "Ask for less at once, or raise `tool_calls` under [limits] in System/placet.toml.",
            )
        case End.BUDGET:
            return EndVerdict(
                of.LIMIT,
                "What was left of the budget did not suffice for another turn.",
                "Raise `budget_usd` in the request, or ask for less at once.",
            )
        case End.TIMEOUT:
            return EndVerdict(
                of.LIMIT,
                "The mission took as long as it may.",
                "Ask for less at once, or raise `mission_time_s` under [limits] in System/placet.toml.",
            )
        case End.REPETITION:
            return EndVerdict(
                of.CIRCLES,
                "The agent made the same calls again and again.",
                "Name in the request what it did not find, or what else it should try.",
            )
        case End.STALL:
            return EndVerdict(
                of.CIRCLES,
                "The agent went on for several turns without changing anything.",
                "Make the steps smaller, and say how one sees that each is done.",
            )
        case End.TALK:
            return EndVerdict(
                of.CIRCLES,
                "The agent talked and called no tool.",
                "Read what it said last; it may lack something that the request can give it.",
            )
        case End.MODEL_ERROR:
            return EndVerdict(
                of.MODEL,
                "The model's server answered with an error that trying again does not mend.",
                "Look at the model's error above; if it was an outage, nothing has to be changed.",
            )
        case End.REFUSAL:
            return EndVerdict(
                of.MODEL, "The model refused the task.", "Put the request differently."
            )
        case End.CONTEXT_FULL:
            return EndVerdict(
                of.MODEL,
                "The conversation no longer fitted into what the model can read at once.",
                "Ask for less at once, or name the files that matter.",
            )
        case End.REPOSITORY:
            return EndVerdict(
                of.REPOSITORY,
                "git could not do what the mission needs.",
                "Put the repository right as the error says.",
            )
        case End.DRIFT:
            return EndVerdict(
                of.REPOSITORY,
                "Files changed under the plan.",
                "Look at what changed under the plan, as the error says.",
            )
        case End.STOPPED_BY_PERSON:
            return EndVerdict(
                of.PERSON,
                "A person moved its plan out of System/Active.",
                "The mission was stopped on purpose; nothing has to be mended.",
            )
        case End.LEASE_LOST:
            return EndVerdict(
                of.DAEMON,
                "Another daemon had taken the mission over.",
                "See that only one daemon works on this vault.",
            )
        case End.CRASH_LOOP:
            return EndVerdict(
                of.DAEMON,
                "The daemon crashed in the same place again and again.",
                "Look into the daemon's log for that time; `placet doctor` may name the cause.",
            )
        case End.INTERNAL_ERROR:
            return EndVerdict(
                of.DAEMON,
                "placet itself made a mistake.",
                "Please report it, with the error above. Trying again may work.",
            )
        case _:
            assert_never(end)


# --- the journal's word
# -------------------------------------------------------------------------------------


def of_last_mission(rows: Rows) -> Rows:
    """Return the rows of a case from its last mission's beginning on."""
    for i in range(len(rows) - 1, -1, -1):
        if rows[i].action_type == Action.EXECUTION_STARTED:
            return rows[i:]
    return ()


def proof(end: End, rows: Rows) -> Rows:
    """Return the three rows of a mission that show its end best, in order: the last ones that fit, else the last of all."""
    rows = [
        row
        for row in rows
        if row.action_type not in _AFTERWARDS
        # a git process that went well shows nothing
        and (row.action_type != Action.GIT_RAN or "stderr" in row.details)
    ]
    fitting = [row for row in rows if _shows(end, row, rows)][-PROOF:]
    others = [row for row in rows if row not in fitting]
    missing = PROOF - len(fitting)
    return sorted([*fitting, *(others[-missing:] if missing else ())], key=lambda row: row.id)


_AFTERWARDS = (
    Action.EXECUTION_FAILED,
    Action.EXECUTION_COMPLETED,
    Action.GIT_ROLLED_BACK,
    Action.REPORT_WRITTEN,
    Action.LEASE_RELEASED,
    Action.PLAN_CALLOUT_RENEWED,
)
_TOOLS = (Action.TOOL_CALLED, Action.TOOL_REFUSED)


def _shows(end: End, row: CommittedRow, rows: Rows) -> bool:
    """Say whether a row shows why a mission ended so."""
    kind, data = row.action_type, row.details
    if end is End.REPETITION:
        last = next((r.details for r in reversed(rows) if r.action_type in _TOOLS), {})
        return kind in _TOOLS and (data["tool"], data["target"]) == (last["tool"], last["target"])
    if end is End.SCOPE:
        return kind == Action.TOOL_REFUSED
    match verdict(end).kind:
        case FailureClass.TOOL:
            return kind in _TOOLS and _went_wrong(data)
        case FailureClass.LIMIT:
            return kind == (Action.TOOL_CALLED if end is End.TOOL_CALL_CAP else Action.MODEL_CALLED)
        case FailureClass.CIRCLES:
            return (
                kind in (*_TOOLS, Action.FAILURE_DETECTED)
                if end is End.STALL
                else kind == Action.MODEL_CALLED
            )
        case FailureClass.MODEL:
            return kind in (Action.MODEL_CALLED, Action.MODEL_FAILED)
        case FailureClass.REPOSITORY:
            return kind.startswith("git.")
        case FailureClass.PERSON:
            return row.actor == "human"
        case FailureClass.DAEMON:
            return kind in (
                Action.EXECUTION_STARTED,
                Action.EXECUTION_RESUMED,
                Action.LEASE_ACQUIRED,
                Action.LEASE_EXPIRED,
            )
        case _:
            return kind in _TOOLS


def _went_wrong(data: Mapping[str, Any]) -> bool:
    return not data["ok"] or data.get("exit_code") not in (None, 0)


def row_line(row: CommittedRow) -> str:
    """Return a row as one line of text: its number, time, actor, action and facts."""
    facts = " ".join(
        f"{key}={_value(value)}"
        for key, value in row.details.items()
        if value not in (None, "", [])
    )
    return f"#{row.id} {row.timestamp} {row.actor} {row.action_type} {facts}".rstrip()


def _value(value: object) -> str:
    text = show(value if isinstance(value, str) else str(value))
    return at_most(text, MAX_CHARS)


def tried(rows: Rows) -> tuple[str, ...]:
    """Return what a mission's calls were and came to, a line each.

    The same one several times in a row is one line.
    """
    lines: list[tuple[str, int]] = []
    for row in rows:
        if row.action_type not in _TOOLS:
            continue
        line = f"{_call(row)}: {_came_to(row)}"
        if lines and lines[-1][0] == line:
            lines[-1] = line, lines[-1][1] + 1
        else:
            lines.append((line, 1))
    left_out = len(lines) - MAX_TRIED
    head = (f"({left_out} earlier ones: see the journal)",) if left_out > 0 else ()
    return (
        *head,
        *(line + (f" ({count} times)" if count > 1 else "") for line, count in lines[-MAX_TRIED:]),
    )


def _call(row: CommittedRow) -> str:
    return f"{_value(row.details['tool'])} {_value(row.details['target'])}".strip()


def _came_to(row: CommittedRow) -> str:
    data = row.details
    if row.action_type == Action.TOOL_REFUSED:
        return f"refused, {data['error_type']}"
    if data.get("exit_code") is not None:
        return f"exit code {data['exit_code']}"
    return "done" if data["ok"] else f"failed, {data['error_type']}"


# --- the timeline
# -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that took time in a mission: `turn` is the model's turn it belongs to, 0 for what came before the first."""

    turn: int
    what: str
    began_ms: int
    ended_ms: int
    ok: bool


def timeline(rows: Rows) -> tuple[Bar, ...]:
    """Return a mission's model turns, calls and steps in order, with their times since 1970 in milliseconds."""
    bars: list[Bar] = []
    turn = 0
    for row in rows:
        data = row.details
        ok = True
        match row.action_type:
            case Action.MODEL_CALLED:
                turn += 1
                what = "model"
            case Action.MODEL_FAILED:
                what, ok = f"model failed, {data['kind']}", False
            case Action.TOOL_CALLED | Action.TOOL_REFUSED:
                what, ok = f"{_call(row)}: {_came_to(row)}", not _went_wrong(data)
            case Action.STEP_COMPLETED:
                what = f"step {data['step']} of {data['of']} done"
            case Action.FAILURE_DETECTED:
                what, ok = f"noticed, {data['pattern']}", False
            case Action.EXECUTION_RESUMED:
                what = "taken up again"
            case _:
                continue
        ended = int(datetime.fromisoformat(row.timestamp).timestamp() * 1000)
        took = data.get("duration_ms") or 0
        bars.append(Bar(turn, what, ended - round(took), ended, ok))
    return tuple(bars)


MAX_BARS = 40
"""How many bars a chart shows, the last ones; a phone shows no more."""


def chart(rows: Rows) -> str:
    """Return a mission's timeline as a Mermaid Gantt chart; empty where nothing took time.

    Tool calls name files and commands, so every text is cut down to characters that mean nothing in
    Mermaid's grammar (https://mermaid.js.org/syntax/gantt.html: `:`, `#`, `;` and line ends do, and
    some words where a line begins with them).
    """
    bars = timeline(rows)
    if not bars:
        return ""
    lines = ["gantt", "  title What happened when", "  dateFormat x", "  axisFormat %H:%M:%S"]
    section = -1
    for number, bar in enumerate(bars[-MAX_BARS:], max(0, len(bars) - MAX_BARS) + 1):
        if bar.turn != section:
            section = bar.turn
            lines.append(f"  section {f'Turn {section}' if section else 'Before'}")
        mark = "done" if bar.ok else "crit"
        # A bar without a width is not drawn.
        lines.append(
            f"  {number} {_plain(bar.what)} :{mark}, {bar.began_ms}, {max(bar.ended_ms, bar.began_ms + 1)}"
        )
    return "\n".join(lines)


def _plain(text: str) -> str:
    kept = "".join(c if c.isalnum() or c in " ._-/,+*=()" else " " for c in show(text))
    return " ".join(kept.split())[:60].strip()


# --- going on
# -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remains:
    """What a failed mission leaves: why it ended, the steps that were done, and where its work is kept.

    `kept` is a ref, empty where nothing had been changed; `kept_commit` the commit it names, `files` those it changes.
    """

    end: End
    detail: str
    steps: tuple[int, ...]
    files: tuple[str, ...]
    kept: str
    kept_commit: str


def remains(facts: Mapping[str, Any], detail: str, rows: Rows) -> Remains:
    """Return what a mission left, from the facts of its `execution.failed`, why it failed, and its rows."""
    steps = sorted(
        {row.details["step"] for row in rows if row.action_type == Action.STEP_COMPLETED}
    )
    return Remains(
        End(facts["reason"]),
        detail,
        tuple(steps),
        tuple(facts.get("files_changed", ())),
        facts.get("kept", ""),
        facts.get("kept_commit", ""),
    )


def against_estimate(
    cost_usd: float | None, typical_usd: float | None, limit_usd: float | None
) -> str:
    """Say what a mission cost beside what missions of its size cost and what it was allowed.

    All in dollars, None: unknown.
    """
    cost = dollars(cost_usd, "unknown (there is no price for its model)")
    typical = (
        "no estimate (fewer than three missions of this size are known)"
        if typical_usd is None
        else f"missions of this size cost {dollars(typical_usd)} in the median"
    )
    return f"{cost}; {typical}; " + (
        "no limit of its own" if limit_usd is None else f"limit {dollars(limit_usd)}"
    )


def median(costs: Sequence[float]) -> float | None:
    """Return the estimate that earlier missions' costs give; None for fewer than three of them."""
    return sorted(costs)[len(costs) // 2] if len(costs) >= 3 else None


def ready_request(case: Case, plan: Plan, left: Remains) -> str:
    """Return a request that starts from where a mission broke, as a note: whoever drops it changes what they like."""
    keys = {
        "agent": case.agent,
        "portal": case.portal,
        "complexity": case.complexity.value if case.complexity else "",
        "budget_usd": float(case.budget_usd) if case.budget_usd is not None else "",
    }
    done = [f"- {n}. {_words(plan.steps[n - 1].title)}" for n in left.steps if n <= len(plan.steps)]
    to_do = [
        f"- {n}. {_words(step.title)}"
        for n, step in enumerate(plan.steps, 1)
        if n not in left.steps
    ]
    lines = [
        f"# Go on with: {_words(plan.title)}",
        "",
        _words(plan.summary),
        "",
        f"An earlier attempt ended with `{left.end.value}`: {_words(left.detail)}",
        "",
        "Still to be done:",
        *to_do,
    ]
    if done:
        lines += ["", "The earlier attempt had done:", *done]
    if left.kept:
        names = ", ".join(f"`{one_line(name)}`" for name in left.files[:10])
        lines += [
            "",
            f"Its work is kept at `{left.kept}` (commit `{left.kept_commit}`)"
            + (f", with changes in: {names}." if names else "."),
            f"To build on it, set `base_commit: {left.kept_commit}` and `if_changed: proceed` in the plan before it is "
            "approved; else it is done anew.",
        ]
    if (found := verdict(left.end)).kind in (
        FailureClass.TOOL,
        FailureClass.CIRCLES,
        FailureClass.AGENT,
    ):
        lines += ["", f"Do not do again what failed there: {found.meaning}"]
    return new_note(
        {key: value for key, value in keys.items() if value != ""}, "\n".join(lines) + "\n"
    ).decode()


def one_line(text: str) -> str:
    """Return a text as one line without what would begin a block or end a code span."""
    return show(" ".join(text.replace("`", "'").split()))[:500]


def _words(text: str) -> str:
    """Return a model's text as words of one line, which embed and begin nothing."""
    return escaped(one_line(text))
