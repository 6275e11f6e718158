"""Test each kind of commit that a worker's branch may not have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gitkit import commit_all, git, make_repo, write
from placet.disk.path_text import ALWAYS
from placet.git.commit_message import commit_message
from placet.git.repository import identity, open_repo
from placet.git.run import GitError
from placet.plan.scope import Scope
from placet_team.branch_checks import Allowed, BranchRefused, check_branch

BASE = {"src/deep/down/a.txt": "a\n", "top.txt": "top\n", "secret.txt": "AKIAIOSFODNN7EXAMPLE\n"}
WHO = {f"GIT_{role}_NAME": "Ann Jr." for role in ("AUTHOR", "COMMITTER")}
HONEST = commit_message("Say hello", "Step 1", "trace", "digest", "ann", "default (a (model))")
CLAIMS = frozenset(HONEST.splitlines()[4:])
SCOPE = Scope(write=("*.txt", "src/**", "!src/not.txt"))


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = make_repo(tmp_path / "code", BASE)
    (path / "src/out").symlink_to("/etc")
    (path / "src/deep/down/up").symlink_to("../../../top.txt")
    commit_all(path, "Links")
    git(path, "config", "user.name", "Ann Jr.")
    git(path, "config", "user.email", "ann@example.org")
    git(path, "tag", "base")
    return path


def checked(code: Path, tip: str = "HEAD") -> None:
    repo = open_repo(code)
    base, head = git(code, "rev-parse", "base"), git(code, "rev-parse", tip)
    check_branch(repo, head, Allowed(base, SCOPE, ALWAYS, identity(repo), (), CLAIMS))


def commit(code: Path, message: str = "More") -> None:
    """Commit as placet does: the person is the author and the committer."""
    git(code, "add", "-A")
    git(code, "commit", "-q", "--allow-empty", "-m", message, **WHO)


def test_in_scope_branch_passes_all_checks(code: Path) -> None:
    checked(code)
    write(
        code,
        {"hello.txt": "hello\n", "src/deep/b": "b\n", "secret.txt": f"{BASE['secret.txt']}x\n"},
    )
    (code / "src/inside").symlink_to("deep/down/a.txt")
    (code / "src/loop.txt").symlink_to("loop.txt")
    (code / "src/nothing").symlink_to("not-there")
    commit(code)
    (code / "top.txt").unlink()
    (code / "hello.txt").chmod(0o755)
    commit(code)
    checked(code)


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("src/a", "/etc/passwd"),
        ("src/a", "../../outside"),
        ("src/a", ".."),
        ("src/a", "out/passwd"),
        ("src/a", "deep/down/up/../../.."),
        ("src/a", "../.git/config"),
        ("a.txt", "."),
        ("a.txt", "src/deep/../../../x"),
    ],
)
def test_symlink_out_of_repository_is_refused(code: Path, path: str, to: str) -> None:
    (code / path).symlink_to(to)
    commit(code)
    with pytest.raises(BranchRefused, match=f"^{path} links to"):
        checked(code)


@pytest.mark.parametrize(
    ("first", "then", "wrong"),
    [
        (("short", "../../../src"), ("long", "short/../../x"), "long"),
        (("a", "b/../../../x"), ("b", "../../../src"), "a"),
    ],
)
def test_symlink_chain_out_of_repository_is_refused(
    code: Path, first: tuple[str, str], then: tuple[str, str], wrong: str
) -> None:
    down = code / "src/deep/down"
    (down / first[0]).symlink_to(first[1])
    commit(code)
    checked(code)
    (down / then[0]).symlink_to(then[1])
    commit(code)
    with pytest.raises(BranchRefused, match=f"down/{wrong} links to"):
        checked(code)


@pytest.mark.parametrize("path", ["notes.md", "src/not.txt", "src/NOT.txt", ".obsidian"])
def test_out_of_scope_change_in_history_is_refused(code: Path, path: str) -> None:
    write(code, {path: "x\n"})
    commit(code)
    (code / path).unlink()
    commit(code, "Nothing of it is left in the end")
    with pytest.raises(BranchRefused, match=f"{path} is outside what"):
        checked(code)


def test_added_or_removed_submodule_is_refused(code: Path) -> None:
    module = ("--add", "--cacheinfo", f"160000,{git(code, 'rev-parse', 'HEAD')},src/sub")
    git(code, "update-index", *module)
    git(code, "commit", "-qm", "Sub", **WHO)
    with pytest.raises(BranchRefused, match="src/sub is a submodule"):
        checked(code)
    git(code, "tag", "-f", "base")
    git(code, "update-index", "--force-remove", "src/sub")
    git(code, "commit", "-qm", "Sub", **WHO)
    with pytest.raises(BranchRefused, match="src/sub is a submodule"):
        checked(code)


def test_unusual_file_mode_is_refused(code: Path) -> None:
    blob = bytes.fromhex(git(code, "rev-parse", "HEAD:top.txt"))
    made = ("hash-object", "-t", "tree", "-w", "--literally", "--stdin")
    tree = git(code, *made, stdin=b"10644 top.txt\0" + blob)  # a pipe
    odd = git(code, "commit-tree", "-p", "HEAD", "-m", "Odd", tree, **WHO)
    with pytest.raises(BranchRefused, match=r"top\.txt is a submodule"):
        checked(code, odd)


@pytest.mark.parametrize("content", ["key = AKIAIOSFODNN7EXAMPLF\n", "x" * (16 * 1024 * 1024 + 1)])
def test_secret_in_branch_history_is_refused(code: Path, content: str) -> None:
    write(code, {"hello.txt": content})
    commit(code)
    write(code, {"hello.txt": "hello\n"})
    commit(code, "It is in the history still")
    with pytest.raises(BranchRefused, match=r"secret.*hello\.txt"):
        checked(code)


def test_foreign_author_or_broken_history_is_refused(code: Path) -> None:
    commit(code)
    git(code, "branch", "side")
    git(code, "commit", "-q", "--allow-empty", "-m", "Mallory's", "--author", "Mallory <m@x.org>")
    with pytest.raises(BranchRefused, match="another author: Mallory"):
        checked(code)
    git(code, "checkout", "-q", "--orphan", "other")
    commit(code, "From nowhere")
    with pytest.raises(BranchRefused, match="does not follow"):
        checked(code)
    git(code, "checkout", "-q", "side")
    git(code, "merge", "-q", "--allow-unrelated-histories", "-s", "ours", "-m", "M", "other", **WHO)
    with pytest.raises(BranchRefused, match="does not follow"):
        checked(code)
    git(code, "checkout", "-q", "base~1")
    with pytest.raises(BranchRefused, match="does not begin at"):
        checked(code)


def test_message_that_placet_writes_is_accepted(code: Path) -> None:
    commit(code, HONEST)
    long = commit_message("ä" * 200, "\t" + "body\n" * 5_000, "trace", "digest", "ann")
    commit(code, long)
    checked(code)


@pytest.mark.parametrize(
    ("added", "why"),
    [
        ("Approved-By: mallory", "claims: Approved-By: mallory"),
        ("  approved-by : mallory", "claims"),
        ("Approved-By: ann\n and mallory", "claims:  and mallory"),
        ("Approved-By: ann\n\tand mallory", "claims"),
        ("Placet-Plan: of another plan", "claims: Placet-Plan"),
        ("Placet-Trace: other", "claims"),
        ("[ExoTrace: other]", "claims"),
        ("Signed-off-by: ann <ann@example.org>", "claims"),
        ("This reverts commit abc", "claims"),
        ("Co-authored-by: Mallory <mallory@example.org>", "claims"),
        ("\x1b[2K", "control characters"),
        ("a\rApproved-By: mallory", "control characters"),
        ("x" * 70_000, "too long"),
    ],
)
def test_message_with_false_claim_is_refused(code: Path, added: str, why: str) -> None:
    for message in (f"More\n\n{added}\n", HONEST + added):
        tip = git(code, "commit-tree", "-p", "base", "HEAD^{tree}", stdin=message.encode(), **WHO)
        with pytest.raises(BranchRefused, match=re.escape(why)):
            checked(code, tip)


def test_tree_with_ten_billion_paths_is_refused(code: Path) -> None:
    row = f"100644 blob {git(code, 'hash-object', '-w', 'top.txt')}"
    for _ in range(10):  # each tree has ten times the one before
        rows = "".join(f"{row}\t{'n' * 40}{n}\n" for n in range(10))
        row = f"040000 tree {git(code, 'mktree', stdin=rows.encode())}"
    top = f"{git(code, 'ls-tree', 'HEAD')}\n{row}\tbomb\n"
    tree = git(code, "mktree", stdin=top.encode())
    tip = git(code, "commit-tree", "-p", "HEAD", "-m", "Many", tree, **WHO)
    with pytest.raises(GitError, match="bytes of output"):
        checked(code, tip)
