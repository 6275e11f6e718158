"""Write values as JSON, read them again, and name texts by their digest."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_Read = Callable[[Any], Any]
_PLAIN: tuple[type, ...] = (str, bool, int, float)


def sha256(raw: bytes) -> str:
    """Return the SHA-256 of some bytes, in hex."""
    return hashlib.sha256(raw).hexdigest()


class Stored(Generic[T]):
    """JSON storage for values of one type: a dataclass, or a union that a Literal tells apart.

    Its fields are texts, bytes, numbers, enums, `None`, tuples, mappings by text, and such
    dataclasses.
    What a field does not have takes its default, and a name that is not a field is left out, so
    that older and newer versions read each other's values. Names of files and branches need not be
    UTF-8: Python has lone surrogates in them then, which JSON can hold escaped. Neither pydantic
    2.14 nor msgspec 0.22 reads or writes those, and both take numbers that no database can hold.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._read: _Read | None = None

    def dump_json(self, value: T) -> bytes:
        """Return it in ASCII; raises ValueError for what cannot be stored."""
        return _JSON.encode(value).encode("ascii")

    def validate_json(self, raw: str | bytes) -> T:
        """Return what was written; raises ValueError for anything else."""
        if self._read is None:
            self._read = _reader(self._kind)
        try:
            found: T = self._read(json.loads(raw))
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        return found


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    raise ValueError(f"{type(value).__name__} cannot be stored")


_JSON = json.JSONEncoder(separators=(",", ":"), default=_plain)


def _reader(kind: Any) -> _Read:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin in (Union, types.UnionType):
        return _one_of([_reader(arg) for arg in args])
    if origin is Literal:
        return _checked(lambda value: value, lambda value: value in args)
    if origin is tuple:
        return _tuple(args)
    if origin is not None and issubclass(origin, Mapping):
        read = _reader(args[1])
        return _checked(
            lambda value: {key: read(one) for key, one in value.items()},
            lambda value: isinstance(value, dict),
        )
    if kind is None or kind is type(None):
        return _checked(lambda _: None, lambda value: value is None)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    if issubclass(kind, Enum):
        read_enum: _Read = kind
        return read_enum
    if kind is Decimal:
        return _decimal
    if kind is bytes:
        return _checked(b64decode, lambda value: type(value) is str)
    if kind in (int, float):
        return _checked(kind, lambda value: _is_number(value) and type(value) in (int, kind))
    assert kind in _PLAIN, f"no way to store {kind}"
    return _checked(lambda value: value, lambda value: type(value) is kind)


def _checked(read: _Read, fits: Callable[[Any], bool]) -> _Read:
    def checked(value: Any) -> Any:
        if not fits(value):
            raise ValueError(f"{value!r:.80} is not what was expected")
        return read(value)

    return checked


def _one_of(reads: list[_Read]) -> _Read:
    def read(value: Any) -> Any:
        for one in reads:
            try:
                return one(value)
            except ValueError:
                continue
        raise ValueError(f"{value!r:.80} is nothing that was expected")

    return read


def _tuple(args: tuple[Any, ...]) -> _Read:
    reads = [_reader(arg) for arg in args if arg is not ...]
    if args[-1] is ...:
        return _checked(
            lambda value: tuple([reads[0](one) for one in value]),
            lambda value: isinstance(value, list),
        )
    return _checked(
        lambda value: tuple([read(one) for read, one in zip(reads, value, strict=True)]),
        lambda value: isinstance(value, list),
    )


def _decimal(value: Any) -> Decimal:
    try:
        found = Decimal(str(value))
        if _is_number(found):
            return found
    except InvalidOperation:
        pass
    raise ValueError(f"{value!r:.80} is not a number")


def _is_number(value: Any) -> bool:
    """Return whether a value is a number that all of placet, and its databases, can count with."""
    return type(value) in (int, float, Decimal) and -(2**63) <= value < 2**63


def _dataclass(kind: Any) -> _Read:
    hints = get_type_hints(kind)
    reads = {one.name: _reader(hints[one.name]) for one in dataclasses.fields(kind)}

    def read(value: Any) -> Any:
        found = {name: read_one(value[name]) for name, read_one in reads.items() if name in value}
        try:
            return kind(**found)
        except TypeError as error:  # something is missing
            raise ValueError(f"this is not a whole {kind.__name__}: {error}") from error

    return _checked(read, lambda value: isinstance(value, dict))


def is_deeper(value: Any, most: int) -> bool:
    """Return whether lists and objects are nested more than `most` levels deep."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for one in level
            if isinstance(one, list | dict)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return any(isinstance(one, list | dict) for one in level)
