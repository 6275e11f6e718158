"""`placet service`: the daemon as a service, which starts when you log in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import join, quote

import click

from placet.cli.site import Site, json_option, site_option
from placet.cli.supervisors import (
    Argv,
    Service,
    launchd_service,
    program,
    systemd_service,
)
from placet.cli.terminal import echo, local_times, out, say
from placet.core.errors import UserError, cannot_write
from placet.core.secret_files import environment_secrets
from placet.core.text.names import show as visible
from placet.host.state import write_private

PATIENCE_S = 120.0
PLATFORM = sys.platform
KEY = "ANTHROPIC_API_KEY"


@click.group("service")
def service_command() -> None:
    """Run the daemon as a service: systemd of your user on Linux, launchd on macOS."""


@service_command.command("install")
@click.option("--dry-run", is_flag=True, help="Say what would be written and run; do nothing.")
@site_option
def service_install_command(site: Site, dry_run: bool) -> None:
    """Write the service of the vault, and start it, now and whenever you log in.

    Says each file that it writes and each command that it runs. The model's key is not in it: the
    service reads that from a file that only you can read.
    """
    site.in_force()  # a configuration that cannot be used would end the service at once
    service = service_of(site)
    if dry_run:
        # as it is, however wide the terminal
        click.echo(f"# would write {service.path}:\n{service.text}\n# would run:")
        for argv in (*service.reload, *service.start):
            echo(f"$ {join(argv)}")
        say("nothing was written or run. To do it: placet service install")
        return
    _must_have_manager(site, service)
    running = _runs(site, service)
    if not running and (holder := site.daemon):
        raise UserError(
            "A daemon runs on this vault already, and not as a service: "
            f"{local_times([holder])[0]}.",
            "End it (Ctrl-C where it runs), then: placet service install",
        )
    _make_folders(service)
    with _written(site, service):
        for argv in (*service.reload, *(service.again if running else ()), *service.start):
            _run(site, argv, service.helps)
    click.echo(service.path)
    say(f"{service.name} runs. See it: placet service status, placet service logs --follow")
    _say_key(site, service)
    if PLATFORM == "linux":
        say("It ends when you log out. To have it always: loginctl enable-linger")


@service_command.command("uninstall")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted and run; do nothing.")
@site_option
def service_uninstall_command(site: Site, dry_run: bool) -> None:
    """Stop the service of the vault and delete its file; vault, journal and key stay."""
    service = service_of(site)
    if not service.path.exists():
        say(f"there is no service: {service.path} is not there")
        return
    if dry_run:
        for argv in (*service.stop, *service.reload):
            echo(f"$ {join(argv)}")
        echo(f"# deletes {service.path}, unless another vault's service needs it")
        return
    _must_have_manager(site, service)
    try:
        for argv in service.stop:
            _run(site, argv, f"See what it says: {join(service.is_running)}")
    except UserError:
        if _runs(site, service):
            raise
        say("it did not run")
    others = _others(service)
    if others:
        say(f"{service.path} stays: {', '.join(map(visible, others))} needs it")
    else:
        service.path.unlink()
        say(f"deleted {service.path}")
    for argv in service.reload:
        _run(site, argv, "")


@service_command.command("status")
@site_option
@json_option
def service_status_command(site: Site, as_json: bool) -> None:
    """Say whether the service of the vault is installed and runs; exit code 1 if it does not."""
    service = service_of(site)
    problem = _no_manager(site, service)
    running = not problem and _runs(site, service)
    installed = service.path.exists()
    found = {
        "name": service.name,
        "file": str(service.path),
        "installed": installed,
        "running": running,
        "daemon": site.daemon,
        "problem": problem,
    }
    helps = "" if running else "placet service install"
    if installed and not running:
        helps = "placet service logs, then: placet service install"
    lines = [
        f"service  {service.name}",
        f"file     {service.path}{'' if installed else ', not there'}",
        f"runs     {'yes' if running else 'no'}{f' ({helps})' if helps and not problem else ''}",
        *local_times([f"daemon   {found['daemon'] or 'not running'}"]),
    ]
    out("\n".join(lines), found, as_json=as_json)
    if problem:
        say(problem)
    if not running:
        sys.exit(1)


@service_command.command("logs")
@click.option("-f", "--follow", is_flag=True, help="Go on printing lines as they come.")
@click.option("--lines", type=click.IntRange(0), default=100, help="How many of the last lines.")
@site_option
def service_logs_command(site: Site, follow: bool, lines: int) -> None:
    """Print what the service says: its lines in the manager's log."""
    service = service_of(site)
    if not service.path.exists():
        raise UserError(
            f"The service is not installed: {service.path} is not there.",
            f"Install it: placet service install. Lines of an older one: {join(service.logs)}",
        )
    argv = (*service.logs, "-n", str(lines), *(service.follow if follow else ()))
    try:
        code = subprocess.run(argv, env=_environment(site), check=False).returncode
    except OSError as error:
        raise UserError(
            f"{argv[0]} cannot be started: {error.strerror}.", "See what happened: placet journal"
        ) from error
    if code:
        sys.exit(1)


