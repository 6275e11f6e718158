"""A plan's title is a model's words: it names no section, and what it says means nothing."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from looping import Fake, Time, looping, says
from placet.case.life_cycle import State
from placet.chat.messages import Ask, Purpose, Reply
from placet.note.frontmatter import stamp
from placet.plan.comments import comments, rejection_reason, with_comment
from placet.plan.parse import parse_plan
from placet.plan.plan import Plan, Step
from placet.plan.render import render_plan
from placet.plan.scope import Scope
from placet.plan.widening import with_scope
from test_asking import WIDER, amendment, drop_and_approve, state, widener, written
from vaultkit import PLAN, TestVault, rows

pytestmark = pytest.mark.bare

TITLES = ["Scope", "Review Comments", "review  comments:", "Rejection", "Rejection: do more"]
SCOPE = Scope(("a.txt",), ())


@pytest.mark.parametrize("title", TITLES)
@pytest.mark.parametrize("summary", ["Do it all.", "```toml\nwrite = ['b']\n```"])
def test_a_title_is_no_section(title: str, summary: str) -> None:
    plan = Plan(title, summary, (Step("One", "Text."),), SCOPE)
    body = render_plan(plan)
    assert comments(body) == ()
    assert rejection_reason(body) == ""
    wider = parse_plan(with_scope(body, Scope(("a.txt", "b.txt"), ())))
    assert (wider.scope.write, wider.summary) == (("a.txt", "b.txt"), plan.summary)
    # a person's own sections are found as below any title
    said = with_comment(body, "In French.", "Ann", "2026-11-23 12:00")
    assert [comment.text for comment in comments(said)] == ["In French."]
    assert parse_plan(said).summary == plan.summary
    assert rejection_reason(body + "\n## Rejection\n\nToo broad.\n") == "Too broad."
    assert rejection_reason("# Rejection\n\nToo broad.\n") == "Too broad."


@pytest.mark.parametrize("title", ["Scope", "Review Comments"])
def test_a_wider_scope_is_asked_for_whatever_the_title_says(vault: TestVault, title: str) -> None:
    def model(ask: Ask) -> Reply:
        if ask.purpose is not Purpose.EXECUTE:
            return says(("submit_plan", {**PLAN, "title": title}))
        return widener(ask)

    with looping(vault, model=lambda: Fake(model), time=Time()) as run:
        drop_and_approve(run)
        assert state(run) is State.ASKING
        note = amendment(vault)
        note.write_bytes(stamp(note.read_bytes(), {"decision": "approve"}))
        run.settle()
    assert written(vault, "test_hello.py") == "assert True"
    (row,) = rows(vault, "plan.approved")
    assert row["comment_count"] == 0


def test_a_title_gives_no_reason_for_a_rejection(vault: TestVault) -> None:
    plan = {**PLAN, "title": "Rejection: they want more", "summary": "Write everything."}
    with looping(
        vault, model=lambda: Fake(lambda _: says(("submit_plan", plan))), time=Time()
    ) as run:
        vault.drop("Please say hello.\n", "hello.md")
        run.settle()
        path = vault.plan("hello")
        path.rename(vault.root / "Inbox/Rejected" / path.name)
        run.settle()
    (row,) = rows(vault, "plan.rejected")
    assert row["reason"] == ""


@pytest.mark.parametrize("where", ["_finish", "_start_mission"])
def test_a_mistake_in_the_loop_holds_up_its_own_case_only(vault: TestVault, where: str) -> None:
    """What a worker came back with, or the start of work, meets a bug: the others go on."""
    from placet.loop.work import Dispatch

    real = getattr(Dispatch, where)

    def broken(self: Dispatch, case: Any, *rest: Any) -> Any:
        if case.request_id == "hello" and case.state in (State.RUNNING, State.APPROVED):
            raise ValueError("a bug")
        return real(self, case, *rest)

    def model(ask: Ask) -> Reply:
        return widener(ask, WIDER)

    with looping(vault, model=lambda: Fake(model), time=Time()) as run:
        with patch.object(Dispatch, where, broken):
            drop_and_approve(run)
            vault.drop("Please say hello, too.\n", "other.md")
            run.settle()
            vault.plan("other").rename(vault.active("other"))
            for _ in range(30):
                run.settle()
        assert (vault.root / "Inbox/Plans/other_amendment1.md").exists()
        assert not amendment(vault).exists()
        assert any("placet made a mistake: ValueError: a bug" in said for said in run.said)
        # and once the bug is fixed it goes on by itself
        for _ in range(200):
            run.loop.tick()
            run.loop.ports.clock.sleep(1)
        run.settle()
        assert amendment(vault).exists()
