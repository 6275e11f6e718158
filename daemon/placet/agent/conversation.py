"""Ask the model, run its calls, record, repeat."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from placet.activity import Action, Actor
from placet.agent.instruction_notes import digests_of, notes_of_agent
from placet.agent.limits import MissionLimits
from placet.agent.model_call import ask_model
from placet.agent.prompts import (
    ALL_FILES,
    INSTRUCTIONS_RETRY_S,
    file_names,
    guidance,
    marked,
    system_prompt,
)
from placet.agent.record import CALL, OPENING, TURN, Key, Opening, Postponed, Prepared, Record
from placet.agent.tool_calls import (
    CUT_OFF,
    Tools,
    call_on_record,
    may_change,
    reads,
    run_call,
    settle_call,
)
from placet.agent.workplace import REPORTS
from placet.case.approval import changed_instructions
from placet.case.case import Case
from placet.case.waiting import WaitReason
from placet.chat.compaction import compacted, make_room
from placet.chat.guards import Effect
from placet.chat.messages import (
    Ask,
    Purpose,
    Reply,
    StopReason,
    ToolUse,
    Turn,
    Usage,
    text_block,
    user_turn,
)
from placet.chat.sizes import LEAST_WINDOW, Sizes, sizes
from placet.chat.text_calls import (
    call_text,
    called_in,
    described,
    flaw_of,
    looks_like_call,
    text_call,
    words_in,
)
from placet.disk.confine import Root
from placet.disk.path_text import Fault
from placet.errors import ToolError
from placet.plan.statement import digest_of, read_statement
from placet.secrets import redact
from placet.tools.base import Outcome, Workplace
from placet.tools.control import SUBMIT_PLAN

READERS = 8
"""How many reads run in parallel. They wait for the disk, not for a processor."""

TEXT, PLAIN = "text", "plain"
"""How tools are called without the server's help: all of them, or `submit_plan` alone."""

_MATERIAL = re.compile(r"(?:The repository has [^\n]*\n)?<(?:file path|untrusted name)=")
"""How a text of the opening begins that holds a file of the repository."""
_RESULT = re.compile(r'\A<result tool="\w*"(?: failed="true")?>|</result>\Z')
"""The tags around a result: only those count that placet wrote."""

_BROKEN_OFF = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL, StopReason.REFUSAL})
"""The answer was cut off, so a call in it may be incomplete."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What stays the same from turn to turn.

    `opening` is the first message, `tools` are those that the model is offered, and `silence` is
    the reply to a turn without a call, and to the first such turn. `context_tokens` is the model's
    context size: before it is full, old results are shortened.
    """

    purpose: Purpose
    opening: Opening
    tools: Tools
    silence: tuple[str, str]
    max_tokens: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of the model. Iterating over `calls` runs them, in order.

    Iterate to the end, or the model misses results. An outcome with `ends` set ends the
    conversation: stop iterating then.
    """

    iteration: int
    reply: Reply
    calls: Iterator[tuple[ToolUse, Outcome]]


def begin(
    limits: MissionLimits,
    place: Workplace,
    purpose: Purpose,
    tools: Tools,
    texts: Callable[[str], Sequence[str]],
    silence: str,
    example: tuple[str, Mapping[str, Any]],
    way: str = "",
) -> Conversation:
    """Return a conversation, with its opening as it is sent.

    The opening is made once, without secrets, and recorded. So a resumed conversation is the same
    byte for byte, even if notes and files changed. `texts` makes the first turn from the
    repository's AGENTS.md. `example` is a call that a silent model is shown. `way` is how tools are
    called, else as `[model]` says; the first life decides. Raises Postponed for a mission that
    would read other notes of the vault than its plan was written with: the loop looked just before,
    so a sync tool is at work.
    """
    ports, record, model = limits.ports, limits.record, limits.ports.config.model
    opening = record.get(OPENING)
    if opening is None:
        remarks: list[str] = []
        with Root(ports.vault, writable=False) as vault:
            notes = notes_of_agent(vault, record.case.request.agent, remarks)
        instructions = digests_of(notes)
        if purpose is Purpose.EXECUTE and (why := _other_notes(record.case, instructions)):
            raise Postponed(why, INSTRUCTIONS_RETRY_S, WaitReason.INSTRUCTIONS)
        way = way or model.tools
        system = system_prompt(
            PLAIN if way == PLAIN else purpose,
            notes,
            record.case.request.agent,
            model=model.name,
            sandbox=place.level.title,
            repository=record.case.request.portal or "the vault itself",
            facts=place.facts,
            knowledge=bool(record.case.request.portal) and _has_notes(place.knowledge),
            turns=limits.guards.max_iterations,
        )
        if way in (TEXT, PLAIN):
            how = described((tool.spec() for tool in tools.values()), call_text(*example))
            system = (system[0], how, *system[1:])
        first_turn = texts(guidance(place.root, remarks, model.sizes.guidance_bytes))
        if way in (TEXT, PLAIN):
            first_turn = [file_names(place, model.sizes.result_chars), *first_turn]
        told = [
            tuple(redact(text, place.secrets)[0] for text in some)
            for some in (system, first_turn, remarks)
        ]
        opening = Opening(told[0], told[1], told[2], instructions, way)
        record.settle(OPENING, opening)
    shown = _shown(example, opening, purpose)
    first = f"{silence} A call, with the parts in <> for you to fill in:\n{shown}"
    return Conversation(
        purpose, opening, tools, (silence, first), model.max_tokens, model.context_tokens
    )


def _has_notes(knowledge: Root | None) -> bool:
    """Return whether there is more than reports: Qwen2.5-Coder-1.5B reads there what is named."""
    try:
        return knowledge is not None and any(one.path != REPORTS for one in knowledge.list())
    except ToolError as error:  # a folder with more than is listed, or that may not be read
        return error.error_type == Fault.TOO_LARGE


def _other_notes(case: Case, now: Sequence[tuple[str, str]]) -> str:
    """Return why a mission cannot follow its agent's notes as they are now, or ""."""
    stated = read_statement(case.signed[-1].statement) if case.signed else None
    if stated is not None and stated.instructions != digest_of(now):
        return "the agent's notes are not those that the approval was signed for"
    return changed_instructions(case, now)