def service_of(site: Site) -> Service:
    """Return the service of a vault. Raises UserError where this system has no manager we know."""
    placet = program(site.env)
    if PLATFORM == "darwin":
        log = site.state.folder / "service.log"
        return launchd_service(site.vault, site.state.folder.name, log, placet, site.env)
    if PLATFORM == "linux":
        return systemd_service(site.vault.resolve(), _template(), placet, site.env)
    raise UserError(
        f"placet knows no service manager of {PLATFORM}.",
        f"Let yours start: placet run --vault {quote(str(site.vault))}",
    )


def _template() -> str:
    """Return the unit that placet comes with, of the package or of its checkout."""
    inside = Path(__file__).parents[1] / "systemd"
    folder = inside if inside.is_dir() else Path(__file__).parents[3] / "systemd"
    return (folder / "placet@.service").read_text(encoding="utf-8")


def _must_have_manager(site: Site, service: Service) -> None:
    if problem := _no_manager(site, service):
        raise UserError(
            f"{problem} Nothing was changed.",
            f"Run it without one: placet run --vault {quote(str(site.vault))}",
        )


def _no_manager(site: Site, service: Service) -> str:
    """Return why the user's service manager cannot be asked, in a sentence; empty if it can."""
    try:
        done = _started(site, service.probe)
    except UserError as error:
        return f"No service manager of yours runs here, as in a container: {error.what}"
    if done.returncode:
        said = visible(" ".join(done.stderr.split())[:200])
        return f"No service manager of yours runs here, as in a container ({said})."
    return ""


def _runs(site: Site, service: Service) -> bool:
    return _started(site, service.is_running).returncode == 0


def _make_folders(service: Service) -> None:
    for folder, mode in ((service.path.parent, 0o755), (service.key.parent, 0o700)):
        try:
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(folder, error) from error


@contextmanager
def _written(site: Site, service: Service) -> Iterator[None]:
    """Write the service's file; if what follows fails, all is again as it was before."""
    before = service.path.read_bytes() if service.path.exists() else None
    try:
        write_private(service.path, service.text.encode())
    except OSError as error:
        raise cannot_write(service.path, error) from error
    say(f"wrote {service.path}" if before is None else f"wrote {service.path} again")
    try:
        yield
    except BaseException:  # Ctrl-C, too
        if before is None:
            _try(site, service.stop)
            if not _others(service):
                service.path.unlink(missing_ok=True)
                say(f"deleted {service.path} again")
        else:
            write_private(service.path, before)
            say(f"{service.path} is again what it was")
        _try(site, service.reload)
        raise


def _try(site: Site, commands: Sequence[Argv]) -> None:
    for argv in commands:
        echo(f"  $ {join(argv)}", err=True)
        _started(site, argv)


def _run(site: Site, argv: Argv, helps: str) -> None:
    """Say and run a command. Raises UserError with what it says, and with what `helps`."""
    echo(f"  $ {join(argv)}", err=True)
    done = _started(site, argv)
    if done.returncode:
        said = visible(" ".join(f"{done.stdout} {done.stderr}".split())[:500])
        raise UserError(f"{join(argv)} failed, exit code {done.returncode}: {said}", helps)


def _started(site: Site, argv: Argv) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv,
            env=_environment(site),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = error.strerror if isinstance(error, OSError) else "it does not end"
        raise UserError(f"{argv[0]} cannot be run: {why}.", "") from error


def _environment(site: Site) -> dict[str, str]:
    """Return the environment of a manager's command: without secrets."""
    secrets = set(environment_secrets(site.env))
    return {name: value for name, value in site.env.items() if name != KEY and value not in secrets}


def _others(service: Service) -> list[str]:
    """Return the services of other vaults that start from the same file."""
    if not service.several:
        return []
    links = service.path.parent.glob("*.wants/placet@?*.service")
    return sorted({link.name for link in links} - {service.name})


def _say_key(site: Site, service: Service) -> None:
    """Say how the service gets the model's key, where it needs one and has none."""
    model = site.in_force().config.model
    if service.key.exists() or model.provider != "anthropic" or model.base_url:
        return
    where = quote(str(service.key))
    source = f"printenv {KEY}" if site.env.get(KEY) else "cat"
    say(
        f"It has no key for the model yet: a service does not see {KEY} of your shell. Write it "
        f"into a file that only you can read, then start it again: (umask 077; {source} > {where}) "
        "&& placet service install"
    )
