"""Run one suite on every implementation of `Workers`: threads of the daemon and a team.

Each story runs both ways. Notes, output and journal must be equal.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import pgkit
from gitkit import git
from teamkit import running_team
from vaultkit import PLAN, TestVault, make_vault, running, until

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)

Said = Sequence[Mapping[str, Any]]
OF_THE_WAY = {"git.ran", "config.accepted"}
"""Rows that say how it was done, and when somebody looked, and not what."""


def calls(*found: tuple[str, Mapping[str, Any]], **more: Any) -> Mapping[str, Any]:
    return {"calls": found, **more}


STEPS = [
    {"title": "Write", "description": "It.", "tools": ["write_file"], "done_when": ["there"]},
    {
        "title": "Copy",
        "description": "It.",
        "tools": ["run_command"],
        "actions": [
            {"tool": "run_command", "params": {"command": "cp", "args": ["a.txt", "b.txt"]}}
        ],
        "done_when": ["there"],
    },
    {"title": "Mend", "description": "It.", "tools": ["edit_file"], "done_when": ["mended"]},
]
PLANNED = {**PLAN, "steps": STEPS, "scope": {"write": ["*.txt"], "run": ["cp"]}}
WRITTEN = ("write_file", {"path": "a.txt", "content": "one\n"})
FIRST = ("complete_step", {"step": 1, "summary": "Written"})
MENDED = ("edit_file", {"path": "a.txt", "old": "one", "new": "two"})
LAST = ("complete_step", {"step": 3, "summary": "Mended"})
END = ("finish", {"summary": "Done."})
ASKED = ("ask_person", {"question": "Which?", "options": ["Red", "Blue"], "why": "Colours."})


def approve(vault: TestVault) -> None:
    until(vault.plan().exists)
    vault.approve()


def approve_and_stop(vault: TestVault) -> None:
    approve(vault)
    until(lambda: "edit_file" in told(vault))
    time.sleep(1.5)  # the model is asked
    vault.active().rename(vault.plan())


def approve_and_answer(vault: TestVault) -> None:
    approve(vault)
    note = vault.root / "Inbox/Questions/say-hello_1.md"
    until(note.exists)
    until(lambda: "- [ ] Blue" in note.read_text())
    note.write_text(note.read_text().replace("- [ ] Blue", "- [x] Blue"))


def told(vault: TestVault) -> str:
    sql = "SELECT action_type, metadata->>'tool' AS tool FROM activity"
    return vault.click("journal", "--sql", sql, "--json", check=False).stdout


PLAYS: Mapping[str, tuple[Said, Callable[[TestVault], None]]] = {
    "done": ([calls(WRITTEN, FIRST), calls(MENDED, LAST), calls(END)], approve),
    "given up": (
        [calls(WRITTEN, FIRST), calls(MENDED), calls(("give_up", {"reason": "No."}))],
        approve,
    ),
    "stopped": (
        [calls(WRITTEN, FIRST), calls(MENDED), calls(LAST, delay_s=60.0), calls(END)],
        approve_and_stop,
    ),
    "asked": (
        [calls(WRITTEN, ASKED), calls(FIRST), calls(MENDED, LAST), calls(END)],
        approve_and_answer,
    ),
}


@contextmanager
def embedded(vault: TestVault, _folder: Path, _server: pgkit.Server) -> Iterator[None]:
    with running(vault):
        yield


@contextmanager
def by_a_team(vault: TestVault, folder: Path, server: pgkit.Server) -> Iterator[None]:
    with running_team(folder, server, 20, vault) as found:
        found.host()
        found.worker("ann")
        until(lambda: "takes work" in found.log("ann"))
        yield


def played(way: Any, play: str, folder: Path, server: pgkit.Server) -> dict[str, Any]:
    folder.mkdir()
    vault = make_vault(folder)
    said, gestures = PLAYS[play]
    vault.script(("plan", [calls(("submit_plan", PLANNED))]), ("execute", said))
    with way(vault, folder, server):
        vault.drop("# Say hello\n")
        gestures(vault)
        until(lambda: "report.written" in told(vault), told(vault), 90)
        sql = "SELECT action_type, actor, metadata->>'tool' AS tool, metadata->>'ok' AS ok FROM activity ORDER BY id"
        rows = vault.click("journal", "--sql", sql, "--json").stdout
        assert vault.click("journal", "verify").stdout
    found = Counter(
        (row["action_type"], row["actor"], row["tool"], f"{row['ok']}".lower() in ("1", "true"))
        for row in json.loads(rows)
        if row["action_type"] not in OF_THE_WAY
        and not row["action_type"].startswith(("daemon.", "lease.", "execution.resumed"))
    )
    refs = git(vault.root, "for-each-ref", "--format=%(refname) %(tree)").split("\n")
    report = next((vault.root / "Knowledge/Reports").glob("*.md")).read_text()
    return {
        "rows": found,
        "refs": sorted(
            f"{name.rpartition('-')[0] or name} {tree}"
            for name, tree in map(str.split, refs)
            if "heads/main" not in name
        ),
        "kept": [
            git(vault.root, "ls-tree", "-r", ref.split()[0])
            for ref in refs
            if "heads/main" not in ref
        ],
        "sections": [line for line in report.splitlines() if re.match("#+ (?!or: )", line)],
        "notes": [vault.notes(folder) for folder in ("Inbox", "System/Active")],
    }


@pytest.mark.parametrize("play", PLAYS)
@pytest.mark.thinned(3)
def test_team_and_embedded_workers_produce_same_result(
    play: str, tmp_path: Path, server: pgkit.Server
) -> None:
    alone = played(embedded, play, tmp_path / "alone", server)
    shared = played(by_a_team, play, tmp_path / "team", server)
    for what in alone:
        assert shared[what] == alone[what], what
