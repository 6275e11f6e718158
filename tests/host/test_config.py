"""Test `System/placet.toml`: allowed values, and how commands edit the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from codecs import BOM_UTF16_BE
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import placet.loop.app
from gitkit import make_repo
from placet.case.request import RequestProblems, read_request
from placet.errors import UserError
from placet.host import config as module
from placet.host.config import ModelTable, load, write_settings
from placet.note.frontmatter import read_note
from placet.note.paths import CONFIG_PATH
from vaultkit import PLAN, TestVault, make_vault, running, until


def test_settings_changed_at_once_are_both_kept(vault: TestVault) -> None:
    vault.once()  # accepts what is there
    repos = [make_repo(vault.root.parent / f"repo{n}") for n in range(4)]
    adding = [
        subprocess.Popen(
            [sys.executable, "-m", "placet", "portal", "add", f"p{n}", str(repo)],
            cwd=vault.root,
            env=vault.env,
        )
        for n, repo in enumerate(repos)
    ]
    assert [one.wait(60) for one in adding] == [0] * 4
    held = vault.site.in_force()
    assert set(held.config.portals) == {f"p{n}" for n in range(4)}
    assert held.refused == (), "each was accepted, too"


def test_setting_is_written_below_a_save(vault: TestVault) -> None:
    path, real = vault.root / "System/placet.toml", module._with_settings
    saves = iter(["# mine\n"])

    def saved_meanwhile(*args):
        text = real(*args)
        with path.open("a") as file:
            file.write(next(saves, ""))
        return text

    with patch.object(module, "_with_settings", saved_meanwhile):
        write_settings(vault.root, {("daemon", "paused"): True})
    assert "# mine\n" in path.read_text()
    assert load(vault.root).daemon.paused


def test_file_that_keeps_changing_is_left_alone(vault: TestVault) -> None:
    path, real = vault.root / "System/placet.toml", module._with_settings

    def saved_meanwhile(*args):
        text = real(*args)
        with path.open("a") as file:
            file.write("# mine\n")
        return text

    with (
        patch.object(module, "_with_settings", saved_meanwhile),
        pytest.raises(UserError, match="keeps changing"),
    ):
        write_settings(vault.root, {("daemon", "paused"): True})
    assert not load(vault.root).daemon.paused


NUMBERS = [
    ("daemon", "scan_interval_s"),
    ("daemon", "plans_at_once"),
    ("model", "timeout_s"),
    ("model", "max_tokens"),
    ("limits", "planning_time_s"),
    ("limits", "mission_wall_time_s"),
    ("limits", "day_usd"),
    ("limits", "planning_usd"),
    ("vault", "quiet_s"),
]
PRICE = '[[model.price]]\nmodel = "x"\nsince = 2026-01-01\noutput = 1\ncache_read = 1\ncache_write = 1\ninput = '


@pytest.mark.parametrize(
    "value", ["nan", "inf", "-inf", "-1", "1e400", "true", '"5"', "[5]", f"1{'0' * 400}"]
)
def test_non_number_is_refused_as_setting(vault: TestVault, value: str) -> None:
    for table, key in NUMBERS:
        vault.configure(f"[{table}]\n{key} = {value}\n")
        with pytest.raises(UserError) as caught:
            load(vault.root)
        assert f"{table}.{key}: " in caught.value.what, (table, key)
    vault.configure(PRICE + value)
    with pytest.raises(UserError, match="input"):
        load(vault.root)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("limits.day_usd", "1e30"),
        ("limits.day_usd", "0.00000001"),
        ("daemon.paused", "1"),
        ("daemon.paused", '"yes"'),
    ],
)
def test_invalid_amounts_and_switches_are_refused(vault: TestVault, key: str, value: str) -> None:
    table, name = key.split(".")
    vault.configure(f"[{table}]\n{name} = {value}\n")
    with pytest.raises(UserError, match=key):
        load(vault.root)


def test_money_amounts_are_exact_decimals(vault: TestVault) -> None:
    vault.configure(f"[limits]\nday_usd = 0.1\nplanning_usd = 3\n{PRICE}0.000001\n")
    config = load(vault.root)
    amounts = (config.limits.day_usd, config.limits.planning_usd, config.model.price[0].input)
    assert [str(amount) for amount in amounts] == ["0.1", "3", "0.000001"]


@pytest.mark.parametrize(
    "value",
    [
        "1e30",
        "'1e400'",
        "1000001",
        "0.00000001",
        "1e-400",
        ".inf",
        ".nan",
        "-1",
        "0",
        "true",
        "'\uff11'",
        "'1_0'",
        "' '",
        "[1]",
    ],
)
def test_invalid_request_budget_is_refused(value: str) -> None:
    with pytest.raises(RequestProblems, match="budget_usd"):
        read_request(
            "a.md",
            read_note(f"---\nbudget_usd: {value}\n---\nText\n".encode()),
            ["default"],
            [],
            "default",
            [],
        )


def test_symlinked_configuration_keeps_link_and_mode(vault: TestVault) -> None:
    path, real = vault.root / "System/placet.toml", vault.root.parent / "dotfiles.toml"
    path.rename(real)
    path.symlink_to(real)
    real.chmod(0o640)
    for command in (["pause"], ["config", "set", "model.name", "x"], ["resume"]):
        vault.click(*command)
    assert path.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert load(vault.root).model.name == "x"
    assert [p.name for p in vault.root.parent.iterdir() if "tmp" in p.name] == []


def test_change_during_daemon_start_takes_effect(vault: TestVault) -> None:
    vault.plays(PLAN)
    vault.drop("Say hello\n")
    level = placet.loop.app.sandbox_level

    def slow(*given: object) -> object:
        vault.click("pause")
        return level(*given)  # type: ignore[arg-type]

    with patch("placet.loop.app.sandbox_level", slow):
        vault.here()
    assert not vault.plan().exists()


def test_too_deep_folder_is_explained_until_moved(vault: TestVault) -> None:
    vault.plays(PLAN)
    top = vault.root / "Inbox/Requests"
    deep = top.joinpath(*"abcdefghi")
    deep.mkdir(parents=True)
    (deep / "Say hello.md").write_text("Say hello\n")
    vault.here()
    side = deep.with_name("i.placet.md")
    assert "more than 8 folders deep" in side.read_text()
    (deep / "Say hello.md").rename(top / "Say hello.md")
    deep.rmdir()
    vault.here()
    assert not side.exists()
    assert vault.plan().exists()


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no such names")
def test_vault_with_non_utf8_path_works(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"h\xf6me")
    folder.mkdir()
    vault = make_vault(folder)
    vault.plays(
        PLAN,
        [("write_file", {"path": "hello.txt", "content": "hi\n"})],
        [("complete_step", {"step": 1, "summary": "did"}), ("finish", {"summary": "done"})],
    )
    vault.drop("Say hello\n")
    vault.here()
    vault.approve()
    vault.here()
    assert len(vault.rows("execution.completed")) == 1
    for command in (
        ["status"],
        ["show", "say-hello"],
        ["why", "say-hello"],
        ["diff", "say-hello"],
        ["status", "--json"],
    ):
        vault.click(*command)


ODD = [
    [b"submit", b"caf\xe9"],
    [b"show", b"\xff"],
    [b"journal", b"--sql", b"select '\xe9'"],
    [b"journal", b"--trace", b"\xe9"],
    [b"journal", b"--limit", b"99999999999999999999"],
    [b"submit", b"--file", b"-"],
]


@pytest.mark.parametrize("args", ODD)
@pytest.mark.thinned(3)
def test_non_utf8_or_oversized_input_is_refused(vault: TestVault, args: list[bytes]) -> None:
    vault.here()
    done = subprocess.run(
        [os.fsencode(sys.executable), b"-m", b"placet", *args],
        cwd=vault.root,
        env=vault.env,
        input=b"caf\xe9\n",
        capture_output=True,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == 2, done.stderr


@pytest.mark.parametrize(
    ("encoding", "named"), [("utf-16", "UTF-16"), ("utf-16-be", "UTF-16"), ("latin-1", "not UTF-8")]
)
def test_settings_in_another_encoding_are_named(
    vault: TestVault, encoding: str, named: str
) -> None:
    config = vault.root / "System/placet.toml"
    mark = BOM_UTF16_BE if encoding == "utf-16-be" else b""
    config.write_bytes(mark + "# Größe\n".encode(encoding))
    done = vault.click("status", check=False)
    assert f"{config} is {named} text." in done.stderr
    assert "Save it as UTF-8 in your editor." in done.stderr


def test_bytes_of_a_query_are_hexadecimal_in_json(vault: TestVault) -> None:
    vault.here()
    assert json.loads(vault.click("journal", "--sql", "select x'00ff' as a", "--json").stdout) == [
        {"a": "00ff"}
    ]


def test_unknown_system_user_is_recorded_by_uid(
    vault: TestVault,
) -> None:
    vault.plays(PLAN)
    vault.drop("Say hello\n")
    vault.here()
    vault.click("approve", "say-hello", "--yes")
    with patch("pwd.getpwuid", side_effect=KeyError):
        vault.here()
    assert vault.rows("plan.approved")[0]["metadata"]["reviewed_by"] == f"uid:{os.getuid()}"


def test_deeply_nested_configuration_does_not_stop_daemon(vault: TestVault) -> None:
    """Who can write a synced vault can write that; the daemon goes on with the settings it has."""
    path = vault.root / "System/placet.toml"
    was = path.read_text()
    with running(vault):
        path.write_text(f"{was}\nx = {'[' * 20_000}\n")
        until(lambda: "nested too deeply" in vault.click("status", check=False).stderr, "said")
        time.sleep(1.5)  # as long as it takes to be seen
        path.write_text(was)
        vault.plays(PLAN)
        vault.configure("[vault]\nhistory = true\n" + path.read_text())
        vault.drop("Say hello\n")
        until(vault.plan().exists, "a plan")
    path.write_text(f"x = {'[' * 20_000}\n")
    done = vault.cli("run", "--once", check=False)
    assert (done.returncode, "nested too deeply" in done.stderr, "Traceback" in done.stderr) == (
        2,
        True,
        False,
    )


def test_configuration_may_begin_with_byte_order_mark(vault: TestVault, tmp_path: Path) -> None:
    path = vault.root / "System/placet.toml"
    path.write_bytes(b"\xef\xbb\xbf[daemon]\r\nplans_at_once = 7\r\n")
    assert load(vault.root).daemon.plans_at_once == 7
    assert vault.click("config", "get", "daemon.plans_at_once").stdout == "7\n"
    vault.click("config", "set", "daemon.plans_at_once", "8")
    assert load(vault.root).daemon.plans_at_once == 8
    assert path.read_bytes().startswith(b"\xef\xbb\xbf[daemon]\r\n")
    subprocess.run(["git", "init", "-q", str(tmp_path / "code")], check=True)
    vault.click("portal", "add", "code", str(tmp_path / "code"))
    assert load(vault.root).portals.keys() == {"code"}


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_new_setting_is_placed_at_its_comment(vault: TestVault, line_end: str) -> None:
    """And in its own table, whichever comment a person turns into settings later."""
    path = vault.root / "System/placet.toml"
    template = Path(__file__).parents[2] / "vault_template/System/placet.toml"
    path.write_bytes(template.read_bytes().replace(b"\n", line_end.encode()))
    for setting in (
        ("team.workers", "true"),
        ("daemon.stop_grace_s", "7"),
    ):
        vault.click("config", "set", *setting)
    text = path.read_bytes().decode()
    assert text.count(line_end) == text.count("\n")
    lines = text.splitlines()
    for line, shown in (("workers = true", "# workers"), ("stop_grace_s = 7", "# stop_grace_s")):
        assert lines[lines.index(line) - 1].startswith(shown)
    path.write_text(
        text.replace("# [portals.website]", "[portals.website]").replace("# path", "path")
    )
    found = load(vault.root)
    assert found.team.workers
    assert found.portals["website"].path == "~/src/website"
    # without its comment: below the table's last setting, and above what belongs to the next one
    path.write_text("[team]\nlease_s = 9.0\n\n# [portals.website]\n# remote = 'x'\n")
    vault.click("config", "set", "team.workers", "true")
    assert path.read_text().startswith("[team]\nlease_s = 9.0\nworkers = true\n\n# [portals")
    path.write_text('[vault]\nown_keys = [\n  "a",\n  "b", # [x]\n]\n')
    vault.click("config", "set", "vault.quiet_s", "3")
    assert load(vault.root).vault.own_keys == ("a", "b")


@pytest.mark.parametrize(
    "address",
    ["foo", "ftp://x", "http://127.0.0.1:1/v1", "http://me@x", "http://a%%b", "http://a<%b%>c"],
)
def test_impossible_base_url_is_refused_when_set(tmp_path: Path, address: str) -> None:
    vault = make_vault(tmp_path)
    done = vault.click("config", "set", "model.base_url", address, check=False)
    assert done.returncode == 2
    assert f"model.base_url cannot be {address}: must" in done.stderr
    assert address not in (vault.root / "System/placet.toml").read_text()


@pytest.mark.parametrize(
    ("provider", "address", "server"),
    [
        ("anthropic", "", "anthropic"),
        ("anthropic", "http://[::1]:8080/x", "[::1]:8080"),
        ("anthropic", "https://gpu_1.example", "gpu_1.example"),
        ("scripted", "http://127.0.0.1:8080", "scripted"),
    ],
)
def test_server_of_the_model_is_who_is_asked(provider: str, address: str, server: str) -> None:
    assert ModelTable(provider=provider, base_url=address).server == server


def test_setting_the_provider_replaces_the_demo_name(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.click("config", "set", "model.name", "demo")
    vault.click("config", "set", "model.provider", "scripted")
    done = vault.click("config", "set", "model.provider", "anthropic")
    assert vault.click("config", "get", "model.name").stdout == f'"{ModelTable().name}"\n'
    assert "export ANTHROPIC_API_KEY=" in done.stderr
    vault.click("config", "set", "model.name", "mine")
    vault.click("config", "set", "model.provider", "scripted")
    vault.click("config", "set", "model.provider", "anthropic")
    assert vault.click("config", "get", "model.name").stdout == '"mine"\n'


def test_own_server_needs_a_name_before_its_provider(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.click("config", "set", "model.provider", "scripted")
    vault.click("config", "set", "model.name", "demo")
    vault.click("config", "set", "model.base_url", "http://127.0.0.1:9")
    done = vault.click("config", "set", "model.provider", "anthropic", check=False)
    assert done.returncode == 2
    assert "placet config set model.name NAME" in done.stderr
    assert vault.click("config", "get", "model.provider").stdout == '"scripted"\n'


def test_config_shows_gets_and_sets(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.click("config", "set", "model.name", "my-model")
    vault.click("config", "set", "notify.command", '["sh", "-c", "true"]')
    vault.click("config", "set", "daemon.scan_interval_s", "0.5")
    assert vault.click("config", "get", "model.name").stdout == '"my-model"\n'
    assert json.loads(vault.click("config", "get", "notify").stdout)["command"] == [
        "sh",
        "-c",
        "true",
    ]
    assert 'model.name = "my-model"' in vault.click("config").stdout
    assert (
        json.loads(vault.click("config", "--json").stdout)["settings"]["daemon"]["scan_interval_s"]
        == 0.5
    )
    before = (vault.root / "System/placet.toml").read_bytes()
    for key, value in (
        ("model.nope", "1"),
        ("nope", "1"),
        ("daemon.scan_interval_s", "soon"),
        ("model", "x"),
        ("daemon.paused.x", "1"),
        ("model.name", ""),
        ("model.name", "a\nb"),
        ("model.name", "a\u202eb"),
    ):
        assert vault.click("config", "set", key, value, check=False).returncode in (1, 2), key
    assert vault.click("config", "get", "model.nope", check=False).returncode == 2
    said = vault.click("config", "set", "vault.default_agent", "a\u202eb").stdout
    assert said == '"a\\u202eb"\n' == vault.click("config", "get", "vault.default_agent").stdout
    vault.click("config", "set", "vault.default_agent", "default")
    before = (vault.root / "System/placet.toml").read_bytes()
    # the first start accepts what is there
    assert vault.click("config", "accept", check=False).returncode == 1
    assert (vault.root / "System/placet.toml").read_bytes() == before


@pytest.mark.parametrize(
    ("before", "settings", "fits"),
    [
        ("", {("model", "context_tokens"): 8_192}, True),
        (
            "max_tokens = 8000\ncontext_tokens = 64000\n",
            {("model", "context_tokens"): 8_192},
            False,
        ),
        ("context_tokens = 8192\n", {("model", "max_tokens"): 4_097}, False),
        ("context_tokens = 8192\n", {("model", "max_tokens"): 4_096}, True),
        ("max_tokens = 8000\ncontext_tokens = 8192\n", {("model", "context_tokens"): 16_000}, True),
        ("max_tokens = 8000\ncontext_tokens = 8192\n", {("daemon", "paused"): True}, True),
    ],
)
def test_answer_and_context_that_cannot_fit_are_refused(
    tmp_path: Path, before: str, settings: dict[tuple[str, ...], Any], fits: bool
) -> None:
    path = tmp_path / CONFIG_PATH
    path.parent.mkdir(parents=True)
    path.write_text(f"[model]\n{before}")
    if fits:
        write_settings(tmp_path, settings)
        return
    with pytest.raises(UserError, match="at most half of it") as refused:
        write_settings(tmp_path, settings)
    again = ", then this command again" if ("model", "context_tokens") in settings else ""
    assert refused.value.hint == f"placet config set model.max_tokens 4096{again}"
    assert path.read_text() == f"[model]\n{before}"


def test_way_of_calling_tools_is_part_of_the_model() -> None:
    assert ModelTable(name="m").who == "anthropic: m"
    assert ModelTable(name="m", tools="text").who == "anthropic: m, with tools = text"
