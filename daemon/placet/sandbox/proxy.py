"""Wait outside of a box for what the command in it wants to reach, and start to connect it then.

Run as `python -I -S proxy.py PAIR RULES`. PAIR is a socket over which `listen` passes the box's
listener out; a socket belongs to the network that it was made in, so accepting on it here reaches
into the box. Standard input is the lifeline: when it closes, also because the daemon was killed,
the report goes to standard output and the proxy ends. RULES is a JSON object: `hosts` and
`private_hosts`, each of name, port and whether it means the names below; `read`, for Landlock.

Most commands connect to nothing, so everything that costs time is imported at the first connection.
`socket` and `os` would double the start.
"""

from __future__ import annotations

import _socket
import posix
import select
import sys

_LIFELINE = 0


def _is_ready(fd: int) -> bool:
    """Wait for a file or for the end of the lifeline; return whether it was the file."""
    poll = select.poll()
    poll.register(_LIFELINE, select.POLLIN)  # and POLLHUP, which is always reported
    poll.register(fd, select.POLLIN)
    return _LIFELINE not in {ready for ready, _ in poll.poll()}


def _serve(listener: int) -> str:
    """Serve the listener until the lifeline closes; return the report as JSON."""
    sys.path.append(__file__.removesuffix("/placet/sandbox/proxy.py"))
    import errno
    import json
    import socket

    from placet.plan.hosts import Host
    from placet.sandbox.launcher import shut_in
    from placet.sandbox.tunnels import Tunnels

    rules = json.loads(sys.argv[2])
    try:
        shut_in(rules["read"])
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:  # an old kernel has no such wall; the list still holds
            raise
    tunnels = Tunnels(*([Host(*one) for one in rules[key]] for key in ("hosts", "private_hosts")))
    tunnels.serve(socket.socket(fileno=listener), _LIFELINE)
    return json.dumps(tunnels.rows())


def main() -> None:
    """Wait for the listener and for a client, serve, report."""
    pair = _socket.socket(fileno=int(sys.argv[1]))
    report = "[]"
    if _is_ready(pair.fileno()):
        # nothing comes if the box ended before it listened
        for _, _, files in pair.recvmsg(1, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)[1]:
            listener = int.from_bytes(files, sys.byteorder)
            report = _serve(listener) if _is_ready(listener) else report
    try:
        posix.write(1, report.encode())
    finally:  # nobody reads it if the daemon was killed; and threads may wait for their clients
        posix._exit(0)


if __name__ == "__main__":
    main()
