"""Test the board in headless Chromium, with `placet board` and a daemon as processes."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Locator,
    Page,
    StorageState,
    expect,
    sync_playwright,
)
from tests.stories.realplans import PLANS

from boardhttp import Served
from boardhttp import served as board
from boardkit import FIX, ask, board_vault, planned
from gitkit import git, settle_home
from placet.note.frontmatter import read_note
from placet.plan.left_out import ticks
from vaultkit import ME, TestVault, meddling, running, until

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
WIDTHS = {390: 844, 1440: 900}
PATIENCE_MS = 12_000
NAMES = "".join(f"    {n}: 'a name that is number {n}',\n" for n in range(2000))
NAMED = [
    {"calls": [("write_file", {"path": "src/app/search.py", "content": f"N = {{\n{NAMES}}}\n"})]},
    {
        "calls": [
            ("complete_step", {"step": 1, "summary": "Done."}),
            ("finish", {"summary": "Done."}),
        ]
    },
]


@dataclass
class Seen:
    """A vault with its daemon, the board, a browser, and a session of Anna in it."""

    vault: TestVault
    served: Served
    browser: Browser
    session: StorageState = field(default_factory=StorageState)
    troubles: list[str] = field(default_factory=list)

    @property
    def app(self) -> Path:
        return self.vault.root.parent / "app"

    def context(self, **options: object) -> BrowserContext:
        """Open a browser window of Anna's; what goes wrong in it fails the test at its end."""
        context = self.browser.new_context(storage_state=self.session, **options)  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE_MS)
        context.on("page", self.watch)
        return context

    def watch(self, page: Page) -> None:
        def said(kind: str, text: str) -> None:
            # what the server refuses is not a fault of the page, and a test looks at it itself
            if not re.search(r"4\d\d \((Conflict|Forbidden|Bad Request)\)", text):
                self.troubles.append(f"{page.url}: {kind}: {text}")

        page.on("console", lambda m: said(m.type, m.text) if m.type != "log" else None)
        page.on("pageerror", lambda e: said("error", str(e)))
        page.on(
            "request",
            lambda r: None if r.url.startswith(self.served.url) else said("outside", r.url),
        )


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("board")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settle_home(folder / "home").items():
            patch.setenv(name, value)
        vault = board_vault(folder)
        for title, plan in PLANS.items():
            word = re.sub(r"[^a-z0-9]+", "-", title.lower())[:20]
            reply = [{"calls": [("submit_plan", plan)]}]
            vault.script(("plan", reply), request=f"{word}*", more=True)
        plan = [{"calls": [("submit_plan", FIX)]}]
        vault.script(("plan", plan), ("execute", NAMED), request="names", more=True)
        with (
            meddling(),  # a merge on the board is a person's
            running(vault),
            board(vault) as served,
            sync_playwright() as playwright,
            playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS)) as browser,
        ):
            expect.set_options(timeout=PATIENCE_MS)
            seen = Seen(vault, served, browser)
            with seen.context() as context:
                page = context.new_page()
                page.goto(served.link)
                page.get_by_role("button", name="Log in").click()
                expect(page.get_by_role("heading", name="Board")).to_be_attached()
                seen.session = context.storage_state()
            yield seen


@pytest.fixture
def seen(scene: Seen) -> Iterator[Seen]:
    scene.troubles.clear()
    yield scene
    assert scene.troubles == []


def opened(context: BrowserContext, seen: Seen, path: str) -> Page:
    page = context.new_page()
    page.goto(seen.served.url + path)
    return page


def card(page: Page, column: str, title: str) -> object:
    return page.locator(f"#{column} .card", has_text=title)


def is_whole(page: Page) -> bool:
    """Return whether nothing is scrolled to sideways, and nothing sticks out of the page."""
    page.wait_for_load_state()  # a form may have led on just now
    return bool(
        page.evaluate(
            """() => {
              const wide = document.documentElement.clientWidth;
              const out = [...document.querySelectorAll('main *, header *')].filter(one => {
                const box = one.getBoundingClientRect();
                return box.width > 1 && (box.right > wide + 1 || box.left < -1) && !one.closest('.wide');
              });
              return document.documentElement.scrollWidth <= wide && out.length === 0;
            }"""
        )
    )


def test_used_login_link_shows_error(seen: Seen) -> None:
    with seen.browser.new_context() as context:
        page = context.new_page()
        page.goto(seen.served.url)
        expect(page).to_have_url(re.compile("/login$"))
        page.goto(seen.served.link)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_have_text("This link was used already, or is too old.")
        page.goto(seen.served.url)
        expect(page).to_have_url(re.compile("/login$"))


