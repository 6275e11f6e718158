"""Test a worker's clones: of other portals, other databases and replaced repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

import pgkit
from gitkit import commit_all, git, make_repo
from teamkit import TestTeam, lose, running_team
from vaultkit import DONE, PLAN, TestVault, make_vault, until

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)


def vault_at(folder: Path, **portals: Path) -> TestVault:
    folder.mkdir(exist_ok=True)
    vault = make_vault(folder)
    for name, path in portals.items():
        vault.click("portal", "add", name, str(path))
    vault.plays(PLAN, *DONE)
    return vault


def run_to_completion(found: TestTeam, ident: str, portal: str) -> None:
    """Let a request be planned and carried out."""
    done = len(found.rows("execution.completed"))
    found.vault.drop(f'---\nportal: "{portal}"\n---\n# Say hello\n', f"{ident}.md")
    try:
        until(found.vault.plan(ident).exists, ident, 60)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{found.logs()}") from None
    found.vault.approve(ident)
    found.until("execution.completed", done + 1)


def clones(found: TestTeam) -> list[Path]:
    return sorted(found.folder.glob("state-ann/workers/ann/clones/**/HEAD"))


def test_each_portal_name_gets_its_own_clone(tmp_path: Path, server: pgkit.Server) -> None:
    code = make_repo(tmp_path / "code")
    vault = vault_at(tmp_path, vault=code)
    settings = vault.root / "System" / "placet.toml"
    odd = f'[portals."../../../up"]\npath = "{code}"\n[portals.Vault]\npath = "{code}"\n'
    vault.configure(settings.read_text() + odd)
    with running_team(tmp_path, server, 10, vault) as found:
        found.host()
        found.worker("ann")
        for ident, portal in (("a", "vault"), ("b", ""), ("c", "../../../up"), ("d", "Vault")):
            run_to_completion(found, ident, portal)
        assert len({path.parent.name.casefold() for path in clones(found)}) == 4
        assert not list(tmp_path.glob("state-ann/*.git"))


@pytest.mark.sweep
def test_worker_reuses_state_folder_across_databases(tmp_path: Path, server: pgkit.Server) -> None:
    home = {"PLACET_STATE_HOME": str(tmp_path / "state-ann")}
    for name in ("one", "two"):
        folder = tmp_path / name
        vault = vault_at(folder, code=make_repo(folder / "code", {f"{name}.txt": name}))
        with running_team(folder, server, 10, vault) as found:
            found.host()
            words = ("worker", found.role("ann"), "--remote", str(found.remote))
            words += ("--config", found.config)
            found.start(*words, log="ann", env=home)
            run_to_completion(found, "hello", "code")


def test_clone_recovers_from_repository_changes_and_damage(
    tmp_path: Path, server: pgkit.Server
) -> None:
    far, code = make_repo(tmp_path / "far"), tmp_path / "code"
    commit_all(far, "More")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{far}", "code")
    git(code, "config", "core.autocrlf", "input")
    with running_team(tmp_path, server, 10, vault_at(tmp_path, code=code)) as found:
        found.host()
        found.worker("ann")
        found.vault.drop("---\nportal: code\n---\n# Say hello\n", "shallow.md")
        until(lambda: "fetch --unshallow" in found.log("host"), found.logs(), 30)
        git(code, "fetch", "-q", "--unshallow")
        until(found.vault.plan("shallow").exists, found.logs(), 60)
        clone = clones(found)[0].parent
        assert git(clone, "config", "core.autocrlf") == "input"
        git(code, "config", "--unset", "core.autocrlf")
        run_to_completion(found, "whole", "code")
        assert "Begin" in git(clone, "log", "main")
        assert git(clone, "config", "core.autocrlf", check=False) == ""
        lose(clone)
        run_to_completion(found, "anew", "code")
        for pack in clone.glob("objects/??/*"):
            pack.chmod(0o600)
            pack.write_bytes(b"")
        run_to_completion(found, "damaged", "code")
        (clone / "HEAD").write_text("garbage")
        run_to_completion(found, "garbage", "code")
        git(clone, "config", "credential.helper", "!false")
        run_to_completion(found, "setting", "code")
        assert "creates it again" in found.log("host")
        lose(code)
        code.mkdir()
        git(code, "init", "-q", "-b", "caf\udce9", "--object-format=sha256")
        commit_all(code, "Begin")
        found.vault.drop("---\nportal: code\n---\n# Say hello\n", "other.md")
        until(lambda: "cannot push to" in found.log("host"), found.logs(), 60)
        git(tmp_path, "init", "-q", "--bare", "--object-format=sha256", "other.git")
        found.vault.click("config", "set", "portals.code.work_remote", str(tmp_path / "other.git"))
        found.vault.click("team", "drain", "ann")
        found.worker("bob", "--remote", str(tmp_path / "other.git"))
        until(found.vault.plan("other").exists, found.logs(), 60)
        found.vault.approve("other")
        found.until("execution.completed", 6)
