"""The ends of a mission, each with its class, its meaning and advice to a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from placet.errors import End


class FailureClass(StrEnum):
    """The cause of a mission's end."""

    NONE = "no failure"
    LIMIT = "a limit was reached"
    CIRCLES = "the agent went in circles"
    AGENT = "the agent gave up"
    TOOL = "a tool call failed"
    MODEL = "the model could not go on"
    REPOSITORY = "the repository stood in the way"
    PERSON = "a person stopped it"
    DAEMON = "the daemon could not go on"


@dataclass(frozen=True, slots=True)
class EndVerdict:
    """The meaning of an end: its class, a sentence, and advice."""

    kind: FailureClass
    meaning: str
    advice: str


ENDS: Mapping[End, EndVerdict] = {
    End.FINISHED: EndVerdict(
        FailureClass.NONE,
        "The plan was carried out.",
        "Look at the branch; merge it or drop it.",
    ),
    End.GAVE_UP: EndVerdict(
        FailureClass.AGENT,
        "The agent said that the plan cannot be carried out.",
        "Read the agent's reason above and adjust the request to it.",
    ),
    End.NOTHING_CHANGED: EndVerdict(
        FailureClass.AGENT,
        "The plan was to change files, and none was changed.",
        "Say in the request which files are to change, or ask a question instead of a change.",
    ),
    End.UNRESOLVED_ERROR: EndVerdict(
        FailureClass.TOOL,
        "The agent called it done right after a call that had failed.",
        "Review the error and adjust the request.",
    ),
    End.TOOL_ERROR: EndVerdict(
        FailureClass.TOOL,
        "A step that is carried out as written could not be.",
        "Review the error and adjust the request.",
    ),
    End.SCOPE: EndVerdict(
        FailureClass.TOOL,
        "What the plan needs lies outside the scope that was approved.",
        "Ask for a plan with a wider scope, or for less.",
    ),
    End.ITERATION_CAP: EndVerdict(
        FailureClass.LIMIT,
        "The agent had as many iterations as the plan allows.",
        "Ask for less at once, or give the plan a higher `max_iterations`.",
    ),
    End.TOOL_CALL_CAP: EndVerdict(
        FailureClass.LIMIT,
        "The agent made as many tool calls as are allowed.",
        "Ask for less at once, or raise `tool_calls` under [limits] in System/placet.toml.",
    ),
    End.BUDGET: EndVerdict(
        FailureClass.LIMIT,
        "What was left of the budget did not suffice for another iteration.",
        "Raise `budget_usd` in the request, or ask for less at once.",
    ),
    End.TIMEOUT: EndVerdict(
        FailureClass.LIMIT,
        "The mission took as long as it may.",
        "Ask for less at once, or raise `mission_time_s` under [limits] in System/placet.toml.",
    ),
    End.REPETITION: EndVerdict(
        FailureClass.CIRCLES,
        "The agent made the same calls again and again.",
        "Name in the request what it did not find, or what else it should try.",
    ),
    End.STALL: EndVerdict(
        FailureClass.CIRCLES,
        "The agent went on for several iterations without changing anything.",
        "Make the steps smaller, and say how one sees that each is done.",
    ),
    End.TALK: EndVerdict(
        FailureClass.CIRCLES,
        "The agent talked and called no tool.",
        "Read what it said last; it may lack something that the request can give it.",
    ),
    End.MODEL_ERROR: EndVerdict(
        FailureClass.MODEL,
        "The model's server answered with an error that a retry does not fix.",
        "Look at the model's error above; if it was an outage, nothing has to be changed.",
    ),
    End.REFUSAL: EndVerdict(
        FailureClass.MODEL,
        "The model refused the task.",
        "Put the request differently.",
    ),
    End.CONTEXT_FULL: EndVerdict(
        FailureClass.MODEL,
        "The conversation no longer fitted into what the model can read at once.",
        "Ask for less at once, or name the files that matter.",
    ),
    End.REPOSITORY: EndVerdict(
        FailureClass.REPOSITORY,
        "git could not do what the mission needs.",
        "Fix the repository as the error says.",
    ),
    End.DRIFT: EndVerdict(
        FailureClass.REPOSITORY,
        "Files changed under the plan.",
        "Look at what changed under the plan, as the error says.",
    ),
    End.STOPPED_BY_PERSON: EndVerdict(
        FailureClass.PERSON,
        "You, or somebody who can write the vault, stopped it.",
        "The mission was stopped on purpose; nothing needs a fix.",
    ),
    End.LEASE_LOST: EndVerdict(
        FailureClass.DAEMON,
        "Another daemon had taken the mission over.",
        "See that only one daemon works on this vault.",
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
