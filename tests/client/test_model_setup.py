"""Test which settings fit a model of a server on this machine."""

from __future__ import annotations

import pytest

from messages_api import Answer, MessagesApi, call, reply, status, text
from placet.client.model_setup import Fit, fit

USAGE = {"input_tokens": 300, "output_tokens": 9}


def fitted(answer: Answer) -> Fit:
    with MessagesApi([answer]) as api:
        api.listed = ["qwen"]
        return fit(api.url, "", {}, lambda _names, why: pytest.fail(why))


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
