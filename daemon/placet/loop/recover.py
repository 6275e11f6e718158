"""Ask again after the journal was lost or replaced by a backup."""

from __future__ import annotations

from placet.activity import Action
from placet.case.life_cycle import State
from placet.case.results import distrust
from placet.loop.rows import of_daemon
from placet.loop.tick import Loop

_LOST = "The journal was lost, or restored from a backup."


def distrust_journal(loop: Loop) -> None:
    """Drop all pending commands and intents, and have open approvals reviewed again.

    They were meant for the notes of another day. The next look sends plans in System/Active back to
    review.
    """
    book = loop.book
    book.outbox.forget()
    while loop.read_intents():
        loop.decisions.gestures.refuse(
            f"{_LOST} Decide again.", *list(book.intents.waiting.values())
        )
    open_ones = [
        case for case in book.cases.values() if case.acting in (State.APPROVED, State.RUNNING)
    ]
    clock = book.ports.clock
    book.record(*(distrust(case, clock.now()) for case in open_ones))
    facts = {"to_review": [case.request_id for case in open_ones]}
    book.ports.journal.commit([of_daemon(clock, Action.JOURNAL_RECONCILED, **facts)])
    book.say(f"{_LOST} Open requests and plans are read again, and plans come back for review.")
