"""The registry: a literal tuple of tools, read top to bottom. Adding a tool is one file and one line here."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from placet.tools import (
    complete_step,
    edit_file,
    finish,
    give_up,
    list_directory,
    read_file,
    run_command,
    search_files,
    submit_plan,
    write_file,
)
from placet.tools.base import Effect, Tool

TOOLS: tuple[Tool[Any], ...] = (
    read_file.TOOL,
    list_directory.TOOL,
    search_files.TOOL,
    write_file.TOOL,
    edit_file.TOOL,
    run_command.TOOL,
    submit_plan.TOOL,
    complete_step.TOOL,
    finish.TOOL,
    give_up.TOOL,
)

BY_NAME = {tool.name: tool for tool in TOOLS}

PLANNABLE = frozenset(tool.name for tool in TOOLS if tool.effect is not Effect.CONTROL)
"""Names that a plan's steps may list."""



def planning(*, revising: bool) -> dict[str, Tool[Any]]:
    """Return what the planner is offered: it reads, and submits. A revision also answers the reviewer's comments."""
    offered = {t.name: t for t in TOOLS if t.effect is Effect.READ}
    last = submit_plan.REVISION if revising else submit_plan.TOOL
    return {**offered, last.name: last}


def executing(named: Collection[str]) -> dict[str, Tool[Any]]:
    """Return what the executor is offered: the tools that the plan names, and the mission's controls."""
    return {t.name: t for t in TOOLS
            if t.name in named or (t.effect is Effect.CONTROL and t is not submit_plan.TOOL)}
