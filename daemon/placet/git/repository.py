"""Open a person's repository and read its references and state. Changes nothing."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from placet.case.request import unfit
from placet.codec import sha256
from placet.disk.files import FileLock
from placet.disk.real_path import real_path
from placet.errors import UserError
from placet.git.index import read_status
from placet.git.run import (
    BOT,
    BULK_TIMEOUT_S,
    Author,
    GitDir,
    GitError,
    OnCall,
    Repo,
    items_of,
    neutral,
    place_of,
    rows_of,
    run_git,
    text_of,
)
from placet.host.state import make_private, state_home
from placet.note.paths import show
from placet.wording import counted, some_of

_OURS = ("worktrees", "refs/heads/feat", "refs/placet", "logs/refs/heads/feat", "logs/refs/placet")
"""Git folders that placet, or git for it, writes to.

Honest repositories may have links in place of other folders.
"""


KEPT_MARK = "placet.history"
"""The setting in the repository's own configuration that `is_kept` reads."""


def is_kept(repo: Repo) -> bool:
    """Return whether this is a vault whose history placet began, so placet makes its commits.

    Its users may never have heard of git.
    """
    return any(scope == "local" and item == f"{KEPT_MARK}\ntrue" for scope, item in repo.settings)


def is_repository(path: Path) -> bool:
    """Return whether this very folder is the top of a work tree, or a bare repository.

    Starts no process. A folder inside a repository does not count: a vault inside a bigger
    repository gets its own. False for a folder that the system does not let placet look into.
    """
    folders = (path / "objects", path / "refs")
    bare = os.path.isfile(path / "HEAD") and all(map(os.path.isdir, folders))
    return bare or os.path.lexists(path / ".git")


def portal_problem(vault: Path, place: Path) -> UserError | None:
    """Return why a request cannot name a portal at `place`, None where it can.

    A folder that is not a repository can be named: the first request makes it one. A folder inside
    another repository cannot: commits would then go into the new one.
    """
    shown = show(str(place))
    if not os.path.isdir(place):
        return UserError(f"{shown} is not a folder.", "Name the folder of a repository.")
    if "\n" in str(place):
        why = f"A repository's path must not have a line break in it: {shown}."
        return UserError(why, "Rename that folder.")
    if why := unfit(real_path(vault), real_path(place), is_repository=is_repository(place)):
        return UserError(why, "Name another folder.")
    try:
        if is_repository(place) or repository_above(place) is not None:
            open_repo(place)
    except UserError as error:
        return error
    return None


def repository_above(place: Path) -> Path | None:
    """Return the folder above `place` that is the top of a repository, None without one."""
    parents = real_path(place).parents
    return next((parent for parent in parents if os.path.lexists(parent / ".git")), None)


def common_dir_at(top: Path) -> Path | None:
    """Return the git directory that all worktrees of the repository at `top` share.

    None if it cannot be determined. Starts no process.
    """
    place = top / ".git" if os.path.lexists(top / ".git") else top
    with suppress(OSError, UnicodeDecodeError):
        if os.path.isfile(place):
            place = top / place.read_text().removeprefix("gitdir:").strip()
        if os.path.isfile(place / "commondir"):
            place /= (place / "commondir").read_text().strip()
        return real_path(place)
    return None


