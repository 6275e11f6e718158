"""Test that secrets are recognised, redacted without moving a line, and never committed."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitkit import make_repo
from messages_api import MessagesApi, call, reply
from placet import secrets
from placet.secret_files import (
    find_secrets,
    redact_values,
    secret_values,
)
from placet.secrets import MIN_LITERAL, outside, redact, spans
from vaultkit import PLAN, make_vault


def token(*parts: str) -> str:
    """Put a token together here, so that this file holds none."""
    return "".join(parts)


JWT = (
    ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "HS256", "typ": "JWT"}, {"sub": "ann", "admin": True})
    )
    + "."
    + "q" * 43
)
TOKENS = {
    "Anthropic key": token("sk-", "ant-api03-", "aB3_" * 20),
    "OpenAI key": token("sk-", "proj-", "aB3_" * 12),
    "GitHub token": token("ghp", "_", "aB3d" * 9),
    "GitLab token": token("glpat", "-", "aB3d" * 5),
    "AWS key": token("AK", "IA", "ABCDEFGH23456789"),
    "Slack token": token("xox", "b-", "123456789012-abcdefghij"),
    "Stripe key": token("sk_", "live_", "aB3d" * 6),
    "Google key": token("AI", "za", "aB3d_" * 7),
    "npm token": token("npm", "_", "aB3d" * 9),
    "PyPI token": token("pypi-", "AgE", "aB3d" * 16),
    "Hugging Face token": token("hf", "_", "aBcd" * 9),
    "SendGrid key": token("SG", ".", "a" * 22, ".", "b" * 43),
    "Docker token": token("dckr", "_pat_", "aB3d" * 7),
    "DigitalOcean token": token("dop", "_v1_", "0af3" * 16),
    "age key": token("AGE-SECRET", "-KEY-1", "QPZRY9X8" * 7),
    "JSON web token": JWT,
}
KEY_LINES = ["MIIEow" + "A1b2" * 14 + "/+" for _ in range(6)]
KEY = "\n".join(
    [
        token("-----BEGIN RSA ", "PRIVATE KEY-----"),
        *KEY_LINES,
        token("-----END RSA ", "PRIVATE KEY-----"),
    ]
)


@given(
    st.text(),
    st.sampled_from([None, *(hint for form in secrets._FORMATS for hint in form.hints)]),
    st.text(),
)
def test_cheap_search_finds_every_format(before: str, hint: str | None, after: str) -> None:
    text = f"{before}{hint or ''}{after}"
    expected = [form for form in secrets._FORMATS if any(one in text for one in form.hints)]
    assert secrets.formats_in(text, 0, len(text)) == expected
    assert hint is None or expected


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize(
    "frame",
    ["{}", "a {} b", 'key = "{}"', "KEY={}\n", "x\n{}\ny", "({})", "https://h/?t={}", "a\u00e9{}"],
)
def test_known_secret_formats_are_redacted_anywhere(kind: str, frame: str) -> None:
    text = frame.format(TOKENS[kind])
    shown, count = redact(text)
    assert count == 1
    assert shown == frame.format(f"[redacted: {kind}]")
    assert redact(shown) == (shown, 0)


@pytest.mark.parametrize("shift", [0, 1, 7])
@pytest.mark.thinned(2)
def test_secrets_are_found_across_window_ends(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [
        *TOKENS.values(),
        KEY,
        "plain words",
        "hunter2-pass",
        "x" * 90,
        token("secret_", "access_key = ", "q/+B" * 10),
    ]
    text = "y" * shift + "\n".join(pieces * 3)
    expected = list(spans(text, ["hunter2-pass"]))
    assert len(expected) == 3 * (len(pieces) - 2)
    before = find_secrets(text.encode()), secret_values("x.pem", text)
    for size in (1, 2, 3, 5, 64, 97, 1_000):
        monkeypatch.setattr(secrets, "WINDOW", size)
        monkeypatch.setattr(secrets, "_REACH", 400)
        assert list(spans(text, ["hunter2-pass"])) == expected, size
        assert find_secrets(text.encode()) == before[0], size
        if size == 1_000:  # longer than any line
            assert secret_values("x.pem", text) == before[1], size


NASTY = [
    "a",
    "-",
    "_",
    "J",
    "k_",
    "eyJ",
    "eyJ.",
    "sk-",
    "xoxb-",
    "SG.",
    "hooks.slack.com/",
    "secret_access_key = ",
    "\n",
    "\xff",
    "-----END PRIVATE " + "KEY-----\n",
    "-----BEGIN PRIVATE " + "KEY-----\nAAAA\n",
    "QUtJQTEyMzQ1Njc4OTBhYmNkZWY=\n",
    "\U0001f600",
    "A=b\n",
    token("ghp", "_", "aB3d" * 9, "\n"),
]


def longest_standstill(work: Callable[[], object]) -> float:
    """Return for how many seconds another thread, which wants to go on each 2 ms, had to wait while
    `work` was done.
    """
    longest, over = 0.0, threading.Event()

    def tick() -> None:
        nonlocal longest
        last = time.monotonic()
        while not over.is_set():
            time.sleep(0.002)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        work()
    finally:
        over.set()
        thread.join()
    return longest


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.mark.sweep
def test_no_file_makes_other_threads_wait() -> None:
    """A machine that is loaded makes any thread wait: against one that spins meanwhile.

    A search in one go took 0.7 s here.
    """
    size = 4 * 1024 * 1024

    def look(piece: str) -> None:
        text = piece * (size // len(piece))
        find_secrets(text.encode()[:size], path="src/x.txt")
        text = text[: size // 8]
        redact(text, ["hunter2-pass", piece * 20])
        redact_values(text)
        secret_values("key.pem", text)

    for piece in NASTY:
        for _ in range(5):  # one of them without somebody else's load
            waited, control = (
                longest_standstill(partial(look, piece)),
                longest_standstill(partial(spin, 0.1)),
            )
            if waited < 0.15 + 2 * control:
                break
        else:
            raise AssertionError(
                f"{piece!r}: {waited:.3f} s, where a thread that spins makes it wait for {control:.3f} s"
            )


@pytest.mark.parametrize(
    "text",
    [
        "sk-learn is not a key, nor is sk-ant",
        "task-proj-plan",
        "ghp_short",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOi.eyJzdWIi.x",
        "risk-" + "a" * 40,
        "AKIA" * 10,
        "data:image/png;base64," + "iVBORw0KGgo" * 200,
        "d41d8cd98f00b204e9800998ecf8427e",
        "npm_config_cache=/tmp",
        "-----BEGIN CERTIFICATE-----\n" + "\n".join(KEY_LINES) + "\n-----END CERTIFICATE-----",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ ann@example.org",
        "PRIVATE KEY handling is described below",
        "hf_transfer_enabled",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
    ],
)
def test_secret_lookalikes_are_kept(text: str) -> None:
    assert redact(text) == (text, 0)
    assert find_secrets(text.encode()) == []


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        f"before\n{KEY}\nafter",
        KEY.replace("\n", "\r\n"),
        json.dumps({"private_key": KEY}),
        KEY.replace("\n", "\n    "),
        KEY.rsplit("\n", 1)[0],
        KEY[:200],
        KEY.split("\n", 1)[1],
        "\n".join(KEY.split("\n")[3:]) + "\nafter",
        KEY * 3,
    ],
)
def test_truncated_private_keys_are_redacted(text: str) -> None:
    shown, count = redact(text)
    assert count >= 1
    assert shown.count("\n") == text.count("\n")
    for line in KEY_LINES:
        assert line[:40] not in shown
    assert ("after" in shown) is ("after" in text)


@settings(max_examples=100)
@given(
    st.lists(
        st.sampled_from(
            [
                *TOKENS.values(),
                KEY,
                "hunter2-pass",
                "plain words ",
                "\n",
                "=",
                '"',
                " ",
                "\u00e9\u200d",
                "-",
                "sk-",
            ]
        ),
        max_size=12,
    )
)
def test_redaction_keeps_lines_and_other_text(pieces: list[str]) -> None:
    text = " ".join(pieces)
    shown, count = redact(text, ["hunter2-pass"])
    found = list(spans(text, ["hunter2-pass"]))
    assert count == len(found)
    assert shown.count("\n") == text.count("\n")
    assert redact(shown, ["hunter2-pass"]) == (shown, 0)
    assert "".join(piece for piece, _ in outside(text, ["hunter2-pass"])) == text
    assert [text[s.start : s.end] for s in found] == [
        piece for piece, secret in outside(text, ["hunter2-pass"]) if secret
    ]
    for earlier, later in pairwise(found):
        assert earlier.end <= later.start
    for secret in [
        piece for piece in pieces if piece in TOKENS.values() or piece in ("hunter2-pass", KEY)
    ]:
        assert secret not in shown


VALUE = token("hunter2", "Zq81xA")
SETTINGS = {
    "yaml": f"db:\n  password: {VALUE}\n",
    "json": f'{{"client_secret": "{VALUE}"}}',
    "json in json": json.dumps(f'{{"client_secret": "{VALUE}"}}'),
    "connection string": f'"x": "Server=a;Password={VALUE};"',
    "tfvars": f'pw = "{VALUE}"',
    "properties": f"storePassword={VALUE}\n",
    "toml": f"api-key = '{VALUE}' # the key",
    "docker": f'{{"auths": {{"x": {{"auth": "{VALUE}"}}}}}}',
    "kubernetes": f"    client-key-data: {VALUE}",
    "git": f"[my]\n\tapikey = {VALUE}\n",
    "header": f"extraheader = AUTHORIZATION: basic {VALUE}",
    "php": f"define('DB_PASSWORD', '{VALUE}');",
    "python": f"SECRET_KEY: str = '{VALUE}'",
    "another branch": f"PW={VALUE}",
}


@pytest.mark.parametrize("format_", SETTINGS)
@pytest.mark.parametrize("before", ["", "\u0130" * 9, "x" * (secrets.WINDOW - 12)])
def test_credentials_value_is_secret_in_any_file(format_: str, before: str) -> None:
    text = f"{before}\n{SETTINGS[format_]}"
    shown, count = redact(text)
    assert count == 1
    assert VALUE not in shown
    assert redact(shown) == (shown, 0)
    assert shown.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "text",
    [
        "token = get_token2()",
        "token = response.token2\n",
        "password: string;",
        'password = os.environ["DB_PASSWORD2"]',
        "password: ${DB_PASSWORD2}",
        "token: !Ref Token2",
        '"password": "Enter your password 2"',
        '"password": "changeme2"',
        'oauth: "version2"',
        "PWD=/home/ann2/code",
        'Token: "#d8dee9"',
        "if token == other2token:",
        'def f(token: str, size2: int = 4) -> "Key2": ...',
    ],
)
def test_credentials_name_without_value_stays(text: str) -> None:
    assert redact(text) == (text, 0)


def test_known_values_are_redacted_except_short_ones() -> None:
    assert redact("the pass is s3cret-value!", ["s3cret-value"]) == (
        "the pass is [redacted: secret]!",
        1,
    )
    assert redact("abcde", ["abcde"]) == ("abcde", 0)
    assert MIN_LITERAL == 6


BOMBS = {
    "begins": "-----BEGIN PRIVATE KEY-----\n" * 20_000,
    "ends": "-----END PRIVATE KEY-----\n" * 20_000,
    "base64": ("A" * 64 + "\n") * 9_000 + "-----END PRIVATE KEY-----",
    "one line": "A" * 600_000 + " PRIVATE KEY",
    "heads": "eyJ" * 200_000,
    "words": "eyJabcdefgh.eyJabcdefgh." * 25_000,
    "dashes": "sk-proj-" * 75_000,
    "spaces": " " * 600_000,
    "settings": "A" * 300_000 + "=" + " " * 300_000,
    "quotes": "A='\n" * 100_000,
    "urls": "a://b:" * 100_000,
    "keys": "token = " * 75_000,
    "values": "token:" * 99_000 + "a1" * 99_000,
    "open values": "password = '" + "a1" * 300_000,
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.thinned(4)
def test_no_text_makes_redaction_slow(name: str) -> None:
    """Each of these takes a quadratic pattern minutes."""
    text = BOMBS[name]
    began = time.process_time()
    redact(text)
    redact_values(text)
    secret_values(".env", text)
    find_secrets(text.encode(), path=".env")
    assert time.process_time() - began < 20


# --- through the whole daemon


def test_secrets_reach_neither_the_model_nor_the_journal(tmp_path: Path) -> None:
    key = token("sk-", "ant-", "own-key-0123456789-abc")
    vault = make_vault(tmp_path, ANTHROPIC_API_KEY=key, MY_API_TOKEN="t0ken-of-the-daemon")
    repo = make_repo(
        tmp_path / "repo",
        {
            ".env": "DB_PASSWORD=hunter2hunter2\n",
            "id_rsa": KEY + "\n",
            "copy.txt": "DB_PASSWORD=hunter2hunter2\n",
            "log.txt": f"using {key} and t0ken-of-the-daemon and {JWT}\n",
        },
    )
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    asked = [("read_file", {"path": name}) for name in (".env", "id_rsa", "copy.txt", "log.txt")]
    asked += [
        ("grep", {"pattern": "hunter2|MIIEow|sk-ant|t0ken"}),
        ("search_files", {"pattern": "hunter2"}),
        ("read_file", {"path": "hunter2hunter2"}),
    ]
    ask = {
        **PLAN,
        "steps": [{"title": "Look", "tools": ["read_file", "grep", "search_files"]}],
        "scope": {},
    }
    vault.script(("plan", [{"calls": asked}, {"calls": [("submit_plan", ask)]}]))
    vault.drop("---\nportal: code\n---\nLook around.\n")
    vault.once()
    kept = b"".join(path.read_bytes() for path in vault.state.rglob("*") if path.is_file())
    for secret in (key, "t0ken-of-the-daemon", KEY_LINES[0][:40], JWT):
        assert secret.encode() not in kept, secret
    rows = json.dumps(vault.rows())
    assert "hunter2hunter2" not in rows
    outcomes = [row["metadata"] for row in vault.rows("tool.called") + vault.rows("tool.refused")]
    assert len(outcomes) == len(asked)
    assert [row["target"] for row in outcomes if row["tool"] == "read_file"].count(
        "[redacted: secret]"
    ) == 1


def test_token_in_request_is_not_sent_to_model(tmp_path: Path) -> None:
    sent: list[str] = []

    def script(body: dict[str, Any]) -> Any:
        sent.append(json.dumps(body))
        return reply(call("submit_plan", {**PLAN, "summary": f"With {TOKENS['Slack token']}"}))

    with MessagesApi(script) as api:
        vault = make_vault(tmp_path, ANTHROPIC_API_KEY="sk-test", ANTHROPIC_BASE_URL=api.url)
        vault.drop(f"Use {TOKENS['GitHub token']} for this.\n")
        vault.once()
    assert "Use [redacted: GitHub token] for this." in sent[0]
    assert TOKENS["GitHub token"] not in "".join(sent)
    assert "With [redacted: Slack token]" in vault.plan().read_text()
