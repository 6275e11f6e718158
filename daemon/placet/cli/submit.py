"""Put a request into the vault: `placet submit`."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click

from placet.cli.options import json_option, site_option
from placet.cli.terminal import echo, out, say
from placet.cli.watch import follow
from placet.client.follow import await_case
from placet.client.requests import submit
from placet.client.rows import last_row
from placet.client.site import Site
from placet.client.texts import json_text
from placet.errors import UserError


@click.command("submit")
@click.argument("text", required=False)
@click.option(
    "--file",
    "file",
    type=click.Path(),
    metavar="F",
    help="Take the request from this file; - is standard input.",
)
@click.option("--edit", is_flag=True, help="Write it in your editor ($VISUAL, $EDITOR).")
@click.option("--wait", "waits", is_flag=True, help="Then follow it to its end, as `placet watch`.")
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
    edit: bool,
    waits: bool,
    as_json: bool,
    budget_usd: str | None,
    **keys: str | int | None,
) -> None:
    """Drop a request into the vault.

    TEXT is the request, - reads it from standard input. With --edit it is what the editor begins
    with; left empty or as it was, nothing is submitted.
    """
    text, file = (None, "-") if text == "-" and file is None else (text, file)
    if (text is None) == (file is None) and not (edit and text is None):
        raise click.UsageError("give the request either as TEXT, with --file, or with --edit")
    body = text if text is not None else _read(file) if file is not None else ""
    given = {**keys, "budget_usd": _number(budget_usd)}
    meta = {key: value for key, value in given.items() if value is not None}
    after = last_row(site) if waits else 0
    with edited(body) if edit else nullcontext(body) as written:
        made = submit(site, written, title=title, meta=meta)
    path = made.path
    if not waits:
        out(path, made._asdict(), as_json=as_json)
        _say_if_down(site)
        return
    echo(json_text(made._asdict()) if as_json else path)
    follow(site, await_case(site, path, after), as_json=as_json)


TEMPLATE = """\
#

<!-- The heading is the request's title. Below it, say what you want done, and how one can see that
it is done. Save and close the editor to submit it; this comment is left out. A request that is
empty, or left as it is here, is not submitted. -->
"""
_COMMENT = TEMPLATE.partition("\n\n")[2]
_NO_TITLE = re.compile(r"\A\s*#[ \t]*(?:\n\s*|\Z)")


@contextmanager
def edited(body: str) -> Iterator[str]:
    """Give what a person made of a request's text, or of the template, in their editor.

    The file stays where the request is refused: nothing that was written is lost. Raises UserError
    where there is nothing to submit.
    """
    before = f"{body.rstrip()}\n" if body.strip() else TEMPLATE
    path = Path(tempfile.mkdtemp(prefix="placet-")) / "request.md"
    path.write_text(before, encoding="utf-8")
    click.edit(filename=str(path))
    after = _read(str(path))
    text = _NO_TITLE.sub("", after.replace(_COMMENT, "")).rstrip()
    if after == before or not text:
        shutil.rmtree(path.parent)
        what = "left unchanged" if after == before else "left empty"
        raise UserError(
            f"Nothing was submitted: the request was {what}.", "Try again: placet submit --edit"
        )
    try:
        yield f"{text}\n"
    except UserError as error:
        again = f"placet submit --edit --file {shlex.quote(str(path))}"
        raise UserError(
            error.what, f"Your text is kept. To continue: {again}", exit_code=error.exit_code
        ) from error
    shutil.rmtree(path.parent)


def _number(given: str | None) -> float | str | None:
    """Return a number as one: Obsidian shows a quoted one as a mistake.

    Other words are refused where the note is read.
    """
    return (
        float(given) if given is not None and re.fullmatch(r"[0-9]+(\.[0-9]+)?", given) else given
    )


def _read(file: str) -> str:
    if file == "-" and sys.stdin.isatty():
        say("write the request, then press Enter and Ctrl-D")
    try:
        return (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode()
    except OSError as error:
        raise UserError(
            f"{file} cannot be read: {error.strerror}.", "Give a text file.", exit_code=2
        ) from error
    except UnicodeDecodeError as error:
        what = "Standard input" if file == "-" else file
        raise UserError(
            f"{what} is not text in UTF-8.", "Convert it, then try again.", exit_code=2
        ) from error


def _say_if_down(site: Site) -> None:
    """Tell the person that nothing follows until the daemon runs, if it does not run."""
    if site.daemon is None:
        say("Saved. placet plans it when the daemon runs: placet run")
