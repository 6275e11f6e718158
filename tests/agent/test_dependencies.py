"""Test what commands see of a checkout besides the commit, and what never comes along."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from gitkit import git, make_repo, write
from placet.agent.copies import bring_into
from placet.agent.dependencies import brought, overlaps, proposed, why_elsewhere
from placet.git.changes import ignored_files, status
from placet.git.repository import head, open_repo
from placet.git.run import Repo
from placet.git.worktree import Worktree, add_worktree
from placet.sandbox.box import Level
from placet.sandbox.probe import probe
from vaultkit import PLAN, TestVault, make_vault

needs_level_3 = pytest.mark.skipif(probe().level < Level.BUBBLEWRAP, reason="needs bubblewrap")
needs_wall = pytest.mark.skipif(probe().level < Level.LANDLOCK, reason="needs a sandbox")

SECRET = "ghp_" + "aB3" * 12
IGNORED = """
.venv/
venv/
node_modules/
.tox/
*.mo
*.so
_version.py
*.egg-info/
build/
Makefile
config.status
"""
ENVIRONMENT = {".venv/pyvenv.cfg": f"home = {Path(sys.base_prefix, 'bin')}\n", ".venv/bin/x": "x"}
PREPARED = {
    **ENVIRONMENT,
    "venv/notes.txt": "a folder of this name, but no environment",
    "node_modules/a/index.js": "a",
    "packages/web/node_modules/b/index.js": "b",
    ".tox/py/bin/x": "x",
    "src/app/_version.py": "version = '1'\n",
    "src/app/fast.cpython-311.so": "\x7fELF",
    "src/app.egg-info/PKG-INFO": "Name: app\n",
    "locale/de/app.mo": "mo",
    "build/CMakeCache.txt": "CMAKE\n",
    "build/tests/run": "run",
    "c/Makefile": "all:\n",
    "c/config.status": "#!/bin/sh\n",
}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """A developer's checkout: dependencies, generated files, and a build, all ignored."""
    path = make_repo(
        tmp_path / "src" / "app",
        {".gitignore": IGNORED, "src/app/code.py": "x = 1\n", "packages/web/p.json": "{}"},
    )
    write(path, PREPARED)
    return open_repo(path)


@pytest.fixture
def tree(repo: Repo, tmp_path: Path) -> Worktree:
    return add_worktree(repo, tmp_path / "state" / "mission", "feat/x", head(repo))


def names(paths: Any) -> list[str]:
    return sorted(map(str, paths))


def test_dependencies_are_shared_and_generated_files_copied(repo: Repo) -> None:
    found = brought(repo)
    assert names(found.shared) == [".tox", ".venv", "node_modules", "packages/web/node_modules"]
    assert names(found.generated) == [
        "build", "c/Makefile", "c/config.status", "locale/de/app.mo", "src/app.egg-info",
        "src/app/_version.py", "src/app/fast.cpython-311.so",
    ]  # fmt: skip
    assert found.unseen == ("venv/",)


def test_many_folders_are_named_once(repo: Repo) -> None:
    write(repo.path, {f"packages/p{n}/node_modules/x/i.js": "" for n in range(9)})
    write(repo.path, {f"packages/p{n}/p.json": "{}" for n in range(9)})
    git(repo.path, "add", "packages")
    assert sorted(brought(repo).named) == ["**/.tox", "**/.venv", "**/node_modules"]


SECRETS = [
    ".env",
    ".env.local",
    ".env.production",
    ".env.test",
    "backend/.env",
    "prod.env",
    ".envrc",
    ".npmrc",
    ".pypirc",
    ".netrc",
    ".git-credentials",
    "id_rsa",
    "id_ed25519",
    "server.key",
    "server.pem",
    "client.p12",
    "store.jks",
    "keystore.kdbx",
    "config/master.key",
    "config/credentials.yml.enc",
    "config/secrets.yml",
    "secrets.json",
    "credentials.json",
    "client_secret_1.json",
    "service-account.json",
    "terraform.tfstate",
    "terraform.tfstate.backup",
    ".terraform/terraform.tfstate",
    "terraform.tfvars",
    ".aws/credentials",
    ".ssh/config",
    ".gnupg/key",
    ".docker/config.json",
    ".kube/config",
    "kubeconfig",
    ".htpasswd",
    "wp-config.php",
    "local.settings.json",
    "appsettings.Development.json",
    "database.yml",
    "dev.sqlite",
    "db.sqlite3",
    "data.db",
    "dump.sql",
    "backup.sql.gz",
    "users.csv",
    "export.xlsx",
    "uploads/photo.jpg",
    "media/a.png",
    "storage/x.bin",
    "data/raw.parquet",
    "logs/app.log",
    "app.log",
    ".idea/dataSources.xml",
    ".vscode/settings.json",
    ".secrets/token",
    ".vault_pass",
    "vault.yml",
    ".direnv/env",
    ".streamlit/secrets.toml",
    "google-services.json",
    "GoogleService-Info.plist",
    "fastlane/.env.default",
    "local.properties",
    "keystore.properties",
    ".sops.yaml",
    "core.1234",
    ".DS_Store",
]


