"""Test what becomes of a mission's branch: merged by any method, deleted, or still open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from branchkit import (
    FILES,
    MERGES,
    again,
    as_finished,
    became,
    fates,
    finished_once,
    hands,
    mission,
    row_of,
    squash_with_changes,
)
from gitkit import commit_all, fingerprint, git, make_repo, settle_home, write
from looping import Fake, Time, bare_vault, greeter, looping
from placet.case.case import Branch
from placet.client import branches
from placet.git.fate import BranchNews, Memory, look_at_branches
from placet.loop import branches as watching
from vaultkit import TestVault, make_vault, meddling


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


def test_branch_created_from_mission_branch_is_not_merge(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    git(repo, "branch", "mine", branch)
    vault.click("undo", "say-hello", "--yes")
    assert branch not in git(repo, "branch", "--list", "feat/*")


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
    squash_with_changes(hub, f"origin/{branch}")
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
    assert "placet pr say-hello" in text
    assert branches.merge(vault.site, "say-hello", here=False)[1] == "develop"
    git(repo, "reset", "-q", "--hard", "HEAD~1")
    squash_with_changes(repo, branch)
    git(repo, "branch", "-q", "-D", branch)
    git(repo, "checkout", "-q", "-b", "next")
    vault.here()
    assert row_of(vault)["commit_sha"] == git(repo, "rev-parse", "develop")
