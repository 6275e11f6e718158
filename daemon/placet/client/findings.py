"""Define a finding of `placet doctor`, for the core and for plug-ins."""

from __future__ import annotations

Line = dict[str, str]


def finding(what: str, state: str, found: str, helps: str = "") -> Line:
    """Return a finding: its subject, its level (good, warn or bad), a sentence and a fix."""
    helps = "" if state == "good" else helps or "Fix that, then look again: placet doctor"
    return {"what": what, "state": state, "found": found, "helps": helps}
