"""Sign an approval at the terminal, and keep the list of who may."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from placet.case.case import Case
from placet.case.receipt import DAEMON
from placet.client.site import ANSWER_S, Site
from placet.errors import UserError
from placet.git.run import setting_of_person
from placet.host import signers
from placet.host.state import SIGNERS, expand_home
from placet.note.paths import SIGNERS_PATH
from placet.plan.allowed_signers import MAX_BYTES, NAME, NAME_RULE, Signer, read_key
from placet.plan.sshsig import read_signature
from placet.plan.statement import read_statement


def statement_for(site: Site, case: Case, digest: str) -> str:
    """Return the statement that an approval of the text with this digest signs.

    The daemon writes it, shortly after the text. Raises UserError where it has not.
    """
    wanted = case.asking.amended if case.asking is not None else digest
    for _ in site.changes(ANSWER_S if site.daemon is not None else 0):
        now = site.case(case.trace_id).to_sign
        stated = read_statement(now)
        if stated is not None and stated.digest == wanted:
            return now
    raise UserError(
        f"The daemon has not read the plan of {case.request_id} yet, so nothing can be signed.",
        "See why: placet doctor" if site.daemon is not None else "Start it: placet run",
    )


def signature_for(site: Site, case: Case, digest: str, remarks: Sequence[str]) -> str:
    """Return this person's signature of an approval, empty where none is wanted.

    Raises UserError where one is needed and cannot be made.
    """
    settings = site.in_force().config.approval
    if not settings.signed and not (settings.sign and case.to_sign):
        return ""
    with _key(settings.key) as key:
        if key is None and settings.signed:
            raise UserError(
                "Approvals are signed here, and you have no key to sign with.",
                "Name one: placet config set approval.key ~/.ssh/id_ed25519",
            )
        if key is None:
            return ""
        must_have_no_remark(remarks)
        text = statement_for(site, case, digest)
        site.say(f"Signing with {key}.")
        made = signers.sign(key, text)
    if read_signature(made).key not in {one.key for one in accepted_signers(site)}:
        raise UserError(
            "Your key was not accepted on this machine.",
            "Let it approve here: placet signer add NAME KEYFILE",
        )
    return made


def must_have_no_remark(remarks: Sequence[str]) -> None:
    """Raise UserError (exit code 2) for an approval with remarks, which cannot be signed."""
    if remarks:
        raise UserError(
            "A signed approval takes no remark: a remark changes the text.",
            "Write it into the plan, below `## Review Comments`, then approve.",
            exit_code=2,
        )


@contextmanager
def _key(setting: str) -> Iterator[Path | None]:
    """Give the file of the person's key: of the settings, or git's; None without one."""
    named = setting
    if not named and setting_of_person("gpg.format") == "ssh":
        named = setting_of_person("user.signingKey")
    literal = named.removeprefix("key::")
    if not literal.startswith(("ssh-", "ecdsa-", "sk-")):
        yield expand_home(named) if named else None
        return
    with tempfile.TemporaryDirectory(prefix="placet-") as folder:
        file = Path(folder, "key.pub")  # its other half is an agent's
        file.write_text(f"{literal}\n")
        yield file


@dataclass(frozen=True, slots=True)
class ListChange:
    """How the vault's list of signers differs from the accepted one."""

    added: tuple[Signer, ...]
    removed: tuple[Signer, ...]
    listed: tuple[Signer, ...]
    """All that the vault's list has."""


def accepted_signers(site: Site) -> tuple[Signer, ...]:
    """Return who may approve on this machine."""
    return signers.read_list(site.state.folder, SIGNERS)


def daemon_signer(site: Site) -> Signer | None:
    """Return the daemon as the signer of its receipts, None while it has no key."""
    key = signers.daemon_public_key(site.state.folder)
    return Signer(DAEMON, key) if key else None


def add_signer(site: Site, name: str, file: Path) -> Signer:
    """Let somebody approve: add a public key to the vault's list, and accept it here.

    Raises UserError for a name or a file that cannot be used.
    """
    if not NAME.fullmatch(name) or name == DAEMON:
        raise UserError(
            f"{name!r} cannot be a signer's name. {NAME_RULE} {DAEMON} is the daemon's.",
            "Choose one like anna, or anna@example.org.",
            exit_code=2,
        )
    new = Signer(name, *_public_key(file))
    signers.read_list(site.vault, SIGNERS_PATH)  # accept nobody whom the vault's list cannot name
    if others := {one.name for one in accepted_signers(site) if one.key == new.key} - {name}:
        raise UserError(
            f"This key is {others.pop()}'s already.", "See who may sign: placet signer list"
        )
    _change(site, lambda known: (*(one for one in known if one.key != new.key), new))
    return new


def _public_key(file: Path) -> tuple[bytes, str]:
    """Return the key in a public key's file, and its comment; of a private one, that beside it."""
    path = expand_home(str(file))
    beside = path.with_name(f"{path.name}.pub")
    path = beside if path.suffix != ".pub" and beside.is_file() else path
    try:
        with path.open("rb") as opened:
            lines = opened.read(MAX_BYTES).decode("utf-8", "replace").strip().splitlines()
        kind, key, *comment = (*"".join(lines[:1]).split(), "", "")
        found = read_key(kind, key), " ".join(comment).strip()
    except OSError as error:
        why = str(error.strerror)
    except ValueError as error:
        why = str(error)
    else:
        if len(lines) == 1:
            return found
        why = "it has more than one line, and a public key is one."
    raise UserError(
        f"{path} cannot be used: {why}",
        "Give the file that ends in .pub. A new key: ssh-keygen -t ed25519",
        exit_code=2,
    )


def remove_signer(site: Site, name: str) -> tuple[Signer, ...]:
    """Take all keys of a name off both lists; return them. Raises UserError without any."""
    gone = tuple(one for one in accepted_signers(site) if one.name == name)
    if not gone:
        raise UserError(f"{name!r} is not a signer.", "See them: placet signer list", exit_code=3)
    _change(site, lambda known: tuple(one for one in known if one.name != name))
    return gone


def _change(site: Site, change: Callable[[tuple[Signer, ...]], tuple[Signer, ...]]) -> None:
    """Change the accepted list and the vault's alike; what else the vault's has stays there.

    The accepted one comes first: nothing in the vault keeps a signer who was removed.
    """
    site.state.ensure()
    signers.change_list(site.state.folder, SIGNERS, change)
    signers.change_list(site.vault, SIGNERS_PATH, change)


def to_accept(site: Site) -> ListChange:
    """Return what the vault's list adds to the accepted one and takes from it."""
    new, old = signers.read_list(site.vault, SIGNERS_PATH), accepted_signers(site)
    return ListChange(
        tuple(one for one in new if one not in old),
        tuple(one for one in old if one not in new),
        new,
    )


def accept_signers(site: Site, shown: ListChange) -> None:
    """Accept the list that was shown; raises UserError if it was changed since."""
    if to_accept(site) != shown:
        raise UserError(
            f"{SIGNERS_PATH} was changed meanwhile.", "Look again: placet signer accept"
        )
    site.state.ensure()
    signers.change_list(site.state.folder, SIGNERS, lambda _: shown.listed)
