"""The side notes: why placet cannot use a person's note, or what came of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import PurePosixPath

from placet.activity import Action, Activity, Actor, Entity
from placet.case.case import NoteSeen
from placet.disk.errors import AlreadyThere, Gone, NotAFile, Stale, TooLarge, VaultTrouble
from placet.disk.vault import Vault
from placet.host.clock import Clock
from placet.journal.writer import JournalAccess
from placet.journal.writes import AddActivity, DropSeen, PutSeen
from placet.note.escape import code, sentence
from placet.note.paths import SIDE_CALLOUT, Folder, request_id, show, side_note_name
from placet.plan.differences import parted


def side_of(path: str) -> str:
    """Return the path of the side note of the note at `path`."""
    place = PurePosixPath(path)
    return f"{place.parent}/{side_note_name(place.name)}"


MODEL = f"{Folder.REQUESTS}/Model.md"
"""The side note of this note, which need not exist, says why all work waits for the model."""


def side_note(told: Iterable[tuple[str, str]], known: Collection[str]) -> bytes:
    """Return a side note: for each path and reason in `told` a callout.

    A callout in a reason follows as a second one. `known` are the paths of notes that belong to
    cases, so that they are used.
    """
    parts = [part for path, why in told for part in _callouts(path, why, known=path in known)]
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
    told = [f"{SIDE_CALLOUT}{title}", *(f"> - {sentence(line)}" for line in words.splitlines())]
    return "\n".join(told), difference.rstrip()


def _by_side(wanted: Mapping[str, str]) -> dict[str, list[tuple[str, str]]]:
    """Return by side note what it tells: `a.md` and `a.MD` have one."""
    sides: dict[str, list[tuple[str, str]]] = {}
    for path, why in sorted(wanted.items()):
        sides.setdefault(side_of(path), []).append((path, why))
    return sides


@dataclass(slots=True)
class Notices:
    """The explanations in the vault.

    `said` is what the journal has of them: by the note's path, the digest of the text that is to
    stand beside it and, where another one stood there when that was decided, of that one. Only a
    text with such a digest is replaced or taken away: any other is a person's, also one of placet's
    that a person has added a remark to.
    """

    vault: Vault
    journal: JournalAccess
    clock: Clock
    say: Callable[[str], None]
    said: dict[str, str] = field(default_factory=dict)

    def show(
        self,
        wanted: Mapping[str, str],
        there: Collection[str],
        unsure: Set[str],
        notes: Mapping[str, NoteSeen],
        known: Collection[str],
    ) -> bool:
        """Write the side notes that are `wanted`, by path, and remove those that are answered.

        `there` are the explanations that the vault has. What was said of the notes `unsure`, which
        cannot be judged yet, stays as it is. `known` are the paths of notes that belong to cases.
        Return whether there is more to do.
        """
        sides = _by_side(wanted)
        more = forgets = False
        own = {mark for marks in self.said.values() for mark in marks.split()}
        for side in sorted(set(there) - sides.keys() - {side_of(path) for path in unsure}):
            try:
                raw, _ = self.vault.read(side)
                if (mark := sha256(raw).hexdigest()) in own:
                    self.vault.remove(side, mark)
            except Stale:
                more = True  # somebody is at it: the next look decides again
            except (NotAFile, TooLarge):
                continue  # none of placet's
            except VaultTrouble as error:
                forgets = True
                self.say(f"cannot take {side} away: {error}")
        for side, told in sides.items():
            path, why = told[0][0], "\n".join(why for _, why in told)
            text = side_note(told, known)
            try:
                self._put(side, text, path, why, notes.get(path), known=path in known)
            except (Stale, AlreadyThere):
                more = True
            except (NotAFile, TooLarge, VaultTrouble) as error:
                self.say(f"cannot write {side}: {error}")
        answered = self.said.keys() - {show(path) for path in wanted.keys() | unsure}
        # else what is still there would not be known for placet's own any more
        if answered and not (more or forgets):
            self.journal.commit([DropSeen(path) for path in sorted(answered)])
            self.said = {path: marks for path, marks in self.said.items() if path not in answered}
        return more

    def _put(
        self, side: str, text: bytes, path: str, why: str, note: NoteSeen | None, *, known: bool
    ) -> None:
        """Make the explanation at `side` say `text`. Raises what the vault raises."""
        try:
            # first: it costs no fsync, and most of them stand there from look to look
            there, _ = self.vault.read(side)
        except Gone:
            there = None
        mark = sha256(text).hexdigest()
        found = "" if there is None else sha256(there).hexdigest()
        marks = self.said.get(show(path), "").split()
        is_own = found in ("", mark) or any(found in said.split() for said in self.said.values())
        if marks[:1] != [mark]:
            # Before it is written: a crash in between must leave no text that placet does not know
            # for its own.
            self._journal(
                path,
                why,
                f"{mark} {found}".strip() if is_own and found != mark else mark,
                note,
                known=known,
            )
        if not is_own or there == text:
            return
        if there is None:
            self.vault.publish(side, text)
        else:
            self.vault.replace(side, found, text)

    def _journal(
        self, path: str, why: str, marks: str, note: NoteSeen | None, *, known: bool
    ) -> None:
        action = (
            Action.NOTE_EXPLAINED
            if known or not path.startswith(f"{Folder.REQUESTS}/")
            else Action.REQUEST_INVALID
        )
        row = Activity(
            self.clock.now(),
            note.trace_id if note is not None else "",
            Actor.SYSTEM,
            action,
            Entity.REQUEST,
            request_id(PurePosixPath(path).name, ()),
            "",
            {"path": show(path), "reason": why[:2000]},
        )
        seen = (
            PutSeen(show(path), marks, action.value, why[:2000])
            if path != MODEL
            else PutSeen(show(path), marks, "", "")
        )
        self.journal.commit([seen] if path == MODEL else [AddActivity(row), seen])
        self.said[show(path)] = marks
