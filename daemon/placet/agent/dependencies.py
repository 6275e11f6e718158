"""Decide what commands see of a checkout besides the commit.

A worktree has what is committed. Commands also need what git ignores: installed dependencies, and
files that a generator or a build made. Dependencies are shown read-only. Files of known generators
are copied, after a search for secrets. Anything else comes along only if the portal's `see` or
`copy` names it. A commit never has them, whatever `.gitignore` and scope say.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from placet.disk.real_path import real_path
from placet.git.changes import is_below, note_brought
from placet.git.repository import ignored_paths
from placet.git.run import Repo
from placet.git.worktree import Worktree
from placet.host.state import expand_home
from placet.sandbox.box import Box
from placet.sandbox.brought import has_plain_parents
from placet.sandbox.visible_paths import SYSTEM, is_environment, see

_FOLDERS = ("node_modules", ".tox", ".nox")
_ENVIRONMENTS = (".venv", "venv")
# gettext, extension modules, the versions that hatch-vcs and setuptools-scm write
_GENERATED = (
    "*.mo", "*.so", "*.pyd", "version.py", "_version.py", "__version__.py", "*_version.py",
    "*.egg-info/",
)  # fmt: skip
# what `configure` made, in and below the folder of its config.status
_CONFIGURED = (
    "Makefile", "Makefile.in", "config.*", "configure", "aclocal.m4", "libtool", "stamp-h*", "*.pc",
    ".deps/", "ar-lib", "compile", "depcomp", "install-sh", "ltmain.sh", "missing", "test-driver",
)  # fmt: skip
_NOISE = frozenset((
    "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".DS_Store",
))  # fmt: skip
_MAX_NAMED = 8
_ENVIRONMENT_FOLDERS = (
    ".cache/pypoetry/virtualenvs", ".virtualenvs", ".local/share/virtualenvs", ".conda/envs",
    "miniconda3/envs", "miniforge3/envs", "anaconda3/envs",
)  # fmt: skip
_MACHINE = tuple(map(Path, ("/etc", "/run", "/dev", "/proc", "/sys")))


@dataclass(frozen=True, slots=True)
class Brought:
    """What commands see of a checkout besides the commit; all paths but `readable` are in it.

    `shared` are shown read-only, `copied` and `generated` are the mission's own, the latter within
    limits. `readable` are folders elsewhere, such as an environment. `unseen` are ignored paths
    that stay out, `missing` what the settings name and is not there.
    """

    shared: tuple[PurePosixPath, ...] = ()
    copied: tuple[PurePosixPath, ...] = ()
    generated: tuple[PurePosixPath, ...] = ()
    readable: tuple[Path, ...] = ()
    unseen: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """Names for a person: all but generated files, or their folders if they are many."""
        paths = tuple(map(str, (*self.shared, *self.copied, *self.readable)))
        few = len(paths) <= _MAX_NAMED
        return paths if few else tuple(dict.fromkeys(f"**/{Path(path).name}" for path in paths))

    def for_worktree(self, tree: Worktree, named: Sequence[str]) -> Brought:
        """Return what a worktree gets: nothing that its commit has or the plan names in full.

        Then git does not list these files as changes of the worktree.
        """
        paths = [
            str(p) for p in (*self.shared, *self.copied, *self.generated) if str(p) not in named
        ]
        free = note_brought(tree, paths)
        shared, copied, generated = (
            tuple(path for path in some if str(path) in free)
            for some in (self.shared, self.copied, self.generated)
        )
        return replace(self, shared=shared, copied=copied, generated=generated)


def brought(repo: Repo, shown: Sequence[str] = (), copy: Sequence[str] = ()) -> Brought:
    """Return what commands see of a checkout; `shown` and `copy` are its portal's settings."""
    ignored = ignored_paths(repo)
    elsewhere = [name for name in shown if name.startswith(("/", "~"))]
    named = [name.strip("/") for name in shown if name not in elsewhere]
    copied = tuple(_matching(repo.path, ignored, [name.strip("/") for name in copy]))
    own = frozenset(map(str, copied))
    found = (*_matching(repo.path, ignored, named), *_dependencies(repo.path, ignored))
    shared = tuple(dict.fromkeys(path for path in found if not is_below(str(path), own)))
    taken = own.union(map(str, shared))
    rest = [entry for entry in ignored if not is_below(entry, taken)]
    generated = [entry for entry in rest if _is_generated(repo.path, entry, frozenset(ignored))]
    folders = {name: expand_home(name) for name in elsewhere}
    # of a folder with other files, git names the ignored ones too
    above = {str(parent) for entry in ignored for parent in PurePosixPath(entry).parents}
    return Brought(
        shared,
        copied,
        tuple(map(PurePosixPath, generated)),
        tuple(folder for folder in folders.values() if folder.is_dir()),
        tuple(
            entry
            for entry in rest
            if entry not in generated
            and not {entry.strip("/"), Path(entry).name} & (above | _NOISE)
        ),
        (
            *(name for name, folder in folders.items() if not folder.is_dir()),
            *(n for n in (*named, *copy) if not [*_matching(repo.path, ignored, [n.strip("/")])]),
        ),
    )


