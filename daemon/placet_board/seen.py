"""Texts as the board's pages show them: with every character written out that would not be seen."""

from __future__ import annotations

from placet.cli.terminal import harmless
from placet.core.text.characters import visible
from placet.core.text.names import show


def seen(text: str) -> str:
    """Return a text of several lines with what hides, turns or fills unseen written out."""
    return visible(harmless(text))


def seen_name(text: str) -> str:
    """Return a name or a sentence, which has one line, like `seen`."""
    return visible(show(text))
