"""Missions that change hands: from the daemon itself to workers, and back home.

`[team] workers` may be set, or unset, while missions are under way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from placet.agent.checkpoints import keep_apart
from placet.agent.mission import carry_out, unable
from placet.agent.record import PLACE, MissionPlace, Postponed, Record
from placet.agent.work import Mission, path_of, refs
from placet.agent.workplace import Ports, repository
from placet.case.case import Case
from placet.case.waiting import Why
from placet.chat.cancel import Cancel
from placet.chat.result import Ended
from placet.errors import End, PlacetError, ToolError, UserError, passing
from placet.git.checkpoint import restore
from placet.git.run import GitError, Repo, RepositoryChanged
from placet.git.worktree import add_worktree, clear_stale_locks, open_worktree
from placet.journal.writer import JournalAccess
from placet.journal.writes import Guard
from placet_team.git_packs import forget_worktree, move_refs, must_be_whole, refs_at
from placet_team.packs import (
    LAST,
    lend_mission,
    owner_of_mission,
    owner_of_portal,
    rows_of_mission,
    take,
)
from placet_team.team_journal import DropPacks, DropWork
from placet_team.team_rows import has_queue, work_row

AWAY_RETRY_S = 15.0
"""Retry interval while a person's repository is not there to take what a worker did."""
_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


class Mislaid(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """A mistake of placet's on a worker, in its own words."""


def carry_out_here(ports: Ports, mission: Mission, cancel: Cancel) -> Ended:
    """Carry a mission out in this process; what workers did of it is fetched first.

    Raises as `agent.mission.carry_out` does.
    """
    case, began_s = mission.case, ports.clock.monotonic()
    owner = owner_of_mission(case.trace_id, case.generation)
    rows = [refs for _, refs in rows_of_mission(ports.journal, owner)]
    with ports.journal.read() as reader:
        away = has_queue(reader.connection) and work_row(reader.connection, case.trace_id)
    if rows:
        record = Record.load(ports.journal, case, case.generation, ports.clock, mission.token)
        try:
            _fetch(ports, mission, record, rows)
        except RepositoryChanged as error:
            return unable(ports, mission, error, began_s, End.REPOSITORY, record)
        except (UserError, GitError, OSError) as error:
            why = passing(error) or str(error)
            raise Postponed(why, AWAY_RETRY_S, Why.MACHINE) from error
        finally:
            record.close()
    if rows or away:
        guard = Guard(case.trace_id, mission.token)
        drop = DropWork(case.trace_id, case.generation)
        ports.journal.commit([guard, drop, DropPacks(owner, LAST)])
    return carry_out(ports, mission, cancel)


def _fetch(
    ports: Ports, mission: Mission, record: Record, rows: Sequence[Mapping[str, str]]
) -> None:
    """Make references and worktree what they were at the last worker. Safe to repeat."""
    case, last, place = mission.case, rows[-1], record.get(PLACE)
    repo = repository(ports, case.request.portal, record)
    path = path_of(ports, case, record)
    forget_worktree(repo, path)
    move(ports.journal, case, repo, last, rows)
    if place is None or f"refs/heads/{place.branch}" not in last:
        return
    by_name = mission.plan.scope.by_name()
    tree = add_worktree(repo, path, place.branch, place.base, by_name=by_name)
    if kept := last.get(refs(case, place.name)[0]):
        restore(tree, kept)


def hand_over(
    ports: Ports, case: Case, repo: Repo, record: Record, place: MissionPlace, lent: Sequence[str]
) -> None:
    """Make sure that workers can have what this daemon did of a mission itself.

    `lent` are commits that all have. Safe to repeat.
    """
    owner, path = owner_of_mission(case.trace_id, case.generation), path_of(ports, case, record)
    names = [f"refs/heads/{place.branch}", *refs(case, place.name)]
    ckpt = names[1]
    if not rows_of_mission(ports.journal, owner):
        if not refs_at(repo, names[:1]):
            return
        tree = open_worktree(repo, path, place.branch, place.base)
        clear_stale_locks(tree, (ckpt,))
        try:
            keep_apart(ports, repo, tree, ckpt)
        except ToolError as error:
            raise Postponed(f"{path}: {error}", AWAY_RETRY_S, Why.MACHINE) from error
        lend_mission(ports.journal, repo, names, owner, lent)
    if path.exists():
        forget_worktree(repo, path)
        move_refs(repo, dict.fromkeys(refs_at(repo, [ckpt]), ""))


def kept_ref(case: Case) -> str:
    """Return the reference that keeps a mission's commits where its own cannot."""
    return f"refs/placet/failed/{case.request_id}-{case.trace8}-{case.generation}"


def may_move(case: Case, name: str) -> bool:
    """Return whether a reference is a mission's own: its branch, or what placet keeps of it.

    Workers name them, and whoever can write in the database could name any.
    """
    ident = f"{case.request_id}-{case.trace8}"
    branches = (f"refs/heads/feat/{ident}", f"refs/heads/feat-{ident}")
    kept = (f"refs/placet/{kind}/{ident}-" for kind in ("failed", "left"))
    ours = (*branches, *kept, f"refs/placet/ckpt/{case.trace8}-")
    return name.startswith(ours) and not re.search(r"\s", name)


def move(
    journal: JournalAccess,
    case: Case,
    repo: Repo,
    to: Mapping[str, str],
    rows: Sequence[Mapping[str, str]],
) -> None:
    """Set a mission's references to where a worker left them; `rows` are where they were.

    Where somebody has moved one, the branch's commits are kept at a reference of placet's own, and
    RepositoryChanged is raised.
    """
    for name, commit in to.items():
        if not may_move(case, name) or not _COMMIT.fullmatch(commit):
            raise Mislaid(f"a worker gave back another reference: {name!r:.200}")
    if not to:
        return
    take(journal, repo, owner_of_mission(case.trace_id, case.generation))
    try:
        must_be_whole(repo, [*to.values()])
    except RepositoryChanged:
        # a person deleted what the mission began from; workers were lent that
        take(journal, repo, owner_of_portal(case.request.portal))
        must_be_whole(repo, [*to.values()])
    gone = {name for row in rows for name in row if name not in rows[-1] and may_move(case, name)}
    known = refs_at(repo, [*to, *gone])
    to = {**to, **{name: "" for name in gone if name in known}}
    moved = [
        name
        for name, commit in known.items()
        if commit not in {to[name], *(row.get(name) for row in rows)}
    ]
    if not moved:
        move_refs(repo, to, known)
        return
    move_refs(repo, {kept_ref(case): to[moved[0]]})
    raise RepositoryChanged(f"{', '.join(moved)} was moved by somebody else; see {kept_ref(case)}")
