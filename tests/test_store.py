"""What placet writes into a repository itself (objects, the index of a worktree of its own) is, byte for byte, what git would."""

from __future__ import annotations

import errno
import os
import pwd
import random
import shutil
import stat
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gitkit import git, make_repo, settle_home, write
from placet import repo as r
from placet.repo import store, worktrees

WHEN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BOB = r.Author("Bob Bot", "bob@example.org")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def by_git(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files git was asked to put into an index, at each time that it was."""
    asked: list[int] = []
    stage = worktrees.stage
    monkeypatch.setattr(worktrees, "stage", lambda place, changes: (asked.append(len(changes)), stage(place, changes))[1])
    return asked


def mission(path: Path, tmp_path: Path, name: str = "deadbeef") -> r.Worktree:
    repo = r.open_repo(path)
    return r.add_worktree(repo, tmp_path / "state" / name, f"feat/{name}", r.head(repo))


def whole_tree(wt: r.Worktree, spare: Path) -> str:
    """The tree of everything in the worktree, as plain git makes it with an index of its own."""
    spare.unlink(missing_ok=True)
    git(wt.path, "read-tree", "HEAD", GIT_INDEX_FILE=str(spare))
    git(wt.path, "add", "-A", GIT_INDEX_FILE=str(spare))
    return git(wt.path, "write-tree", GIT_INDEX_FILE=str(spare))


def shape(folder: store._Folder) -> object:
    return folder.digest, folder.count, {name: shape(inner) for name, inner in folder.folders.items()}


def is_like_gits(wt: r.Worktree, sha: str, spare: Path) -> None:
    """The index in place has what git's own index of the commit has, in its folders too, and git finds nothing changed."""
    size = len(sha) // 2
    spare.unlink(missing_ok=True)
    git(wt.path, "read-tree", sha, GIT_INDEX_FILE=str(spare))
    mine, gits = store.Index(wt.git_dir / "index", size), store.Index(spare, size)
    assert shape(mine._top) == shape(gits._top)
    rows = [{path: (entry[24:28], entry[40:40 + size]) for path, entry in index._entries.items()} for index in (mine, gits)]
    assert rows[0] == rows[1]
    assert mine._paths == gits._paths
    assert git(wt.path, "status", "--porcelain", "--untracked-files=all") == ""


PATHS = ["a", "a/b", "a/b/c", "a-b", "a.b/c", "a0", "ab/c", "A", "b/a", "b/a/x y", "b/new\nline", "\udcff\udcfe/z", "z/" + "q" * 90,
         "Grüße/ä", "-x", ":(top)", ".gitignore", "z/.github/w", "z/.git-x", "long/" + "n/" * 40 + "x"]
CONTENTS = [b"", b"text\n", b"no end", b"\0\1\2", b"windows\r\n", b"$Id$\n", b"x" * 70_000]


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def meddle(top: Path, chance: random.Random) -> None:
    """Change something in the folder `top`, as a mission might: also a file where a folder was, and the other way round."""
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


# Attributes that change meanwhile are another matter: what git then finds changed depends on how it came by its index.
@pytest.mark.parametrize("rounds", [pytest.param(20, id="some"), pytest.param(1_000, id="many", marks=SWEEP)])
@pytest.mark.parametrize(("digests", "attributes"), [
    ("sha1", ""), ("sha256", ""), ("sha1", "* text=auto\n"), ("sha256", "* eol=crlf ident\n"),
    ("sha1", "*.txt working-tree-encoding=UTF-16\n"),
])
def test_commits_and_checkpoints_are_what_git_makes_of_the_same_files(
    tmp_path: Path, by_git: list[int], digests: str, attributes: str, rounds: int,
) -> None:
    path = tmp_path / "theirs"
    git(tmp_path, "init", "-q", f"--object-format={digests}", str(path))
    write(path, {"a": "1\n", "b/a": "2\n", "z/deep/down/here": "3\n"} | ({".gitattributes": attributes} if attributes else {}))
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "Begin")
    wt = mission(path, tmp_path)
    chance, commits = random.Random(7), 0
    for n in range(rounds):
        for _ in range(chance.randint(1, 5)):
            meddle(wt.path, chance)
        expected = whole_tree(wt, tmp_path / "spare")
        assert r.snapshot(wt) == expected, n
        sha = r.commit(wt, f"Round {n}\n", BOB, WHEN)
        if sha is not None:
            commits += 1
            assert git(wt.path, "rev-parse", f"{sha}^{{tree}}") == expected, n
            is_like_gits(wt, sha, tmp_path / "spare")
    assert commits > rounds * 0.6
    left = len(by_git) / (2 * commits)
    assert 0 < left < 0.8 if "encoding" not in attributes else left > 0.9, left
    assert git(path, "fsck", "--strict", "--no-dangling") == ""


