"""Test what a checkpoint of the worktree has, and that a restore deletes nothing that it lacks."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchkit import TRACE, recorded
from gitkit import git, make_repo
from placet.agent.checkpoints import keep
from placet.agent.record import CHECKPOINT, PLACE, MissionGit, Record
from placet.git.index import MAX_SEARCHED_BYTES
from placet.git.repository import head, open_repo
from placet.git.worktree import Worktree, add_worktree


def mission_in(tree: Worktree, record: Record) -> Any:
    """A running mission, as far as a checkpoint looks at it."""
    approval = SimpleNamespace(digest="d", by="you")
    case = SimpleNamespace(trace_id=TRACE, request_id="r", approval=approval)
    return SimpleNamespace(
        record=record,
        mission=SimpleNamespace(case=case),
        repo=tree.repo,
        tree=tree,
        ports=SimpleNamespace(clock=record.clock),
        place=SimpleNamespace(secrets=()),
    )


@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("unsearchable", ["large", "second link"])
def test_incomplete_checkpoint_is_kept_only_for_workers(
    tmp_path: Path, unsearchable: str, carried: bool
) -> None:
    repo = open_repo(make_repo(tmp_path / "repo", {"a.txt": "a\n"}))
    tree = add_worktree(repo, tmp_path / "m", "feat/x", head(repo))
    (tree.path / "small").write_text("s\n")
    with recorded(tmp_path) as (record, _):
        record.settle(PLACE, MissionGit(tree.base, tree.branch, "m"))
        work = mission_in(tree, record)
        keep(work, CHECKPOINT.at(1))
        assert record.get(CHECKPOINT.at(1))
        if unsearchable == "large":
            (tree.path / "big").write_bytes(bytes(MAX_SEARCHED_BYTES + 1))
        else:
            os.link(tree.path / "a.txt", tree.path / "b.txt")
        record.carrier = SimpleNamespace(writes=list, sent=list) if carried else None
        keep(work, CHECKPOINT.at(2))
        kept = record.get(CHECKPOINT.at(2))
    assert bool(kept) is carried
    if kept:
        assert git(repo.path, "ls-tree", "--name-only", kept).split() == ["a.txt", "small"]
