"""Guard every page: check the host, the form's origin, the session, and limit what browsers do."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import stat
import threading
import time
import traceback
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import click
from itsdangerous import BadSignature, TimestampSigner, URLSafeTimedSerializer
from markupsafe import escape
from pydantic import TypeAdapter
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from placet.client.texts import harmless
from placet.disk.files import put
from placet.errors import UserError, cannot_write
from placet.host.clock import wall
from placet.wording import rfc3339
from placet_board.markdown import seen

LINK_S = 600
"""Lifetime of a login link, in seconds."""
SESSION_S = 30 * 24 * 3600
"""Lifetime of a session, in seconds: a phone needs a new link once a month."""
KEY = "board.key"
"""The file in the state folder with the key."""
SESSIONS = "board.sessions"
"""The file next to it, with the logged-in browsers."""
KEY_BYTES = 32
NONCE_BYTES, NONCE_CHARS = 12, 16
"""The length of a login link's random part, as bytes and in the link."""
MAX_TOKEN_CHARS = 2_000
MAX_NAME_CHARS = 60


@dataclass(frozen=True, slots=True)
class Session:
    """You at a browser: the name that decisions are journalled with, and an id."""

    who: str
    ident: str

    @property
    def name(self) -> str:
        """A name for the session that opens none."""
        return sha256(self.ident.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """A browser that is logged in: who uses it, what it calls itself, and since when."""

    who: str
    browser: str
    since: str


_LOGGED_IN = TypeAdapter(dict[str, LoggedIn])


@dataclass(slots=True)
class Tokens:
    """Make and check tokens with one key, and remember used login links.

    A login link is valid for one `run` of a board, because used links are not stored. With a `file`
    the key is read each time, so deleting it logs all browsers out. Next to it is the list of
    logged-in browsers. Any other session has ended.
    """

    key: bytes
    run: str
    file: Path | None = None
    used: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def login(self, who: str) -> str:
        """Return the token of a login link for this name, short enough for a small QR code."""
        name = urlsafe_b64encode(who.encode()).decode().rstrip("=")
        return self._links.sign(f"{secrets.token_urlsafe(NONCE_BYTES)}{name}").decode()

    def session_for(self, login: str, browser: str = "") -> str | None:
        """Use a login link; return the session's token, None for an invalid link.

        Raises UserError if the list of browsers cannot be written.
        """
        if len(login) > MAX_TOKEN_CHARS:
            return None
        try:
            nonce_and_name = self._links.unsign(login, max_age=LINK_S).decode()
        except BadSignature:
            return None
        nonce, name = nonce_and_name[:NONCE_CHARS], nonce_and_name[NONCE_CHARS:]
        if nonce in self.used:
            return None
        self.used.add(nonce)
        session = Session(urlsafe_b64decode(f"{name}==").decode(), secrets.token_urlsafe(16))
        self._list(session.name, LoggedIn(session.who, browser, rfc3339(wall())))
        return self._signed("session", {"who": session.who, "ident": session.ident})

    def session(self, token: str) -> Session | None:
        """Return the session of a cookie, None for an invalid one."""
        found = self._read("session", token, SESSION_S)
        session = None if found is None else Session(found["who"], found["ident"])
        if session is not None and self.file is not None and session.name not in self.logged_in():
            return None
        return session

    def logged_in(self) -> dict[str, LoggedIn]:
        """Return the browsers that are logged in, by the names of their sessions."""
        if self.file is None:
            return {}
        try:
            return _LOGGED_IN.validate_json(self.file.with_name(SESSIONS).read_bytes())
        except (OSError, ValueError):
            return {}

    def log_out(self, name: str) -> None:
        """End a session. Raises UserError if the list of browsers cannot be written."""
        self._list(name, None)

    def _list(self, name: str, browser: LoggedIn | None) -> None:
        if self.file is None:
            return
        path, oldest = self.file.with_name(SESSIONS), rfc3339(wall() - timedelta(seconds=SESSION_S))
        with self._lock:
            found = {key: one for key, one in self.logged_in().items() if one.since >= oldest}
            found.pop(name, None)
            if browser is not None:
                found[name] = browser
            try:
                put(path, _LOGGED_IN.dump_json(found))
            except OSError as error:
                raise cannot_write(path, error) from error

    def form_token(self, session: Session) -> str:
        """Return the token for this session's forms."""
        return self._signed("form", {"ident": session.ident})

    def is_form_of(self, session: Session, token: str) -> bool:
        """Return whether a form's token belongs to a session."""
        found = self._read("form", token, SESSION_S)
        return found is not None and secrets.compare_digest(found["ident"], session.ident)

    @property
    def _links(self) -> TimestampSigner:
        # the run is not in the token, which has to fit a QR code
        return TimestampSigner(self._newest_key, salt=f"placet login {self.run}")

    def _signed(self, purpose: str, data: dict[str, str]) -> str:
        return str(self._signer(purpose).dumps(data))

    def _read(self, purpose: str, token: str, age_s: int) -> dict[str, Any] | None:
        if len(token) > MAX_TOKEN_CHARS:
            return None
        try:
            found: dict[str, Any] = self._signer(purpose).loads(token, max_age=age_s)
        except BadSignature:
            return None
        return found

    def _signer(self, purpose: str) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(self._newest_key, salt=f"placet {purpose}")

    @property
    def _newest_key(self) -> bytes:
        if self.file is not None:
            with suppress(UserError):  # out of file handles: keep the last key
                self.key = key_at(self.file)
        return self.key


def key_at(path: Path) -> bytes:
    """Return the key in a file; replace one that is missing, damaged or not private.

    Then all have to log in again. Raises UserError if that cannot be done.
    """
    try:
        return _private_key(path) or _new_key(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def _private_key(path: Path) -> bytes | None:
    """Return the key if only its owner can read and write the file, else None."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link
            return None
        raise
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        is_ours = info.st_uid == os.geteuid() and not stat.S_IMODE(info.st_mode) & 0o077
        key = file.read(KEY_BYTES + 1) if is_ours and stat.S_ISREG(info.st_mode) else b""
    return key if len(key) == KEY_BYTES else None


def _new_key(path: Path) -> bytes:
    key = os.urandom(KEY_BYTES)
    put(path, key)
    return key


def name_of(who: str) -> str:
    """Return a person's name as notes and rows have it. Raises UserError for an invalid one."""
    name = " ".join(who.split())
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise UserError(
            "The name of a login link is empty, too long, or has invisible characters.",
            "Give a name: placet board login --name Anna",
            exit_code=2,
        )
    return name


TYPED = frozenset({"title", "text", "remark", "reason", "comment", "own"})
"""The form fields with sentences of yours."""
MAX_FORM_BYTES = 256 * 1024
MAX_FIELDS = 500
FORM_S = 10.0
"""Time limit for a form to arrive, in seconds."""
MAX_LOGIN_BYTES = 8 * 1024
"""Bytes of a form without a session: a login link."""
FAILURES_A_MINUTE = 10
"""Failed logins a minute, of all clients together, after which they must wait.

A valid link still works: it is signed with a key of 256 bits. So attackers can neither guess one
nor lock its owner out.
"""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'; manifest-src 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # with `no-referrer` a browser sends `Origin: null` with every form, also ours
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Not done · placet</title>
<link rel="stylesheet" href="/static/board.css">
</head>
<body>
<main>
<div class="page">
<h1>Not done</h1>
<p class="notice" role="alert">{}</p>
<p><a href="/">To the board</a></p>
</div>
</main>
</body>
</html>
"""

_CLOSE = {"connection": "close"}
"""Whose form was not read to its end gets no second request on this connection."""


@dataclass(slots=True)
class Door:
    """The addresses at which this board is reached, and its tokens.

    `hosts` are the valid values of the Host header, in lower case. `proxied` are those for which a
    proxy may speak https.
    """

    hosts: frozenset[str]
    tokens: Tokens
    port: int
    proxied: frozenset[str] = frozenset()
    failures: deque[float] = field(default_factory=deque)

    def cookie(self, *, https: bool) -> str:
        """Return the name of the session's cookie.

        It has the port, because the ports of a machine share cookies.
        """
        return f"__Host-placet-{self.port}" if https else f"placet-{self.port}"

    @property
    def wanted(self) -> str:
        """The name of the cookie with the page that was asked for before the login."""
        return f"placet-{self.port}-wanted"

    def comes_from_us(self, headers: Headers) -> bool:
        """Return whether a page of this board sent a form."""
        host = headers.get("host", "").lower()
        schemes = ("http", "https") if host in self.proxied else ("http",)
        return headers.get("origin", "") in [f"{scheme}://{host}" for scheme in schemes]

    def origin(self, headers: Headers, cookies: Mapping[str, str]) -> str:
        """Return the origin of the pages at which a browser is logged in."""
        scheme = "https" if self.cookie(https=True) in cookies else "http"
        return f"{scheme}://{headers.get('host', '').lower()}"

    def session(self, headers: Headers, cookies: Mapping[str, str]) -> Session | None:
        """Return the session of a browser's cookies, None without a valid one."""
        schemes = (True, False) if headers.get("host", "").lower() in self.proxied else (False,)
        found = (self.tokens.session(cookies.get(self.cookie(https=s), "")) for s in schemes)
        return next(filter(None, found), None)

    def count_failure(self) -> bool:
        """Count a failed login; return whether there were too many within a minute."""
        now = time.monotonic()
        while self.failures and self.failures[0] < now - 60:
            self.failures.popleft()
        if len(self.failures) >= FAILURES_A_MINUTE:
            return True
        self.failures.append(now)
        return False


def refusal(why: str, code: int, headers: Mapping[str, str] | None = None) -> Response:
    """Return a page that says why a request is refused; `why` is HTML."""
    return HTMLResponse(_PAGE.format(why), code, headers)


class Guarded:
    """An ASGI application in front of another: refuses requests, and adds headers.

    The other one finds `session` and, for a form, `form` in the request's state.
    """

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self.app = app
        self.door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        started = False

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message).update(HEADERS)
                if scope["path"].startswith("/static/"):
                    MutableHeaders(scope=message)["cache-control"] = "private, max-age=300"
            await send(message)

        request = Request(scope, receive)
        try:
            refused = await self._refused(request)
            await (refused or self.app)(scope, receive, with_headers)
        except ClientDisconnect:  # the browser left before its form had arrived
            return
        except Exception as error:  # a bug: only this page fails
            click.echo(f"placet: the board has a bug: {harmless(_place_of(error))}", err=True)
            if not started:
                answer = refusal("The board has a bug. Its terminal says where.", 500)
                await answer(scope, receive, with_headers)

    async def _refused(self, request: Request) -> Response | None:
        """Return the answer to a refused request, None for an allowed one."""
        # the path that routes use; `request.url` is made from the Host header and may differ
        path = request.scope["path"]
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self.door.hosts:
            return refusal(
                "The board does not accept this host name. To allow it, start the board with: "
                "placet board --host NAME",
                421,
            )
        if request.method not in ("GET", "HEAD", "POST"):
            return refusal("The board does not support this request method.", 405)
        session = self.door.session(request.headers, request.cookies)
        request.state.session = session
        if request.method == "POST" and (refused := await self._refused_form(request, session)):
            return refused
        if session is None and path != "/login" and not path.startswith("/static/"):
            if path == "/live":
                return PlainTextResponse("log in", 401)
            answer = RedirectResponse("/login", 303)
            if request.method == "GET" and _LEADS_TO.fullmatch(quote(path)):
                answer.set_cookie(
                    self.door.wanted, quote(path), LINK_S, httponly=True, samesite="strict"
                )
            return answer
        return None

    async def _refused_form(self, request: Request, session: Session | None) -> Response | None:
        if not self.door.comes_from_us(request.headers):
            return refusal("This form was not sent by a page of this board.", 403)
        if session is None and request.scope["path"] != "/login":
            return await self._logged_out(request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            return refusal("This is not a form.", 415)
        try:
            async with asyncio.timeout(FORM_S):
                body = await _body(request, MAX_FORM_BYTES if session else MAX_LOGIN_BYTES)
            fields = parse_qs(
                body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
            )
        except TimeoutError:
            return refusal(
                "The form took too long to arrive. Go back, and send it again.", 408, _CLOSE
            )
        except ValueError:  # not UTF-8, or too much
            return refusal("This form cannot be read, or is too long.", 413, _CLOSE)
        request.state.form = fields
        if request.scope["path"] == "/login":
            return None
        token = fields.get("token", [""])[0]
        if session is None or not self.door.tokens.is_form_of(session, token):
            return refusal(
                "This form belongs to another session. Go back, and reload the page.", 403
            )
        return None

    async def _logged_out(self, request: Request) -> Response:
        """Return the answer to a form without a session, with the words that were typed into it.

        Only a browser that has a cookie of this board is read: it was logged in.
        """
        typed = ""
        if any(self.door.cookie(https=https) in request.cookies for https in (True, False)):
            with suppress(TimeoutError, ValueError):
                async with asyncio.timeout(FORM_S):
                    body = await _body(request, MAX_FORM_BYTES)
                fields = parse_qs(body.decode(), max_num_fields=MAX_FIELDS, errors="strict")
                words = [fields[name][0] for name in fields if name in TYPED]
                typed = "".join(f'<pre tabindex="0">{escape(seen(text))}</pre>' for text in words)
        return refusal(
            "You are no longer logged in, so placet did nothing. Ask for a link: "
            "<code>placet board login</code>. Then send it again."
            + (f"</p><p>What you wrote:</p>{typed}<p>" if typed else ""),
            403,
            _CLOSE,
        )


async def _body(request: Request, most_bytes: int) -> bytes:
    """Return a request's body; raises ValueError if it is too long."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most_bytes:
            raise ValueError("too long")
    return bytes(body)


def _place_of(error: Exception) -> str:
    """Return where an error was raised, without its text, which may contain a secret."""
    *_, frame = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"


def browser_name(agent: str) -> str:
    """Return a browser's name for the list, from what it says of itself."""
    names = ("Edg", "OPR", "Firefox", "Chrome", "Safari")
    systems = ("Android", "iPhone", "iPad", "Windows", "Mac OS X", "Linux")
    name = next((one for one in names if one in agent), "A browser")
    system = next((one for one in systems if one in agent), "")
    return f"{name} on {system}" if system else name


_LEADS_TO = re.compile(r"/(new|numbers|journal|browsers|r/[\w.%-]+)", re.ASCII)
"""The pages that a login leads to. A server on another port could have planted any address."""


def logged_in(
    door: Door, login: str, *, https: bool, agent: str = "", wanted: str = ""
) -> Response | None:
    """Return the response that opens a session, None for an invalid link.

    With `https`, which a proxy speaks, the browser sends the cookie over https only. It leads to
    the page that was `wanted`, else to the board.
    """
    token = door.tokens.session_for(login, browser_name(agent))
    if token is None:
        return None
    answer = RedirectResponse(wanted if _LEADS_TO.fullmatch(wanted) else "/", 303)
    if wanted:
        answer.delete_cookie(door.wanted)
    answer.set_cookie(
        door.cookie(https=https),
        token,
        max_age=SESSION_S,
        secure=https,
        httponly=True,
        samesite="strict",
    )
    return answer
