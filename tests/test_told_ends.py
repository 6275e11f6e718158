"""How work that ended without success is told: one word for the end, what the model said last, what
was cut off, what it cost.
"""

from __future__ import annotations

import json
import re
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from looping import Fake, Running, Time, bare_vault, looping, says
from messages_api import MessagesApi, call, cut, hang_midway, reply, text
from placet.chat.budget import DEFAULT_PRICES
from placet.chat.messages import Purpose
from placet.errors import End
from vaultkit import PLAN, TestVault, make_vault, until

SAID = "I cannot see a file that says which greeting is meant; it may be `$= x` ghp_" + "aB3d" * 9
LEFT = "I cannot see a file that says which greeting is meant"
WRITE = ("write_file", {"path": "hello.txt", "content": "hello\n"})
DONE = ("complete_step", {"step": 1, "summary": "Done"})


def carried_out(folder: Path, answer: Any, config: str = "") -> Running:
    vault = bare_vault(folder, config)
    plan = {
        **PLAN,
        "steps": [{"title": "Do it", "tools": ["write_file", "read_file", "list_directory"]}],
    }
    model = Fake(
        lambda ask: says(("submit_plan", plan)) if ask.purpose is Purpose.PLAN else answer(ask)
    )
    vault.drop("Say hello.\n")
    with looping(vault, model=lambda: model, time=Time()) as running:
        running.settle()
        vault.approve()
        running.settle()
    return running


def told(vault: TestVault) -> list[str]:
    """What report, `why` and `status` say."""
    return [
        vault.reports()[0].read_text() if vault.reports() else "",
        vault.click("why", "say-hello").stdout,
        vault.click("status").stdout,
    ]


# --- one word
# ------------------------------------------------------------------------------------------------


def turns(*calls: tuple[str, dict[str, Any]], said: str = "") -> Any:
    return lambda _ask: says(*calls, text=said)


@pytest.mark.parametrize(
    ("answer", "config", "word"),
    [
        (turns(("list_directory", {"path": "."})), "", End.REPETITION),
        (turns(said="Hm."), "", End.TALK),
        (turns(("give_up", {"reason": "No."})), "", End.GAVE_UP),
        (turns(DONE, ("finish", {"summary": "Done."})), "", End.NOTHING_CHANGED),
        (turns(WRITE), "[limits]\ntool_calls = 2\n", End.TOOL_CALL_CAP),
    ],
)
@pytest.mark.thinned(3)
def test_an_end_has_one_word_in_journal_report_and_command_line(
    tmp_path: Path, answer: Any, config: str, word: End
) -> None:
    vault = carried_out(tmp_path, answer, config).vault
    failed = vault.rows("execution.failed")[0]["metadata"]
    assert (failed["reason"], failed["error_type"]) == (word.value, word.value)
    report, why, _ = told(vault)
    assert f"error_type: {word.value}\n" in report
    assert f"Why it ended: `{word.value}`" in report
    assert (
        json.loads(vault.click("why", "say-hello", "--json").stdout)["mission"]["end"] == word.value
    )
    assert not re.search(r"\b[A-Z]\w+(Error|Cap|Loop)\b", report + why)


# --- last words
# ----------------------------------------------------------------------------------------------


def test_what_the_model_said_last_is_quoted_wherever_the_end_is_told(tmp_path: Path) -> None:
    vault = carried_out(tmp_path, turns(said=SAID)).vault
    for words in told(vault):
        assert LEFT in words
        assert "ghp_" not in words
    assert not re.search(r"`\s*\$?=", told(vault)[0].split("## Error Details")[0])


