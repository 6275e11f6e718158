"""Read the notes in the vault's folders, and say which are uncertain."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import PurePosixPath

from placet.agent.instruction_notes import agent_notes
from placet.case.case import Case, NoteSeen
from placet.case.edit_times import EditTimes
from placet.case.notes import DRAFT, inspect_note, trace_of
from placet.case.settle import MISSING_S, FileHistory, Fingerprint, SettleVerdict, Writers, look
from placet.case.sorting import CaseNotes
from placet.disk.errors import Gone, NotAFile, NotSettled, TooLarge, Unreadable, VaultTrouble
from placet.disk.handles import EntryKind
from placet.disk.scan import FolderProblem, Found, Scan, fingerprint
from placet.disk.vault import Vault
from placet.host.clock import Clock
from placet.note.frontmatter import read_note
from placet.note.paths import PROMPT_PATH, QUEUES, Folder, conflict_of
from placet.plan.differences import diff_callout
from placet.plan.limits import MAX_NOTE_CHARACTERS

# A new file that is still being written may be a note that is missing elsewhere. After this time it
# is not: a move has finished by then.
YOUNG_S = 5.0
# after so many looks an unread file counts as restless; looks may be seconds apart
RESTLESS_LOOKS = 5
# how long a restless or empty file counts as any note: a second plan, or one that is missing
RESTLESS_S = 60.0
READ_AGAIN_S = 5.0  # retry interval of a note that could not be read
_FENCE_BYTES = 3  # a cut fence looks like text
AGAIN_S = 0.25  # interval of looks while a changing file may be a note that is missing
OPEN_S = 10.0  # how long a program may keep a note open before that is said
_OPEN = (
    "A program has this file open and may still write it, so placet waits. Close it there, or end "
    "the program."
)


@dataclass(slots=True)
class Intake:
    """The content of the folders, from look to look.

    A request or an answer may be unfinished. It says so, or its text changed less than `quiet_s`
    ago.
    """

    vault: Vault
    clock: Clock
    say: Callable[[str], None]
    """Writes to the daemon's log."""
    notes: dict[str, NoteSeen] = field(default_factory=dict)
    """The notes that were read, by path."""
    odd: dict[str, str] = field(default_factory=dict)
    """By path, why other entries are not notes."""
    has_started: bool = False
    """Whether every file of the first look was read, except those that keep changing."""
    is_certain: bool = False
    """Whether no unread file can be a missing note."""
    all_plans_read: bool = False
    """Whether no file in a plan folder can be a second plan."""
    quiet_s: float = 0.0
    no_wait: bool = False
    """Whether not to wait for `quiet_s`."""
    drafts: dict[str, bool] = field(default_factory=dict)
    """By trace_id, whether the request was a draft when that was last certain."""
    unfinished: frozenset[str] = frozenset()
    """Requests that may be unfinished: not stamped, and their problems not reported yet."""
    unplanned: dict[str, str] = field(default_factory=dict)
    """By path, for this look, why nothing is planned from notes of known cases."""
    changed: bool = False
    """Whether the last look read a note, or found one gone."""
    unread: Set[str] = frozenset()
    """Paths whose present text was not read yet."""
    unsure: Set[str] = frozenset()
    """Paths whose known text may be out of date.

    The note is missing, was not listed, or changed and has not settled.
    """
    edit_times: EditTimes = field(default_factory=EditTimes)
    arrivals: dict[str, NoteSeen] = field(default_factory=dict)
    """New requests by path that were read before they settled. Their text has no effect yet."""
    _open: dict[str, float] = field(default_factory=dict)
    """Since when a file is open in a program."""
    _placeholders: dict[str, float] = field(default_factory=dict)
    """Notes that a sync tool replaced by placeholders, and since when."""
    _restless: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Since when a file is unread, and in how many looks."""
    _read_as: dict[str, Fingerprint] = field(default_factory=dict)
    """Fingerprint of the file that was read last."""
    _looks: FileHistory = field(default_factory=FileHistory)
    _prompts: FileHistory = field(default_factory=FileHistory)
    _empty: frozenset[str] = frozenset()
    """Places that a certain look found empty."""
    _written: frozenset[str] = frozenset()
    """Restless files."""
    _again_at_s: float = inf
    """When `absent` can say more."""
    _read_again: dict[str, float] = field(default_factory=dict)
    """Unreadable files, and when to retry."""
    _unlisted: set[FolderProblem] = field(default_factory=set)
    _shut: dict[str, str] = field(default_factory=dict)
    """Folders below the queues that cannot be listed, and why."""

    def look(self, scan: Scan, expected: Collection[str]) -> float | None:
        """Update from a scan, and read what is new; `expected` are notes that should be there.

        Return the seconds until the next look can tell more, None if nothing is pending.
        """
        found = scan.found
        verdict = self._settle(scan, expected)
        unlisted = verdict.looks.seen.keys() - found.keys()
        changed = self._read(found, verdict.settled)
        changed |= self._read_arrivals(found, verdict.settled)
        changed |= scan.placeholders != self._placeholders.keys()
        now_s = self.clock.monotonic()
        self._placeholders = {p: self._placeholders.get(p, now_s) for p in scan.placeholders}
        shut = {
            p.path: f"placet does not see the notes in this folder: {p.why}."
            for p in scan.problems
            if p.path not in QUEUES
        }
        changed |= shut != self._shut
        self._shut = shut
        unread = found.keys() - {p for p in verdict.settled if self._is_read(p, found[p])}
        self._note_restless(found, unread)
        self.has_started |= all(now_s - self._restless[p][0] >= YOUNG_S for p in unread)
        plans = {path for path in unread if not path.startswith(f"{Folder.REQUESTS}/")}
        young, second = (
            any(self._is_young(path, found[path], verdict.settled, most_s) for path in some)
            for some, most_s in ((unread, YOUNG_S), (plans, RESTLESS_S))
        )
        was_certain, all_were_read = self.is_certain, self.all_plans_read
        self.is_certain = self._all_listed(scan.problems) and not young
        self.all_plans_read = not second
        changed |= self.is_certain and not was_certain
        changed |= self.all_plans_read and not all_were_read
        if now_s >= self._again_at_s:
            changed, self._again_at_s = True, inf
        empty = verdict.gone if self.is_certain else frozenset()
        changed |= bool(empty - self._empty)
        self._empty = empty
        self._written = frozenset(p for p in unread if self._is_unknown(p, found[p]))
        changed |= self._forget(verdict.looks)
        self.changed, self.unread = changed, unread
        self.unsure = (
            (verdict.looks.missing.keys() - empty) | (found.keys() - verdict.settled) | unlisted
        )
        waits = [] if verdict.again_in_s is None else [verdict.again_in_s]
        if unread & verdict.settled:
            waits.append(AGAIN_S)
        if changed:
            written = (f"{Folder.REQUESTS}/", f"{Folder.QUESTIONS}/")
            self.edit_times.look(
                (
                    n
                    for n in (*self.notes.values(), *self.arrivals.values())
                    if n.path.startswith(written)
                ),
                {p: f.fingerprint for p, f in found.items() if p.startswith(written)},
                self.clock.monotonic(),
                self.clock.wall().timestamp(),
            )
        return min(waits, default=None)

    def _settle(self, scan: Scan, expected: Collection[str]) -> SettleVerdict:
        """Say which files of a scan are written; the kernel is asked about those that changed."""
        now_s = self.clock.monotonic()
        present = {path: thing.fingerprint for path, thing in scan.found.items()}
        verdict = look(
            self._looks,
            present,
            now_s,
            answers={path: self.vault.writers(path) for path in self._looks.to_ask(present, now_s)},
            own=self.vault.take_own(),
            expected=expected,
            unlisted=[p.path for p in scan.problems],
            wall_s=self.clock.wall().timestamp() if self._looks == FileHistory() else None,
        )
        self._looks = verdict.looks
        held = [p for p, seen in verdict.looks.seen.items() if seen.writers is Writers.SOME]
        self._open = {path: self._open.get(path, now_s) for path in held}
        for since_s in self._open.values():
            if now_s < since_s + OPEN_S:
                self.look_again(since_s + OPEN_S - now_s)
        return verdict

    def learn_drafts(self, shown: Mapping[str, CaseNotes], held: Collection[str]) -> None:
        """Remember which requests are drafts, of the cases `shown`; forget those not `held`."""
        self.drafts = {trace: was for trace, was in self.drafts.items() if trace in held} | {
            trace: its.request is not None and its.request.status == DRAFT
            for trace, its in shown.items()
        }

    def is_draft(self, case: Case) -> bool:
        """Return whether a case's request is a draft, or was not read since the start.

        A folder is not a draft.
        """
        path = case.request_path
        # a note that cannot be read now is still a note
        is_no_note = path in self.odd and path not in self._read_again
        return self.drafts.get(case.trace_id, bool(path) and not is_no_note)

    def left_s(self, path: str) -> float:
        """Return for how many seconds a request or an answer must stay unchanged to count."""
        now_s = self.clock.monotonic()
        seen = self._looks.seen.get(path)
        unsettled_s = 0.0 if seen is None else seen.left_s(now_s)
        quiet_s = 0.0 if self.no_wait else self.quiet_s
        return max(unsettled_s, self.edit_times.left_s(path, now_s, quiet_s))

    def _forget(self, looks: FileHistory) -> bool:
        """Forget notes that no longer exist; return whether there were any."""
        known = (self.notes.keys() | self.odd.keys()) - looks.seen.keys()
        missing = [path for path in known if path in self._empty or path not in looks.missing]
        for path in missing:
            self.notes.pop(path, None)
            self.odd.pop(path, None)
            self._read_as.pop(path, None)
        return bool(missing)

    def look_again(self, after_s: float = AGAIN_S) -> None:
        """Decide again after that time, even if nothing changed."""
        self._again_at_s = min(self._again_at_s, self.clock.monotonic() + after_s)

    def prompts_are_written(self) -> bool:
        """Return whether the notes with which conversations begin are complete.

        Those are `SYSTEM_PROMPT.md` and the agents' notes. If not, look again soon. A note that a
        program keeps open counts after OPEN_S without a change: an approval binds its text.
        """
        root, now_s = self.vault.root, self.clock.monotonic()
        present: dict[str, Fingerprint] = {}
        for place in (root / PROMPT_PATH, *agent_notes(root)):
            with suppress(OSError):
                present[place.relative_to(root).as_posix()] = fingerprint(place.stat())
        verdict = look(
            self._prompts,
            present,
            now_s,
            answers={p: self.vault.writers(p) for p in self._prompts.to_ask(present, now_s)},
            wall_s=self.clock.wall().timestamp(),
        )
        self._prompts = verdict.looks
        unread = [file for file in verdict.looks.seen.values() if not file.is_whole]
        if verdict.looks.missing or any(now_s - file.since_s < OPEN_S for file in unread):
            self.look_again(verdict.again_in_s or AGAIN_S)
            return False
        return True

    def is_missing(self, path: str) -> bool:
        """Return whether the last look did not find a file that was there, or should be."""
        return path in self._looks.missing

    def absent(self, trace_id: str, path: str, *, asks: bool = False) -> bool:
        """Return whether a case's note is gone from its place; `asks` if it is a question.

        Nothing else decides that. It is true only if every folder was listed, no other file can be
        the note, and the place was empty or held another note for MISSING_S. A placeholder of a
        sync tool, in its place or since then, may be the note, and for RESTLESS_S an empty file.
        """
        now_s = self.clock.monotonic()
        other, seen = self.notes.get(path), self._looks.seen.get(path)
        if other is None or seen is None:
            is_left, since_s = path in self._empty, -inf
        else:
            # Another note replaced it, perhaps one of the same case.
            of_other_sort = other.is_plan if asks else other.asks
            is_left = of_other_sort or other.trace_id not in ("", trace_id)
            since_s = seen.since_s
        if not (self.is_certain and is_left):
            return False
        if now_s - since_s < MISSING_S:
            self.look_again(since_s + MISSING_S - now_s)
            return False
        away = self._looks.missing.get(path)
        lost_s = now_s if away is None else away.since_s - MISSING_S
        if path in self._placeholders or any(at > lost_s for at in self._placeholders.values()):
            return False
        if now_s - lost_s < RESTLESS_S and self._has_empty_file(lost_s):
            self.look_again(lost_s + RESTLESS_S - now_s)
            return False
        return not self.is_being_written(trace_id)

    def _has_empty_file(self, since_s: float) -> bool:
        """Return whether a file that is empty came after `since_s`."""
        return any(
            not note.raw and path in self._looks.seen and self._looks.seen[path].since_s > since_s
            for path, note in self.notes.items()
        )

    def is_being_written(self, trace_id: str) -> bool:
        """Return whether a file that was never read can be a note of this case.

        One that keeps changing can be any note, but for no longer than RESTLESS_S.
        """
        now_s = self.clock.monotonic()
        written = [p for p in self._written if now_s - self._restless[p][0] < RESTLESS_S]
        if is_written := any(self._may_be(trace_id, path) for path in written):
            self.look_again()
        return is_written

    def _may_be(self, trace_id: str, path: str) -> bool:
        """Return whether a restless file can be a note of this case, by what it says now."""
        try:
            raw, _ = self.vault.read(path)
        except (Gone, NotSettled):
            return True
        except (NotAFile, TooLarge, VaultTrouble):
            return False
        is_cut = bool(read_note(raw).problem) and not trace_of(raw)
        return not raw or is_cut or trace_of(raw) == trace_id

    def again_in_s(self) -> float | None:
        """Return the seconds until `absent` can say more, if it can."""
        left_s = self._again_at_s - self.clock.monotonic()
        return None if left_s == inf else max(0.0, left_s)

    def _note_restless(self, found: Mapping[str, Found], unread: Set[str]) -> None:
        """Remember since when each file is either changing or unread."""
        now, seen = self.clock.monotonic(), self._looks.seen
        for path in unread:
            since_s, looks = self._restless.get(path, (now, 0))
            self._restless[path] = since_s, looks + 1
        for path in [
            path
            for path in self._restless
            if path not in found or (path not in unread and seen[path].is_whole)
        ]:
            del self._restless[path]

    def _is_young(self, path: str, thing: Found, settled: Set[str], young_s: float) -> bool:
        """Return whether an unread file can be any note, a missing one or a second one.

        A new file can be one, and so can a file that the next look reads. A file that was read
        before and is changing now cannot, nor one that keeps changing for longer than `young_s`.
        """
        never_read = self._is_unknown(path, thing) and path not in self.arrivals
        since_s, looks = self._restless[path]
        return path in settled or (
            never_read and (self.clock.monotonic() - since_s < young_s or looks < RESTLESS_LOOKS)
        )

    def notices(self) -> dict[str, str]:
        """Return by path why entries in the watched folders are not notes.

        Folders that placet does not list are included, each with the reason.
        """
        now_s = self.clock.monotonic()
        held = {path: _OPEN for path, at_s in self._open.items() if now_s - at_s >= OPEN_S}
        odd = {path: why + self._difference(path) for path, why in self.odd.items()}
        return self._shut | held | odd

    def _all_listed(self, problems: Iterable[FolderProblem]) -> bool:
        """Return whether all folders could be listed; each problem is logged once."""
        unlisted = {p for p in problems if p.path in QUEUES}
        for problem in unlisted - self._unlisted:
            self.say(
                f"{problem.path} cannot be listed: {problem.why}. Until it can, no note counts as "
                "removed."
            )
        self._unlisted = unlisted
        return not unlisted

    def _is_read(self, path: str, thing: Found) -> bool:
        """Return whether a file was read since it changed, or could not be and is tried later."""
        return path in self._read_again or self._read_as.get(path) == thing.fingerprint

    def _is_unknown(self, path: str, thing: Found) -> bool:
        """Return whether this file was never read, not even before an edit in place."""
        known, now = self._read_as.get(path), thing.fingerprint
        return known is None or (known.dev, known.ino) != (now.dev, now.ino)

    def _read(self, found: Mapping[str, Found], settled: Set[str]) -> bool:
        """Read the notes that are new or changed; return whether there were any."""
        now = self.clock.monotonic()
        self._read_again = {path: at for path, at in self._read_again.items() if at > now}
        unread = sorted(path for path in settled if not self._is_read(path, found[path]))
        for path in unread:
            self.notes.pop(path, None)
            self.odd.pop(path, None)
            if self._read_one(path, found[path]):
                self._read_as[path] = found[path].fingerprint
        return bool(unread)

    def _read_arrivals(self, found: Mapping[str, Found], settled: Set[str]) -> bool:
        """Read the new requests that have not settled; return whether there were any.

        One whose properties may be cut off is not among them: it may be a request of a known case.
        """
        self.arrivals = {p: n for p, n in self.arrivals.items() if p in found and p not in settled}
        before = len(self.arrivals)
        for path in (
            found.keys() - settled - self.notes.keys() - self.odd.keys() - self.arrivals.keys()
        ):
            is_request = path.startswith(f"{Folder.REQUESTS}/")
            if not is_request or conflict_of(PurePosixPath(path).name) is not None:
                continue
            with suppress(Unreadable):
                raw, read = self.vault.read(path)
                note = inspect_note(path, raw, self.vault.owner(path))
                if len(raw.strip()) > _FENCE_BYTES and not (
                    note.problem or note.trace_id or note.is_plan
                ):
                    self.arrivals[path] = replace(note, file=(read.dev, read.ino))
        return len(self.arrivals) > before

    def _read_one(self, path: str, thing: Found) -> bool:
        """Read a note; return whether it need not be read again until the file changes."""
        if thing.kind is not EntryKind.FILE:
            self.odd[path] = _ODD[thing.kind]
            return True
        if (original := conflict_of(PurePosixPath(path).name)) is not None:
            self.odd[path] = (
                f"This is a conflict copy of `{original}`, made by a sync tool. placet ignores it."
            )
            return True
        try:
            raw, read = self.vault.read(path)
            if (read.size, read.mtime_ns) != (thing.fingerprint.size, thing.fingerprint.mtime_ns):
                return False  # It changed while it was read, so the text may be incomplete.
            note = inspect_note(path, raw, self.vault.owner(path))
            self.notes[path] = replace(note, file=(read.dev, read.ino))
        except (Gone, NotSettled):
            return False  # the folder may be there again at the next look
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
            return False
        return True

    def _difference(self, copy: str) -> str:
        """Return what to do with a conflict copy, and how it differs from its original."""
        place = PurePosixPath(copy)
        if (name := conflict_of(place.name)) is None:
            return ""
        home = f"{place.parent}/{name}"
        if home not in self._looks.seen:
            return f" `{name}` is not here. To get its text back, rename this file to `{name}`."
        both = " Compare the two, put what you want to keep into one, and delete the other."
        if (original := self.notes.get(home)) is None:
            return both
        try:
            old, new = (
                raw.decode(errors="replace") for raw in (original.raw, self.vault.read(copy)[0])
            )
        except Unreadable:
            return both
        tail = diff_callout(old, new) if old != new else "Both have the same text."
        return f"{both}\n{tail}"


_ODD = {
    EntryKind.SYMLINK: "This is a symbolic link. Links are not followed: put the note itself here.",
    EntryKind.DIRECTORY: "This is a folder whose name ends in `.md`. Rename it, or put the note "
    "itself here.",
    EntryKind.OTHER: "This is neither a file nor a folder that can be read, so it is not a note.",
}
