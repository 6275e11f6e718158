"""Test which changes of a mission's commands the daemon commits, records and reports."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import time
import tracemalloc
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchkit import real
from disks import small_disk_at
from gitkit import commit_changes, git, make_repo, settle_home, write
from placet.errors import ToolError
from placet.git.attributes import found_in_modules, not_kept_here
from placet.git.checkpoint import save
from placet.git.repository import head, identity, open_repo
from placet.git.vault_history import init_repo
from placet.git.worktree import add_worktree
from placet.plan.scope import Scope
from placet.sandbox.box import Level
from placet.sandbox.probe import probe
from placet.tools.commit_secrets import refuse_uncommittable
from vaultkit import PLAN, TestVault, make_vault

needs_wall = pytest.mark.skipif(probe().level < Level.LANDLOCK, reason="needs a sandbox")


def mission(
    tmp_path: Path,
    files: dict[str, str],
    scope: dict[str, Any],
    script: str,
    *before: tuple[str, dict[str, Any]],
    config: str = "",
) -> tuple[TestVault, Path]:
    """Return a vault and the repository of a mission that ran `script` (Python), after the calls
    `before`, and has ended.
    """
    vault = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo", {"README.md": "x\n", "tool.py": script, **files})
    vault.configure(f'[portals.code]\npath = "{repo}"\n[commands]\nsandbox = "landlock"\n{config}')
    plan = {
        **PLAN,
        "scope": {"run": ["python3 tool.py"], **scope},
        "steps": [{"title": "Do it", "tools": ["write_file", "run_command"]}],
    }
    vault.plays(
        plan,
        [
            *before,
            ("run_command", {"command": "python3", "args": ["tool.py"]}),
            ("complete_step", {"step": 1, "summary": "Done"}),
            ("finish", {"summary": "Done"}),
        ],
    )
    vault.drop("---\nportal: code\n---\nDo it.\n")
    vault.once()
    vault.approve()
    vault.once()
    return vault, repo


def changed(vault: TestVault, repo: Path) -> list[str]:
    """What the mission's branch changes, as `git diff --name-status` has it."""
    done = next(iter(vault.rows("execution.completed")), None)
    assert done is not None, "\n".join(
        f"{row['action_type']} {row['metadata']}" for row in vault.rows()[-12:]
    )
    return git(repo, "diff", "--name-status", "main", done["metadata"]["branch"]).splitlines()


@needs_wall
@pytest.mark.parametrize(
    ("files", "write", "script", "expected", "told"),
    [
        (
            {"tests/a": "1", "tools/b": "2", "top": "1"},
            ["t*"],
            "import shutil\nfor d in ('tests', 'tools'):\n    shutil.rmtree(d); open(d, 'w').write('x')\n"
            "open('top', 'w').write('x')\n",
            ["M\ttop"],
            ["tests", "tests/a", "tools", "tools/b"],
        ),
        (
            {"LICENSE": "MIT"},
            ["LICENSE/**", "new"],
            "import os\nos.unlink('LICENSE'); os.mkdir('LICENSE'); open('LICENSE/x', 'w').write('x'); open('new', 'w')\n",
            ["A\tnew"],
            ["LICENSE", "LICENSE/x"],
        ),
        (
            {"tests/a": "1"},
            ["tests", "tests/**"],
            "import shutil\nshutil.rmtree('tests'); open('tests', 'w').write('x')\n",
            ["A\ttests", "D\ttests/a"],
            [],
        ),
    ],
    ids=["folder-becomes-file", "file-becomes-folder", "allowed"],
)
@pytest.mark.thinned(2)
def test_path_outside_scope_survives_type_change(
    tmp_path: Path,
    files: dict[str, str],
    write: list[str],
    script: str,
    expected: list[str],
    told: list[str],
) -> None:
    vault, repo = mission(tmp_path, files, {"write": write}, script)
    assert changed(vault, repo) == expected
    report = vault.reports()[0].read_text()
    assert all(f"`{path}`" in report for path in told)
    assert ("outside the approved scope" in report) is bool(told)


