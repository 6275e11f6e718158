"""Ask a model for one tiny tool call, and judge what its server makes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from placet.chat.messages import (
    Ask,
    Block,
    Purpose,
    Reply,
    ToolSpec,
    Turn,
    Usage,
    text_block,
    user_turn,
)
from placet.chat.text_calls import call_text, described, text_call

# Longer than all else in the request: that a server drops it then shows in the count of tokens.
_TOOL = ToolSpec(
    "answer",
    "Report the answer to the question. Call this tool exactly once, as soon as you know the "
    "answer, and do not write anything before or after the call. The question is always about one "
    "small number, so that any model can answer it without looking anything up. Text outside of "
    "the call reaches nobody: only the arguments of the call are read. If you are not sure, call "
    "the tool all the same, with the number that seems most likely to you. Never ask back, never "
    "explain how you came to the number, and never call any other tool.",
    {
        "type": "object",
        "properties": {
            "number": {"type": "integer", "description": "The answer, as a whole number."}
        },
        "required": ["number"],
    },
)
TINY = Ask(
    Purpose.PLAN,
    "",
    "",
    (),
    (_TOOL,),
    (user_turn([text_block("What is 1 + 1? Call `answer`.")]),),
    max_tokens=512,
)
"""A request that any server and any model can serve."""
TINY_BY_TEXT = replace(
    TINY, system=(described((_TOOL,), call_text(_TOOL.name, {"number": "<number>"})),), tools=()
)
"""The same for a model that writes its calls as text."""

_LEAST_BYTES_A_TOKEN = 8
"""No tokenizer packs so many bytes of English into a token: fewer tokens mean that text is missing.

Measured: 3.5 with Qwen, and 16.7 where the chat template had no tools.
"""


def calls_tool(reply: Reply) -> bool:
    """Return whether the server handed on the call that `TINY` asks for."""
    return bool(reply.turn.tool_uses)


def problems_of(reply: Reply, *, by_text: bool) -> list[tuple[str, str]]:
    """Return what is wrong in a reply to `TINY`, or `TINY_BY_TEXT`: problems, and what helps."""
    found = []
    size, tokens = len(json.dumps(_TOOL.input_schema)) + len(_TOOL.description), reply.usage
    if tokens == Usage():
        found.append(
            (
                "its server reports no tokens, so placet counts the most that each call can use",
                "Ask the server without a proxy in between, or expect limits to be reached early.",
            )
        )
    elif not by_text and tokens.prompt_tokens < size / _LEAST_BYTES_A_TOKEN:
        found.append(
            (
                f"its server does not show the tools to the model ({tokens.prompt_tokens} tokens "
                f"for {size:,} bytes)",
                "Start the server with a chat template that has tools "
                "(llama-server: --chat-template-file), or take another model.",
            )
        )
    if by_text and text_call(reply.turn.text, (_TOOL.name,), TINY_BY_TEXT.system) is None:
        found.append(("it wrote no call that placet can read", "Take another, larger model."))
    if not by_text and not calls_tool(reply):
        found.append(
            (
                "it answered with text where a tool call was asked for",
                "Let placet read calls in its text: placet config set model.tools text. Or set the "
                "server's tool-call parser or the model's chat template.",
            )
        )
    return found


def without_images(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Return the turns with a sentence in place of each image."""
    return tuple(Turn(turn.role, tuple(map(_without_image, turn.blocks))) for turn in turns)


def _without_image(block: Block) -> Block:
    content = block.get("content")
    if block.get("type") == "image":
        return text_block("[An image. Your server takes no images, so you cannot see it.]")
    if isinstance(content, list):
        return {**block, "content": [_without_image(part) for part in content]}
    return block
