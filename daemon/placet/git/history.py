"""Read commits: their differences, their ancestors, and what a merge would do."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from placet.git.repository import resolve
from placet.git.run import (
    BULK_TIMEOUT_S,
    FileChange,
    GitDir,
    Repo,
    ask,
    items_of,
    neutral,
    place_of,
    run_git,
    text_of,
)

_MAX_TARGET_BYTES = 4096  # PATH_MAX
# a bigger file counts as binary in a patch, so git need not load it
_MAX_DIFFED_BYTES = 16 * 1024 * 1024
_MAX_SHOWN_BYTES = 1_000_000
_PLAIN = ("-r", "--no-renames", "--no-ext-diff", "--no-textconv")


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit in a list, with its whole message."""

    sha: str
    parents: tuple[str, ...]
    author: str
    message: str

    @property
    def subject(self) -> str:
        """The first line of its message."""
        return self.message.partition("\n")[0]


def log(repo: Repo, *asked: str) -> list[Commit]:
    """Return commits, newest first.

    `asked` are revisions, and options of `git log` that choose among their commits.
    """
    options = ("-z", "--format=%H%x00%P%x00%an%x00%B", "--no-notes", "--no-mailmap")
    out = ask(repo, "log", *options, *asked, "--", timeout_s=BULK_TIMEOUT_S)
    items = out.decode("utf-8", "replace").split("\0")[:-1]
    rows = zip(*(items[n::4] for n in range(4)), strict=True)
    return [Commit(sha, tuple(up.split()), who, message) for sha, up, who, message in rows]


def changes(repo: Repo, base: str, head: str) -> list[FileChange]:
    """Return the differences between two commits, in git's order, with counted lines.

    A rename is a D and an A. A link has its target path.
    """
    asked = (*_PLAIN, "-z", "--raw", "--numstat", "--end-of-options", base, head)
    statuses: dict[str, str] = {}
    links: dict[str, str] = {}
    found = []
    items = iter(items_of(ask(repo, "diff-tree", *asked)))
    for item in items:
        if item.startswith(":"):
            _, mode, _, _, status = item.split(" ")
            path = next(items)
            statuses[path] = status[0]
            if mode == "120000":
                links[path] = os.fsdecode(content(repo, head, path, max_bytes=_MAX_TARGET_BYTES))
        else:
            added, deleted, path = item.split("\t", 2)
            binary, link = added == "-", links.get(path, "")
            lines = (None, None) if binary else (int(added), int(deleted))
            found.append(FileChange(path, statuses[path], lines[0], lines[1], link))
    return found


def diff_text(repo: Repo, base: str, head: str) -> str:
    """Return the difference between two commits as a patch for reading.

    Bytes that are not UTF-8 are replaced. It is cut after a megabyte, and then says so.
    """
    _, out = run_git(
        place_of(repo),
        *("diff-tree", *_PLAIN, "-p", "--end-of-options", base, head, "--"),
        config=(f"core.bigFileThreshold={_MAX_DIFFED_BYTES}",),
        max_bytes=_MAX_SHOWN_BYTES + 1,
    )
    text = out[:_MAX_SHOWN_BYTES].decode("utf-8", "replace")
    if len(out) <= _MAX_SHOWN_BYTES:
        return text
    return f"{text.rstrip(chr(0xFFFD))}\n… (cut after {_MAX_SHOWN_BYTES} bytes)\n"


def patch_bytes(repo: Repo, base: str, head: str) -> bytes:
    """Return the exact difference between two commits for `git apply`, binary files too."""
    asked = (*_PLAIN, "-p", "--binary", "--full-index", "--end-of-options", base, head)
    return ask(repo, "diff-tree", *asked, timeout_s=BULK_TIMEOUT_S)


