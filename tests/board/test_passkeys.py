"""Test that a passkey adds itself, waits to be accepted, and signs approvals on the board."""

from __future__ import annotations

import base64
import random
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import pytest
from starlette.datastructures import Headers

import boardhttp
from boardhttp import Answer, Served, served
from passkeykit import SoftPasskey, form_of
from placet.client.site import Site
from placet.errors import UserError
from placet.host.signers import verify
from placet.plan.allowed_signers import Signer, parse_signers
from placet.plan.sshsig import bytes_to_sign, passkey_key, passkey_signature
from placet.plan.statement import NAMESPACE
from placet_board.auth import Door, Tokens
from placet_board.passkeys import no_passkeys_at, signature, signer_name
from vaultkit import PLAN, Call, TestVault, make_vault

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no OpenSSH")
PAGE = "/r/say-hello"
SIGNED = "[approval]\nsigned = true\n"


class Browser(boardhttp.Browser):
    """A browser that opened the board by the name localhost."""

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"


def planned(folder: Path, settings: str = SIGNED, *asks: Call) -> TestVault:
    """A vault whose plan waits for a signature; its mission begins with the calls `asks`."""
    vault = make_vault(folder)
    vault.configure(settings)
    write = ("write_file", {"path": "hello.txt", "content": "Hello.\n"})
    done = [("complete_step", {"step": 1, "summary": "s"}), ("finish", {"summary": "s"})]
    vault.plays(PLAN, *([one] for one in asks), [write], done[:1], done[1:])
    vault.drop("Say hello.\n")
    vault.once()
    return vault


def owner(board: Served) -> Browser:
    browser = Browser(board.port)
    assert browser.login(board.link).code == 303
    return browser


def add(vault: TestVault, browser: Browser, key: SoftPasskey, *, accept: bool = True) -> Answer:
    token = browser.fields("/browsers")["token"]
    answer = browser.post("/passkeys", {"token": token, **key.added()})
    if accept:
        vault.click("signer", "accept", "--yes")
    return answer


def challenge_on(browser: Browser) -> bytes:
    """Return what the page of the request asks a passkey to sign."""
    found = re.search(r'data-challenge="([^"]+)"', browser.get(PAGE).text)
    assert found is not None, browser.get(PAGE).text
    return base64.b64decode(unescape(found[1]))


def signed(browser: Browser, key: SoftPasskey, **changed: object) -> dict[str, str]:
    """Return the form of an approval that a passkey signed."""
    asked = {"challenge": challenge_on(browser), "origin": browser.origin, **changed}
    return {**browser.fields(PAGE), **form_of(key.answer(**asked))}  # type: ignore[arg-type]


def approve(browser: Browser, form: dict[str, str]) -> Answer:
    return browser.post(f"{PAGE}/approve", form)


def said(answer: Answer) -> str:
    return unescape(re.sub(r"<[^>]+>", "", answer.text))


def test_passkey_waits_then_approves(tmp_path: Path) -> None:
    vault, key = planned(tmp_path), SoftPasskey()
    with served(vault) as board:
        browser = owner(board)
        assert "no accepted passkey" in browser.get(PAGE).text
        assert add(vault, browser, key, accept=False).header("location") == "/browsers"
        (line,) = parse_signers((vault.root / "System/allowed_signers").read_bytes())
        assert (line.name, line.origin, line.comment) == ("anna", browser.origin, "A browser")
        page = browser.get("/browsers").text
        assert line.fingerprint in page
        assert "placet signer accept" in page
        assert "no accepted passkey" in browser.get(PAGE).text
        assert line.fingerprint in vault.click("signer", "accept", "--yes").stdout
        assert "placet signer accept" not in browser.get("/browsers").text
        shown = browser.get(PAGE).text
        assert "placet approval 1" in shown
        assert "A remark for the agent" not in shown
        assert approve(browser, signed(browser, key)).code == 303
    vault.once()
    (row,) = vault.rows("plan.approved")
    told = row["metadata"]
    assert (told["via"], told["login"], told["signer"]) == ("board", "Anna", "anna")
    assert told["key"] == line.fingerprint
    assert vault.rows("execution.completed")


