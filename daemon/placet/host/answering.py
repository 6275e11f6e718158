"""Show how far a model's answer is: a small file in the state folder, for `placet status`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, time

from placet.wording import age

EVERY_S = 2.0
"""How often the file is written; an answer that comes sooner needs none."""

_FRESH_S = 15.0
"""A file that is older is of a daemon that was killed."""


@contextmanager
def answer_shown(state: Path, trace_id: str) -> Iterator[Callable[[int], None]]:
    """Give a function that notes how many pieces of a case's answer came; forget them at the end.

    Errors of the disk are ignored: nothing depends on it.
    """
    path, began_s, written = state / f"answer-{trace_id}", time(), monotonic()

    def received(pieces: int) -> None:
        nonlocal written
        if monotonic() - written >= EVERY_S:
            written = monotonic()
            with suppress(OSError):
                path.write_text(f"{began_s} {pieces}")

    try:
        yield received
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def answer_under_way(state: Path, trace_id: str) -> str:
    """Return what a case's model does now, "" if that is unknown or took less than EVERY_S."""
    path = state / f"answer-{trace_id}"
    with suppress(OSError, ValueError):
        began_s, pieces = map(float, path.read_text().split())
        if time() - path.stat().st_mtime < _FRESH_S:
            reading = f"reading the prompt, {age(time() - began_s)}"
            return f"answering, {pieces:,.0f} tokens" if pieces else reading
    return ""
