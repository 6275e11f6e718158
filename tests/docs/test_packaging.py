"""Test the repository's promises: README, CI, service unit, and what is imported when."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from unittest.mock import patch

import click
import pytest
import yaml

from placet.chat.messages import ModelError
from placet.cli.main import COMMANDS, main
from placet.host.config import Config, ModelTable
from placet.loop.build import own_secrets
from placet.models import open_model
from placet.tools.take_screenshot import BROWSERS
from placet_team.worker_command import worker_command
from vaultkit import make_vault, running

ROOT = Path(__file__).parents[2]


def test_ci_runs_the_readmes_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    extract = re.search(r'bash -c "\$\((.*)\)"$', script, re.MULTILINE)
    assert extract, "the CI script takes its command out of the README"
    shown = subprocess.run(
        ["bash", "-c", extract[1]], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == (
        "python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt '.[dev]'"
        " && .venv/bin/python -m tests"
    )


def test_python_m_tests_runs_every_tool_then_pytest(tmp_path: Path) -> None:
    """Stand-ins for the tools say how they are called; one that fails keeps pytest away."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    for name in ("ruff", "mypy", "lint-imports"):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/called\n')
        (programs / name).chmod(0o755)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        code = (
            f"import runpy, sys, os; sys.argv = ['tests', *{words!r}];"
            f"sys.executable = {str(programs / 'python')!r};"
            "os.execv = lambda program, words: print(*words[1:]);"
            f"runpy.run_path({str(ROOT / 'tests')!r}, run_name='__main__')"
        )
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    done = run("quick", "-x")
    assert done.stdout == "-m pytest -q -p tests.quick --dist worksteal -n 3 --quick -x\n"
    assert not (tmp_path / "called").exists(), "quick runs no tools"
    done = run("-k", "x")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "called").read_text().split("\n") == [
        "ruff check", "ruff format --check", "mypy ", "lint-imports ", ""
    ]  # fmt: skip
    assert done.stdout.splitlines()[-1] == (
        "-m pytest -q -p tests.quick --dist worksteal -n 4 -k x"
    )
    (programs / "mypy").write_text("#!/bin/sh\necho 'a.py:1: error'; exit 1\n")
    done = run()
    assert done.returncode == 1
    assert "failed  mypy\na.py:1: error\n" in done.stdout
    assert "pytest" not in done.stdout
    assert done.stderr == "pytest was not started. Correct this first: mypy\n"


def test_workflows_test_every_promised_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    github = ROOT / ".github"
    forms = [yaml.safe_load(path.read_text()) for path in (github / "ISSUE_TEMPLATE").iterdir()]
    assert len([form for form in forms if form.get("body")]) == 2
    check, release = (
        yaml.safe_load((github / "workflows" / f"{name}.yml").read_text())["jobs"]
        for name in ("check", "release")
    )
    matrix = check["test"]["strategy"]["matrix"]
    assert matrix == {"os": ["ubuntu-latest", "macos-latest"], "python": promised}
    for job in (check["test"], release["build"]):
        assert "bash .ci/run" in [step.get("run") for step in job["steps"]]
    extras = "".join(check["wheel"]["strategy"]["matrix"]["extras"])
    assert all(f"[{name}]" in extras for name in project["optional-dependencies"] if name != "dev")
    assert release["publish"]["permissions"] == {"id-token": "write"}


def test_the_weekly_workflow_runs_every_sweep() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/sweep.yml").read_text())
    paths = workflow["jobs"]["sweep"]["strategy"]["matrix"]["tests"]
    named = {ROOT / word for words in paths for word in words.split() if word.endswith(".py")}
    assert named == {*(ROOT / "tests/search").glob("test_*.py")}
    assert "tests --ignore tests/search" in paths


def test_constraints_name_no_host() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line), line


