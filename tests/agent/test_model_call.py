"""Test that an error answer is the prompt's fault only if the model answers a tiny request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from looping import Running, Time, bare_vault, looping
from messages_api import Answer, MessagesApi, call, raw, reply, reset, status, text
from placet.models.anthropic import AnthropicModel
from vaultkit import PLAN

WRONG_KEY = status(400, "no_db_connection", "No connected db")
NO_IMAGES = status(500, "api_error", "image input is not supported")
TOO_LONG = status(400, "exceed_context_size_error", "request (2279 tokens) exceeds 2048")
DEAD_UPSTREAM = raw(b'{"error": {"message": "upstream: connection refused"}}', 500)
ANSWER = reply(call("answer", {"number": 2}))


def is_tiny(body: dict[str, Any]) -> bool:
    return [tool["name"] for tool in body.get("tools", [])] == ["answer"]


def planned(folder: Path, answers: Answer, tiny: Answer) -> Running:
    """Plan a request at a server that gives these answers; return what there is then."""
    vault = bare_vault(folder)
    vault.configure('[model]\nname = "qwen"\n')
    vault.drop("Say hello.\n")
    with (
        MessagesApi(lambda body: tiny if is_tiny(body) else answers) as api,
        looping(
            vault,
            time=Time(),
            model=lambda: AnthropicModel("qwen", api.url, "key", 10),
        ) as running,
    ):
        running.settle(12)
        return running


@pytest.mark.parametrize("fault", [WRONG_KEY, status(404, "x"), status(400, "no_such_model")])
def test_refusal_of_every_request_holds_all_work(tmp_path: Path, fault: Answer) -> None:
    vault = planned(tmp_path, fault, fault).vault
    assert vault.rows("plan.failed") == []
    assert vault.rows("model.waiting")[0]["metadata"]["why"] == "blocked"


@pytest.mark.parametrize("fault", [DEAD_UPSTREAM, reset()])
def test_outage_fails_nothing_and_uses_nothing(tmp_path: Path, fault: Answer) -> None:
    vault = planned(tmp_path, fault, fault).vault
    assert vault.rows("plan.failed") == []
    assert {row["metadata"]["tokens"] for row in vault.rows("model.failed")} == {0}


@pytest.mark.parametrize("fault", [TOO_LONG, NO_IMAGES])
def test_fault_of_one_request_fails_that_case(tmp_path: Path, fault: Answer) -> None:
    vault = planned(tmp_path, fault, ANSWER).vault
    assert vault.rows("model.waiting") == []
    (failed,) = vault.rows("plan.failed")
    assert "The model answers other requests: only this one fails" in str(failed["metadata"])


def test_refused_image_is_sent_as_text() -> None:
    from placet.chat.messages import Turn
    from placet.chat.tiny_call import without_images

    image = {"type": "image", "source": {"type": "base64", "data": "eA=="}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [image]}
    (turn,) = without_images([Turn("user", (result,))])
    assert "Your server takes no images" in turn.blocks[0]["content"][0]["text"]


def test_reply_without_usage_counts_its_reservation(tmp_path: Path) -> None:
    none = {"input_tokens": 0, "output_tokens": 0}
    done = reply(text("Hm."), call("submit_plan", PLAN), usage=none)
    vault = planned(tmp_path, done, ANSWER).vault
    (called,) = vault.rows("model.called")
    assert called["metadata"]["tokens"] > 8_000
    (told,) = vault.rows("failure.detected")
    assert "reports no usage" in told["metadata"]["description"]
