"""Play the daemon thousands of times with random people, kills and clocks.

Also prove that these plays catch a naive daemon.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from unittest.mock import patch

import pytest

from placet.case.approval import OUTDATED, approval, approved_in
from placet.case.branch_fate import settle_branch
from placet.case.decision_builder import DecisionBuilder
from placet.case.events import BY_PROPERTY, Answered, Drafted
from placet.case.life_cycle import State
from placet.case.observe import _answered
from placet.case.results import mission_ended
from placet.case.sorting import sort_notes
from placet.disk.errors import Gone, VaultTrouble
from placet.loop import decider, outbox
from placet.loop.branches import settle
from placet.loop.decider import Decider
from placet.loop.intake import Intake
from placet.loop.outbox import _rewrite, _stamp
from placet.loop.tick import Loop
from placet.loop.work import Dispatch
from placet.note.frontmatter import read_note, stamp
from placet.note.paths import Folder
from placet.plan.digest import plan_digest
from placet.plan.parse import PlanProblems, parse_plan
from placet.tools.registry import PLANNABLE
from simulation import Broken, Play, plan_text, play

SEEDS = int(os.environ.get("PLACET_SEEDS", "10000"))
"""Plays of the sweep. One alone is played again with `PLACET_SEED=N`."""


class ForgetsTheOutbox(Loop):
    """Naive: what was recorded and not performed is forgotten at a restart."""

    def load(self) -> None:
        Loop.load(self)
        self.state.outbox.pending.clear()


class RunsTheFile(Loop):
    """Naive: what runs is what lies in System/Active now, not the text that was approved."""

    def load(self) -> None:
        Loop.load(self)
        self.dispatch.__class__ = _RunsTheFile


class _RunsTheFile(Dispatch):
    __slots__ = ()

    def _mission(self, mission, job, sandbox):
        with suppress(Gone, PlanProblems):
            raw, _ = self.state.vault.read(self.state.cases[job.trace_id].plan.path)
            mission = replace(mission, plan=parse_plan(read_note(raw).body, PLANNABLE))
        return Dispatch._mission(self, mission, job, sandbox)


class BeginsUnread(Loop):
    """Naive: a mission begins because its plan was approved, whatever its note says by now."""

    def tick(self):
        with (
            patch.object(Decider, "is_judged", return_value=True),
            patch.object(Dispatch, "_is_still_approved", return_value=True),
        ):
            return Loop.tick(self)


class TakesAPauseForTheEnd(Loop):
    """Naive: a file that two looks find unchanged is written, whoever has it open."""

    def tick(self):
        self.state.vault._asks_kernel = False
        with (
            patch("placet.case.settle.WRITTEN_S", 0.25),
            patch("placet.case.settle.UNKNOWN_S", 0.25),
        ):
            return Loop.tick(self)


class TakesAMissingNoteForRemoved(Loop):
    """Naive: what is missing for a moment was taken away by a person."""

    def tick(self):
        with (
            patch("placet.case.settle.MISSING_S", 0.25),
            patch("placet.loop.intake.MISSING_S", 0.25),
        ):
            return Loop.tick(self)


class TakesThePlaceForTheNote(Loop):
    """Naive: what lies where a case's request lay is its request, also where another note has its
    trace_id.
    """

    def tick(self):
        def by_place(cases, notes):
            there = {note.path for note in notes if not note.trace_id}
            return sort_notes(
                cases,
                [
                    note
                    for note in notes
                    if note.is_plan
                    or note.trace_id not in cases
                    or cases[note.trace_id].request_path not in there - {note.path}
                ],
            )

        with (
            patch("placet.loop.decider.sort_notes", by_place),
            patch("placet.loop.decider.is_by_place", return_value=False),
        ):
            return Loop.tick(self)


class NamesTheReportThatItWanted(Loop):
    """Naive: a report is said to be where it was to go, also where that name was taken."""

    def load(self) -> None:
        Loop.load(self)
        self.state.outbox.reported = lambda case, wanted, _place, size: self.state.reported(
            case, wanted, wanted, size
        )


class WaitsForEveryFile(Loop):
    """Naive: as long as any file is unread nothing counts as taken away, one that is written all
    the time among them.
    """

    def tick(self):
        with patch.object(Intake, "_is_young", return_value=True):
            return Loop.tick(self)


class AnswersForThePerson(Loop):
    """Naive: a question that nobody answers for a while is answered with the first option."""

    def tick(self):
        def answers(case, notes):
            found = list(_answered(case, notes))
            if not found and case.asking is not None and not case.asking.amended and notes:
                found = [Answered(notes[0], "yes", 1, BY_PROPERTY)]
            return found

        with patch("placet.case.observe._answered", answers):
            return Loop.tick(self)


class TakesAnOldDecision(Loop):
    """Naive: a `decision: approve` counts whatever else the note says."""

    def tick(self):
        def lenient(case, plan, tools, *, in_box=False):
            found = approval(case, plan, tools, in_box=in_box)
            is_naive = found == OUTDATED or "This is revision" in str(found)
            return approved_in(plan.raw, tools) if is_naive else found

        with patch("placet.case.observe.approval", lenient):
            return Loop.tick(self)


class TakesANoteInThePlaceForAnAbsence(Loop):
    """Naive: a note is gone because another one is in its place, however certain the look is."""

    def tick(self):
        def absent(intake, trace_id, path, *, asks=False):
            other = intake.notes.get(path)
            if other is None:
                return path in intake._empty
            of_other_sort = other.is_plan if asks else other.asks
            return of_other_sort or other.trace_id not in ("", trace_id)

        with patch.object(Intake, "absent", absent):
            return Loop.tick(self)


class OverwritesADecision(Loop):
    """Naive: a new plan compares the text alone, and puts its own properties over a person's."""

    def tick(self):
        def rewrite(command, desk):
            with suppress(Gone):
                raw, _ = desk.vault.read(command.path)
                known = self.sight.notes.get(command.path)
                if known is not None and plan_digest(raw) == plan_digest(known.raw):
                    command = replace(command, seen=sha256(raw).hexdigest())
            _rewrite(command, desk)

        with patch("placet.loop.outbox._rewrite", rewrite):
            return Loop.tick(self)


