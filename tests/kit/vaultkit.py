"""Start daemons as processes on temporary vaults, and make a person's gestures."""

from __future__ import annotations

import atexit
import json
import os
import pwd
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from gitkit import fingerprint, git
from placet.activity import CommittedRow
from placet.client.new_vault import init
from placet.client.site import Site
from placet.errors import UserError
from placet.host.accepted import accept
from placet.host.config import load
from placet.host.events import FailureDetected, event_of
from placet.host.state import vault_state
from placet.loop.app import daemon
from placet.loop.run import Daemon
from placet.note.paths import MARKER
from placet.sandbox.probe import probe

PATIENCE_S = 180.0
STEP_S = 0.02

Call = tuple[str, Mapping[str, Any]]

PLAN: dict[str, Any] = {
    "title": "Say hello",
    "summary": "Write a greeting.",
    "steps": [
        {
            "title": "Write it",
            "description": "A file.",
            "tools": ["write_file"],
            "done_when": ["it is there"],
        }
    ],
    "scope": {"write": ["hello.txt"]},
    "risks": ["none"],
}

DONE = [
    {
        "calls": [
            ("write_file", {"path": "hello.txt", "content": "hello\n"}),
            ("complete_step", {"step": 1, "summary": "Hello"}),
            ("finish", {"summary": "Done."}),
        ]
    }
]
"""What a mission for `PLAN` says."""


def until(look: Callable[[], Any], what: str = "", patience_s: float = PATIENCE_S) -> Any:
    """Return what `look` returns once it is true; fail after a while."""
    end = time.monotonic() + patience_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"waited {patience_s} s in vain: {what}")
        time.sleep(STEP_S)


ME = pwd.getpwuid(os.geteuid()).pw_name
"""The user who runs the tests, as an intent's owner has it."""
AT_ONCE = "quiet_s = 0\n"
DAEMONS = ("Inbox", "System", "Knowledge/Reports")
"""Folders of a vault that the daemon writes notes in."""
_meddling = False


@contextmanager
def meddling() -> Iterator[None]:
    """For a test whose mission changes the person's repository on purpose, or whose person does
    while a daemon runs.
    """
    global _meddling
    _meddling = True
    try:
        yield
    finally:
        _meddling = False


def _of_persons(root: Path, *, files: bool) -> dict[Path, dict[str, object]]:
    """Return the fingerprints of a vault's repositories, the vault itself included where it is one."""
    try:
        portals = tomllib.loads((root / "System/placet.toml").read_text()).get("portals", {})
        places = [Path(portal["path"]).expanduser() for portal in portals.values()]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError):
        places = []  # the configuration is what the test is about
    found = {}
    for place in {root, *(root / place for place in places)}:
        if place.is_dir() and (os.path.lexists(place / ".git") or (place / "HEAD").is_file()):
            found[place] = fingerprint(place, DAEMONS if place == root else ())
            if place == root and not files:
                del found[place]["files"]
            # placet began it, and keeps it
            if git(place, "config", "--get", "placet.history", check=False) == "true":
                for key in ("refs", "index", "logs/HEAD", "info"):
                    del found[place][key]
    return found


@contextmanager
def hands_off(root: Path, *, files: bool = True) -> Iterator[None]:
    """Fail unless all that is a person's in a vault's repositories is the same afterwards, however
    the work in between ended.

    `files` says whether that holds for the vault's own files too, because no person works in it
    meanwhile.
    """
    before = {} if _meddling else _of_persons(root, files=files)
    yield
    if before and not _meddling:
        after = _of_persons(root, files=files)
        for place, found in before.items():
            changed = [key for key in found if place in after and after[place][key] != found[key]]
            assert not changed, f"the person's repository {place} was touched: {changed}"


_probed = cache(probe)


@contextmanager
def nobody_writes() -> Iterator[None]:
    """For a daemon in this process: notes and settings settle soon, as nobody writes meanwhile,
    nothing is watched, and the box is attacked once for all.
    """
    with (
        patch("placet.disk.watch.Observer"),  # to stop one takes half a second
        patch("placet.case.settle.WRITTEN_S", STEP_S),
        patch("placet.case.settle.UNKNOWN_S", STEP_S),
        patch("placet.case.settle.MISSING_S", STEP_S),
        patch("placet.loop.intake.MISSING_S", STEP_S),
        patch("placet.loop.config_watch.PAIR_S", STEP_S),
        patch("placet.loop.build.probe", _probed),
    ):
        yield


