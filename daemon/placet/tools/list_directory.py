"""`list_directory`: the entries of a folder."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from placet.tools.arguments import Args
from placet.tools.base import Effect, Tool, Workplace


class ListDirectory(Args):
    """Arguments of `list_directory`."""

    path: str = Field(
        description='Folder to list, relative to the repository\'s root; "." is the root.'
    )


def _run(place: Workplace, args: ListDirectory) -> list[dict[str, Any]]:
    spot = place.readable(args.path)
    return [
        {"name": e.path.rsplit("/", 1)[-1], "type": e.kind.value, "size": e.size}
        for e in spot.files.list(spot.path)
    ]


TOOL = Tool(
    "list_directory",
    "List a folder: names with type and size in bytes.",
    ListDirectory,
    Effect.READ,
    _run,
)
