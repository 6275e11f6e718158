"""Test which settings hold while a daemon starts and runs."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

from placet.host.accepted import change, in_force
from placet.host.clock import Clock
from placet.host.state import vault_state
from placet.loop.config_watch import ConfigWatch
from vaultkit import make_vault


def test_change_during_first_start_is_accepted(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    state = vault_state(vault.root, vault.env)
    state.ensure()
    starting = ConfigWatch.load(vault.root, vault.env, state, Clock(), Mock())
    change(vault.root, vault.env, {("portals", "code", "path"): str(tmp_path)})
    starting.accept_first(Mock())
    assert in_force(vault.root, vault.env).names == []
