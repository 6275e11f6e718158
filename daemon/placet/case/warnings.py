"""Warn about parts or places of a readable note that have no effect."""

from __future__ import annotations

from collections.abc import Mapping

from placet.case.callout import HOW_TO_REVIEW
from placet.case.case import Case, NoteSeen
from placet.case.life_cycle import STATUSES, State
from placet.case.notes import (
    APPROVE,
    DRAFT,
    REJECT,
    REVISE,
    body_of,
    decision_of,
    in_capitals,
    not_a_word,
)
from placet.case.question_note import question_warning
from placet.case.sorting import CaseNotes, text_back
from placet.note.frontmatter import written_value
from placet.note.hidden_text import shortened
from placet.note.paths import Folder, show
from placet.plan.comments import open_comments
from placet.wording import counted

NO_COMMENT = (
    "You asked for changes, but the plan has no open comment, so nothing is planned. Write what to "
    "change under `## Review Comments`, or at a step as `> @placet …`."
)
_NEW_PLAN = "For a new plan set `status: pending` in the request."
_BACK = f"To review it again move it to `{Folder.PLANS}`."
_APPROVED = (
    frozenset({"", "approved", "rejected", "needs_revision"}),
    f"This plan is approved. To withdraw that, move it to `{Folder.PLANS}`.",
)
# Where a plan is, and its case's state: each `status` that means something there, and what to do
# about another one.
_STATUSES = {
    (Folder.PLANS, State.REVIEW): (
        frozenset({"", "review", "needs_revision", "rejected"}),
        " ".join(["The plan still waits for you.", *HOW_TO_REVIEW]),
    ),
    (Folder.PLANS, State.FAILED): (
        frozenset({"", "review", "needs_revision", "error"}),
        "To have this plan changed set `status: needs_revision`; to approve it again move it to "
        f"`{Folder.ACTIVE}`, to reject it to `{Folder.REJECTED}`.",
    ),
    (Folder.ACTIVE, State.APPROVED): _APPROVED,
    (Folder.ACTIVE, State.RUNNING): _APPROVED,
    (Folder.REJECTED, State.REJECTED): (
        frozenset({"", "rejected"}),
        f"This plan was rejected. {_BACK} {_NEW_PLAN}",
    ),
}
_WITHOUT_EFFECT = frozenset(
    {
        (Folder.REJECTED, State.COMPLETED),
        (Folder.REJECTED, State.WITHDRAWN),
    }
)


def warnings_for(case: Case, notes: CaseNotes) -> Mapping[str, str]:
    """Return the warnings for the notes of a case that is not about to change, by path."""
    warnings: dict[str, str] = {}
    if (
        (request := notes.request) is not None
        and request.folder is Folder.REQUESTS
        and not request.problem
    ):
        warnings[request.path] = _request_warning(case, request)
    if len(notes.plans) == 1 and not notes.plans[0].problem:
        warnings[notes.plans[0].path] = _plan_warning(case, notes.plans[0])
    if case.asking is not None:
        readable = [note for note in notes.asked if not note.problem]
        warnings |= {note.path: question_warning(case.asking, note, readable) for note in readable}
    return {path: why for path, why in warnings.items() if why}


def missing_keys(case: Case, note: NoteSeen) -> str:
    """Return which keys a plan lost and how to restore them, or an empty string."""
    its = {
        "trace_id": case.trace_id,
        "request_id": case.request_id,
        "revision": str(case.plan.revision),
        "portal": case.planned_portal,
        "base_commit": case.plan.base_commit,
    }
    wanted = {key: value for key, value in its.items() if value}
    if note.trace_id and all(note.meta.get(key) not in (None, "") for key in wanted):
        return ""
    if not body_of(note.raw).strip():
        return (
            "This plan is empty, so it cannot be decided on. "
            f"{text_back(case.request_id)}, or delete `{show(note.path)}`, which withdraws its "
            "request."
        )
    lines = ", ".join(f"`{key}: {value}`" for key, value in wanted.items())
    return (
        "Lines are missing that say whose plan this is and where it works, so it cannot be decided "
        f"on. Put them back into its properties: {lines}."
    )


