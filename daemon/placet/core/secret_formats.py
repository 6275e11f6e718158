"""Formats of known tokens, values of credential-shaped keys, and quick tests for both."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass


def _always(_found: re.Match[str]) -> bool:
    return True


def _is_jwt(found: re.Match[str]) -> bool:
    """Return whether three words with dots are a token, by the JSON of its head."""
    head = found["head"]
    if found["sign"] == "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c":
        return False  # the one that every tutorial shows
    try:
        said = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return False
    return isinstance(said, dict) and "alg" in said


def _is_no_example(found: re.Match[str]) -> bool:
    # AKIAIOSFODNN7EXAMPLE and its kind, of the vendor's documentation
    return not found[0].endswith("EXAMPLE")


@dataclass(frozen=True, slots=True)
class _Format:
    """A token's format.

    `hints`: one of these stands in every text that has one. The group `secret` is it, else all.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    is_one: Callable[[re.Match[str]], bool] = _always


def _format(
    kind: str, hints: Iterable[str], pattern: str, is_one: Callable[[re.Match[str]], bool] = _always
) -> _Format:
    return _Format(kind, tuple(hints), re.compile(pattern), is_one)


# From the vendors' own pages on token prefixes and from the rules of gitleaks and GitHub's secret
# scanning.
_FORMATS = (
    _format("Anthropic key", ["sk-ant-"], r"sk-ant-[A-Za-z0-9_-]{16,}"),
    _format(
        "OpenAI key",
        ["sk-"],
        r"(?<![A-Za-z0-9])sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,})",
    ),
    _format(
        "GitHub token",
        ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
        r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}",
    ),
    _format(
        "GitLab token",
        [f"gl{kind}-" for kind in ("pat", "dt", "rt", "cbt", "ptt", "ft", "imt", "agent", "soat")],
        r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat)-[A-Za-z0-9_.-]{20,}",
    ),
    _format(
        "AWS key",
        ["AKIA", "ASIA", "ABIA", "ACCA"],
        r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
        _is_no_example,
    ),
    _format(
        "AWS secret key",
        ["ccess_key", "CCESS_KEY", "ccessKey"],
        r"(?i:secret_?access_?key)[\"']?\s{0,8}[=:]\s{0,8}[\"']?(?P<secret>[A-Za-z0-9/+=]{40})(?![A-Za-z0-9/+=])",
        lambda found: not found["secret"].endswith("EXAMPLEKEY"),
    ),
    _format(
        "Slack token",
        ["xox", "xapp-", "hooks.slack.com/"],
        r"xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{20,}|hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9+/]{40,}",
    ),
    _format(
        "Stripe key",
        ["k_live_", "k_test_", "whsec_"],
        r"(?<![A-Za-z0-9])(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{24,})",
    ),
    _format(
        "Google key",
        ["AIza", "ya29.", "GOCSPX-"],
        r"AIza[0-9A-Za-z_-]{35}(?![0-9A-Za-z_-])|ya29\.[0-9A-Za-z_-]{20,}|GOCSPX-[0-9A-Za-z_-]{20,}",
    ),
    _format("npm token", ["npm_"], r"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}"),
    _format("PyPI token", ["pypi-AgE"], r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    _format("Hugging Face token", ["hf_"], r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}"),
    _format("SendGrid key", ["SG."], r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    _format("Docker token", ["dckr_pat_"], r"dckr_pat_[A-Za-z0-9_-]{20,}"),
    _format("DigitalOcean token", ["_v1_"], r"do[por]_v1_[a-f0-9]{64}"),
    _format("age key", ["AGE-SECRET-KEY-"], r"AGE-SECRET-KEY-1[A-Z0-9]{40,}"),
    _format(
        "JSON web token",
        ["eyJ"],
        r"(?<![A-Za-z0-9_-])(?P<head>eyJ[A-Za-z0-9_-]{8,})\.eyJ[A-Za-z0-9_-]{8,}\.(?P<sign>[A-Za-z0-9_-]{16,})",
        _is_jwt,
    ),
)

KEY_HINT = "PRIVATE KEY"


def formats_in(text: str, start: int, end: int) -> list[_Format]:
    """Return the formats of which a part of a text has a hint."""
    return [
        form for form in _FORMATS if any(text.find(hint, start, end) >= 0 for hint in form.hints)
    ]


# --- values of keys that are named like credentials

CREDENTIAL_WORDS = (
    "password", "passwd", "passphrase", "pass", "pwd", "pw", "secret", "token", "apikey",
    "api_key", "api-key", "accesskey", "access_key", "access-key", "secretkey", "secret_key",
    "secret-key", "secret_key_base", "privatekey", "private_key", "private-key", "signing_key",
    "signingkey", "encryption_key", "encryptionkey", "accountkey", "account_key", "key-data",
    "auth", "authorization", "credential", "credentials",
)  # fmt: skip
"""The lower-case ends of keys whose values are secret."""

# In other words these are common, as `bypass` and `oauth` show.
_WHOLE_WORDS = ("pass", "pw", "auth")

# Every credential word has one of these in it.
CREDENTIAL_HINTS = ("pass", "pw", "secret", "token", "key", "auth", "credential")

# One of these stands between a key and its value.
SEPARATORS = ("=", ":", "',", '",')

# What may follow a key: a type, a separator and the value, quoted or bare. Only so much of the
# value as judges it: the rest is read where it is one, so that no text costs more than linear.
_VALUE = re.compile(
    r"(?:[_-]?[0-9]{1,3})?(?P<closed>\\{0,3}[\"'])?\]?[ \t]{0,40}"
    r"(?:(?::[ \t]{0,8}[A-Za-z_][\w.]{0,40}[ \t]{0,8})?=>?|:=?|(?(closed),|(?!)))[ \t]{0,40}"
    r"(?:\\{0,3}(?P<quote>[\"'`]))?(?:(?:basic|bearer)[ \t]{1,8})?"
    r"(?P<secret>(?(quote)[^\"'`\\\r\n]{6,120}|[^\s\"'`,;\\<>(){}\[\]]{8,120}+(?![(\[{<])))",
    re.IGNORECASE,
)

_REST_QUOTED = re.compile(r"[^\"'`\\\r\n]{0,8192}")
_REST_BARE = re.compile(r"[^\s\"'`,;\\<>(){}\[\]]{0,8192}")

PLACEHOLDER = re.compile(
    r"example|change.?me|your|x{4,}|dummy|placeholder|todo|redacted|<|\$\{|\$\(|^test|^secret$|"
    r"^password$|^\*+$",
    re.IGNORECASE,
)
"""What is found in a value that stands for a secret and is none."""

_POINTS_ELSEWHERE = re.compile(r"[$%{/~!&*|=]|\.{1,2}/|https?://[^@]*$|#[0-9A-Fa-f]{3,8}$")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_WORD = re.compile("|".join(sorted(CREDENTIAL_WORDS, key=len, reverse=True)), re.IGNORECASE)


def value_after(text: str, word: str, at: int, end: int) -> tuple[int, int] | None:
    """Return where the secret value of a key stands whose name has `word` at `at`, None for none.

    A value is one that has no blank, names nothing else, and has more than letters in it.
    """
    if word in _WHOLE_WORDS and at and text[at - 1].isalnum():
        return None
    found = _VALUE.match(text, at + len(word), end)
    if not found or not _is_value(found):
        return None
    rest = (_REST_QUOTED if found["quote"] else _REST_BARE).match(text, found.end(), end)
    return found.start("secret"), rest.end() if rest else found.end()


def _is_value(found: re.Match[str]) -> bool:
    value, quoted = found["secret"], found["quote"] is not None
    if PLACEHOLDER.search(value) or re.search(r"\s", value):
        return False
    if _POINTS_ELSEWHERE.match(value) and not (quoted and value[0] in "!&*%~="):
        return False
    if _IDENTIFIER.fullmatch(value) and ("." in value or _WORD.search(value)):
        return False  # another variable, or the name of a text
    letter = re.search(r"[A-Za-z]", value) is not None
    digit = re.search(r"[0-9]", value) is not None
    symbol = quoted and letter and re.search(r"[!@#$%^*+~]", value) is not None
    return (digit and (letter or quoted)) or symbol
