"""Make a folder a vault."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from placet.agent.repository import VAULT_EXCLUDES
from placet.case.notes import ASKS, inspect_note
from placet.chat.prices import DEFAULT_PRICES
from placet.client.site import Site, here
from placet.disk.errors import AlreadyThere, Unreadable
from placet.disk.real_path import real_path
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.git.repository import is_repository
from placet.git.vault_history import Size, survey
from placet.host.accepted import accept, change
from placet.host.config import load, write_setting
from placet.host.state import known_id, vault_state
from placet.note.paths import CONFIG_PATH, Folder, request_id

DEMO_SCRIPT = "System/demo-replies.toml"
"""The replies of the demo model, in a vault that has it."""

DAY_USD = 10
"""Dollars a day that a new vault allows, where the price of its model is known."""


def template() -> Path:
    """Return the folder that new vaults are copied from: of the package, or of its checkout."""
    inside = Path(__file__).parents[1] / "vault_template"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "vault_template"


def init(
    folder: Path, env: Mapping[str, str] = os.environ, *, history: bool | None = None
) -> tuple[list[str], list[str]]:
    """Make a folder a vault; return the created files, and those that existed and stay.

    A vault that a daemon used before gets its old id again, and its new configuration is accepted.
    `history` says whether placet may keep a history (git) of it, or None if you were not asked.
    Raises UserError if another file occupies a path.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made: {error.strerror}.", "Name another folder.", exit_code=2
        ) from error
    made: list[str] = []
    kept: list[str] = []
    source = template()
    # Property types hold for the whole vault: one that people work in already keeps its own. Ours
    # may remain from an interrupted call.
    ours = {path.name for path in (source / ".obsidian").iterdir()}
    settled = (folder / ".obsidian").is_dir() and any(
        path.name not in ours for path in (folder / ".obsidian").iterdir()
    )
    with Vault(folder) as vault:
        vault.ensure_folders()
        vault.sweep_temporaries()
        for path in sorted(p for p in source.rglob("*") if p.is_file()):
            name = path.relative_to(source).as_posix()
            if settled and name.startswith(".obsidian/"):
                continue
            try:
                (made if vault.publish(name, path.read_bytes()) else kept).append(name)
            except AlreadyThere:
                kept.append(name)
        if CONFIG_PATH in made:
            # The vault is this machine's; a daemon elsewhere that shares it by sync refuses until
            # it is told to take over.
            write_setting(folder, ("vault", "host"), socket.gethostname())
        if history is not None:
            write_setting(folder, ("vault", "history"), history)
        known = _known_id(folder, env)
        if vault.marker() is None:
            vault.create_marker(known or os.urandom(16).hex())
    if CONFIG_PATH in made and known and (state := vault_state(folder, env)).accepted.exists():
        accept(state, load(folder))
    return made, kept


def _known_id(folder: Path, env: Mapping[str, str]) -> str | None:
    """Return the id that a daemon knew the vault by; None without one, or a place for state."""
    try:
        return known_id(folder, env)
    except UserError:
        return None


def history_of(folder: Path) -> Size | None:
    """Return what a history (git) of this folder would hold, as far as a person has to be asked.

    None for a repository, and for a vault whose configuration has the answer.
    """
    if is_repository(folder) or (
        (folder / CONFIG_PATH).is_file() and load(folder).vault.history != "ask"
    ):
        return None
    return survey(folder, VAULT_EXCLUDES) if folder.is_dir() else Size(0, 0)


def made_replies(place: Path) -> bool:
    """Write what the demo model says, if it is not there; return whether it was not."""
    replies = Path(__file__).with_name("demo_files") / "vault_replies.toml"
    with Vault(place) as folder, suppress(AlreadyThere):
        return folder.publish(DEMO_SCRIPT, replies.read_bytes())
    return False


def repository_here(vault: Path) -> Path | None:
    """Return the repository that we are in, unless it is placet's, a vault, or has the vault."""
    for folder in (here(), *here().parents):
        if os.path.lexists(folder / ".git"):
            root = real_path(folder)
            is_own = real_path(vault).is_relative_to(root) or (root / "daemon" / "placet").is_dir()
            is_vault = (root / CONFIG_PATH).exists()
            return None if is_own or is_vault or not is_repository(folder) else folder
    return None


def portal_name(place: Path) -> str:
    """Return a portal's name for a repository: the slug of its folder."""
    return request_id(f"{real_path(place).name}.md")


def limit_day(site: Site) -> bool:
    """Limit a vault to DAY_USD a day if the price of its model is known; return whether it is."""
    model = load(site.vault).model
    known = model.provider == "scripted" or any(row.model == model.name for row in DEFAULT_PRICES)
    if model.base_url or not known:
        return False
    change(site.vault, site.env, {("limits", "day_usd"): DAY_USD})
    return True


def waiting_notes(place: Path) -> list[str]:
    """Return the notes in Inbox/Requests that the first start will plan."""
    found = []
    with Vault(place) as vault:
        for path in sorted(vault.scan([Folder.REQUESTS]).found):
            with suppress(Unreadable):
                if inspect_note(path, vault.read(path)[0]).status in ASKS:
                    found.append(path)
    return found
