"""Test the board's pages for numbers, journal, story and turns."""

from __future__ import annotations

import csv
import html
import io
import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_decisions import QUESTION, WIDER

from gitkit import make_repo
from pagekit import Browser, browsing, sqls
from placet.case.life_cycle import State
from placet.client.cases import plans, show, status
from placet.client.site import find
from placet.journal.reader import query
from placet_board.numbers import QUESTIONS, sql_of
from placet_board.pages import ROWS
from placet_board.request_page import acts
from placet_board.rows import Wanted, all_rows, rows_page
from vaultkit import DONE, ME, PLAN, TestVault, make_vault, meddling

EVIL = '</code></pre><script>alert("x")</script>'
LITERAL = {
    "title": "Write the head",
    "tools": ["write_file"],
    "actions": [{"tool": "write_file", "params": {"path": "head.txt", "content": "head\n"}}],
    "done_when": ["it is there"],
}
TWO_STEPS = {
    **PLAN,
    "steps": [LITERAL, *PLAN["steps"]],
    "scope": {"write": ["hello.txt", "head.txt"]},
}
USED = {
    "input_tokens": 1000,
    "output_tokens": 200,
    "cache_read_tokens": 3000,
    "cache_write_tokens": 500,
}
FORMULA = '=HYPERLINK("http://example.org")'


def revised(title: str) -> dict[str, Any]:
    return {**PLAN, "title": title, "summary": "Write a better greeting."}


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> TestVault:
    """A vault with a mission that is done, one that failed, a rejected plan and a revised one."""
    vault = make_vault(tmp_path_factory.mktemp("board"), USER=ME, LOGNAME=ME)
    planned = [{"text": "I look.", "calls": [("submit_plan", PLAN)]}]
    vault.script(
        ("plan", [{"calls": [("submit_plan", TWO_STEPS)]}]),
        (
            "execute",
            [
                {
                    "text": f"Now I write. {EVIL}",
                    "calls": [("write_file", {"path": "hello.txt", "content": f"hello {EVIL}\n"})],
                    **_use(),
                },
                {"calls": [("read_file", {"path": EVIL})], **_use()},
                {
                    "calls": [
                        ("complete_step", {"step": 2, "summary": "Hello"}),
                        ("finish", {"summary": "Done."}),
                    ],
                    **_use(),
                },
            ],
        ),
        request="done",
    )
    vault.script(
        ("plan", planned),
        ("execute", [{"calls": [("give_up", {"reason": f"It is too hard. {EVIL}"})]}]),
        request="hard",
        more=True,
    )
    vault.script(("plan", planned), request="no", more=True)
    vault.script(
        ("plan", planned),
        ("revise", [{"calls": [("submit_plan", revised("Say it better"))]}]),
        request="again",
        more=True,
    )
    for name in ("done", "hard", "no", "again"):
        budget = "---\nbudget_usd: 2.0\n---\n" if name == "done" else ""
        vault.drop(f"{budget}# {name} {EVIL}\n", f"{name}.md")
    vault.once()
    vault.approve("done")
    vault.approve("hard")
    vault.click("reject", "no", "--reason", "=1+1 it is too broad")
    vault.click("revise", "again", "--comment", "Say it better")
    vault.once()
    ends = {row["entity_id"]: row["action_type"] for row in vault.rows()}
    assert vault.rows("execution.completed"), ends
    assert vault.rows("execution.failed"), ends
    assert vault.rows("plan.rejected"), ends
    assert vault.rows("plan.revised"), ends
    _by_hand(vault.db)
    return vault


def _use() -> dict[str, Any]:
    return {"usage": USED}


