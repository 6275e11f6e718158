"""Test how the daemon watches branches, records what became of them, and tidies up."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from branchkit import (
    FILES,
    MERGES,
    again,
    as_finished,
    fates,
    finished_once,
    mission,
    row_of,
    yes,
)
from gitkit import commit_all, fingerprint, git, make_repo, settle_home, write
from looping import Fake, Running, Time, bare_vault, looping, says, turns_taken
from placet.chat.messages import Ask, Purpose, Reply
from placet.client import branches
from placet.client.branches import drop, undo
from placet.errors import UserError
from placet.git.branch_facts import branch_facts
from placet.git.leftovers import delete_leftovers
from placet.git.repository import is_repository, open_repo
from placet.git.worktree import add_worktree
from placet.host.state import vault_state
from placet.loop import branches as watching
from placet.note.frontmatter import stamp
from placet.tools.commit_secrets import blank_secrets
from vaultkit import PLAN, TestVault, meddling


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "home"


TOKEN = "ghp_" + "aB3d" * 9


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path / "repo", FILES)


@pytest.fixture(scope="module")
def once_done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return finished_once(tmp_path_factory.mktemp("done"))


@pytest.fixture
def done(once_done: tuple[Path, str]) -> tuple[TestVault, Path, str]:
    return as_finished(*once_done)


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
        f"placet pr say-hello # a draft pull request # or: git -C {repo} push hub {branch}",
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
            assert sum("cannot see the fate" in line for line in running.said) == times
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
        [
            ("write_file", {"path": "hello.txt", "content": "hell\n"}),
            *(step if last else []),
            ("write_file", {"path": "hello.txt", "content": "hello\n"}),
        ],
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


def test_report_mentions_push_only_with_remote(done: tuple[TestVault, Path, str]) -> None:
    vault, _, _ = done
    text = vault.reports()[0].read_text()
    assert "push" not in text
    block = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert [line.split()[:2] for line in block] == [
        ["placet", "diff"],
        ["#", "or:"],
        ["placet", "merge"],
        ["#", "or:"],
        ["placet", "drop"],
        ["#", "or:"],
    ]
    assert max(map(len, block)) < 100 + len(str(vault.root.parent)), "it is read on a phone"


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
