"""Take over the work of a mission: show, merge, undo and drop its branch.

Only `merge` and `undo` write to a person's checkout, by name and by a person's own hand.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from placet.activity import Action
from placet.case.case import Branch, Case
from placet.case.explain import of_last_mission, state_sentence
from placet.case.life_cycle import State
from placet.client.decisions import claim
from placet.client.site import Site
from placet.disk.real_path import real_path
from placet.errors import UserError
from placet.git.checkout import Conflicts, branch_to_change, revert_in_checkout
from placet.git.checkpoint import checkpoint_ref
from placet.git.fate import brought_in, fate_in_checkout, fate_of, merged_elsewhere
from placet.git.history import (
    changes,
    diff_text,
    is_ancestor,
    log,
    merge_base,
    merge_preview,
    parents_of,
    patch_bytes,
    touched_by,
)
from placet.git.repository import (
    all_refs,
    head,
    is_repository,
    one_at_a_time,
    open_repo,
    resolve,
)
from placet.git.run import GitError, Repo
from placet.git.trailers import trailers_of
from placet.host.clock import Clock
from placet.host.config import load, portal_path
from placet.loop.take_over import (
    Work,
    branch_to_merge_into,
    commit_notes,
    drop_work,
    merge_work,
    taken_back_by,
)
from placet.note.paths import CONFIG_PATH, show
from placet.wording import some_of

SEEN_S = 3.0
"""Seconds within which a daemon sees what became of a branch: it looks every two."""


def await_daemon(site: Site, before: Case) -> None:
    """Wait until a daemon that runs has seen what became of a branch, at most SEEN_S.

    So that `placet status` shows it afterwards.
    """
    for _ in site.changes(SEEN_S):
        if site.case(before.trace_id).branches != before.branches or site.daemon is None:
            return


Which = Callable[[Case], Branch | None]
"""Chooses one of a case's branches."""


def open_branch(case: Case) -> Branch | None:
    """Return the branch to merge, drop and show: the newest open one, else the newest."""
    return case.open_branch


def told_branch(case: Case) -> Branch | None:
    """Return the branch that `placet status` names."""
    return case.branch


def done_branch(case: Case) -> Branch | None:
    """Return the branch to undo: the newest one whose work is open or merged, else the newest."""
    there = [branch for branch in case.branches if branch.became in ("", "merged")]
    return next(reversed(there or case.branches), None)


def diff(site: Site, ident: str, which: Which = open_branch) -> tuple[str, bytes]:
    """Return a mission's changes: as a text to read, which may be cut, and as a patch for programs.

    For a branch that a person worked on further, or brought up to date, that is its difference
    from the default branch. Of a mission that is at work it is what was saved after its last turn.
    """
    ends = compared(site, ident, which)
    return diff_text(*ends), patch_bytes(*ends)


def compared(site: Site, ident: str, which: Which = open_branch) -> tuple[Repo, str, str]:
    """Return the repository and the two commits between which `diff` shows the changes.

    Raises UserError as `mission_of`, and if the commits are gone.
    """
    case = site.case(ident)
    if case.acting is State.RUNNING:
        return _saved_so_far(site, case)
    case, branch, repo = mission_of(site, ident, which)
    tip = resolve(repo, branch.ref) or resolve(repo, branch.tip)
    if tip is None or resolve(repo, branch.base) is None:
        raise UserError(
            f"The branch {branch.name} and its commits are gone.",
            f"Look at it: placet show {case.request_id}",
        )
    base, into = branch.base, all_refs(repo).ends_in(branch.base_branch)
    if (
        tip != branch.tip
        and into
        and (since := merge_base(repo, tip, f"refs/heads/{into}")) not in (None, tip)
    ):
        base = since
    return repo, base, tip


def _saved_so_far(site: Site, case: Case) -> tuple[Repo, str, str]:
    """Return the repository of a mission at work, its first commit, and its last saved state."""
    with site.reader(case.trace_id) as reader:
        rows = of_last_mission(reader.activity(case.trace_id, limit=-1))
    made = next((row.details for row in rows if row.action_type == Action.GIT_BRANCH_CREATED), None)
    repo = repo_of(site, case, case.request.portal)
    if made is None:
        raise UserError(
            f"{state_sentence(case)}, and has saved no work yet.",
            f"Follow it: placet watch {case.request_id}",
        )
    site.say(f"{state_sentence(case)}. This is what it has changed so far.")
    name = checkpoint_ref(f"{case.trace8}-{case.generation}")
    saved = [ref for ref in sorted(all_refs(repo).ours) if ref.startswith(name)]
    return repo, made["base"], str(resolve(repo, (saved or [made["branch"]])[0]))


def tip_of(site: Site, ident: str) -> str:
    """Return the commit of the branch that `placet status` names; empty if it is gone."""
    _, branch, repo = mission_of(site, ident, told_branch)
    return resolve(repo, branch.ref) or ""


