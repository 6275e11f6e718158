"""Merge a mission's branch into the checkout, or drop it.

A person asks for that by a command, on the board, or by `decision` in the report.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from placet.agent.repository import kept_index
from placet.case.case import Branch, Case
from placet.codec import sha256
from placet.disk.errors import Changed, Gone, NotAFile, OpenForWriting, Stale, TooLarge
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.git.checkout import (
    Conflicts,
    branch_to_change,
    drop_branch,
    merge_into_checkout,
    revert_in_checkout,
    where_checked_out,
)
from placet.git.checkpoint import save_commit
from placet.git.commit_message import commit_message
from placet.git.fate import DROPPED, commits_since, fate_of, free_ref, kept_refs, reverts_in
from placet.git.history import is_ancestor
from placet.git.repository import all_refs, is_kept, one_at_a_time, resolve
from placet.git.run import GitError, Repo, RepositoryChanged
from placet.git.trailers import trailers_of
from placet.git.vault_history import keep_notes
from placet.host.clock import Clock
from placet.note.frontmatter import UnsafeEdit, stamp
from placet.note.paths import show


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a mission that may be taken over."""

    case: Case
    branch: Branch
    repo: Repo
    vault: Path
    state: Path
    """The folder of the vault's state on this machine."""
    keeps_history: bool
    """Whether the repository is the vault, and the settings let placet commit its changes."""
    say: Callable[[str], None]
    """Tells the person something at once."""
    check: Callable[[str], None] = lambda _tip: None
    """Raises an error if the branch at this tip may not be taken over. Called in the lock."""


def merge_work(work: Work, *, here: bool = False, seen: str | None = None) -> tuple[str, str]:
    """Merge a mission's branch into the person's checkout; return the commit and that branch.

    `seen` is the commit whose changes the person read, None for whatever the branch is at; `here`
    allows a branch other than the default one and the one that the work was begun on. Raises
    UserError, with nothing changed, where the checkout has uncommitted changes, something is in
    progress in it, or the merge would conflict.
    """
    case, branch, repo = work.case, work.branch, work.repo
    commit_notes(work)
    with one_at_a_time(repo, work.say):
        tip = resolve(repo, branch.ref)
        if tip is None:
            raise gone(repo, case, branch)
        _must_be_seen(work, tip, seen)
        onto = branch_to_merge_into(repo, case, branch, tip, here=here)
        return _merged(repo, case, branch, onto, tip), onto


def branch_to_merge_into(repo: Repo, case: Case, branch: Branch, tip: str, *, here: bool) -> str:
    """Return the branch that is checked out, for a merge of a mission's commit `tip`.

    Raises UserError where the checkout takes no merge now, or is on another branch without `here`.
    """
    onto, refs = branch_to_change(repo, tip), all_refs(repo)
    into = refs.ends_in(branch.base_branch)
    if onto not in (into, refs.default) and not here:
        raise UserError(
            f"{repo.path} is on {onto}, not on {into}.",
            f"Check {into} out; or merge into {onto}: placet merge {case.request_id} --here",
        )
    return onto


def _must_be_seen(work: Work, tip: str, seen: str | None) -> None:
    work.check(tip)
    if seen not in (None, tip):
        raise UserError(
            f"The branch {work.branch.name} has other commits than you read.",
            f"Read it again: placet diff {work.case.request_id}",
        )


def _merged(repo: Repo, case: Case, branch: Branch, onto: str, tip: str) -> str:
    """Merge the commit `tip` into the branch `onto`, which is checked out; return the commit."""
    if is_ancestor(repo, tip, "HEAD"):
        return _merge_again(repo, case, branch, onto, tip)
    # As the mission's last commit has them: the case's own approval is used up.
    digest, approved_by = trailers_of(
        repo, branch.tip if resolve(repo, branch.tip) else tip, "Placet-Plan", "Approved-By"
    )
    title = f"Merge {branch.name}: {case.request.title}"
    message = commit_message(title, "", case.trace_id, digest, approved_by)
    try:
        return merge_into_checkout(repo, onto, tip, message, Clock().wall())
    except Conflicts as found:
        if is_kept(repo):
            raise _both_changed(case, found.paths) from found
        raise UserError(
            f"Merging {branch.name} into {onto} conflicts in: "
            f"{', '.join(map(show, found.paths))}. The checkout is unchanged.",
            f"Merge by hand: {repo.command_line} merge --no-ff {branch.name}",
        ) from found
    except GitError as error:
        raise UserError(
            f"git does not merge: {error.stderr}",
            "Nothing was merged, and your files are as you saved them.",
        ) from error


def gone(repo: Repo, case: Case, branch: Branch) -> UserError:
    """Return the error for a branch that is not there, with what brings it back."""
    if resolve(repo, branch.tip) is None:
        return UserError(
            f"The branch {branch.name} is gone.",
            f"Look at it: placet show {case.request_id}",
            exit_code=3,
        )
    kept = [
        name
        for name in sorted(all_refs(repo).ours)
        if name.startswith(tuple(kept_refs(branch))) and is_ancestor(repo, branch.tip, name)
    ]
    commit = kept[-1] if kept else branch.tip[:12]
    return UserError(
        f"The branch {branch.name} is gone; its commits are kept.",
        f"Restore it, then merge it: {repo.command_line} branch {branch.name} {commit} && "
        f"placet merge {case.request_id}",
        exit_code=3,
    )


