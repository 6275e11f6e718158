"""Test what calls of a model cost, and what follows from an error answer.

Also test that long conversations keep their prefix and are compacted.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.agent.test_limits import LONG, end, mission, paid, plan

from looping import Fake, Time, bare_vault, greeter, looping, results, says, turns_taken
from messages_api import MessagesApi, call, reply
from placet.agent.day_budget import used_today
from placet.agent.model_call import ask_model
from placet.agent.record import Record
from placet.case.mission_result import Spent
from placet.chat.budget import Amount, Room
from placet.chat.cancel import Cancel
from placet.chat.messages import (
    Ask,
    ModelError,
    ModelErrorKind,
    Purpose,
    Reply,
    Usage,
    text_block,
    user_turn,
)
from placet.client.replay import replay_mission
from placet.models.anthropic import AnthropicModel

# --- every end has a name


DONE = ("complete_step", {"step": 1, "summary": "Done"})


# --- what a failed call before the end means

WRITE = ("write_file", {"path": "hello.txt", "content": "hello\n"})
MISSING = ("read_file", {"path": "nowhere.md"})
FINISH = ("finish", {"summary": "Done."})


@pytest.mark.parametrize(
    ("rounds", "named"),
    [
        (
            [[WRITE, MISSING], [DONE], [FINISH]],
            "finished",
        ),  # read, judged, and the step called done
        ([[WRITE, MISSING], [DONE, FINISH]], "finished"),
        # called done before the failure was read
        ([[WRITE, MISSING, DONE], [FINISH]], "unresolved_error"),
        ([[WRITE, DONE], [MISSING], [FINISH]], "unresolved_error"),
        ([[WRITE, DONE], [MISSING, FINISH]], "unresolved_error"),
        ([[WRITE, DONE], [MISSING], [WRITE], [FINISH]], "finished"),
        # called done twice: refused, but nothing failed
        ([[WRITE, DONE], [DONE], [FINISH]], "finished"),
        ([[WRITE, DONE], [MISSING], [DONE], [FINISH]], "unresolved_error"),
    ],
)
@pytest.mark.thinned(3)
def test_error_read_before_completing_step_is_no_failure(
    tmp_path: Path, rounds: list[Any], named: str
) -> None:
    ended = end(mission(tmp_path, lambda ask: says(*rounds[turns_taken(ask)])))
    assert ended.get("reason", "finished") == named


# --- to the token


def test_unanswered_calls_are_charged_at_worst_case(
    tmp_path: Path,
) -> None:
    faults = [
        ModelError(ModelErrorKind.TRANSIENT, "cut", served=True),
        ModelError(ModelErrorKind.TRANSIENT, "refused"),
        ModelError(ModelErrorKind.CANCELLED, "the daemon stopped", served=True),
    ]

    def answer(ask: Ask) -> Reply:
        if faults and turns_taken(ask) == 0:
            raise faults.pop(0)
        return greeter(ask)

    limits = "[limits]\nmission_tokens = 56000\n"
    running = mission(tmp_path, answer, config=limits, time=Time())
    lost = [row["metadata"]["tokens"] for row in running.vault.rows("model.failed")]
    assert [tokens > 16_000 for tokens in lost] == [True, False, True]
    told = [
        block["text"]
        for block in running.model.asks[-1].turns[2].blocks
        if "You have left" in str(block.get("text"))
    ]
    assert told == [f"You have left: {56_000 - sum(lost):,} of 56,000 tokens."]


def test_killed_call_is_charged_after_restart(tmp_path: Path) -> None:
    vault = paid(bare_vault(tmp_path))
    vault.drop("Say hello.\n")
    with looping(vault, model=lambda: Fake(greeter)) as running:
        running.settle()
        ports, case = running.loop.ports, next(iter(running.loop.cases.values()))
        ask = Ask(
            Purpose.EXECUTE,
            case.request_id,
            case.trace_id,
            (),
            (),
            (user_turn([text_block("Go on.")]),),
        )
        room = Room(1_000, Amount(9_000, Decimal("0.25")))

        def killed() -> Fake:
            raise SystemExit("as a kill would: nothing is written down afterwards")

        def life(open_model: Callable[[], Fake]) -> Spent:
            record, spent = Record.load(ports.journal, case, 99, ports.clock), Spent()
            ask_model(
                dataclasses.replace(ports, open_model=open_model, prices=()),
                ask,
                1,
                record,
                spent,
                Cancel(),
                lambda _ask: nullcontext(room),
            )
            return spent

        with suppress(SystemExit):
            life(killed)
        # the third finds the answer on the record
        for spent in (life(lambda: Fake(greeter)), life(killed)):
            assert (spent.replies, spent.lost_tokens, spent.cost_usd) == (1, 9_000, Decimal("0.25"))
    lost = vault.rows("model.failed")
    assert [(row["metadata"]["tokens"], row["metadata"]["cost_usd"]) for row in lost] == [
        (9_000, 0.25)
    ]


# the thread is to end as if it were killed
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("is_paid", [True, False])
def test_killed_call_is_charged_to_day_at_restart(tmp_path: Path, is_paid: bool) -> None:
    """Of a model that takes no money it counts nothing."""
    vault, time = bare_vault(tmp_path), Time()
    if is_paid:
        paid(vault)
    vault.drop("Say hello.\n")

    def killed(_ask: Ask) -> Reply:
        raise SystemExit("as a kill would: nothing is written down afterwards")

    model = Fake(killed)
    with looping(vault, time=time, model=lambda: model) as running:
        while not model.asks:
            time.pass_time(1)
            running.loop.tick()
            for job in running.loop.threads.jobs.values():
                assert job.thread is not None
                job.thread.join(30)
    assert vault.rows("model.failed") == []
    with (
        looping(vault, time=time, model=lambda: model) as running,
        running.loop.ports.journal.read() as reader,
    ):
        used = used_today(reader, time.wall())
        assert used.tokens > 16_000 if is_paid else used == Amount()
    assert [row["metadata"]["purpose"] for row in vault.rows("model.failed")] == ["plan"]
    with looping(vault, time=time, model=lambda: Fake(greeter)) as running:
        running.settle()
    assert len(vault.rows("model.failed")) == 1, "it counts once"


# --- long conversations

TURNS = 20


def spoken(body: dict[str, Any]) -> list[str]:
    """What a request says, in the order in which a cache reads it, in pieces."""
    return [
        json.dumps(piece, ensure_ascii=False)
        for piece in (*body["tools"], *body["system"], *body["messages"])
    ]


def cached_share(bodies: list[dict[str, Any]]) -> float:
    """The share of everything sent that is the request before it, byte for byte."""
    said = [spoken(body) for body in bodies]
    for before, after in itertools.pairwise(said):
        assert after[: len(before)] == before, "a turn was changed after it was sent"
    return sum(len("".join(one)) for one in said[:-1]) / sum(len("".join(one)) for one in said)


def twenty_turns(folder: Path) -> list[dict[str, Any]]:
    """The requests of a mission of twenty turns, as they came to a server on loopback."""
    vault = bare_vault(folder)
    (vault.root / "note.md").write_text("A line of the note.\n" * 40)
    work = [
        reply(
            call("write_file", {"path": "hello.txt", "content": f"{n}\n"}),
            call("read_file", {"path": "note.md"}),
        )
        for n in range(TURNS - 1)
    ]
    vault.drop("Say hello.\n")
    answers = [reply(call("submit_plan", LONG)), *work, reply(call("finish", {"summary": "Done."}))]
    with MessagesApi(answers) as api:
        config = (
            vault.root / "System/placet.toml"
        ).read_text() + "[guards]\nrepeats = 100\nwindow = 100\n"
        vault.configure(config)
        with looping(
            vault, model=lambda: AnthropicModel("claude-opus-5-5", api.url, "key", 10)
        ) as running:
            running.settle()
            vault.approve()
            running.settle()
        assert api.refused == []
        assert end(running)["iterations"] == TURNS
        return [request.body for request in api.requests[1:]]


def test_cached_prefix_covers_ninety_percent_of_sent_text(tmp_path: Path) -> None:
    bodies = twenty_turns(tmp_path)
    assert len(bodies) == TURNS
    assert cached_share(bodies) >= 0.9
    *most, last = ["".join(spoken(body)[len(body["tools"]) :]) for body in bodies]
    for tool in bodies[-1]["tools"]:
        assert tool["description"] not in last, "each tool is described once, in the tools' list"
    assert not any("You have left" in said for said in most[:16]), "only what gets short is told"
    assert "You have left: 4 turns." in most[16]
    assert "Several calls fit in one turn" in last


def test_compaction_is_repeated_identically_after_resume(tmp_path: Path) -> None:
    cut = [7, 9]

    def answer(ask: Ask) -> Reply:
        taken = turns_taken(ask)
        if cut and taken == cut[0]:
            raise ModelError(ModelErrorKind.CANCELLED, f"stopped at {cut.pop(0)}")
        size = sum(len(str(block)) for turn in ask.turns for block in turn.blocks) // 4
        if taken == 12:
            return says(DONE, FINISH, usage=Usage(size, 50))
        return says(
            WRITE if taken == 0 else ("read_file", {"path": f"long{taken}.md"}),
            usage=Usage(size, 50),
        )

    vault = bare_vault(
        tmp_path, "max_tokens = 4096\ncontext_tokens = 8192\n[guards]\nstall_turns = 100\n"
    )
    for n in range(13):
        (vault.root / f"long{n}.md").write_text(f"line of {n}\n" * 300)
    model = Fake(lambda ask: plan("complex") if ask.purpose is Purpose.PLAN else answer(ask))
    vault.drop("Say hello.\n")
    with looping(vault, model=lambda: model) as running:
        running.settle()
        vault.approve()
        running.settle()
    assert "execution.completed" in vault.actions(), vault.rows("execution.failed")
    asks = [ask for ask in model.asks if ask.purpose is Purpose.EXECUTE]
    by_turn: dict[int, list[Ask]] = {}
    for ask in asks:
        by_turn.setdefault(turns_taken(ask), []).append(ask)
    assert [len(by_turn[n]) for n in (7, 9)] == [2, 2]
    for first, second in (by_turn[7], by_turn[9]):
        assert first.turns == second.turns, "the resumed conversation is the same, byte for byte"
    compacted = len(vault.rows("conversation.compacted"))
    changes = sum(
        later[0].turns[: len(before[0].turns)] != before[0].turns
        for before, later in itertools.pairwise(by_turn[n] for n in range(13))
    )
    assert 1 <= compacted <= 4
    assert changes == compacted, "the prefix changes only where room was made"
    last = results(by_turn[12][0])
    assert "left out to make room" in last[1]
    assert "\n" not in last[1]
    assert "line of 11" in last[-1], "the newest stay whole"
    assert max(sum(len(text) for text in results(ask)) for ask in asks) // 4 < 8_192
    case = running.loop.cases[vault.rows("execution.completed")[0]["trace_id"]]
    assert replay_mission(vault.site, case).equal


def test_compacted_result_can_be_read_again(tmp_path: Path) -> None:
    def answer(ask: Ask) -> Reply:
        stubs = [text for text in results(ask) if "left out to make room" in text]
        if any("line of 1\n" in text for text in results(ask)[-1:]) and stubs:
            return says(WRITE, DONE, FINISH)
        if stubs:
            path = stubs[0].partition('read_file, path "')[2].partition('"')[0]
            return says(("read_file", {"path": path}), usage=Usage(1_000, 10))
        return says(
            ("read_file", {"path": f"long{turns_taken(ask) + 1}.md"}),
            usage=Usage(2_000 * (1 + turns_taken(ask)), 10),
        )

    vault = bare_vault(tmp_path, "max_tokens = 1000\ncontext_tokens = 8192\n")
    for n in range(1, 13):
        (vault.root / f"long{n}.md").write_text(f"line of {n}\n" * 300)
    model = Fake(lambda ask: plan("complex") if ask.purpose is Purpose.PLAN else answer(ask))
    vault.drop("Say hello.\n")
    with looping(vault, model=lambda: model) as running:
        running.settle()
        vault.approve()
        running.settle()
    assert "execution.completed" in vault.actions(), vault.rows("execution.failed")
