from __future__ import annotations

from decimal import Decimal

import pytest

from placet.plan.statement import Terms, read_statement

TERMS = Terms(
    "4f" * 32,
    "fix-the-median",
    "550e8400-e29b-41d4-a716-446655440000",
    "code",
    "8d" * 20,
    "claude-opus-5-5 (anthropic)",
    3,
    (("SYSTEM_PROMPT.md", "91" * 32),),
    Decimal("0.50"),
    10,
)
NONCE = f"nonce 0-{'6f' * 16}\n"


def test_statement_says_what_is_approved() -> None:
    lines = TERMS.lines().splitlines()
    assert lines[:5] == [
        "placet approval 1",
        f"plan sha256:{'4f' * 32}",
        "request fix-the-median",
        "trace 550e8400-e29b-41d4-a716-446655440000",
        f"repository code, base {'8d' * 20}",
    ]
    assert lines[5].startswith("model claude-opus-5-5 (anthropic), sandbox 3, instructions sha256:")
    assert lines[5].endswith(", at most $0.50 and 10 iterations")


def test_statement_is_read_back() -> None:
    stated = read_statement(TERMS.lines() + NONCE)
    assert stated is not None
    assert (stated.digest, stated.base_commit) == (TERMS.digest, TERMS.base_commit)
    assert (stated.lines, stated.nonce) == (TERMS.lines(), f"0-{'6f' * 16}")


@pytest.mark.parametrize(
    "text",
    ["", TERMS.lines(), NONCE, TERMS.lines() + NONCE * 2, TERMS.lines() + NONCE + "more\n"],
)
def test_other_text_is_no_statement(text: str) -> None:
    assert read_statement(text) is None


def test_portal_cannot_add_a_line() -> None:
    from dataclasses import replace

    evil = replace(TERMS, portal="code\nnonce 1", request_id="a\nplan sha256:00")
    stated = read_statement(evil.lines() + NONCE)
    assert stated is not None
    assert (stated.digest, len(evil.lines().splitlines())) == (TERMS.digest, 6)
