"""`placet review` on a terminal: one thing after the other, decided on as it was read."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from placet.cli.letters import unbroken
from placet.cli.look import status
from placet.cli.rendered import rendered
from placet.core.text.comments import open_comments
from placet.core.text.note import read_note, stamp
from placet.core.text.partial import with_other_tick
from placet.core.text.plan_reader import parse_plan
from ptykit import Person, terminal
from test_answer_command import QUESTION, WIDER, amendment, asking_vault, question, told
from vaultkit import ME, PLAN, TestVault, make_vault, running, until

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
        (
            "execute",
            [
                {
                    "calls": [
                        ("write_file", {"path": "hello.txt", "content": "hello\n"}),
                        ("complete_step", {"step": 1, "summary": "Hello"}),
                        ("finish", {"summary": "Done."}),
                    ]
                }
            ],
        ),
    )
    for name in names or ("Say hello",):
        vault.drop(f"# {name}\n", f"{name}.md")
        vault.here()
    return vault


@pytest.mark.parametrize("is_running", [False, True])
def test_what_waits_is_shown_with_its_dangers_on_top_and_approved(
    tmp_path: Path, is_running: bool
) -> None:
    vault = planned(tmp_path, {**PLAN, "scope": {"write": ["**"]}})

    def person() -> None:
        with reviewing(vault) as someone:
            shown = someone.sees("say-hello [")
            assert shown.index("danger") < shown.index("Write a greeting.")
            for piece in ("plan, revision 1", "write     **", "network   no", "1. Write it"):
                assert piece in shown, piece
            someone.types("a")
            said = someone.sees("nothing waits for you")
            answer = "approved: System/Active/say-hello.md" if is_running else "Saved. The daemon"
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


def test_a_pipe_is_no_terminal(tmp_path: Path) -> None:
    done = planned(tmp_path).cli("review", check=False, stdin="a\n")
    assert done.returncode == 2
    assert "no" in done.stderr
    assert "terminal" in done.stderr
    assert "placet plans" in done.stderr


def test_letters_are_explained_and_others_decide_nothing(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    with reviewing(vault) as someone:
        someone.types("?")
        assert "tick or untick" in someone.sees("quit\n")
        for odd in ("x", "", "approve"):
            someone.types(odd)
            someone.sees("quit\n")
        someone.types("s")
        someone.sees("one thing still waits for you")
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
        someone.sees("Saved. ")
        someone.sees("three [")
        someone.types("m", "Whisper it.")
        someone.sees("one thing still waits")
        assert someone.ends() == 0
    vault.here()
    assert told(vault, "plan.rejected")["reason"] == "too loud"
    row = told(vault, "plan.approved")
    assert (row["via"], row["reviewed_by"], row["comment_count"]) == ("cli", ME, 1)
    assert vault.plan("one").exists()


def test_a_comment_at_a_step_asks_for_changes(tmp_path: Path) -> None:
    vault = planned(tmp_path, TWO)
    with running(vault):
        with reviewing(vault) as someone:
            someone.types("c", "2", "Shorter, please.")
            someone.sees("written into the plan")
            assert "Shorter, please." in someone.sees("say-hello [")
            (comment,) = open_comments(read_note(vault.plan().read_bytes()).body)
            someone.types("v", "")
            someone.sees("asked for changes")
            someone.ends()
        vault.await_action("plan.revision_requested")
    assert (comment.text, comment.step) == ("2. Shorter, please.", 2)
    row = told(vault, "plan.revision_requested")
    assert (row["via"], row["comment_count"]) == ("cli", 1)


def test_an_unticked_step_is_not_approved(tmp_path: Path) -> None:
    vault = planned(tmp_path, TWO)
    with running(vault):
        with reviewing(vault) as someone:
            someone.types("t", "2")
            assert "Write another (left out)" in someone.sees("say-hello [")
            someone.types("a")
            someone.sees("approved: ")
            assert someone.ends() == 0
        vault.await_action("execution.completed")
    assert told(vault, "plan.approved")["steps_left_out"] == [2]
    assert "plan.refused" not in vault.actions()


def test_a_plan_that_is_higher_than_the_terminal_is_paged_and_its_scope_stays(
    tmp_path: Path,
) -> None:
    vault = planned(tmp_path, TWO)
    with reviewing(vault, 80, 24, PAGER="sed s/^/paged:/") as someone:
        someone.sees("paged:Write a greeting.")
        below = someone.sees("say-hello [").rpartition("paged:")[2]
        for piece in ("write     **", "network   no", "danger", "digest"):
            assert piece in below, piece
        assert below.count("\n") < 24
        assert "Another file." not in below
        someone.types("p")
        someone.sees("paged:Another file.")
        someone.types("q")
        assert someone.ends() == 0
    with reviewing(vault, 80, 100, PAGER="sed s/^/paged:/") as someone:
        assert "paged:" not in someone.sees("say-hello [")
        someone.types("q")
        assert someone.ends() == 0


def test_steps_are_listed_with_their_boxes_where_a_number_is_asked_for(tmp_path: Path) -> None:
    vault = planned(tmp_path, TWO)
    with running(vault), reviewing(vault) as someone:
        someone.types("t", "2")
        assert "  [x] 1. Write it\n  [x] 2. Write another\n" in someone.said
        someone.types("c", "")
        assert "  [x] 1. Write it\n  [ ] 2. Write another\n" in someone.said
        someone.terminal.types("\n")
        someone.types("q")
        assert someone.ends() == 0


def test_what_changed_since_it_was_shown_is_shown_again(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    with reviewing(vault) as someone:
        someone.sees("say-hello [")
        text = vault.plan().read_text()
        vault.plan().write_text(text.replace("A file.", "Quite another file."))
        someone.types("a")
        someone.sees("was changed since you read it")
        assert "Quite another file." in someone.sees("say-hello [")
        assert vault.plan().exists()
        vault.plan().rename(vault.root / "Inbox/Rejected/no.md")
        someone.types("a")
        someone.sees("say-hello_plan.md is not there")
        someone.sees("one thing still waits for you")
        assert someone.ends() == 0
    vault.here()
    assert "plan.rejected" in vault.actions()
    assert "plan.approved" not in vault.actions()


def test_ctrl_c_loses_nothing(tmp_path: Path) -> None:
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
        someone.sees("stopped; what you decided before stands")
        assert someone.ends() == 130
    assert vault.plan("two").read_bytes() == before
    assert [one["what"] for one in status(vault.site)["intents"]] == ["approve"]
    with reviewing(vault) as someone:
        someone.sees("two [")
        someone.terminal.types("\x04")
        assert someone.ends() == 0


def test_the_editor_and_obsidian_open_the_note(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    opened, editor = bin_ / "opened", bin_ / "my editor"
    for program, text in (
        (editor, "sed -i 's/A file\\./An edited file./' \"$2\""),
        (bin_ / "xdg-open", f'printf %s "$1" > "{opened}"'),
    ):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    env = {"EDITOR": f"'{editor}' --wait", "PATH": f"{bin_}:{os.environ['PATH']}"}
    with reviewing(vault, **env) as someone:
        someone.types("e")
        assert "An edited file." in someone.sees("say-hello [")
        someone.types("o")
        link = "obsidian://open?vault=vault&file=Inbox%2FPlans%2Fsay-hello_plan.md"
        someone.sees(link)
        until(lambda: opened.exists() and opened.read_text(), "the link", 20)
        assert opened.read_text() == link
        someone.types("a")
        someone.sees("Saved. ")
    vault.here()
    assert told(vault, "plan.approved")["edited"]
    with reviewing(planned(tmp_path / "other"), EDITOR="", VISUAL="") as someone:
        someone.types("e")
        someone.sees("export EDITOR=nano")
        someone.types("q")
        assert someone.ends() == 0


@pytest.mark.parametrize(("said", "chosen"), [("2", 2), ("Moin, all", 0)])
def test_a_question_is_answered(tmp_path: Path, said: str, chosen: int) -> None:
    vault = asking_vault(tmp_path, ("ask_person", QUESTION))
    with running(vault):
        with reviewing(vault) as someone:
            shown = someone.sees("say-hello [")
            for piece in ("Which *greeting*?", "1. Hello", "2. Good morning", "The file says it."):
                assert piece in shown, piece
            someone.types(said)
            if not chosen:
                someone.sees("Answer so [y,n")
                someone.types("n")
                someone.types(said)
                someone.sees("Answer so [y,n")
                someone.types("y")
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
        someone.sees("nothing waits for you")
        assert someone.ends() == 0
    vault.here()
    row = told(vault, "plan.amended" if letter == "a" else "plan.amendment_rejected")
    assert (row["via"], row["reviewed_by"]) == ("cli", ME)
    assert "execution.completed" in vault.actions()


def test_a_wider_scope_that_was_edited_is_not_approved(tmp_path: Path) -> None:
    vault = asking_vault(tmp_path, ("request_scope", WIDER))
    text = amendment(vault).read_text()
    amendment(vault).write_text(text.replace("test_hello.py", "**"))
    with reviewing(vault) as someone:
        assert "approves nothing" in someone.sees("say-hello [")
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


def test_nothing_that_hides_or_moves_reaches_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
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
        other = with_other_tick(text, 2)
        assert parse_plan(other).left_out == (2,)
        changed = [n for n, (a, b) in enumerate(zip(text, other, strict=True)) if a != b]
        assert len(changed) == 1
        assert with_other_tick(other, 2) == text
    bare = body.replace("- [x] Do this step only if ticked\n", "")
    assert parse_plan(with_other_tick(bare, 1)).left_out == (1,)
    with pytest.raises(ValueError, match="no step 3"):
        with_other_tick(body, 3)


def test_a_change_under_way_is_finished_before_ctrl_c_counts() -> None:
    done = []

    def change() -> None:
        with unbroken():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            done.append("written")

    with pytest.raises(KeyboardInterrupt):
        change()
    assert done == ["written"]


def test_what_comes_meanwhile_is_shown_too(tmp_path: Path) -> None:
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
        someone.types("v")  # whoever wants another plan says so with `placet retry`
        assert "ask for changes" not in someone.sees("quit\n")
        someone.types("m", "Try harder.")
        someone.sees("Saved. ")
        assert someone.ends() == 0
    vault.here()
    _first, again = vault.rows("plan.approved")
    assert (again["metadata"]["via"], again["metadata"]["comment_count"]) == ("cli", 1)


@pytest.mark.parametrize("frontmatter", ["yaml", "toml"])
def test_a_question_of_the_planner_is_answered(tmp_path: Path, frontmatter: str) -> None:
    vault = make_vault(tmp_path, USER=ME, LOGNAME=ME)
    vault.configure(f'[vault]\nfrontmatter = "{frontmatter}"\n')
    asks = {"calls": [("ask_person", QUESTION)]}
    vault.script(("plan", [asks, {"calls": [("submit_plan", PLAN)]}]))
    vault.drop("# Say hello\n")
    with running(vault):
        until(question(vault).exists, "the question")
        with reviewing(vault) as someone:
            someone.types("1")
            someone.sees("answered: Hello")
            someone.ends()
        vault.await_action("plan.created")
    assert told(vault, "question.answered")["chosen"] == 1


def test_a_comment_at_a_step_that_there_is_not_is_not_taken(tmp_path: Path) -> None:
    vault = planned(tmp_path, TWO)
    before = vault.plan().read_bytes()
    with reviewing(vault) as someone:
        for number in ("99", "0"):
            someone.types("c", number, "Shorter, please.")
            someone.sees(f"'{number}' is no step.")
        someone.types("q")
        assert someone.ends() == 0
    assert vault.plan().read_bytes() == before


def test_a_number_that_is_an_option_and_the_place_of_another_is_asked_about(
    tmp_path: Path,
) -> None:
    """`placet answer ID 3` means the option `3`; nobody gets another one for the same answer."""
    how_many = {**QUESTION, "options": ["5", "3", "1"]}
    vault = asking_vault(tmp_path, ("ask_person", how_many))
    with reviewing(vault) as someone:
        someone.types("3")
        someone.sees("Is it option 2, “3” [y,n")
        someone.types("n")
        someone.types("3")
        someone.types("y")
        someone.sees("Saved. ")
        assert someone.ends() == 0
    vault.here()
    assert told(vault, "question.answered")["chosen"] == 2
