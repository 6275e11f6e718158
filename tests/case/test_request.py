"""Test that placet reads a request's properties again for each of its plans."""

from __future__ import annotations

import re
from pathlib import Path
from unicodedata import normalize

import pytest

from gitkit import make_repo
from looping import Fake, Time, bare_vault, greeter, looping
from placet.case.request import RequestProblems, changed_keys, read_request
from placet.chat.messages import Ask, Purpose
from placet.note.frontmatter import read_note
from vaultkit import PLAN, TestVault, make_vault


def planned(folder: Path, request: str) -> tuple[TestVault, Path]:
    """A vault with a plan in review for this request, and a model that can revise it."""
    vault = make_vault(folder)
    vault.script(
        *[(purpose, [{"calls": [("submit_plan", PLAN)]}]) for purpose in ("plan", "revise")]
    )
    note = vault.drop(request)
    vault.here()
    return vault, note


def changes_asked(vault: TestVault) -> None:
    plan = vault.plan()
    plan.write_text(plan.read_text() + "\n## Review Comments\n\n- Shorter, please.\n")
    edit(plan, ("status: review", "status: needs_revision"))


def edit(note: Path, *pairs: tuple[str, str]) -> None:
    text = note.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    note.write_text(text)


def side(note: Path) -> Path:
    return note.with_name(f"{note.stem}.placet.md")


def test_changed_keys_are_replanned_and_listed(tmp_path: Path) -> None:
    vault, note = planned(tmp_path, "---\nbudget_usd: 1\npriority: 2\n---\nSay hello\n")
    edit(
        note,
        ("budget_usd: 1", "budget_usd: 7"),
        ("priority: 2", "priority: 9\ncomplexity: trivial"),
    )
    vault.here()
    text = vault.plan().read_text()
    assert "budget_usd = 7" in text
    assert read_note(text.encode()).meta["complexity"] == "trivial"
    assert (
        "> Changed in the request's keys since the plan before: `priority` `2` → `9`, `complexity` none → `trivial`, "
        "`budget_usd` `1` → `7`."
    ) in text


@pytest.mark.parametrize("state", ["review", "rejected", "failed", "taken away"])
@pytest.mark.thinned(2)
def test_invalid_keys_are_explained_and_not_planned(tmp_path: Path, state: str) -> None:
    vault, note = planned(tmp_path, "---\nbudget_usd: 1\n---\nSay hello\n")
    if state == "rejected":
        vault.click("reject", "say-hello", "--reason", "no")
        vault.here()
    elif state == "taken away":
        kept = note.read_text()
        note.unlink()
        vault.here()
        note.write_text(kept)
    elif state == "failed":
        vault.script(("revise", [{"text": "no"}]))
        changes_asked(vault)
        vault.here()
    before = len([a for a in vault.actions() if a in ("model.called", "model.failed")])
    status = str(read_note(note.read_bytes()).meta["status"])
    edit(
        note,
        ("budget_usd: 1", "budget_usd: -3\npriority: 99\nportal: nowhere"),
        (f"status: {status}", "status: pending"),
    )
    vault.here()
    said = side(note).read_text()
    assert "`budget_usd: -3`" in said
    assert "`priority: 99`" in said
    assert "no portal `nowhere`" in said
    assert len([a for a in vault.actions() if a in ("model.called", "model.failed")]) == before
    edit(note, ("budget_usd: -3\npriority: 99\nportal: nowhere", "budget_usd: 3"))
    vault.script(
        ("plan", [{"calls": [("submit_plan", PLAN)]}]),
        ("revise", [{"calls": [("submit_plan", PLAN)]}]),
    )
    vault.here()
    assert not side(note).exists()
    assert "budget_usd = 3" in vault.plan().read_text()


def test_revision_waits_for_usable_request(tmp_path: Path) -> None:
    vault, note = planned(tmp_path, "Say hello\n")
    edit(note, ("status: planned", "status: planned\npriority: 99"))
    changes_asked(vault)
    vault.here()
    assert "priority: 99" in side(note).read_text()
    assert "placet revises this plan once the request" in side(vault.plan()).read_text()
    edit(note, ("priority: 99", "priority: 9"))
    vault.here()
    assert vault.rows("plan.revised")
    assert not side(vault.plan()).exists()


