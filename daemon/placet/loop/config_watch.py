"""The configuration while a daemon runs.

Changes are taken up once they are whole, can be used, and are accepted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from socket import gethostname
from typing import NamedTuple

from placet.activity import Action
from placet.agent.workplace import Ports
from placet.case.settle import SETTLE_S
from placet.errors import UserError
from placet.host.clock import Clock
from placet.host.config import FOR_NEXT_START, Config, InForce, accept, differing, holding, load
from placet.host.state import StateFolder
from placet.journal.writer import JournalAccess
from placet.loop.claim import refuse_claimed
from placet.loop.ports import model_opener, prices
from placet.loop.rows import of_daemon
from placet.note.paths import CONFIG_PATH, show

CONFIG_WAIT_S = 1.0
"""Longest wait of a tick, or a start, for a configuration that is being written."""


class FileStamp(NamedTuple):
    """The attributes of a file that change with it."""

    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int


Stamps = tuple[FileStamp | None, FileStamp | None]


def stamps(vault: Path, state: StateFolder) -> Stamps:
    """Return the stamps of the configuration and of the accepted settings.

    A stamp is None for a missing file.
    """
    return _stat(vault / CONFIG_PATH), _stat(state.accepted)


@dataclass(slots=True)
class ConfigWatch:
    """The configuration that holds, and the files that it was read from.

    `seen` is how the files were when they were read last. Many programs empty a file and then write
    it: a change is taken up once two looks agree on it, and an emptied file never means defaults.
    """

    vault: Path
    env: Mapping[str, str]
    state: StateFolder
    clock: Clock
    say: Callable[[str], None]
    seen: Stamps
    held: InForce

    @classmethod
    def load(
        cls,
        vault: Path,
        env: Mapping[str, str],
        state: StateFolder,
        clock: Clock,
        say: Callable[[str], None],
    ) -> ConfigWatch:
        """Read the configuration; raises UserError for one that cannot be used."""
        # before it is read: an edit while we start up is taken up too
        seen = _rested(vault, state) or stamps(vault, state)
        return cls(vault, env, state, clock, say, seen, holding(load(vault), state))

    def reload(self, ports: Ports) -> Ports:
        """Return the ports with today's configuration.

        One that cannot be used is reported once and not taken. This waits while it is being
        written: what is dropped after a change is judged by that change. Raises ClaimedElsewhere.
        """
        if stamps(self.vault, self.state) == self.seen:
            return ports
        now = _agreed(self.vault, self.state)
        if now is None or now[0] is None or now == self.seen:
            return ports
        before = self.held
        try:
            if now[0].size == 0 and before.config != Config():
                raise _emptied(self.vault / CONFIG_PATH)
            held = holding(load(self.vault), self.state)
        except UserError as error:
            if stamps(self.vault, self.state) == now:
                self.seen = now
                self.say(f"{error}\n  Until then the daemon keeps the configuration that it had.")
            return ports
        if stamps(self.vault, self.state) != now:
            return ports  # written while it was read: the next tick looks again
        self.seen, self.held = now, held
        if new := [".".join(key) for key in differing(before.accepted, held.accepted)]:
            ports.journal.commit([of_daemon(self.clock, Action.CONFIG_ACCEPTED, keys=new)])
            self.say(f"Accepted on this machine: {', '.join(map(show, new))}.")
        if held.digest != before.digest:
            self.tell(ports.journal)
        config, old = held.config, ports.config
        if config.daemon.paused != old.daemon.paused:
            self.say(_PAUSED if config.daemon.paused else "Resumed.")
        refuse_claimed(config, gethostname())
        later = [".".join(key) for key in FOR_NEXT_START if _at(config, key) != _at(old, key)]
        if later:
            self.say(f"The configuration changed; the next start takes up: {', '.join(later)}.")
        opener = ports.open_model
        if config.model != old.model:
            opener = model_opener(config, self.vault, self.env)
        return replace(ports, config=config, open_model=opener, prices=prices(config))

    def tell(self, journal: JournalAccess) -> None:
        """Say and journal which changed settings nobody accepted.

        The same ones are journalled once.
        """
        if not self.held.refused:
            return
        self.say(self.held.problem)
        with journal.read() as reader:
            last = reader.last_of(Action.CONFIG_CHANGED, Action.CONFIG_ACCEPTED, trace_id="")
        if last is None or last.details.get("digest") != self.held.digest:
            facts = {"keys": self.held.names, "digest": self.held.digest}
            journal.commit([of_daemon(self.clock, Action.CONFIG_CHANGED, **facts)])

    def accept_first(self, journal: JournalAccess) -> None:
        """Accept all settings if none was accepted on this machine yet.

        It is the first start, or the state was lost.
        """
        if self.held.settled:
            return
        if names := [".".join(key) for key in self.held.written]:
            with journal.read() as reader:
                last = reader.last_of(Action.CONFIG_ACCEPTED, Action.DAEMON_STOPPED, trace_id="")
            # else a start was killed before it accepted them
            if last is None or last.details.get("keys") != names:
                journal.commit([of_daemon(self.clock, Action.CONFIG_ACCEPTED, keys=names)])
        accept(self.state, self.held.config)
        if names:
            self.say(
                "The first start on this vault with this state folder, so these settings of "
                f"{CONFIG_PATH} are accepted as they are: {', '.join(map(show, names))}. From now "
                "on a change of them has to be accepted: placet config accept"
            )


_PAUSED = "Paused. Running missions continue; nothing new begins. To go on: placet resume"


def _at(config: Config, key: tuple[str, ...]) -> object:
    return reduce(getattr, key, config)


def _stat(path: Path) -> FileStamp | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return FileStamp(info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _rested(vault: Path, state: StateFolder) -> Stamps | None:
    """Return the stamps of the configuration's files: at once if they are older than SETTLE_S.

    Else as `_agreed` does. It is for a start, which nobody wants to wait for.
    """
    now = stamps(vault, state)
    # Only the change time: a sync tool may set the other one. If it is in the future, the clock was
    # set back.
    young = any(s is not None and time.time() - s.ctime_ns / 1e9 < SETTLE_S for s in now)
    return _agreed(vault, state) if young else now


def _agreed(vault: Path, state: StateFolder) -> Stamps | None:
    """Return the stamps of the configuration's files once two looks SETTLE_S apart agree.

    None if that takes longer than CONFIG_WAIT_S. The age of a file proves nothing here: the clock
    of a machine that was suspended jumps, and a file that is half written then looks old.
    """
    now = stamps(vault, state)
    until = time.monotonic() + CONFIG_WAIT_S
    while time.monotonic() < until:
        time.sleep(SETTLE_S)
        before, now = now, stamps(vault, state)
        if now == before:
            return now
    return None


def _emptied(path: Path) -> UserError:
    return UserError(
        f"{path} is empty, and was not: the program that emptied it may still write it, or has "
        "lost its text.",
        "Restore it from a backup or another machine. For the defaults write a comment into it: "
        "# defaults",
        exit_code=2,
    )
