"""Test `placet watch`, `logs` and `submit`: with an editor, standard input and `--wait`."""

from __future__ import annotations

import json
import re
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from tests.cli.test_run import without_times

from placet.case.request import title_of
from placet.cli import journal
from placet.cli.submit import TEMPLATE
from placet.journal.reader import Reader
from placet.journal.writes import PendingCommand
from placet.note.paths import Folder
from ptykit import seen, terminal
from vaultkit import DONE, PLAN, TestVault, make_vault, printing, running, until


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    made = make_vault(tmp_path)
    made.plays(PLAN, *DONE)
    made.configure((made.root / "System/placet.toml").read_text() + "\n[vault]\nhistory = true\n")
    return made


def line(process: subprocess.Popen[str], *words: str) -> str:
    """Return the next line with all of these words; fail at the end."""
    assert process.stdout is not None
    said = []
    for one in process.stdout:
        said.append(one)
        if all(word in one for word in words):
            return one
    raise AssertionError(f"not said: {words}, but {said}")


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    assert process.stdout is not None
    assert process.stderr is not None
    # not `communicate`, which passes over what was read ahead
    out, err = process.stdout.read(), process.stderr.read()
    return process.wait(60), out, err


def test_watch_follows_request_across_killed_daemon(vault: TestVault) -> None:
    with running(vault) as daemon:
        vault.drop("# Say hello\n")
        until(lambda: vault.plan().exists(), "the plan")
        with printing(vault, "watch", "say-h") as watching:
            line(watching, "say-hello: a plan waits for you", str(Folder.PLANS))
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
            assert watching.stderr is not None
            said = [watching.stderr.readline(), watching.stderr.readline()]
            assert watching.poll() is None
            vault.approve()
            with running(vault):
                line(watching, "approved by")
                line(watching, "completed: 1 file changed on feat/say-hello-")
                code, out, err = end(watching)
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
        line(watching, "failed:")
        with pytest.raises(subprocess.TimeoutExpired):
            watching.wait(3)
        vault.once()
        line(watching, "a plan waits for you")


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
        journal.follow(vault.site, trace, as_json=False)
    assert "a plan waits for you" in capsys.readouterr().out


def test_submit_wait_follows_request_to_end(vault: TestVault) -> None:
    with printing(vault, "submit", "Say hello", "--wait") as submitting:
        line(submitting, "Inbox/Requests/Say hello.md")
        assert submitting.stderr is not None
        assert any("the daemon is not running" in one for one in submitting.stderr)
        with running(vault):
            line(submitting, "say-hello: request seen")
            line(submitting, "a plan waits for you")
            vault.approve()
            line(submitting, "completed: ")
            code, _, err = end(submitting)
    assert code == 0, err


def test_submit_wait_ends_when_request_is_deleted(vault: TestVault) -> None:
    with printing(vault, "submit", "Say hello", "--wait", "--json") as submitting:
        assert json.loads(line(submitting))["path"] == "Inbox/Requests/Say hello.md"
        (vault.root / "Inbox/Requests/Say hello.md").unlink()
        code, _, err = end(submitting)
    assert code == 1
    assert "taken away before it was planned" in err


def test_submit_says_the_ids_that_follow(vault: TestVault) -> None:
    for wanted in ("say-hello", "say-hello-2"):
        told = json.loads(vault.click("submit", "Say hello", "--json").stdout)
        assert told["request_id"] == wanted
        vault.once()
        detected = vault.rows("request.detected")[-1]
        assert (detected["entity_id"], detected["trace_id"]) == (wanted, told["trace_id"])
        vault.approve(wanted)
        vault.once()


def test_submit_strips_md_suffix_from_title(vault: TestVault) -> None:
    told = vault.click("submit", "x", "--title", "Fix it.md.md").stdout
    assert told == "Inbox/Requests/Fix it.md\n"
    assert title_of("Inbox/Requests/Fix it.md.md", "text") == "Fix it"


def test_submit_dash_reads_standard_input(vault: TestVault) -> None:
    for args in (("-",), ("--file", "-")):
        path = vault.click("submit", *args, stdin="Say hello ☃\n").stdout.strip()
        assert (vault.root / path).read_text() == "Say hello ☃\n"
    assert vault.cli("submit", check=False).returncode == 2
    assert vault.cli("submit", "x", "--file", "-", check=False).returncode == 2


def editor(vault: TestVault, script: str) -> None:
    path = vault.root.parent / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    vault.extra["VISUAL"] = f"'{path}' --wait"


def test_a_request_is_written_in_an_editor(vault: TestVault) -> None:
    vault.extra["TMPDIR"] = str(vault.root.parent / "tmp")
    Path(vault.extra["TMPDIR"]).mkdir()
    editor(vault, 'sed -i "s/^# *$/# Say hello/" "$2"; echo Loudly. >> "$2"')
    path = vault.cli("submit", "--edit", "--priority", "7").stdout.strip()
    assert path == "Inbox/Requests/Say hello.md"
    text = (vault.root / path).read_text()
    assert text.startswith("---\npriority: 7\n---\n# Say hello\n")
    assert text.endswith("Loudly.\n")
    assert "<!--" not in text
    for script in ("true", ': > "$2"', 'echo "#" > "$2"'):
        editor(vault, script)
        done = vault.cli("submit", "--edit", check=False)
        assert done.returncode == 1
        assert "Nothing was submitted" in done.stderr
    editor(vault, 'grep -q "^Begin$" "$2" && echo End >> "$2"')
    path = vault.cli("submit", "Begin", "--edit").stdout.strip()
    assert (vault.root / path).read_text() == "Begin\nEnd\n"
    editor(vault, 'echo "Only a body" >> "$2"')
    path = vault.cli("submit", "--edit").stdout.strip()
    assert path == "Inbox/Requests/Only a body.md"
    assert (vault.root / path).read_text() == "Only a body\n"
    assert len(vault.notes("Inbox/Requests")) == 3
    assert list(Path(vault.extra["TMPDIR"]).iterdir()) == []
    # what was written is kept where it cannot be submitted
    editor(vault, 'printf -- "---\\nagent: nobody\\n---\\nx\\n" > "$2"')
    done = vault.cli("submit", "--edit", check=False)
    assert done.returncode == 2
    kept = re.search(r"placet submit --edit --file (\S+)", done.stderr)
    assert kept is not None
    assert "agent: nobody" in Path(kept[1]).read_text()
    assert TEMPLATE.startswith("#\n")


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
        first = line(following)
        vault.approve()
        vault.once()
        line(following, "completed: ")
        line(following, "stopped; ")
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


def test_submit_on_terminal_explains_end_of_input(vault: TestVault) -> None:
    with terminal(vault, "submit", "-") as screen:
        screen.sees("then press Enter and Ctrl-D")
        screen.types("Say hello\n\x04")
        screen.sees("Inbox/Requests/Say hello.md")
        assert screen.ends() == 0
