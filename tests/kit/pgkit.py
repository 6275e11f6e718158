"""Start a PostgreSQL server on loopback, below a temporary folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
SERVER = shutil.which("postgres") or (str(PROGRAMS[-1] / "postgres") if PROGRAMS else "")
WHY_NOT = "needs PostgreSQL: apt-get install postgresql"
_SETTINGS = {
    "unix_socket_directories": "",
    "max_connections": "600",  # the 64 workers of the benchmark
    "shared_buffers": "32MB",
}


def _as_ordinary_user() -> str | None:
    """Return the user that the server runs as: it refuses root."""
    if os.geteuid() != 0:
        return None
    return "postgres" if any(one.pw_name == "postgres" for one in pwd.getpwall()) else "nobody"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass
class Server:
    """A server that can be stopped, killed and started again; `fresh` makes a database.

    The words `before` start it somewhere else, where `host` is its address.
    """

    folder: Path
    port: int
    host: str = "127.0.0.1"
    before: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None
    made: int = 0

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, "the server was not started"
        return self.process

    def start(self) -> None:
        said = {"listen_addresses": self.host, **_SETTINGS}
        settings = [word for name, value in said.items() for word in ("-c", f"{name}={value}")]
        user = _as_ordinary_user()
        before = (
            [*self.before, "setpriv", f"--reuid={user}", "--clear-groups"] if self.before else []
        )
        with open(self.folder / "log", "ab") as log:  # noqa: PTH123 - a handle for the child
            self.process = subprocess.Popen(
                [*before, SERVER, "-D", str(self.folder / "data"), "-p", f"{self.port}", *settings],
                stdout=log,
                stderr=log,
                user=None if before else user,
                cwd=self.folder,
            )
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.sql("SELECT 1")
                return
            if time.monotonic() > until or self.running.poll() is not None:
                raise AssertionError((self.folder / "log").read_text())
            time.sleep(0.05)

    def stop(self, how: str = "fast") -> None:
        """End it: `fast` in order, `kill` by SIGQUIT, which flushes nothing."""
        process = self.running
        if process.poll() is None:
            process.send_signal({"fast": 2, "kill": 3}[how])
            process.wait(30)
        self.process = None

    def sql(self, text: str, database: str = "postgres") -> str:
        """Run SQL as the owner of all; return what it prints."""
        program = shutil.which("psql") or str(Path(SERVER).with_name("psql"))
        return subprocess.run(
            [program, "-XAtq", "-v", "ON_ERROR_STOP=1", self.address(database), "-c", text],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    def address(self, database: str) -> str:
        return f"postgresql://placet@{self.host}:{self.port}/{database}"

    def fresh(self) -> str:
        """Return the address of a new, empty database."""
        self.made += 1
        self.sql(f"CREATE DATABASE test{self.made} ENCODING 'UTF8' TEMPLATE template0")
        return self.address(f"test{self.made}")


@contextmanager
def server(host: str = "127.0.0.1", before: Sequence[str] = ()) -> Iterator[Server]:
    """Give a new server; it and its folder are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="placet-pg."))
    user = _as_ordinary_user()
    if user is not None:
        shutil.chown(folder, user)
    try:
        subprocess.run(
            [
                Path(SERVER).with_name("initdb"),
                *("-D", folder / "data", "-U", "placet", "-A", "trust", "-E", "UTF8"),
                *("--locale=C.UTF-8", "--no-sync", "--no-instructions"),
            ],
            check=True,
            capture_output=True,
            user=user,
            cwd=folder,
        )
        with open(folder / "data" / "pg_hba.conf", "a") as access:  # noqa: PTH123
            access.write("host all all samenet trust\nhost all all 10.0.0.0/8 trust\n")
        found = Server(folder, free_port(), host, before)
        found.start()
        try:
            yield found
        finally:
            if found.process is not None:
                found.stop("kill")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
