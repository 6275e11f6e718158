"""Read the notes of a case while the daemon may be writing them."""

from __future__ import annotations

import time
from contextlib import suppress

from placet.case.case import Case
from placet.client.site import Site
from placet.disk.errors import Gone, NotSettled, Unreadable
from placet.disk.vault import Vault
from placet.errors import UserError
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


def text_if_readable(folder: Vault, path: str) -> bytes | None:
    """Return a note's text, None where no text can be read, such as of a folder or a link.

    A screen that lists requests is there for all of them; a side note says what is wrong with one.
    """
    with suppress(Unreadable):
        return text_of(folder, path)
    return None


def is_missing(folder: Vault, path: str) -> bool:
    """Return whether nothing is at the place of a note, not even what cannot be read."""
    with suppress(Unreadable):
        return text_of(folder, path) is None
    return False


def note_text(site: Site, case: Case, path: str) -> bytes:
    """Return the text of a case's note; wait for the daemon to write it, at most WRITING_S.

    Raises UserError where it is not there.
    """
    for _ in site.changes(WRITING_S):
        with Vault(site.vault) as folder:
            raw = text_of(folder, path)
        if raw is not None:
            return raw
        if site.daemon is None:
            break
    raise not_there(case, path)


def not_there(case: Case, path: str) -> UserError:
    """Return the error for a note that is not where the journal has it."""
    return UserError(
        f"{visible(path)} is not there. It was moved, or the daemon has not written it yet.",
        f"See why: placet why {case.request_id}",
    )


def asks_for_more(case: Case) -> bool:
    """Return whether a case's mission asks for a wider scope."""
    return case.asking is not None and bool(case.asking.amended)


def asking_text(site: Site, case: Case) -> bytes:
    """Return the text of the note in which a case asks; raises UserError where it is gone."""
    assert case.asking is not None, "only what is asked is shown"
    return note_text(site, case, case.asking.path)


def note_of_plan(site: Site, case: Case) -> bytes:
    """Return the text of a case's plan; raises UserError where it is gone."""
    return note_text(site, case, case.plan.path)
