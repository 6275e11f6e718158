"""Marks, answers and decisions as editors, phones and sync tools write them, and as hands slip."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from looping import Fake, Time, looping, says
from placet.case.life_cycle import State
from placet.note.checkboxes import BOX_WORDS
from placet.note.frontmatter import stamp
from placet.plan.comments import comments
from placet.plan.left_out import left_out, with_other_tick
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.plan import Plan, Step
from placet.plan.render import render_plan
from placet.plan.scope import Scope
from test_asking import amendment, asker, drop_and_approve, question, state, widener, written
from test_parts import PARTS, TICKED, planned
from vaultkit import TestVault, rows

pytestmark = pytest.mark.bare


# --- boxes

DAMAGED = [
    f"- [] {BOX_WORDS}",
    f"-[ ] {BOX_WORDS}",
    f"- [ ]{BOX_WORDS}",
    f"- [  ] {BOX_WORDS}",
    f"- [ x] {BOX_WORDS}",
    f"- [ ]\u00a0{BOX_WORDS}",
    f"- [ ] **{BOX_WORDS}**",
    f"> - [ ] {BOX_WORDS}",
    f"[ ] {BOX_WORDS} ✅ 2026-11-23",
]


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_box_is_no_tick(line: str) -> None:
    """Whoever deletes the `x` does not mean that the step is done."""
    plan = Plan("T", "", (Step("One"), Step("Two", "Text.")), Scope(("a",), ()))
    body = render_plan(plan)
    at = body.index("### 2.")
    damaged = body[:at] + body[at:].replace(TICKED, line)
    with pytest.raises(PlanProblems, match="step 2 has a box that cannot be read"):
        parse_plan(damaged)
    assert with_other_tick(damaged, 2) == body
    # from a model it is text, and comes back as it was
    said = Plan("T", "", (Step("One", line),), Scope(("a",), ()))
    assert parse_plan(render_plan(said)) == said


def test_a_plan_with_a_damaged_box_is_not_approved(vault: TestVault) -> None:
    model = Fake(lambda _: says(("submit_plan", PARTS)))
    with looping(vault, model=lambda: model, time=Time()) as run:
        plan = planned(run)
        plan.write_text(plan.read_text().replace(TICKED, f"- [] {BOX_WORDS}", 1))
        run.settle()
        plan.write_bytes(stamp(plan.read_bytes(), {"decision": "approve"}))
        run.settle()
    assert not rows(vault, "plan.approved")
    assert "box that cannot be read" in rows(vault, "plan.refused")[0]["reason"]


# --- answers


@pytest.mark.parametrize(
    "said",
    [
        "answer: []",
        "answer: {}",
        "answer:\n  -",
        "answer:\n  - ''",
        'answer: "\u200b"',
        "answer:\n  - Hello\n  - Good morning",
    ],
)
@pytest.mark.thinned(3)
def test_a_property_without_an_answer_is_none(vault: TestVault, said: str) -> None:
    with looping(vault, model=lambda: Fake(asker), time=Time()) as run:
        drop_and_approve(run)
        note = question(vault)
        note.write_text(note.read_text().replace('answer: ""', said))
        run.settle()
        assert state(run) is State.ASKING


def test_a_list_with_one_answer_is_that_answer(vault: TestVault) -> None:
    """Obsidian makes a list of a property whose type is one."""
    with looping(vault, model=lambda: Fake(asker), time=Time()) as run:
        drop_and_approve(run)
        note = question(vault)
        note.write_text(note.read_text().replace('answer: ""', "answer:\n  - Good morning"))
        run.settle()
    assert rows(vault, "question.answered")[0]["chosen"] == 2
    assert written(vault) == "Good morning"


@pytest.mark.parametrize(
    "said", ["- ", "- [ ] ", "> ", "\u200b", "<!-- not yet -->", "%%\nlater\n%%", "- \n- [ ] \n*"]
)
@pytest.mark.thinned(3)
def test_what_nobody_sees_is_no_answer(vault: TestVault, said: str) -> None:
    """An editor that goes on with a list writes a bullet of its own."""
    with looping(vault, model=lambda: Fake(asker), time=Time()) as run:
        drop_and_approve(run)
        note = question(vault)
        note.write_text(note.read_text() + said + "\n")
        run.settle()
        assert state(run) is State.ASKING
        note.write_text(note.read_text() + "- no\n")
        run.settle()
    assert written(vault).endswith("- no")


# --- properties that cannot be read


@pytest.mark.parametrize("wrong", ["status: [open", "answer: Hello\nanswer: Good morning"])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.thinned(2)
def test_an_unreadable_question_is_still_the_question(
    vault: TestVault, wrong: str, moved: bool
) -> None:
    with looping(vault, model=lambda: Fake(asker), time=Time()) as run:
        drop_and_approve(run)
        note = question(vault)
        good = note.read_bytes()
        note.write_text(note.read_text().replace("status: open", wrong).replace("[ ] H", "[x] H"))
        if moved:
            note = note.rename(vault.root / "System/Active/question.md")
        run.settle()
        assert state(run) is State.ASKING
        told = list(vault.root.rglob("*.placet.md"))
        assert [path.parent for path in told] == [note.parent], "nothing is said beside the plan"
        assert "plans" not in told[0].read_text()
        note.write_bytes(good.replace(b"[ ] H", b"[x] H"))
        run.settle()
    assert written(vault) == "Hello"
    assert not list(vault.root.rglob("*.placet.md"))


@pytest.mark.parametrize("place", ["Inbox/Plans", "System/Active"])
def test_an_unreadable_amendment_decides_nothing(vault: TestVault, place: str) -> None:
    with looping(vault, model=lambda: Fake(widener), time=Time()) as run:
        drop_and_approve(run)
        note = amendment(vault).rename(vault.root / place / "amendment.md")
        good = note.read_bytes()
        note.write_bytes(good.replace(b"status: review", b"status: [review"))
        run.settle()
        assert state(run) is State.ASKING
        assert not rows(vault, "plan.amendment_rejected")
        # the plan is still the plan: it can be taken back meanwhile
        vault.active("hello").rename(vault.plan("hello"))
        run.settle()
    assert rows(vault, "execution.failed")


# --- amendments as they are saved


def _reordered(text: str) -> str:
    _, head, body = text.split("---\n", 2)
    return "---\n" + "".join(reversed(head.splitlines(keepends=True))) + "---\n" + body


@pytest.mark.parametrize(
    "saved",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text + "\n \n",
        str.rstrip,
        _reordered,
        lambda text: re.sub(r"(?m)^(request_id): (.*)$", r'\1: "\2"', text),
        lambda text: text.replace("---\n", "---\ntags:\n  - later\nupdated: 2026-11-23\n", 1),
    ],
    ids=["crlf", "blanks", "end", "order", "quotes", "keys"],
)
@pytest.mark.thinned(3)
def test_an_amendment_is_approved_however_it_was_saved(
    vault: TestVault, saved: Callable[[str], str]
) -> None:
    """What it shows is what is approved, and that is the same."""
    with looping(vault, model=lambda: Fake(widener), time=Time()) as run:
        drop_and_approve(run)
        note = amendment(vault)
        note.write_bytes(stamp(saved(note.read_text()).encode(), {"decision": "approve"}))
        run.settle()
    assert rows(vault, "plan.amended")
    assert written(vault, "test_hello.py") == "assert True"


@pytest.mark.parametrize(
    "edit", [lambda t: t.replace("+ write", "  write"), lambda t: t.replace("pytest -q", "pytest")]
)
def test_an_amendment_that_shows_something_else_is_not_approved(
    vault: TestVault, edit: Callable[[str], str]
) -> None:
    with looping(vault, model=lambda: Fake(widener), time=Time()) as run:
        drop_and_approve(run)
        note = amendment(vault)
        text = edit(note.read_text())
        assert text != note.read_text()
        note.write_bytes(stamp(text.encode(), {"decision": "approve"}))
        run.settle()
        assert state(run) is State.ASKING


def test_a_plan_that_an_amendment_was_moved_over_is_gone(vault: TestVault) -> None:
    """`mv …_amendment1.md System/Active/hello.md` writes over the plan: the mission stops."""
    with looping(vault, model=lambda: Fake(widener), time=Time()) as run:
        drop_and_approve(run)
        amendment(vault).rename(vault.active("hello"))
        run.settle()
    assert rows(vault, "execution.failed")
    assert not rows(vault, "plan.amended")


# --- steps that were taken out of the text


def test_a_step_is_known_by_the_number_that_people_read() -> None:
    """Whoever takes step 1 out, and writes of step 3, means the heading `### 3.`."""
    plan = Plan("T", "", (Step("One"), Step("Two"), Step("Three")), Scope(("a",), ()))
    body = render_plan(plan)
    shorter = body[: body.index("### 1.")] + body[body.index("### 2.") :]
    without = with_other_tick(shorter, 3)
    assert without == shorter[: shorter.index("### 3.")] + shorter[
        shorter.index("### 3.") :
    ].replace(TICKED, f"- [ ] {BOX_WORDS}")
    assert left_out(parse_plan(without)) == "the step “Three”"
    for number in (1, 4):
        with pytest.raises(ValueError, match="there is no step"):
            with_other_tick(shorter, number)
    said = comments(shorter + "\n## Review Comments\n\n3. Later.\n2. Now.\n1. Gone.\n")
    assert [(one.step, one.place) for one in said] == [(2, "Three"), (1, "Two"), (0, "")]
    # headings without numbers are counted, and so is one whose title begins with a number
    bare = body.replace("### 1. ", "### ").replace("### 2. ", "### 2024 ")
    assert left_out(parse_plan(with_other_tick(bare, 2))) == "step 2"
    assert parse_plan(shorter).steps == plan.steps[1:]
