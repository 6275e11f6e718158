"""Produce the messages that users meet most with real commands, as a page: `messages.md`.

After you change a message, copy the page that the failure names over `messages.md`, and read it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitkit import make_repo
from placet.sandbox.probe import probe
from vaultkit import DONE, ME, PLAN, TestVault, make_vault, started

PAGE = Path(__file__).with_name("messages.md")
HEAD = """# The messages that users meet most

One session, from top to bottom. `…` stands for what differs each time.
"""
GIVES_UP = [{"calls": [("give_up", {"reason": "There is no COBOL compiler here."})]}]


class Session:
    """Somebody who types commands in a vault, and lets the daemon work now and then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.vault: TestVault = make_vault(folder)
        self.code = make_repo(folder / "code", {"a.txt": "a\n"})

    def says(self, *command: str) -> str:
        """Return the talk of a command, which is on stderr."""
        return self.vault.click(*command, check=False).stderr

    def prints(self, *command: str) -> str:
        return self.vault.click(*command, check=False).stdout

    def works(self) -> str:
        """Return what the daemon says while it does all that can be done."""
        return self.says("run", "--once")

    def beside(self, name: str) -> str:
        (note,) = self.vault.root.rglob(f"{name}.placet.md")
        return note.read_text()

    def script(self, execute: list[dict[str, object]]) -> None:
        planned = [{"calls": [("submit_plan", PLAN)]}]
        self.vault.script(("plan", planned), ("revise", planned), ("execute", execute))


def beginning(session: Session) -> Iterator[tuple[str, str]]:
    elsewhere = subprocess.run(
        [sys.executable, "-m", "placet", "status"],
        cwd=session.code, env=session.vault.env, capture_output=True, text=True,
    )  # fmt: skip
    yield "You call placet outside of a vault", elsewhere.stderr
    yield "The daemon starts without a key", session.works()
    session.script(DONE)
    yield "You add a portal", session.says("portal", "add", "code", str(session.code))
    yield "You misspell a setting", session.says("config", "set", "limits.day", "4")
    yield "You misspell a portal", session.says("submit", "--portal", "cod", "Say hello")
    session.vault.drop("---\nportal: cod\n---\nSay more.\n", "More.md")
    session.works()
    yield "Your note misspells a portal", session.beside("More")
    (session.vault.root / "Inbox/Requests/More.md").unlink()
    with started(session.vault):
        yield "A daemon runs already", session.says("run")


def planning(session: Session) -> Iterator[tuple[str, str]]:
    yield "You submit a request", session.says("submit", "--portal", "code", "Say hello")
    yield "The daemon plans it", session.works()
    yield "You look at what waits", session.prints("plans")
    yield "You misspell a request", session.says("show", "say-helo")
    plan = session.vault.plan()
    text = plan.read_text()
    plan.write_text(text.replace('decision: ""', "decision: maybe"))
    session.works()
    yield "You write `decision: maybe`", session.beside("say-hello_plan")
    plan.write_text(text.replace('write = ["hello.txt"]', 'write = ["hello.txt", "docs/**"]'))
    plan.rename(session.vault.active())
    session.works()
    (refusal,) = re.findall(
        r"(?m)^> \*\*Not approved\*\*.*\n> (.*)$", session.vault.plan().read_text()
    )
    yield "You edit the scope and approve at once", refusal
    yield "You approve in a script, without `--yes`", session.says("approve", "say-hello")


def working(session: Session) -> Iterator[tuple[str, str]]:
    yield "You approve", session.says("approve", "say-hello", "--yes")
    yield "The daemon does it", session.works()
    yield "You approve once more", session.says("approve", "say-hello", "--yes")
    yield "You ask why", session.prints("why", "say-hello")
    (session.code / "hello.txt").write_text("mine\n")
    yield "You merge over a file of yours", session.says("merge", "say-hello")
    (session.code / "hello.txt").unlink()
    yield "You merge", session.says("merge", "say-hello")
    yield "You merge once more", session.says("merge", "say-hello")
    yield "You undo it", session.says("undo", "say-hello", "--yes")


def failing(session: Session) -> Iterator[tuple[str, str]]:
    session.script(GIVES_UP)
    yield "You ask for a new plan", session.says("retry", "say-hello")
    session.works()
    session.says("approve", "say-hello", "--yes")
    yield "The agent gives up", session.works()
    session.says("reject", "say-hello", "--reason", "Not now")
    session.works()
    yield "You rejected the plan, and ask why", session.prints("why", "say-hello")


def settled(text: str, folder: Path) -> str:
    """Return a message without what differs from run to run, or from machine to machine."""
    for pattern, sign in (
        (re.escape(str(folder)), "~"),
        (r"pid \d+ on \S+ since [0-9TZ:.-]+", "pid … on … since …"),
        (re.escape(probe().level.title), "…"),
        (r"\b\d\d:\d\d:\d\d\b", "…"),
        (r"\b\d{4}-\d\d-\d\d_", "…_"),
        (r"(?<![0-9a-z])([0-9a-f]{40}|[0-9a-f]{12}|[0-9a-f]{8})(?![0-9a-z])", "…"),
        (rf"\b{re.escape(ME)}\b", "you"),
        (r"\b\d+ s\b", "… s"),
        (r"programs: .*", "programs: …"),
    ):
        text = re.sub(pattern, sign, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.mark.usefixtures("home")
def test_messages_are_those_of_the_page(tmp_path: Path) -> None:
    session = Session(tmp_path)
    parts = [HEAD]
    for play in (beginning, planning, working, failing):
        for situation, text in play(session):
            parts.append(f"## {situation}\n\n```text\n{settled(text, tmp_path)}\n```\n")
    page = "\n".join(parts)
    made = tmp_path / PAGE.name
    made.write_text(page)
    assert len(parts) == 1 + 25
    assert page == PAGE.read_text(), f"cp {made} {PAGE}"
