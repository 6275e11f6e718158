"""Test that texts of models, notes and repositories stay inert on the board's pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from copy import copy, deepcopy
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

import pytest
from markupsafe import Markup, escape
from starlette.datastructures import Headers
from starlette.requests import Request

from boardhttp import elements, served
from payloads import HIDDEN, payloads
from placet.case.life_cycle import State
from placet.case.waiting import WaitReason
from placet.client.branches import MergeOutlook
from placet.client.cases import ModelWait, Progress
from placet.errors import UserError
from placet.plan.allowed_signers import Signer
from placet_board.actions import BUTTONS, Refused, RequestTemplate
from placet_board.address import Address
from placet_board.auth import Door, LoggedIn, Session, Tokens, logged_in
from placet_board.command import tell_link
from placet_board.difference import PatchFile, PatchLine
from placet_board.live import Live
from placet_board.markdown import MAX_NESTING, html_of, seen, seen_name
from placet_board.pages import Board, Card, Column, path_html, prose
from placet_board.passkeys import Signing
from placet_board.request_page import Track, request_page
from vaultkit import TestVault, make_vault

TAGS_OF_TEXTS = {
    **dict.fromkeys(
        [
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "h6",
            "p",
            "em",
            "strong",
            "s",
            "hr",
            "br",
            "ul",
            "li",
            "thead",
            "tbody",
            "tr",
        ],
        (),
    ),
    **dict.fromkeys(("blockquote", "th", "td", "span"), ("class",)),
    "div": ("aria-label", "class", "role", "tabindex"),
    "ol": ("start",),
    "pre": ("tabindex",),
    "code": (),
    "table": (),
}
CLASSES = {
    *("wide", "callout alarming", "callout calm", "to-left", "to-center", "to-right"),
    *("added", "removed", "where", "same"),
}
ADDRESS = re.compile(
    r"/(static/(board\.(css|js)|(diff|new)\.js|charts\.css|icon\.svg|icon-180\.png|board\.webmanifest)"
    r"|new|numbers|login|browsers"
    r"|journal(\.csv|/trace/[\w.~%-]+)?(\?[\w.~%&=-]*)?|r/[\w.~%/-]+(#file-\d)?)?"
)
FRAGMENTS = {"#main", *(f"#file-{number}" for number in range(10))}
HARMLESS = "harmless"
NOW = "2026-11-23T04:00:00Z"
KEPT = {
    "state",
    "said",
    "failed",
    "kind",
    "digest",
    "plan_digest",
    "since",
    "at",
    "when",
    "key",
    "hint",
    "timestamp",
    "points",
    "anchor",
}
"""Values of the program's own: words of a fixed set, digests, moments."""


