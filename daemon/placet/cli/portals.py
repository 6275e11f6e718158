"""Manage the repositories that requests name: `placet portal`."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from placet.agent.dependencies import overlaps, proposed, why_elsewhere
from placet.agent.workplace import Bounds, brought_by
from placet.case.case import CASE_JSON
from placet.case.life_cycle import OPEN
from placet.cli.options import json_option, site_option
from placet.cli.terminal import agreed, colour, out, say
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
from placet.host.config import load, portal_path
from placet.host.state import expand_home
from placet.journal.database import is_begun
from placet.journal.reader import open_reader
from placet.note.paths import show as visible
from placet.sandbox.box import Box, Level
from placet.sandbox.visible_paths import program, see
from placet.wording import one_line

NOT_YET = "It is not a git repository yet; the first request that names it makes it one."


@click.group("portal")
def portal_command() -> None:
    """Repositories that requests may name in `portal:`."""


@portal_command.command("add")
@click.argument("name", metavar="NAME")
@click.argument("given", metavar="PATH", type=click.Path(readable=False))
@site_option
def portal_add_command(site: Site, name: str, given: str) -> None:
    """Name a repository in System/placet.toml."""
    click.echo(add_portal(site, name, given))
    say(f"requests name it with `portal: {name}`")
    for line in what_commands_see(site, name):
        say(line)
    propose(site, name)


def add_portal(site: Site, name: str, given: str) -> str:
    """Write a portal; return its path as it is written. An existing portal stays unchanged.

    Raises UserError (exit code 2) for a taken name, or a folder that cannot be a repository.
    """
    portals = load(site.vault).portals
    if name in portals and expand_home(portals[name].path) == expand_home(given):
        return portals[name].path
    place = _place_of_new(site, portals, name, given)
    written = given
    if not (given.startswith("~") or Path(given).is_absolute()):
        is_inside = place.is_relative_to(site.vault)
        written = str(place.relative_to(site.vault) if is_inside else place)

    _write(site, name, {"path": written})
    return written


def _place_of_new(site: Site, portals: Mapping[str, Any], name: str, given: str) -> Path:
    """Return the folder that a new portal is to name; a relative one is relative to where we are.

    Raises UserError (exit code 2) for a taken name, or a folder that cannot be a repository.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise UserError(
            f"{name!r} cannot be a portal's name.", "Use letters, digits, `-` and `_`.", exit_code=2
        )
    for known in portals:
        if known.casefold() == name.casefold():
            raise UserError(
                f"There is a portal {known} already: {visible(portals[known].path)}",
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
        raise UserError(one_line(str(problem)), "Name another folder.", exit_code=2)
    if not is_repository(place):
        say(
            f"{place} is not a git repository yet: the first request that names it makes it one, "
            "with a commit of what is there."
        )
    elif resolve(repo := open_repo(place), "HEAD") is None:
        say(one_line(str(no_commit(repo))))
    for other in portals:
        other_path = portal_path(site.vault, load(site.vault), other)
        if other_path.is_dir() and other_path.samefile(place):
            say(f"The portal {other} is the same repository.")
    return place


def _repo_of(site: Site, name: str) -> Repo | None:
    """Return the repository of a portal, None if there is none yet."""
    path = portal_path(site.vault, load(site.vault), name)
    return open_repo(path) if is_repository(path) else None


PROGRAMS = ("python", "pytest", "node", "npm", "cargo", "go", "mvn", "make")
"""Programs of which `placet portal check` says which one a command gets."""


def what_commands_see(site: Site, name: str) -> list[str]:
    """Return sentences: what a mission's commands see of a portal's checkout, and what not."""
    repo = _repo_of(site, name)
    if repo is None or repo.is_bare:
        return []
    bounds = Bounds(site.vault, site.in_force().config, Level.BUBBLEWRAP, ())
    what = brought_by(bounds, repo, name)
    why = why_elsewhere(repo, site.vault, site.state.worktrees, what.readable)
    lines = []
    if what.named:
        lines.append(f"Commands also see what git ignores: {', '.join(what.named)}.")
    if what.unseen:
        more = f" and {len(what.unseen) - MAX_NAMED} more" if len(what.unseen) > MAX_NAMED else ""
        left = ", ".join(what.unseen[:MAX_NAMED])
        lines.append(f"They do not see: {left}{more}. To show a path: `see` in [portals.{name}].")
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
    lines.append(f"Programs: {', '.join(found.values()) or 'none of the usual ones'}.")
    return lines


MAX_NAMED = 5
"""Maximum of paths that a sentence names."""


def propose(site: Site, name: str) -> None:
    """Ask whether to add the settings that fit a portal's checkout; Enter accepts."""
    repo, portal = _repo_of(site, name), load(site.vault).portals[name]
    if repo is None or overlaps(repo, site.vault):
        return
    wanted = {
        key: [*getattr(portal, key), *more]
        for key, values in proposed(repo).items()
        if (more := [value for value in values if value not in getattr(portal, key)])
    }
    if not wanted:
        return
    say(f"Commands need these lines in [portals.{name}] of System/placet.toml:")
    for key, values in wanted.items():
        click.echo(f"  {key} = {json.dumps(values)}", err=True)
    if sys.stdin.isatty() and agreed("placet: Add them?", default=True):
        change(
            site.vault,
            site.env,
            {("portals", name, key): values for key, values in wanted.items()},
        )


@portal_command.command("list")
@site_option
@json_option
def portal_list_command(site: Site, as_json: bool) -> None:
    """List the portals."""
    found = portals(site)
    out(portals_text(found), found, as_json=as_json)


@portal_command.command("check")
@click.argument("name", required=False, metavar="[NAME]")
@site_option
@json_option
def portal_check_command(site: Site, name: str | None, as_json: bool) -> None:
    """Check whether git takes the portals, and what missions will feel there."""
    if name is not None:
        _must_be_portal(site.vault, name)
    found = [_checked(site, line) for line in portals(site) if name in (None, line["name"])]
    out(portals_text(found), found, as_json=as_json)
    if any(line["problem"] for line in found):
        sys.exit(1)
    if not as_json:
        for line in found:
            propose(site, line["name"])


@portal_command.command("remove")
@click.argument("name", metavar="NAME")
@site_option
def portal_remove_command(site: Site, name: str) -> None:
    """Take a portal out of System/placet.toml; its repository stays."""
    _must_be_portal(site.vault, name)
    _write(site, name, None)
    for line in _naming(site, name):
        say(line)
    say("removed; the repository stays as it is")


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


def portals(site: Site) -> list[dict[str, Any]]:
    """Return the portals of the configuration: name, path as written, the folder that it means.

    `there` says whether that folder exists, `accepted` whether the path holds on this machine.
    """
    config = load(site.vault)
    refused = holding(config, site.state).refused
    return [
        {
            "name": name,
            "path": portal.path,
            "folder": str(portal_path(site.vault, config, name)),
            "there": portal_path(site.vault, config, name).is_dir(),
            "accepted": ("portals", name, "path") not in refused,
        }
        for name, portal in config.portals.items()
    ]


def _checked(site: Site, line: dict[str, Any]) -> dict[str, Any]:
    """Return a portal with what git says of it.

    `problem` is empty where a request can name the portal.
    """
    place = Path(line["folder"])
    line |= {"problem": "", "notes": [], "branch": ""}
    line["problem"] = (
        one_line(str(portal_problem(site.vault, place) or ""))
        if line["accepted"]
        else "Its path was not accepted on this machine: placet config accept"
    )
    if line["problem"]:
        return line
    if is_repository(place):
        repo = open_repo(place)
        line["notes"], line["branch"] = notes(repo), all_refs(repo).default
        line["notes"] += what_commands_see(site, line["name"])
    else:
        line["notes"] = [NOT_YET]
    return line


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


def portals_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Return `placet portal list` and `placet portal check` for people."""
    if not found:
        return "There are no portals. Name a repository: placet portal add NAME PATH"
    lines = []
    for line in found:
        bad = line.get(
            "problem",
            "not accepted on this machine: placet config accept"
            if not line["accepted"]
            else ""
            if line["there"]
            else "that folder is not there",
        )
        suffix = f"  {colour('BAD', 'red')}: {visible(bad)}" if bad else ""
        lines.append(f"{visible(line['name']):<16} {visible(line['folder'])}{suffix}")
        lines += [f"{'':<16} {visible(note)}" for note in line.get("notes", ())]
    return "\n".join(lines)
