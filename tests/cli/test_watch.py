"""Test `placet watch` and `placet logs`."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from tests.cli.test_run import without_times

from placet.cli import watch
from placet.journal.reader import Reader
from placet.journal.writes import PendingCommand
from placet.note.paths import Folder
from ptykit import seen, terminal
from vaultkit import (
    PLAN,
    TestVault,
    end_of,
    next_line,
    printing,
    running,
    until,
    vault_with_history,
)


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    return vault_with_history(tmp_path)


def test_watch_follows_request_across_killed_daemon(vault: TestVault) -> None:
    with running(vault) as daemon:
        vault.drop("# Say hello\n")
        until(lambda: vault.plan().exists(), "the plan")
        with printing(vault, "watch", "say-h") as watching:
            next_line(watching, "say-hello: a plan waits for you", str(Folder.PLANS))
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
            assert watching.stderr is not None
            said = [watching.stderr.readline(), watching.stderr.readline()]
            assert watching.poll() is None
            vault.approve()
            with running(vault):
                next_line(watching, "approved by")
                next_line(watching, "completed: 1 file changed on feat/say-hello-")
                code, out, err = end_of(watching)
    assert code == 0, err
    assert "report: " in out
    assert said == [
        "placet: say-hello waits for you: placet review\n",
        "placet: the daemon is not running. This continues when it runs: placet run\n",
    ]
    assert err == "placet: the daemon runs again\n"
    # what is over is told, with its result, also without a daemon
    again = vault.click("watch", "say-hello")
    assert without_times(again.stdout)[-1].startswith("say-hello: report: ")
    assert "\x1b" not in again.stdout
    assert vault.click("watch", "nothing-such", check=False).returncode == 3


def test_watch_json_prints_journal_rows(vault: TestVault) -> None:
    vault.drop("# Say hello\n")
    vault.once()
    vault.approve()
    vault.once()
    found = [
        json.loads(one) for one in vault.click("watch", "say-hello", "--json").stdout.splitlines()
    ]
    rows = [row for row in vault.rows() if row["entity_id"] == "say-hello"]
    assert [(one["id"], one["type"]) for one in found] == [
        (row["id"], row["action_type"]) for row in rows
    ]


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        (["reject", "say-hello", "--reason", "no"], "say-hello was rejected."),
        (["rm"], "say-hello was withdrawn."),
        (["approve", "say-hello", "--yes"], "say-hello failed: "),
    ],
)
def test_watch_exits_1_unless_completed(vault: TestVault, ends: list[str], says: str) -> None:
    vault.plays(PLAN, [("give_up", {"reason": "It is nowhere."})])
    vault.drop("# Say hello\n")
    vault.once()
    if ends == ["rm"]:
        vault.plan().unlink()
    else:
        vault.click(*ends)
    vault.once()
    done = vault.click("watch", "say-hello", check=False)
    assert done.returncode == 1
    assert says in done.stderr
    assert "placet why say-hello" in done.stderr


def test_watch_waits_for_pending_retry(vault: TestVault) -> None:
    vault.plays(PLAN, [("give_up", {"reason": "It is nowhere."})])
    vault.drop("# Say hello\n")
    vault.once()
    vault.approve()
    vault.once()
    vault.click("retry", "say-hello")
    with printing(vault, "watch", "say-hello") as watching:
        next_line(watching, "failed:")
        with pytest.raises(subprocess.TimeoutExpired):
            watching.wait(3)
        vault.once()
        next_line(watching, "a plan waits for you")


def test_watch_announces_plan_after_note_exists(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    vault.drop("# Say hello\n")
    vault.once()
    trace = vault.rows("plan.created")[0]["trace_id"]
    writing = PendingCommand(1, trace, "", 0, "")
    pending: list[tuple[PendingCommand, ...]] = [(writing,), (writing,), ()]

    def still_pending(_: Reader) -> tuple[PendingCommand, ...]:
        if pending:
            assert capsys.readouterr().out == ""
        return pending.pop(0)

    monkeypatch.setattr(Reader, "pending_commands", still_pending)
    with pytest.raises(IndexError):  # it has told, and looks again
        watch.follow(vault.site, trace, as_json=False)
    assert "a plan waits for you" in capsys.readouterr().out


def test_logs_are_the_sentences_of_the_daemon(vault: TestVault) -> None:
    vault.drop("# Say hello\n")
    vault.drop("# Another\n", "Another.md")
    said = vault.once()
    told_of = without_times(vault.click("logs").stdout)
    assert [one for one in without_times(said) if one.startswith("say-hello: ")] == [
        one for one in told_of if one.startswith("say-hello: ")
    ]
    assert without_times(vault.click("logs", "say-hello").stdout) == [
        one for one in told_of if one.startswith("say-hello: ")
    ]
    assert without_times(vault.click("logs", "-n", "2").stdout) == told_of[-2:]
    assert vault.click("logs", "-n", "0").stdout == ""
    rows = [json.loads(one) for one in vault.click("logs", "--json").stdout.splitlines()]
    assert [row["text"] for row in rows] == told_of
    assert vault.click("logs", "nothing-such", check=False).returncode == 3


def test_logs_are_followed(vault: TestVault) -> None:
    vault.drop("# Say hello\n")
    vault.once()
    with printing(vault, "logs", "-f", "-n", "1") as following:
        first = next_line(following)
        vault.approve()
        vault.once()
        next_line(following, "completed: ")
        next_line(following, "stopped; ")
    assert "waits for you" in first


def test_watch_output_fits_terminal_without_control_characters(vault: TestVault) -> None:
    name = "odd \x1b[2J \x1b]8;;http://evil.example\x07 and long enough for two lines of a terminal"
    vault.drop("# x\n", f"{name.replace('/', ' ')}.md")
    vault.once()
    ident = vault.rows("plan.created")[0]["entity_id"]
    with terminal(vault, "watch", ident) as screen:
        screen.sees("_plan.md")
        screen.interrupt()
        assert screen.ends() == 130
    assert all(len(one) <= 80 or " " not in one.strip() for one in seen(screen.shown).split("\n"))
