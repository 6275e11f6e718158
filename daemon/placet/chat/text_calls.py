"""Read a call that a model wrote as text, and describe tools to such a model.

Some servers hand tool calls on as text: their chat template has no tools, or its parser does not
fit the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from html import unescape
from typing import Any
from unicodedata import normalize

from placet.chat.messages import ToolSpec, ToolUse, Turn
from placet.codec import is_deeper

# Where a call can begin: not quoted, not indented as code, not in the middle of a line.
_BEGINS = re.compile(r"^ {0,3}(?=```json\s|<tool_call>|<tools>|<function[\s=]|\{)", re.MULTILINE)
_CALL = re.compile(
    r"""```json\s+(?P<fence>\{.*\})\s*```
    |(?:<(?P<tag>tool_call|tools)>\s*)?
     (?:<function(?:=|\s+name=)["']?(?P<name>\w+)["']?
        (?:\s+arguments=(?P<quote>["'])(?P<attribute>\{.*\})(?P=quote)\s*/?>(?:\s*</function>)?
          |\s*>\s*(?P<body>\{.*\})\s*</function>)
       |(?P<bare>\{.*\}))
     (?(tag)\s*</(?P=tag)>)""",
    re.DOTALL | re.VERBOSE,
)
_LIKE_A_CALL = re.compile(r"""<tool_call|<tools\b|<function[\s=]|"name"\s*:""")
_QUOTES = ("```", "~~~", '"""', "'''")
_ELEMENTS = (
    ("<pre", "</pre"),
    ("<code", "</code"),
    ("<blockquote", "</blockquote"),
    ("<!--", "-->"),
)
_MAX_DEPTH = 100
_LEAST_CHARS = 4
"""A shorter text stands in any result."""
_NEAR = 40
"""How many letters from a tool's name a short text is still an argument."""
_LINE_NUMBER = re.compile(r"^[^\S\n]*(?:\S{1,200}?:\d+:|\d+\t)", re.MULTILINE)
_ESCAPE = re.compile(r"(?<!\\)\\++(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")


def text_call(
    text: str, names: Collection[str], told: Iterable[str], shown: Iterable[str] = ()
) -> ToolUse | None:
    """Return the call of one of the tools `names` that a model's answer ends with, else None.

    It must be the only thing like a call in `text`, outside of quotes, and no repetition of what
    the model was `told` (requests, files, examples), in whatever form. Of the texts that it was
    `shown` (results), none may hold the tool's name and every longer text of the arguments.
    """
    if (raw := _raw(text)) is None:
        return None
    name, arguments = _read(*raw)
    if name not in names or arguments is None:
        return None
    if any(_letters(raw[1]) in _letters(one) for one in _readings("\n".join(told))):
        return None
    texts = [_letters(one) for one in _texts(arguments)]
    if any(
        _spells(_letters(name), texts, _letters(reading))
        for one in shown
        for reading in _readings(one)
    ):
        return None
    return ToolUse("text", name, arguments)


def _spells(name: str, texts: Sequence[str], text: str) -> bool:
    """Return whether a text holds a call's name and the longer texts of its arguments.

    Where all of these are short, they must be near the name. A call without texts is never held.
    """
    if long := [one for one in texts if len(one) >= _LEAST_CHARS]:
        return _holds([name, *long], text)
    near = (
        text[max(0, at.start() - _NEAR) : at.end() + _NEAR]
        for at in re.finditer(re.escape(name), text)
    )
    return bool(texts) and any(_holds([name, *texts], one) for one in near)


def _holds(texts: Iterable[str], text: str) -> bool:
    """Return whether a text holds each of `texts`, at places of their own."""
    for one in sorted(texts, key=len, reverse=True):
        if one not in text:
            return False
        text = text.replace(one, " ")
    return True


def flaw_of(text: str, tools: Iterable[ToolSpec]) -> str:
    """Return why the call in a model's answer does not count, for the model; "" if it has none.

    Arguments alone name no tool. If they fit just one of `tools`, its call is shown.
    """
    if (raw := _raw(text)) is None:
        alone = "Your call does not count: write one call, as the last thing of your answer."
        return alone if looks_like_call(text) else ""
    try:
        keys = json.loads(raw[1], strict=False).keys()
    except (ValueError, AttributeError, RecursionError) as error:
        return f"Your call does not count: it is not JSON ({error})."
    if raw[0] is None and "name" not in keys:
        meant = [one for one in tools if _takes(one, keys)]
        shown = (
            call_text(meant[0].name, {key: f"<{key}>" for key in keys}) if len(meant) == 1 else ""
        )
        return f"Your call does not count: it has no `name` and no `arguments`.\n{shown}".rstrip()
    if raw[0] is None and keys & _ARGUMENTS and (beside := keys - _ARGUMENTS - {"name", "type"}):
        listed = ", ".join(f"`{key}`" for key in sorted(beside))
        return f"Your call does not count: move {listed} into `arguments`, or leave it out."
    return ""


def called_in(text: str) -> str:
    """Return the name in the call that a model's answer ends with, "" if it ends with none."""
    return "" if (raw := _raw(text)) is None else _read(*raw)[0]


_ARGUMENTS = {"arguments", "parameters"}


def _takes(tool: ToolSpec, keys: Set[str]) -> bool:
    schema = tool.input_schema
    return keys >= {*schema.get("required", ())} and keys <= schema["properties"].keys()


def _raw(text: str) -> tuple[str | None, str] | None:
    """Return the name and the JSON of the call that a text ends with, as they are written.

    The name is None where the JSON has it.
    """
    text = text.rstrip()
    begins = _BEGINS.search(text)
    found = None if begins is None else _CALL.fullmatch(text, begins.end())
    if begins is None or found is None:
        return None
    head = text[: begins.start()]
    if _LIKE_A_CALL.search(head) or any(head.count(mark) % 2 for mark in _QUOTES):
        return None
    if "````" in head or any(head.count(one) > head.count(end) for one, end in _ELEMENTS):
        return None
    parts = found.groupdict()
    raw = next(filter(None, map(parts.get, ("fence", "attribute", "body", "bare"))))
    return parts["name"], raw


def _read(name: str | None, raw: str) -> tuple[str, Mapping[str, Any] | None]:
    """Return a call's name and arguments, None if the text is not exactly a call."""
    try:
        # weak models write a file's lines as they are
        value = json.loads(raw, strict=False)
        if name is None:
            name = value.pop("name")
            value.pop("type", None)
            if value.keys() & _ARGUMENTS:
                ((_, value),) = value.items()
            elif not value:
                return "", None
            value = json.loads(value, strict=False) if isinstance(value, str) else value
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, KeyError, RecursionError):
        return "", None
    is_call = isinstance(value, dict) and isinstance(name, str) and not is_deeper(value, _MAX_DEPTH)
    return (str(name), value) if is_call else ("", None)


def looks_like_call(text: str) -> bool:
    """Return whether a text has something like a call in it."""
    return _LIKE_A_CALL.search(text) is not None


def _readings(text: str) -> tuple[str, ...]:
    """Return a text as it is, and without the numbers that a search puts before its lines.

    Also without backslashes: one that escapes nothing would take the letter behind it along.
    """
    return text, _LINE_NUMBER.sub("", text), text.replace("\\", "")


def _letters(text: str) -> str:
    """Return the letters and digits of a text, for a comparison: a quotation may look different.

    It may be indented, escaped, commented out, or in another of the forms of a call. In a result,
    `&lt;` stands for the `<` of a closing tag. What is around the text matters little.
    """
    plain = _ESCAPE.sub(lambda code: chr(int(code[1] or code[2], 16)), unescape(text))
    plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "ignore")
    plain = normalize("NFKC", re.sub(r"\\+[nrt]?", " ", plain)).casefold()
    plain = re.sub(r"\b(?:arguments|parameters|parameter|type|function)\b", "", plain)
    return re.sub(r"[\W_]+", "", plain)


def _texts(value: Any) -> Iterator[str]:
    """Give each text in the arguments of a call."""
    if isinstance(value, str):
        yield value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from _texts(part)


def words_in(turns: Iterable[Turn]) -> Iterable[str]:
    """Give every text that a conversation told the model."""
    for block in (block for turn in turns if turn.role == "user" for block in turn.blocks):
        inner = block.get("content", block.get("text", ""))
        yield inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False)


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as a model may write it."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"```json\n{call}\n```"


