"""Define the errors, by who must act. Any other exception is a bug."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Any


class PlacetError(Exception):
    """Base of every error that placet raises on purpose.

    `errno` is the system's number for the fault of the machine that caused it, if known.
    `was_killed`: another process killed the program. `was_locked`: it had locked a file.
    """

    errno: int | None = None
    was_killed = False
    was_locked = False


class UserError(PlacetError):
    """You must act.

    `what` says what happened and to which file; `hint` is the next command or edit that helps.
    `exit_code` is the command line's: 1 it failed, 2 usage or configuration, 3 no such request,
    plan or mission.
    """

    def __init__(self, what: str, hint: str = "", *, exit_code: int = 1) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        if not self.hint:
            return self.what
        end = "" if self.what.endswith((".", "!", "?", ":")) else "."  # for one line of both
        return f"{self.what}{end}\n{self.hint}"


# a full disk or quota
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

# faults of the machine that may be gone at a retry
MACHINE = FULL | {
    errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
    errno.EAGAIN,  # no more processes
}  # fmt: skip


def cannot_write(path: PurePath, error: OSError) -> UserError:
    """Return the error for a file outside the vault that cannot be written.

    It says which file, why, and what helps.
    """
    helps = (
        f"Free some space on the disk of {path.parent}, then try again."
        if error.errno in FULL
        else f"Mount the file system of {path.parent} writable, then try again."
        if error.errno == errno.EROFS
        else f"Give the user that runs placet the right to write in {path.parent}, then try again."
    )
    return UserError(f"{path} cannot be written: {error.strerror or error}.", helps)


class ToolError(PlacetError):
    """The model must act: the tool call failed, and this says why.

    It becomes the tool's result `{"error": message, "error_type": error_type, **details}`; it never
    ends the mission's loop. `refused`: a policy (scope, confinement) refused the call; else it was
    tried and failed.
    """

    def __init__(
        self, error_type: str, message: str, *, refused: bool = False, **details: Any
    ) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.message = message
        self.refused = refused
        self.details = details

    def as_result(self) -> dict[str, Any]:
        """Return the structured error for the model."""
        return {"error": self.message, "error_type": self.error_type, **self.details}


def with_last_words(reason: str, words: str) -> str:
    """Return why work failed, and the model's last text, which often says what it lacked."""
    return f'{reason.rstrip().rstrip(".")}. The model said last: "{words}"' if words else reason


BUGS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, StopIteration,
    TypeError, ValueError,
)  # fmt: skip
"""Unexpected errors: bugs. One stops the case in which it happens, and nothing else."""


def describe_bug(error: BaseException) -> str:
    """Return the message for an error that is a bug, with its place in placet."""
    where, found = "", error.__traceback__
    while found is not None:
        code = found.tb_frame.f_code
        if "placet" in code.co_filename.split("/"):
            where = f" ({code.co_filename.rpartition('/')[2]}:{found.tb_lineno}, {code.co_name})"
        found = found.tb_next
    return f"placet has a bug: {type(error).__name__}: {error}{where}"


def _behind(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause's cause, and so on."""
    while error is not None:
        yield error
        error = error.__cause__


def machine_errno(error: BaseException | None) -> int | None:
    """Return the system's number for the machine's fault behind an error, None without one."""
    for one in _behind(error):
        if isinstance(one, OSError | PlacetError) and one.errno in MACHINE:
            return one.errno
    return None


def passing(error: Exception) -> str:
    """Return an error's text if the machine is at fault and a retry may succeed, else "".

    Such are a full disk, a killed git, and a lock that another git holds. A missing permission
    counts for placet's files (OSError); for git it is the repository's fault.
    """
    may_pass = isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM)
    may_repeat = any(
        isinstance(one, PlacetError) and (one.was_killed or one.was_locked)
        for one in _behind(error)
    )
    return str(error) if may_pass or may_repeat or machine_errno(error) else ""


class End(StrEnum):
    """The reason for a mission's end, as result, journal and report name it."""

    FINISHED = "finished"
    GAVE_UP = "gave_up"
    NOTHING_CHANGED = "nothing_changed"
    UNRESOLVED_ERROR = "unresolved_error"
    ITERATION_CAP = "iteration_cap"
    TOOL_CALL_CAP = "tool_call_cap"
    REPETITION = "repetition"
    STALL = "stall"
    TALK = "talk"
    BUDGET = "budget"
    TIMEOUT = "timeout"
    STOPPED_BY_PERSON = "stopped_by_person"
    MODEL_ERROR = "model_error"
    TOOL_ERROR = "tool_error"
    SCOPE = "scope"
    REFUSAL = "refusal"
    CONTEXT_FULL = "context_full"
    LEASE_LOST = "lease_lost"
    REPOSITORY = "repository"
    DRIFT = "changed_under_plan"
    RECORD = "record"
    CRASH_LOOP = "crash_loop"
    INTERNAL_ERROR = "internal_error"


class FailureClass(StrEnum):
    """The cause of a mission's end."""

    NONE = "no failure"
    LIMIT = "a limit was reached"
    CIRCLES = "the agent went in circles"
    AGENT = "the agent gave up"
    NO_CHANGE = "the agent finished without changing a file"
    TOOL = "a tool call failed"
    MODEL = "the model could not continue"
    REPOSITORY = "the repository could not be used"
    PERSON = "you stopped it"
    DAEMON = "the daemon could not continue"


@dataclass(frozen=True, slots=True)
class EndVerdict:
    """The meaning of an end: its class, a sentence, and advice."""

    kind: FailureClass
    meaning: str
    advice: str


