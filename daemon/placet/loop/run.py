"""The running daemon: it ticks until it is told to end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from placet.disk.watch import Watcher
from placet.errors import UserError
from placet.journal.database import address_of
from placet.journal.writer import Journal
from placet.journal.writes import JournalPaused
from placet.loop.claim import ClaimedElsewhere
from placet.loop.tick import Loop, Tick

AWAY_S = 5.0
"""Longest wait of `run --once` for a vault that went away.

A sync tool may be putting its marker back.
"""
MAX_WAIT_S = 10.0
"""Longest wait between two ticks.

It is well below the service manager's watchdog (WatchdogSec in systemd/placet@.service).
"""


@dataclass(slots=True)
class Daemon:
    """A daemon that holds its vault: lock, journal, bell and loop are up."""

    vault: Path
    journal: Journal
    bell: Watcher
    loop: Loop
    say: Callable[[str], None]
    notify: Callable[[str], None]
    ending: Ending

    def run(self) -> None:
        """Work until `ending` is set."""
        self.notify("READY=1")
        while not self.ending.is_set():
            self._expect_journal()
            tick = self._tick()
            self.notify(f"WATCHDOG=1\nSTATUS={self._status(tick)}")
            if not self.bell.wait(min(tick.again_in_s, MAX_WAIT_S)):
                self.bell.check()
        self._end()

    def _tick(self) -> Tick:
        """Tick; raises ClaimedElsewhere, all work ended, once another machine has the vault."""
        try:
            return self.loop.tick()
        except ClaimedElsewhere:
            self._end()
            raise

    def _expect_journal(self) -> None:
        """Raise UserError, all work ended, if somebody deleted the journal: nothing can go on."""
        path = self.journal.path
        if address_of(path) or path.exists():
            return
        self.journal.stop_waiting()
        with suppress(JournalPaused, UserError):
            self._end()
        raise UserError(
            f"The journal {path} is not there any more, so placet stopped.",
            "Put it back from a backup. Or start placet again: it begins a new journal.",
        )

    def _end(self) -> None:
        self.notify("STOPPING=1")
        grace_s = self.loop.ports.config.daemon.stop_grace_s
        if self.loop.threads.jobs:
            once_more = "Ctrl-C once more ends it at once."
            self.say(f"Ending: work gets {grace_s:.0f} s to come to a safe point. {once_more}")
        self.loop.stop(grace_s)

    def run_once(self) -> Tick:
        """Work until nothing is left to do that needs no person.

        Return the last tick, which says what waits. Requests are planned at once, as whoever starts
        it wants the work done now. It waits for a vault that went away as long as work is under
        way, and AWAY_S more.
        """
        here_at = time.monotonic()
        self.loop.drafts.no_wait = True
        while True:
            tick = self._tick()
            if self.ending.is_set():
                self._end()
                return replace(tick, waiting=("it was told to end before that", *tick.waiting))
            if tick.idle:
                return tick
            if not tick.away or self.loop.threads.jobs:
                here_at = time.monotonic()
            elif time.monotonic() - here_at > AWAY_S:
                return tick
            if tick.waiting and not (
                self.loop.threads.jobs or self.loop.book.dirty or tick.settling
            ):
                return tick
            self.bell.wait(min(tick.again_in_s, MAX_WAIT_S))

    def _status(self, tick: Tick) -> str:
        if tick.waiting:
            return tick.waiting[0].splitlines()[0][:200]
        running = len(self.loop.threads.jobs)
        return f"{running} at work" if running else "waiting for requests and decisions"


class Ending(threading.Event):
    """An event that ends the daemon."""

    _ring: Callable[[], None] = staticmethod(lambda: None)

    def set(self) -> None:
        """Order the end."""
        super().set()
        self._ring()

    def rings(self, ring: Callable[[], None]) -> None:
        """Call `ring`, and only that, when it is set, in any thread; now if it is."""
        self._ring = ring
        if self.is_set():
            ring()


@contextmanager
def journal_pause_as_user_error() -> Iterator[None]:
    """Raise UserError for a journal that could not be written when the daemon was to end."""
    try:
        yield
    except JournalPaused as error:
        raise UserError(
            f"Ended while the journal could not be written: {error}.",
            "Nothing is lost: what was not written is done by the next start.",
        ) from error


@contextmanager
def signal_handlers() -> Iterator[Ending]:
    """Give an event that SIGTERM, SIGINT and SIGHUP set, for a start-up and what follows.

    SIGHUP says that the terminal was closed; under nohup(1) it stays ignored. A signal that comes
    AGAIN_S after another ends the process at once, with 128 + its number: for who waits for a disk
    or a database that does not answer. That is as good as SIGKILL, and the next start goes on.
    """
    ending = Ending()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    heard, tell = os.pipe()
    os.set_blocking(tell, False)
    # A handler runs in the middle of anything: within itself, where it would wait for its own lock,
    # and right before a wait, which it does not end. A thread hears of a signal at any time.
    listener = threading.Thread(target=_listen, args=(heard, ending, numbers), daemon=True)
    listener.start()
    told_before = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda _number, _frame: None) for number in numbers}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(told_before)
        os.close(tell)
        listener.join()
        os.close(heard)


AGAIN_S = 1.0
"""A closed terminal, its shell, and timeout(1) send two signals in one moment."""


def _listen(heard: int, ending: Ending, numbers: Collection[int]) -> None:
    """Set the event when one of these signals comes, until no more can be heard."""
    first_at = float("inf")
    while said := os.read(heard, 1):
        if said[0] not in numbers:
            continue
        now = time.monotonic()
        if now - first_at > AGAIN_S:
            os._exit(128 + said[0])
        first_at = min(first_at, now)
        ending.set()
