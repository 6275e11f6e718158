"""A team for tests: a daemon that does no work itself, workers as processes, one database."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit

import pgkit
from placet_team.outfit import OF_MODEL
from placet_team.postgres import PostgresConnection
from vaultkit import TestVault, make_vault, until

LEASE_S = 2


@dataclass
class Troupe:
    """A vault whose work is done by workers.

    `before` has the words that start a process, by its log's name, where it is elsewhere.
    """

    vault: TestVault
    address: str
    folder: Path
    lease_s: float = LEASE_S
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    before: Mapping[str, Sequence[str]] = field(default_factory=dict)
    remotes: dict[str, str] = field(default_factory=dict)

    @property
    def remote(self) -> Path:
        """The git repository by which commits travel."""
        return self.folder / "work.git"

    @property
    def config(self) -> str:
        """The file with the settings of workers that have the vault's model and sandbox."""
        tables = tomllib.loads((self.vault.root / "System" / "placet.toml").read_text())
        model = {key: said for key, said in tables.get("model", {}).items() if key in OF_MODEL}
        own = {"model": model, "commands": tables.get("commands", {}), "remotes": self.remotes}
        path = self.folder / "worker.toml"
        path.write_text(tomlkit.dumps(own))
        return str(path)

    def start(
        self,
        *words: str,
        log: str,
        env: Mapping[str, str] | None = None,
        program: tuple[str, ...] = ("-m", "placet"),
    ) -> Any:
        with open(self.folder / f"{log}.log", "ab") as said:  # noqa: PTH123 - a handle for the child
            process = subprocess.Popen(
                [*self.before.get(log, ()), sys.executable, *program, *words],
                env={**self.vault.env, **(env or {})},
                stdout=said,
                stderr=said,
                cwd=self.folder,
            )
        self.processes.append(process)
        return process

    def host(self, **env: str) -> Any:
        return self.start("run", "--vault", str(self.vault.root), log="host", env=env)

    def worker(
        self, name: str, *words: str, program: tuple[str, ...] = ("-m", "placet"), **env: str
    ) -> Any:
        """Start a worker with a state folder of its own, as on another machine."""
        home = {"PLACET_STATE_HOME": str(self.folder / f"state-{name}"), **env}
        where = ("--config", self.config, "--remote", str(self.remote))
        words = ("worker", self.address, "--name", name, *where, *words)
        return self.start(*words, log=name, env=home, program=program)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def logs(self) -> str:
        return "\n".join(f"-- {p.stem}\n{p.read_text()}" for p in sorted(self.folder.glob("*.log")))

    def sql(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the database, whoever of the team lives."""
        with closing(PostgresConnection(self.address)) as connection:
            return [tuple(row) for row in connection.execute(sql).fetchall()]

    def change(self, sql: str) -> None:
        """Change the database behind everybody's back."""
        with closing(PostgresConnection(self.address)) as connection:
            connection.execute(sql)

    def rows(self, action: str) -> list[tuple[Any, ...]]:
        """The rows of an action: id, trace_id, metadata."""
        return self.sql(
            f"SELECT id, trace_id, metadata FROM activity WHERE action_type = '{action}' ORDER BY id"
        )

    def until(self, action: str, count: int = 1, patience_s: float = 60) -> Any:
        try:
            return until(lambda: len(self.rows(action)) >= count, action, patience_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"a process did not end\n{self.logs()}") from None
        assert "psycopg." not in self.logs(), "a line of a library's"


@contextmanager
def team(
    folder: Path,
    server: pgkit.Server,
    lease_s: float = LEASE_S,
    vault: TestVault | None = None,
    port: int = 0,
) -> Iterator[Troupe]:
    """Give a team; with a `port` its host reaches the server through that one."""
    vault = vault or make_vault(folder)
    address = server.fresh()
    reached = address.replace(str(server.port), str(port or server.port))
    vault.cli("team", "init", reached, "--remote", str(folder / "work.git"))
    vault.cli("config", "set", "team.workers", "true")
    vault.cli("config", "set", "team.lease_s", f"{lease_s}")
    found = Troupe(vault, address, folder, lease_s)
    try:
        yield found
    finally:
        found.end()


def lose(folder: Path) -> None:
    """Delete a folder in one moment, whatever others make and delete in it meanwhile."""
    gone = folder.rename(folder.with_name(f".gone-{folder.name}"))
    shutil.rmtree(gone, ignore_errors=True)
