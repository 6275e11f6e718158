"""A journal row's metadata as one line for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from placet.activity import Action
from placet.core.wording import counted, dollars


class Lenient(dict[str, Any]):
    """Metadata in which a missing key is a question mark: telling must never stop the work."""

    def __missing__(self, key: str) -> str:
        return "?"


def by(data: Mapping[str, Any]) -> str:
    """Return whose act a row is."""
    return f"by {data['reviewed_by']}"


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
        ]
    )


def files_changed(data: Mapping[str, Any]) -> int:
    """Return the number of files that a mission changed; a row names only the first ones."""
    more = data.get("files_more")
    return len(data.get("files_changed") or ()) + (more if isinstance(more, int) else 0)


def facts(action: str, data: Mapping[str, Any]) -> str:
    """Return a row's metadata as a line for people."""
    return _FACTS.get(action, _all_facts)(Lenient(data))


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
        f"revision {d['revision']}, {counted(d['steps'], 'step')}, digest {_short(d['digest'])}"
    ),
    Action.PLAN_APPROVED: lambda d: (
        f"{by(d)}, digest {_short(d['digest'])}"
        + (", edited" if d.get("edited") else "")
        + (f", without steps {left}" if (left := d.get("steps_left_out")) else "")
    ),
    Action.QUESTION_ASKED: lambda d: str(d["path"]),
    Action.QUESTION_ANSWERED: lambda d: f"{by(d)}, {answer_kind(d)}",
    Action.PLAN_AMENDMENT_REQUESTED: lambda d: f"{more_scope(d)}, {d['path']}",
    Action.PLAN_AMENDED: lambda d: f"{by(d)}, digest {_short(d['digest'])}",
    Action.EXECUTION_STARTED: lambda d: f"digest {_short(d['digest'])}, sandbox: {d['sandbox']}",
    Action.STEP_COMPLETED: lambda d: (
        f"step {d['step']} of {d['of']}, {counted(d['files'], 'file')}"
    ),
    Action.GIT_COMMITTED: lambda d: f"{_short(d['commit'])} on {d['branch']}",
    Action.GIT_BRANCH_CREATED: lambda d: f"{d['branch']} from {_short(d['base'])}",
    Action.EXECUTION_COMPLETED: lambda d: (
        f"{d['branch']}: {counted(files_changed(d), 'file')}, "
        f"{counted(d['iterations'], 'iteration')}"
    ),
    Action.EXECUTION_FAILED: lambda d: (
        f"{d['reason']} after {counted(d['iterations'], 'iteration')}"
    ),
    Action.REPORT_WRITTEN: lambda d: str(d["path"]),
}
