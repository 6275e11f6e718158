"""The notes beside people's notes, which say why placet cannot use them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import PurePosixPath

from placet.core.names import Folder, show, side_note_name
from placet.vault import Gone, Vault


def side_of(path: str) -> str:
    """Return where the explanation of the note at `path` lies."""
    place = PurePosixPath(path)
    return f"{place.parent}/{side_note_name(place.name)}"


MODEL = f"{Folder.REQUESTS}/Model.md"
"""Beside this note, which there need not be, stands why all work waits for the model."""


def side_note(path: str, why: str) -> bytes:
    """Return the explanation of the note at `path`: the lines of `why` as a callout, and a callout in it as one of its own."""
    title = "All work waits for the model" if path == MODEL else f"placet cannot use `{show(PurePosixPath(path).name)}`"
    words, callout, rest = why.partition("\n> [!")
    parts = ["\n".join([f"> [!warning] {title}", *(f"> - {line}" for line in words.splitlines())]),
             f"{callout.lstrip()}{rest}".rstrip(), "This note disappears by itself when that is mended.\n"]
    return "\n\n".join(part for part in parts if part).encode()


def put(vault: Vault, side: str, text: bytes) -> bool:
    """Make the explanation at `side` say `text`; return whether that changed anything. Raises what the vault raises."""
    try:
        raw, _ = vault.read(side)  # first: it costs no fsync, and most of them stand there from look to look
    except Gone:
        return vault.publish(side, text)
    if raw != text:
        vault.replace(side, sha256(raw).hexdigest(), text)
    return raw != text


def take_away(vault: Vault, side: str) -> None:
    """Delete the explanation at `side`. Raises what the vault raises."""
    raw, _ = vault.read(side)
    vault.remove(side, sha256(raw).hexdigest())
