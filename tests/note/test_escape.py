"""Test how a text is escaped so that it adds no structure."""

from __future__ import annotations

import pytest

from placet.note.escape import (
    escaped,
    escaped_comments,
    escaped_heading,
    escaped_text,
    fenced,
    unescaped,
    unescaped_comments,
    unescaped_heading,
    unescaped_text,
    with_code,
)


@pytest.mark.parametrize(
    "line",
    [
        "# heading",
        "> ## quoted",
        "- # in a list",
        "---",
        "Tools: run_command",
        "- [ ] @placet no",
        "<script>",
        "%% hidden %%",
        "[x]: https://example.org",
        "`code` and ` alone",
        "`a[0]` and `b`",
        "`a[0] and `` b` c``",
        "[open](obsidian://new?overwrite=true)",
        "\\# escaped already",
        "\\\\<b>",
        "a < b, 50% of $4",
    ],
)
def test_escaping_is_undone_exactly(line: str) -> None:
    assert unescaped(escaped(line)) == line
    assert escaped(escaped(line)) != escaped(line) or escaped(line) == line


def test_span_that_could_act_leaves_its_neighbours_alone() -> None:
    # plug-ins read `string[…]` as a field; in Python it is an index
    assert escaped("Take `s[:1]` not `s[0]`, see `f`.") == (
        "Take \\`s[:1]\\` not \\`s[0]\\`, see `f`."
    )


@pytest.mark.parametrize("title", ["C#", "# #", "\\#", "[] box", "Done ##", "a `b` *c*"])
def test_heading_keeps_its_hashes(title: str) -> None:
    assert unescaped_heading(f" {escaped_heading(title)}") == title


def test_closing_hashes_are_no_title() -> None:
    assert unescaped_heading(" Two ## ") == "Two"


def test_only_printed_code_blocks_keep_their_meaning() -> None:
    text = "```python\n# a\n```\n```dataviewjs\nrun()\n```\n# b\n```sh\nnever closed"
    lines = escaped_text(text).split("\n")
    assert lines[:3] == ["```python", "# a", "```"]
    assert not [line for line in lines[3:] if line.startswith(("```", "#"))]
    assert unescaped_text(lines) == text


def test_inline_code_of_a_sentence_stays_code() -> None:
    assert with_code("Run `a_b` *now* [[x]]") == "Run `a_b` \\*now\\* \\[\\[x\\]\\]"
    assert with_code("1000. a `b") == "1000\\. a \\`b"
    for acts in ("`= dv.pages()`", "`$= 1`", "`` `= x` ``"):
        shown = with_code(f"Run {acts} and `b`")
        assert shown.count("`") == shown.count("\\`"), shown
    assert with_code("`<% x %>`") == "`< % x %>`"


def test_fence_is_longer_than_its_content() -> None:
    assert fenced("a\n````\nb\n", "md") == "`````md\na\n````\nb\n`````"
    assert fenced("<% tp %>", "").split("\n")[1] == "< % tp %>"


def test_comment_begins_no_section() -> None:
    text = "Like this:\n## Scope\n### a step stays\n```\n## code\n```"
    lines = escaped_comments(text).split("\n")
    assert lines[1] == "\\## Scope"
    assert lines[2:] == text.split("\n")[2:]
    assert unescaped_comments("\n".join(lines)) == text
