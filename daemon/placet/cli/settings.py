"""Read and change settings: `placet config`, `pause` and `resume`, and a test notice."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from placet.cli.options import json_option, site_option
from placet.cli.terminal import agreed, out, say
from placet.client.model_setup import DEMO_NAME, fitted, fitting_name, unkept_limit
from placet.client.settings import (
    Unaccepted,
    accept_settings,
    flat,
    must_be_allowed,
    must_be_known,
    send_test_notice,
    setting,
    settings,
    to_accept,
    value_of,
)
from placet.client.site import Site
from placet.client.texts import json_text
from placet.errors import UserError
from placet.host.accepted import change
from placet.host.config import Key, is_for_next_start, load, write_setting
from placet.models.server import KEY_VARIABLE
from placet.note.paths import show as visible


@click.group("config", invoke_without_command=True)
@site_option
@json_option
@click.pass_context
def config_command(context: click.Context, site: Site, as_json: bool) -> None:
    """Show the settings that hold, and those that were not accepted on this machine."""
    if context.invoked_subcommand is not None:
        return
    found = settings(site)
    lines = [f"{'.'.join(key)} = {visible(_as_toml(value))}" for key, value in flat(found.settings)]
    if found.unaccepted:
        lines += ["", "Not accepted on this machine (placet config accept):"]
        lines += _differences(found.unaccepted)
    out("\n".join(lines), found, as_json=as_json)


@config_command.command("get")
@click.argument("key", metavar="KEY")
@site_option
def config_get_command(site: Site, key: str) -> None:
    """Print the setting KEY as it holds, as JSON: model.name, or a whole table: portals."""
    click.echo(json_text(setting(site, key)))


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
    name = fitting_name(load(site.vault).model, given) if path == ("model", "provider") else ""
    following = fitted(site, path, given)
    try:
        named: dict[Key, Any] = {("model", "name"): name} if name else {}
        change(site.vault, site.env, {**named, **following.settings, path: given})
    except UserError:
        must_be_allowed(path, given)
        raise
    if name:
        say(f"model.name is now {name}: {DEMO_NAME} was the scripted model's.")
    click.echo(json_text(given))
    if name and not site.env.get(KEY_VARIABLE):
        say(f"It needs a key: export {KEY_VARIABLE}=…, then start the daemon again.")
    for one, what in following.settings.items():
        if one[-1] in ("name", "context_tokens", "max_tokens", "tools") and one != path:
            say(f"{'.'.join(one)} is now {visible(str(what))}.")
    for remark in following.remarks:
        say(remark)
    if path[0] in ("model", "limits") and (unkept := unkept_limit(load(site.vault))) is not None:
        say("\n  ".join(unkept))
    if is_for_next_start(path) and site.daemon is not None:
        say("the daemon uses this from its next start")


@config_command.command("accept")
@click.option("--yes", is_flag=True, help="Do not ask.")
@site_option
def config_accept_command(site: Site, yes: bool) -> None:
    """Let settings of System/placet.toml that are code or reach out hold on this machine.

    Shows them, and asks.
    """
    shown = to_accept(site)
    if not shown:
        say("All settings are accepted.")
        return
    click.echo("\n".join(_differences(shown)))
    if not (yes or agreed("Accept them on this machine?")):
        say("nothing was accepted")
        sys.exit(1)
    accept_settings(site, shown)
    say("accepted; a running daemon uses them, [notify] and [commands] from its next start")


@click.command("pause")
@site_option
def pause_command(site: Site) -> None:
    """Start no new work. Running missions continue to their end."""
    write_setting(site.vault, ("daemon", "paused"), value=True)
    say("Paused. To resume: placet resume")


@click.command("resume")
@site_option
def resume_command(site: Site) -> None:
    """Start work again after `placet pause`."""
    write_setting(site.vault, ("daemon", "paused"), value=False)
    say("resumed")


@click.group("notify")
def notify_command() -> None:
    """Notices: that a plan waits, a mission ended, something needs you."""


@notify_command.command("test")
@site_option
def notify_test_command(site: Site) -> None:
    """Send a notice every way that is on in System/placet.toml."""
    send_test_notice(site)
    say("sent")


def _differences(found: Sequence[Unaccepted]) -> list[str]:
    """Return a line for each setting that was not accepted: as it holds, and as it is written."""
    return [
        f"{visible(one.key)}: {visible(_as_toml(one.holds))} -> {visible(_as_toml(one.written))}"
        for one in found
    ]


def _as_toml(value: Any) -> str:
    return "(default)" if value is None else json_text(value)
