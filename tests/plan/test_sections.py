"""Test which sections a plan's text has."""

from __future__ import annotations

import pytest

from placet.plan.sections import rejection_reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("# t\n\n## Rejection\n\ntoo *broad*\n\nreally\n\n## Risks\n", "too *broad*\n\nreally"),
        ("## Rejection Reason:\r\nno\r\n", "no"),
        ("### rejection\nno", "no"),
        ("## Rejection: too broad", "too broad"),
        ("## Rejection\nmore", "more"),
        ("# t\n", ""),
        ("```\n## Rejection\nno\n```", ""),
        ("## Rejection\n", ""),
    ],
)
def test_rejection_section_gives_reason(body: str, reason: str) -> None:
    assert rejection_reason(body) == reason
