"""Explain a case's state and name the next step.

`what_happened` explains failed missions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from placet import wording
from placet.activity import Action, CommittedRow
from placet.case.case import SOMEONE, Case, Person
from placet.case.checks import IN_DOUBT
from placet.case.estimate import against_estimate
from placet.case.life_cycle import State
from placet.case.sorting import text_back
from placet.chat.messages import ModelErrorKind
from placet.errors import ENDS, End, FailureClass, helps
from placet.note.escape import cell, code, literal
from placet.note.paths import Folder, show
from placet.plan.plan import Plan
from placet.wording import at_most, counted, some_of

Rows = Sequence[CommittedRow]
Explained = tuple[str, tuple[str, ...]]


def state_sentence(case: Case) -> str:
    """Return a case's name and state, for a sentence."""
    return f"{case.request_id} is {case.state.title}"


def explain_state(case: Case, rows: Rows, *, daemon_runs: bool, paused: bool) -> Explained:
    """Return why a case is where it is, and the next steps for a person.

    `rows` are the case's own, in order.
    """
    if case.is_working and not daemon_runs:
        return _without_daemon(case, rows), ("Start it: placet run",)
    if case.is_working and case.acting is not State.RUNNING and paused:
        why = f"It is {case.state.title}. placet is paused and starts no new work."
        return why, ("Resume: placet resume",)
    return _STATES[case.state](case, rows)


def _working(case: Case, rows: Rows) -> Explained:
    if trouble := _model_trouble(rows):
        return trouble, (
            "If it is not an outage of its server, fix the model: [model] in System/placet.toml, "
            "or its key. The work then resumes.",
        )
    return f"Since {case.since} it is {case.state.title}.", (
        "Wait; follow it with: placet journal --follow",
    )


def _running(case: Case, rows: Rows) -> Explained:
    noticed = _last(rows, {Action.FAILURE_DETECTED}, since=Action.EXECUTION_STARTED)
    why = f"It has been running since {case.since}."
    if noticed is not None:
        why += f" Last noticed: {noticed.details['description']}"
    if trouble := _model_trouble(rows):
        why += f"\n{trouble}"
    return why, (f"Follow it: placet status. Stop it: placet stop {case.request_id}",)


def _asking(case: Case, _: Rows) -> Explained:
    asking, ident = case.asking, case.request_id
    assert asking is not None, "in this state something is asked"
    if asking.amended:
        return f"Its mission waits for you to decide on a wider scope: {show(asking.path)}", (
            f"Read it, then: placet approve {ident}, or: placet reject {ident} --reason R",
        )
    doing = "mission" if case.acting is State.RUNNING else "planning"
    return f"Its {doing} waits for your answer: {show(asking.path)}", (
        f"Answer in that note, or: placet answer {ident} TEXT",
    )


def _in_review(case: Case, rows: Rows) -> Explained:
    plan = case.plan
    why = (
        f"Revision {plan.revision} of its plan waits for you since {case.since}: {show(plan.path)}"
    )
    if case.must_sign and plan.path.startswith(f"{Folder.ACTIVE}/"):
        why += ". You moved it there, but approvals are signed here: it waits for a signature."
    edited = Action.PLAN_CHANGED_AFTER_APPROVAL
    returned = (Action.PLAN_REFUSED, Action.PLAN_DRIFTED)
    gone_on = [row for row in rows if row.action_type not in returned or "reason" in row.details]
    last = _last(gone_on, {*returned, edited, Action.PLAN_APPROVED, Action.PLAN_REVISED})
    if last is not None and last.action_type in returned:
        why += f"\nIt was put back: {last.details['reason']}"
    elif last is not None and last.action_type == edited:
        why += "\nIt was changed after its approval, so the approval is void."
    ended = _last(rows, {Action.EXECUTION_FAILED, Action.PLAN_REVISED, Action.PLAN_CREATED})
    if ended is not None and ended.action_type == Action.EXECUTION_FAILED:
        report = ended.details.get("report")
        why += f"\nAn earlier mission of it ended with `{ended.details['reason']}`"
        why += f"; its report: {show(report)}" if report else "."
    ident = case.request_id
    return why, (
        f"Read it: placet show {ident}",
        f"placet approve {ident}, or: placet reject {ident} --reason R, or: "
        f"placet revise {ident} --comment C",
    )