def described(tools: Iterable[ToolSpec], example: str) -> str:
    """Return tools in short form, for a model that is not offered them by its server.

    `example` is a call with parts in `<>`: a small model copies anything else.
    """
    lines = [
        f"- {tool.name} {_shape(tool.input_schema, tool.input_schema.get('$defs', {}))}: "
        f"{tool.description}"
        for tool in tools
    ]
    return "\n".join([_HOW_TO_CALL, example, "", *lines])


_HOW_TO_CALL = (
    "Tools. To call one, end your answer with the call as JSON in a fence, and write nothing after "
    "it. One call in each answer. Arguments with a `?` can be left out. A call, with the parts in "
    "<> for you to fill in:"
)


_UNTOLD = {"actions"}
"""Literal calls of a step: Qwen2.5-Coder-1.5B writes them without what they need."""
_KINDS = {"string": "text", "integer": "number", "boolean": "true|false"}


def _shape(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return a JSON schema as a pattern of the value."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return _shape(schema["anyOf"][0], definitions)
    if "enum" in schema:
        return "|".join(map(json.dumps, schema["enum"]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"[{_shape(schema['items'], definitions)}]"
    if "properties" not in schema:
        return _KINDS.get(kind, str(kind))
    required = schema.get("required", ())
    parts = (
        f'"{name}"{"" if name in required else "?"}: {_shape(one, definitions)}'
        for name, one in schema["properties"].items()
        if name not in _UNTOLD
    )
    return f"{{{', '.join(parts)}}}"
