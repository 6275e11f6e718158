"""Write and read SSH signatures, also those that a passkey in a browser makes.

The formats are those of OpenSSH's `PROTOCOL.sshsig` and `PROTOCOL.u2f`, and of W3C WebAuthn level 3
(6.1). A browser signs a challenge: here that is all that an SSH signature signs, so that stock
`ssh-keygen -Y verify` accepts the result.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from dataclasses import dataclass
from textwrap import wrap

MAGIC = b"SSHSIG"
HASH = "sha512"
PASSKEY = "sk-ecdsa-sha2-nistp256@openssh.com"
"""The kind of a passkey's public key, and of a hardware token's."""
BY_BROWSER = "webauthn-sk-ecdsa-sha2-nistp256@openssh.com"
"""The kind of a signature that a passkey made in a browser."""
KINDS = frozenset({
    "ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com", PASSKEY,
})  # fmt: skip
"""The kinds of keys whose signatures count."""
MAX_CHARS = 16_384
"""Longest signature in text: one of a passkey is about 1,000 characters long."""
PRESENT, VERIFIED = 0x01, 0x04
"""Flags of a token or a passkey: somebody touched it; it knew who (PIN, finger, face)."""
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"


@dataclass(frozen=True, slots=True)
class SshSignature:
    """What a signature says of itself; whether it holds, `ssh-keygen` says.

    `flags` are those of a token or a passkey, None for other keys. `origin` is the page on which
    a passkey signed, empty for others.
    """

    key: bytes
    """The public key, as in `ssh-ed25519 KEY` after base64."""
    namespace: str
    kind: str
    flags: int | None = None
    origin: str = ""


def bytes_to_sign(message: bytes, namespace: str) -> bytes:
    """Return the bytes that a signature of a message signs: a passkey's challenge."""
    hashed = hashlib.new(HASH, message).digest()
    return MAGIC + _strings(namespace.encode(), b"", HASH.encode(), hashed)


def passkey_key(point: bytes, rp_id: str) -> bytes:
    """Return the public key of a passkey: its point on P-256, uncompressed, and the RP id.

    Raises ValueError for any other point.
    """
    if len(point) != 65 or point[0] != 4:
        raise ValueError("not an uncompressed point of P-256")
    return _strings(PASSKEY.encode(), b"nistp256", point, rp_id.encode())


def key_kind(key: bytes) -> str:
    """Return the kind of a public key. Raises ValueError for bytes that are none."""
    return _parts(key)[0].decode()


def rp_id_of(key: bytes) -> str:
    """Return the RP id of a passkey, or the application of a token's key; "" for other kinds.

    Raises ValueError for bytes that are no key.
    """
    kind, *_, last = _parts(key)
    return last.decode() if kind.startswith(b"sk-") else ""


def _parts(key: bytes) -> list[bytes]:
    reader, parts = _Reader(key), list[bytes]()
    while reader.at < len(key):
        parts.append(reader.string())
    if len(parts) < 2:
        raise ValueError("no key")
    return parts


def fingerprint(key: bytes) -> str:
    """Return a key's fingerprint as `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def passkey_signature(
    key: bytes, namespace: str, authenticator: bytes, client_data: bytes, signature: bytes
) -> str:
    """Return the SSH signature of what `navigator.credentials.get` returned.

    `authenticator` is its authenticatorData, `client_data` its clientDataJSON, `signature` its
    ECDSA signature in DER. Raises ValueError for anything else.
    """
    if len(authenticator) < 37:
        raise ValueError("the authenticator's data are cut off")
    found = json.loads(client_data)
    origin = str(found["origin"]) if isinstance(found, dict) and "origin" in found else ""
    if not origin:
        raise ValueError("the browser's data name no origin")
    r, s = _der_pair(signature)
    flags_and_counter = authenticator[32:37]
    ecdsa = _strings(BY_BROWSER.encode(), _strings(_mpint(r), _mpint(s)))
    page = _strings(origin.encode(), client_data, authenticator[37:])
    return ssh_signature(key, namespace, ecdsa + flags_and_counter + page)


def ssh_signature(key: bytes, namespace: str, signature: bytes) -> str:
    """Return a signature as `ssh-keygen` writes it into a `.sig` file."""
    parts = (key, namespace.encode(), b"", HASH.encode(), signature)
    text = base64.b64encode(MAGIC + struct.pack(">I", 1) + _strings(*parts)).decode()
    return "\n".join([_BEGIN, *wrap(text, 70), _END, ""])


def read_signature(signature: str) -> SshSignature:
    """Return what a signature says. Raises ValueError, in a sentence, for one that does not parse.

    White space aside, no byte of it is free: the base64 is the usual one, and nothing follows.
    """
    if len(signature) > MAX_CHARS:
        raise ValueError(f"The signature is longer than {MAX_CHARS:,} characters.")
    joined = " ".join(signature.split())
    if not joined.startswith(f"{_BEGIN} ") or not joined.endswith(f" {_END}"):
        raise ValueError("This is not an SSH signature.")
    text = joined.removeprefix(_BEGIN).removesuffix(_END).replace(" ", "")
    try:
        return _read(text)
    except ValueError as error:
        raise ValueError("The signature is damaged.") from error


def _read(text: str) -> SshSignature:
    raw = base64.b64decode(text, validate=True)
    if base64.b64encode(raw).decode() != text or not raw.startswith(MAGIC):
        raise ValueError("not the usual base64")
    reader = _Reader(raw[len(MAGIC) :])
    if reader.number() != 1:
        raise ValueError("another version")
    key, namespace, reserved = reader.string(), reader.text(), reader.string()
    if reserved or reader.text() not in (HASH, "sha256"):
        raise ValueError("another hash")
    signature = _Reader(reader.string())
    reader.end()
    kind, _ = signature.text(), signature.string()
    if not kind.startswith(("sk-", "webauthn-sk-")):
        signature.end()
        return SshSignature(key, namespace, kind)
    flags, origin = signature.take(1)[0], ""
    signature.number()  # the counter
    if kind == BY_BROWSER:
        origin, _, _ = signature.text(), signature.string(), signature.string()
    signature.end()
    return SshSignature(key, namespace, kind, flags, origin)


class _Reader:
    """Read the wire format of SSH (RFC 4251, section 5). Raises ValueError where it is cut off."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def take(self, count: int) -> bytes:
        if count > len(self.raw) - self.at:
            raise ValueError("cut off")
        self.at += count
        return self.raw[self.at - count : self.at]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def string(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        return self.string().decode()

    def end(self) -> None:
        if self.at != len(self.raw):
            raise ValueError("bytes after the end")


def _strings(*parts: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


def _mpint(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big") if number else b""


def _der_pair(raw: bytes) -> tuple[int, int]:
    """Return the two numbers of an ECDSA signature in DER (RFC 3279, 2.2.3)."""
    reader, numbers = _Reader(raw), list[int]()
    if reader.take(2) != bytes([0x30, len(raw) - 2 & 0xFF]):
        raise ValueError("not an ECDSA signature")
    for _ in range(2):
        if reader.take(1) != b"\x02":
            raise ValueError("not an ECDSA signature")
        numbers.append(int.from_bytes(reader.take(reader.take(1)[0]), "big"))
    reader.end()
    return numbers[0], numbers[1]
