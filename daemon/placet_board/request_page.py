"""Show one request: its plan to decide on, its mission, its report and its changes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from placet.activity import Action, CommittedRow
from placet.agent.record import ATTEMPT, CALL, LITERAL, PLACE, Begun, Key, Recorded, Replied
from placet.case import approval
from placet.case.callout import box_is_current, box_of, complexity_in, plan_summary
from placet.case.case import Case
from placet.case.life_cycle import OPEN, State
from placet.case.notes import body_of
from placet.case.question_note import question_in
from placet.case.story import Story, Verbosity
from placet.chat.guards import iteration_cap
from placet.chat.messages import Purpose
from placet.client.branches import also_undone, became_now, diff, tip_of, told_branch
from placet.client.cases import Asked, CaseLine, ShownCase, show
from placet.client.decisions import proposal
from placet.client.notes import asks_for_more
from placet.client.site import Site, find
from placet.disk.errors import Unreadable
from placet.disk.vault import Vault
from placet.errors import PlacetError, UserError
from placet.host.config import Config
from placet.journal.reader import Reader
from placet.journal.writes import BodyDamaged
from placet.note.box import unmarked, without_box
from placet.note.frontmatter import read_note
from placet.note.paths import Folder
from placet.plan.comments import open_comments
from placet.plan.digest import QUESTION_STAMPS, digest, plan_digest
from placet.plan.left_out import ticks
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.plan import Plan, Step, agent_steps
from placet.wording import at_most, counted, dollars
from placet_board.actions import digest_of_names
from placet_board.markdown import Patch, html_of, patch_of, seen
from placet_board.passkeys import signing

PNG = b"\x89PNG\r\n\x1a\n"
MAX_PICTURES = 20
"""Maximum pictures on a page, the first ones."""


def pictures_in(case: Case, report: str) -> list[tuple[int, int]]:
    """Return the pictures that a request's report shows: generation and number of each."""
    named = re.compile(rf"!\[\[{re.escape(_prefix(case))}-(\d{{1,6}})-(\d{{1,6}})\.png\]\]")
    return [(int(found[1]), int(found[2])) for found in named.finditer(report)][:MAX_PICTURES]


def picture(site: Site, ident: str, generation: int, number: int) -> bytes:
    """Return a picture (PNG). Raises UserError (exit code 3) if it does not exist."""
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
    are the literal actions that placet ran, by step. `times` are the steps with the seconds that
    each took. `most` is the limit of iterations, 0 if unknown.
    """

    is_mission: bool
    is_going: bool = False
    is_asking: bool = False
    turns: tuple[ShownTurn, ...] = ()
    turns_left_out: int = 0
    literal: tuple[tuple[str, ShownCall], ...] = ()
    times: tuple[tuple[str, float], ...] = ()
    most: int = 0


def work_of(
    reader: Reader, case: Case, rows: tuple[CommittedRow, ...], ceiling: int | None
) -> Work:
    """Return the last work on a case, from its record and its journal rows.

    `ceiling` is the most iterations that the configuration allows a mission.
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
    is_going = case.state in OPEN and case.state is not State.REVIEW
    found = Work(
        is_mission,
        is_going,
        is_going and record.begun(ATTEMPT.at(len(replies) + 1, 1)) is not None,
        turns,
        len(replies) - len(turns),
        tuple(_literal(record)),
    )
    with suppress(PlanProblems):
        if is_mission and plan is not None:
            note = read_note(plan)
            read = parse_plan(note.body)
            asked, steps = read.scope.max_iterations, agent_steps(read.steps)
            most = iteration_cap(complexity_in(note.meta), asked, steps, ceiling)
            return replace(found, times=tuple(_times(rows, read.steps)), most=most)
    return found


def _times(rows: Sequence[CommittedRow], steps: Sequence[Step]) -> Iterator[tuple[str, float]]:
    """Give each finished step of the last mission, with the seconds that it took."""
    begun = max(
        (n for n, r in enumerate(rows) if r.action_type == Action.EXECUTION_STARTED), default=0
    )
    before = ""
    for row in rows[begun:]:
        if row.action_type == Action.EXECUTION_STARTED:
            before = row.timestamp
        elif row.action_type == Action.STEP_COMPLETED and before:
            number = int(row.details["step"])
            title = steps[number - 1].title if 0 < number <= len(steps) else ""
            yield f"{number}. {title}", seconds_between(before, row.timestamp)
            before = row.timestamp


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
        ", ".join(f"{key}={_in_full(value)[:120]}" for key, value in given.items())[:400],
        None if outcome is None else outcome.ok,
        0.0 if outcome is None else outcome.took_s,
        content[:MAX_OUTPUT],
        len(content) > MAX_OUTPUT,
    )


