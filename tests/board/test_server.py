"""Test the board with slow, silent and many clients, and with damaged files."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from boardhttp import Browser, Served, served
from placet.errors import UserError
from placet_board.address import Address
from placet_board.auth import FORM_S, KEY, KEY_BYTES, MAX_LOGIN_BYTES, key_at
from placet_board.command import hosts_of
from placet_board.live import MAX_LISTENING
from placet_board.server import HEAD_S, MAX_CONNECTIONS, READ_S
from vaultkit import TestVault, make_vault, until

AT_ONCE_S = 1.0
"""Seconds within which an owner is answered, whoever else is connected."""
SLOW = 200


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> TestVault:
    return make_vault(tmp_path_factory.mktemp("crowded"))


@pytest.fixture(scope="module")
def board(vault: TestVault) -> Iterator[Served]:
    with served(vault) as board:
        yield board


@pytest.fixture(scope="module")
def owner(board: Served) -> Browser:
    browser = board.owner()
    assert browser.get("/").code == 200
    return browser


@contextlib.contextmanager
def crowd(port: int, number: int, says: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connect that often, and begin to say something."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(number):
            sock = socket.create_connection(("127.0.0.1", port), timeout=20)
            found.append(stack.enter_context(sock))
            with contextlib.suppress(ConnectionError):
                sock.sendall(says)
        yield found


def is_cut(sock: socket.socket) -> bool:
    """Return whether the server has ended a connection; what it said before is dropped."""
    sock.settimeout(0)
    try:
        while sock.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def how_long(owner: Browser, path: str = "/") -> float:
    """Return the seconds in which an owner is answered, the best of three: others share the CPU."""
    found = []
    for _ in range(3):
        before = time.monotonic()
        assert owner.get(path).code == 200
        found.append(time.monotonic() - before)
    return min(found)


def head(port: int, first: str, more: str = "") -> bytes:
    return f"{first} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{more}".encode()


@pytest.mark.parametrize("path", ["/journal", "/static/board.js"])
def test_files_and_pages_without_forms_are_compressed(owner: Browser, path: str) -> None:
    plain, packed = owner.get(path), owner.get(path, **{"Accept-Encoding": "gzip"})
    assert (plain.header("content-encoding"), packed.header("content-encoding")) == ("", "gzip")
    assert gzip.decompress(packed.body)[:50] == plain.body[:50]
    assert len(packed.body) < len(plain.body) / 2
    assert packed.header("cache-control") == plain.header("cache-control") != ""


def test_pages_that_may_have_forms_are_not_compressed(owner: Browser) -> None:
    """The length of what is compressed would tell what stands beside a form's token."""
    for path in ("/", "/new", "/browsers"):
        assert owner.get(path, **{"Accept-Encoding": "gzip"}).header("content-encoding") == "", path


def test_live_events_are_not_compressed(board: Served, owner: Browser) -> None:
    cookie = "; ".join(f"{name}={value}" for name, value in owner.cookies.items())
    ask = head(board.port, "GET /live", f"Cookie: {cookie}\r\nAccept-Encoding: gzip\r\n\r\n")
    with crowd(board.port, 1, ask) as (sock,):
        got = b""
        while b": hello" not in got:
            got += sock.recv(4096)
        assert b"gzip" not in got


def test_open_tab_leaves_no_traceback_at_the_end(tmp_path: Path) -> None:
    with contextlib.ExitStack() as tab, served(make_vault(tmp_path)) as board:  # which looks at it
        cookies = board.owner().cookies.items()
        cookie = "; ".join(f"{name}={value}" for name, value in cookies)
        ask = head(board.port, "GET /live", f"Cookie: {cookie}\r\n\r\n")
        (sock,) = tab.enter_context(crowd(board.port, 1, ask))
        assert sock.recv(12)[9:] == b"200"


