"""Test `placet submit`: with an editor, standard input and `--wait`."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from placet.case.request import title_of
from placet.cli.submit import TEMPLATE
from ptykit import terminal
from vaultkit import (
    TestVault,
    end_of,
    next_line,
    printing,
    running,
    vault_with_history,
)


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    return vault_with_history(tmp_path)


def test_submit_wait_follows_request_to_end(vault: TestVault) -> None:
    with printing(vault, "submit", "Say hello", "--wait") as submitting:
        next_line(submitting, "Inbox/Requests/Say hello.md")
        assert submitting.stderr is not None
        assert any("the daemon is not running" in one for one in submitting.stderr)
        with running(vault):
            next_line(submitting, "say-hello: request seen")
            next_line(submitting, "a plan waits for you")
            vault.approve()
            next_line(submitting, "completed: ")
            code, _, err = end_of(submitting)
    assert code == 0, err


def test_submit_wait_ends_when_request_is_deleted(vault: TestVault) -> None:
    with printing(vault, "submit", "Say hello", "--wait", "--json") as submitting:
        assert json.loads(next_line(submitting))["path"] == "Inbox/Requests/Say hello.md"
        (vault.root / "Inbox/Requests/Say hello.md").unlink()
        code, _, err = end_of(submitting)
    assert code == 1
    assert "deleted before placet planned it" in err


def test_submit_says_the_ids_that_follow(vault: TestVault) -> None:
    for wanted in ("say-hello", "say-hello-2"):
        told = json.loads(vault.click("submit", "Say hello", "--json").stdout)
        assert told["request_id"] == wanted
        vault.once()
        detected = vault.rows("request.detected")[-1]
        assert (detected["entity_id"], detected["trace_id"]) == (wanted, told["trace_id"])
        vault.approve(wanted)
        vault.once()


def test_submit_strips_md_suffix_from_title(vault: TestVault) -> None:
    told = vault.click("submit", "x", "--title", "Fix it.md.md").stdout
    assert told == "Inbox/Requests/Fix it.md\n"
    assert title_of("Inbox/Requests/Fix it.md.md", "text") == "Fix it"


def test_submit_dash_reads_standard_input(vault: TestVault) -> None:
    for args in (("-",), ("--file", "-")):
        path = vault.click("submit", *args, stdin="Say hello ☃\n").stdout.strip()
        assert (vault.root / path).read_text() == "Say hello ☃\n"
    assert vault.cli("submit", check=False).returncode == 2
    assert vault.cli("submit", "x", "--file", "-", check=False).returncode == 2


def editor(vault: TestVault, script: str) -> None:
    path = vault.root.parent / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    vault.extra["VISUAL"] = f"'{path}' --wait"


def test_a_request_is_written_in_an_editor(vault: TestVault) -> None:
    vault.extra["TMPDIR"] = str(vault.root.parent / "tmp")
    Path(vault.extra["TMPDIR"]).mkdir()
    editor(vault, 'sed -i "s/^# *$/# Say hello/" "$2"; echo Loudly. >> "$2"')
    path = vault.cli("submit", "--edit", "--priority", "7").stdout.strip()
    assert path == "Inbox/Requests/Say hello.md"
    text = (vault.root / path).read_text()
    assert text.startswith("---\npriority: 7\n---\n# Say hello\n")
    assert text.endswith("Loudly.\n")
    assert "<!--" not in text
    for script in ("true", ': > "$2"', 'echo "#" > "$2"'):
        editor(vault, script)
        done = vault.cli("submit", "--edit", check=False)
        assert done.returncode == 1
        assert "Nothing was submitted" in done.stderr
    editor(vault, 'grep -q "^Begin$" "$2" && echo End >> "$2"')
    path = vault.cli("submit", "Begin", "--edit").stdout.strip()
    assert (vault.root / path).read_text() == "Begin\nEnd\n"
    editor(vault, 'echo "Only a body" >> "$2"')
    path = vault.cli("submit", "--edit").stdout.strip()
    assert path == "Inbox/Requests/Only a body.md"
    assert (vault.root / path).read_text() == "Only a body\n"
    assert len(vault.notes("Inbox/Requests")) == 3
    assert list(Path(vault.extra["TMPDIR"]).iterdir()) == []
    # what was written is kept where it cannot be submitted
    editor(vault, 'printf -- "---\\nagent: nobody\\n---\\nx\\n" > "$2"')
    done = vault.cli("submit", "--edit", check=False)
    assert done.returncode == 2
    kept = re.search(r"placet submit --edit --file (\S+)", done.stderr)
    assert kept is not None
    assert "agent: nobody" in Path(kept[1]).read_text()
    assert TEMPLATE.startswith("#\n")


def test_submit_on_terminal_explains_end_of_input(vault: TestVault) -> None:
    with terminal(vault, "submit", "-") as screen:
        screen.sees("then press Enter and Ctrl-D")
        screen.types("Say hello\n\x04")
        screen.sees("Inbox/Requests/Say hello.md")
        assert screen.ends() == 0
