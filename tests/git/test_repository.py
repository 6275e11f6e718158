"""Test worktrees, branches and merges of missions with real git.

Each repository made with `person` is compared byte for byte before and after each test.
"""

from __future__ import annotations

import errno
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitkit import commit_all, commit_changes, fingerprint, git, make_repo, write
from placet.disk.files import FileLock, delete_tree
from placet.errors import Interrupted, PlacetError, ToolError, UserError, passing
from placet.git import (
    checkout,
    checkpoint,
    fate,
    history,
    index,
    removal,
    repository,
    vault_history,
    worktree,
)
from placet.git import commit as committing
from placet.git import run as runner
from placet.git.changes import status
from placet.git.commit_message import commit_message
from placet.git.pins import Pins, pins

WHEN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TRACE = "550e8400-e29b-41d4-a716-446655440000"
BOB = runner.Author("Bob Bot", "bob@example.org")


def check_pins(wt: worktree.Worktree, pinned: Pins) -> None:
    with committing.writing(wt) as held:
        held.check_pins(pinned)


MESSAGE = commit_message("Write a file", "Because.", TRACE, "sha256:abc", "ann")


class People:
    """The persons' repositories of one test, each with what it looked like when the test handed it
    over.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.seen: dict[Path, dict[str, object]] = {}

    def __call__(self, files: dict[str, str | bytes] | None = None, name: str = "theirs") -> Path:
        return self.look(make_repo(self.root / name, files))

    def look(self, path: Path) -> Path:
        """Take the repository as it is now: the test itself has just changed it, as a person would."""
        self.seen[path] = fingerprint(path)
        return path


@pytest.fixture(autouse=True)
def person(tmp_path: Path, home: None) -> Iterator[People]:
    people = People(tmp_path)
    yield people
    for path, before in people.seen.items():
        assert fingerprint(path) == before


def start(
    path: Path, tmp_path: Path, name: str = "deadbeef", on_call: runner.OnCall | None = None
) -> worktree.Worktree:
    repo = repository.open_repo(path, on_call=on_call)
    return worktree.add_worktree(
        repo, tmp_path / "state/worktrees" / name, f"feat/fix-{name}", repository.head(repo)
    )


def paths(changes: list[runner.FileChange]) -> list[tuple[str, str]]:
    return [(change.status, change.path) for change in changes]


# --- opening


def test_open_names_the_folders(person: People, tmp_path: Path) -> None:
    path = person()
    (tmp_path / "alias").symlink_to(path)
    repo = repository.open_repo(tmp_path / "alias")
    assert (repo.path, repo.git_dir, repo.common_dir) == (path, path / ".git", path / ".git")
    assert (repo.is_bare, repo.is_shallow) == (False, False)
    assert repository.head(repo) == git(path, "rev-parse", "HEAD")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ENOTCONN, errno.ESTALE])
def test_unreadable_folder_is_not_a_repository(
    person: People, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = person()

    def refuse(*_: object, **__: object) -> os.stat_result:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse)
        patch.setattr(os, "lstat", refuse)
        assert not repository.is_repository(path)
        assert repository.common_dir_at(path) in (None, path)


def test_lock_in_git_folder_blocks_nothing(person: People, tmp_path: Path) -> None:
    """A command in the sandbox may open the git folder, and lock it."""
    repo = repository.open_repo(person())
    with FileLock(repo.common_dir, 0, make=False):
        worktree.add_worktree(repo, tmp_path / "wt", "feat/x", repository.head(repo))


def test_waiting_for_the_lock_is_said(person: People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "SAY_AFTER_S", 0.05)
    repo, said = repository.open_repo(person()), queue.SimpleQueue[str]()

    def second() -> None:
        with repository.one_at_a_time(repo, said.put):
            pass

    waiting = threading.Thread(target=second)
    with repository.one_at_a_time(repo):
        waiting.start()
        assert str(repo.path) in said.get(timeout=30)
    waiting.join(30)
    assert said.empty()


def test_unusable_repository_is_refused(person: People, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert not repository.is_repository(tmp_path / "plain")
    with pytest.raises(UserError, match="not a git repository"):
        repository.open_repo(tmp_path / "plain")
    path = person({"notes/a.md": "a"})
    assert repository.is_repository(path)
    assert not repository.is_repository(path / "notes")
    with pytest.raises(UserError, match="is inside the one at"):
        repository.open_repo(path / "notes")
    for broken in (tmp_path / "broken", path / "broken"):
        (broken / ".git").mkdir(parents=True)
        with pytest.raises(UserError, match="does not accept"):
            repository.open_repo(broken)
    person.look(path)
    made = make_repo(tmp_path / "reftable")
    # as newer versions of git keep references, for all of its worktrees in another way
    (made / ".git/reftable").mkdir()
    with pytest.raises(UserError, match="reftable") as caught:
        repository.open_repo(made)
    assert "refs migrate" in caught.value.hint


def test_a_foreign_owner_is_refused(person: People, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    path = make_repo(tmp_path / "foreign")
    for where, folders, files in os.walk(path):
        for name in (".", *folders, *files):
            os.chown(Path(where, name), 12_345, 12_345)
    with pytest.raises(UserError, match="dubious ownership") as caught:
        repository.open_repo(path)
    assert "chown -R" in caught.value.hint
    assert "safe.directory" in caught.value.what


def test_remedy_for_missing_commit_works_in_empty_folder(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "empty", {})
    git(path, "update-ref", "-d", "HEAD")
    error = repository.no_commit(repository.open_repo(path))
    told = error.hint.removeprefix("Make the first one: ")
    subprocess.run(["sh", "-ec", told], check=True, capture_output=True)
    assert git(path, "log", "--format=%s") == "Begin"


def test_core_worktree_elsewhere_is_refused(person: People, tmp_path: Path) -> None:
    path = person()
    (tmp_path / "elsewhere").mkdir()
    git(path, "config", "core.worktree", str(tmp_path / "elsewhere"))
    with pytest.raises(UserError, match="is elsewhere"):
        repository.open_repo(person.look(path))


@pytest.mark.parametrize(
    "name",
    [
        "worktrees",
        "refs/heads/feat",
        "refs/placet",
        "refs/placet/ckpt",
        "logs/refs/heads/feat",
        "logs/refs/placet/failed",
    ],
)
@pytest.mark.parametrize("there", [True, False], ids=["whole", "dangling"])
def test_symlink_inside_git_directory_is_refused(
    person: People,
    tmp_path: Path,
    name: str,
    *,
    there: bool,
) -> None:
    path, outside = person(), tmp_path / "outside"
    if there:
        outside.mkdir()
    (path / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
    (path / ".git" / name).symlink_to(outside)
    person.look(path)
    with pytest.raises(UserError, match="symbolic link"):
        repository.open_repo(path)
    assert outside.exists() == there
    (path / ".git" / name).unlink()


def test_missing_or_old_git_is_reported(
    person: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = person()
    before = os.environ["PATH"]
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "env").symlink_to(shutil.which("env") or "")
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(UserError, match="git is not installed"):
        repository.open_repo(path)
    write(programs, {"git": "#!/bin/sh\necho git version 2.25.1\n"})
    (programs / "git").chmod(0o755)
    runner.program_on.cache_clear()
    with pytest.raises(UserError, match=r"too old: git version 2\.25\.1"):
        repository.open_repo(path)
    write(programs, {"git": "#!/bin/sh\n"})
    runner.program_on.cache_clear()
    with pytest.raises(UserError, match="git does not say its version"):
        repository.open_repo(path)
    monkeypatch.setenv("PATH", before)
    runner.program_on.cache_clear()


@pytest.mark.parametrize("asked", ["version", "rev-parse"])
@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("kill -9 $$", "it was killed by signal 9"),
        ("echo 'fatal: write failure: No space left on device' >&2; exit 128", "No space left"),
        (
            "echo 'fatal: cannot fork() for pack-objects: Resource temporarily unavailable' >&2; "
            "exit 128",
            "Resource temporarily",
        ),
    ],
)
def test_killed_git_is_a_retryable_fault(
    person: People,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    end: str,
    cause: str,
) -> None:
    path, real = person(), shutil.which("git")
    write(
        tmp_path / "bin",
        {"git": f'#!/bin/sh\ncase "$*" in *{asked}*) {end};; esac\nexec {real} "$@"\n'},
    )
    (tmp_path / "bin/git").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
        runner.program_on.cache_clear()
        with pytest.raises(PlacetError, match=cause) as raised:
            repository.open_repo(path)
        assert passing(raised.value)
    runner.program_on.cache_clear()
    repository.open_repo(path)


def test_work_on_a_repository_imports_no_gitpython(person: People) -> None:
    """It costs a daemon 2.8 MB; only `placet doctor` asks it something."""
    path = person({"a": "a\n"})
    code = (
        "import sys; from pathlib import Path; from placet.git.repository import open_repo\n"
        "open_repo(Path(sys.argv[1])); print('git' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_repository_without_commit_is_refused_unchanged(person: People, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.mkdir()
    git(path, "init", "-q")
    person.look(path)
    repo = repository.open_repo(path)
    with pytest.raises(UserError, match="has no commit yet"):
        repository.head(repo)
    assert repository.resolve(repo, "HEAD") is None
    assert repository.notes(repo) == ["There is no commit yet."]
    assert repository.all_refs(repo).default == ""


def test_names_are_never_options(person: People, tmp_path: Path) -> None:
    path = person()
    sha = git(path, "rev-parse", "HEAD")
    git(path, "update-ref", "refs/heads/--upload-pack=evil", sha)
    git(path, "symbolic-ref", "HEAD", "refs/heads/--upload-pack=evil")
    git(path, "update-ref", "-d", "refs/heads/main")
    repo = repository.open_repo(person.look(path))
    assert repository.resolve(repo, "--upload-pack=evil") == sha
    assert repository.resolve(repo, "--help") is None
    assert repository.all_refs(repo).default == "--upload-pack=evil"
    wt = start(path, tmp_path)
    assert history.ahead_behind(repo, wt.branch, repository.all_refs(repo).default) == (0, 0)
    for name in ("--orphan", "-b", "/x", "../x"):
        with pytest.raises(ValueError, match="not a branch"):
            worktree.add_worktree(repo, tmp_path / "w", name, sha)
    with pytest.raises(ValueError, match="not a branch"):
        worktree.add_worktree(repo, tmp_path / "w", "feat/x", "--detach")


def test_identity_is_users_or_bot(person: People, tmp_path: Path) -> None:
    path = person()
    assert repository.identity(repository.open_repo(path)) == runner.Author(
        "Ann Person", "ann@example.org"
    )
    git(path, "config", "user.name", "Ann Elsewhere")
    assert repository.identity(repository.open_repo(person.look(path))).name == "Ann Elsewhere"
    (tmp_path / "home/.gitconfig").unlink()
    assert repository.identity(repository.open_repo(path)) == runner.BOT
    with pytest.raises(ValueError, match="not a name"):
        runner.Author("a <b>", "c@d")


def test_default_branch(person: People, tmp_path: Path) -> None:
    path = person()
    git(path, "checkout", "-q", "-b", "topic")
    repo = repository.open_repo(person.look(path))
    assert repository.all_refs(repo).default == "main"
    git(path, "branch", "-q", "trunk")
    git(path, "update-ref", "refs/remotes/origin/trunk", "HEAD")
    git(path, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    person.look(path)
    assert repository.all_refs(repo).default == "trunk"
    git(path, "symbolic-ref", "-d", "refs/remotes/origin/HEAD")
    git(path, "branch", "-q", "-D", "main", "trunk")
    person.look(path)
    assert repository.all_refs(repo).default == "topic"


def test_dirty_paths_are_listed_without_refreshing_index(person: People, tmp_path: Path) -> None:
    path = person({"a": "1", "b c": "2", "d": "3", ".gitignore": "*.log\n"})
    write(path, {"a": "changed", "new/x": "n", "new/y": "n", "z.log": "ignored"})
    (path / "d").unlink()
    os.utime(path / "b c", (1, 1))
    person.look(path)
    repo = repository.open_repo(path)
    assert repository.dirty_paths(repo) == ["a", "d", "new/"]
    assert repository.dirty_paths(repo)[:1] == ["a"]


# --- a mission from end to end


def test_mission_leaves_only_a_branch(person: People, tmp_path: Path) -> None:
    path = person({"a.txt": "a\n", "old": "o\n"})
    base = git(path, "rev-parse", "HEAD")
    calls: list[runner.GitCall] = []
    wt = start(path, tmp_path, on_call=calls.append)
    assert f"{wt.path} {base[:7]} [feat/fix-deadbeef]" in " ".join(
        git(path, "worktree", "list").split()
    )
    assert status(wt) == []
    write(wt.path, {"a.txt": "b\n", "sub/new file\n": b"\0\xff"})
    (wt.path / "old").unlink()
    assert paths(status(wt)) == [("M", "a.txt"), ("D", "old"), ("A", "sub/new file\n")]
    sha = commit_changes(wt, MESSAGE, BOB, WHEN)
    assert sha is not None
    assert git(path, "rev-parse", "feat/fix-deadbeef") == sha
    assert git(path, "log", "-1", "--format=%an <%ae>|%cn|%ct|%P", sha) == (
        f"Bob Bot <bob@example.org>|Bob Bot|{int(WHEN.timestamp())}|{base}"
    )
    assert commit_changes(wt, MESSAGE, BOB, WHEN) is None
    assert history.changes(wt.repo, base, sha) == [
        runner.FileChange("a.txt", "M", 1, 1),
        runner.FileChange("old", "D", 0, 1),
        runner.FileChange("sub/new file\n", "A", None, None),
    ]
    (made,) = history.log(wt.repo, sha, f"^{base}")
    assert (made.sha, made.parents, made.subject, made.author) == (
        sha,
        (base,),
        "Write a file",
        "Bob Bot",
    )
    assert history.ahead_behind(wt.repo, wt.branch, "main") == (1, 0)
    removal.remove_worktree(wt)
    removal.remove_worktree(wt)
    assert not wt.path.exists()
    assert list((tmp_path / "state/worktrees").iterdir()) == []
    assert not (path / ".git/worktrees").exists()
    assert git(path, "rev-parse", "feat/fix-deadbeef") == sha
    assert git(path, "fsck", "--strict") == ""
    assert {call.argv[0] for call in calls} >= {"status", "read-tree", "update-ref"}
    assert not any("hooksPath" in word for call in calls for word in call.argv)
    assert all(call.duration_ms > 0 for call in calls)


def test_a_mission_takes_few_git_processes(
    person: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirteen and seven for each commit, however deep it is.

    Counted where they start: by a `git` that is first on PATH.
    """
    path = person({"deep/down/here/a.txt": "a\n", "b.txt": "b\n"})
    log, real = tmp_path / "started", shutil.which("git")
    write(tmp_path / "bin", {"git": f'#!/bin/sh\necho "$*" >> {log}\nexec {real} "$@"\n'})
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    repository.open_repo(path)  # the first call of all asks git for its version
    log.unlink()
    for commits in (1, 4):
        repo = repository.open_repo(path)
        at = tmp_path / f"state/worktrees/{commits:08}"
        branch = repository.all_refs(repo).free_branch("fix", at.name, WHEN)
        wt = worktree.add_worktree(repo, at, branch, repository.head(repo))
        for n in range(commits):
            write(wt.path, {"deep/down/here/a.txt": f"{n}\n", f"new/{n}.txt": "x"})
            commit_changes(wt, MESSAGE, repository.identity(repo), WHEN)
        removal.remove_worktree(wt)
        started = log.read_text().splitlines()
        assert len(started) <= 13 + 7 * commits, started
        assert len(git(path, "log", "--format=%H", f"main..{branch}").splitlines()) == commits
        log.unlink()
    assert git(path, "fsck", "--strict", "--no-dangling") == ""