@dataclass
class TestVault:
    """A vault with its own state home."""

    __test__ = False
    root: Path
    state: Path
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        keep = {
            k: v
            for k, v in os.environ.items()
            # PYTHONUNBUFFERED: ordinary people's output is buffered
            if not k.startswith(("ANTHROPIC", "PLACET", "GIT_", "PYTHONUNBUFFERED"))
        }
        return {**keep, "PLACET_STATE_HOME": str(self.state), "NO_COLOR": "1", **self.extra}

    @property
    def site(self) -> Site:
        """The vault as a command sees it that begins now."""
        return Site(str(self.root), self.env)

    def cli(
        self, *args: str, check: bool = True, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "placet", *args],
            cwd=self.root,
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if check:
            assert done.returncode == 0, f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def click(
        self, *args: str, check: bool = True, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in this process: for what it does, where that it is a process does not
        matter.
        """
        from placet.cli.main import main

        missing = dict.fromkeys(os.environ.keys() - self.env.keys())
        with chdir(self.root):
            done = CliRunner().invoke(main, args, input=stdin, env={**missing, **self.env})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        if check:
            assert done.exit_code == 0, f"{args}: {done.exit_code}\n{done.stdout}\n{done.stderr}"
        return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)

    def once(self, *, code: int = 0, apart: bool = False) -> str:
        """Let a daemon work until nothing is left to do, in this process or `apart` in one of its
        own; return what it said.
        """
        with hands_off(self.root):
            if apart:
                done = self.cli("run", "--once", check=False)
            else:
                with nobody_writes():
                    done = self.click("run", "--once", check=False)
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stderr

    def here(self) -> list[str]:
        """Run the daemon in this process until nothing is left to do; return what it said."""
        said: list[str] = []
        with nobody_writes(), daemon(self.root, self.env, said.append) as running:
            running.run_once()
        return said

    def configure(self, text: str, *, accepted: bool = True) -> None:
        """Write the configuration as the person at this machine does, who accepts it.

        Without `accepted` as anybody else.

        Requests are planned at once: tests do not type.
        """
        text = re.sub(rf"(?m)^\[vault\]\n{AT_ONCE}(?=\s*(?:\[|\Z))", "", text).replace(AT_ONCE, "")
        if "[vault]\n" in text and "quiet_s" not in text:
            text = text.replace("[vault]\n", f"[vault]\n{AT_ONCE}", 1)
        elif "quiet_s" not in text:
            # On top, as what a test adds at the end belongs to the table that it wrote last; below
            # keys that are in no table.
            above, bracket, tables = (
                ("", "", text) if text.startswith("[") else text.partition("\n[")
            )
            text = f"{above}\n[vault]\n{AT_ONCE}{bracket.strip()}{tables}".lstrip()
        (self.root / "System" / "placet.toml").write_text(text)
        state = vault_state(self.root, self.env)
        if accepted and state.accepted.exists():
            with suppress(UserError):  # one that cannot be used
                accept(state, load(self.root))

    def script(
        self,
        *conversations: tuple[str, Sequence[Mapping[str, Any]]],
        request: str = "*",
        more: bool = False,
    ) -> None:
        """Make the scripted model say these replies, each `{"text":…, "calls": [(name, input)],
        …}`.
        """
        lines = []
        for purpose, replies in conversations:
            lines += [
                "[[conversation]]",
                f"purpose = {json.dumps(purpose)}",
                f"request = {json.dumps(request)}",
            ]
            for reply in replies:
                lines.append("[[conversation.reply]]")
                for key, value in reply.items():
                    if key != "calls":
                        lines.append(f"{key} = {_toml(value)}")
                for name, given in reply.get("calls", ()):
                    lines += [
                        "[[conversation.reply.call]]",
                        f"name = {json.dumps(name)}",
                        f"input = {_toml(given)}",
                    ]
        with (self.root / "System" / "replies.toml").open("a" if more else "w") as file:
            file.write("\n".join(lines) + "\n")
        config = (self.root / "System" / "placet.toml").read_text()
        if "replies.toml" not in config:
            self.configure(
                '[model]\nprovider = "scripted"\nname = "test"\nscript = "System/replies.toml"\n'
                + config
            )

    def plays(self, plan: Mapping[str, Any], *turns: Sequence[Call] | Mapping[str, Any]) -> None:
        """Make the scripted model submit this plan; its mission takes these turns.

        A turn is its calls, or a whole reply.
        """
        replies = [turn if isinstance(turn, Mapping) else {"calls": turn} for turn in turns]
        given = ("plan", [{"calls": [("submit_plan", plan)]}])
        self.script(given, *([("execute", replies)] if replies else []))

    def drop(self, text: str, name: str = "Say hello.md") -> Path:
        """Put a complete request there, as a sync tool does: a daemon need not wait for more."""
        path = self.root / "Inbox" / "Requests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.new")
        beside.write_text(text)
        os.utime(beside, (before := time.time() - 1, before))
        beside.replace(path)
        return path

    def plan(self, ident: str = "say-hello") -> Path:
        return self.root / "Inbox" / "Plans" / f"{ident}_plan.md"

    def active(self, ident: str = "say-hello") -> Path:
        return self.root / "System" / "Active" / f"{ident}.md"

    def approve(self, ident: str = "say-hello") -> None:
        self.plan(ident).rename(self.active(ident))

    @property
    def db(self) -> Path:
        found = list(self.state.glob("*/journal.db"))
        assert len(found) == 1, found
        return found[0]

    def rows(self, action: str | None = None) -> list[dict[str, Any]]:
        if not list(self.state.glob("*/journal.db")):
            return []
        with sqlite3.connect(f"file:{self.db}?mode=ro", uri=True) as connection:
            connection.row_factory = sqlite3.Row
            made = connection.execute(
                "SELECT 1 FROM sqlite_master WHERE name = 'activity'"
            ).fetchone()
            chosen, values = ("WHERE action_type = ?", [action]) if action is not None else ("", [])
            found = (
                connection.execute(
                    f"SELECT * FROM activity {chosen} ORDER BY id", values
                ).fetchall()
                if made
                else []
            )
        connection.close()
        return [{**dict(row), "metadata": json.loads(row["metadata"])} for row in found]

    def failures_told(self) -> list[FailureDetected]:
        """Each `failure.detected` row as clients are told of it."""
        told = []
        for row in self.rows("failure.detected"):
            event = event_of(CommittedRow(**{**row, "metadata": json.dumps(row["metadata"])}))
            assert isinstance(event, FailureDetected)
            assert event.description
            assert event.suggested_action, f"{event.pattern} says nothing to do"
            told.append(event)
        return told

    def actions(self) -> list[str]:
        return [row["action_type"] for row in self.rows()]

    def await_action(
        self, action: str, count: int = 1, patience_s: float = PATIENCE_S
    ) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = self.rows(action)
            return found[count - 1] if len(found) >= count else None

        try:
            return until(look, action, patience_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; the journal has {self.actions()}") from None

    def notes(self, folder: str) -> list[str]:
        return sorted(p.name for p in (self.root / folder).rglob("*.md"))

    def reports(self) -> list[Path]:
        return sorted((self.root / "Knowledge" / "Reports").glob("*.md"))


def rows(vault: TestVault, action: str) -> list[dict[str, Any]]:
    """Return the details of a vault's journal rows about an action."""
    return [row["metadata"] for row in vault.rows(action)]


def make_vault(folder: Path, **extra: str) -> TestVault:
    """Make a vault in a folder: what `placet init` makes, copied, with an id of its own."""
    vault = TestVault(folder / "vault", folder / "state", dict(extra))
    shutil.copytree(_initialised(), vault.root)
    (vault.root / MARKER).write_text(f"{os.urandom(16).hex()}\n")
    vault.configure("")
    return vault


class Saved:
    """A vault that was brought to some state once, for tests that all begin there."""

    def __init__(self, folder: Path, make: Callable[[Path], TestVault]) -> None:
        self._live, self._copy = folder / "live", folder / "copy"
        self._live.mkdir()
        self._vault = make(self._live)
        shutil.copytree(self._live, self._copy, symlinks=True)

    def restore(self) -> TestVault:
        """Return the vault as it was, at the same place."""
        shutil.rmtree(self._live)
        shutil.copytree(self._copy, self._live, symlinks=True)
        return replace(self._vault)


@cache
def _initialised() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="placet-template-"))
    atexit.register(shutil.rmtree, folder)
    init(folder)
    return folder


