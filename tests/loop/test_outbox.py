"""Test recorded commands on notes that changed since the decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.case.test_approval_binds import ACTIVE, NOW, PLANS, REVIEW, TEXT, TRACE

from placet.case.commands import Move, Publish, Rewrite, Stamp
from placet.case.decide import decide
from placet.case.events import PlanningFailed
from placet.case.life_cycle import State
from placet.case.notes import inspect_note
from placet.case.observe import observe
from placet.case.sorting import CaseNotes
from placet.codec import sha256
from placet.disk.vault import Vault
from placet.loop.outbox import OutboxPorts, perform
from placet.note.frontmatter import Frontmatter, read_note, stamp
from placet.note.paths import Folder
from placet.plan.digest import plan_digest
from placet.tools.registry import PLANNABLE

REQUEST = "Inbox/Requests/todo.md"
Desk = Callable[[bytes], OutboxPorts]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Return the ports of a vault in `tmp_path`, whose journal has this text under every name."""
    with Vault(tmp_path) as vault:
        vault.ensure_folders()
        vault.create_marker("0" * 32)
        yield lambda text: OutboxPorts(vault, lambda _: text, Frontmatter.YAML)


@pytest.mark.parametrize(
    "place", ["System/Active/r_plan.md", ACTIVE, "Inbox/Rejected/r_rejected.md", "Inbox/Plans/x.md"]
)
def test_decided_plan_is_not_published_again(tmp_path: Path, desk: Desk, place: str) -> None:
    """The daemon was killed before it noted the publication, and the person was quicker than the
    next start: a second copy would take the approval away.
    """
    plan = stamp(TEXT, {"created_at": NOW})

    def publish() -> bool:
        perform(Publish(PLANS, "text"), REVIEW, desk(plan), again=True)
        return (tmp_path / PLANS).exists()

    assert publish()
    assert publish()
    (tmp_path / PLANS).write_bytes(plan + b"A person's line.\n")
    assert publish()
    assert len(list((tmp_path / PLANS).parent.iterdir())) == 1
    decided = tmp_path / place
    (tmp_path / PLANS).rename(decided)
    assert not publish()
    decided.write_bytes(stamp(plan, {"status": "approved", "approved_by": "ann"}))
    assert not publish()
    decided.write_bytes(plan.replace(b"revision: 1", b"revision: 2"))
    assert publish()
    assert (tmp_path / PLANS).read_bytes() == plan


def test_picture_with_taken_name_is_published_once(tmp_path: Path, desk: Desk) -> None:
    picture = f"{Folder.REPORTS}/{REVIEW.trace8}_r-1-1.png"
    for _ in range(2):
        perform(Publish(picture, "picture"), REVIEW, desk(b"\x89PNG"))
    assert len(list((tmp_path / Folder.REPORTS).iterdir())) == 1
    (tmp_path / picture).write_bytes(b"drawn upon")
    perform(Publish(picture, "picture"), REVIEW, desk(b"\x89PNG"))
    assert (tmp_path / picture).read_bytes() == b"drawn upon"
    assert (tmp_path / picture.replace(".png", "-2.png")).read_bytes() == b"\x89PNG"


def test_rewrite_leaves_another_note_alone(tmp_path: Path, desk: Desk) -> None:
    saved = stamp(TEXT, {"decision": "reject", "rejection_reason": "Too broad"})
    (tmp_path / PLANS).write_bytes(saved)
    rewrite = Rewrite(PLANS, sha256(TEXT), "text")
    perform(rewrite, REVIEW, desk(b"new"))
    assert (tmp_path / PLANS).read_bytes() == saved
    (tmp_path / PLANS).write_bytes(TEXT)
    for _ in range(2):
        perform(rewrite, REVIEW, desk(b"new"))
    assert (tmp_path / PLANS).read_bytes() == b"new"


