"""Find the model's server and its key, and explain its errors."""

from __future__ import annotations

import ipaddress
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import mktime_tz, parsedate_tz
from pathlib import Path
from urllib.parse import urlsplit

from placet.chat.messages import ModelError, ModelErrorKind
from placet.errors import UserError
from placet.host.config import http_host

DEFAULT_BASE_URL = "https://api.anthropic.com"
KEY_VARIABLE = "ANTHROPIC_API_KEY"
CREDENTIAL = "anthropic_api_key"
_NO_KEY = "placet-has-no-key"  # sent to a local server that needs no key


def server_of(base_url: str, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the server's address and its key.

    The address is `base_url`, else `ANTHROPIC_BASE_URL`, else Anthropic's. The key is
    `ANTHROPIC_API_KEY`, else the systemd credential `anthropic_api_key`; a server on loopback needs
    none. Raises UserError for an invalid address, ModelError (permanent) for a missing or unusable
    key.
    """
    base_url = base_url or env.get("ANTHROPIC_BASE_URL", "") or DEFAULT_BASE_URL
    host = _host_of(base_url)
    key = _key_from(env)
    if not key and not is_loopback(host):
        raise ModelError(
            ModelErrorKind.PERMANENT,
            f"there is no key for {host}. Stop the daemon, type: export {KEY_VARIABLE}=…, and"
            " start it in that terminal: placet run (in a systemd unit:"
            f" LoadCredential={CREDENTIAL}:/path/to/key). A server on this machine needs no key:"
            " placet config set model.base_url http://127.0.0.1:8080",
        )
    return base_url.rstrip("/"), key or _NO_KEY


def is_without_key(base_url: str, env: Mapping[str, str]) -> bool:
    """Return whether the server is called without a key: none is set and it needs none."""
    return server_of(base_url, env)[1] == _NO_KEY


def _key_from(env: Mapping[str, str]) -> str:
    where, key = KEY_VARIABLE, env.get(KEY_VARIABLE, "")
    if not key.strip() and env.get("CREDENTIALS_DIRECTORY"):
        path = Path(env["CREDENTIALS_DIRECTORY"], CREDENTIAL)
        try:
            where, key = str(path), path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(
                ModelErrorKind.PERMANENT,
                f"the credential {path} cannot be read ({type(error).__name__})",
            ) from None
    key = key.strip()
    if not all("!" <= character <= "~" for character in key):
        raise ModelError(
            ModelErrorKind.PERMANENT,
            f"{where} holds spaces, line ends or characters that no key has; set the key alone",
        )
    return key


def _host_of(base_url: str) -> str:
    host = http_host(base_url)
    if not host:
        raise UserError(
            "[model] base_url (or ANTHROPIC_BASE_URL) is not a server's address",
            "Write it as https://host or http://127.0.0.1:11434, without a user or a key in it.",
            exit_code=2,
        )
    if base_url.rstrip("/").endswith("/v1"):
        raise UserError(
            "[model] base_url (or ANTHROPIC_BASE_URL) ends in /v1",
            "Leave /v1 out; it is added.",
            exit_code=2,
        )
    return host


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine: a loopback address, or `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_here(base_url: str) -> bool:
    """Return whether an address is plain HTTP on this machine."""
    here = http_host(base_url) in ("127.0.0.1", "::1", "localhost")
    return here and not base_url.startswith("https:")


PATIENCE_S = 0.5
_NO_SUCH_PATH = frozenset({404, 405, 501})


def speaks_messages(base_url: str) -> bool:
    """Return whether a server on this machine has the path of the Messages API.

    An empty request costs no token: a server that speaks the API refuses it. True where the server
    cannot be reached, which says nothing against it.
    """
    # loads ssl, which `placet status` does not need
    from http.client import HTTPConnection, HTTPException

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


@dataclass(frozen=True, slots=True)
class Offered:
    """A model that a server offers; `context_tokens` is None if the server does not say."""

    name: str
    context_tokens: int | None


_CONTEXT = ("n_ctx", "max_model_len", "max_input_tokens")  # llama-server, vLLM, Anthropic


def offered_in(answer: object) -> tuple[Offered, ...]:
    """Return the models that an answer to `GET /v1/models` lists."""
    listed = answer.get("data") if isinstance(answer, Mapping) else None
    found = []
    for one in listed if isinstance(listed, list) else ():
        if (
            isinstance(one, Mapping)
            and isinstance(name := one.get("id"), str)
            and name.isprintable()
        ):
            meta = one.get("meta")
            facts = {**meta, **one} if isinstance(meta, Mapping) else one
            sizes = [facts[key] for key in _CONTEXT if isinstance(facts.get(key), int)]
            found.append(Offered(name, sizes[0] if sizes else None))
    return tuple(found)


_READ_CHARACTERS = 10_000
_TYPE_CHARACTERS = 100
_QUOTED_CHARACTERS = 300
_ECHO_CHARACTERS = 20
_KEY_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A model at a server, as errors name it; no error shows the key."""

    name: str
    url: str
    key: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.name} at {urlsplit(self.url).netloc}"

    @property
    def proxy(self) -> str:
        """Return the words for the proxy on the way there, "" if the server is asked directly.

        A server on this machine is: through a proxy, prompts could leave the machine.
        """
        # loads ssl, which `placet status` does not need
        from urllib.request import getproxies, proxy_bypass

        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if is_loopback(host) or proxy_bypass(host):
            return ""
        found = getproxies()
        proxy = found.get(parts.scheme) or found.get("all", "")
        # without a user and a password
        where = urlsplit(proxy if "://" in proxy else f"//{proxy}").netloc.rpartition("@")[2]
        return f" through the proxy {where} ({parts.scheme.upper()}_PROXY)" if where else ""

    def transient(self, what: str, *, served: bool = True) -> ModelError:
        """Return the error of a call that may be retried."""
        return ModelError(ModelErrorKind.TRANSIENT, f"{self}: {what}", served=served)

    def permanent(self, what: str) -> ModelError:
        """Return the error of a call that fails until you change something."""
        return ModelError(ModelErrorKind.PERMANENT, f"{self}: {what}")

    def refused(
        self, status: int, body: object, headers: Mapping[str, str], request: str
    ) -> ModelError:
        """Return the error of an error answer; no word of `request` is quoted."""
        answer = body if isinstance(body, Mapping) else {}
        inner = answer.get("error", answer)
        inner = inner if isinstance(inner, Mapping) else {"message": inner}
        error_type, message = inner.get("type"), inner.get("message")
        is_type = isinstance(error_type, str) and error_type.isidentifier()
        error_type = str(error_type) if is_type else ""
        error_type = error_type if len(error_type) <= _TYPE_CHARACTERS else ""
        message = message if isinstance(message, str) else ""
        details = inner.get("details")
        code = details.get("error_code") if isinstance(details, Mapping) else None
        code = code if isinstance(code, str) else ""
        kind, served = kind_of(status, error_type, code), status == 200
        # no server has a code for it; at worst a conversation is shortened
        if status in _STATUS_IF_FULL and _SAYS_FULL.search(f"{error_type} {message[:1_000]}"):
            kind = ModelErrorKind.CONTEXT_FULL
        return ModelError(
            kind,
            f"{self}: {'an error in mid-stream' if served else f'status {status}'}"
            + (f", {error_type}" if error_type else "")
            + quoted(message, key=self.key, request=request, name=self.name)
            + (f". {advice(status)}" if kind is ModelErrorKind.PERMANENT else ""),
            status=status,
            served=served,
            retry_after_s=retry_after_s(headers, time.time()),
        )


