"""Test a team whose database server dies and is replaced by a standby."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
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
from gitkit import make_repo
from linekit import line
from teamkit import running_team
from vaultkit import make_vault

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT),
]


@dataclass
class Pair(pgkit.Server):
    """A server with a standby: the address names both, and asks for the one that writes."""

    other: pgkit.Server | None = None

    def address(self, database: str) -> str:
        if database == "postgres" or self.other is None:
            return super().address(database)
        both = f"127.0.0.1:{self.port},127.0.0.1:{self.other.port}"
        return f"postgresql://placet@{both}/{database}?target_session_attrs=read-write"


def standby_of(server: pgkit.Server, folder: Path) -> pgkit.Server:
    """Start a standby, without which the server then acknowledges no commit."""
    user = pgkit._as_ordinary_user()
    if user is not None:
        subprocess.run(["chown", user, folder], check=True)
    program = shutil.which("pg_basebackup") or Path(pgkit.SERVER).with_name("pg_basebackup")
    address = server.address("postgres")
    subprocess.run(
        [program, "-d", address, "-D", folder / "data", "-R", "-X", "stream", "--checkpoint=fast"],
        check=True,
        capture_output=True,
        user=user,
        cwd=folder,
    )
    found = pgkit.Server(folder, pgkit.free_port())
    found.start()
    server.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    server.sql("SELECT pg_reload_conf()")
    return found


def test_team_completes_missions_after_standby_takeover(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo", {"step.py": STEP.format("hello.txt")})
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    vault.script(plan(agent("One")), ("execute", SLOW))
    with (
        pgkit.server() as server,
        tempfile.TemporaryDirectory(prefix="placet-standby.") as folder,
        line(server.port) as unused,
    ):
        standby = standby_of(server, Path(folder))
        pair = Pair(server.folder, server.port, process=server.process, other=standby)
        try:
            with running_team(tmp_path, pair, LEASE_S, vault) as team:
                shared = SharedTeam(team, repo, pair, unused)
                shared.host()
                workers = [team.worker(f"w{n}") for n in range(2)]
                idents = [shared.ask("slow") for _ in range(3)]
                shared.planned(*idents)
                shared.approve(*idents)
                reached(shared, idents[0], "model.called", 2)
                server.stop("kill")
                began = time.monotonic()
                standby.sql("SELECT pg_promote()")
                shared.ended(*idents, patience_s=90)
                bad = [f"{i}: {w}" for i in idents for w in shared.judge(i, *EXPECTED["slow"])]
                shared.fire(*workers)
                said = vault.click("journal", "verify", check=False)
                print(f"all ended {time.monotonic() - began:.0f} s after the server died")
                assert (bad, said.returncode) == ([], 0), f"{said.stdout}{said.stderr}"
        finally:
            standby.stop("kill")
