"""The repository of a portal, opened or begun; the vault's own history."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from placet.activity import Action, Actor, Entity
from placet.agent.record import Postponed, Record
from placet.agent.workplace import Ports, journalled
from placet.case.portal import unfit
from placet.case.waiting import ALLOW_HISTORY, Why
from placet.core.wording import counted, megabytes
from placet.errors import UserError
from placet.git.repository import is_repository, open_repo
from placet.git.vault_history import keep_notes, not_added
from placet.host.config import portal_path
from placet.host.tables import VaultTable
from placet.note.paths import show
from placet.repo.init import Allowance, TooMuch, init_repo
from placet.repo.places import Repo
from placet.repo.sizes import Size, attachment_patterns
from placet.repo.values import RepositoryChanged

VAULT_EXCLUDES = ("Inbox/", "System/", ".obsidian/", ".trash/", *attachment_patterns())
"""Paths outside a vault's history, by `.git/info/exclude`: its own folders, and attachments."""
FEW_FILES = 50
"""Maximum of notes in a new vault, which may have a history where nobody was asked."""
HISTORY_RETRY_S = 60.0


def repository(ports: Ports, portal: str, record: Record) -> Repo:
    """Return the repository that a portal names.

    A folder that has no repository yet gets one, with an initial commit.

    A worker of another machine has a clone of it instead.

    Raises UserError for a portal that is not configured, or a folder that cannot be one; Postponed
    for a vault that may have no history.
    """
    ran = journalled(record)
    if ports.lent is not None:
        return replace(open_repo(ports.lent.clone, on_call=ran), clone_of=ports.lent.original)
    if portal and portal not in ports.config.portals:
        raise UserError(
            f"There is no portal `{portal}` in System/placet.toml.",
            f"Add [portals.{portal}] with its path, or change `portal:`.",
        )
    path = portal_path(ports.vault, ports.config, portal)
    if not path.is_dir():
        raise UserError(
            f"The repository {path} is not a folder.",
            "Put it back, or correct its path in System/placet.toml.",
        )
    if why := unfit(ports.vault.resolve(), path.resolve(), is_repository=is_repository(path)):
        raise UserError(why, "Name another folder in System/placet.toml, or another portal.")
    with ports.making:  # two workers must not make the same repository at once
        if is_repository(path):
            return open_repo(path, on_call=ran)
        allowed = _allowance(ports) if path.samefile(ports.vault) else None
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
                _too_much(found.size, ports.config.vault), HISTORY_RETRY_S, Why.HISTORY
            ) from found
    record.note(
        record.row(
            Action.GIT_INITIALIZED, Actor.SYSTEM, Entity.REPOSITORY, path=str(path), commit=commit
        )
    )
    return repo


def _allowance(ports: Ports) -> Allowance:
    """Return the size that the vault's history may have when it begins.

    Raises Postponed where a person has to allow it first.
    """
    table = ports.config.vault
    if table.history is False:
        raise Postponed(NO_HISTORY, HISTORY_RETRY_S, Why.HISTORY)
    return Allowance(
        int(table.history_max_mb * 1e6), FEW_FILES if table.history == "ask" else None, ports.say
    )


NO_HISTORY = f"""This request names no portal, so it is about the vault itself, \
and the vault may have no history (git) yet. placet \
changes notes only where each change can be looked at and taken back.
To allow a history: `{ALLOW_HISTORY}`, or `placet init --history`.
To work in a repository instead: write `portal: NAME` into this request's properties \
(`placet portal list` names them, \
`placet portal add NAME PATH` adds one).
This request goes on by itself when either is done."""


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
        f"more than the {table.history_max_mb:g} MB of `history_max_mb`. Nothing was begun. "
        f"The most is in: {kinds}.\n"
        "Raise `history_max_mb` under `[vault]` in System/placet.toml, or leave files out: "
        "a line for each kind or folder in a file named `.gitignore` in the vault.\n"
        "Or write `portal: NAME` into this request's properties, to work in a repository instead.\n"
        "This request goes on by itself when that is done."
    )


def keep_vault(ports: Ports, repo: Repo, record: Record) -> None:
    """Commit people's changes in the vault, if placet keeps its history, so that work sees them."""
    if ports.config.vault.history is False or repo.path != ports.vault.resolve():
        return
    try:
        commit, files, left_out = keep_notes(
            repo, kept_index(ports.worktrees.parent), ports.clock.wall()
        )
    except RepositoryChanged:  # somebody committed there in this moment
        return
    if not ports.left_out.issuperset(left_out):
        ports.left_out.update(left_out)
        ports.say(not_added(left_out))
    if commit:
        record.note(
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
    """Return where placet's own index of the vault is, below the vault's state folder."""
    return state / "vault.index"
