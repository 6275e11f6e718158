"""A passkey without a browser: it answers as `navigator.credentials` does."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass, field

# P-256 (SEC 2, 2.4.2)
_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_Point = tuple[int, int] | None


def _plus(a: _Point, b: _Point) -> _Point:
    if a is None or b is None:
        return a or b
    if a[0] == b[0]:
        if (a[1] + b[1]) % _P == 0:
            return None
        slope = 3 * (a[0] ** 2 - 1) * pow(2 * a[1], -1, _P)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, _P)
    x = (slope**2 - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _times(number: int) -> tuple[int, int]:
    found, step = None, _G
    while number:
        found = _plus(found, step) if number & 1 else found
        step, number = _plus(step, step), number >> 1
    assert found is not None
    return found


def _der(*numbers: int) -> bytes:
    parts = [number.to_bytes(number.bit_length() // 8 + 1, "big") for number in numbers]
    body = b"".join(b"\x02" + bytes([len(part)]) + part for part in parts)
    return b"\x30" + bytes([len(body)]) + body


@dataclass
class SoftPasskey:
    """A passkey that answers whatever it is asked; `flags` say touched and verified."""

    secret: int = field(default_factory=lambda: secrets.randbelow(_N - 1) + 1)

    @property
    def point(self) -> bytes:
        x, y = _times(self.secret)
        return b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")

    def added(self) -> dict[str, str]:
        """Return the fields by which a page adds it."""
        return {"point": base64.b64encode(self.point).decode()}

    def answer(
        self,
        challenge: bytes,
        origin: str,
        *,
        rp_id: str = "localhost",
        flags: int = 0x05,
        asked: str = "webauthn.get",
    ) -> dict[str, bytes]:
        """Return what a browser answers, by the names of the form's fields."""
        encoded = base64.urlsafe_b64encode(challenge).rstrip(b"=").decode()
        said = {"type": asked, "challenge": encoded, "origin": origin, "crossOrigin": False}
        client_data = json.dumps(said, separators=(",", ":")).encode()
        authenticator = hashlib.sha256(rp_id.encode()).digest() + bytes([flags, 0, 0, 0, 1])
        signed = authenticator + hashlib.sha256(client_data).digest()
        number, once = int.from_bytes(hashlib.sha256(signed).digest(), "big"), 0
        r = s = 0
        while not s:
            once = secrets.randbelow(_N - 1) + 1
            r = _times(once)[0] % _N
            s = pow(once, -1, _N) * (number + r * self.secret) % _N if r else 0
        return {
            "authenticator": authenticator,
            "client_data": client_data,
            "signature": _der(r, s),
        }


def form_of(answer: dict[str, bytes]) -> dict[str, str]:
    """Return an answer as a page sends it."""
    return {name: base64.b64encode(part).decode() for name, part in answer.items()}
