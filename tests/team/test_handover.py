"""Test missions that change workers, and workers that name the work of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from tests.search.test_team_faults import FINISH, RUN, STEP, agent, plan, step, write

import pgkit
from gitkit import commit_all, git, make_repo
from gitkit import write as write_files
from placet.client.verify import verify_receipt
from placet.git.repository import open_repo
from receiptkit import must_sign
from teamkit import TestTeam, lose, running_team
from vaultkit import DONE, PLAN, make_vault, until

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)

SLOW = [
    {"calls": [write("hello.txt", "one\n"), RUN, step(1)]},
    {"calls": [RUN], "delay_s": 6.0},
    {"calls": [FINISH]},
]


@pytest.fixture
def team(tmp_path: Path, server: pgkit.Server) -> Iterator[TestTeam]:
    vault = make_vault(tmp_path)
    code = make_repo(tmp_path / "code", {"step.py": STEP.format("hello.txt")})
    vault.click("portal", "add", "code", str(code))
    vault.script(plan(agent("One")), ("execute", SLOW))
    with running_team(tmp_path, server, 5, vault) as found:
        yield found


def ended(found: TestTeam) -> None:
    """Fail unless the mission came to what it comes to when nobody disturbs it."""
    assert found.hello_of_branch() == "one\nmore\nmore"
    code = found.folder / "code"
    refs = git(code, "for-each-ref", "--format=%(refname)").split()
    assert not [ref for ref in refs if ref.startswith("refs/placet/")]
    assert len(git(code, "worktree", "list").splitlines()) == 1
    assert found.sql("SELECT 1 FROM team_refs") == []


def end_the_daemon_after_a_step(team: TestTeam) -> None:
    """Let a worker do a step of a mission, and go on while no daemon runs."""
    host = team.host()
    team.worker("ann")
    team.approve_hello()
    team.until("step.completed")
    host.terminate()
    host.wait(30)


@pytest.mark.parametrize("done", [False, pytest.param(True, marks=pytest.mark.sweep)])
def test_daemon_finishes_missions_started_by_workers(team: TestTeam, done: bool) -> None:
    end_the_daemon_after_a_step(team)
    if done:
        until(lambda: team.sql("SELECT 1 FROM team_work WHERE kind = 'ended'"), "its end", 60)
    team.vault.click("config", "set", "team.workers", "false")
    team.vault.click("config", "set", "team.database", "")
    refused = team.vault.click("journal", "move", check=False)
    assert "Only the database has the commits of 1 unfinished mission." in refused.stderr
    team.vault.click("config", "set", "team.database", team.address)
    team.host()
    ended(team)


SLEEPS = "import time\nif p.read_text().count('more') > 1: time.sleep(3)\n"


def test_daemon_waits_for_live_worker_on_same_machine(team: TestTeam) -> None:
    code = team.folder / "code"
    (code / "step.py").write_text(STEP.format("hello.txt") + SLEEPS)
    commit_all(code, "Take a while")
    end_the_daemon_after_a_step(team)
    team.vault.click("config", "set", "team.workers", "false")
    team.until("model.called", 3)  # the command begins, and takes its time
    team.host()
    ended(team)
    assert "now belongs to another worker" not in team.log("ann")


def test_daemon_finishes_its_mission_after_workers_are_enabled(team: TestTeam) -> None:
    team.vault.click("config", "set", "team.workers", "false")
    host = team.host()
    team.approve_hello()
    team.until("step.completed")
    host.terminate()
    host.wait(30)
    team.vault.click("config", "set", "team.workers", "true")
    team.host()
    team.worker("ann")
    ended(team)
    assert "runs hello" not in team.log("ann")
    assert not [row for row in team.rows("lease.acquired") if "worker" in str(row[2])]


FORGED = {
    "scope": ("100644", "notes.md"),
    "module": ("160000", "sub.txt"),
    "link": ("120000", "out.txt"),
}


def forge(found: TestTeam, what: str) -> str:
    """Put a commit of somebody's on top of what a worker recorded; return the commit."""
    ((trace, text),) = found.sql("SELECT trace_id, refs FROM team_refs")
    refs = json.loads(text)
    name = next(one for one in refs if one.startswith("refs/heads/"))
    copy, (mode, path) = found.folder / "forger", FORGED[what]
    git(found.folder, "init", "-q", str(copy))
    git(copy, "fetch", "-q", str(found.remote), refs[name])
    git(copy, "checkout", "-q", "--detach", refs[name])
    said = git(copy, "hash-object", "-w", "--stdin", stdin=b"../../../etc/passwd")
    thing = refs[name] if what == "module" else said
    git(copy, "update-index", "--add", "--cacheinfo", f"{mode},{thing},{path}")
    name_, email = git(copy, "log", "-1", "--format=%an%n%ae").splitlines()
    who = {"NAME": name_, "EMAIL": email}
    roles = ("AUTHOR", "COMMITTER")
    git(copy, "commit", "-qm", "F", **{f"GIT_{a}_{b}": who[b] for a in roles for b in who})
    forged = git(copy, "rev-parse", "HEAD")
    git(
        copy,
        "push",
        "-q",
        str(found.remote),
        f"HEAD:refs/placet/work/{trace}/9/{git(copy, 'rev-parse', 'HEAD')}",
    )
    found.change(f"UPDATE team_refs SET refs = '{json.dumps({**refs, name: forged})}'")
    return forged


