"""Portals, and what a person does with the branches that missions leave."""

from __future__ import annotations

import json
import shutil
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gitkit import commit_all, fingerprint, git, make_repo, settle_home, write
from placet import branches
from placet.aftermath import look_after, tidy
from placet.core.errors import UserError
from placet.core.portal import BEGIN, END, Card, how_to_test, languages, render_card
from placet.repo import add_worktree, open_repo
from placet.state import vault_state
from vaultkit import PLAN, TestVault, make_vault


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "home"


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    return make_vault(tmp_path)


# --- portals --------------------------------------------------------------------------------------------------


MINE = b"# mine\n[daemon]   # kept\nmissions_at_once = 1\n\n[portals.old]  # and this\npath = '~/old'\n\n[limits]\ntool_calls = 9\n"


def test_adding_and_removing_a_portal_leaves_every_other_byte(vault: TestVault, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    before = fingerprint(repo)
    config = vault.root / "System/placet.toml"
    config.write_bytes(MINE)
    assert vault.click("portal", "add", "code", str(repo)).stdout == f"{repo}\n"
    after = config.read_bytes()
    assert tomllib.loads(after.decode())["portals"] == {"old": {"path": "~/old"}, "code": {"path": str(repo)}}
    added = [line for line in after.splitlines() if line not in MINE.splitlines()]
    assert added == [b"[portals.code]", f'path = "{repo}"'.encode()]
    assert [line for line in after.splitlines() if line and line not in added] == [line for line in MINE.splitlines() if line]
    vault.click("portal", "remove", "code")
    assert config.read_bytes().replace(b"\n\n", b"\n") == MINE.replace(b"\n\n", b"\n")
    assert (vault.root / "Knowledge/Portals/code.md").exists()
    assert fingerprint(repo) == before


@pytest.mark.parametrize("text", ["", "[vault]\nfrontmatter = 'yaml'", "portals = {}\n", "[portals]\n", "# end\n"])
def test_a_portal_can_be_added_to_any_configuration(vault: TestVault, tmp_path: Path, text: str) -> None:
    repo = make_repo(tmp_path / "repo")
    vault.configure(text)
    vault.click("portal", "add", "code", str(repo))
    assert json.loads(vault.click("portal", "list", "--json").stdout)[0]["folder"] == str(repo)
    vault.click("portal", "remove", "code")
    assert json.loads(vault.click("portal", "list", "--json").stdout) == []


def test_paths_are_kept_as_a_person_means_them(vault: TestVault, tmp_path: Path, home: Path) -> None:
    make_repo(home / "work")
    make_repo(vault.root / "inner")
    make_repo(tmp_path / "beside")
    for name, given, written in (("a", "~/work", "~/work"), ("b", "inner", "inner"), ("c", "../beside", str(tmp_path / "beside"))):
        assert vault.click("portal", "add", name, given).stdout == f"{written}\n"  # the vault's root is the folder we are in
    found = {line["name"]: line for line in json.loads(vault.click("portal", "check", "--json").stdout)}
    assert [found[n]["problem"] for n in "abc"] == ["", "", ""]
    assert found["a"]["folder"] == str(home / "work")


def test_what_cannot_be_a_portal_is_refused_before_anything_is_written(vault: TestVault, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", {"sub/a.txt": "a\n"})
    before, config = fingerprint(repo), (vault.root / "System/placet.toml").read_bytes()
    for name, path, said in (("a b", str(repo), "cannot be a portal's name"), ("x", str(tmp_path / "none"), "is not a folder"),
                             ("x", str(repo / "sub"), "lies inside the one at")):
        done = vault.click("portal", "add", name, path, check=False)
        assert done.returncode == 2
        assert said in done.stderr
    assert vault.click("portal", "remove", "x", check=False).returncode == 2
    assert (vault.root / "System/placet.toml").read_bytes() == config
    assert fingerprint(repo) == before


def test_the_check_finds_what_is_wrong_and_what_is_odd(vault: TestVault, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", {"a.bin": "x", ".gitattributes": "*.bin filter=lfs\n"})
    git(repo, "checkout", "-q", "--detach")
    vault.configure(f'[portals.code]\npath = "{repo}"\n[portals.gone]\npath = "{tmp_path}/gone"\n')
    done = vault.click("portal", "check", "--json", check=False)
    assert done.returncode == 1
    code, gone = json.loads(done.stdout)
    assert any("HEAD is detached" in note for note in code["notes"])
    assert any("git LFS" in note for note in code["notes"])
    assert "not a folder" in gone["problem"]
    assert vault.click("portal", "check", "code").stdout


def test_the_card_says_what_an_agent_must_know_and_keeps_a_persons_words(vault: TestVault, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", {"a.py": "", "b.py": "", "c.js": "", "Makefile": "all:\ntest: all\n\ttrue\n",
                                         "pyproject.toml": "[tool.pytest.ini_options]\n"})
    vault.click("portal", "add", "code", str(repo))
    card = vault.root / "Knowledge/Portals/code.md"
    text = card.read_text()
    for piece in (f"Repository: `{repo}`", "Default branch: `main`", "Python (2 files), JavaScript (1 file)",
                  "How to test: `python -m pytest`, `make test`"):
        assert piece in text
    card.write_bytes(b"Above, mine.\r\n" + text.encode() + b"Below, mine: \xff\n")
    write(repo, {"d.go": "", "go.mod": ""})
    commit_all(repo, "More")
    vault.click("portal", "check")
    after = card.read_bytes()
    assert b"Go (1 file)" in after
    assert b"`go test ./...`" in after
    assert after.startswith(b"Above, mine.\r\n# Portal code")
    assert after.endswith(b"goes here.\nBelow, mine: \xff\n")
    vault.click("portal", "check")
    assert card.read_bytes() == after


def test_a_card_whose_marks_are_gone_is_all_the_persons() -> None:
    card = Card("x", "/r", "main", (), ())
    assert render_card(card, "Mine only.\n").startswith("Mine only.\n\n" + BEGIN)
    turned = f"{END}\nmine\n{BEGIN}\n"
    assert render_card(card, turned).startswith(turned)
    hostile = render_card(Card("x", "/r", "a`b\u202e", (), ()), None)
    assert "`a'b\\u202e`" in hostile


@pytest.mark.parametrize(("files", "commands"), [
    ({"package.json": b'{"scripts": {"test": "jest"}}', "yarn.lock": b""}, ("yarn test",)),
    ({"package.json": b'{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, ()),
    ({"package.json": b"[]"}, ()), ({"package.json": b"\xff"}, ()), ({"pyproject.toml": b"["}, ()),
    ({"tests/test_a.py": b""}, ("python -m unittest",)),
    ({"tests/test_a.py": b"", "pyproject.toml": b'[project]\ndependencies = ["pytest"]\n'}, ("python -m pytest",)),
    ({"Makefile": b"test := 1\n"}, ()), ({"sub/Cargo.toml": b""}, ()),
    ({"Cargo.toml": b"", "justfile": b"check:\n"}, ("cargo test", "just check")),
])
def test_how_a_repository_is_tested_is_read_from_its_files(files: dict[str, bytes], commands: tuple[str, ...]) -> None:
    assert how_to_test(list(files), lambda path: files[path]) == commands


def test_languages_are_counted_by_extension() -> None:
    assert languages(["a.PY", "b.py", "c.rs", "Makefile", "x.unknown"]) == (("Python", 2), ("Rust", 1))


# --- after a mission ------------------------------------------------------------------------------------------


FILES = {"a.txt": "".join(f"{n}\n" for n in range(20)), ".gitignore": "*.log\n"}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path / "repo", FILES)


@pytest.fixture(scope="module")
def once_done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in whose `kept` all of `here` is as it was after the mission, and the mission's branch."""
    folder = tmp_path_factory.mktemp("done")
    here = folder / "here"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settle_home(folder / "home").items():
            patch.setenv(name, value)
        branch = mission(make_vault(here), make_repo(here / "repo", FILES))
    shutil.copytree(here, folder / "kept", symlinks=True)
    return folder, branch


@pytest.fixture
def done(once_done: tuple[Path, str]) -> tuple[TestVault, Path, str]:
    """A vault, a repository, and the branch of a mission that wrote two files in two steps."""
    folder, branch = once_done
    here = folder / "here"
    shutil.rmtree(here)
    shutil.copytree(folder / "kept", here, symlinks=True)
    return TestVault(here / "vault", here / "state"), here / "repo", branch


def mission(vault: TestVault, repo: Path, more: str = "") -> str:
    vault.configure(more + f'[commands]\nsandbox = "none"\n[portals.code]\npath = "{repo}"\n')
    steps = [{"title": f"Step {n}", "actions": [{"tool": "write_file", "params": {"path": f"{n}.txt", "content": f"{n}\n"}}]}
             for n in ("one", "two")]
    vault.script(("plan", [{"calls": [("submit_plan", {**PLAN, "steps": steps, "scope": {"write": ["*.txt"]}})]}]))
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    vault.approve()
    vault.here()
    return str(vault.rows("execution.completed")[-1]["metadata"]["branch"])


def test_the_report_says_how_the_branch_lies_and_what_was_not_seen(vault: TestVault, repo: Path) -> None:
    (repo / "unfinished.txt").write_text("mine")
    git(repo, "config", "commit.gpgSign", "true")
    (repo / ".git/hooks/pre-commit").write_text("#!/bin/sh\nexit 1\n")
    before = fingerprint(repo)
    branch = mission(vault, repo)
    assert fingerprint(repo) == before
    text = vault.reports()[0].read_text()
    for piece in ("It is 2 commits ahead of `main`.\n", "It merges into `main` without conflicts.", "placet merge say-hello",
                  f"gh pr create --base main --head {branch} --fill", "placet drop say-hello --reason",
                  "did not see: `unfinished.txt`.", "Your commits are signed; placet's are not.", "Your git hooks did not run"):
        assert piece in text, piece


def test_the_preview_finds_conflicts_with_work_done_meanwhile(done: tuple[TestVault, Path, str]) -> None:
    _, repo, branch = done
    write(repo, {"one.txt": "another\n"})
    commit_all(repo, "Meanwhile")
    before = fingerprint(repo)
    after = look_after(open_repo(repo), branch)
    assert (after.into, after.ahead, after.behind, after.conflicts) == ("main", 2, 1, ("one.txt",))
    assert fingerprint(repo) == before


# --- what became of it ----------------------------------------------------------------------------------------


def _squash(repo: Path, branch: str) -> None:
    git(repo, "merge", "-q", "--squash", branch)
    git(repo, "commit", "-q", "-m", "In my own words")


def _squash_with_changes(repo: Path, branch: str) -> None:
    """As a forge does: the messages of the commits are in the new one's; and a person changed a line."""
    git(repo, "merge", "-q", "--squash", branch)
    write(repo, {"one.txt": "1, by hand\n"})
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", git(repo, "log", "-1", "--format=%B", branch))


def _rebase(repo: Path, branch: str) -> None:
    git(repo, "rebase", "-q", "main", branch)
    git(repo, "checkout", "-q", "main")
    git(repo, "merge", "-q", "--ff-only", branch)


def _pick(repo: Path, branch: str) -> None:
    git(repo, "cherry-pick", f"main..{branch}")


def _pull_request(repo: Path, branch: str) -> None:
    """Merged elsewhere, fetched, the branch deleted in both places."""
    hub = repo.parent / "hub"
    git(repo.parent, "clone", "-q", str(repo), str(hub))
    git(hub, "merge", "-q", "--no-ff", "-m", "Merge pull request", f"origin/{branch}")
    git(repo, "remote", "add", "origin", str(hub))
    git(repo, "fetch", "-q", "origin", "main")


MERGES = {
    "merge": lambda repo, branch: git(repo, "merge", "-q", "--no-ff", "--no-edit", branch),
    "fast-forward": lambda repo, branch: git(repo, "merge", "-q", "--ff-only", branch),
    "squash": _squash, "squash with changes": _squash_with_changes, "rebase": _rebase, "cherry-pick": _pick,
    "pull request": _pull_request,
}


def row_of(vault: TestVault) -> dict[str, object]:
    rows = [row for row in vault.rows() if row["action_type"].startswith("pr.")]
    assert len(rows) == 1, [row["action_type"] for row in rows]
    assert rows[0]["actor"] == "human"
    assert rows[0]["metadata"]["reviewed_by"]
    return {"action": rows[0]["action_type"], **rows[0]["metadata"]}


@pytest.mark.parametrize("way", sorted(MERGES))
@pytest.mark.parametrize("delete", [False, True], ids=["kept", "deleted"])
def test_a_merge_is_seen_whichever_way_it_was_made(done: tuple[TestVault, Path, str], way: str, delete: bool) -> None:
    vault, repo, branch = done
    if way != "fast-forward":
        write(repo, {"other.txt": "meanwhile\n"})
        commit_all(repo, "Meanwhile")
    MERGES[way](repo, branch)
    brought = git(repo, "rev-parse", "origin/main" if way == "pull request" else "main")
    write(repo, {"later.txt": "later\n"})
    commit_all(repo, "Later")
    if delete:
        git(repo, "branch", "-q", "-D", branch)
        if way != "squash":  # in a person's own words only the changes themselves tell, so git must still have them
            git(repo, "reflog", "expire", "--expire=now", "--all")
            git(repo, "gc", "-q", "--prune=now")
    before = fingerprint(repo)
    vault.here()  # it happened while no daemon ran
    found = row_of(vault)
    assert (found["action"], found["commit_sha"]) == ("pr.merged", brought)
    vault.here()
    row_of(vault)
    text = vault.reports()[0].read_text()
    assert "became: merged\n" in text
    assert brought in text
    assert fingerprint(repo) == before


def test_what_is_neither_merged_nor_gone_stays_open(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    vault.here()
    git(repo, "cherry-pick", f"{branch}~1")  # one of two
    vault.here()
    git(repo, "branch", "-m", branch, "mine")  # renamed: still there
    vault.here()
    assert not [a for a in vault.actions() if a.startswith("pr.")]
    git(repo, "branch", "-q", "-D", "mine")
    vault.here()
    assert row_of(vault)["action"] == "pr.rejected"


def test_a_deleted_branch_is_a_rejection_with_the_reason_in_its_report(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    report = vault.reports()[0]
    report.write_text(report.read_text().replace("status: completed\n", "status: completed\ndropped_reason: Not what I meant\n"))
    git(repo, "branch", "-q", "-D", branch)
    before = fingerprint(repo)
    vault.here()
    found = row_of(vault)
    assert (found["action"], found["reason"], found["branch"]) == ("pr.rejected", "Not what I meant", branch)
    assert "became: dropped\n" in report.read_text()
    assert fingerprint(repo) == before
    for command in ("status", "show"):
        said = vault.cli(command, *(["say-hello"] if command == "show" else [])).stdout
        assert f"{branch}, dropped" in said


def test_a_repository_that_is_away_settles_nothing(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, _ = done
    away = repo.rename(repo.parent / "away")
    assert any("is not there" in line for line in vault.here())
    away.rename(repo)
    vault.here()
    assert not [a for a in vault.actions() if a.startswith("pr.")]


# --- a person's own hand --------------------------------------------------------------------------------------


def yes(_question: str) -> bool:
    return True


def test_looking_and_merging(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    (repo / "mine.txt").write_text("untracked\n")
    marker = repo.parent / "executed"
    for name in ("pre-merge-commit", "commit-msg", "prepare-commit-msg", "post-merge", "post-checkout", "reference-transaction"):
        (repo / ".git/hooks" / name).write_text(f"#!/bin/sh\ntouch {marker}\n")
        (repo / ".git/hooks" / name).chmod(0o755)
    git(repo, "config", "branch.main.mergeOptions", "--squash -s ours")
    git(repo, "config", "merge.x.driver", f"touch {marker}")
    git(repo, "config", "core.fsmonitor", f"touch {marker};")
    before = fingerprint(repo)
    assert "+one\n" in branches.diff(vault.root, vault.env, "say-hello")
    assert fingerprint(repo) == before
    sha, onto = branches.merge(vault.root, vault.env, "say-hello", here=False)
    git(repo, "config", "--unset", "core.fsmonitor")
    assert (onto, sha) == ("main", git(repo, "rev-parse", "HEAD"))
    assert git(repo, "log", "-1", "--format=%P").split()[1] == git(repo, "rev-parse", branch)
    assert git(repo, "log", "-1", "--format=%an %(trailers:key=Placet-Trace,valueonly)").startswith("Ann Person ")
    assert git(repo, "status", "--porcelain") == "?? mine.txt"
    assert (repo / "one.txt").read_text() == "one\n"
    assert not marker.exists()
    with pytest.raises(UserError, match=r"has feat/.* already"):
        branches.merge(vault.root, vault.env, "say-hello", here=False)
    vault.here()
    assert row_of(vault)["commit_sha"] == sha
    with pytest.raises(UserError, match="Nothing was changed"):
        branches.undo(vault.root, vault.env, "say-hello", lambda _: False)
    branches.undo(vault.root, vault.env, "say-hello", yes)
    assert git(repo, "rev-parse", "HEAD^") == sha
    assert not (repo / "one.txt").exists()
    assert git(repo, "status", "--porcelain") == "?? mine.txt"
    assert not marker.exists()
    with pytest.raises(UserError, match="taken back already"):
        branches.undo(vault.root, vault.env, "say-hello", yes)
    assert git(repo, "status", "--porcelain") == "?? mine.txt"


def test_a_merge_that_is_not_safe_is_refused_and_changes_nothing(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done

    def refused(why: str) -> None:
        before = fingerprint(repo)
        with pytest.raises(UserError, match=why):
            branches.merge(vault.root, vault.env, "say-hello", here=False)
        assert fingerprint(repo) == before

    (repo / "a.txt").write_text("changed\n")
    refused("uncommitted changes: 'a.txt'")
    git(repo, "checkout", "-q", "a.txt")
    (repo / "one.txt").write_text("mine\n")
    refused("one.txt is in the way")
    (repo / ".git/info/exclude").write_text("one.txt\n")
    refused("one.txt is in the way")  # git would write over an ignored file without a word
    (repo / "one.txt").unlink()
    (repo / ".git/info/exclude").unlink()
    git(repo, "checkout", "-q", "--detach")
    refused("HEAD is detached")
    git(repo, "checkout", "-q", "-b", "other")
    refused("is on other, not on main")
    git(repo, "checkout", "-q", "main")
    (repo / ".git/index.lock").touch()
    refused("index.lock")
    (repo / ".git/index.lock").unlink()
    (repo / ".git/MERGE_HEAD").write_text(git(repo, "rev-parse", branch) + "\n")
    refused("A merge is in progress")
    (repo / ".git/MERGE_HEAD").unlink()
    write(repo, {"one.txt": "another\n"})
    commit_all(repo, "Meanwhile")
    aborted = {"ORIG_HEAD": None, "index": None, "logs/HEAD": None}  # what `git merge --abort` leaves a trace in
    before = {**fingerprint(repo), **aborted}
    with pytest.raises(UserError, match=r"conflicts in: one\.txt"):
        branches.merge(vault.root, vault.env, "say-hello", here=False)
    assert {**fingerprint(repo), **aborted} == before
    assert git(repo, "status", "--porcelain") == ""
    write(repo, {".gitattributes": "*.bin filter=lfs\n"})
    commit_all(repo, "Large files")
    refused("pass through a filter")


@pytest.mark.parametrize("way", ["fast-forward", "squash", "cherry-pick"])
def test_undo_takes_back_what_was_merged_another_way_by_one_commit(done: tuple[TestVault, Path, str], way: str) -> None:
    vault, repo, branch = done
    if way != "fast-forward":
        write(repo, {"other.txt": "meanwhile\n"})
        commit_all(repo, "Meanwhile")
    files = git(repo, "rev-parse", "HEAD^{tree}")
    MERGES[way](repo, branch)
    merged = git(repo, "rev-parse", "HEAD")
    branches.undo(vault.root, vault.env, "say-hello", yes)
    assert git(repo, "rev-parse", "HEAD^{tree}", "HEAD^").splitlines() == [files, merged]
    assert git(repo, "status", "--porcelain") == ""
    assert not (repo / ".git/REVERT_HEAD").exists()
    assert not (repo / ".git/sequencer").exists()


def test_an_undo_that_conflicts_leaves_the_checkout_as_it_was(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    MERGES["fast-forward"](repo, branch)
    write(repo, {"one.txt": "changed since\n"})
    commit_all(repo, "Since")
    before = {**fingerprint(repo), "index": None}
    with pytest.raises(UserError, match=r"conflicts in: one\.txt"):
        branches.undo(vault.root, vault.env, "say-hello", yes)
    assert {**fingerprint(repo), "index": None} == before
    assert git(repo, "status", "--porcelain") == ""


def test_dropping_keeps_the_commits_and_the_reason(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    tip = git(repo, "rev-parse", branch)
    git(repo, "checkout", "-q", branch)
    with pytest.raises(UserError, match="checked out"):
        branches.drop(vault.root, vault.env, "say-hello", "Never mind")
    assert "Never mind" not in vault.reports()[0].read_text()
    git(repo, "checkout", "-q", "main")
    before = fingerprint(repo)
    kept = branches.drop(vault.root, vault.env, "say-hello", "No: not that")
    assert fingerprint(repo) == before
    assert git(repo, "rev-parse", kept) == tip
    assert git(repo, "branch", "--list", "feat/*") == ""
    vault.here()
    assert (row_of(vault)["action"], row_of(vault)["reason"]) == ("pr.rejected", "No: not that")
    with pytest.raises(UserError, match="dropped already"):
        branches.undo(vault.root, vault.env, "say-hello", yes)


def test_undo_of_an_open_branch_drops_it(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    before = fingerprint(repo)
    assert vault.click("undo", "say-hello", stdin="n\n", check=False).returncode == 1
    assert branch in git(repo, "branch", "--list", "feat/*")
    vault.click("undo", "say-hello", "--yes")
    assert git(repo, "branch", "--list", "feat/*") == ""
    assert fingerprint(repo) == before


# --- on the record --------------------------------------------------------------------------------------------


def test_every_git_process_is_in_the_journal_and_not_in_peoples_way(done: tuple[TestVault, Path, str]) -> None:
    vault, _, _ = done
    rows = [row for row in vault.rows("git.ran") if row["trace_id"]]
    told = [row["metadata"] for row in rows]
    assert {"status", "commit-tree", "update-ref"} <= {data["operation"] for data in told}
    assert all(data.keys() == {"operation", "exit", "duration_ms"} and data["duration_ms"] > 0 for data in told)
    assert {row["trace_id"] for row in rows} == {vault.rows("plan.created")[0]["trace_id"]}
    assert "git.ran" not in vault.click("journal").stdout


def test_a_git_that_refuses_is_in_the_journal_with_what_it_said(vault: TestVault, repo: Path) -> None:
    blob = git(repo, "rev-parse", "HEAD:a.txt")
    (repo / ".git/objects" / blob[:2] / blob[2:]).unlink()
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}]))
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    (failed,) = [row["metadata"] for row in vault.rows("git.ran") if "stderr" in row["metadata"]]
    assert failed["command"][:2] == ["git", "read-tree"]
    assert blob in failed["stderr"]
    assert failed["exit"] == 128
    assert "git.ran" in vault.click("journal").stdout


# --- who did it, and where ------------------------------------------------------------------------------------


def test_a_commit_names_agent_and_model_after_the_trailers_that_were_there(done: tuple[TestVault, Path, str]) -> None:
    _, repo, branch = done
    message = git(repo, "log", "-1", "--format=%B", branch)
    trailers = git(repo, "interpret-trailers", "--parse", stdin=message.encode()).splitlines()
    assert [line.partition(":")[0] for line in trailers] == ["Placet-Trace", "Placet-Plan", "Approved-By", "Co-authored-by"]
    assert trailers[-1] == "Co-authored-by: default (test) <bot@placet.local>"


@pytest.mark.parametrize("last", [False, True], ids=["at a step", "at the end"])
def test_a_change_of_how_git_behaves_stops_the_mission(vault: TestVault, repo: Path, last: bool) -> None:
    vault.configure(f'[commands]\nsandbox = "none"\n[portals.code]\npath = "{repo}"\n')
    plan = {**PLAN, "scope": {"write": ["*.txt"], "run": ["python3 t.py"]},
            "steps": [{"title": "Do it", "tools": ["write_file", "run_command"]}]}
    step = [] if last else [("complete_step", {"step": 1, "summary": "Hello"})]
    write(repo, {"t.py": f"with open({str(repo / '.git/config')!r}, 'a') as file: file.write('[alias] x = !true\\n')\n"})
    commit_all(repo, "A test that does more than to test")
    vault.script(("plan", [{"calls": [("submit_plan", plan)]}]), ("execute", [
        {"calls": [("write_file", {"path": "hello.txt", "content": "hello\n"})]},
        {"calls": [("run_command", {"command": "python3", "args": ["t.py"]})]},
        {"calls": [*step, ("finish", {"summary": "Done."})]}]))
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    vault.approve()
    with pytest.raises(AssertionError, match=r"was touched: \['config'\]"):  # every test would notice
        vault.here()
    failed = vault.rows("execution.failed")[0]["metadata"]
    assert (failed["reason"], failed["error_type"]) == ("repository", "RepositoryChanged")
    assert "configuration" in vault.reports()[0].read_text()
    assert git(repo, "show", f"{failed['kept']}:hello.txt") == "hello"
    assert git(repo, "branch", "--list", "feat/*") == ""


def test_references_go_only_where_a_branch_has_what_they_keep(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, branch = done
    worktrees = vault_state(vault.root, vault.env).worktrees
    opened = open_repo(repo)
    base, tip = git(repo, "rev-parse", "main"), git(repo, "rev-parse", branch)
    alone = git(repo, "commit-tree", "-p", base, "-m", "Nowhere else", f"{base}^{{tree}}")
    for name, sha in (("ckpt/aaaaaaaa-1", tip), ("failed/x-bbbbbbbb-1", alone), ("ckpt/cccccccc-1", base), ("left/y", base)):
        git(repo, "update-ref", f"refs/placet/{name}", sha)
    left = add_worktree(opened, worktrees / "deadbeef-1", "feat/left-deadbeef", base)
    (left.path / "half.txt").write_text("half\n")
    before = fingerprint(repo)
    now = datetime.now(UTC)
    assert tidy(opened, worktrees, {"cccccccc"}, now - timedelta(days=1), now) == []
    soon = now + timedelta(minutes=1)
    assert tidy(opened, worktrees, {"cccccccc", "deadbeef"}, soon, soon) == ["refs/placet/ckpt/aaaaaaaa-1", "refs/placet/left/y"]
    assert tidy(opened, worktrees, {"cccccccc"}, soon, soon) == [str(left.path)]
    assert git(repo, "for-each-ref", "--format=%(refname)", "refs/placet").splitlines() == [
        "refs/placet/ckpt/cccccccc-1", "refs/placet/failed/x-bbbbbbbb-1", "refs/placet/left/deadbeef-1"]
    assert git(repo, "show", "refs/placet/left/deadbeef-1:half.txt") == "half"
    assert fingerprint(repo) == before


def test_a_mission_tidies_up_after_those_before_it(vault: TestVault, repo: Path) -> None:
    git(repo, "update-ref", "refs/placet/ckpt/aaaaaaaa-1", "main")
    mission(vault, repo, "[daemon]\ntidy_after_days = 0\n")
    assert vault.rows("git.tidied")[0]["metadata"]["gone"] == ["refs/placet/ckpt/aaaaaaaa-1"]
    assert git(repo, "for-each-ref", "refs/placet") == ""


def test_doctor_removes_what_a_crash_left_and_keeps_its_work(done: tuple[TestVault, Path, str]) -> None:
    vault, repo, _ = done
    state = vault_state(vault.root, vault.env)
    worked = add_worktree(open_repo(repo), state.worktrees / "deadbeef-1", "feat/left-deadbeef", git(repo, "rev-parse", "HEAD"))
    add_worktree(open_repo(repo), state.worktrees / "deadbee0-1", "", git(repo, "rev-parse", "HEAD"))
    (worked.path / "half.txt").write_text("half\n")
    (state.worktrees / "strange").mkdir()
    before = fingerprint(repo)
    said = vault.click("doctor", "--fix", check=False).stderr
    assert "its work is kept at refs/placet/left/deadbeef-1" in said
    assert "it had no work in it" in said
    assert "strange is left as it is: it belongs to no repository" in said
    assert git(repo, "show", "refs/placet/left/deadbeef-1:half.txt") == "half"
    assert sorted(p.name for p in state.worktrees.iterdir() if p.is_dir()) == ["strange"]
    assert git(repo, "worktree", "list").count("\n") == 0
    assert fingerprint(repo) == before
