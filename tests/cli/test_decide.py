"""Test decisions on the command line: what an approval shows and binds, retry, and ID prefixes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from looping import Fake, Time, bare_vault, greeter, looping
from vaultkit import ME, PLAN, TestVault, make_vault, started, until

RISKY = {**PLAN, "scope": {"write": ["**"], "run": ["python -c 'print(1)'"]}}


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    found = make_vault(tmp_path)
    found.plays(RISKY)
    found.drop("# Say hello\n")
    found.once()
    return found


def on_a_terminal(
    vault: TestVault, answer: str, *args: str, patience_s: float = 60
) -> tuple[int, str]:
    """Run a command on a terminal of 80 columns, answer what it asks.

    Return its exit code and what was shown.
    """
    main, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "placet", *args],
        cwd=vault.root,
        stdin=end,
        stdout=end,
        stderr=end,
        env={**vault.env, "COLUMNS": "80", "TERM": "xterm"},
        close_fds=True,
    )
    os.close(end)
    said = b""
    until = time.monotonic() + patience_s
    answered = False
    while time.monotonic() < until:
        try:
            piece = os.read(main, 65536)
        except OSError:  # EIO: the other end is closed
            break
        if not piece:
            break
        said += piece
        if b"[y/N]" in said and not answered:
            answered = True
            os.write(main, answer.encode() + b"\n")
    os.close(main)
    return process.wait(60), said.decode()


def test_approve_on_terminal_shows_scope_and_confirms(vault: TestVault) -> None:
    code, said = on_a_terminal(vault, "n", "approve", "say-hello")
    assert code == 1
    assert "Not approved; nothing was changed." in said
    for piece in (
        "Say hello",
        f"where     {vault.root}",
        "branch    feat/say-hello-",
        "write     **",
        "run       python -c 'print(1)'",
        "network   no",
        "danger",
        "digest",
    ):
        assert piece in said, piece
    assert all(len(line) <= 80 for line in said.splitlines() if str(vault.root) not in line), said
    assert vault.plan().exists()
    vault.here()
    assert not vault.rows("plan.approved")
    code, said = on_a_terminal(vault, "y", "approve", "say-hello")
    assert code == 0
    assert "Approved" in said
    assert approved_once(vault)


def approved_once(vault: TestVault) -> bool:
    """Let the daemon work; return whether it approved the plan once, for the user of a command."""
    before = vault.rows("plan.approved")
    vault.here()
    by = [
        (row["metadata"]["reviewed_by"], row["metadata"]["via"])
        for row in vault.rows("plan.approved")
    ]
    return not before and by == [(ME, "cli")]


def test_yes_on_a_terminal_is_not_asked(vault: TestVault) -> None:
    code, said = on_a_terminal(vault, "", "approve", "say-hello", "--yes")
    assert code == 0
    assert "[y/N]" not in said
    assert approved_once(vault)


def test_an_approval_binds_the_digest_that_was_read(vault: TestVault) -> None:
    digest = json.loads(vault.click("show", "say-hello", "--json").stdout)["plan_digest"]
    assert digest == vault.rows("plan.created")[0]["metadata"]["digest"]
    assert f"(digest {digest[:16]})" in vault.click("show", "say-hello").stdout
    text = vault.plan().read_text()
    vault.plan().write_text(text.replace("print(1)", "print(2)"))
    done = vault.click("approve", "say-hello", "--digest", digest[:12], "--yes", check=False)
    assert done.returncode == 1
    assert "is not what you read" in done.stderr
    assert vault.plan().exists()
    other = vault.click("approve", "say-hello", "--digest", "xyz", "--yes", check=False)
    assert other.returncode == 2
    assert "xyz" in other.stderr
    vault.plan().write_text(text)
    vault.click("approve", "say-hello", "--digest", digest[:12], "--yes")
    assert approved_once(vault)
    assert vault.rows("plan.approved")[0]["metadata"]["digest"] == digest


def test_retry_replans_rejected_request_with_comment(tmp_path: Path) -> None:
    vault, model = bare_vault(tmp_path), Fake(greeter)

    def work() -> None:
        with looping(vault, model=lambda: model, time=Time()) as run:
            run.settle()

    vault.drop("# Say hello\n")
    work()
    done = vault.click("retry", "say-hello", check=False)
    assert done.returncode == 3
    assert "placet revise say-hello" in done.stderr
    vault.click("reject", "say-hello", "--reason", "too loud")
    done = vault.click("retry", "say-hello", check=False)
    assert done.returncode == 3
    assert "say-hello is waiting for you, so there is nothing to try again." in done.stderr
    work()
    assert vault.click("retry", "say-hello", "--comment", " ", check=False).returncode == 2
    vault.click("retry", "say", "--comment", "Whisper it.")
    assert "`placet retry` waits for the daemon" in vault.click("status").stdout
    work()
    again = vault.rows("request.detected")[-1]["metadata"]
    assert (again["again"], again["via"], again["reviewed_by"]) == (True, "cli", ME)
    assert "Whisper it." in str(model.asks[-1].turns)
    assert "too loud" in str(model.asks[-1].turns)
    assert len(vault.rows("plan.created") + vault.rows("plan.revised")) == 2
    assert json.loads(vault.click("status", "--json").stdout)["cases"][0]["state"] == "review"


@pytest.mark.parametrize(
    ("command", "home", "action"),
    [
        (("reject", "--reason", "too loud"), "Inbox/Rejected/say-hello_rejected", "plan.rejected"),
        (("approve", "--yes"), "System/Active/say-hello", "plan.approved"),
    ],
)
def test_decision_command_avoids_taken_file_name(
    vault: TestVault, command: tuple[str, ...], home: str, action: str
) -> None:
    taken = vault.root / f"{home}.md"
    taken.write_text("Somebody's.\n")
    with started(vault) as daemon:
        vault.click(command[0], "say-hello", *command[1:])
        until(lambda: daemon.loop.tick() and vault.rows(action), "", 30)
        (case,) = daemon.loop.cases.values()
        assert (vault.root / f"{home}-{case.trace8}.md").exists()
        assert not vault.plan().exists()
    (row,) = vault.rows(action)
    assert (row["metadata"]["reviewed_by"], row["metadata"]["via"]) == (ME, "cli")
    assert taken.read_text() == "Somebody's.\n"


def test_retry_replans_failed_planning(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.script(("plan", [{"calls": [("submit_plan", {**PLAN, "title": ""})]}] * 3))
    vault.drop("# Say hello\n")
    vault.once()
    assert vault.rows("plan.failed")
    vault.plays(PLAN)
    vault.click("retry", "say-hello")
    vault.once()
    assert vault.plan().exists()


def test_unique_prefix_finds_request_and_typo_gets_suggestion(
    tmp_path: Path,
) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    for name in ("Say hello.md", "Say hello twice.md", "Mend the door.md"):
        vault.drop(f"# {name}\n", name)
    vault.once()

    def named(ident: str) -> str:
        return str(json.loads(vault.click("show", ident, "--json").stdout)["request_id"])

    assert named("say-hello") == "say-hello"
    assert named("say-hello-t") == "say-hello-twice"
    assert named("mend") == "mend-the-door"
    assert named(vault.rows("request.detected")[0]["trace_id"][:8]) in (
        "say-hello",
        "say-hello-twice",
        "mend-the-door",
    )
    several = vault.click("show", "say", check=False)
    assert several.returncode == 3
    assert (
        "say-hello, say-hello-twice" in several.stderr
        or "say-hello-twice, say-hello" in several.stderr
    )
    slip = vault.click("show", "mend-teh-door", check=False)
    assert slip.returncode == 3
    assert "Did you mean mend-the-door?" in slip.stderr
    assert vault.click("show", "", check=False).returncode == 3


def test_show_prints_request_even_after_deletion(vault: TestVault) -> None:
    found = json.loads(vault.click("show", "say-hello", "--json").stdout)
    assert "# Say hello" in found["request_text"]
    (vault.root / "Inbox/Requests/Say hello.md").unlink()
    assert (
        "# Say hello"
        in json.loads(vault.click("show", "say-hello", "--json").stdout)["request_text"]
    )


@pytest.mark.parametrize("text", ["not toml", "[model]\nname = 7\n", "[vault]\nquiet_s = 'soon'\n"])
def test_read_commands_work_with_broken_configuration(vault, text):
    (vault.root / "System/placet.toml").write_text(text)
    for command, shown in [
        (("status",), "say-hello"),
        (("plans",), "say-hello"),
        (("why", "say-hello"), "waits for you"),
    ]:
        done = vault.click(*command, check=False)
        assert shown in done.stdout
        assert "System/placet.toml" in done.stderr
        assert done.returncode == 2
    done = vault.click("status", "--json", check=False)
    assert json.loads(done.stdout)["cases"][0]["state"] == "review"
    (vault.root / "System/placet.toml").unlink()
    assert "is no vault" in vault.click("status", "--vault", str(vault.root), check=False).stderr
