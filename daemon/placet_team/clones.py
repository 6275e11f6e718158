"""A worker's clones: what it was lent of repositories, kept for the next time."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from placet.agent.record import Postponed
from placet.agent.tool_calls import MACHINE_RETRY_S
from placet.case.waiting import Why
from placet.codec import Stored
from placet.errors import UserError, passing
from placet.git.run import GitError, Repo, RepositoryChanged, place_of, run_git
from placet.host.state import make_empty, write_private
from placet.journal.writer import JournalAccess
from placet_team.git_fetching import fetch, said_of
from placet_team.git_packs import (
    clear_clone,
    clone_at,
    is_whole,
    move_refs,
    must_be_ours,
    refs_at,
)
from placet_team.packs import KEPT_SETTINGS, portal_of, take
from placet_team.parcel import Loan

FETCH_RETRY_S = 5.0
"""Retry interval while a remote gives nothing."""
_AS_LENT = "placet.json"
"""The file in a clone that says how it was lent last."""
_LOAN_JSON = Stored[Loan](Loan)


def fetched(folder: Path, loan: Loan, remotes: Mapping[str, str]) -> Path:
    """Return where a worker's clone of a repository is, with what the remote has of the loan.

    `remotes` are the worker's own, by portal. Raises Postponed where the remote does not give it,
    or for a clone that is damaged.
    """
    path, portal = folder / _name_of(loan), portal_of(loan.owner)
    url = remotes.get(portal, "")
    if loan.at_remote and not url:
        raise Postponed(
            f"a worker knows no git remote for the portal {portal}. In the file of its --config "
            f'write [remotes] {json.dumps(portal)} = "URL", and start it again',
            FETCH_RETRY_S,
            Why.MACHINE,
        )
    with _undamaged(path):
        repo = clone_at(path, sha256=loan.sha256)
        must_be_ours(repo, KEPT_SETTINGS)
    try:
        fetch(repo, url, loan.at_remote)
    except GitError as error:
        raise Postponed(
            f"a worker cannot fetch from {said_of(url)}: {said_of(error.stderr)}. There, try: "
            f"git ls-remote {shlex.quote(said_of(url))}. If that has the commit no more: "
            f"git -C {shlex.quote(loan.path)} fetch",
            FETCH_RETRY_S,
            Why.MACHINE,
        ) from error
    return path


def borrow(journal: JournalAccess, path: Path, loan: Loan) -> Repo:
    """Return a worker's clone, brought up to what was lent.

    Raises Postponed for one that is damaged, or for packs that are there no more.
    """
    with _undamaged(path):
        return _borrow(journal, path, loan)


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    try:
        yield
    except (UserError, GitError, RepositoryChanged) as error:
        if passing(error):
            raise
        write_private(path / _AS_LENT, json.dumps({"damaged": True}).encode())
        raise Postponed(
            f"the worker's clone {path} is damaged, or lacks commits: {error}. Where they are not "
            "handed over again: stop the worker and start it again, which makes a new one",
            MACHINE_RETRY_S,
            Why.MACHINE,
        ) from error


def _borrow(journal: JournalAccess, path: Path, loan: Loan) -> Repo:
    repo = clone_at(path, sha256=loan.sha256)
    known = _known(path)
    taken = take(journal, repo, loan.owner, after=int(known.get("seq", 0)), until=loan.seq)
    if {"seq": taken, **json.loads(_LOAN_JSON.dump_json(loan))} == known:
        return repo
    if loan.shallow:
        write_private(repo.git_dir / "shallow", loan.shallow.encode("utf-8", "surrogateescape"))
    else:
        (repo.git_dir / "shallow").unlink(missing_ok=True)
    if not is_whole(repo, loan.commits, known.get("commits", ())):
        # what it took was of another database, or is damaged
        taken = take(journal, repo, loan.owner, until=loan.seq)
        if not is_whole(repo, loan.commits):
            raise RepositoryChanged(f"not all is there of {', '.join(loan.commits)}")
    now = {"seq": taken, **json.loads(_LOAN_JSON.dump_json(loan))}
    for file, text in (("exclude", loan.exclude), ("attributes", loan.attributes)):
        (repo.git_dir / "info").mkdir(exist_ok=True)
        write_private(repo.git_dir / "info" / file, text.encode("utf-8", "surrogateescape"))
    if known.get("settings") != loan.settings:
        for key in KEPT_SETTINGS:
            run_git(place_of(repo), "config", "--unset-all", key, ok=(0, 5))
            if (value := loan.settings.get(key)) is not None:
                run_git(place_of(repo), "config", "--end-of-options", key, value)
    there = refs_at(repo, [*loan.refs])
    move_refs(repo, {name: commit for name, commit in loan.refs.items() if commit or name in there})
    if loan.head:
        run_git(place_of(repo), "symbolic-ref", "HEAD", loan.head)
    write_private(repo.git_dir / _AS_LENT, json.dumps(now).encode())
    return clone_at(path, sha256=loan.sha256)  # with its settings read anew


def _name_of(loan: Loan) -> str:
    """Return the name of a clone's folder: a portal's may be any text, and differ in case alone."""
    owner = f"{loan.owner} {loan.sha256}"
    shown = re.sub(r"[^A-Za-z0-9_-]", "_", loan.owner.removeprefix("portal/"))[:40] or "vault"
    return f"{shown}-{sha256(owner.encode()).hexdigest()[:8]}.git"


def clear_clones(folder: Path) -> None:
    """Delete from all clones what a killed worker left of its work; their objects stay.

    A damaged one goes, as nobody works in it now.
    """
    for path in folder.glob("*.git"):
        known = _known(path)
        if "seq" not in known:
            make_empty(path)
            continue
        clear_clone(path)
        kept = {key: known[key] for key in ("seq", "commits") if key in known}
        write_private(path / _AS_LENT, json.dumps(kept).encode())


def _known(clone: Path) -> Mapping[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads((clone / _AS_LENT).read_bytes())
        if isinstance(found, dict):
            return found
    return {}
