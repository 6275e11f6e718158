"""Keep the list of who may approve, sign, and verify signatures with `ssh-keygen`.

`System/allowed_signers` is in the vault, which others may write. So the list that was last accepted
on this machine counts, whatever that file says.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from placet.case.case import Signed
from placet.codec import sha256
from placet.disk.errors import Gone, Unreadable
from placet.disk.files import put
from placet.disk.vault import Vault
from placet.errors import PlacetError, UserError
from placet.host.config import one_writer
from placet.plan.allowed_signers import Signer, as_text, parse_signers, read_key
from placet.plan.sshsig import (
    BY_BROWSER,
    PRESENT,
    VERIFIED,
    read_signature,
)
from placet.plan.statement import NAMESPACE

VERIFY_S = 5.0
"""Seconds that a check of a signature may take: it is a hundredth of that."""
SIGN_S = 120.0
"""Seconds that a signature may take: somebody may have to type a passphrase or touch a token."""
KEYGEN = "ssh-keygen"
DAEMON_KEY = "receipt_key"
"""Name of the daemon's private key in the state folder. It signs receipts, and approves nothing."""


class NotSigned(Exception):  # noqa: N818 - named for what is the case
    """A signature that does not count; the text says why, in a sentence."""


def read_list(folder: Path, path: str) -> tuple[Signer, ...]:
    """Return the signers of the list at `path` below a folder, none without a file.

    Neither a link nor a pipe is read. Raises UserError for a list that is not as it should be.
    """
    return () if not os.path.isdir(folder) else parse_list(folder / path, _read(folder, path))


def _read(folder: Path, path: str) -> bytes:
    try:
        with Vault(folder) as held:
            return held.read(path)[0]
    except Gone:
        return b""
    except Unreadable as error:
        raise _unusable(folder / path, str(error)) from error


def parse_list(path: Path, raw: bytes) -> tuple[Signer, ...]:
    """Return the signers of a list that was read from `path`. Raises UserError as `read_list`."""
    try:
        return parse_signers(raw)
    except ValueError as error:
        raise _unusable(path, str(error)) from error


def _unusable(path: Path, why: str) -> UserError:
    return UserError(
        f"{path} cannot be used: {why}",
        "Correct that line, or delete it. To add a signer: placet signer add NAME KEYFILE",
        exit_code=2,
    )


def change_list(
    folder: Path, path: str, change: Callable[[tuple[Signer, ...]], Sequence[Signer]]
) -> None:
    """Change the list of signers at `path` below a folder; its comments stay, above them.

    No link is followed. Raises UserError for a list that cannot be used, or cannot be written.
    """
    where = folder / path
    with one_writer(where), Vault(folder) as held:
        before = _read(folder, path)
        kept = [line + b"\n" for line in before.split(b"\n") if line.lstrip().startswith(b"#")]
        new = b"".join(kept) + as_text(change(parse_list(where, before)))
        try:
            if before:
                held.replace(path, sha256(before), new)
            else:
                held.publish(path, new)
        except PlacetError as error:
            raise UserError(f"{where} cannot be written: {error}.", "Try again.") from error


def verify(
    text: str, signature: str, signers: Sequence[Signer], namespace: str = NAMESPACE
) -> Signed:
    """Return a signature of a text by one of the signers; raises NotSigned for any other.

    `ssh-keygen` decides whether it holds. It asks neither whether somebody touched a token, nor on
    which page a passkey signed, so that is asked here.
    """
    try:
        found = read_signature(signature)
    except ValueError as error:
        raise NotSigned(str(error)) from error
    if found.namespace != namespace:
        raise NotSigned(f"The signature is for {found.namespace!r}, not for {namespace!r}.")
    signer = next((one for one in signers if one.key == found.key), None)
    if signer is None:
        raise NotSigned("The signature is by a key that was not accepted on this machine.")
    by_browser = found.kind == BY_BROWSER
    if by_browser != bool(signer.origin) or found.origin != signer.origin:
        where = signer.origin or "no page"
        raise NotSigned(f"The key of {signer.name} signs on {where}, and this is by another.")
    needed = PRESENT | VERIFIED if by_browser else PRESENT
    if found.flags is not None and found.flags & needed != needed:
        raise NotSigned("The key does not say that its holder confirmed this signature.")
    with tempfile.TemporaryDirectory(prefix="placet-") as folder:
        lists, file = Path(folder, "signers"), Path(folder, "signature")
        lists.write_bytes(f"{signer.line(namespace)}\n".encode())
        file.write_text(signature)
        words = ["-f", str(lists), "-I", signer.name, "-n", namespace, "-s", str(file)]
        done = _keygen(["-Y", "verify", *words], text, VERIFY_S)
    if "expired" in done.stderr and signer.before:
        raise NotSigned(f"The key of {signer.name} has expired: valid-before is {signer.before}.")
    if done.returncode:
        why = _last_line(done).replace(f"{lists}:1: ", "") or "refused"
        raise NotSigned(f"The signature does not hold ({why}).")
    return Signed(signer.name, signer.fingerprint, text, signature, found.flags, found.origin)


