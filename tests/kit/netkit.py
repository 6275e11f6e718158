"""Make network namespaces around a router that can cut lines."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass(frozen=True)
class Net:
    """Machines by name, each with an address; this one reaches all of them."""

    prefix: str
    names: Sequence[str]

    def address(self, name: str) -> str:
        return f"10.213.{self.names.index(name) + 1}.2"

    def at(self, name: str) -> list[str]:
        """Return the words that start a program on a machine."""
        return ["ip", "netns", "exec", f"{self.prefix}{name}"]

    def cut(self, sender: str, receiver: str) -> None:
        """Let everything vanish that one machine sends to another, and say nothing."""
        self._rule("add", sender, receiver)

    def mend(self, sender: str, receiver: str) -> None:
        self._rule("del", sender, receiver)

    def _rule(self, what: str, sender: str, receiver: str) -> None:
        way = ("from", self.address(sender), "to", self.address(receiver))
        ip("-n", f"{self.prefix}router", "rule", what, *way, "blackhole")


@contextmanager
def net(*names: str) -> Iterator[Net]:
    """Give machines of these names; the test is skipped where that is not allowed."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root, and ip(8)")
    found = Net(f"placet{os.getpid()}", names)
    router = f"{found.prefix}router"
    try:
        try:
            ip("netns", "add", router)
        except subprocess.CalledProcessError:
            pytest.skip("this root may make no network namespace")
        ip("netns", "exec", router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for number, name in enumerate(("", *names)):
            here, there, subnet = f"p{number}a", f"p{number}b", f"10.213.{number}"
            ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", router)
            at = list[str]()
            if name:
                at = ["-n", f"{found.prefix}{name}"]
                ip("netns", "add", f"{found.prefix}{name}")
                ip("link", "set", here, "netns", f"{found.prefix}{name}")
                ip(*at, "link", "set", "lo", "up")
            ip(*at, "addr", "add", f"{subnet}.2/24", "dev", here)
            ip(*at, "link", "set", here, "up")
            ip("-n", router, "addr", "add", f"{subnet}.1/24", "dev", there)
            ip("-n", router, "link", "set", there, "up")
            ip(*at, "route", "add", "10.213.0.0/16", "via", f"{subnet}.1")
        yield found
    finally:
        for name in ("router", *names):
            subprocess.run(["ip", "netns", "del", f"{found.prefix}{name}"], capture_output=True)
        subprocess.run(["ip", "link", "del", "p0a"], capture_output=True)
