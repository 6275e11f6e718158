"""Keep the daemon's lines in a file, and read them for `placet logs`."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placet.activity import CommittedRow, Entity
from placet.case.story import Story, Verbosity
from placet.client.texts import harmless, shown_time

MAX_LOG_BYTES = 1 << 20
"""Bytes of the log after which a new one is begun; the one before is kept."""


def old_log(log: Path) -> Path:
    """Return where the older lines of a log are."""
    return log.with_name(f"{log.name}.old")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A sentence of the daemon's, and when it was said."""

    timestamp: str
    text: str
    trouble: bool

    def __str__(self) -> str:
        return f"{shown_time(self.timestamp)} {harmless(self.text)}"


def log_lines(story: Story, rows: Iterable[CommittedRow]) -> Iterator[LogLine]:
    """Yield the story's sentences about its next rows. Many rows have none."""
    for row in rows:
        told_line = story.line(row)
        if told_line is not None and told_line[0] <= Verbosity.EVENT and told_line[1]:
            yield LogLine(row.timestamp, told_line[1], told_line[0] is Verbosity.TROUBLE)


class Log:
    """The daemon's lines at `path`, of one case or, with an empty `trace`, of all."""

    def __init__(self, path: Path, trace: str = "", request: str = "") -> None:
        self.path = path
        self._trace, self._request = trace, request
        # By a file's first line how many bytes of it were read: inodes are used again.
        self._read: dict[bytes, int] = {}

    def new(self) -> Iterator[dict[str, Any]]:
        """Give the lines that were not given before, the oldest first."""
        for path in (old_log(self.path), self.path):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue
            with file:
                first = file.readline()
                file.seek(self._read.get(first, 0))
                for raw in file:
                    if not raw.endswith(b"\n"):
                        break  # it is being written
                    self._read[first] = self._read.get(first, 0) + len(raw)
                    line = json.loads(raw)
                    if self._wants(line):
                        yield line

    def _wants(self, line: dict[str, Any]) -> bool:
        if not self._trace:
            return True
        if trace := str(line["trace_id"]):
            return trace == self._trace
        return str(line["text"]).startswith(f"{self._request}: ")


class LogFile:
    """The file that keeps the daemon's lines. Without a path it keeps nothing. Thread-safe."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()

    def append(
        self, timestamp: str, loud: Verbosity, text: str, row: CommittedRow | None = None
    ) -> None:
        """Append a line, except one that only `--verbose` prints.

        A disk that refuses it stops nothing: the line was printed.
        """
        if self._path is None or loud > Verbosity.EVENT or not text:
            return
        is_case = row is not None and row.entity_type != Entity.DAEMON
        line = {
            "id": row.id if row else 0,
            "timestamp": timestamp,
            "trace_id": row.trace_id if row else "",
            "request_id": row.entity_id if row and is_case else "",
            "text": text,
            "trouble": loud is Verbosity.TROUBLE,
        }
        with self._lock, suppress(OSError):
            if self._path.exists() and self._path.stat().st_size > MAX_LOG_BYTES:
                self._path.replace(old_log(self._path))
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(self._path, flags, 0o600)
            try:
                os.write(handle, json.dumps(line).encode() + b"\n")
            finally:
                os.close(handle)