FILL = """
import os
n = 0
while True:
    os.makedirs('src/%d' % n)
    try:
        f = os.open('src/%d/f' % n, os.O_CREAT | os.O_WRONLY)
        os.posix_fallocate(f, 0, 8 * 2**20)
    except OSError:
        break
    n += 1
os.chmod('src/0', 0)
open('README.md', 'w')
import time
time.sleep(60)
"""


@needs_wall
def test_disk_filled_by_command_is_freed_before_journalling(
    tmp_path: Path,
) -> None:
    with small_disk_at(tmp_path / "disk", "90m") as place:
        vault, repo = mission(
            place,
            {},
            {"write": ["src/**", "kept.txt"]},
            FILL,
            ("write_file", {"path": "kept.txt", "content": "k"}),
            config="[limits]\nfree_disk_bytes = 8000000\n",
        )
        (call,) = [
            row for row in vault.rows("tool.called") if row["metadata"]["tool"] == "run_command"
        ]
        assert call["metadata"].get("error_type", "") == ""
        # what it had written is gone, README.md is as it was
        assert changed(vault, repo) == ["A\tkept.txt"]
        assert not list(vault.state.rglob("src"))
        disk = os.statvfs(place)
        assert disk.f_bavail * disk.f_frsize > 60_000_000


def test_folder_locked_by_command_is_reported_without_waiting(tmp_path: Path) -> None:
    def fails(at: Path) -> Any:
        def run(*_: Any, **__: Any) -> Any:
            raise PermissionError(errno.EACCES, "Permission denied", str(at))

        return run

    (tmp_path / "worktree").mkdir()
    with real(tmp_path / "worktree", scope=Scope(run=(("true",),)), level=Level.LANDLOCK) as tools:
        inside = replace(
            tools, place=replace(tools.place, run=fails(tools.place.box.worktree / "shut"))
        )
        assert inside.dispatch("run_command", {"command": "true"}).error_type == "permission_denied"
        outside = replace(tools, place=replace(tools.place, run=fails(tmp_path / "elsewhere")))
        with pytest.raises(PermissionError):  # the machine's fault: the work waits
            outside.dispatch("run_command", {"command": "true"})


LINKS = """
import os
for name, target in (('System', 'System/Active'), ('all', '.'), ('up', '../x'), ('abs', '/etc/passwd'), ('deep/sys', '../System'),
                     ('chain', 'inner/Active'), ('fine', 'docs/a.md'), ('case', 'sYsTem/active')):
    os.makedirs('deep', exist_ok=True)
    os.symlink(target, 'l-' + name if '/' not in name else name)
"""


@needs_wall
def test_forbidden_symlinks_are_not_committed(
    tmp_path: Path,
) -> None:
    vault = make_vault(tmp_path)
    write(vault.root, {"docs/a.md": "x\n", "tool.py": LINKS})
    (vault.root / "inner").symlink_to("System")
    git(vault.root, "init", "-q", "-b", "main")
    git(vault.root, "add", "docs", "tool.py", "inner")
    git(vault.root, "commit", "-q", "-m", "Begin")
    plan = {
        **PLAN,
        "scope": {"write": ["**"], "run": ["python3 tool.py"]},
        "steps": [{"title": "Do it", "tools": ["run_command"]}],
    }
    vault.plays(
        plan,
        [
            ("run_command", {"command": "python3", "args": ["tool.py"]}),
            ("complete_step", {"step": 1, "summary": "Done"}),
            ("finish", {"summary": "Done"}),
        ],
    )
    vault.drop("Do it.\n")
    vault.once()
    vault.approve()
    vault.once()
    assert changed(vault, vault.root) == ["A\tl-fine"]
    report = vault.reports()[0].read_text()
    assert "`l-fine`, a link to `docs/a.md`" in report
    assert all(
        f"`{name}`" in report
        for name in ("deep/sys", "l-System", "l-abs", "l-all", "l-case", "l-chain", "l-up")
    )


PASSWORD = "hunter2-Zq81x-" + "secret"
LEAK = "import re\nv = re.search('=(.*)', open('.env').read())[1]\n"


