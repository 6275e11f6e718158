"""State what an approval would approve, and check the signature of one."""

from __future__ import annotations

import secrets
from dataclasses import replace

from placet.activity import Action
from placet.agent.instruction_notes import digests_of, notes_of_agent
from placet.agent.ports import Ports
from placet.case.approval import NOT_SIGNED, approved_in, valid_plan
from placet.case.callout import complexity_in
from placet.case.case import Case, Signed
from placet.case.commands import Decision
from placet.case.events import Approving, PlanApproved
from placet.case.sorting import CaseNotes
from placet.case.transitions import target
from placet.chat.guards import iteration_cap
from placet.disk.confine import Root
from placet.errors import UserError
from placet.host.signers import NotSigned, read_list, verify
from placet.host.state import SIGNERS
from placet.loop.state import LoopState
from placet.note.frontmatter import read_note
from placet.plan.plan import agent_steps
from placet.plan.statement import FULL_COMMIT, Terms, read_statement, statement
from placet.tools.registry import PLANNABLE
from placet.wording import one_line

OTHER_TERMS = (
    "What was signed is not what would run now: the model, the agent's notes or the sandbox "
    "changed."
)
SIGN_AGAIN = "If something changed since you signed, read the plan and approve it again."


def renew_statement(state: LoopState, case: Case, its: CaseNotes) -> Decision | None:
    """Return the case with the statement that its next approval signs, None if it has that.

    `its` are its notes. A statement is written anew when a line of it changes.
    """
    settings = state.ports.config.approval
    lines = _lines_to_approve(state, case, its) if settings.is_on else ""
    now = case.to_sign
    if not lines:
        now = ""
    elif not _is_current(state.ports, now, lines):
        now = statement(lines, f"{_restored(state.ports)}-{secrets.token_hex(16)}")
    if (settings.signed, now) == (case.must_sign, case.to_sign):
        return None
    return Decision(replace(case, must_sign=settings.signed, to_sign=now), ())


def _is_current(ports: Ports, text: str, lines: str) -> bool:
    """Return whether a statement has these lines, and is of this journal."""
    stated = read_statement(text)
    return (
        stated is not None
        and stated.lines == lines
        and stated.nonce.startswith(f"{_restored(ports)}-")
    )


def _lines_to_approve(state: LoopState, case: Case, its: CaseNotes) -> str:
    """Return what the next approval of a case approves; empty where there is nothing to approve."""
    asking = case.asking
    try:
        if asking is not None and asking.amended:
            return _lines_of(state.ports, case, state.text(asking.amended))
        if len(its.plans) != 1 or its.plans[0].problem or target(case, PlanApproved) is None:
            return ""
        plan = its.plans[0]
        is_based = FULL_COMMIT.fullmatch(str(plan.meta.get("base_commit") or ""))
        approved = valid_plan(plan, PLANNABLE) if is_based else ""
        return "" if isinstance(approved, str) else _lines_of(state.ports, case, approved.text)
    except (OSError, UserError):  # the agent's notes cannot be read
        return ""


def _restored(ports: Ports) -> int:
    """Return the number of the row about the last restored journal, 0 without one."""
    with ports.journal.ask() as reader:
        last = reader.last_of(Action.JOURNAL_RECONCILED, trace_id="")
    return 0 if last is None else last.id


def _lines_of(ports: Ports, case: Case, text: bytes) -> str:
    """Return a statement's lines, without nonce, for the approval of a plan's text.

    Raises OSError or UserError where the agent's notes cannot be read.
    """
    approved, meta = approved_in(text, PLANNABLE), read_note(text).meta
    scope, model = approved.plan.scope, ports.config.model
    with Root(ports.vault, writable=False) as vault:
        agent = str(meta.get("agent") or case.request.agent)
        followed = digests_of(notes_of_agent(vault, agent, []))
    steps = agent_steps(approved.plan.steps)
    how = "" if model.tools == "auto" else f", tools as {model.tools}"
    return Terms(
        approved.digest,
        case.request_id,
        case.trace_id,
        str(meta.get("portal") or ""),
        str(meta.get("base_commit") or ""),
        f"{model.name} ({model.provider}{how})",
        int(ports.sandbox),
        followed,
        scope.budget_usd,
        iteration_cap(complexity_in(meta), scope.max_iterations, steps),
    ).lines()


def verified(state: LoopState, case: Case, approval: Approving, signature: str) -> Signed | None:
    """Return the verified signature of an approval; None for one that has none and needs none.

    Raises NotSigned for one that does not count.
    """
    ports = state.ports
    if not signature:
        if ports.config.approval.signed:
            raise NotSigned(NOT_SIGNED)
        return None
    text = approval.approved.text if isinstance(approval, PlanApproved) else b""
    now = text or state.text(case.asking.amended if case.asking is not None else "")
    try:
        is_current = _is_current(ports, case.to_sign, _lines_of(ports, case, now))
        signers = read_list(ports.worktrees.parent, SIGNERS)
    except (OSError, UserError) as error:
        raise NotSigned(one_line(str(error))) from error
    if not is_current:
        raise NotSigned(OTHER_TERMS)
    try:
        return verify(case.to_sign, signature, signers)
    except NotSigned as error:
        raise NotSigned(f"{error} {SIGN_AGAIN}") from error


def signature_problem(state: LoopState, case: Case) -> str:
    """Return why an approved plan may not start now; empty if it may.

    Its signature was verified when it was approved. What is asked here is whether the terms are
    still those, and whether the key is still accepted.

    Raises OSError or UserError where the agent's notes, or the signers, cannot be read.
    """
    ports = state.ports
    if not ports.config.approval.signed:
        return ""
    if not case.signed:
        return NOT_SIGNED
    last = case.signed[-1]
    stated = read_statement(last.statement)
    if stated is None or stated.lines != _lines_of(ports, case, state.text(case.approval.digest)):
        return OTHER_TERMS
    known = {one.fingerprint for one in read_list(ports.worktrees.parent, SIGNERS)}
    return "" if last.key in known else f"The key of {last.signer} is no longer accepted here."
