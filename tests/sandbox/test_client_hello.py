"""Test which server name is read from a TLS client, next to what OpenSSL reads."""

from __future__ import annotations

import random
import ssl
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placet.sandbox.client_hello import OneName, read_hello
from tlskit import serving

NAME = "packages.example"


@cache
def openssl(curve: str) -> ssl.SSLContext:
    context = serving()
    context.set_ciphers("ALL:@SECLEVEL=0")
    if curve:
        context.set_ecdh_curve(curve)
    return context


class Server:
    """OpenSSL as a server that notes each name it goes by."""

    def __init__(self, curve: str = "") -> None:
        self.names: list[str | None] = []
        context = openssl(curve)
        context.sni_callback = lambda _socket, name, _context: self.names.append(name)
        self._came, self.said = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._side = context.wrap_bio(self._came, self.said, server_side=True)

    def reads(self, data: bytes) -> list[str | None]:
        self._came.write(data)
        with suppress(ssl.SSLError, UnicodeError):
            self._side.do_handshake()
        return self.names


class Client:
    """OpenSSL as a client."""

    def __init__(self, name: str = NAME, *, newest: bool = True) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if not newest:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2", "http/1.1"])
        self._came, self._says = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._side = context.wrap_bio(self._came, self._says, server_hostname=name)

    def says(self, answer: bytes = b"") -> bytes:
        self._came.write(answer)
        with suppress(ssl.SSLWantReadError):
            self._side.do_handshake()
        return self._says.read()


@cache
def hellos() -> tuple[bytes, ...]:
    return Client().says(), Client(newest=False).says(), Client("a" * 63 + ".example").says()


def records(payload: bytes, size: int, version: bytes = b"\3\1") -> bytes:
    """Return a message of the handshake in records of so many bytes."""
    parts = [payload[at : at + size] for at in range(0, len(payload), size)]
    return b"".join(b"\x16" + version + len(part).to_bytes(2, "big") + part for part in parts)


def extension(kind: int, content: bytes) -> bytes:
    return kind.to_bytes(2, "big") + len(content).to_bytes(2, "big") + content


def server_name(*names: bytes, kind: int = 0) -> bytes:
    listed = b"".join(bytes([kind]) + len(name).to_bytes(2, "big") + name for name in names)
    return extension(0, len(listed).to_bytes(2, "big") + listed)


def hello(*extensions: bytes, size: int = 16_384, after: bytes = b"") -> bytes:
    """Return a ClientHello with these extensions."""
    joined = b"".join(extensions)
    body = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0"
    body += len(joined).to_bytes(2, "big") + joined + after
    return records(b"\1" + len(body).to_bytes(3, "big") + body, size)


OWN = server_name(NAME.encode())


def test_whole_hello_names_its_host() -> None:
    for data in hellos():
        found = read_hello(data)
        assert found is not None
        name, size = found
        assert (name, size) == (Server().reads(data)[0], len(data))
        assert read_hello(data + b"\x17\3\3") == (name, len(data))
    assert read_hello(hello(OWN)) == (NAME, len(hello(OWN)))
    assert read_hello(hello(server_name(b"PACKAGES.example"))) is not None


@pytest.mark.parametrize("size", [2, 7, 40])
def test_hello_in_small_records_is_read(size: int) -> None:
    data = hello(OWN, size=size)
    assert read_hello(data) == (NAME, len(data))


def test_hello_in_many_records_is_refused() -> None:
    data = hello(OWN, size=1)
    assert read_hello(data[: 6 * 63]) is None
    with pytest.raises(ValueError, match="too many records"):
        read_hello(data[: 6 * 64])


def test_part_of_hello_waits_for_the_rest() -> None:
    for data in (*hellos(), hello(OWN, size=40)):
        assert [n for n in range(len(data)) if read_hello(data[:n]) is not None] == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n", "no TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no TLS"),
        (b"\x80\x2e\1\3\1", "no TLS"),
        (b"\x16\2\0\0\5", "no TLS"),
        (b"\x16\3\1\0\0", "broken"),
        (b"\x16\3\1\x40\1", "broken"),
        (b"\x16\3\1\0\4\2\0\0\0", "broken"),
        (b"\x16\3\1\0\4\1\xff\xff\xff", "broken"),
        (b"\x16\3\1\0\4\1\0\0\0", "broken"),
        (b"\x16\3\1\0\2\1\0\x17\3\3\0\1\0", "no TLS"),
        (records(b"\1\0\0\1\0\0", 100), "broken"),
        (hello(), "names no host"),
        (hello(server_name()), "broken"),
        (hello(OWN, OWN), "names no host"),
        (hello(server_name(b"packages.example", b"evil.test")), "not plain"),
        (hello(server_name(b"packages.example", kind=1)), "not plain"),
        (hello(server_name(b"packages\0.example")), "not plain"),
        (hello(server_name("packages。example".encode())), "not plain"),
        (hello(server_name(b"a" * 256)), "not plain"),
        (hello(OWN, after=b"x"), "not plain"),
        (hello(OWN, b"\0"), "broken"),
        (hello(OWN, extension(0xFE0D, b"\0")), "ECH"),
        (hello(OWN, extension(0xFFCE, b"\0")), "ESNI"),
        (hello(OWN, extension(42, b"")), "early data"),
    ],
)
def test_hello_without_one_plain_name_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_hello(data)


