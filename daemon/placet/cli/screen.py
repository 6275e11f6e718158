"""Render cases, notes and rows for the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placet.agent.day_budget import day_of
from placet.case.case import Case
from placet.case.life_cycle import OPEN, State
from placet.case.story import facts
from placet.cli.drawing import drawn, heading, joined, link, on_terminal, stacked, styled, table
from placet.cli.terminal import colour
from placet.client.cases import CaseLine, ShownCase, Status
from placet.client.notes import asking_text
from placet.client.rows import Row
from placet.client.site import Site
from placet.client.texts import first_line, harmless, local_times, problems, shown_time
from placet.client.words import (
    MAX_FAILURE,
    changed_words,
    kind,
    model_line,
    next_step,
    today_words,
    turn,
)
from placet.host.clock import wall
from placet.note.box import unmarked
from placet.note.frontmatter import read_note
from placet.note.markdown import fence_at
from placet.note.paths import show as visible
from placet.plan.digest import plan_digest
from placet.wording import age, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


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


def wider_scope(site: Site, case: Case) -> tuple[str, bytes]:
    """Return the wider scope that a mission asks for, for a terminal, and its note's text."""
    raw = asking_text(site, case)
    return f"{rendered(unmarked(read_note(raw).body))}\ndigest    {plan_digest(raw)[:16]}", raw


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


def row_text(row: Row) -> str:
    """Return one journal row as a line."""
    shown = one_line(harmless(facts(row.action_type, row.metadata)))
    at = shown_time(row.timestamp)
    line = f"  {row.action_type:<22} {visible(row.entity_id)}  {shown}".rstrip()
    actor = colour(f"{row.actor:<6}", ACTORS[row.actor])
    return f"{at}  {actor}{line}"


def table_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a query's result as lines of tab-separated values under a head."""
    lines = [
        "\t".join(columns),
        *("\t".join("" if v is None else visible(str(v)) for v in row) for row in rows),
    ]
    return "\n".join(lines)


def status_screen(found: Status, height: int = 0) -> str:
    """Return `placet status`: a line for each request, in at most `height` lines, 0 for any number.

    Cases that ended before yesterday are only counted, unless they need you.
    """
    vault = Path(found.vault)
    since = day_of(day_of(wall())[0] - timedelta(hours=1))[0]
    cases = found.cases
    waiting = found.waiting
    going = [
        case for case in cases if case not in waiting and (case.state in OPEN or bool(case.intent))
    ]
    ended = [case for case in cases if case not in waiting and case not in going]
    recent = [case for case in ended if datetime.fromisoformat(case.since) >= since]
    earlier = found.earlier + len(ended) - len(recent)
    sections = {
        "Waits for you": [_row(case, found, vault) for case in waiting],
        "Under way": [_row(case, found, vault) for case in going],
        "Notes": list(_notes(found)),
        "Ended since yesterday": [_row(case, found, vault) for case in reversed(recent)],
    }
    ends: list[RenderableType] = []
    if not (found.cases or found.changed or found.explained):
        ends = [styled("No requests yet. Drop a note into Inbox/Requests, or:"),
                styled("placet submit 'what you want done'")]  # fmt: skip
    elif waiting:
        if any(case.is_for_review for case in waiting):
            ends = [styled("Next: placet review", "dim")]
    else:
        ends = [styled("Nothing waits for you.", "dim")]
    if following := next((step for case in reversed(waiting) if (step := next_step(case))), ""):
        ends.append(styled(f"Next: {following}", "dim"))
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


def plans_screen(found: Sequence[CaseLine], vault: Path) -> str:
    """Return `placet plans` for a terminal."""
    if not found:
        return drawn(styled("Nothing waits for you. To see what is under way: placet status"))
    # ID and path have a line each, so that both can be copied at 80 columns
    parts = [part for case in found for part in (*_plan(case, vault), "")]
    if not any(case.is_for_review for case in found):
        return drawn(*parts[:-1])
    return drawn(*parts, styled("Next: placet review, or: placet approve ID", "dim"))


def _head(found: Status, vault: Path) -> RenderableType:
    running = found.daemon
    mark = styled("●", "green") if running else styled("○", "red")
    daemon = f"running: {running}" if running else "not running (placet run)"
    rows: list[tuple[RenderableType, RenderableType]] = [
        (styled("vault", "dim"), link(str(vault), vault)),
        (styled("daemon", "dim"), joined([mark, *local_times([daemon])])),
        (styled("model", "dim"), styled(model_line(found.provider, found.model, found.server))),
        (styled("today", "dim"), styled(today_words(found.today))),
    ]
    if changed := changed_words(found.changed):
        rows.append((styled("notes", "dim"), styled(changed, "yellow")))
    if found.paused:
        paused = "paused: no new work starts (placet resume)"
        rows.append((styled("work", "dim"), styled(paused, "yellow")))
    if found.unaccepted:
        named = ", ".join(found.unaccepted)
        warning = f"not accepted on this machine: {named} (placet config accept)"
        rows.append((styled("config", "dim"), styled(warning, "yellow")))
    waits = [found.waits.notice] if found.waits is not None else []
    rows += [
        (styled("work", "dim"), joined([styled("waits:", "yellow"), why]))
        for why in (*waits, *found.stuck)
    ]
    return table(rows, indent=0)


