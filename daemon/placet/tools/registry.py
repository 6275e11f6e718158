"""List every tool, and choose those for planning and for missions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from placet.chat.guards import Effect
from placet.plan.scope import Scope
from placet.sandbox.box import Level
from placet.tools import (
    bash,
    control,
    delete_file,
    edit_file,
    glob,
    grep,
    list_directory,
    read_file,
    run_command,
    search_files,
    take_screenshot,
    write_file,
)
from placet.tools.base import Tool

TOOLS: tuple[Tool[Any], ...] = (
    read_file.TOOL,
    list_directory.TOOL,
    search_files.TOOL,
    grep.TOOL,
    glob.TOOL,
    write_file.TOOL,
    edit_file.TOOL,
    delete_file.TOOL,
    run_command.TOOL,
    bash.TOOL,
    take_screenshot.TOOL,
    control.SUBMIT_PLAN,
    control.COMPLETE_STEP,
    control.ASK_PERSON,
    control.REQUEST_SCOPE,
    control.FINISH,
    control.GIVE_UP,
)

BY_NAME = {tool.name: tool for tool in TOOLS}

# names that a plan may list
PLANNABLE = frozenset(tool.name for tool in TOOLS if tool.effect is not Effect.CONTROL)

_EVERYTHING = Scope(shell=True, network=True)  # noqa: S604 - a value, no call of a shell


def planning(*, revising: bool, level: Level) -> dict[str, Tool[Any]]:
    """Return the planner's tools, by name: those that read, `ask_person`, and `submit_plan`.

    A revision also answers the reviewer's comments. Its schema names the tools that steps may use:
    those that can work at this level of the sandbox with some scope.
    """
    offered = {t.name: t for t in TOOLS if t.effect is Effect.READ or t is control.ASK_PERSON}
    last = control.SUBMIT_REVISION if revising else control.SUBMIT_PLAN
    named = (t.name for t in TOOLS if t.name in PLANNABLE and not t.unusable(_EVERYTHING, level))
    return {**offered, last.name: replace(last, steps_may_name=tuple(named))}


def executing(named: Collection[str], scope: Scope, level: Level) -> dict[str, Tool[Any]]:
    """Return the mission's tools, by name: the plan's that can work here, and the controls."""
    return {
        t.name: t
        for t in TOOLS
        if (t.name in named and not t.unusable(scope, level))
        or (t.effect is Effect.CONTROL and t is not control.SUBMIT_PLAN)
    }
