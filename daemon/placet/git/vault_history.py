"""The history of a vault that placet began (`is_kept`): people's changes are committed before work.

Its people may never have heard of git, so nobody else commits there. An index of placet's own is
used, so that another git that holds the lock of theirs is neither waited for nor disturbed; theirs
follows when it is free. People who stage files there use git, and commit themselves: then nothing
is done.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from placet.disk.files import Stamp, stamp_of
from placet.errors import UserError
from placet.git.index import read_status, stage, stage_possible, update_ref, write_commit
from placet.git.repository import current_branch, head, identity, is_kept
from placet.git.run import Place, run_git
from placet.note.paths import show
from placet.repo.oddities import in_progress
from placet.repo.places import Repo, neutral, with_env
from placet.repo.ready import one_at_a_time
from placet.repo.sizes import without_large
from placet.repo.values import GitError

MESSAGE = "Notes as people left them\n\nWhat was changed in the vault since the commit before.\n"


def keep_notes(repo: Repo, index: Path, when: datetime) -> tuple[str, int, list[str]]:
    """Commit what people changed in a vault whose history placet keeps.

    Return the commit ("" for none), the number of files, and the paths that git cannot add. `index`
    is the path of an index of placet's own, below the state folder, kept from call to call. Nothing
    is done in any other repository, off a branch, in the middle of a merge, or if a person has
    staged files.
    """
    if not is_kept(repo) or not current_branch(repo) or in_progress(repo):
        return "", 0, []
    with one_at_a_time(repo) as held:
        try:
            before = head(repo)
        except UserError:  # no commit yet
            return "", 0, []
        theirs = neutral(Place(repo.git_dir, repo.path, repo.path, repo.on_call, held=held))
        own = with_env(theirs, {"GIT_INDEX_FILE": str(index)})
        # has the commit that their index is of, where it could not follow
        behind = index.with_suffix(".behind")
        index.with_name(f"{index.name}.lock").unlink(missing_ok=True)
        if not index.exists():
            index.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                shutil.copy2(repo.git_dir / "index", index)
        try:
            _, changes, staged = read_status(own)
        except GitError:
            # damaged, as by a loss of power; if it is the repository, that shows again below
            index.unlink(missing_ok=True)
            staged = True
        if staged:  # HEAD went on since
            run_git(own, "read-tree", "--reset", before)
            _, changes, _ = read_status(own)
        changes = without_large(repo, changes)
        if not changes and not behind.exists():
            return "", 0, []
        seen = stamp_of(repo.git_dir / "index")
        if not _follows(theirs, before, behind):
            return "", 0, []
        if not changes:
            _follow(repo, index, seen, behind, before)
            return "", 0, []
        left_out = stage_possible(own, changes)
        if len(left_out) == len(changes):
            return "", 0, left_out
        new = write_commit(own, stage(own, []), (before,), MESSAGE, identity(repo), when)
        update_ref(own, "HEAD", new, before)
        _follow(repo, index, seen, behind, before)
        return new, len(changes) - len(left_out), left_out


def not_added(paths: Sequence[str]) -> str:
    """Return what people are told of notes that git cannot add to a vault's history."""
    return (
        f"git cannot add to the vault's history, which goes on without it: "
        f"{', '.join(map(show, paths))}. Agents do not see what was changed in it. Correct what "
        "`.gitattributes` says of it (as working-tree-encoding), or leave it out by a line in "
        "`.gitignore`."
    )


def _follows(theirs: Place, before: str, behind: Path) -> bool:
    """Return whether nothing is staged in the person's index.

    It is then as HEAD, or as the commit where it stayed behind.
    """
    assert theirs.git_dir is not None
    if not (theirs.git_dir / "index").exists():
        return True
    commits = [before]
    with suppress(OSError):
        commits.append(behind.read_text("ascii", "replace").strip())
    return any(
        run_git(theirs, "diff-index", "--cached", "--quiet", commit, "--", ok=(0, 1, 128))[0] == 0
        for commit in commits
    )


def _follow(repo: Repo, index: Path, seen: Stamp, behind: Path, before: str) -> None:
    """Give the person's index what HEAD has now, under git's own lock on it.

    Where somebody holds that, the next call does it.
    """
    theirs, lock = repo.git_dir / "index", repo.git_dir / "index.lock"
    try:
        with lock.open("xb") as file:
            if stamp_of(theirs) == seen:
                file.write(index.read_bytes())
                if seen is not None:
                    os.fchmod(file.fileno(), theirs.stat().st_mode & 0o777)
    except FileExistsError:
        if not behind.exists():
            behind.write_text(f"{before}\n", "ascii")
        return
    if stamp_of(theirs) == seen:
        lock.replace(theirs)
        behind.unlink(missing_ok=True)
    else:  # they staged something in this moment
        lock.unlink()
