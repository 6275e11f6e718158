"""The requests that `placet retry` can have planned again, and their places."""

from __future__ import annotations

from pathlib import PurePosixPath

from placet.case.case import Case, State
from placet.case.explain import stands
from placet.case.notes import trace_of
from placet.cli.site import Site
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.files.errors import Unreadable
from placet.note.frontmatter import read_note
from placet.note.paths import Folder, request_id

_OVER = (State.FAILED, State.REJECTED, State.WITHDRAWN, State.COMPLETED)


def to_retry(site: Site, ident: str) -> tuple[Case, str]:
    """Return a case that is over, or in review after a mission, and the path of its request.

    Raises UserError for any other, and where the request was taken away.
    """
    case = site.case(ident)
    is_over = case.state in _OVER
    again = case.state is State.REVIEW and case.outcome.report_path
    path = case.request_path
    if case.state is State.COMPLETED:
        with Vault(site.vault) as folder:
            path = _in_archive(folder, case)
    if path and (is_over or again):
        return case, path
    what = f"{stands(case)}, so there is nothing to try again."
    helps = f"See why it is where it is: placet why {case.request_id}"
    if is_over or again:
        what = f"The request of {case.request_id} was taken away."
        helps = f"Read it, then drop it again with placet submit: placet show {case.request_id}"
    elif case.state is State.REVIEW:
        helps = f"Ask for changes: placet revise {case.request_id} --comment C"
    raise UserError(what, helps, exit_code=3)


def _in_archive(folder: Vault, case: Case) -> str:
    """Return the path of a request that was carried out; empty where it is not in the archive."""
    names = sorted(
        folder.scan([Folder.ARCHIVE]).found,
        key=lambda path: request_id(PurePosixPath(path).name, ()) != case.request_id,
    )
    for path in names:
        try:
            raw, _ = folder.read(path)
        except Unreadable:
            continue
        if trace_of(raw) == case.trace_id and "revision" not in read_note(raw).meta:
            return path
    return ""
