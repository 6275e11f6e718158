"""Test how a text is split at headings."""

from __future__ import annotations

from placet.note.outline import named, outline_of

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
    assert named("**Review**  Comments:") == named("review `comments`")
