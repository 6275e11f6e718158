"""Collect what the journal knows of a case as plain data, and render it for the terminal."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placet.activity import Action
from placet.agent.day_budget import day_of
from placet.case.callout import plan_summary
from placet.case.case import Asking, Case
from placet.case.estimate import Estimate, estimate
from placet.case.intents import Intent
from placet.case.life_cycle import DRAFTING, OPEN, State
from placet.case.question_note import question_in
from placet.case.story import facts, more_scope
from placet.case.waiting import Hold, Why
from placet.chat.budget import Complexity
from placet.chat.messages import ModelErrorKind, ToolUse
from placet.cli.site import Site
from placet.cli.terminal import colour, harmless, local_times, shown_time
from placet.disk.errors import Gone, NotSettled, Unreadable
from placet.disk.scan import Found
from placet.disk.vault import Vault
from placet.errors import UserError, age, counted, dollars, one_line
from placet.host.clock import wall
from placet.host.plugins import WORKERS, plugin
from placet.journal.reader import Reader
from placet.journal.writes import BodyDamaged
from placet.note.box import unmarked
from placet.note.frontmatter import plan_digest, read_note
from placet.note.markdown import fence_at
from placet.note.paths import Folder
from placet.note.paths import show as visible
from placet.plan.differences import without_difference
from placet.plan.parse import PlanProblems, parse_plan

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

WRITING_S = 2.0
"""Seconds for which a command waits for a note that the daemon is about to write."""


def text_of(folder: Vault, path: str) -> bytes | None:
    """Return a note's text, None where it is gone.

    One that is being written is read again, for as long as a program takes to write a note. Raises
    Unreadable, NotSettled of one that is written on and on.
    """
    try:
        for pause_s in (0.02, 0.1, 0.5):
            with suppress(NotSettled):
                return folder.read(path)[0]
            time.sleep(pause_s)
        return folder.read(path)[0]
    except Gone:
        return None


def text_if_readable(folder: Vault, path: str) -> bytes | None:
    """Return a note's text, None where no text can be read, such as of a folder or a link.

    A screen that lists requests is there for all of them; a side note says what is wrong with one.
    """
    with suppress(Unreadable):
        return text_of(folder, path)
    return None


def note_text(site: Site, case: Case, path: str) -> bytes:
    """Return the text of a case's note; wait for the daemon to write it, at most WRITING_S.

    Raises UserError where it is not there.
    """
    until = time.monotonic() + WRITING_S
    while True:
        with Vault(site.vault) as folder:
            raw = text_of(folder, path)
        if raw is not None:
            return raw
        if site.daemon is None or time.monotonic() > until:
            raise not_there(case, path)
        time.sleep(0.05)


def not_there(case: Case, path: str) -> UserError:
    """Return the error for a note that is not where the journal has it."""
    return UserError(
        f"{visible(path)} is not there. It was moved, or the daemon has not written it yet.",
        f"See why: placet why {case.request_id}",
    )


def last_moment(reader: Reader) -> str:
    """Return the time of the journal's last event (RFC 3339), or an empty string."""
    return "".join(row.timestamp for row in reader.activity(limit=1, newest=True))


def count_changed(notes: Iterable[Found], since: str) -> int:
    """Return how many of these files changed, or were moved, after the time `since` (RFC 3339)."""
    since_ns = datetime.fromisoformat(since).timestamp() * 1e9 if since else 0.0
    # A move keeps the time of the last change of a file's text, and sets the other one.
    times = (max(one.fingerprint.mtime_ns, one.fingerprint.ctime_ns) for one in notes)
    return sum(time_ns > since_ns for time_ns in times)


def changed_words(number: int) -> str:
    """Return the line about notes that changed while no daemon ran; empty for none."""
    return f"{counted(number, 'note')} changed since the daemon last ran" if number else ""


_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_HEADING = re.compile(r"(#{1,6})[ \t]+(.*)")
_QUOTES = re.compile(r"((?:>[ \t]?)+)(.*)")
_CALLOUT = re.compile(r"\[!([\w-]+)(?:\|\w+)?\][+-]?[ \t]*(.*)")
_ALARMING = frozenset({"danger", "warning", "failure"})
_CHANGED = {"+": "green", "-": "red"}


