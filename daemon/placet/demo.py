"""`placet demo`: the main job once, on real parts, in a temporary vault. Only the model is scripted, unless asked otherwise."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import click

from placet.clock import wall
from placet.core.errors import UserError
from placet.core.names import Folder
from placet.desk import journal_rows, show
from placet.repo import BOT, diff_text, init_repo, open_repo
from placet.sandbox import Level, probe
from placet.setup import init
from placet.show import colour, is_routine, model_line, row_text
from placet.state import vault_state

PATIENCE_S = 60.0
LIVE_PATIENCE_S = 900.0
STEP_S = 0.05
WIDTH = 118


def run(keep: Path | None, *, live: bool) -> None:
    """Show request, plan, approval, mission and report. Raises UserError where the demo cannot be shown."""
    if live and not os.environ.get("ANTHROPIC_API_KEY"):
        raise UserError("--live needs a key.", "export ANTHROPIC_API_KEY=…, or leave --live away for the scripted model.",
                        exit_code=2)
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UserError(f"{keep} is not empty.", "Name a new folder for --keep.", exit_code=2)
    if shutil.which("git") is None:
        raise UserError("git is not installed.", "Install git, then try again.", exit_code=2)
    folder = keep if keep is not None else Path(tempfile.mkdtemp(prefix="placet-demo-"))
    try:
        _show(folder, live=live)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if keep is not None:
        _say(f"Kept: {keep}. Look around with PLACET_STATE_HOME={shlex.quote(str(keep / 'state'))} "
             f"placet status --vault {shlex.quote(str(keep / 'vault'))}")
    else:
        _say("Next: placet init ~/vault   (--keep DIR keeps this demo's vault)")


def _show(folder: Path, *, live: bool) -> None:
    vault, repository = folder / "vault", folder / "stats"
    level = probe().level
    _prepare(vault, repository, level, live=live)
    env = {**os.environ, "PLACET_STATE_HOME": str(folder / "state")}
    _head("placet demo")
    _say(f"model    {model_line('anthropic', 'the real one') if live else model_line('scripted', 'demo')}")
    _say(f"vault    {vault}")
    _say(f"sandbox  {level.title} (level {int(level)} of 3)")
    patience_s = LIVE_PATIENCE_S if live else PATIENCE_S
    with _daemon(vault, env):
        _head("1  A request is dropped into the vault")
        request = resources.files("placet").joinpath("demo_files", "request.md").read_text()
        (vault / Folder.REQUESTS / "Fix the median.md").write_text(request)
        _body(request)
        rows = _follow(vault, env, patience_s)
        for row in rows:
            if row["action_type"] in ("plan.created", "plan.failed"):
                break
        if row["action_type"] == "plan.failed":
            raise UserError(f"There is no plan: {row['metadata']['reason']}")
        ident = row["entity_id"]
        plan = vault / Folder.PLANS / f"{ident}_plan.md"
        _head("2  The plan, as it waits for review")
        _wait_for(plan)
        _body(plan.read_text())
        _head("3  A person approves it by moving the file")
        _say(f"$ mv {shlex.quote(f'{Folder.PLANS}/{plan.name}')} {shlex.quote(f'{Folder.ACTIVE}/{ident}.md')}")
        plan.rename(vault / Folder.ACTIVE / f"{ident}.md")
        _head("4  The mission")
        for row in rows:
            if row["action_type"] in ("execution.completed", "execution.failed"):
                break
        found = show(vault, env, ident)
        _wait_for(vault / found["report"])
        found = show(vault, env, ident)
    _head("5  The report")
    _body(found["report_text"] or "")
    if found["state"] != "completed":
        raise UserError("The mission failed; its report is above.")
    done = row["metadata"]
    _head("6  The branch")
    _say(f"{done['branch']} at {done['commit'][:12]}; your checkout was not touched")
    repo = open_repo(repository)
    _body(diff_text(repo, f"{done['commit']}~2", done["commit"]) if not live else diff_text(repo, "HEAD", done["commit"]))
    _head("7  The test that failed, on that branch")
    _test(folder, repository, done["branch"])
    _head("8  The journal of it all")
    for line in (row for row in found["journal"] if not is_routine(row)):
        click.echo(row_text(line, WIDTH))
    _say("")


def _prepare(vault: Path, repository: Path, level: Level, *, live: bool) -> None:
    init(vault)
    files = resources.files("placet").joinpath("demo_files")
    repository.mkdir(parents=True)
    for name in ("stats.py", "test_stats.py"):
        (repository / name).write_text(files.joinpath(f"{name}.txt").read_text())
    init_repo(repository, excludes=("__pycache__/",), author=BOT, message="A little statistics\n", when=wall())
    model = [] if live else ["[model]", 'provider = "scripted"', 'name = "demo"', 'script = "System/demo-replies.toml"', ""]
    if not live:
        (vault / "System" / "demo-replies.toml").write_text(files.joinpath("replies.toml").read_text())
    # Without any sandbox commands are refused; here they are the demo's own, and the screen says so.
    box = ["[commands]", 'sandbox = "none"', ""] if level is Level.NONE else []
    (vault / "System" / "placet.toml").write_text("\n".join([*model, *box, "[portals.stats]", f'path = "{repository}"', ""]))


@contextmanager
def _daemon(vault: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Run the daemon as it really runs: a process of its own."""
    log = vault.parent / "daemon.log"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "placet", "run", "--vault", str(vault)], stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=out, env=dict(env))
    try:
        until = time.monotonic() + PATIENCE_S
        while process.poll() is None and not _is_up(vault, env) and time.monotonic() < until:
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


