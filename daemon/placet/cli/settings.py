"""Settings: `placet config`, `placet pause` and `resume`, and a notice to try them out."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from placet.cli.site import Site, json_option, site_option
from placet.cli.terminal import out, say
from placet.core.errors import UserError
from placet.core.text.names import CONFIG_PATH
from placet.core.text.names import show as visible
from placet.host.accepted import InForce, accept, change, holding
from placet.host.config import load, with_setting, write_setting


@click.group("config", invoke_without_command=True)
@site_option
@json_option
@click.pass_context
def config_command(context: click.Context, site: Site, as_json: bool) -> None:
    """Show the settings that hold, and those of System/placet.toml that were not accepted on this machine."""
    if context.invoked_subcommand is not None:
        return

    found = settings(site)
    out(settings_text(found), found, as_json=as_json)


@config_command.command("get")
@click.argument("key", metavar="KEY")
@site_option
def config_get_command(site: Site, key: str) -> None:
    """Print the setting KEY as it holds, as JSON: model.name, or a whole table: portals."""
    click.echo(json.dumps(setting(site, key), ensure_ascii=False))


# a value may begin with `-`
@config_command.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key", metavar="KEY")
@click.argument("value", metavar="VALUE")
@site_option
def config_set_command(site: Site, key: str, value: str) -> None:
    """Write the setting KEY into System/placet.toml; that accepts it on this machine.

    VALUE is TOML, or else a text.
    """
    click.echo(json.dumps(change_setting(site, key, value), ensure_ascii=False, default=str))


@config_command.command("accept")
@click.option("--yes", is_flag=True, help="Do not ask.")
@site_option
def config_accept_command(site: Site, yes: bool) -> None:
    """Let settings of System/placet.toml that are code or reach out hold on this machine.

    Shows them, and asks.
    """
    found = unaccepted(site)
    if not found:
        say("every setting holds as it is written")
        return
    click.echo(unaccepted_text(found))
    if not (yes or click.confirm("Accept them on this machine?", err=True)):
        say("nothing was accepted")
        sys.exit(1)
    accept_settings(site, found)
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
    problems = notify_test(site)
    if problems:
        raise UserError(
            "\n  ".join(problems), "Mend [notify] in System/placet.toml, then try again."
        )
    say("sent")


def notify_test(site: Site) -> tuple[str, ...]:
    """Send a notice every way that is on, as accepted on this machine; return what went wrong."""
    from placet.host.notify import Event, Notice, NotifySettings, send

    held = site.in_force()
    if any(key[0] == "notify" for key in held.refused):
        raise UserError(held.problem)
    table = held.config.notify
    settings = NotifySettings(table.desktop, table.command, table.webhook)
    if not settings.is_on:
        raise UserError(
            "No way of notifying is on.",
            "Set desktop, command or webhook under [notify] in System/placet.toml.",
            exit_code=2,
        )
    return send(Notice(Event.TEST, "", "", site.vault.name, "Home.md"), settings)


def settings(site: Site) -> dict[str, Any]:
    """Return the settings that hold, and those of the file that do not because nobody accepted them on this machine."""
    held = site.in_force()
    return {"settings": held.config.model_dump(mode="json"), "unaccepted": _unaccepted(held)}


def setting(site: Site, name: str) -> Any:
    """Return one setting that holds, or a table of them.

    Raises UserError (exit code 2) where there is none of that name.
    """
    found: Any = site.in_force().config.model_dump(mode="json")
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            raise UserError(
                f"There is no setting {visible(name)}.", "See them all: placet config", exit_code=2
            )
        found = found[part]
    return found


def change_setting(site: Site, name: str, given: str) -> Any:
    """Write one setting, which accepts it on this machine; return its value.

    `given` is TOML, or else a text.

    Raises UserError (exit code 2) for a name or a value that cannot be used; nothing is changed
    then.
    """
    key = tuple(name.split("."))
    if len(key) < 2:
        raise UserError(
            f"{visible(name)} is no setting.",
            "Name one with its table, as in daemon.paused.",
            exit_code=2,
        )
    try:
        value = tomllib.loads(f"value = {given}")["value"]
    except tomllib.TOMLDecodeError:
        value = given
    change(site.vault, site.env, with_setting(site.vault, key, value), [key])
    return value


def unaccepted(site: Site) -> list[dict[str, Any]]:
    """Return the settings that do not hold because nobody accepted them on this machine, as they are written and as they hold.

    Raises UserError where the daemon did not run on this vault yet: its first start accepts what is there.
    """
    held = site.in_force()
    if not held.settled:
        raise UserError(
            "The daemon has not run on this vault yet: its first start accepts what is there.",
            "placet run",
        )
    return _unaccepted(held)


def _unaccepted(held: InForce) -> list[dict[str, Any]]:
    return [
        {"key": name, "written": held.written.get(key), "holds": held.accepted.get(key)}
        for key, name in zip(held.refused, held.names, strict=True)
    ]


def accept_settings(site: Site, shown: Sequence[Mapping[str, Any]]) -> None:
    """Accept the settings that a person was shown.

    Raises UserError where they say something else by now.
    """
    config = load(site.vault)
    held = holding(config, site.state)
    if _unaccepted(held) != list(shown):
        raise UserError(f"{CONFIG_PATH} was changed meanwhile.", "Look again: placet config accept")
    accept(site.state, config, held.refused)


def settings_text(found: Mapping[str, Any]) -> str:
    """Return `placet config` for people: every setting that holds, as TOML has it, and what does not hold."""
    lines = [
        f"{'.'.join(key)} = {visible(_setting(value))}" for key, value in _flat(found["settings"])
    ]
    if found["unaccepted"]:
        lines += [
            "",
            "Not accepted on this machine (placet config accept):",
            unaccepted_text(found["unaccepted"]),
        ]
    return "\n".join(lines)


def unaccepted_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the settings that a person may accept: each as it holds now, and as it is written."""
    return "\n".join(
        f"{visible(line['key'])}: {visible(_setting(line['holds']))} -> {visible(_setting(line['written']))}"
        for line in found
    )


def _setting(value: Any) -> str:
    return "(default)" if value is None else json.dumps(value, ensure_ascii=False)


def _flat(
    tables: Mapping[str, Any], above: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in tables.items():
        found += (
            _flat(value, (*above, name))
            if isinstance(value, Mapping) and value
            else [((*above, name), value)]
        )
    return found
