"""Make a bare repository, look for commits, and move references."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from placet.disk.files import delete_tree
from placet.git.repository import is_repository, open_repo
from placet.git.run import (
    BULK_TIMEOUT_S,
    GitDir,
    GitError,
    Repo,
    RepositoryChanged,
    place_of,
    rows_of,
    run_git,
)
from placet.git.worktree import Worktree, delete, registered

FETCHED = "refs/lent/"
"""Where a clone keeps what it fetched, so that the next time git need not ask for it."""


def has_all(repo: Repo, *what: str) -> bool:
    """Return whether a repository has all objects that these words of `git rev-list` reach."""
    asked = ("rev-list", "--objects", "--quiet", *what, "--")
    return run_git(place_of(repo), *asked, timeout_s=BULK_TIMEOUT_S, ok=(0, 128))[0] == 0


def bare_repo_at(path: Path, *, sha256: bool) -> Repo:
    """Return the bare repository at `path`; create it if missing."""
    if not is_repository(path):
        path.mkdir(parents=True, exist_ok=True)
        what = f"--object-format={'sha256' if sha256 else 'sha1'}"
        asked = ("init", "-q", "--bare", "--template=", what, "--", str(path))
        # a user's own setting would be written into it, and else hold in it all the same
        config = ("init.defaultRefFormat=files", "core.sharedRepository=false")
        run_git(GitDir(None, None, path, None), *asked, config=config)
        run_git(GitDir(path, None, path, None), "config", "core.sharedRepository", "false")
    return open_repo(path)


def forget_worktree(repo: Repo, path: Path) -> None:
    """Delete a worktree and what git knows of it, whatever is in it. It may be missing."""
    admin = registered(repo, path)
    if admin is not None:
        delete(Worktree(repo, path, admin, "", ""))
    delete_tree(path)


def refs_at(repo: Repo, names: Sequence[str]) -> dict[str, str]:
    """Return the commits of those of these references that exist."""
    if not names:
        return {}
    found = rows_of(place_of(repo), ("refname", "objectname"), *names)
    return {name: commit for name, commit in found if name in names}


def loose_refs(repo: Repo, names: Sequence[str]) -> dict[str, str]:
    """Do the same without git, in a repository whose references are never packed."""
    found = {}
    for name in names:
        try:
            found[name] = (repo.common_dir / name).read_text("ascii").strip()
        except (FileNotFoundError, NotADirectoryError):
            continue
    return {name: commit for name, commit in found.items() if commit}


def move_refs(repo: Repo, to: Mapping[str, str], known: Mapping[str, str] | None = None) -> None:
    """Move references, all or none; an empty commit deletes one.

    With `known` each must be at its commit there, or not exist: else RepositoryChanged.
    """
    lines = []
    for name, commit in to.items():
        if known is None:
            lines.append(f"update {name} {commit}" if commit else f"delete {name}")
        else:
            old = known.get(name, "")
            nowhere = "0" * len(commit or old)
            lines.append(
                f"update {name} {commit} {old or nowhere}" if commit else f"delete {name} {old}"
            )
    if not lines:
        return
    try:
        stdin = os.fsencode("".join(f"{line}\n" for line in lines))
        asked = ("update-ref", "--no-deref", "-m", "placet", "--stdin")  # HEAD itself, if named
        run_git(place_of(repo), *asked, stdin=stdin)
    except GitError as error:
        now = refs_at(repo, [*to])
        if known is not None and any(now.get(name) != known.get(name) for name in to):
            raise RepositoryChanged(f"{', '.join(to)}: moved by somebody else") from error
        raise
