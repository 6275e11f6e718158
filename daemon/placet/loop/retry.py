"""Decide when waiting work is retried.

One case may wait (a server's Retry-After, a full disk), or all work for the model (a hold).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from placet.activity import Action
from placet.agent.record import Postponed
from placet.case.case import Case
from placet.case.waiting import Hold, WaitReason, wait_text
from placet.host.clock import Clock
from placet.journal.reader import Reader
from placet.journal.writer import JournalAccess
from placet.loop.rows import of_case, of_daemon
from placet.wording import rfc3339

_LONGEST_WAIT_S = 60.0
_SOON_S = 60.0
"""An attempt that fails within this time made no progress. One reply takes about as long."""


@dataclass(slots=True)
class WorkWaits:
    """The current waits."""

    journal: JournalAccess
    clock: Clock
    say: Callable[[str], None]
    """Writes to the daemon's log."""
    tell: Callable[[Hold], None]
    """Called with a hold, once for all cases that wait for it."""
    longest_rest_s: float
    """The most that a wait lasts which an earlier daemon recorded."""
    postponed: dict[str, tuple[float, Postponed]] = field(default_factory=dict)
    """By trace_id until when, in seconds of `boottime`, and why."""
    hold: Hold | None = None
    """Stops all work."""
    _tried: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By trace_id the end and the length of the last wait for the machine, in seconds."""
    _said: tuple[WaitReason, str, int] | None = None
    """The last message about one case, and the journal's newest event then."""

    def load(self, reader: Reader, working: Iterable[Case]) -> None:
        """Load the waits of an earlier daemon.

        A server's Retry-After holds over a restart. Anything else is retried at once.
        """
        now = self.clock.boottime()
        row = reader.last_of(Action.MODEL_WAITING, Action.MODEL_RESUMED, trace_id="")
        if row is not None and row.action_type == Action.MODEL_WAITING:
            self.hold = Hold(WaitReason(row.details["why"]), row.details["reason"], now)
        for case in working:
            row = reader.last_of(Action.MODEL_WAITING, Action.MODEL_CALLED, trace_id=case.trace_id)
            if row is not None and row.action_type == Action.MODEL_WAITING:
                left_s = (
                    datetime.fromisoformat(row.details["until"]) - self.clock.wall()
                ).total_seconds()
                # the clock may have been wrong when this was recorded
                left_s = min(left_s, self.longest_rest_s)
                self.postponed[case.trace_id] = (
                    now + left_s,
                    Postponed(row.details["reason"], left_s, WaitReason(row.details["why"])),
                )

    def postpone(self, case: Case, why: Postponed) -> None:
        """Let a case's work wait, or all work."""
        why = self._with_backoff(case, why)
        until = self.clock.boottime() + why.after_s
        facts = {
            "why": why.why.value,
            "reason": why.reason,
            "until": rfc3339(self.clock.wall() + timedelta(seconds=why.after_s)),
        }
        if not why.why.holds_all:
            self.postponed[case.trace_id] = until, why
            # a hold is reported once, not for each case and each try
            if not self._is_repeated(why):
                self.say(f"{case.request_id}: {wait_text(why.why, why.reason, why.after_s)}")
            if why.why is WaitReason.ASKED_TO_WAIT:
                self.journal.commit([of_case(self.clock, case, Action.MODEL_WAITING, **facts)])
            return
        before, self.hold = self.hold, Hold(why.why, why.reason, until)
        is_known = before is not None and before.why is why.why
        # the text of other reasons changes with each attempt
        is_told = is_known and (
            why.why is not WaitReason.BLOCKED
            or (before is not None and before.reason == why.reason)
        )
        if not is_told:
            self.journal.commit([of_daemon(self.clock, Action.MODEL_WAITING, **facts)])
            what = "" if why.why is WaitReason.DAY else "All work waits for the model: "
            self.say(f"{what}{self.hold.notice}")
        if not is_known:
            self.tell(self.hold)

    def _with_backoff(self, case: Case, why: Postponed) -> Postponed:
        """Return a wait for the machine, twice as long as the last one if that made no difference.

        Each try writes to the journal, and a full disk has little room for that.
        """
        if why.why is not WaitReason.MACHINE:
            return why
        now = self.clock.boottime()
        until, last_s = self._tried.get(case.trace_id, (float("-inf"), 0.0))
        after_s = why.after_s
        if now - until < _SOON_S:
            after_s = max(after_s, min(2 * last_s, _LONGEST_WAIT_S))
        self._tried[case.trace_id] = now + after_s, after_s
        return Postponed(why.reason, after_s, why.why)

    def _is_repeated(self, why: Postponed) -> bool:
        """Return whether this wait was the last one reported, and remember it.

        It was not if a model has answered since.
        """
        same = self._said is not None and self._said[:2] == (why.why, why.reason)
        with self.journal.read() as reader:
            if same and self._said is not None and not reader.calls.answered_since(self._said[2]):
                return True
            self._said = why.why, why.reason, reader.last()[0]
        return False

    def end_wait(self, trace_id: str, why: WaitReason) -> bool:
        """Forget a case's wait for something that exists now; return whether there was one."""
        _, waits = self.postponed.get(trace_id, (0.0, None))
        if waits is None or waits.why is not why:
            return False
        del self.postponed[trace_id]
        return True

    def forget(self, why: WaitReason) -> bool:
        """Forget all waits, because their cause may be gone; return whether there was one.

        If it is not, the next try reports it again.
        """
        return bool([trace for trace in tuple(self.postponed) if self.end_wait(trace, why)])

    def try_now(self) -> None:
        """Let the next case retry at once: the problem may be fixed."""
        if self.hold is not None:
            self.hold = replace(self.hold, until_s=self.clock.boottime())

    def try_again(self, why: WaitReason) -> None:
        """Let all work that waits for this retry at once."""
        now = self.clock.boottime()
        self.postponed = {
            trace: (now, one) if one.why is why else (until, one)
            for trace, (until, one) in self.postponed.items()
        }

    def may_start(self, due: Sequence[Case], needs_no_model: Callable[[Case], bool]) -> list[Case]:
        """Return those of `due` that need not wait; the first is the first to start.

        A hold stops all but plans of literal steps, and the one case that probes the model when it
        is time.
        """
        now = self.clock.boottime()
        due = [case for case in due if self.postponed.get(case.trace_id, (now, None))[0] <= now]
        if self.hold is None:
            return due
        probe = None
        if self.hold.probe is None and now >= self.hold.until_s:
            probe = next((case for case in due if not needs_no_model(case)), None)
        if probe is not None:
            with self.journal.ask() as reader:
                self.hold = replace(self.hold, probe=(probe.trace_id, reader.last()[0]))
        return [case for case in due if case is probe or needs_no_model(case)]

    def lift(self, jobs: Collection[str], cases: Iterable[Case]) -> bool:
        """End the hold once the probing case got an answer; return whether it ended.

        It also ends if none of `cases` waits. `jobs` are the trace ids of running work.
        """
        if self.hold is None:
            return False
        if self.hold.probe is not None:
            trace, newest = self.hold.probe
            with self.journal.ask() as reader:
                answered = reader.calls.answered_since(newest)
            if not answered:
                if trace not in jobs:  # it ended without an answer, so another case probes
                    self.hold = replace(self.hold, probe=None)
                return False
        elif any(case.is_working for case in cases):
            return False
        self.hold = None
        self.journal.commit([of_daemon(self.clock, Action.MODEL_RESUMED)])
        self.say("The model answers again. Work continues.")
        return True

    def holding(self) -> Hold | None:
        """Return the hold while it stops all work, None while one case may probe."""
        if (
            self.hold is None
            or self.hold.probe is not None
            or self.clock.boottime() >= self.hold.until_s
        ):
            return None
        return self.hold

    def sentences(self) -> dict[str, str]:
        """Return by trace_id a sentence about each case whose work waits."""
        return {
            trace: wait_text(why.why, why.reason, why.after_s)
            for trace, (_, why) in self.postponed.items()
        }

    def left_s(self, began_s: float) -> list[float]:
        """Return the seconds until each wait ends.

        Work that was due when the tick began (`began_s`) and did not start waits for something
        else.
        """
        now = self.clock.boottime()
        left = [until - now for until, _ in self.postponed.values() if until > began_s]
        held = self.holding()
        return left if held is None else [*left, held.until_s - now]
