"""A person's decisions as changes of notes, with word of who made them.

Each takes `seen`, the note's text as the person read it, or None for whatever stands there: it
raises NotAsRead where the note has another text, and changes nothing then. Each returns the note's
path afterwards, and raises UserError as `change_note` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import PurePosixPath
from typing import Literal

from placet.cli.gestures import change_note
from placet.cli.proposal import approvable
from placet.cli.site import Site
from placet.core.errors import UserError
from placet.core.life.case import Case
from placet.core.life.notice import lost_keys
from placet.core.life.plan_note import plan_digest
from placet.core.life.question_note import answer_in, shown_digest, with_answer
from placet.core.life.sight import look_at
from placet.core.text.comments import open_comments, with_comment
from placet.core.text.names import Folder, active_name, plan_name, rejected_name
from placet.core.text.note import QUESTION_STAMPS, REQUEST_STAMPS, digest, read_note, stamp
from placet.core.wording import local
from placet.host.acts import Word, leave_word
from placet.host.clock import Clock

Change = Callable[[bytes], bytes]


class NotAsRead(UserError):  # noqa: N818 - named for what happened, as Gone is
    """A note has another text than the person read."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was changed since you read it.", "Read it again.")


def approve(
    site: Site, case: Case, remarks: Sequence[str] = (), *, bound: str = "", seen: bytes | None
) -> str:
    """Approve a plan whose digest begins with `bound`; remarks are written into it."""

    def approved(raw: bytes) -> bytes:
        note = approvable(case, raw)
        if not note.digest.startswith(bound):
            raise _other_digest(case, case.plan.path, note.digest, bound)
        text = with_comments(site, raw, remarks)
        if remarks:  # they are part of what is approved, and may make too much of it
            approvable(case, text)
        return text

    target = f"{Folder.ACTIVE}/{active_name(case.request_id)}"
    word = left_word(site, case, "approve", plan_digest)
    return change_note(site, case, _of(case.plan.path, seen, approved), target, word=word)


def reject(site: Site, case: Case, reason: str, *, seen: bytes | None) -> str:
    """Reject a plan, with the reason."""
    return change_note(
        site,
        case,
        _plan(case, seen, lambda raw: stamp(raw, {"rejection_reason": reason})),
        f"{Folder.REJECTED}/{rejected_name(case.request_id)}",
        word=left_word(site, case, "reject", plan_digest),
    )


def revise(site: Site, case: Case, comments: Sequence[str], *, seen: bytes | None) -> str:
    """Ask for changes in a plan, with these comments and those that stand in it."""
    return change_note(
        site,
        case,
        _plan(case, seen, lambda raw: commented(site, raw, comments, "needs_revision")),
        case.plan.path,
        word=left_word(site, case, "revise", plan_digest),
    )


def edit(site: Site, case: Case, change: Change, *, seen: bytes | None) -> str:
    """Change a plan's text, which decides nothing."""
    return change_note(site, case, _of(case.plan.path, seen, change), case.plan.path)


def answer(site: Site, case: Case, said: str, *, seen: bytes | None = None) -> str:
    """Answer a case's open question: an option by its number or text, or own words."""
    assert case.asking is not None, "only what is asked is answered"
    path, options = case.asking.path, case.asking.options

    def answered(raw: bytes) -> bytes:
        there = answer_in(look_at(path, raw, ""), options)
        if there.text or there.problem:
            raise UserError(
                f"{path}: {there.problem or 'There is an answer in it already.'}",
                f"Read it: placet show {case.request_id}",
            )
        text = with_answer(raw, said.strip(), options)
        if not answer_in(look_at(path, text, ""), options).text:
            raise UserError(
                "Nothing of this answer would be seen in the note.",
                f"Read the question: placet show {case.request_id}",
                exit_code=2,
            )
        return text

    word = left_word(site, case, "answer", lambda raw: digest(raw, QUESTION_STAMPS))
    return change_note(site, case, _of(path, seen, answered), path, of=path, word=word)


