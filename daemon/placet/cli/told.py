"""Rows of the journal as lines for people: the sentences that `placet run` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from placet.activity import CommittedRow
from placet.case.story import Loud, Story
from placet.cli.screen import columns, on_terminal
from placet.cli.terminal import colour, echo, fitted, harmless, shown_time

BELOW = 9
"""Columns by which a line goes on below its time."""


@dataclass(frozen=True, slots=True)
class Told:
    """A sentence of the daemon's, and when it was said."""

    timestamp: str
    text: str
    trouble: bool

    def __str__(self) -> str:
        return f"{shown_time(self.timestamp)} {harmless(self.text)}"


@dataclass(slots=True)
class Teller:
    """Tells rows in their order; what need be said only once is said once."""

    story: Story = field(default_factory=Story)

    def tell(self, rows: Iterable[CommittedRow]) -> Iterator[Told]:
        """Give the sentences about rows; about many there is none."""
        for row in rows:
            told = self.story.line(row)
            if told is not None and told[0] <= Loud.EVENT and told[1]:
                yield Told(row.timestamp, told[1], told[0] is Loud.TROUBLE)


def print_told(told: Told) -> None:
    """Print a sentence to standard output; on a terminal it is broken to fit, trouble yellow."""
    text = colour(str(told), "yellow") if told.trouble else str(told)
    echo(fitted(text, columns(), hang=BELOW) if on_terminal() else text)