def test_another_portal_is_a_new_plan_from_scratch(tmp_path: Path) -> None:
    repos = {name: make_repo(tmp_path / name) for name in ("one", "two")}
    vault = bare_vault(
        tmp_path, "".join(f'\n[portals.{name}]\npath = "{path}"\n' for name, path in repos.items())
    )
    model = Fake(greeter)
    with looping(vault, model=lambda: model, time=Time()) as running:
        note = vault.drop("---\nportal: one\n---\nSay hello\n")
        running.settle()
        edit(vault.plan(), ("## Risks", "## Review Comments\n\n- [ ] my remark\n\n## Risks"))
        edit(note, ("portal: one", "portal: two"))
        running.settle()
    text = vault.plan().read_text()
    assert "portal: two" in text
    assert "`portal` `one` → `two`" in text
    last: Ask = model.asks[-1]
    assert last.purpose is Purpose.PLAN
    assert "my remark" not in str(last.turns), "the plan for another repository is not a beginning"
    assert any(
        "my remark" in path.read_text() for path in (vault.root / "Inbox/Archive").glob("*.md")
    ), "and is kept"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("porta", "portal"),
        ("Portal", "portal"),
        ("budget", "budget_usd"),
        ("agents", "agent"),
        ("budget-usd", "budget_usd"),
        ("prioritty", "priority"),
    ],
)
def test_misspelled_key_gets_suggestion(key: str, meant: str) -> None:
    note = read_note(f"---\n{key}: 5\n---\nHi\n".encode())
    with pytest.raises(RequestProblems, match=f"the key `{key}`. Did you mean `{meant}`"):
        read_request("x.md", note, {"default", "5"}, ("5",), "default")
    assert read_request("x.md", note, {"default"}, (), "default", (key,)).portal == ""


@pytest.mark.parametrize("key", ["agent", "portal", "complexity"])
def test_list_in_request_is_named(key: str) -> None:
    note = read_note(f"---\n{key}: [[x]]\n---\nHi\n".encode())
    said = f"`{key}` is a list. Write one word: `{key}: x`."
    with pytest.raises(RequestProblems, match=re.escape(said)):
        read_request("x.md", note, {"default"}, (), "default")


@pytest.mark.parametrize(
    "key",
    [
        "tags",
        "aliases",
        "cssclasses",
        "title",
        "date",
        "created",
        "author",
        "due",
        "type",
        "state",
        "project",
        "urgent",
        "parent",
        "target",
        "id",
        "template",
        "model",
    ],
)
def test_users_own_key_is_accepted(key: str) -> None:
    assert read_request(
        "x.md", read_note(f"---\n{key}: 5\n---\nHi\n".encode()), {"default"}, (), "default"
    )


