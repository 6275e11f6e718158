"""Test that `placet init` asks at most three questions, each with a default and an option."""

from __future__ import annotations

import json
import threading
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gitkit import git, make_repo
from placet.models.server import speaks_messages
from placet.note.paths import CONFIG_PATH
from ptykit import Person, terminal
from vaultkit import TestVault


@pytest.fixture
def place(tmp_path: Path) -> TestVault:
    """A folder to call `init` in; its vaults' state is aside."""
    (tmp_path / "at").mkdir()
    return TestVault(tmp_path / "at", tmp_path / "state")


@contextmanager
def server(
    answers: Mapping[str, tuple[int, bytes]],
) -> Iterator[tuple[str, list[tuple[str, str, bytes]]]]:
    """Serve these answers by path on loopback; give the address, and the requests that came."""
    came: list[tuple[str, str, bytes]] = []

    class Answering(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class names it so
            pass

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            came.append((self.command, self.path, body))
            code, said = answers.get(self.path, (404, b"{}"))
            self.send_response(code)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = answer  # noqa: N815 as the base class wants them

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_address[1]}", came
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def listing(*names: object) -> dict[str, tuple[int, bytes]]:
    return {"/v1/models": (200, json.dumps({"data": [{"id": name} for name in names]}).encode())}


@contextmanager
def at_a_terminal(place: TestVault, *words: str) -> Iterator[Person]:
    with terminal(place, *words, columns=200, TERM="xterm") as screen:
        yield Person(screen)


def settings(vault: Path) -> dict[str, Any]:
    return tomllib.loads((vault / CONFIG_PATH).read_text())


def test_it_asks_for_model_repository_and_history(place: TestVault) -> None:
    repo = make_repo(place.root / "My Code")
    (repo / "src").mkdir()
    url = "http://127.0.0.1:9"
    there = replace(place, root=repo / "src")
    with at_a_terminal(there, "init", str(place.root / "vault")) as person:
        asked = person.sees("Model [anthropic]: ")
        assert "Anthropic (set its key: export ANTHROPIC_API_KEY=…)\n" in asked
        person.writes("llama")
        assert "llama is not a server's address." in person.sees("Model [anthropic]: ")
        person.writes(f"{url}/v1")
        assert "cannot be asked for its models" in person.sees("Name of the model there: ")
        person.writes("qwen")
        person.sees(f"Path, or - for none [{repo}]: ")
        person.writes("")
        person.sees("May placet keep a history of this vault? [Y/n]: ")
        person.writes("")
        said = person.sees("Add a changelog")
        assert person.ends() == 0
    assert "export ANTHROPIC" not in said, "a server on this machine needs no key"
    found = settings(place.root / "vault")
    (price,) = found["model"].pop("price")
    assert price["model"] == "qwen"
    assert price["input"] == price["output"] == 0
    assert found["model"] == {"provider": "anthropic", "base_url": url, "name": "qwen"}
    assert found["portals"] == {"my-code": {"path": str(repo)}}
    assert found["vault"]["history"] is True
    there = replace(place, root=place.root / "vault")
    assert f"qwen ({url.removeprefix('http://')})\n" in there.cli("status").stdout


def test_init_with_key_defaults_to_vendor(place: TestVault) -> None:
    place.extra["ANTHROPIC_API_KEY"] = "sk-ant-secret"
    own = make_repo(place.root / "placet")
    (own / "daemon/placet").mkdir(parents=True)
    there = replace(place, root=own)
    with at_a_terminal(there, "init", str(place.root / "vault")) as person:
        asked = person.sees("Model [anthropic]: ")
        assert "Anthropic (the key is in ANTHROPIC_API_KEY)\n" in asked
        person.writes("")
        person.sees("Path, or - for none [-]: ")
        person.writes("nowhere")
        person.sees("is not a git repository")
        person.sees("Path, or - for none [-]: ")
        person.writes("")
        person.sees("[Y/n]: ")
        person.writes("n")
        said = person.sees("Add a changelog")
        assert person.ends() == 0
    assert "sk-ant-secret" not in person.said
    assert "export ANTHROPIC" not in said
    found = settings(place.root / "vault")
    assert "model" not in found or not found["model"]
    assert "portals" not in found
    assert found["vault"]["history"] is False


