"""Test guards at their thresholds, the sliding window against a simple model, and compaction."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placet.chat.budget import Amount, Complexity, Ledger, Limits, prompt_at_most, prompt_likely
from placet.chat.compaction import (
    WORTH_STUBBING,
    Compaction,
    compacted,
    make_room,
)
from placet.chat.guards import (
    REPEATED,
    RULES,
    CallRecord,
    CallSeen,
    Effect,
    GuardSettings,
    Halt,
    History,
    Nudge,
    Pattern,
    StepRecord,
    canonical,
    check,
    check_call,
    iteration_cap,
    trend,
    trend_of,
)
from placet.chat.messages import Ask, Purpose, StopReason, Turn, Usage, text_block, user_turn
from placet.chat.sizes import sizes
from placet.errors import End, ToolError
from placet.host.config import GuardsTable

SETTINGS = GuardSettings(1000)
Fine = type(None)
"""The verdict of a guard that has nothing to say."""


def read(path, **more):
    return CallRecord("read_file", {"path": path, **more}, Effect.READ, path, path)


def write(path, content=""):
    return CallRecord("write_file", {"path": path, "content": content}, Effect.WRITE, path, path)


def run(command):
    return CallRecord("run_command", {"command": command}, Effect.EXECUTE, "", command)


def control(name, **arguments):
    return CallRecord(name, arguments, Effect.CONTROL)


def ok(call):
    return CallSeen(call, ok=True, result_digest="d")


def failed(call):
    return CallSeen(call, ok=False, result_digest="e")


def step(history, *calls, stop=None):
    for call in calls:
        history = history.with_call(call if isinstance(call, CallSeen) else ok(call))
    return history.with_step(stop or (StopReason.TOOL_USE if calls else StopReason.END_TURN))


def distinct(number):
    return [read(f"f{i}") for i in range(number)]


def play(steps, guards=SETTINGS):
    """Return the verdict before each turn after the first, as the loop would get them, up to a
    halt.
    """
    history, verdicts = History(), []
    for calls, stop in steps:
        history = step(history, *calls, stop=stop)
        verdict = check(history, guards, ())
        verdicts.append(verdict)
        if isinstance(verdict, Nudge):
            history = history.with_nudge(verdict)
        if isinstance(verdict, Halt):
            break
    return verdicts


def kinds(verdicts):
    return [type(v) for v in verdicts]


# --- the same call


def test_canonical_call_ignores_argument_order():
    assert (
        canonical("edit", {"b": [1, {"z": "ä", "y": None}], "a": "|"})
        == 'edit|{"a":"|","b":[1,{"y":null,"z":"ä"}]}'
    )
    assert canonical("edit", {"a": 1}) != canonical("edit", {"a": "1"})


# --- caps


@pytest.mark.parametrize(
    ("complexity", "asked", "steps", "ceiling", "cap"),
    [
        (Complexity.TRIVIAL, None, 0, 100, 5),
        (Complexity.STANDARD, None, 5, 100, 10),
        (Complexity.STANDARD, None, 6, 100, 11),
        (Complexity.COMPLEX, None, 2, 100, 20),
        (Complexity.TRIVIAL, 3, 9, 100, 3),
        (Complexity.TRIVIAL, 50, 1, 100, 50),
        (Complexity.TRIVIAL, 101, 1, 100, 100),
        (Complexity.COMPLEX, None, 40, 15, 15),
    ],
)
def test_complexity_and_scope_set_iteration_cap(complexity, asked, steps, ceiling, cap):
    assert iteration_cap(complexity, asked, steps, ceiling) == cap


@pytest.mark.parametrize("cap", [1, 5, 10])
def test_turn_after_cap_halts_mission(cap):
    guards = GuardSettings(cap)
    history = History()
    for call in distinct(cap):
        assert check(history, guards, ()) is None
        history = step(history, call)
    verdict = check(history, guards, ())
    assert isinstance(verdict, Halt)
    assert (verdict.stop.end, verdict.stop.error_type) == (End.ITERATION_CAP, "iteration_cap")
    assert str(cap) in verdict.stop.detail


@pytest.mark.parametrize(("made", "allowed"), [(2, True), (3, False), (4, False)])
def test_capped_tool_calls_still_allow_finish(made, allowed):
    ledger = Ledger("the mission", Limits(tool_calls=3), Amount(tool_calls=made))
    verdict = check_call(History(), SETTINGS, read("a"), [ledger])
    assert (verdict is None) == allowed
    if isinstance(verdict, Halt):
        assert verdict.stop.end is End.TOOL_CALL_CAP
    assert check(History(), SETTINGS, [ledger]) is None
    assert check_call(History(), SETTINGS, control("finish", summary="done"), [ledger]) is None


def test_ledgers_are_checked_before_patterns():
    spent = Ledger("today", Limits(tokens=10), Amount(tokens=10))
    history = step(History(), stop=StopReason.REFUSAL)
    verdict = check(history, SETTINGS, [Ledger("the mission", Limits()), spent])
    assert isinstance(verdict, Halt)
    assert verdict.stop.end is End.BUDGET
    assert "today" in verdict.stop.detail


# --- repetition


@pytest.mark.parametrize(
    ("call", "between", "repeats"),
    [
        (read("a"), ok(write("a")), False),
        (read("a"), ok(write("./a")), False),
        (read("a"), failed(write("a")), True),
        (read("a"), ok(write("b")), True),
        (read("a"), ok(read("b")), True),
        (read("a"), ok(run("make")), False),
        (read("a"), CallSeen(run("make"), ok=False, refused=True), True),
        (read("a"), ok(control("complete_step", step=1)), True),
        (read("src"), ok(write("src/a")), False),
        (read("src"), ok(write("srcs/a")), True),
        (read("."), ok(write(".github/a")), False),
        (run("test"), ok(write("a")), False),
        (run("test"), ok(run("format")), False),
        (run("test"), ok(read("a")), True),
        (write("a", "x"), ok(write("a", "y")), True),
    ],
)
def test_rereading_changed_file_is_no_repetition(call, between, repeats):
    history = step(step(step(History(), call), call), between)
    assert isinstance(check_call(history, SETTINGS, call, ()), ToolError) == repeats


def test_second_repetition_ends_mission():
    call = read("a")
    history = step(step(History(), call, read("b")), call).with_call(ok(read("c")))
    first = check_call(history, SETTINGS, call, ())
    assert isinstance(first, ToolError)
    assert first.refused
    assert first.error_type == REPEATED
    answered = history.with_call(CallSeen(call, ok=False, refused=True, repeated=True))
    # The model has not been told yet: another one in the same turn is answered too.
    assert isinstance(check_call(answered, SETTINGS, call, ()), ToolError)
    history = answered.with_step(StopReason.TOOL_USE)
    nudge = check(history, SETTINGS, ())
    assert isinstance(nudge, Nudge)
    assert nudge.patterns == (Pattern.REPETITION,)
    assert "read_file a" in nudge.text
    history = step(history.with_nudge(nudge), read("d"))
    assert check(history, SETTINGS, ()) is None
    halted = check_call(history, SETTINGS, call, ())
    assert isinstance(halted, Halt)
    assert (halted.stop.end, halted.stop.error_type) == (End.REPETITION, "repetition")
    assert str(call) in halted.stop.detail


_calls = st.sampled_from(
    [
        read("a"),
        read("b"),
        write("a"),
        write("b"),
        run("x"),
        run("y"),
        control("complete_step", step=1),
    ]
)


def _plain(done, call, window, repeats):
    """The rule written down plainly: count equal calls among the last ones, from the last change
    on.
    """
    recent = done[-(window - 1) :]
    changes = [
        i
        for i, seen in enumerate(recent)
        if seen.key != call.key
        and (
            (seen.effect is Effect.WRITE and call.path in ("", seen.path))
            or seen.effect is Effect.EXECUTE
        )
    ]
    if call.effect in (Effect.READ, Effect.EXECUTE) and changes:
        recent = recent[changes[-1] + 1 :]
    return [seen.key for seen in recent].count(call.key) + 1 >= repeats


@settings(max_examples=150)
@given(
    st.lists(_calls, max_size=25),
    st.lists(st.integers(0, 25), max_size=6),
    st.integers(2, 4),
    st.integers(0, 8),
)
def test_repetition_window_slides_over_turns_and_calls(calls, borders, repeats, wider):
    guard = GuardSettings(1000, repeats=repeats, window=repeats + wider)
    history = History()
    for i, call in enumerate(calls):
        said = check_call(history, guard, call, ()) is not None
        assert said == _plain(calls[:i], call, guard.window, repeats)
        history = history.with_call(ok(call))
        if i in borders:
            history = history.with_step(StopReason.TOOL_USE)


# --- patterns: told at n, the end at n + 1


def talk(number):
    return [((), StopReason.END_TURN)] * number


def calls(*each):
    return [((call,), None) for call in each]


@pytest.mark.parametrize(
    ("pattern", "end", "before", "adds"),
    [
        (Pattern.TALK, End.TALK, talk(2), talk(1)[0]),
        (Pattern.STALL, End.STALL, calls(write("w"), *distinct(4)), ((read("more"),), None)),
        (
            Pattern.FAILING,
            End.TOOL_ERROR,
            [step for i in range(2) for step in calls(failed(write("a")), write(f"other{i}"))],
            ((failed(write("a")),), None),
        ),
        (
            Pattern.REFUSED,
            End.SCOPE,
            [
                step
                for i in range(2)
                for step in calls(CallSeen(write("a"), ok=False, refused=True), write(f"other{i}"))
            ],
            ((CallSeen(write("a"), ok=False, refused=True),), None),
        ),
        (
            Pattern.ALTERNATION,
            End.REPETITION,
            calls(write("a"), write("b"), write("a"), write("b"), write("a")),
            None,
        ),
        (Pattern.REFUSAL, End.REFUSAL, [], ((), StopReason.REFUSAL)),
        (Pattern.CONTEXT_FULL, End.CONTEXT_FULL, [], ((), StopReason.CONTEXT_FULL)),
        (Pattern.CUT_OFF, End.MODEL_ERROR, [], ((), StopReason.MAX_TOKENS)),
    ],
)
def test_pattern_nudges_once_then_halts(pattern, end, before, adds):
    following = [adds, adds] if adds is not None else calls(write("b"), write("a"))
    verdicts = play([*before, *following])
    assert all(v is None for v in verdicts[:-2])
    nudge, halt = verdicts[-2:]
    assert len(verdicts) == len(before) + 2
    assert isinstance(nudge, Nudge)
    assert nudge.patterns == (pattern,)
    assert nudge.text.startswith("Noticed: ")
    assert ("call `complete_step` if the step is done" in nudge.text) == (
        "{out}" in RULES[pattern].advice
    )
    (told,) = nudge.told  # people get nothing that is meant for the model
    assert "placet" in told
    assert "`give_up`" not in told
    assert "the work ends here" not in told
    assert isinstance(halt, Halt)
    assert halt.stop.end is end
    assert "despite a warning" in halt.stop.detail


def test_third_identical_round_halts_mission():
    same = ([read("a"), read("b")], None)
    verdicts = play([same, same, same])
    assert kinds(verdicts) == [Fine, Nudge, Halt]
    assert verdicts[1].patterns == (Pattern.LOOP,)
    assert verdicts[2].stop.end is End.REPETITION
    assert "3 iterations in a row" in verdicts[2].stop.detail


def test_rounds_match_only_with_identical_ordered_calls():
    a, b = read("a"), read("b")
    assert kinds(play([([a, b], None), ([b, a], None), ([a], None), ([a, b], None)])) == [Fine] * 4


def test_talk_between_rounds_does_not_hide_loop():
    verdicts = play(
        [([read("a")], None), *talk(1), ([read("a")], None), *talk(1), ([read("a")], None)]
    )
    assert kinds(verdicts) == [Fine, Fine, Nudge, Fine, Halt]


def test_earlier_loop_warning_does_not_halt_later():
    a, b, c = ([read(name)] for name in "abc")
    assert kinds(play([(a, None), (a, None), (b, None), (c, None), (c, None)])) == [
        Fine,
        Nudge,
        Fine,
        Fine,
        Fine,
    ]


def test_returning_pattern_halts_without_second_nudge():
    verdicts = play([*talk(3), *calls(read("a")), *talk(3)])
    assert kinds(verdicts) == [Fine, Fine, Nudge, Fine, Fine, Fine, Halt]


def test_checking_same_turn_twice_changes_nothing():
    history = History()
    for _ in range(3):
        history = step(history)
    nudge = check(history, SETTINGS, ())
    assert isinstance(nudge, Nudge)
    assert check(history, SETTINGS, ()) == nudge
    assert check(history.with_nudge(nudge), SETTINGS, ()) is None


def test_new_patterns_share_one_nudge():
    edits = [failed(write("a"))] * 3
    verdict = check(
        step(History(), ok(write("w")), *edits, CallSeen(read("b"), ok=False, repeated=True)),
        SETTINGS,
        (),
    )
    assert isinstance(verdict, Nudge)
    assert verdict.patterns == (Pattern.REPETITION, Pattern.FAILING)


@pytest.mark.parametrize(
    ("first", "writes"),
    [
        (read("never written"), True),
        (failed(write("a")), True),
        (control("complete_step", step=1), True),
        (write("a"), False),
    ],
)
def test_stall_counts_only_after_first_write(first, writes):
    assert kinds(play(calls(first, *distinct(9)), replace(SETTINGS, writes=writes))) == [Fine] * 10


def test_completed_step_or_successful_write_is_progress():
    going = calls(
        write("w"),
        *distinct(4),
        control("complete_step", step=1),
        *distinct(4),
        write("v"),
        *distinct(4),
    )
    assert set(kinds(play(going))) == {Fine}
    assert kinds(play(calls(write("w"), *distinct(4), failed(write("v")))))[-1] is Nudge


def test_success_in_between_prevents_failing_pattern():
    a = write("a")
    history = [failed(a), write("b"), failed(a), write("c"), ok(a), write("d"), failed(a)]
    assert set(kinds(play(calls(*history)))) == {Fine}


def test_guard_refusals_are_not_tool_failures():
    answered = CallSeen(read("a"), ok=False, refused=True, repeated=True)
    history = step(step(step(History(), failed(read("a"))), failed(read("a")), read("b")), answered)
    verdict = check(history, SETTINGS, ())
    assert isinstance(verdict, Nudge)
    assert Pattern.FAILING not in verdict.patterns


def test_distant_truncated_replies_do_not_halt():
    cut = ((), StopReason.MAX_TOKENS)
    assert kinds(play([cut, *calls(read("a")), cut, *calls(read("b"))])) == [
        Nudge,
        Fine,
        Fine,
        Fine,
    ]
    assert kinds(play([cut, *calls(read("a")), cut, cut])) == [Nudge, Fine, Fine, Halt]


def test_paused_reply_is_not_talk():
    assert set(kinds(play([((), StopReason.PAUSE_TURN)] * 6))) == {Fine}


def test_alternation_requires_exactly_two_calls():
    a, b, c = write("a"), write("b"), write("c")
    assert set(kinds(play(calls(a, b, a, c, a, b, a, c)))) == {Fine}
    assert check(step(History(), *[a] * 12), SETTINGS, ()) is None, (
        "one call does not alternate with itself"
    )


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.lists(
                st.builds(CallSeen, _calls, ok=st.booleans(), repeated=st.booleans()), max_size=3
            ),
            st.sampled_from(StopReason),
        ),
        max_size=25,
    )
)
def test_every_halting_pattern_was_nudged_exactly_once(steps):
    verdicts = play(steps)
    told = [pattern for v in verdicts if isinstance(v, Nudge) for pattern in v.patterns]
    assert len(told) == len(set(told))
    ends = {
        End.REPETITION: {Pattern.LOOP, Pattern.REPETITION, Pattern.ALTERNATION},
        End.TOOL_ERROR: {Pattern.FAILING},
        End.STALL: {Pattern.STALL},
        End.TALK: {Pattern.TALK},
        End.MODEL_ERROR: {Pattern.CUT_OFF},
        End.REFUSAL: {Pattern.REFUSAL},
        End.CONTEXT_FULL: {Pattern.CONTEXT_FULL},
    }
    for verdict in verdicts:
        if isinstance(verdict, Halt):
            assert ends[verdict.stop.end] & set(told)
    plain = [
        [v.stop.detail if isinstance(v, Halt) else v for v in each]
        for each in (verdicts, play(steps))
    ]
    assert plain[0] == plain[1]


@pytest.mark.parametrize(
    "table",
    [
        {"repeats": 1},
        {"repeats": 4, "window": 3},
        {"identical_rounds": 2},
        {"alternating_calls": 3},
        {"stall_turns": 0},
        {"talk_turns": 0},
        {"same_call_failing": 0},
    ],
)
def test_senseless_guard_settings_are_rejected(table):
    with pytest.raises(ValueError, match=next(iter(table))):
        GuardsTable(**table)


def KEPT(text):  # noqa: N802 - a constant answer
    return "@result/0123456789ab"


# --- compaction


def exchange(number, size, *, name="read_file"):
    use = {"type": "tool_use", "id": f"t{number}", "name": name, "input": {"path": f"f{number}.py"}}
    result = {
        "type": "tool_result",
        "tool_use_id": f"t{number}",
        "content": "x" * size,
        "is_error": False,
    }
    return [
        Turn("assistant", (text_block("y" * size), use)),
        user_turn([result, text_block("You have left: …")]),
    ]


def conversation(*sizes):
    turns = [user_turn([text_block("the plan " * 500)])]
    for number, size in enumerate(sizes):
        turns += exchange(number, size)
    return tuple(turns)


def chars(turns):
    return sum(
        len(json.dumps(block, ensure_ascii=False)) for turn in turns for block in turn.blocks
    )


@pytest.mark.parametrize(("spare", "compacts"), [(-1, True), (0, False), (1, False)])
def test_conversation_over_budget_is_compacted(spare, compacts):
    turns = conversation(5000, 5000, 5000)
    assert (compacted(turns, Compaction(2, chars(turns) + spare), KEPT) != turns) == compacts


def test_stub_names_tool_size_and_way_to_reread():
    turns = conversation(5000, 5000)
    after = compacted(turns, Compaction(2, 10_000), KEPT)
    stub = after[2].blocks[0]
    assert "\n" not in stub["content"]
    assert stub["content"].startswith("[5,000 characters left out")
    assert 'read_file {"path": "f0.py"}' in stub["content"]
    assert "read" in stub["content"].partition("to see the result again")[2]
    assert {k: v for k, v in stub.items() if k != "content"} == {
        "type": "tool_result",
        "tool_use_id": "t0",
        "is_error": False,
    }
    assert after[2].blocks[1] == text_block("You have left: …")
    assert turns[2].blocks[0]["content"] == "x" * 5000, "what was given is not changed"


def test_compaction_waits_until_it_frees_enough():
    turns = conversation(600, 5000)
    assert compacted(turns, Compaction(2, 10_000), KEPT) == turns
    assert compacted(turns, Compaction(2, 1_000), KEPT) != turns


@pytest.mark.parametrize("size", [WORTH_STUBBING - 1, WORTH_STUBBING])
def test_only_results_longer_than_a_stub_are_replaced(size):
    turns = conversation(size, *[2000] * 10, 10)
    after = compacted(turns, Compaction(2, 5_000), KEPT)
    assert (after[2] != turns[2]) == (size >= WORTH_STUBBING)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([10, 400, 700, 3000]), min_size=1, max_size=14),
    st.integers(1, 6),
    st.integers(3_000, 20_000),
)
def test_compaction_is_monotone_and_touches_only_old_results(sizes, keep_last, budget):
    whole = conversation(*sizes)
    sent, compactions, freed = whole[:1], 0, 0
    for end in range(3, len(whole) + 1, 2):
        before = (*sent, *whole[end - 2 : end])
        sent = compacted(before, Compaction(keep_last, budget), KEPT)
        assert compacted(sent, Compaction(keep_last, budget), KEPT) == sent
        assert len(sent) == end
        if sent != before:
            compactions += 1
            freed += chars(before) - chars(sent)
            assert chars(before) - chars(sent) >= budget / 4
        for i, turn in enumerate(sent):
            if i == 0 or turn.role == "assistant" or i >= end - keep_last:
                assert turn == whole[i]
            elif before[i] != whole[i]:
                assert turn == before[i], "what was replaced stays as it is"
    assert compactions * budget / 4 <= freed


@pytest.mark.parametrize(
    ("known", "max_tokens", "compacts"),
    [
        (8_999, 1_000, False),
        (9_000, 1_000, False),
        (9_001, 1_000, True),
        (5_000, 9_000, False),
        (5_001, 9_000, True),
    ],
)
def test_compaction_happens_before_context_is_full(known, max_tokens, compacts):
    turns = conversation(3000, 3000, 3000, 3000, 10)
    ask = Ask(Purpose.EXECUTE, "r", "t", (), (), turns, max_tokens)
    newest = prompt_likely(ask, Usage(1)) - 1
    room = sizes(10_000, max_tokens).prompt_tokens
    made = make_room(ask, Usage(known - newest), room, KEPT, full=False)
    assert (made is not None) == compacts
    assert made is None or compacted(turns, made, KEPT) != turns


def test_full_context_compacts_everything_possible():
    turns = conversation(600, 3000, 3000, 10)
    ask = Ask(Purpose.EXECUTE, "r", "t", (), (), turns, 1_000)
    assert make_room(ask, Usage(10), 200_000, KEPT, full=False) is None
    assert make_room(ask, Usage(10), 200_000, KEPT, full=True) == Compaction(6, 0)
    assert make_room(replace(ask, turns=turns[:3]), Usage(10), 200_000, KEPT, full=True) is None, (
        "the newest has to be read first"
    )


def test_picture_counts_in_tokens_and_is_compacted():
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "A" * 400_000},
    }
    use = {"type": "tool_use", "id": "p", "name": "take_screenshot", "input": {"path": "a.html"}}
    shot = {
        "type": "tool_result",
        "tool_use_id": "p",
        "content": [text_block("{}"), picture],
        "is_error": False,
    }
    turns = (
        conversation()[0],
        Turn("assistant", (use,)),
        user_turn([shot]),
        *exchange(1, 10),
        *exchange(2, 10),
    )
    assert prompt_at_most(Ask(Purpose.EXECUTE, "r", "t", (), (), turns, 1_000), None) < 20_000
    after = compacted(turns, Compaction(2, 10_000), KEPT)
    assert "take_screenshot" in after[2].blocks[0]["content"]


# --- failure patterns


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
