"""The events of a case as values: people's gestures, and the results of work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from placet.case.case import EventKind, NoteSeen
from placet.chat.result import Drifted
from placet.core.life.gestures import Gesture
from placet.core.text.blocks import Frontmatter
from placet.errors import End
from placet.plan.scope import Scope


@dataclass(frozen=True, slots=True)
class Drafted:
    """A planner's result: the whole plan note. `facts` go into the journal.

    `note` is the plan that lies in the place of the new one, read in this moment; None if there is
    none. The other fields are as in `KnownPlan`.
    """

    generation: int
    text: bytes
    revision: int
    kind: Literal[EventKind.PLAN_DRAFTED] = EventKind.PLAN_DRAFTED
    facts: Mapping[str, Any] = field(default_factory=dict)
    base_branch: str = ""
    based_on: tuple[tuple[str, str], ...] = ()
    base_commit: str = ""
    uncommitted: int = 0
    model: str = ""
    note: NoteSeen | None = None


@dataclass(frozen=True, slots=True)
class PlanningFailed:
    """A planner's failure.

    `reason` is a sentence for a person, `iterations` counts the model's turns.
    """

    generation: int
    reason: str
    error_type: str
    kind: Literal[EventKind.PLANNING_FAILED] = EventKind.PLANNING_FAILED
    end: End = End.INTERNAL_ERROR
    iterations: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of the model's that only a person can answer; its work stands still until then.

    `call` is the call's key in the record. `wider` are the permissions that are asked for, None for
    a question; then `approved` is the plan's text as it is approved now, and `first` as it was
    approved first. `frontmatter` is that of the vault's notes.
    """

    generation: int
    call: str = ""
    question: str = ""
    options: tuple[str, ...] = ()
    why: str = ""
    wider: Scope | None = None
    approved: bytes = b""
    first: bytes = b""
    frontmatter: Frontmatter = Frontmatter.YAML
    kind: Literal[EventKind.PERSON_ASKED] = EventKind.PERSON_ASKED


@dataclass(frozen=True, slots=True)
class Started:
    """The start of a mission. `facts` go into the journal."""

    generation: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    kind: Literal[EventKind.MISSION_STARTED] = EventKind.MISSION_STARTED


@dataclass(frozen=True, slots=True)
class MissionEnded:
    """A mission's result: the whole report note, and `facts` for the journal.

    `pictures` are the files that the report shows, PNGs by their paths.
    `reason` is a sentence for a person, `detail` the error's own words. With `drift` the plan goes
    back to review instead, if its note is still in System/Active.
    """

    generation: int
    kind: Literal[EventKind.MISSION_COMPLETED, EventKind.MISSION_FAILED]
    report: bytes
    report_path: str
    facts: Mapping[str, Any]
    reason: str = ""
    branch: str = ""
    drift: Drifted | None = None
    detail: str = ""
    pictures: tuple[tuple[str, bytes], ...] = ()


Event = Gesture | Drafted | PlanningFailed | Asked | Started | MissionEnded
