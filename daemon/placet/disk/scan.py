"""List the notes in the vault's folders, and delete leftovers of interrupted writes."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from placet.case.settle import Fingerprint
from placet.disk.handles import FILE, LISTING, EntryKind, Held, enter, kind_of
from placet.note.paths import (
    is_note,
    is_side_note,
    is_temporary,
    placeholder_of,
)

# Size of the largest note that placet reads. A sparse file can claim a terabyte.
NOTE_LIMIT = 2 * 1024 * 1024

# Search range for the callout of a side note, because a person may write above it.
HEAD_BYTES = 4096

# Listed levels of sub-folders below `Inbox/Requests`. Each holds a handle open.
MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Found:
    """One listed name."""

    fingerprint: Fingerprint
    kind: EntryKind


@dataclass(frozen=True, slots=True)
class FolderProblem:
    """A folder that could not be listed, and the reason. Everything below `path` is unknown."""

    path: str
    why: str


@dataclass(slots=True)
class Scan:
    """What one scan finds, by path relative to the vault (non-UTF-8 bytes as surrogates)."""

    present: bool = True
    """False if the vault is unmounted or replaced, or its marker is gone. Then do nothing."""
    found: dict[str, Found] = field(default_factory=dict)
    """Notes, and other things with a note's name."""
    side_notes: dict[str, Found] = field(default_factory=dict)
    """The daemon's own explanations."""
    problems: list[FolderProblem] = field(default_factory=list)
    placeholders: set[str] = field(default_factory=set)
    """Notes that a sync tool replaced by placeholders."""

    def failed(self, path: str, error: OSError) -> None:
        """Add a folder that cannot be listed."""
        self.problems.append(FolderProblem(path, os.strerror(error.errno or errno.EIO)))

    def add(self, handle: int, prefix: str, depth: int | None, known: Mapping[str, Found]) -> None:
        """List an open folder and `depth` levels below it; None: flat, without its folders.

        `known` are the side notes of the last scan. Raises OSError if the folder itself cannot be
        listed.
        """
        inner: list[str] = []
        with os.scandir(handle) as entries:
            for entry in entries:
                if (note := placeholder_of(entry.name)) is not None:
                    self.placeholders.add(f"{prefix}/{note}")
                if is_temporary(entry.name):
                    continue
                path = f"{prefix}/{entry.name}"
                try:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    is_link = depth is not None and not is_folder and entry.is_dir()
                    if is_note(entry.name) or is_link:
                        self._note(path, entry.stat(follow_symlinks=False), handle, known)
                    elif is_folder and depth is not None:
                        inner.append(entry.name)
                except FileNotFoundError:
                    continue  # deleted since the listing began
                except OSError as error:
                    self.failed(path, error)
        for name in inner:
            self._add_inner(handle, f"{prefix}/{name}", name, depth or 0, known)

    def _add_inner(
        self, handle: int, path: str, name: str, depth: int, known: Mapping[str, Found]
    ) -> None:
        """List a sub-folder. An error in it is recorded as a problem of the scan."""
        if depth == 0:
            why = f"it is more than {MAX_DEPTH} folders deep; move it, or its notes, up"
            self.problems.append(FolderProblem(path, why))
            return
        try:
            with Held(enter(handle, name, LISTING)) as below:
                self.add(below, path, depth - 1, known)
        except FileNotFoundError:
            return
        except OSError as error:
            self.failed(path, error)

    def _note(
        self, path: str, info: os.stat_result, folder: int, known: Mapping[str, Found]
    ) -> None:
        found = Found(fingerprint(info), kind_of(info))
        is_side = is_side_note(path) and (known.get(path) == found or _explains(folder, path))
        into = self.side_notes if is_side else self.found
        into[path] = found


def fingerprint(info: os.stat_result) -> Fingerprint:
    """Return the attributes that change with the file."""
    return Fingerprint(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _explains(folder: int, path: str) -> bool:
    """Return whether a file with a side note's name reads like one. Others are people's notes."""
    try:
        with Held(enter(folder, path.rpartition("/")[2], FILE)) as handle:
            head = os.read(handle, HEAD_BYTES)
    except OSError:
        return True
    # a formatter may have taken the blank away, or escaped the bracket
    return not head or re.search(rb">[ \t]?\\?\[!warning", head) is not None
