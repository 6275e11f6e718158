"""Values as JSON: how they are kept, and read again."""

from __future__ import annotations

import json
from typing import Generic, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


class Stored(Generic[T]):
    """How the values of a type are written as JSON and read back.

    Names of files and branches need not be UTF-8: Python has lone surrogates in them then, which JSON can hold escaped, and
    which pydantic's own reading and writing of JSON refuse.
    """

    def __init__(self, values: TypeAdapter[T]) -> None:
        self._values = values

    def dump_json(self, value: T) -> bytes:
        """Return it in ASCII."""
        return json.dumps(self._values.dump_python(value, mode="json"), separators=(",", ":")).encode("ascii")

    def validate_json(self, raw: str | bytes) -> T:
        """Return what was written; raises ValueError for what is no such value."""
        return self._values.validate_python(json.loads(raw))
