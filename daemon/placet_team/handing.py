"""Work handed over to a worker, and what comes back, in a thread for each piece of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from placet.agent.commits import tidy_up
from placet.agent.mission import broken, place_of_mission, unable
from placet.agent.planner import Assignment, base_of
from placet.agent.record import BRANCH, Postponed, Record
from placet.agent.tool_calls import MACHINE_RETRY_S, AsksPerson
from placet.agent.work import Mission
from placet.agent.workplace import Ports, checkpoint_ref, repository
from placet.case.case import Case
from placet.case.events import Asked, Drafted, PlanningFailed
from placet.case.waiting import Why
from placet.chat.cancel import Cancel
from placet.chat.result import Ended, Finished, Stopped
from placet.disk.errors import VaultTrouble
from placet.errors import End, Interrupted, PlacetError, UserError, passing
from placet.git.fate import look_after
from placet.git.repository import current_branch, head, resolve
from placet.git.run import GitError, Repo, RepositoryChanged
from placet.journal.writer import JournalAccess
from placet.journal.writes import Conflict, LeaseLost, ReleaseLease, RenewLease
from placet_team.home import (
    AWAY_RETRY_S,
    Mislaid,
    carry_out_here,
    hand_over,
    kept_ref,
    may_move,
    move,
)
from placet_team.lookout import Lookout
from placet_team.packs import lend, owner_of_mission, rows_of_mission
from placet_team.parcel import (
    LEFT,
    MISTAKE,
    PARCEL_JSON,
    Parcel,
    Result,
    Wait,
    packed_config,
    result_of,
)
from placet_team.team_journal import DropWork, HandWork, TellWorker
from placet_team.team_rows import texts_of
from placet_team.vault_copy import keep_for_workers


@dataclass(slots=True)
class Handing:
    """Hands work over. `lookout` knows what becomes of it; one repository is lent at a time.

    `lease_s` is how long a worker may be quiet.
    """

    journal: JournalAccess
    lookout: Lookout
    lease_s: float
    lending: threading.Lock = field(default_factory=threading.Lock)

    def draft(self, ports: Ports, job: Assignment, cancel: Cancel) -> Drafted | PlanningFailed:
        """Let a worker write a plan; return what it came to.

        Raises Interrupted, Postponed and AsksPerson as `agent.planner.draft` does.
        """
        assert job.token is not None, "a worker's planning has a lease"
        try:
            came = self._came(ports, job.case, job.token, cancel, lambda: self._plan(ports, job))
        except (UserError, GitError, RepositoryChanged, OSError) as error:
            if why := passing(error):
                raise Postponed(why, MACHINE_RETRY_S, Why.MACHINE) from error
            why = str(error)
            end = End.REPOSITORY
            return PlanningFailed(job.case.generation, why, end.value, end=end)
        if not isinstance(came, Drafted | PlanningFailed):
            raise Mislaid(f"a worker planned, and gave back: {came!r:.200}")
        return came

    def carry_out(self, ports: Ports, mission: Mission, cancel: Cancel) -> Ended:
        """Let a worker carry a mission out, and put its commits into the person's repository.

        One that was stopped before a worker had it is ended here. Raises as
        `agent.mission.carry_out` does.
        """
        case = mission.case
        row = self.lookout.work.get(case.trace_id)
        if cancel.reason and (row is None or row.token != mission.token):
            return carry_out_here(ports, mission, cancel)
        record = Record.load(ports.journal, case, case.generation, ports.clock)
        began_s = ports.clock.monotonic()
        try:
            try:
                came = self._came(
                    ports, case, mission.token, cancel, lambda: self._mission(ports, mission)
                )
            except Mislaid as error:
                came = broken(ports, mission, error)
            if not isinstance(came, Finished | Stopped):
                raise Mislaid(f"a worker carried out a plan, and gave back: {came!r:.200}")
            return self._settled(ports, case, record, came)
        except (UserError, GitError, RepositoryChanged, VaultTrouble, OSError) as error:
            if why := passing(error):
                raise Postponed(why, MACHINE_RETRY_S, Why.MACHINE) from error
            if not isinstance(error, PlacetError):
                raise
            owner = owner_of_mission(case.trace_id, case.generation)
            if isinstance(error, UserError) and rows_of_mission(ports.journal, owner):
                # the database has the only commits of it: they wait until they can be put in place
                raise Postponed(str(error), AWAY_RETRY_S, Why.MACHINE) from error
            return unable(ports, mission, error, began_s, End.REPOSITORY, record)

    def _came(
        self, ports: Ports, case: Case, token: int, cancel: Cancel, parcel: Callable[[], Parcel]
    ) -> Result:
        """Hand work over, unless it was, and wait for what comes back."""
        row = self.lookout.work.get(case.trace_id)
        if row is None or row.token != token:
            try:
                text = PARCEL_JSON.dump_json(parcel()).decode()
                worker = "" if row is None else row.worker
                person = HandWork(case.trace_id, case.generation, worker, token, text)
                # what is handed over may have taken longer than a lease to pack
                renewal = RenewLease(case.trace_id, token, self.lease_s)
                self.journal.commit([renewal, person])
            except (Conflict, LeaseLost) as error:
                raise Postponed(f"{error}", 0.0, Why.WORKER) from error
            self.lookout.look()
        kind, text = self._wait(ports, case, token, cancel)
        if kind == LEFT:
            raise Interrupted("a worker left it")
        if kind == MISTAKE:
            raise Mislaid(text)
        match result_of(kind, text):
            case Wait() as wait:
                raise wait.error()
            case Asked() as asked:
                raise AsksPerson(asked)
            case found:
                return found

    def _wait(self, ports: Ports, case: Case, token: int, cancel: Cancel) -> tuple[str, str]:
        told = ""
        while True:
            row = self.lookout.work.get(case.trace_id)
            if row is None or row.token != token:
                raise Interrupted("it was taken away")
            if row.kind:
                with ports.journal.read() as reader:
                    texts = texts_of(reader.connection, case.trace_id, token)
                if texts is not None:
                    return row.kind, texts[1]
            if ports.leaving.is_set():
                raise Interrupted("the worker goes on alone")
            lease_s = self.lease_s
            quiet = row.expired and self.lookout.watched_s() >= lease_s
            if quiet or cancel.must_leave():
                self._revoke(case, token)
                if cancel.must_leave():
                    raise Interrupted("it is void")
                why = f"nothing was heard of the worker {row.worker}; another one goes on"
                raise Postponed(why, 0.0, Why.WORKER)
            if cancel.reason and told != cancel.reason:
                told = cancel.reason
                self.journal.commit([TellWorker(case.trace_id, token, told)])
            self.lookout.wait()

    def _revoke(self, case: Case, token: int) -> None:
        """Take work away: its worker can write nothing more."""
        with suppress(LeaseLost):
            self.journal.commit([ReleaseLease(case.trace_id, token)])
        self.journal.commit([DropWork(case.trace_id, case.generation)])
        self.lookout.look()

    # --- what is handed over

    def _plan(self, ports: Ports, job: Assignment) -> Parcel:
        case = job.case
        record = Record.load(ports.journal, case, case.generation, ports.clock, job.token)
        repo = repository(ports, case.request.portal, record)
        base = base_of(ports, repo, record)
        parcel = self._parcel(ports, case, repo, {"": base})
        record.close()
        return replace(parcel, assignment=job)

    def _mission(self, ports: Ports, mission: Mission) -> Parcel:
        case = mission.case
        record = Record.load(ports.journal, case, case.generation, ports.clock, mission.token)
        repo = repository(ports, case.request.portal, record)
        place, _ = place_of_mission(ports, mission, repo, record)
        needed = {"": place.base}
        if case.plan.base_branch:
            name = f"refs/heads/{case.plan.base_branch}"
            needed[name] = resolve(repo, name) or ""  # empty: somebody deleted it
        parcel = self._parcel(ports, case, repo, needed)
        if record.has(BRANCH):  # begun, maybe by this daemon itself
            hand_over(ports, case, repo, record, place, parcel.loan.commits)
        record.close()
        return parcel

    def _parcel(self, ports: Ports, case: Case, repo: Repo, needed: dict[str, str]) -> Parcel:
        branch = current_branch(repo)
        needed[f"refs/heads/{branch}" if branch else "HEAD"] = head(repo)
        with self.lending:
            vault = keep_for_workers(ports)
            loan = lend(ports, repo, case.request.portal, needed)
        return Parcel(
            case,
            None,
            packed_config(ports.config),
            vault,
            int(ports.sandbox),
            loan,
            owner_of_mission(case.trace_id, case.generation),
        )

    # --- what comes back

    def _settled(self, ports: Ports, case: Case, record: Record, ended: Ended) -> Ended:
        """Put a mission's commits into the person's repository; return its end as it is there."""
        if ended.work.branch and not may_move(case, f"refs/heads/{ended.work.branch}"):
            raise Mislaid(f"a worker gave back another branch: {ended.work.branch!r:.200}")
        repo = repository(ports, case.request.portal, record)
        owner = owner_of_mission(case.trace_id, case.generation)
        rows = rows_of_mission(ports.journal, owner)
        if rows:
            last = rows[-1][1]
            to = {name: at for name, at in last.items() if not name.startswith(checkpoint_ref(""))}
            for name in last.keys() - to.keys():
                if not ended.work.branch:  # a mistake ended it: nobody looked at what no commit has
                    to[kept_ref(case)] = last[name]
            move(ports.journal, case, repo, to, [refs for _, refs in rows])
        tidy_up(ports, repo, record)
        work = replace(ended.work, repository=str(repo.path))
        if isinstance(ended, Stopped):
            return replace(ended, work=work, left_at="")
        into = case.plan.base_branch
        after = look_after(repo, work.branch, into) if ended.commit else None
        return replace(ended, work=work, after=after)
