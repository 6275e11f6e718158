"""`placet man`: every command, every option, and text that roff takes for text."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from placet.cli.main import main
from placet.cli.man import _text
from placet.cli.manual import topics
from test_manual import commands
from vaultkit import TestVault, make_vault


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("man")
    return make_vault(place).click("man").stdout


def plain(roff: str) -> str:
    """Return text without the escapes that `placet man` writes."""
    text = roff.replace("\\&", "").replace("\\-", "-").replace("\\(dq", '"').replace("\\e", "\\")
    return re.sub(r"\\\[u([0-9A-F]+)\]", lambda found: chr(int(found[1], 16)), text)


def test_every_command_and_every_option_is_in_the_page(page: str) -> None:
    text = plain(page)
    parts = {part.partition('"\n')[0]: part for part in re.split(r'(?m)^\.SS "placet ', text)[1:]}
    for words, command in commands():
        part = parts[" ".join(words)]
        for sentence in (command.help or "").split("\n\n"):
            assert " ".join(sentence.split()) in part, words
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                for name in (*parameter.opts, *parameter.secondary_opts):
                    assert re.search(rf"(?m)^\.B .*{re.escape(name)}\b", part), (words, name)
        for line in (command.epilog or "").splitlines()[1:]:
            assert line in part, words
    assert len(parts) == len(list(commands()))
    for option in main.params:
        assert option.opts[0] in text.partition(".SH")[2].partition('.SH "START"')[0]


def test_the_ideas_files_variables_and_exit_codes_are_in_it(page: str) -> None:
    text = plain(page)
    for title in (*(of.upper() for of in topics().values()), "FILES", "ENVIRONMENT", "EXIT STATUS"):
        assert f'.SH "{title}"\n' in text, title
    assert page.startswith(".TH PLACET 1 ")
    assert all(name in text for name in ("PLACET_VAULT", "PLACET_STATE_HOME", "NO_COLOR"))


def test_nothing_in_a_line_of_text_is_a_request(page: str) -> None:
    known = {"TH", "SH", "SS", "PP", "TP", "IP", "B", "I", "nf", "fi"}
    requests = {line[1:].partition(" ")[0] for line in page.splitlines() if line.startswith(".")}
    assert requests == known
    assert not [line for line in page.splitlines() if line.startswith("'")]
    assert page.isascii()
    assert _text(".x") == "\\&.x"
    assert _text("'x \\fB-\"é…") == "\\&'x \\efB\\-\\(dq\\[u00E9]\\[u2026]"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_nothing_to_warn_of(page: str, tmp_path: Path) -> None:
    path = tmp_path / "placet.1"
    path.write_text(page)
    done = subprocess.run(
        ["groff", "-man", "-ww", "-b", "-Tutf8", "-rHY=0", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    shown = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
    assert "say-hello" in shown
    assert "what you do with notes" in " ".join(shown.split()).lower()


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_man_shows_it(page: str, tmp_path: Path) -> None:
    path = tmp_path / "placet.1"
    path.write_text(page)
    done = subprocess.run(
        ["man", "--warnings=all", "-l", str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
    )
    if "has been minimized" in done.stdout:
        pytest.skip("man is left out of this system")
    assert (done.returncode, done.stderr) == (0, "")
    assert "placet config list" in done.stdout


def test_it_needs_no_vault(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = TestVault(tmp_path / "empty", tmp_path / "state").click("man").stdout
    assert ".TH PLACET 1" in said
