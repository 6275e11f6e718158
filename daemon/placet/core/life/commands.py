"""The commands of a decision as values: effects on the vault, each performed until it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from placet.core.activity import Activity
from placet.core.life.case import Case
from placet.core.stored import Stored


@dataclass(frozen=True, slots=True)
class Stamp:
    """Set single frontmatter keys of the note at `path` (None removes one); no other byte changes.

    A note of another case is left alone, and so is a note without a trace_id that does not have
    `digest` (of the request without its stamped keys).
    """

    path: str
    changes: Mapping[str, str | int | None]
    digest: str = ""
    do: Literal["stamp"] = "stamp"


@dataclass(frozen=True, slots=True)
class Publish:
    """Write a new note with the stored text `text`; an existing file is never overwritten."""

    path: str
    text: str
    do: Literal["publish"] = "publish"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replace the plan at `path` by the stored text `text`, if its digest is `expected`.

    Another text is moved to `keep` first, so that neither is lost; without `keep` it stays, and
    nothing is written.
    """

    path: str
    expected: str
    text: str
    keep: str = ""
    do: Literal["rewrite"] = "rewrite"


@dataclass(frozen=True, slots=True)
class Move:
    """Move the note at `src` to `dst`, unless it is another case's; a taken `dst` gets a number.

    A no-op if `src` is gone. With `digest` (of the request without its stamped keys) the note moves
    only while it still has it.
    """

    src: str
    dst: str
    digest: str = ""
    do: Literal["move"] = "move"


@dataclass(frozen=True, slots=True)
class Show:
    """Write the daemon's callout on top of the plan at `path`; every byte below it stays.

    The first line is `> [!{sort}|placet] {title}`. The permissions of the plan's scope, read from
    the text in that moment, are between `above` and `below`; `branch` is the place of the work. A
    person's words in the callout are kept below it; `before` is the old notice, which is not kept.
    """

    path: str
    sort: str
    title: str
    branch: str
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    do: Literal["show"] = "show"


Command = Stamp | Publish | Rewrite | Move | Show
COMMAND_JSON: Stored[Command] = Stored(Stamp | Publish | Rewrite | Move | Show)


@dataclass(frozen=True, slots=True)
class Decision:
    """The consequences of an event: the new case, journal rows, texts, commands in order."""

    case: Case
    rows: tuple[Activity, ...]
    commands: tuple[Command, ...] = ()
    texts: tuple[bytes, ...] = ()
