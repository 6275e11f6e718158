"""Keep secrets out of commits: search files before they are committed or saved."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from placet.disk.confine import Root
from placet.disk.path_text import Fault
from placet.errors import ToolError
from placet.git.attributes import Attributes, attributes, not_kept_here
from placet.git.changes import ignored, new_in_cache
from placet.git.history import content
from placet.git.index import MAX_SEARCHED_BYTES, Staged
from placet.git.run import Repo
from placet.git.worktree import Worktree
from placet.note.paths import show
from placet.secret_files import SecretFile, find_secrets, latin, redact_values, secret_file
from placet.secrets import redact
from placet.tools.text import known_secrets
from placet.tools.text_file import text_file

# maximum secrets that an error names
MAX_NAMED = 20


def refuse_secrets(tree: Worktree, staged: Staged, known: Sequence[str] = ()) -> list[str]:
    """Raise ToolError `secret_in_commit` if committing what is staged would add a secret.

    The error has files and lines. `known` are values that are always secret, also in a file's name.
    A secret that the mission's base has already is not added. Return the files that are too large
    to be searched.
    """
    found: list[str] = []
    unsearched: list[str] = []
    for change, data in staged:
        named, count = redact(change.path, known)
        if count:
            found.append(f"the name of {show(named)}")
        if data is None:
            unsearched.append(change.path)
        else:
            found += secret_locations(named, added(tree.repo, tree.base, change.path, data, known))
    if found:
        raise ToolError(
            "secret_in_commit",
            # in words that redaction leaves alone, unlike `secret: …`
            "Nothing was committed, as these places hold something that must stay secret. "
            f"Read it from the environment instead. Take it out of: {'; '.join(found[:MAX_NAMED])}",
            refused=True,
            found=found[:MAX_NAMED],
        )
    return unsearched


def refuse_not_kept(
    tree: Worktree, paths: Sequence[str], known: Mapping[str, Attributes] | None = None
) -> None:
    """Raise ToolError `not_kept_here` if a commit would not store one of these files as it is.

    Such files pass through git LFS or another required filter, or are in a submodule. `known` are
    their attributes, if the caller has them.
    """
    for path, why in sorted(not_kept_here(tree, paths, known).items()):
        raise ToolError(
            "not_kept_here",
            f"{show(path)} cannot be changed here: {show(why)}. Leave it to a person.",
            refused=True,
        )


def refuse_uncommittable(tree: Worktree, paths: Sequence[str]) -> Mapping[str, Attributes]:
    """Raise ToolError `not_kept_here` or `ignored_file` if no commit would store a file.

    Return git's attributes of the files.
    """
    known = attributes(tree, paths)
    refuse_not_kept(tree, paths, known)
    for path, cache in new_in_cache(tree, paths).items():
        raise ToolError(
            "ignored_file",
            f"{show(path)} was not written: {show(cache)} is a cache, and placet commits no new "
            "file in a cache. Write another path, or leave it to a person.",
            refused=True,
        )
    for path, rule in ignored(tree, paths).items():
        why = (
            "this vault's history leaves such files out, and no approval changes that"
            if rule.for_good
            else "the plan allows it by a pattern only; a file that its `write` names in full "
            "would be committed"
        )
        raise ToolError(
            "ignored_file",
            f"{show(path)} was not written: git ignores it ({show(str(rule))}), so no commit would "
            f"have it, and it would be gone with the worktree ({why}). Write another path, or "
            "leave it to a person.",
            refused=True,
            rule=show(str(rule)),
        )
    return known


def blank_secrets(tree: Worktree, paths: Sequence[str], own: Sequence[str] = ()) -> list[str]:
    """Redact the secrets in these files of a worktree; return those that cannot be searched.

    Secret is what looks secret, the values `own`, and the values in secret files. What the base has
    already stays. Files that cannot be searched are not changed, nor are those with a secret that
    git would store in another encoding.
    """
    unsearched: list[str] = []
    with _files(tree) as files:
        known = (*own, *known_secrets(files)) if paths else ()
        rules = attributes(tree, paths)
        for path in paths:
            try:
                data = _changed(tree, files, path)
                stored = _stored(tree, path, data, rules[path])
                if stored != (data or b"") and added(tree.repo, tree.base, path, stored, known):
                    unsearched.append(path)
                    continue
            except ToolError:
                unsearched.append(path)
                continue
            named, count = redact(path, known)
            if count and os.path.lexists(tree.path / path):
                if data is not None:
                    files.write(named, data)
                files.delete(path)
                path = named  # noqa: PLW2901 - it is called so from here on
            if data is None or not added(tree.repo, tree.base, path, data, known):
                continue
            if (tree.path / path).is_symlink():
                files.delete(path)
                continue
            text = data.decode("latin-1")  # keeps every byte
            shown = (
                redact_values(text)[0]
                if secret_file(path) is SecretFile.NAMES
                else redact(text, latin(known))[0]
            )
            if shown == text:  # a key store: remove all of it
                shown = ""
            files.write(path, shown.encode("latin-1"))
    return unsearched


def _files(tree: Worktree) -> Root:
    return Root(
        tree.path,
        writable=True,
        max_read_bytes=MAX_SEARCHED_BYTES,
        max_write_bytes=2 * MAX_SEARCHED_BYTES,
    )


def _changed(tree: Worktree, files: Root, path: str) -> bytes | None:
    """Return a changed file's content, for a link its target, None for a deleted file or a folder.

    Raises ToolError.
    """
    if (tree.path / path).is_symlink():
        return os.fsencode((tree.path / path).readlink())
    try:
        return files.read(path)
    except ToolError as error:
        if error.error_type in (Fault.NOT_FOUND, Fault.IS_A_DIRECTORY, Fault.NOT_A_DIRECTORY):
            return None
        raise ToolError(
            "unchecked",
            f"Nothing was committed: a file cannot be searched for secrets. {error.message}.",
        ) from error


def _stored(tree: Worktree, path: str, data: bytes | None, rules: Attributes) -> bytes:
    """Return what git will store for a file's content. Raises ToolError if it cannot convert it."""
    if data is None or not rules.encoding or (tree.path / path).is_symlink():
        return data or b""
    return text_file(path, data, rules).text.encode()


def secret_locations(named: str, secrets: Sequence[tuple[int, str]]) -> list[str]:
    """Return where secrets are in a file, for people."""
    return [f"{show(named)}:{line}: {kind}" for line, kind in secrets]


def added(
    repo: Repo, base: str, path: str, data: bytes, known: Sequence[str]
) -> list[tuple[int, str]]:
    """Return the secrets in a file's content that the commit `base` has not, by line and kind."""
    if not find_secrets(data, path=path, known=known):
        return []
    return find_secrets(
        data,
        path=path,
        known=known,
        before=content(repo, base, path, max_bytes=MAX_SEARCHED_BYTES),
    )