@pytest.mark.parametrize("width", WIDTHS)
def test_request_goes_from_form_to_merge_and_undo(seen: Seen, width: int) -> None:
    title, ident = f"Add a CSV export {width}", f"add-a-csv-export-{width}"
    viewport = {"width": width, "height": WIDTHS[width]}
    press = Locator.tap if width < 500 else Locator.click
    with seen.context(viewport=viewport, has_touch=width < 500) as context:
        board_, page = opened(context, seen, "/"), opened(context, seen, "/new")
        page.get_by_label("Title").fill(title)
        page.get_by_label("What you want done").fill("People open the list in a spreadsheet.")
        page.get_by_label("Repository").select_option("app")
        assert is_whole(page)
        press(page.get_by_role("button", name="Submit"))
        # the board shows it without being reloaded
        expect(board_.locator("#yours .card", has_text=title)).to_be_visible()
        assert is_whole(board_)
        press(board_.get_by_role("link", name=title))
        plan = board_
        expect(plan).to_have_url(re.compile(ident))
        assert is_whole(plan)
        press(plan.get_by_role("button", name="Do step 3"))
        expect(plan.get_by_role("button", name="Do step 3")).to_have_attribute(
            "aria-pressed", "false"
        )
        expect(plan.get_by_text("3. Say it in the README (left out)")).to_be_visible()
        press(plan.get_by_role("button", name="Ask for changes"))
        plan.get_by_label("What to change", exact=True).fill("Quote as RFC 4180 says.")
        plan.locator("select[name=step]").select_option("1")
        press(plan.get_by_role("button", name="Only write the comment"))
        expect(plan.locator("#step-1 .comment")).to_have_text("Quote as RFC 4180 says.")
        press(plan.get_by_role("button", name="Approve", exact=True))
        expect(plan.get_by_text("1 comment goes to the agent as guidance.")).to_be_visible()
        remark = plan.get_by_label("A remark for the agent")
        remark.fill("Keep it short.")
        remark.press("Enter")
        expect(remark).to_have_value("Keep it short.\n")
        press(plan.locator("#approve").get_by_role("button", name="Approve", exact=True))
        expect(plan.locator("#state .state")).to_have_text(re.compile("Running|To merge"))
        expect(plan.locator("#state .state")).to_have_text("To merge")
        expect(plan.get_by_text("Approved.", exact=True)).to_have_count(0)
        expect(plan.locator(".page > [data-live]").nth(1)).to_have_attribute("id", "report")
        expect(plan.locator(".diff .added .s-k").first).to_be_attached()
        colour = plan.locator(".diff .added").first.evaluate(
            "e => getComputedStyle(e).backgroundColor"
        )
        assert colour not in ("rgba(0, 0, 0, 0)", "")
        assert is_whole(plan)
        press(plan.get_by_role("button", name="Merge all the same"))
        sheet = plan.locator("#merge")
        expect(sheet).to_contain_text(re.compile("Into main: 2 files, .22 .0, no conflicts."))
        press(sheet.get_by_role("button", name="Merge all the same"))
        expect(plan.get_by_text("Merged.", exact=True)).to_be_visible()
        expect(plan).to_have_url(f"{seen.served.url}/r/{ident}")
        plan.reload()  # what was said once is not said again, nor what was merged offered again
        expect(plan.locator("#state .state")).to_have_text("Merged")
        expect(plan.get_by_text("Merged.", exact=True)).to_have_count(0)
        expect(plan.get_by_role("button", name="Merge all the same")).to_have_count(0)
        assert "as_csv" in git(seen.app, "show", "main:src/app/export.py")
        press(plan.get_by_role("button", name="Undo the merge"))
        press(plan.locator("#undo").get_by_role("button", name="Undo"))
        expect(plan.locator("#state .state")).to_have_text("Merge undone")
    row = seen.vault.rows("plan.approved")[-1]["metadata"]
    assert (row["via"], row["reviewed_by"], row["login"]) == ("board", ME, "Anna")
    assert "Merge" in git(seen.app, "log", "-2", "--format=%s", "main")
    assert not (seen.app / "src/app/export.py").exists()
    assert ident in {r["entity_id"] for r in seen.vault.rows("execution.completed")}


