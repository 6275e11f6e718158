"""Test that a daemon pushes each commit once, and deletes what nobody needs in batches."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gitkit import git, make_repo
from placet.git.repository import open_repo
from placet_team import remote_refs
from placet_team.git_fetching import BASE, WORK, push
from placet_team.git_refs import bare_repo_at
from placet_team.remote_refs import BASE_UNUSED_S, RemoteRefs, refs_of_remote
from vaultkit import until


@pytest.fixture
def remote(tmp_path: Path) -> RemoteRefs:
    path = bare_repo_at(tmp_path / "work.git", sha256=False).path
    return refs_of_remote(tmp_path / "vault", str(path))


def names(remote: RemoteRefs) -> list[str]:
    return git(Path(remote.url), "for-each-ref", "--format=%(refname)").split()


def test_cases_share_one_push_of_commit(
    tmp_path: Path, remote: RemoteRefs, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, pushed = make_repo(tmp_path / "code"), list[str]()

    def counted(*given: Any) -> None:
        pushed.extend(given[2])
        push(*given)

    monkeypatch.setattr(remote_refs, "push", counted)
    head = git(code, "rev-parse", "HEAD")
    with ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(remote.send, open_repo(code), [head]) for _ in range(4)]:
            one.result()
    assert pushed == names(remote) == [f"{remote.bases}{head}"]
    remote.forget()
    remote.send(open_repo(code), [head])
    assert len(pushed) == 2


def test_vaults_do_not_share_bases(tmp_path: Path, remote: RemoteRefs) -> None:
    other = refs_of_remote(tmp_path / "other", remote.url)
    assert other.bases != remote.bases
    assert refs_of_remote(tmp_path / "vault", remote.url) is remote


def test_ended_work_is_deleted_in_one_batch(
    tmp_path: Path, remote: RemoteRefs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_refs, "CLEAR_AFTER_S", 0.3)
    code, asked = make_repo(tmp_path / "code"), list[Collection[str]]()
    head = git(code, "rev-parse", "HEAD")
    work = [f"{WORK}{trace}/7/{head}" for trace in ("one", "two", "three")]
    push(open_repo(code), remote.url, dict.fromkeys(work, head))
    remote.send(open_repo(code), [head])

    def ended(trace_ids: Collection[str]) -> Collection[str]:
        asked.append(trace_ids)
        return {"one", "two"}

    for _ in range(3):
        remote.clear_later(ended, lambda: False, is_sha256=False)
    until(lambda: names(remote) == [f"{remote.bases}{head}", work[2]], "one batch", 30)
    assert asked == [{"one", "two", "three"}]


def test_unused_bases_are_deleted_but_the_newest(tmp_path: Path, remote: RemoteRefs) -> None:
    code = make_repo(tmp_path / "code")
    commits = [git(code, "rev-parse", "HEAD")]
    for _ in range(2):
        git(code, "commit", "-q", "--allow-empty", "-m", "More")
        commits.append(git(code, "rev-parse", "HEAD"))
    other = f"{BASE}other/{commits[0]}"
    push(open_repo(code), remote.url, {other: commits[0]})
    for one in commits:
        remote.send(open_repo(code), [one])
        remote.used[one] -= BASE_UNUSED_S + 1
    remote.send(open_repo(code), commits[:1])

    def left() -> list[str]:
        gone = {remote.bases: remote._unused}
        remote_refs.remove(remote.url, gone, sha256=False)
        return sorted(names(remote))

    assert left() == sorted([other, f"{remote.bases}{commits[0]}"])
    remote.used[commits[0]] -= BASE_UNUSED_S + 1
    assert left() == sorted([other, f"{remote.bases}{commits[0]}"])
