"""Test that commits and checkpoints match plain git, and are on disk before a ref names them."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gitkit import commit_changes, git, make_repo, write
from placet.errors import PlacetError, passing
from placet.git import checkpoint, index, repository, worktree
from placet.git import run as runner
from placet.git.changes import status

pytestmark = pytest.mark.usefixtures("home")

WHEN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BOB = runner.Author("Bob Bot", "bob@example.org")


def mission(path: Path, tmp_path: Path, name: str = "deadbeef") -> worktree.Worktree:
    repo = repository.open_repo(path)
    return worktree.add_worktree(
        repo, tmp_path / "state" / name, f"feat/{name}", repository.head(repo)
    )


def whole_tree(wt: worktree.Worktree, spare: Path) -> str:
    """The tree of everything in the worktree, as plain git makes it with an index of its own."""
    spare.unlink(missing_ok=True)
    git(wt.path, "read-tree", "HEAD", GIT_INDEX_FILE=str(spare))
    git(wt.path, "add", "-A", GIT_INDEX_FILE=str(spare))
    return git(wt.path, "write-tree", GIT_INDEX_FILE=str(spare))


PATHS = [
    "a",
    "a/b",
    "a/b/c",
    "a-b",
    "a.b/c",
    "a0",
    "ab/c",
    "A",
    "b/a",
    "b/a/x y",
    "b/new\nline",
    "\udcff\udcfe/z",
    "z/" + "q" * 90,
    "Grüße/ä",
    "-x",
    ":(top)",
    ".gitignore",
    "z/.github/w",
    "z/.git-x",
    "long/" + "n/" * 40 + "x",
]
CONTENTS = [b"", b"text\n", b"no end", b"\0\1\2", b"windows\r\n", b"$Id$\n", b"x" * 70_000]


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def meddle(top: Path, chance: random.Random) -> None:
    """Change something in the folder `top`, as a mission might: also a file where a folder was, and
    the other way round.
    """
    path = top / chance.choice(PATHS)
    if chance.random() < 0.25:
        clear(path) if path.parent.is_dir() else None
        return
    for above in path.parents:
        if above != top and above.is_relative_to(top) and (above.is_symlink() or above.is_file()):
            clear(above)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or path.is_dir():
        clear(path)
    if chance.random() < 0.15 and not path.name.startswith(".git"):
        clear(path)
        path.symlink_to(chance.choice(["nowhere", "../a", "\udcff"]))
        return
    path.write_bytes(b"nothing\n" if path.name == ".gitignore" else chance.choice(CONTENTS))
    path.chmod(chance.choice([0o644, 0o755]))


SWEEP = [pytest.mark.sweep, pytest.mark.timeout(3_600)]


# Attributes that change meanwhile are another matter: what git then finds changed depends on how it
# came by its index.
@pytest.mark.parametrize(
    "rounds", [pytest.param(20, id="some"), pytest.param(1_000, id="many", marks=SWEEP)]
)
@pytest.mark.parametrize(
    ("digests", "attributes"),
    [
        ("sha1", ""),
        ("sha256", ""),
        ("sha1", "* text=auto\n"),
        ("sha256", "* eol=crlf ident\n"),
        ("sha1", "*.txt working-tree-encoding=UTF-16\n"),
    ],
)
@pytest.mark.thinned(2)
def test_commits_and_checkpoints_match_gits_trees(
    tmp_path: Path,
    digests: str,
    attributes: str,
    rounds: int,
) -> None:
    path = tmp_path / "theirs"
    git(tmp_path, "init", "-q", f"--object-format={digests}", str(path))
    write(
        path,
        {"a": "1\n", "b/a": "2\n", "z/deep/down/here": "3\n"}
        | ({".gitattributes": attributes} if attributes else {}),
    )
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "Begin")
    wt = mission(path, tmp_path)
    chance, commits = random.Random(7), 0
    for n in range(rounds):
        for _ in range(chance.randint(1, 5)):
            meddle(wt.path, chance)
        expected = whole_tree(wt, tmp_path / "spare")
        assert checkpoint.snapshot(wt) == expected, n
        sha = commit_changes(wt, f"Round {n}\n", BOB, WHEN)
        if sha is not None:
            commits += 1
            assert git(wt.path, "rev-parse", f"{sha}^{{tree}}") == expected, n
            assert git(wt.path, "status", "--porcelain", "--untracked-files=all") == ""
    assert commits > rounds * 0.6
    assert git(path, "fsck", "--strict", "--no-dangling") == ""


def test_a_commit_is_the_one_that_git_makes(tmp_path: Path) -> None:
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    write(wt.path, {"new": "x"})
    for author, message in (
        (BOB, "Say hello\n\nGrüße,\n\n\n"),
        (runner.Author("Ä. Ö", "a@b"), "no end"),
    ):
        sha = commit_changes(wt, message, author, WHEN)
        assert sha is not None
        tree, parent = git(wt.path, "rev-parse", f"{sha}^{{tree}}", f"{sha}^").split()
        stamp = f"@{int(WHEN.timestamp())} +0000"
        environment = {
            "GIT_AUTHOR_NAME": author.name,
            "GIT_AUTHOR_EMAIL": author.email,
            "GIT_AUTHOR_DATE": stamp,
            "GIT_COMMITTER_NAME": author.name,
            "GIT_COMMITTER_EMAIL": author.email,
            "GIT_COMMITTER_DATE": stamp,
        }
        (tmp_path / "message").write_text(message)
        gits = git(
            wt.path,
            "commit-tree",
            tree,
            "-p",
            parent,
            "-F",
            str(tmp_path / "message"),
            **environment,
        )
        assert git(wt.path, "cat-file", "commit", gits) == git(wt.path, "cat-file", "commit", sha)
        assert gits == sha
        write(wt.path, {"new": "y"})


@pytest.mark.parametrize(
    ("settings", "content"),
    [
        ({"core.autocrlf": "input"}, b"a\r\nb\r\n"),
        ({"core.autocrlf": "true"}, b"a\r\n"),
        ({"core.autocrlf": "input"}, b"plain\n"),
        ({"core.fileMode": "false"}, b"x"),
        ({"core.symlinks": "false"}, b"x"),
        ({"index.version": "4"}, b"x"),
        ({"feature.manyFiles": "true"}, b"x"),
        ({"core.splitIndex": "true"}, b"x"),
        ({"core.untrackedCache": "true"}, b"x"),
        ({"core.sharedRepository": "group"}, b"x"),
        ({"core.fileMode": ""}, b"x"),
        ({"core.symlinks": ""}, b"x"),
    ],
)
def test_the_repositorys_settings_count_as_with_git(
    tmp_path: Path, settings: dict[str, str], content: bytes
) -> None:
    path = make_repo(tmp_path / "theirs", {"run.sh": "x\n", "b/c": "y\n"})
    for key, value in settings.items():
        git(path, "config", key, value)
    wt = mission(path, tmp_path)
    write(wt.path, {"b/new": content, "run.sh": content})
    (wt.path / "run.sh").chmod(0o755)
    expected = whole_tree(wt, tmp_path / "spare")
    sha = commit_changes(wt, "Change\n", BOB, WHEN)
    assert sha is not None
    assert git(wt.path, "rev-parse", f"{sha}^{{tree}}") == expected
    assert status(wt) == []


def test_attributes_that_are_in_no_commit_count(tmp_path: Path) -> None:
    for n, place in enumerate((".git/info/attributes", "home")):
        path = make_repo(tmp_path / f"theirs{n}")
        where = tmp_path / "home/.config/git/attributes" if place == "home" else path / place
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text("* text eol=lf\n")
        wt = mission(path, tmp_path, f"{n:08}")
        write(wt.path, {"new": b"a\r\n"})
        sha = commit_changes(wt, "Change\n", BOB, WHEN)
        assert git(path, "cat-file", "blob", f"{sha}:new") == "a"


@pytest.mark.parametrize("kind", ["ignored", "beside the worktree's files", "another person's"])
def test_attributes_apply_wherever_git_finds_them(tmp_path: Path, kind: str) -> None:
    path = make_repo(
        tmp_path / "theirs",
        {"rules": "* text eol=lf\n", "sub/a": "1\n", ".gitignore": ".gitattributes\n"},
    )
    me = pwd.getpwuid(os.getuid())
    named = {
        "beside the worktree's files": "rules",
        "another person's": f"~{me.pw_name}/{os.path.relpath(path / 'rules', me.pw_dir)}",
    }.get(kind)
    if named is not None:
        git(path, "config", "core.attributesFile", named)
    wt = mission(path, tmp_path)
    write(
        wt.path,
        {
            "sub/new": b"a\r\n",
            **({"sub/.gitattributes": "* text eol=lf\n"} if named is None else {}),
        },
    )
    sha = commit_changes(wt, "Change\n", BOB, WHEN)
    assert git(path, "cat-file", "blob", f"{sha}:sub/new") == "a"


def test_line_ending_warnings_do_not_prevent_commit(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs")
    git(path, "config", "core.autocrlf", "true")
    git(path, "config", "core.safecrlf", "true")
    wt = mission(path, tmp_path)
    write(wt.path, {"unix": "a\n", "windows": "b\r\n"})
    sha = commit_changes(wt, "Change\n", BOB, WHEN)
    assert [git(path, "cat-file", "blob", f"{sha}:{name}") for name in ("unix", "windows")] == [
        "a",
        "b",
    ]


def test_intent_to_add_file_is_not_committed(tmp_path: Path) -> None:
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    write(wt.path, {"mine": "1\n", "theirs": "2\n"})
    git(wt.path, "add", "-N", "theirs")
    sha = commit_changes(wt, "Change\n", BOB, WHEN, choose=lambda _: ["mine"])
    assert git(wt.path, "ls-tree", "--name-only", str(sha)).split() == ["README.md", "mine"]


def test_a_branch_that_somebody_moved_is_theirs(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs")
    wt = mission(path, tmp_path)
    write(wt.path, {"new": "x"})
    moved: list[str] = []

    def move(found: list[str]) -> list[str]:
        moved.append(git(path, "commit-tree", f"{wt.base}^{{tree}}", "-p", wt.base, "-m", "Mine"))
        git(path, "update-ref", "refs/heads/feat/deadbeef", moved[0])
        return found

    with pytest.raises(runner.RepositoryChanged, match="moved by another program"):
        commit_changes(wt, "Change\n", BOB, WHEN, choose=move)
    assert git(path, "rev-parse", "feat/deadbeef") == moved[0]
    assert not (wt.git_dir / "index.lock").exists()


# --- on the disk


@contextmanager
def failing(tmp_path: Path, call: str, file: Path) -> Iterator[None]:
    """Let every git meet a full disk at its first `call` of this file."""
    write(
        tmp_path / "bin",
        {
            "git": f"#!/bin/sh\nexec strace -f -qq -o /dev/null -P '{file}' -e trace={call} "
            f'-e inject={call}:error=ENOSPC:when=1 {shutil.which("git")} "$@"\n'
        },
    )
    (tmp_path / "bin/git").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
        yield


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize(
    ("call", "file"),
    [
        ("mkdir", "refs/heads/feat"),
        ("write", "refs/heads/feat/deadbeef.lock"),
        ("write", "worktrees/deadbeef/index.lock"),
        ("fsync", "refs/heads/feat/deadbeef.lock"),
        ("rename", "worktrees/deadbeef/index.lock"),
        ("write", "logs/refs/heads/feat/deadbeef"),
    ],
)
def test_full_disk_in_git_is_retried(tmp_path: Path, call: str, file: str) -> None:
    path = make_repo(tmp_path / "theirs")
    with failing(tmp_path, call, path / ".git" / file), pytest.raises(PlacetError) as raised:
        mission(path, tmp_path)
    assert passing(raised.value)
    assert git(mission(path, tmp_path).path, "status", "--porcelain") == ""


def test_commit_succeeds_without_reflog(tmp_path: Path) -> None:
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    (wt.git_dir / "logs/HEAD").unlink()
    write(wt.git_dir / "logs/HEAD", {"in the way": "x"})
    write(wt.path, {"new": "x"})
    made = commit_changes(wt, "Change\n", BOB, WHEN)
    assert made == git(wt.path, "rev-parse", "HEAD") != wt.base


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("what", ["commit", "checkpoint"])
def test_objects_are_flushed_before_ref_moves(tmp_path: Path, what: str) -> None:
    path = make_repo(tmp_path / "theirs")
    wt = mission(path, tmp_path)
    write(wt.path, {"deep/down/a": "1\n", "b": "2\n"})
    work = {
        "commit": "with committing.writing(wt) as w: w.commit(w.changes(), 'Change', runner.BOT, datetime.now(UTC))",
        "checkpoint": "checkpoint.save(wt, 'refs/placet/ckpt/x', 'Kept', datetime.now(UTC))",
    }[what]
    code = (
        "from datetime import UTC, datetime; from pathlib import Path\n"
        "from placet.git import checkpoint, repository, worktree\n"
        "from placet.git import commit as committing\n"
        "from placet.git import run as runner\n"
        f"there = repository.open_repo(Path({str(path)!r}))\n"
        f"wt = worktree.open_worktree(there, Path({str(wt.path)!r}), {wt.branch!r}, {wt.base!r})\n{work}\n"
    )
    log = tmp_path / "strace"
    traced = "trace=fsync,fdatasync,sync_file_range,rename,renameat2"
    subprocess.run(
        [
            "strace",
            "-f",
            "-y",
            "-o",
            str(log),
            "-e",
            traced,
            "-e",
            "status=successful",
            sys.executable,
            "-c",
            code,
        ],
        check=True,
        capture_output=True,
    )
    calls = [line.split(None, 1)[1] for line in log.read_text().splitlines() if ".git/" in line]
    written = [
        n
        for n, call in enumerate(calls)
        if call.startswith("sync_file_range(") and "/objects/" in call
    ]
    flushed = [n for n, call in enumerate(calls) if call.startswith(("fsync(", "fdatasync("))]
    named = [n for n, call in enumerate(calls) if call.startswith("rename") and "/refs/" in call]
    assert len(written) == 6, calls  # two files, three folders, the commit
    assert len(flushed) == len(named) == 1, calls
    assert max(written) < flushed[0] < named[0]


@pytest.mark.parametrize(
    "damage", [lambda raw: b"", lambda raw: raw[:100], lambda raw: b"XXXX" + raw[4:]]
)
def test_a_damaged_index_is_gits_to_complain_about(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    write(wt.path, {"new": "x"})
    index = wt.git_dir / "index"
    index.write_bytes(damage(index.read_bytes()))
    with suppress(runner.GitError):
        sha = commit_changes(wt, "Change\n", BOB, WHEN)
        assert git(wt.path, "ls-tree", "--name-only", str(sha)).split() == ["README.md", "new"]
    index.unlink()  # newer gits, 2.55 for one, look at the indexes of worktrees too
    assert git(tmp_path / "theirs", "fsck", "--strict", "--no-dangling") == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_object_store_fails_commit(tmp_path: Path) -> None:
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    write(wt.path, {"new": "x"})
    objects = wt.repo.common_dir / "objects"
    objects.chmod(0o555)
    try:
        with pytest.raises(runner.GitError, match=r"Permission denied|insufficient permission"):
            commit_changes(wt, "Change\n", BOB, WHEN)
    finally:
        objects.chmod(0o755)
    assert git(wt.path, "rev-parse", "HEAD") == wt.base


# --- references


def test_configured_hooks_are_off_during_ref_updates(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = make_repo(tmp_path / "theirs")
    # git 2.54 has them, past core.hooksPath
    git(path, "config", "hook.spy.command", "touch /tmp/spied")
    git(path, "config", "hook.spy.event", "reference-transaction")
    wt = mission(path, tmp_path)
    write(wt.path, {"new": "x"})
    told: list[dict[str, str]] = []
    popen = subprocess.Popen

    def started(argv: list[str], **more: Any) -> Any:
        if "update-ref" in argv:
            told.append(more["env"])
        return popen(argv, **more)

    monkeypatch.setattr("placet.git.run.subprocess.Popen", started)
    checkpoint.save(wt, "refs/placet/ckpt/x", "Kept\n", WHEN)
    commit_changes(wt, "Change\n", BOB, WHEN)
    checkpoint.delete_ref(wt.repo, "refs/placet/ckpt/x")
    assert len(told) == 3
    for env in told:
        assert {env[key] for key in env if key.startswith("GIT_CONFIG_KEY_")} >= {
            "hook.spy.command",
            "hook.spy.enabled",
        }


def test_ref_update_by_killed_git_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    place = worktree.git_dir_of_worktree(wt)
    sha = git(wt.path, "commit-tree", f"{wt.base}^{{tree}}", "-p", wt.base, "-m", "x")
    real = runner.run_git

    def killed(at: runner.GitDir, *args: str, **more: Any) -> Any:
        done = real(at, *args, **more)
        if args[0] == "update-ref":
            raise runner.GitError(args, -9, "it was killed by signal 9")
        return done

    monkeypatch.setattr(index, "run_git", killed)
    index.update_ref(place, wt.ref, sha, wt.base)
    assert repository.resolve(wt.repo, wt.ref) == sha


def test_stale_ref_lock_is_removed_after_git_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of a reference is removed only when nobody can hold it any more."""
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    lock = tmp_path / "theirs/.git/refs/heads/feat/deadbeef.lock"
    monkeypatch.setattr(worktree, "MOVE_S", 60.0)
    lock.touch()
    began = time.monotonic()
    timer = threading.Timer(0.4, lock.unlink)
    timer.start()
    worktree.clear_stale_locks(wt)
    assert 0.3 < time.monotonic() - began < 50
    timer.join()
    lock.touch()
    os.utime(lock, (1, 1))
    worktree.clear_stale_locks(wt)
    assert not lock.exists()
    assert time.monotonic() - began < 50, "an old one is not waited for"
    monkeypatch.setattr(worktree, "MOVE_S", 0.3)
    lock.touch()
    worktree.clear_stale_locks(wt)
    assert not lock.exists()
