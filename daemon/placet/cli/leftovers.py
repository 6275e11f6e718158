"""`placet doctor --fix`: worktrees that a crash left behind."""

from __future__ import annotations

from pathlib import Path

from placet.agent.tidying import redacting
from placet.cli.site import Site
from placet.core.errors import UserError
from placet.core.life.case import OPEN
from placet.host.clock import Clock
from placet.host.config import repositories
from placet.journal.place import is_begun
from placet.journal.reader import open_reader
from placet.loop.means import own_secrets
from placet.repo.removal import remove_leftovers as leftovers
from placet.repo.repository import is_repository, open_repo


def remove_leftovers(site: Site) -> list[str]:
    """Remove the worktrees whose cases are not at work, and return a sentence on each.

    Their work is kept at a ref. Raises UserError while a daemon runs: its worktrees are in use.
    """
    state = site.state
    if holder := site.daemon:
        raise UserError(
            f"The daemon is running ({holder}); its worktrees are in use.", "Stop it first."
        )
    if not is_begun(state.journal):
        return []
    live = at_work(state.journal)
    repos, said = [], []
    for place in repositories(site.vault, site.in_force().config):
        if is_repository(place):
            try:
                repos.append(open_repo(place))
            except UserError as error:
                said.append(f"{place} is not looked at: {error.what}")
    now = Clock().wall()
    redact = redacting(own_secrets(site.env))
    for one in leftovers(repos, state.worktrees, live, now, now, redact):
        if not one.removed:
            said.append(f"{one.path} is left as it is: {one.problem}")
        elif one.kept:
            said.append(f"{one.path} is removed; its work is kept at {one.kept}.")
        else:
            said.append(f"{one.path} is removed; it had no work in it.")
    return said


def at_work(journal: Path) -> set[str]:
    """Return the trace_ids of open cases, as far as worktrees have them in their names.

    A mission that asks a person stands still, and keeps its worktree.
    """
    with open_reader(journal) as reader:
        return {row.trace_id[:8] for row in reader.cases(*OPEN)}
