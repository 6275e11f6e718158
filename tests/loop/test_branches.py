"""Test what becomes of a mission's branch, and the commands that merge, undo and drop it."""

from __future__ import annotations

import errno
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
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchkit import planned_mission
from gitkit import commit_all, fingerprint, git, make_repo, settle_home, write
from looping import Fake, Running, Time, bare_vault, greeter, looping, says, turns_taken
from placet.case.case import Branch
from placet.chat.messages import Ask, Purpose, Reply
from placet.client import branches
from placet.client.branches import drop, undo
from placet.errors import UserError
from placet.git.branch_facts import branch_facts
from placet.git.fate import BranchNews, Memory, look_at_branches
from placet.git.removal import delete_leftovers
from placet.git.repository import is_repository, open_repo
from placet.git.worktree import add_worktree
from placet.host.state import vault_state
from placet.loop import branches as watching
from placet.note.frontmatter import stamp
from placet.tools.commit_secrets import blank_secrets
from vaultkit import PLAN, TestVault, make_vault, meddling, running, until


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "home"


# --- after a mission


TOKEN = "ghp_" + "aB3d" * 9
FILES = {"a.txt": "".join(f"{n}\n" for n in range(20)), ".gitignore": "*.log\n"}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path / "repo", FILES)


@pytest.fixture(scope="module")
def once_done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in whose `kept` all of `here` is as it was after the mission, and the mission's
    branch.
    """
    folder = tmp_path_factory.mktemp("done")
    here = folder / "here"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settle_home(folder / "home").items():
            patch.setenv(name, value)
        branch = mission(make_vault(here), make_repo(here / "repo", FILES))
    shutil.copytree(here, folder / "kept", symlinks=True)
    return folder, branch


@pytest.fixture
def done(once_done: tuple[Path, str]) -> tuple[TestVault, Path, str]:
    """A vault, a repository, and the branch of a mission that wrote two files in two steps."""
    folder, branch = once_done
    here = folder / "here"
    shutil.rmtree(here)
    shutil.copytree(folder / "kept", here, symlinks=True)
    return TestVault(here / "vault", here / "state"), here / "repo", branch


def mission(vault: TestVault, repo: Path, more: str = "") -> str:
    vault.configure(more + f'[commands]\nsandbox = "none"\n[portals.code]\npath = "{repo}"\n')
    steps = [
        {
            "title": f"Step {n}",
            "actions": [
                {"tool": "write_file", "params": {"path": f"{n}.txt", "content": f"{n}\n"}}
            ],
        }
        for n in ("one", "two")
    ]
    vault.plays({**PLAN, "steps": steps, "scope": {"write": ["*.txt"]}})
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    vault.approve()
    vault.here()
    return str(vault.rows("execution.completed")[-1]["metadata"]["branch"])


def portal_table(repo: Path) -> str:
    return f'\n[portals.code]\npath = "{repo}"\n'


def test_report_describes_branch_and_unseen_changes(vault: TestVault, repo: Path) -> None:
    git(repo, "remote", "add", "-x", "https://example.org/bad.git", check=False)
    git(repo, "remote", "add", "hub", "https://example.org/hub.git")
    git(repo, "update-ref", "refs/remotes/hub/trunk", "main")
    git(repo, "symbolic-ref", "refs/remotes/hub/HEAD", "refs/remotes/hub/trunk")
    (repo / "unfinished.txt").write_text("mine")
    git(repo, "config", "commit.gpgSign", "true")
    write(repo, {".hooks/pre-commit": "#!/bin/sh\nexit 1\n"})
    git(repo, "config", "core.hooksPath", ".hooks")
    before = fingerprint(repo)
    branch = mission(vault, repo)
    assert fingerprint(repo) == before
    text = vault.reports()[0].read_text()
    for piece in (
        "When this was written it was 2 commits ahead of `main`.",
        "It could be merged into `main` without conflicts.",
        "placet merge say-hello",
        f"push hub {branch} && (cd {repo} && gh pr create --base trunk --head {branch} --fill)",
        "placet drop say-hello --reason",
        "did not see uncommitted files in your checkout: `.hooks/`, `unfinished.txt`.",
        "Your commits are signed; placet's are not.",
        "Your git hooks did not run",
        "The property `became` above will say how it ended. "
        "To undo a merge: `placet undo say-hello`.",
    ):
        assert piece in " ".join(text.split()), piece


def test_the_preview_finds_conflicts_with_work_done_meanwhile(
    done: tuple[TestVault, Path, str],
) -> None:
    _, repo, branch = done
    write(repo, {"one.txt": "another\n"})
    commit_all(repo, "Meanwhile")
    before = fingerprint(repo)
    after = branch_facts(open_repo(repo), branch, "main", ())
    assert (after.into, after.ahead, after.behind, after.conflicts) == ("main", 2, 1, ("one.txt",))
    assert fingerprint(repo) == before


# --- what became of it


def _squash_with_changes(repo: Path, branch: str) -> None:
    """As a forge does: the messages of the commits are in the new one's.

    And a person changed a line.
    """
    git(repo, "merge", "-q", "--squash", branch)
    write(repo, {"one.txt": "1, by hand\n"})
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", git(repo, "log", "-1", "--format=%B", branch))


def _squash_by_hand(repo: Path, branch: str) -> None:
    """With the message that git proposes, in which those of the commits are indented.

    And a person changed a line.
    """
    git(repo, "merge", "-q", "--squash", branch)
    write(repo, {"one.txt": "1, by hand\n"})
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "--no-edit")


def _squash_at_a_forge(repo: Path, branch: str) -> None:
    """With the messages as a list, and a block of trailers of its own at the end.

    And a person changed a line.
    """
    git(repo, "merge", "-q", "--squash", branch)
    write(repo, {"one.txt": "1, by hand\n"})
    git(repo, "add", "-A")
    bodies = "".join(
        f"* {git(repo, 'log', '-1', '--format=%B', rev)}\n\n" for rev in (f"{branch}~1", branch)
    )
    git(
        repo,
        "commit",
        "-q",
        "-m",
        f"Say hello (#12)\n\n{bodies}* By hand\n\n---------\n\nCo-authored-by: A B <a@example.org>",
    )


def _rebase(repo: Path, branch: str) -> None:
    git(repo, "rebase", "-q", "main", branch)
    git(repo, "checkout", "-q", "main")
    git(repo, "merge", "-q", "--ff-only", branch)


def _pick(repo: Path, branch: str) -> None:
    git(repo, "cherry-pick", f"main..{branch}")


def _pull_request(repo: Path, branch: str) -> None:
    """Merged elsewhere, fetched, the branch deleted in both places."""
    hub = repo.parent / "hub"
    git(repo.parent, "clone", "-q", str(repo), str(hub))
    git(hub, "merge", "-q", "--no-ff", "-m", "Merge pull request", f"origin/{branch}")
    git(repo, "remote", "add", "origin", str(hub))
    git(repo, "fetch", "-q", "origin", "main")


MERGES = {
    "merge": lambda repo, branch: git(repo, "merge", "-q", "--no-ff", "--no-edit", branch),
    "fast-forward": lambda repo, branch: git(repo, "merge", "-q", "--ff-only", branch),
    "squash with changes": _squash_with_changes,
    "squash by hand": _squash_by_hand,
    "squash at a forge": _squash_at_a_forge,
    "rebase": _rebase,
    "cherry-pick": _pick,
    "pull request": _pull_request,
}


def row_of(vault: TestVault) -> dict[str, object]:
    rows = [row for row in vault.rows() if row["action_type"].startswith("pr.")]
    assert len(rows) == 1, [row["action_type"] for row in rows]
    return {"action": rows[0]["action_type"], "actor": rows[0]["actor"], **rows[0]["metadata"]}


@pytest.mark.parametrize("way", sorted(MERGES))
@pytest.mark.parametrize("delete", [False, True], ids=["kept", "deleted"])
@pytest.mark.thinned(2)
def test_merge_by_any_method_is_detected(
    done: tuple[TestVault, Path, str], way: str, delete: bool
) -> None:
    vault, repo, branch = done
    if way != "fast-forward":
        write(repo, {"other.txt": "meanwhile\n"})
        commit_all(repo, "Meanwhile")
    MERGES[way](repo, branch)
    brought = git(repo, "rev-parse", "origin/main" if way == "pull request" else "main")
    write(repo, {"later.txt": "later\n"})
    commit_all(repo, "Later")
    if delete:
        git(repo, "branch", "-q", "-D", branch)
    before = fingerprint(repo)
    vault.here()  # it happened while no daemon ran
    found = row_of(vault)
    assert (found["action"], found["commit_sha"]) == ("pr.merged", brought)
    assert found["actor"] == "system", "git does not say who did it"
    assert not found.keys() & {"reviewed_by", "via"}
    assert found["into"] == ("origin/main" if way == "pull request" else "main")
    vault.here()
    row_of(vault)
    text = vault.reports()[0].read_text()
    assert "became: merged\n" in text
    assert brought in text
    assert fingerprint(repo) == before


def test_unmerged_existing_branch_stays_open(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    vault.here()
    git(repo, "cherry-pick", f"{branch}~1")  # one of two
    vault.here()
    git(repo, "branch", "-m", branch, "mine")  # renamed: still there
    vault.here()
    assert not [a for a in vault.actions() if a.startswith("pr.")]
    git(repo, "branch", "-q", "-D", "mine")
    vault.here()
    assert fates(vault) == ["pr.gone"]


def test_missing_branch_is_not_a_human_decision(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    git(repo, "merge", "-q", "--squash", branch)
    git(repo, "commit", "-q", "-m", "In my own words")  # no trailer says whose work it is
    tip = git(repo, "rev-parse", branch)
    vault.here()
    assert fates(vault) == []
    git(repo, "branch", "-q", "-D", branch)
    for _ in range(2):
        vault.here()
        assert fates(vault) == ["pr.gone"]
    assert vault.rows("pr.gone")[0]["actor"] == "system"
    assert "became: gone\n" in vault.reports()[0].read_text()
    assert "does not know whether you merged it" in vault.click("why", "say-hello").stdout
    assert became(vault) == "gone"
    git(repo, "merge", "-q", "-m", "Mine", "-s", "ours", tip)
    vault.here()
    assert fates(vault) == ["pr.gone", "pr.merged"]
    assert "became: merged\n" in vault.reports()[0].read_text()


@pytest.mark.parametrize("packed", [False, True])
def test_git_is_polled_only_after_branch_changes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    packed: bool,
) -> None:
    asked: list[Path] = []

    def counted(path: Path, branches: list[Branch], known: Memory) -> BranchNews:
        asked.append(path)
        return look_at_branches(path, branches, known)

    monkeypatch.setattr(watching, "look_at_branches", counted)
    vault, time = bare_vault(tmp_path), Time()
    with looping(vault, time=time, model=lambda: Fake(greeter)) as running, meddling():

        def seconds_pass(seconds: int) -> int:
            before = len(asked)
            for _ in range(0, seconds, 2):
                time.pass_time(2)
                running.settle()
            return len(asked) - before

        vault.drop("Say hello.\n")
        running.settle()
        vault.approve()
        running.settle()
        seconds_pass(70)
        if packed:
            git(vault.root, "pack-refs", "--all")
            seconds_pass(4)
        assert seconds_pass(120) == 2
        commit_all(vault.root, "Something else")
        assert seconds_pass(6) == 1
        branch = vault.rows("execution.completed")[0]["metadata"]["branch"]
        git(vault.root, "merge", "-q", "--no-ff", "-m", "Take it", branch)
        assert seconds_pass(6) >= 1
        assert len(vault.rows("pr.merged")) == 1
        assert seconds_pass(120) == 0


def test_deleted_branch_with_dropped_reason_counts_as_dropped(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, branch = done
    report = vault.reports()[0]
    report.write_text(
        report.read_text().replace(
            "status: completed\n", "status: completed\ndropped_reason: Not what I meant\n"
        )
    )
    git(repo, "branch", "-q", "-D", branch)
    before = fingerprint(repo)
    vault.here()
    found = row_of(vault)
    assert (found["action"], found["reason"], found["branch"]) == (
        "pr.rejected",
        "Not what I meant",
        branch,
    )
    assert "became: dropped\n" in report.read_text()
    assert fingerprint(repo) == before
    for command in ("status", "show"):
        said = vault.cli(command, *(["say-hello"] if command == "show" else [])).stdout
        assert f"{branch}, dropped" in said


def test_a_reason_written_after_the_drop_is_journalled(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, branch = done
    git(repo, "branch", "-q", "-D", branch)
    vault.here()
    report = vault.reports()[0]
    for reason in ("Too much", "Too much of it"):
        report.write_bytes(stamp(report.read_bytes(), {"dropped_reason": reason}))
        vault.here()
        vault.here()
        assert "became: dropped\n" in report.read_text()
    assert fates(vault) == ["pr.gone", "pr.rejected", "pr.rejection_explained"]
    rows = [vault.rows(action)[0] for action in ("pr.rejected", "pr.rejection_explained")]
    assert [row["metadata"]["reason"] for row in rows] == ["Too much", "Too much of it"]
    assert {row["actor"] for row in rows} == {"human"}


@pytest.mark.parametrize("way", sorted(MERGES.keys() - {"fast-forward"}))
@pytest.mark.thinned(3)
def test_unrelated_commits_cost_two_git_processes(tmp_path: Path, way: str) -> None:
    """And then, however the work ends up on the branch, it is seen."""
    repo = make_repo(tmp_path / "theirs")
    base, opens = git(repo, "rev-parse", "main"), []
    for n in range(5):
        git(repo, "checkout", "-q", "-b", f"feat/{n}", "main")
        write(repo, {f"{n}.txt": "1\n"} | ({"one.txt": "1\n"} if n == 0 else {}))
        commit_all(repo, f"Work\n\nPlacet-Trace: t{n}")
        opens.append(Branch(f"t{n}", f"feat/{n}", base, git(repo, "rev-parse", "HEAD"), "main"))
    git(repo, "checkout", "-q", "main")
    write(repo, {"other.txt": "0\n"})
    commit_all(repo, "Something else")
    found = look_at_branches(repo, opens, Memory())
    assert (found.fates, found.problem) == ((), "")
    for n in range(3):
        write(repo, {"other.txt": f"{n + 1}\n", f"o{n}\nd.txt": "\n"})
        commit_all(repo, "Something else again")
        git(repo, "branch", f"more-{n}")
        found = look_at_branches(repo, opens, found.memory)
        assert found.fates == ()
        assert len(found.calls) <= 3 + (n == 0) * len(opens), [call.argv for call in found.calls]
    assert look_at_branches(repo, opens, found.memory).calls == ()
    lost = replace(found.memory, ends=frozenset({"0" * 39 + "1"}))
    MERGES[way](repo, "feat/0")
    assert [fate.of.trace_id for fate in look_at_branches(repo, opens, lost).fates] == ["t0"], (
        "also after a rewrite"
    )
    found = look_at_branches(repo, opens, found.memory)
    assert [(fate.of.trace_id, bool(fate.commit_sha)) for fate in found.fates] == [("t0", True)]
    assert len(found.calls) < 20


def test_a_branch_that_is_broken_hides_no_other(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    git(repo, "merge", "-q", "--no-ff", "--no-edit", branch)
    merged = Branch("t", branch, git(repo, "rev-parse", "main~1"), git(repo, "rev-parse", branch))
    write(repo, {"lost.txt": "lost\n"})
    commit_all(repo, "Lost")
    lost = git(repo, "rev-parse", "HEAD^{tree}")
    broken = replace(merged, trace_id="u", name="feat/broken", tip=git(repo, "rev-parse", "HEAD"))
    git(repo, "reset", "-q", "--hard", "HEAD^")
    git(repo, "commit", "-q", "--allow-empty", "-m", "Taken\n\nPlacet-Trace: u")
    (repo / ".git/objects" / lost[:2] / lost[2:]).unlink()
    found = look_at_branches(repo, (broken, merged), Memory())
    assert [fate.of.trace_id for fate in found.fates] == ["t"]
    assert broken.tip in found.problem
    git(repo, "checkout", "-q", "--orphan", "empty")
    git(repo, "rm", "-q", "-r", "-f", ".")
    for command in (["merge", "say-hello"], ["undo", "say-hello", "--yes"]):
        assert "empty has no commit yet" in vault.click(*command, check=False).stderr


def test_missing_repository_decides_no_branch(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, _ = done
    away = repo.rename(repo.parent / "away")
    assert any("is gone" in line for line in vault.here())
    away.rename(repo)
    vault.here()
    assert not [a for a in vault.actions() if a.startswith("pr.")]


def hours_pass(running: Running, time: Time, minutes: int) -> None:
    for _ in range(minutes):
        time.pass_time(60)
        running.settle()


def test_broken_repository_is_journalled_once(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, _ = done
    head = repo / ".git/HEAD"
    time, text = Time(), head.read_text()
    with looping(vault, time=time) as running, meddling():
        for times in (1, 2):
            head.write_text("garbage\n")
            hours_pass(running, time, 20)
            assert sum("cannot be seen" in line for line in running.said) == times
            failed = [r for r in vault.rows("git.ran") if "stderr" in r["metadata"]]
            assert len(failed) == times
            head.write_text(text)
            hours_pass(running, time, 2)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ENOTCONN])
def test_portal_that_cannot_be_read_stops_nothing(
    vault: TestVault, repo: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    stat = os.stat

    def refusing(path: Any, *args: Any, **more: Any) -> os.stat_result:
        if isinstance(path, str | os.PathLike) and Path(path).is_relative_to(repo):
            raise OSError(number, os.strerror(number))
        return stat(path, *args, **more)

    vault.plays(PLAN)
    vault.configure((vault.root / "System/placet.toml").read_text() + portal_table(repo))
    vault.drop("Say hello.\n")
    with looping(vault) as running:
        monkeypatch.setattr(os, "stat", refusing)
        running.settle()
    assert len(vault.rows("plan.created")) == 1


def test_portals_are_asked_outside_the_loop(
    vault: TestVault, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead network mount would stop the loop."""
    vault.configure(portal_table(repo))
    asking: list[threading.Thread] = []

    def asked(path: Path) -> bool:
        asking.append(threading.current_thread())
        return is_repository(path)

    monkeypatch.setattr(watching, "is_repository", asked)
    with looping(vault) as running:
        running.settle()
    assert asking
    assert threading.current_thread() not in asking


