"""Find the model's server and its key in settings and environment."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path

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
    if not key and not _is_loopback(host):
        raise ModelError(
            ModelErrorKind.PERMANENT,
            f"there is no key for {host}. Export {KEY_VARIABLE}=…, or in the systemd unit set"
            f" LoadCredential={CREDENTIAL}:/path/to/key. A server on this machine needs none: set"
            ' base_url in [model]. Without any model, provider = "scripted" replays a file.',
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


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
