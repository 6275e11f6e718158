"""Measure a team's missions a minute.

`python -m tests.bench team` runs real workers, `simulated` such as have neither git nor sandbox,
`beside` a team over ssh next to a daemon that does the work itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pgkit
from gitkit import make_repo
from placet.activity import Action, Activity, Actor, Entity
from placet.case.mission_result import MissionResult, Spent
from placet.chat.cancel import Cancel
from placet.host.clock import Clock
from placet.host.lock import this_process
from placet.journal.writes import AddActivity, AddRecord, Guard
from placet.sandbox.box import Level
from placet_team.postgres import PostgresConnection
from placet_team.tables import PutResult, work_row
from placet_team.work_dispatch import OWNER_JSON
from placet_team.work_item import packed_result
from placet_team.worker import Worker, WorkerId
from placet_team.worker_journal import WorkerJournal
from placet_team.worker_setup import Machine, WorkerSettings
from sshkit import ssh_server
from teamkit import TestTeam, running_team
from vaultkit import PLAN, TestVault, make_vault, running, until

TICK = os.sysconf("SC_CLK_TCK")
MODEL_S = 0.2
ROUNDS = 10
COMMITS = 5
"""Commits of a worker in a round, as the record of a real one has them."""


def processor_s(postmaster: int) -> float:
    """The processor's time of PostgreSQL: its processes, and those that ended."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) == postmaster:
            total += sum(map(int, fields[11:15]))
        elif int(fields[1]) == postmaster:
            total += sum(map(int, fields[11:13]))
    return total / TICK


def playing(folder: Path, at_once: int, model_s: float) -> TestVault:
    """Make a vault whose missions have ROUNDS rounds, each so long at the model."""
    vault = make_vault(folder)
    rounds = [
        *(("write_file", {"path": "hello.txt", "content": f"{n}\n"}) for n in range(ROUNDS - 2)),
        ("complete_step", {"step": 1, "summary": "-"}),
        ("finish", {"summary": "Done."}),
    ]
    vault.plays(PLAN, *({"delay_s": model_s, "calls": [one]} for one in rounds))
    vault.cli("config", "set", "daemon.missions_at_once", f"{at_once}")
    vault.cli("config", "set", "daemon.plans_at_once", "8")
    return vault


@contextmanager
def planned(server: pgkit.Server, missions: int) -> Iterator[TestTeam]:
    """A vault with so many plans that wait, and nobody of the team at work."""
    with tempfile.TemporaryDirectory(prefix="placet-bench-") as name:
        folder = Path(name)
        vault = playing(folder, 500, MODEL_S)
        vault.cli("config", "set", "vault.history", "true")
        with running_team(folder, server, lease_s=60, vault=vault) as found:
            found.host()
            planner = found.worker("planner", "--slots", "4")
            for n in range(missions):
                vault.drop("# Say hello\n", f"r{n}.md")
            plans = vault.root / "Inbox/Plans"
            until(lambda: len(list(plans.glob("*_plan.md"))) == missions, "plans", 900)
            planner.terminate()
            planner.wait()
            yield found


def carried_out(found: TestTeam, missions: int) -> float:
    """Approve all plans; return the seconds until the last mission has ended."""
    until(lambda: found.sql("SELECT count(*) FROM team_members")[0][0] > 0)
    began = time.monotonic()
    for plan in (found.vault.root / "Inbox/Plans").glob("*_plan.md"):
        plan.rename(found.vault.root / "System/Active" / plan.name.replace("_plan", ""))
    sql = "SELECT count(*) FROM activity WHERE action_type = 'execution.completed'"
    with closing(PostgresConnection(found.address)) as connection:
        while connection.execute(sql).fetchone()[0] < missions:
            time.sleep(0.25)
    return time.monotonic() - began


def measured(workers: int, each: int, simulated: bool) -> tuple[float, float, float]:
    """Return seconds, the ideal ones, and the database's processor time for a mission."""
    missions = workers * each
    with pgkit.server() as server, planned(server, missions) as found:
        if simulated:
            for n in range(0, workers, 8):
                some = min(8, workers - n)
                argv = [sys.executable, "-m", "tests.bench.team", found.address, f"{n}", f"{some}"]
                log = open(found.folder / f"simulated{n}.log", "wb")  # noqa: PTH123, SIM115 - a handle for the child
                found.processes.append(
                    subprocess.Popen(argv, stderr=log, stdout=log, cwd=Path(__file__).parents[2])
                )
        else:
            for n in range(workers):
                found.worker(f"w{n}")
        until(lambda: found.sql("SELECT count(*) FROM team_members")[0][0] == workers, "", 120)
        before = processor_s(server.running.pid)
        took_s = carried_out(found, missions)
        paid_s = processor_s(server.running.pid) - before
    return took_s, MODEL_S * ROUNDS * each, paid_s / missions


# --- a team over ssh, beside a daemon that does the work itself


def machine_s() -> float:
    """The processor's time that all of this machine has used."""
    user, nice, system, _idle, _waits, *interrupts = map(
        int, Path("/proc/stat").read_text().split(maxsplit=9)[1:8]
    )
    return (user + nice + system + sum(interrupts)) / TICK


