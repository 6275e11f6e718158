"""`delete_file`: delete a file or a link."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from placet.chat.guards import Effect
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace


class DeleteFile(Args):
    """Arguments of `delete_file`."""

    path: str = Field(
        description="File or symbolic link to delete, relative to the repository's root."
    )


def _run(place: Workplace, args: DeleteFile) -> dict[str, Any]:
    path = place.changeable(args.path)
    place.root.delete(path, folders=False)
    return {"path": path}


TOOL = Tool(
    "delete_file",
    "Delete a file or a symbolic link, not a folder. Only paths in the approved scope.",
    DeleteFile,
    Effect.WRITE,
    _run,
)
