"""Provide clocks: the wall clock for people, two others for waiting. Tests pass their own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from placet.wording import rfc3339


def wall() -> datetime:
    """Return the present moment, in UTC."""
    return datetime.now(UTC)


def boottime_s() -> float:
    """Return the seconds since boot, time asleep included, whatever the wall clock does.

    macOS has no CLOCK_BOOTTIME; there CLOCK_MONOTONIC counts time asleep (clock_gettime(3)).
    """
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC)
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Clock:
    """The clocks of a part: `monotonic` and `boottime` are in seconds from an arbitrary start.

    `boottime` counts time asleep, for waits that last minutes or days. `monotonic` does not on
    Linux, for what the machine has to be awake for.
    """

    wall: Callable[[], datetime] = wall
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    boottime: Callable[[], float] = boottime_s

    def now(self) -> str:
        """Return the present moment as notes and journal write it."""
        return rfc3339(self.wall())

    def wait(self, seconds: float, cancelled: Callable[[], bool]) -> bool:
        """Wait, checking `cancelled` four times a second; return False if it was cancelled."""
        until = self.monotonic() + seconds
        while not cancelled():
            left = until - self.monotonic()
            if left <= 0:
                return True
            self.sleep(min(left, 0.25))
        return False
