"""Commits by the missions that they name: whose work they are, and whose they take back.

A mission's commits have the trailer `Placet-Trace`. Where people squash or merge commits, it may be
on any line of the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from placet.git.history import parents_of
from placet.git.run import BULK_TIMEOUT_S, items_of, run_git
from placet.repo.places import Repo, ask, place_of

REVERTS = "Placet-Reverts"
"""The trailer of a commit by which `placet undo` takes a mission's work back; its trace id."""
MAX_REVERTS = 50
_REVERT = re.compile(r"^This reverts commit ([0-9a-f]{40,64})\b", re.MULTILINE)


def commits_traced(
    repo: Repo, trace_id: str, digest: str, among: Sequence[str], since: str
) -> list[str]:
    """Return the commits of `among` whose message has the trace's trailer, newest first.

    `among` are revisions, or `--branches` and the like; commits of `since` are left out, if it is
    given. A commit that names a plan must name that with the `digest`, if one is given: other
    missions of the request have others.
    """
    named = f"^[[:space:]]*Placet-Trace: {re.escape(trace_id)}[[:space:]]*$"
    found = _matching(repo, named, *among, *([f"^{since}"] if since else []))
    return [commit for commit, message in found if _names(message, trace_id, digest)]


def of_others(repo: Repo, among: Sequence[str], since: str, of: tuple[str, str]) -> frozenset[str]:
    """Return the commits of `among` beyond `since` that name missions, but not this one.

    `of` is its trace id and its plan's digest.
    """
    found = _matching(repo, "^[[:space:]]*Placet-Trace: ", *among, f"^{since}")
    return frozenset(sha for sha, message in found if not _names(message, *of))


def _matching(repo: Repo, pattern: str, *asked: str) -> list[tuple[str, str]]:
    """Return commits whose message matches a pattern, with their messages, newest first."""
    options = ("-z", "--format=%H%n%B", "--no-notes", "--extended-regexp", f"--grep={pattern}")
    out = ask(repo, "log", *options, *asked, "--", timeout_s=BULK_TIMEOUT_S)
    rows = (item.partition("\n") for item in items_of(out))
    return [(sha, message) for sha, _, message in rows]


def _names(message: str, trace_id: str, digest: str) -> bool:
    """Return whether a message names this mission, and, of the plans that it names, its plan."""
    plans = _said_by("Placet-Plan", message)
    is_plan = not digest or not plans or digest in plans
    return is_plan and trace_id in _said_by("Placet-Trace", message)


def _said_by(trailer: str, message: str) -> list[str]:
    return list(dict.fromkeys(re.findall(rf"^\s*{trailer}: (\S+)\s*$", message, re.MULTILINE)))


def trailers_of(repo: Repo, commit: str, *keys: str) -> list[str]:
    """Return the last value of each of these trailers of a commit, empty for a missing one."""
    form = "%x00".join(f"%(trailers:key={key},valueonly,separator=%x01)" for key in keys)
    out = ask(repo, "log", "-1", f"--format={form}", "--no-notes", "--end-of-options", commit)
    text = out.decode("utf-8", "replace").removesuffix("\n")
    return [values.split("\x01")[-1] for values in text.split("\0")]


# --- reverts


def messages_since(repo: Repo, news: Sequence[str], then: Sequence[str]) -> list[tuple[str, str]]:
    """Return the commits of `news` that may take others back, with their messages, newest first.

    Commits of `then` are left out; without `then` it is those of the last 30 days. One process.
    """
    since = [f"^{sha}" for sha in then] or ["--since=30.days"]
    pattern = f"^(This reverts commit [0-9a-f]{{40,64}}|{REVERTS}: )"
    return _matching(repo, pattern, f"-n{MAX_REVERTS}", *news, *since)


def reverts_in(repo: Repo, messages: Iterable[tuple[str, str]]) -> list[tuple[str, str, str, bool]]:
    """Return the commits that take a mission's work back, or bring it in again.

    Each is the mission's trace, the commit of the work or "", the commit itself, and whether it
    brings the work in again, by taking such a commit back. `placet undo` writes the trace; else it
    is in the commit that is taken back, or in those that it merged: two or three processes each.
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
            said = _message(repo, of)
            if traces := _traces_of(repo, of, said):
                break
        found += [(trace, of, sha, again) for trace in traces]
    return found[:MAX_REVERTS]


def _message(repo: Repo, sha: str) -> str:
    asked = ("log", "-1", "--format=%B", "--no-notes", "--end-of-options", sha)
    code, out = run_git(place_of(repo), *asked, ok=(0, 128))
    return out.decode("utf-8", "replace") if code == 0 else ""


def _traces_of(repo: Repo, sha: str, message: str) -> list[str]:
    """Return the missions that a commit's message names, or else the one that it merged."""
    traces = _said_by("Placet-Trace", message)
    if message and not traces and len(parents := parents_of(repo, sha)) > 1:
        traces = _said_by("Placet-Trace", _message(repo, parents[1]))
    return traces
