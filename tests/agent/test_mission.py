"""Test limits through the whole daemon with a scripted model: warnings, ends and costs."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from looping import Fake, Running, bare_vault, greeter, looping
from placet.cli.screen import show_screen
from placet.cli.why import why_text
from placet.client.branches import diff
from placet.client.cases import show
from placet.client.texts import harmless
from placet.client.why import why
from placet.disk.confine import entries_of
from vaultkit import PLAN

READ = ("read_file", {"path": "note.md"})
FINISH = {
    "calls": [("complete_step", {"step": 1, "summary": "Done"}), ("finish", {"summary": "Done."})]
}
STEPS = [{"title": "Do it", "tools": ["read_file", "write_file", "edit_file", "list_directory"]}]


def write(n: int) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": "hello.txt", "content": f"{n}\n"}


def carried_out(
    folder: Path,
    replies: list[dict[str, Any]],
    *,
    config: str = "",
    scope: dict[str, Any] | None = None,
    **plan: Any,
) -> Running:
    vault = bare_vault(folder, '[commands]\nsandbox = "none"\n' + config)
    (vault.root / "note.md").write_text("A note.\n")
    given = {
        **PLAN,
        "steps": STEPS,
        "scope": scope if scope is not None else {"write": ["hello.txt"]},
        **plan,
    }
    vault.plays(given, *replies)
    vault.drop("Say hello.\n")
    with looping(vault) as running:
        running.settle()
        vault.approve()
        running.settle()
    return running


def failed(running: Running) -> dict[str, Any]:
    return running.vault.rows("execution.failed")[0]["metadata"]


def said(running: Running) -> list[str]:
    """What the model was told in each turn of the mission, as the record has it."""
    with sqlite3.connect(running.vault.db) as db:
        rows = db.execute(
            "SELECT key, body FROM records WHERE key LIKE 'turn:%' AND kind = 'outcome' "
            "ORDER BY attempt, seq"
        ).fetchall()
    db.close()
    return ["\n".join(json.loads(body)["remarks"]) for _, body in rows]


def each(*calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"calls": [call]} for call in calls]


OUTSIDE = [("write_file", {"path": "outside.txt", "content": "x"})]
OTHERS = [
    ("list_directory", {"path": "."}),
    ("read_file", {"path": "note.md"}),
    ("list_directory", {"path": "Knowledge"}),
]


@pytest.mark.parametrize(
    ("replies", "config", "end", "turns", "noticed"),
    [
        (each(*[READ] * 8), "", "repetition", 3, "2 iterations in a row made the same calls"),
        (
            each(OUTSIDE[0], OTHERS[0], OUTSIDE[0], OTHERS[1], OUTSIDE[0], OTHERS[2], OUTSIDE[0]),
            "[guards]\nrepeats = 9\n",
            "scope",
            7,
            "`write_file outside.txt` was refused 3 times",
        ),
        (
            [{"stop_reason": "refusal", "text": "No.", "calls": [write(1)]}] * 8,
            "",
            "refusal",
            2,
            "the model refused to continue",
        ),
    ],
)
def test_failure_pattern_warns_once_then_ends(
    tmp_path: Path, replies: list[dict[str, Any]], config: str, end: str, turns: int, noticed: str
) -> None:
    """One of each sort: of rounds, of calls, of replies. `test_guards` has every pattern."""
    running = carried_out(tmp_path, replies, config=config)
    ended = failed(running)
    told = [text for text in said(running) if "Noticed: " in text]
    assert (ended["reason"], ended["iterations"]) == (end, turns)
    assert [noticed in text for text in told] == [True], told
    assert f"Why it ended: `{end}`" in running.vault.reports()[0].read_text()
    assert len(running.vault.failures_told()) >= 2  # the nudge, and the end
    if end == "repetition":
        refused = running.vault.rows("tool.refused")
        assert refused[0]["metadata"]["error_type"] == "repeated_call"


@pytest.mark.parametrize("stop_reason", ["refusal", "max_tokens", "model_context_window_exceeded"])
def test_truncated_call_is_nudged_and_never_executed(tmp_path: Path, stop_reason: str) -> None:
    running = carried_out(
        tmp_path, [{"stop_reason": stop_reason, "calls": [write(1)]}, {"calls": [write(2)]}, FINISH]
    )
    assert [row["metadata"]["tool"] for row in running.vault.rows("tool.called")] == [
        "write_file",
        "complete_step",
    ]
    assert len(running.vault.rows("execution.completed")) == 1


KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
HOSTILE = f"Hello\x1b[8m\u202e\n   # Forged heading\n%% hidden\n![x](https://example.com/?q)\n```dataviewjs\n{KEY}"
STRANGE = ("no\x1b[2J\n# Forged heading", {})


@pytest.mark.parametrize(
    "last", [("finish", {"summary": HOSTILE}), ("give_up", {"reason": HOSTILE})]
)
def test_model_text_is_escaped_in_report_and_views(
    tmp_path: Path, last: tuple[str, dict[str, Any]]
) -> None:
    step = ("complete_step", {"step": 1, "summary": HOSTILE})
    running = carried_out(
        tmp_path, [{"calls": [STRANGE]}, {"calls": [write(1), step]}, {"calls": [last]}]
    )
    report = running.vault.reports()[0].read_text()
    lines = report.splitlines()
    assert "Hello" in report
    assert not [
        line
        for line in lines
        if line.lstrip().startswith(("# Forged", "%%", "![", "```dataviewjs")) or KEY in line
    ]
    shown = [
        "\n".join(
            part
            for part, _ in show_screen(show(running.vault.site, "say-hello"), running.vault.root)
        ),
        why_text(why(running.vault.site, "say-hello")),
    ]
    assert [
        text
        for text in (report, *shown)
        if "\x1b[8m" in text or "\x1b[2J" in text or "\n# Forged" in text
    ] == []
    assert "\u202e" not in shown[0]


def test_diff_escapes_terminal_control_sequences(tmp_path: Path) -> None:
    """What a mission wrote cannot take a line off the screen of whoever decides on it."""
    text = "good\n\x1b[1A\x1b[2Kbad \\ \t.\n"
    running = carried_out(
        tmp_path, [{"calls": [("write_file", {"path": "hello.txt", "content": text})]}, FINISH]
    )
    patch, whole = diff(running.vault.site, "say-hello")
    assert b"\x1b[1A" in whole, "a program gets it as it is"
    assert "+\\x1b[1A\\x1b[2Kbad \\ \t.\n" in harmless(patch)
    assert running.vault.click("diff", "say-hello").stdout == whole.decode()


def test_new_request_never_scans_finished_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    listed = entries_of

    def counted(*args: Any) -> Any:
        found = listed(*args)
        looked_at.extend(entry.path for entry in found)
        return found

    monkeypatch.setattr("placet.disk.confine.entries_of", counted)
    counts = []
    for reports in (1, 50):
        vault = bare_vault(tmp_path / str(reports))
        folder = vault.root / "Knowledge/Reports"
        folder.mkdir(parents=True)
        for n in range(reports):
            (folder / f"{n}.md").write_text("Done.\n")
        vault.drop("Say hello.\n")
        looked_at.clear()
        with looping(vault, model=lambda: Fake(greeter)) as running:
            running.settle()
            vault.approve()
            running.settle()
        assert vault.rows("execution.completed")
        counts.append(len(looked_at))
    assert counts[0] == counts[1] > 0
