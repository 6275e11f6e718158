"""Test signatures with the real `ssh-keygen`."""

from __future__ import annotations

import base64
import os
import random
from pathlib import Path

import pytest

from placet.errors import UserError
from placet.host import signers
from placet.host.signers import NotSigned, change_list, keygen_problem, read_list, sign, verify
from placet.plan.allowed_signers import parse_signers
from signkit import Passkey, line_of, new_key

TEXT = "placet approval 1\nplan sha256:00\n"


@pytest.fixture(scope="module")
def key(tmp_path_factory) -> Path:
    return new_key(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def armour(key: Path) -> str:
    return sign(key, TEXT)


def test_signature_of_an_accepted_key_counts(key: Path, armour: str) -> None:
    (anna,) = known = parse_signers(line_of(key).encode())
    signed = verify(TEXT, armour, known)
    assert (signed.signer, signed.key, signed.flags) == ("anna", anna.fingerprint, None)
    assert (signed.statement, signed.signature) == (TEXT, armour)


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_other_kinds_of_keys_sign_too(tmp_path: Path, kind: str) -> None:
    key = new_key(tmp_path, kind=kind)
    verify(TEXT, sign(key, TEXT), parse_signers(line_of(key).encode()))


def test_passkey_of_an_accepted_page_counts() -> None:
    passkey = Passkey()
    signed = verify(TEXT, passkey.sign(TEXT), parse_signers(passkey.line().encode()))
    assert (signed.flags, signed.origin) == (5, "https://localhost:8763")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"flags": 0x01}, "its holder confirmed"),
        ({"flags": 0x04}, "its holder confirmed"),
        ({"flags": 0x00}, "its holder confirmed"),
        ({"origin": "https://localhost:8764"}, "signs on https://localhost:8763"),
        ({"origin": "http://localhost:8763"}, "signs on https://localhost:8763"),
        ({"rp_id": "evil.example"}, "does not hold"),
    ],
)
def test_passkey_must_be_confirmed_on_its_page(how, why: str) -> None:
    passkey = Passkey()
    with pytest.raises(NotSigned, match=why):
        verify(TEXT, passkey.sign(TEXT, **how), parse_signers(passkey.line().encode()))


def test_passkey_without_its_page_counts_nowhere() -> None:
    passkey = Passkey()
    line = passkey.line().replace("passkey https://localhost:8763 ", "")
    with pytest.raises(NotSigned, match="signs on no page"):
        verify(TEXT, passkey.sign(TEXT), parse_signers(line.encode()))


def test_signature_for_anything_else_is_refused(key: Path, armour: str, tmp_path: Path) -> None:
    known = parse_signers(line_of(key).encode())
    other = new_key(tmp_path)
    cases = [
        (TEXT + " ", armour, "does not hold"),
        (TEXT, sign(key, TEXT, "git"), "is for 'git'"),
        (TEXT, sign(other, TEXT), "not accepted on this machine"),
        (TEXT, "", "not an SSH signature"),
        (TEXT, armour + armour, "damaged"),
        (TEXT, armour[:200], "not an SSH signature"),
        (TEXT, armour * 40_000, "longer than"),
    ]
    for text, given, why in cases:
        with pytest.raises(NotSigned, match=why):
            verify(text, given, known)


def test_expired_key_does_not_count(key: Path, armour: str) -> None:
    expired = parse_signers(line_of(key, options='valid-before="20200101"').encode())
    with pytest.raises(NotSigned, match="has expired: valid-before is 20200101"):
        verify(TEXT, armour, expired)
    verify(TEXT, armour, parse_signers(line_of(key, options='valid-after="20200101"').encode()))


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("#!/bin/sh\nsleep 60\n", "did not answer within"),
        ("#!/bin/sh\nexit 1\n", "does not hold"),
        (None, "cannot be started"),
    ],
)
def test_ssh_keygen_may_be_missing_or_hang(
    key: Path, armour: str, tmp_path: Path, monkeypatch, program: str | None, why: str
) -> None:
    if program is not None:
        (tmp_path / "ssh-keygen").write_text(program)
        (tmp_path / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if program else str(tmp_path))
    if program is None and Path("/bin").samefile("/usr/bin"):
        monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(signers, "VERIFY_S", 0.3)
    with pytest.raises(NotSigned, match=why):
        verify(TEXT, armour, parse_signers(line_of(key).encode()))


