"""Call the model, and record the worst case before and the reply after."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import Any

from placet.activity import Action, Activity, Actor
from placet.agent.ports import Ports
from placet.agent.record import (
    ATTEMPT,
    NO_IMAGES,
    PLACE,
    REPLY,
    Attempted,
    Key,
    Postponed,
    Record,
    Replied,
)
from placet.agent.tool_calls import MACHINE_RETRY_S
from placet.case.mission_result import Spent
from placet.case.waiting import WaitReason
from placet.chat.budget import Amount, Room
from placet.chat.cancel import Cancel
from placet.chat.messages import (
    Ask,
    Model,
    ModelError,
    ModelErrorKind,
    Purpose,
    Reply,
    StopReason,
    ToolUse,
    Turn,
    Usage,
)
from placet.chat.prices import Price, cost_usd, is_free
from placet.chat.retry import Blocked, NoRetry, Retry, Sleep, next_attempt
from placet.chat.sizes import LEAST_WINDOW
from placet.chat.tiny_call import TINY, without_images
from placet.disk.files import free_bytes
from placet.errors import End, Interrupted, Stop, UserError
from placet.host.answering import answer_shown
from placet.journal.writes import BodyDamaged
from placet.secrets import redact
from placet.wording import one_line

LEAST_FREE_BYTES = 16 * 1024 * 1024
"""Free space below which no model is called: the reply and its effects must be recorded."""
BLOCKED_RETRY_S = 60.0
"""Retry interval of work that waits for a person to fix the model."""


def ask_model(
    ports: Ports,
    ask: Ask,
    turn: int,
    record: Record,
    spent: Spent,
    cancel: Cancel,
    room: Callable[[Ask], AbstractContextManager[Room]],
    written: Callable[[Reply], ToolUse | None] = lambda _reply: None,
) -> Reply:
    """Return the model's reply to `ask`, the `turn`-th: the recorded one, or a new one.

    `room` reserves the worst case of an attempt, or raises Stop or Postponed if there is no room. A
    failed attempt that the server may have worked on counts with its whole reservation. `spent` is
    added to; `model.called` is journalled in the transaction that records the reply. A call is
    cancelled when the time of its room ends. `written` finds a call in the reply's text. The
    reply to a prompt that does not fit the context is empty; the first one raises Stop.

    Raises Postponed if waiting longer would block a worker for nothing, and on a disk with less
    than LEAST_FREE_BYTES free; Interrupted when `cancel` is set; Stop(model_error) if no retry can
    help.
    """
    attempts, failed = _earlier_attempts(ask, turn, record, spent)
    if (known := record.get(REPLY.at(turn))) is not None:
        _spend(spent, known)
        return known.reply
    record.check_halted()
    alike, said = 0, ""
    while True:
        attempts += 1
        _must_have_space(ports.journal.path.parent)
        if record.has(NO_IMAGES):
            ask = replace(ask, turns=without_images(ask.turns))
        with room(ask) as held:
            entry = ATTEMPT.at(turn, attempts)
            found = _attempt(ports, ask, entry, record, held, cancel, written)
            if isinstance(found, _Failed):
                _settle_failed(record, ask.purpose, turn, attempts, found, spent)
            else:
                return _settle_reply(record, ask.purpose, turn, found, spent)
        error = found.error
        if cancel.is_set():
            raise Interrupted(str(error)) from error
        if error.kind is ModelErrorKind.CANCELLED:
            continue  # its time was over; `room` raises Stop
        alike, said = (alike + 1 if said == str(error) else 1), str(error)
        suspect = _suspect_after(error)
        if suspect and alike > suspect:
            _leave_out_images(ask, error, record)
            said = ""
        elif alike == suspect:
            attempts += 1
            tiny = replace(TINY, purpose=ask.purpose)
            with room(tiny) as held:
                _ask_tiny(ports, tiny, (turn, attempts), record, held, cancel, spent)
        else:
            failed += error.kind is ModelErrorKind.TRANSIENT
            _wait(error, max(failed, 1), ports, record, cancel)


def _settle_reply(
    record: Record, purpose: Purpose, turn: int, found: tuple[Replied, Model], spent: Spent
) -> Reply:
    replied, model = found
    _spend(spent, replied)
    rows = [_called_row(record, purpose, model, replied, spent.replies)]
    rows += _tell_unreported(record, replied)
    record.settle(REPLY.at(turn), replied, *rows)
    return replied.reply


def _wait(error: ModelError, attempt: int, ports: Ports, record: Record, cancel: Cancel) -> None:
    """Wait until the next attempt. If there is none, raise the errors of `ask_model`."""
    jitter = random.random()  # noqa: S311 - nothing secret
    match next_attempt(error, attempt, ports.retry, jitter):
        case Retry(after_s):
            if not record.clock.wait(after_s, cancel.is_set):
                raise Interrupted("stopped while waiting for the model") from error
        case Sleep(after_s, asked):
            raise Postponed(
                str(error),
                after_s,
                WaitReason.ASKED_TO_WAIT if asked else WaitReason.UNREACHABLE,
            ) from error
        case Blocked(reason):
            raise Postponed(reason, BLOCKED_RETRY_S, WaitReason.BLOCKED) from error
        case NoRetry(reason):
            raise Stop(_ENDS.get(error.kind, End.MODEL_ERROR), reason) from error


_ENDS = {ModelErrorKind.CONTEXT_FULL: End.CONTEXT_FULL}


def _as_read(reply: Reply, held: Room, written: Callable[[Reply], ToolUse | None]) -> Reply:
    """Return a reply with the call that it wrote as text, and with its true stop reason.

    An answer that was cut off with fewer tokens than it might have had filled the context.
    """
    used = reply.usage
    if (
        reply.stop_reason is StopReason.MAX_TOKENS
        and used.output_tokens < held.max_tokens
        and used.prompt_tokens + used.output_tokens >= LEAST_WINDOW
    ):
        return replace(reply, stop_reason=StopReason.CONTEXT_FULL)
    return replace(reply, written=written(reply))


def _spend(spent: Spent, replied: Replied) -> None:
    spent.add(replied.reply.usage, replied.cost_usd, replied.took_s)
    spent.lose(replied.unreported)


_ALIKE = 3
"""After so many equal answers that a retry often mends, the prompt may be the cause."""
_MAY_BE_THE_PROMPT = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""What a firewall, and a router without a model for images, answer to a prompt."""