class StampsOverAnyValue(Loop):
    """Naive: a stamp writes `status` and `decision` over whatever a person set meanwhile."""

    def tick(self):
        def stamped(command, case, desk):
            with suppress(Gone):
                meta = read_note(desk.vault.read(command.path)[0]).meta
                command = replace(command, seen={key: str(meta.get(key)) for key in command.seen})
            _stamp(command, case, desk)

        with patch("placet.loop.outbox._stamp", stamped):
            return Loop.tick(self)


class KeepsThePlaceOfAnEndedRequest(Loop):
    """Naive: what lies where an ended request lay is that request."""

    def tick(self):
        with (
            patch("placet.case.sorting._is_another", return_value=False),
            patch("placet.loop.gestures.OPEN", frozenset(State)),
        ):
            return Loop.tick(self)


class ForgetsAnswersWithTheWork(Loop):
    """Naive: an answer belongs to the work that asked; a revision knows nothing of it."""

    def tick(self):
        def void_work(builder):
            builder.set(generation=builder.case.generation + 1, answers=())

        with patch.object(DecisionBuilder, "void_work", void_work):
            return Loop.tick(self)


class ForgetsEditsForADecision(Loop):
    """Naive: a later command replaces an earlier one, a tick or a comment as well."""

    def read_intents(self):
        with patch("placet.host.intents.EDITS", ()):
            return Loop.read_intents(self)


class ForgetsTheBranchBefore(Loop):
    """Naive: a case has the branch of its last mission, and no other."""

    def tick(self):
        def ended(builder, event):
            mission_ended(builder, event)
            builder.set(branches=builder.case.branches[-1:])

        with patch("placet.case.decide.mission_ended", ended):
            return Loop.tick(self)


