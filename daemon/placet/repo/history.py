"""Commits: what is between two of them, what came of them, what a merge would do. Reads only."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from placet.repo.repository import resolve
from placet.repo.runner import (
    BULK_TIMEOUT_S,
    FileChange,
    Repo,
    items_of,
    neutral,
    place_of,
    run_git,
    text_of,
)

_MAX_TARGET_BYTES = 4096  # PATH_MAX
# a bigger file counts as binary in a patch: git need not hold it
_MAX_DIFFED_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit in a list: newest first."""

    sha: str
    subject: str
    author: str
    committed_at: datetime


def changes(repo: Repo, base: str, head: str) -> list[FileChange]:
    """Return what differs between two commits, in git's order, with counted lines.

    A rename is its D and its A. Of links is said where they point.
    """
    _, out = run_git(
        place_of(repo),
        "diff-tree",
        "-r",
        "-z",
        "--raw",
        "--numstat",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--end-of-options",
        base,
        head,
    )
    statuses: dict[str, str] = {}
    links: dict[str, str] = {}
    found = []
    items = iter(items_of(out))
    for item in items:
        if item.startswith(":"):
            _, mode, _, _, status = item.split(" ")
            path = next(items)
            statuses[path] = status[0]
            if mode == "120000":
                links[path] = os.fsdecode(content(repo, head, path, max_bytes=_MAX_TARGET_BYTES))
        else:
            added, deleted, path = item.split("\t", 2)
            binary = added == "-"
            found.append(
                FileChange(
                    path,
                    statuses[path],
                    None if binary else int(added),
                    None if binary else int(deleted),
                    links.get(path, ""),
                )
            )
    return found


def diff_text(
    repo: Repo,
    base: str,
    head: str,
    *,
    paths: Sequence[str] = (),
    max_bytes: int = 1_000_000,
) -> str:
    """Return the difference between two commits as a patch.

    Cut after `max_bytes`, and then it says so.

    What is not UTF-8 is replaced: this is for reading.
    """
    _, out = run_git(
        place_of(repo),
        "diff-tree",
        "-r",
        "-p",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--end-of-options",
        base,
        head,
        "--",
        *paths,
        config=(f"core.bigFileThreshold={_MAX_DIFFED_BYTES}",),
        max_bytes=max_bytes + 1,
    )
    text = out[:max_bytes].decode("utf-8", "replace")
    return (
        text
        if len(out) <= max_bytes
        else f"{text.rstrip(chr(0xFFFD))}\n… (cut after {max_bytes} bytes)\n"
    )


def patch_bytes(repo: Repo, base: str, head: str) -> bytes:
    """Return the difference between two commits as a patch that `git apply` takes: every byte, binary files too."""
    return run_git(
        place_of(repo),
        "diff-tree",
        "-r",
        "-p",
        "--binary",
        "--full-index",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--end-of-options",
        base,
        head,
        timeout_s=BULK_TIMEOUT_S,
    )[1]


def content(repo: Repo, commit: str, path: str, *, max_bytes: int) -> bytes:
    """Return a file of a commit as it is stored, empty where there is none.

    No more than `max_bytes` of it.
    """
    code, out = run_git(
        place_of(repo), "cat-file", "blob", f"{commit}:{path}", ok=(0, 128), max_bytes=max_bytes
    )
    return out if code in (0, -9) else b""


def paths_at(repo: Repo, rev: str) -> list[str]:
    """Return the paths of all files of a commit."""
    _, out = run_git(
        place_of(repo),
        "ls-tree",
        "-r",
        "-z",
        "--name-only",
        "--end-of-options",
        rev,
        timeout_s=BULK_TIMEOUT_S,
    )
    return items_of(out)


def digests_at(repo: Repo, rev: str, paths: Sequence[str]) -> dict[str, str]:
    """Return git's digests of these files in a commit, by path.

    What is no file there is left out.
    """
    if not paths:
        return {}
    wanted = frozenset(paths)
    _, out = run_git(
        place_of(repo), "ls-tree", "-z", "--full-tree", "--end-of-options", rev, "--", *wanted
    )
    rows = (item.split("\t", 1) for item in items_of(out))
    return {
        path: what.split(" ")[2]
        for what, path in rows
        if path in wanted and what.split(" ")[1] == "blob"
    }