def _shown(example: tuple[str, Mapping[str, Any]], opening: Opening, purpose: Purpose) -> str:
    """Return a call as an example: it must not teach a model to write calls that do not count."""
    by_text = opening.tools in (TEXT, PLAIN)
    if by_text or (opening.tools == "auto" and purpose is not Purpose.EXECUTE):
        return call_text(*example)
    return f"`{example[0]}` with {json.dumps(example[1])}"


def rounds(
    talk: Conversation,
    place: Workplace,
    limits: MissionLimits,
    restore: Callable[[int, Sequence[ToolUse]], bool] = lambda _iteration, _uses: False,
    kept: Callable[[Key[Outcome]], None] | None = None,
) -> Iterator[Round]:
    """Let the model work, round by round, until the caller stops iterating.

    Limits are checked before each round and before each call. `restore` brings the worktree to its
    state after the first calls of a turn, and returns whether it could. With a team
    (`record.carrier`), `kept` is called after each call that may have changed files; what it
    records is committed with the outcome. Raises Stop at a limit, and the errors of `ask_model`.
    """
    record = limits.record
    case, by_text = record.case, talk.opening.tools in (TEXT, PLAIN)
    specs = () if by_text else tuple(tool.spec() for tool in talk.tools.values())
    turns, window = [talk.opening.turn], talk.context_tokens
    told, known = [*talk.opening.system], 0
    base = Ask(talk.purpose, case.request_id, case.trace_id, talk.opening.system, specs, (), 0)
    stopped: StopReason | None = None
    is_silent = in_circle = False
    for iteration in count(1):
        remarks, before = limits.before(iteration), limits.spent.last_usage
        size = sizes(window, talk.max_tokens)
        place.results.words, place.results.chars = size.result_words, size.result_chars
        if _reads_text(talk, turns):  # `_prepared` may shorten it
            told += words_in(turns[known:])
            known = len(turns)
        ask = replace(base, turns=tuple(turns), max_tokens=size.max_tokens)
        turns = _prepared(ask, iteration, remarks, size, limits, place, stopped)
        ask = replace(ask, turns=tuple(turns))
        in_circle = in_circle or limits.nudged
        ask = _with_forced_call(ask, talk, in_circle=in_circle, is_silent=is_silent)
        reply = ask_model(
            limits.ports,
            ask,
            iteration,
            record,
            limits.spent,
            limits.cancel,
            limits.room,
            partial(_written, talk, turns, told),
        )
        if reply.turn.blocks:
            turns.append(reply.turn)
        stopped, is_silent = reply.stop_reason, not reply.uses
        window = _window(window, reply, before)
        results: list[Mapping[str, Any]] = []
        yield Round(
            iteration,
            reply,
            _calls(iteration, reply, talk.tools, place, limits, restore, kept, results),
        )
        if reply.uses:
            turns.append(user_turn(results))
        elif reply.turn.blocks or stopped is not StopReason.CONTEXT_FULL:
            is_first = all(step.calls for step in limits.history.steps)
            turns += _correction(_answer_to(talk, reply, talk.silence[is_first]), stopped)
        limits.history = limits.history.with_step(stopped)


