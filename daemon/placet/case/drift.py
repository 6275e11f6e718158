"""Drift: whether the repository is still what a plan was based on.

Pure; the facts come from git.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

KEY = "if_changed"
"""The key by which a plan says what is to happen when files change under it."""


class IfChanged(StrEnum):
    """A plan's setting for files that change under it; the default is `ASK`."""

    ASK = "ask"  # the plan goes back to review, with what changed
    PROCEED = "proceed"  # the mission goes on from the plan's base commit; the merge will show it


class DriftVerdict(StrEnum):
    """The relation of the repository to the plan's basis."""

    UNCHANGED = "unchanged"
    ELSEWHERE = "changed elsewhere"
    UNDER = "changed under the plan"


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of git: the plan's base commit and the branch's commit now.

    `changed` are the paths that differ between the two, None where git no longer has the base;
    `now` are the digests at `tip` of the files that the plan was based on, without those that are
    gone.
    """

    base: str
    tip: str
    changed: Sequence[str] | None
    now: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Drift:
    """A verdict, and the files that it is about: those under the plan, else those elsewhere."""

    verdict: DriftVerdict
    paths: tuple[str, ...] = ()


def judge(facts: Facts, based_on: Mapping[str, str], named: Collection[str]) -> Drift:
    """Judge whether files changed under a plan: files that its planning read, or that it names.

    A glob of the scope names none: a plan for `notes/**` would come back with each saved note.
    `based_on` are digests by path, from when the plan was written. Where the base commit is gone
    they alone decide; without any nothing is known, and that counts as changed.
    """
    if facts.tip == facts.base:
        return Drift(DriftVerdict.UNCHANGED)
    under = {path for path, digest in based_on.items() if facts.now.get(path, "") != digest}
    if facts.changed is None:
        return Drift(
            DriftVerdict.UNDER if under or not based_on else DriftVerdict.ELSEWHERE,
            tuple(sorted(under)),
        )
    under |= {*facts.changed}.intersection(named)
    if under:
        return Drift(DriftVerdict.UNDER, tuple(sorted(under)))
    return Drift(DriftVerdict.ELSEWHERE, tuple(sorted(facts.changed)))
