"""Serve this machine over ssh on loopback, as the user of the tests."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_server

import pytest


@dataclass(frozen=True)
class SshServer:
    """A running sshd; `keys` has its keys, `own` of the tests' user, and its log."""

    keys: Path
    port: int

    @property
    def programs(self) -> Path:
        """A folder for the PATH, whose `ssh` has the key."""
        return self.keys / "bin"

    @property
    def command(self) -> str:
        """The program that starts ssh with the key."""
        return str(self.programs / "ssh")

    def address(self, path: Path) -> str:
        """Return the address of a git repository."""
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}{path}"

    def allow(self, options: str = "") -> None:
        """Let the key in, with these options of `authorized_keys`."""
        key = (self.keys / "own.pub").read_text()
        (self.keys / "authorized").write_text(f"{options} {key}".lstrip())

    def logins(self) -> int:
        """Return how many logins there were."""
        return (self.keys / "log").read_text().count("Accepted publickey")


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """Give an sshd whose keys are below a folder. Skips the test where sshd does not run."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if sshd is None:
        pytest.skip("needs sshd")
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    for name in ("host", "own"):
        asked = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)]
        subprocess.run(asked, check=True)
    with closing(create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    (keys / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {keys}/host\nPidFile none\n"
        f"AuthorizedKeysFile {keys}/authorized\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin yes\nMaxStartups 100:30:200\n"
    )
    (keys / "client").write_text(
        f"IdentityFile {keys}/own\nIdentitiesOnly yes\nBatchMode yes\nStrictHostKeyChecking no\n"
        f"UserKnownHostsFile {keys}/known\nLogLevel ERROR\n"
    )
    found = SshServer(keys, port)
    found.programs.mkdir()
    Path(found.command).write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {keys}/client "$@"\n')
    Path(found.command).chmod(0o755)
    found.allow()
    # sshd of root wants an empty folder of the system's, which a container may not have
    apart = Path("/run/sshd")
    made = os.geteuid() == 0 and not apart.exists()
    if made:
        apart.mkdir(mode=0o755)
    (keys / "log").touch()
    served = subprocess.Popen([sshd, "-D", "-E", str(keys / "log"), "-f", str(keys / "config")])
    try:
        while "listening" not in (log := (keys / "log").read_text()):
            if served.poll() is not None:
                pytest.skip(f"sshd does not run here: {log}")
        yield found
    finally:
        served.kill()
        served.wait()
        if made:
            apart.rmdir()