ENDS: Mapping[End, EndVerdict] = {
    End.FINISHED: EndVerdict(
        FailureClass.NONE,
        "The mission is done.",
        "Look at the branch; merge it or drop it.",
    ),
    End.GAVE_UP: EndVerdict(
        FailureClass.AGENT,
        "The agent gave up.",
        "Read the agent's reason above and adjust the request to it.",
    ),
    End.NOTHING_CHANGED: EndVerdict(
        FailureClass.NO_CHANGE,
        "The plan changes files, but the agent changed none.",
        "Say in the request which files are to change, or ask a question instead of a change.",
    ),
    End.UNRESOLVED_ERROR: EndVerdict(
        FailureClass.TOOL,
        "The agent finished right after a failed call.",
        "Review the error and adjust the request.",
    ),
    End.TOOL_ERROR: EndVerdict(
        FailureClass.TOOL,
        "A literal step failed.",
        "Review the error and adjust the request.",
    ),
    End.SCOPE: EndVerdict(
        FailureClass.TOOL,
        "The plan needs more than the approved scope allows.",
        "Ask for a plan with a wider scope, or for less.",
    ),
    End.ITERATION_CAP: EndVerdict(
        FailureClass.LIMIT,
        "The agent used all iterations that the plan allows.",
        "Ask for less at once, or give the plan a higher `max_iterations`.",
    ),
    End.TOOL_CALL_CAP: EndVerdict(
        FailureClass.LIMIT,
        "The agent used all tool calls that a mission may make.",
        "Ask for less at once, or raise `tool_calls` under [limits] in System/placet.toml.",
    ),
    End.BUDGET: EndVerdict(
        FailureClass.LIMIT,
        "The rest of the budget is too small for another iteration.",
        "Raise `budget_usd` in the request, or ask for less at once.",
    ),
    End.TIMEOUT: EndVerdict(
        FailureClass.LIMIT,
        "The mission reached its time limit.",
        "Ask for less at once, or raise `mission_time_s` under [limits] in System/placet.toml.",
    ),
    End.REPETITION: EndVerdict(
        FailureClass.CIRCLES,
        "The agent made the same calls again and again.",
        "Name in the request what it did not find, or try a larger model.",
    ),
    End.STALL: EndVerdict(
        FailureClass.CIRCLES,
        "The agent changed nothing for several iterations.",
        "Make the steps smaller, and say how one sees that each is done.",
    ),
    End.TALK: EndVerdict(
        FailureClass.CIRCLES,
        "The agent talked and called no tool.",
        "Try a larger model, or give it in the request what it says that it lacks. "
        "`placet doctor --model` says whether its server shows it the tools.",
    ),
    End.MODEL_ERROR: EndVerdict(
        FailureClass.MODEL,
        "The model's server answered with an error that a retry does not fix.",
        "Read the model's error. If it was an outage, try again without a change.",
    ),
    End.REFUSAL: EndVerdict(
        FailureClass.MODEL,
        "The model refused the task.",
        "Put the request differently.",
    ),
    End.CONTEXT_FULL: EndVerdict(
        FailureClass.MODEL,
        "The conversation got too long for the model.",
        "Give the model a larger context: at its server, and then as `context_tokens`. Or ask for "
        "less at once.",
    ),
    End.REPOSITORY: EndVerdict(
        FailureClass.REPOSITORY,
        "git could not do what the mission needs.",
        "Fix the repository as the error says.",
    ),
    End.DRIFT: EndVerdict(
        FailureClass.REPOSITORY,
        "Files that the plan is based on have changed.",
        "Look at what changed under the plan, as the error says.",
    ),
    End.STOPPED_BY_PERSON: EndVerdict(
        FailureClass.PERSON,
        "The mission was stopped.",
        "The mission was stopped on purpose; nothing needs a fix.",
    ),
    End.LEASE_LOST: EndVerdict(
        FailureClass.DAEMON,
        "Another daemon took the mission over.",
        "See that only one daemon works on this vault.",
    ),
    End.RECORD: EndVerdict(
        FailureClass.DAEMON,
        "The record of the work cannot be read.",
        "If the journal's disk or database is damaged, restore a backup. Then try again.",
    ),
    End.CRASH_LOOP: EndVerdict(
        FailureClass.DAEMON,
        "The daemon crashed in the same place again and again.",
        "Look into the daemon's log for that time; `placet doctor` may name the cause.",
    ),
    End.INTERNAL_ERROR: EndVerdict(
        FailureClass.DAEMON,
        "This is a bug in placet.",
        "Please report it, with the error above. Trying again may work.",
    ),
}
"""The meaning of each end."""

CALLS_AS_TEXT = "calls_as_text"
"""The error type of work that ended because calls that a model wrote as text did not count."""

_HELPS = {
    CALLS_AS_TEXT: "The model writes its calls as text. Set its server's tool parser or chat "
    "template, or type: placet config set model.tools text",
    "cut_off": "Raise `max_tokens` under [model], or ask for less at once.",
    "invalid_plan": "Try a larger model, or ask for less at once.",
}


def helps(end: End, error_type: str) -> str:
    """Return what would help after an end with this error type."""
    return _HELPS.get(error_type, ENDS[end].advice)


def helps_first(end: End) -> bool:
    """Return whether what helps says more than what happened: the model is not up to the work."""
    return ENDS[end].kind in (FailureClass.CIRCLES, FailureClass.MODEL)


class Interrupted(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """Work has to stop now; it stays as recorded, to be resumed."""


class Stop(PlacetError):  # noqa: N818 - it ends a mission, and is not always an error
    """End the mission's loop with a reason: a limit was reached, or a person stopped it.

    `error_type` is the end's value, or that of the tool error that caused it (`secret_in_commit`).
    """

    def __init__(self, end: End, detail: str, *, error_type: str = "") -> None:
        super().__init__(detail)
        self.end = end
        self.detail = detail
        self.error_type = error_type or end.value
