"""Test the history that placet keeps for a vault that is not a repository."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from disks import fill_up, small_disk_at
from gitkit import git, settle_home
from looping import Fake, greeter, looping
from placet.chat.messages import Ask, Reply
from placet.client.site import Site
from placet.git.repository import open_repo
from placet.git.vault_history import keep_notes
from vaultkit import PLAN, Saved, TestVault, make_vault, meddling, until

MB = 1_000_000


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for key, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(key, value)
    return tmp_path / "home"


def to_hello(vault: TestVault, text: str = "hi\n", path: str = "hello.txt", **more: Any) -> None:
    """Script a request that ends in one written file."""
    vault.plays(
        {**PLAN, "scope": {"write": [path]}, **more},
        [("write_file", {"path": path, "content": text})],
        [("complete_step", {"step": 1, "summary": "Written"}), ("finish", {"summary": "Done"})],
    )


def planned(vault: TestVault, *args: str, **more: Any) -> None:
    """Have it planned in a vault that may have a history."""
    vault.configure("[vault]\nhistory = true\n")
    to_hello(vault, *args, **more)
    vault.drop("Say hello")
    vault.once()


def carried_out(vault: TestVault, *args: str, **more: Any) -> None:
    planned(vault, *args, **more)
    vault.approve()
    vault.once()


def notes(root: Path, count: int, text: str = "a note\n") -> None:
    (root / "Notes").mkdir(exist_ok=True)
    for n in range(count):
        (root / "Notes" / f"note {n}.md").write_text(f"{n} {text}")


def side(vault: TestVault) -> str:
    path = vault.root / "Inbox/Requests/Say hello.placet.md"
    return path.read_text() if path.exists() else ""


# --- asking


def test_init_enables_history_only_in_new_vault(
    tmp_path: Path,
) -> None:
    def placet(where: Path, *args: str) -> subprocess.CompletedProcess[str]:
        return TestVault(where, tmp_path / "state").click(*args)

    new, old = tmp_path / "new", tmp_path / "old"
    old.mkdir()
    git(tmp_path, "init", "-q", "repository")
    said = placet(tmp_path, "init", "repository").stderr
    assert "history" not in said.replace(str(tmp_path), "")
    assert "\nhistory" not in (tmp_path / "repository/System/placet.toml").read_text()
    notes(old, 3)
    (old / "Notes" / "photo.PNG").write_bytes(bytes(2 * MB))
    (old / "Notes" / "long.md").write_bytes(b"x" * (2 * MB))
    assert "It may keep one" in placet(tmp_path, "init", str(new)).stderr
    assert "\nhistory = true" in (new / "System/placet.toml").read_text()
    said = placet(tmp_path, "init", str(old)).stderr
    assert "3 text files, 0.0 MB" in said
    assert "2 attachments or large files, 4.0 MB" in said
    assert f"placet init {old} --history" in said
    assert "\nhistory = false" in (old / "System/placet.toml").read_text()
    assert not (old / ".git").exists()
    assert "--history" not in placet(old, "init").stderr, "it is asked once"
    for _ in range(2):
        placet(old, "init", "--history")
        assert "\nhistory = true" in (old / "System/placet.toml").read_text()
    placet(old, "init")
    assert "\nhistory = true" in (old / "System/placet.toml").read_text()


# --- where it is not allowed


def test_request_without_history_waits_until_it_is_allowed(
    vault: TestVault,
) -> None:
    vault.configure("[vault]\nhistory = false\n")

    def answer(ask: Ask) -> Reply:
        until(lambda: not side(vault), "the side note goes while the plan is written")
        return greeter(ask)

    with looping(vault, model=lambda: Fake(answer)) as run:
        vault.drop("Say hello")
        run.settle()
        assert "placet init --history" in side(vault)
        assert "portal: NAME" in side(vault)
        assert not (vault.root / ".git").exists()
        assert vault.rows("model.called") == []
        vault.configure((vault.root / "System/placet.toml").read_text().replace("false", "true"))
        until(lambda: run.loop.tick() and vault.rows("plan.created"))
    assert (vault.root / ".git").is_dir()


def test_portal_replaces_missing_history(vault: TestVault, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    git(tmp_path, "init", "-q", "repo")
    git(repo, "commit", "-q", "--allow-empty", "-m", "Begin")
    vault.configure(f'[vault]\nhistory = false\n[portals.code]\npath = "{repo}"\n')
    to_hello(vault)
    vault.drop("Say hello")
    assert "placet init --history" in vault.once(code=1)
    request = vault.root / "Inbox/Requests/Say hello.md"
    request.write_text(request.read_text().replace("---\n", "---\nportal: code\n", 1))
    vault.once()
    assert vault.plan().exists()
    assert not side(vault)
    assert not (vault.root / ".git").exists()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            "[vault]\nhistory = true\nhistory_max_mb = 0.05\n",
            "more than the 0.05 MB of `history_max_mb`",
        ),
        ("", "It would hold "),  # nobody was asked, and it is not a new vault
    ],
)
def test_oversized_vault_starts_no_history(vault: TestVault, config: str, said: str) -> None:
    notes(vault.root, 60, "x" * 1000)
    (vault.root / "data.json").write_text("[0]" * 10_000)
    vault.configure(config)
    to_hello(vault)
    vault.drop("Say hello")
    vault.once(code=1)
    assert said in side(vault)
    if config:
        assert ".md 0.1 MB, .json 0.0 MB" in side(vault)
    assert not list(vault.root.glob(".git*"))
    assert not list(vault.root.glob(".placet-init*"))
    if config:
        with patch.object(Site, "daemon", "one that runs"):
            told = vault.click("why", "say-hello").stdout
        assert "It waits for you: " in told
        assert said in " ".join(told.split())
        assert "its plan is being written" not in told


# --- what it holds


def begun(vault: TestVault) -> Iterator[str]:
    planned(vault)
    yield from git(vault.root, "ls-files", "-z").split("\0")[:-1]


def test_history_holds_text_without_attachments_or_large_files(vault: TestVault) -> None:
    notes(vault.root, 2)
    for name in ("photo.png", "Photo.JPG", "book.pdf", "talk.mp4", "old.tar.gz", "table.xlsx"):
        (vault.root / "Notes" / name).write_bytes(b"\0\1" * 100)
    odd = "Notes/[a] *b* large \\c .md"
    (vault.root / odd).write_bytes(b"x" * (MB + 1))
    (vault.root / ".gitignore").write_text("drafts/\n")
    (vault.root / "drafts").mkdir()
    (vault.root / "drafts/a.md").write_text("not for git\n")
    held = [
        name for name in begun(vault) if not name.startswith(("Knowledge/", "Missions", "Home"))
    ]
    assert held == [".gitignore", "Notes/note 0.md", "Notes/note 1.md"]
    assert (vault.root / ".gitignore").read_text() == "drafts/\n"
    assert git(vault.root, "status", "--porcelain") == ""
    assert "Notes/" in (vault.root / ".git/info/exclude").read_text()
    assert (vault.root / odd).stat().st_size == MB + 1


@pytest.mark.parametrize("count", [400, pytest.param(5000, marks=pytest.mark.sweep)])
def test_first_commit_is_small_and_reports_progress(tmp_path: Path, count: int) -> None:
    """300 MB in 300 pictures and 5,000 notes that are never in git: the figures of the issue,
    smaller in the suite.
    """
    vault = make_vault(tmp_path)
    words = [f"{random.Random(n).getrandbits(40):x}" for n in range(3000)]
    pick = random.Random(1)
    (vault.root / "Notes").mkdir()
    for n in range(count):
        (vault.root / f"Notes/{n}.md").write_text(" ".join(pick.choices(words, k=300)))
    (vault.root / "Pictures").mkdir()
    for n in range(300 if count == 5000 else 10):
        (vault.root / f"Pictures/{n}.png").write_bytes(os.urandom(MB))
    vault.configure("[vault]\nhistory = false\n")
    to_hello(vault)
    began = time.monotonic()
    vault.drop("Say hello")
    vault.once(code=1)
    assert side(vault)
    waited_s = time.monotonic() - began
    vault.configure((vault.root / "System/placet.toml").read_text().replace("false", "true"))
    began = time.monotonic()
    vault.once()
    print(f"a note after {waited_s:.1f} s; with a plan after {time.monotonic() - began:.1f} s")
    tracked = sum(
        (vault.root / name).stat().st_size
        for name in git(vault.root, "ls-files", "-z").split("\0")[:-1]
    )
    disk = sum(path.lstat().st_blocks * 512 for path in (vault.root / ".git").rglob("*"))
    print(f".git {disk / MB:.1f} MB for {tracked / MB:.1f} MB of text")
    assert disk <= 1.2 * tracked
    assert waited_s < 5


def test_daemon_prints_first_commit_progress(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placet.git.vault_history._BATCH_BYTES", 10_000)
    monkeypatch.setattr("placet.git.vault_history._SAY_EVERY_S", 0.0)
    notes(vault.root, 40, "x" * 1000)
    vault.configure("[vault]\nhistory = true\n")
    to_hello(vault)
    vault.drop("Say hello")
    said = vault.once()
    assert "A history (git) of the vault begins" in said
    assert said.count("The vault's history: ") >= 3
    assert git(vault.root, "status", "--porcelain") == ""
    assert len(git(vault.root, "ls-files", "Notes").splitlines()) == 40


# --- it follows


def with_history(folder: Path) -> TestVault:
    vault = make_vault(folder)
    notes(vault.root, 3)
    carried_out(vault)
    return vault


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    with pytest.MonkeyPatch.context() as patched:
        for key, value in settle_home(tmp_path_factory.mktemp("home") / "home").items():
            patched.setenv(key, value)
        return Saved(tmp_path_factory.mktemp("kept"), with_history)


@pytest.fixture
def kept(saved: Saved) -> TestVault:
    """A vault whose history placet began, with a finished mission that wrote hello.txt, not merged."""
    return saved.restore()


def test_next_mission_reads_later_notes(kept: TestVault) -> None:
    (kept.root / "Notes/later.md").write_text("the word is plugh\n")
    (kept.root / "Notes/note 0.md").write_text("other\n")
    (kept.root / "Notes/note 1.md").unlink()
    read = ("read_file", {"path": "Notes/later.md"})
    kept.script(
        (
            "plan",
            [
                {"calls": [read]},
                {
                    "calls": [
                        (
                            "submit_plan",
                            {
                                **PLAN,
                                "steps": [
                                    {**PLAN["steps"][0], "tools": ["read_file", "write_file"]}
                                ],
                            },
                        )
                    ]
                },
            ],
        ),
        (
            "execute",
            [
                {"calls": [("read_file", {"path": "Notes/after.md"})]},
                {"calls": [("write_file", {"path": "hello.txt", "content": "x\n"})]},
                {
                    "calls": [
                        ("complete_step", {"step": 1, "summary": "Written"}),
                        ("finish", {"summary": "Done"}),
                    ]
                },
            ],
        ),
    )
    kept.drop("Again", "Again.md")
    kept.once()
    assert git(kept.root, "show", "HEAD:Notes/later.md") == "the word is plugh"
    assert (
        git(kept.root, "ls-tree", "--name-only", "HEAD", "Notes/")
        == "Notes/later.md\nNotes/note 0.md\nNotes/note 2.md"
    )
    assert git(kept.root, "status", "--porcelain") == ""
    (kept.root / "Notes/after.md").write_text("written after the plan, xyzzy\n")
    kept.approve("again")
    kept.once()
    assert [row["entity_id"] for row in kept.rows("execution.completed")] == ["say-hello", "again"]
    assert all(row["metadata"]["ok"] for row in kept.rows("tool.called")), "both notes were read"
    assert {row["metadata"]["verdict"] for row in kept.rows("plan.drifted")} <= {
        "changed elsewhere"
    }
    assert len(kept.rows("git.snapshotted")) >= 2


def test_note_deleted_during_snapshot_fails_no_work(
    kept: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = kept.root / "Notes/.saved by an editor.tmp"

    def looked(repo: Any, changes: Any) -> Any:
        going.unlink(missing_ok=True)  # renamed over the note: git has just listed it
        return changes

    monkeypatch.setattr("placet.git.vault_history.without_large", looked)
    (kept.root / "Notes/later.md").write_text("later\n")
    kept.drop("Again", "Again.md")
    to_hello(kept, path="again.txt")
    with meddling():
        going.write_text("half")
        kept.once()
        going.write_text("half")
        kept.approve("again")
        kept.once()
    assert kept.actions().count("execution.completed") == 2
    assert not kept.rows("plan.failed")
    assert git(kept.root, "show", "HEAD:Notes/later.md") == "later"
    assert "editor" not in git(kept.root, "ls-tree", "-r", "--name-only", "HEAD")


def test_note_deleted_during_first_commit_fails_no_work(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    from placet.git import vault_history

    notes(vault.root, 3)
    split = vault_history.without_large

    def looked(repo: Any, found: Any) -> Any:
        (vault.root / "Notes/note 1.md").unlink(missing_ok=True)
        return split(repo, found)

    monkeypatch.setattr(vault_history, "without_large", looked)
    planned(vault)
    assert vault.plan().exists()
    assert "note 1" not in git(vault.root, "ls-tree", "-r", "--name-only", "HEAD")


def test_report_of_other_mission_causes_no_drift(kept: TestVault) -> None:
    to_hello(kept, path="two.txt", scope={"write": ["**"]})
    kept.drop("One", "One.md")
    kept.drop("Two", "Two.md")
    kept.once()
    for ident in ("one", "two"):
        kept.approve(ident)
        kept.once()
    assert len(kept.rows("execution.completed")) == 3


def test_unchanged_vault_gets_no_commit(kept: TestVault) -> None:
    kept.drop("Again", "Again.md")
    kept.once()
    before = git(kept.root, "rev-parse", "HEAD")
    assert git(kept.root, "log", "--format=%s", "-1") == "Notes as people left them", (
        "the report of the first mission"
    )
    kept.drop("Once more", "Once more.md")
    kept.once()
    assert git(kept.root, "rev-parse", "HEAD") == before


def test_error_leaves_no_index_lock(tmp_path: Path) -> None:
    kept = make_vault(tmp_path)
    carried_out(kept)
    lock, real = kept.root / ".git/index.lock", Path.read_bytes

    def full_disk(self: Path) -> bytes:
        if self.name == "vault.index" and lock.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self)

    (kept.root / "Home.md").write_text("changed\n")
    repo, index = open_repo(kept.root), kept.site.state.folder / "vault.index"
    with patch.object(Path, "read_bytes", full_disk), pytest.raises(OSError, match="No space"):
        keep_notes(repo, index, datetime.now(UTC))
    assert not lock.exists()
    keep_notes(repo, index, datetime.now(UTC))
    assert git(kept.root, "status", "--porcelain") == ""


def test_foreign_index_lock_delays_only_index_update(
    kept: TestVault,
) -> None:
    lock, index = kept.root / ".git/index.lock", kept.root / ".git/index"
    lock.write_bytes(b"")
    was = index.read_bytes()
    (kept.root / "Notes/later.md").write_text("later\n")
    kept.drop("Again", "Again.md")
    kept.once()
    assert git(kept.root, "show", "HEAD:Notes/later.md") == "later"
    assert (lock.read_bytes(), index.read_bytes()) == (b"", was)
    lock.unlink()
    kept.drop("Once more", "Once more.md")
    kept.once()
    assert git(kept.root, "status", "--porcelain") == ""


@pytest.mark.parametrize("damage", [b"", b"not an index", b"DIRC\0\0\0\2\0\0\0\1" + b"\0" * 40])
@pytest.mark.thinned(2)
def test_damaged_private_index_is_rebuilt(kept: TestVault, damage: bytes) -> None:
    (own,) = kept.state.glob("*/vault.index")
    own.write_bytes(damage)
    (kept.root / "Notes/later.md").write_text("later\n")
    (kept.root / "Notes/note 1.md").unlink()
    kept.drop("Again", "Again.md")
    kept.once()
    assert git(kept.root, "show", "HEAD:Notes/later.md") == "later"
    assert (
        git(kept.root, "ls-tree", "--name-only", "HEAD", "Notes/")
        == "Notes/later.md\nNotes/note 0.md\nNotes/note 2.md"
    )
    assert git(kept.root, "status", "--porcelain") == ""
    assert kept.plan("again").exists()


def test_staged_changes_suspend_vault_history(kept: TestVault) -> None:
    (kept.root / "Notes/later.md").write_text("staged\n")
    git(kept.root, "add", "Notes/later.md")
    (kept.root / "Notes/later.md").write_text("and more\n")
    index, before = (kept.root / ".git/index").read_bytes(), git(kept.root, "rev-parse", "HEAD")
    kept.drop("Again", "Again.md")
    kept.once()
    assert (kept.root / ".git/index").read_bytes() == index
    assert git(kept.root, "rev-parse", "HEAD") == before


def test_history_continues_from_users_commits(kept: TestVault) -> None:
    (kept.root / "Notes/note 0.md").write_text("committed\n")
    git(kept.root, "commit", "-qam", "By hand")
    (kept.root / "Notes/note 0.md").write_text("and changed again\n")
    kept.drop("Again", "Again.md")
    kept.once()
    assert git(kept.root, "log", "--format=%s", "-2") == "Notes as people left them\nBy hand"
    assert git(kept.root, "show", "HEAD:Notes/note 0.md") == "and changed again"
    assert git(kept.root, "status", "--porcelain") == ""


def test_users_own_repository_gets_no_history_commits(vault: TestVault) -> None:
    git(vault.root, "init", "-q")
    git(vault.root, "commit", "-q", "--allow-empty", "-m", "Begin")
    notes(vault.root, 3)
    to_hello(vault)
    vault.drop("Say hello")
    vault.once()
    assert git(vault.root, "log", "--format=%s") == "Begin"


def test_merge_needs_no_git_knowledge(kept: TestVault) -> None:
    (kept.root / "Notes/note 0.md").write_text("changed meanwhile\n")
    (kept.root / "Notes/new.md").write_text("new\n")
    picture = kept.root / "Notes/photo.png"
    picture.write_bytes(b"\x89PNG")
    kept.click("merge", "say-hello")
    assert (kept.root / "hello.txt").read_text() == "hi\n"
    assert (kept.root / "Notes/note 0.md").read_text() == "changed meanwhile\n"
    (kept.root / "Notes/new.md").write_text("newer\n")
    kept.click("undo", "say-hello", "--yes")
    assert not (kept.root / "hello.txt").exists()
    assert (kept.root / "Notes/new.md").read_text() == "newer\n"
    assert picture.read_bytes() == b"\x89PNG"
    assert "photo.png" not in git(kept.root, "log", "--name-only")
    assert git(kept.root, "status", "--porcelain") == ""


@pytest.mark.parametrize("damage", [b"", b"not an index", b"DIRC\0\0\0\x09" + b"\0" * 44])
@pytest.mark.thinned(2)
def test_damaged_index_error_names_repair_command(kept: TestVault, damage: bytes) -> None:
    (kept.root / ".git/index").write_bytes(damage)
    (kept.root / "Notes/note 0.md").write_text("changed meanwhile\n")
    done = kept.click("merge", "say-hello", check=False)
    assert done.returncode == 1
    assert f"{kept.root / '.git/index'} is damaged" in done.stderr
    _, _, command = done.stderr.strip().rpartition("make it again: ")
    assert (kept.root / "Notes/note 0.md").read_text() == "changed meanwhile\n"
    subprocess.run(["sh", "-c", command], check=True)
    kept.click("merge", "say-hello")
    assert (kept.root / "hello.txt").read_text() == "hi\n"
    assert (kept.root / "Notes/note 0.md").read_text() == "changed meanwhile\n"
    assert git(kept.root, "status", "--porcelain") == ""


def test_merge_conflict_names_note_and_changes_nothing(kept: TestVault) -> None:
    (kept.root / "hello.txt").write_text("my own hello\n")
    done = kept.click("merge", "say-hello", check=False)
    assert done.returncode == 1
    assert "You and the mission both changed hello.txt." in done.stderr
    assert (kept.root / "hello.txt").read_text() == "my own hello\n"
    assert git(kept.root, "status", "--porcelain") == ""


def test_a_conflict_ends_by_retry(vault: TestVault) -> None:
    vault.configure("[vault]\nhistory = true\n")
    (vault.root / "list.txt").write_text("one\ntwo\nthree\n")
    to_hello(vault, "one\nthree\n", "list.txt")
    vault.drop("Say hello")
    vault.once()
    vault.approve()
    vault.once()
    (vault.root / "list.txt").write_text("one\ntwo and a half\nthree\n")
    done = vault.click("merge", "say-hello", check=False)
    assert done.returncode == 1
    assert (
        "Or have it planned again for the notes of today: placet retry say-hello\n" in done.stderr
    )
    vault.click("retry", "say-hello")
    vault.once()
    assert "on the new branch `feat/say-hello-" in vault.plan().read_text()


def test_file_in_place_of_mission_folder_is_conflict(
    vault: TestVault,
) -> None:
    carried_out(vault, path="sub/hello.txt")
    (vault.root / "sub").write_text("mine\n")
    done = vault.click("merge", "say-hello", check=False)
    assert done.returncode == 1
    assert "You and the mission both changed sub." in done.stderr
    assert "~" not in done.stderr
    assert (vault.root / "sub").read_text() == "mine\n"


def test_full_disk_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "4m") as disk:
        vault = replace(make_vault(disk), state=tmp_path / "state")
        vault.configure("[vault]\nhistory = true\n")
        to_hello(vault)
        vault.drop("Say hello")
        vault.once()
        vault.approve()
        vault.once()
        config = (vault.root / "System/placet.toml").read_bytes()
        fill_up(disk / "fill")
        done = vault.click("merge", "say-hello", check=False)
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        assert "Free some space, then try again." in done.stderr
        done = vault.click("config", "set", "vault.history", "false", check=False)
        assert (
            f"{vault.root / 'System/placet.toml'} cannot be written: No space left on device.\n"
            "  Free some space" in done.stderr
        )
        assert (vault.root / "System/placet.toml").read_bytes() == config
        assert not (vault.root / "hello.txt").exists()
        (disk / "fill").unlink()
        vault.click("merge", "say-hello")
        assert (vault.root / "hello.txt").read_text() == "hi\n"


def test_writing_attachment_is_refused_as_ignored_file(vault: TestVault) -> None:
    planned(vault, path="Notes/data.bin")
    assert (
        "`Notes/data.bin` is left out of this vault's history by `.git/info/exclude:"
        in vault.plan().read_text()
    )
    vault.approve()
    vault.once()
    refused = vault.rows("tool.refused")
    assert [row["metadata"]["error_type"] for row in refused][:1] == ["ignored_file"]
    assert vault.rows("execution.completed") == []


# --- what git cannot add


def test_temporary_file_of_placet_is_never_committed(vault: TestVault) -> None:
    notes(vault.root, 2)
    vault.configure("[vault]\nhistory = true\n")
    half = vault.root / "Notes/.placet-tmp-0123456789abcdef"
    half.write_text("half")
    to_hello(vault)
    vault.drop("Say hello")
    vault.once()
    (vault.root / "Notes/more.md").write_text("more")
    vault.approve()
    vault.once()
    assert len(vault.rows("git.snapshotted")) >= 1
    assert "Notes/more.md" in git(vault.root, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
    assert ".placet-tmp" not in git(vault.root, "log", "--all", "--name-only", "--format=")
    assert half.exists(), "it may be somebody's who writes now"


@pytest.mark.parametrize("when", ["before", "after", "after, a known one"])
@pytest.mark.thinned(2)
def test_unaddable_note_is_skipped_and_reported_once(vault: TestVault, when: str) -> None:
    notes(vault.root, 5)
    vault.configure("[vault]\nhistory = true\n")
    to_hello(vault)
    vault.drop("Say hello")
    if when == "after, a known one":
        (vault.root / "Notes/odd.md").write_text("before\n")
    if when != "before":
        vault.once()
        vault.approve()
    (vault.root / ".gitattributes").write_text("Notes/odd.md working-tree-encoding=UTF-16\n")
    (vault.root / "Notes/odd.md").write_text("no byte order mark\n")
    (vault.root / "Notes/new.md").write_text("new\n")
    said = vault.once()
    if when == "before":
        vault.approve()
        vault.once()
    assert said.count("Notes/odd.md") == 1, said
    assert "working-tree-encoding" in said
    assert vault.actions().count("execution.completed") == 1
    kept = git(vault.root, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
    assert "Notes/new.md" in kept
    assert ("Notes/odd.md" in kept) == (when == "after, a known one")
    assert "Notes/odd.md" not in kept or git(vault.root, "show", "HEAD:Notes/odd.md") == "before"
    (vault.root / ".gitattributes").unlink()
    vault.drop("Say hello", "Again.md")
    vault.once()
    assert git(vault.root, "show", "HEAD:Notes/odd.md") == "no byte order mark", "mended"


def test_report_explains_merge_without_git_terms(vault: TestVault) -> None:
    planned(vault)
    plan = vault.plan().read_text()
    assert "argv" not in plan
    assert "globs" not in plan
    vault.approve()
    vault.once()
    report = vault.reports()[0].read_text()
    assert "| `hello.txt` | new |" in report
    assert "Your notes had not changed." in report
    assert "placet merge say-hello    # merge it into your notes" in report
    said = vault.click("merge", "say-hello").stderr
    assert "your notes have it now" in said
    assert "hooks" not in said
