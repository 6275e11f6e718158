"""Model servers on this machine: found on their usual ports, and asked what they speak."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

PORTS: Mapping[str, int] = {"Ollama": 11434, "LM Studio": 1234, "llama.cpp": 8080, "vLLM": 8000}
"""The ports at which these servers listen unless they are told otherwise."""

PATIENCE_S = 0.5
MAX_ANSWER_BYTES = 1 << 20
_NO_SUCH_PATH = frozenset({404, 405, 501})


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server of models on loopback. `models` are their names, in the server's order."""

    name: str
    base_url: str
    models: tuple[str, ...]


def local_servers() -> tuple[LocalServer, ...]:
    """Return the servers that list models at their usual ports; waits `PATIENCE_S` at most."""
    with ThreadPoolExecutor(len(PORTS)) as pool:
        found = pool.map(lambda one: server_at(one[0], f"http://127.0.0.1:{one[1]}"), PORTS.items())
        return tuple(server for server in found if server is not None)


def server_at(name: str, base_url: str) -> LocalServer | None:
    """Return the server at an address on this machine; None where none lists models there."""
    status, body = _asked("GET", base_url, "/v1/models")
    if status != 200:
        return None
    try:
        listed = json.loads(body)["data"]
        names = [str(model["id"]) for model in listed]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    fit = tuple(name for name in names if name.isprintable() and 0 < len(name.strip()) <= 200)
    return LocalServer(name, base_url, fit) if fit else None


def speaks_messages(base_url: str) -> bool:
    """Return whether a server on this machine has the path of the Messages API.

    An empty request costs no token: who speaks it refuses it as one that says nothing. True where
    the server cannot be reached, which says nothing against it.
    """
    return _asked("POST", base_url, "/v1/messages", b"{}")[0] not in _NO_SUCH_PATH


def is_here(base_url: str) -> bool:
    """Return whether an address is plain HTTP on this machine."""
    try:
        parts = urlsplit(base_url)
        host = parts.hostname
    except ValueError:
        return False
    return parts.scheme == "http" and host in ("127.0.0.1", "::1", "localhost")


def _asked(method: str, base_url: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Return the status and the body of an answer; status 0 where there is none in time."""
    try:
        parts = urlsplit(base_url)
        connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=PATIENCE_S)
    except ValueError:
        return 0, b""
    end = time.monotonic() + PATIENCE_S
    try:
        connection.request(
            method,
            parts.path.rstrip("/") + path,
            body,
            {"content-type": "application/json", "anthropic-version": "2023-06-01"},
        )
        answer = connection.getresponse()
        read = bytearray()
        while len(read) < MAX_ANSWER_BYTES and time.monotonic() < end:
            if not (piece := answer.read1(65_536)):
                return answer.status, bytes(read)
            read += piece
    except (OSError, HTTPException, ValueError):
        pass
    finally:
        connection.close()
    return 0, b""
