"""A journal that was lost, damaged or put back from a backup: what vault and branches tell is taken
up, nothing runs again.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gitkit import git
from looping import Fake, Time, bare_vault, greeter, looping
from placet.cli.why import why, why_text
from placet.core.life.commands import Decision, Move, Publish
from placet.core.text.note import plan_digest
from placet.loop.recover import reconcile
from vaultkit import DONE, PLAN, TestVault, make_vault


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    vault = make_vault(tmp_path)
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}]), ("execute", DONE))
    return vault


def lose(vault: TestVault) -> Path:
    """Delete the journal; return where it was."""
    db = vault.db
    for path in db.parent.glob("journal.db*"):
        path.unlink()
    return db


@pytest.mark.parametrize("how", ["lost", "lost with its mark", "damaged"])
@pytest.mark.thinned(2)
def test_cases_are_rebuilt_from_the_vault_and_the_branches(vault: TestVault, how: str) -> None:
    vault.drop("Say hello.\n")
    vault.drop("Say more.\n", "Say more.md")
    vault.once()
    vault.approve()
    vault.once()
    waiting = vault.plan("say-more")
    # the journal alone knew the branch that the box names
    before = plan_digest(waiting.read_bytes()), git(vault.root, "for-each-ref")
    if how.startswith("lost"):
        db = lose(vault)
        if how != "lost":
            db.with_name("journal.mark").unlink()
    else:
        vault.db.write_bytes(b"x" * 8192)
    said = vault.once()
    assert "Taken up again from their reports: 1 mission." in said
    assert vault.rows("journal.reconciled")[0]["metadata"]["adopted"] == ["say-hello"]
    assert {"model.called", "execution.started", "plan.revised"} & set(vault.actions()) == set()
    assert (plan_digest(waiting.read_bytes()), git(vault.root, "for-each-ref")) == before
    (row,) = vault.rows("mission.adopted")
    assert row["metadata"]["commit"] == git(vault.root, "rev-parse", row["metadata"]["branch"])
    vault.approve("say-more")
    vault.once()
    assert [r["entity_id"] for r in vault.rows("execution.completed")] == ["say-more"]
    assert "journal.reconciled" in vault.actions()
    vault.once()
    assert len(vault.rows("journal.reconciled")) == 1, "once is enough"


def test_a_new_vault_has_lost_nothing_whatever_branches_its_repository_has(
    vault: TestVault, tmp_path: Path
) -> None:
    vault.drop("Say hello.\n")
    vault.once()
    vault.approve()
    vault.once()
    other = make_vault(tmp_path / "other")
    other.configure(
        f'[model]\nprovider = "scripted"\nname = "test"\nscript = "System/replies.toml"\n'
        f'[portals.code]\npath = "{vault.root}"\n'
    )
    other.script(("plan", [{"calls": [("submit_plan", PLAN)]}]), ("execute", DONE))
    other.drop("Say hello.\n")
    said = other.once()
    assert "The journal is older" not in said
    assert not other.rows("journal.reconciled")
    # once it has notes of its own, a journal that is gone was lost
    db = lose(other)
    db.with_name("journal.mark").unlink()
    assert "The journal is older" in other.once()


def test_why_says_what_it_can_of_a_failure_whose_journal_is_gone(vault: TestVault) -> None:
    vault.script(
        ("plan", [{"calls": [("submit_plan", PLAN)]}]),
        ("execute", [{"calls": [("give_up", {"reason": "No."})]}]),
    )
    vault.drop("Say hello.\n")
    vault.here()
    vault.approve()
    vault.here()
    lose(vault)
    vault.here()
    said = why_text(why(vault.site, "say-hello"))
    assert "Its mission failed" in said
    assert str(vault.reports()[0].relative_to(vault.root)) in said


def test_what_is_no_report_stops_no_rebuilding(vault: TestVault) -> None:
    vault.drop("Say hello.\n")
    vault.once()
    vault.approve()
    vault.once()
    (report,) = vault.reports()
    text = report.read_text()
    forged = text.replace("request_id: say-hello", "request_id: ../../x")
    (trace,) = {row["trace_id"] for row in vault.rows("execution.completed")}
    report.with_name("folder.md").mkdir()
    report.with_name("forged.md").write_text(forged.replace(trace[:8], "f" * 8))
    report.with_name("traceless.md").write_text(
        text.replace(f"trace_id: {trace}", "trace_id: ../x")
    )
    moments = ("0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00", "soon")
    for n, moment in enumerate(moments):
        odd = report.with_name(f"odd{n}.md")
        told = re.sub("completed_at: .*", f"completed_at: {moment}", text)
        odd.write_text(told.replace(trace[:8], f"eeeeeee{n}"))
    lose(vault)
    said = vault.once()
    assert "folder.md is no ordinary file" in said
    for n in range(len(moments)):
        assert f"odd{n}.md: its `completed_at` is no moment, so it was not taken up" in said
    assert vault.rows("journal.reconciled")[0]["metadata"]["adopted"] == ["say-hello"]


@pytest.mark.parametrize("what", ["journal", "state folder"])
def test_a_backup_that_is_put_back_undoes_nothing(vault: TestVault, what: str) -> None:
    vault.drop("Say hello.\n")
    vault.once()
    kept = vault.root.parent / "kept.db"
    if what == "journal":
        vault.cli("journal", "backup", str(kept))
    else:
        shutil.copytree(vault.state, kept, symlinks=True)
    vault.approve()
    vault.once()
    archived = {p.name: p.read_bytes() for p in (vault.root / "Inbox/Archive").iterdir()}
    assert len(archived) == 2
    if what == "journal":
        shutil.copy(kept, lose(vault))
    else:
        shutil.rmtree(vault.state)
        shutil.copytree(kept, vault.state, symlinks=True)
    vault.once()
    assert {"plan.withdrawn", "execution.started"} & set(vault.actions()) == set()
    assert {p.name: p.read_bytes() for p in (vault.root / "Inbox/Archive").iterdir()} == archived
    (row,) = vault.rows("mission.adopted")
    git(vault.root, "merge", "-q", "--no-edit", row["metadata"]["branch"])
    vault.once()
    assert [r["metadata"]["commit_sha"] for r in vault.rows("pr.merged")] == [
        git(vault.root, "rev-parse", "HEAD")
    ]


def test_a_journal_that_is_put_back_performs_nothing_on_newer_notes(tmp_path: Path) -> None:
    """It was copied between a decision and what follows from it."""
    vault = bare_vault(tmp_path)
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        vault.drop("Say hello\n")
        running.settle()
        book = running.loop.book
        (case,) = book.cases.values()
        old = Publish(f"Inbox/Plans/{case.request_id}_plan_r2.md", case.plan.digest)
        book.record(Decision(case, (), (old, Move(case.plan.path, "Inbox/Archive/x.md"))))
        before = sorted((vault.root / "Inbox").rglob("*.md"))
        reconcile(book, [], [])
        running.settle()
    assert sorted((vault.root / "Inbox").rglob("*.md")) == before


@pytest.mark.parametrize("how", ["lost", "put back"])
def test_an_approval_of_which_the_journal_knows_nothing_any_more_is_asked_for_again(
    vault: TestVault, how: str
) -> None:
    """Nobody can say whether this is the text that was approved, nor what was done with it."""
    vault.drop("Say hello.\n")
    vault.once()
    vault.cli("journal", "backup", str(vault.root.parent / "kept.db"))
    vault.approve()
    config = vault.root / "System/placet.toml"
    config.write_text(config.read_text() + "[daemon]\npaused = true\n")
    vault.once()
    assert "approved_at" in vault.active().read_text()
    assert "plan.approved" in vault.actions()
    config.write_text(config.read_text().replace("paused = true", "paused = false"))
    db = lose(vault)
    if how == "put back":
        shutil.copy(vault.root.parent / "kept.db", db)
    assert "whose approval it does not know" in vault.once()
    assert {"plan.approved", "execution.started"} & set(vault.actions()) == set()
    plan = vault.plan().read_text()
    assert "given before the journal was lost" in plan
    assert "approved_" not in plan
    vault.approve()
    vault.once()
    assert len(vault.rows("plan.approved")) == len(vault.rows("execution.completed")) == 1


@pytest.mark.parametrize("how", ["row", "mark"])
def test_a_row_or_a_mark_that_is_no_more_stops_no_start(vault: TestVault, how: str) -> None:
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


def test_a_plan_whose_journal_is_gone_is_not_written_anew(vault: TestVault) -> None:
    """Also where the request says that it is being planned: the plan that is there is the plan."""
    request = vault.drop("Say hello.\n")
    vault.once()
    request.write_text(request.read_text().replace("status: planned", "status: planning"))
    lose(vault)
    vault.once()
    assert vault.actions().count("plan.adopted") == 1
    assert {"model.called", "request.detected"} & set(vault.actions()) == set()


def test_a_mission_that_left_commits_and_no_report_is_told(vault: TestVault) -> None:
    vault.drop("Say hello.\n")
    vault.once()
    vault.approve()
    vault.once()
    (report,) = vault.reports()
    report.unlink()
    lose(vault)
    assert "Commits of missions without a report are on 1 branch." in vault.once()


def test_what_missions_left_that_the_journal_lost_stays_as_it_is(vault: TestVault) -> None:
    """The same request again has the same trace, so its mission would be called the same."""

    def attempt(text: str) -> str:
        vault.script(
            ("plan", [{"calls": [("submit_plan", PLAN)]}]),
            (
                "execute",
                [
                    {
                        "calls": [
                            ("write_file", {"path": "hello.txt", "content": text}),
                            ("give_up", {"reason": "No."}),
                        ]
                    }
                ],
            ),
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
    assert (state / "worktrees" / name / "left.txt").read_text() == "work\n"


def test_of_a_rejected_plan_that_the_journal_lost_nobody_says_that_it_waits(
    vault: TestVault,
) -> None:
    vault.drop("Say hello")
    vault.once()
    vault.plan().rename(vault.root / "Inbox/Rejected/say-hello_rejected.md")
    vault.once()
    shutil.rmtree(vault.state)
    said = vault.once()
    assert "the journal does not know was taken up: Inbox/Rejected/say-hello_rejected.md" in said
    assert "waits for you" not in said
    assert vault.actions().count("plan.rejected") == 1
