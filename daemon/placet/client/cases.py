"""Collect what the journal and the vault know of cases, as typed values.

`--json` prints `asdict` of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from placet.activity import Action
from placet.agent.day_budget import day_of, used_today
from placet.agent.instruction_notes import digests_of, notes_of_agent
from placet.case.approval import ONCE_MORE, changed_instructions, changed_model
from placet.case.callout import PlanSummary, plan_summary, results_in_doubt
from placet.case.case import CASE_JSON, Asking, Case
from placet.case.estimate import Estimate, estimate
from placet.case.intents import Intent
from placet.case.life_cycle import DRAFTING, OPEN, OVER, State
from placet.case.notes import body_of, digest_of
from placet.case.question_note import question_in
from placet.case.story import more_scope
from placet.case.waiting import Hold, WaitReason, asks_about_history
from placet.chat.budget import Amount, Complexity
from placet.chat.messages import ModelErrorKind, ToolUse
from placet.client.notes import is_missing, text_if_readable
from placet.client.rows import Row, as_row
from placet.client.site import Site, find
from placet.disk.confine import Root
from placet.disk.scan import Found
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.host.answering import answer_under_way
from placet.host.clock import Clock, wall
from placet.host.intents import waiting_in
from placet.host.plugins import WORKERS, plugin
from placet.journal.costs import CallSums
from placet.journal.database import is_begun
from placet.journal.reader import Reader, open_reader
from placet.journal.writes import BodyDamaged
from placet.note.frontmatter import read_note, stamp
from placet.note.paths import QUEUES, Folder
from placet.note.paths import show as visible
from placet.plan.parse import PlanProblems, parse_plan
from placet.wording import rfc3339


@dataclass(frozen=True, slots=True)
class Asked:
    """What a case asks a person."""

    kind: str
    """`question` or `amendment`, which is a wider scope."""
    path: str
    number: int
    of: State
    """The work that waits for the answer."""
    since: str
    question: str
    """The question, or what is asked for; empty while the note cannot be read."""
    options: tuple[str, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class Carrier:
    """The state of a case's work in a team."""

    state: str
    worker: str
    since: str
    now: str = ""
    """The state in words; empty if nothing happens before a daemon runs."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a mission is."""

    step: int
    of: int
    iterations: int
    cost_usd: float | None
    """None where a price is unknown."""
    budget_usd: float | None = None
    now: str = ""
    """The call that it makes at this moment."""
    now_s: float = 0.0
    """Seconds since its last event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLine:
    """A case, and what the journal has of its work. Paths are those in the vault."""

    request_id: str
    trace_id: str
    state: State
    title: str
    agent: str
    portal: str
    priority: int
    revision: int
    since: str
    age_s: float
    request: str
    plan: str
    branch: str
    commit: str
    became: str
    report: str
    failure: str
    approved_by: str
    intent: str
    """The decision that the daemon has not performed yet; empty for none."""
    paused: bool
    """Work on it has not begun, because all work is paused."""
    asking: Asked | None
    estimate: Estimate | None
    summary: PlanSummary | None
    notice: str
    carrier: Carrier | None
    doubts: tuple[str, ...] = ()
    """Of a completed mission: planned commands without success, and tests that it changed."""
    checks_failed: bool = False
    """Of a completed mission: whether a planned command failed last, or never ran."""
    begun: bool | None = None
    """While a plan is written: whether the work has a record yet."""
    model_trouble: str | None = None
    """Why the last call of the model failed, while work is due."""
    progress: Progress | None = None
    """Of a mission that runs."""
    answer: str = ""
    """What its model does now, if an answer takes long."""
    needs: str = ""
    """What its work needs of a person first, or why an approval would not start it."""

    @property
    def is_drafted(self) -> bool:
        """Whether its plan is being written, or waits to be."""
        return self.begun is not None

    @property
    def is_to_merge(self) -> bool:
        """Whether its mission is done, and its branch neither merged nor dropped."""
        return self.state is State.COMPLETED and bool(self.commit) and not self.became

    @property
    def is_for_review(self) -> bool:
        """Whether what waits is a note to decide on, and not a branch or a question of settings."""
        return not self.is_to_merge and not (self.needs and self.is_drafted)

    @property
    def waits_for_you(self) -> bool:
        """Whether a person can decide on a plan, a wider scope or a question, or has to act.

        A plan that failed, or could not be revised, awaits that as it was, and a completed mission
        that its branch is merged or dropped.
        """
        if self.intent:
            return False
        if self.needs or self.is_to_merge:
            return True
        failed = self.state is State.FAILED and self.plan.startswith(f"{Folder.PLANS}/")
        return failed or self.state in (State.REVIEW, State.ASKING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCase(CaseLine):
    """A case with its notes and its journal rows."""

    daemon: bool
    journal: tuple[Row, ...]
    plan_digest: str
    receipt: str
    asking_text: str | None
    request_text: str | None
    plan_text: str | None
    report_text: str | None


@dataclass(frozen=True, slots=True)
class ModelWait:
    """Why all work waits for the model, and since when."""

    why: WaitReason
    reason: str
    since: str
    notice: str


@dataclass(frozen=True, slots=True)
class Today:
    """Today's use of the model, and the day's limits; None for no limit."""

    tokens: int
    cost_usd: float | None
    day_tokens: int | None
    day_usd: float | None
    priced_usd: float = 0.0
    """Of a cost that is not known: the part of it that is."""
    unpriced_calls: int = 0
    """Calls whose price is not known."""


@dataclass(frozen=True, slots=True)
class WaitingIntent:
    """What a command asked for that the daemon has not answered."""

    id: str
    what: str
    trace_id: str
    by: str
    via: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The daemon's work: itself, each case that is not over, and those that ended last."""

    vault: str
    daemon: str | None
    provider: str
    model: str
    server: str
    """Who answers for the model: host and port, else the provider. The three are empty where the
    configuration cannot be used.
    """
    paused: bool
    waits: ModelWait | None
    stuck: tuple[str, ...]
    cases: tuple[CaseLine, ...]
    earlier: int
    """Cases that are left out: they are over, and have no note in a watched folder."""
    unaccepted: tuple[str, ...]
    explained: Mapping[str, str]
    """Why notes cannot be used, by path."""
    changed: int
    """Notes changed since the last event; 0 while a daemon runs."""
    intents: tuple[WaitingIntent, ...]
    today: Today

    @property
    def waiting(self) -> list[CaseLine]:
        """The cases that wait for you, what is asked first, what can be merged last."""
        return [case for case in self.cases if case.waits_for_you]

    @property
    def unusable(self) -> dict[str, str]:
        """Why notes that belong to no case cannot be used, by path."""
        used = {
            visible(path)
            for case in self.cases
            for path in (case.request, case.plan, case.report, case.asking and case.asking.path)
            if path
        }
        return {path: why for path, why in self.explained.items() if path not in used}


