"""Commit people's changes to a vault whose history placet began (`is_kept`).

The commit happens before work starts. The vault's users may never have heard of git, so nobody else
commits there. placet uses an index of its own. So it neither waits for nor disturbs another git
that holds the lock of the users' index. That index is updated when it is free. If people have
staged files, they use git and commit themselves. Then placet does nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath

from placet.disk.files import Stamp, delete_tree, stamp_of
from placet.disk.real_path import real_path
from placet.errors import PlacetError, UserError
from placet.git.index import read_status, stage, stage_possible, update_ref, write_commit
from placet.git.repository import (
    KEPT_MARK,
    current_branch,
    head,
    identity,
    in_progress,
    is_kept,
    is_repository,
    one_at_a_time,
    open_repo,
    resolve,
)
from placet.git.run import (
    Author,
    FileChange,
    GitDir,
    GitError,
    OnCall,
    Repo,
    neutral,
    place_of,
    run_git,
    text_of,
    with_env,
)
from placet.note.paths import TEMP_PREFIX, show
from placet.wording import counted, megabytes

ATTACHMENTS = (
    "png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "heic", "heif", "avif", "ico",
    "psd", "raw", "svgz", "mp4", "m4v", "mov", "avi", "mkv", "webm", "mpg", "mpeg", "wmv", "flv",
    "mp3", "m4a", "wav", "flac", "ogg", "oga", "opus", "aac", "aiff", "wma", "pdf", "epub", "mobi",
    "djvu", "zip", "gz", "tgz", "bz2", "xz", "zst", "7z", "rar", "tar", "iso", "dmg", "doc",
    "docx", "xls", "xlsx", "ppt", "pptx", "odt", "ods", "odp", "pages", "numbers", "key", "exe",
    "dll", "so", "dylib", "bin", "class", "jar", "apk", "sqlite", "db",
)  # fmt: skip
"""Suffixes of files that a vault's history leaves out.

Pictures, films, sound, books, archives, office files, programs.
"""

INIT_FOLDER = ".placet-init"
"""The folder in which a new repository is built, inside the folder that becomes one."""

MAX_KEPT_BYTES = 1_000_000
"""The history of a vault leaves out larger files too, whatever their names."""


ATTACHMENT_PATTERNS = tuple(
    "*." + "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in suffix)
    for suffix in ATTACHMENTS
)
"""Gitignore patterns that exclude attachments, one per suffix, in any case."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a history: files and bytes that it would hold, and leave out.

    `kinds` has the bytes of each suffix that it would hold.
    """

    files: int
    bytes: int
    kinds: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0
    left_out_bytes: int = 0


def split_by_size(top: Path, paths: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Return the bytes of each file that fits into a history, and the paths of too large ones."""
    sizes: dict[str, int] = {}
    for path in paths:
        try:
            sizes[path] = (top / path).lstat().st_size
        except OSError:  # deleted meanwhile; git sees that too
            continue
    large = [path for path, size in sizes.items() if size > MAX_KEPT_BYTES]
    return {path: size for path, size in sizes.items() if size <= MAX_KEPT_BYTES}, large


def history_size(top: Path, kept: Mapping[str, int], excludes: Sequence[str]) -> Size:
    """Return the size of a history of the files `kept`, with their bytes, and of all others."""
    kinds: Counter[str] = Counter()
    for path, size in kept.items():
        kinds[PurePosixPath(path).suffix.lower() or "no suffix"] += size
    out = out_bytes = 0
    skipped = {".git", INIT_FOLDER, *(line.rstrip("/") for line in excludes if line.endswith("/"))}
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name not in skipped]
        for name in files:
            file = Path(folder, name)
            if str(file.relative_to(top)) not in kept:
                out += 1
                with suppress(OSError):
                    out_bytes += file.lstat().st_size
    return Size(len(kept), sum(kept.values()), dict(kinds.most_common()), out, out_bytes)


