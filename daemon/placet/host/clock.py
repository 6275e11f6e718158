"""Provide clocks: the wall clock for people, a monotonic one for waiting. Tests pass others."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from placet.errors import rfc3339


def wall() -> datetime:
    """Return the present moment, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Clock:
    """The clocks of a part. `monotonic` is in seconds from an arbitrary start."""

    wall: Callable[[], datetime] = wall
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

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
