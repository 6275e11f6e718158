"""Test boxes and step numbers as editors, phones and typing errors produce them."""

from __future__ import annotations

import pytest
from tests.plan.test_left_out import PARTS, TICKED, planned

from looping import Fake, Time, looping, says
from placet.note.checkboxes import BOX_WORDS, MALFORMED, wrong_with
from placet.note.escape import sentence
from placet.note.frontmatter import stamp
from placet.plan.comments import comments
from placet.plan.left_out import left_out, other_tick, with_tick
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.plan import Plan, Step
from placet.plan.render import render_plan
from placet.plan.scope import Scope
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
def test_damaged_box_is_reported_as_unreadable(line: str) -> None:
    """Whoever deletes the `x` does not mean that the step is done."""
    plan = Plan("T", "", (Step("One"), Step("Two", "Text.")), Scope(("a",), ()))
    body = render_plan(plan)
    at = body.index("### 2.")
    damaged = body[:at] + body[at:].replace(TICKED, line)
    with pytest.raises(PlanProblems, match="step 2 has a box that cannot be read"):
        parse_plan(damaged)
    assert with_tick(damaged, other_tick(damaged, 2)) == body
    # from a model it is text, and comes back as it was
    said = Plan("T", "", (Step("One", line),), Scope(("a",), ()))
    assert parse_plan(render_plan(said)) == said


def test_plan_with_damaged_box_is_not_approved(vault: TestVault) -> None:
    model = Fake(lambda _: says(("submit_plan", PARTS)))
    with looping(vault, model=lambda: model, time=Time()) as run:
        plan = planned(run)
        plan.write_text(plan.read_text().replace(TICKED, f"- [] {BOX_WORDS}", 1))
        run.settle()
        plan.write_bytes(stamp(plan.read_bytes(), {"decision": "approve"}))
        run.settle()
    assert not rows(vault, "plan.approved")
    assert "box that cannot be read" in rows(vault, "plan.refused")[0]["reason"]


# --- steps that were taken out of the text


def test_steps_are_identified_by_their_visible_number() -> None:
    """Whoever takes step 1 out, and writes of step 3, means the heading `### 3.`."""
    plan = Plan("T", "", (Step("One"), Step("Two"), Step("Three")), Scope(("a",), ()))
    body = render_plan(plan)
    shorter = body[: body.index("### 1.")] + body[body.index("### 2.") :]
    without = with_tick(shorter, other_tick(shorter, 3))
    assert without == shorter[: shorter.index("### 3.")] + shorter[
        shorter.index("### 3.") :
    ].replace(TICKED, f"- [ ] {BOX_WORDS}")
    assert left_out(parse_plan(without)) == "the step “Three”"
    for number in (1, 4):
        with pytest.raises(ValueError, match="there is no step"):
            with_tick(shorter, other_tick(shorter, number))
    said = comments(shorter + "\n## Review Comments\n\n3. Later.\n2. Now.\n1. Gone.\n")
    assert [(one.step, one.place) for one in said] == [(2, "Three"), (1, "Two"), (0, "")]
    # headings without numbers are counted, and so is one whose title begins with a number
    bare = body.replace("### 1. ", "### ").replace("### 2. ", "### 2024 ")
    assert left_out(parse_plan(with_tick(bare, other_tick(bare, 2)))) == "step 2"
    assert parse_plan(shorter).steps == plan.steps[1:]


def test_sentence_about_a_box_keeps_its_code() -> None:
    why = sentence(f"Step 1 {wrong_with([MALFORMED])}")
    assert "`- [x] Do this step`" in why
    assert "\\`" not in why
