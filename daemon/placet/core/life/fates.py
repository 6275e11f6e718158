"""Decisions on branches that people merge, drop, bring back and revert.

The branches are those of completed missions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from placet.activity import Action, Entity
from placet.case.case import Branch, Case
from placet.case.commands import Decision, Stamp
from placet.case.decision import DecisionBuilder
from placet.core.life.gestures import BY_PROPERTY, Hand

# git does not say who did it
_COMMITTER = Hand("someone who can write the repository")


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
    hand: Hand | None = None,
) -> Decision | None:
    """Decide the fate of a branch.

    None for one that is not watched any more or whose fate was known. `became` is `merged`, by the
    commit `merged`, detected by `how`; `dropped`, for a person's `reason`; or empty for one that
    was brought back. `claimed` is who did it, as the report says; `owner` owns the repository.
    `hand` is who did it by a command of placet.
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
    d.by_human(action, Entity.REPOSITORY, hand or _COMMITTER, **facts)
    if branch.report_path:
        stamps = {"became": became or None} | ({"merged_as": merged} if merged else {})
        d.commands.append(Stamp(branch.report_path, stamps))
    return d.done()


def explain_drop(
    case: Case, branch: Branch, reason: str, claimed: str, now: str
) -> Decision | None:
    """Take a reason that a person wrote, or changed, after the branch was dropped.

    None for one that says nothing new. `claimed` is who dropped it, as the report says.
    """
    if branch not in case.watched or reason in ("", branch.dropped_reason):
        return None
    d = DecisionBuilder(case, case.state, now)
    if branch in case.earlier:
        explained = replace(branch, dropped_reason=reason)
        d.set(earlier=tuple(explained if one == branch else one for one in case.earlier))
    else:
        d.set(outcome=replace(case.outcome, dropped_reason=reason))
    facts = {"branch": branch.name, "reason": reason} | ({"claimed": claimed} if claimed else {})
    d.by_human(Action.PR_REJECTION_EXPLAINED, Entity.REPOSITORY, BY_PROPERTY, **facts)
    return d.done()


def settle_revert(
    case: Case,
    by: str,
    owner: str,
    now: str,
    hand: Hand | None = None,
    *,
    again: bool,
) -> Decision | None:
    """Decide a commit `by` that reverts a mission's work, or brings it in `again`.

    None if that was known.
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
    d.by_human(action, Entity.REPOSITORY, hand or _COMMITTER, **facts)
    if case.outcome.report_path:
        d.commands.append(Stamp(case.outcome.report_path, {"became": became}))
    return d.done()
