"""Define a request: its task, agent, portal and budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from difflib import get_close_matches
from pathlib import PurePath, PurePosixPath
from typing import Any

from placet.case.case import Request
from placet.case.life_cycle import STATUSES
from placet.case.notes import DRAFT, REQUEST_KEYS, not_a_word
from placet.case.stray_keys import stray_keys
from placet.chat.budget import Complexity
from placet.errors import PlacetError
from placet.note.frontmatter import Note
from placet.note.hidden_text import shortened
from placet.plan.limits import MAX_NOTE_CHARACTERS
from placet.plan.scope import MAX_BUDGET_USD, budget_problem
from placet.wording import one_line

KEYS = ("status", "trace_id", *REQUEST_KEYS)
"""The keys of a request that mean something."""
NEAR = 0.75
"""Least likeness (difflib's) at which an unknown key counts as a slip of the pen.

`porta` (0.91) and `budget` (0.75) reach it.
"""


class RequestProblems(PlacetError):  # noqa: N818 - it carries problems, plural
    """All problems of a request, each a sentence for the person who wrote it."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def read_request(
    path: str,
    note: Note,
    agents: Collection[str],
    portals: Collection[str],
    default_agent: str,
    own_keys: Collection[str] = (),
) -> Request:
    """Return the request that a note states.

    Its keys are read only here, for its first plan and for every later one. `agents` and `portals`
    are the names that exist, `own_keys` keys that mean something to the person alone. Raises
    RequestProblems with every problem at once.
    """
    problems: list[str] = []
    meta = note.meta
    if note.problem:
        problems.append(note.problem)
    if (size := len(note.raw.decode(errors="replace"))) > MAX_NOTE_CHARACTERS:
        problems.append(
            f"It has {size:,} characters. A request may have {MAX_NOTE_CHARACTERS:,}. Put the "
            "material into Knowledge/ and say in the request where it is."
        )
    text = note.body.strip()
    if not text and not note.problem:
        problems.append("It is empty. Write what you want done.")
    title = title_of(path, text)
    if _TEMPLATE.fullmatch(title):
        problems.append(
            f"The title is still `{title}`, so this is a template that was not filled in. Write a "
            "title, and below it what you want done."
        )
    problems += _near_keys(meta, own_keys)
    agent = _word(meta, "agent", problems) or default_agent
    problems += unknown_agent(agent, agents)
    portal = _word(meta, "portal", problems)
    problems += unknown_portal(portal, portals)
    priority = meta.get("priority")
    if priority is None or priority == "":
        priority = 5
    if isinstance(priority, str) and re.fullmatch(r"\s*[0-9]{1,2}\s*", priority):
        # Obsidian quotes a number that stands in a property of text
        priority = int(priority)
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 10:
        shown = shortened(str(priority))
        problems.append(f"`priority: {shown}` is not a whole number from 0 to 10.")
        priority = 5
    complexity: Complexity | None = None
    if word := _word(meta, "complexity", problems):
        try:
            complexity = Complexity(word.lower())
        except ValueError:
            problems.append(f"`complexity: {word}` is not one of {', '.join(Complexity)}.")
    budget = _money(meta.get("budget_usd"), problems)
    if not note.problem:
        problems += stray_keys(note, _values(agents, portals))
    if problems:
        raise RequestProblems(tuple(problems))
    return Request(title, agent, portal, priority, complexity, budget)


def _values(
    agents: Collection[str], portals: Collection[str]
) -> Mapping[str, Callable[[str], bool]]:
    """Return for each key of a request whether a text could be its value."""
    return {
        "status": lambda text: text.lower() in _STATUSES,
        "agent": lambda text: text in agents,
        "portal": lambda text: text in portals,
        "priority": lambda text: re.fullmatch("0?[0-9]|10", text) is not None,
        "complexity": lambda text: text.lower() in list(Complexity),
        "budget_usd": lambda text: _AMOUNT.fullmatch(text) is not None,
    }


_STATUSES = frozenset({DRAFT, "pending", *(one.request for one in STATUSES.values())})


