"""Decide what follows from the results of the daemon's work.

A result is a plan, a failed planning, or the end of a mission.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from placet.activity import Action, Actor, Entity
from placet.case.callout import box_edits_to_text, box_of, head_lines, with_box, with_marks
from placet.case.case import Branch, Case, LastOutcome, NoteSeen, Rejection
from placet.case.commands import Move, Publish, Rewrite
from placet.case.decision_builder import NO_APPROVAL, DecisionBuilder, archived_path, plan_path
from placet.case.events import Drafted, MissionEnded, MissionFailed, PlanningFailed
from placet.case.notes import decision_of
from placet.codec import sha256
from placet.note.frontmatter import stamp
from placet.note.paths import Folder
from placet.plan.digest import plan_text

EDITED_MEANWHILE = (
    "> [!warning] The plan was changed during the run\n> The agent followed the approved text. The "
    "changed text is in the plan's note and had no effect.\n"
)
STOPPED_TOO_LATE = (
    "> [!warning] You stopped this mission after its last step\n> Its work is complete, so placet "
    "archived the plan. To discard the work, drop its branch.\n"
)


def drafted(d: DecisionBuilder, e: Drafted) -> None:
    """Put a new plan or revision into Inbox/Plans."""
    case = d.case
    # Only ever into Inbox/Plans: in the place of an unusable plan in System/Active a new text would
    # be approved unread.
    in_place = case.plan.path.startswith(f"{Folder.PLANS}/")
    path = case.plan.path if in_place else plan_path(case)
    d.set(outcome=replace(case.outcome, failure=""), rejection=Rejection())
    d.set_plan(
        keys=case.request.keys,
        revision=e.revision,
        path=path,
        base_branch=e.base_branch,
        based_on=e.based_on,
        basis_digest="",
        basis_meaning="",
        left="",
        base_commit=e.base_commit,
        uncommitted=e.uncommitted,
        about_worktree=e.about_worktree,
        day_usd=e.day_usd,
        command_notes=e.command_notes,
        models=(e.model,),
        instructions=e.instructions,
        names_tools=e.names_tools,
    )
    asked = {"reviewed_by": case.reviewed.by, "reviewed_at": case.reviewed.at}
    text = stamp(e.text, asked if case.reviewed.at else {})
    d.remember_box(text, box_of(d.case))
    text = with_box(text, box_of(d.case))
    name = d.text(text)
    # known by its digest, to compare it with the approved one
    d.set_plan(digest=d.text(plan_text(text)))
    d.row(
        Action.PLAN_CREATED if case.plan.revision == 0 else Action.PLAN_REVISED,
        Entity.PLAN,
        Actor.AGENT,
        digest=d.case.plan.digest,
        revision=e.revision,
        size=len(text),
        path=path,
        **e.facts,
    )
    kept = archived_path(case, f"_r{case.plan.revision}")
    if in_place and case.is_elsewhere:
        # the plan for the other repository, with its remarks, stays where people find it
        d.commands += [Move(path, kept), Publish(path, name)]
    elif e.note is None or not case.plan.basis_digest or not in_place:
        d.commands.append(Publish(path, name))
    elif _is_as_left(case, e.note):
        d.commands.append(Rewrite(path, sha256(e.note.raw), name))
    # Any other note has a person's words or decision: the next look finds it there.
    d.stamp_request(None)


def _is_as_left(case: Case, note: NoteSeen) -> bool:
    """Return whether a plan's note is as it was when its revision began."""
    return (
        note.says(case.plan.basis_digest, case.plan.basis_meaning)
        and box_edits_to_text(note.raw, case, note.path) == note.raw
        and not decision_of(note)
        and not note.meta.get("rejection_reason")
        and note.status in ("", "review", "needs_revision", "error")
    )


def planning_failed(d: DecisionBuilder, e: PlanningFailed) -> None:
    """Report that planning failed. The plan under revision stays unchanged."""
    d.set(outcome=replace(d.case.outcome, failure=e.reason, report_path=""))
    d.row(
        Action.PLAN_FAILED,
        Entity.PLAN,
        Actor.AGENT,
        reason=e.reason,
        error_type=e.error_type,
        end=e.end.value,
        iterations=e.iterations,
    )
    d.stamp_request(None)
    if d.case.plan.path.startswith(f"{Folder.PLANS}/"):
        d.stamp_unread_plan()


def _outcome(case: Case, e: MissionEnded) -> LastOutcome:
    kept = LastOutcome(
        report_path=e.report_path,
        branch=e.branch,
        carried_out=case.approval.digest,
        receipt=str(e.facts.get("receipt", "")),
    )
    if isinstance(e, MissionFailed):
        return replace(kept, failure=e.reason, detail=e.detail)
    return replace(kept, doubts=e.doubts, changed_tests=e.changed_tests)


def mission_ended(d: DecisionBuilder, e: MissionEnded) -> None:
    """Publish the report. Archive a completed plan, return a failed one to Inbox/Plans."""
    completed, case = not isinstance(e, MissionFailed), d.case
    outcome = _outcome(case, e)
    d.set(outcome=outcome, stop="")
    if completed and (tip := str(e.facts.get("commit", ""))):
        done = Branch(
            case.trace_id,
            e.branch,
            str(e.facts.get("base", "")),
            tip,
            case.plan.base_branch,
            case.approval.digest,
            case.request.portal,
            e.report_path,
            doubts=outcome.doubts,
            receipt=outcome.receipt,
        )
        d.set(branches=(*d.case.branches, done))
    d.spend_approval()
    report = e.report
    if case.reported_edit:
        report += (b"" if report.endswith(b"\n") else b"\n") + b"\n" + EDITED_MEANWHILE.encode()
    if completed and case.stop:
        report += (b"" if report.endswith(b"\n") else b"\n") + b"\n" + STOPPED_TOO_LATE.encode()
    action = Action.EXECUTION_COMPLETED if completed else Action.EXECUTION_FAILED
    d.row(action, Entity.MISSION, Actor.AGENT, **e.facts)
    d.commands += [Publish(path, d.text(picture)) for path, picture in e.pictures]
    d.commands.append(Publish(e.report_path, d.text(report)))
    # A plan that was taken back before its mission was complete stays where the person put it; a
    # plan among the requests is one of those that failed.
    stays = case.stop and not completed and not case.plan.path.startswith(f"{Folder.REQUESTS}/")
    if case.plan.path and not stays:
        # the approval is used up: a failed plan can be approved again, as a new one
        stamps: Mapping[str, None] = {} if completed else NO_APPROVAL
        home = archived_path(case) if completed else plan_path(case)
        # The box of a failed plan is written when a look finds it at rest: in System/Active it
        # would approve a note that is renamed there in just this moment.
        if completed:
            box = box_of(d.case)
            # The note is not read here. What its box says of the text is known since the approval.
            d.set_plan(box=with_marks(d.case.plan.box, head_lines(box)))
            d.commands.append(box)
        d.stamp_unread_plan(stamps)
        d.commands.append(Move(case.plan.path, home))
        d.set_plan(path=home)
    if case.request_path:
        d.stamp_request(None)
    if case.request_path and completed:
        # An edit that came during the run is not archived unseen: the move carries the digest it
        # believes in. The note keeps its name: people's links go by it.
        home = f"{Folder.ARCHIVE}/{PurePosixPath(case.request_path).name}"
        seen = case.request_digest, case.request_meaning
        d.commands.append(Move(case.request_path, home, *seen))
        d.set(request_path="")
