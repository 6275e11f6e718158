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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
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


def formats_in(text: str, start: int, end: int) -> list[_Format]:
    """Return the formats that have a hint in a part of a text."""
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
    values = values and any(one in text for one in SEPARATORS)
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
        if not any(text.find(one, start, end) >= 0 for one in SEPARATORS):
            continue
        # U+0130 is the only character that gets longer in lower case: indices would differ.
        low = text[start : start + WINDOW + MAX_WORD].replace("\u0130", "i").lower()
        if not any(hint in low for hint in CREDENTIAL_HINTS):
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
    begun = -1  # start of a block without an end so far
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


# --- commits


def latin(words: Sequence[str]) -> tuple[str, ...]:
    """Return words as they appear in a text that was decoded as Latin-1."""
    return tuple(word.encode("utf-8", "surrogateescape").decode("latin-1") for word in words)


# maximum characters of a settings file; a longer one is neither shown nor committed
MAX_SETTINGS = 1024 * 1024

# characters of a setting's value that are checked
_MAX_VALUE = 4 * 1024

# maximum secrets reported for a file
_MAX_NEW = 100


class SecretFile(StrEnum):
    """What may be shown of a secret file."""

    NAMES = "names"  # settings: names are shown, values are not
    NOTHING = "nothing"  # keys and key stores: nothing is shown


_KEY_NAMES = frozenset({
    ".netrc", "_netrc", ".pgpass", ".my.cnf", ".git-credentials", ".htpasswd", ".vault-token",
    ".dockercfg", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk",
    "id_xmss",
})  # fmt: skip