@pytest.fixture(scope="module")
def key() -> SoftPasskey:
    return SoftPasskey()


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> TestVault:
    return planned(tmp_path_factory.mktemp("signed"))


@pytest.fixture(scope="module")
def browser(vault: TestVault, key: SoftPasskey) -> Iterator[Browser]:
    with served(vault) as board:
        browser = owner(board)
        add(vault, browser, key)
        yield browser


def test_openssh_accepts_signature_of_passkey(key: SoftPasskey) -> None:
    text, origin = "placet approval 1\n", "https://notes.example"
    public = passkey_key(key.point, "notes.example")
    asked = bytes_to_sign(text.encode(), NAMESPACE)
    answer = key.answer(asked, origin, rp_id="notes.example")
    made = passkey_signature(public, NAMESPACE, *answer.values())
    found = verify(text, made, [Signer("anna", public, "", origin)])
    assert (found.signer, found.flags, found.origin) == ("anna", 5, origin)


def _untouched(vault: TestVault) -> None:
    assert vault.plan().exists()
    assert not vault.rows("plan.approved")
    assert not list(vault.site.state.intents.glob("*.json"))


Change = Callable[[dict[str, str]], dict[str, str]]
WRONG: dict[str, tuple[dict[str, object], str]] = {
    "nobody verified": ({"flags": 0x01}, "holder confirmed"),
    "nobody touched": ({"flags": 0x04}, "holder confirmed"),
    "no flags": ({"flags": 0}, "holder confirmed"),
    "another origin": ({"origin": "http://localhost:1"}, "no accepted passkey"),
    "no origin": ({"origin": ""}, "no accepted passkey"),
    "another RP id": ({"rp_id": "evil.example"}, "no accepted passkey"),
    "another text": ({"challenge": b"x" * 32}, "another text"),
    "another namespace": ({"challenge": bytes_to_sign(b"x", "file")}, "another text"),
    "made by adding": ({"asked": "webauthn.create"}, "another text"),
}


@pytest.mark.parametrize("what", WRONG)
def test_other_answer_is_refused(
    vault: TestVault, browser: Browser, key: SoftPasskey, what: str
) -> None:
    changed, why = WRONG[what]
    answer = approve(browser, signed(browser, key, **changed))
    assert answer.code == 400
    assert why in said(answer)
    assert "placet" in said(answer)
    _untouched(vault)


def _doubled(text: str) -> str:
    return base64.b64encode(base64.b64decode(text) * 2).decode()


@pytest.mark.parametrize("name", ["authenticator", "client_data", "signature"])
@pytest.mark.parametrize(
    "change",
    [
        _doubled,
        lambda text: text[:-8],
        lambda text: base64.b64encode(base64.b64decode(text)[:20]).decode(),
        lambda text: text + "é",
        lambda text: "A" * 5_000,
        lambda text: base64.b64encode(bytes(200)).decode(),
    ],
)
def test_damaged_answer_is_refused(
    vault: TestVault,
    browser: Browser,
    key: SoftPasskey,
    name: str,
    change: Callable[[str], str],
) -> None:
    form = signed(browser, key)
    answer = approve(browser, {**form, name: change(form[name])})
    assert answer.code == 400
    assert 'class="alarm refused" role="alert"' in answer.text
    _untouched(vault)


def test_changed_byte_is_refused(vault: TestVault, browser: Browser, key: SoftPasskey) -> None:
    form, chance = signed(browser, key), random.Random(20)
    site = Site(str(vault.root), vault.env, who="Anna", via="board")
    case = site.case("say-hello")
    assert signature(site, case, form)
    for _ in range(200):
        name = chance.choice(["authenticator", "client_data", "signature"])
        raw = bytearray(base64.b64decode(form[name]))
        raw[chance.randrange(len(raw))] ^= chance.randrange(1, 256)
        with pytest.raises(UserError):
            signature(site, case, {**form, name: base64.b64encode(raw).decode()})


