"""Test that `placet doctor` names a fix for each finding."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.cli.test_init import listing, of_llama_server, server

from gitkit import make_repo
from messages_api import Answer, MessagesApi, call, reply, reset, status, text
from placet.chat.text_calls import call_text
from placet.cli.main import COMMANDS
from placet.client.doctor import doctor
from placet.client.findings import Finding
from placet.errors import UserError
from placet.sandbox.box import Level
from placet.sandbox.probe import Attempt, Probe
from vaultkit import TestVault, make_vault


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    vault = make_vault(tmp_path)
    vault.extra |= {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": ""}
    return vault


@contextmanager
def quick() -> Iterator[None]:
    with patch("placet.client.doctor.probe", return_value=Probe(Level.NONE, ())):
        yield


def found(vault: TestVault, what: str = "") -> list[Finding]:
    with quick():
        return [line for line in doctor(vault.site) if what in ("", line.what)]


def break_everything(vault: TestVault) -> None:
    """Bring about as many findings at once as there can be."""
    repo = make_repo(vault.root.parent / "repo")
    vault.configure(f'[portals.gone]\npath = "/nowhere"\n[portals.repo]\npath = "{repo}"\n')
    vault.here()
    vault.configure(
        '[daemon]\npaused = true\n[model]\nprovider = "anthropic"\n[commands]\nsandbox = "none"\n'
        f'[portals.gone]\npath = "/nowhere"\n[portals.repo]\npath = "{repo}"\n',
        accepted=False,
    )
    (repo / ".git/index.lock").touch()
    os.utime(repo / ".git/index.lock", (1, 1))
    (vault.root / "System/.placet-vault").write_text("")
    key = Path(vault.extra["HOME"]) / ".config/placet/anthropic_api_key"
    key.parent.mkdir(parents=True)
    key.write_text("x\n")
    key.chmod(0o644)


def test_everything_that_is_not_good_has_a_fix(vault: TestVault) -> None:
    break_everything(vault)
    lines = found(vault)
    bad = {line.what for line in lines if line.state != "good"}
    assert {"settings", "id", "sandbox", "model", "portal gone", "lock", "daemon"} <= bad
    assert {"work", "key"} <= bad
    for line in lines:
        assert bool(line.helps) == (line.state != "good"), line
    fixes = " ".join(line.helps for line in lines)
    for command in (
        "placet config accept",
        "placet config set portals.gone.path PATH",
        "placet resume",
        "placet run",
        "chmod 600 ",
        "export ANTHROPIC_API_KEY=…",
    ):
        assert command in fixes


def test_doctor_names_commands_for_damaged_journal(vault: TestVault) -> None:
    vault.here()
    with closing(sqlite3.connect(vault.db, isolation_level=None)) as other:
        other.execute("UPDATE activity SET actor = 'human' WHERE id = 1")
    (line,) = found(vault, "journal")
    assert line.state == "bad"
    assert "placet journal verify" in line.helps
    assert "placet journal path" in line.helps


def test_doctor_says_one_thing_of_the_journal(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> list[str]:
        raise UserError("The journal cannot be read.", "Look at its disk.")

    vault.here()
    monkeypatch.setattr("placet.client.doctor.leftover_worktrees", fails)
    assert [line.state for line in found(vault, "journal")] == ["bad"]


@pytest.mark.parametrize(
    ("wall", "state", "said"),
    [
        (Probe(Level.BUBBLEWRAP, (), ""), "good", "held"),
        (Probe(Level.BUBBLEWRAP, (), "the proxy was not reached"), "bad", "was not reached"),
        (Probe(Level.LANDLOCK, ()), "warn", "cannot name hosts here"),
    ],
)
def test_doctor_says_whether_hosts_are_held(
    vault: TestVault, wall: Probe, state: str, said: str
) -> None:
    with patch("placet.client.doctor.probe", return_value=wall):
        (line,) = (line for line in doctor(vault.site) if line.what == "hosts")
    assert line.state == state
    assert said in line.found


def test_the_commands_that_the_fixes_name_exist(vault: TestVault) -> None:
    break_everything(vault)
    named = {
        word
        for line in found(vault)
        for word in re.findall(r"placet ([a-z]+)", line.helps.replace("placet as yourself", ""))
    }
    assert {"config", "run", "resume"} <= named <= set(COMMANDS)


def test_doctor_checks_local_server_for_messages_api(vault: TestVault) -> None:
    with server({**listing("qwen"), "/v1/models/qwen": (200, b"{}")}) as (url, came):
        vault.configure(f'[model]\nname = "qwen"\nbase_url = "{url}"\n')
        (line,) = found(vault, "model")
        assert ("POST", "/v1/messages", b"{}") in came
    assert line.state == "bad"
    assert "does not speak the Messages API" in line.found
    assert "placet config set model.base_url URL" in line.helps
    with MessagesApi([]) as api:
        vault.configure(f'[model]\nname = "qwen"\nbase_url = "{api.url}"\n')
        (line,) = found(vault, "model")
        assert api.used == 0
    assert line.state == "warn"
    assert "does not say whether the name is right" in line.found
    assert line.helps


@pytest.mark.parametrize("listed", ["qwen", "/models/qwen.gguf"])
def test_doctor_compares_context_with_the_servers(vault: TestVault, listed: str) -> None:
    model = '[model]\nname = "qwen"\nbase_url = "{}"\n'
    answers = {"/v1/messages": (400, b"{}"), **of_llama_server(listed, 32_768)}
    with server(answers) as (url, _):
        vault.configure(model.format(url) + "context_tokens = 32768\n")
        (good,) = found(vault, "model")
        vault.configure(model.format(url))
        (bad,) = found(vault, "model")
    assert (good.state, bad.state) == ("good", "bad")
    assert "with a context of 32,768 tokens" in good.found
    assert bad.helps == "placet config set model.context_tokens 32768"


def test_doctor_names_models_of_the_server(vault: TestVault) -> None:
    with server({"/v1/messages": (400, b"{}"), **listing("a", "b")}) as (url, _):
        vault.configure(f'[model]\nname = "qwen"\nbase_url = "{url}"\n')
        (line,) = found(vault, "model")
    assert "its server lists other models: a, b" in line.found
    assert line.helps == "placet config set model.name a"


def test_doctor_finds_limit_without_price(vault: TestVault) -> None:
    vault.configure('[model]\nname = "qwen"\n[limits]\nday_usd = 10\n')
    (line,) = found(vault, "limit")
    assert "qwen has no price, so the limit of $10 a day cannot hold." in line.found
    assert line.helps == "If it is free: placet config set limits.day_usd 0"


ANSWER = call("answer", {"number": 2})
SHOWN = {"input_tokens": 300, "output_tokens": 9}


@pytest.mark.parametrize(
    ("tools", "answer", "words"),
    [
        ("auto", reply(ANSWER, usage=SHOWN), ["called the tool"]),
        (
            "auto",
            reply(text("It is 2."), usage={"input_tokens": 45, "output_tokens": 9}),
            ["does not show the tools to the model (45 tokens", "answered with text"],
        ),
        ("auto", reply(ANSWER, usage={"input_tokens": 0, "output_tokens": 0}), ["no tokens"]),
        ("auto", status(400, "no_db_connection", "No connected db"), ["No connected db"]),
        ("auto", reset(), ["not made: qwen at"]),
        ("text", reply(text(call_text("answer", {"number": 2})), usage=SHOWN), ["called the tool"]),
        ("text", reply(text("It is 2."), usage=SHOWN), ["wrote no call that placet can read"]),
    ],
)
def test_tiny_call_shows_what_server_lacks(
    vault: TestVault, tools: str, answer: Answer, words: list[str]
) -> None:
    with MessagesApi([answer]) as api, quick():
        vault.configure(f'[model]\nname = "qwen"\nbase_url = "{api.url}"\ntools = "{tools}"\n')
        lines = [one for one in doctor(vault.site, tries=True) if one.what == "tiny call"]
    assert len(lines) == len(words)
    for line, said in zip(lines, words, strict=True):
        assert said in line.found
        assert bool(line.helps) == (line.state != "good")


def test_doctor_reports_provider_without_server(
    vault: TestVault,
) -> None:
    with (
        server(listing("x")) as (url, came),
        patch("placet.client.doctor.model_answers", return_value=None),
    ):
        vault.configure(f'[model]\nname = "x"\nbase_url = "{url}"\n')
        (line,) = found(vault, "model")
    assert came == []
    assert line.state == "good"
    assert "it has no server that could be asked" in line.found


def test_doctor_reports_only_readable_key_file(
    vault: TestVault,
) -> None:
    key = Path(vault.extra["HOME"]) / ".config/placet/anthropic_api_key"
    key.parent.mkdir(parents=True)
    key.write_text("sk-secret\n")
    key.chmod(0o640)
    (line,) = found(vault, "key")
    assert line.state == "bad"
    assert line.helps == f"chmod 600 {key}"
    assert "sk-secret" not in str(line)
    key.chmod(0o600)
    assert found(vault, "key") == []


@pytest.mark.parametrize(
    "name",
    [
        "Dropbox/placet",
        "Dropbox (Personal)/placet",
        "OneDrive - Firm/x/placet",
        "Library/Mobile Documents/com~apple~CloudDocs/placet",
        "iCloudDrive/placet",
        "Nextcloud/placet",
        "Google Drive/placet",
        "My Drive/placet",
    ],
)
def test_doctor_warns_of_synced_state_folder(vault: TestVault, name: str) -> None:
    vault.extra["PLACET_STATE_HOME"] = str(vault.root.parent / name)
    (line,) = found(vault, "state")
    assert line.state == "warn"
    assert f"seems to be synced ({vault.root.parent}/{name[:5]}" in line.found
    assert "PLACET_STATE_HOME" in line.helps


def test_doctor_warns_of_syncthing_above_state_folder(vault: TestVault, tmp_path: Path) -> None:
    assert not found(vault, "state")
    (tmp_path / ".stfolder").mkdir()
    (line,) = found(vault, "state")
    assert f"({tmp_path})" in line.found
    said = vault.click("init", str(tmp_path / "another"), "--no-input").stderr
    assert "seems to be synced" in said


@pytest.mark.parametrize("accepted", [False, True])
def test_doctor_says_what_landlock_lacks(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch, accepted: bool
) -> None:
    monkeypatch.setattr("placet.client.doctor.probe", lambda: Probe(Level.LANDLOCK, ()))
    if accepted:
        vault.click("config", "set", "commands.sandbox", "landlock")
    (line,) = [line for line in doctor(vault.site) if line.what == "sandbox"]
    assert line.state == ("warn" if accepted else "bad")
    assert ("commands.sandbox landlock" in line.helps) is not accepted
    assert "modes and times" in line.helps


def test_gaps_of_sandbox_are_sentences(vault: TestVault, monkeypatch: pytest.MonkeyPatch) -> None:
    gap = Attempt(
        "stat_outside", blocked=False, level=Level.LANDLOCK, promised=False, detail="Learn a fact."
    )
    monkeypatch.setattr("placet.client.doctor.probe", lambda: Probe(Level.LANDLOCK, (gap,)))
    (line,) = [line for line in doctor(vault.site) if line.what == "sandbox"]
    assert "A command can: learn a fact." in line.found
    assert "stat_outside" not in line.found
