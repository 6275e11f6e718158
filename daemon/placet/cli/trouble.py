"""Trouble that holds all work up: of the disk, or of the model."""

from __future__ import annotations

import os
from pathlib import Path

from placet.activity import Action
from placet.case.waiting import Hold, Why
from placet.journal.reader import Reader

NO_ROOM = 64 * 1024
"""Free bytes below which a disk is full: a small event does not fit into the journal's log."""


def disk_trouble(journal: Path) -> list[str]:
    """Return why the disk does not let the daemon write its journal: at most one sentence."""
    disk = os.statvfs(journal.parent)
    if disk.f_flag & os.ST_RDONLY:
        why = "is mounted read-only"
    elif disk.f_bavail * disk.f_frsize < NO_ROOM:
        why = "is full"
    else:
        return []
    return [
        f"The disk of {journal.parent}, where the journal is, {why}. What cannot be written down "
        "waits, nothing is lost, and it goes on by itself when that is fixed."
    ]


def waits_for_model(reader: Reader) -> dict[str, str] | None:
    """Return why all work waits for the model, and since when; None where it does not."""
    row = reader.last_of(Action.MODEL_WAITING, Action.MODEL_RESUMED, trace_id="")
    if row is None or row.action_type != Action.MODEL_WAITING:
        return None
    why, reason = Why(row.details["why"]), row.details["reason"]
    # a key that was given may be a wrong one, and then the network may be down
    if why is Why.BLOCKED:
        reason = reader.calls.failed_since(row.id) or reason
    return {
        "why": why.value,
        "reason": reason,
        "since": row.timestamp,
        "notice": Hold(why, reason, 0.0).notice,
    }