def last_moment(reader: Reader) -> str:
    """Return the time of the journal's last event (RFC 3339), or an empty string."""
    return "".join(row.timestamp for row in reader.activity(limit=1, newest=True))


def count_changed(notes: Iterable[Found], since: str) -> int:
    """Return how many of these files changed, or were moved, after the time `since` (RFC 3339)."""
    since_ns = datetime.fromisoformat(since).timestamp() * 1e9 if since else 0.0
    # A move keeps the time of the last change of a file's text, and sets the other one.
    times = (max(one.fingerprint.mtime_ns, one.fingerprint.ctime_ns) for one in notes)
    return sum(time_ns > since_ns for time_ns in times)


def asked_of(folder: Vault, reader: Reader, case: Case) -> Asked | None:
    """Return what a case asks a person; None where it asks nothing."""
    if (asking := case.asking) is None:
        return None
    raw = text_if_readable(folder, asking.path)
    is_question = not asking.amended
    asked = question_in(raw) if raw is not None and is_question else ""
    return Asked(
        "question" if is_question else "amendment",
        asking.path,
        asking.number,
        asking.work,
        asking.asked_at,
        asked if is_question else _wider(reader, case, asking),
        asking.options,
        asking.digest,
    )


def _wider(reader: Reader, case: Case, asking: Asking) -> str:
    """Return what is asked for besides the approved scope, on one line."""
    row = reader.last_of(Action.PLAN_AMENDMENT_REQUESTED, trace_id=case.trace_id)
    return "" if row is None or row.details["number"] != asking.number else more_scope(row.details)


AT_WORK = "at work"
"""What a worker says of a case whose mission it runs."""


