"""Test which settings fit a model of a server on this machine."""

from __future__ import annotations

import pytest
from tests.cli.test_init import server

from messages_api import Answer, MessagesApi, call, reply, status, text
from placet.client.model_setup import Fit, fit

USAGE = {"input_tokens": 300, "output_tokens": 9}


def fitted(answer: Answer) -> Fit:
    said: list[str] = []
    with MessagesApi([answer]) as api:
        api.listed = ["qwen"]
        found = fit(api.url, "", {}, lambda _names, why: pytest.fail(why), said.append)
    assert said == [
        f"Asking {api.url} for its models.",
        "Trying qwen with one tiny call. That can take a minute.",
    ]
    return found


@pytest.mark.parametrize(
    ("answer", "tools", "says"),
    [
        (reply(call("answer", {"number": 2}), usage=USAGE), None, "it calls tools"),
        (reply(text("It is 2."), usage=USAGE), "text", "handed on no tool call"),
        (status(400, "bad", "no such model"), None, "To try it again: placet doctor --model"),
    ],
)
def test_tiny_call_decides_how_tools_are_called(
    answer: Answer, tools: str | None, says: str
) -> None:
    found = fitted(answer)
    assert found.settings.get(("model", "tools")) == tools
    assert says in found.remarks[-1]
    assert found.settings["model", "name"] == "qwen"
    assert found.settings["model", "context_tokens"] == 32_768


def test_refused_listing_names_the_key() -> None:
    refusal = b'{"error": {"message": "No connected db.", "type": "no_db_connection"}}'
    with server({"/v1/models": (400, refusal)}) as (url, _):
        found = fit(url, "qwen", {}, lambda _names, why: pytest.fail(why), lambda _: None)
    listed = f"the list of models at {url[7:]}: status 400, no_db_connection: No connected db."
    assert listed in found.remarks[0]
    assert (
        f"export ANTHROPIC_API_KEY=… and type placet config set model.base_url {url}"
        in (found.remarks[0])
    )
    assert found.settings["model", "name"] == "qwen"
