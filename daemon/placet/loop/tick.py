"""Tick: collect results, scan, read notes, decide, record, perform, start work.

A file event or a timer starts a tick. It lists the watched folders and lets pure functions decide
what changed and what follows. It records each decision in one transaction, performs the commands,
and starts due work. Workers run in threads and return values; only the loop decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from placet.activity import Action
from placet.agent.model_call import count_unseen
from placet.agent.ports import Ports
from placet.agent.record import Record
from placet.case.case import Case
from placet.case.lease import Owner
from placet.case.life_cycle import DRAFTING, OPEN
from placet.case.settle import UNKNOWN_S
from placet.case.waiting import Hold, WaitReason
from placet.disk.scan import Scan
from placet.disk.vault import Vault
from placet.host.state import MARK
from placet.journal.reader import Reader
from placet.journal.writes import BodyDamaged
from placet.loop.branches import BranchWatch, explain_drops, open_branches, settle
from placet.loop.claim import mark_end
from placet.loop.decider import Decider
from placet.loop.gestures import refuse
from placet.loop.leases import HEARTBEAT_S, is_with_worker
from placet.loop.open_cases import OpenCases
from placet.loop.report_decisions import ReportDecisions
from placet.loop.side_notes import SideNotes
from placet.loop.state import LoopState
from placet.loop.threads import Threads, Workers
from placet.loop.work import Dispatch, Draft, RunMission
from placet.note.paths import QUEUES, show

CONFIG_WAIT_S = 3 * UNKNOWN_S
"""How long placet waits for settings that a program is still writing.