def test_nested_answer_is_refused(vault: TestVault, browser: Browser, key: SoftPasskey) -> None:
    form = signed(browser, key)
    data = base64.b64decode(form["client_data"]).removesuffix(b"}") + b',"x":' + b"[" * 2_000
    answer = approve(browser, {**form, "client_data": base64.b64encode(data).decode()})
    assert answer.code == 400
    assert "not the signature of a passkey" in said(answer)


def test_answer_of_10_megabytes_is_refused(
    vault: TestVault, browser: Browser, key: SoftPasskey
) -> None:
    answer = approve(browser, {**signed(browser, key), "signature": "A" * 10_000_000})
    assert answer.code in (0, 413)  # it may close before all has arrived
    _untouched(vault)


def test_unsigned_approval_is_refused(vault: TestVault, browser: Browser) -> None:
    answer = approve(browser, browser.fields(PAGE))
    assert answer.code == 400
    assert "this one is not" in said(answer)
    _untouched(vault)


def test_signed_approval_with_remark_is_refused(
    vault: TestVault, browser: Browser, key: SoftPasskey
) -> None:
    answer = approve(browser, {**signed(browser, key), "remark": "Be quick."})
    assert "takes no remark" in said(answer)
    _untouched(vault)


def test_unaccepted_passkey_is_refused(vault: TestVault, browser: Browser) -> None:
    other = SoftPasskey()
    add(vault, browser, other, accept=False)
    answer = approve(browser, signed(browser, other))
    assert answer.code == 400
    assert "does not hold" in said(answer)
    _untouched(vault)


def test_passkey_of_another_login_is_refused(
    vault: TestVault, browser: Browser, key: SoftPasskey
) -> None:
    link = vault.click("board", "login", "--name", "Berta").stdout.strip()
    other = Browser(browser.port)
    other.login(link)
    assert "no accepted passkey" in other.get(PAGE).text
    asked = key.answer(challenge_on(browser), browser.origin)
    answer = approve(other, {**other.fields(PAGE), **form_of(asked)})
    assert answer.code == 400
    assert "no accepted passkey" in said(answer)
    _untouched(vault)


@pytest.mark.parametrize("point", ["", "x", "é", "A" * 88, "A" * 10_000])
def test_wrong_public_key_is_not_listed(vault: TestVault, browser: Browser, point: str) -> None:
    before = (vault.root / "System/allowed_signers").read_bytes()
    token = browser.fields("/browsers")["token"]
    assert browser.post("/passkeys", {"token": token, "point": point}).code == 400
    assert (vault.root / "System/allowed_signers").read_bytes() == before


def test_listed_key_is_not_added_again(
    vault: TestVault, browser: Browser, key: SoftPasskey
) -> None:
    before = (vault.root / "System/allowed_signers").read_bytes()
    add(vault, browser, key, accept=False)
    assert (vault.root / "System/allowed_signers").read_bytes() == before


def test_damaged_list_is_reported_on_page(vault: TestVault, browser: Browser) -> None:
    path = vault.root / "System/allowed_signers"
    before = path.read_bytes()
    path.write_bytes(before + b"* ssh-ed25519 AAAA\n")
    try:
        page = browser.get("/browsers")
        assert (page.code, "cannot be used" in page.text) == (200, True)
        assert add(vault, browser, SoftPasskey(), accept=False).code == 400
    finally:
        path.write_bytes(before)


def test_page_at_ip_address_says_where_passkeys_work(browser: Browser) -> None:
    link = browser  # the same board, opened by its IP address
    other = boardhttp.Browser(link.port, {f"placet-{link.port}": next(iter(link.cookies.values()))})
    assert "http://localhost" in other.get("/browsers").text
    page = other.get(PAGE).text
    assert "https and a name, or http://localhost" in page
    assert "data-challenge" not in page
    assert "placet approve say-hello" in page
    token = other.fields("/browsers")["token"]
    answer = other.post("/passkeys", {"token": token, **SoftPasskey().added()})
    assert (answer.code, "https and a name" in answer.text) == (400, True)


