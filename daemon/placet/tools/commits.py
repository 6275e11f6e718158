"""Secrets stay out of commits: what a mission is about to commit or keep is looked through, file by file."""

from __future__ import annotations

from collections.abc import Sequence

from placet.confine import Fault, Root
from placet.core.errors import ToolError
from placet.core.names import show
from placet.core.secrets import SecretFile, find_secrets, redact, redact_values, secret_file
from placet.repo import Repo, Worktree, content, not_kept_here

MAX_LOOKED_AT_BYTES = 16 * 1024 * 1024
"""Largest changed file that is looked through; a larger one is not committed."""

MAX_NAMED = 20
"""Secrets that an error names; nobody mends more at a time."""


def refuse_secrets(repo: Repo, tree: Worktree, paths: Sequence[str]) -> None:
    """Raise ToolError `secret_in_commit`, with files and lines, if committing these files would add a secret.

    What the mission's base has already is not added. Raises ToolError `unchecked` for a file that cannot be looked through.
    """
    found: list[str] = []
    with _files(tree) as files:
        for path in paths:
            data = _changed(tree, files, path)
            if data is None:
                continue
            found += [f"{show(path)}:{line}: {kind}" for line, kind in _added(repo, tree, path, data)]
    if found:
        raise ToolError("secret_in_commit", "Nothing was committed, because it would add a secret: " + "; ".join(found[:MAX_NAMED])
                        + ". Take it out, and read it from the environment instead.", refused=True, found=found[:MAX_NAMED])


def refuse_not_kept(tree: Worktree, paths: Sequence[str]) -> None:
    """Raise ToolError `not_kept_here` where a commit of the repository would not hold one of these files as it is.

    That is one that git LFS keeps, or another filter without which git takes no file, and one in a submodule.
    """
    for path, why in sorted(not_kept_here(tree, paths).items()):
        raise ToolError("not_kept_here", f"{show(path)} cannot be changed here: {show(why)}. Leave it to a person.", refused=True)


def blank_secrets(repo: Repo, tree: Worktree, paths: Sequence[str]) -> None:
    """Redact the secrets that these files of a worktree have beyond its base, before what is in it is kept in a commit."""
    with _files(tree) as files:
        for path in paths:
            try:
                data = _changed(tree, files, path)
            except ToolError:
                continue  # in no commit of the mission's, and so large or odd that nobody put a key there
            if data is None or not _added(repo, tree, path, data):
                continue
            text = data.decode("latin-1")  # every byte as it is
            shown = redact_values(text)[0] if secret_file(path) is SecretFile.NAMES else redact(text)[0]
            if shown == text:  # a key store: there is nothing in it to keep
                shown = ""
            files.write(path, shown.encode("latin-1"))


def _files(tree: Worktree) -> Root:
    return Root(tree.path, writable=True, max_read_bytes=MAX_LOOKED_AT_BYTES, max_write_bytes=2 * MAX_LOOKED_AT_BYTES)


def _changed(tree: Worktree, files: Root, path: str) -> bytes | None:
    """Return a changed file's content; None for one that is deleted, a link or a folder. Raises ToolError."""
    if (tree.path / path).is_symlink():
        return None
    try:
        return files.read(path)
    except ToolError as error:
        if error.error_type in (Fault.NOT_FOUND, Fault.IS_A_DIRECTORY, Fault.NOT_A_DIRECTORY):
            return None
        raise ToolError("unchecked", "Nothing was committed: a file cannot be looked through for secrets. "
                        f"{error.message}.") from error


def _added(repo: Repo, tree: Worktree, path: str, data: bytes) -> list[tuple[int, str]]:
    if not find_secrets(data, path=path):
        return []
    return find_secrets(data, path=path, before=content(repo, tree.base, path, max_bytes=MAX_LOOKED_AT_BYTES))
