"""Test the tools on a real worktree: odd files, real commands, a real browser, parallel reads."""

from __future__ import annotations

import base64
import errno
import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchkit import EVERYTHING, TRACE, real, recorded
from gitkit import make_repo
from messages_api import MessagesApi, call, reply
from placet.agent import conversation
from placet.agent.record import Record
from placet.chat.guards import Effect
from placet.chat.messages import Reply, StopReason, ToolUse, Turn
from placet.chat.sizes import RESULT_CHARS, RESULT_WORDS
from placet.disk.confine import Root
from placet.disk.errors import VaultTrouble
from placet.disk.vault import Vault
from placet.plan.hosts import NEEDS_LEVEL_3, Host
from placet.plan.scope import Scope
from placet.sandbox.box import BoxLimits, Level
from placet.sandbox.probe import probe
from placet.tools.base import Toolbox
from placet.tools.grep import MAX_EXPANDED, expanded
from placet.tools.output import FOLD, MAX_KEPT_CHARS, Results
from placet.tools.registry import BY_NAME, PLANNABLE, TOOLS, executing, planning
from placet.tools.shorten import cut, fold, lines_of
from vaultkit import PLAN, make_vault

HANGS_S = 60.0
"""A call on an odd file that takes as long as this waits for somebody."""

LEVEL = probe().level
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chrome-headless-shell")