def _suspect_after(error: ModelError) -> int:
    """Return after how many equal answers the prompt may be the cause; 0 for never.

    LiteLLM says 400 to a wrong key, llama-server 500 to an image. A tiny request tells which it is.
    The prompt is at fault if its next answer is the same: a server may have come back meanwhile.
    """
    refused = error.kind is ModelErrorKind.BAD_REQUEST and error.status is not None
    if refused or error.status in _MAY_BE_THE_PROMPT:
        return 1
    is_500 = error.status == HTTPStatus.INTERNAL_SERVER_ERROR
    return _ALIKE if is_500 or error.unusable else 0


def _ask_tiny(
    ports: Ports,
    tiny: Ask,
    at: tuple[int, int],
    record: Record,
    held: Room,
    cancel: Cancel,
    spent: Spent,
) -> None:
    """Return if the model answers a tiny request, so that the failed one is the prompt's fault.

    It is recorded as an attempt, the second of `at`, at the turn's reply.

    Raises Postponed if that fails, too: the settings are wrong, or the server is down.
    """
    entry = ATTEMPT.at(*at)
    found = _attempt(ports, tiny, entry, record, held, cancel, lambda _reply: None)
    if not isinstance(found, _Failed):
        replied, model = found
        usage = replied.reply.usage
        used = Amount(usage.prompt_tokens + usage.output_tokens, replied.cost_usd, replied.took_s)
        row = _called_row(record, tiny.purpose, model, replied, spent.replies)
        spent.lose(used + replied.unreported)
        record.settle(entry, Attempted(used + replied.unreported), row)
        return
    _settle_failed(record, tiny.purpose, *at, found, spent)
    error = found.error
    if cancel.is_set() or error.kind is ModelErrorKind.CANCELLED:
        raise Interrupted(str(error)) from error
    if error.kind is ModelErrorKind.TRANSIENT:
        raise Postponed(str(error), BLOCKED_RETRY_S, WaitReason.UNREACHABLE) from error
    reason = str(error)
    if error.kind is not ModelErrorKind.PERMANENT:  # which says what to check
        reason += ". A tiny request fails, too. Check the server and [model]: placet doctor"
    raise Postponed(reason, BLOCKED_RETRY_S, WaitReason.BLOCKED) from error


