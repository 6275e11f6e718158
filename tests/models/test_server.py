"""Test how a model's server and its key are found, and how its errors are sorted."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.test_provider import (
    BAD_REQUEST,
    KEY,
    PERMANENT,
    TRANSIENT,
    ask_of,
    error_of,
    never,
    table,
)

from messages_api import (
    MessagesApi,
    reply,
    status,
    text,
)
from placet.chat.messages import (
    ModelError,
)
from placet.errors import UserError
from placet.models import open_model
from placet.models.server import kind_of, quoted, retry_after_s


@pytest.mark.parametrize(
    ("code", "error_type", "kind"),
    [
        (401, "invalid_request_error", PERMANENT),
        (429, "insufficient_quota", TRANSIENT),
        (429, "invalid_request_error", TRANSIENT),
        (500, "invalid_request_error", TRANSIENT),
        (200, "invalid_request_error", BAD_REQUEST),
        (408, "", TRANSIENT),
        (409, "", TRANSIENT),
        (499, "", TRANSIENT),
        (501, "", TRANSIENT),
        (599, "", TRANSIENT),
        (301, "", PERMANENT),
        (405, "", PERMANENT),
        (407, "", PERMANENT),
        (415, "", BAD_REQUEST),
    ],
)
def test_status_and_type_decide_error_kind(code, error_type, kind):
    assert kind_of(code, error_type, "") is kind


@pytest.mark.parametrize(
    "words",
    [
        f"Received API Key = {KEY}",
        f"Invalid key sk-...{KEY[-10:]}",
        "1 validation error: input_value=[{'text': 'The plan is: add a login page to the site.'}]",
        "bad block:\n{'text': 'You work  in a vault.'}",
    ],
)
def test_error_omits_echoed_key_and_prompt(words):
    error = error_of(status(400, "invalid_request_error", words))
    assert KEY[-10:] not in str(error)
    assert "vault" not in str(error)
    assert "left out" in str(error)


def test_error_may_quote_long_model_name():
    name = "qwen3-coder:30b-a3b-instruct-q4_K_M"
    words = f"model '{name}' not found"
    with (
        MessagesApi([status(404, "not_found_error", words)]) as api,
        pytest.raises(ModelError, match=words),
    ):
        open_model(table("anthropic", name, api.url), {}).reply(ask_of(), never)


def test_quoted_server_message_has_no_control_characters():
    said = quoted("\ud800 over\x1b]0;x\x07load\u202e", key=KEY, request="", name="m")
    assert said == ": \ufffd over\ufffd]0;x\ufffdload\ufffd"


def test_long_server_message_is_truncated():
    assert len(str(error_of(status(500, "api_error", "why " * 5000)))) < 500


def test_malformed_key_is_refused_without_echo():
    for bad in (f"{KEY}\nX-Other: 1", f"{KEY} and more", f"{KEY}ü"):
        with pytest.raises(ModelError, match="characters that no key has") as caught:
            open_model(table("anthropic"), {"ANTHROPIC_API_KEY": bad})
        assert caught.value.kind is PERMANENT
        assert KEY[:12] not in str(caught.value)


NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "86400"}, 86_400.0),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Mon, 32 Jan 99999 25:61:61 GMT"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_retry_after_header_is_parsed(headers, wait_s):
    assert retry_after_s(headers, NOW) == wait_s


@settings(max_examples=100)
@given(st.text(max_size=60))
def test_arbitrary_retry_after_header_never_raises(words):
    wait_s = retry_after_s({"retry-after": words}, NOW)
    assert wait_s is None or wait_s >= 0


def test_error_carries_server_retry_after():
    assert (
        error_of(status(429, "rate_limit_error", headers={"retry-after": "86400"})).retry_after_s
        == 86_400
    )
    date = formatdate(time.time() + 1000, usegmt=True)
    wait_s = error_of(status(529, "overloaded_error", headers={"retry-after": date})).retry_after_s
    assert wait_s is not None
    assert 900 < wait_s <= 1000
    assert error_of(status(529)).retry_after_s is None


def test_missing_key_error_says_what_to_do():
    for env in ({}, {"ANTHROPIC_API_KEY": " "}, {"ANTHROPIC_BASE_URL": "https://gateway.example"}):
        with pytest.raises(ModelError, match="export ANTHROPIC_API_KEY=") as caught:
            open_model(table("anthropic"), env)
        assert caught.value.kind is PERMANENT
        assert "LoadCredential=anthropic_api_key:" in str(caught.value)


def test_key_is_read_from_systemd_credential(tmp_path):
    tmp_path.joinpath("anthropic_api_key").write_text(KEY + "\n")
    env = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    with MessagesApi([reply(text("Hi.")), reply(text("Hi."))]) as api:
        for more, key in (({}, KEY), ({"ANTHROPIC_API_KEY": "other"}, "other")):
            open_model(table("anthropic"), {**env, "ANTHROPIC_BASE_URL": api.url, **more}).reply(
                ask_of(), never
            )
            assert api.requests[-1].headers["authorization"] == f"Bearer {key}"
    assert api.requests[0].body["model"] == "claude-opus-5-5"
    tmp_path.joinpath("anthropic_api_key").unlink()
    with pytest.raises(ModelError, match="there is no key"):
        open_model(table("anthropic"), env)
    tmp_path.joinpath("anthropic_api_key").mkdir()
    with pytest.raises(ModelError, match="cannot be read"):
        open_model(table("anthropic"), env)


def test_a_local_server_needs_no_key():
    with MessagesApi([reply(text("Hi."))]) as api:
        model = open_model(table("anthropic", "qwen3-coder", api.url + "/"), {})
        assert model.reply(ask_of(), never).turn.text == "Hi."
    assert (model.provider, model.name) == ("anthropic", "qwen3-coder")
    for local in ("http://localhost:11434", "http://[::1]:8080", "https://box.localhost"):
        open_model(table("anthropic", "m", local), {})
    for remote in (
        "http://192.168.1.9:11434",
        "http://localhost.example:11434",
        "http://127.0.0.1.example",
    ):
        with pytest.raises(ModelError, match="there is no key"):
            open_model(table("anthropic", "m", remote), {})


@pytest.mark.parametrize(
    "url",
    [
        "localhost:11434",
        "ftp://host",
        "http://",
        "http://me:secret@host",
        "http://h:port",
        "http://127.0.0.1:11434/v1",
        "http://127.0.0.1:11434/v1/",
    ],
)
def test_invalid_base_url_is_user_error(url):
    with pytest.raises(UserError, match="base_url") as caught:
        open_model(table(), {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": url})
    assert caught.value.exit_code == 2
    assert "secret" not in str(caught.value)
