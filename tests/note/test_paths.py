"""Test slugs, trace ids, temporary files, conflict copies and escaping."""

from __future__ import annotations

import datetime as dt
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placet.note import paths

SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# Surrogates too: that is how bytes that are no UTF-8 come.
anything = st.text(st.characters(exclude_categories=()), max_size=80)


@pytest.mark.parametrize(
    ("file_name", "slug"),
    [
        ("Fix login bug.md", "fix-login-bug"),
        ("Grüße an Zoë.md", "grusse-an-zoe"),
        ("Łódź, Ærø & smørrebrød.md", "lodz-aero-smorrebrod"),
        ("İstanbul ısı.md", "istanbul-isi"),  # noqa: RUF001 - Turkish on purpose
        ("v2.0: ①½.md", "v2-0-11-2"),
        ("2026.md", "2026"),
        ("CON.md", "con"),
        ("notes..md", "notes"),
        ("no suffix", "no-suffix"),
        ("UPPER.MD", "upper"),
        ("x" * 60 + ".md", "x" * 48),
        ("a" * 47 + " b.md", "a" * 47),
        ("-- a --  b --.md", "a-b"),
        ("a\nb\x1b[31m.md", "a-b-31m"),
        ("../../etc/passwd.md", "etc-passwd"),
        ("--upload-pack=x;rm -rf $HOME.md", "upload-pack-x-rm-rf-home"),
    ],
)
def test_request_id_is_the_slug_of_the_name(file_name, slug):
    assert paths.request_id(file_name) == slug


def test_non_ascii_name_gets_stable_unique_id():
    one, other = paths.request_id("修复登录.md"), paths.request_id("修复登出.md")
    assert re.fullmatch(r"request-[0-9a-f]{8}", one)
    assert one != other
    assert one == paths.request_id("修复登录.md")


def test_taken_id_gets_numeric_suffix_within_limit():
    assert paths.request_id("a.md", {"a"}.__contains__) == "a-2"
    assert paths.request_id("a.md", {"a", "a-2", "a-3"}.__contains__) == "a-4"
    long = "x" * 48
    assert paths.request_id(f"{long}.md", {long}.__contains__) == "x" * 46 + "-2"


@given(st.lists(anything, max_size=12))
def test_ids_are_valid_unique_and_deterministic(file_names):
    taken: list[str] = []
    for name in file_names:
        slug = paths.request_id(name, taken.__contains__)
        assert SLUG.fullmatch(slug)
        assert 1 <= len(slug) <= paths.MAX_ID
        assert slug not in taken
        assert slug == paths.request_id(name, frozenset(taken).__contains__)
        taken.append(slug)


@given(anything, anything, st.integers(0, 3))
def test_trace_id_depends_deterministically_on_every_part(name, digest, ordinal):
    trace = paths.trace_id(name, digest, ordinal)
    assert str(uuid.UUID(trace)) == trace == paths.trace_id(name, digest, ordinal)
    assert (
        len(
            {
                trace,
                paths.trace_id(f"{name}x", digest, ordinal),
                paths.trace_id(name, f"{digest}x", ordinal),
                paths.trace_id(name, digest, ordinal + 1),
            }
        )
        == 4
    )


def test_a_trace_id_never_changes_between_versions():
    assert paths.trace_id("Fix login bug.md", "0" * 64, 1) == "cfaa921f-e89d-5f07-abb3-50815673ff8e"


@pytest.mark.parametrize(
    "name",
    [
        ".hidden.md",
        ".",
        ".#lock.md",
        ".~x.md",
        "x.md~",
        "#x.md#",
        "4913",
        "x.swp",
        ".x.md.swp",
        "x.md.tmp",
        "X.TMP",
        ".syncthing.x.md.tmp",
        "~syncthing~x.md.tmp",
        ".x.md.icloud",
        "x.md.icloud",
        "x.part",
        "x.crdownload",
        "~$x.md",
        ".placet-tmp-12",
        ".DS_Store",
        ".obsidian",
    ],
)
def test_temporary_names_are_recognized(name):
    assert paths.is_temporary(name)


@pytest.mark.parametrize(
    "name",
    [
        "x.md",
        "4913.md",
        "a~b.md",
        "#1 bug.md",
        "#hashtag.md",
        "swp.md",
        "part 1.md",
        "a.tmp.md",
        "x",
        "tmp",
    ],
)
def test_ordinary_names_are_not_temporary(name):
    assert not paths.is_temporary(name)