def _dependencies(top: Path, ignored: Sequence[str]) -> Iterator[PurePosixPath]:
    for path in map(PurePosixPath, ignored):
        is_one = path.name in _FOLDERS or (
            path.name in _ENVIRONMENTS and is_environment(top / path)
        )
        if is_one and _is_plain(top, path):
            yield path


def _matching(top: Path, ignored: Sequence[str], names: Sequence[str]) -> Iterator[PurePosixPath]:
    """Yield the ignored paths that are one of these names, below one, or above one."""
    for name in map(PurePosixPath, names):
        for path in map(PurePosixPath, ignored):
            found = path if path.is_relative_to(name) else name
            if found.is_relative_to(path) and ".." not in found.parts and _is_plain(top, found):
                yield found


def _is_plain(top: Path, path: PurePosixPath) -> bool:
    """Return whether this is a folder or file of the checkout, with no link on the way to it."""
    if ".git" in path.parts or not has_plain_parents(top, top / path):
        return False
    with suppress(OSError):
        mode = (top / path).lstat().st_mode
        return stat.S_ISDIR(mode) or stat.S_ISREG(mode)
    return False


def _is_generated(top: Path, entry: str, ignored: Collection[str]) -> bool:
    path = PurePosixPath(entry)
    name = path.name + ("/" if entry.endswith("/") else "")
    if any(fnmatchcase(name, pattern) for pattern in _GENERATED):
        return True
    if entry.endswith("/") and (top / path / "CMakeCache.txt").is_file():
        return True
    is_made = is_configured(name) or os.path.lexists(top / path / "install-sh")
    return is_made and any(str(folder / "config.status") in ignored for folder in path.parents)


def is_configured(name: str) -> bool:
    """Return whether `configure` makes files of this name."""
    return any(fnmatchcase(name, pattern) for pattern in _CONFIGURED)


def why_elsewhere(repo: Repo, vault: Path, worktrees: Path, readable: Sequence[Path]) -> str:
    """Return why commands see the worktree at another path than the checkout's; "" if they do not.

    The checkout must neither hold nor lie in anything else that they see.
    """
    if repo.is_bare:
        return "it is bare"
    if repo.git_dir != repo.common_dir:
        return "it is a linked worktree"
    if overlaps(repo, vault):
        return "it overlaps with the vault"
    view = see(Box(worktrees / "mission", readable=tuple(readable)))
    inside = (Path.home(), worktrees, *readable)
    around = (*SYSTEM, *_MACHINE, *view.tools, *view.caches.values())
    if place := next((p for p in inside if real_path(p).is_relative_to(repo.path)), None):
        return f"it holds {place}"
    if place := next((p for p in around if repo.path.is_relative_to(real_path(p))), None):
        return f"it lies in {place}"
    return ""


def overlaps(repo: Repo, vault: Path) -> bool:
    """Return whether vault and repository overlap: then nothing that git ignores comes along."""
    vault = real_path(vault)
    return repo.path.is_relative_to(vault) or vault.is_relative_to(repo.path)


def proposed(repo: Repo) -> dict[str, list[str]]:
    """Return the settings `see` and `copy` that fit a checkout, for a person to accept.

    Tools write into some dependencies: then a mission needs its own. An environment elsewhere is
    one that has the checkout installed.
    """
    found = [path for path in brought(repo).shared if _is_written(repo.path / path)]
    homes = (Path.home() / folder for folder in _ENVIRONMENT_FOLDERS)
    elsewhere = [
        str(env)
        for folder in homes
        if folder.is_dir()
        for env in sorted(folder.iterdir())
        if is_environment(env) and _has_installed(env, repo.path)
    ]
    lines = {"see": elsewhere, "copy": [str(path) for path in found]}
    return {key: value for key, value in lines.items() if value}


def _is_written(folder: Path) -> bool:
    """Return whether a tool writes into this folder of dependencies: tox, nox, vite."""
    return folder.name in (".tox", ".nox") or (folder / "vite").is_dir()


def _has_installed(environment: Path, checkout: Path) -> bool:
    """Return whether an environment names a checkout, as pipenv and editable installs do."""
    marks = (environment / ".project", *environment.glob("lib/python3*/site-packages/*.pth"))
    editable = environment.glob("lib/python3*/site-packages/*.dist-info/direct_url.json")
    for mark in (*marks, *editable):
        with suppress(OSError):
            if str(checkout) in mark.read_text("utf-8", "replace"):
                return True
    return False
