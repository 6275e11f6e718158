"""The executor: carries an approved plan out in a worktree and comes back with what it came to."""

from __future__ import annotations

import base64
import json
import os
import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from placet.agent.conversation import (
    INTERRUPTED,
    MACHINE_RETRY_S,
    Conversation,
    Opening,
    call_on_record,
    converse,
    may_be_half_done,
    opened,
    settle_call,
    target,
)
from placet.agent.limits import Restraint, guard_settings
from placet.agent.model_call import decode_reply, last_words, spent_in
from placet.agent.prompts import guidance, system_prompt
from placet.agent.record import Postponed, Record
from placet.agent.workplace import Ports, checkpoint_ref, keep_vault, repository, workplace
from placet.core.activity import Action, Actor, Entity
from placet.core.errors import (
    End,
    Interrupted,
    PlacetError,
    Stop,
    ToolError,
    UserError,
    mistake,
    passing,
)
from placet.core.life.case import WORKING, Case
from placet.core.life.drift import Drift, DriftVerdict, Facts, IfChanged, judge
from placet.core.life.waiting import Why
from placet.core.secrets import redact, redacted
from placet.core.stored import Stored
from placet.core.text.names import Folder, show
from placet.core.text.plan import Plan, Step, render_plan
from placet.core.turn.budget import Complexity, Limits, Room
from placet.core.turn.cancel import Cancel
from placet.core.turn.guards import REPEATED, PlanFacts, iteration_cap
from placet.core.turn.mission import ChangedFile, CommandRun, Drifted, Ended, StepDone
from placet.core.turn.patterns import detected
from placet.core.turn.talk import Ask, Purpose, StopReason, ToolUse
from placet.files.confine import TEMPORARY, Root
from placet.files.errors import VaultTrouble
from placet.files.vault import Vault
from placet.journal.writes import REPLY
from placet.repo.afterwards import look_after
from placet.repo.checkout import keep_aside
from placet.repo.checkpoints import checkpoint, delete_ref, restore
from placet.repo.commit import Pins, Writing, branch_gone, commit_message, pins, writing
from placet.repo.history import changes, digests_at, is_ancestor
from placet.repo.removal import WorkNotKept, abandon, remove_worktree, roll_back, take_hold, tidy
from placet.repo.repository import all_refs, head, identity, is_kept, resolve, tip_now
from placet.repo.rules import found_in_modules, ignored_files, status
from placet.repo.runner import Author, GitError, Repo, RepositoryChanged, leavable
from placet.repo.worktree import (
    Worktree,
    add_worktree,
    clear_stale_locks,
    must_be_on_branch,
    open_worktree,
)
from placet.tools.base import Effect, Outcome, Toolbox, Workplace
from placet.tools.commits import blank_secrets, refuse_not_kept, refuse_secrets
from placet.tools.registry import BY_NAME, executing


@dataclass(frozen=True, slots=True)
class Mission:
    """An approved plan to be carried out.

    `token` fences every write of this holder of the lease.
    """

    case: Case
    plan: Plan
    complexity: Complexity
    token: int
    base_commit: str
    if_changed: IfChanged = IfChanged.ASK


ENDED_JSON: Stored[Ended] = Stored(Ended)


class _Finished(Exception):  # noqa: N818 - leaves the conversation; nothing went wrong
    def __init__(self, summary: str) -> None:
        super().__init__(summary)
        self.summary = summary