@needs_wall
@pytest.mark.parametrize(
    "where",
    [
        "open('src/settings.py', 'w').write('PASSWORD = %r' % v)",
        "open('src/' + v, 'w').write('x')",
        "import os; os.symlink(v, 'src/link')",
        "open('outside-' + v, 'w'); open('src/fine', 'w')",
    ],
)
@pytest.mark.thinned(2)
def test_env_file_value_reaches_no_output(tmp_path: Path, where: str) -> None:
    vault, repo = mission(
        tmp_path,
        {".env": f"DB_PASSWORD={PASSWORD}\n", "src/x": "x"},
        {"write": ["src/**"]},
        LEAK + where,
    )
    fine = "outside" in where
    assert len(vault.rows("execution.completed" if fine else "execution.failed")) == 1
    assert PASSWORD not in vault.reports()[0].read_text()
    assert not [row["action_type"] for row in vault.rows() if PASSWORD in json.dumps(row)]
    with closing(sqlite3.connect(vault.db)) as db:
        assert not [
            key
            for key, body in db.execute("SELECT key, body FROM records")
            if body and PASSWORD.encode() in body
        ]
    # what was kept of the attempt has it neither
    for ref in git(repo, "for-each-ref", "--format=%(refname)").split():
        assert PASSWORD not in git(repo, "log", "-p", "--format=%B", f"main..{ref}"), ref


def test_ignored_file_is_refused_with_its_rule(tmp_path: Path) -> None:
    files = {
        ".gitignore": "*.log\n!kept.log\n/build/\n",
        "config/.gitignore": "# mine\nlocal.toml\n",
        "build/known": "x",
    }
    repo = make_repo(tmp_path / "repo", files)
    git(repo, "add", "-f", "build/known")
    git(repo, "commit", "-q", "-m", "Known all the same")
    opened = open_repo(repo)
    tree = add_worktree(opened, tmp_path / "state/m", "feat/m", head(opened))
    for path, rule in (
        ("config/local.toml", "config/.gitignore, line 2: local.toml"),
        ("a.log", ".gitignore, line 1: *.log"),
        ("build/x/y", ".gitignore, line 3: /build/"),
        (":(top)*.log", ".gitignore, line 1: *.log"),
    ):
        with pytest.raises(ToolError) as caught:
            refuse_uncommittable(tree, [path])
        assert (caught.value.error_type, caught.value.refused, caught.value.details["rule"]) == (
            "ignored_file",
            True,
            rule,
        )
    refuse_uncommittable(tree, ["kept.log", "build/known", "src/new.py"])


@needs_wall
def test_report_lists_ignored_files_made_by_commands(tmp_path: Path) -> None:
    script = (
        "import os\nos.makedirs('out/deep')\n"
        "for f in ('out/deep/a', 'b.log', 'other.log', 'src.txt'):\n    open(f, 'w').write(f)\n"
    )
    vault, repo = mission(
        tmp_path,
        {".gitignore": "*.log\nout/\n"},
        {"write": ["out/**", "b.l*", "c.l*", "src.txt"]},
        script,
        ("write_file", {"path": "c.log", "content": "precious"}),
    )
    assert changed(vault, repo) == ["A\tsrc.txt"]
    (refused,) = vault.rows("tool.refused")
    assert refused["metadata"]["error_type"] == "ignored_file"
    (told,) = [
        line for line in vault.reports()[0].read_text().splitlines() if "ignored by git" in line
    ]
    assert told.endswith("worktree: `b.log`, `out/`.")


