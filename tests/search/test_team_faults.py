"""Kill and freeze workers, kill hosts and databases, and make gestures meanwhile.

A sample runs always; `pytest -m sweep` tries every place.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import pgkit
from disks import fill_up, small_disk_at
from gitkit import git, make_repo
from linekit import Line, line
from messages_api import Answer, Json, MessagesApi, call, reply
from placet.case.case import CASE_JSON
from placet.host.clock import Clock
from placet.host.lock import boot_id, boottime_s
from placet.journal.database import DatabaseAway, address_file, address_of
from placet.journal.writer import Journal
from placet_team.job_queue import make_queue
from placet_team.postgres import FROZEN_S, PostgresConnection, PostgresStore
from placet_team.postgres_schema import create_tables
from placet_team.team_cache import TeamCache
from placet_team.work_dispatch import Team
from teamkit import TestTeam, Workers, running_team
from vaultkit import PLAN, make_vault, until

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)

LEASE_S = 3
FAIL = Path(__file__).parents[1] / "kit/teamfail.py"
STEP = "import pathlib\np = pathlib.Path('{0}')\np.write_text(p.read_text() + 'more\\n')\n"


def plan(*steps: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    scope = {"write": ["*.txt"], "run": ["python3 step.py", "python3 literal.py", "sleep"]}
    return "plan", [{"calls": [("submit_plan", {**PLAN, "scope": scope, "steps": list(steps)})]}]


def agent(title: str) -> dict[str, Any]:
    return {"title": title, "tools": ["write_file", "edit_file", "run_command"]}


LITERAL = {
    "title": "Literal",
    "tools": ["write_file", "run_command"],
    "actions": [
        {"tool": "write_file", "params": {"path": "literal.txt", "content": "literal\n"}},
        {"tool": "run_command", "params": {"command": "python3", "args": ["literal.py"]}},
    ],
}


def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": content}


def step(number: int) -> tuple[str, dict[str, Any]]:
    return "complete_step", {"step": number, "summary": f"Step {number}"}


RUN = ("run_command", {"command": "python3", "args": ["step.py"]})
EDIT = ("edit_file", {"path": "hello.txt", "old": "one", "new": "two"})
FINISH = ("finish", {"summary": "Done."})
QUESTION = ("ask_person", {"question": "Which?", "options": ["Hello", "Moin"]})
WIDER = ("request_scope", {"why": "It has a note.", "write": ["note.md"]})

WHOLE: list[dict[str, Any]] = [
    {"calls": [write("hello.txt", "one\n"), EDIT]},
    {"calls": [RUN, ("read_file", {"path": "hello.txt"})]},
    {"calls": [step(1), write("other.txt", "x\n")]},
    {"calls": [write("other.txt", "y\n"), RUN, step(3)]},
    {"calls": [FINISH]},
]
FILES = {"hello.txt": "two\nmore\nmore", "literal.txt": "literal\nmore", "other.txt": "y"}
FAILS: list[dict[str, Any]] = [
    {"calls": [write("hello.txt", "one\n"), step(1)]},
    {"calls": [write("other.txt", "half\n"), RUN]},
    {"calls": [("give_up", {"reason": "It cannot be done."})]},
]
ASKS: list[dict[str, Any]] = [
    {"calls": [write("hello.txt", "one\n"), RUN, QUESTION]},
    {"calls": [RUN, step(1), FINISH]},
]
WIDENS: list[dict[str, Any]] = [
    {"calls": [write("hello.txt", "one\n"), RUN, WIDER]},
    {"calls": [write("note.md", "note\n"), step(1), FINISH]},
]
SLOW: list[dict[str, Any]] = [
    {"calls": [write("hello.txt", "one\n"), RUN]},
    {"calls": [RUN], "delay_s": 2.0},
    {"calls": [EDIT, step(1), FINISH], "delay_s": 2.0},
]
HELD = (
    "SELECT 1 FROM team_held JOIN leases ON trace_id = split_part(key, ':', 1) "
    "AND token::text = split_part(key, ':', 3) WHERE held"
)
"""The model calls of those who have a lease now; what a frozen one asked may still stand there."""
COMMAND: list[dict[str, Any]] = [
    {"calls": [write("hello.txt", "one\n")]},
    {"calls": [("run_command", {"command": "sleep", "args": ["30"]})]},
    {"calls": [step(1), FINISH]},
]


@contextmanager
def journal_at(folder: Path, address: str) -> Iterator[Journal]:
    """Give a journal in a database that a team uses."""
    create_tables(address)
    make_queue(address)
    folder.mkdir()
    address_file(folder / "journal.db").write_text(f"{address}\n")
    with Journal(
        folder / "journal.db",
        now=Clock().wall,
        boottime_s=boottime_s,
        boot_id=boot_id(),
        on_trouble=print,
    ) as journal:
        yield journal


@dataclass
class Squad:
    """A team whose host lives through several tests; each has requests of its own."""

    team: TestTeam
    repo: Path
    server: pgkit.Server
    line: Line
    boss: Any = None
    made: Counter[str] = field(default_factory=Counter)

    @property
    def vault(self) -> Any:
        return self.team.vault

    def host(self, **env: str) -> Any:
        said = self.team.log("host").count("watching")
        self.boss = self.team.host(**env)
        until(lambda: self.team.log("host").count("watching") > said, "the host", 60)
        return self.boss

    def failing(self, name: str, at: int, *words: str, how: str = "SIGKILL") -> Any:
        """Start a worker that kills itself at a point."""
        log = self.points(name)
        home = {"PLACET_STATE_HOME": str(self.team.folder / f"state-{name}")}
        with open(self.team.folder / f"{name}.log", "ab") as said:  # noqa: PTH123 - for the child
            process = subprocess.Popen(
                [
                    *(sys.executable, str(FAIL), str(at), str(log)),
                    *("worker", self.team.role(name)),
                    *("--config", self.team.config, "--remote", str(self.team.remote), *words),
                ],
                env={**self.vault.env, **home, "FAULT_SIGNAL": how},
                stdout=said,
                stderr=said,
                cwd=self.team.folder,
            )
        self.team.processes.append(process)
        return process

    def failing_host(self, at: int) -> Any:
        """Start a host that kills itself at a point."""
        said = self.team.log("host").count("watching")
        with open(self.team.folder / "host.log", "ab") as log:  # noqa: PTH123 - for the child
            self.boss = subprocess.Popen(
                [
                    *(sys.executable, str(FAIL), str(at), str(self.points("host"))),
                    *("run", "--vault", str(self.vault.root)),
                ],
                env=self.vault.env,
                stdout=log,
                stderr=log,
                cwd=self.team.folder,
            )
        self.team.processes.append(self.boss)
        until(
            lambda: self.team.log("host").count("watching") > said or self.boss.poll() is not None,
            "the host",
            60,
        )
        return self.boss

    def points(self, name: str) -> Path:
        return self.team.folder / f"{name}.points"

    def ready(self, *names: str) -> None:
        for name in names:
            until(lambda name=name: "takes work" in self.team.log(name), f"worker {name}", 60)

    def ask(self, kind: str, body: str = "Please.\n") -> str:
        """Drop a request whose name begins with `kind`; return its id."""
        self.made[kind] += 1
        ident = f"{kind}-{self.made[kind]}"
        self.vault.drop(f"---\nportal: code\n---\n{body}", f"{ident}.md")
        return ident

    def planned(self, *idents: str) -> None:
        for ident in idents:
            try:
                until(self.vault.plan(ident).exists, f"a plan of {ident}", 40 + len(idents))
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.told(ident)}") from None

    def approve(self, *idents: str) -> None:
        for ident in idents:
            self.vault.approve(ident)

    def active(self, ident: str) -> bool:
        """Return whether a plan was approved."""
        return self.count(ident)["plan.approved"] > 0 or not self.vault.plan(ident).exists()

    def approved(self, ident: str) -> list[str]:
        self.vault.approve(ident)
        return []

    def trace(self, ident: str) -> str:
        asked = f"SELECT trace_id FROM cases WHERE request_id = '{ident}'"
        return str(until(lambda: self.team.sql(asked), f"the case {ident}", 30)[0][0])

    def count(self, ident: str) -> Counter[str]:
        trace = self.trace(ident)
        return Counter(
            row[0]
            for row in self.team.sql(f"SELECT action_type FROM activity WHERE trace_id = '{trace}'")
        )

    def ended(self, *idents: str, patience_s: float = 60) -> None:
        for ident in idents:
            try:
                until(lambda ident=ident: self.count(ident)["report.written"], ident, patience_s)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.told(ident)}") from None

    def workers(self, ident: str) -> set[str]:
        """Return who had a case's leases."""
        found = self.team.sql(
            "SELECT CAST(metadata AS jsonb)->>'worker' FROM activity WHERE trace_id = "
            f"'{self.trace(ident)}' AND action_type = 'lease.acquired'"
        )
        return {str(row[0]) for row in found}

    def told(self, ident: str) -> str:
        trace = self.trace(ident)
        rows = self.team.sql(
            f"SELECT timestamp, action_type, metadata FROM activity WHERE trace_id = '{trace}' "
            "ORDER BY id"
        )
        work = self.team.sql(
            f"SELECT generation, worker, token, told, kind FROM team_work WHERE trace_id = '{trace}'"
        )
        jobs = self.team.sql(
            f"SELECT id, status FROM procrastinate_jobs WHERE args->>'trace_id' = '{trace}'"
        )
        said = "\n".join(f"{row[0]} {row[1]} {str(row[2])[:200]}" for row in rows)
        return f"{said}\nwork {work} jobs {jobs}\n{self.team.logs()}"

    def fire(self, *processes: Any) -> None:
        for process in processes:
            process.send_signal(signal.SIGCONT)
            if process.poll() is None:
                process.terminate()
        for process in processes:
            process.wait(30)

    def dead(self, *processes: Any) -> None:
        for process in processes:
            process.wait(60)

    def clear(self, ident: str) -> list[str]:
        """Return what is left of a mission in the database."""
        trace = self.trace(ident)
        return [
            f"{table}: {row[0]}"
            for table, where in (
                ("team_work", f"trace_id = '{trace}'"),
                ("team_refs", f"trace_id = '{trace}'"),
                ("team_held", f"key LIKE '{trace}:%'"),
                ("procrastinate_jobs", f"args->>'trace_id' = '{trace}' AND status = 'todo'"),
                ("leases", f"trace_id = '{trace}' AND held"),
            )
            for row in self.team.sql(f"SELECT count(*) FROM {table} WHERE {where}")
            if row[0]
        ]

    def judge(self, ident: str, replies: int, steps: int, files: dict[str, str]) -> list[str]:
        """Return what is not as after a run that nothing happened to."""
        found, bad = self.count(ident), list[str]()
        want = {
            "execution.completed": 1,
            "step.completed": steps,
            "report.written": 1,
            "execution.started": 1,
            "git.branch_created": 1,
        }
        bad += [f"{key}: {found[key]}, not {n}" for key, n in want.items() if found[key] != n]
        trace = self.trace(ident)
        said = self.team.sql(
            f"SELECT metadata FROM activity WHERE trace_id = '{trace}' "
            "AND action_type = 'model.called'"
        )
        executed = sum('"execute"' in str(row[0]) for row in said)
        if executed != replies:
            bad.append(f"{executed} replies, not {replies}")
        branch = f"feat/{ident}-{trace[:8]}"
        there = {
            name: git(self.repo, "show", f"{branch}:{name}").strip()
            for name in git(self.repo, "diff", "--name-only", f"main...{branch}").split()
        }
        if there != files:
            bad.append(f"files: {there}, not {files}")
        if refs := [ref for ref in self.refs(self.repo) if trace[:8] in ref and "feat" not in ref]:
            bad.append(f"references {refs}")
        try:
            until(lambda: not self.clear(ident), "", 5)
        except AssertionError:
            bad += self.clear(ident)
        return bad

    def refs(self, repo: Path) -> list[str]:
        return git(repo, "for-each-ref", "--format=%(refname)").split()

    def refs_with(self, repo: Path) -> str:
        return git(repo, "for-each-ref", "--format=%(refname) %(objectname)")

    def left_at(self, name: str) -> list[str]:
        """Return what a worker's folder has of any mission."""
        folder = self.team.folder / f"state-{name}" / "workers" / name
        trees = [
            p.name for p in folder.glob("worktrees/*") if not p.name.endswith((".lock", ".tmp"))
        ]
        refs = [
            ref
            for clone in folder.glob("clones/*")
            for ref in self.refs(clone)
            if re.match(r"refs/(placet/|heads/feat)", ref)
        ]
        admins = [p.name for p in folder.glob("clones/*/worktrees/*")]
        return trees + refs + admins


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Squad]:
    folder = tmp_path_factory.mktemp("squad")
    vault = make_vault(folder)
    scripts = {"step.py": STEP.format("hello.txt"), "literal.py": STEP.format("literal.txt")}
    repo = make_repo(folder / "repo", scripts)
    vault.configure(
        "[daemon]\nplans_at_once = 20\nmissions_at_once = 20\n"
        "[limits]\nday_tokens = 1_000_000_000\n"
        f'[portals.code]\npath = "{repo}"\n'
        f'[portals.gpu]\npath = "{repo}"\nlabel = "gpu"\n'
    )
    one, three = plan(agent("One")), plan(agent("One"), LITERAL, agent("Three"))
    for kind, steps, says in (
        ("whole", three, WHOLE),
        ("fails", plan(agent("One"), agent("Two")), FAILS),
        ("asks", one, ASKS),
        ("widens", one, WIDENS),
        ("slow", one, SLOW),
        ("command", one, COMMAND),
        ("thinks", ("plan", [{**one[1][0], "delay_s": 2.5}]), WHOLE),
    ):
        vault.script(steps, ("execute", says), request=f"{kind}-*", more=kind != "whole")
    with (
        pgkit.server() as server,
        line(server.port) as host_line,  # which tests cut; the workers have lines of their own
        running_team(folder, server, LEASE_S, vault, port=host_line.port) as team,
    ):
        found = Squad(team, repo, server, host_line)
        yield found