# --- odd files


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worktree with one of everything that is not an ordinary file."""
    root = tmp_path / "worktree"
    root.mkdir()
    (tmp_path / "outside.txt").write_text("outside\n")
    (root / "plain.txt").write_text("plain needle\n")
    os.mkfifo(root / "fifo")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    (root / "hard").hardlink_to(tmp_path / "outside.txt")
    (root / "out").symlink_to("../outside.txt")
    (root / "loop").symlink_to("loop")
    (root / "device").symlink_to("/dev/zero")
    (root / "null").symlink_to("/dev/null")
    (root / "proc").symlink_to("/proc/self/environ")
    if os.geteuid() == 0:
        os.mknod(root / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    with (root / "sparse").open("wb") as file:
        file.truncate(2**40)
    (root / "large").write_bytes(b"needle " * (50 * 1024 * 1024 // 7))
    (root / os.fsdecode(b"caf\xe9.txt")).write_text("latin name needle\n")
    deep = root
    for _ in range(30):
        deep = deep / "d"
        deep.mkdir()
    (deep / "leaf.txt").write_text("deep needle\n")
    return root


ODD = ["fifo", "socket", "hard", "out", "loop", "device", "null", "proc", "zero", "sparse", "large"]
FILE_TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {}),
    ("edit_file", {"old": "needle", "new": "x"}),
    ("list_directory", {}),
    ("search_files", {"pattern": "needle"}),
    ("grep", {"pattern": "needle"}),
    ("write_file", {"content": "x"}),
]


@pytest.mark.timeout(120)
def test_special_files_never_hang_or_leak_outside_content(odd: Path) -> None:
    took: dict[str, float] = {}
    with real(odd) as tools:
        for name in ODD:
            for tool, rest in FILE_TOOLS[:-1]:
                began = time.perf_counter()
                outcome = tools.dispatch(tool, {**rest, "path": name})
                took[f"{tool} {name}"] = time.perf_counter() - began
                assert not outcome.ok or "needle" not in outcome.content or name == "large", (
                    tool,
                    name,
                    outcome,
                )
                assert "outside\n" not in outcome.content
        found = json.loads(tools.dispatch("search_files", {"pattern": "needle"}).content)["lines"]
        assert sorted(found) == [
            "caf\udce9.txt:1:latin name needle",
            "/".join("d" * 30) + "/leaf.txt:1:deep needle",
            "plain.txt:1:plain needle",
        ]
        assert tools.dispatch("grep", {"pattern": "needle"}).content.count("needle") == 3
        assert len(json.loads(tools.dispatch("glob", {"pattern": "**"}).content)) == 11
        shown = tools.dispatch("list_directory", {"path": "."}).content.splitlines()
        assert {"fifo (other)", "socket (other)", "out (symlink)", "d/"} <= {*shown}
        assert "plain.txt 13" in shown
        assert (
            tools.dispatch("read_file", {"path": "caf\udce9.txt"}).content == "latin name needle\n"
        )
        errors = {name: tools.dispatch("read_file", {"path": name}).error_type for name in ODD}
        for name in ("fifo", "socket", "out", "device", "proc", "hard"):
            outcome = tools.dispatch("write_file", {"path": name, "content": "x"})
            # a link to outside is replaced, which leaves the outside alone
            assert outcome.ok is (name == "hard"), name
    assert errors | {"zero": "", "loop": ""} == {
        "fifo": "not_a_regular_file",
        "socket": "not_a_regular_file",
        "hard": "hard_link",
        "out": "path_outside",
        "loop": "",
        "device": "path_outside",
        "null": "path_outside",
        "proc": "path_outside",
        "zero": "",
        "sparse": "too_large",
        "large": "too_large",
    }
    assert (odd.parent / "outside.txt").read_text() == "outside\n"
    assert max(took.values()) < HANGS_S, sorted(took.items(), key=lambda t: -t[1])[:3]


CELLS: list[tuple[str, str, dict[str, Any]]] = [
    ("grep", "glob", {"pattern": "needle"}),
    ("glob", "pattern", {}),
    ("take_screenshot", "path", {}),
    *((tool, "path", rest) for tool, rest in FILE_TOOLS),
]  # writing is the last
LET_THROUGH = {"glob", "grep glob", "list_directory", "search_files", "grep"}
"""Tools that answer about an odd file instead of refusing it: a name, an empty list, no match."""


def cells(root: Path) -> list[tuple[str, str, bool, str, float]]:
    """Try each odd file in each path argument of each tool.

    Return what came of it, and the seconds that it took.
    """

    def never_run(*_: Any, **__: Any) -> Any:
        raise AssertionError("the browser was started")

    found = []
    with real(root, level=Level.BUBBLEWRAP, run_with=never_run) as tools:
        if os.environ.get("AS_NOBODY"):
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        for name in [
            *ODD,
            "closed",
            "closed/x",
            "noread",
            "none/there",
            "../outside.txt",
            "/etc/passwd",
            ".git/config",
            "",
        ]:
            for tool, argument, rest in CELLS:
                began = time.perf_counter()
                outcome = tools.dispatch(tool, {**rest, argument: name})
                took = time.perf_counter() - began
                assert "outside\n" not in outcome.content, (tool, name)
                label = (
                    tool if argument == "path" else f"{tool} {argument}".removesuffix(" pattern")
                )
                found.append((label, name, outcome.ok, outcome.error_type, took))
    return found


@pytest.mark.parametrize("nobody", [False, True])
@pytest.mark.skipif(os.geteuid() != 0, reason="looks at what root may and an ordinary user may not")
def test_every_tool_handles_every_special_file(odd: Path, nobody: bool) -> None:
    (odd / "closed").mkdir()
    (odd / "closed" / "x").write_text("needle\n")
    (odd / "noread").write_text("needle\n")
    for name in ("closed", "noread"):
        (odd / name).chmod(0)
    if not nobody:
        for name in ("closed/x", "noread"):
            (odd / name).unlink()
    script = (
        "import json, sys; from pathlib import Path; from placet.sandbox.box import Level; import test_tools\n"
        "print(json.dumps(test_tools.cells(Path(sys.argv[1]))))"
    )
    with TemporaryDirectory() as programs:  # not below `tmp_path`, which nobody but root may enter
        Path(programs).chmod(0o755)
        browser = Path(programs) / "chromium-headless-shell"
        browser.write_text("#!/bin/sh\n")
        browser.chmod(0o755)
        environment = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[1] / 'kit'}",
            "AS_NOBODY": "1" if nobody else "",
        }
        done = subprocess.run(
            [sys.executable, "-B", "-c", script, str(odd)],
            capture_output=True,
            text=True,
            env=environment,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == len(CELLS) * (len(ODD) + 8)
    passed = {(tool, name) for tool, name, ok, _, _ in found if ok}
    writing = {
        ("write_file", name)
        for name in ("hard", "sparse", "large", "noread", "closed/x", "none/there")
    }
    assert {(tool, name) for tool, name in passed if tool not in LET_THROUGH} <= (
        set() if nobody else writing
    )
    if nobody:
        refused = {(tool, name): error for tool, name, _, error, _ in found}
        for tool, name in [
            ("read_file", "noread"),
            ("read_file", "closed/x"),
            ("list_directory", "closed"),
            ("take_screenshot", "noread"),
            ("edit_file", "noread"),
        ]:
            assert refused[tool, name] == "permission_denied", (tool, name)
    slow = sorted(((took, tool, name) for tool, name, _, _, took in found), reverse=True)
    assert slow[0][0] < HANGS_S, slow[:3]
    assert (odd.parent / "outside.txt").read_text() == "outside\n"


def test_large_tree_search_finishes_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placet.tools.grep.SEARCH_S", HANGS_S)
    for folder in range(40):
        (tmp_path / f"d{folder}").mkdir()
        for file in range(50):
            (tmp_path / f"d{folder}" / f"f{file}.py").write_text(
                f"def f{file}(): return {folder}\n" * 20
            )
    with real(tmp_path) as tools:
        began = time.perf_counter()
        assert (
            len(
                tools.dispatch(
                    "grep", {"pattern": r"def f7\(\): return 3$", "glob": "*.py"}
                ).content.splitlines()
            )
            == 20
        )
        assert len(json.loads(tools.dispatch("glob", {"pattern": "d1*/f4?.py"}).content)) == 110
    assert time.perf_counter() - began < HANGS_S


HUGE = [
    "(?:a?){100000000}",
    "(?:a?){2001}",
    "a{20000}",
    "(?:(?:(?:a?){100}){100}){100}",
    "(?x)(?:a?) {100000000}",
    "(?:a?){0,99999}",
    "(?x)(?:a?) # x\n{100000000}",
    r"(?:\(a?\)){100000000}",
    "(?:[[]a?){100000000}",
    "(?:a?)*{9999}",
    "(?:ab){999}" * 2 + "(?:c){9}",
    "(?:a?){,100000000}",
    "(?:a?){" + "9" * 400 + "}",
    "(?:" + "a?" * 400 + "){999}",
    "(?#)(?:a?)(?#){100000000}",
]
HONEST = [
    r"\d{4}-\d{2}-\d{2}",
    "[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}",
    r"(?:\d{1,3}\.){3}\d{1,3}",
    r"\$\{name\}",
    "x{}",
    ".{0,1000}",
    r"(?:\w{1,63}\.){1,8}",
    "a" * 1000,
    r"\p{Lu}{3}",
]


@pytest.mark.parametrize("pattern", HUGE)
def test_pattern_expanding_too_far_is_never_compiled(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    assert expanded(pattern) > MAX_EXPANDED
    began = time.perf_counter()
    with real(tmp_path) as tools, patch("regex.compile", side_effect=AssertionError("compiled")):
        assert tools.dispatch("grep", {"pattern": pattern}).error_type == "pattern_too_large"
    assert time.perf_counter() - began < HANGS_S


def test_search_finds_names_by_a_glob(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.md").write_text("x * y\n")
    with real(tmp_path) as tools:
        assert '"notes/a.md"' in tools.dispatch("search_files", {"pattern": "notes/*"}).content
        assert "notes/a.md:1:x * y" in tools.dispatch("search_files", {"pattern": "x * y"}).content


@pytest.mark.parametrize("pattern", HONEST)
def test_pattern_with_ordinary_repeat_counts_is_accepted(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "a.txt").write_text("2026-11-22 and ${name}\n")
    with real(tmp_path) as tools:
        assert tools.dispatch("grep", {"pattern": pattern}).ok


def test_exploding_pattern_does_not_block_other_threads(tmp_path: Path) -> None:
    """The longest stand-still of another thread, not the time that the search takes."""
    (tmp_path / "a.txt").write_text("ab" * 1_000_000 + "d\n")
    longest, over = [0.0], threading.Event()

    def watch() -> None:
        last = time.perf_counter()
        while not over.wait(0.002):
            now = time.perf_counter()
            longest[0], last = max(longest[0], now - last), now

    with real(tmp_path) as tools:
        watcher = threading.Thread(target=watch)
        watcher.start()
        for pattern in (r"(?:a?b?)*\d", r"(?:(a)|(b))*\d", r"(?R)?[x\d]"):
            assert tools.dispatch("grep", {"pattern": pattern}).error_type == "pattern_too_slow"
        over.set()
        watcher.join()
    assert longest[0] < 5, "one that is loaded, too"


# --- commands

boxed = pytest.mark.skipif(LEVEL < Level.LANDLOCK, reason="no sandbox here")
SHELL = Scope(write=("**",), shell=True)


@boxed
def test_bash_runs_only_in_box(tmp_path: Path) -> None:
    root = tmp_path / "worktree"
    root.mkdir()
    with real(root, scope=SHELL, level=LEVEL) as tools:
        ran = json.loads(
            tools.dispatch(
                "bash", {"command": "echo a b | tr ' ' '\\n' | tail -1; echo x > made; exit 3"}
            ).content
        )
        assert (ran["stdout"], ran["exit_code"]) == ("b\n", 3)
        assert (root / "made").read_text() == "x\n"
        blocked = json.loads(
            tools.dispatch(
                "bash", {"command": f"echo x > {tmp_path}/escaped; cat /root/.profile"}
            ).content
        )
        assert blocked["exit_code"] != 0
        assert not (tmp_path / "escaped").exists()
        environment = json.loads(tools.dispatch("bash", {"command": "env"}).content)[
            "stdout"
        ].splitlines()
        names = {line.split("=")[0] for line in environment}
        assert names <= {
            "PATH",
            "HOME",
            "LANG",
            "TERM",
            "PWD",
            "SHLVL",
            "_",
            "TMPDIR",
            "GIT_CONFIG_NOSYSTEM",
            "OLDPWD",
        }
    with real(root, scope=EVERYTHING, level=LEVEL) as tools:
        assert tools.dispatch("bash", {"command": "echo"}).error_type == "outside_scope"
    for level in (Level.NONE, Level.SEATBELT):
        with real(root, scope=SHELL, level=level, unboxed=True) as tools:
            assert tools.dispatch("bash", {"command": "echo"}).error_type == "no_sandbox"


@boxed
@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        ("OSError: [Errno 30] Read-only file system: 'x'", "are read-only"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("OSError: [Errno 18] Invalid cross-device link", "cannot be moved between"),
        ("socket: Operation not permitted", "sockets are closed"),
        ("getaddrinfo EAI_AGAIN registry", "have no network"),
        ("AssertionError: 1 != 2", ""),
    ],
)
def test_sandbox_behind_failure_is_named(tmp_path: Path, failure: str, sentence: str) -> None:
    (tmp_path / "fails.py").write_text(f"import sys; sys.exit({failure!r})")
    with real(tmp_path, scope=Scope(run=(("python3",),)), level=LEVEL) as tools:
        call = {"command": "python3", "args": ["fails.py"]}
        said = json.loads(tools.dispatch("run_command", call).content)["stderr"]
    assert ("[placet: " in said) is bool(sentence)
    assert sentence in said


LISTED = Scope(run=(("sh",),), shell=True, hosts=(Host("packages.example"),))
ASKS = {"command": "curl -sS https://evil.example/; echo getaddrinfo EAI_AGAIN evil; exit 1"}


@pytest.mark.skipif(LEVEL < Level.BUBBLEWRAP, reason="no bubblewrap here")
def test_result_ends_with_refused_hosts(tmp_path: Path) -> None:
    with real(tmp_path, scope=LISTED, level=LEVEL) as tools:
        done = tools.dispatch("bash", ASKS)
    said = json.loads(done.content)
    assert "hosts" not in said
    assert "through the proxy in `https_proxy`" in said["stderr"]
    assert said["stderr"].endswith("\n[refused: evil.example:443 is not in the plan's network]")
    (row,) = done.hosts
    assert (row["host"], row["port"], row["connections"]) == ("evil.example", 443, 1)


@pytest.mark.parametrize("level", [Level.NONE, Level.LANDLOCK])
def test_hosts_are_refused_below_level_3(tmp_path: Path, level: Level) -> None:
    with real(tmp_path, scope=LISTED, level=level, unboxed=True) as tools:
        refused = tools.dispatch("run_command", {"command": "sh", "args": ["-c", "true"]})
    assert (refused.error_type, refused.refused) == ("needs_bubblewrap", True)
    assert NEEDS_LEVEL_3 in json.loads(refused.content)["error"]


@boxed
def test_npx_without_node_modules_is_refused(tmp_path: Path) -> None:
    with real(tmp_path, scope=Scope(run=(("npx",),)), level=LEVEL) as tools:
        refused = tools.dispatch("run_command", {"command": "npx", "args": ["tsc"]})
    assert "There is no node_modules here" in refused.content


@boxed
def test_runaway_output_is_killed_and_shortened(tmp_path: Path) -> None:
    scope = Scope(run=(("yes",), ("head",)))
    with real(
        tmp_path,
        scope=scope,
        level=LEVEL,
        limits=BoxLimits(timeout_s=20, kill_output_bytes=64 * 1024 * 1024),
    ) as tools:
        ran = json.loads(
            tools.dispatch("run_command", {"command": "yes", "args": ["word " * 100]}).content
        )
        assert ran["exit_code"] is None
        assert "killed: more than" in ran["stderr"]
        assert len(ran["stdout"]) < 20_000
        shown = tools.dispatch(
            "run_command", {"command": "head", "args": ["-c", "300000", "/dev/zero"]}
        )
        assert "\0" not in shown.content


@boxed
def test_requested_timeout_cannot_exceed_configured_timeout(tmp_path: Path) -> None:
    with real(
        tmp_path, scope=Scope(run=(("sleep",),)), level=LEVEL, limits=BoxLimits(timeout_s=1)
    ) as tools:
        began = time.monotonic()
        for asked in (0.2, 3600):
            ran = json.loads(
                tools.dispatch(
                    "run_command", {"command": "sleep", "args": ["60"], "timeout_s": asked}
                ).content
            )
            assert (ran["timed_out"], ran["exit_code"]) == (True, None)
        assert time.monotonic() - began < 50


@boxed
def test_mission_waits_for_free_disk_space(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.configure("[limits]\nfree_disk_bytes = 1_000_000_000_000_000_000\n")
    plan = {
        **PLAN,
        "scope": {"run": ["touch made"]},
        "steps": [{"title": "Touch", "tools": ["run_command"]}],
    }
    vault.plays(
        plan,
        [("run_command", {"command": "touch", "args": ["made"]})],
        [("give_up", {"reason": "The disk is full."})],
    )
    vault.drop("Touch it.\n")
    vault.once()
    vault.approve()
    assert "limits.free_disk_bytes" in vault.once(code=1)
    assert not vault.rows("execution.failed")
    settings = (vault.root / "System" / "placet.toml").read_text()
    vault.configure(settings.replace("1_000_000_000_000_000_000", "1_048_576"))
    vault.once()
    assert [row["metadata"]["reason"] for row in vault.rows("execution.failed")] == ["gave_up"]


def test_command_needs_sandbox_or_explicit_opt_out(tmp_path: Path) -> None:
    scope = Scope(run=(("echo",),))
    with real(tmp_path, scope=scope, level=Level.NONE) as tools:
        assert tools.dispatch("run_command", {"command": "echo"}).error_type == "no_sandbox"
    with real(tmp_path, scope=scope, level=Level.NONE, unboxed=True) as tools:
        assert (
            json.loads(tools.dispatch("run_command", {"command": "echo", "args": ["x"]}).content)[
                "stdout"
            ]
            == "x\n"
        )


@pytest.mark.skipif(LEVEL < Level.BUBBLEWRAP, reason="no bubblewrap here")
def test_sandbox_failure_becomes_tool_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone"  # what the box is to show is not there any more
    with real(tmp_path, scope=Scope(run=(("echo",),)), level=LEVEL, read_only=[gone]) as tools:
        outcome = tools.dispatch("run_command", {"command": "echo"})
    assert outcome.error_type == "sandbox_failed"
    assert json.loads(outcome.content)["error"]


# --- pictures

browsing = pytest.mark.skipif(
    BROWSER is None or LEVEL < Level.LANDLOCK, reason="no headless shell of Chromium here"
)
PAGE = "<title>T</title><body style='margin:0;background:#ff0000'><script>document.body.style.background='#0000ff'</script>"


def corner(image: str) -> str:
    """Return the colour of a PNG's first pixel, which no filter changes, in hexadecimal."""
    data = base64.b64decode(image)
    pieces, at = b"", 8
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        pieces += data[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    return zlib.decompress(pieces)[1:4].hex()


BLUE, WHITE = "0000ff", "ffffff"


@browsing
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "level", [level for level in (Level.BUBBLEWRAP, Level.LANDLOCK) if level <= LEVEL]
)
def test_screenshot_renders_worktree_page_in_box(tmp_path: Path, level: Level) -> None:
    root = tmp_path / "worktree"
    root.mkdir()
    (root / "a page.html").write_text(PAGE)
    before = sorted(root.iterdir())
    with real(root, level=level, limits=BoxLimits(timeout_s=60)) as tools:
        outcome = tools.dispatch("take_screenshot", {"path": "a page.html"})
        assert outcome.ok, outcome
        about = json.loads(outcome.content)
        assert (about["page"], about["width"], about["height"]) == ("a page.html", 1280, 800)
        assert corner(outcome.image) == BLUE  # red, had its script not run
        assert sorted(root.iterdir()) == before
        (tmp_path / "canary.html").write_text(PAGE)
        for target, seen in ((root / "a page.html", BLUE), (tmp_path / "canary.html", WHITE)):
            (root / "frame.html").write_text(
                f"<body style='margin:0'><iframe src='{target.as_uri()}' "
                "style='border:0;width:100vw;height:100vh'></iframe>"
            )
            assert corner(tools.dispatch("take_screenshot", {"path": "frame.html"}).image) == seen
        (root / ".env").write_text("DB_PASSWORD=hunter2hunter2\n")
        assert (
            tools.dispatch("take_screenshot", {"path": "a page.html"}).error_type == "secret_file"
        )