@needs_wall
@pytest.mark.parametrize("failed", [False, True])
def test_unsearchable_file_is_kept_at_no_ref(tmp_path: Path, failed: bool) -> None:
    script = (
        "import os\ntoken = 'token=ghp_' + 'aB3d' * 9\n"
        "deep = '/'.join('d' * 70)\nos.makedirs(deep)\n"
        "for f in ('plain', 'a', deep + '/x'):\n    open(f, 'w').write(token)\n"
        "os.link('a', 'b')\nos.unlink('old')\nos.link('b', 'old')\n"
        "open('big', 'w').write(token + ' ' * 17_000_000)\n"
    )
    vault, repo = mission(
        tmp_path,
        {"old": "old\n"},
        {"write": ["**" if failed else "in.txt"]},
        script,
        ("write_file", {"path": "in.txt", "content": "in\n"}),
    )
    assert bool(vault.rows("execution.failed")) is failed
    (ref,) = git(repo, "for-each-ref", "--format=%(refname)", "refs/placet").splitlines()
    assert git(repo, "show", f"{ref}:plain") == "token=[redacted: GitHub token]"
    assert git(repo, "show", f"{ref}:old") == "old"
    known = git(repo, "ls-tree", "-r", "--name-only", ref).splitlines()
    assert known == ["README.md", "in.txt", "old", "plain", "tool.py"]
    (report,) = (path.read_text() for path in vault.reports())
    (told,) = (line for line in report.splitlines() if "Not kept, as" in line)
    assert all(f"`{name}`" in told for name in ("a", "b", "old", "big", "/".join("d" * 70) + "/x"))
    assert "`plain`" not in told
    assert not failed or "a" in vault.rows("git.rolled_back")[0]["metadata"]["not_kept"]


@needs_wall
@pytest.mark.parametrize("converted", [False, True])
def test_ignored_file_approved_by_name_is_committed(tmp_path: Path, converted: bool) -> None:
    """Both ways: by placet itself, and by git, which has to convert a file of this commit."""
    files = {
        ".gitignore": "*.toml\n/out/\n",
        **({".gitattributes": "*.dat text\n", "made.dat": "x\n"} if converted else {}),
    }
    script = (
        "import os\nos.makedirs('out/deep')\nfor f in ('out/deep/named', 'out/other'):\n    open(f, 'w').write(f)\n"
        "open('made.dat', 'w').write('a\\r\\n')\n"
    )
    vault, repo = mission(
        tmp_path,
        files,
        {"write": ["config/local.toml", "out/deep/named", "out/oth?r", "*.dat"]},
        script,
        ("write_file", {"path": "config/local.toml", "content": "precious = 1\n"}),
    )
    assert changed(vault, repo) == [
        "A\tconfig/local.toml",
        ("M" if converted else "A") + "\tmade.dat",
        "A\tout/deep/named",
    ]
    branch = vault.rows("execution.completed")[0]["metadata"]["branch"]
    assert git(repo, "show", f"{branch}:config/local.toml") == "precious = 1"
    assert "ignored by git" in vault.reports()[0].read_text()  # out/other
    vault.click("replay", "say-hello")


