"""Commit messages."""

from __future__ import annotations

import re

from placet.repo.runner import BOT

_SUBJECT_LENGTH = 72


def commit_message(
    subject: str, body: str, trace_id: str, plan_digest: str, approved_by: str, co_author: str = ""
) -> str:
    """Return a commit message: subject, body, `[ExoTrace: …]`, trailers, with a blank line between each two.

    `co_author` is a name for a `Co-authored-by` trailer with placet's address; there is none where it is empty.

    The subject is one line of at most 72 characters. Control characters are dropped, and a line that git
    would take for the end of the message (`---`) is moved in by a space, so that `git interpret-trailers`
    finds the trailers.
    """
    line = _one_line(subject).lstrip("-# ") or "Carry out the plan"
    if len(line) > _SUBJECT_LENGTH:
        line = line[: _SUBJECT_LENGTH - 1].rsplit(" ", 1)[0].rstrip(" ,;:.") + "…"
    text = "\n".join(_printable(part).rstrip() for part in body.splitlines()).strip("\n")
    text = re.sub(r"^---", " ---", text, flags=re.MULTILINE)
    trailers = (
        f"Placet-Trace: {_one_line(trace_id)}",
        f"Placet-Plan: {_one_line(plan_digest)}",
        f"Approved-By: {_one_line(approved_by)}",
        *(
            [f"Co-authored-by: {re.sub('[<>]', '', _one_line(co_author))} <{BOT.email}>"]
            if co_author
            else []
        ),
    )
    parts = [
        line,
        *([text] if text else []),
        f"[ExoTrace: {_one_line(trace_id)}]",
        "\n".join(trailers),
    ]
    return "\n\n".join(parts) + "\n"


def _printable(text: str) -> str:
    """Return one line of text without control characters (a tab is kept) and without lone surrogates."""
    plain = text.encode("utf-8", "replace").decode()
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", "", plain)


def _one_line(text: str) -> str:
    return _printable(" ".join(text.split())).strip()
