"""Wait outside of a box for what the command in it wants to reach, and start to connect it then.

Run as `python -I -S proxy.py PAIR ITEM…`. PAIR is a socket over which `listen` passes the box's
listener out; a socket belongs to the network that it was made in, so accepting on it here reaches
into the box. Standard input is the lifeline: when it closes, also because the daemon was killed,
the report goes to standard output and the proxy ends. Items: `host=NAME PORT BELOW` and the same
with `private`, `read=PATH` for Landlock.

Most commands connect to nothing, so everything that costs time is imported at the first connection.
`_socket` instead of `socket` saves half of the start.
"""

# Importing pathlib would double the start.
# ruff: noqa: PTH100, PTH120

from __future__ import annotations

import _socket
import os
import select
import sys

_LIFELINE = 0


def _is_ready(fd: int) -> bool:
    """Wait for a file or for the end of the lifeline; return whether it was the file."""
    poll = select.poll()
    poll.register(_LIFELINE, select.POLLIN)  # and POLLHUP, which is always reported
    poll.register(fd, select.POLLIN)
    return _LIFELINE not in {ready for ready, _ in poll.poll()}


def _listener(pair: _socket.socket) -> int:
    """Return the listener that comes over the pair, -1 if the box ended before it sent one."""
    if not _is_ready(pair.fileno()):
        return -1
    files = pair.recvmsg(1, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)[1]
    pair.close()
    return int.from_bytes(files[0][2][:4], sys.byteorder) if files else -1


def _serve(listener: int, items: list[tuple[str, str]]) -> str:
    """Serve the listener until the lifeline closes; return the report as JSON."""
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import errno
    import json
    import socket

    from placet.plan.hosts import Host
    from placet.sandbox.launcher import shut_in
    from placet.sandbox.tunnels import Tunnels

    named = {kind: [value for key, value in items if key == kind] for kind, _ in items}
    try:
        shut_in(named["read"])
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:  # an old kernel has no such wall; the list still holds
            raise
    lists = [[value.split() for value in named.get(kind, ())] for kind in ("host", "private")]
    hosts, private = ([Host(n, int(p), b == "True") for n, p, b in words] for words in lists)
    tunnels = Tunnels(hosts, private)
    tunnels.serve(socket.socket(fileno=listener), _LIFELINE)
    return json.dumps(tunnels.rows())


def main() -> None:
    """Wait, serve, report."""
    pair = _socket.socket(fileno=int(sys.argv[1]))
    listener = _listener(pair)
    report = "[]"
    if listener >= 0 and _is_ready(listener):
        report = _serve(
            listener, [(k, v) for k, _, v in (one.partition("=") for one in sys.argv[2:])]
        )
    try:
        os.write(1, report.encode())
    finally:
        os._exit(0)  # threads may still wait for their clients


if __name__ == "__main__":
    main()
