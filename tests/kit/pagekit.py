"""Open the real board of a real vault in a logged-in headless browser."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from starlette.testclient import TestClient

from placet_board.auth import KEY, Door, Tokens, key_at
from placet_board.live import Live
from placet_board.pages import Board, application
from vaultkit import TestVault

HOST = "127.0.0.1:8737"
VOID = {"meta", "link", "input", "br", "hr", "img", "wbr"}


class _Balance(HTMLParser):
    """Reads a page, and finds what is not closed, a style or a script of its own, and its texts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        names = {name for name, _ in attrs}
        if "style" in names or any(name.startswith("on") for name in names):
            self.wrong.append(f"<{tag}> has {sorted(names)}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")


@dataclass
class Browser:
    """A browser that is logged in as ann."""

    client: Any

    def get(self, path: str, code: int = 200) -> str:
        """Return a page, which has to be whole and to keep to the policy that it is sent with."""
        answer = self.client.get(path)
        assert answer.status_code == code, (path, answer.status_code, answer.text[:2000])
        text = str(answer.text)
        if answer.headers["content-type"].startswith("text/html"):
            page = _Balance()
            page.feed(text)
            assert not page.wrong, (path, page.wrong)
            assert not page.open, (path, page.open)
        return text

    def hidden(self, ident: str) -> dict[str, str]:
        """Return what the forms of a request's page carry."""
        page = self.client.get(f"/r/{ident}").text
        return dict(
            re.findall(r'type="hidden" name="(token|digest|others|doubts)" value="([^"]*)"', page)
        )

    def press(self, ident: str, button: str, **fields: str) -> Any:
        """Press a button of a request's page as it is now; return the answer."""
        return self.client.post(
            f"/r/{ident}/{button}",
            data={**({} if "token" in fields else self.hidden(ident)), **fields},
            headers={"Origin": f"http://{HOST}"},
            follow_redirects=False,
        )


@contextmanager
def browsing(vault: TestVault) -> Iterator[Browser]:
    """Give a browser at the board of a vault."""
    state = vault.site.state
    state.ensure()
    tokens = Tokens(key_at(state.folder / KEY), "run", state.folder / KEY)
    door = Door(frozenset({HOST}), tokens=tokens, port=8737)
    board = Board(vault.root, vault.env, door, Live(vault.site))
    client = TestClient(application(board), base_url=f"http://{HOST}")
    session = tokens.session_for(tokens.login("ann"))
    assert session is not None
    client.cookies.set(door.cookie(https=False), session)
    yield Browser(client)


def sqls(page: str) -> list[str]:
    """Return the SQL that a page shows."""
    found = re.findall(r"runs this query\.</p><pre[^>]*><code>(.*?)</code>", page, re.DOTALL)
    return [html.unescape(sql) for sql in found]
