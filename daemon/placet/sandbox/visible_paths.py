"""Choose the paths visible in a box: tool chains yes, the user's home no.

The rules, in order:

1. /usr, /bin, /sbin, /lib*, /nix/store, /gnu/store and a short list of files in /etc are readable.
2. PATH has the programs of the environments that the checkout brings (`Box.shared`) or that are
   configured (`Box.readable`), then the daemon's absolute, readable entries, and last placet's own
   environment. It has no entry inside the worktree or, unless it is brought, inside the checkout,
   and neither the home itself nor a folder above it. Each entry is readable.
3. An entry below a version manager (`_MANAGERS`, under the home) makes that manager's folder
   readable.
4. An entry of a virtual environment (`pyvenv.cfg` next to `bin`) makes the whole environment
   readable. So is the Python that it was made from.
5. Any other entry named `bin` or `sbin` makes its siblings `lib`, `lib64`, `libexec`, `include` and
   `share` readable. Exceptions: `share` in ~/.local (key rings, mail), and every sibling of ~/bin.
6. rustup's programs are proxies that need the home, so the default tool chain's `bin` comes before
   them. ~/.cargo itself stays invisible, because it may hold credentials.
7. No folder that contains the worktree, the vault or the daemon's state (`Box.hidden`) is readable
   whole. Only its `bin`, `lib` and the like are.
8. `Box.readable`, which users configure, is readable, and so is `Box.shared`.
9. Caches of package managers (`_CACHES`) are readable, without settings that hold logins.

Nothing else is visible. The home is empty otherwise, and at level 3 at its real place.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from placet.disk.real_path import real_path
from placet.errors import ToolError
from placet.sandbox.box import Box
from placet.secrets import redact

SYSTEM = tuple(
    Path("/", name)
    for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix/store", "gnu/store")
)
"""System folders that every box may read, if they exist."""

ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version",
    "group", "host.conf", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias",
    "localtime", "lsb-release", "magic", "mime.types", "nsswitch.conf", "os-release", "passwd",
    "pki/ca-trust", "pki/tls/certs", "pki/tls/openssl.cnf", "protocols", "resolv.conf", "services",
    "shells", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
    # Debian's Maven and Java do not start without their own
    "maven/m2.conf", "maven/logging", "maven/toolchains.xml",
    *sorted(p.name for p in Path("/etc").glob("java-*-openjdk")),
)  # fmt: skip
"""Files of /etc that tools read and that hold no secret."""

_MANAGERS = (
    ".pyenv", ".rbenv", ".nodenv", ".nvm", ".volta", ".asdf", ".sdkman/candidates",
    ".rustup/toolchains", ".local/share/mise/installs", ".local/share/uv/python", "miniconda3",
    "miniforge3", "anaconda3",
)  # fmt: skip

_CACHES = (
    ".cargo/registry", ".cargo/git", ".cargo/config.toml", ".m2/repository", ".m2/wrapper",
    ".gradle/wrapper", "go/pkg/mod", ".cache/pre-commit", ".npm/_cacache",
)  # fmt: skip


_MAVEN = Path("/etc/maven/settings.xml")


@dataclass(frozen=True, slots=True)
class VisiblePaths:
    """A box's PATH, and the `tools` to show read-only besides SYSTEM and ETC.

    `caches` are those of the home, by their paths in it.
    """

    path: tuple[str, ...]
    tools: tuple[Path, ...]
    caches: dict[str, Path]


def see(box: Box) -> VisiblePaths:
    """Return what this box sees, from the daemon's PATH, home and interpreter."""
    home = Path.home()
    rustup = Path(os.environ.get("RUSTUP_HOME") or home / ".rustup")
    own = (box.worktree, box.folder)
    top = [shown for path, shown in box.brought.items() if len(path.parts) == 1]
    project = tuple(filter(is_environment, (*top, *box.readable)))
    shown = (*box.brought.values(), *box.readable)
    return _see(os.environ.get("PATH", ""), home, rustup, own, box.hidden, shown, project)


