"""Show one request: its plan to decide on, its mission, its report and its changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from markupsafe import Markup

from placet.activity import Action, CommittedRow
from placet.agent.record import ATTEMPT, CALL, LITERAL, PLACE, Begun, Key, Recorded, Replied
from placet.case import approval
from placet.case.callout import (
    PlanSummary,
    box_is_current,
    box_of,
    cautions,
    complexity_in,
    plan_summary,
    where_it_works,
)
from placet.case.case import SOMEONE, Case, Person
from placet.case.decide import HOW_AFTER_DRIFT
from placet.case.explain import how_it_ended
from placet.case.life_cycle import OPEN, State
from placet.case.notes import body_of
from placet.case.story import Story, Verbosity
from placet.chat.guards import iteration_cap
from placet.chat.messages import Purpose
from placet.client.branches import (
    also_undone,
    became_now,
    merge_outlook,
    tip_of,
)
from placet.client.cases import Asked, CaseLine, ShownCase, show
from placet.client.decisions import Proposal, proposal
from placet.client.difference import difference
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
from placet.note.outline import outline_of
from placet.note.paths import Folder
from placet.plan.comments import Comment, open_comments
from placet.plan.digest import QUESTION_STAMPS, digest, plan_digest
from placet.plan.left_out import ticks
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.plan import Plan, Step, agent_steps
from placet.plan.revision import TITLE
from placet.wording import at_most, counted, dollars, one_line
from placet_board.actions import digest_of_names
from placet_board.difference import Patch, PatchFile, patch_of
from placet_board.markdown import html_of, seen
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
        ", ".join(f"{key}={in_full(value)[:120]}" for key, value in given.items())[:400],
        None if outcome is None else outcome.ok,
        0.0 if outcome is None else outcome.took_s,
        content[:MAX_OUTPUT],
        len(content) > MAX_OUTPUT,
    )


def in_full(value: object) -> str:
    """Return a parameter of a call as text."""
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


def chip_of(case: CaseLine) -> tuple[str, str]:
    """Return the kind of a case's chip, by which it is coloured, and its state in a few words."""
    state, asking = case.state, case.asking
    if asking is not None:
        is_question = asking.kind == "question"
        return state, "Question for you" if is_question else "Wider scope for you"
    if case.is_to_merge:
        return "merge", "To merge"
    if state is State.COMPLETED and case.became:
        words = {"reverted": "Merge undone", "gone": "Branch gone"}
        return case.became.partition(" ")[0], words.get(case.became, case.became.capitalize())
    if state is State.REVIEW and case.revision > 1:
        return state, f"Plan {case.revision} to review"
    return state, _CHIPS.get(state, state.value.capitalize())


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
    raw, asked = (found.plan_text or "").encode(), (found.asking_text or "").encode()
    plan = _plan(site, case, raw, before, is_open=state in _OPEN_PLANS) if raw else None
    can = acts(case, found)
    if plan is None or plan.allows is None or plan.is_stale:
        can -= {"approve"}
    sign = None
    if config is not None and not can.isdisjoint(("approve", "widen")):
        digest = plan.digest if plan is not None and "approve" in can else ""
        sign = signing(site, case, digest, origin, config.approval)
    failure = how_it_ended(rows) if state in _OPEN_PLANS else ""
    if state is State.FAILED and not failure:
        failure = failure_words(found.failure)
    put_back, *put_back_more = [""] if failure else _put_back(found) or [""]
    return {
        "found": found,
        "chip": chip_of(found),
        "track": track_of(found),
        "stamp": _stamp(found),
        "failure": failure,
        "put_back": put_back,
        "put_back_more": html_of("\n\n".join(put_back_more)),
        "rejected": _rejected(case, rows) if state is State.REJECTED else "",
        "work": work,
        "story": _story(case, rows),
        "texts": _texts(found),
        "pictures": pictures_in(case, found.report_text or ""),
        "plan": plan,
        "asks": _asks(found.asking, asked) if found.asking is not None and asked else None,
        "sign": sign,
        "must_sign": case.must_sign,
        "doubts_seen": digest_of_names(case.open_branch.doubts)
        if case.open_branch is not None and case.open_branch.doubts
        else "",
        "can": can,
        "order": _ORDERS.get(state, _ORDER),
        **_branch(site, case, found, can),
    }


def _branch(site: Site, case: Case, found: ShownCase, can: frozenset[str]) -> dict[str, Any]:
    """Return a completed mission's branch: its changes, and what follows a merge and an undo."""
    if found.state != State.COMPLETED or not found.commit:
        return dict.fromkeys(("tip", "patch", "no_patch", "merging", "others", "others_seen"))
    ident, others = found.request_id, list[str]()
    tip = _tip(site, ident)  # read before its changes, which may be newer
    patch, no_patch = _patch(site, ident)
    with suppress(PlacetError):  # `_patch` says why
        others = also_undone(site, ident) if "undo" in can else []
    return {
        "tip": tip,
        "patch": patch,
        "no_patch": no_patch,
        "merging": merge_outlook(site, case) if "merge" in can else None,
        "others": others,
        "others_seen": digest_of_names(others),
    }


