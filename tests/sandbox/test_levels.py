"""Test how a command is prepared for its sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from placet.errors import ToolError
from placet.sandbox.box import Box, Level
from placet.sandbox.levels import starting


@pytest.mark.parametrize(
    ("argv", "error_type"),
    [
        ([], "empty_command"),
        (["sh", "a\0b"], "invalid_argument"),
        (["no-such-program"], "command_not_found"),
    ],
)
def test_unusable_command_is_refused(tmp_path: Path, argv: list[str], error_type: str) -> None:
    with (
        pytest.raises(ToolError) as refused,
        starting(argv, Box(tmp_path), Level.NONE, terminal=False),
    ):
        pass
    assert refused.value.error_type == error_type
