"""Test what placet makes of lost plans, useless properties and old statuses.

A useless move or edit gets a side note. A rejection never counts as an approval.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from looping import Fake, Time, bare_vault, greeter, looping, says
from placet.activity import Actor
from placet.case.branch_fate import SeenInGit, settle_branch, settle_revert
from placet.case.callout import box_of, with_box
from placet.case.case import (
    Asking,
    Branch,
    Case,
    KnownPlan,
    LastOutcome,
    NoteSeen,
    Rejection,
    Request,
)
from placet.case.commands import Decision, Stamp
from placet.case.decide import decide
from placet.case.events import (
    BY_PROPERTY,
    ApprovalRefused,
    Gesture,
    MissionCompleted,
    MissionFailed,
    PlanApproved,
    PlanRejected,
    RejectionExplained,
)
from placet.case.life_cycle import State
from placet.case.notes import inspect_note, rejection_in
from placet.case.observe import observe, stale_statuses
from placet.case.request import RequestProblems, read_request
from placet.case.sorting import CaseNotes, not_asking, sort_notes
from placet.case.warnings import warnings_for
from placet.chat.messages import Ask, Purpose, Reply
from placet.disk.errors import VaultTrouble
from placet.disk.vault import Vault
from placet.note.frontmatter import read_note
from placet.tools.registry import PLANNABLE
from vaultkit import TestVault, until

TRACE = "9b20b19d-bd92-5906-8be0-05a93c00a401"
NOW = "2026-01-02T03:04:05.000Z"
REQUEST = inspect_note(
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
    return inspect_note(path, with_box((head + body).encode(), box_of(CASE)), "cleo")


def seen(case: Case, *notes: NoteSeen) -> tuple[Gesture | None, list[str]]:
    found = sort_notes({TRACE: case}, [REQUEST, *notes])
    return observe(case, found.of_case[TRACE], PLANNABLE), [
        f"{note.path}: {why}" for note, why in found.notices
    ]


@pytest.mark.parametrize("folder", ["System/Active", "Inbox/Rejected", "Inbox/Plans"])
def test_unreadable_moved_plan_is_explained_not_withdrawn(folder: str) -> None:
    broken = plan_at(f"{folder}/say-hello.md", keys="status: [review")
    assert broken.problem
    gesture, notices = seen(CASE, broken)
    assert gesture is None
    assert len(notices) == 1
    assert broken.problem in notices[0]


def ended(case: Case, kind: type[MissionCompleted] | type[MissionFailed]) -> Decision:
    decision = decide(case, kind(1, b"# Report\n", "r.md", {"base": "b", "commit": ""}), NOW)
    assert decision is not None
    return decision


def said(state: State, *notes: NoteSeen, **changes: str) -> dict[str, str]:
    case = replace(
        CASE, state=state, plan=replace(CASE.plan, digest=plan_at(CASE.plan.path).digest), **changes
    )
    found = sort_notes({TRACE: case}, notes)
    return dict(warnings_for(case, found.of_case.get(TRACE, CaseNotes())))


@pytest.mark.parametrize(
    ("state", "path", "status", "told"),
    [
        (State.REVIEW, "Inbox/Plans/x.md", "looks good", "still waits for you"),
        (State.APPROVED, "System/Active/x.md", "hold", "move it to `Inbox/Plans`"),
        (State.RUNNING, "System/Active/x.md", "pending", "move it to `Inbox/Plans`"),
        (
            State.REJECTED,
            "Inbox/Rejected/x.md",
            "hold",
            "set `status: pending` in the request",
        ),
        (State.FAILED, "Inbox/Requests/x_plan.md", "pending", "no effect in `Inbox/Requests`"),
        (State.FAILED, "Inbox/Plans/x_plan.md", "pending", "has no effect here"),
        (State.FAILED, "Inbox/Plans/x_plan.md", "approved", "has no effect here"),
        (State.REVIEW, "Inbox/Plans/x_plan.md", "approved", "has no effect here"),
        (State.COMPLETED, "Inbox/Rejected/x.md", "completed", "move it to `Inbox/Plans`"),
        (State.REJECTED, "Inbox/Requests/x.md", "rejected", "move it to `Inbox/Plans`"),
        (State.REVIEW, "Inbox/Plans/x.md", "needs_revision", "the plan has no open comment"),
    ],
)
def test_ineffective_plan_status_or_folder_is_explained(
    state: State, path: str, status: str, told: str
) -> None:
    assert told in said(state, plan_at(path, keys=f"status: {status}"))[path]


@pytest.mark.parametrize("state", [State.REVIEW, State.RUNNING, State.REJECTED, State.WITHDRAWN])
@pytest.mark.parametrize("status", ["rejected", "done", "completed"])
def test_a_request_s_status_without_effect_is_explained(state: State, status: str) -> None:
    raw = REQUEST.raw.replace(b"planned", status.encode())
    own = status == "rejected" and state in (State.REJECTED, State.WITHDRAWN)
    found = said(state, inspect_note(REQUEST.path, raw, "cleo"))
    assert (f"`status: {status}` has no effect" in found.get(REQUEST.path, "")) is not own


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (State.APPROVED, "then writes a new plan"),
        (State.RUNNING, "then writes a new plan"),
        (State.REJECTED, "Set `status: pending`"),
        (State.REVIEW, ""),
    ],
)
def test_edited_waiting_request_says_what_it_waits_for(state: State, told: str) -> None:
    edited = inspect_note(REQUEST.path, REQUEST.raw + b"More.\n", "cleo")
    assert told in said(state, edited).get(REQUEST.path, "")
    assert not said(state, REQUEST)


def test_withdrawn_request_says_how_to_restore_plan() -> None:
    assert "Put the plan back into `Inbox/Plans`" in said(State.WITHDRAWN, REQUEST)[REQUEST.path]


def test_comments_without_decision_are_explained() -> None:
    commented = plan_at(CASE.plan.path, body=BODY + "\n## Review Comments\n\n- Shorter, please.\n")
    assert "No answer yet: 1 review comment." in said(State.REVIEW, commented)[CASE.plan.path]
    assert not said(State.REVIEW, plan_at(CASE.plan.path, keys="status: review"))
    assert not said(State.REVIEW, plan_at(CASE.plan.path, body=BODY + "\nA remark.\n"))


@pytest.mark.parametrize(
    "raw",
    [b"# No properties\n", b"---\ntrace_id: " + TRACE.encode() + b"\n---\n" + BODY.encode()],
)
def test_plan_without_keys_lists_missing_keys(raw: bytes) -> None:
    found = said(State.REVIEW, inspect_note(CASE.plan.path, raw, "cleo"))
    assert f"`trace_id: {TRACE}`, `request_id: say-hello`, `revision: 1`" in found[CASE.plan.path]


@pytest.mark.parametrize("raw", [b"", b"\n"])
def test_emptied_plan_says_how_to_restore_text(raw: bytes) -> None:
    found = said(State.REVIEW, inspect_note(CASE.plan.path, raw, "cleo"))[CASE.plan.path]
    assert f"`placet show say-hello --plan > {CASE.plan.path}`" in found


@pytest.mark.parametrize("status", ["planned", "completed", "rejected", "error", "done"])
def test_unknown_request_with_odd_status_is_explained(
    status: str,
) -> None:
    for key in ("", f"trace_id: {TRACE}\n"):
        note = inspect_note(
            "Inbox/Requests/Old.md", f"---\nstatus: {status}\n{key}---\nHi\n".encode(), "cleo"
        )
        found = sort_notes({}, [note])
        assert [*found.new, *(shown for shown, _ in found.notices)] == [note]
        assert "`status: pending`" in not_asking(note)
    plan = plan_at("Inbox/Plans/say-hello_plan.md")
    assert not sort_notes({}, [REQUEST, plan]).notices, (
        "its plan is about to be adopted, and the request with it"
    )


@pytest.mark.parametrize(
    "status",
    [
        "needs-revision",
        "needs revision",
        "[needs_revision]",
        "hold",
        "pending",
        "completed",
        "'no'",
        "rejected",
        "needs_revision",
    ],
)
def test_unknown_status_approves_nothing(status: str) -> None:
    plan = plan_at("System/Active/say-hello.md", keys=f"status: {status}")
    for state in (State.REVIEW, State.REVISING, State.WITHDRAWN):
        gesture = observe(replace(CASE, state=state), CaseNotes(REQUEST, [plan]), PLANNABLE)
        assert gesture is not None
        assert isinstance(gesture, ApprovalRefused)
        assert "so it was not approved" in gesture.why


@pytest.mark.parametrize(
    "status", ["", "status: review", "status: approved", "status: Review  # fine"]
)
def test_neutral_status_in_active_approves(status: str) -> None:
    gesture = observe(
        CASE, CaseNotes(REQUEST, [plan_at("System/Active/say-hello.md", keys=status)]), PLANNABLE
    )
    assert gesture is not None
    assert isinstance(gesture, PlanApproved)


def test_plan_under_revision_can_be_rejected_by_status() -> None:
    case = replace(CASE, state=State.REVISING)
    gesture = observe(
        case, CaseNotes(REQUEST, [plan_at(CASE.plan.path, keys="status: rejected")]), PLANNABLE
    )
    assert gesture is not None
    assert isinstance(gesture, PlanRejected)


@pytest.mark.parametrize(
    ("state", "stamped", "said", "wanted"),
    [
        (State.REVIEW, (), "planning", "planned"),
        (State.FAILED, (), "planned", "error"),
        (State.RUNNING, (), "", "planned"),
        (State.REVISING, (), "pending", "planning"),
        (State.REVIEW, ("error",), "error", "planned"),
        # what a person says: it is decided, or explained beside the note
        (State.REVIEW, (), "error", None),
        (State.REVIEW, (), "pending", None),
        (State.REVIEW, (), "", None),
        (State.RUNNING, (), "pending", None),
        (State.PLANNING, (), "draft", None),
        (State.REJECTED, (), "done", None),
    ],
)
def test_an_old_status_of_a_request_is_stale(
    state: State, stamped: tuple[str, ...], said: str, wanted: str | None
) -> None:
    note = inspect_note(REQUEST.path, REQUEST.raw.replace(b"planned", said.encode()), "cleo")
    case = replace(CASE, state=state, stamped=stamped)
    found = list(stale_statuses(case, CaseNotes(note)))
    assert found == ([] if wanted is None else [(note, wanted)])


@pytest.mark.parametrize(
    ("state", "path", "said", "wanted"),
    [
        (State.REVIEW, "Inbox/Plans/x.md", "error", "review"),
        (State.RUNNING, "System/Active/x.md", "review", "approved"),
        (State.REJECTED, "Inbox/Rejected/x.md", "", "rejected"),
        (State.REVIEW, "Inbox/Plans/x.md", "approved", None),
        (State.REVIEW, "System/Active/x.md", "error", None),
        (State.REVISING, "Inbox/Plans/x.md", "review", None),
    ],
)
def test_an_old_status_of_a_plan_is_stale(
    state: State, path: str, said: str, wanted: str | None
) -> None:
    plan = plan_at(path, keys=f"status: {said}")
    found = list(stale_statuses(replace(CASE, state=state), CaseNotes(REQUEST, [plan])))
    assert [pair for pair in found if pair[0] is plan] == (
        [] if wanted is None else [(plan, wanted)]
    )


def test_branch_fate_keeps_question_open() -> None:
    asking = Asking(State.RUNNING, "call:1:0", "Inbox/Questions/x_1.md", "", NOW, 1)
    branch = Branch(TRACE, "feat/x", "b", "t", report_path="r.md")
    case = replace(CASE, state=State.ASKING, asking=asking, branches=(branch,))
    decision = settle_branch(case, branch, SeenInGit("dropped", "ann"), "later", BY_PROPERTY, "no")
    assert decision is not None
    assert (decision.case.asking, decision.case.since) == (asking, case.since)


def test_a_case_knows_the_commit_that_merged_it() -> None:
    """The row that says so may be archived when the merge is reverted."""
    branch = Branch(TRACE, "feat/x", "b", "t", report_path="r.md")
    case = replace(CASE, state=State.COMPLETED, branches=(branch,))
    merged = settle_branch(case, branch, SeenInGit("merged", "ann", "m", "merge", "main"), NOW)
    assert merged is not None
    (merged_branch,) = merged.case.branches
    seen = SeenInGit("reverted", "ann", "r", into="main")
    reverted = settle_revert(merged.case, merged_branch, seen, NOW)
    assert reverted is not None
    assert reverted.rows[0].metadata["merged_as"] == "m"
    assert [row.actor for row in (*merged.rows, *reverted.rows)] == [Actor.SYSTEM] * 2


def test_earlier_branch_is_settled_beside_the_last_one() -> None:
    first, second = (Branch(TRACE, f"feat/{n}", "b", n, report_path=f"{n}.md") for n in "12")
    outcome = LastOutcome(report_path="2.md", branch="feat/2")
    case = replace(CASE, state=State.COMPLETED, branches=(first, second), outcome=outcome)
    assert case.branch == case.open_branch == second
    merged = settle_branch(case, second, SeenInGit("merged", "ann", "m"), NOW)
    assert merged is not None
    assert merged.case.open_branch == first
    assert merged.case.branch == merged.case.branches[1]
    assert merged.case.watched == (first,)


def test_reopened_branch_loses_the_reason_it_was_dropped_for() -> None:
    branch = Branch(
        TRACE, "feat/x", "b", "t", report_path="r.md", became="dropped", dropped_reason="slow"
    )
    case = replace(CASE, state=State.COMPLETED, branches=(branch,))
    back = settle_branch(case, branch, SeenInGit("", "ann"), NOW)
    assert back is not None
    assert back.case.branches[0].became == ""
    used = {"dropped_reason": None, "dropped_by": None}
    assert Stamp("r.md", used, seen={"dropped_reason": "slow"}) in back.commands


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def vault_with_plan(tmp_path: Path) -> TestVault:
    vault = bare_vault(tmp_path)
    vault.drop("Please say hello\n")
    return vault


@pytest.mark.parametrize(
    ("status", "home"), [("rejected", "Inbox/Rejected"), ("needs_revision", "Inbox/Plans")]
)
def test_a_status_that_says_no_stops_a_run(tmp_path: Path, status: str, home: str) -> None:
    vault = vault_with_plan(tmp_path)

    def answer(ask: Ask) -> Reply:
        if ask.purpose is Purpose.EXECUTE:
            until(lambda: "status: approved" in vault.active().read_text())
            edit(vault.active(), "## Scope", "> @placet Shorter, please.\n\n## Scope")
            edit(vault.active(), "status: approved", f"status: {status}")
            until(lambda: not vault.active().exists(), "it is moved to where that is decided")
        return greeter(ask)

    with looping(vault, model=lambda: Fake(answer)) as run:
        run.settle()
        vault.approve()

        def ended() -> bool:
            run.loop.tick()
            return bool(vault.rows("execution.failed"))

        until(ended)
        run.settle()
    assert vault.rows("execution.failed")[0]["metadata"]["reason"] == "stopped_by_person"
    assert not vault.rows("execution.completed")
    assert [path.name.startswith("say-hello") for path in (vault.root / home).glob("*.md")] == [
        True
    ]
    assert bool(vault.rows("plan.rejected")) is (status == "rejected")
    assert bool(vault.rows("plan.revision_requested")) is (status == "needs_revision")


def test_late_rejection_reason_reaches_journal_and_planner(
    tmp_path: Path,
) -> None:
    vault = vault_with_plan(tmp_path)
    model = Fake(greeter)
    with looping(vault, model=lambda: model) as run:
        run.settle()
        rejected = vault.root / "Inbox/Rejected/mine.md"
        vault.plan().rename(rejected)
        run.settle()
        rejected.write_text(rejected.read_text() + "\n## Rejection\n\nToo much shouting.\n")
        run.settle()
        run.settle()
        why = vault.click("why", "say-hello").stdout
        edit(vault.root / "Inbox/Requests/Say hello.md", "status: rejected", "status: pending")
        run.settle()
    assert [row["metadata"]["reason"] for row in vault.rows("plan.rejected")] == [""]
    assert [row["metadata"]["reason"] for row in vault.rows("plan.rejection_explained")] == [
        "Too much shouting."
    ]
    assert "Too much shouting." in why
    assert "Too much shouting." not in str(model.asks[0].turns[0].blocks)
    assert "Too much shouting." in str(model.asks[-1].turns[0].blocks)


@pytest.mark.parametrize(
    ("keys", "section", "known", "wanted"),
    [
        ("rejection_reason: no", "no", Rejection("no"), "no"),
        ("rejection_reason: no", "no\n\nIt is slow.", Rejection("no"), "no\n\nIt is slow."),
        ("rejection_reason: no", "It is slow.", Rejection("no"), "It is slow."),
        ("rejection_reason: It is slow.", "no", Rejection("no"), "It is slow.\n\nno"),
        ('rejection_reason: "x\\n\\ny"', "y", Rejection("x\n\ny", "x"), "x\n\ny"),
        ("rejection_reason: x", "y", Rejection(), "x\n\ny"),
        ("rejection_reason: x", "", Rejection("x", "x"), "x"),
    ],
)
def test_rejection_reason_combines_property_and_section(
    keys: str, section: str, known: Rejection, wanted: str
) -> None:
    body = f"{BODY}\n## Rejection\n\n{section}\n"
    plan = plan_at("Inbox/Rejected/x.md", keys=f"status: rejected\n{keys}", body=body)
    assert rejection_in(plan, known).reason == wanted
    shown = replace(CASE, state=State.REJECTED, rejection=known)
    gesture = observe(shown, CaseNotes(REQUEST, [plan]), PLANNABLE)
    assert isinstance(gesture, RejectionExplained) is (wanted != known.reason)


def test_failed_revision_is_explained_in_side_note(
    tmp_path: Path,
) -> None:
    vault = vault_with_plan(tmp_path)
    broken = False

    def answer(ask: Ask) -> Reply:
        return says(("submit_plan", {"title": ""})) if broken else greeter(ask)

    with looping(vault, model=lambda: Fake(answer)) as run:
        run.settle()
        broken = True
        edit(vault.plan(), "## Scope", "> @placet Shorter, please.\n\n## Scope")
        edit(vault.plan(), "status: review", "status: needs_revision")
        run.settle()
        side = vault.plan().with_name("say-hello_plan.placet.md")
        assert "It could not be revised" in side.read_text()
        assert not vault.rows("plan.taken_back")
        assert "say-hello" in vault.click("plans").stdout, "it still awaits a decision"
        broken = False
        edit(vault.plan(), "status: error", "status: needs_revision")
        run.settle()
        assert not side.exists()
    assert vault.rows("plan.revised")


def test_case_without_own_status_word_is_not_stamped() -> None:
    case = Case(
        TRACE, "say-hello", State.PLANNING, request_path=REQUEST.path, request_digest=REQUEST.digest
    )
    assert not warnings_for(
        case,
        CaseNotes(inspect_note(REQUEST.path, REQUEST.raw.replace(b"planned", b"planning"), "cleo")),
    )


@pytest.mark.parametrize(
    ("keys", "priority"),
    [('priority: "7"', 7), ("priority: 7", 7), ('priority: ""', 5), ("complexity: Complex", 5)],
)
def test_priority_typed_on_phone_is_understood(keys: str, priority: int) -> None:
    note = read_note(f"---\n{keys}\n---\nHi\n".encode())
    assert read_request("x.md", note, {"default"}, (), "default").priority == priority


@pytest.mark.parametrize("value", ["high", "'11'", "'-1'", "'7.5'", "'٣'", "true"])
def test_invalid_priority_is_explained(value: str) -> None:
    with pytest.raises(RequestProblems, match="from 0 to 10"):
        read_request(
            "x.md",
            read_note(f"---\npriority: {value}\n---\nHi\n".encode()),
            {"default"},
            (),
            "default",
        )


def test_why_and_status_show_disk_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = vault_with_plan(tmp_path)

    def full(_: Vault, path: str, *__: object) -> None:
        raise VaultTrouble(path, OSError(errno.ENOSPC, "full"))

    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        run.settle()
        vault.approve()
        monkeypatch.setattr(Vault, "replace", full)
        run.settle()
        for command in (["why", "say-hello"], ["status"]):
            assert (
                "System/Active/say-hello.md: No space left on device"
                in vault.click(*command).stdout
            )
        monkeypatch.undo()
        run.loop.ports.clock.sleep(60)
        run.settle()
        assert "No space" not in vault.click("status").stdout
    assert vault.rows("execution.completed")


def test_users_note_with_plan_name_is_not_duplicate(tmp_path: Path) -> None:
    vault = vault_with_plan(tmp_path)
    vault.plan().parent.mkdir(parents=True)
    vault.plan().write_text("mine\n")
    with looping(vault, model=lambda: Fake(greeter)) as run:
        run.settle()
        (plan,) = (
            p
            for p in vault.plan().parent.glob("say-hello_plan-*.md")
            if not p.name.endswith(".placet.md")
        )
        assert not plan.with_name(plan.stem + ".placet.md").exists()
        plan.rename(vault.active())
        run.settle()
    assert vault.rows("execution.completed")
    assert vault.plan().read_text() == "mine\n"


def test_non_utf8_plan_name_is_explained_until_renamed(tmp_path: Path) -> None:
    vault = vault_with_plan(tmp_path)
    odd = os.fsencode(vault.root) + b"/System/Active/hell\xf6.md"
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        run.settle()
        os.rename(vault.plan(), odd)  # noqa: PTH104 - a path in bytes
        run.settle()
        assert "plan.withdrawn" not in vault.actions()
        assert any("UTF-8" in row["metadata"]["reason"] for row in vault.rows("note.explained"))
        os.rename(odd, vault.active())  # noqa: PTH104 - a path in bytes
        run.settle()
    assert vault.actions().count("execution.completed") == 1
    assert not list((vault.root / "System/Active").glob("*.placet*"))


def test_edited_plan_with_lost_original_can_be_approved(tmp_path: Path) -> None:
    vault = vault_with_plan(tmp_path)
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        run.settle()
    wrote = vault.rows("plan.created")[0]["metadata"]["digest"]
    with closing(sqlite3.connect(vault.db)) as connection, connection:
        assert connection.execute("DELETE FROM texts WHERE digest = ?", (wrote,)).rowcount == 1
    edit(vault.plan(), "Write a greeting.", "Write a short greeting.")
    vault.approve()
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        run.settle()
    (approved,) = vault.rows("plan.approved")
    assert approved["metadata"]["edited"] is True
    assert vault.actions().count("execution.completed") == 1
