"""Text for a terminal from what `desk` returns.

Colour only on a terminal that wants it; click strips it elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import click

from placet.core.activity import Action, local
from placet.core.text.names import show as visible
from placet.core.text.story import count, facts
from placet.host.clock import wall

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


def colour(text: str, name: str, *, bold: bool = False) -> str:
    """Return text in a colour, unless `NO_COLOR` asks for none (https://no-color.org)."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=name, bold=bold)


def model_line(provider: str, name: str) -> str:
    """Return which model works here; the scripted one says so."""
    if not provider:
        return "not known, as System/placet.toml cannot be used"
    if provider == "scripted":
        return f"{name}: SCRIPTED, replies are replayed from a file, no model is asked"
    return f"{name} ({provider})"


def status_text(found: Mapping[str, Any]) -> str:
    """Return `placet status` for people."""
    lines = [
        f"vault   {found['vault']}",
        *_local_times(
            [
                f"daemon  {'running: ' + found['daemon'] if found['daemon'] else 'not running (placet run)'}"
            ]
        ),
        f"model   {model_line(found['provider'], found['model'])}",
        f"today   {_today(found['today'])}",
        *(["work    paused: nothing new is taken up (placet resume)"] if found["paused"] else []),
        *(
            [
                f"config  {colour('not accepted on this machine', 'yellow')}: {', '.join(map(visible, found['unaccepted']))} "
                "(placet config accept)"
            ]
            if found["unaccepted"]
            else []
        ),
        *(
            [f"work    {colour('waits', 'yellow')}: {visible(found['waits']['notice'])}"]
            if found["waits"]
            else []
        ),
        *(
            f"work    {colour('waits', 'yellow')}: {visible(' '.join(error.split()))}"
            for error in found["stuck"]
        ),
        "",
    ]
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
            "No requests yet. Drop a note into Inbox/Requests, or: placet submit 'what you want done'"
        )
    for case in found["cases"]:
        state = colour(f"{case['state']:<10}", _COLOURS[case["state"]])
        turn = _turn(case, daemon=bool(found["daemon"]), held=bool(found["waits"]))
        lines.append(f"{state} {visible(case['request_id'])}  {turn}")
    if found["earlier"]:
        lines.append(f"{found['earlier']:,} earlier ones are over. One of them: placet show ID")
    return "\n".join(lines)


def _turn(case: Mapping[str, Any], *, daemon: bool, held: bool = False) -> str:
    """Return where a case stands: what a person did that the daemon does not know, else what the journal has.

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
    cost = "cost unknown" if used["cost_usd"] is None else f"${used['cost_usd']:.4f}"
    usd = f" of ${used['day_usd']:.2f}" if used["day_usd"] else ""
    tokens = f" of {used['day_tokens']:,}" if used["day_tokens"] else ""
    return f"{cost}{usd}, {used['tokens']:,}{tokens} tokens"


def _detail(case: Mapping[str, Any]) -> str:
    if progress := case.get("progress"):
        cost = "cost unknown" if progress["cost_usd"] is None else f"${progress['cost_usd']:.4f}"
        budget = f" of ${progress['budget_usd']:.2f}" if progress["budget_usd"] is not None else ""
        done = " done" if progress["step"] else ""
        return f": step {progress['step']} of {progress['of']}{done}, {count(progress['iterations'], 'iteration')}, {cost}{budget}"
    if case["state"] == "failed":
        return f": {_short(case['failure'], MAX_FAILURE)}" if case["failure"] else ""
    if case["state"] == "review":
        return f": {visible(case['plan'])}"
    if not case["branch"]:
        return ""
    return f": {visible(case['branch'])}" + (f", {case['became']}" if case["became"] else "")


def doctor_text(found: Sequence[Mapping[str, str]]) -> str:
    """Return `placet doctor` for people."""
    marks = {
        "good": colour("ok  ", "green"),
        "warn": colour("note", "yellow"),
        "bad": colour("BAD ", "red", bold=True),
    }
    lines = []
    for line in found:
        lines += _local_times(
            [
                f"{marks[line['state']]}  {line['what']:<14} {visible(' '.join(line['found'].split()))}"
            ]
        )
        if line["helps"]:
            lines.append(f"{'':<21}{visible(line['helps'])}")
    return "\n".join(lines)


def portals_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Return `placet portal list` and `placet portal check` for people."""
    if not found:
        return "There are no portals. Name a repository: placet portal add NAME PATH"
    lines = []
    for line in found:
        bad = line.get(
            "problem",
            "not accepted on this machine: placet config accept"
            if not line["accepted"]
            else ""
            if line["there"]
            else "that folder is not there",
        )
        said = f"  {colour('BAD', 'red')}: {visible(bad)}" if bad else ""
        lines.append(f"{visible(line['name']):<16} {visible(line['folder'])}{said}")
        lines += [f"{'':<16} {visible(note)}" for note in line.get("notes", ())]
    return "\n".join(lines)


