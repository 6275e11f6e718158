"""The socket of live events: its path, and how a client reads it.

A client connects and reads newline-delimited JSON, one `events.Event` a line; it sends nothing.
Only the user who runs the daemon may connect.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from placet.errors import UserError

SOCKET = "events.sock"
MAX_ADDRESS_BYTES = 100
"""sun_path holds 108 bytes on Linux and 104 on macOS (unix(7), unix(4)), one of them a NUL."""


def places(state: Path, env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the possible paths of a vault's socket: in the runtime folder, in the state folder.

    As the XDG Base Directory Specification asks, the runtime folder counts only if it is absolute,
    ours, and closed to others.
    """
    found = [state / "run" / SOCKET]
    runtime = env.get("XDG_RUNTIME_DIR", "")
    if runtime and Path(runtime).is_absolute() and is_private(Path(runtime)):
        found.insert(0, Path(runtime) / "placet" / state.name / SOCKET)
    return tuple(found)


def listen(where: Sequence[Path]) -> Iterator[bytes]:
    """Yield the lines of the first socket at which a daemon listens, until it stops.

    Raises UserError if none does.
    """
    for path in where:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            try:
                with address_of(path) as address:
                    sock.connect(address)
            except OSError:
                continue
            with sock.makefile("rb") as stream:
                yield from stream
            return
    raise UserError("No daemon of this vault sends events.", "Start it: placet run")


def is_private(folder: Path) -> bool:
    """Return whether a folder is ours and closed to others."""
    try:
        info = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(info.st_mode)
        and info.st_uid == os.geteuid()
        and not stat.S_IMODE(info.st_mode) & 0o077
    )


@contextlib.contextmanager
def address_of(path: Path) -> Iterator[str]:
    """Yield a path that is short enough for a socket: on Linux, by an open handle of its folder."""
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES or sys.platform != "linux":
        yield str(path)
        return
    handle = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{path.name}"
    finally:
        os.close(handle)
