"""Read text files for a model, and redact secrets first.

Searches look at the redacted text too: else a search could answer "does the key begin with a?".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from placet.disk.confine import Root
from placet.disk.handles import EntryKind
from placet.errors import ToolError
from placet.git.attributes import Attributes
from placet.plan.globs import glob_matcher
from placet.secret_files import SecretFile, redact_values, secret_file, secret_values
from placet.secrets import redact
from placet.tools.base import Location, Workplace
from placet.tools.text_file import TextFile, is_binary, shown, text_file

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

    Raises ToolError: `not_text` for a binary file, `secret_file` for a file of keys.
    """
    spot = place.readable(path)
    kind, data = secret_file(spot.path), b""
    if kind is not SecretFile.NOTHING:
        kind, data = _read(spot, spot.path)
    if kind is SecretFile.NOTHING:
        raise ToolError("secret_file", f"{path} holds keys, so it cannot be read.", refused=True)
    file = None
    with suppress(ToolError):  # git may name its encoding
        file = text_file(path, data, Attributes())
    if file is None or not file.codec:
        known = _attributes(place, spot, [spot.path]).get(spot.path, Attributes())
        file = text_file(path, data, known)
    return _shown(place, kind, file)


def _read(spot: Location, path: str) -> tuple[SecretFile | None, bytes]:
    """Return a file's kind, by its name and by the one that a link leads to, and its content.

    Raises ToolError.
    """
    data, real = spot.files.read_through(path)
    kinds = {secret_file(path), secret_file(real)} - {None}
    return (SecretFile.NOTHING if SecretFile.NOTHING in kinds else next(iter(kinds), None)), data


def _attributes(place: Workplace, spot: Location, paths: Sequence[str]) -> Mapping[str, Attributes]:
    return place.attributes(paths) if spot.files is place.root and paths else {}  # not for notes


def _shown(place: Workplace, kind: SecretFile | None, file: TextFile) -> str:
    text = file.text
    if kind is SecretFile.NAMES:
        text = redact_values(text)[0]
    return shown(redact(text, place.secrets)[0])


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


def texts_below(
    place: Workplace,
    spot: Location,
    wanted: Callable[[str], bool],
    may_match: Callable[[str], bool],
) -> Iterator[tuple[str, str | None]]:
    """Give the paths of `paths_below`, each with its redacted text.

    The text is "" for a file that `may_match` does not want: redacting all takes longer than
    reading them. It is None for a file that cannot be searched: a binary file, one that is too
    large, and one that may not be read. Files that are not UTF-8 come last, because git is asked
    once for the encodings of all.
    """

    def found(kind: SecretFile | None, file: TextFile) -> str:
        return _shown(place, kind, file) if may_match(shown(file.text)) else ""

    others: list[str] = []
    for path in paths_below(spot, wanted):
        kind, file = _searched(spot, path, Attributes())
        if file is not None and file.codec:
            yield path, found(kind, file)
        else:
            others.append(path)
    known = _attributes(place, spot, others)
    for path in others:
        kind, file = _searched(spot, path, known.get(path, Attributes()))
        yield path, None if file is None else found(kind, file)


def _searched(
    spot: Location, path: str, known: Attributes
) -> tuple[SecretFile | None, TextFile | None]:
    """Return a file's kind and its text; no text where a search skips it."""
    if (kind := secret_file(path)) is SecretFile.NOTHING:
        return kind, None
    try:
        kind, data = _read(spot, path)
        return kind, None if kind is SecretFile.NOTHING else text_file(path, data, known)
    except ToolError:
        return kind, None


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
            if not is_binary(data):
                found += secret_values(entry.path, data.decode(errors="replace"))
    return tuple(sorted(set(found), key=lambda value: (-len(value), value)))
