"""A person's decisions: each leaves an intent, which the daemon performs.

Each takes `seen`, the note's text as the person read it, or None for whatever is there now. All
raise NotAsRead where the note has another text, and UserError where the daemon would refuse it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from placet.case.callout import box_is_current, box_of
from placet.case.case import Case
from placet.case.intents import Intent, OutdatedError, What, change_of
from placet.case.notes import look_at
from placet.case.question_note import shown_digest
from placet.case.sorting import CaseNotes
from placet.cli.notes import note_text
from placet.cli.proposal import approvable
from placet.cli.site import Site
from placet.core.wording import local
from placet.errors import UserError
from placet.host import intents
from placet.host.clock import Clock
from placet.journal.reader import open_reader
from placet.note.paths import Folder
from placet.note.paths import show as visible
from placet.plan.comments import with_comments

ANSWER_S = 2.0
"""Seconds for which a command waits for the daemon's answer."""
_LOOK_EVERY_S = 0.02


class NotAsRead(UserError):  # noqa: N818 - named for what happened, as Gone is
    """A note has another text than the person read."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was changed since you read it.", "Read it again.")


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a decision: the path of its note, and whether the daemon performed it yet."""

    path: str
    is_pending: bool = False

    @property
    def state(self) -> str:
        """The state, as `--json` has it."""
        return "pending" if self.is_pending else "done"


def approve(
    site: Site, case: Case, remarks: Sequence[str] = (), *, bound: str = "", seen: bytes | None
) -> Done:
    """Approve a plan whose digest begins with `bound`; remarks are written into it."""
    raw = _read(site, case, case.plan.path, seen)
    note = approvable(case, raw)
    if not note.digest.startswith(bound):
        raise _other_digest(case, case.plan.path, note.digest, bound)
    if remarks:  # they are part of what is approved, and may make too much of it
        approvable(case, with_comments(raw, remarks, site.who, local(Clock().now())))
    return _leave(site, case, "approve", case.plan.path, raw, remarks)


def reject(site: Site, case: Case, reason: str, *, seen: bytes | None) -> Done:
    """Reject a plan, with the reason."""
    raw = _read(site, case, case.plan.path, seen)
    return _leave(site, case, "reject", case.plan.path, raw, [reason])


def revise(site: Site, case: Case, comments: Sequence[str], *, seen: bytes | None) -> Done:
    """Ask for changes in a plan, with these comments and those that are in it."""
    raw = _read(site, case, case.plan.path, seen)
    return _leave(site, case, "revise", case.plan.path, raw, comments)


def comment(site: Site, case: Case, said: str, *, seen: bytes | None) -> Done:
    """Write a comment into a plan, which decides nothing. Needs a daemon, to be read at once."""
    _must_run(site, "write this comment into the plan")
    raw = _read(site, case, case.plan.path, seen)
    return _leave(site, case, "comment", case.plan.path, raw, [said])


def tick(site: Site, case: Case, numbers: Sequence[str], *, seen: bytes | None) -> Done:
    """Tick or untick steps of a plan. Needs a daemon, to be read at once."""
    _must_run(site, "tick steps")
    raw = _read(site, case, case.plan.path, seen)
    return _leave(site, case, "tick", case.plan.path, raw, numbers)


def stop(site: Site, case: Case) -> Done:
    """Take an approved plan back; its mission stops at the next safe point, with a report."""
    raw = _read(site, case, case.plan.path, None)
    return _leave(site, case, "stop", case.plan.path, raw)


def answer(site: Site, case: Case, said: str, *, seen: bytes | None = None) -> Done:
    """Answer a case's open question: an option by its number or text, or own words."""
    assert case.asking is not None, "only what is asked is answered"
    raw = _read(site, case, case.asking.path, seen)
    return _leave(site, case, "answer", case.asking.path, raw, [said.strip()])


def widen(site: Site, case: Case, *, bound: str = "", seen: bytes | None = None) -> Done:
    """Approve the wider scope that a mission asks for."""
    assert case.asking is not None, "only what is asked is approved"
    path = case.asking.path
    raw = _read(site, case, path, seen)
    if not (now := shown_digest(raw)).startswith(bound):
        raise _other_digest(case, path, now, bound)
    return _leave(site, case, "approve", path, raw)


def refuse_wider(site: Site, case: Case, reason: str, *, seen: bytes | None = None) -> Done:
    """Reject the wider scope that a mission asks for; the mission is told the reason."""
    assert case.asking is not None, "only what is asked is rejected"
    raw = _read(site, case, case.asking.path, seen)
    return _leave(site, case, "reject", case.asking.path, raw, [reason])


