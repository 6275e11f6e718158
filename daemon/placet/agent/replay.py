"""Replay a mission: repeat its recorded calls in a fresh worktree, without a model.

That shows whether the branch has what the record says. The journal is only read. In the repository
a worktree is made and removed again, and no ref changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placet.agent.ports import Bounds
from placet.agent.record import CALL, LAST_COMMIT, LITERAL, PLACE, STEP, Key, Recorded
from placet.agent.tool_calls import INTERRUPTED, changes_files
from placet.agent.workplace import workplace
from placet.case.case import Case
from placet.chat.messages import ToolUse
from placet.errors import UserError
from placet.git.checkpoint import snapshot
from placet.git.history import changes
from placet.git.removal import remove_worktree
from placet.git.repository import open_repo, resolve, tree_of
from placet.git.run import Repo
from placet.git.worktree import Worktree, add_worktree
from placet.host.config import portal_path
from placet.plan.plan import Plan
from placet.tools.arguments import Args
from placet.tools.base import Outcome, Toolbox, Workplace
from placet.tools.registry import BY_NAME


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference from a commit: the step's number (0 for the last commit), commit, and files."""

    step: int
    commit: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay: calls repeated, steps compared, the last commit and its tree.

    `difference` is the first one, None if all is `equal`.
    """

    equal: bool
    calls: int
    steps: int
    commit: str
    tree: str
    difference: Difference | None


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

    def differences(self) -> Iterator[Difference]:
        """Repeat the calls one by one, and give each difference from the commits."""
        yield from self._literals_from(1)
        for turn, replied in enumerate(self.record.replies(), 1):
            for i, use in enumerate(replied.reply.uses):
                yield from self._call(CALL.at(turn, i), use)
        if last := self.record.get(LAST_COMMIT):
            yield from self._compare(0, last)

    def _call(
        self, key: Key[Outcome], use: ToolUse, *, literal: bool = False
    ) -> Iterator[Difference]:
        known = self.record.get(key)
        if known is None:
            return
        if (
            changes_files(use.name)
            and not known.refused
            and known.error_type != INTERRUPTED.error_type
        ):
            self.calls += 1
            place = replace(self.place, literal=literal)
            Toolbox(BY_NAME, place).dispatch(use.name, use.input)
        elif use.name == "complete_step" and known.ok:
            number = int(json.loads(known.content)["step"])  # a model may leave it out
            yield from self._step(number)
            yield from self._literals_from(number + 1)

    def _literals_from(self, number: int) -> Iterator[Difference]:
        for n, step in self.plan.kept_from(number):
            if not step.actions or not self.record.has(LITERAL.at(n, 0)):
                return
            for j, action in enumerate(step.actions):
                key = LITERAL.at(n, j)
                use = ToolUse(key.key, action.tool, action.params)
                yield from self._call(key, use, literal=True)
            yield from self._step(n)

    def _step(self, number: int) -> Iterator[Difference]:
        known = self.record.get(STEP.at(number))
        if known is not None:
            self.steps += 1
            yield from self._compare(number, known or self.tip)

    def _compare(self, number: int, commit: str) -> Iterator[Difference]:
        """Compare the files that the scope lets the mission write with those of a commit."""
        self.tip = commit
        changed = changes(self.repo, commit, snapshot(self.tree))
        if paths := [file.path for file in changed if self.place.may_commit(file.path)]:
            yield Difference(number, commit, tuple(paths))


def replay(bounds: Bounds, worktrees: Path, case: Case, plan: Plan, record: Recorded) -> Replayed:
    """Repeat a mission from its record in a worktree below `worktrees`, up to the first difference.

    Raises UserError if the record has no mission, or its commits are gone from the repository.
    """
    if (at := record.get(PLACE)) is None:
        raise UserError(
            f"{case.request_id} has no mission that could be replayed.",
            f"See what there is: placet show {case.request_id}",
        )
    repo = open_repo(portal_path(bounds.vault, bounds.config, case.request.portal))
    for commit in (at.base, *_commits(plan, record)):
        if resolve(repo, commit) is None:
            raise UserError(
                f"The commit {commit[:12]} of {case.request_id} is gone from {repo.path}.",
                "Its branch was deleted.",
            )
    path = worktrees / f"replay-{case.trace8}-{case.generation}"
    # a killed replay may have left a worktree of this name
    _remove(add_worktree(repo, path, "", at.base))
    tree = add_worktree(repo, path, "", at.base, by_name=plan.scope.by_name())
    scope = replace(plan.scope, network=False, hosts=())
    try:
        with workplace(
            bounds,
            repo,
            tree,
            scope,
            _not_steered,
            lambda: False,
            portal=case.request.portal,
            writable=True,
        ) as place:
            play = _Play(plan, record, repo, tree, place, at.base)
            found = next(play.differences(), None)
        return Replayed(
            found is None, play.calls, play.steps, play.tip, tree_of(repo, play.tip), found
        )
    finally:
        _remove(tree)


def _remove(tree: Worktree) -> None:
    remove_worktree(tree, snapshot(tree))


def _not_steered(args: Args) -> Any:
    raise AssertionError(f"a replay looks at what a control tool did, and calls none: {args}")


def _commits(plan: Plan, record: Recorded) -> Sequence[str]:
    entries = [*(STEP.at(number) for number in range(1, len(plan.steps) + 1)), LAST_COMMIT]
    return [sha for sha in map(record.get, entries) if sha]
