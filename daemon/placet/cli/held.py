"""The reason for which a request is not planned before a person does something."""

from __future__ import annotations

from placet.cli.glance import Glance
from placet.cli.site import Site
from placet.core.activity import Action
from placet.core.life.case import DRAFTING
from placet.core.life.gestures import BY_COMMAND
from placet.core.life.sight import DRAFT, look_at
from placet.core.life.waiting import ALLOW_HISTORY
from placet.core.text.names import show
from placet.files.errors import Unreadable
from placet.files.vault import Vault
from placet.host.clock import Clock
from placet.journal.reader import Reader

IS_DRAFT = "it says `status: draft`; it is planned once that line goes, or says `pending`"
NEEDS_HISTORY = (
    "waits for a history (git) of the vault, as it names no portal; to allow one: " + ALLOW_HISTORY
)


def held_back(site: Site, folder: Vault, reader: Reader, seen: Glance, trace: str) -> str:
    """Return why a request is not planned before a person does something; empty for any other."""
    case, config = seen.cases[trace], site.configured()
    if case.acting not in DRAFTING or not case.request_path:
        return ""
    try:
        raw, mark = folder.read(case.request_path)
    except Unreadable:
        return ""
    note = look_at(case.request_path, raw, "")
    if note.status == DRAFT:
        return IS_DRAFT
    if ALLOW_HISTORY in seen.explained.get(show(case.request_path), "") and not config.history:
        return NEEDS_HISTORY
    asked = reader.last_of(Action.REQUEST_DETECTED, Action.REQUEST_EDITED, trace_id=case.trace_id)
    ready = asked is not None and (
        asked.details.get("ready") or asked.details.get("via") in BY_COMMAND
    )
    if site.daemon is None or (ready and note.digest == case.request_digest):
        return ""  # the person said that it is complete; only stamps were written since
    age_s = Clock().wall().timestamp() - mark.mtime_ns / 1e9
    if age_s >= config.quiet_s or any(True for _ in reader.records(case.trace_id, case.generation)):
        return ""
    return (
        "waits until you stop writing: it is planned once its note has stayed as it is for "
        f"{config.quiet_s:g} s ([vault] quiet_s)"
    )
