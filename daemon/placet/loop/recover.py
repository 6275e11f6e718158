"""What the vault's reports and the branches' trailers say of missions, for a journal that was lost or put back. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from uuid import UUID

from placet.core.activity import rfc3339
from placet.core.errors import UserError
from placet.core.text.names import Folder, is_request_id, show
from placet.core.text.note import parse_note
from placet.core.turn.mission import KeptOutcome
from placet.files.vault import NotAFile, Stale, TooLarge, Vault, VaultTrouble
from placet.repo.history import traced_work
from placet.repo.repository import is_repository, open_repo
from placet.repo.runner import GitError


def look_back(
    vault: Vault, repositories: Mapping[str, Path]
) -> tuple[list[KeptOutcome], list[str]]:
    """Return what missions came to, one value for each trace of which a report or commits tell, and what could not be read.

    `repositories` are paths by portal's name, "" for the vault's own. Of two reports on one trace the later one counts.
    """
    found: dict[str, KeptOutcome] = {}
    problems: list[str] = []
    for path in sorted(vault.scan([Folder.REPORTS]).found):
        try:
            outcome = _reported(path, vault.read(path)[0])
        except (Stale, NotAFile, TooLarge, VaultTrouble) as error:
            problems.append(f"{show(path)}: {error}")
            continue
        if outcome is not None and (
            outcome.trace_id not in found or found[outcome.trace_id].ended_at < outcome.ended_at
        ):
            found[outcome.trace_id] = outcome
    for portal, place in repositories.items():
        try:
            if not is_repository(place):
                continue
            repo = open_repo(place)
            for trace, (base, tip) in traced_work(repo).items():
                known = found.get(trace, KeptOutcome(trace))
                if not known.report_path or known.tip == tip:
                    found[trace] = replace(known, portal=portal, base=base, tip=tip)
        except (GitError, UserError) as error:
            problems.append(f"{place}: {error}")
    return list(found.values()), problems


def _reported(path: str, raw: bytes) -> KeptOutcome | None:
    """Return what a report says, None for a note that is none."""
    meta, _ = parse_note(raw)
    completed = meta.get("status") == "completed"
    ended = meta.get("completed_at" if completed else "failed_at")
    request = str(meta.get("request_id") or "")
    try:
        trace = str(UUID(str(meta.get("trace_id"))))
    except ValueError:
        return None
    if not is_request_id(request) or not isinstance(ended, datetime | str):
        return None
    moment = (
        rfc3339(ended if ended.tzinfo else ended.replace(tzinfo=UTC))
        if isinstance(ended, datetime)
        else ended
    )
    return KeptOutcome(
        trace,
        request,
        path,
        moment,
        completed,
        str(meta.get("agent") or ""),
        str(meta.get("branch") or ""),
        "",
        "",
        str(meta.get("commit") or ""),
        str(meta.get("became") or ""),
        PurePosixPath(path).stem,
    )
