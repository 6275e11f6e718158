"""Plans that went astray: made unreadable, put where they do not belong, or older than what is
known of them.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from placet.case.callout import box_of, with_box
from placet.case.case import Case, KnownPlan, NoteSeen, Person, Request
from placet.case.commands import Decision, Move, Stamp
from placet.case.decide import decide
from placet.case.events import Drafted, Gesture, MissionEnded, RevisionAsked
from placet.case.life_cycle import EventKind, State
from placet.case.notes import look_at
from placet.case.observe import observe
from placet.case.sorting import sort_notes
from placet.note.frontmatter import plan_text, read_note
from placet.tools.registry import PLANNABLE
from vaultkit import PLAN, TestVault, make_vault

TRACE = "9b20b19d-bd92-5906-8be0-05a93c00a401"
NOW = "2026-01-02T03:04:05.000Z"
REQUEST = look_at(
    "Inbox/Requests/Say hello.md",
    f"---\ntrace_id: {TRACE}\nstatus: planned\n---\nHi\n".encode(),
    "cleo",
)
BODY = '# Hello\n\nA greeting.\n\n## Steps\n\n### 1. Write it\n\n## Scope\n\n```toml\nwrite = ["hello.txt"]\n```\n'
CASE = Case(
    TRACE,
    "say-hello",
    State.REVIEW,
    request_path=REQUEST.path,
    request_digest=REQUEST.digest,
    plan=KnownPlan(revision=1, path="Inbox/Plans/say-hello_plan.md"),
    request=Request(agent="default"),
    since=NOW,
)


def plan_at(path: str, *, keys: str = "status: review", body: str = BODY) -> NoteSeen:
    head = f"---\ntrace_id: {TRACE}\nrequest_id: say-hello\nrevision: 1\n{keys}\n---\n"
    return look_at(path, with_box((head + body).encode(), box_of(CASE)), "cleo")


def seen(case: Case, *notes: NoteSeen) -> tuple[Gesture | None, list[str]]:
    found = sort_notes({TRACE: case}, [REQUEST, *notes])
    return observe(case, found.of_case[TRACE], PLANNABLE), [
        f"{note.path}: {why}" for note, why in found.notices
    ]


@pytest.mark.parametrize("folder", ["System/Active", "Inbox/Rejected", "Inbox/Plans"])
def test_a_plan_made_unreadable_as_it_was_moved_is_explained_and_not_withdrawn(folder: str) -> None:
    broken = plan_at(f"{folder}/say-hello.md", keys="status: [review")
    assert broken.problem
    gesture, notices = seen(CASE, broken)
    assert gesture is None
    assert len(notices) == 1
    assert broken.problem in notices[0]


def ended(case: Case, kind: EventKind) -> Decision:
    decision = decide(
        case,
        MissionEnded(1, kind, b"# Report\n", "r.md", {"base": "b", "commit": ""}, "Stopped: why"),
        NOW,
    )  # type: ignore[arg-type]
    assert decision is not None
    return decision


@pytest.mark.parametrize(
    ("kind", "status", "home"),
    [
        (EventKind.MISSION_FAILED, "error", "Inbox/Plans/say-hello_plan.md"),
        (EventKind.MISSION_COMPLETED, "completed", "Inbox/Archive/say-hello_plan.md"),
    ],
)
def test_a_plan_moved_among_the_requests_during_its_run_goes_where_ended_plans_go(
    kind: EventKind, status: str, home: str
) -> None:
    where = "Inbox/Requests/odd name.md"
    plan = replace(CASE.plan, path=where)
    running = replace(CASE, state=State.RUNNING, stop="moved", plan=plan)
    decision = ended(running, kind)
    used_up = {} if status == "completed" else {"approved_by": None, "approved_at": None}
    assert Stamp(where, {"status": status, **used_up}) in decision.commands
    assert Move(where, home) in decision.commands
    assert decision.case.plan.path == home


def test_a_plan_that_a_person_took_back_during_its_run_stays_where_they_put_it() -> None:
    running = replace(CASE, state=State.RUNNING, stop="taken back")
    decision = ended(running, EventKind.MISSION_FAILED)
    assert decision.case.plan.path == CASE.plan.path
    assert not [c for c in decision.commands if isinstance(c, Move) and c.src == CASE.plan.path]


def test_a_revision_names_who_asked_for_it() -> None:
    note = plan_at(CASE.plan.path, keys="status: needs_revision")
    asked = decide(CASE, RevisionAsked(note, None, Person("cleo", "cli")), NOW)
    assert asked is not None
    text = plan_at(CASE.plan.path).raw.replace(b"revision: 1", b"revision: 2")
    drafted = Drafted(asked.case.generation, text, 2)
    revised = decide(asked.case, drafted, "2026-02-02T00:00:00.000Z")
    assert revised is not None
    meta = read_note(revised.texts[0]).meta
    assert meta["reviewed_by"] == "cleo"
    assert str(meta["reviewed_at"]).startswith("2026-01-02")
    assert revised.texts[1] == plan_text(text), "they are no part of what is approved"


# --- through the daemon
# -------------------------------------------------------------------------------------


def planned(tmp_path: Path) -> TestVault:
    vault = make_vault(tmp_path)
    vault.script(
        ("plan", [{"calls": [("submit_plan", PLAN)]}]),
        (
            "execute",
            [
                {
                    "calls": [
                        ("write_file", {"path": "hello.txt", "content": "hello\n"}),
                        ("complete_step", {"step": 1, "summary": "Done"}),
                        ("finish", {"summary": "Done."}),
                    ]
                }
            ],
        ),
    )
    vault.drop("Say hello.\n")
    vault.once()
    return vault


def test_an_approved_plan_whose_name_is_not_utf_8_is_explained_until_it_is_renamed(
    tmp_path: Path,
) -> None:
    vault = planned(tmp_path)
    odd = os.fsencode(vault.root) + b"/System/Active/hell\xf6.md"
    os.rename(vault.plan(), odd)  # noqa: PTH104 - a path in bytes
    vault.once()
    assert "plan.withdrawn" not in vault.actions()
    assert [
        row["metadata"]["reason"]
        for row in vault.rows("note.explained")
        if "UTF-8" in row["metadata"]["reason"]
    ]
    os.rename(odd, vault.active())  # noqa: PTH104 - a path in bytes
    vault.once()
    assert vault.actions().count("execution.completed") == 1
    assert not [path for path in (vault.root / "System/Active").iterdir() if ".placet" in path.name]


def test_an_edited_plan_whose_first_text_the_journal_does_not_have_can_be_approved(
    tmp_path: Path,
) -> None:
    """Journals of before `changed_lines` do not have it."""
    vault = planned(tmp_path)
    wrote = vault.rows("plan.created")[0]["metadata"]["digest"]
    with closing(sqlite3.connect(vault.db)) as connection, connection:
        assert connection.execute("DELETE FROM texts WHERE digest = ?", (wrote,)).rowcount == 1
    vault.plan().write_text(
        vault.plan().read_text().replace("Write a greeting.", "Write a short greeting.")
    )
    vault.approve()
    vault.once()
    (approved,) = vault.rows("plan.approved")
    assert approved["metadata"]["edited"] is True
    assert vault.actions().count("execution.completed") == 1
