"""What a commit of some files of a worktree is made of: done here where they are plain, else by git."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from placet.core.errors import passing
from placet.repo.runner import BULK_TIMEOUT_S, FileChange, GitError, Place, attributes_file, items_of, run_git, settings_of, text_of
from placet.repo.store import MAX_PLAIN_BYTES, MAX_PLAIN_FILES, Found, Index, Peculiar, look


def stage(place: Place, changes: Sequence[FileChange], *, config: Sequence[str] = (), write: bool = True,
          may_vanish: bool = False) -> str:
    """Have git put these paths, as they are now, into the index, and return the tree that it makes; none unless `write`.

    `may_vanish` is for a folder that people work in meanwhile: a file that is gone by now counts as deleted. Else that is an error.
    """
    gone = b"".join(os.fsencode(change.path) + b"\0" for change in changes if change.status == "D")
    here = b"".join(os.fsencode(change.path) + b"\0" for change in changes if change.status != "D")
    if gone:  # first and by force: git refuses to look for a deleted file where its folder became a link
        run_git(place, "update-index", "--force-remove", "-z", "--stdin", stdin=gone, timeout_s=BULK_TIMEOUT_S)
    if here:
        assert place.work_tree is not None
        large = any(_size(place.work_tree / change.path) >= _STREAMED_BYTES for change in changes if change.status != "D")
        # What git streams into a pack it cannot flush together with other objects: it fails. Whatever the person has set,
        # it streams from here on, unless the caller says otherwise.
        config = (f"core.bigFileThreshold={_STREAMED_BYTES}", *(("core.fsyncMethod=fsync",) if large else ()), *config)
        options = ("--add", "--replace", *(("--remove",) if may_vanish else ()), "-z", "--stdin")
        run_git(place, "update-index", *options, stdin=here, config=config, timeout_s=BULK_TIMEOUT_S)
    return text_of(run_git(place, "write-tree")[1]) if write else ""


MAX_LEFT_OUT = 20
"""With more files that git cannot add something else is wrong than these files."""


def stage_possible(place: Place, changes: Sequence[FileChange], *, config: Sequence[str] = ()) -> list[str]:
    """Put those of these paths into the index that git can add; return the others, which stay there as they were.

    One file may have attributes that it does not keep to (`working-tree-encoding`): git then adds none of them. Raises GitError
    where it is not the files: the machine is at fault, or none can be added.
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
                pieces += [piece[len(piece) // 2:], piece[:len(piece) // 2]]
    return sorted(left_out)


_STREAMED_BYTES = 512 * 1024 * 1024  # git's own


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:  # git says what is wrong with it
        return 0


def staged(place: Place, common_dir: Path, size: int, changes: Sequence[FileChange]) -> tuple[str, Index]:
    """Return the tree that the last commit becomes by these changes, and its index, not yet in place; no process is started.

    `place` is a worktree's, `size` that of a digest in bytes. Raises Peculiar where git must do it: there are many
    files, one is large or oddly named, or git would convert what is in it.
    """
    assert place.git_dir is not None
    assert place.work_tree is not None
    if len(changes) > MAX_PLAIN_FILES:
        raise Peculiar(place.work_tree)
    objects = common_dir / "objects"
    index = Index(place.git_dir / "index", size)
    settings = {key: value if given else None for key, given, value in (item.partition("\n") for _, item in settings_of(place))}
    if not _is_on(settings, "core.symlinks"):
        raise Peculiar(place.work_tree)
    top = os.open(place.work_tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found: dict[bytes, Found | None] = {}
    left = MAX_PLAIN_BYTES
    try:
        for change in changes:
            new = None if change.status == "D" else look(top, os.fsencode(change.path))
            found[os.fsencode(change.path)] = new
            left -= len(new.content) if new is not None else 0
            if left < 0:
                raise Peculiar(place.work_tree)
        attributes = _attributes_in(top, index, found)
    finally:
        os.close(top)
    attributes += _other_attributes(common_dir, settings)
    if any(b"working-tree-encoding" in text for text in attributes):
        raise Peculiar(place.work_tree)
    if attributes or _is_on(settings, "core.autocrlf", default=False):
        # Text without these comes out of git's conversions as it went in, whatever the attributes say.
        for path, new in found.items():
            if new is not None and (b"\r" in new.content or b"$Id" in new.content):
                raise Peculiar(path)
    keep_mode = not _is_on(settings, "core.filemode")
    for path, new in found.items():
        if new is None and path in index:
            index.drop(path)
    for path, new in found.items():
        if new is not None:
            index.put(objects, path, new, keep_mode=keep_mode)
    return index.tree(objects), index


def filters_in_the_way(place: Place, common_dir: Path, paths: Sequence[str]) -> dict[str, str]:
    """Return the filters without which git would not commit these files of a worktree, by path: git LFS, or one that is required.

    A process is started only where attributes that count for them name a filter at all. A sparse worktree may lack those of a
    folder that nothing was brought of yet: whatever is committed has them.
    """
    assert place.git_dir is not None
    assert place.work_tree is not None
    settings = {key: value for key, _, value in (item.partition("\n") for _, item in settings_of(replace(place, env={})))}
    person = Path(os.path.expanduser(attributes_file(settings)))  # noqa: PTH111 - it may name nobody
    folders = {folder for path in paths for folder in PurePosixPath(path).parents}
    inside = [place.work_tree / folder / ".gitattributes" for folder in folders]  # where git follows no link
    files = [common_dir / "info/attributes", person, *(file for file in inside if not file.is_symlink())]
    if not any(map(_may_name_a_filter, files)):
        return {}
    _, out = run_git(place, "check-attr", "-z", "--stdin", "filter", stdin=os.fsencode("\0".join([*paths, ""])))
    items = items_of(out)
    return {path: name for path, name in zip(items[0::3], items[2::3], strict=True)
            if name == "lfs" or settings.get(f"filter.{name}.required", "false").lower() not in ("false", "no", "off", "0")}


_MAX_ATTRIBUTES_BYTES = 1024 * 1024  # of a larger file git is asked, whose memory is not the daemon's


def _may_name_a_filter(file: Path) -> bool:
    try:
        return file.is_file() and (file.stat().st_size > _MAX_ATTRIBUTES_BYTES or b"filter" in file.read_bytes())
    except OSError:  # git says what is wrong with it
        return True


def _attributes_in(top: int, index: Index, found: Mapping[bytes, Found | None]) -> list[bytes]:
    """Return what the attributes in the worktree say that count for these files: of their folders and those above.

    Raises Peculiar where git takes them from the index.
    """
    folders = {b""}
    for path, new in found.items():
        above = path.rpartition(b"/")[0] if new is not None else b""
        while above not in folders:
            folders.add(above)
            above = above.rpartition(b"/")[0]
    said = []
    for path in (b"/".join((folder, b".gitattributes")).removeprefix(b"/") for folder in folders):
        new = found.get(path)
        if path not in found:
            try:
                os.stat(path, dir_fd=top, follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError):
                if path in index:  # in a folder that is not checked out, or deleted, and that is not to be committed
                    raise Peculiar(path) from None
            else:
                new = look(top, path)
        if new is not None:
            said.append(new.content)
    return said


def _other_attributes(common_dir: Path, settings: Mapping[str, str | None]) -> list[bytes]:
    """Return what the attributes say that lie in no worktree. Raises Peculiar where only git knows the place, or may read it."""
    home, named = os.environ.get("HOME", "/"), attributes_file(settings)
    if not named.startswith(("/", "~/")):
        raise Peculiar(named)
    try:
        return [file.read_bytes() for file in (common_dir / "info/attributes", Path(home) / named.removeprefix("~/"))
                if file.is_file()]
    except OSError as error:
        raise Peculiar(common_dir) from error


def _is_on(settings: Mapping[str, str | None], key: str, *, default: bool = True) -> bool:
    """Say whether a setting is true, as git reads it (a key without a value is). Raises Peculiar for what is rarely written."""
    value = settings.get(key, str(default))
    if value is None or value.lower() in ("true", "yes", "on", "1", "input"):
        return True
    if value.lower() in ("false", "no", "off", "0", ""):
        return False
    raise Peculiar(key)