def exclude(repo: Repo, patterns: Sequence[str]) -> None:
    """Add these gitignore patterns to `.git/info/exclude`, unless they are there already."""
    file = repo.common_dir / "info/exclude"
    file.parent.mkdir(exist_ok=True)
    present = file.read_bytes() if file.exists() else b""
    lines = set(present.splitlines())
    missing = [os.fsencode(line) for line in patterns if os.fsencode(line) not in lines]
    if missing:
        new = file.with_name("exclude.placet")
        joint = b"" if not present or present.endswith(b"\n") else b"\n"
        new.write_bytes(present + joint + b"\n".join(missing) + b"\n")
        new.replace(file)


def without_large(repo: Repo, found: Sequence[FileChange]) -> list[FileChange]:
    """Return a vault's changes without new files that are too large for a history.

    Adds those to `.git/info/exclude`. Also leaves out notes that placet is writing just now.
    """
    found = [
        change
        for change in found
        if change.status != "A" or not PurePosixPath(change.path).name.startswith(TEMP_PREFIX)
    ]
    new = [change.path for change in found if change.status == "A"]
    _, large = split_by_size(repo.path, new)
    if large:
        exclude(repo, [_literal(path) for path in large])
    return [change for change in found if change.path not in large]


def _literal(path: str) -> str:
    return "/" + re.sub(r"([*?\[\\])", r"\\\1", path).replace("\n", "?").replace(" ", "\\ ")


MESSAGE = "Notes as people left them\n\nWhat was changed in the vault since the commit before.\n"


def keep_notes(
    repo: Repo, index: Path, when: datetime, on_wait: Callable[[str], None] = lambda _: None
) -> tuple[str, int, list[str]]:
    """Commit what people changed in a vault whose history placet keeps.

    Returns the commit ("" for none), the number of files, and the paths that git cannot add.
    `index` is the path of placet's own index, below the state folder, kept between calls. Does
    nothing in any other repository, off a branch, during a merge, or if a person has staged files.
    `on_wait` is as in `one_at_a_time`.
    """
    if not is_kept(repo) or not current_branch(repo) or in_progress(repo):
        return "", 0, []
    with one_at_a_time(repo, on_wait) as held:
        try:
            before = head(repo)
        except UserError:  # no commit yet
            return "", 0, []
        theirs = neutral(GitDir(repo.git_dir, repo.path, repo.path, repo.on_call, held=held))
        own = with_env(theirs, {"GIT_INDEX_FILE": str(index)})
        # Holds the commit that the person's index is at, if that index could not be updated.
        behind = index.with_suffix(".behind")
        index.with_name(f"{index.name}.lock").unlink(missing_ok=True)
        if not index.exists():
            index.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                shutil.copy2(repo.git_dir / "index", index)
        try:
            _, changes, staged = read_status(own)
        except GitError:
            # Damaged, for example by a power cut. If the repository is damaged, that shows below.
            index.unlink(missing_ok=True)
            staged = True
        if staged:  # HEAD has moved since
            run_git(own, "read-tree", "--reset", before)
            _, changes, _ = read_status(own)
        changes = without_large(repo, changes)
        if not changes and not behind.exists():
            return "", 0, []
        seen = stamp_of(repo.git_dir / "index")
        if not _follows(theirs, before, behind):
            return "", 0, []
        if not changes:
            _follow(repo, index, seen, behind)
            return "", 0, []
        left_out = stage_possible(own, changes)
        if len(left_out) == len(changes):
            return "", 0, left_out
        new = write_commit(own, stage(own, []), (before,), MESSAGE, identity(repo), when)
        if not behind.exists():  # first: after a kill the person's index is behind
            behind.write_text(f"{before}\n", "ascii")
        update_ref(own, "HEAD", new, before)
        _follow(repo, index, seen, behind)
        return new, len(changes) - len(left_out), left_out


def not_added(paths: Sequence[str]) -> str:
    """Return the message to people about notes that git cannot add to a vault's history."""
    return (
        f"git cannot add these notes to the vault's history: {', '.join(map(show, paths))}. Agents "
        "do not see their changes. Correct `.gitattributes` (as working-tree-encoding), or name "
        "them in `.gitignore`."
    )


