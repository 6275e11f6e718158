"""Resolve links."""

from __future__ import annotations

import os
from pathlib import Path


def real_path(path: Path) -> Path:
    """Return where a path leads. Raises nothing: a circle of links stays as it is written.

    `Path.resolve` raises RuntimeError for a circle, before Python 3.13.
    """
    return Path(os.path.realpath(path))
