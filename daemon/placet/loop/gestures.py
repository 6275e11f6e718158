"""Decide people's gestures: those in notes, and those asked for by commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import PurePosixPath

from placet.agent.instruction_notes import agents
from placet.agent.prompts import plan_of
from placet.agent.tool_calls import answer_writes, outcome_of
from placet.case.approval import OUTDATED, is_older, refusal
from placet.case.case import Asking, Case, NoteSeen
from placet.case.commands import Decision, Move
from placet.case.decision_builder import archived_path
from placet.case.events import (
    ActiveEdited,
    Answered,
    Answering,
    ApprovalRefused,
    Approving,
    ByHand,
    Gesture,
    LeadsToPlan,
    PlanApproved,
    PlanGone,
    PlanSuperseded,
    RequestGone,
    RequestPending,
    RevisionAsked,
    ScopeWidened,
    TextLost,
)
from placet.case.explain import state_sentence
from placet.case.intents import WANTED, Change, Intent, OutdatedError, change_of, edits_of
from placet.case.life_cycle import OPEN, State
from placet.case.notes import body_of, inspect_note, trace_of
from placet.case.observe import gestures, observe
from placet.case.question_note import answer_in, is_question_note
from placet.case.request import unknown_agent, unknown_portal
from placet.case.sorting import CaseNotes
from placet.chat.budget import Limits, money_problem
from placet.chat.messages import Usage
from placet.chat.prices import cost_usd, is_free
from placet.disk.errors import Gone, Unreadable
from placet.host.intents import UnknownIntent
from placet.host.signers import NotSigned
from placet.journal.writes import AnswerIntent, BodyDamaged, Write
from placet.loop.outbox import places
from placet.loop.requests import request_in
from placet.loop.signing import verified
from placet.loop.state import LoopState
from placet.note.paths import Folder, is_utf8, numbered, show
from placet.plan.plan import Plan
from placet.secrets import redact
from placet.tools.registry import PLANNABLE
from placet.wording import local

_CANNOT = "placet cannot use the request of this plan. The note next to it says why."


def take(state: LoopState, case: Case, its: CaseNotes) -> bool | None:
    """Decide what a person did to a case's notes; return whether that was possible.

    None: they did nothing. An answer and further gestures are decided in the same look, so that no
    work runs in between.
    """
    if case.asking is not None and not its.asked:
        its = replace(its, asked=_asked_in_archive(state, case, case.asking))
    seen = _observed(state, case, its)
    gesture = None if seen is None else _if_certain(state, case, its, seen)
    if gesture is None:
        return None if seen is None else False
    done = state.apply(case, gesture, *_outcome(state, case, gesture))
    if done is not None and isinstance(gesture, Answered) and gesture.note is not None:
        take(state, state.cases[case.trace_id], replace(its, asked=[]))
    return True


def perform(state: LoopState, case: Case, its: CaseNotes, intent: Intent) -> None:
    """Do what a person decided by a command, and record the result.

    `its` are the case's notes, which show no gesture. The intent waits until it is certain that
    these are all.
    """
    ports = state.ports
    try:
        moves: tuple[Move, ...] = ()
        if intent.what == "retry" and its.request is None:
            intent, its, moves = _from_archive(state, case, intent, its)
        change = change_of(case, intent, its, local(ports.clock.now()))
        gesture = _wanted(state, case, change, intent)
        if gesture is None:
            return
    except OutdatedError as outdated:
        refuse(state, str(outdated), intent)
        return
    change = replace(change, commands=(*moves, *change.commands))
    done = AnswerIntent(intent.id, gesture.why if isinstance(gesture, ApprovalRefused) else "")
    state.apply(case, gesture, done, *_outcome(state, case, gesture), change=change)
    if isinstance(gesture, RequestPending):
        state.intake.edit_times.end(gesture.note, ports.clock.monotonic())
    state.intents.forget([intent.id])


def perform_edits(state: LoopState, case: Case, its: CaseNotes, intents: Sequence[Intent]) -> None:
    """Begin to write what people commented or ticked by commands in a plan as they read it.

    Each is answered, and journalled, once it is written. `its` are the case's notes.
    """
    for intent, change in edits_of(case, intents, its, local(state.ports.clock.now())):
        if isinstance(change, OutdatedError):
            refuse(state, str(change), intent)
        elif change.commands:
            case = state.cases[case.trace_id]
            state.record(change.before(Decision(case, ())))
        else:  # it is there already
            state.ports.journal.commit([AnswerIntent(intent.id)])
            state.intents.forget([intent.id])


def refuse(state: LoopState, why: str, *intents: Intent | UnknownIntent) -> None:
    """Record that intents are not performed, and say why."""
    state.ports.journal.commit([AnswerIntent(intent.id, why) for intent in intents])
    state.intents.forget([intent.id for intent in intents])
    state.dirty = True  # what waited for them is due
    several = f" ({len(intents)} times)" if len(intents) > 1 else ""
    state.say(f"`placet {show(intents[0].what)}` was not performed{several}: {why}")


def _wanted(state: LoopState, case: Case, change: Change, intent: Intent) -> Gesture | None:
    """Return the gesture that an intent's change is; None while that is not certain.

    Raises OutdatedError if it means nothing.
    """
    wanted = WANTED[intent.what]
    seen = gestures(case, change.notes, PLANNABLE)
    found = next((one for one in seen if isinstance(one, wanted)), None)
    if found is None:
        note = next(iter(change.notes.plans), change.notes.request)
        known = intent.what != "answer" and refusal(case, note, intent.what, PLANNABLE)
        raise OutdatedError(known or f"{state_sentence(case)}. Nothing was changed.")
    if isinstance(found, ByHand):
        found = replace(found, person=intent.person)
    if isinstance(found, Approving):
        try:
            found = replace(found, signed=verified(state, case, found, intent.signature))
        except NotSigned as error:
            if isinstance(found, ScopeWidened):
                raise OutdatedError(str(error)) from error
            return ApprovalRefused(found.note, str(error), intent.person)
    gesture = _fill_in(state, case, found)
    if gesture is None and state.intake.is_certain and state.intake.all_plans_read:
        request = change.notes.request
        why = request_in(state, request) if request is not None else ""
        raise OutdatedError(why if isinstance(why, str) and why else _CANNOT)
    return gesture


def _from_archive(
    state: LoopState, case: Case, intent: Intent, its: CaseNotes
) -> tuple[Intent, CaseNotes, tuple[Move, ...]]:
    """Return an intent and its notes as if the request was back among the requests."""
    vault, name = state.vault, PurePosixPath(intent.path).name
    try:
        raw, _ = vault.read(intent.path)
    except Unreadable as error:
        raise OutdatedError(f"{show(intent.path)} cannot be read: {error}") from error
    if not intent.path.startswith(f"{Folder.ARCHIVE}/") or trace_of(raw) != case.trace_id:
        raise OutdatedError(f"{show(intent.path)} is not the request of {case.request_id}.")
    found = vault.scan([Folder.REQUESTS]).found
    names = (numbered(f"{Folder.REQUESTS}/{name}", number) for number in count(1))
    home = next(path for path in names if path not in found)
    request = inspect_note(home, raw, vault.owner(intent.path))
    moves = (Move(intent.path, home),)
    return replace(intent, path=home), replace(its, request=request), moves


def _asked_in_archive(state: LoopState, case: Case, asking: Asking) -> list[NoteSeen]:
    """Return a question that a person answered and then moved to the archive themselves."""
    path = f"{Folder.ARCHIVE}/{PurePosixPath(asking.path).name}"
    try:
        raw, _ = state.vault.read(path)
    except Unreadable:
        return []
    note = replace(inspect_note(asking.path, raw), path=path)
    is_it = note.trace_id == case.trace_id and note.asks and is_question_note(note, asking)
    is_answered = is_it and not asking.amended and bool(answer_in(note, asking.options).text)
    return [note] if is_answered else []


def _outcome(state: LoopState, case: Case, gesture: Gesture) -> list[Write]:
    """Return the writes that give an answer to the call that waits for it, if it is one.

    Nothing for a damaged record: the work finds that when it resumes, and stops.
    """
    if not isinstance(gesture, Answering):
        return []
    ports, asking = state.ports, case.asking
    assert asking is not None, "only what is asked is answered"
    since = datetime.fromisoformat(asking.asked_at)
    waited_s = max(0.0, (ports.clock.wall() - since).total_seconds())
    with suppress(BodyDamaged):
        return answer_writes(ports, case, outcome_of(gesture), waited_s)
    return []


def acknowledge_places(state: LoopState, case: Case, notes: CaseNotes) -> None:
    """Remember where a case's notes are now.

    A renamed note is not a gesture, but commands need its place. Another request may have the
    place of one that was taken away after its case ended.
    """
    request_path, plan_path = case.request_path, case.plan.path
    # an empty one was archived, or taken away
    if request_path and notes.request is not None and is_utf8(notes.request.path):
        request_path = notes.request.path
    elif request_path and notes.request is None and case.state not in OPEN:
        is_gone = state.intake.absent(case.trace_id, request_path)
        request_path = "" if is_gone else request_path
    if plan_path and len(notes.plans) == 1 and is_utf8(notes.plans[0].path):
        plan_path = notes.plans[0].path
    asking = case.asking
    if asking is not None and len(notes.asked) == 1 and is_utf8(notes.asked[0].path):
        asking = replace(asking, path=notes.asked[0].path)
    file = case.unstamped
    if file is not None and notes.request is not None:
        file = notes.request.file
    now = (request_path, plan_path, asking, file)
    if now != (case.request_path, case.plan.path, case.asking, case.unstamped):
        plan = replace(case.plan, path=plan_path)
        moved = replace(case, request_path=request_path, plan=plan, asking=asking, unstamped=file)
        state.record(Decision(moved, ()))


def _observed(state: LoopState, case: Case, its: CaseNotes) -> Gesture | None:
    """Return the gesture that a case's notes show."""
    if case.state in (State.COMPLETED, State.WITHDRAWN):
        its = _without_copies(state, case, its)
    return observe(case, its, PLANNABLE)


