"""Commands that take a mission's work back: undo, drop."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256

import click

from placet.case.case import Case
from placet.cli.branches import await_daemon, keep_notes_of, mission_of
from placet.cli.decisions import claim
from placet.cli.gestures import must_say_something
from placet.cli.site import Site, ident_argument, json_option, site_option
from placet.cli.terminal import echo, harmless, out, say
from placet.core.text.scalars import UnsafeEdit
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.files.errors import Changed, Gone, NotAFile, Stale, TooLarge
from placet.git.checkout import Conflicts, drop_branch, keep_aside, revert_in_checkout
from placet.git.fate import fate_here, fate_of, merged_elsewhere
from placet.git.history import is_ancestor, log, parents_of
from placet.git.repository import resolve
from placet.host.clock import Clock
from placet.note.frontmatter import stamp
from placet.note.paths import show
from placet.repo.patches import brought_in
from placet.repo.places import Repo
from placet.repo.ready import must_be_ready, one_at_a_time, where_checked_out
from placet.repo.traces import REVERTS, trailers_of
from placet.repo.values import GitError, RepositoryChanged


@click.command("undo")
@ident_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@site_option
@json_option
def undo_command(site: Site, ident: str, yes: bool, as_json: bool) -> None:
    """Drop a mission's branch; or, where it was merged, take that back by a new commit."""
    made, onto = undo(site, ident, lambda what: yes or _agreed(what))
    say(f"taken back, by this commit on {onto}:" if onto else _DROPPED)
    out(made, {"commit": made, "branch": onto} if onto else {"kept": made}, as_json=as_json)
    await_daemon(site, ident, "reverted" if onto else "dropped")


_DROPPED = "dropped; its commits are kept at this ref:"


def _agreed(what: str) -> bool:
    echo(harmless(what), err=True)
    return click.confirm("Do that?", err=True)


@click.command("drop")
@ident_argument
@click.option(
    "--reason", required=True, metavar="R", help="Why; it goes into the report and the journal."
)
@site_option
@json_option
def drop_command(site: Site, ident: str, reason: str, as_json: bool) -> None:
    """Delete a mission's branch; its commits stay reachable at a ref."""
    must_say_something("reason", [reason], "Say why", "it is not needed any more")
    kept = drop(site, ident, reason)
    say(_DROPPED)
    out(kept, {"kept": kept}, as_json=as_json)


def drop(site: Site, ident: str, reason: str) -> str:
    """Delete a mission's branch, with the reason written into its report.

    Return the ref that keeps the commits.

    Raises UserError where it is merged, checked out somewhere, or the report cannot take the
    reason.
    """
    case, repo = mission_of(site, ident)
    with one_at_a_time(repo):
        if fate_of(repo, case.newest) is not None:
            taken_back = case.outcome.became == "reverted"
            fate = "was merged, and that was taken back," if taken_back else "is merged or gone"
            raise UserError(
                f"{case.outcome.branch} {fate} already, so there is no work to let go.",
                ("" if taken_back else f"Take a merge back: placet undo {case.request_id}. ")
                + f"A branch that is left over: {repo.by_hand} branch -D {case.outcome.branch}",
            )
        tip = resolve(repo, case.newest.ref)
        if tip is None:
            raise UserError(
                f"There is no branch {case.outcome.branch}; another branch has its commits.",
                "Delete that one by hand.",
                exit_code=3,
            )
        if (where := where_checked_out(repo, case.outcome.branch)) is not None:
            raise UserError(
                f"{case.outcome.branch} is checked out in {where}, or being rebased there.",
                f"Check another branch out there: git -C {shlex.quote(str(where))} switch BRANCH"
                if where.is_dir()
                else "That folder is not there any more; tell git so: "
                f"{repo.by_hand} worktree prune",
            )
        kept = _free_ref(repo, case, tip)
        with Vault(site.vault) as folder:
            try:
                keep_aside(repo, tip, kept)
                # The reason first: a daemon that looks in between must find it once the branch
                # is gone.
                before, after = _stamp_report(
                    folder, repo, case, {"dropped_reason": reason, "dropped_by": site.who}
                )
                try:
                    drop_branch(repo, case.outcome.branch, tip)
                except GitError:
                    with suppress(Stale):
                        folder.replace(case.outcome.report_path, sha256(after).hexdigest(), before)
                    raise
            except (GitError, RepositoryChanged) as error:
                said = error.stderr if isinstance(error, GitError) else str(error)
                raise UserError(
                    f"git does not drop {case.outcome.branch}: {said}",
                    "Nothing was dropped. Try again, or by hand: "
                    f"{repo.by_hand} branch -D {case.outcome.branch}",
                ) from error
    claim(site, case, "drop", case.outcome.tip)
    return kept