@dataclass(slots=True)
class _Work:
    """One mission under way: conducts its conversation, and is what its control tools steer."""

    ports: Ports
    mission: Mission
    record: Record
    repo: Repo
    tree: Worktree
    author: Author
    pinned: Pins  # what decided how git behaves here when the lease was taken
    began_s: float
    cancel: Cancel
    restraint: Restraint
    steps: dict[int, StepDone] = field(default_factory=dict)
    commands: list[CommandRun] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    last_success: str = ""
    pictures: list[str] = field(default_factory=list)  # PNGs in base64, for the report
    drift: Drifted | None = None  # what changed under the plan, once something did
    # the last call's error and its tool, while it is the last word
    trouble: tuple[str, dict[str, Any]] | None = None
    troubled_in: int = 0  # how many turns were over then
    # whether the worktree may have something that no commit has: git is asked only then
    touched: bool = True
    # the only files that may be it; None where a command may have written any
    written: set[str] | None = None

    # --- limits
    # ---------------------------------------------------------------------------------------------

    def before(self, iteration: int) -> Sequence[str]:
        if self.record.outcome(f"{REPLY}{iteration}") is None:
            self._leave_if_told()
        remarks = self.restraint.before(iteration)
        if (
            pattern := detected(self.restraint.history.steps, self.restraint.guards.max_iterations)
        ) is not None:
            remarks.append(pattern.note())
            self.restraint.noticed(
                f"pattern:{iteration}",
                pattern.kind.value,
                pattern.description,
                suggested_action=pattern.action,
                affected_tool=pattern.tool,
            )
        return remarks

    def _leave_if_told(self) -> None:
        """Raise Stop where a person stopped the mission, Interrupted where the daemon stops."""
        self.cancel.check()
        self.ports.leaving.check()

    def room(self, ask: Ask) -> AbstractContextManager[Room]:
        return self.restraint.room(ask)

    def instead(self, use: ToolUse) -> Outcome | None:
        return self.restraint.instead(use)

    def no_call(self, text: str, stop_reason: StopReason) -> str:
        # Not every model calls `finish`, small ones least. Who has completed all the steps and then
        # says so has finished.
        if self._open_step() is None and stop_reason in (
            StopReason.END_TURN,
            StopReason.STOP_SEQUENCE,
        ):
            raise _Finished(redact(text, self._secrets())[0])
        return "That reached nobody. Call a tool: go on with the plan, or `finish`, or `give_up`."

    def turn_over(self, stop_reason: StopReason) -> None:
        self.restraint.turn_over(stop_reason)

    def _secrets(self) -> Sequence[str]:
        return self.place.secrets if self.place is not None else ()

    def saw(self, use: ToolUse, outcome: Outcome) -> None:
        self.calls[use.name] += 1
        self.restraint.saw(use, outcome)
        turns = len(self.restraint.history.steps)
        tool = BY_NAME.get(use.name)
        self._touch(use)
        about = target(use, self._secrets())
        if outcome.image:
            self.pictures.append(outcome.image)
        elif tool is not None and tool.effect is Effect.EXECUTE and outcome.ok:
            self.commands.append(CommandRun(about, outcome.exit_code))
        if use.name == "complete_step" and outcome.ok:
            done = json.loads(outcome.content)
            self.steps[done["step"]] = StepDone(
                done["step"],
                redact(str(use.input.get("summary", "")), self._secrets())[0],
                done["commit"] or "",
            )
            for literal in done.get("carried_out", ()):
                self.steps[literal["step"]] = StepDone(
                    literal["step"], literal["title"], literal["commit"] or ""
                )
            # Who calls a step done after having read of a failure has judged it; in the same answer
            # it was not read yet.
            if self.troubled_in < turns:
                self.trouble = None
            return
        error = {} if outcome.ok else json.loads(outcome.content)
        if error.get("error_type") in ("step_done", STEP_OPEN, REPEATED):
            # said twice or too early: nothing was done, and what failed before has failed as before
            return
        if outcome.refused and self._open_step() is None:
            # policy said no to something that no step needed any more: what was committed stands
            return
        self.troubled_in = turns
        if not outcome.ok:
            self.trouble = (use.name, error)
        elif outcome.exit_code not in (None, 0):
            self.trouble = (
                use.name,
                {
                    "error": f"`{about}` ended with exit code {outcome.exit_code}",
                    "error_type": "command_failed",
                    "exit_code": outcome.exit_code,
                },
            )
        else:
            self.trouble = None
            self.last_success = f"{use.name} {about}".strip()

    def _touch(self, use: ToolUse) -> None:
        """Remember what a call may have written."""
        if not _changes_files(use.name):
            return
        self.touched = True
        path = use.input.get("path")
        if (
            BY_NAME[use.name].effect is not Effect.WRITE
            or not isinstance(path, str)
            or posixpath.isabs(path)
            or ".." in path
        ):
            self.written = None
        elif self.written is not None:
            self.written.add(posixpath.normpath(path))

    def tell_of_cut_off_calls(self) -> None:
        """Journal and report what was under way when the mission was ended: it may have done part of its work."""
        for key, begun in list(self.record.intents.items()):
            if not key.startswith(("call:", "literal:")) or not self.record.cut_off(key):
                continue
            made = json.loads(begun)
            use = ToolUse(key, made["tool"], made["input"])
            if _changes_files(use.name):
                self._touch(use)
                settle_call(key, use, INTERRUPTED, None, self._secrets(), self.record)
                self.calls[use.name] += 1
                if BY_NAME[use.name].effect is Effect.EXECUTE:
                    self.commands.append(CommandRun(target(use, self._secrets()), None))

    # --- states to come back to
    # -----------------------------------------------------------------------------

    def round_over(self, iteration: int, uses: Sequence[ToolUse]) -> None:
        if _may_have_changed(uses):
            self.keep(f"{_CHECKPOINT}{iteration}")

    def keep(self, key: str) -> None:
        """Keep what is in the worktree as a commit on the mission's hidden ref, and its name in the record under `key`.

        Nothing is kept, and the record says so, where git would keep a secret with it.
        """
        if self.record.outcome(key) is not None or self.record.halt is not None:
            return
        case = self.mission.case
        ref = _refs(case, _name(case, self.record))[0]
        message = commit_message(
            "Work under way",
            f"The worktree at {key}.",
            case.trace_id,
            case.approved_digest,
            case.approved_by,
        )
        try:
            kept = checkpoint(
                self.tree,
                ref,
                message,
                self.ports.clock.wall(),
                lambda changed: refuse_secrets(
                    self.repo, self.tree, _whole(changed), self._secrets()
                ),
                paths=sorted(self.written or ())
                if self.written is not None or not self.touched
                else None,
            )
        except ToolError:
            kept = ""
        try:
            self.record.settle(key, kept.encode())
        except Stop:  # another daemon has the mission now, and may have ended it: nobody else would take this away
            if kept:
                with suppress(GitError):
                    delete_ref(self.repo, ref, kept)
            raise

    def bring_back(self, iteration: int, uses: Sequence[ToolUse]) -> bool:
        assert self.place is not None
        kept = known_state(self.record, self.tree.base, iteration, uses)
        if not kept or resolve(self.repo, kept) is None:
            return False
        restore(self.tree, kept)
        self.touched, self.written = True, None
        box = Toolbox(BY_NAME, self.place)
        for i, use in enumerate(uses):
            if (
                _changes_files(use.name)
                and self._went_well(iteration, i)
                and not box.dispatch(use.name, use.input).ok
            ):
                return False
        return True

    def _went_well(self, iteration: int, i: int) -> bool:
        return bool(json.loads(self.record.outcome(f"call:{iteration}:{i}") or b"{}").get("ok"))

    def rebuild(self) -> None:
        """Fill a worktree that was lost, and made anew from the branch, from the last checkpoint and the record.

        Raises RepositoryChanged where what the record says was done cannot be done again.
        """
        iteration, uses = last_round(self.record)
        if self.record.outcome(f"{_CHECKPOINT}{iteration}") is not None:
            iteration, uses = iteration + 1, ()
        done = [
            use
            for i, use in enumerate(uses)
            if self.record.outcome(f"call:{iteration}:{i}") is not None
        ]
        literals = not iteration and any(key.startswith("literal:") for key in self.record.outcomes)
        if literals or not self.bring_back(iteration, done):
            raise RepositoryChanged(
                f"{self.tree.path} is gone, and what was done in it cannot be done again"
            )

    # --- what the control tools do
    # --------------------------------------------------------------------------

    def complete_step(self, step: int, summary: str) -> dict[str, Any]:
        steps = self.mission.plan.steps
        if step > len(steps):
            raise ToolError(
                "no_such_step", f"The plan has {len(steps)} steps; there is no step {step}."
            )
        if step in self.steps:
            raise ToolError("step_done", f"Step {step} is complete already.")
        if steps[step - 1].actions:
            raise ToolError(
                "literal_step", f"Step {step} is carried out by placet itself, as it is written."
            )
        if (first := self._open_step()) is not None and first < step:
            raise self._still_open(f"Step {step} was not completed", first)
        sha = self._commit_step(step, summary)
        result: dict[str, Any] = {"step": step, "commit": sha}
        after = self._literals_from(step + 1)
        if after:
            result["carried_out"] = after
        return result

    def finish(self, summary: str) -> NoReturn:
        if (first := self._open_step()) is not None:
            raise self._still_open("The mission was not finished", first)
        raise _Finished(summary)

    def _open_step(self) -> int | None:
        """Return the first step that neither ran nor was completed, None where all are done.

        It is always one of the agent's.
        """
        return next(
            (n for n in range(1, len(self.mission.plan.steps) + 1) if n not in self.steps), None
        )

    def _still_open(self, what: str, first: int) -> ToolError:
        title = self.mission.plan.steps[first - 1].title
        return ToolError(
            STEP_OPEN,
            f"{what}: step {first} ({title}) is still open. Steps are done in their order. Do it and call "
            "`complete_step` for it, or call `give_up`.",
            step=first,
            open=[n for n in range(first, len(self.mission.plan.steps) + 1) if n not in self.steps],
        )

    def give_up(self, reason: str) -> NoReturn:
        raise Stop(End.GAVE_UP, reason)

    def submit_plan(self, plan: Any) -> NoReturn:
        raise AssertionError(f"not offered to a mission: {plan}")

    # --- steps
    # ----------------------------------------------------------------------------------------------

    place: Workplace | None = None
    left_out: tuple[str, ...] | None = None
    """What the last commit left in the worktree, since the plan does not allow it.

    None before one.
    """

    def leading_literals(self) -> list[dict[str, Any]]:
        """Carry out the literal steps that come before the agent's first."""
        done = self._literals_from(1)
        for literal in done:
            self.steps[literal["step"]] = StepDone(
                literal["step"], literal["title"], literal["commit"] or ""
            )
        return done

    def _literals_from(self, number: int) -> list[dict[str, Any]]:
        done = []
        for step in self.mission.plan.steps[number - 1 :]:
            if not step.actions:
                break
            done.append(self._literal(step, number))
            number += 1
        return done

    def _literal(self, step: Step, number: int) -> dict[str, Any]:
        assert self.place is not None
        tools = {name: BY_NAME[name] for name in _named(self.mission.plan)}
        for j, action in enumerate(step.actions):
            key = f"literal:{number}:{j}"
            use = ToolUse(key, action.tool, action.params)
            known = self.record.outcome(key)
            if known is not None:
                outcome = Outcome(**json.loads(known))
            else:
                self._leave_if_told()
                if may_be_half_done(action.tool):
                    self.keep(_CHECKPOINT + key)
                outcome = call_on_record(
                    key, use, tools, self.place, self.record, again=partial(self._put_back, key)
                )
            self.saw(use, outcome)
            if self.trouble is not None:
                raise Stop(
                    End.TOOL_ERROR, f"Execution failed during tool operation: {self.trouble[0]}"
                )
        try:
            return {
                "step": number,
                "title": step.title,
                "commit": self._commit_step(number, step.title),
            }
        except ToolError as error:
            raise _uncommitted(error) from error

    def _put_back(self, key: str) -> bool:
        kept = (self.record.outcome(_CHECKPOINT + key) or b"").decode()
        if not kept or resolve(self.repo, kept) is None:
            return False
        restore(self.tree, kept)
        self.touched, self.written = True, None
        return True

    def _commit_step(self, number: int, summary: str) -> str | None:
        """Commit what a step changed in scope.

        Return the commit, None where nothing had changed.
        """
        key = f"step:{number}"
        known = self.record.outcome(key)
        if known is not None:
            return known.decode() or None
        steps = self.mission.plan.steps
        body = f"Step {number} of {len(steps)}: {steps[number - 1].title}"
        sha, paths = self.commit_once(key, summary or steps[number - 1].title, body)
        rows = [
            self.record.row(
                Action.STEP_COMPLETED,
                Actor.AGENT,
                step=number,
                of=len(steps),
                commit=sha or "",
                files=len(paths),
            )
        ]
        if sha is not None:
            rows.append(
                self.record.row(
                    Action.GIT_COMMITTED,
                    Actor.AGENT,
                    Entity.REPOSITORY,
                    commit=sha,
                    branch=self.tree.branch,
                    files=len(paths),
                    step=number,
                )
            )
        self.record.settle(key, (sha or "").encode(), *rows)
        return sha

    def commit_once(self, key: str, subject: str, body: str) -> tuple[str | None, list[str]]:
        """Do what `commit` does between an intent and the outcome that the caller records.

        An earlier life may have made the commit and been killed before its outcome: then it is
        found, not missed.
        """
        self.left_out = None
        if self.record.cut_off(key):
            tip = resolve(self.repo, self.tree.ref) or self.tree.base
            steps = (sha for name, sha in self.record.outcomes.items() if name.startswith("step:"))
            if tip not in (self.tree.base, *(sha.decode() for sha in steps)):
                return tip, [file.path for file in changes(self.repo, f"{tip}^", tip)]
        self.record.intend(key)
        if not self.touched:
            must_be_on_branch(self.tree)
            self.left_out = ()
            return None, []
        done = self.commit(subject, body)
        if not self.left_out:
            self.touched, self.written = False, set()
        return done

    def commit(self, subject: str, body: str) -> tuple[str | None, list[str]]:
        """Commit every changed file that the scope allows.

        Return the commit (None if there is nothing) and the files.

        Raises ToolError, with file and line, for a secret that the commit would add, and for a file
        that it would not hold.
        """
        case = self.mission.case
        self.left_out = ()
        if inside := found_in_modules(self.tree):  # which git does not count among the changes
            refuse_not_kept(self.tree, inside)
        with writing(self.tree) as worktree:
            changed = _whole(worktree.changes())
            self.left_out = self.out_of_scope(changed)
            paths = sorted(set(changed) - set(self.left_out))
            if not paths:
                return None, []
            refuse_not_kept(self.tree, [path for path in paths if (self.tree.path / path).exists()])
            refuse_secrets(self.repo, self.tree, paths, self._secrets())
            self._must_be_unchanged(worktree)
            message = commit_message(
                subject,
                body,
                case.trace_id,
                case.approved_digest,
                case.approved_by,
                f"{case.agent} ({self.ports.config.model.name})",
            )
            return worktree.commit(paths, message, self.author, self.ports.clock.wall()), paths

    def out_of_scope(self, changed: Sequence[str]) -> tuple[str, ...]:
        """Return those of these changed files that the plan does not allow to be committed, or whose commit would delete one."""
        assert self.place is not None
        refused = {
            path for path in changed if not self.place.may_commit(path) or self._leads_out(path)
        }
        return tuple(sorted(refused | _in_the_place_of(refused, changed, self.tree.path)))

    def ignored(self) -> Sequence[str]:
        """Return the files that commands made, that the plan allows and that are in no commit, as git ignores them."""
        assert self.place is not None
        if not executes(self.mission.plan):  # tools refuse to write one
            return ()
        with suppress(GitError, OSError):  # it is only told
            return [
                path
                for path in ignored_files(self.tree)
                if self.place.may_commit(f"{path}x" if path.endswith("/") else path)
            ][:MAX_IGNORED]
        return ()

    def _leads_out(self, path: str) -> bool:
        """Return whether a changed path is a link out of the repository, to all of it, or to what no mission may write."""
        assert self.place is not None
        top, link = os.path.realpath(self.tree.path), self.tree.path / path
        if not link.is_symlink():
            return False
        said = os.path.normpath(os.path.join(top, os.path.dirname(path), link.readlink()))  # noqa: PTH118, PTH120 - as it is written
        ends = [os.path.relpath(end, top) for end in (said, os.path.realpath(link))]
        return link.readlink().is_absolute() or any(
            end == "." or end.split("/")[0] == ".." or self.place.root.protects(end) for end in ends
        )

    def _must_be_unchanged(self, worktree: Writing) -> None:
        """Raise Stop where the repository's settings, or what the plan was based on, are others than when they were looked at."""
        try:
            worktree.check_pins(self.pinned)
        except RepositoryChanged as error:
            raise _astray(self.repo, error) from error
        self.drift = changed_under(self.mission, self.repo, self.tree.base, self.record)
        if self.drift is not None:
            raise Stop(End.DRIFT, self.drift.why)


