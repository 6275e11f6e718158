"""A plan as it is shown to who is to approve it: what it allows, and what stands out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import join
from typing import Any

from placet.case.approval import refusal
from placet.case.callout import box_is_current, box_of, new_branch, with_box
from placet.case.case import Case, NoteSeen
from placet.case.notes import look_at
from placet.case.warnings import lost_keys
from placet.cli.notes import note_text
from placet.cli.site import Site
from placet.cli.terminal import colour
from placet.cli.view import as_float
from placet.errors import UserError
from placet.note.frontmatter import read_note
from placet.note.paths import show as visible
from placet.plan.comments import open_comments, placed
from placet.plan.dangers import dangers
from placet.plan.partial import left_out


def approvable(case: Case, raw: bytes) -> NoteSeen:
    """Return a plan as it was read; raises UserError where the daemon would refuse it, and why."""
    from placet.agent.prompts import plannable

    note = shown = look_at(case.plan.path, raw, "")
    what = box_of(case)
    if not box_is_current(raw, what):  # the daemon writes it before it performs an intent
        shown = look_at(case.plan.path, with_box(raw, what), "")
    if why := note.problem or lost_keys(case, note) or refusal(case, shown, plannable()):
        raise UserError(
            f"{case.plan.path} cannot be approved: {why}", f"Read it: placet show {case.request_id}"
        )
    return note


def plan_text(site: Site, case: Case) -> bytes:
    """Return the text of a case's plan; raises UserError where it is gone."""
    return note_text(site, case, case.plan.path)


def proposal(site: Site, case: Case, raw: bytes) -> dict[str, Any]:
    """Return what `approve` would approve of a plan's text.

    That is the plan's title, where it works, what it may do, what stands out, and its digest.
    Raises UserError for a plan that the daemon would refuse, with the same words.
    """
    from placet.agent.prompts import plan_of
    from placet.host.config import portal_path

    note = approvable(case, raw)
    plan, config = plan_of(raw), site.in_force().config
    portal = str(note.meta.get("portal") or "")
    is_known = not portal or portal in config.portals
    scope = plan.scope
    return {
        "request_id": case.request_id,
        "title": plan.title,
        "digest": note.digest,
        "edited": note.digest != case.plan.digest,
        "portal": portal,
        "repository": str(portal_path(site.vault, config, portal)) if is_known else "",
        "branch": new_branch(case),
        "base": case.plan.base_branch or str(note.meta.get("base_commit") or "")[:12],
        "steps": [step.title for step in plan.steps],
        "steps_left_out": list(plan.left_out),
        "left_out": left_out(plan),
        "write": list(scope.write),
        "run": [join(argv) for argv in scope.run],
        "network": scope.network,
        "shell": scope.shell,
        "budget_usd": as_float(scope.budget_usd),
        "dangers": dangers(scope),
        "risks": list(plan.risks),
        "comments": [placed(one) for one in open_comments(read_note(raw).body)],
    }


def proposal_text(found: Mapping[str, Any]) -> str:
    """Return a proposal for the person who is asked to approve it."""

    def listed(name: str, items: Sequence[str]) -> list[str]:
        return [
            f"{name if not number else '':<10}{visible(item)}"
            for number, item in enumerate(items or ["nothing"])
        ]

    budget = (
        "no limit of its own"
        if found["budget_usd"] is None
        else f"at most ${found['budget_usd']:.2f}"
    )
    where = (
        visible(found["repository"]) or f"a portal that there is not: {visible(found['portal'])}"
    )
    base = f", from {visible(found['base'])}" if found["base"] else ""
    lines = [
        colour(visible(found["title"]), "white", bold=True) + f"  ({visible(found['request_id'])})",
        f"where     {where}",
        f"branch    {visible(found['branch'])}{base}",
        *(
            f"{'step' if n == 1 else '':<10}{n}. {visible(title)}"
            f"{' (left out)' if n in found['steps_left_out'] else ''}"
            for n, title in enumerate(found["steps"], 1)
        ),
        *([f"left out  {visible(found['left_out'])}"] if found["left_out"] else []),
        *listed("write", found["write"]),
        *listed("run", found["run"]),
        f"network   {'yes' if found['network'] else 'no'}",
        f"shell     {'yes' if found['shell'] else 'no'}",
        f"cost      {budget}",
        *(listed("remarks", found["comments"]) if found["comments"] else []),
        *([f"edited    {colour('since placet wrote it', 'yellow')}"] if found["edited"] else []),
        *(
            f"{colour('danger', 'red', bold=True)}    {visible(sentence)}"
            for sentence in found["dangers"]
        ),
        f"digest    {found['digest'][:16]}",
    ]
    return "\n".join(lines)
