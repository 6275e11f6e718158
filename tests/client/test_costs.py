"""Test that `placet cost` counts each model call once and agrees with the journal."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gitkit import git
from guidekit import blocks
from looping import Fake, bare_vault, greeter, looping
from placet.activity import Action, Activity, Actor, Entity
from placet.agent.day_budget import used_today
from placet.chat.messages import Ask, ModelError, ModelErrorKind, Purpose, Reply, Usage
from placet.client.costs import cost, moment
from placet.errors import UserError
from placet.host.clock import Clock
from placet.journal.reader import open_reader, query
from placet.journal.writes import AddActivity
from placet.wording import rfc3339
from ptykit import on_terminal, seen, too_long
from vaultkit import TestVault, nobody_writes

PRICED = "claude-opus-5-5"
SQL = """SELECT count(*), sum(metadata->>'cost_usd'), sum(metadata->>'input_tokens'),
 sum(metadata->>'output_tokens'), sum(metadata->>'cache_read_tokens'),
 sum(metadata->>'cache_write_tokens'), sum(metadata->>'tokens'),
 count(*) FILTER (WHERE metadata->>'cost_usd' IS NULL)
 FROM (SELECT * FROM activity WHERE {where}) WHERE action_type = 'model.called'
 OR (action_type = 'model.failed' AND metadata->>'tokens' > 0)"""
FIELDS = (
    "calls", "cost_usd", "input_tokens", "output_tokens", "cache_read_tokens",
    "cache_write_tokens", "lost_tokens", "calls_of_unknown_cost",
)  # fmt: skip


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> TestVault:
    """Four missions at a price, one of them in a portal; one without a price; one call lost."""
    folder = tmp_path_factory.mktemp("cost")
    repo = folder / "code"
    repo.mkdir()
    git(repo, "init", "-q")
    (repo / "a").write_text("a\n")
    git(repo, "add", "a")
    git(repo, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a")
    vault = bare_vault(folder, f'[portals.code]\npath = "{repo}"\n')
    # it takes money
    config = (vault.root / "System/placet.toml").read_text().replace('"scripted"', '"anthropic"')
    vault.configure(config.replace('"test"', f'"{PRICED}"'))
    model = Fake(greeter, provider="anthropic", name=PRICED)
    lost: list[Purpose] = []

    def answer(ask: Ask) -> Reply:
        if not lost and ask.purpose is Purpose.EXECUTE:
            lost.append(ask.purpose)
            raise ModelError(ModelErrorKind.TRANSIENT, "cut off", served=True)
        used = Usage(1_000 + len(model.asks), 100, 9_000, 50)
        return replace(greeter(ask), usage=used, model=model.name)

    model.answer = answer
    with nobody_writes(), looping(vault, model=lambda: model) as run:
        for name in ("one", "two", "three", "four", "five"):
            model.name = "a-model-of-nobody" if name == "five" else PRICED
            portal = "---\nportal: code\n---\n" if name == "four" else ""
            vault.drop(f"{portal}Say hello.\n", f"{name}.md")
            run.settle()
            vault.approve(name)
            run.settle()
    assert len(vault.rows("execution.completed")) == 5
    return vault


def by_sql(vault: TestVault, where: str = "1") -> tuple[Any, ...]:
    with sqlite3.connect(f"file:{vault.db}?mode=ro", uri=True) as connection:
        found: tuple[Any, ...] = connection.execute(SQL.replace("{where}", where)).fetchone()
    connection.close()
    return found


def test_the_sums_are_those_of_the_journals_rows(vault: TestVault) -> None:
    found = json.loads(vault.click("cost", "--json").stdout)
    want = by_sql(vault)
    assert want[0] > 10
    assert want[-1] == 3, "the price of one model is not known"
    for name, value in zip(FIELDS, want, strict=True):
        assert found["total"][name] == pytest.approx(value), name
        assert math.fsum(row[name] for row in found["rows"]) == pytest.approx(value), name
    assert found["total"]["unanswered"] == len(
        [row for row in vault.rows("model.failed") if row["metadata"]["tokens"]]
    )


def test_guide_queries_sum_by_model_agent_and_portal(vault: TestVault) -> None:
    queries = [block.text for block in blocks("cost.md", "sql")]
    model, agent, portal = (
        {name: (calls, usd) for name, calls, usd in query(vault.db, text)[1]} for text in queries
    )
    answered = by_sql(vault, "action_type = 'model.called'")
    for groups in (model, agent, portal):
        assert sum(calls for calls, _ in groups.values()) == answered[0]
        assert math.fsum(usd or 0 for _, usd in groups.values()) == pytest.approx(
            answered[1], abs=1e-3
        )
    assert set(model) == {PRICED, "a-model-of-nobody"}
    assert set(agent) == {row["agent"] for row in vault.rows("model.called")}
    assert set(portal) == {"(the vault)", "code"}


def test_cost_compares_estimate_with_actual(vault: TestVault) -> None:
    total = cost(vault.site, None).total
    ended = [row["metadata"] for row in vault.rows("execution.completed")]
    both = [d for d in ended if d["typical_cost_usd"] is not None and d["cost_usd"] is not None]
    assert total.missions == len(both) == 1, "the fourth: three are known before it"
    assert total.estimate_usd == pytest.approx(both[0]["typical_cost_usd"])
    assert total.actual_usd == pytest.approx(both[0]["cost_usd"])
    assert 0 < total.cache_share < 1


def test_unknown_cost_is_shown_as_question_mark(vault: TestVault) -> None:
    done = vault.click("cost")
    lines = [re.split("  +", one) for one in done.stdout.splitlines()]
    cells = {line[0]: line[lines[0].index("cost")] for line in lines}
    assert cells["all"].endswith(" + ?")
    assert "What 3 calls cost is not known" in done.stderr
    assert ", and 3 calls without a known price" in vault.click("status").stdout
    assert "placet counts the most that they can have cost" in " ".join(done.stderr.split())


def test_cost_fits_80_columns(vault: TestVault) -> None:
    code, shown = on_terminal(vault, "cost")
    assert code == 0
    assert not too_long(shown)
    total = cost(vault.site, None).total
    assert f"${total.cost_usd:.4f} + ?" in seen(shown)
    assert "What 3 calls cost is not known" in seen(shown)


def test_since_is_a_day_or_so_long_ago(vault: TestVault) -> None:
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    assert (now - moment("7d", now)).days == 7
    assert (now - moment("36h", now)).total_seconds() == 36 * 3600
    assert (now - moment("2w", now)).days == 14
    assert moment("2026-11-01", now) == datetime(2026, 11, 1).astimezone()
    assert moment("2026-11-01T10:00:00Z", now) == datetime(2026, 11, 1, 10, tzinfo=UTC)
    for odd in ("yesterday", "7", "", "2026-13-01", "-1d"):
        with pytest.raises(UserError) as caught:
            moment(odd, now)
        assert caught.value.exit_code == 2
    assert cost(vault.site, "1h").total.calls == by_sql(vault)[0]
    assert cost(vault.site, "9000-01-01").rows == ()
    assert vault.click("cost", "--since", "soon", check=False).returncode == 2


def test_a_call_counts_on_its_local_day(vault: TestVault) -> None:
    want = Counter(
        datetime.fromisoformat(row["timestamp"]).astimezone().date().isoformat()
        for row in vault.rows()
        if row["action_type"] == "model.called"
        or (row["action_type"] == "model.failed" and row["metadata"]["tokens"])
    )
    found = {row.day: row.calls for row in cost(vault.site, None).rows}
    assert found == dict(want)


def test_calls_without_an_answer_count_at_their_worst(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    failed = {"purpose": "plan", "tokens": 70, "cost_usd": None, "reason": "x", "at_most": True}
    free = {**failed, "tokens": 0, "cost_usd": 0.0}
    with looping(vault) as run:
        run.loop.ports.journal.commit(
            [
                AddActivity(
                    Activity(
                        "2026-11-22T10:00:00.000Z", "t" * 36, Actor.SYSTEM, Action.MODEL_FAILED,
                        Entity.MISSION, "odd", "", facts,
                    )
                )
                for facts in (failed, free)
            ]
        )  # fmt: skip
    (row,) = cost(vault.site, None).rows
    assert (row.calls, row.unanswered, row.lost_tokens) == (1, 1, 70)
    assert row.calls_of_unknown_cost == 1
    shown = vault.click("cost", "--since", "2026-11-01").stdout
    lines = [re.split("  +", line) for line in shown.splitlines()]
    assert lines[1][lines[0].index("cost")] == "unknown"


def test_cost_shows_the_last_30_days(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    facts = {"purpose": "plan", "input_tokens": 10, "cost_usd": 0.1}
    with looping(vault) as run:
        run.loop.ports.journal.commit(
            [
                AddActivity(
                    Activity(
                        rfc3339(Clock().wall() - timedelta(days=days)), "t" * 36, Actor.SYSTEM,
                        Action.MODEL_CALLED, Entity.MISSION, "x", "", facts,
                    )
                )
                for days in (29, 31, 400)
            ]
        )  # fmt: skip
    recent = json.loads(vault.click("cost", "--json").stdout)
    older = json.loads(vault.click("cost", "--json", "--since", "2020-01-01").stdout)
    assert (len(recent["rows"]), recent["total"]["calls"]) == (1, 1)
    assert (len(older["rows"]), older["total"]["calls"]) == (3, 3)


def test_price_that_arrives_later_counts(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    facts = {"model": "qwen.gguf", "asked": "qwen", "input_tokens": 1_000_000, "cost_usd": None}
    now = Clock().wall()
    one = Activity(
        rfc3339(now), "t" * 36, Actor.AGENT, Action.MODEL_CALLED, Entity.MISSION, "odd", "",
        {**facts, "purpose": "plan"},
    )  # fmt: skip
    with looping(vault) as run:
        run.loop.ports.journal.commit([AddActivity(one)])
    assert cost(vault.site, None).total.calls_of_unknown_cost == 1
    row = '{model = "qwen", since = 2026-01-01, input = 3, output = 9, cache_read = 0, cache_write = 0}'
    vault.configure(f'[model]\nname = "qwen"\nprice = [{row}]\n')
    total = cost(vault.site, None).total
    assert (total.calls_of_unknown_cost, total.cost_usd) == (0, 3.0)
    with open_reader(vault.site.state.journal) as reader:
        price = vault.site.in_force().config.model.pricer
        assert used_today(reader, now, price).usd == 3
        assert reader.calls.used_planning("t" * 36, price) == (1_000_000, 3)


def test_ten_thousand_calls_are_summed_by_the_database(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    facts = {"model": "m", "input_tokens": 3, "cost_usd": 0.01}
    one = Activity(
        "2026-11-22T10:00:00.000Z", "t" * 36, Actor.AGENT, Action.MODEL_CALLED,
        Entity.MISSION, "odd", "", facts,
    )  # fmt: skip
    with looping(vault) as run:
        run.loop.ports.journal.commit([AddActivity(one)] * 10_000)
        with run.loop.ports.journal.read() as reader:
            (sums,) = reader.calls.sums_since("")
    assert (sums.calls, sums.unknown, sums.input_tokens) == (10_000, 0, 30_000)
    assert cost(vault.site, None).total.cost_usd == 100.0
