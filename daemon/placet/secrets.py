"""Find secrets by their looks: known formats, private keys, known values, values of credentials.

This is a safety net, not a wall: a secret that is printed backwards or encoded is not found. The
scope and the sandbox limit what a model can reach.

Texts are searched in windows, because one call of `re` or `str.find` blocks all other threads.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


def _is_jwt(found: re.Match[str]) -> bool:
    """Return whether three words with dots are a JSON web token, by the JSON of its head."""
    head = found["head"]
    if found["sign"] == "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c":
        return False  # the example of every tutorial
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return False
    return isinstance(header, dict) and "alg" in header


@dataclass(frozen=True, slots=True)
class _Format:
    """A token's format.

    `hints`: every text with a token has one of these. The secret is the group `secret`, else all.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    is_one: Callable[[re.Match[str]], object] = bool


def _format(
    kind: str, hints: Iterable[str], pattern: str, is_one: Callable[[re.Match[str]], object] = bool
) -> _Format:
    return _Format(kind, tuple(hints), re.compile(pattern), is_one)


# From the vendors' pages on token prefixes and the rules of gitleaks and GitHub's secret scanning.
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
        # AKIAIOSFODNN7EXAMPLE and the like, from the vendor's documentation
        lambda found: not found[0].endswith("EXAMPLE"),
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


_RARE = "JXKYGASz9xvwkg-._"  # of the hints' characters, from rare to common in code


def _at_rarest(hint: str) -> str:
    """Return a pattern for a hint that begins at its rarest character, so few places are tried."""
    at = min(range(len(hint)), key=lambda n: _RARE.find(hint[n]) % (len(_RARE) + 1))
    before, rare, after = re.escape(hint[: at + 1]), re.escape(hint[at]), re.escape(hint[at + 1 :])
    return f"{rare}(?<={before}){after}"


_ANY_HINT = re.compile("|".join(_at_rarest(hint) for form in _FORMATS for hint in form.hints))


def formats_in(text: str, start: int, end: int) -> list[_Format]:
    """Return the formats that have a hint in a part of a text."""
    if not _ANY_HINT.search(text, start, end):
        return []
    part = text[start:end]
    return [form for form in _FORMATS if any(hint in part for hint in form.hints)]


# --- values of keys that are named like credentials

CREDENTIAL_WORDS = (
    "password", "passwd", "passphrase", "pass", "pwd", "pw", "secret", "token", "apikey",
    "api_key", "api-key", "accesskey", "access_key", "access-key", "secretkey", "secret_key",
    "secret-key", "secret_key_base", "privatekey", "private_key", "private-key", "signing_key",
    "signingkey", "encryption_key", "encryptionkey", "accountkey", "account_key", "key-data",
    "auth", "authorization", "credential", "credentials",
)  # fmt: skip
"""Lower-case endings of the names of secrets."""

# these endings are common in other words, as `bypass` and `oauth` show
_WHOLE_WORDS = ("pass", "pw", "auth")

# every ending has one of these in it
CREDENTIAL_HINTS = ("pass", "pw", "secret", "token", "key", "auth", "credential")

# one of these is between a key and its value
SEPARATORS = ("=", ":", "',", '",')

# What may follow a key: a type, a separator and the value, quoted or bare. Matches only as much of
# the value as is needed to judge it; the whole is read only if it is a secret. So the cost stays
# linear.
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
"""Patterns of placeholders: values that only stand for a secret."""

_POINTS_ELSEWHERE = re.compile(r"[$%{/~!&*|=]|\.{1,2}/|https?://[^@]*$|#[0-9A-Fa-f]{3,8}$")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_WORD = re.compile("|".join(sorted(CREDENTIAL_WORDS, key=len, reverse=True)), re.IGNORECASE)