def test_only_the_asked_name_passes() -> None:
    data = hellos()[0]
    assert OneName(NAME).passed(data) == data
    names = OneName(NAME)
    pieces = [names.passed(data[n : n + 1]) for n in range(len(data))]
    assert (b"".join(pieces[:-1]), pieces[-1]) == (b"", data)
    assert names.passed(b"\x17\3\3\0\1x") == b"\x17\3\3\0\1x"
    with pytest.raises(ValueError, match=r"names packages\.example"):
        OneName("other.example").passed(data)


def after_retry() -> tuple[bytes, bytes]:
    """Return the two hellos of a client whose server asks for another group."""
    client, server = Client(), Server("prime256v1")
    first = client.says()
    server.reads(first)
    return first, client.says(server.said.read())


@pytest.mark.parametrize("between", [b"", b"\x15\3\3\0\2\1\x5a", b"\x14\3\3\0\1\1" * 3])
def test_second_hello_cannot_name_another_host(between: bytes) -> None:
    first, second = after_retry()
    evil = second.replace(NAME.encode(), b"evilpage.example")
    assert evil != second
    server = Server("prime256v1")
    server.reads(first)
    assert server.reads(evil) == [NAME, "evilpage.example"], "OpenSSL goes by the second name"
    names = OneName(NAME)
    assert names.passed(first) == first
    with pytest.raises(ValueError, match="names evilpage"):
        names.passed(between + evil)
    names = OneName(NAME)
    assert names.passed(first + between + second) == first + between + second


@pytest.mark.parametrize("record", [b"\x16\3\3\0\0", b"\x18\3\3\0\1\1", b"\x50\3\3\0\1\1"])
def test_odd_record_before_encryption_is_refused(record: bytes) -> None:
    names = OneName(NAME)
    names.passed(hello(OWN))
    with pytest.raises(ValueError, match="broken"):
        names.passed(record + hello(server_name(b"evil.test")))


@given(st.lists(st.integers(1, 600), max_size=8), st.booleans())
def test_pieces_pass_what_the_whole_passes(sizes: list[int], newest: bool) -> None:
    first, second = after_retry()
    data = first + second + b"\x17\3\3\0\5hello" if newest else hellos()[1] + b"\x16\3\3\0\2\x10\0"
    names, passed, at = OneName(NAME), b"", 0
    for size in (*sizes, len(data)):
        passed += names.passed(data[at : at + size])
        at += size
    assert passed == data


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return a ClientHello with some bytes changed, moved, cut or repeated."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(found))
        match chance.randrange(9):
            case 0 | 1:
                found[at] = chance.randrange(256)
            case 2 | 3 | 4:
                found[at] ^= 1 << chance.randrange(8)
            case 5:
                found[at:at] = chance.randbytes(chance.randint(1, 3))
            case 6:
                del found[at : at + chance.randint(1, 3)]
            case 7:
                other = chance.randrange(len(found))
                found[at:at] = found[other : other + chance.randint(1, 40)]
            case _:  # the name itself and the lengths around it
                place = max(0, found.find(b"packages") - chance.randint(0, 12))
                found[place] = chance.choice([0, 1, 16, 255, found[place] ^ 1])
    return bytes(found)


def disagreements(count: int, seed: int) -> tuple[int, list[bytes]]:
    """Return how many hellos both read, and those that we allow and OpenSSL reads otherwise."""
    chance, both, wrong = random.Random(seed), 0, []
    for _ in range(count):
        data = mutated(chance.choice((*hellos(), *split())), chance)
        try:
            found = read_hello(data)
            passed = b"" if found is None else OneName(found[0]).passed(data)
        except ValueError:
            continue
        if found is not None and (names := Server().reads(passed)):
            both += 1
            if {found[0]} != {str(name).lower() for name in names}:
                wrong.append(data)
    return both, wrong


@cache
def split() -> tuple[bytes, ...]:
    return tuple(records(one[5:], size) for one in hellos()[:2] for size in (10, 50, 200))


def test_mutated_hello_is_read_as_openssl_reads_it() -> None:
    both, wrong = disagreements(400, seed=1)
    assert both > 50
    assert wrong == []


@pytest.mark.sweep
def test_many_mutated_hellos_are_read_alike() -> None:
    both, wrong = disagreements(20_000, seed=2)
    print(f"{both} of 20,000 read by both, {len(wrong)} otherwise")
    assert wrong == []
