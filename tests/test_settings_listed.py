"""`placet config list`, `get` and `set`: where a setting comes from, what it may be, and what was
meant by a key that is none.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from placet.cli.init import template
from placet.cli.origins import allowed, lines_of
from placet.core.text.names import CONFIG_PATH
from placet.host.tables import Config, table_at
from vaultkit import TestVault, make_vault


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    return make_vault(tmp_path)


def config(vault: TestVault) -> Path:
    return vault.root / CONFIG_PATH


def test_every_setting_is_listed_with_where_it_comes_from(vault: TestVault) -> None:
    config(vault).write_text('# mine\n[daemon]\npaused = true\n\n[portals.code]\npath = "/tmp"\n')
    vault.here()
    config(vault).write_text(config(vault).read_text().replace("/tmp", "/usr"))
    done = vault.click("config", "list", "--origin", "--json")
    found = {line["key"]: line for line in json.loads(done.stdout)}
    assert found["daemon.paused"] == {
        "key": "daemon.paused",
        "value": True,
        "origin": "file",
        "line": 3,
    }
    assert found["daemon.watch"]["origin"] == "default"
    assert found["daemon.watch"]["line"] is None
    assert (found["portals.code.path"]["value"], found["portals.code.path"]["origin"]) == (
        "/tmp",
        "accepted",
    )
    tables = Config.model_fields.keys() - {"portals"}
    every = {f"{name}.{key}" for name in tables for key in table_at((name,)).model_fields}  # type: ignore[union-attr]
    assert every <= found.keys()
    assert "placet config accept" in done.stderr
    said = vault.click("config", "list", "--origin").stdout
    assert re.search(rf"(?m)^daemon\.paused = true +# {CONFIG_PATH} line 3$", said)
    assert re.search(r'(?m)^daemon\.watch = "auto" +# default$', said)
    assert (
        f'portals.code.path = "/tmp"              # accepted on this machine; line 6 of {CONFIG_PATH} says otherwise'
        in said
    )
    plain = vault.click("config", "list")
    assert "#" not in plain.stdout
    assert tomllib.loads(plain.stdout)["daemon"]["paused"] is True
    assert {"key", "value"} == set(json.loads(vault.click("config", "list", "--json").stdout)[0])


def test_the_line_of_a_setting_is_found_however_it_is_written() -> None:
    text = '''\ufeff# [daemon]
vault.host = "x"

[model]   # name = "no"
name = """
[daemon]
paused = true"""
base_url = 'http://x'
[[model.price]]
model = "m"
[[model.price]]
model = "n"
[notify]
command = [
  # paused = true
  "a",
]
webhook = ""
[portals]
b = {path = "/b"}
"c d".path = "/c"
[portals.'e.f']
path = "/e"
'''
    tomllib.loads(text.removeprefix("\ufeff"))
    assert lines_of(text) == {
        ("vault", "host"): 2,
        ("model", "name"): 5,
        ("model", "base_url"): 8,
        ("model", "price"): 9,
        ("notify", "command"): 14,
        ("notify", "webhook"): 18,
        ("portals", "b", "path"): 20,
        ("portals", "c d", "path"): 21,
        ("portals", "e.f", "path"): 23,
    }


def test_each_line_of_the_template_is_the_one_of_its_setting() -> None:
    text = re.sub(r"(?m)^# (?=\[|\w+ = )", "", (template() / CONFIG_PATH).read_text())
    lines, found = text.splitlines(), lines_of(text)
    assert len(found) > 40
    for key, number in found.items():
        here = lines[number - 1]
        assert here.startswith((f"{key[-1]} = ", f"[[{'.'.join(key)}]]")), (key, here)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("daemon.wach", "daemon.watch"),
        ("paused", "daemon.paused"),
        ("limit.day_usd", "limits.day_usd"),
        ("daemon.name", "model.name"),
    ],
)
def test_a_key_that_is_none_gets_a_suggestion_and_changes_nothing(
    vault: TestVault, key: str, meant: str
) -> None:
    before = config(vault).read_bytes()
    for words in (("set", key, "1"), ("get", key)):
        done = vault.click("config", *words, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"There is no setting {key}." in done.stderr
        assert f"Did you mean {meant}" in done.stderr
    assert config(vault).read_bytes() == before


def test_a_key_like_no_other_is_told_where_all_are(vault: TestVault) -> None:
    for words in (("set", "x\x1b[31m.zzz", "1"), ("get", "zzz"), ("set", "model", "{}")):
        done = vault.click("config", *words, check=False)
        assert done.returncode == 2
        assert "placet config list" in done.stderr
        assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("key", "value", "may"),
    [
        ("daemon.watch", "sometimes", 'It may be "auto", "events" or "polling".'),
        ("daemon.paused", "yes", "It may be true or false."),
        ("daemon.plans_at_once", "1001", "It may be a whole number from 1 to 1000."),
        ("daemon.plans_at_once", "two", "It may be a whole number from 1 to 1000."),
        ("limits.day_usd", "-1", "It may be a number from 0 to 1000000."),
        ("model.timeout_s", "0", "It may be a number above 0 to 3600."),
        ("vault.history", "maybe", 'It may be true or false, or "ask".'),
        ("notify.command", "5", 'It may be a list of texts, as in ["a", "b"].'),
        ("notify.webhook", "foo", "must be an http:// or https:// address"),
        ("portals.code", "5", "It may be a list of tables or a table"),
    ],
)
def test_a_value_that_cannot_be_is_told_what_may(
    vault: TestVault, key: str, value: str, may: str
) -> None:
    before = config(vault).read_bytes()
    done = vault.click("config", "set", key, value, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{key} cannot be {value}" in done.stderr
    assert may in " ".join(done.stderr.split())
    assert "Nothing was written." in done.stderr
    assert config(vault).read_bytes() == before


def test_a_text_needs_no_quotes_whatever_it_looks_like(vault: TestVault) -> None:
    for given in ("5", "true", "2026-01-01", '"5"', "a = b"):
        vault.click("config", "set", "vault.host", given)
        assert json.loads(vault.click("config", "get", "vault.host").stdout) == given.strip('"')


def test_what_a_setting_may_be_is_known_of_every_setting() -> None:
    for name in Config.model_fields:
        table = table_at((name,))
        for key in table.model_fields if table is not None else ():
            assert allowed((name, key)), key


def test_a_slip_in_the_file_itself_gets_a_suggestion(vault: TestVault) -> None:
    config(vault).write_text("[daemon]\npausd = true\n[modl]\nname = 'x'\n[model]\nzzz = 1\n")
    said = vault.click("config", check=False).stderr
    assert "daemon.pausd: there is no such setting (did you mean paused?)" in said
    assert "modl: there is no such setting (did you mean model?)" in said
    assert "model.zzz: there is no such setting\n" in said


def test_a_value_that_alone_is_right_and_with_the_others_wrong_is_refused_as_before(
    vault: TestVault,
) -> None:
    done = vault.click("config", "set", "guards.repeats", "50", check=False)
    assert done.returncode == 2
    assert "must fit into window" in done.stderr