def merge(
    site: Site,
    ident: str,
    *,
    here: bool,
    seen: str | None = None,
    ask: Callable[[Sequence[str]], bool] = lambda _doubts: False,
) -> tuple[str, str]:
    """Merge a mission's branch into the person's checkout; return the commit and that branch.

    `seen` is the commit whose changes the person read, None for whatever the branch is at; `here`
    allows a branch other than the default one and the one that the work was begun on. `ask` is
    called with the doubts about a result, and returns whether to merge it all the same. Raises
    UserError, with nothing changed, where the checkout has uncommitted changes, something is in
    progress in it, or the merge would conflict.
    """
    case, branch, repo = mission_of(site, ident)
    if branch.doubts and not ask(branch.doubts):
        raise UserError(
            f"{' '.join(branch.doubts)} Nothing was merged.",
            f"To merge it all the same: placet merge {case.request_id} --yes",
        )
    sha, onto = merge_work(_work(site, case, branch, repo), here=here, seen=seen)
    claim(site, case, "merge", sha)
    return sha, onto


@dataclass(frozen=True, slots=True)
class MergeOutlook:
    """What a merge of a mission's branch would do now."""

    onto: str = ""
    """The branch that is checked out."""
    files: int = 0
    added: int = 0
    removed: int = 0
    conflicts: tuple[str, ...] = ()
    """The files in which it would conflict."""
    why_not: str = ""
    """Why the checkout takes no merge at this moment; empty if it does."""


def merge_outlook(site: Site, case: Case) -> MergeOutlook:
    """Return what a merge of a case's open branch would do now; it changes nothing."""
    try:
        _, branch, repo = mission_of(site, case.trace_id)
        tip = resolve(repo, branch.ref)
        if tip is None:
            return MergeOutlook(why_not=f"The branch {branch.name} is gone.")
        onto, now = branch_to_merge_into(repo, case, branch, tip, here=False), head(repo)
        since = merge_base(repo, now, tip)
        is_in = since == tip  # merged and undone
        found = changes(repo, branch.base if is_in or since is None else since, tip)
        conflicts = tuple(merge_preview(repo, now, tip))
    except (UserError, GitError) as error:
        return MergeOutlook(why_not=error.what if isinstance(error, UserError) else str(error))
    return MergeOutlook(
        onto,
        len(found),
        sum(one.added or 0 for one in found),
        sum(one.deleted or 0 for one in found),
        conflicts,
    )


def became_now(site: Site, case: Case) -> str:
    """Return what became of the branch that `placet status` names, by now.

    That is what the journal has where git does not say.
    """
    if (known := case.branch) is None:
        return ""
    try:
        _, branch, repo = mission_of(site, case.trace_id, told_branch)
        fate = fate_in_checkout(repo, branch) or fate_of(repo, branch)
        if fate is None:
            name = merged_elsewhere(repo, branch)
            return f"merged into {name}" if name else ""
        if fate.became == "merged" and taken_back_by(repo, branch, fate.commit_sha):
            return "reverted"
    except (UserError, GitError):
        return known.became
    is_said = fate.became == "gone" and known.became == "dropped"
    return "dropped" if is_said else fate.became


def mission_of(site: Site, ident: str, which: Which = open_branch) -> tuple[Case, Branch, Repo]:
    """Return a case, one of the branches of its completed missions, and the branch's repository.

    It may be asked for again since. Raises UserError (exit code 3) for a case without any.
    """
    case = site.case(ident)
    branch = which(case)
    if branch is None:
        without = " without changes" if case.state is State.COMPLETED else ""
        raise UserError(
            f"{state_sentence(case)}{without}, and has no finished branch.",
            f"Look at it: placet show {case.request_id}",
            exit_code=3,
        )
    return case, branch, repo_of(site, case, branch.portal)


def _work(site: Site, case: Case, branch: Branch, repo: Repo) -> Work:
    keeps = repo.path == real_path(site.vault) and load(site.vault).vault.history is not False
    return Work(case, branch, repo, site.vault, site.state.folder, keeps, site.say)


def repo_of(site: Site, case: Case, portal: str) -> Repo:
    """Return the repository of a case's work; raises UserError (exit code 2) where it is gone."""
    config = site.in_force().config
    if portal and portal not in config.portals:
        raise UserError(
            f"The portal {portal} is no longer configured.",
            f"placet portal add {portal} PATH",
            exit_code=2,
        )
    place = portal_path(site.vault, config, portal)
    if not is_repository(place):
        raise UserError(
            f"The repository of {case.request_id} is no longer at {place}.",
            f"Put it back, or fix the path of {portal or 'the vault'} in {CONFIG_PATH}.",
            exit_code=2,
        )
    return open_repo(place)


def drop(site: Site, ident: str, reason: str, *, seen: str | None = None) -> str:
    """Delete a mission's branch, with the reason written into its report.

    `seen` is the commit whose changes the person read, None for whatever the branch is at. Return
    the ref that keeps the commits.

    Raises UserError where it is merged, checked out somewhere, has other commits than `seen`, or
    the report cannot take the reason.
    """
    return _drop(site, *mission_of(site, ident), reason, seen)


