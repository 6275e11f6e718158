"""Test how markdown is read: unresolved merges of git."""

from __future__ import annotations

import pytest

from placet.case.notes import inspect_note
from placet.errors import UserError
from placet.host.config import parse
from placet.note.markdown import merge_line

MERGE = "<<<<<<< HEAD\ndo\n=======\ndo not\n>>>>>>> theirs\n"
CUT = "<<<<<<< HEAD\nThis:\n\n```sh\nold\n=======\nThat:\n\n```sh\nnew\n>>>>>>> theirs\n```\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (MERGE, 1),
        (f"a\n\n{MERGE}", 3),
        (MERGE.replace("\n", "\r\n"), 1),
        (MERGE.replace("do\n=", "do\n||||||| base\nold\n="), 1),
        (CUT, 1),
        (f"~~~\n~~~\n{CUT}", 3),
        (f"```\n{MERGE}```\n", 0),
        (MERGE.replace("=======\n", ""), 0),
        (MERGE.replace("<<<<<<<", " <<<<<<<"), 0),
        ("A title\n=======\n", 0),
        (">>>>>>> a\n=======\n<<<<<<< b\n", 0),
    ],
)
def test_unresolved_merge_is_found(text: str, line: int) -> None:
    assert merge_line(text) == line


@pytest.mark.parametrize(
    "place", ["Inbox/Requests", "Inbox/Plans", "System/Active", "Inbox/Questions"]
)
@pytest.mark.parametrize("head", ["", "---\ntrace_id: {}\n---\n", "---\nportal: a\n"])
def test_note_with_unresolved_merge_is_named(place: str, head: str) -> None:
    note = inspect_note(f"{place}/a.md", (head + MERGE).encode(), "")
    assert "unresolved merge" in note.problem


def test_settings_with_unresolved_merge_are_named() -> None:
    with pytest.raises(UserError, match=r"unresolved merge .*line 2") as refused:
        parse(f"[vault]\n{MERGE}", "System/placet.toml")
    assert "Keep one of the two versions" in str(refused.value.hint)
