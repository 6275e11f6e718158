"""Questions and wider scopes that wait for a person, as the journal and their notes have them."""

from __future__ import annotations

from typing import Any

from placet.activity import Action
from placet.case.case import Asking, Case
from placet.case.question_note import question_in
from placet.cli.notes import note_text, text_of
from placet.cli.rendered import rendered
from placet.cli.site import Site
from placet.core.text.facts import more_scope
from placet.disk.vault import Vault
from placet.journal.reader import Reader
from placet.note.box import unmarked
from placet.note.frontmatter import plan_digest, read_note


def asks_for_more(case: Case) -> bool:
    """Return whether a case's mission asks for a wider scope."""
    return case.asking is not None and bool(case.asking.amended)


def asking_text(site: Site, case: Case) -> bytes:
    """Return the text of the note in which a case asks; raises UserError where it is gone."""
    assert case.asking is not None, "only what is asked is shown"
    return note_text(site, case, case.asking.path)


def wider_scope(site: Site, case: Case) -> tuple[str, bytes]:
    """Return the wider scope that a mission asks for, for a terminal, and its note's text."""
    raw = asking_text(site, case)
    return f"{rendered(unmarked(read_note(raw).body))}\ndigest    {plan_digest(raw)[:16]}", raw


def asked_line(folder: Vault, reader: Reader, case: Case) -> dict[str, Any] | None:
    """Return what a case asks a person as plain data; None where it asks nothing.

    `question` is empty while the note cannot be read.
    """
    if (asking := case.asking) is None:
        return None
    raw = text_of(folder, asking.path)
    is_question = not asking.amended
    asked = question_in(raw) if raw is not None and is_question else ""
    return {
        "kind": "question" if is_question else "amendment",
        "path": asking.path,
        "number": asking.number,
        "of": asking.work.value,
        "since": asking.asked_at,
        "question": asked if is_question else _wider(reader, case, asking),
        "options": list(asking.options),
        "digest": asking.digest,
    }


def _wider(reader: Reader, case: Case, asking: Asking) -> str:
    """Return what is asked for besides the approved scope, on one line."""
    row = reader.last_of(Action.PLAN_AMENDMENT_REQUESTED, trace_id=case.trace_id)
    return "" if row is None or row.details["number"] != asking.number else more_scope(row.details)