def test_no_secret_or_data_file_comes_along(repo: Repo, tree: Worktree) -> None:
    assert len(SECRETS) >= 60
    ignore = "\n".join(sorted({name.split("/")[0] for name in SECRETS}))
    write(repo.path, {".gitignore": IGNORED + ignore, **dict.fromkeys(SECRETS, SECRET)})
    # and below what comes along
    write(repo.path, {f"build/{name}": SECRET for name in SECRETS})
    write(repo.path, {"build/plain.txt": SECRET, "src/app/_version.py": f"t = '{SECRET}'\n"})
    found = brought(repo).for_worktree(tree, ())
    bring_into(tree, found, ())
    held = [p for p in tree.path.rglob("*") if p.is_file() and SECRET in p.read_text("latin-1")]
    assert held == []
    assert not any(Path(name) in map(Path, found.shared) for name in SECRETS)


def test_settings_name_what_else_comes_along(repo: Repo, tree: Worktree, tmp_path: Path) -> None:
    write(repo.path, {".gitignore": f"{IGNORED}data/\n", "data/a/x.csv": "1", "data/b/y.csv": "2"})
    write(tmp_path, {"env/pyvenv.cfg": "", "env/bin/x": ""})
    env = str(tmp_path / "env")
    found = brought(repo, ["data/a", env, "docs", "../app/data/b"], ["node_modules/"])
    assert Path("data/a") in map(Path, found.shared)
    assert not any("data/b" in str(path) for path in found.shared)
    assert names(found.copied) == ["node_modules"]
    assert names(found.readable) == [env]
    assert found.missing == ("docs", "../app/data/b")
    bring_into(tree, found.for_worktree(tree, ()), ())
    write(tree.path, {"node_modules/.vite-temp/x": "written"})
    assert (tree.path / "node_modules/a/index.js").read_text() == "a"
    assert not (repo.path / "node_modules/.vite-temp").exists()


def test_copies_are_no_changes_of_the_worktree(repo: Repo, tree: Worktree) -> None:
    bring_into(tree, brought(repo).for_worktree(tree, ()), ())
    assert (tree.path / "src/app/_version.py").read_text() == "version = '1'\n"
    (tree.path / ".gitignore").write_text("")  # as a mission may do
    git(tree.path, "add", "-f", "src/app/_version.py")
    assert [change.path for change in status(tree)] == [".gitignore"]
    assert ignored_files(tree) == []


def test_copies_are_made_again_after_a_kill(repo: Repo, tree: Worktree, tmp_path: Path) -> None:
    found = brought(repo).for_worktree(tree, ())
    bring_into(tree, found, ())
    outside = tmp_path / "outside"
    write(outside, {"PKG-INFO": "mine"})
    (tree.path / "src/app/_version.py").unlink()
    git(tree.path, "clean", "-ffdxq", "src/app.egg-info")
    (tree.path / "src/app.egg-info").symlink_to(outside)  # a command's trap
    bring_into(tree, found, ())
    assert (tree.path / "src/app/_version.py").exists()
    assert (outside / "PKG-INFO").read_text() == "mine"


def test_special_and_large_files_are_not_copied(repo: Repo, tree: Worktree, tmp_path: Path) -> None:
    build = repo.path / "build"
    (build / "out").symlink_to(tmp_path)
    (build / "up").symlink_to("../src")
    (build / "lib.so").symlink_to("lib.so.1")
    (build / "lib.so.1").write_text("lib")
    (build / "large").write_bytes(bytes(1_000_001))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(build / "s"))
        bring_into(tree, brought(repo).for_worktree(tree, ()), ())
    assert sorted(p.name for p in (tree.path / "build").iterdir()) == [
        "CMakeCache.txt", "lib.so", "lib.so.1", "tests",
    ]  # fmt: skip


