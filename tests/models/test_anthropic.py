"""Test a model server that sends anything: its work ends within limits, other work continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from looping import bare_vault, looping
from messages_api import Answer, MessagesApi, call, drip, pouring, reply, text
from placet.chat.retry import RetryPolicy
from placet.models.anthropic import prepare
from vaultkit import PLAN, TestVault

CONFIG = """
[model]
provider = "anthropic"
name = "m"
max_tokens = 4_000
timeout_s = 0.2
[limits]
planning_time_s = 4
planning_tokens = 60_000
"""
QUICK = RetryPolicy(first_wait_s=0.01, longest_wait_s=1, longest_backoff_s=1, longest_rest_s=1)


def begun(*pieces: bytes) -> Callable[[], chain[bytes]]:
    """Return a stream that begins well, and then repeats these pieces for ever."""
    start = b'event: message_start\ndata: {"type": "message_start", "message": {"content": []}}\n\n'
    return lambda: chain([start], chain.from_iterable(repeat(pieces)))


def deep(_body: dict[str, Any]) -> Answer:
    """Return a call whose input is nested deeply."""
    return reply(call("grep", {"pattern": json.loads("[" * 600 + "]" * 600)}))


def huge(_body: dict[str, Any]) -> Answer:
    """Return a good answer with counts that no database takes."""
    return reply(call("submit_plan", PLAN), usage={"input_tokens": 2**63, "output_tokens": 10**30})


def planned(vault: TestVault, hostile: Answer | Callable[[dict[str, Any]], Answer]) -> int:
    """Let two requests be planned, one of them by a hostile server; return its paid calls."""

    def answer(body: dict[str, Any]) -> Answer:
        if "Be hostile." not in json.dumps(body["messages"][0]):
            return reply(call("submit_plan", PLAN))
        return hostile(body) if callable(hostile) else hostile

    vault.drop("Be hostile.\n", "Hostile.md")
    vault.drop("Say hello.\n")
    prepare().join()  # importing the SDK takes seconds, which count as the call's
    with MessagesApi(answer) as api:
        env = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "sk-ant-test-0123456789"}
        with looping(vault, env=env, retry=QUICK) as running:
            running.settle(4_000)
    return len(api.requests)


@pytest.mark.parametrize(
    ("hostile", "ends"),
    [
        (huge, "plan.created"),
        (pouring(begun(b": x\n\n" * 10_000)), "plan.failed"),
        (pouring(begun(b"data: " + b"x" * 60_000)), "plan.failed"),
        (pouring(begun(b"data: x\n" * 1_000), 500), "plan.failed"),
        (deep, "plan.failed"),
        (drip(reply(text("word " * 1_000)), 0.05), "plan.failed"),
    ],
    ids=["huge numbers", "endless reply", "endless line", "endless error", "deep JSON", "drip"],
)
def test_hostile_server_affects_only_its_own_work(
    tmp_path: Path, hostile: Answer | Callable[[dict[str, Any]], Answer], ends: str
) -> None:
    vault = bare_vault(tmp_path)
    vault.configure(CONFIG)
    calls = planned(vault, hostile)
    of = {
        row["entity_id"]: row["action_type"]
        for row in vault.rows()
        if "plan." in row["action_type"]
    }
    assert of == {"say-hello": "plan.created", "hostile": ends}
    paid = vault.rows("model.called") + vault.rows("model.failed")
    assert len(paid) >= calls, "a call that timed out before it arrived has a row, too"