def _id(case: CaseLine, vault: Path) -> Text:
    """Return a case's id; it opens the note that has to be read next."""
    asked = "" if case.asking is None else case.asking.path
    report = "" if case.state in OPEN else case.report
    path = asked or report or case.plan or case.request
    colour = COLOURS[case.state]
    if not path:
        return styled(case.request_id, colour, bold=True)
    return link(case.request_id, vault / path, colour, bold=True)


def _plan(case: CaseLine, vault: Path) -> list[RenderableType]:
    where = case.plan or case.request
    if case.asking is not None:
        where = case.asking.path
    elif case.is_to_merge:
        where = case.report
    what: list[RenderableType] = [styled(_awaited(case))]
    if case.asking is None and case.estimate is not None:
        what.append(styled(case.estimate.sentence, "dim"))
    if case.needs:
        what.append(styled(case.needs, "yellow"))
    if case.is_to_merge and case.checks_failed:
        what.append(styled(case.doubts[0], "yellow"))
    if following := next_step(case):
        what.append(styled(following, "dim"))
    what.append(link(where, vault / where, "dim"))
    head = joined([_id(case, vault), styled(f"for {age(case.age_s)}", "dim")])
    return [head, table([[stacked(*what)]])]


def _awaited(case: CaseLine) -> str:
    """Return what waits for a decision, and its text or title."""
    if case.asking is not None:
        return f"{kind(case)}: {first_line(case.asking.question, MAX_FAILURE)}"
    is_plan = not case.is_to_merge and not case.is_drafted
    return f"{'plan, ' if is_plan else ''}{kind(case)}: {case.title}"


def _row(case: CaseLine, found: Status, vault: Path) -> list[RenderableType]:
    """Return a request's line in `placet status`, cut to fit."""
    is_awaited = case.waits_for_you and (case.state in (State.REVIEW, State.ASKING))
    doing = (
        _awaited(case)
        if is_awaited
        else turn(case, daemon=bool(found.daemon), held=bool(found.waits))
    )
    state = styled(case.state, COLOURS[case.state])
    ident, ago = _one_line(_id(case, vault)), styled(age(case.age_s))
    doing = doing.removeprefix(case.state).removeprefix(": ")  # it stands in front
    return [state, ident, _one_line(styled(doing)), ago]


def _one_line(text: Text) -> Text:
    """Have a text cut at the end of its line."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _notes(found: Status) -> Iterator[list[RenderableType]]:
    """Give a line for each remark about a note, those that cannot be used among them."""
    for path, why in found.explained.items():
        sort = "unusable" if path in found.unusable else "remark"
        for number, problem in enumerate(problems(why, MAX_FAILURE)):
            shown = f"{path}: {problem}" if not number else f"  {problem}"
            yield [styled(sort if not number else "", "yellow"), _one_line(styled(shown))]


def show_screen(found: ShownCase, vault: Path) -> Iterator[tuple[str, bool]]:
    """Give the parts of `placet show`: their text, and whether it was fitted to the terminal.

    What waits to be read comes last, so it does not scroll away. Notes are rendered for reading,
    into a pipe they are as they are.
    """
    yield drawn(heading(found.title), table(list(_facts(found, vault)), indent=0)), True
    rows = [row_text(row) for row in found.journal if not row.is_routine]
    yield "\n".join(["", colour("── journal", "white", bold=True), *rows]), False
    texts = {
        "request": found.request_text,
        "plan": found.plan_text,
        "report": found.report_text,
        "asking": found.asking_text,
    }
    for name, text in texts.items():
        if text:
            digest = found.plan_digest[:16] if name == "plan" else ""
            bound = f" (digest {digest})" if digest else ""
            yield "\n" + colour(f"── {name}{bound}", "white", bold=True), False
            yield _note(text) if on_terminal() else harmless(text.strip()), False


def _facts(found: ShownCase, vault: Path) -> Iterator[tuple[RenderableType, ...]]:
    """Give names and values: the state first; what a case has not is left out."""
    doing = turn(found, daemon=bool(found.daemon))
    values: list[tuple[str, RenderableType | str]] = [
        ("state", styled(doing, COLOURS[found.state])),
        ("id", styled(f"{found.request_id}, trace {found.trace_id}")),
        ("since", shown_time(found.since)),
        ("agent", found.agent),
        ("portal", found.portal),
        ("approved", found.approved_by),
        ("branch", found.branch if found.commit else ""),
        ("receipt", found.receipt),
        ("doubts", " ".join(found.doubts)),
        ("note", found.needs if found.state is State.REVIEW else ""),
        ("cost", "" if found.estimate is None else found.estimate.sentence),
        ("next", next_step(found)),
    ]
    paths = (("request", found.request), ("plan", found.plan), ("report", found.report))
    values += [(name, link(path, vault / path)) for name, path in paths if path]
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
