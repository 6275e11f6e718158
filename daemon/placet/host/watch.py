"""The bell: something may have happened in the vault, so look now.

An event is only a hint. Events get lost (a burst of 50,000 files while the process sleeps loses
nine of ten), come twice, or never come (network file systems, WSL). So the bell never says what
happened; listing the folders does, on each ring and on a timer. A hint adds speed: a file that was
closed or moved into place needs no second look.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from watchdog.events import FileClosedEvent, FileMovedEvent, FileSystemEvent

from placet.core.errors import UserError
from placet.core.text.names import is_temporary
from placet.disk import stamp_of
from placet.host.observer import Observer, Warnings

GAP_S = 0.05
"""Shortest time between rings by events: a burst causes 20 looks a second, not one per file."""

POLL_S = 0.2
"""Interval at which the folder outside is looked at where there are no events."""

MAX_HINTS = 10_000
"""Hints kept between two waits; files beyond it settle by two looks."""

MAX_WATCHED = 256
"""Watched subfolders of a deep folder; the timer sees the rest. 5,050 cost 0.3 s of CPU."""

PROBE = ".placet-tmp-probe-"
"""Begins the name of the file that tests whether events arrive; no scan lists it."""


class Mode(StrEnum):
    """The source of changes. `auto`: events if they arrive, else the timer alone."""

    AUTO = "auto"
    EVENTS = "events"
    POLLING = "polling"


@dataclass(frozen=True, slots=True)
class Rung:
    """The result of a wait. `any` is false after a timeout.

    `paths`, relative to the vault, were closed after writing or moved into place since the last
    wait; `moved` are those moved.
    """

    paths: frozenset[str]
    any: bool
    moved: frozenset[str] = frozenset()


class Bell:
    """Rings when something happens in the watched folders, or by `ring`. A context manager.

    `flat` and `deep` are folders relative to `root`; deep ones are watched with their subfolders.
    `outside` is one more folder, which is not in the vault. Nothing else is watched. One thread may
    wait; any may ring.
    """

    def __init__(
        self,
        root: Path,
        flat: Sequence[str],
        deep: Sequence[str],
        mode: Mode = Mode.AUTO,
        outside: Path | None = None,
    ) -> None:
        self._root = root.resolve()
        self._outside = outside
        self._stamp = None if outside is None else stamp_of(outside)
        self._flat = tuple(flat)
        self._deep = tuple(deep)
        self._wanted = mode
        self._changed = threading.Condition()
        self._rung = False
        self._hints: set[str] = set()
        self._moved: set[str] = set()
        self._heard = False
        self._last_s = float("-inf")
        self._observer: Observer | None = None
        self._identities: tuple[tuple[int, int] | None, ...] = ()
        self._log = Warnings(self)

    def __enter__(self) -> Self:
        """Start listening. Raises UserError if the mode is `events` and there are none."""
        logging.getLogger("watchdog").addHandler(self._log)
        try:
            self._arm()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def mode(self) -> Mode:
        """Return how far events can be relied on: EVENTS or POLLING; `check` may change it.

        EVENTS: some arrived, so a slow timer is enough. POLLING: look every second or two; events
        that arrive nevertheless still ring.
        """
        if self._observer is None:
            return Mode.POLLING
        return Mode.EVENTS if self._heard or self._wanted is Mode.EVENTS else Mode.POLLING

    def ring(self) -> None:
        """End the wait. Safe in any thread."""
        with self._changed:
            self._rung = True
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> Rung:
        """Wait for a ring, at most `timeout_s` seconds; rings since the last wait count as one."""
        end_s = time.monotonic() + timeout_s
        with self._changed:
            if self._observer is None and self._outside is not None:
                self._poll(self._outside, end_s)
            self._changed.wait_for(lambda: self._rung, end_s - time.monotonic())
            if self._rung:
                rest_s = min(self._last_s + GAP_S, end_s) - time.monotonic()
                if rest_s > 0:
                    self._changed.wait_for(lambda: False, rest_s)  # let a burst gather
                self._last_s = time.monotonic()
            rung = Rung(frozenset(self._hints), self._rung, frozenset(self._moved))
            self._hints.clear()
            self._moved.clear()
            self._rung = False
            return rung

    def check(self) -> None:
        """Listen again, and ring, if a watched folder was replaced or a watching thread died.

        It costs some stat calls; call it with every timed look.
        """
        if self._wanted is Mode.POLLING:
            return
        if self._look() != self._identities or not self._is_alive():
            self._disarm()
            self._arm()
            self.ring()

    def close(self) -> None:
        """Stop listening and end the threads. Safe to repeat."""
        self._disarm()
        logging.getLogger("watchdog").removeHandler(self._log)

    def hear(self, event: FileSystemEvent) -> None:
        """Take one event, in watchdog's thread."""
        places = [os.fsdecode(p) for p in (event.src_path, event.dest_path) if p]
        base = f"{self._root}{os.sep}"
        # only these prove that events of the vault arrive
        self._heard |= any(place.startswith(base) for place in places)
        named = [p for p in places if not is_temporary(p.rpartition("/")[2])]
        if not named:
            return
        # An unpaired move has an empty source (into the folder) or target (out of it).
        into = os.fsdecode(event.dest_path) if isinstance(event, FileMovedEvent) else ""
        settled = isinstance(event, FileClosedEvent) or named[-1] == into
        with self._changed:
            if settled and named[-1].startswith(base) and len(self._hints) < MAX_HINTS:
                self._hints.add(named[-1][len(base) :])
                if named[-1] == into:
                    self._moved.add(named[-1][len(base) :])
            self._rung = True
            self._changed.notify_all()

    def _poll(self, folder: Path, end_s: float) -> None:
        """Wait for a ring or for a change of a folder, with the lock held."""
        while not self._rung and (left_s := end_s - time.monotonic()) > 0:
            self._changed.wait_for(lambda: self._rung, min(left_s, POLL_S))
            before, self._stamp = self._stamp, stamp_of(folder)
            self._rung |= self._stamp != before

    # Listening

    def _arm(self) -> None:
        if self._wanted is Mode.POLLING:
            return
        self._identities = self._look()
        self._heard = False
        try:
            self._observer = Observer(self)
            for folder, identity in zip((*self._flat, *self._deep), self._identities, strict=True):
                if identity is not None:
                    path = self._root / folder
                    self._observer.watch(path, deep=folder in self._deep and _is_small(path))
            if self._outside is not None and self._outside.is_dir():
                self._observer.watch(self._outside, deep=False)
            self._observer.start()
        except OSError as error:  # too many watches or instances, or a folder that just vanished
            self._disarm()
            if self._wanted is Mode.EVENTS:
                raise UserError(
                    f"file events cannot be had: {error.strerror or error}.",
                    "Raise fs.inotify.max_user_watches and max_user_instances, or set "
                    '[daemon] watch = "auto".',
                ) from error
            return
        self._probe()

    def _disarm(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()

    def _is_alive(self) -> bool:
        """Return whether all watchdog threads run; true without events, and so without threads."""
        return self._observer is None or all(t.is_alive() for t in self._observer.threads)

    def _look(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_folder_identity(self._root / folder) for folder in (*self._flat, *self._deep))

    def _probe(self) -> None:
        """Write and delete a dot file in a watched folder: one event proves that events work."""
        for folder, identity in zip((*self._flat, *self._deep), self._identities, strict=True):
            if identity is None:
                continue
            # not writable: then the first event by anyone is the proof
            with contextlib.suppress(OSError):
                _touch(self._root, f"{folder}/{PROBE}{os.getpid()}-{id(self):x}")
                return


def _is_small(folder: Path) -> bool:
    count = 0
    for _, inner, _ in os.walk(folder):
        count += len(inner)
        if count > MAX_WATCHED:
            return False
    return True


def _folder_identity(path: Path) -> tuple[int, int] | None:
    try:
        info = path.lstat()
    except OSError:
        return None
    return (info.st_dev, info.st_ino) if stat.S_ISDIR(info.st_mode) else None


def _touch(root: Path, path: str) -> None:
    """Make an empty file and delete it, following no link below the root."""
    *folders, name = path.split("/")
    with contextlib.ExitStack() as held:
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held.callback(os.close, handle)
        for part in folders:
            handle = os.open(
                part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle
            )
            held.callback(os.close, handle)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(name, flags, 0o600, dir_fd=handle))
        os.unlink(name, dir_fd=handle)
