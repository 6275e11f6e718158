"""Show what happened, to people and programs: `placet journal`, `logs` and `watch`."""

from __future__ import annotations

import json
import os
import queue
import shutil
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from placet.activity import Action, CommittedRow, Entity
from placet.case.case import CASE_JSON, Case
from placet.case.life_cycle import OPEN, State, diagram
from placet.case.story import Story, Verbosity
from placet.cli.options import complete_ids, ident_argument, json_option, site_option
from placet.cli.screen import columns, on_terminal, row_text, table_text
from placet.cli.terminal import colour, echo, fitted, out, say
from placet.client.rows import ROWS, Row, as_row, new_rows, patiently
from placet.client.site import Site, find
from placet.client.texts import harmless, json_text, shown_time
from placet.errors import UserError, counted, rfc3339
from placet.host.events import event_of, line_of
from placet.host.intents import waiting_in
from placet.host.state import expand_home
from placet.journal.database import address_of, database_of, is_begun
from placet.journal.maintenance import Examined, backup, examine
from placet.journal.reader import open_reader, query
from placet.journal.writes import CaseRow
from placet.note.paths import show as visible

LAST = 50
"""Rows of the journal that are shown unless another number is asked for."""


class _Journal(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command. If you typed a request's ID instead, name the option."""
        if self.get_command(ctx, args[0]) is None:
            ctx.fail(
                f"No such command {args[0]!r}. Is it a request? placet journal --trace {args[0]}"
            )
        return super().resolve_command(ctx, args)


@click.group("journal", cls=_Journal, invoke_without_command=True)
@click.option(
    "--trace",
    metavar="ID",
    shell_complete=complete_ids,
    help="Only this request's rows: a request_id or the beginning of a trace_id.",
)
@click.option("--sql", metavar="QUERY", help="Run a read-only query on journal.db.")
@click.option("--follow", is_flag=True, help="Print new rows as they are written.")
@click.option(
    "--limit",
    type=click.IntRange(0, 2**62),
    metavar="N",
    help="How many of the last rows; else 50, of one request all.",
)
@site_option
@json_option
@click.pass_context
def journal_command(
    context: click.Context,
    site: Site,
    trace: str | None,
    sql: str | None,
    follow: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Read the journal: what happened, to what, by whom."""
    if context.invoked_subcommand is not None:
        return
    if sql is not None:
        columns, rows = query(site.state.journal, sql)
        out(
            table_text(columns, rows),
            [dict(zip(columns, row, strict=True)) for row in rows],
            as_json=as_json,
        )
        return
    for row in journal_rows(site, trace, limit=limit, follow=follow, as_json=as_json):
        if as_json:
            click.echo(json_text(row))
        else:
            echo(row_text(row))


@journal_command.command("verify")
@site_option
def journal_verify_command(site: Site) -> None:
    """Check that no row, text or record was changed, taken out or put in.

    Print the last row's id and hash.

    Whoever can write the database can also write all of it again, hashes and all. A hash that is
    kept elsewhere shows that: the row with its id must have it.
    """
    state = site.state
    found = examine(state.journal, state.mark)
    if found.damage:
        raise UserError(
            f"The journal is not as it was written: {found.damage}.",
            "Restore a backup. Keep this one under another name.",
        )
    if found.lost_row:
        raise UserError(*older_copy(found))
    click.echo(f"{found.last_id} {found.last_hash}")
    say(
        f"No row was changed, up to row {found.last_id}. Whoever can write the database could "
        "rewrite all rows with new hashes. To notice that, keep this hash elsewhere and compare it."
    )


def older_copy(found: Examined) -> tuple[str, str]:
    """Return what to say of an undamaged journal that lacks its newest rows, and what helps."""
    return (
        f"The journal is an older copy, as after a restore. Its rows are whole up to row "
        f"{found.last_id}; the daemon left it at row {found.lost_row}.",
        "If you restored it, start the daemon: placet run. If not, somebody cut rows off: restore "
        "a backup.",
    )


@journal_command.command("backup")
@click.argument("target", type=click.Path())
@site_option
def journal_backup_command(site: Site, target: str) -> None:
    """Copy the journal to TARGET, a new file. The daemon may keep running."""
    path = expand_home(target).absolute()
    if os.path.lexists(path):
        raise UserError(
            f"{target} is there already, and was left as it is: nothing was copied.",
            "Name a file that is not there yet, or move that one away first.",
            exit_code=2,
        )
    try:
        backup(site.state.journal, path)
    except OSError as error:
        raise UserError(
            f"{target} cannot be written: {error.strerror}",
            "Name a file, in a folder that is there.",
        ) from error
    click.echo(target)


@journal_command.command("move")
@site_option
def journal_move_command(site: Site) -> None:
    """Move the journal to where [team] database says: into PostgreSQL, or back into a file.

    All of it is copied and compared; what it was before is kept under another name. No daemon may
    run meanwhile.
    """
    # only here: those who only look are not to wait for these
    from placet.disk.vault import Vault
    from placet.host.clock import Clock
    from placet.host.lock import VaultLock, this_process

    state, wanted = site.state, site.in_force().config.team.database
    address = address_of(state.journal)
    if address == wanted or not is_begun(state.journal):
        raise UserError(
            "The journal is where [team] database says."
            if address
            else "The journal is in a file.",
            "" if wanted else "To have it in PostgreSQL: placet team init ADDRESS",
        )
    if address and wanted:
        raise UserError(
            f"The journal is in {address}, and [team] database names another database.",
            "First move it into a file: placet config set team.database '' && placet journal move",
        )
    with Vault(site.vault) as folder, VaultLock(state.lock, this_process(), Clock().now()):
        whose = str(folder.marker())
        kept = (
            str(database_of(wanted).move_in(state.journal, wanted, whose))
            if wanted
            else database_of(address).move_out(state.journal)
        )
    click.echo(wanted or state.journal)
    say(f"moved; the old one is kept as {kept}")


@journal_command.command("path")
@site_option
def journal_path_command(site: Site) -> None:
    """Print where the journal's database is."""
    click.echo(address_of(site.state.journal) or site.state.journal)


@click.command("states")
def states_command() -> None:
    """Draw the life cycle of a request as a Mermaid diagram."""
    click.echo(diagram(), nl=False)


def journal_rows(
    site: Site,
    ident: str | None,
    *,
    limit: int | None,
    follow: bool,
    as_json: bool,
) -> Iterator[Row]:
    """Give the last `limit` rows, in order; with `follow` also those that are written from now on.

    Without a limit it is all rows of one request, or the last LAST of all. Git processes that went
    well are for JSON only; it says how many were left out.
    """
    with open_reader(site.state.journal) if ident is None else site.reader(ident) as reader:
        trace = find(reader, ident).trace_id if ident is not None else None
        most = limit if limit is not None else LAST if trace is None else -1
        rows: Sequence[CommittedRow] = reader.activity(
            trace, limit=most, newest=True, routine=as_json
        )
        last = reader.last()[0]
        first = rows[0].id - 1 if rows and not as_json else last
        left_out = len(reader.activity(trace, after_id=first, limit=-1)) - len(rows)
    yield from map(as_row, rows)
    if not as_json and left_out > 0:
        say(f"{counted(left_out, 'git process', 'git processes')} left out; with them: --json")
    if follow:
        for rows in new_rows(site, last, trace, routine=as_json):
            yield from map(as_row, rows)


# Print the daemon's lines on standard error, and keep them for `placet logs`.
#
# A separate thread prints. A terminal stopped with Ctrl-S, or a pipe that is not read, blocks
# only that thread. A closed standard error stops nothing. Lines that do not fit into
# the queue are left out, and counted.

MAX_WAITING = 10_000
MAX_LOG_BYTES = 1 << 20
"""Bytes of the log after which a new one is begun; the one before is kept."""
LAST_WORDS_S = 2.0
"""Maximum seconds that a blocked standard error may delay the daemon's end."""


def old_log(log: Path) -> Path:
    """Return where the older lines of a log are."""
    return log.with_name(f"{log.name}.old")


class StderrWriter:
    """Says lines of at most this loudness; a context manager that writes all of them at its end.

    With `times` each line begins with the local time. `log` is the file that keeps the lines,
    except those that only `--verbose` prints.
    """

    def __init__(self, loud: Verbosity, *, times: bool, log: Path | None = None) -> None:
        self._loud = loud
        self._times = times
        self._log = log
        self._logging = threading.Lock()
        self._story = Story()
        self._day = datetime.now().astimezone().date()
        self._queue: queue.Queue[tuple[datetime, Verbosity, str] | None] = queue.Queue(MAX_WAITING)
        self._left_out = 0
        self._thread = threading.Thread(target=self._write, name="voice", daemon=True)

    def __enter__(self) -> StderrWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._queue.put(None, timeout=LAST_WORDS_S)
        except queue.Full:
            return
        self._thread.join(LAST_WORDS_S)

    def say(self, text: str, loud: Verbosity = Verbosity.TROUBLE) -> None:
        """Say a sentence of the daemon's own. From any thread."""
        if loud is Verbosity.TROUBLE:
            self._story.hear(text)
        self._put(datetime.now().astimezone(), loud, text)
        self._keep(rfc3339(datetime.now(UTC)), loud, text)

    def rows(self, rows: Sequence[CommittedRow]) -> None:
        """Say rows that were committed to the journal, in the words of `Story`."""
        for row in rows:
            if (line := self._story.line(row)) is not None:
                self._put(datetime.fromisoformat(row.timestamp).astimezone(), *line)
                self._keep(row.timestamp, *line, row)

    def _keep(
        self, timestamp: str, loud: Verbosity, text: str, row: CommittedRow | None = None
    ) -> None:
        """Append a line to the log. A disk that refuses it stops nothing: the line was printed."""
        if self._log is None or loud > Verbosity.EVENT or not text:
            return
        is_case = row is not None and row.entity_type != Entity.DAEMON
        line = {
            "id": row.id if row else 0,
            "timestamp": timestamp,
            "trace_id": row.trace_id if row else "",
            "request_id": row.entity_id if row and is_case else "",
            "text": text,
            "trouble": loud is Verbosity.TROUBLE,
        }
        with self._logging, suppress(OSError):
            if self._log.exists() and self._log.stat().st_size > MAX_LOG_BYTES:
                self._log.replace(old_log(self._log))
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(self._log, flags, 0o600)
            try:
                os.write(handle, json.dumps(line).encode() + b"\n")
            finally:
                os.close(handle)

    def _put(self, at: datetime, loud: Verbosity, text: str) -> None:
        if loud > self._loud:
            return
        try:
            self._queue.put_nowait((at, loud, text))
        except queue.Full:
            self._left_out += 1

    def _write(self) -> None:
        while (item := self._queue.get()) is not None:
            self._print(*item)
            if self._left_out and self._queue.empty():
                left_out, self._left_out = self._left_out, 0
                self._print(
                    datetime.now().astimezone(),
                    Verbosity.TROUBLE,
                    f"Lines left out, because nothing read them: {left_out}. See: placet logs",
                )

    def _print(self, at: datetime, loud: Verbosity, text: str) -> None:
        lines = [line for line in text.splitlines() if line.strip()]
        if self._times and at.date() != self._day:
            self._day = at.date()
            lines.insert(0, self._day.isoformat())
        stamp = f"{at:%H:%M:%S} " if self._times else ""
        for number, line in enumerate(lines):
            shown = "".join(c if c == "\\" else visible(c) for c in line)
            self._echo(
                (stamp if not number or not line.startswith(" ") else " " * len(stamp)) + shown,
                loud,
            )

    def _echo(self, line: str, loud: Verbosity) -> None:
        try:
            if sys.stderr.isatty():
                line = textwrap.fill(
                    line,
                    max(40, shutil.get_terminal_size().columns - 1),
                    subsequent_indent=" " * 11,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                if loud is Verbosity.TROUBLE and not os.environ.get("NO_COLOR"):
                    line = click.style(line, fg="yellow")
            click.echo(line, err=True)
        except (OSError, ValueError, AttributeError):
            pass  # no output is left; the journal has it


def times_of_its_own(env: Mapping[str, str]) -> bool:
    """Return whether standard error is the service manager's log, which has its own times.

    JOURNAL_STREAM, see systemd.exec(5).
    """
    device, _, inode = env.get("JOURNAL_STREAM", "").partition(":")
    try:
        info = os.fstat(2)
    except OSError:
        return False
    return (device, inode) == (str(info.st_dev), str(info.st_ino))


BELOW = 9
"""Indent, in columns, of a wrapped line, so that it continues after the time."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A sentence of the daemon's, and when it was said."""

    timestamp: str
    text: str
    trouble: bool

    def __str__(self) -> str:
        return f"{shown_time(self.timestamp)} {harmless(self.text)}"


def log_lines(story: Story, rows: Iterable[CommittedRow]) -> Iterator[LogLine]:
    """Yield the story's sentences about its next rows. Many rows have none."""
    for row in rows:
        told_line = story.line(row)
        if told_line is not None and told_line[0] <= Verbosity.EVENT and told_line[1]:
            yield LogLine(row.timestamp, told_line[1], told_line[0] is Verbosity.TROUBLE)


def print_log_line(line: LogLine) -> None:
    """Print a sentence to standard output; on a terminal it is broken to fit, trouble yellow."""
    text = colour(str(line), "yellow") if line.trouble else str(line)
    echo(fitted(text, columns(), hang=BELOW) if on_terminal() else text)


LAST_LINES = 50
LOG_POLL_S = 0.2


@click.command("logs")
@click.argument("ident", metavar="[ID]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they are written.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, 10**6),
    default=LAST_LINES,
    metavar="N",
    help="How many of the last lines; else 50.",
)
@site_option
@json_option
def logs_command(site: Site, ident: str | None, follow: bool, lines: int, as_json: bool) -> None:
    """Print what the daemon has said about one request or all, the newest line last.

    These are the lines that `placet run` prints.
    """
    trace = request = ""
    if ident is not None:
        with site.reader(ident) as reader:
            case = find(reader, ident)
        trace, request = case.trace_id, case.request_id
    log = Log(site.state.log, trace, request)
    found = deque(log.new(), maxlen=lines)
    if not log.path.exists():
        say("No daemon has run here yet: placet run")
    for line in found:
        _print(line, as_json=as_json)
    if not follow:
        return
    while True:
        time.sleep(LOG_POLL_S)  # not every line is a row of the journal
        for line in log.new():
            _print(line, as_json=as_json)


class Log:
    """The daemon's lines at `path`, of one case or, with an empty `trace`, of all."""

    def __init__(self, path: Path, trace: str = "", request: str = "") -> None:
        self.path = path
        self._trace, self._request = trace, request
        # By a file's first line how many bytes of it were read: inodes are used again.
        self._read: dict[bytes, int] = {}

    def new(self) -> Iterator[dict[str, Any]]:
        """Give the lines that were not given before, the oldest first."""
        for path in (old_log(self.path), self.path):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue
            with file:
                first = file.readline()
                file.seek(self._read.get(first, 0))
                for raw in file:
                    if not raw.endswith(b"\n"):
                        break  # it is being written
                    self._read[first] = self._read.get(first, 0) + len(raw)
                    line = json.loads(raw)
                    if self._wants(line):
                        yield line

    def _wants(self, line: dict[str, Any]) -> bool:
        if not self._trace:
            return True
        if trace := str(line["trace_id"]):
            return trace == self._trace
        return str(line["text"]).startswith(f"{self._request}: ")


def _print(line: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(line))
    else:
        print_log_line(LogLine(line["timestamp"], line["text"], line["trouble"]))


WRITING_S = 2.0
"""Seconds after which rows are printed although the daemon has not written their notes yet."""


@click.command("watch")
@ident_argument
@site_option
@json_option
def watch_command(site: Site, ident: str, as_json: bool) -> None:
    """Follow one request to its end, a line an event; exit with its result.

    0 if it was completed; 1 if it failed, was rejected or withdrawn; 3 if there is no such request.
    If it waits for you, placet says so and keeps waiting.

    ID is a request_id or the beginning of a trace_id.
    """
    follow(site, site.case(ident).trace_id, as_json=as_json)


def follow(site: Site, trace: str, *, as_json: bool) -> None:
    """Print what happened to a case and what happens, until it has ended.

    Raises UserError with exit code 1 where it ended in another way than completed.
    """
    last, story, daemon, waits_since = 0, Story(), Presence(site), ""
    changes = site.changes()
    while True:
        rows, found, busy = patiently(partial(_look, site, trace, last, routine=as_json), changes)
        case = _case(found)
        ended = len(rows) < ROWS and case.state not in OPEN and not busy
        last = rows[-1].id if rows else last
        if not ended or not daemon.was_there:
            daemon.say_changes()
        if as_json:
            for row in rows:
                click.echo(line_of(event_of(row)))
        else:
            for line in log_lines(story, rows):
                print_log_line(line)
        # who asked for a retry, which the daemon has not performed yet, waits for that
        if ended and trace not in {one.trace_id for one in waiting_in(site.state.intents)}:
            break
        if len(rows) < ROWS:
            if case.state in (State.REVIEW, State.ASKING) and case.since != waits_since:
                waits_since = case.since
                say(f"{case.request_id} waits for you: placet review")
            next(changes)
    if case.state is not State.COMPLETED:
        raise UserError(
            _end(case), f"See why, and what helps: placet why {case.request_id}", exit_code=1
        )


def await_case(site: Site, path: str, after: int) -> str:
    """Return the trace_id of the request that was dropped at `path`, once a daemon has seen it.

    `after` is the journal's last row before. Raises UserError where it cannot be used, or is gone.
    """
    daemon, exists, news = Presence(site), True, new_rows(site, after, routine=False)
    while True:
        for row in next(news):
            if row.details.get("path") != visible(path):
                continue
            if row.action_type == Action.REQUEST_DETECTED:
                return row.trace_id
            if row.action_type == Action.REQUEST_INVALID:
                why = str(row.details.get("reason") or "")
                raise UserError(
                    f"{visible(path)} cannot be used: {why}", "Fix it: it is read again."
                )
        if not exists:
            raise UserError(
                f"{visible(path)} was taken away before it was planned.",
                "Submit it again: placet submit",
            )
        exists = (site.vault / path).exists()  # its row may be written already, and is read next
        daemon.say_changes()


@dataclass(slots=True)
class Presence:
    """Tells you when the daemon stops, and when it runs again."""

    site: Site
    was_there: bool = True

    def say_changes(self) -> None:
        """Say it on standard error, once each time that it changes."""
        is_there = self.site.daemon is not None
        if is_there != self.was_there:
            say(
                "the daemon runs again"
                if is_there
                else "the daemon is not running. This continues when it runs: placet run"
            )
        self.was_there = is_there


def _look(
    site: Site, trace: str, after: int, *, routine: bool
) -> tuple[tuple[CommittedRow, ...], tuple[CaseRow, ...], bool]:
    """Return a case's rows after one, the case, and whether its notes are still to be written.

    Who reads that a plan waits may move it at once, so its note is waited for: WRITING_S, and not
    where something hinders the daemon.
    """
    for _ in site.changes(WRITING_S):
        with open_reader(site.state.journal) as reader:
            rows = reader.activity(trace, after_id=after, limit=ROWS, routine=routine)
            left = [one for one in reader.pending_commands() if one.trace_id == trace]
            found = reader.cases_of(trace_ids=[trace])
        # one that fails holds back the later ones
        busy = bool(left) and not any(one.error for one in left)
        if not (rows and busy):
            break
    return rows, found, busy


def _case(found: Sequence[CaseRow]) -> Case:
    if not found:
        raise UserError(
            "The journal no longer knows this request.",
            "See all: placet status",
            exit_code=3,
        )
    return CASE_JSON.validate_json(found[0].body)


def _end(case: Case) -> str:
    if case.state is State.FAILED:
        why = (case.outcome.failure.splitlines() or [""])[0]
        return f"{case.request_id} failed: {why}" if why else f"{case.request_id} failed."
    return f"{case.request_id} was {case.state.value}."
