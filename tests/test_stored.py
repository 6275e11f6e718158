"""Values as JSON, held against pydantic's own reading and writing of the same types."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter

from placet.case.case import CASE_JSON, Branch, Case, KnownPlan, Request
from placet.case.commands import COMMAND_JSON, Move, Publish, Rewrite, Stamp
from placet.case.life_cycle import State
from placet.chat.budget import Complexity
from placet.chat.result import Ended, Finished, Stopped, WorkDone
from placet.codec import FLAT, Stored, stored_as

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
st.register_type_strategy(Decimal, st.decimals(0, 1000, places=4))
st.register_type_strategy(float, st.floats(0, 1e6))
st.register_type_strategy(str, TEXT)
WHOLE = st.integers(-(2**63), 2**63 - 1)
st.register_type_strategy(int, WHOLE)
DATA = st.dictionaries(TEXT, st.none() | TEXT | WHOLE | st.booleans(), max_size=3)
COMMANDS: Any = Annotated[Stamp | Publish | Rewrite | Move, Field(discriminator="do")]
ENDED_JSON: Stored[Ended] = Stored(Ended)
WORK = st.builds(WorkDone, calls=st.dictionaries(TEXT, WHOLE, max_size=2))
KINDS: Any = [
    (CASE_JSON, Case, st.builds(Case)),
    (
        COMMAND_JSON,
        COMMANDS,
        st.builds(
            Stamp,
            changes=DATA.map(lambda d: {k: v for k, v in d.items() if not isinstance(v, bool)}),
        )
        | st.builds(Publish)
        | st.builds(Rewrite)
        | st.builds(Move),
    ),
    (
        ENDED_JSON,
        Ended,
        st.builds(Finished, work=WORK) | st.builds(Stopped, work=WORK, error=st.none() | DATA),
    ),
]


def flattened(value: Any, plain: dict[str, Any]) -> dict[str, Any]:
    """Return what pydantic writes of a value, without the groups, of which it knows nothing."""
    found: dict[str, Any] = {}
    for one in fields(value):
        part = plain[one.name]
        if one.metadata == FLAT:
            found |= flattened(getattr(value, one.name), part)
        else:
            found[one.metadata.get("stored_as", one.name)] = part
    return found


@pytest.mark.parametrize(("stored", "kind", "values"), KINDS, ids=["case", "command", "ended"])
def test_what_is_written_is_what_pydantic_writes_and_reads(
    stored: Any, kind: Any, values: Any
) -> None:
    oracle = TypeAdapter(kind)

    @settings(max_examples=10, suppress_health_check=list(HealthCheck))
    @given(values)
    def holds(value: Any) -> None:
        raw = stored.dump_json(value)
        assert stored.validate_json(raw) == value
        plain = oracle.dump_python(value, mode="json")
        assert json.loads(raw) == flattened(value, plain)
        assert oracle.validate_python(plain if kind in (Case, Ended) else json.loads(raw)) == value

    holds()


@dataclass(frozen=True)
class Inner:
    name: str = field(default="", metadata=stored_as("inner_name"))
    size: int = 0


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner, metadata=FLAT)
    last: int = 0


def test_a_group_is_stored_flat_in_the_order_of_the_fields() -> None:
    stored: Stored[Outer] = Stored(Outer)
    value = Outer("o", Inner("i", 2), 3)
    raw = b'{"name":"o","inner_name":"i","size":2,"last":3}'
    assert stored.dump_json(value) == raw
    assert stored.validate_json(raw) == value
    assert stored.validate_json('{"name": "o", "inner": 7}') == Outer("o")
    with pytest.raises(ValueError, match="is no Outer"):
        stored.validate_json('{"inner_name": "i"}')


def test_a_name_that_is_not_utf8_is_kept() -> None:
    case = Case("t", "r", State.REVIEW, request_path="Inbox/Requests/\udc80.md")
    assert CASE_JSON.validate_json(CASE_JSON.dump_json(case)) == case


def test_what_an_older_or_newer_version_wrote_is_read() -> None:
    case = Case(
        "t",
        "r",
        State.COMPLETED,
        request=Request(budget_usd=Decimal("0.5"), complexity=Complexity.TRIVIAL),
        earlier=(Branch("t", "feat/x", "1", "2"),),
        plan=KnownPlan(based_on=(("a", "1"), ("b", "2"))),
    )
    data = json.loads(CASE_JSON.dump_json(case))
    del data["earlier"][0]["digest"], data["since"]
    data["from_the_future"] = [1]
    assert CASE_JSON.validate_json(json.dumps(data)) == case


@pytest.mark.parametrize(
    "change",
    [
        {"trace_id": 7},
        {"state": "lost"},
        {"revision": "1"},
        {"revision": True},
        {"budget_usd": "x"},
        {"based_on": [["a"]]},
        {"based_on": "ab"},
        {"earlier": [{}]},
    ],
)
def test_what_is_no_such_value_is_a_value_error(change: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"is not what|is nothing that|is no|is not a valid|argument"
    ):
        CASE_JSON.validate_json(
            json.dumps({"trace_id": "t", "request_id": "r", "state": "review", **change})
        )


@pytest.mark.parametrize(
    "raw", ["[]", "{}", '{"do": "burn"}', '{"do": "move", "src": "a"}', "not json"]
)
def test_what_is_no_command_is_a_value_error(raw: str) -> None:
    with pytest.raises(ValueError, match=r"is nothing that|Expecting"):
        COMMAND_JSON.validate_json(raw)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((int, str(number)) for number in (2**63, -(2**63) - 1)),
        *((float, text) for text in ("NaN", "Infinity", "1e300")),
        *((Decimal, text) for text in ('"NaN"', '"sNaN"', '"Infinity"', '"1E+19"', "1e300")),
        (Any, "[" * 100_000),
    ],
)
def test_what_nobody_could_count_with_is_refused(kind: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r"no number|not what was expected|nested too deeply"):
        Stored(kind).validate_json(text)