def _with_forced_call(ask: Ask, talk: Conversation, *, in_circle: bool, is_silent: bool) -> Ask:
    """Return what a planner is asked that was silent, or goes in a circle.

    A small model stays so, whatever it is told. Its server makes it call a tool, or submit a plan.
    A model that writes calls as text is not forced: behind llama-server, Qwen2.5-Coder-1.5B wrote
    a plan as text, then newlines up to `max_tokens`.
    """
    if not ask.tools or talk.purpose is Purpose.EXECUTE:
        return ask
    tools = (talk.tools[SUBMIT_PLAN.name].spec(),) if in_circle else ask.tools
    said = next((turn.text for turn in reversed(ask.turns) if turn.role == "assistant"), "")
    writes = _reads_text(talk, ask.turns) and looks_like_call(said)
    return replace(ask, tools=tools, must_call=(in_circle or is_silent) and not writes)


def _answer_to(talk: Conversation, reply: Reply, silence: str) -> str:
    """Return what a model is told whose reply has no call that counts: why, or `silence`."""
    if talk.opening.tools == "native":
        return silence
    text = reply.turn.text
    if flaw := flaw_of(text, (tool.spec() for tool in talk.tools.values())):
        return flaw
    name = called_in(text)
    if not name or name in talk.tools:
        return silence
    listed = ", ".join(f"`{one}`" for one in talk.tools)
    # a planner's way is always the same; an agent that tries to read is not shown how to write
    way = "" if talk.purpose is Purpose.EXECUTE else f"\n{silence}"
    return f"There is no tool `{name[:100]}` here. There are: {listed}.{way}"


def _correction(silence: str, stopped: StopReason) -> list[Turn]:
    return [] if stopped is StopReason.PAUSE_TURN else [user_turn([text_block(silence)])]


def _reads_text(talk: Conversation, turns: Sequence[Turn]) -> bool:
    """Return whether a call that a reply writes as text may count.

    Without `tools = "text"` none does once the server has handed on a call.
    """
    way = talk.opening.tools
    return way in (TEXT, PLAIN) or (way == "auto" and not any(turn.tool_uses for turn in turns))


def _written(
    talk: Conversation, turns: Sequence[Turn], told: Sequence[str], reply: Reply
) -> ToolUse | None:
    """Return the call that a reply wrote as text, if it counts.

    Without `tools = "text"` only what a person reviews and what reads counts. `told` is all that
    the model was ever told: it may still quote what was shortened since.
    """
    if reply.turn.tool_uses or reply.stop_reason in _BROKEN_OFF or not _reads_text(talk, turns):
        return None
    reading = {name for name, tool in talk.tools.items() if tool.effect is Effect.READ}
    others = talk.tools.keys() - reading
    if talk.opening.tools == "auto":
        others &= {SUBMIT_PLAN.name}
    opening = len(talk.opening.system) + len([*words_in([talk.opening.turn])])
    listed = (text for text in told[:opening] if text.startswith(ALL_FILES))
    names_of_files = (name for text in listed for name in text.splitlines())
    files = (text for text in told[:opening] if _MATERIAL.match(text))
    # the rest are placet's words, which name tools and steps
    results = [_RESULT.sub("", text) for text in told[opening:] if _RESULT.match(text)]
    # a call may begin in one part of a file and end in the next
    all_told = [*told, *words_in(turns[-1:]), "".join(results)]
    said, shown = reply.turn.text, [*names_of_files, *files, *results]
    # a result may name what to read next
    return text_call(said, reading, all_told) or text_call(said, others, all_told, shown)


def _window(window: int, reply: Reply, before: Usage | None) -> int:
    """Return the context that a model really has, as far as a full one shows.

    `before` is the usage of the reply before this one.
    """
    used = reply.usage if reply.turn.blocks else before
    if reply.stop_reason is not StopReason.CONTEXT_FULL or used is None or not used.prompt_tokens:
        return window
    return min(window, max(used.prompt_tokens + used.output_tokens, LEAST_WINDOW))


