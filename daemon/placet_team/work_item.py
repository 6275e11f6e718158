"""Define what is sent to a worker, and the results that it sends back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from placet.agent.planner import Assignment
from placet.agent.record import Postponed
from placet.case.case import Case
from placet.case.events import Asked, Drafted, PlanningFailed
from placet.case.mission_result import MissionResult
from placet.case.waiting import WaitReason
from placet.chat.budget import Amount, worst_case
from placet.chat.prices import Price, is_free
from placet.codec import Stored
from placet.disk.path_text import Denied
from placet.git.repository import KEPT_MARK
from placet.host.accepted import plain
from placet.host.config import Config
from placet.plan.limits import scope_excess
from placet.plan.scope import Scope
from placet.tools.control import AskPerson, RequestScope
from placet.wording import one_line

LEFT = "left"
"""The kind of a piece of work that was left, to be resumed."""
MISTAKE = "mistake"
"""The kind of a piece of work that met a mistake of placet's; its text is the error's."""


KEPT_SETTINGS = ("user.name", "user.email", "core.autocrlf", "core.eol", KEPT_MARK)
"""Settings of git that a clone has from the person's repository."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a worker needs to clone a repository."""

    portal: str
    commits: tuple[str, ...]
    """Commits that the work remote has."""
    refs: Mapping[str, str]
    """References to set; an empty commit deletes one."""
    head: str
    """The reference that the person has checked out."""
    path: str
    """Where the person has it checked out."""
    denied: Denied
    """Paths that nothing may write."""
    sha256: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    """The person's git settings, as far as work depends on them."""
    exclude: str = ""
    """The person's `info/exclude`, as far as work depends on it."""
    attributes: str = ""
    """The person's `info/attributes`, as far as work depends on it."""


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A piece of work for a worker.

    With an `assignment` it is a planning; otherwise it executes the case's approved plan. `config`
    has the settings (JSON). `vault` lists what the worker needs of the vault. `level` is the
    sandbox level that the daemon's plans promise.
    """

    case: Case
    assignment: Assignment | None
    config: str
    vault: str
    level: int
    source: Source


_LONGEST_WAIT_S = 3600.0
MAX_REASON = 500
"""Maximum characters of what a worker says that it waits for."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Work that has to wait: for what, and for how many seconds."""

    reason: str
    after_s: float
    why: WaitReason

    @classmethod
    def of(cls, postponed: Postponed) -> Wait:
        """Return a wait as a value."""
        return cls(postponed.reason, postponed.after_s, postponed.why)

    def error(self) -> Postponed:
        """Return it as the error that it was."""
        after_s = self.after_s if 0 <= self.after_s <= _LONGEST_WAIT_S else _LONGEST_WAIT_S
        return Postponed(one_line(self.reason, MAX_REASON), after_s, self.why)


Result = Drafted | PlanningFailed | Asked | Wait | MissionResult | str

_KINDS: Mapping[str, Any] = {
    "drafted": Drafted,
    "not planned": PlanningFailed,
    "asked": Asked,
    "wait": Wait,
    "ended": MissionResult,
}
_STORED = {kind: Stored[Any](what) for kind, what in _KINDS.items()}


ITEM_JSON = Stored[WorkItem](WorkItem)


def most_used(config: Config, prices: Iterable[Price], scope: Scope | None) -> Amount:
    """Return what the model calls of a planning, or of a mission with this scope, may use.

    That is the limit, which the worker keeps before each call, and one call more: a server may
    report more than was expected of the last one, and its answer is paid.
    """
    limits, model = config.limits, config.model
    tokens = limits.planning_tokens if scope is None else limits.mission_tokens
    own_usd = limits.planning_usd or None if scope is None else scope.budget_usd
    usd = [one for one in (own_usd, limits.day_usd or None) if one is not None]
    most = Amount(min(tokens, limits.day_tokens or tokens), min(usd, default=None))
    window = model.context_tokens
    call = worst_case(window, 0, model.name, prices, free=is_free(model.provider))
    more = call.worst(model.max_tokens).usd or Decimal(0)
    return Amount(most.tokens + window, None if most.usd is None else most.usd + more)


def packed_config(config: Config) -> str:
    """Return the settings that work needs, as JSON.

    A worker needs neither notifications nor the board, and their settings contain secrets. A
    portal's path is the daemon's; server and sandbox are the worker's own.
    """
    unsent: dict[str, Any] = dict.fromkeys(
        ("notify", "approval", "board", "portals", "team", "commands"), True
    )
    unsent["model"] = {"base_url", "script"}
    return json.dumps(config.model_dump(exclude=unsent), default=plain)


def config_of(text: str) -> Config:
    """Return settings as they were; raises ValueError for those of another version."""
    return Config.model_validate(json.loads(text))


def packed_result(
    result: Drafted | PlanningFailed | Asked | Wait | MissionResult,
) -> tuple[str, str]:
    """Return the kind of a result, and its JSON."""
    for kind, what in _KINDS.items():
        if isinstance(result, what):
            return kind, _STORED[kind].dump_json(result).decode()
    raise TypeError(f"no result: {result!r:.80}")


def result_of(kind: str, text: str) -> Result:
    """Return a result; for work that was left or met a bug, its text.

    Raises ValueError for one that cannot be read, or that asks for what no tool lets a model ask.
    """
    if kind not in _KINDS:
        return text
    found: Result = _STORED[kind].validate_json(text)
    if isinstance(found, Asked) and found.wider is None:
        AskPerson(question=found.question, options=list(found.options), why=found.why)
    elif isinstance(found, Asked) and found.wider is not None:
        RequestScope(why=found.why)
        asked = found.wider
        only = Scope(asked.write, asked.run, asked.network, hosts=asked.hosts)
        if problems := scope_excess(asked) or [] if asked == only else ["not a wider scope"]:
            raise ValueError(problems[0])
    return found