def settings_text(found: Mapping[str, Any]) -> str:
    """Return `placet config` for people: every setting that holds, as TOML has it, and what does not hold."""
    lines = [
        f"{'.'.join(key)} = {visible(_setting(value))}" for key, value in _flat(found["settings"])
    ]
    if found["unaccepted"]:
        lines += [
            "",
            "Not accepted on this machine (placet config accept):",
            unaccepted_text(found["unaccepted"]),
        ]
    return "\n".join(lines)


def unaccepted_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the settings that a person may accept: each as it holds now, and as it is written."""
    return "\n".join(
        f"{visible(line['key'])}: {visible(_setting(line['holds']))} -> {visible(_setting(line['written']))}"
        for line in found
    )


def _setting(value: Any) -> str:
    return "(default)" if value is None else json.dumps(value, ensure_ascii=False)


def _flat(
    tables: Mapping[str, Any], above: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in tables.items():
        found += (
            _flat(value, (*above, name))
            if isinstance(value, Mapping) and value
            else [((*above, name), value)]
        )
    return found


def replay_text(found: Mapping[str, Any]) -> str:
    """Return what a replay came to as a person reads it."""
    done = f"{found['calls']} calls carried out again, {found['steps']} steps compared"
    if found["equal"]:
        return f"equal: {done}; tree {found['tree']} of commit {found['commit'][:12]}"
    where = found["difference"]
    step = f"step {where['step']}" if where["step"] else "what was committed after the last step"
    return "\n".join(
        [
            f"different from {step} on (commit {where['commit'][:12]}): {done}",
            *(f"  {visible(path)}" for path in where["paths"]),
        ]
    )


def plans_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Return `placet plans` for people."""
    if not found:
        return "No plan waits for you."
    return "\n".join(
        f"{visible(c['request_id'])}  {visible(c['title'])}  (revision {c['revision']}, {_failed(c)}"
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
        f"{colour(visible(found['title']), 'white', bold=True)}  ({visible(found['request_id'])}, {found['trace_id']})",
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


def proposal_text(found: Mapping[str, Any]) -> str:
    """Return what an approval would allow, for who is asked."""

    def listed(name: str, items: Sequence[str]) -> list[str]:
        return [
            f"{name if not number else '':<10}{visible(item)}"
            for number, item in enumerate(items or ["nothing"])
        ]

    budget = (
        "no limit of its own"
        if found["budget_usd"] is None
        else f"at most ${found['budget_usd']:.2f}"
    )
    base = f", from {visible(found['base'])}" if found["base"] else ""
    lines = [
        colour(visible(found["title"]), "white", bold=True) + f"  ({visible(found['request_id'])})",
        f"where     {visible(found['repository']) or 'a portal that there is not: ' + visible(found['portal'])}",
        f"branch    {visible(found['branch'])}{base}",
        *(
            f"{'step' if n == 1 else '':<10}{n}. {visible(title)}"
            for n, title in enumerate(found["steps"], 1)
        ),
        *listed("write", found["write"]),
        *listed("run", found["run"]),
        f"network   {'yes' if found['network'] else 'no'}",
        f"shell     {'yes' if found['shell'] else 'no'}",
        f"cost      {budget}",
        *([f"edited    {colour('since placet wrote it', 'yellow')}"] if found["edited"] else []),
        *(
            f"{colour('danger', 'red', bold=True)}    {visible(sentence)}"
            for sentence in found["dangers"]
        ),
        f"digest    {found['digest'][:16]}",
    ]
    return "\n".join(lines)


def why_text(found: Mapping[str, Any]) -> str:
    """Return `placet why` for people."""
    lines = [
        f"{colour(visible(found['request_id']), 'white', bold=True)}  {found['state']}",
        *(_local_times(_visible_lines("\n".join(found["why"])))),
    ]
    if mission := found["mission"]:
        lines += [
            f"{mission['class']} ({mission['end']}, after {mission['iterations']} iterations)",
            f"cost   {mission['cost']}",
            f"kept   {mission['kept'] or 'nothing: it had changed nothing'}",
            "",
            colour("── the journal's rows that show it ", "white", bold=True),
            *_local_times(mission["proof"]),
            "",
            colour("── what happened when ", "white", bold=True),
            *_timeline(mission["timeline"]),
            "",
            colour("── what was tried ", "white", bold=True),
            *mission["tried"],
        ]
    following = _local_times(_visible_lines("\n".join(found["next"])))
    if found["next"]:
        lines += ["", colour("── next ", "white", bold=True), *(f"- {line}" for line in following)]
    return "\n".join(lines)


def _short(text: str, width: int = 150) -> str:
    """Return a text's first line for a list, cut between words."""
    return visible(textwrap.shorten((text.splitlines() or [""])[0], width, placeholder=" …"))


def shown_time(moment: str) -> str:
    """Return a moment for people: local time, with the date where it is not today."""
    return local(moment, now=wall())


_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


def _local_times(lines: Sequence[str]) -> list[str]:
    """Return sentences for people, in which moments stand as data has them, with local times."""
    return [_MOMENT.sub(lambda found: shown_time(found[0]), line) for line in lines]


def fitted(text: str, width: int, *, hang: int = 2) -> str:
    """Return lines that are broken at blanks to fit a terminal.

    What continues a line stands below its second column.

    Where it has only one, it stands `hang` columns further in than the line's beginning.
    A word that is longer than a line, a path for one, stays whole: it can still be copied.
    """
    return "\n".join(piece for line in text.split("\n") for piece in _broken(line, width, hang))


_COLUMNS = (re.compile(r"\s*\S{1,4} {2,}\S+(?: \S+)? {2,}"), re.compile(r"\s*(?:\S+ {2,}|- )"))


def _broken(line: str, width: int, hang: int) -> list[str]:
    plain = click.unstyle(line)
    if len(plain) <= width:
        return [line]
    leading = len(plain) - len(plain.lstrip(" "))
    columns = (found.end() for pattern in _COLUMNS if (found := pattern.match(plain)))
    indent = next(
        (end for end in columns if end <= width // 3), leading + (hang if leading < 8 else 0)
    )
    lines: list[str] = []
    now, used = "", 0
    for number, word in enumerate(line.split(" ")):
        size = len(click.unstyle(word))
        if number and used + 1 + size > width and used > indent:
            lines.append(now.rstrip(" "))
            now, used = " " * indent + word, indent + size
        else:
            now, used = (f"{now} {word}", used + 1 + size) if number else (word, size)
    return [*lines, now]


def harmless(text: str) -> str:
    """Return a text of many lines for a terminal: what would move its cursor or hide something is written out, no more."""
    return "".join(char if char in "\n\t\\" else visible(char) for char in text)


def _visible_lines(text: str) -> list[str]:
    return [visible(line) for line in text.splitlines()]


def _timeline(bars: Sequence[Mapping[str, Any]]) -> list[str]:
    if not bars:
        return ["nothing took time"]
    began = bars[0]["began_ms"]
    return [
        f"{(bar['began_ms'] - began) / 1000:>8.1f} s  +{(bar['ended_ms'] - bar['began_ms']) / 1000:.1f} s  "
        f"{'turn ' + str(bar['turn']) if bar['turn'] else 'before'}  "
        + (visible(bar["what"]) if bar["ok"] else colour(visible(bar["what"]), "red"))
        for bar in bars
    ]


def is_routine(row: Mapping[str, Any]) -> bool:
    """Say whether a row is one of the many that only those want to see who ask for data: a git process that went well."""
    return row["action_type"] == Action.GIT_RAN and "stderr" not in row["metadata"]


def row_text(row: Mapping[str, Any], width: int | None = None) -> str:
    """Return one journal row as a line, cut at `width` characters if that is given."""
    told = facts(row["action_type"], row["metadata"])
    time = shown_time(row["timestamp"])
    line = f"  {row['action_type']:<22} {visible(row['entity_id'])}  {visible(told)}".rstrip()
    actor = colour(f"{row['actor']:<6}", _ACTORS[row["actor"]])
    line = f"{time}  {actor}{line}"
    return line if width is None else line[: width + len(line) - len(click.unstyle(line))]


def table_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a query's result as lines of tab-separated values under a head."""
    lines = [
        "\t".join(columns),
        *("\t".join("" if v is None else visible(str(v)) for v in row) for row in rows),
    ]
    return "\n".join(lines)