def _failed(case: Case, _: Rows) -> Explained:
    return f"There is no plan: {case.outcome.failure}", (
        f"Try again: {_retry(case)}; what failed is told to the next planning. Or edit the request "
        "first.",
    )


def _rejected(case: Case, rows: Rows) -> Explained:
    rejection = _last(rows, {Action.PLAN_REJECTED})
    who = "somebody" if rejection is None else rejection.details["reviewed_by"]
    first = "" if rejection is None else rejection.details.get("reason", "")
    reason = case.rejection.reason or first  # one may be given later
    why = f"{who} rejected its plan at {case.since}"
    why += f": {reason}" if reason else ", without a reason."
    return why, (f"For a new plan: {_retry(case)}. Or move the plan back to Inbox/Plans.",)


def _withdrawn(case: Case, rows: Rows) -> Explained:
    removal = _last(rows, {Action.REQUEST_WITHDRAWN, Action.PLAN_WITHDRAWN})
    what = "its note" if removal is None else show(removal.details["path"])
    why = f"{what} was taken away at {case.since}."
    if not case.request_path:
        return why, ("Put it back where it was, or write a new request.",)
    if removal is not None and removal.action_type == Action.PLAN_WITHDRAWN:
        return why, (f"{text_back(case.request_id)}.", f"Or, for a new plan: {_retry(case)}.")
    return why, (f"Put it back where it was; or, for a new plan: {_retry(case)}.",)


def _completed(case: Case, _: Rows) -> Explained:
    ident = case.request_id
    why = "Its mission is done"
    why += f", {IN_DOUBT}.\n" if case.outcome.doubts else ". "
    why += "".join(f"{show(doubt)}\n" for doubt in case.outcome.doubts)
    why += f"The report: {show(case.outcome.report_path)}"
    if (branch := case.branch) is None:
        return why, ()
    why += f"\nIts branch {branch.name}: {branch.became or 'not merged yet'}"
    if branch.became == "merged":
        return why, (f"To undo the merge: placet undo {ident}",)
    if branch.became == "reverted":
        return why, (f"To merge it again: placet merge {ident}",)
    if branch.became == "gone":
        why += "\nThe branch was deleted. placet does not know whether you merged it."
        ways = f"If its commits are kept, this says how to restore it: placet merge {ident}"
        hint = "If you dropped it, write `dropped_reason` into the report."
        return why, (hint, ways)
    if branch.became == "dropped":
        return why, (f"It is kept; this says how to have it back: placet merge {ident}",)
    return why, (f"placet diff {ident}, placet merge {ident}, or: placet drop {ident} --reason R",)


_STATES: Mapping[State, Callable[[Case, Rows], Explained]] = {
    State.PLANNING: _working,
    State.REVISING: _working,
    State.APPROVED: _working,
    State.RUNNING: _running,
    State.ASKING: _asking,
    State.REVIEW: _in_review,
    State.FAILED: _failed,
    State.REJECTED: _rejected,
    State.WITHDRAWN: _withdrawn,
    State.COMPLETED: _completed,
}


def _retry(case: Case) -> str:
    place = show(case.request_path) or "the request"
    return f"placet retry {case.request_id}, or set `status: pending` in {place}"


def _without_daemon(case: Case, rows: Rows) -> str:
    if case.acting is State.RUNNING:
        step = _last(rows, {Action.STEP_COMPLETED}, since=Action.EXECUTION_STARTED)
        done = (
            "no step of it is done"
            if step is None
            else f"step {step.details['step']} of {step.details['of']} is done"
        )
        return (
            f"Its mission began at {case.since} and waits, because no daemon runs: {done}. It "
            "resumes when one starts."
        )
    did = "approved" if case.state is State.APPROVED else "asked for"
    return (
        f"It was {did} at {case.since}. No daemon runs; when one starts, {case.acting.next_step}."
    )


