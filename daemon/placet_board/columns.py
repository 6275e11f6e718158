"""The columns of the board, from what `cli.look.status` returns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placet.cli.case_line import waits_for_you
from placet.cli.text import estimate_words, turn
from placet.core.life.case import State


@dataclass(frozen=True, slots=True)
class Card:
    """One request in a column.

    `state` is its state in words, `about` what more there is to say of where it stands. `progress`
    has its steps and its cost, None where there are none. `now` is what it does at this moment, in
    words.
    """

    ident: str
    title: str
    kind: str
    state: str
    about: str
    since: str
    agent: str
    portal: str
    progress: Mapping[str, Any] | None
    estimate: str
    now: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the board; `hint` is shown where it is empty."""

    key: str
    name: str
    hint: str
    cards: tuple[Card, ...]
    others: tuple[tuple[str, str], ...] = ()


_COLUMNS = (
    ("requests", "Requests", "Nothing is asked for. Write a request, and a plan follows."),
    ("yours", "Awaiting you", "Nothing waits for you."),
    ("approved", "Approved", "Nothing waits for its turn."),
    ("running", "Running", "Nothing runs. What you approve runs here."),
    ("done", "Done", "Nothing is done yet."),
    ("failed", "Ended otherwise", "Nothing failed, was rejected or withdrawn."),
)
_OF_STATE = {
    State.PLANNING: "requests",
    State.REVISING: "requests",
    State.REVIEW: "yours",
    State.ASKING: "yours",
    State.APPROVED: "approved",
    State.RUNNING: "running",
    State.COMPLETED: "done",
    State.FAILED: "failed",
    State.REJECTED: "failed",
    State.WITHDRAWN: "failed",
}


def columns(
    found: Mapping[str, Any], now: Mapping[str, str], wanted: Mapping[str, str]
) -> list[Column]:
    """Return the columns of a status; `now` has what running missions do, by trace_id.

    `wanted` keeps cards by `portal`, `agent` and `text`; an empty one keeps all.
    """
    by_column: dict[str, list[Card]] = {key: [] for key, _, _ in _COLUMNS}
    for case in found["cases"]:
        if _is_wanted(case, wanted):
            card = _card(case, now.get(case["trace_id"], ""), daemon=bool(found["daemon"]))
            by_column[_column_of(case)].append(card)
    for ended in ("done", "failed"):
        by_column[ended].reverse()
    others = _unusable(found) if not any(wanted.values()) else ()
    return [
        Column(key, name, hint, tuple(by_column[key]), others if key == "requests" else ())
        for key, name, hint in _COLUMNS
    ]


def choices(cases: Iterable[Mapping[str, Any]]) -> dict[str, Sequence[str]]:
    """Return the portals and agents that can be filtered by."""
    found = list(cases)
    return {
        name: sorted({case[name] for case in found if case[name]}) for name in ("portal", "agent")
    }


def _column_of(case: Mapping[str, Any]) -> str:
    if waits_for_you(case) and case["state"] != State.FAILED:
        return "yours"
    return _OF_STATE[State(case["state"])]


def _is_wanted(case: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    text = wanted.get("text", "").casefold()
    return (
        all(not wanted.get(name) or case[name] == wanted[name] for name in ("portal", "agent"))
        and text in f"{case['title']} {case['request_id']}".casefold()
    )


def _card(case: Mapping[str, Any], now: str, *, daemon: bool) -> Card:
    return Card(
        case["request_id"],
        case["title"] or case["request_id"],
        case["state"],
        _in_words(case),
        _about(case, daemon=daemon),
        case["since"],
        case["agent"],
        case["portal"],
        case.get("progress"),
        estimate_words(case["estimate"]),
        now,
    )


_WORDS = {
    State.PLANNING: "plan being written",
    State.REVISING: "plan being revised",
    State.REVIEW: "plan to review",
    State.ASKING: "question",
    State.APPROVED: "about to begin",
    State.COMPLETED: "on its branch",
}


def _in_words(case: Mapping[str, Any]) -> str:
    if case["state"] == State.COMPLETED and case["became"]:
        return str(case["became"])
    if case["asking"] is not None and case["asking"]["kind"] == "amendment":
        return "wider scope"
    return _WORDS.get(case["state"], str(case["state"]))


def _about(case: Mapping[str, Any], *, daemon: bool) -> str:
    """Return what a card says below its title; empty where the state says it all."""
    if not daemon or case["intent"]:
        return turn(case, daemon=daemon)
    if case["asking"] is not None:
        return str(case["asking"]["question"])
    if trouble := case.get("model_trouble"):
        return f"the last call of the model failed: {trouble}"
    if case["state"] == State.FAILED:
        return str(case["failure"]).removeprefix("gave_up: ").partition(" (see ")[0]
    return ""


def _unusable(found: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    known = {path for case in found["cases"] for path in (case["request"], case["plan"])}
    return tuple(
        (path, " ".join(why.split())[:200])
        for path, why in found["explained"].items()
        if path not in known
    )