@pytest.fixture
def squad(lasting: Squad) -> Iterator[Squad]:
    """Give the squad with its host; none of a test's workers, if it failed, is there for the next."""
    if lasting.boss is None or lasting.boss.poll() is not None:
        lasting.host()
    yield lasting
    lasting.fire(*(one for one in lasting.team.processes if one is not lasting.boss))


EXPECTED = {"whole": (5, 3, FILES)}
AT_ONCE = 6


def planned(squad: Squad, kind: str, count: int) -> list[str]:
    """Return requests of a kind with a plan that waits."""
    idents = [squad.ask(kind) for _ in range(count)]
    planner = squad.failing("planner", -1, "--slots", "4")
    squad.planned(*idents)
    squad.fire(planner)
    return idents


def points_of(squad: Squad, kind: str) -> list[str]:
    """Return the names of the points of an undisturbed mission, whose result is judged."""
    (ident,) = planned(squad, kind, 1)
    name = f"calm-{kind}"
    squad.points(name).unlink(missing_ok=True)
    calm = squad.failing(name, -1)
    squad.ready(name)
    squad.approve(ident)
    squad.ended(ident)
    bad = squad.judge(ident, *EXPECTED[kind])
    squad.fire(calm)
    assert (bad, squad.left_at(name)) == ([], [])
    return squad.points(name).read_text().splitlines()