def test_plan_warns_of_ignored_file_to_be_committed(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo", {".gitignore": "# ours\n*.toml\n", "known.toml": "x"})
    git(repo, "add", "-f", "known.toml")
    git(repo, "commit", "-q", "-m", "Known")
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    scope = {"write": ["config/local.toml", "known.toml", "src/*.toml", "src/a.py"]}
    vault.plays({**PLAN, "scope": scope})
    vault.drop("---\nportal: code\n---\nDo it.\n")
    vault.once()
    told = [line for line in vault.plan().read_text().splitlines() if "ignored by" in line]
    assert told == [
        "> `config/local.toml` is ignored by `.gitignore:2`; it will be committed all the same."
    ]


@pytest.mark.parametrize(
    "content", ["API_KEY=sk-ant-api03-" + "Ab3" * 30, f"DB_PASSWORD={PASSWORD}"]
)
def test_approved_ignored_file_is_searched_for_secrets(tmp_path: Path, content: str) -> None:
    vault = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo", {".gitignore": ".env\n"})
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    vault.plays(
        {**PLAN, "scope": {"write": [".env"]}},
        [
            ("write_file", {"path": ".env", "content": content + "\n"}),
            ("complete_step", {"step": 1, "summary": "Done"}),
            ("finish", {"summary": "Done"}),
        ],
    )
    vault.drop("---\nportal: code\n---\nDo it.\n")
    vault.once()
    vault.approve()
    vault.once()
    assert vault.rows("execution.completed") == []
    for ref in git(repo, "for-each-ref", "--format=%(refname)").split():
        assert content.split("=")[1] not in git(repo, "log", "-p", "--format=%B", ref), ref


@needs_wall
@pytest.mark.parametrize("name", [".gitignore", ".gitattributes", "shut/.gitignore"])
@pytest.mark.thinned(2)
def test_pipe_in_place_of_git_file_blocks_nothing(tmp_path: Path, name: str) -> None:
    script = (
        f"import os\nos.makedirs('shut', exist_ok=True)\nos.mkfifo({name!r})\nopen('shut/new', 'w')\nopen('made', 'w')\n"
        "os.chmod('shut', 0o311)\n"
    )
    began = time.monotonic()
    vault, repo = mission(tmp_path, {}, {"write": ["made"]}, script)
    assert changed(vault, repo) == ["A\tmade"]
    assert time.monotonic() - began < 50  # git waits for such a pipe until its time is up


def test_link_in_place_of_submodule_is_not_followed(
    tmp_path: Path,
) -> None:
    library = make_repo(tmp_path / "library")
    repo = make_repo(tmp_path / "repo")
    git(
        repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "sub"
    )
    git(repo, "commit", "-q", "-m", "Submodule")
    opened = open_repo(repo)
    tree = add_worktree(opened, tmp_path / "state/m", "feat/m", head(opened))
    assert found_in_modules(tree) == []
    write(tmp_path / "outside", {"id_of_the_bank_account": "x"})
    (tree.path / "sub").rmdir()
    (tree.path / "sub").symlink_to(tmp_path / "outside")
    assert found_in_modules(tree) == []
    (tree.path / "sub").unlink()
    write(tree.path, {"sub/x": "lost"})
    (tree.path / ".gitmodules").unlink()  # it is one all the same
    assert found_in_modules(tree) == ["sub/x"]


def test_huge_gitattributes_file_uses_little_memory(tmp_path: Path) -> None:
    opened = open_repo(make_repo(tmp_path / "repo"))
    tree = add_worktree(opened, tmp_path / "state/m", "feat/m", head(opened))
    write(tree.path, {"a": "x"})
    with (tree.path / ".gitattributes").open("wb") as file:
        file.truncate(256 * 1024 * 1024)
    tracemalloc.start()
    try:
        assert not_kept_here(tree, ["a"]) == {}
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_big_file_threshold_does_not_prevent_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for name, value in settle_home(home).items():
        monkeypatch.setenv(name, value)
    with (home / ".gitconfig").open("a") as config:
        config.write("[core]\n\tbigFileThreshold = 1k\n")
    write(tmp_path / "films", {"film": os.urandom(4_000), "small": "x"})
    repo, sha = init_repo(tmp_path / "films", excludes=(), message="Begin", when=datetime.now(UTC))
    assert git(repo.path, "ls-tree", "--name-only", sha).split() == ["film", "small"]
    tree = add_worktree(repo, tmp_path / "state/m", "feat/m", sha)
    write(tree.path, {"film": os.urandom(4_000), "small": "y", "other": "z"})
    assert save(tree, "refs/placet/ckpt/m", "Kept", datetime.now(UTC)) != sha
    assert commit_changes(tree, "Change\n", identity(repo), datetime.now(UTC)) is not None
    assert git(repo.path, "fsck", "--strict") == ""


ATTRIBUTES = "*.u16 working-tree-encoding=UTF-16\n"


@needs_wall
@pytest.mark.parametrize("own", [False, True], ids=["attributes of the base", "of the mission"])
@pytest.mark.parametrize("write", ["out/**", "in.txt"], ids=["in scope", "out of scope"])
def test_secret_that_git_decodes_is_never_stored(tmp_path: Path, own: bool, write: str) -> None:
    script = (
        "import os, re\nos.makedirs('out')\n"
        f"if {own}: open('out/.gitattributes', 'w').write({ATTRIBUTES!r})\n"
        "value = re.search('=(.*)', open('.env').read())[1]\n"
        "open('out/a.u16', 'w', encoding='utf-16').write(f'x = {value}\\n')\n"
    )
    files = {} if own else {".gitattributes": ATTRIBUTES}
    vault, repo = mission(
        tmp_path,
        {**files, ".env": f"DB_PASSWORD={PASSWORD}\n", "in.txt": "in\n"},
        {"write": [write, "in.txt"]},
        script,
        ("write_file", {"path": "in.txt", "content": "new\n"}),
    )
    ended = "execution.failed" if write == "out/**" else "execution.completed"
    assert vault.rows(ended)
    refs = git(repo, "for-each-ref", "--format=%(refname)").split()
    for ref in refs:
        assert PASSWORD not in git(repo, "log", "-p", "--format=%B", f"main..{ref}"), ref


@needs_wall
def test_leftovers_of_commands_are_not_committed(tmp_path: Path) -> None:
    script = (
        "import os, pathlib\n"
        "for path, data in {\n"
        "    'src/__pycache__/a.pyc': b'\\0', 'target/out.txt': b'built',\n"
        "    'src/migration.py': b'x = 1\\n', 'src/latin.txt': b'caf\\xe9\\n', 'a.lock': b'1\\n',\n"
        "    'src/new.bin': b'\\0new', 'logo.bin': b'\\0logo', 'old.bin': b'\\0changed',\n"
        "    '.cache/tool/CACHEDIR.TAG': b'', '.cache/tool/x': b'x',\n"
        "}.items():\n"
        "    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)\n"
        "    pathlib.Path(path).write_bytes(data)\n"
        "open('dist.txt', 'w').write('x' * 17_000_000)\n"
    )
    vault, repo = mission(
        tmp_path,
        {"old.bin": "\0old", "Cargo.toml": "", "src/__pycache__/known.pyc": "k"},
        {"write": ["**", "logo.bin", "target/out.txt"]},
        script,
        ("write_file", {"path": "src/__pycache__/mine.py", "content": "x"}),
        ("write_file", {"path": "src/__pycache__/known.pyc", "content": "k2"}),
    )
    assert changed(vault, repo) == [
        "A\ta.lock",
        "A\tlogo.bin",
        "M\told.bin",
        "M\tsrc/__pycache__/known.pyc",
        "A\tsrc/latin.txt",
        "A\tsrc/migration.py",
    ]
    (refused,) = vault.rows("tool.refused")
    assert refused["metadata"]["error_type"] == "ignored_file"
    report = vault.reports()[0].read_text().splitlines()
    (told,) = (line for line in report if line.startswith("Left behind by commands"))
    caches = "`.cache/tool/`, `src/__pycache__/`, `target/`"
    assert told.startswith(f"Left behind by commands, so in no commit: {caches}, `src/new.bin`.")
    (ref,) = git(repo, "for-each-ref", "--format=%(refname)", "refs/placet").split()
    assert ref in told
    assert git(repo, "diff", "--name-only", f"{ref}^", ref) == "src/new.bin"
    (not_kept,) = (line for line in report if "Not kept, as" in line)
    assert "`dist.txt`" in not_kept


def test_commit_message_holds_no_secret(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo", {".env": f"DB_PASSWORD={PASSWORD}\n"})
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    write = ("write_file", {"path": "hello.txt", "content": "hello\n"})
    vault.plays(
        PLAN,
        [write, ("complete_step", {"step": 1, "summary": "Done"})],
        [("finish", {"summary": "Done"})],
    )
    vault.drop("---\nportal: code\n---\nDo it.\n")
    vault.once()
    text = vault.plan().read_text()
    vault.plan().write_text(text.replace("1. Write it", f"1. Write {PASSWORD}"))
    vault.once()
    vault.approve()
    vault.once()
    branch = vault.rows("execution.completed")[0]["metadata"]["branch"]
    message = git(repo, "log", "--format=%B", f"main..{branch}")
    assert "1: Write [redacted" in message
    assert PASSWORD not in message


@needs_wall
def test_report_tells_of_unportable_names(tmp_path: Path) -> None:
    script = "for f in ('README.MD', 'con.txt', 'end '): open(f, 'w').write('x')\n"
    vault, repo = mission(tmp_path, {}, {"write": ["**"]}, script)
    assert changed(vault, repo) == ["A\tREADME.MD", "A\tcon.txt", "A\tend "]
    report = vault.reports()[0].read_text()
    assert "`README.MD` and `README.md` differ by case only" in report
    assert "`con.txt` cannot be checked out on Windows: Windows reserves the name." in report
    assert r"`end\x20` cannot be checked out" in report
    assert r"| `end\x20` | new |" in report
