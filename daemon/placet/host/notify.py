"""Notify a person by desktop, command or webhook: a plan waits, a mission ended.

A notice says what happened and where to look; it never quotes a note. An error comes back as a
sentence, because a notice that cannot be sent must not stop the work that it is about.
"""

from __future__ import annotations

import html
import json
import logging
import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Self
from urllib.parse import quote, urlsplit

from placet.case.life_cycle import State
from placet.host.config import NotifyTable
from placet.host.state import expand_home
from placet.note.paths import show


def post(address: str, facts: Mapping[str, str], timeout_s: float) -> str:
    """POST the facts as JSON; return an error or "".

    The thread bounds a slow name server, and a header that comes byte by byte; it ends with its
    socket.
    """
    import httpx2  # noqa: F401 - not before the first webhook, and not within its time: 150 ms

    # at INFO it logs whole addresses, and these may hold tokens
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    answer: list[str] = []
    thread = threading.Thread(
        target=lambda: answer.append(_posted(address, facts, timeout_s)),
        daemon=True,
        name="webhook",
    )
    thread.start()
    thread.join(timeout_s)
    return (
        answer[0] if answer else f"webhook: {_host(address)} did not answer within {timeout_s:g} s"
    )


def _posted(address: str, facts: Mapping[str, str], timeout_s: float) -> str:
    import ssl

    import httpx2

    host = _host(address)
    # A server that is spoken to in the clear needs no certificates, which take 70 ms to read.
    tls = True if urlsplit(address).scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # A redirect is not followed: a notice goes to the host that the person named and to no
        # other.
        client = httpx2.Client(verify=tls, timeout=timeout_s, follow_redirects=False)
    except (
        ImportError,
        ValueError,
        httpx2.InvalidURL,
    ):  # their words would quote the proxy's password
        return (
            f"webhook: {host} cannot be reached: the proxy that the environment names "
            "(HTTPS_PROXY, ALL_PROXY) cannot be used"
        )
    try:
        with (
            client,
            client.stream(
                "POST",
                address,
                content=json.dumps(dict(facts)),
                headers={"Content-Type": "application/json", "User-Agent": "placet"},
            ) as response,
        ):
            if response.is_success:  # what it says beyond that is not read
                return ""
            moved = (
                "; it redirects, which is not followed: put its new address into webhook"
                if response.is_redirect
                else ""
            )
            return f"webhook: {host} answered {response.status_code}{moved}"
    except httpx2.TimeoutException:
        return f"webhook: {host} did not answer within {timeout_s:g} s"
    except (
        httpx2.HTTPError,
        httpx2.InvalidURL,
        OSError,
        ValueError,
    ) as error:  # ValueError: a host that IDNA cannot encode
        return f"webhook: {host} cannot be reached: {_why(error)}"


def _why(error: BaseException) -> str:
    """Return the system's error, or the type of others, whose text may quote the server."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__ if cause is None else cause.strerror or str(cause)


def _host(address: str) -> str:
    return urlsplit(address).hostname or ""


class Event(StrEnum):
    """The event of a notice; each but the last is one transition of a case."""

    PLAN_WAITS = "plan_waits"
    MISSION_COMPLETED = "mission_completed"
    MISSION_FAILED = "mission_failed"
    NEEDS_YOU = "needs_you"
    TEST = "test"  # `placet notify test`: its own word, so that no command takes it for a plan


_TITLES: Mapping[Event, str] = {
    Event.PLAN_WAITS: "A plan waits for you",
    Event.MISSION_COMPLETED: "A mission is done",
    Event.MISSION_FAILED: "A mission failed",
    Event.NEEDS_YOU: "placet needs you",
    Event.TEST: "placet can reach you",
}

_ASKS = "placet asks you something"
_IN_DOUBT = "A mission is done, but a check failed or never ran"

_SECRET_NAME = re.compile(
    r"ANTHROPIC_.*|CREDENTIALS_DIRECTORY"
    r"|(?:.*[_-])?(?:API_?)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|PAT)S?"
    # secrets by other names: addresses with a password, files of log-ins as a text
    r"|PGPASS.*|SSHPASS|.*_(?:PASS|PWD|AUTH|DSN)|(?:.*_)?(?:DATABASE|DB|REDIS|MONGO(?:DB)?|POSTGRES(?:QL)?|MYSQL|AMQP|BROKER|"
    r"RABBITMQ|CELERY_BROKER|SENTRY|WEBHOOK|SLACK)_(?:URL|URI|DSN|HOOK)|.*AUTH_CONFIG|.*AUTHORIZATION|.*COOKIE|.*_CONNECTION_STRING",
    re.IGNORECASE | re.DOTALL,
)
"""Names of environment variables that programs are not given."""

# The words arrive as arguments of the script, so nothing in them is read as AppleScript.
_APPLESCRIPT = (
    "on run words",
    "display notification (item 2 of words) with title (item 1 of words)",
    "end run",
)


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice.

    `note_path` is relative to the vault, empty without a note to open. `request_id` and `trace_id`
    are empty for a note that is not a case yet; `state` is the case's after the transition.
    `is_in_doubt` says that a planned command of a mission failed last, or never ran. Raises
    ValueError for an id of other characters than letters, digits and `-`: a notice must not carry
    text of a note.
    """

    event: Event
    request_id: str
    trace_id: str
    vault_name: str
    note_path: str
    state: State | None = None
    is_in_doubt: bool = False

    def __post_init__(self) -> None:
        for name in (self.request_id, self.trace_id):
            if not re.fullmatch(r"[A-Za-z0-9-]{0,64}", name):
                raise ValueError(f"not an id: {name!r}")

    @property
    def title(self) -> str:
        """Return one fixed sentence per event, or for work that asks a person or is in doubt."""
        if self.is_in_doubt:
            return _IN_DOUBT
        return _ASKS if self.state is State.ASKING else _TITLES[self.event]

    @property
    def text(self) -> str:
        """Return the request and the vault that it is about."""
        about = f"Request {self.request_id}" if self.request_id else "A note"
        return f"{about} in the vault {show(self.vault_name)}"

    @property
    def link(self) -> str:
        """Return the address of the note, or the vault, in Obsidian: percent-encoded, `/` too."""
        file = f"&file={_encoded(self.note_path)}" if self.note_path else ""
        return f"obsidian://open?vault={_encoded(self.vault_name)}{file}"

    @property
    def facts(self) -> dict[str, str]:
        """Return the data: `PLACET_*` variables for commands, JSON for webhooks."""
        return {
            "event": self.event.value,
            "request_id": self.request_id,
            "trace_id": self.trace_id,
            "state": "" if self.state is None else self.state.value,
            "link": self.link,
            "title": self.title,
            "text": self.text,
        }


