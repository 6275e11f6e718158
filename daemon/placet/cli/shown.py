"""Notes that wait for a person, for a terminal: what they allow and what is dangerous on top."""

from __future__ import annotations

from typing import NamedTuple

from placet.cli.proposal import proposal, proposal_text
from placet.cli.rendered import rendered
from placet.cli.site import Site
from placet.cli.terminal import colour, shown_time
from placet.core.errors import UserError
from placet.core.life.case import Case, State
from placet.core.life.question_note import answer_in, shown_digest
from placet.core.life.sight import body_of, look_at
from placet.core.text.box import unmarked
from placet.core.text.names import show as visible
from placet.core.text.note import read_note


class NoteView(NamedTuple):
    """A note for a terminal: all of it, and what a decision needs to have in sight."""

    whole: str
    brief: str


def plan_view(site: Site, case: Case, raw: bytes) -> NoteView:
    """Return a plan for a terminal: its scope and dangers, then all of its text."""
    try:
        top = proposal_text(proposal(site, case, raw))
    except UserError as error:
        top = colour(visible(error.what), "yellow")
    failed = ["its last mission failed: " + visible(case.outcome.report_path)] * bool(
        case.state is State.FAILED and case.outcome.report_path
    )
    head = f"plan, revision {case.plan.revision}, since {shown_time(case.since)}"
    text = rendered(body_of(raw))
    brief = "\n".join([f"{head}: {visible(case.plan.path)}", *failed, "", top, ""])
    return NoteView(f"{brief}\n{text}\n", brief)


def amendment_view(_: Site, case: Case, raw: bytes) -> NoteView:
    """Return a wider scope for a terminal: all of it as a difference, dangers, and why."""
    assert case.asking is not None, "only what is asked is shown"
    edited = [colour("This note was edited, so it approves nothing.", "yellow")] * (
        shown_digest(raw) != case.asking.digest
    )
    lines = rendered(unmarked(read_note(raw).body)).split("\n")
    # the difference, and the callout of dangers within the one that asks
    brief = [line for line in lines if line.startswith("│ │") or not line.startswith("│")]
    head = [*_asking(case, "a wider scope"), *edited]
    return NoteView("\n".join([*head, *lines, ""]), "\n".join([*head, *brief, ""]))


def question_view(_: Site, case: Case, raw: bytes) -> NoteView:
    """Return a question for a terminal, its options with numbers."""
    assert case.asking is not None, "only what is asked is shown"
    lines = unmarked(read_note(raw).body).splitlines()
    ends = [n for n, line in enumerate(lines) if line.startswith("## ")]
    text = "\n".join(lines[: ends[0]] if ends else lines)
    options = case.asking.options
    problem = answer_in(look_at(case.asking.path, raw, ""), options).problem
    head = _asking(case, "a question")
    brief = [
        *(f"{number}. {visible(option)}" for number, option in enumerate(options, 1)),
        *([colour(problem, "yellow")] if problem else []),
        "",
    ]
    whole = [*head, rendered(text).rstrip(), "", *brief]
    return NoteView("\n".join(whole), "\n".join([*head, *brief]))


def _asking(case: Case, what: str) -> list[str]:
    assert case.asking is not None, "only what is asked is shown"
    asking = case.asking
    return [f"{what}, since {shown_time(asking.asked_at)}: {visible(asking.path)}", ""]