@pytest.mark.parametrize(
    "what", ["scope", *(pytest.param(one, marks=pytest.mark.sweep) for one in ("module", "link"))]
)
@pytest.mark.parametrize("workers", ["true", pytest.param("false", marks=pytest.mark.sweep)])
def test_forged_commit_fails_mission_and_creates_no_branch(
    team: TestTeam, what: str, workers: str
) -> None:
    end_the_daemon_after_a_step(team)
    until(lambda: team.sql("SELECT 1 FROM team_work WHERE kind = 'ended'"), "its end", 60)
    forged = forge(team, what)
    team.vault.click("config", "set", "team.workers", workers)
    team.host()
    team.until("report.written")
    assert FORGED[what][1] in str(team.rows("execution.failed")), team.logs()
    assert not team.rows("execution.completed")
    code = team.folder / "code"
    assert git(code, "for-each-ref", "refs/heads/feat*") == ""
    assert forged in git(code, "for-each-ref", "refs/placet/failed")


def test_forged_record_cannot_delete_foreign_folder(team: TestTeam) -> None:
    theirs = team.folder / "thesis"
    write_files(theirs, {"text.md": "years of work\n"})
    end_the_daemon_after_a_step(team)
    ((place,),) = team.sql("SELECT convert_from(body, 'utf-8') FROM records WHERE key = 'place'")
    forged = json.dumps({**json.loads(place), "name": str(theirs)})
    team.change(
        f"UPDATE records SET body = convert_to('{forged}', 'utf-8'), size = {len(forged)}, "
        f"sha256 = '{sha256(forged.encode()).hexdigest()}' WHERE key = 'place'"
    )
    team.vault.click("config", "set", "team.workers", "false")
    team.host()
    until(lambda: "the record's entry `place` cannot be read" in team.log("host"), "", 60)
    assert (theirs / "text.md").exists()


@pytest.mark.parametrize("how", ["taken", "stopped"])
def test_unreadable_record_ends_mission_with_reason(team: TestTeam, how: str) -> None:
    end_the_daemon_after_a_step(team)
    until(lambda: team.sql("SELECT 1 FROM team_work WHERE kind = 'ended'"), "its end", 60)
    team.change(
        "UPDATE records SET body = 'x', size = 1, sha256 = encode(sha256('x'), 'hex') "
        "WHERE kind = 'outcome' AND key LIKE 'reply:%' AND attempt > 0"
    )
    if how == "stopped":
        team.vault.click("stop", "say-hello", check=False)
    team.host()
    team.until("report.written")
    (failed,) = team.rows("execution.failed")
    assert json.loads(failed[2])["reason"] == "record"
    (report,) = (team.vault.root / "Knowledge/Reports").glob("*_failure.md")
    assert "The record of the work cannot be read." in report.read_text()
    assert "the record's entry `reply:1` cannot be read" in report.read_text()