def _by_hand(journal: Path) -> None:
    """Put rows into the journal that no daemon writes: a formula, and metadata that is not an object."""
    with closing(sqlite3.connect(journal)) as db, db:
        (last,) = db.execute("SELECT last_id FROM chain").fetchone()
        (at,) = db.execute("SELECT max(timestamp) FROM activity").fetchone()
        for number, metadata in enumerate(("{}", "[1]", "no json"), 1):
            db.execute(
                "INSERT INTO activity VALUES (?, ?, '', 'system', ?, 'odd.row', 'daemon', ?, ?, ?)",
                (last + number, at, "@agent", FORMULA, metadata, "0" * 64),
            )
        db.execute("UPDATE chain SET last_id = ?", (last + 3,))
        db.executemany("INSERT INTO paid VALUES ('standard', ?, ?)", [(1, 0.1), (2, 0.3), (3, 0.2)])


@pytest.fixture
def browser(vault: TestVault) -> Iterator[Browser]:
    with browsing(vault) as found:
        yield found


# --- numbers


def test_each_chart_has_table_and_sql(browser: Browser) -> None:
    page = browser.get("/numbers")
    assert page.count("<svg") - page.count('class="swatch"') == 3
    assert page.count('role="img"') == page.count("<desc") == 3
    assert page.count("Table</summary>") == page.count("SQL</summary>") == 3
    for told in ("1 completed, 0 stopped, 1 failed", "The median of each day; 4 decisions"):
        assert told in page


@pytest.mark.parametrize("days", [7, 30, 90])
@pytest.mark.thinned(3)
def test_sql_shown_on_numbers_page_runs_verbatim(
    browser: Browser, vault: TestVault, days: int
) -> None:
    found = sqls(browser.get(f"/numbers?days={days}&agent=default&portal=(the+vault)"))
    assert len(set(found)) == len(QUESTIONS) == 3
    for sql in found:
        head, rows = query(vault.db, sql)
        assert head[0] == "day"
        assert rows, sql


def test_journal_command_runs_sql_from_page(browser: Browser, vault: TestVault) -> None:
    (sql, *_) = sqls(browser.get("/numbers"))
    shown = vault.click("journal", "--sql", sql).stdout
    assert re.fullmatch(r"day\tcompleted\tstopped\tfailed\n[0-9-]+\t1\t0\t1\n", shown)


def test_unknown_filter_values_never_reach_sql(browser: Browser) -> None:
    page = browser.get("/numbers?agent=x'%20OR%201&portal=%00&days=9999999")
    assert "OR 1" not in page
    assert "the last 30 days begin at row 1\n" in page