def value_after(text: str, word: str, at: int, end: int) -> tuple[int, int] | None:
    """Return where the secret value is of a key whose name has `word` at `at`, None for none.

    A secret value has no blank, is not a reference to something else, and has more than letters in
    it.
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
        return False  # another variable, or a text's name
    letter = re.search(r"[A-Za-z]", value) is not None
    digit = re.search(r"[0-9]", value) is not None
    symbol = quoted and letter and re.search(r"[!@#$%^*+~]", value) is not None
    return (digit and (letter or quoted)) or symbol


# replaces a secret; the braces hold its kind
MARK = "[redacted: {}]"

# A shorter known value is not searched for: it would be found in every other word.
MIN_LITERAL = 6

# Characters of a text that are searched at once: some milliseconds for the slowest pattern.
WINDOW = 64 * 1024

# How far a token may reach out of the window that it begins in. A longer one is cut there.
_REACH = 16 * 1024

# Characters of the longest ending of a credential's name, and some more.
MAX_WORD = 20

# pieces of a redacted text that are joined at once
_JOINED_AT_ONCE = 10_000

# --- known formats

_KEY_EDGE = re.compile(r"-----(?P<edge>BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# `\\n` as well as a line end: a key in a JSON document is on one line
_KEY_LINE = re.compile(
    r"(?:\r?\n|\\r\\n|\\n)"
    r"(?:[A-Za-z0-9-]{1,40}: [^\r\n\\]{0,200}|[ \t]{0,40}[A-Za-z0-9+/=]{0,128}[ \t]{0,40})"
    r"(?=[\r\n\\\"']|\Z)"
)
_LINE_END = re.compile(r"\r?\n|\\r\\n|\\n")
_KEY_LINE_ALONE = re.compile(r"[ \t]{0,40}[A-Za-z0-9+/=]{16,128}[ \t]{0,40}")
_MAX_KEY = 20_000  # characters of a key; the largest RSA keys in use have 13,000


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A secret in a text: characters from `start` to before `end`, and what it is."""

    start: int
    end: int
    kind: str


def spans(text: str, literals: Sequence[str], *, values: bool = True) -> Iterator[Span]:
    """Yield the secrets in a text, in order, without overlaps.

    Lazily: a hostile file has a million. `literals` are known secret values; those shorter than
    MIN_LITERAL are not searched for. `values`: also find values of keys that are named like
    credentials.
    """
    words = [word for word in literals if len(word) >= MIN_LITERAL]
    values = values and (len(text) > WINDOW or _has_name(text, text.lower(), 0, WINDOW))
    if (
        len(text) <= WINDOW
        and not values
        and KEY_HINT not in text
        and not formats_in(text, 0, len(text))
        and not any(word in text for word in words)
    ):
        return  # most texts: the merge below takes five times as long
    known: list[Iterator[Span]] = [
        (Span(at, at + len(word), "secret") for at in places(text, word)) for word in words
    ]
    last: Span | None = None
    if values:
        known.append(_values(text))
    for span in heapq.merge(_tokens(text), _keys(text), *known):
        if last is None or span.start >= last.end:
            if last is not None:
                yield last
            last = span
        elif span.end > last.end:
            last = Span(last.start, span.end, last.kind)
    if last is not None:
        yield last


def _has_name(text: str, low: str, start: int, end: int) -> bool:
    """Return whether a part of a text, `low` in lower case, may name a credential with a value."""
    return any(text.find(one, start, end) >= 0 for one in SEPARATORS) and any(
        hint in low for hint in CREDENTIAL_HINTS
    )


def places(text: str, literal: str) -> Iterator[int]:
    """Yield the indices of a literal in a text, without overlaps."""
    past = 0
    for start in range(0, len(text), WINDOW):
        while (at := text.find(literal, max(start, past), start + WINDOW + len(literal) - 1)) >= 0:
            yield at
            past = at + len(literal)


def _tokens(text: str) -> Iterator[Span]:
    past: dict[str, int] = {}  # end of the last match of each kind
    for start in range(0, len(text), WINDOW):
        end = start + WINDOW + _REACH
        here: list[Span] = []
        for form in formats_in(text, start, end):
            group = "secret" if "secret" in form.pattern.groupindex else 0
            for found in _in_window(form.pattern, text, start, past.get(form.kind, 0)):
                past[form.kind] = found.end()
                if form.is_one(found):
                    here.append(Span(*found.span(group), form.kind))
        yield from sorted(here)