def log(repo: Repo, base: str, head: str) -> list[Commit]:
    """Return the commits of `head` that `base` does not have, newest first."""
    _, out = run_git(
        place_of(repo),
        "log",
        "-z",
        "--format=%H%x00%s%x00%an%x00%ct",
        "--no-notes",
        "--no-mailmap",
        "--end-of-options",
        head,
        f"^{base}",
    )
    rows = out.decode("utf-8", "replace").split("\0")
    return [
        Commit(sha, subject, author, datetime.fromtimestamp(int(at), UTC))
        for sha, subject, author, at in zip(
            rows[0::4], rows[1::4], rows[2::4], rows[3::4], strict=False
        )
    ]


def ahead_behind(repo: Repo, branch: str, base_branch: str) -> tuple[int, int]:
    """Return how many commits `branch` has that `base_branch` lacks, and the other way round."""
    both = f"refs/heads/{branch}...refs/heads/{base_branch}"
    _, out = run_git(place_of(repo), "rev-list", "--left-right", "--count", both, "--")
    ahead, behind = out.split()
    return int(ahead), int(behind)


def merge_preview(repo: Repo, ours: str, theirs: str) -> list[str]:
    """Return the paths that would conflict if `theirs` were merged into `ours`.

    Changes no ref or file.

    Attributes in the tree (`merge=union`) are not consulted, and a file with a merge driver of the
    repository's own counts as conflicting where both sides changed it: it foresees too many
    conflicts rather than too few.
    """
    code, out = run_git(
        neutral(place_of(repo)),
        "merge-tree",
        "--write-tree",
        "-z",
        "--name-only",
        "--no-messages",
        "--end-of-options",
        ours,
        theirs,
        ok=(0, 1),
    )
    return [] if code == 0 else sorted({path for path in items_of(out)[1:] if path})


def traced_work(repo: Repo, refs: str = "refs/heads/feat*") -> dict[str, tuple[str, str]]:
    """Return the work of each trace below the references `refs` (a glob): the commit it starts from ("" for none), its last.

    Only the trailer block counts, not a line of the text that looks like one.
    """
    _, out = run_git(
        place_of(repo),
        "log",
        "-z",
        "--format=%H%x00%P%x00%(trailers:key=Placet-Trace,valueonly,separator=%x01)",
        "--no-notes",
        "--fixed-strings",
        "--grep=Placet-Trace: ",
        f"--glob={refs}",
        timeout_s=BULK_TIMEOUT_S,
    )
    rows = out.decode("utf-8", "replace").split("\0")
    found: dict[str, tuple[str, str]] = {}
    for sha, parents, values in zip(rows[0::3], rows[1::3], rows[2::3], strict=False):
        for trace in filter(None, values.split("\x01")):
            found[trace] = (parents.partition(" ")[0], found[trace][1] if trace in found else sha)
    return found


def contained_in(repo: Repo, sha: str) -> bool:
    """Say whether any branch, of the person or of a remote, has this commit."""
    if resolve(repo, sha) is None:
        return False
    _, out = run_git(
        place_of(repo),
        "for-each-ref",
        "--count=1",
        f"--contains={sha}",
        "refs/heads",
        "refs/remotes",
    )
    return bool(out)


def is_ancestor(repo: Repo, sha: str, target: str) -> bool:
    """Say whether `target` has the commit `sha` in its history."""
    return run_git(place_of(repo), "merge-base", "--is-ancestor", sha, target, ok=(0, 1))[0] == 0


def merge_base(repo: Repo, one: str, other: str) -> str | None:
    """Return the best common ancestor of two commits, None where they have none."""
    code, out = run_git(place_of(repo), "merge-base", one, other, ok=(0, 1))
    return text_of(out) if code == 0 else None


