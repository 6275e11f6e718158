"""Test that placet finds its plug-ins, and looks for each one once."""

from __future__ import annotations

import importlib.metadata

import pytest

from placet.errors import UserError
from placet.host.plugins import JOURNALS, plugin


def test_installed_packages_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = plugin(JOURNALS, "postgresql")

    def read_again(**_: str) -> None:
        raise AssertionError

    monkeypatch.setattr(importlib.metadata, "entry_points", read_again)
    assert plugin(JOURNALS, "postgresql") is first


def test_missing_plugin_names_what_to_install() -> None:
    with pytest.raises(UserError, match="pip install"):
        plugin(JOURNALS, "mongodb")
