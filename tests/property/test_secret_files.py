"""Test that files with secrets are recognised, shown without values, and never committed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.test_secrets import KEY, KEY_LINES, TOKENS

from placet.loop.build import own_secrets
from placet.secret_files import (
    environment_secrets,
    find_secrets,
    git_config_secrets,
    is_secret_path,
    redact_values,
    secret_values,
)


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "app/.env",
        ".ENV",
        ".env.production",
        "prod.env",
        ".envrc",
        "id_rsa",
        ".ssh/config",
        "certs/server.pem",
        "x.key",
        "a.p12",
        ".netrc",
        ".npmrc",
        ".aws/credentials",
        ".git-credentials",
        ".env.",
        "deep/er/.Env.Local",
        "config/secrets.yml",
        "credentials.json",
        "secrets.toml",
        "vault_pass.txt",
        ".vault-password",
    ],
)
def test_secret_files(path: str) -> None:
    assert is_secret_path(path)


@pytest.mark.parametrize(
    "path",
    [
        ".env.example",
        ".env.sample",
        "env.py",
        "src/environment.md",
        "id_rsa.pub",
        "keys.py",
        "secrets.py",
        "monkey",
        ".ssh/known_hosts",
        "template.env",
        "",
        "pem",
        ".env.d.ts",
        "secrets.md",
        "bypass",
        "compass.txt",
    ],
)
def test_ordinary_files(path: str) -> None:
    assert not is_secret_path(path)


ENV = (
    '# settings\nDEBUG=true\nPORT=8080\nexport DB_PASSWORD="hunter2 with spaces"  # note\nEMPTY=\nURL=postgres://ann:pa55word@db/x\n'
    "CERT=\"line one\nline two longer than most\"\nAPI_TOKEN='abc123def'\n#OLD_KEY=zzz999zzz\nyaml: value\nnonsense here\n"
)


def test_redacted_settings_file_keeps_names_and_lines() -> None:
    shown, count = redact_values(ENV)
    assert shown.count("\n") == ENV.count("\n")
    assert count == 9
    for name in (
        "DEBUG=",
        "DB_PASSWORD=",
        "EMPTY=",
        "URL=",
        "CERT=",
        "API_TOKEN=",
        "#OLD_KEY=",
        "yaml: ",
        "# settings",
    ):
        assert name in shown
    for value in (
        "true",
        "8080",
        "hunter2",
        "pa55word",
        "line",
        "abc123",
        "zzz",
        "yaml: value",
        "nonsense",
    ):
        assert value not in shown


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "export B", "#c", "d.e", "f-g"]),
            st.sampled_from(["=", ": ", " = "]),
            st.text("7'\"` ", max_size=8),
        )
    )
)
def test_settings_are_shown_without_any_value(settings: list[tuple[str, str, str]]) -> None:
    text = "\n".join(map("".join, settings))
    shown, _ = redact_values(text)
    assert shown.count("\n") == text.count("\n")
    assert "7" not in shown


def test_secret_values_exclude_trivial_ones() -> None:
    values = secret_values(".env", ENV)
    assert {"hunter2 with spaces", "pa55word", "abc123def", "zzz999zzz"} <= set(values)
    assert not {"true", "8080"} & set(values)
    assert not any("line one" in value for value in secret_values("notes.txt", ENV))
    assert set(KEY_LINES) <= set(secret_values("id_rsa", KEY))


def test_the_daemons_own_secrets_come_from_its_environment(tmp_path: Path) -> None:
    (tmp_path / "anthropic_api_key").write_text("credential-value\n")
    env = {
        "ANTHROPIC_API_KEY": "sk-0123456789",
        "PATH": "/usr/bin",
        "XDG_SESSION_TYPE": "wayland",
        "SSH_AUTH_SOCK": "/run/agent",
        "GITHUB_TOKEN": "ghx-0123456789",
        "TOKEN": "no",
        "HOME": "/home/ann",
    }
    assert environment_secrets(env) == ("sk-0123456789", "ghx-0123456789")
    assert own_secrets({**env, "CREDENTIALS_DIRECTORY": str(tmp_path)})[-1] == "credential-value"


def test_git_config_passwords_are_found() -> None:
    config = (
        '[remote "origin"]\n\turl = https://ann:pa55word@example.org/x.git\n[http]\n\textraheader = AUTHORIZATION: basic '
        'QWxhZGRpbjpvcGVu\n[remote "b"]\n\turl = git@example.org:x/y.git\n\tfetch = +refs/heads/*:refs/remotes/b/*\n'
    )
    assert git_config_secrets(config) == ("pa55word", "QWxhZGRpbjpvcGVu")


@pytest.mark.parametrize(
    ("path", "data", "found"),
    [
        ("a.py", f'x = 1\ny = "{TOKENS["GitHub token"]}"\n', [(2, "GitHub token")]),
        ("k.txt", f"a\nb\n{KEY}\n", [(3, "private key")]),
        (".env", "A=1\nDB_PASSWORD=hunter22\n", [(2, "value of DB_PASSWORD")]),
        (".env", "DB_PASSWORD=changeme\nAPI_KEY=<your key>\nTOKEN=${TOKEN}\nDEBUG=true\n", []),
        (".env.example", "DB_PASSWORD=hunter22\n", []),
        ("settings.txt", "DB_PASSWORD=hunter22\n", []),
        ("store.p12", "\x01\x02", [(1, "key store")]),
        ("server.pem", "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----\n", []),
    ],
)
def test_added_secrets_are_found_in_commit(
    path: str, data: str, found: list[tuple[int, str]]
) -> None:
    assert find_secrets(data.encode(), path=path) == found
    assert find_secrets(data.encode(), path=path, before=data.encode()) == []
    assert find_secrets(data.encode(), path=path, before=b"something else") == found


def test_secret_already_present_is_not_reported() -> None:
    old, new = TOKENS["GitHub token"], TOKENS["GitLab token"]
    assert find_secrets(f"{old}\n\n{new}\n".encode(), before=f"x {old}".encode()) == [
        (3, "GitLab token")
    ]