def _drop(site: Site, case: Case, branch: Branch, repo: Repo, reason: str, seen: str | None) -> str:
    keys = {"dropped_reason": reason, "dropped_by": site.who}
    kept = drop_work(_work(site, case, branch, repo), keys, seen)
    claim(site, case, "drop", branch.tip)
    return kept


def undo(site: Site, ident: str, ask: Callable[[str], bool]) -> tuple[str, str]:
    """Drop a mission's branch, or undo its merge with a new commit.

    If the checked-out branch contains the mission, it undoes that. Returns the new commit and its
    branch; for a dropped branch, the ref that keeps its commits and "". It calls `ask` before any
    change. Raises UserError, with nothing changed, if `ask` says no or it cannot be done.
    """
    case, branch, repo = mission_of(site, ident, done_branch)
    fate = fate_in_checkout(repo, branch) or fate_of(repo, branch)
    if fate is None:
        return _undo_open(site, case, branch, repo, ask), ""
    sha = fate.commit_sha
    if not sha:
        raise UserError(f"{branch.name} is {fate.became} already, so there is nothing to undo.")
    commit_notes(_work(site, case, branch, repo))
    onto = branch_to_change(repo, sha)
    if not is_ancestor(repo, sha, "HEAD"):
        raise UserError(
            f"{onto} does not have {sha[:12]}, which brought the work in.",
            f"Check out the branch that has it: {repo.command_line} branch --contains {sha[:12]}",
        )
    commits = brought_in(repo, branch, sha)
    others = _not_of_mission(repo, branch, commits)
    if not ask(
        f"This undoes what {sha[:12]}{_whose(repo, sha)} brought into {onto} of {repo.path}, "
        "by a new commit."
        + (f" It undoes files that are not the mission's, too: {named(others)}." if others else "")
    ):
        raise UserError("Nothing was changed.")
    # Without the trailers of a mission's commit: this one does not bring its work in.
    message = f"Revert {branch.name}\n\nThis reverts commit {sha}.\n"
    try:
        with one_at_a_time(repo, site.say):
            if branch_to_change(repo, sha) != onto:
                raise UserError(
                    f"{repo.path} is no longer on {onto}.", "Look at it, then try again."
                )
            made = revert_in_checkout(repo, onto, commits, message, Clock().wall())
    except Conflicts as found:
        mainline = "-m 1 " if len(parents_of(repo, commits[0])) > 1 else ""
        raise UserError(
            f"The undo conflicts in: {', '.join(map(show, found.paths))}. "
            "The checkout is unchanged.",
            f"Revert by hand: {repo.command_line} revert {mainline}"
            + " ".join(sha[:12] for sha in commits),
        ) from found
    except GitError as error:
        raise UserError(
            f"git cannot undo it: {error.stderr}",
            "Nothing was undone, and your files are as you saved them.",
        ) from error
    claim(site, case, "undo", made)
    return made, onto


def also_undone(site: Site, ident: str) -> list[str]:
    """Return the files that an undo of a merge changes although they are not the mission's."""
    _, branch, repo = mission_of(site, ident, done_branch)
    fate = fate_in_checkout(repo, branch) or fate_of(repo, branch)
    if fate is None or not fate.commit_sha:
        return []
    return _not_of_mission(repo, branch, brought_in(repo, branch, fate.commit_sha))


def _not_of_mission(repo: Repo, branch: Branch, commits: Sequence[str]) -> list[str]:
    """Return the files of these commits that the mission's commits did not change.

    Those are all of them where the mission's commits are gone.
    """
    known = resolve(repo, branch.base) is not None and resolve(repo, branch.tip) is not None
    own = {change.path for change in changes(repo, branch.base, branch.tip)} if known else set()
    return sorted({path for sha in commits for path in touched_by(repo, sha)} - own)


def named(paths: Sequence[str]) -> str:
    """Return the first of these paths, for a sentence."""
    return some_of([*map(show, paths)], 5)


def _undo_open(
    site: Site, case: Case, branch: Branch, repo: Repo, ask: Callable[[str], bool]
) -> str:
    """Drop a branch that was not merged; return the ref that keeps its commits."""
    if name := merged_elsewhere(repo, branch):
        raise UserError(
            f"It is merged into {show(name)}. Check that branch out to undo it.",
            f"{repo.command_line} switch {shlex.quote(name)} && placet undo {case.request_id}",
        )
    tip = resolve(repo, branch.ref)
    if not ask(f"This drops the branch {branch.name} of {repo.path}; its commits stay reachable."):
        raise UserError("Nothing was changed.")
    return _drop(site, case, branch, repo, "undone", tip)


def _whose(repo: Repo, sha: str) -> str:
    """Return whose commit this is, where it names no mission: it may have more in it."""
    found = (
        log(repo, "-1", sha)
        if not trailers_of(repo, sha, "Placet-Trace")[0] and parents_of(repo, sha)
        else []
    )
    return f" ({show(found[0].subject)!r} of {show(found[0].author)})" if found else ""
