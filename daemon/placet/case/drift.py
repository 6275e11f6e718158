"""Compare the repository with the state that a plan was based on.

Pure; the facts come from git.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

KEY = "if_changed"
"""The key by which a plan says what happens when files change under it."""


class IfChanged(StrEnum):
    """A plan's setting for files that change under it; the default is `ASK`."""

    ASK = "ask"  # the plan goes back to review, with what changed
    PROCEED = "proceed"  # the mission continues from the plan's base commit; the merge will show it


UNDER, ELSEWHERE = "changed under the plan", "changed elsewhere"
"""What the journal says of the files that changed since a plan was written."""


def changed_files(
    changed: Collection[str] | None,
    now: Mapping[str, str],
    based_on: Mapping[str, str],
    named: Collection[str],
) -> tuple[str, tuple[str, ...]]:
    """Return whether a plan's files changed, and which; if not, the other files that changed.

    A plan's files are those that its planning read, and those that it names. A glob of the scope
    does not count: a plan for `notes/**` would come back with each saved note. `changed` are the
    paths that differ from the base commit, None if git no longer has it. `based_on` are digests by
    path, from when the plan was written, `now` those of today. If the base commit is gone, only
    they decide. Without digests nothing is known, and that counts as changed.
    """
    under = {path for path, digest in based_on.items() if now.get(path, "") != digest}
    under |= {*(changed or ())}.intersection(named)
    if under or (changed is None and not based_on):
        return UNDER, tuple(sorted(under))
    return ELSEWHERE, tuple(sorted(changed or ()))
