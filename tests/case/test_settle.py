"""Test when a file counts as settled or gone, as a pure function of scans."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from placet.case.settle import SETTLE_S, FileHistory, Fingerprint, look

A, B = (Fingerprint(1, 2, 3, 4, 5), Fingerprint(1, 9, 3, 4, 5))


def test_two_equal_looks_settle_file():
    first = look(FileHistory(), {"x": A}, 10.0)
    assert not first.settled
    assert first.again_in_s == SETTLE_S
    early = look(first.looks, {"x": A}, 10.0 + SETTLE_S / 2)
    assert not early.settled
    assert early.again_in_s == SETTLE_S / 2
    late = look(early.looks, {"x": A}, 10.0 + SETTLE_S)
    assert late.settled == {"x"}
    assert late.again_in_s is None


def test_a_settled_file_stays_settled():
    settled = look(look(FileHistory(), {"x": A}, 0.0).looks, {"x": A}, 1.0)
    again = look(settled.looks, {"x": A}, 1.01)
    assert again.settled == {"x"}
    assert again.again_in_s is None


def test_every_change_starts_the_wait_again():
    looks = look(look(FileHistory(), {"x": A}, 0.0).looks, {"x": A}, 1.0).looks
    changed = look(looks, {"x": B}, 1.1)
    assert not changed.settled
    back = look(changed.looks, {"x": A}, 1.4)
    assert not back.settled
    assert look(back.looks, {"x": A}, 1.7).settled == {"x"}


def test_every_part_of_the_fingerprint_counts():
    looks = look(look(FileHistory(), {"x": A}, 0.0).looks, {"x": A}, 1.0).looks
    for part in Fingerprint._fields:
        assert not look(looks, {"x": A._replace(**{part: 77})}, 2.0).settled, part


def test_a_deletion_must_outlive_the_settling_time():
    there = look(FileHistory(), {"x": A}, 0.0)
    missed = look(there.looks, {}, 1.0)
    assert not missed.gone
    assert missed.again_in_s == SETTLE_S
    assert look(missed.looks, {}, 1.1).gone == frozenset()
    assert look(missed.looks, {}, 1.0 + SETTLE_S).gone == {"x"}


def test_polled_atomic_save_is_not_deletion():
    there = look(FileHistory(), {"x": A}, 0.0)
    between = look(there.looks, {}, 1.0)
    after = look(between.looks, {"x": B}, 1.3)
    assert not after.gone
    assert after.looks.missing == {}
    assert look(after.looks, {"x": B}, 1.6).settled == {"x"}


def test_expected_file_deleted_between_looks_stays_gone():
    first = look(FileHistory(), {}, 0.0, expected={"x"})
    assert not first.gone
    second = look(first.looks, {}, 0.3, expected={"x"})
    assert second.gone == {"x"}
    assert look(second.looks, {}, 0.31, expected={"x"}).gone == {"x"}


def test_unexpected_missing_file_is_forgotten():
    there = look(FileHistory(), {"x": A}, 0.0)
    gone = look(look(there.looks, {}, 1.0).looks, {}, 2.0)
    assert gone.gone == {"x"}
    assert gone.looks == FileHistory()


def test_unlistable_folder_deletes_nothing():
    there = look(FileHistory(), {"a/x": A, "ab/y": A}, 0.0)
    blind = look(there.looks, {}, 1.0, unlisted={"a"}, expected={"a/x", "a/z"})
    assert blind.settled == frozenset()
    later = look(blind.looks, {}, 2.0, unlisted={"a"}, expected={"a/x", "a/z"})
    assert later.gone == {"ab/y"}
    assert look(later.looks, {"a/x": A}, 3.0).settled == {"a/x"}


Steps = st.lists(
    st.tuples(
        st.floats(0.01, 0.4),
        st.dictionaries(st.sampled_from("xyz"), st.sampled_from([A, B])),
    ),
    max_size=12,
)


@given(Steps)
def test_files_settle_or_disappear_never_early_always_eventually(steps):
    looks, now, since, missing = FileHistory(), 0.0, {}, {}
    present: dict[str, Fingerprint] = {}
    for gap, there in steps:
        now += gap
        verdict = look(looks, there, now)
        for path in "xyz":
            if path in there:
                if present.get(path) != there[path]:
                    since[path] = (now, False)
                began, was_settled = since[path]
                settled = was_settled or now - began >= SETTLE_S
                assert (path in verdict.settled) == settled
                since[path] = (began, settled)
                missing.pop(path, None)
            elif path in verdict.gone:
                assert now - missing[path] >= SETTLE_S
                del missing[path]
            elif path in present:
                missing[path] = now
        assert verdict.settled <= there.keys()
        assert not verdict.gone & there.keys()
        looks, present = verdict.looks, there
    first = look(looks, present, now + 1)
    last = look(first.looks, present, now + 2)
    assert last.settled == present.keys()
    assert last.again_in_s is None
    assert last.looks.missing == {}
