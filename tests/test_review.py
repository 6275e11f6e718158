"""Review by moving files, through the daemon: every gesture of a person on a note, and what it
comes to.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gitkit import git
from messages_api import MessagesApi, call, drip, reply
from placet.case.case import SOMEONE
from placet.case.life_cycle import TABLE
from placet.note.box import without_box
from placet.note.frontmatter import read_note
from vaultkit import ME, PLAN, TestVault, make_vault, running, until

CONFIG = '[commands]\nsandbox = "none"\n[daemon]\nscan_interval_s = 0.5\n'
WRITE = [
    {
        "calls": [
            ("write_file", {"path": "hello.txt", "content": "hello\n"}),
            ("complete_step", {"step": 1, "summary": "Hello"}),
            ("finish", {"summary": "Done."}),
        ]
    }
]
SLOW = [{"calls": [WRITE[0]["calls"][0]]}, {"delay_s": 30.0, **WRITE[0]}]
PLANS = {"calls": [("submit_plan", PLAN)]}
WORK = (
    ("plan", "*", [PLANS]),
    ("revise", "*", [PLANS]),
    ("execute", "slow*", SLOW),
    ("execute", "*", WRITE),
)


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    vault = make_vault(tmp_path, LOGNAME=ME)
    vault.configure(CONFIG)
    replay(vault, *WORK)
    return vault


def replay(vault: TestVault, *conversations: tuple[str, str, Sequence[Mapping[str, Any]]]) -> None:
    """Let the scripted model say these replies, each conversation for the requests that its glob
    names.
    """
    parts = []
    for purpose, request, replies in conversations:
        vault.script((purpose, replies), request=request)
        parts.append((vault.root / "System/replies.toml").read_text())
    (vault.root / "System/replies.toml").write_text("".join(parts))


def planned(vault: TestVault, *idents: str) -> list[Path]:
    """Drop requests of these ids and wait for their plans."""
    for ident in idents:
        vault.drop(f"Please {ident}.\n", f"{ident}.md")
    for ident in idents:
        comes(vault.plan(ident), "status: review")
    return [vault.plan(ident) for ident in idents]


def await_row(vault: TestVault, ident: str, action: str, count: int = 1) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = rows(vault, ident, action)
        return found[count - 1] if len(found) >= count else None

    try:
        return until(look, f"{action} of {ident}")
    except AssertionError as error:
        raise AssertionError(
            f"{error}; it has {[r['action_type'] for r in rows(vault, ident)]}"
        ) from None


def rows(vault: TestVault, ident: str, action: str | None = None) -> list[dict[str, Any]]:
    return [row for row in vault.rows(action) if row["entity_id"] == ident]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def comes(path: Path, *pieces: str) -> str:
    """Wait until the note is there and has these pieces; return its text."""

    def look() -> str | None:
        text = path.read_text() if path.exists() else ""
        return text if text and all(piece in text for piece in pieces) else None

    try:
        return until(look, f"{path} with {pieces}")
    except AssertionError as error:
        raise AssertionError(
            f"{error}\n{path.read_text() if path.exists() else 'it is not there'}"
        ) from None


def request_of(vault: TestVault, ident: str) -> Path:
    return vault.root / "Inbox/Requests" / f"{ident}.md"


def archived(vault: TestVault, ident: str) -> Path:
    return vault.root / "Inbox/Archive" / f"{ident}_plan.md"


def test_a_status_without_effect_is_explained_until_it_is_taken_back(
    vault: TestVault,
) -> None:
    with running(vault):
        (plan,) = planned(vault, "hello")
        side = plan.with_name("hello_plan.placet.md")
        for status in ("approved", "looks good", "completed"):
            edit(plan, "status: review", f"status: {status}")
            comes(
                side,
                f"`status: {status}` has no effect here",
                "`System/Active`",
                "`decision: revise`",
            )
            edit(plan, f"status: {status}", "status: review")
            until(lambda: not side.exists(), "the explanation goes")
    assert vault.rows("plan.approved") == vault.rows("execution.started") == []


def test_a_spent_approval_is_refused_once_and_not_for_ever(vault: TestVault) -> None:
    with running(vault):
        planned(vault, "slow")
        vault.approve("slow")
        approved = comes(vault.active("slow"), "status: approved", "approved_at")
        await_row(vault, "slow", "execution.started")
        vault.active("slow").rename(vault.plan("slow"))
        comes(vault.plan("slow"), "status: review")
        await_row(vault, "slow", "plan.taken_back")
        vault.plan("slow").unlink()
        vault.active("slow").write_text(approved)  # as a sync tool that was offline puts it back
        assert "was used already" in await_row(vault, "slow", "plan.refused")["metadata"]["reason"]
        assert "approved_" not in comes(vault.plan("slow"), "status: review", "Not approved")
        vault.approve("slow")
        await_row(vault, "slow", "plan.approved", 2)


# --- approve
# --------------------------------------------------------------------------------------------------


def test_a_plan_is_approved_by_a_move_under_any_name_and_by_the_command_line(
    vault: TestVault,
) -> None:
    with running(vault):
        by_hand, _ = planned(vault, "by-hand", "by-cli")
        by_hand.rename(vault.root / "System/Active/Sure, do it! ✅ (v2).md")
        vault.cli("approve", "by-cli", "--yes")
        for ident, who, via in (("by-hand", SOMEONE, "move"), ("by-cli", ME, "cli")):
            row = await_row(vault, ident, "plan.approved")
            assert row["actor"] == "human"
            written = rows(vault, ident, "plan.created")[0]["metadata"]["digest"]
            told = {
                "digest": written,
                "reviewed_by": who,
                "via": via,
                "edited": False,
                "changed_lines": [],
                "revision": 1,
            }
            assert told.items() <= row["metadata"].items()
            assert await_row(vault, ident, "execution.completed")
            comes(
                archived(vault, ident), "status: completed", f"approved_by: {who}", "approved_at: "
            )


def test_an_edited_plan_is_approved_as_edited_and_the_lines_are_journalled(
    vault: TestVault,
) -> None:
    with running(vault):
        plan, refused, again = planned(vault, "edited", "refused", "again")
        body = without_box(read_note(plan.read_bytes()).body).split("\n")
        edit(plan, "Write a greeting.", "Write a friendly greeting.\n\nIn English.")
        edit(plan, 'write = ["hello.txt"]', 'write = ["hello.txt", "hallo.txt"]')
        at = body.index("Write a greeting.") + 1
        scope = next(n for n, line in enumerate(body, 1) if line.startswith("write = ")) + 2
        # what a reviewer reads follows what they edit
        comes(plan, "> It may write `hello.txt`, `hallo.txt`;")
        vault.approve("edited")
        row = await_row(vault, "edited", "plan.approved")["metadata"]
        assert row["edited"] is True
        assert row["changed_lines"] == [[at, at + 2], [scope, scope]]
        assert row["digest"] != rows(vault, "edited", "plan.created")[0]["metadata"]["digest"]
        assert (
            await_row(vault, "edited", "execution.started")["metadata"]["digest"] == row["digest"]
        )

        # placet's own box is no edit, the person's word is
        edit(refused, "Tools: `write_file`", "Tools: `rm_rf`")
        vault.approve("refused")
        comes(refused, "Not approved", "rm_rf")
        number = int(re.search(r"> Line (\d+) below this box: .*rm_rf", refused.read_text())[1])
        below = without_box(read_note(refused.read_bytes()).body)
        assert below.splitlines()[number - 1].startswith("Tools: `rm_rf`")
        edit(refused, "Tools: `rm_rf`", "Tools: `write_file`, `read_file`")
        vault.approve("refused")
        row = await_row(vault, "refused", "plan.approved")["metadata"]
        assert row["edited"] is True
        assert row["changed_lines"]

        again.rename(vault.root / "Inbox/Requests/again_plan.md")
        comes(again, "Moved back here")
        vault.approve("again")
        assert await_row(vault, "again", "plan.approved")["metadata"]["edited"] is False


# --- reject
# ---------------------------------------------------------------------------------------------------


def test_a_plan_is_rejected_by_hand_or_command_with_its_reason(vault: TestVault) -> None:
    with running(vault):
        by_key, by_section, _, in_place = planned(
            vault, "by-key", "by-section", "by-cli", "in-place"
        )
        edit(by_key, "status: review", "status: review\nrejection_reason: too broad")
        by_key.rename(vault.root / "Inbox/Rejected/no thanks.md")
        by_section.write_text(
            by_section.read_text() + "\n## Rejection\n\nNot **now**, perhaps later.\n"
        )
        by_section.rename(vault.root / "Inbox/Rejected/by-section_plan.md")
        vault.cli("reject", "by-cli", "--reason", "We have one: ✅")
        edit(in_place, "status: review", "status: rejected")
        wanted = (
            ("by-key", "no thanks.md", "too broad"),
            ("by-section", "by-section_plan.md", "Not **now**, perhaps later."),
            ("by-cli", "by-cli_rejected.md", "We have one: ✅"),
            ("in-place", "in-place_rejected.md", ""),
        )
        for ident, name, reason in wanted:
            row = await_row(vault, ident, "plan.rejected")
            assert row["actor"] == "human"
            assert row["metadata"]["reason"] == reason
            assert row["metadata"]["reviewed_by"] == (ME if ident == "by-cli" else SOMEONE)
            assert row["metadata"]["via"] == {"by-cli": "cli", "in-place": "property"}.get(
                ident, "move"
            )
            comes(
                vault.root / "Inbox/Rejected" / name,
                "status: rejected",
                "rejected_by: ",
                "rejected_at: ",
                reason,
            )
            comes(request_of(vault, ident), "status: rejected")
        assert not vault.notes("Inbox/Plans")
        # A change of mind: the plan goes back to review, and from there it is approved.
        (vault.root / "Inbox/Rejected/no thanks.md").rename(by_key)
        assert "rejection_reason" not in comes(by_key, "status: review")
        vault.approve("by-key")
        await_row(vault, "by-key", "execution.completed")
    assert len([r for r in vault.rows() if r["action_type"] == "execution.started"]) == 1


# --- request changes, edit
# ------------------------------------------------------------------------------------

MARKS = (
    "✅ the first step is good",
    "❌ drop the second file",
    "⚠️ mind the CRLF\u00a0files",
    "💡 say it in French, *too*",
)


class Planner:
    """Plans and revises over the wire; the first `slow` calls take their time."""

    def __init__(self) -> None:
        self.slow = 0
        self.revision = 1

    def __call__(self, body: dict[str, Any]) -> Any:
        said = body["messages"][0]["content"]
        text = said if isinstance(said, str) else "\n".join(block["text"] for block in said)
        plan = {**PLAN, "summary": f"Attempt {self.revision}."}
        self.revision += 1
        if "<plan>" in text:
            open_comments = text.split("Open review comments, in order:\n")
            count = (
                len([line for line in open_comments[1].split("\n") if line[:1].isdigit()])
                if len(open_comments) > 1
                else 0
            )
            plan["answers"] = [f"Answer {n} of {count}" for n in range(1, count + 1)]
        answer = reply(call("submit_plan", plan))
        if self.slow:
            self.slow -= 1
            return drip(answer, 0.5)
        return answer


def spoken(api: MessagesApi, at: int) -> str:
    """What the person's side said in a request to the model."""
    return "\n".join(
        block["text"] for block in json.loads(api.requests[at].raw)["messages"][0]["content"]
    )


