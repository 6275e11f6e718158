"""Test reading and stamping of notes: what is refused, and that no other byte changes."""

from __future__ import annotations

import hashlib
import os
import re
import string
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import frontmatter
import pytest
from frontmatter.default_handlers import BaseHandler, YAMLHandler
from hypothesis import assume, example, given, reject, settings
from hypothesis import strategies as st

from corpus import CorpusNote, corpus, generated, hand_made
from placet.note.frontmatter import (
    Frontmatter,
    UnsafeEdit,
    new_note,
    parse_note,
    read_note,
    split_note,
    stamp,
    without_keys,
)
from placet.plan.digest import digest

TRACE = "550e8400-e29b-41d4-a716-446655440000"
STAMPS = {"status": "planned", "trace_id": TRACE, "approved_at": "2026-11-25T12:00:00Z"}
CORPUS = corpus()


# -- an oracle of its own: lines, and no parser of YAML or TOML


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z", text)


def _stamped_span(raw: bytes, key: str) -> tuple[int, int]:
    """Return the bytes that belong to a top-level key: its line, and the deeper lines below it."""
    lines = _lines(raw.decode())
    fence = lines[0].removeprefix("\ufeff").rstrip() if lines else ""
    if fence not in ("---", "+++"):
        return 0, 0
    end = next(
        (n for n, line in enumerate(lines) if n and line.rstrip() == fence and line[:3] == fence), 0
    )
    block = lines[1:end]
    if fence == "+++":  # top-level keys end where the first table begins
        tables = [n for n, line in enumerate(block) if line.lstrip().startswith("[")]
        block = block[: tables[0]] if tables else block
    indents = [
        re.match(" *", line)[0] for line in block if line.strip() and line.lstrip()[0] != "#"
    ]
    top = min(map(len, indents), default=0) if fence == "---" else 99
    key_line = re.compile(rf"[ \t]{{0,{top}}}['\"]?{key}['\"]?\s*[:=]")
    first = next((n for n, line in enumerate(block) if key_line.match(line)), None)
    if first is None:
        return 0, 0
    last = first
    literal = re.search(r":[ \t]*[|>]", block[first])  # in a block scalar a `#` is text
    if fence == "---":
        for n in range(first + 1, len(block)):
            blank = not block[n].strip()
            deeper = block[n].startswith(tuple(" " * top + begin for begin in (" ", "- ", "]")))
            if not blank and not deeper:
                break
            if not blank and (literal or not re.match(r"\s*#", block[n])):
                last = n
    else:  # in TOML a value goes on until it can be read
        while last + 1 < len(block) and not _is_toml("".join(block[first : last + 1])):
            last += 1
    start = len("".join(lines[: 1 + first]).encode())
    return start, start + len("".join(block[first : last + 1]).encode())


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text.replace("\r\n", "\n").replace("\r", "\n"))
    except tomllib.TOMLDecodeError:
        return False
    return True


def _differing(a: bytes, b: bytes) -> int:
    return abs(len(a) - len(b)) + sum(x != y for x, y in zip(a, b, strict=False)) if a != b else 0


def bytes_changed_outside(before: bytes, after: bytes, key: str) -> int:
    """Return how many bytes differ between two notes once the lines of `key` are taken out of both."""
    a, b = _stamped_span(before, key), _stamped_span(after, key)
    old, new = before[: a[0]] + before[a[1] :], after[: b[0]] + after[b[1] :]
    moved = a[1] > 0 and b[1] > 0 and a[0] != b[0]
    # a bare note got a block: fences with nothing between are left
    if len(new) > len(old) and a == (0, 0):
        bare = re.sub(rb"\A(\xef\xbb\xbf)?(---|\+\+\+)(\r\n|\n|\r)\2\3", rb"\1", new)
        new = bare if bare == old else new
    return _differing(old, new) + (len(before) if moved else 0)


class _Toml(BaseHandler):
    FM_BOUNDARY = re.compile(r"^\+{3,}\s*$", re.MULTILINE)
    START_DELIMITER = END_DELIMITER = "+++"

    def load(self, fm: str) -> dict[str, object]:
        return tomllib.loads(fm.replace("\r\n", "\n"))


