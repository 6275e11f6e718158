"""The journal as a person in front of the daemon reads it: a sentence for each event."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from placet.core.activity import Action, CommittedRow, Entity
from placet.core.text.comments import without_difference
from placet.core.text.names import Folder
from placet.core.wording import counted, dollars, one_line

# A longer reason is cut here; `placet why` has all of it.
MAX_CHARS = 300


class Loud(IntEnum):
    """From which on a line is said: `-q` leaves only trouble, `-v` adds details."""

    TROUBLE = 0
    EVENT = 1
    DETAIL = 2


@dataclass(slots=True)
class Story:
    """Turns rows into lines, in order. It remembers what need be said only once.

    `trouble` is what the model's last failure was; `edited` are the requests (by trace id) of which
    an edit was the last thing that happened: an editor that saves every few seconds makes many of
    one.
    """

    trouble: str = ""
    edited: frozenset[str] = frozenset()
    heard: tuple[str, ...] = ()

    def hear(self, text: str) -> None:
        """Take in the daemon's own words: a side note that repeats them is not told again."""
        # a new tuple: several threads say things
        self.heard = (*self.heard[-7:], one_line(text))

    def line(self, row: CommittedRow) -> tuple[Loud, str] | None:
        """Return how loud and what is said of a row, None for one that nobody waits for.

        Never raises for odd metadata.
        """
        data = row.details
        who = "" if row.entity_type == Entity.DAEMON or not row.entity_id else f"{row.entity_id}: "
        told = self._model(row.action_type, data)
        edited = row.action_type == Action.REQUEST_EDITED
        again = edited and row.trace_id in self.edited
        self.edited = self.edited | {row.trace_id} if edited else self.edited - {row.trace_id}
        if told is None and (sentence := _SENTENCES.get(row.action_type)) is not None:
            loud, say = sentence
            text = say(_Lenient(data))
            if self.trouble and row.action_type in _SIDE_NOTES and self.trouble in text:
                text = ""  # said already, of the model
            elif row.action_type in _SIDE_NOTES and self._was_heard(str(data.get("reason") or "?")):
                text = ""
            elif self.trouble and row.action_type == Action.EXECUTION_RESUMED:
                loud = Loud.DETAIL  # it is the next try
            elif again:
                loud = Loud.DETAIL
            told = (loud, text) if text else None
        elif told is None and row.action_type not in _SAID_BY_THE_LOOP:
            told = Loud.DETAIL, f"{row.action_type} {facts(row.action_type, data)}".rstrip()
        return None if told is None else (told[0], who + one_line(told[1], MAX_CHARS))

    def _was_heard(self, reason: str) -> bool:
        line = one_line(reason)
        return any(said.endswith(line) for said in self.heard)

    def _model(self, action: str, data: Mapping[str, Any]) -> tuple[Loud, str] | None:
        """Say when the model stops answering and when it answers again, not each attempt."""
        if (
            action == Action.MODEL_FAILED
            and data.get("kind") == "transient"
            and data.get("reason") != self.trouble
        ):
            self.trouble = str(data.get("reason"))
            return (
                Loud.TROUBLE,
                f"the model does not answer: {self.trouble.rstrip('.')}. It is asked again.",
            )
        if action == Action.MODEL_CALLED and self.trouble:
            self.trouble = ""
            return Loud.TROUBLE, "the model answers again"
        return None


class _Lenient(dict[str, Any]):
    """Metadata in which a missing key is a question mark: telling must never stop the work."""

    def __missing__(self, key: str) -> str:
        return "?"


def _money(usd: object) -> str:
    return f", {dollars(usd)}" if isinstance(usd, float) else ""


def _by(data: Mapping[str, Any]) -> str:
    return f"by {data['reviewed_by']}"


def _because(data: Mapping[str, Any]) -> str:
    return f": {data['reason']}" if data.get("reason") else ", without a reason"


def _words(data: Mapping[str, Any]) -> str:
    """Return the text of a side note without the difference that it may show."""
    return without_difference(str(data["reason"]))


def _plan_waits(data: Mapping[str, Any]) -> str:
    where = f": {data['path']}" if data.get("path") else ""
    steps = counted(data["steps"], "step")
    return f"a plan waits for you (revision {data['revision']}, {steps}){where}"


