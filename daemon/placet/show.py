"""Text for a terminal from what `desk` returns. Colour only on a terminal that wants it; click strips it elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import click

from placet.core.names import show as visible

_COLOURS = {"review": "yellow", "running": "cyan", "planning": "cyan", "revising": "cyan", "approved": "cyan",
            "completed": "green", "failed": "red", "rejected": "magenta", "withdrawn": "white"}
_ACTORS = {"human": "yellow", "agent": "cyan", "system": "white"}
_TURN = {"review": "waits for you", "planning": "a plan is being written", "revising": "the plan is being revised",
         "approved": "about to begin", "running": "at work", "completed": "done", "failed": "failed",
         "rejected": "rejected", "withdrawn": "withdrawn"}


def colour(text: str, name: str, *, bold: bool = False) -> str:
    """Return text in a colour, unless `NO_COLOR` asks for none (https://no-color.org)."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=name, bold=bold)


def model_line(provider: str, name: str) -> str:
    """Return which model works here; the scripted one says so."""
    if provider == "scripted":
        return f"{name}: SCRIPTED, replies are replayed from a file, no model is asked"
    return f"{name} ({provider})"


def status_text(found: Mapping[str, Any]) -> str:
    """Return `placet status` for people."""
    lines = [f"vault   {found['vault']}",
             f"daemon  {'running: ' + found['daemon'] if found['daemon'] else 'not running (placet run)'}",
             f"model   {model_line(found['provider'], found['model'])}", ""]
    if not found["cases"]:
        lines.append("No requests yet. Drop a note into Inbox/Requests, or: placet submit 'what you want done'")
    for case in found["cases"]:
        state = colour(f"{case['state']:<10}", _COLOURS[case["state"]])
        lines.append(f"{state} {visible(case['request_id'])}  {_TURN[case['state']]}{_detail(case)}")
    return "\n".join(lines)


def _detail(case: Mapping[str, Any]) -> str:
    if progress := case.get("progress"):
        cost = "cost unknown" if progress["cost_usd"] is None else f"${progress['cost_usd']:.4f}"
        return f": step {progress['step']} of {progress['of'] or '?'}, {progress['iterations']} iterations, {cost}"
    if case["state"] == "failed":
        return f": {visible(case['failure'].splitlines()[0][:150])}" if case["failure"] else ""
    if case["state"] == "review":
        return f": {visible(case['plan'])}"
    return f": {visible(case['branch'])}" if case["branch"] else ""


def plans_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Return `placet plans` for people."""
    if not found:
        return "No plan waits for you."
    return "\n".join(f"{visible(c['request_id'])}  {visible(c['title'])}  (revision {c['revision']}, since {c['since']})\n"
                     f"  {visible(c['plan'])}" for c in found)


def case_text(found: Mapping[str, Any]) -> str:
    """Return `placet show` for people."""
    head = [f"{colour(visible(found['title']), 'white', bold=True)}  ({visible(found['request_id'])}, {found['trace_id']})",
            f"{_TURN[found['state']]}{_detail(found)}"]
    parts = ["\n".join(head)]
    for name in ("plan", "report"):
        if found[name]:
            parts.append(colour(f"── {name} ", "white", bold=True) + "\n" + found[name].strip())
    parts.append(colour("── journal ", "white", bold=True) + "\n" + "\n".join(row_text(row) for row in found["journal"]))
    return "\n\n".join(parts)


def row_text(row: Mapping[str, Any]) -> str:
    """Return one journal row as a line."""
    facts = " ".join(f"{key}={_value(value)}" for key, value in row["metadata"].items() if value not in (None, "", []))
    time = row["timestamp"][11:23].rstrip("Z")
    actor = colour(f"{row['actor']:<6}", _ACTORS[row["actor"]])
    return f"{time}  {actor}  {row['action_type']:<26} {visible(row['entity_id'])}  {visible(facts)[:200]}".rstrip()


def table_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a query's result as lines of tab-separated values under a head."""
    lines = ["\t".join(columns), *("\t".join("" if v is None else visible(str(v)) for v in row) for row in rows)]
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value[:12] if len(value) in (40, 64) and value.isalnum() else value
    return json.dumps(value, ensure_ascii=False)
