"""Test that the daemon performs each command's intent once, and only for the text you saw."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.loop.test_gestures import planned

from gitkit import git
from placet.case.case import SOMEONE
from placet.case.intents import INTENT_JSON, Intent
from placet.case.life_cycle import State
from placet.case.notes import inspect_note
from placet.cli import watch
from placet.client import decisions
from placet.client.cases import status
from placet.errors import UserError
from placet.host import intents
from placet.host.intents import Mailbox
from placet.journal.reader import open_reader
from placet.loop import outbox
from placet.loop.outbox import Outbox
from placet.note.frontmatter import read_note
from placet.plan.digest import plan_digest
from vaultkit import ME, PLAN, TestVault, make_vault, running, started


def left(vault: TestVault) -> list[Path]:
    return sorted(vault.state.glob("*/intents/*"))


def last(vault: TestVault, action: str) -> dict[str, Any]:
    found: dict[str, Any] = vault.rows(action)[-1]["metadata"]
    return found


def by(vault: TestVault, action: str) -> tuple[str, str]:
    row = last(vault, action)
    return row["reviewed_by"], row["via"]


def intent(vault: TestVault, **other: Any) -> Intent:
    """Return an approval of the plan as it is."""
    case = vault.site.case("say-hello")
    note = inspect_note(case.plan.path, vault.plan().read_bytes(), "")
    made = Intent(
        intents.new_id(),
        "approve",
        case.trace_id,
        note.path,
        note.digest,
        case.state.value,
        case.generation,
    )
    return replace(made, **other)


def folder(vault: TestVault) -> Path:
    return vault.site.state.intents


# --- the daemon performs them


def test_approval_undone_in_vault_is_dropped(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    vault.click("approve", "say-hello", "--yes")
    vault.plan().rename(vault.plan().with_name("Mine.md"))
    assert any("moved meanwhile" in line for line in vault.here())
    assert not vault.rows("plan.approved")
    vault.plan().with_name("Mine.md").rename(vault.active())
    vault.here()
    assert by(vault, "plan.approved") == (SOMEONE, "move")
    assert f"Approved-By: {SOMEONE}" in git(
        vault.root, "log", "--branches=feat/*", "-1", "--format=%B"
    )


def test_edited_note_wins_over_intent(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    vault.click("approve", "say-hello", "--yes")
    vault.plan().write_text(vault.plan().read_text().replace("A file.", "Another file."))
    assert any("was changed since you read it" in line for line in vault.here())
    assert not vault.rows("plan.approved")
    assert not left(vault)


def test_decision_in_vault_wins_over_intent(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    vault.click("approve", "say-hello", "--yes")
    vault.plan().rename(vault.root / "Inbox/Rejected/no.md")
    vault.here()
    assert by(vault, "plan.rejected") == (SOMEONE, "move")
    assert not vault.rows("plan.approved")
    assert not left(vault)


def test_a_later_intent_replaces_an_earlier_one(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    vault.click("approve", "say-hello", "--yes")
    vault.click("reject", "say-hello", "--reason", "no")
    said = vault.here()
    assert any("later command replaced" in line for line in said)
    assert by(vault, "plan.rejected") == (ME, "cli")
    assert last(vault, "plan.rejected")["reason"] == "no"
    assert not vault.rows("plan.approved")


def test_retry_is_journalled_as_a_command(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    vault.click("reject", "say-hello", "--reason", "too short")
    vault.here()
    vault.click("retry", "say-hello", "--comment", "Longer, please.")
    vault.here()
    row = vault.rows("request.detected")[-1]
    assert row["actor"] == "human"
    assert (row["metadata"]["reviewed_by"], row["metadata"]["via"]) == (ME, "cli")
    assert not vault.rows("request.edited")
    assert "Longer, please." in (vault.root / "Inbox/Requests/Say hello.md").read_text()


def test_retry_waits_for_no_quiet(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    vault.click("reject", "say-hello", "--reason", "too short")
    vault.here()
    config = vault.root / "System/placet.toml"
    config.write_text(config.read_text().replace("quiet_s = 0", "quiet_s = 600"))
    with running(vault):
        vault.click("retry", "say-hello", "--comment", "Longer, please.")
        vault.await_action("model.called", 2, 60)


class Killed(BaseException):
    """The daemon's end in the middle of its work."""


def killed_before_writing(vault: TestVault, monkeypatch: pytest.MonkeyPatch, end: State) -> None:
    """Run a daemon that is killed when a case came to this end, and nothing of it is written."""
    real = Outbox.perform

    def perform(self: Outbox, cases: Any, *rest: Any) -> bool:
        if any(cases[pending.trace_id].state is end for pending in self.pending):
            raise Killed
        return real(self, cases, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Outbox, "perform", perform)
        with pytest.raises(Killed):
            vault.here()


