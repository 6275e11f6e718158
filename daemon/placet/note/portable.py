"""Find names of files that another system cannot check out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from placet.note.escape import code
from placet.note.paths import show_path

_WHY = (
    (r"(?i)(?:con|prn|aux|nul|com[1-9]|lpt[1-9])(?:\..*)?", "Windows reserves the name"),
    (r".*[ .]", "the name ends in a blank or a dot"),
    (r'.*[<>:"|?*\\\x01-\x1f].*', "the name has a character that Windows does not allow"),
)


def unportable(paths: Sequence[str], among: Iterable[str]) -> list[str]:
    """Return a sentence for each of these paths that not every system can check out.

    A path of `among` may differ from it by case or Unicode form only.
    """
    spellings: dict[str, set[str]] = {_folded(one): set() for path in paths for one in _above(path)}
    for path in (*paths, *among):
        for one in _above(path):
            if (known := spellings.get(_folded(one))) is not None:
                known.add(one)
    sentences = [
        f"{code(show_path(path))} cannot be checked out on Windows: {why}."
        for path in paths
        for pattern, why in _WHY
        if any(re.fullmatch(pattern, name, re.DOTALL) for name in path.split("/"))
    ]
    return sentences + [
        " and ".join(code(show_path(one)) for one in sorted(known))
        + " differ by case only: Windows and macOS check out one of them."
        for known in spellings.values()
        if len(known) > 1
    ]


def _above(path: str) -> list[str]:
    """Return a path and the folders above it."""
    return [path[: found.start()] for found in re.finditer("/|$", path)]


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path.casefold())
