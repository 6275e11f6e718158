"""Test `placet --help`: groups of commands, and an example for each that works."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from placet.cli.main import COMMANDS, EXAMPLES, GROUPS, main, sentence_of
from vaultkit import TestVault


def commands(
    command: click.Command = main, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Give every command with its words, those of groups too."""
    if words:
        yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command, help_option_names=["-h", "--help"])
        for name in command.list_commands(context):
            found = command.resolve_command(context, [name])[1]
            assert found is not None
            yield from commands(found, (*words, name))


def parsed(line: str) -> click.Context:
    """Return the context of a command line that begins with `placet`, or fail as click does."""
    words = shlex.split(line, comments=True)
    words = words[1 : words.index("|")] if "|" in words else words[1:]
    words = words[: words.index(">")] if ">" in words else words
    command: click.Command = main
    context = click.Context(main, info_name="placet", help_option_names=["-h", "--help"])
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, found, words = command.resolve_command(context, words)
        assert found is not None, line
        context = found.make_context(name, list(words), parent=context)
        words = [*context._protected_args, *context.args]
        command = found
    return context


def test_help_lists_every_command_in_one_group(vault: TestVault) -> None:
    said = vault.click("--help").stdout
    listed = re.findall(r"(?m)^  ([a-z]+) {2,}\S", said)
    assert sorted(listed) == sorted(COMMANDS)
    assert said.count("\n  $ placet ") == len(GROUPS)
    for title, (example, _) in GROUPS.items():
        assert f"\n{title}:\n" in said
        parsed(example)
    flat = " ".join(said.split())
    for name in COMMANDS:
        assert sentence_of(name) in flat, "no sentence is cut"
    assert max(map(len, said.splitlines())) <= 80


def test_every_command_help_ends_with_valid_examples(vault: TestVault) -> None:
    seen = set()
    for words, command in commands():
        name = " ".join(words)
        seen.add(name)
        assert command.epilog, f"{name} has no example: EXAMPLES in placet/cli/main.py"
        lines = [line.strip() for line in command.epilog.splitlines()[2:]]
        assert lines, name
        for line in lines:
            assert f"placet {name}" in line, name
            assert len(line) <= 76, line
            if line.startswith("placet "):
                parsed(line)
        said = vault.click(*words, "--help").stdout
        assert said.rstrip().endswith(lines[-1]), name
    assert set(EXAMPLES) <= seen


def test_mistyped_command_gets_a_suggestion(vault: TestVault) -> None:
    done = vault.click("aprove", "x", check=False)
    assert done.returncode == 2
    assert "There is no command 'aprove'. Did you mean approve?" in done.stderr


def test_group_help_truncates_no_sentence(vault: TestVault) -> None:
    for words, command in commands():
        if isinstance(command, click.Group):
            assert "..." not in vault.click(*words, "--help").stdout.partition("\nCommands:")[2]


def test_listed_sentence_begins_the_command_help() -> None:
    for (name, *below), command in commands():
        assert command.help is not None
        if not below:
            assert sentence_of(name) == " ".join(command.help.split("\n\n")[0].split())


def test_help_needs_no_vault_or_heavy_import(tmp_path: Path) -> None:
    code = (
        "import ast, sys; ast.parse = None\nfrom placet.cli.main import main\ntry:\n    main(['--help'])\nfinally:\n"
        "    heavy = {'rich', 'pydantic', 'tomlkit', 'sqlite3', 'placet.note.markdown'}\n"
        "    print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_status_imports_what_it_shows(vault: TestVault) -> None:
    code = (
        "import gc, sys\nfrom placet.cli.main import main\ntry:\n    main(['status'])\nfinally:\n"
        "    heavy = {'placet.journal.writer', 'placet.sandbox.probe', 'placet.models'}\n"
        "    print(sorted(heavy & set(sys.modules)), gc.get_freeze_count() > 0, gc.isenabled())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=vault.root,
        env=vault.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[] True True"