def _is_up(vault: Path, env: Mapping[str, str]) -> bool:
    if not vault_state(vault, env).journal.exists():
        return False
    try:
        rows = journal_rows(vault, env, None, limit=10, follow=False, routine=False)
        return any(row["action_type"] == "daemon.started" for row in rows)
    except UserError:
        return False  # the database is there and still empty


def _follow(vault: Path, env: Mapping[str, str], patience_s: float) -> Iterator[dict[str, Any]]:
    """Give the journal's rows as they are written, and print what a person would want to see of them."""
    last, until = 0, time.monotonic() + patience_s
    step = of = turns = 0
    cost = 0.0
    while time.monotonic() < until:
        for row in journal_rows(vault, env, None, limit=1000, follow=False, routine=False):
            if row["id"] <= last:
                continue
            last = row["id"]
            data = row["metadata"]
            if row["action_type"] == "model.called" and data["purpose"] == "execute":
                turns += 1
                cost += data["cost_usd"] or 0
            elif row["action_type"] == "step.completed":
                step = data["step"]
            elif row["action_type"] == "plan.created":
                of = data["steps"]
            if row["actor"] != "system" or row["entity_type"] == "mission":
                at = f"step {step}/{of}  iteration {turns}  ${cost:.4f}  " if turns else ""
                click.echo(f"{colour(at, 'white', bold=True)}{row_text(row, WIDTH - len(at))}")
            yield row
        time.sleep(STEP_S)
    raise UserError(f"Nothing more happened for {patience_s:.0f} s.", f"Look at {vault.parent / 'daemon.log'}.")


def _wait_for(path: Path) -> None:
    """A journal row comes before the effect that it announces: wait for the effect."""
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        if time.monotonic() > until:
            raise UserError(f"{path} did not appear.")
        time.sleep(STEP_S)


def _test(folder: Path, repository: Path, branch: str) -> None:
    place = folder / "look"
    subprocess.run(["git", "-C", str(repository), "worktree", "add", "--quiet", "--detach", str(place), branch], check=True)
    result = subprocess.run([sys.executable, "-m", "unittest", "-v"], cwd=place, check=False, capture_output=True, text=True)
    _say("$ python3 -m unittest -v")
    _body(result.stderr)
    subprocess.run(["git", "-C", str(repository), "worktree", "remove", "--force", str(place)], check=True)
    if result.returncode != 0:
        raise UserError("The test still fails.")


def _head(text: str) -> None:
    click.echo()
    click.echo(colour(f"━━ {text} ".ljust(78, "━"), "cyan", bold=True))


def _say(text: str) -> None:
    click.echo(text)


def _body(text: str) -> None:
    for line in text.rstrip().splitlines():
        click.echo(colour("  │ ", "cyan") + line)