def retry(site: Site, case: Case, source: str, comments: Sequence[str]) -> Done:
    """Ask for a new plan of the request at `source`, with these comments."""
    return _leave(site, case, "retry", source, _read(site, case, source, None), comments)


def claim(site: Site, case: Case, what: What, commit: str) -> None:
    """Say who merged, undid or dropped a mission's work, by a commit; that has been done."""
    with suppress(UserError):  # then nobody knows who it was
        intents.leave(site.state.intents, _intent(site, case, what, "", commit, ()))


def _must_run(site: Site, what: str) -> None:
    """Raise UserError without a daemon: the next decision is on what it writes."""
    if site.daemon is None:
        raise UserError(
            f"The daemon is not running, so it cannot {what}.",
            "Start it: placet run. Or change the note yourself.",
        )


def _read(site: Site, case: Case, path: str, seen: bytes | None) -> bytes:
    raw = note_text(site, case, path)
    if seen is not None and _digest(path, raw) != _digest(path, seen):
        raise NotAsRead(path)
    return raw


def _digest(path: str, raw: bytes) -> str:
    return look_at(path, raw, "").digest


def _intent(
    site: Site, case: Case, what: What, path: str, digest: str, said: Sequence[str]
) -> Intent:
    state, name = case.state.value, site.who if site.via == "board" else ""
    return Intent(
        intents.new_id(),
        what,
        case.trace_id,
        path,
        digest,
        state,
        case.generation,
        tuple(said),
        site.via,
        name,
        site.who,
    )


def _leave(
    site: Site, case: Case, what: What, path: str, raw: bytes, said: Sequence[str] = ()
) -> Done:
    """Leave an intent about a note with this text, and wait for the daemon's answer.

    Raises UserError where the daemon refuses it, now or by what the note says.
    """
    home = path
    if path.startswith(f"{Folder.ARCHIVE}/"):  # the daemon moves it there first
        home = f"{Folder.REQUESTS}/{PurePosixPath(path).name}"
    note = look_at(home, raw, "")
    intent = _intent(site, case, what, path, note.digest, said)
    its = CaseNotes(plans=[note])
    if what == "retry":
        its = CaseNotes(request=note)
    elif case.asking is not None and path == case.asking.path:
        its = CaseNotes(asked=[note])
    try:
        change_of(case, replace(intent, path=home), its, local(Clock().now()))
    except OutdatedError as error:
        raise _refused(case, str(error)) from error
    intents.leave(site.state.intents, intent)
    refused = _answer_to(site, intent) if site.daemon is not None else None
    if refused is None:
        return Done(path, is_pending=True)
    if refused:
        raise _refused(case, refused)
    if what in ("comment", "tick"):
        _await_box(site, case)
    now = site.case(case.trace_id)
    if what == "retry":
        return Done(now.request_path)
    return Done(now.plan.path if path == case.plan.path else path)


def _await_box(site: Site, case: Case) -> None:
    """Wait, ANSWER_S at most, until the daemon has written the box of a plan that was edited.

    Only a plan whose box says what its text allows can be approved.
    """
    until = time.monotonic() + ANSWER_S
    while time.monotonic() < until:
        if box_is_current(_read(site, case, case.plan.path, None), box_of(case)):
            break
        time.sleep(_LOOK_EVERY_S)


def _answer_to(site: Site, intent: Intent) -> str | None:
    """Return why the daemon refused an intent, empty if it performed it; None without an answer.

    What follows from it is written by then, as far as that takes no longer than ANSWER_S.
    """
    until = time.monotonic() + ANSWER_S
    refused: str | None = None
    while time.monotonic() < until:
        with open_reader(site.state.journal) as reader:
            refused = reader.answers([intent.id]).get(intent.id)
            writes = any(one.trace_id == intent.trace_id for one in reader.pending_commands())
        if refused or (refused is not None and not writes):
            break
        time.sleep(_LOOK_EVERY_S)
    return refused


def _refused(case: Case, why: str) -> UserError:
    return UserError(why, f"See how it is now: placet show {case.request_id}")


def _other_digest(case: Case, path: str, digest: str, bound: str) -> UserError:
    return UserError(
        f"{visible(path)} is not what you read: its digest is {digest[:12]}, not {bound[:12]}.",
        f"Somebody changed it. Read it as it is now: placet show {case.request_id}",
    )