@pytest.mark.parametrize("twice", ["in turn", "at once"])
def test_answer_counts_once(tmp_path: Path, key: SoftPasskey, twice: str) -> None:
    vault = planned(tmp_path)
    with served(vault) as board:
        browser = owner(board)
        add(vault, browser, key)
        form, codes = signed(browser, key), list[int]()
        tabs = [
            threading.Thread(target=lambda: codes.append(approve(browser, form).code))
            for _ in range(2)
        ]
        for tab in tabs:
            tab.start()
            if twice == "in turn":
                tab.join()
        for tab in tabs:
            tab.join()
        assert 303 in codes
        assert 500 not in codes
        vault.once()
        assert len(vault.rows("plan.approved")) == 1
        assert approve(browser, form).code == 409


def test_wider_scope_has_signature_of_its_own(tmp_path: Path, key: SoftPasskey) -> None:
    wider = ("request_scope", {"why": "A second file.", "write": ["more.txt"], "run": []})
    vault = planned(tmp_path, SIGNED, wider)
    with served(vault) as board:
        browser = owner(board)
        add(vault, browser, key)
        old = signed(browser, key)
        assert approve(browser, old).code == 303
        vault.once()
        form = signed(browser, key)
        for wrong in (browser.fields(PAGE), {**old, "digest": form["digest"]}):
            assert browser.post(f"{PAGE}/widen", wrong).code == 400
        assert not vault.rows("plan.amended")
        assert browser.post(f"{PAGE}/widen", form).code == 303
        vault.once()
    (row,) = vault.rows("plan.amended")
    assert row["metadata"]["signer"] == "anna"
    assert vault.rows("execution.completed")


def test_unsigned_board_is_as_before(tmp_path: Path) -> None:
    vault = planned(tmp_path, "")
    with served(vault) as board:
        assert board.link.startswith("http://127.0.0.1:")
        browser = board.owner()
        pages = browser.get("/browsers").text + browser.get(PAGE).text
        assert "passkey" not in pages.lower().replace("form.passkey", "")
        token = browser.fields("/browsers")["token"]
        assert browser.post("/passkeys", {"token": token, "point": "x"}).code == 400
        assert not (vault.root / "System/allowed_signers").exists()


def test_optional_signature_is_asked_with_passkey(tmp_path: Path, key: SoftPasskey) -> None:
    vault = planned(tmp_path, "[approval]\nsign = true\n")
    with served(vault) as board:
        assert board.link.startswith("http://localhost:")
        browser = owner(board)
        assert "data-challenge" not in browser.get(PAGE).text
        add(vault, browser, key)
        assert approve(browser, signed(browser, key)).code == 303
        vault.once()
    (row,) = vault.rows("plan.approved")
    assert row["metadata"]["signer"] == "anna"


def test_only_https_names_and_localhost_have_passkeys() -> None:
    good = ["http://localhost:8763", "https://localhost", "https://notes.example:8443"]
    bad = ["http://127.0.0.1:8763", "https://127.0.0.1", "http://[::1]:1", "https://[::1]"]
    bad += ["http://notes.example", "http://192.168.1.2:8763", "http://localhost.example", ""]
    assert [one for one in good if no_passkeys_at(one)] == []
    assert [one for one in bad if not no_passkeys_at(one)] == []


def test_page_origin_is_https_behind_proxy() -> None:
    door = Door(frozenset(), Tokens(b"k" * 32, "run"), 8763)
    headers = Headers({"host": "Notes.example"})
    assert door.origin(headers, {door.cookie(https=False): "x"}) == "http://notes.example"
    assert door.origin(headers, {door.cookie(https=True): "x"}) == "https://notes.example"


def test_login_name_becomes_signer_name() -> None:
    assert signer_name("Anna  Berg") == "anna-berg"
    for who in ("Zoë", "*", "a,b", "!a", "a?", "x" * 65):
        with pytest.raises(UserError, match="cannot sign"):
            signer_name(who)
