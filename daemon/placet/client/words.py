"""Put cases into words, for a terminal and for a page."""

from __future__ import annotations

from placet.case.checks import IN_DOUBT
from placet.case.life_cycle import State
from placet.client.cases import Asked, CaseLine, Progress, Today
from placet.client.texts import first_line, on_one_line
from placet.note.paths import show as visible
from placet.wording import age, counted, dollars


def changed_words(number: int) -> str:
    """Return the line about notes that changed while no daemon ran; empty for none."""
    return f"{counted(number, 'note')} changed since the daemon last ran" if number else ""


def next_step(case: CaseLine) -> str:
    """Return the commands for a branch that is neither merged nor dropped; else an empty string."""
    if case.intent or not case.is_to_merge:
        return ""
    ident = case.request_id
    return f"placet diff {ident}, placet merge {ident}"


MAX_FAILURE = 500
"""Characters of a failure's reason that `placet status` shows; `placet why` has all."""


def model_line(provider: str, name: str, server: str = "") -> str:
    """Return which model works here, and whose `server` it is; the scripted one says so."""
    if not provider:
        return "not known, as System/placet.toml cannot be used"
    if provider == "scripted":
        return f"{name}: SCRIPTED, replies are replayed from a file, no model is asked"
    return f"{name} ({server or provider})"


def turn(case: CaseLine, *, daemon: bool, held: bool = False) -> str:
    """Return a case's state in words: what a command asked for, else what the journal has.

    `held` says that all work waits for the model, which was said above.
    """
    if case.intent:
        return f"`placet {case.intent}` waits for the daemon"
    if case.paused:
        return "waits, as work is paused (placet resume)"
    if case.needs and case.is_drafted:
        return f"waits for you: {case.needs}"
    now = case.state.title
    if case.checks_failed:  # before the details: a line may be cut
        now += f", {IN_DOUBT}"
    if not daemon and case.state.next_step:
        now = f"{case.state.next_step} when a daemon runs"
    if case.carrier is not None and case.carrier.now:
        now = case.carrier.now
    elif daemon and case.begun is False and held:
        return "waits for the model, as all work does"
    elif daemon and case.begun is False:
        now = "is planned once you stop writing, or a place is free"
    failed = visible(case.model_trouble or "") if daemon else ""
    if failed and held:
        return f"waits for the model, as all work does{_detail(case)}"
    trouble = f"; the last call of the model failed: {failed}" if failed else ""
    answer = f"{case.answer}; " if case.answer and daemon else ""  # first: a line may be cut
    return f"{answer}{now}{_detail(case)}{trouble}"


def today_words(used: Today) -> str:
    """Return today's use of the model against the day's limits."""
    usd = f" of ${used.day_usd:.2f}" if used.day_usd else ""
    cost = dollars(used.cost_usd)
    if used.unpriced_calls and used.priced_usd:
        cost, usd = dollars(used.priced_usd), ""
        cost += f", and {counted(used.unpriced_calls, 'call')} without a known price"
    tokens = f" of {used.day_tokens:,}" if used.day_tokens else ""
    return f"{cost}{usd}, {used.tokens:,}{tokens} tokens"


def asks(asked: Asked) -> str:
    """Return where a case asks a person, and what, on one line."""
    question = f": {first_line(asked.question)}" if asked.question else ""
    return f"{visible(asked.path)}{question}"


def _detail(case: CaseLine) -> str:
    if case.asking is not None:
        what = "" if case.asking.kind == "question" else " on a wider scope"
        return f"{what}: {asks(case.asking)}"
    if case.progress is not None:
        return f": {_progress(case.progress)}"
    if case.state is State.FAILED:
        return f": {on_one_line(case.failure, MAX_FAILURE)}" if case.failure else ""
    if case.state is State.REVIEW:
        return f": {visible(case.plan)}"
    said = "".join(f": {visible(doubt).removesuffix('.')}" for doubt in case.doubts[:1])
    if case.state is State.COMPLETED and not case.commit:
        return f"{said}: nothing was changed"
    if not case.branch or case.state is not State.COMPLETED:  # it is of an earlier mission
        return said
    return f"{said}: {visible(case.branch)}" + (f", {case.became}" if case.became else "")


def _progress(found: Progress) -> str:
    """Return how far a mission is: "step 1 of 2 done, 3 iterations, $0.0123 of $0.50"."""
    budget = f" of ${found.budget_usd:.2f}" if found.budget_usd is not None else ""
    done = " done" if found.step else ""
    turns = counted(found.iterations, "iteration")
    doing = f"; {visible(found.now)} for {age(found.now_s)}" if found.now else ""
    return (
        f"step {found.step} of {found.of}{done}, {turns}, {dollars(found.cost_usd)}{budget}{doing}"
    )


def kind(case: CaseLine) -> str:
    """Return what waits of a case, such as a question or which revision of a plan."""
    if case.asking is not None:
        return "a question" if case.asking.kind == "question" else "a wider scope"
    if case.is_to_merge:
        return "a branch to merge"
    if case.is_drafted:
        return "a request"
    revision = f"revision {case.revision}"
    if case.state is not State.FAILED:
        return revision
    return f"{revision}, {'its mission failed' if case.report else 'it could not be revised'}"
