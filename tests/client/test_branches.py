"""Test the commands that merge, undo and drop a mission's branch, and that show its diff."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from branchkit import (
    FILES,
    MERGES,
    again,
    as_finished,
    became,
    finished_once,
    hands,
    pick,
    row_of,
    yes,
)
from gitkit import commit_all, fingerprint, git, make_repo, settle_home, write
from placet.client import branches
from placet.client.branches import drop, merge_outlook, undo
from placet.errors import UserError
from vaultkit import TestVault, meddling, running, until


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "home"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path / "repo", FILES)


@pytest.fixture(scope="module")
def once_done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return finished_once(tmp_path_factory.mktemp("done"))


@pytest.fixture
def done(once_done: tuple[Path, str]) -> tuple[TestVault, Path, str]:
    return as_finished(*once_done)


def test_unsafe_merge_is_refused_without_changes(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, branch = done

    def refused(why: str) -> None:
        before = fingerprint(repo)
        with pytest.raises(UserError, match=why):
            branches.merge(vault.site, "say-hello", here=False)
        assert fingerprint(repo) == before

    (repo / "a.txt").write_text("changed\n")
    refused("uncommitted changes: 'a.txt'")
    git(repo, "checkout", "-q", "a.txt")
    (repo / "one.txt").write_text("mine\n")
    refused("one.txt is not committed")
    (repo / ".git/info/exclude").write_text("one.txt\n")
    refused("one.txt is not committed")  # git would write over an ignored file without a word
    (repo / "one.txt").unlink()
    (repo / ".git/info/exclude").unlink()
    git(repo, "checkout", "-q", "--detach")
    refused("HEAD is detached")
    git(repo, "checkout", "-q", "-b", "other")
    refused("is on other, not on main")
    git(repo, "checkout", "-q", "main")
    (repo / ".git/index.lock").touch()
    refused("index.lock")
    (repo / ".git/index.lock").unlink()
    (repo / ".git/MERGE_HEAD").write_text(git(repo, "rev-parse", branch) + "\n")
    refused("A merge is in progress")
    (repo / ".git/MERGE_HEAD").unlink()
    write(repo, {"one.txt": "another\n"})
    commit_all(repo, "Meanwhile")
    # what `git merge --abort` leaves a trace in
    aborted = {"ORIG_HEAD": None, "index": None, "logs/HEAD": None}
    before = {**fingerprint(repo), **aborted}
    with pytest.raises(UserError, match=r"conflicts in: one\.txt"):
        branches.merge(vault.site, "say-hello", here=False)
    assert {**fingerprint(repo), **aborted} == before
    assert git(repo, "status", "--porcelain") == ""


def test_outlook_says_what_a_merge_would_do(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, _ = done
    case = vault.site.case("say-hello")
    before = fingerprint(repo)
    found = merge_outlook(vault.site, case)
    assert (found.onto, found.conflicts, found.why_not) == ("main", (), "")
    assert found.files == len(git(repo, "diff", "--name-only", "HEAD..." + done[2]).splitlines())
    assert found.added > 0
    assert fingerprint(repo) == before
    (repo / "a.txt").write_text("changed\n")
    assert "uncommitted changes: 'a.txt'" in merge_outlook(vault.site, case).why_not
    git(repo, "checkout", "-q", "a.txt")
    git(repo, "checkout", "-q", "-b", "other")
    assert "is on other, not on main" in merge_outlook(vault.site, case).why_not
    git(repo, "checkout", "-q", "main")
    write(repo, {"one.txt": "another\n"})
    commit_all(repo, "Meanwhile")
    assert merge_outlook(vault.site, case).conflicts == ("one.txt",)
    git(repo, "branch", "-qD", done[2])
    assert "is gone" in merge_outlook(vault.site, case).why_not


def test_merge_refuses_only_filtered_files(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    write(repo, {".gitattributes": "*.txt filter=lfs\n"})
    commit_all(repo, "Large files")
    before = git(repo, "rev-parse", "main")
    refused = vault.click("merge", "say-hello", check=False).stderr
    assert "one.txt passes through the filter lfs, which placet does not run" in refused
    assert f"git -C {repo} merge --no-ff {git(repo, 'rev-parse', branch)[:12]}" in refused
    assert git(repo, "rev-parse", "main") == before
    write(repo, {".gitattributes": "*.bin filter=lfs\n", "old.bin": "version 1\n"})
    commit_all(repo, "Only pictures")
    vault.click("merge", "say-hello")
    vault.click("undo", "say-hello", "--yes")


def test_merge_refuses_new_filter(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    git(repo, "checkout", "-q", branch)
    write(repo, {".gitattributes": "*.bin filter=lfs\n"})
    commit_all(repo, "A person's commit")
    git(repo, "checkout", "-q", "main")
    assert (
        ".gitattributes passes through the filter lfs"
        in vault.click("merge", "say-hello", check=False).stderr
    )


@pytest.mark.parametrize("where", ["the repository's own", "the person's"])
def test_filter_outside_commits_is_detected(
    done: tuple[TestVault, Path, str], home: Path, where: str
) -> None:
    vault, repo, _ = done
    file = (
        repo / ".git/info/attributes"
        if where == "the repository's own"
        else home / ".config/git/attributes"
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("*.psd filter=lfs\n")
    assert vault.click("portal", "check").returncode == 0
    assert "git LFS" not in vault.click("portal", "check").stdout  # there is no such file
    file.write_text("*.txt filter=lfs\n")
    assert "git LFS" in vault.click("portal", "check").stdout
    before = fingerprint(repo)
    assert "passes through the filter" in vault.click("merge", "say-hello", check=False).stderr
    assert fingerprint(repo) == before


@pytest.mark.parametrize("way", ["fast-forward", "squash at a forge", "cherry-pick"])
def test_undo_reverts_any_merge_method_in_one_commit(
    done: tuple[TestVault, Path, str], way: str
) -> None:
    vault, repo, branch = done
    if way != "fast-forward":
        write(repo, {"other.txt": "meanwhile\n"})
        commit_all(repo, "Meanwhile")
    files = git(repo, "rev-parse", "HEAD^{tree}")
    MERGES[way](repo, branch)
    merged = git(repo, "rev-parse", "HEAD")
    undo(vault.site, "say-hello", yes)
    assert git(repo, "rev-parse", "HEAD^{tree}", "HEAD^").splitlines() == [files, merged]
    assert git(repo, "status", "--porcelain") == ""
    assert not (repo / ".git/REVERT_HEAD").exists()
    assert not (repo / ".git/sequencer").exists()


@pytest.mark.parametrize("way", ["octopus", "by way of another branch", "with more on top"])
def test_undo_keeps_other_work_of_same_merge(done: tuple[TestVault, Path, str], way: str) -> None:
    vault, repo, branch = done
    git(repo, "checkout", "-q", "-b", "others", branch if way == "with more on top" else "main")
    write(repo, {"others.txt": "theirs\n"})
    commit_all(repo, "Others")
    if way == "by way of another branch":
        git(repo, "merge", "-q", "--no-ff", "--no-edit", branch)
    git(repo, "checkout", "-q", "main")
    write(repo, {"other.txt": "meanwhile\n"})
    commit_all(repo, "Meanwhile")
    git(
        repo,
        "merge",
        "-q",
        "--no-ff",
        "--no-edit",
        "others",
        *([branch] if way == "octopus" else []),
    )
    undo(vault.site, "say-hello", yes)
    left = {"a.txt", "other.txt", *([] if way == "with more on top" else ["others.txt"])}
    assert {p.name for p in repo.glob("*.txt")} == left
    assert git(repo, "status", "--porcelain") == ""


def test_conflicting_undo_leaves_checkout_unchanged(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, branch = done
    MERGES["fast-forward"](repo, branch)
    write(repo, {"one.txt": "changed since\n"})
    commit_all(repo, "Since")
    before = {**fingerprint(repo), "index": None}
    with pytest.raises(UserError, match=r"conflicts in: one\.txt"):
        undo(vault.site, "say-hello", yes)
    assert {**fingerprint(repo), "index": None} == before
    assert git(repo, "status", "--porcelain") == ""


def test_only_commands_record_who_merged_or_undid(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, _ = done
    vault.click("merge", "say-hello")
    vault.here()
    vault.click("undo", "say-hello", "--yes")
    vault.here()
    git(repo, "revert", "--no-edit", "HEAD")
    vault.here()
    vault.click("undo", "say-hello", "--yes")
    vault.here()
    vault.click("merge", "say-hello")
    vault.here()
    me = getpass.getuser()
    assert hands(vault) == [
        ("pr.merged", me, "cli"),
        ("pr.reverted", me, "cli"),
        ("pr.merged", None, None),
        ("pr.reverted", me, "cli"),
        ("pr.merged", me, "cli"),
    ]


def test_merge_can_be_undone_after_retry(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, _ = done
    vault.click("merge", "say-hello")
    vault.here()
    vault.click("retry", "say-hello")
    vault.here()
    assert vault.click("diff", "say-hello").stdout
    vault.click("undo", "say-hello", "--yes")
    vault.here()
    assert not (repo / "one.txt").exists()
    assert [action for action, *_ in hands(vault)] == ["pr.merged", "pr.reverted"]


def test_undone_merge_can_be_merged_again(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    for _ in range(2):
        vault.click("merge", "say-hello")
        why = vault.click("why", "say-hello").stdout
        assert f"Its branch {branch}: merged" in why, "though no daemon looked"
        vault.here()
        assert became(vault) == "merged"
        assert (repo / "one.txt").exists()
        again = vault.click("merge", "say-hello", check=False)
        assert f"main has {branch} already" in again.stderr
        assert "placet undo say-hello" in again.stderr
        vault.click("undo", "say-hello", "--yes")
        why = vault.click("why", "say-hello").stdout
        assert f"Its branch {branch}: reverted" in why
        assert "placet merge say-hello" in why
        vault.here()
        assert became(vault) == "reverted"
        assert not (repo / "one.txt").exists()
    # also what a person took back with git
    vault.click("merge", "say-hello")
    git(repo, "revert", "--no-edit", "HEAD")
    (repo / "one.txt").write_text("mine\n")
    git(repo, "add", "one.txt")
    git(repo, "commit", "-qm", "mine")
    conflict = vault.click("merge", "say-hello", check=False)
    assert "conflicts in: one.txt" in conflict.stderr
    assert git(repo, "status", "--porcelain") == ""
    git(repo, "reset", "-q", "--hard", "HEAD^")
    vault.click("merge", "say-hello")
    assert (repo / "one.txt").read_text() == "one\n"


@pytest.mark.parametrize("by", ["drop", "undo", "git"])
@pytest.mark.thinned(2)
def test_merging_dropped_branch_names_restore_command(
    done: tuple[TestVault, Path, str], by: str
) -> None:
    vault, repo, branch = done
    if by == "drop":
        vault.click("drop", "say-hello", "--reason", "no")
    elif by == "undo":
        vault.click("undo", "say-hello", "--yes")
    else:
        git(repo, "branch", "-D", branch)
    fate = "gone" if by == "git" else "dropped"
    assert f"{branch}: {fate}" in vault.click("why", "say-hello").stdout
    vault.here()
    gone = vault.click("merge", "say-hello", check=False)
    assert gone.returncode == 3
    command, _, then = gone.stderr.partition("then merge it: ")[2].strip().partition(" && placet ")
    subprocess.run(shlex.split(command), check=True)
    vault.here()
    vault.click(*shlex.split(then))
    assert (repo / "one.txt").read_text() == "one\n"


def test_dropping_keeps_the_commits_and_the_reason(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    tip = git(repo, "rev-parse", branch)
    git(repo, "checkout", "-q", branch)
    with pytest.raises(UserError, match="checked out"):
        drop(vault.site, "say-hello", "Never mind")
    assert "Never mind" not in vault.reports()[0].read_text()
    git(repo, "checkout", "-q", "main")
    before = fingerprint(repo)
    kept = drop(vault.site, "say-hello", "No: not that")
    assert fingerprint(repo) == before
    assert git(repo, "rev-parse", kept) == tip
    assert git(repo, "branch", "--list", "feat/*") == ""
    vault.here()
    assert (row_of(vault)["action"], row_of(vault)["reason"]) == ("pr.rejected", "No: not that")
    with pytest.raises(UserError, match="dropped already"):
        undo(vault.site, "say-hello", yes)


def test_merge_undo_and_drop_print_json(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done

    def told(*args: str) -> object:
        return json.loads(vault.click(*args, "--json").stdout)

    before = fingerprint(repo)
    assert vault.click("undo", "say-hello", stdin="n\n", check=False).returncode == 1
    assert branch in git(repo, "branch", "--list", "feat/*")
    assert fingerprint(repo) == before
    assert told("merge", "say-hello") == {
        "commit": git(repo, "rev-parse", "HEAD"),
        "branch": "main",
    }
    assert told("undo", "say-hello", "--yes") == {
        "commit": git(repo, "rev-parse", "HEAD"),
        "branch": "main",
    }
    git(repo, "reset", "-q", "--hard", "HEAD~2")
    tip = git(repo, "rev-parse", branch)
    for command in (["drop", "say-hello", "--reason", "No"], ["undo", "say-hello", "--yes"]):
        git(repo, "branch", "-f", branch, tip)
        match told(*command):
            case {"kept": str(kept)}:
                assert git(repo, "rev-parse", kept) == tip
            case other:
                raise AssertionError(other)


def test_undo_reverts_only_its_own_identical_commit(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, first = done
    second = again(vault, "once-more")
    write(repo, {"other.txt": "meanwhile\n"})
    commit_all(repo, "Meanwhile")
    pick(repo, first)
    git(repo, "rm", "-q", "one.txt", "two.txt")
    git(repo, "commit", "-q", "-m", "Not this")
    for commit in git(repo, "rev-list", "--reverse", f"main..{second}").split():
        git(repo, "cherry-pick", commit)
    vault.click("undo", "once-more", "--yes")
    assert not (repo / "one.txt").exists()
    assert f"This reverts commit {git(repo, 'rev-parse', 'HEAD^')}" in git(
        repo, "log", "-1", "--format=%B"
    )


def test_undo_names_author_of_commit_without_trailer(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, branch = done
    MERGES["merge"](repo, branch)
    said = vault.click("undo", "say-hello", stdin="n\n", check=False)
    assert f"\"Merge branch '{branch}'\" of Ann Person" in said.stdout + said.stderr


def squash_with_own_work(repo: Path, branch: str) -> None:
    """Merge a mission's branch and a file of the person's in one commit that names the mission."""
    message = git(repo, "log", "-1", "--format=%B", branch)
    git(repo, "merge", "-q", "--squash", branch)
    write(repo, {"mine.txt": "a day of my own work\n"})
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", message)


def test_undo_asks_about_other_files_of_commit(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    squash_with_own_work(repo, branch)
    for answer in ("", "n\n"):  # a pipe without an answer, and a no
        said = vault.click("undo", "say-hello", stdin=answer, check=False)
        assert said.returncode == 1
        assert "files that are not the mission's, too: mine.txt." in said.stderr
        assert (repo / "mine.txt").exists()
    vault.click("undo", "say-hello", stdin="y\n")
    assert not (repo / "mine.txt").exists()


def test_drop_refuses_other_commits_than_seen(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    with pytest.raises(UserError, match="other commits than you read"):
        drop(vault.site, "say-hello", "no", seen=git(repo, "rev-parse", f"{branch}^"))
    assert git(repo, "branch", "--list", branch)
    drop(vault.site, "say-hello", "no", seen=git(repo, "rev-parse", branch))
    assert not git(repo, "branch", "--list", branch)


def test_undo_drops_only_the_branch_it_asked_about(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done

    def commits_meanwhile(_question: str) -> bool:
        new = git(repo, "commit-tree", "-p", branch, "-m", "mine", f"{branch}^{{tree}}")
        git(repo, "update-ref", f"refs/heads/{branch}", new)
        return True

    with pytest.raises(UserError, match="other commits than you read"):
        undo(vault.site, "say-hello", commits_meanwhile)
    assert git(repo, "branch", "--list", branch)


LEFT = {"ORIG_HEAD": None, "index": None, "logs/HEAD": None}


"""What git itself writes before it finds out that it cannot do what it was asked for, or where its times differ."""


GIT = shutil.which("git")


def instead_of_git(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let `script` run where git is started: `$real` is git, `$*` has the arguments."""
    program = folder / "bin" / "git"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/bash\nreal={GIT}\n{script}\nexec $real "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def states(repo: Path) -> list[str]:
    """What is in progress in a checkout."""
    return [
        name
        for name in ("MERGE_HEAD", "REVERT_HEAD", "CHERRY_PICK_HEAD", "sequencer", "index.lock")
        if (repo / ".git" / name).exists()
    ]


