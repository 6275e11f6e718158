"""The git program: where it is, whether it is new enough, and its environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from functools import lru_cache

from placet.errors import UserError
from placet.repo.values import BOT, GitError

MINIMUM_GIT = (2, 38)
"""`merge-tree --write-tree` and `safe.bareRepository` are of git 2.38."""

CALL_TIMEOUT_S = 60.0


@lru_cache(maxsize=1)
def program_on(path: str) -> str:
    """Return the full path of `git` on this PATH.

    Raises UserError where git is missing or too old. Raises GitError where it fails: that may be
    the machine's fault.
    """
    git = shutil.which("git", path=path)
    if git is None:
        raise UserError(
            "git is not installed, or not on PATH", "Install git, then try again.", exit_code=2
        )
    try:
        ended = subprocess.run(
            [git, "version"],
            env=environment(path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=CALL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as late:
        raise GitError(("version",), 1, f"no answer within {CALL_TIMEOUT_S:g} s") from late
    if ended.returncode != 0:
        raise GitError(("version",), ended.returncode, why_ended(ended.returncode, ended.stderr))
    said = ended.stdout.strip()
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None:
        raise UserError(f"{git} does not say its version", f"Try it: {git} version", exit_code=2)
    if (int(found[1]), int(found[2])) < MINIMUM_GIT:
        wanted = ".".join(map(str, MINIMUM_GIT))
        raise UserError(f"{git} is too old: {said}", f"Install git {wanted} or newer.", exit_code=2)
    return git


def why_ended(code: int, said: str) -> str:
    """Return why a git process failed that ended with `code` and `said` so much about it."""
    # not killed by us: by a system without memory, for one
    return f"it was killed by signal {-code}" if code < 0 else said.strip() or "it said nothing"


def git_found() -> tuple[str, str, bool]:
    """Return which git a person's shell finds, its version, and whether that is new enough.

    For a person's command, never for work: GitPython hands the caller's whole environment on.
    Raises UserError if git is missing or does not answer.
    """
    program = shutil.which("git")
    if program is None:
        raise UserError("git is not installed, or not on PATH", "Install git.", exit_code=2)
    version: tuple[int, ...] = ()
    with suppress(Exception):  # of many kinds: the import, too, ends in one where git does not run
        import git  # 150 ms and 3 MB, which a daemon must not carry

        git.refresh(program)
        version = git.Git().version_info
    if not version:
        raise UserError(
            f"{program} does not say its version", f"Try it: {program} version", exit_code=2
        )
    return program, ".".join(map(str, version)), version[:2] >= MINIMUM_GIT


def environment(path: str) -> dict[str, str]:
    """Return a git process's whole environment: few names of the daemon's are in it."""
    person = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in os.environ}
    return person | {
        "PATH": path,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        # Unlike protocol.allow this also wins over `protocol.ext.allow = always` in the repository.
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_AUTHOR_NAME": BOT.name,
        "GIT_AUTHOR_EMAIL": BOT.email,
        "GIT_COMMITTER_NAME": BOT.name,
        "GIT_COMMITTER_EMAIL": BOT.email,
    }
