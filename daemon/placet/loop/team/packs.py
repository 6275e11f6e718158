"""Commits on their way: from the person's repository to workers, and from them back."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from placet.agent.calls import MACHINE_RETRY_S
from placet.agent.record import Postponed
from placet.agent.workplace import Ports, denied_in
from placet.core.errors import UserError, passing
from placet.core.life.waiting import Why
from placet.core.stored import Stored
from placet.host.state import make_empty, write_private
from placet.journal.team import PART_BYTES, DropPacks, PutPart, PutRefs
from placet.journal.team_rows import part_of, refs_of
from placet.journal.writer import Journal
from placet.journal.writes import Write
from placet.loop.team.parcel import Loan
from placet.repo.packs import (
    clear_clone,
    clone_at,
    is_whole,
    loose_refs,
    move_refs,
    packed,
    refs_at,
    unpack,
)
from placet.repo.places import Repo, place_of
from placet.repo.repository import KEPT_MARK, current_branch, is_repository, resolve
from placet.repo.runner import run_git
from placet.repo.values import GitError, RepositoryChanged

LONGEST_CHAIN = 50
"""Packs of a repository after which one begins anew with all of it."""
LAST = 1 << 60
"""A number above that of any pack."""
_KEPT_SETTINGS = ("user.name", "user.email", "core.autocrlf", "core.eol", KEPT_MARK)
_AS_LENT = "placet.json"
"""The file in a clone that says how it was lent last."""
_LOAN_JSON = Stored[Loan](Loan)


def owner_of_portal(portal: str) -> str:
    """Return under which name the packs of a portal's repository travel."""
    return f"portal/{portal}"


def owner_of_mission(trace_id: str, generation: int) -> str:
    """Return under which name the packs of a mission travel."""
    return f"mission/{trace_id}/{generation}"


# --- from the person's repository


def lend(ports: Ports, repo: Repo, portal: str, commits: Mapping[str, str]) -> Loan:
    """Make sure that workers can have some commits; return how they make their clone.

    `commits` are references that they need, an empty name for a commit that none needs, and an
    empty commit for a reference that is gone.
    """
    owner, wants = owner_of_portal(portal), sorted({one for one in commits.values() if one})
    with ports.journal.read() as reader:
        known = refs_of(reader.connection, owner)
    last = known[-1][0] if known else 0
    had = [one for _, refs in known for one in json.loads(refs)]
    shallow = _text(repo.common_dir / "shallow")
    # a commit brings more objects once its history was cut short no longer, and none where the
    # portal names a repository of the other kind now
    kind = f"shallow: {len(wants[0])} {sha256(os.fsencode(shallow)).hexdigest()}"
    anew = len(known) >= LONGEST_CHAIN or kind not in had[-1:]
    haves = [] if anew else [one for one in dict.fromkeys(had) if resolve(repo, one) is not None]
    if anew or not set(wants) <= set(had):
        with packed(repo, wants, haves) as pack:
            if pack is not None:
                last += 1
                for part in _parts(owner, last, pack):
                    ports.journal.commit([part])
                void = [DropPacks(owner, last)] if anew else []
                ports.journal.commit([PutRefs(owner, last, json.dumps([*wants, kind])), *void])
    branch = current_branch(repo)
    settings = {key: value for key in _KEPT_SETTINGS if (value := repo.setting(key)) is not None}
    return Loan(
        owner,
        last,
        tuple(wants),
        {name: commit for name, commit in commits.items() if name},
        f"refs/heads/{branch}" if branch else "",
        str(repo.path),
        denied_in(repo, ports.vault),
        sha256=len(wants[0]) > 40,
        shallow=shallow,
        settings=settings,
        exclude=_text(repo.common_dir / "info" / "exclude"),
        attributes=_text(repo.common_dir / "info" / "attributes"),
    )


def _parts(owner: str, seq: int, pack: Path) -> list[PutPart]:
    raw = pack.read_bytes()
    pieces = range(0, len(raw), PART_BYTES)
    return [PutPart(owner, seq, n, raw[at : at + PART_BYTES]) for n, at in enumerate(pieces)]


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""


# --- to a worker's clone


def borrow(journal: Journal, folder: Path, loan: Loan) -> Repo:
    """Return a worker's clone of a repository, brought up to what was lent.

    Raises Postponed for one that is damaged, or for packs that are there no more.
    """
    path = folder / _name_of(loan)
    try:
        return _borrow(journal, path, loan)
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


def _borrow(journal: Journal, path: Path, loan: Loan) -> Repo:
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
        for key in _KEPT_SETTINGS:
            run_git(place_of(repo), "config", "--unset-all", key, ok=(0, 5))
        for key, value in loan.settings.items():
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


def take(
    journal: Journal, repo: Repo, owner: str, *, after: int = 0, until: int | None = None
) -> int:
    """Take the packs of an owner into a repository, those after a number; return the last one's."""
    with journal.read() as reader:
        known = [seq for seq, _ in refs_of(reader.connection, owner)]
    for seq in known:
        if seq <= after or (until is not None and seq > until):
            continue
        with tempfile.TemporaryFile() as pack:
            part = 0
            while True:
                with journal.read() as reader:
                    body = part_of(reader.connection, owner, seq, part)
                if body is None:
                    break
                pack.write(body)
                part += 1
            if part:
                pack.seek(0)
                unpack(repo, pack)
        after = seq
    return after


def lend_mission(
    journal: Journal, repo: Repo, names: Sequence[str], owner: str, lent: Sequence[str]
) -> None:
    """Give workers a mission that none had: its references `names`; `lent` are what all have."""
    at = refs_at(repo, names)
    with packed(repo, sorted({*at.values()}), lent) as pack:
        parts = _parts(owner, 1, pack) if pack is not None else []
    journal.commit([*parts, PutRefs(owner, 1, json.dumps(at))])


# --- and back


class PackCarrier:
    """Takes a mission's commits along with its record, as packs in the same transaction."""

    def __init__(
        self, repo: Repo, names: Sequence[str], owner: str, seq: int, lent: Sequence[str]
    ) -> None:
        """`seq` is the number of the mission's last pack, `lent` are commits that all have."""
        self._repo, self._names, self._owner, self._lent = repo, names, owner, lent
        self._seq = seq
        self._known = loose_refs(repo, names)
        self._next: dict[str, str] | None = None

    def writes(self) -> list[Write]:
        """Return the writes that bring what changed."""
        now = loose_refs(self._repo, self._names)
        if now == self._known or not is_repository(self._repo.common_dir):
            return []  # of a clone that was deleted no reference was
        had = {*self._known.values()}
        news = sorted(set(now.values()) - had)
        seq, found = self._seq + 1, list[Write]()
        if news:
            with packed(self._repo, news, [*sorted(had), *self._lent]) as pack:
                found += _parts(self._owner, seq, pack) if pack is not None else []
        self._next = now
        return [*found, PutRefs(self._owner, seq, json.dumps(now))]

    def sent(self) -> None:
        """Take note that they were committed."""
        if self._next is not None:
            self._known, self._next = self._next, None
            self._seq += 1


def rows_of_mission(journal: Journal, owner: str) -> list[tuple[int, Mapping[str, str]]]:
    """Return the numbers of a mission's packs, with its references after each, in order."""
    with journal.read() as reader:
        return [(seq, json.loads(refs)) for seq, refs in refs_of(reader.connection, owner)]
