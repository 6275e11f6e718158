"""Say whether missions can work on a folder."""

from __future__ import annotations

from pathlib import PurePath


def unfit(vault: PurePath, place: PurePath, *, is_repository: bool) -> str:
    """Return why missions cannot work on the folder `place`, in a sentence; empty where they can.

    Both paths are resolved.
    """
    if any(
        place.is_relative_to(vault / name) for name in ("Inbox", "System", ".obsidian", ".trash")
    ):
        return f"{place} is one of the vault's own folders, which no mission may write."
    if not is_repository and place != vault and vault.is_relative_to(place):
        return (
            f"{place} is no git repository, and it holds the vault: a first commit would take in"
            " the vault too."
        )
    return ""