# The API's names, https://platform.claude.com/docs/en/api/errors; without `invalid_request_error`,
# which other servers use for any error.
_BY_TYPE = {
    "overloaded_error": ModelErrorKind.TRANSIENT,
    "rate_limit_error": ModelErrorKind.TRANSIENT,
    "api_error": ModelErrorKind.TRANSIENT,
    "timeout_error": ModelErrorKind.TRANSIENT,
    "conflict_error": ModelErrorKind.TRANSIENT,
    "authentication_error": ModelErrorKind.PERMANENT,
    "permission_error": ModelErrorKind.PERMANENT,
    "billing_error": ModelErrorKind.PERMANENT,
    "not_found_error": ModelErrorKind.PERMANENT,
    "request_too_large": ModelErrorKind.BAD_REQUEST,
}
# codes of causes that a person must fix, with any status (SDK, `_error_classes.py`)
_FOR_A_PERSON = frozenset(
    {
        "contract_spend_limit_reached",
        "enforced_spend_limit_reached",
        "linked_organization_spend_limit_reached",
        "linked_organization_billing_unavailable",
        "organization_on_hold",
        "organization_type_not_supported",
        "parent_organization_required",
        "cmek_key_disabled",
        "cmek_key_network_blocked",
    }
)
_STATUS_IF_FULL = frozenset({200, 400, 413, 422, 500})
_SAYS_FULL = re.compile(
    r"(exceed|maximum|available|overflow|too long|larger than)[^.]{0,60}context"
    r"|context[^.]{0,60}(exceed|overflow|too small)|exceed_context|prompt is too long",
    re.IGNORECASE,
)
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429, 499})
_PERMANENT_STATUS = frozenset({401, 402, 403, 404, 405, 407, 410})


