"""Merge or drop a mission's branch as `decision` in its report says."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from placet.agent.ports import Ports
from placet.case import settle
from placet.case.branch_fate import refuse_decision, undecidable
from placet.case.case import Branch, Case
from placet.case.notes import decision_in
from placet.case.settle import Writers
from placet.disk.errors import Unreadable
from placet.disk.files import Stamp, stamp_of
from placet.disk.vault import Vault
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

    report: Mapping[str, Any]
    """The report's properties, as far as they say what is decided on what."""
    since_s: float


class _WithdrawnError(Exception):
    """The person changed the decision before it began. The next look reads the new one."""


class _Done(NamedTuple):
    """The end of a merge or a drop: why it was refused, or what git shows of the branch.

    Neither where the decision was changed before it began.
    """

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
            report = _decided(state.vault, path)
            if decision_in(report):
                self._words[path] = _Word(report, state.ports.clock.monotonic())

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
        path, case = branch.report_path, state.cases[branch.trace_id]
        report = self._words.pop(path).report
        if why := undecidable(case, branch, report):
            word, now = str(report["decision"]), state.ports.clock.now()
            state.record(refuse_decision(case, branch, word, why, now))
            return False

        def take_over() -> None:
            self._done.put(_taken_over(state.ports, state.say, case, branch, report))
            self.ring()

        thread = threading.Thread(target=take_over, name="take-over", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # as for a look at branches
            self._words[path] = _Word(report, state.ports.clock.monotonic())
            state.say(f"placet cannot do what {path} says yet: {error}")
        else:
            self.thread = thread
        return True

    def _record(self, state: LoopState, done: _Done) -> None:
        if done.news is not None:
            settle_news(state, done.news)
        elif not done.refused:
            self._known.pop(done.branch.report_path, None)
        elif done.branch in (case := state.cases[done.branch.trace_id]).watched:
            now = state.ports.clock.now()
            state.record(refuse_decision(case, done.branch, done.word, done.refused, now))


def _decided(vault: Vault, path: str) -> dict[str, Any]:
    """Return what a report's properties decide on what. Raises Unreadable."""
    meta, _ = parse_note(vault.read(path)[0])
    return {key: meta.get(key) for key in ("decision", "trace_id", "branch", "commit")}


def _taken_over(
    ports: Ports, say: Callable[[str], None], case: Case, branch: Branch, report: Mapping[str, Any]
) -> _Done:
    """Merge or drop a branch as these properties of its report say."""
    refused, news = "", None

    def check(tip: str) -> None:
        _must_stand(ports.vault, branch, report)
        _must_be_reported(case, branch, tip)

    try:
        repo = open_repo(ports.vault)
        keeps = ports.config.vault.history is not False
        work = Work(case, branch, repo, ports.vault, ports.worktrees.parent, keeps, say, check)
        found = look_at_branches(ports.vault, [branch], Memory())
        if not found.fates:  # else it was done before a crash, or by hand
            if decision_in(report) == "drop":
                drop_work(work, {})
            else:
                merge_work(work)
            found = look_at_branches(ports.vault, [branch], Memory())
        news = found
    except _WithdrawnError:
        pass
    except (UserError, GitError, RepositoryChanged, OSError) as error:
        refused = str(error)
    except Exception as error:
        refused = f"{describe_bug(error)}."
    return _Done(branch, str(report["decision"]), refused, news)


def _must_stand(vault: Path, branch: Branch, report: Mapping[str, Any]) -> None:
    """Raise _WithdrawnError if the report no longer decides the same."""
    with Vault(vault) as folder, suppress(Unreadable):
        if _decided(folder, branch.report_path) == report:
            return
    raise _WithdrawnError


def _must_be_reported(case: Case, branch: Branch, tip: str) -> None:
    if tip != branch.tip:
        ident = case.request_id
        raise UserError(
            f"The branch {branch.name} has changed since this report.",
            f"Look at it: placet diff {ident}. Then type: placet merge {ident}, or: "
            f"placet drop {ident} --reason R",
        )
