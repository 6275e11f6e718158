"""Test the page of one request: its turns, their costs, and its question."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_decisions import QUESTION, asking_vault

from messages_api import MessagesApi, call, reply
from pagekit import browsing
from vaultkit import ME, PLAN, TestVault, make_vault, running, until

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


def test_plan_page_says_what_its_box_says(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    scope = {**PLAN["scope"], "run": ["python3 -m pytest -q"]}
    step = PLAN["steps"][0]
    vault.plays({**PLAN, "steps": [step, {**step, "title": "Say it again"}], "scope": scope}, [])
    vault.drop("Please say hello.\n")
    vault.once()
    text = vault.plan().read_text()
    vault.plan().write_text(text.replace("\nrun = ", "\nmax_iterations = 1\nrun = "))
    vault.once()
    box = vault.plan().read_text().partition("%% /placet %%")[0]
    with browsing(vault) as browser:
        page = browser.get("/r/say-hello")
    for sentence in (
        "assume that any code can run in the sandbox",
        "with any further words",
        "At most 1 iteration for 2 steps: the mission may stop before it is done.",
        ", on the new branch",
        ", made from",
    ):
        assert sentence in box, sentence
        assert sentence in page, sentence
    assert 'class="done' not in page, "limits are no success"


def test_revision_opens_with_its_answers(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    step = PLAN["steps"][0]
    other = {**PLAN, "steps": [step, {**step, "title": "Say it again"}]}
    first = {**PLAN, "steps": [step, {**step, "title": "Whisper"}]}
    answers = {"answers": ["The README says it."]}
    vault.script(
        ("plan", [{"calls": [("submit_plan", first)]}]),
        ("revise", [{"calls": [("submit_plan", {**other, **answers})]}]),
    )
    vault.drop("Please say hello.\n")
    vault.once()
    vault.click("revise", "say-hello", "--comment", "Why say it?")
    vault.once()
    with browsing(vault) as browser:
        page = browser.get("/r/say-hello")
    assert "step 2 is new, 1 step removed" in page
    assert "left out" not in page
    answer = page.index("The README says it.")
    assert page.index("Why say it?") < answer < page.index("The difference, in full")
    assert page.count('<span class="change">new</span>') == 1


def test_mission_stopped_on_the_board_names_its_login(tmp_path: Path) -> None:
    vault = make_vault(tmp_path, USER=ME, LOGNAME=ME)
    vault.plays(PLAN, {"calls": [("read_file", {"path": "x"})], "delay_s": 60.0})
    vault.drop("# Say hello\n")
    with running(vault), browsing(vault) as browser:
        until(vault.plan().exists, "a plan")
        vault.approve()
        vault.await_action("execution.started")
        page = browser.get("/r/say-hello")
        assert "0 of 1 steps are done" in page
        assert browser.press("say-hello", "stop").status_code == 303
        said = "ann stopped the mission."
        until(lambda: said in browser.get("/r/say-hello"), said)


def test_plan_without_daemon_says_so_before_decision(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    vault.drop("# Say hello\n")
    vault.once()
    with browsing(vault) as browser:
        page = browser.get("/r/say-hello")
        assert "The daemon is not running. You can decide now" in page
        assert "/r/say-hello/tick" not in page
        assert browser.press("say-hello", "reject", reason="No.").status_code == 303
        page = browser.get("/r/say-hello?said=saved")
    assert page.count("The daemon is not running") == 0
    assert page.count("It takes effect when the daemon runs") == 1
    assert "The daemon has not answered yet" not in page


def test_moved_plan_waits_for_signature_on_page(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.configure("[approval]\nsigned = true\n")
    vault.plays(PLAN)
    vault.drop("# Say hello\n")
    vault.once()
    vault.approve()
    vault.once()
    with browsing(vault) as browser:
        assert "It waits for a signature: approve it here." in browser.get("/r/say-hello")
        assert "Waits for a signature" in browser.get("/")


def test_late_answer_says_which_one_counts(tmp_path: Path) -> None:
    vault = asking_vault(tmp_path, ("ask_person", QUESTION))
    with running(vault), browsing(vault) as browser:
        fields = browser.hidden("say-hello")
        first = browser.press("say-hello", "answer", **fields, option="Hello")
        assert first.status_code == 303
        late = browser.press("say-hello", "answer", **fields, option="Good morning")
    assert late.status_code == 400
    assert "ann has answered it: Hello" in html.unescape(late.text)
    assert '<pre class="refused" tabindex="0">Good morning</pre>' in late.text


def test_unchanged_revision_still_answers_comments(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    answered = {**PLAN, "answers": ["The README says it."]}
    vault.script(
        ("plan", [{"calls": [("submit_plan", PLAN)]}]),
        ("revise", [{"calls": [("submit_plan", answered)]}]),
    )
    vault.drop("Please say hello.\n")
    vault.once()
    vault.click("revise", "say-hello", "--comment", "Why say it?")
    vault.once()
    with browsing(vault) as browser:
        page = browser.get("/r/say-hello")
    begin = page.index("</strong>: nothing in the plan changed")
    assert begin < page.index("The README says it.") < page.index("The difference, in full")
