"""Test live events: each committed row once, across kills and a replaced journal."""

from __future__ import annotations

import json
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from placet.activity import Action
from placet.client.rows import last_row, new_rows
from placet.host.events import EVENT, FailureDetected, event_of, line_of
from placet.journal.reader import changes
from vaultkit import PLAN, TestVault, make_vault, printing, running, until

SECRET = "sk-ant-api03-" + "Zq9" * 31 + "AA"


@dataclass(frozen=True)
class Row:
    id: int
    action_type: str = "tool.called"
    timestamp: str = "2026-01-01T00:00:00.000Z"
    trace_id: str = "t"
    actor: str = "agent"
    agent: str = "default"
    entity_type: str = "mission"
    entity_id: str = "say-hello"
    details: dict[str, Any] = field(default_factory=dict)


def test_events_and_journal_follow_mission_live(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    plan = {
        **PLAN,
        "steps": [
            {
                "title": "Look",
                "description": "At it.",
                "tools": ["read_file", "write_file", "run_command"],
            }
        ],
        "scope": {"write": ["hello.txt"], "run": ["echo"]},
    }
    vault.plays(
        plan,
        [("run_command", {"command": "echo", "args": [SECRET]})],
        *({"calls": [("read_file", {"path": f"nowhere{n}.txt"})]} for n in range(3)),
        [("give_up", {"reason": "It is nowhere."})],
    )
    with (
        running(vault) as daemon,
        printing(vault, "events") as client,
        printing(vault, "journal", "--follow", "--json", "--limit", "0") as follower,
    ):
        await_follower(vault, client)
        await_follower(vault, follower)
        vault.drop("# Say hello\n")
        until(lambda: vault.plan().exists(), "the plan")
        vault.approve()
        followed = lines(follower, "execution.failed")
        daemon.send_signal(signal.SIGTERM)
        seen = [EVENT.validate_json(line) for line in client.stdout]
        assert client.wait(60) == 0
        assert "the daemon has stopped" in client.stderr.read()
    rows = [row for row in vault.rows() if row["id"] >= seen[0].id]
    assert [(e.id, e.type, e.metadata) for e in seen] == [
        (r["id"], r["action_type"], r["metadata"]) for r in rows
    ]
    assert {"request.detected", "execution.failed", "daemon.stopped"} <= {e.type for e in seen}
    (pattern,) = [e for e in seen if isinstance(e, FailureDetected)]
    assert (pattern.request_id, pattern.pattern, pattern.affected_tool) == (
        "say-hello",
        "repeated-tool-error",
        "read_file",
    )
    assert pattern.description
    assert pattern.suggested_action
    assert SECRET not in str(seen) + str(followed)
    assert "daemon.started" not in [row["action_type"] for row in followed], (
        "with --limit 0 only what is new"
    )


def lines(process: subprocess.Popen[str], last: str) -> list[dict[str, Any]]:
    found = []
    for line in process.stdout or ():
        found.append(json.loads(line))
        if found[-1]["action_type"] == last:
            break
    return found


def await_follower(vault: TestVault, follower: subprocess.Popen[str]) -> None:
    """Wait until it follows, which nothing shows but that it prints a row: notes that nobody can
    use make some.
    """
    for number in range(60):
        vault.drop("---\nkey: [unclosed\n---\n", f"Odd {follower.pid} {number}.md")
        if select.select([follower.stdout], [], [], 1.5)[0]:
            return
    raise AssertionError("it does not follow")


def test_events_end_when_the_daemon_is_killed(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    assert vault.cli("events", check=False).returncode == 1
    with running(vault) as daemon, printing(vault, "events") as client:
        await_follower(vault, client)
        daemon.kill()
        daemon.wait()
        assert client.wait(60) == 0
        assert "the daemon has stopped" in client.stderr.read()


# --- what a poll notices


def took(news: Iterator[None]) -> float:
    """Return the seconds until the next change."""
    began = time.monotonic()
    next(news)
    return time.monotonic() - began


def test_a_poll_notices_commits_and_a_replaced_file(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    news = changes(vault.site.state.journal, 0.01)
    assert took(news) < 1, "also without a journal"
    vault.once()
    assert took(news) < 1
    assert took(news) > 1, "nothing changed"
    copy = tmp_path / "copy.db"
    shutil.copy(vault.db, copy)
    copy.replace(vault.db)
    assert took(news) < 1
    vault.once()
    assert took(news) < 1, "the new file is followed"
    assert len(list(changes(vault.db, 0.01, for_s=0.5))) > 1


def test_events_continue_after_journal_is_restored(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.once()
    copy = tmp_path / "copy.db"
    shutil.copy(vault.db, copy)
    vault.once()
    news = new_rows(vault.site, last_row(vault.site))
    assert next(news) == ()
    copy.replace(vault.db)
    assert next(news) == ()
    vault.once()
    given = [row.id for rows in (next(news), next(news)) for row in rows]
    assert given
    assert given == [row["id"] for row in vault.rows()][-len(given) :]


# --- the schema


def test_event_schema_covers_every_action_type() -> None:
    schema = EVENT.json_schema()
    kinds = schema["discriminator"]
    assert kinds["propertyName"] == "type"
    assert set(kinds["mapping"]) == {action.value for action in Action}
    with pytest.raises(ValueError, match="type"):
        EVENT.validate_json('{"type": "made.up", "id": 1}')
    assert json.loads(line_of(event_of(Row(1, details={"path": "b\udc80d"}))))["metadata"] == {
        "path": "b\udc80d"
    }
