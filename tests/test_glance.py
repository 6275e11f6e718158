"""`status`, `why` and `plans` are true while no daemon runs: the folders laid over the journal."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from placet.cli import glance as glancing
from placet.cli import why
from placet.cli.case_line import case_line, waits_for_you
from placet.cli.site import find
from placet.cli.terminal import shown_time
from placet.core.life.case import State
from placet.core.text.note import stamp
from placet.files.vault import Vault
from placet.journal.reader import open_reader
from vaultkit import PLAN, TestVault, make_vault, running, until


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    found = make_vault(tmp_path)
    found.script(
        ("plan", [{"calls": [("submit_plan", PLAN)]}]),
        (
            "execute",
            [
                {"calls": [("write_file", {"path": "hello.txt", "content": "Hello.\n"})]},
                {"delay_s": 60.0, "calls": [("finish", {"summary": "said"})]},
            ],
        ),
    )
    found.drop("# Say hello\n")
    found.once()
    return found


def case(vault: TestVault) -> dict[str, Any]:
    (found,) = json.loads(vault.click("status", "--json").stdout)["cases"]
    return dict(found)


def told(vault: TestVault) -> str:
    """What status and why say of the one request, on one line."""
    line = vault.click("status").stdout.splitlines()[-1]
    return line + " " + " ".join(vault.click("why", "say-hello").stdout.split())


def test_what_was_not_moved_is_as_the_journal_has_it(vault: TestVault) -> None:
    assert case(vault)["undecided"] is None
    assert "waits for you: Inbox/Plans/say-hello_plan.md" in told(vault)
    vault.plan().rename(vault.plan().with_name("another name.md"))  # a name says nothing
    assert case(vault)["undecided"] is None
    assert case(vault)["plan"] == "Inbox/Plans/another name.md"
    assert "waits for you: Inbox/Plans/another name.md" in told(vault)


def test_a_request_that_no_daemon_has_seen_is_not_said_to_be_missing(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.drop("# Say hello\n")
    found = json.loads(vault.click("why", "say-hello", "--json").stdout)
    assert (found["state"], found["why"]) == (
        "new",
        ["Inbox/Requests/Say hello.md was not taken up yet."],
    )
    assert "Start it: placet run" in found["next"][0]
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}]))
    vault.once()
    vault.drop("# Say more\n", "Say more.md")
    assert json.loads(vault.click("why", "say-more", "--json").stdout)["state"] == "new"
    assert vault.click("why", "nobody", check=False).returncode == 3


@pytest.mark.parametrize(
    ("target", "what", "follows"),
    [
        (
            "System/Active/say-hello.md",
            "its plan was moved to System/Active",
            "when a daemon runs, it is approved, and carried out",
        ),
        ("Inbox/Rejected/no.md", "its plan was rejected", "when a daemon runs, that is recorded"),
        ("elsewhere.md", "its plan was taken away", "when a daemon runs, it is withdrawn"),
    ],
)
def test_a_plan_that_was_moved_while_no_daemon_runs(
    vault: TestVault, target: str, what: str, follows: str
) -> None:
    vault.plan().rename(vault.root / target)
    line = told(vault)
    assert re.search(rf"{what}( at \d\d:\d\d:\d\d)?, not taken up yet; {follows}", line), line
    assert "The journal still has it as: review." in line
    assert "Start it: placet run" in line
    assert "waits for you" not in line
    assert vault.click("plans").stdout == "No plan waits for you.\n"
    if target != "elsewhere.md":
        assert case(vault)["plan"] == target


def test_a_plan_that_was_approved_in_its_properties_while_no_daemon_runs(
    vault: TestVault,
) -> None:
    vault.plan().write_bytes(stamp(vault.plan().read_bytes(), {"decision": "approve"}))
    line = told(vault)
    assert "its plan was approved in its properties" in line
    assert "when a daemon runs, it is approved, and carried out" in line
    assert "there is no tool" not in line


def test_a_request_that_was_edited_and_a_plan_that_is_to_be_changed(vault: TestVault) -> None:
    text = vault.plan().read_text()
    vault.plan().write_text(text.replace("status: review", "status: needs_revision"))
    assert "changes of its plan were asked for" in told(vault)
    vault.plan().write_text(text)
    vault.drop((vault.root / "Inbox/Requests/Say hello.md").read_text() + "\nIn French.\n")
    assert "its request was edited" in told(vault)
    (vault.root / "Inbox/Requests/Say hello.md").unlink()
    assert "its request was taken away" in told(vault)


def test_a_mission_stands_still_while_no_daemon_runs_and_a_restart_changes_the_tense(
    vault: TestVault,
) -> None:
    vault.approve()
    process = subprocess.Popen(
        [sys.executable, "-m", "placet", "run", "--vault", str(vault.root)],
        env=vault.env,
        stderr=subprocess.DEVNULL,
    )
    vault.await_action("tool.called")
    until(lambda: "at work: step 0 of 1" in told(vault))
    process.send_signal(signal.SIGKILL)
    process.wait()
    # a process that was being started at that instant has its locks until it is another program
    until(lambda: "stands still, goes on when a daemon runs: step 0 of 1" in told(vault))
    line = told(vault)
    assert "no step of it is done. When one starts, it goes on." in line
    vault.active().unlink()
    assert "its plan was taken out of System/Active" in told(vault)


def test_only_notes_that_may_be_news_are_read(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        vault.drop(f"# Note {number}\n\nstatus: none\n", f"Note {number}.md")
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}] * 40))
    vault.once()
    monkeypatch.setattr(glancing, "SLACK", glancing.SLACK * 0)
    time.sleep(0.01)
    read: list[str] = []
    monkeypatch.setattr(glancing, "_read", lambda _folder, path, _notes: read.append(path))
    vault.click("status")
    assert read == []


def test_a_daemon_that_runs_is_said_to_look_within_seconds(vault: TestVault) -> None:
    with running(vault) as process:
        vault.await_action("daemon.started", 2)
        process.send_signal(signal.SIGSTOP)
        vault.approve()
        assert "not taken up yet; is looked at within seconds" in told(vault)
        process.send_signal(signal.SIGCONT)
        vault.await_action("plan.approved")


def test_a_case_that_the_daemon_took_up_during_the_glance_is_as_it_left_it(
    vault: TestVault,
) -> None:
    """Else an approved plan, whose approval the snapshot does not have yet, still waits."""
    site = vault.site
    with running(vault), Vault(vault.root) as folder, open_reader(site.state.journal) as before:
        vault.approve()
        vault.await_action("tool.called")
        seen = glancing.glance(site, folder, before, [find(before, "say-hello")])
        ((trace, case),) = seen.cases.items()
        assert (case.state, seen.undecided) == (State.RUNNING, {})
        assert not waits_for_you(case_line(site, folder, before, seen, trace))


def test_what_a_mission_writes_meanwhile_does_not_hide_that_it_was_stopped(
    vault: TestVault,
) -> None:
    vault.approve()
    with running(vault) as process:
        vault.await_action("tool.called")
        process.kill()
        process.wait()
    site = vault.site
    with Vault(vault.root) as folder, open_reader(site.state.journal) as before:
        vault.active().rename(vault.plan())
        with closing(sqlite3.connect(vault.db)) as db, db:
            columns = "timestamp, trace_id, actor, agent, action_type, entity_type, entity_id"
            db.execute(
                f"INSERT INTO activity ({columns}, metadata, hash) SELECT {columns}, metadata, hash"
                " FROM activity WHERE action_type = 'tool.called'"
            )
        seen = glancing.glance(site, folder, before, [find(before, "say-hello")])
    ((_, undecided),) = seen.undecided.items()
    assert undecided.what == "its plan was moved back to Inbox/Plans"


def test_why_a_mission_failed_is_said_of_one_that_fails_during_the_glance(
    vault: TestVault,
) -> None:
    vault.approve()
    with running(vault) as process:
        vault.await_action("tool.called")
        process.kill()
        process.wait()
    vault.script(("execute", [{}, {"calls": [("give_up", {"reason": "It is nowhere."})]}]))
    site = vault.site
    with open_reader(site.state.journal) as before:
        vault.once()
        said, _, mission = why._reasons(site, before, find(before, "say-hello"), [])
    assert mission is not None, said
    assert mission["end"] == "gave_up"


def test_people_get_local_times_with_the_date_where_it_is_not_today_and_programs_rfc_3339(
    vault: TestVault,
) -> None:
    vault.extra["TZ"] = "Pacific/Kiritimati"  # UTC+14: mostly another date than in UTC
    row = vault.rows("plan.created")[0]
    there = datetime.fromisoformat(row["timestamp"]) + timedelta(hours=14)
    for args in (["plans"], ["why", "say-hello"], ["journal"]):
        shown = vault.cli(*args).stdout
        assert f"{there:%H:%M:%S}" in shown, args
        assert not re.search(r"\d\dT\d\d:\d\d", shown), args
    assert row["timestamp"] in vault.cli("journal", "--json").stdout
    assert json.loads(vault.cli("status", "--json").stdout)["cases"][0]["since"].endswith("Z")
    old = "2001-02-03T23:30:00.000Z"
    assert re.fullmatch(r"2001-02-0[34] \d\d:\d\d:\d\d", shown_time(old))
