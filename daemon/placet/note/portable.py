"""Find names of files that another system cannot check out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from unicodedata import normalize

from placet.note.escape import code
from placet.note.paths import show_path

_WHY = (
    (
        r"(?i)(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[1-9¹²³]) *(?:\..*)?",
        "Windows reserves the name",
    ),
    (r".*[ .]", "the name ends in a blank or a dot"),
    (r'.*[<>:"|?*\\\x01-\x1f].*', "the name has a character that Windows does not allow"),
)


def unportable(paths: Sequence[str], among: Iterable[str]) -> list[str]:
    """Return a sentence for each of these paths that not every system can check out.

    A path of `among` may differ from it by case or Unicode form only.
    """
    spellings: dict[str, set[str]] = {folded(one): set() for path in paths for one in _above(path)}
    for path in (*paths, *among):
        for one in _above(path):
            if (known := spellings.get(folded(one))) is not None:
                known.add(one)
    sentences = [
        f"{code(show_path(path))} cannot be checked out on Windows: {why}."
        for path in paths
        for pattern, why in _WHY
        if any(re.fullmatch(pattern, name, re.DOTALL) for name in path.split("/"))
    ]
    return sentences + [
        " and ".join(code(show_path(one)) for one in sorted(known))
        + f" differ by {_difference(known)} out one of them."
        for known in spellings.values()
        if len(known) > 1
    ]


def _above(path: str) -> list[str]:
    """Return a path and the folders above it."""
    return [path[: found.start()] for found in re.finditer("/|$", path)]


def _difference(spellings: Iterable[str]) -> str:
    if len({normalize("NFC", one) for one in spellings}) == 1:
        return "Unicode form only: macOS checks"
    return "case only: Windows and macOS check"


def folded(text: str) -> str:
    """Return a path or glob as a file system takes it that knows neither case nor Unicode forms."""
    if text.isascii():
        return text.lower()
    return normalize("NFC", normalize("NFD", text).casefold())
