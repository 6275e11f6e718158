"""`placet logs`: what the daemon said, as `placet run` prints it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from placet.cli.bell import bell
from placet.cli.follow import old_log
from placet.cli.site import Site, find, json_option, site_option
from placet.cli.terminal import json_text, say
from placet.cli.told import Told, print_told

LAST_LINES = 50


@click.command("logs")
@click.argument("ident", metavar="[ID]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is said from now on.")
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
    """Print what the daemon has said, the newest line last; of one request or of all.

    It is what `placet run` printed, also while nobody looked at it.
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
    with bell(site) as wait:
        while True:
            wait()
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
        print_told(Told(line["timestamp"], line["text"], line["trouble"]))
