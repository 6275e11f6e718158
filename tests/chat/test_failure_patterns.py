"""Test each failure pattern at its threshold, their order, and that each is reported once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placet.chat.guards import (
    RULES,
    CallRecord,
    CallSeen,
    Effect,
    Pattern,
    StepRecord,
    trend,
    trend_of,
)
from placet.chat.messages import StopReason


def seen(tool="read_file", *, ok=True, refused=False, result="", effect=Effect.READ):
    return CallSeen(CallRecord(tool, {}, effect), ok=ok, refused=refused, result_digest=result)


ERROR = seen(ok=False, result="e1")
OTHER_ERROR = seen("edit_file", ok=False, result="e2", effect=Effect.WRITE)
REFUSED = seen(ok=False, refused=True, result="r1")
OTHER_REFUSED = seen("run_command", ok=False, refused=True, result="r2", effect=Effect.EXECUTE)
SAME = seen(result="same")
EMPTY = seen(result="")
NEW = [seen(result=f"new{i}") for i in range(10)]
WRITTEN = seen("edit_file", result="same", effect=Effect.WRITE)
ROUND_ERRORS = [[seen(ok=False, result=f"e{i}")] for i in range(3)]
TALK: list[CallSeen] = []


def steps(*rounds, stop=StopReason.TOOL_USE):
    return [StepRecord(tuple(calls), stop if calls else StopReason.END_TURN) for calls in rounds]


def kind(found):
    return None if found is None else found.pattern


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([], None),
        (ROUND_ERRORS[:2], None),
        (ROUND_ERRORS, Pattern.REPEATED_TOOL_ERROR),
        ([[NEW[0]], *ROUND_ERRORS], Pattern.REPEATED_TOOL_ERROR),
        ([*ROUND_ERRORS, [NEW[0]]], None),
        ([[ERROR, ERROR], [ERROR], [seen(ok=False, result="e9")]], Pattern.REPEATED_TOOL_ERROR),
        ([[ERROR], [ERROR, NEW[0]], [ERROR]], None),
        ([[ERROR], [OTHER_ERROR], [ERROR]], None),
        ([[ERROR], TALK, [ERROR], [ERROR]], None),
        ([[REFUSED]] * 2, None),
        ([[REFUSED]] * 3, Pattern.TOOL_REJECTION_LOOP),
        ([[REFUSED], [OTHER_REFUSED, REFUSED], [OTHER_REFUSED]], Pattern.TOOL_REJECTION_LOOP),
        ([[REFUSED], [OTHER_REFUSED, NEW[0]], [OTHER_REFUSED]], None),
        ([[SAME]] * 2, None),
        ([[SAME]] * 3, Pattern.NO_PROGRESS),
        ([[SAME]] * 2 + [[NEW[0]]], None),
        ([[EMPTY]] * 3, Pattern.NO_PROGRESS),
        ([[EMPTY, SAME], [SAME], [EMPTY]], Pattern.NO_PROGRESS),
        ([[SAME, NEW[0]], [SAME], [SAME]], None),
        ([[WRITTEN]] * 3, None),
        ([[SAME]] * 2 + [[SAME, WRITTEN]], None),
        ([[ERROR], [OTHER_ERROR], [OTHER_ERROR]], None),
    ],
)
def test_pattern_is_detected_in_last_three_steps(rounds, expected):
    assert trend_of(steps(*rounds), 100)[0] == expected


def test_truncated_turn_counts_no_calls():
    assert trend_of(steps([SAME], [SAME], [SAME], stop=StopReason.MAX_TOKENS), 100) == (
        None,
        "",
    )


@pytest.mark.parametrize(("taken", "approaching"), [(7, False), (8, False), (9, True), (10, False)])
def test_step_limit_is_announced_one_step_early(taken, approaching):
    found, _ = trend_of(steps(*([call] for call in NEW[:taken])), 10)
    assert found == (Pattern.MAX_STEPS_APPROACHING if approaching else None)


@pytest.mark.parametrize(
    ("rounds", "first"),
    [
        ([[ERROR]] * 3, Pattern.REPEATED_TOOL_ERROR),  # identical results, and the limit, too
        ([[REFUSED]] * 3, Pattern.TOOL_REJECTION_LOOP),
        ([[SAME]] * 3, Pattern.NO_PROGRESS),
        ([[call] for call in NEW[:3]], Pattern.MAX_STEPS_APPROACHING),
    ],
)
def test_first_pattern_in_order_wins(rounds, first):
    assert trend_of(steps(*rounds), 4)[0] == first


@pytest.mark.parametrize(
    ("rounds", "tool"),
    [
        ([[ERROR]] * 3, "read_file"),
        ([[REFUSED]] * 3, "read_file"),
        ([[REFUSED], [OTHER_REFUSED], [REFUSED]], ""),
        ([[SAME]] * 3, "read_file"),
        ([[SAME], [EMPTY], [seen("search_files")]], ""),
    ],
)
def test_pattern_names_observation_advice_and_tool(rounds, tool):
    found = trend(steps(*rounds), 100)
    assert found is not None
    assert found.tool == tool
    assert "{" not in found.seen
    assert found.seen
    assert RULES[found.pattern].advice


def told(rounds, max_steps=100):
    records = steps(*rounds)
    return [kind(trend(records[:n], max_steps)) for n in range(1, len(records) + 1)]


def test_continuing_pattern_is_reported_once_per_occurrence():
    error = Pattern.REPEATED_TOOL_ERROR
    assert told([[ERROR]] * 6) == [None, None, error, None, None, None]
    assert told([*[[ERROR]] * 4, [NEW[0]], *[[ERROR]] * 3]) == [
        None,
        None,
        error,
        None,
        None,
        None,
        None,
        error,
    ]


def test_same_pattern_of_other_tool_is_reported():
    assert told([*[[ERROR]] * 3, *[[OTHER_ERROR]] * 3]) == [
        None,
        None,
        Pattern.REPEATED_TOOL_ERROR,
        None,
        None,
        Pattern.REPEATED_TOOL_ERROR,
    ]


def test_rejection_loop_is_reported_once():
    assert told([[REFUSED], *[[OTHER_REFUSED]] * 4])[2:] == [
        Pattern.TOOL_REJECTION_LOOP,
        None,
        None,
    ]


def test_one_pattern_may_follow_another():
    assert told([*[[REFUSED]] * 3, [NEW[0]]], 5)[2:] == [
        Pattern.TOOL_REJECTION_LOOP,
        Pattern.MAX_STEPS_APPROACHING,
    ]


@settings(max_examples=100)
@given(
    st.lists(
        st.lists(
            st.sampled_from(
                [ERROR, OTHER_ERROR, REFUSED, OTHER_REFUSED, SAME, EMPTY, WRITTEN, *NEW[:2]]
            ),
            max_size=2,
        ),
        max_size=12,
    ),
    st.integers(2, 14),
)
def test_pattern_depends_on_last_three_steps_and_count(rounds, max_steps):
    records = steps(*rounds)
    found, _ = trend_of(records, max_steps)
    padded = [*steps(*[[NEW[9]]] * 5), *records]
    if len(records) >= 3:
        assert trend_of(padded, max_steps + 5)[0] == found
    if found not in (None, Pattern.MAX_STEPS_APPROACHING):
        assert len(records) >= 3
        assert all(record.calls for record in records[-3:])
