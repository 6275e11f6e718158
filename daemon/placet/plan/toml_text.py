"""Write the TOML in a plan.

Apart from reading, since tomlkit costs 3 MB and 50 ms and only writing needs it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import tomlkit
from tomlkit.items import Float, Item, Key, KeyType, SingleKey, String, StringType, Trivia

from placet.note.hidden_text import hidden_characters
from placet.plan.scope import Scope

_TOOLS_NOTE = "tools that the agent may use"
_WRITE_NOTE = "files that may be created, changed or deleted (* and ** are any names)"
_RUN_NOTE = "commands that may run, each with any further words"
_HOSTS_NOTE = "hosts that commands may reach"
# Characters of a list on one line. A longer one, or one of several entries, is written as one entry
# a line: for narrow screens, and so that one of them can be deleted.
_WIDTH = 60


def scope_toml(scope: Scope) -> str:
    """Return a scope as TOML, with a comment that says what each permission means."""
    document = tomlkit.document()
    for key, entries, note in (
        *([] if scope.tools is None else [("tools", scope.tools, _TOOLS_NOTE)]),
        ("write", scope.write, _WRITE_NOTE),
        ("run", [shlex.join(argv) for argv in scope.run], _RUN_NOTE),
        *([("network", [str(host) for host in scope.hosts], _HOSTS_NOTE)] if scope.hosts else []),
    ):
        array = tomlkit.array()
        for entry in entries:
            array.append(_string(entry))
        if len(entries) > 1 or sum(len(entry) + 4 for entry in entries) > _WIDTH:
            document.add(tomlkit.comment(note))
            array.multiline(multiline=True)
        else:
            array.comment(note)
        document.add(key, array)
    if not scope.hosts:
        document.add("network", tomlkit.item(scope.network))
    if scope.shell:
        document.add("shell", tomlkit.item(scope.shell))
    if scope.budget_usd is not None:
        budget, cent = scope.budget_usd, Decimal("0.01")
        shown = budget.quantize(cent) if budget % cent == 0 else budget
        document.add("budget_usd", Float(float(shown), Trivia(), f"{shown:f}"))
    if scope.max_iterations is not None:
        document.add("max_iterations", tomlkit.item(scope.max_iterations))
    return tomlkit.dumps(document)


def actions_toml(actions: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return literal actions, each a tool's name and its parameters, as `[[actions]]` tables."""
    document = tomlkit.document()
    tables = tomlkit.aot()
    for tool, parameters in actions:
        table = tomlkit.table()
        table.add("tool", _string(tool))
        params = tomlkit.table()
        for key, value in parameters.items():
            text = isinstance(value, str)
            params.add(_key(key), _string(value, lines=True) if text else _value(value))
        table.add("params", params)
        tables.append(table)
    document.add("actions", tables)
    return tomlkit.dumps(document)


def _key(key: str) -> Key:
    if re.fullmatch(r"[A-Za-z0-9_-]+", key):
        return SingleKey(key)
    return SingleKey(key, KeyType.Basic, original=f'"{_escaped(key)}"')


def _value(value: Any) -> Item:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        for key, inside in value.items():
            table.append(_key(key), _value(inside))
        return table
    if isinstance(value, list | tuple):
        array = tomlkit.array()
        for inside in value:
            array.append(_value(inside))
        return array
    item: Item = tomlkit.item(value)
    return item


_SHORT_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
    "\ufeff": "\\uFEFF",
}


def _escaped(text: str) -> str:
    """Return the inside of a TOML basic string; every character that is not drawn is an escape."""
    unseen = {at for at, _ in hidden_characters(text)}
    out = []
    for at, char in enumerate(text):
        if char in _SHORT_ESCAPES:
            out.append(_SHORT_ESCAPES[char])
        elif at in unseen or char < " " or char == "\x7f":
            out.append(f"\\u{ord(char):04X}" if ord(char) < 0x10000 else f"\\U{ord(char):08X}")
        else:
            out.append(char)
    return "".join(out).replace("<%", r"<\u0025")  # else Templater would run it


def _string(text: str, *, lines: bool = False) -> String:
    """Return a TOML string.

    With `lines` one that keeps its line breaks, so that a reviewer can read it.
    """
    inside = _escaped(text)
    if not lines or "\n" not in text:
        return String(StringType.SLB, text, inside, Trivia())
    plain = (
        inside.replace("\\n", "\0").replace("\\t", "\0").replace('\\"', "\0").replace("\\\\", "\0")
    )
    if (
        "\\" not in plain
        and "'''" not in text
        and not text.endswith("'")
        and ("\\" in text or '"""' in text)
    ):
        return String(StringType.MLL, text, "\n" + text, Trivia())
    # In a basic string of several lines only backslashes, unseen characters and a third quotation
    # mark are escaped.
    shown = re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t", '"': '"'}.get(m[1], m[0]), inside)
    shown = re.sub(r'""(?=")|"$', lambda m: m[0][:-1] + '\\"', shown)
    return String(StringType.MLB, text, "\n" + shown, Trivia())
