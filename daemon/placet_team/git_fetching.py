"""Fetch from a git remote and push to it: the git commands that reach the network."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote, split
from urllib.parse import unquote

from placet.chat.cancel import Cancel
from placet.git.run import (
    BULK_TIMEOUT_S,
    GitDir,
    GitError,
    Repo,
    leavable,
    place_of,
    rows_of,
    run_git,
    with_env,
)
from placet.host.config import Config
from placet.host.state import expand_home
from placet_team.git_refs import FETCHED, has_all, loose_refs, move_refs
from placet_team.git_scratch import bare_place, ssh_options
from placet_team.path_remotes import trouble_with_path

REMOTE_RETRY_S = 5.0
"""Retry interval while a remote gives or takes nothing."""
_MAX_KEPT = 100
_MAX_REMOVED = 500
"""References that one push deletes at most."""
_ANSWER_S = 10.0
"""Seconds within which a remote has to answer a question, before much is asked of it."""
_SILENT_S = 60
"""Seconds without a byte after which a line counts as dead; a server may think for a while."""
_SSH = f"-oBatchMode=yes -oConnectTimeout={_ANSWER_S:g} -oServerAliveInterval={_SILENT_S // 4}"
_ENDURING = ("http.lowSpeedLimit=1", f"http.lowSpeedTime={_SILENT_S}")
_WITHOUT_HOOKS = "git -c core.hooksPath=/dev/null -c core.alternateRefsCommand=true"
"""git as it serves a repository on this machine: not even hooks of the same user run."""
_PROTOCOLS = "file:http:https:ssh"
"""Not `git`, which is neither signed nor encrypted, nor `ext`, which starts a program."""
_USERS = re.compile(
    r"(HOME|USER|LOGNAME|XDG_CONFIG_HOME|SSH_AUTH_SOCK|GIT_SSH(_COMMAND)?|GIT_SSL_CAINFO"
    r"|SSL_CERT_FILE|(https?|all|no)_proxy)",
    re.IGNORECASE,
)
"""The names of a user's environment that git needs to reach a remote; no key is among them."""


def is_git_path(address: str) -> bool:
    """Return whether the address of a git repository is a path, and neither URL nor HOST:PATH."""
    return "://" not in address and ":" not in address.partition("/")[0]


def work_remote(vault: Path, config: Config, portal: str) -> str:
    """Return the git repository by which the commits of a portal travel; empty for none.

    The empty name is the vault itself. A path is as in `portal_path`.
    """
    table = config.portals.get(portal)
    address = (table.work_remote if table is not None else "") or config.team.work_remote
    return str(vault / expand_home(address)) if address and is_git_path(address) else address


BASE, WORK = "refs/placet/base/", "refs/placet/work/"
"""What a remote keeps: what work begins from, and what workers did."""


def leavable_by(cancel: Cancel, leaving: Cancel) -> AbstractContextManager[None]:
    """End git inside once work is to be left, for a case or for the whole process."""
    return leavable(lambda: cancel.must_leave() or leaving.is_set())


def address_of_git(given: str) -> str:
    """Return the address of a repository as git takes it from any folder; empty for none."""
    return str(expand_home(given).absolute()) if given and is_git_path(given) else given


def _local_path(url: str) -> Path | None:
    """Return where git finds a repository on this machine; None for one elsewhere."""
    if url.startswith("file://"):
        return Path(unquote(url.removeprefix("file:")))
    return Path(url) if is_git_path(url) else None


def _reached(
    place: GitDir,
    command: str,
    *args: str,
    url: str,
    wanted: Sequence[str],
    config: Sequence[str] = (),
    timeout_s: float = BULK_TIMEOUT_S,
) -> bytes:
    """Run a git command that reaches a remote, as its user would and without placet's keys.

    Return its output. Raises GitError, also for a repository here that other users can change.
    """
    if (path := _local_path(url)) is not None:
        if why := trouble_with_path(path):
            raise GitError((command,), 1, why)
        program = "receive-pack" if command == "push" else "upload-pack"
        args = (f"--{program}={_WITHOUT_HOOKS} {program}", *args)
    env = {name: value for name, value in os.environ.items() if _USERS.fullmatch(name)}
    ssh = _ssh_command(env.get("GIT_SSH_COMMAND") or quote(env.get("GIT_SSH") or "ssh"))
    env |= {"GIT_SSH_COMMAND": ssh, "GIT_ALLOW_PROTOCOL": _PROTOCOLS}
    place = replace(with_env(place, env), reaches=True)
    if url.startswith("http") and command != "ls-remote":
        # curl waits for minutes to be connected; ssh has a limit of its own
        run_git(place, "ls-remote", "--quiet", "--", url, "HEAD", timeout_s=_ANSWER_S)
    asked = (command, "--quiet", *args, "--", url, *wanted)
    return run_git(place, *asked, config=(*_ENDURING, *config), timeout_s=timeout_s)[1]


