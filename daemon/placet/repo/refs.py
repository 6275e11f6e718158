"""Branches of the person and of remotes, and where they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath

from placet.repo.places import Repo, place_of, rows_of


@dataclass(frozen=True, slots=True)
class Refs:
    """Every branch, of the person and of remotes, by its full name, with its commit in `at`.

    `symbolic` has what symbolic ones name. `current` is the person's branch that is checked out,
    empty where none of these is. `ours` are placet's own references.
    """

    at: Mapping[str, str]
    symbolic: Mapping[str, str]
    current: str
    ours: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def default(self) -> str:
        """The branch that work ends up in: origin's default, main, master, the current, or ""."""
        head = self.symbolic.get("refs/remotes/origin/HEAD", "")
        remote = head.removeprefix("refs/remotes/origin/")
        names = (remote, "main", "master", self.current)
        return next((name for name in names if name and f"refs/heads/{name}" in self.at), "")

    def ends_in(self, base_branch: str) -> str:
        """Return the branch that work begun on `base_branch` ends up in: that one if it exists."""
        there = base_branch and f"refs/heads/{base_branch}" in self.at
        return base_branch if there else self.default

    def named(self, names: Sequence[str]) -> list[str]:
        """Return the branches of these names, here and at remotes, and each remote's default."""
        theirs = [ref for ref in self.at if ref.startswith("refs/remotes/")]
        remotes = [ref for ref in theirs if ref.split("/", 3)[-1] in names]
        defaults = [
            to
            for ref, to in self.symbolic.items()
            if ref.startswith("refs/remotes/") and ref.endswith("/HEAD")
        ]
        here = (f"refs/heads/{name}" for name in names)
        return [ref for ref in (*here, *remotes, *defaults) if ref in self.at]

    def free_branch(self, request_id: str, trace8: str, now: datetime) -> str:
        """Return a free branch name: `feat/{request_id}-{trace8}`, with a time where that is taken.

        A branch named `feat` leaves no room for `feat/…`; then the name begins with `feat-`.
        """
        # On file systems that fold case, `Feat` is in the way of `feat/…` too.
        here = (ref for ref in self.at if ref.startswith("refs/heads/"))
        taken = {ref.removeprefix("refs/heads/").casefold() for ref in here}
        folders = {str(above) for name in taken for above in PurePosixPath(name).parents}
        prefix = "feat-" if "feat" in taken else "feat/"
        wanted = f"{prefix}{request_id}-{trace8}"
        stamped = f"{wanted}-{now.astimezone(UTC):%Y%m%d%H%M%S}"
        numbered = (f"{stamped}-{n}" for n in range(2, len(taken) + 4))
        names = (wanted, stamped, *numbered)
        return next(name for name in names if name.casefold() not in taken | folders)


def all_refs(repo: Repo) -> Refs:
    """Return every branch as it is now, by one process."""
    asked = ("refname", "symref", "objectname", "HEAD")
    rows = list(rows_of(place_of(repo), asked, "refs/heads", "refs/remotes", "refs/placet"))
    ours = frozenset(name for name, *_ in rows if name.startswith("refs/placet/"))
    rows = [row for row in rows if row[0] not in ours]
    current = [name.removeprefix("refs/heads/") for name, *_, mark in rows if mark == "*"]
    return Refs(
        {name: commit for name, _, commit, _ in rows},
        {name: to for name, to, *_ in rows if to},
        current[0] if current else "",
        ours,
    )


def default_branch(repo: Repo) -> str:
    """Return the branch that work ends up in, as `Refs.default` has it."""
    return all_refs(repo).default


def remote_of(repo: Repo) -> tuple[str, str]:
    """Return the remote to push to, `origin` or the first one, and its default branch; "" for none.

    A name that a shell could take for something else does not count.
    """
    names = [
        item.split("\n")[0].removeprefix("remote.").removesuffix(".url")
        for _, item in repo.settings
        if re.match(r"remote\.[A-Za-z0-9][A-Za-z0-9._/-]*\.url\n", item)
    ]
    name = "origin" if "origin" in names else next(iter(names), "")
    with suppress(OSError):  # a symbolic reference is never packed
        line = (
            (repo.common_dir / "refs/remotes" / name / "HEAD").read_text("utf-8", "replace").strip()
        )
        return name, line.removeprefix(f"ref: refs/remotes/{name}/") if line.startswith(
            "ref: "
        ) else ""
    return name, ""