def _follows(theirs: GitDir, before: str, behind: Path) -> bool:
    """Return whether nothing is staged in the person's index.

    Then it matches HEAD, or the commit recorded in `behind`.
    """
    assert theirs.git_dir is not None
    if not (theirs.git_dir / "index").exists():
        return True
    commits = [before]
    with suppress(OSError):
        commits.append(behind.read_text("ascii", "replace").strip())
    return any(
        run_git(theirs, "diff-index", "--cached", "--quiet", commit, "--", ok=(0, 1, 128))[0] == 0
        for commit in commits
    )


def _follow(repo: Repo, index: Path, seen: Stamp, behind: Path) -> None:
    """Update the person's index to HEAD, under git's own lock on it.

    If somebody holds that lock, the next call does it.
    """
    theirs, lock = repo.git_dir / "index", repo.git_dir / "index.lock"
    try:
        file = lock.open("xb")
    except FileExistsError:
        return
    try:
        with file:
            if stamp_of(theirs) == seen:
                file.write(index.read_bytes())
                if seen is not None:
                    os.fchmod(file.fileno(), theirs.stat().st_mode & 0o777)
        if stamp_of(theirs) == seen:  # else the person staged something just now
            lock.replace(theirs)
            behind.unlink(missing_ok=True)
            return
    except BaseException:
        lock.unlink(missing_ok=True)
        raise
    lock.unlink()


# Make a folder a repository with a first commit. For a vault, only text and only so much of it.