def _if_certain(state: LoopState, case: Case, its: CaseNotes, seen: Gesture) -> Gesture | None:
    """Return the gesture that a case's notes show, once it is certain; None while it is not."""
    if isinstance(seen, Answered) and _may_be_unfinished(state, seen):
        # what stops work does not wait for it; a new plan does, as it is to know the answer
        other = _observed(state, case, replace(its, asked=[]))
        if other is None or isinstance(other, Answering | LeadsToPlan):
            return None
        seen = other
    return _fill_in(state, case, seen)


def _fill_in(state: LoopState, case: Case, gesture: Gesture) -> Gesture | None:
    """Return a gesture with what the journal and the settings say; None if it must wait."""
    if isinstance(gesture, Approving):
        if not state.intake.all_plans_read:
            return None  # a file that came just now may be another plan of this case
        if state.ports.config.approval.signed and gesture.signed is None:
            return None
    if isinstance(gesture, Answering):
        return _answer(state, case, gesture)
    if isinstance(gesture, LeadsToPlan):
        return _with_keys(state, case, gesture)
    if isinstance(gesture, PlanApproved):
        return _approval(state, case, gesture)
    if isinstance(gesture, ActiveEdited):
        return replace(gesture, approved=body_of(state.text_to_show(case.approval.digest)))
    if isinstance(gesture, PlanSuperseded):
        newest = state.text_to_show(case.plan.digest)
        return replace(gesture, newest=newest) if newest else None  # that text is lost
    if isinstance(gesture, ApprovalRefused):
        return _refusal(state, case, gesture)
    if isinstance(gesture, RequestGone):
        return gesture if state.intake.absent(case.trace_id, case.request_path) else None
    if isinstance(gesture, PlanGone) or gesture.note is None:
        return gesture if state.intake.absent(case.trace_id, case.plan.path) else None
    return gesture


