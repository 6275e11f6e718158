"""Show what a mission changed, with the sizes of its binary files and its pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from placet.client.branches import compared, told_branch
from placet.client.site import Site
from placet.errors import UserError
from placet.git.history import blob_bytes, blob_sizes, diff_text
from placet.git.run import Repo

MAX_PICTURE_BYTES = 5_000_000
"""Size limit of a picture that is shown, in bytes."""

# What git writes above a binary file's difference; a line of a text begins with another character.
_BINARY = re.compile(r"^index ([0-9a-f]+)\.\.([0-9a-f]+)[^\n]*\nBinary files ", re.MULTILINE)

_SIGNS = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
"""How the files begin that are shown as pictures, by media type. A SVG can have scripts."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A mission's changes as a text to read, and the sizes of binary blobs in bytes, by id."""

    text: str
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: its media type and its bytes."""

    kind: str
    data: bytes


def difference(site: Site, ident: str) -> Difference:
    """Return the changes on the branch that `placet status` names. Raises UserError as `diff`."""
    return _between(*compared(site, ident, told_branch))


def _between(repo: Repo, base: str, tip: str) -> Difference:
    text = diff_text(repo, base, tip)
    blobs = [blob for found in _BINARY.finditer(text) for blob in found.groups() if blob.strip("0")]
    return Difference(text, blob_sizes(repo, blobs) if blobs else {})


def changed_picture(site: Site, ident: str, blob: str) -> Picture:
    """Return a picture that a mission changed, by the id of its blob.

    Raises UserError (exit code 3) for any other blob, and for what is not a picture.
    """
    repo, base, tip = compared(site, ident, told_branch)
    size = _between(repo, base, tip).sizes.get(blob, 0)
    if 0 < size <= MAX_PICTURE_BYTES:
        data = blob_bytes(repo, blob, max_bytes=MAX_PICTURE_BYTES)
        for kind, sign in _SIGNS.items():
            if sign.match(data):
                return Picture(kind, data)
    raise UserError("There is no such picture.", "Go back to the request.", exit_code=3)
