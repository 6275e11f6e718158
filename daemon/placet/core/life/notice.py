"""Warnings for a readable note of which a part, or the place, has no effect."""

from __future__ import annotations

from collections.abc import Mapping

from placet.core.life.case import Case, NoteSeen, State
from placet.core.life.plan_note import HOW_TO_REVIEW, below
from placet.core.life.sight import DRAFT
from placet.core.life.sorting import CaseNotes
from placet.core.text.comments import comments
from placet.core.text.names import Folder
from placet.core.text.note import read_note

_OF_PLANS = frozenset({"", "review", "needs_revision", "rejected"})
_STAMPED = {
    State.PLANNING: "planning",
    State.REVISING: "planning",
    State.REJECTED: "rejected",
    State.WITHDRAWN: "rejected",
    State.FAILED: "error",
    State.COMPLETED: "completed",
}
_NEW_PLAN = "For a new plan set `status: pending` in the request."
_BACK = f"To review it again move it to `{Folder.PLANS}`."


def beside(case: Case, notes: CaseNotes) -> Mapping[str, str]:
    """Return the warnings for the notes of a case that is not about to change, by path."""
    said: dict[str, str] = {}
    if (
        (request := notes.request) is not None
        and request.folder is Folder.REQUESTS
        and not request.problem
    ):
        said[request.path] = _beside_request(case, request)
    if len(notes.plans) == 1 and not notes.plans[0].problem:
        said[notes.plans[0].path] = _beside_plan(case, notes.plans[0])
    return {path: why for path, why in said.items() if why}


def lost_keys(case: Case, note: NoteSeen) -> str:
    """Return what to put back into a plan that lost its keys, or an empty string."""
    if note.trace_id and note.is_plan:
        return ""
    emptied = not below(read_note(note.raw).body)[1].strip()
    return (
        "The lines are missing that say whose plan this is, so it cannot be approved. Put them "
        f"back into its properties: `trace_id: {case.trace_id}`, `request_id: {case.request_id}`, "
        f"`revision: {case.revision}`."
        + (
            f" Its text is gone too: `placet show {case.request_id}` has the one that was written "
            "last."
            if emptied
            else ""
        )
    )


def _beside_request(case: Case, note: NoteSeen) -> str:
    approved = case.state in (State.APPROVED, State.RUNNING)
    # Old words of the daemon's come back with a sync tool or a late save; a person's are those that
    # it never wrote here.
    own = {"", "planning", "planned", _STAMPED.get(case.state, "")} | (
        set() if approved else {"pending"}
    )
    if note.status == DRAFT and not approved:
        return ""
    if note.status not in own:
        helps = (
            f"Its plan was approved: to stop that, move the plan from `{Folder.ACTIVE}` to "
            f"`{Folder.PLANS}`."
            if approved
            else "To ask for a plan anew write `status: pending`; to withdraw the request, move it "
            f"out of `{Folder.REQUESTS}`."
        )
        return f"`status: {note.status}` decides nothing here. {helps}"
    if case.state is State.WITHDRAWN:
        return (
            "Its plan was taken away, so nothing more is done. Put the plan back into "
            f"`{Folder.PLANS}`, or set `status: pending` for a new one."
        )
    if case.request_digest in ("", note.digest):
        return ""
    if approved:
        return (
            "This request was changed after its plan had been approved. What was approved is "
            "carried out; then a new plan follows. To have the change planned before, move the "
            f"plan from `{Folder.ACTIVE}` to `{Folder.PLANS}`."
        )
    if case.state is State.REJECTED or (case.state is State.FAILED and case.report_path):
        return (
            f"This request was changed after it had ended ({case.state}). Set `status: pending` to "
            "have it planned anew."
        )
    return ""


def _beside_plan(case: Case, note: NoteSeen) -> str:
    if why := lost_keys(case, note):
        return why
    match note.folder, case.state:
        case _, State.PLANNING:
            return (
                "A new plan is being written for this request, so this one decides nothing. To "
                f"have this one instead, wait for the new one in `{Folder.PLANS}`, take that one "
                f"away, then move this one to `{Folder.PLANS}`."
            )
        case Folder.PLANS, State.REVIEW:
            return _in_review(case, note)
        case Folder.PLANS, State.FAILED if note.status not in (
            "error",
            "",
            "review",
            "approved",
            "needs_revision",
        ):
            return (
                f"`status: {note.status}` decides nothing here. To have this plan changed set "
                f"`status: needs_revision`; to approve it again move it to `{Folder.ACTIVE}`, to "
                f"reject it to `{Folder.REJECTED}`."
            )
        case Folder.PLANS, State.FAILED if note.status == "error" and not case.report_path:
            return (
                f"It could not be revised: {case.failure}\nThe plan is as it was. To try again set "
                "`status: needs_revision`; or approve it as it is, or reject it."
            )
        case Folder.ACTIVE, State.APPROVED | State.RUNNING if note.status not in (
            "",
            "approved",
            "rejected",
            "needs_revision",
        ):
            return (
                f"`status: {note.status}` decides nothing here: this plan is approved. To take "
                f"that back, move it to `{Folder.PLANS}`."
            )
        case Folder.REQUESTS, State.FAILED if note.status not in ("", "error", "pending"):
            return (
                f"`status: {note.status}` decides nothing here. To have this plan revised set "
                f"`status: pending`; to reject it move it to `{Folder.REJECTED}`. {_BACK}"
            )
        case Folder.REJECTED, State.REJECTED if note.status not in ("", "rejected"):
            return (
                f"`status: {note.status}` decides nothing here: this plan was rejected. {_BACK} "
                f"{_NEW_PLAN}"
            )
        case (Folder.REJECTED | Folder.REQUESTS, State.COMPLETED | State.WITHDRAWN) | (
            Folder.REQUESTS,
            State.REJECTED,
        ):
            return f"Its place decides nothing: its request is {case.state}. {_BACK} {_NEW_PLAN}"
        case _:
            return ""


def _in_review(case: Case, note: NoteSeen) -> str:
    if note.status not in _OF_PLANS:
        return " ".join(
            [
                f"`status: {note.status}` decides nothing here, so this plan still awaits you.",
                *HOW_TO_REVIEW,
            ]
        )
    if note.status in ("", "review") and note.digest != case.plan_digest:
        unanswered = sum(not comment.answered for comment in comments(read_note(note.raw).body))
        if unanswered:
            return (
                f"{unanswered} review comment(s) wait for nobody yet. To have the plan changed set "
                f"`status: needs_revision`; moved to `{Folder.ACTIVE}` it is carried out as it "
                "stands."
            )
    return ""
