"""Read and change settings: `placet config`, `pause` and `resume`, and a test notice."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from difflib import get_close_matches
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from placet.cli.init import DEMO_NAME, KEY, fitting_name, is_here
from placet.cli.options import json_option, site_option
from placet.cli.terminal import agreed, out, say
from placet.client.model_setup import Fit, fit, unkept_limit
from placet.client.site import Site
from placet.client.texts import json_text
from placet.errors import UserError
from placet.host.accepted import InForce, accept, change, holding
from placet.host.config import (
    Config,
    Key,
    is_for_next_start,
    load,
    refused,
    table_at,
    write_setting,
)
from placet.note.paths import CONFIG_PATH
from placet.note.paths import show as visible


def names() -> list[str]:
    """Return every setting by its key, portals left out."""
    return [
        f"{table}.{name}"
        for table in Config.model_fields
        if (fields := table_at((table,))) is not None
        for name in fields.model_fields
    ]


def must_be_known(key: Key) -> None:
    """Raise UserError (exit code 2), with the nearest names, for a key that is not a setting."""
    if len(key) >= 2 and _field(key) is not None:
        return
    raise unknown(".".join(key), names())


def unknown(key: str, known: Sequence[str]) -> UserError:
    """Return the error for a key that is not a setting, with the nearest of these names."""
    # the table is missing or wrong
    last = key.rpartition(".")[2]
    near = [name for name in known if name.rpartition(".")[2] == last][:3]
    near = near or get_close_matches(key, known, n=3, cutoff=0.7)
    return UserError(
        f"There is no setting {visible(key)}.",
        f"Did you mean {' or '.join(map(visible, near))}?"
        if near
        else "See them all: placet config",
        exit_code=2,
    )


def value_of(key: Key, text: str) -> Any:
    """Return the value that a text on the command line means: TOML, or else the text itself."""
    given: Any = text
    with suppress(tomllib.TOMLDecodeError):
        given = tomllib.loads(f"value = {text}")["value"]
    field = _field(key)
    is_text = field is not None and field.annotation is str
    return text if is_text and not isinstance(given, str) else given


def must_be_allowed(key: Key, value: Any) -> None:
    """Raise UserError (exit code 2) that says what a setting may be, for a value that it may not.

    Looks at this setting alone.
    """
    if why := refused(key, value):
        # what pydantic says of a type is said in words of ours below
        because = "" if why.startswith("input should") else f": {why}"
        raise UserError(
            f"{visible('.'.join(key))} cannot be {visible(str(value))}{because}.",
            f"It may be {allowed(key)}. Nothing was written.",
            exit_code=2,
        )


def allowed(key: Key) -> str:
    """Return what a setting may be, in words."""
    field = _field(key)
    assert field is not None, "it is a setting"
    return _words(field.annotation, field)


def _field(key: Key) -> FieldInfo | None:
    table = table_at(key[:-1])
    if table is None:
        # users choose these names
        return Config.model_fields["portals"] if key[:-1] == ("portals",) else None
    return table.model_fields.get(key[-1])


def _words(kind: Any, field: FieldInfo) -> str:
    if kind is bool:
        return "true or false"
    if get_origin(kind) is Literal:
        return _either([f'"{value}"' for value in get_args(kind)])
    if get_origin(kind) in (Union, UnionType):
        return ", or ".join(_words(one, field) for one in get_args(kind))
    if kind in (int, float, Decimal):
        return f"a {'whole ' if kind is int else ''}number{_range(field.metadata)}"
    if kind is str:
        return "a text"
    if get_args(kind)[:1] == (str,) and get_origin(kind) is tuple:
        return 'a list of texts, as in ["a", "b"]'
    return f"a list of tables or a table, as {CONFIG_PATH} of a new vault shows"


def _range(metadata: Sequence[Any]) -> str:
    bounds = {
        name: getattr(one, name)
        for one in metadata
        for name in ("ge", "gt", "le", "lt")
        if getattr(one, name, None) is not None
    }
    low = f" from {bounds['ge']}" if "ge" in bounds else ""
    low = low or (f" above {bounds['gt']}" if "gt" in bounds else "")
    return low + (f" to {bounds['le']}" if "le" in bounds else "")


def _either(values: Sequence[str]) -> str:
    return " or ".join([", ".join(values[:-1]), values[-1]] if len(values) > 1 else values)


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
    name = fitting_name(load(site.vault).model, given) if path == ("model", "provider") else ""
    fitted = _fitted(site, path, given)
    try:
        named: dict[Key, Any] = {("model", "name"): name} if name else {}
        change(site.vault, site.env, {**named, **fitted.settings, path: given})
    except UserError:
        must_be_allowed(path, given)
        raise
    if name:
        say(f"model.name is now {name}: {DEMO_NAME} was the scripted model's.")
    click.echo(json_text(given))
    if name and not site.env.get(KEY):
        say(f"It needs a key: export {KEY}=…, then start the daemon again.")
    for one, what in fitted.settings.items():
        if one[-1] in ("name", "context_tokens", "max_tokens", "tools") and one != path:
            say(f"{'.'.join(one)} is now {visible(str(what))}.")
    for remark in fitted.remarks:
        say(remark)
    if path[0] in ("model", "limits") and (unkept := unkept_limit(load(site.vault))) is not None:
        say("\n  ".join(unkept))
    if is_for_next_start(path) and site.daemon is not None:
        say("the daemon uses this from its next start")


def _fitted(site: Site, path: Key, given: Any) -> Fit:
    """Return the settings that follow from a new server on this machine, or a new name there."""
    if path not in (("model", "base_url"), ("model", "name")) or refused(path, given):
        return Fit({})
    model = load(site.vault).model
    is_address = path[-1] == "base_url"
    base_url, name = (given.rstrip("/"), "") if is_address else (model.base_url, given)
    if model.provider != "anthropic" or not is_here(base_url):
        return Fit({})
    return fit(
        base_url,
        name,
        site.env,
        lambda names, _: model.name if model.name in names else "",
        model.price,
    )


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
        say("All settings are accepted.")
        return
    click.echo("\n".join(_differences(shown)))
    if not (yes or agreed("Accept them on this machine?")):
        say("nothing was accepted")
        sys.exit(1)
    config = load(site.vault)
    held = holding(config, site.state)
    if _unaccepted(held) != shown:
        raise UserError(f"{CONFIG_PATH} was changed meanwhile.", "Look again: placet config accept")
    accept(site.state, config, held.refused)
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
