"""Test what status and show say of a case."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.cli.test_screen import known_vault
from tests.client.test_decisions import asking_vault

from looping import Fake, bare_vault, greeter, looping
from placet.case.life_cycle import State
from placet.cli import screen
from placet.cli.screen import status_screen
from placet.client import cases
from placet.client.cases import (
    Progress,
    Status,
    call_under_way,
    case_line,
    plans,
    show,
    status,
    unchanging,
)
from placet.client.texts import problems
from placet.disk.vault import Vault
from placet.host.clock import wall
from placet.journal.writes import AddRecord
from ptykit import on_terminal, seen
from vaultkit import PLAN, TestVault


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> TestVault:
    return known_vault(tmp_path_factory.mktemp("known"))


def test_json_output_keeps_all_keys(known: TestVault) -> None:
    cases = {
        case["request_id"]: case
        for case in json.loads(known.click("status", "--json").stdout)["cases"]
    }
    waiting = next(case for ident, case in cases.items() if ident.startswith("a-request"))
    assert waiting["estimate"]["missions"] == 3
    assert (
        waiting["estimate"]["median_usd"] == waiting["estimate"]["most_usd"] == pytest.approx(0.84)
    )
    assert 0 <= waiting["age_s"] < 600
    assert cases["one"]["estimate"] is None
    assert cases["one"]["approved_by"], "also once its mission is over"
    assert {"state", "title", "since", "plan", "intent", "asking"} <= waiting.keys()
    # the same numbers as in the plan's own callout
    assert (
        "Similar missions: about $0.84, up to $0.84 so far."
        in (known.root / waiting["plan"]).read_text()
    )
    assert [one.request_id for one in plans(known.site)] == [
        *(ident for ident, case in cases.items() if case["state"] == "review"),
        *(ident for ident, case in cases.items() if case["state"] == "completed"),
    ]
    assert show(known.site, "one").estimate is None


def test_old_branch_still_waits_to_be_merged(
    known: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = plans(known.site)
    monkeypatch.setattr(cases, "LATEST", 0)
    assert [one.request_id for one in plans(known.site)] == [one.request_id for one in before]


def test_cases_ended_before_yesterday_are_counted(
    known: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = status(known.site)
    merged = tuple(replace(one, became="merged") for one in found.cases if one.is_to_merge)
    found = replace(found, cases=merged)
    now = status_screen(found)
    monkeypatch.setattr(screen, "wall", lambda: wall() + timedelta(days=3))
    later = status_screen(found)
    assert "Ended since yesterday" in now
    assert "Ended since yesterday" not in later
    assert "3 ended earlier" in seen(later)


def test_running_case_shows_its_step(known: TestVault) -> None:
    found = status(known.site)
    case = replace(
        next(one for one in found.cases if one.request_id == "one"),
        state=State.RUNNING,
        progress=Progress(1, 2, 3, 0.25, 1.0),
    )
    text = seen(status_screen(replace(found, cases=(case,), daemon="pid 1")))
    assert "Under way (1)" in text
    assert "step 1 of 2 done, 3 iterations, $0.2500 of $1.00" in " ".join(text.split())


def test_decision_that_waits_for_daemon_is_under_way(tmp_path: Path) -> None:
    vault = asking_vault(tmp_path, approved=False)
    vault.drop("# Another\n", "Another.md")
    assert "Waits for you (1)" in seen(on_terminal(vault, "status")[1])
    vault.click("approve", "say-hello", "--yes")
    words = " ".join(seen(on_terminal(vault, "status", columns=200)[1]).split())
    assert "Under way (1)" in words
    assert "`placet approve` waits for the daemon" in words
    assert "Nothing waits for you." in words
    assert "notes 1 note changed since the daemon last ran" in words


def test_tool_call_is_running_until_outcome_is_recorded(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    begun = {"tool": "run_command", "input": {"command": "npm", "args": ["test"]}}
    with looping(vault, model=lambda: Fake(greeter)) as run:
        vault.drop("Say hello.\n")
        run.settle()
        case = vault.site.case("say-hello")
        trace, attempt, journal = case.trace_id, case.generation, run.loop.ports.journal
        journal.commit(
            [AddRecord(trace, attempt, 998, "intent", "call:9:0", json.dumps(begun).encode())]
        )
        approval = replace(case.approval, digest=case.plan.digest)
        runs = replace(case, state=State.RUNNING, approval=approval)
        with vault.site.reader("say-hello") as reader, Vault(vault.root) as folder:
            assert call_under_way(reader, case) == "run_command npm test"
            line = case_line(vault.site, folder, reader, runs, {})
        # another daemon resumes it after a crash
        journal.commit([AddRecord(trace, attempt, 1000, "intent", "life:2", b"{}")])
        with vault.site.reader("say-hello") as reader:
            assert call_under_way(reader, case) == "run_command npm test"
        assert line.progress.now == "", "nothing runs without a daemon"
        journal.commit([AddRecord(trace, attempt, 1001, "outcome", "call:9:0", b"{}")])
        with vault.site.reader("say-hello") as reader:
            assert call_under_way(reader, case) == ""


def test_status_shows_every_problem_of_a_note(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    with looping(vault, model=lambda: Fake(greeter)) as run:
        vault.drop("---\npriority: 12\nbudget_usd: -1\n---\nSay hello.\n")
        run.settle()
    for shown in (vault.click("status").stdout, status_screen(status(vault.site))):
        assert "`priority: 12` is not" in shown
        assert "`budget_usd: -1` is not" in shown
    assert problems("In its way:\nthe lock\nMore.", 50) == ["In its way: the lock", "More."]


@pytest.mark.parametrize("thing", ["folder", "link", "pipe", "too large"])
def test_unreadable_plan_hides_no_request(tmp_path: Path, thing: str) -> None:
    vault = bare_vault(tmp_path)
    with looping(vault, model=lambda: Fake(greeter)) as run:
        for name in ("one", "two"):
            vault.drop("Say hello.\n", f"{name}.md")
            run.settle()
    plan = vault.plan("one")
    plan.unlink()
    match thing:
        case "folder":
            plan.mkdir()
        case "link":
            plan.symlink_to("elsewhere")
        case "pipe":
            os.mkfifo(plan)
        case _:
            plan.write_bytes(b"x" * 20_000_000)
    names = [case.request_id for case in status(vault.site).cases]
    assert sorted(names) == ["one", "two"]
    assert show(vault.site, "one").plan_text is None
    assert plans(vault.site)


def test_a_note_with_two_lines_counts_once(vault: TestVault) -> None:
    vault.plays(PLAN)
    vault.drop("Say hello.\n")
    vault.here()
    vault.active().write_text(vault.plan().read_text())
    vault.here()
    assert "Notes (2)" in vault.click("status").stdout


def test_only_time_passing_changes_no_status(known: TestVault) -> None:
    found = status(known.site)
    runs = Progress(1, 2, 3, 0.25, None, "run_command npm test", 95.0)

    def later(age_s: float, now_s: float, step: int = 1) -> Status:
        progress = replace(runs, step=step, now_s=now_s)
        return replace(found, cases=(replace(found.cases[0], age_s=age_s, progress=progress),))

    assert unchanging(later(10.0, 3.0)) == unchanging(later(12.0, 5.0))
    assert unchanging(later(10.0, 3.0)) != unchanging(later(10.0, 3.0, step=2))
