"""The pictures beside a report: files that are named for it, and no other file."""

from __future__ import annotations

import re

from placet.cli.site import Site
from placet.core.errors import UserError
from placet.core.life.case import Case
from placet.core.text.names import Folder
from placet.files.errors import Unreadable
from placet.files.vault import Vault

PNG = b"\x89PNG\r\n\x1a\n"
MAX_PICTURES = 20
"""Pictures that a page shows, the first ones."""


def pictures_in(case: Case, report: str) -> list[tuple[int, int]]:
    """Return the pictures of a request that its report shows: generation and number of each."""
    named = re.compile(rf"!\[\[{re.escape(_prefix(case))}-(\d{{1,6}})-(\d{{1,6}})\.png\]\]")
    return [(int(found[1]), int(found[2])) for found in named.finditer(report)][:MAX_PICTURES]


def picture(site: Site, ident: str, generation: int, number: int) -> bytes:
    """Return a picture, a PNG. Raises UserError (exit code 3) where there is none."""
    name = f"{_prefix(site.case(ident))}-{generation}-{number}.png"
    try:
        with Vault(site.vault) as vault:
            data, _ = vault.read(f"{Folder.REPORTS}/{name}")
    except Unreadable:
        data = b""
    if not data.startswith(PNG):
        raise UserError("There is no such picture.", "Go back to the report.", exit_code=3)
    return data


def _prefix(case: Case) -> str:
    return f"{case.trace8}_{case.request_id}"
