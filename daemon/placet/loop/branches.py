"""People's acts on the branches of missions.

A thread asks git soon after a reference changed, and the loop decides.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from placet.agent.workplace import failure_of
from placet.core.activity import Action, Activity, Actor, Entity
from placet.core.errors import mistake
from placet.core.life.case import Branch
from placet.core.life.fates import settle_branch, settle_revert
from placet.core.life.gestures import Hand
from placet.core.text.note import parse_note
from placet.files.errors import Unreadable
from placet.host.acts import forget, word_of
from placet.host.clock import Clock
from placet.host.config import portal_path, repositories
from placet.journal.writes import AddActivity
from placet.loop.casebook import Casebook
from placet.repo.afterwards import Looked, Memory, Revert, look_at_branches, may_have_moved
from placet.repo.repository import is_repository

GLANCE_EVERY_S = 2.0  # between looks at the files of references
# between git's looks at open branches regardless of the files: two processes a repository while
# nothing moved
LOOK_EVERY_S = 60.0


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
            (whole and opens) or not known[path].looked for path, opens in asked.items()
        )
        thread = threading.Thread(target=look, name="branches", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # as for a worker; the next time is soon enough
            self.asks = False
            self.say(f"what became of branches cannot be looked at: {error}")
        else:
            self.thread = thread


def open_branches(book: Casebook) -> dict[Path, list[Branch]]:
    """Return the watched branches by repository; where none is open, a merge may be taken back."""
    ports = book.ports
    found: dict[Path, list[Branch]] = {}
    for branches in book.cases.watched.values():
        for branch in branches:
            if not branch.portal or branch.portal in ports.config.portals:
                place = portal_path(ports.vault, ports.config, branch.portal)
                found.setdefault(place, []).append(branch)
    for place in repositories(ports.vault, ports.config):
        if place not in found and is_repository(place):
            found[place] = []
    return found


def settle(book: Casebook, found: Looked) -> None:
    """Record what people did with the branches of a repository."""
    _journal(book, found)
    for fate in found.fates:
        case = book.cases[fate.of.trace_id]
        by, reason = _why_dropped(book, fate.of) if fate.became == "dropped" else ("", "")
        merged = fate.became == "merged"
        hand = _hand(book, fate.of.trace_id, "merge", fate.of.name) if merged else None
        decision = settle_branch(
            case,
            fate.of,
            fate.became,
            fate.commit_sha,
            fate.how,
            reason,
            by,
            found.owner,
            book.ports.clock.now(),
            hand,
        )
        if decision is not None:
            book.record(decision)
        if hand is not None:
            forget(book.acts, fate.of.trace_id)  # the next one may be somebody else's
    settled: set[str] = set()
    for revert in found.reverts:  # the newest of a mission's counts
        if revert.trace_id not in settled and _settle_revert(book, revert, found.owner):
            settled.add(revert.trace_id)


def _journal(book: Casebook, found: Looked) -> None:
    failed = [failure_of(call) for call in found.calls if call.stderr]
    if not found.calls or not (found.asked or found.reverts or failed):
        return
    facts = {
        "operation": "look at the branches",
        "processes": len(found.calls),
        "branches": found.asked,
        "duration_ms": round(sum(call.duration_ms for call in found.calls), 1),
    }
    now, place = book.ports.clock.now(), str(found.path)
    book.ports.journal.commit(
        [
            AddActivity(
                Activity(
                    now, "", Actor.SYSTEM, Action.GIT_RAN, Entity.REPOSITORY, place, metadata=one
                )
            )
            for one in (facts, *failed)
        ]
    )


def _settle_revert(book: Casebook, found: Revert, who: str) -> bool:
    """Record a revert; return whether it was one of a mission's merge."""
    case = book.cases.get(found.trace_id)
    if case is None or case.outcome.became not in ("merged", "reverted"):
        return False
    with book.ports.journal.ask() as reader:
        row = reader.last_of(Action.PR_MERGED, trace_id=case.trace_id)
    merged = str(row.details.get("commit_sha", "")) if row is not None else ""
    if found.of not in ("", merged):
        return False
    now = book.ports.clock.now()
    hand = _hand(book, case.trace_id, "merge" if found.again else "undo", case.outcome.branch)
    decision = settle_revert(case, merged, found.commit_sha, who, now, hand, again=found.again)
    if decision is not None:
        book.record(decision)
    if hand is not None:
        forget(book.acts, case.trace_id)
    return True


def _hand(book: Casebook, trace_id: str, what: str, branch: str) -> Hand | None:
    """Return who did this to a branch by a command of placet, None for anybody else."""
    word = word_of(book.acts, trace_id)
    if word is None or (word.what, word.digest) != (what, branch):
        return None
    return Hand(word.who, word.via)


def _why_dropped(book: Casebook, branch: Branch) -> tuple[str, str]:
    """Return who dropped a branch and why.

    The report says so (`dropped_by`, `dropped_reason`); both are empty strings if it does not.
    """
    try:
        meta, _ = parse_note(book.vault.read(branch.report_path)[0])
    except Unreadable:
        return "", ""
    return str(meta.get("dropped_by") or ""), str(meta.get("dropped_reason") or "")
