"""Test that twice the text takes about twice the time, so that no text blocks the loop.

It asserts the growth of time, not seconds.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from time import monotonic, process_time, sleep

import pytest

from placet.case.approval import valid_plan
from placet.case.callout import box_of, with_box
from placet.case.case import Case, KnownPlan
from placet.case.life_cycle import State
from placet.case.notes import inspect_note
from placet.case.question_note import answer_in
from placet.case.stray_keys import stray_keys
from placet.chat.text_calls import call_text, text_call
from placet.git.run import GitError
from placet.git.trailers import trailer_values
from placet.note.escape import code, paragraphs, sentence
from placet.note.frontmatter import read_note
from placet.note.hidden_text import find_unseen
from placet.note.markdown import merge_line
from placet.plan.comments import comments, comments_section, uncommented
from placet.plan.dangers import dangers
from placet.plan.differences import diff_callout
from placet.plan.left_out import contradictions, left_out, ticks
from placet.plan.limits import MAX_NOTE_CHARACTERS
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.revision import kept_comments
from placet.plan.scope import Scope, ScopeProblems, scope_from
from placet.plan.sections import rejection_reason
from placet.secrets import outside, redact
from placet.tools.run_command import sandbox_reasons
from placet.tools.shorten import cut, fold

MOST = 2.5
"""What twice the text may take: twice, and what a loaded machine adds."""


def body(toml: str = 'write = ["a"]', scope: str = "", step: str = "x") -> str:
    return f"# T\n\nx\n\n## Steps\n\n### 1. Do\n\n{step}\n\n## Scope\n\n```toml\n{toml}\n```\n{scope}\n## Risks\n\nNone.\n"


def read(text: str) -> None:
    with suppress(PlanProblems):
        parse_plan(text)


def judged(text: str) -> None:
    with suppress(PlanProblems):
        plan = parse_plan(text)
        contradictions(plan)
        left_out(plan)


def told(text: str) -> None:
    call = call_text("write_file", {"path": "a.md", "content": "hello"})
    assert text_call(call, ("write_file",), [text], [text]) is not None


LEFT_OUT = "- [ ] Do this step\n\n"
ACTION = """### a

```toml
[[actions]]
tool = "write_file"
[actions.params]
path = "a"
content = "x"
```