STEP_OPEN = "step_open"
"""The error type of a call that would pass over a step that is not done."""

MAX_IGNORED = 1_000
"""Ignored files that an end names; nobody reads more."""

_CHECKPOINT = "checkpoint:"


def _name(case: Case, record: Record) -> str:
    """Return what a mission's worktree and its references are called, as `_place` chose it."""
    place = json.loads(record.outcome("place") or b"[]")
    return str(place[2]) if len(place) > 2 else f"{case.trace8}-{case.generation}"


def _refs(case: Case, name: str) -> tuple[str, str, str]:
    """Return the references of the mission of this name: its checkpoint, what it had done if it failed, what it left out."""
    return (
        checkpoint_ref(name),
        f"refs/placet/failed/{case.request_id}-{name}",
        f"refs/placet/left/{case.request_id}-{name}",
    )


def _changes_files(name: str) -> bool:
    tool = BY_NAME.get(name)
    return tool is not None and tool.effect in (Effect.WRITE, Effect.EXECUTE)


def _may_have_changed(uses: Sequence[ToolUse]) -> bool:
    """Say whether a turn may have changed the worktree: `complete_step` carries out the literal steps that follow."""
    return any(_changes_files(use.name) or use.name == "complete_step" for use in uses)


def last_round(record: Record) -> tuple[int, tuple[ToolUse, ...]]:
    """Return the number of the last recorded model turn and its calls.

    0 and none before the first.
    """
    iteration = 0
    while record.outcome(f"{REPLY}{iteration + 1}") is not None:
        iteration += 1
    known = record.outcome(f"{REPLY}{iteration}")
    return iteration, decode_reply(known)[0].turn.tool_uses if known is not None else ()


