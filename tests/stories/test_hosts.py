"""Carry out a plan that names hosts, and read what its commands asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitkit import git, write
from placet.sandbox.box import Level
from placet.sandbox.probe import probe
from vaultkit import PLAN, make_vault

ASKS = """
import http.client, json, pathlib
for number in range(30):
    proxy = http.client.HTTPConnection("127.0.0.1", 3128)
    proxy.set_tunnel(f"{number % 25}.evil.example", 443)
    try:
        proxy.request("GET", "/")
    except OSError as error:
        said = str(error)
pathlib.Path("hello.txt").write_text(said)
"""


@pytest.mark.skipif(probe().level is not Level.BUBBLEWRAP, reason="needs bubblewrap")
def test_journal_and_report_name_refused_hosts(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    write(vault.root, {"ask.py": ASKS})
    git(vault.root, "init", "-q", "-b", "main")
    git(vault.root, "add", "ask.py")
    git(vault.root, "commit", "-q", "-m", "Begin")
    plan = {
        **PLAN,
        "scope": {
            "write": ["hello.txt"],
            "run": ["python3 ask.py"],
            "network": ["packages.example", "*.cdn.example"],
        },
        "steps": [{"title": "Ask", "tools": ["run_command"]}],
    }
    calls = [
        ("run_command", {"command": "python3", "args": ["ask.py"]}),
        ("complete_step", {"step": 1, "summary": "Asked"}),
        ("finish", {"summary": "Done"}),
    ]
    vault.plays(plan, calls)
    vault.drop("Ask.\n")
    vault.once()
    text = vault.plan().read_text()
    assert "Reaches `packages.example`, `*.cdn.example`, no shell." in text
    assert "send anything" in text
    vault.approve()
    vault.once()
    (row,) = (row["metadata"] for row in vault.rows("tool.called") if row["metadata"].get("hosts"))
    assert len(row["hosts"]) == 10
    assert row["hosts"][0] == {
        "host": "0.evil.example",
        "port": 443,
        "verdict": "is not in the plan's network",
        "connections": 2,
        "sent_bytes": 0,
        "received_bytes": 0,
    }
    (done,) = vault.rows("execution.completed")
    said = git(vault.root, "show", f"{done['metadata']['branch']}:hello.txt")
    assert "403 4.evil.example:443 is not in the plan's network" in said
    report = vault.reports()[0].read_text()
    assert "| `0.evil.example:443` | is not in the plan's network | 2 | 0 | 0 |" in report
    assert "| `others` | were refused too | 16 | 0 | 0 |" in report
    assert "packages.example" not in json.dumps(row["hosts"])
