"""Twice the text takes about twice the time: no note makes the one loop stand still.

Growth is timed, not seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from time import monotonic, process_time, sleep

import pytest

from placet.core.life.approval import plan_problems
from placet.core.life.case import Case, KnownPlan, State
from placet.core.life.plan_note import headed, show
from placet.core.life.sight import look_at
from placet.core.secrets import outside, redact
from placet.core.shorten import cut, fold
from placet.core.text.comments import comments
from placet.core.text.dangers import dangers
from placet.core.text.differences import diff_callout
from placet.core.text.markdown import code, paragraphs, sentence
from placet.core.text.plan_reader import MAX_PLAN_CHARACTERS, PlanProblems, parse_plan
from placet.core.text.scope import Scope, ScopeProblems, scope_from
from placet.core.text.unseen import find_unseen

MOST = 2.7
"""What twice the text may take: twice, and what a loaded machine adds."""


def body(toml: str = 'write = ["a"]', scope: str = "", step: str = "x") -> str:
    return f"# T\n\nx\n\n## Steps\n\n### 1. Do\n\n{step}\n\n## Scope\n\n```toml\n{toml}\n```\n{scope}\n## Risks\n\nNone.\n"


def read(text: str) -> None:
    with suppress(PlanProblems):
        parse_plan(text)


CASE = Case(
    "11111111-2222-3333-4444-555555555555",
    "r",
    State.REVIEW,
    plan=KnownPlan(path="Inbox/Plans/r_plan.md"),
)
GROWING: dict[str, tuple[Callable[[int], str], Callable[[str], object], int]] = {
    "fences in the scope": (lambda n: body(scope="```\n" * n), read, 10_000),
    "keys of a broken scope": (
        lambda n: body("\n".join(f"k{i} = 1" for i in range(n)) + "\nx x"),
        read,
        4_000,
    ),
    "dotted keys": (
        lambda n: body("\n".join(".".join(["a"] * 90 + [f"b{i}"]) + " = 1" for i in range(n))),
        read,
        200,
    ),
    "code spans in a step": (lambda n: body(step="`a` ``b` " * n), read, 4_000),
    "footnotes": (lambda n: "[^1]: x\n" * n, find_unseen, 4_000),
    "maths that is never closed": (lambda n: "$x " * n, find_unseen, 20_000),
    "links with titles that are never closed": (lambda n: '[a](b "' * n, find_unseen, 4_000),
    "fields": (lambda n: "[a:" * n, find_unseen, 10_000),
    "users of addresses": (lambda n: "ab://a" * n, find_unseen, 4_000),
    "unseen characters": (lambda n: "\u200b" * n, find_unseen, 20_000),
    "overlays": (lambda n: "a\u0336" * n, find_unseen, 8_000),
    "comments": (lambda n: "## Review Comments\n\n" + "- x\n" * n, comments, 10_000),
    "differences": (lambda n: "\u200b" * n, lambda text: diff_callout(text, text + "x"), 20_000),
    "a callout": (
        lambda n: body(step="&shy; `= x` " * n),
        lambda text: headed(text.encode(), show(CASE)),
        1_000,
    ),
    "foreign words": (
        lambda n: "`a` [b](c) $ ``" * n,
        lambda text: (code(text), paragraphs(text), sentence(text)),
        2_000,
    ),
}


def took_s(work: Callable[[str], object], text: str) -> float:
    times = []
    for _ in range(5):
        began = process_time()
        work(text)
        times.append(process_time() - began)
    return min(times)


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.thinned(5)
def test_twice_the_text_takes_about_twice_the_time(name: str) -> None:
    make, work, size = GROWING[name]
    one, other = make(size), make(2 * size)
    for _ in range(3):
        growth = took_s(work, other) / max(took_s(work, one), 0.002)
        if growth <= MOST:
            return
    pytest.fail(f"{growth:.1f} times")


KEY = "-----BEGIN PRIVATE KEY-----\n" + "A" * 64 + "\n-----END PRIVATE KEY-----\n"
MIB = 1024 * 1024
HOLDING: dict[str, tuple[Callable[[], str], Callable[[str], object]]] = {
    "short lines, cut": (lambda: "a\n" * (6 * MIB), cut),
    "words, cut": (lambda: "ab " * (4 * MIB), cut),
    "letters, cut": (lambda: "a" * (8 * MIB), cut),
    "short lines, folded": (lambda: "a\n" * (2 * MIB), lambda text: fold(text, 900)),
    "private keys": (lambda: KEY * (4 * MIB // len(KEY)), redact),
    "private keys, outside": (lambda: KEY * (4 * MIB // len(KEY)), outside),
    "known values": (lambda: "abcdef\n" * (2 * MIB), lambda text: redact(text, ("abcdef",))),
}


def longest_hold_ms(work: Callable[[], object]) -> float:
    """Return how long another thread that wants the interpreter waits at most.

    What the machine does meanwhile does not count.
    """
    looks: list[tuple[float, float]] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            sleep(0.001)
            looks.append((monotonic(), process_time()))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        work()
    finally:
        over.set()
        looking.join()
    return (
        max(
            (min(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(looks)),
            default=0,
        )
        * 1000
    )


@pytest.mark.parametrize("name", HOLDING)
@pytest.mark.thinned(7)
def test_no_text_of_megabytes_holds_the_interpreter(name: str) -> None:
    """Several times what a file that is read may have (2 MiB): it holds here for what it would hold
    on a slow machine.
    """
    make, work = HOLDING[name]
    text = make()
    for _ in range(3):
        hold = longest_hold_ms(lambda: work(text))
        if hold <= 50:
            return
    pytest.fail(f"{hold:.0f} ms")


def test_a_key_of_thousands_of_parts_is_not_read() -> None:
    with pytest.raises(PlanProblems, match="more than 100 names are joined by dots"):
        parse_plan(body(".".join(["a"] * 30_000) + " = 1"))


def test_a_plan_that_is_too_long_is_told_so_beside_it() -> None:
    note = look_at(
        "System/Active/r.md",
        b"---\nrequest_id: r\nrevision: 1\n---\n" + b"## x\n" * 400_000,
        "cleo",
    )
    assert f"no more than {2 * MAX_PLAN_CHARACTERS:,} of a plan are read" in note.problem
    long = look_at(
        "System/Active/r.md", b"---\nrequest_id: r\nrevision: 1\n---\n" + b"## x\n" * 60_000, "cleo"
    )
    assert f"more than {MAX_PLAN_CHARACTERS:,} are not read" in plan_problems(long, ())[0]


def test_an_entry_that_nobody_reviews_is_no_entry_and_a_long_command_is_not_looked_through() -> (
    None
):
    with pytest.raises(ScopeProblems, match="longer than 4,096 characters"):
        scope_from({"run": ["make " + "x " * 5_000]})
    scope = Scope(run=(("xargs",),))
    assert "too long to be looked through" in (
        scope.forbidden_run(["xargs", *["x"] * 50_000]) or ""
    )
    assert dangers(scope)