def _others_meta(raw: bytes, kind: Frontmatter) -> dict[str, str]:
    """Return what python-frontmatter reads, as printed text."""
    handler = YAMLHandler() if kind is Frontmatter.YAML else _Toml()
    meta, _ = frontmatter.parse(raw.decode().removeprefix("\ufeff"), handler=handler)
    return {str(key): repr(value) for key, value in meta.items()}


def _figures(notes: Iterable[CorpusNote]) -> dict[str, float]:
    """Stamp every note, one key after the other, and count."""
    seen = Counter[str]()
    took = 0.0
    for note in notes:
        seen["notes"] += 1
        raw = note.raw
        begun = time.perf_counter()
        problem = read_note(raw).problem
        try:
            stamp(raw, STAMPS)
        except UnsafeEdit:
            seen["refused"] += 1
            continue
        finally:
            took += time.perf_counter() - begun
        assert not problem
        for key, value in STAMPS.items():
            after = stamp(raw, {key: value})
            seen["edits"] += 1
            seen["bytes"] += len(raw)
            outside = bytes_changed_outside(raw, after, key)
            seen["changed outside"] += outside
            if outside:
                print(f"changed outside {key}: {note.name}")
            raw = after
    return {**seen, "ms per note (read + stamp)": round(took * 1000 / max(seen["notes"], 1), 3)}


# -- the corpus


def test_corpus_is_large_with_unique_names() -> None:
    assert len(CORPUS) >= 200
    assert len({note.name for note in CORPUS}) == len(CORPUS)


def test_no_byte_changes_outside_the_stamped_lines() -> None:
    figures = _figures(CORPUS)
    assert figures["changed outside"] == 0
    assert figures["edits"] == 3 * sum(note.editable for note in CORPUS)
    assert figures["refused"] == sum(not note.editable for note in CORPUS)


@pytest.mark.parametrize("note", hand_made(), ids=lambda note: note.name)
def test_hand_made_notes_are_stamped_or_refused(note: CorpusNote) -> None:
    problem = read_note(note.raw).problem
    assert bool(problem) == (not note.editable)
    if note.editable:
        after = read_note(stamp(note.raw, STAMPS))
        assert after.meta["status"] == "planned"
        assert not after.problem
    else:
        with pytest.raises(UnsafeEdit, match=re.escape(problem)):
            stamp(note.raw, STAMPS)
        assert without_keys(note.raw, STAMPS) == note.raw
        assert problem.startswith("The ")
        assert problem.endswith(".")
        assert "\n" not in problem


def test_python_frontmatter_agrees_before_and_after_stamp() -> None:
    compared = 0
    for note in CORPUS:
        before = read_note(note.raw)
        if (
            not note.editable
            or split_note(note.raw).kind is Frontmatter.NONE
            or b"\r" in note.raw.replace(b"\r\n", b"")
            or note.name == "impossible date"
        ):
            # python-frontmatter takes rules for frontmatter, does not split lines at a lone CR, and
            # refuses impossible dates
            continue
        ours = {key: repr(value) for key, value in before.meta.items()}
        theirs = _others_meta(note.raw, split_note(note.raw).kind)
        if set(theirs) != set(ours):  # keys that YAML takes for numbers, dates or booleans
            assert note.name in {"number keys", "booleans"}
            continue
        assert theirs == ours, note.name
        stamped = _others_meta(stamp(note.raw, {"status": "planned"}), split_note(note.raw).kind)
        assert stamped == {**theirs, "status": "'planned'"}, note.name
        compared += 1
    assert compared > 200


def test_parse_note_agrees_with_read_note() -> None:
    for note in CORPUS:
        known = read_note(note.raw)
        meta, text = parse_note(note.raw)
        assert list(meta) == list(known.meta), note.name
        assert list(map(repr, meta.values())) == list(map(repr, known.meta.values())), note.name
        assert text == known.body.strip(), note.name


