"""Run tool calls on the record: an intent before, the outcome and its journal row after."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from placet.activity import Action, Actor
from placet.agent.ports import Ports
from placet.agent.prompts import marked, plan_of
from placet.agent.record import CALL, WAITED, Begun, Key, Postponed, Record
from placet.case.case import Case
from placet.case.events import Answered, Answering, Asked, ScopeRefused, ScopeWidened
from placet.case.waiting import WaitReason
from placet.chat.guards import Effect
from placet.chat.messages import ToolUse
from placet.disk.confine import Root
from placet.disk.path_text import Denied
from placet.errors import Interrupted, PlacetError, ToolError
from placet.journal.writes import Write
from placet.note.frontmatter import Frontmatter
from placet.plan.limits import scope_excess
from placet.plan.scope import Scope, ScopeProblems, scope_from, widened
from placet.secrets import redacted
from placet.tools.arguments import Args
from placet.tools.base import Outcome, Tool, Toolbox, Workplace
from placet.tools.control import AskPerson, RequestScope
from placet.tools.registry import BY_NAME
from placet.wording import counted

MACHINE_RETRY_S = 3.0
"""Retry interval after a full disk or similar."""
MACHINE_FAULTS = frozenset({"disk_full", "io_error"})
"""Error types of the machine's faults. The model cannot fix them and is not told."""


A_FILE = {"path": "<the file>"}
NEW_FILE = {**A_FILE, "content": "<its whole text>"}
"""What a model is shown of calls of `read_file` and `write_file`."""


