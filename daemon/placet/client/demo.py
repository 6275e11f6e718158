"""Prepare the demo's vault, and wait for its request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from pathlib import Path

from placet.case.life_cycle import State
from placet.client.cases import show
from placet.client.new_vault import init
from placet.client.site import Site
from placet.errors import UserError
from placet.git.run import BOT
from placet.git.vault_history import init_repo
from placet.host.clock import wall
from placet.sandbox.box import Level
from placet.sandbox.probe import probe

PATIENCE_S = 600.0
"""Seconds that a plan may take, and the daemon to see that it is approved."""
IDENT = "fix-the-median"
SCRIPTED = '[model]\nprovider = "scripted"\nname = "demo"\nscript = "System/demo-replies.toml"\n\n'


def prepare_demo(folder: Path, *, live: bool) -> None:
    """Make the vault, the request next to it, and a repository whose test fails."""
    vault, repository = folder / "vault", folder / "stats"
    init(vault)
    files = resources.files("placet.client").joinpath("demo_files")
    repository.mkdir(parents=True)
    for name in ("stats.py", "test_stats.py"):
        (repository / name).write_text(files.joinpath(f"{name}.txt").read_text())
    excludes, message = ("__pycache__/",), "A little statistics\n"
    init_repo(repository, excludes=excludes, author=BOT, message=message, when=wall())
    (folder / "Fix the median.md").write_text(files.joinpath("request.md").read_text())
    if not live:
        replies = files.joinpath("replies.toml").read_text()
        (vault / "System" / "demo-replies.toml").write_text(replies)
    # Below level 3 commands are refused; here they are the demo's own.
    accepted = {Level.NONE: "none", Level.LANDLOCK: "landlock"}.get(probe().level)
    sandbox = f'[commands]\nsandbox = "{accepted}"\n\n' if accepted else ""
    portal = f'[portals.stats]\npath = "{repository}"\n'
    (vault / "System" / "placet.toml").write_text(("" if live else SCRIPTED) + sandbox + portal)


def await_change(site: Site, is_alive: Callable[[], bool], state: State) -> None:
    """Wait until the request is in another state than this one, and its notes are written."""
    for _ in site.changes(PATIENCE_S):
        if not is_alive():
            break
        with suppress(UserError):  # the daemon has not seen it yet
            found = show(site, IDENT)
            notes = [site.vault / path for path in (found.plan, found.report) if path]
            if found.state != state and all(note.exists() for note in notes):
                return
    log = (site.vault.parent / "daemon.log").read_text(errors="replace")
    raise UserError(f"The daemon stopped making progress. It says:\n{log}")
