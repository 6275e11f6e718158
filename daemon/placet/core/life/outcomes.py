"""Decisions on the results of the daemon's own work.

A result is a plan, a failed planning, or the end of a mission.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from placet.core.activity import Action, Actor, Entity
from placet.core.life.builder import (
    NO_APPROVAL,
    NO_DECISION,
    DecisionBuilder,
    archived_path,
    plan_path,
)
from placet.core.life.case import EventKind, LastOutcome
from placet.core.life.commands import Move, Publish, Rewrite, Stamp
from placet.core.life.events import Drafted, MissionEnded, PlanningFailed
from placet.core.life.plan_note import headed, show
from placet.core.text.names import Folder
from placet.core.text.note import PLAN_STAMPS, stamp, without_keys

EDITED_MEANWHILE = (
    "> [!warning] The plan was changed during the run\n> What was carried out is the text that had "
    "been approved. The changed text stands in the plan's note and had no effect.\n"
)


def drafted(d: DecisionBuilder, e: Drafted) -> None:
    """Put a new plan or revision into Inbox/Plans."""
    case = d.case
    # Only ever into Inbox/Plans: in the place of an unusable plan in System/Active a new text would
    # be approved unread.
    in_place = case.plan.path.startswith(f"{Folder.PLANS}/")
    path = case.plan.path if in_place else plan_path(case)
    d.set(outcome=replace(case.outcome, failure=""), rejection=replace(case.rejection, reason=""))
    d.set_plan(
        keys=case.request.keys,
        revision=e.revision,
        path=path,
        base_branch=e.base_branch,
        based_on=e.based_on,
        basis_digest="",
    )
    asked = {"reviewed_by": case.reviewed.by, "reviewed_at": case.reviewed.at}
    text = headed(stamp(e.text, asked if case.reviewed.at else {}), show(d.case))
    name = d.text(text)
    # known by its digest, to compare it with the approved one
    d.set_plan(digest=d.text(without_keys(text, PLAN_STAMPS)))
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
    elif case.plan.basis_digest and in_place:
        edited = archived_path(case, f"_r{case.plan.revision}_edited")
        d.commands.append(Rewrite(path, case.plan.basis_digest, name, edited))
    else:
        d.commands.append(Publish(path, name))
    d.stamp_request(None, "planned")


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
    d.stamp_request(None, "error")
    # Nowhere else: in System/Active the note would get a callout of today that nobody read, and so
    # approve a text that was edited.
    if d.case.plan.path.startswith(f"{Folder.PLANS}/"):
        d.commands += [show(d.case), Stamp(d.case.plan.path, {"status": "error"})]


def mission_ended(d: DecisionBuilder, e: MissionEnded) -> None:
    """Publish the report; archive what was carried out, put back what failed."""
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
    action = Action.EXECUTION_COMPLETED if completed else Action.EXECUTION_FAILED
    d.row(action, Entity.MISSION, Actor.AGENT, **e.facts)
    d.commands += [Publish(path, d.text(picture)) for path, picture in e.pictures]
    d.commands.append(Publish(e.report_path, d.text(report)))
    # A plan that was taken back stays where the person put it; a plan among the requests is one of
    # those that failed.
    if case.plan.path and (not case.stop or case.plan.path.startswith(f"{Folder.REQUESTS}/")):
        # the approval is used up: a failed plan can be approved again, as a new one
        stamps: dict[str, Any] = {"status": "completed", **NO_DECISION}
        home = archived_path(case)
        if not completed:
            stamps, home = {"status": "error", **NO_APPROVAL, **NO_DECISION}, plan_path(case)
        # The callout of a failed plan is written when a look finds it at rest: in System/Active it
        # would approve a note that is renamed there in just this moment.
        d.commands += [show(d.case)] if completed else []
        d.commands += [Stamp(case.plan.path, stamps), Move(case.plan.path, home)]
        d.set_plan(path=home)
    if case.request_path:
        d.stamp_request(None, "completed" if completed else "error")
    if case.request_path and completed:
        # An edit that came during the run is not archived unseen: the move carries the digest it
        # believes in. The note keeps its name: people's links go by it.
        home = f"{Folder.ARCHIVE}/{PurePosixPath(case.request_path).name}"
        d.commands.append(Move(case.request_path, home, case.request_digest))
        d.set(request_path="")
