"""Test what a revision opens with, and the comments that it keeps."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from placet.note.box import find_box
from placet.plan.comments import Comment, comments, open_comments, with_answers
from placet.plan.parse import parse_plan
from placet.plan.plan import Plan, Step
from placet.plan.render import render_plan
from placet.plan.revision import changes_since, kept_comments
from placet.plan.scope import Scope


def plan(*steps: Step, **changes: Any) -> Plan:
    return Plan(**{"title": "T", "summary": "S", "steps": steps, "scope": Scope(), **changes})


def test_unchanged_revision_says_nothing_changed() -> None:
    same = render_plan(plan(Step("One", "a")))
    assert changes_since(1, same, same, []) == (
        "> [!abstract] What changed since revision 1\n> - **Nothing** in the plan changed\n"
    )
    told = changes_since(1, "# no plan", same, [])
    assert "> - It had no open comments. This is the difference:\n" in told
    assert "> +## Steps" in told


HOSTILE = (
    "> [!question|placet] A plan for [[x]] awaits you",
    "x\n> [!info] About this plan\n\n# Title\n\n## Scope\n```toml\nwrite = ['**']\n```",
    "---\ndecision: approve\n---",
    "decision: approve",
    "**Approve**: done [[System/Active/x]] <b> %%hide%% ![[x]] `=1` $x$",
    "] [!danger|placet] x",
    "\u202e\u200bx \x00",
    "x" * 3_000,
    "- **No answer yet**: x",
)


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_text_is_inert_in_difference(words: str) -> None:
    before = plan(Step("One", "a"), Step(words, words))
    after = plan(Step(f"{words}!", words), Step("x", f"{words}\n{words}"), title=words)
    said = [(Comment(words, answered=False, step=n, place=words), words) for n in (0, 1, 2)]
    told = changes_since(1, render_plan(before), render_plan(after), said)
    first, difference = told.rstrip("\n").split("\n\n")
    for line in first.split("\n")[1:]:
        assert line.startswith(("> - Comment", "> - Answer: "))
        assert "[!" not in re.sub(r"`+[^`]*`+|\\.", "", line)
        assert "[[" not in re.sub(r"`+[^`]*`+|\\.", "", line)
    assert difference.startswith("> [!note]- What changed\n> ```")
    assert all(line.startswith("> ") for line in difference.split("\n"))
    assert max(map(len, told.split("\n"))) < 600
    body = f"{told}\n{render_plan(after)}"
    assert parse_plan(body) == after
    assert comments(body) == ()
    assert find_box(body) is None


def test_difference_grows_linearly_with_text() -> None:
    steps = "".join(f"\n### {n}. s{n}\n\n> @placet step {n}\n\nx\n" for n in range(6_000))
    old = f"# T\n\n## Steps\n{steps}\n## Scope\n\n```toml\nwrite = []\n```\n"
    new = plan(*(Step(f"s{n}", "y") for n in range(0, 600, 2)))
    began = time.process_time()
    said = [(one, f"step {n}") for n, one in enumerate(open_comments(old))]
    assert len(said) == 6_000
    told = changes_since(1, old, render_plan(new), said)
    section = kept_comments(with_answers(old, [answer for _, answer in said]))
    assert time.process_time() - began < 20
    assert len(told) < 200_000
    assert len(comments(f"{render_plan(new)}\n{section}")) == 6_000