@browsing
@pytest.mark.timeout(120)
def test_screenshot_of_local_url_needs_network_scope(tmp_path: Path) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        try:
            with real(tmp_path, level=LEVEL, limits=BoxLimits(timeout_s=60)) as tools:
                assert tools.dispatch("take_screenshot", {"url": url}).error_type == "outside_scope"
            with real(
                tmp_path, level=LEVEL, scope=Scope(network=True), limits=BoxLimits(timeout_s=60)
            ) as tools:
                outcome = tools.dispatch("take_screenshot", {"url": url})
                assert outcome.ok, outcome
                assert corner(outcome.image) == BLUE
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "https://10.0.0.1/",
        "file:///etc/passwd",
        "http://127.0.0.1@example.org/",
        "http://user:pw@127.0.0.1/",
        "ftp://127.0.0.1/",
        "//127.0.0.1/",
        "http://127.0.0.1.example.org/",
        "http://[::2]/",
        "http://127.0.0.1:99999999/",
        "javascript:1",
        "http://0.0.0.0/",
        "http://localhost.example.org/",
        "data:text/html,x",
        "view-source:file:///etc/passwd",
        "http://127.1/",
    ],
)
def test_screenshot_refuses_non_local_urls(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chromium-headless-shell").write_text("#!/bin/sh\n")
    (tmp_path / "chromium-headless-shell").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def never_run(*_: Any, **__: Any) -> Any:
        raise AssertionError("the browser was started")

    with real(
        tmp_path, level=Level.BUBBLEWRAP, scope=Scope(network=True), run_with=never_run
    ) as tools:
        assert tools.dispatch("take_screenshot", {"url": url}).error_type == "outside_scope"


@pytest.mark.parametrize("there", ["chromium", ""])
def test_missing_browser_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    (tmp_path / "bin").mkdir()
    if there:
        (tmp_path / "bin" / there).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / there).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "a.html").write_text(PAGE)
    with real(tmp_path, level=Level.BUBBLEWRAP) as tools:
        outcome = tools.dispatch("take_screenshot", {"path": "a.html"})
    assert outcome.error_type == "no_browser"
    assert "apt-get install chromium-headless-shell" in outcome.content
    assert (f"{there} is here, but cannot run in the sandbox" in outcome.content) is bool(there)
    assert "take_screenshot" not in executing(PLANNABLE, EVERYTHING, Level.BUBBLEWRAP)


