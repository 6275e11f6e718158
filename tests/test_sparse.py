"""Large repositories are checked out folder by folder, as a mission reads; nobody can tell but by time and disk."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchkit import bench, real
from gitkit import git, make_repo, settle_home, write
from placet import executor
from placet import repo as r
from placet.core.errors import Interrupted
from placet.repo import worktrees
from placet.repo.cone import Cone
from placet.sandbox import Level, probe
from test_repo import BOB, MESSAGE, WHEN
from vaultkit import PLAN, make_vault

FILES: dict[str, str | bytes] = {
    "README.md": "hello\n", "src/main.py": "import big\n", "src/app/deep/leaf.py": "leaf = 1\n", "src/app/here.py": "here = 1\n",
    "src/other/x.txt": "x\n", "big/1.txt": "1\n", "big/in/2.txt": "two\n", "big/in/.env": "TOKEN=hunter2hunter2\n",
    "docs/a b/[x].md": "*\n", "docs/new\nline/y.md": "y\n", "docs/\\back/z.md": "z\n",
}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)


def there(wt: r.Worktree) -> set[str]:
    return {str(p.relative_to(wt.path)) for p in wt.path.rglob("*") if p.is_file()} - {".git"}


def mission(tmp_path: Path, *folders: str, files: dict[str, str | bytes] | None = None) -> r.Worktree:
    repo = r.open_repo(make_repo(tmp_path / "theirs", files or FILES))
    return r.add_worktree(repo, tmp_path / "state/deadbeef", "feat/x", r.head(repo), folders=folders)


# --- which folders --------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=4).filter(
    lambda name: name not in (".", ".."))
FOLDERS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), max_size=6)


@given(shallow=FOLDERS, deep=FOLDERS)
def test_what_was_asked_for_is_in_the_cone_and_what_is_written_is_read(shallow: list[str], deep: list[str]) -> None:
    cone = Cone().wider(shallow, deep=False).wider(deep, deep=True)
    assert all(cone.has(folder, deep=False) for folder in ["", *shallow])
    assert all(cone.has(f"{folder}/below", deep=True) for folder in deep)
    again = Cone.read(cone.patterns())
    assert again.patterns() == cone.patterns()
    for folder in (*shallow, *deep, "a", "a/b", ""):
        for whole in (False, True):
            assert again.has(folder, deep=whole) == cone.has(folder, deep=whole)


# --- in a worktree --------------------------------------------------------------------------------------------


def test_only_what_is_named_is_checked_out_and_the_rest_is_brought(tmp_path: Path) -> None:
    wt = mission(tmp_path, "src/app")
    assert there(wt) == {"README.md", "src/main.py", "src/app/here.py"}
    assert sorted(p.name for p in wt.path.iterdir() if p.is_dir()) == ["big", "docs", "src"]
    assert sorted(p.name for p in (wt.path / "src").iterdir()) == ["app", "main.py", "other"]
    assert r.is_sparse(wt)
    assert r.status(wt) == []
    assert r.snapshot(wt) == git(wt.path, "rev-parse", "HEAD^{tree}")
    assert git(wt.path, "status", "--porcelain") == ""  # for somebody else's git, too
    write(wt.path, {"src/app/here.py": "here = 2\n"})
    r.fill(wt, ["big"], deep=True)
    assert {"big/1.txt", "big/in/2.txt"} <= there(wt)
    assert (wt.path / "src/app/here.py").read_text() == "here = 2\n"
    r.fill(wt, ["docs/new\nline"], deep=False)  # no pattern can name it: everything around it comes
    assert there(wt) == set(FILES) - {"src/app/deep/leaf.py", "src/other/x.txt"}
    r.fill(wt, [""], deep=True)
    assert there(wt) == set(FILES)
    assert (wt.path / "src/app/here.py").read_text() == "here = 2\n"
    assert not r.is_sparse(wt)


def test_a_commit_has_what_is_not_checked_out(tmp_path: Path) -> None:
    wt = mission(tmp_path, "src")
    write(wt.path, {"src/main.py": "changed\n", "src/new/x.py": "new\n", "big/in/3.txt": "three\n"})
    assert [c.path for c in r.status(wt)] == ["big/in/3.txt", "src/main.py", "src/new/x.py"]
    kept = r.checkpoint(wt, "refs/placet/ckpt/x", "Kept", WHEN)
    sha = r.commit(wt, MESSAGE, BOB, WHEN)
    assert sha is not None
    assert git(wt.path, "rev-parse", f"{kept}^{{tree}}") == git(wt.path, "rev-parse", f"{sha}^{{tree}}")
    assert [c.path for c in r.changes(wt.repo, wt.base, sha)] == ["big/in/3.txt", "src/main.py", "src/new/x.py"]
    assert r.status(wt) == []
    r.fill(wt, [""], deep=True)
    assert r.status(wt) == []
    assert there(wt) == {*FILES, "src/new/x.py", "big/in/3.txt"}
    r.remove_worktree(wt)
    assert git(tmp_path / "theirs", "fsck", "--strict") == ""


def test_a_change_where_nothing_is_checked_out_is_never_missed(tmp_path: Path) -> None:
    wt = mission(tmp_path)
    write(wt.path, {"big/1.txt": "mine\n"})  # past everything that would have brought it first
    assert [(c.path, c.status) for c in r.status(wt)] == [("big/1.txt", "M")]
    r.fill(wt, ["src"], deep=True)
    assert (wt.path / "big/1.txt").read_text() == "mine\n"
    sha = r.commit(wt, MESSAGE, BOB, WHEN)
    assert git(wt.path, "show", f"{sha}:big/1.txt") == "mine"


def test_going_back_to_a_checkpoint_keeps_the_folders(tmp_path: Path) -> None:
    wt = mission(tmp_path, "src")
    write(wt.path, {"src/main.py": "one\n"})
    kept = r.checkpoint(wt, "refs/placet/ckpt/x", "Kept", WHEN)
    write(wt.path, {"src/main.py": "two\n", "src/more.py": "x\n"})
    r.restore(wt, kept)
    assert (wt.path / "src/main.py").read_text() == "one\n"
    assert there(wt) == {"README.md", "src/main.py"}
    assert (wt.path / "big").is_dir()
    assert [c.path for c in r.status(wt)] == ["src/main.py"]


def test_taken_up_again_it_has_what_it_had(tmp_path: Path) -> None:
    wt = mission(tmp_path, "src")
    r.fill(wt, ["big"], deep=False)
    write(wt.path, {"big/1.txt": "mine\n"})
    again = r.add_worktree(wt.repo, wt.path, wt.branch, wt.base, folders=("src",))
    assert there(again) == {"README.md", "src/main.py", "big/1.txt"}
    assert [c.path for c in r.status(again)] == ["big/1.txt"]
    (wt.git_dir / "index").unlink()  # killed while it was first checked out
    whole = r.add_worktree(wt.repo, wt.path, wt.branch, wt.base)
    assert there(whole) == set(FILES)


def torn(wt: r.Worktree, *args: str) -> None:
    """What git may have done when it is killed, or the disk is full: some files are there, one of them half."""
    write(wt.path, {"big/1.txt": "1\n", "big/in/2.txt": "tw"})
    (wt.git_dir / "index.lock").touch()


def test_a_folder_whose_bringing_was_killed_half_way_is_brought_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wt = mission(tmp_path, "src")

    class KilledError(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        torn(wt)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(worktrees, "run_git", killed)
        with pytest.raises(KilledError):
            r.fill(wt, ["big"], deep=True)
    again = r.add_worktree(wt.repo, wt.path, wt.branch, wt.base, folders=("src",))
    r.clear_stale_locks(again)
    assert r.status(again) == []
    assert there(again) == {"README.md", "src/main.py"}
    r.fill(again, ["big"], deep=True)
    assert (wt.path / "big/in/2.txt").read_text() == "two\n"
    assert r.status(again) == []


def test_bringing_a_folder_onto_a_full_disk_changes_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    wt = mission(tmp_path, "src")

    def full(_: object, *args: str, **__: object) -> None:
        torn(wt)
        (wt.git_dir / "index.lock").unlink()
        raise r.GitError(args, 128, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(worktrees, "run_git", full)
        with pytest.raises(r.GitError):
            r.fill(wt, ["big"], deep=True)
    assert r.status(wt) == []
    assert there(wt) == {"README.md", "src/main.py"}
    r.fill(wt, ["big"], deep=True)
    assert (wt.path / "big/in/2.txt").read_text() == "two\n"
    assert list((wt.git_dir / "info").iterdir()) == [wt.git_dir / "info/sparse-checkout"]


def test_folders_that_a_kill_left_out_are_laid_out_in_the_next_life(tmp_path: Path) -> None:
    wt = mission(tmp_path, "src")
    (wt.path / "big").rmdir()
    r.add_worktree(wt.repo, wt.path, wt.branch, wt.base, folders=("src",))
    assert (wt.path / "big").is_dir()


def test_what_a_killed_commit_has_staged_stays_when_more_is_brought(tmp_path: Path) -> None:
    wt = mission(tmp_path, "src")
    write(wt.path, {"src/main.py": "mine\n", "src/new.py": "new\n"})
    git(wt.path, "add", "src")  # as `commit` leaves it where it is killed before the branch is moved
    r.fill(wt, ["big"], deep=True)
    assert (wt.path / "src/main.py").read_text() == "mine\n"
    assert [(c.path, c.status) for c in r.status(wt)] == [("src/main.py", "M"), ("src/new.py", "A")]
    assert (wt.path / "big/1.txt").exists()


def test_a_lost_worktree_gets_back_what_was_changed_outside_its_first_folders(tmp_path: Path) -> None:
    wt = mission(tmp_path, "src")
    r.fill(wt, ["big/in", "docs/a b"], deep=False)
    write(wt.path, {"big/in/2.txt": "mine\n", "src/other/new.txt": "new\n", "fresh/x": "x\n"})
    (wt.path / "docs/a b/[x].md").unlink()
    changed = r.status(wt)
    kept = r.checkpoint(wt, "refs/placet/ckpt/x", "Kept", WHEN)
    shutil.rmtree(wt.path)
    again = r.add_worktree(wt.repo, wt.path, wt.branch, wt.base, folders=("src",))
    r.restore(again, kept)
    assert r.status(again) == changed
    assert (again.path / "big/in/2.txt").read_text() == "mine\n"
    assert len(changed) == 4


def test_a_change_is_not_missed_where_the_repository_says_that_files_are_to_lie_anywhere(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs", FILES)
    git(path, "config", "sparse.expectFilesOutsideOfPatterns", "true")
    repo = r.open_repo(path)
    wt = r.add_worktree(repo, tmp_path / "state/deadbeef", "feat/x", r.head(repo), folders=())
    write(wt.path, {"big/1.txt": "mine\n"})
    assert [c.path for c in r.status(wt)] == ["big/1.txt"]


def test_no_configuration_is_written(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs", FILES)
    before = (path / ".git/config").read_bytes()
    repo = r.open_repo(path)
    wt = r.add_worktree(repo, tmp_path / "state/deadbeef", "feat/x", r.head(repo), folders=())
    r.fill(wt, ["big"], deep=True)
    assert (path / ".git/config").read_bytes() == before
    assert not (wt.git_dir / "config.worktree").exists()
    assert not (path / ".git/info/sparse-checkout").exists()


# --- as tools see it ------------------------------------------------------------------------------------------

SPOTS = [*FILES, ".", "src", "src/app", "src/app/deep", "big", "big/in", "docs", "docs/a b", "nowhere", "nowhere/x",
         "src/main.py/x", "src/new.py", "fresh/new.py", "big/in/new.txt", ".git/config", "../x"]


def calls(chance: random.Random) -> Iterator[tuple[str, dict[str, object]]]:
    while True:
        spot = chance.choice(SPOTS)
        yield chance.choice([
            ("read_file", {"path": spot}), ("list_directory", {"path": spot}),
            ("glob", {"pattern": chance.choice([f"{spot}/**", "**/*.py", f"{spot}/*"])}),
            ("grep", {"pattern": "e", "path": spot}), ("search_files", {"pattern": "t", "path": spot}),
            ("write_file", {"path": spot, "content": f"{chance.random()}\n"}),
            ("edit_file", {"path": spot, "old": "1", "new": "2"}),
        ])


@pytest.mark.parametrize("seed", range(12))
def test_every_tool_answers_as_in_a_whole_worktree(tmp_path: Path, seed: int) -> None:
    answers = []
    for kind in ("sparse", "real"):
        where = tmp_path / kind
        where.mkdir()
        with bench(kind, where, FILES) as at:
            said = [(call, at.tools.dispatch(*call)) for call, _ in zip(calls(random.Random(seed)), range(25), strict=False)]
            answers.append(([(call, done.ok, done.content) for call, done in said], at.files()))
    assert answers[0][0] == answers[1][0]
    assert answers[0][1] == answers[1][1]


def test_a_link_into_a_folder_that_is_not_there_leads_there(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs", FILES)
    (path / "link").symlink_to("big/in")
    (path / "src/up").symlink_to("../big/1.txt")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "Links")
    repo = r.open_repo(path)
    wt = r.add_worktree(repo, tmp_path / "up/worktree", "", r.head(repo), folders=())
    with real(wt.path, sparse=wt) as tools:
        assert tools.dispatch("read_file", {"path": "link/2.txt"}).content == "two\n"
        assert tools.dispatch("read_file", {"path": "src/up"}).content == "1\n"


@pytest.mark.parametrize("path", ["big/" + "y" * 300, "y" * 300 + "/x"])
def test_a_name_that_is_too_long_is_an_error_as_anywhere(tmp_path: Path, path: str) -> None:
    with bench("sparse", tmp_path, FILES) as at:
        for name in ("read_file", "list_directory"):
            assert at.fails(name, path=path)["error_type"] == "bad_path"


def test_secrets_behind_a_link_are_known(tmp_path: Path) -> None:
    path = make_repo(tmp_path / "theirs", {**FILES, "vault/real": "API_KEY=swordfish-swordfish\n", "a/b": "swordfish-swordfish\n"})
    (path / "docs/.env").symlink_to("../vault/real")
    git(path, "add", "-A", "-f")
    git(path, "commit", "-q", "-m", "Link")
    repo = r.open_repo(path)
    wt = r.add_worktree(repo, tmp_path / "up/worktree", "", r.head(repo), folders=())
    with real(wt.path, sparse=wt) as tools:
        assert "swordfish" not in tools.dispatch("read_file", {"path": "a/b"}).content


def test_secrets_of_folders_that_are_not_there_are_known(tmp_path: Path) -> None:
    with bench("sparse", tmp_path, {**FILES, "src/leak.py": "token = 'hunter2hunter2'\n"}) as at:
        assert "hunter2hunter2" not in at.call("read_file", path="src/leak.py")


# --- as a mission ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [False, True], ids=["tools only", "with commands"])
def test_a_mission_takes_from_a_large_repository_what_it_needs(tmp_path: Path, runs: bool) -> None:
    vault = make_vault(tmp_path)
    path = make_repo(tmp_path / "theirs", {**FILES, **{f"many/{n}/x.txt": f"{n}\n" for n in range(60)}})
    sandbox = '[commands]\nsandbox = "none"\n' if probe().level is Level.NONE else ""
    vault.configure('[model]\nprovider = "scripted"\nname = "test"\nscript = "System/replies.toml"\n' + sandbox
                    + f'[daemon]\nsparse_from_files = 50\n[portals.code]\npath = "{path}"\n')
    tools = ["read_file", "grep", "list_directory", "write_file", *(["run_command"] if runs else [])]
    plan = {**PLAN, "title": "Mend it", "steps": [{"title": "Mend it", "tools": tools, "done_when": ["done"]}],
            "scope": {"write": ["src/app/**"], "run": ["cat"] if runs else []}}
    vault.script(
        ("plan", [{"calls": [("list_directory", {"path": "."}), ("read_file", {"path": "src/main.py"})]},
                  {"calls": [("submit_plan", plan)]}]),
        ("execute", [
            {"calls": [("read_file", {"path": "src/main.py"}), ("list_directory", {"path": "many"}),
                       ("read_file", {"path": "many/7/x.txt"})]},
            *([{"calls": [("run_command", {"command": "cat", "args": ["many/8/x.txt"]})]}] if runs else []),
            {"calls": [("write_file", {"path": "src/app/new.py", "content": "new = 1\n"})]},
            {"calls": [("complete_step", {"step": 1, "summary": "Mend it"}), ("finish", {"summary": "Done."})]}]),
        request="mend-it")
    vault.drop("---\nportal: code\n---\nMend it.\n", "Mend it.md")
    vault.once()
    vault.approve("mend-it")
    vault.once()
    done = vault.await_action("execution.completed")["metadata"]
    assert done["files_changed"] == ["src/app/new.py"]
    assert git(path, "diff", "--name-only", "main", done["branch"]).splitlines() == ["src/app/new.py"]
    made = vault.rows("git.branch_created")[0]["metadata"]
    assert made["sparse"] is not runs
    reads = [row["metadata"] for row in vault.rows("tool.called")]
    assert all(row["ok"] for row in reads), reads
    assert json.loads(vault.cli("replay", "mend-it", "--json").stdout)["equal"] is True
    assert len(git(path, "worktree", "list").splitlines()) == 1


def test_a_lost_worktree_is_filled_again_where_the_daemon_was_killed_at_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = make_vault(tmp_path)
    vault.script(("plan", [{"calls": [("submit_plan", {**PLAN, "steps": [{"title": "Write it", "tools": ["write_file"]}]})]}]),
                 ("execute", [{"calls": [("complete_step", {"step": 1, "summary": "Done"}),
                                         ("write_file", {"path": "hello.txt", "content": "one\n"})]},
                              {"calls": [("finish", {"summary": "Done."})]}]))
    vault.drop("Say hello.\n")
    vault.once()
    vault.approve()

    ended, rebuild = executor._ended, executor._Work.rebuild
    lives: list[str] = []

    def end(work: Any, *rest: Any) -> Any:
        if not lives:
            lives.append("lost")
            shutil.rmtree(work.tree.path)
            raise Interrupted("killed")
        return ended(work, *rest)

    def fill_again(work: Any) -> None:
        lives.append("filled again")
        if lives.count("filled again") == 1:
            raise Interrupted("killed")
        rebuild(work)

    monkeypatch.setattr(executor, "_ended", end)
    monkeypatch.setattr(executor._Work, "rebuild", fill_again)
    vault.once()
    assert lives == ["lost", "filled again", "filled again"]
    assert vault.await_action("execution.completed")["metadata"]["files_changed"] == ["hello.txt"]
    assert list(vault.state.rglob("*.lost")) == []
