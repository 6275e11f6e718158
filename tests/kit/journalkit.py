"""Make a journal whose clocks move only when a test moves them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from placet.activity import CommittedRow
from placet.journal.writer import Journal

BOOT = datetime(2026, 11, 21, 10, tzinfo=UTC)


class World:
    """The clocks of a journal, and what it said."""

    def __init__(self, path: Path, boot_id: str = "boot-1") -> None:
        self.path = path
        self.boot_id = boot_id
        self.now = BOOT
        self.boottime_s = 1_000.0
        self.said: list[str] = []
        self.rows: list[CommittedRow] = []

    def open(self) -> Journal:
        return Journal(
            self.path,
            now=lambda: self.now,
            boottime_s=lambda: self.boottime_s,
            boot_id=self.boot_id,
            on_trouble=self.said.append,
            on_rows=self.rows.extend,
        )
