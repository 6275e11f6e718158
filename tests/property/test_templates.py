"""Test that no note of placet's holds a command of Templater, in its bytes or as it is rendered.

The plug-in runs `<% … %>` in a new note's bytes, and in the text nodes of a rendered note.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from looping import Fake, Time, bare_vault, looping, says, turns_taken
from placet.chat.messages import Ask, Purpose, Reply
from placet.loop.side_notes import side_note
from placet.note.escape import (
    cell,
    code,
    document,
    escaped_text,
    link,
    literal,
    paragraphs,
    sentence,
    unescaped_text,
)
from placet.note.frontmatter import Frontmatter, new_note, read_note, stamp
from placet.plan.differences import diff_callout
from placet.plan.plan import LiteralCall, Plan, Step
from placet.plan.render import render_plan
from placet.plan.scope import Scope, ScopeProblems
from placet.plan.toml_text import actions_toml
from vaultkit import TestVault

BAD = (
    "a <%* x %> `<%+ x %>` `b <% x %>` \\<%* \\<\\% <\\% &lt;% &#60;% **<%** <<% <%% %%<%%% "
    "[<%](<%) ![<%](<%) <%=x%>\u200b<\u200b%"
)
TEXT = (
    f"{BAD}\n\n```js\n<% code %>\n```\n\n- <% item %>\n\n| <% |\n|---|\n| <%* x %> |\n\n# <% %>\n"
)
LINE = {"title": BAD, "description": TEXT, "tools": ["write_file"], "done_when": [BAD]}
PLAN: dict[str, Any] = {
    "title": BAD,
    "summary": TEXT,
    "steps": [LINE],
    "scope": {"write": ["*.txt"], "run": ["python3 -m x"]},
    "risks": [BAD],
}
PIECES = ("<", "%", "<%", "\\", "`", " ", "\n", "&lt;", "\u200b", "*", "```", "|", "~", "x", "%%")
TEXTS = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)


def text_nodes(tokens: list[Token] | None) -> Iterator[str]:
    for token in tokens or ():
        if token.type in (
            "text",
            "code_inline",
            "code_block",
            "fence",
            "html_block",
            "html_inline",
        ):
            yield token.content
        yield from text_nodes(token.children)


def assert_no_command(note: str) -> None:
    assert "<%" not in note
    body = read_note(note.encode()).body
    shown = [*text_nodes(MarkdownIt().enable("table").parse(body))]
    assert not [text for text in shown if "<%" in text]


@given(TEXTS)
@example(BAD)
@example(TEXT)
@settings(max_examples=300)
def test_escaped_text_begins_no_command(text: str) -> None:
    for written in (code(text), literal(text), sentence(text), link(text), cell(text)):
        assert_no_command(written)
    assert_no_command(paragraphs(text))
    assert_no_command(document(text))
    assert_no_command(diff_callout("a\n", f"{text}\nb\n"))
    assert_no_command(side_note([(f"Inbox/Requests/{text}.md", f"{text}\n{text}")], ()).decode())


@given(TEXTS)
@example(BAD)
@settings(max_examples=100)
def test_plan_begins_no_command_and_keeps_its_actions(text: str) -> None:
    call = LiteralCall(
        "write_file", {"path": "a", "content": text, f"k{text}": [text, {"y": text}]}
    )
    plan = Plan(
        f"x{text}", text, (Step(f"x{text}", text, (), (text,), (call,)),), Scope(("a",)), (text,)
    )
    assert_no_command(render_plan(plan))
    params = tomllib.loads(actions_toml([(call.tool, call.params)]))["actions"][0]["params"]
    assert params == call.params


@given(
    TEXTS, st.sampled_from([Frontmatter.YAML, Frontmatter.TOML]), st.sampled_from(["", "'", '"'])
)
@example("<% x %>", Frontmatter.YAML, "'")
def test_properties_begin_no_command_and_keep_their_value(
    text: str, kind: Frontmatter, quote: str
) -> None:
    note = new_note({"answer": text}, "Text\n", kind)
    if kind is Frontmatter.YAML:
        note = stamp(f"---\nanswer: {quote}x{quote}\n---\n".encode(), {"answer": text})
    assert b"<%" not in note
    assert read_note(note).meta["answer"] == text


@pytest.mark.parametrize("field", ["write", "run"])
def test_scope_with_a_command_is_refused(field: str) -> None:
    with pytest.raises(ScopeProblems, match="`<` before `%`"):
        Scope(("<%*",)) if field == "write" else Scope(run=(("echo", "<%* x %>"),))


def test_persons_words_reach_the_model_unchanged() -> None:
    assert unescaped_text(escaped_text("Use <%= x %>").split("\n")) == "Use <%= x %>"


def hostile(ask: Ask) -> Reply:
    request = next(
        name for name in ("asks", "wider", "fails", "done") if name in repr(ask.turns[0])
    )
    turn = turns_taken(ask)
    if ask.purpose is not Purpose.EXECUTE:
        question = {"question": BAD, "options": [BAD, "b <% c"], "why": BAD}
        if request == "asks" and not turn:
            return says(("ask_person", question), text=TEXT)
        answers = {} if ask.purpose is Purpose.PLAN else {"answers": [TEXT]}
        return says(("submit_plan", {**PLAN, "title": f"{request} {BAD}", **answers}), text=TEXT)
    if request == "fails":
        return says(("read_file", {"path": BAD}), ("give_up", {"reason": TEXT}), text=TEXT)
    if request == "wider" and not turn:
        return says(("request_scope", {"why": BAD, "write": ["more/**"]}), text=TEXT)
    return says(
        ("write_file", {"path": "a <% b %>.txt", "content": TEXT}),
        ("complete_step", {"step": 1, "summary": BAD}),
        ("finish", {"summary": TEXT}),
        text=TEXT,
    )


def published(vault: TestVault) -> dict[str, str]:
    """Return all notes but a person's own requests, by path, and check them."""
    notes = {
        str(path.relative_to(vault.root)): path.read_text()
        for path in vault.root.glob("*/*/*.md")
        if not path.name.startswith("request ") or ".placet" in path.name
    }
    for path, text in notes.items():
        try:
            assert_no_command(text)
        except AssertionError as error:
            raise AssertionError(path) from error
    return notes