def merged_by(repo: Repo, tip: str, target: str) -> str:
    """Return the commit that brought `tip`, an ancestor of `target`, to target's own line: a merge, or `tip` where it is on it."""
    _, out = run_git(
        place_of(repo),
        "rev-list",
        "--ancestry-path",
        "--end-of-options",
        f"{tip}..{target}",
        timeout_s=BULK_TIMEOUT_S,
    )
    above = set(out.decode().split())
    _, out = run_git(
        place_of(repo),
        "rev-list",
        "--first-parent",
        "--parents",
        "--end-of-options",
        target,
        f"^{tip}",
        timeout_s=BULK_TIMEOUT_S,
    )
    rows = [row.split() for row in out.decode().splitlines()]
    oldest = [row for row in rows if row[0] in above][-1:]
    return oldest[0][0] if oldest and oldest[0][1] != tip else tip


def parents_of(repo: Repo, sha: str) -> list[str]:
    """Return a commit's parents.

    None for a first commit, and for the last one that a shallow clone has.
    """
    return text_of(
        run_git(place_of(repo), "rev-list", "--parents", "-n", "1", "--end-of-options", sha)[1]
    ).split()[1:]


def same_patches(
    repo: Repo, since: str, tip: str, among: Sequence[str], of: tuple[str, str]
) -> str:
    """Return the newest of the commits that `among` has beyond `since` which repeats the changes of `since..tip`; empty for none.

    `among` are revisions, or `--branches` and the like. Either all of its commits one by one (rebase, cherry-pick) or all
    of them as one (squash); by patch-id, so that where a change lies in a file does not matter. Commits that name another
    mission than `of` (its trace id and its plan's digest) are that one's, whatever they change.
    """
    paths = [change.path for change in changes(repo, since, tip)]
    there = patches_of(repo, among, (since,), paths)
    if not there:
        return ""
    branch, whole = patches_of(repo, (tip,), (since,)), patch_of(repo, since, tip)
    found = _repeats(there, branch, whole)
    if found and (others := of_others(repo, among, since, of)):
        found = _repeats(patches_of(repo, among, (since,), paths, without=others), branch, whole)
    return found


def _repeats(there: Mapping[str, str], branch: Mapping[str, str], whole: str) -> str:
    if branch and branch.keys() <= there.keys():
        shas = {there[patch] for patch in branch}
        return next(sha for sha in there.values() if sha in shas)
    return there.get(whole, "")


def patches_of(
    repo: Repo,
    among: Sequence[str],
    beyond: Sequence[str],
    paths: Sequence[str] = (),
    without: Collection[str] = (),
) -> dict[str, str]:
    """Return the patch-ids, with their commits, of what `among` has and `beyond` has not, newest first; merges have none.

    Only of commits that touch one of `paths`, where some are given, and not of those `without`. No setting of the person's on how
    patches look changes them.
    """
    only = () if any("\n" in path for path in paths) else paths  # a line each
    wanted = (*among, *(f"^{sha}" for sha in beyond))
    _, out = run_git(
        place_of(repo),
        "rev-list",
        "--no-merges",
        "--full-history",
        *wanted,
        "--stdin",
        stdin=os.fsencode("\n".join(["--", *only, ""])) if only else b"\n",
        timeout_s=BULK_TIMEOUT_S,
    )
    return {
        patch: sha
        for sha, patch in patch_ids(
            repo, [sha for sha in out.decode().split() if sha not in without]
        ).items()
    }


def patch_of(repo: Repo, base: str, tip: str) -> str:
    """Return the patch-id of all that differs between two commits; empty where nothing does."""
    return patch_ids(repo, [f"{tip} {base}"]).get(tip, "")


