"""`edit_file`: replace a piece of a file."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from placet.chat.guards import Effect
from placet.errors import ToolError
from placet.secret_files import is_secret_path
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace
from placet.tools.text_file import text_file

_OTHER = "It has bytes that are not UTF-8. Choose a piece of text without them."
_COPY = "Read the file again and copy the text exactly, white space included."


class EditFile(Args):
    """Arguments of `edit_file`."""

    path: str = Field(description="File to change, relative to the repository's root.")
    old: str = Field(
        min_length=1,
        description="The exact text to replace. It must occur once, unless replace_all is true.",
    )
    new: str = Field(description="The text to put in its place.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")


def _run(place: Workplace, args: EditFile) -> dict[str, Any]:
    path, known = place.writable(args.path)
    data, real = b"", path
    if not is_secret_path(path):
        data, real = place.root.read_through(path)
    if is_secret_path(real):
        raise ToolError(
            "secret_file",
            f"{args.path} holds secrets, which are not shown, so no piece of it can be replaced. "
            "Write it whole, or leave it to a person.",
            refused=True,
        )
    file = text_file(args.path, data, known)
    # Only between the secrets: else trying pieces would reveal them letter by letter.
    after, count = file.edited(args.old, args.new, place.secrets)
    if count == 0:
        raise ToolError(
            "not_found_in_file",
            f"{args.path} does not contain the text to replace. "
            + (_COPY if file.codec else _OTHER),
        )
    if count > 1 and not args.replace_all:
        raise ToolError(
            "ambiguous",
            f"{args.path} contains that text {count} times. Give more of the lines around it, or "
            "set replace_all.",
            occurrences=count,
        )
    if args.old == args.new:
        raise ToolError("no_change", f"old and new are the same: {args.path} was left as it is.")
    place.root.write(path, after)
    return {"path": path, "replacements": count}


TOOL = Tool(
    "edit_file",
    "Replace a piece of a text file. Its encoding and line ends stay. Only paths in the approved "
    "scope.",
    EditFile,
    Effect.WRITE,
    _run,
)