def _leave_out_images(ask: Ask, error: ModelError, record: Record) -> None:
    """Record that images are sent as text from now on. Raises Stop if the prompt has none."""
    if without_images(ask.turns) == ask.turns:
        what = f"{error}. The model answers other requests: only this one fails"
        raise Stop(End.MODEL_ERROR, what) from error
    why = "The model's server refused an image, so placet sends text in its place."
    helps = "To let it see images, choose a model that reads them."
    record.settle(NO_IMAGES, str(error), record.failure("images", why, helps))


def _must_have_space(folder: Path) -> None:
    """Raise Postponed while the journal's disk is nearly full."""
    if free_bytes(folder) < LEAST_FREE_BYTES:
        why = f"The disk of {folder} has less than {LEAST_FREE_BYTES >> 20} MB free"
        raise Postponed(why, MACHINE_RETRY_S, WaitReason.MACHINE)


@dataclass(frozen=True, slots=True)
class _Failed:
    error: ModelError
    attempted: Attempted


def _attempt(
    ports: Ports,
    ask: Ask,
    entry: Key[Attempted],
    record: Record,
    held: Room,
    cancel: Cancel,
    written: Callable[[Reply], ToolUse | None],
) -> tuple[Replied, Model] | _Failed:
    """Make one call, after recording its worst case."""
    if is_free(ports.config.model.provider):
        held = replace(held, worst=Amount())
    record.intend(entry, Attempted(held.worst), ahead=True)
    clock = record.clock
    began = clock.monotonic()
    opened: Model | None = None
    try:
        opened = model = ports.open_model()
        with answer_shown(ports.journal.path.parent, ask.trace_id) as received:
            reply = model.reply(
                replace(ask, max_tokens=held.max_tokens),
                lambda: cancel.is_set() or clock.monotonic() - began >= held.time_s,
                received,
            )
    except (ModelError, UserError) as caught:
        # The settings are wrong. The operator must fix them; the request does not fail.
        error = (
            caught
            if isinstance(caught, ModelError)
            else ModelError(ModelErrorKind.PERMANENT, one_line(str(caught)))
        )
        if error.kind is ModelErrorKind.CONTEXT_FULL and opened is not None and ask.turns[1:]:
            full = Reply(Turn("assistant", ()), StopReason.CONTEXT_FULL)
            return Replied(full, Decimal(0), clock.monotonic() - began), opened
        lost = _worst_case(error, held, opened, ports.prices)
        lost = replace(lost, working_time_s=clock.monotonic() - began)
        return _Failed(error, Attempted(lost, error.kind.value))
    took_s = clock.monotonic() - began
    reply = _as_read(reply, held, written)
    reports = reply.usage != Usage() or is_free(model.provider)
    unreported = Amount() if reports else held.worst
    return Replied(reply, _cost(reply, model, ports.prices), took_s, unreported), model


MAX_LAST_WORDS = 300
"""Maximum characters of a model's last words that people are shown."""


def last_words(record: Record, secrets: Sequence[str] = ()) -> str:
    """Return the model's last text on one line, without secrets, shortened; "" if none."""
    for replied in reversed(record.replies()):
        if words := one_line(redact(replied.reply.turn.text, secrets)[0], MAX_LAST_WORDS):
            return words
    return ""


def _worst_case(
    error: ModelError, held: Room, model: Model | None, prices: Sequence[Price]
) -> Amount:
    """Return the most that a call without an answer used: the prompt, and the longest answer.

    The whole reservation counts if the server had not reported anything yet.
    """
    if not error.served:
        return Amount()
    if error.used is None or model is None:
        return held.worst
    used = replace(error.used, output_tokens=max(error.used.output_tokens, held.max_tokens))
    tokens = used.prompt_tokens + used.output_tokens
    return Amount(tokens, cost_usd(used, model.name, prices, free=is_free(model.provider)))


def _cost(reply: Reply, model: Model, prices: Sequence[Price]) -> Decimal | None:
    """Return a reply's cost, by the model name in the reply, else by the configured one."""
    free = is_free(model.provider)
    cost = cost_usd(reply.usage, reply.model, prices, free=free) if reply.model else None
    return cost_usd(reply.usage, model.name, prices, free=free) if cost is None else cost


def count_unseen(record: Record) -> None:
    """Count the calls that a kill interrupted, each with its whole reservation.

    Runs at start-up, before the use of the day is counted.
    """
    purpose = (
        Purpose.EXECUTE
        if record.has(PLACE)
        else Purpose.REVISE
        if record.case.plan.revision
        else Purpose.PLAN
    )
    for turn, number in _attempts(record):
        if not record.has(ATTEMPT.at(turn, number)) and not record.has(REPLY.at(turn)):
            _settle_unseen(record, turn, number, purpose)