@pytest.fixture
def api() -> Any:
    planner = Planner()
    with MessagesApi(planner) as server:
        server.planner = planner
        yield server


@pytest.fixture
def wired(tmp_path: Path, api: Any) -> TestVault:
    vault = make_vault(
        tmp_path, LOGNAME=ME, ANTHROPIC_API_KEY="sk-ant-test", ANTHROPIC_BASE_URL=api.url
    )
    vault.configure(CONFIG)
    return vault


def test_changes_are_asked_for_and_answered_in_rounds(wired: TestVault, api: Any) -> None:
    vault = wired
    with running(vault):
        (plan,) = planned(vault, "hello")
        section = "\n## Review Comments\n\n" + "".join(f"- {mark}\n" for mark in MARKS)
        plan.write_text(
            plan.read_text().replace("status: review", "status: needs_revision") + section
        )
        asked = await_row(vault, "hello", "plan.revision_requested")
        assert (asked["actor"], asked["metadata"]["comment_count"]) == ("human", 4)
        revised = await_row(vault, "hello", "plan.revised")
        assert (revised["actor"], revised["metadata"]["revision"]) == ("agent", 2)
        text = comes(plan, "status: review", "revision: 2")
        for number, mark in enumerate(MARKS, 1):
            assert mark in spoken(api, 1)
            assert f"- {mark}\n  - **Answer:** Answer {number} of 4\n" in text
        assert "\n> [!abstract]-" in text or "]- " in text, "the difference is folded"
        assert "> - gone: `Attempt 1.`" in text
        assert "> - new: `Attempt 2.`" in text
        vault.cli(
            "revise", "hello", "--comment", "❌ still too long", "--comment", "💡 and\nin two lines"
        )
        await_row(vault, "hello", "plan.revised", 2)
        text = comes(plan, "status: review", "revision: 3")
        assert re.search(
            r"- \*\*(?:\w+), \d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\*\* ❌ still too long\n", text
        )
        asked = rows(vault, "hello", "plan.revision_requested")[1]["metadata"]
        assert (asked["comment_count"], asked["reviewed_by"], asked["via"]) == (2, ME, "cli")
        assert spoken(api, 2).split("Open review comments")[1].count("\n2. ") == 1
        assert "❌ still too long" in spoken(api, 2)
        assert "Answer 1 of 4" in text
        assert "Answer 4 of 4" in text
        assert "Answer 1 of 2" in text
        assert "Answer 2 of 2" in text
        assert text.count("[!") == text.count("> [!"), "callouts stay callouts"
        assert text.count("> - new: `Attempt") == 1, "only the last difference is shown"
        # a third round, without a word
        plan.write_text(text.replace("status: review", "status: needs_revision"))
        await_row(vault, "hello", "plan.revised", 3)
        comes(plan, "status: review", "revision: 4", *MARKS)
        assert rows(vault, "hello", "plan.revision_requested")[2]["metadata"]["comment_count"] == 0
        vault.approve("hello")
        assert await_row(vault, "hello", "plan.approved")["metadata"]["edited"] is False


