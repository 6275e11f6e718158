"""Asking a model on the record: what a call may cost stands there before it is made, and a reply is asked for once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from placet.agent.record import Postponed, Record
from placet.core.activity import Action, Activity, Actor
from placet.core.errors import End, Interrupted, Stop, UserError
from placet.core.life.waiting import Why
from placet.core.secrets import redact
from placet.core.turn.budget import Amount, Room
from placet.core.turn.mission import Spent
from placet.core.turn.price import Price, cost_usd
from placet.core.turn.retry import Blocked, NoRetry, Retry, RetryPolicy, Sleep, next_attempt
from placet.core.turn.talk import (
    Ask,
    Model,
    ModelError,
    ModelErrorKind,
    Purpose,
    Reply,
    StopReason,
    Turn,
    Usage,
)
from placet.core.wording import one_line
from placet.journal.writes import ATTEMPT, REPLY

BLOCKED_RETRY_S = 60.0
"""How often work that waits for a person to mend the model tries whether it was mended."""


@dataclass(frozen=True, slots=True)
class Line:
    """How a model is reached and what it costs.

    `open_model` raises ModelError; `draw` gives the jitter, from 0 to 1.
    """

    open_model: Callable[[], Model]
    prices: Sequence[Price]
    policy: RetryPolicy
    draw: Callable[[], float] = random.random


def ask_model(
    line: Line,
    ask: Ask,
    key: str,
    record: Record,
    spent: Spent,
    *,
    cancelled: Callable[[], bool],
    room: Callable[[Ask], AbstractContextManager[Room]],
) -> Reply:
    """Return the model's reply to `ask`: the recorded one if it was answered before, else a new one.

    `room` holds what an attempt may come to, or raises Stop or Postponed where there is no room for it. Retries what
    can be retried; a failed attempt that the server may have worked on counts with all that was held for it. Raises
    Postponed where waiting longer would hold a worker for nothing, Interrupted when `cancelled`, and Stop(model_error)
    where no attempt can help. `spent` is added to; `model.called` is journalled in the transaction that records the reply.
    """
    attempts, failed = _earlier_attempts(ask, key, record, spent)
    if (known := record.outcome(key)) is not None:
        reply, cost = decode_reply(known)
        spent.add(reply.usage, cost, _took_s(known))
        return reply
    record.intend(key)
    clock = record.clock
    while True:
        attempts += 1
        mark = f"{ATTEMPT}{key}:{attempts}"
        with room(ask) as held:
            record.intend(mark, _encode_amount(held.worst, ""))
            called = clock.monotonic()
            opened: Model | None = None
            try:
                opened = model = line.open_model()
                reply = model.reply(replace(ask, max_tokens=held.max_tokens), cancelled)
            except (ModelError, UserError) as caught:
                # A setting that no model can be opened with: a person mends it, and no request
                # fails of it.
                error = (
                    caught
                    if isinstance(caught, ModelError)
                    else ModelError(ModelErrorKind.PERMANENT, f"{caught.what}. {caught.hint}")
                )
                lost = replace(
                    _lost(error, held, opened, line.prices),
                    working_time_s=clock.monotonic() - called,
                )
                spent.lose(lost)
                record.settle(
                    mark,
                    _encode_amount(lost, error.kind),
                    _failed_row(record, ask.purpose, attempts, error, lost),
                )
            else:
                took_s = clock.monotonic() - called
                cost = _cost(reply, model, line.prices)
                spent.add(reply.usage, cost, took_s)
                record.settle(
                    key,
                    encode_reply(reply, cost, took_s),
                    record.row(
                        Action.MODEL_CALLED,
                        Actor.AGENT,
                        provider=model.provider,
                        model=reply.model or model.name,
                        purpose=ask.purpose.value,
                        stop_reason=reply.stop_reason.value,
                        input_tokens=reply.usage.input_tokens,
                        output_tokens=reply.usage.output_tokens,
                        cache_read_tokens=reply.usage.cache_read_tokens,
                        cache_write_tokens=reply.usage.cache_write_tokens,
                        cost_usd=None if cost is None else float(cost),
                        duration_ms=round(took_s * 1000, 1),
                        iteration=spent.replies,
                    ),
                )
                return reply
        if error.kind is ModelErrorKind.CANCELLED or cancelled():
            raise Interrupted(str(error)) from error
        failed += error.kind is ModelErrorKind.TRANSIENT
        match next_attempt(error, max(failed, 1), line.policy, line.draw()):
            case Retry(after_s):
                if not clock.wait(after_s, cancelled):
                    raise Interrupted("stopped while waiting for the model") from error
            case Sleep(after_s, asked):
                raise Postponed(
                    str(error), after_s, Why.ASKED_TO_WAIT if asked else Why.UNREACHABLE
                ) from error
            case Blocked(reason):
                raise Postponed(reason, BLOCKED_RETRY_S, Why.BLOCKED) from error
            case NoRetry(reason):
                raise Stop(End.MODEL_ERROR, reason) from error


MAX_LAST_WORDS = 300
"""Characters of what a model said last that people are shown."""


def last_words(record: Record, secrets: Sequence[str] = ()) -> str:
    """Return what the model said last, on one line, without secrets and shortened.

    Empty where it said nothing.
    """
    turn = sum(key.startswith(REPLY) for key in record.outcomes)
    while turn and (known := record.outcome(f"{REPLY}{turn}")) is not None:
        text = redact(decode_reply(known)[0].turn.text, secrets)[0]
        if said := one_line(text, MAX_LAST_WORDS):
            return said
        turn -= 1
    return ""


def _lost(error: ModelError, held: Room, model: Model | None, prices: Sequence[Price]) -> Amount:
    """Return what a call without an answer may have used: what its server told of the prompt, and the longest answer.

    All that was held for it where the server had told nothing yet.
    """
    if not error.served:
        return Amount()
    if error.used is None or model is None:
        return held.worst
    used = replace(error.used, output_tokens=max(error.used.output_tokens, held.max_tokens))
    tokens = (
        used.input_tokens + used.cache_read_tokens + used.cache_write_tokens + used.output_tokens
    )
    return Amount(tokens, cost_usd(used, model.name, prices, free=model.provider == "scripted"))


def _cost(reply: Reply, model: Model, prices: Sequence[Price]) -> Decimal | None:
    """Return what a reply costs: by the model's name as the server gives it, else, where that has no price, as it was asked for."""
    free = model.provider == "scripted"
    cost = cost_usd(reply.usage, reply.model, prices, free=free) if reply.model else None
    return cost_usd(reply.usage, model.name, prices, free=free) if cost is None else cost


