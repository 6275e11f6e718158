"""Test every gesture on a note and its result."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from looping import Fake, Running, Time, greeter, looping, says, turns_taken
from placet.case.case import SOMEONE
from placet.case.transitions import TABLE
from placet.chat.messages import Ask, ModelError, ModelErrorKind, Purpose, Reply
from placet.note.box import without_box
from placet.note.frontmatter import read_note, stamp
from vaultkit import ME, PLAN, TestVault, until

pytestmark = pytest.mark.bare


def planned(run: Running, *idents: str) -> list[Path]:
    """Drop requests of these ids, and have them planned."""
    for ident in idents:
        run.vault.drop(f"Please {ident}.\n", f"{ident}.md")
    run.settle()
    return [run.vault.plan(ident) for ident in idents]


def look(run: Running) -> None:
    """Let the daemon look for 10 s; no work is started."""
    run.loop.stopping = True
    for _ in range(20):
        run.loop.tick()
        run.loop.ports.clock.sleep(0.5)
    run.loop.stopping = False


def rows(vault: TestVault, ident: str, action: str) -> list[dict[str, Any]]:
    return [row for row in vault.rows(action) if row["entity_id"] == ident]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def says_all(path: Path, *pieces: str) -> str:
    text = path.read_text()
    assert all(piece in text for piece in pieces), text
    return text


def revise(plan: Path) -> None:
    """Ask for changes."""
    text = plan.read_text() + "\n## Review Comments\n\n- Shorter, please.\n"
    plan.write_bytes(stamp(text.encode(), {"decision": "revise"}))


def request_of(vault: TestVault, ident: str) -> Path:
    return vault.root / "Inbox/Requests" / f"{ident}.md"


def archived(vault: TestVault, ident: str) -> Path:
    return vault.root / "Inbox/Archive" / f"{ident}_plan.md"


def opening(model: Fake) -> str:
    return "\n".join(str(block.get("text", "")) for block in model.asks[-1].turns[0].blocks)


# --- approve and reject


def test_move_under_any_name_approves_plan(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        (plan,) = planned(run, "hello")
        plan.rename(vault.root / "System/Active/Sure, do it! ✅ (v2).md")
        run.settle()
    (row,) = vault.rows("plan.approved")
    assert row["actor"] == "human"
    told = {
        "digest": vault.rows("plan.created")[0]["metadata"]["digest"],
        "reviewed_by": SOMEONE,
        "via": "move",
        "edited": False,
        "changed_lines": [],
        "revision": 1,
    }
    assert told.items() <= row["metadata"].items()
    assert vault.rows("execution.completed")
    kept = archived(vault, "hello")
    says_all(kept, "status: completed", f"approved_by: {SOMEONE}", "approved_at: ")


def test_approval_covers_edited_plan_and_journals_changed_lines(
    vault: TestVault,
) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        plan, refused = planned(run, "edited", "refused")
        body = without_box(read_note(plan.read_bytes()).body).split("\n")
        edit(plan, "Write a greeting.", "Write a friendly greeting.\n\nIn English.")
        edit(plan, 'write = ["hello.txt"]', 'write = ["hello.txt", "hallo.txt"]')
        at = body.index("Write a greeting.") + 1
        scope = next(n for n, line in enumerate(body, 1) if line.startswith("write = ")) + 2
        run.settle()
        # what a reviewer reads follows what they edit
        says_all(plan, "> It may write `hello.txt`, `hallo.txt`;")
        vault.approve("edited")
        run.settle()
        row = rows(vault, "edited", "plan.approved")[0]["metadata"]
        assert row["edited"] is True
        assert row["changed_lines"] == [[at, at + 2], [scope, scope]]
        assert row["digest"] != rows(vault, "edited", "plan.created")[0]["metadata"]["digest"]
        started = rows(vault, "edited", "execution.started")[0]["metadata"]
        assert started["digest"] == row["digest"]

        # placet's own box is not an edit, the person's word is
        edit(refused, '["write_file"]', '["rm_rf"]')
        vault.approve("refused")
        run.settle()
        text = says_all(refused, "Not approved", "rm_rf")
        found = re.search(r"> Line (\d+) below this box: .*rm_rf", text)
        assert found is not None
        below = without_box(read_note(refused.read_bytes()).body)
        assert below.splitlines()[int(found[1]) - 1].startswith('tools = ["rm_rf"]')
        edit(refused, '["rm_rf"]', '["write_file", "read_file"]')
        vault.approve("refused")
        run.settle()
        row = rows(vault, "refused", "plan.approved")[0]["metadata"]
        assert row["edited"] is True
        assert row["changed_lines"]


def test_rejection_by_move_or_command_keeps_reason(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        by_key, by_section, _ = planned(run, "by-key", "by-section", "by-cli")
        edit(by_key, "status: review", "status: review\nrejection_reason: too broad")
        by_key.rename(vault.root / "Inbox/Rejected/no thanks.md")
        with by_section.open("a") as note:
            note.write("\n## Rejection\n\nNot **now**, perhaps later.\n")
        by_section.rename(vault.root / "Inbox/Rejected/by-section_plan.md")
        vault.click("reject", "by-cli", "--reason", "We have one: ✅")
        run.settle()
        for ident, name, reason, who, via in (
            ("by-key", "no thanks.md", "too broad", SOMEONE, "move"),
            ("by-section", "by-section_plan.md", "Not **now**, perhaps later.", SOMEONE, "move"),
            ("by-cli", "by-cli_rejected.md", "We have one: ✅", ME, "cli"),
        ):
            (row,) = rows(vault, ident, "plan.rejected")
            assert row["actor"] == "human"
            said = row["metadata"]
            assert (said["reason"], said["reviewed_by"], said["via"]) == (reason, who, via)
            note = vault.root / "Inbox/Rejected" / name
            says_all(note, "status: rejected", "rejected_by: ", "rejected_at: ", reason)
            says_all(request_of(vault, ident), "status: rejected")
        assert not vault.notes("Inbox/Plans")
        # A change of mind: the plan goes back to review, and from there it is approved.
        (vault.root / "Inbox/Rejected/no thanks.md").rename(by_key)
        run.settle()
        assert "rejection_reason" not in says_all(by_key, "status: review")
        vault.approve("by-key")
        run.settle()
    assert rows(vault, "by-key", "execution.completed")
    assert len(vault.rows("execution.started")) == 1


# --- edit


def test_edits_before_and_during_planning_reach_planner(vault: TestVault) -> None:
    class Planner(Fake):
        """Answers each comment; a call while `hangs` is set is cut."""

        hangs = False

        def reply(self, ask: Ask, cancelled: Callable[[], bool], *_: object) -> Reply:
            self.asks.append(ask)
            if self.hangs:
                until(cancelled, "the call is cut")
                raise ModelError(ModelErrorKind.CANCELLED, "the call was cut", served=True)
            plan = {**PLAN, "summary": f"Attempt {len(self.asks)}."}
            _, _, waiting = opening(self).partition("Open review comments, in order:\n")
            if waiting:
                plan["answers"] = ["Yes."] * len(re.findall(r"(?m)^\d+\. ", waiting))
            return says(("submit_plan", plan))

    model = Planner(greeter)
    with looping(vault, model=lambda: model, time=Time()) as run:
        (plan,) = planned(run, "hello")
        edit(plan, "Attempt 1.", "Attempt 1, with my own words.")
        edit(request_of(vault, "hello"), "Please hello.", "The second wish.")
        run.settle()
        assert "The second wish." in opening(model)
        assert "with my own words" in opening(model), "the edited plan is what is revised"
        text = says_all(plan, "status: review", "revision: 2", "Attempt 2.")
        assert "> -Attempt 1, with my own words." in text

        def goes_on() -> bool:
            run.loop.ports.clock.sleep(0.5)
            return bool(run.loop.tick())

        model.hangs = True
        revise(plan)
        until(lambda: goes_on() and model.asks[2:], "the call that hangs")
        with plan.open("a") as note:
            note.write("- 💡 one more thing\n")
        until(lambda: goes_on() and vault.rows("plan.edited"))
        model.hangs = False
        run.settle()
        assert vault.rows("plan.edited")[0]["actor"] == "human"
        assert "💡 one more thing" in opening(model)
        says_all(plan, "revision: 3", "- 💡 one more thing\n  - **Answer:** Yes.")
        assert len(vault.rows("plan.revised")) == 2
    assert not vault.notes("Inbox/Archive"), "no edit had to be put aside"


# --- before the run, and during it


def test_approval_can_be_undone_before_run(vault: TestVault) -> None:
    """In which state each gesture leaves the plan, `test_approval_binds` shows."""
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        idents = ("edited", "keyed", "taken", "deleted", "stopped")
        planned(run, *idents)
        for ident in idents:
            vault.approve(ident)
        look(run)
        assert len(vault.rows("plan.approved")) == len(idents)
        edit(vault.active("edited"), 'write = ["hello.txt"]', 'write = ["**"]')
        edit(vault.active("keyed"), "agent: default", "agent: writer")
        vault.active("taken").rename(vault.plan("taken"))
        vault.active("deleted").unlink()
        vault.click("stop", "stopped")
        run.settle()
        text = says_all(
            vault.plan("edited"),
            *("status: review", "Changed after approval", "move it to System/Active"),
        )
        assert '> -write = ["hello.txt"]' in text
        assert '> +write = ["**"]' in text
        assert "approved_at" not in text
        (row,) = rows(vault, "edited", "plan.changed_after_approval")
        assert (row["actor"], row["metadata"]["running"]) == ("human", False)
        says_all(vault.plan("keyed"), "status: review", "Changed after approval")
        for ident, action in (
            ("taken", "plan.taken_back"),
            ("deleted", "plan.withdrawn"),
            ("stopped", "plan.taken_back"),
        ):
            assert rows(vault, ident, action)[0]["actor"] == "human"
        for ident in ("taken", "stopped"):
            assert "approved_at" not in says_all(vault.plan(ident), "status: review")
        says_all(request_of(vault, "deleted"), "status: rejected")
        assert not vault.rows("execution.started")
        vault.approve("taken")
        run.settle()
    assert [row["entity_id"] for row in vault.rows("execution.completed")] == ["taken"]


def test_used_approval_is_refused_but_new_approval_works(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        (plan,) = planned(run, "hello")
        vault.approve("hello")
        look(run)
        approved = says_all(vault.active("hello"), "status: approved", "approved_at")
        vault.active("hello").rename(plan)
        look(run)
        says_all(plan, "status: review")
        assert vault.rows("plan.taken_back")
        plan.unlink()
        vault.active("hello").write_text(approved)  # as a sync tool that was offline puts it back
        look(run)
        assert "was used already" in vault.rows("plan.refused")[0]["metadata"]["reason"]
        assert "approved_" not in says_all(plan, "status: review", "Not approved")
        vault.approve("hello")
        run.settle()
    assert len(vault.rows("plan.approved")) == 2
    assert vault.rows("execution.completed")


def test_edit_during_run_is_reported_without_effect(vault: TestVault) -> None:
    side = vault.root / "System/Active/hello.placet.md"

    def answer(ask: Ask) -> Reply:
        if ask.purpose is not Purpose.EXECUTE or turns_taken(ask) > 1:
            return greeter(ask)
        if turns_taken(ask) == 1:
            return says(("write_file", {"path": "other.txt", "content": "x"}))
        until(lambda: "status: approved" in vault.active("hello").read_text())
        edit(vault.active("hello"), 'write = ["hello.txt"]', 'write = ["**"]')
        until(side.exists, "the edit is told")
        says_all(side, "has no effect", '> +write = ["**"]')
        return greeter(ask)

    with looping(vault, model=lambda: Fake(answer)) as run:
        planned(run, "hello")
        vault.approve("hello")
        until(lambda: run.loop.tick() and vault.rows("execution.completed"))
        run.settle()
        assert not side.exists()
    (row,) = vault.rows("plan.changed_after_approval")
    assert (row["actor"], row["metadata"]["running"]) == ("human", True)
    says_all(archived(vault, "hello"), 'write = ["**"]', "status: completed")
    assert vault.rows("tool.refused")[0]["metadata"]["tool"] == "write_file"
    (done,) = vault.rows("execution.completed")
    assert done["metadata"]["files_changed"] == ["hello.txt"]
    assert "changed during the run" in vault.reports()[0].read_text()


# --- withdraw


def test_deleted_note_withdraws_request_and_can_be_restored(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        early = vault.drop("Please.\n", "early.md")
        look(run)
        says_all(early, "status: planning")
        early.unlink()
        look(run)
        plan, kept = planned(run, "request-gone", "plan-gone")
        gone = says_all(request_of(vault, "request-gone"), "status: planned")
        plan_text = says_all(kept, "status: review")
        request_of(vault, "request-gone").unlink()
        kept.unlink()
        run.settle()
        for ident, action in (
            ("early", "request.withdrawn"),
            ("request-gone", "request.withdrawn"),
            ("plan-gone", "plan.withdrawn"),
        ):
            assert [row["actor"] for row in rows(vault, ident, action)] == ["human"]
        says_all(archived(vault, "request-gone"), "status: rejected")
        says_all(request_of(vault, "plan-gone"), "status: rejected")
        assert not plan.exists()
        assert not rows(vault, "early", "plan.created")
        # Undo: the sync tool, or the person, brings the notes back.
        kept.write_text(plan_text)
        request_of(vault, "request-gone").write_text(gone)
        run.settle()
        assert rows(vault, "plan-gone", "plan.taken_back")
        for ident in ("plan-gone", "request-gone"):
            says_all(request_of(vault, ident), "status: planned")
            says_all(vault.plan(ident), "status: review")
            vault.approve(ident)
        run.settle()
    assert len(vault.rows("execution.completed")) == 2


# --- what never runs


def test_illegal_move_is_explained_until_corrected(vault: TestVault) -> None:
    active = vault.root / "System/Active"
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        strange = active / "straight.md"
        strange.write_text("Please do this at once.\n")
        run.settle()
        says_all(active / "straight.placet.md", "Nothing runs", "Inbox/Requests")
        request = strange.rename(request_of(vault, "straight"))
        run.settle()
        says_all(vault.plan("straight"), "status: review")
        assert not (active / "straight.placet.md").exists()

        request.rename(strange)  # the request, not its plan
        run.settle()
        says_all(active / "straight.placet.md", "This is a request, not a plan", "Move it back")
        strange.rename(request)
        run.settle()
        assert not (active / "straight.placet.md").exists()

        (plan,) = planned(run, "twice")
        vault.active("twice").write_text(plan.read_text())  # copied, not moved
        run.settle()
        side = active / "twice.placet.md"
        both = ("There are 2 plans", "Inbox/Plans/twice_plan.md", "System/Active/twice.md")
        says_all(side, *both)
        says_all(vault.root / "Inbox/Plans/twice_plan.placet.md", *both)
        assert "plan.approved" not in vault.actions()
        plan.unlink()  # now it was a move
        run.settle()
        assert not side.exists()
    assert [row["entity_id"] for row in vault.rows("execution.completed")] == ["twice"]
    assert len(vault.rows("plan.created")) == 2, "no illegal move asked for a plan"


def test_conflict_copy_shows_diff_and_approves_nothing(
    vault: TestVault,
) -> None:
    names = (
        "{} (conflicted copy 2026-11-21)",
        "{} (Conflicted copy phone 202611211200)",
        "{}.sync-conflict-20261121-120000-ABCDEFG",
        "{} (Alice's conflicted copy 2026-11-21)",
    )
    active = vault.root / "System/Active"
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        plan, rejected = planned(run, "hello", "no")
        rejected = rejected.rename(vault.root / "Inbox/Rejected/no.md")
        run.settle()
        copies = [
            original.with_name(name.format(original.stem) + ".md")
            for original in (request_of(vault, "hello"), plan, rejected)
            for name in names
        ]
        for copy in copies:
            stem = re.split(r"[ .]", copy.name)[0]
            copy.write_text(copy.with_name(f"{stem}.md").read_text().replace("e", "E"))
        # its original lies elsewhere: still no approval
        approvals = [active / (name.format("hello") + ".md") for name in names]
        for copy in approvals:
            copy.write_text(plan.read_text())
        run.settle()
        for copy in approvals:
            side = copy.with_name(copy.stem + ".placet.md")
            says_all(side, "conflict copy of `hello.md`", "placet ignores it")
        for copy in copies:
            side = copy.with_name(copy.stem + ".placet.md")
            says_all(side, "conflict copy", "```diff", "\n> -", "\n> +")
        vault.approve("hello")  # the copies stand in nobody's way
        run.settle()
        assert vault.rows("execution.completed")
        for copy in approvals:
            copy.unlink()
        run.settle()
        assert not vault.notes("System/Active"), "the explanations go"
    assert len(vault.rows("plan.created")) == 2
    assert len(vault.rows("plan.approved")) == 1


def test_numbered_copy_gets_side_note_with_diff(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        (plan,) = planned(run, "hello")
        request = request_of(vault, "hello")
        request.with_name("hello 2.md").write_text(request.read_text() + "And more.\n")
        run.settle()
        says_all(request.with_name("hello 2.placet.md"), "same `trace_id`", "> +And more.")
        other = plan.read_text().replace("greeting", "speech")
        plan.with_name("hello_plan 2.md").write_text(other)
        run.settle()
        side = plan.with_name("hello_plan 2.placet.md")
        says_all(side, "There are 2 plans", "> +Write a speech.")
    assert len(vault.rows("plan.created")) == 1


def test_touched_or_restored_plan_never_runs_twice(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        planned(run, "hello", "later")
        vault.approve("hello")
        run.settle()
        vault.approve("later")
        look(run)
        done = says_all(archived(vault, "hello"), "status: completed", "approved_at")
        active = says_all(vault.active("later"), "status: approved", "approved_at")
        for _ in range(3):
            vault.active("later").write_text(active)
            os.utime(vault.active("later"))
            archived(vault, "hello").touch()
            look(run)
        # A sync tool that was offline brings back what it knew: the approved plan, with all its
        # stamps.
        for name, text in (
            ("hello.md", done.replace("status: completed", "status: approved")),
            ("another name.md", done),
        ):
            (vault.root / "System/Active" / name).write_text(text)
            run.settle()
            reason = rows(vault, "hello", "plan.refused")[-1]["metadata"]["reason"]
            assert "is done already" in reason
            assert not (vault.root / "System/Active" / name).exists(), "it goes to the archive"
    started = [row["entity_id"] for row in vault.rows("execution.started")]
    assert sorted(started) == ["hello", "later"]
    assert len(vault.rows("plan.approved")) == 2


def test_documented_life_cycle_matches_transition_table(tmp_path: Path) -> None:
    drawn = TestVault(tmp_path, tmp_path / "state").click("states").stdout
    written = (Path(__file__).parents[2] / "daemon/ARCHITECTURE.md").read_text()
    arrows = re.findall(r"(?m)^  \S+ --> \S+$", written)
    assert len(arrows) > 10
    assert all(f"{arrow}:" in drawn for arrow in arrows)
    for (source, _), target in TABLE.items():
        arrow = f"{source} --> {target}:"
        assert source is target or arrow in drawn
