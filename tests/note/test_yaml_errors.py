"""Test the sentences about broken YAML: the line, the key and the advice."""

from __future__ import annotations

import pytest

from placet.note.frontmatter import read_note

TO_QUOTE = " Put quotes around the whole value."
OTHER_QUOTES = " Put quotes around the whole value, of a kind that is not in it."
IF_TEXT = " If this is a text, put quotes around it."


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (
            "a: 1\ntitle: {{title}}",
            "3 (`title`): `{{title}}` is a template that was not filled in." + TO_QUOTE,
        ),
        ("x: {[b]: c}", "2 (`x`): a list or a map cannot be a key." + TO_QUOTE),
        ("rating: * bar", "2 (`rating`): a value cannot begin with `*`." + TO_QUOTE),
        ("up: *home", "2 (`up`): a value cannot begin with `*`." + TO_QUOTE),
        ("author: @me", "2 (`author`): a value cannot begin with `@`." + TO_QUOTE),
        ("a: %x", "2 (`a`): a value cannot begin with `%`." + TO_QUOTE),
        ("class: ]", "2 (`class`): a value cannot begin with `]`." + TO_QUOTE),
        ("a: > x\n  y", "2 (`a`): a value cannot begin with `>`." + TO_QUOTE),
        ("a: !foo x", "2 (`a`): “!foo” is an unknown tag." + IF_TEXT),
        ("a: !!int x", "2 (`a`): it cannot be read as int."),
        (
            'x: 1\npath: "C:\\Users\\me"',
            "3 (`path`): in double quotes, `\\U` begins an escape. Use single quotes: "
            "`'C:\\Users'`.",
        ),
        ("a: 1\n\tb: 2", "3 (`a`): the line begins with a tab. Replace it with spaces."),
        ("tags:\n\t- b", "3 (`tags`): the line begins with a tab. Replace it with spaces."),
        (
            "tags: [#test]\nstatus: pending",
            "2 (`tags`): everything after `#` is a comment. Put quotes around `#test`.",
        ),
        (
            "tags: [a, #test]",
            "2 (`tags`): everything after `#` is a comment. Put quotes around `#test`.",
        ),
        (
            "a: 1\ntags: [küche\nstatus: draft",
            "3 (`tags`): the list that begins with `[` is not closed. Write `]` after its last "
            "item.",
        ),
        (
            "tags:\n  - [a\n  - b\nx: 1",
            "3 (`tags`): the list that begins with `[` is not closed. Write `]` after its last "
            "item.",
        ),
        ("tags: {a", "2 (`tags`): the braces that begin with `{` are not closed." + IF_TEXT),
        (
            'title: "x\nstatus: pending',
            '2 (`title`): the quote `"` is not closed. Write it again at the end of the value.',
        ),
        ("title: a: b", "2 (`title`): the value contains `: `." + TO_QUOTE),
        (
            "title: 'it's'",
            "2 (`title`): `s'` follows a closing quote or bracket." + OTHER_QUOTES,
        ),
        (
            "up: [[a]], b",
            "2 (`up`): `, b` follows a closing quote or bracket." + OTHER_QUOTES,
        ),
        (
            "status: draft\nportal:code",
            "3: `portal:code` is not `key: value`, with a space after the colon.",
        ),
        (
            "portal:code\nstatus: draft",
            "2: `portal:code` is not `key: value`, with a space after the colon.",
        ),
        (
            "status: draft\n  portal: code",
            "3: the line is indented, unlike the one above it. Remove the spaces before it.",
        ),
        ("tags: - a", "2 (`tags`): a list begins on the line below its key." + IF_TEXT),
        ("tags:\n - a\n- b", "4 (`tags`): this list item is not in line with those above it."),
    ],
)
def test_problem_names_line_key_and_advice(block: str, problem: str) -> None:
    for end in ("\n", "\r\n"):
        note = read_note(end.join(["---", *block.split("\n"), "---", "Do it."]).encode())
        assert (
            note.problem.removeprefix("The frontmatter ")
            .removeprefix("holds a value that cannot be read")
            .removeprefix("is broken YAML")
            == f" at line {problem}"
        )


def test_line_count_ignores_unicode_line_ends() -> None:
    assert "line 3 (`b`)" in read_note("---\na: 'x\u2028y'\nb: @x\n---\n".encode()).problem
