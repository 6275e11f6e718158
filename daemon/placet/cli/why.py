"""Explain a case's state and the next step: `placet why`."""

from __future__ import annotations

import click

from placet.cli.options import ident_argument, json_option, site_option
from placet.cli.terminal import colour, out
from placet.client.site import Site
from placet.client.texts import harmless, local_times
from placet.client.why import WhySo, request_after_failure, why
from placet.note.paths import show as visible


@click.command("why")
@ident_argument
@click.option(
    "--request",
    "only_request",
    is_flag=True,
    help="Print only a request that starts from where the mission broke.",
)
@site_option
@json_option
def why_command(site: Site, ident: str, only_request: bool, as_json: bool) -> None:
    """Say why a request is where it is, and what to do next.

    Of a failed mission, what its report shows.
    """
    found = why(site, ident)
    if only_request:
        click.echo(request_after_failure(site, found), nl=False)
    else:
        out(why_text(found), found, as_json=as_json)
    site.raise_problem()


def why_text(found: WhySo) -> str:
    """Return `placet why` for people."""
    lines = [
        f"{colour(visible(found.request_id), 'white', bold=True)}  {found.state}",
        *(local_times(harmless("\n".join(found.why)).split("\n"))),
    ]
    following = local_times(harmless("\n".join(found.next)).split("\n"))
    if found.next:
        lines += ["", colour("── next ", "white", bold=True), *(f"- {line}" for line in following)]
    return "\n".join(lines)
