"""Read facts about a mission's branch for its report."""

from __future__ import annotations

import os
from collections.abc import Sequence

from placet.case.mission_result import After
from placet.errors import UserError
from placet.git.history import (
    ahead_behind,
    merge_preview,
)
from placet.git.repository import (
    all_refs,
    dirty_paths,
    notes,
    remote_of,
)
from placet.git.run import (
    GitError,
    Repo,
    ask,
    items_of,
)
from placet.note.portable import unportable

MAX_UNSEEN = 10
"""Maximum number of uncommitted files, and of remarks on names, in a report."""


def branch_facts(repo: Repo, branch: str, base_branch: str, added: Sequence[str]) -> After:
    """Return git's facts for the report on a successful branch, started on `base_branch` (or "").

    `added` are its new files.

    A question that git cannot answer appears among the notes.
    """
    try:
        refs = all_refs(repo)
        into = refs.ends_in(base_branch)
        ahead = behind = 0
        conflicts: Sequence[str] = ()
        if into:
            ahead, behind = ahead_behind(repo, branch, into)
            conflicts = (
                merge_preview(repo, f"refs/heads/{into}", f"refs/heads/{branch}") if behind else ()
            )
        remarks = list(notes(repo))
        if _signs_commits(repo):
            remarks.append("Your commits are signed; placet's are not.")
        if _has_hooks(repo):
            remarks.append("Your git hooks did not run on placet's commits.")
        asked = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", f"refs/heads/{branch}")
        remarks += unportable(added, items_of(ask(repo, *asked)) if added else ())[:MAX_UNSEEN]
        return After(
            into,
            ahead,
            behind,
            tuple(conflicts),
            tuple(remarks),
            tuple(dirty_paths(repo)[:MAX_UNSEEN]),
            remote_of(repo)[0],
            bare=repo.is_bare,
        )
    except (GitError, UserError, OSError) as error:
        return After("", 0, 0, (), (f"placet could not ask git about the branch: {error}",), ())


def _signs_commits(repo: Repo) -> bool:
    pairs = [item.partition("\n") for scope, item in repo.settings if scope != "command"]
    signs = [
        not given or value.lower() in ("true", "yes", "on", "1")
        for key, given, value in pairs
        if key == "commit.gpgsign"
    ]
    return signs[-1:] == [True]


def _has_hooks(repo: Repo) -> bool:
    """Return whether git would run hooks on a commit, with respect to `core.hooksPath`."""
    named = [
        item.partition("\n")[2]
        for scope, item in repo.settings
        if scope != "command" and item.startswith("core.hookspath\n")
    ]
    own = os.path.expanduser(named[-1]) if named else ""  # noqa: PTH111 - must not raise for unknown users
    folder = repo.path / (own or repo.common_dir / "hooks")
    hooks = ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit")
    return any(os.path.exists(folder / name) for name in hooks)
