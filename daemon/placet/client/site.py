"""Find the vault that a person works on, with its state folder, settings and journal."""

from __future__ import annotations

import getpass
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from placet.errors import UserError
from placet.note.paths import CONFIG_PATH

# `placet --help` needs none of these, and they take as long as all else that it does.
if TYPE_CHECKING:
    from placet.case.case import Case
    from placet.host.accepted import InForce
    from placet.host.config import Config
    from placet.host.state import StateFolder
    from placet.journal.reader import Reader

ANSWER_S = 4.0
"""Seconds for which a command waits for the daemon's answer.

After an edit the daemon waits 2 seconds for the rest of it (`case/settle.py`), so this is longer.
"""
NEAR_AMONG = 1_000
"""Number of the latest requests whose IDs are completed or suggested."""


class Site:
    """A vault, its environment, state folder, configuration and journal.

    Each is looked up when it is first asked for; all raise UserError where that cannot be done.
    `given` is the folder named by `--vault`, None for `$PLACET_VAULT` or the folder we are in.
    `who` decides here, by default the user of this process, and `via` which face of placet. `say`
    tells the person something at once.
    """

    def __init__(
        self,
        given: str | None,
        env: Mapping[str, str] = os.environ,
        *,
        who: str = "",
        via: Literal["cli", "board"] = "cli",
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.given = given
        self.env = env
        self.who = who or user()
        self.via = via
        self.say = say
        self.problem: UserError | None = None
        self._configured: Config | None = None
        self.unaccepted: list[str] = []
        """Settings not accepted on this machine; set by `configured`."""

    @cached_property
    def vault(self) -> Path:
        """The vault's folder."""
        from placet.host.state import find_vault

        return find_vault(self.given, self.env, here())

    @cached_property
    def state(self) -> StateFolder:
        """The folder of the vault's state on this machine."""
        from placet.host.state import vault_state

        return vault_state(self.vault, self.env)

    @property
    def daemon(self) -> str | None:
        """A sentence about the daemon that runs on the vault, or None."""
        from placet.host.lock import lock_holder

        return lock_holder(self.state.lock)

    def in_force(self) -> InForce:
        """Return the configuration as it holds now."""
        from placet.host.accepted import (
            in_force,  # pydantic takes as long as all of `placet status`
        )

        return in_force(self.vault, self.env)

    def configured(self) -> Config:
        """Return the settings that hold; they are read once.

        A configuration that cannot be used is kept as `problem`, for `raise_problem`: what can be
        shown with the defaults is shown first.
        """
        from placet.host.config import Config

        if self._configured is None:
            try:
                held = self.in_force()
                self._configured, self.unaccepted = held.config, held.names
            except UserError as error:
                if not os.path.isfile(self.vault / CONFIG_PATH):  # it raises nothing
                    raise
                self.problem = error
                self._configured = Config()
        return self._configured

    def raise_problem(self) -> None:
        """Raise the problem that hides part of the output."""
        if self.problem is not None:
            raise self.problem

    def changes(self, for_s: float = math.inf) -> Iterator[None]:
        """Yield at once, whenever the journal has changed, and now and then; end after `for_s`."""
        from placet.journal.reader import changes

        return changes(self.state.journal, 0.05 if self.via == "board" else 0.2, for_s)

    @contextmanager
    def reader(self, ident: str) -> Iterator[Reader]:
        """Yield the journal to look an ID up in.

        Raises UserError (exit code 3) before there is a journal: then no ID can match.
        """
        from placet.journal.database import is_begun
        from placet.journal.reader import open_reader

        path = self.state.journal
        if not is_begun(path):
            elsewhere = self.vault.parent / "state"  # as `placet demo --keep` has it
            ran_there = path.parent.parent != elsewhere and any(elsewhere.glob("*/journal.db"))
            raise UserError(
                f"There is no request, plan or mission {ident!r}: the daemon has not run on "
                f"this vault yet{' with this state folder' if ran_there else ''}.",
                "It ran with another one. Take that, then try again: "
                f"export PLACET_STATE_HOME={shlex.quote(str(elsewhere))}"
                if ran_there
                else "placet run",
                exit_code=3,
            )
        with open_reader(path) as reader:
            yield reader

    def case(self, ident: str) -> Case:
        """Return the case that an ID names; raises UserError as `find` does."""
        with self.reader(ident) as reader:
            return find(reader, ident)


def user() -> str:
    """Return the name of the person at this machine, as notes and the journal have it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name in the environment, no entry of the uid; 3.13: OSError
        return f"uid:{os.getuid()}"


def here() -> Path:
    """Return the working folder; one that was deleted meanwhile, by its name."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.environ.get("PWD") or "/")


def find(reader: Reader, ident: str) -> Case:
    """Return the case that an ID names: the unique beginning of a request_id or a trace_id.

    Raises UserError (exit code 3) where none or several fit.
    """
    from placet.case.case import CASE_JSON

    found = [CASE_JSON.validate_json(row.body) for row in reader.cases_named(ident)]
    if not found:
        near = get_close_matches(ident, reader.request_ids(NEAR_AMONG), n=3)
        raise UserError(
            f"There is no request, plan or mission {ident!r}.",
            f"Did you mean {' or '.join(near)}?" if near else "See them all: placet status",
            exit_code=3,
        )
    if len(found) > 1:
        raise UserError(
            f"{ident!r} fits several: {', '.join(case.request_id for case in found)}.",
            "Give more of the request_id, or of the trace_id.",
            exit_code=3,
        )
    return found[0]