def _values(text: str) -> Iterator[Span]:
    """Yield the values of keys that are named like credentials, in any settings format."""
    past = 0  # end of the last match
    for start in range(0, len(text), WINDOW):
        end = start + WINDOW + _REACH
        # U+0130 is the only character that gets longer in lower case: indices would differ.
        low = text[start : start + WINDOW + MAX_WORD].replace("\u0130", "i").lower()
        if not _has_name(text, low, start, end):
            continue
        here = [(start + at, word) for word in CREDENTIAL_WORDS for at in places(low, word)]
        for at, word in sorted(here):
            if past <= at < start + WINDOW and (found := value_after(text, word, at, end)):
                past = found[1]
                yield Span(*found, "value")


def _in_window(
    pattern: re.Pattern[str], text: str, start: int, past: int
) -> Iterator[re.Match[str]]:
    """Yield the matches that begin in the window at `start`, and not before `past`."""
    end = start + WINDOW + _REACH
    for found in pattern.finditer(text, max(start, past), end):
        if found.start() >= start + WINDOW:
            return
        if found.end() == end < len(text):
            yield pattern.match(text, found.start(), end + WINDOW) or found
            return
        yield found


def _edges(text: str) -> Iterator[re.Match[str]]:
    past = 0
    for start in range(0, len(text), WINDOW):
        if text.find(KEY_HINT, start, start + WINDOW + _REACH) >= 0:
            for edge in _in_window(_KEY_EDGE, text, start, past):
                past = edge.end()
                yield edge


def _keys(text: str) -> Iterator[Span]:
    """Yield the blocks of private keys.

    A block without a beginning or end extends as far as its lines look like a key.
    """
    begun = -1  # start of a block whose end is not found yet
    past = 0  # end of the last edge
    for edge in _edges(text):
        whole = edge["edge"] == "END" and begun >= 0 and edge.start() - past <= _MAX_KEY
        if begun >= 0 and not whole:
            yield Span(begun, _key_lines_below(text, past, edge.start()), "private key")
        if edge["edge"] == "END":
            yield Span(
                begun if whole else _key_lines_above(text, past, edge.start()),
                edge.end(),
                "private key",
            )
        begun = edge.start() if edge["edge"] == "BEGIN" else -1
        past = edge.end()
    if begun >= 0:
        yield Span(begun, _key_lines_below(text, past, len(text)), "private key")


def _key_lines_below(text: str, at: int, end: int) -> int:
    end = min(end, at + _MAX_KEY)
    while line := _KEY_LINE.match(text, at, end):
        at = line.end()
    return at


def _key_lines_above(text: str, start: int, at: int) -> int:
    start = max(start, at - _MAX_KEY)
    breaks = [(m.start(), m.end()) for m in _LINE_END.finditer(text, start, at)]
    here = at
    while breaks:
        line_end, _ = breaks.pop()
        before = breaks[-1][1] if breaks else start
        if not _KEY_LINE_ALONE.fullmatch(text, before, line_end):
            break
        here = before
    return here


def redact(text: str, literals: Sequence[str] = ()) -> tuple[str, int]:
    """Return the text with a mark instead of each secret, and the number of secrets.

    Line numbers stay the same. `literals` as for `spans`. Redacting twice changes nothing.
    """
    pieces: list[str] = []
    joined: list[str] = []
    at = count = 0
    for span in spans(text, literals):
        count += 1
        if len(pieces) >= _JOINED_AT_ONCE:
            joined.append("".join(pieces))
            pieces.clear()
        pieces += [
            text[at : span.start],
            MARK.format(span.kind),
            "\n" * text.count("\n", span.start, span.end),
        ]
        at = span.end
    return ("".join([*joined, *pieces, text[at:]]), count) if count else (text, 0)


def redacted(value: Any, literals: Sequence[str]) -> Any:
    """Return a copy of a value with the secrets in all of its texts redacted."""
    match value:
        case str():
            return redact(value, literals)[0]
        case dict():
            return {redacted(k, literals): redacted(v, literals) for k, v in value.items()}
        case list() | tuple():
            return [redacted(v, literals) for v in value]
        case _:
            return value


def outside(text: str, literals: Sequence[str] = ()) -> list[tuple[str, bool]]:
    """Return the text in pieces, each with whether it is a secret; joined they are the text."""
    pieces: list[tuple[str, bool]] = []
    at = 0
    for span in spans(text, literals):
        pieces += [(text[at : span.start], False)] * (span.start > at) + [
            (text[span.start : span.end], True)
        ]
        at = span.end
    return [*pieces, (text[at:], False)] if at < len(text) else pieces
