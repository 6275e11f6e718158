"""A folder becomes a repository, with a first commit.

Of a vault only what is text, and so much of it.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath

from placet.core.errors import PlacetError, UserError
from placet.core.text.names import TEMP_PREFIX
from placet.core.wording import megabytes
from placet.disk import delete_tree
from placet.repo.repository import KEPT_MARK, identity, is_repository, open_repo, resolve
from placet.repo.runner import (
    Author,
    FileChange,
    OnCall,
    Place,
    Repo,
    neutral,
    place_of,
    run_git,
    text_of,
    with_env,
)
from placet.repo.staging import read_status, stage, stage_possible, update_ref, write_commit

_INIT_FOLDER = ".placet-init"

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

MAX_KEPT_BYTES = 1_000_000
"""A larger file of a vault is left out of its history too, whatever its name."""

_BATCH_BYTES = 8_000_000
_SAY_EVERY_S = 1.0


def attachment_patterns() -> list[str]:
    """Return what keeps attachments out as gitignore patterns, one a suffix, in capitals or not."""
    return [
        "*." + "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in suffix)
        for suffix in ATTACHMENTS
    ]


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


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of a first commit. `say` is told how far it is, once a second."""

    max_bytes: int
    max_files: int | None = None
    say: Callable[[str], None] = lambda _: None


class TooMuch(PlacetError):  # noqa: N818 - named for what is the case
    """A first commit would hold more than its allowance; nothing was begun."""

    def __init__(self, size: Size) -> None:
        super().__init__(
            f"{size.files} files with {size.bytes} bytes are too much for a first commit"
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

    The commit is the person's, as git is set there, where no `author` is given.

    `excludes` are gitignore patterns that go into `.git/info/exclude` and stay out of the commit. A
    repository that has commits is returned as it is. A new one is built aside (`.placet-init`) and
    put in place whole by one rename; so a killed call leaves either nothing or all of it, and the
    next call begins again. With `allowance` it is a vault's: large files are left out too, and the
    repository is marked as kept by placet (`is_kept`). Raises TooMuch where it is exceeded,
    UserError where there is a repository without a commit but with staged files: that commit is the
    person's to make.
    """
    top = path.resolve()
    if any("\n" in line for line in excludes):
        raise ValueError("a pattern to exclude is one line")
    building = top / _INIT_FOLDER
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
    """Make an empty repository in `building` whose work tree is `top`."""
    outside = Place(None, None, building, on_call)
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
    """Return what the history of a folder that has none would hold; nothing is written in it."""
    top = path.resolve()
    with tempfile.TemporaryDirectory(prefix="placet-") as folder:
        repo = _begin(top, Path(folder), None)
        exclude(repo, excludes)
        _, found, _ = read_status(neutral(Place(repo.git_dir, top, top, None)))
        return _size(top, _split(top, [change.path for change in found])[0], excludes)


def _split(top: Path, paths: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Return the bytes of each file that a history holds, and the paths of too large ones."""
    sizes: dict[str, int] = {}
    for path in paths:
        try:
            sizes[path] = (top / path).lstat().st_size
        except OSError:  # gone meanwhile: git sees that too
            continue
    large = [path for path, size in sizes.items() if size > MAX_KEPT_BYTES]
    return {path: size for path, size in sizes.items() if size <= MAX_KEPT_BYTES}, large


def _size(top: Path, kept: Mapping[str, int], excludes: Sequence[str]) -> Size:
    kinds: Counter[str] = Counter()
    for path, size in kept.items():
        kinds[PurePosixPath(path).suffix.lower() or "no suffix"] += size
    out = out_bytes = 0
    skipped = {".git", _INIT_FOLDER, *(line.rstrip("/") for line in excludes if line.endswith("/"))}
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
    """Add gitignore patterns to `.git/info/exclude`, those that are not in it yet."""
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
    """Return the changes of a vault without new files that are too large for a history.

    `.git/info/exclude` then names those. Notes that placet is writing just now are left out, too.
    """
    found = [
        change
        for change in found
        if change.status != "A" or not PurePosixPath(change.path).name.startswith(TEMP_PREFIX)
    ]
    new = [change.path for change in found if change.status == "A"]
    _, large = _split(repo.path, new)
    if large:
        exclude(repo, [_literal(path) for path in large])
    return [change for change in found if change.path not in large]


def _literal(path: str) -> str:
    """Return the gitignore pattern of one file, on one line."""
    return "/" + re.sub(r"([*?\[\\])", r"\\\1", path).replace("\n", "?").replace(" ", "\\ ")


def _first_commit(
    repo: Repo,
    excludes: Sequence[str],
    author: Author,
    message: str,
    when: datetime,
    allowance: Allowance | None,
) -> str:
    """Commit what is there as the repository's first commit, and return it."""
    place = Place(repo.git_dir, repo.path, repo.path, repo.on_call)
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
    found = [change for change in found if not change.path.startswith(f"{_INIT_FOLDER}/")]
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
    place: Place,
    found: Sequence[FileChange],
    excludes: Sequence[str],
    allowance: Allowance,
) -> str:
    """Stage a vault's files, a piece at a time, into few packs; return the tree.

    Raises TooMuch before anything is stored.
    """
    kept, _ = _split(repo.path, [change.path for change in found])
    total = sum(kept.values())
    if total > allowance.max_bytes or (
        allowance.max_files is not None and len(kept) > allowance.max_files
    ):
        raise TooMuch(_size(repo.path, kept, excludes))
    found = without_large(repo, found)
    allowance.say(
        f"A history (git) of the vault begins, in {repo.path / '.git'}: {len(found):,} files, "
        f"{megabytes(total)}."
    )
    batch, size, done, said = list[FileChange](), 0, 0, time.monotonic()
    for number, change in enumerate(found, 1):
        batch.append(change)
        size += kept.get(change.path, 0)
        if size >= max(_BATCH_BYTES, total // 50) or number == len(found):
            # Git would write each file into one of its own and flush it: what it takes for large
            # goes into one pack. the rest the next call tries, and tells
            stage_possible(place, batch, config=("core.bigFileThreshold=1",))
            done, batch, size = done + size, [], 0
            if time.monotonic() - said >= _SAY_EVERY_S and number < len(found):
                said = time.monotonic()
                allowance.say(
                    f"The vault's history: {number:,} of {len(found):,} files, "
                    f"{done / 1e6:.1f} of {megabytes(total)}."
                )
    return stage(place, [])


def _put_index(repo: Repo) -> None:
    """Give the first commit its index, where a call of ours was killed before it could."""
    made, index = repo.git_dir / "placet-index", repo.git_dir / "index"
    if made.exists() and not index.exists():
        made.rename(index)
    made.unlink(missing_ok=True)
