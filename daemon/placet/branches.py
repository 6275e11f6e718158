"""What the command line does with repositories and the branches in them: portals, looking at a branch, merging, dropping.

This is a person's own hand, by name: the only code of placet that writes to a person's checkout, and only in `merge` and `undo`.
"""

from __future__ import annotations

import getpass
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from placet.aftermath import Open, fate_of
from placet.aftermath import remove_leftovers as leftovers
from placet.clock import Clock
from placet.config import CONFIG_PATH, load, portal_path
from placet.core.case import CASE_JSON, WORKING, Case, State
from placet.core.errors import UserError
from placet.core.names import Folder, show
from placet.core.note import stamp
from placet.core.portal import Card, how_to_test, languages, render_card
from placet.desk import find
from placet.journal import open_reader
from placet.lease import lock_holder
from placet.repo import (
    Conflicts,
    GitError,
    Repo,
    RepositoryChanged,
    brought_in,
    commit_message,
    content,
    current_branch,
    default_branch,
    diff_text,
    drop_branch,
    is_ancestor,
    is_checked_out,
    is_repository,
    merge_into_checkout,
    not_ready,
    notes,
    open_repo,
    paths_at,
    resolve,
    revert_in_checkout,
)
from placet.state import vault_state
from placet.vault import AlreadyThere, Changed, Gone, Vault

MAX_READ_BYTES = 256 * 1024
"""How much of a build file is read to find out how a repository is tested."""


# --- portals --------------------------------------------------------------------------------------------------


def add_portal(vault: Path, name: str, given: str, here: Path, say: Callable[[str], None]) -> str:
    """Name a repository in System/placet.toml and write its card; return the path as it is written there.

    `~` and absolute paths stay as they are given; a path relative to `here` is written relative to the vault where it is
    inside of it, else absolute. Raises UserError for a name that is taken, or a folder that cannot be a repository.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise UserError(f"{name!r} cannot be a portal's name.", "Use letters, digits, `-` and `_`.", exit_code=2)
    config = load(vault)
    if name in config.portals:
        raise UserError(f"There is a portal {name} already: {config.portals[name].path}", f"placet portal remove {name}",
                        exit_code=2)
    place = Path(given).expanduser()
    if not place.is_absolute():
        place = Path(os.path.normpath(here / place))
    if not place.is_dir():
        raise UserError(f"{place} is not a folder.", "Give the folder of a repository.", exit_code=2)
    if is_repository(place) or _is_inside_one(place):
        open_repo(place)
    else:
        say(f"{place} is no git repository yet: the first request that names it makes it one, with a commit of what is there.")
    kept = Path(given)
    if given.startswith("~") or kept.is_absolute():
        written = given
    else:
        written = str(place.relative_to(vault)) if place.is_relative_to(vault) else str(place)

    def with_it(document: Any) -> None:
        import tomlkit
        from tomlkit.items import InlineTable

        everyone = document.setdefault("portals", tomlkit.table(is_super_table=True))
        table = tomlkit.inline_table() if isinstance(everyone, InlineTable) else tomlkit.table()
        table["path"] = written
        everyone[name] = table

    _edit_portals(vault, with_it, {**{n: p.model_dump() for n, p in config.portals.items()}, name: {"path": written}})
    refresh_card(vault, name)
    return written


def _is_inside_one(place: Path) -> bool:
    return any(os.path.lexists(parent / ".git") for parent in place.resolve().parents)


def remove_portal(vault: Path, name: str) -> None:
    """Take a portal out of System/placet.toml; the repository and the card stay. Raises UserError where there is none."""
    config = load(vault)
    _must_be_portal(vault, name)
    left = {n: p.model_dump() for n, p in config.portals.items() if n != name}

    def without_it(document: Any) -> None:
        del document["portals"][name]
        if not document["portals"]:
            del document["portals"]

    _edit_portals(vault, without_it, left)


def _edit_portals(vault: Path, edit: Callable[[Any], None], wanted: dict[str, Any]) -> None:
    """Edit the configuration by tomlkit, so that every other byte stays, and make sure that it then says what it should."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    path = vault / CONFIG_PATH
    by_hand = "Change [portals] by hand."
    try:
        raw = path.read_bytes()
        if raw and not raw.endswith(b"\n"):
            raw += b"\n"
        before = tomllib.loads(raw.decode())
        document = tomlkit.parse(raw.decode())
        edit(document)
        text = tomlkit.dumps(document)
        after = tomllib.loads(text)
        if after.pop("portals", {}) != wanted or after != {k: v for k, v in before.items() if k != "portals"}:
            raise UserError(f"{path} cannot be changed safely as it is written.", by_hand)
        aside = path.with_name(f".placet-{os.getpid()}.tmp")
        aside.write_bytes(text.encode())
        aside.replace(path)
    except (OSError, UnicodeDecodeError, TOMLKitError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path} cannot be changed: {error}", by_hand) from error


