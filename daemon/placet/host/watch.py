"""The bell: something may have happened in the vault, look now.

An event is only a hint. Events get lost (a burst of 50,000 files while the process sleeps loses
nine of ten), come twice, or never come (network file systems, WSL). So nothing here says what
happened; listing the folders does, on each ring and on a timer. What a hint adds is speed: a file
that was closed or moved into place needs no second look.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.api import BaseObserver
from watchdog.utils import BaseThread

from placet.core.errors import UserError
from placet.core.text.names import is_temporary
from placet.host.mounts import remote_kind

GAP_S = 0.05
"""Least time between two rings that events cause: a burst makes 20 looks a second, not one a file."""

MAX_HINTS = 10_000
"""Hints kept between two waits. Those beyond it are dropped; the files then settle by two looks."""

MAX_WATCHED = 256
"""Sub-folders of a deep folder that are watched.

Beyond that the timer sees them. 5,050 cost 0.3 s of CPU.
"""

PROBE = ".placet-tmp-probe-"
"""Begins the name of the file by which the bell finds out whether events arrive.

No scan lists it.
"""

_EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileClosedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]  # never opened or closed without writing: our own listing and reading would ring
if sys.platform == "darwin":
    _EVENTS.append(FileModifiedEvent)  # FSEvents knows no "closed after writing"


class Mode(StrEnum):
    """How to learn of changes. `auto`: by events where they arrive, else by the timer alone."""

    AUTO = "auto"
    EVENTS = "events"
    POLLING = "polling"


@dataclass(frozen=True, slots=True)
class Rung:
    """Why a wait ended. `any` is false when its time was up.

    `paths`, relative to the vault, were closed after writing or moved into place since the last
    wait; `moved` are the latter.
    """

    paths: frozenset[str]
    any: bool
    moved: frozenset[str] = frozenset()


class Bell:
    """Rings when something happens in the watched folders, or when somebody rings.

    A context manager.

    `flat` and `deep` are folders relative to `root`; the deep ones are watched with their
    sub-folders. Only these are watched, never the vault. Waiting is for one thread; `ring` is for
    any.
    """

    def __init__(
        self, root: Path, flat: Sequence[str], deep: Sequence[str], mode: Mode = Mode.AUTO
    ) -> None:
        self._root = root.resolve()
        self._flat = tuple(flat)
        self._deep = tuple(deep)
        self._wanted = mode
        self._changed = threading.Condition()
        self._rung = False
        self._hints: set[str] = set()
        self._moved: set[str] = set()
        self._heard = False
        self._last_s = float("-inf")
        self._observer: BaseObserver | None = None
        self._reader: BaseThread | None = None
        self._identities: tuple[tuple[int, int] | None, ...] = ()
        self._why = ""
        self._log = _Listener(self)

    def __enter__(self) -> Self:
        """Start listening.

        Raises UserError where mode `events` is asked for and events cannot be had.
        """
        logging.getLogger("watchdog").addHandler(self._log)
        try:
            self._arm()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def mode(self) -> Mode:
        """How much the events can be relied on; never AUTO, and it may change with each `check`.

        EVENTS: they have been seen to arrive, so a slow timer is enough beside them. POLLING: look
        every second or two; events that come nevertheless still ring.
        """
        if self._observer is None or self._why:
            return Mode.POLLING
        return Mode.EVENTS if self._heard or self._wanted is Mode.EVENTS else Mode.POLLING

    @property
    def reason(self) -> str:
        """Why the mode is POLLING, for people; empty when it is EVENTS."""
        if self._wanted is Mode.POLLING:
            return "polling is set in the configuration"
        if self.mode is Mode.EVENTS:
            return ""
        return self._why or "no file event has arrived so far"

    def ring(self) -> None:
        """End the wait. From any thread, and from a signal handler."""
        with self._changed:
            self._rung = True
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> Rung:
        """Wait for a ring, at most `timeout_s` seconds.

        Rings during the last look count; many become one.
        """
        end_s = time.monotonic() + timeout_s
        with self._changed:
            self._changed.wait_for(lambda: self._rung, timeout_s)
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
        """Listen anew where a watched folder was replaced, appeared or vanished, or a watching thread died.

        Some stat calls; call it with every timed look. Rings when it had to do something.
        """
        if self._wanted is Mode.POLLING:
            return
        if self._look() != self._identities or not self._is_alive():
            self._disarm()
            self._arm()
            self.ring()

    def close(self) -> None:
        """Stop listening and end the threads. A second time does nothing."""
        self._disarm()
        logging.getLogger("watchdog").removeHandler(self._log)

    # Listening

    def _arm(self) -> None:
        if self._wanted is Mode.POLLING:
            return
        self._identities = self._look()
        self._heard, self._why = False, ""
        try:
            self._observer, self._reader = _observer()
            handler = _Handler(self)
            for folder, identity in zip((*self._flat, *self._deep), self._identities, strict=True):
                if identity is not None:
                    path = self._root / folder
                    deep = folder in self._deep and _is_small(path)
                    self._observer.schedule(
                        handler, str(path), recursive=deep, event_filter=_EVENTS
                    )
            self._observer.start()
        except OSError as error:  # too many watches or instances, or a folder that just vanished
            self._disarm()
            self._why = f"file events cannot be had: {error.strerror or error}"
            if self._wanted is Mode.EVENTS:
                raise UserError(
                    f"{self._why}.",
                    "Raise fs.inotify.max_user_watches and max_user_instances, or let the mode be `auto`.",
                ) from error
            return
        remote = remote_kind(self._root)
        if remote and self._wanted is Mode.AUTO:
            self._why = f"the vault is on {remote}, where changes made elsewhere cause no event"
        self._probe()

    def _disarm(self) -> None:
        threads, self._observer, self._reader = (self._observer, self._reader), None, None
        for thread in threads:
            if thread is not None:
                was_started = thread.is_alive()
                thread.stop()
                if was_started:
                    thread.join()

    def _is_alive(self) -> bool:
        """Whether all of watchdog's threads run.

        True where events cannot be had, so that there are none.
        """
        if self._observer is None:
            return True
        threads = (
            self._observer,
            *self._observer.emitters,
            *([self._reader] if self._reader else []),
        )
        return all(thread.is_alive() for thread in threads)

    def _look(self) -> tuple[tuple[int, int] | None, ...]:
        """Which folders have the watched names now; None for one that is missing or no folder."""
        return tuple(_folder_identity(self._root / folder) for folder in (*self._flat, *self._deep))

    def _probe(self) -> None:
        """Write and delete a dot file in a watched folder: one event is proof that they work."""
        for folder, identity in zip((*self._flat, *self._deep), self._identities, strict=True):
            if identity is None:
                continue
            # not writable: then the first event by anyone is the proof
            with contextlib.suppress(OSError):
                _touch(self._root, f"{folder}/{PROBE}{os.getpid()}-{id(self):x}")
                return

    def _hear(self, event: FileSystemEvent) -> None:
        """Take one event; from watchdog's thread."""
        self._heard = True
        places = [os.fsdecode(p) for p in (event.src_path, event.dest_path) if p]
        named = [p for p in places if not is_temporary(p.rpartition("/")[2])]
        if not named:
            return
        # An unpaired move has an empty source (into the folder) or target (out of it).
        into = os.fsdecode(event.dest_path) if isinstance(event, FileMovedEvent) else ""
        settled = isinstance(event, FileClosedEvent) or named[-1] == into
        base = f"{self._root}{os.sep}"
        with self._changed:
            if settled and named[-1].startswith(base) and len(self._hints) < MAX_HINTS:
                self._hints.add(named[-1][len(base) :])
                if named[-1] == into:
                    self._moved.add(named[-1][len(base) :])
            self._rung = True
            self._changed.notify_all()


