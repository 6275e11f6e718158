"""Answer the browser: every page of the board, as one ASGI application."""

from __future__ import annotations

import contextlib
import csv
import io
import shlex
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from datetime import time as midnight
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from placet.activity import Action, Actor, CommittedRow
from placet.case.life_cycle import OPEN, State
from placet.case.story import Story, Verbosity, facts
from placet.client.cases import CaseLine, Progress, Status, age_s, ended_about, status
from placet.client.decisions import NotAsRead
from placet.client.difference import changed_picture
from placet.client.site import ANSWER_S, Site, find
from placet.client.texts import json_text, shown_time
from placet.client.words import model_line, turn
from placet.errors import PlacetError, UserError
from placet.journal.database import is_begun
from placet.journal.reader import open_reader
from placet.journal.schema import ACTIVITY
from placet.note.paths import Folder
from placet.wording import age, counted, local, one_line, rfc3339
from placet_board import actions
from placet_board.auth import TYPED, Door, Guarded, browser_name, logged_in, refusal
from placet_board.live import Live
from placet_board.markdown import html_of, seen, seen_name
from placet_board.numbers import DAYS, VAULT_ITSELF, Counted, slice_of
from placet_board.passkeys import add_passkey, passkeys_page
from placet_board.request_page import (
    Track,
    changed_file,
    chip_of,
    failure_words,
    in_full,
    picture,
    request_page,
    seconds_between,
    track_of,
)
from placet_board.rows import SCANNED, Wanted, all_rows, rows_page


