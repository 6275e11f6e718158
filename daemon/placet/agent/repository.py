"""Open the repository that a portal names, or make one of the vault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from placet.activity import Action, Actor, Entity
from placet.agent.ports import Ports
from placet.agent.record import Postponed, Record
from placet.case.case import CASE_JSON
from placet.case.waiting import ALLOW_HISTORY, CONTINUES, WaitReason
from placet.disk.real_path import real_path
from placet.errors import UserError
from placet.git.repository import is_repository, open_repo, portal_problem, repository_above
from placet.git.run import GitCall, OnCall, Repo, RepositoryChanged
from placet.git.vault_history import (
    ATTACHMENT_PATTERNS,
    Allowance,
    Size,
    TooMuch,
    init_repo,
    keep_notes,
    not_added,
)
from placet.host.config import VaultTable, portal_path
from placet.note.paths import show
from placet.secrets import redact
from placet.wording import counted, megabytes

VAULT_EXCLUDES = ("Inbox/", "System/", ".obsidian/", ".trash/", *ATTACHMENT_PATTERNS)
"""Paths outside a vault's history (`.git/info/exclude`): placet's folders, and attachments."""
FEW_FILES = 50
"""Maximum of notes in a new vault, which gets a history without a question."""
HISTORY_RETRY_S = 60.0


def journalled(record: Record) -> OnCall:
    """Return a function that journals git processes, failed ones in rows of their own."""

    def on_call(call: GitCall) -> None:
        if call.stderr:
            facts = failure_of(call)
            row = record.row(Action.GIT_RAN, Actor.SYSTEM, Entity.REPOSITORY, **facts)
            record.log(row, hold=True)
        else:
            record.ran.append(call.duration_ms)

    return on_call


def failure_of(call: GitCall) -> dict[str, Any]:
    """Return the journal's facts about a git process that failed, with its output."""
    return {
        "operation": call.argv[0],
        "exit": call.returncode,
        "processes": 1,
        "duration_ms": round(call.duration_ms, 1),
        "command": ["git", *map(show, call.argv)],
        "stderr": redact(show(call.stderr))[0],
    }


def missing_folder(ports: Ports, portal: str) -> UserError | None:
    """Return what to say if the folder that a configured portal names is not there."""
    if ports.clone is not None or (portal and portal not in ports.config.portals):
        return None
    path = portal_path(ports.vault, ports.config, portal)
    if path.is_dir():
        return None
    return UserError(
        f"The repository {path} is not a folder.",
        "Restore it, or correct its path in System/placet.toml.",
    )


def repository(ports: Ports, portal: str, record: Record) -> Repo:
    """Return the repository that a portal names.

    A folder without a repository gets one, with an initial commit. A worker of another machine gets
    its clone. Raises UserError for a portal that is not configured, or a folder that cannot be a
    repository; Postponed for a vault that may have no history.
    """
    ran = journalled(record)
    if ports.clone is not None:
        return replace(open_repo(ports.clone.path, on_call=ran), clone_of=ports.clone.original)
    if portal and portal not in ports.config.portals:
        raise UserError(
            f"There is no portal `{portal}` in System/placet.toml.",
            f"Add [portals.{portal}] with its path, or change `portal:`.",
        )
    if (missing := missing_folder(ports, portal)) is not None:
        raise missing
    path = portal_path(ports.vault, ports.config, portal)
    if portal and (problem := portal_problem(ports.vault, path)) is not None:
        raise problem
    above = None if portal or is_repository(path) else repository_above(path)
    if above is not None:  # its commits would go into the new one
        raise UserError(
            f"The vault is inside the repository {above}, and placet does not create a repository "
            "inside another one.",
            f"Have requests work there: placet portal add NAME '{above}'. "
            f"Or make the vault one yourself: git -C '{path}' init",
        )
    with ports.making:  # two workers must not make the same repository at once
        if is_repository(path):
            return open_repo(path, on_call=ran)
        _must_be_new(ports, portal, path)
        allowed, table = None, ports.config.vault
        if path.samefile(ports.vault):
            if table.history is False:  # you have to allow it first
                raise Postponed(NO_HISTORY, HISTORY_RETRY_S, WaitReason.HISTORY)
            most_files = FEW_FILES if table.history == "ask" else None
            allowed = Allowance(int(table.history_max_mb * 1e6), most_files, ports.say)
        try:
            repo, commit = init_repo(
                path,
                excludes=VAULT_EXCLUDES if allowed else (),
                when=ports.clock.wall(),
                on_call=ran,
                allowance=allowed,
                message="Initial commit\n\nWhat was there when placet made this folder a "
                "repository.\n",
            )
        except TooMuch as found:
            raise Postponed(
                _too_much(found.size, table), HISTORY_RETRY_S, WaitReason.HISTORY
            ) from found
    record.log(
        record.row(
            Action.GIT_INITIALIZED, Actor.SYSTEM, Entity.REPOSITORY, path=str(path), commit=commit
        )
    )
    return repo


