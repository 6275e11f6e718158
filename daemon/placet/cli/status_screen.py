"""`placet status` and `plans` on a terminal: what waits, what runs, what ended, one screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placet.agent.day_budget import day_of
from placet.case.case import OPEN
from placet.cli.notes import changed_words
from placet.cli.screen import bar, drawn, heading, joined, link, stacked, table, words
from placet.cli.terminal import local_times
from placet.cli.text import (
    COLOURS,
    MAX_FAILURE,
    estimate_words,
    first_line,
    kind,
    model_line,
    today_words,
    turn,
)
from placet.cli.view import next_step, waits_for_you
from placet.core.wording import age
from placet.host.clock import wall
from placet.note.paths import Folder

if TYPE_CHECKING:
    from rich.console import RenderableType

CaseData = Mapping[str, Any]


def status_screen(found: Mapping[str, Any], *, width: int = 0, now: datetime | None = None) -> str:
    """Return `placet status` for a terminal.

    What is over and ended before yesterday is counted, not listed, unless it needs a look.
    """
    vault = Path(found["vault"])
    since = day_of(day_of(now or wall())[0] - timedelta(hours=1))[0]
    cases: Sequence[CaseData] = found["cases"]
    waiting = [case for case in cases if waits_for_you(case)]
    going = [case for case in cases if case not in waiting and _goes_on(case)]
    ended = [case for case in cases if case not in waiting and case not in going]
    recent = [case for case in ended if datetime.fromisoformat(case["since"]) >= since]
    earlier = found["earlier"] + len(ended) - len(recent)
    parts: list[RenderableType] = [_head(found, vault)]
    for title, rows in (
        (f"Waits for you ({len(waiting)})", [_waiting(case, found, vault) for case in waiting]),
        (f"Under way ({len(going)})", [_going(case, found, vault) for case in going]),
        ("Notes", list(_notes(found))),
        ("Ended since yesterday", [_ended(case, found, vault) for case in reversed(recent)]),
    ):
        if rows:
            parts += ["", heading(title), table(rows, right=(2,), whole=(2,))]
    if not any(found[one] for one in ("cases", "changed", "explained")):
        parts += ["", words("No requests yet. Drop a note into Inbox/Requests, or:"),
                  words("placet submit 'what you want done'")]  # fmt: skip
    elif not waiting:
        parts += ["", words("Nothing waits for you.", "dim")]
    if earlier:
        parts += ["", words(f"{earlier:,} ended earlier. One of them: placet show ID", "dim")]
    return drawn(*parts, width=width)


def plans_screen(found: Sequence[CaseData], vault: Path, *, width: int = 0) -> str:
    """Return `placet plans` for a terminal."""
    if not found:
        return drawn(words("No plan waits for you."), width=width)
    rows = [_plan(case, vault) for case in found]
    heads = ("request", "what waits", "for")
    return drawn(
        table(rows, heads=heads, right=(2,), whole=(2,), indent=0),
        "",
        words("Decide on one after the other: placet review", "dim"),
        width=width,
    )


def _goes_on(case: CaseData) -> bool:
    return case["state"] in OPEN or bool(case["intent"])


def _head(found: Mapping[str, Any], vault: Path) -> RenderableType:
    running = found["daemon"]
    mark = words("●", "green") if running else words("○", "red")
    daemon = f"running: {running}" if running else "not running (placet run)"
    rows: list[tuple[RenderableType, RenderableType]] = [
        (words("vault", "dim"), link(str(vault), vault)),
        (words("daemon", "dim"), joined([mark, *local_times([daemon])])),
        (words("model", "dim"), words(model_line(found["provider"], found["model"]))),
        (words("today", "dim"), words(today_words(found["today"]))),
    ]
    if changed := changed_words(found["changed"]):
        rows.append((words("notes", "dim"), words(changed, "yellow")))
    if found["paused"]:
        paused = "paused: nothing new is taken up (placet resume)"
        rows.append((words("work", "dim"), words(paused, "yellow")))
    if found["unaccepted"]:
        named = ", ".join(found["unaccepted"])
        said = f"not accepted on this machine: {named} (placet config accept)"
        rows.append((words("config", "dim"), words(said, "yellow")))
    waits = [found["waits"]["notice"]] if found["waits"] else []
    rows += [
        (words("work", "dim"), joined([words("waits:", "yellow"), why]))
        for why in (*waits, *found["stuck"])
    ]
    return table(rows, indent=0)


def _id(case: CaseData, vault: Path) -> RenderableType:
    """Return a case's id; it opens the note that has to be read next."""
    asking = case["asking"] or {"path": ""}
    over = "" if case["state"] in OPEN else case["report"]
    path = asking["path"] or over or case["plan"] or case["request"]
    colour = COLOURS[case["state"]]
    if not path:
        return words(case["request_id"], colour, bold=True)
    return link(case["request_id"], vault / path, colour, bold=True)


def _path(path: str, vault: Path) -> RenderableType:
    return link(path, vault / path, "dim")


def _waiting(case: CaseData, found: Mapping[str, Any], vault: Path) -> list[RenderableType]:
    return _ended(case, found, vault) if case["state"] == "failed" else _plan(case, vault)


def _plan(case: CaseData, vault: Path) -> list[RenderableType]:
    asking = case["asking"]
    if asking:
        colour = "yellow"
        what = [
            joined([words(f"{kind(case)}:", colour), first_line(asking["question"], MAX_FAILURE)])
        ]
        where = asking["path"]
    else:
        what = [joined([f"plan, {kind(case)}:", case["title"]])]
        where = case["plan"]
        if said := estimate_words(case["estimate"]):
            what.append(words(said, "dim"))
    return [_id(case, vault), stacked(*what, _path(where, vault)), words(age(case["age_s"]))]


def _going(case: CaseData, found: Mapping[str, Any], vault: Path) -> list[RenderableType]:
    told = words(turn(case, daemon=bool(found["daemon"]), held=bool(found["waits"])))
    progress = case.get("progress")
    shown = (
        stacked(bar(progress["step"], progress["of"], COLOURS["running"]), told)
        if progress and not case["intent"]
        else told
    )
    return [_id(case, vault), shown, words(age(case["age_s"]))]


def _ended(case: CaseData, found: Mapping[str, Any], vault: Path) -> list[RenderableType]:
    told: list[RenderableType] = [words(turn(case, daemon=bool(found["daemon"])))]
    if ways := next_step(case):
        told.append(words(ways, "dim"))
    if case["state"] == "failed":
        told.append(words(f"placet why {case['request_id']}", "dim"))
        if case["plan"].startswith(f"{Folder.PLANS}/"):
            told.append(_path(case["plan"], vault))
    return [_id(case, vault), stacked(*told), words(age(case["age_s"]))]


def _notes(found: Mapping[str, Any]) -> Iterator[list[RenderableType]]:
    """Give the notes with a remark next to them, those that cannot be used among them."""
    used = {path for case in found["cases"] for path in (case["request"], case["plan"])}
    used |= {case["asking"]["path"] for case in found["cases"] if case["asking"]}
    for path, why in found["explained"].items():
        sort = "remark" if path in used else "unusable"
        said = first_line(why, MAX_FAILURE)
        yield [words(sort, "yellow"), stacked(words(path), words(said)), words("")]
