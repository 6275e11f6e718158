"""Workers fetch from a portal's remote what that has; only the rest travels through the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import pgkit
from gitkit import commit_all, git, make_repo, settle_home, write
from placet.agent.record import Postponed
from placet.disk.confine import ALWAYS
from placet.git.repository import open_repo, resolve
from placet.git.run import GitError, place_of, run_git
from placet_team.clones import borrow, fetched
from placet_team.git_fetching import fetch, has_all, met_at, said_of, url_of
from placet_team.git_packs import FETCHED, clone_at
from placet_team.parcel import Loan
from remotekit import git_server
from teamkit import Troupe, team
from vaultkit import DONE, PLAN, make_vault, until

needs_server = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)
LARGE = 200_000


@pytest.fixture(scope="module")
def server() -> Iterator[pgkit.Server]:
    with pgkit.server() as found:
        yield found


def cloned(folder: Path) -> tuple[Path, Path]:
    """Make a remote with some history, and a person's clone of it, one commit ahead."""
    seed = make_repo(folder / "seed", {"large.txt": "".join(f"{n * n}\n" for n in range(LARGE))})
    git(folder, "clone", "-q", "--bare", str(seed), "code.git")
    git(folder, "clone", "-q", str(folder / "code.git"), "code")
    write(folder / "code", {"mine.txt": "not pushed\n"})
    commit_all(folder / "code", "Not pushed")
    return folder / "code.git", folder / "code"


# --- git's part


def test_only_what_the_remote_has_is_fetched_and_nothing_twice(tmp_path: Path) -> None:
    remote, code = cloned(tmp_path)
    repo = open_repo(code)
    mine, theirs = git(code, "rev-parse", "HEAD"), git(remote, "rev-parse", "HEAD")
    assert met_at(repo, "origin", [mine]) == [theirs]
    assert met_at(repo, "origin", [theirs]) == [theirs]
    assert met_at(repo, "elsewhere", [mine]) == []
    assert has_all(repo, "origin", [theirs])
    assert not has_all(repo, "origin", [mine])
    assert not has_all(repo, "origin", ["0" * 40])
    clone = clone_at(tmp_path / "clone.git", sha256=False)
    fetch(clone, str(remote), [theirs])
    assert resolve(clone, theirs)
    assert resolve(clone, mine) is None
    remote.rename(tmp_path / "away.git")
    fetch(clone, str(remote), [theirs])  # nobody is asked again


def test_history_that_the_remote_knows_nothing_of_is_not_asked_for(tmp_path: Path) -> None:
    _, code = cloned(tmp_path)
    git(code, "checkout", "-q", "--orphan", "other")
    commit_all(code, "Unrelated")
    assert met_at(open_repo(code), "origin", [git(code, "rev-parse", "HEAD")]) == []


def test_what_is_kept_of_old_fetches_is_cleared_away(tmp_path: Path) -> None:
    remote, code = cloned(tmp_path)
    clone = clone_at(tmp_path / "clone.git", sha256=False)
    commits = []
    for number in range(103):
        git(code, "commit", "-q", "--allow-empty", "-m", f"{number}")
        commits.append(git(code, "rev-parse", "HEAD"))
    git(code, "push", "-q", "origin", "main")
    fetch(clone, str(remote), commits[:-1])
    fetch(clone, str(remote), commits[-1:])
    assert git(clone.path, "for-each-ref", "--format=%(refname)", FETCHED) == FETCHED + commits[-1]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("https://ann:secret@git.example.org/a.git", "https://git.example.org/a.git"),
        ("https://token@git.example.org:8443/a.git", "https://git.example.org:8443/a.git"),
        ("ssh://git:secret@git.example.org:22/a", "ssh://git@git.example.org:22/a"),
        ("git@git.example.org:team/a.git", "git@git.example.org:team/a.git"),
        ("/srv/git/a.git", "/srv/git/a.git"),
    ],
)
def test_no_password_of_an_address_travels(tmp_path: Path, given: str, sent: str) -> None:
    code = make_repo(tmp_path / "code")
    git(code, "remote", "add", "origin", given)
    assert url_of(open_repo(code), "origin") == sent
    assert url_of(open_repo(code), "other") == ""
    assert "secret" not in said_of(f"fatal: no access to '{given}'\n")
    assert "token" not in said_of(f"fatal: no access to '{given}'\n")


def test_an_address_is_what_it_is_for_the_persons_git(tmp_path: Path) -> None:
    code = make_repo(tmp_path / "code")
    git(code, "config", "url.https://token@git.example.org/.insteadOf", "gh:")
    git(code, "remote", "add", "origin", "gh:team/a.git")
    git(code, "remote", "add", "beside", "../a.git")
    assert url_of(open_repo(code), "origin") == "https://git.example.org/team/a.git"
    assert url_of(open_repo(code), "beside") == str(tmp_path.resolve() / "a.git")