@pytest.mark.parametrize(
    ("raw", "meta", "text"),
    [
        (
            b"\n\n---\nstatus: approved\n---\nno frontmatter\n",
            {},
            "---\nstatus: approved\n---\nno frontmatter",
        ),
        (
            b"---\n\nA paragraph below a rule.\n\n---\n\nAnother.\n",
            {},
            "---\n\nA paragraph below a rule.\n\n---\n\nAnother.",
        ),
        (b"\xef\xbb\xbf---\r\na: 1\r\n---\r\none\r\ntwo\r\n", {"a": 1}, "one\r\ntwo"),
        (b"+++\na = 1\n+++\ntext\n", {"a": 1}, "text"),
        (b"---\na: &x [*x]\n---\ntext\n", {}, "text"),
        (b"---\na: " + b"[" * 5_000 + b"\nb: 1\n---\ntext\n", {}, "text"),
        (
            b"---\ncontent: 1\nhandler: 2\nself: 3\n---\ntext\n",
            {"content": 1, "handler": 2, "self": 3},
            "text",
        ),
        (b"a\xff", {}, "a\ufffd"),
    ],
)
def test_parse_note_avoids_python_frontmatter_traps(
    raw: bytes, meta: dict[str, object], text: str
) -> None:
    assert parse_note(raw) == (meta, text)


@pytest.mark.parametrize("kind", [Frontmatter.YAML, Frontmatter.TOML])
@pytest.mark.parametrize(
    "body",
    [
        "# Title\n\ntext\n",
        "# Title\r\n\r\ntext\r\n",
        "",
        "text",
        "  indented\n\n",
        "a\ud800b\n",
        "\ufefftext\n",
    ],
)
def test_new_note_equals_stamped_body(kind: Frontmatter, body: str) -> None:
    meta: dict[str, str | float | bool] = {
        "trace_id": "550e8400-e29b-41d4-a716-446655440000",
        "status": "on",
        "content": "a: b",
        "handler": "",
        "cost_usd": 1e-7,
        "self": True,
        "completed_at": "2026-11-25T12:00:00Z",
        "agent": "Größe # 1\n",
    }
    raw = new_note(meta, body, kind)
    assert raw == stamp(body.encode(errors="backslashreplace"), meta, kind_if_none=kind)
    assert list(read_note(raw).meta) == list(meta)
    assert new_note({}, body, kind) == body.encode(errors="backslashreplace")


@pytest.mark.parametrize(
    ("meta", "body"),
    [
        ({"a": "x\ud800"}, "text"),
        ({"a b": 1}, "text"),
        ({"a": float("nan")}, "text"),
        ({"a": 1}, "---\nb: 2\n---\ntext\n"),
        ({"a": 1}, "---\nb: [\n---\ntext\n"),
    ],
)
def test_unsafe_new_note_is_refused(meta: dict[str, str | float], body: str) -> None:
    with pytest.raises(UnsafeEdit):
        new_note(meta, body)


# -- the algebra


def _timeless(max_examples: int) -> settings:
    """Return settings for so many examples. $PLACET_EXAMPLES multiplies."""
    return settings(max_examples=max_examples * int(os.environ.get("PLACET_EXAMPLES", "1")))


