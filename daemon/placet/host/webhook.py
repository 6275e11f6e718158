"""Webhooks: a notice as JSON, by POST. The only module here that speaks HTTP."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from urllib.parse import urlsplit


def post(address: str, facts: Mapping[str, str], timeout_s: float) -> str:
    """POST the facts as JSON; return an error or "".

    The thread bounds a slow name server, and a header that comes byte by byte; it ends with its
    socket.
    """
    import httpx2  # noqa: F401 - not before the first webhook, and not within its time: 150 ms

    # at INFO it logs whole addresses, and these may hold tokens
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    answer: list[str] = []
    thread = threading.Thread(
        target=lambda: answer.append(_posted(address, facts, timeout_s)),
        daemon=True,
        name="webhook",
    )
    thread.start()
    thread.join(timeout_s)
    return (
        answer[0] if answer else f"webhook: {_host(address)} did not answer within {timeout_s:g} s"
    )


def _posted(address: str, facts: Mapping[str, str], timeout_s: float) -> str:
    import ssl

    import httpx2

    host = _host(address)
    # A server that is spoken to in the clear needs no certificates, which take 70 ms to read.
    tls = True if urlsplit(address).scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # A redirect is not followed: a notice goes to the host that the person named and to no
        # other.
        client = httpx2.Client(verify=tls, timeout=timeout_s, follow_redirects=False)
    except (
        ImportError,
        ValueError,
        httpx2.InvalidURL,
    ):  # their words would quote the proxy's password
        return (
            f"webhook: {host} cannot be reached: the proxy that the environment names "
            "(HTTPS_PROXY, ALL_PROXY) cannot be used"
        )
    try:
        with (
            client,
            client.stream(
                "POST",
                address,
                content=json.dumps(dict(facts)),
                headers={"Content-Type": "application/json", "User-Agent": "placet"},
            ) as response,
        ):
            if response.is_success:  # what it says beyond that is not read
                return ""
            moved = (
                "; it redirects, which is not followed: put its new address into webhook"
                if response.is_redirect
                else ""
            )
            return f"webhook: {host} answered {response.status_code}{moved}"
    except httpx2.TimeoutException:
        return f"webhook: {host} did not answer within {timeout_s:g} s"
    except (
        httpx2.HTTPError,
        httpx2.InvalidURL,
        OSError,
        ValueError,
    ) as error:  # ValueError: a host that IDNA cannot encode
        return f"webhook: {host} cannot be reached: {_why(error)}"


def _why(error: BaseException) -> str:
    """Return the system's error, or the type of others, whose text may quote the server."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__ if cause is None else cause.strerror or str(cause)


def _host(address: str) -> str:
    return urlsplit(address).hostname or ""