def test_a_fetch_sees_no_key_and_starts_no_program_that_an_address_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nenv > {seen}\nexit 1\n")
    ssh.chmod(0o755)
    for name in ("ANTHROPIC_API_KEY", "PGPASSWORD", "GIT_DIR"):
        monkeypatch.setenv(name, "very secret")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
    clone = clone_at(tmp_path / "clone.git", sha256=False)
    with pytest.raises(GitError):
        fetch(clone, "ssh://git.example.org/a.git", ["0" * 40])
    said = seen.read_text()
    assert "very secret" not in said
    assert "SSH_AUTH_SOCK=/run/agent" in said
    made = tmp_path / "made"
    for address in (f"ext::touch {made}", f"--upload-pack=touch {made}"):
        with pytest.raises(GitError):
            fetch(clone, address, ["0" * 40])
    assert not made.exists()


def test_a_repositorys_git_proxy_is_not_started(tmp_path: Path) -> None:
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
        fetch(clone_at(tmp_path / "clone.git", sha256=False), "git://127.0.0.1:9/x", ["0" * 40])


def loan_of(remote: Path, settings: Mapping[str, str]) -> Loan:
    commit = git(remote, "rev-parse", "HEAD")
    return Loan(
        "portal/code", 0, (commit,), {"refs/heads/main": commit}, "refs/heads/main", "/code", ALWAYS,
        settings=settings, at_remote=(commit,),
    )  # fmt: skip


def test_a_clone_takes_harmless_settings_alone(tmp_path: Path) -> None:
    remote, _ = cloned(tmp_path)
    evil = {"core.gitProxy": "p", "core.gitproxy": "p", "credential.helper": "h", "alias.x": "!y"}
    loan = loan_of(remote, {"user.name": "Ann", **evil})
    clone = fetched(tmp_path / "clones", loan, {"code": str(remote)})
    journal: Any = None
    with patch("placet_team.clones.take", return_value=0):
        borrow(journal, clone, loan)
    said = (clone / "config").read_text()
    assert "name = Ann" in said
    assert not [one for one in ("roxy", "helper", "alias") if one in said]


def test_a_worker_fetches_from_its_own_remotes_alone(tmp_path: Path) -> None:
    remote, _ = cloned(tmp_path)
    loan = loan_of(remote, {})
    with pytest.raises(Postponed, match="knows no git remote for the portal code"):
        fetched(tmp_path / "clones", loan, {"other": str(remote)})


def test_a_clone_with_other_settings_fetches_nothing(tmp_path: Path) -> None:
    remote, _ = cloned(tmp_path)
    made = tmp_path / "made"
    loan = loan_of(remote, {})
    clone = fetched(tmp_path / "clones", replace(loan, at_remote=()), {})
    git(clone, "config", "credential.helper", f"!touch {made}")
    with pytest.raises(Postponed, match="placet does not make: credential"):
        fetched(tmp_path / "clones", loan, {"code": str(remote)})
    assert not list(clone.rglob("refs/lent/*"))


# --- a team


@dataclass
class Work:
    """A team whose portal has a remote, served at `url`."""

    troupe: Troupe
    remote: Path
    code: Path
    asked: int = 0

    def ask(self) -> None:
        """Ask for one more plan, and approve it."""
        self.asked += 1
        name = f"hello-{self.asked}"
        self.troupe.vault.drop("---\nportal: code\n---\n# Say hello\n", f"{name}.md")
        until(self.troupe.vault.plan(name).exists, "a plan", 60)
        self.troupe.vault.approve(name)

    def done(self) -> None:
        """Wait until all that was asked for is done."""
        self.troupe.until("execution.completed", self.asked)
        self.troupe.until("report.written", self.asked)

    def carried(self) -> int:
        """Return the bytes of the repository that travelled through the database."""
        asked = "SELECT coalesce(sum(length(body)), 0) FROM team_packs WHERE owner = 'portal/code'"
        return int(self.troupe.sql(asked)[0][0])


@pytest.fixture
def work(tmp_path: Path, server: pgkit.Server) -> Iterator[Work]:
    vault = make_vault(tmp_path)
    remote, code = cloned(tmp_path)
    vault.cli("portal", "add", "code", str(code))
    vault.cli("config", "set", "portals.code.remote", "origin")
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}]), ("execute", DONE))
    with (
        git_server(tmp_path, "ann:very-secret") as port,
        team(tmp_path, server, 10, vault) as found,
    ):
        git(code, "remote", "set-url", "origin", f"http://token@127.0.0.1:{port}/code.git")
        found.remotes["code"] = f"http://127.0.0.1:{port}/code.git"
        yield Work(found, remote, code)