def private_dirs(repo: Repo) -> list[Path]:
    """Return the private git directories of the repository's worktrees.

    Another process may delete some, or the folder of all of them, meanwhile.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted((repo.common_dir / "worktrees").iterdir())
    return []


def old_locks(repo: Repo, before: datetime) -> dict[Path, datetime]:
    """Return the locks of index, references and settings taken before `before`, and since when.

    A running git may hold one for long, while it waits for a commit message. A killed git never
    releases its lock.
    """
    found = {
        *repo.git_dir.glob("*.lock"),
        *repo.common_dir.glob("*.lock"),
        *(repo.common_dir / "refs").rglob("*.lock"),
    }
    taken = {}
    for file in sorted(found):
        with suppress(FileNotFoundError):
            taken[file] = datetime.fromtimestamp(file.lstat().st_mtime, UTC)
    return {file: when for file, when in taken.items() if when < before}


def open_repo(path: Path, *, on_call: OnCall | None = None) -> Repo:
    """Open the repository whose top is `path`. Symbolic links in it are followed once, here.

    From then on each git process is reported to `on_call`. Raises UserError if there is no
    repository, or `path` is inside another one. Also if it belongs to somebody else, it is broken,
    or git is missing.
    """
    top = real_path(path)
    if not is_repository(top):
        if (outer := repository_above(top)) is not None:
            raise UserError(
                f"{top} is not a repository; it is inside the one at {outer}",
                f"Name {outer} instead, or make one there: git -C '{top}' init",
                exit_code=2,
            )
        raise UserError(
            f"{top} is not a git repository", f"Make one: git -C '{top}' init", exit_code=2
        )
    bare, shallow, *places = _asked(top, on_call)
    git_dir, common_dir, top_dir = [real_path(Path(place)) if place else None for place in places]
    if bare == "false" and not top_dir:
        raise UserError(
            f"{top} is where git keeps a repository, not the folder with its files",
            "Name that folder instead.",
            exit_code=2,
        )
    if bare == "false" and top_dir != top:
        raise UserError(
            f"the work tree of {top} is elsewhere ({top_dir})",
            f"Look at: git -C '{top}' config core.worktree",
            exit_code=2,
        )
    assert git_dir is not None
    assert common_dir is not None
    _must_fit(top, common_dir)
    return Repo(top, git_dir, common_dir, bare == "true", shallow == "true", on_call)


def _asked(top: Path, on_call: OnCall | None) -> list[str]:
    """Return whether it is bare and shallow, then git's folder, the common one and the work tree.

    The last is empty if there is none. Raises UserError if git does not accept the repository.
    """
    # Let git discover the repository, without --git-dir: only then does git check its owner. The
    # ceiling restricts the search to this folder.
    place = GitDir(None, None, top, on_call, {"GIT_CEILING_DIRECTORIES": str(top.parent)})
    looks_bare = not os.path.lexists(top / ".git")
    bare_layout = ("safe.bareRepository=all",) if looks_bare else ()
    what = ("--is-bare-repository", "--is-shallow-repository", "--git-dir", "--git-common-dir")
    asked = ("rev-parse", "--path-format=absolute", *what)
    try:
        # The last question fails in a bare repository, after the others were answered.
        code, out = 128, b""
        if not looks_bare:
            code, out = run_git(place, *asked, "--show-toplevel", config=bare_layout, ok=(0, 128))
        if code != 0:
            out = run_git(place, *asked, config=bare_layout)[1] + b"\n"
    except GitError as error:
        helps = f"Look at: git -C '{top}' status"
        if "dubious ownership" in error.stderr:
            mine = f'sudo chown -R "$(id -un)" {shlex.quote(str(top))}'
            helps = f"Make it yours: {mine}. Or trust it, as git says."
        raise UserError(
            f"git does not accept {top} as a repository: {error.stderr}", helps, exit_code=2
        ) from error
    answers = text_of(out).split("\n")
    if len(answers) != len(what) + 1:
        raise UserError(f"a repository's path must not have a line break in it: {str(top)!r}")
    return answers


def _must_fit(top: Path, common: Path) -> None:
    """Raise UserError for a repository in which placet cannot safely make worktrees."""
    ours = (common / name for name in _OURS)
    below = (*common.glob("refs/placet/*"), *common.glob("logs/refs/placet/*"))
    for link in (*ours, *below):
        if os.path.islink(link):
            raise UserError(
                f"{link} is a symbolic link, and what placet writes there would be outside of the "
                "repository",
                f"Look at it, then: rm {shlex.quote(str(link))}",
                exit_code=2,
            )
    if os.path.exists(common / "reftable"):
        raise UserError(
            f"{top} keeps its references in a reftable, with which placet cannot work yet",
            f"Put them into files: git -C '{top}' refs migrate --ref-format=files",
            exit_code=2,
        )


SAY_AFTER_S = 2.0
"""Seconds after which a wait for the lock is said. A merge takes a tenth of it."""


@contextmanager
def one_at_a_time(repo: Repo, on_wait: Callable[[str], None] = lambda _: None) -> Iterator[int]:
    """Lock the repository for what only one process of placet may do there; others wait.

    The lock is a file in the folder of all state. Commands in the sandbox may open the git
    directory, so they could hold a lock there. Yields its descriptor, for git to inherit. `on_wait`
    is told once what this waits for.
    """
    folder = state_home(os.environ) / "locks"
    make_private(folder)
    file = folder / f"{sha256(os.fsencode(repo.common_dir))}.lock"
    with ExitStack() as stack:
        try:
            held = stack.enter_context(FileLock(file, SAY_AFTER_S))
        except BlockingIOError:
            on_wait(f"Another command or mission of placet works in {repo.path}. Waiting for it.")
            held = stack.enter_context(FileLock(file, math.inf))
        yield held.handle


def resolve(repo: Repo, rev: str) -> str | None:
    """Return the commit that `rev` names, or None. A name is never parsed as an option."""
    code, out = run_git(
        place_of(repo),
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        f"{rev}^{{commit}}",
        ok=(0, 1, 128),
    )
    return text_of(out) if code == 0 else None


def tree_of(repo: Repo, commit: str) -> str:
    """Return the tree of an existing commit."""
    return text_of(
        run_git(place_of(repo), "rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")[
            1
        ].splitlines()[-1]
    )


def head(repo: Repo) -> str:
    """Return the commit of the person's HEAD.

    Raises UserError if the repository has no commit.
    """
    sha = resolve(repo, "HEAD")
    if sha is None:
        raise no_commit(repo)
    return sha


def no_commit(repo: Repo) -> UserError:
    """Return what to say of a repository in which no branch can begin."""
    return UserError(
        f"{repo.path} has no commit yet, so there is nothing to branch from.",
        f"Make the first one: git -C '{repo.path}' add -A && "
        f"git -C '{repo.path}' commit --allow-empty -m 'Begin'",
    )


def identity(repo: Repo) -> Author:
    """Return the person's `user.name` and `user.email` if both are usable, else `BOT`."""
    try:
        return Author(repo.setting("user.name") or "", repo.setting("user.email") or "")
    except ValueError:
        return BOT


