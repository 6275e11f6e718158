"""Test backup and restore, and how `verify` finds changed texts and records."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from messages_api import MessagesApi, call, hang, reply
from placet.journal.maintenance import verify
from vaultkit import PLAN, TestVault, make_vault, running, until

LONG = "hi\n" * 8_000


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    vault = make_vault(tmp_path)
    step = {
        **PLAN["steps"][0],
        "actions": [{"tool": "write_file", "params": {"path": "hello.txt", "content": "hello\n"}}],
    }
    vault.plays({**PLAN, "steps": [step]})
    vault.drop("Say hello.\n")
    vault.here()
    return vault


def sql(vault: TestVault, text: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(vault.db)) as db, db:
        return db.execute(text, values).fetchall()


def swap(vault: TestVault) -> None:
    """Put another text in the place of the one that was approved, name, size and all, as who can
    write the database can.
    """
    digest = vault.rows("plan.approved")[0]["metadata"]["digest"]
    body = sql(vault, "SELECT body FROM texts WHERE digest = ?", digest)[0][0]
    assert isinstance(body, bytes)
    evil = body.replace(b"hello.txt", b"evil.txt")
    name = hashlib.sha256(evil).hexdigest()
    sql(
        vault,
        "UPDATE texts SET body = ?, sha256 = ?, size = ? WHERE digest = ?",
        evil,
        name,
        len(evil),
        digest,
    )


def paused(vault: TestVault, *, on: bool) -> None:
    vault.click("pause" if on else "resume")


def test_plan_text_swapped_after_approval_never_runs(vault):
    paused(vault, on=True)
    vault.approve()
    vault.here()
    swap(vault)
    done = vault.click("journal", "verify", check=False)
    assert done.returncode == 1
    assert "is another one" in done.stderr
    assert vault.click("show", "say-hello").stdout.count("evil.txt") == 0
    assert vault.click("status").returncode == 0
    paused(vault, on=False)
    said = vault.here()
    assert any("is another one" in line for line in said)
    assert not vault.rows("execution.started")
    assert not vault.rows("git.branch_created")
    assert "is another one" in vault.rows("plan.refused")[-1]["metadata"]["reason"]
    note = vault.plan().read_text()
    assert "The journal is damaged" in note
    assert "evil.txt" not in note
    vault.approve()  # as it stands there: that is a new approval, of a text that is kept anew
    vault.here()
    assert vault.rows("execution.completed")


def test_verify_prints_hash_and_detects_truncated_journal(vault):
    done = vault.click("journal", "verify")
    last, row_hash = sql(vault, "SELECT last_id, last_hash FROM chain")[0]
    assert done.stdout == f"{last} {row_hash}\n"
    assert "keep this hash elsewhere" in done.stderr
    cut = int(str(last)) - 3
    (kept,) = sql(vault, "SELECT hash FROM activity WHERE id = ?", cut)[0]
    sql(vault, "DELETE FROM activity WHERE id > ?", cut)
    sql(vault, "UPDATE chain SET last_id = ?, last_hash = ?", cut, kept)
    done = vault.click("journal", "verify", check=False)
    assert done.returncode == 1
    assert "somebody cut rows off" in done.stderr
    assert "somebody cut rows off" in vault.click("doctor", check=False).stdout


def test_verify_calls_restored_journal_an_older_copy(vault, tmp_path):
    vault.click("journal", "backup", str(tmp_path / "copy.db"))
    ((backed_up,),) = sql(vault, "SELECT last_id FROM chain")
    vault.here()
    for end in ("-wal", "-shm"):
        vault.db.with_name(vault.db.name + end).unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy.db", vault.db)
    done = vault.click("journal", "verify", check=False)
    assert done.returncode == 1
    assert f"an older copy, as after a restore. Its rows are whole up to row {backed_up};" in (
        " ".join(done.stderr.split())
    )
    assert "placet run" in done.stderr
    vault.here()
    assert vault.click("journal", "verify").returncode == 0


def test_verify_detects_changed_record(vault):
    sql(vault, "UPDATE records SET body = 'other' WHERE rowid = (SELECT min(rowid) FROM records)")
    done = vault.click("journal", "verify", check=False)
    assert done.returncode == 1
    assert "is not what was written" in done.stderr


def test_oversized_value_fails_journal_query(vault):
    done = vault.click("journal", "--sql", "SELECT zeroblob(1000000000)", check=False)
    assert done.returncode == 2
    assert "the query failed" in done.stderr


@pytest.fixture
def under_way(tmp_path: Path):
    """A vault whose mission is in its second turn, with a long body in its record, and a backup of
    its journal.
    """

    def script(body):
        if "submit_plan" in {tool["name"] for tool in body["tools"]}:
            return reply(call("submit_plan", PLAN))
        if sum(message["role"] == "assistant" for message in body["messages"]) == 0:
            return reply(call("write_file", {"path": "hello.txt", "content": LONG}))
        return (
            hang()
            if not finish
            else reply(
                call("complete_step", {"step": 1, "summary": "Hello"}),
                call("finish", {"summary": "done"}),
            )
        )

    finish: list[bool] = []
    with MessagesApi(script) as api:
        vault = make_vault(
            tmp_path, ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY="sk-ant-test-0123456789"
        )
        vault.configure('[commands]\nsandbox = "none"\n')
        vault.drop("Say hello\n")
        vault.here()
        vault.approve()
        copy = tmp_path / "copy" / "FILE"
        copy.parent.mkdir()
        with running(vault):
            until(lambda: len(api.requests) >= 3, "the second turn")
            vault.click("journal", "backup", str(copy))
        finish.append(True)
        api.release()
        yield vault, copy


def restore(vault: TestVault, copy: Path) -> None:
    """Do what the guide says, on a new disk."""
    db = vault.db
    shutil.rmtree(db.parent)
    db.parent.mkdir(parents=True, mode=0o700)
    shutil.copy(copy, db)


def test_restored_single_file_backup_requires_reapproval(under_way):
    vault, copy = under_way
    assert [path.name for path in copy.parent.iterdir()] == ["FILE"]
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("SELECT count(*) FROM records WHERE size > 16384").fetchone()[0] > 0
    restore(vault, copy)
    vault.here()
    assert "execution.completed" not in vault.actions()
    assert "no record that anyone approved" in vault.plan().read_text()
    vault.approve()
    vault.here()
    assert "execution.completed" in vault.actions()
    assert vault.click("journal", "verify").returncode == 0


def test_backup_never_overwrites_existing_path(vault, tmp_path):
    note = vault.root / "Knowledge/precious.md"
    note.write_text("my only copy\n")
    link, target = tmp_path / "link", tmp_path / "target"
    target.write_text("theirs\n")
    link.symlink_to(target)
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    there = [note, vault.root / "System/placet.toml", link, dangling, tmp_path, vault.db]
    before = [path.lstat().st_ino for path in there], note.read_bytes(), target.read_bytes()
    for place in (*map(str, there), "/", "", "..", "Knowledge/precious.md"):
        done = vault.click("journal", "backup", place, check=False)
        assert done.returncode == 2, place
        assert "is there already, and was left as it is" in done.stderr
        assert "Name a file that is not there yet" in done.stderr
    assert before == (
        [path.lstat().st_ino for path in there],
        note.read_bytes(),
        target.read_bytes(),
    )
    assert vault.click("journal", "verify").returncode == 0
    vault.click("journal", "backup", str(tmp_path / "new.db"))
    assert verify(tmp_path / "new.db") is None


def test_damaged_record_body_stops_only_its_case(under_way):
    vault, _ = under_way
    sql(vault, "UPDATE records SET body = x'' WHERE size > 16384")
    vault.drop("Something else\n", "Other.md")
    said = vault.here()
    assert any("is not what was written" in line for line in said), said
    assert vault.plan("other").exists(), "the daemon is up, and plans"
    assert "The journal is damaged" in vault.plan().read_text()
    assert not vault.rows("execution.resumed")
    assert "is not what was written" in vault.click("journal", "verify", check=False).stderr
