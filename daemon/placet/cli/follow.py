"""Print the daemon's lines on standard error, and keep them for `placet logs`.

A thread of its own prints. A terminal that was stopped with Ctrl-S, or a pipe that nobody reads,
holds up that thread only; a standard error that is gone stops nothing. Lines that do not fit into
the queue are left out, and counted.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import sys
import textwrap
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import click

from placet.activity import CommittedRow, Entity
from placet.case.story import Loud, Story
from placet.core.wording import rfc3339
from placet.note.paths import show

MAX_WAITING = 10_000
MAX_LOG_BYTES = 1 << 20
"""Bytes of the log after which a new one is begun; the one before is kept."""
LAST_WORDS_S = 2.0
"""Seconds that a standard error that takes nothing may hold up the daemon's end."""


def old_log(log: Path) -> Path:
    """Return where the older lines of a log are."""
    return log.with_name(f"{log.name}.old")


class Voice:
    """Says lines of at most this loudness; a context manager that writes all of them at its end.

    With `times` each line begins with the local time. `log` is the file that keeps the lines,
    except those that only `--verbose` prints.
    """

    def __init__(self, loud: Loud, *, times: bool, log: Path | None = None) -> None:
        self._loud = loud
        self._times = times
        self._log = log
        self._logging = threading.Lock()
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
        self._keep(rfc3339(datetime.now(UTC)), loud, text)

    def rows(self, rows: Sequence[CommittedRow]) -> None:
        """Say rows that were committed to the journal, in the words of `Story`."""
        for row in rows:
            if (told := self._story.line(row)) is not None:
                self._put(datetime.fromisoformat(row.timestamp).astimezone(), *told)
                self._keep(row.timestamp, *told, row)

    def _keep(self, timestamp: str, loud: Loud, text: str, row: CommittedRow | None = None) -> None:
        """Append a line to the log. A disk that refuses it stops nothing: the line was printed."""
        if self._log is None or loud > Loud.EVENT or not text:
            return
        is_case = row is not None and row.entity_type != Entity.DAEMON
        line = {
            "id": row.id if row else 0,
            "timestamp": timestamp,
            "trace_id": row.trace_id if row else "",
            "request_id": row.entity_id if row and is_case else "",
            "text": text,
            "trouble": loud is Loud.TROUBLE,
        }
        with self._logging, suppress(OSError):
            if self._log.exists() and self._log.stat().st_size > MAX_LOG_BYTES:
                self._log.replace(old_log(self._log))
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(self._log, flags, 0o600)
            try:
                os.write(handle, json.dumps(line).encode() + b"\n")
            finally:
                os.close(handle)

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
