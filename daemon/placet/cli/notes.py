"""Read notes for commands, and count those that changed since the daemon last ran."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from placet.case.case import Case
from placet.cli.site import Site
from placet.disk.errors import Gone, NotSettled
from placet.disk.scan import Found
from placet.disk.vault import Vault
from placet.errors import UserError, counted
from placet.journal.reader import Reader
from placet.note.paths import show as visible

WRITING_S = 2.0
"""Seconds for which a command waits for a note that the daemon is about to write."""


def text_of(folder: Vault, path: str) -> bytes | None:
    """Return a note's text, None where it is gone.

    One that is being written is read again, for as long as a program takes to write a note. Raises
    Unreadable, NotSettled of one that is written on and on.
    """
    try:
        for pause_s in (0.02, 0.1, 0.5):
            with suppress(NotSettled):
                return folder.read(path)[0]
            time.sleep(pause_s)
        return folder.read(path)[0]
    except Gone:
        return None


def note_text(site: Site, case: Case, path: str) -> bytes:
    """Return the text of a case's note; wait for the daemon to write it, at most WRITING_S.

    Raises UserError where it is not there.
    """
    until = time.monotonic() + WRITING_S
    while True:
        with Vault(site.vault) as folder:
            raw = text_of(folder, path)
        if raw is not None:
            return raw
        if site.daemon is None or time.monotonic() > until:
            raise not_there(case, path)
        time.sleep(0.05)


def not_there(case: Case, path: str) -> UserError:
    """Return the error for a note that is not where the journal has it."""
    return UserError(
        f"{visible(path)} is not there. It was moved, or the daemon has not written it yet.",
        f"See why: placet why {case.request_id}",
    )


def last_moment(reader: Reader) -> str:
    """Return the time of the journal's last event, RFC 3339; empty where there is none."""
    return "".join(row.timestamp for row in reader.activity(limit=1, newest=True))


def count_changed(notes: Iterable[Found], since: str) -> int:
    """Return how many of these files changed, or were moved, after the time `since` (RFC 3339)."""
    since_ns = datetime.fromisoformat(since).timestamp() * 1e9 if since else 0.0
    # A move keeps the time of the last change of a file's text, and sets the other one.
    times = (max(one.fingerprint.mtime_ns, one.fingerprint.ctime_ns) for one in notes)
    return sum(time_ns > since_ns for time_ns in times)


def changed_words(number: int) -> str:
    """Return the line about notes that changed while no daemon ran; empty for none."""
    return f"{counted(number, 'note')} changed since the daemon last ran" if number else ""
