"""Start a team: a daemon without work of its own, worker processes and one database."""

from __future__ import annotations

import json
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
from gitkit import git
from journalkit import World
from placet import __version__
from placet.case.lease import Owner
from placet.journal.database import address_file
from placet.journal.writer import Journal
from placet.journal.writes import AcquireLease, PutText
from placet_team.command import let_in as insert_worker
from placet_team.postgres import PostgresConnection
from placet_team.postgres_schema import create_tables
from placet_team.tables import HandWork, PutWork, queue_of
from placet_team.worker_journal import WorkerJournal
from placet_team.worker_setup import OF_MODEL
from vaultkit import TestVault, make_vault, until

LEASE_S = 2


@dataclass
class TestTeam:
    """A vault whose work is done by workers.

    `before` has the words that start a process, by its log's name, where it is elsewhere.
    """

    __test__ = False

    vault: TestVault
    address: str
    folder: Path
    server: pgkit.Server
    lease_s: float = LEASE_S
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    before: Mapping[str, Sequence[str]] = field(default_factory=dict)
    remotes: dict[str, str] = field(default_factory=dict)
    roles: dict[tuple[str, str], str] = field(default_factory=dict)

    def role(self, name: str, labels: str = "any") -> str:
        """Return a worker's address, with a role of its own."""
        if (name, labels) not in self.roles:
            self.roles[name, labels] = let_in(self.server, self.address, name, labels)
        return self.roles[name, labels]

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
        self,
        name: str,
        *words: str,
        labels: str = "any",
        program: tuple[str, ...] = ("-m", "placet"),
        **env: str,
    ) -> Any:
        """Start a worker with a state folder of its own, as on another machine."""
        home = {"PLACET_STATE_HOME": str(self.folder / f"state-{name}"), **env}
        where = ("--config", self.config, "--remote", str(self.remote))
        words = ("worker", self.role(name, labels), *where, *words)
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

    def approve_hello(self) -> None:
        """Let the team plan a request for the portal `code`, and approve the plan."""
        self.vault.drop("---\nportal: code\n---\n# Say hello\n")
        until(self.vault.plan().exists, self.logs(), 60)
        self.vault.approve()

    def hello_of_branch(self) -> str:
        """Wait until the mission is completed; return hello.txt on its branch in `code`."""
        self.until("report.written")
        assert self.rows("execution.completed"), self.logs()
        branch = git(self.folder / "code", "branch", "--list", "feat/*").strip()
        return git(self.folder / "code", "show", f"{branch}:hello.txt")

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


def let_in(server: pgkit.Server, address: str, name: str, labels: str = "any") -> str:
    """Let a worker in, as an administrator does with the words of `placet team init --worker`.

    Return its address.
    """
    database = address.rpartition("/")[2].partition("?")[0]
    sql = insert_worker(address, name, labels, slots=64).sql  # roles are those of all tests
    create, rest = sql.split("\n", 1)
    make = f"DO $$ BEGIN {create} EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    server.sql(f"{make};\n{rest}", database)
    return address.replace("//placet@", f"//{name}@", 1)


@contextmanager
def running_team(
    folder: Path,
    server: pgkit.Server,
    lease_s: float = LEASE_S,
    vault: TestVault | None = None,
    port: int = 0,
) -> Iterator[TestTeam]:
    """Give a team; with a `port` its host reaches the server through that one."""
    vault = vault or make_vault(folder)
    address = server.fresh()
    reached = address.replace(str(server.port), str(port or server.port))
    vault.click("team", "init", reached, "--remote", str(folder / "work.git"))
    vault.click("config", "set", "team.workers", "true")
    vault.click("config", "set", "team.lease_s", f"{lease_s}")
    found = TestTeam(vault, address, folder, server, lease_s)
    try:
        yield found
    finally:
        found.end()


def team_database(server: pgkit.Server) -> str:
    """Return the address of a database with all tables of a team; nobody uses it."""
    address = server.fresh()
    create_tables(address)
    return address


@contextmanager
def journal_in(folder: Path, address: str) -> Iterator[Journal]:
    """Open the journal of a database, as a daemon with this folder does."""
    folder.mkdir(exist_ok=True)
    address_file(folder / "journal.db").write_text(address)
    with World(folder / "journal.db").open() as found:
        yield found


def lose(folder: Path) -> None:
    """Delete a folder in one moment, whatever others make and delete in it meanwhile."""
    gone = folder.rename(folder.with_name(f".gone-{folder.name}"))
    shutil.rmtree(gone, ignore_errors=True)


@dataclass(frozen=True)
class Workers:
    """Workers of a database that no process is behind: what they write, by their own roles."""

    server: pgkit.Server
    address: str

    def role(self, name: str) -> str:
        """Let a worker in; return its address."""
        return let_in(self.server, self.address, name)

    def call(self, name: str, function: str, *values: Any) -> Any:
        """Call one of the functions of `workers.sql` as the worker `name`."""
        role = self.address.replace("//placet@", f"//{name}@", 1)
        with closing(WorkerJournal(role, Path("journal"), print)) as journal:
            return journal.call(function, *values)

    def beat(self, name: str, labels: str = "any", **other: Any) -> bool:
        """Let a worker in, and show a sign of life of it."""
        values = {"owner": name, "level": 3, "version": __version__, "slots": 2}
        values = {**values, "gone": "", "under_way": [], **other}
        if not values["owner"].startswith("{"):
            values["owner"] = owner_json(values["owner"])
        let_in(self.server, self.address, name, labels)
        return bool(self.call(name, "worker_beat", *values.values())[0] != "taken")


def journal_of(workers: Workers, name: str) -> WorkerJournal:
    role = workers.address.replace("//placet@", f"//{name}@")
    return WorkerJournal(role, Path("journal"), print)


def handed(
    daemon: Journal,
    workers: Workers,
    name: str,
    trace: str,
    most: tuple[int | None, str | None] = (None, None),
) -> int:
    """Hand a piece of work to a worker, with these limits; return its token."""
    daemon.commit([PutWork(trace, 1, planning=False, queue=queue_of("any", 2), priority=0)])
    assert claim(workers, name) == trace
    daemon.commit([PutText(f"text of {trace}", b"the plan")])
    token = daemon.commit([AcquireLease(trace, Owner("far", "boot", 7, "1"), 30.0)]).token
    daemon.commit([HandWork(trace, 1, name, token, f"with text of {trace}", *most)])
    return token


def claim(workers: Workers, name: str, owner: str = "") -> str | None:
    """Claim work as the process `owner` of a worker, by default the one of `Workers.beat`."""
    found: str | None = workers.call(name, "worker_claim", owner or owner_json(name), [])
    return found


def owner_json(name: str, host: str = "here", boot_id: str = "boot") -> str:
    return json.dumps({"host": host, "boot_id": boot_id, "pid": 7, "pid_start": name})
