"""Run the daemon: tick until a signal stops it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from placet.disk.files import is_missing
from placet.disk.watch import Watcher
from placet.errors import UserError
from placet.host.lock import MarkerLock, VaultTaken
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

It must stay well below WatchdogSec in systemd/placet@.service.
"""


@dataclass(slots=True)
class Daemon:
    """A started daemon: it holds the lock, the journal is open, the watcher runs."""

    vault: Path
    journal: Journal
    watcher: Watcher
    loop: Loop
    say: Callable[[str], None]
    notify: Callable[[str], None]
    ending: Ending
    marker: MarkerLock

    def run(self) -> None:
        """Work until `ending` is set."""
        self.notify("READY=1")
        while not self.ending.is_set():
            self._expect_journal()
            tick = self._tick()
            self.notify(f"WATCHDOG=1\nSTATUS={self._status(tick)}")
            if not self.watcher.wait(min(tick.again_in_s, MAX_WAIT_S)):
                self.watcher.check()
        self._end()

    def _tick(self) -> Tick:
        """Tick once.

        Raises UserError, after it stopped all work, once another daemon has the vault.
        """
        try:
            self.marker.renew()
            return self.loop.tick()
        except (ClaimedElsewhere, VaultTaken):
            self._end()
            raise

    def _expect_journal(self) -> None:
        """Stop all work and raise UserError if the journal was deleted."""
        path = self.journal.path
        if address_of(path) or not is_missing(path):
            return
        self.journal.stop_waiting()
        with suppress(JournalPaused, UserError):
            self._end()
        raise UserError(
            f"The journal {path} was deleted, so placet stopped.",
            "Restore it from a backup. Or start placet again: it creates a new journal.",
        )

    def _end(self) -> None:
        self.notify("STOPPING=1")
        grace_s = self.loop.ports.config.daemon.stop_grace_s
        if self.loop.threads.jobs:
            self.say(
                f"Stopping. Running work has {grace_s:.0f} s to reach a safe point. "
                "Press Ctrl-C again to stop now."
            )
        self.loop.stop(grace_s)

    def run_once(self) -> Tick:
        """Work until only things that need you are left; return the last tick.

        Its `waiting` says what could not be done. Requests are planned without waiting `quiet_s`.
        If the vault disappears, this waits for it while work runs, and AWAY_S longer.
        """
        here_at = time.monotonic()
        self.loop.intake.no_wait = True
        while True:
            tick = self._tick()
            if self.ending.is_set():
                self._end()
                return replace(tick, waiting=("it was stopped before that", *tick.waiting))
            if tick.idle:
                return tick
            if not tick.away or self.loop.threads.jobs:
                here_at = time.monotonic()
            elif time.monotonic() - here_at > AWAY_S:
                return tick
            if tick.waiting and not (
                self.loop.threads.jobs or self.loop.state.dirty or tick.settling
            ):
                return tick
            self.watcher.wait(min(tick.again_in_s, MAX_WAIT_S))

    def _status(self, tick: Tick) -> str:
        if tick.waiting:
            return tick.waiting[0].splitlines()[0][:200]
        running = len(self.loop.threads.jobs)
        return f"{running} running" if running else "waiting for requests and decisions"


class Ending(threading.Event):
    """An event that stops the daemon."""

    _ring: Callable[[], None] = staticmethod(lambda: None)

    def set(self) -> None:
        """Ask the daemon to stop."""
        super().set()
        self._ring()

    def rings(self, ring: Callable[[], None]) -> None:
        """Call `ring` when the event is set, in any thread; call it now if it is set already.

        There is one such function: a second call replaces the first.
        """
        self._ring = ring
        if self.is_set():
            ring()


@contextmanager
def journal_pause_as_user_error() -> Iterator[None]:
    """Turn JournalPaused, raised while the daemon stops, into UserError."""
    try:
        yield
    except JournalPaused as error:
        raise UserError(
            f"Stopped while the journal could not be written: {error}.",
            "The next start repeats what was not written.",
        ) from error


@contextmanager
def signal_handlers() -> Iterator[Ending]:
    """Give an event that SIGTERM, SIGINT and SIGHUP set.

    SIGHUP means that the terminal was closed; under nohup(1) it stays ignored. A second signal
    that comes at least AGAIN_S after the first exits at once, with 128 + its number: a disk or a
    database may not answer. That is as safe as SIGKILL.
    """
    ending = Ending()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # A Python handler can deadlock: it may interrupt the code that holds the event's lock. It also
    # does not wake a wait that is about to start. A thread that reads the wakeup pipe has neither
    # problem.
    listener = threading.Thread(target=_listen, args=(reading, ending, numbers), daemon=True)
    listener.start()
    previous_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda _number, _frame: None) for number in numbers}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_fd)
        os.close(writing)
        listener.join()
        os.close(reading)


AGAIN_S = 1.0
"""A closed terminal, its shell, and timeout(1) send two signals at the same moment."""


def _listen(reading: int, ending: Ending, numbers: Collection[int]) -> None:
    """Set the event when one of these signals comes, until the pipe is closed."""
    first_at = float("inf")
    while number := os.read(reading, 1):
        if number[0] not in numbers:
            continue
        now = time.monotonic()
        if now - first_at > AGAIN_S:
            os._exit(128 + number[0])
        first_at = min(first_at, now)
        ending.set()
