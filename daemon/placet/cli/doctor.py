"""Check everything that placet needs, and say what helps: `placet doctor`."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from shlex import quote

import click

from placet.chat.budget import is_free
from placet.chat.messages import ModelError, ModelErrorKind
from placet.chat.tiny_call import TINY, TINY_BY_TEXT, problems_of
from placet.cli.init import is_here, speaks_messages
from placet.cli.options import json_option, site_option
from placet.cli.terminal import colour, out
from placet.client.doctor import (
    daemon_lines,
    folder_lines,
    journal_lines,
    lock_lines,
    look_at_git,
    portal_lines,
    sandbox_line,
    state_lines,
    user_lines,
)
from placet.client.findings import Line, finding
from placet.client.model_setup import unkept_limit
from placet.client.service import key_file
from placet.client.site import Site
from placet.client.texts import local_times
from placet.errors import UserError
from placet.host.config import Config
from placet.host.plugins import CHECKS, loaded
from placet.loop.build import model_answers, model_opener, models_offered
from placet.models.server import Offered, is_without_key
from placet.note.paths import show as visible

_KEY = (
    "Set the key, export ANTHROPIC_API_KEY=…, or look at name and base_url: placet config get model"
)


def model_line(site: Site, config: Config) -> Line:
    """Return what there is to say of the model: its server, the key, and what it speaks."""
    model = config.model
    if model.provider == "scripted":
        found = "scripted: replies are replayed from a file, no model is asked"
        helps = "For a real one, with ANTHROPIC_API_KEY: placet config set model.provider anthropic"
        return finding("model", "warn", found, helps)
    if config.team.workers:
        found = f"{model.name} ({model.provider}): the workers ask it, each with its own key"
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
    if listed := models_offered(config, site.env):
        return _among(listed, config, name)
    found = f"{name}: its server answers, and does not say whether {are} right"
    return finding("model", "warn", found, "The first plan shows it: placet submit TEXT")


def _among(listed: Sequence[Offered], config: Config, name: str) -> Line:
    """Return what a server's list of models says of the name and the context of ours."""
    ours = [one for one in listed if one.name == config.model.name] or [*listed][: len(listed) < 2]
    size, ask = config.model.context_tokens, "placet config set model"
    if not ours or (ours[0].name != config.model.name and ours[0].context_tokens is None):
        names = ", ".join(one.name for one in listed)
        found = f"{name}: its server lists other models: {names}"
        return finding("model", "warn", found, f"{ask}.name {quote(listed[0].name)}")
    if (real := ours[0].context_tokens) is not None and real < size:
        found = f"{name}: its server's context has {real:,} tokens, context_tokens says {size:,}"
        return finding("model", "bad", found, f"{ask}.context_tokens {real}")
    context = "" if real is None else f", with a context of {real:,} tokens"
    return finding("model", "good", f"{name}: its server has the model{context}")


def tiny_lines(site: Site, config: Config) -> Iterator[Line]:
    """Give what one tiny call shows: whether the model is shown tools, and calls them."""
    by_text = config.model.tools == "text"
    ask = TINY_BY_TEXT if by_text else TINY
    try:
        reply = model_opener(config, site.vault, site.env)().reply(ask, lambda: False)
    except UserError as error:
        yield finding("tiny call", "bad", error.what, error.hint)
    except ModelError as error:
        yield finding("tiny call", "bad", str(error), _KEY)
    else:
        found = problems_of(reply, by_text=by_text)
        for problem, helps in found:
            yield finding("tiny call", "bad", f"{config.model.name}: {problem}", helps)
        if not found:
            said = f"{config.model.name} called the tool; {reply.usage.prompt_tokens} tokens in"
            yield finding("tiny call", "good", said)


def limit_lines(config: Config) -> Iterator[Line]:
    """Give a finding if the limit of dollars a day cannot hold."""
    if (unkept := unkept_limit(config)) is not None:
        yield finding("limit", "bad", *unkept)


def key_lines(site: Site) -> Iterator[Line]:
    """Give a finding if others can read the service's file with the model's key."""
    path = key_file(site.env)
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            found = f"{path}: others can read it (mode {mode:o})"
            yield finding("key", "bad", found, f"chmod 600 {quote(str(path))}")


@click.command("doctor")
@click.option("--model", "tries", is_flag=True, help="Also make one tiny call of the model.")
@site_option
@json_option
def doctor_command(site: Site, tries: bool, as_json: bool) -> None:
    """Look at everything that placet needs, and say what is missing and what helps."""
    found = doctor(site, tries=tries)
    out(doctor_text(found), found, as_json=as_json)
    if any(line["state"] == "bad" for line in found):
        sys.exit(1)


def doctor(site: Site, *, tries: bool = False) -> list[Line]:
    """Return a line for each need: `what`, `state` (good, warn, bad), `found`, and what `helps`.

    `tries`: also make one tiny call of the model.
    """
    try:
        held = site.in_force()
    except UserError as error:
        config = Config()  # so that the rest can be looked at
        config_findings = [finding("configuration", "bad", error.what, error.hint)]
    else:
        config = held.config
        config_findings = [finding("configuration", "good", "every setting can be used")]
        if held.refused:
            config_findings.append(
                finding("settings", "warn", held.problem, "placet config accept")
            )
    return [
        finding("vault", "good", str(site.vault)),
        *config_findings,
        *folder_lines(site),
        *state_lines(site.state.folder),
        look_at_git(),
        sandbox_line(config),
        *user_lines(),
        *([model_line(site, config)] if config_findings[0]["state"] == "good" else []),
        *(tiny_lines(site, config) if tries and not is_free(config.model.provider) else ()),
        *limit_lines(config),
        *key_lines(site),
        *portal_lines(site, config),
        *lock_lines(site, config),
        *daemon_lines(site, config),
        *(line for one in entry_points(group=CHECKS) for line in loaded(one)(site, config)),
        *journal_lines(site.state),
    ]


def doctor_text(found: Sequence[Mapping[str, str]]) -> str:
    """Return `placet doctor` for people."""
    marks = {
        "good": colour("ok  ", "green"),
        "warn": colour("note", "yellow"),
        "bad": colour("BAD ", "red", bold=True),
    }
    lines = []
    for line in found:
        text = visible(" ".join(line["found"].split()))
        lines += local_times([f"{marks[line['state']]}  {line['what']:<14} {text}"])
        if line["helps"]:
            lines.append(f"{'':<21}{visible(line['helps'])}")
    return "\n".join(lines)
