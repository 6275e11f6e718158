"""`placet show` on a terminal: a table of what a case is, then its notes, rendered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placet.cli.rendered import rendered
from placet.cli.screen import drawn, heading, link, table, words
from placet.cli.terminal import colour, harmless, shown_time
from placet.cli.text import ACTORS, COLOURS, estimate_words, is_routine, turn
from placet.core.text.facts import facts
from placet.note.frontmatter import read_note

if TYPE_CHECKING:
    from rich.console import RenderableType


def show_screen(found: Mapping[str, Any], vault: Path) -> Iterator[tuple[str, bool]]:
    """Give the parts of `placet show`: their text, and whether it was fitted to the terminal."""
    yield drawn(heading(found["title"]), table(list(_facts(found, vault)), indent=0)), True
    for name in ("asking", "request", "plan", "report"):
        if text := found[f"{name}_text"]:
            digest = found["plan_digest"][:16] if name == "plan" else ""
            bound = f" (digest {digest})" if digest else ""
            yield "\n" + colour(f"── {name}{bound}", "white", bold=True), False
            yield _note(text), False
    rows = [_row(row) for row in found["journal"] if not is_routine(row)]
    yield "\n" + colour("── journal", "white", bold=True), False
    yield drawn(table(rows, whole=(0,), indent=0)), True


def _facts(found: Mapping[str, Any], vault: Path) -> Iterator[tuple[RenderableType, ...]]:
    """Give names and values: the state first; what a case has not is left out."""
    told = turn(found, daemon=bool(found["daemon"]))
    values: list[tuple[str, RenderableType | str]] = [
        ("state", words(told, COLOURS[found["state"]])),
        ("id", words(f"{found['request_id']}, trace {found['trace_id']}")),
        ("since", shown_time(found["since"])),
        ("carried out by", (found["carrier"] or {}).get("by", "")),
        ("agent", found["agent"]),
        ("portal", found["portal"]),
        ("approved", found["approved_by"]),
        ("branch", found["branch"] if found["commit"] else ""),
        ("cost", estimate_words(found["estimate"])),
    ]
    paths = ((name, found[name]) for name in ("request", "plan", "report") if found[name])
    values += [(name, link(path, vault / path)) for name, path in paths]
    for name, value in values:
        if value:
            yield words(name, "dim"), words(value) if isinstance(value, str) else value


def _note(text: str) -> str:
    """Return a note for reading: its properties as they are, then its text rendered."""
    body = read_note(text.encode(errors="surrogateescape")).body
    above = text[: len(text) - len(body)].strip() if body and text.endswith(body) else ""
    lines = [colour(harmless(line), "bright_black") for line in above.splitlines()]
    shown = rendered(body)
    return "\n".join([*lines, *([""] if lines and shown else []), shown])


def _row(row: Mapping[str, Any]) -> list[RenderableType]:
    told = facts(row["action_type"], row["metadata"])
    return [
        words(shown_time(row["timestamp"])),
        words(row["actor"], ACTORS[row["actor"]]),
        words(row["action_type"]),
        words(told),
    ]
