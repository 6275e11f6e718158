"""The command line: parse, call one function, print. Data goes to stdout, talk to stderr."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

import click

from placet import __version__
from placet.core.errors import FULL, PlacetError, UserError, machine_says

P = ParamSpec("P")
R = TypeVar("R")


def _say(text: str) -> None:
    from placet.cli.text import harmless

    _echo(f"placet: {harmless(text)}", err=True)


def _boundary(command: Callable[P, R]) -> Callable[P, R]:
    """Turn the errors that a person can act on into a sentence on stderr and an exit code."""

    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except UserError as error:
            _fail(error)
        except PlacetError as error:  # of git, of a note: nothing that was foreseen here
            why = machine_says(error)
            _fail(
                UserError(
                    f"{why}: this could not be done. {error}" if why else str(error),
                    "Free some space, then try again."
                    if why == os.strerror(errno.ENOSPC)
                    else "Look at what it names, mend that, then try again.",
                )
            )
        except BrokenPipeError:
            # Whoever read our output has gone; the interpreter must not complain about it at exit
            # either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except UnicodeEncodeError as error:
            at = error.object[max(0, error.start - 20) : error.end + 20]
            _fail(UserError(f"This is not UTF-8: {at!a}", "Give text in UTF-8.", exit_code=2))
        except OSError as error:
            _fail(
                UserError(
                    f"{error.filename or 'the system'}: {error.strerror or error}",
                    f"{'Free some space there' if error.errno in FULL else 'Mend that'}, then try again.",
                )
            )
        except KeyboardInterrupt:
            sys.exit(130)

    return guarded


def _fail(error: UserError) -> NoReturn:
    from placet.cli.text import harmless

    _echo(f"placet: {harmless(error.what)}", err=True)
    if error.hint:
        _echo(f"  {harmless(error.hint)}", err=True)
    sys.exit(error.exit_code)


def _end_with(problems: Sequence[UserError]) -> None:
    """End with what stood in the way of showing all; what could be shown was shown."""
    for problem in problems:
        _fail(problem)


def _vault(given: str | None) -> Path:
    from placet.host.state import find_vault

    return find_vault(given, os.environ, _here())


def _here() -> Path:
    """Return the folder that we are in, by its name where it was deleted meanwhile."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.environ.get("PWD") or "/")


def _say_if_down(vault: str | None) -> None:
    """Say that nothing follows from what was just done before the daemon runs, if it does not."""
    from placet.cli.desk import daemon_runs

    if not daemon_runs(_vault(vault), os.environ):
        _say("the daemon is not running; nothing follows before: placet run")