def known_state(record: Record, base: str, iteration: int, uses: Sequence[ToolUse]) -> str:
    """Return the commit from which the worktree can be made what it was after `uses`, the first calls of a turn.

    That is the last checkpoint before the turn, or `base` where nothing had been done. Empty where one of the calls, or
    something since that checkpoint, cannot be done again from the record.
    """
    for i, use in enumerate(uses):
        outcome = json.loads(record.outcome(f"call:{iteration}:{i}") or b"{}")
        tool = BY_NAME.get(use.name)
        if (tool is not None and tool.effect is Effect.EXECUTE) or "carried_out" in outcome.get(
            "content", ""
        ):
            return ""
    for earlier in range(iteration - 1, -1, -1):
        kept = record.outcome(f"{_CHECKPOINT}{earlier}")
        if kept is not None:
            return kept.decode()
        known = record.outcome(f"{REPLY}{earlier}")
        if known is not None and _may_have_changed(decode_reply(known)[0].turn.tool_uses):
            return ""
    return base


def resumption(record: Record) -> dict[str, Any]:
    """Return from where a mission goes on, for the journal: `iteration`, and `from` ("start", "record", "checkpoint …").

    It is a checkpoint where a call was cut off that is repeated from a known state.
    """
    iteration, uses = last_round(record)
    place = record.outcome("place")
    if place is None or (not iteration and record.outcome("branch") is None):
        return {"iteration": 0, "from": "start"}
    base = json.loads(place)[0]
    for key in record.intents:
        if (
            key.startswith("literal:")
            and record.cut_off(key)
            and (kept := record.outcome(_CHECKPOINT + key))
        ):
            return {"iteration": iteration, "from": f"checkpoint {kept[:12].decode()}"}
    for i, use in enumerate(uses):
        if record.cut_off(f"call:{iteration}:{i}") and may_be_half_done(use.name):
            state = known_state(record, base, iteration, uses[:i])
            return {
                "iteration": iteration,
                "from": f"checkpoint {state[:12]}" if state else "record",
            }
    return {"iteration": iteration, "from": "record"}


