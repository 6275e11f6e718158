"""Test the page of one request: its turns, their costs, and its question."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_decisions import QUESTION, asking_vault

from messages_api import MessagesApi, call, reply
from pagekit import browsing
from vaultkit import ME, PLAN, TestVault, make_vault

USAGE = {"input_tokens": 20_000, "output_tokens": 3_000}


def five_turns(body: Mapping[str, Any]) -> Any:
    """Plan PLAN, and carry it out in five turns that cost something."""
    if "submit_plan" in {tool["name"] for tool in body["tools"]}:
        return reply(call("submit_plan", PLAN), usage=USAGE)
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    if turn < 4:
        content = f"hello {turn}\n"
        return reply(call("write_file", {"path": "hello.txt", "content": content}), usage=USAGE)
    done = call("complete_step", {"step": 1, "summary": "Hello"})
    return reply(done, call("finish", {"summary": "done"}), usage=USAGE)


def test_iteration_costs_sum_to_mission_cost(tmp_path: Path) -> None:
    with MessagesApi(five_turns) as api:
        vault = make_vault(
            tmp_path, ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY="sk-ant-test-0123456789"
        )
        vault.drop("---\nbudget_usd: 5.0\n---\n# Say hello\n")
        vault.once()
        vault.approve()
        vault.once()
    cost = vault.rows("execution.completed")[0]["metadata"]["cost_usd"]
    assert cost > 0
    with browsing(vault) as browser:
        page = browser.get("/r/say-hello")
        assert "SCRIPTED" not in page
        assert "5 of 10 iterations used." in page
        paid = re.findall(r"s · (\$[0-9.]+) · ", page)
        assert sum(float(one[1:]) for one in paid) == pytest.approx(cost, abs=0.001)
        assert f"<p>{_as_chart(vault)}, " in browser.get("/numbers")


def _as_chart(vault: TestVault) -> str:
    """All calls' cost as the chart says it."""
    usd = sum(row["metadata"]["cost_usd"] for row in vault.rows("model.called"))
    return f"${usd:.2f}"


def test_unanswered_question_is_shown_as_waiting(tmp_path: Path) -> None:
    vault = asking_vault(tmp_path, ("ask_person", QUESTION))
    with browsing(vault) as browser:
        page = browser.get("/r/say-hello")
    assert re.search(r'<li class="going">.*<strong>ask_person</strong>.*waiting for you', page)


def test_running_mission_shows_newest_iteration_first(tmp_path: Path) -> None:
    vault = asking_vault(tmp_path, ("ask_person", QUESTION))
    with browsing(vault) as browser:
        page = browser.get("/r/say-hello")
    shown = re.findall(r"<strong>Iteration (\d+)</strong>", page)
    assert shown == sorted(shown, reverse=True)


def test_stopped_plan_says_who_stopped_it(tmp_path: Path) -> None:
    vault = asking_vault(tmp_path, ("ask_person", QUESTION))
    vault.click("stop", "say-hello", "--vault", str(vault.root))
    vault.once()
    with browsing(vault) as browser:
        page = browser.get("/r/say-hello")
    assert f'class="notice">{ME} stopped the mission. To run the plan, approve it again.' in page
    assert '<div class="notice">' not in page, "it would say the same again"


def test_plan_page_names_its_hosts(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    hosts = ["packages.example", "*.cdn.example"]
    vault.plays({**PLAN, "scope": {**PLAN["scope"], "network": hosts}}, [])
    vault.drop("Please say hello.\n")
    vault.once()
    with browsing(vault) as browser:
        page = browser.get("/r/say-hello")
    assert "<dt>Reaches</dt><dd><code>packages.example</code>, <code>*.cdn.example</code>" in page
    assert "send anything that they can read to the hosts" in page


def test_plan_of_another_model_is_said_before_approval(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    vault.drop("# Say hello\n")
    vault.once()
    vault.click("config", "set", "model.name", "another")
    with browsing(vault) as browser:
        page = browser.get("/r/say-hello")
    assert "This plan was written for the model scripted: test." in page
    assert "placet shows it to you once more" in page
