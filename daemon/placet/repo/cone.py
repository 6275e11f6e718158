"""Which folders of a worktree are checked out: git's sparse check-out, in its "cone" mode, which goes by whole folders.

After git-sparse-checkout(1). Nothing but the worktree's own `info/sparse-checkout` is written: that the worktree is
sparse is told to each git process that we start there, and is in the index for anybody else's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SETTINGS = (("core.sparseCheckout", "true"), ("core.sparseCheckoutCone", "true"),
            # else git overlooks what is written where nothing is checked out
            ("sparse.expectFilesOutsideOfPatterns", "false"))
_SPECIAL = re.compile(r"([*?\[\\])")


@dataclass(frozen=True, slots=True)
class Cone:
    """The folders that are there: of `deep` ones all that is below, of `shallow` ones the files in them.

    The top folder, "", is always there, as a shallow one at least; so are the folders above others.
    """

    deep: frozenset[str] = frozenset()
    shallow: frozenset[str] = frozenset()

    @property
    def whole(self) -> bool:
        """Say whether everything is there."""
        return "" in self.deep

    def has(self, folder: str, *, deep: bool) -> bool:
        """Say whether the files in a folder are there, or where `deep` those below it, too."""
        if any(above in self.deep for above in (folder, *_above(folder))):
            return True
        return not deep and folder in self.open_folders()

    def open_folders(self) -> frozenset[str]:
        """Return the folders of which the files are there, but not all that is below."""
        named = self.deep | self.shallow
        return frozenset(above for folder in named for above in _above(folder)) | self.shallow | ({""} - self.deep)

    def wider(self, folders: Iterable[str], *, deep: bool) -> Cone:
        """Return the cone with more folders in it. One that git's patterns cannot name is there with all around it."""
        shallow, wide = set(self.shallow), set(self.deep)
        for folder in folders:
            named = folder
            while "\n" in named:
                named = named.rpartition("/")[0]
            (wide if deep or named != folder else shallow).add(named)
        return Cone(frozenset(folder for folder in wide if wide.isdisjoint(_above(folder))),
                    frozenset(folder for folder in shallow if wide.isdisjoint((folder, *_above(folder)))))

    def patterns(self) -> bytes:
        """Return the text of `info/sparse-checkout`."""
        if self.whole:
            return b"/*\n"
        lines = ["/*", "!/*/"]
        # A folder comes after those above it.
        for folder in sorted(self.open_folders() - {""}):
            lines += [f"/{_escaped(folder)}/", f"!/{_escaped(folder)}/*/"]
        lines += [f"/{_escaped(folder)}/" for folder in sorted(self.deep)]
        return os.fsencode("\n".join([*lines, ""]))

    @classmethod
    def read(cls, text: bytes) -> Cone:
        """Return what `patterns` wrote."""
        lines = os.fsdecode(text).split("\n")[:-1]
        if "!/*/" not in lines:
            return cls(deep=frozenset({""}))
        there = {line for line in lines[2:] if not line.startswith("!")}
        shallow = {line[1:-2] for line in lines[2:] if line.startswith("!")}
        return cls(frozenset(map(_named, there - shallow)), frozenset(map(_named, shallow)))


def _above(folder: str) -> Iterator[str]:
    """Give the folders above one, the top one last; none for the top one."""
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder


def _escaped(folder: str) -> str:
    return _SPECIAL.sub(r"\\\1", folder)


def _named(pattern: str) -> str:
    return re.sub(r"\\(.)", r"\1", pattern[1:-1])


def file_of(git_dir: Path) -> Path:
    """Return the file that tells git what to check out in the worktree with this private git directory."""
    return git_dir / "info/sparse-checkout"


def before_of(git_dir: Path) -> Path:
    """Return the file that says what was checked out before, while git checks out more, or was killed at it."""
    return git_dir / "info/sparse-checkout.was"


def cone_of(git_dir: Path) -> Cone | None:
    """Return what is checked out in the worktree with this private git directory, None where it is not sparse."""
    for file in (before_of(git_dir), file_of(git_dir)):
        with suppress(FileNotFoundError):
            return Cone.read(file.read_bytes())
    return None


def put_down(cone: Cone, file: Path) -> None:
    """Write a cone to a file, whole."""
    file.parent.mkdir(exist_ok=True)
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(cone.patterns())
    new.replace(file)
