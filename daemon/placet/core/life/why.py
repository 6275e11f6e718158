"""Why a case is where it is and what helps, for each state but a failed mission's, which `why_failed` explains."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import assert_never

from placet.core.activity import Action, CommittedRow
from placet.core.life.case import WORKING, Case, State
from placet.core.turn.talk import ModelErrorKind


def standing(
    case: Case, rows: Sequence[CommittedRow], *, daemon_runs: bool, paused: bool
) -> tuple[str, tuple[str, ...]]:
    """Return why a case is where it is, and what a person may do next.

    `rows` are its own, in order.
    """
    if case.state in WORKING and not daemon_runs:
        return _stands_still(case, rows), ("Start it: placet run",)
    ident = case.request_id
    match case.state:
        case State.PLANNING | State.REVISING | State.APPROVED:
            if paused:
                return f"It is {case.state}, and nothing new is taken up: work is paused.", (
                    "Go on: placet resume",
                )
            if trouble := _model_trouble(rows):
                return trouble, (
                    "Mend the model if it is not its server's outage: [model] in System/placet.toml, or its key. "
                    "It goes on by itself.",
                )
            doing = (
                "its mission begins as soon as one may"
                if case.state is State.APPROVED
                else "its plan is being written"
            )
            return f"Since {case.since} it is {case.state}: {doing}.", (
                "Wait; follow it with: placet journal --follow",
            )
        case State.RUNNING:
            noticed = _last(rows, {Action.FAILURE_DETECTED}, since=Action.EXECUTION_STARTED)
            seen = "" if noticed is None else f" Noticed last: {noticed.details['description']}"
            trouble = f"\n{waits}" if (waits := _model_trouble(rows)) else ""
            return (
                f"It is carried out since {case.since}.{seen}{trouble}",
                (f"Follow it: placet status. Stop it: placet stop {ident}",),
            )
        case State.REVIEW:
            refused = _last(
                rows,
                {
                    Action.PLAN_REFUSED,
                    Action.PLAN_CHANGED_AFTER_APPROVAL,
                    Action.PLAN_APPROVED,
                    Action.PLAN_REVISED,
                    Action.PLAN_DRIFTED,
                },
            )
            why = f"Revision {case.revision} of its plan waits for you since {case.since}: {case.plan_path}"
            if refused is not None and refused.action_type in (
                Action.PLAN_REFUSED,
                Action.PLAN_DRIFTED,
            ):
                why += (
                    f"\nIt was put back: {refused.details.get('reason', 'files changed under it')}"
                )
            elif refused is not None and refused.action_type == Action.PLAN_CHANGED_AFTER_APPROVAL:
                why += "\nIt was changed after it had been approved, so that approval is void."
            ended = _last(rows, {Action.EXECUTION_FAILED, Action.PLAN_REVISED, Action.PLAN_CREATED})
            if ended is not None and ended.action_type == Action.EXECUTION_FAILED:
                why += f"\nA mission of it ended before (`{ended.details['reason']}`)" + (
                    f"; its report: {report}" if (report := ended.details.get("report")) else "."
                )
            return why, (
                f"Read it: placet show {ident}",
                f"placet approve {ident}, or: placet reject {ident} --reason R, or: "
                f"placet revise {ident} --comment C",
            )
        case State.FAILED:
            return (
                f"There is no plan: {case.failure}",
                (
                    f"Try again: placet retry {ident}, or set `status: pending` in {case.request_path or 'the request'}; what "
                    "failed is told to the next planning. Or edit the request first.",
                ),
            )
        case State.REJECTED:
            said = _last(rows, {Action.PLAN_REJECTED})
            who, reason = (
                ("somebody", "")
                if said is None
                else (said.details["reviewed_by"], said.details.get("reason", ""))
            )
            return (
                f"{who} rejected its plan at {case.since}"
                + (f": {reason}" if reason else ", without a reason."),
                (
                    f"For a new plan: placet retry {ident}, or set `status: pending` in {case.request_path or 'the request'}. Or "
                    "move the plan back to Inbox/Plans.",
                ),
            )
        case State.WITHDRAWN:
            gone = _last(rows, {Action.REQUEST_WITHDRAWN, Action.PLAN_WITHDRAWN})
            what = "its note" if gone is None else gone.details["path"]
            return f"{what} was taken away at {case.since}.", (
                "Put it back where it was, or write a new request.",
            )
        case State.COMPLETED:
            became = (
                f"\nWhat became of its branch {case.branch}: {case.became or 'nothing yet'}"
                if case.tip
                else ""
            )
            return (
                f"It was carried out. Its report: {case.report_path}{became}",
                (f"placet diff {ident}, placet merge {ident}, or: placet drop {ident} --reason R",)
                if case.tip and not case.became
                else (f"Take it back: placet undo {ident}",)
                if case.became == "merged"
                else (),
            )
        case _:
            assert_never(case.state)


def _stands_still(case: Case, rows: Sequence[CommittedRow]) -> str:
    """Say what a case waits for while no daemon runs."""
    if case.state is State.RUNNING:
        step = _last(rows, {Action.STEP_COMPLETED}, since=Action.EXECUTION_STARTED)
        done = (
            "no step of it is done"
            if step is None
            else f"step {step.details['step']} of {step.details['of']} is done"
        )
        return f"Its mission began at {case.since}, and stands still, as no daemon runs: {done}. When one starts, it goes on."
    if case.state is State.APPROVED:
        return (
            f"It was approved at {case.since}. No daemon runs; when one starts, its mission begins."
        )
    return (
        f"It was asked for at {case.since}. No daemon runs; when one starts, its plan is written."
    )


def _model_trouble(rows: Sequence[CommittedRow]) -> str:
    last = _last(rows, {Action.MODEL_FAILED, Action.MODEL_CALLED})
    if (
        last is None
        or last.action_type == Action.MODEL_CALLED
        or last.details.get("kind") == ModelErrorKind.CANCELLED
    ):
        return ""
    return (
        f"It waits for the model, which was asked {last.details['attempt']} times, last at {last.timestamp}: "
        f"{last.details['reason']}"
    ).replace(" 1 times,", " once,")


def _last(
    rows: Sequence[CommittedRow], actions: Collection[str], *, since: str = ""
) -> CommittedRow | None:
    """Return the last row of these actions.

    With `since` only one that came after the last row of that action.
    """
    for row in reversed(rows):
        if row.action_type in actions:
            return row
        if row.action_type == since:
            return None
    return None
