"""Read text files for a model, and redact secrets first.

Searches look at the redacted text too: else a search could answer "does the key begin with a?".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from placet.disk.confine import Root
from placet.disk.handles import EntryKind
from placet.errors import ToolError
from placet.plan.globs import glob_matcher
from placet.secrets import SecretFile, redact, redact_values, secret_file, secret_values
from placet.tools.base import Location, Workplace

# Maximum of files and folders that a search goes through; a larger tree is searched by folder.
MAX_WALKED = 100_000


def glob_of(pattern: str) -> Callable[[str], bool]:
    """Return a predicate for the paths that a glob matches.

    Raises ToolError `bad_glob`, refused if it leads out of the root.
    """
    try:
        return glob_matcher(pattern)
    except ValueError as error:
        out = pattern.startswith(("/", "~")) or ".." in pattern.split("/")
        raise ToolError("bad_glob", f"The glob {error}.", refused=out) from error


def text_of(place: Workplace, path: str) -> str:
    """Return a file's text, secrets redacted, line numbers unchanged.

    Raises ToolError: `not_text` for a file that is not UTF-8, `secret_file` for a file of keys.
    """
    spot = place.readable(path)
    if secret_file(spot.path) is SecretFile.NOTHING:
        raise ToolError("secret_file", f"{path} holds keys, so it cannot be read.", refused=True)
    data = spot.files.read(spot.path)
    if b"\0" in data[:8192]:
        raise ToolError("not_text", f"{path} is a binary file of {len(data):,} bytes.")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ToolError(
            "not_text", f"{path} is not UTF-8 text (byte {error.start:,} of {len(data):,})."
        ) from error
    return _shown(place, spot.path, text)


def _shown(place: Workplace, path: str, text: str) -> str:
    if secret_file(path) is SecretFile.NAMES:
        text = redact_values(text)[0]
    return redact(text, place.secrets)[0]


def paths_below(spot: Location, wanted: Callable[[str], bool]) -> Iterator[str]:
    """Give the paths of the files at or below a spot that are wanted, sorted within each folder.

    Raises ToolError, `too_large` at the folder that makes it more than MAX_WALKED.
    """
    try:
        for entry in spot.files.walk(spot.path, max_entries=MAX_WALKED):
            if entry.kind in (EntryKind.FILE, EntryKind.SYMLINK) and wanted(entry.path):
                yield entry.path
    except ToolError as error:
        if error.error_type != "not_a_directory" or not spot.files.exists(spot.path):
            raise
        if wanted(spot.path):
            yield spot.path


def searchable(place: Workplace, spot: Location, path: str) -> str | None:
    """Return the redacted text of a file of `spot.files`, None if it cannot be searched.

    That is a binary file, one that is too large, and one that may not be read.
    """
    if secret_file(path) is SecretFile.NOTHING:
        return None
    try:
        data = spot.files.read(path)
    except ToolError:
        return None  # a search skips it
    if b"\0" in data[:8192]:
        return None
    return _shown(place, path, data.decode(errors="replace"))


def known_secrets(files: Root, skip: Collection[str] = ()) -> tuple[str, ...]:
    """Return the values in a folder's secret files: they are redacted wherever they turn up.

    The folders `skip` hold none.
    """
    found: list[str] = []
    for entry in files.walk(max_entries=1_000_000_000, skip=skip):
        if (
            entry.kind in (EntryKind.FILE, EntryKind.SYMLINK)
            and secret_file(entry.path) is not None
        ):
            try:
                data = files.read(entry.path)
            except ToolError:
                continue  # nor can a tool read it
            if b"\0" not in data[:8192]:
                found += secret_values(entry.path, data.decode(errors="replace"))
    return tuple(sorted(set(found), key=lambda value: (-len(value), value)))