class TakesAnyClaim(Loop):
    """Naive: who left a claim with a commit did whatever became of that commit."""

    def tick(self):
        class ByCommit(dict):
            def get(self, key, default=None):
                return next((one for known, one in self.items() if known[2] == key[2]), default)

        def settled(book, found):
            book.intents.claims = ByCommit(book.intents.claims)
            settle(book, found)

        with patch("placet.loop.tick.settle", settled):
            return Loop.tick(self)


class BelievesAMessage(Loop):
    """Naive: a commit reverts a mission because its message says so."""

    def tick(self):
        def settled(book, found):
            reverts = tuple(replace(one, in_part=False) for one in found.reverts)
            settle(book, replace(found, reverts=reverts))

        with patch("placet.loop.tick.settle", settled):
            return Loop.tick(self)


class BelievesAnOldReason(Loop):
    """Naive: who deleted a branch did so for the reason in its report, however old that is."""

    def tick(self):
        def settled(case, branch, seen, now, person, reason, by):
            said = branch.dropped_reason if seen.became == "gone" else reason
            if said:
                seen, person = replace(seen, became="dropped"), person or BY_PROPERTY
            return settle_branch(case, branch, seen, now, person, said, by)

        with patch("placet.loop.branches.settle_branch", settled):
            return Loop.tick(self)


@pytest.mark.parametrize("first", range(0, 20, 5))
@pytest.mark.thinned(2)
def test_daemon_keeps_its_promises_in_random_play(first: int) -> None:
    for seed in range(first, first + 5):
        play(seed)


@pytest.mark.sweep
@pytest.mark.timeout(0)
def test_daemon_keeps_its_promises_over_many_seeds() -> None:
    if one := os.environ.get("PLACET_SEED"):
        play(int(one))
        return
    began = time.monotonic()
    sums: Counter[str] = Counter()
    failures: list[str] = []
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for figures, failure in pool.map(_figures, range(SEEDS), chunksize=20):
            sums.update(figures)
            failures += [failure] if failure else []
    took_s = time.monotonic() - began
    print(f"{SEEDS} seeds, {SEEDS / took_s:.1f} a second: {dict(sums)}; {len(failures)} failed")
    assert not failures, "\n".join(f.splitlines()[0] for f in failures) + "\n\n" + failures[0]


def _figures(seed: int) -> tuple[dict[str, int], str]:
    try:
        done = play(seed)
    except Broken as broken:
        return {}, str(broken)
    figures = {
        name: getattr(done, name) for name in ("gestures", "midway", "ticks", "restarts", "runs")
    }
    return {**figures, "reports": len(done.reports)}, ""


def test_revision_keeps_keys_of_unread_request() -> None:
    """A request was renamed, another took its name, and the daemon was killed: the plan is to be
    revised before the request is found.
    """
    play(21221)


def test_renamed_request_under_edit_is_awaited() -> None:
    """A request was moved and is edited for longer than YOUNG_S, and another note took its name."""
    play(231)


NAIVE = [
    ForgetsTheOutbox,
    RunsTheFile,
    BeginsUnread,
    TakesAPauseForTheEnd,
    TakesAMissingNoteForRemoved,
    TakesThePlaceForTheNote,
    NamesTheReportThatItWanted,
    WaitsForEveryFile,
    AnswersForThePerson,
    TakesAnOldDecision,
    TakesANoteInThePlaceForAnAbsence,
    OverwritesADecision,
    StampsOverAnyValue,
    KeepsThePlaceOfAnEndedRequest,
    ForgetsAnswersWithTheWork,
    ForgetsEditsForADecision,
    ForgetsTheBranchBefore,
    TakesAnyClaim,
    BelievesAMessage,
    BelievesAnOldReason,
]


