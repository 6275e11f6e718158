"""Test how a team's commits travel by the git remote: push, fetch, check, clean up."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tests.search.test_team_faults import STEP, agent, plan
from tests.team.test_handover import SLOW

import pgkit
from gitkit import commit_all, git, make_repo, settle_home
from placet.agent.record import CHECKPOINT, Postponed, Record
from placet.chat.cancel import Cancel
from placet.disk.path_text import ALWAYS
from placet.errors import Interrupted
from placet.git.repository import open_repo, resolve
from placet.git.run import GitDir, GitError, place_of, run_git
from placet.host.clock import Clock
from placet.journal.writes import Write
from placet.loop.app import daemon
from placet_team import git_fetching
from placet_team.clones import PUSH_PATIENCE_S, PushCarrier, borrow
from placet_team.git_fetching import BASE, WORK, fetch, fetch_commits, push, redact_line, remove
from placet_team.git_refs import FETCHED, bare_repo_at
from placet_team.tables import PutRefs
from placet_team.work_item import Source
from placet_team.worker_setup import WorkerSettings
from remotekit import git_server
from teamkit import TestTeam, running_team
from vaultkit import make_vault, until

needs_server = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)


def bare(folder: Path) -> tuple[Path, Path]:
    """Make an empty work remote, and a person's repository."""
    remote = bare_repo_at(folder / "work.git", sha256=False).path
    return remote, make_repo(folder / "code", {"a.txt": "a\n"})


def tip(folder: Path) -> str:
    return git(folder, "rev-parse", "HEAD")


# --- git's part


def test_pushed_commit_is_fetched_only_once(tmp_path: Path) -> None:
    remote, code = bare(tmp_path)
    before = untouched(code)
    push(open_repo(code), str(remote), {f"{BASE}t/{tip(code)}": tip(code)})
    assert untouched(code) == before
    clone = bare_repo_at(tmp_path / "clone.git", sha256=False)
    fetch(clone, str(remote), [tip(code)])
    assert resolve(clone, tip(code))
    remote.rename(tmp_path / "away.git")
    fetch(clone, str(remote), [tip(code)])  # nobody is asked again


def untouched(code: Path) -> str:
    """Return what must stay as it is: references, configuration and files of a repository."""
    files = sorted(str(path) for path in code.rglob("*") if "objects" not in path.parts)
    return f"{git(code, 'for-each-ref')}{files}{(code / '.git/config').read_text()}"


def test_fetch_home_adds_commit_without_refs(tmp_path: Path) -> None:
    remote, code = bare(tmp_path)
    git(tmp_path, "clone", "-q", str(code), "other")
    news = tip(commit_all(tmp_path / "other", "News"))
    push(open_repo(tmp_path / "other"), str(remote), {f"{WORK}t/1/0-0": news})
    before = untouched(code)
    fetch_commits(open_repo(code), str(remote), [news], [tip(code)])
    assert git(code, "cat-file", "-t", news) == "commit"
    assert untouched(code) == before
    remote.rename(tmp_path / "away.git")
    fetch_commits(open_repo(code), str(remote), [news], [tip(code)])  # it is there


