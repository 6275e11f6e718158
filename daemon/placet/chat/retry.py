"""Decide what follows a failed model call: retry, release the worker, wait for you, or end.

Pure: the caller counts the attempts and draws the jitter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from placet.chat.messages import ModelError, ModelErrorKind


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Backoff settings. All times are in seconds.

    The wait grows by `factor` from `first_wait_s`. Up to `longest_wait_s` the worker sleeps. For a
    longer wait the worker is released and the scheduler resumes the job. The backoff grows up to
    `longest_backoff_s`, so that a server that is back is noticed soon; a server's Retry-After
    counts up to `longest_rest_s`. An outage never becomes an error, however long it lasts. The
    defaults are a judgement: five attempts in about half a minute, then one every minute or two.
    """

    first_wait_s: float = 1.0
    factor: float = 2.0
    longest_wait_s: float = 30.0
    longest_backoff_s: float = 120.0
    longest_rest_s: float = 900.0


@dataclass(frozen=True, slots=True)
class Retry:
    """Wait `after_s` in the worker, then call again."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Sleep:
    """Release the worker; the scheduler resumes the job after `after_s`.

    `asked`: the server sent a Retry-After.
    """

    after_s: float
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Blocked:
    """You must fix something first (a key, credit, a model's name); then the job resumes."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoRetry:
    """No retry can help; the job ends as a failure."""

    reason: str


Decision = Retry | Sleep | Blocked | NoRetry


def next_attempt(error: ModelError, attempt: int, policy: RetryPolicy, jitter: float) -> Decision:
    """Decide what follows `error`.

    `attempt` counts the calls for this answer, including the failed one (1, 2, …). `jitter`
    is a random number from 0 to 1, which shortens the backoff by up to half. A server's
    `retry_after_s` is respected up to `policy.longest_rest_s`. Raises ValueError for a cancelled
    call, because its answer is not wanted.
    """
    match error.kind:
        case ModelErrorKind.TRANSIENT:
            return _after_transient(error, attempt, policy, jitter)
        case ModelErrorKind.PERMANENT:
            return Blocked(str(error))
        case ModelErrorKind.BAD_REQUEST | ModelErrorKind.CONTEXT_FULL:
            return NoRetry(str(error))
        case ModelErrorKind.CANCELLED:
            raise ValueError("a cancelled call has no next attempt")
        case _:
            assert_never(error.kind)


def _after_transient(
    error: ModelError, attempt: int, policy: RetryPolicy, jitter: float
) -> Decision:
    # the thousandth attempt must not overflow
    backoff_s = policy.first_wait_s * policy.factor ** min(attempt - 1, 60)
    wait_s = min(backoff_s, policy.longest_backoff_s) * (1 - jitter / 2)
    wish_s = error.retry_after_s
    asked = wish_s is not None and wish_s >= wait_s
    if wish_s is not None and asked:
        wait_s = min(wish_s, policy.longest_rest_s)
    return Retry(wait_s) if wait_s <= policy.longest_wait_s else Sleep(wait_s, asked)
