"""Check a receipt as a stranger would: with git, OpenSSH, and a list of signers of one's own."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from placet.case.receipt import (
    LIST,
    NAMESPACE,
    STATED,
    Receipt,
    names_of,
    read_receipt,
    why_outside,
)
from placet.codec import sha256
from placet.errors import PlacetError, UserError
from placet.git.receipt import changes_between, is_older, parents_in, receipt_files
from placet.git.repository import resolve
from placet.git.run import GitError, Repo
from placet.host.signers import KEYGEN, NotSigned, verify
from placet.note.frontmatter import read_note
from placet.note.paths import show
from placet.plan.allowed_signers import Signer, parse_signers
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.scope import Scope
from placet.plan.sshsig import read_signature
from placet.plan.statement import FULL_COMMIT, read_statement
from placet.plan.statement import NAMESPACE as OF_APPROVALS


class NotHeld(PlacetError):  # noqa: N818 - named for what is the case
    """The first thing of a receipt that does not hold, in a sentence."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A receipt whose signatures, history, scope and changes hold; the rest is the daemon's word.

    `signers` are the name and fingerprint of each approval's key, as the checker's list has them.
    `merged` is the commit that makes the same change; empty if none was asked about.
    """

    receipt: Receipt
    signers: tuple[str, ...]
    merged: str


def verify_receipt(
    repo: Repo,
    rev: str,
    listed: bytes,
    at: str | None = None,
    *,
    trace_id: str = "",
    branch: str = "",
) -> Verified:
    """Return what the receipt at `rev` proves. `listed` are the signers whom the checker trusts.

    With a `trace_id` it has to be of that request, and a `branch` that is still there has to end
    with the mission. `at` is a commit, such as a squashed merge, that has to change exactly what
    the mission changed. Raises NotHeld for anything that does not hold, UserError for a commit that
    is not here or a list that cannot be used.
    """
    fetch = f"{repo.command_line} fetch origin 'refs/placet/receipts/*:refs/placet/receipts/*'"
    commit = _commit(
        repo, rev, f"Name the repository: --repository DIR. Or fetch its receipts: {fetch}"
    )
    merged = ""
    if at is not None:
        # a tag would hide a branch of the same name, and a branch the commit that it is named for
        branch_tip = None if FULL_COMMIT.fullmatch(at) else resolve(repo, f"refs/heads/{at}")
        merged = branch_tip or _commit(repo, at, "See the names of commits: git log")
    people, daemons = _trusted(listed)
    try:
        files = receipt_files(repo, commit)
        raw = files.get(STATED, b"")
        _signed(raw, files, f"{STATED}.sig", daemons, NAMESPACE)
        receipt = read_receipt(raw)
        _must(trace_id in ("", receipt.trace_id), "The receipt is of another request.")
        signers, scope = _approved(repo, files, receipt, people)
        _history_holds(repo, commit, receipt, scope)
        ends = resolve(repo, f"refs/heads/{branch}") if branch else None
        _must(
            ends in (None, receipt.tip),
            f"{show(branch)} ends at {str(ends)[:12]}, the mission at {receipt.tip[:12]}: look at "
            f"what was added, then: placet verify {rev}",
        )
        if merged:
            _must_be_same(repo, merged, receipt, scope)
    except ValueError as error:
        raise NotHeld(
            f"{show(rev)} is not a receipt that this version of placet can read."
        ) from error
    except GitError as error:
        why = show(error.stderr.splitlines()[-1])
        raise NotHeld(f"git cannot read all of it in this repository: {why}.") from error
    return Verified(receipt, signers, merged)


def _trusted(listed: bytes) -> tuple[Sequence[Signer], Sequence[Signer]]:
    """Return the people and the daemons of a list; raises UserError for one that is no use."""
    if shutil.which(KEYGEN) is None:
        raise UserError(
            f"`{KEYGEN}` is not installed.", "Install OpenSSH 8.9 or newer.", exit_code=2
        )
    try:
        people = parse_signers(listed, mixed=True)
        daemons = parse_signers(listed, NAMESPACE, mixed=True)
    except ValueError as error:
        raise UserError(
            f"The list of signers cannot be used: {error}", "Correct that line.", exit_code=2
        ) from error
    if not people and not daemons:
        raise UserError(
            "The list of signers is empty.",
            "Name whom you trust in it, and the daemon.",
            exit_code=2,
        )
    return people, daemons


def _commit(repo: Repo, rev: str, helps: str) -> str:
    if (found := resolve(repo, rev)) is None:
        raise UserError(f"There is no commit {show(rev)} in {repo.path}.", helps, exit_code=3)
    return found


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotHeld(otherwise)


def _signed(
    text: bytes, files: Mapping[str, bytes], name: str, signers: Sequence[Signer], namespace: str
) -> Signer:
    """Return whose signature of a text a file of the receipt has. Raises ValueError or NotHeld."""
    signature = files.get(name, b"").decode("ascii")
    key = read_signature(signature).key
    signer = next((one for one in signers if one.key == key), None)
    if signer is None:
        raise NotHeld(
            f'{name} is by a key that your list does not have for "{namespace}". See the keys on '
            "the daemon's machine: placet signer list --lines"
        )
    try:
        verify(text.decode(), signature, [signer], namespace)
    except NotSigned as error:
        raise NotHeld(f"{name}: {error}") from error
    return signer


def _approved(
    repo: Repo, files: Mapping[str, bytes], receipt: Receipt, people: Sequence[Signer]
) -> tuple[tuple[str, ...], Scope]:
    """Return the signers of a receipt's approvals, and the scope of the last one."""
    numbers = range(1, len(receipt.approvals) + 1)
    wanted = {name for number in numbers for name in names_of(number)}
    _must(bool(wanted), "The receipt has no approval.")
    wanted |= {LIST, STATED, f"{STATED}.sig"}
    for name in sorted(wanted ^ {*files}):
        _must(name not in wanted, f"The receipt lacks {name}.")
        raise NotHeld(f"The receipt has a file that does not belong to it: {show(name)}.")
    signers, plan = [], b""
    for number, named in zip(numbers, receipt.approvals, strict=True):
        name, signature, plan_name = names_of(number)
        text, plan = files[name], files[plan_name]
        _must(text == named.statement.encode(), f"{name} is not the one that {STATED} has.")
        try:
            signer = _signed(text, files, signature, people, OF_APPROVALS)
        except ValueError as error:
            raise NotHeld(f"{signature} is not an SSH signature.") from error
        stated = read_statement(text.decode())
        if stated is None:
            raise NotHeld(f"{name} is not a statement of placet.")
        _must(sha256(plan) == stated.digest, f"{plan_name} is not the text that {name} approves.")
        same = (stated.trace_id, stated.request_id) == (receipt.trace_id, receipt.request_id)
        _must(same, f"{name} is about another request.")
        # placet keeps a vault's history: its notes may move on while a plan waits
        in_vault = "\nthis vault, base " in stated.lines
        on_base = stated.base_commit == receipt.base or (
            in_vault and is_older(repo, stated.base_commit, receipt.base)
        )
        _must(on_base, f"{name} approves work on {stated.base_commit[:12]}, not on this base.")
        signers.append(f"{signer.name} {signer.fingerprint}")
    try:
        return tuple(signers), parse_plan(read_note(plan).body, None).scope
    except PlanProblems as error:
        raise NotHeld(f"{plan_name} is not a plan that this version of placet can read.") from error


