"""Add, check and remove the repositories that requests name: portals."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from placet.agent.dependencies import overlaps, proposed, why_elsewhere
from placet.agent.ports import Bounds
from placet.agent.workplace import brought_by
from placet.case.case import CASE_JSON
from placet.case.life_cycle import OPEN
from placet.client.site import Site, here
from placet.errors import ToolError, UserError
from placet.git.repository import (
    all_refs,
    is_repository,
    no_commit,
    notes,
    open_repo,
    portal_problem,
    resolve,
)
from placet.git.run import Repo
from placet.host.accepted import change, holding
from placet.host.config import Config, load, portal_path
from placet.host.state import expand_home
from placet.journal.database import is_begun
from placet.journal.reader import open_reader
from placet.note.paths import show as visible
from placet.sandbox.box import Box, Level
from placet.sandbox.visible_paths import program, see
from placet.wording import one_line, some_of

NOT_YET = "It is not a git repository yet; the first request that names it makes it one."
MAX_NAMED = 5
"""Maximum of paths that a sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portal:
    """A portal of the configuration."""

    name: str
    path: str
    """As it is written."""
    folder: str
    """The folder that the path means."""
    there: bool
    """Whether that folder exists."""
    accepted: bool
    """Whether the path holds on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPortal(Portal):
    """A portal with what git says of it."""

    problem: str = ""
    """Why no request can name it; empty if one can."""
    notes: tuple[str, ...] = ()
    branch: str = ""


def add_portal(site: Site, name: str, given: str) -> str:
    """Write a portal; return its path as it is written. An existing portal stays unchanged.

    The site is told remarks about the repository. Raises UserError (exit code 2) for a taken name,
    or a folder that cannot be a repository.
    """
    config = load(site.vault)
    known = config.portals.get(name)
    if known is not None and expand_home(known.path) == expand_home(given):
        return known.path
    place = _place_of_new(site, config, name, given)
    written = given
    if not (given.startswith("~") or Path(given).is_absolute()):
        is_inside = place.is_relative_to(site.vault)
        written = str(place.relative_to(site.vault) if is_inside else place)

    _write(site, name, {"path": written})
    return written


def _place_of_new(site: Site, config: Config, name: str, given: str) -> Path:
    """Return the folder that a new portal is to name; a relative one is relative to where we are.

    Raises UserError (exit code 2) for a taken name, or a folder that cannot be a repository.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise UserError(
            f"{name!r} cannot be a portal's name.", "Use letters, digits, `-` and `_`.", exit_code=2
        )
    for known, portal in config.portals.items():
        if known.casefold() == name.casefold():
            raise UserError(
                f"There is a portal {known} already: {visible(portal.path)}",
                f"placet portal remove {known}",
                exit_code=2,
            )
    place = expand_home(given)
    if not place.is_absolute():
        place = Path(os.path.normpath(here() / place))
    if not given or not place.is_dir():
        raise UserError(
            f"{visible(str(place)) if given else 'An empty name'} is not a folder.",
            "Give the folder of a repository.",
            exit_code=2,
        )
    if (problem := portal_problem(site.vault, place)) is not None:
        hint = problem.hint or "Name another folder."
        raise UserError(one_line(problem.what), hint, exit_code=2)
    if not is_repository(place):
        site.say(
            f"{place} is not a git repository yet: the first request that names it makes it one, "
            "with a commit of what is there."
        )
    elif resolve(repo := open_repo(place), "HEAD") is None:
        site.say(one_line(str(no_commit(repo))))
    for other in config.portals:
        other_path = portal_path(site.vault, config, other)
        if other_path.is_dir() and other_path.samefile(place):
            site.say(f"The portal {other} is the same repository.")
    return place


def _repo_of(site: Site, config: Config, name: str) -> Repo | None:
    """Return the repository of a portal, None if there is none yet."""
    path = portal_path(site.vault, config, name)
    return open_repo(path) if is_repository(path) else None


PROGRAMS = ("python", "pytest", "node", "npm", "cargo", "go", "mvn", "make")
"""Programs of which `placet portal check` says which one a command gets."""