def requested(vault: TestVault, missions: int, ended: Callable[[], int]) -> tuple[float, float]:
    """Have requests planned, then approve all.

    Return missions a minute, and the machine's processor time in s for a request.
    """
    used = machine_s()
    for n in range(missions):
        vault.drop("---\nportal: code\n---\n# Say hello\n", f"r{n}.md")
    plans = vault.root / "Inbox/Plans"
    until(lambda: len(list(plans.glob("*_plan.md"))) == missions, "plans", 900)
    began = time.monotonic()
    for plan in plans.glob("*_plan.md"):
        plan.rename(vault.root / "System/Active" / plan.name.replace("_plan", ""))
    until(lambda: ended() == missions, "missions", 900)
    took_s = time.monotonic() - began
    return missions / took_s * 60, (machine_s() - used) / missions


def embedded(slots: int, missions: int, model_s: float) -> tuple[float, float]:
    """Measure a daemon that does the work itself, as `requested` does."""
    with tempfile.TemporaryDirectory(prefix="placet-bench-") as name:
        vault = playing(Path(name), slots, model_s)
        vault.cli("portal", "add", "code", str(make_repo(Path(name) / "code")))
        with running(vault):
            return requested(vault, missions, lambda: len(vault.rows("execution.completed")))


def over_ssh(
    workers: int, slots: int, missions: int, model_s: float
) -> tuple[float, float, float, int]:
    """Measure a team whose commits travel over ssh.

    Return what `requested` does, logins of ssh for a request, and the connections to the database.
    A shell of the user whose start-up takes long counts for each push.
    """
    with (
        tempfile.TemporaryDirectory(prefix="placet-bench-") as name,
        pgkit.server() as server,
        ssh_server(folder := Path(name)) as ssh,
    ):
        vault = playing(folder, workers * slots, model_s)
        vault.cli("portal", "add", "code", str(make_repo(folder / "code")))
        with running_team(folder, server, lease_s=30, vault=vault) as found:
            remote = ssh.address(found.remote)
            vault.cli("config", "set", "team.work_remote", remote)
            found.host(GIT_SSH_COMMAND=ssh.command)
            for n in range(workers):
                own = {"PLACET_STATE_HOME": str(folder / f"state-w{n}")}
                words = ("--config", found.config, "--remote", remote, "--slots", f"{slots}")
                env = {**own, "GIT_SSH_COMMAND": ssh.command}
                found.start("worker", found.role(f"w{n}"), *words, log=f"w{n}", env=env)
            with closing(PostgresConnection(found.address)) as connection:

                def count(what: str) -> int:
                    return int(connection.execute(f"SELECT count(*) FROM {what}").fetchone()[0])

                until(lambda: count("team_members") == workers, "workers", 60)
                ended = "activity WHERE action_type = 'execution.completed'"
                a_minute, used_s = requested(vault, missions, lambda: count(ended))
                lines = count("pg_stat_activity WHERE datname = current_database()") - 1
            return a_minute, used_s, ssh.logins() / missions, lines


# --- workers without git and sandbox: `python -m tests.bench.team ADDRESS FIRST COUNT`


class Simulated(Worker):
    """A worker that commits what a real one does, and does nothing else."""

    def _carry(self, trace_id: str, token: int) -> None:
        self.under_way[trace_id] = token, Cancel()
        with self.journal.read() as reader:
            row = work_row(reader.connection, trace_id)
        assert row is not None
        guard = Guard(trace_id, token)
        seq = 1_000  # above those of the daemon
        for n in range(ROUNDS):
            time.sleep(MODEL_S)
            for _ in range(COMMITS):
                seq += 1
                entry = AddRecord(
                    row.trace_id, row.generation, seq, "outcome", f"x:{seq}", bytes(800)
                )
                about = Activity(
                    Clock().now(),
                    row.trace_id,
                    Actor.AGENT,
                    Action.TOOL_CALLED,
                    Entity.MISSION,
                    "x",
                    "default",
                    {"tool": "write_file", "target": "hello.txt", "ok": True, "iteration": n},
                )
                self.journal.commit([guard, entry, AddActivity(about)])
        done = MissionResult(spent=Spent(ROUNDS), repository="")
        self.journal.commit([guard, PutResult(*packed_result(done))])
        del self.under_way[row.trace_id]


def simulate(address: str, name: str, folder: Path) -> None:
    owner = OWNER_JSON.dump_json(this_process()).decode().replace('"pid"', f'"of":"{name}","pid"')
    role = address.replace("//placet@", f"//{name}@", 1)
    with closing(WorkerJournal(role, folder / "journal", print)) as journal:
        machine = Machine(
            journal, folder, os.environ, Level.BUBBLEWRAP, (), print, WorkerSettings()
        )
        worker = Simulated(WorkerId(name, 1), journal, machine, print, owner)
        with worker.joined():
            worker.work(lambda: False)


def main() -> None:
    address, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    threads = []
    for n in range(first, first + count):
        folder = Path(tempfile.mkdtemp(prefix="placet-simulated-"))
        threads.append(
            threading.Thread(target=simulate, args=(address, f"s{n}", folder), daemon=True)
        )
    for thread in threads:
        thread.start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
