"""Commands on the branches that missions leave: diff, merge, undo, drop.

This is a person's own hand, by name: the only code of placet that writes to a person's checkout, and only in `merge` and `undo`.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256

import click

from placet.agent.workplace import kept_index
from placet.cli.gestures import user
from placet.cli.site import Site, ident_argument, json_option, site_option
from placet.cli.terminal import harmless, out, say
from placet.core.errors import UserError
from placet.core.life.case import Case, State
from placet.core.text.names import CONFIG_PATH, show
from placet.core.text.note import stamp
from placet.core.text.scalars import UnsafeEdit
from placet.files.errors import Changed, Gone, NotAFile, Stale, TooLarge
from placet.files.vault import Vault
from placet.host.clock import Clock
from placet.host.config import load, portal_path
from placet.repo.afterwards import fate_here, fate_of
from placet.repo.checkout import (
    Conflicts,
    brought_in,
    drop_branch,
    keep_aside,
    merge_into_checkout,
    must_be_ready,
    one_at_a_time,
    revert_in_checkout,
    where_checked_out,
)
from placet.repo.commit import commit_message
from placet.repo.history import (
    REVERTS,
    content,
    diff_text,
    is_ancestor,
    log,
    merge_base,
    parents_of,
    patch_bytes,
    trailers_of,
)
from placet.repo.repository import all_refs, head, is_kept, is_repository, open_repo, resolve
from placet.repo.runner import GitError, Repo, RepositoryChanged
from placet.repo.snapshots import keep_notes

MAX_NOTE_BYTES = 1_000_000


@click.command("diff")
@ident_argument
@site_option
def diff_command(site: Site, ident: str) -> None:
    """Show what a mission changed, as a patch; for a pipe or a file one that `git apply` takes."""
    text, patch = diff(site, ident)
    # A program gets every byte, so that `git apply` takes it; a person nothing that could hide a
    # line.
    click.echo(harmless(text) if sys.stdout.isatty() else patch, nl=False, color=True)


@click.command("merge")
@ident_argument
@click.option("--here", is_flag=True, help="Into the branch you are on, whichever it is.")
@site_option
@json_option
def merge_command(site: Site, ident: str, here: bool, as_json: bool) -> None:
    """Merge a mission's branch into the branch you have checked out, if that checkout is clean."""
    sha, onto = merge(site, ident, here=here)
    out(sha, {"commit": sha, "branch": onto}, as_json=as_json)
    say(
        f"merged into {onto}, unsigned and without your hooks; take it back with: placet undo {ident}"
    )


@click.command("undo")
@ident_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@site_option
@json_option
def undo_command(site: Site, ident: str, yes: bool, as_json: bool) -> None:
    """Drop a mission's branch; or, where it was merged, take that back by a new commit."""
    made, onto = undo(site, ident, lambda question: yes or click.confirm(question, err=True))
    out(made, {"commit": made, "branch": onto} if onto else {"kept": made}, as_json=as_json)
    say(
        f"taken back by that commit on {onto}"
        if onto
        else "dropped; its commits are kept at that ref"
    )


@click.command("drop")
@ident_argument
@click.option(
    "--reason", required=True, metavar="R", help="Why; it goes into the report and the journal."
)
@site_option
@json_option
def drop_command(site: Site, ident: str, reason: str, as_json: bool) -> None:
    """Delete a mission's branch; its commits stay reachable at a ref."""
    kept = drop(site, ident, reason)
    out(kept, {"kept": kept}, as_json=as_json)
    say("dropped; its commits are kept at that ref")


def diff(site: Site, ident: str) -> tuple[str, bytes]:
    """Return what a mission changed: as a text to read, which may be cut, and as a patch for programs.

    Of a branch that a person worked on further, or brought up to date, it is what that has beside the default branch.
    """
    case, repo = _mission(site, ident)
    tip = resolve(repo, case.newest.ref) or resolve(repo, case.tip)
    if tip is None or resolve(repo, case.base) is None:
        raise UserError(
            f"The branch {case.branch} and its commits are gone.",
            f"Look at it: placet show {case.request_id}",
        )
    base, into = case.base, all_refs(repo).ends_in(case.base_branch)
    if (
        tip != case.tip
        and into
        and (since := merge_base(repo, tip, f"refs/heads/{into}")) not in (None, tip)
    ):
        base = since
    return diff_text(repo, base, tip), patch_bytes(repo, base, tip)


