"""Test notices with a real web server, real programs and real time limits."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from messages_api import closed_port
from placet.case.life_cycle import State
from placet.errors import UserError
from placet.host.config import NotifyTable, config_from
from placet.host.notify import Event, Notice, send
from vaultkit import until

TRACE = "550e8400-e29b-41d4-a716-446655440000"
NOTICE = Notice(
    Event.PLAN_WAITS,
    "fix-the-median",
    TRACE,
    "My vault & notes",
    "Inbox/Plans/fix-the-median_plan.md",
    State.REVIEW,
)
LINK = "obsidian://open?vault=My%20vault%20%26%20notes&file=Inbox%2FPlans%2Ffix-the-median_plan.md"
SECRETS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CREDENTIALS_DIRECTORY",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "my_secret",
    "DB_PASSWORD",
    "OPENAI_APIKEY",
    "PGPASSWORD",
    "PGPASSFILE",
    "SSHPASS",
    "MYSQL_PWD",
    "DATABASE_URL",
    "REDIS_URL",
    "SENTRY_DSN",
    "DOCKER_AUTH_CONFIG",
    "SLACK_WEBHOOK_URL",
    "SMTP_PASS",
)
PLAIN = (
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "LANG",
    "KEYBOARD",
    "MONKEY",
    "PATHS",
    "PWD",
    "OLDPWD",
    "HOMEPAGE_URL",
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SECRETS, *PLAIN):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("no_proxy", "*")


def program(path: Path, body: str) -> Path:
    """A program of its own that is run by this Python, whatever the PATH is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{body}\n")
    path.chmod(0o755)
    return path


def recorder(path: Path, out: Path) -> Path:
    """A program that writes down its arguments and environment."""
    return program(
        path,
        f"open({str(out)!r}, 'w').write(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))",
    )