"""
CASE = Case(
    "11111111-2222-3333-4444-555555555555",
    "r",
    State.REVIEW,
    plan=KnownPlan(path="Inbox/Plans/r_plan.md"),
)
GROWING: dict[str, tuple[Callable[[int], str], Callable[[str], object], int]] = {
    "fences in the scope": (lambda n: body(scope="```\n" * n), read, 4_000),
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
    "lines that later lines undo": (
        lambda n: "\n".join([*["*a/" * 11 + "**"] * n, *(f"!{'a*/' * 11}{i}" for i in range(n))]),
        lambda text: dangers(Scope(tuple(text.split("\n")))),
        200,
    ),
    "keys outside of the properties": (
        lambda n: f"{'_' * n}{'(' * n}{'portal ' * n}\n---\n{'portal: ' * n}\n---\n",
        lambda text: stray_keys(read_note(text.encode()), {"portal": lambda _: True}),
        20_000,
    ),
    "fields behind a tick": (
        lambda n: f"## Options\n\n- [x] yes{'  ✅ 🔁 a (b:: c)' * n} x\n",
        lambda text: answer_in(inspect_note("Inbox/Questions/a.md", text.encode(), ""), ("yes",)),
        4_000,
    ),
    "marks of a merge": (lambda n: "<<<<<<< a\n=======\n" * n, merge_line, 20_000),
    "links with titles that are never closed": (lambda n: '[a](b "' * n, find_unseen, 4_000),
    "fields": (lambda n: "[a:" * n, find_unseen, 10_000),
    "users of addresses": (lambda n: "ab://a" * n, find_unseen, 4_000),
    "unseen characters": (lambda n: "\u200b" * n, find_unseen, 20_000),
    "overlays": (lambda n: "a\u0336" * n, find_unseen, 8_000),
    "comments": (lambda n: "## Review Comments\n\n" + "- x\n" * n, comments, 10_000),
    "differences": (lambda n: "\u200b" * n, lambda text: diff_callout(text, text + "x"), 20_000),
    "a callout": (
        lambda n: body(step="&shy; `= x` " * n),
        lambda text: with_box(text.encode(), box_of(CASE)),
        1_000,
    ),
    "sections of comments": (lambda n: body(scope="## Review Comments\n" * n), comments, 4_000),
    "comments that name steps": (
        lambda n: body(step="### a\n" * n) + "\n## Review Comments\n\n" + "1. x\n" * n,
        comments,
        4_000,
    ),
    "quoted comments above the title": (lambda n: "> @placet x\n" * n + body(), comments, 4_000),
    "quoted comments taken out": (lambda n: body(step="> @placet x\n" * n), uncommented, 4_000),
    "steps": (lambda n: body(step="### a\n\nx\n" * n), judged, 2_000),
    "steps with boxes": (
        lambda n: body(step="### a\n- [x] Do this step\n" * n),
        judged,
        1_000,
    ),
    "actions on one file": (
        lambda n: body('write = ["a"]', step=LEFT_OUT + ACTION * n),
        judged,
        250,
    ),
    "spans that are never closed": (lambda n: "``a`" * n, find_unseen, 8_000),
    "escaped brackets in a sentence": (lambda n: "![" * n, sentence, 8_000),
    "bars in a sentence": (lambda n: "|" * n + "a", sentence, 8_000),
    "sockets in one line of a command's output": (
        lambda n: "socket " * n,
        lambda text: sandbox_reasons(text, Scope()),
        2_000,
    ),
    "permissions in one line of a command's output": (
        lambda n: "EPERM " * n,
        lambda text: sandbox_reasons(text, Scope()),
        2_000,
    ),
    "locks in one line of git's output": (
        lambda n: "lock " * n,
        lambda text: GitError(("fetch",), 1, text),
        4_000,
    ),
    "blank lines of a commit message": (
        lambda n: "\n" * n,
        lambda text: trailer_values("Placet-Trace", text),
        4_000,
    ),
    "blank lines that a model was told": (lambda n: " \n" * n, told, 8_000),
    "backslashes that a model was told": (lambda n: "\\" * n, told, 40_000),
    "foreign words": (
        lambda n: "`a` [b](c) $ ``" * n,
        lambda text: (code(text), paragraphs(text), sentence(text)),
        2_000,
    ),
}


LINES = (
    "> @placet x\n",
    "- @placet x\n",
    "- @placet x\n  y\n\n",
    "> @placet ```\n",
    "## Review Comments\n",
    "## Review Comments\n\n1. x\n",
    "1. x\n  - **Answer:** y\n",
    "### 1. a\n",
    "### a\n- [ ] Do this step\n",
    "- [] Do this step\n",
    "~~### 1. a~~\n",
    "> [!info|placet] x\n",
    "> x\n",
    "```\n",
    "~~~\nx\n~~~\n",
    ACTION,
    "Tools: read_file\n",
    "Done when:\n- x\n",
    "## Rejection: x\n",
    "## Steps\n",
    '## Scope\n\n```toml\nwrite = ["a"]\n```\n',
    "# x\n",
    "<!--\n",
    "%%\n",
    "$$\n",
    "[^1]: x\n",
    "[a]: b\n",
    "| a | b |\n",
    "`= x` ``b`\n",
    "``a`",
    "![[x]] [a](b) ",
    "http://a.b/c?d ",
    "&shy;\u200b",
    "a\u0336",
    "**a** _b_ ~~c~~ ",
    " ",
    "\n",
)
READINGS: dict[str, Callable[[str], object]] = {
    "look": lambda text: inspect_note("Inbox/Plans/r_plan.md", HEAD + text.encode(), ""),
    "callout": lambda text: with_box(HEAD + text.encode(), box_of(CASE)),
    "plan": judged,
    "comments": comments,
    "without comments": uncommented,
    "section": comments_section,
    "ticks": ticks,
    "rejection": rejection_reason,
    "difference": lambda text: diff_callout(text[: len(text) // 2], text),
    "unseen": find_unseen,
    "kept comments": kept_comments,
    "side note": sentence,
}
HEAD = b"---\nrequest_id: r\nrevision: 1\n---\n"
CHARACTERS = 16_000


@pytest.mark.parametrize("line", LINES)
@pytest.mark.thinned(6)
def test_no_repeated_line_makes_any_reading_slow(line: str) -> None:
    """Each pattern in each place of a plan, read by each function of the loop's thread.

    Each further try takes twice the text. What outgrows a cache of the machine shows in one try,
    what grows faster than its text in all.
    """
    for place in ("above", "step", "below"):
        texts = [_of(line, place, CHARACTERS * times) for times in (1, 2, 4, 8)]
        for name, reading in READINGS.items():
            growth: list[float] = []
            for one, other in pairwise(texts):
                growth.append(_growth(reading, one, other))
                if growth[-1] <= MOST:
                    break
            assert growth[-1] <= MOST, f"{name} of {line!r} {place}: {growth}"


def _of(line: str, place: str, characters: int) -> str:
    many = line * (characters // len(line))
    if place == "step":
        return body(step=many)
    return many + body() if place == "above" else body() + many


def _growth(reading: Callable[[str], object], one: str, other: str) -> float:
    def read_quietly(text: str) -> None:
        with suppress(PlanProblems):
            reading(text)

    return took_s(read_quietly, other, 1) / max(took_s(read_quietly, one, 1), 0.01)


def took_s(work: Callable[[str], object], text: str, times: int = 5) -> float:
    """Return the shortest processor time, without what Python collects of other tests' objects."""
    took = []
    gc.disable()
    try:
        for _ in range(times):
            began = process_time()
            work(text)
            took.append(process_time() - began)
    finally:
        gc.enable()
    return min(took)


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
def test_large_text_does_not_hold_the_interpreter(name: str) -> None:
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


def test_key_with_thousands_of_parts_is_refused() -> None:
    with pytest.raises(PlanProblems, match="nested too deeply"):
        parse_plan(body(".".join(["a"] * 30_000) + " = 1"))


def test_too_long_plan_is_explained() -> None:
    note = inspect_note(
        "System/Active/r.md",
        b"---\nrequest_id: r\nrevision: 1\n---\n" + b"## x\n" * 400_000,
        "cleo",
    )
    assert f"at most {2 * MAX_NOTE_CHARACTERS:,}." in note.problem
    long = inspect_note(
        "System/Active/r.md", b"---\nrequest_id: r\nrevision: 1\n---\n" + b"## x\n" * 60_000, "cleo"
    )
    assert f"more than {MAX_NOTE_CHARACTERS:,} are not read" in str(valid_plan(long, ()))


def test_overlong_scope_entry_and_command_are_refused() -> None:
    with pytest.raises(ScopeProblems, match="longer than 4,096 characters"):
        scope_from({"run": ["make " + "x " * 5_000]})
    scope = Scope(run=(("xargs",),))
    assert "too long to be looked through" in (
        scope.forbidden_run(["xargs", *["x"] * 50_000]) or ""
    )
    assert dangers(scope)