def carry_out(ports: Ports, mission: Mission, cancel: Cancel) -> Ended:
    """Carry a mission out to its end, success or failure.

    With a reason, `cancel` ends the mission at the next safe point; without one, the work is left
    there. Raises Interrupted and Postponed, after which the same call goes on from the record.
    Everything else that can happen, a repository that is gone included, is an Ended.
    """
    case = mission.case
    record = Record.load(ports.journal, case, case.generation, ports.clock, mission.token)
    began = ports.clock.monotonic()
    try:
        repo = repository(ports, case.portal, record)
        known = record.outcome("ended")
        if known is not None:
            ended = ENDED_JSON.validate_json(known)
            return _clean_up(ports, mission, record, repo, ended) if ended.branch else ended
        record.mind_crashes()
        # what was done before is told from the record, and nothing more is done
        if record.halt is None and cancel.reason:
            record.halt = cancel.stop()
        with leavable(cancel.is_set):
            base, branch, tip = _place(ports, mission, repo, record)
        if (
            record.outcome("branch") is None
            and (drift := changed_under(mission, repo, base, record, tip)) is not None
        ):
            ended = replace(
                _unable(ports, mission, UserError(drift.why), began, End.DRIFT, record),
                base=base,
                drift=drift,
            )
            record.settle("ended", ENDED_JSON.dump_json(ended))
            return ended
        # A stop ends what git does for the plan, not what it takes to end the mission; who leaves
        # for the daemon's sake leaves all.
        with leavable(cancel.must_leave):
            ended = _in_worktree(ports, mission, record, repo, (base, branch), began, cancel)
        _tidy(ports, repo, record)
    except Interrupted:
        if cancel.reason and record.outcome("branch") is None:
            return _not_begun(ports, mission, record, cancel.stop(), began)
        record.leave_life()
        raise
    except Postponed:
        record.leave_life()
        raise
    except (UserError, GitError, RepositoryChanged, VaultTrouble, OSError) as error:
        if isinstance(error, PermissionError) and Path(str(error.filename)).is_relative_to(
            _path(ports, case, record)
        ):
            # the mission's doing: no waiting
            return _unable(ports, mission, UserError(str(error)), began, End.REPOSITORY, record)
        if cause := passing(error):
            record.leave_life()
            raise Postponed(cause, MACHINE_RETRY_S, Why.MACHINE) from error
        if not isinstance(error, PlacetError):
            raise
        return _unable(ports, mission, error, began, End.REPOSITORY, record)
    else:
        return ended
    finally:
        record.close()


def _not_begun(ports: Ports, mission: Mission, record: Record, stop: Stop, began: float) -> Ended:
    """Return how a mission ended that a person stopped before its worktree was there, and take away what there is of that."""
    if (known := record.outcome("place")) is not None:
        base, branch, *_ = json.loads(known)
        abandon(
            repository(ports, mission.case.portal, record),
            _path(ports, mission.case, record),
            branch,
            base,
        )
    ended = _unable(ports, mission, UserError(stop.detail), began, stop.end, record)
    record.settle("ended", ENDED_JSON.dump_json(ended))
    return ended


def _in_worktree(
    ports: Ports,
    mission: Mission,
    record: Record,
    repo: Repo,
    at: tuple[str, str],
    began: float,
    cancel: Cancel,
) -> Ended:
    """Make the mission's worktree, or go on in it; carry the plan out there, and tidy up.

    `at`: base commit and branch.
    """
    case, path = mission.case, _path(ports, mission.case, record)
    base, branch = at
    known = record.outcome("branch") is not None
    # until a lost worktree is what it was, in this life or a later one
    mark = path.with_name(f"{path.name}.lost")
    lost = known and (not path.exists() or mark.exists())
    if lost:
        mark.touch()
    scope = mission.plan.scope
    with leavable(cancel.is_set) if not known else nullcontext():
        tree = add_worktree(repo, path, branch, base, by_name=scope.by_name())
    clear_stale_locks(tree, _refs(case, path.name)[:1])
    if known:
        _drop_temporaries(tree)
    else:
        record.settle(
            "branch",
            os.fsencode(tree.git_dir),
            record.row(
                Action.GIT_BRANCH_CREATED, Actor.SYSTEM, Entity.REPOSITORY, branch=branch, base=base
            ),
        )
    work = _Work(
        ports,
        mission,
        record,
        repo,
        tree,
        identity(repo),
        pins(tree),
        began,
        cancel,
        _restraint(ports, mission, record, cancel),
    )
    if not known:
        work.touched, work.written = False, set()
    with workplace(ports, repo, tree, scope, work, cancel.is_set, writable=True) as place:
        work.place = place
        work.restraint.secrets = record.secrets = place.secrets
        if lost:
            work.rebuild()
            mark.unlink()
        ended = _ended(work, *_work_through(work, place))
    ended = replace(
        ended,
        pictures=_publish(ports, case, work.pictures),
        after=look_after(repo, ended.branch, case.base_branch) if ended.commit else None,
    )
    # The end is decided and recorded before git is tidied up, so that a crash in between cannot
    # decide it anew.
    record.settle("ended", ENDED_JSON.dump_json(ended))
    return _clean_up(ports, mission, record, repo, ended)


def _path(ports: Ports, case: Case, record: Record) -> Path:
    return ports.worktrees / _name(case, record)


