"""Keep the state of a running mission: plan, worktree, and files not yet allowed in commits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from placet.agent.limits import MissionLimits
from placet.agent.ports import Ports
from placet.agent.record import BRANCH, PLACE, Record, Recorded
from placet.case.case import Case
from placet.case.drift import KEY, IfChanged
from placet.case.mission_result import Drifted
from placet.chat.budget import Complexity
from placet.codec import sha256
from placet.disk.confine import TEMPORARY
from placet.errors import End, Stop
from placet.git.checkpoint import checkpoint_ref
from placet.git.pins import Pins
from placet.git.run import Author, Repo, RepositoryChanged
from placet.git.worktree import Worktree
from placet.journal.writes import BodyDamaged
from placet.note.frontmatter import read_note
from placet.plan.comments import Comment, open_comments
from placet.plan.plan import Approved, Plan
from placet.tools.base import Workplace


@dataclass(frozen=True, slots=True)
class Mission:
    """An approved plan to execute.

    `text` is the approved body. `token` fences every write of this lease holder. `remarks` are the
    comments that were unanswered at approval.
    """

    case: Case
    plan: Plan
    text: str
    complexity: Complexity
    token: int
    base_commit: str
    if_changed: IfChanged = IfChanged.ASK
    remarks: tuple[Comment, ...] = ()


def mission_of(case: Case, approved: Approved, token: int) -> Mission:
    """Return the mission of a case; raises BodyDamaged if another text was approved."""
    if sha256(approved.text) != case.approval.digest:
        raise BodyDamaged(f"the approved text of {case.request_id} is another one")
    note = read_note(approved.text)
    return Mission(
        case,
        approved.plan,
        note.body,
        Complexity(str(note.meta.get("complexity") or Complexity.STANDARD)),
        token,
        str(note.meta.get("base_commit") or ""),
        IfChanged(note.meta.get(KEY, IfChanged.ASK)),
        open_comments(note.body),
    )


@dataclass(slots=True)
class RunningMission:
    """One mission under way, in its worktree.

    `pinned` is what decided git's behaviour when the lease was taken. `drift` is what changed under
    the plan, once something did.
    """

    ports: Ports
    mission: Mission
    record: Record
    repo: Repo
    tree: Worktree
    author: Author
    pinned: Pins
    limits: MissionLimits
    place: Workplace
    drift: Drifted | None = None


def name_of(case: Case, record: Record) -> str:
    """Return the name of a mission's worktree and references."""
    place = record.get(PLACE)
    return place.name if place is not None else f"{case.trace8}-{case.generation}"


def path_of(ports: Ports, case: Case, record: Record) -> Path:
    """Return where a mission's worktree is."""
    return ports.worktrees / name_of(case, record)


def private_dir(repo: Repo, worktree: Path, record: Recorded) -> Path:
    """Return git's own folder of a mission's worktree; only its name is taken from the record."""
    recorded: str = record.get(BRANCH) or ""
    name = PurePath(recorded).name
    known = re.fullmatch(rf"{re.escape(worktree.name)}\d*", name)
    return repo.common_dir / "worktrees" / (name if known else worktree.name)


def lost_marker(worktree: Path) -> Path:
    """Return the marker that exists until a lost worktree is rebuilt."""
    return worktree.with_name(f"{worktree.name}.lost")


def refs(case: Case, name: str) -> tuple[str, str, str]:
    """Return a mission's references: checkpoint, work of a failure, files that were left out."""
    return (
        checkpoint_ref(name),
        f"refs/placet/failed/{case.request_id}-{name}",
        f"refs/placet/left/{case.request_id}-{name}",
    )


def without_temporary(changed: list[str]) -> list[str]:
    """Return changed files without the temporary ones that a killed write left."""
    return [path for path in changed if not fnmatchcase(path.rsplit("/", 1)[-1], TEMPORARY)]


def repository_stop(repo: Repo, error: RepositoryChanged) -> Stop:
    """Return the end of a mission whose branch or worktree another program changed.

    Raises `error` if the repository is gone.
    """
    if not repo.common_dir.is_dir():
        raise error
    return Stop(End.REPOSITORY, str(error))
