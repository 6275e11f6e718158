"""`take_screenshot`: take a picture of a page with a headless browser in a separate box.

The browser sees the worktree read-only and can write nowhere but in a folder that is thrown away.
Only the headless shell of Chromium can run so: the whole browser ends at once where it cannot make
a unix socket, and the box has none.
"""

from __future__ import annotations

import re
import shutil
import struct
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from placet.chat.guards import Effect
from placet.disk.confine import Root
from placet.errors import ToolError
from placet.plan.scope import Scope
from placet.sandbox.box import Box, Level
from placet.secret_files import is_secret_path
from placet.secrets import redact
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace
from placet.tools.output import Picture
from placet.tools.text import known_secrets

# Programs that can take the picture, searched on the PATH in this order.
BROWSERS = ("chromium-headless-shell", "chrome-headless-shell")
WHOLE_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

WIDTH, HEIGHT = 1280, 800
MAX_PNG_BYTES = 3_500_000  # the Messages API takes images of at most 5 MB in base64
TIMEOUT_S = 60.0
SETTLE_MS = 5_000  # for a page's scripts after it is loaded, by the browser's virtual clock

# No user name, no other scheme; what follows `#` stays here.
_LOCAL = re.compile(
    r"(?P<address>https?://(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?(?:[/?][^\s#]*)?)(?:#.*)?",
    re.IGNORECASE | re.ASCII,
)
_PNG = b"\x89PNG\r\n\x1a\n"
_SYSTEM = tuple(map(Path, ("/etc/fonts", "/opt/google/chrome")))


class TakeScreenshot(Args):
    """Arguments of `take_screenshot`."""

    path: str = Field(
        default="",
        description="A page of the repository, relative to its root. Either this or url.",
    )
    url: str = Field(
        default="",
        description="An address on this machine: http://127.0.0.1:8000/. "
        "Needs network in the scope.",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.path) is bool(self.url):
            raise ValueError("give either path or url")
        return self


def _browser() -> str | None:
    return next((name for name in BROWSERS if shutil.which(name)), None)


def _unusable(_scope: Scope, level: Level) -> str:
    if level < Level.LANDLOCK:
        return (
            f"a browser runs only in a sandbox of level {Level.LANDLOCK.value} or higher, "
            f"and this machine's is {level.value}"
        )
    if _browser() is None:
        browser = next((name for name in WHOLE_BROWSERS if shutil.which(name)), None)
        missing = (
            f"{browser} is here, but cannot run in the sandbox"
            if browser
            else "there is no headless browser on this machine"
        )
        return f"{missing}; a person can install one: apt-get install chromium-headless-shell"
    return ""


def _run(place: Workplace, args: TakeScreenshot) -> Picture:
    if why := _unusable(place.scope, place.level):
        raise ToolError("no_browser", f"No picture can be taken: {why}.")
    address = _page(place, args.path) if args.path else _loopback(place, args.url)
    browser = _browser()
    assert browser is not None
    with tempfile.TemporaryDirectory(prefix="placet-picture-") as scratch:
        limits = replace(place.box.limits, timeout_s=min(TIMEOUT_S, place.box.limits.timeout_s))
        readable = (place.box.worktree, *(path for path in _SYSTEM if path.is_dir()))
        box = Box(
            Path(scratch),
            network=bool(args.url),
            limits=limits,
            readable=readable,
            hidden=(place.box.worktree, *place.box.hidden),
        )
        ran = place.run(
            _command(browser, scratch, address, place.level),
            box,
            place.level,
            cancelled=place.cancelled,
        )
        # Through a handle: a page that took the browser over might have left a link there.
        with Root(Path(scratch), writable=False, max_read_bytes=MAX_PNG_BYTES) as folder:
            try:
                png = folder.read("page.png")
            except ToolError as error:
                ended = (
                    "was ended at its time limit"
                    if ran.killed == "time"
                    else f"ended with exit code {ran.exit_code}"
                )
                raise ToolError(
                    "no_picture",
                    f"The browser {ended} and left no picture: {error.message}. Its last words: "
                    f"{ran.stderr.strip()[-300:]}",
                ) from error
    if not png.startswith(_PNG) or len(png) < 24:
        raise ToolError("no_picture", "The browser's file is not a PNG picture.")
    width, height = struct.unpack(">II", png[16:24])
    return Picture(
        png, {"page": args.path or args.url, "width": width, "height": height, "bytes": len(png)}
    )


def _command(browser: str, scratch: str, address: str, level: Level) -> list[str]:
    """Return the browser's command line for a picture `scratch/page.png`.

    Landlock hides /proc, where the browser's processes meet. In a single process the virtual clock
    never starts, so the picture is taken as soon as the page is loaded.
    """
    by_level = (
        ["--single-process", "--no-zygote"]
        if level is Level.LANDLOCK
        else [f"--virtual-time-budget={SETTLE_MS}"]
    )
    return [
        browser,
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--no-first-run",
        "--disable-extensions",
        "--disable-background-networking",
        "--mute-audio",
        # The address is checked, the links of its page are not: no other host has a name.
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1, EXCLUDE ::1",
        *by_level,
        f"--user-data-dir={scratch}/profile",
        f"--window-size={WIDTH},{HEIGHT}",
        f"--screenshot={scratch}/page.png",
        address,
    ]


def _page(place: Workplace, path: str) -> str:
    """Return a file of the worktree as an address; raise ToolError if it could show a secret."""
    canonical = place.root.relative(path)
    data, real = place.root.read_through(canonical)
    text = data.decode(errors="replace")
    is_secret = is_secret_path(canonical) or is_secret_path(real)
    # What is in a picture cannot be redacted, and a page can show any file of the worktree in a
    # frame.
    if is_secret or redact(text, place.secrets)[1] or known_secrets(place.root):
        raise ToolError(
            "secret_file",
            "No picture is taken if the page or the repository holds secrets (.env, keys, tokens).",
            refused=True,
        )
    return (place.box.worktree / canonical).as_uri()


def _loopback(place: Workplace, url: str) -> str:
    """Return a checked address on this machine. Raises ToolError."""
    if not place.scope.network:
        raise ToolError(
            "outside_scope",
            "An address cannot be opened: the approved plan has no `network = true`. A page of the "
            "repository can be: give its path.",
            refused=True,
        )
    found = _LOCAL.fullmatch(url)
    if found is None:
        raise ToolError(
            "outside_scope",
            "Only addresses on this machine can be opened: http://127.0.0.1:8000/ and the like.",
            refused=True,
        )
    return found["address"]


TOOL = Tool(
    "take_screenshot",
    f"Take a picture ({WIDTH} by {HEIGHT}) of a page of the repository, or of an address on this "
    "machine.",
    TakeScreenshot,
    Effect.EXECUTE,
    _run,
    subject=("path", "url"),
    unusable=_unusable,
)
