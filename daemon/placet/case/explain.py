"""Explain a case's state and name the next step.

`why_failed` explains failed missions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from placet.activity import Action, CommittedRow
from placet.case.case import Case, State
from placet.chat.messages import ModelErrorKind

Rows = Sequence[CommittedRow]
Explained = tuple[str, tuple[str, ...]]


_IS = {
    State.PLANNING: "being planned",
    State.REVIEW: "in review",
    State.REVISING: "being revised",
    State.ASKING: "waiting for your answer",
}


def stands(case: Case) -> str:
    """Return a case's name and state, for a sentence."""
    return f"{case.request_id} is {_IS.get(case.state, case.state)}"


def standing(case: Case, rows: Rows, *, daemon_runs: bool, paused: bool) -> Explained:
    """Return why a case is where it is, and the next steps for a person.

    `rows` are the case's own, in order.
    """
    if case.is_working and not daemon_runs:
        return _without_daemon(case, rows), ("Start it: placet run",)
    if case.is_working and case.acting is not State.RUNNING and paused:
        why = f"It is {case.state}, and nothing new is taken up: work is paused."
        return why, ("Go on: placet resume",)
    return _STATES[case.state](case, rows)


def _working(case: Case, rows: Rows) -> Explained:
    if trouble := _model_trouble(rows):
        return trouble, (
            "If it is not an outage of its server, fix the model: [model] in System/placet.toml, "
            "or its key. It goes on by itself.",
        )
    doing = "its plan is being written"
    if case.state is State.APPROVED:
        doing = "its mission begins as soon as one may"
    why = f"Since {case.since} it is {case.state}: {doing}."
    return why, ("Wait; follow it with: placet journal --follow",)


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
        return f"Its mission asks for a wider scope, and stands still: {asking.path}", (
            f"Read it, then: placet approve {ident}, or: placet reject {ident} --reason R",
        )
    doing = "mission" if case.acting is State.RUNNING else "planning"
    return f"Its {doing} asks you something, and stands still: {asking.path}", (
        f"Answer in that note, or: placet answer {ident} TEXT",
    )


def _in_review(case: Case, rows: Rows) -> Explained:
    plan = case.plan
    why = f"Revision {plan.revision} of its plan waits for you since {case.since}: {plan.path}"
    edited = Action.PLAN_CHANGED_AFTER_APPROVAL
    put_back = (Action.PLAN_REFUSED, Action.PLAN_DRIFTED)
    gone_on = [row for row in rows if row.action_type not in put_back or "reason" in row.details]
    last = _last(gone_on, {*put_back, edited, Action.PLAN_APPROVED, Action.PLAN_REVISED})
    if last is not None and last.action_type in put_back:
        why += f"\nIt was put back: {last.details['reason']}"
    elif last is not None and last.action_type == edited:
        why += "\nIt was changed after its approval, so the approval is void."
    ended = _last(rows, {Action.EXECUTION_FAILED, Action.PLAN_REVISED, Action.PLAN_CREATED})
    if ended is not None and ended.action_type == Action.EXECUTION_FAILED:
        report = ended.details.get("report")
        why += f"\nAn earlier mission of it ended with `{ended.details['reason']}`"
        why += f"; its report: {report}" if report else "."
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
    said = _last(rows, {Action.PLAN_REJECTED})
    who = "somebody" if said is None else said.details["reviewed_by"]
    first = "" if said is None else said.details.get("reason", "")
    reason = case.rejection.reason or first  # one may be given later
    why = f"{who} rejected its plan at {case.since}"
    why += f": {reason}" if reason else ", without a reason."
    return why, (f"For a new plan: {_retry(case)}. Or move the plan back to Inbox/Plans.",)


def _withdrawn(case: Case, rows: Rows) -> Explained:
    gone = _last(rows, {Action.REQUEST_WITHDRAWN, Action.PLAN_WITHDRAWN})
    what = "its note" if gone is None else gone.details["path"]
    why = f"{what} was taken away at {case.since}."
    if not case.request_path:
        return why, ("Put it back where it was, or write a new request.",)
    return why, (f"Put it back where it was; or, for a new plan: {_retry(case)}.",)


def _completed(case: Case, _: Rows) -> Explained:
    ident = case.request_id
    why = f"It was carried out. Its report: {case.outcome.report_path}"
    if case.outcome.tip:
        became = case.outcome.became or "nothing yet"
        why += f"\nWhat became of its branch {case.outcome.branch}: {became}"
    if case.outcome.became == "merged":
        return why, (f"Take it back: placet undo {ident}",)
    if case.outcome.became == "reverted":
        return why, (f"Bring it in again: placet merge {ident}",)
    if case.outcome.became == "dropped":
        return why, (f"It is kept; this says how to have it back: placet merge {ident}",)
    if case.outcome.tip:
        ways = f"placet diff {ident}, placet merge {ident}, or: placet drop {ident} --reason R"
        return why, (ways,)
    return why, ()


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
    place = case.request_path or "the request"
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
            f"Its mission began at {case.since} and waits, because no daemon runs: {done}. When "
            "one starts, it goes on."
        )
    did, then = "asked for", "its plan is written"
    if case.state is State.APPROVED:
        did, then = "approved", "its mission begins"
    return f"It was {did} at {case.since}. No daemon runs; when one starts, {then}."


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
