"""Create the model client, prices, secrets, sandbox and notices from the configuration."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from placet.case.case import Case
from placet.case.life_cycle import State
from placet.case.waiting import Hold
from placet.chat.messages import Model, ModelError
from placet.host.config import Config, ModelTable
from placet.loop.side_notes import MODEL, side_of
from placet.models import check, offered, open_model
from placet.models.server import Offered
from placet.sandbox.box import NO_SANDBOX, Level
from placet.sandbox.probe import probe
from placet.secret_files import environment_secrets
from placet.secrets import MIN_LITERAL


def sandbox_level(config: Config, say: Callable[[str], None]) -> Level:
    """Return the sandbox for commands: what the probe finds, or none if the settings say so.

    Landlock protects less than people expect, so it counts only if the settings accept it.
    """
    if config.commands.sandbox == "none":
        say('Commands run outside any sandbox: the settings say sandbox = "none".')
        return Level.NONE
    wall = probe()
    found = wall.level
    if found is Level.BUBBLEWRAP and wall.no_hosts:
        say(f"Commands reach no host that a plan names: {wall.no_hosts}")
    if found is Level.LANDLOCK and config.commands.sandbox != "landlock":
        say(f"Commands do not run. {NO_SANDBOX}")
        return Level.NONE
    return found


def own_secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the daemon's own secrets: from its environment, and the service's credentials."""
    values = list(environment_secrets(env))
    if folder := env.get("CREDENTIALS_DIRECTORY"):
        for path in sorted(Path(folder).iterdir()):
            values.append(path.read_bytes().decode(errors="replace").strip())
    return tuple(value for value in dict.fromkeys(values) if len(value) >= MIN_LITERAL)


def model_opener(config: Config, vault: Path, env: Mapping[str, str]) -> Callable[[], Model]:
    """Return a function that opens the model on its first call. Any thread may call it."""
    settings = _model_settings(config, vault)
    lock = threading.Lock()
    opened: list[Model] = []

    def open_once() -> Model:
        with lock:
            if not opened:
                opened.append(open_model(settings, env))
            return opened[0]

    return open_once


def model_answers(config: Config, vault: Path, env: Mapping[str, str]) -> bool | None:
    """Ask the model's server whether it accepts the key and knows the model.

    Return False if it does not say, None if there is no server. Raises UserError for settings that
    you must correct, ModelError for a bad key or an unreachable server.
    """
    settings = _model_settings(config, vault)
    open_model(settings, env)
    return check(settings, env)


def models_offered(config: Config, env: Mapping[str, str]) -> tuple[Offered, ...]:
    """Return the models of the model's server; none if it does not say, or is not reached."""
    try:
        return offered(config.model, env)
    except ModelError:
        return ()


def _model_settings(config: Config, vault: Path) -> ModelTable:
    """Return the model's settings, with the script's path from the vault on."""
    model = config.model
    return model.model_copy(update={"script": str(vault / model.script)}) if model.script else model


@contextmanager
def teller(
    config: Config, vault: Path, say: Callable[[str], None]
) -> Iterator[Callable[[Case | Hold], None]]:
    """Give a function that sends notices of cases and holds from a thread.

    A slow webhook must not delay the loop. Raises UserError (exit code 2) for an unusable
    destination.
    """
    table = config.notify
    if not table.is_on:
        yield lambda _case: None
        return
    # Imported here because HTTP and TLS cost 4 MB, which a daemon without notices saves.
    from placet.host.notify import Event, Messenger, Notice

    events = {
        State.REVIEW: Event.PLAN_WAITS,
        State.COMPLETED: Event.MISSION_COMPLETED,
        State.FAILED: Event.MISSION_FAILED,
        State.ASKING: Event.NEEDS_YOU,
    }

    with Messenger(table, say) as messenger:

        def tell(case: Case | Hold) -> None:
            if isinstance(case, Hold):
                messenger.send(Notice(Event.NEEDS_YOU, "", "", vault.name, side_of(MODEL)))
                return
            if (event := events.get(case.state)) is None:
                return
            if case.state is State.FAILED and not case.outcome.report_path:
                event = Event.NEEDS_YOU  # planning failed: there was no mission
            report = "" if case.state is State.REVIEW else case.outcome.report_path
            asked = "" if case.asking is None else case.asking.path
            path = asked or report or case.plan.path or case.request_path
            ended = case.outcome.doubts if case.state is State.COMPLETED else ()
            notice = Notice(event, case.request_id, case.trace_id, vault.name, path, case.state)
            messenger.send(replace(notice, is_in_doubt=bool(ended)))

        yield tell


def systemd_notifier(env: Mapping[str, str], say: Callable[[str], None]) -> Callable[[str], None]:
    """Return sd_notify(3) if a service manager listens, else a no-op."""
    address = env.get("NOTIFY_SOCKET", "")
    if not address:
        return lambda _message: None
    target = "\0" + address[1:] if address.startswith("@") else address

    def notify(message: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.sendto(message.encode(), target)
        except OSError as error:
            say(f"placet cannot tell the service manager its state: {error}")

    return notify
