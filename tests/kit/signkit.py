"""SSH keys of tests, and a passkey in software: what a browser returns, without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from placet.plan.sshsig import passkey_key, passkey_signature, to_be_signed
from placet.plan.statement import NAMESPACE

# P-256 (FIPS 186-4, D.1.2.3)
_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
Point = tuple[int, int]


def new_key(folder: Path, name: str = "key", kind: str = "ed25519") -> Path:
    """Make a key pair with `ssh-keygen`; return the private key's file."""
    file = folder / name
    words = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", f"{name}@laptop", "-f", str(file)]
    subprocess.run(words, check=True)
    return file


def line_of(key: Path, name: str = "anna", options: str = "") -> str:
    """Return a line of a list of signers for a key's file."""
    kind, text, comment = key.with_suffix(".pub").read_text().split()
    return " ".join(filter(None, [name, options, kind, text, comment])) + "\n"


@dataclass(slots=True)
class Passkey:
    """A passkey for a page at `origin`."""

    origin: str = "https://localhost:8763"
    rp_id: str = "localhost"
    secret: int = field(default_factory=lambda: 1 + secrets.randbelow(_N - 1))

    @property
    def public(self) -> bytes:
        """Its public key, as SSH has it."""
        x, y = _times(self.secret, _G)
        return passkey_key(b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big"), self.rp_id)

    def line(self, name: str = "anna") -> str:
        """Return its line in a list of signers."""
        kind, key = "sk-ecdsa-sha2-nistp256@openssh.com", base64.b64encode(self.public).decode()
        return f'{name} namespaces="{NAMESPACE}" {kind} {key} passkey {self.origin} phone\n'

    def sign(self, text: str, *, flags: int = 0x05, origin: str = "", rp_id: str = "") -> str:
        """Return the SSH signature of a text, as the board makes it of a browser's answer."""
        page = origin or self.origin
        challenge = base64.urlsafe_b64encode(to_be_signed(text.encode(), NAMESPACE)).rstrip(b"=")
        fields = {"type": "webauthn.get", "challenge": challenge.decode(), "origin": page}
        client = json.dumps({**fields, "crossOrigin": False}, separators=(",", ":")).encode()
        data = hashlib.sha256((rp_id or self.rp_id).encode()).digest()
        data += bytes([flags]) + struct.pack(">I", 7)
        signature = _ecdsa(self.secret, data + hashlib.sha256(client).digest())
        return passkey_signature(self.public, NAMESPACE, data, client, signature)


def _ecdsa(secret: int, message: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    once = 1 + secrets.randbelow(_N - 1)
    r = _times(once, _G)[0] % _N
    s = pow(once, -1, _N) * (digest + r * secret) % _N
    parts = b"".join(
        b"\x02" + bytes([len(raw)]) + raw
        for raw in (one.to_bytes(one.bit_length() // 8 + 1, "big") for one in (r, s))
    )
    return b"\x30" + bytes([len(parts)]) + parts


def _plus(one: Point | None, other: Point | None) -> Point | None:
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % _P == 0:
        return None
    slope = (
        (3 * x1 * x1 - 3) * pow(2 * y1, -1, _P)
        if one == other
        else (y2 - y1) * pow(x2 - x1, -1, _P)
    )
    x3 = (slope * slope - x1 - x2) % _P
    return x3, (slope * (x1 - x3) - y1) % _P


def _times(number: int, point: Point) -> Point:
    found: Point | None = None
    doubled: Point | None = point
    while number:
        if number & 1:
            found = _plus(found, doubled)
        doubled = _plus(doubled, doubled)
        number >>= 1
    assert found is not None
    return found
