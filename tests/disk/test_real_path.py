"""Test where paths lead."""

from __future__ import annotations

from pathlib import Path

from placet.disk.real_path import real_path
from vaultkit import make_vault


def test_circle_of_links_stays_as_written(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    assert real_path(tmp_path / "circle") == tmp_path / "circle"


def test_commands_name_a_path_that_is_a_circle(tmp_path: Path) -> None:
    vault, circle = make_vault(tmp_path), tmp_path / "circle"
    circle.symlink_to("circle")
    vault.click("config", "set", "portals.x.path", str(circle))
    for words in (["doctor"], ["portal", "check", "x"], ["init", str(circle), "--no-history"]):
        said = vault.click(*words, check=False)
        assert str(circle) in said.stdout + said.stderr
