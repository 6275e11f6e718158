"""Read the hosts that a plan's commands may reach, and tell which addresses are public.

A name means one port, 443 unless it says another. `*.` covers the names below, never the name
itself. The proxy of `placet.sandbox` asks this module too, so it needs the standard library alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address

HTTPS = 443
NEEDS_LEVEL_3 = (
    "Commands may reach only the hosts that the plan names, which needs bubblewrap (level 3 of the "
    "sandbox). Install bubblewrap, or change `network`."
)
"""What a plan with hosts needs on a machine whose sandbox is weaker, for people."""

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
# resolvers take a last label like these for a part of an address
_NUMBER = re.compile(r"(?:.*\.)?(?:\d+|0x[0-9a-f]*)")
_LOCAL = re.compile(r"(?:.*\.)?localhost")

# What `ipaddress` calls global, in one of Python 3.11 to 3.14, and leads somewhere else: protocol
# assignments and relays for 6to4; in IPv6 6to4 and documentation (RFC 9637).
_SPECIAL: tuple[IPv4Network | IPv6Network, ...] = (
    *map(IPv4Network, ("192.0.0.0/24", "192.88.99.0/24")),
    *map(IPv6Network, ("2002::/16", "3fff::/20")),
)
_UNICAST_6 = IPv6Network("2000::/3")  # outside of it are v4-mapped, NAT64, local and unassigned


@dataclass(frozen=True, slots=True)
class Host:
    """A host that commands may reach; `below` means every name below it instead."""

    name: str
    port: int = HTTPS
    below: bool = False

    def __str__(self) -> str:
        port = "" if self.port == HTTPS else f":{self.port}"
        return f"{'*.' if self.below else ''}{self.name}{port}"

    def covers(self, name: str, port: int) -> bool:
        """Return whether a connection to this name and port is allowed."""
        if port != self.port:
            return False
        if not self.below:
            return name == self.name
        return name.endswith(f".{self.name}") and _NAME.fullmatch(name) is not None


def host_from(text: str) -> Host:
    """Return the host that an entry of `network` names; ValueError says what is wrong with it."""
    shown = f"{text[:80]!r} "
    if not text.isascii():
        raise ValueError(f"{shown}is not ASCII; write it in punycode, which begins with xn--")
    name, colon, port = text.lower().partition(":")
    below = name.startswith("*.")
    name = name.removeprefix("*.").removesuffix(".")
    if "/" in text or not _NAME.fullmatch(name):
        raise ValueError(
            f"{shown}is not the name of a host; write only the name: packages.example, or "
            "*.cdn.example for all names below"
        )
    if _NUMBER.fullmatch(name):
        raise ValueError(f"{shown}is an address; write the host's name")
    if _LOCAL.fullmatch(name):
        raise ValueError(f"{shown}is this machine; delete it, commands reach localhost without it")
    if below and "." not in name:
        raise ValueError(f"{shown}covers too much; name at least two parts: *.cdn.example")
    if colon and not (re.fullmatch(r"\d{1,5}", port) and 0 < int(port) < 65536):
        raise ValueError(f"{shown}has no port from 1 to 65535 after the colon")
    return Host(name, int(port) if colon else HTTPS, below)


def is_public(address: str) -> bool:
    """Return whether an IP address lies in the internet, and not in a network of its owner's.

    Raises ValueError for a text that is not an address.
    """
    found = ip_address(address.partition("%")[0])
    is_special = any(found in network for network in _SPECIAL)  # False for the other version
    is_unicast = not found.is_multicast and (found.version == 4 or found in _UNICAST_6)
    return found.is_global and is_unicast and not is_special


# Below these names anybody can have one, or a folder: hosting, storage, tunnels, pastes.
_RENTED = (
    "amazonaws.com", "appspot.com", "azureedge.net", "azurewebsites.net", "backblazeb2.com",
    "bitbucket.io", "cloudapp.net", "cloudfront.net", "codeberg.page", "digitaloceanspaces.com",
    "dropboxusercontent.com", "firebaseapp.com", "fly.dev", "gist.github.com", "github.com",
    "github.io", "gitlab.com", "gitlab.io", "glitch.me", "googleusercontent.com",
    "herokuapp.com", "hf.space", "huggingface.co", "netlify.app", "ngrok.app",
    "ngrok-free.app", "ngrok.io", "onrender.com", "pages.dev", "pastebin.com", "r2.dev",
    "raw.githubusercontent.com", "run.app", "s3.amazonaws.com", "storage.googleapis.com",
    "surge.sh", "trycloudflare.com", "up.railway.app", "vercel.app", "web.app", "webhook.site",
    "windows.net", "workers.dev",
)  # fmt: skip


def is_rented(host: Host) -> bool:
    """Return whether this covers a place where anybody can rent a name or a folder."""
    return any(
        host.name == place
        or (host.below and (host.name.endswith(f".{place}") or place.endswith(f".{host.name}")))
        for place in _RENTED
    )