def kill_at(squad: Squad, kind: str, numbers: Sequence[int]) -> list[str]:
    """Let a worker die at each of these points of a mission, and others go on.

    Return what went wrong.
    """
    idents = planned(squad, kind, len(numbers))
    names = [f"{kind}-at-{number}" for number in numbers]
    doomed = [squad.failing(name, number) for name, number in zip(names, numbers, strict=True)]
    squad.ready(*names)
    squad.approve(*idents)
    squad.dead(*doomed)
    healthy = [squad.team.worker(f"{kind}-sane-{n}") for n in range(2)]
    bad: list[str] = []
    for ident in idents:
        try:
            squad.ended(ident, patience_s=40)
            bad += [f"{ident}: {what}" for what in squad.judge(ident, *EXPECTED[kind])]
        except AssertionError as error:
            bad.append(f"{ident}: {error}")
    squad.fire(*healthy)
    bad += [
        f"left at sane-{n}: {left}" for n in range(2) if (left := squad.left_at(f"{kind}-sane-{n}"))
    ]
    if bad:
        bad.append(f"the points were {numbers}")
    return bad


@pytest.mark.sweep
def test_killed_everywhere(squad: Squad) -> None:
    points = points_of(squad, "whole")
    step = int(os.environ.get("STRIDE", "1"))
    numbers = range(int(os.environ.get("FIRST", "0")), len(points), step)
    bad: list[str] = []
    for at in range(0, len(numbers), AT_ONCE):
        some = numbers[at : at + AT_ONCE]
        wrong = kill_at(squad, "whole", some)
        bad += wrong
        print(some, [points[n] for n in some], "\n".join(w[:6000] for w in wrong), flush=True)
    print(f"{len(numbers)} of {len(points)} points")
    assert not bad


