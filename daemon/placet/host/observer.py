"""Events of folders, from watchdog: its threads, and the kinds of events that it is asked for."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Protocol

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

MOVE_S = 0.05
"""Seconds in which both halves of a move within one folder are taken for one event."""


class Listener(Protocol):
    """Whoever is told of events, in watchdog's threads."""

    def hear(self, event: FileSystemEvent) -> None:
        """Take one event."""

    def ring(self) -> None:
        """Note that something happened."""


class Observer:
    """Watches folders in threads of its own. Raises OSError if the system has no more watches."""

    def __init__(self, listener: Listener) -> None:
        self._handler = _Handler(listener)
        self._observer, self._reader = _observer()

    @property
    def threads(self) -> list[BaseThread]:
        """The threads of watchdog, all of which have to live."""
        reader = [self._reader] if self._reader else []
        return [self._observer, *reader, *self._observer.emitters]

    def watch(self, folder: Path, *, deep: bool) -> None:
        """Watch a folder, with its subfolders if `deep`. Raises OSError."""
        self._observer.schedule(self._handler, str(folder), recursive=deep, event_filter=_EVENTS)

    def start(self) -> None:
        """Begin to tell of events. Raises OSError."""
        self._observer.start()

    def stop(self) -> None:
        """End all threads."""
        for thread in (self._observer, self._reader):
            if thread is not None:
                was_started = thread.is_alive()
                thread.stop()
                if was_started:
                    thread.join()


class _Handler(FileSystemEventHandler):
    def __init__(self, bell: Listener) -> None:
        self._bell = bell

    def dispatch(self, event: FileSystemEvent) -> None:
        """Take one event. Never raises: that would end watchdog's thread silently."""
        try:
            self._bell.hear(event)
        except Exception:  # an event that cannot be understood still says: look
            self._bell.ring()


class Warnings(logging.Handler):
    """Rings on each warning of watchdog: only that tells of an overflown queue."""

    def __init__(self, bell: Listener) -> None:
        super().__init__(logging.WARNING)
        self._bell = bell

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - what it says does not matter
        """Ring."""
        self._bell.ring()


def _observer() -> tuple[BaseObserver, BaseThread | None]:
    """Return watchdog's observer, and on Linux the thread that reads the system's queue.

    Raises OSError if the system has no more watches.
    """
    if sys.platform == "linux":
        from watchdog.observers.inotify import InotifyFullEmitter
        from watchdog.observers.inotify_c import InotifyFD
        from watchdog.observers.inotify_move_event_grouper import InotifyMoveEventGrouper

        # The other half of a move comes at once or, to a folder watched on its own, never: waiting
        # half a second for it would hold up the news, and the end.
        InotifyMoveEventGrouper.delay = MOVE_S
        # Full events tell a file that was moved in (written) from one that was created (half
        # written, maybe).
        reader = InotifyFD()
        reader.start()
        return BaseObserver(InotifyFullEmitter, inotify_fd=reader), reader
    else:  # noqa: RET505 - mypy leaves out a branch for another system, but not what follows a return
        from watchdog.observers import Observer

        return Observer(), None
