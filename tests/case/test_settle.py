"""Test when a file counts as settled or gone, as a pure function of scans."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placet.case.settle import (
    MISSING_S,
    OPEN_POLL_S,
    UNKNOWN_S,
    WRITTEN_S,
    FileHistory,
    Fingerprint,
    Seen,
    SettleVerdict,
    Writers,
    look,
)

A, B = (Fingerprint(1, 2, 3, 4, 4), Fingerprint(1, 9, 3, 4, 4))
MOVED = A._replace(ctime_ns=5)


def seen(
    earlier: FileHistory,
    present: Mapping[str, Fingerprint],
    now_s: float,
    who: Writers = Writers.NONE,
    **more: object,
) -> SettleVerdict:
    """A look at which the kernel gives one answer about every file that it is asked about."""
    answers = dict.fromkeys(earlier.to_ask(present, now_s), who)
    return look(earlier, present, now_s, answers=answers, **more)


@pytest.mark.parametrize(
    ("who", "wait_s"), [(Writers.NONE, WRITTEN_S), (Writers.UNKNOWN, UNKNOWN_S)]
)
def test_unchanged_file_settles(who: Writers, wait_s: float) -> None:
    first = seen(FileHistory(), {"x": A}, 10.0, who)
    assert not first.settled
    assert first.again_in_s == wait_s
    early = seen(first.looks, {"x": A}, 10.0 + wait_s / 2, who)
    assert not early.settled
    assert early.again_in_s == wait_s / 2
    late = seen(early.looks, {"x": A}, 10.0 + wait_s, who)
    assert late.settled == {"x"}
    assert late.again_in_s is None


def test_open_file_never_settles() -> None:
    looks = seen(FileHistory(), {"x": A}, 0.0).looks
    for now_s in (WRITTEN_S, UNKNOWN_S, 100.0):
        held = seen(looks, {"x": A}, now_s, Writers.SOME)
        assert not held.settled
        assert held.again_in_s == OPEN_POLL_S
        looks = held.looks
    assert seen(looks, {"x": A}, 100.5).settled == {"x"}, "it has not changed since"


@pytest.mark.parametrize("who", [Writers.NONE, Writers.UNKNOWN])
def test_moved_note_counts_at_once(who: Writers) -> None:
    looks = seen(seen(FileHistory(), {"x": A}, 0.0).looks, {"x": A}, WRITTEN_S).looks
    moved = seen(looks, {"y": MOVED}, 3.0, who)
    assert moved.settled == {"y"}
    between = seen(looks, {}, 3.0, who)  # a scan can miss both names
    assert seen(between.looks, {"y": MOVED}, 3.1, who).settled == {"y"}
    assert not seen(looks, {"y": MOVED}, 3.0, Writers.SOME).settled


@pytest.mark.parametrize("who", [Writers.NONE, Writers.UNKNOWN])
def test_half_written_note_stays_unsettled_when_moved(who: Writers) -> None:
    looks = seen(FileHistory(), {"x": A}, 0.0).looks
    assert not seen(looks, {"y": MOVED}, 0.1, who).settled
    between = seen(looks, {}, 0.1, who)
    assert not seen(between.looks, {"y": MOVED}, 0.2, who).settled


def test_complete_file_counts_if_kernel_confirms() -> None:
    assert seen(FileHistory(), {"x": MOVED}, 0.0).settled == {"x"}
    unknown = seen(FileHistory(), {"x": MOVED}, 0.0, Writers.UNKNOWN)
    assert unknown.again_in_s == UNKNOWN_S
    held = seen(FileHistory(), {"x": MOVED}, 0.0, Writers.SOME)
    assert seen(held.looks, {"x": MOVED}, 0.1).settled == {"x"}, "its writer closed it"


def test_save_by_rename_waits_like_any_edit() -> None:
    looks = seen(seen(FileHistory(), {"x": A}, 0.0).looks, {"x": A}, WRITTEN_S).looks
    assert not seen(looks, {"x": B._replace(ctime_ns=9)}, 3.0).settled


def test_own_file_counts_at_once() -> None:
    own = {A.content}
    assert seen(FileHistory(), {"x": A}, 0.0, Writers.UNKNOWN, own=own).settled == {"x"}
    later = seen(FileHistory(), {}, 0.0, own=own)
    assert seen(later.looks, {"x": A}, 1.0, Writers.UNKNOWN).settled == {"x"}


def test_old_file_counts_at_start() -> None:
    old = seen(FileHistory(), {"x": A}, 0.0, Writers.UNKNOWN, wall_s=100.0)
    assert old.settled == {"x"}
    young = seen(FileHistory(), {"x": A}, 0.0, Writers.UNKNOWN, wall_s=1.0)
    assert young.again_in_s == pytest.approx(UNKNOWN_S - 1.0)


def test_a_settled_file_stays_settled():
    settled = seen(seen(FileHistory(), {"x": A}, 0.0).looks, {"x": A}, WRITTEN_S)
    again = seen(settled.looks, {"x": A}, 2.01)
    assert again.settled == {"x"}
    assert again.again_in_s is None


def test_look_copies_no_settled_file(monkeypatch: pytest.MonkeyPatch) -> None:
    settled = seen(seen(FileHistory(), {"x": A}, 0.0).looks, {"x": A}, WRITTEN_S)
    assert settled.settled
    copied: list[Seen] = []
    replace = Seen._replace
    monkeypatch.setattr(
        Seen, "_replace", lambda one, **new: copied.append(one) or replace(one, **new)
    )
    again = seen(settled.looks, {"x": A}, 9.0)
    assert again.looks == settled.looks
    assert copied == []


def test_every_change_starts_the_wait_again():
    looks = seen(seen(FileHistory(), {"x": A}, 0.0).looks, {"x": A}, 2.0).looks
    changed = seen(looks, {"x": B}, 2.1)
    assert not changed.settled
    back = seen(changed.looks, {"x": A}, 4.0)
    assert not back.settled
    assert seen(back.looks, {"x": A}, 6.0).settled == {"x"}


def test_every_part_of_the_fingerprint_counts():
    looks = seen(seen(FileHistory(), {"x": A}, 0.0).looks, {"x": A}, 2.0).looks
    for part in Fingerprint._fields:
        assert not seen(looks, {"x": A._replace(**{part: 77})}, 3.0).settled, part


def test_a_deletion_must_outlive_the_settling_time():
    there = seen(FileHistory(), {"x": A}, 0.0)
    missed = seen(there.looks, {}, 1.0)
    assert not missed.gone
    assert missed.again_in_s == MISSING_S
    assert seen(missed.looks, {}, 1.1).gone == frozenset()
    assert seen(missed.looks, {}, 1.0 + MISSING_S).gone == {"x"}


def test_polled_atomic_save_is_not_deletion():
    there = seen(FileHistory(), {"x": A}, 0.0)
    between = seen(there.looks, {}, 1.0)
    after = seen(between.looks, {"x": B}, 1.3)
    assert not after.gone
    assert after.looks.missing == {}
    assert seen(after.looks, {"x": B}, 3.3).settled == {"x"}


def test_expected_file_deleted_between_looks_stays_gone():
    first = seen(FileHistory(), {}, 0.0, expected={"x"})
    assert not first.gone
    second = seen(first.looks, {}, 5.0, expected={"x"})
    assert second.gone == {"x"}
    assert seen(second.looks, {}, 5.1, expected={"x"}).gone == {"x"}


def test_unexpected_missing_file_is_forgotten():
    there = seen(FileHistory(), {"x": A}, 0.0)
    gone = seen(seen(there.looks, {}, 1.0).looks, {}, 6.0)
    assert gone.gone == {"x"}
    assert gone.looks == FileHistory()


def test_unlistable_folder_deletes_nothing():
    there = seen(FileHistory(), {"a/x": A, "ab/y": A}, 0.0)
    blind = seen(there.looks, {}, 1.0, unlisted={"a"}, expected={"a/x", "a/z"})
    assert blind.settled == frozenset()
    later = seen(blind.looks, {}, 6.0, unlisted={"a"}, expected={"a/x", "a/z"})
    assert later.gone == {"ab/y"}
    assert seen(later.looks, {"a/x": A}, 7.0).settled == {"a/x"}


Steps = st.lists(
    st.tuples(
        st.integers(1, 48).map(lambda sixteenths: sixteenths / 16),  # sums are exact
        st.dictionaries(st.sampled_from("xyz"), st.sampled_from([A, B])),
    ),
    max_size=12,
)


@given(Steps)
def test_files_settle_or_disappear_never_early_always_eventually(steps):
    looks, now, since, missing, last = FileHistory(), 0.0, {}, {}, {}
    present: dict[str, Fingerprint] = {}
    for gap, found in steps:
        there = {path: one._replace(dev=ord(path)) for path, one in found.items()}
        now += gap
        verdict = seen(looks, there, now)
        for path in "xyz":
            if path in there:
                if present.get(path) != there[path]:
                    # a file that is back unchanged is known
                    back = path in missing and last.get(path) == there[path]
                    since[path] = (now, back and since[path][1])
                began, was_settled = since[path]
                settled = was_settled or now - began >= WRITTEN_S
                assert (path in verdict.settled) == settled
                since[path], last[path] = (began, settled), there[path]
                missing.pop(path, None)
            elif path in verdict.gone:
                assert now - missing[path] >= MISSING_S
                del missing[path]
            elif path in present:
                missing[path] = now
        assert verdict.settled <= there.keys()
        assert not verdict.gone & there.keys()
        looks, present = verdict.looks, there
    first = seen(looks, present, now + 6)
    last = seen(first.looks, present, now + 12)
    assert last.settled == present.keys()
    assert last.again_in_s is None
    assert last.looks.missing == {}