def current_branch(repo: Repo) -> str:
    """Return the branch that the person has checked out, "" if HEAD is detached."""
    line = (repo.git_dir / "HEAD").read_text("utf-8", "surrogateescape").strip()
    return line.removeprefix("ref: refs/heads/") if line.startswith("ref: refs/heads/") else ""


@dataclass(frozen=True, slots=True)
class Refs:
    """All branches, of the person and of remotes: `at` maps each full name to its commit.

    `symbolic` has the targets of symbolic references. `current` is the person's checked-out branch,
    "" if it is none of these. `ours` are placet's own references.
    """

    at: Mapping[str, str]
    symbolic: Mapping[str, str]
    current: str
    ours: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def default(self) -> str:
        """The branch that work is merged into: origin's default, main, master, the current, ""."""
        head = self.symbolic.get("refs/remotes/origin/HEAD", "")
        remote = head.removeprefix("refs/remotes/origin/")
        names = (remote, "main", "master", self.current)
        return next((name for name in names if name and f"refs/heads/{name}" in self.at), "")

    def ends_in(self, base_branch: str) -> str:
        """Return the branch that work started on `base_branch` is merged into, or the default."""
        exists = base_branch and f"refs/heads/{base_branch}" in self.at
        return base_branch if exists else self.default

    def named(self, names: Sequence[str]) -> list[str]:
        """Return the branches of these names, here and at remotes, and each remote's default."""
        theirs = [ref for ref in self.at if ref.startswith("refs/remotes/")]
        remotes = [ref for ref in theirs if ref.split("/", 3)[-1] in names]
        defaults = [
            to
            for ref, to in self.symbolic.items()
            if ref.startswith("refs/remotes/") and ref.endswith("/HEAD")
        ]
        here = (f"refs/heads/{name}" for name in names)
        return [ref for ref in (*here, *remotes, *defaults) if ref in self.at]

    def free_branch(self, request_id: str, trace8: str, now: datetime) -> str:
        """Return a free branch name: `feat/{request_id}-{trace8}`, plus a time if that is taken.

        A branch named `feat` leaves no room for `feat/…`. Then the name begins with `feat-`.
        """
        # On file systems that fold case, `Feat` also blocks `feat/…`.
        here = (ref for ref in self.at if ref.startswith("refs/heads/"))
        taken = {ref.removeprefix("refs/heads/").casefold() for ref in here}
        folders = {str(above) for name in taken for above in PurePosixPath(name).parents}
        prefix = "feat-" if "feat" in taken else "feat/"
        wanted = f"{prefix}{request_id}-{trace8}"
        stamped = f"{wanted}-{now.astimezone(UTC):%Y%m%d%H%M%S}"
        numbered = (f"{stamped}-{n}" for n in range(2, len(taken) + 4))
        names = (wanted, stamped, *numbered)
        return next(name for name in names if name.casefold() not in taken | folders)


