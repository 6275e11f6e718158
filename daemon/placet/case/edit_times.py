"""Decide when a request is finished: unchanged for `quiet_s`, or moved in complete.

Pure. Editors save every few seconds; a plan for each of these texts would be a waste. What counts
is the text without the stamped keys, so the daemon's own stamps disturb nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
class EditTimes:
    """When each request's text last changed.

    Times in seconds, monotonic but for `wall_s`.
    """

    _texts: dict[str, _Text] = field(default_factory=dict)

    def look(
        self,
        requests: Iterable[NoteSeen],
        present: Mapping[str, Fingerprint],
        now_s: float,
        wall_s: float,
    ) -> None:
        """Take in the requests as they were read, and what the folders hold.

        The name of a file that was moved is younger than its content (ctime and mtime). That counts
        in the first look at a request only: many editors save by moving a new file into place.
        """
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
            elif mark.was_moved:
                since_s = float("-inf")
            else:
                since_s = now_s - max(0.0, wall_s - mark.mtime_ns / 1e9)
            self._texts[note.path] = _Text(note.trace_id, note.digest, since_s, now_s)
        for path, text in gone.items():
            if now_s - text.seen_s > _KEPT_S:
                del self._texts[path]

    def end(self, note: NoteSeen, now_s: float) -> None:
        """Mark a request's text as finished, so that it is planned at once."""
        self._texts[note.path] = _Text(note.trace_id, note.digest, float("-inf"), now_s)

    def left_s(self, path: str, now_s: float, quiet_s: float) -> float:
        """Return for how many seconds a request must still stay unchanged, or 0."""
        text = self._texts.get(path)
        return 0.0 if text is None else max(0.0, text.since_s + quiet_s - now_s)