def merge(site: Site, ident: str, *, here: bool) -> tuple[str, str]:
    """Merge a mission's branch into the branch that the person has checked out.

    Return the merge commit and that branch.

    `here` allows a branch other than the default one and the one that the work was begun on. Raises
    UserError, with nothing changed, where the checkout has uncommitted changes, something is in
    progress in it, or the merge would conflict.
    """
    case, repo = _mission(site, ident)
    _keep_notes(site, repo)
    with one_at_a_time(repo):
        tip = resolve(repo, case.newest.ref)
        if tip is None:
            raise UserError(
                f"The branch {case.branch} is gone.",
                f"Look at it: placet show {case.request_id}",
                exit_code=3,
            )
        onto = must_be_ready(repo, tip)
        refs = all_refs(repo)
        into = refs.ends_in(case.base_branch)
        if onto not in (into, refs.default) and not here:
            raise UserError(
                f"{repo.path} is on {onto}, not on {into}.",
                f"Check {into} out; or merge into {onto}: placet merge {case.request_id} --here",
            )
        if is_ancestor(repo, tip, "HEAD"):
            raise UserError(
                f"{onto} has {case.branch} already.",
                "Where it was taken back since, git brings it in again by a revert of that commit.",
            )
        # As the mission's last commit has them: the case's own approval is used up.
        digest, approved_by = trailers_of(
            repo, case.tip if resolve(repo, case.tip) else tip, "Placet-Plan", "Approved-By"
        )
        message = commit_message(
            f"Merge {case.branch}: {case.title}", "", case.trace_id, digest, approved_by
        )
        try:
            return merge_into_checkout(repo, onto, tip, message, Clock().wall()), onto
        except Conflicts as found:
            if is_kept(repo):
                raise _both_changed(repo, case, tip, found.paths) from found
            raise UserError(
                f"Merging {case.branch} into {onto} conflicts in: {', '.join(map(show, found.paths))}. "
                "The checkout is as it was.",
                f"Merge by hand: {repo.by_hand} merge --no-ff {case.branch}",
            ) from found
        except GitError as error:
            raise UserError(
                f"git does not merge: {error.stderr}", "The checkout is as it was."
            ) from error


def _keep_notes(site: Site, repo: Repo) -> None:
    """Commit what was changed in a vault whose history placet keeps: its people need not know of commits."""
    if repo.path == site.vault.resolve() and load(site.vault).vault.history is not False:
        keep_notes(repo, kept_index(site.state.folder), Clock().wall())


MAX_SHOWN_LINES = 8


def _both_changed(repo: Repo, case: Case, tip: str, paths: Sequence[str]) -> UserError:
    """Return what somebody is told who does not use git, of notes that they and a mission changed in the same places."""
    now = head(repo)
    since = merge_base(repo, now, tip) or case.base
    said = []
    for path in paths:
        name, _, side = path.rpartition("~")
        # how git names a file in whose place the other side has a folder
        if name and side in (now, tip):
            made = ("a file", "a folder") if side == now else ("a folder", "a file")
            said.append(f"{show(name)} is {made[0]} of yours, and {made[1]} of the mission's.")
            continue
        was, yours, its = (
            content(repo, commit, path, max_bytes=MAX_NOTE_BYTES)
            .decode("utf-8", "replace")
            .splitlines()
            for commit in (since, now, tip)
        )
        said += [
            f"{show(path)} was changed by you and by the mission, in the same lines.",
            "  You wrote:",
            *_new_lines(was, yours),
            "  The mission wrote:",
            *_new_lines(was, its),
        ]
    return UserError(
        "\n".join(
            [*said, "Nothing was changed: your notes are as they were, and the mission's are kept."]
        ),
        "Write what you want of both into your note, then let the mission's go: "
        f"placet drop {case.request_id} --reason 'taken over by hand'\n"
        f"  Or have it planned anew for the notes of today: `status: pending` in {case.request_path or 'the request'}.\n"
        f"  All that it changed: placet diff {case.request_id}",
    )


