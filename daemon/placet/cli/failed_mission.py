"""Say of a failed mission what its report says, from the same journal rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placet.activity import Action, CommittedRow
from placet.case.case import Case
from placet.case.ends import ENDS
from placet.cli.site import Site, find
from placet.core.life.why_failed import (
    advice,
    of_last_mission,
    ready_request,
    remains,
    what_happened,
)
from placet.errors import UserError
from placet.journal.reader import Reader
from placet.note.frontmatter import read_note
from placet.plan.parse import parse_plan


def request_after_failure(site: Site, found: Mapping[str, Any]) -> str:
    """Return a request that starts from where the last mission of what `why` found broke.

    Raises UserError where there is no such mission.
    """
    ident = found["request_id"]
    mission = None
    if "trace_id" in found:
        with site.reader(ident) as reader:
            case = find(reader, found["trace_id"])
            rows = reader.activity(case.trace_id, limit=10_000, newest=True)
            mission = failed_mission(reader, case, of_last_mission(rows))
    if mission is None:
        raise UserError(
            f"The journal has no mission of {ident} that broke.", f"See: placet why {ident}"
        )
    return str(mission["request"])


def failed_mission(
    reader: Reader, case: Case, rows: Sequence[CommittedRow]
) -> dict[str, Any] | None:
    """Return a mission as its Failure Report shows it, made of the same rows; None without them."""
    facts = next(
        (row.details for row in reversed(rows) if row.action_type == Action.EXECUTION_FAILED), None
    )
    if facts is None:
        return None
    left = remains(facts, case.outcome.detail, rows)
    text = reader.text(facts["digest"])
    assert text is not None, "what is carried out was stored when it was approved"
    plan = parse_plan(read_note(text).body, None)
    found = ENDS[left.end]
    first, *rest = what_happened(facts, plan, rows)
    return {
        "class": found.kind.value,
        "end": left.end.value,
        "iterations": facts["iterations"],
        "meaning": found.meaning,
        "cost_usd": facts["cost_usd"],
        "happened": [first, case.outcome.failure, *rest],
        "kept": left.kept,
        "kept_commit": left.kept_commit,
        "files": list(left.files),
        "request": ready_request(case, plan, left),
        "next": [
            advice(left.end, rows),
            f"Read the report: {case.outcome.report_path}",
            f"For a new plan: placet retry {case.request_id}, or set `status: pending` in "
            f"{case.request_path or 'the request'}; in {case.plan.path or 'the plan'} that "
            "asks for "
            "a revision of it. Whoever writes it reads the report.",
            f"A request that starts from where it broke: placet why {case.request_id} --request",
        ],
    }