def test_browser_can_reject_revise_answer_and_widen(seen: Seen) -> None:
    vault = seen.vault
    for title in (
        "Fix the menu",
        "Fix the footer",
        "Tidy the changelog",
        "Rename the settings page",
    ):
        ask(vault, title)
    with seen.context() as context:
        idents = (
            "fix-the-menu",
            "fix-the-footer",
            "tidy-the-changelog",
            "rename-the-settings-page",
        )
        for ident in idents:
            until(vault.plan(ident).exists, ident)
        for ident in idents[2:]:
            vault.approve(ident)
        page = opened(context, seen, "/r/fix-the-menu")
        page.get_by_role("button", name="Reject", exact=True).click()
        page.get_by_label("Why not").fill("The menu is right.")
        page.get_by_role("button", name="Reject the plan").click()
        expect(page.locator("#state .state")).to_have_text("Rejected")

        page.goto(f"{seen.served.url}/r/fix-the-footer")
        page.get_by_role("button", name="Ask for changes").click()
        page.get_by_label("What to change", exact=True).fill("Add a test.")
        page.get_by_role("button", name="Request changes").click()
        # the page turns to the revision by itself
        expect(page.get_by_text("Since revision 1:")).to_be_visible()
        expect(page.locator("#news")).to_be_hidden()
        expect(page.locator("#state .state")).to_have_text("Plan 2 to review")
        vault.await_action("plan.revised")
        # the journal has the revision before the note does
        until(lambda: "needs_revision" not in vault.plan("fix-the-footer").read_text(), "the note")
        page.reload()
        expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()

        page.goto(f"{seen.served.url}/r/tidy-the-changelog")
        page.get_by_label("Newest release first").check()
        page.get_by_role("button", name="Answer").click()
        expect(page.locator("#state .state")).to_have_text("To merge")

        page.goto(f"{seen.served.url}/r/fix-the-menu")
        expect(page.locator("#state .notice")).to_contain_text("The menu is right.")

        page.goto(f"{seen.served.url}/r/rename-the-settings-page")
        page.get_by_role("button", name="Approve the wider scope").click()
        expect(page.locator("#widen")).to_contain_text("src/app/menu.py")
        # `click` may try again where the page changes meanwhile, and decide twice
        page.get_by_role("button", name="Approve it").dispatch_event("click")
        expect(page.locator("#state .state")).to_have_text("To merge")
    (rejected,) = (r for r in vault.rows("plan.rejected") if r["entity_id"] == "fix-the-menu")
    assert rejected["metadata"]["reason"] == "The menu is right."
    answered = vault.rows("question.answered")[-1]["metadata"]
    assert (answered["via"], answered["login"]) == ("board", "Anna")
    assert "Preferences" in git(seen.app, "show", f"{branch(vault, 'rename')}:src/app/menu.py")


def branch(vault: TestVault, word: str) -> str:
    (row,) = (r for r in vault.rows("execution.completed") if r["entity_id"].startswith(word))
    return str(row["metadata"]["branch"])


def test_stale_approval_is_refused_but_keeps_typed_text(seen: Seen) -> None:
    ident = planned(seen.vault, "Fix the typed text")
    with seen.context() as context:
        page = opened(context, seen, f"/r/{ident}")
        page.get_by_role("button", name="Approve", exact=True).click()
        remark = page.get_by_label("A remark for the agent")
        remark.fill("half a sent")
        other = opened(context, seen, f"/r/{ident}")
        other.get_by_role("button", name="Ask for changes").click()
        other.get_by_label("What to change", exact=True).fill("Add a test.")
        other.get_by_role("button", name="Request changes").click()
        # a row of this request: the page hears of it and looks again
        sheet, approve = page.locator("#approve"), page.locator("#approve button.main")
        expect(sheet.get_by_role("alert")).to_contain_text("This changed in the meantime")
        expect(sheet.get_by_role("alert")).to_contain_text("Last: ")
        expect(approve).to_be_disabled()
        expect(remark).to_be_focused()
        expect(remark).to_have_value("half a sent")
        expect(page.locator("#state .state")).to_have_text("Plan to review")
        expect(other.locator("#state .state")).to_have_text("Plan 2 to review")
        # a page that heard nothing of it: what it approves is not what is there
        approve.evaluate("button => { button.disabled = false; button.click(); }")
        expect(sheet.get_by_role("alert")).to_contain_text("placet did nothing")
        expect(page.locator("#state .state")).to_have_text("Plan 2 to review")
        expect(remark).to_have_value("half a sent")
        page.reload()
        expect(page.get_by_label("A remark for the agent")).to_have_value("half a sent")
    assert ident not in {row["entity_id"] for row in seen.vault.rows("plan.approved")}


FIRST_SCREEN = """() => {
  const bottom = (name) => Math.max(...[...document.querySelectorAll(name)].map(e => e.getBoundingClientRect().bottom));
  const broken = [];
  const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  for (let node; node = walk.nextNode();) {
    if (node.parentElement.closest('code, pre, .sheet, .hidden, details:not([open]) > :not(summary)')) continue;
    for (const word of node.data.matchAll(/[^\\s-]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) broken.push(word[0]);
    }
  }
  return {summary: bottom('.summary'), told: bottom('#plan > .limits, #plan > .dangers'),
          approve: bottom('.bar button.main'), screens: document.documentElement.scrollHeight / innerHeight, broken};
}"""


def test_plan_essentials_fit_first_phone_screen(seen: Seen) -> None:
    idents = [ask(seen.vault, title)[:48].rstrip("-") for title in PLANS]
    with seen.context(viewport={"width": 390, "height": 844}, has_touch=True) as context:
        page = context.new_page()
        for ident in idents:
            until(seen.vault.plan(ident).exists, ident, 60)
            page.goto(f"{seen.served.url}/r/{ident}")
            expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()
            found = page.evaluate(FIRST_SCREEN)
            assert found["summary"] < 844, (ident, found)
            assert found["told"] < 844 - 62, (ident, found)  # above the bar
            assert found["approve"] <= 844, (ident, found)
            assert found["screens"] <= 4, (ident, found)
            assert found["broken"] == [], (ident, found)
            assert is_whole(page), ident
            print(f"{ident}: {found['screens']:.2f} screens")
            axe = Axe()
            for button, sheet in (("Ask for changes", "#changes"), ("Approve", "#approve")):
                page.get_by_role("button", name=button, exact=True).first.tap()
                expect(page.locator(sheet)).to_be_visible()
                if ident == idents[4]:  # with dangers
                    assert page.locator("#approve .dangers li").count() == 4
                    assert axe.run(page).violations_count == 0, sheet
                page.locator(sheet).get_by_role("button", name="Close").tap()
                expect(page.locator(sheet)).to_be_hidden()