def test_file_of_commit_or_plan_is_left_alone(repo: Repo, tree: Worktree) -> None:
    git(repo.path, "add", "-f", "locale/de/app.mo")
    git(repo.path, "commit", "-qm", "more")
    git(tree.path, "reset", "-q", "--hard", "main")
    git(repo.path, "rm", "-q", "--cached", "locale/de/app.mo")
    write(repo.path, {"locale/de/app.mo": "the checkout's"})
    found = brought(repo).for_worktree(tree, ["src/app/_version.py"])
    bring_into(tree, found, ())
    assert (tree.path / "locale/de/app.mo").read_text() == "mo"
    assert not (tree.path / "src/app/_version.py").exists()


def test_place_is_kept_where_checkout_holds_more(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault, worktrees = tmp_path / "vault", tmp_path / "state"
    assert why_elsewhere(repo, vault, worktrees, ()) == ""
    assert "overlaps" in why_elsewhere(repo, repo.path / "notes", worktrees, ())
    assert "it lies in" in why_elsewhere(repo, vault, worktrees, (tmp_path / "src",))
    git(repo.path, "worktree", "add", "-q", str(tmp_path / "linked"))
    linked = open_repo(tmp_path / "linked")
    assert why_elsewhere(linked, vault, worktrees, ()) == "it is a linked worktree"
    monkeypatch.setenv("HOME", str(repo.path))
    assert "it holds" in why_elsewhere(repo, vault, worktrees, ())


def test_overlapping_vault_brings_nothing(repo: Repo, tmp_path: Path) -> None:
    assert overlaps(repo, repo.path / "notes")
    assert overlaps(repo, repo.path.parent)
    assert not overlaps(repo, tmp_path / "vault")


def test_lines_are_proposed_for_written_folders_and_environments(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    env = tmp_path / "home/.cache/pypoetry/virtualenvs/app-x-py3.11"
    write(env, {"pyvenv.cfg": "", "bin/python": "",
                "lib/python3.11/site-packages/app.pth": f"{repo.path}/src"})  # fmt: skip
    write(env.with_name("other"), {"pyvenv.cfg": "", "bin/python": ""})
    write(repo.path, {"packages/web/node_modules/vite/index.js": ""})
    assert proposed(repo) == {"see": [str(env)], "copy": [".tox", "packages/web/node_modules"]}


# --- in a mission


SCRIPT = """
import os, pathlib
print(os.getcwd())
print(sorted(os.listdir(".")), pathlib.Path(".venv/bin/x").read_text())
try:
    pathlib.Path(".venv/mine").write_text("x")
except OSError as error:
    print(error.strerror)
pathlib.Path("src/app/_version.py").write_text("changed")
pathlib.Path("made.txt").write_text("made")
"""


@pytest.fixture
def ran(repo: Repo, tmp_path: Path) -> tuple[TestVault, str]:
    """A vault after a mission in that checkout, and its plan as it was shown."""
    vault = make_vault(tmp_path)
    vault.configure(f'[portals.code]\npath = "{repo.path}"\n')
    plan = {
        **PLAN,
        "scope": {"write": ["**"], "run": ["python3 tool.py", "app"]},
        "steps": [{"title": "Do it", "tools": ["write_file", "run_command"]}],
    }
    tool = f"{repo.path}/tool.py"
    calls = [
        ("write_file", {"path": tool, "content": SCRIPT}),
        ("run_command", {"command": "app"}),
        ("run_command", {"command": "python3", "args": ["tool.py"]}),
        ("complete_step", {"step": 1, "summary": "Done"}),
        ("finish", {"summary": "Done"}),
    ]
    vault.plays(plan, calls)
    vault.drop("---\nportal: code\n---\nDo it.\n")
    vault.once()
    text = next((vault.root / "Inbox/Plans").glob("*.md")).read_text()
    vault.approve()
    vault.once()
    return vault, text


@needs_level_3
def test_mission_works_in_place_of_checkout(ran: tuple[TestVault, str], repo: Repo) -> None:
    vault, plan = ran
    assert "> Commands also see `.tox`, `.venv`, `node_modules`," in plan
    done = vault.rows("execution.completed")[0]
    branch = done["metadata"]["branch"]
    changed = git(repo.path, "diff", "--name-only", f"main...{branch}").split()
    assert changed == ["made.txt", "tool.py"]
    assert (repo.path / "src/app/_version.py").read_text() == "version = '1'\n"
    report = next((vault.root / "Knowledge/Reports").glob("*.md")).read_text()
    assert "_version" not in report
    assert ".venv" not in report
    assert "| `app` | 127 |" in report