def case_line(
    site: Site, folder: Vault, reader: Reader, case: Case, asked: Mapping[str, Intent]
) -> CaseLine:
    """Return a case, and what the journal has of its work.

    `asked` are the intents that the daemon has not performed yet, by trace_id.
    """
    intent = asked.get(case.trace_id)
    team = carrier(site, reader, case)
    return CaseLine(
        request_id=case.request_id,
        trace_id=case.trace_id,
        state=case.state,
        title=case.request.title,
        agent=case.request.agent,
        portal=case.request.portal,
        priority=case.request.priority,
        revision=case.plan.revision,
        since=case.since,
        age_s=age_s(case.since),
        request=case.request_path,
        plan=case.plan.path,
        branch=case.outcome.branch if case.branch is None else case.branch.name,
        commit="" if case.branch is None else case.branch.tip,
        became="" if case.branch is None else case.branch.became,
        report=case.outcome.report_path,
        failure=case.outcome.failure,
        approved_by=_approved_by(reader, case),
        intent="" if intent is None else intent.what,
        paused=_is_paused(site, reader, case),
        asking=asked_of(folder, reader, case),
        estimate=_estimate(folder, reader, case),
        summary=_summary(folder, case),
        notice=case.notice,
        carrier=team,
        doubts=results_in_doubt(case),
        checks_failed=case.state is State.COMPLETED and bool(case.outcome.doubts),
        begun=has_begun(reader, case) if case.acting in DRAFTING else None,
        model_trouble=_model_trouble(reader, case) if case.is_working else None,
        progress=_progress(site, reader, case, team) if case.acting is State.RUNNING else None,
        answer=answer_under_way(site.state.journal.parent, case.trace_id),
        needs=needs_of(site, folder, reader, case),
    )


def needs_of(site: Site, folder: Vault, reader: Reader, case: Case) -> str:
    """Return what a person has to do before work on a case begins; empty for nothing."""
    if case.is_working and case.acting in DRAFTING:
        notices = {row.path: row.detail for row in reader.seen()}
        return asks_about_history(notices.get(visible(case.request_path), ""))
    if case.state is not State.REVIEW or not (why := shown_again(site, case)):
        return ""
    with suppress(PlanProblems):
        plan = parse_plan(body_of(text_if_readable(folder, case.plan.path) or b""))
        if all(step.actions for _, step in plan.kept):
            return ""  # it needs no model
    return why


def shown_again(site: Site, case: Case) -> str:
    """Return why placet would show an approved plan to you once more; empty if it would not.

    It shows no plan again that needs no model.
    """
    why = changed_model(case, site.configured().model.who)
    if not why:
        with suppress(OSError, UserError), Root(site.vault, writable=False) as vault:
            notes = notes_of_agent(vault, case.request.agent, [])
            why = changed_instructions(case, digests_of(notes))
    return f"{why} {ONCE_MORE}" if why else ""


def _model_trouble(reader: Reader, case: Case) -> str | None:
    """Return why the last call of the model failed; None where it did not."""
    last = reader.last_of(Action.MODEL_FAILED, Action.MODEL_CALLED, trace_id=case.trace_id)
    if last is None or last.action_type == Action.MODEL_CALLED:
        return None
    is_cancelled = last.details.get("kind") == ModelErrorKind.CANCELLED
    return None if is_cancelled else str(last.details["reason"])


def _progress(site: Site, reader: Reader, case: Case, team: Carrier | None) -> Progress:
    """Return how far a mission that runs is."""
    text = kept(reader, case.approval.digest)
    budget = None if text is None else parse_plan(read_note(text).body, None).scope.budget_usd
    rows = reader.activity(case.trace_id, limit=10_000)
    # a command of a daemon that was killed is dead
    runs = site.daemon is not None or (team is not None and team.state == AT_WORK)
    return replace(
        progress((row.action_type, row.details) for row in rows),
        budget_usd=as_float(budget),
        now=call_under_way(reader, case) if runs else "",
        now_s=age_s(rows[-1].timestamp) if rows else 0.0,
    )


def _is_paused(site: Site, reader: Reader, case: Case) -> bool:
    """Return whether work on a case has not begun because all work is paused."""
    waits = case.acting in DRAFTING or case.acting is State.APPROVED
    if not waits or case.asking is not None or not site.configured().daemon.paused:
        return False
    return not has_begun(reader, case)


def has_begun(reader: Reader, case: Case) -> bool:
    """Return whether work on a case has a record yet."""
    return any(True for _ in reader.records(case.trace_id, case.generation))


def carrier(site: Site, reader: Reader, case: Case) -> Carrier | None:
    """Return which worker of a team has a case, and how far it is; None without a team."""
    if not case.is_working or not site.configured().team.workers:
        return None
    found: Carrier | None = plugin(WORKERS, "status").carrier(site, reader, case)
    return found


