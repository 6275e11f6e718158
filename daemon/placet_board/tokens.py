"""Signed tokens: a login link that opens one session, the session, and the token of its forms."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from itsdangerous import BadSignature, URLSafeTimedSerializer

from placet.core.errors import UserError, cannot_write
from placet.host.state import write_private

LINK_S = 600
"""Seconds in which a login link can be used."""
SESSION_S = 30 * 24 * 3600
"""Seconds that a session lasts: a phone is asked for a new link once a month."""
KEY = "board.key"
"""The file of the state folder that holds the key."""
KEY_BYTES = 32
MAX_TOKEN_CHARS = 2_000
MAX_NAME_CHARS = 60


@dataclass(frozen=True, slots=True)
class Session:
    """A person at a browser: the name that decisions are journalled with, and an id."""

    who: str
    ident: str


@dataclass(slots=True)
class Tokens:
    """Makes and reads tokens with one key; knows which login links were used.

    A login link is for one run of a board, `run`: whether one of an earlier run was used is not
    known. With a `file` the key is the one in there now: who deletes it logs all browsers out.
    """

    key: bytes
    run: str
    file: Path | None = None
    used: set[str] = field(default_factory=set)

    def login(self, who: str) -> str:
        """Return the token of a login link for a person of this name."""
        return self._signed(self._login, {"who": who, "nonce": secrets.token_urlsafe(16)})

    def session_for(self, login: str) -> str | None:
        """Use a login link up; return the session's token, None for one that does not count."""
        data = self._read(self._login, login, LINK_S)
        if data is None or data["nonce"] in self.used:
            return None
        self.used.add(data["nonce"])
        return self._signed("session", {"who": data["who"], "ident": secrets.token_urlsafe(16)})

    def session(self, token: str) -> Session | None:
        """Return the session of a cookie, None for none that counts."""
        found = self._read("session", token, SESSION_S)
        return None if found is None else Session(found["who"], found["ident"])

    def form_token(self, session: Session) -> str:
        """Return the token that this session's forms carry."""
        return self._signed("form", {"ident": session.ident})

    def is_form_of(self, session: Session, token: str) -> bool:
        """Return whether a form's token belongs to a session."""
        found = self._read("form", token, SESSION_S)
        return found is not None and secrets.compare_digest(found["ident"], session.ident)

    @property
    def _login(self) -> str:
        # not in the token, which a QR code has to hold
        return f"login {self.run}"

    def _signed(self, purpose: str, data: dict[str, str]) -> str:
        return str(self._signer(purpose).dumps(data))

    def _read(self, purpose: str, token: str, age_s: int) -> dict[str, Any] | None:
        if len(token) > MAX_TOKEN_CHARS:
            return None
        try:
            found: dict[str, Any] = self._signer(purpose).loads(token, max_age=age_s)
        except BadSignature:
            return None
        return found

    def _signer(self, purpose: str) -> URLSafeTimedSerializer:
        if self.file is not None:
            with suppress(UserError):  # no open file is left: as before
                self.key = key_at(self.file)
        return URLSafeTimedSerializer(self.key, salt=f"placet {purpose}")


def key_at(path: Path) -> bytes:
    """Return the key in a file; one that is missing, damaged or not ours alone is replaced.

    Then all have to log in again. Raises UserError if that cannot be done.
    """
    try:
        return _private_key(path) or _new_key(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def _private_key(path: Path) -> bytes | None:
    """Return the key in a file that nobody else could have read or put there, else None."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link
            return None
        raise
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        is_ours = info.st_uid == os.geteuid() and not stat.S_IMODE(info.st_mode) & 0o077
        key = file.read(KEY_BYTES + 1) if is_ours and stat.S_ISREG(info.st_mode) else b""
    return key if len(key) == KEY_BYTES else None


def _new_key(path: Path) -> bytes:
    key = os.urandom(KEY_BYTES)
    write_private(path, key)
    return key


def name_of(who: str) -> str:
    """Return a person's name as notes and rows have it. Raises UserError for one that is none."""
    name = " ".join(who.split())
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise UserError(
            "The name of a login link is empty, too long, or has characters that cannot be seen.",
            "Give a name: placet board login --name Anna",
            exit_code=2,
        )
    return name
