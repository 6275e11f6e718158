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
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import pgkit
from disks import fill_up, small_disk_at
from gitkit import git, make_repo
from linekit import Line, line
from messages_api import Answer, Json, MessagesApi, call, reply
from placet.journal.database import DatabaseAway
from placet_team.postgres import FROZEN_S, PostgresStore
from teamkit import TestTeam, running_team
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


@dataclass
class SharedTeam:
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
            f"SELECT generation, worker, token, stop, kind FROM team_work WHERE trace_id = '{trace}'"
        )
        said = "\n".join(f"{row[0]} {row[1]} {str(row[2])[:200]}" for row in rows)
        return f"{said}\nwork {work}\n{self.team.logs()}"

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
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedTeam]:
    folder = tmp_path_factory.mktemp("shared")
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
        found = SharedTeam(team, repo, server, host_line)
        yield found


@pytest.fixture
def shared(lasting: SharedTeam) -> Iterator[SharedTeam]:
    """Give the shared with its host; none of a test's workers, if it failed, is there for the next."""
    if lasting.boss is None or lasting.boss.poll() is not None:
        lasting.host()
    yield lasting
    lasting.fire(*(one for one in lasting.team.processes if one is not lasting.boss))


EXPECTED = {"whole": (5, 3, FILES)}
AT_ONCE = 6


def planned(shared: SharedTeam, kind: str, count: int) -> list[str]:
    """Return requests of a kind with a plan that waits."""
    idents = [shared.ask(kind) for _ in range(count)]
    planner = shared.failing("planner", -1, "--slots", "4")
    shared.planned(*idents)
    shared.fire(planner)
    return idents


def points_of(shared: SharedTeam, kind: str) -> list[str]:
    """Return the names of the points of an undisturbed mission, whose result is judged."""
    (ident,) = planned(shared, kind, 1)
    name = f"calm-{kind}"
    shared.points(name).unlink(missing_ok=True)
    calm = shared.failing(name, -1)
    shared.ready(name)
    shared.approve(ident)
    shared.ended(ident)
    bad = shared.judge(ident, *EXPECTED[kind])
    shared.fire(calm)
    assert (bad, shared.left_at(name)) == ([], [])
    return shared.points(name).read_text().splitlines()


def kill_at(shared: SharedTeam, kind: str, numbers: Sequence[int]) -> list[str]:
    """Let a worker die at each of these points of a mission, and others go on.

    Return what went wrong.
    """
    idents = planned(shared, kind, len(numbers))
    names = [f"{kind}-at-{number}" for number in numbers]
    doomed = [shared.failing(name, number) for name, number in zip(names, numbers, strict=True)]
    shared.ready(*names)
    shared.approve(*idents)
    shared.dead(*doomed)
    healthy = [shared.team.worker(f"{kind}-sane-{n}") for n in range(2)]
    bad: list[str] = []
    for ident in idents:
        try:
            shared.ended(ident, patience_s=40)
            bad += [f"{ident}: {what}" for what in shared.judge(ident, *EXPECTED[kind])]
        except AssertionError as error:
            bad.append(f"{ident}: {error}")
    shared.fire(*healthy)
    bad += [
        f"left at sane-{n}: {left}"
        for n in range(2)
        if (left := shared.left_at(f"{kind}-sane-{n}"))
    ]
    if bad:
        bad.append(f"the points were {numbers}")
    return bad


@pytest.mark.sweep
def test_killed_everywhere(shared: SharedTeam) -> None:
    points = points_of(shared, "whole")
    step = int(os.environ.get("STRIDE", "1"))
    numbers = range(int(os.environ.get("FIRST", "0")), len(points), step)
    bad: list[str] = []
    for at in range(0, len(numbers), AT_ONCE):
        some = numbers[at : at + AT_ONCE]
        wrong = kill_at(shared, "whole", some)
        bad += wrong
        print(some, [points[n] for n in some], "\n".join(w[:6000] for w in wrong), flush=True)
    print(f"{len(numbers)} of {len(points)} points")
    assert not bad


