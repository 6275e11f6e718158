"""Thousands of plays of the daemon with people, kills and clocks at random; and proof that they catch a naive daemon."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest
from simulation import Broken, play

from placet.core.note import read_note
from placet.core.plan import parse_plan
from placet.loop import Loop
from placet.tools import PLANNABLE

SEEDS = int(os.environ.get("PLACET_SEEDS", "10000"))
"""Plays of the sweep. One alone is played again with `PLACET_SEED=N`."""


class ForgetsTheOutbox(Loop):
    """Naive: what was recorded and not performed is forgotten at a restart."""

    __slots__ = ()

    def load(self) -> None:
        Loop.load(self)
        self.commands.clear()


class ActsBeforeItRecords(Loop):
    """Naive: the effects come first, the transaction afterwards."""

    __slots__ = ()

    def _record(self, decision, *writes):
        for command in decision.commands:
            if command.do in ("stamp", "move"):
                self._do(command, decision.case)
        return Loop._record(self, decision, *writes)


class RunsTheFile(Loop):
    """Naive: what runs is what lies in System/Active now, not the text that was approved."""

    __slots__ = ()

    def _mission(self, mission, job):
        note = self.notes.get(self.cases[job.trace_id].plan_path)
        if note is not None:
            mission = type(mission)(mission.case, parse_plan(read_note(note.raw).body, PLANNABLE), mission.complexity, mission.token,
                                    mission.base_commit)
        return Loop._mission(self, mission, job)


class ForgetsWhatWasUsed(Loop):
    """Naive: an approval that was used up can be used again."""

    __slots__ = ()

    def _record(self, decision, *writes):
        object.__setattr__(decision.case, "spent_approvals", ())
        return Loop._record(self, decision, *writes)


@pytest.mark.parametrize("first", range(0, 40, 8))
def test_the_daemon_keeps_its_word_whatever_happens(first: int) -> None:
    for seed in range(first, first + 8):
        play(seed)


@pytest.mark.sweep
@pytest.mark.timeout(0)
def test_the_daemon_keeps_its_word_in_the_long_run() -> None:
    if one := os.environ.get("PLACET_SEED"):
        play(int(one))
        return
    began = time.monotonic()
    sums: Counter[str] = Counter()
    failures: list[str] = []
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for figures, failure in pool.map(_figures, range(SEEDS), chunksize=20):
            sums.update(figures)
            failures += [failure] if failure else []
    took_s = time.monotonic() - began
    print(f"{SEEDS} seeds, {SEEDS / took_s:.1f} a second: {dict(sums)}; {len(failures)} failed")
    assert not failures, "\n".join(f.splitlines()[0] for f in failures) + "\n\n" + failures[0]


def _figures(seed: int) -> tuple[dict[str, int], str]:
    try:
        done = play(seed)
    except Broken as broken:
        return {}, str(broken)
    return {name: getattr(done, name) for name in ("gestures", "midway", "ticks", "restarts", "runs", "reports")}, ""


@pytest.mark.sweep
@pytest.mark.timeout(0)
@pytest.mark.parametrize("naive", [ForgetsTheOutbox, ActsBeforeItRecords, RunsTheFile, ForgetsWhatWasUsed])
def test_a_naive_daemon_is_caught(naive: type[Loop]) -> None:
    for seed in range(1000):
        try:
            play(seed, naive)
        except Broken as broken:
            print(f"{naive.__name__}: {str(broken).splitlines()[0][:200]}")
            return
    pytest.fail(f"{naive.__name__} was not caught in 1000 plays")
