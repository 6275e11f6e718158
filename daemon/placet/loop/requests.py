"""Open cases for new requests, and adopt plans that are not in the journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from placet.agent.instruction_notes import agents
from placet.case.adopt import adopt_plan
from placet.case.case import NoteSeen, Request
from placet.case.commands import Decision
from placet.case.decide import open_case
from placet.case.request import RequestProblems, read_request
from placet.case.sorting import copies, not_asking
from placet.errors import BUGS, describe_bug
from placet.loop.state import LoopState
from placet.loop.threads import expect_model
from placet.note.frontmatter import Frontmatter, UnsafeEdit, read_note, stamp
from placet.note.paths import Folder, is_request_id, is_unnamed, request_id, trace_id


def request_in(state: LoopState, note: NoteSeen) -> Request | str:
    """Return the request that a note states, or its problems."""
    ports = state.ports
    table = ports.config.vault
    try:
        request = read_request(
            note.path,
            read_note(note.raw),
            agents(ports.vault),
            ports.config.portals,
            table.default_agent,
            table.own_keys,
        )
        marks = {"status": "planning", "trace_id": "0" * 8}
        stamp(note.raw, marks, kind_if_none=Frontmatter(table.frontmatter))
    except RequestProblems as found:
        return "\n".join(found.problems)
    except UnsafeEdit as error:
        return str(error)
    return request


def open_requests(state: LoopState, new: Sequence[NoteSeen]) -> dict[str, str]:
    """Open cases for new requests; return the problems of others by path."""
    clock, intake = state.ports.clock, state.intake
    given: set[str] = set()
    problems = copies(new, intake.notes.values())
    opened: dict[str, Decision] = {}
    for note in new:
        if note.path in problems:
            continue
        name = PurePosixPath(note.path).name
        try:
            request = request_in(state, note)
        except BUGS as error:  # a bug must not stop the other notes
            request = f"{describe_bug(error)}."
        if (why := not_asking(note)) or isinstance(request, str):
            also = request if isinstance(request, str) else ""
            problems[note.path] = "\n".join(filter(None, [why, also]))
            continue
        if is_unnamed(name) and intake.left_s(note.path):
            problems[note.path] = "It has no name yet."  # else its id would stay `untitled`
            continue
        trace, ordinal = note.trace_id, 0
        while not trace or trace in state.cases or trace in opened:
            trace, ordinal = trace_id(name, note.digest, ordinal), ordinal + 1
        named = request_id(name, lambda one: one in given or state.cases.is_taken(one))
        given.add(named)
        intake.drafts[trace] = False
        ready = not intake.left_s(note.path)
        opened[trace] = open_case(note, request, trace, named, clock.now(), ready=ready)
    if opened:
        state.record(*opened.values())
        expect_model(state.ports)
    return problems


def adopt(
    state: LoopState, orphans: Sequence[NoteSeen], notes: Iterable[NoteSeen]
) -> dict[str, str]:
    """Open cases for plans that are not in the journal; return the problems by path.

    `notes` are all that were read.
    """
    problems: dict[str, str] = {}
    asked = {
        n.trace_id: n
        for n in notes
        if orphans and not n.is_plan and not n.problem and n.folder is Folder.REQUESTS
    }
    for note in sorted(orphans, key=lambda n: (n.folder is not Folder.ACTIVE, n.path)):
        named = str(note.meta.get("request_id") or "")
        if note.trace_id in state.cases:
            # The second of two plans with one trace_id. The first was adopted just now, and the
            # next look sees both.
            continue
        if is_request_id(named) and not state.cases.is_taken(named):
            now = state.ports.clock.now()
            try:
                state.record(adopt_plan(note, asked.get(note.trace_id), now))
            except BUGS as error:  # a bug must not stop the other notes
                problems[note.path] = f"{describe_bug(error)}."
        else:
            problems[note.path] = (
                "There is no record of this plan, and its request_id is missing, invalid or "
                "belongs to another request."
            )
    return problems
