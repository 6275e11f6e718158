"""Changes of notes by command, as a person makes them by hand: the daemon finds them there."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import sha256

from placet.cli.site import Site
from placet.cli.terminal import say
from placet.core.errors import UserError
from placet.core.life.case import Case
from placet.core.text.scalars import UnsafeEdit
from placet.files.errors import AlreadyThere, Changed, Gone, NotSettled
from placet.files.vault import Vault


def change_note(
    site: Site,
    case: Case,
    change: Callable[[bytes], bytes],
    target: str,
    *,
    of: str = "",
    word: Callable[[bytes], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> str:
    """Change the case's plan, or its note `of`, and move it to `target`; return `target`.

    `word` is entered meanwhile with the note's new text. Raises UserError where the note is gone,
    keeps changing or cannot be edited, or `target` is there already.
    """
    path = of or case.plan_path
    with Vault(site.vault) as folder:
        for _ in range(5):
            try:
                raw, _fingerprint = folder.read(path)
                with can_be_edited(path):
                    text = change(raw)
                with word(text):
                    folder.replace(path, sha256(raw).hexdigest(), text)
                    if target != path:
                        folder.move(path, target, sha256(text).hexdigest())
            except (Changed, NotSettled):
                continue
            except Gone as error:
                raise not_there_any_more(case, path) from error
            except AlreadyThere as error:
                raise UserError(
                    f"{target} is there already.", "Move that note away first."
                ) from error
            return target
    raise UserError(f"{path} keeps changing.", "Close the editor that has it open, then try again.")


def not_there_any_more(case: Case, path: str = "") -> UserError:
    """Return the error for a note that was moved since the journal has seen it."""
    return UserError(
        f"{path or case.plan_path} is not there any more: somebody has moved it.",
        f"See where it is, and what follows: placet why {case.request_id}",
    )


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


def user() -> str:
    """Return the name of the person at this machine, as notes and the journal have it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name in the environment, no entry of the uid; 3.13: OSError
        return f"uid:{os.getuid()}"