_text = st.one_of(
    st.sampled_from(
        [
            "yes",
            "123",
            "a: b",
            "# x",
            "",
            " ",
            "null",
            "~",
            "- a",
            "'",
            '"',
            "a\nb",
            "2026-11-25",
            "1e5",
            "12:30",
            "0x1f",
            "[[Link]]",
            "{{x}}",
            "a #b",
            "\u2028",
            "\ufeff",
            "\x85",
            "\\",
            "@a",
            "=",
            "<<",
            "é 🚀",
            "_",
            "-1",
            "1_0",
            "Infinity",
            "NaN",
            ".5",
            "2026-11-25T12:00:00Z",
            "2026-02-30T12:00:00Z",
            "---",
            "+++",
            "...",
            "\t",
            "\U0001f469\u200d\U0001f680",
            "\x7f",
            "\uffff",
            "\U0010ffff",
            "a,b",
            "off",
            "N",
            "\u0661\u0662",
            TRACE,
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.text(string.printable, max_size=30),
)
_values = st.one_of(
    _text,
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
_keys = st.sampled_from(
    ["status", "trace_id", "approved_at", "tags", "title", "summary", "on", "x"]
)
_changes = st.dictionaries(_keys, _values, min_size=1, max_size=4)
_kinds = st.sampled_from([Frontmatter.YAML, Frontmatter.TOML])
_bits = st.sampled_from(
    [
        b"---\n",
        b"\n",
        b"\r",
        b"\r\n",
        b"---",
        b"+++\n",
        b"status: x\n",
        b"status: |\n  a\n",
        b"\t",
        b"  ",
        b"- ",
        b": ",
        b" #",
        b"#",
        b"'",
        b'"',
        b"[",
        b"]",
        b"{",
        b"}",
        b"&a ",
        b"*a",
        b"<<: ",
        b"? ",
        b"!!str ",
        b"|+\n",
        b"...\n",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
        b"\xc2\x85",
        b"\0",
        b"\xff",
        b"%",
        b"status = 1\n",
        b"a.b = 1\n",
        b"[t]\n",
        b'"""',
        b"!x ",
        b"2024-13-01",
        b"!!int ''",
        b"!!bool x",
        b"!!timestamp x",
        b"0001-01-01T00:00:00+23:59",
        b"!!binary ",
        b"!!omap ",
        b"!!set {a}",
        b"=",
    ]
)


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    """A note of the corpus with bits put in, cut out or doubled."""
    raw = draw(st.sampled_from([note.raw for note in CORPUS if len(note.raw) < 1000]))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(raw)))
        cut = draw(st.integers(0, 6))
        raw = raw[:at] + draw(st.one_of(st.just(b""), _bits)) + raw[at + cut :]
    return raw


_notes = st.one_of(
    _damaged(),
    st.lists(_bits, max_size=12).map(lambda bits: b"---\n" + b"".join(bits) + b"---\nbody"),
    st.lists(_bits, max_size=8).map(lambda bits: b"+++\n" + b"".join(bits) + b"+++\nbody"),
    st.lists(_bits, max_size=8).map(b"".join),
    st.text(max_size=60).map(str.encode),
)


def _stamped(raw: bytes, changes: dict[str, object], kind: Frontmatter = Frontmatter.YAML) -> bytes:
    try:
        return stamp(raw, changes, kind_if_none=kind)
    except UnsafeEdit:
        reject()


def _equal(found: object, value: object) -> bool:
    if isinstance(found, datetime) and isinstance(value, str):
        return found == datetime.fromisoformat(value)
    return type(found) is type(value) and found == value


@_timeless(max_examples=100)
@given(st.one_of(st.binary(max_size=60), _notes))
def test_reading_and_digesting_never_raise(raw: bytes) -> None:
    note = read_note(raw)
    assert note.raw == raw
    assert all(isinstance(key, str) for key in note.meta)
    assert len(digest(raw, {"status"})) == 64
    if not note.problem:
        assert raw.endswith(note.body.encode())
        assert (split_note(raw).kind is Frontmatter.NONE) == (
            note.body == raw.decode().removeprefix("\ufeff")
        )


@_timeless(max_examples=150)
@given(_notes, _changes, _kinds)
@example(b"---\nstatus: |+\n  a\n\n# c\nnext: 1\n---\n", {"status": "x"}, Frontmatter.YAML)
@example(b"---\nd: .nan\n---\n", {"status": "x"}, Frontmatter.YAML)
def test_stamp_changes_only_given_keys(
    raw: bytes, changes: dict[str, object], kind: Frontmatter
) -> None:
    after = _stamped(raw, changes, kind)
    before, note = read_note(raw), read_note(after)
    assert not note.problem
    assert note.body == before.body
    had = split_note(raw).kind
    assert split_note(after).kind is (kind if had is Frontmatter.NONE else had)
    assert [key for key in note.meta if key in before.meta] == list(before.meta)
    assert set(note.meta) == {*before.meta, *changes}
    assert all(_equal(note.meta[key], value) for key, value in changes.items())
    assert {k: repr(v) for k, v in note.meta.items() if k not in changes} == {
        k: repr(v) for k, v in before.meta.items() if k not in changes
    }
    assert stamp(after, changes, kind_if_none=kind) == after
    assert digest(after, changes.keys()) == digest(raw, changes.keys())
    assert without_keys(without_keys(after, changes), changes) == without_keys(after, changes)


@_timeless(max_examples=100)
@given(_notes, _changes, _kinds)
def test_removing_added_keys_restores_original_bytes(
    raw: bytes, changes: dict[str, object], kind: Frontmatter
) -> None:
    before = read_note(raw)
    assume(not changes.keys() & before.meta.keys())
    after = _stamped(raw, changes, kind)
    # what would turn the body into frontmatter is refused
    back = _stamped(after, dict.fromkeys(changes), kind)
    fences_only = (
        split_note(raw).kind is not Frontmatter.NONE
        and not before.meta
        and without_keys(raw, ()) != raw
    )
    assert back == (without_keys(raw, ()) if fences_only else raw)


@_timeless(max_examples=100)
@given(_notes, _keys)
def test_removing_key_keeps_everything_else(raw: bytes, key: str) -> None:
    after = _stamped(raw, {key: None})
    before, note = read_note(raw), read_note(after)
    assert repr(dict(note.meta)) == repr({k: v for k, v in before.meta.items() if k != key})
    assert note.body == before.body
    assert after == (without_keys(raw, {key}) if key in before.meta else raw)


@_timeless(max_examples=100)
@given(_values, _kinds, st.sampled_from(["", '"old"', "'old'"]))
def test_every_stamped_value_is_read_back(value: object, kind: Frontmatter, old: str) -> None:
    separator = ": " if kind is Frontmatter.YAML else " = "
    fence = "---" if kind is Frontmatter.YAML else "+++"
    raw = f"{fence}\nkey{separator}{old}\n{fence}\n".encode() if old else b""
    after = stamp(raw, {"key": value}, kind_if_none=kind)
    assert _equal(read_note(after).meta["key"], value)
    assert len(after.decode().splitlines()) == 3, "one value is one line"


@_timeless(max_examples=100)
@given(st.sampled_from([note.raw for note in CORPUS if note.editable]), _changes)
def test_no_value_changes_bytes_outside_its_lines(raw: bytes, changes: dict[str, object]) -> None:
    for key, value in changes.items():
        if key in ("status", "trace_id", "approved_at"):
            try:
                after = stamp(raw, {key: value})
            except UnsafeEdit:  # a key that holds an anchor others use
                continue
            assert bytes_changed_outside(raw, after, key) == 0


# -- what single notes read and become


def test_values_follow_yaml_and_keys_are_text() -> None:
    note = read_note(
        b"---\nat: 12:30\nflag: on\non: x\n2024: y\nmade: 2026-11-25T12:00:00Z\n---\nBody\n"
    )
    made = datetime(2026, 11, 25, 12, tzinfo=UTC)
    assert note.meta == {"at": 750, "flag": True, "on": "x", "2024": "y", "made": made}
    assert (note.body, note.problem) == ("Body\n", "")


def test_undecodable_bytes_are_reported_with_readable_text() -> None:
    note = read_note(b"good\nb\xe4d\n")
    assert note.body == "good\nb\ufffdd\n"
    assert note.problem == "The note is not UTF-8 text (line 2)."


def test_tags_never_run_code(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    note = read_note(f"---\na: !!python/object/apply:os.mkdir ['{witness}']\n---\n".encode())
    assert "tag" in note.problem
    assert not witness.exists()


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ("---\na: 1\nb: @x\n---\n", 3),
        ("---\r\na: 1\r\n\r\nb: {{x}}\r\n---\r\n", 4),
        ("---\nä: 1\nb: 😀\x01\n---\n", 3),
        ("---\na: 1\nb: 2\na: 3\n---\n", 4),
        ("+++\na = 1\nb = @\n+++\n", 3),
    ],
)
def test_problems_name_the_line_of_the_note(raw: str, line: int) -> None:
    assert f"line {line}" in read_note(raw.encode()).problem


