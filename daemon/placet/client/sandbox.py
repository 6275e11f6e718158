"""Choose the sandbox for a command that a person runs as a mission would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from placet.client.site import Site
from placet.disk.real_path import real_path
from placet.errors import UserError
from placet.host.state import known_vaults, state_home
from placet.note.paths import CONFIG_PATH
from placet.note.paths import show as visible
from placet.plan.hosts import host_from
from placet.sandbox.box import Box, Level
from placet.sandbox.probe import probe
from placet.sandbox.visible_paths import is_environment


def sandbox_of(
    site: Site, folder: Path, env: Mapping[str, str], *, network: bool, hosts: Sequence[str]
) -> tuple[Box, Level]:
    """Return the sandbox of a command with `folder` as its worktree, and the level that holds here.

    The project's own environment is visible, as in a mission. The vault of `site`, if there is one,
    says which of the `hosts` may be in a private network. Raises UserError, with exit code 2 for a
    name that is not a host's, and for a folder in which the command could approve something, or
    change what is not a worktree's.
    """
    tree = real_path(folder)
    try:
        named = tuple(map(host_from, hosts))
    except ValueError as error:
        raise UserError(f"{error}.", "Such as: --host packages.example", exit_code=2) from error
    if what := _no_worktree(tree, env):
        raise UserError(
            f"{visible(str(folder))} {what}, and the command could change all of this folder.",
            "Go to the repository, or an empty folder, that it may write in, then try again.",
            exit_code=2,
        )
    level = probe().level
    if level is Level.NONE:
        raise UserError(
            "This machine has no sandbox.",
            "Install bubblewrap; `placet doctor` says what is missing.",
        )
    own = (tree / ".venv", tree / "venv")
    environments = tuple(path for path in own if is_environment(path) and not path.is_symlink())
    private: Sequence[str] = ()
    if named:
        with suppress(UserError):  # no vault is needed
            private = site.in_force().config.commands.private_hosts
    box = Box(
        tree,
        readable=environments,
        network=network,
        hosts=named,
        private_hosts=tuple(map(host_from, private)),
    )
    return box, level


def _no_worktree(folder: Path, env: Mapping[str, str]) -> str:
    """Return why a folder must not be writable in the sandbox; empty if it may be."""
    for vault in (place for place in (folder, *folder.parents) if (place / CONFIG_PATH).is_file()):
        if folder == vault:
            return "is a vault, where a file that is moved is an approval"
        if folder.relative_to(vault).parts[0] in ("Inbox", "System", ".obsidian", ".git"):
            return (
                f"belongs to the vault {visible(str(vault))}, where a file that is moved is "
                "an approval"
            )
    for what, places in (
        ("your home folder", [Path(env.get("HOME") or "/")]),
        ("a vault", known_vaults(env)),
        ("placet's state", [state_home(env)]),
    ):
        if any(real_path(place).is_relative_to(folder) for place in places):
            return (
                f"has {what} in it"
                if folder not in (real_path(place) for place in places)
                else f"is {what}"
            )
    return "is placet's state" if folder.is_relative_to(real_path(state_home(env))) else ""
