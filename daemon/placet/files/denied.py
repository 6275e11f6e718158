"""Names that no mission may touch, in every spelling that some file system takes for them."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

# Default_Ignorable_Code_Point of the Unicode Character Database (DerivedCoreProperties.txt); HFS+
# ignores some of them in names, which made `.g<U+200C>it` another name of `.git` (CVE-2014-9390).
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def _fold(path: str) -> str:
    """Return `path` as the most forgiving file system would compare it."""
    if path.isascii():
        return path.lower()
    folded = _IGNORABLE.sub("", unicodedata.normalize("NFKC", path).casefold())
    return unicodedata.normalize("NFKC", folded)


@lru_cache
def _disguises(names: tuple[str, ...]) -> str:
    """Return a pattern for any of `names` as one component of a folded path.

    Besides the name itself: its 8.3 alias on FAT and NTFS (`git~1`), trailing dots and spaces,
    which Windows drops, an NTFS stream (`.git:x`), and a backslash as the separator, as git's own
    `is_ntfs_dotgit` has it. A `*` at the end of a name stands for any more characters.
    """
    spellings: list[str] = []
    for name in names:
        folded = _fold(name)
        if folded.endswith("*"):
            spellings.append(rf"{re.escape(folded[:-1])}[^/\\:]*")
        base, dot, extension = folded.lstrip(".").rpartition(".")
        if not dot:
            base, extension = extension, ""
        alias = rf"{re.escape(base[:6])}~[0-9]+" + (
            rf"\.{re.escape(extension[:3])}" if extension else ""
        )
        spellings += [re.escape(folded), alias]
    return rf"(?:{'|'.join(spellings)})[ .]*(?=[:/\\]|\Z)" if spellings else r"(?!)"


@lru_cache
def _anywhere(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(r"(?:\A|[/\\])" + _disguises(names))


@lru_cache
def _at_root(paths: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for a folded path that is one of `paths`, or below one.

    `::$INDEX_ALLOCATION` behind a folder's name is that folder on NTFS.
    """
    below = r"(?::[^/\\]*)?[/\\]+"
    each = (below.join(_disguises((name,)) for name in path.split("/")) for path in paths)
    return re.compile("|".join(each) or r"(?!)")


@dataclass(frozen=True, slots=True)
class Denied:
    """Names that no scope can open.

    `anywhere`: neither read nor written, as any component of a path. `at_root`: paths below the
    folder `root` that are not written. It is the top where it is empty, and may itself not be
    replaced where it is not. Names are compared without regard to case, Unicode form and code
    points that cannot be seen. Raises ValueError for a name that is empty or has a separator in it.
    """

    anywhere: tuple[str, ...]
    at_root: tuple[str, ...] = ()
    root: str = ""

    def __post_init__(self) -> None:
        for name in (*self.anywhere, *(n for path in self.at_root for n in path.split("/"))):
            if not name or "/" in name:
                raise ValueError(f"not a single name: {name!r}")

    def hides(self, path: str) -> bool:
        """Return whether `path` (relative, canonical) may be neither read nor written."""
        return _anywhere(self.anywhere).search(_fold(path)) is not None

    def protects(self, path: str) -> bool:
        """Return whether `path` (relative, canonical) may not be written."""
        folded = _fold(path)
        if self.root:
            root = _fold(self.root)
            if root == folded or root.startswith(f"{folded}/"):
                return True
            if not folded.startswith(f"{root}/"):
                return self.hides(path)
            folded = folded.removeprefix(f"{root}/")
        return self.hides(path) or bool(_at_root(self.at_root).match(folded))


# Paths that no mission may touch in any repository.
ALWAYS = Denied(anywhere=(".git",))

# Paths that no mission may touch in the vault.
VAULT = Denied(
    anywhere=(".git",),
    at_root=(
        # Obsidian's settings may be in a folder of another name ("Override config folder"), which
        # people call `.obsidian-phone` and the like.
        ".obsidian*",
        "Inbox",
        "System",
        "SYSTEM_PROMPT.md",
        "Knowledge/Reports",
    ),
)
