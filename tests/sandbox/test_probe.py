"""Test what the attacks on the sandbox say about a list of hosts."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from placet.plan.hosts import NEEDS_LEVEL_3
from placet.sandbox import probe as probing
from placet.sandbox.box import Box, Level
from placet.sandbox.probe import probe, starts
from placet.sandbox.run import run

needs_bubblewrap = pytest.mark.skipif(
    sys.platform != "linux" or not starts(Level.BUBBLEWRAP), reason="needs bubblewrap"
)
ON_LIST = ("reach_unnamed", "reach_other_name")


def blocked(level: Level) -> dict[str, bool]:
    return {found.attack: found.blocked for found in probe(level).attempts}


@needs_bubblewrap
def test_list_is_held_at_level_3() -> None:
    found = probe(Level.BUBBLEWRAP)
    assert (found.level, found.no_hosts) == (Level.BUBBLEWRAP, "")
    assert all(blocked(Level.BUBBLEWRAP)[name] for name in ON_LIST)
    assert not any(blocked(Level.NONE)[name] for name in ON_LIST), "the attacks work"


@needs_bubblewrap
def test_open_network_instead_of_list_is_no_level(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaking(argv: Any, box: Box, level: Level) -> Any:
        open_box = Box(box.worktree, network=bool(box.hosts), limits=box.limits)
        return run(argv, open_box if box.hosts else box, level)

    monkeypatch.setattr(probing, "run", leaking)
    found = probe(Level.BUBBLEWRAP)
    assert found.level is not Level.BUBBLEWRAP
    through = {one.attack for one in found.attempts if one.level == 3 and not one.blocked}
    assert through == {"connect_tcp", "send_udp", *ON_LIST}


@needs_bubblewrap
def test_unreached_named_host_keeps_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_private(argv: Any, box: Box, level: Level) -> Any:
        return run(argv, Box(box.worktree, hosts=box.hosts, limits=box.limits), level)

    monkeypatch.setattr(
        probing, "run", lambda *given: (without_private if given[1].hosts else run)(*given)
    )
    found = probe(Level.BUBBLEWRAP)
    assert found.level is Level.BUBBLEWRAP
    assert "is in a private network" in found.no_hosts


def test_no_hosts_without_level_3() -> None:
    assert probe(Level.NONE).no_hosts == NEEDS_LEVEL_3
