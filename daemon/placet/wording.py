"""Put numbers, times and money into words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal


def one_line(text: str, most: int | None = None) -> str:
    """Return a text on one line, with single spaces, cut to `most` characters."""
    line = " ".join(text.split())
    return line if most is None else at_most(line, most)


def at_most(text: str, most: int) -> str:
    """Return a text of at most so many characters; one that was cut ends in `…`."""
    return text if len(text) <= most else text[: most - 1] + "…"


def counted(number: object, noun: str, several: str = "") -> str:
    """Return a number with its noun; `several` is an irregular plural.

    `1 plan`, `2 plans`, `1,000 branches`.
    """
    shown = f"{number:,}" if isinstance(number, int) else number
    return f"{shown} {noun if number == 1 else several or f'{noun}s'}"


def some_of(names: Sequence[str], most: int) -> str:
    """Return the first names for a sentence: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def numbered_steps(numbers: Sequence[int]) -> str:
    """Return steps by their numbers: `step 2`, `steps 2, 3 and 5`."""
    *some, last = numbers
    return f"steps {', '.join(map(str, some))} and {last}" if some else f"step {last}"


def megabytes(number: float) -> str:
    """Return a number of bytes in megabytes."""
    return f"{number / 1e6:.1f} MB"


def file_size(number: int) -> str:
    """Return the size of a file: `812 bytes`, `3.1 kB`, `2.4 MB`."""
    if number < 1000:
        return counted(number, "byte")
    return f"{number / 1000:.1f} kB" if number < 1_000_000 else megabytes(number)


def duration(seconds: float) -> str:
    """Return seconds as text: whole minutes from two on."""
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def age(seconds: float) -> str:
    """Return how long ago something was, in its largest unit: `40 s`, `5 min`, `3 h`, `2 d`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def dollars(usd: Decimal | float | None, unknown: str = "cost unknown") -> str:
    """Return an amount of money to a hundredth of a cent; `unknown` for None."""
    return unknown if usd is None else f"${usd:.4f}"


def rfc3339(moment: datetime) -> str:
    """Return a moment as in journal and notes: UTC, milliseconds, ending in `Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local(moment: str, *, now: datetime | None = None) -> str:
    """Return a journal's or a note's moment in local time, to the second.

    The date is left out if it is that of `now`.
    """
    at = datetime.fromisoformat(moment).astimezone()
    is_today = now is not None and at.date() == now.astimezone().date()
    return f"{at:%H:%M:%S}" if is_today else f"{at:%Y-%m-%d %H:%M:%S}"
