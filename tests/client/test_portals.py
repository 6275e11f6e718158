"""Test `placet portal`: the folders that requests may work in, and their problems."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gitkit import commit_all, fingerprint, git, make_repo, settle_home, write
from ptykit import Person, terminal
from vaultkit import PLAN, TestVault, make_vault, meddling


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "home"


MINE = b"# mine\n[daemon]   # kept\nmissions_at_once = 1\n\n[portals.old]  # and this\npath = '~/old'\n\n[limits]\ntool_calls = 9\n"


def test_portal_commands_leave_other_config_bytes_unchanged(
    vault: TestVault, tmp_path: Path
) -> None:
    repo = make_repo(tmp_path / "repo")
    before = fingerprint(repo)
    config = vault.root / "System/placet.toml"
    config.write_bytes(MINE)
    assert vault.click("portal", "add", "code", str(repo)).stdout == f"{repo}\n"
    after = config.read_bytes()
    assert tomllib.loads(after.decode())["portals"] == {
        "old": {"path": "~/old"},
        "code": {"path": str(repo)},
    }
    added = [line for line in after.splitlines() if line not in MINE.splitlines()]
    assert added == [b"[portals.code]", f'path = "{repo}"'.encode()]
    assert [line for line in after.splitlines() if line and line not in added] == [
        line for line in MINE.splitlines() if line
    ]
    vault.click("portal", "remove", "code")
    assert config.read_bytes().replace(b"\n\n", b"\n") == MINE.replace(b"\n\n", b"\n")
    assert fingerprint(repo) == before


@pytest.mark.parametrize(
    "text", ["", "[vault]\nfrontmatter = 'yaml'", "portals = {}\n", "[portals]\n", "# end\n"]
)
def test_a_portal_can_be_added_to_any_configuration(
    vault: TestVault, tmp_path: Path, text: str
) -> None:
    repo = make_repo(tmp_path / "repo")
    vault.configure(text)
    vault.click("portal", "add", "code", str(repo))
    assert json.loads(vault.click("portal", "list", "--json").stdout)[0]["folder"] == str(repo)
    vault.click("portal", "remove", "code")
    assert json.loads(vault.click("portal", "list", "--json").stdout) == []


def test_portal_paths_are_stored_as_typed(vault: TestVault, tmp_path: Path, home: Path) -> None:
    make_repo(home / "work")
    make_repo(vault.root / "inner")
    make_repo(tmp_path / "beside")
    for name, given, written in (
        ("a", "~/work", "~/work"),
        ("b", "inner", "inner"),
        ("c", "../beside", str(tmp_path / "beside")),
    ):
        # the vault's root is the folder we are in
        assert vault.click("portal", "add", name, given).stdout == f"{written}\n"
    found = {
        line["name"]: line for line in json.loads(vault.click("portal", "check", "--json").stdout)
    }
    assert [found[n]["problem"] for n in "abc"] == ["", "", ""]
    assert found["a"]["folder"] == str(home / "work")


def test_unsuitable_folder_is_refused_as_portal(vault: TestVault, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", {"sub/a.txt": "a\n"})
    before = fingerprint(repo)
    (tmp_path / "two\nlines").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    config = (vault.root / "System/placet.toml").read_bytes()
    for path, said in (
        ("System", "the vault's own folders"),
        ("Inbox/Requests", "the vault's own folders"),
        ("..", "it holds the vault"),
        ("/", "it holds the vault"),
        ("~nobody-at-all/x", "is not a folder"),
        ("", "is not a folder"),
        (str(tmp_path / "two\nlines"), "must not have a line break"),
        (str(tmp_path / "loop"), "is not a folder"),
        (str(repo / ".git"), "where git keeps a repository"),
        (str(tmp_path / "none"), "is not a folder"),
        (str(repo / "sub"), "is inside the one at"),
    ):
        done = vault.click("portal", "add", "x", path, check=False)
        assert done.returncode == 2, path
        assert said in done.stderr
        assert (vault.root / "System/placet.toml").read_bytes() == config
    done = vault.click("portal", "add", "a b", str(repo), check=False)
    assert done.returncode == 2
    assert "cannot be a portal's name" in done.stderr
    assert vault.click("portal", "remove", "x", check=False).returncode == 2
    assert fingerprint(repo) == before
    vault.configure(
        config.decode() + "[portals.x]\npath = 'System'\n[portals.y]\npath = '~nobody-at-all/x'\n"
    )
    for command in ("check", "list"):  # as written by hand
        assert vault.click("portal", command, check=False).returncode == (
            1 if command == "check" else 0
        )
    assert "BAD   portal x" in vault.click("doctor", check=False).stdout
    vault.plays(PLAN)
    vault.drop("---\nportal: x\n---\nSay hello.\n")
    vault.here()
    assert "the vault's own folders" in vault.rows("plan.failed")[0]["metadata"]["reason"]
    assert not (vault.root / "System/.git").exists()


def test_duplicate_portal_name_or_repository_is_reported(vault: TestVault, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    vault.click("portal", "add", "code", str(repo))
    assert (
        "There is a portal code already"
        in vault.click("portal", "add", "Code", str(repo), check=False).stderr
    )
    assert vault.click("portal", "add", "code", str(repo)).stdout == f"{repo}\n"
    done = vault.click("portal", "add", "two", str(repo))
    assert "The portal code is the same repository" in done.stderr
    code, two = json.loads(vault.click("portal", "check", "--json").stdout)
    assert (code["problem"], two["problem"]) == ("", "")


@pytest.mark.parametrize("of", ["around the vault", "another worktree"])
def test_mission_in_outer_repository_cannot_write_vault_folders(tmp_path: Path, of: str) -> None:
    outer = tmp_path / "outer"
    vault = TestVault(make_vault(outer).root, tmp_path / "state")
    git(outer, "init", "-q", "-b", "main")
    commit_all(outer, "Vault and all")
    if of == "another worktree":
        git(outer, "worktree", "add", "-q", str(tmp_path / "beside"), "-b", "beside")
    place = outer if of == "around the vault" else tmp_path / "beside"
    vault.configure(f'[commands]\nsandbox = "none"\n[portals.code]\npath = "{place}"\n')
    plan = {
        **PLAN,
        "scope": {"write": ["**"], "run": ["touch"]},
        "steps": [{"title": "Do it", "tools": ["write_file", "run_command"]}],
    }
    vault.plays(
        plan,
        [("write_file", {"path": "vault/System/Active/evil.md", "content": "evil\n"})],
        [("write_file", {"path": "VAULT/inbox/evil.md", "content": "evil\n"})],
        [("run_command", {"command": "touch", "args": ["vault/System/Active/evil2.md"]})],
        [("write_file", {"path": "vault/Knowledge/good.md", "content": "good\n"})],
        [("complete_step", {"step": 1, "summary": "Done"}), ("finish", {"summary": "Done."})],
    )
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    with meddling():  # the vault is in the repository: the daemon's own notes change in it
        vault.here()
        vault.approve()
        vault.here()
    (ended,) = vault.rows("execution.completed")
    assert ended["metadata"]["files_changed"] == ["vault/Knowledge/good.md"]
    assert len(vault.rows("tool.refused")) == 2


def test_portal_check_lists_problems_and_notes(vault: TestVault, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", {"a.bin": "x", ".gitattributes": "*.bin filter=lfs\n"})
    git(repo, "checkout", "-q", "--detach")
    vault.configure(f'[portals.code]\npath = "{repo}"\n[portals.gone]\npath = "{tmp_path}/gone"\n')
    done = vault.click("portal", "check", "--json", check=False)
    assert done.returncode == 1
    code, gone = json.loads(done.stdout)
    assert any("HEAD is detached" in note for note in code["notes"])
    assert any("git LFS" in note for note in code["notes"])
    assert "not a folder" in gone["problem"]
    assert vault.click("portal", "check", "code").stdout


def test_command_works_from_deleted_working_directory(vault: TestVault, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    gone = vault.root / "gone"
    gone.mkdir()
    said = subprocess.run(
        ["bash", "-c", f"rmdir ../gone; exec {sys.executable} -m placet portal add code {repo}"],
        cwd=gone,
        env=vault.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stdout) == (0, f"{repo}\n"), said.stderr


def test_portal_without_commit_gets_command(vault: TestVault, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "empty")
    said = " ".join(vault.click("portal", "add", "code", str(tmp_path / "empty")).stderr.split())
    assert "has no commit yet, so there is nothing to branch from. Make the first one: git" in said


def test_portal_add_proposes_settings_and_enter_accepts(vault: TestVault, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", {".gitignore": ".tox/\nnode_modules/\n.env\n"})
    write(repo, {".tox/py/x": "x", "node_modules/a/index.js": "a", ".env": "KEY=word"})
    vault.here()  # the first start accepts what is there
    with terminal(vault, "portal", "add", "web", str(repo), columns=200) as screen:
        person = Person(screen)
        said = person.sees("Add them? [Y/n]: ")
        assert "Commands also see what git ignores: .tox, node_modules." in said
        assert "They do not see: .env." in said
        person.writes("")
        assert person.ends() == 0
    config = tomllib.loads((vault.root / "System/placet.toml").read_text())
    assert config["portals"]["web"] == {"path": str(repo), "copy": [".tox"]}
    assert "not accepted" not in vault.click("status").stdout
    again = vault.click("portal", "check", "web")
    assert "need these lines" not in again.stderr
    assert "find these programs: " in again.stdout


def test_portal_check_says_why_place_differs(vault: TestVault, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    vault.click("portal", "add", "linked", str(tmp_path / "linked"))
    said = " ".join(vault.click("portal", "check", "linked").stdout.split())
    assert "because it is a linked worktree" in said


def test_changed_settings_of_portal_need_acceptance(vault: TestVault, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    vault.click("portal", "add", "web", str(repo))
    vault.here()
    config = vault.root / "System/placet.toml"
    config.write_text(config.read_text() + 'see = [".env"]\n')
    assert "portals.web.see" in vault.click("status").stdout


def test_unaccepted_portal_can_be_added_again(vault: TestVault, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    vault.here()
    vault.configure(f'[portals.code]\npath = "{repo}"\n', accepted=False)
    assert "find these programs: " in vault.click("portal", "add", "code", str(repo)).stderr


@pytest.mark.parametrize("what", ["portal", "vault"])
def test_nothing_becomes_repository_below_another(tmp_path: Path, what: str) -> None:
    mono = make_repo(tmp_path / "mono", {"pkg/app/a.py": "a = 1\n", "docs/x": "x\n"})
    vault = make_vault(tmp_path if what == "portal" else mono / "docs")
    place = mono / "pkg/app" if what == "portal" else vault.root
    portal = "---\nportal: app\n---\n" if what == "portal" else ""
    if portal:
        vault.configure(f'[portals.app]\npath = "{place}"\n')
    vault.drop(f"{portal}Say hello.\n")
    vault.here()
    assert not (place / ".git").exists()
    (failed,) = vault.rows("plan.failed")
    assert (
        f"inside the {'one at' if portal else 'repository'} {mono}" in failed["metadata"]["reason"]
    )
    if portal:
        assert "inside the one at" in vault.click("portal", "check", check=False).stdout
