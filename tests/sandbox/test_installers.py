"""Install a small package through a list of hosts, from the registries that this machine uses.

No registry is named here: pip and npm are asked for theirs. A machine that reaches none skips.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from placet.plan.hosts import Host, host_from
from placet.sandbox.box import Box, Level, Ran
from placet.sandbox.probe import starts
from placet.sandbox.run import run

PACKAGE = {"pip": "iniconfig", "npm": "is-odd"}
PYTHON = str(Path(sys.executable).resolve())


@pytest.fixture(scope="module", autouse=True)
def _level_3() -> None:
    if sys.platform != "linux" or not starts(Level.BUBBLEWRAP):
        pytest.skip("needs bubblewrap")


def said_by(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True).stdout.strip()


def page(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=20) as found:
            return str(found.read().decode())
    except OSError as error:
        pytest.skip(f"this machine reaches no such registry: {error}")


def host_of(address: str) -> Host:
    parts = urlsplit(address)
    if parts.scheme != "https":
        pytest.skip("this machine's registry is not on https")
    return host_from(f"{parts.hostname}:{parts.port or 443}")


def pips() -> tuple[str, Host, Host]:
    """Return pip's index, its host, and the host of the package's files."""
    built_in = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    configured = said_by(PYTHON, "-m", "pip", "config", "get", "global.index-url")
    index = configured or said_by(PYTHON, "-c", built_in)
    if not index:
        pytest.skip("pip names no index")
    links = re.findall(r'href="([^"#]+)', page(f"{index.rstrip('/')}/{PACKAGE['pip']}/"))
    return index, host_of(index), host_of(urljoin(index, links[-1]))


def in_box(tree: Path, hosts: Sequence[Host], *argv: str) -> Ran:
    box = Box(tree, hosts=tuple(hosts), private_hosts=tuple(hosts))
    return run(argv, box, Level.BUBBLEWRAP)


def pip(tree: Path, index: str, *hosts: Host) -> Ran:
    own = ["--index-url", index, "--retries", "0", "--no-cache-dir", "--target", "out"]
    if certificates := os.environ.get("PIP_CERT"):
        own += ["--cert", certificates]
    return in_box(tree, hosts, PYTHON, "-m", "pip", "install", *own, PACKAGE["pip"])


def test_pip_installs_from_named_hosts(tmp_path: Path) -> None:
    index, simple, files = pips()
    ran = pip(tmp_path, index, simple, files)
    assert ran.exit_code == 0, ran.stderr
    assert (tmp_path / "out" / PACKAGE["pip"]).is_dir()
    assert {row.host for row in ran.reached} == {simple.name, files.name}
    assert not any(row.refusal for row in ran.reached)


def test_pip_names_the_host_left_out(tmp_path: Path) -> None:
    index, simple, files = pips()
    if simple == files:
        pytest.skip("one host has both")
    ran = pip(tmp_path, index, simple)
    assert ran.exit_code != 0
    assert f"403 {files.name}:{files.port} is not in the plan's network" in ran.stdout + ran.stderr
    assert ran.reached[0].verdict == "is not in the plan's network"


def npm(tree: Path, registry: str, *hosts: Host) -> Ran:
    own = ["--registry", registry, "--fetch-retries", "0", "--cache", "cache", "--no-audit"]
    if (certificates := said_by("npm", "config", "get", "cafile")).startswith("/"):
        own += ["--cafile", certificates]
    return in_box(tree, hosts, "npm", "install", *own, PACKAGE["npm"])


@pytest.mark.parametrize("is_named", [True, False])
def test_npm_installs_only_from_named_host(tmp_path: Path, *, is_named: bool) -> None:
    if shutil.which("npm") is None:
        pytest.skip("needs npm")
    registry = said_by("npm", "config", "get", "registry")
    host = host_of(registry)
    page(f"{registry.rstrip('/')}/{PACKAGE['npm']}")
    (tmp_path / "package.json").write_text("{}")
    ran = npm(tmp_path, registry, host if is_named else Host("packages.example"))
    if is_named:
        assert ran.exit_code == 0, ran.stderr
        assert (tmp_path / "node_modules" / PACKAGE["npm"]).is_dir()
    else:
        assert f"{host.name}:{host.port} is not in the plan's network" in ran.stderr