def test_a_commit_is_the_one_that_git_makes(tmp_path: Path) -> None:
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    write(wt.path, {"new": "x"})
    for author, message in ((BOB, "Say hello\n\nGrüße,\n\n\n"), (r.Author("Ä. Ö", "a@b"), "no end")):
        sha = r.commit(wt, message, author, WHEN)
        assert sha is not None
        tree, parent = git(wt.path, "rev-parse", f"{sha}^{{tree}}", f"{sha}^").split()
        stamp = f"@{int(WHEN.timestamp())} +0000"
        environment = {"GIT_AUTHOR_NAME": author.name, "GIT_AUTHOR_EMAIL": author.email, "GIT_AUTHOR_DATE": stamp,
                       "GIT_COMMITTER_NAME": author.name, "GIT_COMMITTER_EMAIL": author.email, "GIT_COMMITTER_DATE": stamp}
        (tmp_path / "message").write_text(message)
        gits = git(wt.path, "commit-tree", tree, "-p", parent, "-F", str(tmp_path / "message"), **environment)
        assert git(wt.path, "cat-file", "commit", gits) == git(wt.path, "cat-file", "commit", sha)
        assert gits == sha
        write(wt.path, {"new": "y"})


@pytest.mark.parametrize(("settings", "content"), [
    ({"core.autocrlf": "input"}, b"a\r\nb\r\n"), ({"core.autocrlf": "true"}, b"a\r\n"), ({"core.autocrlf": "input"}, b"plain\n"),
    ({"core.fileMode": "false"}, b"x"), ({"core.symlinks": "false"}, b"x"), ({"index.version": "4"}, b"x"),
    ({"feature.manyFiles": "true"}, b"x"), ({"core.splitIndex": "true"}, b"x"), ({"core.untrackedCache": "true"}, b"x"),
    ({"core.sharedRepository": "group"}, b"x"), ({"core.fileMode": ""}, b"x"), ({"core.symlinks": ""}, b"x"),
])
def test_the_repositorys_settings_count_as_with_git(
    tmp_path: Path, by_git: list[int], settings: dict[str, str], content: bytes,
) -> None:
    path = make_repo(tmp_path / "theirs", {"run.sh": "x\n", "b/c": "y\n"})
    for key, value in settings.items():
        git(path, "config", key, value)
    wt = mission(path, tmp_path)
    write(wt.path, {"b/new": content, "run.sh": content})
    (wt.path / "run.sh").chmod(0o755)
    expected = whole_tree(wt, tmp_path / "spare")
    sha = r.commit(wt, "Change\n", BOB, WHEN)
    assert sha is not None
    assert git(wt.path, "rev-parse", f"{sha}^{{tree}}") == expected
    assert r.status(wt) == []
    assert len(by_git) == (b"\r" in content or "core.symlinks" in settings)


def test_attributes_that_are_in_no_commit_count(tmp_path: Path) -> None:
    for n, place in enumerate((".git/info/attributes", "home")):
        path = make_repo(tmp_path / f"theirs{n}")
        where = tmp_path / "home/.config/git/attributes" if place == "home" else path / place
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text("* text eol=lf\n")
        wt = mission(path, tmp_path, f"{n:08}")
        write(wt.path, {"new": b"a\r\n"})
        sha = r.commit(wt, "Change\n", BOB, WHEN)
        assert git(path, "cat-file", "blob", f"{sha}:new") == "a"


@pytest.mark.parametrize("kind", ["ignored", "beside the worktree's files", "another person's"])
def test_attributes_count_wherever_git_finds_them(tmp_path: Path, kind: str) -> None:
    path = make_repo(tmp_path / "theirs", {"rules": "* text eol=lf\n", "sub/a": "1\n", ".gitignore": ".gitattributes\n"})
    me = pwd.getpwuid(os.getuid())
    named = {"beside the worktree's files": "rules",
             "another person's": f"~{me.pw_name}/{os.path.relpath(path / 'rules', me.pw_dir)}"}.get(kind)
    if named is not None:
        git(path, "config", "core.attributesFile", named)
    wt = mission(path, tmp_path)
    write(wt.path, {"sub/new": b"a\r\n", **({"sub/.gitattributes": "* text eol=lf\n"} if named is None else {})})
    sha = r.commit(wt, "Change\n", BOB, WHEN)
    assert git(path, "cat-file", "blob", f"{sha}:sub/new") == "a"


