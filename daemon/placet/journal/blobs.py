"""Bodies too long for a row: files next to the database, named by their hash."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from placet.disk import sync
from placet.journal.writes import BodyDamaged

INLINE_BYTES = 16 * 1024
"""Longest body kept in its row; longer ones are files, so the database is quick to check."""


def keep_body(blobs: Path | None, body: bytes) -> tuple[str, int, bytes | None]:
    """Return the columns sha256, size and body, after a long body was flushed to its file.

    Without `blobs` all bodies are in their rows.
    """
    sha256 = hashlib.sha256(body).hexdigest()
    if blobs is None or len(body) <= INLINE_BYTES:
        return sha256, len(body), body
    write_blob(blobs, sha256, body)
    return sha256, len(body), None


def blob_path(blobs: Path, sha256: str) -> Path:
    """Return the path of a body's file."""
    return blobs / sha256[:2] / sha256


def write_blob(blobs: Path, sha256: str, body: bytes) -> None:
    """Write a content-addressed file, unless it is there whole; content and name are flushed."""
    target = blob_path(blobs, sha256)
    with contextlib.suppress(FileNotFoundError):
        if target.stat().st_size == len(body) and target.read_bytes() == body:
            return
    temporary = blobs / "tmp" / f"{sha256}.{os.getpid()}"
    for folder in (blobs, temporary.parent, target.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    with open(fd, "wb") as file:  # noqa: PTH123 - it is a descriptor
        file.write(body)
        file.flush()
        os.fsync(fd)
    temporary.replace(target)
    for folder in (target.parent, blobs, blobs.parent):
        sync(folder)


def body_of(blobs: Path | None, sha256: str, inline: bytes | str | None) -> bytes:
    """Return a body from its row or its file; raises BodyDamaged if its hash is another.

    A row written by hand may hold text.
    """
    where = f"a row of the journal (sha256 {sha256})"
    body = inline
    if body is None and blobs is not None:
        where = str(blob_path(blobs, sha256))
        try:
            body = blob_path(blobs, sha256).read_bytes()
        except OSError as error:
            raise BodyDamaged(
                f"{where} cannot be read: {error.strerror}", "put it back from a backup"
            ) from error
    if not isinstance(body, bytes) or hashlib.sha256(body).hexdigest() != sha256:
        raise BodyDamaged(f"{where} is not what was written", "put it back from a backup")
    return body


def remove_temporaries(blobs: Path) -> None:
    """Delete half-written files of a crash; no other daemon writes there."""
    with contextlib.suppress(FileNotFoundError):
        for left in list((blobs / "tmp").iterdir()):
            left.unlink()