def _must_be_new(ports: Ports, portal: str, path: Path) -> None:
    """Raise UserError if a plan was ever made for a commit of this portal's repository.

    The place of a drive that is not mounted is an empty folder, too.
    """
    if not portal:
        return
    with ports.journal.read() as reader:
        cases = (CASE_JSON.validate_json(row.body) for row in reader.cases())
        if not any(case.plan.base_commit and case.planned_portal == portal for case in cases):
            return
    raise UserError(
        f"{path} is not a git repository, but earlier requests of the portal `{portal}` "
        "worked in one.",
        f"If it is on a drive, mount it. To begin a new repository there: git -C '{path}' init",
    )


NO_HISTORY = f"""This request has no `portal:`, so it would change this vault. \
The vault is not a git repository, so you could not review or undo the change.
To let placet make it one: `{ALLOW_HISTORY}`, or `placet init --history`.
To work in a repository instead: write `portal: NAME` into this request's properties \
(`placet portal list` names them, \
`placet portal add NAME PATH` adds one).
{CONTINUES}"""


def _too_much(size: Size, table: VaultTable) -> str:
    if table.history == "ask" and size.bytes <= table.history_max_mb * 1e6:
        held = f"{counted(size.files, 'file')}, {megabytes(size.bytes)}"
        return f"{NO_HISTORY}\nIt would hold {held}; {size.left_out:,} are left out."
    kinds = ", ".join(
        f"{show(kind)} {megabytes(some)}" for kind, some in list(size.kinds.items())[:3]
    )
    return (
        f"The history (git) of the vault would hold {counted(size.files, 'file')}, "
        f"{megabytes(size.bytes)}: "
        f"more than the {table.history_max_mb:g} MB of `history_max_mb`. Nothing was started. "
        f"The most is in: {kinds}.\n"
        "Raise `history_max_mb` under `[vault]` in System/placet.toml, or leave files out: "
        "a line for each kind or folder in a file named `.gitignore` in the vault.\n"
        "Or write `portal: NAME` into this request's properties, to work in a repository instead.\n"
        + CONTINUES
    )


def keep_vault(ports: Ports, repo: Repo, record: Record) -> None:
    """Commit your changes in the vault, if placet keeps its history, so that work sees them."""
    if ports.config.vault.history is False or repo.path != real_path(ports.vault):
        return
    try:
        commit, files, left_out = keep_notes(
            repo, kept_index(ports.worktrees.parent), ports.clock.wall()
        )
    except RepositoryChanged:  # somebody else committed at this moment
        return
    if not ports.left_out.issuperset(left_out):
        ports.left_out.update(left_out)
        ports.say(not_added(left_out))
    if commit:
        record.log(
            record.row(
                Action.GIT_SNAPSHOTTED,
                Actor.SYSTEM,
                Entity.REPOSITORY,
                commit=commit,
                files=files,
                **({"left_out": left_out} if left_out else {}),
            )
        )


def kept_index(state: Path) -> Path:
    """Return the path of placet's git index for the vault, below the vault's state folder."""
    return state / "vault.index"