def test_board_search_filters_cards_and_survives_reload(seen: Seen) -> None:
    ident = planned(seen.vault, "Fix the needle")
    seen.vault.click("reject", ident, "--reason", "No.")
    with seen.context(viewport={"width": 390, "height": 844}) as context:
        page = opened(context, seen, "/")
        expect(page).to_have_title(re.compile(r"^(\(\d+\) )?Board"))
        top = page.locator("#yours").bounding_box()
        assert top is not None
        assert top["y"] < 422, "what waits for you begins in the upper half"
        page.get_by_label("Find").fill("needle")
        expect(page.locator(".card")).to_have_count(1)
        expect(page.locator("#ended .card", has_text="Fix the needle")).to_be_visible()
        expect(page).to_have_url(re.compile(r"\?text=needle$"))
        page.reload()
        expect(page.locator(".card")).to_have_count(1)


LOOK = """now => {
  Object.defineProperty(document, 'visibilityState', {value: now, configurable: true});
  document.dispatchEvent(new Event('visibilitychange'));
}"""


def test_only_visible_tab_receives_live_updates(seen: Seen) -> None:
    with seen.context() as context:
        tabs = []
        for _ in range(8):  # a browser has six connections to one server
            tabs.append(opened(context, seen, "/"))
            expect(tabs[-1].locator("#yours")).to_be_visible()
            tabs[-1].evaluate(LOOK, "hidden")
        tabs[0].evaluate(LOOK, "visible")
        planned(seen.vault, "Fix the first tab")
        expect(tabs[0].locator(".card", has_text="Fix the first tab")).to_be_visible()
        assert tabs[1].locator(".card", has_text="Fix the first tab").count() == 0
        tabs[1].evaluate(LOOK, "visible")
        expect(tabs[1].locator(".card", has_text="Fix the first tab")).to_be_visible()


def test_ended_session_shows_login_link(seen: Seen) -> None:
    with seen.context() as context:
        page = opened(context, seen, "/")
        expect(page.locator("#yours")).to_be_visible()
        context.clear_cookies()
        page.evaluate(LOOK, "visible")  # as one that was looked away from
        expect(page.locator("#link")).to_have_text("Log in again.")
        page.locator("#link").click()
        expect(page).to_have_url(re.compile("/login$"))
    seen.troubles[:] = [one for one in seen.troubles if "401" not in one]


def test_keyboard_alone_completes_whole_workflow(seen: Seen) -> None:
    ident = planned(seen.vault, "Fix by keyboard")
    with seen.context(reduced_motion="reduce") as context:
        page = opened(context, seen, "/")
        expect(page.locator("#yours .card", has_text="Fix by keyboard")).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        tab_to(page, "Fix by keyboard")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(ident))
        # Without its script, a tick loads a new page.
        expect(page.locator("html.js")).to_be_attached()
        tab_to(page, "☑")
        page.keyboard.press("Space")
        assert focused(page) == "☐", "a tick shows at once, and keeps the focus"
        expect(page.get_by_text("The steps are as you ticked them.")).to_be_attached()
        assert focused(page) == "☐", "and after it is settled"
        page.keyboard.press("Enter")
        expect(page.locator("#step-1")).not_to_contain_text("left out")
        tab_to(page, "Ask for changes")
        page.keyboard.press("Enter")
        expect(page.get_by_label("What to change", exact=True)).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_label("What to change", exact=True)).to_be_hidden()
        assert focused(page) == "Ask for changes"
        tab_to(page, "Approve")
        page.keyboard.press("Enter")
        expect(page.get_by_label("A remark for the agent")).to_be_visible()
        expect(page.locator("#approve h2")).to_be_focused()
        tab_to(page, "Approve")
        page.keyboard.press("Enter")
        expect(page.locator("#state .state")).to_have_text(
            re.compile("Starts soon|Running|To merge")
        )
        moves = page.evaluate(
            "[...document.querySelectorAll('*')].filter(e => parseFloat(getComputedStyle(e).transitionDuration) > 0"
            " || getComputedStyle(e).animationName !== 'none').length"
        )
        assert moves == 0
        expect(page.locator("#state .state")).to_have_text("To merge")
        for button, sheet, then in (
            ("Merge", "#merge", "Merged"),
            ("Undo the merge", "#undo", "Merge undone"),
        ):
            tab_to(page, button)
            page.keyboard.press("Enter")
            expect(page.locator(f"{sheet} h2")).to_be_focused()
            for _ in range(6):  # the keyboard stays in the sheet
                page.keyboard.press("Tab")
                assert page.evaluate(IN_SHEET)
            tab_to(page, button.split()[0])
            page.keyboard.press("Enter")
            expect(page.locator("#state .state")).to_have_text(then)
    until(lambda: ident in {row["entity_id"] for row in seen.vault.rows("pr.reverted")}, ident)


