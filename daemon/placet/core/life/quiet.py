"""The rest of a request: its text has been the same for a while, or it was put there in whole.

Pure. Editors save every few seconds; a plan for each of these texts would be a waste. What counts
is the text without the stamped keys, so the daemon's own stamps disturb nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from placet.case.case import NoteSeen
from placet.case.settle import Fingerprint

_KEPT_S = 60.0  # for a missing note: a rename may be seen as gone first


class _Text(NamedTuple):
    trace_id: str
    digest: str
    since_s: float
    seen_s: float


@dataclass(slots=True)
class Quiet:
    """Since when each request says what it says, from look to look.

    Times in seconds, monotonic but for `wall_s`.
    """

    _texts: dict[str, _Text] = field(default_factory=dict)
    _moved: set[str] = field(default_factory=set)

    def look(
        self,
        requests: Iterable[NoteSeen],
        present: Mapping[str, Fingerprint],
        moved: Collection[str],
        now_s: float,
        wall_s: float,
    ) -> None:
        """Take in the requests as they were read, and what the folders hold.

        `moved` are paths that were seen to be moved into place since the last look. Where nobody
        saw it, a file that was moved shows that its name is younger than its content (ctime and
        mtime). That holds for the first look at a request only: many editors save by moving a new
        file into place.
        """
        self._moved = {
            path for path in self._moved.union(moved) if path in present or path in moved
        }
        gone = {path: text for path, text in self._texts.items() if path not in present}
        left = {text.digest: text for text in gone.values()} | {
            text.trace_id: text for text in gone.values() if text.trace_id
        }
        for note in requests:
            mark = present.get(note.path)
            if mark is None:
                continue
            before = self._texts.get(note.path) or left.get(note.trace_id) or left.get(note.digest)
            if before is not None:
                since_s = before.since_s if before.digest == note.digest else now_s
            elif note.path in self._moved or mark.ctime_ns > mark.mtime_ns:
                since_s = float("-inf")
            else:
                since_s = now_s - max(0.0, wall_s - mark.mtime_ns / 1e9)
            self._moved.discard(note.path)
            self._texts[note.path] = _Text(note.trace_id, note.digest, since_s, now_s)
        for path, text in gone.items():
            if now_s - text.seen_s > _KEPT_S:
                del self._texts[path]

    def end(self, note: NoteSeen, now_s: float) -> None:
        """Let a request with this text be planned at once: whoever wrote it has said all."""
        self._texts[note.path] = _Text(note.trace_id, note.digest, float("-inf"), now_s)

    def left_s(self, path: str, now_s: float, quiet_s: float) -> float:
        """Return for how long the request at `path` has to stay as it is until it is planned.

        0 where it need not.
        """
        text = self._texts.get(path)
        return 0.0 if text is None else max(0.0, text.since_s + quiet_s - now_s)