@browsing
@pytest.mark.timeout(120)
def test_screenshot_reaches_model_and_report_folder(tmp_path: Path) -> None:
    plan = {**PLAN, "scope": {}, "steps": [{"title": "Look", "tools": ["take_screenshot"]}]}
    seen: list[Any] = []

    def script(body: dict[str, Any]) -> Any:
        offered = {tool["name"] for tool in body["tools"]}
        if "submit_plan" in offered:
            return reply(call("submit_plan", plan))
        if len(body["messages"]) == 1:
            return reply(call("take_screenshot", {"path": "index.html"}))
        seen.extend(body["messages"][-1]["content"][0]["content"])
        return reply(
            call("complete_step", {"step": 1, "summary": "Seen"}),
            call("finish", {"summary": "It is blue."}),
        )

    repo = make_repo(tmp_path / "repo", {"index.html": PAGE})
    with MessagesApi(script) as api:
        vault = make_vault(tmp_path, ANTHROPIC_API_KEY="sk-test", ANTHROPIC_BASE_URL=api.url)
        vault.configure(f'[portals.code]\npath = "{repo}"\n')
        vault.drop("---\nportal: code\n---\nWhat does it look like?\n")
        vault.once()
        vault.approve()
        folder = vault.root / "Knowledge/Reports"
        with patch.object(
            Vault, "publish", side_effect=VaultTrouble("x.png", OSError(errno.EACCES, ""))
        ):
            vault.once(code=1)
        assert len(vault.rows("execution.completed")) == 1
        assert not list(folder.iterdir())
        vault.once(apart=True)  # another life has the picture from the journal
    assert [block["type"] for block in seen] == ["text", "image"]
    assert corner(seen[1]["source"]["data"]) == BLUE
    report = next(path for path in vault.reports()).read_text()
    pictures = sorted(folder.glob("*.png"))
    assert len(pictures) == 1
    assert f"![[{pictures[0].name}]]" in report
    assert "| killed |" not in report


