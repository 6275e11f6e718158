"""Test which settings hold, and how a person accepts them."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from gitkit import make_repo
from messages_api import MessagesApi, call, reply
from placet.errors import UserError
from placet.host.accepted import accept, guarded, holding, in_force
from placet.host.config import LimitsTable, load, parse
from placet.host.state import vault_state
from vaultkit import DONE, PLAN, TestVault, make_vault, running, until

KEY = "sk-ant-test-0123456789"


def planner(_body: object) -> object:
    return reply(call("submit_plan", PLAN))


def names(vault: TestVault, action: str) -> list[list[str]]:
    return [row["metadata"]["keys"] for row in vault.rows(action)]


def test_api_key_is_not_sent_to_unaccepted_address(
    tmp_path: Path,
) -> None:
    with MessagesApi(planner) as ours, MessagesApi(planner) as theirs:
        vault = make_vault(tmp_path, ANTHROPIC_API_KEY=KEY)
        vault.configure(f'[model]\nbase_url = "{ours.url}"\n')
        with running(vault):
            vault.drop("Say hello\n")
            until(vault.plan().exists, "a plan")
            vault.configure(
                f'[model]\nbase_url = "{theirs.url}"\n[notify]\ncommand = ["touch", "{tmp_path}/pwned"]\n',
                accepted=False,
            )
            vault.await_action("config.changed")
            vault.drop("Say more\n", "More.md")
            until(vault.plan("more").exists, "a plan")
        with running(vault):  # nor does a start take it up
            vault.drop("Say yet more\n", "Yet more.md")
            until(vault.plan("yet-more").exists, "a plan")
            assert json.loads(vault.click("status", "--json").stdout)["unaccepted"] == [
                "model.base_url",
                "notify.command",
            ]
            assert (
                "not accepted on this machine: model.base_url, notify.command"
                in vault.click("status").stdout
            )
            assert "placet config accept" in vault.click("doctor", check=False).stdout
        assert not theirs.requests
        assert not (tmp_path / "pwned").exists()
        assert names(vault, "config.accepted") == [["model.base_url"]]
        # journalled once
        assert names(vault, "config.changed") == [["model.base_url", "notify.command"]]
        assert theirs.url not in str(vault.rows("config.changed"))

        shown = vault.click("config", "accept", stdin="n\n", check=False)
        assert shown.returncode == 1
        assert theirs.url in shown.stdout
        vault.click("config", "accept", "--yes")
        vault.drop("And more\n", "And more.md")
        vault.here()
        assert theirs.requests


def test_config_command_accepts_only_its_own_change(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    one, two = (make_repo(tmp_path / name, {"a.txt": "a\n"}) for name in ("one", "two"))
    vault.configure(f'[portals.one]\npath = "{one}"\n')
    vault.here()
    vault.configure(
        f'[portals.one]\npath = "{one}"\n[notify]\nwebhook = "https://evil.example/x"\n',
        accepted=False,
    )
    vault.click("portal", "add", "two", str(two))
    held = in_force(vault.root, vault.env)
    assert held.names == ["notify.webhook"]
    assert set(held.config.portals) == {"one", "two"}
    vault.click("portal", "remove", "one")
    vault.click("config", "set", "daemon.plans_at_once", "3")
    held = in_force(vault.root, vault.env)
    assert held.names == ["notify.webhook"]
    assert set(held.config.portals) == {"two"}
    assert held.config.notify.webhook == ""
    refused = vault.click("notify", "test", check=False)
    assert refused.returncode == 1
    assert "notify.webhook" in refused.stderr


def test_portals_hold_with_the_path_that_was_accepted(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    ours, theirs = (make_repo(tmp_path / name, {"a.txt": "a\n"}) for name in ("ours", "theirs"))
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}] * 2))
    vault.configure(
        (vault.root / "System/placet.toml").read_text() + f'[portals.code]\npath = "{ours}"\n'
    )
    vault.here()
    written = (vault.root / "System/placet.toml").read_text()
    vault.configure(
        written.replace(str(ours), str(theirs)) + f'[portals.more]\npath = "{theirs}"\n',
        accepted=False,
    )
    vault.drop("---\nportal: more\n---\nSay hello\n", "More.md")
    vault.drop("---\nportal: code\n---\nSay hello\n")
    vault.here()
    assert vault.plan().exists()
    assert not vault.plan("more").exists()
    assert "accept it on this machine" in (vault.root / "Inbox/Requests/More.placet.md").read_text()
    listed = json.loads(vault.click("portal", "list", "--json").stdout)
    assert [line["accepted"] for line in listed] == [False, False]
    assert "not accepted" in vault.click("portal", "check", check=False).stdout


def test_lost_state_folder_is_announced_as_first_start(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.configure('[notify]\ncommand = ["true"]\n')
    assert any("notify.command" in said for said in vault.here())
    assert not any("notify.command" in said for said in vault.here())
    vault_state(vault.root, vault.env).accepted.unlink()
    assert any("notify.command" in said for said in vault.here())
    assert names(vault, "config.accepted") == [["notify.command"]] * 2


def test_accepted_settings_are_readable_by_owner_only(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.here()
    mode = vault_state(vault.root, vault.env).accepted.stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_default_settings_need_no_acceptance(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.here()
    vault.configure(
        '[model]\nbase_url = ""\n[guards]\nrepeats = 4\n[notify]\ndesktop = false\n[commands]\nsandbox = "auto"\n',
        accepted=False,
    )
    held = in_force(vault.root, vault.env)
    assert held.refused == ()
    assert held.config.guards.repeats == 4
    vault.configure('[commands]\nsandbox = "none"\n', accepted=False)
    held = in_force(vault.root, vault.env)
    assert held.names == ["commands.sandbox"]
    assert held.config.commands.sandbox == "auto"


def test_guarded_settings_come_from_accepted_values(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    state = vault_state(vault.root, vault.env)
    state.ensure()
    accept(
        state,
        parse(
            '[model]\nbase_url = "http://a"\n[portals.a]\npath = "/a"\n[portals."b.c"]\npath = "/b"\n',
            "here",
        ),
    )
    held = holding(
        parse(
            '[vault]\ndefault_agent = "n"\n[portals.a]\npath = "/x"\n[portals.d]\npath = "/d"\n[[model.price]]\nmodel = "n"\n'
            "since = 2026-01-01\ninput = 1\noutput = 1\ncache_read = 1\ncache_write = 1\n",
            "here",
        ),
        state,
    )
    assert held.config.model.base_url == "http://a"
    assert held.config.vault.default_agent == "n"
    assert held.config.model.price == ()
    assert {name: portal.path for name, portal in held.config.portals.items()} == {
        "a": "/a",
        "b.c": "/b",
    }
    assert set(held.names) == {
        "model.base_url",
        "model.price",
        "portals.a.path",
        "portals.b.c.path",
        "portals.d.path",
    }
    assert accept(state, load(vault.root)) == (
        ("model", "base_url"),
        ("portals", "a", "path"),
        ("portals", "b.c", "path"),
    )
    assert guarded(holding(load(vault.root), state).config) == {}


def test_waiting_plan_never_runs_in_another_repository(
    tmp_path: Path,
) -> None:
    vault = make_vault(tmp_path)
    ours, theirs = (
        make_repo(tmp_path / name, {f"{name}.txt": "a\n"}) for name in ("ours", "theirs")
    )
    vault.plays(PLAN)
    vault.configure(
        (vault.root / "System/placet.toml").read_text() + f'[portals.code]\npath = "{ours}"\n'
    )
    vault.drop("---\nportal: code\n---\nSay hello\n")
    vault.here()
    vault.click("config", "set", "portals.code.path", str(theirs))
    vault.approve()
    vault.here()
    assert not vault.rows("execution.completed")
    assert vault.plan().exists()  # back in review, with what happened
    assert vault.rows("plan.drifted")


def test_configuration_recreated_by_init_is_accepted(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.configure('[notify]\ncommand = ["true"]\n')
    vault.here()
    (vault.root / "System/placet.toml").unlink()
    vault.click("init", str(vault.root))
    assert in_force(vault.root, vault.env).names == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "\xff", "null", "[]", "3", '{"model": 3}', '{"model": {"base_url": {"a": 1}}}'],
)
def test_unreadable_accepted_settings_file_is_named(tmp_path: Path, text: str) -> None:
    vault = make_vault(tmp_path)
    state = vault_state(vault.root, vault.env)
    state.ensure()
    state.accepted.write_text(text, "latin-1")
    with pytest.raises(UserError, match=r"accepted\.json") as caught:
        in_force(vault.root, vault.env)
    assert caught.value.exit_code == 2


def test_accepted_file_overrides_only_guarded_settings(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.configure('[vault]\ndefault_agent = "mine"\n')
    state = vault_state(vault.root, vault.env)
    state.ensure()
    state.accepted.write_text('{"vault": {"default_agent": {"a": 1}}, "daemon": {"paused": true}}')
    found = in_force(vault.root, vault.env)
    assert (found.config.vault.default_agent, found.config.daemon.paused, found.refused) == (
        "mine",
        False,
        (),
    )


@pytest.mark.parametrize(
    ("key", "accepted", "written", "holds"),
    [
        ("day_usd", 5, 3, 3),
        ("day_usd", 5, 9, 5),
        ("day_usd", 5, 0, 5),
        ("day_usd", 0, 7, 7),
        ("day_usd", 5, None, 5),
        ("iterations_ceiling", None, 1000, 100),
        ("iterations_ceiling", 1000, None, 100),
        ("free_disk_bytes", None, 1_048_576, 268_435_456),
        ("free_disk_bytes", None, 999_999_999, 999_999_999),
    ],
)
def test_only_a_lowered_limit_needs_no_acceptance(
    tmp_path: Path, key: str, accepted: int | None, written: int | None, holds: int
) -> None:
    def said(value: int | None) -> str:
        return "[limits]\n" + (f"{key} = {value}\n" if value is not None else "")

    vault = make_vault(tmp_path)
    vault.configure(said(accepted))
    state = vault_state(vault.root, vault.env)
    state.ensure()
    accept(state, load(vault.root))
    vault.configure(said(written), accepted=False)
    held = in_force(vault.root, vault.env)
    assert getattr(held.config.limits, key) == holds
    says = LimitsTable.model_fields[key].default if written is None else written
    assert held.names == ([] if holds == says else [f"limits.{key}"])


def test_unaccepted_model_script_is_refused(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    state = vault_state(vault.root, vault.env)
    state.ensure()
    accept(state, load(vault.root))
    vault.configure('[model]\nprovider = "scripted"\nscript = "x.toml"\n', accepted=False)
    held = in_force(vault.root, vault.env)
    assert "model.script" in held.names


def test_plan_for_changed_model_needs_new_approval(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN, *DONE)
    vault.drop("Say hello.\n")
    vault.once()
    config = (vault.root / "System" / "placet.toml").read_text()
    vault.configure(re.sub(r"(?m)^name = .*", 'name = "another"', config))
    vault.approve()
    vault.once()
    assert "now name scripted: another" in vault.plan().read_text()
    assert "execution.started" not in vault.actions()
    vault.approve()
    vault.once()
    assert "execution.started" in vault.actions()
