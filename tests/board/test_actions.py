"""Test that the board decides only on what its page showed."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.board.test_auth import PLAN_PAGE, SECRET, planned, untouched

from boardhttp import Served, served
from gitkit import git, make_repo
from pagekit import HOST, Browser, browsing
from placet.errors import UserError
from placet.plan.digest import plan_digest
from placet_board.actions import refused
from vaultkit import ME, PLAN, TestVault, make_vault, meddling, running


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> TestVault:
    vault = planned(tmp_path_factory.mktemp("attacked"))
    vault.extra["ANTHROPIC_API_KEY"] = SECRET
    return vault


@pytest.fixture(scope="module")
def board(vault: TestVault) -> Iterator[Served]:
    with served(vault) as board:
        yield board


@pytest.fixture
def atlas(tmp_path: Path) -> TestVault:
    """A vault with a portal."""
    vault = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo", {"a.txt": "a\n"})
    vault.configure(f'[portals.atlas]\npath = "{repo}"\n')
    return vault


def asked(browser: Browser, **fields: str) -> Any:
    form = {"title": "Say hello", "text": "Please.", "portal": "atlas", **fields}
    (token,) = re.findall(r'name="token" value="([^"]+)"', browser.get("/new"))
    sent = {"token": token, **form}
    return browser.client.post("/new", data=sent, headers={"Origin": f"http://{HOST}"})


def test_forgotten_repository_is_asked_for(atlas: TestVault) -> None:
    with browsing(atlas) as browser:
        assert '<select name="portal" required><option value="">Choose one' in browser.get("/new")
        answer = asked(browser, portal="")
        assert answer.status_code == 400
        assert "The request names no repository." in answer.text
        assert not atlas.notes("Inbox/Requests")
        assert asked(browser, portal=".").status_code == 200
    assert "portal:" not in (atlas.root / "Inbox/Requests/Say hello.md").read_text()


def test_template_is_inserted_and_keeps_what_was_typed(atlas: TestVault) -> None:
    with browsing(atlas) as browser:
        page = asked(browser, insert="1", template="Bug", budget_usd="2.5", priority="7").text
        assert not atlas.notes("Inbox/Requests")
    assert re.search(r">Please\.\n\n## What happens", page)
    for kept in (
        'name="title" required maxlength="80" value="Say hello"',
        '<option value="atlas" selected>',
        "<option selected>senior-coder</option>",
        'value="2.5"',
        'value="7"',
    ):
        assert kept in page, kept


def test_budget_of_new_request_is_its_property(atlas: TestVault) -> None:
    with browsing(atlas) as browser:
        assert asked(browser, budget_usd="2.5").status_code == 200
        assert asked(browser, budget_usd="much").status_code == 400
    assert "budget_usd: 2.5\n" in (atlas.root / "Inbox/Requests/Say hello.md").read_text()


def test_text_that_begins_with_dashes_is_text(atlas: TestVault) -> None:
    with browsing(atlas) as browser:
        assert asked(browser, text="---\nstatus: x\n---\nPlease.").status_code == 200
    atlas.here()
    (row,) = atlas.rows("request.detected")
    assert row["entity_id"] == "say-hello"
    note = (atlas.root / "Inbox/Requests/Say hello.md").read_text()
    assert "# Say hello\n\n---\nstatus: x\n---\nPlease." in note


def test_first_visit_says_what_it_is(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    with browsing(vault) as browser:
        page = browser.get("/")
        assert "Nothing runs before you approve it." in page
        assert '<a class="button main" href="/new">New request</a>' in page
    vault.plays(PLAN)
    vault.drop("Say hello.\n")
    vault.here()
    with browsing(vault) as browser:
        assert "Nothing runs before" not in browser.get("/")


def test_decision_on_changed_plan_is_refused(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    with served(vault) as board:
        browser = board.browser()
        browser.login(board.link)
        fields = browser.fields(PLAN_PAGE)
        seen = untouched(vault)
        changed = seen.replace(b"## Risks", b"Also delete everything.\n\n## Risks")
        assert changed != seen
        vault.plan().write_bytes(changed)
        for act in ("approve", "reject", "revise", "comment", "tick"):
            extra = {"reason": "r", "comment": "c", "step": "1"}
            answer = browser.post(f"{PLAN_PAGE}/{act}", {**fields, **extra})
            # without a daemon nothing is written that decides nothing
            wanted = 400 if act in ("comment", "tick") and not vault.site.daemon else 409
            assert answer.code in (409, wanted), (act, answer.text)
            assert untouched(vault) == changed
        for digest in ("", "x", fields["digest"][:-1], fields["digest"].upper()):
            assert browser.post(f"{PLAN_PAGE}/approve", {**fields, "digest": digest}).code == 409
        # another text in between does not matter, what is approved is what was read
        vault.plan().write_bytes(seen)
        codes: list[int] = []

        def press() -> None:
            codes.append(browser.post(f"{PLAN_PAGE}/approve", fields).code)

        threads = [threading.Thread(target=press) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes == [303, 303]
        assert not vault.notes("System/Active")
    vault.once()
    (row,) = vault.rows("plan.approved")
    assert row["actor"] == "human"
    told = row["metadata"]
    assert (told["reviewed_by"], told["login"], told["via"]) == (ME, "Anna", "board")
    assert told["digest"] == fields["digest"]


def test_merge_of_changed_branch_is_refused(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    write = ("write_file", {"path": "hello.txt", "content": "Hello.\n"})
    done = [("complete_step", {"step": 1, "summary": "s"}), ("finish", {"summary": "s"})]
    vault.plays(PLAN, [write], done[:1], done[1:])
    vault.drop("Say hello.\n")
    vault.once()
    vault.approve()
    vault.once()
    branch = vault.rows("execution.completed")[0]["metadata"]["branch"]
    with meddling(), served(vault) as board:
        browser = board.browser()
        browser.login(board.link)
        fields = browser.fields(PLAN_PAGE)
        read = git(vault.root, "rev-parse", branch)
        assert fields["digest"] == read
        tree = git(vault.root, "rev-parse", f"{branch}^{{tree}}")
        later = git(vault.root, "commit-tree", tree, "-p", read, "-m", "Later")
        git(vault.root, "update-ref", f"refs/heads/{branch}", later)
        for digest in (read, "", "HEAD", branch):
            answer = browser.post(f"{PLAN_PAGE}/merge", {**fields, "digest": digest})
            assert answer.code == 400
            assert "other commits than you read" in answer.text
        assert not (vault.root / "hello.txt").exists()
        assert browser.post(f"{PLAN_PAGE}/merge", browser.fields(PLAN_PAGE)).code == 303
        assert (vault.root / "hello.txt").read_text() == "Hello.\n"


def test_refusal_stays_at_its_button(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    with browsing(vault) as browser:
        answer = browser.press("say-hello", "reject", reason=" ")
        assert answer.status_code == 400
        (sheet,) = re.findall(r'<section class="sheet open" id="(\w+)"', answer.text)
        assert sheet == "reject"
        form = answer.text[answer.text.index('action="/r/say-hello/reject"') :]
        form = form[: form.index("</form>")]
        assert "The reason is empty. Say why" in form
        assert "placet" not in form
        answer = browser.press("say-hello", "comment", step="1", comment="Keep it &lt;short")
        assert "The daemon is not running" in answer.text
        assert "Keep it &amp;lt;short" in answer.text
        words = "one\r\ntwo 👩\u200d💻"  # as a form has it
        answer = browser.press("say-hello", "comment", step="1", comment=words)
        assert ">one\ntwo 👩\u200d💻</pre>" in answer.text


def test_late_act_says_what_helps_on_the_page(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    with browsing(vault) as browser:
        hidden = browser.hidden("say-hello")
        answer = browser.press("say-hello", "stop", **hidden, reason="Too late.")
        assert answer.status_code == 409
        alert = answer.text[answer.text.index('role="alert" hidden') + 20 :]
        alert = alert[alert.index('role="alert"') :]
        assert "so there is nothing to stop. Look at it" in alert[: alert.index("</p>")]
        assert "placet " not in alert[: alert.index("</p>")]
        assert '<pre class="refused" tabindex="0">Too late.</pre>' in answer.text
        assert browser.press("say-hello", "nothing").status_code == 409
        assert browser.press("nobody", "reject", **hidden).status_code == 404


@pytest.mark.parametrize(
    ("hint", "here"),
    [
        ("Stop it first: placet stop say-hello", "Stop it first"),
        ("Say why: --reason 'too broad'", "Say why"),
        ("Start it: placet run. Or change it.", "Start it: placet run. Or change it."),
        ("Merge by hand: git merge x", "Merge by hand: git merge x"),
    ],
)
def test_page_names_no_command_that_it_replaces(hint: str, here: str) -> None:
    assert refused("stop", UserError("No.", hint), {}).hint == here


def test_tick_answers_with_its_own_text(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    with running(vault), browsing(vault) as browser:
        made = []
        for act, fields in (("tick", {"step": "1"}), ("comment", {"comment": "Keep it short."})):
            answer = browser.press("say-hello", act, **fields)
            (digest,) = parse_qs(urlsplit(answer.headers["location"]).query)["made"]
            assert digest == plan_digest(vault.plan().read_bytes())
            made.append(digest)
        assert made[0] != made[1]
