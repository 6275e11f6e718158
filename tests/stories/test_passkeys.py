"""Test in Chromium that a passkey approves: the real board, a real daemon, OpenSSH as it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, expect, sync_playwright
from tests.stories.test_board import CHROMIUM, FLAGS, PATIENCE_MS, WIDTHS, is_whole

from boardhttp import Served, served
from boardkit import ask, board_vault
from gitkit import settle_home
from placet.journal.reader import open_reader
from vaultkit import TestVault, running, until

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no OpenSSH"),
]


@dataclass
class Phone:
    """A browser with a passkey of its own, logged in as Anna."""

    vault: TestVault
    board: Served
    context: BrowserContext
    page: Page
    cdp: CDPSession
    authenticator: str

    def goto(self, path: str) -> None:
        self.page.goto(self.board.url + path)

    def verify_user(self, *, does: bool) -> None:
        """Say whether the authenticator knows its holder from now on."""
        given = {"authenticatorId": self.authenticator, "isUserVerified": does}
        self.cdp.send("WebAuthn.setUserVerified", given)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS)) as browser,
    ):
        expect.set_options(timeout=PATIENCE_MS)
        yield browser


@pytest.fixture
def phone(tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> Iterator[Phone]:
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    vault = board_vault(tmp_path)
    config = vault.root / "System/placet.toml"
    vault.configure(f"{config.read_text()}[approval]\nsigned = true\n")
    with (
        running(vault),
        served(vault) as board,
        browser.new_context(viewport={"width": 390, "height": WIDTHS[390]}) as context,
    ):
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        cdp = context.new_cdp_session(page)
        cdp.send("WebAuthn.enable")
        made = cdp.send(
            "WebAuthn.addVirtualAuthenticator",
            {
                "options": {
                    "protocol": "ctap2",
                    "transport": "internal",
                    "hasResidentKey": True,
                    "hasUserVerification": True,
                    "isUserVerified": True,
                    "automaticPresenceSimulation": True,
                }
            },
        )
        page.goto(board.link)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Board")).to_be_attached()
        yield Phone(vault, board, context, page, cdp, made["authenticatorId"])


def add_device(phone: Phone) -> None:
    """Add the browser's passkey on the page, and accept it in the terminal."""
    phone.goto("/browsers")
    phone.page.get_by_role("button", name="Add this device").click()
    expect(phone.page.get_by_text("waits")).to_be_visible()
    expect(phone.page.get_by_text("placet signer accept")).to_be_visible()
    assert is_whole(phone.page)
    shown = phone.page.locator(".browsers code").inner_text()
    assert shown in phone.vault.cli("signer", "accept", "--yes").stdout
    phone.page.reload()
    expect(phone.page.get_by_text("· accepted")).to_be_visible()


def press_approve(page: Page, sheet: str, opens: str) -> None:
    page.get_by_role("button", name=opens, exact=True).click()
    page.locator(sheet).get_by_role("button", name="Approve", exact=True).click()


def openssh_says(vault: TestVault, told: dict[str, str], folder: Path) -> str:
    """Return what stock ssh-keygen says of an approval's signature."""
    with open_reader(vault.db) as reader:
        statement, armour = (reader.text(told[name]) for name in ("statement", "signature"))
    assert statement is not None
    assert armour is not None
    (folder / "approval.sig").write_bytes(armour)
    signers = vault.root / "System/allowed_signers"
    words = ["-f", str(signers), "-I", "anna", "-n", "placet-approval"]
    done = subprocess.run(
        ["ssh-keygen", "-Y", "verify", *words, "-s", str(folder / "approval.sig")],
        input=statement,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode()


def test_passkey_approves_plan_and_wider_scope(phone: Phone, tmp_path: Path) -> None:
    vault, page, ident = phone.vault, phone.page, ask(phone.vault, "Rename the settings page")
    until(vault.plan(ident).exists, ident)
    phone.goto(f"/r/{ident}")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("You have no accepted passkey here.")).to_be_visible()
    add_device(phone)
    phone.goto(f"/r/{ident}")
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_text("What you sign").click()
    expect(page.get_by_text("placet approval 1")).to_be_visible()
    expect(page.get_by_text("This browser has no passkeys here.")).to_be_hidden()
    assert is_whole(page)
    page.locator("#approve").get_by_role("button", name="Approve", exact=True).click()
    press_approve(page, "#widen", "Approve the wider scope")
    expect(page.locator("#state .state")).to_have_text("To merge")
    (plan,), (wider,) = vault.rows("plan.approved"), vault.rows("plan.amended")
    for row in (plan, wider):
        told = row["metadata"]
        assert (told["via"], told["login"], told["signer"]) == ("board", "Anna", "anna")
        said = openssh_says(vault, told, tmp_path)
        assert said.startswith('Good "placet-approval" signature for anna with ECDSA-SK key')
    assert plan["metadata"]["statement"] != wider["metadata"]["statement"]


def test_page_turns_to_plan_that_can_be_signed(phone: Phone) -> None:
    add_device(phone)
    ident = ask(phone.vault, "Fix the menu")
    until(lambda: phone.vault.rows("request.detected"), "the request is known")
    phone.goto(f"/r/{ident}")
    press_approve(phone.page, "#approve", "Approve")
    expect(phone.page.locator("#state .state")).to_have_text("To merge")


def test_passkey_without_user_verification_approves_nothing(phone: Phone) -> None:
    vault, page, ident = phone.vault, phone.page, ask(phone.vault, "Fix the footer")
    add_device(phone)
    until(vault.plan(ident).exists, ident)
    phone.verify_user(does=False)
    phone.goto(f"/r/{ident}")
    press_approve(page, "#approve", "Approve")
    expect(page.get_by_text("The browser gave no passkey.")).to_be_visible()
    page.evaluate(
        """() => {
          const get = navigator.credentials.get.bind(navigator.credentials);
          navigator.credentials.get = ({ publicKey }) =>
            get({ publicKey: { ...publicKey, userVerification: "discouraged" } });
        }"""
    )
    page.locator("#approve").get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text(re.compile("holder confirmed"))
    assert not vault.rows("plan.approved")
    phone.verify_user(does=True)
    phone.goto(f"/r/{ident}")
    press_approve(page, "#approve", "Approve")
    expect(page.locator("#state .state")).to_have_text("To merge")


def test_page_without_javascript_says_where_to_approve(phone: Phone, browser: Browser) -> None:
    add_device(phone)
    ident = ask(phone.vault, "Fix the header")
    until(phone.vault.plan(ident).exists, ident)
    state = phone.context.storage_state()
    with browser.new_context(java_script_enabled=False, storage_state=state) as context:
        page = context.new_page()
        page.goto(f"{phone.board.url}/r/{ident}")
        page.get_by_role("button", name="Approve", exact=True).click()
        expect(page.get_by_text("This browser has no passkeys here.")).to_be_visible()
        sheet = page.locator("#approve")
        expect(sheet.get_by_text(f"placet approve {ident}")).to_be_visible()
        expect(page.locator("form.passkey")).to_be_hidden()
