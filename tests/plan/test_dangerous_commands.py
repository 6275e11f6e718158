"""Test which commands are named as dangerous."""

from __future__ import annotations

import time

import pytest
from tests.plan.test_scope import FORBIDDEN, argv, running

from placet.plan.dangers import dangers
from placet.plan.hosts import Host
from placet.plan.scope import Scope


@pytest.mark.parametrize(("entry", "command"), FORBIDDEN)
def test_spelled_out_dangerous_command_is_allowed_with_warning(entry, command):
    scope = running(command)
    assert scope.forbidden_run(argv(command)) is None
    assert dangers(scope)
    assert running(entry, shell=True).forbidden_run(argv(command)) is None


@pytest.mark.parametrize(
    "command",
    [
        "python -m pytest -q -c pytest.ini",
        "python script.py -c config",
        "python -m pytest -p no:cacheprovider",
        "ruff check --fix src",
        "node build.js -e production",
        "npm test",
        "npm run build",
        "git log -c",
        "git diff --stat",
        "git commit -m push",
        "git show HEAD:src/config",
        "git add -- -C",
        "rm src/old.py",
        "rm -f src/old.py",
        "cargo test",
        "make test",
        "uv run pytest tests/git tests/sudo",
        "timeout 60 python -m pytest -q",
        "env A=1 pytest",
        "find . -name '*.py'",
        "bash scripts/test.sh -c x",
        "go test ./...",
        "perl -w check.pl -e",
        "tox -e py311",
    ],
)
def test_ordinary_commands_are_not_forbidden(command):
    words = argv(command)
    assert Scope(run=(words[:1],)).forbidden_run(words) is None


RUNS_ON_YOURS = (
    ".githooks/**",
    "hooks/pre-commit",
    "lefthook.yml",
    ".lefthook/**",
    ".zed/tasks.json",
    ".cargo/config.toml",
    "crates/a/.cargo/**",
    ".exrc",
    ".gdbinit",
    ".lldbinit",
    ".tool-versions",
)


TELLS_AGENTS = (
    "AGENTS.md",
    "docs/CLAUDE.md",
    "*.md",
    ".cursorrules",
    ".github/copilot-instructions.md",
)


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (running("python"), "python"),
        (running("bash"), "bash"),
        (running("sh -c"), "sh -c"),
        (running("node"), "node"),
        (running("python3 -I"), "python3 -I"),
        (running("env"), "env"),
        (running("env -i A=1"), "env"),
        (running("xargs"), "xargs"),
        (running("find . -exec"), "-exec"),
        (running("find"), "find"),
        (running("make"), "make"),
        (running("timeout 60"), "timeout 60"),
        (running("uv run"), "uv run"),
        (running("uv run python"), "uv run python"),
        (running("npx"), "npx"),
        (running("git"), "git"),
        (running("git push"), "another machine"),
        (running("git -C x"), "git -C x"),
        (running("git --git-dir=x"), "--git-dir"),
        (running("rm"), "rm"),
        (running("rm -rf build"), "deletes whole folders"),
        (running("twine upload x"), "publishes"),
        (running("npm publish"), "publishes"),
        (running("cargo publish"), "publishes"),
        (running("sudo apt"), "another user"),
        (running("doas x"), "another user"),
        (running("su x"), "another user"),
        (running("pkexec x"), "another user"),
        (running("docker build ."), "sandbox"),
        (running("kubectl get"), "sandbox"),
        (running("awk x"), "code"),
        (running("curl x", network=True), "curl x"),
        (running("ssh x", network=True), "ssh x"),
        (running("wget x", network=True), "wget x"),
        (running("pip install x", network=True), "fetches packages"),
        (running("pip install x", hosts=(Host("packages.example"),)), "fetches packages"),
        (Scope(write=("**",)), "almost anywhere"),
        (Scope(write=("*",)), "almost anywhere"),
        (Scope(write=("**/*.py",)), "almost anywhere"),
        (Scope(write=("*/src/**",)), "almost anywhere"),
        (Scope(write=("[!x]*/",)), "almost anywhere"),
        (Scope(write=(".github/workflows/**",)), "build server"),
        (Scope(write=(".git*",)), "how git treats"),
        (Scope(write=("sub/.git/hooks/x",)), "how git treats"),
        (Scope(write=(".gitattributes",)), "how git treats"),
        (Scope(write=(".gitlab-ci.yml",)), "build server"),
        (Scope(write=(".vscode/",)), "editor"),
        *((Scope(write=(path,)), "tools run") for path in RUNS_ON_YOURS),
        *((Scope(write=(path,)), "agents are told") for path in TELLS_AGENTS),
        (Scope(write=(".forgejo/workflows/ci.yml",)), "build server"),
        (Scope(write=(".gitea/workflows/ci.yml",)), "build server"),
        (Scope(write=(".gitconfig",)), "how git treats"),
        (Scope(write=("Knowledge/Reports/**",)), "placet's own reports"),
        (Scope(write=(".env",)), "secrets"),
        (Scope(network=True), "network = true"),
        (Scope(shell=True), "shell = true"),
    ],
)
def test_dangerous_scope_entries_are_named(scope, words):
    assert any(words in sentence for sentence in dangers(scope)), dangers(scope)