def test_fetch_home_refuses_malformed_commit(tmp_path: Path) -> None:
    remote, code = bare(tmp_path)
    raw = git(code, "cat-file", "commit", "HEAD").replace("author ", "author > ", 1).encode()
    evil = git(code, "hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=raw)
    push(open_repo(code), str(remote), {f"{WORK}t/1/0-0": evil})
    home = make_repo(tmp_path / "home")
    with pytest.raises(GitError):
        fetch_commits(open_repo(home), str(remote), [evil], [])
    assert git(home, "cat-file", "-t", evil, check=False) == ""


def test_only_refs_of_ended_missions_are_removed(tmp_path: Path) -> None:
    remote, code = bare(tmp_path)
    names = [f"{BASE}one/{tip(code)}", f"{WORK}one/1/0-0", f"{WORK}two/1/0-0", "refs/heads/x"]
    push(open_repo(code), str(remote), dict.fromkeys(names, tip(code)))
    gone = {BASE: lambda _: set[str](), WORK: lambda ids: {"one"} & {*ids}}
    remove(str(remote), gone, sha256=False)
    assert git(remote, "for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/x", names[0], names[2],
    ]  # fmt: skip


def test_refs_of_old_fetches_are_pruned(tmp_path: Path) -> None:
    remote, code = bare(tmp_path)
    clone = bare_repo_at(tmp_path / "clone.git", sha256=False)
    commits = [tip(commit_all(code, f"{number}")) for number in range(103)]
    push(open_repo(code), str(remote), {f"{BASE}t/{one}": one for one in commits})
    fetch(clone, str(remote), commits[:-1])
    fetch(clone, str(remote), commits[-1:])
    assert git(clone.path, "for-each-ref", "--format=%(refname)", FETCHED) == FETCHED + commits[-1]


def test_git_error_message_hides_address_password() -> None:
    assert "secret" not in redact_line(
        "fatal: no access to 'https://ann:secret@git.example.org/a'\n"
    )


@pytest.mark.parametrize("reach", ["fetch", "push"])
def test_git_gets_no_keys_and_refuses_program_urls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reach: str
) -> None:
    clone, code = bare_repo_at(tmp_path / "clone.git", sha256=False), open_repo(bare(tmp_path)[1])
    commit = tip(code.path)

    def asked(url: str) -> None:
        if reach == "push":
            push(code, url, {f"{BASE}t/x": commit})
        else:
            fetch(clone, url, ["0" * 40])

    seen = tmp_path / "seen"
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nenv > {seen}\nexit 1\n")
    ssh.chmod(0o755)
    for name in ("ANTHROPIC_API_KEY", "PGPASSWORD", "GIT_DIR"):
        monkeypatch.setenv(name, "very secret")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
    with pytest.raises(GitError):
        asked("ssh://git.example.org/a.git")
    said = seen.read_text()
    assert "very secret" not in said
    assert "SSH_AUTH_SOCK=/run/agent" in said
    made = tmp_path / "made"
    for address in (f"ext::touch {made}", f"--upload-pack=touch {made}"):
        with pytest.raises(GitError):
            asked(address)
    assert not made.exists()


def test_repository_hooks_and_git_settings_are_ignored(tmp_path: Path) -> None:
    remote, code = bare(tmp_path)
    made = tmp_path / "made"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {made}\n")
    evil.chmod(0o755)
    shutil.copy(evil, code / ".git" / "hooks" / "pre-push")
    for key in ("core.sshCommand", "core.gitProxy", "credential.helper"):
        git(code, "config", key, str(evil))
    git(code, "config", f"url.{tmp_path}/other.insteadOf", str(remote))
    repo = open_repo(code)
    push(repo, str(remote), {f"{BASE}t/x": tip(code)})
    fetch_commits(repo, str(remote), [tip(code)], [])
    with pytest.raises(GitError):
        push(repo, "ssh://127.0.0.1:9/x", {f"{BASE}t/x": tip(code)})
    assert not made.exists()


def test_repository_git_proxy_is_never_started(tmp_path: Path) -> None:
    made, proxy = tmp_path / "made", tmp_path / "proxy"
    proxy.write_text(f"#!/bin/sh\ntouch {made}\n")
    proxy.chmod(0o755)
    repo = open_repo(make_repo(tmp_path / "code"))
    git(repo.path, "config", "core.gitProxy", str(proxy))
    place = replace(place_of(repo), env={"GIT_ALLOW_PROTOCOL": "git"}, reaches=True)
    with pytest.raises(GitError):
        run_git(place, "ls-remote", "git://127.0.0.1:9/x")
    assert not made.exists()
    with pytest.raises(GitError, match="transport 'git' not allowed"):
        fetch(bare_repo_at(tmp_path / "clone.git", sha256=False), "git://127.0.0.1:9/x", ["0" * 40])