def test_request_with_misspelled_key_waits_for_correction(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    note = vault.drop("---\nporta: app\n---\nSay hello\n")
    vault.here()
    assert not vault.plan().exists()
    assert "Did you mean `portal`?" in side(note).read_text()
    vault.configure(
        (vault.root / "System/placet.toml").read_text() + '\n[vault]\nown_keys = ["porta"]\n'
    )
    vault.here()
    assert vault.plan().exists()


def test_unchanged_keys_are_not_listed() -> None:
    assert changed_keys({"portal": "a"}, {"portal": "a"}) == ""


AGENTS, PORTALS = ("default", "Prüfer"), ("code",)
KEYS = "portal: code\nstatus: draft\nbudget_usd: 0.50"


def problems(text: str) -> tuple[str, ...]:
    try:
        read_request("a.md", read_note(text.encode()), AGENTS, PORTALS, "default")
    except RequestProblems as found:
        return found.problems
    return ()


@pytest.mark.parametrize(
    "text",
    [
        f"-----\n{KEYS}\n-----\nDo it\n",
        "---\nportal:code\n---\nDo it\n",
        f"\n---\n{KEYS}\n---\nDo it\n",
        f"---\nid: x\naliases: []\n---\n---\n{KEYS}\n---\nDo it\n",
        f"———\n{KEYS}\n———\nDo it\n",
        "---\nportal:\u00a0code\n---\nDo it\n",
        f"# Do it\n\n---\n{KEYS}\n---\nDo it\n",
        f"<!-- mine -->\n---\n{KEYS}\n---\nDo it\n",
        f"\u200b---\n{KEYS}\n---\nDo it\n",
        f" ---\n{KEYS}\n---\nDo it\n",
        '{"portal": "code", "status": "draft"}\n\nDo it\n',
        '{\n  "portal": "code",\n  "status": "draft"\n}\n\nDo it\n',
        f"\ufeff\ufeff---\n{KEYS}\n---\nDo it\n",
        "portal:: code\nDo it\n",
        "Do it [portal:: code]\n",
        "**Portal**: `code`\nDo it\n",
        f"---\na\nb\nc\nd\ne\nf\n{KEYS}\n---\nDo it\n",
        *(f"{line}\nDo it\n" for line in KEYS.split("\n")),
        "agent: [[default]]\nDo it\n",
        "priority: 3 # soon\nDo it\n",
        "priority: 05\nDo it\n",
        normalize("NFD", "agent: Prüfer\nDo it\n"),
        "complexity: trivial\nDo it\n",
    ],
)
def test_keys_outside_of_properties_are_named(text: str) -> None:
    found = problems(text)
    assert found
    assert all("is not in the properties" in one or "frontmatter" in one for one in found)


@pytest.mark.parametrize(
    "text",
    [
        f"---\n---\n{KEYS}\nDo it\n",
        f"---\nstatus: planned\ntrace_id: 9b20b19d-bd92-5906-8be0-05a93c00a401\n---\n{KEYS}\n",
        "Status: the login page is broken\n",
        "portal: elsewhere\n",
        "Priority: high\n",
        "Priority: 11\n",
        "# Title\n\n---\n\nText below a rule\n",
        "```yaml\nportal: code\n```\nDo it\n",
        f"1\n2\n3\n4\n5\n{KEYS}\n",
        "---\nportal: code\n---\nDo it\n",
    ],
)
def test_text_is_not_taken_for_properties(text: str) -> None:
    assert problems(text) == ()


def test_stray_key_is_named_with_its_line() -> None:
    assert problems("---\nid: x\n---\n\nportal: code\n") == (
        "Line 5 is not in the properties, so `portal: code` has no effect. Put it between two lines "
        "`---` at the very top. If it is text, write two lines `---` above it.",
    )


def test_plan_for_a_finished_request_says_so(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    vault.drop("Say hello\n")
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        running.settle()
        assert "carried out before" not in vault.plan().read_text()
        vault.approve()
        running.settle()
        done = vault.root / "Inbox/Archive/Say hello.md"
        vault.drop(done.read_text().replace("Say hello", "Say goodbye"), "Say goodbye.md")
        running.settle()
    plans = "".join(path.read_text() for path in (vault.root / "Inbox/Plans").glob("*.md"))
    assert "carried out before" in plans
    assert "revision: 2" in plans


@pytest.mark.parametrize("title", ["{{title}}", "{{ title }}", "<% tp.file.title %>"])
def test_unfilled_template_is_not_planned(title: str) -> None:
    note = read_note(f"# {title}\n\n## What I want\n".encode())
    with pytest.raises(RequestProblems, match="a template that was not filled in"):
        read_request("Inbox/Requests/Bug.md", note, ["default"], [], "default")
    text = b"# Fill in {{title}}\n\nThe template has {{title}}.\n"
    read_request("Inbox/Requests/Bug.md", read_note(text), ["default"], [], "default")


def test_portal_without_dashes_is_asked_about() -> None:
    note = read_note(b"portal: huey\n\nFix it.\n")
    with pytest.raises(RequestProblems, match="Line 1 is not in the properties"):
        read_request("Inbox/Requests/Fix.md", note, ["default"], ["huey"], "default")