def rendered(body: str) -> str:
    """Return markdown without the marks that only a reading view needs; no words are left out."""
    out: list[str] = []
    fence = None
    for raw in body.strip("\r\n").splitlines():
        line = harmless(raw.rstrip())
        if fence is not None:
            fence, shown = (None, "") if fence.closes(raw) else (fence, f"    {_difference(line)}")
            out += [shown] if shown else []
        elif (fence := fence_at(raw)) is None:
            out.append(_line(line))
        elif fence.info.strip() not in ("", "diff", "toml"):
            out.append(f"    ({harmless(fence.info.strip())})")
    return "\n".join(out)


def _difference(line: str) -> str:
    name = _CHANGED.get(line[:1])
    return colour(line, name) if name else line


def _line(line: str) -> str:
    if found := _HEADING.fullmatch(line):
        return colour(_plain(found[2]), "white", bold=True)
    if not (found := _QUOTES.fullmatch(line)):
        return _plain(line)
    bars = "│ " * found[1].count(">")
    if callout := _CALLOUT.fullmatch(found[2]):
        sort = callout[1].casefold()
        name = "red" if sort in _ALARMING else "white"
        return f"{bars}{colour(f'{sort}: {_plain(callout[2])}'.strip(), name, bold=True)}"
    return f"{bars}{_plain(found[2])}".rstrip()


def _plain(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)


def asks_for_more(case: Case) -> bool:
    """Return whether a case's mission asks for a wider scope."""
    return case.asking is not None and bool(case.asking.amended)


def asking_text(site: Site, case: Case) -> bytes:
    """Return the text of the note in which a case asks; raises UserError where it is gone."""
    assert case.asking is not None, "only what is asked is shown"
    return note_text(site, case, case.asking.path)


def wider_scope(site: Site, case: Case) -> tuple[str, bytes]:
    """Return the wider scope that a mission asks for, for a terminal, and its note's text."""
    raw = asking_text(site, case)
    return f"{rendered(unmarked(read_note(raw).body))}\ndigest    {plan_digest(raw)[:16]}", raw


def asked_line(folder: Vault, reader: Reader, case: Case) -> dict[str, Any] | None:
    """Return what a case asks a person as plain data; None where it asks nothing.

    `question` is empty while the note cannot be read.
    """
    if (asking := case.asking) is None:
        return None
    raw = text_if_readable(folder, asking.path)
    is_question = not asking.amended
    asked = question_in(raw) if raw is not None and is_question else ""
    return {
        "kind": "question" if is_question else "amendment",
        "path": asking.path,
        "number": asking.number,
        "of": asking.work.value,
        "since": asking.asked_at,
        "question": asked if is_question else _wider(reader, case, asking),
        "options": list(asking.options),
        "digest": asking.digest,
    }


def _wider(reader: Reader, case: Case, asking: Asking) -> str:
    """Return what is asked for besides the approved scope, on one line."""
    row = reader.last_of(Action.PLAN_AMENDMENT_REQUESTED, trace_id=case.trace_id)
    return "" if row is None or row.details["number"] != asking.number else more_scope(row.details)


AT_WORK = "at work"
"""What a worker says of a case whose mission it runs."""


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
        "branch": case.outcome.branch if case.branch is None else case.branch.name,
        "commit": "" if case.branch is None else case.branch.tip,
        "became": "" if case.branch is None else case.branch.became,
        "report": case.outcome.report_path,
        "failure": case.outcome.failure,
        "approved_by": _approved_by(reader, case),
        "intent": "" if intent is None else intent.what,
        "paused": _is_paused(site, reader, case),
        "asking": asked_line(folder, reader, case),
        "estimate": _estimate(folder, reader, case),
        "summary": _summary(folder, case),
        "notice": case.notice,
        "carrier": carrier(site, reader, case),
    }
    if case.acting in DRAFTING:
        line["begun"] = has_begun(reader, case)
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
        runs = site.daemon is not None or (line["carrier"] or {}).get("state") == AT_WORK
        line["progress"] = {
            **progress((row.action_type, row.details) for row in rows),
            "budget_usd": as_float(budget),
            # a command of a daemon that was killed is dead
            "now": call_under_way(reader, case) if runs else "",
            "now_s": age_s(rows[-1].timestamp) if rows else 0.0,
        }
    return line