def test_impossible_dates_are_read_as_text() -> None:
    note = read_note(b"---\ndue: 2026-11-31\nat: 2026-11-30 25:00:00\n---\n")
    assert not note.problem
    assert dict(note.meta) == {"due": "2026-11-31", "at": "2026-11-30 25:00:00"}


def test_keys_in_braces_are_read_but_not_editable() -> None:
    note = read_note(b"---\n{status: pending}\n---\n")
    assert note.meta == {"status": "pending"}
    assert "braces" in note.problem


@pytest.mark.parametrize(
    ("raw", "changes", "after"),
    [
        (
            "---\na: 1\nstatus:   x  # c\nb: 2\n---\nt",
            {"status": "ok"},
            "---\na: 1\nstatus:   ok  # c\nb: 2\n---\nt",
        ),
        ("---\nstatus: 'x'\n---\n", {"status": "no"}, "---\nstatus: 'no'\n---\n"),
        ('---\nstatus: "x"\n---\n', {"status": "y"}, '---\nstatus: "y"\n---\n'),
        ('---\nstatus: "x"\n---\n', {"status": 3}, "---\nstatus: 3\n---\n"),
        ("---\nstatus:\n---\n", {"status": "ok"}, "---\nstatus: ok\n---\n"),
        ("---\nstatus:   # c\n---\n", {"status": "ok"}, "---\nstatus: ok   # c\n---\n"),
        (
            "---\nstatus:\n  - a\n  # c\nb: 1\n---\n",
            {"status": "ok"},
            "---\nstatus: ok\n  # c\nb: 1\n---\n",
        ),
        ("---\nstatus: |\n  a\n\nb: 1\n---\n", {"status": None}, "---\n\nb: 1\n---\n"),
        (
            "---\n  a: 1\n---\n",
            {"b": True, "c": 1e-7},
            "---\n  a: 1\n  b: true\n  c: 1.0e-07\n---\n",
        ),
        ("text", {"a": "yes", "b": "x"}, '---\na: "yes"\nb: x\n---\ntext'),
        ("text", {"a": "N"}, '---\na: "N"\n---\ntext'),
        ("a\r\nb", {"a": "x"}, "---\r\na: x\r\n---\r\na\r\nb"),
        ("\ufeffa", {"a": "x"}, "\ufeff---\na: x\n---\na"),
        ("---\n\nrule\n", {"a": "x"}, "---\na: x\n---\n---\n\nrule\n"),
        (
            "---\nt: 2026-11-25T12:00:00Z\n---\n",
            {"t": "2026-11-25T12:00:00Z"},
            "---\nt: 2026-11-25T12:00:00Z\n---\n",
        ),
        (
            "---\na: 1\n---\n",
            {"t": "2026-11-25T12:00:00Z"},
            "---\na: 1\nt: 2026-11-25T12:00:00Z\n---\n",
        ),
        ("---\na: 1\n---\n", {"t": "2026-11-25"}, '---\na: 1\nt: "2026-11-25"\n---\n'),
        ("---\na: true\nb: 1\n---\n", {"a": True, "b": 1}, "---\na: true\nb: 1\n---\n"),
        ("---\na: true\n---\n", {"a": 1}, "---\na: 1\n---\n"),
        ("---\na: 1\n---\n", {"a": None}, ""),
        ("---\na: 1\n---\n---\nb: 2\n---\n", {"a": None}, "---\n---\n---\nb: 2\n---\n"),
        (
            "+++\na = 1\n[t]\na = 2\n+++\n",
            {"a": "x", "b": "y"},
            '+++\na = "x"\nb = "y"\n[t]\na = 2\n+++\n',
        ),
        ("+++\n[t]\na = 2\n+++\n", {"a": "x"}, '+++\na = "x"\n[t]\na = 2\n+++\n'),
    ],
)
def test_stamp_makes_minimal_edits(raw: str, changes: dict[str, object], after: str) -> None:
    assert stamp(raw.encode(), changes).decode() == after


