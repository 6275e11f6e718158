"""Test what an approval rests on."""

from __future__ import annotations

import pytest

from placet.case.approval import changed_instructions
from placet.case.case import Case, KnownPlan
from placet.case.life_cycle import State

KNOWN = (("SYSTEM_PROMPT.md", "1"), ("System/Agents/default.md", "2"))


@pytest.mark.parametrize(
    ("known", "now", "said"),
    [
        (KNOWN, KNOWN, ""),
        ((), KNOWN, ""),
        (
            KNOWN,
            (KNOWN[0], ("System/Agents/default.md", "3")),
            "`System/Agents/default.md` changed",
        ),
        (KNOWN, (("SYSTEM_PROMPT.md", "0"), KNOWN[1]), "`SYSTEM_PROMPT.md` changed"),
        (KNOWN, (KNOWN[0], ("System/Agents/writer.md", "2")), "Another agent wrote this plan"),
    ],
)
def test_sentence_names_the_note_that_changed(
    known: tuple[tuple[str, str], ...], now: tuple[tuple[str, str], ...], said: str
) -> None:
    case = Case("trace", "say-hello", State.APPROVED, plan=KnownPlan(instructions=known))
    found = changed_instructions(case, now)
    assert (said in found, bool(found)) == (True, bool(said))
