"""Save the worktree after each round, as a commit on a hidden ref, and restore it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from placet.agent.record import BRANCH, CALL, CHECKPOINT, LITERAL, PLACE, REPLY, Key, Record
from placet.agent.tool_calls import changes_files, effect_of, may_be_half_done, may_change
from placet.agent.work import RunningMission, name_of, refs
from placet.chat.guards import Effect
from placet.chat.messages import ToolUse
from placet.errors import Stop, ToolError
from placet.git.checkpoint import delete_ref, restore, save
from placet.git.commit_message import commit_message
from placet.git.index import Staged
from placet.git.repository import resolve
from placet.git.run import GitError, RepositoryChanged
from placet.tools.base import Outcome, Toolbox
from placet.tools.commit_secrets import refuse_secrets
from placet.tools.registry import BY_NAME


def keep(work: RunningMission, entry: Key[str], *, hold: bool = False) -> None:
    """Save the worktree as a commit on the mission's hidden ref, and record the commit.

    `hold` is as for `Record.settle`. Nothing is saved if git would store a secret with it, or if a
    file cannot be searched for secrets; the record then says so.
    """
    record, case = work.record, work.mission.case
    if record.has(entry) or record.halt is not None:
        return
    record.wait()  # a carrier may still read the reference
    ref = refs(case, name_of(case, record))[0]
    message = commit_message(
        "Unfinished work",
        f"The worktree at {entry.key}.",
        case.trace_id,
        case.approval.digest,
        case.approval.by,
    )
    try:
        kept = save(
            work.tree,
            ref,
            message,
            work.ports.clock.wall(),
            partial(_refuse_incomplete, work),
        )
    except ToolError:
        kept = ""
    try:
        record.settle(entry, kept, hold=hold)
    except Stop:
        # Another daemon has the mission now and may have ended it. Then no other code would delete
        # this ref.
        if kept:
            with suppress(GitError):
                delete_ref(work.repo, ref, kept)
        raise


def _refuse_incomplete(work: RunningMission, staged: Staged) -> Sequence[str]:
    """Raise ToolError for a secret, and for a file that the checkpoint would lack.

    A restore would delete that file. A record that is carried to other machines has no whole
    worktree to fall back on: its checkpoint lacks the files that are returned.
    """
    left = refuse_secrets(work.tree, staged, work.place.secrets)
    if left and work.record.carrier is None:
        raise ToolError("unchecked", "A file cannot be searched for secrets.")
    return left


def keep_turn(work: RunningMission, entry: Key[str], uses: Sequence[ToolUse]) -> None:
    """Save the worktree if a turn's calls may have changed it."""
    if may_have_changed(uses):
        keep(work, entry)


def keep_call(work: RunningMission, entry: Key[Outcome]) -> None:
    """Save the worktree after a call, in the transaction of its outcome.

    Only if the record is carried to other machines, which have no copy of the worktree.
    """
    keep(work, CHECKPOINT.at("after", entry.key), hold=True)
    work.record.carry()


def last_kept(work: RunningMission) -> str | None:
    """Return the last checkpoint, None without one."""
    return resolve(work.repo, refs(work.mission.case, name_of(work.mission.case, work.record))[0])


def restore_tree(work: RunningMission, kept: str | None) -> bool:
    """Restore the worktree from a checkpoint; return whether that was possible."""
    if not kept or resolve(work.repo, kept) is None:
        return False
    restore(work.tree, kept)
    return True


def restore_worktree(work: RunningMission, iteration: int, uses: Sequence[ToolUse]) -> bool:
    """Restore the worktree to its state after `uses`, the first calls of a turn.

    Return whether that was possible.
    """
    record = work.record
    if record.carrier is not None:
        return restore_tree(work, last_kept(work) or resolve(work.repo, work.tree.ref))
    state, done = known_state(record, work.tree.base, iteration, uses)
    if not restore_tree(work, state):
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


def rebuild(work: RunningMission) -> None:
    """Rebuild a lost worktree from the last checkpoint and the record.

    Raises RepositoryChanged if what was done since the checkpoint cannot be repeated.
    """
    record = work.record
    if record.carrier is not None:
        if (kept := last_kept(work)) is not None:
            restore(work.tree, kept)
        return
    iteration, uses = last_round(record)
    if record.has(CHECKPOINT.at(iteration)):
        iteration, uses = iteration + 1, ()
    done = [use for i, use in enumerate(uses) if record.has(CALL.at(iteration, i))]
    literals = not iteration and any(key.startswith(f"{LITERAL.key}:") for key in record.outcomes)
    if literals or not restore_worktree(work, iteration, done):
        raise RepositoryChanged(f"{work.tree.path} is gone, and the work in it cannot be repeated")


def may_have_changed(uses: Sequence[ToolUse]) -> bool:
    """Return whether a turn may have changed the worktree."""
    return any(map(may_change, uses))


def last_round(record: Record) -> tuple[int, tuple[ToolUse, ...]]:
    """Return the number of the last recorded model turn, 0 before the first, and its calls."""
    replies = record.replies()
    return len(replies), replies[-1].reply.uses if replies else ()


def known_state(
    record: Record, base: str, iteration: int, uses: Sequence[ToolUse]
) -> tuple[str, int]:
    """Return a commit from which the worktree after `uses`, a turn's first calls, can be restored.

    That is the checkpoint saved while a call of the turn asked a person, else the last one before
    the turn, or `base` if nothing had been done. Second is how many of the calls it includes. The
    commit is empty if a later call cannot be repeated from the record.
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
        if known is not None and may_have_changed(known.reply.uses):
            return "", 0
    return base, 0


def resumption(record: Record) -> dict[str, Any]:
    """Return where a mission resumes, for the journal: `iteration`, and `from`.

    `from` is "start", "record" or "checkpoint …": the last if an interrupted call is repeated from
    a known state.
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