def test_wide_window_shows_scope_beside_the_steps(seen: Seen) -> None:
    ident = planned(seen.vault, "Add beside the steps")
    for width, is_beside in ((1199, False), (1200, True), (1920, True)):
        with seen.context(viewport={"width": width, "height": 900}) as context:
            page = opened(context, seen, f"/r/{ident}")
            steps, scope = (
                page.locator(f"[aria-labelledby={name}]").bounding_box()
                for name in ("h-steps", "h-scope")
            )
            assert steps is not None
            assert scope is not None
            assert (scope["x"] > steps["x"] + steps["width"]) is is_beside, width
            assert is_whole(page)


def test_template_is_inserted_into_what_was_typed(seen: Seen) -> None:
    with seen.context() as context:
        page = opened(context, seen, "/new")
        page.get_by_label("What you want done").fill("Please.")
        page.get_by_label("Repository").select_option("app")
        page.get_by_label("Template").select_option("Bug")
        page.get_by_role("button", name="Insert it").click()
        typed = re.compile(r"^Please\.\n\n## What happens")
        expect(page.get_by_label("What you want done")).to_have_value(typed)
        expect(page.get_by_label("Repository")).to_have_value("app")
        page.reload()
        expect(page.get_by_label("What you want done")).to_have_value(typed)


def test_long_file_is_fetched_when_it_is_opened(seen: Seen) -> None:
    ident = planned(seen.vault, "Names")
    seen.vault.approve(ident)
    until(lambda: ident in {r["entity_id"] for r in seen.vault.rows("execution.completed")}, ident)
    with seen.context() as context:
        page = opened(context, seen, f"/r/{ident}")
        page.locator(".file summary").click()
        expect(page.locator(".file pre.diff .added")).to_have_count(2002)
    with seen.context(java_script_enabled=False) as context:
        page = opened(context, seen, f"/r/{ident}")
        page.locator(".file summary").click()
        page.get_by_role("link", name="Show 2,00").click()
        expect(page.locator("pre.diff .added")).to_have_count(2002)
        page.get_by_role("link", name=ident).click()
        expect(page).to_have_url(re.compile(f"/r/{ident}#file-0$"))


# the browser's own bar is the other place
IN_SHEET = "document.activeElement === document.body || !!document.activeElement.closest('.sheet')"


def focused(page: Page) -> str:
    active = "document.activeElement"
    return str(
        page.evaluate(f"{active} === document.body ? '' : ({active}?.textContent ?? '').trim()")
    )


def tab_to(page: Page, text: str) -> None:
    """Press Tab until what is focused has a text; each stop on the way can be seen."""
    for _ in range(80):
        page.keyboard.press("Tab")
        shown = page.evaluate(
            "(() => { const e = document.activeElement;"  # nothing has it while a page is loaded
            " if (!e || e === document.body) return true; const s = getComputedStyle(e);"
            " return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2; })()"
        )
        assert shown, f"the focus on {focused(page)!r} cannot be seen"
        if text in focused(page):
            return
    raise AssertionError(f"no Tab leads to {text!r}")


def test_board_works_without_javascript(seen: Seen) -> None:
    ident = planned(seen.vault, "Fix without a script")
    with seen.context(java_script_enabled=False) as context:
        page = opened(context, seen, "/")
        page.get_by_role("link", name="Fix without a script").click()
        page.get_by_role("button", name="Do step 1").click()
        expect(page).to_have_url(re.compile("#step-1$"))
        page.get_by_role("button", name="Do step 1").click()
        expect(page.locator("#step-1")).not_to_contain_text("left out")
        page.get_by_role("button", name="Approve", exact=True).click()
        page.get_by_label("A remark for the agent").fill("Slowly.")
        page.locator("#approve").get_by_role("button", name="Approve", exact=True).click()
        expect(page.get_by_text("Approved.")).to_be_visible()
        until(
            lambda: ident in {r["entity_id"] for r in seen.vault.rows("execution.completed")},
            ident,
            30,
        )
        page.reload()
        expect(page.locator("#state .state")).to_have_text("To merge")
        page.get_by_role("button", name="Merge", exact=True).click()
        page.locator("#merge").get_by_role("button", name="Merge").click()
        expect(page.get_by_text("Merged.", exact=True)).to_be_visible()
        assert "casefold" in git(seen.app, "show", "main:src/app/search.py")
        page.get_by_role("button", name="Undo the merge").click()
        page.locator("#undo").get_by_role("button", name="Undo").click()
        expect(page.locator("#state .state")).to_have_text("Merge undone")
    assert "casefold" not in git(seen.app, "show", "main:src/app/search.py")


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_two_quick_ticks_both_count(seen: Seen, by: str) -> None:
    ident = planned(seen.vault, f"Add a tick by {by}")
    with seen.context() as context:
        page = opened(context, seen, f"/r/{ident}")
        expect(page.locator("html.js")).to_be_attached()
        for turn, apart_s in enumerate((0.1, 0.25, 0.5, 1.0)):
            assert two_ticks(page, seen.vault, ident, apart_s, by), (apart_s, turn)
        expect(page.locator("#news")).to_be_hidden()


