"""Read the notes of a vault from which agents take their instructions."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from unicodedata import normalize

from placet.codec import sha256
from placet.disk.confine import Root
from placet.errors import ToolError
from placet.note.escape import code
from placet.note.frontmatter import parse_note
from placet.note.paths import PROMPT_PATH, Folder
from placet.secret_files import is_secret_path

MAX_PROMPT_NOTE_BYTES = 64 * 1024
"""Maximum length of a note of instructions; a longer one is cut."""
MACHINE_FAULT = "io_error"
"""The error type of a file that the disk did not give: it is tried again, not left out."""


def notes_of_agent(vault: Root, agent: str, remarks: list[str]) -> tuple[tuple[str, str], ...]:
    """Return what an agent is told by notes of the vault: their paths and texts.

    These are `SYSTEM_PROMPT.md` and the agent's own note, empty without such a note. `remarks` and
    errors are as in `instructions`.
    """
    paths = (PROMPT_PATH, agent_note(vault.path, agent))
    return tuple((path, instructions(vault, path, remarks) or "") for path in paths)


def digests_of(notes: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the paths of notes with the digests of their texts."""
    return tuple((path, sha256(text.encode())) for path, text in notes)


def instructions(
    root: Root, path: str, remarks: list[str], most_bytes: int = MAX_PROMPT_NOTE_BYTES
) -> str | None:
    """Return the body of a note of instructions, cut where it is too long; None without a note.

    One that cannot be read (a folder, a link that leads out or to secrets) is empty, and the work
    continues. `remarks` says what was cut or left out. Raises OSError where the machine is at
    fault.
    """
    try:
        raw, real = root.read_through(path)
    except ToolError as error:
        if error.error_type == MACHINE_FAULT:
            raise OSError(errno.EIO, error.message) from error
        if error.error_type == "not_found":
            return None
        remarks.append(f"The instructions were left out: {error.message}.")
        return ""
    if is_secret_path(real):
        remarks.append(f"The instructions were left out: {path} is a link to {code(real)}.")
        return ""
    _, text = parse_note(raw)
    if len(text.encode()) <= most_bytes:
        return text
    kept = text.encode()[:most_bytes].decode(errors="ignore")
    kept = kept[: kept.rfind("\n") + 1] or kept
    remarks.append(
        f"Only the first {most_bytes:,} of {len(text.encode()):,} bytes of {path} were read."
    )
    return f"{kept.rstrip()}\n\n[{path} goes on; it was cut here, at {most_bytes:,} bytes.]"


def agent_notes(vault: Path) -> list[Path]:
    """Return the notes of a vault's agents; none if their folder cannot be listed."""
    try:
        return list((vault / Folder.AGENTS).glob("*.md"))
    except OSError:
        return []


def agents(vault: Path) -> tuple[str, ...]:
    """Return the names of the agents that a vault has; `default` is always there."""
    found = {normalize("NFC", path.stem) for path in agent_notes(vault)}
    return tuple(sorted(found | {"default"}))


def agent_note(vault: Path, agent: str) -> str:
    """Return the path of an agent's note; macOS may have written its name decomposed (NFD)."""
    names = (path.stem for path in agent_notes(vault))
    same = (name for name in names if normalize("NFC", name) == normalize("NFC", agent))
    return f"{Folder.AGENTS}/{next(same, agent)}.md"