def _put_back(found: ShownCase) -> list[str]:
    """Return why a plan waits again although it was approved, the first line for all to read."""
    if found.state is not State.REVIEW or not found.notice:
        return []
    first, *rest = found.notice.splitlines()
    known = [one for one in rest if one != HOW_AFTER_DRIFT]  # the page has its buttons
    return [f"{first.replace('*', '').rstrip(':.')}.", *known]


_OPEN_PLANS = (State.REVIEW, State.FAILED)
"""The states in which a plan can be approved."""


def _stamp(found: ShownCase) -> str:
    """Return what a message of a button is about: it goes when this is another."""
    asking = found.asking.number if found.asking is not None else 0
    return f"{found.state} {found.revision} {asking} {found.became} {found.intent}"


def failure_words(failure: str) -> str:
    """Return why something failed, without the program's word for it and the report's path."""
    return one_line(re.sub(r"^[a-z_]+: ", "", failure).partition(" (see ")[0])


def _texts(found: ShownCase) -> dict[str, dict[str, Any] | None]:
    """Return the report and the request, rendered and raw; None for a missing one."""
    notes: dict[str, dict[str, Any] | None] = {}
    for name, text in (("report", found.report_text), ("request", found.request_text)):
        notes[name] = None
        if text:
            body = unmarked(read_note(text.encode()).body).lstrip()
            body = re.sub(r"\A# .*\n", "", body)  # the page has that title
            parts = list(_parts(body)) if name == "report" else [("", html_of(body))]
            notes[name] = {"parts": parts, "raw": seen(text)}
    return notes


FOLDED = frozenset({
    *("Commands Run", "Cost", "Branch", "Context"),
    *("Next Steps", "Error Details", "Execution Context", "Work So Far"),
})  # fmt: skip
"""Sections of reports that are folded: the page has them as buttons, or few people read them."""


def _parts(body: str) -> Iterator[tuple[str, Markup]]:
    """Give a report in pieces; the first of each two is the title of a folded one, or empty."""
    outline = outline_of(body)
    shown: list[str] = []
    for part in outline.parts(0, len(outline.lines), 2):
        lines = outline.lines[max(part.at, 0) : part.end]
        if part.level == 2 and part.title in FOLDED:
            if shown:
                yield "", html_of("\n".join(shown))
            shown = []
            yield part.title, html_of("\n".join(lines[1:]))
        else:
            shown += lines
    if shown:
        yield "", html_of("\n".join(shown))


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step. `step` is None in a text that is no plan; `change` is `new`, `changed` or empty."""

    number: int
    title: str
    done: bool
    step: Step | None
    change: str


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan as it is decided on."""

    digest: str
    """What an approval binds; empty where it cannot be decided on."""
    raw: str
    text: str
    """The note's body without its box."""
    read: Plan | None
    """None for a text that is not a plan."""
    steps: tuple[ShownStep, ...]
    comments: tuple[Comment, ...]
    """Those without an answer."""
    summary: PlanSummary | None
    cautions: Sequence[str]
    where: str
    answers: str
    """What a revision says to your comments."""
    about: str
    """How the plan came about, and what changed in it, in full."""
    changes: tuple[int, str] | None
    """The number of the last revision, and in one line what changed since."""
    is_stale: bool
    refused: UserError | None
    allows: Proposal | None


def _plan(
    site: Site, case: Case, raw: bytes, before: tuple[int, bytes] | None, *, is_open: bool
) -> ShownPlan:
    """Return a plan as it is decided on; an open one with why it cannot be approved.

    `before` is the revision before it, with its number.
    """
    body = without_box(read_note(raw).body)
    above, _, _ = f"\n{body}".partition("\n# ")
    answers, about = "", above.strip()
    if about.startswith(f"> [!abstract] {TITLE}"):
        first, _, about = about.partition("\n\n")
        answers = re.sub(r"(?m)^> ?", "", first.partition("\n")[2])
    read, old, refused, allows = None, None, None, None
    with suppress(PlanProblems):
        read = parse_plan(body)
    if before is not None:
        with suppress(PlanProblems):
            old = parse_plan(body_of(before[1]))
    if is_open:
        try:
            allows = proposal(site, case, raw)
        except UserError as error:
            refused = error
    return ShownPlan(
        plan_digest(raw) if is_open else "",
        seen(raw.decode(errors="replace")),
        body,
        read,
        tuple(_steps(body, read, old)),
        open_comments(body),
        plan_summary(raw),
        cautions(raw, box_of(case)),
        where_it_works(raw, box_of(case)),
        answers,
        about,
        None if before is None or read is None else (before[0], _changes(old, read)),
        is_open and not box_is_current(raw, box_of(case)),
        refused,
        allows,
    )


