"""`read_file`: read a file, or some of its lines."""

from __future__ import annotations

from pydantic import Field

from placet.chat.guards import Effect
from placet.errors import ToolError
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace
from placet.tools.output import RESULTS, Passage
from placet.tools.shorten import lines_of
from placet.tools.text import text_of
from placet.wording import counted


class ReadFile(Args):
    """Arguments of `read_file`."""

    path: str = Field(
        description="File to read, relative to the repository's root; "
        "or the name of a long result, @result/…."
    )
    offset: int = Field(default=1, ge=1, description="First line to return, counted from 1.")
    limit: int | None = Field(
        default=None, ge=1, description="How many lines to return; all of them if left out."
    )


def _run(place: Workplace, args: ReadFile) -> Passage:
    text = _kept(place, args.path) if args.path.startswith(RESULTS) else text_of(place, args.path)
    if args.offset == 1 and args.limit is None:
        return Passage(text, args.path)
    lines = lines_of(text)
    if args.offset > max(len(lines), 1):
        raise ToolError(
            "bad_offset",
            f"{args.path} has {counted(len(lines), 'line')}; there is no line {args.offset}.",
            lines=len(lines),
        )
    end = len(lines) if args.limit is None else args.offset - 1 + args.limit
    return Passage("".join(lines[args.offset - 1 : end]), args.path, args.offset)


def _kept(place: Workplace, name: str) -> str:
    text = place.results.get(name)
    if text is None:
        raise ToolError("not_kept", f"{name} is not kept any longer. Repeat the call that gave it.")
    return text


TOOL = Tool(
    "read_file",
    "Read a text file. Long files are cut in the middle: read them in parts with offset and limit.",
    ReadFile,
    Effect.READ,
    _run,
)