def _new_lines(was: Sequence[str], now: Sequence[str]) -> list[str]:
    known = frozenset(was)
    new = [line for line in now if line not in known]
    more = (
        [f"    … and {len(new) - MAX_SHOWN_LINES} more lines"] if len(new) > MAX_SHOWN_LINES else []
    )
    return [*(f"    {show(line)[:200]}" for line in new[:MAX_SHOWN_LINES]), *more] or [
        "    (took it away)"
    ]


def drop(site: Site, ident: str, reason: str) -> str:
    """Delete a mission's branch, with the reason written into its report.

    Return the ref that keeps the commits.

    Raises UserError where it is merged, checked out somewhere, or the report cannot take the
    reason.
    """
    case, repo = _mission(site, ident)
    with one_at_a_time(repo):
        if fate_of(repo, case.newest) is not None:
            taken_back = case.became == "reverted"
            fate = "was merged, and that was taken back," if taken_back else "is merged or gone"
            raise UserError(
                f"{case.branch} {fate} already, so there is no work to let go.",
                ("" if taken_back else f"Take a merge back: placet undo {case.request_id}. ")
                + f"A branch that is left over: {repo.by_hand} branch -D {case.branch}",
            )
        tip = resolve(repo, case.newest.ref)
        if tip is None:
            raise UserError(
                f"There is no branch {case.branch}; another branch has its commits.",
                "Delete that one by hand.",
                exit_code=3,
            )
        if (where := where_checked_out(repo, case.branch)) is not None:
            raise UserError(
                f"{case.branch} is checked out in {where}, or being rebased there.",
                f"Check another branch out there: git -C {shlex.quote(str(where))} switch BRANCH"
                if where.is_dir()
                else f"That folder is not there any more; tell git so: {repo.by_hand} worktree prune",
            )
        kept = wanted = f"refs/placet/dropped/{case.request_id}-{case.trace8}-{case.generation}"
        for n in itertools.count(2):
            if resolve(repo, kept) in (None, tip):
                break
            # what was dropped before, and brought back and worked on, is kept too
            kept = f"{wanted}-{n}"
        with Vault(site.vault) as folder:
            try:
                keep_aside(repo, tip, kept)
                # The reason first: a daemon that looks in between must find it once the branch is
                # gone.
                before, after = _stamp_report(
                    folder, repo, case, {"dropped_reason": reason, "dropped_by": user()}
                )
                try:
                    drop_branch(repo, case.branch, tip)
                except GitError:
                    with suppress(Stale):
                        folder.replace(case.report_path, sha256(after).hexdigest(), before)
                    raise
            except (GitError, RepositoryChanged) as error:
                said = error.stderr if isinstance(error, GitError) else str(error)
                raise UserError(
                    f"git does not drop {case.branch}: {said}",
                    "Nothing was dropped. Try again, or by hand: "
                    f"{repo.by_hand} branch -D {case.branch}",
                ) from error
    return kept


def _stamp_report(
    folder: Vault, repo: Repo, case: Case, keys: Mapping[str, str]
) -> tuple[bytes, bytes]:
    """Write these properties into a case's report; return it as it was and as it is.

    Raises UserError where it cannot take them.
    """
    by_hand = (
        f"Mend that, or drop the branch without a reason: {repo.by_hand} branch -D {case.branch}"
    )
    try:
        return folder.edit(case.report_path, lambda raw: stamp(raw, keys))
    except Changed as error:
        raise UserError(
            f"{case.report_path} keeps changing.",
            "Close the editor that has it open, then try again.",
        ) from error
    except Gone as error:
        raise UserError(
            f"The report {case.report_path} is gone, which the reason is written into.",
            f"Put it back, or: {repo.by_hand} branch -D {case.branch}",
        ) from error
    except (UnsafeEdit, NotAFile, TooLarge) as error:
        raise UserError(
            f"The reason cannot be written into the report {case.report_path}: {error}", by_hand
        ) from error


