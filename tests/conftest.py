"""Give every test its fixtures, and check that no daemon leaves traces in your repositories."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from pgkit import Server
    from vaultkit import TestVault

# A loaded machine is not a defect. Limits of time in tests are those at which something hangs; speed
# is shown by tests/bench.
hypothesis.settings.register_profile(
    "placet", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("placet")

# The suite starts hundreds of processes of placet: each would compile it anew where this is set.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.fixture(autouse=True)
def _repositories_are_the_persons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare people's repositories around each run of a daemon in this process.

    `vaultkit` does so around those of its own.
    """
    from placet.loop.run import Daemon
    from vaultkit import hands_off

    run_once = Daemon.run_once

    def watched(self: Daemon) -> Any:
        with hands_off(self.vault):
            return run_once(self)

    monkeypatch.setattr(Daemon, "run_once", watched)


@pytest.fixture(scope="session", autouse=True)
def _state_is_temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the locks of repositories out of your state folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a home folder with a git identity in force."""
    from gitkit import settle_home

    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def vault(tmp_path: Path, request: pytest.FixtureRequest) -> TestVault:
    """Make a vault as `placet init` makes it, or a bare one for a module marked `bare`."""
    from looping import bare_vault
    from vaultkit import make_vault

    return (bare_vault if request.node.get_closest_marker("bare") else make_vault)(tmp_path)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Start a PostgreSQL server for the tests of one process."""
    import pgkit

    with pgkit.server() as found:
        yield found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the other cases of a table that is `thinned` to the sweeps."""
    seen: Counter[str] = Counter()
    for item in items:
        if (mark := item.get_closest_marker("thinned")) is None:
            continue
        table = item.nodeid.partition("[")[0]
        if seen[table] % mark.args[0]:
            item.add_marker("sweep")
        seen[table] += 1


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what the sweeps counted as one table: `pytest -m sweep`."""
    if config.option.markexpr != "sweep":
        return
    terminalreporter.section("what the sweeps counted")
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            if report.when != "call":
                continue
            told = report.capstdout.strip().splitlines() or ["nothing to count"]
            terminalreporter.write_line(f"{outcome}  {report.duration:7.1f} s  {report.nodeid}")
            for line in told[-12:]:
                terminalreporter.write_line(f"        {line[:240]}")
