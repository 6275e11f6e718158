"""Shorten a long conversation: replace old tool results by one line each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from placet.chat.budget import IMAGE_TOKENS, prompt_likely
from placet.chat.messages import Ask, Block, ToolUse, Turn, Usage
from placet.wording import at_most

# Only results of at least so many characters are replaced. A stub is shorter, so it is not replaced
# again.
WORTH_STUBBING = 500

# A compaction must free at least this part of the budget, as each one invalidates the cached
# prefix.
LEAST_GAIN = 4

# How many turns at the end keep their results: the last three rounds, or, if that frees too little,
# only the last one.
KEEP_TURNS = (6, 2)


@dataclass(frozen=True, slots=True)
class Compaction:
    """The parameters of a compaction, as recorded: they reproduce it byte for byte."""

    keep_last: int
    budget_chars: int


def make_room(
    ask: Ask, last: Usage | None, prompt_tokens: int, name: Callable[[str], str], *, full: bool
) -> Compaction | None:
    """Return how to shorten the conversation of `ask` before it is sent.

    None if it fits `prompt_tokens`, or if too little could be removed. `last` is the usage of its
    last reply. `full`: the model had no room left then, so everything possible is removed. `name`
    as in `compacted`.
    """
    needed = prompt_likely(ask, last)
    if needed <= prompt_tokens and not full:
        return None
    budget = 0 if full else _chars(ask.turns) * prompt_tokens // needed
    made = (Compaction(keep, budget) for keep in KEEP_TURNS)
    return next((one for one in made if compacted(ask.turns, one, name) != ask.turns), None)


def compacted(
    turns: Sequence[Turn], how: Compaction, name: Callable[[str], str]
) -> tuple[Turn, ...]:
    """Replace old tool results by one line each if the conversation is longer than the budget.

    `name` keeps a whole text and returns the path to read it. The first turn, the last `keep_last`
    turns and everything that the model said stay. Pass the result in again with the next turns
    added: then what was replaced stays the same byte for byte, and the cached prefix holds between
    two compactions. Nothing is replaced if that frees less than a LEAST_GAIN-th of the budget.
    """
    size = _chars(turns)
    if size <= how.budget_chars:
        return tuple(turns)
    calls = {use.id: use for turn in turns for use in turn.tool_uses}
    old = range(1, len(turns) - how.keep_last)
    stubbed = tuple(
        Turn(turn.role, tuple(_stub(block, calls, name) for block in turn.blocks))
        if i in old and turn.role == "user"
        else turn
        for i, turn in enumerate(turns)
    )
    return stubbed if (size - _chars(stubbed)) * LEAST_GAIN >= how.budget_chars else tuple(turns)


_TEXT_RESULT = re.compile(r'(<result tool="(\w+)".*?>\n)(.*)(\n</result>)', re.DOTALL)


def _stub(block: Block, calls: Mapping[str, ToolUse], keep: Callable[[str], str]) -> Block:
    if block.get("type") == "text" and (made := _TEXT_RESULT.fullmatch(block["text"])):
        # the result of a call that was written as text
        result = {"type": "tool_result", "tool_use_id": "", "content": made[3]}
        text = _stub(result, {"": ToolUse("", made[2], {})}, keep)["content"]
        return {**block, "text": f"{made[1]}{text}{made[4]}"}
    if block.get("type") != "tool_result":
        return block
    content = block.get("content", "")
    size = len(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
    if size < WORTH_STUBBING:
        return block
    use = calls.get(str(block.get("tool_use_id")))
    name = (
        "a call" if use is None else f"{use.name} {json.dumps(dict(use.input), ensure_ascii=False)}"
    )
    read_again = f'read_file, path "{keep(content)}", or ' if isinstance(content, str) else ""
    return {
        **block,
        "content": f"[{size:,} characters left out to make room: the result of"
        f" {at_most(name, 150)}. What the call did stands; to see the result again:"
        f" {read_again}read, search or run again.]",
    }


def _chars(turns: Sequence[Turn]) -> int:
    return sum(_size(block) for turn in turns for block in turn.blocks)


def _size(block: Block) -> int:
    content = block.get("content")
    if block.get("type") == "image":
        return IMAGE_TOKENS * 4  # the length of its base64 does not tell its tokens
    if isinstance(content, list):
        return sum(_size(part) for part in content) + _size({**block, "content": ""})
    return len(json.dumps(block, ensure_ascii=False))
