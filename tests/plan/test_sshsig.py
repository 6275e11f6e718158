from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from placet.plan.sshsig import (
    BY_BROWSER,
    MAX_CHARS,
    fingerprint,
    passkey_key,
    read_signature,
    rp_id_of,
)
from placet.plan.statement import NAMESPACE
from signkit import Passkey, new_key


def test_signature_of_ssh_keygen_is_read(tmp_path: Path) -> None:
    key = new_key(tmp_path)
    words = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE]
    made = subprocess.run(words, input="text\n", capture_output=True, text=True, check=True).stdout
    found = read_signature(made)
    assert (found.namespace, found.kind, found.flags) == (NAMESPACE, "ssh-ed25519", None)
    assert found.key == base64.b64decode(key.with_suffix(".pub").read_text().split()[1])
    shown = subprocess.run(["ssh-keygen", "-l", "-f", str(key)], capture_output=True, text=True)
    assert fingerprint(found.key) == shown.stdout.split()[1]


def test_ssh_keygen_accepts_a_passkey(tmp_path: Path) -> None:
    passkey = Passkey()
    (tmp_path / "signers").write_text(passkey.line())
    (tmp_path / "sig").write_text(passkey.sign("text\n"))
    words = ["ssh-keygen", "-Y", "verify", "-f", "signers", "-I", "anna", "-n", NAMESPACE]
    done = subprocess.run(
        [*words, "-s", "sig"], input="text\n", capture_output=True, text=True, cwd=tmp_path
    )
    assert 'Good "placet-approval" signature for anna with ECDSA-SK key' in done.stdout


def test_signature_of_passkey_tells_origin_and_flags() -> None:
    found = read_signature(Passkey().sign("text\n", flags=0x01, origin="https://evil.example"))
    assert (found.kind, found.flags, found.origin) == (BY_BROWSER, 1, "https://evil.example")
    assert rp_id_of(found.key) == "localhost"


def test_point_must_be_whole() -> None:
    for point in (b"", b"\x04" + bytes(63), b"\x02" + bytes(64)):
        with pytest.raises(ValueError, match="point of P-256"):
            passkey_key(point, "localhost")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text + text,
        lambda text: text.replace("SSH SIGNATURE", "SSH KEY"),
        lambda text: text.replace("\n-----END", "AAAA\n-----END"),
        lambda _: "-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----\n",
        lambda _: "x" * 10_000_000,
        lambda _: "",
        lambda text: text.replace("U1NIU0lH", "U1NIU0lI"),
        lambda text: "\N{SNOWMAN}" + text,
    ],
)
def test_spoiled_signature_is_refused_in_a_sentence(spoil) -> None:
    with pytest.raises(ValueError, match=r"^(The|This) .*\.$") as refused:
        read_signature(spoil(Passkey().sign("text\n")))
    assert len(str(refused.value)) < 100


def test_longest_signature_is_well_above_a_passkeys() -> None:
    assert len(Passkey().sign("text\n")) * 8 < MAX_CHARS
