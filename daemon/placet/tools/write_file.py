"""`write_file`: create a file or replace one whole."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from placet.chat.guards import Effect
from placet.disk.path_text import Fault
from placet.errors import ToolError
from placet.git.attributes import Attributes
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace
from placet.tools.text_file import WAY_OUT, text_file


class WriteFile(Args):
    """Arguments of `write_file`."""

    path: str = Field(description="File to create or replace, relative to the repository's root.")
    content: str = Field(description="The whole new content.")


_FORMLESS = (Fault.NOT_FOUND, Fault.NOT_A_DIRECTORY, Fault.HARD_LINK)
"""Why there is no form to keep: nothing is there, or it may not be read and is replaced."""


def _run(place: Workplace, args: WriteFile) -> dict[str, Any]:
    path, known = place.writable(args.path)
    if place.literal:
        content = text_file(args.path, b"", known).encoded(args.content)
    else:
        content = _in_form(place, args, path, known)
    return {"path": path, "written_bytes": place.root.write(path, content)}


def _in_form(place: Workplace, args: WriteFile, path: str, known: Attributes) -> bytes:
    """Return the bytes to write: a file that is replaced keeps its form."""
    try:
        before = place.root.read(path)
    except ToolError as error:
        if error.error_type not in _FORMLESS:
            raise
        before = b""
    try:
        return text_file(args.path, before, known).rewritten(args.content)
    except ToolError as error:
        if error.error_type == "not_text":
            raise ToolError(error.error_type, f"{error.message} {WAY_OUT}") from error
        raise


TOOL = Tool(
    "write_file",
    "Create a file, with the folders it needs, or replace one whole. Only paths in the approved "
    "scope. A file that is replaced keeps its encoding, its line ends and its final newline.",
    WriteFile,
    Effect.WRITE,
    _run,
)