@contextmanager
def server(
    answer: Callable[[BaseHTTPRequestHandler], None],
) -> Iterator[tuple[str, list[tuple[str, str, dict[str, str], bytes]]]]:
    """A web server on loopback: its address, and the requests that it got."""
    got: list[tuple[str, str, dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            got.append((self.command, self.path, dict(self.headers), body))
            answer(self)

        do_GET = do_POST  # noqa: N815 - the name that http.server calls for a redirect that was followed

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{web.server_port}", got
        finally:
            web.shutdown()
            thread.join()


def answering(code: int, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(to: BaseHTTPRequestHandler) -> None:
        to.send_response(code)
        for name, value in headers.items():
            to.send_header(name, value)
        to.end_headers()

    return answer


def test_no_notifier_is_on_by_default() -> None:
    assert not NotifyTable().is_on
    assert send(NOTICE, NotifyTable()) == ()
    for on in (
        NotifyTable(desktop=True),
        NotifyTable(command=("x",)),
        NotifyTable(webhook="https://example.org/x"),
    ):
        assert on.is_on


# --- what a notice says


def test_the_link_opens_the_note() -> None:
    assert NOTICE.link == LINK
    parts = urlsplit(NOTICE.link)
    assert (parts.scheme, parts.netloc) == ("obsidian", "open")
    assert parse_qs(parts.query) == {
        "vault": ["My vault & notes"],
        "file": ["Inbox/Plans/fix-the-median_plan.md"],
    }


@pytest.mark.parametrize(
    "name", ["Größe #1?.md", "a\nb.md", "%2F.md", os.fsdecode(b"\xff.md"), "'; rm -rf $HOME.md"]
)
def test_any_name_makes_a_link_of_plain_characters(name: str) -> None:
    link = Notice(Event.NEEDS_YOU, "", "", name, f"Inbox/Requests/{name}").link
    assert link.isascii()
    assert link.isprintable()
    assert not set(link) & set(" \"'<>#")
    file = parse_qs(urlsplit(link).query, errors="surrogateescape")["file"]
    assert file == [f"Inbox/Requests/{name}"]


def test_without_a_note_the_link_opens_the_vault() -> None:
    assert Notice(Event.TEST, "", "", "v", "").link == "obsidian://open?vault=v"


def test_each_event_has_distinct_title() -> None:
    titles = {Notice(event, "a", TRACE, "v", "").title for event in Event}
    doubted = Notice(Event.MISSION_COMPLETED, "a", TRACE, "v", "", is_in_doubt=True)
    assert len({*titles, doubted.title}) == len(Event) + 1
    assert NOTICE.text == "Request fix-the-median in the vault My vault & notes"
    assert (
        Notice(Event.NEEDS_YOU, "", "", "v\x1b[31m", "n.md").text
        == "A note in the vault v\\x1b[31m"
    )


@pytest.mark.parametrize("bad", ["Pay 300 euros", "a\nb", "x" * 65, "<b>"])
def test_notice_cannot_carry_note_text(bad: str) -> None:
    with pytest.raises(ValueError, match="not an id"):
        Notice(Event.PLAN_WAITS, bad, TRACE, "v", "")
    with pytest.raises(ValueError, match="not an id"):
        Notice(Event.PLAN_WAITS, "a", bad, "v", "")


# --- a command


def test_notify_command_gets_facts_and_no_secret(tmp_path: Path) -> None:
    script = recorder(tmp_path / "my notifier", tmp_path / "out")
    assert send(NOTICE, NotifyTable(command=(str(script), "$HOME; ls", "two words"))) == ()
    argv, environment, folder = json.loads((tmp_path / "out").read_text())
    assert argv == ["$HOME; ls", "two words"]
    assert folder == "/"
    assert {k: v for k, v in environment.items() if k.startswith("PLACET_")} == {
        "PLACET_EVENT": "plan_waits",
        "PLACET_REQUEST_ID": "fix-the-median",
        "PLACET_TRACE_ID": TRACE,
        "PLACET_STATE": "review",
        "PLACET_LINK": LINK,
        "PLACET_TITLE": "A plan waits for you",
        "PLACET_TEXT": "Request fix-the-median in the vault My vault & notes",
    }
    assert not set(SECRETS) & set(environment)
    assert set(PLAIN) <= set(environment)


def test_a_command_in_the_home_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    recorder(tmp_path / "bin" / "tell", tmp_path / "out")
    assert send(NOTICE, NotifyTable(command=("~/bin/tell",))) == ()
    assert (tmp_path / "out").exists()


@pytest.mark.parametrize("word", ["/no/such/program", "~no-such-user-here/x"])
def test_unstartable_notify_command_is_reported(word: str) -> None:
    (problem,) = send(NOTICE, NotifyTable(command=(word,)))
    assert problem.startswith(f"command: {word} cannot be started: ")


def test_failed_notify_command_is_reported_without_output(tmp_path: Path) -> None:
    script = program(tmp_path / "fails", "sys.stderr.write('token 1234'); sys.exit(3)")
    assert send(NOTICE, NotifyTable(command=(str(script), "--token=1234"))) == (
        f"command: {script} ended with exit code 3",
    )


def test_hanging_notify_command_is_killed_with_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, pids = subprocess.Popen.wait, tmp_path / "pids"

    def wait_once_it_hangs(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        # a busy machine starts it later
        until(lambda: pids.exists() and pids.read_text().endswith("\n"), "its pids")
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_once_it_hangs)
    script = tmp_path / "hangs"
    script.write_text(
        f"#!/bin/sh\ntrap '' TERM\nsleep 60 &\necho $$ $! > '{tmp_path}/pids'\nwait\n"
    )
    script.chmod(0o755)
    began = time.monotonic()
    (problem,) = send(NOTICE, NotifyTable(command=(str(script),)), 0.3)
    assert time.monotonic() - began < 55  # it would sleep for 60 s
    assert problem == f"command: {script} was killed because it had not ended after 0.3 s"
    for pid in map(int, pids.read_text().split()):
        assert is_gone(pid)


def is_gone(pid: int) -> bool:
    for _ in range(1000):
        try:
            state = (
                Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                if sys.platform == "linux"
                else ""
            )
            os.kill(pid, 0)
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":  # dead, and not yet reaped by whoever inherited it
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return False


# --- the desktop


def test_notify_send_gets_escaped_text_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder(tmp_path / "bin" / "notify-send", tmp_path / "out")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert send(NOTICE, NotifyTable(desktop=True)) == ()
    argv, environment, _ = json.loads((tmp_path / "out").read_text())
    assert argv == [
        "--app-name=placet",
        "--",
        "A plan waits for you",
        "Request fix-the-median in the vault My vault &amp; notes\n" + LINK.replace("&", "&amp;"),
    ]
    assert not set(SECRETS) & set(environment)
    assert {"DBUS_SESSION_BUS_ADDRESS", "DISPLAY"} <= set(environment)


def test_osascript_gets_text_as_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder(tmp_path / "bin" / "osascript", tmp_path / "out")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    name = '" & (do shell script "id") & "'
    assert send(Notice(Event.MISSION_FAILED, "a", TRACE, name, ""), NotifyTable(desktop=True)) == ()
    argv, _, _ = json.loads((tmp_path / "out").read_text())
    script, words = argv[:6], argv[6:]
    assert script[::2] == ["-e"] * 3
    assert "do shell script" not in "".join(script)
    assert words == [
        "A mission failed",
        f"Request a in the vault {name}\nobsidian://open?vault=%22%20%26%20%28do%20shell%20script%20%22id%22%29%20%26%20%22",
    ]


def test_missing_notify_send_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (problem,) = send(NOTICE, NotifyTable(desktop=True))
    assert "install notify-send" in problem
    assert "desktop = false" in problem


# --- a webhook


def test_a_webhook_gets_the_facts_as_json() -> None:
    with server(answering(204)) as (address, got):
        assert send(NOTICE, NotifyTable(webhook=f"{address}/hook?room=1")) == ()
    ((method, path, headers, body),) = got
    assert (method, path, headers["Content-Type"]) == ("POST", "/hook?room=1", "application/json")
    assert json.loads(body) == {
        "event": "plan_waits",
        "request_id": "fix-the-median",
        "trace_id": TRACE,
        "state": "review",
        "link": LINK,
        "title": "A plan waits for you",
        "text": "Request fix-the-median in the vault My vault & notes",
    }


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_webhook_follows_no_redirect(code: int) -> None:
    with (
        server(answering(200)) as (other, stolen),
        server(answering(code, Location=f"{other}/x")) as (address, got),
    ):
        (problem,) = send(NOTICE, NotifyTable(webhook=f"{address}/tok3n"))
    assert (len(got), stolen) == (1, [])
    assert problem.startswith(f"webhook: 127.0.0.1 answered {code}; it redirects")
    assert "tok3n" not in problem


def test_webhook_error_omits_path() -> None:
    with server(answering(404)) as (address, _):
        assert send(NOTICE, NotifyTable(webhook=f"{address}/tok3n")) == (
            "webhook: 127.0.0.1 answered 404",
        )
    (problem,) = send(NOTICE, NotifyTable(webhook=f"{closed_port()}/tok3n"))
    assert problem == "webhook: 127.0.0.1 cannot be reached: Connection refused"
    with server(lambda to: to.wfile.write(b"tok3n and nonsense\r\n\r\n") and None) as (address, _):
        (problem,) = send(NOTICE, NotifyTable(webhook=f"{address}/tok3n"))
    assert problem == "webhook: 127.0.0.1 cannot be reached: RemoteProtocolError"


@pytest.mark.parametrize(
    "proxy",
    [
        "socks5://me:hunter3@127.0.0.1:1",
        "gopher://me:hunter3@127.0.0.1:1",
        "http://me:hunter3@[::1",
    ],
)
def test_proxy_error_omits_password(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ALL_PROXY", proxy)
    (problem,) = send(NOTICE, NotifyTable(webhook="http://127.0.0.1:9/tok3n"))
    assert problem.startswith("webhook: 127.0.0.1 cannot be reached: ")
    assert "hunter3" not in problem
    assert "tok3n" not in problem


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with server(answering(204)) as (proxy, got):
        monkeypatch.setenv("http_proxy", proxy)
        assert send(NOTICE, NotifyTable(webhook="http://notices.example/hook")) == ()
    assert [request[:2] for request in got] == [("POST", "http://notices.example/hook")]


def test_a_webhooks_address_is_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with server(answering(204)) as (address, got):
        assert send(NOTICE, NotifyTable(webhook=f"{address}/tok3n")) == ()
    assert len(got) == 1
    assert "tok3n" not in caplog.text


def test_slow_webhook_response_times_out() -> None:
    """Each byte comes within the socket's own limit; only a limit on the whole ends this."""
    given_up = threading.Event()

    def trickle(to: BaseHTTPRequestHandler) -> None:
        to.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not given_up.wait(0.1):
            to.wfile.write(b"a")

    with server(trickle) as (address, _):
        began = time.monotonic()
        (problem,) = send(NOTICE, NotifyTable(webhook=address), 0.4)
        assert time.monotonic() - began < 30
        given_up.set()
        for thread in threading.enumerate():
            if thread.name == "webhook":
                thread.join(5)
    assert problem == "webhook: 127.0.0.1 did not answer within 0.4 s"


def test_silent_webhook_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (problem,) = send(
            NOTICE,
            NotifyTable(webhook=f"http://127.0.0.1:{silent.getsockname()[1]}/"),
            0.3,
        )
        for thread in threading.enumerate():
            if thread.name == "webhook":
                thread.join(5)
    assert problem == "webhook: 127.0.0.1 did not answer within 0.3 s"


def test_one_failed_notifier_does_not_stop_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = recorder(tmp_path / "tell", tmp_path / "out")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with server(answering(500)) as (address, got):
        problems = send(NOTICE, NotifyTable(desktop=True, command=(str(script),), webhook=address))
    assert [problem.split(":")[0] for problem in problems] == ["desktop", "webhook"]
    assert (tmp_path / "out").exists()
    assert len(got) == 1


# --- settings


@pytest.mark.parametrize(
    "webhook",
    [
        "example.org/hook",
        "file:///etc/passwd",
        "ftp://example.org/",
        "http://",
        "https:///x",
        "http://user:pw@example.org/",
        "http://example.org:port/",
        "http://example.org/a b",
        "http://example.org/\r\nX: y",
        "http://[::1",
        "http://exämple.org/",
    ],
)
def test_invalid_webhook_address_is_refused(webhook: str) -> None:
    with pytest.raises(UserError, match=r"notify\.webhook: must be an http") as error:
        config_from({"notify": {"webhook": webhook}}, "System/placet.toml")
    assert error.value.exit_code == 2
    assert "pw" not in str(error.value)


@pytest.mark.parametrize("command", [("",), ("", "x"), ("a", "b\0c")])
def test_invalid_notify_command_is_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=r"notify\.command: must begin with a program"):
        config_from({"notify": {"command": command}}, "System/placet.toml")


@pytest.mark.parametrize(
    "webhook", ["https://example.org", "http://[::1]:8080/x", "https://hooks.example.org/a/b?c=d#e"]
)
def test_a_web_address_is_accepted(webhook: str) -> None:
    assert NotifyTable(webhook=webhook).webhook == webhook
