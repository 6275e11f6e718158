"""Hand work over to a worker and wait for its result, in one thread for each piece of work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from placet.agent.commits import delete_old_leftovers
from placet.agent.mission import place_of_mission
from placet.agent.mission_end import failed_result
from placet.agent.planner import Assignment, base_of
from placet.agent.ports import Ports
from placet.agent.record import AUTHOR, Postponed, Record
from placet.agent.repository import repository
from placet.agent.tool_calls import MACHINE_RETRY_S, AsksPerson
from placet.agent.work import Mission
from placet.agent.workplace import denied_in
from placet.case.case import Case
from placet.case.events import Asked, Drafted, PlanningFailed
from placet.case.mission_result import MissionResult
from placet.case.waiting import WaitReason
from placet.chat.budget import Amount
from placet.chat.cancel import Cancel
from placet.errors import End, Interrupted, PlacetError, UserError, describe_bug, passing
from placet.git.repository import current_branch, head, identity, resolve
from placet.git.run import Author, GitError, Repo, RepositoryChanged
from placet.journal.writer import JournalAccess
from placet.journal.writes import BodyDamaged, Conflict, LeaseLost, ReleaseLease, RenewLease
from placet_team.branch_checks import BranchRefused
from placet_team.bring_home import (
    AWAY_RETRY_S,
    check_refs,
    checked_here,
    clear_remote,
    fetch_mission,
    kept_ref,
    needed_remote,
    not_taken,
    run_mission_here,
    without_checkpoints,
)
from placet_team.cache import TeamCache
from placet_team.git_fetching import REMOTE_RETRY_S, leavable_by, redact_line, work_remote
from placet_team.git_refs import refs_at
from placet_team.remote_refs import refs_of_remote
from placet_team.result_checks import WorkerBug, bounded, checked_plan, line_of
from placet_team.tables import (
    DropWork,
    HandWork,
    TellWorker,
    WorkRow,
    began_here,
    refs_of,
    text_of,
)
from placet_team.vault_copy import keep_for_workers
from placet_team.work_item import (
    ITEM_JSON,
    KEPT_SETTINGS,
    LEFT,
    MISTAKE,
    Result,
    Source,
    Wait,
    WorkItem,
    most_used,
    packed_config,
    result_of,
)

OBEYED_S = 600.0
"""Seconds within which a worker that is told to stop gives its work back."""


@dataclass(slots=True)
class Handover:
    """Hand work over to workers. `cache` has its state.

    `lease_s` is how long a worker may be quiet.
    """

    journal: JournalAccess
    cache: TeamCache
    lease_s: float
    lending: threading.Lock = field(default_factory=threading.Lock)

    def draft(self, ports: Ports, job: Assignment, cancel: Cancel) -> Drafted | PlanningFailed:
        """Let a worker write a plan; return it, or the reason for a failure.

        Raises Interrupted, Postponed and AsksPerson as `agent.planner.draft` does.
        """
        assert job.token is not None, "a worker's planning has a lease"
        try:
            item = partial(self._plan, ports, job, cancel)
            most = most_used(ports.config, ports.prices, None)
            came = self._came(ports, job.case, job.token, cancel, item, most)
            if isinstance(came, PlanningFailed):
                came = replace(came, generation=job.case.generation)
            elif isinstance(came, Drafted):
                came = checked_plan(ports, job.case, self._planned_from(job), came)
            else:
                raise WorkerBug(f"a worker planned, and gave back: {came!r:.200}")
        except BodyDamaged:
            raise
        except (UserError, GitError, RepositoryChanged, OSError) as error:
            if why := passing(error):
                raise Postponed(why, MACHINE_RETRY_S, WaitReason.MACHINE) from error
            why = str(error)
            end = End.REPOSITORY
            return PlanningFailed(job.case.generation, why, end.value, end=end)
        return came

    def run_mission(self, ports: Ports, mission: Mission, cancel: Cancel) -> MissionResult:
        """Let a worker carry a mission out, and put its commits into the person's repository.

        This process runs a mission that it began, or that was stopped before a worker had it.
        Raises as `agent.mission.run_mission` does.
        """
        case = mission.case
        row = self.cache.work.get(case.trace_id)
        if row is None or row.token != mission.token:
            with ports.journal.ask() as reader:
                here = began_here(reader.connection, case.trace_id, case.generation)
            if cancel.reason or here:
                return run_mission_here(ports, mission, cancel)
        record = Record.load(ports.journal, case, case.generation, ports.clock)
        try:
            try:
                item = partial(self._mission, ports, mission, cancel)
                most = most_used(ports.config, ports.prices, mission.plan.scope)
                came = self._came(ports, case, mission.token, cancel, item, most)
            except WorkerBug as error:
                bug = UserError(describe_bug(error))
                came = failed_result(ports, mission, bug, End.INTERNAL_ERROR, record)
            if not isinstance(came, MissionResult):
                raise WorkerBug(f"a worker ran a plan, and returned: {came!r:.200}")
            record = Record.load(ports.journal, case, case.generation, ports.clock)
            return self._settled(ports, mission, record, came, cancel)
        except BodyDamaged:
            raise
        except (UserError, GitError, RepositoryChanged, OSError) as error:
            if why := passing(error):
                raise Postponed(why, MACHINE_RETRY_S, WaitReason.MACHINE) from error
            if not isinstance(error, PlacetError):
                raise
            with ports.journal.ask() as reader:
                begun = refs_of(reader.connection, case.trace_id, case.generation) is not None
            if isinstance(error, UserError) and begun:
                # only the remote has its commits: they wait until they can be put in place
                raise Postponed(str(error), AWAY_RETRY_S, WaitReason.MACHINE) from error
            return failed_result(ports, mission, error, End.REPOSITORY, record)

    def _came(
        self,
        ports: Ports,
        case: Case,
        token: int,
        cancel: Cancel,
        item: Callable[[], WorkItem],
        most: Amount,
    ) -> Result:
        """Hand work over, unless a worker has it already, and wait for the result.

        Its model calls may use `most`.
        """
        row = self.cache.work.get(case.trace_id)
        if row is None or row.token != token:
            try:
                text = ITEM_JSON.dump_json(item()).decode()
                worker = "" if row is None else row.worker
                usd = None if most.usd is None else f"{most.usd}"
                work = HandWork(
                    case.trace_id, case.generation, worker, token, text, most.tokens, usd
                )
                # pushing the work may have taken longer than a lease
                renewal = RenewLease(case.trace_id, token, self.lease_s)
                self.journal.commit([renewal, work])
            except (Conflict, LeaseLost) as error:
                raise Postponed(f"{error}", 0.0, WaitReason.WORKER) from error
            self.cache.look()
        row, text = self._wait(ports, case, token, cancel)
        kind = row.kind
        if kind == LEFT:
            raise Interrupted("the worker stopped before it was done")
        if kind == MISTAKE:
            raise WorkerBug(line_of(text))
        try:
            result = bounded(result_of(kind, text))
        except ValueError as error:
            why = line_of(f"a worker gave back what cannot be read: {error}")
            raise WorkerBug(why) from error
        match result:
            case Wait() as wait:
                if url := work_remote(ports.vault, ports.config, case.request.portal):
                    refs_of_remote(ports.vault, url).forget()  # it may have lost them
                raise wait.error()
            case Asked() as asked:
                raise AsksPerson(asked)
            case MissionResult() as ended:
                return replace(ended, worker=row.worker)
            case found:
                return found

    def _wait(self, ports: Ports, case: Case, token: int, cancel: Cancel) -> tuple[WorkRow, str]:
        """Wait for a worker's result; return its row and the result's text."""
        sent_reason, sent_at_s = "", 0.0
        while True:
            row = self.cache.work.get(case.trace_id)
            if row is None or row.token != token:
                raise Interrupted("another worker has it")
            if row.kind:
                with ports.journal.ask() as reader:
                    text = text_of(reader.connection, "result", case.trace_id, token)
                if text is not None:
                    return row, text
            if ports.leaving.is_set():
                raise Interrupted("the daemon stops; the worker continues")
            lease_s = self.lease_s
            quiet = row.expired and self.cache.watched_s() >= lease_s
            quiet = quiet or (sent_reason != "" and ports.clock.monotonic() - sent_at_s > OBEYED_S)
            if quiet or cancel.must_leave():
                self._revoke(case, token)
                if cancel.must_leave():
                    raise Interrupted("it is no longer wanted")
                why = f"the worker {row.worker} gives no sign of life; another one continues"
                raise Postponed(why, 0.0, WaitReason.WORKER)
            if cancel.reason and sent_reason != cancel.reason:
                sent_reason, sent_at_s = cancel.reason, ports.clock.monotonic()
                self.journal.commit([TellWorker(case.trace_id, token, sent_reason)])
            self.cache.wait()

    def _revoke(self, case: Case, token: int) -> None:
        """Take work away from its worker, which can then write nothing more."""
        with suppress(LeaseLost):
            self.journal.commit([ReleaseLease(case.trace_id, token)])
        self.journal.commit([DropWork(case.trace_id, case.generation)])
        self.cache.look()

    # --- what is handed over

    def _plan(self, ports: Ports, job: Assignment, cancel: Cancel) -> WorkItem:
        case = job.case
        record = Record.load(ports.journal, case, case.generation, ports.clock, job.token)
        repo = repository(ports, case.request.portal, record)
        base = base_of(ports, repo, record)
        item = self._item(ports, case, repo, identity(repo), {"": base}, (), cancel)
        record.close()
        return replace(item, assignment=job)

    def _mission(self, ports: Ports, mission: Mission, cancel: Cancel) -> WorkItem:
        case = mission.case
        record = Record.load(ports.journal, case, case.generation, ports.clock, mission.token)
        repo = repository(ports, case.request.portal, record)
        place, _ = place_of_mission(ports, mission, repo, record)
        if (author := record.get(AUTHOR)) is None:
            author = identity(repo)
            record.settle(AUTHOR, author)
        needed = {"": place.base}
        if case.plan.base_branch:
            name = f"refs/heads/{case.plan.base_branch}"
            needed[name] = resolve(repo, name) or ""  # empty: the row was deleted
        with ports.journal.ask() as reader:
            recorded = refs_of(reader.connection, case.trace_id, case.generation) or {}
        # what is home already may be gone from the remote
        check_refs(case, place, recorded)
        home = {*recorded.values()} & {*refs_at(repo, [*recorded]).values()}
        item = self._item(ports, case, repo, author, needed, sorted(home), cancel)
        record.close()
        return item

    def _item(
        self,
        ports: Ports,
        case: Case,
        repo: Repo,
        author: Author,
        needed: dict[str, str],
        home: Sequence[str],
        cancel: Cancel,
    ) -> WorkItem:
        branch = current_branch(repo)
        needed[f"refs/heads/{branch}" if branch else "HEAD"] = head(repo)
        wants = sorted({one for one in needed.values() if one})
        with leavable_by(cancel, ports.leaving):
            self._send(ports, case, repo, [*wants, *home])
        with self.lending:
            vault = keep_for_workers(ports)
        settings = {key: value for key in KEPT_SETTINGS if (value := repo.setting(key)) is not None}
        source = Source(
            case.request.portal,
            tuple(wants),
            {name: commit for name, commit in needed.items() if name},
            f"refs/heads/{branch}" if branch else "",
            str(repo.path),
            denied_in(repo, ports.vault),
            sha256=len(wants[0]) > 40,
            settings={**settings, "user.name": author.name, "user.email": author.email},
            exclude=_text(repo.common_dir / "info" / "exclude"),
            attributes=_text(repo.common_dir / "info" / "attributes"),
        )
        return WorkItem(case, None, packed_config(ports.config), vault, int(ports.sandbox), source)

    def _send(self, ports: Ports, case: Case, repo: Repo, commits: Sequence[str]) -> None:
        """Push what work begins from, once; raises Postponed if that fails."""
        url = needed_remote(ports, case.request.portal)
        if repo.is_shallow:
            raise Postponed(
                f"{repo.path} is a shallow clone, which git cannot push. Fetch its whole history: "
                f"{repo.command_line} fetch --unshallow",
                AWAY_RETRY_S,
                WaitReason.MACHINE,
            )
        try:
            refs_of_remote(ports.vault, url).send(repo, commits)
        except GitError as error:
            why = f"cannot push to {redact_line(url)}: {redact_line(error.stderr)}"
            raise Postponed(why, REMOTE_RETRY_S, WaitReason.MACHINE) from error

    # --- what comes back

    def _planned_from(self, job: Assignment) -> str:
        """Return the branch that a planning began from, as it was handed over."""
        with self.journal.ask() as reader:
            text = text_of(reader.connection, "item", job.case.trace_id, job.token or 0)
        if text is None:
            raise Interrupted("another worker has it")
        return ITEM_JSON.validate_json(text).source.head.removeprefix("refs/heads/")

    def _settled(
        self, ports: Ports, mission: Mission, record: Record, ended: MissionResult, cancel: Cancel
    ) -> MissionResult:
        """Bring a mission's commits home; return its end as the repository shows it."""
        case = mission.case
        repo = repository(ports, case.request.portal, record)
        with ports.journal.ask() as reader:
            to = refs_of(reader.connection, case.trace_id, case.generation) or {}
        # an exception ended it before uncommitted files were checked
        to = without_checkpoints(to, "" if ended.branch else kept_ref(case))
        try:
            with leavable_by(cancel, ports.leaving):
                fetch_mission(ports, mission, record, repo, to)
        except BranchRefused as error:
            worker, ended = ended.worker, not_taken(ports, mission, record, error, to)
            ended = replace(ended, worker=worker)
        else:
            ended = checked_here(ports, mission, record, repo, to, ended)
        delete_old_leftovers(ports, repo, record)
        clear_remote(ports, case, to.values())
        return replace(ended, left_at="")  # a folder of the worker's machine


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""