def test_changed_git_configuration_is_reread(person: People, tmp_path: Path) -> None:
    path = make_repo(tmp_path / "mine")
    assert repository.identity(repository.open_repo(path)).name == "Ann Person"
    write(path.parent, {"included": "[user]\n\tname = Dora\n"})
    config(path, **{"include.path": str(path.parent / "included")})
    repo = repository.open_repo(path)
    assert repository.identity(repo).name == "Dora"
    wt = worktree.add_worktree(repo, tmp_path / "state/deadbeef", "feat/x", repository.head(repo))
    # A driver that came meanwhile is switched off too: each piece of work asks what is configured.
    write(
        path.parent,
        {"included": f'[filter "spy"]\n\tclean = touch {tmp_path}/ran; cat\n\trequired\n'},
    )
    write(wt.path, {".gitattributes": "* filter=spy\n", "a": "x\n"})
    assert status(wt) != []
    assert commit_changes(wt, MESSAGE, BOB, WHEN) is not None
    assert not (tmp_path / "ran").exists()


def test_only_the_named_paths_are_committed(person: People, tmp_path: Path) -> None:
    wt = start(person({"a": "1", "dir/b": "1"}), tmp_path)
    write(wt.path, {"a": "2", "dir/b": "2", "dir/c": "2", "directory": "2"})
    sha = commit_changes(
        wt, MESSAGE, BOB, WHEN, choose=lambda found: [p for p in found if p.startswith("dir/")]
    )
    assert sha is not None
    assert paths(history.changes(wt.repo, wt.base, sha)) == [("M", "dir/b"), ("A", "dir/c")]
    assert paths(status(wt)) == [("M", "a"), ("A", "directory")]
    assert commit_changes(wt, MESSAGE, BOB, WHEN, choose=lambda _: ["nothing"]) is None


@pytest.mark.parametrize(
    ("before", "now", "chosen", "more"),
    [
        ({"tests/a": "1", "tests/b": "1"}, {"tests": "x"}, ["tests"], ["tests/a", "tests/b"]),
        ({"LICENSE": "1"}, {"LICENSE/x": "x"}, ["LICENSE/x"], ["LICENSE"]),
        ({"deep/tests/a": "1"}, {"deep": "x"}, ["deep"], ["deep/tests/a"]),
    ],
)
def test_commit_deletes_only_chosen_paths(
    person: People,
    tmp_path: Path,
    before: dict[str, str],
    now: dict[str, str],
    chosen: list[str],
    more: list[str],
) -> None:
    wt = start(person({"a": "1", **before}), tmp_path)
    shutil.rmtree(wt.path / Path(*Path(next(iter(before))).parts[:1]), ignore_errors=True)
    (wt.path / "LICENSE").unlink(missing_ok=True)
    write(wt.path, now)
    with pytest.raises(ToolError, match="would also change or delete") as caught:
        commit_changes(wt, MESSAGE, BOB, WHEN, choose=lambda _: chosen)
    assert (caught.value.error_type, caught.value.refused, caught.value.details["paths"]) == (
        "outside_scope",
        True,
        more,
    )
    assert history.log(wt.repo, wt.ref, f"^{wt.base}") == []
    # what is said to go may go
    sha = commit_changes(wt, MESSAGE, BOB, WHEN, choose=lambda _: [*chosen, *more])
    assert sha is not None
    assert {c.path for c in history.changes(wt.repo, wt.base, sha)} == {*chosen, *more}


def test_next_commit_ignores_files_staged_by_killed_one(person: People, tmp_path: Path) -> None:
    wt = start(person({"a": "1", "b": "1"}), tmp_path)
    write(wt.path, {"a": "2", "b": "2", "c": "2"})
    git(wt.path, "add", "-A")
    (wt.path / "c").unlink()
    sha = commit_changes(wt, MESSAGE, BOB, WHEN, choose=lambda _: ["b"])
    assert sha is not None
    assert paths(history.changes(wt.repo, wt.base, sha)) == [("M", "b")]
    write(wt.path, {"a": "3"})
    git(wt.path, "add", "-A")
    write(wt.path, {"a": "1"})
    assert commit_changes(wt, MESSAGE, BOB, WHEN) is None