@pytest.mark.parametrize(
    "scope",
    [
        Scope(),
        Scope(write=("src/auth/**", "tests/test_auth.py", "README.md", "docs/")),
        Scope(write=("docs/*.md", "src/hooks/**", "Knowledge/**", "Cargo.toml")),
        Scope(write=("!**", "src/x", "!.github/**")),
        running("python -m pytest -q", "ruff check .", "npm test", "cargo test"),
        running("curl x", "pip install x"),
    ],
)
def test_plain_scope_gives_no_warning(scope):
    assert dangers(scope) == []


def test_checking_a_long_command_is_quick():
    began = time.process_time()
    for words in (
        ["env"] * 20_000,
        ["git"] * 20_000,
        ["env", *["rm", "-x"] * 10_000],
        ["python", *["-X", "a"] * 20_000],
    ):
        Scope(run=(tuple(words[:1]),)).forbidden_run(words)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("entry", "command"),
    [
        ("git diff", "git diff --outpu=README.md"),
        ("git diff", "git diff --ext-dif"),
        ("git grep", "git grep --open-files-in-page=sh x"),
        ("git grep", "git grep -nOsh x"),
        ("git clone", "git clone --upload-pac=sh x y"),
        ("git archive", "git archive --exe=sh"),
        ("tar cf x", "tar cf x --use-compress-progra=sh ."),
        ("tar", "tar xf x --to-comman=sh"),
        ("tar", "tar -I sh -cf x ."),
        ("tar", "tar cIf sh x ."),
        ("tar cf x", "tar cf x -F sh -L 1 ."),
        ("tar cf x", "tar cf x --info-script=sh -L 1 ."),
        ("sort", "sort --compress-progra=sh x"),
        ("sort", "sort -o README.md x"),
        ("make test", "make test --eva=x:"),
        ("make test", "make test -E x:"),
        ("make test", "make test SHELL=id"),
        ("python3 -m pdb", "python3 -m pdb -c x"),
        ("python3", "python3 -m timeit -s x"),
        ("python3", "python3 -mpdb -c x"),
        ("rg", "rg --pr=sh x"),
        ("split", "split --filter=sh x"),
    ],
)
def test_abbreviated_dangerous_options_are_refused_or_named(entry: str, command: str) -> None:
    scope = Scope(run=(tuple(entry.split()),))
    assert scope.allows_run(command.split())
    assert scope.forbidden_run(command.split()) or dangers(scope)


@pytest.mark.parametrize(
    "command",
    [
        "git diff --stat",
        "git log --oneline",
        "git grep -n x",
        "tar -czf x.tgz src",
        "tar xzf a.tgz",
        "sort -u x",
        "make test",
        "rg x",
        "python3 -m pytest -q",
        "python3 -m unittest",
        "git log --output-indicator-new=+",
        "sort --check x",
        "tar --create x",
    ],
)
def test_harmless_lookalike_options_are_allowed(command: str) -> None:
    assert Scope(run=((command.split()[0],),)).forbidden_run(command.split()) is None
