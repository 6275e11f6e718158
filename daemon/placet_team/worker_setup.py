"""Prepare one piece of work on a worker: its clone, its notes, its model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from placet.agent.day_budget import DayBudget
from placet.agent.ports import Ports, WorkerClone
from placet.agent.record import PLACE, Postponed, Record
from placet.agent.tool_calls import MACHINE_RETRY_S
from placet.agent.work import Mission, lost_marker, mission_of, path_of, refs
from placet.case.approval import approved_in
from placet.case.case import Case
from placet.case.waiting import WaitReason
from placet.chat.cancel import Cancel
from placet.chat.messages import Model
from placet.chat.retry import RetryPolicy
from placet.codec import sha256
from placet.git.run import Repo
from placet.host.clock import Clock
from placet.host.config import Config
from placet.host.signers import NotSigned, read_list, verify
from placet.journal.writes import BodyDamaged
from placet.loop.build import model_opener
from placet.note.frontmatter import read_note
from placet.plan.statement import read_statement
from placet.sandbox.box import Level
from placet.tools.registry import PLANNABLE
from placet_team.bring_home import check_refs
from placet_team.clones import PushCarrier, borrow
from placet_team.git_fetching import address_of_git, leavable_by
from placet_team.git_refs import forget_worktree, loose_refs, move_refs
from placet_team.tables import refs_of
from placet_team.vault_copy import unpacked
from placet_team.work_item import WorkItem, config_of
from placet_team.worker_journal import TeamDay, WorkerJournal

OF_MODEL = ("provider", "name", "base_url", "script")
"""Settings of [model] that a worker takes from its own file; the rest are the vault's."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """A worker's own settings: model and sandbox in `config`, git remotes by portal, or for all.

    They decide where its key goes and what it runs, so none of them comes with the work.
    """

    config: Config = field(default_factory=Config)
    remotes: Mapping[str, str] = field(default_factory=dict)
    remote: str = ""
    signers: Path | None = None
    """The list of those who may approve; without one the database is trusted."""

    def remote_of(self, portal: str) -> str:
        """Return the git remote for a portal; empty for none."""
        return address_of_git(self.remotes.get(portal) or self.remote)


def check_signature(case: Case, text: bytes, portal: str, signers: Path) -> None:
    """Raise NotSigned unless an approved text is signed by one of a list of signers.

    `portal` is where its mission would work. Raises UserError for a list that cannot be used.
    """
    signed = case.signed[-1] if case.signed else None
    if signed is None:
        raise NotSigned("The plan is not signed.")
    stated = read_statement(signed.statement)
    named = str(read_note(text).meta.get("portal") or "")
    if stated is None or (stated.trace_id, stated.digest, named) != (
        case.trace_id,
        sha256(text),
        portal,
    ):
        raise NotSigned("What was signed is another plan.")
    verify(signed.statement, signed.signature, read_list(signers.parent, signers.name))


def with_own(sent: Config, own: WorkerSettings, name: str) -> Config:
    """Return the settings that came with the work, with the model and sandbox of worker `name`.

    Raises Postponed where the work is for another model.
    """
    model = own.config.model
    if sent.model.who != model.who:
        raise Postponed(
            f"the worker {name} has the model {model.who}, and this work is for {sent.model.who}. "
            "Write that under [model] in the file of its --config, and start it again",
            MACHINE_RETRY_S,
            WaitReason.MACHINE,
        )
    mine = {key: getattr(model, key) for key in OF_MODEL}
    model = sent.model.model_copy(update=mine)
    return sent.model_copy(update={"model": model, "commands": own.config.commands})


@dataclass(slots=True)
class Machine:
    """A worker's machine; `folder` is where it keeps clones and worktrees.

    `secrets` are those of its environment `env`, which no model is shown. Set `leaving` and work
    under way ends its round.
    """

    journal: WorkerJournal
    folder: Path
    env: Mapping[str, str]
    level: Level
    secrets: tuple[str, ...]
    say: Callable[[str], None]
    own: WorkerSettings
    leaving: Cancel = field(default_factory=Cancel)
    clock: Clock = field(default_factory=Clock)
    making: threading.Lock = field(default_factory=threading.Lock)
    fetching: dict[str, threading.Lock] = field(default_factory=dict)
    day_budget: DayBudget = field(init=False)
    openers: dict[str, Callable[[], Model]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.day_budget = DayBudget(TeamDay(self.journal))

    @contextmanager
    def mission(
        self, item: WorkItem, token: int, cancel: Cancel
    ) -> Iterator[tuple[Ports, Mission, list[PushCarrier]]]:
        """Give what a mission needs: its ports, the plan, and what carries its commits.

        The clone has the mission's commits as they were recorded last, and no worktree of it.
        """
        case, carriers = item.case, list[PushCarrier]()
        with self.journal.read() as reader:
            raw = reader.text(case.approval.digest)
            wanted = refs_of(reader.connection, case.trace_id, case.generation) or {}
        if raw is None:
            raise BodyDamaged(f"the approved text of {case.request_id} is not in the journal")
        if self.own.signers is not None:
            try:
                check_signature(case, raw, item.source.portal, self.own.signers)
            except NotSigned as error:
                why = f"the worker {self.folder.name} runs what its own signers approved. {error}"
                raise Postponed(why, MACHINE_RETRY_S, WaitReason.MACHINE) from error
        record = Record.load(self.journal, case, case.generation, self.clock)
        place = record.get(PLACE)
        check_refs(case, place, wanted)

        def carry(repo: Repo, names: Sequence[str]) -> PushCarrier:
            carriers.append(
                PushCarrier(
                    repo,
                    names,
                    self.own.remote_of(item.source.portal),
                    (case.trace_id, token),
                    item.source.commits,
                    cancel,
                    self.leaving.is_set,
                    self.clock,
                    self.say,
                )
            )
            return carriers[-1]

        ports, repo = self.ports(item, cancel, [*wanted.values()], carry)
        path = path_of(ports, case, record)
        names = [] if place is None else [f"refs/heads/{place.branch}", *refs(case, path.name)]
        forget_worktree(repo, path)
        lost_marker(path).unlink(missing_ok=True)
        found = loose_refs(repo, names)
        move_refs(repo, {name: wanted.get(name, "") for name in {*found, *wanted}})
        try:
            yield ports, mission_of(case, approved_in(raw, PLANNABLE), token), carriers
        finally:
            forget_worktree(repo, path)
            lost_marker(path).unlink(missing_ok=True)
            move_refs(repo, dict.fromkeys(loose_refs(repo, names), ""))

    def ports(
        self,
        item: WorkItem,
        cancel: Cancel,
        recorded: Sequence[str] = (),
        carry: Callable[[Repo, Sequence[str]], PushCarrier] | None = None,
    ) -> tuple[Ports, Repo]:
        """Return the ports for a piece of work, with the clone of its repository.

        `recorded` are the mission's commits, and `carry` makes what carries new ones. Raises
        Postponed where this worker has another model than the work is for, or no remote that gives
        the commits.
        """
        config = with_own(config_of(item.config), self.own, self.folder.name)
        source, commits = item.source, list(dict.fromkeys([*item.source.commits, *recorded]))
        url = self.own.remote_of(source.portal)
        with (
            leavable_by(cancel, self.leaving),
            self.fetching.setdefault(source.portal, threading.Lock()),
        ):
            repo = borrow(self.folder / "clones", source, url, commits)
        with self.making:
            vault = unpacked(self.journal, self.folder / "vaults", item.vault)
        level = self.level
        planning = item.assignment is not None
        ports = Ports(
            vault,
            config,
            Level(min(int(level), item.level)) if planning else level,
            self.secrets,
            self.folder / "worktrees",
            self.journal,
            self.clock,
            self._opener(config, vault),
            config.model.prices,
            RetryPolicy(),
            self.say,
            making=self.making,
            leaving=self.leaving,
            day_budget=self.day_budget,
            clone=WorkerClone(repo.path, Path(source.path), source.denied, carry),
        )
        return ports, repo

    def _opener(self, config: Config, vault: Path) -> Callable[[], Model]:
        """Return what opens the model: one client for all work with the same settings."""
        key = f"{config.model.model_dump_json()}:{config.model.script and vault}"
        if key not in self.openers:
            self.openers[key] = model_opener(config, vault, self.env)
        return self.openers[key]
