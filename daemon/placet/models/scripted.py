"""Replay a model's replies from a file: for the demo, tests, and trying placet without a key.

The file is TOML. A conversation lists the model's replies to the requests that it names:

    [[conversation]]
    purpose = "plan"            # plan, revise or execute
    request = "*"               # glob on the request_id; the first conversation that fits is taken
    delay_s = 0.5               # optional: the wait before each reply; a reply may set its own

    [[conversation.reply]]
    text = "I look at the code first."      # optional
    # optional; also cache_read_tokens and cache_write_tokens:
    usage = { input_tokens = 1200, output_tokens = 80 }
    stop_reason = "tool_use"    # optional; by default `tool_use` with calls, else `end_turn`

    [[conversation.reply.call]]
    name = "read_file"
    input = { path = "src/app.py" }

    [[conversation.reply]]
    error = { kind = "transient", message = "busy", status = 529, retry_after_s = 1, times = 2 }
    text = "…"                  # what is said after the error has been raised twice

The next reply follows from the number of assistant turns, so it survives a kill of the daemon. Only
an error's `times` is counted in memory, per conversation; without `times` the error is raised each
time. The model costs nothing and uses no network.
"""

from __future__ import annotations

import json
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from placet.chat.messages import (
    Ask,
    Block,
    Model,
    ModelError,
    ModelErrorKind,
    Purpose,
    Reply,
    StopReason,
    Turn,
    Usage,
    text_block,
)
from placet.errors import UserError
from placet.host.config import ModelTable
from placet.wording import counted

_POLL_S = 0.1

_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Tokens = Annotated[int, Field(ge=0)]


