"""Run the daemon as a service that starts when you log in: `placet service`."""

from __future__ import annotations

import subprocess
from shlex import quote

import click

from placet.cli.options import site_option
from placet.cli.terminal import say
from placet.client.service import key_file, service_of
from placet.client.site import Site
from placet.disk.files import put
from placet.errors import UserError


@click.group("service")
def service_command() -> None:
    """Run the daemon as a service: systemd of your user on Linux, launchd on macOS."""


@service_command.command("install")
@site_option
def service_install_command(site: Site) -> None:
    """Write the service of the vault, and start it, now and whenever you log in.

    The model's key is not in it: the service reads that from a file that only you can read.
    """
    service = service_of(site)
    service.path.parent.mkdir(parents=True, exist_ok=True)
    put(service.path, service.text.encode())
    click.echo(service.path)
    for command in service.start:
        _run(site, command)
    if not (key := key_file(site.env)).exists():
        say(
            f"The service does not see your shell's variables. If the model needs a key, write it "
            f"into {key}: (umask 077; mkdir -p {quote(str(key.parent))}; cat > {quote(str(key))})"
        )


@service_command.command("uninstall")
@site_option
def service_uninstall_command(site: Site) -> None:
    """Stop the service of the vault and delete its file; vault, journal and key stay."""
    service = service_of(site)
    _run(site, service.stop)
    if any(service.path.parent.glob("*.wants/placet@?*.service")):
        say(f"{service.path} stays: another vault's service starts from it")
    else:
        service.path.unlink(missing_ok=True)
        say(f"deleted {service.path}")


@service_command.command("status")
@site_option
def service_status_command(site: Site) -> None:
    """Print what the service manager says of the vault's service; exit code 1 if it is not up."""
    _run(site, service_of(site).status)


@service_command.command("print")
@site_option
def service_print_command(site: Site) -> None:
    """Print the file that `install` writes."""
    click.echo(service_of(site).text, nl=False)


def _run(site: Site, command: str) -> None:
    """Show and run a shell command, which prints for itself. Raises UserError where it fails."""
    click.echo(f"$ {command}", err=True)
    code = subprocess.run(["sh", "-c", command], env=dict(site.env), check=False).returncode
    if code:
        raise UserError(
            f"The service manager answers with exit code {code}.",
            f"Without a service: placet run --vault {quote(str(site.vault))}",
        )
