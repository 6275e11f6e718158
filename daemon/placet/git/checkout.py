"""Change the person's own checkout, only for `placet merge` and `placet undo`.

Missions never use this module.

First the result is created as a commit on no reference. That changes nothing visible, and conflicts
show up there. Then one git process moves the checkout to that commit. If placet is killed before,
nothing has happened. If it is killed during the move, git still finishes.
"""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from placet.errors import PlacetError, UserError
from placet.git.history import changes, merged_tree, parents_of
from placet.git.index import as_author, read_status
from placet.git.repository import (
    current_branch,
    filters_named,
    head,
    identity,
    in_progress,
    private_dirs,
    resolve,
    rows_at,
    tree_of,
)
from placet.git.run import (
    BULK_TIMEOUT_S,
    GitDir,
    GitError,
    Repo,
    configured,
    items_of,
    neutral,
    place_of,
    run_git,
    text_of,
    with_env,
)
from placet.note.paths import show


def branch_to_change(repo: Repo, rev: str) -> str:
    """Return the branch that the person has checked out.

    `rev` is the commit to bring in or take out. Raises UserError if placet must not change the
    checkout now. Untracked files are allowed here. One that would be overwritten, ignored or not,
    is refused later.
    """
    at = repo.command_line
    if repo.is_bare:
        raise UserError(
            f"{repo.path} is bare: there is no checkout to work in.",
            "Do it in a clone of it, and push.",
        )
    if what := in_progress(repo):
        begin = what.split()[0]
        raise UserError(
            f"A {what} is in progress in {repo.path}.",
            f"Finish it first, or: {at} {begin} {'reset' if begin == 'bisect' else '--abort'}",
        )
    branch = current_branch(repo)
    if not branch:
        raise UserError(
            f"HEAD is detached in {repo.path}: there is no branch to work on.",
            f"Check one out: {at} switch BRANCH",
        )
    if resolve(repo, "HEAD") is None:
        raise UserError(
            f"{branch} has no commit yet in {repo.path}.",
            f"Check another branch out: {at} switch BRANCH",
        )
    _must_be_clean(repo)
    for commit in ("HEAD", rev):
        rows_at(repo, commit)  # git 2.39 merges a tree that it cannot read as an empty one
    return branch


def _must_be_clean(repo: Repo) -> None:
    index, lock = repo.git_dir / "index", repo.git_dir / "index.lock"
    if lock.exists():
        raise UserError(
            f"git is at work in {repo.path}, or was killed there: {lock} exists.",
            "Wait for it; if no git runs there, delete that file.",
        )
    try:
        _, changed, _ = read_status(in_checkout(repo), untracked="no")
    except GitError as error:
        if "index" not in error.stderr:
            raise
        raise UserError(
            f"{index} is damaged: git keeps there what it knows of the files, and cannot read it. "
            "Your files and the history are not touched by that.",
            f"Have git make it again: rm {shlex.quote(str(index))} && {repo.command_line} reset -q",
        ) from error
    if changed:
        named = ", ".join(ascii(change.path) for change in changed[:5])
        raise UserError(
            f"{repo.path} has uncommitted changes: {named}.",
            f"Commit them, or put them aside: {repo.command_line} stash",
        )


def in_checkout(repo: Repo) -> GitDir:
    """Return the place for work in the person's checkout, with its drivers switched off."""
    return neutral(GitDir(repo.git_dir, repo.path, repo.path, repo.on_call))


def where_checked_out(repo: Repo, branch: str) -> Path | None:
    """Return the folder, checkout or worktree, that is on this branch or rebases it.

    None if there is none.
    """
    line = f"refs/heads/{branch}"
    for folder in (repo.common_dir, *private_dirs(repo)):
        for name in ("HEAD", "rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"):
            with suppress(OSError):
                ref = (
                    (folder / name)
                    .read_text("utf-8", "surrogateescape")
                    .strip()
                    .removeprefix("ref: ")
                )
                if ref not in (line, branch) or (
                    name == "HEAD" and folder == repo.git_dir and repo.is_bare
                ):
                    continue
                with suppress(OSError):
                    return Path(os.fsdecode((folder / "gitdir").read_bytes()).rstrip("\n")).parent
                return repo.path if folder == repo.git_dir else folder.parent
    return None


