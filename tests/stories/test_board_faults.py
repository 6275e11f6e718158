"""Test the board with full disks, bad keys, wrong clocks, odd names and a second board."""

from __future__ import annotations

import contextlib
import errno
import html
import re
import socket
import stat
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from tests.client.test_decisions import QUESTION, WIDER, asking_vault, question

from boardhttp import served
from disks import read_only
from gitkit import git, make_repo, settle_home
from pagekit import browsing
from placet.disk.errors import NotSettled
from placet.disk.vault import Vault
from placet_board.auth import KEY, SESSIONS, Tokens
from placet_board.markdown import seen_name
from placet_board.server import server
from vaultkit import PLAN, TestVault, make_vault, meddling

WRITE = ("write_file", {"path": "hello.txt", "content": "Hello.\n"})
DONE = [("complete_step", {"step": 1, "summary": "s"}), ("finish", {"summary": "s"})]


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    """A vault with a plan that waits."""
    vault = make_vault(tmp_path)
    vault.plays(PLAN, [WRITE], DONE[:1], DONE[1:])
    vault.drop("Say hello.\n")
    vault.once()
    return vault


def buttons(page: str) -> set[str]:
    return set(re.findall(r'action="/r/say-hello/(\w+)"', page))


def test_finished_mission_page_offers_next_step(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    vault.approve()
    vault.once()
    with meddling(), browsing(vault) as browser:
        page = browser.get("/r/say-hello")
        assert "Merge the branch, or drop it" in page
        assert buttons(page) == {"merge", "drop", "retry"}
        # at once, and not when the daemon has seen it
        assert browser.press("say-hello", "merge").status_code == 303
        page = browser.get("/r/say-hello")
        assert "was merged." in page
        assert buttons(page) == {"undo", "retry"}
        vault.once()
        assert buttons(browser.get("/r/say-hello")) == {"undo", "retry"}
        assert browser.press("say-hello", "undo", digest="0" * 40).status_code == 400
        for seen in (False, True):
            if seen:
                vault.once()
            else:
                assert browser.press("say-hello", "undo").status_code == 303
                assert browser.press("say-hello", "undo").status_code == 400
            page = browser.get("/r/say-hello")
            assert "was merged, and the merge was undone" in page
            assert "Merge again" in page
            assert buttons(page) == {"merge", "retry"}
        assert browser.press("say-hello", "merge").status_code == 303
        assert buttons(browser.get("/r/say-hello")) == {"undo", "retry"}


def test_undo_asks_about_other_files_of_commit(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    repo = make_repo(tmp_path / "repo")
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    vault.plays(PLAN, [WRITE], DONE[:1], DONE[1:])
    vault.drop("---\nportal: code\n---\nSay more.\n", "Say more.md")
    vault.once()
    vault.approve("say-more")
    vault.once()
    branch = str(vault.rows("execution.completed")[-1]["metadata"]["branch"])
    message = git(repo, "log", "-1", "--format=%B", branch)
    git(repo, "merge", "-q", "--squash", branch)
    (repo / "mine.txt").write_text("a day of my own work\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", message)
    with meddling(), browsing(vault) as browser:
        page = browser.get("/r/say-more")
        assert "<code>mine.txt</code>" in page
        assert browser.press("say-more", "undo", others="").status_code == 400
        assert (repo / "mine.txt").exists()
        assert browser.press("say-more", "undo").status_code == 303
        assert not (repo / "mine.txt").exists()


def test_board_drops_only_commits_that_were_seen(vault: TestVault) -> None:
    vault.approve()
    vault.once()
    with meddling(), browsing(vault) as browser:
        press = partial(browser.press, "say-hello", "drop", reason="no")
        assert press(digest="0" * 40).status_code == 400
        assert press().status_code == 303


def test_a_dropped_branch_is_not_offered_again(vault: TestVault) -> None:
    vault.approve()
    vault.once()
    with meddling(), browsing(vault) as browser:
        assert browser.press("say-hello", "drop", reason="no").status_code == 303
        vault.once()
        page = browser.get("/r/say-hello")
    assert "was dropped. Its commits are kept" in page
    assert buttons(page) == {"retry"}


# --- disks


def test_board_works_on_read_only_vault(vault: TestVault) -> None:
    before = vault.plan().read_bytes()
    with browsing(vault) as browser, read_only(vault.root):
        for path in ("/", "/new", "/numbers", "/journal", "/r/say-hello"):
            browser.get(path)
        for button in ("comment", "tick"):
            answer = browser.press("say-hello", button, comment="c", step="1")
            assert answer.status_code == 400, button
            assert "The daemon is not running" in answer.text
        answer = browser.press("say-hello", "approve")
        assert answer.headers["location"].endswith("said=saved")
    assert vault.plan().read_bytes() == before


def test_read_only_state_folder_is_reported(vault: TestVault) -> None:
    with browsing(vault) as browser:
        hidden = browser.hidden("say-hello")
        with read_only(vault.state):
            answer = browser.press("say-hello", "approve", **hidden)
        assert answer.status_code == 400
        assert str(vault.state) in answer.text
        assert "check its permissions" in answer.text or "writable" in answer.text
    assert vault.plan().exists()
    with read_only(vault.state):
        done = vault.click("board", "--listen", "127.0.0.1:0", check=False)
        assert done.returncode == 1
        assert "board.at cannot be written: Read-only file system." in done.stderr
        assert "Mount the file system of" in done.stderr
    (vault.site.state.folder / "board.key").unlink()
    with read_only(vault.state):
        done = vault.click("board", "--listen", "127.0.0.1:0", check=False)
        assert "board.key cannot be written: Read-only file system." in done.stderr
        assert not done.stdout


# --- another board


def test_killed_board_does_not_block_next_one(vault: TestVault) -> None:
    at = vault.site.state.folder / "board.at"
    with served(vault, ends=(-9,)) as first:
        assert first.port
        done = vault.click("board", "--listen", "127.0.0.1:0", check=False)
        assert f"is already running: http://127.0.0.1:{first.port}" in done.stderr
        first.process.kill()
        first.process.wait()
    assert at.exists(), "nobody was left to delete it"
    assert "No board of this vault runs." in vault.click("board", "login", check=False).stderr
    with served(vault) as second:
        link = vault.click("board", "login").stdout
        assert link.startswith(f"http://127.0.0.1:{second.port}/login")
        assert second.browser().login(link.strip()).code == 303
    assert not at.exists()


# --- the key, and the clock


def test_deleted_key_logs_out_all_browsers(
    vault: TestVault,
) -> None:
    with served(vault) as board:
        anna = board.browser()
        anna.login(board.link)
        assert anna.get("/").code == 200
        (vault.site.state.folder / KEY).unlink()
        assert anna.get("/").header("location") == "/login"
        assert anna.get("/live").code == 401
        link = vault.click("board", "login").stdout.strip()
        assert anna.login(link).code == 303
        assert anna.get("/").code == 200


def test_login_works_after_clock_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_800_000_000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    tokens = Tokens(b"k" * 32, "run")
    old = tokens.login("Anna")
    assert tokens.session_for(old)
    now[0] -= 3_600
    link = Tokens(b"k" * 32, "run").login("Anna")  # as `placet board login` makes it
    session = tokens.session_for(link)
    assert session
    assert tokens.session(session)
    now[0] += 3_600
    assert tokens.session_for(old) is None
    now[0] += 700
    assert tokens.session_for(tokens.login("Anna"))  # others come in the meantime
    now[0] -= 700
    assert tokens.session_for(old) is None, "it was used"


# --- names, notes that are being written, and readers that take their time


@pytest.mark.parametrize(
    "name", ["back\\slash", "two\nlines", "bad\udcff", "a&b<c>\"d'", "x" * 252]
)
def test_template_with_odd_name_can_be_chosen(tmp_path: Path, name: str) -> None:
    vault = make_vault(tmp_path)
    (vault.root / "System" / "Templates" / f"{name}.md").write_text("Look at the moon.\n")
    with browsing(vault) as browser:
        page = browser.get("/new")
        shown = [html.unescape(one) for one in re.findall(r"<option[^>]*>([^<]*)</option>", page)]
        (option,) = (one for one in shown if one == seen_name(name))
        page = browser.get(f"/new?{urlencode({'template': option})}")
        assert re.search(r"<textarea[^>]*>Look at the moon\.", page)
        assert re.search(r'<option value="[^"]+"[^>]* selected>', page)


def test_note_still_being_written_is_reread(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = Vault.read, [3]

    def read(self: Vault, path: str) -> Any:
        if path.startswith("Inbox/Plans/") and left[0]:
            left[0] -= 1
            raise NotSettled(path)
        return real(self, path)

    with browsing(vault) as browser:
        hidden = browser.hidden("say-hello")
        monkeypatch.setattr(Vault, "read", read)
        assert browser.press("say-hello", "approve", **hidden).status_code == 303
    assert left == [0]


def test_full_disk_error_asks_to_free_space(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    with browsing(vault) as browser:
        hidden = browser.hidden("say-hello")
        monkeypatch.setattr("placet.host.intents.put", full)
        answer = browser.press("say-hello", "revise", comment="Shorter.", **hidden)
    assert answer.status_code == 400
    assert "Free some space" in answer.text
    assert "retries" not in answer.text


def test_slow_reader_is_served_until_it_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader may take longer than READ_S, if it takes pieces; one that takes none is cut off."""
    monkeypatch.setattr("placet_board.server.READ_S", 1.0)
    monkeypatch.setattr("placet_board.server.LOOK_S", 0.1)

    async def long(_: Request) -> StreamingResponse:
        return StreamingResponse(b"x" * 65_536 for _ in range(100_000))

    running = server(Starlette(routes=[Route("/", long)]))
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
    thread.start()
    try:
        with socket.create_connection(listening.getsockname(), timeout=20) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            begun = time.monotonic()
            while time.monotonic() - begun < 3:
                assert sock.recv(65_536), "it was cut off"
                time.sleep(0.01)
            time.sleep(2.5)
            with contextlib.suppress(ConnectionError):
                left = sum(map(len, iter(lambda: sock.recv(1 << 20), b"")))
                assert left < 100_000_000, "what was on its way"
    finally:
        running.should_exit = True
        thread.join(20)
        listening.close()


@pytest.mark.parametrize("button", ["approve", "reject"])
def test_stale_page_cannot_decide_on_amendment(tmp_path: Path, button: str) -> None:
    vault = asking_vault(tmp_path, ("request_scope", WIDER), approved=False)
    with browsing(vault) as browser:
        hidden = browser.hidden("say-hello")
        vault.approve()
        vault.here()
        answer = browser.press("say-hello", button, remark="Quick.", reason="No.", **hidden)
        assert "This plan is approved by now" in answer.text
    text = vault.active().read_text()
    vault.here()
    assert vault.active().read_text() == text
    assert vault.rows()[-2]["action_type"] == "daemon.started"


def test_question_in_renamed_note_can_be_answered(tmp_path: Path) -> None:
    vault = asking_vault(tmp_path, ("ask_person", QUESTION))
    question(vault).rename(question(vault).with_name("mine.md"))
    vault.here()
    with browsing(vault) as browser:
        assert "Good morning" in browser.get("/r/say-hello")
        browser.press("say-hello", "answer", option="Hello", **browser.hidden("say-hello"))
    vault.here()
    assert vault.rows("question.answered")


# --- sessions


def test_owner_can_list_and_log_out_browsers(vault: TestVault) -> None:
    with served(vault) as board:
        anna, berta = board.browser(), board.browser()
        anna.login(board.link)
        agent = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0) Version/18.0 Safari/604.1"
        link = vault.click("board", "login", "--name", "Berta <b>").stdout.strip()
        (token,) = parse_qs(urlsplit(link).query)["t"]
        berta.post("/login", {"link": token}, {"User-Agent": agent})
        page = anna.get("/browsers").text
        assert "ago</time></span>" in page
        assert "Safari on iPhone" in page
        assert "Berta &lt;b&gt;" in page
        names = re.findall(r'name="name" value="([0-9a-f]{16})"', page)
        assert len(names) == 2
        fields = anna.fields("/browsers")
        assert berta.post("/browsers", {"token": fields["token"], "name": names[0]}).code == 403
        stolen = dict(berta.cookies)
        assert anna.post("/browsers", {**fields, "name": names[0]}).code == 303
        assert berta.get("/").header("location") == "/login"
        assert anna.get("/").code == 200
        for name in ("", "x", "../board.key", names[0]):  # nobody else is logged out
            assert anna.post("/browsers", {**fields, "name": name}).code == 303
        assert anna.get("/").code == 200
        assert anna.post("/browsers", {**fields, "name": names[1]}).header("location") == "/login"
        assert anna.get("/").header("location") == "/login"
    with served(vault) as board:  # what was logged out stays so
        again = board.browser()
        again.cookies = stolen
        assert again.get("/").header("location") == "/login"
    path = vault.site.state.folder / SESSIONS
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    path.write_text("[]")
    assert Tokens(b"k" * 32, "run", path).logged_in() == {}


def test_a_logged_out_browser_gets_no_events(vault: TestVault) -> None:
    with served(vault) as board:
        anna = board.browser()
        anna.login(board.link)
        cookie = "; ".join(f"{name}={value}" for name, value in anna.cookies.items())
        asked = f"GET /live HTTP/1.1\r\nHost: 127.0.0.1:{board.port}\r\nCookie: {cookie}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", board.port), timeout=60) as sock:
            sock.sendall(asked.encode())
            said = b""
            while b"hello" not in said:
                said += sock.recv(4096)
            state = vault.site.state.folder
            tokens = Tokens((state / KEY).read_bytes(), "x", state / SESSIONS)
            (name,) = tokens.logged_in()
            tokens.log_out(name)
            vault.drop("A secret wish.\n", "secret.md")
            vault.once()
            while b"0\r\n\r\n" not in said:  # the end of the events
                said += sock.recv(4096)
        assert b"secret" not in said


def test_form_text_survives_ended_session(vault: TestVault) -> None:
    with served(vault) as board:
        anna = board.browser()
        anna.login(board.link)
        fields = anna.fields("/r/say-hello")
        (vault.site.state.folder / KEY).unlink()
        words = {**fields, "remark": "Mind the </pre><script>gap\u202e"}
        answer = anna.post("/r/say-hello/approve", words)
        assert answer.code == 403
        assert "Mind the &lt;/pre&gt;&lt;script&gt;gap\\u202e" in answer.text
        assert fields["token"] not in answer.text
        assert fields["digest"] not in answer.text
        stranger = board.browser()
        assert "Mind the" not in stranger.post("/r/say-hello/approve", words).text
        assert anna.post("/new", {"text": "x" * 300_000}).code == 403
    assert not vault.rows("plan.approved")
