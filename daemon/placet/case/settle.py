"""Decide when a file counts as written, and when it counts as gone.

Pure. Each look at the folders goes in, with its time; out comes what may be acted upon. A file has
settled when two looks at least SETTLE_S apart show the same fingerprint. It is gone when it was
missing for SETTLE_S: an atomic save, seen by looking, may be a deletion and a creation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from placet.case.case import NoteSeen

SETTLE_S = 0.25
"""Seconds without a change after which a file counts as written.

They are longer than the pauses inside one save.
"""


class Fingerprint(NamedTuple):
    """The attributes of a file that change with it.

    Times alone miss `cp -p`, sync tools and exchanged files.
    """

    dev: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int


class Seen(NamedTuple):
    """A file as the looks so far have shown it.

    `since_s` is the first look with this fingerprint.
    """

    fingerprint: Fingerprint
    since_s: float


@dataclass(frozen=True, slots=True)
class FileHistory:
    """The accumulated looks. Start with `FileHistory()`; each SettleVerdict has the next."""

    seen: Mapping[str, Seen] = field(default_factory=dict)
    missing: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettleVerdict:
    """The result of one look.

    `settled`: every path that is there and may be acted upon. `gone`: paths that were missing long
    enough. `again_in_s`: seconds until the next look can say more; None when nothing is pending.
    """

    looks: FileHistory
    settled: frozenset[str]
    gone: frozenset[str]
    again_in_s: float | None


def look(
    earlier: FileHistory,
    present: Mapping[str, Fingerprint],
    now_s: float,
    *,
    expected: Collection[str] = (),
    unlisted: Collection[str] = (),
) -> SettleVerdict:
    """Weigh a look at the folders against the earlier ones.

    `now_s` is the monotonic time of this look, in seconds. `expected` are the paths of open cases,
    which should be there. One that was deleted between two looks counts as gone for as long as it
    is expected. `unlisted` are folders that this look could not list: what is known below them
    stays unchanged, neither settled nor gone.
    """
    below = tuple(f"{folder}/" for folder in unlisted)
    seen: dict[str, Seen] = {}
    settled: set[str] = set()
    pending: list[float] = []
    for path, fingerprint in present.items():
        before = earlier.seen.get(path)
        same = before is not None and before.fingerprint == fingerprint
        since_s = before.since_s if before is not None and same else now_s
        if now_s - since_s >= SETTLE_S:
            settled.add(path)
        else:
            pending.append(since_s)
        seen[path] = Seen(fingerprint, since_s)
    missing: dict[str, float] = {}
    gone: set[str] = set()
    wanted = frozenset(expected)
    for path in (earlier.seen.keys() | earlier.missing.keys() | wanted) - seen.keys():
        if path.startswith(below):
            if path in earlier.seen:
                seen[path] = earlier.seen[path]
            continue
        since_s = earlier.missing.get(path, now_s)
        if now_s - since_s >= SETTLE_S:
            gone.add(path)
        else:
            pending.append(since_s)
        if path not in gone or path in wanted:
            missing[path] = since_s
    return SettleVerdict(
        FileHistory(seen, missing),
        settled=frozenset(settled),
        gone=frozenset(gone),
        again_in_s=max(0.0, min(pending) + SETTLE_S - now_s) if pending else None,
    )


# Decide when a request is finished: unchanged for `quiet_s`, or moved in complete.
#
# Pure. Editors save every few seconds; a plan for each of these texts would be a waste. What counts
# is the text without the stamped keys, so the daemon's own stamps disturb nothing.

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
            elif mark.ctime_ns > mark.mtime_ns:
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
