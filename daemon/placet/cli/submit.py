"""Put a request into the vault: `placet submit`."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import click

from placet.agent.prompts import agents
from placet.case.notes import inspect_note
from placet.case.request import RequestProblems, read_request, title_of
from placet.cli.events import last_row
from placet.cli.journal import await_case, follow
from placet.cli.site import Site, json_option, site_option
from placet.cli.terminal import echo, json_text, out, say
from placet.disk.errors import AlreadyThere
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.journal.database import is_begun
from placet.journal.reader import Reader, open_reader
from placet.note.frontmatter import Frontmatter, UnsafeEdit, read_note, stamp
from placet.note.paths import Folder, request_id, trace_id


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


class Submitted(NamedTuple):
    """A new request: its note's path, and the ids that follow from that and the text."""

    path: str
    request_id: str
    trace_id: str


def submit(site: Site, text: str, *, title: str | None, meta: Mapping[str, Any]) -> Submitted:
    """Drop a request into the vault; return its path in it, and its ids.

    `meta` goes into its frontmatter. The name is the title's; a name that is taken gets a number.
    """
    if not text.strip():
        raise UserError("The request is empty.", "Say what you want done.", exit_code=2)
    config = site.in_force().config  # a portal counts as it was accepted
    # the text may be a whole note, frontmatter and all
    body = read_note(text.encode()).body.strip()
    name = _file_name(
        title or title_of("request.md", body if body.startswith("#") else "# " + body)
    )
    raw = text.encode()
    if not raw.endswith(b"\n"):
        raw += b"\n"
    if meta:
        with _can_be_edited("The request"):
            raw = stamp(raw, dict(meta), kind_if_none=Frontmatter(config.vault.frontmatter))
    try:  # whoever types it hears at once what the daemon would say in a side note
        read_request(
            f"{name}.md",
            read_note(raw),
            agents(site.vault),
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
    with Vault(site.vault) as folder:
        folder.ensure_folders()
        for n in range(1, 1000):
            path = f"{Folder.REQUESTS}/{name}{'' if n == 1 else f' {n}'}.md"
            made = _with_ids(site, path, raw)  # before a daemon sees it and gives them
            try:
                if folder.publish(path, raw, in_whole=True):
                    return made
            except AlreadyThere:
                continue
    raise UserError(
        f"There are a thousand requests named {name!r} already.", "Give another --title."
    )


def _with_ids(site: Site, path: str, raw: bytes) -> Submitted:
    """Return a request with the ids that a daemon will give it, as `open_requests` does."""
    name, note = PurePosixPath(path).name, inspect_note(path, raw, "")
    trace, ordinal = note.trace_id, 0
    if not is_begun(site.state.journal):
        return Submitted(path, request_id(name, ()), trace or trace_id(name, note.digest, 0))
    with open_reader(site.state.journal) as reader:
        while not trace or reader.cases_named(trace):
            trace, ordinal = trace_id(name, note.digest, ordinal), ordinal + 1
        return Submitted(path, request_id(name, _Taken(reader)), trace)


@dataclass(frozen=True, slots=True)
class _Taken(Container[str]):
    """The ids that a journal has."""

    reader: Reader

    def __contains__(self, request_id: object) -> bool:
        return self.reader.is_taken(str(request_id))


def _file_name(title: str) -> str:
    title = re.sub(r"(\.md)+\Z", "", title.strip(), flags=re.IGNORECASE)
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


@contextmanager
def _can_be_edited(what: str) -> Iterator[None]:
    """Turn a note whose frontmatter cannot be edited into a UserError that names it as `what`."""
    try:
        yield
    except UnsafeEdit as error:
        raise UserError(f"{what}: {error}", "Fix its frontmatter, then try again.") from error


def _say_if_down(site: Site) -> None:
    """Tell the person that nothing follows until the daemon runs, if it does not run."""
    if site.daemon is None:
        say("Saved. placet plans it when the daemon runs: placet run")
