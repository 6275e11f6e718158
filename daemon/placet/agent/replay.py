"""Replay: a mission's recorded calls are carried out again in a fresh worktree, without a model and without the network.

It shows whether the branch is what the record says was done. The journal is only read; in the repository a worktree is
made and taken away again, and no reference is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placet.agent.calls import INTERRUPTED, changes_files
from placet.agent.record import CALL, LAST_COMMIT, LITERAL, PLACE, STEP, Key, Recorded
from placet.agent.workplace import Bounds, workplace
from placet.core.errors import UserError
from placet.core.life.case import Case
from placet.core.text.plan import Plan
from placet.core.turn.talk import ToolUse
from placet.host.config import portal_path
from placet.repo.checkpoints import snapshot
from placet.repo.history import changes
from placet.repo.removal import remove_worktree
from placet.repo.repository import open_repo, resolve, tree_of
from placet.repo.runner import Repo
from placet.repo.worktree import Worktree, add_worktree
from placet.tools.arguments import Args
from placet.tools.base import Outcome, Toolbox, Workplace
from placet.tools.registry import BY_NAME


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay departed: the step's number (0 for what was committed after the last), its commit, the files."""

    step: int
    commit: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay came to: calls carried out again, steps compared, the mission's last commit that was, and its tree.

    `difference` is the first one, None where there is none.
    """

    calls: int
    steps: int
    commit: str
    tree: str
    difference: Difference | None


class _Departed(Exception):  # noqa: N818 - leaves the replay; nothing went wrong
    def __init__(self, difference: Difference) -> None:
        super().__init__(difference.commit)
        self.difference = difference


@dataclass(slots=True)
class _Play:
    plan: Plan
    record: Recorded
    repo: Repo
    tree: Worktree
    place: Workplace
    tip: str
    calls: int = 0
    steps: int = 0

    def everything(self) -> None:
        self.literals_from(1)
        for turn, replied in enumerate(self.record.replies(), 1):
            for i, use in enumerate(replied.reply.turn.tool_uses):
                self.call(CALL.at(turn, i), use)
        if last := self.record.get(LAST_COMMIT):
            self.compare(0, last)

    def call(self, entry: Key[Outcome], use: ToolUse) -> None:
        known = self.record.get(entry)
        if known is None:
            return
        if (
            changes_files(use.name)
            and not known.refused
            and known.error_type != INTERRUPTED.error_type
        ):
            self.calls += 1
            Toolbox(BY_NAME, self.place).dispatch(use.name, use.input)
        elif use.name == "complete_step" and known.ok:
            number = int(use.input["step"])
            self.step(number)
            self.literals_from(number + 1)

    def literals_from(self, number: int) -> None:
        for n, step in enumerate(self.plan.steps[number - 1 :], number):
            if not step.actions or not self.record.has(LITERAL.at(n, 0)):
                return
            for j, action in enumerate(step.actions):
                entry = LITERAL.at(n, j)
                self.call(entry, ToolUse(entry.key, action.tool, action.params))
            self.step(n)

    def step(self, number: int) -> None:
        known = self.record.get(STEP.at(number))
        if known is not None:
            self.steps += 1
            self.compare(number, known or self.tip)

    def compare(self, number: int, commit: str) -> None:
        """Raise _Departed unless what the scope lets be written is as it is in the commit."""
        self.tip = commit
        paths = [
            c.path
            for c in changes(self.repo, commit, snapshot(self.tree))
            if self.place.may_commit(c.path)
        ]
        if paths:
            raise _Departed(Difference(number, commit, tuple(paths)))


def replay(bounds: Bounds, worktrees: Path, case: Case, plan: Plan, record: Recorded) -> Replayed:
    """Carry a mission out again from its record, in a worktree below `worktrees`.

    Raises UserError where the record has no mission, or its commits are gone from the repository.
    """
    if (at := record.get(PLACE)) is None:
        raise UserError(
            f"{case.request_id} has no mission that could be replayed.",
            f"See what there is: placet show {case.request_id}",
        )
    repo = open_repo(portal_path(bounds.vault, bounds.config, case.portal))
    base = at.base
    for commit in (base, *_commits(plan, record)):
        if resolve(repo, commit) is None:
            raise UserError(
                f"The commit {commit[:12]} of {case.request_id} is gone from {repo.path}.",
                "Its branch was deleted.",
            )
    path = worktrees / f"replay-{case.trace8}-{case.generation}"
    _remove(add_worktree(repo, path, "", base))  # one that a killed replay left may have its files
    tree = add_worktree(repo, path, "", base, by_name=plan.scope.by_name())
    try:
        scope = replace(plan.scope, network=False)
        with workplace(
            bounds, repo, tree, scope, _not_steered, lambda: False, writable=True
        ) as place:
            play = _Play(plan, record, repo, tree, place, base)
            difference = None
            try:
                play.everything()
            except _Departed as departed:
                difference = departed.difference
        return Replayed(play.calls, play.steps, play.tip, tree_of(repo, play.tip), difference)
    finally:
        _remove(tree)


def _remove(tree: Worktree) -> None:
    remove_worktree(tree, snapshot(tree))


def _not_steered(args: Args) -> Any:
    raise AssertionError(f"a replay looks at what a control tool did, and calls none: {args}")


def _commits(plan: Plan, record: Recorded) -> Sequence[str]:
    entries = [*(STEP.at(number) for number in range(1, len(plan.steps) + 1)), LAST_COMMIT]
    return [sha for sha in map(record.get, entries) if sha]


def as_json(found: Replayed) -> dict[str, Any]:
    """Return a replay as plain data."""
    where = found.difference
    return {
        "equal": where is None,
        "calls": found.calls,
        "steps": found.steps,
        "commit": found.commit,
        "tree": found.tree,
        "difference": None
        if where is None
        else {"step": where.step, "commit": where.commit, "paths": list(where.paths)},
    }
