"""The pages of the board, as one ASGI application."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from placet.cli.decisions import NotAsRead
from placet.cli.look import status
from placet.cli.site import Site
from placet.cli.terminal import hint_of, shown_time
from placet.cli.text import model_line
from placet.core.activity import Action
from placet.core.errors import PlacetError, UserError
from placet.core.life.case import State
from placet.core.text.story import Story
from placet.core.wording import dollars
from placet.journal.reader import open_reader
from placet_board import actions
from placet_board.auth import Door, Guarded, logged_in, refusal
from placet_board.columns import choices, columns
from placet_board.live import Live
from placet_board.numbers import Counted
from placet_board.pages import PAGES
from placet_board.request_page import request_page
from placet_board.seen import seen, seen_name

SHARED_S = 0.1
"""Seconds for which browsers share one look at the vault: fifty of them cost no more than one."""

TYPED = frozenset({"title", "text", "remark", "reason", "comment", "own"})
"""The fields of forms that a person writes sentences in."""

_CALLED = f"{Action.TOOL_CALLED} "

NO_SUCH = 3
"""Exit code of an ID that fits nothing."""


def _templates() -> Environment:
    found = Environment(
        autoescape=True,
        loader=PackageLoader("placet_board"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "visible": seen_name,
        "harmless": seen,
        "urlencode": lambda text: quote(text, safe=""),  # Jinja's own leaves slashes
        "time": shown_time,
        "dollars": dollars,
    }
    for name in found.list_templates():
        found.get_template(name)  # compiled now, not while the first person waits
    return found


@dataclass(slots=True)
class Board:
    """The board of one vault: how it is reached, and the latest look that browsers share."""

    vault: Path
    env: Mapping[str, str]
    door: Door
    live: Live
    templates: Environment = field(default_factory=_templates)
    counted: Counted = field(default_factory=Counted)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _looked: tuple[float, dict[str, Any]] | None = None

    def site(self, request: Request) -> Site:
        """Return the vault as the person at this browser works on it."""
        return Site(str(self.vault), self.env, who=request.state.session.who, via="board")

    def status(self, site: Site) -> dict[str, Any]:
        """Return what `placet status` shows, at most SHARED_S old."""
        with self._lock:
            now = time.monotonic()
            # What was seen before an event does not show it, and no second event may follow.
            oldest = max(now - SHARED_S, self.live.rung_at)
            if self._looked is None or self._looked[0] <= oldest:
                found = status(site)
                self._looked = (now, {**found, "now": _now(site, found)})
            return self._looked[1]

    def page(self, request: Request, name: str, *, code: int = 200, **values: Any) -> Response:
        """Return a page made from a template."""
        session = request.state.session
        text = self.templates.get_template(name).render(
            vault=self.vault.name,
            who=session.who if session else "",
            token=self.door.tokens.form_token(session) if session else "",
            here=quote(request.scope["path"]),
            scripted=_scripted(self.site(request)) if session else "",
            **values,
        )
        return HTMLResponse(text, code)


def application(board: Board) -> ASGIApp:
    """Return the board behind its guard."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        board.live.start()
        yield

    def route(path: str, page: Callable[[Board, Request], Response], *methods: str) -> Route:
        def answered(request: Request) -> Response:
            return _answered(board, request, page)

        return Route(path, answered, methods=list(methods or ("GET",)))

    async def live(request: Request) -> Response:
        return _live(board, request)

    app = Starlette(
        routes=[
            route("/", _index),
            route("/login", _login, "GET", "POST"),
            route("/new", _new, "GET", "POST"),
            route("/r/{ident}", _request),
            route("/r/{ident}/{name}", _act, "POST"),
            *(route(path, page) for path, page in PAGES.items()),
            Route("/live", live, methods=["GET"]),
            Mount("/static", StaticFiles(packages=[("placet_board", "static")])),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: _no_page},
    )
    return Guarded(app, board.door)


def _no_page(_: Request, error: Exception) -> Response:
    """Return the page for an address that no page is at, or none that is asked in this way."""
    assert isinstance(error, HTTPException), "this is asked for no other"
    return refusal("There is no such page.", error.status_code, error.headers)


