"""The board over https: its cookie, clients that speak no TLS or say nothing, and keys that do not fit."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from boardhttp import FORM, Served, answer_in, raw, served
from placet.cli.board.server import HEAD_S, MAX_CONNECTIONS
from placet.cli.board.tls import context_of
from placet.core.errors import UserError
from vaultkit import TestVault, make_vault, until

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")


def pair(folder: Path, name: str, *more: str) -> tuple[Path, Path]:
    """Make a certificate of 127.0.0.1, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-days", "2", "-subj", "/CN=board", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(cert), *(more or ("-nodes",))),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return pair(tmp_path_factory.mktemp("tls"), "board")


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> TestVault:
    return make_vault(tmp_path_factory.mktemp("vault"))


@pytest.fixture(scope="module")
def board(vault: TestVault, files: tuple[Path, Path]) -> Iterator[Served]:
    with served(vault, "--tls-cert", str(files[0]), "--tls-key", str(files[1])) as board:
        yield board


@contextlib.contextmanager
def browser(board: Served, cert: Path) -> Iterator[http.client.HTTPSConnection]:
    """A browser that trusts this certificate."""
    trusts = ssl.create_default_context(cafile=cert)
    browser = http.client.HTTPSConnection("127.0.0.1", board.port, context=trusts, timeout=20)
    with contextlib.closing(browser):
        yield browser


def test_the_board_is_served_over_https(
    vault: TestVault, board: Served, files: tuple[Path, Path]
) -> None:
    assert board.link.startswith(f"https://127.0.0.1:{board.port}/login?t=")
    assert vault.click("board", "login").stdout.startswith(f"https://127.0.0.1:{board.port}/")
    with browser(board, files[0]) as anna:
        link = urlencode({"link": parse_qs(urlsplit(board.link).query)["t"][0]})
        headers = {"Content-Type": FORM, "Origin": f"http://127.0.0.1:{board.port}"}
        anna.request("POST", "/login", link, headers)
        answer = anna.getresponse()
        assert answer.read()
        assert answer.status == 403, "a page without TLS is another one"
        headers["Origin"] = f"https://127.0.0.1:{board.port}"
        anna.request("POST", "/login", link, headers)
        answer = anna.getresponse()
        answer.read()
        assert answer.status == 303
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"__Host-placet-{board.port}=")
        for part in ("; Secure", "; HttpOnly", "; SameSite=strict", "; Path=/"):
            assert part in cookie
        for _ in range(3):  # on one connection
            anna.request("GET", "/", headers={"Cookie": cookie.partition(";")[0]})
            answer = anna.getresponse()
            assert b"Awaiting you" in answer.read()
    with browser(board, files[0]) as anna:
        anna.request("POST", "/login", b"x" * 9_000, headers)  # more than one record has room for
        assert anna.getresponse().status == 413


def test_who_speaks_no_tls_is_told_so(board: Served) -> None:
    for text in ("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "x", "\0", "hello\r\n" * 9_000):
        answer = answer_in(raw(board.port, text))
        assert answer.code == 400
        assert "This board speaks https" in answer.text
        assert answer.header("x-frame-options") == "DENY"
    with socket.create_connection(("127.0.0.1", board.port), timeout=20) as sock:
        sock.sendall(b"\x16\x03\x01 no handshake at all, whatever it begins with")
        with contextlib.suppress(ConnectionError):
            assert not sock.recv(65536).startswith(b"HTTP")


def test_who_says_nothing_keeps_nobody_out(board: Served, files: tuple[Path, Path]) -> None:
    most = MAX_CONNECTIONS + 100
    before = board.files()
    with contextlib.ExitStack() as stack:
        for n in range(most):
            sock = socket.create_connection(("127.0.0.1", board.port), timeout=20)
            stack.enter_context(sock)
            with contextlib.suppress(ConnectionError):
                sock.sendall(b"\x16\x03\x01" * (n % 2))
        with browser(board, files[0]) as anna:
            anna.request("GET", "/login")
            assert anna.getresponse().status == 200
        # one that waits for its first byte is held by two handles
        until(lambda: board.files() < 2 * MAX_CONNECTIONS + 60, "the oldest are dropped", 5)
        until(lambda: board.files() < before + 10, "the others have a deadline", HEAD_S + 10)


@pytest.mark.parametrize(
    ("cert", "key", "said"),
    [
        ("board.pem", "other.key", "is not the key of the certificate"),
        ("board.key", "board.key", "are no certificate and its private key in PEM format"),
        ("board.pem", "board.pem", "are no certificate and its private key in PEM format"),
        ("board.pem", "locked.key", "A key with a passphrase cannot be used."),
        ("empty", "board.key", "are no certificate"),
        ("none", "board.key", "none cannot be read: No such file or directory"),
        ("board.pem", "folder", "folder cannot be read: Is a directory"),
    ],
)
def test_a_pair_that_does_not_fit_is_said(
    tmp_path: Path, files: tuple[Path, Path], cert: str, key: str, said: str
) -> None:
    for file in files:
        shutil.copy(file, tmp_path)
    pair(tmp_path, "other")
    if key == "locked.key":
        pair(tmp_path, "locked", "-passout", "pass:secret")
        cert = "locked.pem"
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError) as found:
        context_of(tmp_path / cert, tmp_path / key)
    assert said in f"{found.value.what} {found.value.hint}"
    assert found.value.hint


def test_a_wrong_key_is_said_before_the_board_begins(
    tmp_path: Path, files: tuple[Path, Path]
) -> None:
    vault = make_vault(tmp_path)
    _, other = pair(tmp_path, "other")
    args = ("board", "--listen", "127.0.0.1:0", "--tls-cert", str(files[0]), "--tls-key")
    done = vault.click(*args, str(other), check=False)
    assert done.returncode == 2
    assert f"{other} is not the key of the certificate {files[0]}." in done.stderr
    assert not done.stdout
    done = vault.click("board", "--tls-cert", str(files[0]), check=False)
    assert "TLS needs a certificate and its key." in done.stderr