def _is_paused(site: Site, reader: Reader, case: Case) -> bool:
    """Return whether work on a case has not begun because all work is paused."""
    waits = case.acting in DRAFTING or case.acting is State.APPROVED
    if not waits or case.asking is not None or not site.configured().daemon.paused:
        return False
    return not has_begun(reader, case)


def has_begun(reader: Reader, case: Case) -> bool:
    """Return whether work on a case has a record yet."""
    return any(True for _ in reader.records(case.trace_id, case.generation))


def carrier(site: Site, reader: Reader, case: Case) -> dict[str, str] | None:
    """Return which worker of a team has a case, and how far it is; None without a team."""
    if not case.is_working or not site.configured().team.workers:
        return None
    found: dict[str, str] | None = plugin(WORKERS, "status").carrier(site, reader, case)
    return found


def call_under_way(reader: Reader, case: Case) -> str:
    """Return the call that a mission makes now, such as a long command; empty for none."""
    from placet.agent.record import CALL, LITERAL, Begun, Key, Recorded
    from placet.agent.tool_calls import target  # loads all tools

    calls = (f"{CALL.key}:", f"{LITERAL.key}:")
    with suppress(BodyDamaged):
        last = next(iter(reader.records(case.trace_id, case.generation, last=True)), None)
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
    """Return the commands for a branch that is neither merged nor dropped; else an empty string."""
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


def _summary(folder: Vault, case: Case) -> dict[str, Any] | None:
    """Return what the plan of a case may do, None without a plan that can be read."""
    if case.state not in (State.REVIEW, State.FAILED) or not case.plan.path:
        return None
    found = plan_summary(text_if_readable(folder, case.plan.path) or b"")
    return None if found is None else asdict(found)


def _estimate(folder: Vault, reader: Reader, case: Case) -> dict[str, Any] | None:
    """Return what missions like a plan's have cost; None without a plan, or if too few are known.

    It is worked out as for the plan's callout, from what missions of its complexity cost.
    """
    if case.acting not in (State.REVIEW, State.APPROVED, State.RUNNING) or not case.plan.path:
        return None
    raw = text_if_readable(folder, case.plan.path)
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


def model_line(provider: str, name: str) -> str:
    """Return which model works here; the scripted one says so."""
    if not provider:
        return "not known, as System/placet.toml cannot be used"
    if provider == "scripted":
        return f"{name}: SCRIPTED, replies are replayed from a file, no model is asked"
    return f"{name} ({provider})"


def turn(case: Mapping[str, Any], *, daemon: bool, held: bool = False) -> str:
    """Return a case's state in words: what a command asked for, else what the journal has.

    `held` says that all work waits for the model, which was said above.
    """
    if case["intent"]:
        return f"`placet {case['intent']}` waits for the daemon"
    if case["paused"]:
        return "waits, as work is paused (placet resume)"
    state = State(case["state"])
    now = state.title
    if not daemon and state.next_step:
        now = f"{state.next_step} when a daemon runs"
    if worker := (case.get("carrier") or {}).get("now"):
        now = worker
    elif daemon and not case.get("begun", True):
        now = "is planned once you stop writing, or a place is free"
    failed = visible(case.get("model_trouble") or "") if daemon else ""
    if failed and held:
        return f"waits for the model, as all work does{_detail(case)}"
    trouble = f"; the last call of the model failed: {failed}" if failed else ""
    return f"{now}{_detail(case)}{trouble}"


def today_words(used: Mapping[str, Any]) -> str:
    """Return today's use of the model against the day's limits."""
    cost = dollars(used["cost_usd"])
    usd = f" of ${used['day_usd']:.2f}" if used["day_usd"] else ""
    tokens = f" of {used['day_tokens']:,}" if used["day_tokens"] else ""
    return f"{cost}{usd}, {used['tokens']:,}{tokens} tokens"


def asks(case: Mapping[str, Any]) -> str:
    """Return where a case asks a person, and what, on one line."""
    asking = case["asking"]
    question = f": {first_line(asking['question'])}" if asking["question"] else ""
    return f"{visible(asking['path'])}{question}"


