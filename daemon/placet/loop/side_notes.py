"""Write side notes: each says why placet cannot use the note next to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from placet.activity import Action, Activity, Actor, Entity
from placet.case.case import NoteSeen
from placet.codec import sha256
from placet.disk.errors import AlreadyThere, Gone, NotAFile, Stale, TooLarge, VaultTrouble
from placet.disk.vault import Vault
from placet.host.clock import Clock
from placet.journal.writer import JournalAccess
from placet.journal.writes import AddActivity, DropSeen, PutSeen
from placet.note.escape import code, sentence
from placet.note.frontmatter import read_note
from placet.note.paths import SIDE_CALLOUT, Folder, request_id, show, side_note_name
from placet.plan.differences import parted


def side_of(path: str) -> str:
    """Return the path of the side note of the note at `path`."""
    place = PurePosixPath(path)
    return f"{place.parent}/{side_note_name(place.name)}"


MODEL = f"{Folder.REQUESTS}/Model.md"
"""The side note of this note says why all work waits for the model. The note need not exist."""


def side_note(warnings: Iterable[tuple[str, str]], known: Collection[str]) -> bytes:
    """Return a side note with a callout for each path and reason in `warnings`.

    A callout within a reason becomes a second one. `known` are the paths of notes that belong to
    cases: placet can use those.
    """
    parts = [part for path, why in warnings for part in _callouts(path, why, known=path in known)]
    parts.append("placet deletes this warning once the problem is fixed.\n")
    return "\n\n".join(part for part in parts if part).encode()


def _callouts(path: str, why: str, *, known: bool) -> tuple[str, str]:
    name = code(show(PurePosixPath(path).name))
    title = (
        "All work waits for the model"
        if path == MODEL
        else f"About {name}"
        if known
        else f"placet cannot use {name}"
    )
    words, difference = parted(why)
    callout = [f"{SIDE_CALLOUT}{title}", *(f"> - {sentence(line)}" for line in words.splitlines())]
    return "\n".join(callout), difference.rstrip()


_DRAWN = re.compile(r"[\s\\>*_+#|`-]")


def words_of(raw: bytes) -> str:
    """Return the digest of a side note's words.

    Properties, blanks and marks of markdown are left out: a plug-in or a formatter may change them,
    and the note is still placet's.
    """
    return sha256(_DRAWN.sub("", read_note(raw).body).encode(errors="replace"))


@dataclass(slots=True)
class SideNotes:
    """The side notes in the vault.

    `written` has by note path the words of its side note, and of the one that this replaces. placet
    replaces or deletes only a text with one of these: a person wrote into any other.
    """

    vault: Vault
    journal: JournalAccess
    clock: Clock
    say: Callable[[str], None]
    written: dict[str, str] = field(default_factory=dict)

    def show(
        self,
        wanted: Mapping[str, str],
        there: Collection[str],
        unsure: Set[str],
        notes: Mapping[str, NoteSeen],
        known: Mapping[str, tuple[str, str]],
    ) -> bool:
        """Write the side notes `wanted`, by path, and remove the obsolete ones.

        `there` are those in the vault. The side notes of `unsure` notes, which cannot be judged
        yet, stay. `known` has by path the trace_id and request_id of the case whose note it is.
        Return whether more is to be done.
        """
        sides: dict[str, list[tuple[str, str]]] = {}  # `a.md` and `a.MD` share one
        for path, why in sorted(wanted.items()):
            sides.setdefault(side_of(path), []).append((path, why))
        more = forgets = False
        own = {mark for marks in self.written.values() for mark in marks.split()}
        # the folder of reports is not listed
        of_reports = {side_of(path) for path in self.written if path.startswith(Folder.REPORTS)}
        kept = sides.keys() | {side_of(path) for path in unsure}
        for side in sorted((set(there) | of_reports) - kept):
            try:
                raw, _ = self.vault.read(side)
                if words_of(raw) in own:
                    self.vault.remove(side, sha256(raw))
            except Gone:
                continue  # you deleted it
            except Stale:
                more = True  # it is being edited; the next look decides again
            except (NotAFile, TooLarge):
                continue  # not written by placet
            except VaultTrouble as error:
                forgets = True
                self.say(f"cannot delete {side}: {error}")
        for side, warnings in sides.items():
            path, why = warnings[0][0], "\n".join(why for _, why in warnings)
            text = side_note(warnings, known)
            try:
                self._put(side, text, path, why, notes.get(path), known.get(path))
            except (Stale, AlreadyThere):
                more = True
            except (NotAFile, TooLarge, VaultTrouble) as error:
                self.say(f"cannot write {side}: {error}")
        answered = self.written.keys() - {show(path) for path in wanted.keys() | unsure}
        # keep its digest: else placet would not recognise its own text
        if answered and not (more or forgets):
            self.journal.commit([DropSeen(path) for path in sorted(answered)])
            self.written = {
                path: marks for path, marks in self.written.items() if path not in answered
            }
        return more

    def _put(
        self,
        side: str,
        text: bytes,
        path: str,
        why: str,
        note: NoteSeen | None,
        case: tuple[str, str] | None,
    ) -> None:
        """Write `text` at `side`, unless it is there. Raises what the vault raises."""
        try:
            # checked first: most texts stay the same, and a read needs no fsync
            current, _ = self.vault.read(side)
        except Gone:
            current = None
        mark = words_of(text)
        found = "" if current is None else words_of(current)
        marks = self.written.get(show(path), "").split()
        is_own = found in ("", mark) or any(
            found in marks.split() for marks in self.written.values()
        )
        if marks[:1] != [mark]:
            # Recorded before it is written: a crash must leave no text that placet does not
            # recognise.
            self._journal(
                path,
                why,
                f"{mark} {found}".strip() if is_own and found != mark else mark,
                note,
                case,
            )
        if not is_own or found == mark:
            return
        if current is None:
            self.vault.publish(side, text)
        else:
            self.vault.replace(side, sha256(current), text)

    def _journal(
        self,
        path: str,
        why: str,
        marks: str,
        note: NoteSeen | None,
        case: tuple[str, str] | None,
    ) -> None:
        action = (
            Action.NOTE_EXPLAINED
            if case is not None or not path.startswith(f"{Folder.REQUESTS}/")
            else Action.REQUEST_INVALID
        )
        trace_id, named = case or (
            note.trace_id if note is not None else "",
            request_id(PurePosixPath(path).name),
        )
        row = Activity(
            self.clock.now(),
            trace_id,
            Actor.SYSTEM,
            action,
            Entity.REQUEST,
            named,
            "",
            {"path": show(path), "reason": why[:2000]},
        )
        seen = (
            PutSeen(show(path), marks, action.value, why[:2000])
            if path != MODEL
            else PutSeen(show(path), marks, "", "")
        )
        self.journal.commit([seen] if path == MODEL else [AddActivity(row), seen])
        self.written[show(path)] = marks
