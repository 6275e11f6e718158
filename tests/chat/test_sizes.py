"""Test what answers, prompts and results may take of a model's context."""

from __future__ import annotations

import pytest

from placet.chat.sizes import sizes


@pytest.mark.parametrize("context", [4_096, 8_192, 16_384, 32_768, 200_000, 1_000_000])
@pytest.mark.parametrize("most", [256, 4_096, 16_000, 128_000])
def test_answer_and_prompt_fit_context_together(context: int, most: int) -> None:
    size = sizes(context, most)
    assert size.max_tokens + size.prompt_tokens == context
    assert 256 <= size.max_tokens <= most
    assert size.result_words * 4 <= size.prompt_tokens
    assert size.result_chars <= size.prompt_tokens  # no token is shorter than a character


def test_large_context_leaves_results_whole() -> None:
    size = sizes(200_000, 16_000)
    assert (size.result_words, size.result_chars, size.max_tokens) == (1_000, 60_000, 16_000)
    assert [sizes(n, 4_096).is_small for n in (8_192, 16_383, 16_384)] == [True, True, False]
