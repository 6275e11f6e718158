"""Where a report lies is what is written down of it: in the case, in the journal, and for all that
follows from them.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from looping import Fake, Time, bare_vault, greeter, looping, says
from placet.chat.messages import Ask, Purpose, Reply
from vaultkit import TestVault, meddling


def case_of(vault: TestVault) -> dict[str, Any]:
    with closing(sqlite3.connect(vault.db)) as connection:
        ((body,),) = connection.execute("SELECT body FROM cases").fetchall()
    return dict(json.loads(body))


def test_two_failures_on_one_day_have_a_report_each_and_the_next_planning_reads_the_last(
    tmp_path: Path,
) -> None:
    vault = bare_vault(tmp_path)
    reasons = iter(["FIRST", "SECOND"])
    asks: list[Ask] = []

    def gives_up(ask: Ask) -> Reply:
        asks.append(ask)
        return (
            greeter(ask)
            if ask.purpose is not Purpose.EXECUTE
            else says(("give_up", {"reason": next(reasons)}))
        )

    with looping(vault, model=lambda: Fake(gives_up), time=Time()) as running:
        note = vault.drop("Say hello\n")
        for number in (1, 2):
            running.settle()
            vault.approve()
            running.settle()
            rows = vault.rows("report.written")
            assert len(rows) == number
            assert case_of(vault)["report_path"] == rows[-1]["metadata"]["path"]
            note.write_text(note.read_text().replace("status: error", "status: pending"))
        running.settle()
    first, second = (row["metadata"]["path"] for row in vault.rows("report.written"))
    assert second == first.replace(".md", "-2.md")
    assert "FIRST" in (vault.root / first).read_text()
    assert "SECOND" in (vault.root / second).read_text()
    assert asks[-1].purpose is Purpose.PLAN
    assert "SECOND" in str(asks[-1].turns)
    assert "FIRST" not in str(asks[-1].turns)


@pytest.mark.parametrize("at", ["before the mission ended", "after it was decided"])
def test_a_report_whose_name_a_person_has_taken_is_known_by_where_it_lies(
    tmp_path: Path, at: str
) -> None:
    vault = bare_vault(tmp_path)
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running, meddling():
        vault.drop("Say hello\n")
        running.settle()
        mine = (
            vault.root
            / f"Knowledge/Reports/2026-11-21_{case_of(vault)['trace_id'][:8]}_say-hello.md"
        )
        mine.parent.mkdir(parents=True, exist_ok=True)
        if at == "before the mission ended":
            mine.write_text("mine\n")
        publish = running.loop.book.vault.publish

        def after_a_person(path: str, data: bytes) -> bool:
            if path.startswith("Knowledge/Reports/") and not mine.exists():
                mine.write_text("mine\n")
            return publish(path, data)

        running.loop.book.vault.publish = after_a_person  # type: ignore[method-assign]
        vault.approve()
        running.settle()
    assert mine.read_text() == "mine\n"
    report = str(mine.relative_to(vault.root)).replace(".md", "-2.md")
    assert "status: completed" in (vault.root / report).read_text()
    assert case_of(vault)["report_path"] == report
    assert [row["metadata"]["path"] for row in vault.rows("report.written")] == [report]
    assert report in vault.click("show", "say-hello").stdout
    vault.click("drop", "say-hello", "--reason", "too broad")
    assert "dropped_reason: too broad" in (vault.root / report).read_text()
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        running.settle()
    assert "became: dropped" in (vault.root / report).read_text()