def test_slow_numbers_query_fails_alone(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    monkeypatch.setattr("placet_board.numbers.COUNT_S", 0.2)
    monkeypatch.setattr(
        "placet_board.numbers.sql_of",
        lambda name, *rest: endless if name == "cost" else sql_of(name, *rest),
    )
    page = browser.get("/numbers")
    assert page.count("the query took over 0 s") == 1
    assert "1 completed, 0 stopped, 1 failed" in page


def test_browsers_share_cached_numbers(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    first = browser.get("/numbers")
    monkeypatch.setattr("placet_board.numbers.query", None)  # nothing is asked again
    assert browser.get("/numbers?agent=nobody") == first
    monkeypatch.setattr("placet_board.numbers.SHARED_S", -1.0)
    browser.get("/numbers", 500)


def test_empty_numbers_page_suggests_next_action(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    with browsing(vault) as browser:
        for path in ("/numbers", "/journal"):  # no daemon ran yet
            page = browser.get(path)
            assert "/new" in page or "placet run" in page
        browser.get("/journal.csv", 404)
        vault.once()
        assert 'href="/new">write a request</a>' in browser.get("/numbers")


# --- the journal


def today() -> date:
    return datetime.now().astimezone().date()


def is_of_today(moment: str) -> bool:
    return datetime.fromisoformat(moment).astimezone().date() == today()


def rows_of(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'id="row-(\d+)"', page)]


def test_journal_pages_have_no_gaps(vault: TestVault) -> None:
    last = rows_page(vault.db, Wanted(), 1).rows[0].id
    seen, below = [], 0
    while True:
        page = rows_page(vault.db, Wanted(below=below), 7)
        seen += [row.id for row in page.rows]
        if not page.following:
            break
        below = page.following
    assert seen == list(range(last, 0, -1))


def test_journal_page_scan_is_limited_and_resumable(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placet_board.rows.SCANNED", 10)
    page = rows_page(vault.db, Wanted(action="daemon.started"), 5)
    assert page.is_cut
    assert page.following
    found = [row.id for rows in all_rows(vault.db, Wanted(action="daemon.started")) for row in rows]
    assert found == [row["id"] for row in reversed(vault.rows("daemon.started"))]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("action=plan.rejected", lambda row: row["action_type"] == "plan.rejected"),
        ("actor=human", lambda row: row["actor"] == "human"),
        ("text=TOO+BROAD", lambda row: "too broad" in str(row["metadata"])),
        ("action=model.called&actor=human", lambda _: False),
        ("day=TODAY", lambda row: is_of_today(row["timestamp"])),
        ("day=2026-01-31", lambda _: False),
    ],
)
@pytest.mark.thinned(3)
def test_journal_filters_apply_to_page_and_csv(
    browser: Browser, vault: TestVault, asked: str, expected: Any
) -> None:
    with closing(sqlite3.connect(vault.db)) as db:
        db.row_factory = sqlite3.Row
        all_of = [dict(row) for row in db.execute("SELECT * FROM activity ORDER BY id DESC")]
    ids = [row["id"] for row in all_of if expected(row)]
    asked = asked.replace("TODAY", str(today()))
    page = browser.get(f"/journal?{asked}")
    assert rows_of(page) == ids[:ROWS]
    lines = list(csv.reader(io.StringIO(browser.get(f"/journal.csv?{asked}"))))
    assert [int(line[0]) for line in lines[1:]] == ids


def test_journal_can_be_filtered_by_request(browser: Browser, vault: TestVault) -> None:
    trace = vault.rows("plan.rejected")[0]["trace_id"]
    ids = [row.id for rows in all_rows(vault.db, Wanted(trace_id=trace)) for row in rows]
    assert len(ids) > 5
    assert rows_of(browser.get("/journal?request=no")) == ids
    assert "There is no request" in browser.get("/journal?request=nothing-like-it")
    assert "is not a date" in browser.get("/journal?day=yesterday")
    browser.get("/journal.csv?request=nothing-like-it", 404)
    for odd in ("below=-1", "below=1e9", "below=" + "9" * 99, "day=9999-12-31", "day=0001-01-01"):
        browser.get(f"/journal?{odd}")


def test_journal_page_links_to_older_rows(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placet_board.pages.ROWS", 5)
    first = browser.get("/journal?actor=system")
    (link,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = browser.get(html.unescape(link))
    assert len(rows_of(first)) == len(rows_of(second)) == 5
    assert max(rows_of(second)) < min(rows_of(first))


def test_csv_export_neutralizes_formulas(browser: Browser) -> None:
    answer = browser.client.get("/journal.csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="journal.csv"'
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    lines = list(csv.reader(io.StringIO(answer.text)))
    assert {len(line) for line in lines} == {10}
    cells = {cell for line in lines for cell in line}
    assert {f"'{FORMULA}", "'@agent"} <= cells
    assert not [cell for cell in cells if cell[:1] in "=+-@\t\r" and cell]


def test_trace_page_tells_request_history_in_order(browser: Browser) -> None:
    page = browser.get("/journal/trace/done")
    assert "What happened to done &lt;/code&gt;" in page, "its title, and not its name"
    sentences = [
        "request seen: Inbox/Requests/done.md",
        "a plan waits for you",
        "approved by",
        "the mission started: 2 steps",
        "step 2 of 2 done",
        "completed: 2 files changed",
    ]
    assert sorted(page.index(one) for one in sentences) == [page.index(one) for one in sentences]
    assert "from the first event to the last" in page
    browser.get("/journal/trace/nothing-like-it", 404)


# --- one request


def test_request_in_work_says_for_how_long(browser: Browser) -> None:
    assert re.search(r'class="meta">.*<span title="[^"]+">for <time', browser.get("/r/again"))
    assert re.search(r'class="meta">.*ago</time>', browser.get("/r/done"))
    cards = re.findall(r'<p class="foot">.*', browser.get("/"))
    assert {"Plan 2 to review" in card for card in cards} == {True, False}
    assert all(("for <time" in card) is ("to review" in card) for card in cards)


def test_track_of_dots_has_its_words_as_title(browser: Browser) -> None:
    assert re.search(r'role="img" aria-label="(Done: [^"]+)" title="\1"', browser.get("/r/done"))


def test_each_history_line_is_time_and_one_text(browser: Browser) -> None:
    for path in ("/r/done", "/journal/trace/done"):
        page = browser.get(path)
        lines = re.findall(r"<li[^>]*>(.*?)</li>", page[page.index('<ol class="story') :])
        assert len(lines) > 5
        for line in lines:  # a third element would be a line of its own, in the column of times
            depths = [tag for tag, _ in top_elements(line)]
            assert depths == ["span", "span"], line


def top_elements(text: str) -> list[tuple[str, str]]:
    """Return the elements and bare texts of a piece of HTML that lie in no other."""
    found: list[tuple[str, str]] = []
    open_ = 0
    for close, tag, word in re.findall(r"<(/?)(\w+)[^>]*>|([^<>]+)", text):
        if not open_ and (word.strip() or (tag and not close)):
            found.append((tag or "text", word))
        if tag and tag != "wbr":
            open_ += -1 if close else 1
    return found


def test_request_page_lists_iterations_with_tool_calls(browser: Browser) -> None:
    page = browser.get("/r/done")
    work = page[page.index("The mission, iteration by iteration") :]
    assert "3 of 10 iterations used." in work
    assert "Time by step" in work
    assert re.search(r'aria-label="2\. .*" value="[0-9.]+" max="[0-9.]+"', work)
    assert work.index("step 1</span> <strong>write_file</strong> path=head.txt") > 0
    assert [work.index(f"Iteration {number}<") for number in (1, 2, 3)]
    assert "Now I write. &lt;/code&gt;" in work
    assert "1,500 + 3,000 cached tokens in, 200 out" in work
    assert re.search(r'<li class="bad">.*read_file', work)
    assert ">running" not in work  # it is over, whatever call has no result


def test_report_folds_what_few_people_read(browser: Browser) -> None:
    page = browser.get("/r/done")
    report = page[page.index('id="h-report"') : page.index("Plain text")]
    at = [report.index(f"<h3>{one}</h3>") for one in ("Steps", "Files Changed")]
    at += [
        report.index(f"<details><summary>{one}</summary>")
        for one in ("Commands Run", "Cost", "Branch", "Context")
    ]
    assert at == sorted(at)
    assert "Mission Report" not in report, "the page has that title"
    failed = browser.get("/r/hard")
    assert "<details><summary>Next Steps</summary>" in failed


def test_failed_request_opens_with_a_sentence_for_people(browser: Browser) -> None:
    said = 'class="alarm">The agent gave up: It is too hard. &lt;/code&gt;'
    assert said in browser.get("/r/hard")


def test_a_revised_plan_shows_what_changed(browser: Browser) -> None:
    page = browser.get("/r/again")
    assert re.search(r"<strong>Since revision 1</strong>: [a-z].*changed", page)
    answer = page.index("Comment: “Say it better”")
    assert page.index("Since revision 1") < answer < page.index("The difference, in full")
    lines = page[page.index("The difference, in full") :]
    lines = lines[lines.index("<pre") :]
    assert "Write a better greeting." in lines[: lines.index("</details>")]
    assert 'class="removed">-Write a greeting.' in lines
    assert "since revision" not in lines[: lines.index("</details>")]


def test_waiting_plan_shows_cost_of_similar_missions(browser: Browser) -> None:
    assert "Similar missions cost about $0.20, up to $0.30 so far." in browser.get("/r/again")
    assert browser.get("/").count("1 step · 1 path · ~$0.20") == 1


@pytest.mark.parametrize(
    "path",
    ["/numbers", "/journal", "/journal/trace/hard", "/r/done", "/r/hard", "/r/again", "/"],
)
@pytest.mark.thinned(3)
def test_pages_contain_no_injected_scripts(browser: Browser, path: str) -> None:
    page = browser.get(path)
    assert "<script>" not in page
    assert page.count("<script") == 1


@pytest.mark.parametrize(
    ("path", "code"),
    [("/", 200), ("/new", 200), ("/numbers", 200), ("/journal", 200), ("/r/done", 200),
     ("/journal/trace/done", 200), ("/r/nothing-like-it", 404)],
)  # fmt: skip
@pytest.mark.thinned(3)
def test_every_page_says_that_the_model_is_scripted(browser: Browser, path: str, code: int) -> None:
    said = "Model test: SCRIPTED, replies are replayed from a file, no model is asked"
    assert browser.get(path, code).count(said) == 1


@pytest.mark.parametrize("name", ["action", "actor", "request", "text", "day", "below"])
@pytest.mark.thinned(3)
def test_journal_filter_value_is_escaped(browser: Browser, name: str) -> None:
    page = browser.get(f"/journal?{name}=%22%3E%3Cscript%3Ealert(1)%3C/script%3E%00")
    assert "<script>" not in page


def test_report_serves_only_its_own_pictures(browser: Browser, vault: TestVault) -> None:
    report = next(path for path in vault.reports() if "_done" in path.name)
    with vault.site.reader("done") as reader:
        trace8 = find(reader, "done").trace8
    names = [f"{trace8}_done-2-1.png", f"{trace8}_done-2-2.png", f"{trace8}_hard-2-1.png"]
    folder = vault.root / "Knowledge" / "Reports"
    png = b"\x89PNG\r\n\x1a\n of a picture"
    (folder / names[0]).write_bytes(png)
    secret = vault.root.parent / "secret.png"
    secret.write_bytes(png)
    (folder / names[1]).symlink_to(secret)
    with report.open("a") as file:
        file.write("".join(f"\n![[{name}]]\n" for name in (*names, "../../secret.png")))
    page = browser.get("/r/done")
    shown = re.findall(r'<img [^>]*src="([^"]+)"', page)
    assert shown == ["/r/done/pictures/2/1", "/r/done/pictures/2/2"]
    answer = browser.client.get(shown[0])
    assert (answer.content, answer.headers["content-type"]) == (png, "image/png")
    browser.get(shown[1], 404)  # a link out of the vault
    for path in ("2/3", "0/0", "-1/1", "2/..%2f..%2fsecret", f"{'9' * 30}/1"):
        assert browser.client.get(f"/r/done/pictures/{path}").status_code == 404
    (folder / names[0]).write_text("<script>no picture</script>")
    browser.get(shown[0], 404)


def test_merge_is_not_offered_without_commit(vault: TestVault) -> None:
    ended = replace(vault.site.case("done"), state=State.COMPLETED)
    shown = replace(show(vault.site, "done"), state=State.COMPLETED, asking=None, commit="")
    assert acts(ended, shown).isdisjoint(("merge", "drop"))
    assert "merge" in acts(ended, replace(shown, commit="c0ffee"))


def test_search_finds_ended_request_missing_from_board(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placet.client.cases._latest", lambda *_: [])
    assert 'href="/r/no"' not in browser.get("/")
    assert 'href="/r/no"' in browser.get("/?text=no")
    assert 'href="/r/no"' not in browser.get("/?text=no+x")
    for odd in ("%25", "_", "'", "%00", "x" * 5_000, "+".join("abcdefghijklmnop")):
        assert 'href="/r/no"' not in browser.get(f"/?text={odd}"), odd


def test_merge_in_doubt_needs_its_own_button(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo", {"a.txt": "a\n"})
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    plan = {**PLAN, "scope": {**PLAN["scope"], "run": ["python -m pytest"]}}
    vault.script(("plan", [{"calls": [("submit_plan", plan)]}]), ("execute", DONE))
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    vault.approve()
    vault.here()
    said = "<code>python -m pytest</code> never ran."
    with browsing(vault) as browser:
        assert said in browser.get("/")
        page = browser.get("/r/say-hello")
        assert said in page
        assert "Merge all the same</button>" in page
        without = browser.press("say-hello", "merge", doubts="")
        assert "Nothing was merged" in html.unescape(without.text)
        browser.press("say-hello", "merge")
    assert (repo / "hello.txt").exists()


def test_unknown_request_names_no_terminal_command(browser: Browser) -> None:
    page = browser.get("/r/nothing-like-it", 404)
    assert "<p>See them all</p>" in page
    assert "placet status" not in page


# --- what waits


def random_vault(folder: Path, seed: int) -> TestVault:
    """A vault with requests in states that chance chose, and a note that cannot be used."""
    chance = random.Random(seed)
    vault = make_vault(folder)
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}]), request="-", more=False)
    asks = [{"calls": [("ask_person", QUESTION)]}, *DONE]
    widens = [{"calls": [("request_scope", WIDER)]}, *DONE]
    fails = [{"calls": [("give_up", {"reason": "It is too hard."})]}]
    missions = {"done": DONE, "merged": DONE, "asks": asks, "widens": widens, "fails": fails}
    chosen = {
        f"{kind}-{n}": kind
        for n in range(chance.randint(2, 4))
        for kind in [chance.choice([*missions, "plan", "rejected"])]
    }
    for ident, kind in chosen.items():
        plan = ("plan", [{"calls": [("submit_plan", PLAN)]}])
        mission = [("execute", missions[kind])] if kind in missions else []
        vault.script(plan, *mission, request=ident, more=True)
        priority = f"---\npriority: {chance.randint(1, 9)}\n---\n"
        vault.drop(f"{priority}# {ident}\n\nSay hello {ident}.\n", f"{ident}.md")
    vault.here()
    for ident, kind in chosen.items():
        if kind in missions:
            vault.approve(ident)
            vault.here()
        elif kind == "rejected":
            vault.plan(ident).rename(vault.root / "Inbox" / "Rejected" / vault.plan(ident).name)
        if kind == "merged":
            with meddling():
                vault.click("drop", ident, "--reason", "No.")
    if chance.random() < 0.7:
        vault.drop("---\nagent: nobody\n---\nx\n", "unusable.md")
    vault.here()
    return vault


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.thinned(7)
def test_board_status_and_plans_agree_on_what_waits(tmp_path: Path, seed: int) -> None:
    vault = random_vault(tmp_path, seed)
    found = status(vault.site)
    waiting = [one.request_id for one in found.waiting]
    assert [one.request_id for one in plans(vault.site)] == waiting
    shown = vault.click("status").stdout
    assert (f"Waits for you ({len(waiting)})" if waiting else "Nothing waits for you.") in shown
    with browsing(vault) as browser:
        page = browser.get("/")
        inbox = page[page.index('id="yours"') : page.index('id="requests"')]
        none = browser.get("/?text=zzzz")
    assert sorted(re.findall(r'href="/r/([^"]+)"', inbox)) == sorted(waiting)
    assert inbox.count("Cannot be used") == len(found.unusable)
    count = len(waiting) + len(found.unusable)
    assert f'Awaiting you <span class="count">{count}</span>' in inbox
    assert ("<title>" + f"({count}) " * bool(count) + "Board") in page
    assert "Nothing waits" not in none
    assert "Nothing has ended" not in none
    if count > 1:
        assert f"None of these {count} matches." in none
