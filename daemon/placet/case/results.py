"""Decide what follows from the results of the daemon's work.

A result is a plan, a failed planning, or the end of a mission.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from placet.case.notes import decision_of, plan_meaning
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
        basis_meaning="",
        left="",
        base_commit=e.base_commit,
        uncommitted=e.uncommitted,
        day_usd=e.day_usd,
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
        d.stamp_unread_plan()


def mission_ended(d: DecisionBuilder, e: MissionEnded) -> None:
    """Publish the report. Archive a completed plan, put a failed one back."""
    completed = e.kind is EventKind.MISSION_COMPLETED
    case = d.case
    outcome = LastOutcome(
        failure="" if completed else e.reason,
        detail="" if completed else e.detail,
        report_path=e.report_path,
        branch=e.branch,
        carried_out=case.approval.digest,
    )
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


# Decisions on branches that people merge, drop, bring back and revert.
#
# The branches are those of completed missions.


@dataclass(frozen=True, slots=True)
class SeenInGit:
    """What git shows of a branch.

    `became` is `merged`, by the commit `commit_sha` on `into`, detected by `how`; `dropped`;
    `gone`; or empty for a branch that is back. `owner` owns the repository.
    """

    became: str
    owner: str
    commit_sha: str = ""
    how: str = ""
    into: str = ""


def settle_branch(
    case: Case,
    branch: Branch,
    seen: SeenInGit,
    now: str,
    person: Person | None = None,
    reason: str = "",
    claimed: str = "",
) -> Decision | None:
    """Decide the fate of a branch.

    Return None if it is no longer watched, or if its fate is known. `person` is who did it, if a
    command of theirs or the report says so: git does not. `reason` is why they dropped it, and
    `claimed` who did according to the report.
    """
    became = seen.became
    if branch not in case.watched or branch.became == became:
        return None
    d = DecisionBuilder(case, case.state, now)
    merged_as = seen.commit_sha
    known = reason or branch.dropped_reason
    d.case = d.case.with_branch(branch, became=became, merged_as=merged_as, dropped_reason=known)
    facts: dict[str, Any] = {"branch": branch.name, "owner": seen.owner}
    action = _BECAME[became]
    if became == "merged":
        facts |= {"commit_sha": merged_as, "how": seen.how, "into": seen.into}
    elif became == "dropped":
        facts |= {"reason": reason} | ({"claimed": claimed} if claimed else {})
    _tell(d, action, person, facts)
    if branch.report_path:
        stamps = {"became": became or None} | ({"merged_as": merged_as} if merged_as else {})
        d.commands.append(Stamp(branch.report_path, stamps))
    if not became and branch.report_path:  # used up, and no reason for the next deletion
        used = dict.fromkeys(("dropped_reason", "dropped_by"))
        d.commands.append(Stamp(branch.report_path, used, seen={"dropped_reason": known}))
    return d.done()


_BECAME = {
    "merged": Action.PR_MERGED,
    "dropped": Action.PR_REJECTED,
    "gone": Action.PR_GONE,
    "": Action.PR_REOPENED,
}


def _tell(
    d: DecisionBuilder, action: Action, person: Person | None, facts: Mapping[str, Any]
) -> None:
    """Add a row about a branch: of a person's act, or of what was only seen in git."""
    if person is None:
        d.row(action, Entity.REPOSITORY, Actor.SYSTEM, **facts)
    else:
        d.by_human(action, Entity.REPOSITORY, person, **facts)


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
    d.case = d.case.with_branch(branch, became="dropped", dropped_reason=reason)
    facts = {"branch": branch.name, "reason": reason} | ({"claimed": claimed} if claimed else {})
    is_new = branch.became == "gone"
    action = Action.PR_REJECTED if is_new else Action.PR_REJECTION_EXPLAINED
    d.by_human(action, Entity.REPOSITORY, BY_PROPERTY, **facts)
    if is_new:
        d.commands.append(Stamp(branch.report_path, {"became": "dropped"}))
    return d.done()


def settle_revert(
    case: Case, branch: Branch, seen: SeenInGit, now: str, person: Person | None = None
) -> Decision | None:
    """Decide on a commit that reverts the work of a merged branch, or merges it again.

    `seen.became` is `reverted` or `merged`. Return None if that is known.
    """
    if branch.became not in {"merged", "reverted"} - {seen.became}:
        return None
    d = DecisionBuilder(case, case.state, now)
    d.case = d.case.with_branch(branch, became=seen.became)
    facts = {"branch": branch.name, "owner": seen.owner, "into": seen.into}
    if seen.became == "merged":
        again = {"how": "revert of a revert", "again_by": seen.commit_sha}
        _tell(d, Action.PR_MERGED, person, facts | {"commit_sha": branch.merged_as} | again)
    else:
        reverted = {"commit_sha": seen.commit_sha, "merged_as": branch.merged_as}
        _tell(d, Action.PR_REVERTED, person, facts | reverted)
    if branch.report_path:
        d.commands.append(Stamp(branch.report_path, {"became": seen.became}))
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
    note = replace(note, raw=raw, digest=plan_digest(raw), meaning=plan_meaning(raw))
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
