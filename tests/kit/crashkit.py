"""Kill daemons at chosen places, restart them, and report what is wrong.

It runs as a separate process, which has placet loaded. Each daemon is a fork of it, which takes a
fraction of a second. A failpoint is before or after a write: a system call of Python, a transaction
of the journal, a git command, a change of the vault, a model's reply. Before each case, vault, state
and repository are restored at the same paths.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import placet.journal.writer
from gitkit import git, make_repo, settle_home
from placet.agent.record import Record
from placet.disk.vault import Vault
from placet.git import (
    attributes,
    changes,
    checkout,
    checkpoint,
    history,
    index,
    leftovers,
    receipt,
    removal,
    repository,
    vault_history,
    worktree,
)
from placet.git import commit as committing
from placet.git import run as runner
from placet.git.receipt import RECEIPTS
from placet.host.lock import MarkerLock, VaultLock
from placet.journal.writer import Journal
from placet.journal.writes import AddRecord, Guard, MarkDone, PutCase
from placet.loop.app import daemon
from placet.loop.tick import Loop
from placet.models.scripted import ScriptedModel
from placet.note.frontmatter import stamp
from signkit import new_key
from vaultkit import PLAN, TestVault, hands_off, make_vault

CALLS = ("write", "fsync", "rename", "replace", "link", "unlink", "mkdir", "rmdir")
PATIENCE_S = 60.0
APART = (
    "daemon.",
    "lease.",
    "execution.resumed",
    "note.explained",
    "model.waiting",
    "model.failed",
    "git.ran",
)
"""Rows that a restart or an error adds (a call of the model that was cut off is one that failed).

