"""A mission's commit: its message, the commit itself, and what must not change meanwhile."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from placet.errors import ToolError
from placet.git.index import stage, update_ref, write_commit
from placet.git.run import Place, items_of, run_git
from placet.git.worktree import Worktree, inside, looking, must_be_on_branch
from placet.note.paths import show
from placet.repo.locks import holding
from placet.repo.places import settings_of
from placet.repo.rules import changes_in
from placet.repo.values import BOT, Author, FileChange, RepositoryChanged

MAX_NAMED = 20
"""Files that an error names."""

_SUBJECT_LENGTH = 72


class Writing:
    """The sole right to write in a mission's worktree: look at the changes, then commit some."""

    def __init__(self, wt: Worktree, place: Place) -> None:
        self._wt, self._place = wt, place
        self._tip = ""
        self._found: list[FileChange] = []

    def changes(self) -> list[str]:
        """Return the paths that differ from the branch's last commit.

        Raises RepositoryChanged where the branch is gone.
        """
        self._tip, self._found, begun = since_tip(self._wt, self._place)
        if begun:  # by a commit that was killed: unstage it, so that only what is asked for goes in
            run_git(self._place, "read-tree", "--reset", self._tip)
            self._tip, self._found, _ = changes_in(self._wt, self._place)
        return [change.path for change in self._found]

    def check_pins(self, pinned: Pins) -> None:
        """Raise RepositoryChanged, naming what, where something is not as it was pinned."""
        now = pins(self._wt, self._place)
        changed = [name for name in sorted(pinned | now) if pinned.get(name) != now.get(name)]
        if changed:
            raise RepositoryChanged(f"changed while the mission ran: {', '.join(changed)}")

    def commit(
        self, paths: Collection[str], message: str, author: Author, when: datetime
    ) -> str | None:
        """Commit the changes that are among `paths`; return the commit, None for nothing.

        There are no empty commits, and a commit that was made before a crash is not made twice. The
        branch is moved by compare-and-swap. Raises RepositoryChanged where somebody else moved it
        since `changes`, and ToolError `outside_scope` where the commit would change other files: a
        file in a folder's place deletes what was in the folder.
        """
        wanted = frozenset(paths)
        chosen = [change for change in self._found if change.path in wanted]
        if not chosen:
            return None
        tree = stage(self._place, chosen)
        asked = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", self._tip, tree)
        differs = items_of(run_git(self._place, *asked)[1])
        if not differs:  # the same in a commit, as with other line ends
            return None
        if more := sorted(set(differs) - wanted):
            raise _outside_scope(more)
        new = write_commit(self._place, tree, (self._tip,), message, author, when)
        # Last: a kill before it leaves something staged, which `changes` then unstages.
        update_ref(self._place, self._wt.ref, new, self._tip)
        return new


@contextmanager
def writing(wt: Worktree) -> Iterator[Writing]:
    """Hold a mission's worktree for a commit.

    Raises RepositoryChanged where it is no longer on its branch.
    """
    wt.must_have_branch()
    with holding(wt.path) as held:
        must_be_on_branch(wt)
        yield Writing(wt, inside(wt, held))


def _outside_scope(more: Sequence[str]) -> ToolError:
    named = [show(path) for path in more[:MAX_NAMED]]
    rest = f" and {len(more) - MAX_NAMED} more" if len(more) > MAX_NAMED else ""
    return ToolError(
        "outside_scope",
        f"Nothing was committed: the commit would also change or delete {', '.join(named)}{rest}, "
        "which the plan does not allow. Put that back as it was.",
        refused=True,
        paths=named,
    )


def since_tip(wt: Worktree, place: Place) -> tuple[str, list[FileChange], bool]:
    """Return what `changes_in` does; raises RepositoryChanged where the branch is gone."""
    found = changes_in(wt, place)
    if found[0] == "(initial)":
        raise branch_gone(wt)
    return found


def branch_gone(wt: Worktree) -> RepositoryChanged:
    """Return the error for a mission's branch that is gone."""
    return RepositoryChanged(f"the branch {wt.branch} was deleted by somebody else")


# --- what must not change while a mission runs

Pins = dict[str, str]
"""Digests of what decides how git behaves in a worktree, by name."""


def pins(wt: Worktree, place: Place | None = None) -> Pins:
    """Return digests of what decides how git behaves in a worktree.

    That is configuration, hooks, attributes and pointers. Of the configuration, `branch.*`,
    `remote.*` and `user.*` are left out: a person's everyday work changes them, and placet never
    uses them. `place` is where git works, if the caller has one.
    """
    place = place or looking(wt)
    settings = place.settings or settings_of(place)
    local = [item for scope, item in settings if scope in ("local", "worktree")]
    used = [item for item in local if not item.startswith(("branch.", "remote.", "user."))]
    common = wt.repo.common_dir
    named = {
        "configuration": "\0".join(used).encode("utf-8", "surrogateescape"),
        "hooks": b"".join(_stamp(hook) for hook in sorted((common / "hooks").glob("*"))),
    }
    for path in (
        common / "info/attributes",
        common / "info/grafts",
        common / "objects/info/alternates",
        wt.git_dir / "info/attributes",
        wt.git_dir / "gitdir",
        wt.git_dir / "commondir",
        wt.git_dir / "HEAD",
        wt.path / ".git",
    ):
        named[str(path)] = _stamp(path)
    return {name: hashlib.sha256(content).hexdigest() for name, content in named.items()}


def _stamp(path: Path) -> bytes:
    """Return name, kind, executable bit and content of a file; a link is not followed."""
    if path.is_symlink():
        return b"link " + os.fsencode(path) + b"\0" + os.fsencode(path.readlink()) + b"\0"
    if not path.is_file():
        return b"other " + os.fsencode(path) + b"\0"
    mode = b"x" if path.stat().st_mode & 0o111 else b"-"
    return mode + os.fsencode(path) + b"\0" + path.read_bytes() + b"\0"


# --- the message


def commit_message(
    subject: str, body: str, trace_id: str, plan_digest: str, approved_by: str, co_author: str = ""
) -> str:
    """Return a commit message: subject, body, `[ExoTrace: …]`, trailers, with blank lines between.

    `co_author` is a name for a `Co-authored-by` trailer with placet's address; empty for none. The
    subject is one line of at most 72 characters. Control characters are dropped, and a line that
    git would take for the end of the message (`---`) is indented by a space, so that
    `git interpret-trailers` finds the trailers.
    """
    line = _one_line(subject).lstrip("-# ") or "Carry out the plan"
    if len(line) > _SUBJECT_LENGTH:
        line = line[: _SUBJECT_LENGTH - 1].rsplit(" ", 1)[0].rstrip(" ,;:.") + "…"
    text = "\n".join(_printable(part).rstrip() for part in body.splitlines()).strip("\n")
    text = re.sub(r"^---", " ---", text, flags=re.MULTILINE)
    trailers = [
        f"Placet-Trace: {_one_line(trace_id)}",
        f"Placet-Plan: {_one_line(plan_digest)}",
        f"Approved-By: {_one_line(approved_by)}",
    ]
    if co_author:
        name = re.sub("[<>]", "", _one_line(co_author))
        trailers.append(f"Co-authored-by: {name} <{BOT.email}>")
    parts = [line, text, f"[ExoTrace: {_one_line(trace_id)}]", "\n".join(trailers)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _printable(text: str) -> str:
    """Return a line without control characters (a tab is kept) and without lone surrogates."""
    plain = text.encode("utf-8", "replace").decode()
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", "", plain)


def _one_line(text: str) -> str:
    return _printable(" ".join(text.split())).strip()
