"""Attack the proxy's connections: what a client asks for, where it leads, what passes."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest

from placet.plan.hosts import host_from
from placet.sandbox import tunnels
from placet.sandbox.box import Reached
from placet.sandbox.tunnels import ALLOWED, Tunnels
from tlskit import certificate, serving

NAMED = "packages.example"
HELLO = b"hello from the server"


class Names:
    """What names resolve to, and which were asked for."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[Sequence[str]]] = {}
        self.asked: list[str] = []
        self._real = socket.getaddrinfo

    def __call__(self, host: bytes | str, port: int, *_: object, **__: object) -> list[object]:
        if isinstance(host, str):  # an address that was checked
            return [*self._real(host, port, type=socket.SOCK_STREAM)]
        name = host.decode()
        self.asked.append(name)
        answers = self.addresses.get(name)
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        found: list[object] = []
        for address in answer:
            found += self._real(address, port, type=socket.SOCK_STREAM)
        return found


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    found = Names()
    monkeypatch.setattr(tunnels.socket, "getaddrinfo", found)
    return found


@contextmanager
def tls_server() -> Iterator[int]:
    """Give the port of a server that greets over TLS and returns what it is sent."""
    context = serving()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer(client: socket.socket) -> None:
            with suppress(OSError), context.wrap_socket(client, server_side=True) as inside:
                inside.sendall(HELLO)
                while data := inside.recv(65536):
                    inside.sendall(data)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(
                        target=answer, args=(listener.accept()[0],), daemon=True
                    ).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


class Proxy:
    """The connections of one command, with the address of its proxy."""

    def __init__(self, *hosts: str, private: Sequence[str] = ()) -> None:
        self.tunnels = Tunnels([*map(host_from, hosts)], [*map(host_from, private)])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lifeline, self._ours = socket.socketpair()
        args = (self._listener, self._lifeline.fileno())
        self._thread = threading.Thread(target=self.tunnels.serve, args=args)
        self._thread.start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.close()
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._listener.close()
        self._lifeline.close()

    def client(self) -> socket.socket:
        client = socket.socket()
        client.settimeout(10)
        client.connect(self._listener.getsockname())
        return client

    def asks(self, request: bytes) -> bytes:
        """Return the answer's first line; empty if the proxy just closed."""
        with self.client() as client:
            client.sendall(request)
            return _line(client)

    def connects(self, target: str) -> bytes:
        return self.asks(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())

    def verdicts(self) -> list[tuple[str, int, str]]:
        return [row[:3] for row in self.tunnels.rows()]


def _line(client: socket.socket) -> bytes:
    said = b""
    with suppress(ConnectionError):
        while b"\r\n" not in said and (data := client.recv(4096)):
            said += data
    return said.partition(b"\r\n")[0]


@pytest.fixture
def reached(names: Names) -> Iterator[tuple[Proxy, int]]:
    """A proxy for a server that is reached by name."""
    names.addresses[NAMED] = [["127.0.0.1"]]
    with tls_server() as port:
        target = f"{NAMED}:{port}"
        with Proxy(target, private=[target]) as proxy:
            yield proxy, port


PIECE = 64 * 1024


def greeted(proxy: Proxy, port: int, name: str = NAMED, *, sent: bytes = b"") -> bytes:
    """Connect by TLS for a name; return what the server says, and to what it is sent."""
    context = ssl.create_default_context(cafile=str(certificate()))
    context.check_hostname = False
    with proxy.client() as client:
        client.sendall(f"CONNECT {NAMED}:{port} HTTP/1.1\r\n\r\n".encode())
        assert _line(client) == b"HTTP/1.1 200 Connection established"
        with context.wrap_socket(client, server_hostname=name) as inside:
            said = inside.recv(len(HELLO))
            for begin in range(0, len(sent), PIECE):  # no second thread: OpenSSL wants one
                inside.sendall(sent[begin : begin + PIECE])
                while len(said) < len(HELLO) + min(begin + PIECE, len(sent)):
                    if not (data := inside.recv(PIECE)):
                        return said
                    said += data
            return said