def _model_trouble(rows: Rows) -> str:
    last = _last(rows, {Action.MODEL_FAILED, Action.MODEL_CALLED})
    if last is None or last.action_type == Action.MODEL_CALLED:
        return ""
    if last.details.get("kind") == ModelErrorKind.CANCELLED:
        return ""
    attempt = last.details["attempt"]
    times = "once" if attempt == 1 else f"{attempt} times"
    return (
        f"It waits for the model, which was asked {times}, last at {last.timestamp}: "
        f"{last.details['reason']}"
    )


def _last(rows: Rows, actions: Collection[str], *, since: str = "") -> CommittedRow | None:
    """Return the last row of these actions.

    With `since`, return it only if it is after the last row of that action.
    """
    for row in reversed(rows):
        if row.action_type in actions:
            return row
        if row.action_type == since:
            return None
    return None


MAX_REFUSED = 5  # refused calls named
MAX_CHARS = 160  # of a tool's name or target

Events = Sequence[CommittedRow]


def of_last_mission(rows: Events) -> Events:
    """Return the rows of a case from its last mission's beginning on."""
    for i in range(len(rows) - 1, -1, -1):
        if rows[i].action_type == Action.EXECUTION_STARTED:
            return rows[i:]
    return ()


_IN_DETAIL = (
    FailureClass.AGENT,
    FailureClass.TOOL,
    FailureClass.REPOSITORY,
)
"""The causes of which the detail says more to a person than the meaning of the end."""


def how_it_ended(rows: Rows) -> str:
    """Return in words for a person how the last mission failed, or was stopped.

    `rows` are the case's. Empty if it did neither, or if a plan was written since.
    """
    ended = _last(
        rows,
        {Action.EXECUTION_FAILED, Action.PLAN_CREATED, Action.PLAN_REVISED},
        since=Action.EXECUTION_STARTED,
    )
    if ended is None or ended.action_type != Action.EXECUTION_FAILED:
        return ""
    facts, mission = ended.details, of_last_mission(rows)
    found, detail = ENDS[End(facts["reason"])], at_most(facts.get("detail", ""), MAX_CHARS)
    said = found.meaning
    if found.kind is FailureClass.PERSON:
        who = next((r.details for r in mission if r.action_type == Action.PLAN_TAKEN_BACK), {})
        person = Person(who.get("reviewed_by", SOMEONE), name=who.get("login", ""))
        said = f"{person.as_subject} stopped the mission."
    elif found.kind in _IN_DETAIL and detail:
        said = f"{said.removesuffix('.')}: {detail.removesuffix('.')}."
    if step := _last(mission, {Action.STEP_COMPLETED}):
        said += f" It had done {step.details['step']} of {counted(step.details['of'], 'step')}."
    return f"{said} Its work is saved." if facts.get("kept") or facts.get("left_at") else said


_TOOLS = (Action.TOOL_CALLED, Action.TOOL_REFUSED)


def advice(end: End, rows: Events, error_type: str = "") -> str:
    """Return what to do after a mission that ended so; `rows` are its own."""
    last = next((row for row in reversed(rows) if row.action_type in _TOOLS), None)
    circles = ENDS[end].kind is FailureClass.CIRCLES
    if last is None or not circles or last.details.get("error_type") != "outside_scope":
        return helps(end, error_type)
    return (
        "What it called last was refused, as it lies outside the scope that was approved. Where "
        "that is needed, widen `write` or `run` in the plan's scope, or ask for a plan with a "
        "wider one."
    )