def test_killed_here_and_there(squad: Squad) -> None:
    """Three points: in a command, at a commit, near the end."""
    assert kill_at(squad, "whole", (97, 183, 340)) == []


def host_killed_at(squad: Squad, numbers: Sequence[int]) -> list[str]:
    """Kill the host at these points of a mission's life, one after the other; return what is bad."""
    bad: list[str] = []
    for number in numbers:
        squad.fire(squad.boss)
        squad.failing_host(number)
        one = squad.team.worker(f"loyal-{number}")
        ident = squad.ask("whole")
        for is_over in (
            squad.vault.plan(ident).exists,
            lambda ident=ident: squad.count(ident)["report.written"],
        ):
            until(lambda: is_over() or squad.boss.poll() is not None, ident, 60)  # noqa: B023
            if squad.boss.poll() is not None:
                squad.host()
            try:
                until(is_over, ident, 40)
                bad += [] if squad.active(ident) else squad.approved(ident)
            except AssertionError as error:
                bad.append(f"at {number}: {error}\n{squad.told(ident)}")
                break
        bad += [f"at {number}: {what}" for what in squad.judge(ident, *EXPECTED["whole"])]
        squad.fire(one)
        print(number, bad[-1:], flush=True)
    return bad


@pytest.mark.sweep
def test_killed_host_resumes_work(squad: Squad) -> None:
    assert host_killed_at(squad, (17, 41)) == []


@pytest.mark.sweep
def test_host_killed_at_every_failpoint_loses_nothing(squad: Squad) -> None:
    squad.points("host").unlink(missing_ok=True)
    assert host_killed_at(squad, [100_000]) == []
    points = len(squad.points("host").read_text().splitlines())
    step = int(os.environ.get("STRIDE", "1"))
    numbers = range(int(os.environ.get("FIRST", "0")), points, step)
    bad = host_killed_at(squad, numbers)
    print(f"{len(numbers)} of {points} points")
    assert bad == []


# --- workers


def reached(squad: Squad, ident: str, row: str, count: int = 1) -> str:
    try:
        until(lambda: squad.count(ident)[row] >= count, f"{ident}: {count} {row}", 40)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{squad.told(ident)}") from None
    return ident


HELLO = {"hello.txt": "two\nmore\nmore"}
EXPECTED["slow"] = (3, 1, HELLO)


def test_work_without_job_or_holder_is_queued_again(squad: Squad) -> None:
    ident = planned(squad, "whole", 1)[0]
    (body,) = squad.team.sql(f"SELECT body FROM cases WHERE request_id = '{ident}'")[0]
    case = CASE_JSON.validate_json(body)
    address = squad.server.fresh()
    with journal_at(squad.team.folder / "aside", address) as journal:
        cache = TeamCache(journal, address, lambda: None)
        offers = Team(journal, cache, LEASE_S, dict)
        Workers(squad.server, address).beat("ann", slots=1)
        cache.look()
        for _ in range(2):
            assert offers.claim(case, lambda: 0, planning=False) is None
            with closing(PostgresConnection(address_of(journal.path))) as ann:  # and dies
                took = ann.execute("DELETE FROM procrastinate_jobs WHERE status = 'todo'")
                assert took.rowcount == 1
            cache.look()


@pytest.mark.sweep
def test_worker_killed_before_claim_loses_no_work(squad: Squad) -> None:
    (ident,), (busy,) = planned(squad, "whole", 1), planned(squad, "slow", 1)
    sane = squad.team.worker("sane")
    squad.approve(busy)
    reached(squad, busy, "model.called", 2)
    doomed = squad.failing("doomed", 0)
    squad.ready("doomed")
    squad.approve(ident)
    squad.dead(doomed)
    squad.ended(busy, ident)
    bad = squad.judge(ident, *EXPECTED["whole"])
    squad.fire(sane)
    assert bad == []


@pytest.mark.sweep
@pytest.mark.parametrize("done", [False, True])
def test_released_work_is_taken_after_both_restart(squad: Squad, done: bool) -> None:
    ident = planned(squad, "slow", 1)[0]
    squad.approve(ident)
    one = squad.team.worker(f"one-{int(done)}")
    reached(squad, ident, "model.called", 2)
    squad.boss.kill()
    squad.boss.wait()
    if done:
        until(lambda: squad.team.sql("SELECT 1 FROM team_work WHERE kind = 'ended'"), "", 30)
    squad.fire(one)
    squad.host()
    two = squad.team.worker(f"two-{int(done)}")
    squad.ended(ident)
    bad = squad.judge(ident, *EXPECTED["slow"])
    squad.fire(two)
    assert bad == []


def test_work_of_withdrawn_request_is_removed(
    squad: Squad,
) -> None:
    one = squad.team.worker("thinker")
    ident = squad.ask("thinks")
    until(lambda: squad.team.sql("SELECT 1 FROM team_work WHERE token IS NOT NULL"), "", 30)
    squad.boss.kill()
    squad.boss.wait()
    until(lambda: squad.team.sql("SELECT 1 FROM team_work WHERE kind = 'drafted'"), "", 30)
    (squad.vault.root / "Inbox" / "Requests" / f"{ident}.md").unlink()
    squad.host()
    until(lambda: squad.count(ident)["request.withdrawn"], "its end", 30)
    until(lambda: not squad.clear(ident), f"{squad.clear(ident)}", 10)
    squad.fire(one)