def test_what_the_planner_said_last_is_quoted_too(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    vault.drop("Say hello.\n")
    with looping(vault, model=lambda: Fake(turns(said=SAID)), time=Time()) as running:
        running.settle()
    assert LEFT in vault.rows("plan.failed")[0]["metadata"]["reason"]
    _, why, status = told(vault)
    assert LEFT in why
    assert LEFT in status
    assert "ghp_" not in why + status + json.dumps(vault.rows())


def test_long_words_are_shortened_and_no_words_are_not_quoted(tmp_path: Path) -> None:
    long = carried_out(tmp_path / "long", turns(said="word " * 5000)).vault
    assert 200 < told(long)[0].split("## Error Details")[0].count("word ") * 5 <= 300
    silent = carried_out(tmp_path / "silent", turns(("list_directory", {"path": "."}))).vault
    assert "last words" not in "".join(told(silent))


# --- what was cut off
# -----------------------------------------------------------------------------------------


def test_a_command_that_a_person_stopped_is_in_journal_and_report(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    plan = {
        **PLAN,
        "scope": {"write": ["hello.txt"], "run": ["sleep 60"]},
        "steps": [{"title": "Do it", "tools": ["write_file", "run_command"]}],
    }
    vault.configure('[commands]\nsandbox = "none"\n')
    vault.script(
        ("plan", [{"calls": [("submit_plan", plan)]}]),
        ("execute", [{"calls": [WRITE, ("run_command", {"command": "sleep", "args": ["60"]})]}]),
    )
    vault.drop("Say hello.\n")
    vault.here()
    vault.approve()
    threading.Thread(
        target=lambda: (
            vault.await_action("tool.called"),
            until(lambda: _begun(vault), "the command"),
            vault.active().rename(vault.plan()),
        ),
        daemon=True,
    ).start()
    vault.here()
    assert vault.rows("execution.failed")[0]["metadata"]["reason"] == "stopped_by_person"
    ran = [
        row["metadata"]
        for row in vault.rows("tool.called")
        if row["metadata"]["tool"] == "run_command"
    ]
    assert [(row["target"], row["ok"], row["error_type"], row["exit_code"]) for row in ran] == [
        ("sleep 60", False, "interrupted", None)
    ]
    report = vault.reports()[0].read_text()
    assert "run\\_command (1)" in report or "run_command (1)" in report
    assert "Last tool error: `run_command sleep 60: failed, interrupted`." in report
    assert "Do not do again" not in report, "nothing failed: a person stopped it"


def _begun(vault: TestVault) -> bool:
    import sqlite3

    with sqlite3.connect(f"file:{vault.db}?mode=ro", uri=True) as connection:
        return (
            connection.execute(
                "SELECT count(*) FROM records WHERE kind = 'intent' AND key LIKE 'call:%' "
                "AND CAST(body AS TEXT) LIKE '%sleep%'"
            ).fetchone()[0]
            > 0
        )


def test_only_what_the_agent_did_wrong_is_not_to_be_done_again(tmp_path: Path) -> None:
    went_wrong = (
        carried_out(tmp_path / "circles", turns(("list_directory", {"path": "."})))
        .vault.reports()[0]
        .read_text()
    )
    used_up = (
        carried_out(tmp_path / "limit", turns(WRITE), "[limits]\ntool_calls = 2\n")
        .vault.reports()[0]
        .read_text()
    )
    assert "Do not do again what failed there: The agent made the same calls" in went_wrong
    assert "Do not do again" not in used_up


# --- costs
# ----------------------------------------------------------------------------------------------------

OPUS = next(row for row in DEFAULT_PRICES if row.model == "claude-opus-5-5")


def cost(read: int, written: int) -> float:
    return float(
        (read * OPUS.input_usd_per_mtok + written * OPUS.output_usd_per_mtok) / Decimal(1_000_000)
    )


@pytest.mark.parametrize("broken", [cut, hang_midway])
def test_a_call_that_was_cut_off_costs_what_its_server_told_and_says_that_it_is_at_most_that(
    tmp_path: Path, broken: Any
) -> None:
    """The prompt is known then, and the answer can have been as long as it was allowed to be."""
    used = {"input_tokens": 1_000, "output_tokens": 100}
    times: list[int] = []

    def script(body: dict[str, Any]) -> Any:
        times.append(1)
        if len(times) == 1:
            answer = broken(text("This will never be whole. " * 20))
            return type(answer)(answer.blocks, usage=used, fault=answer.fault)
        if "submit_plan" in {tool["name"] for tool in body["tools"]}:
            return reply(call("submit_plan", PLAN), usage=used)
        return reply(call(*WRITE), call(*DONE), call("finish", {"summary": "Done."}), usage=used)

    with MessagesApi(script) as api:
        vault = make_vault(
            tmp_path, ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY="sk-ant-test-0123456789"
        )
        vault.configure("[model]\nmax_tokens = 2000\ntimeout_s = 1.5\n")
        vault.drop("Say hello.\n")
        vault.here()
    (lost,) = (row["metadata"] for row in vault.rows("model.failed"))
    assert (lost["tokens"], lost["at_most"], lost["cost_usd"]) == (3_000, True, cost(1_000, 2_000))
    whole = sum(
        row["metadata"]["cost_usd"]
        for row in vault.rows()
        if row["action_type"] in ("model.called", "model.failed")
    )
    assert (
        f"for ${whole:.4f} (of which at most ${lost['cost_usd']:.4f} for calls that were cut off)"
        in vault.plan().read_text()
    )
    assert vault.rows("plan.created")[0]["metadata"]["cost_usd"] == pytest.approx(whole)


def test_a_call_of_which_the_server_told_nothing_counts_with_all_that_was_held_for_it(
    tmp_path: Path,
) -> None:
    from messages_api import reset

    with MessagesApi([reset(), reply(call("submit_plan", PLAN))]) as api:
        vault = make_vault(
            tmp_path, ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY="sk-ant-test-0123456789"
        )
        vault.drop("Say hello.\n")
        vault.here()
    (lost,) = (row["metadata"] for row in vault.rows("model.failed"))
    assert lost["at_most"]
    assert lost["tokens"] > 16_000
