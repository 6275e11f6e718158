"""Say what a receipt states of a mission, and whether a change is inside the approved scope."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal

from placet.case.case import Signed
from placet.case.mission_result import CommandRun
from placet.codec import Stored
from placet.note.paths import show
from placet.note.portable import folded
from placet.plan.scope import Scope

NAMESPACE = "placet-receipt"
"""The namespace of the daemon's signatures."""
DAEMON = "placet"
"""The name of the daemon's key in a list of signers."""
STATED, LIST = "receipt.json", "allowed_signers"
"""Names of a receipt's files: what the daemon states, and who might approve then."""
_LINK, _MODULE = "120000", "160000"
_KNOWN = frozenset({"000000", "100644", "100755", _LINK})


def names_of(number: int) -> tuple[str, str, str]:
    """Return the names of a receipt's files about an approval: statement, signature, plan."""
    return f"approval-{number}.txt", f"approval-{number}.txt.sig", f"plan-{number}.md"


@dataclass(frozen=True, slots=True)
class Change:
    """A path that differs between two commits: git's modes and digests before and after."""

    path: str
    mode_before: str
    mode: str
    blob_before: str
    blob: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the daemon states of a mission that ended.

    `commits` are the mission's own, the oldest first, from `base` to `tip`. `journal_row` and
    `journal_hash` are the journal's last row then. `cost_usd` is None if unknown.
    """

    trace_id: str
    request_id: str
    generation: int
    ended: str
    base: str
    tip: str
    commits: tuple[str, ...]
    files: tuple[Change, ...]
    scope: Scope
    approvals: tuple[Signed, ...]
    commands: tuple[CommandRun, ...]
    tokens: int
    cost_usd: Decimal | None
    journal_row: int
    journal_hash: str


_JSON: Stored[Receipt] = Stored(Receipt)


def as_json(receipt: Receipt) -> str:
    """Return the text of `receipt.json`, in ASCII."""
    return json.dumps(json.loads(_JSON.dump_json(receipt)), indent=1) + "\n"


def read_receipt(raw: bytes) -> Receipt:
    """Return what a `receipt.json` states. Raises ValueError for any other text."""
    return _JSON.validate_json(raw)


def why_outside(scope: Scope, change: Change) -> str:
    """Return why a change is not inside a scope, in a sentence; empty for one that is."""
    path = show(change.path)
    if _MODULE in (change.mode_before, change.mode):
        return f"{path} is a submodule."
    if not {".git", ".gitmodules"}.isdisjoint(folded(change.path).split("/")):
        return f"{path} decides how git behaves."
    if not scope.allows_write(change.path):
        return f"{path} is outside of what was approved."
    if change.mode == _LINK and change.path not in scope.by_name():
        return f"{path} is a symbolic link, and the approved scope does not name it in full."
    return "" if change.mode in _KNOWN else f"{path} has the mode {change.mode}."
