"""Make small file systems, so that tests can fill them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk_at(place: Path, size: str) -> Iterator[Path]:
    """Mount a file system of this size ("2m") in memory.

    The test is skipped where that is not allowed.
    """
    place.mkdir()
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        pytest.skip("only root can mount a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this root may not mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """Make a folder a read-only file system; the test is skipped where that is not allowed."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        pytest.skip("only root can mount a folder read-only")
    if subprocess.run(["mount", "--bind", place, place], capture_output=True).returncode != 0:
        pytest.skip("this root may not mount")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill_up(path: Path) -> None:
    """Write a file that takes what room there is."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