def _without_copies(state: LoopState, case: Case, its: CaseNotes) -> CaseNotes:
    """Return the notes without plans that came back by a sync tool: a move empties a place."""
    back = [plan for plan in its.plans if plan.folder is Folder.PLANS]
    archived = next(_archived(state, case), "") if back else ""
    if not archived:
        return its
    state.intake.unplanned |= {
        plan.path: f"This is a copy of `{archived}`, a finished plan. To review that plan "
        "again, move it here. Delete this copy."
        for plan in back
    }
    return replace(its, plans=[plan for plan in its.plans if plan not in back])


def _archived(state: LoopState, case: Case) -> Iterator[str]:
    """Yield the paths in the archive of the case's last plan."""
    for place in places(archived_path(case), case):
        try:
            raw, _ = state.vault.read(place)
        except Gone:
            return
        except Unreadable:
            continue
        if trace_of(raw) == case.trace_id:
            yield place


def _may_be_unfinished(state: LoopState, gesture: Answered) -> bool:
    """Return whether the answer may still be unfinished."""
    if gesture.note is None or gesture.chosen:
        return False
    return state.intake.left_s(gesture.note.path) > 0


def _answer(state: LoopState, case: Case, gesture: Answering) -> Gesture | None:
    """Return a person's answer, or that the question was taken away, once that is certain."""
    asking, note = case.asking, gesture.note
    assert asking is not None, "only what is asked is answered"
    if note is None:
        return gesture if state.intake.absent(case.trace_id, asking.path, asks=True) else None
    if isinstance(gesture, Answered):
        return replace(gesture, text=redact(gesture.text, state.ports.secrets)[0])
    if isinstance(gesture, ScopeWidened):
        try:
            written = state.text(asking.amended)
        except BodyDamaged as damaged:
            why = f"The journal is not as it was written: {damaged.what}."
            plan = gesture.plan
            return None if plan is None else TextLost(plan, why)
        return replace(gesture, level=int(state.ports.sandbox), written=written)
    return gesture