def _restraint(ports: Ports, mission: Mission, record: Record, cancel: Cancel) -> Restraint:
    limits, scope = ports.config.limits, mission.plan.scope
    cap = iteration_cap(mission.complexity, scope.max_iterations, limits.iterations_ceiling)
    return Restraint(
        "the mission",
        ports,
        record,
        Limits(
            limits.mission_tokens,
            scope.budget_usd,
            limits.mission_time_s,
            limits.mission_wall_time_s or None,
            limits.tool_calls,
        ),
        guard_settings(ports.config.guards, cap),
        PlanFacts(writes=bool(scope.write)),
        cancel,
    )


def _place(ports: Ports, mission: Mission, repo: Repo, record: Record) -> tuple[str, str, str]:
    """Return base commit and branch, chosen once and kept for every later life of the mission.

    Third is the commit of the branch that was planned from, empty if that was not looked up.
    """
    known = record.outcome("place")
    if known is not None:
        base, branch, *_ = json.loads(known)
        return base, branch, ""
    keep_vault(ports, repo, record)
    case, refs, base = mission.case, all_refs(repo), mission.base_commit or None
    if base and base not in refs.at.values():
        base = resolve(repo, base)
    tip = refs.at.get(f"refs/heads/{case.base_branch}", "")
    if (
        base
        and is_kept(repo)
        and mission.if_changed is IfChanged.ASK
        and changed_under(mission, repo, base, record, tip) is None
    ):
        # the notes of today: what the plan rests on and may write is the same in them
        base = tip or head(repo)
    now = ports.clock.wall()
    name = _name(case, record)
    ours = {*_refs(case, name), f"refs/placet/left/{name}"}
    if (ports.worktrees / name).exists() or not refs.ours.isdisjoint(ours):
        # left by a mission that the journal does not know any more: its work stays as it is
        name += f"-{now:%Y%m%d%H%M%S}"
    chosen = base or head(repo), refs.free_branch(case.request_id, case.trace8, now), name
    record.settle("place", json.dumps(chosen).encode())
    return *chosen[:2], tip


def _work_through(work: _Work, place: Workplace) -> tuple[Stop | None, str]:
    """Do the plan's steps.

    Return the reason for a failure (None for none) and the agent's summary.
    """
    plan = work.mission.plan
    try:
        with leavable(place.cancelled):
            done = work.leading_literals()
            if done:
                work.keep(f"{_CHECKPOINT}0")
            if len(work.steps) == len(plan.steps):  # all of them literal
                return None, "Every step of the plan was literal and was carried out as written."
            _converse(work, place, done)
    except _Finished as finished:
        return None, finished.summary
    except Stop as stop:
        return stop, ""
    except RepositoryChanged as error:
        return _astray(work.repo, error), ""
    except Interrupted:
        if work.cancel.reason:
            return work.cancel.stop(), ""
        raise


def _uncommitted(error: ToolError) -> Stop:
    """Return how a mission ends that cannot commit its last work.

    The error's own word says why: `secret_in_commit`.
    """
    return Stop(End.TOOL_ERROR, error.message, error_type=error.error_type)


def _astray(repo: Repo, error: RepositoryChanged) -> Stop:
    """Return how a mission ends whose branch or worktree somebody else changed.

    Raises `error` where the repository is gone.
    """
    if not repo.common_dir.is_dir():
        raise error
    return Stop(End.REPOSITORY, str(error))


def _converse(work: _Work, place: Workplace, done: Sequence[Mapping[str, Any]]) -> NoReturn:
    ports, case, plan = work.ports, work.mission.case, work.mission.plan
    tools = executing(_named(plan), plan.scope, place.level)

    def opening() -> Opening:
        remarks: list[str] = []
        with Root(ports.vault, writable=False) as vault:
            system = system_prompt(
                Purpose.EXECUTE,
                tools,
                vault,
                case.agent,
                remarks,
                model=ports.config.model.name,
                sandbox=place.level.title,
                repository=case.portal or "the vault itself",
            )
        texts = [f"The approved plan:\n\n<plan>\n{render_plan(plan).strip()}\n</plan>"]
        if text := guidance(place.root, remarks):
            texts.append(text)
        if done:
            texts.append(
                "Carried out already, as written: step "
                + ", ".join(str(d["step"]) for d in done)
                + "."
            )
        return Opening(system, tuple(texts), tuple(remarks))

    begun = opened(work.record, place, opening)
    talk = Conversation(
        Purpose.EXECUTE,
        begun.system,
        tools,
        begun.turn,
        ports.config.model.max_tokens,
        ports.config.model.context_tokens,
    )
    converse(talk, place, work.record, work, work.restraint.spent, ports.line)


def executes(plan: Plan) -> bool:
    """Say whether a plan may start anything: what does runs in the sandbox that its reviewer was told of."""
    return (
        bool(plan.scope.run)
        or plan.scope.shell
        or any(BY_NAME[tool].effect is Effect.EXECUTE for tool in _named(plan))
    )


def _named(plan: Plan) -> frozenset[str]:
    """Return the tools that a plan names; one that names none gets what its scope has a use for."""
    named = {tool for step in plan.steps for tool in (*step.tools, *(a.tool for a in step.actions))}
    if named:
        return frozenset(named)
    return frozenset(
        t.name
        for t in BY_NAME.values()
        if t.effect is Effect.READ
        or (t.effect is Effect.WRITE and plan.scope.write)
        or (t.name == "run_command" and plan.scope.run)
    )


