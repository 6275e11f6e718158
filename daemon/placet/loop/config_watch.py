"""Read the configuration again when it changes while a daemon runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from socket import gethostname

from placet.activity import Action
from placet.agent.ports import Ports
from placet.case.settle import MISSING_S, FileHistory, Writers, look
from placet.disk.files import Stamp, stamp_of
from placet.disk.scan import fingerprint
from placet.disk.writers import writers_of
from placet.errors import UserError
from placet.host.accepted import InForce, accept, differing, holding
from placet.host.clock import Clock
from placet.host.config import FOR_NEXT_START, Config, load
from placet.host.signers import read_list
from placet.host.state import SIGNERS, StateFolder
from placet.journal.writer import JournalAccess
from placet.loop.build import model_opener
from placet.loop.claim import refuse_claimed
from placet.loop.rows import of_daemon
from placet.note.paths import CONFIG_PATH, SIGNERS_PATH, show
from placet.wording import some_of

PAIR_S = 0.25
"""Seconds without a change of both files: a command writes the settings, then accepts them."""

MAX_SIGNERS = 20
"""Maximum of signers that a row names."""
Stamps = tuple[Stamp, Stamp]


def stamps(vault: Path, state: StateFolder) -> Stamps:
    """Return the stamps of the configuration and of the accepted settings."""
    return stamp_of(vault / CONFIG_PATH), stamp_of(state.accepted)


@dataclass(slots=True)
class ConfigWatch:
    """The configuration that holds."""

    vault: Path
    env: Mapping[str, str]
    state: StateFolder
    clock: Clock
    say: Callable[[str], None]
    read: Stamps
    """Stamps of the files that were read last."""
    held: InForce
    changed: tuple[Stamps, float] | None = None
    """Newer stamps, and when they were first seen, as `Clock.monotonic` says."""
    ask_kernel: bool = True
    """Whether to ask the kernel for a program that has the settings open."""
    _looks: FileHistory = field(default_factory=FileHistory)
    _signers: Stamps | None = None
    """Stamps of the lists of signers that were read last: the vault's, and the accepted one."""

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
        read = stamps(vault, state)  # before it is read: an edit while we start up is read too
        return cls(vault, env, state, clock, say, read, holding(load(vault), state))

    def reload(self, ports: Ports) -> tuple[Ports, float | None]:
        """Return the ports with today's configuration, and in how many seconds it may change.

        A change counts once the file is written, as a note does. Of a configuration that is empty
        or wrong this says so once, and keeps the previous one. Raises ClaimedElsewhere.
        """
        self.look_at_signers(ports.journal)
        now, now_s = stamps(self.vault, self.state), self.clock.monotonic()
        if now == self.read:
            return ports, None
        if self.changed is None or self.changed[0] != now:
            self.changed = now, now_s
        if (left_s := max(self.changed[1] + PAIR_S - now_s, self._unsettled_s(now, now_s))) > 0:
            return ports, left_s
        before, self.read = self.held, now
        if now[0] is not None and now[0].size == 0:
            self.say(
                f"{self.vault / CONFIG_PATH} is suddenly empty. An editor may still be saving it.\n"
                "To have the defaults, write a comment into it: # defaults\n"
                "  placet keeps the previous settings."
            )
            return ports, None
        try:
            held = holding(load(self.vault), self.state)
        except UserError as error:
            self.say(f"{error}\n  placet keeps the previous settings.")
            return ports, None
        if stamps(self.vault, self.state) != now:
            return ports, PAIR_S  # written while it was read
        self.held = held
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
            self.say(
                "The configuration changed. These settings hold from the next start: "
                f"{', '.join(later)}."
            )
        opener = ports.open_model
        if config.model != old.model:
            opener = model_opener(config, self.vault, self.env)
        return replace(ports, config=config, open_model=opener, prices=config.model.prices), None

    def _unsettled_s(self, now: Stamps, now_s: float) -> float:
        """Return in how many seconds a look can tell more about the settings, 0 if all is written.

        A file that replaced the last one is complete, as a note that was moved in.
        """
        assert self.changed is not None, "it has changed"
        if now[0] == self.read[0]:
            return 0.0
        path = self.vault / CONFIG_PATH
        try:
            found = {CONFIG_PATH: fingerprint(path.stat())}
        except OSError:
            return max(0.0, self.changed[1] + MISSING_S - now_s)
        last = self._looks.seen.get(CONFIG_PATH)
        if last is not None and last.fingerprint.ino != found[CONFIG_PATH].ino:
            self._looks = FileHistory()
        who = writers_of(path) if self.ask_kernel else Writers.UNKNOWN
        verdict = look(self._looks, found, now_s, answers={CONFIG_PATH: who})
        self._looks = verdict.looks
        return self._looks.seen[CONFIG_PATH].left_s(now_s)

    def tell(self, journal: JournalAccess) -> None:
        """Say and journal which changed settings are not accepted.

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

    def look_at_signers(self, journal: JournalAccess) -> None:
        """Say and journal a change of who may sign: accepted here, or only in the vault."""
        if not self.held.config.approval.is_on:
            return
        now = stamp_of(self.vault / SIGNERS_PATH), stamp_of(self.state.signers)
        if now == self._signers:
            return
        self._signers = now
        try:
            places = (self.vault, SIGNERS_PATH), (self.state.folder, SIGNERS)
            written, accepted = ([one.short for one in read_list(*place)] for place in places)
        except UserError as error:
            self.say(str(error))
            return
        self._tell_signers(journal, Action.SIGNERS_ACCEPTED, accepted, "Signers accepted here")
        if written != accepted:
            what = f"{SIGNERS_PATH} differs, and has no effect until: placet signer accept. It has"
            self._tell_signers(journal, Action.SIGNERS_CHANGED, written, what)

    def _tell_signers(
        self, journal: JournalAccess, action: Action, lines: Sequence[str], what: str
    ) -> None:
        """Say and journal a list of signers, unless it was the last one of its sort."""
        kinds = {Action.SIGNERS_ACCEPTED, action}
        with journal.read() as reader:
            last = reader.last_of(*kinds, trace_id="")
        if lines[:MAX_SIGNERS] == ([] if last is None else last.details.get("signers")):
            return
        journal.commit([of_daemon(self.clock, action, signers=lines[:MAX_SIGNERS])])
        names = some_of([*dict.fromkeys(line.partition(" ")[0] for line in lines)], MAX_SIGNERS)
        self.say(f"{what}: {show(names) or 'none'}.")

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
        with suppress(UserError):  # a command that changed them since saw nothing accepted yet
            accept(self.state, load(self.vault))
        if names:
            self.say(
                "The first start on this vault with this state folder, so these settings of "
                f"{CONFIG_PATH} are accepted as they are: {', '.join(map(show, names))}. From now "
                "on a change of them has to be accepted: placet config accept"
            )


_PAUSED = "Paused. Running missions continue; no new work starts. To resume: placet resume"


def _at(config: Config, key: tuple[str, ...]) -> object:
    return reduce(getattr, key, config)
