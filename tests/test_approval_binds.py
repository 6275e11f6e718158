"""An approval binds every byte: whatever is changed between review and run, what runs is what a
person put into System/Active.

The notes are values here: a person moves the plan and edits it, byte by byte, at any moment; the
daemon looks, decides and starts at any moment. What a start would carry out is the text stored with
the approval.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from placet.case.callout import box_of, with_box
from placet.case.case import Case, KnownPlan
from placet.case.commands import Decision, Publish, Rewrite, Stamp
from placet.case.decide import decide
from placet.case.events import PlanGone, RequestGone, Started
from placet.case.life_cycle import State
from placet.case.notes import look_at
from placet.case.observe import observe
from placet.case.sorting import CaseNotes, sort_notes
from placet.codec import sha256
from placet.disk.vault import Vault
from placet.loop.outbox import OutboxPorts, perform
from placet.note.box import BEGIN, END
from placet.note.frontmatter import Frontmatter, UnsafeEdit, plan_digest, read_note, stamp
from placet.note.frontmatter import plan_text as approved_text
from placet.note.paths import Folder
from placet.tools.registry import PLANNABLE
from simulation import plan_text

TRACE = "11111111-2222-3333-4444-555555555555"
NOW = "2026-11-21T12:00:00.000Z"
PLANS, ACTIVE = "Inbox/Plans/r_plan.md", "System/Active/r.md"
REVIEW = Case(TRACE, "r", State.REVIEW, plan=KnownPlan(path=PLANS, revision=1))
TEXT = with_box(plan_text(TRACE, "r", 1, "words"), box_of(REVIEW))
REVIEW = replace(REVIEW, plan=replace(REVIEW.plan, digest=plan_digest(TEXT)))


def one_byte_changed(raw: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(raw))
    byte = bytes([dice.randrange(256)])
    return dice.choice(
        [raw[:at] + byte + raw[at + 1 :], raw[:at] + byte + raw[at:], raw[:at] + raw[at + 1 :]]
    )


def interleaving(seed: int) -> str:
    """Play one; return "ran", "changed and ran" or "did not run".

    Fails if a byte ran that nobody approved.
    """
    dice = random.Random(seed)
    case, path, raw = REVIEW, PLANS, TEXT
    texts: dict[str, bytes] = {}
    # bodies that a person had put into System/Active when the daemon had not acknowledged it
    put: set[bytes] = set()
    edited = False

    def perform(decision: Decision, raw: bytes, path: str) -> bytes:
        for text in decision.texts:
            texts[sha256(text)] = text
        for command in decision.commands:
            if isinstance(command, Stamp) and command.path == path:
                try:
                    raw = stamp(raw, command.changes)
                except UnsafeEdit:
                    continue
        return raw

    for _ in range(dice.randrange(3, 9)):
        match dice.choice(["edit", "move", "look", "look", "start"]):
            case "edit":
                raw, edited = one_byte_changed(raw, dice), True
            case "move" if path == PLANS:
                path = ACTIVE
            case "look":
                note = look_at(path, raw, "alice")
                its = sort_notes({TRACE: case}, [note]).of_case.get(TRACE, CaseNotes())
                gesture = observe(case, its, PLANNABLE)
                if gesture is not None and (
                    not isinstance(gesture, PlanGone | RequestGone) or path != ACTIVE
                ):
                    decision = decide(case, gesture, NOW)
                    assert decision is not None
                    case, raw = decision.case, perform(decision, raw, path)
            case "start" if case.state is State.APPROVED:
                ran = texts[case.approval.digest]
                assert read_note(ran).body.encode() in put, (
                    f"seed {seed}: this was never put into System/Active: {ran!r}"
                )
                assert plan_digest(ran) == case.approval.digest, (
                    f"seed {seed}: the stored text is not what was approved"
                )
                done = decide(case, Started(case.generation), NOW)
                assert done is not None
                return "changed and ran" if edited else "ran"
        if path == ACTIVE and case.state is State.REVIEW:
            put.add(read_note(raw).body.encode())
            put.add(read_note(approved_text(raw)).body.encode())
    return "did not run"


def sweep(seeds: range) -> dict[str, int]:
    found = [interleaving(seed) for seed in seeds]
    return {what: found.count(what) for what in sorted(set(found))}


def test_no_byte_runs_that_nobody_approved() -> None:
    found = sweep(range(300))
    assert found["ran"] > 5
    assert found["changed and ran"] > 5


@pytest.mark.sweep
@pytest.mark.timeout(0)
def test_no_byte_runs_that_nobody_approved_in_a_hundred_thousand_ways() -> None:
    print(sweep(range(100_000)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.thinned(2)
def test_every_single_byte_of_an_approved_plan_counts(seed: int) -> None:
    """Changing any byte of an approved plan, in place, voids the approval, unless it is a value
    that the daemon stamps.
    """
    raw = stamp(TEXT, {"status": "approved", "approved_by": "alice", "approved_at": NOW})
    approved = replace(
        REVIEW,
        state=State.APPROVED,
        plan=replace(REVIEW.plan, path=ACTIVE),
        approval=replace(REVIEW.approval, digest=plan_digest(raw)),
    )
    stamped = {
        i
        for line in (b"status: approved", b"approved_by: alice", b"approved_at: " + NOW.encode())
        for i in range(raw.index(line) - 1, raw.index(line) + len(line) + 1)
    }
    box = range(raw.index(BEGIN.encode()), raw.index(END.encode()) + len(END) + 1)
    for at in range(len(raw)):
        if at in stamped or at in box:
            continue
        changed = raw[:at] + bytes([raw[at] ^ (1 << seed)]) + raw[at + 1 :]
        assert look_at(ACTIVE, changed, "alice").digest != approved.approval.digest, at


@pytest.mark.parametrize(
    "place", ["System/Active/r_plan.md", ACTIVE, "Inbox/Rejected/r_rejected.md", "Inbox/Plans/x.md"]
)
def test_a_plan_that_is_decided_on_before_its_publication_was_noted_is_not_published_again(
    tmp_path: Path, place: str
) -> None:
    """A crash comes between the two, and the person is quicker than the next start: a second copy
    would take the approval away.
    """
    with Vault(tmp_path) as vault:
        vault.ensure_folders()
        vault.create_marker("0" * 32)
        plan = stamp(TEXT, {"created_at": NOW})
        desk = OutboxPorts(vault, lambda _: plan, Frontmatter.YAML)

        def publish() -> bool:
            perform(Publish(PLANS, "text"), REVIEW, desk, again=True)
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


def test_a_picture_is_published_once_and_beside_what_has_its_name(tmp_path: Path) -> None:
    picture = f"{Folder.REPORTS}/{REVIEW.trace8}_r-1-1.png"
    with Vault(tmp_path) as vault:
        vault.ensure_folders()
        desk = OutboxPorts(vault, lambda _: b"\x89PNG", Frontmatter.YAML)
        for _ in range(2):
            perform(Publish(picture, "picture"), REVIEW, desk)
        assert len(list((tmp_path / Folder.REPORTS).iterdir())) == 1
        (tmp_path / picture).write_bytes(b"drawn upon")
        perform(Publish(picture, "picture"), REVIEW, desk)
        assert (tmp_path / picture).read_bytes() == b"drawn upon"
        assert (tmp_path / picture.replace(".png", "-2.png")).read_bytes() == b"\x89PNG"


def test_a_rewrite_leaves_another_note_alone(tmp_path: Path) -> None:
    with Vault(tmp_path) as vault:
        vault.ensure_folders()
        desk = OutboxPorts(vault, lambda _: b"new", Frontmatter.YAML)
        saved = stamp(TEXT, {"decision": "reject", "rejection_reason": "Too broad"})
        (tmp_path / PLANS).write_bytes(saved)
        rewrite = Rewrite(PLANS, sha256(TEXT), "text")
        perform(rewrite, REVIEW, desk)
        assert (tmp_path / PLANS).read_bytes() == saved
        (tmp_path / PLANS).write_bytes(TEXT)
        perform(rewrite, REVIEW, desk)
        perform(rewrite, REVIEW, desk)
        assert (tmp_path / PLANS).read_bytes() == b"new"


def test_a_plan_that_is_edited_as_it_is_put_back_keeps_the_edit_and_no_approval(
    tmp_path: Path,
) -> None:
    approved = stamp(TEXT, {"status": "approved", "approved_by": "alice", "approved_at": NOW})
    case = replace(
        REVIEW,
        state=State.APPROVED,
        plan=replace(REVIEW.plan, path=ACTIVE),
        approval=replace(REVIEW.approval, digest=plan_digest(approved)),
    )
    edits = [approved + f"An edit, number {number}.\n".encode() for number in range(2)]
    gesture = observe(case, CaseNotes(None, [look_at(ACTIVE, edits[0], "alice")]), PLANNABLE)
    assert gesture is not None
    decision = decide(case, gesture, NOW)
    assert decision is not None
    with Vault(tmp_path) as vault:
        vault.ensure_folders()
        (tmp_path / ACTIVE).write_bytes(edits[1])
        texts = {sha256(text): text for text in decision.texts}
        for _ in range(2):
            for command in decision.commands:
                perform(
                    command, decision.case, OutboxPorts(vault, texts.__getitem__, Frontmatter.YAML)
                )
    assert decision.case.plan.path == PLANS
    back = (tmp_path / PLANS).read_bytes()
    keys = {"status": "review", "approved_by": None, "approved_at": None}
    assert back == stamp(edits[1], keys)
