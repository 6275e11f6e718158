"""Keep a worker's clones: fetch what work begins from, push what a mission commits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from placet.agent.record import Postponed
from placet.case.waiting import WaitReason
from placet.chat.cancel import Cancel
from placet.disk.files import delete_tree, put
from placet.errors import Interrupted, UserError, passing
from placet.git.repository import is_repository
from placet.git.run import GitError, Repo, RepositoryChanged, leavable, place_of, run_git
from placet.host.clock import Clock
from placet.journal.writes import Write
from placet_team.git_fetching import REMOTE_RETRY_S, WORK, fetch, push, redact_line
from placet_team.git_refs import (
    FETCHED,
    bare_repo_at,
    has_all,
    loose_refs,
    move_refs,
    refs_at,
)
from placet_team.tables import PutRefs
from placet_team.work_item import KEPT_SETTINGS, Source

PUSH_RETRY_S = 15.0
"""Retry interval after a remote took nothing for `PUSH_PATIENCE_S`."""
PUSH_PATIENCE_S = 120.0
_LONGEST_WAIT_S = 16.0


def borrow(folder: Path, source: Source, url: str, commits: Sequence[str]) -> Repo:
    """Return a worker's clone of a repository, with these commits, set up as a source says.

    `url` is the worker's own. Raises Postponed without one, where the remote does not give the
    commits, or for a damaged clone, which is then deleted.
    """
    path = folder / _name_of(source)
    if not url:
        what = f"the portal {source.portal}" if source.portal else "the vault"
        own = (
            f', or write [remotes] {json.dumps(source.portal)} = "URL" in the file of its --config'
        )
        raise Postponed(
            f"the worker has no git remote for {what}. Start it with --remote URL{own}",
            REMOTE_RETRY_S,
            WaitReason.MACHINE,
        )
    try:
        repo = bare_repo_at(path, sha256=source.sha256)
        _must_be_ours(repo)
        _fetch(repo, url, commits)
        _set_up(repo, source)
        return replace(repo)  # reads its settings again
    except (UserError, GitError, RepositoryChanged) as error:
        raise _damaged(path, error) from error


_MADE = {
    "core.repositoryformatversion",
    "core.filemode",
    "core.bare",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.sharedrepository",
    "extensions.objectformat",
}
"""The settings of a new bare repository; none of them starts a program or reaches a server."""


def _must_be_ours(repo: Repo) -> None:
    """Raise RepositoryChanged where a clone has a setting that placet does not make.

    So git uses only the credential helpers, proxies and programs of the worker's user.
    """
    mine = {item.partition("\n")[0] for scope, item in repo.settings if scope == "local"}
    if others := sorted(mine - _MADE - {*KEPT_SETTINGS}):
        raise RepositoryChanged(f"it has settings that placet does not make: {', '.join(others)}")


def _fetch(repo: Repo, url: str, commits: Sequence[str]) -> None:
    try:
        fetch(repo, url, commits)
    except GitError as error:
        if not has_all(repo, "--no-walk", "--all"):
            raise  # the clone is damaged
        raise Postponed(
            f"the worker cannot fetch from {redact_line(url)}: {redact_line(error.stderr)}",
            REMOTE_RETRY_S,
            WaitReason.MACHINE,
        ) from error
    if not has_all(repo, "--no-walk", *commits):
        raise RepositoryChanged("objects are missing")


def _set_up(repo: Repo, source: Source) -> None:
    """Give a clone the settings, rules and references of a source."""
    for file, text in (("exclude", source.exclude), ("attributes", source.attributes)):
        (repo.git_dir / "info").mkdir(exist_ok=True)
        put(repo.git_dir / "info" / file, text.encode("utf-8", "surrogateescape"))
    here = dict(item.partition("\n")[::2] for scope, item in repo.settings if scope == "local")
    for key in KEPT_SETTINGS:
        if (value := source.settings.get(key)) != here.get(key):
            run_git(place_of(repo), "config", "--unset-all", key, ok=(0, 5))
            if value is not None:
                run_git(place_of(repo), "config", "--end-of-options", key, value)
    known = refs_at(repo, [*source.refs])
    move_refs(repo, {name: at for name, at in source.refs.items() if at != known.get(name, "")})
    if source.head:
        run_git(place_of(repo), "symbolic-ref", "HEAD", source.head)


def _damaged(path: Path, error: Exception) -> Postponed:
    """Delete a damaged clone, unless other work is in it; return the error that makes work wait."""
    if why := passing(error):
        return Postponed(why, REMOTE_RETRY_S, WaitReason.MACHINE)
    trees = path / "worktrees"
    if not (trees.is_dir() and any(trees.iterdir())):
        delete_tree(path)
    return Postponed(
        f"the worker's clone {path} was damaged ({redact_line(str(error))}). The worker creates it "
        "again",
        REMOTE_RETRY_S,
        WaitReason.MACHINE,
    )


def _name_of(source: Source) -> str:
    """Return the name of a clone's folder: a portal's may be any text, and differ in case alone."""
    owner = f"portal/{source.portal} {source.sha256}"
    shown = re.sub(r"[^A-Za-z0-9_-]", "_", source.portal)[:40] or "vault"
    return f"{shown}-{sha256(owner.encode()).hexdigest()[:8]}.git"


def clear_clones(folder: Path) -> None:
    """Delete from all clones what a killed worker left of its work; their objects stay."""
    for path in folder.glob("*.git"):
        _clear(path)


def _clear(path: Path) -> None:
    """Delete what is in a clone besides its objects and settings; the caller alone works on it.

    That is: references (except what was fetched), worktrees, and the locks and incomplete packs of
    a killed git.
    """
    for pattern in ("*.lock", "info/*.lock", "objects/pack/tmp_*", "objects/pack/*.lock"):
        for left in path.glob(pattern):
            left.unlink()
    refs = [one for one in path.glob("refs/*") if f"refs/{one.name}/" != FETCHED]
    for part in (path / "worktrees", path / "logs", *refs):
        delete_tree(part)
    (path / "packed-refs").unlink(missing_ok=True)
    (path / "refs" / "heads").mkdir(parents=True, exist_ok=True)


class PushCarrier:
    """Pushes a mission's commits before its record names them.

    Each commit has its own reference on the remote, named by the lease's token. It never moves.
    """

    def __init__(
        self,
        repo: Repo,
        names: Sequence[str],
        url: str,
        whose: tuple[str, int],
        lent: Collection[str],
        cancel: Cancel,
        leaving: Callable[[], bool],
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        """`whose` are trace_id and token; the remote has the commits `lent`."""
        self._repo, self._names, self._url = repo, names, url
        self._whose, self._lent, self._clock = whose, lent, clock
        self._cancel, self._leaving, self._say = cancel, leaving, say
        self._known = self._next = loose_refs(repo, names)

    def writes(self) -> list[Write]:
        """Push what changed since `sent`; return the write that records it.

        Raises Postponed where the remote takes nothing or this machine fails, Interrupted where
        work is to be left.
        """
        try:
            return self._writes()
        except (OSError, GitError) as error:  # such as a full disk
            raise Postponed(str(error), PUSH_RETRY_S, WaitReason.MACHINE) from error

    def _writes(self) -> list[Write]:
        now = loose_refs(self._repo, self._names)
        if now == self._known or not is_repository(self._repo.common_dir):
            return []  # of a clone that was deleted no reference was
        trace_id, token = self._whose
        news = {*now.values()} - {*self._known.values(), *self._lent}
        if news:
            self._push({f"{WORK}{trace_id}/{token}/{commit}": commit for commit in sorted(news)})
        self._next = now
        return [PutRefs(json.dumps(now))]

    def sent(self) -> None:
        """Note that the write was recorded."""
        self._known = self._next

    def _push(self, refs: Mapping[str, str]) -> None:
        until_s, wait_s = self._clock.monotonic() + PUSH_PATIENCE_S, 1.0
        while True:
            try:
                with leavable(self._cancel.must_leave):
                    return push(self._repo, self._url, refs)
            except GitError as error:
                to, reason = redact_line(self._url), redact_line(error.stderr)
                why = f"the worker cannot push to {to}: {reason}"
                if wait_s == 1.0:
                    self._say(f"{why}. It tries again")
                if passing(error) or self._clock.monotonic() >= until_s or self._must_end(wait_s):
                    raise Postponed(why, PUSH_RETRY_S, WaitReason.MACHINE) from error
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _must_end(self, wait_s: float) -> bool:
        """Wait before another try; return whether a person stopped the mission meanwhile."""
        self._clock.wait(wait_s, lambda: self._cancel.is_set() or self._leaving())
        if self._cancel.reason:
            return True
        if self._cancel.is_set() or self._leaving():
            raise Interrupted("the work is to be left")
        return False