def test_init_flags_answer_every_question(place: TestVault) -> None:
    repo = make_repo(place.root / "code")
    flags = ("--model", "demo", "--portal", f"c={repo}", "--history")
    with at_a_terminal(place, "init", "vault", *flags) as person:
        assert person.ends() == 0
    assert "]: " not in person.said
    with at_a_terminal(place, "init", "vault") as person:
        assert person.ends() == 0
    assert "]: " not in person.said
    found = settings(place.root / "vault")
    assert found["model"] == {
        "provider": "scripted",
        "name": "demo",
        "script": "System/demo-replies.toml",
    }
    assert found["portals"] == {"c": {"path": str(repo)}}


@pytest.mark.parametrize("flag", ["--no-input", "--yes"])
def test_init_without_input_uses_anthropic_without_repository(place: TestVault, flag: str) -> None:
    there = replace(place, root=make_repo(place.root / "code"))
    said = there.click("init", str(place.root / "vault"), flag).stderr
    assert "Model: Anthropic (set its key: export ANTHROPIC_API_KEY=…)" in said
    assert "portals" not in settings(place.root / "vault")
    assert not settings(place.root / "vault").get("model")


def test_init_names_the_folder_first(place: TestVault) -> None:
    said = place.click("init", "vault", "--no-input").stderr
    assert said.startswith(f"placet: The vault: {place.root / 'vault'}\n")


def test_home_folder_becomes_no_vault_unasked(
    place: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(place.root))
    done = place.click("init", check=False)
    assert done.returncode == 2
    assert f"{place.root} is your home folder. Nothing was made." in done.stderr
    assert not list(place.root.iterdir())
    with at_a_terminal(place, "init", "--model", "demo") as person:
        person.sees("Continue? [y/N]: ")
        person.writes("")
        assert person.ends() == 2
    assert not list(place.root.iterdir())
    place.click("init", "--yes", "--model", "demo")
    assert (place.root / CONFIG_PATH).is_file()


def test_init_names_notes_that_will_be_planned(place: TestVault) -> None:
    folder = place.root / "vault" / "Inbox" / "Requests"
    folder.mkdir(parents=True)
    (folder / "Tidy up.md").write_text("Please.\n")
    (folder / "Later.md").write_text("---\nstatus: draft\n---\nNot yet.\n")
    said = place.click("init", "vault", "--no-input").stderr
    assert "will plan 1 note that you have already: Inbox/Requests/Tidy up.md." in said
    assert "Later" not in said
    assert "will plan" not in place.click("init", "vault", "--no-input").stderr


@pytest.mark.parametrize(
    ("flags", "limit"),
    [
        (("--model", "demo"), 10),
        (("--model", "claude-opus-5-5"), 10),
        (("--model", "of-unknown-price"), None),
        (("--model", "claude-opus-5-5", "--base-url", "http://127.0.0.1:9"), None),
    ],
)
def test_new_vault_has_day_limit_and_names_it(
    place: TestVault, flags: tuple[str, ...], limit: int | None
) -> None:
    said = place.click("init", "vault", "--no-input", *flags).stderr
    assert settings(place.root / "vault").get("limits", {}).get("day_usd") == limit
    assert ("may cost $10 a day" in said) is (limit is not None)


def test_init_does_not_offer_enclosing_repository(place: TestVault) -> None:
    git(place.root, "init", "-q", ".")
    with at_a_terminal(place, "init", "vault", "--model", "demo", "--no-history") as person:
        person.sees("Path, or - for none [-]: ")
        person.writes("-")
        assert person.ends() == 0