def call_under_way(reader: Reader, case: Case) -> str:
    """Return the call that a mission makes now, such as a long command; empty for none."""
    from placet.agent.record import CALL, LIFE, LITERAL, Begun, Key, Recorded
    from placet.agent.tool_calls import target  # loads all tools

    calls = (f"{CALL.key}:", f"{LITERAL.key}:")
    with suppress(BodyDamaged):
        # a daemon that resumes the call writes that it began before the outcome
        lives = f"{LIFE.key}:"
        found = reader.records(case.trace_id, case.generation, last=True, but=lives)
        last = next(iter(found), None)
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


def _summary(folder: Vault, case: Case) -> PlanSummary | None:
    """Return what the plan of a case may do, None without a plan that can be read."""
    if case.state not in (State.REVIEW, State.FAILED) or not case.plan.path:
        return None
    return plan_summary(text_if_readable(folder, case.plan.path) or b"")


def _estimate(folder: Vault, reader: Reader, case: Case) -> Estimate | None:
    """Return what missions like a plan's have cost; None without a plan, or if too few are known.

    It is the estimate of the plan's box.
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
    return estimate(reader.calls.mission_costs(given), Complexity(given), budget)


def progress(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Progress:
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
    return Progress(step, of, turns, cost)


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


def waits_for_model(reader: Reader) -> ModelWait | None:
    """Return why all work waits for the model, and since when; None where it does not."""
    row = reader.last_of(Action.MODEL_WAITING, Action.MODEL_RESUMED, trace_id="")
    if row is None or row.action_type != Action.MODEL_WAITING:
        return None
    why, reason = WaitReason(row.details["why"]), row.details["reason"]
    # a key that was given may be a wrong one, and then the network may be down
    if why is WaitReason.BLOCKED:
        reason = reader.calls.failed_since(row.id) or reason
    return ModelWait(why, reason, row.timestamp, Hold(why, reason, 0.0).notice)


LATEST = 20
"""Maximum of cases that are over, the last ones of each state."""
MOST_WATCHED = 100
"""Maximum of finished cases with an unmerged or dropped branch that are read, the last ones."""


def status(site: Site) -> Status:
    """Return the daemon's work, with the defaults for settings that cannot be used."""
    state, config, daemon = site.state, site.configured(), site.daemon
    cases: list[CaseLine] = []
    earlier = 0
    unusable: dict[str, str] = {}
    stuck: list[str] = []
    today, waits = Amount(), None
    calls: tuple[CallSums, ...] = ()
    last_event = ""
    intents = waiting_in(state.intents)
    asked = {one.trace_id: one for one in intents}
    with Vault(site.vault) as folder:
        notes = folder.scan(QUEUES).found
        if is_begun(state.journal):
            with open_reader(state.journal) as reader:
                shown = _latest(reader, asked, notes)
                earlier = reader.count_cases() - len(shown)
                cases = [case_line(site, folder, reader, case, asked) for case in shown]
                now, price = Clock().wall(), config.model.pricer
                today = used_today(reader, now, price)
                if today.usd is None:
                    calls = reader.calls.sums_since(rfc3339(day_of(now)[0]), price)
                waits = waits_for_model(reader)
                unusable = {row.path: row.detail for row in reader.seen() if row.verdict}
                errors = {command.error for command in reader.pending_commands() if command.error}
                stuck = [*disk_trouble(state.journal), *sorted(errors)]
                last_event = last_moment(reader)
    return Status(
        vault=str(site.vault),
        daemon=daemon,
        provider="" if site.problem else config.model.provider,
        server="" if site.problem else config.model.server,
        model="" if site.problem else config.model.name,
        paused=config.daemon.paused,
        waits=waits,
        stuck=tuple(stuck),
        cases=tuple(sorted(cases, key=_turn)),
        earlier=earlier,
        unaccepted=tuple(site.unaccepted),
        explained=unusable,
        changed=0 if daemon else count_changed(notes.values(), last_event),
        intents=tuple(_waiting(one) for one in intents),
        today=Today(
            today.tokens,
            as_float(today.usd),
            config.limits.day_tokens or None,
            as_float(config.limits.day_usd) or None,
            sum(one.usd for one in calls),
            sum(one.unknown for one in calls),
        ),
    )


def _turn(case: CaseLine) -> tuple[bool, bool, bool, str]:
    return not case.waits_for_you, case.asking is None, case.is_to_merge, case.since