@pytest.mark.parametrize(
    ("raw", "changes"),
    [
        ("---\nstatus: &s x\nother: *s\n---\n", {"status": "y"}),  # others point at it
        ("---\nstatus: &s x\nother: *s\n---\n", {"status": None}),
        # merged in: there is no line to remove
        ("---\nb: &b {status: x}\n<<: *b\n---\n", {"status": None}),
        ("---\ns: |\n  x\nstatus: y\n\n\nt: |+\n  a\n\nu: 1\n---\n", {"a b": "x"}),
        ("+++\n[status]\na = 1\n+++\n", {"status": "x"}),
        ("text", {"a: b": "x"}),
        ("text", {"a": float("nan")}),
        ("text", {"a": float("inf")}),
        ("text", {"a": 2**64}),
        ("text", {"a": "\ud800"}),
    ],
)
def test_unsafe_edits_are_refused(raw: str, changes: dict[str, object]) -> None:
    with pytest.raises(UnsafeEdit):
        stamp(raw.encode(), changes)


def test_removal_that_alters_kept_scalar_is_refused() -> None:
    raw = b"---\nkept: |+\n  a\nstatus: |\n  x\n\n---\n"
    with pytest.raises(UnsafeEdit, match="'status'"):
        stamp(raw, {"status": None})  # the empty line would become part of `kept`


