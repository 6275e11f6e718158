"""Check everything that placet needs, and say what helps: `placet doctor`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from placet.cli.options import json_option, site_option
from placet.cli.terminal import colour, out
from placet.client.doctor import doctor
from placet.client.findings import Finding
from placet.client.site import Site
from placet.client.texts import local_times
from placet.note.paths import show as visible


@click.command("doctor")
@click.option("--model", "tries", is_flag=True, help="Also make one tiny call of the model.")
@site_option
@json_option
def doctor_command(site: Site, tries: bool, as_json: bool) -> None:
    """Look at everything that placet needs, and say what is missing and what helps."""
    found = doctor(site, tries=tries)
    out(doctor_text(found), found, as_json=as_json)
    if any(line.state == "bad" for line in found):
        sys.exit(1)


def doctor_text(found: Sequence[Finding]) -> str:
    """Return `placet doctor` for people."""
    marks = {
        "good": colour("ok  ", "green"),
        "warn": colour("note", "yellow"),
        "bad": colour("BAD ", "red", bold=True),
    }
    lines = []
    for line in found:
        text = visible(" ".join(line.found.split()))
        lines += local_times([f"{marks[line.state]}  {line.what:<14} {text}"])
        if line.helps:
            lines.append(f"{'':<21}{visible(line.helps)}")
    return "\n".join(lines)