# --- the registry


@pytest.mark.parametrize("revising", [False, True])
def test_plan_schema_demands_scope_and_known_tools(revising: bool) -> None:
    tool = planning(revising=revising, level=Level.NONE)["submit_plan"]
    shown = tool.spec().input_schema
    scope, step = shown["$defs"]["ScopeArgs"], shown["$defs"]["StepArgs"]
    assert "scope" in shown["required"]
    assert {"write", "run"} <= set(scope["required"])
    assert "tools" in step["required"]
    assert step["properties"]["tools"]["items"]["enum"] == [
        t.name for t in TOOLS if t.name in PLANNABLE and t.name not in ("bash", "take_screenshot")
    ]
    assert tool.args.model_validate({"title": "T", "summary": "S", "steps": [{"title": "A"}]})


def test_offered_tools_follow_plan_scope_and_level() -> None:
    everything = {tool.name for tool in TOOLS}
    assert set(executing([], EVERYTHING, Level.BUBBLEWRAP)) == {
        "ask_person",
        "complete_step",
        "request_scope",
        "finish",
        "give_up",
    }
    assert "bash" not in executing(PLANNABLE, EVERYTHING, Level.BUBBLEWRAP)
    assert "bash" not in executing(PLANNABLE, SHELL, Level.SEATBELT)
    assert "bash" in executing(PLANNABLE, SHELL, Level.LANDLOCK)
    planner = planning(revising=False, level=Level.BUBBLEWRAP)
    assert set(planner) == {
        "ask_person",
        "read_file",
        "list_directory",
        "search_files",
        "grep",
        "glob",
        "submit_plan",
    }
    assert "bash" in planner["submit_plan"].steps_may_name
    assert "bash" not in planning(revising=True, level=Level.NONE)["submit_plan"].steps_may_name
    assert {
        name for name in everything if BY_NAME[name].effect is Effect.CONTROL
    } == everything - PLANNABLE