@contextmanager
def started(vault: TestVault) -> Iterator[Daemon]:
    """The daemon in this process, up; `run_once` of it works."""
    with nobody_writes(), daemon(vault.root, vault.env, lambda _: None) as running:
        yield running


@contextmanager
def running(vault: TestVault, *args: str) -> Iterator[subprocess.Popen[str]]:
    """The daemon as a process, up and watching; ended with SIGTERM, and must end well."""
    log = vault.root.parent / f"daemon-{time.monotonic_ns()}.log"
    started = len(vault.rows("daemon.started"))
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "placet", "run", "--vault", str(vault.root), *args],
            env=vault.env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            text=True,
        )
    with hands_off(vault.root, files=False):
        try:
            until(
                lambda: len(vault.rows("daemon.started")) > started or process.poll() is not None,
                "daemon.started",
            )
            assert process.poll() is None, log.read_text()
            # A first start accepts the settings that it read right after that row; what a test
            # changes before would be changed by nobody.
            until(vault_state(vault.root, vault.env).accepted.exists, "accepted.json")
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    raise
    said = log.read_text()
    assert "Traceback" not in said, said


def vault_with_history(folder: Path) -> TestVault:
    """Make a vault with a history, whose model plans and completes a mission."""
    made = make_vault(folder)
    made.plays(PLAN, *DONE)
    made.configure((made.root / "System/placet.toml").read_text() + "\n[vault]\nhistory = true\n")
    return made


def next_line(process: subprocess.Popen[str], *words: str) -> str:
    """Return the next line with all of these words; fail at the end."""
    assert process.stdout is not None
    said = []
    for one in process.stdout:
        said.append(one)
        if all(word in one for word in words):
            return one
    raise AssertionError(f"not said: {words}, but {said}")


def end_of(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    assert process.stdout is not None
    assert process.stderr is not None
    # not `communicate`, which passes over what was read ahead
    out, err = process.stdout.read(), process.stderr.read()
    return process.wait(60), out, err


@contextmanager
def printing(vault: TestVault, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A command of placet's that goes on printing."""
    with subprocess.Popen(
        [sys.executable, "-m", "placet", *args],
        cwd=vault.root,
        env=vault.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def copy_of(vault: TestVault, target: Path) -> None:
    shutil.copytree(vault.root, target, symlinks=True)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