def _ended(work: _Work, stop: Stop | None, summary: str) -> Ended:
    """Commit what is left of a success, and say what the mission came to."""
    repo, tree, scope, secrets = work.repo, work.tree, work.mission.plan.scope, work.record.secrets
    left_out: tuple[str, ...] = ()
    if stop is not None and stop.end is not End.LEASE_LOST:
        work.tell_of_cut_off_calls()
    if stop is None and work.trouble is not None:
        tool, error = work.trouble
        stop = Stop(
            End.UNRESOLVED_ERROR,
            f"the mission finished right after a failed {tool}: {error['error']}",
        )
    if stop is None:
        sha = known = None
        try:
            if work.record.outcome("last commit") is None:
                sha, paths = work.commit_once(
                    "last commit",
                    "Finish: " + work.mission.plan.title,
                    "What was left after the last completed step.",
                )
                known = work.left_out
        except ToolError as error:
            stop = _uncommitted(error)
            sha, work.trouble = None, ("commit", error.as_result())
        except Stop as changed:
            sha, stop = None, changed
        except RepositoryChanged as error:
            sha, known, stop = None, (), _astray(repo, error)
        left_out = known if known is not None else work.out_of_scope(_touched(tree))
        if sha is not None:
            work.record.settle(
                "last commit",
                sha.encode(),
                work.record.row(
                    Action.GIT_COMMITTED,
                    Actor.AGENT,
                    Entity.REPOSITORY,
                    commit=sha,
                    branch=tree.branch,
                    files=len(paths),
                ),
            )
    last = resolve(repo, tree.ref)
    if last is None and stop is None:
        stop = _astray(repo, branch_gone(tree))
    last = last or tree.base
    files = _changed(repo, tree.base, last)
    if stop is None and scope.write and not files:
        stop = Stop(End.NOTHING_CHANGED, "the plan was to change files, and none was changed")
    return Ended(
        ok=stop is None,
        end=End.FINISHED if stop is None else stop.end,
        detail="" if stop is None else redact(stop.detail, secrets)[0],
        error_type="" if stop is None else stop.error_type,
        error=None if work.trouble is None else redacted(work.trouble[1], secrets),
        summary=summary,
        branch=tree.branch,
        base=tree.base,
        commit=last if last != tree.base and stop is None else "",
        kept="",
        steps=tuple(work.steps[n] for n in sorted(work.steps)),
        files=files,
        left_out=tuple(redact(path, secrets)[0] for path in left_out),
        ignored=tuple(redact(path, secrets)[0] for path in work.ignored()) if stop is None else (),
        commands=tuple(work.commands),
        calls=dict(work.calls),
        failed_tool=work.trouble[0] if work.trouble is not None else "",
        last_success=work.last_success,
        iterations=work.restraint.spent.replies,
        spent=work.restraint.spent,
        duration_s=work.ports.clock.monotonic() - work.began_s,
        repository=str(repo.path),
        drift=work.drift,
        last_words=""
        if stop is None or stop.end in _SAID_IN_FULL
        else last_words(work.record, work._secrets()),
    )


_SAID_IN_FULL = (End.GAVE_UP, End.STOPPED_BY_PERSON, End.DRIFT, End.LEASE_LOST)
"""Ends of which the model's last words say nothing more."""


def changed_under(
    mission: Mission, repo: Repo, base: str, record: Record, tip: str = ""
) -> Drifted | None:
    """Return what changed under the plan since `base`, its base commit.

    None where nothing did, or the plan says to go on.

    What changed elsewhere, or was to be gone on over, is journalled once for each new commit.
    """
    case = mission.case
    tip = tip or tip_now(repo, case.base_branch)
    based_on = dict(case.based_on)
    lost = (
        bool(mission.base_commit)
        and base != mission.base_commit
        and resolve(repo, mission.base_commit) is None
    )
    if (tip == base and not lost) or record.outcome(f"drift:{tip}") is not None:
        return None
    files = None if lost else changes(repo, base, tip)
    now = digests_at(repo, tip, sorted(based_on))
    drift = judge(
        Facts(
            mission.base_commit or base,
            tip,
            None if files is None else [f.path for f in files],
            now,
        ),
        based_on,
        lambda path: (
            mission.plan.scope.allows_write(path)
            and (bool(case.portal) or not path.startswith(_REPORTS))
        ),
    )
    if drift.verdict is DriftVerdict.UNDER and mission.if_changed is IfChanged.ASK:
        return Drifted(
            _what_changed(drift, repo, base, tip, lost=lost),
            drift.paths,
            tip,
            tuple(sorted(now.items())),
        )
    record.settle(
        f"drift:{tip}",
        b"",
        record.row(
            Action.PLAN_DRIFTED,
            Actor.SYSTEM,
            Entity.PLAN,
            verdict=drift.verdict.value,
            base=mission.base_commit,
            tip=tip,
            files=[show(p) for p in drift.paths[:20]],
        ),
    )
    return None


_REPORTS = (f"{Folder.REPORTS}/", "Knowledge/Portals/")
"""Where the daemon writes notes in a vault: one that is new there is no change under a plan that may write `**`."""


def _what_changed(drift: Drift, repo: Repo, base: str, tip: str, *, lost: bool) -> str:
    named = ", ".join("`" + show(path).replace("`", "'") + "`" for path in drift.paths[:10])
    more = f" and {len(drift.paths) - 10} more" if len(drift.paths) > 10 else ""
    if lost:
        return "The plan's base commit is gone from the repository" + (
            f", and these files are others now: {named}{more}."
            if named
            else ", so nobody can say what changed since."
        )
    return (
        f"Since the plan was written these files changed, which it read or may write: {named}{more}.\n"
        f"Look at it: `{repo.by_hand} diff {base[:12]}..{tip[:12]}`"
    )