def _request_warning(case: Case, note: NoteSeen) -> str:
    approved = case.acting in (State.APPROVED, State.RUNNING)
    # Old words of the daemon's come back with a sync tool or a late save; a person's are those that
    # it never wrote here.
    own = {"", "planning", "planned", STATUSES[case.acting].request} | (
        set() if approved else {"pending"}
    )
    if note.status == DRAFT and not approved:
        return ""
    if why := not_a_word(note.meta, "status"):
        return why
    if note.status not in own:
        helps = (
            f"Its plan was approved: to stop that, move the plan from `{Folder.ACTIVE}` to "
            f"`{Folder.PLANS}`."
            if approved
            else "To ask for a new plan write `status: pending`; to withdraw the request, move it "
            f"out of `{Folder.REQUESTS}`."
        )
        wrote = (
            " placet may have written it before the journal was restored."
            if note.status in ("completed", "rejected", "error")
            else ""
        )
        return f"`status: {note.status}` has no effect here.{wrote} {helps}"
    if case.state is State.WITHDRAWN:
        return (
            "Its plan was taken away, so nothing more is done. Put the plan back into "
            f"`{Folder.PLANS}`, or set `status: pending` for a new one."
        )
    if not case.request_digest or note.says(case.request_digest, case.request_meaning):
        return ""
    if approved:
        return (
            "This request was changed after its plan had been approved. placet does what you "
            "approved, then writes a new plan. To have the change planned first, move the "
            f"plan from `{Folder.ACTIVE}` to `{Folder.PLANS}`."
        )
    if case.state is State.REJECTED or (case.state is State.FAILED and case.outcome.report_path):
        return (
            f"This request was changed after it had ended ({case.state}). Set `status: pending` to "
            "have it planned again."
        )
    return ""


def _plan_warning(case: Case, note: NoteSeen) -> str:
    if why := missing_keys(case, note):
        return why
    if why := not_a_word(note.meta, "decision", "status"):
        return why
    if (decision := decision_of(note)) not in ("", APPROVE, REJECT, REVISE):
        wrote = shortened(written_value(note.raw, "decision").strip())  # `yes` is read as true
        return (
            f"`decision: {wrote}` has no effect. Write `{APPROVE}`, `{REJECT}` or `{REVISE}`, "
            "or leave it empty."
        )
    if why := in_capitals(note.meta, "decision", "if_changed", "status"):
        return why
    if note.folder in (Folder.REQUESTS, Folder.QUESTIONS):
        return f"This is a plan. It has no effect in `{note.folder}`. {_BACK}"
    revises = decision == REVISE or (
        note.status == "needs_revision" and case.acting is not State.REVISING
    )
    if revises and not open_comments(body_of(note.raw)):
        return NO_COMMENT
    if case.acting is State.PLANNING:
        return (
            "A new plan is being written for this request, so this one has no effect. To have this "
            f"one instead, wait for the new one in `{Folder.PLANS}`, take that one away, then move "
            f"this one to `{Folder.PLANS}`."
        )
    place = note.folder, case.acting
    own, helps = _STATUSES.get(place, ({note.status}, ""))
    if note.status not in own:
        return f"`status: {note.status}` has no effect here. {helps}"
    if place in _WITHOUT_EFFECT:
        return f"This plan has no effect here: its request is {case.state}. {_BACK} {_NEW_PLAN}"
    if (
        place == (Folder.PLANS, State.FAILED)
        and note.status == "error"
        and not case.outcome.report_path
    ):
        return (
            f"It could not be revised: {case.outcome.failure}\nThe plan is unchanged. To try again "
            "set `status: needs_revision`; or approve it as it is, or reject it."
        )
    if place == (Folder.PLANS, State.REVIEW) and note.digest != case.plan.digest:
        return _unsent_comments(note)
    return ""


def _unsent_comments(note: NoteSeen) -> str:
    unanswered = len(open_comments(body_of(note.raw)))
    if note.status not in ("", "review") or not unanswered:
        return ""
    return (
        f"No answer yet: {counted(unanswered, 'review comment')}. To have the plan changed set "
        "`decision: revise`. If you approve the plan instead, the agent reads them as guidance. "
        "They do not widen the scope."
    )
