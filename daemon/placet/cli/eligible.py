"""The cases on which a person can decide now."""

from __future__ import annotations

from collections.abc import Sequence

from placet.case.case import Case, State
from placet.case.explain import stands
from placet.cli.asked import asks_for_more
from placet.cli.site import Site
from placet.errors import UserError


def must_be(case: Case, states: Sequence[State], why_not: str) -> None:
    """Raise UserError (exit code 3) for a case in another state, with `why_not` as the reason."""
    if case.acting not in states:
        raise UserError(
            f"{stands(case)}, so there is {why_not}.",
            f"Look at it: placet show {case.request_id}",
            exit_code=3,
        )


def awaiting(site: Site, ident: str, done: str) -> Case:
    """Return a case whose plan, or wider scope, can be `done`.

    Raises UserError (exit code 3) for any other.
    """
    case = site.case(ident)
    in_review = case.acting in (State.REVIEW, State.REVISING)
    if in_review or asks_for_more(case) or (case.state is State.FAILED and case.plan.path):
        return case
    helps = f"See why: placet why {case.request_id}"
    if case.asking is not None:
        helps = f"Answer it: placet answer {case.request_id} TEXT"
    elif case.acting in (State.APPROVED, State.RUNNING) and done == "rejected":
        helps = f"Take it back first: placet stop {case.request_id}"
    raise UserError(
        f"{stands(case)}, so there is no plan that could be {done}.", helps, exit_code=3
    )
