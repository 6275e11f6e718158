"""Test which hosts a plan can name, and which names and addresses they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placet.plan.hosts import Host, host_from, is_public, is_rented


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("packages.example", Host("packages.example")),
        ("Packages.EXAMPLE.", Host("packages.example")),
        ("git.example:8443", Host("git.example", 8443)),
        ("git.example:0443", Host("git.example")),
        ("*.cdn.example", Host("cdn.example", below=True)),
        ("*.cdn.example:8443", Host("cdn.example", 8443, below=True)),
        ("nexus", Host("nexus")),
        ("my_host.example", Host("my_host.example")),
        ("xn--bcher-kva.example", Host("xn--bcher-kva.example")),
        ("3com.example", Host("3com.example")),
    ],
)
def test_entry_names_host_and_port(text: str, host: Host) -> None:
    assert host_from(text) == host
    assert host_from(str(host)) == host


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not the name of a host"),
        ("*", "not the name of a host"),
        ("*.", "not the name of a host"),
        ("a.*.example", "not the name of a host"),
        ("*a.example", "not the name of a host"),
        ("https://packages.example", "write only the name"),
        ("packages.example/simple", "write only the name"),
        ("user@packages.example", "write only the name"),
        ("a..example", "not the name of a host"),
        (".example", "not the name of a host"),
        ("a.example..", "not the name of a host"),
        ("-a.example", "not the name of a host"),
        ("a-.example", "not the name of a host"),
        ("a b.example", "not the name of a host"),
        ("a\0.example", "not the name of a host"),
        ("a.example\n", "not the name of a host"),
        (f"{'a' * 64}.example", "not the name of a host"),
        ("a." * 130 + "example", "not the name of a host"),
        ("bücher.example", "punycode"),
        ("packages。example", "punycode"),
        ("127.0.0.1", "an address"),
        ("127.1", "an address"),
        ("2130706433", "an address"),
        ("0x7f.1", "an address"),
        ("a.0x7f", "an address"),
        ("*.0.1", "an address"),
        ("[::1]", "not the name of a host"),
        ("::1", "not the name of a host"),
        ("localhost", "this machine"),
        ("*.localhost", "this machine"),
        ("a.localhost:8443", "this machine"),
        ("*.com", "covers too much"),
        ("a.example:", "no port"),
        ("a.example:0", "no port"),
        ("a.example:65536", "no port"),
        ("a.example:+1", "no port"),
        ("a.example:1:2", "no port"),
    ],
)
def test_entry_that_names_no_host_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        host_from(text)


@given(st.text(max_size=30))
def test_any_entry_is_read_or_refused(text: str) -> None:
    try:
        found = host_from(text)
    except ValueError:
        return
    assert host_from(str(found)) == found
    assert str(found).isascii()


def test_name_covers_itself_on_its_port_only() -> None:
    host = host_from("packages.example")
    assert host.covers("packages.example", 443)
    others = [("packages.example", 80), ("a.packages.example", 443), ("evilpackages.example", 443)]
    assert not any(host.covers(*other) for other in others)


@pytest.mark.parametrize(
    ("name", "covered"),
    [
        ("a.cdn.example", True),
        ("a.b.cdn.example", True),
        ("cdn.example", False),
        (".cdn.example", False),
        ("evilcdn.example", False),
        ("a..cdn.example", False),
        ("127.0.0.1\0.cdn.example", False),
        ("evil.test#.cdn.example", False),
        ("evil.test/.cdn.example", False),
        ("evil.test@a.cdn.example", False),
        ("a.cdn.example.evil.test", False),
        ("a" * 250 + ".cdn.example", False),
    ],
)
def test_wildcard_covers_names_below(name: str, *, covered: bool) -> None:
    assert host_from("*.cdn.example").covers(name, 443) is covered


PUBLIC = ["8.8.8.8", "1.1.1.1", "172.32.0.1", "192.0.1.1", "2606:4700::1111", "2a00::1"]
SPECIAL = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.1.2.3", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.9", "192.0.0.170", "192.0.2.1",
    "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1",
    "64:ff9b:1::1", "100::1", "2001::1", "2001:2::1", "2001:db8::1", "2002:7f00:1::", "3fff::1",
    "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%lo", "fec0::1", "ff02::1",
]  # fmt: skip


def test_only_addresses_of_the_internet_are_public() -> None:
    assert [address for address in PUBLIC if not is_public(address)] == []
    assert [address for address in SPECIAL if is_public(address)] == []


@pytest.mark.parametrize(
    ("text", "rented"),
    [
        ("*.github.io", True),
        ("*.s3.amazonaws.com", True),
        ("*.googleapis.com", True),
        ("s3.amazonaws.com", True),
        ("github.com", True),
        ("someone.github.io", False),
        ("packages.example", False),
        ("*.cdn.example", False),
    ],
)
def test_rented_places_are_known(text: str, *, rented: bool) -> None:
    assert is_rented(host_from(text)) is rented
