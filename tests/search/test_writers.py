"""Try writers that pause against every kind of text that placet acts on, with the real rules.

A simulated clock passes while real programs hold real files open.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from looping import Fake, Running, Time, bare_vault, looping, says, turns_taken
from placet.case.settle import Writers
from placet.chat.messages import Ask, Purpose, Reply
from placet.disk.writers import writers_of
from vaultkit import PLAN, TestVault

FIRST, SECOND = "The first half of it, alpha.", "The second half, beta."
STEP_S = 0.25
REST_S = 12.0

Steps = Iterator[float]
Writer = Callable[[Path, str, float], Steps]
"""Writes a text to a path; yields how long it pauses."""


def halves(text: str) -> tuple[str, str]:
    """Cut a text before its second half."""
    at = text.index(SECOND)
    return text[:at], text[at:]


def plain(path: Path, text: str, pause_s: float) -> Steps:
    path.write_text(text)
    yield 0.0


def two_steps(path: Path, text: str, pause_s: float) -> Steps:
    with path.open("w") as file:
        for part in halves(text):
            file.write(part)
            file.flush()
            yield pause_s


def two_opens(path: Path, text: str, pause_s: float) -> Steps:
    first, second = halves(text)
    path.write_text(first)
    yield min(pause_s, 1.5)  # a closed file counts after WRITTEN_S
    with path.open("a") as file:
        file.write(second)
    yield 0.0


def truncate_and_write(path: Path, text: str, pause_s: float) -> Steps:
    with path.open("w") as file:
        yield pause_s
        file.write(text)
        file.flush()
        yield pause_s


def temp_and_rename(path: Path, text: str, pause_s: float) -> Steps:
    beside = path.with_name(f".{path.name}.tmp")
    with beside.open("w") as file:
        for part in halves(text):
            file.write(part)
            file.flush()
            yield min(pause_s, 2.0)  # nothing else in the vault tells of this file
    beside.replace(path)


def delete_and_create(path: Path, text: str, pause_s: float) -> Steps:
    path.unlink(missing_ok=True)
    yield pause_s
    yield from two_steps(path, text, pause_s)


def placeholder(path: Path, text: str, pause_s: float) -> Steps:
    evicted = path.with_name(f"{path.name}.nextcloud")
    evicted.touch()
    path.unlink(missing_ok=True)
    yield 4 * pause_s
    path.write_text(text)
    evicted.unlink()
    yield 0.0


WRITERS: tuple[Writer, ...] = (
    plain,
    two_steps,
    two_opens,
    truncate_and_write,
    temp_and_rename,
    delete_and_create,
    placeholder,
)


def answer(ask: Ask) -> Reply:
    """Plan PLAN, and finish its mission."""
    if ask.purpose is not Purpose.EXECUTE:
        return says(("submit_plan", PLAN))
    return says(("complete_step", {"step": 1, "summary": "s"}), ("finish", {"summary": "Done."}))


def asks_first(ask: Ask) -> Reply:
    """As `answer`, but the mission asks a question first."""
    if ask.purpose is Purpose.EXECUTE and turns_taken(ask) == 0:
        return says(("ask_person", {"question": "Which?", "options": ["MIT", "GPL"]}))
    return answer(ask)


@dataclass
class Desk:
    """A vault with a loop whose time passes in small steps."""

    vault: TestVault
    run: Running
    model: Fake

    def passes(self, seconds: float) -> None:
        """Let time pass while the daemon looks."""
        until_s = self.run.loop.ports.clock.monotonic() + seconds
        while True:
            self.run.loop.tick()
            for job in list(self.run.loop.threads.jobs.values()):
                if job.thread is not None:
                    job.thread.join(10)
            if self.run.loop.ports.clock.monotonic() >= until_s:
                return
            self.run.loop.ports.clock.sleep(STEP_S)

    def writes(self, writer: Writer, path: Path, text: str, pause_s: float) -> None:
        """Let a program write a text, and wait until everything has come to rest."""
        for pause in writer(path, text, pause_s):
            self.passes(pause)
        self.passes(REST_S)

    def human(self) -> list[str]:
        return [row["action_type"] for row in self.vault.rows() if row["actor"] == "human"]

    def read_by_model(self) -> str:
        return "".join(str(ask.turns) + str(ask.system) for ask in self.model.asks)

    def everything(self) -> str:
        kept = [p.read_text() for p in self.vault.root.rglob("*.[mt]*[dl]")]
        return "".join(kept)


@contextmanager
def desk(folder: Path, *, knows: bool) -> Iterator[Desk]:
    """A daemon with the real times; `knows` says whether the kernel is asked."""
    vault, model = bare_vault(folder), Fake(answer)
    with looping(vault, time=Time(), model=lambda: model, ask_kernel=knows) as run:
        yield Desk(vault, run, model)


def request(d: Desk, writer: Writer, pause_s: float) -> None:
    path = d.vault.root / "Inbox/Requests/Say hello.md"
    d.writes(writer, path, f"{FIRST}\n\n{SECOND}\n", pause_s)
    rows = d.human()
    assert set(rows) <= {"request.detected", "request.edited"}, rows
    assert rows.count("request.detected") == 1, rows
    assert len(d.model.asks) == 1, "it is planned once"


def known_request(d: Desk, writer: Writer, pause_s: float) -> None:
    path = d.vault.root / "Inbox/Requests/Say hello.md"
    path.write_text("Say hello\n")
    d.passes(REST_S)
    d.model.asks.clear()
    d.writes(writer, path, f"{path.read_text()}\n{FIRST}\n\n{SECOND}\n", pause_s)
    rows = d.human()
    assert set(rows) <= {"request.detected", "request.edited"}, rows
    assert len(d.model.asks) == 1, "it is planned again once"


def plan(d: Desk, writer: Writer, pause_s: float) -> None:
    """A sync tool brings a plan that was approved elsewhere: new name first, then the old goes."""
    d.vault.drop("Say hello\n")
    d.passes(REST_S)
    remarks = f"\n## Review Comments\n\n- @placet {FIRST}\n- @placet {SECOND}\n"
    text = d.vault.plan().read_text() + remarks
    d.vault.active().parent.mkdir(exist_ok=True)
    steps = writer(d.vault.active(), text, pause_s)
    first = next(steps)
    d.vault.plan().unlink()
    d.passes(first)
    for pause in steps:
        d.passes(pause)
    d.passes(REST_S)
    rows = d.human()
    assert set(rows) <= {"request.detected", "plan.approved"}, rows
    approved = [row["metadata"] for row in d.vault.rows("plan.approved")]
    assert [one["comment_count"] for one in approved] == [2]


def approved_plan(d: Desk, writer: Writer, pause_s: float) -> None:
    """An approved plan that waits for its portal's turn is edited."""
    d.vault.drop("Say hello\n")
    d.passes(REST_S)
    d.vault.configure(
        (d.vault.root / "System/placet.toml").read_text() + "\n[daemon]\npaused = true\n"
    )
    d.passes(REST_S)
    d.vault.approve()
    d.passes(REST_S)
    text = d.vault.active().read_text() + f"\n## Remarks\n\n{FIRST}\n\n{SECOND}\n"
    d.writes(writer, d.vault.active(), text, pause_s)
    assert "plan.withdrawn" not in d.human()
    edits = d.vault.rows("plan.changed_after_approval")
    assert len(edits) == 1, "half an edit is none"


