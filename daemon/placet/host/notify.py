"""Tell a person that a plan waits, a mission ended or something needs them: desktop, a command, a webhook.

A notice says that something happened and where to look, never what a note says. Whatever goes wrong comes back as
a sentence: a notification that cannot be sent must not stop the work it is about.
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
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlsplit

from placet.core.errors import UserError
from placet.core.life.case import State
from placet.core.text.names import show


class Event(StrEnum):
    """What a notice is about. Each is one transition of a case, but for the last."""

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

_SECRET_NAME = re.compile(
    r"ANTHROPIC_.*|CREDENTIALS_DIRECTORY"
    r"|(?:.*[_-])?(?:API_?)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|PAT)S?"
    # What holds a secret without saying so: addresses with a password in them, and files of log-ins
    # as a text.
    r"|PGPASS.*|SSHPASS|.*_(?:PASS|PWD|AUTH|DSN)|(?:.*_)?(?:DATABASE|DB|REDIS|MONGO(?:DB)?|POSTGRES(?:QL)?|MYSQL|AMQP|BROKER|"
    r"RABBITMQ|CELERY_BROKER|SENTRY|WEBHOOK|SLACK)_(?:URL|URI|DSN|HOOK)|.*AUTH_CONFIG|.*AUTHORIZATION|.*COOKIE|.*_CONNECTION_STRING",
    re.IGNORECASE | re.DOTALL,
)
"""Environment variables that no notifier is given, by their names."""

# The words arrive as arguments of the script, so nothing in them is read as AppleScript.
_APPLESCRIPT = (
    "on run words",
    "display notification (item 2 of words) with title (item 1 of words)",
    "end run",
)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell.

    `note_path` is relative to the vault; empty where there is no note to open.

    `request_id` and `trace_id` may be empty where a note is no case yet; `state` is the case's
    after the transition. Raises ValueError for an id that is not letters, digits and `-`: a notice
    must not carry text of a note.
    """

    event: Event
    request_id: str
    trace_id: str
    vault_name: str
    note_path: str
    state: State | None = None

    def __post_init__(self) -> None:
        for name in (self.request_id, self.trace_id):
            if not re.fullmatch(r"[A-Za-z0-9-]{0,64}", name):
                raise ValueError(f"not an id: {name!r}")

    @property
    def title(self) -> str:
        """What happened, in one fixed sentence for each event."""
        return _TITLES[self.event]

    @property
    def text(self) -> str:
        """Which request of which vault it is about."""
        about = f"Request {self.request_id}" if self.request_id else "A note"
        return f"{about} in the vault {show(self.vault_name)}"

    @property
    def link(self) -> str:
        """The address that opens the note in Obsidian, percent-encoded (`/` too, as Obsidian asks)."""
        file = f"&file={_encoded(self.note_path)}" if self.note_path else ""
        return f"obsidian://open?vault={_encoded(self.vault_name)}{file}"

    @property
    def facts(self) -> dict[str, str]:
        """What commands get as `PLACET_*` variables and webhooks as JSON."""
        return {
            "event": self.event.value,
            "request_id": self.request_id,
            "trace_id": self.trace_id,
            "state": "" if self.state is None else self.state.value,
            "link": self.link,
            "title": self.title,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Where notices go; nowhere by default.

    `command` is an argv, `timeout_s` holds for each way by itself.

    Raises UserError (exit code 2) for settings that cannot work.
    """

    desktop: bool = False
    command: tuple[str, ...] = ()
    webhook: str = ""
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.command and (not self.command[0] or any("\0" in word for word in self.command)):
            raise _wrong("command", "must begin with a program, and no word of it may hold a NUL")
        if self.webhook and not _is_web_address(self.webhook):
            raise _wrong(
                "webhook",
                "must be an http:// or https:// address without spaces, user name and password",
            )
        if self.timeout_s <= 0:
            raise ValueError(f"timeout_s must be above 0, not {self.timeout_s}")

    @property
    def is_on(self) -> bool:
        """Whether a notice goes anywhere at all."""
        return bool(self.desktop or self.command or self.webhook)


def send(notice: Notice, settings: NotifySettings) -> tuple[str, ...]:
    """Send a notice every way that is on.

    Return what went wrong, a sentence each, empty if nothing did.

    Never raises. Blocks for up to `timeout_s` a way, so call it from a worker, and once for each
    transition: a failed notice is not repeated. The sentences name no address beyond its host and
    nothing that a program printed, for webhook addresses and commands may hold tokens.
    """
    problems = []
    environment = {
        name: value for name, value in os.environ.items() if not _SECRET_NAME.fullmatch(name)
    }
    if settings.desktop:
        problems.append(_desktop(notice, environment, settings.timeout_s))
    if settings.command:
        facts = {f"PLACET_{name.upper()}": value for name, value in notice.facts.items()}
        problems.append(_run("command", settings.command, environment | facts, settings.timeout_s))
    if settings.webhook:
        problems.append(_post(settings.webhook, notice.facts, settings.timeout_s))
    return tuple(problem for problem in problems if problem)


LAST_S = 10.0
"""How long the end of a daemon may be held up by notices, all together."""


class Messenger:
    """Sends notices one after the other, in a thread of its own: a slow webhook must not slow its caller. A context manager.

    `say` is told what went wrong. On leaving, what waits is sent for LAST_S more; what is not sent then is said and let go.
    """

    def __init__(self, settings: NotifySettings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._queue: queue.SimpleQueue[Notice | None] = queue.SimpleQueue()
        self._until_s = float("inf")
        self._thread = threading.Thread(target=self._work, name="notify", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._until_s = time.monotonic() + LAST_S - 1  # one for the last to be ended and told of
        self._queue.put(None)
        self._thread.join(LAST_S)
        if self._thread.is_alive():
            self._say("A notice was still being sent when the daemon ended.")

    def send(self, notice: Notice) -> None:
        """Send a notice soon. Never blocks."""
        self._queue.put(notice)

    def _work(self) -> None:
        unsent = 0
        while (notice := self._queue.get()) is not None:
            left_s = self._until_s - time.monotonic()
            if left_s <= 0:
                unsent += 1
                continue
            for problem in send(
                notice, replace(self._settings, timeout_s=min(self._settings.timeout_s, left_s))
            ):
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
            "desktop: neither notify-send nor osascript is on the PATH; install notify-send (Debian: libnotify-bin) or "
            "set desktop = false"
        )
    return _run("desktop", argv, environment, timeout_s)


def _run(way: str, argv: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> str:
    """Run a program without a shell; return what went wrong.

    Past the time limit it is killed with its group.
    """
    try:
        program = str(Path(argv[0]).expanduser()) if argv[0].startswith("~") else argv[0]
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


def _post(address: str, facts: Mapping[str, str], timeout_s: float) -> str:
    """POST the facts as JSON; return what went wrong.

    In a thread of its own, because nothing else bounds a slow name server or a header that comes
    byte by byte; a thread that is given up ends with its socket.
    """
    import httpx2  # noqa: F401 - at the first webhook, and before its time runs: 150 ms and memory that an idle daemon must not carry

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
        return f"webhook: {host} cannot be reached: the proxy that the environment names (HTTPS_PROXY, ALL_PROXY) cannot be used"
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
    """Return what the system said, else only the error's kind: other words may quote what the server sent."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__ if cause is None else cause.strerror or str(cause)


def _encoded(name: str) -> str:
    return quote(name.encode("utf-8", "surrogateescape"), safe="")


def _host(address: str) -> str:
    return urlsplit(address).hostname or ""


def _is_web_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and "@" not in parts.netloc
            and parts.port != 0
            and re.fullmatch(r"[!-~]+", address) is not None
        )
    except ValueError:  # a port that is no number, a bracket that is not closed
        return False


def _wrong(setting: str, why: str) -> UserError:
    return UserError(
        f"[notify] {setting} in System/placet.toml {why}.",
        "Mend that line, then try it: placet notify test",
        exit_code=2,
    )
