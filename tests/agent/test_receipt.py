"""Test that each mission with a signed approval leaves one receipt, whatever happens."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from gitkit import git, make_repo
from placet.agent import receipt
from placet.git.receipt import RECEIPTS
from placet.host import signers
from placet.loop import work
from receiptkit import must_sign
from vaultkit import DONE, PLAN, TestVault, make_vault


@pytest.fixture
def vault(tmp_path: Path, home: None) -> TestVault:
    vault = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo")
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    vault.plays(PLAN, *DONE)
    return vault


def approved(vault: TestVault) -> None:
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    vault.click("approve", "say-hello", "--yes")
    vault.here()


def receipts(tmp_path: Path) -> list[str]:
    return git(tmp_path / "repo", "for-each-ref", "--format=%(refname)", RECEIPTS).split()


def stated(tmp_path: Path) -> dict[str, Any]:
    (ref,) = receipts(tmp_path)
    found: dict[str, Any] = json.loads(git(tmp_path / "repo", "show", f"{ref}:receipt.json"))
    return found


def test_completed_mission_names_its_receipt(vault: TestVault, tmp_path: Path) -> None:
    keys = must_sign(vault, tmp_path / "keys")
    approved(vault)
    (row,) = vault.rows("execution.completed")
    (ref,) = receipts(tmp_path)
    assert row["metadata"]["receipt"] == ref
    said, tip = stated(tmp_path), row["metadata"]["commit"]
    assert git(tmp_path / "repo", "rev-parse", f"{ref}^@") == tip == said["tip"]
    assert (said["commits"], said["files"][0]["path"]) == ([tip], "hello.txt")
    assert said["approvals"][0]["key"] == keys.signer("anna").fingerprint
    assert ref in vault.reports()[0].read_text()
    assert ref in vault.click("show", "say-hello").stdout
    assert ref in vault.click("why", "say-hello").stdout
    (key,) = vault.state.glob(f"*/{signers.DAEMON_KEY}")
    assert key.stat().st_mode & 0o777 == 0o600


def test_failed_mission_has_receipt_of_kept_work(vault: TestVault, tmp_path: Path) -> None:
    must_sign(vault, tmp_path / "keys")
    write = ("write_file", {"path": "hello.txt", "content": "hello\n"})
    vault.plays(PLAN, [write, ("give_up", {"reason": "no"})])
    approved(vault)
    (row,) = vault.rows("execution.failed")
    said, kept = stated(tmp_path), row["metadata"]["kept_commit"]
    assert (said["tip"], said["commits"], said["ended"]) == (kept, [kept], "gave_up")
    assert row["metadata"]["receipt"] in vault.reports()[0].read_text()


def test_failed_mission_without_work_has_receipt(vault: TestVault, tmp_path: Path) -> None:
    must_sign(vault, tmp_path / "keys")
    vault.plays(PLAN, [("give_up", {"reason": "no"})])
    approved(vault)
    assert vault.rows("execution.failed")
    said = stated(tmp_path)
    assert said["base"] == said["tip"] == git(tmp_path / "repo", "rev-parse", "main")


@pytest.mark.parametrize("what", ["write_receipt", "sign"])
def test_unwritable_receipt_postpones_the_end(
    vault: TestVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    must_sign(vault, tmp_path / "keys")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(receipt, what, full)
        approved(vault)
        assert vault.rows("execution.completed") == receipts(tmp_path) == []
        assert "receipt cannot be written" in vault.click("why", "say-hello").stdout
    vault.here()
    assert vault.rows("execution.completed")[0]["metadata"]["receipt"] in receipts(tmp_path)


def test_stop_before_end_is_recorded_leaves_one(
    vault: TestVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    must_sign(vault, tmp_path / "keys")

    def bug(*_: object) -> None:
        raise RuntimeError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(work, "outcome_of", bug)
        approved(vault)
        assert vault.rows("execution.completed") == []
        assert len(receipts(tmp_path)) == 1
    vault.here()
    assert len(vault.rows("execution.completed")) == len(receipts(tmp_path)) == 1


def test_unsigned_mission_starts_no_ssh_keygen(
    vault: TestVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("ssh-keygen is not needed")

    monkeypatch.setattr(signers, "_keygen", never)
    approved(vault)
    assert "receipt" not in vault.rows("execution.completed")[0]["metadata"]
    assert receipts(tmp_path) == [*vault.state.glob(f"*/{signers.DAEMON_KEY}")] == []
    assert "receipt" not in vault.reports()[0].read_text().lower()