def _merge_again(repo: Repo, case: Case, branch: Branch, onto: str, tip: str) -> str:
    """Merge work again after an undo, by reverting the undo; return the new commit.

    Raises UserError if it was not undone, or if git reports a conflict.
    """
    sha = taken_back_by(repo, branch, tip)
    if not sha:
        raise UserError(
            f"{onto} has {branch.name} already.",
            f"Look at it: placet diff {case.request_id}. Undo it: placet undo {case.request_id}",
        )
    message = f"Merge {branch.name} again: {case.request.title}\n\nThis reverts commit {sha}.\n"
    try:
        return revert_in_checkout(repo, onto, [sha], message, Clock().wall())
    except Conflicts as found:
        raise UserError(
            f"Bringing {branch.name} in again conflicts in: "
            f"{', '.join(map(show, found.paths))}. The checkout is unchanged.",
            f"By hand: {repo.command_line} revert {sha[:12]}",
        ) from found


def taken_back_by(repo: Repo, branch: Branch, merged: str) -> str:
    """Return the commit that took a mission's work back after `merged`; empty where it is in."""
    since = reverts_in(repo, commits_since(repo, ["HEAD"], [merged]))
    about = (one for one in since if one.is_of(repo, branch) and not one.in_part)
    last = next(about, None)
    return last.commit_sha if last is not None and not last.again else ""


def commit_notes(work: Work) -> None:
    """Commit what was changed in a vault whose history placet keeps."""
    if work.keeps_history:
        keep_notes(work.repo, kept_index(work.state), Clock().wall(), work.say)


def _both_changed(case: Case, paths: Sequence[str]) -> UserError:
    """Return the error for notes that a person and a mission both changed, without git's words."""
    # git names a file in whose place the other side has a folder by its commit
    names = dict.fromkeys(re.sub(r"~[0-9a-f]{40}$", "", path) for path in paths)
    return UserError(
        f"You and the mission both changed {', '.join(map(show, names))}. Nothing was merged: your "
        "notes are as they were, and the mission's are kept.",
        f"See what it changed: placet diff {case.request_id}. Write what you want of it into your "
        f"note, then: placet drop {case.request_id} --reason 'taken over by hand'\n"
        f"  Or have it planned again for the notes of today: placet retry {case.request_id}",
    )


def drop_work(work: Work, keys: Mapping[str, str], seen: str | None = None) -> str:
    """Delete a mission's branch, with the properties `keys` written into its report.

    `seen` is as in `merge_work`. Return the ref that keeps the commits. Raises UserError where the
    branch is merged, checked out somewhere, has other commits than `seen`, or the report cannot
    take the properties.
    """
    case, branch, repo = work.case, work.branch, work.repo
    with one_at_a_time(repo, work.say):
        if fate_of(repo, branch) is not None:
            undone = branch.became == "reverted"
            fate = "was merged and undone" if undone else "is merged or gone"
            raise UserError(
                f"{branch.name} {fate} already, so there is no work to drop.",
                ("" if undone else f"To undo a merge: placet undo {case.request_id}. ")
                + f"To delete the branch: {repo.command_line} branch -D {branch.name}",
            )
        tip = resolve(repo, branch.ref)
        if tip is None:
            raise UserError(
                f"There is no branch {branch.name}; another branch has its commits.",
                "Delete that one by hand.",
                exit_code=3,
            )
        _must_be_seen(work, tip, seen)
        if (where := where_checked_out(repo, branch.name)) is not None:
            raise UserError(
                f"{branch.name} is checked out in {where}, or being rebased there.",
                f"Check another branch out there: git -C {shlex.quote(str(where))} switch BRANCH"
                if os.path.isdir(where)  # which raises nothing
                else f"That folder is gone. Tell git: {repo.command_line} worktree prune",
            )
        wanted = f"{DROPPED}{case.request_id}-{case.trace8}-{case.generation}"
        kept = free_ref(repo, wanted, tip)
        with Vault(work.vault) as folder:
            try:
                save_commit(repo, tip, kept, Clock().wall())
                # The reason first: a daemon that looks in between must find it once the branch
                # is gone.
                before, after = _stamp_report(folder, repo, branch, keys)
                try:
                    drop_branch(repo, branch.name, tip)
                except GitError:
                    with suppress(Stale):
                        folder.replace(branch.report_path, sha256(after), before)
                    raise
            except (GitError, RepositoryChanged) as error:
                why = error.stderr if isinstance(error, GitError) else str(error)
                raise UserError(
                    f"git does not drop {branch.name}: {why}",
                    "Nothing was dropped. Try again, or by hand: "
                    f"{repo.command_line} branch -D {branch.name}",
                ) from error
    return kept


def _stamp_report(
    folder: Vault, repo: Repo, branch: Branch, keys: Mapping[str, str]
) -> tuple[bytes, bytes]:
    """Write these properties into a branch's report; return it as it was and as it is.

    Raises UserError where it cannot take them.
    """
    path, drop = branch.report_path, f"{repo.command_line} branch -D {branch.name}"
    by_hand = f"Fix that, or drop the branch without a reason: {drop}"
    try:
        return folder.edit(path, lambda raw: stamp(raw, keys))
    except (Changed, OpenForWriting) as error:
        raise UserError(
            f"{path} is being changed.",
            "Close the editor that has it open, then try again.",
        ) from error
    except Gone as error:
        raise UserError(
            f"The report {path} is gone, which the reason is written into.",
            f"Put it back, or: {drop}",
        ) from error
    except (UnsafeEdit, NotAFile, TooLarge) as error:
        raise UserError(
            f"The reason cannot be written into the report {path}: {error}",
            by_hand,
        ) from error
