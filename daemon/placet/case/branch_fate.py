"""Decide what follows when people merge, drop, bring back or revert a branch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placet.activity import Action, Actor, Entity
from placet.case.case import Branch, Case, Person
from placet.case.commands import Decision, Stamp
from placet.case.decision_builder import DecisionBuilder
from placet.case.events import BY_PROPERTY
from placet.case.notes import decision_in
from placet.note.escape import code
from placet.note.paths import show


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
    word: str = "",
) -> Decision | None:
    """Decide the fate of a branch.

    Return None if it is no longer watched, or if its fate is known. `person` is who did it, if a
    command of theirs or the report says so: git does not. `reason` is why they dropped it, and
    `claimed` who did according to the report. `word` is the report's `decision`, which is used up.
    """
    became = seen.became
    if branch not in case.watched or branch.became == became:
        return None
    d = DecisionBuilder(case, case.state, now)
    merged_as = seen.commit_sha
    known = reason or branch.dropped_reason
    d.case = d.case.with_branch(
        branch, became=became, merged_as=merged_as, dropped_reason=known, refused=""
    )
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
    if word:
        d.commands.append(_used_up(branch, word))
    if not became and branch.report_path:  # used up, and no reason for the next deletion
        used = dict.fromkeys(("dropped_reason", "dropped_by"))
        d.commands.append(Stamp(branch.report_path, used, seen={"dropped_reason": known}))
    return d.done()


def undecidable(case: Case, branch: Branch, report: Mapping[str, Any]) -> str:
    """Return why the `decision` in a branch's report is not done, and what helps; else "".

    `report` has the report's properties. A result in doubt needs a word of its own: a `merge` may
    come back with an old copy of the report.
    """
    word, ident = decision_in(report), case.request_id
    by_command = f"Type: placet merge {ident}, or: placet drop {ident} --reason R"
    if word not in DECISIONS:
        wrote = code(show(f"decision: {str(report['decision'])[:80]}"))
        return f"{wrote} is neither `merge` nor `drop`. Write one of the two."
    if branch.portal:
        return (
            f"This work is in the portal `{branch.portal}`. A report decides only on work in this "
            f"vault.\n{by_command}"
        )
    if branch.became:
        return (
            f"This work is {branch.became} already, so nothing was done.\n"
            f"Look at the request: placet show {ident}"
        )
    is_of = {"trace_id": branch.trace_id, "branch": branch.name, "commit": branch.tip}
    if any(str(report.get(key)) != value for key, value in is_of.items()):
        return (
            "This note does not have the `trace_id`, `branch` and `commit` of the report that was "
            f"written here.\nPut that report back. Or look at the work: placet diff {ident}. "
            f"{by_command}"
        )
    if branch.doubts and word == "merge":
        return (
            f"{' '.join(branch.doubts)} Nothing was merged.\n"
            "To merge it all the same, set `decision: merge anyway` in the report."
        )
    return ""


DECISIONS = {"merge": "merged", "merge anyway": "merged", "drop": "gone"}
"""What `decision` in a report can say, and what git then shows of the branch."""


def refuse_decision(case: Case, branch: Branch, word: str, why: str, now: str) -> Decision:
    """Clear the `decision` in a branch's report, and remember why it was not done."""
    d = DecisionBuilder(case, case.state, now)
    d.case = d.case.with_branch(branch, refused=why)
    d.commands.append(_used_up(branch, word))
    return d.done()


def _used_up(branch: Branch, word: str) -> Stamp:
    return Stamp(branch.report_path, {"decision": ""}, seen={"decision": word})


_BECAME = {
    "merged": Action.PR_MERGED,
    "dropped": Action.PR_REJECTED,
    "gone": Action.PR_GONE,
    "": Action.PR_REOPENED,
}


def _tell(
    d: DecisionBuilder, action: Action, person: Person | None, facts: Mapping[str, Any]
) -> None:
    """Add a row about a branch: a person's act, or a change that only git shows."""
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