def running_plan(d: Desk, writer: Writer, pause_s: float) -> None:
    """The note of a running mission is written anew: the mission goes on."""
    d.model.answer = asks_first
    d.vault.drop("Say hello\n")
    d.passes(REST_S)
    d.vault.approve()
    d.passes(REST_S)
    assert d.vault.rows("question.asked")
    text = d.vault.active().read_text() + f"\n## Remarks\n\n{FIRST}\n\n{SECOND}\n"
    d.writes(writer, d.vault.active(), text, pause_s)
    assert "plan.taken_back" not in d.human()
    assert not d.vault.rows("execution.failed")


def answered(d: Desk, writer: Writer, pause_s: float) -> None:
    d.model.answer = asks_first
    d.vault.drop("Say hello\n")
    d.passes(REST_S)
    d.vault.approve()
    d.passes(REST_S)
    (path,) = (d.vault.root / "Inbox/Questions").glob("*.md")
    ticked = path.read_text().replace("- [ ] MIT", "- [x] MIT")
    words = f"{FIRST}\n\n{SECOND}\n"
    d.writes(writer, path, f"{ticked.rstrip()}\n\n{words}", pause_s)
    assert "plan.taken_back" not in d.human()
    (row,) = d.vault.rows("question.answered")
    assert not row["metadata"]["taken_away"]
    assert SECOND in d.read_by_model(), "the whole answer counts"