def test_named_host_is_reached(reached: tuple[Proxy, int]) -> None:
    proxy, port = reached
    assert greeted(proxy, port) == HELLO
    assert greeted(proxy, port) == HELLO
    ((*key, sent, received),) = proxy.tunnels.rows()
    assert key == [NAMED, port, ALLOWED, 2]
    assert sent > 500
    assert received > 500


def test_large_transfers_pass_in_both_directions(reached: tuple[Proxy, int]) -> None:
    sent = bytes(range(256)) * 40_000
    assert greeted(*reached, sent=sent) == HELLO + sent


@pytest.mark.parametrize(
    "target",
    [
        "evil.example:443",
        "packages.example:444",
        "evilpackages.example:443",
        "a.packages.example:443",
        "127.0.0.1:443",
        "127.1:443",
        "2130706433:443",
        "0x7f.1:443",
        "0177.0.0.1:443",
        "0:443",
        "localhost:443",
        "wild.example:443",
        "evilwild.example:443",
        ".wild.example:443",
        "a..wild.example:443",
        "evil.example#.wild.example:443",
        "evil.example/.wild.example:443",
        "evil.example@a.wild.example:443",
        "a%00.wild.example:443",
        f"{'a' * 240}.wild.example:443",
        "packages.example@evil.example:443",
        "packages.example:443@evil.example:443",
        "packages.example:4430",
        "packages.example:99999",
    ],
)
def test_unnamed_host_is_refused_unresolved(names: Names, target: str) -> None:
    with Proxy(NAMED, "*.wild.example") as proxy:
        assert b" 40" in proxy.connects(target)[8:13]
        assert names.asked == []
        assert len(proxy.verdicts()) == 1


def test_refusal_names_host_for_people(names: Names) -> None:
    with Proxy(NAMED) as proxy:
        said = proxy.connects("evil.example:443")
        assert said == b"HTTP/1.1 403 evil.example:443 is not in the plan's network"
        assert proxy.verdicts() == [("evil.example", 443, "is not in the plan's network")]


@pytest.mark.parametrize("target", ["PACKAGES.example", "packages.example.", "a.b.wild.example"])
def test_other_spellings_of_a_named_host_count(names: Names, target: str) -> None:
    with Proxy(NAMED, "*.wild.example") as proxy:
        proxy.connects(f"{target}:0443")
        assert names.asked == [target.lower().removesuffix(".")]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: packages.example\r\n\r\n",
        b"GET http://packages.example/ HTTP/1.1\r\n\r\n",
        b"POST http://packages.example/ HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"GET https://packages.example/ HTTP/1.1\r\n\r\n",
        b"GET ftp://packages.example/ HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT packages.example HTTP/1.1\r\n\r\n",
        b"CONNECT packages.example:443 HTTP/2\r\n\r\n",
        b"CONNECT packages.example:443 HTTP/1.1\nHost: x\n\r\n\r\n",
        b"CONNECT packages.example:443 HTTP/1.1\r\nHost : x\r\n\r\n",
        b"CONNECT packages.example:443 HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
        b"CONNECT packages.example:443 HTTP/1.1\r\nA: b\0\r\n\r\n",
        b"CONNECT packages.example:443 HTTP/1.1\r\nA: b\rC: d\r\n\r\n",
        b"CONNECT  packages.example:443 HTTP/1.1\r\n\r\n",
        b"CONNECT packages\0.example:443 HTTP/1.1\r\n\r\n",
        b"CONNECT packages.example\\:443 HTTP/1.1\r\n\r\n",
        b"CONNECT [::1]:443 HTTP/1.1\r\n\r\n",
        b"CONNECT [::ffff:127.0.0.1]:443 HTTP/1.1\r\n\r\n",
        "CONNECT packages。example:443 HTTP/1.1\r\n\r\n".encode(),
        "CONNECT ⓟackages.example:443 HTTP/1.1\r\n\r\n".encode(),
        b"CONNECT packages.example:+443 HTTP/1.1\r\n\r\n",
        b"connect packages.example:443 HTTP/1.1\r\n\r\n",
        b"\r\nCONNECT packages.example:443 HTTP/1.1\r\n\r\n",
        b"CONNECT packages.example:443 HTTP/1.1\r\nA: " + b"b" * 20_000 + b"\r\n\r\n",
        b"\5\1\0\r\n\r\n",
    ],
)
def test_anything_but_plain_connect_is_refused(names: Names, request_: bytes) -> None:
    with Proxy(NAMED) as proxy:
        assert not proxy.asks(request_).startswith(b"HTTP/1.1 2")
        assert names.asked == []


