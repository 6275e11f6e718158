"""Settings: `placet config`, `placet pause` and `resume`, and a notice to try them out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import click

from placet.cli.choices import DEMO_NAME, KEY, fitting_name
from placet.cli.origins import must_be_allowed, must_be_known, unknown, value_of
from placet.cli.site import Site, json_option, site_option
from placet.cli.terminal import json_text, out, say
from placet.errors import UserError
from placet.host.accepted import InForce, accept, change, holding
from placet.host.config import load, with_setting, write_setting
from placet.host.tables import is_for_next_start
from placet.note.paths import CONFIG_PATH
from placet.note.paths import show as visible


@click.group("config", invoke_without_command=True)
@site_option
@json_option
@click.pass_context
def config_command(context: click.Context, site: Site, as_json: bool) -> None:
    """Show the settings that hold, and those that were not accepted on this machine."""
    if context.invoked_subcommand is not None:
        return
    held = site.in_force()
    found: dict[str, Any] = {
        "settings": _settings(held),
        "unaccepted": _unaccepted(held),
    }
    lines = [
        f"{'.'.join(key)} = {visible(_as_toml(value))}" for key, value in _flat(found["settings"])
    ]
    if found["unaccepted"]:
        lines += ["", "Not accepted on this machine (placet config accept):"]
        lines += _differences(found["unaccepted"])
    out("\n".join(lines), found, as_json=as_json)


@config_command.command("get")
@click.argument("key", metavar="KEY")
@site_option
def config_get_command(site: Site, key: str) -> None:
    """Print the setting KEY as it holds, as JSON: model.name, or a whole table: portals."""
    found: Any = _settings(site.in_force())
    names = [*found, *(".".join(path) for path, _ in _flat(found))]
    for part in key.split("."):
        if not isinstance(found, dict) or part not in found:
            raise unknown(key, names)
        found = found[part]
    click.echo(json_text(found))


# a value may begin with `-`
@config_command.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key", metavar="KEY")
@click.argument("value", metavar="VALUE")
@site_option
def config_set_command(site: Site, key: str, value: str) -> None:
    """Write the setting KEY into System/placet.toml; that accepts it on this machine.

    VALUE is TOML, or else a text.
    """
    path = tuple(key.split("."))
    must_be_known(path)
    given = value_of(path, value)
    try:
        text = with_setting(site.vault, path, given)
    except UserError:
        must_be_allowed(path, given)
        raise
    name = fitting_name(load(site.vault).model, given) if path == ("model", "provider") else ""
    if name:
        of_name = with_setting(site.vault, ("model", "name"), name)
        change(site.vault, site.env, of_name, [("model", "name")])
        text = with_setting(site.vault, path, given)
        say(f"model.name is now {name}: {DEMO_NAME} was the scripted model's.")
    change(site.vault, site.env, text, [path])
    click.echo(json_text(given))
    if name and not site.env.get(KEY):
        say(f"It needs a key: export {KEY}=…, then start the daemon again.")
    if is_for_next_start(path) and site.daemon is not None:
        say("the daemon takes that up at its next start")


@config_command.command("accept")
@click.option("--yes", is_flag=True, help="Do not ask.")
@site_option
def config_accept_command(site: Site, yes: bool) -> None:
    """Let settings of System/placet.toml that are code or reach out hold on this machine.

    Shows them, and asks.
    """
    held = site.in_force()
    if not held.settled:
        raise UserError(
            "The daemon has not run on this vault yet: its first start accepts what is there.",
            "placet run",
        )
    shown = _unaccepted(held)
    if not shown:
        say("every setting holds as it is written")
        return
    click.echo("\n".join(_differences(shown)))
    if not (yes or click.confirm("Accept them on this machine?", err=True)):
        say("nothing was accepted")
        sys.exit(1)
    config = load(site.vault)
    held = holding(config, site.state)
    if _unaccepted(held) != shown:
        raise UserError(f"{CONFIG_PATH} was changed meanwhile.", "Look again: placet config accept")
    accept(site.state, config, held.refused)
    say("accepted; a daemon that runs takes them up, [notify] and [commands] at its next start")


@click.command("pause")
@site_option
def pause_command(site: Site) -> None:
    """Take up no new work; missions under way come to their end. Nothing is forgotten."""
    write_setting(site.vault, ("daemon", "paused"), value=True)
    say("paused; go on with: placet resume")


@click.command("resume")
@site_option
def resume_command(site: Site) -> None:
    """Take work up again after `placet pause`."""
    write_setting(site.vault, ("daemon", "paused"), value=False)
    say("resumed")


@click.group("notify")
def notify_command() -> None:
    """Notices: that a plan waits, a mission ended, something needs you."""


@notify_command.command("test")
@site_option
def notify_test_command(site: Site) -> None:
    """Send a notice every way that is on in System/placet.toml."""
    from placet.host.notify import Event, Notice, send  # loads HTTP and TLS

    held = site.in_force()
    if any(key[0] == "notify" for key in held.refused):
        raise UserError(held.problem)
    ways = held.config.notify
    if not ways.is_on:
        raise UserError(
            "No way of notifying is on.",
            "Set desktop, command or webhook under [notify] in System/placet.toml.",
            exit_code=2,
        )
    problems = send(Notice(Event.TEST, "", "", site.vault.name, "Home.md"), ways)
    if problems:
        raise UserError(
            "\n  ".join(problems), "Fix [notify] in System/placet.toml, then try again."
        )
    say("sent")


def _settings(held: InForce) -> dict[str, Any]:
    """Return the settings that hold as JSON has them, amounts of money as numbers."""
    plain = json.dumps(held.config.model_dump(mode="python"), default=_plain)
    return dict(json.loads(plain))


def _plain(value: object) -> float | str:
    return float(value) if isinstance(value, Decimal) else str(value)


def _unaccepted(held: InForce) -> list[dict[str, Any]]:
    return [
        {"key": name, "written": held.written.get(key), "holds": held.accepted.get(key)}
        for key, name in zip(held.refused, held.names, strict=True)
    ]


def _differences(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each setting that was not accepted: as it holds, and as it is written."""
    return [
        f"{visible(line['key'])}: {visible(_as_toml(line['holds']))} -> "
        f"{visible(_as_toml(line['written']))}"
        for line in found
    ]


def _as_toml(value: Any) -> str:
    return "(default)" if value is None else json_text(value)


def _flat(
    tables: Mapping[str, Any], above: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in tables.items():
        if isinstance(value, Mapping) and value:
            found += _flat(value, (*above, name))
        else:
            found.append(((*above, name), value))
    return found
