"""Entries of folders below a root: listed by handle, without the names that may not be read."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from placet.errors import ToolError
from placet.files.denied import Denied
from placet.files.handles import LISTING, EntryKind, Held, kind_of, open_below
from placet.files.paths import MAX_DEPTH, Fault, fault_at


@dataclass(frozen=True, slots=True)
class Entry:
    """Something below the root.

    `path` is relative, `/`-separated, bytes that are not UTF-8 as surrogates. `size` is in bytes, 0
    for anything that is not a file.
    """

    path: str
    kind: EntryKind
    size: int


def entry_of(path: str, info: os.stat_result) -> Entry:
    """Return the entry with this path and state."""
    kind = kind_of(info)
    return Entry(path, kind, info.st_size if kind is EntryKind.FILE else 0)


def must_be_file(info: os.stat_result, path: str) -> None:
    """Raise ToolError for anything but a regular file."""
    match kind_of(info):
        case EntryKind.FILE:
            return
        case EntryKind.DIRECTORY:
            raise fault_at(Fault.IS_A_DIRECTORY, path, "is a folder")
        case EntryKind.SYMLINK:
            raise fault_at(
                Fault.PATH_DENIED, path, "is a symbolic link; name the file that it points to"
            )
        case EntryKind.OTHER:
            raise fault_at(
                Fault.NOT_A_REGULAR_FILE, path, "is a FIFO, a socket or a device, not a file"
            )


def entries_of(
    denied: Denied, handle: int, inside: str, most: int, too_large: ToolError
) -> list[Entry]:
    """Return the entries of the open folder `inside` ('' for the root), sorted.

    Raises OSError, and `too_large` for more than `most` entries.
    """
    found: list[Entry] = []
    with os.scandir(handle) as entries:
        for entry in entries:
            if denied.hides(entry.name):
                continue
            if len(found) == most:
                raise too_large
            path = f"{inside}/{entry.name}" if inside else entry.name
            with contextlib.suppress(FileNotFoundError):  # deleted since the listing began
                found.append(entry_of(path, entry.stat(follow_symlinks=False)))
    return sorted(found, key=lambda entry: entry.path)


def below(
    denied: Denied,
    top: int,
    inside: str,
    most: int,
    too_large: ToolError,
    skip: Collection[str] = (),
) -> Iterator[Entry]:
    """Give the entries below the open folder `top`, whose path is `inside`, but the folders.

    Nothing below the folders `skip`. Raises as `entries_of`.
    """
    start = len(inside) + 1 if inside else 0
    ahead = [*reversed(entries_of(denied, top, inside, most, too_large))]
    left = most - len(ahead)
    while ahead:
        entry = ahead.pop()
        if entry.kind is not EntryKind.DIRECTORY:
            yield entry
            continue
        if entry.path in skip:
            continue
        shut = Entry(entry.path, EntryKind.OTHER, 0)
        if entry.path.count("/") >= MAX_DEPTH - 1:
            yield shut
            continue
        parts = os.fsencode(entry.path[start:]).split(b"/")
        try:
            with Held(open_below(top, parts, LISTING)) as handle:
                found = entries_of(denied, handle, entry.path, left, too_large)
        except PermissionError:
            yield shut
            continue
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                continue  # it was a folder a moment ago, and is gone or something else now
            raise
        left -= len(found)
        ahead += reversed(found)
