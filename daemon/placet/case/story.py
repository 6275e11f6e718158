"""Turn journal rows into sentences, one for each event."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from placet.activity import Action, CommittedRow, Entity
from placet.errors import BUGS, ENDS, FailureClass
from placet.note.paths import Folder, show
from placet.plan.differences import without_difference
from placet.wording import counted, dollars, numbered_steps, one_line


class Lenient(dict[str, Any]):
    """Metadata in which a missing key is a question mark: telling must never stop the work."""

    def __missing__(self, key: str) -> str:
        return "?"


def by(data: Mapping[str, Any]) -> str:
    """Return whose act a row is."""
    signed = f", signed by {data['signer']}" if "signer" in data else ""
    return f"by {data['reviewed_by']}{signed}"


def answer_kind(data: Mapping[str, Any]) -> str:
    """Return what kind of answer a row is about; the answer itself is in the note."""
    if data.get("taken_away"):
        return "without an answer"
    return f"option {data['chosen']}" if data.get("chosen") else "in their own words"


def more_scope(data: Mapping[str, Any]) -> str:
    """Return what a mission asks for besides its scope, on one line, from the row about it."""
    return "; ".join(
        [
            *([f"write {', '.join(map(str, write))}"] if (write := data.get("write")) else []),
            *(f"run {command}" for command in data.get("run") or ()),
            *(["network"] if data.get("network") else []),
            *([f"hosts {', '.join(map(str, hosts))}"] if (hosts := data.get("hosts")) else []),
        ]
    )


def files_changed(data: Mapping[str, Any]) -> int:
    """Return the number of files that a mission changed; a row names only the first ones."""
    more = data.get("files_more")
    return len(data.get("files_changed") or ()) + (more if isinstance(more, int) else 0)


def facts(action: str, data: Mapping[str, Any]) -> str:
    """Return a row as a line for people: the story's sentence, or what its metadata says."""
    tell = _SENTENCES.get(action) or _FACTS.get(action, _all_facts)
    return tell(_lenient(action, data))


def _lenient(action: str, data: Mapping[str, Any]) -> Lenient:
    """Return a row's metadata with its path for people; rows of side notes have it so."""
    if isinstance(path := data.get("path"), str) and action not in _SIDE_NOTES:
        return Lenient(data, path=show(path))
    return Lenient(data)


def _all_facts(data: Mapping[str, Any]) -> str:
    return " ".join(
        f"{key}={_value(value)}" for key, value in data.items() if value not in (None, "", [])
    )


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value[:12] if len(value) in (40, 64) and value.isalnum() else value
    return json.dumps(value, ensure_ascii=False)


def _model_called(data: Mapping[str, Any]) -> str:
    usd = data["cost_usd"]
    cost = dollars(usd if isinstance(usd, (int, float)) else None)
    tokens_in, cached, out = (
        _thousands(data[f"{kind}_tokens"]) for kind in ("input", "cache_read", "output")
    )
    tokens = f"{tokens_in} + {cached} cached tokens in, {out} out"
    return f"{data['purpose']}: {data['model']}, {tokens}, {cost}"


def _thousands(number: object) -> str:
    return f"{number:,}" if isinstance(number, int) else str(number)


def _tool_called(data: Mapping[str, Any]) -> str:
    end = "" if data.get("ok") else f": {data['error_type']}"
    if data.get("exit_code") is not None:
        end = f": exit code {data['exit_code']}"
    return f"{data['tool']} {data['target']}{end}"


def _short(digest: object) -> str:
    return str(digest)[:12]


_FACTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    Action.MODEL_CALLED: _model_called,
    Action.MODEL_FAILED: lambda d: f"{d['purpose']}: attempt {d['attempt']} failed: {d['reason']}",
    Action.TOOL_CALLED: _tool_called,
    Action.TOOL_REFUSED: _tool_called,
    Action.GIT_COMMITTED: lambda d: f"{_short(d['commit'])} on {d['branch']}",
    Action.GIT_BRANCH_CREATED: lambda d: f"{d['branch']} from {_short(d['base'])}",
    Action.GIT_RAN: lambda d: (
        f"{d['operation']}, {d['duration_ms']} ms" + (f": {d['stderr']}" if "stderr" in d else "")
    ),
}


# A longer reason is cut here; `placet why` has all of it.
MAX_CHARS = 300