def widen(site: Site, case: Case, *, bound: str = "", seen: bytes | None = None) -> str:
    """Approve the wider scope that a mission asks for, by the property `decision`."""
    assert case.asking is not None, "only what is asked is approved"
    asking = case.asking

    def approved(raw: bytes) -> bytes:
        now = shown_digest(raw)
        if not now.startswith(bound):
            raise _other_digest(case, asking.path, now, bound)
        if now != asking.digest:
            raise UserError(
                f"{asking.path} was edited, so it approves nothing.",
                "Undo the edit, or reject it and say why: "
                f"placet reject {case.request_id} --reason R",
            )
        return stamp(raw, {"decision": "approve"})

    return _decided(site, case, "approve", approved, seen)


def refuse_wider(site: Site, case: Case, reason: str, *, seen: bytes | None = None) -> str:
    """Reject the wider scope that a mission asks for; the mission is told the reason."""
    keys = {"decision": "reject", "rejection_reason": reason}
    return _decided(site, case, "reject", lambda raw: stamp(raw, keys), seen)


def retry(site: Site, case: Case, source: str, comments: Sequence[str]) -> str:
    """Ask for a new plan of the request at `source`.

    The comments are written into the request, where the next planning reads them with it.
    """
    target = source
    if not target.startswith(f"{Folder.REQUESTS}/"):
        target = f"{Folder.REQUESTS}/{PurePosixPath(target).name}"
    return change_note(
        site,
        case,
        lambda raw: commented(site, raw, comments, "pending"),
        target,
        of=source,
        word=left_word(site, case, "retry", lambda raw: digest(raw, REQUEST_STAMPS)),
    )


def stop(site: Site, case: Case) -> str:
    """Take an approved plan back; its mission stops at the next safe point, with a report."""
    target = f"{Folder.PLANS}/{plan_name(case.request_id)}"
    word = left_word(site, case, "stop", plan_digest)
    return change_note(site, case, lambda raw: raw, target, word=word)


def _decided(
    site: Site, case: Case, what: Literal["approve", "reject"], change: Change, seen: bytes | None
) -> str:
    assert case.asking is not None, "only what is asked is decided on"
    path = case.asking.path
    word = left_word(site, case, what, plan_digest)
    return change_note(site, case, _of(path, seen, change), path, of=path, word=word)


def _plan(case: Case, seen: bytes | None, change: Change) -> Change:
    """Return a change of a case's plan; it raises UserError where none would know whose it is."""

    def changed(raw: bytes) -> bytes:
        if why := lost_keys(case, look_at(case.plan.path, raw, "")):
            raise UserError(f"{case.plan.path}: {why}", f"See it: placet why {case.request_id}")
        return change(raw)

    return _of(case.plan.path, seen, changed)


def _of(path: str, seen: bytes | None, change: Change) -> Change:
    """Return a change that is made only of the text that was read."""

    def changed(raw: bytes) -> bytes:
        if seen is not None and raw != seen:
            raise NotAsRead(path)
        return change(raw)

    return changed


def _other_digest(case: Case, path: str, digest: str, bound: str) -> UserError:
    return UserError(
        f"{path} is not what you read: its digest is {digest[:12]}, not {bound[:12]}.",
        f"Somebody changed it. Read it as it is now: placet show {case.request_id}",
    )


def commented(site: Site, raw: bytes, comments: Sequence[str], status: str) -> bytes:
    """Return a note with these comments, and a `status`."""
    return stamp(with_comments(site, raw, comments), {"status": status})


def with_comments(site: Site, raw: bytes, comments: Sequence[str]) -> bytes:
    """Return a note with these comments, signed; those that it has already are not repeated."""
    body = text = read_note(raw).body
    at = local(Clock().now())
    for comment in comments:
        added = with_comment(text, comment, site.who, at)
        before, now = (Counter(one.text for one in open_comments(t)) for t in (text, added))
        if not (now - before).keys() & before.keys():
            text = added
    return raw[: len(raw) - len(body.encode())] + text.encode()


def left_word(
    site: Site,
    case: Case,
    what: Literal["approve", "reject", "revise", "retry", "answer", "stop"],
    digest_of: Callable[[bytes], str],
) -> Callable[[bytes], AbstractContextManager[None]]:
    """Return a function that tells the daemon who decided `what` of the text that a note gets."""
    return lambda raw: leave_word(
        site.state.acts, case.trace_id, Word(what, digest_of(raw), site.who, site.via)
    )
