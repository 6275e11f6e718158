"""Find commits since a plan's base that change a file which it read or names."""

from __future__ import annotations

from collections.abc import Sequence

from placet.activity import Action, Actor, Entity
from placet.agent.record import DRIFT, Record
from placet.agent.work import Mission
from placet.case.drift import UNDER, IfChanged, changed_files
from placet.case.mission_result import Drifted
from placet.git.history import changes, digests_at
from placet.git.repository import head, resolve
from placet.git.run import Repo
from placet.note.paths import show
from placet.wording import some_of


def changed_under(
    mission: Mission, repo: Repo, base: str, record: Record, tip: str = ""
) -> Drifted | None:
    """Return the changes under the plan since `base`, its base commit.

    None if there are none, or the plan says `if_changed: proceed`. Those, and changes elsewhere,
    are journalled once for each new commit. `tip` is the commit of the branch that was planned
    from, empty if that is unknown.
    """
    case = mission.case
    if branch := case.plan.base_branch:
        tip = tip or resolve(repo, f"refs/heads/{branch}") or ""
    tip = tip or head(repo)
    based_on = dict(case.plan.based_on)
    lost = (
        bool(mission.base_commit)
        and base != mission.base_commit
        and resolve(repo, mission.base_commit) is None
    )
    if (tip in (base, mission.base_commit) and not lost) or record.has(DRIFT.at(tip)):
        return None
    files = None if lost else [file.path for file in changes(repo, base, tip)]
    now = digests_at(repo, tip, sorted(based_on))
    verdict, paths = changed_files(files, now, based_on, mission.plan.files_named)
    if verdict == UNDER and mission.if_changed is IfChanged.ASK:
        why = what_changed(paths, repo, base, tip, lost=lost)
        return Drifted(why, paths, tip, tuple(sorted(now.items())))
    row = record.row(
        Action.PLAN_DRIFTED,
        Actor.SYSTEM,
        Entity.PLAN,
        verdict=verdict,
        base=mission.base_commit,
        tip=tip,
        files=[show(path) for path in paths[:20]],
    )
    record.settle(DRIFT.at(tip), verdict, row)
    return None


def what_changed(paths: Sequence[str], repo: Repo, base: str, tip: str, *, lost: bool) -> str:
    """Return a sentence on which files changed under a plan, and how to look at them."""
    named = some_of(["`" + show(path).replace("`", "'") + "`" for path in paths], 10)
    if lost:
        return "The plan's base commit is gone from the repository" + (
            f", and these files differ now: {named}."
            if named
            else ". placet cannot say what changed since."
        )
    return (
        "These files changed since the plan was written: "
        f"{named}.\n"
        f"Look at it: `{repo.command_line} diff {base[:12]}..{tip[:12]}`"
    )
