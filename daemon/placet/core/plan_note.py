"""The plan as a note: frontmatter, what to do with it, what stands out, and the plan itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placet.core.case import PLAN_STAMPS, Complexity
from placet.core.note import Frontmatter, digest, stamp
from placet.core.plan import Plan, render_plan
from placet.core.scope import dangers
from placet.core.unseen import find_unseen, warning_callout

HOW_TO_REVIEW = (
    "**Approve**: move this note to `System/Active`.",
    "**Reject**: move it to `Inbox/Rejected`; a reason under a heading “Rejection” is kept.",
    "**Ask for changes**: write them under “Review Comments” and set `status: needs_revision`.",
)


@dataclass(frozen=True, slots=True)
class PlanHead:
    """A plan's frontmatter. `created_at` is RFC 3339 in UTC, `base_commit` a full commit id."""

    trace_id: str
    request_id: str
    agent: str
    portal: str
    complexity: Complexity
    revision: int
    base_commit: str
    created_at: str


def compose(head: PlanHead, plan: Plan, *, request_link: str, remarks: Sequence[str], kind: Frontmatter,
            tail: str = "") -> bytes:
    """Return a whole plan note.

    `request_link` is the request's path for a wikilink, `remarks` are sentences for the callout (estimates, a sandbox
    that is missing), `tail` is text below the plan: comments with their answers, what changed.
    """
    keys = _keys(head)
    body = render_plan(plan)
    if tail:
        body = body.rstrip("\n") + "\n\n" + tail
    lines = [f"> [!question] A plan for [[{request_link}]] awaits you", *(f"> - {line}" for line in HOW_TO_REVIEW), ">",
             f"> It may write {_codes(plan.scope.write) or 'nothing'}; run "
             f"{_codes([' '.join(argv) for argv in plan.scope.run]) or 'nothing'}; network: {_yes(plan.scope.network)}; "
             f"shell: {_yes(plan.scope.shell)}; cost: {_cost(plan)}.",
             *(f"> {remark}" for remark in remarks)]
    parts = ["\n".join(lines) + "\n"]
    if risky := dangers(plan.scope):
        parts.append("\n".join(["> [!danger] Look twice at the scope", *(f"> - {sentence}" for sentence in risky)]) + "\n")
    if unseen := find_unseen(body):
        above = len(keys) + 2 + "\n".join([*parts, warning_callout(unseen), ""]).count("\n") + 1
        parts.append(warning_callout(unseen, shift=above) + "\n")
    parts.append(body)
    return stamp("\n".join(parts).encode(), keys, kind_if_none=kind)


def _keys(head: PlanHead) -> dict[str, str | int]:
    return {
        "trace_id": head.trace_id, "request_id": head.request_id, "status": "review", "agent": head.agent,
        "portal": head.portal, "complexity": head.complexity.value, "revision": head.revision,
        "base_commit": head.base_commit, "created_at": head.created_at,
    }


def plan_digest(raw: bytes) -> str:
    """Return the digest of a plan's text: the whole note without the keys that change during its life."""
    return digest(raw, PLAN_STAMPS)


def _codes(words: Sequence[str]) -> str:
    return ", ".join(f"`{word.replace('`', '')}`" for word in words)


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _cost(plan: Plan) -> str:
    return f"at most ${plan.scope.budget_usd}" if plan.scope.budget_usd is not None else "no limit of its own"