@pytest.mark.parametrize("lock", ["refs/heads/main.lock", "HEAD.lock"])
def test_foreign_git_lock_leaves_checkout_unchanged(
    done: tuple[TestVault, Path, str], lock: str
) -> None:
    vault, repo, _ = done
    for command in ("merge", "undo"):
        before = {**fingerprint(repo), **LEFT}
        (repo / ".git" / lock).touch()
        refused = vault.click(
            command, "say-hello", *(["--yes"] if command == "undo" else []), check=False
        )
        (repo / ".git" / lock).unlink()
        assert refused.returncode == 1
        assert "and your files are as you saved them" in refused.stderr
        assert {**fingerprint(repo), **LEFT} == before
        assert (git(repo, "status", "--porcelain"), states(repo)) == ("", [])
        vault.click("merge", "say-hello", check=command == "merge")


def test_failed_merge_is_rolled_back(
    done: tuple[TestVault, Path, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vault, repo, _ = done
    before = {**fingerprint(repo), **LEFT}
    fail = f'echo one > {repo}/one.txt; echo "disk full" >&2; exit 128'
    instead_of_git(repo.parent, monkeypatch, f'case "$*" in *--ff-only*) {fail};; esac')
    refused = vault.click("merge", "say-hello", check=False)
    assert (
        "git does not merge: disk full\n  Nothing was merged, and your files are as"
        in refused.stderr
    )
    assert {**fingerprint(repo), **LEFT} == before
    instead_of_git(
        repo.parent,
        monkeypatch,
        f'case "$*" in *--ff-only*) : > {repo}/.git/index.lock; kill -9 $$;; esac',
    )
    refused = vault.click("merge", "say-hello", check=False)
    assert "git stopped in the middle" in refused.stderr
    assert f"If no git runs there, first: rm {repo}/.git/index.lock" in refused.stderr


def test_merge_keeps_file_created_at_last_moment(
    done: tuple[TestVault, Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    vault, repo, _ = done
    instead_of_git(
        repo.parent, monkeypatch, f'case "$*" in *--ff-only*) echo mine > {repo}/one.txt;; esac'
    )
    assert "would be overwritten" in vault.click("merge", "say-hello", check=False).stderr
    assert git(repo, "status", "--porcelain") == "?? one.txt"
    assert (repo / "one.txt").read_text() == "mine\n"


def test_interrupt_waits_for_git_to_finish_checkout(
    done: tuple[TestVault, Path, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vault, repo, _ = done
    instead_of_git(
        repo.parent, monkeypatch, 'case "$*" in *--ff-only*) kill -INT $PPID; sleep 0.2;; esac'
    )
    # a suite in the background is started to ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    idle = threading.Event()
    another = threading.Thread(target=idle.wait)  # which the signal may be given to
    another.start()
    try:
        branches.merge(vault.site, "say-hello", here=False)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        idle.set()
        another.join()
        signal.signal(signal.SIGINT, before)
    assert (git(repo, "status", "--porcelain"), states(repo)) == ("", [])
    assert (repo / "one.txt").exists()


@pytest.mark.parametrize("command", ["merge", "undo", "drop"])
@pytest.mark.thinned(2)
def test_killed_command_is_atomic_and_repeatable(
    done: tuple[TestVault, Path, str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    vault, repo, branch = done
    if command == "undo":
        branches.merge(vault.site, "say-hello", here=False)
    count, deaths = repo.parent / "count", 0
    begin = {**fingerprint(repo), **LEFT}
    acts = {
        "merge": lambda: branches.merge(vault.site, "say-hello", here=False),
        "undo": lambda: undo(vault.site, "say-hello", yes),
        "drop": lambda: drop(vault.site, "say-hello", "Never mind"),
    }
    with monkeypatch.context() as patch:
        instead_of_git(
            repo.parent,
            patch,
            'case "$*" in *update-ref*|*merge-tree*|*commit-tree*|*--ff-only*) '
            f'echo >> {count};; *) exec $real "$@";; esac\n'  # the others only read
            f'[ $(wc -l < {count}) = $(cat {count}.at) ] && {{ kill -9 $PPID; $real "$@"; touch {count}.done; exit; }}',
        )
        for point in (1, *range(1, 20)):  # what is done when it is repeated is not counted again
            count.write_text("")
            (repo.parent / "count.at").write_text(str(point))
            # it dies in the middle, or at once where it was not killed
            if (child := os.fork()) == 0:
                try:
                    acts[command]()
                finally:
                    os._exit(0)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
                break  # it came to its end before
            until((repo.parent / "count.done").exists, "the last git ends by itself")
            (repo.parent / "count.done").unlink()
            assert (git(repo, "status", "--porcelain"), states(repo)) == ("", []), point
            now = {**fingerprint(repo), **LEFT}
            assert now == begin or (
                now["refs"] != begin["refs"] and now["files"] != begin["files"]
            ), point
            deaths += 1
    assert deaths > 1
    assert (repo / "one.txt").exists() == (command == "merge")
    assert (branch in git(repo, "branch", "--list", "feat/*")) == (command != "drop")


def test_concurrent_merges_merge_once(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, _ = done
    with ThreadPoolExecutor() as both:
        ended = list(both.map(lambda _: vault.cli("merge", "say-hello", check=False), range(2)))
    assert sorted(one.returncode for one in ended) == [0, 1]
    assert "already" in "".join(one.stderr for one in ended)
    assert git(repo, "rev-list", "--count", "--merges", "main") == "1"
    assert git(repo, "status", "--porcelain") == ""


def test_merge_returns_after_daemon_records_it(done: tuple[TestVault, Path, str]) -> None:
    vault, _, _ = done
    with meddling(), running(vault):
        for command, became in ((["merge"], "merged"), (["undo", "--yes"], "reverted")):
            vault.click(command[0], "say-hello", *command[1:])
            told = json.loads(vault.click("show", "say-hello", "--json").stdout)
            assert told["became"] == became


def test_undo_names_the_branch_that_has_the_merge(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    git(repo, "checkout", "-q", "-b", "mywork2")
    vault.click("merge", "say-hello", "--here")
    git(repo, "checkout", "-q", "main")
    refused = vault.click("undo", "say-hello", "--yes", check=False)
    assert refused.returncode == 1
    assert "It is merged into mywork2. Check that branch out to undo it." in refused.stderr
    assert branch in git(repo, "branch", "--list", "feat/*")
    assert "merged into mywork2" in vault.click("why", "say-hello").stdout
    git(repo, "checkout", "-q", "mywork2")
    vault.click("undo", "say-hello", "--yes")
    assert not (repo / "one.txt").exists()


def test_drop_keeps_other_branch_at_same_commit(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    git(repo, "branch", "-m", branch, "mine")
    git(repo, "symbolic-ref", f"refs/heads/{branch}", "refs/heads/mine")
    for nothing in ("", " \n"):
        done = vault.click("drop", "say-hello", "--reason", nothing, check=False)
        assert done.returncode == 2
        assert "The reason is empty." in done.stderr
    vault.click("drop", "say-hello", "--reason", "Mine now")
    assert git(repo, "for-each-ref", "--format=%(refname)", "refs/heads").splitlines() == [
        "refs/heads/main",
        "refs/heads/mine",
    ]


def test_refused_drop_writes_no_reason(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, branch = done
    report = vault.reports()[0]
    text = report.read_bytes()

    def refused(*pieces: str) -> None:
        said = vault.click("drop", "say-hello", "--reason", "Never mind", check=False)
        assert said.returncode == 1
        assert all(piece in said.stderr for piece in pieces), said.stderr
        assert branch in git(repo, "branch", "--list", "feat/*")

    (repo / ".git/packed-refs.lock").touch()
    refused("git does not drop", "packed-refs.lock", "Nothing was dropped")
    (repo / ".git/packed-refs.lock").unlink()
    assert report.read_bytes() == text
    report.write_bytes(b"---\nkey: [unclosed\n---\n" + text)
    refused("cannot be written into the report", "broken YAML", "branch -D")
    report.unlink()
    report.symlink_to("/dev/null")
    refused("cannot be written into the report", "not an ordinary file")
    report.unlink()
    report.write_bytes(text)
    git(repo, "worktree", "add", "-q", str(repo.parent / "theirs"), branch)
    refused(f"checked out in {repo.parent / 'theirs'}", "switch")
    shutil.rmtree(repo.parent / "theirs")
    refused("worktree prune")
    git(repo, "worktree", "prune")
    write(repo, {"one.txt": "another\n"})
    commit_all(repo, "Meanwhile")
    git(repo, "rebase", "main", branch, check=False)
    refused("being rebased")
    git(repo, "rebase", "--abort")
    assert report.read_bytes() == text


def test_piped_diff_is_an_exact_applicable_patch(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, branch = done
    git(repo, "checkout", "-q", branch)
    odd = {
        "bin": bytes(range(256)),
        "latin.txt": b"caf\xe9\r\n\x1b[2J\n",
        "new\nline": b"x",
        "big.txt": b"line of text\n" * 100_000,
    }
    write(repo, odd)
    commit_all(repo, "Odd")
    git(repo, "checkout", "-q", "main")
    shown = subprocess.run(
        [sys.executable, "-m", "placet", "diff", "say-hello"],
        cwd=vault.root,
        env=vault.env,
        capture_output=True,
        check=True,
    )
    git(repo, "apply", "--binary", "-", stdin=shown.stdout)
    assert {name: (repo / name).read_bytes() for name in odd} == odd


def test_diff_of_updated_branch_omits_merged_changes(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, branch = done
    write(repo, {"other.txt": "meanwhile\n"})
    commit_all(repo, "Meanwhile")
    git(repo, "rebase", "-q", "main", branch)
    git(repo, "checkout", "-q", "main")
    text = vault.click("diff", "say-hello").stdout
    assert "+one" in text
    assert "meanwhile" not in text
    git(repo, "merge", "-q", "--no-ff", "--no-edit", branch)
    assert "+one" in vault.click("diff", "say-hello").stdout