def _steps(body: str, plan: Plan | None, old: Plan | None) -> Iterator[ShownStep]:
    """Give the steps of a plan's body, with what changed in each since the plan `old`."""
    before = {step.title: _work_in(step) for step in old.steps} if old is not None else {}
    steps = plan.steps if plan is not None else ()
    for place, one in enumerate(ticks(body)):
        step, change = steps[place] if place < len(steps) else None, ""
        if old is not None and step is not None and before.get(step.title) != _work_in(step):
            change = "changed" if step.title in before else "new"
        yield ShownStep(one.number, one.title, one.done, step, change)


def _work_in(step: Step) -> tuple[object, ...]:
    return step.description, step.done_when, step.actions


def _changes(old: Plan | None, plan: Plan) -> str:
    """Return in one line what changed since the plan `old`, None for a text that was none."""
    if old is None:
        return "all of it is new"
    return ", ".join(_changed_parts(old, plan)) or "nothing in the plan changed"


def _changed_parts(old: Plan, new: Plan) -> Iterator[str]:
    before = {step.title: _work_in(step) for step in old.steps}
    for number, step in enumerate(new.steps, 1):
        if step.title not in before:
            yield f"step {number} is new"
        elif _work_in(step) != before[step.title]:
            yield f"step {number} changed"
    if gone := before.keys() - {step.title for step in new.steps}:
        yield f"{counted(len(gone), 'step')} removed"
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


@dataclass(frozen=True, slots=True)
class ShownAsk:
    """The question, or the wider scope, that waits for you."""

    kind: str
    """As in `Asked`."""
    digest: str
    """What your answer is bound to."""
    text: str
    """The note's text: all of a wider scope, of a question what stands above its options."""
    options: tuple[str, ...]


def _asks(asking: Asked, raw: bytes) -> ShownAsk:
    body = without_box(read_note(raw).body)
    if asking.kind == "amendment":
        return ShownAsk("amendment", plan_digest(raw), body, ())
    text = body.partition("\n## ")[0].partition("\n> [!tip]")[0]
    return ShownAsk("question", digest(raw, QUESTION_STAMPS), text, asking.options)


def _tip(site: Site, ident: str) -> str:
    try:
        return tip_of(site, ident)
    except PlacetError:
        return ""  # `_patch` says why


def _patch(site: Site, ident: str) -> tuple[Patch | None, UserError | None]:
    try:
        return patch_of(difference(site, ident)), None
    except UserError as error:
        return None, error
    except PlacetError as error:
        return None, UserError(str(error))


def changed_file(site: Site, ident: str, at: int) -> PatchFile:
    """Return one file of a mission's difference, with its lines.

    Raises UserError (exit code 3) if there is none at that place.
    """
    for file in patch_of(difference(site, ident), at).files:
        if file.at == at:
            return file
    raise UserError("The difference has no such file.", "Go back to the request.", exit_code=3)


def acts(case: Case, found: ShownCase) -> frozenset[str]:
    """Return the names of the buttons that a request has, as far as its state says."""
    state, is_decided = found.state, bool(found.intent)
    asked = "" if found.asking is None or is_decided else found.asking.kind
    has_branch = state == State.COMPLETED and bool(found.commit)

    def may(what: str) -> bool:
        return approval.refusal(case, None, what) is None and not is_decided

    decides = state in _OPEN_PLANS
    edits = decides and found.daemon  # the daemon writes what the next decision is about
    can = {
        "approve": decides and may("approve") and not asks_for_more(case),
        "reject": decides and may("reject"),
        "revise": decides and may("revise"),
        "comment": edits and state is State.REVIEW and may("comment"),
        "tick": edits and may("tick"),
        "stop": may("stop"),
        "retry": may("retry"),
        "answer": asked == "question",
        "widen": asked == "amendment",
        "refuse": asked == "amendment",
        "merge": has_branch and found.became not in ("merged", "dropped", "gone"),
        "drop": has_branch and not found.became,
        "undo": has_branch and found.became == "merged",
    }
    return frozenset(name for name, is_there in can.items() if is_there)


def _rejected(case: Case, rows: Sequence[CommittedRow]) -> str:
    """Return who rejected a plan, and why."""
    rejection = next(
        (one for one in reversed(rows) if one.action_type == Action.PLAN_REJECTED), None
    )
    facts = {} if rejection is None else rejection.details
    reason = case.rejection.reason or facts.get("reason", "")
    who = Person(facts.get("reviewed_by", SOMEONE), name=facts.get("login", "")).as_subject
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
