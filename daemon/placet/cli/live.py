"""`placet status --watch`: the screen drawn again whenever something happens."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from placet.cli.bell import bell, patiently
from placet.cli.screen import drawn, is_dumb, on_terminal, words
from placet.cli.site import Site
from placet.cli.status import status
from placet.cli.status_screen import status_screen
from placet.cli.terminal import json_text
from placet.cli.text import status_text
from placet.core.wording import counted
from placet.errors import UserError

_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
# Terminals that know synchronized updates show a frame at once; the others ignore the mode.
_FRAME, _SHOWN = "\x1b[?2026h\x1b[H", "\x1b[J\x1b[?2026l"
_LINE_END = "\x1b[K\n"


def watch_status(site: Site, *, as_json: bool) -> None:
    """Show `placet status` again whenever it changes, until Ctrl-C.

    On a terminal it is one screen that stays in place, and is left behind at the end; into a pipe
    it is the text, or a line of JSON, each time that something is different.
    """
    last = ""
    try:
        with bell(site) as wait:
            if as_json or not on_terminal() or is_dumb():
                _print_changes(site, wait, as_json=as_json)
            with _other_screen():
                while True:
                    _draw(last := _shown(site))
                    wait()
    except KeyboardInterrupt:
        if last:
            click.echo(last)


def _print_changes(site: Site, wait: Callable[[], None], *, as_json: bool) -> NoReturn:
    told = ""
    while True:
        found = patiently(lambda: status(Site(site.given, site.env)), wait)
        if (now := _unchanging(found)) != told:
            told = now
            click.echo(json_text(found) if as_json else f"{status_text(found)}\n")
        wait()


def _shown(site: Site) -> str:
    """Return the screen of now; a vault that cannot be read is said, and looked at again."""
    now = Site(site.given, site.env)  # settings and daemon may be others by now
    try:
        text = status_screen(status(now))
        now.raise_problem()
    except UserError as error:
        said = drawn(words(error.what, "red"), words(error.hint, "dim"))
        return f"{text}\n\n{said}" if now.problem is error else said
    return text


def _draw(text: str) -> None:
    lines, room = text.split("\n"), shutil.get_terminal_size().lines - 3
    if len(lines) > room:
        lines = [
            *lines[: room - 1],
            f"… {counted(len(lines) - room + 1, 'more line')}: placet status",
        ]
    lines += ["", drawn(words("Ctrl-C ends this.", "dim"))]
    sys.stdout.write(_FRAME + _LINE_END.join(lines) + _LINE_END + _SHOWN)
    sys.stdout.flush()


@contextmanager
def _other_screen() -> Iterator[None]:
    """Have the terminal's other screen, without a cursor; a new size counts at the next look."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.stdout.write(_ENTER)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _unchanging(found: dict[str, Any]) -> str:
    """Return a status without what changes by itself: ages."""
    cases = [{key: v for key, v in case.items() if key != "age_s"} for case in found["cases"]]
    return json.dumps({**found, "cases": cases}, default=str)
