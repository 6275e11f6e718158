"""Test that with a lost or older journal plans come back for review and nothing runs again."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import vaultkit
from gitkit import git
from looping import Fake, Time, bare_vault, greeter, looping
from placet.case.approval import NO_RECORD
from placet.case.commands import Decision, Move, Publish
from placet.loop.app import distrust_journal
from placet.plan.digest import plan_digest
from placet.sandbox.box import Level
from placet.sandbox.probe import Probe
from vaultkit import DONE, PLAN, TestVault, make_vault


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    vault = make_vault(tmp_path)
    vault.plays(PLAN, *DONE)
    return vault


@pytest.mark.parametrize("accepted", [False, True])
def test_landlock_runs_commands_only_if_accepted(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch, accepted: bool
) -> None:
    monkeypatch.setattr(vaultkit, "_probed", lambda: Probe(Level.LANDLOCK, ()))
    if accepted:
        vault.configure('[commands]\nsandbox = "landlock"\n')
    ran = {"run": ["true"], "write": ["hello.txt"]}
    vault.plays({**PLAN, "scope": ran}, *DONE)
    vault.drop("Say hello.\n")
    said = vault.once()
    plan = vault.plan().read_text()
    assert ("Commands do not run." in said) is not accepted
    assert ("> Commands cannot run here." in plan) is not accepted
    assert ("> Here commands run in Landlock only" in plan) is accepted


def lose(vault: TestVault) -> Path:
    """Delete the journal; return where it was."""
    db = vault.db
    for path in db.parent.glob("journal.db*"):
        path.unlink()
    return db


@pytest.mark.parametrize("how", ["lost", "lost with its mark", "damaged"])
@pytest.mark.thinned(2)
def test_journal_loss_keeps_open_plans_and_completed_requests(vault: TestVault, how: str) -> None:
    done = vault.drop("Say hello.\n")
    vault.drop("Say more.\n", "Say more.md")
    vault.once()
    vault.approve()
    vault.once()
    waiting = vault.plan("say-more")
    before = plan_digest(waiting.read_bytes()), git(vault.root, "for-each-ref")
    (vault.root / "Inbox/Archive" / done.name).rename(done)
    assert "status: completed" in done.read_text()
    if how == "damaged":
        vault.db.write_bytes(b"x" * 8192)
    else:
        db = lose(vault)
        if how != "lost":
            db.with_name("journal.mark").unlink()
    assert "The journal was lost" in vault.once()
    assert not {"model.called", "request.detected", "execution.started"} & set(vault.actions())
    assert (plan_digest(waiting.read_bytes()), git(vault.root, "for-each-ref")) == before
    assert "status: completed" in done.read_text()
    vault.approve("say-more")
    vault.once()
    assert [r["entity_id"] for r in vault.rows("execution.completed")] == ["say-more"]
    assert len(vault.rows("journal.reconciled")) == 1


@pytest.mark.parametrize("how", ["lost", "journal", "state folder"])
def test_plan_with_unrecorded_approval_returns_to_review(vault: TestVault, how: str) -> None:
    vault.drop("Say hello.\n")
    vault.once()
    kept = vault.root.parent / "kept"
    shutil.copytree(vault.state, kept, symlinks=True)
    vault.click("pause")
    vault.approve()
    vault.once()
    assert "approved_at" in vault.active().read_text()
    if how == "state folder":
        shutil.rmtree(vault.state)
        shutil.copytree(kept, vault.state, symlinks=True)
    else:
        db = lose(vault)
        if how == "journal":
            shutil.copy(next(kept.rglob("journal.db")), db)
    vault.click("resume")
    vault.once()
    assert not {"plan.approved", "execution.started"} & set(vault.actions())
    assert NO_RECORD in vault.plan().read_text()
    assert "approved_at" not in vault.plan().read_text()
    vault.approve()
    vault.once()
    assert len(vault.rows("plan.approved")) == len(vault.rows("execution.completed")) == 1


def test_copied_vault_has_lost_no_journal(vault: TestVault) -> None:
    vault.drop("Say hello.\n")
    vault.once()
    copy = vault.root.parent / "copy" / "vault"
    shutil.copytree(vault.root, copy)
    other = TestVault(copy, vault.state, vault.extra)
    said = other.once()
    assert "is a copy of" in said
    assert "journal was lost" not in said


def test_older_journal_with_approval_runs_nothing(vault: TestVault) -> None:
    request = vault.drop("Say hello.\n")
    vault.once()
    vault.click("pause")
    vault.approve()
    vault.once()
    then = [(path, path.read_bytes()) for path in (request, vault.active())]
    kept = vault.root.parent / "kept"
    shutil.copytree(vault.state, kept, symlinks=True)
    vault.click("resume")
    vault.once()
    before = {p.name: p.read_bytes() for p in (vault.root / "Inbox/Archive").iterdir()}
    refs = git(vault.root, "for-each-ref")
    for path, raw in then:  # a sync tool brings them back
        path.write_bytes(raw)
    shutil.rmtree(vault.state)
    shutil.copytree(kept, vault.state, symlinks=True)
    vault.once()
    assert "execution.started" not in vault.actions()
    assert vault.rows("journal.reconciled")[0]["metadata"]["to_review"] == ["say-hello"]
    assert NO_RECORD in vault.plan().read_text()
    archive = {p.name: p.read_bytes() for p in (vault.root / "Inbox/Archive").iterdir()}
    assert (archive, git(vault.root, "for-each-ref")) == (before, refs)


def test_older_journal_performs_no_old_command(tmp_path: Path) -> None:
    """It was copied between a decision and what follows from it."""
    vault = bare_vault(tmp_path)
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        vault.drop("Say hello\n")
        running.settle()
        book = running.loop.state
        (case,) = book.cases.values()
        old = Publish(f"Inbox/Plans/{case.request_id}_plan_r2.md", case.plan.digest)
        book.record(Decision(case, (), (old, Move(case.plan.path, "Inbox/Archive/x.md"))))
        before = sorted((vault.root / "Inbox").rglob("*.md"))
        distrust_journal(running.loop)
        running.settle()
    assert sorted((vault.root / "Inbox").rglob("*.md")) == before


def test_older_journal_performs_no_old_intent(vault: TestVault) -> None:
    vault.drop("Say hello.\n")
    vault.once()
    vault.click("approve", "say-hello", "--yes")
    lose(vault)
    assert "was not performed" in vault.once()
    assert not {"plan.approved", "execution.started"} & set(vault.actions())
    assert vault.plan().exists()


def test_new_vault_with_placet_branches_reports_no_loss(vault: TestVault, tmp_path: Path) -> None:
    vault.drop("Say hello.\n")
    vault.once()
    vault.approve()
    vault.once()
    other = make_vault(tmp_path / "other")
    other.configure(
        f'[model]\nprovider = "scripted"\nname = "test"\nscript = "System/replies.toml"\n'
        f'[portals.code]\npath = "{vault.root}"\n'
    )
    other.plays(PLAN, *DONE)
    other.drop("Say hello.\n")
    said = other.once()
    assert "The journal was lost" not in said
    assert not other.rows("journal.reconciled")


@pytest.mark.parametrize("how", ["row", "mark"])
def test_missing_marker_or_row_does_not_prevent_start(vault: TestVault, how: str) -> None:
    vault.once()
    mark = vault.db.with_name("journal.mark")
    marked = mark.read_text()
    vault.once()
    if how == "row":
        mark.write_text(marked)
        with closing(sqlite3.connect(vault.db)) as connection, connection:
            connection.execute("DELETE FROM activity WHERE id = ?", (marked.split()[0],))
    else:
        mark.unlink()
        mark.mkdir()
    vault.once()
    assert len(vault.rows("journal.reconciled")) == 1


def test_plan_is_adopted_after_journal_loss(vault: TestVault) -> None:
    """Also where the request says that it is being planned: the plan that is there is the plan."""
    request = vault.drop("Say hello.\n")
    vault.once()
    request.write_text(request.read_text().replace("status: planned", "status: planning"))
    lose(vault)
    vault.once()
    assert vault.actions().count("plan.adopted") == 1
    assert {"model.called", "request.detected"} & set(vault.actions()) == set()


def test_mission_work_survives_journal_loss(vault: TestVault) -> None:
    """The same request again has the same trace, so its mission would be called the same."""

    def attempt(text: str) -> str:
        vault.plays(
            PLAN,
            [
                ("write_file", {"path": "hello.txt", "content": text}),
                ("give_up", {"reason": "No."}),
            ],
        )
        vault.drop("Say hello.\n")
        vault.once()
        vault.approve()
        vault.once()
        (failed,) = vault.rows("execution.failed")
        assert failed["metadata"]["reason"] == "gave_up"
        return str(failed["metadata"]["kept"])

    first = attempt("first\n")
    state = lose(vault).parent
    for note in (*vault.root.glob("Inbox/*/*.md"), *vault.reports()):
        note.unlink()
    name = first.removeprefix("refs/placet/failed/say-hello-")
    git(vault.root, "worktree", "add", "-q", "-b", "left", str(state / "worktrees" / name))
    (state / "worktrees" / name / "left.txt").write_text("work\n")
    second = attempt("second\n")
    assert [git(vault.root, "show", f"{ref}:hello.txt") for ref in (first, second)] == [
        "first",
        "second",
    ]
    refs = git(vault.root, "for-each-ref", "--format=%(refname)", "refs/placet").splitlines()
    kept = [ref for ref in refs if "left.txt" in git(vault.root, "ls-tree", "--name-only", ref)]
    assert len(kept) == 1, "the daemon removes the worktree, and keeps its work at a ref"


def test_rejected_plan_stays_rejected_after_journal_loss(
    vault: TestVault,
) -> None:
    vault.drop("Say hello")
    vault.once()
    vault.plan().rename(vault.root / "Inbox/Rejected/say-hello_rejected.md")
    vault.once()
    shutil.rmtree(vault.state)
    said = vault.once()
    assert "not in the journal was added to it: Inbox/Rejected/say-hello_rejected.md" in said
    assert "waits for you" not in said
    assert vault.actions().count("plan.rejected") == 1
