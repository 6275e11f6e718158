"""The plan as a note: what a reviewer is told above it."""

from __future__ import annotations

from placet.core.life.case import Case, KnownPlan, State
from placet.core.life.plan_note import PlanHead, compose, headed, plan_digest, show
from placet.core.text.blocks import Frontmatter
from placet.core.text.note import read_note
from placet.core.text.plan import Plan, Step, render_plan
from placet.core.text.plan_reader import parse_plan
from placet.core.text.scope import scope_from
from placet.core.turn.budget import Complexity

HEAD = PlanHead(
    "11111111-2222-3333-4444-555555555555",
    "r",
    "default",
    "",
    Complexity.STANDARD,
    1,
    "0" * 40,
    "2026-11-21T12:00:00.000Z",
)
CASE = Case(
    HEAD.trace_id,
    "r",
    State.REVIEW,
    request_path="Inbox/Requests/R.md",
    plan=KnownPlan(path="Inbox/Plans/r_plan.md"),
)


def note(plan: Plan, kind: Frontmatter = Frontmatter.YAML) -> bytes:
    return headed(compose(HEAD, render_plan(plan), remarks=["Remark."], kind=kind), show(CASE))


def test_the_note_is_a_plan_with_its_keys() -> None:
    plan = Plan(
        "T",
        "S.",
        (Step("One", tools=("write_file",)),),
        scope_from({"write": ["a"], "run": ["make test"]}),
        ("none",),
    )
    for kind in (Frontmatter.YAML, Frontmatter.TOML):
        raw = note(plan, kind)
        read = read_note(raw)
        assert read.kind is kind
        assert read.problem == ""
        assert read.meta["request_id"] == "r"
        assert parse_plan(read.body, {"write_file"}) == plan
        assert "Approve" in read.body
        assert "`make test`" in read.body
        assert plan_digest(raw) == plan_digest(raw.replace(b"status: review", b"status: approved"))


def test_dangers_and_hidden_text_stand_on_top() -> None:
    hidden = "Do it.\u200b\u202e"
    plan = Plan("T", hidden, (Step("One"),), scope_from({"write": ["**"], "run": ["bash -c"]}))
    text = note(plan).decode()
    assert "[!danger]" in text
    assert "[!warning]" in text
    line = int(text.split("> - line ")[1].split(",")[0])
    assert "Do it." in text.splitlines()[line - 1]