class AsksPerson(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """A call that waits for a person's answer; `asked` is the event for the case."""

    def __init__(self, asked: Asked) -> None:
        super().__init__("a person is asked")
        self.asked = asked


Tools = Mapping[str, Tool[Any]]


def _failed(error_type: str, message: str) -> Outcome:
    error = {"error": message, "error_type": error_type}
    return Outcome(json.dumps(error, ensure_ascii=False), ok=False, error_type=error_type)


CUT_OFF = _failed(
    "cut_off",
    "Your answer was cut off at the token limit, so this call did not run. Make smaller calls.",
)
INTERRUPTED = _failed(
    "interrupted",
    "The daemon stopped during this call, so part of it may have taken effect. "
    "Check before you repeat it.",
)


def target(use: ToolUse, secrets: Sequence[str] = ()) -> str:
    """Return a call's subject for a journal row or a report: a path, a command or a pattern.

    It is never content.
    """
    tool = BY_NAME.get(use.name)
    return "" if tool is None else tool.target(use.input, secrets)


def effect_of(name: str) -> Effect | None:
    """Return the effect of the tool of this name, None if there is no such tool."""
    tool = BY_NAME.get(name)
    return None if tool is None else tool.effect


def changes_files(name: str) -> bool:
    """Return whether a call of this tool may change files."""
    return effect_of(name) in (Effect.WRITE, Effect.EXECUTE)


def may_change(use: ToolUse) -> bool:
    """Return whether a call may change the worktree.

    `complete_step` may, as it runs the literal steps that follow.
    """
    return changes_files(use.name) or use.name == "complete_step"


def may_be_half_done(name: str) -> bool:
    """Return whether an interrupted call of this tool may have done what cannot be repeated."""
    return effect_of(name) is Effect.EXECUTE or name in ("edit_file", "delete_file")


def reads(tools: Tools, use: ToolUse) -> bool:
    """Return whether a call only reads."""
    tool = tools.get(use.name)
    return tool is not None and tool.effect is Effect.READ


def run_call(use: ToolUse, tools: Tools, place: Workplace, record: Record) -> Outcome:
    """Run a call off the record; the outcome says how long it took."""
    began = record.clock.monotonic()
    outcome = Toolbox(tools, place).dispatch(use.name, use.input)
    return replace(outcome, took_s=record.clock.monotonic() - began)


def call_on_record(
    entry: Key[Outcome],
    use: ToolUse,
    tools: Tools,
    place: Workplace,
    record: Record,
    done: Outcome | None = None,
    *,
    again: Callable[[], bool],
    hold: bool = False,
) -> Outcome:
    """Run a call between its intent and its outcome, and journal it.

    `done` is the outcome of a read that already ran; `hold` is as for `Record.settle`. An outcome
    that ends the conversation is not recorded: after a kill the call is made again.

    A call that a kill interrupted is repeated: at once if that does no harm (reading, writing a
    whole file, control calls). If it may be half done, `again` restores the worktree first; if that
    is impossible, the model is told that the call was interrupted.
    """
    record.check_halted()
    tool = tools.get(use.name)
    if record.cut_off(entry) and tool is not None and may_be_half_done(use.name) and not again():
        outcome = INTERRUPTED
    elif done is not None:
        outcome = done
    else:
        if not reads(tools, use):
            record.intend(Key(entry.key, Begun), Begun(use.name, dict(use.input)))
        try:
            outcome = run_call(use, tools, place, record)
        except AsksPerson as asks:
            raise AsksPerson(replace(asks.asked, call=entry.key)) from None
        if place.cancelled() and tool is not None and tool.effect is Effect.EXECUTE:
            raise Interrupted(f"stopped during {use.name}")
    if outcome.error_type in MACHINE_FAULTS:
        raise Postponed(json.loads(outcome.content)["error"], MACHINE_RETRY_S, WaitReason.MACHINE)
    if outcome.ends is None:
        settle_call(entry, use, outcome, outcome.took_s, place.secrets, record, hold=hold)
    return outcome


def never_written(write: Sequence[str], denied: Denied, top: Path) -> list[str]:
    """Return a problem for each entry of a scope that lets a mission write nothing.

    That is a path which no mission may write, or a folder of the repository at `top`.
    """
    found = []
    for entry in write:
        # the part before the first wildcard is a folder, or the whole path
        parts = [*takewhile(lambda part: not set(part) & set("*?["), entry.split("/"))]
        place = "/".join(parts).strip("/")
        if place and not entry.startswith("!") and denied.protects(place):
            found.append(f"scope.write: {entry} can never be written, whatever a plan says.")
        elif (
            place == entry
            and os.path.isdir(top / entry)
            and not os.path.islink(top / entry)
            and not any(one.startswith(f"{entry}/") for one in write)  # a file in its place
        ):
            found.append(f"scope.write: {entry} is a folder. Name files in it, or all: {entry}/**")
    return found


def settle_call(
    entry: Key[Outcome],
    use: ToolUse,
    outcome: Outcome,
    took_s: float | None,
    secrets: Sequence[str],
    record: Record,
    *,
    hold: bool = False,
) -> None:
    """Record a call's outcome with its row, `tool.refused` if a policy or a guard refused it.

    `took_s` is None if the daemon was killed during the call.
    """
    facts: dict[str, Any] = {
        "tool": use.name,
        "target": target(use, secrets),
        "ok": outcome.ok,
        "error_type": outcome.error_type,
    }
    action = Action.TOOL_REFUSED
    if not outcome.refused:
        action = Action.TOOL_CALLED
        facts |= {"exit_code": outcome.exit_code, "size": len(outcome.content)}
        facts |= {"hosts": list(outcome.hosts)} if outcome.hosts else {}
    facts["duration_ms"] = None if took_s is None else round(took_s * 1000, 1)
    record.settle(entry, outcome, record.row(action, Actor.AGENT, **facts), hold=hold)


# Asking a person, from a conversation. A call of `ask_person` or `request_scope` leaves the
# conversation (AsksPerson). The loop asks the person and records the answer as the call's outcome.
# Then the conversation resumes from its record, in which the call has an outcome like any other.

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

    `scope` and `root` are a mission's. Raises AsksPerson, and ToolError for too many questions and
    for permissions that no scope can give.
    """
    frontmatter = Frontmatter(ports.config.vault.frontmatter)
    if isinstance(args, AskPerson):
        most = ports.config.questions.per_mission
        calls = (Key(key, Begun) for key in record.intents if key.startswith(f"{CALL.key}:"))
        asked = [begun for begun in map(record.begun, calls) if begun is not None]
        if sum(begun.tool == "ask_person" for begun in asked) > most:  # this call included
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


def _checked(args: RequestScope, scope: Scope, root: Root) -> Scope:
    """Return the permissions that are asked for, if a plan could have them."""
    try:
        network = args.network or args.hosts
        asked = scope_from({"write": args.write, "run": args.run, "network": network})
        wider = widened(scope, asked)
    except ScopeProblems as found:
        problems = [f"{key}: {why}" for key, why in found.problems]
        raise ToolError(
            "invalid_scope", "That is not a scope that can be approved.", problems=problems
        ) from found
    if problems := scope_excess(wider):
        raise ToolError(
            "invalid_scope", "That is not a scope that can be approved.", problems=problems
        )
    if problems := never_written(asked.write, root.denied, root.path):
        raise ToolError("protected", problems[0], refused=True)
    if wider == scope:
        raise no_need(scope, "The approved plan allows all of that already.")
    return asked


def no_need(scope: Scope, why: str) -> ToolError:
    """Return the error for a wider scope that would not help, with the calls that are allowed.

    Qwen2.5-Coder-1.5B asks again and again, even to read, if it is not shown them.
    """
    ways = [f"To read a file, call `read_file` with {json.dumps(A_FILE)}."]
    if scope.write:
        allowed = ", ".join(scope.write[:3])
        is_path = len(scope.write) == 1 and not set(allowed) & set("*?[!")
        shown_call = json.dumps({**NEW_FILE, "path": allowed} if is_path else NEW_FILE)
        ways.append(f"You may write {allowed}: call `write_file` with {shown_call}.")
    shown = (way for way in ways if any(f"`{name}`" in way for name in scope.tools or ()))
    return ToolError("already_allowed", " ".join([why, *shown]))


def answered_before(ports: Ports, case: Case) -> list[str]:
    """Return a block of an opening with earlier answers of the person, "" without any."""
    with ports.journal.read() as reader:
        known = [reader.text(name) for name in case.answers]
    answers = "\n".join(text.decode() for text in known if text is not None)
    return [f"{ASKED_BEFORE}\n\n{marked('answers', answers)}"] if answers else []


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
                "network": approved.network or [str(host) for host in approved.hosts],
            }
            return _done({"approved": True, "scope": scope})
        case Answered(note=None):
            return _failed("no_answer", NO_ANSWER)
        case Answered():
            return _done({"answer": answer.text, "answered_by": answer.person.who})


def _done(result: dict[str, Any]) -> Outcome:
    return Outcome(json.dumps(result, ensure_ascii=False), ok=True)


def answer_writes(ports: Ports, case: Case, outcome: Outcome, waited_s: float) -> list[Write]:
    """Return the writes that record the call's outcome, with its row.

    `waited_s` is how long the work waited; no time limit counts it. Raises BodyDamaged for a record
    that was changed.
    """
    assert case.asking is not None, "only what is asked is answered"
    record = Record.load(ports.journal, case, case.generation, ports.clock)
    entry = Key(case.asking.call, Outcome)
    begun = record.begun(Key(case.asking.call, Begun))
    assert begun is not None, "a call is begun before it asks"
    record.settle(WAITED.at(case.asking.call), waited_s, hold=True)
    use = ToolUse(entry.key, begun.tool, begun.input)
    result = redacted(json.loads(outcome.content), ports.secrets)
    outcome = replace(outcome, content=json.dumps(result, ensure_ascii=False))
    settle_call(entry, use, outcome, waited_s, ports.secrets, record, hold=True)
    return record.writes()
