"""Decide when a file counts as written, and when it counts as gone.

Pure. Each look at the folders goes in, with its time and what the kernel says about writers; out
comes what may be acted upon. Two equal looks do not mean that the writer is done: programs pause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

WRITTEN_S = 2.0
"""Seconds without a change after which a file counts as written, if the kernel knows all writers.

They cover a program that closes the file between two parts of one save.
"""
UNKNOWN_S = 5.0
"""The same where the kernel does not know: the file may be open. Programs pause for up to 3 s."""
MISSING_S = 5.0
"""Seconds after which a missing file counts as gone.

Sync tools delete a file and create it again, as editors do; seconds pass in between.
"""
OPEN_POLL_S = 0.5
"""Seconds until the next look at a file that a program has open. Closing it may send no event."""
_OWN_S = 60.0  # how long a file of placet's own is known by its content until a look finds it


class Writers(Enum):
    """Who has a file open for writing, as far as the kernel knows."""

    NONE = "nobody"
    SOME = "somebody"
    UNKNOWN = "no answer"


class Origin(Enum):
    """How a file got its name and its text."""

    WRITTEN = "written here"
    MOVED_IN = "written under another name that placet does not watch"
    KNOWN = "written before, here or elsewhere in the vault"


class Fingerprint(NamedTuple):
    """The attributes of a file that change with it.

    Times alone miss `cp -p`, sync tools and exchanged files.
    """

    dev: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @property
    def content(self) -> Content:
        """The part that a rename keeps."""
        return self[:4]

    @property
    def was_moved(self) -> bool:
        """Whether its name is younger than its content: it was written under another name."""
        return self.ctime_ns > self.mtime_ns


Content = tuple[int, int, int, int]


class Seen(NamedTuple):
    """What the looks have shown of a file.

    `since_s` is the first look with this fingerprint, `writers` the last answer of the kernel.
    `is_whole` says that the file stayed unchanged for long enough.
    """

    fingerprint: Fingerprint
    since_s: float
    origin: Origin
    writers: Writers
    is_whole: bool = False

    def left_s(self, now_s: float) -> float:
        """Return the seconds until a look can tell more, 0 for a written file."""
        if self.is_whole:
            return 0.0
        if self.writers is Writers.SOME:
            return OPEN_POLL_S
        return max(0.0, self.since_s + wait_s(self.origin, self.writers) - now_s)


class Missing(NamedTuple):
    """A file that is not there: since when, and what was there last."""

    since_s: float
    last: Seen | None


@dataclass(frozen=True, slots=True)
class FileHistory:
    """The accumulated looks. Start with `FileHistory()`; each SettleVerdict has the next.

    `own` are files that placet wrote and no look has found yet, with the time of writing.
    """

    seen: Mapping[str, Seen] = field(default_factory=dict)
    missing: Mapping[str, Missing] = field(default_factory=dict)
    own: Mapping[Content, float] = field(default_factory=dict)

    def to_ask(self, present: Mapping[str, Fingerprint], now_s: float) -> list[str]:
        """Return the paths whose writers this look must ask the kernel for."""
        return [
            path
            for path, fingerprint in present.items()
            if (seen := self.seen.get(path)) is None
            or seen.fingerprint != fingerprint
            or not (seen.is_whole or (seen.writers is Writers.NONE and seen.left_s(now_s)))
        ]

    def whole(self) -> set[Content]:
        """Return the files that are known to be written, by what a rename keeps."""
        return {one.fingerprint.content for one in self._known() if one.is_whole} | self.own.keys()

    def unfinished(self) -> set[tuple[int, int]]:
        """Return the files that are known and were still being written: device and inode."""
        return {one.fingerprint.content[:2] for one in self._known() if not one.is_whole}

    def _known(self) -> Iterator[Seen]:
        yield from self.seen.values()
        yield from (gone.last for gone in self.missing.values() if gone.last is not None)


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


def wait_s(origin: Origin, writers: Writers) -> float:
    """Return for how many seconds a file must stay unchanged to count as written.

    No program is known to have it open. A file that was moved in is complete. The kernel must
    confirm that, unless placet knows it.
    """
    if origin is Origin.KNOWN or (origin is Origin.MOVED_IN and writers is Writers.NONE):
        return 0.0
    return WRITTEN_S if writers is Writers.NONE else UNKNOWN_S


def look(
    earlier: FileHistory,
    present: Mapping[str, Fingerprint],
    now_s: float,
    *,
    answers: Mapping[str, Writers],
    own: Collection[Content] = (),
    expected: Collection[str] = (),
    unlisted: Collection[str] = (),
    wall_s: float | None = None,
) -> SettleVerdict:
    """Weigh a look at the folders against the earlier ones.

    `now_s` is monotonic, in seconds. `answers` are the kernel's for the paths of
    `FileHistory.to_ask`. `own` are files that placet wrote since the last look. `expected` are the
    paths of open cases. One that was deleted between two looks counts as gone while it is expected.
    `unlisted` are folders that this look could not list: what is below them is neither settled nor
    gone. `wall_s` is given for the first look of a process: a file that is older needs no wait.
    """
    ours = {file: at_s for file, at_s in earlier.own.items() if now_s - at_s < _OWN_S}
    earlier = FileHistory(earlier.seen, earlier.missing, ours | dict.fromkeys(own, now_s))
    known = (earlier.whole(), earlier.unfinished()) if answers else (set(), set())
    seen: dict[str, Seen] = {}
    for path, found in present.items():
        before = earlier.seen.get(path)
        if before is None or before.fingerprint != found:
            since_s = now_s
            if before is None and wall_s is not None:
                since_s -= max(0.0, wall_s - found.ctime_ns / 1e9)
            before = Seen(found, since_s, _origin(earlier, path, found, *known), Writers.UNKNOWN)
        if not before.is_whole:  # a look has thousands of files, and few change
            before = before._replace(writers=answers.get(path, before.writers))
            before = before._replace(is_whole=not before.left_s(now_s))
        seen[path] = before
    pending = [one.left_s(now_s) for one in seen.values() if not one.is_whole]
    below = tuple(f"{folder}/" for folder in unlisted)
    wanted = frozenset(expected)
    missing: dict[str, Missing] = {}
    gone: set[str] = set()
    for path in (earlier.seen.keys() | earlier.missing.keys() | wanted) - seen.keys():
        last = earlier.seen.get(path)
        if path.startswith(below):
            if last is not None:
                seen[path] = last
            continue
        away = earlier.missing.get(path, Missing(now_s, last))
        if now_s - away.since_s >= MISSING_S:
            gone.add(path)
        else:
            pending.append(away.since_s + MISSING_S - now_s)
        if path not in gone or path in wanted:
            missing[path] = away
    found_now = {one.fingerprint.content for one in seen.values()} if earlier.own else set()
    left = {file: at_s for file, at_s in earlier.own.items() if file not in found_now}
    return SettleVerdict(
        FileHistory(seen, missing, left),
        settled=frozenset(path for path in present if seen[path].is_whole),
        gone=frozenset(gone),
        again_in_s=min(pending, default=None),
    )


def _origin(
    earlier: FileHistory,
    path: str,
    found: Fingerprint,
    whole: Set[Content],
    unfinished: Set[tuple[int, int]],
) -> Origin:
    before = earlier.seen.get(path)
    if found.content in whole:
        # an edit can keep size and time
        is_edit = before is not None and before.fingerprint.content == found.content
        return Origin.WRITTEN if is_edit else Origin.KNOWN
    is_new = before is None and path not in earlier.missing  # else the rename is how editors save
    is_moved = is_new and found.was_moved and found.content[:2] not in unfinished
    return Origin.MOVED_IN if is_moved else Origin.WRITTEN