@dataclass(frozen=True, slots=True)
class Card:
    """One request in a column."""

    ident: str
    title: str
    kind: str
    state: str
    """Its state as text."""
    about: str
    """A detail of its state."""
    since: str
    agent: str
    portal: str
    priority: int
    facts: tuple[str, ...]
    """What its plan holds."""
    dangers: int
    progress: Progress | None
    """Its steps and its cost, or None."""
    now: str
    """What it is doing."""
    track: Track


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the board."""

    key: str
    name: str
    hint: str
    """What is said if it is empty."""
    cards: tuple[Card, ...]
    others: tuple[tuple[str, str], ...] = ()
    """Notes that cannot be used: path and reason."""
    total: int = 0
    """How many there are without the filter."""


# The first is the first on a phone.
_COLUMNS = (
    ("yours", "Awaiting you", "Nothing waits for you."),
    ("requests", "Requests", "No request is being planned."),
    ("running", "Running", "Nothing runs. Approved plans run here."),
    ("ended", "Ended", "Nothing has ended yet."),
)
_OF_STATE = {
    State.PLANNING: "requests",
    State.REVISING: "requests",
    State.REVIEW: "requests",
    State.APPROVED: "running",
    State.RUNNING: "running",
    State.ASKING: "running",
}
"""The column of a case that does not wait for you."""


def columns(found: Status, now: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[Column]:
    """Give the columns of a status; `now` has what running missions do, by trace_id.

    `wanted` filters cards by `portal`, `agent` and `text`; an empty value keeps all.
    """
    others = [
        (path, one_line(why, 200))
        for path, why in found.unusable.items()
        if not wanted["portal"] and not wanted["agent"] and _has(path, wanted)
    ]
    for key, name, hint in _COLUMNS:
        cases = [case for case in found.cases if _column_of(case) == key]
        cards = [
            _card(case, now.get(case.trace_id, ""), daemon=bool(found.daemon))
            for case in cases
            if _is_wanted(case, wanted)
        ]
        if key == "ended":
            cards.sort(key=lambda card: card.since, reverse=True)
        elif key == "yours":
            cards.sort(key=lambda card: -card.priority)
        unusable = found.unusable if key == "yours" else {}
        total = len(cases) + len(unusable)
        yield Column(key, name, hint, tuple(cards), tuple(others if unusable else ()), total)


def choices(cases: Iterable[CaseLine]) -> dict[str, Sequence[str]]:
    """Return the portals and agents to filter by."""
    found = list(cases)
    return {
        "portal": sorted({case.portal for case in found if case.portal}),
        "agent": sorted({case.agent for case in found if case.agent}),
    }


def _column_of(case: CaseLine) -> str:
    return "yours" if case.waits_for_you else _OF_STATE.get(case.state, "ended")


def _is_wanted(case: CaseLine, wanted: Mapping[str, str]) -> bool:
    return (
        wanted["portal"] in ("", case.portal)
        and wanted["agent"] in ("", case.agent)
        and _has(f"{case.title} {case.request_id}", wanted)
    )


def _has(text: str, wanted: Mapping[str, str]) -> bool:
    return all(word in text.casefold() for word in wanted["text"].casefold().split())


def _card(case: CaseLine, now: str, *, daemon: bool) -> Card:
    about, (kind, words) = _about(case, daemon=daemon), chip_of(case)
    return Card(
        case.request_id,
        case.title or case.request_id,
        kind,
        words,
        about,
        case.since,
        case.agent,
        case.portal,
        case.priority,
        tuple(_facts(case)) if case.state is State.REVIEW else (),
        len(case.summary.dangers) if case.summary is not None else 0,
        case.progress,
        now,
        track_of(case),
    )


def _facts(case: CaseLine) -> Iterator[str]:
    """Give what a plan holds: "4 steps", "4 paths", "1 command", "~$0.12"."""
    if (found := case.summary) is not None:
        yield counted(found.steps, "step")
        yield counted(found.paths, "path") if found.paths else "reads only"
        if found.commands:
            yield counted(found.commands, "command")
    if case.estimate is not None:
        yield f"~{money(case.estimate.median_usd)}"


def _about(case: CaseLine, *, daemon: bool) -> str:
    """Return what a card says below its title; "" if the state says it all."""
    if case.intent or (not daemon and case.state.next_step):
        return turn(case, daemon=daemon)
    if case.asking is not None:
        return case.asking.question
    if case.model_trouble:
        return f"The last call of the model failed: {case.model_trouble}"
    if case.state is State.REVIEW and case.plan.startswith(f"{Folder.ACTIVE}/"):
        return "Waits for a signature."
    if case.state is State.REVIEW:
        return case.notice.partition("\n")[2].partition("\n")[0]
    if case.is_to_merge:
        return " ".join(case.doubts[:1])
    return failure_words(case.failure) if case.state is State.FAILED else ""


def money(usd: float) -> str:
    """Return dollars for people: `$2.29`, `$50`, and below a cent `$0.0012`."""
    shown = f"${usd:,.2f}" if usd >= 0.01 or not usd else f"${usd:.4f}"
    return shown.removesuffix(".00")


def ago(moment: str) -> Markup:
    """Return how long ago a moment was; the exact one shows on demand."""
    exact = local(moment)
    return Markup('<time datetime="{}" title="{}">{} ago</time>').format(
        moment, exact, age(age_s(moment))
    )


def since(moment: str, state: str) -> Markup:
    """Return how long ago a request came to its state, or for how long it has been in an open one.

    The script counts both on; the latter's time has no title, and so no "ago" there.
    """
    if state not in OPEN:
        return ago(moment)
    return Markup('<span title="{}">for <time datetime="{}">{}</time></span>').format(
        local(moment), moment, age(age_s(moment))
    )


def prose(text: str) -> Markup:
    """Return a sentence as HTML, with what stands between backticks as code."""
    parts = seen_name(text).split("`")
    if len(parts) % 2 == 0:
        return escape(seen_name(text))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(one) if n % 2 else one for n, one in enumerate(parts))


def path_html(path: str) -> Markup:
    """Return a path as code that breaks at its slashes, with the file's name in bold."""
    *folders, name = seen_name(path).split("/")
    before = Markup("").join(Markup("{}/<wbr>").format(one) for one in folders)
    return Markup("<code>{}<b>{}</b></code>").format(before, name)


