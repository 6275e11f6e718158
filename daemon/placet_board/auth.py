"""The guard in front of every page: who may ask, from where, and what a browser may do with it."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from placet.cli.terminal import say
from placet_board.tokens import SESSION_S, Session, Tokens

MAX_FORM_BYTES = 256 * 1024
MAX_FIELDS = 500
FORM_S = 10.0
"""Seconds in which a form has to arrive."""
MAX_LOGIN_BYTES = 8 * 1024
"""Bytes of a form by somebody who is not logged in: a link."""
FAILURES_A_MINUTE = 10
"""Failed logins a minute, of all clients together, after which they are told to wait.

A link that counts is let in all the same: it is signed and has 128 random bits, so nobody guesses
one, and nobody can keep its owner out by trying.
"""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # with `no-referrer` a browser sends `Origin: null` with a form, our own forms too
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

    `hosts` are the values of a Host header that are ours, in lower case. `proxied` are those by
    which a proxy may pass https on.
    """

    hosts: frozenset[str]
    tokens: Tokens
    port: int
    proxied: frozenset[str] = frozenset()
    failures: deque[float] = field(default_factory=deque)

    def cookie(self, *, https: bool) -> str:
        """Return the name of the session's cookie.

        It has the port, as cookies of one machine are shared by its ports.
        """
        return f"__Host-placet-{self.port}" if https else f"placet-{self.port}"

    def comes_from_us(self, headers: Headers) -> bool:
        """Return whether a form was sent by a page of this board."""
        host = headers.get("host", "").lower()
        schemes = ("http", "https") if host in self.proxied else ("http",)
        return headers.get("origin", "") in [f"{scheme}://{host}" for scheme in schemes]

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
    """Return the page that says in words of ours why a request is not answered."""
    return HTMLResponse(_PAGE.format(why), code, headers)


class Guarded:
    """An ASGI application in front of another: lets in who may, and adds the headers.

    The other one finds `session` and, of a form, `form` in the request's state.
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
        except ClientDisconnect:  # gone before its form had arrived: nobody reads an answer
            return
        except Exception as error:  # a bug: this page fails, the others go on
            say(f"the board has a bug: {_place_of(error)}")
            if not started:
                answer = refusal("This went wrong in the board; it has said where.", 500)
                await answer(scope, receive, with_headers)

    async def _refused(self, request: Request) -> Response | None:
        """Return the answer to a request that is not let in, None for one that is."""
        # As the pages are found; `request.url` is made from the Host header, and may be another.
        path = request.scope["path"]
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self.door.hosts:
            return refusal(
                "This is not an address of this board. If it should be one, start the board with "
                "its name: placet board --host NAME",
                421,
            )
        if request.method not in ("GET", "HEAD", "POST"):
            return refusal("The board has no such way of asking.", 405)
        session = self.door.session(request.headers, request.cookies)
        request.state.session = session
        if request.method == "POST" and (refused := await self._refused_form(request, session)):
            return refused
        if session is None and path != "/login" and not path.startswith("/static/"):
            if path == "/live":
                return PlainTextResponse("log in", 401)
            return RedirectResponse("/login", 303)
        return None

    async def _refused_form(self, request: Request, session: Session | None) -> Response | None:
        if not self.door.comes_from_us(request.headers):
            return refusal("This form was not sent by a page of this board.", 403)
        if session is None and request.scope["path"] != "/login":  # before its text is waited for
            return refusal(
                "You are not logged in any more. Ask for a link: placet board login. Then go "
                "back, and send it again.",
                403,
            )
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            return refusal("This is no form.", 415)
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
            return refusal("This form is not of your session. Go back, and reload the page.", 403)
        return None


async def _body(request: Request, most_bytes: int) -> bytes:
    """Return a request's body; raises ValueError for one that is too long."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most_bytes:
            raise ValueError("too long")
    return bytes(body)


def _place_of(error: Exception) -> str:
    """Return where an error was raised, without its text: that may be anybody's."""
    *_, frame = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"


def logged_in(door: Door, login: str, *, https: bool) -> Response | None:
    """Return the answer that opens a session, None for a link that does not count.

    Over `https`, which a proxy speaks, the browser sends the cookie over https alone.
    """
    token = door.tokens.session_for(login)
    if token is None:
        return None
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        door.cookie(https=https),
        token,
        max_age=SESSION_S,
        secure=https,
        httponly=True,
        samesite="strict",
    )
    return answer
