"""Make small repositories, and a value that changes if a person's repository is touched."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from placet.git.commit import writing
from placet.git.run import Author
from placet.git.worktree import Worktree

OURS = ("refs/heads/feat/", "refs/heads/feat-", "refs/placet/")
"""Where placet may make references; everything else is the person's."""


IDENTITY = {
    "GIT_AUTHOR_NAME": "Ann Person",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "Ann Person",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
}
"""Who commits in tests on a machine where nobody has told git who they are."""


def settle_home(home: Path) -> dict[str, str]:
    """Make a home folder with a git identity.

    Returns the environment to put in force (HOME and the like).
    """
    home.mkdir(exist_ok=True)
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Ann Person\n\temail = ann@example.org\n[init]\n\tdefaultBranch = main\n"
        '[protocol "file"]\n\tallow = always\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n'
    )
    return {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}


def git(where: Path, *args: str, check: bool = True, stdin: bytes | None = None, **env: str) -> str:
    """Run plain git in a folder, as a person would, and return its output without the last newline."""
    done = subprocess.run(
        ["git", *args],
        cwd=where,
        input=stdin,
        capture_output=True,
        check=False,
        env={**IDENTITY, **os.environ, "GIT_CONFIG_NOSYSTEM": "1", **env},
    )
    if check and done.returncode != 0:
        raise AssertionError(f"git {args} in {where}: {done.returncode}: {done.stderr!r}")
    return os.fsdecode(done.stdout).rstrip("\n")


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write these files, with their folders."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def make_repo(path: Path, files: Mapping[str, str | bytes] | None = None) -> Path:
    """Make a repository with one commit of these files (a README where none are given) on branch
    main.
    """
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    write(path, {"README.md": "hello\n"} if files is None else files)
    return commit_all(path, "Begin")


def commit_all(path: Path, message: str) -> Path:
    """Commit everything there is, as a person would."""
    git(path, "add", "-A")
    git(path, "commit", "-q", "--allow-empty", "-m", message)
    return path


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"link {path.readlink()}"
    if path.is_dir():
        return "folder"
    return f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def _tree(folder: Path, skip: tuple[Path, ...] = ()) -> dict[str, str]:
    found = {}
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if Path(where, name) not in skip]
        for name in (*folders, *files):
            found[str(Path(where, name).relative_to(folder))] = _content(Path(where, name))
    return found


def fingerprint(path: Path, skip: Sequence[str] = ()) -> dict[str, object]:
    """Return all that is the person's in the repository at `path`, as one comparable value.

    HEAD, every reference but ours, index, configuration, hooks, stash, what is in progress, and the
    whole work tree with untracked and ignored files. Objects, our branches and worktrees are left
    out, and the folders `skip`.
    """
    git_dir = path / ".git" if os.path.lexists(path / ".git") else path
    if git_dir.is_file():
        git_dir = path / git_dir.read_text().removeprefix("gitdir: ").rstrip("\n")
    refs = git(
        path,
        "--git-dir",
        str(git_dir),
        "for-each-ref",
        "--format=%(refname) %(objectname) %(symref)",
        check=False,
    )
    found: dict[str, object] = {
        "refs": [line for line in refs.splitlines() if not line.startswith(OURS)],
        "hooks": _tree(git_dir / "hooks"),
        "info": _tree(git_dir / "info"),
    }
    for name in (
        "HEAD",
        "index",
        "index.lock",
        "config",
        "config.worktree",
        "logs/HEAD",
        "logs/refs/stash",
        "MERGE_HEAD",
        "ORIG_HEAD",
        "rebase-merge/head-name",
        "COMMIT_EDITMSG",
        "FETCH_HEAD",
    ):
        file = git_dir / name
        found[name] = _content(file) if os.path.lexists(file) else None
    if git_dir != path:
        found["files"] = _tree(path, skip=(path / ".git", *(path / name for name in skip)))
    return found


def commit_changes(
    wt: Worktree,
    message: str,
    author: Author,
    when: datetime,
    *,
    choose: Callable[[list[str]], Collection[str]] = list,
) -> str | None:
    """Commit what changed in a mission's worktree, or of it what `choose` returns.

    Return the commit, None for none.
    """
    with writing(wt) as worktree:
        return worktree.commit(choose(worktree.changes()), message, author, when)
