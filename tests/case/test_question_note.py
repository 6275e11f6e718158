"""Test question notes: which answer a note gives, and what an amendment shows."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from placet.case.case import Case, NoteSeen
from placet.case.events import Asked
from placet.case.life_cycle import State
from placet.case.notes import inspect_note
from placet.case.question_note import (
    amendment_note,
    answer_in,
    difference,
    option_meant,
    question_note,
    shown_digest,
    with_answer,
)
from placet.note.frontmatter import read_note, stamp
from placet.plan.hosts import Host
from placet.plan.scope import Scope, widened

CASE = Case("11111111-2222-3333-4444-555555555555", "hello", State.RUNNING)
NOW = "2026-11-21T12:00:00.000Z"
GREETINGS = ("Hello", "Good morning")
HIDDEN = "a\u202eb\u200bc\u2066d\ufeffe\U000e0041f\u00adg"
EMPTY = 'answer: ""'


def asked(options: tuple[str, ...] = GREETINGS) -> str:
    call = Asked(1, "call:1:0", "Which greeting?", options, "The file says it.")
    return question_note(CASE, call, State.RUNNING, NOW).decode()


def seen(text: str) -> NoteSeen:
    return inspect_note("Inbox/Questions/hello_1.md", text.encode(), "ann")


def answer(text: str, options: tuple[str, ...] = GREETINGS) -> tuple[str, int]:
    found = answer_in(seen(text), options)
    return found.text, found.chosen


Edit = Callable[[str], str]


@pytest.mark.parametrize(
    ("edit", "text", "chosen"),
    [
        (lambda t: t.replace("[ ] Good", "[x] Good"), "Good morning", 2),
        (lambda t: t.replace("\n", "\r\n").replace("- [ ] Hello", "- [x] Hello"), "Hello", 1),
        (
            lambda t: t.replace("- [ ] Hello", "- [X] Hello") + "\nBut loud.\n",
            "Hello\nBut loud.",
            0,
        ),
        (lambda t: t.replace("## Answer\n", "## Answer\n\nMoin, *all*\n"), "Moin, *all*", 0),
        # an editor that goes on with a list writes a bullet of its own
        (lambda t: t + "- \n- no\n", "- no", 0),
        (lambda t: t.replace(EMPTY, "answer: yes"), "yes", 0),
        (lambda t: t.replace(EMPTY, "answer: Hello"), "Hello", 1),
        # Obsidian makes a list of a property whose type is one
        (lambda t: t.replace(EMPTY, "answer:\n  - Good morning"), "Good morning", 2),
    ],
)
def test_answer_is_box_property_or_text(edit: Edit, text: str, chosen: int) -> None:
    assert edit(asked()) != asked()
    found, number = answer(edit(asked()))
    assert (found.removeprefix("- \n"), number) == (text, chosen)


@pytest.mark.parametrize(
    "field",
    [
        " ✅ 2026-11-28",
        " \N{HEAVY PLUS SIGN} 2026-11-01 ⏳ 2026-11-02 ✅ 2026-11-28",
        " [completion:: 2026-11-28]",
        "  (completion:: 2026-11-28) ",
        " ^a1b2c3",
        " 🔁 every day ✅ 2026-11-28",
        " 🗓️ 2026-11-28",
    ],
)
def test_tick_with_plugin_field_is_the_answer(field: str) -> None:
    assert answer(asked().replace("- [ ] Hello", f"- [x] Hello{field}")) == ("Hello", 1)


def test_longest_ticked_option_wins() -> None:
    options = ("MIT", "MIT ✅ 2026-11-28")
    ticked = asked(options).replace("[ ] MIT ✅", "[x] MIT ✅")
    assert answer(ticked, options) == (options[1], 2)


@pytest.mark.parametrize("line", ["[x] Ahoy", "[x] Hello or so", "[-] Hello", "[/] Hello"])
def test_strange_tick_is_named(line: str) -> None:
    note = seen(asked().replace("- [ ] Hello", f"- {line}"))
    found = answer_in(note, GREETINGS)
    assert found.text == ""
    assert "does not understand this tick" in found.problem


@pytest.mark.parametrize(
    "words",
    ["", "- ", "- [ ] ", "> ", "\u200b", "<!-- not yet -->", "%%\nlater\n%%", "- \n- [ ] \n*"],
)
def test_invisible_text_is_not_an_answer(words: str) -> None:
    assert answer(f"{asked()}{words}\n\n") == ("", 0)


@pytest.mark.parametrize(
    "said",
    ["[]", "{}", "\n  -", "\n  - ''", '"\u200b"', "null", "~", "\n  - Hello\n  - Good morning"],
)
def test_property_with_several_values_is_not_an_answer(said: str) -> None:
    assert answer(asked().replace(EMPTY, f"answer: {said}")) == ("", 0)


@pytest.mark.parametrize(
    "edit",
    [
        lambda t: t.replace("- [ ] ", "- [x] "),
        lambda t: t.replace("- [ ] Hello", "- [x] Hello").replace(EMPTY, "answer: Moin"),
        lambda t: t.replace(EMPTY, "answer:\n  - Hello\n  - Good morning"),
    ],
)
def test_two_answers_are_none_and_named(edit: Edit) -> None:
    found = answer_in(seen(edit(asked())), GREETINGS)
    assert (found.text, found.problem) == ("", "Two answers are given in it. Leave one.")


@pytest.mark.parametrize(
    ("options", "nth", "text"),
    [
        (("yes", "1"), 2, "1"),
        (("2", "1"), 2, "1"),
        (("2", "1"), 1, "2"),
        (("4", "2", "1"), 3, "1"),
        (("same",) * 8, 5, "same"),
        (("one\nline", "two\nlines"), 2, "two\nlines"),
        (("- [x] a", "[ ] b"), 1, "- [x] a"),
        (("a \\ b", "`a` *b*"), 1, "a \\ b"),
        ((HIDDEN, "abcdefg"), 2, "abcdefg"),
        ((HIDDEN, "abcdefg"), 1, HIDDEN),
        (("1. one", "2) two"), 2, "2) two"),
        (("# a", "## Answer"), 2, "## Answer"),
        (("answer: a", "---"), 2, "---"),
        (("yes \\*", "yes *"), 2, "yes *"),
        (("yes \\*", "yes *"), 1, "yes \\*"),
    ],
)
def test_ticked_option_is_the_answer(options: tuple[str, ...], nth: int, text: str) -> None:
    """A model may have made the options so that another one seems to be meant."""
    head, *boxes = re.split(r"(?m)^- \[ \]", asked(options))
    assert len(boxes) == len(options)
    marked = "".join(f"- [{'x' if n == nth else ' '}]{box}" for n, box in enumerate(boxes, 1))
    assert answer(head + marked, options)[0] == text


def test_hidden_characters_are_shown() -> None:
    call = Asked(1, "call:1:0", HIDDEN, (HIDDEN,), HIDDEN)
    text = question_note(CASE, call, State.RUNNING, NOW).decode()
    for char in "\u202e\u200b\u2066\ufeff\U000e0041\u00ad":
        assert char not in text
        assert text.count(f"{ord(char):04X}}}") == 3, hex(ord(char))


@pytest.mark.parametrize(
    ("said", "options", "text"),
    [
        ("2", ("4", "2", "1"), "2"),
        ("2", ("a", "b"), "b"),
        ("on", ("off", "on"), "on"),
        ("off", ("on", "Off"), "off"),
        ("no", ("yes", "no"), "no"),
        ("010", ("8", "010"), "010"),
        ("1:30", ("90", "1:30"), "1:30"),
        ("2026-11-22", ("2026-11-22",), "2026-11-22"),
        ("1.0", ("1", "1.0"), "1.0"),
        ("1e3", ("1000.0", "1e3"), "1e3"),
        ("true", ("yes", "no"), "yes"),
        ("yes \\*", ("yes *", "yes \\*"), "yes \\*"),
        ("'on'", ("on",), "on"),
        ("[a, b]", ("c",), "[a, b]"),
        ("yes # as we said", ("a",), "yes"),
    ],
)
def test_property_answer_is_taken_verbatim(said: str, options: tuple[str, ...], text: str) -> None:
    assert answer(asked(options).replace(EMPTY, f"answer: {said}"), options)[0] == text


@pytest.mark.parametrize(
    ("options", "said", "meant"),
    [
        (("2", "1"), "1", ("1", 2)),
        (("2", "3"), "1", ("2", 1)),
        (("yes", "2026-11-25T12:00:00Z"), "2", ("2026-11-25T12:00:00Z", 2)),
        (("a", "b"), "3", ("3", 0)),
    ],
)
def test_option_is_meant_by_text_before_number(
    options: tuple[str, ...], said: str, meant: tuple[str, int]
) -> None:
    assert option_meant(said, options) == meant
    if meant[1]:
        note = b'---\nanswer: ""\n---\n## Answer\n'
        written = read_note(with_answer(note, said, options)).meta["answer"]
        assert option_meant(str(written), options) == meant


@pytest.mark.parametrize("options", [(), GREETINGS])
def test_written_answer_begins_no_template(options: tuple[str, ...]) -> None:
    written = with_answer(asked(options).encode(), "\nUse <%* x %>\x07\n", options)
    assert b"<%" not in written
    assert answer(written.decode(), options) == ("Use < %* x %>\ufffd", 0)


def _reordered(text: str) -> str:
    _, head, body = text.split("---\n", 2)
    return "---\n" + "".join(reversed(head.splitlines(keepends=True))) + "---\n" + body


@pytest.mark.parametrize(
    ("saved", "same"),
    [
        (lambda text: text.replace("\n", "\r\n"), True),
        (lambda text: text + "\n \n", True),
        (str.rstrip, True),
        (_reordered, True),
        (lambda text: re.sub(r"(?m)^(request_id): (.*)$", r'\1: "\2"', text), True),
        (lambda text: text.replace("---\n", "---\ntags:\n  - later\nupdated: x\n", 1), True),
        (lambda text: text.replace("+ write", "  write"), False),
        (lambda text: text.replace("pytest -q", "pytest"), False),
        (lambda text: text.replace("amendment: 1", "amendment: 2"), False),
    ],
)
def test_amendment_digest_covers_what_it_shows(saved: Edit, same: bool) -> None:
    first = Scope(write=("hello.txt",))
    wider = Scope(write=("hello.txt", "test_hello.py"), run=(("pytest", "-q"),))
    call = Asked(1, "call:1:0", why="The greeting has a test.", wider=wider)
    raw = amendment_note(CASE, call, first, wider, 1, NOW)
    text = saved(raw.decode())
    assert text != raw.decode()
    decided = stamp(text.encode(), {"decision": "approve"})
    assert (shown_digest(decided) == shown_digest(raw)) is same


def test_amendment_marks_each_new_host() -> None:
    before = Scope(hosts=(Host("packages.example"),))
    after = widened(before, Scope(hosts=(Host("cdn.example", below=True),)))
    lines = difference(before, after).splitlines()
    assert lines[1:-1] == ["  host     packages.example", "+ host     *.cdn.example"]
    assert "+ network  yes" in difference(before, widened(before, Scope(network=True)))