def what_happened(facts: Mapping[str, Any], plan: Plan, rows: Events) -> list[str]:
    """Say how a mission ended, its last tool error, what was refused, and what is saved.

    `facts` are those of its `execution.failed`. What a model named stands as inline code.
    """
    budget = plan.scope.budget_usd
    cost = against_estimate(
        facts["cost_usd"],
        facts.get("typical_cost_usd"),
        None if budget is None else float(budget),
    )
    lines = [
        f"{ENDS[End(facts['reason'])].meaning} It ended after "
        f"{counted(facts['iterations'], 'iteration')}. Cost: {cost}."
    ]
    called = [row for row in rows if row.action_type == Action.TOOL_CALLED]
    failed = (
        row
        for row in reversed(called)
        if not row.details["ok"] or row.details.get("exit_code") not in (None, 0)
    )
    if wrong := next(failed, None):
        lines.append(f"Last tool error: {code(f'{_call(wrong)}: {_result(wrong)}')}.")
    if refused := refused_calls(rows):
        lines.append(refused)
    if facts.get("left_at"):
        saved = f"Its work is still in {code(show(facts['left_at']))}."
    elif facts.get("kept"):
        count = counted(len(facts["files_changed"]) + facts.get("files_more", 0), "changed file")
        saved = f"Its work is saved at {code(facts['kept'])}: {count}."
    else:
        saved = "No work of it is saved."
    return [*lines, saved]


def refused_calls(rows: Events) -> str:
    """Return the sentence that names the calls that were refused; empty without any."""
    refused = [row for row in rows if row.action_type == Action.TOOL_REFUSED]
    names = list(dict.fromkeys(code(_call(row)) + _why_refused(row) for row in refused))
    return f"Refused: {some_of(names, MAX_REFUSED)}." if names else ""


def hosts_table(rows: Events) -> str:
    """Return what the commands reached and were refused as a table; empty for nothing."""
    sums: dict[tuple[str, str], list[int]] = {}
    called = (row for row in rows if row.action_type == Action.TOOL_CALLED)
    for host in (host for row in called for host in row.details.get("hosts") or ()):
        place = f"{host['host']}:{host['port']}" if host["port"] else host["host"] or "unknown"
        counts = sums.setdefault((place, host["verdict"]), [0, 0, 0])
        for at, key in enumerate(("connections", "sent_bytes", "received_bytes")):
            counts[at] += host[key]
    if not sums:
        return ""
    lines = [
        f"| {cell(place)} | {literal(verdict)} | {n:,} | {sent:,} | {received:,} |"
        for (place, verdict), (n, sent, received) in sums.items()
    ]
    head = [
        "| host | result | connections | bytes sent | bytes received |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *lines])


_WHY_REFUSED = {
    "path_denied": "no mission may use that path",
    "protected": "no mission may write there",
    "path_outside": "outside the repository",
    "outside_worktree": "outside the repository",
    "secret_file": "it holds keys",
    "secret_in_commit": "it holds a secret",
    "ignored_file": "git ignores it",
    "needs_bubblewrap": "hosts need bubblewrap",
    "no_sandbox": "commands do not run on this machine",
    "unknown_tool": "there is no such tool",
    "repeated_call": "the same call again",
}
"""Why a call was refused, by its error type; the others are outside the approved scope."""


def _why_refused(row: CommittedRow) -> str:
    why = _WHY_REFUSED.get(str(row.details.get("error_type")))
    return f" ({why})" if why else ""


def _call(row: CommittedRow) -> str:
    """Return the tool and target of a call on one line."""
    tool, target = (at_most(show(str(row.details[key])), MAX_CHARS) for key in ("tool", "target"))
    return f"{tool} {target}".strip()


def _result(row: CommittedRow) -> str:
    if (exit_code := row.details.get("exit_code")) is not None:
        return f"exit code {exit_code}"
    return f"failed, {row.details['error_type']}"


def one_line(text: str) -> str:
    """Return a text as one line that cannot begin a block or end a code span."""
    return show(wording.one_line(text.replace("`", "'")))[:500]