def patch_ids(repo: Repo, commits: Sequence[str]) -> dict[str, str]:
    """Return the patch-id of each of these commits, in their order.

    Where a base stands behind one, of what differs from that.

    What changes nothing has none. Two processes.
    """
    if not commits:
        return {}
    lines = "".join(f"{line}\n" for line in commits).encode()
    _, patches = run_git(
        place_of(repo),
        "diff-tree",
        "-p",
        "-r",
        "--root",
        "--no-ext-diff",
        "--no-textconv",
        "--no-renames",
        "--full-index",
        "--stdin",
        stdin=lines,
        timeout_s=BULK_TIMEOUT_S,
    )
    _, out = run_git(
        place_of(repo), "patch-id", "--stable", stdin=patches or b"\n", timeout_s=BULK_TIMEOUT_S
    )
    return {sha: patch for patch, sha in (line.split() for line in out.decode().splitlines())}


def of_others(repo: Repo, among: Sequence[str], since: str, of: tuple[str, str]) -> frozenset[str]:
    """Return the commits of `among` beyond `since` that name missions, but not this one (its trace id, its plan's digest)."""
    _, out = run_git(
        place_of(repo),
        "log",
        "-z",
        "--format=%H%n%B",
        "--no-notes",
        "--extended-regexp",
        "--grep=^[[:space:]]*Placet-Trace: ",
        *among,
        f"^{since}",
        "--",
        timeout_s=BULK_TIMEOUT_S,
    )
    rows = (item.partition("\n") for item in items_of(out))
    return frozenset(sha for sha, _, message in rows if not _names(message, *of))


def _names(message: str, trace_id: str, digest: str) -> bool:
    """Say whether a commit's message names this mission.

    Where it names plans, and the digest of this one's is known, that too.
    """
    traces = re.findall(r"^\s*Placet-Trace: (\S+)\s*$", message, re.MULTILINE)
    plans = re.findall(r"^\s*Placet-Plan: (\S+)\s*$", message, re.MULTILINE)
    return trace_id in traces and (not digest or not plans or digest in plans)


def touched_by(repo: Repo, sha: str) -> set[str]:
    """Return the files that a commit changed, beside its first parent.

    All that it has where it has none.
    """
    parents = parents_of(repo, sha)
    return (
        {change.path for change in changes(repo, parents[0], sha)}
        if parents
        else set(paths_at(repo, sha))
    )


REVERTS = "Placet-Reverts"
"""The trailer of a commit by which `placet undo` takes a mission's work back; its trace id."""
_REVERT = re.compile(r"^This reverts commit ([0-9a-f]{40,64})\b", re.MULTILINE)
MAX_REVERTS = 50


def messages_since(repo: Repo, news: Sequence[str], then: Sequence[str]) -> list[tuple[str, str]]:
    """Return the commits of `news`, without those of `then`, that may take others back, with their messages, newest first.

    Without `then` those of the last 30 days. One process.
    """
    since = [f"^{sha}" for sha in then] or ["--since=30.days"]
    _, out = run_git(
        place_of(repo),
        "log",
        "-z",
        f"-n{MAX_REVERTS}",
        "--format=%H%n%B",
        "--no-notes",
        "--extended-regexp",
        f"--grep=^(This reverts commit [0-9a-f]{{40,64}}|{REVERTS}: )",
        *news,
        *since,
        "--",
        timeout_s=BULK_TIMEOUT_S,
    )
    return [(sha, message) for sha, _, message in (item.partition("\n") for item in items_of(out))]


def reverts_in(repo: Repo, messages: Iterable[tuple[str, str]]) -> list[tuple[str, str, str, bool]]:
    """Return which of these commits take a mission's work back, or bring it in again by taking such a commit back.

    Each with the mission's trace, the commit of the work or "", itself, and whether it brings the work in again. The trace is what
    `placet undo` writes, or stands in the commit that is taken back, or in what that merged: two or three processes for each.
    """
    found: list[tuple[str, str, str, bool]] = []
    for sha, message in messages:
        said, of, again = message, "", True
        for _ in range(MAX_REVERTS):  # of reverts of reverts
            if traces := _said_by(REVERTS, said):
                of, again = "", not again
                break
            if not (of := next(iter(_REVERT.findall(said)), "")):
                break
            again = not again
            if traces := _traces_of(repo, of):
                break
            said = _message(repo, of)
        found += [(trace, of, sha, again) for trace in traces]
    return found[:MAX_REVERTS]