def _detail(case: Mapping[str, Any]) -> str:
    if case["asking"]:
        what = "" if case["asking"]["kind"] == "question" else " on a wider scope"
        return f"{what}: {asks(case)}"
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


def kind(case: Mapping[str, Any]) -> str:
    """Return what waits of a case: a question, a wider scope, or which revision of a plan."""
    if case["asking"]:
        return "a question" if case["asking"]["kind"] == "question" else "a wider scope"
    revision = f"revision {case['revision']}"
    if case["state"] != "failed":
        return revision
    return f"{revision}, {'its mission failed' if case['report'] else 'it could not be revised'}"


def problems(why: str, width: int) -> list[str]:
    """Return what is told of a note, each line shortened, without the difference that it shows."""
    problem = without_difference(why).replace(":\n", ": ")
    return [on_one_line(line, width) for line in problem.splitlines()] or [""]


def first_line(text: str, width: int = 150) -> str:
    """Return a text's first line, harmless, shortened to so many characters.

    A line that ends with a colon takes the next one along.
    """
    return problems(text, width)[0]


def on_one_line(text: str, width: int) -> str:
    """Return a text on one line, harmless, shortened to so many characters."""
    return harmless(textwrap.shorten(text, width, placeholder=" …"))


def is_routine(row: Mapping[str, Any]) -> bool:
    """Return whether a row is shown as data only: a git process that went well."""
    return row["action_type"] == Action.GIT_RAN and "stderr" not in row["metadata"]


def row_text(row: Mapping[str, Any]) -> str:
    """Return one journal row as a line."""
    shown = one_line(harmless(facts(row["action_type"], row["metadata"])))
    at = shown_time(row["timestamp"])
    line = f"  {row['action_type']:<22} {visible(row['entity_id'])}  {shown}".rstrip()
    actor = colour(f"{row['actor']:<6}", ACTORS[row["actor"]])
    return f"{at}  {actor}{line}"


def table_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a query's result as lines of tab-separated values under a head."""
    lines = [
        "\t".join(columns),
        *("\t".join("" if v is None else visible(str(v)) for v in row) for row in rows),
    ]
    return "\n".join(lines)


# Tables, colours and links for a terminal, drawn by rich.
#
# Everything that is shown passes `styled` or `link`: text of notes, models and repositories moves
# no cursor, hides nothing, and opens no link. rich is imported only in functions that draw.

LEAST_COLUMNS = 40
"""Columns below which nothing is laid out: a narrower terminal wraps by itself."""
UNCUT_COLUMNS = 10_000
"""Columns of lines for a pipe: longer than any."""


def on_terminal() -> bool:
    """Return whether a person reads standard output."""
    return sys.stdout.isatty()


def is_dumb() -> bool:
    """Return whether the terminal says that it knows no escape sequences."""
    return os.environ.get("TERM", "dumb") in ("dumb", "unknown")


def columns() -> int:
    """Return the width of the terminal."""
    return max(LEAST_COLUMNS, shutil.get_terminal_size().columns)


def drawn(*parts: RenderableType, width: int = 0) -> str:
    """Return parts one below the other, as lines that fit the terminal; plain and uncut for a pipe.

    `NO_COLOR` leaves out colours and weights; a terminal that calls itself dumb gets no links
    either.
    """
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        force_interactive=False,
        color_system=None if is_dumb() or not on_terminal() else "standard",
        no_color=bool(os.environ.get("NO_COLOR")),
        width=width or (columns() if on_terminal() else UNCUT_COLUMNS),
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


def styled(text: str, colour: str = "", *, bold: bool = False) -> Text:
    """Return a text on one line, in a colour; what would move or hide something is written out."""
    from rich.text import Text

    return Text(one_line(harmless(text)), _style(colour, bold=bold))


def link(shown: str, target: Path, colour: str = "", *, bold: bool = False) -> Text:
    """Return a name that a terminal with hyperlinks (OSC 8) opens `target` by.

    The address is percent-encoded byte for byte, so that nothing of a file's name ends it.
    """
    from rich.style import Style
    from rich.text import Text

    text = Text(visible(shown), _style(colour, bold=bold))
    text.stylize(Style(link=target.absolute().as_uri()))
    return text


