"""Test that a vault has one daemon, by whatever path it is reached.

Also test that a moved vault keeps its journal.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from looping import Time, bare_vault, looping
from placet.errors import UserError
from placet.host.lock import MarkerLock, VaultTaken
from placet.host.state import StateFolder, known_id, original_of, vault_state
from placet.note.paths import MARKER
from vaultkit import PLAN, TestVault, copy_of, make_vault, running, started

BIND = """
import subprocess, sys
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "--bind", sys.argv[1], sys.argv[2]], check=True)
sys.exit(subprocess.run([sys.executable, "-m", "placet", "run", "--once", "--vault", sys.argv[2]]).returncode)
"""


def planned(folder: Path) -> TestVault:
    vault = make_vault(folder)
    vault.plays(PLAN)
    vault.drop("Say hello\n")
    vault.here()
    return vault


def state_of(vault: TestVault) -> StateFolder:
    return vault_state(vault.root, vault.env)


def may_mount() -> bool:
    return (
        sys.platform == "linux"
        and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode
        == 0
    )


@pytest.mark.skipif(not may_mount(), reason="may not mount")
def test_a_second_daemon_by_another_path_is_refused(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    with running(vault):
        done = subprocess.run(
            ["unshare", "-m", sys.executable, "-c", BIND, str(vault.root), str(other)],
            env=vault.env,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2, done.stderr
    assert "another placet daemon works on this vault: pid" in done.stderr
    assert len(list(vault.state.iterdir())) == 1


def test_second_daemon_with_other_state_folder_is_refused(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    stranger = replace(vault, state=tmp_path / "elsewhere")
    with running(vault):
        done = stranger.click("run", "--once", check=False)
    assert done.returncode == 2
    assert "another placet daemon works on this vault" in done.stderr
    stranger.once()


def test_a_vault_that_is_moved_keeps_its_journal(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    folder = state_of(vault).folder
    (tmp_path / "sub").mkdir()
    moved = replace(vault, root=vault.root.rename(tmp_path / "sub" / "My notes"))
    assert state_of(moved).folder == folder  # already for who only looks
    assert "say-hello" in moved.click("plans").stdout
    assert not any("copy" in said for said in moved.here())
    assert len(moved.rows("plan.created")) == 1
    back = replace(vault, root=moved.root.rename(vault.root))
    back.here()
    assert state_of(back).folder == folder
    assert [path.name for path in vault.state.iterdir()] == [folder.name]


def test_copied_vault_gets_new_journal(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    copy = replace(vault, root=tmp_path / "copy")
    copy_of(vault, copy.root)
    assert original_of(copy.root, vault.env) == vault.root
    assert state_of(copy).folder != state_of(vault).folder
    with running(vault):  # both at once
        said = copy.here()
    assert any(str(vault.root) in line and "copy" in line for line in said), said
    assert (copy.root / MARKER).read_text() != (vault.root / MARKER).read_text()
    assert original_of(copy.root, vault.env) is None
    assert len(list(vault.state.glob("*/journal.db"))) == 2
    assert not any("copy" in line for line in vault.here())


def test_journal_follows_moved_vault_not_copy(
    tmp_path: Path,
) -> None:
    vault = planned(tmp_path)
    folder = state_of(vault).folder
    moved = replace(vault, root=vault.root.rename(tmp_path / "moved"))
    copy_of(moved, vault.root)
    moved.here()
    assert state_of(moved).folder == folder
    assert original_of(vault.root, vault.env) == moved.root
    vault.here()
    assert state_of(vault).folder != folder


def test_new_vault_at_old_path_starts_empty(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    folder = state_of(vault).folder
    moved = replace(vault, root=vault.root.rename(tmp_path / "moved"))
    fresh = make_vault(tmp_path)
    with pytest.raises(UserError, match="names another vault"):
        fresh.here()
    fresh.click("run", "--once", "--take-over")
    fresh.here()
    assert state_of(fresh).folder != folder
    own = (fresh.root / MARKER).read_text()
    (fresh.root / MARKER).write_text((moved.root / MARKER).read_text())
    aside = moved.root.rename(tmp_path / "aside")  # else it would be a copy
    with pytest.raises(UserError, match="names another vault"):
        fresh.here()
    aside.rename(moved.root)
    (fresh.root / MARKER).write_text(own)
    assert state_of(moved).folder == folder
    assert "say-hello" in moved.click("plans").stdout
    assert "say-hello" not in fresh.click("plans").stdout


def test_vault_without_marker_gets_its_id_back(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    folder, marker = state_of(vault).folder, (vault.root / MARKER).read_text()
    (vault.root / MARKER).unlink()
    assert known_id(vault.root, vault.env) == marker.strip()
    vault.here()
    assert (vault.root / MARKER).read_text() == marker
    assert state_of(vault).folder == folder
    assert len(vault.rows("plan.created")) == 1


def test_state_folder_without_id_is_adopted(tmp_path: Path) -> None:
    vault = planned(tmp_path)
    state = state_of(vault)
    state.whose.unlink()
    (vault.root / MARKER).unlink()
    vault.here()
    assert state_of(vault).folder == state.folder
    assert state.whose.exists()
    assert len(vault.rows("plan.created")) == 1


def test_missing_vault_is_reported_once(tmp_path: Path) -> None:
    vault, away = bare_vault(tmp_path), tmp_path / "away"
    with looping(vault, time=Time()) as run:
        run.settle()
        vault.root.rename(away)
        for _ in range(3):
            assert run.loop.tick().away
        away.rename(vault.root)
        run.settle()
    assert run.said[-2:] == [
        f"The vault {vault.root} is not there. placet waits for it.",
        f"The vault {vault.root} is there again.",
    ]


@pytest.mark.parametrize("also_the_vault", [False, True])
def test_a_daemon_stops_when_its_journal_is_deleted(tmp_path: Path, also_the_vault: bool) -> None:
    vault = make_vault(tmp_path)
    gone = pytest.raises(UserError, match="was deleted, so placet stopped")
    with gone, started(vault) as daemon:
        shutil.rmtree(vault.state)
        if also_the_vault:
            shutil.rmtree(vault.root)
        daemon.run()


def test_unlockable_vault_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = make_vault(tmp_path)
    said: list[str] = []
    with monkeypatch.context() as patch:

        def none(_fd: int, _how: int) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        patch.setattr(fcntl, "flock", none)
        with MarkerLock(vault.root / MARKER, said.append):
            assert "cannot be locked: No locks available" in said[0]
    with MarkerLock(vault.root / MARKER, said.append):
        assert len(said) == 1


def test_state_files_are_owner_only_under_any_umask(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    before = os.umask(0)
    try:
        vault.here()
    finally:
        os.umask(before)
    found = [path for path in state_of(vault).folder.rglob("*") if path.is_file()]
    assert {path.name for path in found} >= {
        "journal.db",
        "journal.mark",
        "accepted.json",
        "vault.json",
    }
    assert [path.name for path in found if path.stat().st_mode & 0o077] == []
    shutil.rmtree(vault.root)


def test_replaced_marker_is_locked_again(tmp_path: Path) -> None:
    marker, said = tmp_path / "marker", list[str]()
    marker.write_text("id")

    def replace() -> None:
        (tmp_path / "new").write_text("id")
        (tmp_path / "new").replace(marker)

    with MarkerLock(marker, said.append) as ours:
        replace()
        ours.renew()
        with pytest.raises(VaultTaken), MarkerLock(marker, said.append):
            pass
        replace()
        with MarkerLock(marker, said.append), pytest.raises(VaultTaken):
            ours.renew()
    assert said == []


def test_marker_that_is_not_a_file_is_reported(tmp_path: Path) -> None:
    """A pipe is read when somebody writes into it, which nobody ever does."""
    vault = make_vault(tmp_path)
    marker = vault.root / MARKER
    for make in (
        lambda: os.mkfifo(marker),
        marker.mkdir,
        lambda: marker.symlink_to("elsewhere"),
        lambda: marker.write_bytes(b"x" * 300),
    ):
        marker.rmdir() if marker.is_dir() else marker.unlink()
        make()
        assert "holds no id" in vault.cli("run", "--once", check=False).stderr
        assert "No requests yet" in vault.click("status").stdout
        assert (
            f"BAD   id             {marker} holds no id"
            in vault.click("doctor", check=False).stdout
        )