def test_frozen_worker_writes_nothing_after_takeover(squad: Squad) -> None:
    ident = planned(squad, "slow", 1)[0]
    squad.approve(ident)
    one = squad.team.worker("frozen")
    reached(squad, ident, "model.called", 2)
    one.send_signal(signal.SIGSTOP)
    froze = time.monotonic()
    two = squad.team.worker("awake")
    reached(squad, ident, "lease.acquired", 3)
    took_s = time.monotonic() - froze
    until(lambda: squad.team.sql(HELD), "a call of its successor", 30)
    calls = squad.count(ident)["model.called"]
    one.send_signal(signal.SIGCONT)
    until(lambda: "now belongs to another worker" in squad.team.log("frozen"), "the frozen one", 30)
    held = squad.team.sql(HELD)
    answered = squad.count(ident)["model.called"] > calls
    assert held or answered, "the successor's call is held no more"
    squad.ended(ident)
    bad = squad.judge(ident, *EXPECTED["slow"])
    squad.fire(one, two)
    assert (bad, squad.left_at("frozen"), squad.left_at("awake")) == ([], [], [])
    print(f"taken over {took_s:.1f} s after it froze")
    # twice the lease where nobody else works on the machine; the second worker starts meanwhile
    assert took_s < 12 * LEASE_S


def frozen_at(squad: Squad, numbers: Sequence[int]) -> list[str]:
    """Freeze a worker at each of these points of a mission, until another has ended it; thaw it.

    Return what went wrong: what the mission is not, and what the thawed one wrote.
    """
    idents = planned(squad, "whole", len(numbers))
    names = [f"ice-{number}-{len(squad.made)}" for number in numbers]
    frozen = [
        squad.failing(name, number, how="SIGSTOP")
        for name, number in zip(names, numbers, strict=True)
    ]
    squad.ready(*names)
    squad.approve(*idents)
    for one in frozen:
        until(lambda one=one: is_stopped(one.pid) or one.poll() is not None, "ice", 60)
    healthy = [squad.team.worker(f"{names[0]}-sane-{n}") for n in range(2)]
    squad.ended(*idents, patience_s=90)
    bad = [f"{one}: {what}" for one in idents for what in squad.judge(one, *EXPECTED["whole"])]
    before = settled(squad)
    for one in frozen:
        one.send_signal(signal.SIGCONT)
    time.sleep(LEASE_S)
    if news := all_written(squad) ^ before:
        bad.append(f"the thawed ones changed: {sorted(map(str, news))}")
    squad.fire(*frozen, *healthy)
    bad += [f"left at {name}: {left}" for name in names if (left := squad.left_at(name))]
    if bad:
        bad.append(f"the points were {numbers}")
    return bad


def all_written(squad: Squad) -> set[tuple[Any, ...]]:
    """Return all that a worker could have written: rows, and references of the repository."""
    found = {("ref", line) for line in squad.refs_with(squad.repo).splitlines()}
    for what in (
        "'event', trace_id, action_type, id FROM activity WHERE trace_id <> ''",
        "'record', trace_id, attempt, seq FROM records",
        "'refs', trace_id, refs FROM team_refs",
        "'work', trace_id, generation, worker, token, kind FROM team_work",
    ):
        found |= set(squad.team.sql(f"SELECT {what}"))
    return found


def settled(squad: Squad) -> set[tuple[Any, ...]]:
    """Return the same once nothing of it changes any more."""
    last = all_written(squad)
    while True:
        time.sleep(1.0)
        now = all_written(squad)
        if now == last:
            return now
        last = now


