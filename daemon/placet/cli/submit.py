"""`placet submit`: drop a request into the vault."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from placet.agent.prompts import agents
from placet.cli.gestures import can_be_edited, say_if_down
from placet.cli.site import Site, json_option, site_option
from placet.cli.terminal import out
from placet.core.errors import UserError
from placet.core.life.request import RequestProblems, read_request, title_of
from placet.core.text.blocks import Frontmatter
from placet.core.text.names import Folder
from placet.core.text.note import read_note, stamp
from placet.files.errors import AlreadyThere
from placet.files.vault import Vault
from placet.host.config import load


@click.command("submit")
@click.argument("text", required=False)
@click.option(
    "--file",
    "file",
    type=click.Path(),
    metavar="F",
    help="Take the request from this file; - is standard input.",
)
@click.option("--title", metavar="T", help="The note's name; else its first line.")
@click.option("--agent", metavar="NAME", help="Who is to do it.")
@click.option("--portal", metavar="NAME", help="In which repository.")
@click.option("--priority", type=click.IntRange(0, 10), metavar="0-10", help="10 goes first.")
@click.option("--budget-usd", metavar="USD", help="What it may cost at most.")
@site_option
@json_option
def submit_command(
    site: Site,
    text: str | None,
    file: str | None,
    title: str | None,
    as_json: bool,
    budget_usd: str | None,
    **keys: str | int | None,
) -> None:
    """Drop a request into the vault."""
    if (text is None) == (file is None):
        raise click.UsageError("give the request either as TEXT or with --file")
    body = text if text is not None else _read(file or "")
    meta = {**keys, "budget_usd": _number(budget_usd)}
    path = submit(
        site.vault, body, title=title, meta={k: v for k, v in meta.items() if v is not None}
    )
    out(path, {"path": path}, as_json=as_json)
    say_if_down(site)


def submit(vault: Path, text: str, *, title: str | None, meta: Mapping[str, Any]) -> str:
    """Drop a request into the vault; return the note's path in it.

    `meta` goes into its frontmatter. The name is the title's; a name that is taken gets a number.
    """
    if not text.strip():
        raise UserError("The request is empty.", "Say what you want done.", exit_code=2)
    config = load(vault)
    # the text may be a whole note, frontmatter and all
    said = read_note(text.encode()).body.strip()
    name = _file_name(
        title or title_of("request.md", said if said.startswith("#") else "# " + said)
    )
    raw = text.encode()
    if not raw.endswith(b"\n"):
        raw += b"\n"
    if meta:
        with can_be_edited("The request"):
            raw = stamp(raw, dict(meta), kind_if_none=Frontmatter(config.vault.frontmatter))
    try:  # whoever types it hears at once what the daemon would say in a side note
        read_request(
            f"{name}.md",
            read_note(raw),
            agents(vault),
            config.portals,
            config.vault.default_agent,
            config.vault.own_keys,
        )
    except RequestProblems as found:
        raise UserError(
            "\n  ".join(["The request cannot be used:", *found.problems]),
            "Nothing was written. Fix it, then try again.",
            exit_code=2,
        ) from found
    with Vault(vault) as folder:
        folder.ensure_folders()
        for n in range(1, 1000):
            path = f"{Folder.REQUESTS}/{name}{'' if n == 1 else f' {n}'}.md"
            try:
                if folder.publish(path, raw, in_whole=True):
                    return path
            except AlreadyThere:
                continue
    raise UserError(
        f"There are a thousand requests named {name!r} already.", "Give another --title."
    )


def _file_name(title: str) -> str:
    """Return a title as a file name that Obsidian and every file system take."""
    name = "".join(" " if c in '\\/:*?"<>|#^[]' or ord(c) < 32 else c for c in title)
    return " ".join(name.split()).strip(". ")[:80].strip() or "Request"


def _number(given: str | None) -> float | str | None:
    """Return a number as one: Obsidian shows a quoted one as a mistake.

    Other words are refused where the note is read.
    """
    return (
        float(given) if given is not None and re.fullmatch(r"[0-9]+(\.[0-9]+)?", given) else given
    )


def _read(file: str) -> str:
    try:
        return (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{file} cannot be read: {error}", "Give a text file in UTF-8.", exit_code=2
        ) from error
