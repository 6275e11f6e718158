"""Test decisions by the property `decision`: same as a move, used once, never from a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from looping import Fake, Running, Time, greeter, looping, says
from placet.case.approval import _DECIDABLE, NO_RECORD, refusal
from placet.case.callout import box_of
from placet.case.case import Case, KnownPlan
from placet.case.life_cycle import State
from placet.chat.messages import Ask, Purpose, Reply
from placet.loop.outbox import OutboxPorts, perform
from placet.note.frontmatter import Frontmatter, read_note, stamp
from vaultkit import PLAN, TestVault, rows

pytestmark = pytest.mark.bare


def failing(ask: Ask) -> Reply:
    if ask.purpose is not Purpose.EXECUTE:
        return says(("submit_plan", PLAN))
    return says(("give_up", {"reason": "It cannot be done."}))


def decide(path: Path, word: str) -> None:
    path.write_bytes(stamp(path.read_bytes(), {"decision": word}))


def decision(path: Path) -> object:
    return read_note(path.read_bytes()).meta["decision"]


def planned(run: Running, ident: str = "hello") -> Path:
    run.vault.drop("Please say hello.\n", f"{ident}.md")
    run.settle()
    return run.vault.plan(ident)


def look(run: Running) -> None:
    for _ in range(20):
        run.loop.tick()
        run.loop.ports.clock.sleep(0.5)


@pytest.mark.parametrize("word", ["approve", " Approve", "APPROVE "])
def test_decision_approve_moves_and_runs_plan(vault: TestVault, word: str) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        plan = planned(run)
        assert decision(plan) == ""
        decide(plan, word)
        run.settle()
    (row,) = rows(vault, "plan.approved")
    (created,) = rows(vault, "plan.created")
    assert row["via"] == "property"
    assert row["digest"] == created["digest"]
    assert not plan.exists()
    assert rows(vault, "execution.completed")
    kept = vault.root / "Inbox/Archive/hello_plan.md"
    assert decision(kept) == ""
    assert read_note(kept.read_bytes()).meta["status"] == "completed"


def test_failed_plan_goes_with_its_request(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(failing), time=Time()) as run:
        plan = planned(run)
        decide(plan, "approve")
        run.settle()
        assert plan.exists(), "the failed plan can be approved again"
        (vault.root / "Inbox/Requests/hello.md").unlink()
        look(run)
        run.settle()
    assert vault.notes("Inbox/Plans") == []
    kept = vault.root / "Inbox/Archive/hello_plan.md"
    assert read_note(kept.read_bytes()).meta["status"] == "rejected"
    assert len(rows(vault, "request.withdrawn")) == 1


def test_failed_plan_makes_room_for_a_new_one(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(failing), time=Time()) as run:
        plan = planned(run)
        decide(plan, "approve")
        run.settle()
        request = vault.root / "Inbox/Requests/hello.md"
        request.write_bytes(stamp(request.read_bytes(), {"status": "pending"}))
        run.settle()
    assert vault.notes("Inbox/Plans") == ["hello_plan.md"]
    assert read_note(plan.read_bytes()).meta["revision"] == 2
    assert "hello_plan_r1.md" in vault.notes("Inbox/Archive")


def test_decision_reject_records_reason_from_note(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        plan = planned(run)
        plan.write_bytes(
            stamp(plan.read_bytes(), {"decision": "reject", "rejection_reason": "too broad"})
        )
        run.settle()
        kept = vault.root / "Inbox/Rejected/hello_rejected.md"
        (row,) = rows(vault, "plan.rejected")
        assert (row["via"], row["reason"]) == ("property", "too broad")
        assert decision(kept) == ""
        # a change of mind, without moving it
        decide(kept, "approve")
        run.settle()
    assert rows(vault, "execution.completed")


def test_changes_are_asked_for_by_the_property(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        plan = planned(run)
        plan.write_text(plan.read_text() + "\n## Review Comments\n\n- In French, please.\n")
        decide(plan, "revise")
        run.settle()
        (row,) = rows(vault, "plan.revision_requested")
        assert (row["via"], row["comment_count"]) == ("property", 1)
        assert rows(vault, "plan.revised")
        assert decision(plan) == ""
        assert read_note(plan.read_bytes()).meta["revision"] == 2
        decide(plan, "reject")
        run.settle()
        kept = vault.root / "Inbox/Rejected/hello_rejected.md"
        kept.write_text(kept.read_text() + "\n- In Latin, please.\n")
        decide(kept, "revise")  # out of the rejected ones it is taken back, and revised
        run.settle()
    assert len(rows(vault, "plan.revised")) == 2
    assert rows(vault, "plan.taken_back")[-1]["via"] == "property"
    assert plan.exists()


@pytest.mark.parametrize("key", ["decision: revise", "status: needs_revision"])
def test_revise_without_comment_plans_nothing(vault: TestVault, key: str) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        plan = planned(run)
        name, _, value = key.partition(": ")
        plan.write_bytes(stamp(plan.read_bytes(), {name: value}))
        run.settle()
        side = plan.with_name("hello_plan.placet.md")
        assert "the plan has no open comment" in side.read_text()
        assert not rows(vault, "plan.revision_requested")
        assert not rows(vault, "plan.approved")
        plan.write_text(plan.read_text() + "\n## Review Comments\n\n- In French, please.\n")
        run.settle()
        assert rows(vault, "plan.revised")
        assert not side.exists()


def test_property_and_move_are_refused_alike(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        plan = planned(run)
        text = plan.read_text().replace('["write_file"]', '["rm_rf"]')
        plan.write_text(text)
        decide(plan, "approve")
        run.settle()
        (row,) = rows(vault, "plan.refused")
        assert row["via"] == "property"
        assert "rm_rf" in row["reason"]
        assert "Not approved" in plan.read_text()
        assert decision(plan) == ""
        assert vault.notes("Inbox/Plans") == [plan.name]
        # an edited scope under the old callout: shown first, then approved
        run.settle()
        plan.write_text(plan.read_text().replace('["rm_rf"]', '["write_file"]'))
        run.settle()
        plan.write_text(plan.read_text().replace('"hello.txt"', '"hello.txt", "x.txt"'))
        decide(plan, "approve")
        run.settle()
        assert not rows(vault, "plan.approved")
        decide(plan, "approve")
        run.settle()
    assert rows(vault, "plan.approved")


def test_restored_used_decision_approves_nothing(vault: TestVault) -> None:
    """A sync tool that was offline brings the note back as it was when it was approved."""
    with looping(vault, model=lambda: Fake(failing), time=Time()) as run:
        plan = planned(run)
        decide(plan, "approve")
        used = plan.read_bytes()
        run.settle()
        assert len(rows(vault, "execution.failed")) == 1
        assert decision(plan) == ""
        plan.write_bytes(used)
        run.settle()
        assert len(rows(vault, "plan.approved")) == 1
        assert decision(plan) == ""
        # a person's own decision counts again
        decide(plan, "approve")
        run.settle()
    assert len(rows(vault, "plan.approved")) == 2


def test_decision_in_adopted_plan_is_ignored(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        plan = planned(run)
        text = plan.read_text()
    other = TestVault(vault.root.parent / "other", vault.root.parent / "other-state")
    other.root.mkdir()
    (other.root / "System").mkdir()
    (other.root / "System/placet.toml").write_text((vault.root / "System/placet.toml").read_text())
    foreign = other.root / "Inbox/Plans/hello_plan.md"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(stamp(text.encode(), {"decision": "approve"}))
    with looping(other, model=lambda: Fake(greeter), time=Time()) as run:
        run.settle()
        assert rows(other, "plan.adopted")
        assert decision(foreign) == ""
    assert not rows(other, "plan.approved")


@pytest.mark.parametrize("words", ["yesterday", "2026-11-22T10:00:00Z", "2026-11-22", "[a, b]"])
def test_approved_at_without_a_record_approves_nothing(vault: TestVault, words: str) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        plan = planned(run)
        plan.write_text(
            plan.read_text().replace("created_at", f"approved_at: {words}\ncreated_at", 1)
        )
        plan.rename(vault.active("hello"))
        run.settle()
        assert not rows(vault, "plan.approved")
        assert NO_RECORD in plan.read_text()
        assert "approved_at" not in plan.read_text()
        plan.rename(vault.active("hello"))
        run.settle()
        assert rows(vault, "plan.approved")


@pytest.mark.parametrize("number", ["9223372036854775807", "99999999999999999999", "-5", "true"])
def test_adopted_plan_with_any_revision_can_be_revised(vault: TestVault, number: str) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        plan = planned(run)
        text = plan.read_text()
        trace = str(read_note(plan.read_bytes()).meta["trace_id"])
        other = text.replace(trace, "a" * 8 + trace[8:]).replace("_id: hello", "_id: other")
        found = plan.with_name("other_plan.md")
        found.write_text(other.replace("revision: 1", f"revision: {number}", 1))
        run.settle()
        found.write_text(found.read_text() + "\n## Review Comments\n\n- Shorter, please.\n")
        decide(found, "revise")
        run.settle()
        assert read_note(found.read_bytes()).meta["revision"] == 2
    assert rows(vault, "plan.revised")


def test_duplicate_plan_or_conflict_copy_decides_nothing(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        plan = planned(run)
        copy = plan.with_name("hello_plan.sync-conflict-20261122-101010-ABCDEFG.md")
        copy.write_bytes(stamp(plan.read_bytes(), {"decision": "approve"}))
        run.settle()
        assert not rows(vault, "plan.approved")
        copy.rename(plan.with_name("hello_plan 2.md"))
        run.settle()
        assert not rows(vault, "plan.approved")


@pytest.mark.parametrize(
    ("word", "home"), [("reject", "Inbox/Rejected/hello_rejected.md"), ("revise", "Inbox/Plans")]
)
def test_decision_property_withdraws_approved_plan(vault: TestVault, word: str, home: str) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        plan = planned(run)
        run.loop.stopping = True  # no work is started
        plan.write_text(plan.read_text() + "\n## Review Comments\n\n- Shorter, please.\n")
        plan.rename(vault.active("hello"))
        look(run)
        assert rows(vault, "plan.approved")
        decide(vault.active("hello"), word)
        look(run)
        assert (vault.root / home).exists()
        assert not vault.active("hello").exists()
    assert not rows(vault, "execution.started")


def test_unknown_decision_value_is_explained(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        plan = planned(run)
        decide(plan, "sure")
        run.settle()
        side = plan.with_name("hello_plan.placet.md")
        assert '`decision: "sure"` has no effect' in side.read_text()
        decide(plan, "")
        run.settle()
        assert not side.exists()
    assert not rows(vault, "plan.approved")


def test_summary_box_is_updated_in_any_folder(vault: TestVault) -> None:
    """Also in the archive, where the plan that made room for a new one goes."""
    with looping(vault, model=lambda: Fake(failing), time=Time()) as run:
        plan = planned(run)
        decide(plan, "approve")
        run.settle()
        state = run.loop.state
        (case,) = state.cases.held.values()
        archived = vault.root / "Inbox/Archive/hello_plan.md"
        archived.parent.mkdir(exist_ok=True)
        plan.rename(archived)
        command = replace(box_of(case, "Inbox/Archive/hello_plan.md"), title="It is over")
        perform(command, case, OutboxPorts(state.vault, state.text, Frontmatter.YAML))
        assert "It is over" in archived.read_text()


@pytest.mark.parametrize("state", list(State))
def test_every_state_says_which_decisions_it_refuses(state: State) -> None:
    case = Case("t", "hello", state, plan=KnownPlan(path="Inbox/Plans/hello_plan.md"))
    allowed = {one for one in _DECIDABLE if refusal(case, None, one) is None}
    changes, ended = {"revise", "comment", "tick"}, {"retry"}
    assert allowed == {
        State.REVIEW: {"approve", "reject", *changes},
        State.REVISING: {"approve", "reject", *changes},
        State.APPROVED: {"stop"},
        State.RUNNING: {"stop"},
        State.FAILED: {"approve", "reject", "revise", *ended},
        State.COMPLETED: ended,
        State.REJECTED: ended,
        State.WITHDRAWN: ended,
    }.get(state, set())
    for one in _DECIDABLE.keys() - allowed:
        assert refusal(case, None, one).startswith("hello ")
