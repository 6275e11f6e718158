"""The daemon's lines on its standard error, written by a thread of their own.

A terminal that was stopped with Ctrl-S, or a pipe that nobody reads, holds up that thread only; a
standard error that is gone stops nothing. Lines that do not fit into the queue are left out, and
counted.
"""

from __future__ import annotations

import os
import queue
import shutil
import sys
import textwrap
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime

import click

from placet.core.activity import CommittedRow
from placet.core.text.names import show
from placet.core.text.story import Loud, Story

MAX_WAITING = 10_000
LAST_WORDS_S = 2.0
"""Seconds that a standard error that takes nothing may hold up the daemon's end."""


class Voice:
    """Says lines of at most this loudness; a context manager that writes all of them at its end.

    With `times` each line begins with the local time.
    """

    def __init__(self, loud: Loud, *, times: bool) -> None:
        self._loud = loud
        self._times = times
        self._story = Story()
        self._day = datetime.now().astimezone().date()
        self._queue: queue.Queue[tuple[datetime, Loud, str] | None] = queue.Queue(MAX_WAITING)
        self._left_out = 0
        self._thread = threading.Thread(target=self._write, name="voice", daemon=True)

    def __enter__(self) -> Voice:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._queue.put(None, timeout=LAST_WORDS_S)
        except queue.Full:
            return
        self._thread.join(LAST_WORDS_S)

    def say(self, text: str, loud: Loud = Loud.TROUBLE) -> None:
        """Say a sentence of the daemon's own. From any thread."""
        if loud is Loud.TROUBLE:
            self._story.hear(text)
        self._put(datetime.now().astimezone(), loud, text)

    def rows(self, rows: Sequence[CommittedRow]) -> None:
        """Say rows that were committed to the journal, in the words of `Story`."""
        for row in rows:
            if (told := self._story.line(row)) is not None:
                self._put(datetime.fromisoformat(row.timestamp).astimezone(), *told)

    def _put(self, at: datetime, loud: Loud, text: str) -> None:
        if loud > self._loud:
            return
        try:
            self._queue.put_nowait((at, loud, text))
        except queue.Full:
            self._left_out += 1

    def _write(self) -> None:
        while (item := self._queue.get()) is not None:
            self._print(*item)
            if self._left_out and self._queue.empty():
                left_out, self._left_out = self._left_out, 0
                self._print(
                    datetime.now().astimezone(),
                    Loud.TROUBLE,
                    f"Lines left out, as nobody read them: {left_out}. See: placet logs",
                )

    def _print(self, at: datetime, loud: Loud, text: str) -> None:
        lines = [line for line in text.splitlines() if line.strip()]
        if self._times and at.date() != self._day:
            self._day = at.date()
            lines.insert(0, self._day.isoformat())
        stamp = f"{at:%H:%M:%S} " if self._times else ""
        for number, line in enumerate(lines):
            shown = "".join(c if c == "\\" else show(c) for c in line)
            self._echo(
                (stamp if not number or not line.startswith(" ") else " " * len(stamp)) + shown,
                loud,
            )

    def _echo(self, line: str, loud: Loud) -> None:
        try:
            if sys.stderr.isatty():
                line = textwrap.fill(
                    line,
                    max(40, shutil.get_terminal_size().columns - 1),
                    subsequent_indent=" " * 11,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                if loud is Loud.TROUBLE and not os.environ.get("NO_COLOR"):
                    line = click.style(line, fg="yellow")
            click.echo(line, err=True)
        except (OSError, ValueError, AttributeError):
            pass  # nobody can be told; the journal has it


def times_of_its_own(env: Mapping[str, str]) -> bool:
    """Return whether standard error is the service manager's log, which has times of its own.

    JOURNAL_STREAM, see systemd.exec(5).
    """
    device, _, inode = env.get("JOURNAL_STREAM", "").partition(":")
    try:
        info = os.fstat(2)
    except OSError:
        return False
    return (device, inode) == (str(info.st_dev), str(info.st_ino))
