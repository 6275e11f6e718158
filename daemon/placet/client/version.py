"""Name this build: the version, and the commit of a build that is not a release.

hatchling runs this file to name a wheel, so it imports nothing but the version.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from placet import __version__

ROOT = Path(__file__).parents[3]


def of_checkout() -> str:
    """Return the version of the checkout that this file is in.

    A release is a commit with the tag `v` and its version. Without git the commit is unknown.
    """
    if not (ROOT / ".git").exists():
        return __version__
    tag = f"v{__version__}"
    line = ["git", "-C", str(ROOT), "describe", "--tags", "--always", "--long", "--abbrev=8",
            "--dirty=.changed", f"--match={tag}"]  # fmt: skip
    try:
        output = subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return __version__
    if output.startswith(f"{tag}-0-g") and not output.endswith(".changed"):
        return __version__
    return f"{__version__}+g{output.rpartition('-g')[2]}"


def of_this_program() -> str:
    """Return the version of the program that runs: of its checkout, or of its wheel."""
    if (ROOT / ".git").exists():
        return of_checkout()
    from importlib.metadata import version  # loads email, which no other command needs

    return version("placet")
