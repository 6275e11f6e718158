"""`read_file`: the text of a file, whole or some of its lines."""

from __future__ import annotations

from pydantic import Field

from placet.core.errors import ToolError
from placet.tools.base import Args, Effect, Tool, Workplace


class ReadFile(Args):
    """Arguments of `read_file`."""

    path: str = Field(description="File to read, relative to the repository's root.")
    offset: int = Field(default=1, ge=1, description="First line to return, counted from 1.")
    limit: int | None = Field(default=None, ge=1, description="How many lines to return; all of them if left out.")


def text_of(place: Workplace, path: str) -> str:
    """Return a file's text. Raises ToolError, `not_text` for a file that is not UTF-8 text."""
    root, inner = place.readable(path)
    data = root.read(inner)
    if b"\0" in data[:8192]:
        raise ToolError("not_text", f"{path} is a binary file of {len(data):,} bytes.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ToolError("not_text", f"{path} is not UTF-8 text (byte {error.start:,} of {len(data):,}).") from error


def _run(place: Workplace, args: ReadFile) -> str:
    text = text_of(place, args.path)
    if args.offset == 1 and args.limit is None:
        return text
    lines = text.splitlines(keepends=True)
    if args.offset > max(len(lines), 1):
        raise ToolError("bad_offset", f"{args.path} has {len(lines)} lines; there is no line {args.offset}.")
    end = len(lines) if args.limit is None else args.offset - 1 + args.limit
    return "".join(lines[args.offset - 1:end])


TOOL = Tool("read_file", "Read a text file. Long files are cut in the middle: read them in parts with offset and limit.",
            ReadFile, Effect.READ, _run)