def all_refs(repo: Repo) -> Refs:
    """Return all current branches, with one git process."""
    asked = ("refname", "symref", "objectname", "HEAD")
    rows = list(rows_of(place_of(repo), asked, "refs/heads", "refs/remotes", "refs/placet"))
    ours = frozenset(name for name, *_ in rows if name.startswith("refs/placet/"))
    rows = [row for row in rows if row[0] not in ours]
    current = [name.removeprefix("refs/heads/") for name, *_, mark in rows if mark == "*"]
    return Refs(
        {name: commit for name, _, commit, _ in rows},
        {name: to for name, to, *_ in rows if to},
        current[0] if current else "",
        ours,
    )


def remote_of(repo: Repo) -> tuple[str, str]:
    """Return the remote to push to, `origin` or the first one, and its default branch; "" for none.

    Ignores a name that a shell could misread.
    """
    names = [
        item.split("\n")[0].removeprefix("remote.").removesuffix(".url")
        for _, item in repo.settings
        if re.match(r"remote\.[A-Za-z0-9][A-Za-z0-9._/-]*\.url\n", item)
    ]
    name = "origin" if "origin" in names else next(iter(names), "")
    with suppress(OSError):  # a symbolic reference is never packed
        line = (
            (repo.common_dir / "refs/remotes" / name / "HEAD").read_text("utf-8", "replace").strip()
        )
        return name, line.removeprefix(f"ref: refs/remotes/{name}/") if line.startswith(
            "ref: "
        ) else ""
    return name, ""


def dirty_paths(repo: Repo) -> list[str]:
    """Return the paths whose changes a worktree at HEAD lacks: uncommitted or untracked ones.

    Reads only and does not refresh the index. Ignores changes in submodules. An untracked folder is
    one path.
    """
    if repo.is_bare:
        return []
    place = neutral(GitDir(repo.git_dir, repo.path, repo.path, repo.on_call))
    _, changes, _ = read_status(place, untracked="normal")
    return [change.path for change in changes]


def ignored_paths(repo: Repo) -> list[str]:
    """Return what git ignores in the checkout; a folder is one path, with a slash."""
    if repo.is_bare:
        return []
    place = neutral(GitDir(repo.git_dir, repo.path, repo.path, repo.on_call))
    return items_of(run_git(place, "ls-files", "-z", *IGNORED)[1])


IGNORED = ("--others", "--ignored", "--exclude-standard", "--directory")
"""Options of `git ls-files` for ignored files and folders."""

_IN_PROGRESS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
    "sequencer": "cherry-pick or revert",
}


def in_progress(repo: Repo) -> str:
    """Return the unfinished operation in the checkout, such as `rebase`; "" for none."""
    operations = (
        what for name, what in _IN_PROGRESS.items() if os.path.exists(repo.git_dir / name)
    )
    return next(operations, "")


