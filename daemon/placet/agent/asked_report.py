"""A report's section on what its mission, and the planning before it, asked a person."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256

from placet.activity import Action, CommittedRow
from placet.agent.entries import CALL, Begun, Key
from placet.agent.record import Recorded
from placet.case.case import Case
from placet.core.life.why_failed import Events
from placet.core.text.facts import answer_kind, more_scope
from placet.core.wording import local
from placet.journal.reader import Reader
from placet.journal.writes import BodyDamaged
from placet.note.escape import code, link, literal
from placet.tools.base import Outcome

_HEADING = "## Questions and Wider Scopes"
_ENDS = frozenset({Action.EXECUTION_COMPLETED, Action.EXECUTION_FAILED})
_OVER = {
    Action.QUESTION_ANSWERED: Action.QUESTION_ASKED,
    Action.PLAN_AMENDED: Action.PLAN_AMENDMENT_REQUESTED,
    Action.PLAN_AMENDMENT_REJECTED: Action.PLAN_AMENDMENT_REQUESTED,
}


def asked_section(case: Case, rows: Events, record: Recorded, reader: Reader) -> str:
    """Return the section, with two line ends after it; empty where nothing was asked.

    `rows` are the case's, `record` is the mission's. A question of the planning has words where it
    was answered.
    """
    own = rows[_begin(rows) :]
    ends = {
        (_OVER[Action(row.action_type)], row.details["number"]): row
        for row in own
        if row.action_type in _OVER
    }
    words = _words(record)
    planned = _planned_words(reader, case)
    lines: list[str] = []
    is_mission = False
    for row in own:
        is_mission = is_mission or row.action_type == Action.EXECUTION_STARTED
        if row.action_type == Action.QUESTION_ASKED:
            end = ends.get(_name(row))
            said = next(words, ("", "")) if is_mission else _said_in(planned, end)
            lines.append(_question(case, row, end, said))
        elif row.action_type == Action.PLAN_AMENDMENT_REQUESTED:
            lines.append(_wider(case, row, ends.get(_name(row))))
    return "\n".join([_HEADING, *lines]) + "\n\n" if lines else ""


def _begin(rows: Events) -> int:
    """Return where the story of the last mission begins, its planning among it."""
    starts = [n for n, row in enumerate(rows) if row.action_type == Action.EXECUTION_STARTED]
    last = starts[-1] if starts else len(rows)
    return next((n + 1 for n in range(last - 1, -1, -1) if rows[n].action_type in _ENDS), 0)


def _name(row: CommittedRow) -> tuple[Action, int]:
    return Action(row.action_type), row.details["number"]


def _words(record: Recorded) -> Iterator[tuple[str, str]]:
    """Give the questions that were put before a person, each with its answer."""
    keys = [key for key in record.intents if key.startswith(f"{CALL.key}:")]
    for key in sorted(keys, key=lambda key: [int(part) for part in key.split(":")[1:]]):
        begun, outcome = record.begun(Key(key, Begun)), record.get(Key(key, Outcome))
        if begun is None or begun.tool != "ask_person":
            continue
        said: Mapping[str, str] = {} if outcome is None else json.loads(outcome.content)
        if said.get("error_type") != "too_many_questions":
            yield str(begun.input.get("question", "")), str(said.get("answer", ""))


def _planned_words(reader: Reader, case: Case) -> list[tuple[str, str]]:
    """Return the questions, with answers, of all that was done for a case before its mission."""
    found: list[tuple[str, str]] = []
    for attempt in range(case.generation if case.asked else 0):
        record = Recorded()
        with suppress(BodyDamaged):
            record.take(reader.records(case.trace_id, attempt))
            found += _words(record)
    return found


def _said_in(words: list[tuple[str, str]], answered: CommittedRow | None) -> tuple[str, str]:
    """Take out the first of the words whose answer is that of a row; empty if none is."""
    digest = None if answered is None else answered.details["digest"]
    found = next((one for one in words if sha256(one[1].encode()).hexdigest() == digest), None)
    if found is None:
        return "", ""
    words.remove(found)
    return found


def _question(
    case: Case, asked: CommittedRow, answered: CommittedRow | None, said: tuple[str, str]
) -> str:
    question, answer = map(literal, said)
    note = link(f"{case.request_id}_question{asked.details['number']}")
    what = f"**{question}** " if question else ""
    if answered is None:
        return f"- {what}({note}): not answered"
    kind = f" {answer}" if answer else f" {answer_kind(answered.details)}"
    return f"- {what}({note}):{kind} — {_who(answered)}"


def _wider(case: Case, asked: CommittedRow, decided: CommittedRow | None) -> str:
    note = link(f"{case.request_id}_amendment{asked.details['number']}")
    what = f"- A wider scope, {code(more_scope(asked.details))} ({note})"
    if decided is None:
        return f"{what}: not decided on"
    if decided.action_type == Action.PLAN_AMENDED:
        return f"{what}: approved — {_who(decided)}, digest `{decided.details['digest'][:8]}`"
    why = decided.details.get("reason")
    return f"{what}: rejected{f', {literal(why)}' if why else ''} — {_who(decided)}"


def _who(row: CommittedRow) -> str:
    return f"{literal(row.details['reviewed_by'])}, {local(row.timestamp)}"