class Conflicts(PlacetError):  # noqa: N818 - names a state, not an error
    """A merge or a revert conflicts in `paths`. Nothing was changed."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"conflicts in {', '.join(map(ascii, paths[:5]))}")
        self.paths = tuple(paths)


def _as_person(repo: Repo, branch: str, when: datetime) -> GitDir:
    """Return the place for work as the person, with hooks and branch options switched off."""
    place = configured(
        in_checkout(repo), ((f"branch.{branch}.mergeOptions", ""), ("merge.autoStash", "false"))
    )
    return as_author(with_env(place, {"GIT_REFLOG_ACTION": "placet"}), identity(repo), when)


def merge_into_checkout(repo: Repo, branch: str, tip: str, message: str, when: datetime) -> str:
    """Merge the commit `tip` into the person's checked-out `branch`; return the merge commit.

    The caller has checked that the checkout is ready. Raises Conflicts, UserError (a file is in the
    way) or GitError. After an error the checkout is as before.
    """
    place, before = _as_person(repo, branch, when), head(repo)
    new = _commit(place, _merged(place, before, tip), message, before, tip)
    return _fast_forward(repo, place, before, new, f"merge --no-ff {tip[:12]}")


def _merged(place: GitDir, ours: str, theirs: str) -> str:
    tree, conflicts = merged_tree(place, ours, theirs)
    if conflicts is not None:
        raise Conflicts(conflicts)
    return tree


def _commit(place: GitDir, tree: str, message: str, *parents: str) -> str:
    named = [word for parent in parents for word in ("-p", parent)]
    return text_of(
        run_git(
            place, "commit-tree", *named, "-F", "-", tree, stdin=message.encode("utf-8", "replace")
        )[1]
    )


def _must_run_no_filter(
    repo: Repo, place: GitDir, new: str, paths: Sequence[str], by_hand: str
) -> None:
    """Raise UserError if one of `paths`, which change to those of `new`, has a filter in git."""
    names = os.fsencode("".join(f"{path}\0" for path in paths))
    asked = ("check-attr", "--cached", "-z", "--stdin", "filter")
    words = iter(items_of(run_git(place, *asked, stdin=names)[1]))
    found = [
        (path, value)
        for path, _, value in zip(words, words, words, strict=True)
        if value not in ("unspecified", "unset", "set")
    ]
    rules = [path for path in paths if path.split("/")[-1] == ".gitattributes"]
    if rules:  # the new rules may filter other files
        _, out = run_git(place, "ls-tree", "-z", "--full-tree", new, *rules)
        rows = [item.split("\t", 1) for item in items_of(out)]
        found += [(rules[0], name) for name in filters_named(repo, rows)]
    if found:
        path, name = found[0]
        raise UserError(
            f"{show(path)} passes through the filter {show(name)}, which placet does not run.",
            f"Do it with git, which runs it: {repo.command_line} {by_hand}",
        )


def _fast_forward(repo: Repo, place: GitDir, before: str, new: str, by_hand: str) -> str:
    """Move branch, index and files from the commit `before` to `new`, its descendant; return it.

    `by_hand` is git's command for the same. Raises UserError or GitError. Then all is as before, or
    the error says that it is not.
    """
    touched = changes(repo, before, new)
    _must_run_no_filter(repo, place, new, [change.path for change in touched], by_hand)
    for path in [change.path for change in touched if change.status == "A"]:
        above = [repo.path / folder for folder in Path(path).parents if folder != Path()]
        if os.path.lexists(repo.path / path) or any(
            folder.is_symlink() or folder.is_file() for folder in above
        ):
            shown_path = show(str(repo.path / path))
            raise UserError(
                f"{shown_path} is not committed, and the merge would overwrite it.",
                "Commit or move it, then run the command again.",
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
                "--no-overwrite-ignore",
                "-q",
                new,
                timeout_s=BULK_TIMEOUT_S,
            )
    except GitError as error:
        if head(repo) != new:
            _undo_failed_update(
                repo, place, before, new, [change.path for change in touched], error
            )
            raise
    return new


@contextmanager
def _to_its_end() -> Iterator[None]:
    """Ignore Ctrl-C until git is done with the checkout.

    A git killed halfway would leave a lock and half of the files. Only the main thread can ignore a
    signal. A mask would not do, because a signal that one thread blocks goes to another. A server
    works in other threads, and waits for them when it stops.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _undo_failed_update(
    repo: Repo, place: GitDir, before: str, new: str, paths: Sequence[str], error: GitError
) -> None:
    """Undo what a git that failed had already written of `paths`.

    Raises UserError, which names the files that are not as before, if it left anything.
    """
    if error.stderr.endswith("Aborting"):  # git refuses before it writes anything
        return
    with suppress(GitError, OSError):
        _restore_files(place, before, new)
        # git writes its index before it moves the branch
        if run_git(place, "diff-index", "--cached", "--quiet", new, "--", ok=(0, 1))[0] == 0:
            run_git(place, "read-tree", "--reset", before)
    differing = {change.path for change in read_status(place, untracked="all")[1]}
    left = [path for path in paths if path in differing]
    lock = repo.git_dir / "index.lock"
    if left or head(repo) != before or lock.exists():
        named = f" These files changed meanwhile: {', '.join(map(show, left[:5]))}." if left else ""
        raise UserError(
            f"git stopped in the middle: {error.stderr}.{named}",
            f"See what you or git changed: {repo.command_line} status"
            + (f". If no git runs there, first: rm {shlex.quote(str(lock))}" * lock.exists()),
        )


