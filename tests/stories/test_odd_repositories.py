"""Run missions in odd repositories: a branch with the work, or an error before any change.

Other shapes are in `tests/git/test_repository.py`. `conftest` checks around every run that no
repository of the person is touched.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitkit import commit_all, git, make_repo, write
from looping import Fake, Time, bare_vault, greeter, looping, results, says, turns_taken
from placet.chat.messages import Ask, Purpose, Reply
from placet.git.attributes import not_kept_here
from placet.git.repository import head, open_repo
from placet.git.worktree import add_worktree
from vaultkit import DONE, PLAN, TestVault, make_vault

pytestmark = pytest.mark.usefixtures("home")


@dataclass(frozen=True)
class Shape:
    """`make` builds the repository in a folder and returns it.

    `report` must stand in the report, or `error` be the reason.
    """

    make: Callable[[Path], Path]
    report: str = "It could be merged into `main` without conflicts."
    error: str = ""


def empty(at: Path) -> Path:
    at.mkdir()
    git(at, "init", "-q", "repo")
    return at / "repo"


def plain(at: Path, **files: str) -> Path:
    return make_repo(at / "repo", {"README.md": "hello\n", **files})


def bare(at: Path) -> Path:
    git(plain(at), "clone", "-q", "--bare", ".", "../bare.git")
    return at / "bare.git"


def submodule(at: Path) -> Path:
    make_repo(at / "inner")
    git(plain(at), "submodule", "add", "-q", str(at / "inner"), "module")
    return commit_all(at / "repo", "Add a submodule")


def renamed(at: Path) -> Path:
    git(plain(at), "branch", "-m", "trunk")
    return at / "repo"


def slashes(at: Path) -> Path:
    git(plain(at), "branch", "feat")  # no room for feat/…
    git(at / "repo", "checkout", "-q", "-b", "some/one's/work")
    return at / "repo"


def not_utf_8(at: Path) -> Path:
    """The branch that is checked out, and a file that is in no commit."""
    write(plain(at), {os.fsdecode(b"mine \xff.txt"): "mine\n"})
    git(at / "repo", "branch", "-m", os.fsdecode(b"caf\xe9"))
    git(at / "repo", "remote", "add", "origin", "https://example.org/x.git")
    return at / "repo"


def collisions(at: Path) -> Path:
    return plain(at, **{"readme.md": "another\n", "Sub/x": "1", "sub/X": "2"})


def dirty(at: Path) -> Path:
    write(plain(at), {"README.md": "changed\n", "new.txt": "mine\n"})
    return at / "repo"


def locked(at: Path) -> Path:
    write(plain(at), {".git/index.lock": "", ".git/refs/heads/main.lock": ""})
    return at / "repo"


def no_repository(at: Path) -> Path:
    write(at / "folder", {"README.md": "hello\n"})
    return at / "folder"


def inside_another(at: Path) -> Path:
    return plain(at, **{"sub/a.txt": "a\n"}) / "sub"


SHAPES = {
    "empty": Shape(empty, error="has no commit yet"),
    "bare": Shape(bare, "The repository is bare"),
    "submodule": Shape(submodule, "Submodules are empty folders in a worktree: 'module'"),
    "renamed": Shape(renamed, "ahead of `trunk`"),
    "slashes": Shape(slashes, "Branch `feat-"),
    "not-utf-8": Shape(not_utf_8, "it was 1 commit ahead of `caf\\xe9`"),
    "collisions": Shape(collisions),
    "dirty": Shape(dirty, "did not see uncommitted files in your checkout: `README.md`, `new.txt`"),
    "locked": Shape(locked),
    "new": Shape(no_repository),
    "inside": Shape(inside_another, error="inside the one at"),
}


def serve(tmp_path: Path, places: dict[str, Path]) -> TestVault:
    """Have a file written in each of these repositories, all at once."""
    vault = make_vault(tmp_path / "v")
    portals = "".join(f'[portals.{name}]\npath = "{place}"\n' for name, place in places.items())
    vault.configure(f"[daemon]\nplans_at_once = 8\nmissions_at_once = 8\n{portals}")
    vault.plays(PLAN, *DONE)
    for name in places:
        vault.drop(f"---\nportal: {name}\n---\nSay hello.\n", f"{name}.md")
    vault.here()
    for name in places:
        if vault.plan(name).exists():
            vault.approve(name)
    vault.here()
    return vault


def test_every_repository_shape_works_or_is_refused_unchanged(tmp_path: Path) -> None:
    places = {name: shape.make(tmp_path / name) for name, shape in SHAPES.items()}
    vault = serve(tmp_path, places)
    done = {row["entity_id"]: row["metadata"] for row in vault.rows("execution.completed")}
    refused = {row["entity_id"]: row["metadata"]["reason"] for row in vault.rows("plan.failed")}
    failed = {row["entity_id"]: row["metadata"] for row in vault.rows("execution.failed")}
    reports = {
        name: path.read_text()
        for path in vault.reports()
        for name in SHAPES
        if path.stem.endswith(f"_{name}")
    }
    for name, shape in SHAPES.items():
        if shape.error:
            assert shape.error in refused.pop(name), name
            continue
        assert name in done, (name, refused.get(name), failed.get(name))
        assert git(places[name], "show", f"{done[name]['branch']}:hello.txt") == "hello", name
        assert (
            git(places[name], "show", "--format=", "--name-only", done[name]["branch"])
            == "hello.txt"
        ), name
        assert shape.report in reports[name], (name, reports[name])
    merge = next(
        line for line in reports["bare"].splitlines() if line.startswith("git clone ")
    ).partition("  #")[0]
    (tmp_path / "elsewhere").mkdir()
    subprocess.run(
        ["sh", "-ec", merge], cwd=tmp_path / "elsewhere", check=True, capture_output=True
    )
    assert git(places["bare"], "show", "HEAD:hello.txt") == "hello", (
        "the report's own command merged it"
    )
    assert refused == {}
    assert git(places["new"], "log", "-1", "--format=%an, %cn") == "Ann Person, Ann Person", (
        "their files, their commit"
    )
    assert {row["entity_id"] for row in vault.rows("git.initialized")} == {"new"}


def test_person_and_agent_are_told_what_worktree_lacks(tmp_path: Path) -> None:
    repo = submodule(tmp_path)
    write(repo, {".gitattributes": "*.bin filter=lfs\n", "a.bin": "version 1\n"})
    commit_all(repo, "Large files")
    vault = bare_vault(tmp_path / "v", f'[portals.code]\npath = "{repo}"\n')
    said = (
        "Submodules are empty folders in a worktree: 'module'.",
        "Files kept with git LFS appear as small pointer files, and must not be edited.",
    )
    looks = ("list_directory", {"path": "."}), ("list_directory", {"path": "module"})

    def model(ask: Ask) -> Reply:
        if ask.purpose is Purpose.EXECUTE or turns_taken(ask):
            return greeter(ask)
        return says(*looks)

    fake = Fake(model)
    with looping(vault, model=lambda: fake, time=Time()) as run:
        vault.drop("---\nportal: code\n---\nSay hello.\n")
        run.settle()
        box = vault.plan().read_text().partition("# Say hello")[0]
        vault.approve()
        run.settle()
    for text in (box, fake.asks[0].system[0], fake.asks[-1].system[0]):
        assert all(one in text for one in said), text
    listed = results(fake.asks[1])
    assert "module/ (a submodule, empty here)" in listed[0]
    assert listed[1] == "A submodule, empty here. Nothing can be read or written in it."
    assert len(vault.rows("execution.completed")) == 1


def test_partial_clone_names_missing_files_and_command(tmp_path: Path) -> None:
    source = plain(tmp_path, **{"sub/a": "1\n", "sub/b": "2\n"})
    git(source, "config", "uploadpack.allowFilter", "true")
    git(source, "config", "uploadpack.allowAnySHA1InWant", "true")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--filter=blob:none", "--sparse", f"file://{source}", str(clone))
    vault = serve(tmp_path, {"code": clone})
    why = vault.rows("plan.failed")[0]["metadata"]["reason"]
    command = f"git -C {clone} fetch --refetch --no-filter origin"
    assert "2 files of this commit are not on this machine, as the clone is partial" in why
    assert command in why
    assert "2 files of this commit" in vault.click("portal", "check").stdout
    subprocess.run([*shlex.split(command), "-q"], check=True, capture_output=True)
    assert "of this commit" not in vault.click("portal", "check").stdout
    vault.click("retry", "code")
    vault.here()
    vault.approve("code")
    vault.here()
    assert len(vault.rows("execution.completed")) == 1


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("required", False),
        ("Required", False),
        ("required = true", False),
        ("required = yes", False),
        ("required = 1k", False),
        ("required = -1", False),
        ("required = true\n\trequired = false", True),
        ("required = 0x0", True),
        ("required =", True),
        ("required = OFF", True),
        ("", True),
    ],
)
def test_required_filter_prevents_keeping_file(tmp_path: Path, line: str, kept: bool) -> None:
    repo = make_repo(tmp_path / "repo", {".gitattributes": "*.key filter=crypt\n", "a.key": "x\n"})
    with (repo / ".git/config").open("a") as file:
        file.write(f'[filter "crypt"]\n\tclean = cat\n\t{line}\n')
    opened = open_repo(repo)
    tree = add_worktree(opened, tmp_path / "state/m", "feat/m", head(opened))
    assert (not_kept_here(tree, ["a.key", "b.txt"]) == {}) is kept


def test_uncommittable_paths_are_refused_rest_succeeds(tmp_path: Path) -> None:
    repo = submodule(tmp_path)
    write(
        repo, {".gitattributes": "*.bin filter=lfs -text\n*.key filter=crypt\n*.nb filter=strip\n"}
    )
    git(repo, "config", "filter.crypt.required", "true")
    git(repo, "config", "filter.strip.clean", "cat")
    commit_all(repo, "Attributes")
    vault = make_vault(tmp_path / "v")
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    files = ("hello.txt", "in/a.bin", "a.key", "a.nb", "module/a.txt", "modules.txt")
    vault.plays(
        {**PLAN, "scope": {"write": ["**"]}},
        [("write_file", {"path": path, "content": "hello\n"}) for path in files],
        [("complete_step", {"step": 1, "summary": "Hello"}), ("finish", {"summary": "Done."})],
    )
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    vault.approve()
    vault.here()
    refused = [
        (row["metadata"]["error_type"], row["metadata"]["target"])
        for row in vault.rows("tool.refused")
    ]
    assert refused == [("not_kept_here", path) for path in ("in/a.bin", "a.key", "module/a.txt")]
    branch = vault.rows("execution.completed")[0]["metadata"]["branch"]
    assert git(repo, "show", "--format=", "--name-only", branch).split() == [
        "a.nb",
        "hello.txt",
        "modules.txt",
    ]


def commanded(tmp_path: Path, repo: Path, script: str) -> TestVault:
    """Have a mission run a shell script in this repository."""
    vault = make_vault(tmp_path / "v")
    vault.configure(f'[commands]\nsandbox = "none"\n[portals.code]\npath = "{repo}"\n')
    make = {"tool": "run_command", "params": {"command": "sh", "args": ["-c", script]}}
    vault.plays(
        {
            **PLAN,
            "steps": [{"title": "Make it", "actions": [make]}],
            "scope": {"write": ["**"], "run": ["sh -c"]},
        }
    )
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    vault.approve()
    vault.here()
    return vault


def test_lfs_file_made_by_command_is_not_committed(tmp_path: Path) -> None:
    repo = plain(tmp_path, **{".gitattributes": "*.bin filter=lfs -text\n", "old.bin": "version …"})
    vault = commanded(tmp_path, repo, "rm old.bin; echo made > new.bin")
    failed = vault.rows("execution.failed")[0]["metadata"]
    assert (failed["error_type"], git(repo, "branch", "--list", "feat/*")) == ("not_kept_here", "")
    assert (
        "new.bin cannot be changed here: git stores it through the filter lfs"
        in vault.reports()[0].read_text()
    )


def test_submodule_change_by_command_fails_mission(tmp_path: Path) -> None:
    vault = commanded(
        tmp_path, submodule(tmp_path), "mkdir -p module/in; echo made > module/in/a.txt"
    )
    assert vault.rows("execution.failed")[0]["metadata"]["error_type"] == "not_kept_here"
    assert (
        "module/in/a.txt cannot be changed here: it is in the submodule module"
        in vault.reports()[0].read_text()
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    at = tmp_path / "disk"
    at.mkdir()
    if (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(at)], capture_output=True
        ).returncode
        != 0
    ):
        pytest.skip("a file system can only be mounted by root")
    yield at
    subprocess.run(["umount", "-l", str(at)], check=True)


def test_full_disk_delays_planning_without_changes(tmp_path: Path, small_disk: Path) -> None:
    repo = plain(small_disk)
    subprocess.run(["dd", "if=/dev/zero", f"of={repo / 'mine.bin'}", "bs=4k"], capture_output=True)
    vault = serve(tmp_path, {"full": repo})
    assert vault.rows("plan.created") == []
    (repo / "mine.bin").unlink()
    vault.here()
    vault.approve("full")
    vault.here()
    assert len(vault.rows("execution.completed")) == 1
