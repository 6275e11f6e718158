"""Test when a request counts as finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from placet.case.case import NoteSeen
from placet.case.edit_times import EditTimes
from placet.case.settle import Fingerprint
from placet.disk.vault import Vault
from placet.note.paths import Folder
from vaultkit import make_vault

PATH = "Inbox/Requests/Say hello.md"
WALL_S = 1_000_000.0


def note(text: str, path: str = PATH, trace: str = "") -> NoteSeen:
    return NoteSeen(path, Folder.REQUESTS, text.encode(), text, "me", trace)


def mark(mtime_s: float = WALL_S, moved_s: float = 0.0) -> Fingerprint:
    return Fingerprint(1, 1, 1, int(mtime_s * 1e9), int((mtime_s + moved_s) * 1e9))


def test_request_waits_until_text_is_unchanged() -> None:
    quiet = EditTimes()
    quiet.look([note("a")], {PATH: mark()}, 100.0, WALL_S)
    assert quiet.left_s(PATH, 100.0, 30) == 30
    quiet.look([note("ab")], {PATH: mark(WALL_S + 20)}, 120.0, WALL_S + 20)
    assert quiet.left_s(PATH, 120.0, 30) == 30
    # the daemon's stamp
    quiet.look([note("ab", trace="t")], {PATH: mark(WALL_S + 25, 1)}, 125.0, WALL_S + 25)
    assert quiet.left_s(PATH, 125.0, 30) == 25
    assert quiet.left_s(PATH, 150.0, 30) == 0
    assert quiet.left_s(PATH, 120.0, 0) == 0
    assert quiet.left_s("Inbox/Requests/Other.md", 120.0, 30) == 0


@pytest.mark.parametrize("found", [mark(moved_s=0.01), mark(WALL_S - 31)])
def test_complete_or_old_request_needs_no_wait(found: Fingerprint) -> None:
    quiet = EditTimes()
    quiet.look([note("a")], {PATH: found}, 100.0, WALL_S)
    assert quiet.left_s(PATH, 100.0, 30) == 0
    # an editor that saves by moving
    quiet.look([note("ab")], {PATH: found}, 101.0, WALL_S)
    assert quiet.left_s(PATH, 101.0, 30) == 30


def test_future_modification_time_counts_as_now() -> None:
    quiet = EditTimes()
    quiet.look([note("a")], {PATH: mark(WALL_S + 10_000)}, 100.0, WALL_S)
    assert quiet.left_s(PATH, 100.0, 30) == 30


@pytest.mark.parametrize("trace", ["", "t"])
@pytest.mark.parametrize("between", [True, False])
def test_note_renamed_during_writing_keeps_its_wait(trace: str, between: bool) -> None:
    quiet, other = EditTimes(), "Inbox/Requests/Other.md"
    quiet.look([note("a", trace=trace)], {PATH: mark()}, 100.0, WALL_S)
    if between:
        quiet.look([], {}, 105.0, WALL_S + 5)
    quiet.look([note("a", other, trace)], {other: mark(moved_s=5)}, 106.0, WALL_S + 6)
    assert quiet.left_s(other, 106.0, 30) == 24
    if trace:
        quiet.look([note("ab", PATH, trace)], {PATH: mark(moved_s=9)}, 110.0, WALL_S + 10)
        assert quiet.left_s(PATH, 110.0, 30) == 30


def test_temporarily_unreadable_note_is_not_new() -> None:
    quiet = EditTimes()
    quiet.look([note("a")], {PATH: mark()}, 100.0, WALL_S)
    quiet.look([], {PATH: mark()}, 101.0, WALL_S)
    quiet.look([note("ab")], {PATH: mark(moved_s=1)}, 102.0, WALL_S)
    assert quiet.left_s(PATH, 102.0, 30) == 30


def test_note_submitted_without_daemon_counts_as_complete(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    for number in range(5):
        vault.click("submit", "Say hello", "--title", f"Say {number}")
        with Vault(vault.root) as folder:
            _, found = folder.read(f"Inbox/Requests/Say {number}.md")
        assert 40_000_000 <= found.ctime_ns - found.mtime_ns < 10_000_000_000
        quiet = EditTimes()
        quiet.look([note("a")], {PATH: found}, 100.0, found.mtime_ns / 1e9 + 1)
        assert quiet.left_s(PATH, 100.0, 30) == 0
