"""Serve git over HTTP with `http-backend`, on request with a name and password.

As a program: `python remotekit.py FOLDER ADDRESS PORT [NAME:PASSWORD]`.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


def handler(folder: Path, login: str) -> type[BaseHTTPRequestHandler]:
    """Return what answers the requests for the repositories of a folder."""
    wanted = f"Basic {base64.b64encode(login.encode()).decode()}" if login else None

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if wanted is not None and self.headers.get("Authorization") != wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.end_headers()
                return
            parts = urlsplit(self.path)
            size = int(self.headers.get("Content-Length") or 0)
            env = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_CONFIG_COUNT": "2",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
                "GIT_CONFIG_KEY_1": "http.receivepack",
                "GIT_CONFIG_VALUE_1": "true",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "PATH_INFO": parts.path,
                "QUERY_STRING": parts.query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": f"{size}",
            }
            done = subprocess.run(
                ["git", "http-backend"],
                env=env,
                input=self.rfile.read(size),
                capture_output=True,
                check=False,
            )
            head, _, body = done.stdout.partition(b"\r\n\r\n")
            lines = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self.send_response(int(lines.pop("Status", "200 OK").split()[0]))
            for name, value in {**lines, "Content-Length": f"{len(body)}"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the name that http.server asks for

        def log_message(self, *_: object) -> None:
            pass

    return Answers


@contextmanager
def git_server(folder: Path, login: str = "") -> Iterator[int]:
    """Serve the repositories of a folder on loopback; give the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(folder, login))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    place, address, port, *login = sys.argv[1:]
    answers = handler(Path(place), "".join(login))
    ThreadingHTTPServer((address, int(port)), answers).serve_forever()
