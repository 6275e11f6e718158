"""Stop work that runs in another thread."""

from __future__ import annotations

from placet.errors import End, Interrupted, Stop


class Cancel:
    """A cancel flag that one thread sets and others poll; it is never cleared.

    With a reason, you stopped the mission. Without one, the work stays as recorded and resumes
    later. It is also set while one of `others` is.
    """

    __slots__ = ("_is_set", "_others", "reason")

    def __init__(self, *others: Cancel) -> None:
        self.reason = ""
        self._is_set = False
        self._others = others

    def set(self, reason: str = "") -> None:
        """Cancel. Without a reason, an earlier reason stays."""
        self.reason = reason or self.reason
        self._is_set = True

    def is_set(self) -> bool:
        """Return whether it was cancelled."""
        return self._is_set or any(other.is_set() for other in self._others)

    def must_leave(self) -> bool:
        """Return whether the work must stop at once: it was cancelled without a reason."""
        return self.is_set() and not self.reason

    def check(self) -> None:
        """Raise Stop(stopped_by_person) if cancelled with a reason, Interrupted if without one."""
        if self.reason:
            raise self.stop()
        if self.is_set():
            raise Interrupted("the work was interrupted")

    def stop(self) -> Stop:
        """Return the end of a mission that you stopped."""
        return Stop(End.STOPPED_BY_PERSON, self.reason)