def test_killed_here_and_there(shared: SharedTeam) -> None:
    """Three points: while it records, at a commit, before the last push."""
    at = defaultdict[str, list[int]](list)
    for number, name in enumerate(points_of(shared, "whole")):
        at[name].append(number)
    records, commits = at["after worker_append"], at["before git commit-tree"]
    numbers = records[len(records) // 4], commits[len(commits) // 2], at["before git push"][-1]
    assert kill_at(shared, "whole", numbers) == []


def host_killed_at(shared: SharedTeam, numbers: Sequence[int]) -> list[str]:
    """Kill the host at these points of a mission's life, one after the other; return what is bad."""
    bad: list[str] = []
    for number in numbers:
        shared.fire(shared.boss)
        shared.failing_host(number)
        one = shared.team.worker(f"loyal-{number}")
        ident = shared.ask("whole")
        for is_over in (
            shared.vault.plan(ident).exists,
            lambda ident=ident: shared.count(ident)["report.written"],
        ):
            until(lambda: is_over() or shared.boss.poll() is not None, ident, 60)  # noqa: B023
            if shared.boss.poll() is not None:
                shared.host()
            try:
                until(is_over, ident, 40)
                bad += [] if shared.active(ident) else shared.approved(ident)
            except AssertionError as error:
                bad.append(f"at {number}: {error}\n{shared.told(ident)}")
                break
        bad += [f"at {number}: {what}" for what in shared.judge(ident, *EXPECTED["whole"])]
        shared.fire(one)
        print(number, bad[-1:], flush=True)
    return bad


@pytest.mark.sweep
def test_killed_host_resumes_work(shared: SharedTeam) -> None:
    assert host_killed_at(shared, (17, 41)) == []


@pytest.mark.sweep
def test_host_killed_at_every_failpoint_loses_nothing(shared: SharedTeam) -> None:
    shared.points("host").unlink(missing_ok=True)
    assert host_killed_at(shared, [100_000]) == []
    points = len(shared.points("host").read_text().splitlines())
    step = int(os.environ.get("STRIDE", "1"))
    numbers = range(int(os.environ.get("FIRST", "0")), points, step)
    bad = host_killed_at(shared, numbers)
    print(f"{len(numbers)} of {points} points")
    assert bad == []


# --- workers


def reached(shared: SharedTeam, ident: str, row: str, count: int = 1) -> str:
    try:
        until(lambda: shared.count(ident)[row] >= count, f"{ident}: {count} {row}", 40)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{shared.told(ident)}") from None
    return ident


HELLO = {"hello.txt": "two\nmore\nmore"}
EXPECTED["slow"] = (3, 1, HELLO)


@pytest.mark.sweep
def test_worker_killed_before_claim_loses_no_work(shared: SharedTeam) -> None:
    (ident,), (busy,) = planned(shared, "whole", 1), planned(shared, "slow", 1)
    sane = shared.team.worker("sane")
    shared.approve(busy)
    reached(shared, busy, "model.called", 2)
    doomed = shared.failing("doomed", 0)
    shared.ready("doomed")
    shared.approve(ident)
    shared.dead(doomed)
    shared.ended(busy, ident)
    bad = shared.judge(ident, *EXPECTED["whole"])
    shared.fire(sane)
    assert bad == []


@pytest.mark.sweep
@pytest.mark.parametrize("done", [False, True])
def test_released_work_is_taken_after_both_restart(shared: SharedTeam, done: bool) -> None:
    ident = planned(shared, "slow", 1)[0]
    shared.approve(ident)
    one = shared.team.worker(f"one-{int(done)}")
    reached(shared, ident, "model.called", 2)
    shared.boss.kill()
    shared.boss.wait()
    if done:
        until(lambda: shared.team.sql("SELECT 1 FROM team_work WHERE kind = 'ended'"), "", 30)
    shared.fire(one)
    shared.host()
    two = shared.team.worker(f"two-{int(done)}")
    shared.ended(ident)
    bad = shared.judge(ident, *EXPECTED["slow"])
    shared.fire(two)
    assert bad == []


def test_work_of_withdrawn_request_is_removed(
    shared: SharedTeam,
) -> None:
    one = shared.team.worker("thinker")
    ident = shared.ask("thinks")
    until(lambda: shared.team.sql("SELECT 1 FROM team_work WHERE token IS NOT NULL"), "", 30)
    shared.boss.kill()
    shared.boss.wait()
    until(lambda: shared.team.sql("SELECT 1 FROM team_work WHERE kind = 'drafted'"), "", 30)
    (shared.vault.root / "Inbox" / "Requests" / f"{ident}.md").unlink()
    shared.host()
    until(lambda: shared.count(ident)["request.withdrawn"], "its end", 30)
    until(lambda: not shared.clear(ident), f"{shared.clear(ident)}", 10)
    shared.fire(one)


def test_frozen_worker_writes_nothing_after_takeover(shared: SharedTeam) -> None:
    ident = planned(shared, "slow", 1)[0]
    shared.approve(ident)
    one = shared.team.worker("frozen")
    reached(shared, ident, "model.called", 2)
    one.send_signal(signal.SIGSTOP)
    froze = time.monotonic()
    two = shared.team.worker("awake")
    reached(shared, ident, "lease.acquired", 3)
    took_s = time.monotonic() - froze
    until(lambda: shared.team.sql(HELD), "a call of its successor", 30)
    calls = shared.count(ident)["model.called"]
    one.send_signal(signal.SIGCONT)
    until(
        lambda: "now belongs to another worker" in shared.team.log("frozen"), "the frozen one", 30
    )
    held = shared.team.sql(HELD)
    answered = shared.count(ident)["model.called"] > calls
    assert held or answered, "the successor's call is held no more"
    shared.ended(ident)
    bad = shared.judge(ident, *EXPECTED["slow"])
    shared.fire(one, two)
    assert (bad, shared.left_at("frozen"), shared.left_at("awake")) == ([], [], [])
    print(f"taken over {took_s:.1f} s after it froze")
    # twice the lease where nobody else works on the machine; the second worker starts meanwhile
    assert took_s < 12 * LEASE_S


def frozen_at(shared: SharedTeam, numbers: Sequence[int]) -> list[str]:
    """Freeze a worker at each of these points of a mission, until another has ended it; thaw it.

    Return what went wrong: what the mission is not, and what the thawed one wrote.
    """
    idents = planned(shared, "whole", len(numbers))
    names = [f"ice-{number}-{len(shared.made)}" for number in numbers]
    frozen = [
        shared.failing(name, number, how="SIGSTOP")
        for name, number in zip(names, numbers, strict=True)
    ]
    shared.ready(*names)
    shared.approve(*idents)
    for one in frozen:
        until(lambda one=one: is_stopped(one.pid) or one.poll() is not None, "ice", 60)
    healthy = [shared.team.worker(f"{names[0]}-sane-{n}") for n in range(2)]
    shared.ended(*idents, patience_s=90)
    bad = [f"{one}: {what}" for one in idents for what in shared.judge(one, *EXPECTED["whole"])]
    before = settled(shared)
    for one in frozen:
        one.send_signal(signal.SIGCONT)
    time.sleep(LEASE_S)
    if news := all_written(shared) ^ before:
        bad.append(f"the thawed ones changed: {sorted(map(str, news))}")
    shared.fire(*frozen, *healthy)
    bad += [f"left at {name}: {left}" for name in names if (left := shared.left_at(name))]
    if bad:
        bad.append(f"the points were {numbers}")
    return bad


def all_written(shared: SharedTeam) -> set[tuple[Any, ...]]:
    """Return all that a worker could have written: rows, and references of the repository."""
    found = {("ref", line) for line in shared.refs_with(shared.repo).splitlines()}
    for what in (
        "'event', trace_id, action_type, id FROM activity WHERE trace_id <> ''",
        "'record', trace_id, attempt, seq FROM records",
        "'refs', trace_id, refs FROM team_refs",
        "'work', trace_id, generation, worker, token, kind FROM team_work",
    ):
        found |= set(shared.team.sql(f"SELECT {what}"))
    return found


def settled(shared: SharedTeam) -> set[tuple[Any, ...]]:
    """Return the same once nothing of it changes any more."""
    last = all_written(shared)
    while True:
        time.sleep(1.0)
        now = all_written(shared)
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
def test_frozen_at_fifty_places(shared: SharedTeam) -> None:
    points = points_of(shared, "whole")
    count = int(os.environ.get("PLACES", "50"))
    numbers = sorted({round(n * (len(points) - 1) / (count - 1)) for n in range(count)})
    bad: list[str] = []
    for at in range(0, len(numbers), AT_ONCE):
        wrong = frozen_at(shared, numbers[at : at + AT_ONCE])
        bad += wrong
        print(numbers[at : at + AT_ONCE], "\n".join(w[:6000] for w in wrong), flush=True)
    print(f"{len(numbers)} of {len(points)} places")
    assert not bad


@pytest.mark.sweep
def test_restarted_worker_removes_its_leftovers(shared: SharedTeam) -> None:
    ident = planned(shared, "slow", 1)[0]
    shared.approve(ident)
    one = shared.team.worker("untidy")
    reached(shared, ident, "tool.called", 3)
    one.kill()
    one.wait()
    two = shared.team.worker("tidy")
    shared.ended(ident)
    shared.fire(two)
    assert shared.left_at("untidy")
    one = shared.team.worker("untidy", labels="gpu")
    until(lambda: shared.team.log("untidy").count("takes work") == 2, "", 30)
    shared.fire(one)
    assert shared.left_at("untidy") == []


EXPECTED["asks"] = (2, 1, {"hello.txt": "one\nmore\nmore"})
EXPECTED["widens"] = (2, 1, {"hello.txt": "one\nmore", "note.md": "note"})


def killed_around_it(shared: SharedTeam, kind: str, numbers: Sequence[int]) -> list[str]:
    """Kill workers at these points of missions that fail, or ask; return what went wrong."""
    idents = planned(shared, kind, len(numbers))
    names = [f"{kind}-at-{number}" for number in numbers]
    doomed = [shared.failing(name, number) for name, number in zip(names, numbers, strict=True)]
    shared.ready(*names)
    shared.approve(*idents)
    asked = {"asks": "question.asked", "widens": "plan.amendment_requested"}.get(
        kind, "execution.failed"
    )
    until(
        lambda: (
            all(one.poll() is not None for one in doomed)
            or all(shared.count(ident)[asked] for ident in idents)
        ),
        kind,
        60,
    )
    healthy = [shared.team.worker(f"{kind}-sane-{n}") for n in range(2)]
    bad: list[str] = []
    for ident in idents:
        reached(shared, ident, asked)
        if kind != "fails":
            answer = ("answer", ident, "Hello") if kind == "asks" else ("approve", ident, "--yes")
            until(
                lambda answer=answer: not shared.vault.cli(*answer, check=False).returncode, "", 30
            )
        shared.ended(ident)
        found = shared.count(ident)
        bad += [] if found[asked] == 1 else [f"{ident}: {found[asked]} {asked}"]
        if kind != "fails":
            bad += [f"{ident}: {what}" for what in shared.judge(ident, *EXPECTED[kind])]
            continue
        kept = [ref for ref in shared.refs(shared.repo) if f"failed/{ident}-" in ref]
        bad += [] if len(kept) == 1 else [f"{ident}: kept {kept}"]
        left = git(shared.repo, "show", f"{kept[0]}:other.txt") if kept else ""
        bad += [] if left == "half" else [f"{ident}: other.txt is {left!r}"]
        bad += [] if found["step.completed"] == 1 else [f"{ident}: {found['step.completed']} steps"]
        until(lambda ident=ident: not shared.clear(ident), f"{shared.clear(ident)}", 10)
    shared.fire(*healthy, *doomed)
    if bad:
        bad.append(f"the points were {numbers}")
    return bad


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["fails", "asks", "widens"])
def test_killed_around_a_failure_and_a_question(shared: SharedTeam, kind: str) -> None:
    step = int(os.environ.get("STRIDE", "1"))
    numbers = range(int(os.environ.get("FIRST", "0")), {"fails": 190}.get(kind, 120), step)
    bad: list[str] = []
    for at in range(0, len(numbers), AT_ONCE):
        wrong = killed_around_it(shared, kind, numbers[at : at + AT_ONCE])
        print(numbers[at : at + AT_ONCE], "\n".join(one[:3000] for one in wrong), flush=True)
        bad += wrong
    assert bad == []


