"""`placet man`: the manual page, made from the help of all commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import click

from placet import __version__
from placet.cli.main import GROUPS, main
from placet.cli.manual import PAGES, topics

_FILES = (
    ("System/placet.toml", "the settings of the vault; it explains each of them"),
    ("~/.local/state/placet", "the journal, worktrees and lock of each vault"),
    ("~/.config/placet/anthropic_api_key", "the model's key, as a service of systemd reads it"),
)
_VARIABLES = (
    ("PLACET_VAULT", "the vault, where --vault names none"),
    ("PLACET_STATE_HOME", "the folder of all state; else $XDG_STATE_HOME/placet"),
    ("ANTHROPIC_API_KEY", "the model's key"),
    ("NO_COLOR", "no colours"),
)
_CODES = (
    ("0", "done"),
    ("1", "it failed"),
    ("2", "wrong usage or configuration"),
    ("3", "there is no such request, plan or mission"),
)


@click.command("man")
@click.pass_context
def man_command(context: click.Context) -> None:
    """Print the manual page, to be shown by `man -l -` or kept where man looks."""
    click.echo("\n".join(page(context.find_root())))


def page(top: click.Context) -> Iterator[str]:
    """Yield the lines of the manual page, in roff with the macros of man(7)."""
    yield f'.TH PLACET 1 "" "placet {_text(__version__)}" "User commands"'
    yield from _section("NAME", [f"placet \\- {_text((main.help or '').rstrip('.').lower())}"])
    yield from _section(
        "SYNOPSIS", [".B placet", "[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGS\\fR]"]
    )
    yield from _section("OPTIONS", _options(top))
    listed = [name for _, names in GROUPS.values() for name in names]
    rest = [name for name in main.commands if name not in listed]
    for title, names in (*((t, n) for t, (_, n) in GROUPS.items()), ("More", tuple(rest))):
        if names:
            yield f'.SH "{_text(title.upper())}"'
            for name in names:
                yield from _command(top, (name,))
    for name, title in topics().items():
        body = (PAGES / f"{name}.md").read_text(encoding="utf-8").partition("\n")[2]
        yield from _section(title.upper(), _markdown(body))
    for title, rows in (
        ("FILES", _FILES),
        ("ENVIRONMENT", _VARIABLES),
        ("EXIT STATUS", _CODES),
    ):
        yield from _section(title, [line for row in rows for line in _item(row[0], row[1])])


def _section(title: str, lines: Sequence[str] | Iterator[str]) -> Iterator[str]:
    yield f'.SH "{_text(title)}"'
    yield from lines


def _command(above: click.Context, words: tuple[str, ...]) -> Iterator[str]:
    group = above.command
    assert isinstance(group, click.Group), "it has commands"
    command = group.resolve_command(above, [words[-1]])[1]
    assert command is not None, "it is one of its names"
    context = click.Context(command, info_name=words[-1], parent=above)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f'.SS "placet {_text(" ".join(words))}"'
    yield f".B placet {_text(' '.join(words))}"
    yield f".I {_text(usage)}"
    for paragraph in (command.help or "").split("\n\n"):
        yield from (".PP", _text(" ".join(paragraph.split())))
    yield from _options(context)
    if command.epilog:
        yield from (
            ".PP",
            ".nf",
            *map(_text, command.epilog.removeprefix("\b\n").splitlines()),
            ".fi",
        )
    if isinstance(command, click.Group):
        for name in command.commands:
            yield from _command(context, (*words, name))


def _options(context: click.Context) -> Iterator[str]:
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            yield from _item(*record)


def _item(term: str, of: str) -> Iterator[str]:
    yield from (".TP", f".B {_text(term)}", _text(" ".join(of.split())))


def _markdown(body: str) -> Iterator[str]:
    """Yield a page of help in roff: its headings, lists, blocks of code and paragraphs."""
    is_code = False
    for line in body.strip().splitlines():
        if line.startswith("```"):
            is_code = not is_code
            yield from (".PP", ".nf") if is_code else (".fi",)
        elif is_code:
            yield _text(line)
        elif found := re.fullmatch(r"#+ (.+)", line):
            yield f'.SS "{_text(found[1])}"'
        elif found := re.fullmatch(r"(- |\d+\. )(.+)", line):
            yield from (f'.IP "{_text(found[1].strip())}" 4', _text(found[2]))
        elif line.strip():
            yield from (".PP", _text(line))


def _text(text: str) -> str:
    r"""Return text in which roff sees no request and no escape; `-` stays what one types."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    escaped = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in escaped)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
