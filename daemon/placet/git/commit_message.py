"""Write the message of a commit, with trailers that git and placet read back."""

from __future__ import annotations

import re

from placet.git.run import BOT

_SUBJECT_LENGTH = 72


FACT = re.compile(
    r"^(?=\s*(?:placet-|(?:approved|co-authored|signed-off)-by\s*:|this\s+reverts\s+commit))",
    re.IGNORECASE,
)
"""A line that placet and git read back as a fact; git allows blanks around a trailer's name."""


def commit_message(
    subject: str, body: str, trace_id: str, plan_digest: str, approved_by: str, co_author: str = ""
) -> str:
    """Return a commit message: subject, body, `[ExoTrace: …]`, trailers, with blank lines between.

    The subject is one line of at most 72 characters. `co_author` is a name for a `Co-authored-by`
    trailer with placet's address, or "". Control characters are dropped. A line `---`, which git
    would take for the end of the message, is indented by a space, and a line that would read as a
    trailer or a revert is quoted by `> `. Then `git interpret-trailers` finds the trailers.
    """
    line = _quoted(_one_line(subject).lstrip("-# ")) or "Run the plan"
    if len(line) > _SUBJECT_LENGTH:
        line = line[: _SUBJECT_LENGTH - 1].rsplit(" ", 1)[0].rstrip(" ,;:.") + "…"
    parts = (_quoted(_printable(part).rstrip()) for part in body.splitlines())
    text = "\n".join(parts).strip("\n")
    text = re.sub(r"^---", " ---", text, flags=re.MULTILINE)
    trailers = [
        f"Placet-Trace: {_one_line(trace_id)}",
        f"Placet-Plan: {_one_line(plan_digest)}",
        f"Approved-By: {_one_line(approved_by)}",
    ]
    if co_author:
        name = re.sub("[<>]", "", _one_line(co_author))
        trailers.append(f"Co-authored-by: {name} <{BOT.email}>")
    pieces = [line, text, f"[ExoTrace: {_one_line(trace_id)}]", "\n".join(trailers)]
    return "\n\n".join(filter(None, pieces)) + "\n"


def _quoted(line: str) -> str:
    return FACT.sub("> ", line)


def _printable(text: str) -> str:
    """Return a line without control characters, except tabs, and without lone surrogates."""
    plain = text.encode("utf-8", "replace").decode()
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", "", plain)


def _one_line(text: str) -> str:
    return _printable(" ".join(text.split())).strip()
