"""Commits on their way: from the person's repository to workers, and from them back."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from placet.agent.workplace import Ports, denied_in
from placet.codec import Stored
from placet.git.repository import KEPT_MARK, current_branch, is_repository, resolve
from placet.git.run import Repo
from placet.journal.writer import JournalAccess
from placet.journal.writes import Write
from placet_team.git_fetching import has_all, met_at
from placet_team.git_packs import (
    loose_refs,
    packed,
    refs_at,
    unpack,
)
from placet_team.parcel import Loan
from placet_team.team_journal import PART_BYTES, DropPacks, PutPart, PutRefs
from placet_team.team_rows import part_of, refs_of

LONGEST_CHAIN = 50
"""Packs of a repository after which one begins anew with all of it."""
LAST = 1 << 60
"""A number above that of any pack."""
KEPT_SETTINGS = ("user.name", "user.email", "core.autocrlf", "core.eol", KEPT_MARK)
"""Settings of git that a clone has from the person's repository."""


@dataclass(frozen=True, slots=True)
class _Lending:
    """A pack of a portal's repository brings all of `commits`, but what a remote has.

    Only packs of repositories of the same `kind` go together.
    """

    commits: tuple[str, ...]
    at_remote: tuple[str, ...]
    kind: str


_LENDING_JSON = Stored[_Lending](_Lending)


def owner_of_portal(portal: str) -> str:
    """Return under which name the packs of a portal's repository travel."""
    return f"portal/{portal}"


def portal_of(owner: str) -> str:
    """Return the portal whose packs travel under a name."""
    return owner.removeprefix("portal/")


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
    known = [_LENDING_JSON.validate_json(text) for _, text in rows]
    had = [one for lent in known for one in lent.commits]
    met = [one for lent in known for one in lent.at_remote]
    shallow = _text(repo.common_dir / "shallow")
    # a commit brings more objects once its history was cut short no longer, and none where the
    # portal names a repository of the other kind now
    kind = f"{len(wants[0])} {sha256(os.fsencode(shallow)).hexdigest()}"
    gone = met and not (remote and has_all(repo, remote, met))
    anew = not known or known[-1].kind != kind or len(known) >= LONGEST_CHAIN or gone
    last = rows[-1][0] if rows else 0
    if anew or not set(wants) <= set(had):
        last += 1
        now = _Lending(tuple(wants), tuple(met_at(repo, remote, wants)) if remote else (), kind)
        haves = [] if anew else [one for one in had if resolve(repo, one) is not None]
        with packed(repo, wants, [*dict.fromkeys(haves), *now.at_remote]) as pack:
            for part in _parts(owner, last, pack) if pack is not None else []:
                ports.journal.commit([part])
        void = [DropPacks(owner, last)] if anew else []
        ports.journal.commit([PutRefs(owner, last, _LENDING_JSON.dump_json(now).decode()), *void])
        met = [*([] if anew else met), *now.at_remote]
    branch = current_branch(repo)
    settings = {key: value for key in KEPT_SETTINGS if (value := repo.setting(key)) is not None}
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


def take(
    journal: JournalAccess, repo: Repo, owner: str, *, after: int = 0, until: int | None = None
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
    journal: JournalAccess, repo: Repo, names: Sequence[str], owner: str, lent: Sequence[str]
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


def rows_of_mission(journal: JournalAccess, owner: str) -> list[tuple[int, Mapping[str, str]]]:
    """Return the numbers of a mission's packs, with its references after each, in order."""
    with journal.read() as reader:
        return [(seq, json.loads(refs)) for seq, refs in refs_of(reader.connection, owner)]
