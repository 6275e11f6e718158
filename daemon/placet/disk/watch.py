"""Ring when something happens in the vault.

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
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import Empty, Queue
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
from watchdog.observers.polling import PollingObserver

from placet.errors import UserError
from placet.note.paths import is_temporary

GAP_S = 0.05
"""Shortest time between rings: a burst causes 20 looks a second, not one per file."""

POLL_S = 0.2
"""Interval at which the folder outside is listed where there are no events."""

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

# An overflown queue needs no word: the next look at the folders shows what it would have told.
logging.getLogger("watchdog").addHandler(logging.NullHandler())


class Mode(StrEnum):
    """The source of changes. `auto`: events if the system gives them, else the timer alone."""

    AUTO = "auto"
    EVENTS = "events"
    POLLING = "polling"


@dataclass(frozen=True, slots=True)
class Change:
    """The result of a wait. `any` is false after a timeout.

    `paths`, relative to the vault, were closed after writing or moved into place since the last
    wait; `moved` are those moved.
    """

    paths: frozenset[str]
    any: bool
    moved: frozenset[str] = frozenset()


class Watcher(FileSystemEventHandler):
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
        self._inside = {self._root / folder: folder in deep for folder in (*flat, *deep)}
        self._outside = {} if outside is None else {outside: False}
        self._wanted = mode
        # Not SimpleQueue: its `get` waits for ever if `timeout` is over before it began to wait
        # (CPython 3.11, _queuemodule.c), as happens on a loaded machine.
        self._heard: Queue[tuple[str, bool]] = Queue()
        self._last_s = float("-inf")
        self._observer: BaseObserver | None = None
        self._identities: list[tuple[int, int] | None] = []
        self.mode = Mode.POLLING
        """EVENTS: a slow timer is enough. POLLING: only the timer tells of the vault."""

    def __enter__(self) -> Self:
        """Start listening. Raises UserError if the mode is `events` and there are none."""
        self._arm()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ring(self) -> None:
        """End the wait. Safe in any thread."""
        self._heard.put(("", False))

    def wait(self, timeout_s: float) -> Change:
        """Wait for a ring, at most `timeout_s` seconds; rings since the last wait count as one."""
        try:
            heard = {self._heard.get(timeout=max(0.0, timeout_s))}
        except Empty:
            return Change(frozenset(), any=False)
        time.sleep(max(0.0, self._last_s + GAP_S - time.monotonic()))  # let a burst gather
        heard.update(self._heard.get() for _ in range(self._heard.qsize()))
        self._last_s = time.monotonic()
        moved = frozenset(path for path, is_moved in heard if is_moved)
        return Change(frozenset(path for path, _ in heard if path), any=True, moved=moved)

    def check(self) -> None:
        """Listen again, and ring, if a watched folder was replaced or a watching thread died.

        It costs some stat calls; call it with every timed look.
        """
        if self._look() != self._identities or not self._is_alive():
            self.close()
            self._arm()
            self.ring()

    def close(self) -> None:
        """Stop listening and end the threads. Safe to repeat."""
        observer, self._observer = self._observer, None
        if observer is not None:
            was_started = observer.is_alive()
            observer.stop()
            if was_started:
                observer.join()

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Take one event, in watchdog's thread."""
        # An unpaired move has an empty source (into the folder) or target (out of it).
        into = os.fsdecode(event.dest_path or b"")
        path = into or os.fsdecode(event.src_path)
        if is_temporary(path.rpartition("/")[2]):
            return
        is_moved = isinstance(event, FileMovedEvent) and bool(into)
        base = f"{self._root}{os.sep}"
        if (is_moved or isinstance(event, FileClosedEvent)) and path.startswith(base):
            self._heard.put((path[len(base) :], is_moved))
        else:
            self.ring()

    def _arm(self) -> None:
        self._identities = self._look()
        if self._wanted is not Mode.POLLING:
            try:
                self._watch(_observer, {**self._inside, **self._outside})
            except OSError as error:  # too many watches or instances, or a folder just vanished
                self.close()
                if self._wanted is Mode.EVENTS:
                    raise UserError(
                        f"file events cannot be had: {error.strerror or error}.",
                        "Raise fs.inotify.max_user_watches and max_user_instances, or set "
                        '[daemon] watch = "auto".',
                    ) from error
            else:
                self.mode = Mode.EVENTS
                return
        self.mode = Mode.POLLING
        with contextlib.suppress(OSError):  # it just vanished: `check` sees that
            self._watch(lambda: PollingObserver(timeout=POLL_S), self._outside)

    def _watch(self, make: Callable[[], BaseObserver], folders: Mapping[Path, bool]) -> None:
        """Watch folders, those with True deeply. Raises OSError."""
        folders = {path: deep for path, deep in folders.items() if path.is_dir()}
        if not folders:
            return
        self._observer = make()
        for path, deep in folders.items():
            self._observer.schedule(self, str(path), recursive=deep, event_filter=_EVENTS)
        self._observer.start()

    def _is_alive(self) -> bool:
        """Return whether all watchdog threads run; true without any."""
        if self._observer is None:
            return True
        return all(thread.is_alive() for thread in (self._observer, *self._observer.emitters))

    def _look(self) -> list[tuple[int, int] | None]:
        return [_folder_identity(path) for path in (*self._inside, *self._outside)]


def _observer() -> BaseObserver:
    """Return watchdog's observer. Raises OSError if the system has no more watches."""
    if sys.platform == "linux":
        from watchdog.observers.inotify import InotifyObserver

        # Full events tell a file that was moved in (whole) from one that was created (half written,
        # maybe).
        return InotifyObserver(generate_full_events=True)
    else:  # noqa: RET505 - mypy leaves out a branch for another system, but not what follows a return
        from watchdog.observers import Observer

        return Observer()


def _folder_identity(path: Path) -> tuple[int, int] | None:
    try:
        info = path.lstat()
    except OSError:
        return None
    return (info.st_dev, info.st_ino) if stat.S_ISDIR(info.st_mode) else None