def what_commands_see(site: Site, name: str) -> list[str]:
    """Return sentences: what a mission's commands see of a portal's checkout, and what not."""
    config = load(site.vault)
    repo = _repo_of(site, config, name)
    if repo is None or repo.is_bare:
        return []
    bounds = Bounds(site.vault, holding(config, site.state).config, Level.BUBBLEWRAP, ())
    what = brought_by(bounds, repo, name)
    why = why_elsewhere(repo, site.vault, site.state.worktrees, what.readable)
    lines = []
    if what.named:
        lines.append(f"Commands also see what git ignores: {', '.join(what.named)}.")
    if what.unseen:
        left = some_of(what.unseen, MAX_NAMED)
        lines.append(f"They do not see: {left}. To show a path: `see` in [portals.{name}].")
    lines += [
        f"`see` or `copy` names {one}, which git does not ignore there." for one in what.missing
    ]
    if why:
        lines.append(
            f"Commands see a mission at another path than this repository, because {why}: "
            "an editable install does not find it."
        )
    git = None if why else (repo.common_dir, repo.common_dir / "worktrees/mission")
    box = Box(
        site.state.worktrees / "mission",
        readable=what.readable,
        checkout=repo.path,
        shared=what.shared,
        git=git,
    )
    found = {}
    for one in PROGRAMS:
        with suppress(ToolError):
            found[one] = program(one, box, see(box))
    these = f"Commands find these programs: {', '.join(found.values())}."
    lines.append(these if found else f"Commands find none of {', '.join(PROGRAMS)}.")
    return lines


def missing_settings(site: Site, name: str) -> dict[str, list[str]]:
    """Return the settings that a portal's checkout needs, each with its new value."""
    config = load(site.vault)
    repo, portal = _repo_of(site, config, name), config.portals[name]
    if repo is None or overlaps(repo, site.vault):
        return {}
    return {
        key: [*getattr(portal, key), *more]
        for key, values in proposed(repo).items()
        if (more := [value for value in values if value not in getattr(portal, key)])
    }


def set_portal(site: Site, name: str, settings: Mapping[str, Sequence[str]]) -> None:
    """Write settings of a portal, which accepts them on this machine."""
    change(
        site.vault, site.env, {("portals", name, key): values for key, values in settings.items()}
    )


def portals(site: Site) -> list[Portal]:
    """Return the portals of the configuration."""
    config = load(site.vault)
    refused = holding(config, site.state).refused
    return [
        Portal(
            name=name,
            path=portal.path,
            folder=str(portal_path(site.vault, config, name)),
            there=portal_path(site.vault, config, name).is_dir(),
            accepted=("portals", name, "path") not in refused,
        )
        for name, portal in config.portals.items()
    ]


def check_portals(site: Site, name: str | None) -> list[CheckedPortal]:
    """Return all portals or one, with what git says of them.

    Raises UserError (exit code 2) if there is no such portal.
    """
    if name is not None:
        _must_be_portal(site.vault, name)
    return [_checked(site, portal) for portal in portals(site) if name in (None, portal.name)]


def _checked(site: Site, portal: Portal) -> CheckedPortal:
    place = Path(portal.folder)
    problem = (
        one_line(str(portal_problem(site.vault, place) or ""))
        if portal.accepted
        else "Its path was not accepted on this machine: placet config accept"
    )
    if problem:
        return CheckedPortal(**asdict(portal), problem=problem)
    if not is_repository(place):
        return CheckedPortal(**asdict(portal), notes=(NOT_YET,))
    repo = open_repo(place)
    return CheckedPortal(
        **asdict(portal),
        notes=(*notes(repo), *what_commands_see(site, portal.name)),
        branch=all_refs(repo).default,
    )


def remove_portal(site: Site, name: str) -> list[str]:
    """Take a portal out of the configuration; return a sentence about what still needs it.

    Raises UserError (exit code 2) if there is no such portal.
    """
    _must_be_portal(site.vault, name)
    _write(site, name, None)
    return _naming(site, name)


def _write(site: Site, name: str, table: Mapping[str, str] | None) -> None:
    """Write a portal's table, which accepts it on this machine; None removes it."""
    change(site.vault, site.env, {("portals", name): table})


def _must_be_portal(vault: Path, name: str) -> None:
    names = load(vault).portals
    if name not in names:
        raise UserError(
            f"There is no portal {name!r}.",
            f"There are: {', '.join(names) or 'none'}.",
            exit_code=2,
        )


def _naming(site: Site, portal: str) -> list[str]:
    """Return a sentence about each request that still needs a portal.

    Its work is not over, or you have not merged or dropped its branch.
    """
    if not is_begun(site.state.journal):
        return []
    with open_reader(site.state.journal) as reader:
        cases = [
            CASE_JSON.validate_json(row.body)
            for row in sorted(
                {*reader.cases(*OPEN), *reader.watched_cases()}, key=lambda row: row.trace_id
            )
        ]
    return [
        *(
            f"{case.request_id} ({case.state}) needs it."
            for case in cases
            if case.request.portal == portal and case.state in OPEN
        ),
        *(
            f"{case.request_id} has the branch {branch.name} there. placet no longer sees what "
            "becomes of it."
            for case in cases
            for branch in case.watched
            if branch.portal == portal and not branch.became
        ),
    ]
