"""Define what the journal needs from a database: a connection, a store for its writer, a server.

Statements are written for SQLite. A server gets them with its own marks for values.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from placet.case.lease import Owner
from placet.disk.files import is_missing
from placet.host.plugins import JOURNALS, plugin

Values = Sequence[Any] | Mapping[str, Any]


class DatabaseAway(ConnectionError):  # noqa: N818 - named for what is the case
    """The database of a journal in PostgreSQL cannot be reached, or not written, for now."""


class Connection(Protocol):
    """A connection to either database."""

    def execute(self, sql: str, values: Any = ..., /) -> Any:
        """Run one statement; return its rows, as of DB-API 2.0 (PEP 249)."""

    def executemany(self, sql: str, values: Any, /) -> object:
        """Run one statement with each of some rows of values."""

    def close(self) -> None:
        """Close it."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""


class Store(Protocol):
    """A journal's database, for its one writer.

    `name` is for people. One that `is_shared` is written by several processes, by its own clock.
    `set_aside` is a damaged database that was replaced. `bad_values` are the errors of a value that
    it cannot store.
    """

    name: str
    is_shared: bool
    set_aside: Path | None
    bad_values: tuple[type[Exception], ...]

    @property
    def connection(self) -> Connection:
        """The writer's connection, which `ready` may replace."""

    def ensure_writable(self) -> None:
        """Make sure that it can be written now; raises OSError while it cannot."""

    def begin(self, *, durable: bool) -> float:
        """Begin a transaction as the only writer; return the time of leases in s."""

    def commit(self) -> None:
        """End the transaction that was begun last."""

    def was_kept(self) -> bool:
        """Return whether the transaction was kept whose COMMIT got no answer."""

    def must_pass(self, error: BaseException) -> None:
        """Raise an error of the last attempt, unless another attempt may succeed."""

    def checkpoint(self) -> None:
        """Tidy up before a wait, and at the end."""


class Database(Protocol):
    """A server that holds journals, as a plug-in of `placet.journals` offers it.

    Each method takes the server's address, and raises UserError or DatabaseAway where the server
    cannot be used.
    """

    def store(self, address: str) -> Store:
        """Open a journal for its one writer."""

    def snapshot(self, address: str) -> AbstractContextManager[Connection]:
        """Give a read-only connection that sees one moment."""

    def patient(
        self, address: str, wait: Callable[[DatabaseAway], None], *, one_moment: bool
    ) -> AbstractContextManager[Connection]:
        """Give the same for a daemon: while the server is away it calls `wait` and tries again.

        Without `one_moment` each query sees all that is committed.
        """

    def changes(self, address: str, every_s: float) -> Iterator[None]:
        """Yield at once, after each change of the journal, and at least every `every_s`."""

    def query(
        self, address: str, sql: str, timeout_s: float
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Run one SELECT of a person's; return column names and rows."""

    def create_tables(self, address: str) -> tuple[str, ...]:
        """Make or migrate the tables; return the roles that an administrator has yet to make."""

    def backup(self, path: Path, target: Path) -> None:
        """Copy the journal whose file would be `path` to the file `target`."""

    def move_in(self, path: Path, address: str, vault_id: str) -> Path:
        """Move a journal from its file to the server; return the name that the file has now."""

    def move_out(self, path: Path) -> str:
        """Move a journal from the server to its file; return the name of what remains there."""

    def lock(
        self,
        journal: Any,
        vault_id: str,
        owner: Owner,
        ttl_s: float,
        say: Callable[[str], None],
        ending: threading.Event,
    ) -> AbstractContextManager[None]:
        """Hold the vault: no other daemon writes into its journal meanwhile."""


def upsert(table: str, key: str, *columns: str) -> str:
    """Return the SQL that inserts a row of named values, or writes over the one with its key."""
    names = (key, *columns)
    values = ", ".join(f":{name}" for name in names)
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values}) "  # noqa: S608 - names of the schema
        f"ON CONFLICT ({key}) DO UPDATE SET {changes}"
    )


VAULT = "vault"
"""The name of the lease on the vault, and the digest under which its id is kept."""


def address_file(path: Path) -> Path:
    """Return the file with the database's address, next to the place of SQLite's file."""
    return path.with_suffix(".pg")


def address_of(path: Path) -> str:
    """Return the address of a journal on a server; empty for one in the file `path`."""
    try:
        return address_file(path).read_text("utf-8").strip()
    except FileNotFoundError:
        return ""


def database_of(address: str) -> Database:
    """Return the plug-in for a server's address. Raises UserError where it is not installed."""
    found: Database = plugin(JOURNALS, address.partition(":")[0])
    return found


def is_begun(path: Path) -> bool:
    """Return whether there is a journal."""
    return not (is_missing(path) and is_missing(address_file(path)))