@pytest.mark.parametrize(
    "name",
    [
        "Plan (Conflicted copy Pixel 8 202601021530).md",  # Obsidian Sync
        "Plan (conflicted copy 2026-01-02 153000).md",  # Nextcloud, ownCloud
        "Plan (Jane's conflicted copy 2026-01-02).md",  # Dropbox, then translated
        "Plan (Jane (work)'s conflicted copy 2026-01-02).md",
        "Plan (Jane's conflicted copy 2026-01-02) (1).md",
        "Plan (Jane's conflicted copy 2026-01-02 (1)).md",
        "Plan (In Konflikt stehende Kopie von Jane 2026-01-02).md",
        "Plan (Konfliktkopie von Jane).md",
        "Plan (Copie en conflit de Jane 2026-01-02).md",
        "Plan (copia en conflicto de Jane 2026-01-02).md",
        "Plan (Copia in conflitto di Jane 2026-01-02).md",
        "Plan (Cópia em conflito de Jane).md",
        "Plan (конфликтующая копия Jane 2026-01-02).md",
        "Plan (Jane の競合コピー 2026-01-02).md",
        "Plan (Jane 的冲突副本 2026-01-02).md",
        "Plan.sync-conflict-20260102-153000-ABCDEFG.md",  # Syncthing
        "Plan.sync-conflict-20260102-153000.md",
        "Plan.sync-conflict-20260102-153000-ABCDEFG.sync-conflict-20260103-153000-ABCDEFG.md",
        "Plan (SFConflict jane@example.org 2026-01-02-15-30-00).md",  # Seafile
        "Plan.Conflict.md",  # Resilio
        "Plan_conflict-20260102-153000.md",
        "Plan_LAPTOP_Jan-02-153000-2026_Conflict.md",  # Synology
        "Plan_LAPTOP_Jan-02-2026_CaseConflict.md",
        "Plan [conflicted].md",  # pCloud
        "Plan (Conflicted copy Mac 202601021530).sync-conflict-20260102-153000-ABCDEFG.md",
    ],
)
def test_conflict_copies_name_their_original(name):
    assert paths.conflict_of(name) == "Plan.md"


@pytest.mark.parametrize(
    "name",
    [
        "Plan.md",
        "Plan 2.md",
        "Plan (1).md",
        "Fix it (merge conflict).md",
        "Resolve conflicts.md",
        "conflict.md",
        "Copy (draft).md",
        "sync-conflict.md",
        "Plan (2026-01-02).md",
        "(conflicted copy 2026-01-02).md",
        "Plan (conflicted copy.md",
        "Plan).md",
        ".md",
        "",
    ],
)
def test_ordinary_names_are_not_conflict_copies(name):
    assert paths.conflict_of(name) is None


@given(anything)
def test_classifying_names_never_raises(name):
    paths.is_temporary(name)
    original = paths.conflict_of(name)
    assert original is None or 0 < len(original) < len(name)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a b.md", "a b.md"),
        ("é日本.md", "é日本.md"),
        ("a\nb", "a\\nb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("x\u202egnp.md", "x\\u202egnp.md"),
        ("z\u200bw", "z\\u200bw"),
        ("\udcff.md", "\\xff.md"),
        ("a\\nb", "a\\\\nb"),
        ("\u2028", "\\u2028"),
        ("\x85", "\\x85"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_show_escapes_misleading_characters(name, shown):
    assert paths.show(name) == shown


@given(anything, anything)
def test_shown_names_are_printable_and_distinct(one, other):
    shown = paths.show(one)
    assert all(c == " " or c.isprintable() or c.isspace() for c in shown)
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")
    assert (one == other) == (shown == paths.show(other))


def test_placet_file_names_follow_their_pattern():
    assert paths.plan_name("fix-it") == "fix-it_plan.md"
    assert paths.active_name("fix-it") == "fix-it.md"
    assert paths.rejected_name("fix-it") == "fix-it_rejected.md"
    day = dt.date(2026, 1, 2)
    assert (
        paths.report_name(day, "550e8400", "fix-it", failed=False)
        == "2026-01-02_550e8400_fix-it.md"
    )
    assert (
        paths.report_name(day, "550e8400", "fix", failed=True)
        == "2026-01-02_550e8400_fix_failure.md"
    )


@given(
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=300
    )
)
def test_side_note_names_are_recognized_and_short(name):
    side = paths.side_note_name(name)
    assert paths.is_side_note(side)
    assert paths.is_note(side)
    assert len(side.encode()) <= paths.MAX_NAME_BYTES


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0."), max_size=300),
    st.sampled_from(["", "-2", "-9b20b19d", "-9b20b19d-999", " (conflicted copy 0a1b2c3d)"]),
)
def test_suffixed_names_fit_file_system_limit(stem, suffix):
    path = paths.with_suffix(f"Inbox/Archive/{stem}.md", suffix)
    name = path.removeprefix("Inbox/Archive/")
    assert len(name.encode()) <= paths.MAX_NAME_BYTES
    assert name.endswith(f"{suffix}.md")
    assert name == f"{stem}{suffix}.md" or len(f"{stem}{suffix}.md".encode()) > len(name.encode())


def test_truncated_names_stay_distinct():
    one, other = (paths.with_suffix("é" * 126 + end, "-2") for end in ("a.md", "b.md"))
    assert one != other


def test_side_note_is_named_after_its_note():
    assert paths.side_note_name("Fix it.md") == "Fix it.placet.md"
    assert not paths.is_side_note("placet.md")
    assert not paths.is_side_note("Fix it.md")