def notes(repo: Repo) -> list[str]:
    """Return a sentence for each peculiarity of the repository that affects a mission."""
    sentences = []
    if repo.is_bare:
        sentences.append("The repository is bare: nobody has it checked out.")
    elif not (repo.git_dir / "HEAD").read_bytes().startswith(b"ref: "):
        sentences.append("HEAD is detached: the mission begins at that commit, not at a branch.")
    if repo.git_dir != repo.common_dir:
        sentences.append(
            f"The folder is a worktree of {repo.common_dir}: the branch appears there too."
        )
    if repo.is_shallow:
        sentences.append("The clone is shallow: older history is missing.")
    if what := in_progress(repo):
        sentences.append(f"A {what} is in progress in {repo.path}; placet does not touch it.")
    if os.path.exists(repo.common_dir / "objects/info/alternates"):
        sentences.append(
            "Some objects are borrowed from another repository (objects/info/alternates)."
        )
    try:
        rows = rows_at(repo, "HEAD")
    except GitError:
        if resolve(repo, "HEAD") is not None:
            raise
        return [*sentences, "There is no commit yet."]
    missing = missing_files(repo, "HEAD")
    return [
        *sentences,
        *([missing.what] if missing is not None else ()),
        *facts_in(repo, rows),
    ]


def rows_at(repo: Repo, commit: str, *, below: bool = True) -> list[list[str]]:
    """Return the files of a commit: each as mode, kind and object, and its path.

    Unless they are wanted from `below`, its folders stand for what is in them.
    """
    asked = ("ls-tree", *(("-r",) if below else ()), "-z", "--end-of-options", commit)
    _, out = run_git(place_of(repo), *asked, timeout_s=BULK_TIMEOUT_S)
    return [item.split("\t", 1) for item in items_of(out)]


def modules_in(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the submodules among the rows of `rows_at`."""
    return [path for what, path in rows if what.startswith("160000 ")]


def facts_in(repo: Repo, rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a sentence for each thing that a worktree of these `rows_at` lacks.

    A person should know them before they approve a plan, and an agent before it works.
    """
    sentences = []
    if modules := modules_in(rows):
        named = some_of([*map(ascii, modules)], 5)
        sentences.append(f"Submodules are empty folders in a worktree: {named}.")
    filters = filters_named(repo, rows)
    if "lfs" in filters:
        sentences.append(
            "Files kept with git LFS appear as small pointer files, and must not be edited. "
            "placet merges only changes to other files."
        )
    sentences += [
        f"The filter {name!a} is not run: its files appear as they are stored."
        for name in filters
        if name != "lfs"
    ]
    if (above := repository_above(repo.path)) is not None and not repo.is_bare:
        sentences.append(
            f"The repository is inside another one, at {show(str(above))}. placet does not change "
            "that one."
        )
    return sentences


def missing_files(repo: Repo, commit: str) -> UserError | None:
    """Return what to say if a partial clone lacks files of this commit, else None."""
    remotes = [
        item.removeprefix("remote.").removesuffix(".promisor\ntrue")
        for _, item in repo.settings
        if re.fullmatch(r"remote\..*\.promisor\ntrue", item)
    ]
    if not remotes:
        return None
    asked = ("rev-list", "--objects", "--no-object-names", "--missing=print", f"{commit}^{{tree}}")
    out = run_git(place_of(repo), *asked, timeout_s=BULK_TIMEOUT_S)[1]
    count = sum(line.startswith(b"?") for line in out.splitlines())
    if not count:
        return None
    return UserError(
        f"{counted(count, 'file')} of this commit {'is' if count == 1 else 'are'} not on this "
        "machine, as the clone is partial.",
        f"Fetch them: {repo.command_line} fetch --refetch --no-filter {shlex.quote(remotes[0])}",
    )


def filters_named(repo: Repo, rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the filters named by `.gitattributes` among these rows of `ls-tree`, or elsewhere."""
    names = os.fsencode("".join(f"{path}\0" for _, path in rows))
    _, out = run_git(place_of(repo), "check-attr", "-z", "--stdin", "filter", stdin=names)
    outside = {*items_of(out)[2::3]} - {"unspecified", "unset", "set"}
    attributes = [
        what.split(" ")[2] for what, path in rows if path.split("/")[-1] == ".gitattributes"
    ]
    if not attributes:
        return sorted(outside)
    _, out = run_git(
        place_of(repo), "cat-file", "--batch", stdin="\n".join([*attributes, ""]).encode()
    )
    words = {
        word
        for line in out.decode("utf-8", "replace").splitlines()
        if not line.startswith("#")
        for word in line.split()[1:]
    }
    return sorted(
        outside | {word.removeprefix("filter=") for word in words if word.startswith("filter=")}
    )
