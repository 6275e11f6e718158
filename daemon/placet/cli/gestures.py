"""Changes of notes by command, as a person makes them by hand: the daemon finds them there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from hashlib import sha256
from itertools import count

from placet.cli.site import Site
from placet.cli.terminal import say
from placet.core.errors import UserError
from placet.core.life.case import Case
from placet.core.life.sight import MAX_PLAN_BYTES
from placet.core.text.names import Folder, numbered
from placet.core.text.names import show as visible
from placet.core.text.scalars import UnsafeEdit
from placet.files.errors import AlreadyThere, Changed, Gone, NotSettled, Stale
from placet.files.vault import Vault


def _can_be_read(path: str, raw: bytes, text: bytes) -> None:
    """Raise UserError where a change makes more of a note than the daemon reads."""
    if path.startswith(f"{Folder.REQUESTS}/") or len(text) <= max(len(raw), MAX_PLAN_BYTES):
        return
    raise UserError(
        f"{visible(path)} would be {len(text):,} bytes long, and no more than "
        f"{MAX_PLAN_BYTES:,} are read.",
        "Say it in fewer words, or name a file that has the rest.",
    )


def change_note(
    site: Site,
    case: Case,
    change: Callable[[bytes], bytes],
    target: str,
    *,
    of: str = "",
    word: Callable[[bytes], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> str:
    """Change the case's plan, or its note `of`, and move it to `target`; return where it is.

    Where that name is taken it gets a number. `word` is entered meanwhile with the note's new text.
    Raises UserError where the note is gone, keeps changing or cannot be edited.
    """
    path = of or case.plan.path
    if target != path:
        places = (numbered(target, number) for number in count(1))
        target = next(place for place in places if not os.path.lexists(site.vault / place))
    with Vault(site.vault) as folder:
        for _ in range(5):
            try:
                raw, _fingerprint = folder.read(path)
                with can_be_edited(path):
                    text = change(raw)
                _can_be_read(path, raw, text)
                with word(text):
                    folder.replace(path, sha256(raw).hexdigest(), text)
                    if target != path:
                        folder.move(path, target, sha256(text).hexdigest())
            except (Changed, NotSettled):
                continue
            except Gone as error:
                raise not_there_any_more(case, path) from error
            except AlreadyThere as error:
                with suppress(Stale):  # nothing was decided, so the note says nothing
                    folder.replace(path, sha256(text).hexdigest(), raw)
                raise UserError(
                    f"{visible(target)} is there already.", "Move that note away first."
                ) from error
            return target
    raise UserError(
        f"{visible(path)} keeps changing.", "Close the editor that has it open, then try again."
    )


def must_say_something(what: str, said: Sequence[str], helps: str, example: str) -> None:
    """Raise UserError for an empty text of the option `what`; `helps` with an `example`."""
    if not all(one.strip() for one in said):
        raise UserError(f"The {what} is empty.", f"{helps}: --{what} '{example}'", exit_code=2)


def not_there_any_more(case: Case, path: str = "") -> UserError:
    """Return the error for a note that was moved since the journal has seen it."""
    return UserError(
        f"{visible(path or case.plan.path)} is not there any more: somebody has moved it.",
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