@pytest.mark.parametrize("watch", ["events", "polling"])
def test_a_revision_is_asked_for_once_however_files_are_watched(
    vault: TestVault, watch: str
) -> None:
    """Between the daemon's own write and the look that shows it settled, the note as it was before
    has no effect.
    """
    config = (vault.root / "System/placet.toml").read_text()
    vault.configure(config.replace("interval_s = 0.5", f'interval_s = 0.1\nwatch = "{watch}"'))
    with running(vault):
        plan, _ = planned(vault, "hello", "later")
        edit(plan, "status: review", "status: needs_revision")
        comes(plan, "status: review", "revision: 2")
        vault.active("later").write_text(
            vault.plan("later").read_text().replace("status: review", "status: rejected")
        )
        vault.plan("later").unlink()
        await_row(vault, "later", "plan.rejected")
    vault.once()
    for action in ("plan.revision_requested", "plan.revised", "plan.refused", "plan.rejected"):
        assert len(vault.rows(action)) == 1, action


def test_an_edit_of_the_request_is_planned_whenever_it_comes(wired: TestVault, api: Any) -> None:
    vault = wired
    api.planner.slow = 1
    with running(vault):
        request = vault.drop("The first wish.\n", "hello.md")
        comes(request, "status: planning")
        until(lambda: api.requests, "the first call")
        edit(request, "The first wish.", "The second wish.")
        row = await_row(vault, "hello", "request.edited")
        assert row["actor"] == "human"
        plan = vault.plan("hello")
        text = comes(plan, "revision: 1")
        comes(request, "status: planned", "The second wish.")
        assert "The second wish." in spoken(api, 1)
        assert len(rows(vault, "hello", "plan.created")) == 1, (
            "the first planning counts for nothing"
        )
        assert "Attempt 2." in text

        edit(plan, "Attempt 2.", "Attempt 2, with my own words.")
        edit(request, "The second wish.", "The third wish.")
        await_row(vault, "hello", "plan.revised")
        text = comes(plan, "status: review", "revision: 2", "Attempt 3.")
        assert "The third wish." in spoken(api, 2)
        assert "with my own words" in spoken(api, 2), (
            "the person's edit of the plan is what is revised"
        )
        assert "> - gone: `Attempt 2, with my own words.`" in text

        api.planner.slow = 1
        edit(plan, "status: review", "status: needs_revision")
        until(lambda: len(api.requests) == 4, "the revision is asked for")
        plan.write_text(plan.read_text() + "\n## Review Comments\n\n- 💡 one more thing\n")
        assert await_row(vault, "hello", "plan.edited")["actor"] == "human"
        text = comes(plan, "status: review", "revision: 3")
        assert "💡 one more thing" in spoken(api, 4)
        assert "- 💡 one more thing\n  - **Answer:** Answer 1 of 1" in text
        assert len(rows(vault, "hello", "plan.revised")) == 2
    assert not vault.notes("Inbox/Archive"), "no edit had to be put aside"