def _restore_files(place: GitDir, before: str, new: str) -> None:
    """Restore the files that git wrote on its way from the commit `before` to `new`.

    A file is git's if it has the content of `new`, or is missing. Any other is somebody's save, and
    stays. git checks each file again before it replaces it. Raises GitError if one has changed.
    """
    with tempfile.TemporaryDirectory(prefix="placet-") as folder:
        own = with_env(place, {"GIT_INDEX_FILE": str(Path(folder, "index"))})
        run_git(own, "read-tree", new)
        run_git(own, "update-index", "-q", "--refresh", ok=(0, 1), timeout_s=BULK_TIMEOUT_S)
        asked = ("diff-files", "-z", "--name-only", "--ignore-submodules=all")
        differing = set(items_of(run_git(own, *asked)[1]))
        compared = run_git(own, "diff-tree", "-r", "-z", "--raw", "--no-renames", before, new)[1]
        items = iter(items_of(compared))
        rows, paths = b"", b""
        for entry, path in zip(items, items, strict=True):
            mode, now, digest, _, _ = entry.removeprefix(":").split(" ")
            if now == "000000" or path in differing:  # git did not write it
                rows += os.fsencode(f"{mode} {digest}\t{path}\0")
            if mode != "000000":
                paths += os.fsencode(f"{path}\0")
        run_git(own, "update-index", "-z", "--index-info", stdin=rows)
        here = text_of(run_git(own, "write-tree")[1])
        run_git(own, "read-tree", "-m", "-u", here, before, timeout_s=BULK_TIMEOUT_S)
        # read-tree would overwrite ignored files; this creates only what is missing
        run_git(own, "checkout-index", "-q", "-z", "--stdin", stdin=paths, ok=(0, 1, 128))


def revert_in_checkout(
    repo: Repo, branch: str, commits: Sequence[str], message: str, when: datetime
) -> str:
    """Revert these commits (newest first) by one new commit, and return it.

    The commit is on the person's checked-out `branch`. Raises Conflicts, UserError (a file is in
    the way, or nothing is left to revert) or GitError. After an error the checkout is as before.
    """
    place, before = _as_person(repo, branch, when), head(repo)
    was = tree = tree_of(repo, before)
    for sha in commits:
        parents = parents_of(repo, sha)
        if not parents:
            raise UserError(
                f"What was there before {sha[:12]} is not known here.",
                f"Where the clone is shallow, fetch it: {repo.command_line} fetch --unshallow",
            )
        # This is a merge with the commit as base and its parent as one side. `merge-tree` finds the
        # base in the history (naming it needs git 2.40). So the three trees get commits of their
        # own, on no reference.
        base = _commit(place, tree_of(repo, sha), "base")
        tree = _merged(
            place,
            _commit(place, tree, "ours", base),
            _commit(place, tree_of(repo, parents[0]), "theirs", base),
        )
    if tree == was:
        raise UserError(f"Already undone: {branch} no longer contains this mission.")
    new = _commit(place, tree, message, before)
    return _fast_forward(repo, place, before, new, f"revert {' '.join(c[:12] for c in commits)}")


def drop_branch(repo: Repo, branch: str, tip: str) -> None:
    """Delete a branch at `tip`; raise GitError if it has moved.

    If it is a symbolic name for another branch, only the name is deleted.
    """
    run_git(neutral(place_of(repo)), "update-ref", "--no-deref", "-d", f"refs/heads/{branch}", tip)