def _must_be_portal(vault: Path, name: str) -> None:
    names = load(vault).portals
    if name not in names:
        raise UserError(f"There is no portal {name!r}.", f"There are: {', '.join(names) or 'none'}.", exit_code=2)


def portals(vault: Path) -> list[dict[str, Any]]:
    """Return the portals as they are configured: name, path as written, the folder it means, whether it is there."""
    config = load(vault)
    return [{"name": name, "path": portal.path, "folder": str(portal_path(vault, config, name)),
             "there": portal_path(vault, config, name).is_dir()} for name, portal in config.portals.items()]


def check_portals(vault: Path, name: str | None) -> list[dict[str, Any]]:
    """Look at one portal, or all: what git says of it, and what a mission will feel; refresh the cards of those that are good.

    `problem` is empty where a request can name the portal.
    """
    if name is not None:
        _must_be_portal(vault, name)
    found = []
    for line in portals(vault):
        if name not in (None, line["name"]):
            continue
        place = Path(line["folder"])
        line |= {"problem": "" if place.is_dir() else f"{place} is not a folder.", "notes": [], "branch": ""}
        found.append(line)
        if line["problem"]:
            continue
        try:
            if is_repository(place) or _is_inside_one(place):
                repo = open_repo(place)
                line["notes"], line["branch"] = notes(repo), default_branch(repo)
            else:
                line["notes"] = ["It is no git repository yet; the first request that names it makes it one."]
            line["card"] = refresh_card(vault, line["name"])
        except UserError as error:
            line["problem"] = error.what
    return found


def refresh_card(vault: Path, name: str) -> str:
    """Write what is known of a portal's repository into `Knowledge/Portals/{name}.md`; return that path.

    What a person wrote in the note around placet's part stays as it is.
    """
    config = load(vault)
    card = _card(name, config.portals[name].path, portal_path(vault, config, name))
    path = f"{Folder.KNOWLEDGE}/Portals/{name}.md"
    with Vault(vault) as folder:
        for _ in range(5):
            with suppress(Changed, AlreadyThere):
                try:
                    raw, _fingerprint = folder.read(path)
                except Gone:
                    folder.publish(path, render_card(card, None).encode(errors="replace"))
                    return path
                text = render_card(card, raw.decode(errors="surrogateescape")).encode(errors="surrogateescape")
                if text != raw:
                    folder.replace(path, sha256(raw).hexdigest(), text)
                return path
    raise UserError(f"{path} keeps changing.", "Close the editor that has it open, then try again.")


def _card(name: str, written: str, place: Path) -> Card:
    if not is_repository(place):
        return Card(name, written, "", (), (), "It is no git repository yet.")
    repo = open_repo(place)
    rev = resolve(repo, "HEAD")
    if rev is None:
        return Card(name, written, default_branch(repo), (), (), "There is no commit yet.")
    paths = paths_at(repo, rev)
    return Card(name, written, default_branch(repo), languages(paths),
                how_to_test(paths, lambda path: content(repo, rev, path, max_bytes=MAX_READ_BYTES)))


# --- a mission's branch ---------------------------------------------------------------------------------------


def diff(vault: Path, env: Mapping[str, str], ident: str) -> str:
    """Return what a mission changed, as a patch."""
    case, repo = _mission(vault, env, ident)
    tip = resolve(repo, f"refs/heads/{case.branch}") or resolve(repo, case.tip)
    if tip is None or resolve(repo, case.base) is None:
        raise UserError(f"The branch {case.branch} and its commits are gone.", f"Look at it: placet show {case.request_id}")
    return diff_text(repo, case.base, tip)


