"""Commits on their way: from the person's repository to workers, and from them back."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placet.agent.record import Postponed
from placet.agent.workplace import Ports, denied_in
from placet.core.life.waiting import Why
from placet.core.stored import Stored
from placet.host.state import write_private
from placet.journal.team import PART_BYTES, DropPacks, PutPart, PutRefs
from placet.journal.team_rows import part_of, refs_of
from placet.journal.writer import Journal
from placet.journal.writes import Write
from placet.loop.team.parcel import Loan
from placet.repo.fetching import fetch, has_all, met_at, said_of, url_of
from placet.repo.packs import clear_clone, clone_at, loose_refs, move_refs, packed, refs_at, unpack
from placet.repo.places import Repo, place_of
from placet.repo.repository import KEPT_MARK, current_branch, resolve
from placet.repo.runner import run_git
from placet.repo.values import GitError

FETCH_RETRY_S = 5.0
"""Retry interval while a remote gives nothing."""
LONGEST_CHAIN = 50
"""Packs of a repository after which one begins anew with all of it."""
_KEPT_SETTINGS = ("user.name", "user.email", "core.autocrlf", "core.eol", KEPT_MARK)
_AS_LENT = "placet.json"
"""The file in a clone that says how it was lent last."""
_LOAN_JSON = Stored[Loan](Loan)


@dataclass(frozen=True, slots=True)
class _Lending:
    """A pack of a portal's repository brings all of `commits`, but what a remote has."""

    commits: tuple[str, ...]
    at_remote: tuple[str, ...]


_LENDING_JSON = Stored[_Lending](_Lending)


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
    table = ports.config.portals.get(portal)
    remote = table.remote if table is not None and not repo.is_shallow else ""
    with ports.journal.read() as reader:
        rows = refs_of(reader.connection, owner)
    known = [(seq, _LENDING_JSON.validate_json(text)) for seq, text in rows]
    had = [one for _, lent in known for one in lent.commits]
    met = [one for _, lent in known for one in lent.at_remote]
    gone = met and not (remote and has_all(repo, remote, met))
    anew = gone or len(known) >= LONGEST_CHAIN
    last = known[-1][0] if known else 0
    if anew or not set(wants) <= set(had):
        last += 1
        now = _Lending(tuple(wants), tuple(met_at(repo, remote, wants)) if remote else ())
        haves = [] if anew else [one for one in had if resolve(repo, one) is not None]
        with packed(repo, wants, [*haves, *now.at_remote]) as pack:
            for part in _parts(owner, last, pack) if pack is not None else []:
                ports.journal.commit([part])
        ports.journal.commit([PutRefs(owner, last, _LENDING_JSON.dump_json(now).decode())])
        if anew:
            ports.journal.commit([DropPacks(owner, last)])
        met = [*([] if anew else met), *now.at_remote]
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
        shallow=_text(repo.common_dir / "shallow"),
        settings=settings,
        exclude=_text(repo.common_dir / "info" / "exclude"),
        attributes=_text(repo.common_dir / "info" / "attributes"),
        remote=url_of(repo, remote) if met else "",
        at_remote=tuple(dict.fromkeys(met)),
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


def clone_of(folder: Path, loan: Loan) -> Repo:
    """Return a worker's clone of a repository, with what the remote has of the loan.

    Raises Postponed where the remote does not give it.
    """
    name = loan.owner.removeprefix("portal/") or "vault"
    suffix = ".sha256.git" if loan.sha256 else ".git"
    repo = clone_at(folder / f"{name}{suffix}", sha256=loan.sha256)
    try:
        fetch(repo, loan.remote, loan.at_remote)
    except GitError as error:
        raise Postponed(
            f"a worker cannot fetch from {loan.remote}: {said_of(error.stderr)}. There, try: "
            f"git ls-remote {shlex.quote(loan.remote)}. If that has the commit no more: "
            f"git -C {shlex.quote(loan.path)} fetch",
            FETCH_RETRY_S,
            Why.MACHINE,
        ) from error
    return repo


def borrow(journal: Journal, repo: Repo, loan: Loan) -> Repo:
    """Return a worker's clone, brought up to what was lent.

    Raises Postponed where the repository was lent anew meanwhile.
    """
    path = repo.path
    known = _known(path)
    taken = take(journal, repo, loan.owner, after=int(known.get("seq", 0)), until=loan.seq)
    if not all(resolve(repo, commit) for commit in loan.commits):
        raise Postponed("its repository was lent anew meanwhile", 0.0, Why.WORKER)
    now = {"seq": taken, **json.loads(_LOAN_JSON.dump_json(loan))}
    if now == known:
        return repo
    if loan.shallow:
        write_private(repo.git_dir / "shallow", loan.shallow.encode())
    else:
        (repo.git_dir / "shallow").unlink(missing_ok=True)
    for file, text in (("exclude", loan.exclude), ("attributes", loan.attributes)):
        (repo.git_dir / "info").mkdir(exist_ok=True)
        write_private(repo.git_dir / "info" / file, text.encode("utf-8", "surrogateescape"))
    for key, value in loan.settings.items():
        run_git(place_of(repo), "config", key, value)
    there = refs_at(repo, [*loan.refs])
    move_refs(repo, {name: commit for name, commit in loan.refs.items() if commit or name in there})
    if loan.head:
        run_git(place_of(repo), "symbolic-ref", "HEAD", loan.head)
    write_private(repo.git_dir / _AS_LENT, json.dumps(now).encode())
    return clone_at(path, sha256=loan.sha256)  # with its settings read anew


def clear_clones(folder: Path) -> None:
    """Delete from all clones what a killed worker left of its work; their objects stay."""
    for path in folder.glob("*.git"):
        seq = _known(path).get("seq", 0)
        clear_clone(path)
        write_private(path / _AS_LENT, json.dumps({"seq": seq}).encode())


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
        if now == self._known:
            return []
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
