"""The page of one request: what waits for a person in it, its mission as it happens, its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placet.cli.branches import became_now, diff, tip_of
from placet.cli.look import show
from placet.cli.proposal import proposal
from placet.cli.site import Site, find
from placet.cli.text import estimate_words
from placet.core.activity import Action, CommittedRow
from placet.core.errors import PlacetError, UserError
from placet.core.life.case import Case, State
from placet.core.life.question_note import question_in
from placet.core.life.sight import body_of
from placet.core.text.box import unmarked
from placet.core.text.differences import diff_callout
from placet.core.text.note import QUESTION_STAMPS, digest, plan_digest, read_note
from placet.core.text.partial import ticks
from placet.core.text.story import Story
from placet.journal.reader import Reader
from placet.journal.writes import BodyDamaged
from placet_board.markdown import html_of
from placet_board.patch import Patch, patch_of
from placet_board.pictures import pictures_in
from placet_board.seen import seen
from placet_board.turns import work_of

MAX_ROWS = 500
"""Rows of the journal from which a request's story is told, the last ones."""


def request_page(site: Site, ident: str) -> dict[str, Any]:
    """Return all that the page of a request shows. Raises UserError for an unknown ID."""
    found = show(site, ident)
    with site.reader(ident) as reader:
        case = find(reader, found["trace_id"])
        rows = reader.activity(case.trace_id, limit=MAX_ROWS, newest=True, routine=False)
        work = work_of(reader, case, rows, _ceiling(site))
        changes = _since_last_revision(reader, rows)
    if found["state"] == State.COMPLETED and found["commit"]:
        found["became"] = became_now(site, case)  # the daemon may not have seen it yet
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
        "can": acts(found),
    }
    if found["plan_text"] and _acting(found) in (State.REVIEW, State.REVISING, State.FAILED):
        page["plan"] = _plan(site, case, found["plan_text"].encode())
    if found["asking"] is not None and found["asking_text"]:
        page["asks"] = _asks(found["asking"], found["asking_text"].encode())
    if found["state"] == State.COMPLETED and found["commit"]:
        page["tip"] = _tip(site, found["request_id"])  # before its changes are: they may be newer
        page["patch"], page["no_patch"] = _patch(site, found["request_id"])
    return page


def _texts(found: Mapping[str, Any]) -> dict[str, dict[str, Any] | None]:
    """Return the notes of a request, rendered and raw; None for one that is missing."""
    notes: dict[str, dict[str, Any] | None] = dict.fromkeys(("plan", "report", "request"))
    for name in ("plan", "report", "request"):
        text = found[f"{name}_text"]
        if text:
            body = unmarked(read_note(text.encode()).body)
            notes[name] = {"html": html_of(body), "raw": seen(text), "path": found[name]}
    return notes


def _plan(site: Site, case: Case, raw: bytes) -> dict[str, Any]:
    """Return what approving a plan would approve, or why it cannot be approved."""
    page: dict[str, Any] = {"digest": plan_digest(raw), "refused": None, "allows": None}
    try:
        page["allows"] = proposal(site, case, raw)
    except UserError as error:
        page["refused"] = error
    page["steps"] = ticks(read_note(raw).body)
    return page


def _asks(asking: Mapping[str, Any], raw: bytes) -> dict[str, Any]:
    """Return the question, or the wider scope, that waits for a person in a note's text."""
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


def acts(found: Mapping[str, Any]) -> dict[str, bool]:
    """Return what a person can do with a request, as far as its state says."""
    state, is_decided = found["state"], bool(found["intent"])
    asks = found["asking"] is not None and not is_decided
    acting = _acting(found)
    has_branch = state == State.COMPLETED and bool(found["commit"])
    plan = acting in (State.REVIEW, State.REVISING) or (
        state == State.FAILED and bool(found["plan"])
    )
    return {
        "approve": plan and not is_decided,
        "revise": acting in (State.REVIEW, State.REVISING) and not is_decided,
        "answer": asks and found["asking"]["kind"] == "question",
        "widen": asks and found["asking"]["kind"] == "amendment",
        "stop": acting in (State.APPROVED, State.RUNNING) and not is_decided,
        "retry": state in (State.FAILED, State.REJECTED, State.WITHDRAWN, State.COMPLETED),
        "merge": has_branch and found["became"] not in ("merged", "dropped"),
        "drop": has_branch and not found["became"],
    }


def _story(case: Case, rows: Sequence[CommittedRow]) -> list[dict[str, str]]:
    """Return what happened, newest first, in the daemon's own words."""
    story = Story()
    told = [(row.timestamp, story.line(row)) for row in rows]
    return [
        {"at": at, "text": line[1].removeprefix(f"{case.request_id}: ")}
        for at, line in reversed(told)
        if line is not None
    ]


def _since_last_revision(reader: Reader, rows: Sequence[CommittedRow]) -> dict[str, Any] | None:
    """Return the difference between the last two revisions, None where there is none to show.

    The note says on top what changed; these are the lines.
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
    """Return a plan from its title on, without what the daemon wrote above it."""
    body = body_of(text)
    above, title, plan = f"\n{body}".partition("\n# ")
    return f"{title}{plan}".lstrip() if title else above


def _ceiling(site: Site) -> int:
    """Return the most turns that a mission may have, 0 where the settings cannot be read."""
    try:
        return site.in_force().config.limits.iterations_ceiling
    except UserError:
        return 0
