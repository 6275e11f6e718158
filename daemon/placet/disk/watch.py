"""Wake the daemon when something happens in the vault.

An event is only a hint. Events get lost: a burst of 50,000 files while the process sleeps loses
nine of ten. They also come twice, or never (network file systems, WSL). So the daemon ignores what
an event says. It lists the folders whenever it wakes, and on a timer.
"""

from __future__ import annotations

import contextlib
import logging
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
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
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver
from watchdog.observers.polling import PollingObserver

from placet.errors import UserError

GAP_S = 0.05
"""Shortest time between wake-ups: a burst causes 20 looks a second, not one per file."""

POLL_S = 0.2
"""Interval for listing the folder outside the vault if there are no events."""

_EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileModifiedEvent,  # FSEvents has no "closed after writing"
    FileClosedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]  # not opened, nor closed without writing: the daemon's own reads would wake it

# An overflown queue needs no log line. The next look at the folders shows what was lost.
logging.getLogger("watchdog").addHandler(logging.NullHandler())


class Mode(StrEnum):
    """The source of changes. `auto` means events if the system offers them, else only the timer."""

    AUTO = "auto"
    EVENTS = "events"
    POLLING = "polling"


class Watcher(FileSystemEventHandler):
    """Wake a waiting thread when something happens in the watched folders, or on `ring`.

    A context manager. `flat` and `deep` are folders relative to `root`. Deep ones are watched with
    their subfolders. `outside` is one more folder, which is not in the vault. Nothing else is
    watched. Only one thread may wait. Any thread may ring.
    """

    def __init__(
        self,
        root: Path,
        flat: Sequence[str],
        deep: Sequence[str],
        mode: Mode = Mode.AUTO,
        outside: Path | None = None,
    ) -> None:
        self._inside = {root / folder: folder in deep for folder in (*flat, *deep)}
        self._outside = {} if outside is None else {outside: False}
        self._wanted = mode
        self._rung = threading.Event()
        self._last_s = float("-inf")
        self._observer: BaseObserver | None = None
        self._identities: list[tuple[int, int] | None] = []
        self.mode = Mode.POLLING
        """EVENTS, or POLLING if only the timer watches the vault."""

    def __enter__(self) -> Self:
        """Start listening. Raises UserError if the mode is `events` and the system offers none."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ring(self) -> None:
        """End the wait. Thread-safe."""
        self._rung.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for a ring, at most `timeout_s` seconds; return whether there was one.

        Rings since the last wait count as one.
        """
        if not self._rung.wait(max(0.0, timeout_s)):
            return False
        time.sleep(max(0.0, self._last_s + GAP_S - time.monotonic()))  # let a burst gather
        self._rung.clear()
        self._last_s = time.monotonic()
        return True

    def check(self) -> None:
        """Listen again, and ring, if a watched folder was replaced.

        Costs a few stat calls. Call it with every timed look.
        """
        if self._look() != self._identities:
            self.close()
            self._start()
            self.ring()

    def close(self) -> None:
        """Stop listening and the threads. Safe to repeat."""
        observer, self._observer = self._observer, None
        if observer is not None:
            was_started = observer.is_alive()
            observer.stop()
            if was_started:
                observer.join()

    def on_any_event(self, event: FileSystemEvent) -> None:  # noqa: ARG002 - watchdog's interface
        """Ring, in watchdog's thread."""
        self.ring()

    def _start(self) -> None:
        self._identities = self._look()
        self.mode = Mode.POLLING if self._wanted is Mode.POLLING else Mode.EVENTS
        if self.mode is Mode.EVENTS:
            try:
                self._watch(Observer(), {**self._inside, **self._outside})
            except OSError as error:  # too many watches or instances, or a folder was just deleted
                self.close()
                self.mode = Mode.POLLING
                if self._wanted is Mode.EVENTS:
                    raise UserError(
                        f"The system gives no file events: {error.strerror or error}.",
                        "Raise fs.inotify.max_user_watches and max_user_instances, or set "
                        '[daemon] watch = "auto".',
                    ) from error
        if self.mode is Mode.POLLING:
            with contextlib.suppress(OSError):  # just deleted; `check` notices
                self._watch(PollingObserver(timeout=POLL_S), self._outside)

    def _watch(self, observer: BaseObserver, folders: Mapping[Path, bool]) -> None:
        """Watch the folders that exist, those with True deeply. Raises OSError."""
        self._observer = observer
        for path, deep in folders.items():
            if path.is_dir():
                observer.schedule(self, str(path), recursive=deep, event_filter=_EVENTS)
        observer.start()

    def _look(self) -> list[tuple[int, int] | None]:
        return [_folder_identity(path) for path in (*self._inside, *self._outside)]


def _folder_identity(path: Path) -> tuple[int, int] | None:
    try:
        info = path.lstat()
    except OSError:
        return None
    return (info.st_dev, info.st_ino) if stat.S_ISDIR(info.st_mode) else None