def loan_of(commit: str, settings: Mapping[str, str]) -> Source:
    refs = {"refs/heads/main": commit}
    return Source("code", (commit,), refs, "refs/heads/main", "/code", ALWAYS, settings=settings)


def served(folder: Path) -> tuple[Path, str]:
    """Make a work remote that has a commit; return both."""
    remote, code = bare(folder)
    push(open_repo(code), str(remote), {f"{BASE}t/x": tip(code)})
    return remote, tip(code)


def test_clone_copies_only_harmless_git_settings(tmp_path: Path) -> None:
    remote, commit = served(tmp_path)
    evil = {"core.gitProxy": "p", "core.gitproxy": "p", "credential.helper": "h", "alias.x": "!y"}
    source = loan_of(commit, {"user.name": "Ann", **evil})
    clone = borrow(tmp_path / "clones", source, str(remote), [commit]).path
    said = (clone / "config").read_text()
    assert "name = Ann" in said
    assert not [one for one in ("roxy", "helper", "alias") if one in said]


def test_settings_of_user_do_not_reach_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, commit = served(tmp_path)
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "config").write_text("[alias]\n\tx = !false\n")
    for key, value in (
        ("core.sharedRepository", "group"),
        ("init.defaultObjectFormat", "sha256"),
        ("init.defaultRefFormat", "reftable"),
        ("init.templateDir", str(tmp_path / "template")),
    ):
        git(tmp_path, "config", "--global", key, value)
    clone = borrow(tmp_path / "clones", loan_of(commit, {}), str(remote), [commit]).path
    assert not [one for one in clone.rglob("*") if one.stat().st_mode & 0o022]
    borrow(tmp_path / "clones", loan_of(commit, {}), str(remote), [commit])  # it is accepted


@pytest.mark.parametrize("over_http", [False, True])
def test_only_http_is_asked_before_push(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over_http: bool
) -> None:
    """curl waits for minutes to be connected, so a quick question comes first."""
    remote, code = bare(tmp_path)
    commands = list[str]()

    def counted(place: GitDir, *args: str, **how: Any) -> tuple[int, bytes]:
        commands.append(args[0])
        return run_git(place, *args, **how)

    monkeypatch.setattr(git_fetching, "run_git", counted)
    with git_server(tmp_path) as port:
        url = f"http://127.0.0.1:{port}/work.git" if over_http else str(remote)
        push(open_repo(code), url, {f"{BASE}t/{tip(code)}": tip(code)})
    assert commands == [*(["ls-remote"] if over_http else []), "push"]


def test_worker_uses_only_its_configured_remotes(tmp_path: Path) -> None:
    own = WorkerSettings(remotes={"code": "ssh://one/a"}, remote="ssh://two/a")
    assert (own.remote_of("code"), own.remote_of("")) == ("ssh://one/a", "ssh://two/a")
    with pytest.raises(Postponed, match="has no git remote for the portal code"):
        borrow(
            tmp_path / "clones",
            loan_of("0" * 40, {}),
            WorkerSettings().remote_of("code"),
            ["0" * 40],
        )


def test_clone_with_foreign_settings_refuses_to_fetch(tmp_path: Path) -> None:
    remote, commit = served(tmp_path)
    made, source = tmp_path / "made", loan_of(commit, {})
    clone = borrow(tmp_path / "clones", source, str(remote), [commit]).path
    git(clone, "config", "credential.helper", f"!touch {made}")
    (clone / "worktrees" / "other").mkdir(parents=True)  # other work is in it
    for _ in range(2):
        with pytest.raises(Postponed, match="placet does not make: credential"):
            borrow(tmp_path / "clones", source, str(remote), [commit])
    (clone / "worktrees" / "other").rmdir()
    with pytest.raises(Postponed, match="creates it again"):
        borrow(tmp_path / "clones", source, str(remote), [commit])
    borrow(tmp_path / "clones", source, str(remote), [commit])
    assert not made.exists()


# --- what a mission commits