@pytest.mark.parametrize("what", ["clone", pytest.param("base", marks=pytest.mark.sweep)])
def test_commits_survive_deletion_of_clone_or_base(team: TestTeam, what: str) -> None:
    team.host()
    team.worker("ann")
    team.approve_hello()
    team.until("step.completed")
    code = team.folder / "code"
    if what == "clone":
        (clone,) = team.folder.glob("state-ann/workers/ann/clones/*.git")
        lose(clone)
    else:
        git(code, "checkout", "-q", "--orphan", "other")
        commit_all(code, "Anew")
        git(code, "branch", "-q", "-D", "main")
        git(code, "reflog", "expire", "--expire=now", "--all")
        git(code, "gc", "-q", "--prune=now")
    team.until("report.written")
    refs = git(code, "for-each-ref", "--format=%(refname)").split()
    (branch,) = [ref for ref in refs if ref.startswith("refs/heads/feat/")]
    assert git(code, "show", f"{branch}:hello.txt").startswith("one\nmore")
    assert "Begin" in git(code, "log", branch)


@pytest.mark.sweep
def test_worker_waits_while_journal_is_moved(team: TestTeam) -> None:
    host = team.host()
    team.worker("ann")
    until(lambda: "takes work" in team.log("ann"), team.logs(), 60)
    host.terminate()
    host.wait(30)
    for workers, address in (("false", ""), ("true", team.address)):
        team.vault.click("config", "set", "team.workers", "false")
        team.vault.click("config", "set", "team.database", address)
        team.vault.click("journal", "move")
        team.vault.click("config", "set", "team.workers", workers)
    team.host()
    until(lambda: "has no worker named ann" in team.log("ann"), team.logs(), 60)
    team.roles.clear()
    team.worker("ann")
    team.approve_hello()
    assert "Traceback" not in team.logs()


EVIL = """
import json
import placet_team.clones as clones
real = clones.PushCarrier.writes
def writes(self):
    found = real(self)
    for n, one in enumerate(found):
        refs = json.loads(one.refs)
        ref, commit = next(iter(refs.items()))
        refs[NAME.format(ref=ref, commit=commit)] = commit
        found[n] = clones.PutRefs(json.dumps(refs))
    return found
clones.PushCarrier.writes = writes
from placet.cli.main import main
main()
"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("refs/tags/theirs", marks=pytest.mark.sweep),
        "{ref} {commit}\nupdate refs/tags/theirs",
    ],
)
def test_worker_cannot_move_refs_outside_its_mission(
    tmp_path: Path, server: pgkit.Server, name: str
) -> None:
    vault = make_vault(tmp_path)
    code = make_repo(tmp_path / "code")
    vault.click("portal", "add", "code", str(code))
    vault.plays(PLAN, *DONE)
    before = git(code, "for-each-ref")
    with running_team(tmp_path, server, 10, vault) as found:
        found.host()
        found.worker("ann", program=("-c", f"NAME = {name!r}\n{EVIL}"))
        found.approve_hello()
        found.until("report.written")
        until(
            lambda: "a reference that is not its mission's" in found.log("host"), found.logs(), 30
        )
    assert git(code, "for-each-ref") == before


def test_mission_of_worker_has_receipt(tmp_path: Path, server: pgkit.Server) -> None:
    vault = make_vault(tmp_path)
    code = make_repo(tmp_path / "code")
    vault.click("portal", "add", "code", str(code))
    vault.plays(PLAN, *DONE)
    keys = must_sign(vault, tmp_path / "keys")
    with running_team(tmp_path, server, 5, vault) as found:
        found.host()
        found.worker("ann")
        vault.drop("---\nportal: code\n---\n# Say hello\n")
        until(vault.plan().exists, found.logs(), 60)
        vault.click("approve", "say-hello", "--yes")
        found.until("report.written")
        (row,) = found.rows("execution.completed")
        ref = json.loads(row[2])["receipt"]
        listed = git(code, "show", f"{ref}:allowed_signers").encode()
        assert keys.signer("anna").line().encode() in listed
        (changed,) = verify_receipt(open_repo(code), ref, listed).receipt.files
        assert changed.path == "hello.txt"
