"""Notes that the daemon decided on, and is about to write."""

from __future__ import annotations

import time

from placet.cli.glance import Glance, glance, waits_at
from placet.cli.site import Site, find
from placet.core.errors import UserError
from placet.core.life.case import Case
from placet.core.text.names import show
from placet.files.vault import Vault

WRITING_S = 2.0
"""Seconds for which a command waits for a note that the daemon is about to write."""


def written(site: Site, ident: str) -> tuple[Case, Glance]:
    """Return the case that an ID names, with a glance at it once its note is written.

    Raises UserError as `find` does, and where no daemon writes that note within WRITING_S.
    """
    until = time.monotonic() + WRITING_S
    while True:
        with Vault(site.vault) as folder, site.reader(ident) as reader:
            seen = glance(site, folder, reader, [case := find(reader, ident)])
        if case.trace_id not in seen.unwritten:
            return seen.cases[case.trace_id], seen
        if site.daemon is None or time.monotonic() > until:
            raise not_written_yet(site, seen.cases[case.trace_id])
        time.sleep(0.05)


def not_written_yet(site: Site, case: Case) -> UserError:
    """Return the error for a note that the daemon decided on, and did not write yet."""
    helps = "The daemon runs, and does so." if site.daemon else "Start the daemon: placet run"
    return UserError(f"{show(waits_at(case))} is still to be written.", helps)
