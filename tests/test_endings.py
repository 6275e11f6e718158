"""What a person is told of work that is over: what waits, what to do next, what became of it."""

from __future__ import annotations

import re
import shlex
import sys
from datetime import datetime

import pytest
from click.testing import CliRunner

from looping import Fake, Running, Time, greeter, looping, says, turns_taken
from placet.case.story import facts
from placet.chat.messages import Ask, Purpose, Reply
from placet.cli import view
from placet.cli.demo import called
from placet.cli.main import main
from placet.cli.status import plans, status
from placet.cli.view import status_screen
from placet.errors import counted
from placet.plan.comment_blocks import REMARKS
from placet.plan.comments import comments
from vaultkit import TestVault

pytestmark = pytest.mark.bare


def one_fails(ask: Ask) -> Reply:
    """What `greeter` says; a request that is named so fails."""
    if ask.purpose is Purpose.EXECUTE and ask.request_id == "fails":
        return says(("give_up", {"reason": "No."}))
    return greeter(ask)


def carried_out(run: Running, *names: str) -> None:
    for name in names:
        run.vault.drop("Say hello.\n", f"{name}.md")
    run.settle()
    for name in names:
        run.vault.approve(name)
    run.settle()


def test_status_names_the_next_step_and_counts_a_failed_plan_as_plans_does(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    with looping(vault, model=lambda: Fake(one_fails), time=Time()) as run:
        carried_out(run, "fails", "hello")
        told = vault.click("status").stdout.splitlines()
        rows = [line for line in told if line.startswith(("completed", "failed"))]
        assert rows[0].startswith("failed     fails"), "what waits comes first"
        assert rows[1].endswith("; next: placet diff hello, placet merge hello")
        found = status(vault.site)
        assert [case["request_id"] for case in plans(vault.site)] == ["fails"]
        monkeypatch.setattr(view, "wall", run.loop.ports.clock.wall)
        screen = status_screen(found)
        assert "Waits for you (1)" in screen
        assert "placet diff hello, placet merge hello" in screen
        vault.click("merge", "hello")
        run.settle()
        run.loop.ports.clock.sleep(100)
        run.settle()
        assert "next:" not in vault.click("status").stdout


def test_merge_and_undo_begin_with_a_sentence_and_undo_asks_below_one(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        carried_out(run, "hello")
        told = CliRunner().invoke(
            main, ["merge", "hello", "--vault", str(vault.root)], env=vault.env
        )
        sentence, commit = told.output.splitlines()
        assert sentence.startswith("placet: your notes have it now, by this commit on main; take")
        assert told.stdout == f"{commit}\n"
        told = CliRunner().invoke(
            main, ["undo", "hello", "--vault", str(vault.root)], "y\n", env=vault.env
        )
        what, question, sentence, _ = told.output.splitlines()
        assert what.startswith(f"This takes back what {commit[:12]} brought into main of ")
        assert question == "Do that? [y/N]: y"
        assert sentence == "placet: taken back, by this commit on main:"


def test_a_report_stays_true_when_its_branch_is_merged_taken_back_or_dropped(
    vault: TestVault,
) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        carried_out(run, "hello")
        (report,) = vault.reports()
        before = " ".join(report.read_text().split())
        assert (
            "When this was written it was 1 commit ahead of `main`. Your notes were untouched, and "
            "could take it as it was. It could be merged into `main` without conflicts. Until it "
            "is merged or dropped, which the property `became` says: ```sh placet diff hello"
        ) in before
        assert (
            "After that `placet why hello` names what can be done; `placet undo hello` takes a "
            "merge back."
        ) in before
        for command, became in (("merge", "merged"), ("undo", "reverted")):
            vault.click(command, "hello", *(["--yes"] if command == "undo" else []))
            run.loop.ports.clock.sleep(100)
            run.settle()
            run.settle()
            assert f"\nbecame: {became}\n" in report.read_text()


def test_a_failure_report_has_the_words_of_a_plannings_answers_and_no_empty_list(
    vault: TestVault,
) -> None:
    def asks(ask: Ask) -> Reply:
        if ask.purpose is Purpose.PLAN and turns_taken(ask) < 2:
            options = ["the *red* one", "the blue one"]
            return says(("ask_person", {"question": "Which one?", "options": options}))
        if ask.purpose is Purpose.EXECUTE and turns_taken(ask) == 1:
            return says(("give_up", {"reason": "No."}))
        return greeter(ask)

    with looping(vault, model=lambda: Fake(asks), time=Time()) as run:
        vault.drop("Say hello.\n", "hello.md")
        run.settle()
        for answer in ("2", "A green one."):
            vault.click("answer", "hello", answer)
            run.settle()
        vault.approve("hello")
        run.settle()
    report = vault.reports()[0].read_text()
    assert "- **Which one?** ([[hello_question1]]): the blue one — " in report
    assert "- **Which one?** ([[hello_question2]]): A green one. — " in report
    assert "The earlier attempt had done:" in report
    assert "Still to be done" not in report


@pytest.mark.parametrize(
    ("old", "new", "edited"),
    [
        ("A file.\n", "A file.\n\n> @placet A green one.\n", False),
        ("None known.\n", "None known.\n\n## Review Comments\n\n- A green one.\n", False),
        ("> **Where**", "> @placet A green one.\n> **Where**", False),
        ("A file.\n", "A green file.\n", True),
        ("## Scope\n", "## Scope\n\nWhatever it takes.\n", True),
        ('"hello.txt"]', '"hello.txt"]\n', True),
    ],
)
@pytest.mark.thinned(3)
def test_a_plan_with_a_remark_is_not_approved_as_edited(
    vault: TestVault, old: str, new: str, edited: bool
) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        vault.drop("Say hello.\n", "hello.md")
        run.settle()
        plan = vault.plan("hello")
        plan.write_text(plan.read_text().replace(old, new, 1))
        run.settle()
        vault.approve("hello")
        run.settle()
    row = vault.rows("plan.approved")[0]["metadata"]
    assert (row["edited"], row["comment_count"]) == (edited, 0 if edited else 1)
    assert (", as edited" in vault.click("watch", "hello").stdout) is edited


@pytest.mark.parametrize("at_once", [True, False])
def test_a_comment_in_placets_callout_reaches_the_planner(vault: TestVault, at_once: bool) -> None:
    model = Fake(greeter)
    with looping(vault, model=lambda: model, time=Time()) as run:
        vault.drop("Say hello.\n", "hello.md")
        run.settle()
        plan = vault.plan("hello")
        text = plan.read_text().replace("> **Where**", "> @placet A green one.\n> **Where**")
        decided = text.replace('decision: ""', "decision: revise")
        plan.write_text(decided if at_once else text)
        run.settle()
        if not at_once:
            text = plan.read_text()
            assert f"\n\n{REMARKS}\n> @placet A green one.\n" in text
            plan.write_text(text.replace('decision: ""', "decision: revise"))
            run.settle()
    (revise,) = [ask for ask in model.asks if ask.purpose is Purpose.REVISE]
    told = [str(block["text"]) for block in revise.turns[0].blocks]
    assert "Open review comments, in order:\n1. A green one." in told
    assert "\n- Above the plan: A green one.\n" in plan.read_text()
    assert vault.rows("plan.revision_requested")[0]["metadata"]["comment_count"] == 1


def test_words_of_a_model_above_the_plan_are_no_comment() -> None:
    body = "> [!abstract] What changed\n> @placet Widen it.\n\n> [!info] x\n> - @placet More.\n\n"
    assert comments(f"{body}# Title\n") == ()
    assert comments(f"> @placet Mine.\n\n{body}# Title\n")[0].text == "Mine."


def side_notes(vault: TestVault) -> str:
    return "".join(note.read_text() for note in sorted(vault.root.rglob("*.placet.md")))


def test_a_key_in_capitals_decides_nothing_and_says_so(vault: TestVault) -> None:
    def asks(ask: Ask) -> Reply:
        if ask.purpose is Purpose.EXECUTE and turns_taken(ask) == 0:
            return says(("ask_person", {"question": "Which one?", "options": ["a", "b"]}))
        return greeter(ask)

    with looping(vault, model=lambda: Fake(asks), time=Time()) as run:
        vault.drop("Say hello.\n", "hello.md")
        run.settle()
        plan = vault.plan("hello")
        before = plan.read_text()
        plan.write_text(before.replace("\ntrace_id", "\nDecision: approve\ntrace_id", 1))
        run.settle()
        assert "`Decision` has no effect: write this key in small letters, `decision`." in (
            side_notes(vault)
        )
        assert vault.rows("plan.approved") == []
        plan.write_text(before)
        run.settle()
        assert not side_notes(vault)
        vault.approve("hello")
        run.settle()
        question = vault.root / "Inbox/Questions/hello_1.md"
        question.write_text(question.read_text().replace('answer: ""', "Answer: a"))
        run.settle()
        assert "`Answer` has no effect: write this key in small letters, `answer`." in (
            side_notes(vault)
        )
        assert vault.rows("question.answered") == []


def test_a_plan_that_was_emptied_comes_back_from_show(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        vault.drop("Say hello.\n", "hello.md")
        run.settle()
        vault.approve("hello")
        vault.active("hello").write_text("")
        run.settle()
        told = re.search(
            "so nothing of it runs. [^`]*`placet ([^`]*) > ([^`]*)`", side_notes(vault)
        )
        assert told is not None
        assert "Its plan `System/Active/hello.md` is empty" in side_notes(vault)
        assert f"`placet {told[1]} > {told[2]}`" in vault.click("why", "hello").stdout
        shown = vault.click(*shlex.split(told[1])).stdout
        vault.active("hello").unlink()
        (vault.root / told[2]).write_text(shown)
        run.settle()
        vault.approve("hello")
        run.settle()
    assert vault.rows("execution.completed")


def test_questions_under_a_clock_that_stands_still_are_told_apart(vault: TestVault) -> None:
    def asks(ask: Ask) -> Reply:
        if ask.purpose is Purpose.EXECUTE and turns_taken(ask) < 2:
            return says(("ask_person", {"question": "Which one?", "options": ["a", "b"]}))
        return greeter(ask)

    class Frozen(Time):
        def wall(self) -> datetime:
            return self.began

    with looping(vault, model=lambda: Fake(asks), time=Frozen()) as run:
        vault.drop("Say hello.\n", "hello.md")
        run.settle()
        vault.approve("hello")
        run.settle()
        asked = [next(iter(run.loop.cases.values())).asking]
        vault.click("answer", "hello", "1")
        run.settle()
        asked.append(next(iter(run.loop.cases.values())).asking)
    first, second = (one.asked_at for one in asked if one is not None)
    assert second > first


def test_counts_have_the_form_of_their_noun() -> None:
    assert counted(1, "file") == "1 file"
    assert counted(2_000, "branch", "branches") == "2,000 branches"
    assert counted(0, "process", "processes") == "0 processes"
    created = {"revision": 1, "steps": 1, "digest": "0" * 64}
    assert facts("plan.created", created) == f"revision 1, 1 step, digest {'0' * 12}"
    done = {"branch": "feat/x", "files_changed": ["a"], "iterations": 1}
    assert facts("execution.completed", done) == "feat/x: 1 file, 1 iteration"
    many = {**done, "files_more": 39_999}
    assert facts("execution.completed", many) == "feat/x: 40,000 files, 1 iteration"


@pytest.mark.parametrize("found", ["/bin/placet", None])
def test_the_demo_names_its_program_as_it_can_be_called(
    monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: found)
    assert called() == ("placet" if found else f"{shlex.quote(sys.executable)} -m placet")
