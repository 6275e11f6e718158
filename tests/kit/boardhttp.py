"""Start the board as a process, and clients that behave well or badly."""

from __future__ import annotations

import re
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

from vaultkit import PATIENCE_S, TestVault, until

FORM = "application/x-www-form-urlencoded"


@dataclass
class Answer:
    """What a board answered: names of headers in lower case."""

    code: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def header(self, name: str) -> str:
        found = [value for key, value in self.headers if key == name]
        assert len(found) <= 1, f"{name} twice: {found}"
        return found[0] if found else ""


def answer_in(raw: bytes) -> Answer:
    """Return the first answer in what a server sent."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = [(name.lower(), value) for name, _, value in (line.partition(": ") for line in lines)]
    if ("transfer-encoding", "chunked") in headers:
        body = b"".join(_chunks(body))
    return Answer(int(first.split(" ")[1]) if first else 0, headers, body)


def _chunks(body: bytes) -> Iterator[bytes]:
    while body:
        size, _, body = body.partition(b"\r\n")
        yield body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]


@dataclass
class Browser:
    """A browser: it keeps the cookies that it is given, and sends the Origin of its pages."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """Send a request; `headers` replace those of a browser, None leaves one out."""
        sent: dict[str, str | None] = {"Host": self.host, "Connection": "close"}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if method == "POST":
            sent |= {"Origin": self.origin, "Content-Type": FORM, "Content-Length": str(len(body))}
        sent |= headers or {}
        lines = [f"{name}: {value}" for name, value in sent.items() if value is not None]
        answer = answer_in(
            raw(self.port, "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]), body)
        )
        for name, value in answer.headers:
            if name == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        return answer

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(
        self, path: str, fields: Mapping[str, str], headers: Mapping[str, str | None] | None = None
    ) -> Answer:
        return self.ask("POST", path, urlencode(fields).encode(), headers)

    def login(self, link: str) -> Answer:
        """Open a login link, and press its button."""
        (token,) = parse_qs(urlsplit(link).query)["t"]
        return self.post("/login", {"link": token})

    def fields(self, path: str) -> dict[str, str]:
        """Return what the forms of a plan's page carry: the session's token, and the digest."""
        found = re.findall(
            r'type="hidden" name="(token|digest)" value="([^"]*)"', self.get(path).text
        )
        return dict(found)


def raw(port: int, head: str | bytes, body: bytes = b"", timeout_s: float = 20.0) -> bytes:
    """Send bytes; return all that comes until the server closes, or is silent for `timeout_s`."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as sock:
        got = b""
        try:
            sock.sendall((head.encode("latin-1") if isinstance(head, str) else head) + body)
            while piece := sock.recv(65536):
                got += piece
        except (TimeoutError, ConnectionError):
            pass
        return got


@dataclass
class Served:
    """A board that runs: its link was not used yet."""

    process: subprocess.Popen[str]
    link: str
    port: int
    log: Path

    @property
    def url(self) -> str:
        return self.link.partition("/login")[0]

    def browser(self) -> Browser:
        return Browser(self.port)

    def owner(self) -> Browser:
        """Return the browser of the person whom the link is for, logged in."""
        browser = self.browser()
        assert browser.login(self.link).code == 303
        return browser

    def rss_kb(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index] # proc(5)

    def files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@contextmanager
def served(
    vault: TestVault, *args: str, listen: str = "127.0.0.1:0", ends: Sequence[int] = (0, -15)
) -> Iterator[Served]:
    """`placet board` as a process; ended with SIGTERM, and must end well and without a traceback."""
    log = vault.root.parent / f"board-{time.monotonic_ns()}.log"
    with log.open("w") as err:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "placet", "board", "--vault", str(vault.root)),
                *("--listen", listen, "--name", "Anna", *args),
            ],
            env=vault.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )
    assert process.stdout is not None
    try:
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            assert waiting.select(PATIENCE_S), "no link"
        link = process.stdout.readline().strip()
        assert link, log.read_text()
        port = int(link.split("/")[2].rpartition(":")[2])
        until(lambda: _answers(port) or process.poll() is not None, "the board answers")
        yield Served(process, link, port, log)
    finally:
        process.terminate()
        try:
            code = process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            process.stdout.close()
    assert code in ends, f"{code}: {log.read_text()}"
    said = log.read_text()
    assert "Traceback" not in said, said
    assert "has a bug" not in said, said


def _answers(port: int) -> bool:
    try:
        return bool(raw(port, "GET / HTTP/1.0\r\n\r\n"))
    except OSError:
        return False


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice: {tag} {attrs}"
        self.found.append((tag, dict(attrs)))

    handle_startendtag = handle_starttag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"a processing instruction: {data}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data}")


def elements(html: str) -> list[tuple[str, dict[str, str | None]]]:
    """Return the elements of a page with their attributes, in order."""
    parser = _Elements()
    parser.feed(html)
    parser.close()
    return parser.found