@pytest.mark.sweep
@pytest.mark.timeout(0)
@pytest.mark.parametrize("naive", NAIVE)
def test_a_naive_daemon_is_caught(naive: type[Loop]) -> None:
    for seed in range(1000):
        try:
            play(seed, naive)
        except Broken as broken:
            print(f"{naive.__name__}: {str(broken).splitlines()[0][:200]}")
            return
    pytest.fail(f"{naive.__name__} was not caught in 1,000 plays")


# --- what the plays found, one by one


@pytest.fixture
def calm(tmp_path):
    """A play in which nothing happens by chance."""
    calm = Play(0, tmp_path)
    calm.quiet = True
    calm.dice.random = lambda: 0.5
    yield calm
    calm.kill()


def rows(calm: Play, action: str) -> int:
    return sum(row[0] == action for row in calm.everything()[1])


def the_plan(calm: Play) -> str:
    (plan,) = calm.files(Folder.PLANS)
    return plan


def test_revision_happens_once(calm: Play) -> None:
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    calm.comment([the_plan(calm)])
    calm.settle()
    assert rows(calm, "plan.revision_requested") == 1
    assert rows(calm, "plan.revised") == 1


def test_unstampable_request_is_explained_and_not_replanned(calm: Play) -> None:
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    raw = (calm.root / "Inbox/Requests/a.md").read_bytes()
    calm.write(
        "Inbox/Requests/a.md", raw.replace(b"status: planned", b"status: &s pending\nmine: *s")
    )
    calm.settle()
    assert rows(calm, "plan.revised") == 0
    assert b"cannot be changed" in (calm.root / "Inbox/Requests/a.placet.md").read_bytes()


def test_plan_without_trace_id_creates_no_case(calm: Play) -> None:
    raw = plan_text("", "theirs", 1, "words").replace(b'trace_id: ""\n', b"")
    calm.write("Inbox/Plans/theirs_plan.md", raw)
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    assert "" not in calm.loop.cases
    assert (
        b"`trace_id` is missing" in (calm.root / "Inbox/Plans/theirs_plan.placet.md").read_bytes()
    )
    assert rows(calm, "plan.created") == 1


def test_two_plans_of_one_unknown_case_are_explained(calm: Play) -> None:
    trace = "99999999-2222-3333-4444-555555555555"
    calm.write("Inbox/Plans/one.md", plan_text(trace, "one", 1, "words"))
    calm.write("Inbox/Plans/two.md", plan_text(trace, "two", 1, "words"))
    calm.settle()
    assert rows(calm, "plan.adopted") == 1
    assert b"There are 2 plans" in (calm.root / "Inbox/Plans/one.placet.md").read_bytes()


@pytest.mark.parametrize("named", ["../../../one", "one/two", "One two", "x" * 49])
def test_unknown_plan_with_invalid_request_id_is_explained(calm: Play, named: str) -> None:
    """It would become part of the paths of notes, worktrees and branches."""
    calm.write(
        "Inbox/Requests/p.md", plan_text("99999999-2222-3333-4444-555555555555", named, 1, "words")
    )
    calm.settle()
    assert rows(calm, "plan.adopted") == 0
    assert (
        b"its request_id is missing, invalid or"
        in (calm.root / "Inbox/Requests/p.placet.md").read_bytes()
    )


def test_an_adopted_plan_can_be_revised(calm: Play) -> None:
    calm.write(
        "Inbox/Plans/one.md", plan_text("99999999-2222-3333-4444-555555555555", "one", 1, "words")
    )
    calm.settle()
    calm.comment(["Inbox/Plans/one.md"])
    calm.settle()
    assert rows(calm, "plan.revised") == 1


def test_conflict_copy_side_note_follows_original(calm: Play) -> None:
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.write("Inbox/Requests/a (conflicted copy 2026-11-21).md", b"Do it not.\n")
    calm.settle()
    calm.write(
        "Inbox/Requests/a.md", (calm.root / "Inbox/Requests/a.md").read_bytes() + b"And more.\n"
    )
    calm.settle()
    assert (
        b"And more."
        in (calm.root / "Inbox/Requests/a (conflicted copy 2026-11-21).placet.md").read_bytes()
    )