SHARED_S = 0.1
"""How long browsers share one status, in seconds: fifty of them cost no more than one."""

_CALLED = f"{Action.TOOL_CALLED} "

NO_SUCH = 3
"""Exit code for an unknown ID."""


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
        "urlencode": lambda text: quote(text, safe=""),  # Jinja's filter does not escape slashes
        "urlquery": urlencode,
        "time": shown_time,
        "money": money,
        "ago": ago,
        "since": since,
        "prose": prose,
        "path": path_html,
        "span": _long,
        "markdown": html_of,
        "argv": shlex.join,
        "in_full": in_full,
    }
    found.globals["then"] = {name: one.then for name, one in actions.BUTTONS.items()}
    for name in found.list_templates():
        found.get_template(name)  # compiled now, so that the first request is fast
    return found


@dataclass(slots=True)
class Board:
    """The board of one vault: its door, and the latest status, which browsers share."""

    vault: Path
    env: Mapping[str, str]
    door: Door
    live: Live
    templates: Environment = field(default_factory=_templates)
    counted: Counted = field(default_factory=Counted)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _looked: tuple[float, Status, dict[str, str]] | None = None

    def site(self, request: Request) -> Site:
        """Return the vault as the user of this browser works on it."""
        return Site(str(self.vault), self.env, who=request.state.session.who, via="board")

    def status(self, site: Site) -> tuple[Status, dict[str, str]]:
        """Return what `placet status` shows, and what each running mission does, by trace_id.

        Both are at most SHARED_S old.
        """
        with self._lock:
            now = time.monotonic()
            # A status from before an event does not show it, and no second event may follow.
            oldest = max(now - SHARED_S, self.live.notified_at)
            if self._looked is None or self._looked[0] <= oldest:
                found = status(site)
                self._looked = (now, found, _now(site, found))
            return self._looked[1:]

    def origin(self, request: Request) -> str:
        """Return the origin of the page that a browser asks for."""
        return self.door.origin(request.headers, request.cookies)

    def page(self, request: Request, name: str, *, code: int = 200, **values: Any) -> Response:
        """Return a page made from a template."""
        session = request.state.session
        site = self.site(request) if session else None
        text = self.templates.get_template(name).render(
            vault=self.vault.name,
            who=session.who if session else "",
            token=self.door.tokens.form_token(session) if session else "",
            here=quote(request.scope["path"]),
            scripted=_scripted(site) if site else "",
            signs=_signs(site) if site else False,
            **values,
        )
        return HTMLResponse(text, code)


Page = Callable[[Board, Request], Response]


