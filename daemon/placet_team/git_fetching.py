"""Fetching from a remote: the one git command that reaches the network, as its user would."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from placet.git.repository import resolve
from placet.git.run import BULK_TIMEOUT_S, Repo, ask, place_of, rows_of, run_git, text_of
from placet_team.git_packs import FETCHED, loose_refs, move_refs

_MAX_KEPT = 100
_ANSWER_S = 10.0
"""Seconds within which a remote has to answer a question, before much is asked of it."""
_SILENT_S = 60
"""Seconds without a byte after which a line counts as dead; a server may think for a while."""
_SSH = f"ssh -oBatchMode=yes -oConnectTimeout={_ANSWER_S:g} -oServerAliveInterval={_SILENT_S // 4}"
_PROTOCOLS = "file:http:https:ssh"
"""Not `git`, which nobody signs or encrypts, nor `ext`, which starts a program."""
_USERS = re.compile(
    r"(HOME|USER|LOGNAME|XDG_CONFIG_HOME|SSH_AUTH_SOCK|GIT_SSH(_COMMAND)?|GIT_SSL_CAINFO"
    r"|SSL_CERT_FILE|(https?|all|no)_proxy)",
    re.IGNORECASE,
)
"""The names of a user's environment that git needs to reach a remote; no key is among them."""


def url_of(repo: Repo, remote: str) -> str:
    """Return where a remote of the person's repository is, without a password; "" for nowhere.

    That is where git would look, with the person's `insteadOf`.
    """
    if not repo.setting(f"remote.{remote}.url"):
        return ""
    url = text_of(ask(repo, "ls-remote", "--get-url", remote))
    if "://" not in url:
        is_path = ":" not in url.partition("/")[0]  # else HOST:PATH
        return str((repo.path / url).resolve()) if is_path else url
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    user = user.partition(":")[0] if parts.scheme == "ssh" else ""  # of http it may be a token
    return parts._replace(netloc=f"{user}{at if user else ''}{host}").geturl()


def has_branches(repo: Repo, remote: str) -> bool:
    """Return whether the repository has heard of any branch of a remote."""
    return any(rows_of(place_of(repo), ("refname",), f"refs/remotes/{remote}/"))


def met_at(repo: Repo, remote: str, commits: Sequence[str]) -> list[str]:
    """Return those of the commits' history that a remote has, and whose parents it then has too.

    That is what the person's repository has heard of the remote; nobody is asked.
    """
    found = list[str]()
    for commit in commits:
        asked = ("rev-list", "--boundary", commit, "--not", f"--remotes={remote}")
        lines = ask(repo, *asked, timeout_s=BULK_TIMEOUT_S).decode().split()
        edge = [line[1:] for line in lines if line.startswith("-")]
        found += edge if lines else [commit]
    return list(dict.fromkeys(found))


def has_all(repo: Repo, remote: str, commits: Sequence[str]) -> bool:
    """Return whether a remote has all of these commits, by what the repository has heard of it."""
    asked = ("rev-list", "--max-count=1", *commits, "--not", f"--remotes={remote}")
    return all(resolve(repo, one) for one in commits) and not (commits and ask(repo, *asked))


def fetch(repo: Repo, url: str, commits: Sequence[str]) -> None:
    """Fetch commits into a clone, those that it has not fetched yet; nothing else is taken along.

    Raises GitError, without a password in its words.
    """
    wanted = [commit for commit in commits if not loose_refs(repo, [FETCHED + commit])]
    if not wanted:
        return
    env = {name: said for name, said in os.environ.items() if _USERS.fullmatch(name)}
    env = {"GIT_SSH_COMMAND": _SSH, **env, "GIT_ALLOW_PROTOCOL": _PROTOCOLS}
    place = replace(place_of(repo), env=env, reaches=True)
    run_git(place, "ls-remote", "--quiet", "--", url, "HEAD", timeout_s=_ANSWER_S)
    run_git(
        place,
        *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--refmap=", "--", url),
        *(f"+{commit}:{FETCHED}{commit}" for commit in wanted),
        config=("http.lowSpeedLimit=1", f"http.lowSpeedTime={_SILENT_S}"),
        timeout_s=BULK_TIMEOUT_S,
    )
    kept = [name for (name,) in rows_of(place_of(repo), ("refname",), FETCHED)]
    if len(kept) > _MAX_KEPT:
        move_refs(repo, {name: "" for name in kept if name.removeprefix(FETCHED) not in commits})


def said_of(error: str) -> str:
    """Return git's words on one line, without a password that an address may hold."""
    return re.sub(r"://[^/@\s]+@", "://", " ".join(error.split()))