class _ScriptTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _ScriptedCall(_ScriptTable):
    name: str = Field(min_length=1)
    input: dict[str, Any] = {}

    @field_validator("input")
    @classmethod
    def _is_json(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise ValueError("must be what JSON can say: no dates, times, nan or inf") from None
        return value


class _ScriptedUsage(_ScriptTable):
    input_tokens: _Tokens = 0
    output_tokens: _Tokens = 0
    cache_read_tokens: _Tokens = 0
    cache_write_tokens: _Tokens = 0


class _Error(_ScriptTable):
    kind: ModelErrorKind
    message: str = Field(min_length=1)
    status: int | None = None
    retry_after_s: _Seconds | None = None
    times: Annotated[int, Field(ge=1)] | None = None


class _ScriptedReply(_ScriptTable):
    text: str = ""
    call: tuple[_ScriptedCall, ...] = ()
    stop_reason: StopReason | None = None
    usage: _ScriptedUsage = _ScriptedUsage()
    delay_s: _Seconds | None = None
    error: _Error | None = None

    @model_validator(mode="after")
    def _is_reachable(self) -> _ScriptedReply:
        if self.error and self.error.times is None and (self.text or self.call or self.stop_reason):
            raise ValueError("an error without `times` is always raised: the rest is never said")
        return self


class _ScriptedConversation(_ScriptTable):
    purpose: Purpose
    request: str = "*"
    delay_s: _Seconds = 0.0
    reply: tuple[_ScriptedReply, ...] = Field(min_length=1)


class _Script(_ScriptTable):
    conversation: tuple[_ScriptedConversation, ...] = Field(min_length=1)


def open_model(settings: ModelTable, env: Mapping[str, str]) -> Model:  # noqa: ARG001 a provider's signature
    """Return the model that replays `settings.script`.

    Raises UserError (exit code 2), with every problem, if the file is missing or wrong.
    """
    if not settings.script:
        raise UserError(
            '[model] provider = "scripted" needs a file of replies',
            'Set script = "…" in [model], or another provider.',
            exit_code=2,
        )
    path = Path(settings.script)
    return ScriptedModel(path, _read(path), settings.name)


class ScriptedModel:
    """The replies of one file. Thread-safe."""

    provider = "scripted"

    def __init__(self, path: Path, script: _Script, name: str) -> None:
        self.name = name
        self._path = path
        self._script = script
        self._raised: Counter[tuple[int, int, str, str]] = Counter()
        self._lock = threading.Lock()

    def reply(
        self,
        ask: Ask,
        cancelled: Callable[[], bool],
        received: Callable[[int], None] = lambda _pieces: None,  # noqa: ARG002 - it comes whole
    ) -> Reply:
        """Return the next reply after its delay, or raise ModelError as the file says.

        Raises ModelError (bad request) if no conversation fits, or if it has ended.
        """
        number, conversation = self._conversation_for(ask)
        at = sum(turn.role == "assistant" for turn in ask.turns)
        if at >= len(conversation.reply):
            raise ModelError(
                ModelErrorKind.BAD_REQUEST,
                f"{self._path}: conversation {number} ({conversation.purpose}, request"
                f" {conversation.request!r}) ends after "
                f"{counted(len(conversation.reply), 'reply', 'replies')},"
                f" but {ask.request_id} asks for reply {at + 1}. Add it to the file.",
            )
        due = conversation.reply[at]
        _wait(conversation.delay_s if due.delay_s is None else due.delay_s, cancelled)
        if due.error and self._is_raised(due.error, (number, at, ask.request_id, ask.trace_id)):
            raise ModelError(
                due.error.kind,
                due.error.message,
                status=due.error.status,
                retry_after_s=due.error.retry_after_s,
            )
        return _reply(due, at, self.name)

    def _conversation_for(self, ask: Ask) -> tuple[int, _ScriptedConversation]:
        for number, conversation in enumerate(self._script.conversation, start=1):
            if conversation.purpose is ask.purpose and fnmatchcase(
                ask.request_id, conversation.request
            ):
                return number, conversation
        raise ModelError(
            ModelErrorKind.BAD_REQUEST,
            f"{self._path}: no conversation has purpose {ask.purpose.value!r} and a request that"
            f" fits {ask.request_id!r}. Add one to the file.",
        )

    def _is_raised(self, error: _Error, place: tuple[int, int, str, str]) -> bool:
        if error.times is None:
            return True
        with self._lock:
            self._raised[place] += 1
            return self._raised[place] <= error.times


def _reply(due: _ScriptedReply, at: int, name: str) -> Reply:
    blocks: list[Block] = [text_block(due.text)] if due.text.strip() else []
    blocks += [
        {
            "type": "tool_use",
            "id": f"scripted_{at + 1}_{number}",
            "name": call.name,
            "input": call.input,
        }
        for number, call in enumerate(due.call, start=1)
    ]
    stop_reason = due.stop_reason or (StopReason.TOOL_USE if due.call else StopReason.END_TURN)
    usage = Usage(
        due.usage.input_tokens,
        due.usage.output_tokens,
        due.usage.cache_read_tokens,
        due.usage.cache_write_tokens,
    )
    return Reply(Turn("assistant", tuple(blocks)), stop_reason, usage, name)


def _wait(delay_s: float, cancelled: Callable[[], bool]) -> None:
    until = time.monotonic() + delay_s
    while True:
        if cancelled():
            raise ModelError(ModelErrorKind.CANCELLED, "the call was cancelled")
        left_s = until - time.monotonic()
        if left_s <= 0:
            return
        time.sleep(min(_POLL_S, left_s))


def _read(path: Path) -> _Script:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"{path}: the file of replies cannot be read: {error.strerror}",
            "Fix script in [model].",
            exit_code=2,
        ) from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise UserError(f"{path}: not TOML: {error}", "Fix the file.", exit_code=2) from None
    try:
        return _Script.model_validate(tables)
    except ValidationError as error:
        problems = [
            f"  {'.'.join(str(part) for part in problem['loc']) or 'file'}: {problem['msg']}"
            for problem in error.errors(include_url=False)
        ]
        raise UserError(
            f"{path}: {len(problems)} wrong in the file of replies\n" + "\n".join(problems),
            "Fix the file; positions count from 0.",
            exit_code=2,
        ) from None
