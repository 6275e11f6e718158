"""Describe a tool's arguments to the model, and check them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from placet.errors import ToolError
from placet.wording import counted


class Args(BaseModel):
    """Base of every tool's arguments; unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


A = TypeVar("A", bound=Args)


def checked(tool: str, args: type[A], given: Mapping[str, Any]) -> A:
    """Check what a model gave as the arguments of `tool`, and return it.

    Raises ToolError `invalid_arguments` that lists every problem.
    """
    try:
        if other := {key: value for key, value in given.items() if key != "path"}:
            json.dumps(other, ensure_ascii=False).encode()
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError) as error:
        # A path may have bytes that are not UTF-8, written as lone surrogates. No other text may.
        is_half = isinstance(error, UnicodeEncodeError)
        why = "a lone surrogate is not valid text" if is_half else "they are not JSON"
        raise _invalid(tool, args, [f"arguments: {why}"]) from error
    try:
        return args.model_validate(dict(given))
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(p) for p in e['loc']) or 'arguments'}: {e['msg']}"
            + (
                did_you_mean(str(e["loc"][-1]), args.model_fields)
                if e["type"] == "extra_forbidden"
                else ""
            )
            for e in error.errors()
        ]
        raise _invalid(tool, args, problems) from error


def _invalid(tool: str, args: type[Args], problems: list[str]) -> ToolError:
    return ToolError(
        "invalid_arguments",
        f"{tool} was not called: {counted(len(problems), 'problem')} in its arguments.",
        problems=problems,
        parameters=sorted(args.model_fields),
    )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question about the most similar known word, "" if none is similar."""
    close = difflib.get_close_matches(word[:100], list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def schema(args: type[Args]) -> dict[str, Any]:
    """Return the JSON Schema of arguments without titles, which only repeat the names."""

    def bare(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                k: bare(v) for k, v in node.items() if not (k == "title" and isinstance(v, str))
            }
        return [bare(v) for v in node] if isinstance(node, list) else node

    whole: dict[str, Any] = args.model_json_schema()
    properties = {name: bare(value) for name, value in whole.pop("properties", {}).items()}
    whole.pop("description", None)
    return {**bare(whole), "properties": properties}
