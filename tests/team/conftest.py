"""Give the tests of a team a database of their own, its journal, and workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pgkit
from placet.journal.writer import Journal
from teamkit import Workers, journal_in, team_database


@pytest.fixture
def address(server: pgkit.Server) -> str:
    return team_database(server)


@pytest.fixture
def journal(tmp_path: Path, address: str) -> Iterator[Journal]:
    with journal_in(tmp_path / "writer", address) as found:
        yield found


@pytest.fixture
def workers(server: pgkit.Server, address: str) -> Workers:
    return Workers(server, address)