# --- before the run
# -------------------------------------------------------------------------------------------


@pytest.fixture
def busy(vault: TestVault) -> Any:
    """A daemon whose only place for a mission is taken, so that approved plans wait."""
    vault.configure((vault.root / "System/placet.toml").read_text() + "missions_at_once = 1\n")
    with running(vault):
        planned(vault, "slow")
        vault.approve("slow")
        await_row(vault, "slow", "execution.started")
        yield vault


def test_until_it_runs_an_approval_can_be_taken_back_in_every_way(busy: TestVault) -> None:
    vault = busy
    idents = (
        "edited",
        "keyed",
        "taken",
        "rejected",
        "revised",
        "denied",
        "deleted",
        "misplaced",
        "stopped",
    )
    planned(vault, *idents)
    for ident in idents:
        vault.approve(ident)
    for ident in idents:
        await_row(vault, ident, "plan.approved")
        comes(vault.active(ident), "status: approved")
    edit(vault.active("edited"), 'write = ["hello.txt"]', 'write = ["**"]')
    edit(vault.active("keyed"), "agent: default", "agent: writer")
    vault.active("taken").rename(vault.plan("taken"))
    vault.active("rejected").rename(vault.root / "Inbox/Rejected/rejected.md")
    edit(vault.active("revised"), "status: approved", "status: needs_revision")
    edit(vault.active("denied"), "status: approved", "status: rejected")
    vault.active("deleted").unlink()
    vault.active("misplaced").rename(vault.root / "Inbox/Requests/misplaced_plan.md")
    vault.cli("stop", "stopped")

    text = comes(
        vault.plan("edited"), "status: review", "Changed after approval", "move it to System/Active"
    )
    assert '> -write = ["hello.txt"]' in text
    assert '> +write = ["**"]' in text
    assert "approved_at" not in text
    row = await_row(vault, "edited", "plan.changed_after_approval")
    assert (row["actor"], row["metadata"]["running"]) == ("human", False)
    comes(vault.plan("keyed"), "status: review", "Changed after approval")
    for ident, action in (
        ("taken", "plan.taken_back"),
        ("rejected", "plan.rejected"),
        ("denied", "plan.rejected"),
        ("deleted", "plan.withdrawn"),
        ("misplaced", "plan.refused"),
        ("stopped", "plan.taken_back"),
    ):
        assert await_row(vault, ident, action)["actor"] == "human"
    for ident in ("taken", "stopped", "misplaced"):
        assert "approved_at" not in comes(vault.plan(ident), "status: review")
    await_row(vault, "revised", "plan.revised")
    assert "approved_at" not in comes(vault.plan("revised"), "revision: 2", "status: review")
    comes(vault.root / "Inbox/Rejected/denied_rejected.md", "status: rejected")
    comes(request_of(vault, "deleted"), "status: rejected")
    assert vault.notes("System/Active") == ["slow.md"]
    started = [row["entity_id"] for row in vault.rows("execution.started")]
    assert started == ["slow"]
    # Make room: what is approved now, and nothing else, runs.
    vault.approve("taken")
    vault.active("slow").rename(vault.plan("slow"))
    await_row(vault, "taken", "execution.completed")
    assert [row["entity_id"] for row in vault.rows("execution.started")] == ["slow", "taken"]


