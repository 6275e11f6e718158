"""Translate the globs of a plan's permission to regular expressions that cannot explode.

Globs are anchored at the root of the repository and case-sensitive. `*` and `?` stay within one
path segment and match dotfiles too (as in .gitignore); `**` stands alone between slashes for any
number of segments, at the end for at least one; `[a-z]`, `[!a-z]` are classes; a trailing slash
means everything below. There is no brace expansion. A segment also matches itself literally, so
that `app/[slug]/page.tsx` allows the file of that name.

What follows a `*` or `**` is searched in an atomic group: what stands before the next one is
matched as early as it can be, and never again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from placet.note.portable import folded

# Characters of one glob; a longer one is nothing that a person reviews.
MAX_PATTERN = 1_024


def glob_problem(pattern: str) -> str | None:
    """Return what is wrong with a glob and how to write it, or None."""
    shown = repr(pattern[:200])
    body = pattern.removeprefix("!").removesuffix("/")
    segments = body.split("/")
    for is_wrong, why in (
        (not body, 'is empty; name a file or folder, such as "src/**"'),
        (len(pattern) > MAX_PATTERN, f"is longer than {MAX_PATTERN} characters"),
        (re.search(r"[\0-\x1f\x7f]", pattern), "has a control character"),
        ("~~" in pattern, "has `~~`, which a scope may not have"),
        ("<%" in pattern, "has `<` before `%`, which a scope may not have"),
        ("\\" in pattern, "has a backslash; write / between folders"),
        (
            re.match(r"/|[A-Za-z]:", body),
            'is absolute; write it relative to the repository, such as "src/**"',
        ),
        (
            body.startswith("~"),
            'points to a home folder; write it relative to the repository, such as "src/**"',
        ),
        (".." in segments, "leaves the repository (`..`); only files inside it can be written"),
        (
            "." in segments or "" in segments,
            'has an empty segment or `.`; write "src/main.py", not "./src//main.py"',
        ),
        (
            re.search(r"\{[^{}]*,", body),
            "has braces, which are not expanded; write one glob for each alternative",
        ),
        (
            any("**" in s and s != "**" for s in segments),
            'has `**` next to other characters; write "src/**/*.py"',
        ),
    ):
        if is_wrong:
            return f"{shown}{'…' if len(pattern) > MAX_PATTERN else ''} {why}"
    try:
        _expression(pattern.removeprefix("!"))
    except ValueError as error:
        return f"{shown} has a character class that {error}; write [abc], [a-z] or [!abc]"
    return None


def _segment(text: str) -> str:
    """Translate one segment. Raises ValueError with what is wrong with a class in it."""
    pieces = [""]
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "*":
            pieces.append("")
        elif char == "?":
            pieces[-1] += "[^/]"
        elif char == "[":
            negated = text[at : at + 1] in ("!", "^")
            at += negated
            end = text.find("]", at + 1)
            if end < 0:
                raise ValueError("is not closed")
            pieces[-1] += f"(?!/)[{'^' if negated else ''}{_ranges(text[at:end])}]"
            at = end + 1
        else:
            pieces[-1] += re.escape(char)
    first, *others = pieces
    if not others:
        return first if first == re.escape(text) else f"(?:{re.escape(text)}|{first})"
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1])
    return f"(?:{re.escape(text)}|{first}{middle}[^/]*{others[-1]})"


def _ranges(inside: str) -> str:
    if re.search(r"\[[:.=]", inside):
        raise ValueError("is of the POSIX kind")
    out = ""
    for low, high in re.findall(r"(?s)(.)(?:-(.))?", inside):
        if high and high < low:
            raise ValueError("has a range that runs backwards")
        out += f"{re.escape(low)}-{re.escape(high or low)}"
    return out


@lru_cache(maxsize=512)
def glob_pattern(glob: str) -> re.Pattern[str]:
    """Translate a valid glob without its `!`, to be matched with a whole path.

    Raises ValueError for a class that cannot be read.
    """
    return re.compile(_expression(glob))


def _expression(glob: str) -> str:
    segments = (glob + "**" if glob.endswith("/") else glob).split("/")
    if segments[-1] == "**":
        segments.append("*")  # `src/**` is what is below src, not src itself
    *runs, last = [
        [_segment(one) for one in run.split("/") if one] for run in "/".join(segments).split("**")
    ]
    fixed = ["".join(f"{segment}/" for segment in run) for run in runs]
    out = "".join(
        f"(?>(?:[^/]+/)*?{run})" if number else run for number, run in enumerate(fixed) if run
    )
    return out + ("(?:[^/]+/)*?" if runs else "") + "/".join(last)


@lru_cache(maxsize=512)
def segment_pattern(text: str) -> re.Pattern[str]:
    """Translate one segment of a valid glob, to be matched with a whole name."""
    return re.compile(_segment(text))


def matches_folded(glob: str, path: str) -> bool:
    """Return whether a glob matches a path if neither case nor Unicode form counts."""
    try:
        return glob_pattern(folded(glob)).fullmatch(folded(path)) is not None
    except ValueError:  # of a class such as [Z-a] no other spelling makes sense
        return False


def fixed_part(pattern: str) -> str:
    """Return the folders that a glob names outright: "src/app/" of `src/app/**/*.py`."""
    found = re.match(r"(?:[^*?\[/]+/)*", pattern)
    return found[0] if found else ""


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether one glob without `!` matches a path.

    Paths are relative, with `/` between segments. Raises ValueError for a glob that is wrong.
    """
    if (why := glob_problem(pattern)) or pattern.startswith("!"):
        raise ValueError(why or f"{pattern[:200]!r} begins with `!`")
    compiled = glob_pattern(pattern)
    return lambda path: compiled.fullmatch(path) is not None
