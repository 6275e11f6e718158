"""Make texts and data safe and readable, for a terminal, a page and a program."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from placet.disk.errors import RETRIED
from placet.errors import UserError
from placet.host.clock import wall
from placet.note.paths import show as visible
from placet.wording import local


def hint_of(error: UserError) -> str:
    """Return what helps a person whose own act met an error: no daemon tries that again."""
    return error.hint.replace(RETRIED, "then try again.")


def json_text(data: Any, *, indent: int | None = None) -> str:
    """Return data as JSON; invisible characters and those that reverse text are escaped."""
    text = json.dumps(data, ensure_ascii=False, indent=indent, default=_plain)
    return _UNSEEN.sub(lambda c: c[0] if c[0].isprintable() else json.dumps(c[0])[1:-1], text)


_UNSEEN = re.compile(r"[^\n -~]")


def _plain(value: object) -> object:
    if is_dataclass(value):  # `class_` is the key `class`
        return {one.name.rstrip("_"): getattr(value, one.name) for one in fields(value)}
    return value.hex() if isinstance(value, bytes) else str(value)


def shown_time(moment: str) -> str:
    """Return a moment for people: local time, with the date where it is not today."""
    return local(moment, now=wall())


_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


def local_times(lines: Sequence[str]) -> list[str]:
    """Return sentences with their moments, which are as data has them, in local time."""
    return [_MOMENT.sub(lambda found: shown_time(found[0]), line) for line in lines]


def harmless(text: str) -> str:
    """Return a text with characters written out that move a terminal's cursor or hide something."""
    return "".join(char if char in "\n\t\\" else visible(char) for char in text)


def problems(why: str, width: int) -> list[str]:
    """Return what is told of a note, each line shortened, without the difference that it shows."""
    from placet.plan.differences import without_difference  # `placet --help` needs no markdown

    problem = without_difference(why).replace(":\n", ": ")
    return [on_one_line(line, width) for line in problem.splitlines()] or [""]


def first_line(text: str, width: int = 150) -> str:
    """Return a text's first line, harmless, shortened to so many characters.

    A line that ends with a colon takes the next one along.
    """
    return problems(text, width)[0]


def on_one_line(text: str, width: int) -> str:
    """Return a text on one line, harmless, shortened to so many characters."""
    return harmless(textwrap.shorten(text, width, placeholder=" …"))
