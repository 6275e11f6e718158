"""Notes opened in a person's own programs."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess

from placet.cli.site import Site
from placet.core.errors import UserError


def open_in_editor(site: Site, path: str) -> None:
    """Open a note in `$VISUAL` or `$EDITOR`, and wait until it is closed.

    Raises UserError where none is set, or it cannot be started or fails.
    """
    said = site.env.get("VISUAL") or site.env.get("EDITOR") or ""
    try:
        argv = shlex.split(said)
    except ValueError:
        argv = []
    if not argv:
        raise UserError(f"No editor is set for {path}.", "Set one: export EDITOR=nano")
    try:
        process = subprocess.Popen([*argv, str(site.vault / path)])
    except OSError as error:
        other = "vi" if argv[0].endswith("nano") else "nano"
        raise UserError(
            f"{argv[0]} cannot be started: {error.strerror}.", f"Set another: export EDITOR={other}"
        ) from error
    # Ctrl-C is the editor's, as under git
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    if code:
        raise UserError(f"{argv[0]} ended with exit code {code}.", "Look at the note again.")


def open_in_obsidian(site: Site, path: str) -> str:
    """Open a note in Obsidian, where a program for links is there; return the link."""
    from placet.host.notify import obsidian_link  # HTTP comes with it, which takes long to import

    link = obsidian_link(site.vault.name, path)
    opener = shutil.which("xdg-open") or shutil.which("open")
    if opener is not None:
        with open(os.devnull, "r+b") as null:  # noqa: PTH123 - a device
            subprocess.Popen(
                [opener, link], stdin=null, stdout=null, stderr=null, start_new_session=True
            )
    return link
