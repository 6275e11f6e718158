"""Checkpoints: the worktree after each round, as a commit on a hidden ref."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from placet.agent.record import BRANCH, CALL, CHECKPOINT, LITERAL, PLACE, REPLY, Key, Record
from placet.agent.tool_calls import changes_files, effect_of, may_be_half_done, may_change
from placet.agent.work import Underway, name_of, refs, whole
from placet.case.events import Asked
from placet.chat.guards import Effect
from placet.chat.messages import ToolUse
from placet.errors import Stop, ToolError
from placet.git.checkpoint import checkpoint, delete_ref, restore
from placet.git.commit import commit_message
from placet.git.repository import resolve
from placet.git.run import GitError, RepositoryChanged
from placet.tools.base import Outcome, Toolbox
from placet.tools.commit_secrets import refuse_secrets
from placet.tools.registry import BY_NAME


def keep(work: Underway, entry: Key[str]) -> None:
    """Keep the worktree as a commit on the mission's hidden ref, and its name in the record.

    Nothing is kept, and the record says so, where git would keep a secret with it.
    """
    record, case = work.record, work.mission.case
    if record.has(entry) or record.halt is not None:
        return
    ref = refs(case, name_of(case, record))[0]
    message = commit_message(
        "Work under way",
        f"The worktree at {entry.key}.",
        case.trace_id,
        case.approval.digest,
        case.approval.by,
    )
    try:
        kept = checkpoint(
            work.tree,
            ref,
            message,
            work.ports.clock.wall(),
            lambda changed: refuse_secrets(
                work.repo, work.tree, whole(changed), work.place.secrets
            ),
            paths=sorted(work.written or ())
            if work.written is not None or not work.touched
            else None,
        )
    except ToolError:
        kept = ""
    try:
        record.settle(entry, kept)
    except Stop:
        # another daemon has the mission now, and may have ended it: nobody else would delete this
        if kept:
            with suppress(GitError):
                delete_ref(work.repo, ref, kept)
        raise


def keep_while_asked(work: Underway, asked: Asked, uses: Sequence[ToolUse]) -> None:
    """Keep the worktree while a person is asked by one of a turn's calls: that may take days."""
    if may_have_changed(uses):
        keep(work, CHECKPOINT.at(asked.call))


def keep_call(work: Underway, entry: Key[Outcome]) -> None:
    """Keep the worktree after a call, together with its outcome, which is held back.

    Only where the record is carried to other machines: they have no other trace of the worktree.
    """
    keep(work, CHECKPOINT.at("after", entry.key))
    work.record.flush()


def last_kept(work: Underway) -> str | None:
    """Return the last checkpoint, None without one; of a record that is carried it is up to it."""
    return resolve(work.repo, refs(work.mission.case, name_of(work.mission.case, work.record))[0])


def put_back(work: Underway, kept: str | None) -> bool:
    """Make the worktree what a checkpoint kept; return whether it could be done."""
    if not kept or resolve(work.repo, kept) is None:
        return False
    restore(work.tree, kept)
    work.anything_changed()
    return True


def bring_back(work: Underway, iteration: int, uses: Sequence[ToolUse]) -> bool:
    """Make the worktree what it was after `uses`, the first calls of a turn.

    Return whether it could be done.
    """
    record = work.record
    if record.carrier is not None:
        return put_back(work, last_kept(work) or resolve(work.repo, work.tree.ref))
    state, done = known_state(record, work.tree.base, iteration, uses)
    if not put_back(work, state):
        return False
    box = Toolbox(BY_NAME, work.place)
    for i, use in enumerate(uses[done:], done):
        outcome = record.get(CALL.at(iteration, i))
        if (
            changes_files(use.name)
            and outcome is not None
            and outcome.ok
            and not box.dispatch(use.name, use.input).ok
        ):
            return False
    return True


def rebuild(work: Underway) -> None:
    """Fill a worktree that was lost from the last checkpoint and the record.

    Raises RepositoryChanged where what the record says was done cannot be done again.
    """
    record = work.record
    if record.carrier is not None:
        if (kept := last_kept(work)) is not None:
            restore(work.tree, kept)
        work.anything_changed()
        return
    iteration, uses = last_round(record)
    if record.has(CHECKPOINT.at(iteration)):
        iteration, uses = iteration + 1, ()
    done = [use for i, use in enumerate(uses) if record.has(CALL.at(iteration, i))]
    literals = not iteration and any(key.startswith(f"{LITERAL.key}:") for key in record.outcomes)
    if literals or not bring_back(work, iteration, done):
        raise RepositoryChanged(
            f"{work.tree.path} is gone, and what was done in it cannot be done again"
        )


def may_have_changed(uses: Sequence[ToolUse]) -> bool:
    """Return whether a turn may have changed the worktree."""
    return any(map(may_change, uses))


def last_round(record: Record) -> tuple[int, tuple[ToolUse, ...]]:
    """Return the number of the last recorded model turn, 0 before the first, and its calls."""
    replies = record.replies()
    return len(replies), replies[-1].reply.turn.tool_uses if replies else ()


def known_state(
    record: Record, base: str, iteration: int, uses: Sequence[ToolUse]
) -> tuple[str, int]:
    """Return the commit from which the worktree after `uses`, a turn's first calls, can be made.

    That is the last checkpoint before the turn, or `base` where nothing had been done; or the one
    that was kept while a call of the turn asked a person. Second is how many of the calls it has.
    Empty where one of the others, or something since that checkpoint, cannot be done again from the
    record.
    """
    asked = ((record.get(CHECKPOINT.at(CALL.at(iteration, i).key)), i) for i in range(len(uses)))
    kept, done = next((found for found in reversed([*asked]) if found[0]), ("", 0))
    for i, use in enumerate(uses[done:], done):
        outcome = record.get(CALL.at(iteration, i))
        if effect_of(use.name) is Effect.EXECUTE or (
            outcome is not None and "carried_out" in outcome.content
        ):
            return "", 0
    if kept:
        return kept, done
    for earlier in range(iteration - 1, -1, -1):
        kept = record.get(CHECKPOINT.at(earlier))
        if kept is not None:
            return kept, 0
        known = record.get(REPLY.at(earlier))
        if known is not None and may_have_changed(known.reply.turn.tool_uses):
            return "", 0
    return base, 0


def resumption(record: Record) -> dict[str, Any]:
    """Return where a mission goes on, for the journal: `iteration`, and `from`.

    `from` is "start", "record" or "checkpoint …"; it is a checkpoint where a call was cut off that
    is repeated from a known state.
    """
    iteration, uses = last_round(record)
    place = record.get(PLACE)
    if place is None or (not iteration and not record.has(BRANCH)):
        return {"iteration": 0, "from": "start"}
    for key in record.intents:
        if (
            key.startswith(f"{LITERAL.key}:")
            and key not in record.outcomes
            and (kept := record.get(CHECKPOINT.at(key)))
        ):
            return {"iteration": iteration, "from": f"checkpoint {kept[:12]}"}
    for i, use in enumerate(uses):
        if record.cut_off(CALL.at(iteration, i)) and may_be_half_done(use.name):
            state, _ = known_state(record, place.base, iteration, uses[:i])
            return {
                "iteration": iteration,
                "from": f"checkpoint {state[:12]}" if state else "record",
            }
    return {"iteration": iteration, "from": "record"}
