"""Test what the keys of the guide let a worker do with the work remote, over ssh."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitkit import git, make_repo
from placet.git.repository import open_repo
from placet.git.run import GitError
from placet_team.command import _made_remote as made_remote
from placet_team.git_fetching import BASE, WORK, fetch, push, remove
from placet_team.git_refs import bare_repo_at
from sshkit import SshServer, ssh_server

pytestmark = pytest.mark.skipif(not shutil.which("git-shell"), reason="needs git-shell")

GUIDE = Path(__file__).parents[2] / "daemon/docs/team.md"


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    with ssh_server(tmp_path) as found:
        unshared = (
            "-oControlMaster=no -oControlPath=none"  # each login with the key's options of then
        )
        monkeypatch.setenv("GIT_SSH_COMMAND", f"{found.command} {unshared}")
        yield found


def options(worker: bool) -> str:
    """Return what the guide writes before the key of a worker, or of the daemon."""
    lines = re.findall(r"^(restrict,.*) ssh-ed25519 ", GUIDE.read_text(), re.MULTILINE)
    (found,) = [line for line in lines if ("PLACET_WORKER" in line) == worker]
    return found


def test_worker_key_adds_work_and_nothing_else(tmp_path: Path, served: SshServer) -> None:
    remote, code = made_remote(str(tmp_path / "work.git")), make_repo(tmp_path / "code")
    url, repo, one = served.address(remote), open_repo(code), git(code, "rev-parse", "HEAD")
    base, work = f"{BASE}t/{one}", f"{WORK}t/7/{one}"
    served.allow(options(worker=False))
    push(repo, url, {base: one})
    served.allow(options(worker=True))
    push(repo, url, {work: one})
    fetch(bare_repo_at(tmp_path / "clone.git", sha256=False), url, [one])
    git(code, "commit", "-q", "--allow-empty", "-m", "Another")
    two = git(code, "rev-parse", "HEAD")
    before = git(remote, "for-each-ref")
    for refused in (
        f":{base}", f":{work}", f"+{two}:{work}", f"{two}:{BASE}t/{two}", f"{two}:refs/heads/main",
        f"{two}:{WORK}t/7/{one}", f"{two}:refs/placet/x", f"{two}:{WORK}t/{two}",
    ):  # fmt: skip
        git(code, "push", "-q", url, refused, check=False)
        assert git(remote, "for-each-ref") == before
    with pytest.raises(GitError, match="build-1 can only add to refs/placet/work/"):
        remove(url, {BASE: list, WORK: list}, sha256=False)
    served.allow(options(worker=False))
    remove(url, {BASE: list, WORK: list}, sha256=False)
    assert git(remote, "for-each-ref") == ""


@pytest.mark.parametrize("worker", [True, False])
def test_keys_of_guide_give_no_shell(tmp_path: Path, served: SshServer, worker: bool) -> None:
    served.allow(options(worker))
    made = tmp_path / "made"
    login = served.address(Path()).removeprefix("ssh://").partition(":")[0]
    ssh = [served.command, "-p", f"{served.port}", login]
    for words in (
        ["touch", f"{made}"], ["sh"], [f"git-receive-pack '/x'; touch {made}"], [],
        [f'git-receive-pack "$(touch {made})"'], [f"git-upload-pack `touch {made}`"],
    ):  # fmt: skip
        done = subprocess.run(
            [*ssh, *words], capture_output=True, stdin=subprocess.DEVNULL, check=False
        )
        assert done.returncode != 0, done
    assert not made.exists()