def test_a_revision_is_never_written_into_system_active(calm: Play) -> None:
    """A plan that cannot be used was moved there while it was revised: the new text must not take
    its place, unread as it is.
    """
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    plan = the_plan(calm)
    calm.comment([plan])
    while not calm.waiting:
        calm.tick()
        calm.pass_time(0.3)
    calm.write(
        plan,
        (calm.root / plan)
        .read_bytes()
        .replace(b"status: needs_revision", b"status: &s review\nmine: *s"),
    )
    calm.rename(plan, "System/Active/a.md")
    for _ in range(3):
        calm.tick()
        calm.pass_time(0.3)
    calm.settle()
    assert rows(calm, "plan.revised") == 1
    assert rows(calm, "execution.started") == 0
    assert calm.files(Folder.ACTIVE) == ["System/Active/a.md"]
    assert b"mine: *s" in (calm.root / "System/Active/a.md").read_bytes()


def test_plan_removed_during_rewrite_is_recreated(calm: Play) -> None:
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    plan = the_plan(calm)
    calm.comment([plan])
    replace_note, calls = calm.vault.replace, []

    def replace_after_it_went(path, expected, data):
        if path == plan and b"revision: 2" in data and not calls:
            calls.append(path)
            (calm.root / plan).unlink()
        return replace_note(path, expected, data)

    calm.vault.replace = replace_after_it_went
    calm.settle()
    assert calls
    assert rows(calm, "plan.revised") == 1
    assert b"revision: 2" in (calm.root / plan).read_bytes()


def test_plan_for_another_model_waits_for_review_again(calm: Play) -> None:
    """It is put back in the look that approved it, before its status was stamped."""
    calm.dice.random = lambda: 0.5

    def drafted(generation: int, raw: bytes, revision: int, *, model: str) -> Drafted:
        assert model != "another"
        return Drafted(generation, raw, revision, model="another")

    with patch("simulation.Drafted", drafted):
        calm.write("Inbox/Requests/a.md", b"Do it.\n")
        calm.settle()
    calm.rename(the_plan(calm), "System/Active/a.md")
    calm.settle()
    assert b"\nstatus: review\n" in (calm.root / the_plan(calm)).read_bytes()
    assert rows(calm, "plan.refused") == 1
    assert rows(calm, "note.explained") == 1, "it says that the model has changed"
    assert rows(calm, "execution.started") == 0


def test_new_reason_stays_when_rejection_is_undone(calm: Play) -> None:
    calm.dice.random = lambda: 0.5
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    plan = the_plan(calm)
    calm.write(
        plan,
        stamp((calm.root / plan).read_bytes(), {"decision": "reject", "rejection_reason": "Old."}),
    )
    calm.settle()
    (rejected,) = calm.files(Folder.REJECTED)
    calm.write(rejected, stamp((calm.root / rejected).read_bytes(), {"rejection_reason": "New."}))
    calm.rename(rejected, plan)
    calm.settle()
    assert rows(calm, "plan.taken_back") == 1
    assert b"rejection_reason: New." in (calm.root / plan).read_bytes()


def test_one_approval_runs_once_without_its_stamp(calm: Play) -> None:
    """The plan is elsewhere while it is to be stamped, and the mission fails before the new name
    that it gets then is seen.
    """
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    calm.dice.random = lambda: 0.9  # the mission fails
    calm.rename(the_plan(calm), "System/Active/a.md")
    read_note_of, renamed = calm.vault.read, []

    def read_after_a_rename(path, **more):
        if path == "System/Active/a.md" and rows(calm, "plan.approved"):
            if not renamed:
                renamed.append((calm.root / path).rename(calm.root / "System/Active/b.md"))
            elif renamed[0].exists():
                renamed[0].rename(calm.root / path)
        return read_note_of(path, **more)

    calm.vault.read = read_after_a_rename
    while not calm.waiting:
        calm.tick()
        calm.pass_time(0.3)
    calm.vault.read = read_note_of
    (calm.root / "System/Active/a.md").rename(renamed[0])
    calm.work()
    calm.settle()
    assert rows(calm, "execution.started") == 1
    assert rows(calm, "plan.refused") == 1