def merge(vault: Path, env: Mapping[str, str], ident: str, *, here: bool) -> tuple[str, str]:
    """Merge a mission's branch into the branch that the person has checked out; return the merge commit and that branch.

    `here` allows a branch other than the default one. Raises UserError, with nothing changed, where the checkout has
    uncommitted changes, something is in progress in it, or the merge would conflict.
    """
    case, repo = _mission(vault, env, ident)
    tip = resolve(repo, f"refs/heads/{case.branch}")
    if tip is None:
        raise UserError(f"The branch {case.branch} is gone.", f"Look at it: placet show {case.request_id}", exit_code=3)
    onto = _checkout(repo, tip, f"git -C '{repo.path}' merge --no-ff {case.branch}")
    into = default_branch(repo)
    if onto != into and not here:
        raise UserError(f"{repo.path} is on {onto}, not on {into}.", f"Check {into} out; or merge into {onto}: placet merge "
                        f"{case.request_id} --here")
    if is_ancestor(repo, tip, "HEAD"):
        raise UserError(f"{onto} has {case.branch} already.", f"Look at it: placet show {case.request_id}")
    message = commit_message(f"Merge {case.branch}: {case.title}", "", case.trace_id, case.approved_digest, case.approved_by)
    try:
        return merge_into_checkout(repo, onto, tip, message, Clock().wall()), onto
    except Conflicts as found:
        raise UserError(f"Merging {case.branch} into {onto} conflicts in: {', '.join(map(show, found.paths))}. "
                        "The checkout is as it was.", f"Merge by hand: git -C '{repo.path}' merge --no-ff {case.branch}") from found
    except GitError as error:
        raise UserError(f"git does not merge: {error.stderr}", "The checkout is as it was.") from error


def drop(vault: Path, env: Mapping[str, str], ident: str, reason: str) -> str:
    """Delete a mission's branch, with the reason written into its report; return the ref that keeps the commits.

    Raises UserError where it is merged, checked out somewhere, or the report that takes the reason is gone.
    """
    case, repo = _mission(vault, env, ident)
    if fate_of(repo, _as_open(case)) is not None:
        raise UserError(f"{case.branch} is merged or gone already.", f"Take a merge back: placet undo {case.request_id}")
    tip = resolve(repo, f"refs/heads/{case.branch}")
    if tip is None:
        raise UserError(f"There is no branch {case.branch}; another branch has its commits.", "Delete that one by hand.",
                        exit_code=3)
    if is_checked_out(repo, case.branch):
        raise UserError(f"{case.branch} is checked out.", f"See where: git -C '{repo.path}' worktree list")
    with Vault(vault) as folder:
        for _ in range(5):
            with suppress(Changed):
                try:
                    raw, _fingerprint = folder.read(case.report_path)
                except Gone as error:
                    raise UserError(f"The report {case.report_path} is gone, which the reason is written into.",
                                    f"Put it back, or: git -C '{repo.path}' branch -D {case.branch}") from error
                folder.replace(case.report_path, sha256(raw).hexdigest(),
                               stamp(raw, {"dropped_reason": reason, "dropped_by": getpass.getuser()}))
                break
    kept = f"refs/placet/dropped/{case.request_id}-{case.trace8}-{case.generation}"
    try:
        drop_branch(repo, case.branch, tip, kept)
    except RepositoryChanged as error:
        raise UserError(str(error), f"git -C '{repo.path}' worktree list") from error
    return kept


