"""Start the proxy of a command whose plan names hosts, and read its report."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import IO, Any

from placet.disk.real_path import real_path
from placet.errors import UserError
from placet.sandbox.box import Box, Reached
from placet.sandbox.visible_paths import ETC, SYSTEM

_PORT = 3128
"""Where the command finds the proxy; each box has its own loopback."""
_LISTEN, _PROXY = (Path(__file__).with_name(name) for name in ("listen.py", "proxy.py"))
_PYTHON = str(real_path(Path(sys.executable)))  # the one that every box shows, without its packages
_END_S = 10.0


def environment_of_proxy() -> dict[str, str]:
    """Return the variables by which tools find the proxy."""
    url = f"http://127.0.0.1:{_PORT}"
    names = {**dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), url)}
    names["no_proxy"] = "localhost,127.0.0.1,::1"
    java = "-D{0}.proxyHost=127.0.0.1 -D{0}.proxyPort={1}".format
    options = (
        f"{java('http', _PORT)} {java('https', _PORT)} -Dhttp.nonProxyHosts=localhost|127.0.0.1"
    )
    return {
        **names,
        **{name.upper(): value for name, value in names.items()},
        **dict.fromkeys(("YARN_HTTP_PROXY", "YARN_HTTPS_PROXY"), url),
        **dict.fromkeys(("MAVEN_OPTS", "GRADLE_OPTS"), options),
        "NODE_USE_ENV_PROXY": "1",
    }


class Proxy:
    """The proxy of one command. Its process starts at the first connection: most make none.

    It ends with `report`, `close`, or the daemon.
    """

    def __init__(self, box: Box) -> None:
        self._pair, theirs = socket.socketpair()
        self.passed: IO[bytes] = os.fdopen(theirs.detach(), "rb", buffering=0)
        """What the box's first program passes its listener out by."""
        etc = (Path("/etc", name) for name in (*ETC, "gai.conf"))
        own = (Path(sys.base_prefix), Path(__file__).parents[1])  # the standard library and placet
        rules: dict[str, list[Any]] = {
            "read": [str(path) for path in (*SYSTEM, *etc, *own) if path.exists()],
            "hosts": [astuple(host) for host in box.hosts],
            "private_hosts": [astuple(host) for host in box.private_hosts],
        }
        self._rules = json.dumps(rules)
        self._stop = os.eventfd(0)
        waiting = ThreadPoolExecutor(1)
        self._process = waiting.submit(self._begin)
        waiting.shutdown(wait=False)

    def _begin(self) -> subprocess.Popen[bytes] | None:
        """Wait for the listener, then for a client, and start the process; OSError if it cannot."""
        if self._is_ready(self._pair.fileno()):
            # nothing comes if the box ended before it listened
            for listener in socket.recv_fds(self._pair, 1, 1, socket.MSG_CMSG_CLOEXEC)[1]:
                with os.fdopen(listener):
                    return self._started(listener) if self._is_ready(listener) else None
        return None

    def _started(self, listener: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [_PYTHON, "-I", "-S", str(_PROXY), str(listener), self._rules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(listener,),
            env={},
            cwd="/",
            start_new_session=True,  # Ctrl-C is the command's
        )

    def _is_ready(self, fd: int) -> bool:
        """Wait for a file or for the end; return whether it was the file."""
        poll = select.poll()
        for one in (fd, self._stop):
            poll.register(one, select.POLLIN)
        return self._stop not in {ready for ready, _ in poll.poll()}

    def _end(self) -> subprocess.Popen[bytes] | None:
        """Start no process from now on; return the one that was started."""
        os.eventfd_write(self._stop, 1)
        return self._process.result()

    def before(self, command: list[str]) -> list[str]:
        """Return a command with what it has to begin with in the box."""
        own = [_PYTHON, "-I", "-S", "-c", _LISTEN.read_text("utf-8")]
        return [*own, str(self.passed.fileno()), str(_PORT), *command]

    def report(self) -> tuple[Reached, ...]:
        """End the proxy and return what it connected and refused, refusals first.

        Raises UserError if it had died, as nobody knows then, and OSError if it could not start.
        """
        if (process := self._end()) is None:
            return ()
        try:
            rows = json.loads(process.communicate(timeout=_END_S)[0])
        except (subprocess.TimeoutExpired, ValueError) as error:
            raise UserError(
                "the proxy for the hosts of the plan ended before its command",
                "`placet doctor` says whether hosts are held on this machine",
            ) from error
        return tuple(sorted((Reached(*row) for row in rows), key=lambda row: not row.refusal))

    def close(self) -> None:
        """Kill what may still be there."""
        with suppress(OSError):  # `report` told why it did not start
            if (process := self._end()) is not None:
                with process:  # it closes the pipes and waits
                    process.kill()
        for end in (self.passed, self._pair):
            end.close()
        os.close(self._stop)
