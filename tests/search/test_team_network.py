"""Cut each line between five machines of a team, one way and both."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.search.test_team_faults import (
    EXPECTED,
    LEASE_S,
    SLOW,
    STEP,
    SharedTeam,
    agent,
    plan,
    reached,
)

import pgkit
from gitkit import commit_all, make_repo
from linekit import line
from netkit import Net, net
from teamkit import running_team
from vaultkit import make_vault, until

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT),
]
CUT_S = float(os.environ.get("CUT_S", "7"))
ON_AFTER_S = 10.0


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SharedTeam, Net]]:
    folder = tmp_path_factory.mktemp("five")
    vault = make_vault(folder)
    repo = make_repo(folder / "repo", {"step.py": STEP.format("hello.txt")})
    vault.configure(f'[limits]\nday_tokens = 1_000_000_000\n[portals.code]\npath = "{repo}"\n')
    vault.script(plan(agent("One")), ("execute", SLOW))
    with (
        net("host", "one", "two", "db", "remote") as machines,
        pgkit.server(machines.address("db"), machines.at("db")) as server,
        line(server.port) as unused,
        running_team(folder, server, LEASE_S, vault) as team,
    ):
        team.before = {name: machines.at(name) for name in machines.names}
        kit = Path(__file__).parents[1] / "kit/remotekit.py"
        served = f"http://{machines.address('remote')}:8080/work.git"
        words = (str(folder), machines.address("remote"), "8080")
        team.start(*words, log="remote", program=(str(kit),))
        vault.click("config", "set", "team.work_remote", served)
        shared = SharedTeam(team, repo, server, unused)
        shared.host()
        for name in ("one", "two"):
            team.worker(name, "--remote", served)
        shared.ready("one", "two")
        yield shared, machines


def beats(shared: SharedTeam, name: str) -> Callable[[], object]:
    """Return a question: did a worker, or the daemon, say that it lives?"""
    asked = (
        f"SELECT beat_s FROM team_members WHERE name = '{name}'"
        if name != "host"
        else "SELECT expires_s FROM leases WHERE trace_id = 'vault'"
    )
    before = shared.team.sql(asked)
    return lambda: shared.team.sql(asked) != before


LINES = [(one, to) for one in ("one", "two", "host") for to in ("db", "remote")]
WAYS = ("there", "back", "both")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ends", [*LINES, ("one,two", "remote")], ids="-".join)
def test_team_recovers_from_cut_network_link(
    five: tuple[SharedTeam, Net], ends: tuple[str, str], way: str
) -> None:
    shared, machines = five
    names, to = ends[0].split(","), ends[1]
    idents = [shared.ask("slow") for _ in range(2)]
    shared.planned(*idents)
    cuts = [(name, to) for name in names if way != "back"]
    cuts += [(to, name) for name in names if way != "there"]
    if to == "remote":
        commit_all(shared.repo, "News")  # so that it has to be pushed and fetched
        idents = [shared.ask("slow") for _ in range(2)]
    else:
        shared.approve(*idents)
        reached(shared, idents[0], "model.called", 2)
    for cut in cuts:
        machines.cut(*cut)
    time.sleep(CUT_S)
    lives = [beats(shared, name) for name in names]
    for cut in cuts:
        machines.mend(*cut)
    began = time.monotonic()
    if to == "remote":
        shared.planned(*idents)
    else:
        until(lambda: all(one() for one in lives), "signs of life", 60)
    took_s = time.monotonic() - began
    if to == "remote":
        shared.approve(*idents)
    shared.ended(*idents, patience_s=90)
    bad = [f"{one}: {what}" for one in idents for what in shared.judge(one, *EXPECTED["slow"])]
    print(f"{'+'.join(names)}-{to} {way}: goes on after {took_s:.1f} s; bad: {bad}", flush=True)
    assert bad == []
    assert took_s < ON_AFTER_S


def test_journal_verifies_after_network_cuts(five: tuple[SharedTeam, Net]) -> None:
    said = five[0].vault.click("journal", "verify", check=False)
    assert said.returncode == 0, f"{said.stdout}\n{said.stderr}"