def two_ticks(page: Page, vault: TestVault, ident: str, apart_s: float, by: str) -> bool:
    """Toggle the first step and the last one; return whether both show at once, and both count."""
    wanted = []
    for number in (1, 3):
        button = page.get_by_role("button", name=f"Do step {number}")
        before = button.get_attribute("aria-pressed")
        if by == "mouse":
            button.click()
        else:
            button.focus()
            page.keyboard.press("Space")
        wanted.append("false" if before == "true" else "true")
        if button.get_attribute("aria-pressed") != wanted[-1]:
            return False
        time.sleep(apart_s)
    done = [one == "true" for one in wanted]

    def counts() -> bool:
        now = ticks(read_note(vault.plan(ident).read_bytes()).body)
        return [now[0].done, now[2].done] == done

    until(counts, f"{ident}: both ticks")
    page.wait_for_timeout(200)
    shown = [
        page.get_by_role("button", name=f"Do step {number}").get_attribute("aria-pressed")
        for number in (1, 3)
    ]
    return shown == wanted and page.locator("#news:visible, .refused").count() == 0


def looked_again(page: Page) -> None:
    """Make the page fetch itself again, and wait until it has."""
    page.evaluate(LOOK, "hidden")
    with page.expect_response(lambda one: one.request.resource_type == "fetch"):
        page.evaluate(LOOK, "visible")
    page.wait_for_timeout(300)


def test_page_says_only_what_others_changed(seen: Seen) -> None:
    ident = planned(seen.vault, "Fix the news")
    with seen.context() as context:
        page = opened(context, seen, f"/r/{ident}")
        news, sheet = page.locator("#news"), page.locator("#changes")
        page.get_by_role("button", name="Ask for changes").click()
        page.get_by_label("What to change", exact=True).fill("half a sent")
        page.reload()
        looked_again(page)
        expect(news).to_be_hidden()  # the draft is yours
        page.get_by_role("button", name="Ask for changes").click()
        page.get_by_label("What to change", exact=True).fill(" ")
        sheet.locator("select").select_option("1")
        sheet.get_by_role("button", name="Only write the comment").click()
        expect(sheet.locator(".refused")).to_be_visible()
        looked_again(page)
        expect(news).to_be_hidden()  # so is what was refused
        expect(sheet.get_by_role("button", name="Request changes")).to_be_enabled()
        sheet.get_by_role("link", name="Close").click()
        page.get_by_role("button", name="Approve", exact=True).click()
        seen.vault.click("revise", ident, "--comment", "Add a test.")
        expect(page.locator("#approve .news")).to_be_visible()
        until(lambda: ident in {r["entity_id"] for r in seen.vault.rows("plan.revised")})
        page.wait_for_timeout(1500)  # nothing else happens that would show it
        page.locator("#approve").get_by_role("button", name="Close").click()
        expect(page.locator(".top + #news")).to_be_visible()


def test_page_keeps_an_answer_typed_when_the_question_goes(seen: Seen) -> None:
    ident = planned(seen.vault, "Tidy what goes")
    seen.vault.approve(ident)
    with seen.context() as context:
        page = opened(context, seen, f"/r/{ident}")
        own = page.get_by_label("Or in your own words")
        own.fill("Both")
        seen.vault.click("answer", ident, "1")
        until(lambda: ident in {r["entity_id"] for r in seen.vault.rows("execution.completed")})
        expect(page.locator("#news")).to_be_visible()
        looked_again(page)
        expect(own).to_have_value("Both")


def test_second_click_on_answer_does_nothing(seen: Seen) -> None:
    ident = planned(seen.vault, "Tidy by two clicks")
    seen.vault.approve(ident)
    with seen.context() as context:
        page = opened(context, seen, f"/r/{ident}")
        page.get_by_label("Newest release first").check()
        page.get_by_role("button", name="Answer").dblclick()
        expect(page.locator("#state .state")).to_have_text("To merge")
        expect(page.locator(".refused")).to_have_count(0)


def test_time_in_a_state_goes_on(seen: Seen) -> None:
    ident = planned(seen.vault, "Fix the clock")
    with seen.context() as context:
        page = context.new_page()
        page.clock.install()
        page.goto(f"{seen.served.url}/r/{ident}")
        since, story = page.locator("#state .meta"), page.locator("#story time").first
        expect(since).to_contain_text(re.compile(r"for \d+ s"))
        page.clock.fast_forward("02:00:00")
        expect(since).to_contain_text(re.compile(r"for 2 h(?! ago)"))
        expect(story).to_have_text("2 h ago")


HELD = """() => {
  const real = window.fetch, held = new Promise(done => { window.letGo = done; });
  window.fetch = async (where, how) => {
    if (how?.method !== 'POST') return real(where, how);
    const isLate = await held, answer = await real(where, how), url = new URL(answer.url);
    if (isLate) { url.searchParams.set('said', 'saved'); url.searchParams.delete('made'); }
    return Object.defineProperty(answer, 'url', {value: url.href});
  };
}"""
"""Holds what is sent until `letGo`; `letGo(true)` answers as without the daemon."""