TIMEOUT_S = 10.0
"""Longest time for one destination."""


def send(notice: Notice, settings: NotifyTable, timeout_s: float = TIMEOUT_S) -> tuple[str, ...]:
    """Send a notice to every destination that is set; return a sentence for each that failed.

    Never raises, and never retries. Blocks for up to `timeout_s` per destination. The sentences
    name no more of an address than its host, and nothing that a program printed: webhook addresses
    and commands may hold tokens.
    """
    problems = []
    environment = {
        name: value for name, value in os.environ.items() if not _SECRET_NAME.fullmatch(name)
    }
    if settings.desktop:
        problems.append(_desktop(notice, environment, timeout_s))
    if settings.command:
        facts = {f"PLACET_{name.upper()}": value for name, value in notice.facts.items()}
        problems.append(_run("command", settings.command, environment | facts, timeout_s))
    if settings.webhook:
        problems.append(post(settings.webhook, notice.facts, timeout_s))
    return tuple(problem for problem in problems if problem)


LAST_S = 10.0
"""Longest delay of the daemon's end by notices."""


class Messenger:
    """Sends notices in order, in a separate thread. A context manager.

    `say` is told what failed. On exit, notices are sent for LAST_S more; the rest is counted and
    dropped.
    """

    def __init__(
        self, settings: NotifyTable, say: Callable[[str], None], timeout_s: float = TIMEOUT_S
    ) -> None:
        self._settings = settings
        self._say = say
        self._timeout_s = timeout_s
        self._queue: queue.SimpleQueue[Notice | None] = queue.SimpleQueue()
        self._until_s = float("inf")
        self._thread = threading.Thread(target=self._work, name="notify", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._until_s = time.monotonic() + LAST_S - 1  # one for the last to be ended and told of
        self._queue.put(None)
        self._thread.join(LAST_S)
        if self._thread.is_alive():
            self._say("A notice was still being sent when the daemon ended.")

    def send(self, notice: Notice) -> None:
        """Queue a notice. Never blocks."""
        self._queue.put(notice)

    def _work(self) -> None:
        unsent = 0
        while (notice := self._queue.get()) is not None:
            left_s = self._until_s - time.monotonic()
            if left_s <= 0:
                unsent += 1
                continue
            for problem in send(notice, self._settings, min(self._timeout_s, left_s)):
                self._say(problem)
        if unsent:
            self._say(f"{unsent} notices were not sent, because those before them took too long.")


def _desktop(notice: Notice, environment: Mapping[str, str], timeout_s: float) -> str:
    path = environment.get("PATH")
    body = f"{notice.text}\n{notice.link}"
    if program := shutil.which("notify-send", path=path):
        # The body is markup (Desktop Notifications Specification, "Markup").
        argv = [program, "--app-name=placet", "--", notice.title, html.escape(body, quote=False)]
    elif program := shutil.which("osascript", path=path):
        argv = [
            program,
            *(word for line in _APPLESCRIPT for word in ("-e", line)),
            notice.title,
            body,
        ]
    else:
        return (
            "desktop: neither notify-send nor osascript is on the PATH; install notify-send "
            "(Debian: libnotify-bin) or set desktop = false"
        )
    return _run("desktop", argv, environment, timeout_s)


def _run(way: str, argv: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> str:
    """Run a program without a shell; return an error or "". A timeout kills its group."""
    try:
        program = str(expand_home(argv[0])) if argv[0].startswith("~") else argv[0]
        process = subprocess.Popen(
            [program, *argv[1:]],
            env=dict(environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, RuntimeError) as error:  # RuntimeError: a ~user that does not exist
        return f"{way}: {argv[0]} cannot be started: {getattr(error, 'strerror', None) or error}"
    with process:
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return f"{way}: {argv[0]} was killed because it had not ended after {timeout_s:g} s"
        finally:
            if process.returncode is None:  # not reaped, so the group's number is still its own
                # PermissionError: macOS, of a dead group
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
    return f"{way}: {argv[0]} ended with exit code {code}" if code else ""


def _encoded(name: str) -> str:
    return quote(name.encode("utf-8", "surrogateescape"), safe="")