def undo(vault: Path, env: Mapping[str, str], ident: str, ask: Callable[[str], bool]) -> str:
    """Drop a mission's branch, or take back by a new commit what was merged of it; return a sentence on what was done.

    `ask` is asked before anything is changed. Raises UserError, with nothing changed, where it says no or it cannot be done.
    """
    case, repo = _mission(vault, env, ident)
    fate = fate_of(repo, _as_open(case))
    if fate is None:
        if not ask(f"Drop the branch {case.branch} of {repo.path}?"):
            raise UserError("Nothing was changed.")
        kept = drop(vault, env, ident, "undone")
        return f"dropped; its commits are kept at {kept}"
    if not fate.commit_sha:
        raise UserError(f"{case.branch} was dropped already, so there is nothing to undo.")
    onto = _checkout(repo, fate.commit_sha, f"git -C '{repo.path}' revert {fate.commit_sha[:12]}")
    if not is_ancestor(repo, fate.commit_sha, "HEAD"):
        raise UserError(f"{onto} does not have {fate.commit_sha[:12]}, which brought the work in.",
                        f"Check out the branch that has it: git -C '{repo.path}' branch --contains {fate.commit_sha[:12]}")
    if not ask(f"Take back what {fate.commit_sha[:12]} brought into {onto} of {repo.path}, by a new commit?"):
        raise UserError("Nothing was changed.")
    # Without the trailers of a mission's commit: this one does not bring its work in.
    message = f"Revert {case.branch}\n\nWhat {fate.commit_sha} brought in is taken back.\n"
    commits = brought_in(repo, case.base, case.tip, case.trace_id, fate.commit_sha)
    try:
        return f"taken back by {revert_in_checkout(repo, onto, commits, message, Clock().wall())[:12]} on {onto}"
    except Conflicts as found:
        raise UserError(f"Taking it back conflicts in: {', '.join(map(show, found.paths))}. The checkout is as it was.",
                        f"By hand: git -C '{repo.path}' revert {' '.join(sha[:12] for sha in commits)}") from found
    except GitError as error:
        raise UserError(f"git does not take it back: {error.stderr}", "The checkout is as it was.") from error


def _mission(vault: Path, env: Mapping[str, str], ident: str) -> tuple[Case, Repo]:
    """Return a completed case with a branch, and its repository. Raises UserError (exit code 3) for any other."""
    with open_reader(vault_state(vault, env).journal) as reader:
        case = find(reader, ident)
    if case.state is not State.COMPLETED or not case.tip:
        raise UserError(f"{case.request_id} is {case.state}" + (" without changes" if case.state is State.COMPLETED else "")
                        + ", so there is no branch of it.", f"Look at it: placet show {case.request_id}", exit_code=3)
    config = load(vault)
    if case.portal and case.portal not in config.portals:
        raise UserError(f"The portal {case.portal} is no longer configured.", f"placet portal add {case.portal} PATH", exit_code=2)
    return case, open_repo(portal_path(vault, config, case.portal))


def _as_open(case: Case) -> Open:
    return Open(case.trace_id, case.generation, case.branch, case.base, case.tip)


def _checkout(repo: Repo, rev: str, by_hand: str) -> str:
    """Return the branch that the person has checked out. Raises UserError where it is not safe to work in the checkout."""
    why = not_ready(repo, rev)
    if why:
        raise UserError(why, f"Or by hand: {by_hand}")
    return current_branch(repo)


# --- leftovers of a crash -------------------------------------------------------------------------------------


def remove_leftovers(vault: Path, env: Mapping[str, str]) -> list[str]:
    """Remove worktrees that a crash left behind, after keeping their work at a ref; return a sentence on each.

    A leftover is a worktree whose case is not at work. Raises UserError while a daemon runs: its worktrees are in use.
    """
    state = vault_state(vault, env)
    if holder := lock_holder(state.lock):
        raise UserError(f"The daemon is running ({holder}); its worktrees are in use.", "Stop it first.")
    with open_reader(state.journal) as reader:
        live = {case.trace8 for row in reader.cases() if (case := CASE_JSON.validate_json(row.body)).state in WORKING}
    config = load(vault)
    places = [vault, *(portal_path(vault, config, name) for name in config.portals)]
    repos = [open_repo(place) for place in places if place.is_dir() and is_repository(place)]
    now = Clock().wall()
    return [f"{one.path} " + (f"is left as it is: {one.problem}" if not one.removed else "is removed; "
                              + (f"its work is kept at {one.kept}." if one.kept else "it had no work in it."))
            for one in leftovers(repos, state.worktrees, live, now, now)]