def unchanging(found: Status) -> Status:
    """Return a status without what changes by itself: ages."""
    return replace(found, cases=tuple(map(_ageless, found.cases)))


def _ageless(case: CaseLine) -> CaseLine:
    progress = None if case.progress is None else replace(case.progress, now_s=0.0)
    return replace(case, age_s=0.0, progress=progress)


def _waiting(intent: Intent) -> WaitingIntent:
    return WaitingIntent(intent.id, intent.what, intent.trace_id, intent.who, intent.via)


def _latest(reader: Reader, traces: Collection[str], paths: Collection[str]) -> list[Case]:
    """Return the cases to show.

    They are open, have a note at one of `paths` or a branch to merge, are among the last ended, or
    one of `traces`.
    """
    rows = {
        *reader.cases(*OPEN),
        *(row for over in OVER for row in reader.latest_cases(over, LATEST)),
        *reader.cases_of(traces, paths),
    }
    found = {row.trace_id: CASE_JSON.validate_json(row.body) for row in rows}
    for row in reader.latest_watched(MOST_WATCHED):
        case = CASE_JSON.validate_json(row.body)
        if case.state is State.COMPLETED and case.branch and not case.branch.became:
            found[row.trace_id] = case
    return [found[trace_id] for trace_id in sorted(found)]


def ended_about(site: Site, text: str, known: Collection[str]) -> list[CaseLine]:
    """Return finished cases whose name contains every word.

    Those with a trace_id in `known` are left out.
    """
    slugs = [re.sub("[^a-z0-9]+", "-", word).strip("-") for word in text.lower().split()]
    words = [slug for slug in slugs if slug][:10]
    if not words or not is_begun(site.state.journal):
        return []
    with Vault(site.vault) as folder, open_reader(site.state.journal) as reader:
        rows = reader.cases_about(OVER, words, LATEST)
        found = [CASE_JSON.validate_json(row.body) for row in rows if row.trace_id not in known]
        return [case_line(site, folder, reader, case, {}) for case in found]


def plans(site: Site) -> list[CaseLine]:
    """Return what waits for you: what is asked, then plans, then branches to merge."""
    return status(site).waiting


def show(site: Site, ident: str) -> ShownCase:
    """Return all there is about one case: its state, request, plan, report and journal rows."""
    asks = {one.trace_id: one for one in waiting_in(site.state.intents)}
    with Vault(site.vault) as folder, site.reader(ident) as reader:

        def text(path: str) -> bytes | None:
            return text_if_readable(folder, path) if path else None

        case = find(reader, ident)
        rows = tuple(map(as_row, reader.activity(case.trace_id, limit=10_000)))
        line = case_line(site, folder, reader, case, asks)
        approved = _plan_kept(reader, case.approval.digest) if case.approval.digest else None
        asked = kept(reader, case.request_digest) if case.request_digest else None
        plan = approved or text(case.plan.path)
        # emptied or taken away: whoever did may want it back
        is_emptied = plan is not None and not body_of(plan).strip()
        in_review = case.state is State.REVIEW
        is_gone = plan is None and in_review and is_missing(folder, case.plan.path)
        if is_emptied or is_gone or (plan is None and case.state is State.WITHDRAWN):
            plan = _last_written(reader, case) or plan
        report = text(case.outcome.report_path)
        asking = text(case.asking.path) if case.asking is not None else None
        request = text(case.request_path) or asked
    digest = case.approval.digest
    if not digest and plan and case.plan.path.startswith(QUEUES):
        digest = digest_of(case.plan.path, plan)
    return ShownCase(
        **{one.name: getattr(line, one.name) for one in fields(line)},
        daemon=site.daemon is not None,
        journal=rows,
        plan_digest=digest,
        receipt=case.outcome.receipt,
        asking_text=_decoded(asking),
        request_text=_decoded(request),
        plan_text=_decoded(plan),
        report_text=_decoded(report),
    )


def _decoded(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")


def _last_written(reader: Reader, case: Case) -> bytes | None:
    """Return a case's plan as it was published last, None where the journal has lost it."""
    row = reader.last_of(Action.PLAN_CREATED, Action.PLAN_REVISED, trace_id=case.trace_id)
    return None if row is None else _plan_kept(reader, row.details["digest"])


def _plan_kept(reader: Reader, digest: str) -> bytes | None:
    """Return a plan of the journal with the property that it was written with, for a decision."""
    raw = kept(reader, digest)
    return None if raw is None else stamp(raw, {"decision": ""})
