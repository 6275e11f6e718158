"""Add passkeys to the list of signers, and make signatures of what a browser signed."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from placet.case.approval import NOT_SIGNED
from placet.case.case import Case
from placet.client.signing import accepted_signers, statement_for, to_accept
from placet.client.site import Site
from placet.errors import UserError
from placet.host.config import ApprovalTable
from placet.host.signers import NotSigned, change_list, verify
from placet.note.paths import SIGNERS_PATH
from placet.plan.allowed_signers import NAME, Signer
from placet.plan.sshsig import bytes_to_sign, passkey_key, passkey_signature, rp_id_of
from placet.plan.statement import NAMESPACE

MAX_FIELD_CHARS = 4_096
"""Longest part of a browser's answer: one of Chromium is at most 500 characters long."""
_ANSWER = ("authenticator", "client_data", "signature")
"""The form's fields with a browser's answer, in base64: what `passkey_signature` takes."""
NO_PASSKEY = "You have no accepted passkey here. To add this device, click your name."


@dataclass(frozen=True, slots=True)
class Signing:
    """How a page lets you sign an approval: the statement, and the challenge for a passkey.

    `why` says why a passkey cannot sign it there; it is empty where one can.
    """

    statement: str = ""
    challenge: str = ""
    why: str = ""


def signing(
    site: Site, case: Case, digest: str, origin: str, settings: ApprovalTable
) -> Signing | None:
    """Return how an approval of a text is signed on a page; None where it is not signed there."""
    must_sign = case.must_sign or settings.signed
    if not (must_sign or settings.is_on):
        return None
    try:
        if any(one.origin == origin for one in _accepted(site)):
            text = statement_for(site, case, digest)
            return Signing(text, base64.b64encode(_challenge(text)).decode())
        why = no_passkeys_at(origin) or NO_PASSKEY
    except UserError as error:
        why = error.what
    return Signing(why=why) if must_sign else None


def signature(site: Site, case: Case, fields: Mapping[str, str]) -> str:
    """Return the SSH signature of an approval, made of a browser's answer; "" without an answer.

    Raises UserError for an answer that does not count, and where one is needed.
    """
    elsewhere = f"type: placet approve {case.request_id}"
    if not fields.get("signature"):
        if case.must_sign:
            raise UserError(NOT_SIGNED, f"Sign it, or {elsewhere}")
        return ""
    text = statement_for(site, case, fields.get("digest", ""))
    asked = base64.urlsafe_b64encode(_challenge(text)).rstrip(b"=")
    try:
        authenticator, client_data, signed = (_decoded(fields.get(one, "")) for one in _ANSWER)
        if not client_data.startswith(b'{"type":"webauthn.get","challenge":"%s"' % asked):
            raise UserError("You signed another text than what would run now.", "Read it again.")
        why = NO_PASSKEY
        for signer in _accepted(site):
            rp_hash = hashlib.sha256(rp_id_of(signer.key).encode()).digest()
            origin = f'"origin":"{signer.origin}"'.encode()
            if origin not in client_data or not authenticator.startswith(rp_hash):
                continue  # it is for another address
            made = passkey_signature(signer.key, NAMESPACE, authenticator, client_data, signed)
            try:
                verify(text, made, [signer])
            except NotSigned as error:
                why = str(error)
            else:
                return made
    except (ValueError, RecursionError) as error:
        raise UserError(
            "The browser's answer is not the signature of a passkey.", f"Try again, or {elsewhere}"
        ) from error
    raise UserError(f"{why} Nothing was approved.", f"Try again, or {elsewhere}")


def passkeys_page(site: Site, origin: str) -> dict[str, Any] | None:
    """Return what a page shows of your passkeys; None where approvals are not signed."""
    if not site.configured().approval.is_on:
        return None
    why, found = no_passkeys_at(origin), list[tuple[Signer, bool]]()
    try:
        known, name = accepted_signers(site), signer_name(site.who)
        found = [
            (one, one in known)
            for one in (*known, *to_accept(site).added)
            if one.name == name and one.origin
        ]
    except UserError as error:
        why = str(error)
    return {"found": found, "why": why, "user": f"{site.who} · {site.vault.name}"}


def add_passkey(site: Site, origin: str, browser: str, point: str) -> None:
    """Write a passkey into the vault's list, where it waits until it is accepted.

    `point` is its public key, in base64. Raises UserError for what is not one, and where the list
    cannot be read or written.
    """
    if not site.configured().approval.is_on:
        raise UserError("Approvals are not signed here.", "placet config set approval.signed true")
    if why := no_passkeys_at(origin):
        raise UserError(why, "Open the board there.")
    name = signer_name(site.who)
    try:
        key = passkey_key(_decoded(point), urlsplit(origin).hostname or "")
    except ValueError as error:
        raise UserError(
            "The browser's answer is not a passkey that placet can use.", "Try another browser."
        ) from error
    new = Signer(name, key, browser, origin)
    change_list(
        site.vault,
        SIGNERS_PATH,
        lambda known: known if any(one.key == key for one in known) else (*known, new),
    )


def signer_name(who: str) -> str:
    """Return the name under which a login signs. Raises UserError for a name that cannot be one."""
    name = "-".join(who.lower().split())
    if not NAME.fullmatch(name):
        raise UserError(
            f"{who} cannot sign: a signer's name has only letters of English, digits and . _ @ -",
            "Log in with such a name: placet board login --name anna",
        )
    return name


def no_passkeys_at(origin: str) -> str:
    """Return why browsers have no passkeys at an address; empty where they have."""
    parts = urlsplit(origin)
    host = parts.hostname or ""
    with suppress(ValueError):
        ipaddress.ip_address(host)
        host = ""
    if host == "localhost" or (host and parts.scheme == "https"):
        return ""
    return (
        f"Browsers have no passkeys at {origin}: they need https and a name, or http://localhost."
    )


def _accepted(site: Site) -> list[Signer]:
    """Return the accepted passkeys of a login."""
    name = signer_name(site.who)
    return [one for one in accepted_signers(site) if one.name == name and one.origin]


def _challenge(text: str) -> bytes:
    return bytes_to_sign(text.encode(), NAMESPACE)


def _decoded(text: str) -> bytes:
    if len(text) > MAX_FIELD_CHARS:
        raise ValueError("too long")
    return base64.b64decode(text, validate=True)
