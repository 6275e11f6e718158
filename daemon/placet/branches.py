"""What the command line does with repositories and the branches in them: portals, looking at a branch, merging, dropping.

This is a person's own hand, by name: the only code of placet that writes to a person's checkout, and only in `merge` and `undo`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from placet.config import CONFIG_PATH, load, portal_path
from placet.core.errors import UserError
from placet.core.names import Folder
from placet.core.portal import Card, how_to_test, languages, render_card
from placet.repo import content, default_branch, is_repository, notes, open_repo, paths_at, resolve
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