def settings(d: Desk, writer: Writer, pause_s: float) -> None:
    path = d.vault.root / "System/placet.toml"
    text = f"{path.read_text()}\n# {FIRST}\n\n# {SECOND}\n[daemon]\npaused = true\n"
    steps = writer(path, text, pause_s)
    for number, pause in enumerate(steps):
        if not number and writer is not temp_and_rename:  # which changes nothing before its end
            d.vault.drop("Say hello\n")
        d.passes(pause)
    if writer is temp_and_rename:
        d.vault.drop("Say hello\n")
    d.passes(REST_S)
    assert not d.model.asks, "half the settings do not say that it is paused"


def agent(d: Desk, writer: Writer, pause_s: float) -> None:
    path = d.vault.root / "System/Agents/default.md"
    path.write_text("Be brief.\n")
    d.passes(REST_S)
    steps = writer(path, f"{FIRST}\n\n{SECOND}\n", pause_s)
    first = next(steps)
    if path.exists():  # else nobody knows that there was one
        d.vault.drop("Say hello\n")
    d.passes(first)
    for pause in steps:
        d.passes(pause)
    d.vault.drop("Say hello\n")
    d.passes(REST_S)
    asked = [str(ask.system) for ask in d.model.asks]
    assert asked
    assert not [one for one in asked if FIRST in one and SECOND not in one], "half a note is read"


TARGETS = (request, known_request, plan, approved_plan, running_plan, answered, settings, agent)
CASES = [
    pytest.param(
        target,
        writer,
        pause_s,
        knows,
        id=f"{target.__name__}-{writer.__name__}-{pause_s}-{'kernel' if knows else 'times'}",
        marks=[] if number % 7 == 0 else [pytest.mark.sweep],
    )
    for number, (target, writer, pause_s, knows) in enumerate(
        itertools.product(TARGETS, WRITERS, (0.6, 1.5, 3.0), (True, False))
    )
]


@pytest.mark.parametrize(("target", "writer", "pause_s", "knows"), CASES)
def test_slow_writer_loses_nothing(
    tmp_path: Path,
    target: Callable[[Desk, Writer, float], None],
    writer: Writer,
    pause_s: float,
    knows: bool,
) -> None:
    if knows:
        (tmp_path / "probe").touch()
        if writers_of(tmp_path / "probe") is Writers.UNKNOWN:
            pytest.skip("this file system does not know who writes")
    with desk(tmp_path, knows=knows) as here:
        target(here, writer, pause_s)
        assert SECOND in here.everything(), "the person's words are in no file"


def test_program_that_keeps_file_open_is_named(tmp_path: Path) -> None:
    with desk(tmp_path, knows=True) as here:
        path = here.vault.root / "Inbox/Requests/Say hello.md"
        with path.open("w") as file:
            file.write("Say hello\n")
            file.flush()
            here.passes(30)
            assert path.read_text() == "Say hello\n", "nothing is stamped"
            said = path.with_name("Say hello.placet.md").read_text()
            assert "program has this file open" in said
        here.passes(REST_S)
        assert "status:" in path.read_text()
        assert not path.with_name("Say hello.placet.md").exists()


def test_unstamped_request_survives_rename_and_restart(tmp_path: Path) -> None:
    """Until it is stamped, a request is known by its file, then by its text."""
    vault, model, time = bare_vault(tmp_path, "[vault]\nquiet_s = 30\n"), Fake(answer), Time()
    path = vault.root / "Inbox/Requests/Say hello.md"

    def starts() -> Running:
        run.loop.intake.no_wait = False
        return run

    with looping(vault, time=time, model=lambda: model) as run:
        here = Desk(vault, starts(), model)
        path.write_text("Say hello\n")
        here.passes(3)
        path.rename(path.with_name("Say goodbye.md"))
        here.passes(6)
    with looping(vault, time=time, model=lambda: model) as run:
        here = Desk(vault, starts(), model)
        here.passes(6)
        other = path.with_name("Say goodbye.md")
        text = other.read_text()
        other.unlink()
        os.sync()
        path.write_text(text)  # a sync tool renames it back by writing it anew
        here.passes(60)
    assert here.human() == ["request.detected"]
    assert len(model.asks) == 1
