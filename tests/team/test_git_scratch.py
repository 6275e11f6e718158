"""Test the folder for what git needs for a moment, and the ssh connections in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from gitkit import git, make_repo
from placet_team.git_refs import bare_repo_at
from placet_team.git_scratch import bare_place, folder
from sshkit import SshServer, ssh_server


@pytest.fixture
def served(tmp_path: Path) -> Iterator[SshServer]:
    with ssh_server(tmp_path) as found:
        yield found


USE = """
import sys
from pathlib import Path
from placet.git.repository import open_repo, head
from placet_team.git_fetching import BASE, WORK, fetch, fetch_commits, push, remove
from placet_team.git_refs import bare_repo_at
from placet_team.git_scratch import folder
url, code, clone = sys.argv[1:4]
repo = open_repo(Path(code))
commit = head(repo)
push(repo, url, {f"{BASE}t/{commit}": commit})
fetch(bare_repo_at(Path(clone), sha256=False), url, [commit])
push(repo, url, {f"{WORK}t/7/{commit}": commit})
remove(url, {BASE: list, WORK: list}, sha256=False)
print(folder(), *folder().glob("ssh-*"), flush=True)
if sys.argv[4:]:
    sys.stdin.read()
"""


def use(
    served: SshServer, folder: Path, *more: str, ssh: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a process that pushes, fetches and deletes over ssh; it prints its folder.

    `ssh` are variables that name the program; without them it is the first of the PATH.
    """
    (folder / "tmp").mkdir(exist_ok=True)
    remote = bare_repo_at(folder / "work.git", sha256=False).path
    code = folder / "code" if (folder / "code").exists() else make_repo(folder / "code")
    env = {**os.environ, **(ssh or {"PATH": f"{served.programs}:{os.environ['PATH']}"})}
    words = (served.address(remote), str(code), str(folder / "clone.git"), *more)
    return subprocess.Popen(
        [sys.executable, "-c", USE, *words], stdin=-1, stdout=-1, text=True, env=env
    )


def masters(place: str) -> str:
    """Return the ssh processes that share connections in a folder."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return "\n".join(line for line in found.stdout.splitlines() if place in line)


def place_of(process: subprocess.Popen[str]) -> str:
    """Return the folder of a process once it has used the remote."""
    assert process.stdout is not None
    return process.stdout.readline().split()[0]


@pytest.mark.parametrize("variable", ["", "GIT_SSH_COMMAND", "GIT_SSH"])
def test_git_commands_of_process_share_one_login(
    served: SshServer, tmp_path: Path, variable: str
) -> None:
    with use(served, tmp_path, ssh={variable: served.command} if variable else None) as done:
        place, socket = done.communicate(timeout=60)[0].split()
    assert done.returncode == 0
    assert served.logins() == 1
    assert len(socket) + len(".0123456789abcdef") < 104
    assert not Path(place).exists()
    assert not masters(place)


def test_next_process_ends_connections_of_killed_one(served: SshServer, tmp_path: Path) -> None:
    with ExitStack() as stack:  # one after the other: both push the same reference
        killed = stack.enter_context(use(served, tmp_path, "wait"))
        gone = place_of(killed)
        living = stack.enter_context(use(served, tmp_path, "wait"))
        kept = place_of(living)
        killed.kill()
        killed.wait()
        for one in (gone, kept):
            os.utime(one, (0, time.time() - 100))
        assert masters(gone)
        with use(served, tmp_path) as after:
            place_of(after)
        assert not Path(gone).exists()
        assert not masters(gone)
        assert Path(kept).exists()
        assert masters(kept)
        living.communicate(timeout=60)


def test_bare_place_has_objects_and_nothing_else(tmp_path: Path) -> None:
    for sha256 in (False, True):
        code = tmp_path / f"code{sha256}"
        code.mkdir()
        git(code, "init", "-q", f"--object-format={'sha256' if sha256 else 'sha1'}")
        git(code, "commit", "-q", "--allow-empty", "-m", "Begin")
        with bare_place(code / ".git/objects", sha256=sha256) as place:
            assert place.git_dir is not None
            where = f"--git-dir={place.git_dir}"
            commit = git(code, "rev-parse", "HEAD")
            assert git(code, where, "cat-file", "-t", commit, **place.env) == "commit"
            assert git(code, where, "for-each-ref", **place.env) == ""
        assert not place.git_dir.exists()


def test_cleaned_folder_is_made_anew() -> None:
    before = folder()
    shutil.rmtree(before)
    after = folder()
    assert after != before
    assert after == folder()
    assert (after / "lock").exists()
