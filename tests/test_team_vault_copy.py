"""The copy of the vault that workers get: what is written below which folder."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from placet_team import vault_copy
from placet_team.vault_copy import unpacked

NAME = "vault/" + "0" * 64


class Holds:
    """A journal of which only the copy is asked."""

    connection = None

    @contextmanager
    def read(self) -> Iterator[Holds]:
        yield self


def written(folder: Path, *entries: tuple[str, bytes], name: str = NAME) -> Path:
    """Unpack an archive with entries of these names and types, as Python 3.11.2 would."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        for path, kind in entries:
            entry = tarfile.TarInfo(path)
            entry.type, entry.size = kind, 5 if kind == tarfile.REGTYPE else 0
            entry.linkname = "/etc/passwd"
            tar.addfile(entry, io.BytesIO(b"hello"))

    def without_filter(self: tarfile.TarFile, path: str = ".", members: Any = None) -> None:
        raise AssertionError("nothing checks what this writes")

    journal: Any = Holds()
    with (
        patch.object(vault_copy, "body_of", lambda *_: body.getvalue()),
        patch.object(tarfile.TarFile, "extractall", without_filter),
    ):
        return unpacked(journal, folder, name)


def test_a_workers_copy_has_the_vaults_files(tmp_path: Path) -> None:
    names = ["SYSTEM_PROMPT.md", "Knowledge/caf\udce9/deep/note.md"]
    copy = written(tmp_path, *((name, tarfile.REGTYPE) for name in names))
    assert [(copy / name).read_text() for name in names] == ["hello", "hello"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("/made.md", tarfile.REGTYPE),
        ("Knowledge/../../made.md", tarfile.REGTYPE),
        ("Knowledge", tarfile.SYMTYPE),
        ("Knowledge/passwd", tarfile.LNKTYPE),
        ("Knowledge/pipe", tarfile.FIFOTYPE),
    ],
)
def test_a_copy_writes_plain_files_below_its_folder_alone(
    tmp_path: Path, name: str, kind: bytes
) -> None:
    name = f"{tmp_path}{name}" if name.startswith("/") else name
    with pytest.raises(ValueError, match="no plain file"):
        written(tmp_path / "vaults", (name, kind), ("Knowledge/made.md", tarfile.REGTYPE))
    assert not list(tmp_path.rglob("made.md"))
    assert not [one for one in tmp_path.rglob("*") if one.is_symlink()]


@pytest.mark.parametrize("name", ["..", "vault/../..", "/etc", "vault/x"])
def test_a_copy_is_named_by_its_digest_alone(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not the name"):
        written(tmp_path / "vaults", name=name)
