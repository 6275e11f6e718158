"""A case as plain data: what `placet status`, `plans` and `show` know of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Any

from placet.activity import Action
from placet.case.case import DRAFTING, Case, State
from placet.case.estimate import estimate
from placet.case.intents import Intent
from placet.chat.budget import Complexity
from placet.chat.messages import ModelErrorKind, ToolUse
from placet.cli.asked import asked_line
from placet.cli.notes import text_of
from placet.cli.site import Site
from placet.disk.vault import Vault
from placet.host.clock import wall
from placet.journal.reader import Reader
from placet.journal.writes import BodyDamaged
from placet.note.frontmatter import read_note
from placet.note.paths import Folder
from placet.plan.parse import PlanProblems, parse_plan
from placet.plugins import WORKERS, plugin

AT_WORK = "at work"
"""What a worker says of a case that it carries out."""


def case_line(
    site: Site, folder: Vault, reader: Reader, case: Case, asked: Mapping[str, Intent]
) -> dict[str, Any]:
    """Return a case as plain data, with what the journal has of its work.

    `asked` are the intents that the daemon has not performed yet, by trace_id.
    """
    intent = asked.get(case.trace_id)
    line: dict[str, Any] = {
        "request_id": case.request_id,
        "trace_id": case.trace_id,
        "state": case.state.value,
        "title": case.request.title,
        "agent": case.request.agent,
        "portal": case.request.portal,
        "priority": case.request.priority,
        "revision": case.plan.revision,
        "since": case.since,
        "age_s": age_s(case.since),
        "request": case.request_path,
        "plan": case.plan.path,
        "branch": case.outcome.branch,
        "commit": case.outcome.tip,
        "became": case.outcome.became,
        "report": case.outcome.report_path,
        "failure": case.outcome.failure,
        "approved_by": _approved_by(reader, case),
        "intent": "" if intent is None else intent.what,
        "paused": _is_paused(site, reader, case),
        "asking": asked_line(folder, reader, case),
        "estimate": _estimate(folder, reader, case),
        "carrier": carrier(site, reader, case),
    }
    if case.is_working:
        last = reader.last_of(Action.MODEL_FAILED, Action.MODEL_CALLED, trace_id=case.trace_id)
        line["model_trouble"] = (
            None
            if last is None
            or last.action_type == Action.MODEL_CALLED
            or last.details.get("kind") == ModelErrorKind.CANCELLED
            else last.details["reason"]
        )
    if case.acting is State.RUNNING:
        text = kept(reader, case.approval.digest)
        budget = None if text is None else parse_plan(read_note(text).body, None).scope.budget_usd
        rows = reader.activity(case.trace_id, limit=10_000)
        line["progress"] = {
            **progress((row.action_type, row.details) for row in rows),
            "budget_usd": as_float(budget),
            "now": call_under_way(reader, case),
            "now_s": age_s(rows[-1].timestamp) if rows else 0.0,
        }
    return line


def _is_paused(site: Site, reader: Reader, case: Case) -> bool:
    """Return whether work on a case has not begun because all work is paused."""
    waits = case.acting in DRAFTING or case.acting is State.APPROVED
    if not waits or case.asking is not None or not site.configured().daemon.paused:
        return False
    return not any(True for _ in reader.records(case.trace_id, case.generation))


def carrier(site: Site, reader: Reader, case: Case) -> dict[str, str] | None:
    """Return which worker of a team has a case, and how far it is; None without a team."""
    if not case.is_working or not site.configured().team.workers:
        return None
    found: dict[str, str] | None = plugin(WORKERS, "progress").carrier(site, reader, case)
    return found


def call_under_way(reader: Reader, case: Case) -> str:
    """Return the call that a mission makes now, such as a long command; empty for none."""
    from placet.agent.entries import CALL, LITERAL, Begun, Key
    from placet.agent.record import Recorded
    from placet.agent.tool_calls import target  # loads all tools

    calls = (f"{CALL.key}:", f"{LITERAL.key}:")
    with suppress(BodyDamaged):
        last = reader.last_record(case.trace_id, case.generation)
        if last is not None and last.kind == "intent":
            entry = Key(last.key, Begun)
            record = Recorded()
            record.take([last])
            begun = record.begun(entry) if last.key.startswith(calls) else None
            if begun is not None:
                use = ToolUse("", begun.tool, begun.input)
                return f"{begun.tool} {target(use, ())}".strip()
    return ""


def _approved_by(reader: Reader, case: Case) -> str:
    """Return who approved the plan of a case, also of a mission that is over."""
    if case.approval.by or case.state not in (State.COMPLETED, State.FAILED):
        return case.approval.by
    if not case.outcome.report_path:
        return ""  # its planning failed
    row = reader.last_of(Action.PLAN_APPROVED, trace_id=case.trace_id)
    return "" if row is None else str(row.details.get("reviewed_by", ""))


def next_step(case: Mapping[str, Any]) -> str:
    """Return the commands for work whose branch nobody took or dropped; empty for any other."""
    if case["state"] != "completed" or case["intent"] or not case["commit"] or case["became"]:
        return ""
    ident = case["request_id"]
    return f"placet diff {ident}, placet merge {ident}"


def waits_for_you(case: Mapping[str, Any]) -> bool:
    """Return whether a case has a plan, a wider scope or a question that a person can decide on.

    A plan that failed, or could not be revised, awaits that as it was.
    """
    if case["intent"]:
        return False
    failed = case["state"] == "failed" and case["plan"].startswith(f"{Folder.PLANS}/")
    return failed or case["state"] in ("review", "asking")


def _estimate(folder: Vault, reader: Reader, case: Case) -> dict[str, Any] | None:
    """Return what missions like a plan's have cost; None without a plan, or if too few are known.

    It is worked out as for the plan's callout, from what missions of its complexity cost.
    """
    if case.acting not in (State.REVIEW, State.APPROVED, State.RUNNING) or not case.plan.path:
        return None
    raw = text_of(folder, case.plan.path)
    note = read_note(raw or b"")
    given = str(note.meta.get("complexity") or Complexity.STANDARD)
    if given not in [one.value for one in Complexity]:
        return None
    budget = None
    with suppress(PlanProblems):
        budget = parse_plan(note.body).scope.budget_usd
    found = estimate(reader.calls.mission_costs(given), Complexity(given), budget)
    return None if found is None else asdict(found)


def progress(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return a mission's progress from the actions and details of its journal rows.

    That is steps, model turns, and dollars: None where a price is unknown.
    """
    step = of = turns = 0
    cost: float | None = 0.0
    for action, data in rows:
        if action == Action.EXECUTION_STARTED:
            step = turns = 0
            of, cost = data["steps"], 0.0
        elif action == Action.STEP_COMPLETED:
            step = data["step"]
        elif data.get("purpose") == "execute" and (
            action == Action.MODEL_CALLED or (action == Action.MODEL_FAILED and data.get("tokens"))
        ):
            turns += action == Action.MODEL_CALLED
            cost = None if cost is None or data["cost_usd"] is None else cost + data["cost_usd"]
    return {"step": step, "of": of, "iterations": turns, "cost_usd": cost}


def kept(reader: Reader, digest: str) -> bytes | None:
    """Return a text of the journal; None for a damaged one, which `placet journal verify` names."""
    try:
        return reader.text(digest)
    except BodyDamaged:
        return None


def age_s(since: str) -> float:
    """Return the seconds since a moment of the journal."""
    return max(0.0, round((wall() - datetime.fromisoformat(since)).total_seconds(), 3))


def as_float(usd: Decimal | None) -> float | None:
    """Return dollars as JSON has them."""
    return None if usd is None else float(usd)