def _ssh_command(given: str) -> str:
    """Return a command for ssh, with placet's options where it is OpenSSH's; given ones win."""
    with suppress(ValueError, IndexError):
        if Path(split(given)[0]).name == "ssh":
            return f"{given} {_SSH} {ssh_options()}"
    return given


def asks(place: GitDir, url: str, *patterns: str) -> list[str]:
    """Return the references of a remote that match; raises GitError if it does not answer."""
    out = _reached(place, "ls-remote", url=url, wanted=patterns, timeout_s=_ANSWER_S)
    return [line.partition("\t")[2] for line in out.decode("utf-8", "replace").splitlines()]


def trouble_with(url: str) -> str:
    """Return git's message if a remote does not answer, else ""."""
    with bare_place(None, sha256=False) as place:
        try:
            asks(place, url, "HEAD")
        except GitError as error:
            return redact_line(error.stderr)
    return ""


def fetch(repo: Repo, url: str, commits: Sequence[str]) -> None:
    """Fetch the commits that a clone has not fetched yet, and nothing else.

    Raises GitError; its text contains no password.
    """
    wanted = [commit for commit in commits if not loose_refs(repo, [FETCHED + commit])]
    if not wanted:
        return
    _fetch(place_of(repo), url, [f"+{commit}:{FETCHED}{commit}" for commit in wanted])
    kept = [name for (name,) in rows_of(place_of(repo), ("refname",), FETCHED)]
    if len(kept) > _MAX_KEPT:
        move_refs(repo, {name: "" for name in kept if name.removeprefix(FETCHED) not in commits})


def fetch_commits(repo: Repo, url: str, commits: Sequence[str], near: Sequence[str]) -> None:
    """Fetch the objects of commits into a person's repository, those that are not there yet.

    Git checks each object first. No reference changes. `near` are commits that the repository may
    have, and the new ones build on. Raises GitError.
    """
    if not has_all(repo, *commits, "--not", "--all"):
        sha256 = len(commits[0]) > 40
        with bare_place(repo.common_dir / "objects", sha256=sha256) as place:
            for commit in near:
                if commit and has_all(repo, commit, "--not", "--all"):
                    run_git(place, "update-ref", FETCHED + commit, commit)
            _fetch(place, url, commits, "fetch.fsckObjects=true")


def _fetch(place: GitDir, url: str, wanted: Sequence[str], *config: str) -> None:
    how = ("--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=")
    _reached(place, "fetch", *how, url=url, wanted=wanted, config=config)


def push(repo: Repo, url: str, refs: Mapping[str, str]) -> None:
    """Push commits of a repository to new references of a remote.

    Hooks and settings of the repository have no effect. Raises GitError.
    """
    is_sha256 = any(len(one) > 40 for one in refs.values())
    with bare_place(repo.common_dir / "objects", sha256=is_sha256) as place:
        _push(place, url, [f"{commit}:{name}" for name, commit in refs.items()])


def remove(
    url: str, gone: Mapping[str, Callable[[Collection[str]], Collection[str]]], *, sha256: bool
) -> None:
    """Delete references of a remote. Raises GitError.

    `gone` says, by prefix, which of the names that follow the prefix nobody needs any more.
    """
    with bare_place(None, sha256=sha256) as place:
        found = asks(place, url, *(f"{prefix}*" for prefix in gone))
        names = list[str]()
        for prefix, needless in gone.items():
            of = {one: one[len(prefix) :].split("/")[0] for one in found if one.startswith(prefix)}
            dead = needless({*of.values()})
            names += [f":{name}" for name, key in of.items() if key in dead]
        if names:
            _push(place, url, names[:_MAX_REMOVED])


def _push(place: GitDir, url: str, wanted: Sequence[str]) -> None:
    config = ("push.recurseSubmodules=no",)
    _reached(
        place, "push", "--no-verify", "--no-follow-tags", url=url, wanted=wanted, config=config
    )


def redact_line(error: str) -> str:
    """Return git's message on one line, without a password or token that an address may hold."""
    line = re.sub(r"(https?://)[^/@\s]+@", r"\1", " ".join(error.split()))
    return re.sub(r"(://[^/@:\s]+):[^/@\s]+@", r"\1@", line)