# --- during the run
# -------------------------------------------------------------------------------------------


def test_a_run_is_stopped_with_a_report_and_can_be_approved_again(vault: TestVault) -> None:
    idents = ("slow-cli", "slow-move", "slow-reject", "slow-delete")
    vault.configure((vault.root / "System/placet.toml").read_text() + "missions_at_once = 4\n")
    with running(vault):
        planned(vault, *idents)
        for ident in idents:
            vault.approve(ident)
        for ident in idents:
            await_row(vault, ident, "tool.called")
        vault.cli("stop", "slow-cli")
        vault.active("slow-move").rename(vault.root / "Inbox/Plans/wait.md")
        vault.active("slow-reject").rename(vault.root / "Inbox/Rejected/never.md")
        vault.active("slow-delete").unlink()
        for ident in idents:
            failed = await_row(vault, ident, "execution.failed")
            assert failed["metadata"]["reason"] == "stopped_by_person"
            assert rows(vault, ident, "plan.taken_back")[0]["metadata"]["running"] is True
        until(lambda: len(vault.reports()) == 4, "four reports")
        assert all(
            report.name.endswith("_failure.md") and "stopped on purpose" in report.read_text()
            for report in vault.reports()
        )
        for place in (vault.plan("slow-cli"), vault.root / "Inbox/Plans/wait.md"):
            assert "approved_at" not in comes(place, "status: review")
        comes(vault.root / "Inbox/Rejected/never.md", "status: rejected")
        comes(request_of(vault, "slow-delete"), "status: error")
    replay(vault, ("plan", "*", [PLANS]), ("execute", "*", WRITE))
    with running(vault):
        vault.cli("approve", "slow-move", "--yes")
        vault.approve("slow-cli")
        for ident in ("slow-move", "slow-cli"):
            await_row(vault, ident, "execution.completed")


