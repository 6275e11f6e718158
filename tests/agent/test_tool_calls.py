"""Test that a scope entry that no mission may write is refused before a person reads it."""

from __future__ import annotations

from pathlib import Path

from looping import Fake, Time, bare_vault, greeter, looping, says
from placet.agent.tool_calls import never_written
from placet.chat.messages import Ask, Reply
from placet.disk.path_text import VAULT
from vaultkit import PLAN


def test_entries_below_protected_folders_are_named() -> None:
    bad = ["Inbox/**", "System/placet.toml", "inbox/", ".git/config", "SYSTEM_PROMPT.md"]
    good = ["**", "Notes/**", "Inbox.md", "!System/**", "*/Inbox/x.md"]
    assert [one.split()[1] for one in never_written([*good, *bad], VAULT)] == bad


def test_plan_for_a_protected_path_is_refused(tmp_path: Path) -> None:
    asked: list[Ask] = []

    def answer(ask: Ask) -> Reply:
        asked.append(ask)
        if len(asked) == 1:
            return says(("submit_plan", {**PLAN, "scope": {"write": ["Inbox/**"]}}))
        return greeter(ask)

    vault = bare_vault(tmp_path)
    vault.drop("Get to inbox zero.\n")
    with looping(vault, model=lambda: Fake(answer), time=Time()) as running:
        running.settle()
    assert "Inbox/** can never be written" in str(asked[1].turns[-1])
    assert len(vault.rows("plan.created")) == 1