def content(repo: Repo, commit: str, path: str, *, max_bytes: int) -> bytes:
    """Return up to `max_bytes` of a file in a commit as it is stored; empty if it is missing."""
    asked = ("cat-file", "blob", f"{commit}:{path}")
    code, out = run_git(place_of(repo), *asked, ok=(0, 128), max_bytes=max_bytes)
    return out if code in (0, -9) else b""


def blob_sizes(repo: Repo, blobs: Sequence[str]) -> dict[str, int]:
    """Return the sizes of those of these blobs that exist, in bytes."""
    asked = "".join(f"{blob}\n" for blob in blobs).encode()
    sizes = ask(repo, "cat-file", "--batch-check=%(objectsize)", stdin=asked).decode().splitlines()
    found = zip(blobs, sizes, strict=True)
    return {blob: int(size) for blob, size in found if size.isdecimal()}


def blob_bytes(repo: Repo, blob: str, *, max_bytes: int) -> bytes:
    """Return the content of a blob, cut after `max_bytes`."""
    return run_git(place_of(repo), "cat-file", "blob", blob, max_bytes=max_bytes)[1]


def digests_at(repo: Repo, rev: str, paths: Sequence[str]) -> dict[str, str]:
    """Return git's digests of those of these paths that are files in a commit."""
    if not paths:
        return {}
    wanted = frozenset(paths)
    asked = ("ls-tree", "-z", "--full-tree", "--end-of-options", rev, "--", *wanted)
    rows = (item.split("\t", 1) for item in items_of(ask(repo, *asked)))
    files = ((path, what.split(" ")) for what, path in rows if path in wanted)
    return {path: what[2] for path, what in files if what[1] == "blob"}


def ahead_behind(repo: Repo, branch: str, base_branch: str) -> tuple[int, int]:
    """Return how many commits `branch` has that `base_branch` lacks, and vice versa."""
    both = f"refs/heads/{branch}...refs/heads/{base_branch}"
    ahead, behind = ask(repo, "rev-list", "--left-right", "--count", both, "--").split()
    return int(ahead), int(behind)


def merge_preview(repo: Repo, ours: str, theirs: str) -> list[str]:
    """Return the paths that would conflict if `theirs` were merged into `ours`; changes nothing.

    It ignores attributes in the tree (`merge=union`). A file with one of the repository's merge
    drivers counts as conflicting if both sides changed it. So it reports too many conflicts rather
    than too few.
    """
    return merged_tree(neutral(place_of(repo)), ours, theirs)[1] or []


def merged_tree(place: GitDir, ours: str, theirs: str) -> tuple[str, list[str] | None]:
    """Return the tree of two commits merged, as git's own merge makes it, with attributes.

    Also return the paths that conflict in it, or None for a clean merge.
    """
    asked = ("--write-tree", "-z", "--name-only", "--no-messages", "--end-of-options", ours, theirs)
    code, out = run_git(place, "merge-tree", *asked, ok=(0, 1), timeout_s=BULK_TIMEOUT_S)
    tree, *paths = items_of(out)
    return tree, sorted({path for path in paths if path}) if code else None


BRANCHES = ("refs/heads", "refs/remotes")
"""The person's branches, and those of remotes."""


def refs_with(repo: Repo, sha: str, *among: str) -> list[str]:
    """Return the full names of the references that contain this commit; `among` are patterns."""
    if resolve(repo, sha) is None:
        return []
    asked = ("--format=%(refname)", f"--contains={sha}", *among)
    return ask(repo, "for-each-ref", *asked).decode("utf-8", "surrogateescape").split()


def is_ancestor(repo: Repo, sha: str, target: str) -> bool:
    """Return whether `target` has the commit `sha` in its history."""
    return run_git(place_of(repo), "merge-base", "--is-ancestor", sha, target, ok=(0, 1))[0] == 0


def merge_base(repo: Repo, one: str, other: str) -> str | None:
    """Return the best common ancestor of two commits, or None."""
    code, out = run_git(place_of(repo), "merge-base", one, other, ok=(0, 1))
    return text_of(out) if code == 0 else None