NAMES = [
    b"with space",
    b"new\nline",
    b"tab\there",
    b"\xff\xfe not utf-8",
    "Grüße".encode(),
    b"-dash",
    b":(glob)*",
    b"quote\"'",
    b"star*",
    b"back\\slash",
    b"$HOME",
    b"~",
    b"a=b",
    b"[x]",
]


def test_every_file_name_survives(person: People, tmp_path: Path) -> None:
    wt = start(person({"star1": "not me"}), tmp_path)
    for name in NAMES:
        (wt.path / os.fsdecode(name)).write_bytes(name)
    wanted = sorted(os.fsdecode(name) for name in NAMES)
    assert sorted(change.path for change in status(wt)) == wanted
    one = commit_changes(wt, MESSAGE, BOB, WHEN, choose=lambda _: ["star*"])
    assert one is not None
    assert paths(history.changes(wt.repo, wt.base, one)) == [("A", "star*")]
    write(wt.path, {"star1": "changed"})
    sha = commit_changes(wt, MESSAGE, BOB, WHEN, choose=lambda _: ["star1"])
    assert sha is not None
    sha = commit_changes(wt, MESSAGE, BOB, WHEN)
    assert sha is not None
    assert sorted(change.path for change in history.changes(wt.repo, wt.base, sha)) == sorted(
        [*wanted, "star1"]
    )
    kept = checkpoint.save(wt, "refs/placet/checkpoint/x", "x", WHEN)
    for name in NAMES:
        (wt.path / os.fsdecode(name)).unlink()
    checkpoint.restore(wt, kept)
    assert all((wt.path / os.fsdecode(name)).read_bytes() == name for name in NAMES)


def test_kinds_of_change(person: People, tmp_path: Path) -> None:
    path = person({"file": "1", "dir/x": "1", "run": "#!/bin/sh\n", "gone": "1"})
    wt = start(path, tmp_path)
    (wt.path / "file").unlink()
    (wt.path / "file").symlink_to("/etc/passwd")
    shutil.rmtree(wt.path / "dir")
    (wt.path / "dir").symlink_to(tmp_path)
    (wt.path / "run").chmod(0o755)
    (wt.path / "gone").unlink()
    write(wt.path, {"gone/below": "1"})
    os.mkfifo(wt.path / "pipe")
    expected = {
        ("T", "file"),
        ("D", "dir/x"),
        ("A", "dir"),
        ("M", "run"),
        ("D", "gone"),
        ("A", "gone/below"),
    }
    assert set(paths(status(wt))) == expected
    sha = commit_changes(wt, MESSAGE, BOB, WHEN)
    assert sha is not None
    assert set(paths(history.changes(wt.repo, wt.base, sha))) == expected
    assert status(wt) == []


def test_nested_repository_is_committed_as_files(person: People, tmp_path: Path) -> None:
    wt = start(person(), tmp_path)
    make_repo(wt.path / "inner", {"x": "1", "deep/y": "1"})
    (wt.path / "inner/link").symlink_to("deep")
    expected = [("A", "inner/deep/y"), ("A", "inner/link"), ("A", "inner/x")]
    assert paths(status(wt)) == expected
    sha = commit_changes(wt, MESSAGE, BOB, WHEN)
    assert sha is not None
    assert paths(history.changes(wt.repo, wt.base, sha)) == expected
    assert status(wt) == []
    assert commit_changes(wt, MESSAGE, BOB, WHEN) is None


def test_an_ignored_file_is_not_committed(person: People, tmp_path: Path) -> None:
    wt = start(person({".gitignore": "*.log\nbuild/\n"}), tmp_path)
    write(wt.path, {"a.log": "x", "build/out": "x"})
    assert status(wt) == []
    assert commit_changes(wt, MESSAGE, BOB, WHEN) is None


def test_ignored_file_approved_by_name_is_kept(person: People, tmp_path: Path) -> None:
    path = person({".gitignore": "*.log\nbuild/\n", "kept.log": "1"})
    git(path, "add", "-f", "kept.log")
    git(path, "commit", "-q", "-m", "Kept")
    repo = repository.open_repo(person.look(path))
    by_name = (
        "a.log",
        "kept.log",
        "build/out",
        "build/late",
        "link/x.log",
        ".git",
        ".git/x.log",
        "build",
        "no.log",
        "plain",
    )
    wt = worktree.add_worktree(
        repo, tmp_path / "state/w", "feat/x", repository.head(repo), by_name=by_name
    )
    write(wt.path, {"a.log": "x", "b.log": "x", "build/out": "x", "plain": "x"})
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere", {"x.log": "not ours"})
    (wt.path / "link").symlink_to(tmp_path / "elsewhere")
    expected = [("A", "a.log"), ("A", "build/out"), ("A", "link"), ("A", "plain")]
    assert paths(status(wt)) == expected
    # in another life, too
    assert paths(status(worktree.open_worktree(repo, wt.path, wt.branch, wt.base))) == expected
    kept = checkpoint.save(wt, "refs/placet/ckpt/x", "m", WHEN)
    assert paths(history.changes(repo, wt.base, kept)) == expected
    write(wt.path, {"a.log": "changed", "build/late": "x"})
    checkpoint.restore(wt, kept)
    assert (wt.path / "a.log").read_text() == "x"
    assert not (wt.path / "build/late").exists()
    assert paths(status(wt)) == expected
    sha = commit_changes(wt, MESSAGE, BOB, WHEN)
    assert sha is not None
    assert paths(history.changes(repo, wt.base, sha)) == expected
    assert status(wt) == []
    (wt.path / "a.log").unlink()
    assert paths(status(wt)) == [("D", "a.log")]
    write(wt.path, {"a.log": "x", "build/late": "y"})
    with pytest.raises(removal.WorkNotKept):
        removal.remove_worktree(wt)


# --- branch names


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([], "feat/fix-it-deadbeef"),
        (["feat/fix-it-deadbeef"], "feat/fix-it-deadbeef-20261121120000"),
        (["feat/FIX-it-deadbeef"], "feat/fix-it-deadbeef-20261121120000"),
        (["feat/fix-it-deadbeef/below"], "feat/fix-it-deadbeef-20261121120000"),
        (["feat"], "feat-fix-it-deadbeef"),
        (["feat", "feat-fix-it-deadbeef"], "feat-fix-it-deadbeef-20261121120000"),
        (
            ["feat/fix-it-deadbeef", "feat/fix-it-deadbeef-20261121120000"],
            "feat/fix-it-deadbeef-20261121120000-2",
        ),
    ],
)
def test_a_free_branch_can_be_made(
    person: People, tmp_path: Path, taken: list[str], expected: str
) -> None:
    path = person()
    for name in taken:
        git(path, "branch", name)
    repo = repository.open_repo(person.look(path))
    name = repository.all_refs(repo).free_branch("fix-it", "deadbeef", WHEN)
    assert name == expected
    worktree.add_worktree(repo, tmp_path / "state/w", name, repository.head(repo))
    assert git(path, "rev-parse", name) == repository.head(repo)


# --- worktrees


def test_without_a_branch_it_is_only_read(person: People, tmp_path: Path) -> None:
    path = person({"a": "1"})
    repo = repository.open_repo(path)
    wt = worktree.add_worktree(repo, tmp_path / "state/reading", "", repository.head(repo))
    assert (wt.path / "a").read_text() == "1"
    assert worktree.add_worktree(repo, wt.path, "", wt.base) == wt
    assert worktree.open_worktree(repo, wt.path, "", wt.base) == wt
    write(wt.path, {"a": "2"})
    assert paths(status(wt)) == [("M", "a")]
    with pytest.raises(ValueError, match="only for reading"):
        commit_changes(wt, MESSAGE, BOB, WHEN)
    with pytest.raises(ValueError, match="only for reading"):
        removal.roll_back(wt, "refs/placet/failed/reading-1", "failed", WHEN)
    write(path, {"a": "3"})
    person.look(commit_all(path, "Meanwhile"))
    # where a killed reading left one at an older commit
    wt = worktree.add_worktree(repo, wt.path, "", repository.head(repo))
    assert ((wt.path / "a").read_text(), status(wt)) == ("3", [])
    removal.remove_worktree(wt)
    assert git(path, "for-each-ref", "--format=%(refname)", "refs/heads") == "refs/heads/main"
    assert not (path / ".git/worktrees").exists()


def test_add_again_keeps_the_work(person: People, tmp_path: Path) -> None:
    path = person()
    wt = start(path, tmp_path)
    write(wt.path, {"work": "precious", "README.md": "changed"})
    assert start(path, tmp_path) == wt
    assert worktree.open_worktree(wt.repo, wt.path, wt.branch, wt.base) == wt
    assert paths(status(wt)) == [("M", "README.md"), ("A", "work")]


@pytest.mark.parametrize("lost", ["index", "files", "no head", "branch only", "locks"])
def test_add_worktree_resumes_partial_creation(person: People, tmp_path: Path, lost: str) -> None:
    path = person({"a": "1", "b": "1"})
    wt = start(path, tmp_path)
    admin = wt.git_dir
    match lost:
        case "index":  # killed while checking out
            (admin / "index").rename(admin / "index.lock")
            (wt.path / "b").unlink()
        case "files":  # the folder was deleted before it was checked out
            (admin / "index").unlink()
            shutil.rmtree(wt.path)
        case "no head":  # killed between its pointer and its HEAD
            shutil.rmtree(wt.path)
            (admin / "index").unlink()
            write(admin, {"locked": "initializing", "HEAD": f"{'0' * 40}\n"})
        case "branch only":
            shutil.rmtree(wt.path)
            shutil.rmtree(admin)
        case "locks":
            (admin / "index").unlink()
            write(admin, {"HEAD.lock": "", "index.lock": ""})
            write(path, {".git/refs/heads/feat/fix-deadbeef.lock": ""})
    again = start(path, tmp_path)
    assert again == wt
    assert sorted(entry.name for entry in wt.path.iterdir()) == [".git", "a", "b"]
    assert status(again) == []
    write(again.path, {"a": "2"})
    assert commit_changes(again, MESSAGE, BOB, WHEN) is not None
    listed = [line.split()[0] for line in git(path, "worktree", "list").splitlines()]
    assert listed == [str(path), str(wt.path)]


