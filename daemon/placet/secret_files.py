"""Find secrets in files: by the name of the file, and by the names of its settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from placet.secrets import MARK, MIN_LITERAL, PLACEHOLDER, WINDOW, places, redact, spans


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