def application(board: Board) -> ASGIApp:
    """Return the board behind its guard."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        board.live.start()
        yield

    def route(path: str, page: Page, *methods: str, middleware: Sequence[Middleware] = ()) -> Route:
        def answered(request: Request) -> Response:
            return _answered(board, request, page)

        return Route(path, answered, methods=list(methods or ("GET",)), middleware=middleware)

    async def live(request: Request) -> Response:
        return _live(board, request)

    packed = [Middleware(GZipMiddleware, minimum_size=1000, compresslevel=6)]

    app = Starlette(
        routes=[
            route("/", _index),
            route("/login", _login, "GET", "POST"),
            route("/new", _new, "GET", "POST"),
            route("/browsers", _browsers, "GET", "POST"),
            route("/passkeys", _passkeys, "POST"),
            route("/r/{ident}", _request),
            route("/r/{ident}/{name}", _act, "POST"),
            route("/r/{ident}/pictures/{generation:int}/{number:int}", _picture),
            route("/r/{ident}/changes/pictures/{blob}", _changed_picture),
            *(route(path, page, middleware=packed) for path, page in PACKED.items()),
            Route("/live", live, methods=["GET"]),
            Mount(
                "/static",
                StaticFiles(packages=[("placet_board", "static")]),
                middleware=packed,
            ),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: _no_page},
    )
    return Guarded(app, board.door)


def _no_page(_: Request, error: Exception) -> Response:
    """Return the page for an unknown address or a wrong method."""
    assert isinstance(error, HTTPException), "no other code is answered here"
    return refusal("There is no such page.", error.status_code, error.headers)


def _answered(board: Board, request: Request, page: Page) -> Response:
    """Return a page; an error that you can act on becomes a page that says so."""
    try:
        return page(board, request)
    except (PlacetError, OSError) as error:
        return _not_done(board, request, *_user_error(error))


def _user_error(error: PlacetError | OSError) -> tuple[UserError, int]:
    """Return an error as you can act on it, with the code of its page."""
    if isinstance(error, NotAsRead):
        return error, 409
    if isinstance(error, UserError):
        return error, 404 if error.exit_code == NO_SUCH else 400
    if isinstance(error, PlacetError):
        return UserError(str(error)), 500
    what = f"{error.filename or 'The system'}: {error.strerror or error}"
    return UserError(what, "Fix that first."), 500


def _not_done(board: Board, request: Request, error: UserError, code: int) -> Response:
    """Return the page about what could not be done, with the text that you typed."""
    typed = [
        text.replace("\r\n", "\n")
        for name, text in (_fields(request) if request.method == "POST" else {}).items()
        if name in TYPED and text.strip()
    ]
    shown = actions.refused("", error, {})
    return board.page(request, "error.html", code=code, error=shown, typed=typed)


def _index(board: Board, request: Request) -> Response:
    site = board.site(request)
    found, now = board.status(site)
    wanted = {name: request.query_params.get(name, "") for name in ("portal", "agent", "text")}
    if wanted["text"].strip():  # those that ended long ago are in the journal only
        known = {case.trace_id for case in found.cases}
        earlier = ended_about(site, wanted["text"], known)
        found = replace(found, cases=(*found.cases, *earlier))
    is_first = not (found.cases or found.earlier or found.explained or found.changed)
    return board.page(
        request,
        "first.html" if is_first else "index.html",
        found=found,
        columns=tuple(columns(found, now, wanted)),
        choices=choices(found.cases),
        wanted=wanted,
        problem=site.problem,
    )


def _request(
    board: Board, request: Request, refused: actions.Refused | None = None, code: int = 200
) -> Response:
    page = request_page(
        board.site(request), request.path_params["ident"], origin=board.origin(request)
    )
    name = request.query_params.get("said", "")
    message = actions.result_message(name)
    if page["found"].intent or (name == "approve" and page["put_back"]):
        message = ""  # the state says more
    return board.page(
        request,
        "request.html",
        code=code,
        said=message,
        said_at=request.query_params.get("at", ""),
        typed=sorted(TYPED | {"option"}),
        refused=refused or actions.Refused(),
        **page,
    )


def _act(board: Board, request: Request) -> Response:
    """Do what a button says, and show the page; one that is refused says so at the button."""
    ident, name = request.path_params["ident"], request.path_params["name"]
    fields = _fields(request)
    try:
        result = actions.act(board.site(request), ident, name, fields)
    except (PlacetError, OSError) as error:
        why, code = _user_error(error)
        if code == 404:  # the request is there, but its state has no such act
            code = 409
        return _request(board, request, actions.refused(name, why, fields), code)
    # back to the step that was ticked, which a browser then shows and reads on from
    number = fields.get("step", "")
    place = number if name in ("tick", "comment") and number.isdecimal() else ""
    asked = urlencode({key: one for key, one in {**result, "at": place}.items() if one})
    at = f"#step-{place}" if place else ""
    return RedirectResponse(f"/r/{quote(ident, safe='')}?{asked}{at}", 303)


def _new(board: Board, request: Request) -> Response:
    site = board.site(request)
    fields = _fields(request) if request.method == "POST" else dict(request.query_params)
    if request.method == "POST" and "insert" not in fields:
        made = actions.ask_for(site, fields)
        runs = site.daemon is not None
        ident = made.request_id if runs and _is_known(site, made.trace_id) else ""
        return board.page(request, "asked.html", path=made.path, ident=ident, daemon=runs)
    return board.page(request, "new.html", **actions.form(site, fields))


def _is_known(site: Site, trace_id: str) -> bool:
    """Return whether the daemon has read a new request, within ANSWER_S."""
    for _ in site.changes(ANSWER_S):
        with contextlib.suppress(UserError):
            site.case(trace_id)
            return True
    return False


def _login(board: Board, request: Request) -> Response:
    if request.method != "POST":
        link = request.query_params.get("t", "")
        return board.page(request, "login.html", link=link, failed="")
    https = request.headers.get("origin", "").startswith("https:")
    agent = request.headers.get("user-agent", "")
    link = _fields(request).get("link", "")
    wanted = request.cookies.get(board.door.wanted, "")
    if answer := logged_in(board.door, link, https=https, agent=agent, wanted=wanted):
        return answer
    if board.door.count_failure():
        return refusal("Too many tries. Wait a minute.", 429, {"retry-after": "60"})
    failed = "This link was used already, or is too old."
    return board.page(request, "login.html", code=403, link="", failed=failed)


def _browsers(board: Board, request: Request) -> Response:
    """Show the browsers that are logged in; log one out."""
    tokens, mine = board.door.tokens, request.state.session.name
    if request.method == "POST":
        name = _fields(request).get("name", "")
        tokens.log_out(name)
        return RedirectResponse("/login" if name == mine else "/browsers", 303)
    passkeys = passkeys_page(board.site(request), board.origin(request))
    return board.page(
        request, "browsers.html", browsers=tokens.logged_in(), mine=mine, passkeys=passkeys
    )


def _passkeys(board: Board, request: Request) -> Response:
    """Add a passkey of this browser."""
    browser = browser_name(request.headers.get("user-agent", ""))
    point = _fields(request).get("point", "")
    add_passkey(board.site(request), board.origin(request), browser, point)
    return RedirectResponse("/browsers", 303)


def _live(board: Board, request: Request) -> Response:
    if request.method == "HEAD":
        return PlainTextResponse("", media_type="text/event-stream")

    def is_logged_in() -> bool:
        return board.door.session(request.headers, request.cookies) is not None

    return board.live.answer(is_logged_in) or PlainTextResponse("too many browsers", 503)


def _fields(request: Request) -> dict[str, str]:
    return {name: values[0] for name, values in request.state.form.items()}


def _scripted(site: Site) -> str:
    """Return the line that says that no model is called here, "" if one is."""
    try:
        found = site.configured()
    except UserError:  # a page that needs the settings reports that
        return ""
    model = found.model
    scripted = site.problem is None and model.provider == "scripted"
    return model_line(model.provider, model.name) if scripted else ""


def _signs(site: Site) -> bool:
    """Return whether approvals can be signed here."""
    try:
        return site.configured().approval.is_on
    except UserError:
        return False


def _now(site: Site, found: Status) -> dict[str, str]:
    """Return what each running mission does at this moment, by trace_id."""
    story, lines = Story(), {}
    running = [case.trace_id for case in found.cases if case.state is State.RUNNING]
    if running:
        with open_reader(site.state.journal) as reader:
            for trace in running:
                for row in reader.activity(trace, limit=1, newest=True, routine=False):
                    line = story.line(row)
                    text = "" if line is None else line[1].partition(": ")[2]
                    thinks = row.action_type == Action.MODEL_CALLED
                    lines[trace] = (
                        "the model has answered" if thinks else text.removeprefix(_CALLED)
                    )
    return lines


ROWS = 100
"""Rows on a page."""
MAX_TOLD = 2_000
"""Maximum rows of a request's history, the last ones."""
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters by which a spreadsheet recognises a formula; the last are the wide forms."""
ACTIONS = tuple(sorted(Action))
ACTORS = tuple(Actor)


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of the journal page, from its address; an empty one allows all rows."""

    action: str = ""
    actor: str = ""
    request: str = ""
    text: str = ""
    day: str = ""
    below: int = 0

    @property
    def query(self) -> str:
        """The filters as the query of an address, starting at the newest row."""
        kept = {name: getattr(self, name) for name in ("action", "actor", "request", "text", "day")}
        return urlencode({name: value for name, value in kept.items() if value})


