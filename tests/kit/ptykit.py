"""Run a command on a terminal of a given width, and return what it shows."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from vaultkit import TestVault

PATIENCE_S = 60.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ESCAPES = re.compile(r"\x1b[=>]|\x1b\[[?0-9;]*[a-zA-Z]")
_LINK = re.compile(r"\x1b\]8;id=[0-9]+;(file:///[A-Za-z0-9/._~%-]*)\x1b\\")
_LINK_END = "\x1b]8;;\x1b\\"
_SCREEN = re.compile(r"\x1b\[(?:\?1049|\?25|\?2026)[hl]|\x1b\[[HJK]")


@dataclass
class Terminal:
    """A process on a terminal, and all bytes that it has shown."""

    process: subprocess.Popen[bytes]
    main: int
    shown: str = ""
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def sees(self, text: str, after: int = 0) -> int:
        """Wait until `text` is shown behind `after`; return where it ends."""
        self.until(lambda: text in self.shown[after:], text)
        return self.shown.index(text, after) + len(text)

    def until(self, is_there: Callable[[], bool], what: str) -> None:
        """Read on until something is shown; fail at the end."""
        end = time.monotonic() + PATIENCE_S
        while not is_there():
            if not self._more(end):
                raise AssertionError(f"not shown: {what!r}; but {self.shown!r}")

    def ends(self) -> int:
        end = time.monotonic() + PATIENCE_S
        while self._more(end):
            pass
        return self.process.wait(PATIENCE_S)

    def types(self, keys: str) -> None:
        os.write(self.main, keys.encode())

    def interrupt(self) -> None:
        self.types("\x03")

    def _more(self, end: float) -> bool:
        if not select.select([self.main], [], [], max(0.0, end - time.monotonic()))[0]:
            return False
        try:
            piece = os.read(self.main, 65536)
        except OSError:  # EIO: the other end is closed
            return False
        # a read may end between the two characters of a line end
        self.shown = (self.shown + self.decoder.decode(piece)).replace("\r\n", "\n")
        return bool(piece)


@dataclass
class Person:
    """A person who answers what a command asks on a terminal; colours do not count."""

    terminal: Terminal
    read: int = 0

    @property
    def said(self) -> str:
        return _ESCAPES.sub("", self.terminal.shown)

    def sees(self, text: str) -> str:
        """Wait until `text` is shown; return all that was shown since the last wait."""
        self.terminal.until(lambda: text in self.said[self.read :], text)
        at = self.said.index(text, self.read) + len(text)
        shown, self.read = self.said[self.read : at], at
        return shown

    def types(self, letter: str, *answers: str) -> None:
        """Type a letter, then an answer to each question that follows."""
        self.sees("]? ")
        self.writes(letter)
        for answer in answers:
            self.sees("): ")
            self.writes(answer)

    def writes(self, line: str) -> None:
        self.terminal.types(f"{line}\n")

    def ends(self) -> int:
        """Wait for the end; return the exit code."""
        return self.terminal.ends()


@contextmanager
def terminal(
    vault: TestVault,
    *args: str,
    columns: int = 80,
    lines: int = 50,
    program: Sequence[str] = ("-m", "placet"),
    **env: str,
) -> Iterator[Terminal]:
    """Run a command of placet's on a terminal; an empty value takes a variable away."""
    main, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def of_the_terminal() -> None:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    wanted = {
        **vault.env,
        "TERM": "xterm-256color",
        "NO_COLOR": "",
        "COLUMNS": "",
        "LINES": "",
        **env,
    }
    process = subprocess.Popen(
        [sys.executable, *program, *args],
        cwd=vault.root,
        stdin=end,
        stdout=end,
        stderr=end,
        env={key: value for key, value in wanted.items() if value},
        preexec_fn=of_the_terminal,  # noqa: PLW1509 - one thread, and the terminal has to be its own
    )
    os.close(end)
    try:
        yield Terminal(process, main)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(main)


def on_terminal(vault: TestVault, *args: str, columns: int = 80, **env: str) -> tuple[int, str]:
    """Run a command to its end; return its exit code and the bytes that it has shown."""
    with terminal(vault, *args, columns=columns, **env) as ran:
        return ran.ends(), ran.shown


def links(shown: str) -> list[str]:
    """Return the addresses that hyperlinks lead to."""
    return _LINK.findall(shown)


def seen(shown: str) -> str:
    """Return what a person sees; fail for anything else that a terminal would obey."""
    text = _SCREEN.sub("", _LINK.sub("", _COLOURS.sub("", shown)).replace(_LINK_END, ""))
    odd = [char for char in text if not char.isprintable() and char != "\n"]
    assert not odd, f"the terminal obeys {odd}: {text!r}"
    return text


def too_long(shown: str, columns: int = 80) -> list[str]:
    """Return the lines that do not fit."""
    return [line for line in seen(shown).split("\n") if len(line) > columns]
