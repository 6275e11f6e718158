"""Compare JSON values with pydantic's own reading and writing of the same types."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter

from placet.case.case import CASE_JSON, Branch, Case, KnownPlan, Request
from placet.case.commands import COMMAND_JSON, Move, Publish, Rewrite, Stamp
from placet.case.life_cycle import State
from placet.case.mission_result import MissionResult
from placet.chat.budget import Complexity
from placet.codec import Stored

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
st.register_type_strategy(Decimal, st.decimals(0, 1000, places=4))
st.register_type_strategy(float, st.floats(0, 1e6))
st.register_type_strategy(str, TEXT)
WHOLE = st.integers(-(2**63), 2**63 - 1)
st.register_type_strategy(int, WHOLE)
DATA = st.dictionaries(TEXT, st.none() | TEXT | WHOLE | st.booleans(), max_size=3)
COMMANDS: Any = Annotated[Stamp | Publish | Rewrite | Move, Field(discriminator="do")]
RESULT_JSON: Stored[MissionResult] = Stored(MissionResult)
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
        RESULT_JSON,
        MissionResult,
        st.builds(
            MissionResult,
            calls=st.dictionaries(TEXT, WHOLE, max_size=2),
            error=st.none() | DATA,
        ),
    ),
]


@pytest.mark.parametrize(("stored", "kind", "values"), KINDS, ids=["case", "command", "ended"])
def test_stored_json_agrees_with_pydantic(stored: Any, kind: Any, values: Any) -> None:
    oracle = TypeAdapter(kind)

    @settings(max_examples=10, suppress_health_check=list(HealthCheck))
    @given(values)
    def holds(value: Any) -> None:
        raw = stored.dump_json(value)
        assert stored.validate_json(raw) == value
        plain = oracle.dump_python(value, mode="json")
        assert json.loads(raw) == plain
        assert oracle.validate_python(plain) == value

    holds()


def test_a_name_that_is_not_utf8_is_kept() -> None:
    case = Case("t", "r", State.REVIEW, request_path="Inbox/Requests/\udc80.md")
    assert CASE_JSON.validate_json(CASE_JSON.dump_json(case)) == case


def test_json_of_other_versions_is_read() -> None:
    case = Case(
        "t",
        "r",
        State.COMPLETED,
        request=Request(budget_usd=Decimal("0.5"), complexity=Complexity.TRIVIAL),
        branches=(Branch("t", "feat/x", "1", "2"),),
        plan=KnownPlan(based_on=(("a", "1"), ("b", "2"))),
    )
    data = json.loads(CASE_JSON.dump_json(case))
    del data["branches"][0]["digest"], data["since"]
    data["from_the_future"] = [1]
    assert CASE_JSON.validate_json(json.dumps(data)) == case


@pytest.mark.parametrize(
    "change",
    [
        {"trace_id": 7},
        {"state": "lost"},
        {"plan": {"revision": "1"}},
        {"plan": {"revision": True}},
        {"request": {"budget_usd": "x"}},
        {"plan": {"based_on": [["a"]]}},
        {"plan": {"based_on": "ab"}},
        {"branches": [{}]},
    ],
)
def test_invalid_case_json_raises_value_error(change: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"is not what|is nothing that|is no|is not a valid|argument"
    ):
        CASE_JSON.validate_json(
            json.dumps({"trace_id": "t", "request_id": "r", "state": "review", **change})
        )


@pytest.mark.parametrize(
    "raw", ["[]", "{}", '{"do": "burn"}', '{"do": "move", "src": "a"}', "not json"]
)
def test_invalid_command_json_raises_value_error(raw: str) -> None:
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
def test_non_finite_or_huge_numbers_are_refused(kind: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r"not a number|not what was expected|nested too deeply"):
        Stored(kind).validate_json(text)
