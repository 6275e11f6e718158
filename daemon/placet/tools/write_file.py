"""`write_file`: create a file or replace one whole."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from placet.chat.guards import Effect
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace


class WriteFile(Args):
    """Arguments of `write_file`."""

    path: str = Field(description="File to create or replace, relative to the repository's root.")
    content: str = Field(description="The whole new content.")


def _run(place: Workplace, args: WriteFile) -> dict[str, Any]:
    path = place.writable(args.path)
    return {"path": path, "written_bytes": place.root.write(path, args.content.encode())}


TOOL = Tool(
    "write_file",
    "Create a file, with the folders it needs, or replace one whole. Only paths in the approved "
    "scope.",
    WriteFile,
    Effect.WRITE,
    _run,
)
