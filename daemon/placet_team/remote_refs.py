"""Remember which commits this daemon pushed, and delete what finished work left on a remote."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from placet.codec import sha256
from placet.errors import Interrupted, UserError
from placet.git.run import GitError, Repo, leavable
from placet.host.clock import boottime_s
from placet_team.git_fetching import BASE, WORK, push, remove

CLEAR_AFTER_S = 10.0
"""Seconds after which finished work is deleted from a remote, all of it at once."""
BASE_UNUSED_S = 3600.0
"""Seconds after which a remote need not have a commit any more that no work begins from."""


@dataclass(slots=True)
class RemoteRefs:
    """What this daemon put on the remote at `url`. Any thread may use it.

    `bases` is the prefix of references to commits that work begins from. Other vaults have others.
    """

    url: str
    bases: str
    used: dict[str, float] = field(default_factory=dict)
    """When work last began from a commit that the remote has."""
    clearing: bool = False
    sending: threading.Lock = field(default_factory=threading.Lock)
    lock: threading.Lock = field(default_factory=threading.Lock)
    since_s: float = field(default_factory=boottime_s)

    def send(self, repo: Repo, commits: Sequence[str]) -> None:
        """Push commits that the remote may not have yet. Raises GitError."""
        with self.sending:  # of two pushes of one commit, git would refuse the second
            with self.lock:
                known = self.used.keys() & {*commits}
                self.used |= dict.fromkeys(known, boottime_s())
            missing = {*commits} - known
            if missing:
                push(repo, self.url, {self.bases + one: one for one in sorted(missing)})
                with self.lock:
                    self.used |= dict.fromkeys(missing, boottime_s())

    def forget(self) -> None:
        """Push everything again the next time: the remote may have lost it."""
        with self.lock:
            self.used.clear()

    def clear_later(
        self,
        ended: Callable[[Collection[str]], Collection[str]],
        leaving: Callable[[], bool],
        *,
        is_sha256: bool,
    ) -> None:
        """Delete what finished work left, soon, in a separate thread.

        `ended` returns those of some trace_ids that have ended. What stays because the daemon
        ends, or the remote is away, is deleted the next time.
        """

        def clear() -> None:
            with self.lock:
                self.clearing = False
            with suppress(GitError, OSError, UserError, Interrupted), leavable(leaving):
                if not leaving():
                    remove(self.url, {WORK: ended, self.bases: self._unused}, sha256=is_sha256)

        with self.lock:
            if self.clearing:
                return
            self.clearing = True
        timer = threading.Timer(CLEAR_AFTER_S, clear)
        timer.daemon = True
        timer.start()

    def _unused(self, commits: Collection[str]) -> Collection[str]:
        """Forget commits that no work begins from any more, and return them; one always stays."""
        before_s = boottime_s() - BASE_UNUSED_S
        with self.lock:
            at = {one: self.used.get(one, self.since_s) for one in commits}
            gone = {one for one in sorted(at, key=lambda one: at[one])[:-1] if at[one] < before_s}
            self.used = {one: when for one, when in self.used.items() if one not in gone}
        return gone


_REMOTES: dict[tuple[Path, str], RemoteRefs] = {}


def refs_of_remote(vault: Path, url: str) -> RemoteRefs:
    """Return what this daemon knows of a remote."""
    bases = f"{BASE}{sha256(os.fsencode(vault))[:8]}/"
    return _REMOTES.setdefault((vault, url), RemoteRefs(url, bases))
