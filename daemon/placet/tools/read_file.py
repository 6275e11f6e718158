"""`read_file`: read a file, or some of its lines."""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePosixPath

from pydantic import Field

from placet.chat.guards import Effect
from placet.disk.handles import EntryKind
from placet.disk.path_text import Fault
from placet.errors import ToolError
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace
from placet.tools.output import RESULTS, Passage
from placet.tools.shorten import lines_of
from placet.tools.text import text_of
from placet.wording import counted

MAX_NAMED = 20
"""How many names of a folder a model is told that asked for a file which is not there."""


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
    text = _kept(place, args.path) if args.path.startswith(RESULTS) else _text(place, args.path)
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


def _text(place: Workplace, path: str) -> str:
    """Return a file's text. Raises ToolError, with what the folder has where it lacks the file.

    A small model guesses again and again: `notes/summary.md`, to read what is in `notes`. It asks
    for a wider scope if it is not told to read.
    """
    try:
        return text_of(place, path)
    except ToolError as error:
        if error.error_type not in (Fault.NOT_FOUND, Fault.IS_A_DIRECTORY):
            raise
        spot = place.readable(path)
        for folder in (PurePosixPath(spot.path), *PurePosixPath(spot.path).parents):
            with suppress(ToolError):
                there_is = ", ".join(
                    spot.shown(one.path) + "/" * (one.kind is EntryKind.DIRECTORY)
                    for one in spot.files.list(str(folder))[:MAX_NAMED]
                )
                error.message += f". Read what there is: {there_is}" if there_is else ""
                if error.error_type == Fault.NOT_FOUND and (writes := place.scope.write):
                    error.message += (
                        ". Then write it: the plan allows that"
                        if place.scope.allows_write(path)
                        else f". The plan lets you write: {', '.join(writes[:3])}"
                    )
                break
        raise


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