def checked(html: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the elements of a page outside of notes and colours, and check those of both."""
    found = []
    for tag, attributes in elements(html):
        for name in ("href", "src", "action", "formaction"):
            where = attributes.get(name, "#main") or ""
            assert where in FRAGMENTS or ADDRESS.fullmatch(where), (tag, attributes)
        assert not any(name.startswith("on") or name == "style" for name in attributes), (
            tag,
            attributes,
        )
        found.append((tag, tuple(sorted(attributes))))
    return found


def hostile_note(html: Markup) -> None:
    """Check a rendered note: the elements of markdown, and nothing else."""
    for tag, attributes in elements(str(html)):
        assert tag in TAGS_OF_TEXTS, (tag, html)
        assert set(attributes) <= set(TAGS_OF_TEXTS[tag]), (tag, attributes)
        assert attributes.get("class") in {None, *CLASSES}, attributes
        assert (attributes.get("start") or "1").isdecimal()


def test_rendered_note_contains_only_inert_elements() -> None:
    forms = ("{}", "# {0}\n\n{0}", "> {}", "- {}", "a {} b", "**{}**", "```diff\n+{}", "```{}\nx")
    for text in payloads():
        for form in forms:
            hostile_note(html_of(form.format(text)))


def test_rendered_sentences_and_paths_stay_inert() -> None:
    for text in payloads():
        for html in (prose(text), prose(f"a `{text}` b"), path_html(text)):
            for tag, attributes in elements(str(html)):
                assert tag in ("code", "wbr", "b"), html
                assert not attributes


def test_payload_list_has_at_least_300_entries() -> None:
    assert len(payloads()) >= 300


@pytest.mark.parametrize("char", HIDDEN)
def test_hidden_characters_are_spelled_out_in_notes(char: str) -> None:
    html = html_of(f"`a{char}b` {char} **x{char}**\n\n```\n{char}\n```\n")
    assert char not in html
    assert f"{ord(char):x}" in html.lower()


@pytest.mark.parametrize("depth", [MAX_NESTING // 2 + 1, MAX_NESTING, 400, 5_000])
def test_deeply_nested_text_is_still_shown(depth: int) -> None:
    for text in (
        "> " * depth + "unseen?",
        "".join("  " * n + "- a\n" for n in range(min(depth, 300)))
        + "  " * min(depth, 300)
        + "- unseen?",
    ):
        assert "unseen?" in html_of(text)


# --- pages with hostile values -----------------------------------------------------------------


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> TestVault:
    """A vault with a request in each state that has a page of its own, full of hostile texts."""
    vault = make_vault(tmp_path_factory.mktemp("texts"))
    bad = '"><script>alert(1)</script><img src=x onerror=alert(1)>\u202e[x](javascript:alert(1))'
    file = 'a"><img src=x onerror=alert(1)>.md'
    plan = {
        "title": bad,
        "summary": bad,
        "risks": [bad],
        "steps": [{"title": bad, "description": bad, "tools": ["write_file"], "done_when": [bad]}],
        "scope": {"write": ["*.md"], "run": []},
    }
    (vault.root / "System/Agents").mkdir(exist_ok=True)
    (vault.root / f"System/Templates/{file}").write_text(
        f"{bad}\n</textarea><script>alert(1)</script>"
    )
    vault.script(
        ("plan", [{"text": bad, "calls": [("submit_plan", plan)]}]),
        (
            "execute",
            [
                {"text": bad, "calls": [("write_file", {"path": file, "content": bad + "\n"})]},
                {"calls": [("read_file", {"path": bad})]},
                {"calls": [("complete_step", {"step": 1, "summary": bad})]},
                {"calls": [("finish", {"summary": bad})]},
            ],
        ),
        request="done*",
    )
    vault.script(("plan", [{"calls": [("submit_plan", plan)]}]), request="waits*", more=True)
    vault.script(
        (
            "plan",
            [{"calls": [("ask_person", {"question": bad, "options": [bad, "b"], "why": bad})]}],
        ),
        request="asks*",
        more=True,
    )
    vault.script(
        ("plan", [{"calls": [("submit_plan", plan)]}]),
        ("execute", [{"text": bad, "calls": [("give_up", {"reason": bad})]}]),
        request="fails*",
        more=True,
    )
    for name in ("done", "waits", "asks", "fails"):
        vault.drop(
            f'---\nodd: "<b>{HIDDEN[0]}"\n---\n# {bad}\n\n{bad}\n',
            f"{name} <img src=x onerror=alert(1)>.md",
        )
    vault.drop(f'---\nagent: "<script>"\n---\n{bad}\n', "no <script>.md")
    vault.once()
    for plan_note in (vault.root / "Inbox/Plans").glob("*_plan.md"):
        if plan_note.name.startswith(("done", "fails")):
            ident = plan_note.name.removesuffix("_plan.md")
            plan_note.rename(vault.active(ident))
    vault.once(code=0)
    return vault


def idents(vault: TestVault) -> dict[str, str]:
    found = {
        row["entity_id"].split("-")[0]: row["entity_id"] for row in vault.rows("request.detected")
    }
    return {name: found[name] for name in ("done", "waits", "asks", "fails")}


def test_pages_of_hostile_vault_contain_no_injection(vault: TestVault) -> None:
    ids = idents(vault)
    assert vault.rows("execution.completed")
    assert vault.rows("execution.failed")
    assert vault.rows("question.asked")
    with served(vault) as board:
        browser = board.browser()
        browser.login(board.link)
        bad = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E%E2%80%AE"
        ahead = ["/", "/new", "/login", f"/?portal={bad}&agent={bad}&text={bad}", f"/login?t={bad}"]
        ahead += [f"/new?template={bad}", f"/r/{bad}", f"/{bad}", f"/static/{bad}"]
        ahead += [f"/r/{ids['waits']}?said={bad}", *(f"/r/{ident}" for ident in ids.values())]
        ahead += ["/new?template=a%22%3E%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"]
        seen = {path.partition("?")[0] for path in ahead}
        while ahead:
            path = ahead.pop()
            answer = browser.get(path)
            assert answer.code in (200, 404, 405), (path, answer.code, answer.text)
            if not answer.header("content-type").startswith("text/html"):
                assert answer.header("content-type").partition(";")[0] in (
                    "text/plain",
                    "text/csv",
                    "text/css",
                    "text/javascript",
                    "image/svg+xml",
                    "image/png",
                    "application/manifest+json",
                )
                continue
            page = answer.text
            assert not re.search(
                r"<script(?! (type=\"module\" )?src=\"/static/(board|diff|new)\.js\"( defer)?>)",
                page,
            ), path
            # what is sent, and not drawn
            drawn = re.sub(r'(type="(?:radio|hidden)" name="\w+") value="[^"]*"', r"\1", page)
            assert not set(drawn) & set(HIDDEN), path
            for tag, attributes in elements(page):
                ours = tag == "svg" and attributes.get("class") in ("drawing", "swatch")
                foreign = ("img", "iframe", "svg", "style", "base", "object", "embed")
                assert ours or tag not in foreign, (path, tag, attributes)
                for name, value in attributes.items():
                    assert not name.startswith("on"), (path, tag, attributes)
                    assert name != "style", (path, tag, attributes)
                    if name in ("href", "src", "action", "formaction"):
                        assert re.match(r"/(?![/\\])|#[a-z0-9-]+$", value or ""), (
                            path,
                            tag,
                            attributes,
                        )
                        where = (value or "").partition("#")[0].partition("?")[0]
                        if name == "href" and where not in seen:
                            seen.add(where)
                            ahead.append(value or "")
        for act in ("approve", "answer", "none"):
            fields = {**browser.fields(f"/r/{ids['waits']}"), "digest": '"><script>', "own": "<b>"}
            page = browser.post(f"/r/{ids['waits']}/{act}", fields).text
            assert page.count("<script") == 1
        assert len(seen) > 10


# --- the templates with hostile values, one by one -----------------------------------------------


def poisoned(value: Any, text: str, name: str = "") -> Any:
    """Return a page's values with every text that may be anybody's replaced."""
    if name in KEPT or value is None or isinstance(value, (bool, int, float, Enum)):
        return value
    if isinstance(value, Column):
        cards, others = poisoned((value.cards, value.others), text)
        return replace(value, cards=cards, others=others)
    if isinstance(value, PatchLine):
        return replace(value, html=escape(seen(text)))
    if isinstance(value, Markup):
        return html_of(text)
    if isinstance(value, str):
        return seen(text) if name == "raw" else text  # `request_page` writes it out
    if isinstance(value, UserError):
        return UserError(text, text)
    if isinstance(value, Mapping):
        return {key: poisoned(one, text, str(key)) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [poisoned(one, text, name) for one in value]
    if is_dataclass(value):
        made = copy(value)  # past the checks of its class: a page has to be safe by itself
        for one in fields(value):
            object.__setattr__(made, one.name, poisoned(getattr(value, one.name), text, one.name))
        return made
    return value


@pytest.fixture(scope="module")
def board(vault: TestVault) -> Board:
    door = Door(frozenset({"127.0.0.1:1"}), tokens=Tokens(b"k" * 32, "run"), port=1)
    return Board(vault.root, vault.env, door, Live(vault.site))


@pytest.fixture(scope="module")
def pages(vault: TestVault, board: Board) -> list[tuple[str, dict[str, Any]]]:
    """The templates, each with values that show all of it."""
    site = vault.site
    refused = Refused("x", "x", "x", {"comment": "x"})
    said = {"said": "x", "said_at": "", "typed": ["comment"], "refused": refused}
    found = [
        ("request.html", {**said, **request_page(site, ident)}) for ident in idents(vault).values()
    ]
    progress = Progress(1, 2, 3, 1.0, 2.0)
    running = deepcopy(found[0][1])
    running["found"] = replace(
        running["found"],
        intent="approve",
        failure="x",
        approved_by="x",
        portal="x",
        progress=progress,
        state=State.FAILED,
    )
    running["no_patch"] = UserError("x")
    running["can"] = frozenset(BUTTONS)
    running["merging"] = MergeOutlook("x", 1, 2, 3, ("x",))
    card = Card(
        "x", "x", "review", "x", "x", NOW, "x", "x", 7, ("x",), 2, progress,
        "x", Track(2, "waits"),
    )  # fmt: skip
    wait = ModelWait(WaitReason.BLOCKED, "x", NOW, "x")
    status = replace(board.status(site)[0], paused=True, waits=wait, stuck=("x",), daemon=None)
    index = {
        "found": status,
        "columns": [Column("requests", "Requests", "hint", (card,), (("x", "x"),))],
        "choices": {"portal": ["x"], "agent": ["x"]},
        "wanted": {"portal": "x", "agent": "x", "text": "x"},
        "problem": UserError("x"),
    }
    new = {
        "templates": [RequestTemplate("x", "x", "x")],
        "agents": ["x"],
        "portals": ["x"],
        **dict.fromkeys(("title", "chosen", "text", "agent", "portal", "priority"), "x"),
        "budget_usd": "x",
    }
    error = {"error": UserError("x", "x"), "typed": ["x"]}
    line = PatchLine("added", escape("x"), 1)
    changed = PatchFile(0, "x", 1, 0, 5_000, (line,), "x", (("x", "x"),))
    browsers = {"browsers": {"x": LoggedIn("x", "x", NOW)}, "mine": "x"}
    signer = Signer("x", b"x", "x", "x")
    passkeys = {"found": [(signer, True), (signer, False)], "why": "x", "user": "x"}
    return [
        *found,
        ("request.html", running),
        ("request.html", {**running, "sign": Signing("x", "x")}),
        ("request.html", {**running, "merging": MergeOutlook(why_not="x")}),
        ("request.html", {**running, "sign": Signing(why="x")}),
        ("index.html", index),
        ("new.html", new),
        ("error.html", error),
        ("first.html", {"found": status, "problem": UserError("x")}),
        ("change.html", {"ident": "x", "file": changed}),
        ("asked.html", {"path": "x", "ident": "x", "daemon": True}),
        ("browsers.html", {**browsers, "passkeys": None}),
        ("browsers.html", {**browsers, "passkeys": passkeys}),
        ("browsers.html", {**browsers, "passkeys": {**passkeys, "why": ""}}),
        ("login.html", {"link": "x", "failed": ""}),
    ]


def shape(board: Board, name: str, values: Mapping[str, Any], text: str) -> list[Any]:
    """Return the elements of a template with this text everywhere, without those of notes."""
    request = Request({"type": "http", "path": f"/r/{text}/x", "headers": [], "query_string": b""})
    request.state.session = Session(text, "i")
    mine = poisoned(values, text)
    if name == "new.html":  # as `actions.form` gives them: what is chosen is what is shown
        named = [replace(one, name=seen_name(text)) for one in mine["templates"]]
        mine |= {"templates": named, "chosen": seen_name(text)}
    html = bytes(board.page(request, name, **mine).body).decode()
    for note in map(str, (html_of(text), prose(text), path_html(text))):  # tested on their own
        html = html.replace(note, "") if "<" in note else html
    drawn = re.sub(r' value="[^"]*"', "", html)
    assert not set(drawn) & set(HIDDEN), (name, re.findall(f".{{0,99}}[{HIDDEN}].*", drawn))
    return checked(html)


def test_hostile_text_never_changes_page_elements(
    board: Board, pages: list[tuple[str, dict[str, Any]]]
) -> None:
    bad = payloads()
    for at, (name, values) in enumerate(pages):
        expected = shape(board, name, values, HARMLESS)
        for text in bad[at :: len(pages)] + bad[at::40]:
            assert shape(board, name, values, text) == expected, (name, text)


@pytest.mark.sweep
def test_sweep_of_payloads_changes_no_page_elements(
    board: Board, pages: list[tuple[str, dict[str, Any]]]
) -> None:
    for name, values in pages:
        expected = shape(board, name, values, HARMLESS)
        for text in payloads():
            assert shape(board, name, values, text) == expected, (name, text)
    print(f"{len(payloads())} texts in each place of {len(pages)} pages")


def test_headings_of_a_note_nest_below_the_page() -> None:
    html = html_of("# a\n\n### b\n\n## c\n\n# d\n\ne\n---\n")
    assert re.findall(r"<(h\d)>(\w)</\1>", html) == [
        ("h3", "a"), ("h4", "b"), ("h4", "c"), ("h3", "d"), ("h4", "e")
    ]  # fmt: skip


def test_wikilink_is_shown_without_brackets() -> None:
    assert html_of("See [[Redraw it]].") == "<p>See Redraw it.</p>\n"
    for kept in ("![[a.png]]", "[[a|b]]", "`[[a]]`"):
        assert kept.strip("`") in html_of(kept)


def test_wide_table_can_be_scrolled_by_keyboard() -> None:
    html = html_of("| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert '<div class="wide" tabindex="0" role="group" aria-label="Table"><table>' in html


def test_qr_code_is_shown_only_if_it_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    at, tokens = Address("192.168.1.20", 8763), Tokens(b"k" * 32, "run")
    monkeypatch.setenv("LINES", "24")
    tell_link(tokens, at, "ann")
    assert capsys.readouterr().out.count("\n") == 1 + 20
    # behind a proxy the phone comes by that name
    named = Address("127.0.0.1", 8763, ("machine.tailnet-name.ts.net",))
    tell_link(tokens, named, "ann")
    link, _, code = capsys.readouterr().out.partition("\n")
    assert link.startswith("https://machine.tailnet-name.ts.net/login?t=")
    assert len(link) <= 106, "what a code of 37 rows holds"
    assert code.count("\n") == 20
    tell_link(tokens, Address("127.0.0.1", 8763), "ann")
    assert capsys.readouterr().out.count("\n") == 1, "no phone gets there"
    monkeypatch.setenv("LINES", "20")
    tell_link(tokens, at, "ann")
    shown = capsys.readouterr()
    assert shown.out.count("\n") == 1, "the link alone"
    assert "needs a terminal with 22 lines" in shown.err
    assert "placet board login" in shown.err


def test_https_origin_is_accepted_only_for_proxied_name() -> None:
    name = frozenset({"notes.example.home"})
    door = Door(name | {"127.0.0.1:1"}, Tokens(b"k" * 32, "run"), 1, proxied=name)

    def ours(host: str, scheme: str) -> bool:
        return door.comes_from_us(Headers({"host": host, "origin": f"{scheme}://{host}"}))

    assert ours("notes.example.home", "https")
    assert ours("127.0.0.1:1", "http")
    assert not ours("127.0.0.1:1", "https")
    login = door.tokens.login("ann")
    answer = logged_in(door, login, https=True)
    assert answer is not None
    assert answer.headers["set-cookie"].startswith("__Host-placet-1=")
    assert "; Secure" in answer.headers["set-cookie"]
    cookie = answer.headers["set-cookie"].partition(";")[0].partition("=")
    cookies = {cookie[0]: cookie[2]}
    assert door.session(Headers({"host": "notes.example.home"}), cookies) is not None
    assert door.session(Headers({"host": "127.0.0.1:1"}), cookies) is None
