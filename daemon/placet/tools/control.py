"""Define the calls that control a conversation, from `submit_plan` to `give_up`.

Each passes its arguments to `Workplace.steer`, which is the planner's or the mission's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from placet.chat.guards import Effect
from placet.note.escape import one_line
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace


def _not_blank(text: str) -> str:
    if not one_line(text):
        raise ValueError("must not be blank")
    return text


def _shown_as_required(*names: str) -> ConfigDict:
    """Show these arguments as required. The check keeps their defaults.

    A weak model leaves out what it may leave out, and a server with a grammar enforces the rest.
    """
    return ConfigDict(json_schema_extra={"required": [*names]})


Words = Annotated[str, Field(min_length=1), AfterValidator(_not_blank)]
"""A text with a visible character."""


class ActionArgs(Args):
    """A tool call."""

    tool: str = Field(description="Name of the tool to call.")
    params: dict[str, Any] = Field(default_factory=dict, description="Its arguments.")


class StepArgs(Args):
    """A step of the plan."""

    model_config = _shown_as_required("title", "tools")

    title: str = Field(min_length=1, description="One line.")
    description: str = Field(default="", description="What is to be done, and how.")
    tools: list[str] = Field(default_factory=list)
    done_when: list[str] = Field(
        default_factory=list, description="How one can see that the step is done."
    )
    actions: list[ActionArgs] = Field(
        default_factory=list,
        description="Only for a step whose calls are known to the letter: "
        "they run exactly as written, without a model.",
    )


class ScopeArgs(Args):
    """The permissions of the mission."""

    model_config = _shown_as_required("write", "run")

    write: list[str] = Field(
        default_factory=list,
        description="Globs, from the repository's root, of files that may be "
        "created, changed or deleted. As narrow as possible; empty for a task that only reads.",
    )
    run: list[str] = Field(
        default_factory=list,
        description="Commands that may run, each the beginning of an argument list: "
        '"python -m pytest -q".',
    )
    network: bool | list[str] = Field(
        default=False,
        description="Hosts that commands may reach by TLS: "
        '["packages.example", "*.cdn.example", "git.example:8443"]; true: everything.',
    )
    shell: bool = Field(default=False, description="Whether a shell may be used.")


class SubmitPlan(Args):
    """Arguments of `submit_plan`."""

    model_config = _shown_as_required("title", "summary", "steps", "scope")

    title: str = Field(min_length=1, description="One line.")
    summary: str = Field(
        min_length=1,
        description="A paragraph for the person who reviews it: what will be done and why so.",
    )
    steps: list[StepArgs] = Field(min_length=1, description="The steps, in order.")
    scope: ScopeArgs = Field(
        default_factory=ScopeArgs,
        description="The permission that is asked for; all else is refused.",
    )
    risks: list[str] = Field(
        default_factory=list, description="What could go wrong, a sentence each."
    )
    complexity: Literal["trivial", "standard", "complex"] = Field(
        default="standard", description="How large the task is."
    )

    @model_validator(mode="before")
    @classmethod
    def _scope_in_one_place(cls, given: Any) -> Any:
        """Move what small models write beside the scope into it; a person reviews the plan."""
        if not isinstance(given, dict) or not isinstance(given.get("scope", {}), dict):
            return given
        beside = {key: given[key] for key in ScopeArgs.model_fields if key in given}
        rest = {key: value for key, value in given.items() if key not in beside}
        return {**rest, "scope": {**beside, **given.get("scope", {})}} if beside else given


class SubmitRevision(SubmitPlan):
    """Arguments of `submit_plan` when a plan is revised."""

    answers: list[str] = Field(
        default_factory=list, description="An answer to each open review comment, in their order."
    )


def _steer(place: Workplace, args: Args) -> Any:
    return place.steer(args)


def _without_default(shown: dict[str, Any]) -> None:
    del shown["default"]


class CompleteStep(Args):
    """Arguments of `complete_step`. Without a number it is the first open step: no other can be."""

    model_config = _shown_as_required("step", "summary")

    step: int = Field(
        default=0,
        ge=0,
        description="The step's number in the plan.",
        json_schema_extra=_without_default,
    )
    summary: str = Field(description="What was done, in one line; it becomes the commit's subject.")


class AskPerson(Args):
    """Arguments of `ask_person`."""

    question: Words = Field(max_length=2_000, description="One question that a person can answer.")
    options: list[Annotated[Words, Field(max_length=500)]] = Field(
        default_factory=list, max_length=8, description="The answers to choose from, if you know."
    )
    why: str = Field(
        default="", max_length=2_000, description="What depends on it, and what you would choose."
    )


class RequestScope(Args):
    """Arguments of `request_scope`."""

    why: Words = Field(max_length=2_000, description="Why the plan cannot be done without it.")
    write: list[str] = Field(
        default_factory=list, description="Further globs of files to write, as narrow as possible."
    )
    run: list[str] = Field(
        default_factory=list,
        description="Further commands to run, each the beginning of an argument list.",
    )
    network: bool = Field(
        default=False, description="Whether commands may use the whole network; prefer `hosts`."
    )
    hosts: list[str] = Field(
        default_factory=list,
        description='Further hosts that commands may reach: "packages.example".',
    )


class Finish(Args):
    """Arguments of `finish`."""

    summary: str = Field(
        min_length=1,
        description="For the person who asked: what was done, and the answer if one was asked for.",
    )


class GiveUp(Args):
    """Arguments of `give_up`."""

    reason: str = Field(
        min_length=1, description="Why it cannot be done, and what a person could change."
    )


SUBMIT_PLAN = Tool(
    "submit_plan",
    "Submit the plan for review. It is checked; every problem comes back at once.",
    SubmitPlan,
    Effect.CONTROL,
    _steer,
    subject=(),
)
SUBMIT_REVISION = Tool(
    "submit_plan",
    "Submit the revised plan for review. It is checked; every problem comes back at once.",
    SubmitRevision,
    Effect.CONTROL,
    _steer,
    subject=(),
)
COMPLETE_STEP = Tool(
    "complete_step",
    "Say that a step of the plan is done. What it changed is committed.",
    CompleteStep,
    Effect.CONTROL,
    _steer,
    subject=("step",),
)
ASK_PERSON = Tool(
    "ask_person",
    "Ask a person, and wait for the answer: it may take hours. Ask only what changes the plan or "
    "the work, and what neither the files nor the request can tell you.",
    AskPerson,
    Effect.CONTROL,
    _steer,
    subject=(),
)
REQUEST_SCOPE = Tool(
    "request_scope",
    "Ask a person for more than the approved plan allows, and wait. Only for what the plan cannot "
    "be done without; it may be rejected.",
    RequestScope,
    Effect.CONTROL,
    _steer,
    subject=("write", "run", "hosts"),
)
FINISH = Tool(
    "finish",
    "End the mission: everything in the plan is done.",
    Finish,
    Effect.CONTROL,
    _steer,
    subject=(),
)
GIVE_UP = Tool(
    "give_up",
    "End the mission as a failure: it cannot be done within the plan.",
    GiveUp,
    Effect.CONTROL,
    _steer,
    subject=(),
)
