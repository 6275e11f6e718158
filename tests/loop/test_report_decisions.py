"""Test that `decision` in a report merges or drops the mission's branch, or says why not."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from branchkit import FILES, hands, mission
from gitkit import git, make_repo, settle_home
from placet.loop import report_decisions
from placet.loop.take_over import Work, merge_work
from placet.note.frontmatter import read_note, stamp
from vaultkit import DONE, PLAN, TestVault, make_vault, meddling, vault_with_history


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A person's home, whose vault is changed because the person says so."""
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    with meddling():
        yield


def finished(vault: TestVault) -> Path:
    """Have a mission of the vault done; return its report."""
    vault.drop("Say hello.\n")
    vault.here()
    vault.approve()
    vault.here()
    return vault.reports()[0]


@pytest.fixture(scope="module")
def once_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settle_home(folder / "home").items():
            patch.setenv(name, value)
        finished(vault_with_history(folder / "here"))
    shutil.copytree(folder / "here", folder / "kept", symlinks=True)
    return folder


@pytest.fixture
def done(once_done: Path) -> TestVault:
    """A vault after a mission that wrote `hello.txt`."""
    here = once_done / "here"
    shutil.rmtree(here)
    shutil.copytree(once_done / "kept", here, symlinks=True)
    return TestVault(here / "vault", here / "state")


def decide(vault: TestVault, **keys: str) -> None:
    report = vault.reports()[0]
    report.write_bytes(stamp(report.read_bytes(), keys))


def keys(vault: TestVault) -> dict[str, object]:
    return dict(read_note(vault.reports()[0].read_bytes()).meta)


def told(vault: TestVault) -> str:
    beside = vault.reports()[0].with_suffix(".placet.md")
    return " ".join(beside.read_text().split()) if beside.exists() else ""


def test_report_offers_decision_first(done: TestVault) -> None:
    text = done.reports()[0].read_text()
    assert text.startswith("---\ndecision:")
    assert "set `decision: merge` in the properties of this note" in text


def test_merge_in_report_merges(done: TestVault) -> None:
    assert not (done.root / "hello.txt").exists()
    decide(done, decision="Merge")
    done.here()
    assert (done.root / "hello.txt").read_text() == "hello\n"
    found = keys(done)
    assert (found["became"], found["decision"]) == ("merged", "")
    assert found["merged_as"] == git(done.root, "rev-parse", "HEAD")
    assert hands(done) == [("pr.merged", "someone who can write the vault", "property")]
    assert not told(done)


def test_drop_in_report_drops_with_reason(done: TestVault) -> None:
    branch = keys(done)["branch"]
    decide(done, decision="drop", dropped_reason="Not today")
    done.here()
    found = keys(done)
    assert (found["became"], found["decision"]) == ("dropped", "")
    assert done.rows("pr.rejected")[0]["metadata"]["reason"] == "Not today"
    assert hands(done)[0][2] == "property"
    refs = git(done.root, "for-each-ref", "--format=%(refname)")
    assert f"refs/heads/{branch}" not in refs
    assert "refs/placet/dropped/" in refs


def test_drop_in_report_needs_no_reason(done: TestVault) -> None:
    decide(done, decision="drop")
    done.here()
    assert keys(done)["became"] == "dropped"
    assert done.rows("pr.rejected")[0]["metadata"]["reason"] == ""


def test_conflict_is_told_next_to_report(done: TestVault) -> None:
    (done.root / "hello.txt").write_text("mine\n")
    decide(done, decision="merge")
    done.here()
    assert (done.root / "hello.txt").read_text() == "mine\n"
    assert "You and the mission both changed hello.txt" in told(done)
    found = keys(done)
    assert (found["decision"], found.get("became")) == ("", None)
    assert not hands(done)
    decide(done, decision="drop")
    done.here()
    assert keys(done)["became"] == "dropped"
    assert not told(done)


def test_unknown_decision_in_report_is_told(done: TestVault) -> None:
    decide(done, decision="approve")
    done.here()
    assert "`decision: approve` is neither `merge` nor `drop`." in told(done)
    assert keys(done)["decision"] == ""


def fails_its_check(vault: TestVault) -> None:
    """Have the next mission's planned command fail."""
    text = (vault.root / "System/placet.toml").read_text()
    vault.configure(text.replace("[commands]\n", '[commands]\nsandbox = "none"\n'))
    step = {**PLAN["steps"][0], "tools": ["write_file", "run_command"]}
    scope = {"write": ["hello.txt"], "run": ["false"]}
    calls = DONE[0]["calls"]
    vault.plays(
        {**PLAN, "steps": [step], "scope": scope},
        [("run_command", {"command": "false", "args": []})],
        calls[:2],
        calls[2:],
    )


def test_failed_check_needs_word_anyway(tmp_path: Path) -> None:
    vault = vault_with_history(tmp_path / "failed")
    fails_its_check(vault)
    report = finished(vault)
    asks = stamp(report.read_bytes(), {"decision": "merge"})
    for copy in (asks, asks + b"\nAn old copy with a remark\n"):
        report.write_bytes(copy)
        vault.here()
        assert "Nothing was merged." in told(vault)
        assert "set `decision: merge anyway` in the report" in told(vault)
        assert not (vault.root / "hello.txt").exists()
    decide(vault, decision="merge anyway")
    vault.here()
    assert (vault.root / "hello.txt").exists()
    assert hands(vault) == [("pr.merged", "someone who can write the vault", "property")]
    assert not told(vault)


