"""Measure the CPU time of a streamed reply next to the SDK's `create(stream=True)`."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic

from messages_api import MessagesApi, call, reply, thinking
from placet.chat.messages import Ask, Purpose, text_block, user_turn
from placet.host.config import ModelTable
from placet.models import open_model

SIZES = (8_000, 32_000, 100_000)
TIMES = 9


@contextmanager
def server() -> Iterator[str]:
    """A server in a process of its own: what it costs counts for nobody here. Gives its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.streaming", "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.communicate()


def serve() -> None:
    def answer(body: dict[str, Any]) -> Any:
        size = int(body["messages"][0]["content"][0]["text"])
        return reply(thinking("Hm."), call("write_file", {"path": "a", "content": "x" * size}))

    with MessagesApi(answer) as api:
        print(api.url, flush=True)
        sys.stdin.read()


def cpu_ms(work: Callable[[], object]) -> float:
    found = []
    for _ in range(TIMES):
        began = time.process_time()
        work()
        found.append((time.process_time() - began) * 1000)
    return statistics.median(found)


def streamed(told: Callable[[str, str, str], None]) -> None:
    """Tell the figure of each size."""
    with server() as url:
        model = open_model(ModelTable(name="m", base_url=url), {})
        client = anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0)
        loop = asyncio.new_event_loop()

        async def bare(size: int) -> int:
            asked: Any = [{"role": "user", "content": [{"type": "text", "text": str(size)}]}]
            count = 0
            async with await client.messages.create(
                model="m", max_tokens=9, messages=asked, stream=True
            ) as stream:
                async for _event in stream:
                    count += 1
            return count

        async def helper(size: int) -> object:
            asked: Any = [{"role": "user", "content": [{"type": "text", "text": str(size)}]}]
            async with client.messages.stream(model="m", max_tokens=9, messages=asked) as stream:
                return await stream.get_final_message()

        def ours(size: int) -> int:
            ask = Ask(Purpose.PLAN, "r", "t", (), (), (user_turn([text_block(str(size))]),), 9)
            return len(model.reply(ask, lambda: False).turn.blocks)

        for size in SIZES:
            ours(size)
            loop.run_until_complete(bare(size))
            mine, least = (
                cpu_ms(lambda size=size: ours(size)),
                cpu_ms(lambda size=size: loop.run_until_complete(bare(size))),
            )
            sdks = cpu_ms(lambda size=size: loop.run_until_complete(helper(size)))
            told(
                f"a streamed reply of {size:,} characters, processor",
                f"{mine:.0f} ms",
                f"bare create(stream=True): {least:.0f} ms, ratio {mine / least:.2f}; the SDK's helper: {sdks:.0f} ms",
            )
        loop.run_until_complete(client.close())
        loop.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        streamed(
            lambda what, figure, beside: print(f"{what:<58} {figure:>18}   {beside}", flush=True)
        )