def count_unseen(record: Record) -> None:
    """Count the calls that a kill cut off, each with all that was held for it, before anybody else asks what a day has used."""
    purpose = (
        Purpose.EXECUTE
        if record.outcome("place") is not None
        else Purpose.REVISE
        if record.case.revision
        else Purpose.PLAN
    )
    for mark, begun in list(record.intents.items()):
        if mark.startswith(ATTEMPT) and mark not in record.outcomes:
            key, _, attempt = mark[len(ATTEMPT) :].rpartition(":")
            if key not in record.outcomes:
                _settle_unseen(record, mark, int(attempt), begun, purpose)


def _settle_unseen(record: Record, mark: str, attempt: int, begun: bytes, purpose: Purpose) -> None:
    unseen = ModelError(
        ModelErrorKind.CANCELLED, "the daemon was stopped during this call", served=True
    )
    record.settle(
        mark, begun, _failed_row(record, purpose, attempt, unseen, _decode_amount(begun)[0])
    )


def _earlier_attempts(ask: Ask, key: str, record: Record, spent: Spent) -> tuple[int, int]:
    """Count the attempts of earlier lives in that brought no reply.

    Return how many began, and how many failed in passing.

    One whose end nobody saw (the daemon was killed) counts with all that was held for it.
    """
    attempts = failed = 0
    while (begun := record.intents.get(f"{ATTEMPT}{key}:{attempts + 1}")) is not None:
        attempts += 1
        mark = f"{ATTEMPT}{key}:{attempts}"
        body = record.outcome(mark)
        if body is None and record.outcome(key) is not None:
            break  # the one that was answered
        if body is None:
            _settle_unseen(record, mark, attempts, begun, ask.purpose)
            body = begun
        lost, kind = _decode_amount(body)
        failed += kind == ModelErrorKind.TRANSIENT
        spent.lose(lost)
    return attempts, failed


def spent_in(record: Record) -> Spent:
    """Return what a conversation has used, as its record knows it."""
    spent = Spent()
    for key, body in record.outcomes.items():
        if key.startswith(REPLY):
            reply, cost = decode_reply(body)
            spent.add(reply.usage, cost, _took_s(body))
    for mark, begun in record.intents.items():
        answered = mark[len(ATTEMPT) :].rpartition(":")[0] in record.outcomes
        if mark.startswith(ATTEMPT) and (mark in record.outcomes or not answered):
            spent.lose(_decode_amount(record.outcomes.get(mark, begun))[0])
    return spent


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


def _encode_amount(amount: Amount, kind: str) -> bytes:
    return json.dumps(
        [
            amount.tokens,
            None if amount.usd is None else str(amount.usd),
            amount.working_time_s,
            kind,
        ]
    ).encode()


def _decode_amount(body: bytes) -> tuple[Amount, str]:
    tokens, usd, working_s, kind = json.loads(body)
    return Amount(tokens, None if usd is None else Decimal(usd), working_s), kind


def encode_reply(reply: Reply, cost: Decimal | None, took_s: float) -> bytes:
    """Return a reply as the record keeps it: the assistant's blocks unchanged.

    It took `took_s` seconds.
    """
    usage = reply.usage
    return json.dumps(
        {
            "blocks": list(reply.turn.blocks),
            "stop_reason": reply.stop_reason.value,
            "model": reply.model,
            "usage": [
                usage.input_tokens,
                usage.output_tokens,
                usage.cache_read_tokens,
                usage.cache_write_tokens,
            ],
            "cost_usd": None if cost is None else str(cost),
            "took_s": took_s,
        }
    ).encode()


def _took_s(body: bytes) -> float:
    return float(json.loads(body).get("took_s", 0.0))


def decode_reply(body: bytes) -> tuple[Reply, Decimal | None]:
    """Return a recorded reply and what it cost."""
    data: Mapping[str, Any] = json.loads(body)
    cost = data["cost_usd"]
    return (
        Reply(
            Turn("assistant", tuple(data["blocks"])),
            StopReason(data["stop_reason"]),
            Usage(*data["usage"]),
            data["model"],
        ),
        None if cost is None else Decimal(cost),
    )
