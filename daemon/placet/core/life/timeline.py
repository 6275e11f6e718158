"""The timeline of a mission, read off its journal rows, and as a Mermaid chart."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from placet.core.activity import Action
from placet.core.life.why_failed import Rows, call_of, came_to, went_wrong
from placet.core.text.names import show


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a mission that took time; `turn` counts the model's turns, 0 before the first."""

    turn: int
    what: str
    began_ms: int
    ended_ms: int
    ok: bool


def timeline(rows: Rows) -> tuple[Bar, ...]:
    """Return a mission's model turns, calls and steps in order.

    Their times are milliseconds since 1970.
    """
    bars: list[Bar] = []
    turn = 0
    for row in rows:
        data = row.details
        ok = True
        match row.action_type:
            case Action.MODEL_CALLED:
                turn += 1
                what = "model"
            case Action.MODEL_FAILED:
                what, ok = f"model failed, {data['kind']}", False
            case Action.TOOL_CALLED | Action.TOOL_REFUSED:
                what, ok = f"{call_of(row)}: {came_to(row)}", not went_wrong(data)
            case Action.STEP_COMPLETED:
                what = f"step {data['step']} of {data['of']} done"
            case Action.FAILURE_DETECTED:
                what, ok = f"noticed, {data['pattern']}", False
            case Action.EXECUTION_RESUMED:
                what = "taken up again"
            case _:
                continue
        ended = int(datetime.fromisoformat(row.timestamp).timestamp() * 1000)
        took = data.get("duration_ms") or 0
        bars.append(Bar(turn, what, ended - round(took), ended, ok))
    return tuple(bars)


MAX_BARS = 40  # the last ones; a phone shows no more


def chart(rows: Rows) -> str:
    """Return a mission's timeline as a Mermaid Gantt chart; empty if nothing took time.

    Tool calls name files and commands, so every text is reduced to characters without a meaning in
    Mermaid's grammar (https://mermaid.js.org/syntax/gantt.html: `:`, `#`, `;` and line ends have
    one, and some words at the beginning of a line).
    """
    bars = timeline(rows)
    if not bars:
        return ""
    lines = ["gantt", "  title What happened when", "  dateFormat x", "  axisFormat %H:%M:%S"]
    section = -1
    for number, bar in enumerate(bars[-MAX_BARS:], max(0, len(bars) - MAX_BARS) + 1):
        if bar.turn != section:
            section = bar.turn
            lines.append(f"  section {f'Turn {section}' if section else 'Before'}")
        mark = "done" if bar.ok else "crit"
        # A bar without a width is not drawn.
        lines.append(
            f"  {number} {_plain(bar.what)} :{mark}, {bar.began_ms}, "
            f"{max(bar.ended_ms, bar.began_ms + 1)}"
        )
    return "\n".join(lines)


def _plain(text: str) -> str:
    kept = "".join(c if c.isalnum() or c in " ._-/,+*=()" else " " for c in show(text))
    return " ".join(kept.split())[:60].strip()