class Verbosity(IntEnum):
    """From which on a line is said: `-q` leaves only trouble, `-v` adds details."""

    TROUBLE = 0
    EVENT = 1
    DETAIL = 2


@dataclass(slots=True)
class Story:
    """Turns rows into lines, in order. It remembers what it said, to say it once.

    `trouble` is the model's last failure; `edited` are the requests (by trace id) whose
    last row was an edit: an editor that saves every few seconds makes many of them.
    """

    trouble: str = ""
    edited: frozenset[str] = frozenset()
    heard: tuple[str, ...] = ()

    def hear(self, text: str) -> None:
        """Remember a text: a side note that repeats it is not told again."""
        # a new tuple: several threads say things
        self.heard = (*self.heard[-7:], one_line(text))

    def line(self, row: CommittedRow) -> tuple[Verbosity, str] | None:
        """Return the verbosity and the sentence of a row, None for a row that is not told.

        Never raises, whatever the row holds: others than placet may have written it.
        """
        subject = "" if row.entity_type == Entity.DAEMON else one_line(row.entity_id)
        try:
            told_line = self._told(row, row.details)
        except BUGS:
            told_line = (Verbosity.DETAIL, f"{row.action_type}: this row cannot be read")
        if told_line is None:
            return None
        text = textwrap.shorten(told_line[1], MAX_CHARS, placeholder=" …")
        return told_line[0], f"{subject}: {text}" if subject else text

    def _told(self, row: CommittedRow, data: Mapping[str, Any]) -> tuple[Verbosity, str] | None:
        told_line = self._model(row.action_type, data)
        edited = row.action_type == Action.REQUEST_EDITED
        again = edited and row.trace_id in self.edited
        self.edited = self.edited | {row.trace_id} if edited else self.edited - {row.trace_id}
        if told_line is None and (say := _SENTENCES.get(row.action_type)) is not None:
            loud = Verbosity.TROUBLE if row.action_type in _TROUBLE else Verbosity.EVENT
            text = say(_lenient(row.action_type, data))
            if self.trouble and row.action_type in _SIDE_NOTES and self.trouble in text:
                text = ""  # said already, of the model
            elif row.action_type in _SIDE_NOTES and self._was_heard(str(data.get("reason") or "?")):
                text = ""
            elif self.trouble and row.action_type == Action.EXECUTION_RESUMED:
                loud = Verbosity.DETAIL  # it is the next try
            elif again:
                loud = Verbosity.DETAIL
            told_line = (loud, text) if text else None
            if row.action_type == Action.PLAN_FAILED:
                self.hear(str(data.get("reason") or ""))
        elif told_line is None and row.action_type not in _SAID_BY_THE_LOOP:
            told_line = (
                Verbosity.DETAIL,
                f"{row.action_type} {facts(row.action_type, data)}".rstrip(),
            )
        return told_line

    def _was_heard(self, reason: str) -> bool:
        line = one_line(reason)
        return any(heard and (heard.endswith(line) or heard in line) for heard in self.heard)

    def _model(self, action: str, data: Mapping[str, Any]) -> tuple[Verbosity, str] | None:
        """Say when the model stops answering and when it answers again, not each attempt."""
        if (
            action == Action.MODEL_FAILED
            and data.get("kind") == "transient"
            and data.get("reason") != self.trouble
        ):
            self.trouble = str(data.get("reason"))
            return (
                Verbosity.TROUBLE,
                f"the model does not answer: {self.trouble.rstrip('.')}. It is asked again.",
            )
        if action == Action.MODEL_CALLED and self.trouble:
            self.trouble = ""
            return Verbosity.TROUBLE, "the model answers again"
        return None


def _money(usd: object) -> str:
    return f", {dollars(usd)}" if isinstance(usd, float) else ""


def _because(data: Mapping[str, Any]) -> str:
    return f": {data['reason']}" if data.get("reason") else ", without a reason"


def _words(data: Mapping[str, Any]) -> str:
    """Return the text of a side note without the difference that it may show."""
    return without_difference(str(data["reason"]))


def _plan_waits(data: Mapping[str, Any]) -> str:
    where = f": {data['path']}" if data.get("path") else ""
    steps = counted(data["steps"], "step")
    return f"a plan waits for you (revision {data['revision']}, {steps}){where}"


def _without(data: Mapping[str, Any]) -> str:
    left_out = data.get("steps_left_out")
    return f", without {numbered_steps(left_out)}" if left_out else ""