A program may pause between the parts of a save, or keep the file open for good.
"""
SCAN_SHARE = 100
"""Timed scans of very full folders take at most a hundredth of the time."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of a tick: the most seconds until the next, and whether nothing is left to do.

    `waiting` has a sentence for each thing that waits. `settling`: it is not certain yet whether a
    note is there. `away`: the vault is not there.
    """

    again_in_s: float
    idle: bool
    waiting: tuple[str, ...] = ()
    settling: bool = False
    away: bool = False


class Loop:
    """The daemon between ticks.

    All of its state can be rebuilt from the vault and the journal.
    """

    def __init__(
        self,
        ports: Ports,
        vault: Vault,
        owner: Owner,
        ring: Callable[[], None],
        say: Callable[[str], None],
        tell: Callable[[Case | Hold], None],
        reload: Callable[[Ports], tuple[Ports, float | None]],
        draft: Draft,
        run_mission: RunMission,
        start: Callable[[threading.Thread], None] = threading.Thread.start,
        *,
        team: Workers | None = None,
    ) -> None:
        """Build the parts.

        `ring` wakes the loop. `say` writes to the daemon's log. `tell` is called with each case
        that entered a new state and with each hold. `reload` returns the ports with the current
        configuration, and in how many seconds to look again. `draft` and `run_mission` do the work
        in threads that `start` starts. With a `team` its workers do it, and the two functions wait
        for them.
        """
        self.reload = reload
        self.stopping = False
        self.scan_cost_s = 0.0
        self.away = False
        self.config_since_s = ports.clock.monotonic()
        clock = ports.clock
        self.threads = Threads(clock, ring, start)
        self.state = state = LoopState(ports, vault, self.threads, say, tell)
        self.intake = state.intake
        self.decider = Decider(state, SideNotes(vault, ports.journal, clock, say))
        self.dispatch = Dispatch(state, self.decider, owner, draft, run_mission, team)
        self.branches = BranchWatch(clock, say, ring)
        self.reports = ReportDecisions(ring)

    @property
    def ports(self) -> Ports:
        """The ports with the current configuration."""
        return self.state.ports

    @property
    def cases(self) -> OpenCases:
        """The cases in memory."""
        return self.state.cases

    def load(self) -> None:
        """Load cases, unperformed commands and leases from the journal."""
        state, cases = self.state, self.state.cases
        with self.ports.journal.read() as reader:
            cases.load(reader)
            state.outbox.load(reader.pending_commands())
            self.decider.notices.written = {row.path: row.digest for row in reader.seen()}
            working = [case for case in cases.values() if case.is_working]
            state.waits.load(reader, working)
            last = reader.last_of(Action.DAEMON_STARTED, Action.DAEMON_STOPPED, trace_id="")
            ended_well = (
                last is not None
                and last.action_type == Action.DAEMON_STOPPED
                and last.details.get("orderly", False)
            )
            abandoned = [
                case for case in working if ended_well and self._is_ours(reader, case.trace_id)
            ]
            asked = [one for one in reader.asked() if self._is_ours(reader, one[0])]
        # in any state: a case may have been decided before the daemon died
        for trace, attempt in asked:
            if (record := self._record(cases[trace], attempt)) is not None:
                with suppress(BodyDamaged):  # it ends the work when that is resumed
                    count_unseen(record)
        # a worker that did not return in time was abandoned, and did not crash
        for case in abandoned:
            if (record := self._record(case, case.generation)) is not None:
                record.end_run()

    def _is_ours(self, reader: Reader, trace_id: str) -> bool:
        """Return whether this daemon works on a case itself, not a worker."""
        return self.dispatch.team is None and not is_with_worker(reader, trace_id)

    def tick(self) -> Tick:
        """Collect results, scan, read notes, decide, record and perform, start work."""
        state, clock = self.state, self.ports.clock
        self.dispatch.collect_results()
        state.perform()  # first, so that the look shows the effect
        began_s, tick_began_s = clock.monotonic(), clock.boottime()
        scan = state.vault.scan(QUEUES)
        self.scan_cost_s = clock.monotonic() - began_s
        self._say_if_away(scan.present)
        if self.away:
            interval_s = self.ports.config.daemon.scan_interval_s
            return Tick(interval_s, idle=False, waiting=("the vault is not there",), away=True)
        config_in_s = self._reload()
        pending_in_s = self._look(scan)
        judges = self._judges(config_in_s)
        if judges and (self.read_intents() or state.dirty):
            state.dirty = False
            self.decider.decide(scan.side_notes)
            state.perform()
        self.dispatch.heartbeat()
        self._settle_branches()
        state.dirty |= state.waits.lift(self.threads.jobs, state.cases.values())
        if not self.stopping:
            self.reports.look(state)
            self.branches.look(lambda: open_branches(state))
            if judges and not self.ports.config.daemon.paused:
                self.dispatch.start_work()
        if state.unmarked:
            state.unmarked = False
            mark_end(self.ports.journal, self.ports.worktrees.parent / MARK, state.vault)
        again = (self.intake.again_in_s(), config_in_s, pending_in_s)
        soonest_s = min((s for s in again if s is not None), default=None)
        return self._next(soonest_s, tick_began_s, judges=judges)

    def _say_if_away(self, present: bool) -> None:
        if self.away == (not present):
            return
        self.away = not present
        where = show(str(self.state.vault.root))
        self.state.say(
            f"The vault {where} is not there. placet waits for it."
            if self.away
            else f"The vault {where} is there again."
        )

    def _look(self, scan: Scan) -> float | None:
        """Read what a scan found; return in how many seconds to look again."""
        state, intake = self.state, self.intake
        expected = {
            path
            for case in state.cases.values()
            for path in (case.places if case.state in OPEN else (case.request_path,))
            if path
        }
        pending_in_s = intake.look(scan, expected)
        state.dirty |= intake.changed or any(not intake.left_s(path) for path in intake.unfinished)
        return pending_in_s

    def _settle_branches(self) -> None:
        """Record the fate of branches."""
        if not (looked := self.branches.take()):
            return
        self.read_intents()  # a command records who did it only after the git operation
        for found in looked:
            settle(self.state, found)
        explain_drops(self.state, self.branches.reports)

    def stop(self, grace_s: float) -> None:
        """Stop cleanly: running rounds get `grace_s` seconds.

        The next start resumes what is not finished.
        """
        self.stopping = True
        self.ports.leaving.set()
        self.threads.leave(grace_s)
        self.dispatch.collect_results()
        self.state.perform()

    def _record(self, case: Case, attempt: int) -> Record | None:
        """Return the record of a conversation, None if it is damaged.

        Resuming the work reports the damage.
        """
        with suppress(BodyDamaged):
            return Record.load(self.ports.journal, case, attempt, self.ports.clock)
        return None

    def read_intents(self) -> bool:
        """Read the intents that commands left; return whether any is to be performed."""
        state, mailbox = self.state, self.state.intents

        def answered(ids: Collection[str]) -> Collection[str]:
            with state.ports.journal.ask() as reader:
                return reader.answers(ids).keys()

        found = mailbox.look(answered)
        if found.replaced:
            refuse(state, "A later command replaced this one.", *found.replaced)
        for one in found.unknown:
            refuse(state, "Restart the daemon: it is older than this command.", one)
        return bool(mailbox.waiting)

    def _reload(self) -> float | None:
        """Apply a changed configuration, which may fix what work waits for.

        Return in how many seconds to look again, None if nothing is pending.
        """
        before = self.ports.config
        self.state.ports, again_in_s = self.reload(self.ports)
        now = self.ports.config
        self.intake.quiet_s = now.vault.quiet_s
        if (now.model, now.limits) != (before.model, before.limits):
            self.state.dirty = True  # plans may be for another model
            self.state.waits.try_now()
            self.state.waits.try_again(WaitReason.ROOM)
        self.state.dirty |= now.approval != before.approval
        if now.vault != before.vault:
            self.state.dirty |= self.state.waits.forget(WaitReason.HISTORY)
        return again_in_s

    def _judges(self, config_in_s: float | None) -> bool:
        """Return whether this tick may decide and start work.

        Not while somebody writes the settings, for at most CONFIG_WAIT_S: the new ones must apply.
        """
        now_s = self.ports.clock.monotonic()
        self.config_since_s = now_s if config_in_s is None else self.config_since_s
        return config_in_s is None or now_s - self.config_since_s > CONFIG_WAIT_S

    def _next(self, settle_in_s: float | None, began_s: float, *, judges: bool) -> Tick:
        state = self.state
        continues = judges and (state.dirty or state.intents.more)
        at_rest = not (
            settle_in_s is not None
            or self.threads.jobs
            or state.outbox.pending
            or self.branches.asks
            or self.reports.is_busy
        )
        drafts = {case.trace_id for case in self._drafting() if self.intake.is_draft(case)}
        waiting = state.waits.postponed.keys() | drafts
        working = [
            case
            for case in state.cases.values()
            if case.is_working and case.trace_id not in waiting
        ]
        unjudged = [c for c in working if at_rest and not self.decider.is_judged(c)]
        can_start = len(working) > len(unjudged) and not self.ports.config.daemon.paused
        return Tick(
            0.0 if continues else self._sleep_s(settle_in_s, began_s),
            at_rest and not (continues or state.intents.waiting or can_start),
            self._waiting_for(unjudged),
            settling=settle_in_s is not None,
        )

    def _drafting(self) -> list[Case]:
        return [case for case in self.state.cases.values() if case.acting in DRAFTING]

    def _sleep_s(self, settle_in_s: float | None, began_s: float) -> float:
        """Return the most seconds until the next tick, while nothing is due at once."""
        state = self.state
        interval_s = max(self.ports.config.daemon.scan_interval_s, self.scan_cost_s * SCAN_SHARE)
        sleeps_s = [interval_s, *state.outbox.waits_s(), *state.waits.left_s(began_s)]
        written = [*self.intake.unfinished, *(case.request_path for case in self._drafting())]
        written += [c.asking.path for c in state.cases.values() if c.asking is not None]
        sleeps_s += [left_s for path in written if (left_s := self.intake.left_s(path))]
        sleeps_s += [settle_in_s] if settle_in_s is not None else []
        sleeps_s += [HEARTBEAT_S] if self.threads.jobs else []
        return max(0.0, min(sleeps_s))

    def _waiting_for(self, unjudged: Collection[Case]) -> tuple[str, ...]:
        """Return a sentence for each thing that waits; `unjudged` cases wait for their plan."""
        state = self.state
        hold = state.waits.holding()
        return (
            *([f"all work waits for the model: {hold.notice}"] if hold is not None else ()),
            *(f"{state.cases[t].request_id}: {why}" for t, why in state.waits.sentences().items()),
            *(command.error for command in state.outbox.pending if command.error),
            *(
                f"{case.request_id}: its mission waits until {show(case.plan.path)} can be read, "
                "and no other note has the same plan"
                for case in unjudged
            ),
        )
