"""Attack the board with other pages, foreign host names, forged sessions and odd requests."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from itsdangerous import URLSafeTimedSerializer

from boardhttp import Browser, Served, answer_in, raw, served
from placet_board.auth import FAILURES_A_MINUTE, HEADERS, KEY, LINK_S, SESSION_S, Tokens
from vaultkit import PLAN, TestVault, make_vault

PLAN_PAGE = "/r/say-hello"


@pytest.fixture
def alone(tmp_path: Path) -> TestVault:
    """A vault that no board of another test serves."""
    vault = planned(tmp_path)
    vault.extra["ANTHROPIC_API_KEY"] = SECRET
    return vault


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> TestVault:
    vault = planned(tmp_path_factory.mktemp("attacked"))
    vault.extra["ANTHROPIC_API_KEY"] = SECRET
    return vault


def planned(folder: Path) -> TestVault:
    """A vault with two plans that wait for a person."""
    vault = make_vault(folder)
    vault.plays(PLAN)
    vault.drop("Say hello.\n")
    vault.drop("Say more.\n", "Say more.md")
    vault.once()
    return vault


SECRET = "sk-ant-api03-" + "Zq7" * 20


@pytest.fixture(scope="module")
def board(vault: TestVault) -> Iterator[Served]:
    with served(vault) as board:
        yield board


@pytest.fixture(scope="module")
def owner(board: Served) -> Browser:
    return board.owner()


@pytest.fixture(scope="module")
def tokens(vault: TestVault, board: Served) -> Tokens:
    """The tokens of this board, as its own key makes them."""
    folder = vault.site.state.folder
    run = json.loads((folder / "board.at").read_text())["run"]
    return Tokens((folder / KEY).read_bytes(), run)


def untouched(vault: TestVault) -> bytes:
    return vault.plan().read_bytes()


def test_cross_origin_form_is_refused(vault: TestVault, owner: Browser) -> None:
    fields = {**owner.fields(PLAN_PAGE), "reason": "CSRF"}
    assert set(fields) == {"token", "digest", "reason"}
    before, port = untouched(vault), owner.port
    foreign: list[str | None] = [
        None,
        "",
        "null",
        "https://evil.example",
        f"https://127.0.0.1:{port}",
        f"http://127.0.0.1:{port + 1}",
        "http://127.0.0.1",
        f"http://127.0.0.1:{port}.evil.example",
        f"http://127.0.0.1:{port}/",
        f"http://localhost:{port}",
        f"http://evil@127.0.0.1:{port}",
        f"http://127.0.0.1:{port} http://evil.example",
        f"HTTP://127.0.0.1:{port}",
    ]
    for origin in foreign:
        for act in ("approve", "reject", "revise", "comment", "stop", "retry", "merge", "drop"):
            answer = owner.post(f"{PLAN_PAGE}/{act}", fields, {"Origin": origin})
            assert answer.code == 403, (origin, act)
        assert owner.post("/new", {**fields, "text": "x"}, {"Origin": origin}).code == 403
        assert owner.post("/login", {"link": "x"}, {"Origin": origin}).code == 403
    assert untouched(vault) == before
    assert vault.notes("Inbox/Requests") == ["Say hello.md", "Say more.md"]


def test_form_without_valid_csrf_token_is_refused(
    vault: TestVault, owner: Browser, tokens: Tokens
) -> None:
    fields = owner.fields(PLAN_PAGE)
    before, good = untouched(vault), fields["token"]
    other = Browser(owner.port)
    assert other.post("/login", {"link": tokens.login("Berta")}).code == 303
    forged = URLSafeTimedSerializer(b"x" * 32, salt="placet form").dumps({"ident": "x"})
    session = tokens.session(next(iter(owner.cookies.values())))
    assert session is not None
    wrong = [
        "",
        "x",
        good[:-1],
        good + "x",
        good.upper(),
        "." + good,
        other.fields(PLAN_PAGE)["token"],
        next(iter(owner.cookies.values())),
        tokens.login("Anna"),
        forged,
        aged(tokens, "form", {"ident": session.ident}, SESSION_S + 10),
        "é\u202e",
        "A" * 100_000,
    ]
    for token in wrong:
        answer = owner.post(f"{PLAN_PAGE}/approve", {**fields, "token": token})
        assert answer.code == 403, token[:80]
    assert owner.post(f"{PLAN_PAGE}/approve", {"digest": fields["digest"]}).code == 403
    assert untouched(vault) == before
    # and in the query, or as the second of two, it is not a field of the form
    assert owner.post(f"{PLAN_PAGE}/approve?token={quote(good)}", {"digest": "x"}).code == 403
    two = f"token=x&token={quote(good)}&digest={fields['digest']}".encode()
    assert owner.ask("POST", f"{PLAN_PAGE}/approve", two).code == 403
    assert untouched(vault) == before


def test_other_methods_and_content_types_are_refused(vault: TestVault, owner: Browser) -> None:
    fields = owner.fields(PLAN_PAGE)
    before = untouched(vault)
    query = "&".join(f"{key}={quote(value)}" for key, value in fields.items())
    assert owner.get(f"{PLAN_PAGE}/approve?{query}").code == 405
    assert owner.ask("HEAD", f"{PLAN_PAGE}/approve?{query}").code == 405
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "post"):
        answer = owner.ask(method, f"{PLAN_PAGE}/approve?{query}", headers={"Origin": owner.origin})
        assert answer.code in (400, 405), method
    body = query.encode()
    for kind in (
        None,
        "",
        "text/plain",
        "application/json",
        "multipart/form-data; boundary=x",
        "application/x-www-form-urlencodedx",
        "text/plain; application/x-www-form-urlencoded",
    ):
        answer = owner.ask("POST", f"{PLAN_PAGE}/approve", body, {"Content-Type": kind})
        assert answer.code == 415, kind
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        assert owner.get(f"{PLAN_PAGE}/approve?{query}", **{name: "POST"}).code == 405
        answer = owner.ask(
            "POST",
            f"{PLAN_PAGE}/approve?_method=DELETE",
            b"_method=PUT",
            {name: "PUT"},
        )
        assert answer.code == 403, name
    for page in ("/", "/new", "/login", PLAN_PAGE, "/static/board.js"):
        assert owner.post(page, {}).code in (403, 405), page
    assert untouched(vault) == before


def test_every_response_has_security_headers(owner: Browser, board: Served) -> None:
    stranger = board.browser()
    port = board.port
    paths = ["/", "/new", "/login", "/login?t=x", PLAN_PAGE, "/r/none", "/nope", "/static/board.js"]
    paths += ["/static/none", "/static/../x", "/live/", "/new/", "/?said=approve", "//", "/%00"]
    answers = {
        f"{who.cookies and 1} {path}": who.get(path) for path in paths for who in (owner, stranger)
    }
    answers |= {
        "host": owner.get("/", Host="evil.example"),
        "broken host": owner.get("/", Host="["),
        "method": owner.ask("PUT", "/"),
        "no form": owner.ask("POST", "/new", b"x", {"Content-Type": "text/plain"}),
        "csrf": owner.post("/new", {}, {"Origin": "null"}),
        "long": owner.post("/new", {"token": "x" * 300_000}),
        "not utf-8": owner.ask("POST", "/new", b"token=%ff"),
        "act": owner.post(f"{PLAN_PAGE}/none", owner.fields(PLAN_PAGE)),
        "no http": answer_in(raw(port, "\x00\x01\r\n\r\n")),
        "no host": answer_in(raw(port, "GET / HTTP/1.1\r\n\r\n")),
        "old": answer_in(raw(port, "GET / HTTP/1.0\r\n\r\n")),
        "head": owner.ask("HEAD", "/"),
        "range": owner.get("/static/board.js", Range="bytes=0-3,1-2,5-"),
        "bad range": owner.get("/static/board.js", Range="bytes=9999999-"),
        "unchanged": owner.get(
            "/static/board.js",
            **{"If-None-Match": owner.get("/static/board.js").header("etag")},
        ),
    }
    for name, answer in answers.items():
        assert answer.code, name
        assert answer.code != 500, (name, answer.text)
        for key, value in HEADERS.items():
            is_file = key == "cache-control" and "/static/" in str(answer.header("cache-control"))
            if key == "cache-control" and answer.header(key).startswith("private"):
                continue
            assert answer.header(key) == value, (name, key, is_file)
        assert "server" not in dict(answer.headers)
        assert "access-control-allow-origin" not in dict(answer.headers)
    assert answers["unchanged"].code == 304
    for page in (owner.get("/"), owner.get(PLAN_PAGE)):
        assert not re.search(
            r"<script(?! type=\"module\" src=\"/static/board.js\">)|<style|\son\w+=", page.text
        )


def test_foreign_host_header_is_refused(owner: Browser, board: Served) -> None:
    port = board.port
    for host in (f"localhost:{port}", f"LocalHost:{port}", f"[::1]:{port}", f"127.0.0.1:{port}"):
        assert owner.get("/login", Host=host).code == 200, host
    for host in (
        f"evil.example:{port}",
        f"evil.example:{port}\t",
        "127.0.0.1",
        "localhost",
        f"127.0.0.1:{port + 1}",
        "127.0.0.1:80",
        f"user@127.0.0.1:{port}",
        f"user:pass@127.0.0.1:{port}",
        f"127.0.0.1.:{port}",
        f"localhost.:{port}",
        f"127.0.0.1.evil.example:{port}",
        f"localhost.evil.example:{port}",
        f"127.1:{port}",
        f"2130706433:{port}",
        f"0x7f.0.0.1:{port}",
        f"0.0.0.0:{port}",
        f"[::]:{port}",
        f"[::ffff:127.0.0.1]:{port}",
        f"[0:0:0:0:0:0:0:1]:{port}",
        f"127.0.0.1:{port},evil.example",
        f"127.0.0.1:{port} evil.example",
        f"127.0.0.1:{port}/",
        f"127.0.0.1:0{port}",
        f"127.0.0.1:{port}#",
        "[",
        "",
        "a" * 5_000,
    ):
        answer = owner.get("/", Host=host)
        assert answer.code in (400, 421), host
        assert b"say-hello" not in answer.body
    ours = f"Host: 127.0.0.1:{port}"
    cookie = "Cookie: " + "; ".join(f"{k}={v}" for k, v in owner.cookies.items())
    for hosts in (
        "",
        f"{ours}\r\nHost: evil.example\r\n",
        f"Host: evil.example\r\n{ours}\r\n",
        f"{ours}\r\n{ours}\r\n",
        "X-Forwarded-Host: 127.0.0.1\r\nHost: evil.example\r\n",
    ):
        for version in ("1.0", "1.1"):
            got = raw(port, f"GET / HTTP/{version}\r\n{hosts}{cookie}\r\nConnection: close\r\n\r\n")
            assert answer_in(got).code in (400, 421), (hosts, version)
            assert b"say-hello" not in got
    # the name in the first line does not count instead
    got = raw(
        port,
        f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: evil.example\r\n{cookie}\r\nConnection: close\r\n\r\n",
    )
    assert answer_in(got).code == 421


@pytest.mark.parametrize(
    "part", ["/r/{}", "/r/{}/approve", "/static/{}", "/{}", "/new?template={}"]
)
def test_tricky_url_paths_leak_nothing(part: str, vault: TestVault, owner: Browser) -> None:
    fields = owner.fields(PLAN_PAGE)
    before = untouched(vault)
    tricks = [
        "..",
        "../..",
        "%2e%2e",
        "%2e%2e%2f%2e%2e%2fSystem%2fplacet.toml",
        "..%2f..%2fetc%2fpasswd",
        "....//....//etc/passwd",
        "..%5c..%5c",
        "%252e%252e%252f",
        "/etc/passwd",
        "//etc/passwd",
        "%00",
        "say-hello%00",
        "say-hello%0a",
        "say-hello%0d%0aSet-Cookie:%20x=y",
        "%ff%fe",
        "%c0%ae%c0%ae",
        "%e2%80%ae",
        "%f0%9f%92%a9",
        "a" * 5_000,
        "%",
        "*",
        "say-hello;x",
        "say-hello%3fx",
        "say-hello%23x",
        "'%20OR%201=1--",
        "say%25",
        "~",
        "static/board.js",
        "board.js/../../templates/base.html",
        "..%2ftemplates%2fbase.html",
        "%5f%5finit__.py",
        "%2f",
        "login/../r/say-hello",
    ]
    for trick in tricks:
        path = part.format(trick)
        got = owner.post(path, fields) if part.endswith("approve") else owner.get(path)
        assert got.code in (200, 303, 307, 400, 403, 404, 405), (path, got.code, got.text)
        if got.code == 200:
            assert "root:" not in got.text
            assert "[model]" not in got.text
            assert "{% block" not in got.text
        if got.code in (303, 307):
            assert re.match(rf"(http://{owner.host})?/[^/\\]", got.header("location")), path
        stranger = Browser(owner.port).get(path)
        assert b"say-hello" not in stranger.body.replace(path.encode(), b"")
        assert "set-cookie" not in dict(got.headers)
    assert untouched(vault) == before


def aged(tokens: Tokens, purpose: str, data: dict[str, str], age_s: float) -> str:
    """Return a token as our key signed it a while ago."""
    signer = URLSafeTimedSerializer(tokens.key, salt=f"placet {purpose}")
    return at_another_time(lambda: str(signer.dumps(data)), age_s)


def at_another_time(make: Callable[[], str], age_s: float) -> str:
    real = time.time
    try:
        time.time = lambda: real() - age_s
        return make()
    finally:
        time.time = real


def test_forged_or_planted_session_is_refused(
    board: Served, owner: Browser, tokens: Tokens
) -> None:
    (name, good), *_ = owner.cookies.items()
    assert name == f"placet-{board.port}"
    head, _, signature = good.rpartition(".")
    payload = {"who": "Anna", "ident": "x"}
    forged = [
        "",
        "x",
        good[:-2],
        good + "A",
        head,
        f"{head}.",
        f"{head}.{signature[::-1]}",
        f"{'A' + head[1:]}.{signature}",
        tokens.login("Anna"),
        owner.fields(PLAN_PAGE)["token"],
        "eyJhbGciOiJub25lIn0.eyJ3aG8iOiJBbm5hIn0.",
        str(URLSafeTimedSerializer(b"", salt="placet session").dumps(payload)),
        str(URLSafeTimedSerializer(b"\0" * 32, salt="placet session").dumps(payload)),
        str(URLSafeTimedSerializer(tokens.key, salt="itsdangerous").dumps(payload)),
        str(URLSafeTimedSerializer(tokens.key).dumps(payload)),
        aged(tokens, "session", payload, SESSION_S + 10),
        aged(tokens, "session", payload, -3600),
        '"' + good[:-1] + '"',
        "A" * 8_000,
    ]
    for token in forged:
        thief = Browser(board.port, {name: token})
        assert thief.get("/").code == 303, token[:80]
        assert thief.get("/").header("location") == "/login"
        assert thief.get("/live").code == 401
        assert thief.post(f"{PLAN_PAGE}/stop", {"token": token}).code == 403
    for other in ("placet", "session", f"placet-{board.port + 1}", f"__Host-placet-{board.port}"):
        assert Browser(board.port, {other: good}).get("/").code == 303, other
    # what was in the cookie before a login is not a session after it, and each login makes its own
    planted = Browser(board.port, {name: "planted"})
    answer = planted.post("/login", {"link": tokens.login("Anna")})
    assert answer.code == 303
    cookie = answer.header("set-cookie")
    for part in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert part in cookie
    assert "Domain" not in cookie
    assert planted.cookies[name] not in ("planted", good)
    assert planted.get("/").code == 200


def test_login_link_works_once_before_it_expires(board: Served, tokens: Tokens) -> None:
    link = tokens.login("Anna")
    first, second = Browser(board.port), Browser(board.port)
    assert first.get(f"/login?t={quote(link)}").code == 200, "looking uses nothing up"
    assert not first.cookies
    assert first.ask("HEAD", f"/login?t={quote(link)}").code == 200
    assert first.post("/login", {"link": link}).code == 303
    assert second.post("/login", {"link": link}).code == 403
    assert not second.cookies
    for dead in (
        at_another_time(lambda: tokens.login("Anna"), LINK_S + 5),
        Tokens(tokens.key, "x").login("Anna"),  # of another run: maybe used in that
        aged(tokens, "login", {"who": "Anna", "nonce": "n"}, 0),
        at_another_time(lambda: tokens.login("Anna"), -3600),
        next(iter(first.cookies.values())),
        Tokens(b"y" * 32, tokens.run).login("Anna"),
    ):
        assert second.post("/login", {"link": dead}).code in (403, 429)
    assert not second.cookies


def test_login_leads_to_the_page_that_was_wanted(board: Served, tokens: Tokens) -> None:
    browser = Browser(board.port)
    assert browser.get(PLAN_PAGE).header("location") == "/login"
    answer = browser.post("/login", {"link": tokens.login("Anna")})
    assert answer.headers[[name for name, _ in answer.headers].index("location")][1] == PLAN_PAGE
    # another server of this machine can plant a cookie
    name = next(one for one in browser.cookies if one.endswith("-wanted"))
    for planted in ("//evil.example/", "https://evil.example/r/x", "/r/x?y", "/\\evil", "/login"):
        thief = Browser(board.port, {name: planted})
        answer = thief.post("/login", {"link": tokens.login("Anna")})
        assert ("location", "/") in answer.headers, planted


def test_concurrent_logins_with_one_link_open_one_session(board: Served, tokens: Tokens) -> None:
    link, codes = tokens.login("Anna"), []

    def press() -> None:
        codes.append(Browser(board.port).post("/login", {"link": link}).code)

    threads = [threading.Thread(target=press) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes.count(303) == 1
    assert set(codes) <= {303, 403, 429}


def test_login_guessing_is_throttled_without_blocking_owner(alone: TestVault) -> None:
    with served(alone) as board:
        thief = board.browser()
        codes = [thief.post("/login", {"link": f"x{n}"}).code for n in range(40)]
        assert codes == [403] * FAILURES_A_MINUTE + [429] * (40 - FAILURES_A_MINUTE)
        assert board.browser().login(board.link).code == 303


def test_board_output_contains_no_secrets(alone: TestVault) -> None:
    vault = alone
    with served(vault) as board:
        browser = board.browser()
        browser.login(board.link)
        fields = browser.fields(PLAN_PAGE)
        pages = [
            browser.get(path).text for path in ("/", "/new", PLAN_PAGE, "/numbers", "/journal")
        ]
        browser.post(f"{PLAN_PAGE}/approve", {**fields, "digest": "stale"})
        browser.get("/nope?token=" + fields["token"])
        raw(board.port, "\x00\r\n\r\n")
        key = (vault.site.state.folder / KEY).read_bytes()
        process = board.process
        at = (vault.site.state.folder / "board.at").read_text()
    assert process.stdout is not None
    said = board.log.read_text()
    token = board.link.partition("?t=")[2]
    for secret in (token, fields["token"], *browser.cookies.values(), key.hex(), SECRET):
        assert secret not in said
        assert secret not in at
    assert not any(SECRET in page for page in pages)
    assert not any(token in page for page in pages)
    assert said == (
        "placet: this link logs one browser in, once, within ten minutes\n"
        "placet: The board runs until Ctrl-C. For another link: placet board login\n"
    )


def test_malformed_http_is_handled_safely(board: Served, owner: Browser) -> None:
    port, ours = board.port, f"Host: 127.0.0.1:{board.port}\r\n"
    refused = [
        f"POST /login HTTP/1.1\r\n{ours}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        f"POST /login HTTP/1.1\r\n{ours}Content-Length: -1\r\n\r\n",
        f"POST /login HTTP/1.1\r\n{ours}Content-Length: 0x5\r\n\r\nabcde",
        f"POST /login HTTP/1.1\r\n{ours}Content-Length: 99999999999999999999999\r\n\r\n",
        f"POST /login HTTP/1.1\r\n{ours}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        f"POST /login HTTP/1.1\r\n{ours}Transfer-Encoding: xchunked\r\n\r\n",
        f"GET / HTTP/1.1\r\n{ours}X: {'a' * 900_000}\r\n\r\n",
        f"GET /{'a' * 900_000} HTTP/1.1\r\n{ours}\r\n",
        f"GET / HTTP/1.1\r\n{ours}{'X: a' * 300_000}\r\n\r\n",
        f"GET / HTTP/1.1\r\n{ours}Bad Name: x\r\n\r\n",
        f"GET / HTTP/1.1\r\n{ours}Bad\x00: x\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]
    for text in refused:
        got = raw(port, text, timeout_s=1)
        assert got == b"" or answer_in(got).code in (400, 403, 413, 421), (text[:90], got[:90])
        assert got.count(b"HTTP/1.1 ") <= 1 + text.startswith("PRI"), text[:90]
    # a second request hidden in a body is never answered as one
    for head in (
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
    ):
        hidden = f"GET /static/board.js HTTP/1.1\r\n{ours}Connection: close\r\n\r\n"
        got = raw(port, f"POST /login HTTP/1.1\r\n{ours}{head}{hidden}")
        assert got.count(b"HTTP/1.1 200") <= 1
    # a folded header is part of the one before, so this has one Host
    got = raw(
        port, f"GET /login HTTP/1.1\r\n{ours}X: a\r\n Host: evil\r\nConnection: close\r\n\r\n"
    )
    assert answer_in(got).code == 200
    many = f"GET /login HTTP/1.1\r\n{ours}\r\n" * 50
    got = raw(port, f"{many}GET /login HTTP/1.1\r\n{ours}Connection: close\r\n\r\n")
    assert got.count(b"HTTP/1.1 200 OK") == 51
    for upgrade in ("websocket", "h2c", "TLS/1.0"):
        answer = owner.get(
            "/live/",
            Connection="Upgrade, close",
            Upgrade=upgrade,
            **{"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"},
        )
        assert answer.code in (200, 307, 400, 404), upgrade
    assert owner.get("/").code == 200


def test_board_login_ignores_stale_address_of_dead_board(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.site.state.ensure()
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        at = vault.site.state.folder / "board.at"
        at.write_text(
            f'{{"host": "127.0.0.1", "port": {somebody.getsockname()[1]}, "names": [], "run": "x"}}'
        )
        done = vault.cli("board", "login", check=False)
        assert done.returncode == 1
        assert "No board of this vault runs." in done.stderr
        assert not done.stdout