def test_an_edit_during_the_run_is_told_and_the_approved_text_runs(vault: TestVault) -> None:
    replay(
        vault,
        ("plan", "*", [PLANS]),
        (
            "execute",
            "*",
            [
                SLOW[0],
                {"delay_s": 2.5, "calls": [("write_file", {"path": "other.txt", "content": "x"})]},
                WRITE[0],
            ],
        ),
    )
    with running(vault):
        planned(vault, "hello")
        vault.approve("hello")
        await_row(vault, "hello", "execution.started")
        comes(vault.active("hello"), "status: approved")
        edit(vault.active("hello"), 'write = ["hello.txt"]', 'write = ["**"]')
        row = await_row(vault, "hello", "plan.changed_after_approval")
        assert (row["actor"], row["metadata"]["running"]) == ("human", True)
        comes(vault.root / "System/Active/hello.placet.md", "goes on", '> +write = ["**"]')
        done = await_row(vault, "hello", "execution.completed")
        comes(archived(vault, "hello"), 'write = ["**"]', "status: completed")
        until(
            lambda: not (vault.root / "System/Active/hello.placet.md").exists(),
            "the side note goes",
        )
    assert rows(vault, "hello", "tool.refused")[0]["metadata"]["tool"] == "write_file"
    assert done["metadata"]["files_changed"] == ["hello.txt"]
    assert len(vault.rows("plan.changed_after_approval")) == 1, "told once"
    assert "changed during the run" in vault.reports()[0].read_text()


# --- withdraw
# -------------------------------------------------------------------------------------------------


def test_what_is_taken_away_is_a_decision_and_can_be_undone(vault: TestVault) -> None:
    replay(vault, ("plan", "early*", [{"delay_s": 30.0, **PLANS}]), *WORK)
    with running(vault):
        early = vault.drop("Please.\n", "early.md")
        comes(early, "status: planning")
        plan, kept = planned(vault, "request-gone", "plan-gone")
        gone = comes(request_of(vault, "request-gone"), "status: planned")
        plan_text = comes(kept, "status: review")
        early.unlink()
        request_of(vault, "request-gone").unlink()
        kept.unlink()
        for ident, action in (
            ("early", "request.withdrawn"),
            ("request-gone", "request.withdrawn"),
            ("plan-gone", "plan.withdrawn"),
        ):
            assert await_row(vault, ident, action)["actor"] == "human"
        comes(archived(vault, "request-gone"), "status: rejected")
        comes(request_of(vault, "plan-gone"), "status: rejected")
        assert not plan.exists()
        assert "plan.created" not in [row["action_type"] for row in rows(vault, "early")]
        # Undo: the sync tool, or the person, brings the notes back.
        kept.write_text(plan_text)
        request_of(vault, "request-gone").write_text(gone)
        await_row(vault, "plan-gone", "plan.taken_back")
        comes(request_of(vault, "plan-gone"), "status: planned")
        comes(kept, "status: review")
        comes(plan, "status: review")
        comes(request_of(vault, "request-gone"), "status: planned")
        vault.approve("plan-gone")
        vault.approve("request-gone")
        for ident in ("plan-gone", "request-gone"):
            await_row(vault, ident, "execution.completed")
    assert len(vault.rows("execution.started")) == 2


def test_an_absence_shorter_than_the_settling_time_means_nothing(vault: TestVault) -> None:
    with running(vault):
        (plan,) = planned(vault, "hello")
        text = comes(plan, "status: review")
        for _ in range(5):  # an atomic save as some editors and sync tools do it
            plan.unlink()
            plan.write_text(text)
        outside = vault.root / "elsewhere.md"
        plan.rename(outside)
        outside.rename(plan)
        vault.approve("hello")
        await_row(vault, "hello", "execution.completed")
    assert not {"plan.withdrawn", "plan.taken_back"} & set(vault.actions())