# --- a person's own hand


def yes(_question: str) -> bool:
    return True


def test_looking_and_merging(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    (repo / "mine.txt").write_text("untracked\n")
    marker = repo.parent / "executed"
    for name in (
        "pre-merge-commit",
        "commit-msg",
        "prepare-commit-msg",
        "post-merge",
        "post-checkout",
        "reference-transaction",
    ):
        (repo / ".git/hooks" / name).write_text(f"#!/bin/sh\ntouch {marker}\n")
        (repo / ".git/hooks" / name).chmod(0o755)
    git(repo, "config", "branch.main.mergeOptions", "--squash -s ours")
    git(repo, "config", "merge.x.driver", f"touch {marker}")
    git(repo, "config", "core.fsmonitor", f"touch {marker};")
    before = fingerprint(repo)
    assert "+one\n" in branches.diff(vault.site, "say-hello")[0]
    assert fingerprint(repo) == before
    sha, onto = branches.merge(vault.site, "say-hello", here=False)
    git(repo, "config", "--unset", "core.fsmonitor")
    assert (onto, sha) == ("main", git(repo, "rev-parse", "HEAD"))
    assert git(repo, "log", "-1", "--format=%P").split()[1] == git(repo, "rev-parse", branch)
    trailers = "%(trailers:key=Placet-Trace)%(trailers:key=Placet-Plan)%(trailers:key=Approved-By)"
    assert git(repo, "log", "-1", f"--format=%an%n{trailers}") == git(
        repo, "log", "-1", f"--format=Ann Person%n{trailers}", branch
    )
    assert git(repo, "status", "--porcelain") == "?? mine.txt"
    assert (repo / "one.txt").read_text() == "one\n"
    assert not marker.exists()
    with pytest.raises(UserError, match=r"has feat/.* already"):
        branches.merge(vault.site, "say-hello", here=False)
    vault.here()
    assert row_of(vault)["commit_sha"] == sha
    with pytest.raises(UserError, match="Nothing was changed"):
        undo(vault.site, "say-hello", lambda _: False)
    undo(vault.site, "say-hello", yes)
    assert git(repo, "rev-parse", "HEAD^") == sha
    assert not (repo / "one.txt").exists()
    assert git(repo, "status", "--porcelain") == "?? mine.txt"
    assert not marker.exists()
    with pytest.raises(UserError, match="Already undone"):
        undo(vault.site, "say-hello", yes)
    assert git(repo, "status", "--porcelain") == "?? mine.txt"


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
    write(repo, {".gitattributes": "*.bin filter=lfs\n"})
    commit_all(repo, "Large files")
    refused("pass through a filter")


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
    assert "pass through a filter" in vault.click("merge", "say-hello", check=False).stderr
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


def became(vault: TestVault) -> str:
    return str(json.loads(vault.click("show", "say-hello", "--json").stdout)["became"])


def hands(vault: TestVault) -> list[tuple[str, str, str]]:
    rows = [row for row in vault.rows() if row["action_type"].startswith("pr.")]
    return [
        (row["action_type"], row["metadata"].get("reviewed_by"), row["metadata"].get("via"))
        for row in rows
    ]


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


def test_restored_branch_is_open_again(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    report = vault.reports()[0]

    def seen() -> list[str]:
        vault.here()
        return [action for action in vault.actions() if action.startswith("pr.")]

    kept = drop(vault.site, "say-hello", "Not now")
    assert seen() == ["pr.rejected"]
    git(repo, "branch", branch, "main")  # its name alone, with nothing of it
    assert seen() == ["pr.rejected"]
    git(repo, "branch", "-f", branch, kept)
    assert seen() == ["pr.rejected", "pr.reopened"]
    assert "became:" not in report.read_text()
    assert branch in vault.click("status").stdout
    assert "dropped" not in vault.click("status").stdout
    drop(vault.site, "say-hello", "Really not")
    assert seen() == ["pr.rejected", "pr.reopened", "pr.rejected"]
    assert vault.rows("pr.rejected")[1]["metadata"]["reason"] == "Really not"
    git(repo, "branch", branch, kept)  # and merged before anybody looked
    branches.merge(vault.site, "say-hello", here=False)
    assert seen() == ["pr.rejected", "pr.reopened", "pr.rejected", "pr.merged"]
    assert "became: merged\n" in report.read_text()
    git(repo, "branch", "-q", "-D", branch)
    assert seen() == ["pr.rejected", "pr.reopened", "pr.rejected", "pr.merged"]


def test_earlier_branch_is_watched_after_replanning(
    tmp_path: Path,
) -> None:
    def answer(ask: Ask) -> Reply:
        if ask.purpose is not Purpose.EXECUTE:
            return says(
                (
                    "submit_plan",
                    {**PLAN, "summary": f"Greeting {vault.actions().count('execution.started')}."},
                )
            )
        greeting = f"hello {vault.actions().count('execution.started')}\n"
        calls = [
            ("write_file", {"path": "hello.txt", "content": greeting}),
            ("complete_step", {"step": 1, "summary": "Done"}),
            ("finish", {"summary": "Done."}),
        ]
        return says(calls[turns_taken(ask)])

    vault, time = bare_vault(tmp_path), Time()
    repo = vault.root
    with looping(vault, time=time, model=lambda: Fake(answer)) as running, meddling():

        def seen() -> list[tuple[str, str]]:
            for _ in range(3):
                time.pass_time(2)
                running.settle()
            return [
                (row["action_type"], row["metadata"]["branch"])
                for row in vault.rows()
                if row["action_type"].startswith("pr.")
            ]

        vault.drop("Say hello.\n")
        running.settle()
        vault.approve()
        running.settle()
        archived = repo / "Inbox/Archive/Say hello.md"
        archived.write_text(archived.read_text().replace("Say hello.", "Say hello again."))
        archived.rename(repo / "Inbox/Requests/say-hello.md")
        running.settle()
        assert seen() == []
        vault.approve()
        running.settle()
        first, second = (row["metadata"]["branch"] for row in vault.rows("execution.completed"))
        assert seen() == []
        git(repo, "merge", "-q", "--no-ff", "--no-commit", first)
        # no ancestor: only what the message says tells the two apart
        write(repo, {"hello.txt": "hello 1\nEdited.\n"})
        message = git(repo, "log", "-1", "--format=%B", first)
        git(repo, "merge", "--quit")
        git(repo, "commit", "-q", "-a", "-m", message)
        assert seen() == [("pr.merged", first)]
        reports = {path: path.read_text() for path in vault.reports()}
        assert sorted("became: merged" in text for text in reports.values()) == [False, True]
        git(repo, "branch", "-q", "-D", second)
        assert seen() == [("pr.merged", first), ("pr.gone", second)]
        git(repo, "branch", "-q", "-D", first)
        assert len(seen()) == 2


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


def again(vault: TestVault, name: str) -> str:
    """Have the mission of `done` done once more for another request; return its branch."""
    vault.drop("---\nportal: code\n---\nSay hello.\n", f"{name}.md")
    vault.here()
    vault.approve(name)
    vault.here()
    return str(vault.rows("execution.completed")[-1]["metadata"]["branch"])


@pytest.mark.parametrize(
    "way", ["merge", "fast-forward", "rebase", "cherry-pick", "squash by hand"]
)
@pytest.mark.thinned(2)
def test_missions_with_identical_changes_are_told_apart(
    done: tuple[TestVault, Path, str], way: str
) -> None:
    vault, repo, first = done
    second = again(vault, "once-more")
    if way != "fast-forward":
        write(repo, {"other.txt": "meanwhile\n"})
        commit_all(repo, "Meanwhile")
    MERGES[way](repo, first)
    merged = git(repo, "rev-parse", "main")
    vault.here()
    assert [
        (row["entity_id"], row["action_type"])
        for row in vault.rows()
        if row["action_type"].startswith("pr.")
    ] == [("say-hello", "pr.merged")]
    vault.click("undo", "once-more", "--yes")
    assert git(repo, "rev-parse", "main") == merged, "what another mission brought in stays"
    assert second not in git(repo, "branch", "--list", "feat/*")
    vault.here()
    assert [row["entity_id"] for row in vault.rows("pr.rejected")] == ["once-more"]


def test_undo_reverts_only_its_own_identical_commit(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, first = done
    second = again(vault, "once-more")
    write(repo, {"other.txt": "meanwhile\n"})
    commit_all(repo, "Meanwhile")
    _pick(repo, first)
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


@pytest.mark.parametrize(
    "by", ["undo", "undo of a rebase", "revert", "revert of a merge by hand", "while no daemon ran"]
)
@pytest.mark.thinned(3)
def test_undone_merge_is_journalled_and_shown(done: tuple[TestVault, Path, str], by: str) -> None:
    vault, repo, branch = done
    match by:
        case "undo of a rebase":
            write(repo, {"other.txt": "meanwhile\n"})
            commit_all(repo, "Meanwhile")
            MERGES["rebase"](repo, branch)
        case "revert of a merge by hand":
            MERGES["merge"](repo, branch)
        case _:
            vault.click("merge", "say-hello")
    if by != "while no daemon ran":
        vault.here()
    if by.startswith("revert"):
        git(repo, "revert", "-m", "1", "--no-edit", "HEAD")
    else:
        vault.click("undo", "say-hello", "--yes")
    vault.here()
    assert [row["action_type"] for row in vault.rows() if row["action_type"].startswith("pr.")] == [
        "pr.merged",
        "pr.reverted",
    ]
    row = vault.rows("pr.reverted")[0]
    assert row["metadata"]["commit_sha"] == git(repo, "rev-parse", "HEAD")
    assert row["metadata"]["merged_as"] == vault.rows("pr.merged")[0]["metadata"]["commit_sha"]
    is_by_command = not by.startswith("revert")
    assert (row["actor"], row["entity_id"]) == (
        "human" if is_by_command else "system",
        "say-hello",
    )
    assert "became: reverted\n" in vault.reports()[0].read_text()
    assert "reverted" in vault.click("why", "say-hello").stdout
    assert "reverted" in vault.click("status").stdout
    vault.here()
    assert len(vault.rows("pr.reverted")) == 1
    assert len(vault.rows("pr.merged")) == 1


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("by", ["undo", "revert"])
@pytest.mark.thinned(2)
def test_reverted_revert_counts_as_merge(
    done: tuple[TestVault, Path, str], by: str, *, at_once: bool
) -> None:
    vault, repo, _ = done
    vault.click("merge", "say-hello")
    vault.here()
    if by == "undo":
        vault.click("undo", "say-hello", "--yes")
    else:
        git(repo, "revert", "-m", "1", "--no-edit", "HEAD")
    if not at_once:
        vault.here()
    git(repo, "revert", "--no-edit", "HEAD")
    vault.here()
    vault.here()
    merged = ["pr.merged"] if at_once else ["pr.merged", "pr.reverted", "pr.merged"]
    assert [
        row["action_type"] for row in vault.rows() if row["action_type"].startswith("pr.")
    ] == merged
    assert "became: merged\n" in vault.reports()[0].read_text()
    assert len({row["metadata"]["commit_sha"] for row in vault.rows("pr.merged")}) == 1
    git(repo, "revert", "--no-edit", "HEAD")
    vault.here()
    vault.here()
    assert [row["action_type"] for row in vault.rows() if row["action_type"].startswith("pr.")] == [
        *merged,
        "pr.reverted",
    ]
    assert "became: reverted\n" in vault.reports()[0].read_text()


@pytest.mark.parametrize("all_at_once", [False, True])
def test_revert_of_one_commit_is_a_revert_in_part(
    done: tuple[TestVault, Path, str], all_at_once: bool
) -> None:
    vault, repo, branch = done
    git(repo, "merge", "-q", "--ff-only", branch)
    vault.here()
    git(repo, "revert", "--no-edit", "HEAD")
    if not all_at_once:
        said = vault.here()
        assert any(f"{branch} was reverted in part on main" in line for line in said), said
        assert vault.rows("pr.reverted") == []
        assert "became: merged\n" in vault.reports()[0].read_text()
    git(repo, "revert", "--no-edit", "HEAD~2")  # the other one
    vault.here()
    (row,) = vault.rows("pr.reverted")
    assert row["actor"] == "system"
    assert "via" not in row["metadata"]


def test_message_alone_reverts_nothing(done: tuple[TestVault, Path, str]) -> None:
    """A squash quotes the messages of its commits."""
    vault, repo, _ = done
    vault.click("merge", "say-hello")
    vault.here()
    sha = git(repo, "rev-parse", "HEAD")
    text = f"Tidy up (#7)\n\n* Revert it\n\nThis reverts commit {sha}.\n\n* Have it back"
    git(repo, "commit", "-q", "--allow-empty", "-m", text)
    write(repo, {"one.txt": "one\ntwo\n"})
    commit_all(repo, text)
    said = vault.here()
    assert vault.rows("pr.reverted") == []
    assert not any("in part" in line for line in said)
    git(repo, "rm", "-q", "one.txt", "two.txt")
    trailers = f"Placet-Trace: {'0' * 8}\nPlacet-Plan: d"
    git(repo, "commit", "-q", "-m", f"A step\n\nThis reverts commit {sha}.\n\n{trailers}")
    vault.here()
    assert vault.rows("pr.reverted") == [], "another mission's commit"


def test_trailers_without_the_work_are_no_merge(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    trailers = git(repo, "log", "-1", "--format=%(trailers)", branch)
    write(repo, {"one.txt": "mine\n", "two.txt": "mine\n"})
    commit_all(repo, f"Mine\n\n{trailers}")
    vault.here()
    assert fates(vault) == []
    assert vault.click("drop", "say-hello", "--reason", "not needed").returncode == 0


def test_claim_counts_for_its_own_act_only(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    tip = git(repo, "rev-parse", branch)
    vault.click("drop", "say-hello", "--reason", "not wanted")
    git(repo, "branch", branch, tip)
    git(repo, "merge", "-q", "--ff-only", branch)
    vault.here()
    assert hands(vault) == [("pr.merged", None, None)]
    assert not [*vault.state.glob("*/intents/*")]


def test_second_deletion_has_no_reason_of_the_first(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    tip = git(repo, "rev-parse", branch)
    vault.click("drop", "say-hello", "--reason", "too slow")
    vault.here()
    git(repo, "branch", branch, tip)
    vault.here()
    report = vault.reports()[0].read_text()
    assert "dropped_" not in report.partition("\n---\n")[0]
    git(repo, "branch", "-q", "-D", branch)
    vault.here()
    assert fates(vault) == ["pr.rejected", "pr.reopened", "pr.gone"]
    assert [row["actor"] for row in vault.rows("pr.reopened")] == ["system"]
    said = vault.click("merge", "say-hello", check=False)
    assert "refs/placet/reopened/say-hello-" in said.stderr, "its commits are kept"


# --- several branches of one request


def test_branch_of_another_portal_is_found(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, _ = done
    other = make_repo(vault.root.parent / "other", FILES)
    config = (vault.root / "System/placet.toml").read_text()
    vault.configure(f'{config}\n[portals.other]\npath = "{other}"\n')
    request = vault.root / "Inbox/Archive/Say hello.md"
    again = vault.root / "Inbox/Requests/Say hello.md"
    request.rename(again)
    again.write_text(again.read_text().replace("portal: code", "portal: other"))
    vault.here()
    assert vault.click("diff", "say-hello").stdout
    sha, _ = branches.merge(vault.site, "say-hello", here=False)
    assert git(repo, "rev-parse", "HEAD") == sha
    vault.here()
    undo(vault.site, "say-hello", yes)
    assert not (repo / "one.txt").exists()


def test_merge_after_retry_can_be_reverted(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, _ = done
    vault.click("retry", "say-hello")
    vault.here()
    vault.click("merge", "say-hello")
    vault.here()
    git(repo, "revert", "--no-edit", "-m", "1", "HEAD")
    vault.here()
    assert fates(vault) == ["pr.merged", "pr.reverted"]
    assert "became: reverted\n" in vault.reports()[0].read_text()


def test_first_merge_is_reverted_after_second_mission(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, _ = done
    vault.click("merge", "say-hello")
    vault.here()
    merged = git(repo, "rev-parse", "HEAD")
    steps = [
        {
            "title": "More",
            "actions": [{"tool": "write_file", "params": {"path": "three.txt", "content": "3\n"}}],
        }
    ]
    vault.plays({**PLAN, "steps": steps, "scope": {"write": ["*.txt"]}})
    vault.click("retry", "say-hello")
    vault.here()
    vault.approve()
    vault.here()
    first, second = vault.reports()
    git(repo, "revert", "--no-edit", "-m", "1", merged)
    vault.here()
    assert fates(vault) == ["pr.merged", "pr.reverted"]
    (row,) = vault.rows("pr.reverted")
    assert row["metadata"]["branch"] == vault.rows("execution.completed")[0]["metadata"]["branch"]
    assert [text.read_text().count("became: reverted\n") for text in (first, second)] in (
        [1, 0],
        [0, 1],
    )


def test_open_branch_is_dropped_after_failed_retry(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    plan = [{"calls": [("submit_plan", PLAN)]}]
    vault.script(("plan", plan), ("execute", [{"calls": [("give_up", {"reason": "no"})]}]))
    vault.click("retry", "say-hello")
    vault.here()
    vault.approve()
    vault.here()
    assert vault.actions()[-3:].count("execution.failed") == 1
    assert vault.click("diff", "say-hello").stdout
    vault.click("drop", "say-hello", "--reason", "not this either")
    assert branch not in git(repo, "branch")
    vault.here()
    assert fates(vault) == ["pr.rejected"]


def test_unrelated_revert_does_not_undo_mission(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, branch = done
    MERGES["merge"](repo, branch)
    vault.here()
    git(repo, "revert", "--no-edit", branch)  # one of its two commits
    write(repo, {"other.txt": "x\n"})
    commit_all(repo, f"In words\n\nThis reverts commit {'0' * 40}.")
    vault.here()
    assert vault.rows("pr.reverted") == []


# --- on the record


def test_git_processes_are_journalled_but_hidden_by_default(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, _, _ = done
    rows = [row for row in vault.rows("git.ran") if row["trace_id"]]
    told = [row["metadata"] for row in rows]
    assert {
        "open the repository",
        "make the worktree",
        "commit",
        "look at the branch",
        "tidy up",
    } == {data["operation"] for data in told}
    assert all(
        data.keys() == {"operation", "processes", "duration_ms"} and data["duration_ms"] > 0
        for data in told
    )
    assert all(data["processes"] >= 1 for data in told)
    assert len(rows) <= 8
    assert {row["trace_id"] for row in rows} == {vault.rows("plan.created")[0]["trace_id"]}
    said = vault.click("journal")
    assert "git.ran" not in said.stdout
    left_out = len(vault.rows("git.ran"))
    assert f"{left_out} git processes left out; with them: --json" in said.stderr


@pytest.mark.parametrize(("turns", "writing"), [(5, 1), (60, 20)])
def test_read_only_turns_start_no_git_process(tmp_path: Path, turns: int, writing: int) -> None:
    """A turn that writes takes ten processes, all else of a mission thirty-nine."""
    vault = planned_mission(tmp_path, turns)
    planning = len(vault.rows("git.ran"))
    vault.once()
    assert len(vault.rows("execution.completed")) == 1
    told = [row["metadata"] for row in vault.rows("git.ran")[planning:] if row["trace_id"]]
    print(told)
    assert sum(data["processes"] for data in told) <= 39 + 10 * writing
    assert len(told) <= 5


def test_git_is_started_by_no_other_program(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    real = subprocess.Popen

    def popen(argv: list[str], *args: object, **more: object) -> object:
        started.append(Path(argv[0]).name)
        assert "ANTHROPIC_API_KEY" not in more["env"]
        return real(argv, *args, **more)

    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    open_repo(repo)
    monkeypatch.setattr("placet.git.run.subprocess.Popen", popen)
    open_repo(repo)
    assert started == ["git"]


def test_failed_git_command_is_journalled_with_stderr(vault: TestVault, repo: Path) -> None:
    blob = git(repo, "rev-parse", "HEAD:a.txt")
    (repo / ".git/objects" / blob[:2] / blob[2:]).unlink()
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    vault.plays(PLAN)
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    (failed,) = [row["metadata"] for row in vault.rows("git.ran") if "stderr" in row["metadata"]]
    assert failed["command"][:2] == ["git", "read-tree"]
    assert blob in failed["stderr"]
    assert failed["exit"] == 128
    assert "git.ran" in vault.click("journal").stdout


# --- who did it, and where


def test_commit_names_agent_and_model_after_existing_trailers(
    done: tuple[TestVault, Path, str],
) -> None:
    _, repo, branch = done
    message = git(repo, "log", "-1", "--format=%B", branch)
    trailers = git(repo, "interpret-trailers", "--parse", stdin=message.encode()).splitlines()
    assert [line.partition(":")[0] for line in trailers] == [
        "Placet-Trace",
        "Placet-Plan",
        "Approved-By",
        "Co-authored-by",
    ]
    assert trailers[-1] == "Co-authored-by: default (test) <bot@placet.local>"


@pytest.mark.parametrize("last", [False, True], ids=["at a step", "at the end"])
def test_changed_git_configuration_stops_mission(vault: TestVault, repo: Path, last: bool) -> None:
    vault.configure(f'[commands]\nsandbox = "none"\n[portals.code]\npath = "{repo}"\n')
    plan = {
        **PLAN,
        "scope": {"write": ["*.txt"], "run": ["python3 t.py"]},
        "steps": [{"title": "Do it", "tools": ["write_file", "run_command"]}],
    }
    step = [("complete_step", {"step": 1, "summary": "Hello"})]
    write(
        repo,
        {
            "t.py": f"with open({str(repo / '.git/config')!r}, 'a') as file: file.write('[alias] x = !true\\n')\n"
        },
    )
    commit_all(repo, "A test that does more than to test")
    vault.plays(
        plan,
        [*(step if last else []), ("write_file", {"path": "hello.txt", "content": "hello\n"})],
        [("run_command", {"command": "python3", "args": ["t.py"]})],
        [*([] if last else step), ("finish", {"summary": "Done."})],
    )
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    vault.approve()
    # every test would notice
    with pytest.raises(AssertionError, match=r"was touched: \['config'\]"):
        vault.here()
    failed = vault.rows("execution.failed")[0]["metadata"]
    assert (failed["reason"], failed["error_type"]) == ("repository", "repository")
    assert "configuration" in vault.reports()[0].read_text()
    assert git(repo, "show", f"{failed['kept']}:hello.txt") == "hello"
    assert git(repo, "branch", "--list", "feat/*") == ""


def test_ref_is_deleted_only_if_branch_contains_it(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, branch = done
    worktrees = vault_state(vault.root, vault.env).worktrees
    opened = open_repo(repo)
    base, tip = git(repo, "rev-parse", "main"), git(repo, "rev-parse", branch)
    alone = git(repo, "commit-tree", "-p", base, "-m", "Nowhere else", f"{base}^{{tree}}")
    for name, sha in (
        ("ckpt/aaaaaaaa-1", tip),
        ("failed/x-bbbbbbbb-1", alone),
        ("ckpt/cccccccc-1", base),
        ("left/y", base),
    ):
        git(repo, "update-ref", f"refs/placet/{name}", sha)
    left = add_worktree(opened, worktrees / "deadbeef-1", "feat/left-deadbeef", base)
    (left.path / "half.txt").write_text("half\n")
    before = fingerprint(repo)
    now = datetime.now(UTC)
    assert (
        delete_leftovers(
            opened, worktrees, {"cccccccc"}, now - timedelta(days=1), now, blank_secrets
        )
        == []
    )
    soon = now + timedelta(minutes=1)
    assert delete_leftovers(
        opened, worktrees, {"cccccccc", "deadbeef"}, soon, soon, blank_secrets
    ) == [
        "refs/placet/ckpt/aaaaaaaa-1",
        "refs/placet/left/y",
    ]
    assert delete_leftovers(opened, worktrees, {"cccccccc"}, soon, soon, blank_secrets) == [
        str(left.path)
    ]
    assert git(repo, "for-each-ref", "--format=%(refname)", "refs/placet").splitlines() == [
        "refs/placet/ckpt/cccccccc-1",
        "refs/placet/failed/x-bbbbbbbb-1",
        "refs/placet/left/deadbeef-1",
    ]
    assert git(repo, "show", "refs/placet/left/deadbeef-1:half.txt") == "half"
    assert fingerprint(repo) == before


def test_a_mission_tidies_up_after_those_before_it(vault: TestVault, repo: Path) -> None:
    git(repo, "update-ref", "refs/placet/ckpt/aaaaaaaa-1", "main")
    mission(vault, repo, "[daemon]\ntidy_after_days = 0\n")
    assert vault.rows("git.tidied")[0]["metadata"]["gone"] == ["refs/placet/ckpt/aaaaaaaa-1"]
    assert git(repo, "for-each-ref", "refs/placet") == ""


def test_daemon_removes_crash_leftovers(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, _ = done
    state = vault_state(vault.root, vault.env)
    worked = add_worktree(
        open_repo(repo),
        state.worktrees / "deadbeef-1",
        "feat/left-deadbeef",
        git(repo, "rev-parse", "HEAD"),
    )
    add_worktree(
        open_repo(repo), state.worktrees / "deadbee0-1", "", git(repo, "rev-parse", "HEAD")
    )
    (worked.path / "half.txt").write_text(f"half\n{TOKEN}\n")
    linked = add_worktree(
        open_repo(repo),
        state.worktrees / "deadbee1-1",
        "feat/left-deadbee1",
        git(repo, "rev-parse", "HEAD"),
    )
    (linked.path / "a.txt").write_text(TOKEN)
    (linked.path / "b.txt").hardlink_to(linked.path / "a.txt")
    (state.worktrees / "strange").mkdir()
    (state.worktrees / "replay-deadbee2-0").mkdir()
    before = fingerprint(repo)
    assert "left over from a crash: deadbee0-1" in vault.click("doctor", check=False).stdout
    said = "\n".join(vault.here())
    assert "Its work is kept at refs/placet/left/deadbeef-1" in said
    assert "It was empty." in said
    assert "strange is left over from a crash and stays: it belongs to no repository" in said
    assert "deadbee1-1 is left over from a crash and stays: placet cannot look for secrets" in said
    (row,) = vault.rows("git.tidied")
    assert [Path(path).name for path in row["metadata"]["gone"]] == ["deadbee0-1", "deadbeef-1"]
    kept = git(repo, "show", "refs/placet/left/deadbeef-1:half.txt")
    assert kept == "half\n[redacted: GitHub token]"
    left = ["deadbee1-1", "replay-deadbee2-0", "strange"]
    assert sorted(p.name for p in state.worktrees.iterdir() if p.is_dir()) == left
    assert git(repo, "for-each-ref", "refs/placet/left").count("\n") == 0
    assert git(repo, "worktree", "list").count("\n") == 1
    assert fingerprint(repo) == before


def test_doctor_names_locks_that_a_killed_git_left(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, _ = done
    locks = [
        repo / ".git" / name
        for name in ("index.lock", "packed-refs.lock", "refs/heads/feat/it's.lock")
    ]
    for lock in locks:
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    assert ".lock" not in vault.click("doctor", check=False).stdout  # a git may be at work
    for lock in locks:
        os.utime(lock, (0, 0))
    said = [
        line for line in vault.click("doctor", check=False).stdout.splitlines() if ".lock" in line
    ]
    assert all(f"{shlex.quote(str(lock))}" in "\n".join(said) for lock in locks)
    assert "1970-01-01" in said[0]
    assert all(lock.exists() for lock in locks)


# --- what gets in the way

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


def test_branch_created_from_mission_branch_is_not_merge(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    git(repo, "branch", "mine", branch)
    vault.click("undo", "say-hello", "--yes")
    assert branch not in git(repo, "branch", "--list", "feat/*")


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
    refused("cannot be written into the report", "no ordinary file")
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


def test_broken_repository_is_reported_without_traceback(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, repo, branch = done
    tree = git(repo, "rev-parse", f"{branch}^{{tree}}")
    (repo / ".git/objects" / tree[:2] / tree[2:]).unlink()
    for command in (["diff"], ["merge"]):
        said = vault.click(command[0], "say-hello", *command[1:], check=False)
        assert said.returncode == 1
        assert "failed (128)" in said.stderr
        assert "try again" in said.stderr
    repo.rename(repo.parent / "away")
    said = vault.click("diff", "say-hello", check=False)
    assert said.returncode == 2
    assert "fix the path of code in System/placet.toml" in said.stderr


# --- where work ends up


def fates(vault: TestVault) -> list[str]:
    return [action for action in vault.actions() if action.startswith("pr.")]


@pytest.mark.parametrize("remote", ["origin", "upstream"])
def test_remote_squash_counts_as_merge_without_local_branch(
    done: tuple[TestVault, Path, str], remote: str
) -> None:
    vault, repo, branch = done
    hub = repo.parent / "hub"
    git(repo.parent, "clone", "-q", str(repo), str(hub))
    git(repo, "remote", "add", remote, str(hub))
    write(hub, {"other.txt": "meanwhile\n"})
    commit_all(hub, "Meanwhile")
    _squash_with_changes(hub, f"origin/{branch}")
    git(repo, "fetch", "-q", remote, "main")
    if remote == "origin":
        git(repo, "remote", "set-head", remote, "main")
        git(repo, "checkout", "-q", "-b", "topic")
        git(repo, "branch", "-q", "-D", "main")
    git(repo, "branch", "-q", "-D", branch)
    vault.here()
    assert row_of(vault)["commit_sha"] == git(repo, "rev-parse", f"{remote}/main")


def test_merge_into_base_branch_is_detected(tmp_path: Path) -> None:
    vault, repo = make_vault(tmp_path), make_repo(tmp_path / "repo", FILES)
    git(repo, "checkout", "-q", "-b", "develop")
    write(repo, {"new.txt": "not on main\n"})
    commit_all(repo, "New")
    git(repo, "remote", "add", "origin", "https://example.org/x.git")
    for name in ("main", "develop"):
        git(repo, "update-ref", f"refs/remotes/origin/{name}", name)
    git(repo, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    branch = mission(vault, repo)
    text = vault.reports()[0].read_text()
    assert "it was 2 commits ahead of `develop`.\n" in text
    assert "gh pr create --base develop" in text
    assert branches.merge(vault.site, "say-hello", here=False)[1] == "develop"
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    _squash_with_changes(repo, branch)
    git(repo, "branch", "-q", "-D", branch)
    git(repo, "checkout", "-q", "-b", "next")
    vault.here()
    assert row_of(vault)["commit_sha"] == git(repo, "rev-parse", "develop")


def test_report_mentions_push_only_with_remote(done: tuple[TestVault, Path, str]) -> None:
    vault, _, _ = done
    text = vault.reports()[0].read_text()
    assert "push" not in text
    block = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert [line.split()[:2] for line in block] == [
        ["placet", "diff"],
        ["placet", "merge"],
        ["placet", "drop"],
    ]


# --- looking at it, and tidying up


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


def test_daemon_removes_leftovers_despite_broken_ones(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, _ = done
    state = vault_state(vault.root, vault.env)
    opened, base = open_repo(repo), git(repo, "rev-parse", "HEAD")
    for name in ("aaaaaaaa-1", "bbbbbbbb-1", "cccccccc-1", "dddddddd-1"):
        tree = add_worktree(opened, state.worktrees / name, f"feat/left-{name}", base)
        (tree.path / "half.txt").write_text(name)
    shutil.rmtree(state.worktrees / "bbbbbbbb-1")  # by hand
    # a removal that was killed
    (state.worktrees / "cccccccc-1").rename(state.worktrees / "cccccccc-1.removed")
    (repo / ".git/worktrees/dddddddd-1/gitdir").unlink()
    (repo / ".git/worktrees/dddddddd-1/gitdir").mkdir()
    broken = repo.parent / "broken"
    broken.mkdir()
    (broken / ".git").write_text("gitdir: /nowhere\n")
    vault.configure(
        (vault.root / "System/placet.toml").read_text() + f"[portals.a]\npath = '{broken}'\n"
    )
    before = fingerprint(repo)
    said = "\n".join(vault.here())
    assert f"placet cannot check for old worktrees of {broken}" in said
    assert "Its work is kept at refs/placet/left/aaaaaaaa-1" in said
    assert "dddddddd-1 is left over from a crash and stays" in said
    assert sorted(p.name for p in state.worktrees.iterdir() if p.is_dir()) == ["dddddddd-1"]
    assert git(repo, "worktree", "list").count("\n") == 0
    assert fingerprint(repo) == before


def test_a_broken_entry_of_gits_stops_no_mission(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, _ = done
    (repo / ".git/worktrees/theirs/gitdir").mkdir(parents=True)
    again(vault, "again")
    assert len(vault.rows("execution.completed")) == 2


def test_portal_remove_lists_requests_that_need_it(done: tuple[TestVault, Path, str]) -> None:
    vault, _, branch = done
    vault.plays(PLAN)
    vault.drop("---\nportal: code\n---\nAgain.\n", "Again.md")
    vault.here()
    said = vault.click("portal", "remove", "code").stderr
    assert "again (review) needs it" in said
    assert f"say-hello has the branch {branch} there" in said
