"""Test what the kernel says about programs that have a file open, on the file system of tests."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import threading
from pathlib import Path
from unittest.mock import patch

import pytest

from placet.case.settle import Writers
from placet.codec import sha256
from placet.disk import writers
from placet.disk.errors import Changed, OpenForWriting
from placet.disk.vault import Vault
from placet.disk.writers import lease, writers_of
from placet.note.paths import MARKER, Folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
NOTE = f"{Folder.REQUESTS}/a.md"


@pytest.fixture
def vault(tmp_path: Path):
    for folder in Folder:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / MARKER).write_text("vault-1\n")
    (tmp_path / NOTE).write_bytes(b"old")
    if writers_of(tmp_path / NOTE) is Writers.UNKNOWN:
        pytest.skip("this file system does not know who writes")
    with Vault(tmp_path) as opened:
        yield opened


def test_open_file_has_a_writer(vault: Vault) -> None:
    assert vault.writers(NOTE) is Writers.NONE
    with (vault.root / NOTE).open("rb"):
        assert vault.writers(NOTE) is Writers.NONE, "a reader is not a writer"
    with (vault.root / NOTE).open("ab"):
        assert vault.writers(NOTE) is Writers.SOME
    assert vault.writers(NOTE) is Writers.NONE


@pytest.mark.parametrize("code", [errno.EACCES, errno.EINVAL, errno.ENOLCK])
def test_other_errors_are_no_answer(vault: Vault, code: int) -> None:
    def refuse(_handle: int, command: int, *_rest: int) -> int:
        if command == fcntl.F_SETLEASE:
            raise OSError(code, os.strerror(code))
        return 0

    with patch.object(writers.fcntl, "fcntl", refuse):
        assert vault.writers(NOTE) is Writers.UNKNOWN


@pytest.mark.parametrize("magic", [0x794C7630, 0x65735546, 0x01021997, 0x6969])
def test_some_file_systems_are_not_believed(vault: Vault, magic: int) -> None:
    """Overlays, FUSE, 9p and NFS grant a lease and do not know all writers."""
    with patch.object(writers, "_file_system", return_value=magic):
        assert vault.writers(NOTE) is Writers.UNKNOWN


def test_switched_off_kernel_is_not_asked(vault: Vault) -> None:
    with Vault(vault.root, ask_kernel=False) as blind, (vault.root / NOTE).open("ab"):
        assert blind.writers(NOTE) is Writers.UNKNOWN


def test_open_note_is_not_replaced(vault: Vault) -> None:
    place = vault.root / NOTE
    with place.open("ab") as program:
        with pytest.raises(OpenForWriting):
            vault.replace(NOTE, sha256(b"old"), b"new")
        with pytest.raises(OpenForWriting):
            vault.edit(NOTE, lambda old: old + b"!")
        program.write(b" and more")
    assert place.read_bytes() == b"old and more"
    assert not list(place.parent.glob(".*"))


def test_writer_waits_for_the_lease(vault: Vault) -> None:
    place, begun = vault.root / NOTE, threading.Event()

    def write() -> None:
        begun.set()
        with place.open("ab") as file:  # waits for the lease
            file.write(b" and more")

    program = threading.Thread(target=write)
    handle = os.open(place, os.O_RDONLY)
    with lease(handle) as held:
        program.start()
        begun.wait()
        while not held.is_broken:
            pass
        assert place.read_bytes() == b"old"
    os.close(handle)
    program.join()
    assert place.read_bytes() == b"old and more"


def test_exchange_is_undone_for_a_waiting_writer(vault: Vault) -> None:
    inode = (vault.root / NOTE).stat().st_ino
    with patch.object(writers.Lease, "is_broken", new=True), pytest.raises(Changed):
        vault.replace(NOTE, sha256(b"old"), b"new")
    assert (vault.root / NOTE).read_bytes() == b"old"
    assert (vault.root / NOTE).stat().st_ino == inode


def test_waiting_writer_counts_without_exchange(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT and some network file systems cannot exchange two names."""
    monkeypatch.setattr("placet.disk.replace._renameat2", lambda *_: False)
    with patch.object(writers.Lease, "is_broken", new=True), pytest.raises(Changed):
        vault.replace(NOTE, sha256(b"old"), b"new")
    assert (vault.root / NOTE).read_bytes() == b"old"


def test_broken_lease_kills_nobody(vault: Vault) -> None:
    """Its signal is one that every process ignores by default."""
    place = vault.root / NOTE
    handle = os.open(place, os.O_RDONLY)
    with lease(handle) as held:
        with pytest.raises(BlockingIOError):
            os.open(place, os.O_WRONLY | os.O_NONBLOCK)
        assert held.is_broken
    os.close(handle)
