"""Test which sandbox `placet sandbox` chooses."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitkit import write
from placet.client.sandbox import sandbox_of
from placet.client.site import Site
from placet.errors import UserError
from placet.sandbox.box import Level
from placet.sandbox.probe import probe


@pytest.mark.skipif(probe().level is Level.NONE, reason="this machine has no sandbox")
def test_own_environment_and_hosts_are_there(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    write(tree, {".venv/pyvenv.cfg": "", ".venv/bin/tool": "", "../elsewhere/pyvenv.cfg": ""})
    (tree / "venv").symlink_to("../elsewhere")
    env = {"HOME": str(tmp_path / "home")}
    box, _ = sandbox_of(Site(None, env), tree, env, network=False, hosts=["packages.example"])
    assert box.readable == (tree / ".venv",)
    assert [str(host) for host in box.hosts] == ["packages.example"]
    with pytest.raises(UserError, match=r"localhost") as refused:
        sandbox_of(Site(None, env), tree, env, network=False, hosts=["localhost"])
    assert refused.value.exit_code == 2
