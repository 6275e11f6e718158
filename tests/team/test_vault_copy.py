"""Test the vault copy that workers get: what travels, and what may be written where."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from placet.host.config import Config
from placet_team import vault_copy
from placet_team.tables import PutBody
from placet_team.vault_copy import keep_for_workers, unpacked


class Holds(dict[str, bytes]):
    """A journal of which only the bodies are asked for; the names of new ones are in `put`."""

    connection = None

    def __init__(self, *bodies: bytes) -> None:
        super().__init__({sha256(body).hexdigest(): body for body in bodies})
        self.put: list[str] = []

    @contextmanager
    def ask(self) -> Iterator[Holds]:
        yield self

    def commit(self, writes: list[Any]) -> None:
        for write in writes:
            if isinstance(write, PutBody):
                self.put.append(write.name)
                self[write.name] = write.body

    @contextmanager
    def asked(self) -> Iterator[None]:
        with (
            patch.object(vault_copy, "known_bodies", lambda _, names: {*names} & {*self}),
            patch.object(
                vault_copy, "bodies_of", lambda _, names: {n: self[n] for n in names if n in self}
            ),
        ):
            yield


def listed(*names: str) -> tuple[str, Holds]:
    """Return the name of a copy with files of these names, and the journal that has it."""
    body = json.dumps({name: sha256(b"hello").hexdigest() for name in names}).encode()
    return sha256(body).hexdigest(), Holds(body, b"hello")


def kept(vault: Path, journal: Holds) -> str:
    journal.put.clear()
    ports: Any = SimpleNamespace(vault=vault, config=Config(), journal=journal)
    with journal.asked():
        return keep_for_workers(ports)


def test_only_changed_notes_travel_to_worker(tmp_path: Path) -> None:
    vault, journal = tmp_path / "vault", Holds()
    odd = "Knowledge/deep/caf\udce9.md"
    for name in ("SYSTEM_PROMPT.md", "Knowledge/a.md", odd, "Knowledge/.trash/b.md", "Other/c.md"):
        (vault / name).parent.mkdir(parents=True, exist_ok=True)
        (vault / name).write_text(f"the text of {os.fsencode(name)!r}")
    (vault / "Knowledge/link.md").symlink_to("/etc/passwd")
    (vault / "Knowledge/large.md").write_bytes(b"x" * 1_000_001)
    first = kept(vault, journal)
    assert len(journal.put) == 4, "three texts, and the list"
    assert kept(vault, journal) == first
    assert journal.put == [first], "nothing but the list, which says that it is needed"
    (vault / "Knowledge/a.md").write_text("another text")
    second = kept(vault, journal)
    assert journal.put == [sha256(b"another text").hexdigest(), second]
    with journal.asked():
        copy = unpacked(journal, tmp_path / "vaults", second)  # type: ignore[arg-type]
        assert unpacked(journal, tmp_path / "vaults", second) == copy  # type: ignore[arg-type]
    files = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert files == {"SYSTEM_PROMPT.md", "Knowledge/a.md", odd}
    assert (copy / odd).read_text() == (vault / odd).read_text()


@pytest.mark.parametrize("name", ["/made.md", "Knowledge/../../made.md", "..", "", "."])
def test_vault_copy_never_writes_outside_its_folder(tmp_path: Path, name: str) -> None:
    copy, journal = listed(f"{tmp_path}{name}" if name.startswith("/") else name)
    with journal.asked(), pytest.raises(ValueError, match="no plain file"):
        unpacked(journal, tmp_path / "vaults", copy)  # type: ignore[arg-type]
    assert not list(tmp_path.rglob("made.md"))


@pytest.mark.parametrize("name", ["..", "vault/../..", "/etc", "vault/x"])
def test_vault_copy_name_must_be_digest(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not the name"):
        unpacked(Holds(), tmp_path / "vaults", name)  # type: ignore[arg-type]


def test_vault_copy_refuses_text_with_wrong_digest(tmp_path: Path) -> None:
    copy, journal = listed("Knowledge/a.md")
    journal[sha256(b"hello").hexdigest()] = b"another"
    with journal.asked(), pytest.raises(LookupError, match="no longer in the database"):
        unpacked(journal, tmp_path / "vaults", copy)  # type: ignore[arg-type]
