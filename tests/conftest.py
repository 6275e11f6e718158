"""What holds for every test: no daemon that a test starts leaves a trace in what is a person's."""

from __future__ import annotations

from typing import Any

import pytest

from placet.app import Daemon
from vaultkit import hands_off


@pytest.fixture(autouse=True)
def _repositories_are_the_persons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare people's repositories around each run of a daemon in this process; `vaultkit` does so around those of its own."""
    run_once = Daemon.run_once

    def watched(self: Daemon) -> Any:
        with hands_off(self.vault):
            return run_once(self)

    monkeypatch.setattr(Daemon, "run_once", watched)