def is_stopped(pid: int) -> bool:
    """Return whether a process is frozen."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")
    except OSError:
        return False


@pytest.mark.sweep
def test_frozen_at_fifty_places(squad: Squad) -> None:
    points = points_of(squad, "whole")
    count = int(os.environ.get("PLACES", "50"))
    numbers = sorted({round(n * (len(points) - 1) / (count - 1)) for n in range(count)})
    bad: list[str] = []
    for at in range(0, len(numbers), AT_ONCE):
        wrong = frozen_at(squad, numbers[at : at + AT_ONCE])
        bad += wrong
        print(numbers[at : at + AT_ONCE], "\n".join(w[:6000] for w in wrong), flush=True)
    print(f"{len(numbers)} of {len(points)} places")
    assert not bad


@pytest.mark.sweep
def test_restarted_worker_removes_its_leftovers(squad: Squad) -> None:
    ident = planned(squad, "slow", 1)[0]
    squad.approve(ident)
    one = squad.team.worker("untidy")
    reached(squad, ident, "tool.called", 3)
    one.kill()
    one.wait()
    two = squad.team.worker("tidy")
    squad.ended(ident)
    job = f"args->>'trace_id' = '{squad.trace(ident)}' AND status = 'doing'"
    squad.team.change(
        "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour' "
        f"WHERE id IN (SELECT worker_id FROM procrastinate_jobs WHERE {job})"
    )
    other = squad.ask("whole")
    squad.planned(other)
    left = squad.team.sql(f"SELECT 1 FROM procrastinate_jobs WHERE {job}")
    assert left == [], "the queue keeps what nobody does"
    squad.fire(two)
    assert squad.left_at("untidy")
    one = squad.team.worker("untidy", labels="gpu")
    until(lambda: squad.team.log("untidy").count("takes work") == 2, "", 30)
    squad.fire(one)
    assert squad.left_at("untidy") == []


EXPECTED["asks"] = (2, 1, {"hello.txt": "one\nmore\nmore"})
EXPECTED["widens"] = (2, 1, {"hello.txt": "one\nmore", "note.md": "note"})


def killed_around_it(squad: Squad, kind: str, numbers: Sequence[int]) -> list[str]:
    """Kill workers at these points of missions that fail, or ask; return what went wrong."""
    idents = planned(squad, kind, len(numbers))
    names = [f"{kind}-at-{number}" for number in numbers]
    doomed = [squad.failing(name, number) for name, number in zip(names, numbers, strict=True)]
    squad.ready(*names)
    squad.approve(*idents)
    asked = {"asks": "question.asked", "widens": "plan.amendment_requested"}.get(
        kind, "execution.failed"
    )
    until(
        lambda: (
            all(one.poll() is not None for one in doomed)
            or all(squad.count(ident)[asked] for ident in idents)
        ),
        kind,
        60,
    )
    healthy = [squad.team.worker(f"{kind}-sane-{n}") for n in range(2)]
    bad: list[str] = []
    for ident in idents:
        reached(squad, ident, asked)
        if kind != "fails":
            answer = ("answer", ident, "Hello") if kind == "asks" else ("approve", ident, "--yes")
            until(
                lambda answer=answer: not squad.vault.cli(*answer, check=False).returncode, "", 30
            )
        squad.ended(ident)
        found = squad.count(ident)
        bad += [] if found[asked] == 1 else [f"{ident}: {found[asked]} {asked}"]
        if kind != "fails":
            bad += [f"{ident}: {what}" for what in squad.judge(ident, *EXPECTED[kind])]
            continue
        kept = [ref for ref in squad.refs(squad.repo) if f"failed/{ident}-" in ref]
        bad += [] if len(kept) == 1 else [f"{ident}: kept {kept}"]
        left = git(squad.repo, "show", f"{kept[0]}:other.txt") if kept else ""
        bad += [] if left == "half" else [f"{ident}: other.txt is {left!r}"]
        bad += [] if found["step.completed"] == 1 else [f"{ident}: {found['step.completed']} steps"]
        until(lambda ident=ident: not squad.clear(ident), f"{squad.clear(ident)}", 10)
    squad.fire(*healthy, *doomed)
    if bad:
        bad.append(f"the points were {numbers}")
    return bad


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["fails", "asks", "widens"])
def test_killed_around_a_failure_and_a_question(squad: Squad, kind: str) -> None:
    step = int(os.environ.get("STRIDE", "1"))
    numbers = range(int(os.environ.get("FIRST", "0")), {"fails": 190}.get(kind, 120), step)
    bad: list[str] = []
    for at in range(0, len(numbers), AT_ONCE):
        wrong = killed_around_it(squad, kind, numbers[at : at + AT_ONCE])
        print(numbers[at : at + AT_ONCE], "\n".join(one[:3000] for one in wrong), flush=True)
        bad += wrong
    assert bad == []


# --- what is handed over


def commit_more(squad: Squad, content: str) -> None:
    """Commit in the person's repository, so that there is something to push."""
    (squad.repo / "more.md").write_text(content)
    git(squad.repo, "add", "more.md")
    git(squad.repo, "commit", "-qm", "More")


@pytest.mark.sweep
def test_push_longer_than_lease_starts_work_once(squad: Squad) -> None:
    ident = planned(squad, "whole", 1)[0]
    commit_more(squad, "even more\n")
    slow = squad.team.folder / "bin"
    slow.mkdir()
    (slow / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *" push "*) sleep {LEASE_S + 2} ;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    (slow / "git").chmod(0o755)
    squad.fire(squad.boss)
    squad.host(PATH=f"{slow}:{os.environ['PATH']}")
    one = squad.team.worker("waiting")
    squad.approve(ident)
    squad.ended(ident)
    bad, found = squad.judge(ident, *EXPECTED["whole"]), squad.count(ident)
    squad.fire(one, squad.boss)
    squad.host()
    assert (bad, found["execution.resumed"]) == ([], 0), squad.told(ident)