def _message(repo: Repo, sha: str) -> str:
    """Return a commit's message, empty for one that is not there."""
    code, out = run_git(
        place_of(repo),
        "log",
        "-1",
        "--format=%B",
        "--no-notes",
        "--end-of-options",
        sha,
        ok=(0, 128),
    )
    return out.decode("utf-8", "replace") if code == 0 else ""


def _traces_of(repo: Repo, sha: str) -> list[str]:
    """Return the missions that a commit names, or else what it merged names.

    None for one that is not there.
    """
    code, out = run_git(
        place_of(repo),
        "log",
        "-z",
        "--no-walk=unsorted",
        "--format=%B",
        "--no-notes",
        "--end-of-options",
        sha,
        ok=(0, 128),
    )
    if code == 0 and not (traces := _traces(out)) and len(parents := parents_of(repo, sha)) > 1:
        out = run_git(
            place_of(repo),
            "log",
            "-1",
            "-z",
            "--format=%B",
            "--no-notes",
            "--end-of-options",
            parents[1],
        )[1]
        traces = _traces(out)
    return traces if code == 0 else []


def _traces(message: bytes) -> list[str]:
    return _said_by("Placet-Trace", message.decode("utf-8", "replace"))


def _said_by(trailer: str, message: str) -> list[str]:
    return list(dict.fromkeys(re.findall(rf"^\s*{trailer}: (\S+)\s*$", message, re.MULTILINE)))


def commits_traced(
    repo: Repo, trace_id: str, digest: str, among: Sequence[str], since: str
) -> list[str]:
    """Return the commits of `among` (without those of `since`, where given) whose message has the trace's trailer, newest first.

    One that names a plan must name that with the `digest`, where one is given: other missions of the request have others.
    On whatever line: who squashes commits gets their messages into the new one's, indented, or with others after them.
    `among` are revisions, or `--branches` and the like.
    """
    line = f"^[[:space:]]*Placet-Trace: {re.escape(trace_id)}[[:space:]]*$"
    _, out = run_git(
        place_of(repo),
        "log",
        "-z",
        "--format=%H%n%B",
        "--no-notes",
        "--extended-regexp",
        f"--grep={line}",
        *among,
        *([f"^{since}"] if since else []),
        "--",
        timeout_s=BULK_TIMEOUT_S,
    )
    rows = (item.partition("\n") for item in items_of(out))
    return [commit for commit, _, message in rows if _names(message, trace_id, digest)]


def trailers_of(repo: Repo, commit: str, *keys: str) -> list[str]:
    """Return the last value of each of these trailers in a commit's message, empty for one that it has not."""
    form = "%x00".join(f"%(trailers:key={key},valueonly,separator=%x01)" for key in keys)
    _, out = run_git(
        place_of(repo), "log", "-1", f"--format={form}", "--no-notes", "--end-of-options", commit
    )
    return [
        values.split("\x01")[-1]
        for values in out.decode("utf-8", "replace").removesuffix("\n").split("\0")
    ]


def signs_commits(repo: Repo) -> bool:
    """Say whether the person's git is set to sign commits."""
    said = [item.partition("\n") for scope, item in repo.settings if scope != "command"]
    signs = [
        not given or value.lower() in ("true", "yes", "on", "1")
        for key, given, value in said
        if key == "commit.gpgsign"
    ]
    return signs[-1:] == [True]


def has_hooks(repo: Repo) -> bool:
    """Say whether the person has hooks that git would run on a commit, in whatever folder `core.hooksPath` names."""
    named = [
        item.partition("\n")[2]
        for scope, item in repo.settings
        if scope != "command" and item.startswith("core.hookspath\n")
    ]
    folder = (
        Path(os.path.expanduser(named[-1])) if named and named[-1] else repo.common_dir / "hooks"  # noqa: PTH111 - nobody's `~`
    )
    return any(
        (repo.path / folder / name).exists()
        for name in ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit")
    )
