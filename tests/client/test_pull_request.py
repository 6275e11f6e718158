"""Test that `placet pr` pushes a mission's branch as the person, and opens a draft."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitkit import git, make_repo, write
from placet.git.pull_request import host_of
from placet.git.receipt import RECEIPTS
from receiptkit import must_sign
from sshkit import ssh_server
from vaultkit import PLAN, TestVault, make_vault

TOKEN = "ghp_" + "aB3d" * 9


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    made = tmp_path / "hub.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(made))
    return made


@pytest.fixture
def vault(tmp_path: Path, hub: Path) -> TestVault:
    """A vault whose mission is done, in the repository `repo`, with the remote `hub`."""
    vault = make_vault(tmp_path, MY_TOKEN="s3cret-of-mine-1234")
    repo = make_repo(tmp_path / "repo", {"a.txt": "a\n"})
    git(repo, "remote", "add", "origin", str(hub))
    git(repo, "push", "-q", "origin", "main")
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    step = {**PLAN["steps"][0], "done_when": ["`true` passes"]}
    plan = {**PLAN, "title": "Say it", "steps": [step], "scope": {**PLAN["scope"], "run": ["true"]}}
    calls = [
        ("write_file", {"path": "hello.txt", "content": "hello\n"}),
        ("complete_step", {"step": 1, "summary": "Hello"}),
        ("finish", {"summary": "It says hello.\n\n- and no more"}),
    ]
    vault.plays(plan, calls)
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    vault.approve()
    vault.here()
    assert vault.rows("execution.completed"), vault.rows()[-1]
    return vault


def branch_of(vault: TestVault) -> str:
    return str(vault.rows("execution.completed")[0]["metadata"]["branch"])


def hook(place: Path, name: str, script: str) -> None:
    write(place, {f"hooks/{name}": f"#!/bin/sh\n{script}\n"})
    (place / "hooks" / name).chmod(0o755)


def program(folder: Path, name: str, *, logged_in: bool = True, fails: str = "") -> None:
    """Put a stand-in on the PATH, which keeps its arguments and its input."""
    write(
        folder,
        {
            name: f"""#!/bin/sh