@lru_cache(maxsize=64)  # cached: it takes 9 ms, which would be half the cost of a command
def _see(
    path: str,
    home: Path,
    rustup: Path,
    own: tuple[Path, ...],
    hidden: tuple[Path, ...],
    readable: tuple[Path, ...],
    project: tuple[Path, ...],
) -> VisiblePaths:
    named = [Path(entry) for entry in path.split(os.pathsep) if entry]
    placet = Path(sys.executable).parent
    if sys.prefix != sys.base_prefix:  # its own environment, for which its daemon may be started
        named = [entry for entry in named if entry != placet]
    entries = [
        entry
        for entry in (*(folder / "bin" for folder in project), *named, placet)
        if _usable(entry, home)
        and (any(entry.is_relative_to(r) for r in readable) or not _lies_in(entry, own))
    ]
    entries = [e for entry in entries for e in (*_rust_tool_chain(entry, rustup), entry)]
    entries = list(dict.fromkeys(entries))
    brought = (folder / "bin" for folder in readable if is_environment(folder))
    tools = [tool for entry in (*entries, *brought) for tool in _tool_chain(entry, home)]
    tools += _shown_prefix(Path(sys.prefix), home)
    tools += _shown_prefix(Path(sys.base_prefix), home)
    tools += [_MAVEN] if _is_cache(_MAVEN) else []
    tools = [part for tool in tools for part in _without(tool, (*own, *hidden))]
    tools = [tool for tool in tools if not _lies_in(tool, own)]
    caches = {name: home / name for name in _CACHES if _is_cache(home / name)}
    return VisiblePaths(tuple(map(str, entries)), _outermost([*tools, *readable]), caches)


def is_environment(folder: Path) -> bool:
    """Return whether a folder is an environment of Python, of `venv` or conda."""
    marks = (folder / "pyvenv.cfg", folder / "conda-meta")
    return any(map(os.path.exists, marks)) and _open_folder(folder / "bin")


def _is_cache(path: Path) -> bool:
    """Return whether a cache is there, and no settings with a login."""
    if path.is_file():
        text = re.sub(r"(?s)<!--.*?-->", "", path.read_text("utf-8", "replace"))
        return "<password>" not in text and not redact(text)[1]
    return _open_folder(path) and not path.is_symlink()


def _lies_in(path: Path, folders: tuple[Path, ...]) -> bool:
    return any(
        p.is_relative_to(f)
        for folder in folders
        for p, f in ((path, folder), (real_path(path), real_path(folder)))
    )


def _without(tool: Path, hidden: tuple[Path, ...]) -> list[Path]:
    """Return the folder, or, if it contains something hidden, its parts that do not."""

    def has(folder: Path) -> bool:
        return any(real_path(path).is_relative_to(real_path(folder)) for path in hidden)

    if not has(tool):
        return [tool]
    parts = (tool / name for name in ("bin", "lib", "lib64", "libexec", "include", "pyvenv.cfg"))
    return [part for part in parts if part.exists() and not has(part)]


def program(name: str, box: Box, view: VisiblePaths) -> str:
    """Return the absolute path of the program that `name` means in the box.

    A bare name is looked up in the view's PATH, which never leads into the worktree. A relative
    path starts at the worktree and must stay in it. One below a shared path of the checkout is
    looked up there. Raises ToolError if there is no such program, or it cannot be run or seen.
    """
    if "/" not in name:
        for entry in view.path:
            candidate = f"{entry}/{name}"
            if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
                return _visible(candidate, name, box, view)
        raise ToolError("command_not_found", f"no such program on the path: {name}")
    inside = Path(os.path.normpath(box.folder / name))
    if not name.startswith("/") and not inside.is_relative_to(box.folder):
        raise ToolError(
            "outside_worktree", f"the program is outside the worktree: {name}", refused=True
        )
    file = _on_disk(inside, name, box)
    if not file.is_file():
        raise ToolError("command_not_found", f"no such program: {name}")
    if not os.access(file, os.X_OK):
        raise ToolError("not_executable", f"the file is not executable: {name}")
    _visible(str(file), name, box, view)
    return str(inside)


