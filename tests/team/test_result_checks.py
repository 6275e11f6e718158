"""Test what the daemon accepts from a compromised worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pgkit
from gitkit import git, make_repo
from gitkit import write as write_files
from teamkit import TestTeam, running_team
from vaultkit import DONE, PLAN, make_vault, until

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)

EVIL = """
from dataclasses import replace
import placet_team.worker as worker
from placet.case.events import Drafted
from placet.case.mission_result import *
from placet.cli.main import main
from placet.errors import End
real = worker.packed_result
def forged(given):
    {}
worker.packed_result = lambda given: real(forged(given))
main()
"""
APPROVE = """if isinstance(given, Drafted):
        text = given.text.replace(b'decision: ""', b"decision: approve")
        given = replace(given, text=text, revision=7, facts={"digest": "of another plan"})
    return given"""
OF_PLAN = 'if isinstance(given, Drafted):\n        return replace(given, text=b"no plan")\n'
BASE = """if isinstance(given, MissionResult) and given.ok:
        steps = tuple(replace(step, commit="f" * 40) for step in given.steps)
        work = {"files": (), "steps": steps, "kept": "refs/heads/x"}
        given = replace(given, base=given.commit, left_at="/worker/path", **work)
    return given"""
SPENT = """if isinstance(given, MissionResult) and given.ok:
        given = replace(given, spent=Spent(99, 10**15))
    return given"""
DRIFT = """if isinstance(given, MissionResult) and given.ok:
        drift = Drifted("A file was changed.", ("x",), given.commit, ())
        given = replace(given, end=End.DRIFT, detail="x", error_type="x", drift=drift)
    return given"""

OTHERS = """if isinstance(given, MissionResult) and given.ok:
        from placet.agent.record import Postponed
        from placet.case.waiting import WaitReason
        return worker.Wait("no room", 600.0, WaitReason.MACHINE)
    return given
from placet.agent.record import ENDED, Record
settle = Record.settle
def forge(self, entry, value, *rows, **how):
    if entry == ENDED:
        after = replace(value.after, notes=("All is well.",))
        where = {"branch": "other", "base": TIP, "left_at": "/worker/path"}
        value = replace(value, commit="", after=after, **where)
    return settle(self, entry, value, *rows, **how)
Record.settle = forge"""


@pytest.fixture
def team(tmp_path: Path, server: pgkit.Server) -> Iterator[TestTeam]:
    vault = make_vault(tmp_path)
    code = make_repo(tmp_path / "code")
    write_files(code, {"draft.txt": "not committed\n"})
    vault.click("portal", "add", "code", str(code))
    vault.plays(PLAN, *DONE)
    with running_team(tmp_path, server, 10, vault) as found:
        found.host()
        yield found


def forged(found: TestTeam, how: str) -> None:
    """Ask for a plan of a worker that gives back what `how` makes of each result."""
    found.worker("ann", program=("-c", EVIL.format(how)))
    found.vault.drop("---\nportal: code\n---\n# Say hello\n")


def ended(found: TestTeam) -> str:
    """Return the report of a mission of that worker."""
    until(found.vault.plan().exists, found.logs(), 60)
    found.vault.approve()
    found.until("report.written")
    (report,) = found.vault.root.glob("Knowledge/Reports/*.md")
    return report.read_text()


def test_plan_from_worker_cannot_approve_itself(team: TestTeam) -> None:
    forged(team, APPROVE)
    until(team.vault.plan().exists, team.logs(), 60)
    text = team.vault.plan().read_text()
    assert 'decision: ""' in text
    assert "revision: 1\n" in text
    assert "1 uncommitted file" in text, "of the person's checkout"
    ((*_, facts),) = team.rows("plan.created")
    assert "another plan" not in facts
    team.vault.click("status")
    assert not team.rows("plan.approved")


def test_unreadable_plan_from_worker_fails_planning(team: TestTeam) -> None:
    forged(team, OF_PLAN + "    return given")
    team.until("plan.failed")
    ((*_, facts),) = team.rows("plan.failed")
    assert "a worker gave back a plan that cannot be read" in facts


@pytest.mark.parametrize("how", [BASE, SPENT], ids=["base", "spent"])
def test_report_shows_git_facts_despite_forged_result(team: TestTeam, how: str) -> None:
    forged(team, how)
    report = ended(team)
    code = team.folder / "code"
    base = git(code, "rev-parse", "main")
    tip = git(code, "for-each-ref", "--format=%(objectname)", "refs/heads/feat")
    assert f"from `{base[:12]}` to `{tip[:12]}`" in report
    assert "hello.txt" in report
    assert "ffffffff" not in report
    assert "refs/heads/x" not in report
    assert "/worker/path" not in report
    assert "after 1 iteration\n" in report


def test_worker_cannot_claim_plan_drift(team: TestTeam) -> None:
    forged(team, DRIFT)
    ended(team)
    until(team.vault.plan().exists, team.logs(), 60)  # it moves after the report is written
    assert not team.rows("plan.drifted")
    assert "A file was changed" not in team.vault.plan().read_text()


def test_forged_end_record_deletes_no_branch(team: TestTeam) -> None:
    code = team.folder / "code"
    git(code, "branch", "other")
    forged(team, OTHERS.replace("TIP", repr(git(code, "rev-parse", "other"))))
    until(team.vault.plan().exists, team.logs(), 60)
    team.vault.approve()
    until(lambda: "no room" in team.log("host"), team.logs(), 60)
    for process in team.processes:
        process.terminate()
        process.wait(30)
    team.vault.click("config", "set", "team.workers", "false")
    team.host()
    team.until("report.written")
    refs = git(code, "for-each-ref", "--format=%(refname)", "refs/heads").split()
    assert "refs/heads/other" in refs
    (branch,) = [ref for ref in refs if ref.startswith("refs/heads/feat/")]
    (report,) = team.vault.root.glob("Knowledge/Reports/*.md")
    text = report.read_text()
    assert f"Branch `{branch.removeprefix('refs/heads/')}`" in text
    assert "/worker/path" not in text
    assert "All is well." not in text