@pytest.mark.parametrize("end", [State.FAILED, State.REJECTED])
def test_retry_during_end_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: State
) -> None:
    vault = planned(tmp_path)
    if end is State.FAILED:
        plan = [{"calls": [("submit_plan", PLAN)]}]
        given_up = [{"calls": [("give_up", {"reason": "It is nowhere."})]}]
        vault.script(("plan", plan), ("revise", plan), ("execute", given_up))
        vault.approve()
    else:
        vault.plan().rename(vault.root / "Inbox/Rejected/say-hello_rejected.md")
    killed_before_writing(vault, monkeypatch, end)
    if end is State.FAILED:
        _watch_ends(vault)
    vault.click("retry", "say-hello")
    vault.here()
    again = [row for row in vault.rows("request.detected") if row["metadata"].get("again")]
    assert [row["metadata"]["via"] for row in again] == ["cli"]
    assert len(vault.rows("plan.created") + vault.rows("plan.revised")) == 2


def _watch_ends(vault: TestVault) -> None:
    """An end that cannot be written is still the end of `placet watch`."""
    with closing(sqlite3.connect(vault.db)) as db, db:
        db.execute(
            "UPDATE outbox SET error = 'Read-only file system.' "
            "WHERE id = (SELECT min(id) FROM outbox WHERE done_at IS NULL)"
        )
    trace = vault.rows("plan.created")[0]["trace_id"]
    with pytest.raises(UserError, match=r"say-hello failed: .*nowhere"):
        watch.follow(vault.site, trace, as_json=False)


# --- what a command prints


