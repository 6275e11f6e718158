"""Test that git is asked about rules wherever one can exist, and only there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gitkit import git, make_repo
from placet.git import attributes as of_files
from placet.git import changes
from placet.git.repository import head, open_repo
from placet.git.worktree import Worktree, add_worktree

FILE = "a/b/c.dat"


@pytest.fixture
def tree(tmp_path: Path, home: Path) -> Callable[[], Worktree]:
    """Return a function that makes a worktree of the repository as it is then."""
    path = make_repo(tmp_path / "repo", {"x": "x\n"})

    def made() -> Worktree:
        repo = open_repo(path)
        return add_worktree(repo, tmp_path / "state/m", "feat/x", head(repo))

    return made


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


PLACES = ["tree", "a", "a/b", "info", "person", "setting", "link", "committed"]


@pytest.mark.parametrize("place", PLACES)
def test_rule_is_found_wherever_git_reads_it(
    tree: Callable[[], Worktree], tmp_path: Path, place: str
) -> None:
    repo = tmp_path / "repo"
    texts = {".gitignore": "# a comment\n*.dat\n", ".gitattributes": "*.dat filter=lfs eol=crlf\n"}
    if place == "committed":
        write(repo / ".gitattributes", texts[".gitattributes"])
        git(repo, "add", ".gitattributes")
        git(repo, "commit", "-qm", "Rules")
    if place == "setting":
        git(repo, "config", "core.excludesfile", str(tmp_path / "mine.gitignore"))
        git(repo, "config", "core.attributesfile", str(tmp_path / "mine.gitattributes"))
    wt = tree()
    for name, text in texts.items():
        match place:
            case "tree":
                write(wt.path / name, text)
            case "info":
                write(repo / ".git/info" / {".gitignore": "exclude"}.get(name, "attributes"), text)
            case "person":
                write(Path.home() / ".config/git" / name.removeprefix(".git"), text)
            case "setting":
                write(tmp_path / f"mine{name}", text)
            case "link":
                write(tmp_path / f"mine{name}", text)
                (wt.path / name).symlink_to(tmp_path / f"mine{name}")
            case "committed":
                (wt.path / name).unlink(missing_ok=True)
            case folder:
                write(wt.path / folder / name, text)
    write(wt.path / FILE, "x\n")
    ignores = git(wt.path, "check-ignore", FILE, check=False) != ""
    assert (FILE in changes.ignored(wt, [FILE])) is ignores
    assert ignores is (place not in ("link", "committed"))
    kinds = git(wt.path, "check-attr", "filter", "eol", "--", FILE).splitlines()
    known = of_files.attributes(wt, [FILE])[FILE]
    assert [known.filter or "unspecified", known.eol or "unspecified"] == [
        line.rpartition(" ")[2] for line in kinds
    ]
    assert (known.filter == "lfs") is (place != "link")


def test_submodule_is_found_in_any_index(tree: Callable[[], Worktree], tmp_path: Path) -> None:
    other = make_repo(tmp_path / "other", {"y": "y\n"})
    repo = tmp_path / "repo"
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "sub/mod")
    git(repo, "commit", "-qm", "Module")
    wt = tree()
    assert changes.submodules(wt) == ["sub/mod"]
    for version in ("4", "2"):
        git(wt.path, "update-index", "--index-version", version)
        assert changes.submodules(wt) == ["sub/mod"]
    (wt.git_dir / "index").unlink()
    assert changes.submodules(wt) == []


def test_git_is_not_asked_without_rules(
    tree: Callable[[], Worktree], monkeypatch: pytest.MonkeyPatch
) -> None:
    wt = tree()
    write(wt.path / FILE, "x\n")
    wt.repo.setting("core.excludesfile")  # read once for a repository
    for module in (changes, of_files):
        monkeypatch.setattr(module, "run_git", None)
    assert changes.ignored(wt, [FILE]) == {}
    assert of_files.attributes(wt, [FILE]) == {FILE: of_files.Attributes()}
    assert of_files.not_kept_here(wt, [FILE]) == {}
    assert of_files.found_in_modules(wt) == []
