"""The settling of files: written to the end, or really gone.

Pure. Each look at the folders goes in, with its time; out comes what may be acted upon. A file has
settled when two looks at least SETTLE_S apart show the same fingerprint, or when a hint said that
it was closed after writing or renamed into place and a look then shows it (once in AGAIN_S). A file
is gone when it was missing for SETTLE_S: an atomic save, seen by looking, may be a deletion and a
creation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

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


AGAIN_S = 2.0
"""Seconds in which hints let a file through once.

A file that is saved ten times a second is read when it rests, or this often.
"""


class Seen(NamedTuple):
    """A file as the looks so far have shown it.

    `since_s` is the first look with this fingerprint, `let_s` when the file was last let through,
    -inf if it never was.
    """

    fingerprint: Fingerprint
    since_s: float
    settled: bool
    let_s: float


@dataclass(frozen=True, slots=True)
class Looks:
    """The accumulated looks. Start with `Looks()`; each SettleVerdict has the next."""

    seen: Mapping[str, Seen] = field(default_factory=dict)
    missing: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettleVerdict:
    """The result of one look.

    `settled`: every path that is there and may be acted upon. `fresh`: those of them that settled
    in this very look or were hinted again; read them anew even if the fingerprint is known, because
    two saves within one tick of the file system's clock can share one. `gone`: paths that were
    missing long enough. `again_in_s`: seconds until the next look can say more; None when nothing
    is pending.
    """

    looks: Looks
    settled: frozenset[str]
    fresh: frozenset[str]
    gone: frozenset[str]
    again_in_s: float | None


def look(
    earlier: Looks,
    present: Mapping[str, Fingerprint],
    now_s: float,
    *,
    hinted: Collection[str] = (),
    expected: Collection[str] = (),
    unlisted: Collection[str] = (),
) -> SettleVerdict:
    """Weigh a look at the folders against the earlier ones.

    `now_s` is the monotonic time of this look, in seconds. `hinted` are paths that were closed
    after writing or moved into place since the last look. `expected` are paths that should be there
    (the ledger's): one that was deleted while nobody looked is gone too, and stays gone as long as
    it is expected. `unlisted` are folders that this look could not list: what was known below them
    stays as it was, neither settled now nor gone.
    """
    hints = frozenset(hinted)
    below = tuple(f"{folder}/" for folder in unlisted)
    seen: dict[str, Seen] = {}
    fresh: set[str] = set()
    pending: list[float] = []
    for path, fingerprint in present.items():
        before = earlier.seen.get(path)
        same = before is not None and before.fingerprint == fingerprint
        since_s = before.since_s if before is not None and same else now_s
        was_settled = before is not None and same and before.settled
        let_s = before.let_s if before is not None else float("-inf")
        # The hint may be of the save before: many programs empty a file, and then write it.
        hinted_now = path in hints and now_s - let_s >= AGAIN_S and fingerprint.size > 0
        settled = was_settled or now_s - since_s >= SETTLE_S or hinted_now
        if settled and (not was_settled or path in hints):
            fresh.add(path)
            let_s = let_s if was_settled else now_s
        if not settled:
            pending.append(since_s)
        seen[path] = Seen(fingerprint, since_s, settled, let_s)
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
        Looks(seen, missing),
        settled=frozenset(path for path in present if seen[path].settled),
        fresh=frozenset(fresh),
        gone=frozenset(gone),
        again_in_s=max(0.0, min(pending) + SETTLE_S - now_s) if pending else None,
    )