@needs_server
def test_a_worker_fetches_from_the_remote_and_the_database_carries_the_rest(
    work: Work, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    env = settle_home(home)
    work.troupe.host()
    work.troupe.worker("ann", **env)
    work.asked += 1
    work.troupe.vault.drop("---\nportal: code\n---\n# Say hello\n", "hello-1.md")
    log = work.troupe.log
    until(lambda: "a worker cannot fetch from http://127.0.0.1" in log("host"), log("host"), 30)
    helper = '"!f() { echo username=ann; echo password=very-secret; }; f"'
    (home / ".gitconfig").write_text(f"[credential]\n\thelper = {helper}\n")
    until(work.troupe.vault.plan("hello-1").exists, "a plan", 30)
    work.troupe.vault.approve("hello-1")
    work.done()
    branch = git(work.code, "branch", "--list", "feat/*").strip()
    assert git(work.code, "show", f"{branch}:hello.txt") == "hello"
    assert git(work.code, "show", f"{branch}:mine.txt") == "not pushed"
    assert 0 < work.carried() < 10_000
    clone = tmp_path / "state-ann"
    rows = work.troupe.sql("SELECT * FROM activity") + work.troupe.sql("SELECT * FROM team_work")
    assert "token" not in str([row for row in rows if "127.0.0.1" in str(row)])
    assert "very-secret" not in str(rows) + work.troupe.logs()
    said = work.troupe.vault.cli("doctor", check=False).stdout
    url = url_of(open_repo(work.code), "origin")
    assert f'needs [remotes] "code" = "{url}"' in " ".join(said.split())
    # from now on only what is new
    git(work.code, "push", "-q", str(work.remote), "main")
    git(work.code, "fetch", "-q", str(work.remote), "+refs/heads/*:refs/remotes/origin/*")
    small = work.carried()
    work.ask()
    work.done()
    assert work.carried() == small
    assert list(clone.rglob("refs/lent/*"))


@needs_server
@pytest.mark.sweep
def test_work_waits_for_a_remote_that_is_away_and_for_one_that_forgot(work: Work) -> None:
    log = work.troupe.log
    work.troupe.remotes["code"] = str(work.remote)
    git(work.code, "remote", "set-url", "origin", str(work.remote))
    work.remote.rename(work.remote.with_name("away.git"))
    work.troupe.host()
    one = work.troupe.worker("ann")
    work.troupe.vault.drop("---\nportal: code\n---\n# Say hello\n", "hello-1.md")
    until(lambda: "a worker cannot fetch from" in log("host"), log("host"), 30)
    work.remote.with_name("away.git").rename(work.remote)
    until(work.troupe.vault.plan("hello-1").exists, "a plan", 30)
    one.terminate()
    one.wait(30)
    # its history is another's, and a worker has no clone yet
    commit_all(work.remote.with_name("seed"), "Rewritten")
    git(work.remote.with_name("seed"), "checkout", "-q", "--orphan", "new")
    commit_all(work.remote.with_name("seed"), "Rewritten")
    git(work.remote.with_name("seed"), "push", "-q", "-f", str(work.remote), "new:main")
    git(work.remote, "reflog", "expire", "--expire=now", "--all")
    git(work.remote, "gc", "-q", "--prune=now")
    work.troupe.worker("bob")
    work.troupe.vault.approve("hello-1")
    until(lambda: "not our ref" in log("host"), log("host"), 30)
    assert f"git -C {work.code} fetch" in log("host")
    git(work.code, "fetch", "-q")
    work.troupe.until("report.written", 1)
    assert len(work.troupe.rows("execution.completed")) == 1, work.troupe.logs()
    assert work.carried() > 10_000


@needs_server
def test_a_mission_that_waits_for_its_remote_can_be_stopped(work: Work) -> None:
    log = work.troupe.log
    work.troupe.remotes["code"] = str(work.remote)
    git(work.code, "remote", "set-url", "origin", str(work.remote))
    work.troupe.host()
    one = work.troupe.worker("ann")
    work.troupe.vault.drop("---\nportal: code\n---\n# Say hello\n", "hello-1.md")
    until(work.troupe.vault.plan("hello-1").exists, "a plan", 60)
    one.terminate()
    one.wait(30)
    work.remote.rename(work.remote.with_name("away.git"))
    work.troupe.worker("bob")  # has no clone yet
    work.troupe.vault.approve("hello-1")
    until(lambda: "a worker cannot fetch from" in log("host"), log("host"), 60)
    work.troupe.vault.cli("stop", "hello-1")
    work.troupe.until("report.written", 1, 40)
