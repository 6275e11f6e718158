"""Derive from a model's context what an answer, a prompt and a result may take of it."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_WINDOW = 2_048
"""The smallest context in tokens that placet works with, whatever a server says."""

SMALL_WINDOW = 16_384
"""In a context of fewer tokens, the tools for planning leave no room to read with them."""

RESULT_WORDS = 1_000
RESULT_CHARS = 60_000
"""The longest result. Characters count for text with few spaces, such as minified code."""

GUIDANCE_BYTES = 64 * 1024
"""The longest text that is read of a repository's AGENTS.md."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What fits a context.

    `max_tokens` is the longest answer. A prompt of more than `prompt_tokens` is shortened. A tool's
    result has at most so many words and characters, a repository's AGENTS.md so many bytes.
    """

    max_tokens: int
    prompt_tokens: int
    result_words: int
    result_chars: int
    guidance_bytes: int
    is_small: bool


def sizes(context_tokens: int, max_tokens: int) -> Sizes:
    """Return the sizes for a context, with `max_tokens` for an answer as the settings allow."""
    answer = min(max_tokens, context_tokens // 2)
    return Sizes(
        answer,
        context_tokens - answer,
        min(RESULT_WORDS, context_tokens // 16),
        min(RESULT_CHARS, context_tokens * 3 // 8),
        min(GUIDANCE_BYTES, context_tokens),  # a quarter of the context, at 4 bytes a token
        context_tokens < SMALL_WINDOW,
    )