class Carried:
    """A mission's carrier, with a clone and a remote, and no journal."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.remote, commit = served(folder)
        source = loan_of(commit, {})
        self.repo = borrow(folder / "clones", source, str(self.remote), [commit])
        self.cancel, self.said, self.leaving = Cancel(), list[str](), False
        self.names = ["refs/heads/feat/x", "refs/placet/ckpt/x"]
        self.at = commit
        self.carrier = PushCarrier(
            self.repo, self.names, str(self.remote), ("t", 7), (commit,), self.cancel,
            lambda: self.leaving, clock, self.said.append,
        )  # fmt: skip

    def commit(self, name: str) -> str:
        """Move a reference to a new commit; return the commit."""
        tree = f"{self.at}^{{tree}}"
        self.at = git(self.repo.path, "commit-tree", "-p", self.at, "-m", "More", tree)
        git(self.repo.path, "update-ref", name, self.at)
        return self.at

    def there(self) -> set[str]:
        """Return the commits that the remote has of the mission."""
        return {*git(self.remote, "for-each-ref", "--format=%(objectname)", WORK).split()}


def test_recorded_commits_stay_on_remote(tmp_path: Path) -> None:
    work = Carried(tmp_path, Clock())
    branch, ckpt = work.names
    recorded = dict[str, str]()
    for name in (branch, ckpt, ckpt, branch, ckpt, ckpt):
        recorded[name] = work.commit(name)
        ((put,), (again,)) = work.carrier.writes(), work.carrier.writes()
        assert put == again == PutRefs(json.dumps(recorded))
        work.carrier.sent()
        before = {*recorded.values()}
        work.commit(ckpt)
        work.carrier.writes()  # pushed, and never recorded: the worker is killed
        assert before <= work.there()
        git(work.repo.path, "update-ref", ckpt, recorded.get(ckpt, "")) if ckpt in recorded else (
            git(work.repo.path, "update-ref", "-d", ckpt)
        )
        work.carrier.writes()
        work.carrier.sent()


def test_full_disk_delays_a_push(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Carried(tmp_path, Clock())
    work.commit(work.names[1])
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr("placet_team.git_scratch.tempfile.TemporaryDirectory", full)
    with pytest.raises(Postponed, match="No space left"):
        work.carrier.writes()


def test_unchanged_refs_need_no_remote(tmp_path: Path) -> None:
    work = Carried(tmp_path, Clock())
    work.remote.rename(tmp_path / "away.git")
    assert work.carrier.writes() == []
    git(work.repo.path, "update-ref", work.names[0], work.at)  # the remote has that
    assert len(work.carrier.writes()) == 1


@pytest.mark.parametrize("why", ["patience", "stopped", "void", "leaving"])
def test_push_is_retried_until_timeout_or_stop(tmp_path: Path, why: str) -> None:
    passed_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal passed_s
        passed_s += seconds
        if why == "back" or passed_s > 5.0:
            if why == "stopped":
                work.cancel.set("a person")
            if why == "void":
                work.cancel.set()
            work.leaving = why == "leaving"

    work = Carried(tmp_path, Clock(monotonic=lambda: passed_s, sleep=sleep))
    work.commit(work.names[0])
    work.remote.rename(tmp_path / "away.git")
    with pytest.raises(Postponed if why in ("patience", "stopped") else Interrupted):
        work.carrier.writes()
    assert (passed_s >= PUSH_PATIENCE_S) == (why == "patience")
    assert passed_s < PUSH_PATIENCE_S + 20
    assert len(work.said) == 1


def test_checkpoint_is_not_recorded_when_push_fails(tmp_path: Path) -> None:
    class Away:
        def writes(self) -> list[Write]:
            raise Postponed("away", 1.0)

        def sent(self) -> None:
            raise AssertionError

    vault = make_vault(tmp_path)
    vault.drop("Say hello\n")
    vault.here()
    with daemon(vault.root, vault.env, lambda _: None) as one:
        (case,) = one.loop.cases.values()
        for _ in range(4):  # more than crashes in a row that end a mission
            record = Record.load(one.journal, case, 99, Clock())
            assert record.start_run() == 0
            record.carrier = Away()
            record.settle(CHECKPOINT.at(1), "held", hold=True)
            for _ in range(2):
                with pytest.raises(Postponed):
                    record.settle(CHECKPOINT.at(2), "named")
            record.end_run()
            record.close()
            known = Record.load(one.journal, case, 99, Clock())
            assert not [n for n in (1, 2) if known.has(CHECKPOINT.at(n))]


# --- a team


@pytest.fixture
def work(tmp_path: Path, server: pgkit.Server) -> Iterator[TestTeam]:
    vault = make_vault(tmp_path)
    code = make_repo(tmp_path / "code", {"step.py": STEP.format("hello.txt")})
    vault.click("portal", "add", "code", str(code))
    vault.script(plan(agent("One")), ("execute", SLOW))
    with running_team(tmp_path, server, 10, vault) as found:
        yield found


def ended(found: TestTeam) -> None:
    """Fail unless the mission came to what it comes to when nobody disturbs it."""
    assert found.hello_of_branch() == "one\nmore\nmore"
    called = [row for row in found.rows("model.called") if '"execute"' in str(row[2])]
    assert len(called) == len(SLOW), found.logs()
    until(lambda: git(found.remote, "for-each-ref", WORK) == "", "a remote without work", 30)
    assert len(git(found.remote, "for-each-ref", BASE).splitlines()) == 1, "for the next work"


@needs_server
def test_commits_travel_over_authenticated_http_without_leaking_password(
    work: TestTeam, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    env = settle_home(home)
    with git_server(tmp_path, "ann:very-secret") as port:
        url = f"http://127.0.0.1:{port}/work.git"
        work.host()
        work.worker("ann", "--remote", url, **env)
        work.vault.drop("---\nportal: code\n---\n# Say hello\n")
        until(lambda: f"cannot fetch from {url}" in work.log("host"), work.log("host"), 30)
        helper = '"!f() { echo username=ann; echo password=very-secret; }; f"'
        (home / ".gitconfig").write_text(f"[credential]\n\thelper = {helper}\n")
        until(work.vault.plan().exists, "a plan", 30)
        work.vault.approve()
        ended(work)
    rows = work.sql("SELECT * FROM activity") + work.sql("SELECT * FROM team_work")
    assert "very-secret" not in str(rows) + work.logs()


IMPATIENT = """
import placet_team.clones as clones
clones.PUSH_PATIENCE_S, clones.PUSH_RETRY_S, clones.REMOTE_RETRY_S = 0.0, 0.0, 0.5
from placet.cli.main import main
main()
"""


@needs_server
@pytest.mark.parametrize("stays_away", [False, True])
def test_mission_resumes_when_remote_returns(work: TestTeam, stays_away: bool) -> None:
    """A worker tries for a while. Then it returns the mission, which waits in the daemon."""
    work.host()
    for name in ("ann", "bob") if stays_away else ("ann",):
        work.worker(name, program=("-c", IMPATIENT) if stays_away else ("-m", "placet"))
    work.approve_hello()
    work.until("step.completed")
    work.remote.rename(work.folder / "away.git")
    log = "host" if stays_away else "ann"
    until(lambda: "the worker cannot push to" in work.log(log), work.logs(), 60)
    (work.folder / "away.git").rename(work.remote)
    ended(work)
    if not stays_away:
        assert "waiting for" not in work.log("host").partition("step 1 of 1 done")[2]


@needs_server
def test_refused_pushes_do_not_count_as_crashes(work: TestTeam) -> None:
    work.host()
    work.worker("ann", program=("-c", IMPATIENT))
    work.approve_hello()
    work.until("step.completed")
    git(work.remote, "config", "receive.maxInputSize", "1")
    # one more than crashes in a row that end a mission
    until(lambda: work.log("ann").count("maximum allowed size") > 3, work.logs(), 60)
    assert not work.rows("report.written")
    git(work.remote, "config", "--unset", "receive.maxInputSize")
    ended(work)


@needs_server
def test_mission_waits_for_commits_missing_from_remote(work: TestTeam) -> None:
    work.host()
    one = work.worker("ann")
    work.approve_hello()
    work.until("step.completed")
    one.kill()
    shutil.copytree(work.remote, work.folder / "kept.git")
    names = git(work.remote, "for-each-ref", "--format=delete %(refname)", WORK)
    git(work.remote, "update-ref", "--stdin", stdin=f"{names}\n".encode())
    git(work.remote, "gc", "-q", "--prune=now")
    work.worker("bob")
    until(lambda: "the worker cannot fetch from" in work.log("host"), work.logs(), 60)
    git(work.folder / "kept.git", "push", "-q", str(work.remote), f"{WORK}*:{WORK}*")
    ended(work)


@needs_server
def test_mission_waiting_for_remote_can_be_stopped(work: TestTeam) -> None:
    work.host()
    one = work.worker("ann")
    work.vault.drop("---\nportal: code\n---\n# Say hello\n", "hello-1.md")
    until(work.vault.plan("hello-1").exists, "a plan", 60)
    one.terminate()
    one.wait(30)
    work.worker("bob", "--remote", str(work.folder / "nowhere.git"))
    work.vault.approve("hello-1")
    until(lambda: "the worker cannot fetch from" in work.log("host"), work.logs(), 60)
    work.vault.click("stop", "hello-1")
    work.until("report.written", 1, 40)


@needs_server
def test_doctor_reports_missing_or_unreachable_work_remote(work: TestTeam) -> None:
    work.vault.click("config", "set", "team.work_remote", "")
    work.host()
    work.worker("ann")
    work.vault.drop("---\nportal: code\n---\n# Say hello\n")
    until(lambda: "placet config set team.work_remote" in work.log("host"), work.logs(), 30)

    def doctor() -> str:
        return " ".join(work.vault.click("doctor", check=False).stdout.split())

    assert "none is set, so its work waits" in doctor()
    away = str(work.folder / "away.git")
    work.vault.click("config", "set", "portals.code.work_remote", away)
    until(lambda: f"cannot push to {away}" in work.log("host"), work.logs(), 60)
    assert f"{away} cannot be reached" in doctor()
    work.vault.click("config", "set", "portals.code.work_remote", str(work.remote))
    until(work.vault.plan().exists, work.logs(), 60)
    assert f'it answers; each worker needs [remotes] "code" = "{work.remote}"' in doctor()


@needs_server
def test_work_remote_accepts_only_new_placet_refs(work: TestTeam) -> None:
    code = work.folder / "code"
    one = git(code, "rev-parse", "HEAD")
    said = f"refs/placet/base/t/{one}\nrefs/placet/work/t/7/{one}"
    for name in said.split():
        git(code, "push", "-q", str(work.remote), f"HEAD:{name}")
    git(code, "commit", "-q", "--allow-empty", "-m", "Another")
    wrong = ("refs/heads/main", "refs/tags/x", "refs/placetx", "refs/placet/base", "refs/placet/x")
    for name in (*wrong, *said.split(), f"refs/placet/base/u/{one}", f"refs/placet/work/t/{one}"):
        git(code, "push", "-q", "-f", str(work.remote), f"HEAD:{name}", check=False)
    refs = ("for-each-ref", "--format=%(refname)")
    assert git(work.remote, *refs) == said
    assert {*git(work.remote, "for-each-ref", "--format=%(objectname)").split()} == {one}
    assert git(work.remote, "config", "receive.fsckObjects") == "true"
    again = ("team", "init", work.address, "--remote")
    work.vault.click(*again, str(work.remote))
    assert git(work.remote, *refs) == said
    git(code, "push", "-q", str(work.remote), f":refs/placet/base/t/{one}")
    assert git(work.remote, *refs) == f"refs/placet/work/t/7/{one}"
    refused = work.vault.click(*again, str(code / ".git" / "objects"), check=False)
    assert "is not empty and not a git repository" in refused.stderr
    refused = work.vault.click(*again, "https://git.example.org/work.git", check=False)
    assert "placet config set team.work_remote https://git.example.org/work.git" in refused.stderr
