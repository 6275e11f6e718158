"""Make certificates for the hosts of tests."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

HOSTS = ("localhost", "packages.example", "*.wild.example", "evil.example")


@cache
def certificate() -> Path:
    """Return a file with a key and its own certificate for HOSTS; skip without openssl(1)."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl(1)")
    file = Path(tempfile.mkdtemp(prefix="placet-tls-"), "key-and-certificate.pem")
    names = ",".join(f"DNS:{name}" for name in HOSTS)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-subj", "/CN=localhost", "-addext", f"subjectAltName={names}", "-days", "2",
         "-keyout", str(file), "-out", f"{file}.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    file.write_bytes(file.read_bytes() + Path(f"{file}.crt").read_bytes())
    return file


def serving() -> ssl.SSLContext:
    """Return OpenSSL for a server of all HOSTS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate())
    return context