# --- what is handed over


def commit_more(shared: SharedTeam, content: str) -> None:
    """Commit in the person's repository, so that there is something to push."""
    (shared.repo / "more.md").write_text(content)
    git(shared.repo, "add", "more.md")
    git(shared.repo, "commit", "-qm", "More")


@pytest.mark.sweep
def test_push_longer_than_lease_starts_work_once(shared: SharedTeam) -> None:
    ident = planned(shared, "whole", 1)[0]
    commit_more(shared, "even more\n")
    slow = shared.team.folder / "bin"
    slow.mkdir()
    (slow / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *" push "*) sleep {LEASE_S + 2} ;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    (slow / "git").chmod(0o755)
    shared.fire(shared.boss)
    shared.host(PATH=f"{slow}:{os.environ['PATH']}")
    one = shared.team.worker("waiting")
    shared.approve(ident)
    shared.ended(ident)
    bad, found = shared.judge(ident, *EXPECTED["whole"]), shared.count(ident)
    shared.fire(one, shared.boss)
    shared.host()
    assert (bad, found["execution.resumed"]) == ([], 0), shared.told(ident)


def test_worker_with_full_disk_delays_work(shared: SharedTeam) -> None:
    ident = planned(shared, "whole", 1)[0]
    place = shared.team.folder / "state-full"
    with small_disk_at(place, "40M") as disk:
        one = shared.team.worker("full")
        shared.ready("full")
        fill_up(disk / "filling")
        shared.approve(ident)
        waits = f"{ident}: waiting for the machine"
        try:
            until(lambda: waits in shared.team.log("host"), waits, 60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{shared.told(ident)}") from None
        shared.fire(one)
    two = shared.team.worker("roomy")
    shared.ended(ident)
    bad = shared.judge(ident, *EXPECTED["whole"])
    shared.fire(two)
    assert bad == []


# --- what people do meanwhile


EXPECTED["command"] = (3, 1, {"hello.txt": "one"})


@pytest.mark.sweep
def test_mission_stops_while_waiting_running_or_frozen(
    shared: SharedTeam,
) -> None:
    waits, runs, frozen = planned(shared, "command", 3)
    shared.approve(waits)
    reached(shared, waits, "plan.approved")
    until(lambda: waits in shared.team.log("host").split("no worker is running")[-2], "", 20)
    shared.vault.cli("stop", waits)
    reached(shared, waits, "plan.taken_back")
    one = shared.team.worker("stopped")
    shared.approve(runs)
    reached(shared, runs, "model.called", 3)
    began = time.monotonic()
    shared.vault.cli("stop", runs)
    shared.ended(runs)
    print(f"a running command was stopped within {time.monotonic() - began:.1f} s")
    shared.approve(frozen)
    reached(shared, frozen, "model.called", 3)
    one.send_signal(signal.SIGSTOP)
    shared.vault.cli("stop", frozen)
    two = shared.team.worker("ends-it")
    shared.ended(frozen)
    one.send_signal(signal.SIGCONT)
    for ident in (runs, frozen):
        found = shared.count(ident)
        assert (found["execution.failed"], found["execution.completed"]) == (1, 0)
        until(lambda ident=ident: not shared.clear(ident), f"{shared.clear(ident)}", 10)
        assert not [ref for ref in shared.refs(shared.repo) if f"feat/{ident}-" in ref]
    shared.fire(one, two)
    assert (shared.left_at("stopped"), shared.left_at("ends-it")) == ([], [])


def test_edit_during_worker_planning_replans_once(shared: SharedTeam) -> None:
    one = shared.team.worker("planning")
    ident = shared.ask("thinks")
    until(lambda: shared.team.sql("SELECT 1 FROM team_work WHERE token IS NOT NULL"), "", 30)
    (shared.vault.root / "Inbox" / "Requests" / f"{ident}.md").write_text(
        "---\nportal: code\n---\nSomething else.\n"
    )
    shared.planned(ident)
    found = shared.count(ident)
    assert found["plan.created"] == 1
    until(lambda: not shared.clear(ident), f"{shared.clear(ident)}", 10)
    shared.fire(one)


@pytest.mark.sweep
def test_paused_work_waits_and_withdrawn_work_vanishes(shared: SharedTeam) -> None:
    gone = shared.ask("whole")
    reached(shared, gone, "request.detected")
    (shared.vault.root / "Inbox" / "Requests" / f"{gone}.md").unlink()
    reached(shared, gone, "request.withdrawn")
    ident = planned(shared, "whole", 1)[0]
    shared.vault.cli("pause")
    time.sleep(1)
    one = shared.team.worker("paused")
    shared.ready("paused")
    shared.approve(ident)
    reached(shared, ident, "plan.approved")
    time.sleep(2)
    assert not shared.count(ident)["execution.started"]
    shared.vault.cli("resume")
    shared.ended(ident)
    bad = shared.judge(ident, *EXPECTED["whole"])
    shared.fire(one)
    assert (bad, shared.clear(gone)) == ([], [])


@pytest.mark.sweep
def test_labels_slots_and_a_drain(shared: SharedTeam) -> None:
    first, second = planned(shared, "slow", 2)
    shared.made["whole"] += 1
    gpu = f"whole-{shared.made['whole']}"
    shared.vault.drop("---\nportal: gpu\n---\nPlease.\n", f"{gpu}.md")
    one = shared.team.worker("wide", "--slots", "2")
    other = shared.team.worker("special", labels="gpu")
    shared.approve(first, second)
    shared.planned(gpu)
    shared.approve(gpu)
    reached(shared, first, "execution.started")
    reached(shared, second, "execution.started")
    shared.team.change("UPDATE team_members SET draining = TRUE WHERE name = 'wide'")
    assert one.wait(30) == 0
    next_one = shared.team.worker("narrow")
    shared.ended(first, second, gpu)
    bad = [
        *shared.judge(first, *EXPECTED["slow"]),
        *shared.judge(second, *EXPECTED["slow"]),
        *shared.judge(gpu, *EXPECTED["whole"]),
    ]
    shared.fire(other, next_one)
    assert (bad, shared.left_at("wide")) == ([], [])
    assert {"special"} == shared.workers(gpu)
    assert "special" not in shared.workers(first) | shared.workers(second)


@pytest.mark.sweep
def test_stopping_worker_finishes_its_round(shared: SharedTeam) -> None:
    ident = planned(shared, "slow", 1)[0]
    one = shared.team.worker("leaving")
    shared.approve(ident)
    reached(shared, ident, "model.called", 2)
    shared.fire(one)
    two = shared.team.worker("staying")
    shared.ended(ident)
    bad, found = shared.judge(ident, *EXPECTED["slow"]), shared.count(ident)
    shared.fire(two)
    assert (bad, found["model.failed"]) == ([], 0)
    assert shared.left_at("leaving") == []


# --- lines that are cut


@pytest.mark.sweep
def test_cut_connection_loses_no_work(shared: SharedTeam) -> None:
    short, long = planned(shared, "slow", 2)
    with line(shared.server.port) as cable:
        address = shared.team.role("far").replace(str(shared.server.port), str(cable.port))
        home = {"PLACET_STATE_HOME": str(shared.team.folder / "state-far")}
        where = ("--config", shared.team.config, "--remote", str(shared.team.remote))
        one = shared.team.start("worker", address, *where, log="far", env=home)
        shared.ready("far")
        shared.approve(short)
        reached(shared, short, "model.called", 2)
        cable.cut()
        time.sleep(LEASE_S / 3)
        cable.mend()
        shared.ended(short)
        bad, found = shared.judge(short, *EXPECTED["slow"]), shared.count(short)
        assert (bad, found["execution.resumed"]) == ([], 0)
        shared.approve(long)
        reached(shared, long, "model.called", 2)
        cable.cut()
        two = shared.team.worker("near")
        reached(shared, long, "lease.acquired", 3)
        cable.mend()
        shared.ended(long)
        bad = shared.judge(long, *EXPECTED["slow"])
        shared.fire(one, two)
        assert (bad, shared.left_at("far")) == ([], [])


@pytest.mark.sweep
@pytest.mark.parametrize("cut_s", [1.0, 2.0 * LEASE_S])
def test_hosts_cut_connection_loses_no_work(shared: SharedTeam, cut_s: float) -> None:
    ident = planned(shared, "slow", 1)[0]
    one = shared.team.worker(f"alone-{cut_s * 10:.0f}")
    shared.approve(ident)
    reached(shared, ident, "model.called", 2)
    shared.line.cut()
    time.sleep(cut_s)
    shared.line.mend()
    shared.ended(ident)
    bad, found = shared.judge(ident, *EXPECTED["slow"]), shared.count(ident)
    shared.fire(one)
    assert (bad, found["execution.resumed"]) == ([], 0)


# --- the database


@pytest.mark.sweep
def test_frozen_transaction_does_not_block_others(shared: SharedTeam) -> None:
    store = PostgresStore(shared.team.address)
    ident = planned(shared, "whole", 1)[0]
    store.begin(durable=True)
    began = time.monotonic()
    shared.approve(ident)
    until(lambda: shared.count(ident)["plan.approved"], "", 30)
    assert time.monotonic() - began < 3 * FROZEN_S
    with pytest.raises(DatabaseAway):
        store.connection.execute("COMMIT")
    store.ensure_writable()
    store.begin(durable=True)
    store.connection.execute("ROLLBACK")
    store.connection.close()


@pytest.mark.sweep
def test_database_outage_longer_than_lease_loses_nothing(shared: SharedTeam) -> None:
    ident = planned(shared, "slow", 1)[0]
    shared.approve(ident)
    one = shared.team.worker("patient")
    reached(shared, ident, "model.called", 2)
    shared.server.stop("kill")
    time.sleep(2 * LEASE_S)
    shared.server.start()
    shared.ended(ident)
    bad, found = shared.judge(ident, *EXPECTED["slow"]), shared.count(ident)
    shared.fire(one)
    assert (bad, found["execution.resumed"]) == ([], 0), shared.told(ident)


@pytest.mark.sweep
def test_worker_stops_during_database_outage(shared: SharedTeam) -> None:
    ident = planned(shared, "slow", 1)[0]
    shared.approve(ident)
    one = shared.team.worker("told")
    reached(shared, ident, "model.called", 2)
    shared.server.stop("kill")
    try:
        time.sleep(0.5)
        one.terminate()
        assert one.wait(20) == 0
    finally:
        shared.server.start()
    two = shared.team.worker("next")
    shared.ended(ident)
    bad = shared.judge(ident, *EXPECTED["slow"])
    shared.fire(two)
    assert bad == []


# --- all at once


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(int(os.environ.get("SEEDS", "2"))))
def test_random_kills_lose_no_mission(shared: SharedTeam, seed: int) -> None:
    chance, count = random.Random(seed), int(os.environ.get("MISSIONS", "12"))
    names = [f"storm-{seed}-{n}" for n in range(4)]
    idents = planned(shared, "whole", count)
    living = {name: shared.team.worker(name) for name in names}
    for name in names:
        shared.ready(name)
    done: Counter[str] = Counter()
    began = time.monotonic()
    waiting = list(idents)
    while waiting or not all(shared.count(one)["report.written"] for one in idents):
        assert time.monotonic() - began < 400 + 10 * count, [
            shared.told(one) for one in idents if not shared.count(one)["report.written"]
        ]
        for ident in waiting[:2]:
            shared.approve(ident)
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
            shared.boss.kill()
            shared.boss.wait()
            shared.host()
        else:
            shared.server.stop("kill")
            time.sleep(chance.uniform(0, 1))
            shared.server.start()
        if what in ("kill", "end"):
            living[name].wait(60)
            living[name] = shared.team.worker(name)
    bad = [
        f"{ident}: {what}" for ident in idents for what in shared.judge(ident, *EXPECTED["whole"])
    ]
    shared.fire(*living.values())
    took = time.monotonic() - began
    print(f"seed {seed}: {count} missions, {dict(done)} in {took:.0f} s")
    bad += [f"left at {name}: {left}" for name in names if (left := shared.left_at(name))]
    said = shared.vault.cli("journal", "verify", check=False)
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
            shared = SharedTeam(team, repo, server, cable)
            shared.host()
            ident = planned(shared, "whole", 1)[0]
            shared.approve(ident)
            for name, replies in (("one", 2), ("two", 2)):
                worker = team.worker(name)
                reached(shared, ident, "model.called", 1 + replies)
                reached(shared, ident, "lease.acquired", {"one": 2, "two": 3}[name])
                time.sleep(1.5)  # in the command
                worker.kill()
                worker.wait()
            last = team.worker("three")
            shared.ended(ident)
            bad = shared.judge(ident, 3, 1, {"hello.txt": "one\nmore"})
            shared.fire(last)
    assert bad == []
    assert asked == {(True, 0): 1, (False, 0): 1, (False, 1): 1, (False, 2): 1}
