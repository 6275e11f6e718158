"""Test what `placet run` prints: one line an event, from the journal's rows."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from placet.activity import CommittedRow
from placet.case.story import Story, Verbosity
from placet.cli.stderr_writer import StderrWriter
from placet.client import log as log_file
from placet.client.log import Log
from vaultkit import PLAN, TestVault, make_vault, running, until

PLANNING = ("plan", [{"calls": [("submit_plan", PLAN)]}])
WRITING = (
    "execute",
    [
        {"calls": [("write_file", {"path": "hello.txt", "content": "Hello.\n"})]},
        {"calls": [("complete_step", {"step": 1, "summary": "written"})]},
        {"calls": [("finish", {"summary": "said"})]},
    ],
)


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    found = make_vault(tmp_path)
    found.script(PLANNING, WRITING)
    return found


def without_times(said: str) -> list[str]:
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in said.splitlines()]


def test_run_prints_one_line_per_event(vault: TestVault) -> None:
    vault.drop("# Say hello\n\nWrite a greeting.\n")
    first = vault.once(apart=True)
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in first.splitlines())
    assert without_times(first)[0].startswith("The first start on this vault ")
    assert [one for one in without_times(first)[1:] if not one.startswith("A history (git) ")] == [
        "say-hello: request seen: Inbox/Requests/Say hello.md; a plan follows",
        f"say-hello: created a git repository in {vault.root}, with a first commit of its files",
        "say-hello: a plan waits for you (revision 1, 1 step): Inbox/Plans/say-hello_plan.md",
        "stopped; 1 plan waits for you (placet plans)",
    ]
    vault.approve()
    second = without_times(vault.once())
    assert second[0] == "1 plan waits for you (placet plans)"
    assert second[1].startswith("say-hello: approved by ")
    assert second[2].startswith("say-hello: the mission started: 1 step; commands run in: ")
    assert second[3] == "say-hello: step 1 of 1 done"
    assert second[4].startswith("say-hello: completed: 1 file changed on feat/say-hello-")
    assert second[5] == f"say-hello: report: {vault.reports()[0].relative_to(vault.root)}"
    assert second[6:] == ["stopped; nothing was in progress"]


def test_verbose_prints_calls_and_quiet_only_errors(vault: TestVault) -> None:
    vault.drop("# Say hello\n\nWrite a greeting.\n")
    # which settings are accepted, and that the vault gets a history
    assert len(vault.click("run", "--once", "-q").stderr.splitlines()) == 2
    vault.drop("---\npriority: 99\n---\n# Odd\n", "Odd.md")
    assert without_times(vault.click("run", "--once", "-q").stderr)[0].startswith(
        "odd: Inbox/Requests/Odd.md cannot be used: "
    )
    vault.approve()
    said = vault.click("run", "--once", "-v").stderr
    assert "say-hello: tool.called write_file hello.txt" in said
    assert re.search(r"say-hello: model.called execute: .* \$0\.", said)


def test_unfinished_work_is_named_at_exit_and_start(
    vault: TestVault,
) -> None:
    vault.script(
        (
            "execute",
            [
                {"calls": [("write_file", {"path": "hello.txt", "content": "Hello.\n"})]},
                {"delay_s": 60.0, "calls": [("finish", {"summary": "said"})]},
            ],
        )
    )
    vault.script(PLANNING, more=True)
    vault.drop("# Say hello\n")
    vault.once()
    vault.approve()
    env = vault.env
    with (vault.root.parent / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "placet", "run", "--vault", str(vault.root)], env=env, stderr=log
        )
        vault.await_action("tool.called")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    said = without_times((vault.root.parent / "log").read_text())
    assert said[-1] == "stopped; 1 mission resumes at the next start: say-hello, step 1 of 1"
    with running(vault):
        vault.await_action("execution.resumed")
        again = next(vault.root.parent.glob("daemon-*.log"))
        until(lambda: "resuming the mission at iteration" in again.read_text())
        assert "1 mission resumes: say-hello, step 1 of 1" in again.read_text()


def test_run_output_fits_terminal_and_service_omits_times(
    vault: TestVault,
) -> None:
    vault.drop(
        "# Say hello\n",
        "A request whose name is long enough to need more than the eighty columns of a terminal.md",
    )
    main, end = pty.openpty()
    os.set_blocking(main, False)
    env = {**vault.env, "COLUMNS": "80"}
    process = subprocess.Popen(
        [sys.executable, "-m", "placet", "run", "--once", "--vault", str(vault.root)],
        env=env,
        stderr=end,
    )
    said = b""
    while process.poll() is None or select.select([main], [], [], 0.2)[0]:
        if select.select([main], [], [], 0.2)[0]:
            said += os.read(main, 65536)
    lines = said.decode().splitlines()
    assert any(line.startswith(" " * 11) for line in lines)
    assert all(len(line) < 80 for line in lines if " " in line.strip()), lines
    with (vault.root.parent / "log").open("w") as log:
        info = os.fstat(log.fileno())
        subprocess.run(
            [sys.executable, "-m", "placet", "run", "--once", "--vault", str(vault.root)],
            stderr=log,
            check=True,
            env={**env, "JOURNAL_STREAM": f"{info.st_dev}:{info.st_ino}"},
        )
    assert (vault.root.parent / "log").read_text() == (
        "1 plan waits for you (placet plans)\nstopped; 1 plan waits for you (placet plans)\n"
    )


def a_row(action: str, metadata: Mapping[str, str]) -> CommittedRow:
    return CommittedRow(
        1,
        "2026-11-22T10:00:00.000Z",
        "t" * 8,
        "system",
        "",
        action,
        "mission",
        "say-hello",
        json.dumps(metadata),
        "0" * 64,
    )


def test_side_note_repeating_last_message_is_not_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    why = "It would hold too much.\nRaise the limit."
    with StderrWriter(Verbosity.EVENT, times=False) as writer:
        writer.say(f"say-hello: {why}")
        writer.rows(
            [
                a_row("note.explained", {"path": "Inbox/Requests/Say hello.md", "reason": why}),
                a_row(
                    "note.explained",
                    {"path": "Inbox/Requests/Say hello.md", "reason": "Another thing."},
                ),
            ]
        )
    assert capsys.readouterr().err.splitlines() == [
        "say-hello: It would hold too much.",
        "Raise the limit.",
        "say-hello: about Inbox/Requests/Say hello.md: Another thing.",
    ]


def test_failed_planning_is_printed_once() -> None:
    story, why = Story(), "The model gave up: no such file."
    rows = (
        a_row("plan.failed", {"reason": why}),
        a_row("note.explained", {"path": "x.md", "reason": f"There is no plan: {why}\nTry again."}),
    )
    assert [told[1] for row in rows if (told := story.line(row))] == [
        f"say-hello: there is no plan: {why}"
    ]


def test_log_keeps_what_was_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    waits = "All work waits for the model: the key is wrong."
    with StderrWriter(Verbosity.EVENT, times=False, log=path) as writer:
        writer.rows([a_row("daemon.started", {})])
        writer.say(waits)
        writer.say("say-hello: waiting for the model: it is overloaded.")
        writer.rows([a_row("model.called", {}), a_row("step.completed", {"step": 1, "of": 2})])
        writer.say("The model answers again. Work continues.", Verbosity.EVENT)
        writer.say("a detail", Verbosity.DETAIL)
    printed = capsys.readouterr().err.splitlines()
    assert waits in printed
    assert [line["text"] for line in Log(path).new()] == printed
    of_one = [line["text"] for line in Log(path, "t" * 8, "say-hello").new()]
    assert of_one == [line for line in printed if line.startswith("say-hello: ")]
    assert path.stat().st_mode & 0o777 == 0o600


def test_log_is_rotated_and_followed_across_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "MAX_LOG_BYTES", 1000)
    path, found = tmp_path / "log", list[str]()
    log = Log(path)
    with StderrWriter(Verbosity.TROUBLE, times=False, log=path) as writer:
        for number in range(30):
            writer.say(f"line {number}", Verbosity.EVENT)
            found += [line["text"] for line in log.new()]
    assert found == [f"line {number}" for number in range(30)]
    assert sum(one.stat().st_size for one in tmp_path.iterdir()) < 2500


def test_repeatedly_edited_request_is_printed_once() -> None:
    story = Story()
    edited, other = (
        a_row("request.edited", {"reviewed_by": "ada"}),
        a_row("plan.created", {"revision": 1, "steps": 1}),
    )
    told = [story.line(row) for row in (edited, edited, edited, other, edited)]
    assert [line is not None and line[0] <= Verbosity.EVENT for line in told] == [
        True,
        False,
        False,
        True,
        True,
    ]
