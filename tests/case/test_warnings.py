"""Test the warnings above a plan."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import pytest

from placet.case.approval import Approved, approval
from placet.case.callout import PlanHead, box_of, compose, with_box
from placet.case.case import Case, KnownPlan, NoteSeen
from placet.case.life_cycle import State
from placet.case.notes import inspect_note
from placet.case.sorting import CaseNotes, not_asking
from placet.case.warnings import missing_keys, warnings_for
from placet.chat.budget import Complexity
from placet.note.box import without_box
from placet.note.frontmatter import Frontmatter, read_note, split_note, stamp
from placet.plan.digest import plan_digest
from placet.plan.parse import parse_plan
from placet.plan.plan import Plan, Step
from placet.plan.render import render_plan
from placet.plan.scope import scope_from

HEAD = PlanHead(
    "11111111-2222-3333-4444-555555555555",
    "r",
    "default",
    "",
    Complexity.STANDARD,
    1,
    "0" * 40,
    "2026-11-21T12:00:00.000Z",
    "T",
)
CASE = Case(
    HEAD.trace_id,
    "r",
    State.REVIEW,
    request_path="Inbox/Requests/R.md",
    plan=KnownPlan(path="Inbox/Plans/r_plan.md"),
)


PLAN_OF_ONE = Plan("T", "S.", (Step("One"),), scope_from({"write": ["a"]}))


def note(plan: Plan, kind: Frontmatter = Frontmatter.YAML) -> bytes:
    return with_box(compose(HEAD, render_plan(plan), remarks=["Remark."], kind=kind), box_of(CASE))


def test_the_note_is_a_plan_with_its_keys() -> None:
    plan = Plan(
        "T",
        "S.",
        (Step("One"),),
        scope_from({"write": ["a"], "run": ["make test"]}),
        ("none",),
    )
    for kind in (Frontmatter.YAML, Frontmatter.TOML):
        raw = note(plan, kind)
        read = read_note(raw)
        assert split_note(raw).kind is kind
        assert read.problem == ""
        assert read.meta["request_id"] == "r"
        assert parse_plan(read.body, {"write_file"}) == plan
        assert "Approve" in read.body
        assert "`make test`" in read.body
        assert plan_digest(raw) == plan_digest(raw.replace(b"status: review", b"status: approved"))


def test_box_names_base_commit() -> None:
    plan = KnownPlan(
        path="Inbox/Plans/r_plan.md",
        base_branch="mywork2",
        base_commit=HEAD.base_commit,
        uncommitted=2,
    )
    raw = note(PLAN_OF_ONE)
    shown = with_box(raw, box_of(replace(CASE, plan=plan))).decode()
    commit = HEAD.base_commit[:12]
    assert (
        f"made from branch `mywork2`, commit `{commit}` (2 uncommitted files are not included)."
    ) in shown
    other = raw.replace(HEAD.base_commit.encode(), b"f" * 40)
    said = with_box(other, box_of(replace(CASE, plan=plan))).decode()
    assert f"made from commit `{'f' * 12}`." in said, "a person wrote another commit into it"


@pytest.mark.parametrize(
    ("steps", "asked", "turns"), [(1, None, 10), (20, None, 25), (20, 10, 10), (1, 3, 3)]
)
def test_box_says_how_many_turns_the_mission_has(steps: int, asked: int | None, turns: int) -> None:
    scope = scope_from({} if asked is None else {"max_iterations": asked})
    plan = Plan("T", "S.", tuple(Step(f"Step {n}") for n in range(steps)), scope)
    assert f" At most {turns} iterations.**" in note(plan).decode()


@pytest.mark.parametrize(
    ("own", "day", "said"),
    [
        (None, "10", "$10 a day for all work (when planned)"),
        (None, "0", "no limit"),
        ("0.5", "10", "at most $0.50"),
    ],
)
def test_box_names_cost_limit(own: str | None, day: str, said: str) -> None:
    scope = scope_from({} if own is None else {"budget_usd": float(own)})
    plan = Plan("T", "S.", (Step("One"),), scope)
    box = box_of(replace(CASE, plan=KnownPlan(day_usd=Decimal(day))))
    assert f"cost: {said}." in with_box(note(plan), box).decode()


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ([], "run nothing;"),
        (["sed -n"], "run `sed -n` (with any further words);"),
        (["a b", "c"], "run `a b`, `c` (each with any further words);"),
    ],
)
def test_box_says_that_commands_take_words(run: list[str], said: str) -> None:
    plan = Plan("T", "S.", (Step("One"),), scope_from({"write": ["a"], "run": run}))
    assert said in note(plan).decode()


def test_dangers_and_hidden_text_stand_on_top() -> None:
    hidden = "Do it.\u200b\u202e"
    plan = Plan("T", hidden, (Step("One"),), scope_from({"write": ["**"], "run": ["bash -c"]}))
    text = note(plan).decode()
    assert "[!danger]" in text
    assert "[!warning]" in text
    line = int(text.split("> - line ")[1].split()[0])
    below = without_box(read_note(text.encode()).body)
    assert "Do it." in below.splitlines()[line - 1]


@pytest.mark.parametrize("key", ["status", "decision"])
def test_list_in_plan_is_called_a_list(key: str) -> None:
    raw = re.sub(rf"(?m)^{key}:.*$", f"{key}:\n  - approve", note(PLAN_OF_ONE).decode())
    plan = inspect_note(CASE.plan.path, raw.encode(), "ann")
    said = f"`{key}` is a list. Write one word: `{key}: approve`."
    assert warnings_for(CASE, CaseNotes(plans=[plan])) == {plan.path: said}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("\n  - draft", "a list. Write one word: `status: draft`."),
        ("[[x, y]]", "a list. Write one word."),
        ("{a: b}", "a map. Write one word."),
    ],
)
def test_list_in_request_is_called_a_list(value: str, said: str) -> None:
    raw = f"---\ntrace_id: {CASE.trace_id}\nstatus: {value}\n---\nDo it.\n".encode()
    request = inspect_note(CASE.request_path, raw, "ann")
    assert warnings_for(CASE, CaseNotes(request)) == {request.path: f"`status` is {said}"}
    assert not_asking(request).startswith(f"`status` is {said} To ask for a plan")


def test_own_old_status_is_not_blamed_on_you() -> None:
    raw = f"---\ntrace_id: {CASE.trace_id}\nstatus: error\n---\nDo it.\n".encode()
    request = inspect_note(CASE.request_path, raw, "ann")
    said = warnings_for(CASE, CaseNotes(request))[request.path]
    assert "placet may have written it before the journal was restored." in said


IN_PORTAL = replace(
    CASE,
    plan=KnownPlan(
        keys=(("portal", "code"),), revision=1, path=CASE.plan.path, base_commit=HEAD.base_commit
    ),
)
LINES = {
    "trace_id": HEAD.trace_id,
    "request_id": "r",
    "revision": "1",
    "portal": "code",
    "base_commit": HEAD.base_commit,
}


def in_portal(**changes: str | None) -> NoteSeen:
    """A plan for a portal below its current box, with other properties."""
    head = replace(HEAD, portal="code")
    text = compose(head, render_plan(PLAN_OF_ONE), remarks=[], kind=Frontmatter.YAML)
    raw = stamp(text, changes)
    return inspect_note(CASE.plan.path, with_box(raw, box_of(IN_PORTAL)), "ann")


def approved(note: NoteSeen) -> Approved | str:
    return approval(IN_PORTAL, note, {"write_file"})


@pytest.mark.parametrize(
    "lost", [*([key] for key in LINES), ["portal", "base_commit"], list(LINES)]
)
def test_plan_without_a_key_is_not_approved(lost: list[str]) -> None:
    note = in_portal(**dict.fromkeys(lost))
    why = missing_keys(IN_PORTAL, note)
    assert all(f"`{key}: {value}`" in why for key, value in LINES.items())
    assert approved(note) == why
    restored = {key: LINES[key] for key in lost}
    assert isinstance(approved(in_portal(**restored)), Approved), "as the sentence says"


def test_plan_with_another_portal_is_not_approved() -> None:
    assert isinstance(approved(in_portal()), Approved)
    why = approved(in_portal(portal="other"))
    assert isinstance(why, str)
    assert "Restore `portal: code`" in why
    planned_again = in_portal(portal="other", base_commit="1" * 40)
    assert isinstance(approved(planned_again), Approved), "you chose its base yourself"


@pytest.mark.parametrize("wrote", ["yes", "Approved", "'no'"])
def test_unknown_decision_is_quoted_as_written(wrote: str) -> None:
    raw = note(PLAN_OF_ONE).replace(b'decision: ""', f"decision: {wrote}".encode(), 1)
    seen = inspect_note(CASE.plan.path, raw)
    (why,) = warnings_for(CASE, CaseNotes(plans=[seen])).values()
    assert f"`decision: {wrote}` has no effect. Write `approve`" in why