def _completed(data: Mapping[str, Any]) -> str:
    files = data.get("files_changed") or []
    what = (
        f"{counted(len(files), 'file')} changed on {data['branch']}"
        if data.get("commit")
        else "nothing had to be changed"
    )
    return f"completed: {what}{_money(data.get('cost_usd'))}"


def _taken_back(data: Mapping[str, Any]) -> str:
    if data.get("running"):
        return f"its plan was taken back {_by(data)}: the mission stops at the next safe point"
    return f"its plan was taken back {_by(data)}, and waits for a decision"


def _changed_after(data: Mapping[str, Any]) -> str:
    if data.get("running"):
        return (
            "its plan was edited during the mission, which has no effect: the approved text goes on"
        )
    return "its plan was edited after the approval, which is void: it waits for you again"


def unfinished(data: Mapping[str, Any], one: str, many: str) -> str:
    """Return what goes on of what `left_over` found, and what waits for a person.

    Empty where nothing does.

    `one` and `many` say what a mission does, or several: `goes on at the next start`, `are taken up
    again`.
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
    return "; ".join(parts)


# How many missions a line names.
MAX_NAMED = 5

_SIDE_NOTES = (Action.NOTE_EXPLAINED, Action.REQUEST_INVALID)
_SAID_BY_THE_LOOP = (
    Action.MODEL_WAITING,
    Action.MODEL_RESUMED,
    Action.JOURNAL_RECONCILED,
    Action.JOURNAL_ARCHIVED,
    Action.GIT_RAN,
)

_SENTENCES: Mapping[str, tuple[Loud, Callable[[Mapping[str, Any]], str]]] = {
    Action.REQUEST_DETECTED: (
        Loud.EVENT,
        lambda d: (
            "a new plan was asked for"
            if d.get("again")
            else f"request seen: {d['path']}; a plan follows"
        ),
    ),
    Action.REQUEST_EDITED: (
        Loud.EVENT,
        lambda d: f"the request was edited {_by(d)}; it is planned again",
    ),
    Action.REQUEST_WITHDRAWN: (Loud.EVENT, lambda d: f"the request was taken away: {d['path']}"),
    Action.REQUEST_INVALID: (Loud.TROUBLE, lambda d: f"{d['path']} cannot be used: {_words(d)}"),
    Action.NOTE_EXPLAINED: (Loud.TROUBLE, lambda d: f"about {d['path']}: {_words(d)}"),
    Action.PLAN_CREATED: (Loud.EVENT, _plan_waits),
    Action.PLAN_REVISED: (Loud.EVENT, _plan_waits),
    Action.PLAN_FAILED: (Loud.TROUBLE, lambda d: f"there is no plan: {d['reason']}"),
    Action.PLAN_APPROVED: (
        Loud.EVENT,
        lambda d: f"approved {_by(d)}" + (", as edited" if d.get("edited") else ""),
    ),
    Action.PLAN_REJECTED: (Loud.EVENT, lambda d: f"rejected {_by(d)}{_because(d)}"),
    Action.PLAN_REVISION_REQUESTED: (
        Loud.EVENT,
        lambda d: (
            f"changes asked for {_by(d)} ({counted(d['comment_count'], 'comment')}); "
            "the plan is being revised"
        ),
    ),
    Action.PLAN_CHANGED_AFTER_APPROVAL: (Loud.TROUBLE, _changed_after),
    Action.PLAN_REFUSED: (Loud.TROUBLE, lambda d: f"not approved: {d['reason']}"),
    Action.PLAN_DRIFTED: (
        Loud.TROUBLE,
        lambda d: f"its plan was put back: {d['reason']}" if d.get("reason") else "",
    ),
    Action.PLAN_TAKEN_BACK: (Loud.EVENT, _taken_back),
    Action.PLAN_WITHDRAWN: (Loud.EVENT, lambda d: f"its plan was taken away: {d['path']}"),
    Action.PLAN_EDITED: (Loud.EVENT, lambda d: f"its plan was edited {_by(d)} while it is revised"),
    Action.PLAN_ADOPTED: (
        Loud.EVENT,
        lambda d: (
            "a plan that the journal does not know "
            f"{'was taken up' if Folder.REJECTED in d['path'] else 'waits for you'}: {d['path']}"
        ),
    ),
    Action.EXECUTION_STARTED: (
        Loud.EVENT,
        lambda d: (
            f"the mission began: {counted(d['steps'], 'step')}; commands run in: {d['sandbox']}"
        ),
    ),
    Action.EXECUTION_RESUMED: (
        Loud.EVENT,
        lambda d: f"the mission is taken up again at iteration {d['iteration']}",
    ),
    Action.STEP_COMPLETED: (Loud.EVENT, lambda d: f"step {d['step']} of {d['of']} done"),
    Action.EXECUTION_COMPLETED: (Loud.EVENT, _completed),
    Action.EXECUTION_FAILED: (
        Loud.TROUBLE,
        lambda d: (
            f"failed: {d['reason']} after {counted(d['iterations'], 'iteration')}"
            f"{_money(d.get('cost_usd'))}" + (f": {d['detail']}" if d.get("detail") else "")
        ),
    ),
    Action.REPORT_WRITTEN: (Loud.EVENT, lambda d: f"report: {d['path']}"),
    Action.FAILURE_DETECTED: (
        Loud.EVENT,
        lambda d: f"noticed: {str(d['description']).removeprefix('Noticed: ')}",
    ),
    Action.GIT_INITIALIZED: (
        Loud.EVENT,
        lambda d: f"made a git repository of {d['path']}, with a first commit of what is there",
    ),
    Action.PR_MERGED: (Loud.EVENT, lambda d: f"{d['branch']} was merged {_by(d)}"),
    Action.PR_REJECTED: (Loud.EVENT, lambda d: f"{d['branch']} was dropped {_by(d)}{_because(d)}"),
    Action.PR_REVERTED: (
        Loud.EVENT,
        lambda d: f"the merge of {d['branch']} was taken back {_by(d)}",
    ),
    Action.PR_REOPENED: (Loud.EVENT, lambda d: f"{d['branch']} is there again"),
    Action.DAEMON_STARTED: (
        Loud.EVENT,
        lambda d: unfinished(d, "is taken up again", "are taken up again"),
    ),
    Action.DAEMON_STOPPED: (
        Loud.EVENT,
        lambda d: (
            "ended; "
            + (
                unfinished(d, "goes on at the next start", "go on at the next start")
                or "nothing is left for the next start"
            )
        ),
    ),
}


# --- one row's facts


def facts(action: str, data: Mapping[str, Any]) -> str:
    """Return a row's metadata as a line for people."""
    return _FACTS.get(action, _all_facts)(_Lenient(data))


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
    Action.TOOL_CALLED: _tool_called,
    Action.TOOL_REFUSED: _tool_called,
    Action.REQUEST_DETECTED: lambda d: f"{d.get('path', '')} by {d['reviewed_by']}".lstrip(),
    Action.PLAN_CREATED: lambda d: (
        f"revision {d['revision']}, {d['steps']} steps, digest {_short(d['digest'])}"
    ),
    Action.PLAN_APPROVED: lambda d: (
        f"{_by(d)}, digest {_short(d['digest'])}" + (", edited" if d.get("edited") else "")
    ),
    Action.EXECUTION_STARTED: lambda d: f"digest {_short(d['digest'])}, sandbox: {d['sandbox']}",
    Action.STEP_COMPLETED: lambda d: f"step {d['step']} of {d['of']}, {d['files']} files",
    Action.GIT_COMMITTED: lambda d: f"{_short(d['commit'])} on {d['branch']}",
    Action.GIT_BRANCH_CREATED: lambda d: f"{d['branch']} from {_short(d['base'])}",
    Action.EXECUTION_COMPLETED: lambda d: (
        f"{d['branch']}: {len(d.get('files_changed', ()))} files, {d['iterations']} iterations"
    ),
    Action.EXECUTION_FAILED: lambda d: f"{d['reason']} after {d['iterations']} iterations",
    Action.REPORT_WRITTEN: lambda d: str(d["path"]),
}
