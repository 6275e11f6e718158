"""Test which cases the daemon holds, and how it finds the others."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.journal.test_reader import TRACE, case_of, put

from placet.case.case import Branch, KnownPlan
from placet.case.life_cycle import State
from placet.loop.open_cases import OpenCases
from placet.plan.digest import REQUEST_STAMPS, digest
from vaultkit import PLAN, TestVault, make_vault, started


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    return vault


def test_daemon_holds_only_open_or_visible_cases(vault):
    rejected = case_of(
        500,
        State.REJECTED,
        request_path="Inbox/Requests/No.md",
        plan=KnownPlan(path="Inbox/Rejected/request-500_rejected.md", revision=1),
    )
    open_branch = case_of(501, branches=(Branch(TRACE(501), "feat/x", "0" * 40, "1" * 40),))
    with started(vault) as daemon:
        put(
            daemon.journal,
            *(case_of(number) for number in range(300)),
            rejected,
            open_branch,
            case_of(502, State.REVIEW),
        )
    (vault.root / "Inbox/Requests/No.md").write_text(
        f"---\nstatus: rejected\ntrace_id: {rejected.trace_id}\n---\nNo.\n"
    )
    with started(vault) as daemon:
        loop = daemon.loop
        assert sorted(loop.cases) == [TRACE(502)], (
            "those that are open, before anything was looked at"
        )
        daemon.run_once()
        assert TRACE(500) in set(loop.cases), "its request lies in the folder"
        assert len(loop.cases) <= 2
        assert list(loop.cases.watched) == [TRACE(501)]
        assert loop.cases[TRACE(7)].request_id == "request-7", (
            "one that is over is found when it is asked for"
        )
        assert TRACE(999) not in loop.cases


def test_a_look_over_all_cases_looks_none_up(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(1, State.REVIEW)
    cases = OpenCases(Mock(), {case.trace_id: case})
    monkeypatch.setattr(OpenCases, "__getitem__", None)
    assert list(cases.values()) == [case]
    assert dict(cases.items()) == {case.trace_id: case}


def test_finished_case_is_found_by_trace_or_path(vault):
    """The plan of a mission that is over is dragged back from the archive.

    A rejected request loses its trace_id to an editor; its text is the same.
    """
    again = b"---\nstatus: pending\n---\nAsk again.\n"
    plan = "---\ntrace_id: {}\nrequest_id: request-3\nstatus: completed\nrevision: 1\n---\n# Done\n"
    rejected = case_of(
        4,
        State.REJECTED,
        request_path="Inbox/Requests/No.md",
        plan=KnownPlan(revision=1),
        request_digest=digest(again, REQUEST_STAMPS),
    )
    with started(vault) as daemon:
        put(daemon.journal, *(case_of(number) for number in range(4)), rejected)
        daemon.run_once()
        (vault.root / "Inbox/Plans/back.md").write_text(plan.format(TRACE(3)))
        (vault.root / "Inbox/Requests/No.md").write_bytes(again)
        daemon.run_once()
        assert [row["trace_id"] for row in vault.rows("plan.taken_back")] == [TRACE(3)]
        assert daemon.loop.cases[TRACE(3)].state is State.REVIEW
        assert {row["trace_id"] for row in vault.rows("request.detected")} == {TRACE(4)}, (
            "it is the rejected one, which asks again"
        )


def test_names_of_finished_requests_stay_taken(vault):
    with started(vault) as daemon:
        put(daemon.journal, case_of(1))
        vault.drop("Do it.\n", "Request 1.md")
        daemon.run_once()
    assert vault.rows("request.detected")[0]["entity_id"] == "request-1-2"
