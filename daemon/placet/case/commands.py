"""Define the commands of a decision: effects on the vault, each retried until it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from placet.activity import Activity
from placet.case.case import Case
from placet.codec import Stored
from placet.plan.left_out import Ticked

BY_PEOPLE = frozenset({"status", "decision", "rejection_reason"})
"""Keys that people write as well as placet."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Set single frontmatter keys of the note at `path` (None removes one); no other byte changes.

    A note of another case is left alone, and so is a note without a trace_id that does not have
    `digest` (of the request without its stamped keys). `seen` has the value that each key of
    `BY_PEOPLE` had. Such a key is set only while it has that value, or none: else you wrote it, and
    the next look decides on it. Raises ValueError if `seen` lacks one.
    """

    path: str
    changes: Mapping[str, str | int | None]
    digest: str = ""
    seen: Mapping[str, str] = field(default_factory=dict)
    do: Literal["stamp"] = "stamp"

    def __post_init__(self) -> None:
        if missing := BY_PEOPLE & self.changes.keys() - self.seen.keys():
            raise ValueError(f"a stamp has to say which {sorted(missing)} it saw")


@dataclass(frozen=True, slots=True)
class Publish:
    """Write a new note with the stored text `text`; an existing file is never overwritten."""

    path: str
    text: str
    do: Literal["publish"] = "publish"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replace the note at `path` by the stored text `text`, while `seen` is its bytes' SHA-256.

    Another note stays: the next look decides on it. One that is gone is written again.
    """

    path: str
    seen: str
    text: str
    do: Literal["rewrite"] = "rewrite"


@dataclass(frozen=True, slots=True)
class Move:
    """Move the note at `src` to `dst`, unless it is another case's; a taken `dst` gets a number.

    A no-op if `src` is gone. With `digest` (of the request without its stamped keys) the note moves
    only while it still has it, or the same `meaning`.
    """

    src: str
    dst: str
    digest: str = ""
    meaning: str = ""
    do: Literal["move"] = "move"


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the note at `path` by another text.

    If the note was saved meanwhile, its new text stays, and the edit is made in that.
    """

    path: str
    expected: str
    """SHA-256 of the bytes that are replaced."""
    text: str
    """Name of the stored text."""
    comments: tuple[str, ...] = ()
    """Added to a note that was saved meanwhile, signed `who` and `at`."""
    who: str = ""
    at: str = ""
    steps: tuple[Ticked, ...] = ()
    """Ticked, or unticked, as they say."""
    intent: str = ""
    """The command that is answered once this is written, for an edit that decides nothing."""
    via: str = ""
    """How the person of `intent` gave it."""
    login: str = ""
    """Name of that person's login."""
    do: Literal["edit"] = "edit"


@dataclass(frozen=True, slots=True)
class WriteBox:
    """Write placet's box into the plan at `path`. Every byte below the box stays.

    The first line is `> [!{sort}|placet] {title}`. The permissions of the plan's scope are between
    `above` and `below`. What is not described here is as in `KnownPlan`.
    """

    path: str
    sort: str
    title: str
    branch: str
    """The place of the work."""
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    base_branch: str = ""
    base_commit: str = ""
    uncommitted: int = 0
    about_worktree: tuple[str, ...] = ()
    day_usd: Decimal = Decimal(0)
    command_notes: tuple[str, ...] = ()
    digest: str = ""
    """Digest that the plan's text must still have."""
    text: str = ""
    """Name of a stored text whose body replaces the plan's; empty for none."""
    do: Literal["box"] = "box"


Command = Stamp | Publish | Rewrite | Edit | Move | WriteBox
COMMAND_JSON: Stored[Command] = Stored(Stamp | Publish | Rewrite | Edit | Move | WriteBox)


@dataclass(frozen=True, slots=True)
class Decision:
    """The consequences of an event: the new case, journal rows, texts, commands in order."""

    case: Case
    rows: tuple[Activity, ...]
    commands: tuple[Command, ...] = ()
    texts: tuple[bytes, ...] = ()
