"""Define a finding of `placet doctor`, for the core and for plug-ins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["good", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, a sentence, and what helps; empty if it is good."""

    what: str
    state: Verdict
    found: str
    helps: str


def finding(what: str, state: Verdict, found: str, helps: str = "") -> Finding:
    """Return a finding; without `helps` it says to fix what was found."""
    helps = "" if state == "good" else helps or "Fix that, then look again: placet doctor"
    return Finding(what, state, found, helps)
