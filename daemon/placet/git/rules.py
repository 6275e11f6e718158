"""Tell without git whether a rule can exist, so that git is asked only then.

A mission asks about each file that it writes, and most repositories have nothing to say.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from placet.disk.real_path import real_path
from placet.git.worktree import Worktree

IGNORE, ATTRIBUTES = ".gitignore", ".gitattributes"
_OUTSIDE = {
    IGNORE: ("core.excludesfile", "ignore", "exclude"),
    ATTRIBUTES: ("core.attributesfile", "attributes", "attributes"),
}
"""The setting that names a person's file, its name without the setting, and the one in `info`."""
_MAX_RULES_BYTES = 1_000_000
_MODULE_MODE = b"\0\0\xe0\0"  # a submodule's, as an index stores it
_COMPRESSED = b"DIRC\0\0\0\4"  # such an index shortens names


def may_have_rules(wt: Worktree, paths: Sequence[str], name: str) -> bool:
    """Return whether git may have a rule for one of these paths; `name` is IGNORE or ATTRIBUTES.

    Files of rules are a person's own, the repository's, the system's (attributes only), and those
    in the folders above the paths. Git reads attributes from the index where a file is gone.
    """
    setting, own, shared = _OUTSIDE[name]
    if wt.repo.setting(setting) is not None:
        return True
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - there may be no home
    files = [Path(config, "git", own), wt.repo.common_dir / "info" / shared]
    if name == ATTRIBUTES:
        index = _index(wt)
        if index.startswith(_COMPRESSED) or name.encode() in index:
            return True
        git = Path(shutil.which("git") or "/usr/bin/git")
        tops = (Path("/"), git.parent.parent, real_path(git).parent.parent)
        files += [top / "etc/gitattributes" for top in tops]
    folders = {folder for path in paths for folder in PurePosixPath(path).parents}
    return any(map(_may_have_rule, (*files, *(wt.path / folder / name for folder in folders))))


def may_have_submodules(wt: Worktree) -> bool:
    """Return whether the worktree's index may name a submodule."""
    return _MODULE_MODE in _index(wt)


def _index(wt: Worktree) -> bytes:
    try:
        return (wt.git_dir / "index").read_bytes()
    except OSError:  # git says what is wrong with it
        return _COMPRESSED + _MODULE_MODE


def _may_have_rule(file: Path) -> bool:
    try:
        about = file.lstat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MAX_RULES_BYTES:
            return True
        lines = file.read_bytes().splitlines()
        return any(line.strip() and not line.startswith(b"#") for line in lines)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # git says what is wrong with it
        return True
