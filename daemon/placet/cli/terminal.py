"""Print data to stdout and messages to stderr, and turn errors into a sentence and an exit code."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import click

from placet.client.texts import harmless, hint_of, json_text
from placet.errors import FULL, PlacetError, UserError, machine_errno


@contextmanager
def boundary() -> Iterator[None]:
    """Turn the errors that a person can act on into a sentence on stderr and an exit code."""
    try:
        yield
    except UserError as error:
        _fail(error)
    except PlacetError as error:  # of git, of a note: not foreseen by the command
        number = machine_errno(error)
        why = os.strerror(number) if number else ""
        _fail(
            UserError(
                f"{why}: this could not be done. {error}" if why else str(error),
                "Free some space, then try again."
                if number in FULL
                else "Look at what it names, fix that, then try again.",
            )
        )
    except BrokenPipeError:
        # The reader of our output has gone; the interpreter must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except UnicodeEncodeError as error:
        at = error.object[max(0, error.start - 20) : error.end + 20]
        _fail(UserError(f"This is not UTF-8: {at!a}", "Give text in UTF-8.", exit_code=2))
    except OSError as error:
        _fail(
            UserError(
                f"{error.filename or 'the system'}: {error.strerror or error}",
                f"{'Free some space there' if error.errno in FULL else 'Fix that'}, then try "
                "again.",
            )
        )
    except click.Abort:  # Ctrl-C, or the end of the input, at a question
        _fail(UserError("You gave no answer, so nothing was changed."))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        psycopg = sys.modules.get("psycopg")  # loaded where the journal is in PostgreSQL
        if psycopg is None or not isinstance(error, psycopg.Error):
            raise
        message = error.diag.message_primary or " ".join(str(error).split())
        _fail(
            UserError(
                f"The database of the journal refuses: {message}.",
                "Look whether its user has the rights, and its schema the tables, that "
                "daemon/docs/team.md names; then try again.",
            )
        )
    finally:
        _let_go_of_stderr()


def _let_go_of_stderr() -> None:
    """Drop what a standard error that is gone did not take: the interpreter would exit with 120."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _fail(error: UserError) -> NoReturn:
    say_error(error)
    sys.exit(error.exit_code)


def say_error(error: UserError) -> None:
    """Print what is wrong, and below it what helps, to stderr."""
    say(error.what)
    if hint := hint_of(error):
        echo(f"  {harmless(hint)}", err=True)


def say(text: str) -> None:
    """Print a sentence for people to stderr."""
    echo(f"placet: {harmless(text)}", err=True)


def agreed(question: str, *, default: bool = False) -> bool:
    """Ask a question that is answered by yes or no; Enter is `default`."""
    hint = "[Y/n]" if default else "[y/N]"
    while True:
        answer = click.prompt(f"{question} {hint}", default="", show_default=False, err=True)
        said = answer.strip().casefold()
        if said in ("", "y", "yes", "n", "no"):
            return default if not said else said.startswith("y")
        echo("Type y or n.", err=True)


def out(text: str, data: Any, *, as_json: bool) -> None:
    """Print a command's answer to stdout: `data` as JSON, or `text`."""
    if as_json:
        click.echo(json_text(data, indent=2))
        return
    echo(text)


def echo(text: str, *, err: bool = False) -> None:
    """Print for people: wrapped to a terminal's width, unchanged into a pipe."""
    if (sys.stderr if err else sys.stdout).isatty():
        text = fitted(text, shutil.get_terminal_size().columns)
    click.echo(text.encode(errors="backslashreplace").decode(), err=err)


def colour(text: str, name: str, *, bold: bool = False) -> str:
    """Return text in a colour, unless `NO_COLOR` asks for none (https://no-color.org)."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=name, bold=bold)


def fitted(text: str, width: int, *, hang: int = 2) -> str:
    """Return lines broken at blanks to fit a terminal.

    A line continues below its second column, or `hang` columns further in if it has only one. A
    word longer than a line, such as a path, stays whole: it can still be copied.
    """
    return "\n".join(piece for line in text.split("\n") for piece in _broken(line, width, hang))


_COLUMNS = (re.compile(r"\s*\S{1,4} {2,}\S+(?: \S+)? {2,}"), re.compile(r"\s*(?:\S+ {2,}|- )"))


def _broken(line: str, width: int, hang: int) -> list[str]:
    plain = click.unstyle(line)
    if len(plain) <= width:
        return [line]
    leading = len(plain) - len(plain.lstrip(" "))
    columns = (found.end() for pattern in _COLUMNS if (found := pattern.match(plain)))
    indent = next(
        (end for end in columns if end <= width // 3), leading + (hang if leading < 8 else 0)
    )
    lines: list[str] = []
    now, used = "", 0
    for number, word in enumerate(line.split(" ")):
        size = len(click.unstyle(word))
        if number and used + 1 + size > width and used > indent:
            lines.append(now.rstrip(" "))
            now, used = " " * indent + word, indent + size
        else:
            now, used = (f"{now} {word}", used + 1 + size) if number else (word, size)
    return [*lines, now]
