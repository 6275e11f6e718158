"""Test `placet review` on a terminal: one item at a time, decided as you read it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_decisions import QUESTION, WIDER, amendment, asking_vault, question, told

from placet.cli.screen import rendered
from placet.client.cases import status
from placet.note.frontmatter import read_note, stamp
from placet.plan.left_out import other_tick, with_tick
from placet.plan.parse import parse_plan
from ptykit import Person, terminal
from signkit import new_key
from vaultkit import DONE, ME, PLAN, TestVault, make_vault, running, until

TWO = {
    **PLAN,
    "steps": [
        *PLAN["steps"],
        {
            "title": "Write another",
            "description": "Another file.",
            "tools": ["write_file"],
            "done_when": ["it is there"],
        },
    ],
    "scope": {"write": ["**"], "run": ["python -c 'print(1)'"]},
}


@contextmanager
def reviewing(
    vault: TestVault, columns: int = 200, lines: int = 100, **env: str
) -> Iterator[Person]:
    with terminal(vault, "review", columns=columns, lines=lines, TERM="xterm", **env) as screen:
        yield Person(screen)


def planned(folder: Path, plan: Any = PLAN, *names: str) -> TestVault:
    vault = make_vault(folder, USER=ME, LOGNAME=ME)
    vault.script(
        ("plan", [{"calls": [("submit_plan", plan)]}]),
        ("revise", [{"calls": [("submit_plan", plan)]}]),
        ("execute", DONE),
    )
    for name in names or ("Say hello",):
        vault.drop(f"# {name}\n", f"{name}.md")
        vault.here()
    return vault


def test_review_signs_where_approvals_are_signed(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    key = new_key(tmp_path)
    vault.click("signer", "add", "anna", str(key))
    vault.click("config", "set", "approval.key", str(key))
    vault.click("config", "set", "approval.signed", "true")
    vault.here()
    with reviewing(vault) as someone:
        someone.sees("say-hello [")
        someone.types("a")
        someone.sees("Signing with")
        assert someone.ends() == 0
    vault.here()
    assert vault.rows("plan.approved")[0]["metadata"]["signer"] == "anna"


@pytest.mark.parametrize("is_running", [False, True])
def test_review_shows_dangers_and_approves(tmp_path: Path, is_running: bool) -> None:
    vault = planned(tmp_path, {**PLAN, "scope": {"write": ["**"]}})

    def person() -> None:
        with reviewing(vault) as someone:
            shown = someone.sees("say-hello [")
            assert shown.index("Write a greeting.") < shown.rindex("danger")
            for piece in ("plan, revision 1", "write     **", "network   no", "1. Write it"):
                assert piece in shown, piece
            someone.types("a")
            said = someone.sees("no decision waits for you")
            answer = (
                "placet: approved: "  # the mission may have ended by then
                if is_running
                else "Approved. It takes effect when the daemon runs"
            )
            assert answer in said
            assert someone.ends() == 0

    if is_running:
        with running(vault):
            person()
            vault.await_action("execution.completed")
    else:
        person()
        vault.here()
    row = told(vault, "plan.approved")
    assert (row["reviewed_by"], row["via"]) == (ME, "cli")
    assert row["digest"] == vault.rows("plan.created")[0]["metadata"]["digest"]


def test_review_needs_terminal(tmp_path: Path) -> None:
    done = planned(tmp_path).click("review", check=False, stdin="a\n")
    assert done.returncode == 2
    assert "terminal" in done.stderr
    assert "placet plans" in done.stderr


def test_unknown_review_letter_decides_nothing(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    with reviewing(vault) as someone:
        someone.types("?")
        assert "reject it, with a reason" in someone.sees("quit\n")
        for odd in ("x", "", "ar", "approve"):
            someone.types(odd)
            someone.sees("quit\n")
        someone.types("s")
        someone.sees("one decision still waits for you")
        assert someone.ends() == 0
    assert vault.plan().exists()


def test_several_things_come_one_after_the_other(tmp_path: Path) -> None:
    vault = planned(tmp_path, PLAN, "One", "Two", "Three")
    with reviewing(vault) as someone:
        someone.sees("one [")
        someone.types("s")
        someone.sees("two [")
        someone.types("r", "")  # no reason, so not rejected
        someone.types("r", "too loud")
        someone.sees("It takes effect when the daemon runs")
        someone.sees("three [")
        someone.types("a")
        someone.sees("one decision still waits")
        assert someone.ends() == 0
    vault.here()
    assert told(vault, "plan.rejected")["reason"] == "too loud"
    row = told(vault, "plan.approved")
    assert (row["via"], row["reviewed_by"]) == ("cli", ME)
    assert vault.plan("one").exists()


def test_comment_asks_for_changes(tmp_path: Path) -> None:
    vault = planned(tmp_path, TWO)
    with running(vault):
        with reviewing(vault) as someone:
            someone.types("c", "")  # no comment, so nothing is asked for
            someone.types("c", "2. Shorter, please.")
            someone.sees("asked for changes")  # the new revision may be shown at once
        vault.await_action("plan.revision_requested")
    row = told(vault, "plan.revision_requested")
    assert (row["via"], row["comment_count"]) == ("cli", 1)


def test_scope_is_shown_below_long_plan(tmp_path: Path) -> None:
    vault = planned(tmp_path, {**TWO, "summary": "One more line.\n\n" * 50})
    with reviewing(vault, 80, 24) as someone:
        screen = someone.sees("say-hello [").splitlines()[-24:]
        for piece in ("write     **", "network   no", "danger", "digest"):
            assert any(line.startswith(piece) for line in screen), piece
        someone.types("q")
        assert someone.ends() == 0


def test_plan_changed_during_review_is_shown_again(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    with reviewing(vault) as someone:
        someone.sees("say-hello [")
        text = vault.plan().read_text()
        vault.plan().write_text(text.replace("A file.", "Quite another file."))
        someone.types("a")
        assert "Quite another file." in someone.sees("was changed since you read it")
        assert vault.plan().exists()
        vault.plan().rename(vault.root / "Inbox/Rejected/no.md")
        someone.types("a")
        someone.sees("say-hello_plan.md is not there")
        someone.sees("one decision still waits for you")
        assert someone.ends() == 0
    vault.here()
    assert "plan.rejected" in vault.actions()
    assert "plan.approved" not in vault.actions()


def test_interrupted_review_loses_nothing(tmp_path: Path) -> None:
    vault = planned(tmp_path, PLAN, "One", "Two")
    before = vault.plan("two").read_bytes()
    with reviewing(vault) as someone:
        someone.sees("one [")
        someone.types("a")
        someone.sees("two [")
        someone.types("r")
        someone.sees("): ")
        someone.terminal.types("half a reason")
        someone.sees("half a reason")  # before it reads, Python may lose a signal
        time.sleep(0.2)
        someone.terminal.interrupt()
        someone.sees("Stopped. What you decided stands.")
        assert someone.ends() == 130
    assert vault.plan("two").read_bytes() == before
    assert [one.what for one in status(vault.site).intents] == ["approve"]
    with reviewing(vault) as someone:
        someone.sees("two [")
        someone.terminal.types("\x04")
        assert someone.ends() == 0


@pytest.mark.parametrize(("said", "chosen"), [("2", 2), ("Moin, all", 0)])
def test_a_question_is_answered(tmp_path: Path, said: str, chosen: int) -> None:
    vault = asking_vault(tmp_path, ("ask_person", QUESTION))
    with running(vault):
        with reviewing(vault) as someone:
            shown = someone.sees("say-hello [")
            for piece in ("Which *greeting*?", "1. Hello", "2. Good morning", "The file says it."):
                assert piece in shown, piece
            for sure in ("n", "y"):
                someone.types(said)
                someone.sees(f"Send the answer “{'Good morning' if chosen else said}”? [y/N]: ")
                someone.writes(sure)
            someone.sees("answered: ")
            assert someone.ends() == 0
        vault.await_action("execution.completed")
    row = told(vault, "question.answered")
    assert (row["chosen"], row["via"], row["reviewed_by"]) == (chosen, "cli", ME)
    assert not question(vault).exists()


@pytest.mark.parametrize("letter", ["a", "r"])
def test_a_wider_scope_is_decided_on(tmp_path: Path, letter: str) -> None:
    vault = asking_vault(tmp_path, ("request_scope", WIDER))
    with reviewing(vault) as someone:
        shown = someone.sees("say-hello [")
        assert shown.index("+ write    test_hello.py") < shown.index("The greeting has a test.")
        someone.types(letter, *(["no tests"] if letter == "r" else []))
        someone.sees("no decision waits for you")
        assert someone.ends() == 0
    vault.here()
    row = told(vault, "plan.amended" if letter == "a" else "plan.amendment_rejected")
    assert (row["via"], row["reviewed_by"]) == ("cli", ME)
    assert "execution.completed" in vault.actions()


def test_edited_amendment_is_not_approved_in_review(tmp_path: Path) -> None:
    vault = asking_vault(tmp_path, ("request_scope", WIDER))
    text = amendment(vault).read_text()
    amendment(vault).write_text(text.replace("test_hello.py", "**"))
    with reviewing(vault) as someone:
        someone.types("a")
        someone.sees("was edited, so it approves nothing")
        someone.types("q")
    assert read_note(amendment(vault).read_bytes()).meta["decision"] == ""


def test_a_plan_that_cannot_be_approved_says_why(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    vault.plan().write_bytes(stamp(vault.plan().read_bytes(), {"if_changed": "perhaps"}))
    with reviewing(vault) as someone:
        shown = someone.sees("say-hello [")
        assert "if_changed: perhaps" in shown
        assert "Write a greeting." in shown
        someone.types("a")
        someone.sees("cannot be approved")
        someone.types("q")
        assert someone.ends() == 0
    assert vault.plan().exists()


def test_rendered_plan_contains_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = "# A \x1b[2Jtitle\n\n> [!danger]+ Look\\* \u202e\n> > deep\n\n```diff\n+ a\n  b\n```\n"
    assert rendered(text).splitlines() == [
        "A \\x1b[2Jtitle",
        "",
        "│ danger: Look* \\u202e",
        "│ │ deep",
        "",
        "    + a",
        "      b",
    ]


def test_a_tick_changes_one_line(tmp_path: Path) -> None:
    body = read_note(planned(tmp_path, TWO).plan().read_bytes()).body
    for text in (body, body.replace("\n", "\r\n")):
        other = with_tick(text, other_tick(text, 2))
        assert parse_plan(other).left_out == (2,)
        changed = [n for n, (a, b) in enumerate(zip(text, other, strict=True)) if a != b]
        assert len(changed) == 1
        assert with_tick(other, other_tick(other, 2)) == text
    bare = body.replace("- [x] Do this step\n", "")
    assert parse_plan(with_tick(bare, other_tick(bare, 1))).left_out == (1,)
    with pytest.raises(ValueError, match="no step 3"):
        with_tick(body, other_tick(body, 3))


def test_review_shows_plans_arriving_meanwhile(tmp_path: Path) -> None:
    vault = planned(tmp_path, PLAN, "One")
    with running(vault), reviewing(vault) as someone:
        someone.sees("one [")
        vault.drop("# Two\n", "Two.md")
        until(lambda: vault.plan("two").exists(), "the other plan")
        someone.types("s")
        someone.sees("two [")
        someone.types("q")
        assert someone.ends() == 0


def test_a_plan_that_failed_is_approved_again(tmp_path: Path) -> None:
    vault = asking_vault(tmp_path, ("give_up", {"reason": "It cannot be done."}))
    with reviewing(vault) as someone:
        shown = someone.sees("say-hello [")
        assert "its last mission failed: Knowledge/Reports/" in shown
        someone.types("c", "")  # as its note offers; without a comment nothing is asked for
        someone.types("a")
        someone.sees("It takes effect when the daemon runs")
        assert someone.ends() == 0
    vault.here()
    _first, again = vault.rows("plan.approved")
    assert again["metadata"]["via"] == "cli"


def test_question_of_a_planner_is_for_review(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.script(("plan", [{"calls": [("ask_person", QUESTION)]}]))
    vault.drop("Say hello.\n")
    vault.here()
    (line,) = status(vault.site).waiting
    assert (line.state, line.is_for_review) == ("asking", True)
