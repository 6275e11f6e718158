"""Test which sandbox `placet sandbox` chooses."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitkit import write
from placet.client.sandbox import sandbox_of
from placet.sandbox.box import Level
from placet.sandbox.probe import probe


@pytest.mark.skipif(probe().level is Level.NONE, reason="this machine has no sandbox")
def test_own_environment_is_visible(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    write(tree, {".venv/pyvenv.cfg": "", ".venv/bin/tool": "", "../elsewhere/pyvenv.cfg": ""})
    (tree / "venv").symlink_to("../elsewhere")
    box, _ = sandbox_of(tree, {"HOME": str(tmp_path / "home")}, network=False)
    assert box.readable == (tree / ".venv",)