def _answered(data: Mapping[str, Any]) -> str:
    if data.get("taken_away"):
        return f"its question was removed {by(data)}; the work continues without an answer"
    return f"its question was answered {by(data)}, {answer_kind(data)}; the work continues"


# By the reason in its row: an old journal may hold one that placet no longer knows.
_ENDED = {str(end): verdict.kind for end, verdict in ENDS.items()}


def _completed(data: Mapping[str, Any]) -> str:
    what = (
        f"{counted(files_changed(data), 'file')} changed on {data['branch']}"
        if data.get("commit")
        else "nothing had to be changed"
    )
    doubt = "".join(f"; {one}" for one in data.get("doubts", ())[:1]).removesuffix(".")
    return f"completed: {what}{_money(data.get('cost_usd'))}{doubt}"


def _failed(data: Mapping[str, Any]) -> str:
    kind, cost = _ENDED.get(data["reason"], data["reason"]), _money(data.get("cost_usd"))
    if kind is FailureClass.NO_CHANGE:  # the rest says the same again
        return f"failed: {kind}{cost}"
    after = f" after {counted(data['iterations'], 'iteration')}"
    return f"failed: {kind}{after}{cost}" + (f": {data['detail']}" if data.get("detail") else "")


def _taken_back(data: Mapping[str, Any]) -> str:
    if data.get("running"):
        return f"its approval was withdrawn {by(data)}; the mission stops at the next safe point"
    if data.get("returned"):
        return "its plan is back in Inbox/Plans and waits for you again"
    return f"its approval was withdrawn {by(data)}; the plan waits for you again"


def _changed_after(data: Mapping[str, Any]) -> str:
    if data.get("running"):
        return (
            "its plan was edited during the mission, which has no effect: "
            "the mission follows the approved text"
        )
    return "its plan was edited after the approval, which is void; the plan waits for you again"


def unfinished(data: Mapping[str, Any], one: str, many: str) -> str:
    """Return the unfinished work at a start or stop, and what waits for you; "" for nothing.

    `one` and `many` are what a mission does, or several: `resumes at the next start`, `resume`.
    """
    missions = data.get("missions") or []
    parts = []
    if missions:
        at = ", ".join(str(m) for m in missions[:MAX_NAMED]) + (
            " …" if len(missions) > MAX_NAMED else ""
        )
        parts.append(
            f"{counted(len(missions), 'mission')} {one if len(missions) == 1 else many}: {at}"
        )
    if planning := data.get("planning"):
        parts.append(
            f"{counted(planning, 'plan')} {'is' if planning == 1 else 'are'} to be written"
        )
    if review := data.get("review"):
        parts.append(
            f"{counted(review, 'plan')} {'waits' if review == 1 else 'wait'} for you (placet plans)"
        )
    if asking := data.get("asking"):
        one = "question is" if asking == 1 else "questions are"
        parts.append(f"{asking} {one} waiting for your answer (placet review)")
    return "; ".join(parts)


# How many missions a line names.
MAX_NAMED = 5

_SIDE_NOTES = (Action.NOTE_EXPLAINED, Action.REQUEST_INVALID)
_SAID_BY_THE_LOOP = (
    Action.MODEL_WAITING,
    Action.MODEL_RESUMED,
    Action.JOURNAL_RECONCILED,
    Action.GIT_RAN,
)
_TROUBLE = frozenset({
    *_SIDE_NOTES, Action.PLAN_FAILED, Action.PLAN_CHANGED_AFTER_APPROVAL, Action.PLAN_REFUSED,
    Action.PLAN_DRIFTED, Action.EXECUTION_FAILED,
})  # fmt: skip

