"""Test how a mission ends and where that shows: journal, report, `why`, `status`, branch."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sqlite3
import sys
import threading
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from gitkit import git, make_repo
from looping import Fake, Running, Time, bare_vault, greeter, looping, results, says, turns_taken
from messages_api import MessagesApi, call, cut, hang_midway, reply, text
from placet.case.story import facts
from placet.chat.messages import Ask, ModelError, ModelErrorKind, Purpose, Reply, Usage
from placet.chat.prices import DEFAULT_PRICES
from placet.chat.retry import RetryPolicy
from placet.cli import screen as screen_module
from placet.cli.demo import called
from placet.cli.main import main
from placet.cli.screen import status_screen
from placet.client.cases import plans, status
from placet.errors import End
from placet.plan.comments import REMARKS, comments
from placet.tools.base import Outcome, Toolbox
from placet.wording import counted
from vaultkit import PLAN, TestVault, make_vault, until

pytestmark = pytest.mark.bare


# --- ends that the world outside brings a mission to


WRITE = ("write_file", {"path": "hello.txt", "content": "hello\n"})


def ended(vault: TestVault) -> dict[str, Any]:
    rows = vault.rows("execution.failed") + vault.rows("execution.completed")
    assert len(rows) == 1, vault.actions()
    return rows[0]["metadata"]


class Model:
    """Plans, writes a file, and then does what the test says."""

    def __init__(self, plan: dict[str, Any] = PLAN) -> None:
        self.fake = Fake(self.answer)
        self.plan = plan
        self.error: ModelError | None = None

    def answer(self, ask: Ask) -> Reply:
        if ask.purpose is Purpose.PLAN:
            return says(("submit_plan", self.plan))
        if turns_taken(ask) == 0:
            return says(WRITE, usage=Usage(1_000, 100))
        return self.second(ask)

    def second(self, ask: Ask) -> Reply:
        if self.error is not None:
            raise self.error
        return says(
            ("complete_step", {"step": 1, "summary": "Done"}),
            ("finish", {"summary": "Done."}),
            usage=Usage(1_000, 100),
        )


def approved(running: Running) -> None:
    running.vault.drop("Say hello.\n")
    running.settle()
    running.vault.approve()


def test_failed_literal_step_ends_as_tool_error(tmp_path: Path) -> None:
    actions = [{"tool": "edit_file", "params": {"path": "none.txt", "old": "a", "new": "b"}}]
    model = Model(
        {
            **PLAN,
            "steps": [{"title": "Mend it", "actions": actions}],
            "scope": {"write": ["none.txt"]},
        }
    )
    with looping(bare_vault(tmp_path), model=lambda: model.fake) as running:
        approved(running)
        running.settle()
    assert (ended(running.vault)["reason"], ended(running.vault)["iterations"]) == ("tool_error", 0)
    assert (
        "Execution failed during tool operation: edit_file"
        in running.vault.reports()[0].read_text()
    )


@pytest.mark.parametrize(("done", "reason"), [(2, "finished"), (1, "talk")])
def test_talking_after_last_step_counts_as_finished(tmp_path: Path, done: int, reason: str) -> None:
    """Not every model calls `finish`."""
    secret = "sk-ant-api03-" + "a" * 40
    model = Model(
        {**PLAN, "steps": [*PLAN["steps"], {"title": "Look at it", "description": "Read it."}]}
    )
    steps = [
        says(("complete_step", {"step": n, "summary": f"Step {n}"})) for n in range(1, done + 1)
    ]
    model.second = lambda ask: (  # type: ignore[method-assign]
        steps[turns_taken(ask) - 1]
        if turns_taken(ask) <= done
        else says(text=f"All is done. {secret}")
    )
    with looping(bare_vault(tmp_path), model=lambda: model.fake) as running:
        approved(running)
        running.settle()
    report = running.vault.reports()[0].read_text()
    assert secret not in report
    if reason == "talk":
        assert ended(running.vault)["reason"] == "talk"
    else:
        assert running.vault.rows("execution.completed")[0]["metadata"]["iterations"] == 4
        assert "All is done. " in report


@pytest.mark.parametrize("reason", ["stopped_by_person", "timeout"])
def test_mission_ended_while_waiting_reports_finished_work(tmp_path: Path, reason: str) -> None:
    vault, time, model = (
        bare_vault(tmp_path, "[limits]\nmission_wall_time_s = 600\n"),
        Time(),
        Model(),
    )
    model.error = ModelError(ModelErrorKind.TRANSIENT, "cannot connect")
    with looping(
        vault, time=time, model=lambda: model.fake, retry=RetryPolicy(first_wait_s=20)
    ) as running:
        approved(running)
        running.settle()
        if reason == "timeout":
            time.pass_time(1_000)
        else:
            vault.active("say-hello").rename(vault.plan("say-hello"))
        running.settle()
    end = ended(vault)
    assert (end["reason"], end["iterations"], end["input_tokens"]) == (reason, 1, 1_000)
    assert git(vault.root, "show", f"{end['kept']}:hello.txt") == "hello"
    assert "write_file (1)" in vault.reports()[0].read_text()


def test_missing_repository_ends_mission_and_report_locates_work(
    tmp_path: Path,
) -> None:
    vault, model = bare_vault(tmp_path), Model()

    def second(_ask: Ask) -> Reply:
        (vault.root / ".git").rename(tmp_path / "taken")
        return says(("complete_step", {"step": 1, "summary": "Hello"}), usage=Usage(1_000, 100))

    model.second = second  # type: ignore[method-assign]
    with looping(vault, model=lambda: model.fake) as running:
        approved(running)
        running.settle()
    end, report = ended(vault), vault.reports()[0].read_text()
    assert (end["reason"], end["iterations"], end["input_tokens"]) == ("repository", 2, 2_000)
    assert "restart the daemon" in report
    assert "had changed nothing" not in report


def test_missing_portal_folder_is_named(tmp_path: Path) -> None:
    code = make_repo(tmp_path / "code", {"a.txt": "a\n"})
    vault, model = bare_vault(tmp_path, f'[portals.code]\npath = "{code}"\n'), Model()

    def second(_ask: Ask) -> Reply:
        code.rename(tmp_path / "taken")
        return says(("complete_step", {"step": 1, "summary": "Hello"}))

    model.second = second  # type: ignore[method-assign]
    with looping(vault, model=lambda: model.fake) as running:
        vault.drop("---\nportal: code\n---\nSay hello.\n")
        running.settle()
        vault.approve()
        running.settle()
    assert ended(vault)["reason"] == "repository"
    said = vault.click("why", "say-hello").stdout
    assert f"The repository {code} is not a folder.\nRestore it, or correct its path" in said
    assert "Its work is still in " in said


def test_emptied_portal_gets_no_new_repository(tmp_path: Path) -> None:
    code = make_repo(tmp_path / "code", {"a.txt": "a\n"})
    vault = bare_vault(tmp_path, f'[portals.code]\npath = "{code}"\n')
    request = "---\nportal: code\n---\nSay hello.\n"
    with looping(vault, model=lambda: Model().fake) as running:
        vault.drop(request)
        running.settle()
        code.rename(tmp_path / "unmounted")
        code.mkdir()
        vault.approve()
        vault.drop(request, "Say it again.md")
        running.settle()
        assert list(code.iterdir()) == []
        assert not vault.rows("git.initialized")
        for ident in ("say-hello", "say-it-again"):
            said = vault.click("why", ident).stdout
            assert f"{code} is not a git repository, but earlier requests" in said
            assert f"git -C '{code}' init" in said


@pytest.mark.parametrize(
    "how", ["renamed", "deleted", "switched", "worktree removed", "worktree deleted"]
)
@pytest.mark.thinned(3)
def test_removed_branch_ends_mission_and_keeps_work(tmp_path: Path, how: str) -> None:
    vault, model = bare_vault(tmp_path), Model()

    def second(_ask: Ask) -> Reply:
        tree = next(path for path in vault.state.glob("*/worktrees/*") if path.is_dir())
        branch = git(vault.root, "for-each-ref", "--format=%(refname:short)", "refs/heads/feat")
        match how:
            case "renamed":
                git(vault.root, "branch", "-m", branch, "mine")
            case "deleted":
                git(vault.root, "update-ref", "-d", f"refs/heads/{branch}")
            case "switched":
                git(tree, "switch", "-q", "-c", "mine")
            case "worktree removed":
                git(vault.root, "worktree", "remove", "--force", str(tree))
            case _:
                shutil.rmtree(tree)
                git(vault.root, "worktree", "prune")
        return says(("complete_step", {"step": 1, "summary": "Hello"}), usage=Usage(1_000, 100))

    model.second = second  # type: ignore[method-assign]
    with looping(vault, model=lambda: model.fake) as running:
        approved(running)
        running.settle()
    end, report = ended(vault), vault.reports()[0].read_text()
    assert (end["reason"], end["error_type"]) == ("repository", "repository")
    assert "Tools executed before failure: write_file (1)" in report
    assert git(vault.root, "show", f"{end['kept']}:hello.txt") == "hello"
    refs = git(vault.root, "for-each-ref", "--format=%(refname)").splitlines()
    assert sorted(refs) == [
        "refs/heads/main",
        *(["refs/heads/mine"] if how in ("renamed", "switched") else []),
        end["kept"],
    ]
    assert [path for path in vault.state.glob("*/worktrees/*") if path.is_dir()] == []


def test_internal_error_ends_mission_and_reports_cost(tmp_path: Path) -> None:
    model = Model()
    with (
        looping(bare_vault(tmp_path), model=lambda: model.fake) as running,
        patch("placet.agent.commits.writing", side_effect=ZeroDivisionError("a mistake")),
    ):
        approved(running)
        running.settle()
    end, report = ended(running.vault), running.vault.reports()[0].read_text()
    assert (end["reason"], end["iterations"], end["output_tokens"]) == ("internal_error", 2, 200)
    assert re.search(
        r"placet has a bug: ZeroDivisionError: a mistake \(commits\.py:\d+, commit\)", report
    ), "where, too"
    assert "had changed nothing" not in report


def test_disk_read_errors_are_not_shown_to_model(tmp_path: Path) -> None:
    """Also not where several are made at once."""
    vault, time, fails = bare_vault(tmp_path), Time(), [True]
    model = Model({**PLAN, "steps": [{"title": "Say hello", "tools": ["read_file", "write_file"]}]})
    reads = [("read_file", {"path": "a.md"}), ("read_file", {"path": "b.md"})]
    model.second = lambda ask: says(  # type: ignore[method-assign]
        *(
            reads
            if turns_taken(ask) == 1
            else [
                ("complete_step", {"step": 1, "summary": "Done"}),
                ("finish", {"summary": "Done."}),
            ]
        )
    )
    for name in ("a.md", "b.md"):
        (vault.root / name).write_text("A note.\n")

    def dispatch(box: Toolbox, name: str, given: dict[str, Any]) -> Outcome:
        if name == "read_file" and fails[0]:
            return Outcome(
                '{"error": "Input/output error", "error_type": "io_error"}',
                ok=False,
                error_type="io_error",
            )
        return real(box, name, given)

    real = Toolbox.dispatch
    with (
        looping(vault, time=time, model=lambda: model.fake) as running,
        patch.object(Toolbox, "dispatch", dispatch),
    ):
        approved(running)
        tick = running.settle()
        assert "waiting for the machine: Input/output error" in tick.waiting[0]
        fails[0] = False
        time.pass_time(5)
        running.settle()
    assert len(vault.rows("execution.completed")) == 1
    assert [text for ask in model.fake.asks for text in results(ask) if "io_error" in text] == []


def test_resumed_planning_keeps_its_base_commit(tmp_path: Path) -> None:
    vault, time = bare_vault(tmp_path), Time()
    (vault.root / "a.txt").write_text("old\n")
    asked: list[str] = []

    def answer(ask: Ask) -> Reply:
        if turns_taken(ask) == 0:
            return says(("read_file", {"path": "a.txt"}))
        if not asked:
            asked.append("once")
            raise ModelError(ModelErrorKind.TRANSIENT, "cannot connect")
        return says(("submit_plan", PLAN))

    fake = Fake(answer)
    with looping(
        vault, time=time, model=lambda: fake, retry=RetryPolicy(first_wait_s=20)
    ) as running:
        vault.drop("Say hello.\n")
        running.settle()
        base = git(vault.root, "rev-parse", "HEAD")
        (vault.root / "a.txt").write_text("new\n")
        git(vault.root, "commit", "-q", "-a", "-m", "Meanwhile")
        time.pass_time(1_000)
        running.settle()
        assert f"base_commit: {base}" in vault.plan().read_text()
        vault.approve()
        running.settle()
    assert "a.txt" in vault.plan().read_text(), "it awaits review again, and says what changed"
    assert "execution.completed" not in vault.actions()


# --- how an end without success is told


SAID = "I cannot see a file that says which greeting is meant; it may be `$= x` ghp_" + "aB3d" * 9
LEFT = "I cannot see a file that says which greeting is meant"
OUTSIDE = ("write_file", {"path": "no.txt", "content": ""})
DONE = ("complete_step", {"step": 1, "summary": "Done"})
FINISH = ("finish", {"summary": "Done."})


def carried_out(folder: Path, answer: Any, config: str = "") -> Running:
    vault = bare_vault(folder, config)
    plan = {
        **PLAN,
        "steps": [{"title": "Do it", "tools": ["write_file", "read_file", "list_directory"]}],
    }
    model = Fake(
        lambda ask: says(("submit_plan", plan)) if ask.purpose is Purpose.PLAN else answer(ask)
    )
    vault.drop("Say hello.\n")
    with looping(vault, model=lambda: model, time=Time()) as running:
        running.settle()
        vault.approve()
        running.settle()
    return running


def told(vault: TestVault) -> list[str]:
    """What report, `why` and `status` say."""
    return [
        vault.reports()[0].read_text() if vault.reports() else "",
        vault.click("why", "say-hello").stdout,
        vault.click("status").stdout,
    ]


# one word


def turns(*calls: tuple[str, dict[str, Any]], said: str = "") -> Any:
    return lambda _ask: says(*calls, text=said)


def writes(ask: Ask) -> Reply:
    return says(("write_file", {"path": "hello.txt", "content": f"{turns_taken(ask)}\n"}))


def refused(_ask: Ask) -> Reply:
    raise ModelError(ModelErrorKind.BAD_REQUEST, "prompt is too long")


@pytest.mark.parametrize(
    ("answer", "config", "word", "iterations", "wrong"),
    [
        (turns(("list_directory", {"path": "."})), "", End.REPETITION, 3, True),
        (turns(said="Hm."), "", End.TALK, 4, True),
        (turns(("give_up", {"reason": "No."})), "", End.GAVE_UP, 1, True),
        (turns(DONE, FINISH), "", End.NOTHING_CHANGED, 2, True),
        (turns(OUTSIDE, DONE, FINISH), "", End.UNRESOLVED_ERROR, 2, True),
        (writes, "[limits]\niterations_ceiling = 4\n", End.ITERATION_CAP, 4, False),
        (writes, "[limits]\ntool_calls = 3\n", End.TOOL_CALL_CAP, 4, False),
        (refused, "", End.MODEL_ERROR, 0, False),
    ],
)
def test_end_reason_is_same_in_journal_and_report(
    tmp_path: Path, answer: Any, config: str, word: End, iterations: int, *, wrong: bool
) -> None:
    """Only what the agent did wrong is not to be done again."""
    vault = carried_out(tmp_path, answer, config).vault
    failed = vault.rows("execution.failed")[0]["metadata"]
    assert (failed["reason"], failed["error_type"]) == (word.value, word.value)
    assert failed["iterations"] == iterations
    if word is End.ITERATION_CAP:
        patterns = [event.pattern for event in vault.failures_told()]
        assert patterns == ["max-steps-approaching", "iteration_cap"]
    report, why, _ = told(vault)
    assert f"error_type: {word.value}\n" in report
    assert f"Why it ended: `{word.value}`" in report
    assert (
        json.loads(vault.click("why", "say-hello", "--json").stdout)["mission"]["end"] == word.value
    )
    assert not re.search(r"\b[A-Z]\w+(Error|Cap|Loop)\b", report + why)
    assert ("Do not do again what failed there: " in report) is wrong
    assert ("said last" in report + why) is (word is End.TALK)


# last words


def test_last_model_words_are_quoted_in_every_view(tmp_path: Path) -> None:
    vault = carried_out(tmp_path, turns(said=SAID)).vault
    for words in told(vault):
        assert LEFT in words
        assert "ghp_" not in words
    assert not re.search(r"`\s*\$?=", told(vault)[0].split("## Error Details")[0])


def test_last_planner_words_are_quoted(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    vault.drop("Say hello.\n")
    with looping(vault, model=lambda: Fake(turns(said=SAID)), time=Time()) as running:
        running.settle()
    assert LEFT in vault.rows("plan.failed")[0]["metadata"]["reason"]
    _, why, status = told(vault)
    assert LEFT in why
    assert LEFT in status
    assert "ghp_" not in why + status + json.dumps(vault.rows())


def test_long_last_words_are_shortened(tmp_path: Path) -> None:
    long = carried_out(tmp_path / "long", turns(said="word " * 5000)).vault
    assert 200 < told(long)[0].split("## Error Details")[0].count("word ") * 5 <= 300


# what was cut off


def test_stopped_command_appears_in_journal_and_report(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    plan = {
        **PLAN,
        "scope": {"write": ["hello.txt"], "run": ["sleep 60"]},
        "steps": [{"title": "Do it", "tools": ["write_file", "run_command"]}],
    }
    vault.configure('[commands]\nsandbox = "none"\n')
    vault.plays(plan, [WRITE, ("run_command", {"command": "sleep", "args": ["60"]})])
    vault.drop("Say hello.\n")
    vault.here()
    vault.approve()
    threading.Thread(
        target=lambda: (
            vault.await_action("tool.called"),
            until(lambda: _begun(vault), "the command"),
            vault.active().rename(vault.plan()),
        ),
        daemon=True,
    ).start()
    vault.here()
    assert vault.rows("execution.failed")[0]["metadata"]["reason"] == "stopped_by_person"
    ran = [
        row["metadata"]
        for row in vault.rows("tool.called")
        if row["metadata"]["tool"] == "run_command"
    ]
    assert [(row["target"], row["ok"], row["error_type"], row["exit_code"]) for row in ran] == [
        ("sleep 60", False, "interrupted", None)
    ]
    report = vault.reports()[0].read_text()
    assert "run\\_command (1)" in report or "run_command (1)" in report
    assert "Last tool error: `run_command sleep 60: failed, interrupted`." in report
    assert "Do not do again" not in report, "nothing failed: a person stopped it"


def _begun(vault: TestVault) -> bool:
    import sqlite3

    with sqlite3.connect(f"file:{vault.db}?mode=ro", uri=True) as connection:
        return (
            connection.execute(
                "SELECT count(*) FROM records WHERE kind = 'intent' AND key LIKE 'call:%' "
                "AND CAST(body AS TEXT) LIKE '%sleep%'"
            ).fetchone()[0]
            > 0
        )


# costs

OPUS = next(row for row in DEFAULT_PRICES if row.model == "claude-opus-5-5")


def cost(read: int, written: int) -> float:
    return float((read * OPUS.input + written * OPUS.output) / Decimal(1_000_000))


@pytest.mark.parametrize("broken", [cut, hang_midway])
def test_interrupted_call_is_costed_as_upper_bound(tmp_path: Path, broken: Any) -> None:
    """The prompt is known then, and the answer can have been as long as it was allowed to be."""
    used = {"input_tokens": 1_000, "output_tokens": 100}
    times: list[int] = []

    def script(body: dict[str, Any]) -> Any:
        times.append(1)
        if len(times) == 1:
            answer = broken(text("This will never be whole. " * 20))
            return type(answer)(answer.blocks, usage=used, fault=answer.fault)
        if "submit_plan" in {tool["name"] for tool in body["tools"]}:
            return reply(call("submit_plan", PLAN), usage=used)
        return reply(call(*WRITE), call(*DONE), call("finish", {"summary": "Done."}), usage=used)

    with MessagesApi(script) as api:
        vault = make_vault(
            tmp_path, ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY="sk-ant-test-0123456789"
        )
        vault.configure("[model]\nmax_tokens = 2000\ntimeout_s = 1.5\n")
        vault.drop("Say hello.\n")
        vault.here()
    (lost,) = (row["metadata"] for row in vault.rows("model.failed"))
    assert (lost["tokens"], lost["at_most"], lost["cost_usd"]) == (3_000, True, cost(1_000, 2_000))
    whole = sum(
        row["metadata"]["cost_usd"]
        for row in vault.rows()
        if row["action_type"] in ("model.called", "model.failed")
    )
    assert (
        f"for ${whole:.4f} (at most ${lost['cost_usd']:.4f} of it for interrupted calls)"
        in vault.plan().read_text()
    )
    assert vault.rows("plan.created")[0]["metadata"]["cost_usd"] == pytest.approx(whole)


# --- what is said of work that is over, and what became of it


def one_fails(ask: Ask) -> Reply:
    """What `greeter` says; a request that is named so fails."""
    if ask.purpose is Purpose.EXECUTE and ask.request_id == "fails":
        return says(("give_up", {"reason": "No."}))
    return greeter(ask)


def completed(run: Running, *names: str) -> None:
    for name in names:
        run.vault.drop("Say hello.\n", f"{name}.md")
    run.settle()
    for name in names:
        run.vault.approve(name)
    run.settle()


def test_status_names_next_step_and_counts_failed_plan(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    with looping(vault, model=lambda: Fake(one_fails), time=Time()) as run:
        completed(run, "fails", "hello")
        monkeypatch.setattr(screen_module, "wall", run.loop.ports.clock.wall)
        told = vault.click("status").stdout
        assert told.index(" fails ") < told.index(" hello "), "what can be merged comes last"
        found = status(vault.site)
        assert [case.request_id for case in plans(vault.site)] == ["fails", "hello"]
        screen = status_screen(found)
        assert "Waits for you (2)" in screen
        assert "placet diff hello, placet merge hello" in screen
        vault.click("merge", "hello")
        run.settle()
        run.loop.ports.clock.sleep(100)
        run.settle()
        assert "placet merge" not in vault.click("status").stdout


def test_merge_and_undo_print_sentence_and_undo_confirms(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        completed(run, "hello")
        told = CliRunner().invoke(
            main, ["merge", "hello", "--vault", str(vault.root)], env=vault.env
        )
        sentence, commit = told.output.splitlines()
        assert re.match(r"placet: your notes have it now: \w{12} on main\. To undo it: ", sentence)
        assert told.stdout == f"{commit}\n"
        told = CliRunner().invoke(
            main, ["undo", "hello", "--vault", str(vault.root)], "y\n", env=vault.env
        )
        what, question, sentence, _ = told.output.splitlines()
        assert what.startswith(f"This undoes what {commit[:12]} brought into main of ")
        assert question == "Do that? [y/N]: y"
        assert sentence == "placet: undone, by this commit on main:"


def test_failure_report_quotes_answers_and_omits_empty_lists(
    vault: TestVault,
) -> None:
    def asks(ask: Ask) -> Reply:
        if ask.purpose is Purpose.PLAN and turns_taken(ask) < 2:
            options = ["the *red* one", "the blue one"]
            return says(("ask_person", {"question": "Which one?", "options": options}))
        if ask.purpose is Purpose.EXECUTE and turns_taken(ask) == 1:
            return says(("give_up", {"reason": "No."}))
        return greeter(ask)

    with looping(vault, model=lambda: Fake(asks), time=Time()) as run:
        vault.drop("Say hello.\n", "hello.md")
        run.settle()
        for answer in ("2", "A green one."):
            vault.click("answer", "hello", answer)
            run.settle()
        vault.approve("hello")
        run.settle()
    report = vault.reports()[0].read_text()
    assert "- **Which one?** ([[hello_question1]]): the blue one — " in report
    assert "- **Which one?** ([[hello_question2]]): A green one. — " in report
    assert "The earlier attempt had done:" in report
    assert "Still to be done" not in report


@pytest.mark.parametrize(
    ("old", "new", "edited"),
    [
        ("A file.\n", "A file.\n\n> @placet A green one.\n", False),
        ("None known.\n", "None known.\n\n## Review Comments\n\n- A green one.\n", False),
        ("> **Where**", "> @placet A green one.\n> **Where**", False),
        ("A file.\n", "A green file.\n", True),
        ("## Scope\n", "## Scope\n\nWhatever it takes.\n", True),
        ('"hello.txt"]', '"hello.txt"]\n', True),
    ],
)
@pytest.mark.thinned(3)
def test_approval_with_remark_is_not_edited(
    vault: TestVault, old: str, new: str, edited: bool
) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        vault.drop("Say hello.\n", "hello.md")
        run.settle()
        plan = vault.plan("hello")
        plan.write_text(plan.read_text().replace(old, new, 1))
        run.settle()
        vault.approve("hello")
        run.settle()
    row = vault.rows("plan.approved")[0]["metadata"]
    assert (row["edited"], row["comment_count"]) == (edited, 0 if edited else 1)
    assert (", as edited" in vault.click("watch", "hello").stdout) is edited


@pytest.mark.parametrize("at_once", [True, False])
def test_comment_in_summary_box_reaches_planner(vault: TestVault, at_once: bool) -> None:
    model = Fake(greeter)
    with looping(vault, model=lambda: model, time=Time()) as run:
        vault.drop("Say hello.\n", "hello.md")
        run.settle()
        plan = vault.plan("hello")
        text = plan.read_text().replace("> **Where**", "> @placet A green one.\n> **Where**")
        decided = text.replace('decision: ""', "decision: revise")
        plan.write_text(decided if at_once else text)
        run.settle()
        if not at_once:
            text = plan.read_text()
            assert f"\n\n{REMARKS}\n> @placet A green one.\n" in text
            plan.write_text(text.replace('decision: ""', "decision: revise"))
            run.settle()
    (revise,) = [ask for ask in model.asks if ask.purpose is Purpose.REVISE]
    told = [str(block["text"]) for block in revise.turns[0].blocks]
    assert "Open review comments, in order:\n1. A green one." in told
    assert "\n- Above the plan: A green one.\n" in plan.read_text()
    assert vault.rows("plan.revision_requested")[0]["metadata"]["comment_count"] == 1


def test_model_text_above_plan_is_not_comment() -> None:
    body = "> [!abstract] What changed\n> @placet Widen it.\n\n> [!info] x\n> - @placet More.\n\n"
    assert comments(f"{body}# Title\n") == ()
    assert comments(f"> @placet Mine.\n\n{body}# Title\n")[0].text == "Mine."


def side_notes(vault: TestVault) -> str:
    return "".join(note.read_text() for note in sorted(vault.root.rglob("*.placet.md")))


def test_capitalised_key_decides_nothing_and_is_explained(vault: TestVault) -> None:
    def asks(ask: Ask) -> Reply:
        if ask.purpose is Purpose.EXECUTE and turns_taken(ask) == 0:
            return says(("ask_person", {"question": "Which one?", "options": ["a", "b"]}))
        return greeter(ask)

    with looping(vault, model=lambda: Fake(asks), time=Time()) as run:
        vault.drop("Say hello.\n", "hello.md")
        run.settle()
        plan = vault.plan("hello")
        before = plan.read_text()
        plan.write_text(before.replace("\ntrace_id", "\nDecision: approve\ntrace_id", 1))
        run.settle()
        assert "`Decision` has no effect: write this key in small letters, `decision`." in (
            side_notes(vault)
        )
        assert vault.rows("plan.approved") == []
        plan.write_text(before)
        run.settle()
        assert not side_notes(vault)
        vault.approve("hello")
        run.settle()
        question = vault.root / "Inbox/Questions/hello_1.md"
        question.write_text(question.read_text().replace('answer: ""', "Answer: a"))
        run.settle()
        assert "`Answer` has no effect: write this key in small letters, `answer`." in (
            side_notes(vault)
        )
        assert vault.rows("question.answered") == []


def test_questions_asked_at_same_instant_are_ordered(vault: TestVault) -> None:
    def asks(ask: Ask) -> Reply:
        if ask.purpose is Purpose.EXECUTE and turns_taken(ask) < 2:
            return says(("ask_person", {"question": "Which one?", "options": ["a", "b"]}))
        return greeter(ask)

    class Frozen(Time):
        def wall(self) -> datetime:
            return self.began

    with looping(vault, model=lambda: Fake(asks), time=Frozen()) as run:
        vault.drop("Say hello.\n", "hello.md")
        run.settle()
        vault.approve("hello")
        run.settle()
        asked = [next(iter(run.loop.cases.values())).asking]
        vault.click("answer", "hello", "1")
        run.settle()
        asked.append(next(iter(run.loop.cases.values())).asking)
    first, second = (one.asked_at for one in asked if one is not None)
    assert second > first


def test_counts_have_the_form_of_their_noun() -> None:
    assert counted(1, "file") == "1 file"
    assert counted(2_000, "branch", "branches") == "2,000 branches"
    assert counted(0, "process", "processes") == "0 processes"
    created = {"revision": 1, "steps": 1, "digest": "0" * 64}
    assert facts("plan.created", created) == "a plan waits for you (revision 1, 1 step)"
    done = {"branch": "feat/x", "files_changed": ["a"], "commit": "0" * 40}
    assert facts("execution.completed", done) == "completed: 1 file changed on feat/x"
    many = {**done, "files_more": 39_999}
    assert facts("execution.completed", many) == "completed: 40,000 files changed on feat/x"
    lost = {"purpose": "execute", "attempt": 1, "reason": "the daemon was killed", "kind": "x"}
    assert facts("model.failed", lost) == "execute: attempt 1 failed: the daemon was killed"


@pytest.mark.parametrize("found", ["/bin/placet", None])
def test_demo_prints_command_that_user_can_run(
    monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: found)
    assert called() == ("placet" if found else f"{shlex.quote(sys.executable)} -m placet")


# --- where a report lies


def case_of(vault: TestVault) -> dict[str, Any]:
    with closing(sqlite3.connect(vault.db)) as connection:
        ((body,),) = connection.execute("SELECT body FROM cases").fetchall()
    return dict(json.loads(body))


def test_same_day_failures_get_separate_reports(
    tmp_path: Path,
) -> None:
    vault = bare_vault(tmp_path)
    reasons = iter(["FIRST", "SECOND"])
    asks: list[Ask] = []

    def gives_up(ask: Ask) -> Reply:
        asks.append(ask)
        return (
            greeter(ask)
            if ask.purpose is not Purpose.EXECUTE
            else says(("give_up", {"reason": next(reasons)}))
        )

    with looping(vault, model=lambda: Fake(gives_up), time=Time()) as running:
        note = vault.drop("Say hello\n")
        for number in (1, 2):
            running.settle()
            vault.approve()
            running.settle()
            rows = vault.rows("report.written")
            assert len(rows) == number
            assert case_of(vault)["outcome"]["report_path"] == rows[-1]["metadata"]["path"]
            note.write_text(note.read_text().replace("status: error", "status: pending"))
        running.settle()
    first, second = (row["metadata"]["path"] for row in vault.rows("report.written"))
    assert second == first.replace(".md", "-2.md")
    assert "FIRST" in (vault.root / first).read_text()
    assert "SECOND" in (vault.root / second).read_text()
    assert asks[-1].purpose is Purpose.PLAN
    assert "SECOND" in str(asks[-1].turns)
    assert "FIRST" not in str(asks[-1].turns)