def test_tool_target_names_subject_without_content() -> None:
    long = "x" * 1000
    for name, given_, expected in [
        ("read_file", {"path": "a\nb", "offset": 3}, "a\\nb"),
        ("write_file", {"path": "a", "content": "c"}, "a"),
        ("run_command", {"command": "git", "args": ["log", "-p"]}, "git log -p"),
        ("grep", {"pattern": "p", "path": "src"}, "p src"),
        ("bash", {"command": "echo ghp_" + "aB3d" * 9}, "echo [redacted: GitHub token]"),
        ("finish", {"summary": "s"}, ""),
        ("complete_step", {"step": 3, "summary": "s"}, "3"),
        ("read_file", {"path": long}, long[:200]),
        ("read_file", {}, ""),
    ]:
        assert BY_NAME[name].target(given_) == expected


def test_results_are_kept_within_bounds() -> None:
    kept = Results()
    first = kept.keep("first")
    names = [kept.keep(f"{n} " * 500_000) for n in range(12)]
    assert kept.get(first) is None
    assert kept.get(names[0]) is None
    assert kept.get(names[-1]) is not None
    assert sum(len(kept.get(name) or "") for name in names) <= MAX_KEPT_CHARS


@settings(max_examples=150)
@given(
    st.lists(
        st.sampled_from(
            ["word", "\n", " ", "caf\u0301", "\U0001f468\u200d\U0001f469", "x" * 50, "\t"]
        ),
        max_size=60,
    ),
    st.integers(2, 20),
    st.integers(40, 400),
)
def test_a_cut_keeps_beginning_and_end(pieces: list[str], words: int, chars: int) -> None:
    text = "".join(f"{piece} " if len(piece) < 10 else piece for piece in pieces)
    made = cut(text, words=words, chars=chars)
    if made is None:
        assert len(text.split()) <= words
        assert len(text) <= chars
        return
    assert text.startswith(made.head)
    assert text.endswith(made.tail)
    assert len(made.head) + len(made.tail) <= chars + 64
    assert made.words >= 1
    assert 1 <= made.first <= made.last <= max(made.lines, made.first)
    lines = lines_of(text)
    assert "".join(lines) == text
    # every line before `first` is there whole
    assert f"{made.head}\n".startswith("".join(lines[: made.first - 1]))
    assert f"\n{made.tail}".endswith("".join(lines[made.last :]))  # and every line after `last`


