"""The card of a portal: a note in Knowledge/Portals of what its repository is like."""

from __future__ import annotations

from pathlib import Path

from placet.core.errors import UserError
from placet.core.text.names import Folder
from placet.core.text.portal import PortalCard, how_to_test, languages, render_card
from placet.files.errors import AlreadyThere, Changed, Gone, NotAFile, TooLarge
from placet.files.vault import Vault
from placet.host.config import load, portal_path
from placet.repo.history import content, paths_at
from placet.repo.refs import default_branch
from placet.repo.repository import is_repository, open_repo, resolve

MAX_READ_BYTES = 256 * 1024
"""Maximum read of a build file, to find out how a repository is tested."""


def refresh_card(vault: Path, name: str) -> str:
    """Write a portal's card, `Knowledge/Portals/{name}.md`, and return its path.

    What a person wrote around placet's part of it stays. Raises UserError where it cannot be
    written.
    """
    config = load(vault)
    card = _card(name, config.portals[name].path, portal_path(vault, config, name))
    path = f"{Folder.KNOWLEDGE}/Portals/{name}.md"
    with Vault(vault) as folder:
        try:
            try:
                folder.edit(path, lambda raw: _rendered(card, raw))
            except Gone:
                folder.publish(path, _rendered(card, None))
        except (Changed, AlreadyThere) as error:
            raise UserError(
                f"{path} keeps changing.", "Close the editor that has it open, then try again."
            ) from error
        except (NotAFile, TooLarge) as error:
            raise UserError(f"{error}.", "Move it away.") from error
    return path


def _rendered(card: PortalCard, raw: bytes | None) -> bytes:
    text = None if raw is None else raw.decode(errors="surrogateescape")
    return render_card(card, text).encode(errors="replace" if raw is None else "surrogateescape")


def _card(name: str, written: str, place: Path) -> PortalCard:
    if not is_repository(place):
        return PortalCard(name, written, "", (), (), "It is no git repository yet.")
    repo = open_repo(place)
    rev = resolve(repo, "HEAD")
    if rev is None:
        return PortalCard(name, written, default_branch(repo), (), (), "There is no commit yet.")
    paths = paths_at(repo, rev)
    return PortalCard(
        name,
        written,
        default_branch(repo),
        languages(paths),
        how_to_test(paths, lambda path: content(repo, rev, path, max_bytes=MAX_READ_BYTES)),
    )
