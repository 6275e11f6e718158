"""What the commands that decide have in common: what they ask for, and what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from placet.cli.site import Site
from placet.cli.terminal import say
from placet.core.text.scalars import UnsafeEdit
from placet.errors import UserError


def must_say_something(what: str, said: Sequence[str], helps: str, example: str) -> None:
    """Raise UserError for an empty text of the option `what`; `helps` with an `example`."""
    if not all(one.strip() for one in said):
        raise UserError(f"The {what} is empty.", f"{helps}: --{what} '{example}'", exit_code=2)


@contextmanager
def can_be_edited(what: str) -> Iterator[None]:
    """Turn a note whose frontmatter cannot be edited into a UserError that names it as `what`."""
    try:
        yield
    except UnsafeEdit as error:
        raise UserError(f"{what}: {error}", "Fix its frontmatter, then try again.") from error


def say_if_down(site: Site) -> None:
    """Tell the person that nothing follows until the daemon runs, if it does not run."""
    if site.daemon is None:
        say("the daemon is not running; nothing follows before: placet run")


def saved(site: Site) -> str:
    """Return what is said of a decision that the daemon has not performed yet."""
    if site.daemon is None:
        return "Saved. The daemon is not running. It does this when you start it: placet run"
    return "Saved. The daemon has not answered yet."