# --- what never runs
# ------------------------------------------------------------------------------------------


def test_a_status_that_says_no_never_runs_in_active(vault: TestVault) -> None:
    with running(vault):
        for status in ("rejected", "needs_revision"):
            ident = status.replace("_", "-")
            (plan,) = planned(vault, ident)
            edit(plan, "status: review", f"status: {status}")
            plan.rename(vault.active(ident))
        for ident in ("rejected", "needs-revision"):
            row = await_row(vault, ident, "plan.refused")
            assert "was not approved" in row["metadata"]["reason"]
        until(lambda: not vault.notes("System/Active"), "both go back")
    assert not {"plan.approved", "execution.started"} & set(vault.actions())


def test_illegal_moves_are_explained_and_put_right(vault: TestVault) -> None:
    active = vault.root / "System/Active"
    with running(vault):
        strange = active / "straight.md"
        strange.write_text("Please do this at once.\n")
        comes(active / "straight.placet.md", "nothing of it runs", "Inbox/Requests")
        strange.rename(request_of(vault, "straight"))
        comes(vault.plan("straight"), "status: review")
        until(lambda: not (active / "straight.placet.md").exists(), "the explanation goes")

        request = request_of(vault, "straight")
        comes(request, "status: planned")
        request.rename(active / "straight.md")  # the request, not its plan
        comes(active / "straight.placet.md", "This is a request, not a plan", "Move it back")
        (active / "straight.md").rename(request)
        until(lambda: not (active / "straight.placet.md").exists(), "the explanation goes")

        plan, moved = planned(vault, "twice", "moved")
        text = comes(plan, "status: review")
        vault.active("twice").write_text(text)  # copied, not moved
        side = active / "twice.placet.md"
        assert "There are 2 plans" in comes(
            side, "Inbox/Plans/twice_plan.md", "System/Active/twice.md"
        )
        comes(vault.root / "Inbox/Plans/twice_plan.placet.md", "There are 2 plans")
        assert "plan.approved" not in vault.actions()
        plan.unlink()  # now it was a move
        await_row(vault, "twice", "execution.completed")
        until(lambda: not side.exists(), "the explanation goes")

        moved.rename(vault.root / "Inbox/Requests/moved_plan.md")
        comes(moved, "Moved back here", "does not belong in Inbox/Requests", "status: review")
        assert vault.notes("Inbox/Requests") == ["moved.md", "straight.md"]
        vault.approve("moved")
        await_row(vault, "moved", "execution.completed")
    assert {row["entity_id"] for row in vault.rows("execution.started")} == {"twice", "moved"}
    assert len(vault.rows("plan.created")) == 3, "no illegal move asked for a plan"


def test_conflict_copies_are_never_a_request_nor_an_approval_and_show_the_difference(
    vault: TestVault,
) -> None:
    names = (
        "{} (conflicted copy 2026-11-21)",
        "{} (Conflicted copy phone 202611211200)",
        "{}.sync-conflict-20261121-120000-ABCDEFG",
        "{} (Alice's conflicted copy 2026-11-21)",
    )
    with running(vault):
        plan, rejected = planned(vault, "hello", "no")
        text = comes(plan, "status: review")
        comes(request_of(vault, "hello"), "status: planned")
        rejected.rename(vault.root / "Inbox/Rejected/no.md")
        comes(vault.root / "Inbox/Rejected/no.md", "status: rejected")
        sides = []
        for folder, original in (
            ("Inbox/Requests", request_of(vault, "hello")),
            ("Inbox/Plans", plan),
            ("Inbox/Rejected", vault.root / "Inbox/Rejected/no.md"),
        ):
            for name in names:
                copy = vault.root / folder / (name.format(original.stem) + ".md")
                copy.write_text(original.read_text().replace("e", "E"))
                sides.append(copy.with_name(copy.stem + ".placet.md"))
        for name in names:
            copy = vault.root / "System/Active" / (name.format("hello") + ".md")
            copy.write_text(text)  # its original lies elsewhere: still no approval
            comes(
                copy.with_name(copy.stem + ".placet.md"),
                "conflict copy of `hello.md`",
                "approves nothing",
            )
        for side in sides:
            told = comes(side, "conflict copy", "```diff")
            assert "\n> -" in told
            assert "\n> +" in told
        vault.approve("hello")  # the copies stand in nobody's way
        await_row(vault, "hello", "execution.completed")
        for path in (vault.root / "System/Active").glob("hello*onflict*"):
            if not path.name.endswith(".placet.md"):
                path.unlink()
        until(lambda: not vault.notes("System/Active"), "the explanations go")
    assert len(vault.rows("plan.created")) == 2
    assert len(vault.rows("plan.approved")) == 1


