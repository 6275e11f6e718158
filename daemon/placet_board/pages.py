"""Answer the browser: every page of the board, as one ASGI application."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from datetime import time as midnight
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
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
from placet.agent.record import ATTEMPT, CALL, LITERAL, PLACE, Begun, Key, Recorded, Replied
from placet.case import approval
from placet.case.case import Case
from placet.case.life_cycle import OPEN, OVER, State
from placet.case.notes import body_of
from placet.case.question_note import question_in
from placet.case.story import Story, Verbosity, facts
from placet.chat.budget import Complexity
from placet.chat.guards import iteration_cap
from placet.chat.messages import Purpose
from placet.cli.branches import became_now, diff, tip_of
from placet.cli.decide import NotAsRead, proposal
from placet.cli.site import Site, find
from placet.cli.status import show, status
from placet.cli.terminal import hint_of, json_text, shown_time
from placet.cli.view import asks_for_more, estimate_words, model_line, turn, waits_for_you
from placet.disk.errors import Unreadable
from placet.disk.vault import Vault
from placet.errors import PlacetError, UserError, at_most, counted, dollars, rfc3339
from placet.journal.database import is_begun
from placet.journal.reader import SCANNED, Reader, Wanted, all_rows, open_reader, rows_page
from placet.journal.schema import ACTIVITY
from placet.journal.writes import BodyDamaged
from placet.note.box import unmarked
from placet.note.frontmatter import QUESTION_STAMPS, digest, plan_digest, read_note
from placet.note.paths import Folder
from placet.note.paths import show as visible
from placet.plan.differences import diff_callout
from placet.plan.left_out import ticks
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.plan import agent_steps
from placet_board import actions
from placet_board.auth import Door, Guarded, logged_in, refusal
from placet_board.charts import Drawing, line_chart
from placet_board.live import Live
from placet_board.markdown import Patch, html_of, patch_of, seen, seen_name
from placet_board.numbers import DAYS, GROUPS, VAULT_ITSELF, Counted, slice_of


@dataclass(frozen=True, slots=True)
class Card:
    """One request in a column.

    `state` is its state as text, `about` a detail of it. `progress` has its steps and its cost,
    None if there is none. `now` is what it does at this moment, as text.
    """

    ident: str
    title: str
    kind: str
    state: str
    about: str
    since: str
    agent: str
    portal: str
    progress: Mapping[str, Any] | None
    estimate: str
    now: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the board; `hint` is shown if it is empty."""

    key: str
    name: str
    hint: str
    cards: tuple[Card, ...]
    others: tuple[tuple[str, str], ...] = ()


_COLUMNS = (
    ("requests", "Requests", "No requests. Write one, and placet plans it."),
    ("yours", "Awaiting you", "Nothing waits for you."),
    ("approved", "Approved", "No approved plan is waiting."),
    ("running", "Running", "Nothing runs. Approved plans run here."),
    ("done", "Done", "Nothing is completed yet."),
    ("failed", "Ended otherwise", "Nothing failed, was rejected or withdrawn."),
)
_OF_STATE = {
    State.PLANNING: "requests",
    State.REVISING: "requests",
    State.REVIEW: "yours",
    State.ASKING: "yours",
    State.APPROVED: "approved",
    State.RUNNING: "running",
    State.COMPLETED: "done",
    State.FAILED: "failed",
    State.REJECTED: "failed",
    State.WITHDRAWN: "failed",
}


def columns(
    found: Mapping[str, Any], now: Mapping[str, str], wanted: Mapping[str, str]
) -> list[Column]:
    """Return the columns of a status; `now` has what running missions do, by trace_id.

    `wanted` filters cards by `portal`, `agent` and `text`; an empty value keeps all.
    """
    by_column: dict[str, list[Card]] = {key: [] for key, _, _ in _COLUMNS}
    for case in found["cases"]:
        if _is_wanted(case, wanted):
            card = _card(case, now.get(case["trace_id"], ""), daemon=bool(found["daemon"]))
            by_column[_column_of(case)].append(card)
    for ended in ("done", "failed"):
        by_column[ended].reverse()
    others = _unusable(found) if not any(wanted.values()) else ()
    return [
        Column(key, name, hint, tuple(by_column[key]), others if key == "requests" else ())
        for key, name, hint in _COLUMNS
    ]