def test_words_typed_behind_an_act_are_kept(seen: Seen) -> None:
    ident = planned(seen.vault, "Add while it settles")
    with seen.context() as context:
        page = opened(context, seen, f"/r/{ident}")
        here, write = page.locator("#step-1 .here > summary"), page.get_by_text("Write the comment")
        field, comment = (
            page.get_by_label("What to change in step 1"),
            page.locator("#step-1 .comment"),
        )

        def reopened() -> None:
            page.reload()
            expect(page.locator("html.js")).to_be_attached()
            page.locator("#step-1 summary").first.click()
            here.click()
            page.evaluate(HELD)

        # what is typed after the act
        reopened()
        field.fill("First\ncomment")
        write.first.click()
        here.click()
        field.fill("Second, half")
        page.evaluate("letGo()")
        expect(page.get_by_text("The comment is in the plan.")).to_be_visible()
        expect(field).to_have_value("Second, half")
        expect(comment).to_have_count(1)
        # acts behind one that is refused
        reopened()
        expect(field).to_have_value("Second, half")
        page.get_by_role("button", name="Do step 2").click()
        write.first.click()
        expect(comment).to_have_count(2)
        other = opened(context, seen, f"/r/{ident}")
        other.get_by_role("button", name="Do step 3").click()
        expect(other.get_by_text("The steps are as you ticked them.")).to_be_visible()
        page.evaluate("letGo()")
        expect(page.locator("#step-2 .refused")).to_be_visible()
        expect(field).to_have_value("Second, half")
        expect(comment).to_have_count(1)
        # acts behind one that the daemon has not answered
        reopened()
        page.get_by_role("button", name="Do step 2").click()
        page.get_by_role("button", name="Approve", exact=True).click()
        page.get_by_label("A remark for the agent").fill("Slowly.")
        page.locator("#approve button.main").click()
        page.evaluate("letGo(true)")
        late = page.locator("#approve .refused")
        expect(late).to_have_text("The daemon has not answered yet. Try again when it has.")
        expect(page.get_by_label("A remark for the agent")).to_have_value("Slowly.")
        expect(page.locator("#state .state")).to_have_text("Plan to review")
    assert ident not in {row["entity_id"] for row in seen.vault.rows("plan.approved")}


def test_each_flow_works_without_javascript(seen: Seen) -> None:
    vault = seen.vault
    named = {
        word: ask(vault, f"{word} without scripts")
        for word in ("Fix this", "Fix that", "Tidy", "Rename", "Speed up", "Move")
    }
    for ident in named.values():
        until(vault.plan(ident).exists, ident)
    for word in ("Tidy", "Rename", "Speed up", "Move"):
        vault.approve(named[word])
    with seen.context(java_script_enabled=False) as context:
        page = opened(context, seen, f"/r/{named['Fix this']}")
        page.get_by_role("button", name="Reject", exact=True).click()
        page.get_by_label("Why not").fill(" ")
        page.get_by_role("button", name="Reject the plan").click()
        expect(page.locator("#reject .refused")).to_contain_text("The reason is empty.")
        page.get_by_label("Why not").fill("It is right as it is.")
        page.get_by_role("button", name="Reject the plan").click()
        expect(page.locator("#state .state")).to_have_text("Rejected")
        page.get_by_role("button", name="New plan").first.click()
        page.get_by_label("What to do differently").fill("Leave the tests.")
        page.get_by_role("button", name="Request a new plan").click()
        expect(page.get_by_text("A new plan is requested.")).to_be_visible()

        page.goto(f"{seen.served.url}/r/{named['Fix that']}")
        page.locator("#step-1 summary").first.click()
        page.locator("#step-1").get_by_text("Comment here").click()
        page.get_by_label("What to change in step 1").fill("Keep it short.")
        page.get_by_role("button", name="Write the comment").click()
        expect(page.locator("#step-1 .said")).to_be_visible()
        expect(page.locator("#step-1 .comment")).to_have_text("Keep it short.")
        page.get_by_role("button", name="Ask for changes").click()
        page.get_by_label("What to change", exact=True).fill("Add a test.")
        page.get_by_role("button", name="Request changes").click()
        expect(page.get_by_text("Changes requested.")).to_be_visible()

        page.goto(f"{seen.served.url}/r/{named['Tidy']}")
        until(lambda: page.reload() and page.get_by_role("button", name="Answer").count(), "asks")
        page.get_by_label("Newest release first").check()
        page.get_by_role("button", name="Answer").click()
        expect(page.get_by_text("Answered.")).to_be_visible()

        page.goto(f"{seen.served.url}/r/{named['Rename']}")
        wider = page.get_by_role("button", name="Approve the wider scope")
        until(lambda: page.reload() and wider.count(), "asks")
        wider.click()
        page.get_by_role("button", name="Approve it").click()
        expect(page.get_by_text("The wider scope is approved.")).to_be_visible()

        page.goto(f"{seen.served.url}/r/{named['Speed up']}")
        until(lambda: page.reload() and page.get_by_role("button", name="Stop").count(), "runs")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#stop")).to_contain_text("steps are done")
        page.get_by_role("button", name="Stop at the next safe point").click()
        expect(page.get_by_text("The mission stops at its next safe point.")).to_be_visible()
        until(lambda: page.reload() and page.locator("#state .notice").count(), "stopped")
        expect(page.locator("#state .notice")).to_contain_text("Anna stopped the mission.")

        page.goto(f"{seen.served.url}/r/{named['Rename']}")
        until(lambda: page.reload() and page.get_by_role("button", name="Drop").count(), "done")
        page.get_by_role("button", name="Drop").click()
        page.locator("#drop").get_by_label("Why").fill("No longer needed.")
        page.get_by_role("button", name="Drop it").click()
        expect(page.locator("#state .state")).to_have_text("Dropped")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.thinned(2)
