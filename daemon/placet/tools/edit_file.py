"""`edit_file`: replace a piece of a file."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from placet.chat.guards import Effect
from placet.errors import ToolError
from placet.secrets import outside, secret_file
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace


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
    path = place.writable(args.path)
    if secret_file(path) is not None:
        raise ToolError(
            "secret_file",
            f"{args.path} holds secrets, which are not shown, so no piece of it can be replaced. "
            "Write it whole, or leave it to a person.",
            refused=True,
        )
    before = place.root.read(path).decode("utf-8", "surrogateescape")
    old, new = args.old, args.new
    if "\r\n" in before and "\r\n" not in old:
        # The model sees and writes plain newlines; a file with CRLF keeps its own.
        old = old.replace("\n", "\r\n")
        new = new.replace("\r\n", "\n").replace("\n", "\r\n")
    # Only between the secrets: else trying pieces would reveal them letter by letter.
    pieces = outside(before, place.secrets)
    count = sum(piece.count(old) for piece, secret in pieces if not secret)
    if count == 0:
        raise ToolError(
            "not_found_in_file",
            f"{args.path} does not contain the text to replace. Read the file again and "
            "copy the text exactly, white space included.",
        )
    if count > 1 and not args.replace_all:
        raise ToolError(
            "ambiguous",
            f"{args.path} contains that text {count} times. Give more of the lines around it, or "
            "set replace_all.",
            occurrences=count,
        )
    if old == new:
        raise ToolError("no_change", f"old and new are the same: {args.path} was left as it is.")
    after = "".join(piece if secret else piece.replace(old, new) for piece, secret in pieces)
    place.root.write(path, after.encode("utf-8", "surrogateescape"))
    return {"path": path, "replacements": count}


TOOL = Tool(
    "edit_file",
    "Replace a piece of a text file. Only paths in the approved scope.",
    EditFile,
    Effect.WRITE,
    _run,
)
