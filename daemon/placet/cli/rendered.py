"""A note's markdown as plain text for a terminal: all that is written in it can be seen."""

from __future__ import annotations

import re

from placet.cli.terminal import colour, harmless
from placet.note.markdown import fence_at

_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_HEADING = re.compile(r"(#{1,6})[ \t]+(.*)")
_QUOTES = re.compile(r"((?:>[ \t]?)+)(.*)")
_CALLOUT = re.compile(r"\[!([\w-]+)(?:\|\w+)?\][+-]?[ \t]*(.*)")
_ALARMING = frozenset({"danger", "warning", "failure"})
_CHANGED = {"+": "green", "-": "red"}


def rendered(body: str) -> str:
    """Return markdown without the marks that only a reading view needs; no words are left out."""
    out: list[str] = []
    fence = None
    for raw in body.strip("\r\n").splitlines():
        line = harmless(raw.rstrip())
        if fence is not None:
            fence, shown = (None, "") if fence.closes(raw) else (fence, f"    {_difference(line)}")
            out += [shown] if shown else []
        elif (fence := fence_at(raw)) is None:
            out.append(_line(line))
        elif fence.info.strip() not in ("", "diff", "toml"):
            out.append(f"    ({harmless(fence.info.strip())})")
    return "\n".join(out)


def _difference(line: str) -> str:
    name = _CHANGED.get(line[:1])
    return colour(line, name) if name else line


def _line(line: str) -> str:
    if found := _HEADING.fullmatch(line):
        return colour(_plain(found[2]), "white", bold=True)
    if not (found := _QUOTES.fullmatch(line)):
        return _plain(line)
    bars = "│ " * found[1].count(">")
    if callout := _CALLOUT.fullmatch(found[2]):
        sort = callout[1].casefold()
        name = "red" if sort in _ALARMING else "white"
        return f"{bars}{colour(f'{sort}: {_plain(callout[2])}'.strip(), name, bold=True)}"
    return f"{bars}{_plain(found[2])}".rstrip()


def _plain(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)