def joined(parts: Iterable[Text | str]) -> Text:
    """Return texts one after the other on a line."""
    from rich.text import Text

    made = (part if isinstance(part, Text) else styled(part) for part in parts)
    return Text(" ").join([part for part in made if part.plain])


def table(
    rows: Sequence[Sequence[RenderableType]],
    *,
    heads: Sequence[str] = (),
    right: Sequence[int] = (),
    whole: Sequence[int] = (),
    indent: int = 2,
) -> Table:
    """Return rows as columns; long cells wrap and are never cut.

    `heads` are the columns' names, `right` the right-aligned columns, `whole` those that never
    wrap.
    """
    from rich.padding import Padding
    from rich.table import Table

    made = Table(
        box=None, show_header=bool(heads), header_style=_style("dim"), padding=0, pad_edge=False
    )
    count = max(map(len, rows), default=0)
    for number in range(count):
        made.add_column(
            heads[number] if heads else "",
            justify="right" if number in right else "left",
            no_wrap=number in whole,
            overflow="fold",
        )
    for row in rows:
        made.add_row(
            *(
                Padding(cell, (0, 0 if n == count - 1 else 2, 0, 0 if n else indent))
                for n, cell in enumerate(row)
            )
        )
    if heads:
        for number, column in enumerate(made.columns):
            last = number == count - 1
            column.header = Padding(
                styled(heads[number], "dim"), (0, 0 if last else 2, 0, 0 if number else indent)
            )
    return made


def stacked(*parts: RenderableType) -> RenderableType:
    """Return parts one below the other, as one cell."""
    from rich.console import Group

    return Group(*parts)


def heading(text: str) -> Text:
    """Return a section's title."""
    return styled(text, bold=True)


def _style(colour: str, *, bold: bool = False) -> str:
    if os.environ.get("NO_COLOR"):
        return ""
    return " ".join(part for part in ("bold" if bold else "", colour) if part)


CaseData = Mapping[str, Any]


def status_screen(found: Mapping[str, Any], height: int = 0) -> str:
    """Return `placet status`: a line for each request, in at most `height` lines, 0 for any number.

    What is over and ended before yesterday is counted, not listed, unless it needs a look.
    """
    vault = Path(found["vault"])
    since = day_of(day_of(wall())[0] - timedelta(hours=1))[0]
    cases: Sequence[CaseData] = found["cases"]
    waiting = [case for case in cases if waits_for_you(case)]
    going = [
        case
        for case in cases
        if case not in waiting and (case["state"] in OPEN or bool(case["intent"]))
    ]
    ended = [case for case in cases if case not in waiting and case not in going]
    recent = [case for case in ended if datetime.fromisoformat(case["since"]) >= since]
    earlier = found["earlier"] + len(ended) - len(recent)
    sections = {
        "Waits for you": [_row(case, found, vault) for case in waiting],
        "Under way": [_row(case, found, vault) for case in going],
        "Notes": list(_notes(found)),
        "Ended since yesterday": [_row(case, found, vault) for case in reversed(recent)],
    }
    ends: list[RenderableType] = []
    if not any(found[one] for one in ("cases", "changed", "explained")):
        ends = [styled("No requests yet. Drop a note into Inbox/Requests, or:"),
                styled("placet submit 'what you want done'")]  # fmt: skip
    elif waiting:
        ends = [styled("placet review", "dim")]
    else:
        ends = [styled("Nothing waits for you.", "dim")]
    if following := next((step for case in reversed(recent) if (step := next_step(case))), ""):
        ends.append(styled(following, "dim"))
    if earlier:
        ends.append(styled(f"{earlier:,} ended earlier. One of them: placet show ID", "dim"))
    head = drawn(_head(found, vault))
    used = head.count("\n") + 1 + 2 * sum(map(bool, sections.values())) + 1 + len(ends)
    parts: list[RenderableType] = []
    for (title, rows), fit in zip(
        sections.items(), _shares([*map(len, sections.values())], height - used), strict=True
    ):
        some = rows if not height else rows[:fit]
        # a note has a line for each problem, and its sort only in the first
        here, there = (sum(bool(str(row[0])) for row in part) for part in (some, rows))
        count = f"{there}" if here == there else f"{here} of {there}"
        if rows:
            parts += ["", heading(f"{title} ({count})"), table(some, right=(3,), whole=(0, 3))]
    return "\n".join([head, drawn(*parts, "", *ends)])


