"""Text for a terminal from what `look` returns."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from placet.activity import Action
from placet.case.case import OPEN
from placet.case.estimate import Estimate
from placet.cli.notes import changed_words
from placet.cli.terminal import colour, harmless, local_times, shown_time
from placet.cli.view import next_step, waits_for_you
from placet.core.text.facts import facts
from placet.core.wording import age, counted, dollars
from placet.note.paths import show as visible

COLOURS = {
    "review": "yellow",
    "asking": "yellow",
    "running": "cyan",
    "planning": "cyan",
    "revising": "cyan",
    "approved": "cyan",
    "completed": "green",
    "failed": "red",
    "rejected": "magenta",
    "withdrawn": "white",
}


ACTORS = {"human": "yellow", "agent": "cyan", "system": "white"}


MAX_FAILURE = 500
"""Characters of a failure's reason that `placet status` shows; `placet why` has all."""


_TURN = {
    "review": "waits for you",
    "asking": "asks",
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
        f"today   {today_words(found['today'])}",
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
    if changed := changed_words(found["changed"]):
        lines.append(f"notes   {changed}")
    lines.append("")
    is_open = {
        case["request_id"]: case["state"] in OPEN or waits_for_you(case) for case in found["cases"]
    }
    cases = {case["request_id"]: _case_line(case, found) for case in found["cases"]}
    lines += [line for ident, line in cases.items() if is_open[ident]]
    used = {visible(path) for case in found["cases"] for path in _paths(case)}
    lines += [
        f"{colour('remark  ' if path in used else 'unusable', 'yellow')}   {path}  "
        f"{first_line(why)}"
        for path, why in found["explained"].items()
    ]
    lines += [line for ident, line in cases.items() if not is_open[ident]]
    if not any(found[one] for one in ("cases", "changed", "explained")):
        lines.append(
            "No requests yet. Drop a note into Inbox/Requests, or: placet submit "
            "'what you want done'"
        )
    if found["earlier"]:
        lines.append(f"{found['earlier']:,} earlier ones are over. One of them: placet show ID")
    return "\n".join(lines)


def _paths(case: Mapping[str, Any]) -> list[str]:
    asked = [case["asking"]["path"]] if case["asking"] else []
    return [case["request"], case["plan"], *asked]


def _case_line(case: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    state = colour(f"{case['state']:<10}", COLOURS[case["state"]])
    told = turn(case, daemon=bool(found["daemon"]), held=bool(found["waits"]))
    then = f"; next: {ways}" if (ways := next_step(case)) else ""
    return f"{state} {visible(case['request_id'])}  {told}{then}{_similar(case)}"


def turn(case: Mapping[str, Any], *, daemon: bool, held: bool = False) -> str:
    """Return a case's state in words: what a command asked for, else what the journal has.

    `held` says that all work waits for the model, which was said above.
    """
    if case["intent"]:
        return f"`placet {case['intent']}` waits for the daemon"
    if case["paused"]:
        return "waits, as work is paused (placet resume)"
    now = (case.get("carrier") or {}).get("now") or _now(case["state"], daemon=daemon)
    failed = visible(case.get("model_trouble") or "") if daemon else ""
    if failed and held:
        return f"waits for the model, as all work does{_detail(case)}"
    trouble = f"; the last call of the model failed: {failed}" if failed else ""
    return f"{now}{_detail(case)}{trouble}"


def _now(state: str, *, daemon: bool) -> str:
    return _TURN[state] if daemon else _TURN_LATER.get(state, _TURN[state])


def today_words(used: Mapping[str, Any]) -> str:
    """Return today's use of the model against the day's limits."""
    cost = dollars(used["cost_usd"])
    usd = f" of ${used['day_usd']:.2f}" if used["day_usd"] else ""
    tokens = f" of {used['day_tokens']:,}" if used["day_tokens"] else ""
    return f"{cost}{usd}, {used['tokens']:,}{tokens} tokens"


def asks(case: Mapping[str, Any]) -> str:
    """Return where a case asks a person, and what, on one line."""
    asking = case["asking"]
    said = f": {first_line(asking['question'])}" if asking["question"] else ""
    return f"{visible(asking['path'])}{said}"


def _detail(case: Mapping[str, Any]) -> str:
    if case["asking"]:
        what = " you" if case["asking"]["kind"] == "question" else " for a wider scope"
        return f"{what} in {asks(case)}"
    if progress := case.get("progress"):
        cost = dollars(progress["cost_usd"])
        budget = f" of ${progress['budget_usd']:.2f}" if progress["budget_usd"] is not None else ""
        done = " done" if progress["step"] else ""
        turns = counted(progress["iterations"], "iteration")
        now = progress.get("now")
        doing = f"; {visible(now)} for {age(progress['now_s'])}" if now else ""
        return (
            f": step {progress['step']} of {progress['of']}{done}, {turns}, {cost}{budget}{doing}"
        )
    if case["state"] == "failed":
        return f": {on_one_line(case['failure'], MAX_FAILURE)}" if case["failure"] else ""
    if case["state"] == "review":
        return f": {visible(case['plan'])}"
    if case["state"] == "completed" and not case["commit"]:
        return ": nothing was changed"
    if not case["branch"]:
        return ""
    return f": {visible(case['branch'])}" + (f", {case['became']}" if case["became"] else "")


def estimate_words(found: Mapping[str, Any] | None) -> str:
    """Return what missions like a plan's have cost; empty where too few are known."""
    return "" if found is None else Estimate(**found).sentence


def plans_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Return `placet plans` for people."""
    if not found:
        return "No plan waits for you."
    return "\n".join(
        f"{visible(c['request_id'])}  {visible(c['title'])}  ({kind(c)}, "
        f"since {shown_time(c['since'])})\n  {_place(c)}{_similar(c)}"
        for c in found
    )


def _similar(case: Mapping[str, Any]) -> str:
    said = estimate_words(case["estimate"])
    return f"\n  {said}" if said and case["state"] == "review" else ""


def _place(case: Mapping[str, Any]) -> str:
    return asks(case) if case["asking"] else visible(case["plan"])


def kind(case: Mapping[str, Any]) -> str:
    """Return what waits of a case: a question, a wider scope, or which revision of a plan."""
    if case["asking"]:
        return "a question" if case["asking"]["kind"] == "question" else "a wider scope"
    revision = f"revision {case['revision']}"
    if case["state"] != "failed":
        return revision
    return f"{revision}, {'its mission failed' if case['report'] else 'it could not be revised'}"


def case_text(found: Mapping[str, Any]) -> str:
    """Return `placet show` for people."""
    head = [
        f"{colour(visible(found['title']), 'white', bold=True)}  "
        f"({visible(found['request_id'])}, {found['trace_id']})",
        turn(found, daemon=bool(found["daemon"])) + _similar(found),
    ]
    parts = ["\n".join(head)]
    for name in ("asking", "request", "plan", "report"):
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


def first_line(text: str, width: int = 150) -> str:
    """Return a text's first line, harmless, shortened to so many characters."""
    return visible(textwrap.shorten((text.splitlines() or [""])[0], width, placeholder=" …"))


def on_one_line(text: str, width: int) -> str:
    """Return a text on one line, harmless, shortened to so many characters."""
    return visible(textwrap.shorten(text, width, placeholder=" …"))


def is_routine(row: Mapping[str, Any]) -> bool:
    """Return whether a row is shown as data only: a git process that went well."""
    return row["action_type"] == Action.GIT_RAN and "stderr" not in row["metadata"]


def row_text(row: Mapping[str, Any]) -> str:
    """Return one journal row as a line."""
    told = facts(row["action_type"], row["metadata"])
    time = shown_time(row["timestamp"])
    line = f"  {row['action_type']:<22} {visible(row['entity_id'])}  {visible(told)}".rstrip()
    actor = colour(f"{row['actor']:<6}", ACTORS[row["actor"]])
    return f"{time}  {actor}{line}"


def table_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a query's result as lines of tab-separated values under a head."""
    lines = [
        "\t".join(columns),
        *("\t".join("" if v is None else visible(str(v)) for v in row) for row in rows),
    ]
    return "\n".join(lines)
