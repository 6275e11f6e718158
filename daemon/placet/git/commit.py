"""Commit a mission's changes on its branch."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime

from placet.errors import ToolError
from placet.git.changes import changes_in, since_tip
from placet.git.index import Allow, stage_allowed, update_ref, write_commit
from placet.git.pins import Pins, pins
from placet.git.run import Author, FileChange, GitDir, RepositoryChanged, items_of, run_git
from placet.git.worktree import Worktree, git_dir_of_worktree, holding, must_be_on_branch
from placet.note.paths import show
from placet.wording import some_of

MAX_NAMED = 20
"""Maximum number of files that an error names."""


class Writing:
    """Commit changes in a locked worktree: call `changes`, then `commit`.

    `caches` are the known caches with new files, which do not count as changes.
    """

    def __init__(self, wt: Worktree, place: GitDir) -> None:
        self._wt, self._place = wt, place
        self._tip = ""
        self._found: list[FileChange] = []
        self.caches: list[str] = []

    def changes(self) -> list[str]:
        """Return the paths that differ from the branch's last commit.

        Raises RepositoryChanged if the branch is gone.
        """
        self._tip, self._found, begun, self.caches = since_tip(self._wt, self._place)
        if begun:  # a killed commit staged it; unstage, so that only the requested files go in
            run_git(self._place, "read-tree", "--reset", self._tip)
            self._tip, self._found, _, self.caches = changes_in(self._wt, self._place)
        return [change.path for change in self._found]

    def check_pins(self, pinned: Pins) -> None:
        """Raise RepositoryChanged, with the names, if anything differs from `pinned`."""
        now = pins(self._wt, self._place)
        changed = [name for name in sorted(pinned | now) if pinned.get(name) != now.get(name)]
        if changed:
            raise RepositoryChanged(f"changed while the mission ran: {', '.join(changed)}")

    def commit(
        self,
        paths: Collection[str],
        message: str,
        author: Author,
        when: datetime,
        allow: Allow | None = None,
    ) -> str | None:
        """Commit the changes that are among `paths`; return the commit, or None if there are none.

        `allow` sees what git will store, and may leave out more. What it raises is passed on.

        There are no empty commits, and a commit made before a crash is not made twice. The branch
        is moved by compare-and-swap. Raises RepositoryChanged if somebody else moved it since
        `changes`. Raises ToolError `outside_scope` if the commit would change other files: a file
        that replaces a folder deletes the folder's content.
        """
        wanted = frozenset(paths)
        chosen = [change for change in self._found if change.path in wanted]
        if not chosen:
            return None
        tree = stage_allowed(self._place, chosen, self._tip, allow)
        if not tree:
            return None
        asked = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", self._tip, tree)
        differs = items_of(run_git(self._place, *asked)[1])
        if not differs:  # identical once committed, such as other line ends
            return None
        if more := sorted(set(differs) - wanted):
            shown = [show(path) for path in more]
            named = some_of(shown, MAX_NAMED)
            raise ToolError(
                "outside_scope",
                "Nothing was committed: the commit would also change or delete "
                f"{named}, which the plan does not allow. Put that back as it was.",
                refused=True,
                paths=shown[:MAX_NAMED],
            )
        new = write_commit(self._place, tree, (self._tip,), message, author, when)
        # Last: a kill before this leaves staged files, which `changes` then unstages.
        update_ref(self._place, self._wt.ref, new, self._tip)
        return new


@contextmanager
def writing(wt: Worktree) -> Iterator[Writing]:
    """Lock a mission's worktree for a commit.

    Raises RepositoryChanged if it is no longer on its branch.
    """
    wt.must_have_branch()
    with holding(wt.path) as held:
        must_be_on_branch(wt)
        yield Writing(wt, git_dir_of_worktree(wt, held))
