"""The watch over branches: from time to time git is asked, in a thread of its own, what people did with them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from placet.aftermath import Looked, Memory, Open, look_at_branches
from placet.clock import Clock
from placet.core.errors import mistake

BRANCHES_EVERY_S = 60.0
"""How often git is asked: one process a repository while nothing has moved there."""


@dataclass(slots=True)
class BranchWatch:
    """`say` is for the daemon's own log, `ring` ends the loop's wait when a look is done; `thread` looks just now."""

    clock: Clock
    say: Callable[[str], None]
    ring: Callable[[], None]
    thread: threading.Thread | None = None
    _known: dict[Path, Memory] = field(default_factory=dict)
    _problems: dict[Path, str] = field(default_factory=dict)
    _looked: queue.SimpleQueue[tuple[Looked, ...]] = field(default_factory=queue.SimpleQueue)
    _looked_at: float = float("-inf")

    def take(self) -> list[Looked]:
        """Return what was found since the last time, and say what could not be seen."""
        found: list[Looked] = []
        while not self._looked.empty():
            found += self._looked.get()
            self.thread = None
        for one in found:
            if one.problem and one.problem != self._problems.get(one.path):
                self.say(f"what became of branches cannot be seen: {one.problem}")
            self._known[one.path], self._problems[one.path] = one.memory, one.problem
        return found

    def look(self, branches: Callable[[], Mapping[Path, Sequence[Open]]]) -> None:
        """Begin a look at `branches`, by repository, if it is time for one."""
        now = self.clock.monotonic()
        if self.thread is not None or now - self._looked_at < BRANCHES_EVERY_S:
            return
        self._looked_at = now
        asked = branches()
        if not asked:
            return
        known = {path: self._known.get(path, Memory()) for path in asked}

        def look() -> None:
            try:
                self._looked.put(tuple(look_at_branches(path, opens, known[path]) for path, opens in asked.items()))
            except Exception as error:
                self._looked.put(())
                self.say(f"{mistake(error)}, as it looked at branches")
            self.ring()

        thread = threading.Thread(target=look, name="branches", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # as for a worker; the next time is soon enough
            self.say(f"what became of branches cannot be looked at: {error}")
        else:
            self.thread = thread