def _attempts(record: Record) -> list[tuple[int, int]]:
    """Return turn and number of every attempt that was begun; raises BodyDamaged."""
    prefix = f"{ATTEMPT.key}:"
    where = [key[len(prefix) :].split(":") for key in record.intents if key.startswith(prefix)]
    try:
        return [(int(turn), int(number)) for turn, number in where]
    except ValueError as error:
        raise BodyDamaged("the record has an attempt without a number") from error


def _settle_unseen(record: Record, turn: int, number: int, purpose: Purpose) -> Attempted:
    entry = ATTEMPT.at(turn, number)
    begun = record.begun(entry)
    assert begun is not None
    why = "the daemon crashed or was killed during this call"
    unseen = ModelError(ModelErrorKind.CANCELLED, why, served=True)
    record.settle(entry, begun, _failed_row(record, purpose, number, unseen, begun.amount))
    return begun


def _earlier_attempts(ask: Ask, turn: int, record: Record, spent: Spent) -> tuple[int, int]:
    """Count earlier attempts without a reply: all of them, and those that failed transiently.

    One that a kill of the daemon interrupted counts with its whole reservation.
    """
    attempts = failed = 0
    while ATTEMPT.at(turn, attempts + 1).key in record.intents:
        attempts += 1
        found = record.get(ATTEMPT.at(turn, attempts))
        if found is None and record.has(REPLY.at(turn)):
            break  # the one that was answered
        if found is None:
            found = _settle_unseen(record, turn, attempts, ask.purpose)
        failed += found.kind == ModelErrorKind.TRANSIENT
        spent.lose(found.amount)
    return attempts, failed


def spent_in(record: Record) -> Spent:
    """Return what a conversation has used, from its record."""
    spent = Spent()
    for replied in record.replies():
        _spend(spent, replied)
    for turn, number in _attempts(record):
        entry = ATTEMPT.at(turn, number)
        begun = None if record.has(REPLY.at(turn)) else record.begun(entry)
        if (lost := record.get(entry) or begun) is not None:
            spent.lose(lost.amount)
    return spent


def _called_row(
    record: Record, purpose: Purpose, model: Model, replied: Replied, iteration: int
) -> Activity:
    reply, usage, lost = replied.reply, replied.reply.usage, replied.unreported
    cost = None if replied.cost_usd is None or lost.usd is None else replied.cost_usd + lost.usd
    unreported: dict[str, Any] = {"tokens": lost.tokens, "at_most": True} if lost.tokens else {}
    return record.row(
        Action.MODEL_CALLED,
        Actor.AGENT,
        provider=model.provider,
        model=reply.model or model.name,
        asked=model.name,
        purpose=purpose.value,
        stop_reason=reply.stop_reason.value,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        **unreported,
        cost_usd=None if cost is None else float(cost),
        duration_ms=round(replied.took_s * 1000, 1),
        iteration=iteration,
    )


def _tell_unreported(record: Record, replied: Replied) -> list[Activity]:
    """Return the row that says once in a conversation that the server reports no usage."""
    if not replied.unreported.tokens or any(one.unreported.tokens for one in record.replies()):
        return []
    why = "The model's server reports no usage. placet counts the most that each call can use."
    helps = "Ask the server without a proxy in between, or expect limits to be reached early."
    return [record.failure("no_usage", why, helps)]


def _settle_failed(
    record: Record, purpose: Purpose, turn: int, number: int, found: _Failed, spent: Spent
) -> None:
    lost = found.attempted.amount
    spent.lose(lost)
    row = _failed_row(record, purpose, number, found.error, lost)
    record.settle(ATTEMPT.at(turn, number), found.attempted, row)


def _failed_row(
    record: Record, purpose: Purpose, attempt: int, error: ModelError, lost: Amount
) -> Activity:
    return record.row(
        Action.MODEL_FAILED,
        Actor.SYSTEM,
        purpose=purpose.value,
        attempt=attempt,
        kind=error.kind.value,
        status=error.status,
        reason=str(error),
        tokens=lost.tokens,
        at_most=lost.tokens > 0,
        cost_usd=None if lost.usd is None else float(lost.usd),
    )