def undo(site: Site, ident: str, ask: Callable[[str], bool]) -> tuple[str, str]:
    """Drop a mission's branch, or take back by a new commit what was merged of it.

    Return the new commit and the branch that it is on; of a branch that was dropped the ref that
    keeps its commits, and nothing.

    What the branch that is checked out has of it comes first. `ask` is asked before anything is
    changed. Raises UserError, with nothing changed, where it says no or it cannot be done.
    """
    case, repo = _mission(site, ident)
    fate = fate_here(repo, case.newest) or fate_of(repo, case.newest)
    if fate is None:
        if not ask(f"Drop the branch {case.branch} of {repo.path}?"):
            raise UserError("Nothing was changed.")
        return drop(site, ident, "undone"), ""
    sha = fate.commit_sha
    if not sha:
        raise UserError(f"{case.branch} was dropped already, so there is nothing to undo.")
    _keep_notes(site, repo)
    onto = must_be_ready(repo, sha)
    if not is_ancestor(repo, sha, "HEAD"):
        raise UserError(
            f"{onto} does not have {sha[:12]}, which brought the work in.",
            f"Check out the branch that has it: {repo.by_hand} branch --contains {sha[:12]}",
        )
    if not ask(
        f"Take back what {sha[:12]}{_whose(repo, sha)} brought into {onto} of {repo.path}, by a new commit?"
    ):
        raise UserError("Nothing was changed.")
    # Without the trailers of a mission's commit: this one does not bring its work in.
    message = f"Revert {case.branch}\n\nThis reverts commit {sha}.\n\n{REVERTS}: {case.trace_id}\n"
    commits = brought_in(repo, case.newest, sha)
    try:
        with one_at_a_time(repo):
            if must_be_ready(repo, sha) != onto:
                raise UserError(
                    f"{repo.path} is not on {onto} any more.", "Look at it, then try again."
                )
            return revert_in_checkout(repo, onto, commits, message, Clock().wall()), onto
    except Conflicts as found:
        mainline = "-m 1 " if len(parents_of(repo, commits[0])) > 1 else ""
        raise UserError(
            f"Taking it back conflicts in: {', '.join(map(show, found.paths))}. The checkout is as it was.",
            f"By hand: {repo.by_hand} revert {mainline}{' '.join(sha[:12] for sha in commits)}",
        ) from found
    except GitError as error:
        raise UserError(
            f"git does not take it back: {error.stderr}", "The checkout is as it was."
        ) from error


def _whose(repo: Repo, sha: str) -> str:
    """Return whose commit this is, for one that names no mission: it may be more than the mission's work."""
    found = (
        log(repo, f"{sha}^", sha)
        if not trailers_of(repo, sha, "Placet-Trace")[0] and parents_of(repo, sha)
        else []
    )
    return f" ({show(found[0].subject)!r} of {show(found[0].author)})" if found else ""


def _mission(site: Site, ident: str) -> tuple[Case, Repo]:
    """Return a completed case with a branch, and its repository.

    Raises UserError (exit code 3) for any other.
    """
    case = site.case(ident)
    if case.state is not State.COMPLETED or not case.tip:
        raise UserError(
            f"{case.request_id} is {case.state}"
            + (" without changes" if case.state is State.COMPLETED else "")
            + ", so there is no branch of it.",
            f"Look at it: placet show {case.request_id}",
            exit_code=3,
        )
    config = site.in_force().config
    if case.portal and case.portal not in config.portals:
        raise UserError(
            f"The portal {case.portal} is no longer configured.",
            f"placet portal add {case.portal} PATH",
            exit_code=2,
        )
    place = portal_path(site.vault, config, case.portal)
    if not is_repository(place):
        raise UserError(
            f"The repository of {case.request_id} is not at {place} any more.",
            f"Put it back, or mend the path of {case.portal or 'the vault'} in {CONFIG_PATH}.",
            exit_code=2,
        )
    return case, open_repo(place)
