"""Check a branch that workers made against the approved plan."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from posixpath import dirname, isabs, join, normpath

from placet.disk.path_text import Denied
from placet.errors import PlacetError
from placet.git.commit_message import FACT
from placet.git.history import content
from placet.git.index import MAX_SEARCHED_BYTES
from placet.git.run import BOT, Author, Repo, ask, items_of
from placet.note.paths import show
from placet.plan.scope import Scope
from placet.secrets import redact
from placet.tools.commit_secrets import added, secret_locations

_GONE, _LINK, _MODULE = "000000", "120000", "160000"
"""Modes of changed files in git, other than plain files; any unknown mode counts as the last."""
_CRUD = " .,:;<>\"\\'"
"""Characters that git takes off both ends of a name or address."""
_MAX_LINK_BYTES = 4096
_MAX_MESSAGE = 64 * 1024
"""Characters of a commit's message."""
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters that placet leaves out of a message."""
_CLAIM = re.compile(rf"(?:{FACT.pattern}|\s*\[ExoTrace:)", re.IGNORECASE)
_CO_AUTHOR = re.compile(rf"Co-authored-by: [^<>]{{1,200}} <{re.escape(BOT.email)}>")
_MAX_LINKS = 40
"""Links that one path may lead through, as in Linux."""


class BranchRefused(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """A branch has a commit that the approved plan does not allow; the text names the first one."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a mission may commit: the approved scope, the author, the commit it begins at.

    `denied` are the paths that nothing may write, `secrets` are known values. `claims` are the
    lines of a message that name the request, its plan and who approved it.
    """

    base: str
    scope: Scope
    denied: Denied
    author: Author
    secrets: tuple[str, ...]
    claims: frozenset[str]


def check_branch(repo: Repo, tip: str, allowed: Allowed) -> None:
    """Raise BranchRefused unless a mission may make all commits from the base up to `tip`."""
    parent, links = allowed.base, False
    authors = {(one.name.strip(_CRUD), one.email.strip(_CRUD)) for one in (allowed.author, BOT)}
    for commit, parents, *names, message in _commits(repo, allowed.base, tip):
        short = commit[:10]
        if parents != parent:
            raise BranchRefused(f"The commit {short} does not follow {parent[:10]}")
        if any(tuple(two) not in authors for two in (names[:2], names[2:])):
            raise BranchRefused(f"The commit {short} has another author: {show(names[0])}")
        _check_message(message, short, allowed)
        links |= _check_files(repo, parent, commit, allowed)
        parent = commit
    if parent != tip:
        raise BranchRefused(f"The branch does not begin at the commit {allowed.base[:10]}")
    if links:
        _check_links(repo, tip, allowed)


def _commits(repo: Repo, base: str, tip: str) -> Iterator[list[str]]:
    """Give the commits since the base, the oldest first.

    Each is its name, parents, author, committer, and message.
    """
    form = "--format=%H%x00%P%x00%an%x00%ae%x00%cn%x00%ce%x00%B"
    how = ("--reverse", "--topo-order", "--no-notes", "--no-mailmap", "--end-of-options")
    found = items_of(ask(repo, "log", "-z", form, *how, tip, f"^{base}"))
    for n in range(0, len(found), 7):
        yield found[n : n + 7]


def _check_message(message: str, short: str, allowed: Allowed) -> None:
    """Raise BranchRefused for a message that claims what placet would not have written."""
    if len(message) > _MAX_MESSAGE or _UNSAFE.search(message):
        why = "is too long" if len(message) > _MAX_MESSAGE else "has control characters"
        raise BranchRefused(f"The message of the commit {short} {why}")
    claimed = False
    for line in message.split("\n"):
        continued = claimed and line[:1].isspace()  # git reads it as the end of the line before
        claimed = continued or _CLAIM.match(line) is not None
        if claimed and line not in allowed.claims and not _CO_AUTHOR.fullmatch(line):
            raise BranchRefused(f"The message of the commit {short} claims: {show(line[:200])}")


def _check_files(repo: Repo, parent: str, commit: str, allowed: Allowed) -> bool:
    """Check what one commit changes; return whether symbolic links are among it.

    Raises GitError for a commit with more names than git may print.
    """
    # Else git could take all memory for the difference: ten trees, of ten entries each, have ten
    # thousand million paths.
    ask(repo, "ls-tree", "-r", "--name-only", "--end-of-options", commit)
    asked = ("diff-tree", "-r", "--no-renames", "--raw", "-z", "--end-of-options", parent, commit)
    items = items_of(ask(repo, *asked))
    present, links = list[str](), False
    for what, path in zip(items[::2], items[1::2], strict=True):
        before, after, *_ = what.removeprefix(":").split(" ")
        if _MODULE in (before, after):
            raise BranchRefused(f"{show(path)} is a submodule, which no mission may change")
        if not allowed.scope.allows_write(path) or allowed.denied.protects(path):
            raise BranchRefused(f"{show(path)} is outside what the approved plan may write")
        if after != _GONE:
            present.append(path)
        links = links or _LINK in (before, after)
    if found := _secrets_in(repo, allowed.base, commit, present, allowed.secrets):
        raise BranchRefused(f"A secret would be added: {found[0]}")
    return links


def _secrets_in(
    repo: Repo, base: str, commit: str, paths: Sequence[str], known: Sequence[str] = ()
) -> list[str]:
    """Return sentences on the secrets that these files add to the commit `base`.

    `known` are as in `refuse_secrets`. A file that is too large to search is listed, too.
    """
    found: list[str] = []
    for path in paths:
        data = content(repo, commit, path, max_bytes=MAX_SEARCHED_BYTES + 1)
        named, count = redact(path, known)
        if count:
            found.append(f"the name of {show(named)}")
        if len(data) > MAX_SEARCHED_BYTES:
            found.append(f"{show(named)} is too large to be searched")
        else:
            found += secret_locations(named, added(repo, base, path, data, known))
    return found


def _check_links(repo: Repo, tip: str, allowed: Allowed) -> None:
    """Raise BranchRefused for a link out, unless the base has it with the same end."""
    before, now = _links(repo, allowed.base), _links(repo, tip)
    for path in now:
        end = _link_target(path, now)
        if path in before and end == _link_target(path, before):
            continue
        if not end or allowed.denied.protects(end):
            raise BranchRefused(
                f"{show(path)} links to a place outside the repository, or to a protected path"
            )


def _links(repo: Repo, commit: str) -> Mapping[str, str]:
    """Return the symbolic links of a commit, with their targets."""
    rows = (row.split("\t", 1) for row in items_of(ask(repo, "ls-tree", "-r", "-z", commit)))
    paths = [path for what, path in rows if what.startswith(_LINK)]
    return {
        path: os.fsdecode(content(repo, commit, path, max_bytes=_MAX_LINK_BYTES)) for path in paths
    }


def _link_target(path: str, links: Mapping[str, str]) -> str:
    """Return where a path leads, through links; "" for out of the repository, or to its top."""
    left, at, followed = path.split("/"), "", 0
    while left:
        name = left.pop(0)
        if name == ".." and not at:
            return ""
        at = normpath(join(at, name))
        at = "" if at == "." else at
        if (target := links.get(at)) is not None:
            if isabs(target):
                return ""
            followed += 1
            if followed > _MAX_LINKS:
                return path  # no system follows it
            at, left = dirname(at), [*target.split("/"), *left]
    return at
