"""Merge or drop a mission's branch as `decision` in its report says."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from placet.case import settle
from placet.case.branch_fate import refuse_decision, undecidable
from placet.case.case import Branch
from placet.case.notes import decision_in
from placet.case.settle import Writers
from placet.disk.errors import Unreadable
from placet.disk.files import Stamp, stamp_of
from placet.errors import UserError, describe_bug
from placet.git.fate import BranchNews, Memory, look_at_branches
from placet.git.repository import open_repo
from placet.git.run import GitError, RepositoryChanged
from placet.loop.branches import settle as settle_news
from placet.loop.state import LoopState
from placet.loop.take_over import Work, drop_work, merge_work
from placet.note.frontmatter import parse_note


class _Word(NamedTuple):
    """A decision that stands in a report, and since when the report has been as it is."""

    text: str
    since_s: float


class _Done(NamedTuple):
    """The end of a merge or a drop: why it was refused, else what git shows of the branch."""

    branch: Branch
    word: str
    refused: str
    news: BranchNews | None


@dataclass(slots=True)
class ReportDecisions:
    """Watch the reports of branches that may be taken over, and do in a thread what they say."""

    ring: Callable[[], None]
    """Ends the loop's wait when a merge or a drop is done."""
    thread: threading.Thread | None = None
    _known: dict[str, Stamp] = field(default_factory=dict)
    """Reports by path, as they were when they were read."""
    _words: dict[str, _Word] = field(default_factory=dict)
    _done: queue.SimpleQueue[_Done] = field(default_factory=queue.SimpleQueue)

    @property
    def is_busy(self) -> bool:
        """Whether a decision is still to be done."""
        return self.thread is not None or bool(self._words)

    def look(self, state: LoopState) -> None:
        """Record what was done, read the reports that changed, and begin with the next decision."""
        while not self._done.empty():
            self._record(state, self._done.get())
            self.thread = None
        watched = [
            branch
            for branches in state.cases.watched.values()
            for branch in branches
            if branch.report_path
        ]
        for branch in watched:
            self._read(state, branch.report_path)
        self._words = {
            p: w for p, w in self._words.items() if p in {b.report_path for b in watched}
        }
        for branch in watched if self.thread is None else ():
            if self._is_settled(state, branch.report_path) and self._begin(state, branch):
                break

    def _read(self, state: LoopState, path: str) -> None:
        """Read the decision in a report that changed."""
        if self._known.get(path) == (stamp := stamp_of(state.vault.root / path)):
            return
        self._known[path] = stamp
        self._words.pop(path, None)
        with suppress(Unreadable):
            meta, _ = parse_note(state.vault.read(path)[0])
            if decision_in(meta):
                now_s = state.ports.clock.monotonic()
                self._words[path] = _Word(str(meta["decision"]), now_s)

    def _is_settled(self, state: LoopState, path: str) -> bool:
        """Return whether a report has a decision, and nobody is writing it any more."""
        if (word := self._words.get(path)) is None or (writers := state.vault.writers(path)) is (
            Writers.SOME
        ):
            return False
        quiet_s = settle.WRITTEN_S if writers is Writers.NONE else settle.UNKNOWN_S
        return state.ports.clock.monotonic() - word.since_s >= quiet_s

    def _begin(self, state: LoopState, branch: Branch) -> bool:
        """Begin to merge or drop a branch; return whether that runs now.

        What cannot be done is told next to the report.
        """
        if branch.trace_id in state.outbox.busy:
            return False
        word, case = self._words.pop(branch.report_path).text, state.cases[branch.trace_id]
        if why := undecidable(case, branch, word):
            state.record(refuse_decision(case, branch, word, why, state.ports.clock.now()))
            return False
        ports = state.ports
        state_folder = ports.worktrees.parent

        def take(work: Work) -> None:
            if word.strip().lower() == "merge":
                merge_work(work)
            else:
                drop_work(work, {})

        def take_over() -> None:
            refused, news = "", None
            try:
                repo = open_repo(ports.vault)
                keeps = ports.config.vault.history is not False
                work = Work(case, branch, repo, ports.vault, state_folder, keeps, state.say)
                found = look_at_branches(ports.vault, [branch], Memory())
                if not found.fates:  # else it was done before a crash, or by hand
                    take(work)
                    found = look_at_branches(ports.vault, [branch], Memory())
                news = found
            except (UserError, GitError, RepositoryChanged, OSError) as error:
                refused = str(error)
            except Exception as error:
                refused = f"{describe_bug(error)}."
            self._done.put(_Done(branch, word, refused, news))
            self.ring()

        self.thread = threading.Thread(target=take_over, name="take-over", daemon=True)
        self.thread.start()
        return True

    def _record(self, state: LoopState, done: _Done) -> None:
        if done.news is not None:
            settle_news(state, done.news)
        elif done.branch in (case := state.cases[done.branch.trace_id]).watched:
            now = state.ports.clock.now()
            state.record(refuse_decision(case, done.branch, done.word, done.refused, now))
