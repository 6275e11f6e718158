"""Test that commands count notes changed without a daemon, and wait for notes to be written."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from placet.client.notes import note_text
from placet.client.site import Site
from placet.client.texts import shown_time
from placet.errors import UserError
from vaultkit import PLAN, TestVault, make_vault, running, until


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    found = make_vault(tmp_path)
    found.plays(
        PLAN,
        [("write_file", {"path": "hello.txt", "content": "Hello.\n"})],
        {"delay_s": 60.0, "calls": [("finish", {"summary": "said"})]},
    )
    found.drop("# Say hello\n")
    found.once()
    return found


def status(vault: TestVault) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(vault.click("status", "--json").stdout)
    return found


def test_status_counts_notes_changed_without_daemon(vault: TestVault) -> None:
    assert status(vault)["changed"] == 0
    assert "changed since" not in vault.click("status").stdout
    vault.approve()
    told = vault.click("status").stdout
    assert "notes   1 note changed since the daemon last ran\n" in told
    assert "review  say-hello  plan, revision 1: Say hello" in told, "as the journal has it"
    vault.drop("# Say more\n", "Say more.md")
    assert "2 notes changed since the daemon last ran" in vault.click("status").stdout
    assert status(vault)["changed"] == 2
    with running(vault) as process:
        process.send_signal(signal.SIGSTOP)
        vault.drop("# Late\n", "Late.md")
        assert status(vault)["changed"] == 0, "a daemon runs, and reads it soon"
        process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("moved", [True, False])
def test_why_says_that_notes_changed(vault: TestVault, moved: bool) -> None:
    assert "changed since" not in vault.click("why", "say-hello").stdout
    if moved:
        vault.approve()
    else:
        vault.plan().write_bytes(vault.plan().read_bytes() + b"More.\n")
    told = " ".join(vault.click("why", "say-hello").stdout.split())
    assert "waits for you" in told
    assert "1 note of this request changed since the daemon last ran. Start it: placet run" in told


def test_why_finds_unread_request(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.drop("# Say hello\n")
    found = json.loads(vault.click("why", "say-hello", "--json").stdout)
    assert (found["state"], found["why"]) == (
        "new",
        ["Inbox/Requests/Say hello.md: the daemon has not read it yet."],
    )
    assert found["next"] == ["Start it: placet run"]
    vault.plays(PLAN)
    vault.once()
    vault.drop("# Say more\n", "Say more.md")
    assert json.loads(vault.click("why", "say-more", "--json").stdout)["state"] == "new"
    assert vault.click("why", "nobody", check=False).returncode == 3


def test_daemon_updates_path_of_renamed_plan(vault: TestVault) -> None:
    vault.plan().rename(vault.plan().with_name("another name.md"))
    done = vault.click("approve", "say-hello", "--yes", check=False)
    assert "Inbox/Plans/say-hello_plan.md is not there." in done.stderr
    assert "placet why say-hello" in done.stderr
    vault.here()
    assert "Inbox/Plans/another name.md" in vault.click("plans").stdout
    vault.click("approve", "say-hello", "--yes")
    with running(vault):
        vault.await_action("plan.approved")


def test_command_waits_for_note_to_be_written(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, case, text = vault.site, vault.site.case("say-hello"), vault.plan().read_bytes()
    vault.plan().unlink()
    with pytest.raises(UserError, match="is not there"):
        note_text(site, case, case.plan.path)
    monkeypatch.setattr(Site, "daemon", "one that runs")
    late = Timer(0.3, vault.plan().write_bytes, [text])
    late.start()
    assert note_text(site, case, case.plan.path) == text
    late.join()
    vault.plan().unlink()
    monkeypatch.setattr("placet.client.notes.WRITING_S", 0.1)
    with pytest.raises(UserError, match="is not there"):
        note_text(site, case, case.plan.path)


def test_mission_progress_depends_on_running_daemon(
    vault: TestVault,
) -> None:
    def told() -> str:
        return vault.click("status").stdout + " ".join(
            vault.click("why", "say-hello").stdout.split()
        )

    vault.approve()
    process = subprocess.Popen(
        [sys.executable, "-m", "placet", "run", "--vault", str(vault.root)],
        env=vault.env,
        stderr=subprocess.DEVNULL,
    )
    vault.await_action("tool.called")
    until(lambda: "at work: step 0 of 1" in told())
    process.send_signal(signal.SIGKILL)
    process.wait()
    # a process that was being started at that instant has its locks until it is another program
    until(lambda: "its mission continues when a daemon runs: step 0 of 1" in told())
    assert "no step of it is done. It resumes when one starts." in told()


def test_terminal_shows_local_time_and_json_rfc_3339(
    vault: TestVault,
) -> None:
    vault.extra["TZ"] = "Pacific/Kiritimati"  # UTC+14: mostly another date than in UTC
    row = vault.rows("plan.created")[0]
    there = datetime.fromisoformat(row["timestamp"]) + timedelta(hours=14)
    for args in (["why", "say-hello"], ["journal"]):
        shown = vault.cli(*args).stdout
        assert f"{there:%H:%M:%S}" in shown, args
        assert not re.search(r"\d\dT\d\d:\d\d", shown), args
    assert row["timestamp"] in vault.cli("journal", "--json").stdout
    assert json.loads(vault.cli("status", "--json").stdout)["cases"][0]["since"].endswith("Z")
    old = "2001-02-03T23:30:00.000Z"
    assert re.fullmatch(r"2001-02-0[34] \d\d:\d\d:\d\d", shown_time(old))