def test_daemon_key_is_unknown_without_ssh_keygen(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / signers.DAEMON_KEY).write_text("a key")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert signers.daemon_public_key(tmp_path) == b""


def test_old_ssh_keygen_is_named(tmp_path: Path, monkeypatch) -> None:
    assert keygen_problem() == ""
    (tmp_path / "ssh-keygen").write_text("#!/bin/sh\necho Unsupported operation >&2\nexit 1\n")
    (tmp_path / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    assert "older than OpenSSH 8.9" in keygen_problem()


def test_key_that_cannot_sign_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key\n")
    with pytest.raises(UserError, match="did not sign"):
        sign(tmp_path / "key", TEXT)
    with pytest.raises(UserError, match="did not sign"):
        sign(tmp_path / "missing", TEXT)


def test_wrong_list_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "allowed_signers").write_text("* ssh-ed25519 AAAA\n")
    with pytest.raises(UserError, match=r"allowed_signers cannot be used: Line 1"):
        read_list(tmp_path, "allowed_signers")
    assert read_list(tmp_path, "missing") == ()
    for make in (Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        path = tmp_path / str(len([*tmp_path.iterdir()]))
        make(path)
        with pytest.raises(UserError, match="cannot be used"):
            read_list(tmp_path, path.name)


def changed(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ rng.randrange(1, 256)]) + raw[at + 1 :]


@pytest.mark.parametrize(
    "count", [40, pytest.param(10_000, marks=[pytest.mark.sweep, pytest.mark.timeout(3_000)])]
)
def test_no_changed_byte_is_accepted(key: Path, armour: str, count: int) -> None:
    """Change one byte of the statement, the signature, or the key, of a file and of a passkey."""
    rng, passkey = random.Random(43), Passkey()
    by_file = (armour, line_of(key))
    by_passkey = (passkey.sign(TEXT), passkey.line())
    for number in range(count):
        made, line = (by_file, by_passkey)[number % 2]
        text, given, known = TEXT, made, line
        match number // 2 % 3:
            case 0:
                text = changed(TEXT.encode(), rng).decode("latin-1")
            case 1:
                body = "".join(made.split("\n")[1:-2])
                blob = base64.b64encode(changed(base64.b64decode(body), rng)).decode()
                given = made.replace("\n".join(made.split("\n")[1:-2]), blob)
            case _:
                word = max(line.split(), key=len)
                blob = base64.b64encode(changed(base64.b64decode(word), rng)).decode()
                known = line.replace(word, blob)
        try:
            signed = verify(text, given, parse_signers(known.encode()))
        except (NotSigned, ValueError):
            continue
        pytest.fail(f"accepted: {signed}")


def test_changed_list_keeps_comments_and_others(key: Path, tmp_path: Path) -> None:
    path = tmp_path / "allowed_signers"
    path.write_text(f"# who may approve\n{line_of(key).rstrip()}\n  # Bert came later")
    (bert,) = parse_signers(line_of(new_key(tmp_path), "bert").encode())
    change_list(tmp_path, path.name, lambda known: (*known, bert))
    assert path.read_text().startswith("# who may approve\n  # Bert came later\nanna ")
    assert [one.name for one in read_list(tmp_path, path.name)] == ["anna", "bert"]
    path.write_text("* x\n")
    with pytest.raises(UserError, match="cannot be used"):
        change_list(tmp_path, path.name, lambda known: known)
    assert path.read_text() == "* x\n"


def test_list_is_not_written_through_a_link(key: Path, tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "vault/System").symlink_to(tmp_path / "state")
    with pytest.raises(UserError):
        change_list(tmp_path / "vault", "System/allowed_signers", lambda _: ())
    assert not [*(tmp_path / "state").iterdir()]