def test_plan_put_back_keeps_its_edit(tmp_path: Path, desk: Desk) -> None:
    """It is edited once more between the decision and the move."""
    approved = stamp(TEXT, {"status": "approved", "approved_by": "alice", "approved_at": NOW})
    case = replace(
        REVIEW,
        state=State.APPROVED,
        plan=replace(REVIEW.plan, path=ACTIVE),
        approval=replace(REVIEW.approval, digest=plan_digest(approved)),
    )
    edits = [approved + f"An edit, number {number}.\n".encode() for number in range(2)]
    gesture = observe(case, CaseNotes(None, [inspect_note(ACTIVE, edits[0], "alice")]), PLANNABLE)
    assert gesture is not None
    decision = decide(case, gesture, NOW)
    assert decision is not None
    (tmp_path / ACTIVE).write_bytes(edits[1])
    texts = {sha256(text): text for text in decision.texts}
    for command in decision.commands * 2:
        perform(command, decision.case, replace(desk(b""), text=texts.__getitem__))
    assert decision.case.plan.path == PLANS
    keys = {"status": "review", "approved_by": None, "approved_at": None}
    assert (tmp_path / PLANS).read_bytes() == stamp(edits[1], keys)


def test_command_touches_no_other_note_of_that_name(tmp_path: Path, desk: Desk) -> None:
    note, text = tmp_path / REQUEST, "Bake a cake\n"
    note.write_text(text)
    perform(Stamp(REQUEST, {"trace_id": TRACE}, "0" * 64), REVIEW, desk(b""))
    assert note.read_text() == text
    other = f"---\ntrace_id: {TRACE.replace('1', '7')}\n---\n{text}"
    note.write_text(other)
    perform(Stamp(REQUEST, {"status": "planned"}, seen={"status": ""}), REVIEW, desk(b""))
    perform(Move(REQUEST, "Inbox/Archive/todo.md"), REVIEW, desk(b""))
    assert note.read_text() == other


@pytest.mark.parametrize("key", ["status", "decision", "rejection_reason"])
def test_stamp_names_the_value_it_saw(tmp_path: Path, desk: Desk, key: str) -> None:
    with pytest.raises(ValueError, match=key):
        Stamp(PLANS, {key: "placet's"})
    saved = stamp(TEXT, {key: "yours"})
    for seen, left in (("before", "yours"), ("yours", "placet's")):
        (tmp_path / PLANS).write_bytes(saved)
        command = Stamp(PLANS, {key: "placet's", "approved_by": "x"}, seen={key: seen})
        perform(command, REVIEW, desk(b""))
        meta = read_note((tmp_path / PLANS).read_bytes()).meta
        assert (meta[key], meta["approved_by"]) == (left, "x")


def test_failed_revision_keeps_a_rejection(tmp_path: Path, desk: Desk) -> None:
    case = replace(REVIEW, state=State.REVISING)
    decision = decide(case, PlanningFailed(case.generation, "The model gave up.", "x"), NOW)
    assert decision is not None
    for status, left in (("needs_revision", "error"), ("rejected", "rejected")):
        (tmp_path / PLANS).write_bytes(stamp(TEXT, {"status": status}))
        for command in decision.commands:
            perform(command, decision.case, desk(b""))
        assert read_note((tmp_path / PLANS).read_bytes()).meta["status"] == left


def test_taken_long_name_is_cut_and_numbered(tmp_path: Path, desk: Desk) -> None:
    name = "a" * 252 + ".md"
    for number in range(4):
        (tmp_path / Folder.REQUESTS / name).write_text(f"---\ntrace_id: {TRACE}\n---\n{number}\n")
        perform(Move(f"{Folder.REQUESTS}/{name}", f"Inbox/Archive/{name}"), REVIEW, desk(b""))
    kept = [note.read_text()[-2:-1] for note in (tmp_path / "Inbox/Archive").iterdir()]
    assert sorted(kept) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("said", ["pending", "draft", "completed"])
def test_request_that_asks_again_is_not_archived(tmp_path: Path, desk: Desk, said: str) -> None:
    note = tmp_path / REQUEST
    note.write_text(f"---\ntrace_id: {TRACE}\nstatus: {said}\n---\nSay hello\n")
    seen = inspect_note(REQUEST, note.read_bytes(), "ann").digest
    perform(Move(REQUEST, "Inbox/Archive/todo.md", seen), REVIEW, desk(b""))
    assert note.exists() == (said != "completed")
