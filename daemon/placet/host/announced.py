"""The file in which a server of ours says where it is, and which counts while that server lives."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from placet.disk.files import lock
from placet.errors import cannot_write

_MAX_BYTES = 4096


@contextmanager
def announced(path: Path, told: Mapping[str, object]) -> Iterator[None]:
    """Say in a file where a server is, as long as the block lasts.

    The file is locked meanwhile: who listens at that address after a server was killed may be
    anybody. Raises UserError if the file cannot be written.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise cannot_write(path, error) from error
    with os.fdopen(handle, "wb", buffering=0) as file:
        try:
            lock(handle)
            file.write(json.dumps(told).encode())
            aside.replace(path)
        except OSError as error:
            with suppress(OSError):
                aside.unlink()
            raise cannot_write(path, error) from error
        try:
            yield
        finally:
            with suppress(OSError):
                if os.path.samestat(path.stat(), os.fstat(handle)):  # else another came later
                    path.unlink()


def announced_at(path: Path) -> Any:
    """Return what a server that lives has said; None without one. Raises ValueError."""
    try:
        with path.open("rb") as file:
            return None if lock(file.fileno(), shared=True) else json.loads(file.read(_MAX_BYTES))
    except OSError:
        return None
