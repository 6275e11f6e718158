"""`Cancel`: the one way to tell work that runs in another thread to stop."""

from __future__ import annotations

from placet.errors import End, Interrupted, Stop


class Cancel:
    """An order to stop, set by one thread and looked at by others; it is never taken back.

    With a reason, a person ended the work. Without one it stays as it is recorded and is taken up
    again later.
    """

    __slots__ = ("_is_set", "reason")

    def __init__(self) -> None:
        self.reason = ""
        self._is_set = False

    def set(self, reason: str = "") -> None:
        """Order to stop; an order without a reason leaves an earlier reason as it is."""
        self.reason = reason or self.reason
        self._is_set = True

    def is_set(self) -> bool:
        """Return whether the order was given."""
        return self._is_set

    def must_leave(self) -> bool:
        """Return whether everything is to be left at once.

        The order was given then, and not by a person.
        """
        return self._is_set and not self.reason

    def check(self) -> None:
        """Raise an error once the order to stop was given.

        Raises Stop(stopped_by_person) after one with a reason, Interrupted after one without.
        """
        if self.reason:
            raise self.stop()
        if self._is_set:
            raise Interrupted("the work was told to stop")

    def stop(self) -> Stop:
        """Return the end of a mission that a person stopped."""
        return Stop(End.STOPPED_BY_PERSON, f"a person stopped the mission: {self.reason}")
