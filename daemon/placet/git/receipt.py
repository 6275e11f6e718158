"""Keep a receipt as a commit at one of placet's references, and read what one is about.

Commits are read as they are stored, and nothing else of the repository counts: no replaced object,
no graft, no setting that hides submodules.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from placet.case.receipt import Change
from placet.git.history import content
from placet.git.index import update_ref, write_commit
from placet.git.repository import rows_at
from placet.git.run import (
    BOT,
    BULK_TIMEOUT_S,
    UNFLUSHED,
    Repo,
    items_of,
    neutral,
    place_of,
    run_git,
    text_of,
    with_env,
)
from placet.git.worktree import remove_ref_lock

RECEIPTS = "refs/placet/receipts/"
MAX_FILES, MAX_BYTES = 1_000, 32 * 1024 * 1024
"""Most files of a receipt that are read, and most bytes of all."""


def write_receipt(
    repo: Repo, ref: str, tip: str, files: Mapping[str, bytes], message: str, when: datetime
) -> None:
    """Put a commit of these files at `ref`, whatever is there; its parent is `tip`, "" for none.

    The reference moves last. So a receipt that is written again after a crash is the only one.
    """
    place = neutral(place_of(repo))
    with tempfile.TemporaryDirectory(prefix="placet-") as folder:
        for name, raw in files.items():
            Path(folder, name).write_bytes(raw)
        paths = "".join(f"{Path(folder, name)}\n" for name in files).encode()
        asked = ("hash-object", "-w", "--no-filters", "--stdin-paths")
        blobs = run_git(place, *asked, stdin=paths, config=(UNFLUSHED,))[1].decode().split()
    rows = [f"100644 blob {blob}\t{name}\n" for blob, name in zip(blobs, files, strict=True)]
    _, tree = run_git(place, "mktree", stdin="".join(rows).encode(), config=(UNFLUSHED,))
    parents = (tip,) if tip else ()
    commit = write_commit(place, text_of(tree), parents, message, BOT, when)
    remove_ref_lock(repo.common_dir / f"{ref}.lock")
    update_ref(place, ref, commit)


def receipt_files(repo: Repo, commit: str) -> dict[str, bytes]:
    """Return the files of a receipt. Raises ValueError, in a sentence, for any other commit."""
    rows = rows_at(repo, commit, below=False)
    if len(rows) > MAX_FILES or any(not what.startswith("100644 blob ") for what, _ in rows):
        raise ValueError("That commit is not a receipt.")
    files, left_bytes = dict[str, bytes](), MAX_BYTES
    for _, path in rows:
        files[path] = content(repo, commit, path, max_bytes=left_bytes)
        left_bytes -= len(files[path])
    return files


def parents_in(repo: Repo, commits: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return by commit the parents that it names itself. Raises GitError if one is not here."""
    names = "".join(f"{commit}\n" for commit in commits).encode()
    asked = ("rev-list", "--no-walk=unsorted", "--parents", "--stdin")
    rows = map(str.split, _as_stored(repo, *asked, stdin=names)[1].decode().splitlines())
    return {commit: tuple(parents) for commit, *parents in rows}


def is_older(repo: Repo, commit: str, than: str) -> bool:
    """Return whether a commit is another one's ancestor, by what the commits name themselves."""
    asked = ("merge-base", "--is-ancestor", "--end-of-options", commit, than)
    return _as_stored(repo, *asked, ok=(0, 1, 128))[0] == 0


def changes_between(repo: Repo, before: str, after: str) -> tuple[Change, ...]:
    """Return each path that differs between two commits; a rename is two."""
    plain = ("--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
    asked = ("-r", "-z", "--raw", "--no-abbrev", *plain, "--end-of-options", before, after)
    items = iter(items_of(_as_stored(repo, "diff-tree", *asked)[1]))
    return tuple(Change(next(items), *item[1:].split(" ")[:4]) for item in items)


def _as_stored(
    repo: Repo, *asked: str, stdin: bytes = b"", ok: Sequence[int] = (0,)
) -> tuple[int, bytes]:
    """Run a git command that believes no graft and no cache of commits."""
    place = with_env(place_of(repo), {"GIT_GRAFT_FILE": os.devnull})
    config = ("core.commitGraph=false", "advice.graftFileDeprecated=false")
    return run_git(place, *asked, stdin=stdin, ok=ok, config=config, timeout_s=BULK_TIMEOUT_S)
