"""The place of a mission: base commit, branch and names, chosen once."""

from __future__ import annotations

from placet.agent.drift import changed_under
from placet.agent.entries import PLACE, MissionPlace
from placet.agent.record import Record
from placet.agent.repositories import keep_vault
from placet.agent.work import Mission, name_of, refs
from placet.agent.workplace import Ports
from placet.case.drift import IfChanged
from placet.git.repository import head, is_kept, resolve
from placet.repo.places import Repo
from placet.repo.refs import all_refs


def place_of_mission(
    ports: Ports, mission: Mission, repo: Repo, record: Record
) -> tuple[MissionPlace, str]:
    """Return the mission's place, chosen once and then kept for every later life of the mission.

    Second is the commit of the branch that was planned from, empty if that was not looked up.
    """
    if (known := record.get(PLACE)) is not None:
        return known, ""
    keep_vault(ports, repo, record)
    case, found, base = mission.case, all_refs(repo), mission.base_commit or None
    if base and base not in found.at.values():
        base = resolve(repo, base)
    tip = found.at.get(f"refs/heads/{case.plan.base_branch}", "")
    if (
        base
        and is_kept(repo)
        and mission.if_changed is IfChanged.ASK
        and changed_under(mission, repo, base, record, tip) is None
    ):
        # the notes of today: what the plan rests on and may write is the same in them
        base = tip or head(repo)
    now = ports.clock.wall()
    name = name_of(case, record)
    ours = {*refs(case, name), f"refs/placet/left/{name}"}
    if (ports.worktrees / name).exists() or not found.ours.isdisjoint(ours):
        # left by a mission that the journal does not know any more: its work stays as it is
        name += f"-{now:%Y%m%d%H%M%S}"
    branch = found.free_branch(case.request_id, case.trace8, now)
    place = MissionPlace(base or head(repo), branch, name)
    record.settle(PLACE, place)
    return place, tip