def kind_of(status: int, error_type: str, error_code: str) -> ModelErrorKind:
    """Return the kind of an error answer by its type, code and status, never by its text.

    Status 200 means an error event in a stream.
    """
    if error_code in _FOR_A_PERSON or 300 <= status < 400:
        return ModelErrorKind.PERMANENT
    if error_type in _BY_TYPE:
        return _BY_TYPE[error_type]
    if status == 200:
        refused = error_type == "invalid_request_error"
        return ModelErrorKind.BAD_REQUEST if refused else ModelErrorKind.TRANSIENT
    if status in _TRANSIENT_STATUS or status >= 500:
        return ModelErrorKind.TRANSIENT
    if status in _PERMANENT_STATUS or status < 400:
        return ModelErrorKind.PERMANENT
    return ModelErrorKind.BAD_REQUEST


def quoted(message: str, *, key: str, request: str, name: str) -> str:
    """Return the server's text as the end of a sentence; a remark if it quotes the request.

    Some servers quote what they were sent; our messages go into journal, notes and logs.
    """
    line = " ".join(message[:_READ_CHARACTERS].split())[:_QUOTED_CHARACTERS]
    line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    nameless = line.replace(name, "")  # the model's name may be quoted, however long it is
    echoes = any(
        nameless[at : at + _ECHO_CHARACTERS] in request
        for at in range(len(nameless) - _ECHO_CHARACTERS + 1)
    )
    secret = any(
        key[at : at + _KEY_CHARACTERS] in line
        for at in range(max(1, len(key) - _KEY_CHARACTERS + 1))
    )
    if echoes or secret:
        return " (its words are left out: they repeat what it was sent)"
    return f": {line}" if line else ""


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return the seconds that the server asks to wait; None if it gives no readable time.

    `retry-after` has seconds or an HTTP date (RFC 9110, 10.2.3), `retry-after-ms` milliseconds;
    `now_s` is Unix time. A past date is 0.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            wait_s = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(wait_s) and wait_s >= 0:
            return wait_s
    try:
        date = parsedate_tz(headers.get("retry-after", ""))
        return None if date is None else max(0.0, mktime_tz(date) - now_s)
    except (ValueError, OverflowError, LookupError, TypeError):
        return None


_ADVICE = {
    401: f"Check {KEY_VARIABLE}",
    403: f"Check {KEY_VARIABLE}",
    402: "Check the account's credit",
    404: "Check name and base_url in [model]; base_url goes without /v1",
}


def advice(status: int) -> str:
    """Return what you can do about an error with this status."""
    if 300 <= status < 400:
        return (
            "Redirects are not followed, because the other server would get the key: write the"
            " server's own address as base_url in [model]"
        )
    return _ADVICE.get(status, "Check the account, and name and base_url in [model]")
