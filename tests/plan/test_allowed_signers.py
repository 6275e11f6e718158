from __future__ import annotations

import base64
from pathlib import Path

import pytest

from placet.plan.allowed_signers import as_text, parse_signers
from signkit import Passkey, line_of, new_key


@pytest.fixture(scope="module")
def key(tmp_path_factory) -> Path:
    return new_key(tmp_path_factory.mktemp("keys"))


def test_list_is_read_and_written_alike(key: Path) -> None:
    passkey = Passkey()
    options = 'namespaces="placet-approval",valid-before="20301231"'
    raw = (line_of(key, options=options) + "\n# comment\n" + passkey.line("bert")).encode()
    anna, bert = parse_signers(raw)
    assert (anna.name, anna.before, anna.comment) == ("anna", "20301231", "key@laptop")
    assert (bert.origin, bert.comment) == ("https://localhost:8763", "phone")
    assert parse_signers(as_text([anna, bert])) == (anna, bert)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda line: line.replace("anna", "*"), "is not a name"),
        (lambda line: line.replace("anna", "anna,bert"), "is not a name"),
        (lambda line: line.replace("anna", "!anna"), "is not a name"),
        (lambda line: line.replace("anna", "Anna"), "is not a name"),
        (lambda line: line.replace("ssh-ed25519", "ssh-dss"), "does not know keys of the kind"),
        (lambda line: line.replace("ssh-ed25519", "ssh-rsa"), "damaged"),
        (lambda line: line.replace("AAAA", "AAA"), "damaged"),
        (lambda line: line.replace("anna", "anna cert-authority"), "does not know the option"),
        (lambda line: line.replace("anna", 'anna namespaces="git"'), "is not for approvals"),
        (lambda line: line.replace("anna", 'anna valid-before="soon"'), "is a day, such as"),
        (lambda line: line + line, "Line 2: this key is in the list already"),
        (lambda _: "anna\n", "is not a name, a kind of key and a key"),
        (lambda _: "x" * 300_000, "longer than"),
        (lambda line: line + "\xff", "UTF-8"),
    ],
)
def test_list_with_any_wrong_line_is_refused(key: Path, change, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_signers(change(line_of(key)).encode("latin-1"))


def test_passkey_of_another_page_is_refused() -> None:
    line = Passkey().line().replace("https://localhost:8763", "https://evil.example")
    with pytest.raises(ValueError, match=r"for localhost, not for https://evil\.example"):
        parse_signers(line.encode())


def test_key_that_is_cut_is_refused(key: Path) -> None:
    name, kind, text, _ = line_of(key).split()
    raw = base64.b64decode(text)
    for most in (3, 10, len(raw) // 2):
        cut = base64.b64encode(raw[:most]).decode()
        with pytest.raises(ValueError, match="damaged"):
            parse_signers(f"{name} {kind} {cut}".encode())