def _approval(
    state: LoopState, case: Case, gesture: PlanApproved
) -> PlanApproved | ApprovalRefused:
    """Return an approval with the text that it is compared with, or as a refused one."""
    note = gesture.note
    if why := _unusable(state, case, note, gesture.approved.plan):
        return ApprovalRefused(note, why, gesture.person)
    # A person may have put this plan together for a case that had none: then there is no text
    # of the daemon's, and every line is theirs.
    known = case.plan.digest if note.digest != case.plan.digest else ""
    level = int(state.ports.sandbox)
    return replace(gesture, level=level, written=state.text_to_show(known))


def _refusal(state: LoopState, case: Case, gesture: ApprovalRefused) -> ApprovalRefused:
    """Return a refusal with what else is wrong, and with the newer revision if there is one."""
    note = gesture.note
    if (case.state, note.folder) == (State.REVIEW, Folder.PLANS) and is_older(case, note):
        return replace(gesture, newest=state.text_to_show(case.plan.digest))
    if gesture.why != OUTDATED:
        return gesture
    why = [_unusable(state, case, note, plan_of(note.raw)), OUTDATED]
    return replace(gesture, why="\n".join(filter(None, why)))


def _unusable(state: LoopState, case: Case, note: NoteSeen, plan: Plan) -> str:
    """Return why a readable plan cannot run, or an empty string."""
    if why := _unpayable(state, plan):
        return why
    meta, ports = note.meta, state.ports
    wrong = [
        *unknown_agent(str(meta.get("agent") or case.request.agent), agents(ports.vault)),
        *unknown_portal(str(meta.get("portal") or ""), ports.config.portals),
    ]
    return "\n".join(wrong)


def _unpayable(state: LoopState, plan: Plan) -> str:
    """Return why a plan's money limit cannot be kept, or an empty string.

    An unknown price is not guessed.
    """
    ports = state.ports
    model = ports.config.model
    price = cost_usd(Usage(), model.name, ports.prices, free=is_free(model.provider))
    limits = Limits(usd=plan.scope.budget_usd)
    return money_problem(limits, model.name, price_known=price is not None) or ""


def _with_kept_keys(state: LoopState, case: Case, gesture: LeadsToPlan) -> Gesture:
    """Return a gesture with the keys of the request as it was read last, if it has any.

    An approval took those of the plan.
    """
    raw = state.text_to_show(case.request_digest)
    note = inspect_note(case.request_path or f"{Folder.REQUESTS}/{case.request_id}.md", raw)
    asked = request_in(state, note) if raw and not note.is_plan else ""
    return gesture if isinstance(asked, str) else replace(gesture, asked=asked)


def _with_keys(state: LoopState, case: Case, gesture: LeadsToPlan) -> Gesture | None:
    """Return a gesture that leads to a plan, with the request as it is now.

    None, with the reason in `unplanned`, if the request cannot be used.
    """
    note = gesture.request if isinstance(gesture, RevisionAsked) else gesture.note
    if note is None:
        return _with_kept_keys(state, case, gesture)
    asked = request_in(state, note)
    if not isinstance(asked, str):
        return replace(gesture, asked=asked)
    state.intake.unplanned[note.path] = (
        f"{asked}\nNothing is planned from it until that is fixed; earlier decisions hold."
    )
    if isinstance(gesture, RevisionAsked):
        state.intake.unplanned[gesture.note.path] = (
            f"placet revises this plan once the request `{show(note.path)}` is fixed. The note "
            "next to the request says what is wrong."
        )
    return None
