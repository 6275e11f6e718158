"""Plans, questions and wider scopes on a phone: as near to Obsidian's reading view as a markdown
renderer gets, 390 pixels wide, in a real browser. No line is cut off, nothing scrolls sideways.

`PLACET_PICTURES=FOLDER` keeps the screenshots.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from looping import Fake, Time, bare_vault, looping, says, turns_taken
from placet.chat.messages import Ask, Purpose, Reply
from placet.note.frontmatter import read_note, stamp
from vaultkit import TestVault

BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chrome-headless-shell")
WIDTH = 390
STYLE = """
body { margin: 0; font: 16px/1.5 sans-serif; color: #222; }
main { padding: 0 16px; overflow-wrap: break-word; }
pre, code { font-family: monospace; font-size: 14px; white-space: pre-wrap; }
pre { background: #f4f4f4; padding: 12px; }
.callout { border-left: 4px solid #486; background: #eef4f0; padding: 8px 12px; margin: 12px 0; }
.callout .callout { margin: 8px 0; }
.title { font-weight: bold; }
table.properties td { vertical-align: top; padding: 2px 6px; overflow-wrap: anywhere; }
ul { padding-left: 22px; }
"""
MEASURE = """
<script>
const wide = [...document.querySelectorAll('main, main *')].filter(
  one => one.getBoundingClientRect().right > innerWidth + 0.5 || one.scrollWidth > one.clientWidth + 1
    && getComputedStyle(one).display !== 'inline').map(one => one.outerHTML.slice(0, 200));
document.title = JSON.stringify({page: document.documentElement.scrollWidth, wide});
</script>
"""
LONG = "src/authentication/tokens/refreshing/session_store_with_a_rather_long_name_of_its_own.py"
PLAN = {
    "title": "Refresh the session token when it expires",
    "summary": "The login keeps an expired token. The change refreshes it once.",
    "steps": [
        {
            "title": "Refresh the token in the session store",
            "description": f"In `{LONG}`, ask for a new one when less than a minute is left.",
            "tools": ["write_file"],
            "done_when": [f"`python -m pytest -q {LONG}` passes"],
        },
        {"title": "Tell what changed", "description": "A line.", "tools": ["write_file"]},
    ],
    "scope": {"write": [LONG, "CHANGELOG.md"], "run": ["python -m pytest -q"]},
    "risks": ["Theclockoftheserver" * 8],
}


def model(ask: Ask) -> Reply:
    if ask.purpose is Purpose.PLAN:
        return says(("submit_plan", PLAN))
    if ask.purpose is Purpose.REVISE:
        first = {**PLAN["steps"][0], "description": f"In `{LONG}`, when two minutes are left."}
        steps = [first, {**PLAN["steps"][1], "title": "Tell what changed, with the version"}]
        answers = ["Two minutes now.", "Step 2 names it."]
        return says(("submit_plan", {**PLAN, "steps": steps, "answers": answers}))
    if turns_taken(ask) == 0:
        question = {
            "question": "Should the user be logged out at once where that fails, or warned first?",
            "options": ["Log out at once", f"Warn, as {LONG} does", "Neither" * 20],
            "why": "Both are common, and the request does not say.",
        }
        return says(("ask_person", question))
    if turns_taken(ask) == 1:
        wider = {"why": "The clock has no double.", "write": [LONG.replace("session", "clock")]}
        return says(("request_scope", {**wider, "run": [f"python -m pytest -q {LONG}"]}))
    return says(("give_up", {"reason": "enough"}))


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A plan with comments, its revision, a question and a wider scope, as the daemon writes them."""
    vault: TestVault = bare_vault(tmp_path_factory.mktemp("narrow"))
    found: dict[str, bytes] = {}
    with looping(vault, model=lambda: Fake(model), time=Time()) as run:
        vault.drop("The session token expires. Refresh it.\n", "Refresh the token.md")
        run.settle()
        plan = vault.plan("refresh-the-token")
        found["plan"] = plan.read_bytes()
        comments = "\n## Review Comments\n\n- 1. Two minutes, please.\n- Name the version?\n"
        plan.write_text(plan.read_text() + comments)
        plan.write_bytes(stamp(plan.read_bytes(), {"decision": "revise"}))
        run.settle()
        found["revision"] = plan.read_bytes()
        plan.write_bytes(stamp(plan.read_bytes(), {"decision": "approve"}))
        run.settle()
        question = vault.root / "Inbox/Questions/refresh-the-token_1.md"
        found["question"] = question.read_bytes()
        question.write_bytes(stamp(question.read_bytes(), {"answer": "1"}))
        run.settle()
        amendment = vault.root / "Inbox/Plans/refresh-the-token_amendment1.md"
        found["amendment"] = amendment.read_bytes()
        amendment.unlink()
        run.settle()
        (report,) = vault.reports()
        found["report"] = report.read_bytes()
    return found


def reading_view(raw: bytes) -> str:
    """Return a note as a page, with its properties, callouts, task boxes and links."""
    note = read_note(raw)
    keys = "".join(
        f"<tr><td>{html.escape(key)}</td><td>{html.escape(str(value))}</td></tr>"
        for key, value in note.meta.items()
    )
    text = re.sub(r"\[\[([^\]|]+)(?:\|([^\]]+))?\]\]", r"<u>\1</u>", note.body)
    body = MarkdownIt("commonmark", {"html": True, "breaks": True}).enable("table").render(text)
    body = re.sub(r"<li>(<p>)?\[ \] ", r"<li>\1<input type=checkbox> ", body)
    body = re.sub(r"<li>(<p>)?\[x\] ", r"<li>\1<input type=checkbox checked> ", body)
    body = re.sub(
        r"<blockquote>\s*<p>\[!\w+(?:\|\w+)?\]-? ?(.*?)(<br />|</p>)",
        r"<div class=callout><p><span class=title>\1</span>\2",
        body,
    ).replace("</blockquote>", "</div>")
    head = f'<meta charset=utf-8><meta name=viewport content="width={WIDTH}"><style>{STYLE}</style>'
    table = f"<table class=properties>{keys}</table>"
    return f"<!doctype html>{head}<main>{table}{body}</main>{MEASURE}"


def browse(page: Path, *options: str) -> str:
    assert BROWSER is not None
    argv = [
        *(BROWSER, "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *(f"--window-size={WIDTH},4000", f"--user-data-dir={page.parent}/profile"),
        *(*options, page.as_uri()),
    ]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.skipif(BROWSER is None, reason="needs chromium-headless-shell")
@pytest.mark.parametrize("name", ["plan", "revision", "question", "amendment", "report"])
@pytest.mark.thinned(3)
def test_a_note_fits_a_phone(notes: dict[str, bytes], name: str, tmp_path: Path) -> None:
    page = tmp_path / f"{name}.html"
    page.write_text(reading_view(notes[name]))
    if folder := os.environ.get("PLACET_PICTURES"):
        browse(page, f"--screenshot={folder}/{name}.png")
    dom = browse(page, "--dump-dom")
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title, dom[:500]
    measured = json.loads(html.unescape(title[1]))
    assert measured["page"] <= WIDTH
    assert measured["wide"] == []
    assert len(dom) > 2_000


@pytest.mark.skipif(BROWSER is None, reason="needs chromium-headless-shell")
def test_a_line_that_does_not_fit_is_found(tmp_path: Path) -> None:
    page = tmp_path / "wide.html"
    page.write_text(reading_view(b"x" * 200).replace("overflow-wrap: break-word", ""))
    title = re.search(r"<title>(.*?)</title>", browse(page, "--dump-dom"))
    assert title
    assert json.loads(html.unescape(title[1]))["page"] > WIDTH
