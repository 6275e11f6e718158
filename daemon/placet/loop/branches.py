"""The watch over branches: git is asked, in a thread of its own, what people did with them, soon after the files of one changed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from placet.core.errors import mistake
from placet.core.life.case import Branch
from placet.host.clock import Clock
from placet.repo.afterwards import Looked, Memory, look_at_branches, may_have_moved

GLANCE_EVERY_S = 2.0
"""How often the files of references are looked at."""
LOOK_EVERY_S = 60.0
"""How often git is asked whatever the files say, where branches are open: two processes a repository while nothing moved."""


@dataclass(slots=True)
class BranchWatch:
    """`say` is for the daemon's own log, `ring` ends the loop's wait when a look is done.

    `thread` looks, or glances, just now.
    """

    clock: Clock
    say: Callable[[str], None]
    ring: Callable[[], None]
    thread: threading.Thread | None = None
    asks: bool = False  # whether git is being asked, and an answer will come
    _known: dict[Path, Memory] = field(default_factory=dict)
    _problems: dict[Path, str] = field(default_factory=dict)
    _looked: queue.SimpleQueue[tuple[Looked, ...]] = field(default_factory=queue.SimpleQueue)
    _looked_at: float = float("-inf")
    _glanced_at: float = float("-inf")

    def take(self) -> list[Looked]:
        """Return what was found since the last time, and say what could not be seen."""
        found: list[Looked] = []
        while not self._looked.empty():
            found += self._looked.get()
            self.thread, self.asks = None, False
        for one in found:
            if one.problem and one.problem != self._problems.get(one.path):
                self.say(f"what became of branches cannot be seen: {one.problem}")
            self._known[one.path], self._problems[one.path] = one.memory, one.problem
        return found

    def look(self, branches: Callable[[], Mapping[Path, Sequence[Branch]]]) -> None:
        """Begin a look at `branches`, by repository, if it is time for one.

        Else a glance at whether there is reason for one.
        """
        now = self.clock.monotonic()
        if self.thread is not None or now - self._glanced_at < GLANCE_EVERY_S:
            return
        self._glanced_at = now
        if whole := now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
        asked = branches()
        if not asked:
            return
        known = {path: self._known.get(path, Memory()) for path in asked}

        def look() -> None:
            found: list[Looked] = []
            for path, opens in asked.items():
                if (whole and opens) or may_have_moved(opens, known[path]):
                    self.asks = True
                    try:
                        found.append(look_at_branches(path, opens, known[path]))
                    except Exception as error:
                        found.append(
                            Looked(path, Memory.without_answer(opens), problem=mistake(error))
                        )
            self._looked.put(tuple(found))
            if self.asks:
                self.ring()

        self.asks = any(
            (whole and opens) or known[path].seen is None for path, opens in asked.items()
        )
        thread = threading.Thread(target=look, name="branches", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # as for a worker; the next time is soon enough
            self.asks = False
            self.say(f"what became of branches cannot be looked at: {error}")
        else:
            self.thread = thread