def choices(cases: Iterable[Mapping[str, Any]]) -> dict[str, Sequence[str]]:
    """Return the portals and agents to filter by."""
    found = list(cases)
    return {
        name: sorted({case[name] for case in found if case[name]}) for name in ("portal", "agent")
    }


def _column_of(case: Mapping[str, Any]) -> str:
    if waits_for_you(case) and case["state"] != State.FAILED:
        return "yours"
    return _OF_STATE[State(case["state"])]


def _is_wanted(case: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    text = wanted.get("text", "").casefold()
    return (
        all(not wanted.get(name) or case[name] == wanted[name] for name in ("portal", "agent"))
        and text in f"{case['title']} {case['request_id']}".casefold()
    )


def _card(case: Mapping[str, Any], now: str, *, daemon: bool) -> Card:
    return Card(
        case["request_id"],
        case["title"] or case["request_id"],
        case["state"],
        _in_words(case),
        _about(case, daemon=daemon),
        case["since"],
        case["agent"],
        case["portal"],
        case.get("progress"),
        estimate_words(case["estimate"]),
        now,
    )


def _in_words(case: Mapping[str, Any]) -> str:
    if case["state"] == State.COMPLETED and case["became"]:
        return str(case["became"])
    if case["asking"] is not None and case["asking"]["kind"] == "amendment":
        return "wider scope"
    return State(case["state"]).title


def _about(case: Mapping[str, Any], *, daemon: bool) -> str:
    """Return what a card says below its title; "" if the state says it all."""
    if not daemon or case["intent"]:
        return turn(case, daemon=daemon)
    if case["asking"] is not None:
        return str(case["asking"]["question"])
    if trouble := case.get("model_trouble"):
        return f"the last call of the model failed: {trouble}"
    if case["state"] == State.FAILED:
        return str(case["failure"]).removeprefix("gave_up: ").partition(" (see ")[0]
    return ""


def _unusable(found: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    known = {visible(path) for case in found["cases"] for path in (case["request"], case["plan"])}
    return tuple(
        (path, " ".join(why.split())[:200])
        for path, why in found["explained"].items()
        if path not in known
    )


PNG = b"\x89PNG\r\n\x1a\n"
MAX_PICTURES = 20
"""Maximum pictures on a page, the first ones."""


def pictures_in(case: Case, report: str) -> list[tuple[int, int]]:
    """Return the pictures that a request's report shows: generation and number of each."""
    named = re.compile(rf"!\[\[{re.escape(_prefix(case))}-(\d{{1,6}})-(\d{{1,6}})\.png\]\]")
    return [(int(found[1]), int(found[2])) for found in named.finditer(report)][:MAX_PICTURES]


def picture(site: Site, ident: str, generation: int, number: int) -> bytes:
    """Return a picture, a PNG. Raises UserError (exit code 3) if there is none."""
    name = f"{_prefix(site.case(ident))}-{generation}-{number}.png"
    try:
        with Vault(site.vault) as vault:
            data, _ = vault.read(f"{Folder.REPORTS}/{name}")
    except Unreadable:
        data = b""
    if not data.startswith(PNG):
        raise UserError("There is no such picture.", "Go back to the report.", exit_code=3)
    return data


def _prefix(case: Case) -> str:
    return f"{case.trace8}_{case.request_id}"


MAX_TURNS = 100
"""Maximum turns on a page, the last ones."""
MAX_CALLS = 50
"""Maximum calls of one turn on a page, and maximum literal actions."""
MAX_WORDS = 600
"""Maximum characters of the model's text in a turn."""
MAX_OUTPUT = 4_000
"""Maximum characters of a call's result."""


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A tool call; `ok` is None while it runs, `cut`: its result is longer."""

    tool: str
    what: str
    ok: bool | None
    took_s: float
    output: str
    cut: bool


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """One turn of the model: its text, its cost, its calls. `at` is empty if unknown."""

    number: int
    at: str
    took_s: float
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    cost: str
    words: str
    calls: tuple[ShownCall, ...]
    calls_left_out: int


@dataclass(frozen=True, slots=True)
class Work:
    """The work on a request, or on its plan (`is_mission` is false).

    `is_asking`: a model call is running; `is_going`: calls without a result are running. `literal`
    are the literal actions that placet ran, by step. `burning` is what was left of the budget after
    each turn, and `burned` a sentence about it.
    """

    is_mission: bool
    is_going: bool = False
    is_asking: bool = False
    turns: tuple[ShownTurn, ...] = ()
    turns_left_out: int = 0
    literal: tuple[tuple[str, ShownCall], ...] = ()
    burning: Drawing | None = None
    burned: str = ""


def work_of(reader: Reader, case: Case, rows: tuple[CommittedRow, ...], ceiling: int) -> Work:
    """Return the last work on a case, from its record and its journal rows.

    `ceiling` is the most turns that the configuration allows a mission.
    """
    record = Recorded()
    try:
        record.take(reader.records(case.trace_id, case.generation))
        plan = reader.text(case.approval.digest or case.outcome.carried_out or case.plan.digest)
    except BodyDamaged:
        return Work(is_mission=False)
    is_mission = record.has(PLACE)
    replies = record.replies()
    moments = _moments(rows, is_mission=is_mission)
    turns = tuple(
        _turn(record, number, replied, moments.get(number, ""))
        for number, replied in enumerate(replies, 1)
        if number > len(replies) - MAX_TURNS
    )
    burning, burned = None, ""
    if is_mission and plan is not None and replies:
        burning, burned = _burning(record, replies, plan, ceiling)
    is_going = case.state in OPEN and case.state is not State.REVIEW
    return Work(
        is_mission,
        is_going,
        is_going and record.begun(ATTEMPT.at(len(replies) + 1, 1)) is not None,
        turns,
        len(replies) - len(turns),
        tuple(_literal(record)),
        burning,
        burned,
    )


def _moments(rows: tuple[CommittedRow, ...], *, is_mission: bool) -> dict[int, str]:
    """Return the moment of each turn's reply."""
    found = {}
    for row in rows:
        if row.action_type == Action.MODEL_CALLED:
            data = row.details
            if (data.get("purpose") == Purpose.EXECUTE) == is_mission:
                found[int(data.get("iteration") or 0)] = row.timestamp
    return found


def _turn(record: Recorded, number: int, replied: Replied, at: str) -> ShownTurn:
    reply, usage = replied.reply, replied.reply.usage
    uses = reply.turn.tool_uses
    calls = tuple(
        _call(use.name, use.input, record, CALL.at(number, place))
        for place, use in enumerate(uses[:MAX_CALLS])
    )
    return ShownTurn(
        number,
        at,
        replied.took_s,
        usage.input_tokens + usage.cache_write_tokens,
        usage.cache_read_tokens,
        usage.output_tokens,
        dollars(replied.cost_usd),
        at_most(reply.turn.text.strip(), MAX_WORDS),
        calls,
        len(uses) - len(calls),
    )


def _literal(record: Recorded) -> Iterator[tuple[str, ShownCall]]:
    """Give the actions of literal steps, with the step of each."""
    places = []
    for key in {*record.intents, *record.outcomes}:
        head, _, rest = key.partition(":")
        step, _, number = rest.partition(":")
        if head == LITERAL.key and step.isdecimal() and number.isdecimal():
            places.append((int(step), int(number)))
    for of_step, place in sorted(places)[:MAX_CALLS]:
        entry = LITERAL.at(of_step, place)
        begun = record.begun(Key(entry.key, Begun))
        name, given = (begun.tool, begun.input) if begun is not None else ("action", {})
        yield f"step {of_step}", _call(name, given, record, entry)


def _call(tool: str, given: Mapping[str, Any], record: Recorded, entry: Key[Any]) -> ShownCall:
    outcome = record.get(entry)
    content = "" if outcome is None else outcome.content
    return ShownCall(
        tool,
        ", ".join(f"{key}={str(value)[:120]}" for key, value in given.items())[:400],
        None if outcome is None else outcome.ok,
        0.0 if outcome is None else outcome.took_s,
        content[:MAX_OUTPUT],
        len(content) > MAX_OUTPUT,
    )


def _burning(
    record: Recorded, replies: Sequence[Replied], plan: bytes, ceiling: int
) -> tuple[Drawing | None, str]:
    """Return what was left after each turn, of the plan's dollars or of its turns."""
    try:
        read = parse_plan(read_note(plan).body, None)
    except PlanProblems:
        return None, ""
    scope = read.scope
    costs = [_cost(record, number, replied) for number, replied in enumerate(replies, 1)]
    known = [cost for cost in costs if cost is not None]
    # without a price only turns are counted
    if scope.budget_usd and len(known) == len(costs) and any(known):
        full = float(scope.budget_usd)
        left = [full - float(sum(known[: number + 1])) for number in range(len(known))]
        used = f"{dollars(sum(known, Decimal(0)))} of {dollars(full)}"
        return line_chart(
            left, full, dollars
        ), f"{used} used after {counted(len(costs), 'iteration')}."
    complexity, steps = _complexity_of(plan) or Complexity.STANDARD, agent_steps(read.steps)
    most = iteration_cap(complexity, scope.max_iterations, steps, ceiling)
    if most < 1:
        return None, ""
    turns = [float(most - number) for number in range(1, len(costs) + 1)]
    return (
        line_chart(turns, float(most), lambda number: counted(round(number), "iteration")),
        f"{len(costs)} of {counted(most, 'iteration')} used.",
    )


def _cost(record: Recorded, number: int, replied: Replied) -> Decimal | None:
    """Return the dollars of a turn with its failed attempts; None if a price is unknown."""
    total, attempt = replied.cost_usd, 1
    while (held := record.begun(ATTEMPT.at(number, attempt))) is not None:
        lost = record.get(ATTEMPT.at(number, attempt))
        attempt += 1
        if lost is None and ATTEMPT.at(number, attempt).key in record.intents:
            lost = held  # it was interrupted, and counts with its whole reservation
        if lost is not None and total is not None:
            total = None if lost.amount.usd is None else total + lost.amount.usd
    return total


def _complexity_of(plan: bytes) -> Complexity | None:
    """Return the size that a plan's note says, None for none or an unknown one."""
    try:
        return Complexity(str(read_note(plan).meta.get("complexity") or Complexity.STANDARD))
    except ValueError:
        return None


MAX_ROWS = 500
"""Maximum journal rows for a request's history, the last ones."""


def request_page(site: Site, ident: str) -> dict[str, Any]:
    """Return everything that the page of a request shows. Raises UserError for an unknown ID."""
    found = show(site, ident)
    with site.reader(ident) as reader:
        case = find(reader, found["trace_id"])
        rows = reader.activity(case.trace_id, limit=MAX_ROWS, newest=True, routine=False)
        work = work_of(reader, case, rows, _ceiling(site))
        changes = _since_last_revision(reader, rows)
    if found["state"] == State.COMPLETED and found["commit"]:
        found["became"] = became_now(site, case)  # the daemon may not have read it yet
    page: dict[str, Any] = {
        "found": found,
        "work": work,
        "story": _story(case, rows),
        "changes": changes,
        "estimate": estimate_words(found["estimate"]),
        "texts": _texts(found),
        "pictures": pictures_in(case, found["report_text"] or ""),
        "plan": None,
        "asks": None,
        "patch": None,
        "no_patch": None,
        "tip": "",
        "can": acts(case, found),
    }
    if found["plan_text"] and _acting(found) in (State.REVIEW, State.REVISING, State.FAILED):
        page["plan"] = _plan(site, case, found["plan_text"].encode())
    if found["asking"] is not None and found["asking_text"]:
        page["asks"] = _asks(found["asking"], found["asking_text"].encode())
    if found["state"] == State.COMPLETED and found["commit"]:
        page["tip"] = _tip(site, found["request_id"])  # read before its changes, which may be newer
        page["patch"], page["no_patch"] = _patch(site, found["request_id"])
    return page


def _texts(found: Mapping[str, Any]) -> dict[str, dict[str, Any] | None]:
    """Return the notes of a request, rendered and raw; None for a missing one."""
    notes: dict[str, dict[str, Any] | None] = dict.fromkeys(("plan", "report", "request"))
    for name in ("plan", "report", "request"):
        text = found[f"{name}_text"]
        if text:
            body = unmarked(read_note(text.encode()).body)
            notes[name] = {"html": html_of(body), "raw": seen(text), "path": found[name]}
    return notes


def _plan(site: Site, case: Case, raw: bytes) -> dict[str, Any]:
    """Return what an approval would approve, or why the plan cannot be approved."""
    page: dict[str, Any] = {"digest": plan_digest(raw), "refused": None, "allows": None}
    try:
        page["allows"] = proposal(site, case, raw)
    except UserError as error:
        page["refused"] = error
    page["steps"] = ticks(read_note(raw).body)
    return page


def _asks(asking: Mapping[str, Any], raw: bytes) -> dict[str, Any]:
    """Return the question, or the wider scope, that waits for you in a note's text."""
    page = {"kind": asking["kind"], "path": asking["path"]}
    body = unmarked(read_note(raw).body)
    if asking["kind"] == "amendment":
        return {**page, "html": html_of(body), "digest": plan_digest(raw)}
    return {
        **page,
        "html": html_of(question_in(raw)),
        "body": html_of(body.partition("\n## ")[0]),
        "options": asking["options"],
        "digest": digest(raw, QUESTION_STAMPS),
    }


def _tip(site: Site, ident: str) -> str:
    try:
        return tip_of(site, ident)
    except PlacetError:
        return ""  # `_patch` says why


def _patch(site: Site, ident: str) -> tuple[Patch | None, UserError | None]:
    try:
        return patch_of(diff(site, ident)[0]), None
    except UserError as error:
        return None, error
    except PlacetError as error:
        return None, UserError(str(error))


def _acting(found: Mapping[str, Any]) -> str:
    """Return `Case.acting` of a case as plain data."""
    return str(found["state"] if found["asking"] is None else found["asking"]["of"])


def acts(case: Case, found: Mapping[str, Any]) -> dict[str, bool]:
    """Return what you can do with a request, as far as its state says."""
    state, is_decided = found["state"], bool(found["intent"])
    asks = found["asking"] is not None and not is_decided
    has_branch = state == State.COMPLETED and bool(found["commit"])
    can = {
        one: approval.refusal(case, None, one) is None and not is_decided
        for one in ("approve", "revise", "stop")
    }
    return {
        **can,
        "approve": can["approve"] and not asks_for_more(case),
        "answer": asks and found["asking"]["kind"] == "question",
        "widen": asks and found["asking"]["kind"] == "amendment",
        "retry": state in OVER,
        "merge": has_branch and found["became"] not in ("merged", "dropped", "gone"),
        "drop": has_branch and not found["became"],
    }


def _story(case: Case, rows: Sequence[CommittedRow]) -> list[dict[str, str]]:
    """Return what happened, newest first, in the daemon's sentences."""
    story = Story()
    told = [(row.timestamp, story.line(row)) for row in rows]
    return [
        {"at": at, "text": line[1].removeprefix(f"{case.request_id}: ")}
        for at, line in reversed(told)
        if line is not None
    ]


def _since_last_revision(reader: Reader, rows: Sequence[CommittedRow]) -> dict[str, Any] | None:
    """Return the difference between the last two revisions, None without one.

    The note's box summarises the changes; these are the lines.
    """
    written = [row for row in rows if row.action_type in (Action.PLAN_CREATED, Action.PLAN_REVISED)]
    if len(written) < 2 or written[-1].action_type != Action.PLAN_REVISED:
        return None
    try:
        old, new = (reader.text(str(row.details.get("digest"))) for row in written[-2:])
    except BodyDamaged:
        return None
    if old is None or new is None:
        return None
    lines = diff_callout(_plan_alone(old), _plan_alone(new))
    return {"of": written[-2].details.get("revision"), "html": html_of(lines)}


def _plan_alone(text: bytes) -> str:
    """Return a plan from its title on, without what the daemon wrote above."""
    body = body_of(text)
    above, title, plan = f"\n{body}".partition("\n# ")
    return f"{title}{plan}".lstrip() if title else above


def _ceiling(site: Site) -> int:
    """Return the most turns that a mission may have, 0 if the settings cannot be read."""
    try:
        return site.in_force().config.limits.iterations_ceiling
    except UserError:
        return 0


SHARED_S = 0.1
"""How long browsers share one status, in seconds: fifty of them cost no more than one."""

TYPED = frozenset({"title", "text", "remark", "reason", "comment", "own"})
"""The form fields with sentences of yours."""

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
        "time": shown_time,
        "dollars": dollars,
    }
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
    _looked: tuple[float, dict[str, Any]] | None = None

    def site(self, request: Request) -> Site:
        """Return the vault as the user of this browser works on it."""
        return Site(str(self.vault), self.env, who=request.state.session.who, via="board")

    def status(self, site: Site) -> dict[str, Any]:
        """Return what `placet status` shows, at most SHARED_S old."""
        with self._lock:
            now = time.monotonic()
            # A status from before an event does not show it, and no second event may follow.
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
    """Return the page for an unknown address or a wrong method."""
    assert isinstance(error, HTTPException), "no other code is answered here"
    return refusal("There is no such page.", error.status_code, error.headers)


def _answered(
    board: Board, request: Request, page: Callable[[Board, Request], Response]
) -> Response:
    """Return a page; an error that you can act on becomes a page that says so."""
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
    """Return the page about what could not be done, with the text that you typed."""
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
    """Return the line that says that no model is called here, "" if one is."""
    try:
        found = site.configured()
    except UserError:  # a page that needs the settings reports that
        return ""
    model = found.model
    scripted = site.problem is None and model.provider == "scripted"
    return model_line(model.provider, model.name) if scripted else ""


def _now(site: Site, found: Mapping[str, Any]) -> dict[str, str]:
    """Return what each running mission does at this moment, by trace_id."""
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
    story, before, told = Story(), "", list[dict[str, Any]]()
    for row in rows:
        line = story.line(row)
        if line is not None:
            told.append(
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
    over = _long(_seconds(told[0]["at"], told[-1]["at"])) if told else ""
    return {"case": case, "story": told, "over": over, "is_cut": len(rows) == MAX_TOLD}


def _shown(row: CommittedRow) -> dict[str, Any]:
    """Return a row as text; the metadata of a hand-made one may be no JSON."""
    try:
        data = row.details
        told, raw = facts(row.action_type, data), json_text(dict(data), indent=2)
    except (ValueError, TypeError, AttributeError):
        told, raw = "", row.metadata
    return {
        "id": row.id,
        "at": row.timestamp,
        "actor": row.actor,
        "agent": row.agent,
        "action": row.action_type,
        "about": row.entity_id,
        "trace": row.trace_id,
        "told": seen_name(told)[:400],
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
    """Return how long after a moment another one is; "" for none and for less than a second."""
    if not before:
        return ""
    seconds = _seconds(before, now)
    return _long(seconds) if seconds >= 1 else ""


def _seconds(before: str, now: str) -> float:
    return (datetime.fromisoformat(now) - datetime.fromisoformat(before)).total_seconds()


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
    return board.page(
        request,
        "numbers.html",
        numbers=board.counted.numbers(board.site(request).state.journal, part),
        part=part,
        days=DAYS,
        groups=tuple(GROUPS),
        wanted={
            "agent": part.agent,
            "portal": VAULT_ITSELF if part.portal == "" else part.portal or "",
        },
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


PAGES: Mapping[str, Callable[[Board, Request], Response]] = {
    "/numbers": _numbers,
    "/journal": _journal,
    "/journal.csv": _journal_csv,
    "/journal/trace/{ident}": _trace,
    "/r/{ident}/pictures/{generation:int}/{number:int}": _picture,
}