def test_restart_merges_no_doubtful_work(tmp_path: Path) -> None:
    """No program can clear the decision: placet cannot edit a flow mapping."""
    vault = vault_with_history(tmp_path / "failed")
    fails_its_check(vault)
    report = finished(vault)
    of = {key: str(keys(vault)[key]) for key in ("trace_id", "branch", "commit")}
    said = ", ".join(f"{key}: {value!r}" for key, value in of.items())
    body = report.read_text().split("\n---\n", 1)[1]
    report.write_text(f"---\n{{decision: merge, {said}}}\n---\n{body}")
    for _ in range(2):
        vault.here()
        assert "`decision: merge anyway`" in told(vault)
        assert not (vault.root / "hello.txt").exists()


@pytest.mark.parametrize("word", ["merge", "drop"])
def test_old_report_leaves_newer_work(done: TestVault, word: str) -> None:
    """The retry's branch has the name that the dropped one had."""
    old, branch = done.reports()[0], str(keys(done)["branch"])
    decide(done, decision="drop")
    done.here()
    done.click("retry", "say-hello")
    done.here()
    done.approve()
    done.here()
    tip = git(done.root, "rev-parse", branch)
    assert tip != read_note(old.read_bytes()).meta["commit"]
    old.write_bytes(stamp(old.read_bytes(), {"decision": word}))
    done.here()
    assert "This work is dropped already" in old.with_suffix(".placet.md").read_text()
    assert git(done.root, "rev-parse", branch) == tip
    assert not (done.root / "hello.txt").exists()


@pytest.mark.parametrize("word", ["merge", "drop"])
def test_commits_after_report_are_refused(done: TestVault, word: str) -> None:
    branch = str(keys(done)["branch"])
    tip = git(done.root, "commit-tree", "-p", branch, "-m", "More", f"{branch}^{{tree}}")
    git(done.root, "update-ref", f"refs/heads/{branch}", tip)
    decide(done, decision=word)
    done.here()
    assert "has changed since this report." in told(done)
    assert "Look at it: placet diff say-hello" in told(done)
    assert git(done.root, "rev-parse", branch) == tip
    assert not (done.root / "hello.txt").exists()


@pytest.mark.parametrize("key", ["trace_id", "branch", "commit"])
def test_report_of_other_work_is_refused(done: TestVault, key: str) -> None:
    decide(done, decision="merge", **{key: "00000000-0000-4000-8000-000000000000"})
    done.here()
    assert "Put that report back." in told(done)
    assert not (done.root / "hello.txt").exists()


@pytest.mark.parametrize(("word", "becomes"), [("drop", "dropped"), ("", None)])
def test_changed_mind_counts_before_merge(
    done: TestVault, monkeypatch: pytest.MonkeyPatch, word: str, becomes: str | None
) -> None:
    """The merge waits for the lock of the repository while the person writes."""

    def wait(work: Work, **more: Any) -> None:
        decide(done, decision=word)
        merge_work(work, **more)

    monkeypatch.setattr(report_decisions, "merge_work", wait)
    decide(done, decision="merge")
    done.here()
    assert keys(done).get("became") == becomes
    assert not told(done)
    assert not (done.root / "hello.txt").exists()


def test_decision_waits_for_a_thread(done: TestVault, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = threading.Thread.start
    failures = [RuntimeError("can't start new thread")]

    def start(thread: threading.Thread) -> None:
        if thread.name == "take-over" and failures:
            raise failures.pop()
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    decide(done, decision="merge")
    said = done.here()
    assert any("can't start new thread" in line for line in said)
    assert keys(done)["became"] == "merged"


def test_long_decision_is_told_on_one_line(done: TestVault) -> None:
    raw = done.reports()[0].read_bytes()
    lines = b"|\n  merge\n  # Later\n  " + b"x" * 500
    done.reports()[0].write_bytes(raw.replace(b'decision: ""', b"decision: " + lines, 1))
    done.here()
    assert r"`decision: merge\n# Later\nxxx" in told(done)
    assert "x` is neither `merge` nor `drop`." in told(done)
    assert "x" * 100 not in told(done)


def test_report_of_portal_takes_no_decision(tmp_path: Path) -> None:
    vault, repo = make_vault(tmp_path), make_repo(tmp_path / "repo", FILES)
    branch = mission(vault, repo)
    assert "decision" not in keys(vault)
    decide(vault, decision="merge")
    vault.here()
    assert "This work is in the portal `code`." in told(vault)
    assert "Type: placet merge say-hello" in told(vault)
    assert not git(repo, "branch", "--merged", "main", "--list", branch)


def test_merge_by_killed_daemon_is_persons(done: TestVault) -> None:
    """The daemon was killed after git had merged, and before it recorded that."""
    branch = str(keys(done)["branch"])
    decide(done, decision="merge")
    git(done.root, "merge", "-q", "--no-ff", "--no-edit", branch)
    done.here()
    assert keys(done)["became"] == "merged"
    assert hands(done)[0][2] == "property"
    assert not told(done)