def merged_by(repo: Repo, tip: str, target: str) -> str:
    """Return the commit that brought `tip`, an ancestor, into target's first-parent line.

    That is a merge, or `tip` itself if it is on that line.
    """
    since = ("--ancestry-path", "--end-of-options", f"{tip}..{target}")
    above = set(ask(repo, "rev-list", *since, timeout_s=BULK_TIMEOUT_S).decode().split())
    line = ("--first-parent", "--parents", "--end-of-options", target, f"^{tip}")
    out = ask(repo, "rev-list", *line, timeout_s=BULK_TIMEOUT_S)
    rows = [row.split() for row in out.decode().splitlines()]
    oldest = [row for row in rows if row[0] in above][-1:]
    return oldest[0][0] if oldest and oldest[0][1] != tip else tip


def parents_of(repo: Repo, sha: str) -> tuple[str, ...]:
    """Return a commit's parents; empty for a first commit, and for the last of a shallow clone."""
    return log(repo, "-1", sha)[0].parents


def touched_by(repo: Repo, sha: str) -> set[str]:
    """Return the files that a commit changed since its first parent; all, if it has no parent."""
    parents = parents_of(repo, sha)
    if not parents:
        asked = ("ls-tree", "-r", "-z", "--name-only", "--end-of-options", sha)
        return set(items_of(ask(repo, *asked, timeout_s=BULK_TIMEOUT_S)))
    return {change.path for change in changes(repo, parents[0], sha)}


@dataclass(frozen=True, slots=True)
class FilePatch:
    """What a commit changes in a file: the lines that go and come, and git's digests of the file.

    A digest is empty where there is no such file.
    """

    before: str
    after: str
    gone: Counter[bytes]
    come: Counter[bytes]

    def __add__(self, later: FilePatch) -> FilePatch:
        gone, come = self.gone + later.gone, self.come + later.come
        return FilePatch(self.before, later.after, gone, come)

    def __contains__(self, other: FilePatch) -> bool:
        """Whether this patch makes all changes of the other one."""
        return self.size > 0 and other.gone <= self.gone and other.come <= self.come

    @property
    def reversed(self) -> FilePatch:
        """The patch that undoes this one."""
        return FilePatch(self.after, self.before, self.come, self.gone)

    @property
    def size(self) -> int:
        """The number of its changed lines, 1 for a file without lines."""
        return self.gone.total() + self.come.total() or 1

    def common(self, other: FilePatch) -> int:
        """Return how many changed lines both have."""
        return (self.gone & other.gone).total() + (self.come & other.come).total()


def file_patches(repo: Repo, commit: str, base: str = "") -> dict[str, FilePatch]:
    """Return by path what a commit changes since `base`, by default since its first parent."""
    since = base or next(iter(parents_of(repo, commit)), "")
    revs = ("--end-of-options", since, commit) if since else ("--root", "--end-of-options", commit)
    asked = (*_PLAIN, "--no-commit-id", "--no-abbrev")
    items = items_of(ask(repo, "diff-tree", *asked, "-z", "--raw", *revs))
    patch = ask(repo, "diff-tree", *asked, "-p", "-U0", *revs, timeout_s=BULK_TIMEOUT_S)
    parts = re.split(rb"^diff --git .*\n", patch, flags=re.MULTILINE)[1:]
    found = {}
    for what, path, part in zip(items[0::2], items[1::2], parts, strict=True):
        was, now = (digest if digest.strip("0") else "" for digest in what.split(" ")[2:4])
        hunks = re.split(rb"^@@ .*\n", part, flags=re.MULTILINE)[1:]
        lines = b"".join(hunks).split(b"\n")
        gone = Counter(line[1:] for line in lines if line.startswith(b"-"))
        come = Counter(line[1:] for line in lines if line.startswith(b"+"))
        found[path] = FilePatch(was, now, gone, come)
    return found
