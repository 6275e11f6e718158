"""Read and write the list of who may approve, in OpenSSH's format (ssh-keygen(1))."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from placet.plan.sshsig import KINDS, PASSKEY, fingerprint, key_kind, rp_id_of
from placet.plan.statement import NAMESPACE

MAX_BYTES = 256 * 1024
"""Longest list that is read."""
NAME = re.compile(r"[a-z0-9._@-]{1,64}")
"""A signer's name. In OpenSSH it is a pattern, so that `*` would be everybody."""
NAME_RULE = "A name has only lowercase letters, digits and . _ @ -."
_LINE = re.compile(
    r"(?P<name>\S+)(?:\s+(?P<options>(?:[^\s\"]|\"[^\"]*\")+))??\s+(?P<kind>[a-z0-9@.-]+)"
    r"\s+(?P<key>[A-Za-z0-9+/]+=*)(?:\s+(?P<comment>.*))?"
)
_OPTION = re.compile(r'(namespaces|valid-after|valid-before)="([^"]*)"')
_TIME = re.compile(r"[0-9]{8}(?:[0-9]{4}(?:[0-9]{2})?)?Z?")


@dataclass(frozen=True, slots=True)
class Signer:
    """Somebody who may approve, with one key.

    `comment` is free text, or of a passkey what it calls itself. `origin` is the page on which a
    passkey was added, empty for other keys. `after` and `before` are OpenSSH's times, or empty.
    """

    name: str
    key: bytes
    comment: str = ""
    origin: str = ""
    after: str = ""
    before: str = ""

    @property
    def short(self) -> str:
        """Who it is, with which key, for the journal."""
        until = f" until {self.before}" if self.before else ""
        page = f" on {self.origin}" if self.origin else ""
        return f"{self.name} {self.fingerprint}{page}{until}"

    @property
    def fingerprint(self) -> str:
        """The key's fingerprint."""
        return fingerprint(self.key)

    def line(self, namespace: str = NAMESPACE) -> str:
        """Return the signer's line in a list, for signatures in a namespace."""
        options = [f'namespaces="{namespace}"']
        options += [f'valid-after="{self.after}"'] if self.after else []
        options += [f'valid-before="{self.before}"'] if self.before else []
        page = f"passkey {self.origin} " if self.origin else ""
        key = f"{key_kind(self.key)} {base64.b64encode(self.key).decode()}"
        return f"{self.name} {','.join(options)} {key} {page}{self.comment}".rstrip()


def parse_signers(
    raw: bytes, namespace: str = NAMESPACE, *, mixed: bool = False
) -> tuple[Signer, ...]:
    """Return the signers of a list whose signatures are for a namespace.

    A `mixed` list may have lines for other namespaces. A line without `namespaces` is for
    approvals. Raises ValueError, in a sentence that names the line, for a list of which any line is
    not as it should be: half a list is none.
    """
    if len(raw) > MAX_BYTES:
        raise ValueError(f"It is longer than {MAX_BYTES // 1024} KiB.")
    try:
        lines = raw.decode().split("\n")
    except UnicodeDecodeError as error:
        raise ValueError("It is not UTF-8 text.") from error
    found: dict[bytes, Signer] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            signer = _signer(text, namespace)
        except ValueError as error:
            raise ValueError(f"Line {number}: {error}") from error
        if signer is None and mixed:
            continue
        if signer is None:
            why = f'the key is not for approvals: namespaces="{NAMESPACE}".'
            raise ValueError(f"Line {number}: {why}")
        if signer.key in found:
            raise ValueError(f"Line {number}: this key is in the list already.")
        found[signer.key] = signer
    return tuple(found.values())


def _signer(line: str, namespace: str) -> Signer | None:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError("this is not a name, a kind of key and a key.")
    name, comment = found["name"], (found["comment"] or "").strip()
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name. {NAME_RULE}")
    options = dict(_options(found["options"] or ""))
    if namespace not in options.get("namespaces", NAMESPACE).split(","):
        return None
    key = read_key(found["kind"], found["key"])
    origin = ""
    if rp_id := rp_id_of(key) if found["kind"] == PASSKEY else "":
        word, _, rest = comment.partition(" ")
        if word == "passkey":
            origin, _, comment = rest.partition(" ")
            if urlsplit(origin).hostname != rp_id:
                raise ValueError(f"the passkey is for {rp_id}, not for {origin or 'no page'}.")
    return Signer(
        name, key, comment, origin, options.get("valid-after", ""), options.get("valid-before", "")
    )


def read_key(kind: str, text: str) -> bytes:
    """Return a public key. Raises ValueError, in a sentence, for one that placet does not use."""
    if kind.startswith("-----"):
        raise ValueError("placet needs the public key, and this is a private one.")
    if not text:
        raise ValueError("this is not a public key.")
    if kind not in KINDS:
        raise ValueError(f"placet does not know keys of the kind {kind}.")
    try:
        key = base64.b64decode(text, validate=True)
        rp_id_of(key)
        is_whole = base64.b64encode(key).decode() == text and key_kind(key) == kind
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ValueError("the key is damaged.")
    return key


def _options(text: str) -> Iterator[tuple[str, str]]:
    left = text
    while left:
        found = _OPTION.match(left)
        if found is None:
            raise ValueError(f"placet does not know the option {left.split(',')[0]}.")
        if found[1] != "namespaces" and not _TIME.fullmatch(found[2]):
            raise ValueError(f"{found[1]} is a day, such as 20271231, and not {found[2]!r}.")
        yield found[1], found[2]
        left = left[found.end() :].removeprefix(",")


def as_text(signers: Sequence[Signer]) -> bytes:
    """Return the list of these signers."""
    return "".join(f"{one.line()}\n" for one in signers).encode()