@pytest.mark.parametrize("lost", ["folder of git", "index"])
@pytest.mark.parametrize("killed", ["", "made", "moved", "deleted"])
def test_half_missing_worktree_keeps_its_files(
    person: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, killed: str
) -> None:
    path = person({"a": "1", "b": "1", "index": "a file"})
    wt = start(path, tmp_path)
    write(wt.path, {"a": "2", "new/work": "precious"})
    (wt.path / "b").unlink()
    if lost == "index":
        (wt.git_dir / "index").unlink()
    else:
        shutil.rmtree(wt.git_dir)

    def again() -> worktree.Worktree:
        return worktree.add_worktree(wt.repo, wt.path, wt.branch, wt.base, resumed=True)

    with monkeypatch.context() as patched:
        if killed == "made":

            def check_out(*_: object) -> None:
                raise Interrupted("killed")

            patched.setattr(worktree, "_check_out", check_out)
        elif killed:
            real = Path.rename

            def rename(self: Path, target: Path) -> Path:
                if self.name.endswith(".rest" if killed == "deleted" else ".git"):
                    if killed == "moved":
                        real(self, target)
                    raise Interrupted("killed")
                return real(self, target)

            patched.setattr(Path, "rename", rename)
        if killed:
            with pytest.raises(Interrupted):
                again()
    found = again()
    assert paths(status(found)) == [("M", "a"), ("D", "b"), ("A", "new/work")]
    assert sorted(one.name for one in wt.path.parent.iterdir() if one.is_dir()) == [wt.path.name]
    assert worktree.open_worktree(found.repo, found.path, found.branch, found.base) == found
    assert commit_changes(found, MESSAGE, BOB, WHEN) is not None


def test_foreign_branch_is_refused(person: People, tmp_path: Path) -> None:
    path = person()
    git(path, "checkout", "-q", "--orphan", "feat/fix-deadbeef")
    commit_all(path, "Other history")
    git(path, "checkout", "-q", "main")
    person.look(path)
    with pytest.raises(runner.RepositoryChanged, match="does not begin at"):
        start(path, tmp_path)


def test_existing_folder_in_place_of_worktree_is_kept(person: People, tmp_path: Path) -> None:
    path = person()
    write(tmp_path / "state/worktrees/deadbeef", {"precious": "1"})
    with pytest.raises(UserError, match="in the way"):
        start(path, tmp_path)
    assert (tmp_path / "state/worktrees/deadbeef/precious").read_text() == "1"