def test_every_published_note_begins_no_command(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    for name in ("asks", "wider", "fails", "done"):
        vault.drop(f"{name}\n", f"request {name}.md")
    vault.drop(f"---\nagent: {BAD!r}\n---\nx\n", "request bad.md")
    seen: dict[str, str] = {}
    with looping(vault, model=lambda: Fake(hostile), time=Time()) as running:
        running.settle()
        seen |= published(vault)
        comment = "\n## Review Comments\n\n- Use <% x %>, and `<%= y %>`.\n"
        plan = vault.plan("request-done")
        plan.write_bytes(stamp(plan.read_bytes(), {"decision": "revise"}) + comment.encode())
        running.settle()
        seen |= published(vault)
        for name in ("wider", "fails", "done"):
            vault.plan(f"request-{name}").rename(vault.active(f"request-{name}"))
        running.settle()
        seen |= published(vault)
    kinds = {
        "Inbox/Plans/request-done_plan.md", "Inbox/Questions/request-asks_1.md",
        "Inbox/Plans/request-wider_amendment1.md", "Inbox/Requests/request bad.placet.md",
        "System/Active/request-wider.md", "Inbox/Plans/request-fails_plan.md",
    }  # fmt: skip
    missing = [kind for kind in kinds if not any(kind[:-3] in path for path in seen)]
    assert not missing, sorted(seen)
    reports = [path for path in seen if path.startswith("Knowledge/Reports/")]
    assert len(reports) >= 2, sorted(seen)
