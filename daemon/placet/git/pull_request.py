"""Open a draft pull request with `gh`, `glab` or `tea`, if one of them is logged in."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from placet.errors import UserError
from placet.git.run import Repo

TIMEOUT_S = 120.0
"""Longest time for one program."""
MAX_BODY = 60_000
"""Characters of a body; GitHub takes 65,536."""

_ADDRESS = re.compile(r"https?://[^\s\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True)
class Draft:
    """A pull request to open: from `branch` into `base`, which the program chooses if it is empty.

    `host` is the remote's.
    """

    host: str
    branch: str
    base: str
    title: str
    body: str


def host_of(address: str) -> str:
    """Return the host of a remote's address, empty for a folder."""
    found = re.match(r"\w[\w+.-]*://(?:[^/@]*@)?([\w.-]+)|(?:[^/@:]+@)?([\w.-]+):(?!//)", address)
    return (found[1] or found[2] or "") if found and not address.startswith("file:") else ""


def last_address(lines: Sequence[str]) -> str:
    """Return the last web address in these lines, empty without one."""
    return next((found[-1] for line in reversed(lines) if (found := _ADDRESS.findall(line))), "")


def open_draft(repo: Repo, draft: Draft) -> str:
    """Open a draft with the first program that is logged in at its host; return its address.

    Empty if none is. The program runs in the repository, as you and in your environment. Raises
    UserError if it fails.
    """
    name = next((name for name in _CREATE if draft.host and _is_logged_in(repo, name, draft)), "")
    if not name:
        return ""
    create, base, from_input = _CREATE[name]
    body = draft.body[:MAX_BODY]
    into = [f"{base}={draft.base}"] if draft.base else []
    given = {"branch": draft.branch, "title": draft.title, "body": body}
    words = [word.format_map(given) for word in create]
    done = _run(repo, [name, *words, *into], body if from_input else "")
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise UserError(
            f"The branch is pushed, but {name} opened no pull request: {' '.join(said[-3:])}",
            f"Open one for {draft.branch} on {draft.host}.",
        )
    return last_address(done.stdout.splitlines())


# What a program is given, its option for the base, and whether it reads the body from its input.
# Gitea takes a title that begins with `WIP:` for a draft.
_CREATE: dict[str, tuple[tuple[str, ...], str, bool]] = {
    "gh": (
        ("pr", "create", "--draft", "--head={branch}", "--title={title}", "--body-file=-"),
        "--base",
        True,
    ),
    "glab": (
        (
            *("mr", "create", "--draft", "--yes", "--source-branch={branch}"),
            *("--title={title}", "--description={body}"),
        ),
        "--target-branch",
        False,
    ),
    "tea": (
        ("pulls", "create", "--head={branch}", "--title=WIP: {title}", "--description={body}"),
        "--base",
        False,
    ),
}


def _is_logged_in(repo: Repo, name: str, draft: Draft) -> bool:
    if shutil.which(name) is None:
        return False
    if name == "tea":
        return draft.host in _run(repo, [name, "login", "list"]).stdout
    return _run(repo, [name, "auth", "status", f"--hostname={draft.host}"]).returncode == 0


def _run(repo: Repo, argv: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program that reads `text`; one that does not end in time has failed."""
    try:
        return subprocess.run(
            argv,
            cwd=repo.path,
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(argv, 1, "", str(error))
