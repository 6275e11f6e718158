"""Remove the temporary files of a placet that was killed, and keep the saves among them."""

from __future__ import annotations

import contextlib
import os
import secrets

from placet.codec import sha256
from placet.disk.errors import NotAFile, NotSettled, TooLarge
from placet.disk.files import is_running, lock
from placet.disk.handles import FILE, LISTING, Held, enter
from placet.disk.replace import exchanged_by, read, rename_new
from placet.note.paths import TEMP_PREFIX

_SAVED = "Saved while placet stopped (conflicted copy {}).md"


def sweep(folder: int, depth: int) -> int:
    """Delete the leftovers in an open folder and `depth` levels below it; return their number."""
    with os.scandir(folder) as entries:
        there = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    swept = 0
    for name, is_folder in there:
        with contextlib.suppress(OSError):
            if name.startswith(TEMP_PREFIX) and not is_folder:
                swept += _delete_leftover(folder, name)
            elif is_folder and depth and not name.startswith("."):
                with Held(enter(folder, name, LISTING)) as below:
                    swept += sweep(below, depth - 1)
    return swept


def _delete_leftover(folder: int, name: str) -> bool:
    """Delete a temporary file unless its writer lives; return whether it did.

    A file from an exchange that holds neither the old text nor the new one is somebody's save: it
    becomes a conflict copy.
    """
    exchanged = exchanged_by(name)
    with Held(enter(folder, name, FILE)) as handle:
        if not lock(handle) or (exchanged is not None and is_running(exchanged.pid)):
            return False
        if exchanged is not None and not exchanged.knows(_digest(folder, name)):
            rename_new(folder, name, folder, _SAVED.format(secrets.token_hex(4)))
            return False
        os.unlink(name, dir_fd=folder)
    return True


def _digest(folder: int, name: str) -> str:
    try:
        return sha256(read(folder, name, name)[0])
    except (NotAFile, NotSettled, TooLarge):
        return ""
