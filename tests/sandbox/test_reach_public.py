"""Reach public addresses from a box, on a network that this test makes for itself.

The addresses are the loopback's of a new network namespace, and the names stand in its own
`/etc/hosts`. Nothing leaves the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from placet.sandbox.box import Level
from placet.sandbox.probe import starts
from tlskit import certificate

DAEMON = Path(__file__).parents[2] / "daemon"
NAMES = {
    "named.example": "198.20.0.1",
    "a.wild.example": "198.20.0.1",
    "wild.example": "198.20.0.1",
    "unnamed.example": "198.20.0.1",
    "loopback.wild.example": "127.0.0.1",
    "home.wild.example": "10.1.2.3",
    "metadata.wild.example": "169.254.169.254",
    "shared.wild.example": "100.64.0.1",
    "both.wild.example": "10.1.2.3",
    "six.wild.example": "2606:4700::1",
    "local.wild.example": "fd00::1",
    "mapped.wild.example": "::ffff:10.1.2.3",
}
REACHED = {"named.example", "a.wild.example", "six.wild.example"}

INSIDE = """
import json, socket, ssl, sys
found = {}
for target in sys.argv[1:]:
    try:
        proxy = socket.create_connection(("127.0.0.1", 3128), 10)
        proxy.sendall(f"CONNECT {target}:443 HTTP/1.1\\r\\n\\r\\n".encode())
        said = proxy.recv(300).decode().split("\\r\\n")[0]
        if " 200 " in said:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            said = context.wrap_socket(proxy, server_hostname=target).recv(100).decode()
    except OSError as error:
        said = str(error)
    found[target] = said
for address in ("198.20.0.1", "10.1.2.3", "2606:4700::1"):
    try:
        socket.create_connection((address, 443), 2)
        found[address] = "direct"
    except OSError:
        pass
print(json.dumps(found))
"""

OUTSIDE = """
import json, socket, ssl, subprocess, sys, tempfile, threading
from pathlib import Path
from placet.plan.hosts import host_from
from placet.sandbox.box import Box, Level
from placet.sandbox.run import run
names, pem, inside = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
def ip(*words):
    subprocess.run(["ip", *words], check=True)
ip("link", "set", "lo", "up")
for address in set(names.values()) - {"127.0.0.1", "::ffff:10.1.2.3"}:
    ip("addr", "add", address, "dev", "lo")
lines = "".join(f"{address} {name}\\n" for name, address in names.items())
hosts = Path(tempfile.mkdtemp(), "hosts")
hosts.write_text("127.0.0.1 localhost\\n" + lines + "198.20.0.1 both.wild.example\\n")
subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(pem)
def serve(listener):
    while True:
        client, _ = listener.accept()
        try:
            with context.wrap_socket(client, server_side=True) as tls:
                tls.sendall(b"hello")
        except OSError:
            pass
listener = socket.create_server(("::", 443), family=socket.AF_INET6, dualstack_ipv6=True)
threading.Thread(target=serve, args=(listener,), daemon=True).start()
with tempfile.TemporaryDirectory() as tree:
    listed = tuple(map(host_from, ("named.example", "*.wild.example")))
    argv = ["python3", "-c", inside, *names]
    ran = run(argv, Box(Path(tree), hosts=listed), Level.BUBBLEWRAP)
    control = run(argv, Box(Path(tree), network=True), Level.BUBBLEWRAP)
print(json.dumps([json.loads(ran.stdout), json.loads(control.stdout), [r.refusal for r in ran.reached]]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces")
def test_names_reach_public_addresses_only(tmp_path: Path) -> None:
    if not starts(Level.BUBBLEWRAP):
        pytest.skip("needs bubblewrap")
    unshare = ["unshare", "-nm"] if os.geteuid() == 0 else ["unshare", "-Urnm"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this machine makes no network namespace")
    done = subprocess.run(
        [*unshare, sys.executable, "-c", OUTSIDE, json.dumps(NAMES), str(certificate()), INSIDE],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(DAEMON)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found, control, refusals = json.loads(done.stdout)
    both = {"both.wild.example"}  # of its two addresses only the public one is used
    assert {name for name, said in found.items() if said == "hello"} == REACHED | both
    assert sum("private network" in refusal for refusal in refusals) == 6
    assert {name for name, said in control.items() if said == "direct"} == {
        "198.20.0.1",
        "10.1.2.3",
        "2606:4700::1",
    }
