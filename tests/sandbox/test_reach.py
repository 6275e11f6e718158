"""Reach hosts from a real box, through its proxy, and attack that way out."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.contract.test_sandbox_level import python_as_anybody

from placet.errors import ToolError, UserError
from placet.plan.hosts import Host
from placet.sandbox import reach
from placet.sandbox.box import Box, BoxLimits, Level, Reached
from placet.sandbox.cleanup import end_left_behind
from placet.sandbox.probe import starts
from placet.sandbox.run import run
from tlskit import certificate, serving

DAEMON = Path(__file__).parents[2] / "daemon"


@pytest.fixture(scope="module", autouse=True)
def _level_3() -> None:
    if sys.platform != "linux" or not starts(Level.BUBBLEWRAP):
        pytest.skip("needs bubblewrap")


@contextmanager
def page(text: bytes) -> Iterator[int]:
    """Give the port of an https server on this machine that has this page."""
    context = serving()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(text)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client = listener.accept()[0]
                    with suppress(OSError), context.wrap_socket(client, server_side=True) as inside:
                        inside.recv(65536)
                        inside.sendall(answer + text)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def box_for(tree: Path, *ports: int, **rest: object) -> Box:
    """Return a box that reaches these ports of this machine by name."""
    named = tuple(Host("localhost", port) for port in ports)
    (tree / "ca.pem").write_bytes(certificate().with_suffix(".pem.crt").read_bytes())
    return Box(tree, hosts=named, private_hosts=named, **rest)  # type: ignore[arg-type]


def fetch(*ports: int) -> list[str]:
    """Return a command that prints the pages of these ports of this machine, or why it cannot."""
    return ["python3", "-c", _FETCH, *map(str, ports)]


_FETCH = """
import os, ssl, sys, urllib.request
os.environ["no_proxy"] = os.environ["NO_PROXY"] = ""  # the servers are on this machine
context = ssl.create_default_context(cafile="ca.pem")
for port in sys.argv[1:]:
    try:
        found = urllib.request.urlopen(f"https://localhost:{port}/", context=context, timeout=20)
        print(found.read().decode())
    except OSError as error:
        print(error)
"""


def test_command_reaches_named_host_only(tmp_path: Path) -> None:
    with page(b"named") as named, page(b"other") as other:
        ran = run(fetch(named, other), box_for(tmp_path, named), Level.BUBBLEWRAP)
    first, second = ran.stdout.splitlines()
    assert first == "named"
    refused = f"localhost:{other} is not in the plan's network"
    assert second == f"<urlopen error Tunnel connection failed: 403 {refused}>"
    assert ran.reached[0] == Reached("localhost", other, "is not in the plan's network", 1, 0, 0)
    assert ran.reached[1].verdict == "allowed"
    assert ran.reached[1].sent_bytes > 500


def test_nothing_else_leads_out_of_box(tmp_path: Path) -> None:
    """The attacks come from inside; the same without a wall shows that they work."""
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with page(b"named") as named, page(b"other") as other, datagrams:
        datagrams.bind(("127.0.0.1", 0))
        ports = [str(named), str(other), str(datagrams.getsockname()[1])]
        attack = ["python3", "-c", _ATTACKS, *ports]
        inside = run(attack, box_for(tmp_path, named), Level.BUBBLEWRAP)
        control = run(attack, Box(tmp_path, network=True), Level.BUBBLEWRAP)
    assert json.loads(inside.stdout) == []
    assert set(json.loads(control.stdout)) >= {"tcp named", "tcp other", "udp"}


def test_ordinary_user_is_held_too(tmp_path: Path) -> None:
    """As above, with the proxy and the box of a user who is not root."""
    with page(b"named") as named, page(b"other") as other:
        ports = [str(named), str(other), str(other)]
        source = (
            "import tempfile; from pathlib import Path\n"
            "from placet.plan.hosts import Host; from placet.sandbox.run import run\n"
            "from placet.sandbox.box import Box, Level\n"
            f"named = (Host('localhost', {named}),)\n"
            "with tempfile.TemporaryDirectory() as tree:\n"
            "    box = Box(Path(tree), hosts=named, private_hosts=named)\n"
            f"    attack = ['python3', '-c', {_ATTACKS!r}, *{ports}]\n"
            "    print(run(attack, box, Level.BUBBLEWRAP).stdout)\n"
            f"    print(run(['python3', '-c', {_CONTROL!r}, '{named}'], box, Level.BUBBLEWRAP).stdout)\n"
        )
        through, answer = python_as_anybody(source, tmp_path).split("\n")[::2][:2]
    assert (json.loads(through), answer) == ([], "HTTP/1.1 200 Connection established")


_CONTROL = """
import socket, sys
with socket.create_connection(("127.0.0.1", 3128)) as proxy:
    proxy.sendall(f"CONNECT localhost:{sys.argv[1]} HTTP/1.1\\r\\n\\r\\n".encode())
    print(proxy.recv(200).decode().strip())
