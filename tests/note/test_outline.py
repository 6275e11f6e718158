"""Test how a text is split at headings, and escaped so that it adds none."""

from __future__ import annotations

import pytest

from placet.note import outline
from placet.note.outline import (
    escaped,
    escaped_comments,
    escaped_heading,
    escaped_text,
    fenced,
    outline_of,
    unescaped,
    unescaped_comments,
    unescaped_heading,
    unescaped_text,
)

BODY = "intro\n# One\ntext\n```\n# code\n```\n## Two ##\nmore\n# Three\n"


def test_parts_end_at_headings_of_their_level() -> None:
    whole = outline_of(BODY)
    parts = whole.parts(0, len(whole.lines), 1)
    assert [(part.level, part.title) for part in parts] == [(0, ""), (1, "One"), (1, "Three")]
    assert whole.texts(parts[1]) == ["text", "```", "# code", "```", "## Two ##", "more"]
    deeper = [part.title for part in whole.parts(0, len(whole.lines), 2)]
    assert deeper == ["", "One", "Two", "Three"]
    assert whole.code == {3, 4, 5}


def test_unclosed_code_block_is_named() -> None:
    assert outline_of("a\n~~~~ sh\n~~~\n# b").unclosed is not None
    assert outline_of("a\n~~~~ sh\n~~~~\n# b").unclosed is None


def test_names_of_sections_ignore_case_and_markup() -> None:
    assert outline.named("**Review**  Comments:") == outline.named("review `comments`")


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
        "[open](obsidian://new?overwrite=true)",
        "\\# escaped already",
        "\\\\<b>",
        "a < b, 50% of $4",
    ],
)
def test_escaping_is_undone_exactly(line: str) -> None:
    assert unescaped(escaped(line)) == line
    assert escaped(escaped(line)) != escaped(line) or escaped(line) == line


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


def test_fence_is_longer_than_its_content() -> None:
    assert fenced("a\n````\nb\n", "md") == "`````md\na\n````\nb\n`````"
    assert fenced("<% tp %>", "").split("\n")[1] == "< % tp %>"


def test_comment_begins_no_section() -> None:
    text = "Like this:\n## Scope\n### a step stays\n```\n## code\n```"
    lines = escaped_comments(text).split("\n")
    assert lines[1] == "\\## Scope"
    assert lines[2:] == text.split("\n")[2:]
    assert unescaped_comments("\n".join(lines)) == text
