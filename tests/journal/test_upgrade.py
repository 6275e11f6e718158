"""Test that a journal of schema 6 is upgraded and its open cases continue.

`schema_6.tar.xz` holds a vault and its state folder as placet d5811cf left them when it was killed.
Its `make.py` made them, in a checkout of that commit.
"""

from __future__ import annotations

import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from gitkit import git
from placet.agent.record import ENDED
from placet.codec import Stored
from placet.errors import UserError
from placet.journal import upgrade
from placet.journal.maintenance import verify
from placet.journal.reader import open_reader
from placet.journal.writes import BodyDamaged
from placet_team.journal_copy import move_in
from vaultkit import TestVault

OLD = Path(__file__).with_name("schema_6.tar.xz")
COPY = "journal.before-schema-9.db"


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    """The old vault, moved here, with its settings accepted as the upgrade guide says."""
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    vault = TestVault(tmp_path / "vault", tmp_path / "state")
    git(vault.root, "worktree", "repair", *map(str, vault.state.glob("*/worktrees/*-2")))
    edit(vault, "UPDATE leases SET held = 0")  # they are of another machine
    vault.click("config", "accept", "--yes")
    return vault


def edit(vault: TestVault, *statements: str) -> None:
    with closing(sqlite3.connect(vault.db)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def found(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


EVENTS = "SELECT * FROM activity ORDER BY id"


def actions(vault: TestVault, ident: str, after: int) -> list[str]:
    return [
        row["action_type"]
        for row in vault.rows()
        if row["entity_id"] == ident and row["id"] > after
    ]


def test_old_journal_error_names_upgrade_command(vault: TestVault) -> None:
    refused = vault.click("status", check=False)
    assert refused.returncode == 1
    assert "(schema 6)" in refused.stderr
    assert "placet run" in refused.stderr
    assert vault.click("journal", "verify").returncode == 0


def test_postgres_move_refuses_old_journal(vault: TestVault) -> None:
    with pytest.raises(UserError, match="older placet"):
        move_in(vault.db, "postgresql://127.0.0.1:1/none", "id")
    assert vault.db.exists()


def test_upgrade_keeps_every_event_unchanged(vault: TestVault) -> None:
    before = found(vault.db, EVENTS)
    said = vault.once()
    copy = vault.db.with_name(COPY)
    assert (
        f"placet upgraded the journal. Its hash chain is valid. A copy of the old one is {copy}"
        in said
    )
    assert found(copy, EVENTS) == before
    assert found(vault.db, EVENTS)[: len(before)] == before
    assert verify(vault.db) is None
    assert vault.click("journal", "verify").returncode == 0, "texts and records are whole, too"
    assert found(vault.db, "SELECT count(*) FROM records WHERE body IS NULL") == [(0,)]
    assert not vault.db.with_name("journal.ballast").exists()
    assert "upgraded" not in vault.once()
    for command in ("status", "logs", "cost"):
        vault.click(command)
    for ident in ("done", "failed", "rejected", "killed", "merged"):
        vault.click("why", ident)
        vault.click("show", ident)


@pytest.fixture
def upgraded(vault: TestVault) -> TestVault:
    vault.once()
    return vault


def last_event(vault: TestVault) -> int:
    ((last,),) = found(vault.db.with_name(COPY), "SELECT max(id) FROM activity")
    assert isinstance(last, int)
    return last


def test_killed_mission_resumes_where_it_was(upgraded: TestVault) -> None:
    done = actions(upgraded, "killed", last_event(upgraded))
    assert done.count("execution.resumed") == 1
    assert done.count("execution.completed") == 1
    asked = [
        row["metadata"]["iteration"]
        for row in upgraded.rows("model.called")
        if row["entity_id"] == "killed" and row["metadata"]["purpose"] == "execute"
    ]
    assert asked == [1, 2, 3], "no answered call is repeated"
    calls = [
        row["metadata"]["tool"]
        for row in upgraded.rows("tool.called")
        if row["entity_id"] == "killed"
    ]
    assert calls.count("write_file") == 1
    assert "equal" in upgraded.click("replay", "killed").stdout


def test_upgrade_runs_approved_plan_and_pending_revision(upgraded: TestVault) -> None:
    assert "execution.completed" in actions(upgraded, "approved", last_event(upgraded))
    assert "plan.revised" in actions(upgraded, "revised", last_event(upgraded))
    assert "# Say hello twice" in upgraded.plan("revised").read_text()


def test_waiting_plan_gets_single_box_and_stays_approvable(upgraded: TestVault) -> None:
    for ident in ("waits", "failed"):
        text = upgraded.plan(ident).read_text()
        assert text.count("|placet] ") == 1, "the old callout became the box"
        assert text.split("---\n")[2].startswith("%% placet %%\n> [!")
        assert "Somebody wrote this" not in text
    upgraded.approve("waits")
    upgraded.once()
    after = last_event(upgraded)
    assert "plan.edited" not in actions(upgraded, "waits", after)
    assert "execution.completed" in actions(upgraded, "waits", after)


def test_upgrade_keeps_personal_text_in_old_plan(vault: TestVault) -> None:
    note = vault.plan("waits")
    note.write_text(
        note.read_text().replace("> [!info] About", "> Mind the gap.\n\n> [!info] About")
    )
    vault.once()
    text = note.read_text()
    assert text.startswith("---")
    assert "%% placet %%" in text
    assert "> Mind the gap.\n" in text
    vault.approve("waits")
    vault.once()
    assert "execution.completed" in actions(vault, "waits", last_event(vault))


def test_open_questions_are_answerable_after_upgrade(upgraded: TestVault) -> None:
    upgraded.click("answer", "asks", "hi")
    upgraded.click("answer", "planning-asks", "hello")
    upgraded.once()
    after = last_event(upgraded)
    assert "execution.completed" in actions(upgraded, "asks", after)
    assert "plan.created" in actions(upgraded, "planning-asks", after)
    texts = "SELECT CAST(body AS TEXT) AS said FROM texts WHERE said LIKE 'Question: %'"
    kept = sorted(str(body).split(" answered:") for (body,) in found(upgraded.db, texts))
    assert [answer for _, answer in kept] == ["\nhello\n", "\nhi\n"]
    assert all(question.startswith("Question: Which greeting?\n") for question, _ in kept)


def test_open_amendment_is_approvable_after_upgrade(upgraded: TestVault) -> None:
    asked = upgraded.root / "Inbox/Plans/widens_amendment1.md"
    asked.write_text(asked.read_text().replace('decision: ""', "decision: approve"))
    upgraded.once()
    done = actions(upgraded, "widens", last_event(upgraded))
    assert "plan.amended" in done
    assert "execution.completed" in done


def test_old_missions_can_be_merged_and_undone(upgraded: TestVault) -> None:
    upgraded.click("merge", "done")
    upgraded.click("undo", "merged", "--yes")
    upgraded.once()
    after = last_event(upgraded)
    assert "pr.merged" in actions(upgraded, "done", after)
    assert "pr.reverted" in actions(upgraded, "merged", after)


def test_failed_upgrade_changes_nothing(vault: TestVault, monkeypatch: pytest.MonkeyPatch) -> None:
    before = found(vault.db, "SELECT body FROM cases")
    with monkeypatch.context() as broken:
        broken.setattr(upgrade, "_with_facts", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            upgrade.upgrade(vault.db, vault.db.with_name(COPY))
    assert found(vault.db, "PRAGMA user_version") == [(6,)]
    assert found(vault.db, "SELECT body FROM cases") == before
    upgrade.upgrade(vault.db, vault.db.with_name(COPY))
    assert found(vault.db, "PRAGMA user_version") == [(9,)]


def test_ended_records_parse_after_upgrade(vault: TestVault) -> None:
    upgrade.upgrade(vault.db, vault.db.with_name(COPY))
    ends = found(vault.db, "SELECT CAST(body AS TEXT) FROM records WHERE key = 'ended'")
    results = [Stored(ENDED.kind).validate_json(str(body)) for (body,) in ends]
    assert sorted(one.branch.rpartition("-")[0] for one in results) == [
        "feat/done",
        "feat/failed",
        "feat/merged",
    ]


def test_upgrade_restores_archived_events(vault: TestVault) -> None:
    before = found(vault.db, EVENTS)
    archive = vault.db.with_name("journal.1-20.db")
    with closing(sqlite3.connect(vault.db)) as connection:
        connection.execute("VACUUM INTO ?", (str(archive),))
    edit(vault, "DELETE FROM activity WHERE id <= 20", "UPDATE chain SET start_id = 20")
    upgrade.upgrade(vault.db, vault.db.with_name(COPY))
    assert found(vault.db, EVENTS) == before
    assert verify(vault.db) is None


def test_upgrade_reports_changed_event(vault: TestVault) -> None:
    edit(vault, "UPDATE activity SET entity_id = 'other' WHERE id = 7")
    said = upgrade.upgrade(vault.db, vault.db.with_name(COPY))
    assert "Its row 7 does not fit its hash" in said


def test_missing_blob_damages_only_its_record(vault: TestVault) -> None:
    ((trace_id, attempt),) = found(
        vault.db,
        "SELECT DISTINCT r.trace_id, attempt FROM records r JOIN cases USING (trace_id) "
        "WHERE request_id = 'killed' AND r.key = 'opening' AND attempt = 2",
    )
    for file in vault.state.glob("*/blobs/??/*"):
        file.unlink()
    upgrade.upgrade(vault.db, vault.db.with_name(COPY))
    with open_reader(vault.db) as reader, pytest.raises(BodyDamaged):
        reader.records(str(trace_id), int(str(attempt)))
    vault.once()
    assert "execution.completed" in actions(vault, "approved", last_event(vault))
    assert vault.plan("killed").exists(), "its plan is back for review"


def test_upgrade_never_reads_files_outside_blobs(vault: TestVault, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("theirs")
    edit(vault, f"INSERT INTO texts VALUES ('d1', '{outside}', 6, NULL)")
    upgrade.upgrade(vault.db, vault.db.with_name(COPY))
    assert found(vault.db, "SELECT CAST(body AS TEXT) FROM texts WHERE digest = 'd1'") == [("",)]


def test_upgrade_drops_old_box_command(vault: TestVault) -> None:
    edit(
        vault,
        "INSERT INTO outbox (trace_id, command, created_at) SELECT trace_id, "
        """'{"path":"Inbox/Plans/waits_plan.md","sort":"question","title":"?","branch":"b",'"""
        """ || '"above":[],"below":[],"before":[],"do":"show"}', '' """
        "FROM cases WHERE request_id = 'waits'",
    )
    vault.once()
    assert found(vault.db, "SELECT count(*) FROM outbox WHERE done_at IS NULL") == [(0,)]
    assert vault.plan("waits").read_text().count("|placet] ") == 1


def test_upgrade_never_accepts_changed_body(vault: TestVault) -> None:
    edit(vault, "UPDATE records SET body = CAST(replace(body, 'No way', 'A way') AS BLOB)")
    for file in vault.state.glob("*/blobs/??/*"):
        file.write_bytes(file.read_bytes().replace(b"Say hello once more", b"Delete everything!"))
    vault.once()
    assert "Delete everything!" not in vault.plan("waits").read_text()
    assert vault.click("journal", "verify", check=False).returncode == 1