@pytest.mark.parametrize(("files", "size", "asked"), [(50, 1, []), (51, 1, [51]), (2, store.MAX_PLAIN_BYTES // 2 + 1, [2])])
def test_much_at_once_is_gits(tmp_path: Path, by_git: list[int], files: int, size: int, asked: list[int]) -> None:
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    write(wt.path, {f"new{n}": str(n) * size for n in range(files)})
    assert r.commit(wt, "Change\n", BOB, WHEN) is not None
    assert by_git == asked
    assert r.status(wt) == []


def test_line_ends_that_a_check_out_would_change_stop_no_commit(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs")
    git(path, "config", "core.autocrlf", "true")
    git(path, "config", "core.safecrlf", "true")
    wt = mission(path, tmp_path)
    write(wt.path, {"unix": "a\n", "windows": "b\r\n"})
    sha = r.commit(wt, "Change\n", BOB, WHEN)
    assert [git(path, "cat-file", "blob", f"{sha}:{name}") for name in ("unix", "windows")] == ["a", "b"]


def test_what_is_only_announced_to_git_is_in_no_commit(tmp_path: Path) -> None:
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    write(wt.path, {"mine": "1\n", "theirs": "2\n"})
    git(wt.path, "add", "-N", "theirs")
    sha = r.commit(wt, "Change\n", BOB, WHEN, choose=lambda _: ["mine"])
    assert git(wt.path, "ls-tree", "--name-only", str(sha)).split() == ["README.md", "mine"]


def test_folders_as_deep_as_no_program_thinks_are_gits(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs")
    blob = git(path, "hash-object", "-w", "--stdin", stdin=b"x\n")
    git(path, "update-index", "--index-info", stdin=f"100644 {blob}\t{'d/' * 1_500}f\n".encode())
    tree = git(path, "write-tree")
    index = store.Index(path / ".git/index", 20)
    assert index.tree(path / ".git/objects") == tree
    index.put(path / ".git/objects", b"new", store.Found(path.lstat(), b"x"), keep_mode=True)
    index.put(path / ".git/objects", b"d/" * 1_500 + b"g", store.Found(path.lstat(), b"x"), keep_mode=True)
    with pytest.raises(store.Peculiar):
        index.tree(path / ".git/objects")


def test_an_index_of_many_folders_is_read_in_a_moment(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs")
    blob = git(path, "hash-object", "-w", "--stdin", stdin=b"x\n")
    rows = "".join(f"100644 {blob}\tin/{n % 100}/{n}/f\n" for n in range(40_000))
    git(path, "update-index", "--index-info", stdin=rows.encode())
    git(path, "write-tree")
    index = path / ".git/index"
    began = time.process_time()
    read = store.Index(index, 20)
    took = time.process_time() - began
    assert len(read.named()) == 40_001
    assert took < 3  # a copy of the rest at each folder takes a minute
    read.write()
    assert git(path, "write-tree") == read.tree(path / ".git/objects")


@pytest.mark.parametrize("name", [".git", ".GIT", "sub/.git/x", "git~1", ".git /x", ".git.", ".git::$INDEX_ALLOCATION",
                                  ".gitmodules", "gitmod~1", ".g\u200cit", "a\\.git", "..", "a//b", "a/../b"])
def test_a_name_that_some_system_takes_for_gits_own_is_left_to_git(tmp_path: Path, name: str) -> None:
    with pytest.raises(store.Peculiar):
        store.look(-1, os.fsencode(name))


def test_nothing_outside_is_read_through_a_link(tmp_path: Path) -> None:
    write(tmp_path, {"outside/secret": "key", "top/a": "1"})
    (tmp_path / "top/way").symlink_to("../outside")
    (tmp_path / "top/pipe").mkdir()
    os.mkfifo(tmp_path / "top/fifo")
    top = os.open(tmp_path / "top", os.O_RDONLY)
    try:
        for name in (b"way/secret", b"pipe", b"fifo", b"gone"):
            with pytest.raises(store.Peculiar):
                store.look(top, name)
        assert store.look(top, b"way").content == b"../outside"
        assert store.look(top, b"a").content == b"1"
    finally:
        os.close(top)


def test_every_new_object_is_on_the_disk_before_the_branch_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_repo(tmp_path / "theirs")
    wt = mission(path, tmp_path)
    write(wt.path, {"deep/down/a": "1\n", "b": "2\n"})
    before = set((path / ".git/objects").rglob("*"))
    on_disk: list[int] = []
    fsync, move = os.fsync, worktrees.update_ref
    monkeypatch.setattr(os, "fsync", lambda file: (fsync(file), on_disk.append(os.fstat(file).st_ino))[0])
    monkeypatch.setattr(worktrees, "update_ref", lambda *given: (on_disk.append(-1), move(*given))[1])
    assert r.commit(wt, "Change\n", BOB, WHEN) is not None
    new = {p.stat().st_ino for p in set((path / ".git/objects").rglob("*")) - before if p.is_file()}
    assert len(new) == 6  # two files, three folders, the commit
    assert set(on_disk[:on_disk.index(-1)]) >= new


def test_a_shared_repositorys_new_folders_are_the_groups(tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    objects.chmod(0o2770)
    name = store.write_object(objects, b"blob", b"x", 20).hex()
    assert stat.S_IMODE((objects / name[:2]).stat().st_mode) == 0o2770
    assert stat.S_IMODE((objects / name[:2] / name[2:]).stat().st_mode) == 0o444


def test_an_object_that_a_power_cut_left_empty_is_written_again(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs", {"a": "hello\n"})
    name = git(path, "rev-parse", "HEAD:a")
    lost = path / ".git/objects" / name[:2] / name[2:]
    lost.unlink()
    lost.touch()
    assert store.write_object(path / ".git/objects", b"blob", b"hello\n", 20).hex() == name
    assert git(path, "cat-file", "blob", name) == "hello"


def test_a_folder_that_a_clean_up_takes_away_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / store.digest_of(b"blob", b"x", 20).hex()[:2]
    folder.mkdir()
    is_dir = Path.is_dir

    def gone(path: Path) -> bool:
        found = is_dir(path)
        monkeypatch.undo()
        folder.rmdir()  # as `git gc` does
        return found

    monkeypatch.setattr(Path, "is_dir", gone)
    name = store.write_object(tmp_path, b"blob", b"x", 20).hex()
    assert (folder / name[2:]).exists()


@pytest.mark.parametrize("what", ["object", "index"])
def test_what_cannot_be_written_in_the_repository_is_its_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str,
) -> None:
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    write(wt.path, {"new": "x"})

    def refuse(path: Path, to: object) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied", str(to))

    monkeypatch.setattr(Path, "rename", refuse)
    if what == "index":
        monkeypatch.setattr(store, "_write_file", lambda _path, _raw: None)
    with pytest.raises(r.GitError, match=r"unable to write .*Permission denied"):
        r.commit(wt, "Change\n", BOB, WHEN)
    assert not list(wt.repo.common_dir.rglob("*.lock"))
    assert not list(wt.repo.common_dir.rglob("tmp_obj*"))


def test_an_object_that_is_there_is_made_young_again(tmp_path: Path) -> None:
    name = store.write_object(tmp_path, b"blob", b"x", 20).hex()
    path = tmp_path / name[:2] / name[2:]
    os.utime(path, (1, 1))
    store.write_object(tmp_path, b"blob", b"x", 20)
    assert path.stat().st_mtime > 1
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("damage", [lambda raw: b"", lambda raw: raw[:100], lambda raw: b"XXXX" + raw[4:],
                                    lambda raw: raw[:7] + b"\x09" + raw[8:],
                                    lambda raw: raw[:11] + b"\xff" + raw[12:-20] + bytes(20)])
def test_a_damaged_index_is_gits_to_complain_about(tmp_path: Path, damage: object) -> None:
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    index = wt.git_dir / "index"
    raw = index.read_bytes()
    assert callable(damage)
    index.write_bytes(damage(raw))
    with pytest.raises(store.Peculiar):
        store.Index(index, 20)


def test_another_git_at_work_in_the_worktree_is_said_and_nothing_is_moved(tmp_path: Path) -> None:
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    write(wt.path, {"new": "x"})
    (wt.git_dir / "index.lock").touch()
    with pytest.raises(r.GitError, match=r"index\.lock"):
        r.commit(wt, "Change\n", BOB, WHEN)
    assert git(wt.path, "rev-parse", "HEAD") == wt.base
    (wt.git_dir / "index.lock").unlink()
    assert r.commit(wt, "Change\n", BOB, WHEN) is not None


def test_a_branch_that_somebody_moved_is_theirs(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs")
    wt = mission(path, tmp_path)
    write(wt.path, {"new": "x"})
    moved: list[str] = []

    def move(found: list[str]) -> list[str]:
        moved.append(git(path, "commit-tree", f"{wt.base}^{{tree}}", "-p", wt.base, "-m", "Mine"))
        git(path, "update-ref", "refs/heads/feat/deadbeef", moved[0])
        return found

    with pytest.raises(r.RepositoryChanged, match="moved by somebody else"):
        r.commit(wt, "Change\n", BOB, WHEN, choose=move)
    assert git(path, "rev-parse", "feat/deadbeef") == moved[0]
    assert not (wt.git_dir / "index.lock").exists()


# --- one process that moves references ------------------------------------------------------------------------


def test_one_process_moves_them_all_and_goes_with_its_block(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs")
    calls: list[r.GitCall] = []
    repo = r.open_repo(path, on_call=calls.append)
    base = r.head(repo)
    zeros = "0" * 40
    with r.moving(repo) as mover:
        mover.move("refs/placet/x/1", base, zeros)
        first = mover._process
        mover.move("refs/placet/x/2", base, zeros)
        mover.move("refs/placet/x/1", zeros, base)
        assert mover._process is first
        with pytest.raises(r.GitError, match="refs/placet/x/2") as caught:
            mover.move("refs/placet/x/2", base, zeros)
        assert caught.value.returncode > 0
        mover.move("refs/placet/x/3", base, zeros)  # a new one: git ends at an error
        assert first is not None
        assert mover._process is not first
        assert first.returncode is not None
        last = mover._process
    assert last is not None
    assert last.returncode is not None
    assert git(path, "for-each-ref", "--format=%(refname)", "refs/placet").split() == ["refs/placet/x/2", "refs/placet/x/3"]
    assert [call.argv[0] for call in calls if call.argv[0] == "update-ref"] == ["update-ref"] * 5
    assert not list((path / ".git").rglob("*.lock"))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_hooks_that_the_repository_configures_are_off_while_references_are_moved(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs")
    git(path, "config", "hook.spy.command", "touch /tmp/spied")  # git 2.54 has them, past core.hooksPath
    git(path, "config", "hook.spy.event", "reference-transaction")
    repo = r.open_repo(path)
    with r.moving(repo) as mover:
        mover.move("refs/placet/x/1", r.head(repo), "0" * 40)
        assert mover._process is not None
        told = Path(f"/proc/{mover._process.pid}/environ").read_bytes().split(b"\0")
    settings = {value.partition(b"=")[2] for value in told if value.startswith(b"GIT_CONFIG_KEY_")}
    assert settings >= {b"hook.spy.command", b"hook.spy.enabled"}


def test_a_mover_that_was_killed_is_started_anew_and_says_so_once(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs")
    repo = r.open_repo(path)
    base, zeros = r.head(repo), "0" * 40
    with r.moving(repo) as mover:
        mover.move("refs/placet/x/1", base, zeros)
        assert mover._process is not None
        mover._process.kill()
        with pytest.raises(r.GitError, match="was killed by signal 9"):
            mover.move("refs/placet/x/2", base, zeros)
        mover.move("refs/placet/x/2", base, zeros)
    assert r.ref_now(repo, "refs/placet/x/2") == base


def test_a_mover_that_outlived_its_daemon_ends_what_it_is_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock of a reference is removed only when nobody can hold it any more."""
    wt = mission(make_repo(tmp_path / "theirs"), tmp_path)
    lock = tmp_path / "theirs/.git/refs/heads/feat/deadbeef.lock"
    monkeypatch.setattr(worktrees, "MOVE_S", 60.0)
    lock.touch()
    began = time.monotonic()
    timer = threading.Timer(0.4, lock.unlink)
    timer.start()
    r.clear_stale_locks(wt)
    assert 0.3 < time.monotonic() - began < 50
    timer.join()
    lock.touch()
    os.utime(lock, (1, 1))
    r.clear_stale_locks(wt)
    assert not lock.exists()
    assert time.monotonic() - began < 50, "an old one is not waited for"
    monkeypatch.setattr(worktrees, "MOVE_S", 0.3)
    lock.touch()
    r.clear_stale_locks(wt)
    assert not lock.exists()


@pytest.mark.parametrize("packed", [False, True])
def test_a_reference_is_read_as_git_reads_it(tmp_path: Path, packed: bool) -> None:
    path = make_repo(tmp_path / "theirs")
    git(path, "branch", "feat/x-1")
    git(path, "symbolic-ref", "refs/heads/other", "refs/heads/main")
    if packed:
        git(path, "pack-refs", "--all")
    repo = r.open_repo(path)
    for name in ("feat/x-1", "main", "other", "feat", "x-1", "gone"):
        ref = f"refs/heads/{name}"
        assert r.ref_now(repo, ref) == r.resolve(repo, ref), ref
    assert r.free_branch(repo, "x", "1", WHEN) == "feat/x-1-20261121120000"