def test_cut_keeps_first_and_last_500_words() -> None:
    words = [f"w{n}" for n in range(1001)]
    made = cut(" ".join(words))
    assert made is not None
    assert made.words == 1
    assert (made.head.split(), made.tail.split()) == (words[:500], words[-500:])
    assert cut(" ".join(words[:1000])) is None
    assert (RESULT_WORDS, RESULT_CHARS) == (1000, 60_000)


@settings(max_examples=60)
@given(st.text(alphabet="ab \n\u0301\u200d\U0001f468", max_size=3000), st.integers(33, 200))
def test_fold_only_breaks_long_lines(text: str, width: int) -> None:
    folded = fold(text, width)
    assert all(len(line) <= width + 1 for line in lines_of(folded))
    assert folded.replace("\n", "") == text.replace("\n", "")
    assert FOLD > 32


# --- reads at the same time


def calls_of(uses: Sequence[ToolUse], tools: Toolbox, record: Record) -> Iterator[Any]:
    """The calls of one turn, each carried out when it is taken, without any limits."""
    limits: Any = SimpleNamespace(
        record=record, refuse_call=lambda _use: None, record_call=lambda _use, _outcome: None
    )
    blocks = tuple(
        {"type": "tool_use", "id": use.id, "name": use.name, "input": use.input} for use in uses
    )
    turn = Reply(Turn("assistant", blocks), StopReason.TOOL_USE)
    return conversation._calls(
        1, turn, tools.tools, tools.place, limits, lambda _iteration, _uses: True, None, []
    )