def test_without_a_daemon_a_decision_is_saved(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    done = vault.click("approve", "say-hello", "--yes", "--json")
    assert json.loads(done.stdout)["state"] == "pending"
    assert "Approved. The mission starts when the daemon runs: placet run" in done.stderr
    (waits,) = status(vault.site).intents
    assert (waits.what, waits.by, waits.via) == ("approve", ME, "cli")
    assert "`placet approve` waits" in vault.click("status").stdout
    assert "`placet approve` waits for the daemon." in vault.click("why", "say-hello").stdout
    assert not vault.click("plans", "--json").stdout.strip("[]\n ")


def test_unanswered_command_is_reported_as_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = planned(tmp_path)
    monkeypatch.setattr(decisions, "ANSWER_S", 0.1)
    with started(vault):  # it does not tick
        done = vault.click("approve", "say-hello", "--yes", "--json")
    assert json.loads(done.stdout)["state"] == "pending"
    assert "Saved. The daemon has not answered yet." in done.stderr


def test_a_refusal_by_the_daemon_is_printed(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    with running(vault):
        left_behind = intent(vault, digest="0" * 64)
        intents.leave(folder(vault), left_behind)
        with vault.site.reader("say-hello"):
            answered = decisions._answer_to(vault.site, left_behind)
        assert answered is not None
        assert "was changed since you read it" in answered
        done = vault.click("approve", "say-hello", "--yes", "--json")
        assert json.loads(done.stdout) == {"path": "System/Active/say-hello.md", "state": "done"}
        vault.await_action("execution.completed")


def test_polling_daemon_answers_a_command(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    config = (vault.root / "System/placet.toml").read_text()
    vault.configure(f'{config}\n[daemon]\nwatch = "polling"\nscan_interval_s = 60\n')
    with running(vault):
        time.sleep(1)
        done = vault.click("approve", "say-hello", "--yes", "--json")
        assert json.loads(done.stdout)["state"] == "done"


@pytest.mark.parametrize("stdin", [None, "", "y\n"])
def test_piped_approve_needs_yes(tmp_path: Path, stdin: str | None) -> None:
    vault = planned(tmp_path)
    done = vault.click("approve", "say-hello", stdin=stdin, check=False)
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert not left(vault)


# --- who


def test_intent_actor_is_file_owner(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    intents.leave(folder(vault), intent(vault, who="The boss"))
    vault.here()
    assert by(vault, "plan.approved") == (ME, "cli")


def test_the_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    folder(vault).chmod(0o755)
    vault.click("approve", "say-hello", "--yes")
    assert folder(vault).stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in left(vault))


# --- what is not an intent


def _symlink(place: Path, good: bytes) -> None:
    place.with_suffix(".elsewhere").write_bytes(good)
    place.symlink_to(place.with_suffix(".elsewhere"))


BAD: dict[str, Callable[[Path, bytes], object]] = {
    "half": lambda place, good: place.write_bytes(good[: len(good) // 2]),
    "empty": lambda place, _: place.write_bytes(b""),
    "no object": lambda place, _: place.write_bytes(b"[]"),
    "an odd id": lambda place, good: place.write_bytes(good.replace(b'"id":"', b'"id":"x')),
    "a link": _symlink,
    "a pipe": lambda place, _: os.mkfifo(place),
    "a folder": lambda place, _: place.mkdir(),
    "an odd name": lambda place, good: place.with_name("x\n.json").write_bytes(good),
    "deep": lambda place, _: place.write_bytes(b"[" * 100_000),
    "large": lambda place, good: place.write_bytes(good + b" " * intents.MAX_BYTES),
    "reason": lambda place, good: place.write_bytes(good.replace(b'"approve"', b'"reject"')),
}


@pytest.mark.parametrize("how", BAD)
def test_invalid_intent_changes_nothing(tmp_path: Path, how: str) -> None:
    vault = planned(tmp_path)
    good = intent(vault)
    folder(vault).mkdir(exist_ok=True)
    BAD[how](folder(vault) / f"{1:020d}.json", INTENT_JSON.dump_json(good))
    rows = len(vault.rows())
    before = vault.plan().read_bytes()
    said = vault.here()
    told = [line for line in said if "no command of yours" in line]
    assert len(told) == 1, said
    assert "Ignored" in told[0]
    assert vault.plan().read_bytes() == before
    assert [r["action_type"] for r in vault.rows()[rows:]] == ["daemon.started", "daemon.stopped"]
    assert [path for path in left(vault) if not path.is_dir()] == []


def test_file_of_another_user_is_not_intent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = planned(tmp_path)
    made = intent(vault)
    intents.leave(folder(vault), made)
    (path,) = folder(vault).iterdir()
    assert intents.read(path) is not None
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert intents.read(path) is None


@pytest.mark.parametrize(
    "other", [{"trace_id": "0" * 8}, {"digest": "0" * 64}, {"state": "running"}, {"generation": 9}]
)
def test_an_intent_for_something_else_is_dropped(tmp_path: Path, other: dict[str, Any]) -> None:
    vault = planned(tmp_path)
    before = vault.plan().read_bytes()
    intents.leave(folder(vault), intent(vault, **other))
    assert sum("was not performed" in line for line in vault.here()) == 1
    assert vault.plan().read_bytes() == before
    assert not vault.rows("plan.approved")
    assert not left(vault)


def test_refused_command_leaves_plan_unchanged(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    before = vault.plan().read_text()
    vault.plan().write_text(before.replace("\nstatus: review\n", "\nstatus: error\n"))
    intents.leave(folder(vault), intent(vault, generation=9))
    assert sum("was not performed" in line for line in vault.here()) == 1
    assert vault.plan().read_text() == before


def test_ten_thousand_intent_files_are_read_in_batches(tmp_path: Path) -> None:
    said: list[str] = []
    mailbox = Mailbox(tmp_path, said.append)
    for number in range(10_000):
        (tmp_path / f"{number:020d}.json").write_bytes(b"{")
    left, most = 10_000, 0
    while left:
        mailbox.look(lambda _: ())
        before, left = left, len(list(tmp_path.iterdir()))
        most = max(most, before - left)
    assert most == intents.AT_ONCE
    assert len(said) == 10_000 / intents.AT_ONCE


def test_comment_intent_is_added_to_saved_note(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    vault.click("revise", "say-hello", "--comment", "Shorter, please.")
    vault.here()
    archived = vault.root / "Inbox/Archive"
    texts = [path.read_text() for path in (*archived.glob("*"), vault.plan())]
    assert any("Shorter, please." in text for text in texts)
    assert read_note(vault.plan().read_bytes()).meta["revision"] == 2


# --- in which order, and of which kind


TWO = {
    **PLAN,
    "steps": [
        {"title": f"Write {n}", "description": "A file.", "tools": ["write_file"]} for n in (1, 2)
    ],
    "scope": {"write": ["a.txt", "b.txt"]},
}


def two_steps(tmp_path: Path) -> TestVault:
    """Return a vault with a plan of two steps that awaits review."""
    vault = make_vault(tmp_path)
    vault.plays(TWO)
    vault.drop("Say hello\n")
    vault.here()
    return vault


def leave_some(vault: TestVault, *wanted: tuple[str, tuple[str, ...]]) -> list[Intent]:
    """Leave intents about the plan as it is now, in this order, and return them."""
    made = [intent(vault, id=intents.new_id(), what=w, texts=texts) for w, texts in wanted]
    for one in made:
        intents.leave(folder(vault), one)
    return made


def answers(vault: TestVault, *made: Intent) -> list[str | None]:
    with open_reader(vault.site.state.journal) as reader:
        found = reader.answers([one.id for one in made])
    return [found.get(one.id) for one in made]


@pytest.mark.parametrize("edit", [("tick", ("2",)), ("comment", ("Never write b.txt",))])
def test_approval_of_text_before_edit_is_refused(
    tmp_path: Path, edit: tuple[str, tuple[str, ...]]
) -> None:
    vault = two_steps(tmp_path)
    edited, approved = leave_some(vault, edit, ("approve", ()))
    vault.here()
    done, refused = answers(vault, edited, approved)
    assert done == ""
    assert refused is not None
    assert "was changed since you read it" in refused
    assert by(vault, "plan.edited") == (ME, "cli")
    assert not vault.rows("plan.approved")
    assert not left(vault)


def test_edits_of_one_text_are_all_performed(tmp_path: Path) -> None:
    """Two clicks on the box of one step mean what one click means."""
    vault = two_steps(tmp_path)
    asked = [("tick", ("1",)), ("comment", ("Be brief.",)), ("tick", ("2",)), ("tick", ("1",))]
    made = leave_some(vault, *asked)
    vault.here()
    assert answers(vault, *made) == [""] * 4
    text = vault.plan().read_text()
    assert text.count("- [ ] Do this step") == 2
    assert "Be brief." in text


def test_decision_replaces_decision_and_no_edit(tmp_path: Path) -> None:
    vault = two_steps(tmp_path)
    approved, ticked, rejected = leave_some(
        vault, ("approve", ()), ("tick", ("2",)), ("reject", ("no",))
    )
    said = vault.here()
    assert any("later command replaced" in line for line in said)
    first, second, third = answers(vault, approved, ticked, rejected)
    assert first == "A later command replaced this one."
    assert second == ""
    assert third is not None
    assert "was changed since you read it" in third


def test_tick_is_applied_to_text_saved_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = two_steps(tmp_path)
    (made,) = leave_some(vault, ("tick", ("2",)))
    edit, saved = outbox._edit, "It may be slow."

    def late(*given: Any) -> tuple[bytes, str]:
        vault.plan().write_text(vault.plan().read_text().replace("None known.", saved))
        return edit(*given)

    monkeypatch.setattr(outbox, "_edit", late)
    vault.here()
    text = vault.plan().read_text()
    assert text.count("- [ ] Do this step") == 1
    assert saved in text
    assert answers(vault, made) == [""]
    assert last(vault, "plan.edited")["digest"] == plan_digest(text.encode())


def test_tick_of_a_renumbered_step_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = two_steps(tmp_path)
    (made,) = leave_some(vault, ("tick", ("2",)))
    edit = outbox._edit

    def late(*given: Any) -> tuple[bytes, str]:
        text = vault.plan().read_text()
        vault.plan().write_text(text.replace("### 2. Write 2", "### 2. Write another"))
        return edit(*given)

    monkeypatch.setattr(outbox, "_edit", late)
    vault.here()
    (why,) = answers(vault, made)
    assert why is not None
    assert "was changed since you read it" in why
    assert "- [ ] Do this step" not in vault.plan().read_text()
    assert not vault.rows("plan.edited")


def test_later_command_wins_after_clock_jump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = planned(tmp_path)
    vault.click("approve", "say-hello", "--yes")
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 5 * 10**9)
    vault.click("reject", "say-hello", "--reason", "no, wait")
    vault.here()
    assert not vault.rows("plan.approved")
    assert last(vault, "plan.rejected")["reason"] == "no, wait"


def test_intents_left_at_once_have_different_numbers(tmp_path: Path) -> None:
    made = [Intent(intents.new_id(), "approve", "t", "p", "d") for _ in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: intents.leave(tmp_path, one), made))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{number:020d}.json" for number in range(1, 21)
    ]
    assert {one.id for one in intents.waiting_in(tmp_path)} == {one.id for one in made}


def test_unreadable_folder_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    one = Intent(intents.new_id(), "approve", "t", "p", "d")
    intents.leave(tmp_path, one)
    mailbox = Mailbox(tmp_path, said.append)
    mailbox.look(lambda _: ())

    def fails(_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", fails)
        for _ in range(3):
            assert not mailbox.look(lambda _: ()).replaced
        with pytest.raises(UserError, match="cannot be read"):
            intents.waiting_in(tmp_path)
    assert not mailbox.look(lambda _: ()).replaced
    assert [*mailbox.waiting] == ["t"]
    assert len(said) == 1
    assert "Too many open files" in said[0]


@pytest.mark.parametrize(
    ("now", "later"), [(b'"approve"', b'"archive"'), (b'"cli"', b'"phone"')], ids=["kind", "value"]
)
def test_intent_of_a_newer_command_is_answered(tmp_path: Path, now: bytes, later: bytes) -> None:
    vault = planned(tmp_path)
    one = intent(vault)
    intents.leave(folder(vault), one)
    (path,) = folder(vault).iterdir()
    path.write_bytes(path.read_bytes().replace(now, later))
    said = vault.here()
    assert answers(vault, one) == ["Restart the daemon: it is older than this command."]
    assert any("older than this command" in line for line in said)
    assert not left(vault)
