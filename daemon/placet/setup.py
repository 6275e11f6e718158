"""`placet init`: the files that a new vault starts with."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from placet.config import CONFIG_PATH, write_setting
from placet.core.errors import UserError
from placet.vault import AlreadyThere, Vault


def template() -> Path:
    """Return the folder that new vaults are copied from: in the package, or beside it in a checkout."""
    inside = Path(__file__).parent / "vault_template"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "vault_template"


def init(folder: Path) -> tuple[list[str], list[str]]:
    """Make a folder a vault; return the files made and those that were there already, which stay as they are.

    Raises UserError where something stands in the way.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}.", "Name another folder.", exit_code=2) from error
    made: list[str] = []
    kept: list[str] = []
    source = template()
    # Property types hold for the whole vault: one that people work in already keeps its own.
    settled = (folder / ".obsidian").is_dir()
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
            # The vault is this machine's; a daemon elsewhere that shares it by sync refuses until it is told to take over.
            write_setting(folder, ("vault", "host"), socket.gethostname())
        if not vault.has_marker():
            vault.create_marker(os.urandom(16).hex())
    return made, kept