def _shares(counts: Sequence[int], room: int) -> list[int]:
    """Return how many of each section's rows fit: one of each, and more of the first ones."""
    shares = [min(count, 1) for count in counts]
    left = room - sum(shares)
    for number, count in enumerate(counts):
        more = max(0, min(count - 1, left))
        shares[number] += more
        left -= more
    return shares


def plans_screen(found: Sequence[CaseData], vault: Path) -> str:
    """Return `placet plans` for a terminal."""
    if not found:
        return drawn(styled("No plan waits for you."))
    rows = [_plan(case, vault) for case in found]
    heads = ("request", "what waits", "for")
    return drawn(
        table(rows, heads=heads, right=(2,), whole=(2,), indent=0),
        "",
        styled("Decide on one after the other: placet review", "dim"),
    )


def _head(found: Mapping[str, Any], vault: Path) -> RenderableType:
    running = found["daemon"]
    mark = styled("●", "green") if running else styled("○", "red")
    daemon = f"running: {running}" if running else "not running (placet run)"
    rows: list[tuple[RenderableType, RenderableType]] = [
        (styled("vault", "dim"), link(str(vault), vault)),
        (styled("daemon", "dim"), joined([mark, *local_times([daemon])])),
        (styled("model", "dim"), styled(model_line(found["provider"], found["model"]))),
        (styled("today", "dim"), styled(today_words(found["today"]))),
    ]
    if changed := changed_words(found["changed"]):
        rows.append((styled("notes", "dim"), styled(changed, "yellow")))
    if found["paused"]:
        paused = "paused: no new work starts (placet resume)"
        rows.append((styled("work", "dim"), styled(paused, "yellow")))
    if found["unaccepted"]:
        named = ", ".join(found["unaccepted"])
        warning = f"not accepted on this machine: {named} (placet config accept)"
        rows.append((styled("config", "dim"), styled(warning, "yellow")))
    waits = [found["waits"]["notice"]] if found["waits"] else []
    rows += [
        (styled("work", "dim"), joined([styled("waits:", "yellow"), why]))
        for why in (*waits, *found["stuck"])
    ]
    return table(rows, indent=0)


def _id(case: CaseData, vault: Path) -> Text:
    """Return a case's id; it opens the note that has to be read next."""
    asking = case["asking"] or {"path": ""}
    report = "" if case["state"] in OPEN else case["report"]
    path = asking["path"] or report or case["plan"] or case["request"]
    colour = COLOURS[case["state"]]
    if not path:
        return styled(case["request_id"], colour, bold=True)
    return link(case["request_id"], vault / path, colour, bold=True)


def _plan(case: CaseData, vault: Path) -> list[RenderableType]:
    where = case["asking"]["path"] if case["asking"] else case["plan"]
    what = [styled(_awaited(case))]
    if not case["asking"] and (estimate := estimate_words(case["estimate"])):
        what.append(styled(estimate, "dim"))
    what.append(link(where, vault / where, "dim"))
    return [_id(case, vault), stacked(*what), styled(age(case["age_s"]))]


def _awaited(case: CaseData) -> str:
    """Return what waits for a decision, and its text or title."""
    if case["asking"]:
        return f"{kind(case)}: {first_line(case['asking']['question'], MAX_FAILURE)}"
    return f"plan, {kind(case)}: {case['title']}"


def _row(case: CaseData, found: Mapping[str, Any], vault: Path) -> list[RenderableType]:
    """Return a request's line in `placet status`, cut to fit."""
    is_awaited = waits_for_you(case) and case["state"] != "failed"
    doing = (
        _awaited(case)
        if is_awaited
        else turn(case, daemon=bool(found["daemon"]), held=bool(found["waits"]))
    )
    state = styled(case["state"], COLOURS[case["state"]])
    ident, ago = _one_line(_id(case, vault)), styled(age(case["age_s"]))
    doing = doing.removeprefix(case["state"]).removeprefix(": ")  # it stands in front
    return [state, ident, _one_line(styled(doing)), ago]


