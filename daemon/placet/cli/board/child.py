"""The board as a part of the daemon: a process of its own, started and ended with it.

Fifty browsers then cost the loop nothing, and the page has nothing of the daemon's: neither its
memory nor its environment, in which the model's key is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from placet.core.wording import one_line

AGAIN_S = 60.0
"""Seconds until a board that ended by itself is started again."""
END_S = 5.0
"""Seconds that a board has to end."""
PASSED_ON = frozenset({
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LC_TIME", "LOGNAME", "PATH", "PLACET_STATE_HOME",
    "TMPDIR", "TZ", "USER", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
})  # fmt: skip
"""Names of the environment that a board gets. It needs git, the state folder and local time."""
MAX_WORDS = 300


@contextmanager
def board_beside(vault: Path, env: Mapping[str, str], say: Callable[[str], None]) -> Iterator[None]:
    """Serve a vault's board until the block ends; `say` is told if it ends by itself."""
    ending = threading.Event()
    keeper = threading.Thread(
        target=_keep, args=(vault, env, say, ending), name="board", daemon=True
    )
    keeper.start()
    try:
        yield
    finally:
        ending.set()
        keeper.join(END_S + 1)


def _keep(
    vault: Path, env: Mapping[str, str], say: Callable[[str], None], ending: threading.Event
) -> None:
    while True:
        try:
            last_words = _run(vault, env, ending)
        except OSError as error:
            last_words = f"it cannot be started: {error.strerror}"
        if ending.is_set():
            return
        say(
            f"The board has ended: {last_words or 'without a word'}. It is started again in "
            f"{AGAIN_S:.0f} s."
        )
        if ending.wait(AGAIN_S):
            return


def _run(vault: Path, env: Mapping[str, str], ending: threading.Event) -> str:
    """Run a board until it ends or `ending` is set; return what it said last."""
    argv = [sys.executable, "-m", "placet", "--vault", str(vault), "board", "--of-daemon"]
    with subprocess.Popen(
        argv,
        env={name: value for name, value in env.items() if name in PASSED_ON},
        stdin=subprocess.PIPE,  # its lifeline: a board whose daemon was killed ends
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C is the daemon's, which ends it in order
    ) as board:
        assert board.stdin is not None, "it was asked for"
        words: list[bytes] = []
        reader = threading.Thread(target=_hear, args=(board, words), daemon=True)
        reader.start()
        while board.poll() is None and not ending.wait(0.2):
            pass
        board.stdin.close()
        try:
            board.wait(END_S)
        except subprocess.TimeoutExpired:
            board.kill()
        reader.join(1)
    return one_line(b"".join(words[-3:]).decode(errors="replace"), MAX_WORDS)


def _hear(board: subprocess.Popen[bytes], words: list[bytes]) -> None:
    assert board.stderr is not None, "it was asked for"
    with suppress(OSError, ValueError):
        for line in board.stderr:
            words.append(line[:MAX_WORDS])
            del words[:-3]


def end_with_daemon(end: Callable[[], None]) -> None:
    """Call `end` once the daemon that started this process ends or is killed; from a thread."""

    def wait() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        end()

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
