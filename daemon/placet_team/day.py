"""The day's budget, shared by the workers of a team."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from placet.chat.budget import Amount
from placet_team.team_rows import held_today
from placet_team.worker_journal import WorkerJournal


@dataclass(frozen=True, slots=True)
class TeamDay:
    """The calls that workers hold in the budget of the day, in the database."""

    journal: WorkerJournal

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
        return bool(self.journal.call("worker_hold", key, worst.tokens, usd, seen))

    def drop(self, key: str) -> None:
        """Hold a call no longer."""
        self.journal.call("worker_drop", key)
