"""The size of a vault's history: files that it holds, and files that it leaves out."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from placet.note.paths import TEMP_PREFIX
from placet.repo.places import Repo
from placet.repo.values import FileChange

ATTACHMENTS = (
    "png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "heic", "heif", "avif", "ico",
    "psd", "raw", "svgz", "mp4", "m4v", "mov", "avi", "mkv", "webm", "mpg", "mpeg", "wmv", "flv",
    "mp3", "m4a", "wav", "flac", "ogg", "oga", "opus", "aac", "aiff", "wma", "pdf", "epub", "mobi",
    "djvu", "zip", "gz", "tgz", "bz2", "xz", "zst", "7z", "rar", "tar", "iso", "dmg", "doc",
    "docx", "xls", "xlsx", "ppt", "pptx", "odt", "ods", "odp", "pages", "numbers", "key", "exe",
    "dll", "so", "dylib", "bin", "class", "jar", "apk", "sqlite", "db",
)  # fmt: skip
"""Suffixes of files that a vault's history leaves out.

Pictures, films, sound, books, archives, office files, programs.
"""

INIT_FOLDER = ".placet-init"
"""The folder, in one that becomes a repository, in which that is made."""

MAX_KEPT_BYTES = 1_000_000
"""A larger file of a vault is left out of its history too, whatever its name."""


def attachment_patterns() -> list[str]:
    """Return what keeps attachments out as gitignore patterns, one a suffix, in capitals or not."""
    return [
        "*." + "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in suffix)
        for suffix in ATTACHMENTS
    ]


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a history: files and bytes that it would hold, and leave out.

    `kinds` has the bytes of each suffix that it would hold.
    """

    files: int
    bytes: int
    kinds: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0
    left_out_bytes: int = 0


def split(top: Path, paths: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Return the bytes of each file that a history holds, and the paths of too large ones."""
    sizes: dict[str, int] = {}
    for path in paths:
        try:
            sizes[path] = (top / path).lstat().st_size
        except OSError:  # gone meanwhile: git sees that too
            continue
    large = [path for path, size in sizes.items() if size > MAX_KEPT_BYTES]
    return {path: size for path, size in sizes.items() if size <= MAX_KEPT_BYTES}, large


def size_of(top: Path, kept: Mapping[str, int], excludes: Sequence[str]) -> Size:
    """Return the size of a history of the files `kept`, with their bytes, and of all others."""
    kinds: Counter[str] = Counter()
    for path, size in kept.items():
        kinds[PurePosixPath(path).suffix.lower() or "no suffix"] += size
    out = out_bytes = 0
    skipped = {".git", INIT_FOLDER, *(line.rstrip("/") for line in excludes if line.endswith("/"))}
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name not in skipped]
        for name in files:
            file = Path(folder, name)
            if str(file.relative_to(top)) not in kept:
                out += 1
                with suppress(OSError):
                    out_bytes += file.lstat().st_size
    return Size(len(kept), sum(kept.values()), dict(kinds.most_common()), out, out_bytes)


def exclude(repo: Repo, patterns: Sequence[str]) -> None:
    """Add gitignore patterns to `.git/info/exclude`, those that are not in it yet."""
    file = repo.common_dir / "info/exclude"
    file.parent.mkdir(exist_ok=True)
    present = file.read_bytes() if file.exists() else b""
    lines = set(present.splitlines())
    missing = [os.fsencode(line) for line in patterns if os.fsencode(line) not in lines]
    if missing:
        new = file.with_name("exclude.placet")
        joint = b"" if not present or present.endswith(b"\n") else b"\n"
        new.write_bytes(present + joint + b"\n".join(missing) + b"\n")
        new.replace(file)


def without_large(repo: Repo, found: Sequence[FileChange]) -> list[FileChange]:
    """Return the changes of a vault without new files that are too large for a history.

    `.git/info/exclude` then names those. Notes that placet is writing just now are left out, too.
    """
    found = [
        change
        for change in found
        if change.status != "A" or not PurePosixPath(change.path).name.startswith(TEMP_PREFIX)
    ]
    new = [change.path for change in found if change.status == "A"]
    _, large = split(repo.path, new)
    if large:
        exclude(repo, [_literal(path) for path in large])
    return [change for change in found if change.path not in large]


def _literal(path: str) -> str:
    return "/" + re.sub(r"([*?\[\\])", r"\\\1", path).replace("\n", "?").replace(" ", "\\ ")