def test_stamping_bare_note_requires_format() -> None:
    with pytest.raises(ValueError, match="format"):
        stamp(b"x", {"a": "b"}, kind_if_none=Frontmatter.NONE)


def test_digest_ignores_only_stamped_keys() -> None:
    raw = b"---\nstatus: x\ntitle: t\ntags:\n  - a\n---\nbody\n"
    assert (
        digest(raw, {"status"})
        == hashlib.sha256(b"---\ntitle: t\ntags:\n  - a\n---\nbody\n").hexdigest()
    )
    assert without_keys(raw, {"status", "tags"}) == b"---\ntitle: t\n---\nbody\n"
    assert without_keys(raw, {"status", "title", "tags"}) == b"body\n"
    assert digest(raw, {"status"}) != digest(raw.replace(b"title: t", b"title: u"), {"status"})
    assert digest(raw, {"status"}) != digest(raw.replace(b"body", b"bodY"), {"status"})
    hidden = b"---\nstatus: x\n# do more\ntitle: t\ntags:\n  - a\n---\nbody\n"
    assert digest(hidden, {"status"}) != digest(raw, {"status"}), (
        "a comment is not a part of a stamped key"
    )


def test_empty_block_stays_if_body_resembles_frontmatter() -> None:
    raw = b"---\nstatus: x\n---\n---\na: 1\n---\n"
    assert without_keys(raw, {"status"}) == b"---\n---\n---\na: 1\n---\n"
    assert digest(raw, {"status"}) != digest(b"---\na: 1\n---\n", {"status"})


@pytest.mark.parametrize(
    "raw",
    [
        b"---\nstatus: x\n---\n" + b"word " * 2_000_000,
        b"---\n\n" + b"rule\n" * 2_000_000,
        b"---\nstatus: x\n---\n" + b"\r\n---   x" * 1_000_000,
        "ä".encode() * 5_000_000,
    ],
    ids=["words", "rule", "fences", "umlauts"],
)
def test_ten_megabyte_note_is_read_within_one_second(raw: bytes) -> None:
    assert len(raw) > 9_000_000
    begun = time.process_time()
    assert not read_note(raw).problem
    read = time.process_time()
    digest(raw, {"status"})
    assert read - begun < 1
    assert time.process_time() - read < 1


@pytest.mark.parametrize(
    "note", [n for n in hand_made() if len(n.raw) > 500], ids=lambda note: note.name
)
def test_hostile_notes_are_read_within_one_second(note: CorpusNote) -> None:
    begun = time.process_time()
    read_note(note.raw)
    assert time.process_time() - begun < 1


def test_deep_nesting_never_hits_recursion_limit() -> None:
    before = sys.getrecursionlimit()
    assert "deeper" in read_note(b"+++\na = " + b"[" * 30_000 + b"\n+++\n").problem
    assert "deeper" in read_note(b"---\na: " + b"[" * 30_000 + b"\n---\n").problem
    assert sys.getrecursionlimit() == before


# -- the sweep: `PLACET_NOTES=DIR pytest -m sweep -s tests/note/test_frontmatter.py`


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_sweep_of_notes_changes_no_foreign_bytes() -> None:
    """Print the corpus's figure for the notes in $PLACET_NOTES, or for 10,000 generated ones."""
    if folder := os.environ.get("PLACET_NOTES"):
        paths = [path for path in Path(folder).rglob("*.md") if path.is_file()]
        notes = [CorpusNote(str(path), path.read_bytes()) for path in paths]
    else:
        notes = generated(10_000, seed=1)
    assert notes, "no notes there"
    figures = _figures(notes)
    kinds = Counter(str(split_note(note.raw).kind) for note in notes)
    why = Counter(re.sub(r"\d+|'[^']*'", "…", read_note(note.raw).problem) for note in notes)
    print(f"\n{figures}\n{dict(kinds)}")
    for problem, count in why.most_common():
        print(f"{count:7} {problem or 'no problem'}")
    assert figures["changed outside"] == 0