def _on_disk(inside: Path, name: str, box: Box) -> Path:
    """Return the file of a path in the box; ToolError for one that only the checkout has."""
    if not inside.is_relative_to(box.folder):
        return inside
    path = inside.relative_to(box.folder)
    if box.checkout and any(path.is_relative_to(shared) for shared in box.shared):
        return box.checkout / path
    if box.checkout and not (box.worktree / path).exists() and (box.checkout / path).is_file():
        raise ToolError("command_not_found", NOT_SHOWN.format(name))
    return box.worktree / path


NOT_SHOWN = (
    "{} is in your checkout, but git ignores it, so commands do not see it. A person can show its "
    "folder: `see` of this portal in System/placet.toml (placet portal check)"
)
"""Why a program is not found that the checkout has."""


def _visible(candidate: str, name: str, box: Box, view: VisiblePaths) -> str:
    real = real_path(Path(candidate))
    if any(real.is_relative_to(root) for root in SYSTEM):
        return candidate
    shown = (*view.tools, *view.caches.values(), box.worktree, *box.read_only)
    if any(real.is_relative_to(real_path(r)) for r in (*shown, *box.brought.values())):
        return candidate
    raise ToolError("command_not_found", f"the program is not visible in the sandbox: {name}")


def _usable(entry: Path, home: Path) -> bool:
    if not entry.is_absolute() or ".." in entry.parts or not _open_folder(entry):
        return False
    return not home.is_relative_to(entry) and not real_path(home).is_relative_to(real_path(entry))


def _open_folder(path: Path) -> bool:
    """Return whether this is a folder that the daemon may read; PATH may come from root."""
    return os.path.isdir(path) and os.access(path, os.X_OK)


def _tool_chain(entry: Path, home: Path) -> Iterator[Path]:
    yield entry
    for manager in _MANAGERS:
        if entry.is_relative_to(home / manager):
            yield home / manager
            return
    prefix = entry.parent
    marker = prefix / "pyvenv.cfg"
    if os.access(marker, os.R_OK):
        yield from _shown_prefix(prefix, home)
        for line in marker.read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home" and value.strip().startswith("/"):
                yield from _shown_prefix(Path(value.strip()).parent, home)
    elif entry.name in ("bin", "sbin") and prefix != home:
        for sibling in ("lib", "lib64", "libexec", "include", "share"):
            if sibling == "share" and prefix == home / ".local":
                continue
            if _open_folder(prefix / sibling):
                yield prefix / sibling


def _shown_prefix(prefix: Path, home: Path) -> list[Path]:
    """Return the prefix, unless it would show the home or the whole machine."""
    if (
        not _open_folder(prefix)
        or home.is_relative_to(prefix)
        or prefix in (Path("/"), home / ".local")
    ):
        return []
    return [prefix]


def _rust_tool_chain(entry: Path, rustup: Path) -> list[Path]:
    settings = rustup / "settings.toml"
    if not (entry / "rustup").exists() or not os.access(settings, os.R_OK):
        return []
    try:
        name = tomllib.loads(settings.read_text("utf-8")).get("default_toolchain")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return []  # rustup reports that when it runs
    binaries = settings.parent / "toolchains" / str(name) / "bin"
    return [binaries] if _open_folder(binaries) else []


def _outermost(paths: list[Path]) -> tuple[Path, ...]:
    """Return each path once, without those inside another or inside the system's folders."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda p: len(p.parts)):
        if not any(path.is_relative_to(root) for root in (*SYSTEM, *kept)):
            kept.append(path)
    return tuple(kept)