def test_slow_clients_are_cut_off_without_delaying_owner(board: Served, owner: Browser) -> None:
    port, end = board.port, "\r\n"
    cookie = "; ".join(f"{name}={value}" for name, value in owner.cookies.items())
    form = f"Origin: {owner.origin}{end}Content-Type: application/x-www-form-urlencoded{end}"
    sorts = [
        b"",
        head(port, "GET /"),
        head(port, "POST /login", f"{form}Content-Length: 900{end}{end}"),
        head(port, "POST /login", f"{form}Transfer-Encoding: chunked{end}{end}"),
        head(port, "POST /new", f"{form}Content-Length: 9000{end}{end}"),
        head(port, "POST /new", f"{form}Content-Length: 9000{end}Cookie: {cookie}{end}{end}"),
    ]
    before = board.rss_kb()
    with contextlib.ExitStack() as stack:
        slow = [
            sock
            for says in sorts
            for sock in stack.enter_context(crowd(port, SLOW // len(sorts) + 1, says))
        ]
        begun, left = time.monotonic(), list(slow)
        assert how_long(owner) < AT_ONCE_S
        assert board.files() < MAX_CONNECTIONS + 60
        while left and time.monotonic() - begun < max(HEAD_S, FORM_S) + 10:
            for sock in left:
                with contextlib.suppress(OSError):
                    sock.settimeout(0)
                    sock.send(b"x")
            left = [sock for sock in left if not is_cut(sock)]
            time.sleep(0.5)
        assert not left, f"{len(left)} are still connected"
        assert time.monotonic() - begun > 5, "they were not given any time"
    assert how_long(owner) < AT_ONCE_S
    assert board.rss_kb() - before < 50_000


def test_excess_connections_do_not_lock_out_owner(board: Served, owner: Browser) -> None:
    with crowd(board.port, MAX_CONNECTIONS + 150, head(board.port, "GET /")) as there:
        assert how_long(owner) < AT_ONCE_S
        assert board.files() < MAX_CONNECTIONS + 60
        assert sum(map(is_cut, there)) >= 150


def test_excess_listeners_are_refused_while_pages_load(board: Served, owner: Browser) -> None:
    cookie = "; ".join(f"{name}={value}" for name, value in owner.cookies.items())
    ask = head(board.port, "GET /live", f"Cookie: {cookie}\r\n\r\n")
    codes: list[bytes] = []
    with crowd(board.port, MAX_LISTENING + 20, ask) as listening:
        for sock in listening:
            codes.append(sock.recv(12)[9:])
        assert codes.count(b"200") == MAX_LISTENING
        assert codes.count(b"503") == 20
        assert how_long(owner) < AT_ONCE_S
    until(lambda: board.files() < 60, "they are forgotten")
    with crowd(board.port, 1, ask) as (sock,):
        assert sock.recv(12)[9:] == b"200"


def test_non_reading_client_does_not_slow_owner(
    tmp_path: Path, owner: Browser, board: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = head(board.port, "GET /static/board.js", "\r\n") * 3_000
    with socket.create_connection(("127.0.0.1", board.port)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(0)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            sent = 0
            while sent < len(asked):
                sent += sock.send(asked[sent:])
        assert how_long(owner) < AT_ONCE_S
        assert board.rss_kb() < 400_000


@pytest.mark.sweep
def test_non_reading_clients_are_disconnected(board: Served, owner: Browser) -> None:
    asked = head(board.port, "GET /static/board.js", "\r\n") * 3_000
    files = board.files()
    with crowd(
        board.port, 8
    ) as there:  # each is answered a thousand times before its pipes are full
        for sock in there:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(0)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                for _ in range(20):
                    sock.send(asked)
        assert how_long(owner) < AT_ONCE_S
        until(lambda: board.files() <= files + 1, "they are cut off", READ_S + 60)
    print(f"8 clients that do not read were cut off; {board.rss_kb() // 1024} MB")


def test_strangers_oversized_form_is_refused(board: Served) -> None:
    stranger = board.browser()
    assert stranger.post("/login", {"link": "x" * (MAX_LOGIN_BYTES + 1)}).code == 413
    assert stranger.post("/new", {"text": "x" * 300_000}).code == 403


# --- the files of the state folder


@pytest.mark.parametrize("damage", ["empty", "short", "long", "open", "link", "fifo"])
def test_exposed_or_damaged_key_is_replaced(tmp_path: Path, damage: str) -> None:
    path, known = tmp_path / KEY, b"k" * KEY_BYTES
    match damage:
        case "empty" | "short" | "long":
            path.write_bytes(
                known[: {"empty": 0, "short": 31, "long": 32}[damage]] + b"x" * (damage == "long")
            )
            path.chmod(0o600)
        case "open":
            path.write_bytes(known)
            path.chmod(0o640)
        case "link":
            (tmp_path / "elsewhere").write_bytes(known)
            (tmp_path / "elsewhere").chmod(0o600)
            path.symlink_to("elsewhere")
        case "fifo":
            os.mkfifo(path, 0o600)
    key = key_at(path)
    assert len(key) == KEY_BYTES
    assert key != known
    info = path.lstat()
    assert stat.S_ISREG(info.st_mode)
    assert stat.S_IMODE(info.st_mode) == 0o600
    assert key_at(path) == key, "it is kept"
    if damage == "link":
        assert (tmp_path / "elsewhere").read_bytes() == known


def test_folder_in_place_of_key_is_reported(tmp_path: Path) -> None:
    (tmp_path / KEY).mkdir()
    with pytest.raises(UserError, match=r"board\.key"):
        key_at(tmp_path / KEY)


def test_board_reports_unusable_state_folder(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    folder = vault.site.state.folder
    folder.mkdir(parents=True, mode=0o700)
    (folder / KEY).mkdir()
    done = vault.cli("board", "--listen", "127.0.0.1:0", check=False)
    assert done.returncode == 1
    assert "board.key" in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    (folder / KEY).rmdir()
    (folder / "board.at").mkdir()
    done = vault.cli("board", "--listen", "127.0.0.1:0", check=False)
    assert done.returncode == 1
    assert "board.at" in done.stderr
    assert "Traceback" not in done.stderr
    done = vault.cli("board", "login", check=False)
    assert "No board of this vault runs." in done.stderr


def test_stale_board_address_file_is_ignored(vault: TestVault, board: Served) -> None:
    folder = vault.site.state.folder
    assert stat.S_IMODE((folder / KEY).lstat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "board.at").lstat().st_mode) == 0o600
    assert vault.click("board", "login").stdout.startswith(
        f"http://127.0.0.1:{board.port}/login?t="
    )
    there = (folder / "board.at").read_bytes()
    (folder / "board.at").unlink()
    (folder / "board.at").write_bytes(there)
    try:  # as a board that was killed left it
        assert "No board of this vault runs." in vault.click("board", "login", check=False).stderr
    finally:
        (folder / "board.at").unlink()


def test_vault_setting_cannot_expose_board_to_network(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.configure('[board]\nlisten = "0.0.0.0:0"\n', accepted=False)
    done = vault.cli("board", check=False)
    assert done.returncode == 1
    assert "Nobody accepted" in done.stderr
    vault.configure("")
    vault.once()
    vault.configure('[board]\nlisten = "0.0.0.0:0"\n', accepted=False)
    held = vault.site.in_force()
    assert held.config.board.listen.startswith("127.0.0.1:")
    assert held.names == ["board.listen"]


def test_allowed_hosts_match_listen_address() -> None:
    local = {"127.0.0.1:1", "localhost:1", "[::1]:1"}
    assert hosts_of(Address("127.0.0.1", 1)) == local
    assert hosts_of(Address("127.0.0.2", 1)) == {*local, "127.0.0.2:1"}
    network = hosts_of(Address("192.0.2.7", 1))
    assert network == {*local, "192.0.2.7:1", f"{socket.gethostname().lower()}:1"}
    named = Address("0.0.0.0", 1, ("notes.example.home",))
    assert named.url == "http://notes.example.home:1"
    assert named._replace(host="127.0.0.1").url == "https://notes.example.home"
    assert {"[2001:db8::1]:1"} <= hosts_of(Address("2001:db8::1", 1))
    assert {"127.0.0.1", "127.0.0.1:80"} <= hosts_of(Address("127.0.0.1", 80))
    assert not any(
        name.startswith(("0.0.0.0", "[::]", ":")) for name in hosts_of(Address("0.0.0.0", 1))
    )