def filters_of(params: Mapping[str, str]) -> Filters:
    """Return the filters in an address."""
    below = params.get("below", "")
    action, actor, request, text, day = (
        params.get(name, "").strip() for name in ("action", "actor", "request", "text", "day")
    )
    row = int(below[:18]) if below.isascii() and below.isdecimal() else 0
    return Filters(action, actor, request, text, day, row)


def journal_page(site: Site, filters: Filters) -> dict[str, Any]:
    """Return a page of rows, with the reason if a filter cannot be used."""
    page: dict[str, Any] = {
        "filters": filters,
        "rows": [],
        "following": 0,
        "is_cut": False,
        "scanned": SCANNED,
        "problem": None,
        "actions": ACTIONS,
        "actors": ACTORS,
        "is_begun": is_begun(site.state.journal),
    }
    if page["is_begun"]:
        try:
            found = rows_page(site.state.journal, wanted(site, filters), ROWS)
        except UserError as error:
            return {**page, "problem": error}
        page |= {
            "rows": [_shown(row) for row in found.rows],
            "following": found.following,
            "is_cut": found.is_cut,
        }
    return page


def wanted(site: Site, filters: Filters) -> Wanted:
    """Return what the filters ask of the journal.

    Raises UserError for an invalid day, and for an unknown request.
    """
    asked = Wanted(filters.action, filters.actor, text=filters.text, below=filters.below)
    if filters.day:
        since, until = _day(filters.day)
        asked = replace(asked, since=since, until=until)
    if filters.request:
        asked = replace(asked, trace_id=site.case(filters.request).trace_id)
    return asked


