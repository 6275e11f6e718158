"""Test that a worker verifies approvals with the signers in its own file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from placet.case.case import Case, Signed
from placet.case.life_cycle import State
from placet.codec import sha256
from placet.host.signers import NotSigned, sign
from placet.plan.statement import Terms
from placet_team.worker_setup import check_signature
from signkit import line_of, new_key

TRACE = "550e8400-e29b-41d4-a716-446655440000"
TEXT = b"---\nportal: code\n---\n# A plan\n"


def statement(text: bytes = TEXT, trace: str = TRACE) -> str:
    terms = Terms(sha256(text), "a", trace, "code", "8d" * 20, "m (p)", 3, (), None, 10)
    return f"{terms.lines()}nonce 0-{'6f' * 16}\n"


@pytest.fixture(scope="module")
def key(tmp_path_factory) -> Path:
    key = new_key(tmp_path_factory.mktemp("keys"))
    key.with_name("signers").write_text(line_of(key))
    return key


def signed_case(key: Path, text: str) -> Case:
    signed = Signed("anna", "", text, sign(key, text))
    return Case(TRACE, "a", State.RUNNING, signed=(signed,))


def test_plan_of_a_known_signer_runs(key: Path) -> None:
    check_signature(signed_case(key, statement()), TEXT, "code", key.with_name("signers"))


@pytest.mark.parametrize(
    ("text", "portal", "signed", "why"),
    [
        (TEXT, "code", "", "is not signed"),
        (TEXT + b"more\n", "code", statement(), "is another plan"),
        (TEXT, "other", statement(), "is another plan"),
        (TEXT, "code", statement(trace=TRACE.replace("4", "5")), "is another plan"),
        (TEXT, "code", "placet approval 1\n", "is another plan"),
    ],
)
def test_other_plan_does_not_run(
    key: Path, text: bytes, portal: str, signed: str, why: str
) -> None:
    case = signed_case(key, signed) if signed else Case(TRACE, "a", State.RUNNING)
    with pytest.raises(NotSigned, match=why):
        check_signature(case, text, portal, key.with_name("signers"))


def test_signer_of_the_daemon_alone_is_refused(key: Path, tmp_path: Path) -> None:
    (tmp_path / "signers").write_text(line_of(new_key(tmp_path)))
    with pytest.raises(NotSigned, match="not accepted"):
        check_signature(signed_case(key, statement()), TEXT, "code", tmp_path / "signers")


def test_edited_signature_is_refused(key: Path) -> None:
    case = signed_case(key, statement())
    (one,) = case.signed
    case = replace(case, signed=(replace(one, statement=one.statement.replace("m (p)", "x (p)")),))
    with pytest.raises(NotSigned, match="does not hold"):
        check_signature(case, TEXT, "code", key.with_name("signers"))
