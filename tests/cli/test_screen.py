"""Test `placet status`, `plans` and `show` on a terminal, with hostile texts."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_decisions import QUESTION, WIDER, asking_vault

from looping import Fake, bare_vault, greeter, looping
from placet.case.life_cycle import State
from placet.case.story import Story
from placet.chat.messages import Ask, Reply, Usage
from placet.cli.screen import status_screen
from placet.client.cases import Progress, status
from placet.client.words import turn
from placet.wording import age
from ptykit import links, on_terminal, seen, terminal, too_long
from vaultkit import PLAN, TestVault, make_vault, nobody_writes, running, until

EVIL = "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\ \x1b[2J\x1b]0;x\x07 \u202eabc\u200b"
LONG = "Every word of this title has to be seen by whoever decides about it, however long it is"


def paid(ask: Ask) -> Reply:
    """What `greeter` says, at a price."""
    return replace(greeter(ask), usage=Usage(100_000, 1_000), model="claude-opus-5-5")


def known_vault(folder: Path) -> TestVault:
    """Three missions done, one plan that waits, one of a hostile title, one note unusable."""
    vault = bare_vault(folder)
    model = Fake(paid, provider="anthropic", name="claude-opus-5-5")
    with nobody_writes(), looping(vault, model=lambda: model) as run:
        for name in ("one", "two", "three"):
            vault.drop("Say hello.\n", f"{name}.md")
            run.settle()
            vault.approve(name)
            run.settle()
        vault.drop(f"# {LONG}\n", "A request of quite some length that goes on and on.md")
        run.settle()
        vault.drop(f"# {EVIL}\n", "odd \x1b[2J \x1b]8;;x\x07.md")
        run.settle()
        vault.drop("---\nagent: nobody\n---\nx\n", f"bad {EVIL[-4:]}.md")
        run.settle()
    assert len(vault.rows("execution.completed")) == 3
    return vault


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> TestVault:
    return known_vault(tmp_path_factory.mktemp("known"))


@pytest.mark.parametrize("columns", [80, 44, 200])
@pytest.mark.thinned(2)
def test_status_fits_on_one_screen(known: TestVault, columns: int) -> None:
    code, shown = on_terminal(known, "status", columns=columns)
    text = seen(shown)
    assert code == 0
    assert not too_long(shown, columns)
    for word in ("Waits for you (5)", "placet merge three", "not running"):
        assert word in text
    if columns == 200:
        assert f"plan, revision 1: {LONG}" in " ".join(text.split())
    else:
        begins = "plan, revision 1: Every" if columns == 80 else "plan, rev"
        assert any(begins in line and "…" in line for line in text.splitlines())
    assert "one" in text
    assert "done: feat/one-" in text
    assert "\\x1b]8;;http://evil.example" in text.replace("\n", "") or columns < 200


def test_terminal_links_point_only_to_notes(known: TestVault) -> None:
    for command in (("status",), ("plans",), ("show", "odd")):
        _, shown = on_terminal(known, *command)
        found = links(shown)
        assert found
        assert all(link.startswith(known.root.as_uri()) for link in found), found
        assert "evil" not in "".join(found)
        assert not too_long(shown) or command[0] == "show"
    _, shown = on_terminal(known, "show", "odd")
    assert (known.root / "Inbox/Requests/odd \x1b[2J \x1b]8;;x\x07.md").as_uri() in links(shown)


def test_plans_has_ids_and_paths_to_copy(known: TestVault) -> None:
    _, shown = on_terminal(known, "plans")
    lines = [line.split() for line in seen(shown).splitlines()]
    for case in json.loads(known.cli("plans", "--json").stdout):
        assert [line[0] for line in lines if line].count(case["request_id"]) == 1
        path = case["report"] or case["plan"]
        assert [path] in lines or " " in path


def test_plans_lists_and_show_renders_plan(known: TestVault) -> None:
    _, shown = on_terminal(known, "plans")
    lines = seen(shown).splitlines()
    for word in LONG.split():
        assert word in seen(shown)
    wide = seen(on_terminal(known, "plans", columns=200)[1])
    assert "Similar missions: about $0.84, up to $0.84 so far." in wide
    assert "placet review" in lines[-1]
    _, shown = on_terminal(known, "show", "one", columns=200)
    text = seen(shown)
    heads = [text.index(f"── {name}") for name in ("journal", "request", "plan", "report")]
    assert heads == sorted(heads), "what waits to be read comes last"
    assert "Steps" in text.splitlines()
    assert "## Steps" not in text
    assert "complexity: standard" in text, "a note's properties are shown too"
    assert "## Steps" in known.cli("show", "one").stdout, "into a pipe the note as it is"


def test_no_color_and_pipe_disable_colours(known: TestVault) -> None:
    for command in (("status",), ("cost",)):
        _, shown = on_terminal(known, *command, NO_COLOR="1")
        assert not re.search(r"\x1b\[[0-9;]*[1-9][0-9;]*m", shown), command
        _, dumb = on_terminal(known, *command, TERM="dumb", NO_COLOR="1")
        assert "\x1b" not in dumb, command
        assert "\x1b" not in known.cli(*command).stdout, command


def test_status_of_thirty_requests_fits_one_screen(known: TestVault) -> None:
    found = status(known.site)
    (done, *_, waits, _) = sorted(found.cases, key=lambda case: case.state)
    ended = replace(done, became="merged")
    cases = tuple(
        replace(case, request_id=f"{case.request_id[:20]}-{number}", title=LONG)
        for number, case in enumerate([waits, ended, replace(waits, intent="approve")] * 10)
    )
    many = replace(found, cases=cases, explained={f"Inbox/Requests/{LONG}.md": LONG})
    assert len(status_screen(many).splitlines()) > 30
    lines = status_screen(many, 23).splitlines()
    assert len(lines) == 23
    assert "Waits for you (6 of 10)" in lines
    assert "Under way (1 of 10)" in lines
    assert "Ended since yesterday (1 of 10)" in lines
    assert len(status_screen(many, 5).splitlines()) < 23


@pytest.mark.parametrize(
    ("command", "call", "words", "note"),
    [
        (
            "status",
            ("ask_person", {**QUESTION, "question": f"{LONG}? {EVIL}"}),
            f"a question: {LONG}?",
            "Inbox/Questions/say-hello_1.md",
        ),
        (
            "plans",
            ("request_scope", {**WIDER, "write": ["test_hello.py", "odd/**"]}),
            "a wider scope: write test_hello.py, odd/**; run pytest -q",
            "Inbox/Plans/say-hello_amendment1.md",
        ),
    ],
)
def test_open_question_is_shown_in_full_with_link(
    tmp_path: Path, command: str, call: tuple[str, Any], words: str, note: str
) -> None:
    vault = asking_vault(tmp_path, call)
    _, shown = on_terminal(vault, command)
    assert not too_long(shown)
    assert "…" not in seen(shown) or command == "status"
    assert set(links(shown)) == {(vault.root / note).as_uri()} | (
        {vault.root.as_uri()} if command == "status" else set()
    )
    _, wide = on_terminal(vault, command, columns=300)
    assert words in " ".join(seen(wide).split())


def test_age_uses_largest_unit() -> None:
    told = [age(s) for s in (-5, 0, 59, 60, 3599, 3600, 86399, 86400, 10 * 86400)]
    assert told == ["0 s", "0 s", "59 s", "1 min", "59 min", "1 h", "23 h", "1 d", "10 d"]


def test_status_watch_updates_across_daemon_restarts(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    with terminal(vault, "status", "--watch") as screen:
        at = screen.sees("No requests yet")
        at = screen.sees("Ctrl-C ends this.", at)
        with running(vault) as daemon:
            at = screen.sees("running: ", at)
            vault.drop("# Say hello\n")
            at = screen.sees("revision 1", at)
            daemon.kill()
            daemon.wait()
            at = screen.sees("not running (placet run)", at)
        screen.interrupt()
        assert screen.ends() == 0
    # each frame, and what is left behind, begins at the first column again
    lines = re.sub(r"\x1b\[(H|\?1049l)", "\n", screen.shown.replace("^C", ""))
    assert not too_long(lines)
    assert screen.shown.count("\x1b[2J") == 0, "it is drawn over, never cleared"
    left = screen.shown.rpartition("\x1b[?1049l")[2]
    assert "Waits for you (1)" in seen(left), "the last screen is left behind"
    assert "Ctrl-C ends" not in left


def test_ended_watch_restores_terminal(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    with terminal(vault, "status", "--watch") as screen:
        screen.sees("No requests yet")
        screen.process.terminate()
        assert screen.ends() == 128 + signal.SIGTERM
    assert screen.shown.endswith("\x1b[?25h\x1b[?1049l")
    with terminal(vault, "status", "--watch", TERM="dumb", NO_COLOR="1") as screen:
        screen.sees("No requests yet")
        screen.interrupt()
        assert screen.ends() == 0
    assert "\x1b" not in screen.shown


def test_piped_status_watch_prints_changes(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-m", "placet", "status", "--watch", "--json"],
        cwd=vault.root,
        env=vault.env,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["changed"] == 0
        vault.drop("# Say hello\n")
        assert json.loads(process.stdout.readline())["changed"] == 1
        process.send_signal(signal.SIGINT)
        assert until(lambda: process.poll() is not None, "its end")
        assert process.returncode == 0


@pytest.mark.parametrize("command", [["--help"], ["logs"]])
def test_rich_is_imported_only_for_a_terminal(known: TestVault, command: list[str]) -> None:
    code = (
        "import sys; from placet.cli.main import main\ntry:\n    main(sys.argv[1:])\nfinally:\n"
        "    print('rich' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        cwd=known.root,
        env=known.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "False"


def test_a_reason_of_several_lines_is_shown_whole(known: TestVault) -> None:
    why = "the last one's problems:\n- no step\n- no scope"
    case = replace(status(known.site).cases[0], state=State.FAILED, failure=why)
    assert turn(case, daemon=True) == "failed: the last one's problems: - no step - no scope"


def test_status_shows_the_command_that_runs(known: TestVault) -> None:
    runs = Progress(0, 2, 3, 0.25, None, "run_command npm test", 95.0)
    case = replace(status(known.site).cases[0], state=State.RUNNING, progress=runs)
    assert turn(case, daemon=True).endswith("$0.2500; run_command npm test for 1 min")


def test_newline_in_file_name_is_escaped_everywhere(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    path = "Inbox/Requests/say\\nhello.md"
    with looping(vault, model=lambda: Fake(greeter)) as run:
        vault.drop("---\npriority: 12\n---\nSay hello.\n", "say\nhello.md")
        run.settle()
        (side,) = vault.root.glob("Inbox/Requests/*.placet.md")
        shown = [side.read_text(), status_screen(status(vault.site))]
        shown += [vault.click(*words).stdout for words in (["status"], ["why", "say-hello"])]
        vault.drop("Say hello.\n", "say\nhello.md")
        run.settle()
        assert "A plan for `say\\nhello` awaits you" in vault.plan().read_text()
        vault.plan().unlink()
        run.settle()
    shown += [vault.click(*words).stdout for words in (["show", "say-hello"], ["why", "say-hello"])]
    with vault.site.reader("say-hello") as reader:
        story = Story()
        shown += [line[1] for row in reader.activity() if (line := story.line(row)) is not None]
    assert all(path in text for text in shown[1:6])
    told = "\n".join(shown).replace(path, "").replace("`say\\nhello", "")
    assert not re.search(r"say(\n|\\\\n| )hello.md", told)
