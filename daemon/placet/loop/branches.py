"""Decide what people's changes to the branches of missions mean.

A thread asks git soon after a reference changed, and the loop decides.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from placet.activity import Action, Activity, Actor, Entity
from placet.agent.repository import failure_of
from placet.case.branch_fate import (
    DECISIONS,
    SeenInGit,
    explain_drop,
    settle_branch,
    settle_revert,
)
from placet.case.case import Branch
from placet.case.commands import Decision
from placet.case.events import BY_PROPERTY
from placet.case.intents import Intent
from placet.disk.errors import Unreadable
from placet.disk.files import Stamp, stamp_of
from placet.errors import describe_bug
from placet.git.fate import BranchNews, Memory, Revert, look_at_branches, may_have_moved
from placet.git.repository import is_repository
from placet.host.clock import Clock
from placet.host.config import portal_path, repositories
from placet.journal.writes import AddActivity, AnswerIntent
from placet.loop.state import LoopState
from placet.note.frontmatter import parse_note

GLANCE_EVERY_S = 2.0  # between looks at the files of references
# between git's looks at open branches regardless of the files: two processes a repository while
# nothing moved
LOOK_EVERY_S = 60.0


@dataclass(slots=True)
class BranchWatch:
    """Watch in a thread what becomes of branches."""

    clock: Clock
    say: Callable[[str], None]
    """Writes to the daemon's log."""
    ring: Callable[[], None]
    """Ends the loop's wait when a look is done."""
    thread: threading.Thread | None = None
    """The thread that looks just now."""
    asks: bool = False
    """Whether git is being asked, and an answer will come."""
    reports: dict[Path, Stamp] = field(default_factory=dict)
    """Reports of dropped branches, as they were when the reason in them was read."""
    _known: dict[Path, Memory] = field(default_factory=dict)
    _problems: dict[Path, str] = field(default_factory=dict)
    _absent: set[Path] = field(default_factory=set)
    """Folders that are not repositories yet."""
    _looked: queue.SimpleQueue[tuple[BranchNews, ...]] = field(default_factory=queue.SimpleQueue)
    _looked_at: float = float("-inf")
    _glanced_at: float = float("-inf")

    def take(self) -> list[BranchNews]:
        """Return new findings, and log what could not be read.

        A problem that stays the same is said once, and its git processes are left out.
        """
        looked: list[BranchNews] = []
        while not self._looked.empty():
            looked += self._looked.get()
            self.thread, self.asks = None, False
        found: list[BranchNews] = []
        for one in looked:
            is_known = one.problem == self._problems.get(one.path, "")
            if one.problem and not is_known:
                self.say(f"placet cannot see the fate of branches: {one.problem}")
            self._known[one.path], self._problems[one.path] = one.memory, one.problem
            found.append(replace(one, calls=()) if one.problem and is_known else one)
        return found

    def look(self, branches: Callable[[], Mapping[Path, Sequence[Branch]]]) -> None:
        """Begin a look at `branches`, by repository, if it is time for one.

        Else a glance at whether there is reason for one. Only the thread asks the file system: a
        repository's disk may not answer.
        """
        now = self.clock.monotonic()
        if self.thread is not None or now - self._glanced_at < GLANCE_EVERY_S:
            return
        self._glanced_at = now
        if is_full := now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
        asked = branches()
        if not asked:
            return
        known = {path: self._known.get(path, Memory()) for path in asked}

        def look() -> None:
            found: list[BranchNews] = []
            absent = {path for path, opens in asked.items() if not (opens or is_repository(path))}
            for path, opens in asked.items():
                if path in absent:
                    continue
                if (is_full and opens) or may_have_moved(opens, known[path]):
                    self.asks = True
                    try:
                        found.append(look_at_branches(path, opens, known[path]))
                    except Exception as error:
                        found.append(
                            BranchNews(
                                path,
                                known[path].without_answer(opens),
                                problem=describe_bug(error),
                            )
                        )
            self._absent = absent
            self._looked.put(tuple(found))
            if self.asks:
                self.ring()

        self.asks = any(
            (is_full and opens) or (known[path].ends is None and path not in self._absent)
            for path, opens in asked.items()
        )
        thread = threading.Thread(target=look, name="branches", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # as for a worker; the next time is soon enough
            self.asks = False
            self.say(f"placet cannot look at branches: {error}")
        else:
            self.thread = thread


def open_branches(state: LoopState) -> dict[Path, list[Branch]]:
    """Return the watched branches by repository. A merge may be undone where no branch is open.

    Some of the folders may not be repositories.
    """
    ports = state.ports
    found: dict[Path, list[Branch]] = {}
    for branches in state.cases.watched.values():
        for branch in branches:
            if not branch.portal or branch.portal in ports.config.portals:
                place = portal_path(ports.vault, ports.config, branch.portal)
                found.setdefault(place, []).append(branch)
    for place in repositories(ports.vault, ports.config):
        found.setdefault(place, [])
    return found


def explain_drops(state: LoopState, known: dict[Path, Stamp]) -> None:
    """Record the reasons that people wrote into the reports of branches that are gone.

    `known` has the reports that were read; only those that changed since are read again.
    """
    dropped = [
        branch
        for branches in state.cases.watched.values()
        for branch in branches
        if branch.became in ("dropped", "gone") and branch.report_path
    ]
    for branch in dropped:
        report = state.vault.root / branch.report_path
        if known.get(report) == (stamp := stamp_of(report)):
            continue
        known[report] = stamp
        by, reason, _ = _words_of_report(state, branch)
        case, now = state.cases[branch.trace_id], state.ports.clock.now()
        if (decision := explain_drop(case, branch, reason, by, now)) is not None:
            state.record(decision)


def settle(state: LoopState, found: BranchNews) -> None:
    """Record what people did with the branches of a repository."""
    _journal(state, found)
    for fate in found.fates:
        case = state.cases[fate.of.trace_id]
        branch, became = fate.of, fate.became
        is_away = became in ("dropped", "gone")
        by, reason, word = _words_of_report(state, branch)
        if not is_away:
            by = reason = ""
        if branch.portal or DECISIONS.get(word.strip().lower()) != ("gone" if is_away else became):
            word = ""
        # a drop makes no commit: the command names the one that the branch was at
        what = "drop" if is_away else "merge"
        claim = state.intents.claims.get((what, case.trace_id, fate.commit_sha or branch.tip))
        if claim is None and reason == branch.dropped_reason:
            reason = ""  # that of an earlier drop
        if became == "gone" and (reason or word or claim is not None):
            became = "dropped"
        person = BY_PROPERTY if reason or word else None
        if claim is not None:
            person, by = claim.person, ""
        seen = SeenInGit(became, found.owner, fate.commit_sha, fate.how, fate.into)
        now = state.ports.clock.now()
        decision = settle_branch(case, branch, seen, now, person, reason, by, word)
        _record(state, decision, claim)
        if decision is not None:  # a drop before that was undone by now
            state.intents.forget(
                one.id
                for (_, trace, commit), one in list(state.intents.claims.items())
                if (trace, commit) == (case.trace_id, branch.tip)
            )
    settled: set[str] = set()
    for revert in found.reverts:  # the newest of a branch counts
        _settle_revert(state, revert, found.owner, settled)


def _journal(state: LoopState, found: BranchNews) -> None:
    failed = [failure_of(call) for call in found.calls if call.stderr]
    if not found.calls or not (found.asked or found.reverts or failed):
        return
    facts = {
        "operation": "look at the branches",
        "processes": len(found.calls),
        "branches": found.asked,
        "duration_ms": round(sum(call.duration_ms for call in found.calls), 1),
    }
    now, place = state.ports.clock.now(), str(found.path)
    state.ports.journal.commit(
        [
            AddActivity(
                Activity(
                    now, "", Actor.SYSTEM, Action.GIT_RAN, Entity.REPOSITORY, place, metadata=one
                )
            )
            for one in (facts, *failed)
        ]
    )


def _settle_revert(state: LoopState, found: Revert, owner: str, settled: set[str]) -> None:
    """Record a revert of a mission's merge. Skip a tip in `settled`: a newer revert settled it."""
    case = state.cases.get(found.trace_id)
    branches = case.branches if case is not None else ()
    merged = [one for one in branches if found.of in (one.merged_as, one.tip) and one.merged_as]
    if case is None or not merged or merged[-1].tip in settled:
        return
    branch = merged[-1]
    if found.in_part:
        if branch.became == "merged":
            state.say(
                f"{case.request_id}: {branch.name} was reverted in part on {found.into} by commit "
                f"{found.commit_sha[:12]}. The rest of its work is still there."
            )
        return
    settled.add(branch.tip)
    what = "merge" if found.again else "undo"
    claim = state.intents.claims.get((what, case.trace_id, found.commit_sha))
    seen = SeenInGit(
        "merged" if found.again else "reverted", owner, found.commit_sha, into=found.into
    )
    person = claim.person if claim is not None else None
    _record(state, settle_revert(case, branch, seen, state.ports.clock.now(), person), claim)


def _record(state: LoopState, decision: Decision | None, claim: Intent | None) -> None:
    """Record the fate of a branch; a claim names its maker once."""
    if decision is not None:
        state.record(decision, writes=[AnswerIntent(claim.id)] if claim is not None else [])
        state.intents.forget([claim.id] if claim is not None else [])


def _words_of_report(state: LoopState, branch: Branch) -> tuple[str, str, str]:
    """Return who dropped a branch, why, and the decision, as its report says.

    Those are `dropped_by`, `dropped_reason` and `decision`; "" for each that it does not have.
    """
    try:
        meta, _ = parse_note(state.vault.read(branch.report_path)[0])
    except Unreadable:
        return "", "", ""
    keys = ("dropped_by", "dropped_reason", "decision")
    by, reason, word = (str(meta.get(key) or "") for key in keys)
    return by, reason, word
