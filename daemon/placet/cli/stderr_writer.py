"""Print the daemon's lines on standard error.

A separate thread prints. A terminal stopped with Ctrl-S, or a pipe that is not read, blocks only
that thread. A closed standard error stops nothing. Lines that do not fit into the queue are left
out, and counted.
"""

from __future__ import annotations

import os
import queue
import shutil
import sys
import textwrap
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from placet.activity import CommittedRow
from placet.case.story import Story, Verbosity
from placet.client.log import LogFile
from placet.note.paths import show as visible
from placet.wording import rfc3339

MAX_WAITING = 10_000
LAST_WORDS_S = 2.0
"""Maximum seconds that a blocked standard error may delay the daemon's end."""


class StderrWriter:
    """Says lines of at most this loudness; a context manager that writes all of them at its end.

    With `times` each line begins with the local time. `log` is the file that keeps the lines,
    except those that only `--verbose` prints.
    """

    def __init__(self, loud: Verbosity, *, times: bool, log: Path | None = None) -> None:
        self._loud = loud
        self._times = times
        self._log = LogFile(log)
        self._story = Story()
        self._day = datetime.now().astimezone().date()
        self._queue: queue.Queue[tuple[datetime, Verbosity, str] | None] = queue.Queue(MAX_WAITING)
        self._left_out = 0
        self._thread = threading.Thread(target=self._write, name="stderr", daemon=True)

    def __enter__(self) -> StderrWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._queue.put(None, timeout=LAST_WORDS_S)
        except queue.Full:
            return
        self._thread.join(LAST_WORDS_S)

    def say(self, text: str, loud: Verbosity = Verbosity.TROUBLE) -> None:
        """Say a sentence of the daemon's own. From any thread."""
        if loud is Verbosity.TROUBLE:
            self._story.hear(text)
        self._put(datetime.now().astimezone(), loud, text)
        self._log.append(rfc3339(datetime.now(UTC)), loud, text)

    def rows(self, rows: Sequence[CommittedRow]) -> None:
        """Say rows that were committed to the journal, in the words of `Story`."""
        for row in rows:
            if (line := self._story.line(row)) is not None:
                self._put(datetime.fromisoformat(row.timestamp).astimezone(), *line)
                self._log.append(row.timestamp, *line, row)

    def _put(self, at: datetime, loud: Verbosity, text: str) -> None:
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
                    Verbosity.TROUBLE,
                    f"Lines left out, because nothing read them: {left_out}. See: placet logs",
                )

    def _print(self, at: datetime, loud: Verbosity, text: str) -> None:
        lines = [line for line in text.splitlines() if line.strip()]
        if self._times and at.date() != self._day:
            self._day = at.date()
            lines.insert(0, self._day.isoformat())
        stamp = f"{at:%H:%M:%S} " if self._times else ""
        for number, line in enumerate(lines):
            shown = "".join(c if c == "\\" else visible(c) for c in line)
            self._echo(
                (stamp if not number or not line.startswith(" ") else " " * len(stamp)) + shown,
                loud,
            )

    def _echo(self, line: str, loud: Verbosity) -> None:
        try:
            if sys.stderr.isatty():
                line = textwrap.fill(
                    line,
                    max(40, shutil.get_terminal_size().columns - 1),
                    subsequent_indent=" " * 11,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                if loud is Verbosity.TROUBLE and not os.environ.get("NO_COLOR"):
                    line = click.style(line, fg="yellow")
            click.echo(line, err=True)
        except (OSError, ValueError, AttributeError):
            pass  # no output is left; the journal has it


def times_of_its_own(env: Mapping[str, str]) -> bool:
    """Return whether standard error is the service manager's log, which has its own times.

    JOURNAL_STREAM, see systemd.exec(5).
    """
    device, _, inode = env.get("JOURNAL_STREAM", "").partition(":")
    try:
        info = os.fstat(2)
    except OSError:
        return False
    return (device, inode) == (str(info.st_dev), str(info.st_ino))
