"""The screen of `placet demo`: on a terminal at reading speed, elsewhere at once."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from placet.cli.rendered import rendered
from placet.cli.terminal import colour, fitted
from placet.core.text.note import read_note

LINE_S = 0.15
"""Seconds after a line on a terminal; PAUSE_S come on top after a part, more after a long one."""
PAUSE_S = 1.5
MAX_PAUSE_S = 4.0


CODE = "    "
"""What a line of code begins with in a rendered note: it is not broken, as it may be copied."""


def called() -> str:
    """Return how this program can be called again: by its name only where the shell finds it."""
    if shutil.which("placet"):
        return "placet"
    if Path(sys.argv[0]).name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m placet"
    return shlex.quote(sys.argv[0])


@dataclass(slots=True)
class Stage:
    """The screen that the demo is shown on, a part after the other.

    `fast` does not stop at all; a key that is pressed skips what is left of a part's pauses.
    """

    fast: bool
    keys: bool
    hurry: bool = False
    lines: int = 0

    def head(self, text: str) -> None:
        """Begin a part, once there was time to read the one before."""
        self.end()
        width = self.width()
        click.echo()
        click.echo(colour(f"━━ {text} ".ljust(min(width, 78), "━"), "cyan", bold=True))

    def end(self) -> None:
        """End a part: give time to read it."""
        if self.lines:
            self._wait(min(PAUSE_S + self.lines * 0.05, MAX_PAUSE_S))
        self.hurry, self.lines = False, 0

    def body(self, text: str) -> None:
        """Show a note or what a command printed, marked as that."""
        bar = colour("  │ ", "cyan")
        for line in text.strip("\n").splitlines():
            for piece in (
                fitted(line, self.width() - 4, hang=0).split("\n")
                if sys.stdout.isatty() and not line.startswith(CODE)
                else [line]
            ):
                self.line(bar + piece, whole=True)

    def note(self, raw: bytes) -> None:
        """Show a note: on a terminal as it is read, elsewhere as it is written."""
        body = read_note(raw).body
        self.body(rendered(body) if sys.stdout.isatty() else body)

    def line(self, text: str, *, whole: bool = False) -> None:
        """Show a line, `whole` if it fits already, and give time to read it."""
        click.echo(text if whole or not sys.stdout.isatty() else fitted(text, self.width()))
        self.lines += 1
        self._wait(LINE_S)

    def width(self) -> int:
        """Return how many columns there are."""
        return shutil.get_terminal_size().columns

    def _wait(self, seconds: float) -> None:
        if self.fast or self.hurry:
            return
        if not self.keys:
            time.sleep(seconds)
        elif select.select([sys.stdin], [], [], seconds)[0]:
            os.read(sys.stdin.fileno(), 64)
            self.hurry = True


@contextmanager
def paced(*, fast: bool) -> Iterator[Stage]:
    """Give a stage; on a terminal keys are read as they are pressed, until it ends."""
    if fast or not sys.stdin.isatty():
        yield Stage(fast, keys=False)
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield Stage(fast, keys=True)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