_SENTENCES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    Action.REQUEST_DETECTED: lambda d: (
        "you asked for a new plan"
        if d.get("again")
        else f"request seen: {d['path']}; a plan follows"
    ),
    Action.REQUEST_EDITED: lambda d: f"the request was edited {by(d)}; placet plans it again",
    Action.REQUEST_WITHDRAWN: lambda d: f"the request was removed: {d['path']}",
    Action.REQUEST_INVALID: lambda d: f"{d['path']} cannot be used: {_words(d)}",
    Action.NOTE_EXPLAINED: lambda d: f"about {d['path']}: {_words(d)}",
    Action.PLAN_CREATED: _plan_waits,
    Action.PLAN_REVISED: _plan_waits,
    Action.PLAN_FAILED: lambda d: f"there is no plan: {d['reason']}",
    Action.PLAN_APPROVED: lambda d: (
        f"approved {by(d)}"
        + (", as edited" if d.get("edited") else "")
        + (f", with {counted(n, 'remark')}" if (n := d.get("comment_count")) else "")
        + _without(d)
    ),
    Action.PLAN_REJECTED: lambda d: f"rejected {by(d)}{_because(d)}",
    Action.PLAN_REVISION_REQUESTED: lambda d: (
        f"changes requested {by(d)} ({counted(d['comment_count'], 'comment')}); "
        "the plan is being revised"
    ),
    Action.PLAN_CHANGED_AFTER_APPROVAL: _changed_after,
    Action.PLAN_REFUSED: lambda d: f"not approved: {d['reason']}",
    Action.PLAN_DRIFTED: lambda d: (
        f"its plan returned to review: {d['reason']}" if d.get("reason") else ""
    ),
    Action.PLAN_TAKEN_BACK: _taken_back,
    Action.PLAN_WITHDRAWN: lambda d: f"its plan was removed: {d['path']}",
    Action.PLAN_EDITED: lambda d: f"its plan was edited {by(d)}",
    Action.PLAN_ADOPTED: lambda d: (
        "a plan that is not in the journal "
        f"{'was added to it' if Folder.REJECTED in d['path'] else 'waits for you'}: {d['path']}"
    ),
    Action.QUESTION_ASKED: lambda d: f"is waiting for your answer: {d['path']}",
    Action.QUESTION_ANSWERED: _answered,
    Action.PLAN_AMENDMENT_REQUESTED: lambda d: (
        f"its mission needs a wider scope ({more_scope(d)}) and is waiting for you: {d['path']}"
    ),
    Action.PLAN_AMENDED: lambda d: f"the wider scope was approved {by(d)}; the mission continues",
    Action.PLAN_AMENDMENT_REJECTED: lambda d: (
        f"the wider scope was rejected {by(d)}{_because(d)}; the mission continues without it"
    ),
    Action.EXECUTION_STARTED: lambda d: (
        f"the mission started: {counted(d['steps'], 'step')}{_without(d)}; "
        f"commands run in: {d['sandbox']}"
    ),
    Action.EXECUTION_RESUMED: lambda d: f"resuming the mission at iteration {d['iteration']}",
    Action.STEP_COMPLETED: lambda d: f"step {d['step']} of {d['of']} done",
    Action.EXECUTION_COMPLETED: _completed,
    Action.EXECUTION_FAILED: _failed,
    Action.REPORT_WRITTEN: lambda d: f"report: {d['path']}",
    Action.FAILURE_DETECTED: lambda d: (
        f"noticed: {str(d['description']).removeprefix('Noticed: ')}"
    ),
    Action.GIT_INITIALIZED: lambda d: (
        f"created a git repository in {d['path']}, with a first commit of its files"
    ),
    Action.PR_MERGED: lambda d: (
        f"{d['branch']} was merged {by(d)}"
        if "reviewed_by" in d
        else f"{d['branch']} was merged into {d['into']} by commit {d['commit_sha'][:12]}"
    ),
    Action.PR_GONE: lambda d: f"{d['branch']} is gone; placet does not know whether it was merged",
    Action.PR_REJECTED: lambda d: (
        f"{d['branch']} was dropped {by(d)}{_because(d)}"
        if "reviewed_by" in d
        else f"{d['branch']} was dropped"
    ),
    Action.PR_REJECTION_EXPLAINED: lambda d: f"why {d['branch']} was dropped: {d['reason']}",
    Action.PR_REVERTED: lambda d: (
        f"the merge of {d['branch']} was undone {by(d)}"
        if "reviewed_by" in d
        else f"{d['branch']} was reverted on {d['into']} by commit {d['commit_sha'][:12]}"
    ),
    Action.PR_REOPENED: lambda d: f"{d['branch']} exists again",
    Action.DAEMON_STARTED: lambda d: unfinished(d, "resumes", "resume"),
    Action.DAEMON_STOPPED: lambda d: (
        "stopped; "
        + (
            unfinished(d, "resumes at the next start", "resume at the next start")
            or "nothing was in progress"
        )
    ),
}