def two_plans_in_active(calm: Play) -> tuple[str, str]:
    """Put a plan and a copy of it with another text into System/Active; return their paths."""
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    raw = (calm.root / the_plan(calm)).read_bytes()
    calm.write("System/Active/copy.md", raw.replace(b"a.txt", b"**"))
    calm.settle()
    calm.rename(the_plan(calm), "System/Active/a.md")
    calm.settle()
    assert rows(calm, "plan.approved") == 0
    return "System/Active/a.md", "System/Active/copy.md"


@pytest.mark.parametrize("way", ["edited", "moved"])
def test_duplicate_plans_block_each_others_approval(calm: Play, way: str) -> None:
    one, other = two_plans_in_active(calm)
    if way == "edited":
        calm.write(one, (calm.root / one).read_bytes() + b"\nAnd more.\n")
    else:
        calm.rename(one, "System/Active/b.md")
    calm.settle()
    assert rows(calm, "plan.approved") == 0
    assert (calm.root / other).exists()


def test_two_simultaneous_plans_approve_nothing(calm: Play) -> None:
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    raw = (calm.root / the_plan(calm)).read_bytes()
    calm.write("System/Active/copy.md", raw.replace(b"a.txt", b"**"))
    calm.tick()
    calm.pass_time(0.3)
    calm.rename(the_plan(calm), "System/Active/a.md")
    calm.tick()  # the other one has not settled
    calm.settle()
    assert rows(calm, "plan.approved") == 0


def test_revision_uses_keys_of_planned_text(
    calm: Play,
) -> None:
    told = []
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    draft = calm.loop.dispatch.draft
    calm.loop.dispatch.draft = lambda ports, assignment, cancelled: (
        told.append(assignment),
        draft(ports, assignment, cancelled),
    )[1]
    calm.write("Inbox/Requests/a.md", calm.stamped("Inbox/Requests/a.md", {"agent": "reviewer"}))
    calm.comment([the_plan(calm)])
    calm.settle()
    assert told
    # `draft` held each one's keys against its text
    assert [one.case.request.agent for one in told][-1] == "reviewer"


@pytest.mark.parametrize("edited", [False, True])
def test_approval_during_failed_revision_checks_what_was_read(calm: Play, edited: bool) -> None:
    """A callout written into System/Active then would say of an edited scope what no person saw
    there.
    """
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    calm.edit(["Inbox/Requests/a.md"])
    while not calm.waiting:
        calm.tick()
        calm.pass_time(0.3)
    plan = "System/Active/a.md"
    calm.rename(the_plan(calm), plan)
    # what is being written may be a second plan: until it is read nothing is approved
    with (calm.root / "Inbox/Plans/other.md").open("wb", buffering=0) as other:
        for text in (b"One\n", b"Another\n"):
            other.write(text)
            calm.tick()
            calm.pass_time(0.3)
    assert rows(calm, "plan.approved") == 0
    if edited:
        calm.write(plan, (calm.root / plan).read_bytes().replace(b"a.txt", b"**"))
    calm.dice.random = lambda: 0.05  # it cannot be revised
    calm.work()
    calm.dice.random = lambda: 0.5
    calm.settle()
    assert rows(calm, "plan.failed") == 1
    assert rows(calm, "plan.refused") == edited
    assert rows(calm, "execution.started") == (not edited)


