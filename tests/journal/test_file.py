"""Test which journals a start reads whole, and how damage in the others is found."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.journal.test_writer import row

from journalkit import World
from placet.journal import file
from placet.journal.maintenance import examine
from placet.journal.writes import JournalDamaged, PutText

PAGE_BYTES = 4096


def raising(error: type[Exception]) -> Callable[..., None]:
    def work(*_args: object, **_more: object) -> None:
        raise error

    return work


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a journal that counts as large, with a page of its texts overwritten."""
    monkeypatch.setattr(file, "WHOLE_BYTES", 0)
    world = World(tmp_path / "journal.db")
    with world.open() as journal:
        journal.commit([row(1), *(PutText(f"t{n}", b"x" * 3_000) for n in range(100))])
    raw = bytearray(world.path.read_bytes())
    filled = [
        at for at in range(0, len(raw), PAGE_BYTES) if raw.count(b"x", at, at + PAGE_BYTES) > 2_000
    ]
    at = filled[len(filled) // 2]
    raw[at : at + PAGE_BYTES] = b"\xff" * PAGE_BYTES
    world.path.write_bytes(raw)
    return world


def test_start_reads_large_journal_whole_after_damage(damaged: World) -> None:
    with damaged.open() as journal:
        assert journal.set_aside is None, "a start does not look there"
        with pytest.raises(JournalDamaged, match="restart the daemon"), journal.read() as reader:
            _ = [reader.text(f"t{n}") for n in range(100)]
    with damaged.open() as journal:
        assert journal.set_aside is not None
    with damaged.open() as journal:
        assert journal.set_aside is None
    assert list(damaged.path.parent.glob("*suspect")) == []


def test_verify_reads_large_journal_whole(damaged: World) -> None:
    with pytest.raises(JournalDamaged):
        examine(damaged.path, damaged.path.with_name("journal.mark"))
    with damaged.open() as journal:
        assert journal.set_aside is not None


def test_intact_suspect_is_read_whole_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "WHOLE_BYTES", 0)
    world = World(tmp_path / "journal.db")
    with world.open() as journal:
        journal.commit([row(1)])
    file.damaged(world.path, "a bad cable")
    with world.open() as journal:
        assert journal.set_aside is None
    assert list(tmp_path.glob("*suspect")) == []


def test_damage_met_while_opening_is_set_aside_next(damaged: World) -> None:
    with closing(sqlite3.connect(damaged.path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'chain'").fetchone()
    with damaged.path.open("r+b") as opened:
        opened.seek((root - 1) * PAGE_BYTES)
        opened.write(b"\xff" * PAGE_BYTES)
    with pytest.raises(JournalDamaged, match="restart the daemon"):
        damaged.open()
    with damaged.open() as journal:
        assert journal.set_aside is not None


def test_verify_needs_no_permission_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "journal.db")
    with world.open() as journal:
        journal.commit([row(1)])
    file.damaged(world.path, "a bad cable")
    monkeypatch.setattr(Path, "unlink", raising(PermissionError))
    assert examine(world.path, tmp_path / "journal.mark").damage == ""