def test_every_dependency_is_imported() -> None:
    """The daemon or a command uses each dependency, and names each package that it imports as one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[<>=]", line)[0] for line in project["dependencies"]}
    assert {
        "watchdog",
        "anthropic",
        "GitPython",
        "tomlkit",
        "python-frontmatter",
        "sqlite-utils",
    } <= wanted
    extras = {
        extra: {re.split(r"[<>=\[]", line)[0] for line in lines}
        for extra, lines in project["optional-dependencies"].items()
    }
    owners = packages_distributions()

    def owned(package: str) -> set[str]:
        imported = set[str]()
        for path in (ROOT / "daemon" / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Import):
                    imported.update(alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    imported.add((node.module or "").partition(".")[0])
        foreign = {n for n in imported if not n.startswith("placet")} - sys.stdlib_module_names
        return {owner.lower() for name in foreign for owner in owners[name]}

    core = {name.lower() for name in wanted}
    assert owned("placet") == core
    assert owned("placet_board") - core == extras["board"]
    assert owned("placet_team") - core == extras["team"]


PLUGINS = ("placet_board", "placet_team", "starlette", "psycopg")


def test_daemon_loads_no_plugin_without_need(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    code = (
        "import sys; from placet.cli.main import main\ntry:\n    main(['run', '--once'])\nfinally:\n"
        f"    print([name for name in {PLUGINS} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=vault.root, env=vault.env, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        (["board"], "starlette", "board"),
        (["team", "init", "postgresql://x/y"], "psycopg", "team"),
        (["worker", "postgresql://x/y"], "psycopg", "team"),
    ],
)
def test_missing_extra_names_the_command_that_installs_it(
    tmp_path: Path, command: list[str], missing: str, extra: str
) -> None:
    vault = make_vault(tmp_path)
    code = f"import sys; sys.modules[{missing!r}] = None; from placet.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        cwd=vault.root,
        env=vault.env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert f"pip install 'placet[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_screenshot_extra_documents_its_needs() -> None:
    assert (
        "screenshot"
        in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )
    said = (ROOT / "daemon" / "docs" / "agents.md").read_text()
    assert all(name in said for name in ("placet[screenshot]", *BROWSERS))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "systemd").iterdir()))
def test_the_service_unit_is_valid(tmp_path: Path, name: str) -> None:
    unit = tmp_path / name
    text = (ROOT / "systemd" / name).read_text()
    # The program's place is the person's; systemd checks that it exists.
    unit.write_text(text.replace("%h/.local/bin/placet", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)},
        check=False,
    )
    assert name.partition(".")[0] not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["placet@.service", "placet-worker@.service"])
def test_a_unit_starts_without_the_key_file(name: str) -> None:
    text = (ROOT / "systemd" / name).read_text()
    # systemd.exec(5), SetCredential=: "will act as default"; not being able to load the file is
    # then not fatal.
    assert text.index("\nLoadCredential=anthropic_api_key:") < text.index(
        "\nSetCredential=anthropic_api_key:\\n\n"
    )


def test_worker_unit_is_hardened_like_daemons() -> None:
    texts = [
        (ROOT / "systemd" / f"{name}@.service").read_text() for name in ("placet", "placet-worker")
    ]
    daemons, worker = (dict(re.findall(r"(?m)^(\w+)=(.*)$", text)) for text in texts)
    walls = [name for name, value in daemons.items() if value == "yes"]
    assert len(walls) >= 4
    for name in (*walls, "SystemCallArchitectures", "UMask", "LimitCORE", "KillMode", "TasksMax"):
        assert worker[name] == daemons[name]
    config = Config()
    round_s = config.limits.command_timeout_s + config.model.timeout_s
    assert int(worker["TimeoutStopSec"]) > round_s
    options = re.findall(r"(?m)^#   PLACET_WORKER_OPTIONS=(.*)$", texts[1])
    line = worker["ExecStart"].replace("$PLACET_WORKER_OPTIONS", *options)
    (address,) = re.findall(r"(?m)^#   PLACET_DATABASE=(.*)$", texts[1])
    with patch.dict("os.environ", {"PLACET_DATABASE": address}):
        given = worker_command.make_context("worker", line.split()[2:]).params
    remote = "ssh://git@vault.example.org/srv/git/work.git"
    own = {"config": None, "signers": None}
    assert given == {"address": address, "slots": 2, "remote": remote, **own}
    assert "\nEnvironment=PGUSER=%i\n" in texts[1]
    assert "\n#LoadCredential=database-password:%E/placet/database-password\n" in texts[1]


def test_board_unit_starts_board_without_key() -> None:
    text = (ROOT / "systemd" / "placet-board@.service").read_text()
    (line,) = re.findall(r"(?m)^ExecStart=(.*)$", text)
    program, command, *options = line.split()
    assert (program, command, options) == ("%h/.local/bin/placet", "board", ["--vault", "%f"])
    assert "Credential" not in text


def test_empty_credential_is_not_a_key(tmp_path: Path) -> None:
    # as the service unit has it where there is no file
    (tmp_path / "anthropic_api_key").write_text("\n")
    env = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert open_model(ModelTable(base_url="http://127.0.0.1:1"), env).provider == "anthropic"
    with pytest.raises(ModelError, match="there is no key"):
        open_model(ModelTable(), env)
    assert own_secrets(env) == ()


def test_the_doctor_alone_imports_gitpython(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    code = (
        "import sys; from placet.client.doctor import look_at_git\nprint('git' in sys.modules, 'httpx2' in sys.modules)\n"
        "print(look_at_git().state, 'git' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=vault.root,
        env=vault.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["False False", "good True"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_idle_daemon_is_small(tmp_path: Path) -> None:
    vault = make_vault(tmp_path, ANTHROPIC_API_KEY="x")
    with running(vault) as process:
        # Not dumpable, so /proc hides more than this from others; size and state stay readable.
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident_kb = int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]
    assert resident_kb < 56_320, f"{resident_kb} kB before the first model call"


def test_package_contains_files_that_commands_read() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    packages = [f"daemon/placet{name}" for name in ("", "_board", "_team")]
    assert wheel["targets"]["wheel"]["packages"] == packages
    assert wheel["targets"]["wheel"]["force-include"]["systemd"] == "placet/systemd"
    folders = ("placet/client/demo_files", "placet_board/templates", "placet_board/static")
    data = [path for folder in folders for path in (ROOT / "daemon" / folder).iterdir()]
    assert len(data) >= 22
    if (ROOT / ".git").exists():  # what git ignores is left out of the wheel
        ignored = subprocess.run(
            ["git", "check-ignore", *map(str, data)], cwd=ROOT, capture_output=True, text=True
        )
        assert ignored.stdout == ""


def test_every_command_has_name_and_help() -> None:
    context = click.Context(main)
    for name in COMMANDS:
        command = main.resolve_command(context, [name])[1]
        assert command is not None
        assert command.name == name
        assert command.help
