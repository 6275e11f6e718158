"""Test that commands show the same with the journal in SQLite and in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pgkit
from pagekit import browsing
from vaultkit import ME, PLAN, TestVault, make_vault

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)

USED = {"input_tokens": 1000, "output_tokens": 200, "cache_read_tokens": 3000}
DOCS = Path(__file__).parents[2] / "daemon" / "docs"
QUERIES = [
    query
    for page in ("journal.md", "cost.md")
    for query in re.findall(r"```sql\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
]
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("status", "--json"),
    ("plans",),
    *((name, ident) for name in ("show", "why", "logs") for ident in ("done", "hard", "no")),
    ("logs",),
    ("cost",),
    ("cost", "--json"),
    ("journal",),
    ("journal", "--trace", "done"),
    ("journal", "verify"),
    ("diff", "done"),
    ("replay", "done"),
    ("watch", "done"),
    ("watch", "no"),
    ("journal", "--json", "--limit", "20"),
    *(("journal", "--sql", sql) for sql in QUERIES),
)
PAGES = (
    "/",
    *(f"/r/{ident}" for ident in ("done", "hard", "no")),
    *(f"/numbers?days={days}" for days in (7, 90)),
    "/numbers?agent=default&portal=(the+vault)",
    "/journal",
    "/journal?request=done",
    "/journal?text=hello",
    "/journal?text=HELLO&actor=agent",
    "/journal?action=tool.called",
    "/journal.csv",
)


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> TestVault:
    """A vault with a mission that is done, one that failed, and a rejected plan."""
    vault = make_vault(tmp_path_factory.mktemp("either"), USER=ME, LOGNAME=ME)
    plan = ("plan", [{"calls": [("submit_plan", PLAN)]}])
    write = {"calls": [("write_file", {"path": "hello.txt", "content": "hello\n"})], "usage": USED}
    ends = ("complete_step", {"step": 1, "summary": "Hello"}), ("finish", {"summary": "Done."})
    done = ("execute", [write, {"calls": [*ends], "usage": USED}])
    vault.script(plan, done, request="done")
    given_up = ("execute", [{"calls": [("give_up", {"reason": "Too hard."})], "usage": USED}])
    vault.script(plan, given_up, request="hard", more=True)
    vault.script(plan, request="no", more=True)
    for name in ("done", "hard", "no"):
        vault.drop(f"# {name}\n", f"{name}.md")
    vault.once()
    vault.approve("done")
    vault.approve("hard")
    vault.click("reject", "no", "--reason", "It is too broad")
    vault.once()
    return vault


@pytest.fixture(scope="module")
def shown(vault: TestVault) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """What is shown before and after the journal was moved to a server."""
    with pgkit.server() as server:
        before = all_of(vault)
        address = server.fresh()
        vault.click("team", "init", address)
        vault.click("journal", "move")
        yield before, all_of(vault)


def all_of(vault: TestVault) -> dict[str, str]:
    with browsing(vault) as browser:
        pages = {page: plain(browser.get(page)) for page in PAGES}
    return {" ".join(words): said(vault, words) for words in COMMANDS} | pages


def said(vault: TestVault, words: tuple[str, ...]) -> str:
    done = vault.click(*words, check=False)
    text = f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return re.sub(r'("age_s": )[0-9.]+| +\d+ (s|min)$', r"\1…", text, flags=re.MULTILINE)


def plain(page: str) -> str:
    ages = r"\d+ (?:s|min)(?=(?: ago)?</time>)"
    return re.sub(rf'(name="token" value=|nonce=|\?v=)"?[^"\s>]*|{ages}', r"\1", page)


@pytest.mark.parametrize("what", [*(" ".join(words) for words in COMMANDS), *PAGES])
@pytest.mark.thinned(3)
def test_output_is_same_after_move_to_postgres(
    shown: tuple[dict[str, str], dict[str, str]], what: str
) -> None:
    before, after = shown
    assert after[what].splitlines() == before[what].splitlines()
