"""The content of the vault's folders: notes that were read, and uncertain ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from math import inf
from pathlib import PurePosixPath

from placet.case.case import NoteSeen
from placet.case.notes import look_at, trace_of
from placet.case.settle import SETTLE_S, FileHistory, look
from placet.disk.confine import EntryKind
from placet.disk.errors import Gone, NotAFile, NotSettled, TooLarge, Unreadable, VaultTrouble
from placet.disk.scan import FolderProblem, Found, Scan
from placet.disk.vault import Vault
from placet.host.clock import Clock
from placet.note.paths import QUEUES, Folder, conflict_of
from placet.plan.differences import diff_callout
from placet.plan.limits import MAX_NOTE_CHARACTERS

# how long a new file that is still being written may be a note that is missing elsewhere: a move is
# over by then
YOUNG_S = 5.0
# looks in which a file is unread until it counts as one that never rests: looks may be seconds
# apart
RESTLESS_LOOKS = 5
# how long such a file among the plans holds approvals back: it may be another plan of the same case
SECOND_PLAN_S = 60.0
READ_AGAIN_S = 5.0  # retry interval of a note that could not be read


@dataclass(frozen=True, slots=True)
class View:
    """The news of one look at the folders.

    `changed`: something was read, or went away. `unread`: paths whose present text was not read
    yet; `unsure`: those of which what is known may be out of date, for it is missing or not listed,
    or has changed and not settled. `again_in_s`: seconds until the next look can say more; None
    when nothing is pending.
    """

    changed: bool
    unread: frozenset[str]
    unsure: frozenset[str]
    again_in_s: float | None


@dataclass(slots=True)
class Intake:
    """The content of the folders, from look to look.

    `notes` are those that were read and `odd` is what can be no note, with why. `is_certain` says
    that no file may be a note that is missed, `all_plans_read` that none where plans lie may be a
    second plan. `say` is for the daemon's own log.
    """

    vault: Vault
    clock: Clock
    say: Callable[[str], None]
    notes: dict[str, NoteSeen] = field(default_factory=dict)
    odd: dict[str, str] = field(default_factory=dict)
    is_certain: bool = False
    all_plans_read: bool = False
    # since when, and in how many looks, one was not read
    _restless: dict[str, tuple[float, int]] = field(default_factory=dict)
    # which file it was that was read last
    _read_as: dict[str, tuple[int, int]] = field(default_factory=dict)
    _looks: FileHistory = field(default_factory=FileHistory)
    # places without a file, of which a certain look says so
    _empty: frozenset[str] = frozenset()
    # files that never rested, and when `absent` can say more
    _written: frozenset[str] = frozenset()
    _again_at_s: float = inf
    _to_read: set[str] = field(default_factory=set)
    # what could not be read, and when it is tried again
    _read_again: dict[str, float] = field(default_factory=dict)
    _unlisted: set[FolderProblem] = field(default_factory=set)
    # folders below the queues that cannot be listed, and why
    _shut: dict[str, str] = field(default_factory=dict)

    def look(self, scan: Scan, expected: Collection[str]) -> View:
        """Take in a scan, and read what is new in it; `expected` are notes that should be there."""
        found = scan.found
        verdict = look(
            self._looks,
            {p: f.fingerprint for p, f in found.items()},
            self.clock.monotonic(),
            expected=expected,
            unlisted=[p.path for p in scan.problems],
        )
        self._looks = verdict.looks
        unlisted = verdict.looks.seen.keys() - found.keys()
        changed = self._read(found, verdict.fresh, verdict.settled, unlisted)
        shut = {
            p.path: f"What lies in this folder is not seen: {p.why}."
            for p in scan.problems
            if p.path not in QUEUES
        }
        changed |= shut != self._shut
        self._shut = shut
        unread = found.keys() - (verdict.settled & (self.notes.keys() | self.odd.keys()))
        self._note_restless(found, unread)
        plans = {path for path in unread if not path.startswith(f"{Folder.REQUESTS}/")}
        young, second = (
            any(self._is_young(path, found[path], verdict.settled, most_s) for path in some)
            for some, most_s in ((unread, YOUNG_S), (plans, SECOND_PLAN_S))
        )
        was_certain, all_were_read = self.is_certain, self.all_plans_read
        self.is_certain = self._all_listed(scan.problems) and not young
        self.all_plans_read = not second
        changed |= self.is_certain and not was_certain
        changed |= self.all_plans_read and not all_were_read
        if self.clock.monotonic() >= self._again_at_s:
            changed, self._again_at_s = True, inf
        empty = verdict.gone if self.is_certain else frozenset()
        changed |= bool(empty - self._empty)
        self._empty = empty
        self._written = frozenset(p for p in unread if self._read_as.get(p) != _file(found[p]))
        changed |= self._forget(verdict.looks)
        unsure = (
            (frozenset(verdict.looks.missing) - empty) | (found.keys() - verdict.settled) | unlisted
        )
        waits = [] if verdict.again_in_s is None else [verdict.again_in_s]
        if self._to_read:
            waits.append(SETTLE_S)
        return View(changed, frozenset(unread), frozenset(unsure), min(waits, default=None))

    def _forget(self, looks: FileHistory) -> bool:
        """Forget the notes that are gone; return whether there were any."""
        known = (self.notes.keys() | self.odd.keys()) - looks.seen.keys()
        gone = [path for path in known if path in self._empty or path not in looks.missing]
        for path in gone:
            self.notes.pop(path, None)
            self.odd.pop(path, None)
            self._read_as.pop(path, None)
        return bool(gone)

    def absent(self, trace_id: str, path: str, *, asks: bool = False) -> bool:
        """Return whether a case's note is gone from its place; `asks` if it asks a person.

        Nothing else decides that. It is false unless every folder was listed, no file may be the
        note, and for SETTLE_S the place was empty or had another note.
        """
        now_s = self.clock.monotonic()
        other, seen = self.notes.get(path), self._looks.seen.get(path)
        if other is None or seen is None:
            is_left, since_s = path in self._empty, -inf
        else:
            # another note was moved over it, which may be one of the same case
            of_other_sort = other.is_plan if asks else other.asks
            is_left = of_other_sort or other.trace_id not in ("", trace_id)
            since_s = seen.since_s
        if not (self.is_certain and is_left):
            return False
        if now_s - since_s < SETTLE_S:
            self._again_at_s = min(self._again_at_s, since_s + SETTLE_S)
            return False
        if any(self._may_be(trace_id, path) for path in self._written):
            self._again_at_s = min(self._again_at_s, now_s + SETTLE_S)
            return False
        return True

    def _may_be(self, trace_id: str, path: str) -> bool:
        """Return whether a file that never rested may be a note of this case, as it is now."""
        try:
            raw, _ = self.vault.read(path)
        except (Gone, NotSettled):
            return True
        except (NotAFile, TooLarge, VaultTrouble):
            return False
        return not raw or trace_of(raw) == trace_id

    def again_in_s(self) -> list[float]:
        """Return the seconds until `absent` can say more, if it can."""
        left_s = self._again_at_s - self.clock.monotonic()
        return [] if left_s == inf else [max(0.0, left_s)]

    def _note_restless(self, found: Mapping[str, Found], unread: Set[str]) -> None:
        """Remember since when each file has not both rested and been read."""
        now, seen = self.clock.monotonic(), self._looks.seen
        for path in unread:
            since_s, looks = self._restless.get(path, (now, 0))
            self._restless[path] = since_s, looks + 1
        for path in [
            path
            for path in self._restless
            if path not in found or (path not in unread and now - seen[path].since_s >= SETTLE_S)
        ]:
            del self._restless[path]

    def _is_young(self, path: str, thing: Found, settled: Set[str], young_s: float) -> bool:
        """Return whether a file with an unread text may be any note, a missing or a second one.

        A file that came just now may be it, and so may one that a later look reads. A file that
        was read and is being written is not, nor is one that does not rest for `young_s`.
        """
        never_read = self._read_as.get(path) != _file(thing)
        since_s, looks = self._restless[path]
        return path in settled or (
            never_read and (self.clock.monotonic() - since_s < young_s or looks < RESTLESS_LOOKS)
        )

    def is_no_note(self, path: str) -> bool:
        """Return whether something that is no note is at this path, as a folder.

        A note that cannot be read now does not count.
        """
        return path in self.odd and path not in self._read_again

    def notices(self) -> dict[str, str]:
        """Return by path why things in the notes' places are no notes.

        Folders that are not looked into are given too, with the reason.
        """
        return self._shut | {path: why + self._difference(path) for path, why in self.odd.items()}

    def _all_listed(self, problems: Iterable[FolderProblem]) -> bool:
        """Return whether all folders could be listed; those that could not are reported once."""
        unlisted = {p for p in problems if p.path in QUEUES}
        for problem in unlisted - self._unlisted:
            self.say(
                f"{problem.path} cannot be listed: {problem.why}. Until it can, nothing counts as "
                "taken away."
            )
        self._unlisted = unlisted
        return not unlisted

    def _read(
        self,
        found: Mapping[str, Found],
        fresh: frozenset[str],
        settled: frozenset[str],
        unlisted: Set[str],
    ) -> bool:
        """Read the notes that are new or changed.

        Return whether there were any.
        """
        now = self.clock.monotonic()
        due = {path for path, at in self._read_again.items() if at <= now}
        for path in due | fresh:
            self.notes.pop(path, None)
            self.odd.pop(path, None)
            self._read_again.pop(path, None)
        self._to_read = (self._to_read | fresh | due) & (settled | unlisted)
        there = sorted(self._to_read & settled)
        for path in there:
            self._to_read.discard(path)
            self._read_one(path, found[path])
        return bool(there)

    def _read_one(self, path: str, thing: Found) -> None:
        if thing.kind is not EntryKind.FILE:
            self.odd[path] = _ODD[thing.kind]
            return
        if (original := conflict_of(PurePosixPath(path).name)) is not None:
            self.odd[path] = (
                f"This is a conflict copy of `{original}`, made by a sync tool. It is no request "
                "and approves nothing. Compare the two, put what you want to keep into one, and "
                "delete the other."
            )
            return
        try:
            raw, read = self.vault.read(path)
            if (read.size, read.mtime_ns) == (thing.fingerprint.size, thing.fingerprint.mtime_ns):
                self.notes[path] = look_at(path, raw, self.vault.owner(path))
                self._read_as[path] = _file(thing)
            else:  # it is being written: what was read may be half of it, and has not settled
                self._to_read.add(path)
        except (Gone, NotSettled):
            self._to_read.add(path)  # its folder may be back at the next look
        except TooLarge:
            self.odd[path] = (
                f"This file is too large for a note. A request may have {MAX_NOTE_CHARACTERS:,} "
                "characters."
            )
        except NotAFile as error:
            self.odd[path] = f"This file cannot be read: {error}"
        except VaultTrouble as error:
            self.odd[path] = f"This file cannot be read: {error}"
            self._read_again[path] = self.clock.monotonic() + READ_AGAIN_S

    def _difference(self, copy: str) -> str:
        """Return how a conflict copy differs from its original as it is now.

        Empty where one of them cannot be read.
        """
        place = PurePosixPath(copy)
        original = self.notes.get(f"{place.parent}/{conflict_of(place.name)}")
        if original is None:
            return ""
        try:
            old, new = (
                raw.decode(errors="replace") for raw in (original.raw, self.vault.read(copy)[0])
            )
        except Unreadable:
            return ""
        return "\n" + diff_callout(old, new) if old != new else "\nBoth have the same text."


def _file(thing: Found) -> tuple[int, int]:
    """Return which file it is, whatever is written into it."""
    return thing.fingerprint.dev, thing.fingerprint.ino


_ODD = {
    EntryKind.SYMLINK: "This is a symbolic link. Links are not followed: put the note itself here.",
    EntryKind.DIRECTORY: "This is a folder whose name ends in `.md`. Rename it, or put the note "
    "itself here.",
    EntryKind.OTHER: "This is neither a file nor a folder that can be read, so it is no note.",
}