def _answered(
    board: Board, request: Request, page: Callable[[Board, Request], Response]
) -> Response:
    """Return a page; what a person can act on becomes a page that says so."""
    try:
        return page(board, request)
    except NotAsRead as error:
        return _not_done(board, request, error, 409)
    except UserError as error:
        return _not_done(board, request, error, 404 if error.exit_code == NO_SUCH else 400)
    except PlacetError as error:
        return _not_done(board, request, UserError(str(error)), 500)
    except OSError as error:
        what = f"{error.filename or 'The system'}: {error.strerror or error}"
        return _not_done(board, request, UserError(what, "Fix that first."), 500)


def _not_done(board: Board, request: Request, error: UserError, code: int) -> Response:
    """Return the page of what could not be done, with what was typed: none of it is lost."""
    typed = [
        text
        for name, text in (_fields(request) if request.method == "POST" else {}).items()
        if name in TYPED and text.strip()
    ]
    told = UserError(error.what, hint_of(error))
    return board.page(request, "error.html", code=code, error=told, typed=typed)


def _index(board: Board, request: Request) -> Response:
    site = board.site(request)
    found = board.status(site)
    wanted = {name: request.query_params.get(name, "") for name in ("portal", "agent", "text")}
    return board.page(
        request,
        "index.html",
        found=found,
        columns=columns(found, found["now"], wanted),
        choices=choices(found["cases"]),
        wanted=wanted,
        problem=site.problem,
    )


def _request(board: Board, request: Request) -> Response:
    page = request_page(board.site(request), request.path_params["ident"])
    said = actions.said(request.query_params.get("said", ""))
    return board.page(request, "request.html", said=said, **page)


def _act(board: Board, request: Request) -> Response:
    ident, name = request.path_params["ident"], request.path_params["name"]
    said = actions.act(board.site(request), ident, name, _fields(request))
    return RedirectResponse(f"/r/{quote(ident, safe='')}?said={said}", 303)


def _new(board: Board, request: Request) -> Response:
    site = board.site(request)
    if request.method == "POST":
        path = actions.ask_for(site, _fields(request))
        return board.page(request, "asked.html", path=path)
    template = request.query_params.get("template", "")
    return board.page(request, "new.html", **actions.form(site, template))


def _login(board: Board, request: Request) -> Response:
    if request.method != "POST":
        link = request.query_params.get("t", "")
        return board.page(request, "login.html", link=link, failed="")
    https = request.headers.get("origin", "").startswith("https:")
    if answer := logged_in(board.door, _fields(request).get("link", ""), https=https):
        return answer
    if board.door.count_failure():
        return refusal("Too many tries. Wait a minute.", 429, {"retry-after": "60"})
    failed = "This link was used already, or is too old."
    return board.page(request, "login.html", code=403, link="", failed=failed)


def _live(board: Board, request: Request) -> Response:
    if request.method == "HEAD":
        return PlainTextResponse("", media_type="text/event-stream")
    return board.live.answer() or PlainTextResponse("too many browsers", 503)


def _fields(request: Request) -> dict[str, str]:
    return {name: values[0] for name, values in request.state.form.items()}


def _scripted(site: Site) -> str:
    """Return the line that says that no model is asked here; empty where one is."""
    try:
        found = site.configured()
    except UserError:  # the page says it, if it needs the settings
        return ""
    return model_line(found.provider, found.model) if found.provider == "scripted" else ""


def _now(site: Site, found: Mapping[str, Any]) -> dict[str, str]:
    """Return what each mission at work does at this moment, in words, by trace_id."""
    story, told = Story(), {}
    running = [c["trace_id"] for c in found["cases"] if c["state"] == State.RUNNING]
    if running:
        with open_reader(site.state.journal) as reader:
            for trace in running:
                for row in reader.activity(trace, limit=1, newest=True, routine=False):
                    line = story.line(row)
                    text = "" if line is None else line[1].partition(": ")[2]
                    thinks = row.action_type == Action.MODEL_CALLED
                    told[trace] = "the model has answered" if thinks else text.removeprefix(_CALLED)
    return told
