"""`list_directory`: list the entries of a folder."""

from __future__ import annotations

import json
from collections.abc import Collection

from pydantic import Field

from placet.chat.guards import Effect
from placet.disk.confine import Entry
from placet.disk.handles import EntryKind
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace


class ListDirectory(Args):
    """Arguments of `list_directory`."""

    path: str = Field(
        description='Folder to list, relative to the repository\'s root; "." is the root.'
    )


def _run(place: Workplace, args: ListDirectory) -> str:
    spot = place.readable(args.path)
    modules: Collection[str] = () if spot.prefix else place.modules
    if spot.path in modules:
        return "A submodule, empty here. Nothing can be read or written in it."
    entries = spot.files.list(spot.path)
    return "\n".join(_line(one, modules) for one in entries) or "The folder is empty."


def _line(entry: Entry, modules: Collection[str]) -> str:
    name = entry.path.rsplit("/", 1)[-1]
    if not name.isprintable():
        name = json.dumps(name)  # a line break in a name would look like another entry
    match entry.kind:
        case EntryKind.DIRECTORY:
            return f"{name}/{' (a submodule, empty here)' if entry.path in modules else ''}"
        case EntryKind.FILE:
            return f"{name} {entry.size}"
    return f"{name} ({entry.kind.value})"


TOOL = Tool(
    "list_directory",
    "List a folder, an entry a line. A folder ends in `/`, a file has its size in bytes.",
    ListDirectory,
    Effect.READ,
    _run,
)