vault_option = click.option(
    "--vault",
    "vault",
    metavar="DIR",
    callback=lambda context, _, given: given or context.obj,
    # also before the command
    help="The vault; else $PLACET_VAULT, else the folder you are in.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="placet")
@vault_option
@click.pass_context
def main(context: click.Context, vault: str | None) -> None:
    """Turn notes into plans, wait for your approval, and carry them out on a git branch."""
    context.obj = vault


@main.command()
@click.argument("folder", required=False, metavar="[DIR]")
@click.option(
    "--history/--no-history",
    "history",
    default=None,
    help="Whether placet may keep a history (git) of the vault; else it asks.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Ask nothing: a new vault gets a history, one that has notes does not.",
)
@click.pass_obj
@_boundary
def init(vault: str | None, folder: str | None, history: bool | None, yes: bool) -> None:
    """Make DIR a vault: folders, templates, agents, configuration.

    Nothing of yours is overwritten.
    """
    from placet.cli.init import init as run

    folder = folder or vault or "."
    place = Path(folder).expanduser().absolute()
    if history is None:
        history = _ask_for_history(place, yes=yes)
    made, kept = run(place, os.environ, history=history)
    for path in made:
        click.echo(path)
    where = "" if folder == "." else f" --vault {shlex.quote(folder)}"
    _say(f"{len(made)} files made, {len(kept)} were there already and stay as they are.")
    _say("Next:")
    for line in (
        "# the key; or provider and base_url in System/placet.toml",
        "export ANTHROPIC_API_KEY=…",
        f"placet run{where} # the daemon",
        "# in another terminal; or drop a note into Inbox/Requests",
        f"placet submit{where} 'Add a changelog'",
    ):
        click.echo(f"  {line}", err=True)


def _ask_for_history(place: Path, *, yes: bool) -> bool | None:
    """Return whether placet may keep a history of a vault, as the person says.

    None where nobody need be asked.
    """
    from placet.cli.init import history_of

    size = history_of(place)
    if size is None:
        return None
    default = not size.files
    if size.files or size.left_out:
        _say(
            f"A history (git) of this vault would hold {size.files:,} text files, {size.bytes / 1e6:.1f} MB. It leaves out "
            f"{size.left_out:,} attachments or large files, {size.left_out_bytes / 1e6:.1f} MB, and Inbox, System, .obsidian "
            "and .trash."
        )
    _say(
        "To change notes of the vault itself, placet needs a history of it (git): each change is then made aside, shown, and can "
        "be taken back. Work in other repositories (`portal: NAME`) needs none."
    )
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        return click.confirm(
            "placet: May placet keep a history of this vault?", default=default, err=True
        )
    _say(
        "It may keep one. To forbid it: placet init --no-history"
        if default
        else "It may not keep one, as the vault has notes already. To allow it: placet init --history"
    )
    return default


@main.command()
@vault_option
@click.option(
    "--once", is_flag=True, help="Work until nothing is left to do that needs no person, then exit."
)
@click.option(
    "--take-over", is_flag=True, help="Work on a vault that another machine's daemon has claimed."
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also say each call of a tool and of the model, with what it cost.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say only what goes wrong.")
@_boundary
def run(vault: str | None, once: bool, take_over: bool, verbose: bool, quiet: bool) -> None:
    """Run the daemon in the foreground. It says what happens, a line an event."""
    from placet.cli.follow import Voice, times_of_its_own
    from placet.core.text.story import Loud
    from placet.loop.app import daemon, heeding_signals

    loud = Loud.TROUBLE if quiet else Loud.DETAIL if verbose else Loud.EVENT
    with (
        heeding_signals() as ending,
        Voice(loud, times=not times_of_its_own(os.environ)) as voice,
        daemon(
            _vault(vault),
            os.environ,
            voice.say,
            take_over=take_over,
            follow=voice.rows,
            ending=ending,
        ) as running,
    ):
        if not once:
            voice.say(
                f"watching {running.vault} ({running.bell.mode.value}); stop with Ctrl-C",
                Loud.EVENT,
            )
            running.run()
            return
        tick = running.run_once()
    if tick.waiting:
        raise UserError(
            "not everything could be done:\n  " + "\n  ".join(tick.waiting),
            "It is kept and tried again by the next `placet run`.",
        )


@main.command()
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
@vault_option
@json_option
@_boundary
def submit(
    text: str | None,
    file: str | None,
    title: str | None,
    agent: str | None,
    portal: str | None,
    priority: int | None,
    budget_usd: str | None,
    vault: str | None,
    as_json: bool,
) -> None:
    """Drop a request into the vault."""
    from placet.cli.desk import submit as run

    if (text is None) == (file is None):
        raise click.UsageError("give the request either as TEXT or with --file")
    body = text if text is not None else _read(file or "")
    meta = {
        "agent": agent,
        "portal": portal,
        "priority": priority,
        "budget_usd": _number(budget_usd),
    }
    path = run(
        _vault(vault), body, title=title, meta={k: v for k, v in meta.items() if v is not None}
    )
    _out(path, {"path": path}, as_json=as_json)
    _say_if_down(vault)


@main.command()
@vault_option
@json_option
@_boundary
def status(vault: str | None, as_json: bool) -> None:
    """Show what is planned, what waits for you, and what runs."""
    from placet.cli.desk import status as run
    from placet.cli.text import status_text

    problems: list[UserError] = []
    found = run(_vault(vault), os.environ, problems.append)
    _out(status_text(found), found, as_json=as_json)
    _end_with(problems)


@main.command()
@vault_option
@json_option
@_boundary
def plans(vault: str | None, as_json: bool) -> None:
    """List the plans that await a decision."""
    from placet.cli.desk import plans as run
    from placet.cli.text import plans_text

    problems: list[UserError] = []
    found = run(_vault(vault), os.environ, problems.append)
    _out(plans_text(found), found, as_json=as_json)
    _end_with(problems)


@main.command()
@click.argument("ident", metavar="ID")
@vault_option
@json_option
@_boundary
def show(ident: str, vault: str | None, as_json: bool) -> None:
    """Show a request with its plan, its mission and its report.

    ID is a request_id or the beginning of a trace_id.
    """
    from placet.cli.desk import show as run
    from placet.cli.text import case_text

    problems: list[UserError] = []
    found = run(_vault(vault), os.environ, ident, problems.append)
    _out(case_text(found), found, as_json=as_json)
    _end_with(problems)


@main.command()
@click.argument("ident", metavar="ID")
@click.option(
    "--request",
    "only_request",
    is_flag=True,
    help="Print only a request that starts from where the mission broke.",
)
@vault_option
@json_option
@_boundary
def why(ident: str, only_request: bool, vault: str | None, as_json: bool) -> None:
    """Say why a request is where it is, and what to do next.

    Of a failed mission, what its report shows.
    """
    from placet.cli.desk import why as run
    from placet.cli.text import why_text

    problems: list[UserError] = []
    found = run(_vault(vault), os.environ, ident, problems.append)
    if not only_request:
        _out(why_text(found), found, as_json=as_json)
    elif found["mission"] is None:
        raise UserError(
            f"{ident} is {found['state']}: the journal has no mission of it that broke.",
            f"See: placet why {ident}",
        )
    else:
        click.echo(found["mission"]["request"], nl=False)
    _end_with(problems)


@main.command()
@click.argument("ident", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--digest",
    metavar="D",
    default="",
    help="Only if the plan is what has this digest (`placet show` has it), or the "
    "beginning of one.",
)
@vault_option
@json_option
@_boundary
def approve(ident: str, yes: bool, digest: str, vault: str | None, as_json: bool) -> None:
    """Approve a plan: move it to System/Active, as you would by hand.

    On a terminal it shows what that allows, and asks.
    """
    from placet.cli.desk import approve as run
    from placet.cli.desk import proposal
    from placet.cli.text import proposal_text

    if not yes and sys.stdin.isatty():
        found = proposal(_vault(vault), os.environ, ident)
        _echo(proposal_text(found), err=True)
        if not click.confirm("Approve it?", err=True):
            raise UserError(
                "Not approved; nothing was changed.", f"Read all of it: placet show {ident}"
            )
        digest = digest or found["digest"]  # what was shown is what is approved
    path = run(_vault(vault), os.environ, ident, digest)
    _out(path, {"path": path}, as_json=as_json)
    _say("approved; the daemon carries it out")
    _say_if_down(vault)


@main.command()
@click.argument("ident", metavar="ID")
@click.option(
    "--comment", "comments", multiple=True, metavar="C", help="What to do differently; repeatable."
)
@vault_option
@json_option
@_boundary
def retry(ident: str, comments: tuple[str, ...], vault: str | None, as_json: bool) -> None:
    """Ask for a new plan of a request that failed or was rejected.

    Who writes it is told what went wrong, and your comments.
    """
    from placet.cli.desk import retry as run

    path = run(_vault(vault), os.environ, ident, comments)
    _out(path, {"path": path}, as_json=as_json)
    _say("asked for; a new plan is written, and waits for you then")
    _say_if_down(vault)


@main.command()
@click.argument("ident", metavar="ID")
@click.option(
    "--reason", required=True, metavar="R", help="Why; it goes into the note and the journal."
)
@vault_option
@json_option
@_boundary
def reject(ident: str, reason: str, vault: str | None, as_json: bool) -> None:
    """Reject a plan: move it to Inbox/Rejected, with the reason."""
    from placet.cli.desk import reject as run

    path = run(_vault(vault), os.environ, ident, reason)
    _out(path, {"path": path}, as_json=as_json)
    _say_if_down(vault)


@main.command()
@click.argument("ident", metavar="ID")
@click.option(
    "--comment",
    "comments",
    multiple=True,
    required=True,
    metavar="C",
    help="What to change; repeatable.",
)
@vault_option
@json_option
@_boundary
def revise(ident: str, comments: tuple[str, ...], vault: str | None, as_json: bool) -> None:
    """Ask for changes in a plan: write comments into it and set it to needs_revision."""
    from placet.cli.desk import revise as run

    path = run(_vault(vault), os.environ, ident, comments)
    _out(path, {"path": path}, as_json=as_json)
    _say("the agent answers with a new revision")
    _say_if_down(vault)


@main.command()
@click.argument("ident", metavar="ID")
@vault_option
@json_option
@_boundary
def stop(ident: str, vault: str | None, as_json: bool) -> None:
    """Stop a mission at the next safe point: move its plan back to Inbox/Plans."""
    from placet.cli.desk import stop as run

    path = run(_vault(vault), os.environ, ident)
    _out(path, {"path": path}, as_json=as_json)
    _say("taken back; a mission that has begun stops at the next safe point, with a report")
    _say_if_down(vault)


@main.command()
@vault_option
@_boundary
def pause(vault: str | None) -> None:
    """Take up no new work; missions under way come to their end. Nothing is forgotten."""
    from placet.host.config import write_setting

    write_setting(_vault(vault), ("daemon", "paused"), value=True)
    _say("paused; go on with: placet resume")


@main.command()
@vault_option
@_boundary
def resume(vault: str | None) -> None:
    """Take work up again after `placet pause`."""
    from placet.host.config import write_setting

    write_setting(_vault(vault), ("daemon", "paused"), value=False)
    _say("resumed")


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD…")
@click.option(
    "--network", is_flag=True, help="With the network, as a scope with `network = true` has it."
)
@_boundary
def sandbox(command: tuple[str, ...], network: bool) -> None:
    """Run a command in exactly the box that the agent's commands get, with the folder you are in as the worktree."""
    from placet.cli.desk import in_sandbox

    sys.exit(in_sandbox(Path.cwd(), os.environ, command, network=network, say=_say))


@main.command()
@click.option(
    "--fix", is_flag=True, help="Remove what a crash left behind, after keeping its work at a ref."
)
@vault_option
@json_option
@_boundary
def doctor(vault: str | None, as_json: bool, fix: bool) -> None:
    """Look at everything that placet needs, and say what is missing and what helps."""
    from placet.cli.branches import remove_leftovers
    from placet.cli.desk import doctor as run
    from placet.cli.text import doctor_text

    try:
        for line in remove_leftovers(_vault(vault), os.environ) if fix else ():
            _say(line)
    except UserError as error:  # what is wrong is looked at all the same
        _say(f"nothing was removed: {error.what}")
    found = run(_vault(vault), os.environ)
    _out(doctor_text(found), found, as_json=as_json)
    if any(line["state"] == "bad" for line in found):
        sys.exit(1)


@main.command()
@_boundary
def states() -> None:
    """Draw the life cycle of a request as a Mermaid diagram."""
    from placet.core.life.case import diagram

    click.echo(diagram(), nl=False)


@main.command()
@click.argument("ident", metavar="ID")
@vault_option
@_boundary
def diff(ident: str, vault: str | None) -> None:
    """Show what a mission changed, as a patch; for a pipe or a file one that `git apply` takes."""
    from placet.cli.branches import diff as run
    from placet.cli.text import harmless

    text, patch = run(_vault(vault), os.environ, ident)
    # A program gets every byte, so that `git apply` takes it; a person nothing that could hide a
    # line.
    click.echo(harmless(text) if sys.stdout.isatty() else patch, nl=False, color=True)


@main.command()
@click.argument("ident", metavar="ID")
@click.option("--here", is_flag=True, help="Into the branch you are on, whichever it is.")
@vault_option
@json_option
@_boundary
def merge(ident: str, here: bool, vault: str | None, as_json: bool) -> None:
    """Merge a mission's branch into the branch you have checked out, if that checkout is clean."""
    from placet.cli.branches import merge as run

    sha, onto = run(_vault(vault), os.environ, ident, here=here)
    _out(sha, {"commit": sha, "branch": onto}, as_json=as_json)
    _say(
        f"merged into {onto}, unsigned and without your hooks; take it back with: placet undo {ident}"
    )


@main.command()
@click.argument("ident", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@vault_option
@json_option
@_boundary
def undo(ident: str, yes: bool, vault: str | None, as_json: bool) -> None:
    """Drop a mission's branch; or, where it was merged, take that back by a new commit."""
    from placet.cli.branches import undo as run

    made, onto = run(
        _vault(vault), os.environ, ident, lambda question: yes or click.confirm(question, err=True)
    )
    _out(made, {"commit": made, "branch": onto} if onto else {"kept": made}, as_json=as_json)
    _say(
        f"taken back by that commit on {onto}"
        if onto
        else "dropped; its commits are kept at that ref"
    )


@main.command()
@click.argument("ident", metavar="ID")
@click.option(
    "--reason", required=True, metavar="R", help="Why; it goes into the report and the journal."
)
@vault_option
@json_option
@_boundary
def drop(ident: str, reason: str, vault: str | None, as_json: bool) -> None:
    """Delete a mission's branch; its commits stay reachable at a ref."""
    from placet.cli.branches import drop as run

    kept = run(_vault(vault), os.environ, ident, reason)
    _out(kept, {"kept": kept}, as_json=as_json)
    _say("dropped; its commits are kept at that ref")


@main.group(invoke_without_command=True)
@vault_option
@json_option
@click.pass_context
@_boundary
def config(context: click.Context, vault: str | None, as_json: bool) -> None:
    """Show the settings that hold, and those of System/placet.toml that were not accepted on this machine."""
    context.obj = vault
    if context.invoked_subcommand is not None:
        return
    from placet.cli.desk import settings
    from placet.cli.text import settings_text

    found = settings(_vault(vault), os.environ)
    _out(settings_text(found), found, as_json=as_json)


@config.command("get")
@click.argument("key", metavar="KEY")
@vault_option
@_boundary
def config_get(key: str, vault: str | None) -> None:
    """Print the setting KEY as it holds, as JSON: model.name, or a whole table: portals."""
    from placet.cli.desk import setting

    click.echo(json.dumps(setting(_vault(vault), os.environ, key), ensure_ascii=False))


# a value may begin with `-`
@config.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key", metavar="KEY")
@click.argument("value", metavar="VALUE")
@vault_option
@_boundary
def config_set(key: str, value: str, vault: str | None) -> None:
    """Write the setting KEY into System/placet.toml; that accepts it on this machine.

    VALUE is TOML, or else a text.
    """
    from placet.cli.desk import change_setting

    click.echo(
        json.dumps(
            change_setting(_vault(vault), os.environ, key, value), ensure_ascii=False, default=str
        )
    )


@config.command("accept")
@click.option("--yes", is_flag=True, help="Do not ask.")
@vault_option
@_boundary
def config_accept(yes: bool, vault: str | None) -> None:
    """Let settings of System/placet.toml that are code or reach out hold on this machine.

    Shows them, and asks.
    """
    from placet.cli.desk import accept_settings, unaccepted
    from placet.cli.text import unaccepted_text

    folder = _vault(vault)
    found = unaccepted(folder, os.environ)
    if not found:
        _say("every setting holds as it is written")
        return
    click.echo(unaccepted_text(found))
    if not (yes or click.confirm("Accept them on this machine?", err=True)):
        _say("nothing was accepted")
        sys.exit(1)
    accept_settings(folder, os.environ, found)
    _say("accepted; a daemon that runs takes them up, [notify] and [commands] at its next start")


@main.group()
def portal() -> None:
    """Repositories that requests may name in `portal:`."""


@portal.command("add")
@click.argument("name", metavar="NAME")
@click.argument("path", metavar="PATH")
@vault_option
@_boundary
def portal_add(name: str, path: str, vault: str | None) -> None:
    """Name a repository in System/placet.toml, and write its card into Knowledge/Portals."""
    from placet.cli.portals import add_portal

    click.echo(add_portal(_vault(vault), os.environ, name, path, _here(), _say))
    _say(
        f"requests name it with `portal: {name}`; what agents should know of it goes into Knowledge/Portals/{name}.md"
    )


@portal.command("list")
@vault_option
@json_option
@_boundary
def portal_list(vault: str | None, as_json: bool) -> None:
    """List the portals."""
    from placet.cli.portals import portals
    from placet.cli.text import portals_text

    found = portals(_vault(vault), os.environ)
    _out(portals_text(found), found, as_json=as_json)


@portal.command("check")
@click.argument("name", required=False, metavar="[NAME]")
@vault_option
@json_option
@_boundary
def portal_check(name: str | None, vault: str | None, as_json: bool) -> None:
    """Look whether git takes the portals, say what a mission will feel there, and refresh their cards."""
    from placet.cli.portals import check_portals
    from placet.cli.text import portals_text

    found = check_portals(_vault(vault), os.environ, name)
    _out(portals_text(found), found, as_json=as_json)
    if any(line["problem"] for line in found):
        sys.exit(1)


@portal.command("remove")
@click.argument("name", metavar="NAME")
@vault_option
@_boundary
def portal_remove(name: str, vault: str | None) -> None:
    """Take a portal out of System/placet.toml; its repository and its card stay."""
    from placet.cli.desk import naming
    from placet.cli.portals import remove_portal

    folder = _vault(vault)
    remove_portal(folder, os.environ, name)
    for line in naming(folder, os.environ, name):
        _say(line)
    _say(f"removed; the repository and Knowledge/Portals/{name}.md stay as they are")


@main.command()
@click.argument("ident", metavar="ID")
@vault_option
@json_option
@_boundary
def replay(ident: str, vault: str | None, as_json: bool) -> None:
    """Carry a mission out again from its record, without model and network, and compare the result with its branch."""
    from placet.cli.desk import case_of
    from placet.cli.text import replay_text
    from placet.loop.app import replay_mission

    folder = _vault(vault)
    found = replay_mission(folder, os.environ, case_of(folder, os.environ, ident), _say)
    _out(replay_text(found), found, as_json=as_json)
    if not found["equal"]:
        sys.exit(1)


@main.group()
def notify() -> None:
    """Notices: that a plan waits, a mission ended, something needs you."""


@notify.command("test")
@vault_option
@_boundary
def notify_test(vault: str | None) -> None:
    """Send a notice every way that is on in System/placet.toml."""
    from placet.cli.desk import notify_test as run

    problems = run(_vault(vault), os.environ)
    if problems:
        raise UserError(
            "\n  ".join(problems), "Mend [notify] in System/placet.toml, then try again."
        )
    _say("sent")


@main.group(invoke_without_command=True)
@click.option(
    "--trace",
    metavar="ID",
    help="Only this request's rows: a request_id or the beginning of a trace_id.",
)
@click.option("--sql", metavar="QUERY", help="Run a read-only query on journal.db.")
@click.option("--follow", is_flag=True, help="Go on printing rows as they are written.")
@click.option(
    "--limit",
    type=click.IntRange(0, 2**62),
    metavar="N",
    help="How many of the last rows; else 50, of one request all.",
)
@vault_option
@json_option
@click.pass_context
@_boundary
def journal(
    context: click.Context,
    trace: str | None,
    sql: str | None,
    follow: bool,
    limit: int | None,
    vault: str | None,
    as_json: bool,
) -> None:
    """Read the journal: what happened, to what, by whom."""
    context.obj = vault
    if context.invoked_subcommand is not None:
        return
    from placet.cli.desk import journal_rows, journal_sql
    from placet.cli.text import row_text, table_text

    folder = _vault(vault)
    if sql is not None:
        columns, rows = journal_sql(folder, os.environ, sql)
        _out(
            table_text(columns, rows),
            [dict(zip(columns, row, strict=True)) for row in rows],
            as_json=as_json,
        )
        return
    for row in journal_rows(folder, os.environ, trace, limit=limit, follow=follow, routine=as_json):
        if as_json:
            click.echo(json.dumps(row, ensure_ascii=False))
        else:
            _echo(row_text(row))


@journal.command("verify")
@vault_option
@_boundary
def journal_verify(vault: str | None) -> None:
    """Check that no row, text or record was changed, taken out or put in.

    Print the last row's id and hash.

    Whoever can write the database can also make all of it anew, hashes and all. A hash that is kept
    elsewhere shows that: the row with its id must have it.
    """
    from placet.host.state import vault_state
    from placet.journal.maintenance import examine

    state = vault_state(_vault(vault), os.environ)
    row_id, row_hash, problem = examine(state.journal, state.mark)
    if problem:
        raise UserError(
            f"the journal is not as it was written: {problem}",
            "Put it back from a backup, or keep it aside as it is.",
        )
    click.echo(f"{row_id} {row_hash}")
    _say(
        f"whole up to row {row_id}. Who can write this file can make it anew: keep the hash elsewhere, and compare later"
    )


@journal.command("backup")
@click.argument("target", type=click.Path())
@vault_option
@_boundary
def journal_backup(target: str, vault: str | None) -> None:
    """Copy the journal to TARGET, one file with all that it names, while the daemon goes on."""
    from placet.host.state import vault_state
    from placet.journal.maintenance import backup

    try:
        lost = backup(
            vault_state(_vault(vault), os.environ).journal, Path(target).expanduser().absolute()
        )
    except OSError as error:
        raise UserError(
            f"{target} cannot be written: {error.strerror}",
            "Name a file, in a folder that is there.",
        ) from error
    click.echo(target)
    for one in lost:
        _say(f"not in the copy: {one}")


@journal.command("path")
@vault_option
@_boundary
def journal_path(vault: str | None) -> None:
    """Print where the journal's database is."""
    from placet.host.state import vault_state

    click.echo(vault_state(_vault(vault), os.environ).journal)


@main.group(invoke_without_command=True)
@vault_option
@click.pass_context
@_boundary
def events(context: click.Context, vault: str | None) -> None:
    """Print what the daemon does as it happens, a line of JSON each, until it stops."""
    context.obj = vault
    if context.invoked_subcommand is not None:
        return
    from placet.cli.desk import live_events

    for line in live_events(_vault(vault), os.environ):
        click.echo(line)
    _say("the daemon has stopped")


@events.command("path")
@vault_option
@_boundary
def events_path(vault: str | None) -> None:
    """Print where the socket is that sends these lines to any client of yours."""
    from placet.cli.desk import events_path as run

    click.echo(run(_vault(vault), os.environ))


@events.command("schema")
@_boundary
def events_schema() -> None:
    """Print the JSON Schema of a line."""
    from placet.host.events import EVENT

    click.echo(json.dumps(EVENT.json_schema(), indent=2))


@main.command()
@click.option("--keep", metavar="DIR", help="Keep the demo's vault here, to look around in.")
@click.option("--live", is_flag=True, help="Use the real model; needs ANTHROPIC_API_KEY.")
@click.option("--fast", is_flag=True, help="Without pauses. On a terminal any key skips one.")
@_boundary
def demo(keep: str | None, live: bool, fast: bool) -> None:
    """See the whole of it in a minute: request, plan, approval, mission, report."""
    from placet.cli.demo import run as run_demo

    run_demo(Path(keep).expanduser().absolute() if keep else None, live=live, fast=fast)


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


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _out(text: str, data: Any, *, as_json: bool) -> None:
    if as_json:
        click.echo(_encodable(json.dumps(data, ensure_ascii=False, indent=2, default=_plain)))
        return
    _echo(text)


def _echo(text: str, *, err: bool = False) -> None:
    """Print for people: on a terminal as wide as that is; what is piped is left whole."""
    if (sys.stderr if err else sys.stdout).isatty():
        from placet.cli.text import fitted

        text = fitted(text, shutil.get_terminal_size().columns)
    click.echo(_encodable(text), err=err)


def _encodable(text: str) -> str:
    """Return a text with names that are not UTF-8 made readable.

    In JSON that is the escape of what they are.
    """
    return text.encode(errors="backslashreplace").decode()
