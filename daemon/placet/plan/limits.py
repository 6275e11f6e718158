"""Limit what a request, a plan and a permission may hold, where they enter.

What is approved already runs on, whatever it holds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from placet.note.escape import bounded, code
from placet.plan.comments import comments
from placet.plan.plan import Plan
from placet.plan.scope import Scope

MAX_NOTE_CHARACTERS = 256 * 1024
"""A longer one would not fit into a model's context together with the repository."""
MAX_STEPS = 200
MAX_COMMENTS = 200
MAX_SCOPE_ENTRIES = 200
MAX_ENTRY_CHARACTERS = 1_000
MAX_ACTION_BYTES = 64 * 1024

_SHOWN = 60


def plan_excess(plan: Plan) -> list[str]:
    """Return a sentence for each limit that a plan exceeds."""
    said = []
    if len(plan.steps) > MAX_STEPS:
        said.append(
            f"The plan has {len(plan.steps):,} steps. At most {MAX_STEPS} are allowed. "
            "Split the request into several."
        )
    for number, step in enumerate(plan.steps[:MAX_STEPS], 1):
        for action in step.actions:
            size = len(json.dumps(action.params, ensure_ascii=False, default=str).encode())
            if size > MAX_ACTION_BYTES:
                said.append(
                    f"An action of step {number} has {size:,} bytes. "
                    f"At most {MAX_ACTION_BYTES:,} are allowed. Split it into several."
                )
    return [*said, *scope_excess(plan.scope)]


def scope_excess(scope: Scope) -> list[str]:
    """Return a sentence for each limit that a scope exceeds, and each entry not shown whole."""
    entries = [*(("write", one) for one in scope.write), *(("run", one) for one in scope.commands)]
    if len(entries) > MAX_SCOPE_ENTRIES:
        return [
            f"The scope has {len(entries):,} entries in `write` and `run`. "
            f"At most {MAX_SCOPE_ENTRIES} are allowed. Use patterns such as `src/**`."
        ]
    said = []
    for key, entry in entries:
        name = f"{code(entry[:_SHOWN])}{'…' if len(entry) > _SHOWN else ''} in `{key}`"
        if len(entry) > MAX_ENTRY_CHARACTERS:
            said.append(
                f"{name} has {len(entry):,} characters. "
                f"At most {MAX_ENTRY_CHARACTERS:,} are allowed, so that a person can read it."
            )
        elif bounded(entry) != entry:
            said.append(
                f"{name} cannot be shown as it is. "
                "Write it without hidden characters and long gaps."
            )
    return said


def comment_excess(body: str) -> Sequence[str]:
    """Return a sentence if a plan's text has more comments than anybody reads."""
    number = len(comments(body))
    if number <= MAX_COMMENTS:
        return ()
    return (f"The plan has {number:,} comments. At most {MAX_COMMENTS} are allowed. Delete some.",)
