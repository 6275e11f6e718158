"""Show placet's main job with real commands on a temporary vault: `placet demo`.

Only the model is scripted, unless `--live` asks for the real one.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from itertools import islice
from pathlib import Path

import click

from placet.case.life_cycle import State
from placet.cli.init import init
from placet.cli.terminal import colour, fitted
from placet.client.cases import show
from placet.client.site import Site
from placet.client.texts import harmless
from placet.client.words import model_line
from placet.errors import UserError
from placet.git.run import BOT
from placet.git.vault_history import init_repo
from placet.host.clock import wall
from placet.host.state import expand_home
from placet.sandbox.box import Level
from placet.sandbox.probe import probe
from placet.wording import counted

PATIENCE_S = 600.0
"""Seconds that a plan may take, and the daemon to see that it is approved."""
MOST = 40
"""Maximum lines of a command's output that are shown."""
IDENT = "fix-the-median"
WHO = (
    "SELECT actor, action_type, count(*) AS rows FROM activity "
    "WHERE trace_id <> '' GROUP BY 1, 2 ORDER BY min(id)"
)
SCRIPTED = '[model]\nprovider = "scripted"\nname = "demo"\nscript = "System/demo-replies.toml"\n\n'


@click.command("demo")
@click.option("--keep", "kept", metavar="DIR", help="Keep its vault here, to look around in.")
@click.option("--live", is_flag=True, help="Use the real model; needs ANTHROPIC_API_KEY.")
def demo_command(kept: str | None, live: bool) -> None:
    """See the whole of it in a minute: request, plan, approval, mission, report."""
    keep = expand_home(kept).absolute() if kept else None
    if live and not os.environ.get("ANTHROPIC_API_KEY"):
        raise UserError(
            "--live needs a key.",
            "export ANTHROPIC_API_KEY=…, or leave --live away for the scripted model.",
            exit_code=2,
        )
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UserError(f"{keep} is not empty.", "Name a new folder for --keep.", exit_code=2)
    folder = keep if keep is not None else Path(tempfile.mkdtemp(prefix="placet-demo-"))
    try:
        _play(folder, live=live)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if keep is None:
        click.echo("\nThe demo deleted its vault. To keep one: placet demo --keep DIR")
    else:
        click.echo(
            f"\nKept: {keep}. To look around, and for the commands in its report:\n"
            f"  export PLACET_STATE_HOME={shlex.quote(str(keep / 'state'))}\n"
            f"  cd {shlex.quote(str(keep / 'vault'))} && {called()} status"
        )
    click.echo(
        "\nTo continue with a real model (a server of your own: daemon/docs/models.md):\n"
        "  export ANTHROPIC_API_KEY=…\n"
        f"  {called()} init ~/vault\n"
        f"  {called()} run --vault ~/vault"
    )


def called() -> str:
    """Return how to call this program: by its name only where the shell finds it."""
    return "placet" if shutil.which("placet") else f"{shlex.quote(sys.executable)} -m placet"


def _play(folder: Path, *, live: bool) -> None:
    vault = folder / "vault"
    _prepare(folder, live=live)
    env = {**os.environ, "PLACET_STATE_HOME": str(folder / "state"), "PLACET_VAULT": str(vault)}
    site = Site(str(vault), env)

    def run(sentence: str, command: str) -> None:
        _run(sentence, command, vault, env)

    click.echo(f"vault   {vault}, and next to it a repository whose test fails")
    click.echo(f"model   {model_line(*(('anthropic', 'real') if live else ('scripted', 'demo')))}")
    with _daemon(site) as is_alive:
        note = "'../Fix the median.md'"
        run("Drop a request into the vault.", f"cat {note}; mv {note} Inbox/Requests/")
        _await(site, is_alive, State.PLANNING)
        run("The agent wrote a plan. Read it.", f"cat Inbox/Plans/{IDENT}_plan.md")
        run(
            "Approve it: move it to System/Active.",
            f"mv Inbox/Plans/{IDENT}_plan.md System/Active/",
        )
        _await(site, is_alive, State.REVIEW)
        run("Follow the work.", f"placet watch {IDENT}")
        run("Read the report.", f"cat Knowledge/Reports/*_{IDENT}.md")
    branch = shlex.quote(show(site, IDENT).branch)
    run("Your checkout was not touched. Look at the branch.", f"placet diff {IDENT}")
    run(
        "Run the test that failed, on the branch.",
        f"cd ../stats && git switch -q {branch} && python3 -m unittest -v",
    )
    run("The journal has every step.", f'placet journal --sql "{WHO}"')


def _prepare(folder: Path, *, live: bool) -> None:
    """Make the vault, the request next to it, and a repository whose test fails."""
    vault, repository = folder / "vault", folder / "stats"
    init(vault)
    files = resources.files("placet.cli").joinpath("demo_files")
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
    box = f'[commands]\nsandbox = "{accepted}"\n\n' if accepted else ""
    portal = f'[portals.stats]\npath = "{repository}"\n'
    (vault / "System" / "placet.toml").write_text(("" if live else SCRIPTED) + box + portal)


@contextmanager
def _daemon(site: Site) -> Iterator[Callable[[], bool]]:
    """Run the daemon; give a function that says whether it is alive."""
    _tell("Start the daemon.", "placet run &")
    with (site.vault.parent / "daemon.log").open("wb") as log:
        argv = [sys.executable, "-m", "placet", "run"]
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(site.env)
        )
    try:
        yield lambda: process.poll() is None
    finally:
        process.terminate()
        process.wait()


def _await(site: Site, is_alive: Callable[[], bool], state: State) -> None:
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


def _run(sentence: str, command: str, vault: Path, env: dict[str, str]) -> None:
    """Tell and run a command; show the first lines that it prints, as they come."""
    _tell(sentence, command)
    placet = f'placet() {{ {shlex.quote(sys.executable)} -m placet "$@"; }}'
    process = subprocess.Popen(
        ["sh", "-c", f"{placet}; {command}"],
        cwd=vault,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    assert process.stdout is not None, "it is a pipe"
    for line in islice(process.stdout, MOST):
        _show(line)
    if more := sum(1 for _ in process.stdout):
        _show(f"… {counted(more, 'more line')}")
    if code := process.wait():
        raise UserError(
            f"The demo stops: this command failed, exit code {code}.",
            "Keep its vault and the daemon's log: placet demo --keep DIR",
        )


def _tell(sentence: str, command: str) -> None:
    click.echo(f"\n{sentence}\n{colour(f'$ {command}', 'cyan', bold=True)}")


def _show(line: str) -> None:
    text = harmless(line.rstrip().expandtabs(22))
    if sys.stdout.isatty():
        text = fitted(text, shutil.get_terminal_size().columns - 4, hang=0)
    for piece in text.split("\n"):
        click.echo(f"{colour('  │ ', 'cyan')}{piece}")
