"""The person's own checkout: only for a person's own command (`placet merge`, `placet undo`).

No mission gets here.

What is to be checked out is made first, as a commit on no reference, which changes nothing that
anybody sees; conflicts come to light there. One git process then brings the checkout forward to it:
killed before, nothing has happened, and placet killed meanwhile, git comes to its end.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from placet.errors import PlacetError, UserError
from placet.git.history import changes, content, merged_tree, parents_of
from placet.git.index import as_author, read_status, update_ref
from placet.git.repository import head, identity, resolve, tree_of
from placet.git.run import BULK_TIMEOUT_S, Place, run_git, text_of
from placet.note.paths import show
from placet.repo.places import Repo, configured, neutral, place_of, with_env
from placet.repo.ready import in_checkout
from placet.repo.values import GitError

_MAX_FILE_BYTES = 64 * 1024 * 1024


class Conflicts(PlacetError):  # noqa: N818 - named for what is the case
    """A merge or a revert conflicts in `paths`; nothing was changed."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"conflicts in {', '.join(map(ascii, paths[:5]))}")
        self.paths = tuple(paths)


def _as_person(repo: Repo, branch: str, when: datetime) -> Place:
    """Return the place for work as the person, with hooks and branch options switched off."""
    place = configured(
        in_checkout(repo), ((f"branch.{branch}.mergeOptions", ""), ("merge.autoStash", "false"))
    )
    return as_author(with_env(place, {"GIT_REFLOG_ACTION": "placet"}), identity(repo), when)


def merge_into_checkout(repo: Repo, branch: str, tip: str, message: str, when: datetime) -> str:
    """Merge the commit `tip` into the person's `branch`, which is checked out, with a merge commit.

    Return it.

    The caller has seen that the checkout is ready. Raises Conflicts, UserError (a file in the way)
    or GitError; then the checkout is as it was.
    """
    place, before = _as_person(repo, branch, when), head(repo)
    return _bring_forward(
        repo, place, before, _commit(place, _merged(place, before, tip), message, before, tip)
    )


def _merged(place: Place, ours: str, theirs: str) -> str:
    tree, conflicts = merged_tree(place, ours, theirs)
    if conflicts is not None:
        raise Conflicts(conflicts)
    return tree


def _commit(place: Place, tree: str, message: str, *parents: str) -> str:
    named = [word for parent in parents for word in ("-p", parent)]
    return text_of(
        run_git(
            place, "commit-tree", *named, "-F", "-", tree, stdin=message.encode("utf-8", "replace")
        )[1]
    )


def _bring_forward(repo: Repo, place: Place, before: str, new: str) -> str:
    """Bring branch, index and files from the commit `before` to `new`, its descendant; return it.

    Raises UserError or GitError; then all is as it was, or the error says that it is not.
    """
    added = [change.path for change in changes(repo, before, new) if change.status == "A"]
    for path in added:
        above = [repo.path / folder for folder in Path(path).parents if folder != Path()]
        if os.path.lexists(repo.path / path) or any(
            folder.is_symlink() or folder.is_file() for folder in above
        ):
            raise UserError(
                f"{show(str(repo.path / path))} is in the way: it is in no "
                "commit, and would be written over.",
                "Move it away first.",
            )
    try:
        with _to_its_end():
            run_git(
                place,
                "merge",
                "--ff-only",
                "--no-stat",
                "--no-verify-signatures",
                "--no-autostash",
                "-q",
                new,
                timeout_s=BULK_TIMEOUT_S,
            )
    except GitError as error:
        if head(repo) != new:
            _put_back(repo, place, before, new, added, error)
            raise
    return new


@contextmanager
def _to_its_end() -> Iterator[None]:
    """Ignore Ctrl-C until git is done with the checkout.

    Ended in the middle it would leave a lock and half of the files. Only the main thread can ignore
    a signal, and a mask would not do: one that a thread blocks is given to another. A server, which
    works in other threads, lets them come to their end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _put_back(
    repo: Repo, place: Place, before: str, new: str, added: Sequence[str], error: GitError
) -> None:
    """Undo what a git that failed had checked out already.

    Raises UserError where that cannot be done.
    """
    with suppress(GitError):
        if head(repo) == before and read_status(place, untracked="no")[1]:
            run_git(place, "read-tree", "--reset", "-u", before, timeout_s=BULK_TIMEOUT_S)
    # what git wrote before it failed is not in its index yet; else it is not git's
    for path in added:
        file = repo.path / path
        with suppress(OSError):
            wrote = (
                os.fsencode(file.readlink())
                if file.is_symlink()
                else file.read_bytes().replace(b"\r\n", b"\n")
            )
            if (
                content(repo, new, path, max_bytes=_MAX_FILE_BYTES)
                .replace(b"\r\n", b"\n")
                .startswith(wrote)
            ):
                file.unlink()
                os.removedirs(file.parent)  # as far up as nothing else is in them
    at = repo.by_hand
    if (
        head(repo) != before
        or (repo.git_dir / "index.lock").exists()
        or read_status(place, untracked="no")[1]
    ):
        raise UserError(
            f"git stopped in the middle: {error.stderr}",
            f"See what it left: {at} status; take it back, once "
            f"{repo.git_dir / 'index.lock'} is gone: "
            f"{at} reset --hard {before[:12]}",
        )


def revert_in_checkout(
    repo: Repo, branch: str, commits: Sequence[str], message: str, when: datetime
) -> str:
    """Take these commits (newest first) back by one new commit, and return it.

    It is on the person's `branch`, which is checked out. Raises Conflicts, UserError (a file in the
    way, nothing to take back) or GitError; then the checkout is as it was.
    """
    place, before = _as_person(repo, branch, when), head(repo)
    was = tree = tree_of(repo, before)
    for sha in commits:
        parents = parents_of(repo, sha)
        if not parents:
            raise UserError(
                f"What was there before {sha[:12]} is not known here.",
                f"Where the clone is shallow, fetch it: {repo.by_hand} fetch --unshallow",
            )
        # A merge from which the commit is the base, and its parent what somebody else made of it.
        # `merge-tree` finds the base in the history (naming it needs git 2.40), so the three get
        # one of their own, on no reference.
        base = _commit(place, tree_of(repo, sha), "base")
        tree = _merged(
            place,
            _commit(place, tree, "ours", base),
            _commit(place, tree_of(repo, parents[0]), "theirs", base),
        )
    if tree == was:
        raise UserError(f"{branch} has nothing of it any more: it was taken back already.")
    return _bring_forward(repo, place, before, _commit(place, tree, message, before))


def keep_aside(repo: Repo, tip: str, keep_ref: str) -> None:
    """Keep the commit `tip` at `keep_ref`, whatever was there."""
    old = resolve(repo, keep_ref)
    update_ref(neutral(place_of(repo)), keep_ref, tip, old or "0" * len(tip))


def drop_branch(repo: Repo, branch: str, tip: str) -> None:
    """Delete a branch that is at `tip`; raises GitError where it is not any more.

    One that is only another name for a branch goes alone.
    """
    run_git(neutral(place_of(repo)), "update-ref", "--no-deref", "-d", f"refs/heads/{branch}", tip)
