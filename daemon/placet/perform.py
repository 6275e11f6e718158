"""Performing the loop's commands on the vault. Doing one again changes nothing, so a crash may come at any point."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import assert_never

from placet.core.case import PLAN_STAMPS, REQUEST_STAMPS, Case, Move, Publish, Rewrite, Stamp
from placet.core.note import Frontmatter, UnsafeEdit, digest, stamp
from placet.vault import AlreadyThere, Changed, Gone, NotSettled, Vault

RETRIES_OF_A_STAMP = 5


@dataclass(frozen=True, slots=True)
class Desk:
    """Where commands are performed: the vault, the stored texts by name, and the frontmatter of notes that have none."""

    vault: Vault
    text: Callable[[str], bytes]
    frontmatter: Frontmatter


def perform(command: Stamp | Publish | Rewrite | Move, case: Case, desk: Desk) -> None:
    """Perform one command of a case. Raises what the vault raises where it cannot be done now: it is to be tried again."""
    match command:
        case Stamp():
            _stamp(command, desk)
        case Publish():
            _publish(command.path, desk.text(command.text), case, desk.vault)
        case Rewrite():
            _rewrite(command, case, desk)
        case Move():
            _move(command, case, desk.vault)
        case _:
            assert_never(command)


def _stamp(command: Stamp, desk: Desk) -> None:
    for _ in range(RETRIES_OF_A_STAMP):
        try:
            raw, _ = desk.vault.read(command.path)
            after = stamp(raw, command.changes, kind_if_none=desk.frontmatter)
            if after != raw:
                desk.vault.replace(command.path, sha256(raw).hexdigest(), after)
        except Gone:
            return  # taken away meanwhile: the next look sees it
        except UnsafeEdit:
            return  # made unreadable meanwhile: the next look explains it beside the note
        except (Changed, NotSettled):
            continue
        return
    raise Changed(command.path)


def _publish(path: str, text: bytes, case: Case, vault: Vault) -> None:
    for place in _places(path, case):
        try:
            vault.publish(place, text)
        except AlreadyThere:
            continue
        return
    raise Changed(path)


def _rewrite(command: Rewrite, case: Case, desk: Desk) -> None:
    text = desk.text(command.text)
    try:
        raw, _ = desk.vault.read(command.path)
    except Gone:
        if command.keep:
            desk.vault.publish(command.path, text)
        return
    if raw == text:
        return
    if digest(raw, PLAN_STAMPS) == command.expected:
        desk.vault.replace(command.path, sha256(raw).hexdigest(), text)
    elif command.keep:
        _move(Move(command.path, command.keep), case, desk.vault)
        desk.vault.publish(command.path, text)


def _move(command: Move, case: Case, vault: Vault) -> None:
    try:
        raw, _ = vault.read(command.src)
    except Gone:
        return
    if command.digest and digest(raw, REQUEST_STAMPS) != command.digest:
        return  # edited meanwhile: it stays, and the next look takes the edit up
    for place in _places(command.dst, case):
        try:
            vault.move(command.src, place, sha256(raw).hexdigest())
        except AlreadyThere:
            continue
        except Gone:
            return
        return
    raise Changed(command.dst)


def _places(path: str, case: Case) -> Iterable[str]:
    """Give the place for a note, and others where that one is taken by something else."""
    stem, suffix = path.removesuffix(".md"), ".md"
    yield path
    yield f"{stem}-{case.trace8}{suffix}"
    for number in range(2, 1000):
        yield f"{stem}-{case.trace8}-{number}{suffix}"