def test_every_page_passes_accessibility_and_layout_checks(seen: Seen, scheme: str) -> None:
    idents = kinds(seen.vault)
    paths = [
        "/",
        "/new",
        "/numbers",
        "/numbers?days=7",
        "/journal",
        "/journal?request=none",
    ]
    paths += ["/journal?action=tool.called", f"/journal/trace/{idents[0]}", "/r/nothing", "/none"]
    paths += ["/browsers", *(f"/r/{ident}" for ident in idents)]
    axe = Axe()
    with seen.context(color_scheme=scheme, bypass_csp=True) as context:
        page = context.new_page()
        for path in [*paths, "/login", "/login?t=x"]:
            page.set_viewport_size({"width": 1440, "height": 900})
            page.goto(seen.served.url + path)
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            found = axe.run(page)
            assert found.violations_count == 0, f"{path}: {found.generate_report()}"
            assert is_whole(page), f"{path} at 1440"
            page.set_viewport_size({"width": 390, "height": 844})
            assert is_whole(page), f"{path} at 390"
            assert too_small(page) == [], path
            assert crammed(page) == [], path
    seen.troubles[:] = [one for one in seen.troubles if "404" not in one]


def too_small(page: Page) -> list[str]:
    """Return the buttons, fields and links that a thumb can hardly hit; links in text may be small."""
    found = page.evaluate(
        """[...document.querySelectorAll('button, input:not([type=hidden]):not([type=radio]), select, textarea, summary, header a, .jump a, .choice')]
           .filter(one => one.checkVisibility() && one.getBoundingClientRect().height < 43.5)
           .map(one => one.outerHTML.slice(0, 120))"""
    )
    return list(found)


def crammed(page: Page) -> list[str]:
    """Return the buttons whose word is broken, and the filters that what follows touches."""
    found = page.evaluate(
        """[...document.querySelectorAll('button:not(.tick > button)')]
           .filter(one => one.checkVisibility() && one.getBoundingClientRect().height > 60)
           .concat([...document.querySelectorAll('.filter')].filter(one => {
             const next = one.nextElementSibling;
             return next && next.getBoundingClientRect().top - one.getBoundingClientRect().bottom < 8;
           }))
           .map(one => one.outerHTML.slice(0, 120))"""
    )
    return list(found)


def kinds(vault: TestVault) -> list[str]:
    """Return requests of every kind: a plan, a question, wider scope, running, done, failed."""
    titles = {
        "Add an export": "",
        "Tidy the readme": "question.asked",
        "Rename the about page": "plan.amendment_requested",
        "Speed up the start": "step.completed",
        "Fix the sorting": "execution.completed",
        "Move to Python 3.14": "execution.failed",
    }
    known = {row["entity_id"] for row in vault.rows("plan.created")}
    idents = []
    for title, action in titles.items():
        ident = re.sub(r"[^a-z0-9]+", "-", title.lower())
        idents.append(ident)
        if ident not in known:
            planned(vault, title)
            if action:
                vault.approve(ident)
    for ident, action in zip(idents, titles.values(), strict=True):
        if action:
            until(lambda i=ident, a=action: i in {r["entity_id"] for r in vault.rows(a)}, ident, 30)
    return idents


def test_drifted_plan_shows_changed_file(seen: Seen) -> None:
    ident = planned(seen.vault, "Fix the put back plan")
    (seen.app / "src/app/search.py").write_text("def find(people, text):\n    return []\n")
    git(seen.app, "commit", "-qam", "Change what the plan was made from")
    with seen.context() as context:
        page = opened(context, seen, f"/r/{ident}")
        page.get_by_role("button", name="Approve", exact=True).click()
        page.locator("#approve").get_by_role("button", name="Approve", exact=True).click()
        expect(page.locator("#state .notice")).to_contain_text("src/app/search.py")
        expect(page.locator(".said")).to_have_count(0)
        page.goto(seen.served.url)
        board_card = page.locator("#yours .card", has_text="Fix the put back plan")
        expect(board_card.locator(".about")).to_contain_text("src/app/search.py")
    git(seen.app, "revert", "--no-edit", "HEAD")
