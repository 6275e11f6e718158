"""Say what is wrong with a block of YAML, with its line and key, and what to write instead.

libyaml names what its parser expected. These sentences name the quote, bracket or tab in the line.
"""

from __future__ import annotations

import re

import yaml

from placet.note.escape import code
from placet.note.hidden_text import shortened
from placet.note.markdown import BREAK

_QUOTE = "Put quotes around the whole value."

# What libyaml says, what the line holds from the place that it names, and our sentence, in which
# `{}` is the first group found. The first match counts.
_SENTENCES = (
    ("unhashable", r"(\{\{.*?\}\})", f"{{}} is a template that was not filled in. {_QUOTE}"),
    ("unhashable", "", f"a list or a map cannot be a key. {_QUOTE}"),
    (
        "'[]}]'|node content",
        r"[\[{](?:.*?[\s,\[{])?(#[^\s,\]}]*)",
        "everything after `#` is a comment. Put quotes around {}.",
    ),
    (
        "']'|node content",
        r"\[[^\]]*$",
        "the list that begins with `[` is not closed. Write `]` after its last item.",
    ),
    (
        "'}'|node content",
        r"\{[^}]*$",
        "the braces that begin with `{` are not closed. If this is a text, put quotes around it.",
    ),
    ("'[]}]'", "", "text follows an item of the list. Put quotes around that whole item."),
    (
        "end of stream",
        r"""^(["'])""",
        "the quote {} is not closed. Write it again at the end of the value.",
    ),
    (
        "hexdecimal|escape character",
        r"(\\.?)",
        "in double quotes, {} begins an escape. Use single quotes: `'C:\\Users'`.",
    ),
    ("tab char|start any token", r"^\s*\t", "the line begins with a tab. Replace it with spaces."),
    (
        "numeric char|undefined alias|any token|line break|node content",
        r"^(\S)",
        f"a value cannot begin with {{}}. {_QUOTE}",
    ),
    ("constructor", r"^(!\S*)", "{} is an unknown tag. If this is a text, put quotes around it."),
    (
        "block sequence",
        "",
        "a list begins on the line below its key. If this is a text, put quotes around it.",
    ),
    ("expected key", r"^(- )", "this list item is not in line with those above it."),
    (
        "expected key",
        r"^(.+)",
        "{} follows a closing quote or bracket. Put quotes around the whole value, of a kind that "
        "is not in it.",
    ),
)

# Where libyaml's context says more than the place at which the parser stopped.
_BEGINS = re.compile(
    r"(flow|constructing a) (sequence|mapping)|(quoted|block) scalar|alias|anchor|simple key"
)

# Characters of a line that are searched, so that no hostile line takes long.
_MAX_SEARCHED = 500

_KEY = re.compile(r"""["']?([^\W\d_][^:"'#\[\]{}]*)["']?:(?=\s|$)""")


def yaml_problem(block: str, error: yaml.MarkedYAMLError) -> tuple[int, str]:
    """Return which line of the block is wrong, from 0, and " (`key`): what is wrong."."""
    words = error.problem or ""
    begins = error.context_mark if _BEGINS.search(error.context or "") else None
    mark = begins or error.problem_mark or error.context_mark
    above = BREAK.split(block[: mark.index if mark else 0])
    at, column, lines = len(above) - 1, len(above[-1]), BREAK.split(block)
    rest = lines[at][column:]
    while at > 0 and not rest.strip():  # the block ended where more was expected
        at -= 1
        rest = lines[at]
    rest = rest[:_MAX_SEARCHED]
    if words.startswith("mapping values"):
        before = lines[at][:column]
        if re.search(r":\s", before):
            return at, f"{_key(lines, at)}: the value contains `: `. {_QUOTE}"
        if before[:1] in " \t":
            return (
                at,
                ": the line is indented, unlike the one above it. Remove the spaces before it.",
            )
        words, at = "expected ':'", max(at - 1, 0)
    if words.endswith("expected ':'"):
        return at, f": {_shown(lines[at])} is not `key: value`, with a space after the colon."
    for wanted, pattern, sentence in _SENTENCES:
        if re.search(wanted, words) and (found := re.search(pattern, rest)):
            shown = _shown(found[1]) if found.groups() else ""
            return at, f"{_key(lines, at)}: {sentence.replace('{}', shown)}"
    return at, f"{_key(lines, at)}: {words}."


def _shown(text: str) -> str:
    return code(shortened(text.strip(), 60))


def _key(lines: list[str], at: int) -> str:
    """Return " (`key`)" for the key to whose value a line belongs, or an empty string."""
    for line in reversed(lines[: at + 1]):
        if found := _KEY.match(line):
            return f" ({_shown(found[1])})"
        if line[:1] not in "- \t":
            break
    return ""