def test_parallel_reads_return_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("1\n")
    meeting = threading.Barrier(3, timeout=60)
    read = Root.read_through

    def together(self: Root, path: str) -> tuple[bytes, str]:
        if path in ("a", "b", "c"):
            meeting.wait()  # passes only where three read at once
        return read(self, path)

    monkeypatch.setattr(Root, "read_through", together)
    for name in "abc":
        (tmp_path / name).write_text(f"{name}\n")
    uses = [ToolUse("1", "read_file", {"path": name}) for name in "abc"]
    uses += [
        ToolUse("2", "write_file", {"path": "new", "content": "changed\n"}),
        ToolUse("3", "list_directory", {"path": "."}),
    ]
    with recorded(tmp_path) as (record, journal), real(tmp_path) as tools:
        done = list(calls_of(uses, tools, record))
        record.flush()
        with journal.read() as reader:
            kept = [(row.kind, row.key) for row in reader.records(TRACE, 1)]
    outcomes = [outcome for _, outcome in done]
    assert [o.content for o in outcomes[:3]] == ["a\n", "b\n", "c\n"]
    assert [use.input["path"] for use, _ in done] == ["a", "b", "c", "new", "."]
    assert kept == [
        ("outcome", "call:1:0"),
        ("outcome", "call:1:1"),
        ("outcome", "call:1:2"),
        ("intent", "call:1:3"),
        ("outcome", "call:1:3"),
        ("outcome", "call:1:4"),
    ]  # reading needs no intent
    assert "new 8" in outcomes[4].content.splitlines()  # what follows a write sees it


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_reads_succeed_without_spare_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    start, left = threading.Thread.start, [threads]

    def refused(self: threading.Thread) -> None:
        if self.name.startswith("read"):
            left[0] -= 1
            if left[0] < 0:
                raise RuntimeError("can't start new thread")
        start(self)

    for name in "abc":
        (tmp_path / name).write_text(f"{name}\n")
    uses = [ToolUse(name, "read_file", {"path": name}) for name in "abc"]
    with recorded(tmp_path) as (record, journal), real(tmp_path) as tools:
        monkeypatch.setattr(threading.Thread, "start", refused)
        outcomes = [outcome for _, outcome in calls_of(uses, tools, record)]
        monkeypatch.undo()
        record.flush()
        with journal.read() as reader:
            kept = [row.key for row in reader.records(TRACE, 1)]
    assert [o.content for o in outcomes] == ["a\n", "b\n", "c\n"]
    assert kept == ["call:1:0", "call:1:1", "call:1:2"]


def test_reads_before_stop_are_recorded(tmp_path: Path) -> None:
    uses = [ToolUse(name, "read_file", {"path": name}) for name in "abc"]
    with recorded(tmp_path) as (record, journal), real(tmp_path) as tools:
        for use, _ in calls_of(uses, tools, record):
            if use.input["path"] == "b":
                break
        record.close()
        with journal.read() as reader:
            assert [row.key for row in reader.records(TRACE, 1)] == ["call:1:0", "call:1:1"]
