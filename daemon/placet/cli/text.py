"""Text for a terminal from what `look` returns."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from placet.cli.terminal import colour, harmless, local_times, shown_time
from placet.core.activity import Action
from placet.core.text.names import show as visible
from placet.core.text.story import facts
from placet.core.wording import counted, dollars

_COLOURS = {
    "review": "yellow",
    "running": "cyan",
    "planning": "cyan",
    "revising": "cyan",
    "approved": "cyan",
    "completed": "green",
    "failed": "red",
    "rejected": "magenta",
    "withdrawn": "white",
}


_ACTORS = {"human": "yellow", "agent": "cyan", "system": "white"}


MAX_FAILURE = 500
"""Characters of a failure's first line that `placet status` shows; `placet why` has all."""


_TURN = {
    "review": "waits for you",
    "planning": "a plan is being written",
    "revising": "the plan is being revised",
    "approved": "about to begin",
    "running": "at work",
    "completed": "done",
    "failed": "failed",
    "rejected": "rejected",
    "withdrawn": "withdrawn",
}


_TURN_LATER = {
    "planning": "its plan is written when a daemon runs",
    "revising": "its plan is revised when a daemon runs",
    "approved": "approved, begins when a daemon runs",
    "running": "stands still, goes on when a daemon runs",
}


def model_line(provider: str, name: str) -> str:
    """Return which model works here; the scripted one says so."""
    if not provider:
        return "not known, as System/placet.toml cannot be used"
    if provider == "scripted":
        return f"{name}: SCRIPTED, replies are replayed from a file, no model is asked"
    return f"{name} ({provider})"


def status_text(found: Mapping[str, Any]) -> str:
    """Return `placet status` for people."""
    daemon = f"running: {found['daemon']}" if found["daemon"] else "not running (placet run)"
    waiting = [found["waits"]["notice"]] if found["waits"] else []
    lines = [
        f"vault   {found['vault']}",
        *local_times([f"daemon  {daemon}"]),
        f"model   {model_line(found['provider'], found['model'])}",
        f"today   {_today(found['today'])}",
    ]
    if found["paused"]:
        lines.append("work    paused: nothing new is taken up (placet resume)")
    if found["unaccepted"]:
        lines.append(
            f"config  {colour('not accepted on this machine', 'yellow')}: "
            f"{', '.join(map(visible, found['unaccepted']))} (placet config accept)"
        )
    lines += [
        f"work    {colour('waits', 'yellow')}: {visible(' '.join(why.split()))}"
        for why in (*waiting, *found["stuck"])
    ]
    lines.append("")
    why_not = "" if found["daemon"] else ": the daemon is not running"
    lines += [
        f"{colour('new', 'yellow')}        {path}  not taken up yet{why_not}"
        for path in found["not_taken_up"]
    ]
    lines += [
        f"{colour('explained', 'yellow')}  {path}  {_short(why)}"
        for path, why in found["explained"].items()
    ]
    if not found["cases"] and not found["not_taken_up"] and not found["explained"]:
        lines.append(
            "No requests yet. Drop a note into Inbox/Requests, or: placet submit "
            "'what you want done'"
        )
    for case in found["cases"]:
        state = colour(f"{case['state']:<10}", _COLOURS[case["state"]])
        turn = _turn(case, daemon=bool(found["daemon"]), held=bool(found["waits"]))
        lines.append(f"{state} {visible(case['request_id'])}  {turn}")
    if found["earlier"]:
        lines.append(f"{found['earlier']:,} earlier ones are over. One of them: placet show ID")
    return "\n".join(lines)


def _turn(case: Mapping[str, Any], *, daemon: bool, held: bool = False) -> str:
    """Return a case's state in words: a person's undecided act, else what the journal has.

    `held` says that all work waits for the model, which was said above.
    """
    if undecided := case["undecided"]:
        at = f" at {shown_time(undecided['at'])}" if undecided["at"] else ""
        then = (
            "is looked at within seconds"
            if daemon
            else f"when a daemon runs, {visible(undecided['follows'].splitlines()[0])}"
        )
        return f"{visible(undecided['what'])}{at}, not taken up yet; {then}"
    if daemon and case["held_back"]:
        return visible(case["held_back"])
    turn = _TURN[case["state"]] if daemon else _TURN_LATER.get(case["state"], _TURN[case["state"]])
    failed = visible(case.get("model_trouble") or "") if daemon else ""
    if failed and held:
        return f"waits for the model, as all work does{_detail(case)}"
    trouble = f"; the last call of the model failed: {failed}" if failed else ""
    return f"{turn}{_detail(case)}{trouble}"