def test_symlink_in_place_of_worktree_is_refused(person: People, tmp_path: Path) -> None:
    path = person()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "state/worktrees").mkdir(parents=True)
    (tmp_path / "state/worktrees/deadbeef").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="symbolic link"):
        start(path, tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_worktree_inside_its_repository_is_refused(person: People, tmp_path: Path) -> None:
    path = person()
    (tmp_path / "outside").symlink_to(path)  # a link that the repository might have brought
    repo = repository.open_repo(path)
    for inside in (path / ".git/x", path / "x", path / "deep/in/x", tmp_path / "outside/x"):
        with pytest.raises(UserError, match="inside its own repository"):
            worktree.add_worktree(repo, inside, "feat/x", repository.head(repo))


def test_same_worktree_name_gets_separate_git_folder(person: People, tmp_path: Path) -> None:
    path = person()
    first = start(path, tmp_path / "one")
    repo = repository.open_repo(path)
    second = worktree.add_worktree(
        repo, tmp_path / "two/state/worktrees/deadbeef", "feat/two", repository.head(repo)
    )
    assert first.git_dir != second.git_dir
    assert worktree.open_worktree(repo, first.path, first.branch, first.base) == first
    assert worktree.open_worktree(repo, second.path, second.branch, second.base) == second


def test_uncommitted_work_is_not_removed(person: People, tmp_path: Path) -> None:
    wt = start(person(), tmp_path)
    write(wt.path, {"work": "precious"})
    with pytest.raises(removal.WorkNotKept, match="work"):
        removal.remove_worktree(wt)
    kept = checkpoint.save(wt, "refs/placet/checkpoint/x", "x", WHEN)
    write(wt.path, {"more": "precious"})
    with pytest.raises(removal.WorkNotKept):
        removal.remove_worktree(wt, kept)
    (wt.path / "more").unlink()
    removal.remove_worktree(wt, kept)
    assert not wt.path.exists()


def test_folders_without_permission_are_removed_too(person: People, tmp_path: Path) -> None:
    wt = start(person({".gitignore": "cache/\n"}), tmp_path)
    write(wt.path, {"cache/mod/x": "1"})
    (wt.path / "cache/mod").chmod(0o500)
    (wt.path / "cache").chmod(0o500)
    removal.remove_worktree(wt)
    assert not wt.path.exists()


def test_removing_does_not_follow_links(person: People, tmp_path: Path) -> None:
    wt = start(person(), tmp_path)
    write(tmp_path / "outside", {"precious": "1"})
    (wt.path / "link").symlink_to(tmp_path / "outside")
    removal.roll_back(wt, "refs/placet/failed/deadbeef-1", "failed", WHEN)
    assert (tmp_path / "outside/precious").read_text() == "1"


def test_concurrent_worktree_removal_disturbs_no_lookup(tmp_path: Path) -> None:
    """Eight missions that end at once take away private directories, and the last one the folder of
    them all.
    """
    repo = repository.open_repo(make_repo(tmp_path / "theirs"))
    folder, ends = repo.common_dir / "worktrees", time.monotonic() + 1.5
    times = {"a": 0, "b": 0}

    def goes_on() -> bool:
        return time.monotonic() < ends or (
            min(times.values()) <= 10 and time.monotonic() < ends + 60
        )

    def come_and_go(name: str) -> None:
        while goes_on():
            with suppress(FileNotFoundError, FileExistsError):  # the other one was in between
                (folder / name).mkdir(parents=True)
            if not (folder / name).exists():
                continue
            (folder / name / "gitdir").write_text("/nowhere/.git\n")
            shutil.rmtree(folder / name)
            with suppress(OSError):
                folder.rmdir()
            times[name] += 1

    with ThreadPoolExecutor() as pool:
        both = [pool.submit(come_and_go, name) for name in times]
        while goes_on():
            assert worktree.registered(repo, tmp_path / "worktree") is None
            assert checkout.where_checked_out(repo, "feat/none") is None
        for each in both:
            each.result()
    assert min(times.values()) > 10


def test_a_worktree_with_folders_hundreds_deep_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "deep"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(3_000):  # a command can make paths that are longer than any call takes
        os.mkdir("in", dir_fd=here)
        below = os.open("in", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (top / "in/link").symlink_to(tmp_path)
    delete_tree(top)
    assert list(tmp_path.iterdir()) == [tmp_path / "home"]


# --- checkpoints and roll-back


def test_checkpoint_holds_all_files_and_changes_nothing(person: People, tmp_path: Path) -> None:
    path = person({"a": "1", "b": "1", ".gitignore": "*.log\n"})
    wt = start(path, tmp_path)
    write(wt.path, {"a": "2", "new/x": "2", "z.log": "ignored"})
    (wt.path / "b").unlink()
    before = status(wt)
    kept = checkpoint.save(wt, "refs/placet/checkpoint/x", "kept", WHEN)
    git(wt.path, "add", "-A")  # as a killed commit leaves it
    assert checkpoint.save(wt, "refs/placet/checkpoint/x", "kept", WHEN) == kept
    git(wt.path, "read-tree", "HEAD")
    index = (wt.git_dir / "index").read_bytes()
    assert checkpoint.save(wt, "refs/placet/checkpoint/x", "kept", WHEN) == kept
    assert (wt.git_dir / "index").read_bytes() == index
    assert status(wt) == before
    assert paths(history.changes(wt.repo, wt.base, kept)) == [
        ("M", "a"),
        ("D", "b"),
        ("A", "new/x"),
    ]
    write(wt.path, {"a": "3", "worse": "3"})
    shutil.rmtree(wt.path / "new")
    make_repo(wt.path / "inner")
    checkpoint.restore(wt, kept)
    assert status(wt) == before
    assert (wt.path / "a").read_text() == "2"
    assert (wt.path / "z.log").read_text() == "ignored"
    assert repository.resolve(wt.repo, wt.branch) == wt.base
    sha = commit_changes(wt, MESSAGE, BOB, WHEN)
    assert checkpoint.save(wt, "refs/placet/checkpoint/x", "kept", WHEN) == sha
    with pytest.raises(ValueError, match="placet's own"):
        checkpoint.save(wt, "refs/heads/main", "x", WHEN)


def test_checkpoint_sees_change_within_timestamp_granularity(
    person: People, tmp_path: Path
) -> None:
    path = person({"a": "1"})
    git(path, "config", "core.trustctime", "false")  # a test can set the other time only
    wt = start(person.look(path), tmp_path)
    past = time.time() - 100
    os.utime(wt.path / "a", (past, past))
    git(wt.path, "update-index", "--refresh")
    write(wt.path, {"a": "2"})
    for file in (wt.path / "a", wt.git_dir / "index"):
        os.utime(file, (past, past))
    kept = checkpoint.save(wt, "refs/placet/checkpoint/x", "x", WHEN)
    assert paths(history.changes(wt.repo, wt.base, kept)) == [("M", "a")]


@pytest.mark.parametrize("killed", ["", "kept", "renamed", "half deleted", "deleted"])
def test_a_failed_attempt_is_rolled_back_and_kept(
    person: People, tmp_path: Path, killed: str
) -> None:
    path = person({"a": "1"})
    wt = start(path, tmp_path)
    write(wt.path, {"a": "2"})
    first = commit_changes(wt, MESSAGE, BOB, WHEN)
    write(wt.path, {"b": "3"})
    ref = "refs/placet/failed/deadbeef-1"
    if killed:
        checkpoint.save(wt, ref, "failed", WHEN)
    if killed in ("renamed", "half deleted", "deleted"):
        wt.path.rename(wt.path.with_name("deadbeef.removed"))
    if killed == "half deleted":
        (wt.path.with_name("deadbeef.removed") / "b").unlink()
    if killed == "deleted":
        shutil.rmtree(wt.path.with_name("deadbeef.removed"))
        shutil.rmtree(wt.git_dir)
    kept = removal.roll_back(wt, ref, "failed", WHEN)
    assert kept is not None
    assert git(path, "rev-parse", ref, f"{ref}^") == f"{kept}\n{first}"
    assert paths(history.changes(wt.repo, wt.base, kept)) == [("M", "a"), ("A", "b")]
    assert repository.resolve(wt.repo, "refs/heads/feat/fix-deadbeef") is None
    assert len(git(path, "worktree", "list").splitlines()) == 1
    assert list((tmp_path / "state/worktrees").iterdir()) == []
    assert removal.roll_back(wt, ref, "failed", WHEN) == kept


def test_roll_back_without_changes_keeps_no_ref(person: People, tmp_path: Path) -> None:
    path = person()
    assert (
        removal.roll_back(start(path, tmp_path), "refs/placet/failed/deadbeef-1", "failed", WHEN)
        is None
    )
    assert git(path, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


@pytest.mark.parametrize("how", ["deleted", "switched"])
def test_roll_back_keeps_work_for_any_branch_state(
    person: People,
    tmp_path: Path,
    how: str,
) -> None:
    path = person({"a": "1"})
    wt = start(path, tmp_path)
    write(wt.path, {"a": "2"})
    sha = commit_changes(wt, MESSAGE, BOB, WHEN)
    write(wt.path, {"b": "3"})
    if how == "deleted":
        git(path, "update-ref", "-d", wt.ref)
    else:
        git(wt.path, "checkout", "-q", "-b", "feat/elsewhere", wt.base)
        write(wt.path, {"a": "2"})
    kept = removal.roll_back(wt, "refs/placet/failed/deadbeef-1", "failed", WHEN)
    assert kept is not None
    assert paths(history.changes(wt.repo, wt.base, kept)) == [("M", "a"), ("A", "b")]
    assert repository.resolve(wt.repo, f"{kept}^") == (wt.base if how == "deleted" else sha)
    assert not wt.path.exists()
    assert repository.resolve(wt.repo, wt.ref) is None


def test_commits_of_a_lost_worktree_are_kept(person: People, tmp_path: Path) -> None:
    wt = start(person(), tmp_path)
    write(wt.path, {"a": "2"})
    sha = commit_changes(wt, MESSAGE, BOB, WHEN)
    shutil.rmtree(wt.path)
    assert removal.roll_back(wt, "refs/placet/failed/deadbeef-1", "failed", WHEN) == sha


# --- somebody else interferes


def test_a_deleted_or_switched_branch_stops_the_mission(person: People, tmp_path: Path) -> None:
    path = person()
    wt = start(path, tmp_path)
    write(wt.path, {"a": "2"})
    git(path, "update-ref", "-d", wt.ref)
    with pytest.raises(runner.RepositoryChanged, match="deleted by another program"):
        commit_changes(wt, MESSAGE, BOB, WHEN)
    git(path, "update-ref", wt.ref, wt.base)
    git(wt.path, "checkout", "-q", "-b", "feat/elsewhere")
    for call in (
        lambda: commit_changes(wt, MESSAGE, BOB, WHEN),
        lambda: status(wt),
        lambda: worktree.open_worktree(wt.repo, wt.path, wt.branch, wt.base),
    ):
        with pytest.raises(runner.RepositoryChanged, match="no longer at feat/fix-deadbeef"):
            call()


@pytest.mark.parametrize(
    "change",
    [
        ".git/config",
        ".git/hooks/post-commit",
        ".git/info/attributes",
        "worktree",
        "gitdir",
        "alternates",
        "mode",
    ],
)
def test_pins_notice(person: People, tmp_path: Path, change: str) -> None:
    path = person()
    write(path, {".git/hooks/pre-commit": "#!/bin/sh\n"})
    wt = start(person.look(path), tmp_path)
    pinned = pins(wt)
    git(path, "config", "branch.main.remote", "origin")
    git(path, "config", "user.name", "New Name")
    person.look(path)
    check_pins(wt, pinned)
    match change:
        case ".git/config":
            git(path, "config", "core.fsmonitor", "evil")
        case "worktree":
            (wt.path / ".git").write_text("gitdir: /tmp/evil\n")
        case "gitdir":
            (wt.git_dir / "commondir").write_text("/tmp/evil\n")
        case "alternates":
            write(path, {".git/objects/info/alternates": "/tmp/evil\n"})
        case "mode":
            (path / ".git/hooks/pre-commit").chmod(0o755)
        case name:
            write(path, {name: "evil"})
    with pytest.raises(runner.RepositoryChanged, match="changed while the mission ran"):
        check_pins(wt, pinned)
    person.look(path)


def test_own_stale_locks_are_removed_users_locks_stay(person: People, tmp_path: Path) -> None:
    path = person()
    wt = start(path, tmp_path)
    ref = "refs/placet/failed/deadbeef-1"
    write(
        path / ".git", {"index.lock": "", "HEAD.lock": "", f"{wt.ref}.lock": "", f"{ref}.lock": ""}
    )
    write(wt.git_dir, {"index.lock": "", "HEAD.lock": ""})
    person.look(path)
    write(wt.path, {"a": "2"})
    with pytest.raises(runner.GitError, match=r"index\.lock"):
        commit_changes(wt, MESSAGE, BOB, WHEN)
    worktree.clear_stale_locks(wt, [ref])
    assert commit_changes(wt, MESSAGE, BOB, WHEN) is not None
    checkpoint.save(wt, ref, "x", WHEN)
    assert sorted(p.name for p in (path / ".git").rglob("*.lock")) == ["HEAD.lock", "index.lock"]
    with pytest.raises(ValueError, match="placet's own"):
        worktree.clear_stale_locks(wt, ["refs/heads/main"])


def test_running_git_of_dead_daemon_is_awaited(
    person: People,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wt, at_work = start(person(), tmp_path), tmp_path / "at work"
    at_work.touch()
    write(
        tmp_path / "bin",
        {
            "git": '#!/bin/sh\nif [ "$1" = version ]; then echo git version 2.39; exit; fi\n'
            f"while [ -e '{at_work}' ]; do sleep 0.02; done > /dev/null 2>&1 &\n",
        },
    )
    (tmp_path / "bin/git").chmod(0o755)
    with monkeypatch.context() as patch, worktree.holding(wt.path) as held:
        place = replace(worktree.git_dir_of_worktree(wt), held=held)
        patch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
        runner.run_git(place, "status")  # leaves something of itself at work
    monkeypatch.setattr(worktree, "CALL_TIMEOUT_S", 0.05)
    with pytest.raises(UserError, match="another git process"), worktree.holding(wt.path):
        pass
    monkeypatch.setattr(worktree, "CALL_TIMEOUT_S", runner.CALL_TIMEOUT_S)
    threading.Timer(0.2, at_work.unlink).start()
    worktree.clear_stale_locks(wt)
    assert not at_work.exists()


def test_a_time_limit_kills_git(person: People, tmp_path: Path) -> None:
    path = person()
    os.mkfifo(tmp_path / "pipe")
    # git waits for somebody to write into it
    git(path, "config", "include.path", str(tmp_path / "pipe"))
    repo = runner.Repo(path, path / ".git", path / ".git", is_bare=False, is_shallow=False)
    with pytest.raises(runner.GitError, match=r"no answer within 0\.2 s"):
        runner.run_git(runner.place_of(repo), "status", timeout_s=0.2)
    (path / ".git/config").write_text("[core]\n\trepositoryformatversion = 0\n")
    person.look(path)


# --- reading


def test_a_diff_is_cut_and_says_so(
    person: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = person({"a": "1\n"})
    base = git(path, "rev-parse", "HEAD")
    write(path, {"a": "ü\n" * 4000, "latin": b"\xe9t\xe9\n"})
    commit_all(path, "More")
    repo = repository.open_repo(person.look(path))
    whole = history.diff_text(repo, base, "HEAD")
    assert "+ü" in whole
    assert "+\ufffdt\ufffd" in whole
    monkeypatch.setattr(history, "_MAX_SHOWN_BYTES", 1001)
    cut = history.diff_text(repo, base, "HEAD")
    assert len(cut.encode()) < 1100
    assert cut.endswith("… (cut after 1001 bytes)\n")


def test_a_merge_is_foreseen(person: People, tmp_path: Path) -> None:
    path = person({"same": "1\n", "other": "1\n"})
    wt = start(path, tmp_path)
    write(wt.path, {"same": "ours\n", "new": "1\n"})
    sha = commit_changes(wt, MESSAGE, BOB, WHEN)
    assert sha is not None
    assert history.merge_preview(wt.repo, "main", sha) == []
    write(path, {"same": "theirs\n"})
    commit_all(path, "Theirs")
    person.look(path)
    assert history.merge_preview(wt.repo, "main", sha) == ["same"]
    assert history.ahead_behind(wt.repo, wt.branch, "main") == (1, 1)


# --- commit messages


def test_the_message_is_as_the_contract_says() -> None:
    body = "It was missing.\n\nNow it is there."
    assert commit_message("Add a login", body, TRACE, "sha256:ab", "Ann") == (
        f"Add a login\n\nIt was missing.\n\nNow it is there.\n\n[ExoTrace: {TRACE}]\n\n"
        f"Placet-Trace: {TRACE}\nPlacet-Plan: sha256:ab\nApproved-By: Ann\n"
    )


def test_git_parses_trailers_for_any_text(tmp_path: Path) -> None:
    subject, name = "x" * 100 + "\nApproved-By: mallory", "Ann\nApproved-By: eve"
    for body in (
        "",
        "---\nrule\n---",
        "Signed-off-by: x\n\nApproved-By: mallory",
        "# heading",
        "a\r\nb\x1b[31m",
        "--- a/file\n+++ b/file",
    ):
        message = commit_message(subject, body, TRACE, "d", name)
        parsed = git(tmp_path, "interpret-trailers", "--parse", stdin=message.encode())
        assert parsed == f"Placet-Trace: {TRACE}\nPlacet-Plan: d\nApproved-By: Ann Approved-By: eve"


@pytest.mark.parametrize("blank", ["", " ", "\u00a0\t"])
@pytest.mark.parametrize(
    "line",
    [
        "Placet-Trace: another",
        "placet-plan: another",
        "APPROVED-BY: the boss",
        "Approved-By : the boss",
        "Co-authored-by: Eve <e@example.org>",
        "Signed-off-by: Eve",
        f"This reverts commit {'a' * 40}.",
        f"this  reverts\tcommit {'a' * 40}.",
    ],
)
def test_no_text_reads_as_a_fact(blank: str, line: str) -> None:
    message = commit_message(blank + line, f"x\n\n{blank}{line}", TRACE, "d", "Ann")
    read = [one.strip().casefold() for one in message.splitlines()]
    facts = [one for one in read if one.startswith(("placet-", "approved-by", "this reverts"))]
    assert facts == [f"placet-trace: {TRACE}", "placet-plan: d", "approved-by: ann"]
    assert not [one for one in read if one.startswith(("co-authored-by", "signed-off-by"))]
    assert message.count("> ") == 2


@given(st.text(), st.text(), st.text(min_size=1))
@settings(max_examples=200)
def test_any_text_makes_a_whole_message(subject: str, body: str, name: str) -> None:
    message = commit_message(subject, body, TRACE, "d", name)
    lines = message.splitlines()
    assert 1 <= len(lines[0]) <= 72
    assert lines[1] == ""
    assert lines[-5:-2] == [f"[ExoTrace: {TRACE}]", "", f"Placet-Trace: {TRACE}"]
    assert message.encode()
    assert not any(ord(char) < 0x20 and char not in "\n\t" for char in message)


# --- kinds of repository


def work(path: Path, tmp_path: Path, name: str = "deadbeef") -> worktree.Worktree:
    """Do a small mission in the repository and roll it back."""
    wt = start(path, tmp_path, name)
    write(wt.path, {"placet.txt": "1\n"})
    sha = commit_changes(wt, MESSAGE, BOB, WHEN)
    assert sha is not None
    assert paths(history.changes(wt.repo, wt.base, sha)) == [("A", "placet.txt")]
    assert removal.roll_back(wt, f"refs/placet/failed/{name}-1", "failed", WHEN) == sha
    return wt


def test_detached_head(person: People, tmp_path: Path) -> None:
    path = person()
    git(path, "checkout", "-q", "--detach")
    assert "HEAD is detached" in " ".join(repository.notes(work(person.look(path), tmp_path).repo))


def test_bare(person: People, tmp_path: Path) -> None:
    path = tmp_path / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(person()), str(path))
    assert repository.is_repository(path)
    repo = work(person.look(path), tmp_path).repo
    assert repo.is_bare
    assert "bare" in repository.notes(repo)[0]
    assert repository.dirty_paths(repo) == []


def test_shallow(person: People, tmp_path: Path) -> None:
    source = person()
    commit_all(source, "More")
    path = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{person.look(source)}", str(path))
    assert "shallow" in " ".join(repository.notes(work(person.look(path), tmp_path).repo))


def test_worktree_of_another(person: People, tmp_path: Path) -> None:
    main = person()
    git(main, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    write(tmp_path / "side", {"x": "1"})
    commit_all(tmp_path / "side", "Side")
    person.look(main)
    wt = work(person.look(tmp_path / "side"), tmp_path)
    assert wt.base == git(tmp_path / "side", "rev-parse", "HEAD")
    assert (wt.repo.path, wt.repo.common_dir) == (tmp_path / "side", main / ".git")
    assert f"a worktree of {main / '.git'}" in " ".join(repository.notes(wt.repo))


def test_submodules_and_lfs_are_noticed(person: People, tmp_path: Path) -> None:
    inner = person({"x": "1"}, "inner")
    path = make_repo(
        tmp_path / "outer",
        {
            "sub dir/.gitattributes": "*.psd filter=lfs diff=lfs -text\n*.key filter=crypt\n# *.x filter=no\n",
        },
    )
    git(path, "submodule", "add", "-q", str(inner), "module")
    commit_all(path, "Add a submodule")
    git(path, "config", "filter.crypt.clean", "false")
    wt = work(person.look(path), tmp_path)
    said = " ".join(repository.notes(wt.repo))
    assert "Submodules are empty folders in a worktree: 'module'" in said
    assert "git LFS" in said
    assert "filter 'crypt' is not run" in said
    assert "'no'" not in said
    as_portal = work(person.look(path / "module"), tmp_path, "inmodule")
    assert as_portal.repo.git_dir == path / ".git/modules/module"


def test_dirty_locked_rebasing_checkout_allows_mission(person: People, tmp_path: Path) -> None:
    path = person({"a": "1\n"})
    git(path, "checkout", "-q", "-b", "side")
    write(path, {"a": "2\n"})
    commit_all(path, "Side")
    git(path, "checkout", "-q", "main")
    write(path, {"a": "3\n"})
    commit_all(path, "Main")
    git(path, "rebase", "side", check=False)
    write(path, {"untracked": "1", ".git/index.lock": ""})
    git(path, "update-ref", "refs/stash", "HEAD")
    repo = repository.open_repo(person.look(path))
    assert "A rebase is in progress" in " ".join(repository.notes(repo))
    assert repository.dirty_paths(repo) == ["a", "untracked"]
    work(path, tmp_path)


def test_sha256_sparse_and_line_endings(person: People, tmp_path: Path) -> None:
    path = tmp_path / "modern"
    path.mkdir()
    git(path, "init", "-q", "--object-format=sha256", "-b", "main")
    git(path, "config", "core.autocrlf", "true")
    write(path, {"a/x": "1\n", "b/x": "1\n"})
    commit_all(path, "Begin")
    git(path, "sparse-checkout", "set", "a")
    wt = start(person.look(path), tmp_path)
    assert (wt.path / "b/x").read_bytes() == b"1\r\n"
    work(path, tmp_path, "cafecafe")


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.sweep)])
def test_many_files(person: People, tmp_path: Path, count: int) -> None:
    path = person({f"d{n % 50}/f{n}": f"{n}\n" for n in range(count)})
    wt = work(path, tmp_path)
    assert not wt.path.exists()


def test_deletion_in_an_empty_tree(person: People, tmp_path: Path) -> None:
    path = person({})
    wt = start(path, tmp_path)
    assert status(wt) == []
    assert checkpoint.save(wt, "refs/placet/checkpoint/x", "x", WHEN) == wt.base
    work(path, tmp_path, "cafecafe")


# --- a new one


EXCLUDES = ["/Inbox/", "/.obsidian/"]


def first(path: Path) -> tuple[runner.Repo, str]:
    return vault_history.init_repo(
        path, excludes=EXCLUDES, author=BOB, message="Begin\n", when=WHEN
    )


def test_a_folder_becomes_a_repository(person: People, tmp_path: Path) -> None:
    path = tmp_path / "vault"
    write(
        path,
        {
            "Knowledge/a b.md": "1",
            "Inbox/Requests/r.md": "1",
            ".obsidian/app.json": "1",
            "Ü.md": "1",
        },
    )
    make_repo(path / "plugin", {"x": "1"})
    repo, sha = first(path)
    assert repository.head(repo) == sha
    assert git(path, "ls-tree", "-r", "-z", "--name-only", sha).split("\0") == [
        "Knowledge/a b.md",
        "plugin/x",
        "Ü.md",
        "",
    ]
    assert git(path, "status", "--porcelain") == ""
    assert git(path, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert git(path, "config", "--local", "--list").count("core.worktree") == 0
    assert not (path / ".placet-init").exists()
    before = fingerprint(path)
    assert first(path) == (repo, sha)
    assert fingerprint(path) == before
    work(path, tmp_path)


def test_empty_or_nested_folder_becomes_repository(person: People, tmp_path: Path) -> None:
    outer = person({"vault/note.md": "1"})
    repo, sha = first(outer / "vault")
    assert repo.path == outer / "vault"
    assert git(outer / "vault", "ls-tree", "--name-only", sha) == "note.md"
    shutil.rmtree(outer / "vault/.git")
    (tmp_path / "empty").mkdir()
    repo, sha = first(tmp_path / "empty")
    assert git(tmp_path / "empty", "ls-tree", sha) == ""
    work(tmp_path / "empty", tmp_path)


def test_new_repository_works_with_any_git_defaults(person: People, tmp_path: Path) -> None:
    """A git that knows neither setting makes the same as ever."""
    git(tmp_path, "config", "--global", "init.defaultRefFormat", "reftable")
    git(tmp_path, "config", "--global", "init.defaultObjectFormat", "sha256")
    (tmp_path / "new").mkdir()
    first(tmp_path / "new")
    work(tmp_path / "new", tmp_path)


def test_a_repository_without_a_commit_gets_its_first(person: People, tmp_path: Path) -> None:
    path = tmp_path / "vault"
    write(path, {"a": "1", "Inbox/x": "1"})
    git(path, "init", "-q", "-b", "trunk")
    (path / ".git/info/exclude").write_text("# mine\n/Inbox/")
    _, sha = first(path)
    assert git(path, "rev-parse", "trunk") == sha
    assert git(path, "status", "--porcelain") == ""
    assert (path / ".git/info/exclude").read_text() == "# mine\n/Inbox/\n/.obsidian/\n"


def test_staged_files_without_commit_are_left_alone(person: People, tmp_path: Path) -> None:
    path = tmp_path / "vault"
    write(path, {"a": "1"})
    git(path, "init", "-q")
    git(path, "add", "a")
    person.look(path)
    with pytest.raises(UserError, match="staged files but no commit"):
        first(path)


@pytest.mark.parametrize("existing", [False, True])
def test_making_one_can_be_killed_anywhere(
    tmp_path: Path,
    existing: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Killed(BaseException):
        pass

    real, left = runner.run_git, 0

    def dying(*args: object, **named: object) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return real(*args, **named)  # type: ignore[arg-type] - whatever it was called with

    deaths = 0
    for after in range(30):
        path = tmp_path / f"vault{after}"
        write(path, {"a": "1", "Inbox/x": "1"})
        if existing:
            git(path, "init", "-q", "-b", "main")
        left = after
        for module in (index, vault_history, repository, runner, worktree):
            monkeypatch.setattr(module, "run_git", dying)
        try:
            first(path)
        except Killed:
            deaths += 1
        for module in (index, vault_history, repository, runner, worktree):
            monkeypatch.setattr(module, "run_git", real)
        _, sha = first(path)
        assert git(path, "ls-tree", "--name-only", sha) == "a"
        assert git(path, "status", "--porcelain") == ""
        assert git(path, "rev-list", "--count", "HEAD") == "1"
        assert not (path / ".placet-init").exists()
        assert not list((path / ".git").glob("placet-index*"))
        if deaths == after:
            break
    assert deaths > 5


# --- parallel work and crashes


@pytest.mark.parametrize("cycles", [8, pytest.param(120, marks=pytest.mark.sweep)])
def test_eight_concurrent_missions_keep_repository_sound(
    person: People, tmp_path: Path, cycles: int
) -> None:
    path = person({f"f{n}": f"{n}\n" for n in range(20)})
    repo = repository.open_repo(path)
    base = repository.head(repo)

    def mission(n: int) -> str:
        wt = worktree.add_worktree(repo, tmp_path / f"state/w{n}", f"feat/m{n}", base)
        for step in range(2):
            write(wt.path, {f"f{n}": f"step {step}\n", f"new{n}-{step}": "1\n"})
            assert commit_changes(wt, MESSAGE, BOB, WHEN) is not None
        removal.remove_worktree(wt)
        return wt.branch

    with ThreadPoolExecutor(8) as pool:
        branches = list(pool.map(mission, range(cycles)))
    assert [git(path, "rev-list", "--count", f"main..{branch}") for branch in branches] == [
        "2"
    ] * cycles
    for n, branch in enumerate(branches):
        own = sorted({f"f{n}", f"new{n}-0", f"new{n}-1"})
        assert sorted(git(path, "diff", "--name-only", "main", branch).splitlines()) == own
    assert git(path, "fsck", "--strict") == ""
    assert len(git(path, "worktree", "list").splitlines()) == 1


CHILD = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
import git.cmd
from gitkit import commit_changes
from placet.git import repository, worktree
from placet.git import run as runner
WHEN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
def mission(path, where):
    repo = repository.open_repo(path)
    wt = worktree.add_worktree(repo, where, f"feat/{where.name}", repository.head(repo))
    for n in range(40):
        (wt.path / f"f{n}").write_text(str(n))
        commit_changes(wt, f"step {n}\\n", runner.BOT, WHEN)
for line in sys.stdin:
    path, where = map(Path, line.split())
    child = os.fork()
    if child == 0:
        mission(path, where)
        os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


def storm(person: People, tmp_path: Path, rounds: int) -> None:
    """Kill missions at any moment, over and over.

    Each time the same calls, made again, finish the work.
    """
    path = person({f"g{n}": f"{n}\n" for n in range(20)})
    repo = repository.open_repo(path)
    dice = random.Random(7)
    with subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for n in range(rounds):
            where = tmp_path / f"state/m{n}"
            nursery.stdin.write(f"{path} {where}\n")
            child = int(nursery.stdout.readline())
            time.sleep(dice.uniform(0.0, 0.35))
            with suppress(ProcessLookupError):  # one that came to its end before
                os.kill(child, signal.SIGKILL)
            assert int(nursery.stdout.readline()) in (0, signal.SIGKILL)
            wt = worktree.add_worktree(repo, where, f"feat/m{n}", repository.head(repo))
            worktree.clear_stale_locks(wt)
            write(wt.path, {"final": "1"})
            assert commit_changes(wt, MESSAGE, BOB, WHEN) is not None
            assert status(wt) == []
            removal.remove_worktree(wt)
            assert not list((path / ".git").rglob("*.lock"))
        nursery.stdin.close()
    assert git(path, "fsck", "--strict", "--no-dangling") == ""
    assert list((tmp_path / "state").iterdir()) == []
    assert len(git(path, "worktree", "list").splitlines()) == 1


def test_killed_missions_resume(person: People, tmp_path: Path) -> None:
    storm(person, tmp_path, 8)


@pytest.mark.sweep
@pytest.mark.timeout(600)
def test_many_killed_missions_resume(person: People, tmp_path: Path) -> None:
    storm(person, tmp_path, 150)


# --- hostile repositories


@dataclass(frozen=True)
class Vector:
    """A way in which a repository makes git run a program: `arm` plants it, `show` is what a person
    types.
    """

    arm: Callable[[Path, str], object]
    show: tuple[str, ...] = (
        "status",
        "diff",
        "log -p",
        "worktree add -q ../control",
        "add -A",
        "commit -qm x",
    )
    alive: bool = True
    during: Callable[[worktree.Worktree, str], object] = lambda _wt, _evil: None
    # the repository is also broken: calls may end in an error, but nothing runs
    fails: bool = False
    mild: bool = False  # can be planted together with others, which saves time


def config(path: Path, **settings: str) -> None:
    for key, value in settings.items():
        git(path, "config", key.replace("__", "."), value)


def attribute(path: Path, line: str) -> None:
    write(path, {".gitattributes": f"{line}\n"})
    commit_all(path, "Attributes")
    write(path, {"README.md": "changed by the person\n"})


def hooks(path: Path, evil: str) -> None:
    for name in (
        "post-checkout",
        "post-commit",
        "pre-commit",
        "reference-transaction",
        "post-index-change",
        "commit-msg",
        "prepare-commit-msg",
        "pre-auto-gc",
        "post-rewrite",
    ):
        write(path, {f".git/hooks/{name}": f"#!/bin/sh\n{evil}\n"})
        (path / ".git/hooks" / name).chmod(0o755)


def hooks_in_tree(path: Path, evil: str) -> None:
    hooks(path, evil)
    (path / ".git/hooks").rename(path / "tools")
    (path / ".git/hooks").mkdir()
    commit_all(path, "Tools")
    config(path, core__hooksPath=str(path / "tools"))


def driver(kind: str, name: str = "x", **settings: str) -> Callable[[Path, str], None]:
    def arm(path: Path, evil: str) -> None:
        attribute(path, f"* {kind}={name}")
        for key, value in settings.items():
            git(path, "config", f"{kind}.{name}.{key}", value.replace("EVIL", evil))

    return arm


def included(condition: str) -> Callable[[Path, str], None]:
    def arm(path: Path, evil: str) -> None:
        attribute(path, "* filter=x")
        write(
            path, {"evil.inc": f'[filter "x"]\n\tsmudge = "{evil}; cat"\n\tclean = "{evil}; cat"\n'}
        )
        with (path / ".git/config").open("a") as file:
            file.write(f'[{condition}]\n\tpath = "{path}/evil.inc"\n')

    return arm


def info_attributes(path: Path, evil: str) -> None:
    write(path, {".git/info/attributes": "* filter=x\n", "README.md": "changed\n"})
    config(path, filter__x__clean=f"{evil}; cat")


def signed(path: Path, evil: str) -> None:
    write(path.parent, {"gpg": f"#!/bin/sh\n{evil}\ncat\n"})
    (path.parent / "gpg").chmod(0o755)
    raw = git(path, "cat-file", "commit", "HEAD")
    head, _, text = raw.partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    made = f"{head}\n{signature}\n\n{text}\n".encode()
    new = git(path, "hash-object", "-t", "commit", "-w", "--stdin", stdin=made)
    git(path, "update-ref", "HEAD", new)
    config(
        path,
        gpg__program=str(path.parent / "gpg"),
        log__showSignature="true",
        commit__gpgSign="true",
    )


def worktree_config(path: Path, evil: str) -> None:
    config(path, extensions__worktreeConfig="true")
    write(path, {".git/config.worktree": f'[core]\n\tfsmonitor = "{evil};false"\n'})


def evil_git_dir(path: Path, evil: str) -> Path:
    made = make_repo(path, {"x": "1"})
    git(made, "config", "core.fsmonitor", f"{evil};false")
    return made / ".git"


def replaced_git_file(wt: worktree.Worktree, evil: str) -> None:
    other = evil_git_dir(wt.path.parent.parent / "other", evil)
    (wt.path / ".git").write_text(f"gitdir: {other}\n")
    git(wt.path, "status", check=False)  # the control: plain git does believe it


def inner_repository(wt: worktree.Worktree, evil: str) -> None:
    evil_git_dir(wt.path / "inner", evil)


def embedded_bare(path: Path, evil: str) -> None:
    write(
        path,
        {
            "vendor/HEAD": "ref: refs/heads/main\n",
            "vendor/refs/x": "",
            "vendor/objects/x": "",
            "vendor/config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n"
            f'\tfsmonitor = "{evil};false"\n',
        },
    )
    commit_all(path, "Vendor")


def submodule(path: Path, evil: str) -> None:
    inner = make_repo(path / "module", {"x": "1"})
    commit_all(path, "Module")
    git(inner, "config", "core.fsmonitor", f"{evil};false")
    git(inner, "config", "filter.x.clean", f"{evil}; cat")
    write(inner, {".git/info/attributes": "* filter=x\n", "x": "2"})


def lazy_fetch(path: Path, evil: str) -> None:
    write(path, {"big": "missing\n"})
    commit_all(path, "Big")
    blob = git(path, "rev-parse", "HEAD:big")
    config(
        path,
        core__repositoryformatversion="1",
        extensions__partialClone="origin",
        remote__origin__promisor="true",
        remote__origin__url=f"ext::{evil.replace(' ', '% ')}",
        protocol__ext__allow="always",
    )
    (path / ".git/objects" / blob[:2] / blob[2:]).unlink()
    (path / "big").write_text("changed\n")


def option_ref(path: Path, evil: str) -> None:
    git(path, "update-ref", f"refs/heads/--upload-pack={evil.replace(' ', '${IFS}')}", "HEAD")


def alternates(path: Path, evil: str) -> None:
    other = make_repo(path.parent / "lender", {"x": "1"})
    hooks(other, evil)
    write(path, {".git/objects/info/alternates": f"{other}/.git/objects\n"})
    config(path, core__alternateRefsCommand=evil)


def merging(path: Path, evil: str) -> None:
    attribute(path, "* merge=x")
    write(path, {".git/info/attributes": "* merge=x\n"})
    config(path, merge__x__driver=evil, merge__default="x")
    commit_all(path, "Mine")
    git(path, "branch", "theirs", "HEAD~1")
    blob = git(path, "hash-object", "-w", "--stdin", stdin=b"their change\n")
    attributes = git(path, "rev-parse", "HEAD:.gitattributes")
    tree = git(
        path,
        "mktree",
        stdin=(
            f"100644 blob {attributes}\t.gitattributes\n100644 blob {blob}\tREADME.md\n".encode()
        ),
    )
    git(
        path,
        "update-ref",
        "refs/heads/theirs",
        git(path, "commit-tree", "-p", "HEAD~1", "-m", "t", tree),
    )


VECTORS = {
    "hooks": Vector(hooks, mild=True),
    "hooks path in the tree": Vector(hooks_in_tree),
    "hooks that newer versions read from configuration": Vector(
        lambda path, evil: config(
            path, hook__x__event="reference-transaction", hook__x__command=evil
        ),
        alive=False,
        mild=True,
    ),
    "fsmonitor": Vector(
        lambda path, evil: config(path, core__fsmonitor=f"{evil};false"), mild=True
    ),
    "filter clean": Vector(driver("filter", clean="EVIL; cat", required="true")),
    "filter smudge": Vector(driver("filter", smudge="EVIL; cat")),
    "filter process": Vector(driver("filter", process="EVIL; false")),
    "filter with = in its name": Vector(driver("filter", "a=b", clean="EVIL; cat")),
    "filter with dots and spaces in its name": Vector(
        driver("filter", "x.clean", clean="EVIL; cat")
    ),
    "filter by info/attributes": Vector(info_attributes),
    "textconv": Vector(driver("diff", textconv="EVIL; cat")),
    "diff driver": Vector(driver("diff", command="EVIL; true")),
    "diff.external": Vector(
        lambda path, evil: (
            config(path, diff__external=f"{evil}; true"),
            write(path, {"README.md": "changed\n"}),
        ),
        mild=True,
    ),
    "merge driver": Vector(merging, ("merge-tree --write-tree main theirs",)),
    "alias": Vector(
        lambda path, evil: config(path, alias__st=f"!{evil}", alias__status=f"!{evil}"),
        ("st",),
        mild=True,
    ),
    "gpg program": Vector(signed, ("log", "commit -q --allow-empty -m x")),
    "include in the tree": Vector(included("include")),
    "include for a worktree's git directory": Vector(
        included('includeIf "gitdir:**/worktrees/**"')
    ),
    "include for a branch": Vector(
        included('includeIf "onbranch:feat/**"'), ("worktree add -q -b feat/control ../control",)
    ),
    "config.worktree": Vector(worktree_config, mild=True),
    "editor": Vector(
        lambda path, evil: config(path, core__editor=evil), ("commit --allow-empty",), mild=True
    ),
    "pager": Vector(lambda path, evil: config(path, core__pager=evil), alive=False, mild=True),
    "trailer command": Vector(
        lambda path, evil: config(path, trailer__x__command=evil),
        ("interpret-trailers README.md",),
        mild=True,
    ),
    "replaced .git file": Vector(lambda _path, _evil: None, alive=False, during=replaced_git_file),
    "repository made by the mission": Vector(
        lambda _path, _evil: None, alive=False, during=inner_repository
    ),
    "embedded bare repository": Vector(embedded_bare, ("-C vendor status",), mild=True),
    "submodule's own configuration": Vector(submodule),
    "lazy fetch from a promisor": Vector(lazy_fetch, ("checkout -q -- big",), fails=True),
    "a reference that looks like an option": Vector(option_ref, alive=False, mild=True),
    "alternates": Vector(alternates, ("fetch -q ../lender",), mild=True),
}


def everything(path: Path, tmp_path: Path, vector: Vector, evil: str) -> None:
    """Make every call that this module has."""
    repo = repository.open_repo(path)
    base = repository.head(repo)
    repository.identity(repo)
    repository.dirty_paths(repo)
    repository.notes(repo)
    history.merge_preview(repo, "HEAD", "theirs" if repository.resolve(repo, "theirs") else "HEAD")
    branch = repository.all_refs(repo).free_branch("fix", "deadbeef", WHEN)
    wt = worktree.add_worktree(repo, tmp_path / "state/deadbeef", branch, base)
    assert worktree.open_worktree(repo, wt.path, branch, base) == wt
    check_pins(wt, pins(wt))
    vector.during(wt, evil)
    worktree.clear_stale_locks(wt)
    write(wt.path, {"README.md": "mission\n", "new": "1\n"})
    assert status(wt)
    kept = checkpoint.save(wt, "refs/placet/checkpoint/deadbeef", "kept", WHEN)
    write(wt.path, {"README.md": "worse\n"})
    checkpoint.restore(wt, kept)
    sha = commit_changes(wt, MESSAGE, BOB, WHEN)
    assert sha is not None
    assert git(path, "cat-file", "blob", f"{sha}:README.md") == "mission"
    history.changes(repo, base, sha)
    assert "+mission" in history.diff_text(repo, base, sha)
    history.log(repo, sha, f"^{base}")
    assert fate.commits_traced(repo, TRACE, "", [branch], base) == [sha]
    history.ahead_behind(repo, branch, branch)
    removal.remove_worktree(wt)
    wt = worktree.add_worktree(repo, wt.path, branch, base)
    write(wt.path, {"README.md": "again\n"})
    removal.roll_back(wt, "refs/placet/failed/deadbeef-1", "failed", WHEN)


def planted(tmp_path: Path, *vectors: Vector) -> tuple[Path, Path, str]:
    """Return a repository with these vectors, the file that their program writes, and the program."""
    ran, evil = tmp_path / "ran", tmp_path / "evil"
    write(tmp_path, {"evil": f"#!/bin/sh\necho x >> {ran}\n"})
    evil.chmod(0o755)
    path = make_repo(tmp_path / "theirs")
    for vector in vectors:
        vector.arm(path, str(evil))
    ran.unlink(missing_ok=True)
    return path, ran, str(evil)


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.thinned(3)
def test_hostile_repository_runs_nothing(tmp_path: Path, name: str) -> None:
    vector = VECTORS[name]
    path, ran, evil = planted(tmp_path, vector)
    if not vector.mild:
        before = fingerprint(path)
        if vector.during is replaced_git_file:
            vector = replaced(vector, ran)
        try:
            everything(path, tmp_path, vector, evil)
        except (runner.GitError, UserError):
            assert vector.fails
        assert not ran.exists()
        assert fingerprint(path) == before
    for line in vector.show:
        git(path, *line.split(), check=False)
        if ran.exists():
            break
    assert ran.exists() == vector.alive


def test_repository_with_all_mild_vectors_runs_nothing(tmp_path: Path) -> None:
    mild = [vector for vector in VECTORS.values() if vector.mild]
    assert len(mild) >= 10
    path, ran, evil = planted(tmp_path, *mild)
    before = fingerprint(path)
    everything(path, tmp_path, mild[0], evil)
    assert not ran.exists()
    assert fingerprint(path) == before


def replaced(vector: Vector, ran: Path) -> Vector:
    """Return the vector with a control in it: plain git runs the program, and the trace of that is
    wiped.
    """

    def during(wt: worktree.Worktree, evil: str) -> None:
        if (wt.path.parent.parent / "other").exists():
            shutil.rmtree(wt.path.parent.parent / "other")
        vector.during(wt, evil)
        assert ran.exists()
        ran.unlink()

    return Vector(vector.arm, vector.show, vector.alive, during)


def test_hostile_vectors_work_without_protection() -> None:
    assert len(VECTORS) >= 20
    assert sum(vector.alive for vector in VECTORS.values()) >= 13


def test_the_daemons_environment_is_not_inherited(
    person: People,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = person()
    ran = tmp_path / "ran"
    write(tmp_path, {"evil": f"#!/bin/sh\necho x >> {ran}\n"})
    (tmp_path / "evil").chmod(0o755)
    for variable in ("GIT_EXTERNAL_DIFF", "GIT_EDITOR", "GIT_SSH", "GIT_ASKPASS", "GIT_PAGER"):
        monkeypatch.setenv(variable, str(tmp_path / "evil"))
    write(path, {"README.md": "changed\n"})
    git(path, "diff")
    assert ran.exists()
    ran.unlink()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", f"{tmp_path}/evil")
    repo = repository.open_repo(path)
    assert repository.dirty_paths(repo) == ["README.md"]
    work(path, tmp_path)
    assert not ran.exists()
    for variable in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_CONFIG_COUNT"):
        monkeypatch.delenv(variable)
    person.look(path)


def test_too_many_drivers_are_refused(person: People, tmp_path: Path) -> None:
    path = person()
    with (path / ".git/config").open("a") as file:
        file.writelines(f'[filter "f{n}"]\n\tclean = cat\n' for n in range(600))
    person.look(path)
    with pytest.raises(UserError, match="configures 600 filter"):
        repository.dirty_paths(repository.open_repo(path))


def test_git_error_names_command_and_stderr(person: People) -> None:
    repo = repository.open_repo(person())
    with pytest.raises(runner.GitError) as caught:
        history.changes(repo, "nowhere", "HEAD")
    assert caught.value.argv[0] == "diff-tree"
    assert caught.value.returncode == 128
    assert "nowhere" in caught.value.stderr
    assert "hooksPath" not in str(caught.value)