def test_worker_with_full_disk_delays_work(squad: Squad) -> None:
    ident = planned(squad, "whole", 1)[0]
    place = squad.team.folder / "state-full"
    with small_disk_at(place, "40M") as disk:
        one = squad.team.worker("full")
        squad.ready("full")
        fill_up(disk / "filling")
        squad.approve(ident)
        waits = f"{ident}: waiting for the machine"
        try:
            until(lambda: waits in squad.team.log("host"), waits, 60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{squad.told(ident)}") from None
        squad.fire(one)
    two = squad.team.worker("roomy")
    squad.ended(ident)
    bad = squad.judge(ident, *EXPECTED["whole"])
    squad.fire(two)
    assert bad == []


# --- what people do meanwhile


EXPECTED["command"] = (3, 1, {"hello.txt": "one"})


@pytest.mark.sweep
def test_mission_stops_while_waiting_running_or_frozen(
    squad: Squad,
) -> None:
    waits, runs, frozen = planned(squad, "command", 3)
    squad.approve(waits)
    reached(squad, waits, "plan.approved")
    until(lambda: waits in squad.team.log("host").split("no worker is running")[-2], "", 20)
    squad.vault.cli("stop", waits)
    reached(squad, waits, "plan.taken_back")
    one = squad.team.worker("stopped")
    squad.approve(runs)
    reached(squad, runs, "model.called", 3)
    began = time.monotonic()
    squad.vault.cli("stop", runs)
    squad.ended(runs)
    print(f"a running command was stopped within {time.monotonic() - began:.1f} s")
    squad.approve(frozen)
    reached(squad, frozen, "model.called", 3)
    one.send_signal(signal.SIGSTOP)
    squad.vault.cli("stop", frozen)
    two = squad.team.worker("ends-it")
    squad.ended(frozen)
    one.send_signal(signal.SIGCONT)
    for ident in (runs, frozen):
        found = squad.count(ident)
        assert (found["execution.failed"], found["execution.completed"]) == (1, 0)
        until(lambda ident=ident: not squad.clear(ident), f"{squad.clear(ident)}", 10)
        assert not [ref for ref in squad.refs(squad.repo) if f"feat/{ident}-" in ref]
    squad.fire(one, two)
    assert (squad.left_at("stopped"), squad.left_at("ends-it")) == ([], [])


def test_edit_during_worker_planning_replans_once(squad: Squad) -> None:
    one = squad.team.worker("planning")
    ident = squad.ask("thinks")
    until(lambda: squad.team.sql("SELECT 1 FROM team_work WHERE token IS NOT NULL"), "", 30)
    (squad.vault.root / "Inbox" / "Requests" / f"{ident}.md").write_text(
        "---\nportal: code\n---\nSomething else.\n"
    )
    squad.planned(ident)
    found = squad.count(ident)
    assert found["plan.created"] == 1
    until(lambda: not squad.clear(ident), f"{squad.clear(ident)}", 10)
    squad.fire(one)


@pytest.mark.sweep
def test_paused_work_waits_and_withdrawn_work_vanishes(squad: Squad) -> None:
    gone = squad.ask("whole")
    reached(squad, gone, "request.detected")
    (squad.vault.root / "Inbox" / "Requests" / f"{gone}.md").unlink()
    reached(squad, gone, "request.withdrawn")
    ident = planned(squad, "whole", 1)[0]
    squad.vault.cli("pause")
    time.sleep(1)
    one = squad.team.worker("paused")
    squad.ready("paused")
    squad.approve(ident)
    reached(squad, ident, "plan.approved")
    time.sleep(2)
    assert not squad.count(ident)["execution.started"]
    squad.vault.cli("resume")
    squad.ended(ident)
    bad = squad.judge(ident, *EXPECTED["whole"])
    squad.fire(one)
    assert (bad, squad.clear(gone)) == ([], [])


@pytest.mark.sweep
def test_labels_slots_and_a_drain(squad: Squad) -> None:
    first, second = planned(squad, "slow", 2)
    squad.made["whole"] += 1
    gpu = f"whole-{squad.made['whole']}"
    squad.vault.drop("---\nportal: gpu\n---\nPlease.\n", f"{gpu}.md")
    one = squad.team.worker("wide", "--slots", "2")
    other = squad.team.worker("special", labels="gpu")
    squad.approve(first, second)
    squad.planned(gpu)
    squad.approve(gpu)
    reached(squad, first, "execution.started")
    reached(squad, second, "execution.started")
    squad.team.change("UPDATE team_members SET draining = TRUE WHERE name = 'wide'")
    assert one.wait(30) == 0
    next_one = squad.team.worker("narrow")
    squad.ended(first, second, gpu)
    bad = [
        *squad.judge(first, *EXPECTED["slow"]),
        *squad.judge(second, *EXPECTED["slow"]),
        *squad.judge(gpu, *EXPECTED["whole"]),
    ]
    squad.fire(other, next_one)
    assert (bad, squad.left_at("wide")) == ([], [])
    assert {"special"} == squad.workers(gpu)
    assert "special" not in squad.workers(first) | squad.workers(second)


@pytest.mark.sweep
def test_stopping_worker_finishes_its_round(squad: Squad) -> None:
    ident = planned(squad, "slow", 1)[0]
    one = squad.team.worker("leaving")
    squad.approve(ident)
    reached(squad, ident, "model.called", 2)
    squad.fire(one)
    two = squad.team.worker("staying")
    squad.ended(ident)
    bad, found = squad.judge(ident, *EXPECTED["slow"]), squad.count(ident)
    squad.fire(two)
    assert (bad, found["model.failed"]) == ([], 0)
    assert squad.left_at("leaving") == []


# --- lines that are cut


@pytest.mark.sweep
def test_cut_connection_loses_no_work(squad: Squad) -> None:
    short, long = planned(squad, "slow", 2)
    with line(squad.server.port) as cable:
        address = squad.team.role("far").replace(str(squad.server.port), str(cable.port))
        home = {"PLACET_STATE_HOME": str(squad.team.folder / "state-far")}
        where = ("--config", squad.team.config, "--remote", str(squad.team.remote))
        one = squad.team.start("worker", address, *where, log="far", env=home)
        squad.ready("far")
        squad.approve(short)
        reached(squad, short, "model.called", 2)
        cable.cut()
        time.sleep(LEASE_S / 3)
        cable.mend()
        squad.ended(short)
        bad, found = squad.judge(short, *EXPECTED["slow"]), squad.count(short)
        assert (bad, found["execution.resumed"]) == ([], 0)
        squad.approve(long)
        reached(squad, long, "model.called", 2)
        cable.cut()
        two = squad.team.worker("near")
        reached(squad, long, "lease.acquired", 3)
        cable.mend()
        squad.ended(long)
        bad = squad.judge(long, *EXPECTED["slow"])
        squad.fire(one, two)
        assert (bad, squad.left_at("far")) == ([], [])


@pytest.mark.sweep
@pytest.mark.parametrize("cut_s", [1.0, 2.0 * LEASE_S])
def test_hosts_cut_connection_loses_no_work(squad: Squad, cut_s: float) -> None:
    ident = planned(squad, "slow", 1)[0]
    one = squad.team.worker(f"alone-{cut_s * 10:.0f}")
    squad.approve(ident)
    reached(squad, ident, "model.called", 2)
    squad.line.cut()
    time.sleep(cut_s)
    squad.line.mend()
    squad.ended(ident)
    bad, found = squad.judge(ident, *EXPECTED["slow"]), squad.count(ident)
    squad.fire(one)
    assert (bad, found["execution.resumed"]) == ([], 0)


# --- the database


@pytest.mark.sweep
def test_frozen_transaction_does_not_block_others(squad: Squad) -> None:
    store = PostgresStore(squad.team.address)
    ident = planned(squad, "whole", 1)[0]
    store.begin(durable=True)
    began = time.monotonic()
    squad.approve(ident)
    until(lambda: squad.count(ident)["plan.approved"], "", 30)
    assert time.monotonic() - began < 3 * FROZEN_S
    with pytest.raises(DatabaseAway):
        store.connection.execute("COMMIT")
    store.ensure_writable()
    store.begin(durable=True)
    store.connection.execute("ROLLBACK")
    store.connection.close()


@pytest.mark.sweep
def test_database_outage_longer_than_lease_loses_nothing(squad: Squad) -> None:
    ident = planned(squad, "slow", 1)[0]
    squad.approve(ident)
    one = squad.team.worker("patient")
    reached(squad, ident, "model.called", 2)
    squad.server.stop("kill")
    time.sleep(2 * LEASE_S)
    squad.server.start()
    squad.ended(ident)
    bad, found = squad.judge(ident, *EXPECTED["slow"]), squad.count(ident)
    squad.fire(one)
    assert (bad, found["execution.resumed"]) == ([], 0), squad.told(ident)


@pytest.mark.sweep
def test_worker_stops_during_database_outage(squad: Squad) -> None:
    ident = planned(squad, "slow", 1)[0]
    squad.approve(ident)
    one = squad.team.worker("told")
    reached(squad, ident, "model.called", 2)
    squad.server.stop("kill")
    try:
        time.sleep(0.5)
        one.terminate()
        assert one.wait(20) == 0
    finally:
        squad.server.start()
    two = squad.team.worker("next")
    squad.ended(ident)
    bad = squad.judge(ident, *EXPECTED["slow"])
    squad.fire(two)
    assert bad == []


# --- all at once


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(int(os.environ.get("SEEDS", "2"))))
def test_random_kills_lose_no_mission(squad: Squad, seed: int) -> None:
    chance, count = random.Random(seed), int(os.environ.get("MISSIONS", "12"))
    names = [f"storm-{seed}-{n}" for n in range(4)]
    idents = planned(squad, "whole", count)
    living = {name: squad.team.worker(name) for name in names}
    for name in names:
        squad.ready(name)
    done: Counter[str] = Counter()
    began = time.monotonic()
    waiting = list(idents)
    while waiting or not all(squad.count(one)["report.written"] for one in idents):
        assert time.monotonic() - began < 400 + 10 * count, [
            squad.told(one) for one in idents if not squad.count(one)["report.written"]
        ]
        for ident in waiting[:2]:
            squad.approve(ident)
        waiting = waiting[2:]
        time.sleep(chance.uniform(0.3, 2.0))
        what = chance.choice(["kill", "kill", "kill", "freeze", "host", "database", "end"])
        name = chance.choice(names)
        done[what] += 1
        if what == "kill":
            living[name].kill()
        elif what == "freeze":
            living[name].send_signal(signal.SIGSTOP)
            time.sleep(chance.choice([0.5, 1.5 * LEASE_S]))
            living[name].send_signal(signal.SIGCONT)
        elif what == "end":
            living[name].terminate()
        elif what == "host":
            squad.boss.kill()
            squad.boss.wait()
            squad.host()
        else:
            squad.server.stop("kill")
            time.sleep(chance.uniform(0, 1))
            squad.server.start()
        if what in ("kill", "end"):
            living[name].wait(60)
            living[name] = squad.team.worker(name)
    bad = [
        f"{ident}: {what}" for ident in idents for what in squad.judge(ident, *EXPECTED["whole"])
    ]
    squad.fire(*living.values())
    took = time.monotonic() - began
    print(f"seed {seed}: {count} missions, {dict(done)} in {took:.0f} s")
    bad += [f"left at {name}: {left}" for name in names if (left := squad.left_at(name))]
    said = squad.vault.cli("journal", "verify", check=False)
    assert (bad, said.returncode) == ([], 0), f"{said.stdout}\n{said.stderr}"


