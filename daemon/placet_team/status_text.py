"""Draw the tables of `placet team`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placet.cli.drawing import drawn, styled, table
from placet.client.cases import age_s
from placet.wording import age, counted


def workers_text(found: Mapping[str, Any]) -> str:
    """Return the table of workers."""
    heads = ("worker", "labels", "slots", "sandbox", "version", "heard", "state")
    rows = [
        (
            one["name"],
            ", ".join(one["labels"]),
            f"{one['used']}/{one['slots']}",
            f"level {one['sandbox']}",
            one["version"],
            f"{age(one['quiet_s'])} ago",
            one["state"],
        )
        for one in found["workers"]
    ]
    return _drawn(rows, heads)


def status_text(found: Mapping[str, Any]) -> str:
    """Return `placet team status`: the team, its workers, and its work."""
    head = [
        ("database", found["database"]),
        ("daemon", found["daemon"] or "not running (placet run)"),
        ("workers", counted(len(found["workers"]), "worker")),
        *(("blocked", words) for words in found["blocked"]),
    ]
    work = [
        (
            one["request_id"],
            one["state"],
            one["worker"],
            f"for {age(age_s(one['since']))}" if one["since"] else one["waits_for"],
        )
        for one in found["work"]
    ]
    heads = ("request", "state", "worker", "")
    parts = [_drawn(head), workers_text(found), _drawn(work, heads)]
    return "\n\n".join(part for part in parts if part)


def written_text(wrote: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of what a worker wrote."""
    rows = [
        (
            one["request_id"],
            one["since"],
            one["until"],
            str(one["rows"]),
            str(one["commits"]),
            f"${one['usd']:.4f}",
        )
        for one in wrote
    ]
    return _drawn(rows, ("request", "since", "until", "rows", "commits", "cost"))


def _drawn(rows: Sequence[Sequence[str]], heads: Sequence[str] = ()) -> str:
    if not rows:
        return ""
    cells = [[styled(cell) for cell in row] for row in rows]
    return drawn(table(cells, heads=heads, whole=(0,), indent=0))
