"""Make a mission's branch, merge it by every method, and read what became of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gitkit import git, make_repo, settle_home, write
from vaultkit import PLAN, TestVault, make_vault

FILES = {"a.txt": "".join(f"{n}\n" for n in range(20)), ".gitignore": "*.log\n"}


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


def finished_once(folder: Path) -> tuple[Path, str]:
    """Return the folder in whose `kept` all of `here` is as it was after a mission, and its branch."""
    here = folder / "here"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settle_home(folder / "home").items():
            patch.setenv(name, value)
        branch = mission(make_vault(here), make_repo(here / "repo", FILES))
    shutil.copytree(here, folder / "kept", symlinks=True)
    return folder, branch


def as_finished(folder: Path, branch: str) -> tuple[TestVault, Path, str]:
    """Return a vault, a repository, and the branch of a mission that wrote two files in two steps."""
    here = folder / "here"
    shutil.rmtree(here)
    shutil.copytree(folder / "kept", here, symlinks=True)
    return TestVault(here / "vault", here / "state"), here / "repo", branch


def squash_with_changes(repo: Path, branch: str) -> None:
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


def pick(repo: Path, branch: str) -> None:
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
    "squash with changes": squash_with_changes,
    "squash by hand": _squash_by_hand,
    "squash at a forge": _squash_at_a_forge,
    "rebase": _rebase,
    "cherry-pick": pick,
    "pull request": _pull_request,
}


def row_of(vault: TestVault) -> dict[str, object]:
    rows = [row for row in vault.rows() if row["action_type"].startswith("pr.")]
    assert len(rows) == 1, [row["action_type"] for row in rows]
    return {"action": rows[0]["action_type"], "actor": rows[0]["actor"], **rows[0]["metadata"]}


def became(vault: TestVault) -> str:
    return str(json.loads(vault.click("show", "say-hello", "--json").stdout)["became"])


def hands(vault: TestVault) -> list[tuple[str, str, str]]:
    rows = [row for row in vault.rows() if row["action_type"].startswith("pr.")]
    return [
        (row["action_type"], row["metadata"].get("reviewed_by"), row["metadata"].get("via"))
        for row in rows
    ]


def again(vault: TestVault, name: str) -> str:
    """Have the mission of `done` done once more for another request; return its branch."""
    vault.drop("---\nportal: code\n---\nSay hello.\n", f"{name}.md")
    vault.here()
    vault.approve(name)
    vault.here()
    return str(vault.rows("execution.completed")[-1]["metadata"]["branch"])


def fates(vault: TestVault) -> list[str]:
    return [action for action in vault.actions() if action.startswith("pr.")]


def yes(_question: str) -> bool:
    return True
