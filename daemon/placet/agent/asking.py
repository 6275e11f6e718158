"""Asking a person, from a conversation: the call stands still, and its answer comes from the loop.

A call of `ask_person` or `request_scope` leaves the conversation (AsksPerson). The loop puts the
question before a person, and writes the answer down as the call's outcome. The conversation is then
taken up from its record, in which the call has an outcome like any other.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from placet.agent.entries import CALL, WAITED, Begun, Key
from placet.agent.prompts import marked, plan_of
from placet.agent.record import Record
from placet.agent.tool_calls import AsksPerson, settle_call
from placet.agent.workplace import Ports
from placet.case.case import Case
from placet.case.events import Asked
from placet.chat.messages import ToolUse
from placet.core.life.gestures import Answered, Answering, ScopeRefused, ScopeWidened
from placet.core.text.blocks import Frontmatter
from placet.core.wording import counted
from placet.disk.confine import Root
from placet.errors import ToolError
from placet.journal.writes import Write
from placet.plan.limits import scope_excess
from placet.plan.scope import Scope, ScopeProblems, scope_from
from placet.plan.widening import widened
from placet.secrets import redacted
from placet.tools.arguments import Args
from placet.tools.base import Outcome
from placet.tools.control import AskPerson, RequestScope

ASKED_BEFORE = (
    "The person was asked these questions before, about this request. Their answers hold. Do not "
    "ask them again."
)
NO_ANSWER = (
    "The person took the question away without an answer. Go on with what you know, or give up."
)


def ask(
    args: Args, record: Record, ports: Ports, scope: Scope | None = None, root: Root | None = None
) -> None:
    """Leave the conversation if this call asks a person; return for any other.

    `scope` and `root` are a mission's. Raises AsksPerson, and ToolError for what no person is
    asked: too many questions, and permissions that no scope can give.
    """
    frontmatter = Frontmatter(ports.config.vault.frontmatter)
    if isinstance(args, AskPerson):
        most = ports.config.questions.per_mission
        if _asked_so_far(record) > most:
            raise ToolError(
                "too_many_questions",
                f"No more than {counted(most, 'question')} may be asked. Decide it yourself, or "
                "end with what you know.",
                refused=True,
            )
        raise AsksPerson(
            Asked(
                record.attempt,
                question=args.question,
                options=tuple(args.options),
                why=args.why,
                frontmatter=frontmatter,
            )
        )
    if isinstance(args, RequestScope) and scope is not None and root is not None:
        wider = _checked(args, scope, root)
        raise AsksPerson(Asked(record.attempt, why=args.why, wider=wider, frontmatter=frontmatter))


def _asked_so_far(record: Record) -> int:
    """Return the number of questions, that of the call under way among them."""
    calls = (Key(key, Begun) for key in record.intents if key.startswith(f"{CALL.key}:"))
    return sum(
        begun is not None and begun.tool == "ask_person" for begun in map(record.begun, calls)
    )


def _checked(args: RequestScope, scope: Scope, root: Root) -> Scope:
    """Return the permissions that are asked for, if a plan could have them."""
    try:
        asked = scope_from({"write": args.write, "run": args.run, "network": args.network})
        wider = widened(scope, args.write, args.run, network=args.network)
    except ScopeProblems as found:
        problems = [f"{key}: {why}" for key, why in found.problems]
        raise ToolError(
            "invalid_scope", "That is no scope that can be approved.", problems=problems
        ) from found
    if problems := scope_excess(wider):
        raise ToolError(
            "invalid_scope", "That is no scope that can be approved.", problems=problems
        )
    for path in asked.by_name():
        if root.denied.protects(path):
            raise ToolError(
                "protected", f"{path} can never be written, whatever a plan says.", refused=True
            )
    if wider == scope:
        raise ToolError("already_allowed", "The approved plan allows all of that already.")
    return asked


def answered_before(ports: Ports, case: Case) -> list[str]:
    """Return a block of an opening with what a person answered before; empty without any."""
    with ports.journal.read() as reader:
        known = [reader.text(name) for name in case.answers]
    said = "\n".join(text.decode() for text in known if text is not None)
    return [f"{ASKED_BEFORE}\n\n{marked('answers', said)}"] if said else []


def outcome_of(answer: Answering) -> Outcome:
    """Return a person's answer as the outcome of the call that waits for it."""
    match answer:
        case ScopeRefused():
            why = answer.why or "no reason was given"
            return _failed("scope_rejected", f"A person rejected the wider scope: {why}")
        case ScopeWidened():
            approved = plan_of(answer.written).scope
            scope = {
                "write": list(approved.write),
                "run": list(approved.commands),
                "network": approved.network,
            }
            return _done({"approved": True, "scope": scope})
        case Answered(note=None):
            return _failed("no_answer", NO_ANSWER)
        case Answered():
            return _done({"answer": answer.text, "answered_by": answer.hand.who})


def _done(result: dict[str, Any]) -> Outcome:
    return Outcome(json.dumps(result, ensure_ascii=False), ok=True)


def _failed(error_type: str, message: str) -> Outcome:
    error = {"error": message, "error_type": error_type}
    return Outcome(json.dumps(error, ensure_ascii=False), ok=False, error_type=error_type)


def settled(ports: Ports, case: Case, outcome: Outcome, waited_s: float) -> list[Write]:
    """Return the writes that give the call its outcome, with its row; the loop records them.

    `waited_s` is how long the work stood still: no limit of time counts it. Raises BodyDamaged for
    a record that is not as it was written.
    """
    assert case.asking is not None, "only what is asked is answered"
    record = Record.load(ports.journal, case, case.generation, ports.clock)
    entry = Key(case.asking.call, Outcome)
    begun = record.begun(Key(case.asking.call, Begun))
    assert begun is not None, "a call is begun before it asks"
    record.settle(WAITED.at(case.asking.call), waited_s, hold=True)
    use = ToolUse(entry.key, begun.tool, begun.input)
    said = redacted(json.loads(outcome.content), ports.secrets)
    outcome = replace(outcome, content=json.dumps(said, ensure_ascii=False))
    settle_call(entry, use, outcome, waited_s, ports.secrets, record, hold=True)
    return record.held