def _in_full(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


MAX_ROWS = 500
"""Maximum journal rows for a request's history, the last ones."""
DOTS = ("asked", "planned", "approved", "working", "merged")


@dataclass(frozen=True, slots=True)
class Track:
    """How far a request is: `done` of the DOTS. `kind` says what the next one is.

    That is `waits` for you, `works`, `bad` where it failed, or empty where nothing follows.
    """

    done: int
    kind: str

    @property
    def text(self) -> str:
        """The track in words."""
        now = {"waits": "waits for you", "works": "in progress", "bad": "failed"}.get(self.kind)
        done = f"Done: {', '.join(DOTS[: self.done])}."
        return f"{done} Next: {DOTS[self.done]}, {now}." if now else done


_TRACKS = {
    State.PLANNING: Track(1, "works"),
    State.REVISING: Track(1, "works"),
    State.REVIEW: Track(2, "waits"),
    State.APPROVED: Track(3, "works"),
    State.RUNNING: Track(3, "works"),
    State.REJECTED: Track(2, ""),
    State.WITHDRAWN: Track(1, ""),
}


def track_of(case: CaseLine) -> Track:
    """Return how far a case is."""
    state = case.state
    if case.asking is not None:
        return Track(3 if case.asking.of is State.RUNNING else 1, "waits")
    if state is State.FAILED:
        return Track(3 if case.report else 1, "bad")
    if state is State.COMPLETED:
        if case.became == "merged":
            return Track(5, "")
        return Track(4, "waits" if case.commit and not case.became else "")
    return _TRACKS[state]


def state_words(case: CaseLine) -> str:
    """Return a case's state in two or three words, for its chip."""
    state, asking = case.state, case.asking
    if asking is not None:
        return "Question for you" if asking.kind == "question" else "Wider scope for you"
    if state is State.COMPLETED and case.became:
        return {"reverted": "Merge undone", "gone": "Branch gone"}.get(
            case.became, case.became.capitalize()
        )
    if state is State.REVIEW and case.revision > 1:
        return f"Plan {case.revision} to review"
    return _CHIPS.get(state, state.value.capitalize())


_CHIPS = {
    State.PLANNING: "Being planned",
    State.REVIEW: "Plan to review",
    State.REVISING: "Being revised",
    State.APPROVED: "Starts soon",
    State.COMPLETED: "Done",
}

# The blocks of the page, in reading order.
_ORDERS = {
    State.REVIEW: ("plan", "request", "text", "work", "report", "story"),
    State.FAILED: ("report", "plan", "work", "diff", "request", "text", "story"),
    State.COMPLETED: ("report", "diff", "plan", "request", "work", "story"),
}
_ORDER = ("asks", "plan", "work", "report", "request", "text", "story")


def request_page(site: Site, ident: str, *, origin: str = "") -> dict[str, Any]:
    """Return everything that the page of a request shows, on a page with this origin.

    Raises UserError for an unknown ID.
    """
    found, config = show(site, ident), _config(site)
    with site.reader(ident) as reader:
        case = find(reader, found.trace_id)
        rows = reader.activity(case.trace_id, limit=MAX_ROWS, newest=True, routine=False)
        work = work_of(reader, case, rows, _ceiling(config))
        before = _last_revision(reader, rows)
    state = found.state
    if state is State.COMPLETED and found.commit:  # the daemon may not have read it yet
        found = replace(found, became=became_now(site, case))
    page: dict[str, Any] = {
        "found": found,
        "chip": state_words(found),
        "track": track_of(found),
        "stamp": _stamp(found),
        "failure": failure_words(found.failure) if state is State.FAILED else "",
        "put_back": html_of(found.notice if state is State.REVIEW else ""),
        "rejected": _rejected(case, rows) if state is State.REJECTED else "",
        "work": work,
        "story": _story(case, rows),
        "texts": _texts(found),
        "pictures": pictures_in(case, found.report_text or ""),
        "plan": None,
        "asks": None,
        "sign": None,
        "patch": None,
        "no_patch": None,
        "tip": "",
        "others": [],
        "doubts_seen": digest_of_names(case.open_branch.doubts)
        if case.open_branch is not None and case.open_branch.doubts
        else "",
        "can": acts(case, found),
        "order": _ORDERS.get(state, _ORDER),
    }
    if raw := (found.plan_text or "").encode():
        page["plan"] = _plan(site, case, raw, before, is_open=state in _OPEN_PLANS)
    if found.asking is not None and found.asking_text:
        page["asks"] = _asks(found.asking, found.asking_text.encode())
    plan, can = page["plan"], page["can"]
    may = can["approve"] and plan is not None and plan["allows"] and not plan["stale"]
    if config is not None and (may or can["widen"]):
        digest = plan["digest"] if may else ""
        page["sign"] = signing(site, case, digest, origin, config.approval)
    if found.state == State.COMPLETED and found.commit:
        page["tip"] = _tip(site, found.request_id)  # read before its changes, which may be newer
        page["patch"], page["no_patch"] = _patch(site, found.request_id)
        with suppress(PlacetError):  # `_patch` says why
            page["others"] = also_undone(site, ident) if page["can"]["undo"] else []
            page["others_seen"] = digest_of_names(page["others"])
    return page


_OPEN_PLANS = (State.REVIEW, State.FAILED)
"""The states in which a plan can be approved."""


def _stamp(found: ShownCase) -> str:
    """Return what a message of a button is about: it goes when this is another."""
    asking = found.asking.number if found.asking is not None else 0
    return f"{found.state} {found.revision} {asking} {found.became} {found.intent}"


def failure_words(failure: str) -> str:
    """Return why something failed, without the program's word for it and the report's path."""
    return re.sub(r"^[a-z_]+: ", "", failure).partition(" (see ")[0]


def _texts(found: ShownCase) -> dict[str, dict[str, Any] | None]:
    """Return the report and the request, rendered and raw; None for a missing one."""
    notes: dict[str, dict[str, Any] | None] = {}
    for name, text in (("report", found.report_text), ("request", found.request_text)):
        notes[name] = None
        if text:
            body = unmarked(read_note(text.encode()).body)
            notes[name] = {"html": html_of(body), "raw": seen(text)}
    return notes


def _plan(
    site: Site, case: Case, raw: bytes, before: tuple[int, bytes] | None, *, is_open: bool
) -> dict[str, Any]:
    """Return a plan as it is decided on; an open one with why it cannot be approved.

    `before` is the revision before it, with its number.
    """
    body = without_box(read_note(raw).body)
    above, _, _ = f"\n{body}".partition("\n# ")
    page: dict[str, Any] = {
        "digest": plan_digest(raw) if is_open else "",
        "summary": plan_summary(raw),
        "steps": [
            {
                "number": one.number,
                "title": one.title,
                "done": one.done,
                "html": html_of(""),
                "done_when": (),
                "actions": (),
            }
            for one in ticks(body)
        ],
        "comments": [
            {"step": one.step, "place": one.place, "text": one.text.removeprefix(f"{one.step}. ")}
            for one in open_comments(body)
        ],
        "raw": seen(raw.decode(errors="replace")),
        "html": html_of(body),
        "about": html_of(above.strip()),
        "read": None,
        "changes": None,
        "stale": is_open and not box_is_current(raw, box_of(case)),
        "refused": None,
        "allows": None,
    }
    with suppress(PlanProblems):
        read = parse_plan(body)
        page["read"] = _shown_plan(read)
        for shown, step in zip(page["steps"], read.steps, strict=False):
            shown.update(_shown_step(step))
        page["changes"] = None if before is None else _changes(before, read)
    if is_open:
        try:
            page["allows"] = proposal(site, case, raw)
        except UserError as error:
            page["refused"] = error
    return page


def _shown_plan(plan: Plan) -> dict[str, Any]:
    scope = plan.scope
    return {
        "title": plan.title,
        "intro": html_of(plan.summary),
        "write": scope.write,
        "run": [shlex.join(argv) for argv in scope.run],
        "network": scope.network,
        "hosts": [str(host) for host in scope.hosts],
        "shell": scope.shell,
        "risks": plan.risks,
        "others": [(one.title, html_of(one.text)) for one in plan.others],
    }


def _shown_step(step: Step) -> dict[str, Any]:
    return {
        "html": html_of(step.description),
        "done_when": step.done_when,
        "actions": [
            (one.tool, [(name, _in_full(value)) for name, value in one.params.items()])
            for one in step.actions
        ],
    }


def _changes(before: tuple[int, bytes], plan: Plan) -> tuple[int, str]:
    """Return the number of the last revision, and in one line what changed since."""
    number, old = before
    try:
        changed = ", ".join(_changed_parts(parse_plan(body_of(old)), plan))
    except PlanProblems:
        changed = "all of it is new"
    return number, changed or "nothing in the plan changed"


def _changed_parts(old: Plan, new: Plan) -> Iterator[str]:
    before = {step.title: step for step in old.steps}
    for number, step in enumerate(new.steps, 1):
        if step.title not in before:
            yield f"step {number} is new"
        elif _shown_step(step) != _shown_step(before[step.title]):
            yield f"step {number} changed"
    if gone := before.keys() - {step.title for step in new.steps}:
        yield f"{counted(len(gone), 'old step')} left out"
    for name, was, now in (
        ("path", set(old.scope.write), set(new.scope.write)),
        ("command", set(old.scope.run), set(new.scope.run)),
        ("host", set(old.scope.hosts), set(new.scope.hosts)),
    ):
        if now - was:
            yield f"{counted(len(now - was), name)} added"
        if was - now:
            yield f"{counted(len(was - now), name)} removed"
    for name in ("network", "shell"):
        if getattr(old.scope, name) != getattr(new.scope, name):
            yield f"{name} {'on' if getattr(new.scope, name) else 'off'}"
    for name in ("title", "summary", "risks"):
        if getattr(old, name) != getattr(new, name):
            yield f"{name} changed"


def _asks(asking: Asked, raw: bytes) -> dict[str, Any]:
    """Return the question, or the wider scope, that waits for you in a note's text."""
    page = {"kind": asking.kind, "path": asking.path}
    body = without_box(read_note(raw).body)
    if asking.kind == "amendment":
        return {**page, "html": html_of(body), "digest": plan_digest(raw)}
    return {
        **page,
        "html": html_of(question_in(raw)),
        "body": html_of(body.partition("\n## ")[0].partition("\n> [!tip]")[0]),
        "options": asking.options,
        "digest": digest(raw, QUESTION_STAMPS),
    }


def _tip(site: Site, ident: str) -> str:
    try:
        return tip_of(site, ident)
    except PlacetError:
        return ""  # `_patch` says why


def _patch(site: Site, ident: str) -> tuple[Patch | None, UserError | None]:
    try:
        return patch_of(diff(site, ident, told_branch)[0]), None
    except UserError as error:
        return None, error
    except PlacetError as error:
        return None, UserError(str(error))


def acts(case: Case, found: ShownCase) -> dict[str, bool]:
    """Return what you can do with a request, as far as its state says."""
    state, is_decided = found.state, bool(found.intent)
    asked = "" if found.asking is None or is_decided else found.asking.kind
    has_branch = state == State.COMPLETED and bool(found.commit)
    can = {
        one: approval.refusal(case, None, one) is None and not is_decided
        for one in ("approve", "reject", "revise", "tick", "stop", "retry")
    }
    decides = state in _OPEN_PLANS
    return {
        **can,
        "approve": decides and can["approve"] and not asks_for_more(case),
        "reject": decides and can["reject"],
        "revise": decides and can["revise"],
        "tick": decides and can["tick"],
        "answer": asked == "question",
        "widen": asked == "amendment",
        "merge": has_branch and found.became not in ("merged", "dropped", "gone"),
        "drop": has_branch and not found.became,
        "undo": has_branch and found.became == "merged",
    }


def _rejected(case: Case, rows: Sequence[CommittedRow]) -> str:
    """Return who rejected a plan, and why."""
    rejection = next(
        (one for one in reversed(rows) if one.action_type == Action.PLAN_REJECTED), None
    )
    facts = {} if rejection is None else rejection.details
    reason = case.rejection.reason or facts.get("reason", "")
    who = facts.get("reviewed_by", "Somebody")
    return f"{who} rejected the plan: {reason}" if reason else f"{who} rejected the plan."


def _story(case: Case, rows: Sequence[CommittedRow]) -> list[dict[str, str]]:
    """Return what happened, newest first, in the daemon's sentences; details are left out."""
    story = Story()
    lines = [(row.timestamp, story.line(row)) for row in rows]
    return [
        {"at": at, "text": line[1].removeprefix(f"{case.request_id}: ")}
        for at, line in reversed(lines)
        if line is not None and line[0] is not Verbosity.DETAIL
    ]


def _last_revision(reader: Reader, rows: Sequence[CommittedRow]) -> tuple[int, bytes] | None:
    """Return the number and the text of the revision before the last one, None without one."""
    written = [row for row in rows if row.action_type in (Action.PLAN_CREATED, Action.PLAN_REVISED)]
    if len(written) < 2 or written[-1].action_type != Action.PLAN_REVISED:
        return None
    try:
        old = reader.text(str(written[-2].details.get("digest")))
    except BodyDamaged:
        return None
    return None if old is None else (int(written[-2].details.get("revision") or 0), old)


def _config(site: Site) -> Config | None:
    """Return the settings that hold, None if they cannot be read."""
    try:
        return site.in_force().config
    except UserError:
        return None


def _ceiling(config: Config | None) -> int | None:
    """Return the most iterations that a mission may have; None without a limit, or unknown."""
    return config.limits.iterations_ceiling or None if config is not None else None


def seconds_between(before: str, now: str) -> float:
    """Return the seconds from one moment of the journal to another."""
    return (datetime.fromisoformat(now) - datetime.fromisoformat(before)).total_seconds()