_BATCH_BYTES = 8_000_000
_SAY_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of a first commit. Progress is reported to `say` once a second."""

    max_bytes: int
    max_files: int | None = None
    say: Callable[[str], None] = lambda _: None


class TooMuch(PlacetError):  # noqa: N818 - names a state, not an error
    """A first commit would exceed its allowance. Nothing was changed."""

    def __init__(self, size: Size) -> None:
        super().__init__(
            f"{counted(size.files, 'file')} with {counted(size.bytes, 'byte')}: too much for a "
            "first commit"
        )
        self.size = size


def init_repo(
    path: Path,
    *,
    excludes: Sequence[str],
    message: str,
    when: datetime,
    author: Author | None = None,
    on_call: OnCall | None = None,
    allowance: Allowance | None = None,
) -> tuple[Repo, str]:
    """Make `path` a repository with a first commit of its files; return it with that commit.

    Without an `author`, the commit has the person's identity as configured in git.

    `excludes` are gitignore patterns that go into `.git/info/exclude` and stay out of the commit. A
    repository with commits is returned as it is. A new one is built aside (`.placet-init`) and put
    in place by one rename. So a killed call leaves nothing or all of it, and the next call begins
    again. With `allowance` it is a vault's: large files are left out too, and the repository is
    marked as kept by placet (`is_kept`). Raises TooMuch if the allowance is exceeded. Raises
    UserError for a repository without a commit but with staged files, because that commit is the
    person's to make.
    """
    top = real_path(path)
    building = top / INIT_FOLDER
    if building.is_dir() and not building.is_symlink():
        delete_tree(building)
    if is_repository(top):
        repo = open_repo(top, on_call=on_call)
        sha = resolve(repo, "HEAD")
        if sha is None:
            if repo.is_bare:
                raise UserError(
                    f"{top} is a bare repository without a commit", "Push a first commit to it."
                )
            sha = _first_commit(repo, excludes, author or identity(repo), message, when, allowance)
        else:
            _put_index(repo)
        return repo, sha
    building.mkdir()
    made = _begin(top, building, on_call)
    if allowance is not None:
        run_git(place_of(made), "config", "--file", str(made.git_dir / "config"), KEPT_MARK, "true")
    try:
        sha = _first_commit(made, excludes, author or identity(made), message, when, allowance)
    except TooMuch:
        delete_tree(building)
        raise
    made.git_dir.rename(top / ".git")
    building.rmdir()
    return open_repo(top, on_call=on_call), sha


def _begin(top: Path, building: Path, on_call: OnCall | None) -> Repo:
    outside = GitDir(None, None, building, on_call)
    _, out = run_git(outside, "config", "--get", "init.defaultBranch", ok=(0, 1))
    branch = text_of(out) or "main"
    run_git(
        outside,
        "init",
        "-q",
        "--template=",
        f"--initial-branch={branch}",
        "--",
        str(building),
        config=("init.defaultRefFormat=files",),
    )  # not a reftable, which `open_repo` refuses
    return Repo(
        top, building / ".git", building / ".git", is_bare=False, is_shallow=False, on_call=on_call
    )


def survey(path: Path, excludes: Sequence[str]) -> Size:
    """Return what the history of a folder without one would hold; write nothing in it."""
    top = real_path(path)
    with tempfile.TemporaryDirectory(prefix="placet-") as folder:
        repo = _begin(top, Path(folder), None)
        exclude(repo, excludes)
        _, found, _ = read_status(neutral(GitDir(repo.git_dir, top, top, None)))
        return history_size(top, split_by_size(top, [change.path for change in found])[0], excludes)


def _first_commit(
    repo: Repo,
    excludes: Sequence[str],
    author: Author,
    message: str,
    when: datetime,
    allowance: Allowance | None,
) -> str:
    place = GitDir(repo.git_dir, repo.path, repo.path, repo.on_call)
    if run_git(place, "ls-files", "-z")[1]:
        raise UserError(
            f"{repo.path} has staged files but no commit yet",
            f"Finish it: git -C '{repo.path}' commit",
        )
    exclude(repo, excludes)
    index = repo.git_dir / "placet-index"
    for left in (index, index.with_name("placet-index.lock")):
        left.unlink(missing_ok=True)
    place = with_env(neutral(place), {"GIT_INDEX_FILE": str(index)})
    run_git(place, "read-tree", "--empty")
    _, found, _ = read_status(place)
    found = [change for change in found if not change.path.startswith(f"{INIT_FOLDER}/")]
    tree = (
        stage(place, found, may_vanish=True)
        if allowance is None
        else _stage_within(repo, place, found, excludes, allowance)
    )
    sha = write_commit(place, tree, (), message, author, when)
    update_ref(place, "HEAD", sha, "0" * len(sha))
    _put_index(repo)
    return sha


def _stage_within(
    repo: Repo,
    place: GitDir,
    found: Sequence[FileChange],
    excludes: Sequence[str],
    allowance: Allowance,
) -> str:
    """Stage a vault's files in batches, into few packs; return the tree.

    Raises TooMuch before anything is stored.
    """
    kept, _ = split_by_size(repo.path, [change.path for change in found])
    total = sum(kept.values())
    if total > allowance.max_bytes or (
        allowance.max_files is not None and len(kept) > allowance.max_files
    ):
        raise TooMuch(history_size(repo.path, kept, excludes))
    found = without_large(repo, found)
    allowance.say(
        f"A history (git) of the vault begins, in {repo.path / '.git'}: "
        f"{counted(len(found), 'file')}, {megabytes(total)}."
    )
    batch, size, done, logged_s = list[FileChange](), 0, 0, time.monotonic()
    for number, change in enumerate(found, 1):
        batch.append(change)
        size += kept.get(change.path, 0)
        if size >= max(_BATCH_BYTES, total // 50) or number == len(found):
            # git would otherwise write and flush each file separately. With this threshold it
            # treats all as large, so a batch goes into one pack with one flush. The next call
            # retries and reports files that git cannot add.
            stage_possible(place, batch, config=("core.bigFileThreshold=1",))
            done, batch, size = done + size, [], 0
            if time.monotonic() - logged_s >= _SAY_EVERY_S and number < len(found):
                logged_s = time.monotonic()
                allowance.say(
                    f"The vault's history: {number:,} of {counted(len(found), 'file')}, "
                    f"{done / 1e6:.1f} of {megabytes(total)}."
                )
    return stage(place, [])


def _put_index(repo: Repo) -> None:
    """Install the first commit's index if an earlier call was killed before it could."""
    made, index = repo.git_dir / "placet-index", repo.git_dir / "index"
    if made.exists() and not index.exists():
        made.rename(index)
    made.unlink(missing_ok=True)
