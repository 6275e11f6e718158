"""Say whether an address is on this machine, and ask a server there for the Messages API."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

PATIENCE_S = 0.5
_NO_SUCH_PATH = frozenset({404, 405, 501})


def is_here(base_url: str) -> bool:
    """Return whether an address is plain HTTP on this machine."""
    try:
        parts = urlsplit(base_url)
        host = parts.hostname
    except ValueError:
        return False
    return parts.scheme == "http" and host in ("127.0.0.1", "::1", "localhost")


def speaks_messages(base_url: str) -> bool:
    """Return whether a server on this machine has the path of the Messages API.

    An empty request costs no token: a server that speaks the API refuses it. True where the server
    cannot be reached, which says nothing against it.
    """
    try:
        parts = urlsplit(base_url)
        connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=PATIENCE_S)
    except ValueError:
        return True
    try:
        connection.request(
            "POST",
            parts.path.rstrip("/") + "/v1/messages",
            b"{}",
            {"content-type": "application/json", "anthropic-version": "2023-06-01"},
        )
        return connection.getresponse().status not in _NO_SUCH_PATH
    except (OSError, HTTPException, ValueError):
        return True
    finally:
        connection.close()
