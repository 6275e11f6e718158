"""Test what a planner is told in a small context, and what a failed planning says first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitkit import make_repo
from looping import Fake, bare_vault, looping, says
from placet.chat.messages import Ask, Reply
from vaultkit import PLAN, TestVault


def planned(vault: TestVault, reply: Reply, request: str) -> list[Ask]:
    model = Fake(lambda _ask: reply)
    vault.drop(request)
    with looping(vault, model=lambda: model) as running:
        running.settle()
    return model.asks


def fenced(plan: object) -> Reply:
    call = json.dumps({"name": "submit_plan", "arguments": plan}, indent=2)
    return says(text=f"```json\n{call}\n```")


@pytest.mark.parametrize("tools", ["auto", "text", "native"])
def test_small_context_plans_in_one_call(tmp_path: Path, tools: str) -> None:
    files = {f"src/{n}.py": f"file {n}\n" for n in range(2_000)}
    files |= {"notes/a.md": "alpha\n", "notes/b.md": "beta " * 5_000, "notes/k.bin": "\0"}
    repo = make_repo(tmp_path / "repo", files)
    vault = bare_vault(
        tmp_path,
        f'tools = "{tools}"\ncontext_tokens = 8192\n[portals.r]\npath = "{repo}"\n',
    )
    reply = says(("submit_plan", PLAN)) if tools == "native" else fenced(PLAN)
    asks = planned(vault, reply, "---\nportal: r\n---\nSummarise notes/ into one note.\n")
    assert len(asks) == 1
    assert vault.plan().exists()
    ask = asks[0]
    told = "\n".join(block["text"] for block in ask.turns[0].blocks)
    is_plain = tools != "native"
    assert bool(ask.tools) != is_plain
    assert ('<file path="notes/a.md">\nalpha\n</file>' in told) == is_plain
    assert ("beta beta" in told) == is_plain
    assert ("notes/k.bin" in told) == is_plain
    assert "file 7" not in told
    if is_plain:
        assert "read_file {" not in "".join(ask.system)
        assert len(told) + sum(map(len, ask.system)) < 11_000


@pytest.mark.parametrize(
    ("reply", "first"),
    [
        ("I would write it.", "Try a larger model, or give it"),
        (
            '<tools><function name="grep" arguments=\'{"a":\'/></tools>',
            "The model writes its calls",
        ),
    ],
)
def test_failed_planning_says_first_what_helps(tmp_path: Path, reply: str, first: str) -> None:
    vault = bare_vault(tmp_path)
    planned(vault, says(text=reply), "Say hello.\n")
    (failed,) = vault.rows("plan.failed")
    assert failed["metadata"]["reason"].startswith(first)
    assert "called no tool" in failed["metadata"]["reason"]


def test_example_is_refused_as_a_plan(tmp_path: Path) -> None:
    def echo(ask: Ask) -> Reply:
        said = ask.turns[-1].blocks[0]["text"]
        return says(text=said[said.index("```") :] if "```" in said else "Hm.")

    vault, model = bare_vault(tmp_path), Fake(echo)
    vault.drop("Say hello.\n")
    with looping(vault, model=lambda: model) as running:
        running.settle()
    assert len(model.asks) > 2
    assert vault.rows("plan.created") == []