def _one_line(text: Text) -> Text:
    """Have a text cut at the end of its line."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _notes(found: Mapping[str, Any]) -> Iterator[list[RenderableType]]:
    """Give a line for each remark about a note, those that cannot be used among them."""
    used = {
        visible(path)
        for case in found["cases"]
        for path in (case["request"], case["plan"], (case["asking"] or {"path": ""})["path"])
    }
    for path, why in found["explained"].items():
        sort = "remark" if path in used else "unusable"
        for number, problem in enumerate(problems(why, MAX_FAILURE)):
            shown = f"{path}: {problem}" if not number else f"  {problem}"
            yield [styled(sort if not number else "", "yellow"), _one_line(styled(shown))]


def show_screen(found: Mapping[str, Any], vault: Path) -> Iterator[tuple[str, bool]]:
    """Give the parts of `placet show`: their text, and whether it was fitted to the terminal.

    Notes are rendered for reading, into a pipe they are as they are.
    """
    yield drawn(heading(found["title"]), table(list(_facts(found, vault)), indent=0)), True
    for name in ("asking", "request", "plan", "report"):
        if text := found[f"{name}_text"]:
            digest = found["plan_digest"][:16] if name == "plan" else ""
            bound = f" (digest {digest})" if digest else ""
            yield "\n" + colour(f"── {name}{bound}", "white", bold=True), False
            yield _note(text) if on_terminal() else harmless(text.strip()), False
    rows = [row_text(row) for row in found["journal"] if not is_routine(row)]
    yield "\n".join(["", colour("── journal", "white", bold=True), *rows]), False


def _facts(found: Mapping[str, Any], vault: Path) -> Iterator[tuple[RenderableType, ...]]:
    """Give names and values: the state first; what a case has not is left out."""
    doing = turn(found, daemon=bool(found["daemon"]))
    values: list[tuple[str, RenderableType | str]] = [
        ("state", styled(doing, COLOURS[found["state"]])),
        ("id", styled(f"{found['request_id']}, trace {found['trace_id']}")),
        ("since", shown_time(found["since"])),
        ("agent", found["agent"]),
        ("portal", found["portal"]),
        ("approved", found["approved_by"]),
        ("branch", found["branch"] if found["commit"] else ""),
        ("cost", estimate_words(found["estimate"])),
        ("next", next_step(found)),
    ]
    paths = ((name, found[name]) for name in ("request", "plan", "report") if found[name])
    values += [(name, link(path, vault / path)) for name, path in paths]
    for name, value in values:
        if value:
            yield styled(name, "dim"), styled(value) if isinstance(value, str) else value


def _note(text: str) -> str:
    """Return a note for reading: its properties as they are, then its text rendered."""
    body = read_note(text.encode(errors="surrogateescape")).body
    above = text[: len(text) - len(body)].strip() if body and text.endswith(body) else ""
    lines = [colour(harmless(line), "bright_black") for line in above.splitlines()]
    shown = rendered(body)
    return "\n".join([*lines, *([""] if lines and shown else []), shown])


NO_ROOM = 64 * 1024
"""Free bytes below which a disk is full: a small event does not fit into the journal's log."""


def disk_trouble(journal: Path) -> list[str]:
    """Return why the disk does not let the daemon write its journal: at most one sentence."""
    disk = os.statvfs(journal.parent)
    if disk.f_flag & os.ST_RDONLY:
        why = "is mounted read-only"
    elif disk.f_bavail * disk.f_frsize < NO_ROOM:
        why = "is full"
    else:
        return []
    return [
        f"The disk of {journal.parent}, where the journal is, {why}. Work waits, and resumes when "
        "that is fixed."
    ]


def waits_for_model(reader: Reader) -> dict[str, str] | None:
    """Return why all work waits for the model, and since when; None where it does not."""
    row = reader.last_of(Action.MODEL_WAITING, Action.MODEL_RESUMED, trace_id="")
    if row is None or row.action_type != Action.MODEL_WAITING:
        return None
    why, reason = Why(row.details["why"]), row.details["reason"]
    # a key that was given may be a wrong one, and then the network may be down
    if why is Why.BLOCKED:
        reason = reader.calls.failed_since(row.id) or reason
    return {
        "why": why.value,
        "reason": reason,
        "since": row.timestamp,
        "notice": Hold(why, reason, 0.0).notice,
    }