"""
_ATTACKS = """
import json, os, socket, sys
named, other, datagrams = map(int, sys.argv[1:])
through = []

def attempt(name, attack):
    try:
        attack()
        through.append(name)
    except OSError:
        pass

def udp(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.settimeout(1)
        sender.connect(address)
        sender.send(b"x")
        sender.send(b"x")

def proxied(target, data=b""):
    with socket.create_connection(("127.0.0.1", 3128), 5) as proxy:
        proxy.sendall(f"CONNECT {target} HTTP/1.1\\r\\n\\r\\n".encode())
        if b" 200 " not in proxy.recv(200):
            raise OSError
        proxy.sendall(data)
        if not proxy.recv(1):
            raise OSError

attempt("tcp named", lambda: socket.create_connection(("127.0.0.1", named), 2))
attempt("tcp other", lambda: socket.create_connection(("127.0.0.1", other), 2))
attempt("tcp six", lambda: socket.create_connection(("::1", other), 2))
attempt("tcp away", lambda: socket.create_connection(("192.0.2.1", 443), 1))
attempt("udp", lambda: udp(socket.AF_INET, ("127.0.0.1", datagrams)))
attempt("udp away", lambda: udp(socket.AF_INET, ("192.0.2.1", 53)))
for target in (f"localhost:{other}", f"127.0.0.1:{named}", f"127.1:{named}", f"[::1]:{named}",
               f"[::ffff:127.0.0.1]:{named}", f"2130706433:{named}", f"0x7f.1:{named}",
               f"localhost:{datagrams}", f"evil.test:{named}", f"x.localhost:{named}"):
    attempt("proxy " + target, lambda: proxied(target))
for data in (b"GET / HTTP/1.1\\r\\n\\r\\n", b"SSH-2.0-x\\r\\n", b"\\5\\1\\0"):
    attempt(f"not TLS {data}", lambda: proxied(f"localhost:{named}", data))
for family, kind, protocol in ((socket.AF_PACKET, socket.SOCK_RAW, 3), (socket.AF_VSOCK, 1, 0),
                               (socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_NETLINK, 3, 4)):
    attempt(f"socket {family}", lambda: socket.socket(family, kind, protocol))
def take():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 3128))
attempt("port", take if "https_proxy" in os.environ else lambda: proxied(""))
attempt("resolve", lambda: socket.getaddrinfo("packages.example", 443))
print(json.dumps(through))
"""


def test_concurrent_lists_do_not_mix(tmp_path: Path) -> None:
    with page(b"one") as one, page(b"two") as two:
        results: list[tuple[int, str]] = []

        def command(number: int) -> None:
            tree = tmp_path / str(number)
            tree.mkdir()
            mine, yours = (one, two) if number % 2 else (two, one)
            ran = run(fetch(mine, yours), box_for(tree, mine), Level.BUBBLEWRAP)
            results.append((number, ran.stdout))

        threads = [threading.Thread(target=command, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(results) == 6
    for number, said in results:
        assert said.startswith(("two", "one")[number % 2])
        assert "is not in the plan's network" in said


def test_own_servers_work_beside_hosts(tmp_path: Path) -> None:
    serves = "import socket; l = socket.create_server(('127.0.0.1', 0)); "
    serves += "socket.create_connection(l.getsockname()); print('served')"
    ran = run(["python3", "-c", serves], box_for(tmp_path, 443), Level.BUBBLEWRAP)
    assert (ran.stdout, ran.reached) == ("served\n", ())


def test_command_gets_nothing_of_listener(tmp_path: Path) -> None:
    """No descriptor, no process of placet's, and signals as a command has them elsewhere."""
    looks = "ls /proc/self/fd; grep -h SigIgn /proc/self/status; cat /proc/[0-9]*/comm"
    with_hosts = run(["sh", "-c", looks], box_for(tmp_path, 443), Level.BUBBLEWRAP)
    without = run(["sh", "-c", looks], Box(tmp_path), Level.BUBBLEWRAP)
    assert with_hosts.stdout == without.stdout


@pytest.mark.parametrize("level", [Level.LANDLOCK, Level.SEATBELT, Level.NONE])
def test_hosts_need_level_3(tmp_path: Path, level: Level) -> None:
    with pytest.raises(ToolError, match=r"needs bubblewrap \(level 3"):
        run(["true"], box_for(tmp_path, 443), level)


