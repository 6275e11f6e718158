"""Checks of `placet doctor` on what has to answer: the model, its key, and the daemon's socket."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote

from placet.chat.messages import ModelError, ModelErrorKind
from placet.cli.local_models import is_here, speaks_messages
from placet.cli.service import key_file
from placet.cli.site import Site
from placet.errors import UserError
from placet.host.sockets import address_of as socket_address
from placet.host.sockets import places
from placet.host.tables import Config
from placet.loop.ports import model_answers
from placet.models.server import is_without_key

Line = dict[str, str]
_KEY = (
    "Set the key, export ANTHROPIC_API_KEY=…, or look at name and base_url: placet config get model"
)


def finding(what: str, state: str, found: str, helps: str = "") -> Line:
    """Return a finding: of what, good, warn or bad, in words, and what helps if it is not good."""
    helps = "" if state == "good" else helps or "Fix that, then look again: placet doctor"
    return {"what": what, "state": state, "found": found, "helps": helps}


def model_line(site: Site, config: Config) -> Line:
    """Return what there is to say of the model: its server, the key, and what it speaks."""
    model = config.model
    if model.provider == "scripted":
        found = "scripted: replies are replayed from a file, no model is asked"
        helps = "For a real one, with ANTHROPIC_API_KEY: placet config set model.provider anthropic"
        return finding("model", "warn", found, helps)
    if config.team.workers:
        found = f"{model.name} ({model.provider}): the workers ask it, each with a key of its own"
        return finding("model", "good", found)
    name = f"{model.name} ({model.provider})"
    try:
        is_known = model_answers(config, site.vault, site.env)
    except UserError as error:
        return finding("model", "bad", error.what, error.hint)
    except ModelError as error:
        if error.kind is not ModelErrorKind.TRANSIENT:
            return finding("model", "bad", str(error), _KEY)
        return finding(
            "model",
            "warn",
            f"not checked: {error}",
            "Nothing that it needs is missing here. Try again once its server can be reached.",
        )
    if is_known is None:
        return finding("model", "good", f"{name}: it has no server that could be asked")
    if is_here(model.base_url) and not speaks_messages(model.base_url):
        return finding(
            "model",
            "bad",
            f"{name}: {model.base_url} does not speak the Messages API (it has no /v1/messages)",
            "Update that server, or name one that does: placet config set model.base_url URL",
        )
    takes, are = (
        ("", "the name is")
        if is_without_key(model.base_url, site.env)
        else ("takes the key and ", "key and name are")
    )
    if is_known:
        return finding("model", "good", f"{name}: its server {takes}knows the model")
    found = f"{name}: its server answers, and does not say whether {are} right"
    return finding("model", "warn", found, "The first plan shows it: placet submit TEXT")


def key_lines(site: Site) -> Iterator[Line]:
    """Give a finding if others can read the service's file with the model's key."""
    path = key_file(site.env)
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            found = f"{path}: others can read it (mode {mode:o})"
            yield finding("key", "bad", found, f"chmod 600 {quote(str(path))}")


def event_lines(site: Site) -> Iterator[Line]:
    """Give a finding on the socket of events, where a daemon runs."""
    if site.daemon is None:
        return
    where = places(site.state.folder, site.env)
    if path := next((path for path in where if _listens(path)), None):
        yield finding("events", "good", str(path))
        return
    yield finding(
        "events",
        "warn",
        "the daemon runs, and sends no events: what shows it live sees nothing",
        f"See who may write there: ls -ld {quote(str(where[0].parent))}. Then start it again.",
    )


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            with socket_address(path) as address:
                sock.connect(address)
        except OSError:
            return False
    return True
