"""Measure the board: `python -m tests.bench board`."""

from __future__ import annotations

import http.client
import shutil
import socket
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

from boardhttp import Served
from boardhttp import served as board
from boardkit import ask, board_vault, planned
from tests.bench.growth import grow, rss_mb, settled
from vaultkit import TestVault, running, until

LogLine = Callable[[str, str, str], None]


def login(served: Served) -> dict[str, str]:
    """Use a login link; return the headers of its session."""
    at = urlsplit(served.link)
    connection = http.client.HTTPConnection(at.netloc, timeout=30)
    body = urlencode({"link": parse_qs(at.query)["t"][0]})
    kind = "application/x-www-form-urlencoded"
    connection.request("POST", "/login", body, {"Origin": served.url, "Content-Type": kind})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def page_ms(served: Served, headers: dict[str, str], path: str = "/") -> float:
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=60)
    began = time.perf_counter()
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    took = (time.perf_counter() - began) * 1000
    connection.close()
    assert answer.status == 200, answer.status
    return took


def page_bytes(served: Served, headers: dict[str, str], encoding: str) -> int:
    """Return the bytes of the first page and the numbers as a browser gets them."""
    sent = 0
    for path in ("/", "/numbers"):
        connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=60)
        connection.request("GET", path, headers={**headers, "Accept-Encoding": encoding})
        sent += len(connection.getresponse().read())
        connection.close()
    return sent


def first_page(folder: Path, missions: int, told: LogLine) -> None:
    """What the first page costs, and the process, with so many missions in the journal."""
    vault = board_vault(folder)
    vault.cli("run", "--once")
    grow(vault.db, missions)
    with running(vault) as daemon, board(vault) as served:
        settled(daemon.pid)
        up = rss_mb(served.process.pid)
        headers = login(served)
        cold = page_ms(served, headers)
        warm = []
        for _ in range(21):
            time.sleep(0.15)  # longer than browsers share a look
            warm.append(page_ms(served, headers))
        request = statistics.median(
            page_ms(served, headers, f"/r/request-{n}") for n in range(7, 28)
        )
        what = f"board, {missions:,} missions"
        told(f"{what}: first page of all", f"{cold:.0f} ms", "")
        plain, packed = page_bytes(served, headers, ""), page_bytes(served, headers, "gzip")
        told(
            f"{what}: first page and numbers, sent", f"{packed:,} B", f"not compressed {plain:,} B"
        )
        told(f"{what}: a page of it later", f"{statistics.median(warm):.0f} ms", "median of 21")
        told(f"{what}: a request's page", f"{request:.0f} ms", "median of 21")
        told(
            f"{what}: memory of its process",
            f"{up:.0f} MB",
            f"after that {rss_mb(served.process.pid):.0f} MB",
        )


@contextmanager
def browsers(served: Served, headers: dict[str, str], count: int) -> Iterator[list[float]]:
    """So many browsers, which listen for events and fetch the page again after each; give a list
    of how long, in ms, each of their fetches took.
    """
    took: list[float] = []
    sockets: list[socket.socket] = []

    def browse() -> None:
        connection = http.client.HTTPConnection(urlsplit(served.url).netloc)
        connection.connect()
        sockets.append(connection.sock)
        connection.request("GET", "/live", headers=headers)
        events = connection.getresponse()
        while line := events.readline():
            if line.startswith(b"data:"):
                took.append(page_ms(served, headers))
        connection.close()

    threads = [threading.Thread(target=browse) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield took
    finally:
        for one in sockets:
            one.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def detected_ms(vault: TestVault, word: str, times: int) -> float:
    """Return how long after a drop the journal has it: a tick of the daemon; the median, in ms."""
    found = []
    with closing(sqlite3.connect(f"file:{vault.db}?mode=ro", uri=True)) as db:
        sql = "SELECT count(*) FROM activity WHERE action_type = 'request.detected'"
        for n in range(times):
            (before,) = db.execute(sql).fetchone()
            began = time.perf_counter()
            ident = ask(vault, f"Fix {word} {n}")
            while db.execute(sql).fetchone()[0] == before:
                time.sleep(0.001)
            found.append((time.perf_counter() - began) * 1000)
            until(vault.plan(ident).exists, "a plan")
            time.sleep(0.3)
    return statistics.median(found)


def crowd(folder: Path, told: LogLine, count: int = 50) -> None:
    """How long a drop takes to be seen, without a board, with it, and with so many browsers."""
    vault = board_vault(folder)
    with running(vault):
        alone = detected_ms(vault, "alone", 15)
        with board(vault) as served:
            headers = login(served)
            served_alone = detected_ms(vault, "served", 15)
            with browsers(served, headers, count) as took:
                time.sleep(2)
                with_all = detected_ms(vault, "crowded", 15)
            held = rss_mb(served.process.pid)
    told("drop to request.detected, no board", f"{alone:.0f} ms", "median of 15")
    told("the same with a board", f"{served_alone:.0f} ms", f"ratio {served_alone / alone:.2f}")
    told(f"the same with {count} browsers", f"{with_all:.0f} ms", f"ratio {with_all / alone:.2f}")
    told(
        f"a page fetched by one of {count} browsers",
        f"{statistics.median(took):.0f} ms",
        f"median of {len(took)}; the process holds {held:.0f} MB",
    )


def event_to_screen(folder: Path, told: LogLine, times: int = 15) -> None:
    """How long after a row is in the journal the page in a real browser shows it."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        told("event to screen", "no Chromium", "")
        return
    vault = board_vault(folder)
    found = []
    with (
        running(vault),
        board(vault) as served,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page()
        page.goto(served.link)
        page.get_by_role("button").click()
        page.wait_for_url(f"{served.url}/")
        page.evaluate(
            """() => { window.seen = {}; new MutationObserver(() => {
                 for (const one of document.querySelectorAll('#yours .title a'))
                   window.seen[one.textContent] ??= Date.now();
               }).observe(document.body, {subtree: true, childList: true}); }"""
        )
        for n in range(times):
            title = f"Fix screen {n}"
            ident = planned(vault, title)
            shown = until(partial(page.evaluate, f"window.seen['{title}']"), title)
            found.append(shown - committed_ms(vault, ident))
            time.sleep(0.2)
    told(
        "journal row to screen",
        f"{statistics.median(found):.0f} ms",
        f"median of {times}; the longest {max(found):.0f} ms",
    )


def committed_ms(vault: TestVault, ident: str) -> float:
    """Return when a plan's row was written, in ms since 1970."""
    (row,) = (r for r in vault.rows("plan.created") if r["entity_id"] == ident)
    return datetime.fromisoformat(row["timestamp"]).timestamp() * 1000
