"""Decide what follows from the results of the daemon's work.

A result is a plan, a failed planning, or the end of a mission.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from placet.activity import Action, Actor, Entity
from placet.case.approval import NO_RECORD
from placet.case.callout import (
    HOW_TO_REVIEW,
    WHERE,
    box_edits_to_text,
    box_of,
    head_lines,
    with_box,
    with_marks,
)
from placet.case.case import (
    Approval,
    Branch,
    Case,
    KnownPlan,
    LastOutcome,
    NoteSeen,
    Person,
    Rejection,
    Request,
)
from placet.case.commands import Decision, Move, Publish, Rewrite, Stamp
from placet.case.decision_builder import (
    NO_APPROVAL,
    DecisionBuilder,
    archived_path,
    cleared_decision,
    plan_path,
)
from placet.case.events import BY_PROPERTY, Drafted, MissionEnded, PlanningFailed
from placet.case.life_cycle import EventKind, State
from placet.case.notes import decision_of
from placet.case.request import title_of
from placet.codec import sha256
from placet.note.box import find_box
from placet.note.frontmatter import plan_digest, plan_text, read_note, stamp
from placet.note.paths import Folder

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
        left="",
        base_commit=e.base_commit,
        uncommitted=e.uncommitted,
        day_usd=e.day_usd,
        command_notes=e.command_notes,
        models=(e.model,),
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
        note.digest == case.plan.basis_digest
        and box_edits_to_text(note.raw, case, note.path) == note.raw
        and not decision_of(note)
        and not note.meta.get("rejection_reason")
        and note.status in ("", "review", "needs_revision", "error")
    )


def planning_failed(d: DecisionBuilder, e: PlanningFailed) -> None:
    """Say why there is no plan; the one that was to be revised stays as it is."""
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
        d.commands.append(Stamp(d.case.plan.path, d.plan_status))


def mission_ended(d: DecisionBuilder, e: MissionEnded) -> None:
    """Publish the report. Archive a completed plan, put a failed one back."""
    completed = e.kind is EventKind.MISSION_COMPLETED
    case = d.case
    outcome = LastOutcome(
        failure="" if completed else e.reason,
        detail="" if completed else e.detail,
        report_path=e.report_path,
        branch=e.branch,
        base=str(e.facts.get("base", "")),
        tip=str(e.facts.get("commit", "")),
        carried_out=case.approval.digest,
    )
    d.set(outcome=outcome, stop="")
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
        stamps: dict[str, Any] = {**d.plan_status}
        home = archived_path(case)
        if not completed:
            stamps, home = {**stamps, **NO_APPROVAL}, plan_path(case)
        # The box of a failed plan is written when a look finds it at rest: in System/Active it
        # would approve a note that is renamed there in just this moment.
        if completed:
            box = box_of(d.case)
            # The note is not read here. What its box says of the text is known since the approval.
            d.set_plan(box=with_marks(d.case.plan.box, head_lines(box)))
            d.commands.append(box)
        d.commands += [Stamp(case.plan.path, stamps), Move(case.plan.path, home)]
        d.set_plan(path=home)
    if case.request_path:
        d.stamp_request(None)
    if case.request_path and completed:
        # An edit that came during the run is not archived unseen: the move carries the digest it
        # believes in. The note keeps its name: people's links go by it.
        home = f"{Folder.ARCHIVE}/{PurePosixPath(case.request_path).name}"
        d.commands.append(Move(case.request_path, home, case.request_digest))
        d.set(request_path="")


# Decisions on branches that people merge, drop, bring back and revert.
#
# The branches are those of completed missions.

# git does not say who did it
_COMMITTER = Person("someone who can write the repository")


def settle_branch(
    case: Case,
    branch: Branch,
    became: str,
    merged: str,
    how: str,
    reason: str,
    claimed: str,
    owner: str,
    now: str,
    person: Person | None = None,
) -> Decision | None:
    """Decide the fate of a branch.

    Return None if it is no longer watched, or if its fate is known. `became` is `merged`, by the
    commit `merged`, detected by `how`; `dropped`, for a person's `reason`; `gone`, by an unknown
    person; or empty for a branch that is back. `claimed` is who did it according to the report,
    `owner` owns the repository. `person` is who did it by a command of placet.
    """
    if branch not in case.watched or branch.became == became:
        return None
    d = DecisionBuilder(case, case.state, now)
    if branch in case.earlier:
        others = tuple(other for other in case.earlier if other != branch)
        now_is = replace(branch, became=became, dropped_reason=reason)
        d.set(earlier=others if became == "merged" else (*others, now_is))
    else:
        ended = replace(case.outcome, became=became, dropped_reason=reason, merged_as=merged)
        d.set(outcome=ended)
    facts: dict[str, Any] = {"branch": branch.name, "owner": owner}
    action = Action.PR_REOPENED
    if became == "merged":
        action = Action.PR_MERGED
        facts |= {"commit_sha": merged, "how": how}
    elif became == "dropped":
        action = Action.PR_REJECTED
        facts |= {"reason": reason} | ({"claimed": claimed} if claimed else {})
    if became == "gone":
        d.row(Action.PR_GONE, Entity.REPOSITORY, Actor.SYSTEM, **facts)
    else:
        d.by_human(action, Entity.REPOSITORY, person or _COMMITTER, **facts)
    if branch.report_path:
        stamps = {"became": became or None} | ({"merged_as": merged} if merged else {})
        d.commands.append(Stamp(branch.report_path, stamps))
    return d.done()


def explain_drop(
    case: Case, branch: Branch, reason: str, claimed: str, now: str
) -> Decision | None:
    """Take a reason that a person wrote, or changed, after the branch was deleted.

    None for one that says nothing new. `claimed` is who dropped it, as the report says. A branch
    that was gone is dropped from then on.
    """
    if branch not in case.watched or reason in ("", branch.dropped_reason):
        return None
    d = DecisionBuilder(case, case.state, now)
    if branch in case.earlier:
        explained = replace(branch, became="dropped", dropped_reason=reason)
        d.set(earlier=tuple(explained if one == branch else one for one in case.earlier))
    else:
        d.set(outcome=replace(case.outcome, became="dropped", dropped_reason=reason))
    facts = {"branch": branch.name, "reason": reason} | ({"claimed": claimed} if claimed else {})
    is_new = branch.became == "gone"
    action = Action.PR_REJECTED if is_new else Action.PR_REJECTION_EXPLAINED
    d.by_human(action, Entity.REPOSITORY, BY_PROPERTY, **facts)
    if is_new:
        d.commands.append(Stamp(branch.report_path, {"became": "dropped"}))
    return d.done()


def settle_revert(
    case: Case,
    by: str,
    owner: str,
    now: str,
    person: Person | None = None,
    *,
    again: bool,
) -> Decision | None:
    """Decide on a commit `by` that reverts a mission's work, or merges it `again`.

    Return None if that is known.
    """
    merged = case.outcome.merged_as
    became = "merged" if again else "reverted"
    if case.outcome.became not in {"merged", "reverted"} - {became}:
        return None
    d = DecisionBuilder(case, case.state, now)
    d.set(outcome=replace(case.outcome, became=became))
    facts = {"branch": case.outcome.branch, "owner": owner}
    if again:
        facts |= {"commit_sha": merged, "how": "revert of a revert", "again_by": by}
    else:
        facts |= {"commit_sha": by, "merged_as": merged}
    action = Action.PR_MERGED if again else Action.PR_REVERTED
    d.by_human(action, Entity.REPOSITORY, person or _COMMITTER, **facts)
    if case.outcome.report_path:
        d.commands.append(Stamp(case.outcome.report_path, {"became": became}))
    return d.done()


_MOST_REVISIONS = 10_000
"""A larger number in a plan was written by no daemon."""


def adopt_plan(note: NoteSeen, request: NoteSeen | None, now: str) -> Decision:
    """Open a case in review for a plan that the journal does not know.

    `request` is the note with the same trace_id, if there is one. A plan in System/Active goes back
    to Inbox/Plans.
    """
    meta = note.meta
    revision = meta.get("revision")
    asked = Request(
        title=title_of(note.path, read_note(note.raw).body),
        agent=str(meta.get("agent") or ""),
        portal=str(meta.get("portal") or ""),
    )
    case = Case(
        note.trace_id,
        str(meta.get("request_id") or ""),
        State.REVIEW,
        plan=KnownPlan(
            path=note.path,
            digest=note.digest,
            box=with_marks("", _place_lines(note.raw)),
            revision=revision if type(revision) is int and 0 < revision <= _MOST_REVISIONS else 1,
            keys=asked.keys,
        ),
        request=asked,
        since=now,
    )
    raw = box_edits_to_text(note.raw, case, note.path)
    note = replace(note, raw=raw, digest=plan_digest(raw))
    d = DecisionBuilder(case, State.REVIEW, now)
    d.set_plan(digest=note.digest)
    if request is not None:
        d.keep_request(request)
    else:  # a revision starts from the plan's
        d.set(request_digest=d.text(note.raw))
    d.text(plan_text(note.raw))
    if note.folder is Folder.ACTIVE:
        d.put_back(note, "Not approved", " ".join([NO_RECORD, *HOW_TO_REVIEW]))
    elif cleared := cleared_decision(note):  # it is unknown for which text it was meant
        d.stamp_plan(note, cleared)
    path = d.case.plan.path
    d.row(
        Action.PLAN_ADOPTED,
        Entity.PLAN,
        Actor.SYSTEM,
        digest=note.digest,
        path=path,
        found=note.path,
    )
    return d.done()


def distrust(case: Case, now: str) -> Decision:
    """Void an approval in a restored journal: what happened since is unknown."""
    d = DecisionBuilder(case, State.REVIEW, now)
    d.void_work()
    d.set(approval=Approval(level=case.approval.level), stop="")
    return d.done()


def _place_lines(raw: bytes) -> list[str]:
    """Return the box's line about the branch and its commit, which only the lost journal knew."""
    box = find_box(read_note(raw).body)
    return [] if box is None else [line for line in box.lines if line.startswith(f"> {WHERE}")]
