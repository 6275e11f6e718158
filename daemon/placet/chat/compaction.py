"""Long conversations made shorter: old tool results replaced by one line each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from placet.chat.budget import IMAGE_TOKENS, prompt_likely
from placet.chat.messages import Ask, Block, ToolUse, Turn, Usage
from placet.errors import at_most

# Characters of a result from which on it is replaced. Longer than any stub, so that no stub is
# replaced again.
WORTH_STUBBING = 500

# A compaction that frees less than this part of the budget is left for later: each one costs the
# cached prefix.
LEAST_GAIN = 4

# How many turns at the end keep their results: the last three rounds, or where that frees too
# little the last one alone.
KEEP_TURNS = (6, 2)


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction as the record keeps it: with these numbers it is the same, byte for byte."""

    keep_last: int
    budget_chars: int


def make_room(
    ask: Ask, last: Usage | None, context_tokens: int, name: Callable[[str], str], *, full: bool
) -> Compaction | None:
    """Return how to shorten the conversation of `ask` before it is sent.

    None where it fits, or nothing worth it could go. It has to fit `context_tokens` together with
    its answer. `last` is what its last reply used; `full` says that the model had no room left
    then: all that can go goes. `name` as in `compacted`.
    """
    # a small model's answers are short, whatever is allowed
    room = max(context_tokens - ask.max_tokens, context_tokens // 2)
    needed = prompt_likely(ask, last)
    if needed <= room and not full:
        return None
    budget = 0 if full else _chars(ask.turns) * room // needed
    made = (Compaction(keep, budget) for keep in KEEP_TURNS)
    return next((one for one in made if compacted(ask.turns, one, name) != ask.turns), None)


def compacted(
    turns: Sequence[Turn], how: Compaction, name: Callable[[str], str]
) -> tuple[Turn, ...]:
    """Replace old tool results by one line each if the conversation is longer than the budget.

    `name` keeps a text whole, for reading on, and returns the path to read. The first turn, the
    last `keep_last` turns and everything that the model said stay as they are. Feed the result back
    with the next turns added: what was replaced stays so, byte for byte, and between two
    compactions no turn changes, so the cached prefix holds. Nothing happens where it would free
    less than a LEAST_GAIN-th of the budget. Raises ValueError for a `keep_last` below 1.
    """
    if how.keep_last < 1:
        raise ValueError("the newest turn cannot be replaced before it was read")
    size = _chars(turns)
    if size <= how.budget_chars:
        return tuple(turns)
    calls = {use.id: use for turn in turns for use in turn.tool_uses}
    old = range(1, len(turns) - how.keep_last)
    stubbed = tuple(
        _stubbed(turn, calls, name) if i in old and turn.role == "user" else turn
        for i, turn in enumerate(turns)
    )
    return stubbed if (size - _chars(stubbed)) * LEAST_GAIN >= how.budget_chars else tuple(turns)


def _stubbed(turn: Turn, calls: Mapping[str, ToolUse], name: Callable[[str], str]) -> Turn:
    return Turn(turn.role, tuple(_stub(block, calls, name) for block in turn.blocks))


def _stub(block: Block, calls: Mapping[str, ToolUse], keep: Callable[[str], str]) -> Block:
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
    whole = f'read_file, path "{keep(content)}", or ' if isinstance(content, str) else ""
    return {
        **block,
        "content": f"[{size:,} characters left out to make room: the result of"
        f" {at_most(name, 150)}. What the call did stands; to see the result again:"
        f" {whole}read, search or run again.]",
    }


def _chars(turns: Sequence[Turn]) -> int:
    return sum(_size(block) for turn in turns for block in turn.blocks)


def _size(block: Block) -> int:
    content = block.get("content")
    if block.get("type") == "image":
        return IMAGE_TOKENS * 4  # what its base64 has of characters says nothing of its tokens
    if isinstance(content, list):
        return sum(_size(part) for part in content) + _size({**block, "content": ""})
    return len(json.dumps(block, ensure_ascii=False))
