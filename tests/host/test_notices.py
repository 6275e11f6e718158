"""Test that you get one notice for each important change, without text from notes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vaultkit import PLAN, TestVault, make_vault, until

TOLD = ("event", "request_id", "trace_id", "state", "link", "title", "text")
SECRET = "wombat"


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    """A vault whose notifier writes what it is told into a folder, a file a call."""
    notifier = tmp_path / "notifier.py"
    notifier.write_text(
        "import json, os, sys, tempfile\n"
        f"fd, path = tempfile.mkstemp(dir={str(tmp_path / 'told')!r})\n"
        "seen = {'argv': sys.argv[1:], 'env': dict(os.environ), 'time': __import__('time').time_ns()}\n"
        "os.write(fd, json.dumps(seen).encode())\nos.close(fd)\nos.rename(path, path + '.json')\n"
    )
    (tmp_path / "told").mkdir()
    vault = make_vault(tmp_path, ANTHROPIC_API_KEY="sk-ant-test-never-told", MY_TOKEN="never-told")
    vault.configure(
        f'[commands]\nsandbox = "none"\n[notify]\ncommand = ["python3", "-S", "{notifier}", "a b"]\n'
    )
    plan = {**PLAN, "title": f"The {SECRET}", "summary": f"About the {SECRET}."}
    write = [
        ("write_file", {"path": "hello.txt", "content": f"{SECRET}\n"}),
        ("complete_step", {"step": 1, "summary": SECRET}),
    ]
    vault.script(
        ("plan", [{"calls": [("submit_plan", plan)]}]),
        ("revise", [{"calls": [("submit_plan", plan)]}]),
        ("execute", [{"calls": [*write, ("finish", {"summary": f"The {SECRET} is done."})]}]),
    )
    return vault


def told(vault: TestVault) -> list[dict[str, str]]:
    """What the notifier was told so far, in order."""
    calls = [json.loads(path.read_text()) for path in (vault.root.parent / "told").glob("*.json")]
    for found in calls:
        assert found["argv"] == ["a b"], "nothing is added to the person's own words"
        everything = json.dumps(found)
        assert SECRET not in everything
        assert "never-told" not in everything
    return [
        {name: found["env"][f"PLACET_{name.upper()}"] for name in TOLD}
        for found in sorted(calls, key=lambda c: c["time"])
    ]


def test_transition_notice_is_sent_once_without_note_text(vault: TestVault) -> None:
    vault.drop(f"Write of the {SECRET}.\n", "greet.md")
    vault.once()
    (first,) = told(vault)
    assert (first["event"], first["request_id"], first["state"]) == (
        "plan_waits",
        "greet",
        "review",
    )
    assert first["trace_id"] == vault.rows("plan.created")[0]["trace_id"]
    assert first["link"] == "obsidian://open?vault=vault&file=Inbox%2FPlans%2Fgreet_plan.md"
    assert first["title"] == "A plan waits for you"
    vault.once()
    assert len(told(vault)) == 1, "a restart tells nothing again"
    plan = vault.plan("greet")
    text = plan.read_text().replace("status: review", "status: needs_revision")
    plan.write_text(text + "\n## Review Comments\n\n- Shorter, please.\n")
    vault.once()
    assert [t["event"] for t in told(vault)] == ["plan_waits"] * 2, "a new revision waits"
    vault.approve("greet")
    vault.once()
    done = told(vault)[2:]
    assert [(t["event"], t["state"]) for t in done] == [("mission_completed", "completed")]
    assert (
        done[0]["link"]
        == "obsidian://open?vault=vault&file=Knowledge%2FReports%2F" + vault.reports()[0].name
    )
    assert len(told(vault)) == 3


def test_failed_plan_and_mission_send_notices(vault: TestVault) -> None:
    plan = {**PLAN, "title": f"The {SECRET}"}
    vault.script(
        ("plan", [{"calls": [("submit_plan", plan)]}]),
        ("execute", [{"calls": [("give_up", {"reason": SECRET})]}]),
        request="m*",
    )
    vault.drop("Try.\n", "mission.md")
    vault.drop("Try.\n", "unplanned.md")
    vault.once()
    vault.approve("mission")
    vault.once()
    events = {t["request_id"]: t for t in told(vault)}
    assert len(told(vault)) == 3
    assert (events["mission"]["event"], events["mission"]["state"]) == ("mission_failed", "failed")
    assert events["mission"]["link"].endswith("_failure.md")
    assert (events["unplanned"]["event"], events["unplanned"]["state"]) == ("needs_you", "failed")
    assert (
        events["unplanned"]["link"]
        == "obsidian://open?vault=vault&file=Inbox%2FRequests%2Funplanned.md"
    )


def test_question_notice_links_its_note_once(vault: TestVault) -> None:
    plan = {**PLAN, "title": f"The {SECRET}"}
    vault.script(
        ("plan", [{"calls": [("submit_plan", plan)]}]),
        ("execute", [{"calls": [("ask_person", {"question": f"Which {SECRET}?"})]}]),
        request="q*",
    )
    vault.drop("Try.\n", "quiz.md")
    vault.once()
    vault.approve("quiz")
    vault.once()
    vault.once()
    plan_waits, asks = told(vault)
    assert plan_waits["event"] == "plan_waits"
    assert (asks["event"], asks["state"]) == ("needs_you", "asking")
    assert asks["title"] == "placet asks you something"
    assert asks["link"] == "obsidian://open?vault=vault&file=Inbox%2FQuestions%2Fquiz_1.md"


def test_failing_notifier_stops_no_work(vault: TestVault) -> None:
    config = (vault.root / "System/placet.toml").read_text()
    vault.configure(config.split("[notify]")[0] + '[notify]\ncommand = ["false"]\n')
    vault.drop("Try.\n", "greet.md")
    said = vault.once()
    assert "command: false ended with exit code 1" in said
    vault.approve("greet")
    vault.once()
    assert vault.rows("execution.completed")


def test_notify_test_tries_every_way_that_is_on(vault: TestVault) -> None:
    vault.click("notify", "test")
    (sent,) = until(lambda: told(vault), "the notice")
    assert (sent["event"], sent["request_id"], sent["title"]) == (
        "test",
        "",
        "placet can reach you",
    )
    assert sent["link"] == "obsidian://open?vault=vault&file=Home.md"
    config = (vault.root / "System/placet.toml").read_text().split("[notify]")[0]
    vault.configure(
        config
        + '[notify]\ncommand = ["no-such-program"]\nwebhook = "http://127.0.0.1:9/hook?token=never-told"\n'
    )
    done = vault.click("notify", "test", check=False)
    assert done.returncode == 1
    assert "command: no-such-program cannot be started" in done.stderr
    assert "webhook: 127.0.0.1 cannot be reached" in done.stderr
    assert "never-told" not in done.stderr
    vault.configure(config)
    done = vault.click("notify", "test", check=False)
    assert done.returncode == 2
    assert "[notify]" in done.stderr