def _history_holds(repo: Repo, commit: str, receipt: Receipt, scope: Scope) -> None:
    """Check that the mission's commits, and no others, lead from base to tip inside the scope.

    Each commit is checked: what one adds outside, a later one may take back.
    """
    chain = [receipt.base, *receipt.commits, commit]
    _must(all(map(FULL_COMMIT.fullmatch, chain)), f"{STATED} names no commits.")
    _must(chain[-2] == receipt.tip, f"The mission's commits do not end at {receipt.tip[:12]}.")
    parents = parents_in(repo, chain)
    for before, sha in pairwise(chain):
        only = f"The commit {sha[:12]} is not on top of {before[:12]} alone"
        _must(parents.get(sha) == (before,), f"{only}: the history is not the mission's.")
    for before, sha in pairwise(chain[:-1]):
        for change in changes_between(repo, before, sha):
            why = why_outside(scope, change)
            _must(not why, f"The commit {sha[:12]} leaves the approved scope: {why}")
    same = changes_between(repo, receipt.base, receipt.tip) == receipt.files
    _must(same, f"{STATED} names other changes than the commits have.")


def _must_be_same(repo: Repo, commit: str, receipt: Receipt, scope: Scope) -> None:
    """Check that a commit, or it with those before it, changes exactly what the mission did.

    There may be as many as the mission has. Each has to stay inside the scope and have one parent;
    a merge may have the mission's tip as its second.
    """
    at = commit
    for _ in receipt.commits:
        parents = parents_in(repo, [at])[at]
        is_merge = at == commit and parents[1:] == (receipt.tip,)
        if len(parents) != 1 and not is_merge:
            break
        if any(why_outside(scope, one) for one in changes_between(repo, parents[0], at)):
            break
        if changes_between(repo, parents[0], commit) == receipt.files:
            return
        at = parents[0]
    raise NotHeld(
        f"The commit {commit[:12]} does not change exactly what the mission changed. If an older "
        "commit merged it, name that one."
    )
