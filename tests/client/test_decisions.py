"""Test decisions on the command line: what an approval shows and binds, retry, and ID prefixes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gitkit import git
from looping import Fake, Time, bare_vault, greeter, looping
from placet.case.story import Story
from placet.host.events import EVENT, event_of, line_of
from placet.journal.reader import open_reader
from placet.note.frontmatter import read_note
from vaultkit import ME, PLAN, Saved, TestVault, make_vault, started, until

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


def test_approve_says_what_the_mission_waits_for(vault: TestVault) -> None:
    vault.click("pause")
    said = vault.click("approve", "say-hello", "--yes").stderr
    assert "Work is paused. It starts after: placet resume" in said


def test_plan_of_another_model_is_said_before(vault: TestVault) -> None:
    vault.click("config", "set", "model.name", "another")
    _, said = on_a_terminal(vault, "n", "approve", "say-hello")
    said = " ".join(said.split())
    assert "This plan was written for the model scripted: test. The settings now name" in said
    assert "shows it to you once more" in said
    for command in ("plans", "show", "why"):
        ident = () if command == "plans" else ("say-hello",)
        shown = " ".join(vault.click(command, *ident).stdout.split())
        assert "shows it to you once more" in shown, command
    vault.once()
    beside = vault.plan().with_suffix(".placet.md")
    assert "shows it to you once more" in " ".join(beside.read_text().split())
    vault.click("config", "set", "model.name", "test")
    vault.once()
    assert not beside.exists()


def test_plan_under_other_instructions_is_said_before(vault: TestVault) -> None:
    assert "once more" not in vault.click("plans").stdout
    (vault.root / "SYSTEM_PROMPT.md").write_text("Write in French.\n")
    shown = " ".join(vault.click("plans").stdout.split())
    assert "`SYSTEM_PROMPT.md` changed after this plan was written" in shown
    assert "shows it to you once more" in shown
    assert "once more" in vault.click("approve", "say-hello", "--yes").stderr


def test_approve_and_reject_take_several_ids(vault: TestVault) -> None:
    vault.drop("# Say more\n", "More.md")
    vault.drop("# Say less\n", "Less.md")
    vault.once()
    ids = [case["request_id"] for case in json.loads(vault.click("plans", "--json").stdout)]
    assert len(ids) == 3
    done = vault.click("approve", ids[0], "nothing-such", "--yes", check=False)
    assert done.returncode != 0
    assert vault.click("approve", *ids[:2], "--yes").stderr.count("Approved.") == 2
    assert vault.click("reject", ids[2], "--reason", "No").stderr.count("Rejected.") == 1
    assert (
        "One digest is for one plan"
        in vault.click("approve", *ids[:2], "--yes", "--digest", "0" * 8, check=False).stderr
    )


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
    assert "is not a vault" in vault.click("status", "--vault", str(vault.root), check=False).stderr


# --- questions


QUESTION = {
    "question": "Which *greeting*?",
    "options": ["Hello", "Good morning"],
    "why": "The file says it.",
}
WIDER = {"why": "The greeting has a test.", "write": ["test_hello.py"], "run": ["pytest -q"]}
WROTE = [
    ("write_file", {"path": "hello.txt", "content": "hello\n"}),
    ("complete_step", {"step": 1, "summary": "Hello"}),
    ("finish", {"summary": "Done."}),
]


def asking_vault(folder: Path, *calls: tuple[str, Any], approved: bool = True) -> TestVault:
    """A vault whose mission asks; with `approved` it stands still for the answer."""
    vault = make_vault(folder, USER=ME, LOGNAME=ME)
    vault.plays(PLAN, *({"calls": [call]} for call in calls), WROTE)
    vault.drop("# Say hello\n")
    vault.here()
    if approved:
        vault.approve()
        vault.here()
    return vault


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Saved]:
    @cache
    def made(tool: str) -> Saved:
        call = (tool, QUESTION if tool == "ask_person" else WIDER)
        return Saved(tmp_path_factory.mktemp(tool), lambda folder: asking_vault(folder, call))

    return made


@pytest.fixture
def asked(saved: Callable[[str], Saved]) -> TestVault:
    return saved("ask_person").restore()


@pytest.fixture
def wider(saved: Callable[[str], Saved]) -> TestVault:
    return saved("request_scope").restore()


def question(vault: TestVault) -> Path:
    return vault.root / "Inbox/Questions/say-hello_1.md"


def amendment(vault: TestVault) -> Path:
    return vault.root / "Inbox/Plans/say-hello_amendment1.md"


def told(vault: TestVault, action: str) -> dict[str, Any]:
    (row,) = vault.rows(action)
    return dict(row["metadata"])


@pytest.mark.parametrize(
    ("said", "answer", "chosen"),
    [
        ("Good morning", "Good morning", 2),
        ("Moin, *everybody*\n\n## and `more`", "Moin, *everybody*\n\n## and `more`", 0),
    ],
)
def test_answer_command_records_option_or_text_and_author(
    asked: TestVault, said: str, answer: str, chosen: int
) -> None:
    done = asked.click("answer", "say-hello", "1")
    assert done.stdout == "Inbox/Questions/say-hello_1.md\n"
    assert "when the daemon runs: placet run" in done.stderr
    assert "`placet answer` waits" in " ".join(asked.click("status").stdout.split())
    asked.click("answer", "say-hello", said)  # the later one counts
    asked.here()
    row = told(asked, "question.answered")
    assert (row["reviewed_by"], row["via"], row["chosen"]) == (ME, "cli", chosen)
    assert row["size"] == len(answer.encode())
    assert not list(asked.state.glob("*/intents/*"))
    assert "execution.completed" in asked.actions()


def test_answer_without_question_is_refused(tmp_path: Path) -> None:
    vault = asking_vault(tmp_path, ("ask_person", QUESTION), approved=False)
    done = vault.click("answer", "say-hello", "1", check=False)
    assert (done.returncode, "is waiting for you, so nothing is asked" in done.stderr) == (1, True)
    assert vault.click("answer", "nobody", "1", check=False).returncode == 3
    assert vault.click("answer", "say-hello", " ", check=False).returncode == 2


def test_views_put_open_question_first(tmp_path: Path) -> None:
    asked = asking_vault(tmp_path, ("ask_person", QUESTION), approved=False)
    asked.drop("# Other\n", "Other.md")
    asked.here()  # this plan waits for longer than the question
    asked.approve()
    asked.here()
    cases = json.loads(asked.click("status", "--json").stdout)["cases"]
    assert [c["state"] for c in cases] == ["asking", "review"]
    asking = cases[0]["asking"]
    assert asking["path"] == "Inbox/Questions/say-hello_1.md"
    assert (asking["kind"], asking["question"]) == ("question", "Which *greeting*?")
    assert asking["options"] == ["Hello", "Good morning"]
    for command in ("status", "plans"):
        assert "a question: Which *greeting*?" in asked.click(command).stdout
    assert "Inbox/Questions/say-hello_1.md" in asked.click("plans").stdout
    assert [c["request_id"] for c in json.loads(asked.click("plans", "--json").stdout)] == [
        "say-hello",
        "other",
    ]
    shown = asked.click("show", "say-hello").stdout
    assert shown.index("── request") < shown.index("Which \\*greeting\\*?"), "it is read last"
    why = asked.click("why", "say-hello").stdout
    assert "Inbox/Questions/say-hello_1.md" in why
    assert "It asks: Which *greeting*?" in why
    assert "placet answer say-hello TEXT" in why
    assert "left over" not in asked.click("doctor", check=False).stdout, "its worktree is kept"


def test_moved_question_note_is_answered_in_place(asked: TestVault) -> None:
    question(asked).rename(question(asked).with_name("mine.md"))
    asked.here()
    assert asked.click("answer", "say-hello", "1").stdout == "Inbox/Questions/mine.md\n"
    asked.here()
    assert "execution.completed" in asked.actions()


def test_report_lists_questions_and_answers(tmp_path: Path) -> None:
    vault = asking_vault(
        tmp_path, ("ask_person", QUESTION), ("ask_person", QUESTION), ("request_scope", WIDER)
    )
    vault.click("answer", "say-hello", "2")
    vault.here()
    vault.click("answer", "say-hello", "*Moin* [[x]]")
    vault.here()
    vault.click("approve", "say-hello", "--yes")
    vault.here()
    (report,) = vault.reports()
    text = report.read_text()
    part = text[text.index("## Questions and Wider Scopes") : text.index("## Files Changed")]
    one, other, wider = part.strip().splitlines()[1:]
    assert one.startswith("- **Which \\*greeting\\*?** ([[say-hello_question1]]): Good morning")
    assert "\\*Moin\\* \\[\\[x" in other
    assert all(f"{ME}, 20" in line for line in (one, other, wider))
    assert "`write test_hello.py; run pytest -q` ([[say-hello_amendment1]]): approved" in wider
    assert told(vault, "plan.amended")["digest"][:8] in wider
    for name in ("say-hello_question1", "say-hello_question2", "say-hello_amendment1"):
        assert (vault.root / f"Inbox/Archive/{name}.md").exists()


def test_a_failure_report_tells_it_too(tmp_path: Path) -> None:
    vault = asking_vault(
        tmp_path, ("request_scope", WIDER), ("give_up", {"reason": "Not without."})
    )
    vault.click("reject", "say-hello", "--reason", "no tests")
    vault.here()
    (report,) = vault.reports()
    assert f"([[say-hello_amendment1]]): rejected, no tests — {ME}, 20" in report.read_text()
    row = told(vault, "plan.amendment_rejected")
    assert (row["reviewed_by"], row["via"], row["reason"]) == (ME, "cli", "no tests")


def test_report_without_questions_has_no_question_section(tmp_path: Path) -> None:
    vault = asking_vault(tmp_path)
    assert "Questions" not in vault.reports()[0].read_text()


def test_story_describes_questions_and_amendments(tmp_path: Path) -> None:
    vault = asking_vault(tmp_path, ("ask_person", QUESTION), ("request_scope", WIDER))
    vault.click("answer", "say-hello", "2")
    vault.here()
    vault.click("reject", "say-hello", "--reason", "no tests")
    vault.here()
    story = Story()
    with open_reader(vault.db) as reader:
        rows = reader.activity(limit=1_000)
    lines = [story.line(row) for row in rows]
    live = {EVENT.validate_json(line_of(event_of(row))).type for row in rows}
    assert {"question.asked", "question.answered", "plan.amendment_requested"} <= live
    said = [line[1].removeprefix("say-hello: ") for line in lines if line is not None]
    for sentence in (
        "is waiting for your answer: Inbox/Questions/say-hello_1.md",
        f"its question was answered by {ME}, option 2; the work continues",
        "its mission needs a wider scope (write test_hello.py; run pytest -q) and is waiting for "
        "you: Inbox/Plans/say-hello_amendment1.md",
        f"the wider scope was rejected by {ME}: no tests; the mission continues without it",
        "1 question is waiting for your answer (placet review)",
    ):
        assert sentence in said, (sentence, said)
    journal = vault.click("journal", "--trace", "say-hello").stdout
    assert f"answered by {ME}, option 2" in journal


# --- a wider scope


def test_amendment_is_shown_and_approved_on_terminal(wider: TestVault) -> None:
    code, said = on_a_terminal(wider, "n", "approve", "say-hello")
    assert code == 1
    for piece in ("  write    hello.txt", "+ write    test_hello.py", "+ run      pytest -q"):
        assert piece in said, piece
    assert said.index("+ write") < said.index("Approve it?")
    assert not read_note(amendment(wider).read_bytes()).meta["decision"]
    code, _ = on_a_terminal(wider, "y", "approve", "say-hello")
    assert code == 0
    wider.here()
    assert "execution.completed" in wider.actions()
    row = told(wider, "plan.amended")
    assert (row["reviewed_by"], row["via"]) == (ME, "cli")
    assert f"Approved-By: {ME}" in git(wider.root, "log", "--branches=feat/*", "-1", "--format=%B")


def test_amendment_approval_requires_digest_that_was_read(wider: TestVault) -> None:
    found = json.loads(wider.click("show", "say-hello", "--json").stdout)["asking"]
    assert found["kind"] == "amendment"
    assert found["question"] == "write test_hello.py; run pytest -q"
    for command in ("status", "plans"):
        assert "a wider scope: write test_hello.py; run" in wider.click(command).stdout
    refused = wider.click("approve", "say-hello", "--yes", "--digest", "0" * 12, check=False)
    assert (refused.returncode, "is not what you read" in refused.stderr) == (1, True)
    text = amendment(wider).read_text()
    amendment(wider).write_text(text.replace("test_hello.py", "**"))
    refused = wider.click("approve", "say-hello", "--yes", check=False)
    assert (refused.returncode, "approves nothing" in refused.stderr) == (1, True)
    amendment(wider).write_text(text)
    wider.click("approve", "say-hello", "--yes", "--digest", found["digest"][:12])
    assert "`placet approve` waits" in " ".join(wider.click("status").stdout.split())


def test_wrong_command_for_amendment_names_right_one(wider: TestVault) -> None:
    done = wider.click("revise", "say-hello", "--comment", "less", check=False)
    assert (done.returncode, "placet reject say-hello" in done.stderr) == (1, True)
    done = wider.click("answer", "say-hello", "yes", check=False)
    assert (done.returncode, "placet approve say-hello" in done.stderr) == (1, True)
    assert wider.click("approve", "say-hello", "--remark", "x", check=False).returncode == 2


def test_a_mission_that_asks_can_be_stopped(asked: TestVault) -> None:
    done = asked.click("reject", "say-hello", "--reason", "no", check=False)
    assert (done.returncode, "placet answer say-hello" in done.stderr) == (3, True)
    asked.click("stop", "say-hello")
    asked.here()
    assert "execution.failed" in asked.actions()
    row = asked.rows("plan.taken_back")[0]["metadata"]
    assert (row["via"], row["reviewed_by"]) == ("cli", ME)


def test_answer_command_refuses_note_with_two_answers(asked: TestVault) -> None:
    text = question(asked).read_text().replace("- [ ] ", "- [x] ")
    question(asked).write_text(text)
    done = asked.click("answer", "say-hello", "1", check=False)
    assert (done.returncode, "Two answers are given in it" in done.stderr) == (1, True)
    assert question(asked).read_text() == text


@pytest.mark.parametrize("said", ["\u200b", "-", "<!-- later -->", "x" * 600_000])
@pytest.mark.thinned(2)
def test_invisible_or_oversized_answer_is_refused(asked: TestVault, said: str) -> None:
    before = question(asked).read_bytes()
    done = asked.click("answer", "say-hello", "--", said, check=False)
    assert done.returncode in (1, 2)
    assert "600,4" in done.stderr or "Nothing of this answer would be seen" in done.stderr
    assert question(asked).read_bytes() == before


def test_oversized_remark_is_refused(tmp_path: Path) -> None:
    """The daemon would refuse that plan, so nobody is told that it was approved."""
    vault = asking_vault(tmp_path, ("ask_person", QUESTION), approved=False)
    before = vault.plan().read_bytes()
    long = "y " * 150_000
    done = vault.click("approve", "say-hello", "--yes", "--remark", long, check=False)
    assert (done.returncode, "are not read" in done.stderr) == (1, True)
    done = vault.click("revise", "say-hello", "--comment", "y " * 300_000, check=False)
    assert (done.returncode, "placet reads plans of at most" in done.stderr) == (1, True)
    assert vault.plan().read_bytes() == before
