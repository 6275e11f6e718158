"""Test that placet changes and deletes only the side notes that it wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from looping import Fake, Running, Time, bare_vault, greeter, looping
from vaultkit import TestVault

BAD = "---\npriority: 99\n---\nSay hello\n"


def look(vault: TestVault) -> None:
    """Let a daemon look until nothing is left to do."""
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        running.settle()


@pytest.mark.parametrize("beside", ["nothing", "a good note", "a bad note"])
def test_request_named_like_side_note_is_planned(tmp_path: Path, beside: str) -> None:
    vault = bare_vault(tmp_path)
    mine = vault.root / "Inbox/Requests/How I use.placet.md"
    mine.write_text("# Three hours of my work\n")
    if beside != "nothing":
        vault.drop(BAD if beside == "a bad note" else "Say hello\n", "How I use.md")
    look(vault)
    look(vault)
    assert mine.read_text().endswith("---\n# Three hours of my work\n")
    assert "how-i-use-placet" in {row["entity_id"] for row in vault.rows("plan.created")}
    if beside == "a bad note":
        assert "priority: 99" in vault.rows("request.invalid")[0]["metadata"]["reason"]


def test_shared_side_note_explains_both_requests(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    other = vault.drop("---\nagent: nobody\n---\nSay more\n", "bad.MD")
    note = vault.drop(BAD, "bad.md")
    side = vault.root / "Inbox/Requests/bad.placet.md"
    look(vault)
    assert "nobody" in side.read_text()
    assert "priority: 99" in side.read_text()
    other.write_text("Say more\n")
    look(vault)
    assert "nobody" not in side.read_text()
    assert "priority: 99" in side.read_text()
    note.write_text("Say hello\n")
    look(vault)
    assert not side.exists()


def test_side_note_with_user_remark_is_kept(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    note = vault.drop(BAD, "Bad.md")
    look(vault)
    side = vault.root / "Inbox/Requests/Bad.placet.md"
    said = side.read_text()
    side.write_text(said + "\nAsk Ann what she wants.\n")
    look(vault)
    note.write_text(BAD.replace("99", "98"))
    look(vault)
    note.write_text("Say hello\n")
    look(vault)
    assert side.read_text() == said + "\nAsk Ann what she wants.\n"
    side.unlink()
    note.write_text("---\npriority: 97\n---\nSay hello\n")
    look(vault)


@pytest.mark.parametrize("when", ["the same daemon", "the next one"])
def test_side_note_follows_its_cause(tmp_path: Path, when: str) -> None:
    vault = bare_vault(tmp_path)
    note = vault.drop(BAD, "Bad.md")
    side = vault.root / "Inbox/Requests/Bad.placet.md"
    if when == "the same daemon":
        with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
            for number in (99, 98, 97):
                note.write_text(BAD.replace("99", str(number)))
                running.settle()
                assert f"priority: {number}" in side.read_text()
            note.write_text("Say hello\n")
            running.settle()
    else:
        for number in (99, 98, 97):
            note.write_text(BAD.replace("99", str(number)))
            look(vault)
            assert f"priority: {number}" in side.read_text()
        note.write_text("Say hello\n")
        look(vault)
    assert not side.exists()


class Killed(BaseException):
    """Ends a daemon where it stands."""


def _dies(running: Running, at: str, after: bool) -> None:
    """Let the daemon be killed as it writes an explanation, or just after that."""
    write = getattr(running.loop.state.vault, at)

    def dies(path: str, *given: object) -> None:
        if after or not path.endswith(".placet.md"):
            write(path, *given)
        if path.endswith(".placet.md"):
            raise Killed

    setattr(running.loop.state.vault, at, dies)


@pytest.mark.parametrize("at", ["publish", "replace"])
def test_daemon_recognises_side_note_after_crash(tmp_path: Path, at: str) -> None:
    vault = bare_vault(tmp_path)
    note = vault.drop(BAD, "Bad.md")
    side = vault.root / "Inbox/Requests/Bad.placet.md"
    if at == "replace":
        look(vault)
        note.write_text(BAD.replace("99", "98"))
    for after in (False, True):
        with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
            _dies(running, at, after)
            with pytest.raises(Killed):
                running.settle()
    look(vault)
    assert f"priority: {98 if at == 'replace' else 99}" in side.read_text()
    note.write_text("Say hello\n")
    look(vault)
    assert not side.exists()


def test_folder_named_like_side_note_is_kept(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    (vault.root / "Inbox/Requests/Bad.placet.md").mkdir()
    look(vault)
    assert (vault.root / "Inbox/Requests/Bad.placet.md").is_dir()


@pytest.mark.parametrize(
    "touched",
    [
        lambda text: f"---\nupdated: 2026-11-28\naliases: []\n---\n{text}",
        lambda text: text.replace("> - ", "> * ").replace("\n", "\r\n") + "\n\n",
        lambda text: text.replace("`", "\\`").replace("> ", ">"),
    ],
)
def test_side_note_touched_by_plugin_stays_own(
    tmp_path: Path, touched: Callable[[str], str]
) -> None:
    vault = bare_vault(tmp_path)
    note = vault.drop(BAD, "Bad.md")
    look(vault)
    side = vault.root / "Inbox/Requests/Bad.placet.md"
    side.write_text(touched(side.read_text()))
    before = side.read_bytes()
    look(vault)
    assert side.read_bytes() == before
    note.write_text(BAD.replace("99", "98"))
    look(vault)
    assert "priority: 98" in side.read_text()
    side.write_text(touched(side.read_text()))
    look(vault)
    note.write_text("Say hello\n")
    look(vault)
    assert not side.exists()


def test_side_note_is_journalled_with_its_case(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    vault.drop("Say hello\n", "Say hello.md")
    look(vault)
    plan = vault.plan()
    plan.write_text(plan.read_text().replace('decision: ""', "decision: yes", 1))
    look(vault)
    (row,) = vault.rows("note.explained")
    assert row["entity_id"] == "say-hello"
    assert row["trace_id"] == vault.rows("plan.created")[0]["trace_id"]