All others must be there exactly as often as without one.
"""


@dataclass(frozen=True)
class Job:
    """What a bench's daemon is given to do: a repository's files, a mission's plan and replies, and
    settings.
    """

    files: dict[str, str | bytes]
    read: str
    scope: dict[str, list[str]]
    tools: list[str]
    replies: list[dict[str, Any]]
    settings: str = ""
    asks: tuple[tuple[str, dict[str, Any]], ...] = ()  # calls of the planner before its plan
    signed: bool = False  # whether approvals need a signature, for which there is a key


WHOLE = Job(
    {
        "step.py": "import pathlib\np = pathlib.Path('hello.txt')\np.write_text(p.read_text() + 'more\\n')\n"
    },
    "step.py",
    {"write": ["hello.txt", "other.txt"], "run": ["python3 step.py"]},
    ["write_file", "edit_file", "run_command"],
    [
        {
            "calls": [
                ("write_file", {"path": "hello.txt", "content": "one\n"}),
                ("edit_file", {"path": "hello.txt", "old": "one", "new": "two"}),
            ]
        },
        {
            "calls": [
                ("run_command", {"command": "python3", "args": ["step.py"]}),
                ("read_file", {"path": "hello.txt"}),
            ]
        },
        {
            "calls": [
                ("complete_step", {"step": 1, "summary": "Hello"}),
                ("write_file", {"path": "other.txt", "content": "x\n"}),
            ]
        },
        {
            "calls": [
                ("complete_step", {"step": 2, "summary": "More"}),
                ("write_file", {"path": "other.txt", "content": "y\n"}),
            ]
        },
        {"calls": [("finish", {"summary": "Done."})]},
    ],
)


Act = Callable[[TestVault], None]
"""What a person does to the notes."""


class Bench:
    """A folder with a vault, its state and a repository, which can be put back to how they were at
    a stage.

    `acts` are what people do, by the name of the stage that begins then: a daemon has worked before
    each until nothing was left to do.
    """

    def __init__(
        self, folder: Path, job: Job = WHOLE, acts: Mapping[str, Act] | None = None
    ) -> None:
        self.acts = {"mission": TestVault.approve} if acts is None else acts
        self.folder = folder
        self.here = folder / "here"
        self.vault = make_vault(self.here)
        self.repo = make_repo(self.here / "repo", job.files)
        self.vault.configure(
            f'[commands]\nsandbox = "none"\n{job.settings}[portals.code]\npath = "{self.repo}"\n'
        )
        if job.signed:
            key = new_key(self.here)
            self.vault.click("signer", "add", "anna", str(key))
            self.vault.click("config", "set", "approval.key", str(key))
            self.vault.click("config", "set", "approval.signed", "true")
        steps = [
            {"title": "Write it", "tools": job.tools},
            {"title": "Write more", "tools": ["write_file"]},
        ]
        self.vault.script(
            (
                "plan",
                [
                    {"calls": [("read_file", {"path": job.read}), *job.asks]},
                    {"calls": [("submit_plan", {**PLAN, "scope": job.scope, "steps": steps})]},
                ],
            ),
            ("execute", job.replies),
        )
        self.vault.drop("---\nportal: code\n---\nSay hello.\n")
        self.keep("plan")
        for stage, act in self.acts.items():
            assert self.live(None) == 0
            act(self.vault)
            self.keep(stage)

    def keep(self, stage: str) -> None:
        shutil.copytree(self.here, self.folder / stage, symlinks=True)

    def put_back(self, stage: str) -> None:
        shutil.rmtree(self.here)
        shutil.copytree(self.folder / stage, self.here, symlinks=True)

    def live(self, act: Callable[[], None] | None) -> int:
        """Let one daemon work until nothing is left to do.

        Return what it ended with (-9: killed).
        """
        with hands_off(self.vault.root):
            return self.await_end(self.begin(act))

    def begin(self, act: Callable[[], None] | None) -> int:
        """Let a daemon begin to work in a fork of its own; return its pid."""
        pid = os.fork()
        if pid == 0:
            code = 99
            try:
                out = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(out, 1)
                os.dup2(out, 2)
                if act is not None:
                    act()
                with daemon(
                    self.vault.root, self.vault.env, lambda text: print(text, file=sys.stderr)
                ) as running:
                    tick = running.run_once()
                code = 1 if tick.waiting else 0
            except BaseException as error:  # the fork must end here, whatever happens
                print(repr(error), file=sys.stderr, flush=True)
            finally:
                os._exit(code)
        return pid

    def await_end(self, pid: int) -> int:
        """Return what a daemon ended with; 98: it did not end and was killed."""
        until = time.monotonic() + PATIENCE_S
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return 98
            time.sleep(0.002)

    # --- what is there
    # --------------------------------------------------------------------------------------

    def tokens(self) -> list[int]:
        """Return the fencing tokens of all leases that are held."""
        with closing(sqlite3.connect(f"file:{self.vault.db}?mode=ro", uri=True)) as connection:
            return [row[0] for row in connection.execute("SELECT token FROM leases WHERE held")]

    def asked(self) -> int:
        path = self.here / "asked"
        return len(path.read_text()) if path.exists() else 0

    def state(self) -> dict[str, Any]:
        """Return everything that must be the same after a crash and a restart."""
        rows = self.vault.rows()
        counted = Counter(
            row["action_type"] for row in rows if not row["action_type"].startswith(APART)
        )
        files = {
            str(p.relative_to(self.vault.root)): _alike(p.read_text())
            for p in sorted(self.vault.root.rglob("*"))
            if p.is_file() and ".git/" not in str(p)
        }
        branches = {
            ref: self._content(ref)
            for ref in git(self.repo, "for-each-ref", "--format=%(refname)").split()
        }
        subjects = git(self.repo, "log", "--branches", "--topo-order", "--format=%s").splitlines()
        with sqlite3.connect(self.vault.db) as connection:
            left = connection.execute(
                "SELECT count(*) FROM outbox WHERE done_at IS NULL"
            ).fetchone()[0]
            damage = connection.execute("PRAGMA integrity_check").fetchone()[0]
        connection.close()
        stray = sorted(
            p.name for p in self.vault.db.parent.glob("worktrees/*") if not p.name.endswith(".lock")
        )
        locks = sorted(str(p) for p in (self.repo / ".git").rglob("*.lock"))
        committed = sorted(
            (row["metadata"]["commit"] != "", row["metadata"]["files"])
            for row in rows
            if row["action_type"] in ("git.committed", "step.completed")
        )
        return {
            "events": dict(counted),
            "files": files,
            "refs": branches,
            "commits": subjects,
            "outbox": left,
            "damage": damage,
            "worktrees": stray,
            "intents": sorted(p.name for p in (self.vault.db.parent / "intents").iterdir()),
            "locks": locks,
            "committed": committed,
            "worktree list": len(git(self.repo, "worktree", "list").splitlines()),
        }

    def _content(self, ref: str) -> str:
        """Return the content at a reference; of a receipt what does not differ from run to run."""
        if not ref.startswith(RECEIPTS):
            return git(self.repo, "rev-parse", f"{ref}^{{tree}}")
        names = git(self.repo, "ls-tree", "--name-only", ref)
        return f"{git(self.repo, 'rev-parse', f'{ref}^^{{tree}}')}: {' '.join(names.split())}"


def _alike(text: str) -> str:
    """Return a note without what differs from run to run: times, durations, commits, and what a
    call cost that a kill cut off.
    """
    text = re.sub(r" \(at most \$[\d.]+ of it for interrupted calls\)", "", text)
    text = re.sub(r"\b\d+ (?:s|min)\b", "# s", text)  # two minutes, on a machine that is busy
    text = re.sub(r"digest `[0-9a-f]{8}`", "digest `H`", text)  # it may be letters alone
    return re.sub(r"\d+(\.\d+)?", "#", re.sub(r"\b(?=\w*\d)[0-9a-f]{7,64}\b", "H", text))


# --- failpoints


def prepare(
    bench: Bench,
    variant: str = "",
    log: Path | None = None,
    at: int | None = None,
    strace: Sequence[str] = (),
    blow: signal.Signals | int = signal.SIGKILL,
) -> None:
    """Make this fork the daemon that a case needs."""
    count_models(bench.here / "asked")
    spoil(variant)
    if log is not None or at is not None:
        patch(at, log, blow)
    if strace:
        traced(strace)


def patch(at: int | None, log: Path | None, blow: signal.Signals | int = signal.SIGKILL) -> None:
    """Count failpoints in this process, writing their names to `log`.

    Send it `blow` at number `at`.

    A number that is not a signal is an errno: the call at that place fails with it, instead.
    """
    count = 0

    def point(name: str) -> None:
        nonlocal count
        if log is not None:
            with log.open("a") as file:
                file.write(name + "\n")
        if count == at:
            if not isinstance(blow, signal.Signals):
                count += 1
                raise OSError(blow, os.strerror(blow))
            os.kill(os.getpid(), blow)
            if blow == signal.SIGKILL:
                time.sleep(5)
        count += 1

    def wrap(owner: Any, name: str, label: str) -> None:
        real = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            name = f"git {args[1]}" if label == "git" else label
            point(f"before {name}")
            result = real(*args, **kwargs)
            point(f"after {name}")
            return result

        setattr(owner, name, wrapped)

    for name in ("publish", "replace", "move", "remove"):
        wrap(Vault, name, f"Vault.{name}")
    wrap(Journal, "commit", "Journal.commit")
    for module in (
        *(checkout, history, vault_history, repository, runner, index),
        *(worktree, committing, changes, attributes, checkpoint, removal, leftovers, receipt),
    ):
        wrap(module, "run_git", "git")
    for name in CALLS:
        wrap(os, name, f"os.{name}")


def count_models(path: Path) -> None:
    """Write a mark for each call of a model that is really made."""
    real = ScriptedModel.reply

    def reply(self: ScriptedModel, *args: Any) -> Any:
        with path.open("a") as file:
            file.write("x")
        return real(self, *args)

    ScriptedModel.reply = reply  # type: ignore[method-assign]


def spoil(variant: str) -> None:
    """Make the daemon naive, so that a sweep has something to find."""
    if variant == "outbox":
        load = Loop.load

        def forget(self: Loop) -> None:
            load(self)
            self.state.outbox.pending = []

        Loop.load = forget  # type: ignore[method-assign]
    elif variant == "record":
        Record.load = classmethod(_empty)  # type: ignore[assignment, method-assign]
    elif variant == "lock":
        for lock in (VaultLock, MarkerLock):
            lock.__enter__ = lambda self: self  # type: ignore[method-assign]
            lock.__exit__ = lambda *_: None  # type: ignore[method-assign]
    elif variant == "trusting":
        # The lock alone is one wall of several: behind it are the lease, its token and the cases'
        # versions.
        spoil("lock")
        for change in (PutCase, MarkDone, AddRecord, Guard):
            change.ELSE = ""
        placet.journal.writer.may_take = lambda *_, **__: True


def _empty(
    cls: Any, journal: Journal, case: Any, attempt: int, clock: Any, token: int | None = None
) -> Record:
    with journal.read() as reader:
        rows = reader.records(case.trace_id, attempt)
    return Record(
        journal, case, attempt, clock, token, seq=max((row.seq for row in rows), default=0)
    )


def judge(bench: Bench, good: dict[str, Any], good_asked: int, lives: int) -> list[str]:
    """Return what differs from a run that nothing happened to."""
    now = bench.state()
    bad = [
        f"{key}: {now[key]!r} instead of {good[key]!r}"
        if key != "files"
        else f"files: {sorted(set(now[key].items()) ^ set(good[key].items()))!r}"
        for key in good
        if now[key] != good[key]
    ]
    cut = bench.asked() - good_asked
    if not 0 <= cut <= lives - 1:
        bad.append(f"models were asked {bench.asked()} times instead of {good_asked}")
    return bad


def once(bench: Bench, good: dict[str, Any], *, told: bool = False) -> list[str]:
    """Return what is there twice, half or left over.

    That the mission failed because somebody meddled is well.

    `told`: the model was told of an error, and went on as if it had not been; then the work may
    differ.
    """
    now = bench.state()
    bad = [
        f"{key}: {now[key]!r}"
        for key in ("outbox", "damage", "worktrees", "locks", "worktree list")
        if now[key] != good[key]
    ]
    events = now["events"]
    ends = events.get("execution.completed", 0) + events.get("execution.failed", 0)
    reports = [name for name in now["files"] if name.startswith("Knowledge/Reports/")]
    runs = good["events"].get("execution.started", 0)
    plans = events.get("plan.created", 0) + events.get("plan.failed", 0)
    found = (
        plans,
        events.get("execution.started", 0),
        ends,
        events.get("report.written", 0),
        len(reports),
    )
    if found != (1, runs, runs, runs, runs):
        bad.append(f"{events} and {reports}")
    if (
        "execution.completed" in events
        and not told
        and (now["commits"], now["refs"]) != (good["commits"], good["refs"])
    ):
        bad.append(f"commits: {now['commits']}")
    if len(set(now["commits"])) != len(now["commits"]):
        bad.append(f"commits: {now['commits']}")
    return bad


def judge_error(
    bench: Bench, good: dict[str, Any], good_asked: int, lives: int, name: str
) -> list[str]:
    """Return what differs from a run without the error `name`.

    A missing permission may be a person's will: it is told, and work may end with it, once. What a
    mission leaves that ended so is removed by the next daemon, as its report says.
    """
    if name == "EACCES":
        if bench.vault.rows("execution.failed"):
            bench.live(None)
        return once(bench, good, told=True)
    return judge(bench, good, good_asked, lives)


# --- sweeps
# -------------------------------------------------------------------------------------------------------
#
# Each gives, for every case of its part, what names it, whether a daemon was killed, how many more
# calls of a model there were, and what was wrong.

Case = tuple[list[Any], bool, int, list[str]]


def tally(cases: Iterable[Case]) -> dict[str, Any]:
    """Go through the cases of a sweep; return how many there were and what was wrong."""
    found: dict[str, Any] = {"points": 0, "killed": 0, "cut": 0, "bad": []}
    for name, killed, cut, bad in cases:
        found["points"] += 1
        found["killed"] += killed
        found["cut"] += max(0, cut)
        if bad:
            found["bad"].append([*name, bad])
    return found


def undisturbed(
    bench: Bench, stage: str, variant: str = "", strace: Sequence[str] = ()
) -> tuple[list[str], dict[str, Any], int]:
    """Let a stage go as it goes when nothing happens.

    Return its failpoints (none under strace), its end, the calls of a model.
    """
    bench.put_back(stage)
    log = bench.folder / f"points-{stage}"
    log.touch()
    code = bench.live(partial(prepare, bench, variant, None if strace else log, strace=strace))
    assert code == 0, (bench.folder / "log").read_text()
    return log.read_text().splitlines(), bench.state(), bench.asked()


def go_on(bench: Bench, lives: int, variant: str = "") -> list[str]:
    """Let daemons work until one ends well, at most so many.

    Return what is wrong with the last one's end.
    """
    code = -1
    for _ in range(lives):
        code = bench.live(partial(prepare, bench, variant))
        if code == 0:
            return []
    return [f"ended with {code}"]


def failpoints(
    bench: Bench, part: int, parts: int, step: int, variant: str, only: str = ""
) -> Iterator[Case]:
    """Kill at every `step`-th failpoint of planning and of a mission.

    `only` leaves out the failpoints whose name is another, and planning.
    """
    for stage in ("plan", "mission")[bool(only) :]:
        names, good, asked = undisturbed(bench, stage, variant)
        for at in [n for n, name in enumerate(names) if name == only or not only][
            part * step :: parts * step
        ]:
            bench.put_back(stage)
            first = bench.live(partial(prepare, bench, variant, at=at))
            ended = go_on(bench, 1, variant)
            yield (
                [stage, at, names[at]],
                first == -9,
                bench.asked() - asked,
                judge(bench, good, asked, 2) + ended,
            )


# --- stories in which a person is asked


def _tick(path: str, option: str) -> Act:
    def act(vault: TestVault) -> None:
        note = vault.root / path
        note.write_text(note.read_text().replace(f"- [ ] {option}", f"- [x] {option}"))

    return act


def _answer(path: str, words: str) -> Act:
    def act(vault: TestVault) -> None:
        note = vault.root / path
        note.write_text(note.read_text() + f"{words}\n")

    return act


def _decide(path: str, word: str) -> Act:
    def act(vault: TestVault) -> None:
        note = vault.root / path
        note.write_bytes(stamp(note.read_bytes(), {"decision": word}))

    return act


def _move(path: str, folder: str) -> Act:
    def act(vault: TestVault) -> None:
        note = vault.root / path
        note.rename(vault.root / folder / note.name)

    return act


def _command(path: str, *words: str) -> Act:
    """Leave an intent about the note at `path`, which the next daemon performs."""

    def act(vault: TestVault) -> None:
        (vault.root / path).read_bytes()
        vault.click(*words)

    return act


_QUESTION = ("ask_person", {"question": "Which one?", "options": ["This", "That"], "why": "So."})
_MORE = ("request_scope", {"why": "It needs it.", "write": ["third.txt"]})
_FIRST = ("write_file", {"path": "hello.txt", "content": "one\n"})
_REST = [
    {"calls": [("run_command", {"command": "python3", "args": ["step.py"]})]},
    {
        "calls": [
            ("complete_step", {"step": 1, "summary": "Hello"}),
            ("write_file", {"path": "other.txt", "content": "x\n"}),
            ("complete_step", {"step": 2, "summary": "More"}),
        ]
    },
    {"calls": [("finish", {"summary": "Done."})]},
]
_WIDER = [
    {"calls": [_FIRST, _MORE, ("write_file", {"path": "third.txt", "content": "3\n"})]},
    *_REST,
]
_ID = "say-hello"
_PLAN, _ASKED = "Inbox/Plans/say-hello_plan.md", "Inbox/Questions/say-hello"
_AMENDMENT = "Inbox/Plans/say-hello_amendment1.md"
STORIES: Mapping[str, tuple[Job, Mapping[str, Act]]] = {
    "ask": (
        replace(
            WHOLE,
            asks=(_QUESTION,),
            replies=[{"calls": [_FIRST, _QUESTION, _FIRST]}, *_REST],
        ),
        {
            "plan answered": _tick(f"{_ASKED}_1.md", "That"),
            "mission": _decide(_PLAN, "approve"),
            "mission answered": _answer(f"{_ASKED}_2.md", "Neither."),
        },
    ),
    "widen": (
        replace(WHOLE, replies=_WIDER),
        {"mission": TestVault.approve, "widened": _decide(_AMENDMENT, "approve")},
    ),
    "refuse": (
        replace(WHOLE, replies=[{"calls": [_FIRST, _MORE]}, *_REST]),
        {"mission": TestVault.approve, "refused": _move(_AMENDMENT, "Inbox/Rejected")},
    ),
    "sign": (
        replace(WHOLE, replies=_WIDER, signed=True),
        {
            "mission": _command(_PLAN, "approve", _ID, "--yes"),
            "widened": _command(_AMENDMENT, "approve", _ID, "--yes"),
        },
    ),
    "command": (
        replace(WHOLE, replies=[{"calls": [_FIRST, _QUESTION, _MORE]}, *_REST]),
        {
            "rejected": _command(_PLAN, "reject", _ID, "--reason", "Too long."),
            "again": _command("Inbox/Requests/Say hello.md", "retry", _ID, "--comment", "Shorter."),
            "mission": _command(_PLAN, "approve", _ID, "--yes", "--remark", "Be brief."),
            "answered": _command(f"{_ASKED}_1.md", "answer", _ID, "Neither."),
            "widened": _command(_AMENDMENT, "approve", _ID, "--yes"),
        },
    ),
}
"""Missions in which a person is asked, with what that person does."""


def stories(
    bench: Bench, part: int, parts: int, step: int, variant: str, early: str = "", only: str = ""
) -> Iterator[Case]:
    """Kill at every `step`-th failpoint of each stage, let a daemon go on, and let the person do
    the rest.

    With `early` the person acts before the next daemon comes, where the killed one wrote the note
    already. `only` leaves out the failpoints whose name is another.
    """
    stages = ["plan", *bench.acts]
    known = [undisturbed(bench, stage) for stage in stages]
    good = known[-1][1]
    for nth, stage in enumerate(stages):
        names, later = known[nth][0], list(bench.acts.values())[nth:]
        asked = sum(calls for _, _, calls in known[nth:])
        points = [n for n, name in enumerate(names) if only in ("", name)]
        for at in points[part * step :: parts * step]:
            bench.put_back(stage)
            first = bench.live(partial(prepare, bench, variant, at=at))
            done = bool(early and later) and _done(later[0], bench.vault)
            bad = go_on(bench, 1, variant)
            for act in later[done:]:
                if not _done(act, bench.vault):
                    bad.append("the note that a person is to decide on is not there")
                    break
                bad += go_on(bench, 1, variant)
            bad += judge(bench, good, asked, 2)
            yield [stage, at, names[at]], first == -9, bench.asked() - asked, bad


def _done(act: Act, vault: TestVault) -> bool:
    """Let a person act; return whether the note was there."""
    try:
        act(vault)
    except FileNotFoundError:
        return False
    return True


def edited(bench: Bench, part: int, parts: int, step: int, variant: str) -> Iterator[Case]:
    """Kill at every `step`-th failpoint of a mission, and edit its plan in System/Active before the
    next daemon comes.

    A mission that had not begun must not begin: its plan goes back to review. One that had begun
    goes on with the approved text. Before the approval was acknowledged there is nothing to void.
    """
    names, good, _ = undisturbed(bench, "mission", variant)
    for at in range(part * step, len(names), parts * step):
        bench.put_back("mission")
        first = bench.live(partial(prepare, bench, variant, at=at))
        if not bench.vault.rows("plan.approved"):
            continue
        begun = bool(bench.vault.rows("execution.started"))
        plan = bench.vault.active()
        if there := plan.exists():
            plan.write_text(plan.read_text().replace("other.txt", "another.txt"))
        bad = go_on(bench, 1, variant)
        if begun or not there:
            bad += once(bench, good)
            if not bench.vault.rows("execution.completed"):
                bad.append("the mission that had begun was not completed")
        else:
            now = bench.state()
            bad += [
                f"{key}: {now[key]!r}"
                for key in ("outbox", "damage", "worktrees", "locks")
                if now[key] != good[key]
            ]
            if bench.vault.rows("execution.started") or bench.asked():
                bad.append("a mission began of a plan that was edited after its approval")
            if not bench.vault.plan().exists() or not bench.vault.rows(
                "plan.changed_after_approval"
            ):
                bad.append("the plan did not go back to review")
        yield ["edited", at, names[at]], first == -9, 0, bad


def errors(
    bench: Bench, part: int, parts: int, step: int, name: str, only: str = ""
) -> Iterator[Case]:
    """Let every `step`-th of Python's system calls that write fail once with errno `name`, in
    planning and in a mission.

    `only` leaves out the calls whose failpoint has another name.
    """
    for stage in ("plan", "mission"):
        names, good, asked = undisturbed(bench, stage)
        points = [
            n for n, place in enumerate(names) if place.startswith("before os.") and only in place
        ]
        for at in points[part * step :: parts * step]:
            bench.put_back(stage)
            first = bench.live(partial(prepare, bench, at=at, blow=getattr(errno, name)))
            ended = go_on(bench, 3)
            bad = judge_error(bench, good, asked, 4, name)
            yield [stage, at, names[at]], first != 0, 0, bad + ended


def system_calls(
    bench: Bench, part: int, parts: int, step: int, fault: str, only: str = ""
) -> Iterator[Case]:
    """Inject a fault into every `step`-th write-side system call of the daemon (strace), then let a
    daemon go on.

    `only` leaves out the calls that are named otherwise.
    """
    for stage in ("plan", "mission"):
        trace, options = bench.folder / f"trace-{stage}", ("-y", "-e", f"trace={WRITES}")
        _, good, asked = undisturbed(bench, stage, strace=("-o", str(trace), *options))
        points = most_calls(trace)
        if fault.startswith("error="):
            points = [point for point in points if point[0] != "write"]
            points += written_files(trace, bench.repo)
            own = bench.folder / f"own-{stage}"
            undisturbed(bench, stage, strace=("-o", str(own), *OWN, "-e", "trace=write"))
            points += [(name, k, OWN) for name, k, _ in most_calls(own)]
        points = [point for point in points if only in ("", point[0])]
        for name, k, where in points[part * step :: parts * step]:
            bench.put_back(stage)
            inject = (
                "-o",
                "/dev/null",
                *where,
                "-e",
                f"trace={name}",
                "-e",
                f"inject={name}:{fault}:when={k}",
            )
            first = bench.live(partial(prepare, bench, strace=inject))
            ended = go_on(bench, 3)
            yield (
                [stage, k, name, *where, first],
                first != 0,
                bench.asked() - asked,
                judge_error(bench, good, asked, 3, fault.removeprefix("error=")) + ended,
            )


OWN = ("-b", "execve")
"""strace follows the daemon's own threads, not the programs that it starts.