def csv_text(site: Site, asked: Wanted) -> Iterator[str]:
    """Give the rows as CSV, newest first, in pieces; no cell is a formula."""
    yield _csv([ACTIVITY.split(", ")])
    for rows in all_rows(site.state.journal, asked):
        yield _csv([[_cell(str(value)) for value in _values(row)] for row in rows])


def trace_page(site: Site, ident: str) -> dict[str, Any]:
    """Return a request's history: each sentence with its time and the time since the last one.

    Raises UserError (exit code 3) for an unknown ID.
    """
    with site.reader(ident) as reader:
        case = find(reader, ident)
        rows = reader.activity(case.trace_id, limit=MAX_TOLD, newest=True, routine=False)
    story, before, lines = Story(), "", list[dict[str, Any]]()
    for row in rows:
        line = story.line(row)
        if line is not None:
            lines.append(
                {
                    "row": row.id,
                    "at": row.timestamp,
                    "after": _after(before, row.timestamp),
                    "took": _took(row.details.get("duration_ms")),
                    "text": line[1].removeprefix(f"{case.request_id}: "),
                    "is_trouble": line[0] is Verbosity.TROUBLE,
                    "is_detail": line[0] is Verbosity.DETAIL,
                }
            )
            before = row.timestamp
    total_time = _long(seconds_between(lines[0]["at"], lines[-1]["at"])) if lines else ""
    return {"case": case, "story": lines, "over": total_time, "is_cut": len(rows) == MAX_TOLD}


def _shown(row: CommittedRow) -> dict[str, Any]:
    """Return a row as text; the metadata of a hand-made one may not be JSON."""
    try:
        data = row.details
        text, raw = facts(row.action_type, data), json_text(dict(data), indent=2)
    except (ValueError, TypeError, AttributeError):
        text, raw = "", row.metadata
    return {
        "id": row.id,
        "at": row.timestamp,
        "actor": row.actor,
        "agent": row.agent,
        "action": row.action_type,
        "about": row.entity_id,
        "trace": row.trace_id,
        "text": seen_name(text)[:400],
        "raw": seen(raw),
    }


