"""Text for a terminal from what `desk` returns. Colour only on a terminal that wants it; click strips it elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import click

from placet.core.activity import Action
from placet.core.names import show as visible
from placet.core.story import facts

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
             f"model   {model_line(found['provider'], found['model'])}",
             f"today   {_today(found['today'])}",
             *(["work    paused: nothing new is taken up (placet resume)"] if found["paused"] else []),
             *([f"work    {colour('waits', 'yellow')}: {visible(found['waits']['notice'])}"] if found["waits"] else []),
             *(f"work    {colour('waits', 'yellow')}: {visible(' '.join(error.split()))}" for error in found["stuck"]),
             ""]
    why_not = "" if found["daemon"] else ": the daemon is not running"
    lines += [f"{colour('new', 'yellow')}        {path}  not taken up yet{why_not}" for path in found["not_taken_up"]]
    lines += [f"{colour('explained', 'yellow')}  {path}  {visible(why.splitlines()[0][:150])}"
              for path, why in found["explained"].items()]
    if not found["cases"] and not found["not_taken_up"] and not found["explained"]:
        lines.append("No requests yet. Drop a note into Inbox/Requests, or: placet submit 'what you want done'")
    for case in found["cases"]:
        state = colour(f"{case['state']:<10}", _COLOURS[case["state"]])
        lines.append(f"{state} {visible(case['request_id'])}  {_TURN[case['state']]}{_detail(case)}")
    return "\n".join(lines)


def _today(used: Mapping[str, Any]) -> str:
    cost = "cost unknown" if used["cost_usd"] is None else f"${used['cost_usd']:.4f}"
    usd = f" of ${used['day_usd']:.2f}" if used["day_usd"] else ""
    tokens = f" of {used['day_tokens']:,}" if used["day_tokens"] else ""
    return f"{cost}{usd}, {used['tokens']:,}{tokens} tokens"


def _detail(case: Mapping[str, Any]) -> str:
    if progress := case.get("progress"):
        cost = "cost unknown" if progress["cost_usd"] is None else f"${progress['cost_usd']:.4f}"
        budget = f" of ${progress['budget_usd']:.2f}" if progress["budget_usd"] is not None else ""
        return f": step {progress['step']} of {progress['of']}, {progress['iterations']} iterations, {cost}{budget}"
    if case["state"] == "failed":
        return f": {visible(case['failure'].splitlines()[0][:150])}" if case["failure"] else ""
    if case["state"] == "review":
        return f": {visible(case['plan'])}"
    if not case["branch"]:
        return ""
    return f": {visible(case['branch'])}" + (f", {case['became']}" if case["became"] else "")


def doctor_text(found: Sequence[Mapping[str, str]]) -> str:
    """Return `placet doctor` for people."""
    marks = {"good": colour("ok  ", "green"), "warn": colour("note", "yellow"), "bad": colour("BAD ", "red", bold=True)}
    lines = []
    for line in found:
        lines.append(f"{marks[line['state']]}  {line['what']:<14} {visible(line['found'])}")
        if line["helps"]:
            lines.append(f"{'':<21}{visible(line['helps'])}")
    return "\n".join(lines)


def portals_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Return `placet portal list` and `placet portal check` for people."""
    if not found:
        return "There are no portals. Name a repository: placet portal add NAME PATH"
    lines = []
    for line in found:
        bad = line.get("problem", "" if line["there"] else "that folder is not there")
        said = f"  {colour('BAD', 'red')}: {visible(bad)}" if bad else ""
        lines.append(f"{visible(line['name']):<16} {visible(line['folder'])}{said}")
        lines += [f"{'':<16} {visible(note)}" for note in line.get("notes", ())]
    return "\n".join(lines)


def replay_text(found: Mapping[str, Any]) -> str:
    """Return what a replay came to as a person reads it."""
    done = f"{found['calls']} calls carried out again, {found['steps']} steps compared"
    if found["equal"]:
        return f"equal: {done}; tree {found['tree']} of commit {found['commit'][:12]}"
    where = found["difference"]
    step = f"step {where['step']}" if where["step"] else "what was committed after the last step"
    return "\n".join([f"different from {step} on (commit {where['commit'][:12]}): {done}",
                      *(f"  {visible(path)}" for path in where["paths"])])


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
        if text := found[f"{name}_text"]:
            parts.append(colour(f"── {name} ", "white", bold=True) + "\n" + harmless(text.strip()))
    rows = [row_text(row) for row in found["journal"] if not is_routine(row)]
    parts.append("\n".join([colour("── journal ", "white", bold=True), *rows]))
    return "\n\n".join(parts)


def why_text(found: Mapping[str, Any]) -> str:
    """Return `placet why` for people."""
    lines = [f"{colour(visible(found['request_id']), 'white', bold=True)}  {found['state']}",
             *(_visible_lines("\n".join(found["why"])))]
    if mission := found["mission"]:
        lines += [f"{mission['class']} ({mission['end']}, after {mission['iterations']} iterations)", f"cost   {mission['cost']}",
                  f"kept   {mission['kept'] or 'nothing: it had changed nothing'}",
                  "", colour("── the journal's rows that show it ", "white", bold=True), *mission["proof"],
                  "", colour("── what happened when ", "white", bold=True), *_timeline(mission["timeline"]),
                  "", colour("── what was tried ", "white", bold=True), *mission["tried"]]
    lines += ["", colour("── next ", "white", bold=True), *(f"- {line}" for line in _visible_lines("\n".join(found["next"])))]
    return "\n".join(lines)


def harmless(text: str) -> str:
    """Return a text of many lines for a terminal: what would move its cursor or hide something is written out, no more."""
    return "".join(char if char in "\n\t\\" else visible(char) for char in text)


def _visible_lines(text: str) -> list[str]:
    return [visible(line) for line in text.splitlines()]


def _timeline(bars: Sequence[Mapping[str, Any]]) -> list[str]:
    if not bars:
        return ["nothing took time"]
    began = bars[0]["began_ms"]
    return [f"{(bar['began_ms'] - began) / 1000:>8.1f} s  +{(bar['ended_ms'] - bar['began_ms']) / 1000:.1f} s  "
            f"{'turn ' + str(bar['turn']) if bar['turn'] else 'before'}  "
            + (visible(bar["what"]) if bar["ok"] else colour(visible(bar["what"]), "red")) for bar in bars]


def is_routine(row: Mapping[str, Any]) -> bool:
    """Say whether a row is one of the many that only those want to see who ask for data: a git process that went well."""
    return row["action_type"] == Action.GIT_RAN and "stderr" not in row["metadata"]


def row_text(row: Mapping[str, Any], width: int | None = None) -> str:
    """Return one journal row as a line, cut at `width` characters if that is given."""
    told = facts(row["action_type"], row["metadata"])
    time = row["timestamp"][11:23].rstrip("Z")
    line = f"  {row['action_type']:<22} {visible(row['entity_id'])}  {visible(told)}".rstrip()
    actor = colour(f"{row['actor']:<6}", _ACTORS[row["actor"]])
    line = f"{time}  {actor}{line}"
    return line if width is None else line[:width + len(line) - len(click.unstyle(line))]


def table_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a query's result as lines of tab-separated values under a head."""
    lines = ["\t".join(columns), *("\t".join("" if v is None else visible(str(v)) for v in row) for row in rows)]
    return "\n".join(lines)