class _Handler(FileSystemEventHandler):
    """Passes watchdog's events on to the bell."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell

    def dispatch(self, event: FileSystemEvent) -> None:
        """Take one event.

        Never raises: that would end watchdog's thread, and all hints, without a word.
        """
        try:
            self._bell._hear(event)
        except Exception:  # an event that cannot be understood still says: look
            self._bell.ring()


class _Listener(logging.Handler):
    """Rings on every warning of watchdog: a queue that overflowed is told in no other way."""

    def __init__(self, bell: Bell) -> None:
        super().__init__(logging.WARNING)
        self._bell = bell

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - what it says does not matter
        """Ring."""
        self._bell.ring()


def _observer() -> tuple[BaseObserver, BaseThread | None]:
    """Watchdog's observer for this system, and the thread that reads the system's queue, where it is apart.

    Raises OSError where the system has no more to give.
    """
    if sys.platform == "linux":
        from watchdog.observers.inotify import InotifyFullEmitter
        from watchdog.observers.inotify_c import InotifyFD

        # Full events tell a file that was moved in (written) from one that was created (half
        # written, maybe).
        reader = InotifyFD()
        reader.start()
        return BaseObserver(InotifyFullEmitter, inotify_fd=reader), reader
    else:  # noqa: RET505 - mypy leaves out a branch for another system, but not what follows a return
        from watchdog.observers import Observer

        return Observer(), None


def _is_small(folder: Path) -> bool:
    """Whether the folder has few enough sub-folders to watch each."""
    count = 0
    for _, inner, _ in os.walk(folder):
        count += len(inner)
        if count > MAX_WATCHED:
            return False
    return True


def _folder_identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a folder; None where none is there."""
    try:
        info = path.lstat()
    except OSError:
        return None
    return (info.st_dev, info.st_ino) if stat.S_ISDIR(info.st_mode) else None


def _touch(root: Path, path: str) -> None:
    """Make an empty file and delete it, reaching it through no link below the root."""
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