_KEY_ENDS = (".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".ppk", ".kdbx", ".p8", ".pk8")

_KEY_STORES = (".p12", ".pfx", ".jks", ".keystore", ".kdbx")

_KEY_FOLDERS = frozenset({".ssh", ".gnupg", ".aws"})

_SETTINGS_NAMES = frozenset({".envrc", ".npmrc", ".pypirc", ".yarnrc.yml"})

# files in a settings format whose names say that they hold secrets only
_SETTINGS_FILE = re.compile(
    r"(?:secrets?|credentials?|client_secret[\w-]*)\.(?:json|ya?ml|toml|ini|properties|conf|cfg|txt)"
)
_PASSWORD_FILE = re.compile(r"\.?(?:\w+[_-])?(?:pass|password|passphrase)(?:\.txt)?")

_HARMLESS = frozenset({
    "example", "sample", "template", "dist", "defaults", "tpl", "schema", "d", "ts", "js", "py",
    "md",
})  # fmt: skip


@lru_cache(maxsize=4096)  # a search asks several times about each file
def secret_file(path: str) -> SecretFile | None:
    """Return the kind of secret file that `path` (`/`-separated) is by its name, None for others.

    Case does not matter.
    """
    parts = [part for part in path.casefold().split("/") if part not in ("", ".")]
    if not parts:
        return None
    name = parts[-1].rstrip(". ")
    if name.endswith(".pub") or name in ("known_hosts", "authorized_keys"):
        return None
    if (
        name in _KEY_NAMES
        or name.endswith(_KEY_ENDS)
        or _KEY_FOLDERS.intersection(parts[:-1])
        or _PASSWORD_FILE.fullmatch(name)
    ):
        return SecretFile.NOTHING
    words = name.lstrip(".").split(".")
    settings = (
        name == ".env" or name.startswith(".env.") or (name.endswith(".env") and len(words) > 1)
    )
    if (
        name in _SETTINGS_NAMES
        or _SETTINGS_FILE.fullmatch(name)
        or (settings and not _HARMLESS.intersection(words))
    ):
        return SecretFile.NAMES
    return None


def is_secret_path(path: str) -> bool:
    """Return whether `path` is named like a file with secrets: `.env`, `id_rsa`, `*.pem`.

    `.env.example` is not.
    """
    return secret_file(path) is not None


_SETTING = re.compile(
    r"(?P<head>[ \t]{0,40}(?:#[ \t]{0,8})?(?:export[ \t]{1,8})?(?P<name>[\w.:/@-]{1,200})"
    r"[ \t]{0,40}[=:][ \t]{0,40})(?P<value>.*)"
)

# not the beginning of a list, as in JSON
_SECTION = re.compile(r"[ \t]*\[{1,2}\w")

_SOUNDS_SECRET = re.compile(
    r"key|token|secret|passw|pwd|pass\b|_pass|credential|auth(?!or)|private|signing|salt|dsn|"
    r"conn(?:ection)?_?str|pin\b",
    re.IGNORECASE,
)

_SECRET_VARIABLE = re.compile(
    r"(?:API|ACCESS|AUTH|PRIVATE|SECRET)_?KEY|_KEY$|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE
)

_USER_INFO = re.compile(
    r"[a-z][a-z0-9+.-]{0,20}://[^/\s:@]{0,100}:(?P<secret>[^/\s@]{3,200})@", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting: its lines (from 1, both included), and its value without quotation marks."""

    first: int
    last: int
    head: str
    name: str
    value: str


def _settings(text: str) -> Iterator[_Setting | tuple[int, str]]:
    """Yield the settings of a file, and each other line with its number."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at].removesuffix("\r")
        found = _SETTING.fullmatch(line)
        if found is None:
            yield at + 1, line
            at += 1
            continue
        first, value = at, found["value"].strip()
        quote = value[:1] if value[:1] in ("'", '"', "`") else ""
        # it ends at the closing mark; without one it is this line only
        if quote and quote not in value[1:]:
            end = next(
                (n for n in range(at + 1, min(len(lines), at + 200)) if quote in lines[n]), at
            )
            value = "\n".join([value, *lines[at + 1 : end + 1]])
            at = end
        if quote and quote in value[1:]:
            value = value[1 : value.index(quote, 1)]
        else:
            value = re.sub(r"\s#.*", "", value.strip(quote) if quote else value)
        yield _Setting(first + 1, at + 1, found["head"], found["name"], value.strip())
        at += 1


def redact_values(text: str) -> tuple[str, int]:
    """Return a settings file with its values redacted, and the number of them.

    Names, comments and line numbers stay. Nothing is shown of a file longer than MAX_SETTINGS.
    """
    if len(text) > MAX_SETTINGS:
        return MARK.format("value") + "\n" * text.count("\n"), 1
    out: list[str] = []
    count = 0
    for one in _settings(text):
        if isinstance(one, _Setting):
            hidden = bool(one.value)
            out.append(one.head + (MARK.format("value") if hidden else ""))
            out += [""] * (one.last - one.first)
        else:
            line = one[1]
            structure = line.lstrip().startswith(("#", ";")) or _SECTION.match(line)
            hidden = bool(line.strip()) and not structure
            out.append(MARK.format("value") if hidden else line)
        count += hidden
    shown, more = redact("\n".join(out))
    return shown, count + more


def secret_values(path: str, text: str) -> tuple[str, ...]:
    """Return what to redact anywhere else, from a secret file's text.

    Of settings: values that look secret or are named so, not `true`, `8080` or `localhost`. Of key
    files: their lines and words.
    """
    values: list[str] = []
    match secret_file(path):
        case SecretFile.NAMES:
            for one in _settings(text[:MAX_SETTINGS]):
                if isinstance(one, _Setting):
                    values += _worth_hiding(one.name, one.value)
        case SecretFile.NOTHING:
            for line in (
                whole[at : at + WINDOW]
                for whole in text.split("\n")
                for at in range(0, len(whole), WINDOW)
            ):
                if not line.startswith("-----"):
                    words = re.split(r"[\s=:\"',]+", line)
                    values += [word for word in words if len(word) >= 8 and not _is_plain(word)]
                    values += [line.strip()] if len(line.strip()) >= 16 else []
        case None:
            pass
    return tuple(dict.fromkeys(value for value in values if len(value) >= MIN_LITERAL))


def git_config_secrets(text: str) -> tuple[str, ...]:
    """Return the secrets of a git configuration: passwords, and authorization headers."""
    headers = re.findall(
        r"(?im)^\s{0,40}extraheader\s{0,8}=\s{0,8}[^:\n]{1,100}:\s{0,8}(?:basic |bearer )?(\S+)",
        text,
    )
    return tuple(
        value
        for value in [*(m["secret"] for m in _USER_INFO.finditer(text)), *headers]
        if len(value) >= MIN_LITERAL
    )


def environment_secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of environment variables that are named like secrets."""
    named = (value for name, value in env.items() if _SECRET_VARIABLE.search(name))
    return tuple(
        value
        for value in named
        if len(value) >= 8 and not value.startswith(("/", "unix:")) and not _is_plain(value)
    )


def _worth_hiding(name: str, value: str) -> Iterator[str]:
    for found in _USER_INFO.finditer(value[:_MAX_VALUE]):
        yield from (found["secret"], value)
    if _SOUNDS_SECRET.search(name) and not _is_plain(value, short=True):
        yield value
        yield f"{name}={value}"
        yield from (line.strip() for line in value.splitlines() if len(line.strip()) >= 16)
    elif (
        16 <= len(value) <= _MAX_VALUE
        and re.search(r"\d", value)
        and re.search(r"[A-Za-z]", value)
        and not re.search(r"[\s/]", value)
    ):
        yield value


_PLAIN = frozenset({
    "true", "false", "none", "null", "localhost", "development", "production", "default",
    "disabled", "enabled", "username", "password", "machine",
})  # fmt: skip


def _is_plain(value: str, *, short: bool = False) -> bool:
    if value.casefold() in _PLAIN:
        return True
    return bool(re.fullmatch(r"\d{1,6}|[a-z]{1,5}" if short else r"\d{1,10}|[a-z_-]{1,11}", value))


def find_secrets(
    data: bytes, *, path: str = "", before: bytes = b"", known: Sequence[str] = ()
) -> list[tuple[int, str]]:
    """Return the secrets that a file's new content would add: line (from 1) and kind, in order.

    `before` is the file's old content: what it has is not new. `known` are values that are always
    secret. With `path` a settings file is checked value by value, and a key store is a secret as a
    whole.
    """
    # the patterns are ASCII, and Latin-1 is the fastest
    text, old = data.decode("latin-1"), before.decode("latin-1")
    if path.casefold().endswith(_KEY_STORES) and data and data != before:
        return [(1, "key store")]
    found: list[tuple[int, str]] = []
    line, at = 1, 0
    literals = latin(known)
    there = {old[span.start : span.end] for span in spans(old, literals, values=False)}
    looked = 0
    for span in spans(text, literals, values=False):
        line, at = line + text.count("\n", at, span.start), span.start
        secret = text[span.start : span.end]
        if secret in there:
            continue
        looked += 1
        if looked > _MAX_NEW or next(places(old, secret), None) is None:
            found.append((line, span.kind))
        if len(found) >= _MAX_NEW:
            break
    if secret_file(path) is SecretFile.NAMES:
        if len(data) > MAX_SETTINGS:
            found.append((1, "too many settings to check"))
        else:
            found += [
                (one.first, f"value of {one.name}")
                for one in _settings(data.decode("utf-8", "replace"))
                if isinstance(one, _Setting)
                and _is_secret_setting(one)
                and one.value.encode().decode("latin-1") not in old
            ]
    return sorted(set(found))


def _is_secret_setting(one: _Setting) -> bool:
    value = one.value[:_MAX_VALUE]
    if len(value) < MIN_LITERAL or PLACEHOLDER.search(value):
        return False
    return bool(_USER_INFO.search(value)) or (
        bool(_SOUNDS_SECRET.search(one.name)) and not _is_plain(value, short=True)
    )