def test_plain_http_is_refused_by_name(names: Names) -> None:
    with Proxy(NAMED) as proxy:
        said = proxy.asks(b"GET http://packages.example/x?y HTTP/1.1\r\n\r\n")
        assert said.endswith(b" 403 packages.example:80 was asked by http; only https passes")


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "::1", "fd00::1",
     "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1"],
)  # fmt: skip
def test_named_host_with_private_address_is_refused(names: Names, address: str) -> None:
    names.addresses[NAMED] = [[address]]
    with Proxy(NAMED) as proxy:
        said = proxy.connects(f"{NAMED}:443")
        assert said == b"HTTP/1.1 403 packages.example:443 is in a private network"


def test_second_answer_of_resolver_is_checked(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is public first: the connection goes to that address, and to no later one."""
    with tls_server() as port:
        names.addresses[NAMED] = [["192.0.2.1"], ["127.0.0.1"]]
        monkeypatch.setattr(tunnels, "is_public", lambda address: address == "192.0.2.1")
        monkeypatch.setattr(tunnels, "CONNECT_S", 0.2)
        with Proxy(f"{NAMED}:{port}") as proxy:
            assert b" 502 " in proxy.connects(f"{NAMED}:{port}")
            assert names.asked == [NAMED]
            assert b" 403 " in proxy.connects(f"{NAMED}:{port}")


def test_private_host_opens_only_itself(names: Names) -> None:
    names.addresses |= {NAMED: [["127.0.0.1"]], "other.example": [["127.0.0.1"]]}
    with tls_server() as port:
        target, other = f"{NAMED}:{port}", f"other.example:{port}"
        with Proxy(target, other, private=[target, "evil.example"]) as proxy:
            assert greeted(proxy, port) == HELLO
            assert b"private network" in proxy.connects(other)
            assert b"is not in the plan" in proxy.connects("evil.example:443")


def test_unreachable_host_says_why(names: Names) -> None:
    with Proxy(NAMED) as proxy:
        said = proxy.connects(f"{NAMED}:443").decode()
    assert said.startswith(
        "HTTP/1.1 502 packages.example:443 cannot be reached (Name or service not known). "
    )
    assert said.endswith("never by a company's own proxy")


@pytest.mark.parametrize("name", ["evil.example", None])
def test_tls_for_another_name_is_cut(reached: tuple[Proxy, int], name: str | None) -> None:
    proxy, port = reached
    with pytest.raises(OSError):  # noqa: PT011  whichever way TLS ends
        greeted(proxy, port, name or "127.0.0.1")
    ((*_, verdict, count, sent, received),) = proxy.tunnels.rows()
    assert verdict == f"got TLS that names {name or 'no host'}"
    assert (count, sent, received) == (1, 0, 0)


@pytest.mark.parametrize(
    "data", [b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\5\1\0", b"\x80\x2e\1\3\1"]
)
def test_other_protocols_are_cut(reached: tuple[Proxy, int], data: bytes) -> None:
    proxy, port = reached
    with proxy.client() as client:
        client.sendall(f"CONNECT {NAMED}:{port} HTTP/1.1\r\n\r\n".encode() + data)
        assert b" 200 " in _line(client)
        assert client.recv(1) == b""
    assert proxy.verdicts() == [(NAMED, port, "got no TLS")]


def test_limits_cut_connections(
    reached: tuple[Proxy, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, port = reached
    monkeypatch.setattr(tunnels, "HEAD_S", 0.3)
    monkeypatch.setattr(tunnels, "MAX_BYTES", 50_000)
    began = time.monotonic()
    with proxy.client() as slow:
        for byte in b"CONNECT ":
            slow.sendall(bytes([byte]))
            time.sleep(0.02)
        assert slow.recv(1) == b""
    with proxy.client() as silent:
        silent.sendall(f"CONNECT {NAMED}:{port} HTTP/1.1\r\n\r\n".encode())
        assert b" 200 " in _line(silent)
        assert silent.recv(1) == b""
    assert time.monotonic() - began < 5
    assert (NAMED, port, "timed out") in proxy.verdicts()
    with suppress(OSError):
        assert len(greeted(proxy, port, sent=bytes(200_000))) < 100_000
    assert any("was cut" in verdict for _, _, verdict in proxy.verdicts())


def test_too_many_connections_are_refused(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnels, "AT_ONCE", 3)
    with Proxy(NAMED) as proxy:
        open_ = [proxy.client() for _ in range(3)]
        until = time.monotonic() + 10
        assert proxy.connects(f"{NAMED}:443") == b""
        assert proxy.verdicts() == [("", 0, "has more than 3 connections at once")]
        for client in open_:
            client.close()
        while b" 502 " not in proxy.connects(f"{NAMED}:443") and time.monotonic() < until:
            time.sleep(0.05)


def test_report_has_open_connections(reached: tuple[Proxy, int]) -> None:
    proxy, port = reached
    with proxy.client() as client:
        client.sendall(f"CONNECT {NAMED}:{port} HTTP/1.1\r\n\r\n".encode())
        assert b" 200 " in _line(client)
        context = ssl.create_default_context(cafile=str(certificate()))
        with context.wrap_socket(client, server_hostname=NAMED) as inside:
            assert inside.recv(100) == HELLO
            assert proxy.tunnels.rows()[0][:4] == (NAMED, port, ALLOWED, 1)
            assert proxy.tunnels.rows()[0][5] > 0


def test_many_refusals_hide_no_allowed_host(reached: tuple[Proxy, int]) -> None:
    proxy, port = reached
    for number in range(120):
        proxy.connects(f"{number}.evil.example:443")
    assert greeted(proxy, port) == HELLO
    *refused, rest, (*allowed, sent, _) = proxy.tunnels.rows()
    assert [row[0] for row in refused] == [f"{number}.evil.example" for number in range(9)]
    assert Reached(*rest).refusal == "others were refused too"
    assert (rest[3], allowed) == (111, [NAMED, port, ALLOWED, 1])
    assert sent > 500


def test_many_allowed_hosts_share_a_row(names: Names) -> None:
    names.addresses |= {f"{number}.wild.example": [["127.0.0.1"]] for number in range(25)}
    with tls_server() as port:
        target = f"*.wild.example:{port}"
        with Proxy(target, private=[target]) as proxy:
            for number in range(25):
                assert b" 200 " in proxy.connects(f"{number}.wild.example:{port}")
            rows = proxy.tunnels.rows()
    assert len(rows) == 10
    assert rows[-1] == ("others", 0, ALLOWED, 16, 0, 0)
    assert Reached(*rows[-1]).refusal == ""


@pytest.mark.parametrize("data", [b"", b"\x16\3\1\2\0\1\0"])
def test_connection_without_whole_hello_is_listed(reached: tuple[Proxy, int], data: bytes) -> None:
    proxy, port = reached
    with proxy.client() as client:
        client.sendall(f"CONNECT {NAMED}:{port} HTTP/1.1\r\n\r\n".encode() + data)
        assert b" 200 " in _line(client)
    assert proxy.tunnels.rows() == [(NAMED, port, ALLOWED, 1, 0, 0)]


def test_lack_of_threads_refuses_one_connection(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(**_: object) -> None:
        raise RuntimeError("can't start new thread")

    with Proxy(NAMED) as proxy:
        with monkeypatch.context() as broken:
            broken.setattr(tunnels.threading, "Thread", none_left)
            assert proxy.connects(f"{NAMED}:443") == b""
        assert [row[2] for row in proxy.tunnels.rows()] == ["got no thread for a connection"]
        assert b" 502 " in proxy.connects(f"{NAMED}:443")


def test_failed_answer_frees_its_place(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnels, "AT_ONCE", 1)
    monkeypatch.setattr(tunnels.threading, "excepthook", lambda _: None)
    with Proxy(NAMED) as proxy:
        with monkeypatch.context() as broken:
            broken.setattr(proxy.tunnels, "_asked", lambda _: 1 / 0)
            assert proxy.connects(f"{NAMED}:443") == b""
        until = time.monotonic() + 10
        while not (said := proxy.connects(f"{NAMED}:443")) and time.monotonic() < until:
            time.sleep(0.05)
        assert b" 502 " in said
