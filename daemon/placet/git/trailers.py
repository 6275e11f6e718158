"""Find commits by the missions that their messages name.

A mission's commits have the trailer `Placet-Trace`. If people squash or merge commits, it may be
on any line of the message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from placet.git.history import log
from placet.git.run import (
    Repo,
    ask,
)

MAX_REVERTS = 50


TRACED = "^[[:space:]]*Placet-Trace: "


def commits_traced(
    repo: Repo, trace_id: str, digest: str, among: Sequence[str], since: str
) -> list[str]:
    """Return the commits of `among` whose message has the trace's trailer, newest first.

    `among` are revisions, or `--branches` and the like. Commits of `since` are left out, if it is
    given. If `digest` is given, a commit that names plans must name that one. Other missions of the
    request have other digests.
    """
    named = f"{TRACED}{re.escape(trace_id)}[[:space:]]*$"
    found = log(repo, "-E", f"--grep={named}", *among, *([f"^{since}"] if since else []))
    return [commit.sha for commit in found if _names(commit.message, trace_id, digest)]


def _names(message: str, trace_id: str, digest: str) -> bool:
    """Return whether a message names this mission, and its plan if it names any."""
    plans = trailer_values("Placet-Plan", message)
    is_plan = not digest or not plans or digest in plans
    return is_plan and trace_id in trailer_values("Placet-Trace", message)


def trailer_values(trailer: str, message: str) -> list[str]:
    """Return the values of a trailer in a message, each once."""
    return list(dict.fromkeys(re.findall(rf"^\s*{trailer}: (\S+)\s*$", message, re.MULTILINE)))


def trailers_of(repo: Repo, commit: str, *keys: str) -> list[str]:
    """Return the last value of each of these trailers of a commit, "" for a missing one."""
    form = "%x00".join(f"%(trailers:key={key},valueonly,separator=%x01)" for key in keys)
    out = ask(repo, "log", "-1", f"--format={form}", "--no-notes", "--end-of-options", commit)
    text = out.decode("utf-8", "replace").removesuffix("\n")
    return [values.split("\x01")[-1] for values in text.split("\0")]
