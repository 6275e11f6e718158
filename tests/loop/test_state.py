"""Test what the loop's state remembers of a decision and of its effects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.journal.test_reader import case_of, put

from looping import Time, bare_vault, looping
from placet.case.case import Branch, LastOutcome
from placet.case.life_cycle import State


def test_case_names_the_report_where_it_is(tmp_path: Path) -> None:
    wanted, place = "Knowledge/Reports/r.md", "Knowledge/Reports/r 2.md"
    with looping(bare_vault(tmp_path), time=Time()) as running:
        state = running.loop.state
        branch = Branch("t", "feat/x", "b", "c", report_path=wanted)
        done = replace(
            case_of(1, State.FAILED, branches=(branch,)),
            outcome=LastOutcome(f"It failed (see {wanted})", report_path=wanted),
        )
        put(state.ports.journal, done)
        case = state.cases[done.trace_id]
        assert len(state.reported(case, wanted, wanted, 9)) == 1, "the case stays as it is"
        state.ports.journal.commit(state.reported(case, wanted, place, 9))
    with looping(running.vault, time=Time()) as running:
        case = running.loop.state.cases[done.trace_id]
        assert case.outcome == LastOutcome(f"It failed (see {place})", report_path=place)
        assert [branch.report_path for branch in case.branches] == [place]
