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
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import click

from placet.case.life_cycle import State
from placet.cli.terminal import colour, fitted
from placet.client.cases import show
from placet.client.demo import IDENT, await_change, prepare_demo
from placet.client.site import Site
from placet.client.texts import harmless
from placet.client.words import model_line
from placet.errors import UserError
from placet.host.state import expand_home
from placet.wording import counted

MOST = 40
"""Maximum lines of a command's output that are shown."""
WHO = (
    "SELECT actor, action_type, count(*) AS rows FROM activity "
    "WHERE trace_id <> '' GROUP BY 1, 2 ORDER BY min(id)"
)


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
    prepare_demo(folder, live=live)
    env = {**os.environ, "PLACET_STATE_HOME": str(folder / "state"), "PLACET_VAULT": str(vault)}
    site = Site(str(vault), env)

    def run(sentence: str, command: str) -> None:
        _run(sentence, command, vault, env)

    click.echo(f"vault   {vault}, and next to it a repository whose test fails")
    click.echo(f"model   {model_line(*(('anthropic', 'real') if live else ('scripted', 'demo')))}")
    with _daemon(site) as is_alive:
        note = "'../Fix the median.md'"
        run("Drop a request into the vault.", f"cat {note}; mv {note} Inbox/Requests/")
        await_change(site, is_alive, State.PLANNING)
        run("The agent wrote a plan. Read it.", f"cat Inbox/Plans/{IDENT}_plan.md")
        run(
            "Approve it: move it to System/Active.",
            f"mv Inbox/Plans/{IDENT}_plan.md System/Active/",
        )
        await_change(site, is_alive, State.REVIEW)
        run("Follow the work.", f"placet watch {IDENT}")
        run("Read the report.", f"cat Knowledge/Reports/*_{IDENT}.md")
    branch = shlex.quote(show(site, IDENT).branch)
    run("Your checkout was not touched. Look at the branch.", f"placet diff {IDENT}")
    run(
        "Run the test that failed, on the branch.",
        f"cd ../stats && git switch -q {branch} && python3 -m unittest -v",
    )
    run("The journal has every step.", f'placet journal --sql "{WHO}"')


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