def _near_keys(meta: Mapping[str, Any], own_keys: Collection[str]) -> list[str]:
    """Ask about keys that are not placet's but near one.

    Otherwise a misspelt property would be ignored silently.
    """
    return [
        f"placet does not know the key `{key}`. Did you mean `{near[0]}`? Then rename it. If it is "
        "a property of your own, give it another name, or name it in `own_keys` under [vault] in "
        "System/placet.toml."
        for key in map(str, meta)
        if key not in KEYS
        and key not in own_keys
        and (near := get_close_matches(key.lower(), KEYS, 1, NEAR))
    ]


def changed_keys(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return a sentence on the keys of a request that changed since the plan before.

    Empty where nothing did.
    """
    changes = [
        f"`{key}` {_code(before.get(key, ''))} → {_code(value)}"
        for key, value in after.items()
        if before.get(key, "") != value
    ]
    return (
        f"Changed in the request's keys since the plan before: {', '.join(changes)}."
        if changes
        else ""
    )


def _code(value: str) -> str:
    return f"`{value.replace('`', '')}`" if value else "none"


def unknown_agent(name: str, agents: Collection[str]) -> tuple[str, ...]:
    """Return what to say about an unknown agent; empty for one of `agents` and for no name."""
    if not name or name in agents:
        return ()
    return (f"There is no agent `{name}` (System/Agents/{name}.md). There {_listed(agents)}.",)


def unknown_portal(name: str, portals: Collection[str]) -> tuple[str, ...]:
    """Return what to say about an unknown portal; empty for one of `portals` and for no name."""
    if not name or name in portals:
        return ()
    return (
        f"There is no portal `{name}`. There {_listed(portals)}. To add one: `placet portal add`. "
        f"If System/placet.toml has it, accept it on this machine: `placet config accept`.",
    )


def title_of(path: str, text: str) -> str:
    """Return a request's title: its first heading, else its file's name.

    One line, at most 100 characters.
    """
    for line in text.splitlines():
        if line.startswith("# ") and line[2:].strip():
            return line[2:].strip()[:100]
    name = PurePosixPath(path).name
    while name.lower().endswith(".md"):  # an editor may have added one more
        name = name[:-3]
    return one_line(name)[:100] or "Request"


def _word(meta: Mapping[str, Any], key: str, problems: list[str]) -> str:
    value = meta.get(key)
    if value is None or value == "":
        return ""
    if isinstance(value, str):
        return value.strip().removeprefix("[[").removesuffix("]]")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    problems.append(not_a_word(meta, key) or f"`{key}` must be one word.")
    return ""


def _money(value: object, problems: list[str]) -> Decimal | None:
    if value is None or value == "":
        return None
    text = str(value).strip()
    if not isinstance(value, bool) and (
        isinstance(value, (int, float)) or (isinstance(value, str) and _AMOUNT.fullmatch(text))
    ):
        amount = Decimal(text)
        if budget_problem(amount) is None and amount > 0:
            return amount
    problems.append(
        f"`budget_usd: {text[:50]}` is not an amount of dollars above 0 and up to "
        f"{MAX_BUDGET_USD:,}, such as 0.50."
    )
    return None


_TEMPLATE = re.compile(r"\{\{\s*title\s*\}\}|<%.*%>")
"""A title that the template plug-ins of Obsidian fill in."""
_AMOUNT = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?")


def _listed(names: Collection[str]) -> str:
    return "is " + ", ".join(f"`{n}`" for n in sorted(names)) if names else "are none"


def unfit(vault: PurePath, place: PurePath, *, is_repository: bool) -> str:
    """Return why missions cannot work on the folder `place`, in a sentence; empty where they can.

    Both paths are resolved.
    """
    if any(
        place.is_relative_to(vault / name) for name in ("Inbox", "System", ".obsidian", ".trash")
    ):
        return f"{place} is one of the vault's own folders, which no mission may write."
    if not is_repository and place != vault and vault.is_relative_to(place):
        return (
            f"{place} is not a git repository, and it holds the vault: a first commit would take in"
            " the vault too."
        )
    return ""