def keygen_problem() -> str:
    """Return why `ssh-keygen` cannot be used, empty if it can."""
    try:
        done = _keygen(["-Y", "match-principals"], "", VERIFY_S)
    except NotSigned as error:
        return str(error)
    # a new one asks for a file
    return "" if "file" in done.stderr else f"`{KEYGEN}` is older than OpenSSH 8.9."


def sign(key: Path, text: str, namespace: str = NAMESPACE) -> str:
    """Return a key's signature of a text; of a public key, an agent or a token has the other half.

    A passphrase is asked for on the terminal. Raises UserError if there is no signature.
    """
    if not os.path.isfile(key) and not os.path.isfile(f"{key}.pub"):
        raise UserError(
            f"{key} did not sign: there is no such file.",
            "Give the file of your SSH key: placet config set approval.key FILE",
        )
    try:
        done = _keygen(["-q", "-Y", "sign", "-f", str(key), "-n", namespace], text, SIGN_S)
    except NotSigned as error:
        raise UserError(
            str(error), "Install OpenSSH 8.9 or newer, or approve on the board."
        ) from error
    if done.returncode:
        raise UserError(
            f"{key} did not sign: {_last_line(done)}",
            "Give the file of your SSH key: placet config set approval.key FILE. If it is locked: "
            "ssh-add FILE",
        )
    return done.stdout


def daemon_key(folder: Path) -> Path:
    """Return the daemon's key in the state folder; without one, make it.

    Raises NotSigned, UserError or OSError where that is impossible.
    """
    key = folder / DAEMON_KEY
    if os.path.exists(key):
        return key
    with one_writer(key), tempfile.TemporaryDirectory(dir=folder) as made:
        new = Path(made, DAEMON_KEY)
        words = ["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(new)]
        done = _keygen(words, "", VERIFY_S)
        if done.returncode:
            raise NotSigned(f"`{KEYGEN}` made no key: {_last_line(done)}")
        if not os.path.exists(key):  # another mission may have made it
            put(key, new.read_bytes())
    return key


def daemon_public_key(folder: Path) -> bytes:
    """Return the public half of the daemon's key, empty without one, or without OpenSSH."""
    key = folder / DAEMON_KEY
    if not os.path.isfile(key):
        return b""
    try:
        done = _keygen(["-y", "-f", str(key)], "", VERIFY_S)
    except NotSigned:
        return b""
    return b"" if done.returncode else read_key(*done.stdout.split()[:2])


def fingerprint_of_file(file: Path) -> str:
    """Return the fingerprint of a key's file, empty where there is none, or it is no key."""
    if not os.path.isfile(file):
        return ""
    try:
        done = _keygen(["-l", "-f", str(file)], "", VERIFY_S)
    except NotSigned:
        return ""
    return "" if done.returncode else done.stdout.split()[1]


def _keygen(words: Sequence[str], text: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run ssh-keygen on a text. Raises NotSigned where it is missing, or takes too long."""
    try:
        return subprocess.run(
            [KEYGEN, *words],
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotSigned(f"`{KEYGEN}` did not answer within {timeout_s:.0f} s.") from error
    except OSError as error:
        raise NotSigned(f"`{KEYGEN}` cannot be started ({error.strerror}).") from error


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1].rstrip(".") if lines else ""
