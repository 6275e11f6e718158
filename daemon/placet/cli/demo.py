"""`placet demo`: the main job once, on real parts, in a temporary vault.

Only the model is scripted, unless asked otherwise. On a terminal it is shown at the speed of
somebody who reads along, and as wide as that is; elsewhere whole and at once.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import click

from placet.cli.case_line import progress
from placet.cli.init import init
from placet.cli.journal import journal_rows
from placet.cli.look import show
from placet.cli.site import Site
from placet.cli.stage import Stage, called, paced
from placet.cli.terminal import colour, harmless, shown_time
from placet.cli.text import model_line, table_text
from placet.core.box import Level
from placet.core.errors import UserError
from placet.core.text.facts import facts
from placet.core.text.names import Folder, plan_name
from placet.core.wording import dollars
from placet.host.clock import wall
from placet.host.state import from_home
from placet.journal.place import is_begun
from placet.journal.query import query
from placet.repo.history import diff_text
from placet.repo.init import init_repo
from placet.repo.repository import open_repo
from placet.repo.values import BOT
from placet.sandbox.probe import probe

PATIENCE_S = 60.0
LIVE_PATIENCE_S = 900.0
STEP_S = 0.05


@click.command("demo")
@click.option("--keep", "kept", metavar="DIR", help="Keep its vault here, to look around in.")
@click.option("--live", is_flag=True, help="Use the real model; needs ANTHROPIC_API_KEY.")
@click.option("--fast", is_flag=True, help="Without pauses. On a terminal any key skips one.")
def demo_command(kept: str | None, live: bool, fast: bool) -> None:
    """See the whole of it in a minute: request, plan, approval, mission, report."""
    keep = from_home(kept).absolute() if kept else None
    if live and not os.environ.get("ANTHROPIC_API_KEY"):
        raise UserError(
            "--live needs a key.",
            "export ANTHROPIC_API_KEY=…, or leave --live away for the scripted model.",
            exit_code=2,
        )
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UserError(f"{keep} is not empty.", "Name a new folder for --keep.", exit_code=2)
    if shutil.which("git") is None:
        raise UserError("git is not installed.", "Install git, then try again.", exit_code=2)
    folder = keep if keep is not None else Path(tempfile.mkdtemp(prefix="placet-demo-"))
    try:
        with paced(fast=fast or not sys.stdout.isatty()) as stage:
            _show(folder, stage, live=live)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if keep is not None:
        click.echo(
            f"Kept: {keep}. To look around, and for the commands in its report:\n"
            f"export PLACET_STATE_HOME={shlex.quote(str(keep / 'state'))} && "
            f"cd {shlex.quote(str(keep / 'vault'))} && {called()} status"
        )
    else:
        click.echo(f"Next: {called()} init ~/vault   (--keep DIR keeps this demo's vault)")


def _show(folder: Path, stage: Stage, *, live: bool) -> None:
    vault, repository = folder / "vault", folder / "stats"
    level = probe().level
    _prepare(vault, repository, level, live=live)
    site = Site(str(vault), {**os.environ, "PLACET_STATE_HOME": str(folder / "state")})
    stage.head("placet demo")
    stage.line(
        "model    "
        f"{model_line('anthropic', 'the real one') if live else model_line('scripted', 'demo')}"
    )
    stage.line(f"vault    {vault}")
    stage.line(f"sandbox  {level.title} (level {int(level)} of 3)")
    if not stage.fast:
        stage.line("pace     any key goes on at once; placet demo --fast does not stop")
    patience_s = LIVE_PATIENCE_S if live else PATIENCE_S
    with _daemon(site):
        stage.head("1  A request is dropped into the vault")
        request = resources.files("placet.cli").joinpath("demo_files", "request.md").read_text()
        # moved in whole: one that is written there is given time, as somebody may type on
        draft = folder / "Fix the median.md"
        draft.write_text(request)
        draft.rename(vault / Folder.REQUESTS / draft.name)
        stage.body(request)
        rows = _follow(site, patience_s)
        row = _until(stage, rows, "plan.created", "plan.failed")
        if row["action_type"] == "plan.failed":
            raise UserError(f"There is no plan: {row['metadata']['reason']}")
        ident = row["entity_id"]
        plan = vault / Folder.PLANS / plan_name(ident)
        stage.head("2  The plan, as it waits for review")
        _wait_for(plan)
        stage.note(plan.read_bytes())
        stage.head("3  A person approves it by moving the file")
        stage.line(
            f"$ mv {shlex.quote(f'{Folder.PLANS}/{plan.name}')} "
            f"{shlex.quote(f'{Folder.ACTIVE}/{ident}.md')}"
        )
        plan.rename(vault / Folder.ACTIVE / f"{ident}.md")
        stage.head("4  The mission")
        done = _until(stage, rows, "execution.completed", "execution.failed")["metadata"]
        found = show(site, ident)
        _wait_for(vault / found["report"])
        found = show(site, ident)
    stage.head(f"5  The report  ({found['report']})")
    stage.note((found["report_text"] or "").encode())
    if found["state"] != "completed":
        raise UserError("The mission failed; its report is above.")
    stage.head("6  The branch; your checkout was not touched")
    stage.line(f"$ placet diff {ident}")
    stage.body(diff_text(open_repo(repository), done["base"], done["commit"]))
    stage.head("7  The test that failed, on that branch")
    _test(stage, folder, repository, done["branch"])
    stage.head("8  The journal has each of these steps, and who decided")
    stage.line(f'$ placet journal --sql "{WHO}"')
    stage.body(table_text(*query(site.state.journal, WHO)).expandtabs(22))
    stage.end()
    click.echo()


WHO = (
    "SELECT actor, action_type, count(*) AS rows, coalesce(metadata->>'reviewed_by', '') AS "
    "who FROM activity "
    "WHERE trace_id <> '' AND action_type <> 'git.ran' GROUP BY 1, 2, 4 ORDER BY min(id)"
)


def _prepare(vault: Path, repository: Path, level: Level, *, live: bool) -> None:
    init(vault)
    files = resources.files("placet.cli").joinpath("demo_files")
    repository.mkdir(parents=True)
    for name in ("stats.py", "test_stats.py"):
        (repository / name).write_text(files.joinpath(f"{name}.txt").read_text())
    init_repo(
        repository,
        excludes=("__pycache__/",),
        author=BOT,
        message="A little statistics\n",
        when=wall(),
    )
    system, model = vault / "System", ""
    if not live:
        (system / "demo-replies.toml").write_text(files.joinpath("replies.toml").read_text())
        model = _SCRIPTED
    # Without a sandbox commands are refused; here they are the demo's own, as the screen says.
    box = '[commands]\nsandbox = "none"\n\n' if level is Level.NONE else ""
    portal = f'[portals.stats]\npath = "{repository}"\n'
    (system / "placet.toml").write_text(model + box + portal)


_SCRIPTED = """\
[model]
provider = "scripted"
name = "demo"
script = "System/demo-replies.toml"