def test_a_numbered_copy_of_a_request_or_plan_is_shown_beside_it(vault: TestVault) -> None:
    with running(vault):
        (plan,) = planned(vault, "hello")
        comes(request_of(vault, "hello"), "status: planned")
        (request_of(vault, "hello").with_name("hello 2.md")).write_text(
            request_of(vault, "hello").read_text() + "And more.\n"
        )
        comes(vault.root / "Inbox/Requests/hello 2.placet.md", "same `trace_id`", "> +And more.")
        (vault.root / "Inbox/Plans/hello_plan 2.md").write_text(
            plan.read_text().replace("greeting", "speech")
        )
        comes(
            vault.root / "Inbox/Plans/hello_plan 2.placet.md",
            "There are 2 plans",
            "> +Write a speech.",
        )
    assert len(vault.rows("plan.created")) == 1


def test_touching_a_plan_or_bringing_an_old_copy_back_runs_nothing_again(vault: TestVault) -> None:
    with running(vault):
        planned(vault, "hello", "slow")
        for ident in ("hello", "slow"):
            vault.approve(ident)
        active = comes(vault.active("slow"), "status: approved", "approved_at")
        await_row(vault, "hello", "execution.completed")
        done = comes(archived(vault, "hello"), "status: completed", "approved_at")
        for _ in range(3):
            vault.active("slow").write_text(active)
            os.utime(vault.active("slow"))
            archived(vault, "hello").touch()
        # A sync tool that was offline brings back what it knew: the approved plan, with all its
        # stamps.
        old = done.replace("status: completed", "status: approved")
        vault.active("hello").write_text(old)
        assert "carried out" in await_row(vault, "hello", "plan.refused")["metadata"]["reason"]
        until(lambda: not vault.active("hello").exists(), "it goes back to the archive")
        (vault.root / "System/Active/another name.md").write_text(done)
        await_row(vault, "hello", "plan.refused", 2)
        until(
            lambda: not (vault.root / "System/Active/another name.md").exists(),
            "it goes back to the archive",
        )
    started = [row["entity_id"] for row in vault.rows("execution.started")]
    assert sorted(started) == ["hello", "slow"]
    assert len(vault.rows("plan.approved")) == 2


def test_documented_life_cycle_is_the_tables(tmp_path: Path) -> None:
    drawn = TestVault(tmp_path, tmp_path / "state").cli("states").stdout
    written = (Path(__file__).parents[1] / "daemon/ARCHITECTURE.md").read_text()
    arrows = re.findall(r"(?m)^  \S+ --> \S+$", written)
    assert len(arrows) > 10
    assert all(f"{arrow}:" in drawn for arrow in arrows)
    for (source, _), target in TABLE.items():
        arrow = f"{source.value if source is not None else '[*]'} --> {target.value}:"
        assert source is target or arrow in drawn


def test_nothing_a_person_wrote_is_lost_between_all_of_it(vault: TestVault) -> None:
    """A comment written into the plan in the very moment in which its revision lands is kept."""
    replay(
        vault,
        ("plan", "*", [PLANS]),
        ("revise", "*", [{"delay_s": 0.8, "calls": [("submit_plan", {**PLAN, "title": "Two"})]}]),
    )
    with running(vault):
        (plan,) = planned(vault, "hello")
        edit(plan, "status: review", "status: needs_revision")
        await_row(vault, "hello", "plan.revision_requested")
        words = []
        for number in range(200):
            words.append(f"word {number}")
            written = None
            while written != plan.stat().st_ino:  # an editor sees that its file was replaced
                with plan.open("a") as out:
                    out.write(f"{words[-1]}\n")
                    written = os.fstat(out.fileno()).st_ino
            if rows(vault, "hello", "plan.revised"):
                break
        comes(plan, "revision: 2")

        def kept() -> str:
            return "\n".join(p.read_text() for p in vault.root.glob("Inbox/**/*.md"))

        until(lambda: all(word in kept() for word in words), "every word is somewhere")
    assert git(vault.root, "branch", "--list", "feat/*") == ""