def proxies(parent: int = 0) -> set[int]:
    """Return the proxies that run, or those that this process started."""
    found = set()
    for folder in Path("/proc").iterdir():
        with suppress(OSError, IndexError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            above = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if str(reach._PROXY).encode() in words and parent in (0, int(above)):
                found.add(int(folder.name))
    return found


@pytest.mark.parametrize("way", ["end", "time", "cancel", "missing"])
def test_no_proxy_outlives_its_command(tmp_path: Path, way: str) -> None:
    box = box_for(tmp_path, 443, limits=BoxLimits(timeout_s=0.5))
    if way == "missing":
        with pytest.raises(ToolError):
            run(["no-such-program"], box, Level.BUBBLEWRAP)
    else:
        argv = ["true"] if way == "end" else ["sleep", "60"]
        began = time.monotonic()
        cancel = 0.0 if way == "cancel" else 60.0
        run(argv, box, Level.BUBBLEWRAP, cancelled=lambda: time.monotonic() - began > cancel)
    assert proxies(os.getpid()) == set()


def test_dead_proxy_is_an_error(tmp_path: Path) -> None:
    cut = "sleep 1; curl -sS https://evil.test/ 2>&1; echo went on"
    failed: list[str] = []

    def command() -> None:
        try:
            run(["sh", "-c", cut], box_for(tmp_path, 443), Level.BUBBLEWRAP)
        except UserError as error:
            failed.append(error.what)

    thread = threading.Thread(target=command)
    thread.start()
    until = time.monotonic() + 10
    while not (new := proxies(os.getpid())) and time.monotonic() < until:
        time.sleep(0.01)
    for pid in new:
        os.kill(pid, signal.SIGKILL)
    thread.join(30)
    assert failed == ["the proxy for the hosts of the plan ended before its command"]


_DAEMON = """
import sys
from pathlib import Path
from placet.plan.hosts import Host
from placet.sandbox.box import Box, Level
from placet.sandbox.run import run
print("ready", flush=True)
run(["sh", "-c", "curl -s https://evil.test/; sleep 31.4159"],
    Box(Path(sys.argv[1]), hosts=(Host("packages.example"),)), Level.BUBBLEWRAP)
"""


def children(pid: int) -> list[int]:
    with suppress(OSError):
        own = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid for child in map(int, own) for pid in (child, *children(child))]
    return []


def name_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@pytest.mark.sweep
def test_hundred_random_kills_leave_nothing(tmp_path: Path) -> None:
    """Of the daemon, the proxy, or the command; what is left then ends by itself.

    Not of bubblewrap while it starts: `sandbox.levels` says why, and `cleanup` ends what is left.
    """
    chance, before, slowest = random.Random(1), left_behind(), 0.0
    (tree := tmp_path / "tree").mkdir()
    for number in range(100):
        daemon = subprocess.Popen(
            [sys.executable, "-c", _DAEMON, str(tree)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(DAEMON)},
        )
        assert daemon.stdout is not None
        with daemon.stdout:
            daemon.stdout.readline()
            time.sleep(chance.random() * 0.5)
            own = [pid for pid in children(daemon.pid) if name_of(pid) in ("sh", "curl", "sleep")]
            victim = chance.choice([daemon.pid, *proxies(daemon.pid), *own[-1:]])
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            if victim != daemon.pid:  # the command lasts longer than anybody waits
                time.sleep(0.3)
                daemon.kill()
            daemon.wait()
        began = time.monotonic()
        while (left := left_behind() - before) and time.monotonic() < began + 10:
            time.sleep(0.02)
        slowest = max(slowest, time.monotonic() - began)
        assert not left, (number, victim)
    end_left_behind(tmp_path)
    print(f"100 kills, nothing left; the slowest end took {slowest:.2f} s")


def left_behind() -> set[int]:
    """Return proxies and commands; of a bwrap that was killed early, `cleanup` ends the rest."""
    pattern = "^(/usr)?(/bin/)?sleep 31.4159"
    sleeping = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True)
    return proxies() | set(map(int, sleeping.stdout.split()))


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.15, 0.4])
def test_daemon_kill_leaves_nothing(tmp_path: Path, after_s: float) -> None:
    before = left_behind()
    (tree := tmp_path / "tree").mkdir()
    daemon = subprocess.Popen(
        [sys.executable, "-c", _DAEMON, str(tree)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(DAEMON)},
    )
    assert daemon.stdout is not None
    with daemon.stdout:
        daemon.stdout.readline()
        time.sleep(after_s)
        daemon.kill()
        daemon.wait()
    until = time.monotonic() + 10
    while (left := left_behind() - before) and time.monotonic() < until:
        time.sleep(0.02)
    end_left_behind(tmp_path)
    assert not left


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock")
def test_proxy_reads_nothing_of_its_user(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    code = (
        "import errno, socket, sys; from placet.sandbox.launcher import shut_in\n"
        "try: shut_in(['/usr'])\n"
        "except OSError as error: sys.exit(77 if error.errno == errno.EOPNOTSUPP else 1)\n"
        "for attack in (lambda: open(sys.argv[1]), lambda: open(sys.argv[1], 'w'),\n"
        "               lambda: socket.create_server(('127.0.0.1', 0))):\n"
        "    try: attack()\n"
        "    except PermissionError: continue\n"
        "    sys.exit(f'{attack} got through')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(secret)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(DAEMON)},
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip("this kernel's Landlock is too old")
    assert (done.returncode, done.stderr) == (0, "")