"""


@contextmanager
def _daemon(site: Site) -> Iterator[None]:
    log = site.vault.parent / "daemon.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "placet", "run", "--vault", str(site.vault)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=dict(site.env),
        )
    try:
        until = time.monotonic() + PATIENCE_S
        while process.poll() is None and not _is_up(site) and time.monotonic() < until:
            time.sleep(STEP_S)
        if process.poll() is not None:
            raise UserError(f"The daemon did not start:\n{log.read_text(errors='replace')}")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_up(site: Site) -> bool:
    if not is_begun(site.state.journal):
        return False
    try:
        rows = journal_rows(site, None, limit=10, follow=False, routine=False)
        return any(row["action_type"] == "daemon.started" for row in rows)
    except UserError:
        return False  # the database is there and still empty


def _follow(site: Site, patience_s: float) -> Iterator[dict[str, Any]]:
    """Yield the journal's rows as they come; raises UserError after `patience_s` without one."""
    last, until = 0, time.monotonic() + patience_s
    while time.monotonic() < until:
        for row in journal_rows(site, None, limit=1000, follow=False, routine=False):
            if row["id"] > last:
                last = row["id"]
                yield row
                # whoever took the row may have taken time to show it
                until = time.monotonic() + patience_s
        time.sleep(STEP_S)
    raise UserError(
        f"Nothing more happened for {patience_s:.0f} s.",
        f"Look at {site.vault.parent / 'daemon.log'}.",
    )


def _until(stage: Stage, rows: Iterator[dict[str, Any]], *ends: str) -> dict[str, Any]:
    """Show a line for each call and decision until a row of one of these actions; return that."""
    seen = []
    for row in rows:
        data, action = row["metadata"], row["action_type"]
        seen.append((action, data))
        if action in _SHOWN:
            now = progress(seen)
            done = f"step {now['step']}/{now['of']}  iteration {now['iterations']}"
            at = f"{done}  {dollars(now['cost_usd'])}  " if now["of"] else ""
            stage.line(
                f"{shown_time(row['timestamp'])}  {colour(at, 'white', bold=True)}{_SHOWN[action]}"
                f"{harmless(facts(action, data))}"
            )
        if action in ends:
            return row
    raise AssertionError("following ends with an error")


_SHOWN = {
    "request.detected": "request seen: ",
    "plan.created": "the plan is there: ",
    "plan.failed": "no plan: ",
    "plan.approved": "approved ",
    "execution.started": "the mission begins: ",
    "tool.called": "",
    "tool.refused": "refused: ",
    "failure.detected": "noticed: ",
    "git.committed": "committed ",
    "execution.completed": "completed: ",
    "execution.failed": "failed: ",
}


def _wait_for(path: Path) -> None:
    """Wait for an effect on the vault: the journal announces it before."""
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        if time.monotonic() > until:
            raise UserError(f"{path} did not appear.")
        time.sleep(STEP_S)


def _test(stage: Stage, folder: Path, repository: Path, branch: str) -> None:
    place, worktree = folder / "look", ("git", "-C", str(repository), "worktree")
    subprocess.run([*worktree, "add", "--quiet", "--detach", str(place), branch], check=True)
    result = subprocess.run(
        [sys.executable, "-m", "unittest", "-v"],
        cwd=place,
        check=False,
        capture_output=True,
        text=True,
    )
    stage.line("$ python3 -m unittest -v")
    stage.body(result.stderr)
    subprocess.run([*worktree, "remove", "--force", str(place)], check=True)
    if result.returncode != 0:
        raise UserError("The test still fails.")
