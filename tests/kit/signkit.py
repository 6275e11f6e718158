"""SSH keys of tests, and a passkey whose answers are SSH signatures, as the board makes them."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from passkeykit import SoftPasskey
from placet.plan.sshsig import PASSKEY, bytes_to_sign, passkey_key, passkey_signature
from placet.plan.statement import NAMESPACE


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


@dataclass
class Passkey:
    """A passkey for a page at `origin`."""

    origin: str = "https://localhost:8763"
    rp_id: str = "localhost"
    holder: SoftPasskey = field(default_factory=SoftPasskey)

    @property
    def public(self) -> bytes:
        """Its public key, as SSH has it."""
        return passkey_key(self.holder.point, self.rp_id)

    def line(self, name: str = "anna") -> str:
        """Return its line in a list of signers."""
        key = base64.b64encode(self.public).decode()
        return f'{name} namespaces="{NAMESPACE}" {PASSKEY} {key} passkey {self.origin} phone\n'

    def sign(self, text: str, *, flags: int = 0x05, origin: str = "", rp_id: str = "") -> str:
        """Return the SSH signature of a text."""
        challenge, page = bytes_to_sign(text.encode(), NAMESPACE), origin or self.origin
        answer = self.holder.answer(challenge, page, rp_id=rp_id or self.rp_id, flags=flags)
        return passkey_signature(self.public, NAMESPACE, **answer)
