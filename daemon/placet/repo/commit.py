"""What a commit is made by: files put into an index, a commit object, a reference moved.

Each is one git command.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath

from placet.core.errors import passing
from placet.repo.runner import (
    BULK_TIMEOUT_S,
    UNFLUSHED,
    Author,
    FileChange,
    GitError,
    Place,
    Repo,
    RepositoryChanged,
    items_of,
    persons_file,
    run_git,
    text_of,
    with_env,
)


def stage(
    place: Place,
    changes: Sequence[FileChange],
    *,
    config: Sequence[str] = (),
    write: bool = True,
    may_vanish: bool = False,
) -> str:
    """Put these paths, as they are now, into the index, and return the tree that it makes.

    None unless `write`.

    `may_vanish` is for a folder that people work in meanwhile: a file that is gone by now counts as
    deleted. Else that is an error.
    """
    gone = b"".join(os.fsencode(change.path) + b"\0" for change in changes if change.status == "D")
    here = b"".join(os.fsencode(change.path) + b"\0" for change in changes if change.status != "D")
    # first and by force: git refuses to look for a deleted file where its folder became a link
    if gone:
        run_git(
            place,
            "update-index",
            "--force-remove",
            "-z",
            "--stdin",
            stdin=gone,
            timeout_s=BULK_TIMEOUT_S,
        )
    if here:
        options = ("--add", "--replace", *(("--remove",) if may_vanish else ()), "-z", "--stdin")
        run_git(
            place,
            "update-index",
            *options,
            stdin=here,
            config=(UNFLUSHED, *config),
            timeout_s=BULK_TIMEOUT_S,
        )
    return (
        text_of(run_git(place, "write-tree", config=(UNFLUSHED,), timeout_s=BULK_TIMEOUT_S)[1])
        if write
        else ""
    )


MAX_LEFT_OUT = 20
"""With more files that git cannot add something else is wrong than these files."""


def stage_possible(
    place: Place, changes: Sequence[FileChange], *, config: Sequence[str] = ()
) -> list[str]:
    """Put those of these paths into the index that git can add.

    Return the others, which stay there as they were.

    One file may have attributes that it does not keep to (`working-tree-encoding`): git then adds
    none of them. Raises GitError where it is not the files: the machine is at fault, or none can be
    added.
    """
    left_out: list[str] = []
    pieces = [list(changes)]
    while pieces:
        piece = pieces.pop()
        try:
            stage(place, piece, config=config, write=False, may_vanish=True)
        except GitError as error:
            if passing(error) or len(left_out) >= MAX_LEFT_OUT:
                raise
            if len(piece) == 1:
                left_out.append(piece[0].path)
            else:
                pieces += [piece[len(piece) // 2 :], piece[: len(piece) // 2]]
    return sorted(left_out)


def write_commit(
    place: Place, tree: str, parent: str | None, message: str, who: Author, when: datetime
) -> str:
    """Make a commit of `tree`, on no reference, by exactly this author, who is its committer too, at this time; return it."""
    names = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (
            ("NAME", who.name),
            ("EMAIL", who.email),
            ("DATE", f"@{int(when.timestamp())} +0000"),
        )
    }
    text = message.encode("utf-8", "replace").replace(b"\0", b"")
    parents = () if parent is None else ("-p", parent)
    return text_of(
        run_git(
            with_env(place, names), "commit-tree", *parents, tree, stdin=text, config=(UNFLUSHED,)
        )[1]
    )


def update_ref(place: Place, ref: str, new: str, old: str) -> None:
    """Move `ref` from `old` (zeros: must not exist) to `new`.

    RepositoryChanged where it is elsewhere.
    """
    try:
        run_git(place, "update-ref", "-m", "placet", ref, new, old)
    except GitError as error:
        _, out = run_git(place, "for-each-ref", "--format=%(objectname)", ref)
        now = text_of(out) or "0" * len(old)
        if now == new and error.returncode < 0:  # git was killed right after it had done it
            return
        if now != old:
            raise RepositoryChanged(f"{ref} was moved by somebody else") from error
        raise


def filters_in_the_way(repo: Repo, place: Place, paths: Sequence[str]) -> dict[str, str]:
    """Return the filters without which git would not commit these files of a worktree, by path: git LFS, or one that is required.

    A process is started only where attributes that count for them name a filter at all.
    """
    assert place.work_tree is not None
    folders = {folder for path in paths for folder in PurePosixPath(path).parents}
    # where git follows no link
    inside = [place.work_tree / folder / ".gitattributes" for folder in folders]
    files = [
        repo.common_dir / "info/attributes",
        persons_file(repo, "core.attributesfile", "attributes"),
        *(file for file in inside if not file.is_symlink()),
    ]
    if not any(map(_may_name_a_filter, files)):
        return {}
    _, out = run_git(
        place, "check-attr", "-z", "--stdin", "filter", stdin=os.fsencode("\0".join([*paths, ""]))
    )
    items = items_of(out)
    return {
        path: name
        for path, name in zip(items[0::3], items[2::3], strict=True)
        if name == "lfs"
        or (repo.setting(f"filter.{name}.required") or "false").lower()
        not in ("false", "no", "off", "0")
    }


# of a larger file git is asked, whose memory is not the daemon's
_MAX_ATTRIBUTES_BYTES = 1024 * 1024


def _may_name_a_filter(file: Path) -> bool:
    try:
        return file.is_file() and (
            file.stat().st_size > _MAX_ATTRIBUTES_BYTES or b"filter" in file.read_bytes()
        )
    except OSError:  # git says what is wrong with it
        return True
