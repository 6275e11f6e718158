"""Do the steps of a plan in order and commit each; run the literal ones without a model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from placet.activity import Action, Actor, Entity
from placet.agent.checkpoints import keep, keep_call, restore_tree
from placet.agent.commits import commit_once, named
from placet.agent.record import CALL, CHECKPOINT, LITERAL, STEP, Begun, Key
from placet.agent.tool_calls import (
    INTERRUPTED,
    NEW_FILE,
    ask,
    call_on_record,
    changes_files,
    effect_of,
    may_be_half_done,
    no_need,
    settle_call,
    target,
)
from placet.agent.work import RunningMission
from placet.case.checks import NOT_FOUND, check_of, doubts_about, words_of
from placet.case.mission_result import CommandRun, StepDone
from placet.chat.guards import REPEATED, Effect
from placet.chat.messages import ToolUse
from placet.errors import End, Stop, ToolError
from placet.plan.left_out import WRITES
from placet.plan.plan import Step
from placet.secrets import redact
from placet.tools.arguments import Args
from placet.tools.base import Outcome
from placet.tools.control import CompleteStep, Finish, RequestScope
from placet.tools.registry import BY_NAME
from placet.wording import counted

STEP_OPEN = "step_open"
"""The error type of a call that would skip an open step."""
CHANGED_NOTHING = frozenset(
    {"no_such_step", "step_left_out", "step_done", "literal_step", STEP_OPEN, REPEATED}
)
"""Error types of calls that named the wrong step or were repeated: no work failed."""


@dataclass(slots=True)
class StepsUnderway:
    """The steps that are done, and the calls that were seen.

    `trouble` is the error of the last call, with its tool, until a call succeeds. `troubled_in` is
    the number of turns before it. `has_written` says that a call may have changed a file: one of a
    tool that writes, or of a command that is not a check.
    """

    work: RunningMission
    done: dict[int, StepDone] = field(default_factory=dict)
    commands: list[CommandRun] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    last_success: str = ""
    trouble: tuple[str, dict[str, Any]] | None = None
    troubled_in: int = 0
    has_written: bool = False

    def steer(self, args: Args) -> Any:
        """Run a control call: commit a step, or end the conversation.

        Raises ToolError while an earlier step is open, and AsksPerson if the call asks a person.
        """
        work = self.work
        more = isinstance(args, RequestScope) and not (args.run or args.network or args.hosts)
        # once: this error is the last one then
        if more and self.trouble and effect_of(self.trouble[0]) is Effect.READ:
            raise no_need(work.mission.plan.scope, "Reading needs no wider scope.")
        ask(args, work.record, work.ports, work.mission.plan.scope, work.place.root)
        if isinstance(args, CompleteStep):
            return self._complete(args.step or self.open_step() or 1, args.summary)
        if (first := self.open_step()) is not None and isinstance(args, Finish):
            raise self._still_open("The mission was not finished", first)
        return args

    def open_step(self) -> int | None:
        """Return the first step that is not done, None if all are. It is one of the agent's."""
        steps = self.work.mission.plan.kept
        return next((number for number, _ in steps if number not in self.done), None)

    def _complete(self, step: int, summary: str) -> dict[str, Any]:
        steps = self.work.mission.plan.steps
        if step > len(steps):
            raise ToolError(
                "no_such_step",
                f"The plan has {counted(len(steps), 'step')}; there is no step {step}."
                f"{self._what_is_left()}",
            )
        if steps[step - 1].left_out:
            raise ToolError(
                "step_left_out",
                f"Step {step} was not approved: do nothing of it.{self._what_is_left()}",
            )
        if step in self.done:
            raise ToolError("step_done", f"Step {step} is complete already.{self._what_is_left()}")
        if steps[step - 1].actions:
            raise ToolError("literal_step", f"placet does step {step} itself, as it is written.")
        if (first := self.open_step()) is not None and first < step:
            raise self._still_open(f"Step {step} was not completed", first)
        if why := self._unwritten(step):
            raise ToolError(STEP_OPEN, why, step=step)
        result: dict[str, Any] = {"step": step, "commit": self._commit(step, summary)}
        if unproven := doubts_about(steps[step - 1], self.work.mission.plan, self.commands):
            result["unproven"] = unproven
        if after := self._literals_from(step + 1):
            result["carried_out"] = after
        done = {step, *(one["step"] for one in after), *self.done}
        left = next((n for n, _ in self.work.mission.plan.kept if n not in done), None)
        # a small model does the same step again
        result["next"] = f"step {left}: {steps[left - 1].title}" if left else "call `finish`"
        return result

    def _unwritten(self, step: int) -> str:
        """Return why the last step of a plan that writes is not done; once, then it may be."""
        plan = self.work.mission.plan
        told = sum(not plan.steps[number - 1].actions for number in self.done)
        is_last = all(number in (step, *self.done) for number, _ in plan.kept)
        # any command may have written, a check too
        written = self.has_written or self.commands or any(s.commit for s in self.done.values())
        if written or not (is_last and plan.scope.write) or self.calls["complete_step"] > told:
            return ""
        ways = " or ".join(f"`{name}`" for name in sorted(plan.tools & WRITES))
        shown = f" with {json.dumps(NEW_FILE)}" if "write_file" in ways else ""
        return (
            f"Step {step} was not completed: no file was written. You may write "
            f"{', '.join(plan.scope.write[:3])}: call {ways or 'a tool that writes'}{shown}, then "
            "`complete_step` again. If nothing has to be written, call `give_up` and say why."
        )

    def _what_is_left(self) -> str:
        first = self.open_step()
        return " Nothing is left. Call `finish`." if first is None else f" Go on with step {first}."

    def _still_open(self, what: str, first: int) -> ToolError:
        # Qwen2.5-Coder-1.5B gave up with all work done, when told to do it or to give up. With the
        # step's title its call would repeat what it was told, which does not count in text.
        call = json.dumps({"step": first, "summary": "<what was done>"})
        return ToolError(
            STEP_OPEN,
            f"{what}, because step {first} comes first. If it is done, call `complete_step` with "
            f"{call}.",
            step=first,
            open=[n for n, _ in self.work.mission.plan.kept if n not in self.done],
        )

    # --- literal steps
    # ------------------------------------------------------------------------------------

    def leading_literals(self) -> list[dict[str, Any]]:
        """Run the literal steps that come before the agent's first."""
        done = self._literals_from(1)
        self._note_literals(done)
        return done

    def _note_literals(self, carried_out: list[dict[str, Any]]) -> None:
        for one in carried_out:
            self.done[one["step"]] = StepDone(one["step"], one["title"], one["commit"] or "")

    def _literals_from(self, number: int) -> list[dict[str, Any]]:
        done: list[dict[str, Any]] = []
        for n, step in self.work.mission.plan.kept_from(number):
            if not step.actions:
                break
            done.append(self._literal(step, n))
        return done

    def _literal(self, step: Step, number: int) -> dict[str, Any]:
        work, record = self.work, self.work.record
        tools = {name: BY_NAME[name] for name in named(work.mission.plan)}
        place = replace(work.place, literal=True)
        for j, action in enumerate(step.actions):
            entry = LITERAL.at(number, j)
            use = ToolUse(entry.key, action.tool, action.params)
            outcome = record.get(entry)
            if outcome is None:
                work.limits.raise_if_stopping()
                before = CHECKPOINT.at(entry.key)
                if may_be_half_done(action.tool):
                    keep(work, before)
                again = partial(_restore_to, work, before)
                carried = record.carrier is not None
                outcome = call_on_record(
                    entry, use, tools, place, record, again=again, hold=carried
                )
                if carried:
                    keep_call(work, entry)
            work.limits.record_call(use, outcome)
            self.record_call(use, outcome)
            if self.trouble is not None:
                raise Stop(
                    End.TOOL_ERROR, f"Execution failed during tool operation: {self.trouble[0]}"
                )
        try:
            sha = self._commit(number, step.title)
        except ToolError as error:
            raise uncommitted(error) from error
        return {"step": number, "title": step.title, "commit": sha}

    def _commit(self, number: int, summary: str) -> str | None:
        """Commit a step's changes that are in scope; return the commit, None without changes."""
        work, record = self.work, self.work.record
        entry = STEP.at(number)
        known = record.get(entry)
        if known is not None:
            return known or None
        steps = work.mission.plan.steps
        title = steps[number - 1].title
        made = commit_once(work, entry, summary or title, f"Step {number} of {len(steps)}: {title}")
        files = len(made.paths)
        facts: dict[str, Any] = {
            "step": number,
            "of": len(steps),
            "commit": made.sha or "",
            "files": files,
        }
        rows = [record.row(Action.STEP_COMPLETED, Actor.AGENT, **facts)]
        if made.sha is not None:
            facts = {"commit": made.sha, "branch": work.tree.branch, "files": files, "step": number}
            rows.append(record.row(Action.GIT_COMMITTED, Actor.AGENT, Entity.REPOSITORY, **facts))
        record.settle(entry, made.sha or "", *rows, hold=True)
        record.carry()
        return made.sha

    # --- outcomes of calls
    # -------------------------------------------------------------------------------

    def record_call(self, use: ToolUse, outcome: Outcome) -> None:
        """Note a call's outcome, of this life or an earlier one."""
        work = self.work
        turns = len(work.limits.history.steps)
        self.calls[use.name] += 1
        about = target(use, work.place.secrets)
        missing = outcome.error_type == "command_not_found"
        may_write = outcome.ok and effect_of(use.name) is Effect.WRITE
        if effect_of(use.name) is Effect.EXECUTE and not outcome.image and (outcome.ok or missing):
            code = NOT_FOUND if missing else outcome.exit_code
            check = check_of(work.mission.plan, _argv(use))
            self.commands.append(CommandRun(about, code, check, not self.has_written))
            may_write = outcome.ok and not check
        self.has_written = self.has_written or may_write
        if use.name == "complete_step" and outcome.ok:
            self._completed(use, json.loads(outcome.content))
            # A model that completes a step after it read of a failure has judged it. In the same
            # answer it had not read it yet.
            if self.troubled_in < turns:
                self.trouble = None
            return
        error = {} if outcome.ok else json.loads(outcome.content)
        if error.get("error_type") in CHANGED_NOTHING:  # the same call failed before
            return
        if outcome.refused and self.open_step() is None:
            # a refused call after the last step: the steps are committed
            return
        self.troubled_in = turns
        if not outcome.ok:
            self.trouble = (use.name, error)
        elif outcome.exit_code not in (None, 0):
            failed = {
                "error": f"`{about}` ended with exit code {outcome.exit_code}",
                "error_type": "command_failed",
                "exit_code": outcome.exit_code,
            }
            self.trouble = (use.name, failed)
        else:
            self.trouble = None
            self.last_success = f"{use.name} {about}".strip()

    def _completed(self, use: ToolUse, result: dict[str, Any]) -> None:
        summary = redact(str(use.input.get("summary", "")), self.work.place.secrets)[0]
        self.done[result["step"]] = StepDone(result["step"], summary, result["commit"] or "")
        self._note_literals(result.get("carried_out", []))

    def tell_of_cut_off_calls(self) -> None:
        """Journal and report the calls that were running when the mission ended.

        They may have had part of their effect.
        """
        work, record = self.work, self.work.record
        for key in list(record.intents):
            entry = Key(key, Outcome)
            if not key.startswith((f"{CALL.key}:", f"{LITERAL.key}:")) or not record.cut_off(entry):
                continue
            begun = record.begun(Key(key, Begun))
            if begun is not None and changes_files(begun.tool):
                use = ToolUse(key, begun.tool, begun.input)
                secrets = work.place.secrets
                settle_call(entry, use, INTERRUPTED, None, secrets, record)
                self.calls[use.name] += 1
                if effect_of(use.name) is Effect.EXECUTE:
                    self.commands.append(CommandRun(target(use, secrets), None))


def _restore_to(work: RunningMission, before: Key[str]) -> bool:
    return restore_tree(work, work.record.get(before))


def _argv(use: ToolUse) -> Sequence[str]:
    """Return the argument list of a call that runs a command; a shell's text may be one."""
    command = str(use.input.get("command", ""))
    given = use.input.get("args")
    return words_of(command) if use.name == "bash" else [command, *map(str, given or ())]


def uncommitted(error: ToolError) -> Stop:
    """Return the end of a mission that cannot commit its work, with the error's type."""
    return Stop(End.TOOL_ERROR, error.message, error_type=error.error_type)
