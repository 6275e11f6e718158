"""Words that a shell completes: IDs, portals, agents, settings and workers.

They are looked up at each press of a key, so nothing is written, nothing is said, and what goes
wrong gives no words. Only names that a shell takes as one word are given: they come from notes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from placet.core.text.names import CONFIG_PATH

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

    from placet.cli.site import Site

Completer = Callable[["click.Context", "click.Parameter", str], list[str]]
MANY = 500
"""Number of the latest requests whose IDs are given."""

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def completer(look: Callable[[Site], Iterable[str]]) -> Completer:
    """Return a completer of the words that `look` finds; none where it raises anything."""

    def complete(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
        from placet.cli.site import Site

        words: list[str] = []
        with suppress(Exception):
            words = list(look(context.obj or Site(None)))
        return [word for word in words if word.startswith(begun) and _WORD.fullmatch(word)]

    return complete


def _ids(site: Site) -> Iterable[str]:
    from placet.journal.reader import open_reader

    with open_reader(site.state.journal) as reader:
        return reader.request_ids(MANY)


def _portals(site: Site) -> Iterable[str]:
    # the checked configuration takes longer to import than a person waits for a word
    text = (site.vault / CONFIG_PATH).read_text(encoding="utf-8").removeprefix("\ufeff")
    return sorted(tomllib.loads(text).get("portals", {}))


def _agents(site: Site) -> Iterable[str]:
    return sorted({"default", *(p.stem for p in (site.vault / "System" / "Agents").glob("*.md"))})


def _settings(site: Site) -> Iterable[str]:
    from placet.cli.origins import names

    return [*names(), *(f"portals.{name}.path" for name in _portals(site))]


def folders(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem[str]]:
    """Let the shell complete the path of a folder."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="dir")]


ids = completer(_ids)
portals = completer(_portals)
agents = completer(_agents)
settings = completer(_settings)
