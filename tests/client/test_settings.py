"""Test `placet config`: current values, checks, and suggestions for unknown keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.test_init import of_llama_server, server

from placet.client.settings import allowed
from placet.host.config import Config, load, table_at
from placet.note.paths import CONFIG_PATH
from vaultkit import TestVault


def config(vault: TestVault) -> Path:
    return vault.root / CONFIG_PATH


def test_config_lists_every_effective_setting(vault: TestVault) -> None:
    config(vault).write_text('# mine\n[daemon]\npaused = true\n\n[portals.code]\npath = "/tmp"\n')
    vault.here()
    config(vault).write_text(config(vault).read_text().replace("/tmp", "/usr"))
    held, unaccepted = vault.click("config").stdout.split("\n\n")
    listed = held.splitlines()
    assert {"daemon.paused = true", 'portals.code.path = "/tmp"'} <= set(listed)
    tables = Config.model_fields.keys() - {"portals"}
    every = {f"{name}.{key}" for name in tables for key in table_at((name,)).model_fields}  # type: ignore[union-attr]
    assert every <= {line.partition(" = ")[0] for line in listed}
    assert "placet config accept" in unaccepted
    assert 'portals.code.path: "/tmp" -> "/usr"' in unaccepted


def test_setting_local_server_sets_all_it_needs(vault: TestVault) -> None:
    config(vault).write_text("[limits]\nday_usd = 10\n")
    with server(of_llama_server("qwen", 32_768)) as (url, _):
        said = vault.click("config", "set", "model.base_url", url).stderr
    model = load(vault.root).model
    assert (model.name, model.context_tokens, model.max_tokens) == ("qwen", 32_768, 8_192)
    assert [(row.model, row.input) for row in model.price] == [("qwen", 0)]
    assert "model.name is now qwen." in said
    assert "counts as free" in said
    assert "cannot hold" not in said


def test_limit_without_price_is_said_when_set(vault: TestVault) -> None:
    config(vault).write_text('[model]\nname = "qwen"\n')
    said = vault.click("config", "set", "limits.day_usd", "5").stderr
    assert "qwen has no price, so the limit of $5 a day cannot hold." in said
    assert "placet config set limits.day_usd 0" in said


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("daemon.wach", "daemon.watch"),
        ("paused", "daemon.paused"),
        ("limit.day_usd", "limits.day_usd"),
        ("daemon.name", "model.name"),
    ],
)
def test_unknown_setting_gets_suggestion_and_changes_nothing(
    vault: TestVault, key: str, meant: str
) -> None:
    before = config(vault).read_bytes()
    for words in (("set", key, "1"), ("get", key)):
        done = vault.click("config", *words, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"There is no setting {key}." in done.stderr
        assert f"Did you mean {meant}" in done.stderr
    assert config(vault).read_bytes() == before


def test_unrecognisable_setting_points_to_full_list(vault: TestVault) -> None:
    for words in (("set", "x\x1b[31m.zzz", "1"), ("get", "zzz"), ("set", "model", "{}")):
        done = vault.click("config", *words, check=False)
        assert done.returncode == 2
        assert "See them all: placet config" in done.stderr
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
def test_invalid_value_error_names_allowed_values(
    vault: TestVault, key: str, value: str, may: str
) -> None:
    before = config(vault).read_bytes()
    done = vault.click("config", "set", key, value, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{key} cannot be {value}" in done.stderr
    assert may in " ".join(done.stderr.split())
    assert "Nothing was written." in done.stderr
    assert config(vault).read_bytes() == before


def test_string_setting_needs_no_quotes(vault: TestVault) -> None:
    for given in ("5", "true", "2026-01-01", '"5"', "a = b"):
        vault.click("config", "set", "vault.host", given)
        assert json.loads(vault.click("config", "get", "vault.host").stdout) == given.strip('"')


def test_every_setting_describes_its_allowed_values() -> None:
    for name in Config.model_fields:
        table = table_at((name,))
        for key in table.model_fields if table is not None else ():
            assert allowed((name, key)), key


def test_typo_in_configuration_file_gets_suggestion(vault: TestVault) -> None:
    config(vault).write_text("[daemon]\npausd = true\n[modl]\nname = 'x'\n[model]\nzzz = 1\n")
    said = vault.click("config", check=False).stderr
    assert "daemon.pausd: there is no such setting (did you mean paused?)" in said
    assert "modl: there is no such setting (did you mean model?)" in said
    assert "model.zzz: there is no such setting\n" in said


def test_value_conflicting_with_others_is_refused(
    vault: TestVault,
) -> None:
    done = vault.click("config", "set", "guards.repeats", "50", check=False)
    assert done.returncode == 2
    assert "must fit into window" in done.stderr