@pytest.mark.sweep
def test_no_call_that_was_answered_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(body: Json) -> Answer:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        plans = any(tool["name"] == "submit_plan" for tool in body["tools"])
        calls = plan(agent("One"))[1][0]["calls"] if plans else talk[turn]["calls"]
        asked[plans, turn] += 1
        return reply(*(call(name, given) for name, given in calls))

    talk = [
        {"calls": [write("hello.txt", "one\n"), RUN]},
        {"calls": [("run_command", {"command": "sleep", "args": ["4"]})]},
        {"calls": [step(1), FINISH]},
    ]
    asked: Counter[tuple[bool, int]] = Counter()
    with MessagesApi(answer) as api, pgkit.server() as server:
        key = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "sk-ant-test-0123456789"}
        vault = make_vault(tmp_path, **key)
        repo = make_repo(tmp_path / "repo", {"step.py": STEP.format("hello.txt")})
        vault.configure(
            '[model]\nprovider = "anthropic"\nname = "test"\nmax_tokens = 1000\n'
            f'[portals.code]\npath = "{repo}"\n'
        )
        with line(server.port) as cable, running_team(tmp_path, server, LEASE_S, vault) as team:
            squad = Squad(team, repo, server, cable)
            squad.host()
            ident = planned(squad, "whole", 1)[0]
            squad.approve(ident)
            for name, replies in (("one", 2), ("two", 2)):
                worker = team.worker(name)
                reached(squad, ident, "model.called", 1 + replies)
                reached(squad, ident, "lease.acquired", {"one": 2, "two": 3}[name])
                time.sleep(1.5)  # in the command
                worker.kill()
                worker.wait()
            last = team.worker("three")
            squad.ended(ident)
            bad = squad.judge(ident, 3, 1, {"hello.txt": "one\nmore"})
            squad.fire(last)
    assert bad == []
    assert asked == {(True, 0): 1, (False, 0): 1, (False, 1): 1, (False, 2): 1}
