"""Connect the command in a box to what its plan names, from outside.

Run as `python -I -S proxy.py LISTENER RULES` at the first connection. LISTENER is a socket that
`listen` made in the box and passed out; a socket belongs to the network that it was made in, so
accepting on it here reaches into the box. RULES is a JSON object: `hosts` and `private_hosts`, each
of name, port and whether it means the names below; `read`, for Landlock. Standard input is the
lifeline: when it closes, also because the daemon was killed, the report goes to standard output
and the proxy ends.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys


def main() -> None:
    """Serve the listener until the lifeline closes, then report."""
    sys.path.append(__file__.removesuffix("/placet/sandbox/proxy.py"))
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
    tunnels.serve(socket.socket(fileno=int(sys.argv[1])), lifeline=0)
    try:
        os.write(1, json.dumps(tunnels.rows()).encode())
    finally:  # nobody reads it if the daemon was killed; and threads may wait for their clients
        os._exit(0)


if __name__ == "__main__":
    main()