def test_demo_model_completes_request(place: TestVault) -> None:
    root = place.root / "vault"
    done = place.click("init", str(root), "--no-input", "--model", "demo")
    made = done.stdout.splitlines()
    assert "System/demo-replies.toml" in made
    assert f"Created {len(made)} files.\n" in done.stderr
    vault = replace(place, root=root)
    vault.click("config", "set", "vault.quiet_s", "0")
    vault.drop("Please say hello.\n", "Say hello.md")
    vault.once()
    vault.click("approve", "say-hello", "--yes")
    vault.once()
    assert vault.rows("execution.completed")
    assert "Hello from placet.md" in vault.click("diff", "say-hello").stdout
    vault.click("init", str(root), "--model", "llama-9")
    assert settings(root)["model"] == {
        "provider": "anthropic",
        "script": "System/demo-replies.toml",
        "name": "llama-9",
    }


def test_other_server_needs_no_model_name(place: TestVault) -> None:
    place.click("init", "vault", "--no-input", "--base-url", "https://example.com/v1/")
    found = settings(place.root / "vault")["model"]
    assert found == {"provider": "anthropic", "base_url": "https://example.com"}


@pytest.mark.parametrize(
    "flags",
    [
        ("--base-url", "ftp://x"),
        ("--base-url", "http://user:key@x"),
        ("--base-url", "http://x:y"),
        ("--base-url", "http://127.0.0.1:9"),
        ("--portal", "code"),
        ("--portal", "code="),
        ("--portal", "code=/nowhere/at/all"),
    ],
)
def test_invalid_init_flag_creates_nothing(place: TestVault, flags: tuple[str, str]) -> None:
    done = place.click("init", "vault", "--no-input", *flags, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert not (place.root / "vault").exists()


def of_llama_server(name: str, context: int) -> dict[str, tuple[int, bytes]]:
    listed = {"data": [{"id": name, "meta": {"n_ctx": context}}]}
    return {"/v1/models": (200, json.dumps(listed).encode())}


def test_init_takes_only_model_of_a_server(place: TestVault) -> None:
    with server(of_llama_server("qwen", 32_768)) as (url, _):
        said = place.click("init", "vault", "--no-input", "--base-url", url).stderr
    found = settings(place.root / "vault")
    model = found["model"]
    assert (model["name"], model["context_tokens"], model["max_tokens"]) == ("qwen", 32_768, 8_192)
    assert {"input": 0, "output": 0}.items() <= model["price"][0].items()
    assert "day_usd" not in found.get("limits", {})
    assert "If its server forwards to a paid service, set a price" in said


def test_init_lists_models_to_name(place: TestVault) -> None:
    with server(listing("qwen", "llama")) as (url, _):
        done = place.click("init", "vault", "--no-input", "--base-url", url, check=False)
        assert "has these models: qwen, llama." in done.stderr
        assert not (place.root / "vault").exists()
        place.click("init", "vault", "--no-input", "--base-url", url, "--model", "llama")
    assert settings(place.root / "vault")["model"]["name"] == "llama"


def test_init_refuses_too_small_context(place: TestVault) -> None:
    with server(of_llama_server("qwen", 4_096)) as (url, _):
        done = place.click("init", "vault", "--no-input", "--base-url", url, check=False)
    assert done.returncode == 2
    assert "placet needs at least 8,192" in done.stderr


def test_messages_api_server_refuses_empty_request() -> None:
    with server({"/v1/messages": (400, b"{}")}) as (url, came):
        assert speaks_messages(url)
        assert came == [("POST", "/v1/messages", b"{}")]
    with server(listing("qwen")) as (url, _):
        assert not speaks_messages(url)
    assert speaks_messages(url), "who cannot be reached has said nothing"


@pytest.mark.parametrize("there", [True, False])
def test_missing_vault_error_names_remedy(place: TestVault, tmp_path: Path, there: bool) -> None:
    named = tmp_path / "named"
    if there:
        named.write_text("x")
    said = " ".join(place.click("status", "--vault", str(named), check=False).stderr.split())
    assert (f"{named} is not a folder." in said) is there
    assert (f"There is no folder {named}. Make one there: placet init" in said) is not there


def test_init_says_that_commands_need_acceptance(
    place: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placet.cli.init.starts", lambda _: False)
    said = place.click("init", str(place.root / "vault"), "--no-input").stderr
    assert "placet config set commands.sandbox landlock" in " ".join(said.split())