def _free_ref(repo: Repo, case: Case, tip: str) -> str:
    kept = wanted = f"refs/placet/dropped/{case.request_id}-{case.trace8}-{case.generation}"
    for n in itertools.count(2):
        if resolve(repo, kept) in (None, tip):
            break
        kept = f"{wanted}-{n}"
    return kept


def _stamp_report(
    folder: Vault, repo: Repo, case: Case, keys: Mapping[str, str]
) -> tuple[bytes, bytes]:
    """Write these properties into a case's report; return it as it was and as it is.

    Raises UserError where it cannot take them.
    """
    path, drop = case.outcome.report_path, f"{repo.by_hand} branch -D {case.outcome.branch}"
    by_hand = f"Fix that, or drop the branch without a reason: {drop}"
    try:
        return folder.edit(path, lambda raw: stamp(raw, keys))
    except Changed as error:
        raise UserError(
            f"{path} keeps changing.",
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


def undo(site: Site, ident: str, ask: Callable[[str], bool]) -> tuple[str, str]:
    """Drop a mission's branch, or take back by a new commit what was merged of it.

    Return the new commit and the branch that it is on; of a branch that was dropped the ref that
    keeps its commits, and nothing.

    What the branch that is checked out has of it comes first. `ask` is asked before anything is
    changed. Raises UserError, with nothing changed, where it says no or it cannot be done.
    """
    case, repo = mission_of(site, ident)
    fate = fate_here(repo, case.newest) or fate_of(repo, case.newest)
    if fate is None:
        return _undo_open(site, case, repo, ask), ""
    sha = fate.commit_sha
    if not sha:
        raise UserError(f"{case.outcome.branch} was dropped already, so there is nothing to undo.")
    keep_notes_of(site, repo)
    onto = must_be_ready(repo, sha)
    if not is_ancestor(repo, sha, "HEAD"):
        raise UserError(
            f"{onto} does not have {sha[:12]}, which brought the work in.",
            f"Check out the branch that has it: {repo.by_hand} branch --contains {sha[:12]}",
        )
    if not ask(
        f"This takes back what {sha[:12]}{_whose(repo, sha)} brought into {onto} of {repo.path}, "
        "by a new commit."
    ):
        raise UserError("Nothing was changed.")
    # Without the trailers of a mission's commit: this one does not bring its work in.
    branch = case.outcome.branch
    message = f"Revert {branch}\n\nThis reverts commit {sha}.\n\n{REVERTS}: {case.trace_id}\n"
    commits = brought_in(repo, case.newest, sha)
    try:
        with one_at_a_time(repo):
            if must_be_ready(repo, sha) != onto:
                raise UserError(
                    f"{repo.path} is not on {onto} any more.", "Look at it, then try again."
                )
            made = revert_in_checkout(repo, onto, commits, message, Clock().wall())
    except Conflicts as found:
        mainline = "-m 1 " if len(parents_of(repo, commits[0])) > 1 else ""
        raise UserError(
            f"Taking it back conflicts in: {', '.join(map(show, found.paths))}. "
            "The checkout is as it was.",
            f"By hand: {repo.by_hand} revert {mainline}{' '.join(sha[:12] for sha in commits)}",
        ) from found
    except GitError as error:
        raise UserError(
            f"git does not take it back: {error.stderr}", "The checkout is as it was."
        ) from error
    claim(site, case, "undo", made)
    return made, onto


def _undo_open(site: Site, case: Case, repo: Repo, ask: Callable[[str], bool]) -> str:
    """Drop a branch that was not merged; return the ref that keeps its commits."""
    if name := merged_elsewhere(repo, case.newest):
        raise UserError(
            f"It is merged into {show(name)}. Check that branch out to undo it.",
            f"{repo.by_hand} switch {shlex.quote(name)} && placet undo {case.request_id}",
        )
    if not ask(
        f"This drops the branch {case.outcome.branch} of {repo.path}; its commits stay reachable."
    ):
        raise UserError("Nothing was changed.")
    return drop(site, case.trace_id, "undone")


def _whose(repo: Repo, sha: str) -> str:
    """Return whose commit this is, where it names no mission: it may have more in it."""
    found = (
        log(repo, f"{sha}^", sha)
        if not trailers_of(repo, sha, "Placet-Trace")[0] and parents_of(repo, sha)
        else []
    )
    return f" ({show(found[0].subject)!r} of {show(found[0].author)})" if found else ""
