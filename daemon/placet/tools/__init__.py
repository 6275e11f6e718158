"""What a model can call: the registry of tools, and the two things that carry calls out."""

from placet.tools.base import Outcome, Toolbox, ToolDispatcher
from placet.tools.memory import InMemoryToolDispatcher
from placet.tools.registry import AGENT_TOOLS, BY_NAME, PLANNABLE, TOOLS, executing, planning

__all__ = [
    "AGENT_TOOLS",
    "BY_NAME",
    "PLANNABLE",
    "TOOLS",
    "InMemoryToolDispatcher",
    "Outcome",
    "ToolDispatcher",
    "Toolbox",
    "executing",
    "planning",
]
