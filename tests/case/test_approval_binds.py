"""Test that only the approved bytes run, whatever changes between review and start.

Notes are values here. A person moves and edits the plan at any moment, byte by byte. The daemon
scans, decides and starts at any moment. A start would run the text stored with the approval.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from looping import Fake, Running, Time, greeter, looping, says, turns_taken
from placet.case.callout import box_of, with_box
from placet.case.case import Case, KnownPlan
from placet.case.commands import Decision, Stamp
from placet.case.decide import decide
from placet.case.events import PlanGone, RequestGone, Started
from placet.case.life_cycle import State
from placet.case.notes import inspect_note
from placet.case.observe import observe
from placet.case.sorting import CaseNotes, sort_notes
from placet.chat.messages import Ask, Purpose, Reply
from placet.codec import sha256
from placet.loop.work import Dispatch
from placet.note.box import BEGIN, END
from placet.note.frontmatter import UnsafeEdit, read_note, stamp
from placet.plan.digest import plan_digest
from placet.plan.digest import plan_text as approved_text
from placet.tools.registry import PLANNABLE
from simulation import plan_text
from vaultkit import TestVault, until

pytestmark = pytest.mark.bare

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
                note = inspect_note(path, raw, "alice")
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


def test_only_approved_bytes_run() -> None:
    found = sweep(range(300))
    assert found["ran"] > 5
    assert found["changed and ran"] > 5


@pytest.mark.sweep
@pytest.mark.timeout(0)
def test_only_approved_bytes_run_in_100000_variations() -> None:
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
        assert inspect_note(ACTIVE, changed, "alice").digest != approved.approval.digest, at


# --- what was done to the notes while no daemon ran, or as it began, counts first


def approved(vault: TestVault) -> None:
    """Have a plan approved whose mission has not begun; no daemon runs any more."""
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        vault.drop("Say hello\n")
        run.settle()
        run.loop.stopping = True  # no work is started
        vault.approve()
        look(run)
    assert state_of(vault) == "approved"


def look(run: Running) -> None:
    for _ in range(20):
        run.loop.tick()
        run.loop.ports.clock.sleep(0.5)


def rest(vault: TestVault) -> list[Ask]:
    """Let the next daemon work until nothing is left to do; return what its model was asked."""

    def answer(ask: Ask) -> Reply:
        # the second turn too: the first one of a mission that was under way is taken
        again = ask.purpose is Purpose.EXECUTE and turns_taken(ask) == 1
        return greeter(replace(ask, turns=ask.turns[:1]) if again else ask)

    model = Fake(answer)
    with looping(vault, model=lambda: model, time=Time()) as run:
        run.settle()
    return model.asks


def state_of(vault: TestVault) -> str:
    with closing(sqlite3.connect(vault.db)) as connection:
        ((state,),) = connection.execute("SELECT state FROM cases").fetchall()
    return str(state)


def edit(note: Path) -> None:
    text = note.read_text()
    if "edited" not in text:
        note.write_text(text.replace("Write a greeting.", "Write an edited greeting."))


def _unreadable(note: Path) -> None:
    note.write_text(note.read_text().replace("status: approved", "status: [approved"))


def _no_file(note: Path) -> None:
    note.unlink()
    note.mkdir()


def _moved(where: str) -> Callable[[Path], object]:
    return lambda note: note.rename(note.parents[2] / where)


@pytest.mark.parametrize(
    ("act", "state"),
    [
        (edit, "review"),
        (_moved("Inbox/Plans/x.md"), "review"),
        (_moved("Inbox/Rejected/x.md"), "rejected"),
        (_moved("mine.md"), "withdrawn"),
        (_moved("System/Active/another name.md"), "completed"),
        # these cannot be judged, which is said beside the note
        (_unreadable, "approved"),
        # one that was written a moment ago would not be read yet
        (lambda note: shutil.copy2(note, note.with_name("copy.md")), "approved"),
        (_no_file, "approved"),
    ],
)
def test_next_daemon_reads_the_note_before_it_runs(
    vault: TestVault, act: Callable[[Path], object], state: str
) -> None:
    approved(vault)
    act(vault.active())
    rest(vault)
    assert state_of(vault) == state
    assert bool(vault.rows("execution.started")) is (state == "completed")
    assert bool(list((vault.root / "System/Active").glob("*.placet.md"))) is (state == "approved")
    if act is edit:
        (row,) = vault.rows("plan.changed_after_approval")
        assert row["metadata"]["running"] is False
        shown = vault.plan().read_text().replace("> ", "")
        assert "+Write an edited greeting." in shown, "the difference is shown"


def test_edit_between_look_and_start_voids_the_approval(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note is read once more as its mission is about to begin."""
    start_work = Dispatch.start_work

    def saved_just_before(dispatch: Dispatch) -> None:
        if vault.active().exists() and state_of(vault) == "approved":
            edit(vault.active())
        start_work(dispatch)

    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        vault.drop("Say hello\n")
        run.settle()
        vault.approve()
        monkeypatch.setattr(Dispatch, "start_work", saved_just_before)
        run.settle()
    assert not vault.rows("execution.started")
    assert vault.rows("plan.changed_after_approval")
    assert state_of(vault) == "review"


@pytest.mark.parametrize("taken_away", [False, True])
def test_mission_under_way_resumes_with_the_approved_text(
    vault: TestVault, *, taken_away: bool
) -> None:
    """The next daemon shows an edit and goes on. It stops where the plan was taken away."""

    def leaves(ask: Ask) -> Reply:
        if ask.purpose is not Purpose.EXECUTE:
            return greeter(ask)
        run.loop.ports.leaving.set()
        return says(("list_directory", {"path": "."}))

    with looping(vault, model=lambda: Fake(leaves)) as run:
        vault.drop("Say hello\n")
        run.settle()
        vault.approve()
        until(lambda: run.loop.tick() and run.loop.ports.leaving.is_set())
    assert state_of(vault) == "running"
    if taken_away:
        vault.active().rename(vault.plan())
        assert rest(vault) == []
        assert vault.rows("plan.taken_back")
        assert vault.rows("execution.failed")
        vault.approve()
        rest(vault)
        assert state_of(vault) == "completed"
        return
    edit(vault.active())
    asked = rest(vault)
    assert asked
    assert "edited greeting" not in str(asked)
    (row,) = vault.rows("plan.changed_after_approval")
    assert row["metadata"]["running"] is True
    assert state_of(vault) == "completed"


def test_damaged_journal_text_is_read_from_note(vault: TestVault) -> None:
    """The request still says in the vault what the journal lost: to ask again is enough."""

    def gives_up(ask: Ask) -> Reply:
        planning = ask.purpose is not Purpose.EXECUTE
        return greeter(ask) if planning else says(("give_up", {"reason": "no"}))

    with looping(vault, model=lambda: Fake(gives_up), time=Time()) as run:
        vault.drop("Say hello\n")
        run.settle()
        vault.approve()
        run.settle()
        with closing(sqlite3.connect(vault.db)) as connection, connection:
            assert connection.execute("UPDATE texts SET body = x'00'").rowcount
        vault.click("retry", "say-hello")
        run.settle()
    assert vault.rows("plan.revised")
    assert not vault.rows("plan.failed")