def _day(text: str) -> tuple[str, str]:
    """Return the beginning of a day in local time, and of the next one."""
    try:
        day = date.fromisoformat(text)
        bounds = [
            datetime.combine(one, midnight()).astimezone() for one in (day, day + timedelta(days=1))
        ]
        since, until = map(rfc3339, bounds)
    except (ValueError, OverflowError, OSError) as error:
        raise UserError(f"{text!r} is not a date.", "Write it as 2026-01-31.") from error
    return since, until


def _values(row: CommittedRow) -> tuple[object, ...]:
    return (
        row.id,
        row.timestamp,
        row.trace_id,
        row.actor,
        row.agent,
        row.action_type,
        row.entity_type,
        row.entity_id,
        row.metadata,
        row.hash,
    )


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULAS) else text


def _csv(rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


def _after(before: str, now: str) -> str:
    """Return the time between two moments as text; "" if below a second or unknown."""
    if not before:
        return ""
    seconds = seconds_between(before, now)
    return _long(seconds) if seconds >= 1 else ""


def _took(milliseconds: object) -> str:
    known = isinstance(milliseconds, (int, float)) and milliseconds >= 50
    return _long(float(milliseconds) / 1000) if known else ""  # type: ignore[arg-type] # known


def _long(seconds: float) -> str:
    """Return a time span in its two largest units."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [
        f"{number} {unit}"
        for number, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
        if number
    ]
    return " ".join(parts[:2])


def _numbers(board: Board, request: Request) -> Response:
    part = slice_of(request.query_params)
    site = board.site(request)
    day_usd = float(site.configured().limits.day_usd or 0)
    numbers = board.counted.numbers(site.state.journal, part, day_usd)
    portal = VAULT_ITSELF if part.portal == "" else part.portal or ""
    wanted = {  # an unknown name means all
        "agent": part.agent if part.agent in numbers.agents else "",
        "portal": portal if portal in numbers.portals else "",
    }
    return board.page(
        request,
        "numbers.html",
        numbers=numbers,
        part=part,
        days=DAYS,
        wanted=wanted,
    )


def _journal(board: Board, request: Request) -> Response:
    page = journal_page(board.site(request), filters_of(request.query_params))
    return board.page(request, "journal.html", **page)


def _journal_csv(board: Board, request: Request) -> Response:
    site = board.site(request)
    if not is_begun(site.state.journal):
        raise UserError("There is no journal yet.", "placet run", exit_code=3)
    asked = wanted(site, filters_of(request.query_params))
    return StreamingResponse(
        csv_text(site, asked),
        media_type="text/csv; charset=utf-8",
        headers={"content-disposition": 'attachment; filename="journal.csv"'},
    )


def _trace(board: Board, request: Request) -> Response:
    page = trace_page(board.site(request), request.path_params["ident"])
    return board.page(request, "trace.html", **page)


def _picture(board: Board, request: Request) -> Response:
    where = request.path_params
    data = picture(board.site(request), where["ident"], where["generation"], where["number"])
    return Response(data, media_type="image/png")


def _change(board: Board, request: Request) -> Response:
    ident = request.path_params["ident"]
    file = changed_file(board.site(request), ident, request.path_params["at"])
    return board.page(request, "change.html", ident=ident, file=file)


def _changed_picture(board: Board, request: Request) -> Response:
    where = request.path_params
    found = changed_picture(board.site(request), where["ident"], where["blob"])
    return Response(found.data, media_type=found.kind)


PACKED: Mapping[str, Page] = {
    "/numbers": _numbers,
    "/journal": _journal,
    "/journal.csv": _journal_csv,
    "/journal/trace/{ident}": _trace,
    "/r/{ident}/changes/{at:int}": _change,
}
"""The pages that are sent compressed: none of them has a form's token, whose length could tell."""