def _clean_up(ports: Ports, mission: Mission, record: Record, repo: Repo, ended: Ended) -> Ended:
    """Tidy git up behind a mission: a success keeps its branch, a failure's work goes to a ref of its own.

    Safe to repeat after a crash at any point of it.
    """
    case = mission.case
    path = _path(ports, case, record)
    ckpt, failed, left_out = _refs(case, path.name)
    try:
        tree = open_worktree(repo, path, ended.branch, ended.base)
    except RepositoryChanged:  # gone already: a crash came while this was done the first time
        tree = Worktree(
            repo, path, Path(os.fsdecode(record.outcome("branch") or b"")), ended.branch, ended.base
        )
    when = ports.clock.wall()
    if not ended.ok:
        take_hold(tree)
    if ended.ok:
        try:
            remove_worktree(tree, ref=ckpt)
        except WorkNotKept:
            rest = _drop_temporaries(tree)
            blank_secrets(repo, tree, rest, ports.secrets)
            kept_there = (
                checkpoint(tree, left_out, "Changed by commands, outside the approved scope", when)
                if rest
                else None
            )
            remove_worktree(tree, kept_there, ref=ckpt)
        return replace(ended, kept=left_out if ended.left_out else "")
    if tree.path.exists() and (tree.git_dir / "index").exists():
        blank_secrets(repo, tree, _drop_temporaries(tree), ports.secrets)
    message = commit_message(
        "Work of a failed mission",
        f"What was uncommitted when it ended: {ended.end.value}.",
        case.trace_id,
        case.approved_digest,
        case.approved_by,
    )
    last = resolve(repo, ckpt)
    if (
        last is not None
        and not tree.path.exists()
        and not is_ancestor(repo, last, resolve(repo, tree.ref) or tree.base)
    ):
        # somebody deleted the worktree, and this is all that is left of what no commit has
        keep_aside(repo, last, failed)
    roll_back(tree, failed, message, when)
    delete_ref(repo, ckpt)
    kept_commit = resolve(repo, failed) or ""
    kept = failed if kept_commit else ""
    if record.outcome("rolled back") is None:
        record.settle(
            "rolled back",
            kept.encode(),
            record.row(
                Action.GIT_ROLLED_BACK,
                Actor.SYSTEM,
                Entity.REPOSITORY,
                branch=ended.branch,
                kept=kept,
            ),
        )
    drift = ended.drift
    if drift is not None and kept:
        drift = replace(
            drift, why=f"{drift.why}\nWhat the mission had done by then is kept at `{kept}`."
        )
    return replace(
        ended,
        kept=kept,
        kept_commit=kept_commit,
        files=_changed(repo, ended.base, failed) if kept else (),
        drift=drift,
    )


def _tidy(ports: Ports, repo: Repo, record: Record) -> None:
    """Take away what long ended missions left in the repository, and journal what it was."""
    with ports.journal.read() as reader:
        live = {row.trace_id[:8] for row in reader.cases(*WORKING)}
    now = ports.clock.wall()
    gone = tidy(
        repo, ports.worktrees, live, now - timedelta(days=ports.config.daemon.tidy_after_days), now
    )
    if gone:
        record.note(
            record.row(
                Action.GIT_TIDIED, Actor.SYSTEM, Entity.REPOSITORY, path=str(repo.path), gone=gone
            )
        )


def _publish(ports: Ports, case: Case, pictures: Sequence[str]) -> tuple[str, ...]:
    """Put a mission's pictures beside where its report will be; return their names.

    Safe to repeat after a crash.
    """
    names = tuple(
        f"{case.trace8}_{case.request_id}-{case.generation}-{n}.png"
        for n in range(1, len(pictures) + 1)
    )
    if names:
        with Vault(ports.vault) as vault:
            for name, picture in zip(names, pictures, strict=True):
                vault.publish(f"{Folder.REPORTS}/{name}", base64.b64decode(picture))
    return names


def _drop_temporaries(tree: Worktree) -> list[str]:
    """Delete what a write that was killed half-way left behind: it is nobody's work, and in the way at the end.

    Returns the other changed files.
    """
    changed = [change.path for change in status(tree)]
    kept = _whole(changed)
    if len(kept) < len(changed):
        with Root(tree.path, writable=True) as files:
            for path in set(changed) - set(kept):
                files.delete(path)
    return kept


def _touched(tree: Worktree) -> list[str]:
    """Return the changed files, without what a write that was killed half-way left behind."""
    return _whole([change.path for change in status(tree)])


def _in_the_place_of(refused: AbstractSet[str], changed: Sequence[str], top: Path) -> set[str]:
    """Return those of the changed files whose commit would delete a refused one: a file where a folder was, or the other way."""
    folders = {above for path in refused for above in _above(path)}
    return {
        path
        for path in changed
        if (path in folders or not set(_above(path)).isdisjoint(refused))
        and os.path.lexists(top / path)
    }


def _above(path: str) -> list[str]:
    """Return the folders that a path lies in, of those of its repository."""
    return [str(folder) for folder in PurePosixPath(path).parents][:-1]


def _whole(changed: Sequence[str]) -> list[str]:
    return [path for path in changed if not fnmatchcase(path.rsplit("/", 1)[-1], TEMPORARY)]


def _changed(repo: Repo, base: str, last: str) -> tuple[ChangedFile, ...]:
    return tuple(
        ChangedFile(f.path, f.status, f.added, f.deleted, f.link) for f in changes(repo, base, last)
    )


def broken(ports: Ports, mission: Mission, error: Exception) -> Ended:
    """Return how a mission ended that placet itself made a mistake in.

    Its branch and worktree stay as they are.
    """
    record = Record.load(ports.journal, mission.case, mission.case.generation, ports.clock)
    return _unable(
        ports,
        mission,
        UserError(mistake(error)),
        ports.clock.monotonic(),
        End.INTERNAL_ERROR,
        record,
    )


def _unable(
    ports: Ports, mission: Mission, error: PlacetError, began: float, end: End, record: Record
) -> Ended:
    spent = spent_in(record)
    return Ended(
        ok=False,
        end=end,
        detail=str(error),
        error_type=end.value,
        error=None,
        summary="",
        branch="",
        base="",
        commit="",
        kept="",
        steps=(),
        files=(),
        left_out=(),
        commands=(),
        calls={},
        failed_tool="",
        last_success="",
        iterations=spent.replies,
        spent=spent,
        duration_s=ports.clock.monotonic() - began,
        repository=mission.case.portal,
        last_words=last_words(record) if end in (End.INTERNAL_ERROR, End.CRASH_LOOP) else "",
        left_at=str(path) if (path := _path(ports, mission.case, record)).exists() else "",
    )
