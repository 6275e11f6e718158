"""Test what placet asks and says on a terminal."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from placet.cli.terminal import agreed, boundary


@click.command()
def asks() -> None:
    with boundary():
        click.echo(f"agreed: {agreed('Do it?')}")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("maybe\nYes\n", "agreed: True"),
        ("\n", "agreed: False"),
        ("n\n", "agreed: False"),
        ("", "placet: You gave no answer, so nothing was changed."),
    ],
)
def test_question_speaks_in_placets_voice(typed: str, said: str) -> None:
    shown = CliRunner().invoke(asks, input=typed).output
    assert "Do it? [y/N]: " in shown
    assert shown.rstrip().endswith(said)
    assert ("Type y or n." in shown) is typed.startswith("maybe")
    assert "Abort" not in shown