def _today(used: Mapping[str, Any]) -> str:
    cost = dollars(used["cost_usd"])
    usd = f" of ${used['day_usd']:.2f}" if used["day_usd"] else ""
    tokens = f" of {used['day_tokens']:,}" if used["day_tokens"] else ""
    return f"{cost}{usd}, {used['tokens']:,}{tokens} tokens"


def _detail(case: Mapping[str, Any]) -> str:
    if progress := case.get("progress"):
        cost = dollars(progress["cost_usd"])
        budget = f" of ${progress['budget_usd']:.2f}" if progress["budget_usd"] is not None else ""
        done = " done" if progress["step"] else ""
        turns = counted(progress["iterations"], "iteration")
        return f": step {progress['step']} of {progress['of']}{done}, {turns}, {cost}{budget}"
    if case["state"] == "failed":
        return f": {_short(case['failure'], MAX_FAILURE)}" if case["failure"] else ""
    if case["state"] == "review":
        return f": {visible(case['plan'])}"
    if not case["branch"]:
        return ""
    return f": {visible(case['branch'])}" + (f", {case['became']}" if case["became"] else "")


def plans_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Return `placet plans` for people."""
    if not found:
        return "No plan waits for you."
    return "\n".join(
        f"{visible(c['request_id'])}  {visible(c['title'])}  (revision {c['revision']}, "
        f"{_failed(c)}"
        f"since {shown_time(c['since'])})\n  {visible(c['plan'])}"
        for c in found
    )


def _failed(case: Mapping[str, Any]) -> str:
    if case["state"] != "failed":
        return ""
    return "its mission failed, " if case["report"] else "it could not be revised, "


def case_text(found: Mapping[str, Any]) -> str:
    """Return `placet show` for people."""
    head = [
        f"{colour(visible(found['title']), 'white', bold=True)}  "
        f"({visible(found['request_id'])}, {found['trace_id']})",
        _turn(found, daemon=bool(found["daemon"])),
    ]
    parts = ["\n".join(head)]
    for name in ("request", "plan", "report"):
        if text := found[f"{name}_text"]:
            digest = (
                f"(digest {found['plan_digest'][:16]}) "
                if name == "plan" and found["plan_digest"]
                else ""
            )
            parts.append(
                colour(f"── {name} {digest}", "white", bold=True) + "\n" + harmless(text.strip())
            )
    rows = [row_text(row) for row in found["journal"] if not is_routine(row)]
    parts.append("\n".join([colour("── journal ", "white", bold=True), *rows]))
    return "\n\n".join(parts)


def _short(text: str, width: int = 150) -> str:
    """Return a text's first line for a list, cut between words."""
    return visible(textwrap.shorten((text.splitlines() or [""])[0], width, placeholder=" …"))


def is_routine(row: Mapping[str, Any]) -> bool:
    """Return whether a row is shown as data only: a git process that went well."""
    return row["action_type"] == Action.GIT_RAN and "stderr" not in row["metadata"]


def row_text(row: Mapping[str, Any]) -> str:
    """Return one journal row as a line."""
    told = facts(row["action_type"], row["metadata"])
    time = shown_time(row["timestamp"])
    line = f"  {row['action_type']:<22} {visible(row['entity_id'])}  {visible(told)}".rstrip()
    actor = colour(f"{row['actor']:<6}", _ACTORS[row["actor"]])
    return f"{time}  {actor}{line}"


def table_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a query's result as lines of tab-separated values under a head."""
    lines = [
        "\t".join(columns),
        *("\t".join("" if v is None else visible(str(v)) for v in row) for row in rows),
    ]
    return "\n".join(lines)