An error of a write comes where a disk gives one. Git's answers go into pipes, which no disk fills,
and git takes what it could not write there for written; so the daemon's own writes fail, and those
of any process to a file of the repository.
"""

CallPoint = tuple[str, int, Sequence[str]]
"""A system call's name, which one it is of each process that makes it, and strace's options."""


def most_calls(trace: Path) -> list[CallPoint]:
    """Return every number that a system call has in some process, by what strace wrote down."""
    per = Counter(re.findall(r"^(\d+) +(\w+)\(", trace.read_text(), re.MULTILINE))
    most: Counter[str] = Counter()
    for (_, name), n in per.items():
        most[name] = max(most[name], n)
    return [(name, k, ()) for name, n in sorted(most.items()) for k in range(1, n + 1)]


def written_files(trace: Path, repo: Path) -> list[CallPoint]:
    """Return the first write to each file of a repository that has the same name every time."""
    found = re.findall(rf"\bwrite\(\d+<({re.escape(str(repo))}/[^>]+)>", trace.read_text())
    return [("write", 1, ("-P", path)) for path in sorted(set(found)) if "/tmp_obj_" not in path]


REFUSED = 99
"""What a fork ends with whose daemon raised an error: here, that another holds the vault or writes its journal."""


def crowd(bench: Bench, part: int, parts: int, rounds: int, variant: str) -> Iterator[Case]:
    """Start six daemons at once on a vault with an approved plan, so many times.

    One must do all the work, once.
    """
    _, good, asked = undisturbed(bench, "mission")
    for number in range(part, rounds, parts):
        bench.put_back("mission")
        codes = [
            bench.await_end(pid)
            for pid in [bench.begin(partial(prepare, bench, variant)) for _ in range(6)]
        ]
        bad = go_on(bench, 1) + judge(bench, good, asked, 1)
        if 0 not in codes or not set(codes) <= {0, REFUSED}:
            bad.append(f"they ended with {codes}")
        yield [number], False, 0, bad


def stopped(bench: Bench, part: int, parts: int, rounds: int, variant: str) -> Iterator[Case]:
    """Stop a daemon in its mission, let another take the mission over and end it, then let the
    first go on.

    The lock of the vault, which keeps the second one out, is taken away: what is left is the lease.
    The second one takes the first for gone. Nothing may be done twice, and what the first does
    after that counts for nothing. The next daemon takes away the worktree that it was about to
    make, which is empty, and one that a mission left that failed as both were in it. A file that
    the first wrote into the worktree as it went on is kept at a reference.
    """
    names, good, asked = undisturbed(bench, "mission")
    first = next(n for n, name in enumerate(names) if name == "before git update-ref")
    places = [first + (len(names) - first) * k // rounds for k in range(rounds)]
    for at in places[part::parts]:
        bench.put_back("mission")
        pid = bench.begin(partial(prepare, bench, variant or "lock", at=at, blow=signal.SIGSTOP))
        os.waitpid(pid, os.WUNTRACED)
        tokens = bench.tokens()
        other = bench.begin(partial(prepare, bench, variant or "lock"))
        # the first may hold a lock of the journal's or of the worktree's: the other waits for it
        until = time.monotonic() + 5
        while bench.tokens() == tokens and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(0.2)
        os.kill(pid, signal.SIGCONT)
        killed = bench.await_end(pid) != 0
        second = bench.await_end(other)
        last = bench.live(partial(prepare, bench)) or bench.live(None)
        left = [ref for ref in bench.state()["refs"] if ref.startswith("refs/placet/left/")]
        for ref in left:
            git(bench.repo, "update-ref", "-d", ref)
        bad = once(bench, good)
        writes = names[at].split()[1] in ("os.write", "os.fsync", "os.rename")
        if not (writes or bench.vault.rows("execution.failed")):
            bad += left
        if second not in (0, REFUSED) or last != 0:
            bad.append(f"the others ended with {second} and {last}")
        yield [at, names[at]], killed, bench.asked() - asked, bad


WRITES = "write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,ftruncate"


def traced(options: Sequence[str]) -> None:
    """Let strace follow this process and all its threads and children from now on."""
    process = subprocess.Popen(
        ["strace", "-f", "-q", "-p", str(os.getpid()), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 20
    while "TracerPid:\t0" in Path("/proc/self/status").read_text():
        assert time.monotonic() < until, "strace cannot follow"
        assert process.poll() is None, "strace ended"
        time.sleep(0.005)


if __name__ == "__main__":
    kind, where, part, parts, step, *rest = sys.argv[1:]
    Path(where).mkdir(parents=True)
    os.environ.update(settle_home(Path(where) / "home"))
    run = {
        "failpoints": failpoints,
        "stories": stories,
        "edited": edited,
        "calls": system_calls,
        "errors": errors,
        "crowd": crowd,
        "stopped": stopped,
    }[kind]
    told = STORIES[rest.pop(0)] if kind == "stories" else (WHOLE, None)
    bench = Bench(Path(where), *told)
    print(json.dumps(tally(run(bench, int(part), int(parts), int(step), *rest))))
