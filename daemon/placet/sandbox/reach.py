"""Start the proxy of a command whose plan names hosts, and read its report."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path
from typing import IO, Any

from placet.errors import UserError
from placet.sandbox.box import Box, Reached
from placet.sandbox.visible_paths import ETC, SYSTEM

_PORT = 3128
"""Where the command finds the proxy; each box has its own loopback."""
_LISTEN, _PROXY = (Path(__file__).with_name(name) for name in ("listen.py", "proxy.py"))
_PYTHON = str(Path(sys.executable).resolve())  # the one that every box shows, without its packages
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
    """The proxy process of one command. It ends with `report`, `close`, or the daemon."""

    def __init__(self, box: Box) -> None:
        ours, theirs = socket.socketpair()
        self.passed: IO[bytes] = os.fdopen(theirs.detach(), "rb", buffering=0)
        """What the box's first program passes its listener out by."""
        etc = (Path("/etc", name) for name in (*ETC, "gai.conf"))
        own = (Path(sys.base_prefix), Path(__file__).parents[1])  # the standard library and placet
        rules: dict[str, list[Any]] = {
            "read": [str(path) for path in (*SYSTEM, *etc, *own) if path.exists()],
            "hosts": [astuple(host) for host in box.hosts],
            "private_hosts": [astuple(host) for host in box.private_hosts],
        }
        with ours:
            self._process = subprocess.Popen(
                [_PYTHON, "-I", "-S", str(_PROXY), str(ours.fileno()), json.dumps(rules)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(ours.fileno(),),
                env={},
                cwd="/",
                start_new_session=True,  # Ctrl-C is the command's
            )

    def before(self, command: list[str]) -> list[str]:
        """Return a command with what it has to begin with in the box."""
        own = [_PYTHON, "-I", "-S", "-c", _LISTEN.read_text("utf-8")]
        return [*own, str(self.passed.fileno()), str(_PORT), *command]

    def report(self) -> tuple[Reached, ...]:
        """End the proxy and return what it connected and refused, refusals first.

        Raises UserError if it had died: then nobody knows.
        """
        try:
            rows = json.loads(self._process.communicate(timeout=_END_S)[0])
        except (subprocess.TimeoutExpired, ValueError) as error:
            raise UserError(
                "the proxy for the hosts of the plan ended before its command",
                "`placet doctor` says whether hosts are held on this machine",
            ) from error
        return tuple(sorted((Reached(*row) for row in rows), key=lambda row: not row.refusal))

    def close(self) -> None:
        """Kill what may still be there."""
        self.passed.close()
        with self._process:  # it closes the pipes and waits
            self._process.kill()
