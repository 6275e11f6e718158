"""Test that a note's meaning leaves out what programs change, and nothing that a person writes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placet.case.notes import REQUEST_KEYS, inspect_note
from placet.note.frontmatter import stamp
from placet.note.meaning import meaning_of

REQUEST = b"""---
status: planned
portal: code
priority: 5
budget_usd: 0.50
---
# Fix it

The login is slow.

```text
a line
another
```
"""
TRACE = "9b20b19d-bd92-5906-8be0-05a93c00a401"
PLAN = (
    f"---\ntrace_id: {TRACE}\nrequest_id: fix-it\nrevision: 1\nportal: code\n---\n# Fix it\n\n"
    '## Steps\n\n### 1. Do it\n\n## Scope\n\n```toml\nwrite = ["a"]\n```\n'
).encode()
CHANGES = {
    "CRLF": lambda raw: raw.replace(b"\n", b"\r\n"),
    "CR": lambda raw: raw.replace(b"\n", b"\r"),
    "BOM": lambda raw: b"\xef\xbb\xbf" + raw,
    "final newline": lambda raw: raw.rstrip(b"\n"),
    "more newlines": lambda raw: raw + b"\n\n",
    "line below the properties": lambda raw: raw.replace(b"---\n#", b"---\n\n#"),
    "quotes": lambda raw: raw.replace(b"portal: code", b'portal: "code"'),
    "quoted number": lambda raw: raw.replace(b"priority: 5", b"priority: '5'"),
    "another number": lambda raw: raw.replace(b"0.50", b"0.5"),
    "order": lambda raw: re.sub(rb"(?s)---\n(.*?)(portal: [^\n]*\n)", rb"---\n\2\1", raw, count=1),
    "other keys": lambda raw: stamp(raw, {"updated": "2026-11-28T12:00:00", "aliases": "x"}),
    "status": lambda raw: stamp(raw, {"status": "x"}),
}
EDITS = {
    "a word": lambda raw: raw.replace(b"it\n", b"that\n"),
    "a blank": lambda raw: raw.replace(b"# Fix it", b"# Fix  it"),
    "a paragraph": lambda raw: raw.replace(b"\n\n", b"\n", 1),
    "portal": lambda raw: raw.replace(b"portal: code", b"portal: other"),
    "another spelling": lambda raw: raw.replace(b"portal: code", b"portal: Code"),
    "no portal": lambda raw: raw.replace(b"portal: code\n", b""),
    "a line end in a code block": lambda raw: raw.replace(b"\n```\n", b"\r\n```\n"),
}


SOME = st.lists(st.sampled_from(sorted(CHANGES)), unique=True).filter(
    lambda names: not {"CR", "CRLF"} <= {*names}
)


def changed(names: list[str], raw: bytes) -> bytes:
    for name in sorted(names, key=lambda name: name in ("CR", "CRLF")):
        raw = CHANGES[name](raw)
    return raw


@given(SOME)
def test_programs_change_no_request(names: list[str]) -> None:
    assert meaning_of(changed(names, REQUEST), REQUEST_KEYS) == meaning_of(REQUEST, REQUEST_KEYS)


@given(SOME)
def test_programs_change_no_plan(names: list[str]) -> None:
    path = "System/Active/fix-it.md"
    before, after = (inspect_note(path, raw, "") for raw in (PLAN, changed(names, PLAN)))
    assert after.meaning == before.meaning
    assert after.says(before.digest, before.meaning)


@given(st.sampled_from(sorted(EDITS)), st.sampled_from([REQUEST, PLAN]))
def test_person_changes_meaning(edit: str, raw: bytes) -> None:
    path = "Inbox/Requests/a.md" if raw is REQUEST else "Inbox/Plans/a.md"
    before, after = (inspect_note(path, text, "") for text in (raw, EDITS[edit](raw)))
    assert after.raw != before.raw
    assert not after.says(before.digest, before.meaning)


def test_unreadable_note_means_its_bytes() -> None:
    broken = b"---\nportal: [\n---\nx\n"
    assert meaning_of(broken, REQUEST_KEYS) != meaning_of(broken + b"\n", REQUEST_KEYS)


def test_names_of_digits_differ() -> None:
    one, other = (f'---\nportal: "{name}"\n---\nx\n'.encode() for name in ("007", "7"))
    assert meaning_of(one, REQUEST_KEYS) != meaning_of(other, REQUEST_KEYS)


@pytest.mark.parametrize("number", ["1e9999999", "sNaN", "Infinity", "x", "[1, 2]", "{a: 1}"])
def test_any_value_has_a_meaning(number: str) -> None:
    raw = f"---\nbudget_usd: {number}\n---\nx\n".encode()
    assert meaning_of(raw, REQUEST_KEYS) != meaning_of(b"x\n", REQUEST_KEYS)