@pytest.mark.parametrize("outdated", [False, True])
def test_returned_renamed_plan_is_not_approved_by_box(calm: Play, outdated: bool) -> None:
    """Its mission failed, or its scope was edited: it goes back to Inbox/Plans, and there it says
    so.
    """
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    plan = the_plan(calm)
    if outdated:
        calm.write(plan, (calm.root / plan).read_bytes().replace(b"a.txt", b"**"))
    calm.dice.random = lambda: 0.9  # the mission fails
    calm.rename(plan, "System/Active/a.md")
    move, renamed = calm.vault.move, []

    def move_after_a_rename(src, dst, expected):
        if src == "System/Active/a.md" and not renamed:
            renamed.append((calm.root / src).rename(calm.root / "System/Active/b.md"))
        return move(src, dst, expected)

    calm.vault.move = move_after_a_rename
    calm.settle()
    assert renamed
    assert rows(calm, "plan.approved") == rows(calm, "execution.started") == (not outdated)
    assert calm.files(Folder.PLANS, Folder.ACTIVE) == [plan]


def test_renamed_request_is_not_replaced_by_copy(calm: Play) -> None:
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    raw = (calm.root / "Inbox/Requests/a.md").read_bytes()
    calm.write("Inbox/Rejected/a copy.md", raw.replace(b"Do it.", b"Do something else."))
    calm.rename("Inbox/Requests/a.md", "Inbox/Requests/b.md")
    calm.settle()
    calm.comment([the_plan(calm)])
    calm.settle()
    (case,) = calm.loop.cases.values()
    assert case.request_path == "Inbox/Requests/b.md"
    assert rows(calm, "plan.revised") == 1
    assert rows(calm, "request.edited") == 0


def test_unreadable_note_is_read_again(calm: Play) -> None:
    read, failed = calm.vault.read, []

    def read_badly(path, **more):
        if path == "Inbox/Requests/a.md" and not failed:
            failed.append(path)
            raise VaultTrouble(path, OSError(errno.EIO, "Input/output error"))
        return read(path, **more)

    calm.vault.read = read_badly
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.settle()
    calm.pass_time(10)
    calm.settle()
    assert failed
    assert rows(calm, "plan.created") == 1
    assert not (calm.root / "Inbox/Requests/a.placet.md").exists()


@pytest.mark.parametrize("where", ["gestures", "outbox"])
def test_bug_affects_only_the_case_showing_it(calm: Play, where: str) -> None:
    """One note must not stop the daemon: a bug that a case shows is said, and the others go on."""
    calm.write("Inbox/Requests/a.md", b"Do it.\n")
    calm.write("Inbox/Requests/b.md", b"Do that.\n")
    calm.settle()
    one, other = calm.files(Folder.PLANS)
    calm.dice.random = lambda: 0.5  # missions succeed
    take, perform = decider.take, outbox.perform

    def wrong_take(state, case, its):
        if case.request_id == "a" and its.plans:
            raise KeyError("odd")
        return take(state, case, its)

    def wrong_perform(command, case, desk, **more):
        if case.request_id == "a":
            raise IndexError("odd")
        return perform(command, case, desk, **more)

    calm.rename(one, "System/Active/a.md")
    calm.rename(other, "System/Active/b.md")
    patched = (
        patch.object(decider, "take", wrong_take)
        if where == "gestures"
        else patch.object(outbox, "perform", wrong_perform)
    )
    with patched, patch.object(Play, "must", lambda *_: None):
        for _ in range(30):
            calm.tick()
            while calm.waiting:
                calm.work()
            calm.pass_time(1.0)
        ended = [row[1] for row in calm.everything()[1] if row[0] == "execution.completed"]
        assert ended == ["b"]
        assert sum("placet has a bug" in line for line in calm.said) == 1
        if where == "gestures":
            side = (calm.root / "System/Active/a.placet.md").read_text()
            assert "placet has a bug: KeyError" in side
    calm.restart()  # a placet without the bug
    calm.settle()
    assert rows(calm, "execution.completed") == 2
    assert not (calm.root / "System/Active/a.placet.md").exists()
