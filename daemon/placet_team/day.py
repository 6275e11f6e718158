"""The day's budget, shared by the workers of a team."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from placet.chat.budget import Amount
from placet.journal.writer import Journal
from placet.journal.writes import Conflict
from placet_team.team_journal import DropDay, HoldDay
from placet_team.team_rows import held_today


@dataclass(frozen=True, slots=True)
class TeamDay:
    """The calls that workers hold in the budget of the day, in the database."""

    journal: Journal

    def held(self) -> tuple[int, Mapping[str, Amount]]:
        """Return what is held, by caller, and the number of that state."""
        with self.journal.read() as reader:
            version, rows = held_today(reader.connection)
        return version, {
            key: Amount(tokens, None if usd is None else Decimal(usd)) for key, tokens, usd in rows
        }

    def hold(self, key: str, worst: Amount, seen: int) -> bool:
        """Hold a call, if that state is still the last one; return whether it is held."""
        usd = None if worst.usd is None else str(worst.usd)
        try:
            self.journal.commit([HoldDay(key, worst.tokens, usd, seen)])
        except Conflict:
            return False
        return True

    def drop(self, key: str) -> None:
        """Hold a call no longer."""
        self.journal.commit([DropDay(key)])