def _prepared(
    ask: Ask,
    iteration: int,
    remarks: Sequence[str],
    size: Sizes,
    limits: MissionLimits,
    place: Workplace,
    stopped: StopReason | None,
) -> list[Turn]:
    """Return the turns to send: with remarks, and with old results shortened if space is short.

    Both are recorded with the intent to send them, so that a resumed conversation is the same byte
    for byte.
    """
    record, keep = limits.record, place.results.keep
    decided = record.get(TURN.at(iteration))
    if decided is None:
        full = stopped is StopReason.CONTEXT_FULL
        made = make_room(ask, limits.spent.last_usage, size.prompt_tokens, keep, full=full)
        decided = Prepared(tuple(remarks), made)
        rows = []
        if made is not None:
            facts = {"iteration": iteration, **asdict(made)}
            rows.append(record.row(Action.CONVERSATION_COMPACTED, Actor.SYSTEM, **facts))
        record.settle(TURN.at(iteration), decided, *rows, hold=True)
    turns = list(ask.turns)
    if decided.compaction is not None:
        turns = list(compacted(turns, decided.compaction, keep))
    blocks = [text_block(remark) for remark in decided.remarks]
    if blocks and turns[-1].role == "user":
        turns[-1] = user_turn([*turns[-1].blocks, *blocks])
    elif blocks:
        turns.append(user_turn(blocks))
    return turns


def _calls(
    iteration: int,
    reply: Reply,
    tools: Tools,
    place: Workplace,
    limits: MissionLimits,
    restore: Callable[[int, Sequence[ToolUse]], bool],
    kept: Callable[[Key[Outcome]], None] | None,
    results: list[Mapping[str, Any]],
) -> Iterator[tuple[ToolUse, Outcome]]:
    """Run the calls of one turn in order, consecutive reads in parallel.

    `results` gets each result for the model.
    """
    record, uses = limits.record, reply.uses
    cut = reply.stop_reason in _BROKEN_OFF
    ahead: dict[int, Outcome] = {}
    for i, use in enumerate(uses):
        entry = CALL.at(iteration, i)
        if i not in ahead and not cut:
            ahead = _reads_at_once(iteration, uses, i, tools, place, record)
        outcome = record.get(entry)
        if outcome is None and cut:
            outcome = CUT_OFF
        elif outcome is None and (outcome := limits.refuse_call(use)) is not None:
            settle_call(entry, use, outcome, 0.0, place.secrets, record)
        elif outcome is None:
            keeps = record.carrier is not None and may_change(use)
            outcome = call_on_record(
                entry,
                use,
                tools,
                place,
                record,
                ahead.get(i),
                again=partial(restore, iteration, uses[:i]),
                hold=keeps or reads(tools, use),
            )
            if kept is not None and keeps and outcome.ends is None:
                kept(entry)
        if outcome.ends is None:
            limits.record_call(use, outcome)
        results += _text_result(use, outcome) if reply.written else [_result(use, outcome)]
        yield use, outcome


def _reads_at_once(
    iteration: int,
    uses: Sequence[ToolUse],
    start: int,
    tools: Tools,
    place: Workplace,
    record: Record,
) -> dict[int, Outcome]:
    """Run consecutive reads from `start` on in parallel, if there are at least two.

    A read that got no thread is missing; it runs later, in its turn.
    """
    end = start
    if record.halt is not None:
        return {}
    while end < len(uses) and not record.has(CALL.at(iteration, end)) and reads(tools, uses[end]):
        end += 1
    if end - start < 2:
        return {}
    from concurrent.futures import ThreadPoolExecutor  # an idle daemon does not need it

    done: dict[int, Outcome] = {}

    def read(at: int) -> None:
        done[at] = run_call(uses[at], tools, place, record)

    begun: list[Future[None]] = []
    readers = ThreadPoolExecutor(min(READERS, end - start), thread_name_prefix="read")
    # the pool still runs what it accepted before it ran out of threads
    with readers as pool, suppress(RuntimeError):
        begun.extend(pool.submit(read, at) for at in range(start, end))
    for one in begun:
        one.result()
    return done


def _image(outcome: Outcome) -> list[Mapping[str, Any]]:
    source = {"type": "base64", "media_type": "image/png", "data": outcome.image}
    return [{"type": "image", "source": source}] if outcome.image else []


def _text_result(use: ToolUse, outcome: Outcome) -> list[Mapping[str, Any]]:
    """Return the result of a call that was written as text: the server knows of no call."""
    failed = "" if outcome.ok else ' failed="true"'
    text = marked("result", outcome.content, f' tool="{use.name}"{failed}')
    return [text_block(text), *_image(outcome)]


def _result(use: ToolUse, outcome: Outcome) -> dict[str, Any]:
    content: str | list[Mapping[str, Any]] = outcome.content
    if image := _image(outcome):
        content = [text_block(outcome.content), *image]
    return {
        "type": "tool_result",
        "tool_use_id": use.id,
        "content": content,
        **({} if outcome.ok else {"is_error": True}),
    }