case "$1 $2" in
"auth status") test "$3" = --hostname=127.0.0.1 && {str(logged_in).lower()}; exit ;;
"login list") {"echo 'https://127.0.0.1'" if logged_in else "true"}; exit ;;
esac
for word; do printf '%s\\0' "$word"; done > {folder}/{name}.args
cat > {folder}/{name}.input
pwd > {folder}/{name}.pwd
{f"echo '{fails}' >&2; exit 1" if fails else "echo Creating; echo https://127.0.0.1/pr/7"}
"""
        },
    )
    (folder / name).chmod(0o755)


@pytest.fixture
def over_ssh(vault: TestVault, tmp_path: Path, hub: Path) -> Iterator[Path]:
    """Serve the remote over ssh on loopback; give a folder that is first on the PATH."""
    programs = tmp_path / "programs"
    programs.mkdir(mode=0o700)
    with ssh_server(tmp_path) as served:
        git(tmp_path / "repo", "remote", "set-url", "origin", served.address(hub))
        path = f"{programs}:{os.environ['PATH']}"
        vault.extra |= {"PATH": path, "GIT_SSH_COMMAND": served.command}
        yield programs


@pytest.mark.parametrize(
    ("name", "args", "base"),
    [
        ("gh", ["pr", "create", "--draft", "--head={branch}"], "--base=main"),
        (
            "glab",
            ["mr", "create", "--draft", "--yes", "--source-branch={branch}"],
            "--target-branch=main",
        ),
        ("tea", ["pulls", "create", "--head={branch}"], "--base=main"),
    ],
)
def test_pr_pushes_over_ssh_and_opens_draft(
    vault: TestVault,
    tmp_path: Path,
    hub: Path,
    over_ssh: Path,
    name: str,
    args: list[str],
    base: str,
) -> None:
    for other in ("gh", "glab", "tea"):
        program(over_ssh, other, logged_in=other == name)
    branch, report = branch_of(vault), vault.reports()[0]
    report.write_text(report.read_text().replace("and no more", "and no s3cret-of-mine-1234"))
    done = vault.cli("pr", "say-hello")
    assert done.stdout == "https://127.0.0.1/pr/7\n"
    repo = tmp_path / "repo"
    assert git(hub, "rev-parse", branch) == git(repo, "rev-parse", branch)
    given = (over_ssh / f"{name}.args").read_text().split("\0")[:-1]
    assert given[: len(args)] == [word.format(branch=branch) for word in args]
    assert given[-1] == base
    assert f"--title={'WIP: ' if name == 'tea' else ''}Say it" in given
    body = (over_ssh / f"{name}.input").read_text() or next(
        word for word in given if word.startswith("--description=")
    )
    assert (over_ssh / f"{name}.pwd").read_text() == f"{repo}\n"
    for part in (
        "It says hello.\n\n- and no [redacted: secret]\n\nWhy: Write a greeting.\n\n## Checks\n\n"
        "- `true` never ran.\n\nCommands that ran:\n\nNone.\n\n## Cost\n\n1 iteration;",
        "Placet-Trace: ",
        "Placet-Plan: ",
        "Approved-By: ",
    ):
        assert part in body
    assert 'pr: "https://127.0.0.1/pr/7"\n' in report.read_text()
    assert "s3cret" not in body
    (over_ssh / f"{name}.args").unlink()
    again = vault.cli("pr", "say-hello", "--json")
    assert json.loads(again.stdout) == {
        "branch": branch,
        "remote": "origin",
        "pr": "https://127.0.0.1/pr/7",
        "opened": False,
        "create": "",
    }
    assert not (over_ssh / f"{name}.args").exists()


def test_remote_may_have_capitals(vault: TestVault, tmp_path: Path, hub: Path) -> None:
    repo, programs = tmp_path / "repo", tmp_path / "programs"
    git(repo, "remote", "rename", "origin", "Upstream")
    git(repo, "remote", "set-url", "Upstream", "https://127.0.0.1/me/code.git")
    git(repo, "remote", "set-url", "--push", "Upstream", str(hub))
    program(programs, "gh")
    vault.extra["PATH"] = f"{programs}:{os.environ['PATH']}"
    assert vault.cli("pr", "say-hello").stdout == "https://127.0.0.1/pr/7\n"


def test_failed_program_is_told_after_push(vault: TestVault, hub: Path, over_ssh: Path) -> None:
    program(over_ssh, "gh", fails="GraphQL: no commits between main and feat")
    done = vault.cli("pr", "say-hello", check=False)
    assert done.returncode == 1
    assert "The branch is pushed, but gh opened no pull request: GraphQL: no commits" in done.stderr
    assert git(hub, "rev-parse", branch_of(vault))


def test_pr_prints_address_of_remote(vault: TestVault, hub: Path) -> None:
    hook(hub, "post-receive", "echo 'Open it:'; echo '  https://hub.example/new?b=1'")
    done = vault.click("pr", "say-hello")
    assert done.stdout == "https://hub.example/new?b=1\n"
    assert "placet: remote: Open it:" in done.stderr
    assert "pr:" not in vault.reports()[0].read_text().split("---")[1]


def test_own_hook_runs_and_may_refuse(vault: TestVault, tmp_path: Path, hub: Path) -> None:
    own = tmp_path / "repo/.git"
    hook(own, "pre-push", "echo 'lint failed' >&2; exit 1")
    refused = vault.click("pr", "say-hello", check=False)
    assert refused.returncode == 1
    assert "lint failed" in refused.stderr
    assert f"origin did not take {branch_of(vault)}: " in refused.stderr
    assert branch_of(vault) not in git(hub, "branch")
    hook(own, "pre-push", "echo \"$MY_TOKEN\" > pushed; echo 'lint passed' >&2")
    assert "lint passed" in vault.click("pr", "say-hello").stderr
    assert (tmp_path / "repo/pushed").read_text() == "s3cret-of-mine-1234\n", "your environment"


@pytest.mark.parametrize("name", ["pre-receive", "update"])
def test_refusing_remote_is_error(vault: TestVault, hub: Path, name: str) -> None:
    hook(hub, name, "echo 'not on Fridays' >&2; exit 1")
    refused = vault.click("pr", "say-hello", check=False)
    assert refused.returncode == 1
    assert "not on Fridays" in refused.stderr
    assert "[remote rejected]" in refused.stderr
    assert "hook declined" in refused.stderr


def test_pr_never_forces(vault: TestVault, tmp_path: Path, hub: Path) -> None:
    branch, repo = branch_of(vault), tmp_path / "repo"
    git(repo, "push", "-q", "origin", f"main:refs/heads/{branch}")
    vault.click("pr", "say-hello")
    theirs = git(repo, "commit-tree", "-p", branch, "-m", "Theirs", f"{branch}^{{tree}}")
    git(repo, "push", "-q", "origin", f"{theirs}:refs/heads/{branch}")
    git(repo, "config", "remote.origin.push", f"+refs/heads/{branch}:refs/heads/{branch}")
    refused = vault.click("pr", "say-hello", check=False)
    assert refused.returncode == 1
    assert "[rejected]" in refused.stderr
    assert git(hub, "rev-parse", branch) == theirs


@pytest.mark.parametrize(
    ("change", "told", "hint"),
    [
        (("remote", "remove", "origin"), "has no remote to push to", "remote add origin URL"),
        (("remote", "set-url", "origin", "/nowhere/hub.git"), "did not take", "push origin"),
        (("remote", "set-url", "origin", "ext::sh -c true"), "did not take", "push origin"),
    ],
)
def test_unusable_remote_is_one_sentence(
    vault: TestVault, tmp_path: Path, change: tuple[str, ...], told: str, hint: str
) -> None:
    git(tmp_path / "repo", *change)
    refused = vault.click("pr", "say-hello", check=False)
    assert refused.returncode == 1
    assert told in refused.stderr
    assert hint in refused.stderr
    assert "Traceback" not in refused.stderr


def test_pr_needs_branch(vault: TestVault, tmp_path: Path) -> None:
    git(tmp_path / "repo", "branch", "-D", branch_of(vault))
    assert "is gone" in vault.click("pr", "say-hello", check=False).stderr
    assert vault.click("pr", "nothing", check=False).returncode == 3


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://github.com/me/x.git", "github.com"),
        ("https://me:pw@git.example:8443/x", "git.example"),
        ("git@github.com:me/x.git", "github.com"),
        ("ssh://git@git.example:22/x", "git.example"),
        ("work:me/x", "work"),
        ("/srv/x.git", ""),
        ("../x.git", ""),
        ("file:///srv/x.git", ""),
    ],
)
def test_host_of_remote(address: str, host: str) -> None:
    assert host_of(address) == host


def test_receipt_is_pushed_only_when_asked(vault: TestVault, tmp_path: Path, hub: Path) -> None:
    refused = vault.click("pr", "say-hello", "--receipt", check=False)
    assert refused.returncode == 1
    assert "was not signed" in refused.stderr
    assert "feat/" not in git(hub, "branch")
    must_sign(vault, tmp_path / "keys")
    vault.drop("---\nportal: code\n---\nSay hello again.\n", "Again.md")
    vault.here()
    vault.click("approve", "again", "--yes")
    vault.here()
    vault.click("pr", "again")
    assert git(hub, "for-each-ref", RECEIPTS) == ""
    said = vault.click("pr", "again", "--receipt")
    assert "and its receipt" in said.stderr
    here = git(tmp_path / "repo", "for-each-ref", RECEIPTS)
    assert git(hub, "for-each-ref", RECEIPTS) == here != ""
